"""Memory that is asked within an episode: what was sent is what the trace tells, here, in exports and elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent import Agent, Episode
from memrl_core.agent.learned_state import learned_now
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import ModelInterrupted
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import Names, bring_in
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import make_policy
from memrl_core.prompting import (
    conversation_so_far,
    first_messages,
    first_observation,
    memory_blocks,
    offered,
    with_recalled,
)
from memrl_core.records import Memory, MemoryOperation, Message, Outcome, Phase, Reply, StepTrace, Turn, WriteRecord
from tests.builders import an_agent
from tests.policies.policy_run import an_agent_of

LONG_TASK, TASK = sample_tasks("household-train")[0], sample_tasks("household-train")[14]


class Overheard(SimulatedModel):
    """The simulated model, with everything that it was sent; it fails at the calls named."""

    def __init__(self, *fails: int) -> None:
        self.sent: list[tuple[Message, ...]] = []
        self._fails = fails

    def chat(self, messages: Sequence[Message], *args: Any, **kwargs: Any) -> Reply:
        self.sent.append(tuple(messages))
        if len(self.sent) in self._fails:
            raise ModelInterrupted("The connection was lost.", partial="take the")
        return super().chat(messages, *args, **kwargs)


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Agent, list[StepTrace], list[list[tuple[Message, ...]]]]:
    """Four steps of a policy that recalls before every turn, and what its model was sent in each."""
    model = Overheard()
    agent = an_agent_of(tmp_path_factory.mktemp("turns") / "bank", "rememberer", model)
    traces, sent = [], []
    for trace in agent.run([TASK], epochs=4):
        traces.append(trace)
        sent.append(list(model.sent))
        model.sent.clear()
    return agent, traces, sent


def turns_of(trace: StepTrace) -> tuple[Turn, ...]:
    return trace.generate.turns


def text_before(turn: Turn) -> str:
    return turn.recalled.text if turn.recalled else ""


# --- what is sent, and what is said of it -----------------------------------------------------------------------------


def test_what_was_sent_in_a_turn_is_what_the_trace_tells(heard: Any) -> None:
    _, traces, sent = heard
    for trace, messages in zip(traces, sent, strict=True):
        turns = turns_of(trace)
        reported = [
            conversation_so_far(trace.generate.messages, turns[:number], text_before(turn))
            for number, turn in enumerate(turns)
        ]
        assert reported == messages
    assert any(text_before(turn) for trace in traces for turn in turns_of(trace))


def test_what_was_recalled_in_a_turn_stands_in_its_message_before_the_choices(heard: Any) -> None:
    _, traces, sent = heard
    for number, turn in enumerate(turns_of(traces[-1])[1:], start=1):
        asked = sent[-1][number][-1].content
        assert turn.recalled.text in asked
        assert offered(asked) == offered(turns_of(traces[-1])[number - 1].observation)
        for memory_id in turn.recalled.decision.selected:
            assert f"[memory {memory_id}]" in turn.recalled.text


def test_what_was_recalled_in_turns_is_stored_with_the_step(heard: Any) -> None:
    agent, traces, _ = heard
    agent.bank.write.flush()
    assert [MemoryBank.open(agent.bank.uri).trace("r", trace.step) for trace in traces] == traces


def test_the_first_turn_is_recorded_by_the_step_itself(heard: Any) -> None:
    _, traces, _ = heard
    assert all(turns_of(trace)[0].recalled is None for trace in traces)


def test_a_policy_that_recalls_at_the_beginning_only_adds_nothing_to_turns(tmp_path: Path) -> None:
    for trace in an_agent(tmp_path / "bank").run(sample_tasks("household-train")[:3]):
        assert all(turn.recalled is None for turn in turns_of(trace))


def until_a_later_turn_fails(path: Path) -> tuple[Episode, Overheard]:
    """An episode whose model has just failed in its second turn, with something recalled before it."""
    quiet = an_agent_of(path, "rememberer")
    list(quiet.run([LONG_TASK]))
    model = Overheard(2)
    episode = Agent(quiet.bank, "r", model, quiet.embedder, quiet.environment).begin(LONG_TASK)
    while episode.phase is not Phase.GENERATE:
        episode.advance()
    episode.advance()
    with pytest.raises(ModelInterrupted):
        episode.advance()
    return episode, model


def test_a_turn_that_is_asked_again_is_sent_what_was_recalled_for_it(tmp_path: Path) -> None:
    episode, model = until_a_later_turn_fails(tmp_path / "bank")
    episode.advance()
    assert model.sent[-1] == model.sent[-2]
    assert text_before(turns_of(episode.trace)[-1]) in model.sent[-1][-1].content


def test_an_answer_that_broke_off_keeps_what_was_recalled_for_it(tmp_path: Path) -> None:
    episode, model = until_a_later_turn_fails(tmp_path / "bank")
    record = episode.keep_partial()
    assert text_before(record.turns[-1])
    assert conversation_so_far(record.messages, record.turns[:1], text_before(record.turns[-1])) == model.sent[-1]


def test_an_answer_that_is_given_up_before_it_was_asked_for_has_nothing_recalled(tmp_path: Path) -> None:
    episode, _ = until_a_later_turn_fails(tmp_path / "bank")
    episode.advance()
    assert episode.keep_partial().turns[-1].recalled is None


# --- exports and names ------------------------------------------------------------------------------------------------


def mentioned_in(turn: Turn) -> list[str]:
    if turn.recalled is None:
        return []
    recall, decision = turn.recalled.recall, turn.recalled.decision
    records = (*recall.pool, *recall.left_out, *decision.candidates)
    return [*(record.memory_id for record in records), *decision.selected, *decision.greedy]


def test_what_is_mentioned_in_turns_and_kept_with_memories_follows_a_renaming(heard: Any) -> None:
    _, traces, _ = heard
    turn = next(turn for turn in turns_of(traces[-1]) if turn.recalled and turn.recalled.decision.selected)
    old = turn.recalled.decision.selected[0]
    data = {"of": old, old: [1, {"in": [old, f"see {old}"]}], "n": 2}
    merged = MemoryOperation("MERGE", "x", "i", "e", "success", "k", 0.0, (old,), replaces=(old, "y"), data=data)
    trace = replace(traces[-1], write=WriteRecord((merged,)))
    renamed = Names(memories={old: "new"}).trace(trace)
    (operation,) = renamed.write.operations
    assert (operation.replaces, operation.parents) == (("new", "y"), ("new",))
    assert operation.data == {"of": "new", "new": [1, {"in": ["new", f"see {old}"]}], "n": 2}
    for before, after in zip(turns_of(trace), turns_of(renamed), strict=True):
        assert text_before(before) == text_before(after)
        assert mentioned_in(after) == ["new" if memory_id == old else memory_id for memory_id in mentioned_in(before)]


def test_a_run_that_comes_under_another_name_has_learned_the_same(tmp_path: Path) -> None:
    banks = []
    for name, seed in (("a", 1), ("b", 2)):
        agent = an_agent_of(tmp_path / name, "rememberer", seed=seed)
        list(agent.run([TASK], epochs=3))
        banks.append(agent.bank)
    write_bank(banks[1], tmp_path / "b.zip")
    banks[0].close()
    arrival = bring_in(read_bank(tmp_path / "b.zip"), str(tmp_path / "a"))
    assert arrival.renamed_runs == {"r": "r-2"}
    here = MemoryBank.open(str(tmp_path / "a"))
    policy = make_policy("rememberer", here.settings("r-2"))
    there = {name.partition(":")[::2]: q for name, q in policy.values(learned_now(banks[1], "r")).items()}
    assert len(there) > 5
    assert policy.values(learned_now(here, "r-2")) == {
        f"{arrival.renamed_memories.get(memory_id, memory_id)}:{action}": q for (memory_id, action), q in there.items()
    }


# --- the simulated model ----------------------------------------------------------------------------------------------


def a_memory(text: str, intent: str = "find the cat", outcome: Outcome = "success") -> Memory:
    return Memory("r-1", intent, f"Task: {intent}\n{text}", outcome, "", (), "r", 1, "t", "")


def offering(*choices: str) -> str:
    return "Something happened.\nYou can:\n" + "\n".join(f"- {choice}" for choice in choices)


def answered(first: Sequence[Memory], later: Sequence[Memory], choices: Sequence[str], done: str = "wait") -> str:
    """What the simulated model says in the second turn, with memories in its first and in its last message."""
    messages, _ = first_messages("Act.", first, "find the cat", offering(*choices))
    text = memory_blocks(later)[0].strip()
    turn = Turn(Reply(done), offering(*choices), 0, False, False)
    return SimulatedModel().chat(conversation_so_far(messages, [turn], text), ModelOptions()).text


def test_it_does_what_the_last_message_encourages_even_if_it_was_done_before() -> None:
    advice = a_memory("Encouraged: value 0.50 after 2 tries\n> look up\nDiscouraged: value 0.00\n> look down")
    assert answered([], [advice], ["wait", "look down", "look up"]) == "look up"
    assert answered([], [advice], ["wait", "look down", "look up"], done="look up") == "look up"


def test_it_keeps_away_from_what_the_last_message_discourages() -> None:
    plan = a_memory("Steps that worked:\n> look down\n> look left")
    advice = a_memory("Discouraged: value 0.00\n> look down")
    assert answered([plan], [], ["look down", "look left", "look up"]) == "look down"
    assert answered([plan], [advice], ["look down", "look left", "look up"]) == "look left"
    assert answered([], [advice], ["look down", "look up"]) == "look up"
    assert answered([], [advice], ["look down"]) == "look down"


def test_a_plan_in_the_last_message_comes_before_those_of_the_first() -> None:
    first, later = a_memory("Steps that worked:\n> look left"), a_memory("Steps that worked:\n> wait\n> look up")
    assert answered([first], [later], ["look left", "look up", "wait"]) == "look up"


def test_advice_is_about_the_message_in_which_it_stands() -> None:
    advice = a_memory("Encouraged: value 1.00 after 1 try\n> look left\nDiscouraged: value 0.00\n> look up")
    plan = a_memory("Steps that worked:\n> look up")
    assert answered([advice], [plan], ["look left", "look up"]) == "look up"


def test_advice_is_carried_over_to_the_task_that_is_asked() -> None:
    advice = a_memory("Encouraged: value 1.00 after 1 try\n> call the dog", intent="find the dog")
    assert answered([], [advice], ["call the dog", "call the cat"]) == "call the cat"


def test_in_the_first_turn_the_first_message_gives_the_advice() -> None:
    advice = a_memory("Encouraged: invented, value 0.31\n> look up\nDiscouraged: value 0.00\n> look down")
    messages, _ = first_messages("Act.", [advice], "find the cat", offering("look down", "look up", "wait"))
    assert SimulatedModel().chat(messages, ModelOptions()).text == "look up"


def test_what_is_added_to_an_observation_leaves_its_choices_at_the_end() -> None:
    reported = with_recalled(offering("a", "b"), "a memory\n> a")
    assert reported == "Something happened.\na memory\n> a\n\nYou can:\n- a\n- b"
    assert with_recalled("The end.", "a memory") == "The end.\n\na memory"
    assert with_recalled("The end.", "") == "The end."


def test_the_first_observation_is_read_out_of_the_prompt_it_stands_in() -> None:
    messages, _ = first_messages("Act.", [a_memory("> look up")], "find the cat", offering("look up"))
    assert first_observation(messages, "find the cat") == offering("look up")
    assert first_observation(messages, "find the dog") == ""
    assert first_observation([Message("user", "What is this?")], "find the cat") == ""
