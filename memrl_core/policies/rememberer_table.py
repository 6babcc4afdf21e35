"""The experience table of Rememberer: states, what was done in them, and what it was worth (arXiv 2306.07929).

Learning follows the paper's n-step target, and the released `history.py` for step sizes and the limit of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memrl_core.records import ValueChange

Key = tuple[str, str]
"""A state: the task's intent and the observation."""
LONGEST_SUM = 6


@dataclass(slots=True)
class Action:
    """What was done in a state: its text as first written, q, how often it was done, and its own immediate reward."""

    text: str
    q: float = 0.0
    visits: int = 0
    reward: float = 0.0


@dataclass(slots=True)
class State:
    """One record of the table; `memory_id` is empty before it has a memory, `place` counts those of one memory."""

    task: str
    observation: str
    memory_id: str = ""
    place: int = 0
    actions: dict[str, Action] = field(default_factory=dict)

    @property
    def visits(self) -> int:
        """How many actions were taken in it."""
        return sum(action.visits for action in self.actions.values())

    @property
    def best(self) -> float:
        """max q over its actions; 0 where none is known."""
        return max((action.q for action in self.actions.values()), default=0.0)

    def named(self, action: str) -> str:
        """The name of an action's value, unique within the memory."""
        return action if self.place == 0 else f"{action} (state {self.place + 1})"


@dataclass(slots=True)
class Table:
    """All states, and the states that stand under each memory."""

    states: dict[Key, State] = field(default_factory=dict)
    under: dict[str, list[State]] = field(default_factory=dict)

    def link(self, state: State, memory_id: str) -> None:
        """Let a state stand under a memory."""
        self._unlink(state)
        siblings = self.under.setdefault(memory_id, [])
        state.memory_id, state.place = memory_id, 1 + max((sibling.place for sibling in siblings), default=-1)
        siblings.append(state)

    def move(self, memory_ids: Iterable[str], to: str) -> None:
        """Let the states of some memories stand under another."""
        for memory_id in memory_ids:
            for state in list(self.under.get(memory_id, ())):
                self.link(state, to)

    def drop(self, memory_ids: Iterable[str]) -> None:
        """Forget the states of these memories."""
        for memory_id in memory_ids:
            for state in self.under.pop(memory_id, ()):
                del self.states[state.task, state.observation]

    def drop_unlinked(self) -> None:
        """Forget the states that have no memory."""
        for key in [key for key, state in self.states.items() if not state.memory_id]:
            del self.states[key]

    def known(self, memory_id: str) -> list[State]:
        """The states of a memory in which something was done."""
        return [state for state in self.under.get(memory_id, ()) if state.actions]

    def values(self) -> Iterator[tuple[str, float]]:
        """The q of every action by its name."""
        for memory_id, states in self.under.items():
            for state in states:
                for name, action in state.actions.items():
                    yield f"{memory_id}:{state.named(name)}", action.q

    def _unlink(self, state: State) -> None:
        if not state.memory_id:
            return
        siblings = self.under[state.memory_id]
        siblings.remove(state)
        if not siblings:
            del self.under[state.memory_id]


# --- learning ---------------------------------------------------------------------------------------------------------


def normalised(action: str) -> str:
    """An action by which it is told from others: lower case, single spaces."""
    return " ".join(action.lower().split())


@dataclass(frozen=True, slots=True)
class Rule:
    """How values move: `n` rewards before the next state's value (None: all), discount, step size (None: 1/N)."""

    n: int | None
    gamma: float
    alpha: float | None
    most_actions: int


@dataclass(frozen=True, slots=True)
class Done:
    """One exchange as it is learned from: the state, the action as it was said, and the reward that came at once."""

    key: Key
    action: str
    reward: float


def learn(table: Table, episode: Sequence[Done], rule: Rule, nearest: Callable[[Key], State]) -> list[ValueChange]:
    """Learn from an episode, first exchange first; `nearest` is the record that stands in for a state never met."""
    changes = []
    born: dict[Key, int] = {}
    for turn, done in enumerate(episode):
        if done.key not in table.states:
            table.states[done.key] = State(*done.key)
            born[done.key] = turn + 1
        state = table.states[done.key]
        name = normalised(done.action)
        action = state.actions.setdefault(name, Action(" ".join(done.action.split())))
        target, breakdown = _target(table, episode, turn, rule, nearest)
        before = action.q
        action.visits += 1
        alpha = 1 / action.visits if rule.alpha is None else rule.alpha
        action.q = before + alpha * (target - before)
        action.reward += alpha * (done.reward - action.reward)
        step = f"/ {action.visits}" if rule.alpha is None else f"× {alpha:g}"
        formula = f"{breakdown}; {before:.4g} + ({target:.4g} − {before:.4g}) {step} = {action.q:.4g}"
        known = state.named(name) if state.memory_id else f"{name} (new state, turn {born.get(done.key, turn + 1)})"
        moved = ValueChange(
            state.memory_id,
            before,
            action.q,
            action.visits,
            target,
            alpha,
            target="action",
            name=known,
            formula=formula,
        )
        changes.append(moved)
        if len(state.actions) > rule.most_actions:
            changes.append(_worst_dropped(state))
    return changes


def _target(
    table: Table, episode: Sequence[Done], turn: int, rule: Rule, nearest: Callable[[Key], State]
) -> tuple[float, str]:
    """Σ γ^i r + γ^n max Q(s', a'), and the same as words; without the last part where the episode ends before s'."""
    end = len(episode) if rule.n is None else min(turn + rule.n, len(episode))
    rewards = [done.reward for done in episode[turn:end]]
    target = sum(rule.gamma**i * reward for i, reward in enumerate(rewards))
    parts = [f"{reward:g}" if rule.gamma == 1 else f"{rule.gamma:g}^{i}·{reward:g}" for i, reward in enumerate(rewards)]
    if len(parts) > LONGEST_SUM:
        parts = [*parts[:2], "…", *parts[-2:]]
    if rule.n is not None and end < len(episode):
        key = episode[end].key
        following = table.states.get(key)
        met = following is not None
        following = following or nearest(key)
        target += rule.gamma**rule.n * following.best
        discount = "" if rule.gamma == 1 else f"{rule.gamma:g}^{rule.n}·"
        where = f"turn {end + 1}" if met else f"turn {end + 1}, never met: of the nearest state"
        parts.append(f"{discount}{following.best:.4g} [max Q of {where}]")
    return target, f"target {' + '.join(parts)} = {target:.4g}"


def _worst_dropped(state: State) -> ValueChange:
    name = min(state.actions, key=lambda one: state.actions[one].reward)
    worst = state.actions.pop(name)
    why = f"dropped: of {len(state.actions) + 1} actions it has the lowest immediate reward, {worst.reward:.4g}"
    named = state.named(name)
    return ValueChange(
        state.memory_id, worst.q, 0.0, worst.visits, worst.reward, 0.0, target="action", name=named, formula=why
    )
