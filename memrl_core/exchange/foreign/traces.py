"""Traces of other programs as steps of a bank: the spans of one trace become one step, its documents memories.

What was recalled, reranked, sent, answered and judged is taken as it stands in the spans; what is not there is said in
the step's `lacks`. Spans carry no vectors of documents, so the bank's embedder makes them, and similarities are ours.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.recorded_trace import placed
from memrl_core.agent.run_parts import default_embedder, embedder_of, new_embedder
from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.bank.people.roles import Role as RoleOfPerson
from memrl_core.bank.storage.codec import StepRow
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import InputError, NoVector, few
from memrl_core.exchange.bring_in import UNCHANGED, Arrival, bank_for
from memrl_core.exchange.contents import NOTHING, Account, Skipped, started_with
from memrl_core.exchange.foreign.columns import outcome_of
from memrl_core.exchange.foreign.spans import (
    Score,
    Span,
    at,
    inner,
    is_span,
    json_of,
    moment_of,
    score_of,
    spans_in,
    tree_of,
    words,
)
from memrl_core.exchange.foreign.tables import Source, source_of
from memrl_core.learning.fold import earned
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.numerals import counted
from memrl_core.policies import make_policy
from memrl_core.policies.base import intent_key
from memrl_core.records import (
    UNKNOWN,
    Candidate,
    Decision,
    EmbedRecord,
    EventKind,
    GenerateRecord,
    Hit,
    LedgerEvent,
    Memory,
    Message,
    Reason,
    Recalled,
    RecallRecord,
    Reply,
    Retrieval,
    RewardRecord,
    Role,
    RunInfo,
    StepTrace,
    Task,
    Term,
    ToolCall,
    Turn,
    UpdateRecord,
    Utility,
)
from memrl_core.settings import MemRLSettings

ENVIRONMENT = "imported"
NO_INTENT = "(no intent was reported)"
SPANS = "spans"
"""Under which name the task of a step holds the ids of the spans that it was made of."""
SAYS_NOTHING = "no span of it says what was asked, recalled or answered"
NO_SPAN = "no span of that trace is in the file"
AT_ONCE, OFTEN = 64, 256
TOGETHER = 2**28
"""Bytes of a file whose traces are made steps of together: it takes several times as much memory."""
_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "human": "user",
                              "assistant": "assistant", "ai": "assistant", "model": "assistant"}  # fmt: skip
_MAIN = ("reward", "success", "correctness", "correct", "qa_correctness", "user_feedback", "user-feedback", "score")
Vector = npt.NDArray[np.float32]


def has_spans(path: Path) -> bool:
    """Whether a file holds spans of traces: by its first row that can be read."""
    try:
        rows = (row for _, row, _ in islice(source_of(str(path)).rows(), 20) if not isinstance(row, str))
        return any(is_span(row) for row in rows)
    except InputError:
        return False


# --- spans, gathered by their trace -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Gathered:
    """Spans and scores by their trace, in any order; `repeated` spans came more than once, and the longer is kept."""

    spans: defaultdict[str, dict[str, Span]] = field(default_factory=lambda: defaultdict(dict))
    scores: defaultdict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    skipped: list[Skipped] = field(default_factory=list)
    repeated: int = 0

    def take(self, row: Mapping[str, Any], where: str) -> set[str]:
        """All spans and scores of one row; returns the traces that they are of."""
        traces = set()
        for one in spans_in(row):
            if isinstance(one, str):
                self.skipped.append(Skipped(where, one))
            elif isinstance(one, tuple):
                self.scores[one[0]].append(one[1])
                traces.add(one[0])
            else:
                traces.add(one.trace)
                known = self.spans[one.trace].get(one.id)
                self.repeated += known is not None
                if known is None or (len(one.tree), not math.isnan(one.end)) >= (
                    len(known.tree),
                    not math.isnan(known.end),
                ):
                    self.spans[one.trace][one.id] = one
        return traces

    def in_order(self) -> list[tuple[str, list[Span]]]:
        """The traces, oldest first, each with its spans by their begin."""
        found = [(trace, sorted(spans.values(), key=_begin)) for trace, spans in self.spans.items()]
        return sorted(found, key=lambda one: (min(map(_begin, one[1]), default=math.inf), one[0]))


def _begin(span: Span) -> float:
    return math.inf if math.isnan(span.start) else span.start


_Judged = tuple[Score, float]


@dataclass(frozen=True, slots=True)
class _Document:
    id: str
    content: str
    score: float | None
    metadata: Any = None


# --- steps ------------------------------------------------------------------------------------------------------------


class Steps:
    """Makes steps of traces for a run; `bank` is where they go.

    `memories` (with their vectors), `events` and `traces` grow with each `add`; memories that the bank has are not in
    `memories`, unless they are new to the run.
    """

    def __init__(
        self,
        embedder: Embedder,
        run: RunInfo,
        bank: MemoryBank,
        first_step: int = 1,
        vectors: Mapping[str, Vector | None] | None = None,
    ) -> None:
        """`vectors` are those of some texts, where they were made before (`vectors_of`)."""
        self.memories: dict[str, tuple[Memory, Vector]] = {}
        self.metadata: dict[str, Any] = {}
        self.traces: list[StepTrace] = []
        self.rewards: list[LedgerEvent] = []
        self.known: dict[str, Utility] = {}
        self._embedder, self._run, self._bank, self._number = embedder, run, bank, first_step
        self._policy = make_policy(run.policy, run.settings)
        self._in_bank = set(bank.memory_ids())
        self._named: dict[tuple[str, str], str] = {}
        self._vectors = dict(vectors or {})
        self._by_text: dict[str, str] | None = None

    def add(self, trace: str, spans: Sequence[Span], scores: Sequence[Score], goes_on: StepTrace | None = None) -> bool:
        """One trace as the next step; False where there is nothing in it that a step could show.

        `goes_on` is the step that the trace is already, where these spans came after it was stored.
        """
        made = self._step(trace, spans, scores, goes_on)
        if made is not None:
            self.traces.append(made)
            self._number += 1
        return made is not None

    def forget(self) -> None:
        """Let go of the steps and rewards that were made, which are stored now; memories and their q stay."""
        self.traces.clear()
        self.rewards.clear()
        self._vectors.clear()

    def _step(
        self, trace: str, spans: Sequence[Span], scores: Sequence[Score], goes_on: StepTrace | None
    ) -> StepTrace | None:
        tree = _Tree(spans)
        retrieved, reranked, calls, tools = tree.retrieved, tree.reranked, tree.calls, tree.tools
        intent, documents, chosen = tree.intent, tree.documents, tree.chosen
        if not (retrieved or reranked or calls or tools) and (goes_on is not None or intent == NO_INTENT):
            return None
        lacks = tree.lacks(() if goes_on is None else goes_on.task.data.get(SPANS, ()))
        if goes_on is not None:
            intent = goes_on.task.intent if intent == NO_INTENT else intent
            what = "these spans came" if len(spans) > 1 else "this span came"
            lacks.insert(0, f"its beginning, which is step {goes_on.step}: {what} after it was stored")
        self._vectors |= vectors_of(self._embedder, tree.texts, self._vectors)
        vector = self._vectors[intent] if intent != NO_INTENT else None
        pool: dict[str, float | None] = {}
        unknown = []
        for one in documents:
            if name := self._memory(one):
                pool.setdefault(name, one.score)
            else:
                unknown.append(one.id or "without an id")
        if unknown:
            lacks.append(f"the texts of memories that it recalled ({few(dict.fromkeys(unknown))}), which are left out")
        messages, turns, model, options = _conversation(tree, calls, tools)
        selected = tuple(dict.fromkeys(filter(None, (self._memory(one) for one in chosen))))
        if pool and not chosen:
            sent = "\n".join(message.content for message in messages)
            selected = tuple(name for name in pool if sent and self._text(name).strip() in sent) or tuple(pool)
            if not sent or selected == tuple(pool):
                lacks.append("which memories it selected: all that it recalled are taken")
        recall = decision = None
        if (retrieved or reranked) and vector is not None:
            recall = self._recall(pool, vector, lacks)
            decision = self._decision(recall, selected, {self._memory(one): one.score for one in chosen}, lacks)
        elif not retrieved and not reranked:
            lacks.append("which memories it recalled")
        asked_for = ("its intent", "what it sent to the model", "what the model answered")
        is_there = (intent != NO_INTENT, bool(messages), any(turn.reply.text for turn in turns))
        lacks += [what for what, has in zip(asked_for, is_there, strict=True) if not has]
        failed = next((f"{span.name or span.kind}: {span.failed}" for span in spans if span.failed), "")
        if failed:
            lacks.append(f"what would have come without a failure ({failed[:200]})")
        late = [] if goes_on is None else sorted(span.id for span in spans)
        step_id = hashlib.sha256("\n".join((self._run.id, trace, *late)).encode()).hexdigest()[:32]
        given = scores_of(spans, scores) if goes_on is None else []
        begin, end = _begin(spans[0]), max((span.end for span in spans if not math.isnan(span.end)), default=math.nan)
        reward, update = self._rewarded(step_id, given, selected, moment_of(end), lacks)
        return StepTrace(
            id=step_id,
            run=self._run.id,
            step=self._number,
            epoch=1,
            task=Task(trace[:200], intent, ENVIRONMENT, data={SPANS: [span.id for span in spans]}),
            policy=self._run.policy,
            settings=self._run.settings,
            started=moment_of(begin if begin < math.inf else math.nan),
            seconds=_seconds(retrieved, calls, end - begin),
            embed=None if vector is None else EmbedRecord(self._embedder.name, len(vector), tuple(map(float, vector))),
            recall=recall,
            decision=decision,
            generate=GenerateRecord(
                model, False, options, messages, placed({one: self._text(one) for one in selected}, messages), turns
            )
            if messages or turns
            else None,
            reward=reward,
            update=update,
            origin="import",
            lacks=tuple(lacks),
            retrievals=tuple(self._retrieval(span, tree, intent, vector) for span in retrieved),
        )

    def _retrieval(self, span: Span, tree: _Tree, intent: str, vector: Vector | None) -> Retrieval:
        """One retrieval as it was: its query, hits and their scores, of no kind that is known, and who asked."""
        query = question_of(span)
        hits = []
        for one in _documents(span, "retrieval.documents"):
            name = self._memory(one)
            cosine = None
            if name and vector is not None:
                cosine = float(np.clip(self.memories[name][1] @ vector, -1, 1))
            hits.append(Hit(name or one.id, one.score, cosine, bool(name), "" if name else one.content))
        seconds = span.end - span.start if span.end >= span.start else None
        asked = "" if query == intent else query
        asker = tree.asker(span)[:200]
        return Retrieval(tuple(hits), "other", "", asked, asker, "", moment_of(span.start), seconds)

    def _memory(self, one: _Document) -> str:
        """The memory that a document is, taken in where it is new; "" where neither its text nor its id is known."""
        wanted = one.id or self._of_text(one)
        if not wanted or not wanted.isprintable():
            return ""
        if (wanted, one.content) in self._named:
            return self._named[wanted, one.content]
        name, number = wanted, 1
        while name in self.memories or name in self._in_bank:
            if not one.content or one.content in (self._text(name), self._intent_of(name)):
                break
            number += 1
            name = f"{wanted}-{number}"
        if name not in self.memories and name in self._in_bank:
            self.memories[name] = self._bank.memory(name), self._bank.embedding(name)
            self.known.setdefault(name, Utility(0.0, 0))
        elif name not in self.memories:
            vector = self._vectors.get(one.content)
            if not one.content or vector is None:
                return ""
            memory = Memory(
                name, one.content, one.content, "unrated", intent_key(one.content), (), self._run.id, 0, "", ""
            )
            self.memories[name] = memory, vector
            self.known[name] = Utility(0.0, 0)
            if one.metadata:
                self.metadata[name] = one.metadata
        self._named[wanted, one.content] = name
        return name

    def _of_text(self, one: _Document) -> str:
        """The memory that has a document's text, which some instrumentations send without its id; else a new name."""
        if self._by_text is None:
            self._by_text = {memory.experience.strip(): memory.id for memory in self._bank.memories()}
        return self._by_text.get(one.content.strip(), _name(one))

    def _text(self, name: str) -> str:
        return (self.memories[name][0] if name in self.memories else self._bank.memory(name)).experience

    def _intent_of(self, name: str) -> str:
        return (self.memories[name][0] if name in self.memories else self._bank.memory(name)).intent

    def _recall(self, pool: Mapping[str, float | None], vector: Vector, lacks: list[str]) -> RecallRecord:
        similarity = {name: float(np.clip(self.memories[name][1] @ vector, -1, 1)) for name in pool}
        if pool:
            lacks.append(
                "the vectors by which it recalled: the similarities are cosines of "
                f"{self._embedder.name}, its own scores stand beside them in its order"
            )
        return RecallRecord(
            k1=len(pool),
            k1_counts="record",
            delta=-1.0,
            strict=False,
            memories=len(self.known),
            pool=tuple(
                Recalled(name, similarity[name], rank, None, score)
                for rank, (name, score) in enumerate(pool.items(), start=1)
            ),
            left_out=(),
            rule="own score" if pool else "nothing",
            why="" if pool else "the agent's retrieval gave no document",
            signal="score" if any(score is not None for score in pool.values()) else "",
        )

    def _decision(
        self, recall: RecallRecord, selected: tuple[str, ...], scores: Mapping[str, float | None], lacks: list[str]
    ) -> Decision:
        own = {one.memory_id: one.signal for one in recall.pool}
        given = scores if scores and all(scores.get(name) is not None for name in own) else own
        is_scored = bool(own) and all(given.get(name) is not None for name in own)
        ranks = {name: rank for rank, name in enumerate(selected, start=1)}
        if own:
            lacks.append(
                "how it ranks: λ, ε, the seed and the probability of this choice are not known, though they are 0 here"
            )
        candidates = []
        for one in recall.pool:
            score, utility = given.get(one.memory_id), self.known[one.memory_id]
            kept = score if is_scored else None
            candidates.append(
                Candidate(
                    memory_id=one.memory_id,
                    similarity=one.similarity,
                    q=utility.q,
                    visits=utility.visits,
                    terms=() if kept is None else (Term("score", kept, kept, 1.0, kept),),
                    score=kept,
                    rank_recall=one.rank_recall,
                    rank_select=ranks.get(one.memory_id),
                    selected=one.memory_id in ranks,
                    reason=Reason.TOP_K2 if one.memory_id in ranks else Reason.BEYOND_K2,
                )
            )
        candidates.sort(key=lambda one: one.rank_select or len(candidates) + one.rank_recall)
        mode: Any = "greedy" if recall.pool else "fallback"
        return Decision(
            len(selected), 0.0, "unknown", (), tuple(candidates), selected, selected, mode, 0.0, None, 0, 0.0
        )

    def _rewarded(
        self, step_id: str, scores: Sequence[Score], credited: tuple[str, ...], at_time: str, lacks: list[str]
    ) -> tuple[RewardRecord, UpdateRecord]:
        """The reward of the step, and how it moves q; people's rewards and the environment's become events."""
        own, people = self._judged(scores, lacks)
        if own is None and not people:
            lacks.append("how well it went")
        self.rewards += self._given(step_id, own, people, {
            "seq": 0, "run": self._run.id, "step": self._number, "step_id": step_id, "known_at": self._number,
            "kind": EventKind.REWARD_GIVEN, "memory_ids": credited, "created": at_time,
        })  # fmt: skip
        reward = None if own is None else own[1]
        changes: Any = ()
        for move in earned(reward, {rater: number for rater, (_, number) in people.items()}, self._run.settings):
            known = {name: self.known[name] for name in credited}
            changes = self._policy.update(credited, move.value, known)
            self.known |= {change.memory_id: Utility(change.after, change.visits) for change in changes}
        verdict = "" if own is None else ": ".join(filter(None, (own[0].label or own[0].name, own[0].reason)))
        record = RewardRecord(
            reward, None if own is None else "environment", self._policy.outcome_of(reward), verdict, "", "", credited
        )
        return record, UpdateRecord(tuple(changes) if own is not None and not people else ())

    def _judged(self, scores: Sequence[Score], lacks: list[str]) -> tuple[_Judged | None, dict[str, _Judged]]:
        """Of some judgements the environment's reward, and people's by rater; `lacks` gets what is odd about them."""
        low, high = self._run.settings["reward_failure"], self._run.settings["reward_success"]
        numbers: list[_Judged] = []
        for score in scores:
            number = as_number(score, self._run.settings)
            if number is not None:
                numbers.append((score, number))
            else:
                lacks.append(f"a number for “{score.name}: {score.label}”")
        people = {score.rater: (score, number) for score, number in numbers if score.human}
        others = [(score, number) for score, number in numbers if not score.human]
        others.sort(key=lambda one: _MAIN.index(one[0].name.lower()) if one[0].name.lower() in _MAIN else len(_MAIN))
        if others[1:]:
            lacks.append(
                f"one reward: {few(f'{s.name} {n:g}' for s, n in others[1:])} stand beside {others[0][0].name}"
            )
        if odd := [number for _, number in numbers if not low <= number <= high]:
            lacks.append(f"rewards on the scale of this run, {low:g} to {high:g}: {few(odd)} count as they were given")
        return others[0] if others else None, people

    @staticmethod
    def _given(
        step_id: str, own: _Judged | None, people: Mapping[str, _Judged], common: Mapping[str, Any]
    ) -> Iterator[LedgerEvent]:
        if own is not None:
            yield LedgerEvent(id=f"{step_id}:environment", value=own[1], source="environment", **common)
        for rater, (score, number) in people.items():
            one = f"{step_id}:by:{hashlib.sha256(rater.encode()).hexdigest()[:8]}"
            yield LedgerEvent(id=one, value=number, source="person", rater=rater, reason=score.reason, **common)

    def judge(self, step: StepRow, scores: Sequence[Score]) -> list[str]:
        """Rewards of a stored step, for `rewards`, from judgements that came since; returns what cannot be used.

        The environment's first reward counts, as does a person's newest.
        """
        unused, lacks, bank, run = list[str](), list[str](), self._bank, self._run.id
        common = {"seq": 0, "run": run, "step": step.step, "step_id": step.id, "known_at": bank.next_step(run) - 1,
                  "kind": EventKind.REWARD_GIVEN, "memory_ids": (), "created": now()}  # fmt: skip
        given = [*self._given(step.id, *self._judged(scores, lacks), common)]
        known = {event.id: event for event in bank.events_of(event.id for event in given)}
        for event in given:
            before = known.get(event.id)
            if before is not None and event.source == "person":
                changed = hashlib.sha256(f"{event.value} {event.reason}".encode()).hexdigest()[:8]
                is_same = (before.value, before.reason) == (event.value, event.reason)
                event = replace(event, id=f"{event.id}:{changed}")
                if is_same or bank.events_of([event.id]):
                    continue
            elif before is not None:
                if before.value != event.value:
                    unused.append(f"the reward {before.value:g} came first and counts, {event.value:g} does not")
                continue
            self.rewards.append(replace(event, memory_ids=bank.credits.of(run, step.step)))
        said = bank.trace(run, step.step).lacks if lacks else ()
        return [*unused, *(f"it lacks {one}" for one in lacks if one not in said)]


def vectors_of(
    embedder: Embedder, texts: Iterable[str], known: Mapping[str, Vector | None]
) -> dict[str, Vector | None]:
    """The vectors of those texts that are not `known`, made many at once; None where the embedder makes none."""
    wanted = [one for one in dict.fromkeys(texts) if one not in known]
    made: dict[str, Vector | None] = {}
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        try:
            made |= dict(zip(some, embedded(embedder, some), strict=True))
        except NoVector:
            for one in some:
                made |= vectors_of(embedder, [one], {}) if len(some) > 1 else {one: None}
    return made


def _seconds(retrieved: Sequence[Span], calls: Sequence[Span], whole: float) -> dict[str, float]:
    found = {
        phase: sum(span.end - span.start for span in spans if span.end >= span.start)
        for phase, spans in (("RECALL", retrieved), ("GENERATE", calls))
    }
    return {phase: seconds for phase, seconds in found.items() if seconds > 0} or (
        {"GENERATE": whole} if whole > 0 else {}
    )


# --- how spans belong together ----------------------------------------------------------------------------------------


class _Tree:
    """The spans of one trace, oldest first, by who began whom and by what they did; with its `intent`, all `documents`
    that it recalled or ranked, and those that it has `chosen`.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans, self._by_id = spans, {span.id: span for span in spans}
        self.retrieved = [span for span in spans if span.kind == "RETRIEVER"]
        self.reranked = [span for span in spans if span.kind == "RERANKER"]
        # A library that calls a model through another one leaves a span for each: it is one call.
        self.calls = [span for span in spans if span.kind == "LLM" and not self.is_within(span, "LLM")]
        self.tools = [span for span in spans if span.kind == "TOOL"]
        self.intent = _intent(spans, self.retrieved, self.calls)
        self.documents = [one for span in self.retrieved for one in _documents(span, "retrieval.documents")]
        self.chosen = [one for span in self.reranked[-1:] for one in _documents(span, "reranker.output_documents")]
        self.documents += [one for span in self.reranked[:1] for one in _documents(span, "reranker.input_documents")]
        self.documents += self.chosen

    @property
    def texts(self) -> list[str]:
        """What is embedded of it: its intent, and its documents."""
        return [self.intent, *(one.content for one in self.documents if one.content)]

    def above(self, span: Span) -> list[Span]:
        """The spans that a span is within, the nearest first."""
        found: list[Span] = []
        while (one := self._by_id.get(span.parent)) is not None and one not in found and one.id != span.id:
            found.append(one)
            span = one
        return found

    def is_within(self, span: Span, kind: str) -> bool:
        """Whether a span is within one of this kind."""
        return any(one.kind == kind for one in self.above(span))

    def asker(self, span: Span) -> str:
        """Who asked: the agents and tools that a span is within, outermost first; its parent where there is none.

        The agent that began the trace is named only where nobody else asked.
        """
        above = self.above(span)
        acting = [one for one in above if one.kind in ("AGENT", "TOOL")]
        if len(acting) > 1 and acting[-1] is above[-1]:
            acting.pop()
        return " › ".join(_called(one) for one in reversed(acting or above[:1]))

    def turn_of(self, tool: Span, calls: Sequence[Span]) -> int:
        """The call after which a tool was used, by its place: the last one of the agent that used it, else of any."""
        begun = [number for number, call in enumerate(calls) if _begin(call) <= _begin(tool)]
        own = self._agent(tool)
        return next(
            (number for number in reversed(begun) if self._agent(calls[number]) == own), begun[-1] if begun else 0
        )

    def _agent(self, span: Span) -> str:
        return next((one.id for one in self.above(span) if one.kind in ("AGENT", "TOOL")), "")

    def lacks(self, stored: Collection[str]) -> list[str]:
        """What the spans do not say of when they were, what they are and what they belong to, a sentence each.

        `stored` are those of the same trace that came before.
        """
        spans, said = self._spans, list[str]()
        begins = [span.start for span in spans if not math.isnan(span.start)]
        if undated := len(spans) - len(begins):
            said.append(f"when {undated:,} of its spans began: they stand behind the others")
        if begins and (days := (max(begins) - min(begins)) / 86400) > 1:
            said.append(f"how its spans belong together: the last began {days:,.0f} days after the first")
        if reversed_ones := sum(span.end < span.start for span in spans):
            said.append(f"how long {reversed_ones:,} of its spans took: they end before they begin")
        if nameless := sum(not span.is_named for span in spans):
            said.append(f"the ids of {nameless:,} of its spans, so none can be within one of them")
        if strange := [span.name or span.id for span in spans if not span.is_known]:
            said.append(
                f"what {len(strange):,} of its spans did: their attributes are of no convention that is read here "
                f"({few(dict.fromkeys(strange))})"
            )
        missing = dict.fromkeys(span.parent for span in spans if span.parent and span.parent not in self._by_id)
        missing = {name: None for name in missing if name not in stored}
        if missing and len(spans) > 1:
            said.append(f"spans that others are within and that did not come: {few(missing)}")
        return said


_TOOL_NAMES = ("tool.name", "tool_call.function.name", "gen_ai.tool.name")


def _called(span: Span) -> str:
    """The name of an agent or a tool, or of its span."""
    return span.text("agent.name", "gen_ai.agent.name", *_TOOL_NAMES) or span.name or span.kind.lower()


# --- what spans say ---------------------------------------------------------------------------------------------------


def _intent(spans: Sequence[Span], retrieved: Sequence[Span], calls: Sequence[Span]) -> str:
    """What was asked: of the root, else of the first retrieval, else the last words of a person to the model."""
    roots = [span for span in spans if not span.parent]
    for span in (*roots, *retrieved, *spans):
        said = "" if span.kind in ("LLM", "TOOL", "EVALUATOR", "EMBEDDING") else question_of(span)
        if said.strip():
            return said
    for span in calls:
        asked = [message.content for message in _messages(span, "input") if message.role == "user"]
        if asked and asked[-1].strip():
            return asked[-1]
    return NO_INTENT


def question_of(span: Span) -> str:
    """What a span was asked; "" where it does not say."""
    for path in ("gen_ai.retrieval.query.text", "gen_ai.memory.query.text", "reranker.query"):
        if said := span.text(path):
            return said
    given = json_of(
        at(span.tree, "input.value") if at(span.tree, "input.value") is not None else at(span.tree, "input")
    )
    return _question(given)


def _question(given: Any) -> str:
    """The question in an input: the text, or what an object has under a usual name, or the last message of a person."""
    if isinstance(given, Mapping):
        for name in ("query", "question", "input", "intent", "task", "prompt", "text", "content", "kwargs", "args"):
            if name in given and (said := _question(json_of(given[name]))):
                return said
        return _question(given["messages"]) if "messages" in given else ""
    if isinstance(given, list):
        by_people = [one for one in given if not isinstance(one, Mapping) or _role(one) == "user"]
        return _question(by_people[-1]) if by_people else ""
    return words(given)


def _role(message: Mapping[str, Any]) -> Role:
    said = words(at(message, "role") or at(message, "message.role") or at(message, "type") or at(message, "data.type"))
    return _ROLES.get(said.lower(), "user")


def _documents(span: Span, path: str) -> list[_Document]:
    found = at(span.tree, path)
    if found is None and path == "retrieval.documents":
        for other in ("gen_ai.retrieval.documents", "gen_ai.memory.records", "output.value", "output"):
            found = json_of(span.at(other))
            found = found if isinstance(found, list | dict) else None
            if isinstance(found, Mapping):
                found = next((one for one in found.values() if isinstance(one, list)), None)
            if found:
                break
    found = json_of(found)
    listed = [tree_of(one) if isinstance(one, Mapping) else one for one in found] if isinstance(found, list) else []
    return [one for one in map(_document, listed) if one is not None]


def documents_of(span: Span) -> list[tuple[str, str]]:
    """The documents of a retrieval in its order: the id that each has as a memory, and its text."""
    return [(_name(one), one.content) for one in _documents(span, "retrieval.documents")]


def _name(one: _Document) -> str:
    """The id of a document, one made of its text where it has none."""
    return one.id or (f"doc-{hashlib.sha256(one.content.encode()).hexdigest()[:10]}" if one.content else "")


def _document(given: Any) -> _Document | None:
    if isinstance(given, str):
        return _Document("", given, None)
    if not isinstance(given, Mapping):
        return None
    part = inner(given, "document")
    metadata = json_of(part.get("metadata"))
    names = [part.get(key) for key in ("id", "id_", "memory_id", "key", "document_id")]
    if isinstance(metadata, Mapping):
        names += [metadata.get("id"), metadata.get("memory_id")]
    content = next(
        filter(None, (words(part.get(key)) for key in ("content", "page_content", "text", "memory", "value"))), ""
    )
    held = metadata if isinstance(metadata, Mapping) else {}
    score = part.get("score", given.get("score", held.get("score", held.get("relevance_score"))))
    if isinstance(score, str):
        score = float(score) if re.fullmatch(r"-?\d+(\.\d+)?([eE]-?\d+)?", score) else None
    number = (
        float(score)
        if isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
        else None
    )
    name = next((words(one) for one in names if one not in (None, "")), "")[:200]
    return _Document(name.strip(), content, number, metadata) if name.strip() or content else None


def _messages(span: Span, side: str) -> list[Message]:
    """The messages that a model was sent ("input"), or what it answered ("output")."""
    other = {"input": "prompt", "output": "completion"}[side]
    for path in (f"llm.{side}_messages", f"gen_ai.{side}.messages", f"gen_ai.{other}", f"{side}.value", side):
        given = json_of(span.at(path))
        if side == "output" and isinstance(given, Mapping) and "generations" in given:
            given = given["generations"]
        if isinstance(given, Mapping):
            given = given.get("messages") or given.get("choices") or [given]
        while isinstance(given, list) and len(given) == 1 and isinstance(given[0], list):
            given = given[0]
        if isinstance(given, str) and given.strip():
            given = [{"role": "user" if side == "input" else "assistant", "content": given}]
        if isinstance(given, list) and given:
            made = [_message(one, side) for one in given]
            if any(one.content for one in made):
                return made
    return []


def _message(given: Any, side: str) -> Message:
    if not isinstance(given, Mapping):
        return Message("user" if side == "input" else "assistant", words(given))
    held = inner(given, "message")
    data = inner(held, "kwargs")
    content = data.get("content", data.get("contents", data.get("parts", data.get("text"))))
    if isinstance(content, list):
        content = "\n".join(filter(None, map(_part, content)))
    role = _role(held) if "role" in held or "type" in held else ("user" if side == "input" else "assistant")
    text = words(content)
    if not text and (called := data.get("tool_calls")):
        text = words(called)
    return Message(role, text)


def _part(given: Any) -> str:
    if isinstance(given, Mapping):
        part = inner(given, "message_content")
        return words(part.get("text") or part.get("content") or part.get("arguments") or part.get("response"))
    return words(given)


def _conversation(
    tree: _Tree, calls: Sequence[Span], tools: Sequence[Span]
) -> tuple[tuple[Message, ...], tuple[Turn, ...], str, dict[str, Any]]:
    """Messages of the first call, a turn for each call with the tools used after it, the model, and its options.

    Tools that were used before any call belong to the first turn; without a call they are a turn without a reply.
    """
    if not calls and not tools:
        return (), (), UNKNOWN, {}
    used: defaultdict[int, list[ToolCall]] = defaultdict(list)
    for tool in tools:
        used[tree.turn_of(tool, calls)].append(
            ToolCall(
                tool.text(*_TOOL_NAMES)[:200] or tool.name,
                tool.text("tool.parameters", "gen_ai.tool.call.arguments", "input.value", "input"),
                tool.text("output.value", "gen_ai.tool.call.result", "output"),
            )
        )
    if not calls:
        return (), (Turn(Reply(""), "", 0.0, True, False, tools=tuple(used[0])),), UNKNOWN, {}
    turns = []
    for number, call in enumerate(calls):
        answer = "\n".join(message.content for message in _messages(call, "output"))
        reply = Reply(
            answer,
            prompt_tokens=_count(
                call, "llm.token_count.prompt", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "usage.input"
            ),
            answer_tokens=_count(
                call,
                "llm.token_count.completion",
                "gen_ai.usage.output_tokens",
                "gen_ai.usage.completion_tokens",
                "usage.output",
            ),
            seconds=call.end - call.start if call.end >= call.start else 0.0,
        )
        turns.append(Turn(reply, "", 0.0, number + 1 == len(calls), False, tools=tuple(used[number])))
    first = calls[0]
    options = json_of(first.at("llm.invocation_parameters"))
    plain = (
        {k: v for k, v in options.items() if isinstance(v, str | int | float)} if isinstance(options, Mapping) else {}
    )
    for name in [name for name in plain if "key" in name.lower() or ("token" in name.lower() and name != "max_tokens")]:
        del plain[name]
    model = first.text("llm.model_name", "gen_ai.response.model", "gen_ai.request.model")[:200] or UNKNOWN
    return tuple(_messages(first, "input")), tuple(turns), model, plain


def _count(span: Span, *paths: str) -> int | None:
    for path in paths:
        value = span.at(path)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 10**9:
            return int(value)
    return None


# --- a file -----------------------------------------------------------------------------------------------------------


def run_of_traces(name: str, model: str, created: str, embedder: str) -> RunInfo:
    """The run that steps of traces belong to."""
    return RunInfo.of_others(name, ENVIRONMENT, MemRLSettings().model_dump(), model, embedder, created)


def import_spans(
    path: Path, uri: str, by: str = "", on_progress: Progress = unheard, cancelled: Cancelled = never
) -> Arrival | None:
    """Take the traces in a file into the bank at `uri` as a run, a step each, all or nothing; None when `cancelled()`.

    A bank that is not there is made, with the embedder of new banks. The run is named after the file. Where the file
    holds all traces of a run, that run goes on with the others, and with the scores that came since: the same file
    again changes nothing. Of a file of more than `TOGETHER` bytes only a part is in memory at a time. `by` is as in
    `bring_in`. Raises `InputError` for a file that holds no trace, `ModelError`, and what `bring_in` raises.
    """
    try:
        return _imported(path, uri, by, on_progress, cancelled)
    except _Stopped:
        return None


def _traces_in(bank: MemoryBank) -> dict[str, set[str]]:
    """The traces that are steps of each run of others' agents, by their ids."""
    runs = [info.id for info in bank.runs() if info.environment == ENVIRONMENT]
    return {run: {row.task for row in bank.steps.rows(run)} for run in runs}


class _Stopped(Exception):
    """Somebody cancelled; raised so that what was written is taken back."""


def _imported(path: Path, uri: str, by: str, on_progress: Progress, cancelled: Cancelled) -> Arrival:
    index, preferences = _Index(source_of(str(path)), path.stat().st_size, on_progress, cancelled), load_preferences()

    def made_by() -> tuple[str, int, str, str]:
        made = new_embedder(default_embedder(), preferences)
        return made.name, made.dimension, made.digest, made.version

    adopted, lacks, made = set[str](), dict[str, None](), set[str]()
    skipped, count, repeated, written, judged = index.skipped, 0, 0, 0, 0
    with bank_for(uri, made_by) as bank:
        embedder = embedder_of(bank, preferences)
        place = _place_for(index.traces, _run_name(path), bank)
        parts = index.parts(place[1])
        first = list(islice(parts, 1))
        # An embedder may take long: meanwhile others can write.
        vectors = _vectors_before(first, place[1], embedder, on_progress, cancelled)
        with bank.write.alone():  # One transaction: all or nothing.
            if by and bank.facts:
                bank.people.must_be(by, RoleOfPerson.MANAGE)
            before = len(bank.memory_ids())
            name, there = _place_for(index.traces, _run_name(path), bank)
            parts = chain(first, parts) if place == (name, there) else index.parts(there)
            del first  # A part may be large.
            others = {} if there else _traces_in(bank)
            info = bank.run(name) if there else run_of_traces(name, index.model, index.created, embedder.name)
            steps = Steps(embedder, info, bank, bank.next_step(name) if there else 1, vectors)
            if there:
                steps.known.update(bank.utilities(name))
                adopted |= set(steps.known)
            # Of a trace that came in parts, the first step has its rewards.
            stored = {row.task: row for row in reversed(bank.steps.rows(name))} if there else {}
            new = [trace for trace in index.traces if trace[:200] not in there]
            for gathered in parts:
                for trace in [one for one in gathered.spans if one[:200] in there]:
                    scores = scores_of(gathered.spans.pop(trace).values(), gathered.scores.pop(trace, []))
                    unused = steps.judge(stored[trace[:200]], scores)
                    skipped += [Skipped(f"scores of trace {trace}", why) for why in unused]
                if steps.rewards:
                    rewards = [replace(one, seq=seq) for seq, one in enumerate(steps.rewards, start=bank.clock + 1)]
                    bank.write.adopt({}, rewards, [])
                    judged += len(rewards)
                    steps.known.update(bank.utilities(name))
                    steps.rewards.clear()
                for trace, spans in gathered.in_order():
                    if cancelled():
                        raise _Stopped
                    count += len(spans)
                    if not steps.add(trace, spans, gathered.scores.pop(trace, [])):
                        skipped.append(Skipped(f"trace {trace}", SAYS_NOTHING))
                    on_progress(len(made) + len(steps.traces), len(new))
                repeated += gathered.repeated
                is_first = not (there or made)
                events = events_of(steps, info, bank.clock + 1, None if is_first else adopted)
                bank.write.adopt(
                    {one: kept for one, kept in steps.memories.items() if one not in adopted}, events, steps.traces
                )
                adopted |= set(steps.memories)
                made.update(one.task.id for one in steps.traces)
                written += len(events)
                lacks |= dict.fromkeys(lack for one in steps.traces for lack in one.lacks)
                steps.forget()
            if not (made or there):
                raise InputError(f"{path.name} holds no trace that can be a step. {NOTHING} Choose another file.")
            memories = len(bank.memory_ids()) - before
    read = _read(count, len(new), len(made), len(steps.memories), repeated)
    if there:
        read = (*read, f"Steps of run {name} already: {counted(len(there), 'trace')}.")
        read += (f"Rewards that came since: {judged:,}.",) if judged else () if made else (UNCHANGED,)
    shared = {run: len(made & traces) for run, traces in others.items()}
    of = counted(len(made), "trace")
    read += tuple(f"{some:,} of its {of} are steps of run {run} too." for run, some in shared.items() if some)
    account = Account(f"spans ({index.source.kind})", read, tuple(skipped), (), tuple(lacks))
    renamed = {} if there or name == _run_name(path) else {_run_name(path): name}
    runs = (name,) if made or judged else ()
    return Arrival(account, uri, runs, memories, len(made), written + judged, renamed_runs=renamed)


def _vectors_before(
    parts: Iterable[Gathered], there: Collection[str], embedder: Embedder, on_progress: Progress, cancelled: Cancelled
) -> dict[str, Vector | None]:
    """The vectors that the steps of traces need, but for those that are `there`."""
    made: dict[str, Vector | None] = {}
    new = [spans for part in parts for trace, spans in part.in_order() if trace[:200] not in there]
    for number, spans in enumerate(new, start=1):
        if cancelled():
            raise _Stopped
        made |= vectors_of(embedder, _Tree(spans).texts, made)
        on_progress(number, len(new))
    return made


def _place_for(traces: Collection[str], name: str, bank: MemoryBank) -> tuple[str, set[str]]:
    """The run that traces go to, and those that are its steps already: a new one, unless they hold all of it."""
    runs, wanted = {info.id for info in bank.runs()}, {trace[:200] for trace in traces}
    # Of a run that has the file's name, a file may hold a part only.
    held = [
        (run, there & wanted)
        for run, there in _traces_in(bank).items()
        if there and (there <= wanted or (run == name and wanted <= there))
    ]
    free = next(one for one in chain([name], map(f"{name}-{{}}".format, itertools.count(2))) if one not in runs)
    return max(held, key=lambda one: len(one[1]), default=(free, set[str]()))


class _Index:
    """A source of spans that was looked through once: its traces, oldest first, of which some can be read at a time."""

    def __init__(self, source: Source, size: int, on_progress: Progress, cancelled: Cancelled) -> None:
        """Look through all of it, `size` bytes. Raises `_Stopped`."""
        self.source, self.skipped, self._cancelled = source, list[Skipped](), cancelled
        self._of_rows: list[tuple[str, ...]] = []
        self.judged = set[str]()
        begins, scored, models, before = dict[str, float](), set[str](), set[str](), 0
        self._bytes: defaultdict[str, float] = defaultdict(float)
        for where, row, done in source.rows():
            self._pause(done, on_progress)
            gathered = Gathered()
            if isinstance(row, str):
                self.skipped.append(Skipped(where, row))
            else:
                self._of_rows.append(tuple(gathered.take(row, where)))
            self.skipped += gathered.skipped
            scored.update(gathered.scores)
            self.judged.update(gathered.scores)
            for trace, spans in gathered.spans.items():
                self.judged.update([trace] if scores_of(spans.values()) else ())
                begins[trace] = min(begins.get(trace, math.inf), *map(_begin, spans.values()))
                models.update(map(_model, spans.values()))
                self._bytes[trace] += (done - before) / source.size * size
            before = done
        self.traces = sorted(begins, key=lambda trace: (begins[trace], trace))
        self.skipped += [Skipped(f"scores of trace {trace}", NO_SPAN) for trace in scored - set(begins)]
        models.discard("")
        self.model = models.pop() if len(models) == 1 else UNKNOWN
        first = begins[self.traces[0]] if self.traces else math.inf
        self.created = moment_of(first if first < math.inf else math.nan)

    def _pause(self, done: int, on_progress: Progress = unheard) -> None:
        if len(self._of_rows) % OFTEN == 0:
            on_progress(done, self.source.size)
            if self._cancelled():
                raise _Stopped

    def parts(self, there: Collection[str]) -> Iterator[Gathered]:
        """The spans of the traces that are not `there`, or are judged, in order, about `TOGETHER` bytes at a time."""
        part, held = set[str](), 0.0
        for trace in (one for one in self.traces if one[:200] not in there or one in self.judged):
            if part and held + self._bytes[trace] > TOGETHER:
                yield self._part(part)
                part, held = set[str](), 0.0
            part.add(trace)
            held += self._bytes[trace]
        if part:
            yield self._part(part)

    def _part(self, traces: set[str]) -> Gathered:
        found, of_rows = Gathered(), iter(self._of_rows)
        for number, (where, row, _) in enumerate(self.source.rows()):
            if number % OFTEN == 0 and self._cancelled():
                raise _Stopped
            if not isinstance(row, str) and not traces.isdisjoint(next(of_rows, ())):
                found.take(row, where)
        for held in (found.spans, found.scores):
            for trace in [*held]:
                if trace not in traces:
                    del held[trace]
        return found


def _model(span: Span) -> str:
    return span.text("llm.model_name", "gen_ai.request.model")


def _run_name(path: Path) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).strip("-.")[:40]
    return f"traces-{plain}" if plain else "traces"


def _read(spans: int, traces: int, steps: int, memories: int, repeated: int) -> tuple[str, ...]:
    """What was read, in sentences."""
    all_of_it = f"{counted(spans, 'span')} of {counted(traces, 'trace')}: {counted(steps, 'step')}, "
    twice = f"Spans that came more than once: {repeated:,}; the fuller one was taken."
    return (f"{all_of_it}{counted(memories, 'memory')}.", *([twice] if repeated else []))


def events_of(
    steps: Steps, info: RunInfo, first_seq: int = 1, known: Collection[str] | None = None
) -> tuple[LedgerEvent, ...]:
    """The ledger of some steps: the start of their run, its memories as they came, and the rewards.

    A run that is there already does not start again, nor do the memories come again that are `known` to it.
    """
    new = dict.fromkeys((name for name in steps.memories if name not in (known or ())), Utility(0.0, 0))
    begin = started_with(info, new, first_seq, steps.metadata)[0 if known is None else 1 :]
    return tuple(replace(event, seq=seq) for seq, event in enumerate((*begin, *steps.rewards), start=first_seq))


def scores_of(spans: Iterable[Span], given: Iterable[Score] = ()) -> list[Score]:
    """The judgements of a trace: those `given` for the whole of it, then those of its spans."""
    listed = [*spans]
    found = [*given, *(score for span in listed for score in span.scores)]
    return [*found, *(score for span in listed if span.kind == "EVALUATOR" for score in score_of(span.tree))]


def as_number(score: Score, settings: Mapping[str, Any]) -> float | None:
    """A judgement as a reward on the scale of a run: its number, else what its label says of success; else None."""
    if score.value is not None:
        return float(score.value)
    by_outcome = {"success": settings["reward_success"], "failure": settings["reward_failure"]}
    return by_outcome.get(outcome_of(score.label))
