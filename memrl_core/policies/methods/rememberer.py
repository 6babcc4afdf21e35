"""Rememberer: a table of states and actions with learned values, read before every turn as advice.

Source: arXiv 2306.07929 and its official code. The paper bootstraps after n steps; the released launch scripts leave n
unset, which is the whole return: the setting `variant` offers both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import Field

from memrl_core.policies.base import (
    Ask,
    Lesson,
    NewExperience,
    Policy,
    PolicySpec,
    UngatedSettings,
    Vector,
    When,
    Written,
    added,
    learned_in,
)
from memrl_core.policies.ranking import Chosen, Floats, TermColumn, similar, similarities
from memrl_core.policies.texts import exchanges, memories_in_prompts, verdict_of
from memrl_core.prompting import (
    ANSWER_MARK,
    CHOICES,
    DISCOURAGED,
    ENCOURAGED,
    TASK_LINE,
    first_messages,
    memory_blocks,
    offered,
)
from memrl_core.records import Decision, Memory, MemorySpan, Message, Reason, Recalled, RecallRecord, ValueChange
from memrl_core.retrieval import DIGITS
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import usual


class RemembererSettings(UngatedSettings):
    """How values are learned, which records are read, and how many are kept."""

    k1: int = usual("k1", 20, "How many of the best records phase A hands on.")
    k2: int = usual("k2", 2, "How many records give advice in a turn.", title="k2 · exemplars")
    variant: Literal["paper", "code"] = Field(
        "code",
        title="Variant",
        description="paper: n rewards, then the value of the state reached. code: all rewards to the end of the "
        "episode, as the released scripts run it.",
    )
    n: int = Field(
        1, ge=1, le=100, title="n · steps of the return", description="Rewards before the next value; `paper` only."
    )
    gamma: float = Field(1.0, ge=0, le=1, title="γ · discount", description="What a reward one step later counts.")
    task_weight: float = Field(
        0.5,
        ge=0,
        le=1,
        title="λ · weight of the task",
        description="1: the similarity of the tasks alone. 0: that of the observations alone.",
    )
    capacity: int = Field(500, ge=2, le=2000, title="States kept", description="Beyond this no new state is stored.")


SPEC = PolicySpec(
    name="rememberer",
    title="Rememberer",
    citation="arXiv 2306.07929",
    variant="adapted",
    deviations=(
        "The similarity of observations is the share of their different words that stand in both; the source has a "
        "measure of its own for each environment.",
        "The similarity of tasks is the embedding's cosine. Every record is scored; the k1 best are the pool that is "
        "kept in the trace.",
        "The table learns at the end of the step, from the first turn to the last, instead of n turns behind.",
        "Rewards are the environment's verdicts in [0, 1] turn by turn; the step's reward, or a person's, mapped back "
        "to [0, 1], takes the place of the last.",
        "An action's immediate reward is that of its own turn; the released code pairs it with the turn before.",
        "A full table takes no new state, as the released code runs; its rule for dropping one never applies there, "
        "because its matrix of similarities stays empty. Actions of a state are not limited.",
        "What is encouraged is not discouraged as well. The best exemplar stands first. There is no limit of tokens.",
        "Invented advice is drawn by the step, the turn and the record, among the choices that its observation offers.",
        "Two Q tables, the history of actions and the reasons beside actions are left out.",
    ),
    idea="Every state remembers what was done in it and what that was worth. Before each turn the most similar states "
    "say which action to take and which to leave.",
    record="One memory a state (task and observation); for each action taken in it a learned value Q, how often it was "
    "taken, and its immediate reward.",
    when="Before every turn.",
    recall="Every record is scored by task and observation; the k1 best are handed on.",
    select="The k2 best by λ · similarity of the tasks + (1 − λ) · similarity of the observations; ties go to the "
    "record with more tries.",
    update="For each action of the episode: Q ← Q + (G − Q) / N, where G is the return of n steps, "
    "Σ γ^i r + γ^n max Q(s′, a′), or all rewards to the end.",
    write="One memory for each state met for the first time; a state known already only moves its values.",
    cannot="It needs actions that repeat: where every answer is worded anew, each is tried once and nothing is learned "
    "about it. A state that looks different is another state.",
    carries_over="Nothing of the memories that a run begins with: they hold no actions with values. Where it watches "
    "another policy's run, the states of each step stand under the memory which that step wrote.",
    feedback=("episode reward", "step reward", "human"),
    needs=("episode reward", "step reward", "next state"),
    learns="actions",
)


# --- the policy -------------------------------------------------------------------------------------------------------


class Rememberer(Policy[RemembererSettings]):
    """A table of states and actions, read as advice."""

    spec = SPEC
    ignored = ("k1_counts", "duplicates", "duplicate_threshold")
    Settings = RemembererSettings

    # --- before the answer --------------------------------------------------------------------------------------------

    def when(self, asked: Asked) -> When:
        """Before every turn."""
        return When(True, "before every turn")

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """The k1 best records of the whole table."""
        inside = np.zeros(len(view.ids), dtype=np.bool_)
        inside[[view.position(i) for i in learned_in(view, Table).known() if view.sees(i)]] = True

        def best_first(members: Sequence[Recalled]) -> Sequence[int]:
            return self._scored(members, view)[3]

        found = self.wide_recall(query, view, best_first, inside=inside, delta=self.settings.delta, coarse=coarse)
        others = view.size - int(inside.sum())
        return replace(found, why=f"{others} of {view.size} memories hold no action with a value" if others else "")

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The k2 best by the weighted similarity of task and observation; ties go to the record with more tries."""
        weight, pool = self.settings.task_weight, recalled.pool
        states, observation, tries, order = self._scored(pool, view)
        taken = [index for index in order if states[index] is not None][: self.settings.k2]
        unknown = {index: Reason.COLD_START for index, state in enumerate(states) if state is None}
        terms = [
            TermColumn("task similarity", similarities(recalled), weight),
            TermColumn("observation similarity", observation, 1 - weight),
            TermColumn("tries", tries, 0.0),
        ]
        mode: Literal["greedy", "cold", "fallback"] = "greedy" if taken else "cold" if pool else "fallback"
        chosen = Chosen(taken, mode, reasons=unknown, greedy=taken, order=order)
        exemplars = [state for index in taken if (state := states[index]) is not None]
        note = invented_note([advice_for(state, view.asked) for state in exemplars])
        return self.ranked(recalled, view, terms, seed, chosen=chosen, note=note)

    def _scored(
        self, members: Sequence[Recalled], view: MemoryView
    ) -> tuple[list[State | None], Floats, Floats, list[int]]:
        """The state of each of n memories (None: unknown), how like what is seen it is (n,), and its tries (n,).

        Last come the positions of the memories, best first.
        """
        known, weight, seen = learned_in(view, Table).known(), self.settings.task_weight, _seen(view)
        states = [_most_like(seen, known.get(member.memory_id, ())) for member in members]
        shared = np.array([shared_words(s.observation, seen) if s else 0.0 for s in states], dtype=np.float64)
        tries = np.array([s.visits if s else 0 for s in states], dtype=np.float64)
        score = np.round(weight * similar(members) + (1 - weight) * shared, DIGITS)
        rank = np.array([member.rank_recall for member in members], dtype=np.int64)
        return states, shared, tries, np.lexsort((rank, -tries, -score)).tolist()

    def render(
        self, selected: Sequence[Memory], instructions: str, intent: str, observation: str, view: MemoryView
    ) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
        """The records' advice above the task."""
        return first_messages(instructions, self._advising(selected, view, observation), intent, observation)

    def render_turn(self, selected: Sequence[Memory], view: MemoryView) -> str:
        """The records' advice."""
        return memory_blocks(self._advising(selected, view, _seen(view)))[0].strip()

    def _advising(self, selected: Sequence[Memory], view: MemoryView, observation: str) -> list[Memory]:
        """The memories with their advice as text, where the table knows them."""
        known = learned_in(view, Table).known()
        states = [_most_like(observation, known.get(memory.id, ())) for memory in selected]
        return [
            advising(memory, state, view.asked) if state else memory
            for memory, state in zip(selected, states, strict=True)
        ]

    # --- after the answer ---------------------------------------------------------------------------------------------

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """One memory for each state met for the first time, as far as there is room."""
        table = learned_in(view, Table)
        met: dict[Key, tuple[int, str]] = {}
        for turn, exchange in enumerate(exchanges(new.trace), start=1):
            key = (new.intent, exchange.observation)
            known = table.states.get(key)
            if known is None or not view.sees(known.memory_id):
                met.setdefault(key, (turn, exchange.turn.reply.text))
        ids = [new.memory_id if index == 0 else new.fresh_id() for index in range(len(met))]
        kept = sum(view.sees(state.memory_id) for state in table.states.values())
        written = []
        for index, (memory_id, (key, (turn, action))) in enumerate(zip(ids, met.items(), strict=True), start=1):
            data = {"task": key[0], "observation": key[1], "action": action}
            text, parents = record_text(*key, action), memories_in_prompts(new.trace)
            why = f"a state met for the first time, before turn {turn}"
            one = added(new, memory_id, text, parents=parents, data=data, why=why)
            if kept + index > self.settings.capacity:
                full = one.but(op="NOOP", memory_id="", why=f"{self.settings.capacity} states are kept already")
                one = Written(full.operation)
            written.append(one)
        return tuple(written)

    # --- what is learned ----------------------------------------------------------------------------------------------

    def start(self, memories: Sequence[Memory]) -> Table:
        """An empty table: memories of others hold no actions with values."""
        return Table()

    def learn(self, state: Table, lesson: Lesson) -> tuple[ValueChange, ...]:
        """Move the value of every action of the episode; nothing without a reward."""
        if lesson.reward is None:
            return ()
        trace = lesson.trace
        met = exchanges(trace)
        rewards = [exchange.turn.reward for exchange in met[:-1]] + [verdict_of(lesson.reward, trace.settings)]
        episode = [
            Done((trace.task.intent, exchange.observation), exchange.turn.reply.text, reward)
            for exchange, reward in zip(met, rewards, strict=False)
        ]
        return tuple(learn(state, episode, self.settings, self._nearest(state, lesson)))

    def remember(self, state: Table, lesson: Lesson) -> None:
        """Let the new states stand under the memories that were written for them."""
        trace = lesson.trace
        for one in trace.operations:
            if one.op in ("UPDATE", "MERGE"):
                state.move(one.replaces, one.memory_id)
            elif one.op == "DELETE":
                state.drop(one.replaces)
            elif one.op == "ADD" and "observation" in one.data:
                key = (str(one.data["task"]), str(one.data["observation"]))
                state.link(state.states.setdefault(key, State(*key)), one.memory_id)
        if not any("observation" in one.data for one in trace.operations):
            # Another policy's step: its new states stand under the memory that it wrote.
            wrote = next((i for one in trace.operations if (i := one.memory_id or one.duplicate_of or "")), "")
            for exchange in exchanges(trace) if wrote else ():
                known = state.states.get((trace.task.intent, exchange.observation))
                if known is not None and not known.memory_id:
                    state.link(known, wrote)
        state.drop([""])

    def values(self, state: Table) -> Mapping[str, float]:
        """Q of every action of every memory."""
        return {
            f"{one.memory_id}:{one.named(name)}": action.q
            for one in state.states.values()
            for name, action in one.actions.items()
        }

    def _nearest(self, table: Table, lesson: Lesson) -> Callable[[Key], State]:
        """Finds the record that is used for a state never met."""
        trace, weight = lesson.trace, self.settings.task_weight
        query = np.asarray(trace.embed.embedding if trace.embed is not None else (), dtype=np.float64)
        tasks = {trace.task.intent: 1.0}

        def likeness(state: State, observation: str) -> float:
            if state.task not in tasks:
                tasks[state.task] = float(lesson.embedding_of(state.memory_id) @ query) if len(query) else 0.0
            score = weight * tasks[state.task] + (1 - weight) * shared_words(state.observation, observation)
            return round(score, DIGITS)

        def nearest(key: Key) -> State:
            known = (state for state in table.states.values() if state.actions)
            return max(known, key=lambda state: (likeness(state, key[1]), state.visits))

        return nearest


def _seen(view: MemoryView) -> str:
    return view.asked.observation if view.asked is not None else ""


def _most_like(observation: str, states: Sequence[State]) -> State | None:
    return max(states, key=lambda state: shared_words(state.observation, observation), default=None)


# --- the table of states and actions ----------------------------------------------------------------------------------


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
    """All states, in the order in which they were met."""

    states: dict[Key, State] = field(default_factory=dict)

    def link(self, state: State, memory_id: str) -> None:
        """Let a state stand under a memory, behind those that stand there already."""
        places = [one.place for one in self.states.values() if one.memory_id == memory_id and one is not state]
        state.memory_id, state.place = memory_id, 1 + max(places, default=-1)

    def move(self, memory_ids: Sequence[str], to: str) -> None:
        """Let the states of some memories stand under another."""
        for memory_id in memory_ids:
            for state in self.states.values():
                if state.memory_id == memory_id:
                    self.link(state, to)

    def drop(self, memory_ids: Sequence[str]) -> None:
        """Forget the states of these memories; "" for those that have none."""
        self.states = {key: state for key, state in self.states.items() if state.memory_id not in memory_ids}

    def known(self) -> dict[str, list[State]]:
        """The states in which something was done, by their memory."""
        found: dict[str, list[State]] = {}
        for state in self.states.values():
            if state.actions:
                found.setdefault(state.memory_id, []).append(state)
        return found


# --- learning ---------------------------------------------------------------------------------------------------------


def normalised(action: str) -> str:
    """An action as it is distinguished from others: lower case, single spaces."""
    return " ".join(action.lower().split())


@dataclass(frozen=True, slots=True)
class Done:
    """One exchange as it is learned from: the state, the action as it was said, and the reward that came at once."""

    key: Key
    action: str
    reward: float


def learn(
    table: Table, episode: Sequence[Done], settings: RemembererSettings, nearest: Callable[[Key], State]
) -> list[ValueChange]:
    """Learn from an episode, first exchange first; `nearest` is the record used for a state never met."""
    changes = []
    first_met: dict[Key, int] = {}
    for turn, done in enumerate(episode):
        if done.key not in table.states:
            table.states[done.key] = State(*done.key)
            first_met[done.key] = turn + 1
        state, name = table.states[done.key], normalised(done.action)
        action = state.actions.setdefault(name, Action(" ".join(done.action.split())))
        target, breakdown = _target(table, episode, turn, settings, nearest)
        before = action.q
        action.visits += 1
        alpha = 1 / action.visits
        action.q = before + alpha * (target - before)
        action.reward += alpha * (done.reward - action.reward)
        formula = f"{breakdown}; {before:.4g} + ({target:.4g} − {before:.4g}) / {action.visits} = {action.q:.4g}"
        known = (
            state.named(name) if state.memory_id else f"{name} (new state, turn {first_met.get(done.key, turn + 1)})"
        )
        changes.append(
            ValueChange(state.memory_id, before, action.q, action.visits, target, alpha, "action", known, formula)
        )
    return changes


def _target(
    table: Table, episode: Sequence[Done], turn: int, settings: RemembererSettings, nearest: Callable[[Key], State]
) -> tuple[float, str]:
    """Σ γ^i r + γ^n max Q(s', a'), and the same as words; without the last part where the episode ends before s'."""
    gamma, n = settings.gamma, settings.n if settings.variant == "paper" else len(episode)
    end = min(turn + n, len(episode))
    rewards = [done.reward for done in episode[turn:end]]
    target = sum(gamma**i * reward for i, reward in enumerate(rewards))
    parts = [f"{reward:g}" if gamma == 1 else f"{gamma:g}^{i}·{reward:g}" for i, reward in enumerate(rewards)]
    if len(parts) > LONGEST_SUM:
        parts = [*parts[:2], "…", *parts[-2:]]
    if end < len(episode):
        key = episode[end].key
        following = table.states.get(key) or nearest(key)
        target += gamma**n * following.best
        where = f"turn {end + 1}" + ("" if key in table.states else ", never met: of the nearest state")
        discount = "" if gamma == 1 else f"{gamma:g}^{n}·"
        parts.append(f"{discount}{following.best:.4g} [max Q of {where}]")
    return target, f"target {' + '.join(parts)} = {target:.4g}"


# --- how alike two states are -----------------------------------------------------------------------------------------


_WORD = re.compile(r"\w+")


@lru_cache(maxsize=8192)
def words(observation: str) -> frozenset[str]:
    """The different words of an observation."""
    return frozenset(_WORD.findall(observation.lower()))


def shared_words(one: str, other: str) -> float:
    """The share, in [0, 1], of the different words of two observations that stand in both."""
    a, b = words(one), words(other)
    both = len(a & b)
    return both / either if (either := len(a) + len(b) - both) else 0.0


# --- advice as the model gets it --------------------------------------------------------------------------------------


SEEN = "Seen: "
DONE_HERE = "Done here:"


@dataclass(frozen=True, slots=True)
class Advice:
    """Actions to take or to leave, under `heading`; `tries` is 0 where the value was `invented` or several share it."""

    heading: str
    actions: tuple[str, ...]
    value: float
    tries: int = 0
    invented: bool = False

    @property
    def text(self) -> str:
        """The advice as lines of a prompt; what is invented is called so."""
        remark = f"{'invented, ' if self.invented else ''}value {self.value:.2f}"
        tried = f" after {self.tries} {'try' if self.tries == 1 else 'tries'}" if self.tries else ""
        lines = "".join(f"\n{ANSWER_MARK}{action}" for action in self.actions)
        return f"{self.heading} {remark}{tried}{lines}"


def advice_on(state: State, rng: np.random.Generator) -> tuple[Advice, ...]:
    """What a state's actions say: the best is encouraged, those with q = 0 are discouraged.

    A random choice of the state's observation takes the place of a best action without value, with a value in (0, 0.5),
    and of a worst action whose value is above 0, with the value 0. Without choices nothing is invented. What is
    encouraged is never discouraged as well.
    """
    choices = offered(state.observation)
    actions = sorted(state.actions.values(), key=lambda action: -action.q)
    if not actions:
        return ()
    best, worst = actions[0], actions[-1]
    advice = []
    if best.q > 0:
        advice.append(Advice(ENCOURAGED, (best.text,), best.q, best.visits))
    elif choices:
        advice.append(Advice(ENCOURAGED, (_drawn(choices, rng),), float(rng.random()) / 2, invented=True))
    encouraged = {action for one in advice for action in one.actions}
    if worst.q <= 0:
        without = tuple(a.text for a in actions if a.q == 0 and a.text not in encouraged)
        if without:
            advice.append(Advice(DISCOURAGED, without, 0.0))
    elif others := [choice for choice in choices if choice not in encouraged]:
        advice.append(Advice(DISCOURAGED, (_drawn(others, rng),), 0.0, invented=True))
    return tuple(advice)


def advice_for(state: State, asked: Asked | None) -> tuple[Advice, ...]:
    """`advice_on` with what is random drawn by the state, the step and the turn that ask."""
    # The prompt is drawn up without a seed, and must be drawn up alike when the step is looked at again.
    drawn = hashlib.sha256(f"{state.task}\n{state.observation}".encode()).digest()
    moment = (asked.step, asked.turn) if asked is not None else (0, 0)
    return advice_on(state, np.random.default_rng([*moment, int.from_bytes(drawn[:8], "big")]))


def advising(memory: Memory, state: State, asked: Asked | None) -> Memory:
    """A memory as an exemplar: its state, and the advice on it, among the memories to follow."""
    advice = [one.text for one in advice_for(state, asked)]
    text = "\n".join([*_described(state.task, state.observation), *advice])
    return replace(memory, experience=text, outcome="success")


def invented_note(exemplars: Sequence[Sequence[Advice]]) -> str:
    """The invented ones among each exemplar's advice, in words; empty where nothing is invented."""
    invented = [
        f"{one.heading.lower()} “{one.actions[0]}”, value {one.value:.2f} (exemplar {number})"
        for number, advice in enumerate(exemplars, start=1)
        for one in advice
        if one.invented
    ]
    return f"Invented advice, learned from nothing: {'; '.join(invented)}." if invented else ""


def record_text(task: str, observation: str, action: str) -> str:
    """A state and the first thing that was done in it, as the text of its memory."""
    return "\n".join([*_described(task, observation), DONE_HERE, ANSWER_MARK + " ".join(action.split())])


def _described(task: str, observation: str) -> list[str]:
    before, found, _ = observation.rpartition(CHOICES)
    seen = " ".join((before if found else observation).split())
    return [TASK_LINE + task, *([SEEN + seen] if seen else [])]


def _drawn(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
