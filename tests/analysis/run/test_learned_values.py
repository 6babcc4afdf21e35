"""What each method has learned of a run, against plain Python on the run's ledger and traces."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memrl_core.analysis.decision.whatif import on_this_pool
from memrl_core.analysis.run.learned.deciding import (
    CITED,
    GIVEN,
    NOTHING,
    PRUNED,
    SILENT,
    citations,
    novelty,
    ranks,
    recollections,
    what_became,
)
from memrl_core.analysis.run.learned.notes import cases_learned, edits, losses, notes_and_links, reflections, workflows
from memrl_core.analysis.run.learned.values import (
    OPERATIONS,
    known_states,
    operations_by_epoch,
    solved_within,
    targets,
    values_moved,
    values_over_uses,
)
from memrl_core.bank import MemoryBank
from memrl_core.policies.methods.awm import kind_of, steps_of
from memrl_core.policies.texts import exchanges
from memrl_core.records import StepTrace
from tests.analysis.many_methods import STEPS, a_bank_of, watched
from tests.models.forms import FillsForms
from tests.small_banks import give_reward

RUNS = {
    "memrl": {}, "memp.code": {"variant": "code", "update": "vanilla", "k1": 3, "k2": 2}, "rag": {"k2": 2},
    "memento.kernel": {"read": "kernel"}, "memento.network": {"read": "network", "cold_rows": 6}, "rememberer": {},
    "empo2_memory": {}, "rmm_reranker": {}, "a_mem": {}, "self_rag": {}, "webcoach": {"every": 2}, "awm": {},
    "memory_r1_ops": {}, "pass_at_k": {}, "reflexion": {"last": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBank]:
    with a_bank_of(tmp_path_factory.mktemp("learned") / "bank", RUNS) as made:
        yield made


def rewarded(bank: MemoryBank, run: str) -> list[tuple[StepTrace, float]]:
    """Each step with its reward."""
    return [
        (trace, trace.reward.reward) for trace in bank.traces(run) if trace.reward and trace.reward.reward is not None
    ]


# --- values of memories -----------------------------------------------------------------------------------------------


def test_q_over_uses_is_the_equation_applied_reward_by_reward(bank: MemoryBank) -> None:
    q: dict[str, list[float]] = defaultdict(lambda: [0.0])
    for trace, reward in rewarded(bank, "memrl"):
        for memory_id in trace.decision.selected:
            q[memory_id].append(q[memory_id][-1] + 0.3 * (reward - q[memory_id][-1]))
    found = values_over_uses(watched(bank, "memrl"))
    for memory_id, rows in found.groupby("memory"):
        assert list(rows["q"]) == pytest.approx(q[memory_id])
        assert list(rows["use"]) == list(range(len(rows)))
    assert found["reward"].notna().any()


def test_memrl_as_if_it_had_watched_credits_every_memory_of_a_prompt_that_another_method_made(bank: MemoryBank) -> None:
    q: dict[str, float] = defaultdict(float)
    for trace, reward in rewarded(bank, "rag"):
        for memory_id in trace.decision.selected:
            q[memory_id] += 0.3 * (reward - q[memory_id])
    found = values_over_uses(watched(bank, "rag", "memrl")).groupby("memory")["q"].last()
    assert dict(found) == pytest.approx({memory_id: q[memory_id] for memory_id in found.index})
    assert set(q) <= set(found.index) and any(q.values())


def test_a_success_rate_counts_the_first_memory_of_a_prompt_alone(bank: MemoryBank) -> None:
    won: dict[str, list[int]] = defaultdict(list)
    for trace, reward in rewarded(bank, "memrl"):
        for memory_id in trace.decision.selected[:1]:
            won[memory_id].append(int(reward > 0))
    found = values_over_uses(watched(bank, "memrl", "memp"))
    last = found[found["use"] > 0].groupby("memory")[["use", "q"]].last()
    assert dict(last["use"]) == {memory_id: len(hits) for memory_id, hits in won.items()}
    assert dict(last["q"]) == pytest.approx({memory_id: sum(hits) / len(hits) for memory_id, hits in won.items()})


def test_an_earlier_step_knows_nothing_of_later_rewards(bank: MemoryBank) -> None:
    early = values_over_uses(watched(bank, "memrl", step=5))
    assert early["step"].max() == 5
    whole = values_over_uses(watched(bank, "memrl"))
    assert early.equals(whole[whole["step"] <= 5].reset_index(drop=True))


def test_a_late_reward_counts_in_what_another_method_would_have_learned(tmp_path: Path) -> None:
    with a_bank_of(tmp_path / "bank", {"rag": {}}) as bank:
        before = values_over_uses(watched(bank, "rag", "memrl"))
        step = next(trace for trace in bank.traces("rag") if trace.decision.selected)
        give_reward(bank, "rag", step.step, step.id, (), 0.9, "ann")
        after = values_over_uses(watched(bank, "rag", "memrl"))
        moved = after[(after["step"] == step.step) & after["reward"].notna()]
        assert set(moved["memory"]) == set(step.decision.selected) and set(moved["reward"]) == {0.9}
        assert not before.equals(after)


def test_named_values_stand_before_and_after_the_step(bank: MemoryBank) -> None:
    found = values_moved(watched(bank, "pass_at_k", step=1)).set_index("value")
    task = bank.trace("pass_at_k", 1).task.id
    assert found.loc[f"tries of {task}", "before"] is None
    assert found.loc[f"tries of {task}", "after"] == 1


# --- Memento ----------------------------------------------------------------------------------------------------------


def test_the_network_watched_is_the_one_that_the_run_has_learned(bank: MemoryBank) -> None:
    watching = watched(bank, "memento.network")
    cases, learned = cases_learned(watching, "network"), watching.after()
    assert [tuple(row) for row in losses(cases).to_numpy()] == [
        (one.step, one.rows, one.before, one.after) for one in learned.losses
    ]
    assert np.array_equal(cases.network.theta, learned.network.theta)
    assert len(watching.before().uses) < len(cases.uses)


def test_another_read_can_be_tried_out_on_a_run(bank: MemoryBank) -> None:
    cases = cases_learned(watched(bank, "memrl", "memento"), "network")
    judged = [trace for trace in bank.traces("memrl") if trace.decision.selected]
    assert len(losses(cases)) == len(judged)
    assert len(cases.uses) == sum(len(trace.decision.selected) for trace in judged)
    assert cases_learned(watched(bank, "memrl", "memento"), "kernel", cancelled=lambda: True) is None


# --- Rememberer -------------------------------------------------------------------------------------------------------


def test_an_actions_value_is_the_mean_of_what_followed_it(bank: MemoryBank) -> None:
    returns: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for trace, reward in rewarded(bank, "rememberer"):
        met = exchanges(trace)
        verdict = (reward + 1) / 2
        rewards = [exchange.turn.reward for exchange in met[:-1]] + [verdict]
        for turn, exchange in enumerate(met):
            action = " ".join(exchange.turn.reply.text.lower().split())
            returns[trace.task.intent, exchange.observation, action].append(sum(rewards[turn:]))
    found = {
        (state.task, state.observation, action.text.lower()): (action.q, action.tries)
        for state in known_states(watched(bank, "rememberer"))
        for action in state.actions
        if not action.invented
    }
    assert found.keys() == returns.keys()
    for key, (q, tries) in found.items():
        assert (q, tries) == (pytest.approx(sum(returns[key]) / len(returns[key])), len(returns[key]))


def test_the_states_of_the_step_come_first_and_advice_says_what_it_is(bank: MemoryBank) -> None:
    states = known_states(watched(bank, "rememberer"))
    turns = [state.turn for state in states]
    assert turns[0] == 1
    assert turns == sorted(turns, key=lambda turn: turn if turn is not None else 1_000)
    for state in states:
        best = max(action.q for action in state.actions if not action.invented)
        for action in state.actions:
            if action.advice == "encouraged" and not action.invented:
                assert action.q == best > 0
            if action.invented:
                assert action.tries == 0 and f"- {action.text}" in state.observation


def test_the_targets_of_a_step_are_those_that_it_has_recorded(bank: MemoryBank) -> None:
    watching = watched(bank, "rememberer", step=7)
    assert targets(watching) == watching.trace.update.changes != ()


# --- RMM --------------------------------------------------------------------------------------------------------------


def test_ranks_are_those_of_recall_of_the_adapters_and_with_the_noise(bank: MemoryBank) -> None:
    decision = bank.trace("rmm_reranker", STEPS).decision
    pool = [candidate for candidate in decision.candidates if candidate.rank_select is not None]
    by_adapters = sorted(pool, key=lambda o: (-round(o.terms[0].contribution, 9), -o.similarity, o.rank_recall))
    found = ranks(decision)
    assert [(one.memory_id, one.recalled, one.drawn) for one in found] == [
        (one.memory_id, one.rank_recall, one.rank_select) for one in pool
    ]
    assert [one.memory_id for one in sorted(found, key=lambda one: one.adapted)] == [o.memory_id for o in by_adapters]


def test_citations_are_those_that_were_recorded(bank: MemoryBank) -> None:
    found = citations(watched(bank, "rmm_reranker")).set_index("epoch")
    cited = Counter(
        (trace.epoch, CITED[memory_id in one.filled["cited"]])
        for trace in bank.traces("rmm_reranker")
        for one in trace.consulted
        for memory_id in trace.decision.selected
    )
    assert {(epoch, what): n for (epoch, what), n in found.stack().items() if n} == cited
    assert {what for _, what in cited} == {CITED[True], CITED[False]}


def test_a_reply_that_does_not_parse_is_neither_cited_nor_not(tmp_path: Path) -> None:
    with a_bank_of(tmp_path / "bank", {"rmm_reranker": {}}, FillsForms(lambda reported: "I used the first.")) as bank:
        found = citations(watched(bank, "rmm_reranker"))
        assert found[CITED[None]].sum() > 0 == found[[CITED[True], CITED[False]]].to_numpy().sum()


# --- when memory is given ---------------------------------------------------------------------------------------------


def test_what_became_of_each_pool_is_reported_with_its_reason(bank: MemoryBank) -> None:
    found = what_became(watched(bank, "self_rag"))
    by_step = found.set_index("step")
    for trace in bank.traces("self_rag"):
        what, decision = by_step.loc[trace.step, "what"], trace.decision
        assert (what == NOTHING) == (not trace.recall.pool)
        assert (what == SILENT) == (decision.mode == "silent")
        assert (what in (GIVEN, PRUNED)) == bool(decision.selected)
        assert tuple(by_step.loc[trace.step, ["epoch", "why"]]) == (trace.epoch, decision.note)
    assert {GIVEN, PRUNED} & set(found["what"]) and NOTHING in set(found["what"])


def test_turns_within_an_episode_are_reported_too(bank: MemoryBank) -> None:
    found = what_became(watched(bank, "webcoach"))
    turns = Counter(
        (trace.step, turn)
        for trace in bank.traces("webcoach")
        for turn, one in enumerate(trace.generate.turns)
        if turn == 0 or one.recalled is not None
    )
    assert Counter(zip(found["step"], found["turn"], strict=True)) == turns
    assert found["turn"].max() > 0


def test_another_methods_decision_is_that_of_the_same_pool_page(bank: MemoryBank) -> None:
    trace = bank.trace("memrl", STEPS)
    (one,) = recollections(watched(bank, "memrl", "webcoach"), trace)
    (expected,) = on_this_pool(bank, trace, ["webcoach"], own_recall=True)
    assert (one.turn, one.decision) == (0, expected.decision)


def test_a_step_without_a_pool_is_left_out(bank: MemoryBank) -> None:
    trace = bank.trace("memrl", STEPS)
    watching = watched(bank, "memrl", "webcoach")
    assert recollections(watching, replace(trace, recall=None)) == ()
    assert recollections(watching, replace(trace, embed=None)) == ()


# --- EMPO² ------------------------------------------------------------------------------------------------------------


def test_novelty_falls_with_the_tips_that_are_found(bank: MemoryBank) -> None:
    found = novelty(watched(bank, "empo2_memory"))
    assert list(found["novelty"]) == pytest.approx([1 / (n + 1) for n in found["tips"]])
    reported = {}
    for trace in bank.traces("empo2_memory"):
        within = ((n, one.recalled.decision) for n, one in enumerate(trace.generate.turns) if one.recalled)
        for turn, decision in [(0, trace.decision), *within]:
            if decision.candidates and decision.candidates[0].terms:
                reported[trace.step, turn] = decision.candidates[0].terms[2].raw
    of = {(row["step"], row["turn"]): row["novelty"] for row in found.to_dict("records")}
    assert reported and {key: of[key] for key in reported} == pytest.approx(reported)


# --- texts ------------------------------------------------------------------------------------------------------------


def test_the_graph_has_the_notes_that_stand_and_each_link_once(bank: MemoryBank) -> None:
    watching = watched(bank, "a_mem")
    graph = notes_and_links(watching)
    ids = list(graph.notes)
    assert set(ids) == set(bank.utilities("a_mem"))
    assert graph.links and all(ids.index(newer) > ids.index(older) for newer, older in graph.links)
    assert len({frozenset(link) for link in graph.links}) == len(graph.links)
    assert graph.written | graph.edited == {op.memory_id for op in watching.trace.write.operations}


def test_an_edit_is_reported_as_what_came_and_what_went(bank: MemoryBank) -> None:
    step = next(trace.step for trace in bank.traces("a_mem") if any(op.op == "UPDATE" for op in trace.write.operations))
    watching = watched(bank, "a_mem", step=step)
    found = edits(watching)
    operations = {op.memory_id: op for op in watching.trace.write.operations if op.op == "UPDATE"}
    assert {(edit.new, edit.old) for edit in found} == {(i, op.replaces[0]) for i, op in operations.items()}
    notes = watching.before().notes
    for edit in found:
        assert edit.changes["tags"] == (tuple(notes[edit.old].tags), tuple(operations[edit.new].data["tags"]))


def test_another_methods_memories_are_notes_without_links(bank: MemoryBank) -> None:
    graph = notes_and_links(watched(bank, "memrl", "a_mem"))
    assert len(graph.notes) == STEPS and graph.links == ()
    assert edits(watched(bank, "memrl", "a_mem")) == []


def test_workflows_are_those_of_the_newest_success_of_each_kind(bank: MemoryBank) -> None:
    won = {
        kind_of(steps_of(trace.write.operations[0].experience)): trace
        for trace in bank.traces("awm")
        if trace.write and trace.reward and trace.reward.outcome == "success"
    }
    found = workflows(watched(bank, "awm"))
    assert {kind: induced.memory_id for kind, induced, _ in found} == {
        kind: trace.write.operations[0].memory_id for kind, trace in won.items()
    }
    kind, last = max(won.items(), key=lambda one: one[1].step)
    assert [one for one, _, new in workflows(watched(bank, "awm", step=last.step)) if new] == [kind]
    assert workflows(watched(bank, "memrl", "awm")) == []


def test_the_newest_reflections_on_the_task_are_read(bank: MemoryBank) -> None:
    failed = Counter(trace.task.id for trace, reward in rewarded(bank, "reflexion") if reward < 0)
    task, times = failed.most_common(1)[0]
    step = max(trace.step for trace in bank.traces("reflexion") if trace.task.id == task)
    found = reflections(watched(bank, "reflexion", step=step))
    assert len(found) == times > 1
    assert [read for _, read in found] == [True] + [False] * (times - 1)
    steps = [memory.step for memory, _ in found]
    assert steps == sorted(steps, reverse=True)


# --- counts -----------------------------------------------------------------------------------------------------------


def test_operations_are_counted_by_epoch(bank: MemoryBank) -> None:
    found = operations_by_epoch(watched(bank, "memory_r1_ops")).set_index("epoch")
    for epoch, row in found.iterrows():
        reported = Counter(
            op.op for trace in bank.traces("memory_r1_ops") if trace.epoch == epoch for op in trace.write.operations
        )
        assert {name: int(n) for name, n in row.items() if n} == reported
    assert len(found) == 3 and len([name for name in OPERATIONS if found[name].sum()]) > 1


def test_pass_at_k_counts_the_tasks_solved_within_k_tries(bank: MemoryBank) -> None:
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for trace, reward in rewarded(bank, "pass_at_k"):
        outcomes[trace.task.id].append(reward > 0)
    found = solved_within(watched(bank, "pass_at_k").after())
    assert list(found["share"]) == [sum(any(o[:k]) for o in outcomes.values()) / 4 for k in found["k"]]
    assert set(found["over"]) == {4}
    early = solved_within(watched(bank, "pass_at_k", step=6).after())
    assert list(early["tasks"] - early["over"])[-1] > 0
