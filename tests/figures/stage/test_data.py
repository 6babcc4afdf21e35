"""The JSON of the stage is the trace, number for number, and says what a trace lacks."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent.recorder import Recorder
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, UnknownRun
from memrl_core.figures.stage.data import (
    Known,
    StageSource,
    as_it_counts_now,
    known_of_run,
    stage_data,
    stage_update,
    written_by,
)
from memrl_core.figures.stage.film import film_data
from memrl_core.figures.stage.player import player_document, player_html, source_of_run, write_player
from memrl_core.figures.stage.strip import BY_HAND, EMPTY_POOL, INVALID, OUTCOMES, is_rewound, run_strip, strip_data
from memrl_core.records import Phase, Utility
from memrl_core.settings import MemRLSettings
from tests.small_banks import a_bank, a_chain, a_step, a_vector, give_reward, withdraw


def test_every_number_of_a_step_is_the_traces(demo: MemoryBank, demo_data: dict[str, Any]) -> None:
    run, ids = demo.runs()[0].id, demo_data["memories"]["id"]
    for trace, step in zip(demo.traces(run), demo_data["steps"], strict=True):
        assert trace.decision and trace.recall and trace.reward and trace.update
        shown = {ids[one["memory"]]: one for one in step["candidates"]}
        assert shown.keys() == {c.memory_id for c in trace.decision.candidates}
        for c in trace.decision.candidates:
            one = shown[c.memory_id]
            assert (one["similarity"], one["q"], one["visits"]) == (c.similarity, c.q, c.visits)
            assert (one["rank_a"], one["rank_b"], one["score"]) == (c.rank_recall, c.rank_select, c.score)
            assert (one["z"] or []) == [term.normalised for term in c.terms]
        assert [one["rank_a"] for one in step["candidates"]] == sorted(one["rank_a"] for one in step["candidates"])
        assert [ids[n] for n in step["decision"]["selected"]] == list(trace.decision.selected)
        assert step["decision"]["flips"] == [flip.weight for flip in spectrum(trace.decision).flips]
        assert step["reward"]["reward"] == trace.reward.reward
        moves = [(ids[one["memory"]], one["before"], one["after"]) for one in step["update"]["changes"]]
        assert moves == [(c.memory_id, c.before, c.after) for c in trace.update.of_q]
        assert step["query"] is not None


def test_a_memory_is_taken_in_just_the_ranges_of_the_spectrum(demo: MemoryBank, demo_data: dict[str, Any]) -> None:
    ids, trace = demo_data["memories"]["id"], demo.traces(demo.runs()[0].id)[10]
    assert trace.decision
    candidates = [one for one in demo_data["steps"][10]["candidates"] if not one["missed"]]
    for interval in spectrum(trace.decision).intervals:
        middle = (interval.low + interval.high) / 2
        taken = {ids[o["memory"]] for o in candidates if any(low < middle < high for low, high in o["taken"])}
        assert taken == interval.selected


def test_no_text_of_a_step_turns_the_words_after_it_round(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        bank.write.commit_step(*a_step(1, ()))
        source = source_of_run(bank, "r")
    (trace,) = source.traces
    assert trace.reward
    reward = replace(trace.reward, reason="\u202egnp.exe", verdict="\u2066Solved.")
    (step,) = stage_data(replace(source, traces=(replace(trace, reward=reward),)))["steps"]
    assert (step["reward"]["reason"], step["reward"]["verdict"]) == ("gnp.exe", "Solved.")


def test_what_was_believed_at_each_step_is_reported_by_its_moves_late_rewards_included(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        for number in range(1, 5):
            bank.write.commit_step(*a_step(number, tuple(f"r-{n:04d}" for n in range(1, number))))
            if number == 3:
                give_reward(bank, "r", 2, bank.trace("r", 2).id, ("r-0001",), -1.0, "ada")
        known = known_of_run(bank, "r")
        believed: dict[str, Utility] = dict(known.before)
        assert believed == bank.utilities("r", as_of=0)
        for number in range(1, 5):
            believed |= {name: utility for name, utility in known.moves[number].items() if utility is not None}
            assert believed == bank.utilities("r", as_of=number)
        assert "r-0001" in known.moves[3], "the late reward moved what step 2 had credited"


def test_as_it_counts_now_every_step_leaves_what_the_fold_makes_of_it(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        for number in range(1, 7):
            bank.write.commit_step(*a_step(number, tuple(f"r-{n:04d}" for n in range(1, number))))
        then = known_of_run(bank, "r")
        assert as_it_counts_now(then, bank.histories("r"), 1, 6) == then, "nobody has said anything since"
        give_reward(bank, "r", 2, bank.trace("r", 2).id, ("r-0001",), -1.0, "ada")
        then, histories = known_of_run(bank, "r"), bank.histories("r")
        now = as_it_counts_now(then, histories, 1, 6)
        believed: dict[str, Utility] = dict(now.before)
        for number in range(1, 7):
            believed |= {name: utility for name, utility in now.moves[number].items() if utility is not None}
            for name in believed:
                last = [point for point in histories[name] if point.step <= number][-1]
                assert believed[name] == Utility(last.after, last.visits)
        assert believed == bank.utilities("r")
        later = as_it_counts_now(Known(bank.utilities("r", as_of=3), {}), histories, 4, 4)
        assert later.before["r-0001"] == Utility(histories["r-0001"][2].after, 2)
        assert later.moves[4]["r-0001"].q == histories["r-0001"][3].after
        assert now.moves[2] != then.moves[2]


def test_what_some_steps_brought_is_known_without_the_whole_run_just_as_with_it(tmp_path: Path) -> None:
    with a_chain(tmp_path / "bank", 9) as bank:
        give_reward(bank, "r", 5, bank.trace("r", 5).id, ("r-0004",), -1.0, "ada")
        traces = bank.traces("r")[3:7]
        histories = bank.histories("r")
        whole = as_it_counts_now(known_of_run(bank, "r"), histories, 1, 9)
        then = bank.utilities("r", as_of=3)
        known = as_it_counts_now(Known(then, written_by(traces)), histories, 4, 7)
        assert known.before == then
        assert any(utility is not None for utility in known.moves[4].values())
        for step in range(4, 8):
            assert known.moves[step] == whole.moves[step]


def test_parts_that_another_agent_did_not_report_are_null_and_said(tmp_path: Path) -> None:
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-8", 8) as bank:
        recorder = Recorder(bank, "mine", MemRLSettings(), model="llama")
        known = recorder.remember("intent", "experience", a_vector(1))
        with recorder.step("only a task", embedding=a_vector(2)):
            pass
        with recorder.step("some of it", embedding=a_vector(3)) as step:
            step.recalled([(known, -0.01)])
        first, second = stage_data(source_of_run(bank, "mine"))["steps"]
    assert first["candidates"] == [] and first["recall"] is None and first["decision"] is None
    assert set(first["missing"]) >= {"2", "3", "4"} and all(first["missing"].values()) and first["lacks"]
    assert [one["similarity"] for one in second["candidates"]] == [-0.01]
    assert second["decision"] is None and second["answer"] is None and "3" in second["missing"]


def test_a_step_under_way_ends_where_it_waits(demo: MemoryBank) -> None:
    whole = source_of_run(demo, demo.runs()[0].id)
    source = StageSource(
        whole.run, whole.bank, whole.traces[:12], whole.memories, whole.places, whole.queries, whole.known,
        whole=("household-0001",), next_phase=Phase.GENERATE,
    )  # fmt: skip
    data = stage_data(source)
    assert data["steps"][-1]["next"] == 4 and data["steps"][0]["next"] is None
    assert list(data["memories"]["texts"]) == ["0"]


def test_an_update_and_its_table_are_the_whole(demo: MemoryBank, demo_data: dict[str, Any]) -> None:
    source = source_of_run(demo, demo.runs()[0].id)
    late = demo.utilities(source.run.id, as_of=30)
    update = stage_update(source, late, rows=30)
    assert update["memories"]["id"] == demo_data["memories"]["id"][30:]
    assert update["steps"] == demo_data["steps"] and update["moves"] == demo_data["moves"]
    ids = demo_data["memories"]["id"]
    assert {ids[n] for n, q, _ in update["jump"] if q is None} == set(late), "before its first step the run saw none"


def test_a_number_that_is_none_becomes_null(demo: MemoryBank) -> None:
    source = source_of_run(demo, demo.runs()[0].id)
    trace = source.traces[10]
    assert trace.decision is not None
    odd = tuple(replace(c, score=float("nan"), similarity=float("inf")) for c in trace.decision.candidates)
    strange = replace(trace, decision=replace(trace.decision, candidates=odd))
    (step,) = stage_data(replace(source, traces=[strange]))["steps"]
    assert {(one["score"], one["similarity"]) for one in step["candidates"]} == {(None, None)}


def test_a_run_without_a_step_shows_its_memories(demo: MemoryBank) -> None:
    source = source_of_run(demo, demo.runs()[0].id)
    known = Known(demo.utilities(source.run.id), {})
    data = stage_data(replace(source, traces=(), known=known))
    assert [step["next"] for step in data["steps"]] == [1] and None not in data["before"]


def test_the_player_names_what_is_wrong_and_writes_nothing(demo: MemoryBank, tmp_path: Path) -> None:
    run = demo.runs()[0].id
    with pytest.raises(UnknownRun):
        player_html(demo, "nobody")
    with a_bank(tmp_path / "bank") as empty, pytest.raises(InputError, match="no finished step"):
        write_player(empty, "r", tmp_path / "out.html")
    with pytest.raises(InputError):
        write_player(demo, run, tmp_path / "nowhere" / "out.html")
    (tmp_path / "there.html").write_text("mine")
    with pytest.raises(InputError):
        write_player(demo, run, tmp_path / "there.html")
    assert (tmp_path / "there.html").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank", "there.html"]


@given(st.dictionaries(st.sampled_from(["step", "memory", "phase", "lambda", "k1", "delta", "find"]), st.text()))
def test_a_file_opens_at_the_very_view_that_it_was_saved_with(view: dict[str, str]) -> None:
    document = player_document({"run": {"id": "r", "bank": "b"}}, view)
    found = re.search('<main id="player" data-at="([^"]*)">', document)
    assert found and dict(parse_qsl(unescape(found[1]), keep_blank_values=True)) == view


def test_two_players_of_one_run_are_equal_and_any_json_reads_its_data(demo: MemoryBank, demo_data: Any) -> None:
    assert player_html(demo, demo.runs()[0].id) == player_html(demo, demo.runs()[0].id)
    assert json.loads(json.dumps(demo_data, allow_nan=False)) == demo_data


def moves_of(film: Mapping[str, Any]) -> list[tuple[str, int, float]]:
    """The moves of a film as (memory, step, q after), in their order."""
    packed, count = base64.b64decode(film["moves"]), film["count"]
    after = np.frombuffer(packed, "<f8", count)
    steps, memories = (np.frombuffer(packed, "<i4", count, 8 * count + 4 * count * part) for part in (0, 1))
    return [(film["ids"][n], int(step), float(q)) for n, step, q in zip(memories, steps, after, strict=True)]


def test_every_number_of_the_film_is_a_move_of_the_bank_late_rewards_and_forgotten_memories_included(
    tmp_path: Path,
) -> None:
    with a_bank(tmp_path / "bank") as bank:
        for number in range(1, 9):
            bank.write.commit_step(*a_step(number, tuple(f"r-{n:04d}" for n in range(1, number))))
        give_reward(bank, "r", 3, bank.trace("r", 3).id, ("r-0001",), -1.0, "ada")
        bank.write.editing.forget("r", ["r-0002"], "ada", "wrong")
        film = film_data(bank, "r")
        moves, now = moves_of(film), bank.utilities("r")
        assert [step for _, step, _ in moves] == sorted(step for _, step, _ in moves)
        assert film["gone"] == [[film["ids"].index("r-0002"), bank.events("r")[-1].step]]
        bank.write.flush()
    with closing(sqlite3.connect(tmp_path / "bank" / "bank.db")) as database:
        query = "SELECT memory_id, step, after FROM q_moves WHERE run = 'r' ORDER BY step, memory_id, number"
        stored = [(str(name), int(step), float(q)) for name, step, q in database.execute(query)]
    assert len(moves) == len(stored) > 30
    for name in film["ids"]:
        assert [move for move in moves if move[0] == name] == [move for move in stored if move[0] == name]
    last = {name: q for name, _, q in moves}
    assert {name: last[name] for name in now} == {name: known.q for name, known in now.items()}


def test_a_cell_of_the_strip_says_outcome_hand_empty_pool_and_invalid_answer(demo: MemoryBank, tmp_path: Path) -> None:
    run = demo.runs()[0].id
    expected = ""
    for trace in demo.traces(run):
        assert trace.reward and trace.recall and trace.generate
        invalid = any(turn.reply.offered is False for turn in trace.generate.turns)
        empty = 0 if trace.recall.pool else EMPTY_POOL
        expected += chr(48 + OUTCOMES[trace.reward.outcome] + empty + (INVALID if invalid else 0))
    assert run_strip(demo, run).cells == expected
    assert any(EMPTY_POOL & ord(cell) - 48 for cell in expected) and len(set(expected)) > 2
    answered = demo.trace(run, 20).generate
    assert answered is not None
    turn = replace(answered.turns[0], reply=replace(answered.turns[0].reply, text="{}", offered=False))
    with a_chain(tmp_path / "bank", 4) as bank:
        trace, vectors = a_step(5, ("r-0004",), None)
        bank.write.commit_step(replace(trace, epoch=2, generate=replace(answered, turns=(turn,))), vectors)
        first = run_strip(bank, "r")
        outcomes = [OUTCOMES["success"] | EMPTY_POOL] * 5
        outcomes[4] |= INVALID
        assert [ord(cell) - 48 for cell in first.cells] == outcomes
        give_reward(bank, "r", 3, bank.trace("r", 3).id, ("r-0002",), -1.0, "ada")
        rated = run_strip(bank, "r", first)
        assert (ord(rated.cells[2]) - 48) & BY_HAND and rated.cells != first.cells
        withdraw(bank, "r", 3, "ada")
        again = run_strip(bank, "r", rated)
        assert again.cells == first.cells
        bank.write.change_settings("r", {**bank.settings("r"), "weight": 0.9}, 6)
        waiting = strip_data(run_strip(bank, "r"), bank.run("r"))["lines"]
        assert waiting[-1] == [6, "settings", "λ 0.5 → 0.9"]
        bank.write.commit_step(*a_step(6, ("r-0005",)))
        grown = run_strip(bank, "r", again)
        assert grown == run_strip(bank, "r") and len(grown.cells) == 6
        data = strip_data(grown, replace(bank.run("r"), environment_options={"shift_at": [4, 99]}))
    lines = [(step, kind) for step, kind, _ in data["lines"]]
    assert lines == [(4, "shift"), (5, "epoch"), (6, "epoch"), (6, "settings")]
    assert data["lines"][-1][2] == "λ 0.5 → 0.9"
    assert (data["first"], data["steps"]) == (1, None)


def test_a_strip_looks_at_no_step_again_but_those_that_were_rated_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_chain(tmp_path / "bank", 6) as bank:
        known = run_strip(bank, "r")
        event = give_reward(bank, "r", 3, bank.trace("r", 3).id, ("r-0002",), -1.0, "ada")
        bank.write.ratings.revoke(event.id, "ada")
        give_reward(bank, "r", 5, bank.trace("r", 5).id, ("r-0004",), -1.0, "ada")
        expected = run_strip(bank, "r")
        monkeypatch.setattr(type(bank.steps), "matching", lambda *_: pytest.fail("all steps were asked again"))
        assert run_strip(bank, "r", known) == expected
        assert known.cells[4] != expected.cells[4] and len(known.cells) == len(expected.cells)
        assert run_strip(bank, "r", expected) == expected


def test_a_change_of_settings_names_none_that_an_older_run_only_lacks(tmp_path: Path) -> None:
    with a_chain(tmp_path / "bank", 2) as bank:
        older = {name: value for name, value in bank.settings("r").items() if name not in ("credit", "unfollowed")}
        bank.write.start_run(replace(bank.run("r"), id="older", settings=older))
        settings = MemRLSettings().model_dump()
        bank.write.change_settings("older", {**settings, "weight": 0.9}, 1)
        bank.write.change_settings("older", {**settings, "credit": "followed"}, 2)
        assert run_strip(bank, "older").settings == ((1, "λ 0.5 → 0.9"), (2, "λ 0.9 → 0.5, Credit prompt → followed"))


def test_a_run_that_was_rewound_has_the_old_one_from_that_step_on_beside_it(tmp_path: Path) -> None:
    with a_chain(tmp_path / "bank", 5) as bank:
        old = bank.run("r")
        bank.write.start_run(replace(old, id="again", base="r", base_step=2, first_step=3))
        bank.write.start_run(replace(old, id="follows", base="r", base_step=5))
        assert [is_rewound(bank.run(name)) for name in ("r", "again", "follows")] == [False, True, False]
        strip = run_strip(bank, "r")
        data = strip_data(run_strip(bank, "again"), bank.run("again"), strip)
        assert data["ghost"] == {"run": "r", "steps": [3, 4, 5], "cells": strip.cells[2:]}
        assert strip_data(strip, old)["ghost"] is None
        bank.write.commit_step(*a_step(3, ("r-0002",), run="again"))
        played = stage_data(source_of_run(bank, "again"))["strip"]
        assert (played["ghost"], len(played["cells"])) == (data["ghost"], 1)


def test_a_run_without_a_step_has_an_empty_strip_and_an_empty_film(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        data = strip_data(run_strip(bank, "r"), replace(bank.run("r"), environment_options={"shift_at": "never"}))
        assert (data["cells"], data["lines"]) == ("", [])
        assert (film_data(bank, "r")["count"], film_data(bank, "r")["ids"]) == (0, [])
