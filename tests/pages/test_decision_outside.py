"""The page Decision on steps of other agents, of files, of chance, and of settings that changed on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core import Memory
from memrl_core.agent.recorder import Recorder
from memrl_core.analysis.compare.counterfactual import BY_OTHERS, counterfactual
from memrl_core.analysis.decision.outline import line
from memrl_core.analysis.decision.whatif import situation_of
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.foreign.traces import import_spans
from memrl_core.exchange.official.reader import read_official
from memrl_core.records import Phase
from pages.decision.catalogue import BY_KEY
from tests.builders import a_bank, a_step, a_vector, an_agent_after
from tests.exchange.official_writer import CheckpointWriter, Written, a_selected, an_llb_record, write_lines
from tests.pages.screen import Visit, opened, plain

ABOUT_CHOICE = {"flips", "normalisers", "draw", "gate", "required"}


def questions(app: AppTest) -> set[str]:
    return set(app.selectbox(key="question").options)


def asked_texts(app: AppTest, keys: set[str]) -> set[str]:
    return {f"{BY_KEY[key].group} · {BY_KEY[key].text}" for key in keys} & questions(app)


@pytest.fixture
def recorded(home: Path) -> MemoryBank:
    """A run that another agent reported: it selects the least similar, which no setting of ours would."""
    bank = MemoryBank.create(str(home / "banks" / "rec"), "hashing-8", 8)
    recorder = Recorder(bank, "theirs")
    for number in range(3):
        recorder.remember(f"intent {number}", f"text {number}", embedding=a_vector(number), q=0.4, visits=4)
    ids = list(bank.utilities("theirs"))
    for number in range(2):
        with recorder.step("do it", embedding=a_vector(10 + number)) as step:
            step.recalled([(memory_id, 0.9 - n / 10) for n, memory_id in enumerate(ids)])
            step.selected([ids[-1]])
            step.answered("done")
            step.rewarded(1.0)
    bank.close()
    return bank


def test_beside_a_choice_by_other_rules_stands_what_ours_would_have_chosen(recorded: MemoryBank, visit: Visit) -> None:
    with pytest.raises(InputError, match="rules of its own"):
        situation_of(recorded, recorded.trace("theirs", 2))
    assert counterfactual(recorded, "theirs", {"k2": 1}) == []
    chosen = {}
    for k2, key in (("1", "flips"), ("2", "gate")):
        app = visit("decision", bank="rec", run="theirs", step="2", k2=k2, ask=key)
        (ours,) = [one.value for one in app.markdown if "Ours, not the agent's" in one.value]
        chosen[k2] = ours.partition("would have chosen")[2].partition("of all")[0].count("#")
        assert "tried out" in ours and "Given to the model: **\\#3**" in "".join(one.value for one in app.markdown)
        wanted = {"flips", "normalisers", "gate", "required"}
        assert asked_texts(app, ABOUT_CHOICE) == {f"{BY_KEY[one].group} · {BY_KEY[one].text}" for one in wanted}
        assert any("Ours, not the agent's" in one.value for one in app.caption) and not app.exception
    assert chosen == {"1": 1, "2": 2}


def test_the_scores_of_another_agent_stand_in_the_pool_and_a_contradiction_is_said(home: Path, visit: Visit) -> None:
    with MemoryBank.create(str(home / "banks" / "own"), "hashing-2", 2) as bank:
        recorder = Recorder(bank, "theirs")
        for name, vector in (("m0", [1.0, 0.0]), ("m1", [0.0, 1.0])):
            recorder.remember(name, name, vector, memory_id=name)
        with recorder.step("do it", embedding=[1.0, 0.0]) as step:
            step.recalled([("m1", 0.12), ("m0", 0.93)], kind="distance")
            step.selected(["m1"])
    app = visit("decision", bank="own", run="theirs", step="1")
    pool = app.dataframe[-1].value.set_index("memory")
    assert pool["agent's distance"].to_dict() == {"m1": 0.12, "m0": 0.93}
    (sentence,) = [one.value for one in app.warning]
    assert sentence.startswith("By its vectors m0 is nearest") and "ranked it last" in sentence


def test_beside_the_choice_of_a_trace_stands_what_ours_would_have_chosen(home: Path, visit: Visit) -> None:
    spans = [
        {
            "trace_id": query, "span_id": "r", "start_time": f"2026-05-01T10:00:0{number}Z",
            "attributes": {
                "openinference.span.kind": "RETRIEVER", "input.value": query,
                "retrieval.documents": [{"document.id": f"d{number}", "document.content": text}],
            },
        }
        for number, (query, text) in enumerate([("Is vegetarian", "Lives in Riga"), ("lunch", "Is vegetarian")])
    ]  # fmt: skip
    (home / "spans.jsonl").write_text("\n".join(map(json.dumps, spans)), encoding="utf-8")
    MemoryBank.create(str(home / "banks" / "traced"), "hashing-64", 64).close()
    arrival = import_spans(home / "spans.jsonl", str(home / "banks" / "traced"))
    assert arrival is not None
    (run,) = arrival.runs
    decision = plain(visit("decision", bank="traced", run=run, step="1", ask="flips"))
    assert "Given to the model: **d0**" in decision
    for screen in (decision, plain(opened(visit("step", bank="traced", run=run, step="1"), Phase.RECALL))):
        assert "MemRL would have chosen **d1" in screen and "all documents that the traces of this run name" in screen


def test_what_a_query_was_restricted_to_stands_where_a_memory_was_left_out(home: Path, visit: Visit) -> None:
    with Memory.open(home / "banks" / "scoped", run="r", embedder="hashing-64", settings={"delta": -1.0}) as memory:
        ids = [memory.recall("egg").write(f"as {user} likes it") for user in (7, 8)]
        memory.recall("egg", of=ids[:1], scope="only user 7's")
        for scope in ("only user 7's", ""):
            with memory.recorder.step("egg", embedding=memory.bank.embedding(ids[0])) as s:
                s.recalled(ids[:1], scope=scope)
                s.selected(ids[:1])
        assert "only user 7's" in line(memory.bank.trace("r", 3), Phase.RECALL)
    for step, said in ((3, "only user 7's"), (4, "only user 7's"), (5, "does not say why")):
        pair = plain(visit("decision", bank="scoped", run="r", step=str(step), ask="pair", b=ids[1]))
        assert said in pair and "too far" not in pair
        gate = plain(visit("decision", bank="scoped", run="r", step=str(step), ask="gate", b=ids[1]))
        assert ("The query was restricted" in gate) is (step < 5)


def test_why_a_recorded_memory_was_selected_is_not_made_up(recorded: MemoryBank, visit: Visit) -> None:
    app = visit("decision", bank="rec", run="theirs", step="2", ask="pair")
    assert "both scores" in plain(app)


def test_what_other_settings_would_have_earned_is_refused_where_no_probability_is_known(
    recorded: MemoryBank, visit: Visit
) -> None:
    app = visit("decision", bank="rec", run="theirs", step="2", ask="earned")
    assert any(one.value == BY_OTHERS for one in app.info)


def test_a_q_that_came_with_visits_says_so(recorded: MemoryBank, visit: Visit) -> None:
    first = next(iter(recorded.utilities("theirs")))
    app = visit("decision", bank="rec", run="theirs", step="2", ask="origin", a=first)
    assert "4 rewarded uses" in plain(app)


def test_an_imported_step_is_not_decided_against_the_memory_of_later(home: Path, visit: Visit) -> None:
    root = home / "official"
    CheckpointWriter([Written("m1", "first", q=0.2, visits=1), Written("m2", "second", q=0.6, visits=2)]).write(
        root / "snapshot" / "1"
    )
    record = an_llb_record("1", "first", {"first": [a_selected("m1", 0.5, 0.1)]})
    write_lines(root / "trace.jsonl", [record])
    contents = read_official(root)
    bring_in(contents, str(home / "banks" / "off"))
    with MemoryBank.open(str(home / "banks" / "off")) as bank:
        (run,) = [info.id for info in bank.runs()]
        steps = bank.steps.rows(run)
        for row in steps:
            with pytest.raises(InputError):
                situation_of(bank, bank.trace(run, row.step))
    app = visit("decision", bank="off", run=run)
    assert asked_texts(app, ABOUT_CHOICE) == set()


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ({"step": "29", "ask": "supposed", "alpha": "0.9"}, "fork the run"),
        ({"step": "10", "ask": "pair", "a": "household-0030"}, "in step 30"),
    ],
    ids=["another alpha needs a fork", "a memory that was written later"],
)
def test_what_cannot_be_answered_says_why(demo: Path, visit: Visit, link: dict[str, str], says: str) -> None:
    assert says in plain(visit("decision", bank="demo", run="household", **link))


def test_chance_is_named_before_scores_are_compared(home: Path, visit: Visit) -> None:
    agent = an_agent_after(home / "banks" / "eps", 14, run="r", epsilon=1.0)
    drawn = [t for t in agent.bank.traces("r") if t.decision is not None and t.decision.mode == "explore"]
    step = str(drawn[-1].step)
    agent.bank.close()
    assert "Chance chose" in plain(visit("decision", bank="eps", run="r", step=step, ask="pair"))
    assert "greedy selection takes" in plain(visit("decision", bank="eps", run="r", step=step, ask="flips"))


def test_settings_of_another_program_leave_the_stored_decision_to_see(home: Path, visit: Visit) -> None:
    agent = an_agent_after(home / "banks" / "odd", 5, run="r")
    trace = agent.bank.trace("r", 5)
    hostile = "![i](http://evil.test/i.png)"
    odd = replace(
        trace,
        id="odd",
        step=6,
        settings={**trace.settings, "temperature_of_the_moon": 3},
        decision=replace(trace.decision, normaliser=hostile),
        write=None,
    )
    agent.bank.write.commit_step(odd, {})
    agent.bank.close()
    app = visit("decision", bank="odd", run="r", step="6", ask="normalisers")
    assert "does not have" in plain(app)
    for page in ("decision", "step"):
        shown = visit(page, bank="odd", run="r", step="6", ask="normalisers")
        assert not [block.value for block in shown.markdown if hostile in block.value]
        assert not [block.value for block in shown.caption if hostile in block.value]


def test_nothing_is_said_of_rewards_that_nobody_gave(home: Path, visit: Visit) -> None:
    with a_bank(home / "banks" / "quiet") as bank:
        for step in range(1, 4):
            bank.write.commit_step(*a_step(step, reward=None))
    app = visit("decision", bank="quiet", ask="forgotten")
    assert "rated both times" in plain(app)


@pytest.mark.slow
def test_of_an_imported_checkpoint_no_pool_is_made_up(home: Path, tmp_path: Path, visit: Visit) -> None:
    folder = CheckpointWriter([Written("m1", "one", q=0.76, visits=4)]).write(tmp_path / "snapshot" / "1")
    (run,) = bring_in(read_official(folder), str(home / "banks" / "official")).runs
    spread = plain(visit("decision", bank="official", run=run, ask="spread"))
    assert "+0.760" in spread and "% were never recalled" not in spread
    unused = visit("decision", bank="official", run=run, ask="unused")
    assert not [one for one in unused.metric if "pool" in one.label]
