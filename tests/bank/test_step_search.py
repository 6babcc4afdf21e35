"""The table of steps, asked of the tables by SQL, against the traces themselves."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.preferences import demo_bank
from memrl_core.analysis.decision.labels import memory_named
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.step_search import StepQuery
from memrl_core.environments.helpdesk import Helpdesk
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import offered
from memrl_core.records import Message, Reply, StepTrace
from tests.builders import an_agent

RUN = "household"


class _Deaf(SimulatedModel):
    """A model that reads no memory: it answers what is offered, one after the other."""

    asked = 0

    def chat(self, messages: Sequence[Message], *args: Any, **kwargs: Any) -> Reply:
        choices = offered(messages[-1].content)
        self.asked += 1
        return Reply(choices[self.asked**2 % len(choices)])


@pytest.mark.parametrize("model", [SimulatedModel, _Deaf])
def test_steps_are_found_by_what_their_answer_follows(tmp_path: Path, model: type[SimulatedModel]) -> None:
    agent = an_agent(tmp_path / "bank", model(), "helpdesk")
    list(agent.run(Helpdesk.make_tasks("helpdesk-train")[:40]))
    traces, bank = agent.bank.traces("r"), agent.bank
    known = [trace for trace in traces if trace.follows is not None and trace.decision and trace.decision.selected]
    for wanted in (True, False):
        steps = [trace.step for trace in known if trace.follows and bool(trace.follows.memories) is wanted]
        assert bank.steps.matching("r", StepQuery(follows=wanted)) == steps
        assert steps or wanted is (model is _Deaf), "a reader follows, who does not read does not"
    with closing(sqlite3.connect(tmp_path / "bank" / "bank.db")) as tables:
        stored = [json.loads(cell or "null") for (cell,) in tables.execute("SELECT follows FROM steps ORDER BY step")]
    assert stored == [None if trace.follows is None else [*trace.follows.memories] for trace in traces]
    assert any(stored) or model is _Deaf


def test_a_bank_of_before_gets_the_column_when_it_is_next_written(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", environment="helpdesk")
    list(agent.run(Helpdesk.make_tasks("helpdesk-train")[:8]))
    agent.bank.close()
    path = tmp_path / "bank" / "bank.db"
    with closing(sqlite3.connect(path)) as tables:
        (before,) = tables.execute("SELECT count(follows) FROM steps").fetchone()
        tables.execute("ALTER TABLE steps DROP COLUMN follows")
        tables.commit()
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.steps.matching("r", StepQuery(follows=True)), "it is read as before"
        assert all(finding.ok for finding in check(str(tmp_path / "bank")))
    with closing(sqlite3.connect(path)) as tables:
        assert "follows" not in [column for _, column, *_ in tables.execute("PRAGMA table_xinfo(steps)")]
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        bank.write.ratings.rate(Rating("r", 3, 1.0, "ann", ""))
    with closing(sqlite3.connect(path)) as tables:
        assert tables.execute("SELECT count(follows) FROM steps").fetchone() == (before,) != (0,)
    assert all(finding.ok for finding in check(str(tmp_path / "bank")))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """The demo, with one step rated by a person against its environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMRL_HOME", str(tmp_path_factory.mktemp("home")))
        bank = MemoryBank.open(str(demo_bank()))
    then = next(trace.reward.reward for trace in bank.traces(RUN) if trace.step == 12 and trace.reward)
    bank.write.ratings.rate(Rating(RUN, 12, -1.0 if then == 1.0 else 1.0, "ann", "the wrong drawer"))
    return bank


def _pool(trace: StepTrace) -> list[str]:
    return [one.memory_id for one in trace.recall.pool] if trace.recall else []


def _moved(trace: StepTrace) -> int:
    ranks = {one.memory_id: one for one in trace.decision.candidates} if trace.decision else {}
    return sum(ranks[i].rank_select not in (None, ranks[i].rank_recall) for i in _pool(trace))


def _memory(bank: MemoryBank) -> str:
    """One that was in a pool, and that another step looked at and left out."""
    traces = bank.traces(RUN)
    left_out = {c.memory_id for t in traces if t.decision for c in t.decision.candidates if c.memory_id not in _pool(t)}
    return next(i for trace in traces for i in _pool(trace) if i in left_out)


def _better(trace: StepTrace) -> int:
    if trace.decision is None:
        return 0
    selected = [one.q for one in trace.decision.candidates if one.memory_id in trace.decision.selected]
    rest = [c.q for c in trace.decision.candidates if c.memory_id in {*_pool(trace)} - {*trace.decision.selected}]
    return sum(q > max(selected) for q in rest) if selected else 0


def _says(trace: StepTrace, words: str) -> bool:
    sent = [message.content for message in trace.generate.messages] if trace.generate else []
    heard = [text for turn in trace.turns for text in (turn.reply.text, turn.observation)]
    return any(words in text.lower() for text in (trace.task.intent, *sent, *heard))


FILTERS: dict[str, tuple[dict[str, Any], Callable[[StepTrace, MemoryBank], object]]] = {
    "all": ({}, lambda t, _: True),
    "failures": ({"outcome": "failure"}, lambda t, _: t.reward and t.reward.outcome == "failure"),
    "words of the intent": ({"task": "CANDLE"}, lambda t, _: "candle" in t.task.intent),
    "the task's id": ({"task": "train-017"}, lambda t, _: t.task.id == "train-017"),
    "nothing is a wildcard": ({"task": "%"}, lambda t, _: False),
    "an epoch": ({"epochs": (2, 2)}, lambda t, _: t.epoch == 2),
    "epochs": ({"epochs": (2, 3)}, lambda t, _: t.epoch in (2, 3)),
    "no epoch": ({"epochs": (9, 12)}, lambda t, _: False),
    "nothing recalled": ({"empty_pool": True}, lambda t, _: not _pool(t)),
    "something recalled": ({"empty_pool": False}, lambda t, _: _pool(t)),
    "a rank changed": ({"reranked": True}, lambda t, _: _moved(t)),
    "no rank changed": ({"reranked": False}, lambda t, _: not _moved(t)),
    "a person's reward": ({"source": "person"}, lambda t, _: t.step == 12),
    "a better memory left out": (
        {"better": True, "outcome": "failure"},
        lambda t, _: _better(t) and t.reward and t.reward.outcome == "failure",
    ),
    "no better memory left out": ({"better": False}, lambda t, _: not _better(t)),
    "words of the answer": ({"words": "Search CABINET"}, lambda t, _: _says(t, "search cabinet")),
    "words of a reason": ({"words": "wrong DRAWER"}, lambda t, _: t.step == 12),
    "words of nothing": ({"words": "num_predict"}, lambda t, _: False),
    "nobody's reward": ({"source": "nobody"}, lambda t, _: False),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_lets_in_the_steps_whose_traces_pass_it(bank: MemoryBank, name: str) -> None:
    asked, passes = FILTERS[name]
    expected = [trace.step for trace in bank.traces(RUN) if passes(trace, bank)]
    assert bank.steps.matching(RUN, StepQuery(**asked)) == expected


def test_the_reason_of_a_reward_stands_with_its_step(bank: MemoryBank) -> None:
    assert [row.reason for row in bank.steps.found(RUN, [11, 12])] == ["", "the wrong drawer"]


def test_a_memory_in_the_pool_is_asked_for_by_its_id_or_number(bank: MemoryBank) -> None:
    memory = _memory(bank)
    expected = [trace.step for trace in bank.traces(RUN) if memory in _pool(trace)]
    for written in (memory, f"#{int(memory.removeprefix(f'{RUN}-'))}"):
        assert bank.steps.matching(RUN, StepQuery(memory=memory_named(written, RUN))) == expected
    assert expected


def test_rows_say_what_the_traces_say(bank: MemoryBank) -> None:
    rows = bank.steps.found(RUN, bank.steps.matching(RUN, StepQuery()))
    for row, trace in zip(rows, bank.traces(RUN), strict=True):
        offered = [turn.reply.offered for turn in trace.generate.turns]
        assert (row.step, row.task, row.intent, row.epoch) == (
            trace.step, trace.task.id, trace.task.intent, trace.epoch,
        )  # fmt: skip
        assert (row.outcome, row.reward) == (trace.reward.outcome, trace.reward.reward)
        assert (row.valid, row.asked) == (offered.count(True), len(offered) - offered.count(None))
        assert row.better == _better(trace)
        assert (row.pool, row.used, row.reranked) == (len(_pool(trace)), len(trace.decision.selected), _moved(trace))
        assert row.seconds == pytest.approx(sum(trace.seconds.values()))
        assert row.now == bank.ratings.effective(RUN, row.step)
    assert rows[11].sources == ("environment", "ann")
    assert rows[11].now == -rows[11].reward
