"""The agent: phase by phase or to the end, the records are the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.agent.asking import view_before
from memrl_core.agent.run_parts import SIMULATED
from memrl_core.agent.runs import REPEATED, begins_with
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.environments import make_environment
from memrl_core.environments.base import Environment, EnvironmentSpec
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError, ModelError, ModelInterrupted, OllamaDown, StepError
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import CAUTION, FOLLOW, STEPS_THAT_WORKED, TRIED, WHAT_WENT_WRONG, offered, without_tried
from memrl_core.records import Message, Phase, Reply, RewardSource, StepTrace, Task, UpdateRecord
from tests.builders import a_run, an_agent, an_agent_after


def decisions(traces: Sequence[StepTrace]) -> list[Any]:
    return [(t.task, t.recall, t.decision, t.reward, t.update, t.write) for t in traces]


def test_clicks_and_a_headless_run_leave_the_same_records(tmp_path: Path) -> None:
    tasks = sample_tasks("household-train")[:8]
    headless = list(an_agent(tmp_path / "a").run(tasks))
    agent = an_agent(tmp_path / "b")
    clicked = []
    for task in tasks:
        episode = agent.begin(task)
        phases = []
        while episode.phase is not None:
            phases.append(episode.phase)
            episode.advance()
        assert list(dict.fromkeys(phases)) == list(Phase)
        clicked.append(episode.trace)
    assert decisions(clicked) == decisions(headless)
    assert [agent.bank.trace("r", n + 1) for n in range(8)] == clicked


def test_the_trace_tells_the_values_that_the_ledger_folds_to(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    for trace in agent.run(sample_tasks("household-train")[:12], epochs=2):
        assert [c.memory_id for c in trace.update.changes] == list(trace.decision.selected)
        before = agent.bank.utilities("r", as_of=trace.step - 1)
        after = agent.bank.utilities("r")
        for change in trace.update.changes:
            assert before[change.memory_id].q == change.before
            assert (after[change.memory_id].q, after[change.memory_id].visits) == (change.after, change.visits)
        for candidate in trace.decision.candidates:
            assert candidate.q == before[candidate.memory_id].q


def test_the_prompt_holds_each_selected_memory_where_its_span_says(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    trace = list(agent.run(sample_tasks("household-train")[:10]))[-1]
    assert {span.memory_id for span in trace.generate.spans} == set(trace.decision.selected)
    for span in trace.generate.spans:
        text = trace.generate.messages[span.message].content[span.start : span.end]
        assert text.startswith(f"[memory {span.memory_id}]")
        assert agent.bank.memory(span.memory_id).experience.strip() in text


class Breaks:
    """A model that fails once in the middle of its answer, then answers."""

    name, simulated, binds = "breaks", True, False

    def __init__(self) -> None:
        self.calls = 0

    def chat(self, messages: Sequence[Message], options: ModelOptions, *_: Any, **__: Any) -> Reply:
        self.calls += 1
        if self.calls == 2:
            raise ModelInterrupted("The connection was lost.", partial="take the")
        return SimulatedModel().chat(messages, options)


def test_the_prompt_can_be_read_before_it_is_sent(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    tasks = sample_tasks("household-train")[:6]
    list(agent.run(tasks))
    episode = agent.begin(tasks[0])
    with pytest.raises(StepError, match="no prompt before"):
        episode.prompt()
    while episode.phase is not Phase.GENERATE:
        episode.advance()
    before = episode.prompt()
    episode.advance()
    assert before == replace(episode.trace.generate, turns=())


@pytest.mark.parametrize("vectors", [np.full((1, 1024), np.nan, np.float32), np.eye(1, 8), np.zeros((1, 1024))])
def test_a_vector_that_is_no_unit_vector_is_refused_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: Any
) -> None:
    agent = an_agent(tmp_path / "bank")
    monkeypatch.setattr(agent.embedder, "embed", lambda texts: vectors)
    episode = agent.begin(sample_tasks("household-train")[0])
    with pytest.raises(ModelError, match="hashing-1024"):
        episode.advance()
    assert episode.phase is Phase.EMBED
    assert agent.bank.next_step("r") == 1 and not agent.bank.memory_ids()
    monkeypatch.undo()
    episode.advance()
    assert episode.phase is Phase.RECALL


def test_a_failed_model_call_can_be_tried_again_from_there(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", Breaks())
    episode = agent.begin(sample_tasks("household-train")[0])
    with pytest.raises(ModelInterrupted, match="lost"):
        episode.finish()
    assert episode.phase is Phase.GENERATE
    assert episode.interrupted == "take the"
    assert len(episode.trace.generate.turns) == 1
    assert agent.bank.view("r").size == 0
    assert episode.finish().write is not None


@pytest.mark.parametrize("error", [OllamaDown("nobody is there"), ModelInterrupted("it went away")])
def test_what_had_arrived_is_still_there_when_trying_again_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ModelError
) -> None:
    agent = an_agent(tmp_path / "bank", Breaks())
    episode = agent.begin(sample_tasks("household-train")[0])
    with pytest.raises(ModelInterrupted):
        episode.finish()

    def fail(*_: Any) -> Reply:
        raise error

    monkeypatch.setattr(agent.model, "chat", fail)
    with pytest.raises(type(error)):
        episode.advance()
    assert episode.keep_partial().turns[-1].reply.text == "take the"


def test_going_on_with_a_broken_answer_earns_no_reward(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", Breaks())
    episode = agent.begin(sample_tasks("household-train")[0])
    with pytest.raises(ModelInterrupted):
        episode.finish()
    episode.keep_partial()
    trace = episode.finish()
    assert trace.generate.turns[-1].reply == Reply("take the", stopped=True)
    assert (trace.reward.reward, trace.reward.outcome) == (None, "unrated")


def test_a_persons_reward_takes_the_place_of_the_environments(tmp_path: Path) -> None:
    agent = an_agent_after(tmp_path / "bank", 4)
    episode = agent.begin(sample_tasks("household-train")[0])
    with pytest.raises(StepError):
        episode.rate(1.0, "ann")
    while episode.phase is not Phase.REWARD:
        episode.advance()
    wrong = episode.rate(-1.0, "ann")
    agent.bank.write.ratings.revoke(wrong.id, "ann")
    episode.rate(0.5, "ann", "nearly")
    trace = episode.finish()
    assert (trace.reward.reward, trace.reward.source, trace.reward.rater) == (0.5, "person", "ann")
    after = agent.bank.utilities("r")
    for change in trace.update.changes:
        assert after[change.memory_id].q == change.after


@pytest.mark.parametrize("rule", ["override", "both", "mean"])
def test_the_preview_is_what_the_update_then_does(tmp_path: Path, rule: str) -> None:
    agent = an_agent_after(tmp_path / "bank", 4, human_rewards=rule)
    episode = agent.begin(sample_tasks("household-train")[0])
    assert episode.preview() == ()
    while episode.phase is not Phase.REWARD:
        episode.advance()
    untouched = episode.preview()
    episode.rate(0.5, "ann")
    supposed = episode.preview()
    assert untouched and supposed != untouched
    episode.advance()
    assert episode.preview() == supposed
    assert episode.finish().update == UpdateRecord(supposed)


def test_a_conversation_waits_for_a_person(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", environment="conversation")
    traces = list(agent.run(sample_tasks("conversation")[:2]))
    assert [trace.reward.outcome for trace in traces if trace.reward] == ["unrated", "unrated"]
    episode = agent.begin(sample_tasks("conversation")[2])
    while episode.phase is not Phase.REWARD:
        episode.advance()
    assert episode.environment_reward is None
    episode.rate(1.0, "bo")
    trace = episode.finish()
    assert trace.reward.outcome == "success"
    assert agent.bank.memory(trace.write.operations[0].memory_id).outcome == "success"


@pytest.mark.parametrize("good", [True, False])
def test_a_step_that_a_person_judges_otherwise_is_laid_out_so_from_then_on(tmp_path: Path, good: bool) -> None:
    agent = an_agent(tmp_path / "bank", k2=1, weight=0.0)
    headings = {"success": (FOLLOW, STEPS_THAT_WORKED), "failure": (CAUTION, WHAT_WENT_WRONG)}
    judged, other = ("failure", "success") if good else ("success", "failure")
    rated = next(trace for trace in agent.run(sample_tasks("household-train")) if trace.reward.outcome == judged)
    memory = rated.write.operations[0].memory_id

    def shown() -> str:
        episode = agent.begin(rated.task)
        for _ in range(3):
            episode.advance()
        assert episode.trace.decision.selected == (memory,)
        text = episode.prompt().messages[1].content
        return next(name for name, words in headings.items() if all(word in text for word in words))

    assert shown() == judged
    event = agent.bank.write.ratings.rate(Rating("r", rated.step, 1.0 if good else -1.0, "ann"))
    assert shown() == other
    assert agent.bank.memory(memory).outcome == judged, "what was written stays"
    agent.bank.write.ratings.revoke(event.id, "ann")
    assert shown() == judged


@pytest.mark.parametrize(("duplicates", "written"), [("keep", 4), ("skip", 2), ("group", 4)])
def test_near_duplicates_are_handled_as_set(tmp_path: Path, duplicates: str, written: int) -> None:
    agent = an_agent(tmp_path / "bank", environment="conversation", duplicates=duplicates, k2=0)
    list(agent.run(sample_tasks("conversation")[:2], epochs=2))
    memories = agent.bank.memories("r")
    assert len(memories) == written
    if duplicates == "group":
        assert len({memory.intent_key for memory in memories}) == 2


def test_no_twin_is_stored_when_doubles_are_skipped(tmp_path: Path) -> None:
    """One intent comes to hold memories of several texts: a new one is held against each of them, not the nearest."""
    agent = an_agent(tmp_path / "bank", duplicates="skip")
    wrote = [trace.write for trace in agent.run(sample_tasks("household-train")[:5], epochs=8)]
    memories = agent.bank.memories("r")
    texts = {(m.intent, m.outcome, tuple(m.experience.split())) for m in memories}
    assert len(texts) == len(memories) and len({m.intent for m in memories}) < len(memories)
    by_id = {m.id: m for m in memories}
    for noop in (one for write in wrote if write for one in write.operations if one.op == "NOOP"):
        same = by_id[noop.duplicate_of or ""]
        assert (same.intent, same.outcome, same.experience.split()) == (
            noop.intent, noop.outcome, noop.experience.split(),
        )  # fmt: skip


def test_cancelling_keeps_what_is_done_and_drops_the_rest(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    done: list[StepTrace] = []
    for trace in agent.run(sample_tasks("household-train")[:9], cancelled=lambda: len(done) >= 3):
        done.append(trace)
    assert len(done) == len(agent.bank.steps.rows("r")) == 3


def test_a_mini_batch_recalls_from_one_memory_and_counts_after_it(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", batch_size=2, delta=-1.0, k2=2)
    bank, tasks = agent.bank, sample_tasks("household-train")[:3]
    traces = list(agent.run(tasks, 2))
    # Steps 1 and 2, 3 alone at the end of its epoch, 4 and 5, 6.
    assert [trace.recall.memories for trace in traces if trace.recall] == [0, 0, 2, 3, 3, 5]
    q: dict[str, float] = {}
    until = {1: 0, 2: 0, 3: 2, 4: 3, 5: 3, 6: 5}
    known: dict[int, dict[str, float]] = {0: {}}
    for trace in traces:
        assert trace.update and trace.reward.reward is not None
        seen = known[until[trace.step]]
        assert {c.memory_id for c in trace.decision.candidates} <= seen.keys()
        assert all(c.q == pytest.approx(seen[c.memory_id]) for c in trace.decision.candidates)
        for memory_id in trace.decision.selected:
            q[memory_id] += 0.3 * (trace.reward.reward - q[memory_id])
        q |= {op.memory_id: 0.0 for op in trace.write.operations if op.op != "NOOP"}
        known[trace.step] = dict(q)
    assert {i: u.q for i, u in bank.utilities("r").items()} == pytest.approx(q)
    assert {s: view.size for s, view in bank.walk("r")} == {s: len(known[at]) for s, at in until.items()}
    for supposed in counterfactual(bank, "r", {}):
        assert supposed.selected == supposed.recorded
    for trace in traces:
        assert trace.decision and view_before(bank, trace).size == len(known[until[trace.step]])


class Recorded(Environment):
    """Its tasks end as they are said to, epoch by epoch."""

    name = "recorded"
    spec = EnvironmentSpec("Recorded", "", "", "")
    instructions = ""
    max_turns = 1
    reward_source: RewardSource = "environment"

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        self.won = task.data["won"][(at_step - 1) // task.data["of"]]
        return "Go on."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(self.won), True, False, {"verdict": "", "success": self.won}


def test_mini_batches_choose_and_learn_as_the_official_code_did(tmp_path: Path) -> None:
    official = json.loads((Path(__file__).parents[1] / "oracles" / "official_batches.json").read_text())
    vectors, steps = np.array(official["vectors"], np.float32), official["steps"]
    count, alike = len(vectors), {"k1_counts": "intent", "normaliser": "fixed", "ties": "older", "duplicates": "group"}
    tasks = [
        Task(f"t{n}", f"task {n}", "recorded", "", {"won": [step["won"] for step in steps[n::count]], "of": count})
        for n in range(count)
    ]
    embedder = SimpleNamespace(name="recorded", dimension=vectors.shape[1], digest="", version="")
    embedder.embed = lambda texts: vectors[[int(text.split()[-1]) for text in texts]]
    bank = MemoryBank.create(str(tmp_path / "bank"), embedder.name, embedder.dimension)
    bank.write.start_run(replace(a_run("r", **alike, **official["settings"]), embedder=embedder.name))
    agent = Agent(bank, "r", SimulatedModel(), cast(Any, embedder), Recorded())
    traces = list(agent.run(tasks, epochs=official["epochs"]))
    for trace, step in zip(traces, steps, strict=True):
        assert [int(i.rpartition("-")[2]) for i in trace.decision.selected] == step["selected"]
        ranked = sorted((c for c in trace.decision.candidates if c.score is not None), key=lambda c: -(c.score or 0))
        found = [(int(c.memory_id.rpartition("-")[2]), c.similarity, c.q, c.score) for c in ranked]
        assert np.array(found) == pytest.approx(np.array(step["candidates"]), abs=2e-6)
    known = [utility for _, utility in sorted(bank.utilities("r").items())]
    assert [utility.visits for utility in known] == [visits for _, visits in official["final"]]
    assert [utility.q for utility in known] == pytest.approx([q for q, _ in official["final"]])


def test_a_run_that_goes_on_in_another_process_keeps_its_mini_batches(tmp_path: Path) -> None:
    tasks = sample_tasks("household-train")[:6]
    whole = decisions(list(an_agent(tmp_path / "whole", batch_size=4).run(tasks)))
    first = an_agent(tmp_path / "bank", batch_size=4)
    begun = [next(steps) for steps in [first.run(tasks)] for _ in range(2)]
    again = Agent(first.bank, "r", SimulatedModel(), first.embedder, make_environment("household"))
    assert decisions([*begun, *again.run(tasks, after=2)]) == whole


class InCircles(SimulatedModel):
    """A model that looks into the drawer and takes and puts the same thing for ever."""

    name, simulated, binds = "in-circles", False, True

    def __init__(self) -> None:
        self.sent: list[Sequence[Message]] = []

    def chat(self, messages: Sequence[Message], *args: Any, **kwargs: Any) -> Reply:
        self.sent.append(messages)
        choices = offered(messages[-1].content) or args[-1]["enum"]
        return Reply(next(one for one in choices if one.startswith(("take", "put"))))


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_who_goes_round_in_circles_is_shown_what_was_tried_and_ended_in_time(tmp_path: Path, repeats: int) -> None:
    model = InCircles()
    agent = an_agent(tmp_path / "bank", model)
    agent.environment = make_environment("household", repeats=repeats, own_words=False)
    (trace,) = agent.run(sample_tasks("household-train")[:1])
    turns, states = trace.turns, [without_tried(turn.observation) for turn in trace.turns]
    done = list(zip(["", *states], (turn.reply.text for turn in turns), strict=False))
    marked = [TRIED in turn.observation for turn in turns]
    assert trace.reward is not None and trace.reward.outcome == "failure"
    if not repeats:
        assert not any(marked) and len(turns) == agent.environment.max_turns
        return
    assert done.count(done[-1]) == repeats + 1 and turns[-1].truncated
    assert f"repeated {'once' if repeats == 1 else '3 times'} in the same state" in trace.reward.verdict
    for number, turn in enumerate(turns[:-1]):
        tried = {action for state, action in done[1 : number + 1] if state == states[number]}
        assert all(action in turn.observation.partition(TRIED)[2] for action in tried)
        assert marked[number] is bool(tried)
    assert any(TRIED in message.content for sent in model.sent for message in sent)
    assert trace.write is not None
    written = trace.write.operations[0].experience
    assert TRIED not in written and f"{WHAT_WENT_WRONG}The same action was repeated" in written


def test_only_language_models_begin_with_an_end_of_circles(tmp_path: Path) -> None:
    assert "repeats" not in begins_with("household", SIMULATED)
    assert begins_with("household", "any-model")["repeats"] == REPEATED
    assert "repeats" not in begins_with("helpdesk", "any-model")
    with pytest.raises(InputError, match="repeats"):
        make_environment("helpdesk", repeats=3)
