"""What a policy has learned beyond q: the fold of a run's finished steps under the policy's own rules.

Like q it is never stored as a fact. Each step is a lesson with the reward that stands for it; a reward that comes late,
or is taken back, makes the fold anew. The newest state of a run is kept and grows with its steps.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from memrl_core.bank import MemoryBank
from memrl_core.learning import effective_reward
from memrl_core.policies import policy_class, settings_that_fit
from memrl_core.policies.base import Lesson, Policy, outcome_now
from memrl_core.records import StepTrace, ValueChange

KEPT_EVERY = 25
"""Steps between two states that are kept for looking back."""


@dataclass(slots=True)
class _Growing:
    """A state after the steps up to `step`; `begun` is the attempt that it has learned from before its end.

    `rewarding` counts the changes of rewards and settings that others than the steps themselves made when it was made.
    """

    rewarding: int
    step: int
    state: Any
    begun: str = ""
    kept: dict[int, Any] = field(default_factory=dict)


_states: WeakKeyDictionary[MemoryBank, dict[tuple[str, str], _Growing]] = WeakKeyDictionary()
_lock = threading.RLock()


def learns(policy: Policy[Any]) -> bool:
    """Whether a policy keeps a state beyond q."""
    return policy.start(()) is not None


def learned_now(bank: MemoryBank, run: str) -> Any:
    """The run's state after its newest step, to read; None where its policy keeps none."""
    info = bank.run(run)
    if not learns(_policy_of(info.policy, bank.settings(run))):
        return None
    with _lock:
        return _grown(bank, run, info.policy).state


def learned_before(bank: MemoryBank, run: str, step: int, policy: str = "") -> Any:
    """A copy of the state with which `step` began, to keep; None where the policy keeps none.

    With another `policy` than the run's own: what that one would have learned by watching the run. A reward that came
    when the step had begun was not known to it, and does not count. Raises `SettingsError`.
    """
    name = policy or bank.run(run).policy
    if not learns(_policy_at(bank, run, name, step)):
        return None
    with _lock:
        known = next((late - 1 for late in bank.steps.late_changes(run) if late >= step), None)
        growing = _grown(bank, run, name, known)
        if growing.step < step:
            return copy.deepcopy(growing.state)
        at = max((kept for kept in growing.kept if kept < step), default=None)
        state = _begin(bank, run, name) if at is None else copy.deepcopy(growing.kept[at])
        first = bank.run(run).first_step - 1 if at is None else at
        for trace in bank.each_trace(run, (first + 1, step - 1)):
            _take(bank, run, name, state, trace, known)
        return state


def learned_steps(bank: MemoryBank, run: str) -> Iterator[tuple[StepTrace, Any]]:
    """Every finished step with the state with which it began, which changes in place from one to the next."""
    info, late = bank.run(run), bank.steps.late_changes(run)
    state = _begin(bank, run, info.policy)
    for trace in bank.each_trace(run):
        if state is not None and trace.step - 1 in late:
            state = learned_before(bank, run, trace.step)
        yield trace, state
        if state is not None:
            _take(bank, run, info.policy, state, trace, trace.step)


def learn_at(bank: MemoryBank, trace: StepTrace, reward: float | None, outcome: Any) -> tuple[ValueChange, ...]:
    """What the step under way in UPDATE teaches the policy of its run; nothing where it keeps no state."""
    policy = _policy_of(trace.policy, trace.settings)
    if not learns(policy):
        return ()
    with _lock:
        growing = _grown(bank, trace.run, trace.policy)
        # Before it learns: a policy that fails half-way leaves a state that must be made anew.
        growing.begun = trace.id
        return policy.learn(growing.state, Lesson(trace, reward, outcome, bank.embedding, bank.memory))


def _grown(bank: MemoryBank, run: str, name: str, known: int | None = None) -> _Growing:
    """The state after the newest step, or after step `known` by what was known then; kept, and grown with new steps."""
    states = _states.setdefault(bank, {})
    key = run, name if known is None else f"{name} as known at {known}"
    growing = states.get(key)
    rewarding = bank.steps.outside_changes(run)
    if growing is None or growing.rewarding != rewarding or _was_abandoned(bank, run, growing):
        growing = states[key] = _Growing(rewarding, bank.run(run).first_step - 1, _begin(bank, run, name))
    newest = bank.next_step(run) - 1
    try:
        for trace in bank.each_trace(run, (growing.step + 1, newest if known is None else min(known, newest))):
            if growing.begun == trace.id:
                _remember(_policy_at(bank, run, name, trace.step), growing.state, lesson_of(bank, trace))
            else:
                _take(bank, run, name, growing.state, trace, known)
            growing.begun, growing.step = "", trace.step
            if trace.step % KEPT_EVERY == 0:
                growing.kept[trace.step] = copy.deepcopy(growing.state)
    except BaseException:
        # It may have learned half a step.
        del states[key]
        raise
    return growing


def _was_abandoned(bank: MemoryBank, run: str, growing: _Growing) -> bool:
    """Whether the state has learned from an attempt that never ended."""
    if not growing.begun:
        return False
    following = growing.step + 1
    return not bank.steps.has(run, following) or bank.trace(run, following).id != growing.begun


def _begin(bank: MemoryBank, run: str, name: str) -> Any:
    info = bank.run(run)
    policy = _policy_at(bank, run, name, info.first_step)
    if info.base is None:
        return policy.start(())
    if bank.run(info.base).policy == name or name != info.policy:
        return learned_before(bank, info.base, info.base_step + 1, name)
    seen = bank.view(info.base, info.base_step)
    return policy.start([seen.memories[seen.ids[position]] for position in seen.positions().tolist()])


def _take(bank: MemoryBank, run: str, name: str, state: Any, trace: StepTrace, known: int | None = None) -> None:
    policy, lesson = _policy_at(bank, run, name, trace.step), lesson_of(bank, trace, known)
    if trace.decision is None or trace.generate is None or trace.reward is None:
        return  # Another agent did not report what there is to learn from.
    policy.learn(state, lesson)
    _remember(policy, state, lesson)


def _remember(policy: Policy[Any], state: Any, lesson: Lesson) -> None:
    if lesson.trace.write is not None:
        policy.remember(state, lesson)


def lesson_of(bank: MemoryBank, trace: StepTrace, known: int | None = None) -> Lesson:
    """A finished step as any method learns from it: its reward as it stands, or stood when step `known` had ended."""
    rewards = bank.ratings.active(trace.run, trace.step, trace.id, known)
    reward = effective_reward(rewards, trace.settings)
    policy = _policy_of(trace.policy, trace.settings)
    return Lesson(trace, reward, outcome_now(policy, trace, reward), bank.embedding, bank.memory)


def _policy_at(bank: MemoryBank, run: str, name: str, step: int) -> Policy[Any]:
    return _policy_of(name, bank.settings(run, step))


def _policy_of(name: str, settings: Mapping[str, Any]) -> Policy[Any]:
    """The policy under those of `settings` that it knows."""
    return policy_class(name)(settings_that_fit(name, settings))
