"""The page Decision: every question can be asked of a step, and nothing that is tried out changes a fact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from memrl_core.agent.preferences import demo_bank
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.analysis.decision.explain import names
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.records import EventKind
from pages.decision import one_memory
from pages.decision.catalogue import BY_KEY
from pages.shared.place import asking
from pages.step.stage import ACTIONS, TO_BANK
from tests.builders import DIMENSION, a_run, a_step
from tests.pages.screen import RUN, Stored, Visit, at_rest, page_text, plain, submit

STEP = 39
SAYS = {
    "pair": " ahead of ",
    "flips": "It would change below",
    "required": "gets in with a q above",
    "gate": "it passes δ",
    "embedder": "Given to the model: ",
    "draw": "No exploration: ε = 0",
    "prompt": "The model read",
    "served": "neighbourhood",
    "misleading": "Distractors:",
    "hurt": "hurt most: its rewards add up to",
    "contrary": "Corrective failures:",
    "calibrated": "Prequential",
    "changed": "q moved: ",
    "supposed": "Choose other settings on the left",
    "unused": "Gini",
    "origin": "began with q",
    "probe": "Type what an agent could be asked to do",
}


@pytest.fixture
def at_step(visit: Visit, demo: Path) -> Visit:
    """Opens the page on a late step of the demo."""
    return lambda **link: visit("decision", bank="demo", run=RUN, step=str(STEP), **link)


@pytest.mark.parametrize("key", sorted(BY_KEY))
def test_each_question_is_answered_by_its_link(at_step: Visit, key: str) -> None:
    app = at_rest(at_step(ask=key), key)
    assert app.selectbox(key="question").value == key
    assert BY_KEY[key].text in plain(app)
    assert SAYS.get(key, "") in plain(app) and not app.error


def test_a_prompt_is_run_again_as_edited_beside_the_recorded_answer(bank: Stored, at_step: Visit) -> None:
    trace, facts = bank.trace(RUN, STEP), bank.facts
    app = at_step(ask="again")
    areas = [area for area in app.text_area if str(area.key).startswith("again_")]
    assert [area.value for area in areas] == [message.content for message in trace.generate.messages]
    areas[1].set_value("Say hello.")
    submit(app, "Run this prompt")
    app = at_rest(app, "prompt")
    assert not app.error
    found = app.session_state["work_prompt"][1].result
    assert found.generate.messages[1].content == "Say hello."
    assert found.generate.turns[0].reply.text in [code.value for code in app.code]
    assert bank.facts == facts


def test_a_lambda_beyond_a_flip_shows_the_other_selection_and_changes_nothing(bank: Stored, at_step: Visit) -> None:
    decision = bank.trace(RUN, STEP).decision
    facts = len(bank.events())
    assert decision is not None
    lines = spectrum(decision)
    above = lines.flips[-1].weight + 0.01
    chosen = [i for i in lines.ids if i in lines.intervals[-1].selected]
    app = at_step()
    app.slider(key="what_if_weight").set_value(round(above, 2)).run()
    text = plain(app)
    assert "not applied" in text
    reported = text.split("under the settings tried out: **")[1].split("**")[0]
    assert set(reported.split(", ")) == set(names(chosen, RUN).split(", "))
    app.button(key="what_if_reset").click().run()
    assert "not applied" not in plain(app)
    assert len(bank.events()) == facts


def test_a_link_reopens_the_settings_that_were_tried_out(at_step: Visit) -> None:
    app = at_step(weight="0.9", k1="5", normaliser="fixed")
    assert (app.slider(key="what_if_weight").value, app.slider(key="what_if_k1").value) == (0.9, 5)
    assert (app.query_params["weight"], app.query_params["normaliser"]) == ("0.9", "fixed")


def test_settings_can_be_typed_in_and_are_tried_out_together(at_step: Visit) -> None:
    app = at_step(k1="5")
    app.number_input(key="what_if_number_weight_0.5").set_value(0.437)
    app.number_input(key="what_if_number_k1_5").set_value(7)
    submit(app, "Try these")
    assert (app.slider(key="what_if_weight").value, app.slider(key="what_if_k1").value) == (0.437, 7)
    assert (app.query_params["weight"], app.query_params["k1"]) == ("0.437", "7")
    assert app.number_input(key="what_if_number_weight_0.437").value == 0.437
    assert "not applied" in plain(app)


@pytest.mark.parametrize("broken", [{"weight": "7"}, {"k1": "x"}, {"normaliser": "<b>"}, {"k1": "2", "k2": "5"}])
def test_a_link_with_settings_that_cannot_be_shows_the_recorded_ones(at_step: Visit, broken: dict[str, str]) -> None:
    app = at_step(**broken)
    assert app.slider(key="what_if_weight").value == 0.5
    assert any("go together" in warning.value for warning in app.warning)


def test_a_fork_goes_on_from_before_the_step_under_the_settings_tried_out(
    bank: Stored, at_step: Visit, visit: Visit
) -> None:
    app = at_step(weight="0.9")
    app.text_input(key="rewind_name").set_value("braver")
    app.button(key="rewind").click().run()
    again = at_step()
    again.text_input(key="rewind_name").set_value("braver")
    again.button(key="rewind").click().run()
    assert any("already" in error.value for error in again.error)
    info = bank.run("braver")
    assert (info.base, info.base_step, info.first_step) == (RUN, STEP - 1, STEP)
    assert info.settings["weight"] == 0.9
    visit("decision", bank="demo", run="braver")
    step = visit("step", bank="demo", run="braver")
    assert f"{STEP - 1} memories" in page_text(step) and "no step yet" in page_text(step)


def test_a_note_is_pinned_shown_again_and_removed(bank: Stored, at_step: Visit) -> None:
    app = at_step(ask="pair", weight="0.8")
    app.text_area(key="note_text").set_value("<b>#19</b> is late")
    submit(app, "Pin")
    (note,) = bank.notes.standing(RUN, STEP)
    assert note.reason == "<b>#19</b> is late"
    assert note.payload == {"ask": "pair", "weight": "0.8"}
    later = at_step()
    assert "<b>#19</b> is late" in [text.value for text in later.text]
    later.button(key=f"seen_{note.id}").click().run()
    assert later.slider(key="what_if_weight").value == 0.8
    later.button(key=f"unpin_{note.id}").click().run()
    assert bank.notes.standing(RUN, STEP) == []


def test_an_answer_without_a_memory_is_asked_for_and_not_stored(bank: Stored, at_step: Visit) -> None:
    facts, kept = len(bank.events()), bank.trace(RUN, STEP)
    app = at_step(ask="prompt")
    assert "nswer**" not in plain(app)
    app.button(key="rerun").click().run()
    app.run()
    assert "The same answer" in plain(app) or "Another answer" in plain(app)
    assert len(bank.events()) == facts and bank.trace(RUN, STEP) == kept


def test_shares_count_for_q_only_when_asked_and_can_be_undone(bank: Stored, at_step: Visit) -> None:
    before = dict(bank.utilities(RUN))
    app = at_step(ask="shares")
    assert "4 answers" in plain(app)
    app.button(key="find_shares").click().run()
    app.run()
    assert dict(bank.utilities(RUN)) == before
    app.button(key="apply_shares").click().run()
    assert dict(bank.utilities(RUN)) != before
    assert [e.kind for e in bank.events()][-1] is EventKind.CREDIT_ASSIGNED
    app.button(key="undo_shares").click().run()
    assert dict(bank.utilities(RUN)) == before


def test_the_whole_run_is_decided_again_under_other_settings(bank: Stored, at_step: Visit) -> None:
    app = at_step(ask="supposed", k2="1")
    app.run()
    settings = {**bank.trace(RUN, STEP).settings, "k2": 1}
    differing = [one for one in counterfactual(bank, RUN, settings) if one.differs]
    assert differing
    assert f"In **{len(differing)} of 40 steps** other memories" in plain(app)
    assert f"first in step {differing[0].step}" in plain(app)


def test_a_typed_text_is_probed_without_an_episode(at_step: Visit) -> None:
    app = at_step(ask="probe")
    app.text_input(key="probe").set_value("put a hot egg on the desk").run()
    assert not app.error
    assert any("recall" in line.lower() for line in plain(app).splitlines())


def test_a_bank_whose_embedder_is_not_here_answers_everything_but_a_probe(home: Path, visit: Visit) -> None:
    with MemoryBank.create(str(home / "banks" / "foreign"), "hashing-elsewhere", DIMENSION) as bank:
        bank.write.start_run(replace(a_run(), embedder="hashing-elsewhere"))
        for step in range(1, 4):
            bank.write.commit_step(*a_step(step, credited=("r-0001",) if step > 1 else ()))
    for key in ("origin", "unused", "fitting", "calibrated", "family"):
        app = visit("decision", bank="foreign", ask=key)
        assert app.selectbox(key="question").value == key and not app.error
    app = visit("decision", bank="foreign", ask="probe")
    app.text_input(key="probe").set_value("anything").run()
    assert "made by hashing-elsewhere" in plain(app)


def test_the_history_of_a_q_says_why_a_person_gave_a_reward(bank: Stored, visit: Visit) -> None:
    memory = bank.trace(RUN, 20).reward.credited[0]

    def rewards() -> pd.DataFrame:
        app = visit("decision", bank="demo", run=RUN, ask="origin", a=memory)
        (table,) = [one.value for one in app.dataframe if "share of q now" in one.value]
        return table.set_index("step")

    assert "reason" not in rewards(), "nobody gave one"
    with MemoryBank.open(str(demo_bank())) as opened:
        opened.write.ratings.rate(Rating(RUN, 20, -1.0, "ann", "the wrong shelf"))
    assert rewards()["reason"][20] == "the wrong shelf" and set(rewards()["reason"].drop(20)) == {""}


@pytest.mark.parametrize("question", [name for name, _ in ACTIONS if name != TO_BANK])
def test_what_a_memory_of_the_stage_offers_opens_its_question(at_step: Visit, question: str) -> None:
    memory = "household-0021"
    app = at_step(ask="gate")
    # Whatever was asked before.
    for name, value in {"memory": memory, **asking(question, memory)}.items():
        app.query_params[name] = value
    app.run()
    assert not app.error
    assert app.selectbox(key="question").value == question
    if "a" in BY_KEY[question].memories:
        assert app.selectbox(key="memory_a").value == memory


def test_the_twins_of_a_memory_are_its_own_rows_alone(
    bank: Stored, at_step: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_memory, "TWINS", 0.8)
    app = at_step(ask="copies")
    groups = next(table.value for table in app.dataframe if "together in pools" in table.value)
    twins = groups[groups["group"] == 1]
    names = {memory.id: memory_label(memory.id, RUN) for memory in bank.memories()}
    asked = next(memory_id for memory_id, name in names.items() if name == twins.iloc[-1]["memory"])
    app = at_step(ask="twin", a=asked)
    rows = next(table.value for table in app.dataframe if "together in pools" in table.value)
    assert rows.iloc[0]["memory"] == names[asked]
    assert set(rows["memory"]) == set(twins["memory"])


def test_a_memory_far_from_the_intent_can_be_asked_about(bank: Stored, at_step: Visit) -> None:
    decision = bank.trace(RUN, STEP).decision
    considered = {candidate.memory_id for candidate in decision.candidates}
    far = next(m.id for m in bank.memories(RUN) if m.id not in considered and m.step < STEP)
    app = at_step(ask="gate", b=far)
    assert app.selectbox(key="memory_b").value == far
    assert "k1 of at least" in plain(app)
    app = at_step(ask="pair", b=far)
    assert "too far" in plain(app)
    app = at_step(ask="required", b=far)
    assert "no q would" in plain(app)
