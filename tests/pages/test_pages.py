"""Every page in every state says what is there or what to do, and never shows a traceback."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pandas as pd
import pytest
import streamlit as st
from pydantic import TypeAdapter
from streamlit.testing.v1 import AppTest

from memrl_core.agent.live import LiveRun
from memrl_core.agent.preferences import (
    REAL_DEMO,
    Preferences,
    banks_folder,
    demo_bank,
    load_preferences,
    save_preferences,
)
from memrl_core.agent.run_parts import make_embedder, models_at_hand
from memrl_core.agent.runs import live_run, start_run
from memrl_core.analysis.decision.gate import suggested
from memrl_core.analysis.decision.outline import TITLES
from memrl_core.analysis.people.reward_effect import compiled, differing
from memrl_core.analysis.run import following
from memrl_core.analysis.run.following import FOLLOWS, MeasuredFollows, follow_counts, measured_follows
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating, RatingsWriter
from memrl_core.environments.tasks import sample_data_path, sample_tasks, tasks_of_set
from memrl_core.errors import BankDamaged
from memrl_core.learning.scales import RatingScales
from memrl_core.models import gguf
from memrl_core.models.ollama import list_models
from memrl_core.numerals import signed
from memrl_core.records import EventKind, LedgerEvent, Phase, Reply
from memrl_core.settings import PRESETS, MemRLSettings
from pages.shared import place as places
from pages.shared.header import status_of
from pages.shared.view import View
from pages.step import stage
from tests.builders import numbers
from tests.ollama.scene import LLAMA
from tests.ollama.server import OllamaServer
from tests.pages.screen import (
    RUN,
    Download,
    Stored,
    Visit,
    a_bank,
    beliefs,
    by_hand,
    full,
    on_stage,
    opened,
    page_text,
    stands,
)

SCALES = [
    ({"scale": "stars"}, {"key": 4}, 0.5),
    ({"scale": "graded"}, {"key": 2}, -0.5),
    ({"scale": "graded"}, {"grade": 0.25}, 0.25),
    ({"scale": "rubric"}, {"marks": {"correct": 5, "complete": 3, "clear": 1}}, 0.25),
]
"""A scale, what is chosen on it, and the reward from −1 to 1 that it becomes."""


def test_home_offers_the_playground_and_two_recorded_agents(visit: Visit) -> None:
    app = visit("home")
    assert {"open_playground", "play_demo", "play_demo_qwen"} <= {button.key for button in app.button}
    measured = pd.read_parquet(sample_data_path() / "real-models.parquet").query(
        "epoch > 6 and model == 'gguf:smollm2'"
    )
    for arm in ("λ = 0, k2 = 1", "MemRL, k2 = 1", "successes alone, k2 = 1", "MemRL over successes, k2 = 1"):
        share = measured[measured["arm"] == arm].groupby("seed")["accuracy"].mean().mean()
        assert f"{100 * share:.0f} %" in page_text(app)
    assert "household" in page_text(app)


def test_home_works_without_a_demo(home: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.agent.preferences.sample_data_path", lambda: home / "nothing")
    assert "this installation" in page_text(visit("home"))


@pytest.mark.parametrize("page", ["home", "step", "rewards", "bank", "lab", "tasks"])
def test_pages_are_drawn_without_a_home_that_can_be_written(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setenv("MEMRL_HOME", "/dev/null/home")  # Beneath a file there is no folder, for root neither.
    assert "MEMRL\\_HOME" in page_text(visit(page, **({"bank": REAL_DEMO} if page == "step" else {})))


def test_each_phase_opens_what_the_stage_has_no_room_for_and_nothing_else_is_on_the_page(
    demo: Path, visit: Visit
) -> None:
    app = visit("step", bank="demo", step="11", memory="household-0007")
    assert "Replay" in page_text(app) and "step 11 of 40" in page_text(app) and not app.expander
    assert not app.code and not app.dataframe
    holds = {
        Phase.EMBED: "embedded by",
        Phase.SELECT: "similarity_z: mean",
        Phase.GENERATE: "was sent",
        Phase.REWARD: "The environment: reward",
        Phase.UPDATE: "credited",
    }
    for phase, text in holds.items():
        said = page_text(opened(app, phase)).replace("\\", "")
        assert text in said and f"{list(Phase).index(phase) + 1} · {TITLES[phase]}" in said
        assert not [other for other in holds.values() if other != text and other in said]
    pool = opened(app, Phase.RECALL).dataframe[0].value
    assert list(pool["rank"]) == list(range(1, len(pool) + 1)) and pool["in the pool"].any()
    app.button(key="close_drawer").click().run()
    assert not app.dataframe and on_stage(app)["drawer"] is None


def test_the_drawer_of_the_update_has_each_move_as_it_counts_and_q_now(bank: Stored, visit: Visit) -> None:
    app = by_hand(opened(visit("step", bank="demo", step="20"), Phase.UPDATE), key=1)
    table = app.dataframe[0].value
    moves = {
        one: [p for p in bank.history("household", one) if p.step == 20] for one in bank.credits.of("household", 20)
    }
    assert list(table["→ q"]) == [points[-1].after for points in moves.values()]
    assert list(table["now"]) == [bank.utilities("household")[one].q for one in moves]


def test_a_bank_from_which_something_is_missing_says_so_on_its_pages(demo: Path, visit: Visit) -> None:
    with MemoryBank.open(str(demo)) as bank:
        bank.write.ratings.rate(Rating(RUN, 40, -1.0, "ann"))
        held = json.loads((demo / "bank.db-last").read_text())
    held["ledger"][0] += 3
    (demo / "bank.db-last").write_text(json.dumps(held))
    (said,) = [warning.value for warning in visit("step", run=RUN, step=40).warning]
    assert numbers(said)[0] == "3"


def test_the_prompt_is_shown_before_it_is_sent(demo: Path, visit: Visit) -> None:
    app = visit("step", bank="demo")
    for _ in range(4):
        app.button(key="step").click().run()
    text = page_text(opened(app, Phase.GENERATE))
    assert "will be sent" in text and "[memory household-" in text


def test_the_stage_of_a_replay_has_every_move_of_a_q_that_the_bank_has(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="24").run()
    sent = on_stage(app)
    ids = [*app.session_state[stage.SENT][1], *sent["memories"]["id"]]
    steps = [step["step"] for step in sent["steps"]]
    assert len(steps) > 10
    moved = {(int(step), ids[n]): (q, visits) for step, moves in sent["moves"].items() for n, q, visits in moves}
    with sqlite3.connect(f"file:{bank.uri}/bank.db?mode=ro", uri=True) as database:
        query = "SELECT step, memory_id, after, visits FROM q_moves WHERE run = ? AND step BETWEEN ? AND ?"
        stored = {
            (at, name): (q, visits) for at, name, q, visits in database.execute(query, (RUN, steps[0], steps[-1]))
        }
    assert len(stored) > 20 and moved == stored


def test_the_prompt_names_the_q_that_its_memories_had_at_the_decision(bank: Stored, visit: Visit) -> None:
    app = opened(visit("step", bank="demo", step="11"), Phase.GENERATE)
    trace = bank.trace("household", 11)
    q = {c.memory_id: c.q for c in trace.decision.candidates if c.selected}
    after = {c.memory_id: c.after for c in trace.update.of_q}
    assert q != after
    framed = [b.label.replace("\\", "") for b in app.button if (b.key or "").startswith("open_prompt")]
    for memory_id in q:
        (label,) = [label for label in framed if f"#{int(memory_id[-4:])} " in label]
        assert label.endswith(f"q {signed(q[memory_id])}")


def test_a_replay_plays_until_the_person_moves_and_no_further_than_its_end(demo: Path, visit: Visit) -> None:
    app = visit("step", bank="demo", run="household", step="3")
    app.button(key="replay_play").click().run()
    assert app.session_state["playing"] == ("demo", "household", 3)
    app.button(key="replay_pause").click().run()
    assert "playing" not in app.session_state and app.query_params["step"] == "3"
    app.button(key="replay_play").click().run()
    app.button(key="move_Next").click().run()
    assert "playing" not in app.session_state and app.query_params["step"] == "4"
    assert visit("step", bank="demo", run="household", step="40").button(key="replay_play").disabled


@pytest.mark.parametrize("playing", [True, False])
def test_where_the_stage_was_before_a_person_left_it_takes_nobody_back(
    monkeypatch: pytest.MonkeyPatch, playing: bool
) -> None:
    session: dict[str, Any] = {
        "place": {"bank": "demo", "run": "household", "step": "20"},
        "playing": ("demo", "household", 20),
        stage.SHOWN: (20, 40),
    }
    monkeypatch.setattr(st, "session_state", session)

    def reported(step: int, moves: int) -> str | None:
        count = session.get(stage.HEARD, {"count": 0})["count"] + 1
        went = {"of": "a", "count": count, "step": step, "memory": None, "playing": playing, "moves": moves}
        session[stage.KEY] = {"went": went}
        stage._went()
        return cast("str | None", session["place"].get("step"))

    assert reported(21, moves=0) == "21"
    assert session.get("playing") == (("demo", "household", 21) if playing else None)
    places.go(step=None)
    assert reported(22, moves=0) is None and "playing" not in session
    assert reported(23, moves=1) == "23"


def test_what_comes_while_a_page_is_drawn_has_it_drawn_anew(
    bank: Stored, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def drawer(view: View) -> None:
        drawn.append(view.place.bank.facts)
        if len(drawn) == 1:  # As another session does.
            view.place.bank.write.ratings.rate(Rating(view.run.id, 7, -1.0, "ann"))

    monkeypatch.setattr("pages.step.drawers.drawer", drawer)
    visit("step", bank="demo", step="7")
    assert drawn == [bank.facts - 1, bank.facts]


def test_what_the_stage_asks_for_is_done_once_even_if_the_page_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    session: dict[str, Any] = {stage.KEY: {"asked": ["film", ""]}}
    monkeypatch.setattr(st, "session_state", session)
    stage._asked()
    session[stage.KEY] = {"asked": None}  # The next run of the page has forgotten it.
    stage._asked()
    assert stage._to_do() == ["film", ""] and stage._to_do() is None
    session[stage.KEY] = {"asked": ["film", ""]}
    stage._asked()
    monkeypatch.setattr(stage, "PATIENCE", 0.0)
    assert stage._to_do() is None


def test_what_the_browser_sends_before_it_learns_of_a_move_is_of_another_field(demo: Path, visit: Visit) -> None:
    """A field that stands at what was shown before would else be taken for a choice, and lead back there."""
    by_place = [visit("step", bank="demo", run="household", **at) for at in ({}, {"step": "40"})]
    live, replay = ([one.key for one in app.segmented_control if one.label == "Mode"] for app in by_place)
    assert len(live) == len(replay) == 1 and live != replay


def test_a_run_is_rewound_to_a_step_under_other_settings_and_goes_on_with_others_yet(
    demo: Path, visit: Visit, bank: Stored
) -> None:
    app = visit("step", bank="demo", run="household", step="12")
    app.number_input(key="rewound_household_12_weight").set_value(0.9)
    app.button(key="rewind").click().run()
    info = next(one for one in bank.runs() if one.base == "household")
    assert (info.base_step, info.first_step, info.settings["weight"]) == (11, 12, 0.9)
    assert app.query_params["run"] == info.id and not app.error
    assert app.button(key="compare_with_base").label == "Compare with household"
    app.number_input(key=f"next_{info.id}_12_k2").set_value(1)
    app.button(key="use_settings").click().run()
    assert bank.settings(info.id, 12)["k2"] == 1 and bank.settings("household", 40)["k2"] != 1


def test_an_address_that_the_browser_tells_late_moves_nobody_back(demo: Path, visit: Visit) -> None:
    app = visit("step", bank="demo", run="household", step="15")
    app.button(key="move_Next").click().run()
    app.query_params["step"] = "15"
    app.button(key="move_Next").click().run()
    app.query_params["step"] = "16"
    app.run()
    assert app.query_params["step"] == "17"
    app.run()
    app.query_params["step"] = "16"
    app.run()
    assert app.query_params["step"] == "16", "what was asked for after the last move was told is a person's wish"


def test_one_key_saves_a_reward_that_the_stage_shows_and_undo_and_redo_move_it_back_and_forth(
    bank: Stored, visit: Visit
) -> None:
    app = visit("step", bank="demo", step="22")
    before, counts = dict(bank.utilities("household")), stands(app)["counts"]
    credited = bank.credits.of("household", 22)
    by_hand(app, key=1)
    moved = dict(bank.utilities("household"))
    assert {name for name in before if before[name] != moved[name]} == set(credited)
    hand, sent = stands(app), on_stage(app)
    assert (hand["counts"], hand["mine"], hand["environment"], hand["whose"]) == (-1.0, -1.0, counts, "yours")
    now = {sent["memories"]["now"][str(n)] for n in range(40) if str(n) in sent["memories"]["now"]}
    assert {moved[name].q for name in credited} <= now
    by_hand(app, "undo")
    assert dict(bank.utilities("household")) == before
    hand = stands(app)
    assert (hand["counts"], hand["mine"], hand["undo"], hand["redo"]) == (counts, None, False, True)
    by_hand(app, "redo")
    assert dict(bank.utilities("household")) == moved and stands(app)["mine"] == -1.0


def test_undo_takes_back_what_was_done_last_the_credit_before_the_reward(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="22")
    before = dict(bank.utilities("household"))
    by_hand(app, key=1)
    rated = dict(bank.utilities("household"))
    assert stands(app)["undoes"] == "reward"
    by_hand(app, "credit", what="not", memory=bank.credits.of("household", 22)[0])
    assert dict(bank.utilities("household")) != rated and stands(app)["undoes"] == "credit"
    by_hand(app, "undo")
    assert dict(bank.utilities("household")) == rated
    assert (stands(app)["mine"], stands(app)["credit"], stands(app)["undoes"]) == (-1.0, None, "reward")
    by_hand(app, "undo")
    assert dict(bank.utilities("household")) == before and not stands(app)["undo"]


def test_redo_gives_again_what_undo_took_back_last_the_reward_before_the_credit(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="22")
    first, second = bank.credits.of("household", 22)[:2]
    seen = [dict(bank.utilities("household"))]
    for act in (
        {"key": 1},
        {"do": "credit", "what": "not", "memory": first},
        {"do": "credit", "what": "not", "memory": second},
    ):
        by_hand(app, **act)
        seen.append(dict(bank.utilities("household")))
        assert not stands(app)["redo"]
    for before in reversed(seen[:-1]):
        by_hand(app, "undo")
        assert dict(bank.utilities("household")) == before and stands(app)["redo"]
    for after, what in zip(seen[1:], ("reward", "credit", "credit"), strict=True):
        assert stands(app)["redoes"] == what
        by_hand(app, "redo")
        assert dict(bank.utilities("household")) == after and stands(app)["undo"]
    assert not stands(app)["redo"] and set(stands(app)["credit"]) == {first, second}
    by_hand(app, "undo")
    by_hand(app, key=5)
    assert not stands(app)["redo"], "what is given since is not overwritten"


def test_a_reward_that_comes_with_a_name_is_kept_under_it_or_refused_with_it(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="22")
    by_hand(app, key=1, name="*")
    assert stands(app)["mine"] is None and "Nothing was saved" in on_stage(app)["hand"]["done"]["error"]
    by_hand(app, key=1, name="Zoe")
    given = bank.ratings.active("household", 22, str(stands(app)["id"]))
    assert [event.rater for event in given if event.source == "person"] == ["Zoe"]


def test_the_steps_that_follow_a_reward_are_named_with_those_that_would_choose_otherwise(
    bank: Stored, visit: Visit
) -> None:
    credited = bank.credits.of("household", 20)
    before = bank.histories("household")
    app = by_hand(visit("step", bank="demo", step="20"), key=1)
    after = bank.histories("household")
    while on_stage(app)["hand"]["later"]["others"] is None:
        app.run()
    later = on_stage(app)["hand"]["later"]
    followed = {p.step for one in credited for p in after[one] if p.step > 20 and p not in before[one]}
    assert later["steps"] == sorted(followed) != []
    choices = compiled(bank, "household")
    assert choices is not None
    assert later["others"] == [one.step for one in differing(choices, before, after)] != []


@pytest.mark.parametrize(("values", "act", "reward"), SCALES)
def test_the_hand_has_the_scale_of_the_run(
    bank: Stored, visit: Visit, values: dict[str, Any], act: dict[str, Any], reward: float
) -> None:
    bank.write.ratings.change_scales("household", RatingScales.of(values), "boss")
    app = visit("step", bank="demo", step="22")
    assert on_stage(app)["hand"]["scale"]["name"] == values["scale"]
    by_hand(app, **act)
    (event,) = [one for one in bank.ratings.of("household", 22) if one.source == "person"]
    assert event.value == stands(app)["mine"] == pytest.approx(reward)
    assert event.payload["scale"] == values["scale"]


def test_a_reward_for_a_run_or_an_attempt_that_the_page_shows_no_longer_is_refused(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="22")
    for other in ({"run": "another"}, {"id": "another"}, {"step": 99}, {"key": 4}):
        by_hand(app, **{"key": 1, **other})
        assert "Nothing was saved" in on_stage(app)["hand"]["done"]["error"] or other == {"step": 99}
        assert on_stage(app)["hand"]["done"]["error"] and stands(app)["mine"] is None
    by_hand(app, key=1)
    assert on_stage(app)["hand"]["done"]["error"] == "" and stands(app)["mine"] == -1.0
    by_hand(app, "undo")
    by_hand(app, "undo")
    assert "No reward of yours" in on_stage(app)["hand"]["done"]["error"]


def test_a_person_who_overrules_the_environment_is_shown_beside_what_it_gave(demo: Path, visit: Visit) -> None:
    app = visit("step", bank="demo")
    while "Reward" not in app.button(key="step").label:
        app.button(key="step").click().run()
    live = places.live_runs()[str(demo), "household"]
    world = live.episode.environment_reward
    assert world is not None and stands(app)["off"] == ""
    by_hand(app, key=1 if world > 0 else 5)
    hand = stands(app)
    assert (hand["environment"], hand["mine"], hand["counts"], hand["whose"]) == (world, -world, -world, "yours")


def test_on_a_card_one_memory_is_credited_alone_or_not_at_all_and_all_again(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="20")
    begun, (first, second, third) = beliefs(bank), bank.credits.of("household", 20)

    def moved() -> list[str]:
        return [one for one in (first, second, third) if any(p.step == 20 for p in bank.history("household", one))]

    assert moved() == [first, second, third] == stands(app)["credited"]
    for what, left in (("not", [second, third]), ("only", [first]), ("not", []), ("all", [first, second, third])):
        by_hand(app, "credit", what=what, memory=first)
        assert on_stage(app)["hand"]["done"]["error"] == "" and moved() == left
        assert len(step_on(app)["update"]["changes"]) == len(left)
    assert beliefs(bank) == begun


def test_as_it_was_then_is_sent_beside_what_counts_now(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="20")
    assert step_on(app)["then"] is None
    by_hand(app, key=1)
    recorded, step = bank.trace("household", 20), step_on(app)
    assert (step["reward"]["reward"], step["then"]["reward"]["reward"]) == (-1.0, recorded.reward.reward)
    assert [c["after"] for c in step["then"]["update"]["changes"]] == [c.after for c in recorded.update.of_q]
    assert [c["after"] for c in step["update"]["changes"]] != [c.after for c in recorded.update.of_q]


def step_on(app: AppTest) -> dict[str, Any]:
    """The step that the stage shows."""
    sent = on_stage(app)
    (found,) = [step for step in sent["steps"] if step["step"] == sent["at"]]
    return found


def test_a_step_without_a_memory_says_that_a_reward_moves_no_q(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="1")
    before = dict(bank.utilities("household"))
    assert bank.credits.of("household", 1) == () and "moves no q" in stands(app)["note"]
    by_hand(app, key=1)
    assert stands(app)["mine"] == -1.0 and dict(bank.utilities("household")) == before


@pytest.mark.parametrize("button", ["step", "finish"])
def test_a_page_that_others_have_moved_on_since_says_where_the_run_is_and_runs_nothing(
    demo: Path, visit: Visit, button: str
) -> None:
    stale, other = visit("step", bank="demo"), visit("step", bank="demo")
    for _ in range(3):
        other.button(key="step").click().run()
    live = places.live_runs()[str(demo), "household"]
    before = live.episode.phase
    stale.button(key=button).click().run()
    assert live.episode.phase is before
    said = page_text(stale)
    assert "step 41" in said and TITLES[before] in said and "nothing was run" in said
    stale.button(key=button).click().run()
    assert live.episode.phase is not before
    stale.button(key=button).click().run()
    assert "nothing was run" not in page_text(stale), "its own moves are no others'"


def test_a_reward_that_cannot_be_saved_is_reported_and_can_be_given_again(
    demo: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit("step", bank="demo", step="21")
    with monkeypatch.context() as patched:
        patched.setattr(RatingsWriter, "rate", full)
        by_hand(app, key=5)
    assert "disk is full" in on_stage(app)["hand"]["done"]["error"] and stands(app)["mine"] is None
    by_hand(app, key=5)
    assert on_stage(app)["hand"]["done"]["error"] == "" and stands(app)["mine"] == 1.0


def asked(visit: Visit, name: str, *questions: str) -> AppTest:
    """A conversation in which all questions but the last were answered and skipped; the last waits for a reward."""
    app = visit("step", bank=name)
    for question in questions:
        app.text_area(key="typed_intent").set_value(question).run()
        app.button(key="ask").click().run()
        app.button(key="finish").click().run()
        assert places.live_runs()[str(banks_folder() / name), "r"].wait(30)
        app.run()
        if question != questions[-1]:
            by_hand(app, "skip")
    return app


def test_one_key_rewards_the_answer_that_waits_and_q_moves(home: Path, visit: Visit) -> None:
    name = a_bank(environment="conversation")
    path = str(banks_folder() / name)
    app = asked(visit, name, "What is a hash table?", "What is a hash map?")
    assert on_stage(app)["hand"]["waits"] and stands(app)["off"] == ""
    by_hand(app, key=5, reason="short")
    with MemoryBank.open(path) as bank:
        trace = bank.trace("r", 2)
        assert (trace.reward.reward, trace.reward.reason) == (1.0, "short")
        assert bank.utilities("r")["r-0001"].q == pytest.approx(0.3)
        assert [(e.value, e.payload) for e in bank.ratings.of("r", 2)] == [(1.0, {"scale": "thumbs", "thumb": "up"})]
    assert stands(app)["mine"] == 1.0 and not on_stage(app)["hand"]["waits"]
    by_hand(app, "reason", reason="short and right")
    with MemoryBank.open(path) as bank:
        assert [e.reason for e in bank.ratings.of("r", 2)] == ["short and right"]
    by_hand(app, "undo")
    by_hand(app, "undo")
    with MemoryBank.open(path) as bank:
        assert bank.utilities("r")["r-0001"].q == 0.0 and bank.ratings.of("r", 2) == []


def test_finish_says_that_a_reward_is_wanted_and_skip_ends_the_step_without_one(home: Path, visit: Visit) -> None:
    name = a_bank(environment="conversation")
    app = asked(visit, name, "What is a hash table?")
    app.button(key="finish").click().run()
    assert "your reward" in app.toast[0].value
    by_hand(app, "skip")
    with MemoryBank.open(str(banks_folder() / name)) as bank:
        trace = bank.trace("r", 1)
    assert (trace.reward.reward, trace.reward.outcome) == (None, "unrated")
    by_hand(app, key=1)
    assert stands(app)["mine"] == -1.0


@pytest.mark.parametrize("typed", ["", "   ", "…", "x" * 100_000])
def test_an_intent_that_cannot_be_used_is_refused_in_a_sentence(home: Path, visit: Visit, typed: str) -> None:
    app = visit("step", bank=a_bank(environment="conversation"))
    app.text_area(key="typed_intent").set_value(typed).run()
    app.button(key="ask").click().run()
    assert "nothing was started" in page_text(app)
    assert app.text_area(key="typed_intent").value == typed


def test_a_run_whose_ollama_is_off_says_how_to_start_it(home: Path, visit: Visit) -> None:
    app = visit("step", bank=a_bank(model="llama3.2"))
    assert "not running" in page_text(app).replace("\\", "")
    assert "ollama serve" in page_text(app)
    for _ in range(4):
        app.button(key="step").click().run()
    app.button(key="step").click().run()
    assert app.button(key="retry")
    app.button(key="drop").click().run()
    assert "Step" in app.button(key="step").label


NO_RUN = {"step": "no run", "bank": "no run", "home": "no run yet", "decision": "no run yet", "compare": "no run yet"}


@pytest.mark.parametrize(("page", "says"), NO_RUN.items())
def test_a_bank_without_a_run_says_how_to_start_one(home: Path, visit: Visit, page: str, says: str) -> None:
    assert says in page_text(visit(page, bank=a_bank(runs=False)))


@pytest.mark.parametrize(
    ("page", "link", "says"),
    [
        ("decision", {}, "no memory yet"),
        ("methods", {"show": "On this pool"}, "no finished step"),
        ("methods", {"show": "What it has learned"}, "no finished step"),
    ],
)
def test_a_run_without_a_step_says_where_to_begin(
    home: Path, visit: Visit, page: str, link: dict[str, str], says: str
) -> None:
    assert says in page_text(visit(page, bank=a_bank(), **link))


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ({"bank": "../../etc"}, "There is no bank"),
        ({"bank": "demo", "run": "nobody", "step": "12"}, "There is no run"),
        ({"bank": "demo", "step": "41"}, "is not a step"),
        ({"bank": "demo", "step": "9" * 40}, "is not a step"),
        ({"bank": "demo", "step": "NaN"}, "is not a step"),
    ],
)
def test_a_link_to_what_is_not_here_stays_and_nothing_else_is_shown_under_it(
    demo: Path, visit: Visit, link: dict[str, str], says: str
) -> None:
    app = visit("step", **link)
    for _ in range(2):
        assert [says in warning.value for warning in app.warning] == [True]
        assert {name: app.query_params[name] for name in link} in (
            link,
            {name: [value] for name, value in link.items()},
        )
        assert "40 memories" not in page_text(app) and "put the" not in page_text(app)
        app.run()
    app.button(key="show_instead").click().run()
    assert says not in page_text(app) and "40 memories" in page_text(app)


def test_a_damaged_bank_is_said_and_can_be_left(demo: Path, visit: Visit) -> None:
    shutil.copytree(demo, demo.with_name("broken"))
    (demo.with_name("broken") / "bank.db").write_bytes(b"nothing of it is left" * 500)
    app = visit("step", bank="broken")
    assert "cannot be read" in page_text(app)
    app.button(key="leave").click().run()
    assert app.button(key="play_demo")


def test_a_step_that_cannot_be_read_can_be_left_for_another(
    bank: Stored, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = MemoryBank.trace

    def damaged(bank: Stored, run: str, step: int) -> object:
        if step == 7:
            raise BankDamaged("Step 7 cannot be read.")
        return read(bank, run, step)

    monkeypatch.setattr(MemoryBank, "trace", damaged)
    app = visit("step", bank="demo", step="7")
    assert "Step 7 cannot" in page_text(app)
    app.button(key="move_Next").click().run()
    assert "step 8 of 40" in page_text(app)


def test_an_earlier_step_that_cannot_be_read_leaves_the_buttons_of_the_last(demo: Path, visit: Visit) -> None:
    shutil.copytree(demo, demo.with_name("torn"))
    with sqlite3.connect(demo.with_name("torn") / "bank.db") as database:
        database.execute("UPDATE steps SET trace = substr(trace, 1, 200) WHERE step = 12")
    app = visit("step", bank="torn")
    assert "Step 12 of run household cannot be read" in page_text(app)
    assert not app.button(key="step").disabled
    assert "leave" not in {button.key for button in app.button}


def test_a_step_that_cannot_be_read_says_what_is_kept_and_what_to_do(demo: Path, visit: Visit) -> None:
    shutil.copytree(demo, demo.with_name("torn"))
    with sqlite3.connect(demo.with_name("torn") / "bank.db") as database:
        database.execute("UPDATE steps SET trace = substr(trace, 1, 200) WHERE step = 12")
    app = visit("step", bank="torn", step="12")
    (said,) = app.error
    assert "its rewards, memories and q are kept" in said.value
    assert "another step, or restore a copy of the bank" in said.value
    assert "leave" not in {button.key for button in app.button}
    app.button(key="move_Back").click().run()
    assert "step 11 of 40" in page_text(app) and app.button(key="move_Next")


def test_a_bank_of_a_newer_version_is_said(demo: Path, visit: Visit) -> None:
    shutil.copytree(demo, demo.with_name("future"))
    with sqlite3.connect(demo.with_name("future") / "bank.db") as database:
        database.execute("UPDATE meta SET value = '999' WHERE key = 'format'")
    assert "newer version" in page_text(visit("step", bank="future"))


@pytest.mark.parametrize(("person", "says"), [("/nowhere", "$MEMRL_HOME/lessons"), ("{home}", "~/lessons")])
def test_the_folder_of_own_lessons_has_a_short_name(
    home: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch, person: str, says: str
) -> None:
    monkeypatch.setenv("HOME", person.format(home=home))
    parts = visit("lessons").get("bidi_component")
    (sent,) = [one.proto.json for one in parts if one.proto.component_name == "memrl_lessons"]
    assert json.loads(sent)["own"] == says


def test_memories_are_searched_and_filtered(bank: Stored, visit: Visit) -> None:
    app = visit("bank", bank="demo")
    assert "40 of 40 memories" in page_text(app)
    memories = bank.memories("household")
    word = max(memories[0].intent.split(), key=len)
    app.text_input(key="memory_search").set_value(word).run()
    assert "of 40 memories" in page_text(app) and "40 of 40 memories" not in page_text(app)
    found = app.dataframe[0].value
    assert {m.intent for m in memories if word in m.intent} <= set(found["intent"]) < {m.intent for m in memories}
    app.text_input(key="memory_search").set_value("no such word").run()
    assert "Nothing matches" in page_text(app)


def test_bank_shows_the_memories_that_a_link_names_until_all_are_asked_for(demo: Path, visit: Visit) -> None:
    app = visit("bank", bank="demo", memories="household-0003,household-0007,nobody")
    assert "2 of 2 memories" in page_text(app)
    assert set(app.dataframe[0].value["memory"]) == {"#3", "#7"}
    assert "What do these have in common?" in page_text(app)
    assert "Written in: household 2" in page_text(app)
    app.button(key="bank_selection_all").click().run()
    assert "40 of 40 memories" in page_text(app)
    assert "in common" not in page_text(app)


def test_settings_are_changed_for_the_next_steps_only(bank: Stored, visit: Visit) -> None:
    app = visit("bank", bank="demo")
    app.session_state["bank_view"] = "Settings"
    app.run()
    app.number_input(key="settings_household_None_weight").set_value(0.8)
    next(b for b in app.button if b.label.startswith("Save for")).click().run()
    assert "from step 41" in page_text(app)
    assert (bank.settings("household", 40)["weight"], bank.settings("household")["weight"]) == (0.5, 0.8)


def test_an_emptied_setting_stays_what_it_is_and_the_field_says_so(bank: Stored, visit: Visit) -> None:
    bank.write.change_settings("household", {**bank.settings("household"), "weight": 0.8}, bank.next_step("household"))
    app = visit("bank", bank="demo")
    app.session_state["bank_view"] = "Settings"
    app.run()
    weight = next(field for field in app.number_input if field.key.endswith("_weight"))
    assert weight.placeholder == "0.8 when empty"
    weight.set_value(None)
    next(b for b in app.button if b.label.startswith("Save for")).click().run()
    assert bank.settings("household")["weight"] == 0.8


@pytest.mark.parametrize(
    ("setting", "value", "says"), [("weight", 1.5, "weight"), ("k2", 11, "k2 = 11 cannot be larger than k1 = 10")]
)
def test_a_setting_out_of_range_is_refused_in_a_sentence(
    bank: Stored, visit: Visit, setting: str, value: float, says: str
) -> None:
    app = visit("bank", bank="demo")
    app.session_state["bank_view"] = "Settings"
    app.run()
    app.number_input(key=f"settings_household_None_{setting}").set_value(value)
    next(b for b in app.button if b.label.startswith("Save for")).click().run()
    assert says in page_text(app).replace("\\", "")
    assert bank.settings("household")["weight"] == 0.5


def test_a_bank_is_made_copied_and_opened(demo: Path, bank: Stored, visit: Visit) -> None:
    app = visit("bank", bank="demo")
    app.session_state["bank_view"] = "Banks of this machine"
    app.run()
    app.text_input(key="create_name").set_value("fresh").run()
    app.button(key="create_bank").click().run()
    assert MemoryBank.open(str(demo.with_name("fresh"))).runs() == []
    app.text_input(key="copy_name_demo").set_value("demo-two").run()
    app.button(key="copy_go_demo").click().run()
    assert MemoryBank.open(str(demo.with_name("demo-two"))).view("household").size == 40
    app.text_input(key="create_name").set_value("../evil").run()
    app.button(key="create_bank").click().run()
    assert "A bank's name has" in page_text(app).replace("\\", "")


def test_markup_in_a_task_is_shown_as_text(home: Path, visit: Visit) -> None:
    typed = "<b>x</b> **stars** $y$ :red[z] [l](http://x.test)"
    app = visit("step", bank=a_bank(environment="conversation"))
    opened(app, Phase.EMBED)
    app.text_area(key="typed_intent").set_value(typed).run()
    app.button(key="ask").click().run()
    app.button(key="finish").click().run()
    assert any(typed in block.value for block in app.code)
    assert any("\\<b\\>x\\</b\\> \\*\\*stars\\*\\*" in said.value for said in app.markdown)


def test_a_run_is_started_with_its_settings_and_a_changing_world(home: Path, visit: Visit) -> None:
    app = visit("home")
    app.text_input(key="new_run_bank").set_value(" fresh ").run()
    app.selectbox(key="new_run_model").set_value("simulated").run()
    app.number_input(key="new_run_memrl_weight").set_value(0.25)
    app.number_input(key="new_household_shift_at_0").set_value(7)
    house = app.number_input(key="new_household_house_None")
    assert house.value is None  # The run's seed, which is not 0.
    house.set_value(0)
    app.run()
    app.button(key="start_run").click().run()
    with MemoryBank.open(str(banks_folder() / "fresh")) as bank:
        (info,) = bank.runs()
        assert info.settings["weight"] == 0.25
        assert (info.environment_options["shift_at"], info.environment_options["house"]) == (7, 0)


def test_what_a_run_begins_with_is_a_language_model_where_one_is_at_hand(
    home: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offered() -> list[str]:
        status_of.clear()
        box = visit("home").selectbox(key="new_run_model")
        assert box.value == models_at_hand(of_ollama)[0]
        return list(box.options)

    of_ollama: list[str] = []
    assert [name.partition(" ")[0] for name in offered()] == ["smollm2", "simulated"]
    with OllamaServer() as server, monkeypatch.context() as patched:
        patched.setenv("OLLAMA_HOST", server.address)
        of_ollama.append("llama3.2")
        assert offered()[0] == "llama3.2"
    of_ollama.clear()
    monkeypatch.setattr(gguf.importlib.util, "find_spec", lambda name: None)
    assert [name.partition(" ")[0] for name in offered()] == ["simulated"]


def test_a_run_of_a_real_model_begins_with_the_help_desk_unless_a_person_chooses(
    home: Path, visit: Visit, ollama: OllamaServer
) -> None:
    def begins_with(app: AppTest, model: str) -> tuple[str, bool]:
        app.selectbox(key="new_run_model").set_value(model).run()
        return app.selectbox(key="new_environment").value, any("small models" in c.value for c in app.caption)

    app = visit("home")
    assert begins_with(app, "llama3.2") == ("helpdesk", True)
    assert app.selectbox(key="new_tasks_helpdesk").value == "helpdesk-train"
    assert begins_with(app, "simulated") == ("household", False)
    assert begins_with(app, "gguf:smollm2") == ("helpdesk", True)
    app.selectbox(key="new_environment").set_value("sql").run()
    for model in ("simulated", "llama3.2"):
        assert begins_with(app, model) == ("sql", False)
    app.selectbox(key="new_environment").set_value("household").run()
    assert begins_with(app, "gguf:smollm2") == ("household", False)


def test_a_run_with_a_model_in_this_program_says_of_that_alone_what_is_wrong(home: Path, visit: Visit) -> None:
    weights = home / "some.gguf"
    weights.write_bytes(b"GGUF")
    name = a_bank(model=f"gguf:{weights}")
    wrong = f"There is no model file that can be read at {weights}"
    for there in (True, False):
        text = page_text(visit("step", bank=name)).replace("\\", "")
        assert "Ollama" not in text and (wrong in text) != there
        weights.unlink(missing_ok=True)


def test_a_run_with_a_model_is_started_with_its_options_and_not_at_all_when_the_model_is_gone(
    home: Path, visit: Visit, ollama: OllamaServer
) -> None:
    app = visit("home")
    app.selectbox(key="new_run_model").set_value("llama3.2").run()
    app.number_input(key="new_helpdesk_model_temperature").set_value(0.4)
    app.number_input(key="new_helpdesk_model_num_predict").set_value(64)
    app.selectbox(key="new_helpdesk_model_layout").set_value("turns")
    app.text_input(key="new_helpdesk_model_stop").set_value(".")
    app.number_input(key="new_helpdesk_model_num_thread").set_value(1)
    app.checkbox(key="new_run_keep_options").check()
    ollama.models.clear()
    app.button(key="start_run").click().run()
    assert "ollama pull llama3.2" in page_text(app).replace("\\", "")
    assert not (banks_folder() / "my-bank").exists()
    ollama.models[LLAMA.name] = LLAMA
    app.button(key="start_run").click().run()
    with MemoryBank.open(str(banks_folder() / "my-bank")) as bank:
        chosen = {"temperature": 0.4, "num_predict": 64, "layout": "turns", "stop": ".", "num_thread": 1}
        assert dict(bank.runs()[0].model_options) == chosen
    assert load_preferences().model_options == {"llama3.2": chosen}
    app = visit("home")
    app.selectbox(key="new_run_model").set_value("llama3.2").run()
    app.number_input(key="new_helpdesk_model_temperature_0.4").set_value(0.7)
    app.text_input(key="new_helpdesk_model_stop_.").set_value("")
    app.button(key="start_run").click().run()
    with MemoryBank.open(str(banks_folder() / "my-bank")) as bank:
        del chosen["stop"]
        assert dict(bank.runs()[-1].model_options) == {**chosen, "temperature": 0.7}
    assert "stop" in load_preferences().model_options["llama3.2"], "only a run that says so changes them"


def test_a_recorded_run_of_a_real_language_model_opens_from_home(home: Path, visit: Visit) -> None:
    app = visit("home")
    app.button(key="play_demo_qwen").click().run()
    with MemoryBank.open(str(demo_bank(REAL_DEMO))) as bank:
        (info,) = bank.runs()
        traces = bank.traces(info.id)
    assert (info.model, info.simulated) == ("gguf:qwen2.5-coder-0.5b.gguf", False)
    replies = [turn.reply for trace in traces for turn in trace.turns]
    assert all(reply.bound and (reply.offered or not reply.text) for reply in replies)
    assert "qwen2.5-coder" in page_text(app)


def test_an_answer_that_was_cut_says_where_on_the_page(home: Path, visit: Visit, ollama: OllamaServer) -> None:
    ollama.faults.form, ollama.faults.endless = "egg\ud83d go", True
    name = a_bank(model="llama3.2")
    with MemoryBank.open(str(banks_folder() / name)) as bank:
        live = live_run(bank, "r", load_preferences())
        trace = next(live.agent.run(live.tasks[:1]))
    app = visit("step", bank=name, step="1")
    opened(app, Phase.GENERATE)
    assert f"{len(trace.turns)} cut" in page_text(app)
    assert "cut at 32 tokens" in page_text(app) and "16 broken characters replaced" in page_text(app)
    assert "of 8,192 tokens read" in page_text(app) and "want an action" in page_text(app)
    assert any("Thinking" in expander.label and not expander.proto.expanded for expander in app.expander)


def test_the_panel_tells_what_each_model_is_tries_one_and_chooses_it_for_a_run(
    home: Path, visit: Visit, ollama: OllamaServer
) -> None:
    ollama.models["base:latest"] = replace(LLAMA, name="base:latest", template="{{ .Prompt }}")
    app = visit("home")
    (table,) = [frame.value for frame in app.dataframe if "context" in frame.value]
    of = table.set_index("model").to_dict("index")
    assert of["llama3.2"] | {"context": 131_072, "can": "answer, tools", "note": ""} == of["llama3.2"]
    assert "no chat template" in of["base"]["note"] and "embeddings" in of["nomic-embed-text"]["note"]
    app.selectbox(key="panel_model").set_value("nomic-embed-text").run()
    assert app.button(key="use_model").disabled and app.button(key="try_model").disabled
    app.selectbox(key="panel_model").set_value("llama3.2").run()
    ollama.faults.answer, ollama.faults.endless = " pan", True
    app.button(key="try_model").click().run()
    assert app.session_state["work_try"][1].wait(30)
    app.run()
    assert app.code[-1].value == " pan" * 64
    assert any("cut at 64 tokens" in c.value and "tokens a second" in c.value for c in app.caption)
    app.button(key="use_model").click().run()
    assert app.selectbox(key="new_run_model").value == "llama3.2"


def test_the_panel_says_what_was_measured_of_weights_and_nothing_of_others(
    home: Path, visit: Visit, ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured() -> dict[str, str]:
        (table,) = [frame.value for frame in visit("home").dataframe if "context" in frame.value]
        return {
            name.partition(" ")[0]: text or "" for name, text in zip(table["model"], table["measured"], strict=True)
        }

    (shipped,) = measured_follows(gguf.facts("gguf:smollm2")["digest"])
    assert measured() == {"smollm2": shipped.sentence, "llama3.2": "", "nomic-embed-text": ""}
    digest = {model.name: model.digest for model in list_models(ollama.address)}["llama3.2"]
    theirs = replace(shipped, digest=digest, steps=320, followed=281)
    (home / FOLLOWS).write_bytes(TypeAdapter(list[MeasuredFollows]).dump_json([theirs]))
    monkeypatch.setattr(following, "sample_data_path", lambda: home)
    assert "88 % of help desk messages (n = 320)" in measured()["llama3.2"] and not measured()["smollm2"]


class Dreamer:
    """Says nothing that is offered, when it is let go."""

    name, simulated, binds = "dreamer", False, False

    def __init__(self) -> None:
        self.go = threading.Event()

    def chat(self, messages: Any, options: Any, on_text: Any = None, *given: Any) -> Reply:
        on_text("fly")
        on_text(" away")
        assert self.go.wait(30)
        return Reply("fly away")


def test_the_drawer_of_the_answer_shows_what_arrives_then_what_was_sent_by_role_and_what_was_not_offered(
    home: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, name = Dreamer(), a_bank()
    monkeypatch.setattr("memrl_core.agent.runs.make_model", lambda *_: model)
    app = visit("step", bank=name)
    for _ in range(5):
        app.button(key="step").click().run()
    opened(app, Phase.GENERATE)
    assert "turn 1 of 10 · 2 tokens · " in page_text(app).replace("\\", "")
    assert any(block.value == "fly away" for block in app.code)
    model.go.set()
    live = places.live_runs()[str(banks_folder() / name), "r"]
    assert live.wait(30)
    app.run()
    text = page_text(app)
    assert "1 of 1 answers" in text
    badges = [badge for badge in app.markdown if ":gray-badge[system]" in badge.value]
    assert badges


def test_a_run_with_a_wrong_setting_is_not_started_and_no_bank_is_made(home: Path, visit: Visit) -> None:
    app = visit("home")
    app.number_input(key="new_run_memrl_k2").set_value(99)
    app.run()
    app.button(key="start_run").click().run()
    assert "larger than k1" in page_text(app)
    assert not (banks_folder() / "my-bank").exists()


def test_a_step_that_was_cut_short_is_shown_until_it_was_done(home: Path, visit: Visit) -> None:
    name = a_bank()
    path = banks_folder() / name
    with MemoryBank.open(str(path)) as bank:
        left = LedgerEvent("e1", 9, "r", 1, "never ended", 1, EventKind.REWARD_GIVEN, (), 1.0, "environment")
        with bank.write.alone():
            bank.write._ledger.adopt(left)
    app = visit("step", bank=name, run="r")
    assert "Step 1 was begun and cut short" in page_text(app)
    app.button(key="finish").click().run()
    assert "cut short" not in page_text(app)
    assert MemoryBank.open(str(path)).steps.unfinished("r") == []


@pytest.mark.slow
def test_a_step_whose_server_was_killed_is_reported_with_its_task(home: Path, visit: Visit) -> None:
    path = banks_folder() / a_bank()
    script = (
        "import os, sys\n"
        "from memrl_core.agent.preferences import Preferences\n"
        "from memrl_core.agent.runs import live_run\n"
        "from memrl_core.bank import MemoryBank\n"
        "bank = MemoryBank.open(sys.argv[1])\n"
        "live = live_run(bank, 'r', Preferences())\n"
        "live.finish(); live.wait(); live.step(3); live.wait()\n"
        "if sys.argv[2] == 'wait': print('begun', flush=True); sys.stdin.read()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    subprocess.run([*command, "die"], check=False, timeout=60)
    app = visit("step", bank=path.name, run="r")
    task = sample_tasks("household-train")[1]
    assert "Step 2 was begun" in page_text(app) and task.intent in page_text(app)
    # While a process is at it, nothing was cut short.
    with subprocess.Popen([*command, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"begun\n"
        assert "cut short" not in page_text(visit("step", bank=path.name, run="r"))
        other.kill()
    again = visit("step", bank=path.name, run="r")
    assert "Step 3 was begun" in page_text(again)
    again.button(key="finish").click().run()
    assert MemoryBank.open(str(path)).next_step("r") == 4
    assert "cut short" not in page_text(visit("step", bank=path.name, run="r"))


def test_a_chart_is_saved_with_its_table_under_a_name_that_says_where_it_is_from(
    bank: Stored, visit: Visit, downloads: dict[str, Download]
) -> None:
    visit("bank", bank="demo", memory="household-0007")
    table = downloads["history_csv"]
    assert len(table.rows) == len(bank.history(RUN, "household-0007"))
    assert table.file_name.startswith("demo-household-after-step-40-") and table.file_name.endswith(".csv")
    assert "<html" in downloads["history_html"].text


def test_work_that_ends_while_the_page_is_drawn_leaves_no_button_disabled(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit("step", bank="demo")
    app.button(key="step").click().run()
    answers = iter([True])  # Busy for whoever asks first, and never again.
    monkeypatch.setattr(LiveRun, "busy", property(lambda _: next(answers, False)))
    app.run()
    assert next(answers, None) is None
    assert not app.button(key="step").disabled and not app.button(key="finish").disabled


def test_a_delta_on_the_scale_of_the_embedder_is_proposed_beside_the_papers(home: Path, visit: Visit) -> None:
    app = visit("home")
    app.text_input(key="new_run_bank").set_value("gated").run()
    intents = [*dict.fromkeys(task.intent for task in tasks_of_set("helpdesk-train"))]
    for embedder in ("wordllama", "hashing"):
        found = suggested(make_embedder(embedder, load_preferences()).embed(intents))
        proposed, passing = f"{found.delta:.2f}", f"{100 * found.passing(0.2):.0f} %"
        app.selectbox(key="new_run_embedder").set_value(embedder).run()
        assert app.number_input(key="new_run_memrl_delta").value == 0.2
        (page_text,) = (caption.value for caption in app.caption if "is proposed" in caption.value)
        assert proposed in page_text and passing in page_text


def test_a_run_starts_with_all_settings_of_an_official_configuration(home: Path, visit: Visit) -> None:
    app = visit("home")
    app.text_input(key="new_run_bank").set_value("official").run()
    app.selectbox(key="new_preset_memrl").set_value("lifelong").run()
    app.number_input(key="new_run_memrl_lifelong_k2").set_value(2).run()
    app.button(key="start_run").click().run()
    with MemoryBank.open(str(banks_folder() / "official")) as bank:
        (info,) = bank.runs()
        assert info.settings == MemRLSettings.of({**PRESETS["lifelong"], "k2": 2}).model_dump()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["transcript", "turns"])
def test_the_prompt_frames_each_memory_and_shows_what_the_chat_template_makes_of_it(
    home: Path, visit: Visit, layout: str
) -> None:
    with OllamaServer() as server:
        preferences = Preferences(ollama_address=server.address)
        save_preferences(preferences)
        with MemoryBank.create(str(banks_folder() / "real"), "hashing-1024", 1024) as bank:
            options: dict[str, Any] = {"environment_options": {"own_words": False}, "model_options": {"layout": layout}}
            settings = MemRLSettings(delta=-1, k2=1)
            start_run(
                bank, environment="household", tasks="household-train", model="llama3.2", run="r", settings=settings,
                task_count=2, **options,
            )  # fmt: skip
            live = live_run(bank, "r", preferences)
            traces = list(live.agent.run(live.tasks))
        offered = [turn.reply.offered for trace in traces if trace.generate for turn in trace.generate.turns]
        recent = [text.value for text in visit("home", bank="real").markdown if "· seed 0 ·" in text.value]
        assert f"{100 * offered.count(True) / len(offered):.0f}" in recent[0] and "valid answers" in recent[0]
        assert "answer from a memory" in recent[0] and follow_counts(traces).sentence in recent[0]
        assert traces[1].decision.selected == ("r-0001",)
        app = visit("step", bank="real", step="2")
        opened(app, Phase.GENERATE)
        frames = [one.key for one in app.button if one.key and one.key.startswith("open_prompt_")]
        assert len(frames) == 1 and not any((one.key or "").startswith("open_sent_") for one in app.button)
        app.toggle(key="prompt_template").set_value(True).run()
        assert app.session_state["work_template"][1].wait(30)
        app.run()
        assert any(block.value.startswith("<|system|>") for block in app.code)


def test_home_gives_every_gain_of_a_real_model_with_its_interval(visit: Visit) -> None:
    (said,) = (one.value.replace("\\", "") for one in visit("home").caption if "SmolLM2" in one.value)
    assert "+15 (+10…+20) points more; in the first 80 it is +3 (−2…+7)." in said


def test_a_teacher_who_comes_back_from_another_screen_finds_the_room_and_can_close_it(visit: Visit) -> None:
    app = visit("room")
    app.button(key="room_open").click().run()
    code = app.query_params["room"]
    app.query_params.clear()  # As the link of the menu does.
    app.run()
    assert app.query_params["room"] == code
    app.button(key="room_close").click().run()
    assert "room" not in app.query_params
    app.run()
    assert not app.button(key="room_open").disabled


def test_a_room_asks_the_question_that_was_typed_last_also_where_it_comes_with_the_press(visit: Visit) -> None:
    app = visit("room")
    app.selectbox(key="room_question").select("Write my own question").run()
    app.text_area(key="room_text").set_value("First?").run()
    app.text_area(key="room_choices").set_value("yes\nno").run()
    app.text_area(key="room_text").set_value("Second?")
    app.button(key="room_open").click().run()
    assert app.subheader[0].value == "Second?"
    app.text_area(key="room_text").set_value("Third?").run()
    app.text_area(key="room_choices").set_value("only one")
    app.button(key="room_ask").click().run()
    assert app.subheader[0].value == "Second?" and any("at least two choices" in one.value for one in app.error)
    app.button(key="room_close").click().run()


def test_as_many_tasks_are_run_as_were_typed_last_also_where_that_comes_with_the_press(
    bank: Stored, visit: Visit
) -> None:
    app = visit("step", bank="demo", run=RUN)
    before = bank.next_step(RUN)
    app.number_input(key="run_count").set_value(2)
    app.button(key="run_many").click().run()
    live = places.live_runs()[bank.uri, RUN]
    assert live.wait(30) and (live.done, live.total) == (2, 2)
    bank.refresh()
    assert bank.next_step(RUN) == before + 2


def test_a_teacher_who_lost_the_tab_finds_the_room_from_any_other_and_puts_one_out_and_closes_it(visit: Visit) -> None:
    app = visit("room")
    app.button(key="room_open").click().run()
    code = app.query_params["room"]
    other = visit("room")
    other.button(key=f"room_enter_{code}").click().run()
    assert other.query_params["room"] == code
    address = other.code[0].value
    with httpx.Client(base_url=address) as phone, httpx.Client(base_url=address) as second:
        for name, one in (("Ada", phone), ("Eve", second)):
            one.post("join", json={"name": name})
            one.get("state")
        other.run()
        other.selectbox(key="room_out_name").select("Eve").run()
        other.button(key="room_out").click().run()
        assert phone.get("state").json()["joined"] and second.get("state").json()["out"]
        third = visit("room")
        third.button(key=f"room_close_{code}").click().run()
        assert phone.get("state").status_code == 404
    assert f"room_close_{code}" not in [button.key for button in third.button]
    assert "closed" in page_text(app.run())


def test_what_a_run_believed_before_a_live_step_is_folded_once_for_all_rewards(
    bank: Stored, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    utilities = MemoryBank.utilities

    def counted(self: MemoryBank, run: str, as_of: int | None = None, **of: Any) -> Any:
        asked.append(as_of)
        return utilities(self, run, as_of, **of)

    monkeypatch.setattr(MemoryBank, "utilities", counted)
    app = visit("step", bank="demo")
    (run,) = (info.id for info in bank.runs()[:1])
    last = bank.next_step(run) - 1
    assert asked.count(last - 1) == 1
    bank.write.ratings.rate(Rating(run, last, -1.0, "ann"))
    app.run()
    assert [step for step in asked if step is not None] == [last - 1] and not app.error
