"""Rememberer: a table of states and actions with learned values, read before every turn as advice.

Source: arXiv 2306.07929 and its official code. The paper bootstraps after n steps; the released launch scripts leave n
unset, which is the whole return: the setting `variant` offers both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memrl_core.policies.base import Ask, Lesson, NewExperience, Policy, Vector, When, Written, added, deleted
from memrl_core.policies.episodes import exchanges, memories_told, verdict_of
from memrl_core.policies.ranking import Chosen, Floats, TermColumn, ranked, similarities
from memrl_core.policies.rememberer_advice import advice_for, advising, invented_note, record_text
from memrl_core.policies.rememberer_card import SPEC, RemembererSettings
from memrl_core.policies.rememberer_room import Room, all_shared_words, make_room, shared_words
from memrl_core.policies.rememberer_table import Done, Key, Rule, State, Table, learn
from memrl_core.policies.wide_recall import wide_recall
from memrl_core.prompting import first_messages, memory_blocks
from memrl_core.records import (
    Decision,
    Memory,
    MemorySpan,
    Message,
    Reason,
    Recalled,
    RecallRecord,
    StepTrace,
    ValueChange,
)
from memrl_core.retrieval import DIGITS
from memrl_core.view import Asked, MemoryView


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """A pool of n: each memory's state (None: unknown), its observation's similarity (n,), tries (n,); best first."""

    states: list[State | None]
    observation: Floats
    tries: Floats
    order: list[int]


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
        table = _table(view)
        inside = np.zeros(len(view.ids), dtype=np.bool_)
        inside[[view.position(i) for i in table.under if view.sees(i) and table.known(i)]] = True
        found = wide_recall(
            query,
            view,
            inside,
            lambda members: self._scored(members, view).order,
            k1=self.settings.k1,
            delta=self.settings.delta,
            strict=False,
            coarse=coarse,
            exclude_task=self.excluded_task(view),
            ties=self.settings.ties,
        )
        others = view.size - int(inside.sum())
        return replace(found, why=f"{others} of {view.size} memories hold no action with a value" if others else "")

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The k2 best by the weighted similarity of task and observation; ties go to the record with more tries."""
        weight, k2, pool = self.settings.task_weight, self.settings.k2, recalled.pool
        scored = self._scored(pool, view)
        taken = [place for place in scored.order if scored.states[place] is not None][:k2]
        unknown = {place: Reason.COLD_START for place, state in enumerate(scored.states) if state is None}
        terms = [
            TermColumn("task similarity", similarities(recalled), weight),
            TermColumn("observation similarity", scored.observation, 1 - weight),
            TermColumn("tries", scored.tries, 0.0),
        ]
        chosen = Chosen(taken, "greedy" if taken else "cold" if pool else "fallback", reasons=unknown)
        exemplars = [state for place in taken if (state := scored.states[place]) is not None]
        note = invented_note([advice_for(state, view.asked, self._invents) for state in exemplars])
        decision = ranked(recalled, view, terms, k2=k2, seed=seed, ties=self.settings.ties, chosen=chosen, note=note)
        return _in_order(decision, [pool[place].memory_id for place in scored.order])

    def _scored(self, members: Sequence[Recalled], view: MemoryView) -> _Scored:
        table, weight = _table(view), self.settings.task_weight
        observation = view.asked.observation if view.asked is not None else ""
        found = [_nearest_of(table, member.memory_id, observation) for member in members]
        states = [state for state, _ in found]
        shared = np.array([likeness for _, likeness in found], dtype=np.float64)
        tries = np.array([s.visits if s else 0 for s in states], dtype=np.float64)
        tasks = np.array([member.similarity for member in members], dtype=np.float64)
        score = np.round(weight * tasks + (1 - weight) * shared, DIGITS)
        rank = np.array([member.rank_recall for member in members], dtype=np.int64)
        return _Scored(states, shared, tries, np.lexsort((rank, -tries, -score)).tolist())

    def render(
        self, selected: Sequence[Memory], instructions: str, intent: str, observation: str, view: MemoryView
    ) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
        """The records' advice above the task."""
        return first_messages(instructions, self._advising(selected, view, observation), intent, observation)

    def render_turn(self, selected: Sequence[Memory], view: MemoryView) -> str:
        """The records' advice."""
        observation = view.asked.observation if view.asked is not None else ""
        return memory_blocks(self._advising(selected, view, observation))[0].strip()

    def _advising(self, selected: Sequence[Memory], view: MemoryView, observation: str) -> list[Memory]:
        """The memories with their advice as text, where the table knows them."""
        known = [(memory, _best_of(_table(view), memory.id, observation)) for memory in selected]
        return [advising(memory, state, view.asked, self._invents) if state else memory for memory, state in known]

    @property
    def _invents(self) -> bool:
        return not self.settings.norandom

    # --- after the answer ---------------------------------------------------------------------------------------------

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """One memory for each state met for the first time, as far as there is room."""
        table = _table(view)
        met: dict[Key, tuple[int, str]] = {}
        for turn, exchange in enumerate(exchanges(new.trace), start=1):
            key = (new.intent, exchange.observation)
            known = table.states.get(key)
            if known is None or not view.sees(known.memory_id):
                met.setdefault(key, (turn, exchange.turn.reply.text))
        ids = [new.memory_id if place == 0 else new.fresh_id() for place in range(len(met))]
        written: list[Written] = []
        for memory_id, (key, (turn, action)), room in zip(
            ids, met.items(), self._rooms(met, ids, new, view), strict=True
        ):
            data = {"task": key[0], "observation": key[1], "action": action}
            told = memories_told(new.trace)
            one = added(new, memory_id, record_text(*key, action), parents=told, data=data)
            if not room.kept:
                why = f"{self.settings.capacity} states are kept, and this one is as like one of them as any two are"
                noop = replace(one.operation, op="NOOP", memory_id="", duplicate_of=room.other, why=why)
                written.append(Written(noop))
                continue
            why = f"a state met for the first time, before turn {turn}"
            written.append(replace(one, operation=replace(one.operation, why=why)))
            if room.other:
                why = f"more than {self.settings.capacity} states: of the two most alike, the one with more tries goes"
                written.append(Written(deleted([room.other], why)))
        return tuple(written)

    def _rooms(
        self, met: Mapping[Key, Any], new_ids: Sequence[str], new: NewExperience, view: MemoryView
    ) -> Sequence[Room]:
        """What becomes of each new state, by the limit of states."""
        table, most = _table(view), self.settings.capacity
        kept = [state for state in table.states.values() if view.sees(state.memory_id)]
        if len(kept) + len(met) <= most:
            return [Room(True)] * len(met)
        samples = [state.visits for state in kept]
        samples += [known.visits if (known := table.states.get(key)) is not None else 0 for key in met]
        vectors = [view.embeddings[view.position(state.memory_id)] for state in kept] + [new.embedding] * len(met)
        tasks = np.stack(vectors).astype(np.float64)
        observations = [*(state.observation for state in kept), *(observation for _, observation in met)]
        weight = self.settings.task_weight
        similarity = np.round(weight * tasks @ tasks.T + (1 - weight) * all_shared_words(observations), DIGITS)
        ids = [*(state.memory_id for state in kept), *new_ids]
        return make_room(ids, samples, similarity, len(kept), most)

    # --- what is learned ----------------------------------------------------------------------------------------------

    def start(self, memories: Sequence[Memory]) -> Table:
        """An empty table: memories of others hold no actions with values."""
        return Table()

    def learn(self, state: Table, lesson: Lesson) -> tuple[ValueChange, ...]:
        """Move the value of every action of the episode; nothing without a reward."""
        if lesson.reward is None:
            return ()
        settings, trace = self.settings, lesson.trace
        met = exchanges(trace)
        rewards = [exchange.turn.reward for exchange in met[:-1]] + [verdict_of(lesson.reward, trace.settings)]
        episode = [
            Done((trace.task.intent, exchange.observation), exchange.turn.reply.text, reward)
            for exchange, reward in zip(met, rewards, strict=False)
        ]
        n = None if settings.variant == "code" else settings.n
        alpha = None if settings.step_size == "1/N" else settings.alpha
        rule = Rule(n, settings.gamma, alpha, settings.action_capacity)
        return tuple(learn(state, episode, rule, self._nearest(state, lesson)))

    def remember(self, state: Table, lesson: Lesson) -> None:
        """Let the new states stand under the memories that were written for them."""
        trace = lesson.trace
        operations = trace.write.operations if trace.write is not None else ()
        for one in operations:
            if one.op in ("UPDATE", "MERGE"):
                state.move(one.replaces, one.memory_id)
            elif one.op == "DELETE":
                state.drop(one.replaces)
            elif one.op == "ADD" and "observation" in one.data:
                key = (str(one.data["task"]), str(one.data["observation"]))
                state.link(state.states.setdefault(key, State(*key)), one.memory_id)
        if not any("observation" in one.data for one in operations):
            self._watch(state, trace)
        state.drop_unlinked()

    def values(self, state: Table) -> Mapping[str, float]:
        """Q of every action of every memory."""
        return dict(state.values())

    def _watch(self, table: Table, trace: StepTrace) -> None:
        """Let the new states of another policy's step stand under the memory that it wrote."""
        operations = trace.write.operations if trace.write is not None else ()
        wrote = next((i for one in operations if (i := one.memory_id or one.duplicate_of or "")), "")
        for exchange in exchanges(trace) if wrote else ():
            state = table.states.get((trace.task.intent, exchange.observation))
            if state is not None and not state.memory_id:
                table.link(state, wrote)

    def _nearest(self, table: Table, lesson: Lesson) -> Callable[[Key], State]:
        """Finds the record that stands in for a state never met."""
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


def _table(view: MemoryView) -> Table:
    return view.learned if isinstance(view.learned, Table) else Table()


def _best_of(table: Table, memory_id: str, observation: str) -> State | None:
    """Of a memory's states the one most like an observation; None where the table knows none."""
    return _nearest_of(table, memory_id, observation)[0]


def _nearest_of(table: Table, memory_id: str, observation: str) -> tuple[State | None, float]:
    """The same, with how alike it is."""
    nearest, highest = None, 0.0
    for state in table.known(memory_id):
        likeness = shared_words(state.observation, observation)
        if nearest is None or likeness > highest:
            nearest, highest = state, likeness
    return nearest, highest


def _in_order(decision: Decision, memory_ids: Sequence[str]) -> Decision:
    """A decision whose pool stands in this order: ties go to more tries, not to the more similar."""
    by_id = {candidate.memory_id: candidate for candidate in decision.candidates}
    pool = [by_id[memory_id] for memory_id in memory_ids]
    ranked_anew = (
        one if one.rank_select == rank else replace(one, rank_select=rank) for rank, one in enumerate(pool, start=1)
    )
    missed = decision.candidates[len(pool) :]
    return replace(decision, candidates=(*ranked_anew, *missed), greedy=decision.selected)
