"""A prompt that does not fit: memories are left out by the policy's own order, reported, and not credited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent import Agent
from memrl_core.agent.asking import Asking
from memrl_core.agent.rerun import Rerunner
from memrl_core.agent.runs import start_run
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import tasks_of_set
from memrl_core.errors import ModelInterrupted, PromptTooLong
from memrl_core.exchange.bring_in import Names
from memrl_core.models.base import ModelOptions, fewest_tokens
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import CAUTION, FOLLOW, YOUR_TASK, first_messages, messages_sent, without
from memrl_core.records import Memory, Message, Outcome, Phase, Reason, Reply, StepTrace
from memrl_core.settings import MemRLSettings

TASKS = tasks_of_set("household-train")[:1]


class Narrow:
    """A model whose context window holds so many words; it says the first line offered."""

    name, simulated, binds = "narrow", False, True

    def __init__(self, words: int) -> None:
        self.words = words
        self.breaks = False
        self.sent: list[str] = []

    def chat(
        self, messages: Sequence[Message], options: ModelOptions, _on: Any = None, _off: Any = None, schema: Any = None
    ) -> Reply:
        if fewest_tokens(messages) > self.words:
            raise PromptTooLong(self.name, self.words)
        if self.breaks:
            raise ModelInterrupted("It broke.", "so far")
        self.sent.append("\n".join(message.content for message in messages))
        return Reply(json.dumps(schema["enum"][0]) if schema else "in words")


def _memory(number: int, outcome: Outcome) -> Memory:
    return Memory(f"m{number}", "", f"Task: {number}\n> do {number}", outcome, "", (), "r", 1, "t", "")


@pytest.mark.parametrize("left_out", [{"m2"}, {"m1", "m2"}, {"m0", "m3"}, {"m0", "m1", "m2", "m3"}, set()])
def test_what_is_left_out_is_gone_with_its_heading_and_the_rest_stands_where_its_span_says(left_out: set[str]) -> None:
    memories = [_memory(n, "failure" if n == 2 else "success") for n in range(4)]
    messages, spans = first_messages("Act.", memories, "do it", "You can:\n- wait")
    reported, kept = without(messages, spans, left_out)
    rest = [memory for memory in memories if memory.id not in left_out]
    assert reported == first_messages("Act.", rest, "do it", "You can:\n- wait")[0]
    assert {span.memory_id for span in kept} == {memory.id for memory in rest}
    for span in kept:
        assert (
            reported[1]
            .content[span.start : span.end]
            .startswith(f"[memory {span.memory_id}]\nTask: {span.memory_id[1]}")
        )


def _trace(path: Path, words: int, layout: str = "block") -> tuple[StepTrace, Narrow, dict[str, int]]:
    """A step of household with three memories of the very task to select, by a model with so little room."""
    model = Narrow(words)
    with MemoryBank.create(str(path / "bank"), "hashing-64", 64) as bank:
        settings = MemRLSettings(k2=3, delta=0.0)
        first = start_run(bank, environment="household", tasks="household-train", task_count=1).id
        agent = Agent(bank, first, SimulatedModel(), HashingEmbedder(64), Household())
        list(agent.run(TASKS, epochs=3))
        run = start_run(
            bank, environment="household", tasks="household-train", task_count=1, settings=settings, base=first,
            model_options={"layout": layout},
        ).id  # fmt: skip
        before = {i: u.visits for i, u in bank.utilities(run).items()}
        trace = next(Agent(bank, run, model, HashingEmbedder(64), Household()).run(TASKS))
        visits = {i: u.visits - before[i] for i, u in bank.utilities(run).items() if i in before}
        rerun = Rerunner(bank, trace, model, Household()).rerun(trace.decision.greedy)
        left_out = rerun.generate.turns[0].left_out
        assert tuple(i for i in trace.decision.greedy if i not in left_out) == trace.decision.selected
        return trace, model, visits


@pytest.mark.parametrize("layout", ["block", "transcript", "turns"])
def test_the_memory_selected_last_is_left_out_reported_and_not_credited(tmp_path: Path, layout: str) -> None:
    (tmp_path / "wide").mkdir()
    _, wide, _ = _trace(tmp_path / "wide", 100_000, layout)
    whole = fewest_tokens([Message("user", wide.sent[0])])
    trace, model, visits = _trace(tmp_path, whole - 1, layout)
    decision, record = trace.decision, trace.generate
    assert decision.selected == decision.greedy[:2] and len(decision.greedy) == 3
    out = decision.greedy[2]
    assert {c.memory_id for c in decision.candidates if c.reason is Reason.OVER_BUDGET} == {
        out
    } and "1 of the" in decision.note
    assert record.turns[0].left_out == (out,) and "1 memory left out" in record.turns[0].reply.notes[-1]
    assert {span.memory_id for span in record.spans} == set(decision.selected)
    sent = "\n".join(message.content for message in messages_sent(record, 0))
    assert sent == model.sent[0] and fewest_tokens([Message("user", sent)]) < whole
    assert trace.reward.credited == decision.selected == trace.write.operations[0].parents
    assert {i for i, more in visits.items() if more} == set(decision.selected)
    renamed = Names({out: "new-1"}).trace(trace).generate
    assert renamed.turns[0].left_out == ("new-1",)


def test_a_memory_that_leaves_the_prompt_in_a_later_turn_was_sent_and_is_credited(tmp_path: Path) -> None:
    (tmp_path / "wide").mkdir()
    _, wide, _ = _trace(tmp_path / "wide", 100_000)
    trace, model, _ = _trace(tmp_path, fewest_tokens([Message("user", wide.sent[0])]))
    record = trace.generate
    turns = record.turns
    assert turns[0].left_out == () and trace.decision.selected == trace.decision.greedy
    assert [len(turn.left_out) for turn in turns] == sorted(len(turn.left_out) for turn in turns)
    assert turns[1].left_out[0] == trace.decision.selected[-1]
    for number, turn in enumerate(turns):
        if turn.reply.text:
            assert "\n".join(message.content for message in messages_sent(record, number)) in model.sent


def test_an_answer_kept_as_it_had_arrived_credits_what_was_sent_alone(tmp_path: Path) -> None:
    (tmp_path / "wide").mkdir()
    _, wide, _ = _trace(tmp_path / "wide", 100_000)
    model = Narrow(fewest_tokens([Message("user", wide.sent[0])]) - 1)
    model.breaks = True
    with MemoryBank.open(str(tmp_path / "wide" / "bank")) as bank:
        run = bank.runs()[-1].id
        episode = Agent(bank, run, model, HashingEmbedder(64), Household()).begin(TASKS[0])
        while episode.phase is not Phase.GENERATE:
            episode.advance()
        with pytest.raises(ModelInterrupted):
            episode.advance()
        episode.keep_partial()
        decision = episode.trace.decision
        assert len(decision.selected) < len(decision.greedy)
        assert episode.credited == decision.selected


def test_a_prompt_that_never_fits_costs_turns_and_ends_no_run(tmp_path: Path) -> None:
    trace, model, visits = _trace(tmp_path, 10)
    assert model.sent == [] and trace.reward.outcome == "unrated" and trace.decision.selected == ()
    assert {turn.reply.offered for turn in trace.generate.turns} == {False}
    assert "not asked" in trace.generate.turns[0].reply.notes[0] and not any(visits.values())
    assert not {FOLLOW, CAUTION} & set(trace.generate.messages[1].content.splitlines())
    assert trace.generate.messages[1].content.startswith(YOUR_TASK)


def test_a_form_that_does_not_fit_is_no_answer_and_says_why() -> None:
    from pydantic import BaseModel

    from memrl_core.policies.base import Question

    class Form(BaseModel):
        yes: bool

    ask = Asking(Narrow(2), ModelOptions(), Phase.SELECT)
    assert ask(Question("test", Form, "Fill it in.", "a b c", Form(yes=True))) is None
    assert "2 tokens" in ask.asked[0].cut
