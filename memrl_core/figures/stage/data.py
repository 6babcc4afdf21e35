"""Recorded steps, and the memories around them, as the plain JSON that the stage draws.

Memories are named by their place in the table `memories`; what is not known is null.

    {run:      {id, bank, policy, environment, model, simulated, q: [low, middle, high]},
     memories: {id, label, x, y, intent, outcome, step, run, about: a list each; intents: [[text, family]]; layout;
                texts: {n: text}; histories: {n: [[step, q]]}; nearest: {n: [[n, similarity]]}; now: {n: q}},
     before:   [[q, visits] | null]        a memory each: what the run believed before the first of `steps`
     moves:    {step: [[n, q, visits]]}    what was believed otherwise when that step had ended; q null: seen no more
     steps:    [step]
    strip, film: of the whole run, in the player only (strip.py, film.py)}

    step = {id, step, epoch, task: {id, intent, family}, origin, lacks: [sentence], query: [x, y] | null,
            next: phase that runs next, 1 to 7, or null; lines: [a sentence a phase]; missing: {phase: sentence};
            recall:   {rule, why, signal, k1, counts, delta, strict, memories, pool: size} | null
            decision: {k2, weight, normaliser, lines: [{term, mean, sd, source, flat}], mode, note, selected: [n],
                       greedy: [n], slides: whether eq. 7 ranked it, flips: [λ], warnings: [sentence],
                       opens: {mean, sd, floor, least} | null} | null
            candidates: [{memory: n, similarity, q, visits, rank_a, rank_b, z: [similarity, q], rest: [[name, value,
                         grows with λ]], score, tie: place among equals, selected, missed: not in the pool, short, why,
                         own: the agent's score with its name, such as "bm25 12.7", taken: [[λ, λ]]}]
            prompt:   [{role, parts: [[text, n | null]]}] | null
            follows:  [n] | null, followed and credit: a sentence each, or "",
            answer:   {model, simulated, turns: [{text, observation, recalled, notes: [text]}]} | null
            reward:   {reward, source, rater, reason, outcome, verdict, environment, credited: [n]} | null
            update:   {changes: [{memory: n, before, after, reward, formula}], others} | null
            then:     {reward, update} as recorded when the step ended, null where they still count so
            write:    {operations: [{op, memory: n | null, line}]} | null}

`candidates` are in the order of phase A, those that missed the pool last. `taken` are the ranges of λ in which greedy
selection takes a memory. `opens` is what phase_b.js needs to recall another pool from the candidates, under other k1
and δ: mean and sd of the `fixed` normaliser, the q floor and the least q; null where the candidates do not tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.decision.explain import credited_because, followed, update_formula, warnings
from memrl_core.analysis.decision.labels import SHORT_REASONS, memory_label, own_score, reason_sentence
from memrl_core.analysis.decision.outline import line, operation_line, passages, reply_notes
from memrl_core.analysis.decision.spectrum import Spectrum, spectrum
from memrl_core.analysis.memory.relations import KNOWN_APART, known_of
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.layouts import Point
from memrl_core.errors import SettingsError, in_order
from memrl_core.figures.palette import q_range
from memrl_core.prompting import sent
from memrl_core.records import (
    Candidate,
    Decision,
    GenerateRecord,
    Memory,
    MemoryOperation,
    Phase,
    Reason,
    RecallRecord,
    RewardRecord,
    RunInfo,
    StepTrace,
    UpdateRecord,
    Utility,
    UtilityPoint,
)
from memrl_core.retrieval.exploration import Ties, order_of_equals
from memrl_core.retrieval.view import Embeddings, Vectors
from memrl_core.settings import MemRLSettings

Number = Callable[[str], int]

NEAREST, LOOKED_AT = 8, 400
"""Memories that are named as nearest to one, and how many are looked through for as many intents."""
LONGEST_TEXT = 20_000
LONGEST_INTENT = 300
"""Of an intent on the map; the task itself is shown as `LONGEST_TEXT` allows."""
DIGITS = 4
"""Of coordinates: a thousandth of a pixel."""

MEMRL = "memrl"
_BY_RANK = frozenset((Reason.BEYOND_K1, Reason.BELOW_DELTA, Reason.Q_BELOW_MINIMUM))
"""Why a memory missed the pool that another k1 or δ may let in, or its q keeps out of any."""

NOT_REPORTED = "This step came from another agent, which did not report this part."
NEVER_CAME = "The step ended before this phase."
NOT_YET = "Not reached yet."


@dataclass(frozen=True, slots=True)
class Known:
    """What a run believed over some of its steps.

    `before` maps each memory that the run saw before the first of them to its q and visits. `moves` has, for each step,
    what was believed otherwise when it had ended: None for a memory that the run sees no longer.
    """

    before: Mapping[str, Utility]
    moves: Mapping[int, Mapping[str, Utility | None]]


@dataclass(frozen=True, slots=True)
class StageSource:
    """All that a stage is made of.

    `traces` in the order of their steps; `memories` oldest first, those at least that `known` names and the bank holds;
    `places` and `queries` (by step) are coordinates on the map, and `layout` their name. `whole` are the memories whose
    texts go along, None for all. `next_phase` is the phase that the last of the traces waits for, None when it has
    ended. `families` has those of tasks that are not in `traces`, `histories` how some q came about, where `known`
    begins too late to tell; `nearest` the memories most similar to some, best first, with their similarity; `now` what
    the bank holds of some, whatever step is shown; `metadata` what is known of some besides their texts. `strip` and
    `film` are the whole run, where it goes along (strip.py, film.py). `recorded` are the traces, by step, as they were
    when their step ended, where these are as they count now.
    """

    run: RunInfo
    bank: str
    traces: Sequence[StepTrace]
    memories: Sequence[Memory]
    places: Mapping[str, Point]
    queries: Mapping[int, Point]
    known: Known
    whole: Collection[str] | None = None
    next_phase: Phase | None = None
    families: Mapping[str, str] = field(default_factory=dict)
    histories: Mapping[str, Sequence[UtilityPoint]] = field(default_factory=dict)
    layout: str = ""
    nearest: Mapping[str, Sequence[tuple[str, float]]] = field(default_factory=dict)
    now: Mapping[str, Utility] = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    strip: Mapping[str, Any] | None = None
    film: Mapping[str, Any] | None = None
    recorded: Mapping[int, StepTrace] = field(default_factory=dict)


def nearest_memories(
    memory: Memory,
    embedding: npt.NDArray[np.float32],
    of_row: Callable[[int], Memory],
    embeddings: Vectors | Embeddings,
) -> list[tuple[str, float]]:
    """The memories whose intents are most similar to a memory's, best first: of each intent the most similar one.

    `embeddings` (n, d) are those to choose from and `of_row` gives the memory of each. Copies of the memory's own
    intent are left out: they are one point.
    """
    similarity = embeddings @ embedding
    found: dict[str, tuple[str, float]] = {}
    for row in np.argsort(-similarity, kind="stable")[:LOOKED_AT].tolist():
        other = of_row(row)
        if other.intent != memory.intent:
            found.setdefault(other.intent, (other.id, float(similarity[row])))
    return [*found.values()][:NEAREST]


def query_places(
    traces: Sequence[StepTrace],
    memories: Sequence[Memory],
    places: Mapping[str, Point],
    place_of: Callable[[npt.NDArray[np.float32]], Point],
) -> dict[int, Point]:
    """By step, where its query lies: where the oldest memory of the same intent does, else where `place_of` puts it."""
    wanted = {trace.task.intent for trace in traces}
    of_intent: dict[str, Point] = {}
    for memory in memories:
        if memory.intent in wanted and memory.id in places:
            of_intent.setdefault(memory.intent, places[memory.id])
    found = {}
    for trace in traces:
        if trace.task.intent in of_intent:
            found[trace.step] = of_intent[trace.task.intent]
        elif trace.embed is not None and places:
            found[trace.step] = place_of(np.asarray(trace.embed.embedding, dtype=np.float32))
    return found


def known_of_run(bank: MemoryBank, run: str) -> Known:
    """What a run believed before its first step, and what each of its finished steps changed of that."""
    before: dict[str, Utility] | None = None
    believed: dict[str, Utility] = {}
    moves: dict[int, dict[str, Utility | None]] = {}
    last_q, last_visits, ended = np.zeros(0), np.zeros(0, np.int64), 0
    for step, view in bank.walk(run):
        # The walk's view has the same rows at every step.
        q, visits, seen = np.full(len(view.ids), np.nan), np.zeros(len(view.ids), np.int64), view.positions()
        q[seen], visits[seen] = view.q[seen], view.visits[seen]
        if before is None:
            before = {view.ids[row]: Utility(float(q[row]), int(visits[row])) for row in seen.tolist()}
            believed = dict(before)
        else:
            changed = (last_q != q) & ~(np.isnan(last_q) & np.isnan(q)) | (last_visits != visits)
            moves[ended] = {
                view.ids[row]: None if np.isnan(q[row]) else Utility(float(q[row]), int(visits[row]))
                for row in np.flatnonzero(changed).tolist()
            }
            believed = {name: known for name, known in (believed | moves[ended]).items() if known is not None}
        last_q, last_visits, ended = q, visits, step
    if before is None:
        return Known(bank.utilities(run), moves)
    now = bank.utilities(run, as_of=ended)
    gone: dict[str, Utility | None] = dict.fromkeys(believed.keys() - now.keys())
    moves[ended] = gone | {name: known for name, known in now.items() if believed.get(name) != known}
    return Known(before, moves)


def written_by(traces: Sequence[StepTrace]) -> dict[int, dict[str, Utility | None]]:
    """Which memories these steps brought and took away, as `Known.moves`; `as_it_counts_now` fills in every q.

    That is quicker than `known_of_run`, which also knows what people did to memories between the steps.
    """
    moves: dict[int, dict[str, Utility | None]] = {}
    for trace in traces:
        operations = trace.write.operations if trace.write is not None else ()
        moved = moves.setdefault(trace.step, {})
        for one in operations:
            moved |= dict.fromkeys(one.replaces)
            if one.op not in ("DELETE", "NOOP"):
                moved[one.memory_id] = Utility(0.0, 0)
    return moves


def as_it_counts_now(known: Known, histories: Mapping[str, Sequence[UtilityPoint]], first: int, last: int) -> Known:
    """The same memories over the steps `first` to `last`, with every q that `histories` have as these have it now.

    `known` says which memories the run saw; it may hold what was believed then, before later rewards.
    """

    def at(name: str, step: int, otherwise: Utility) -> Utility:
        points = histories.get(name, ())
        upto = bisect_right(points, step, key=lambda point: point.step)
        return Utility(points[upto - 1].after, points[upto - 1].visits) if upto else otherwise

    before = {name: at(name, first - 1, utility) for name, utility in known.before.items()}
    points: dict[int, dict[str, Utility]] = {}
    for name, history in histories.items():
        for point in history[bisect_right(history, first - 1, key=lambda point: point.step) :]:
            if point.step <= last:
                points.setdefault(point.step, {})[name] = Utility(point.after, point.visits)
    moves: dict[int, dict[str, Utility | None]] = {}
    seen = set(before)
    for step in sorted({*points, *known.moves}):
        then = known.moves.get(step, {})
        for name, utility in then.items():
            (seen.discard if utility is None else seen.add)(name)
        arrived = {name: utility and at(name, step, utility) for name, utility in then.items()}
        moves[step] = arrived | {name: utility for name, utility in points.get(step, {}).items() if name in seen}
    return Known(before, moves)


def stage_data(source: StageSource) -> dict[str, Any]:
    """The whole of what `mountStage` takes."""
    data = stage_update(source, {}, 0)
    before: list[list[float] | None] = [None] * len(data["memories"]["id"])
    for n, q, visits in data.pop("jump"):
        before[n] = [q, visits]
    run = {name: part for name, part in (("strip", source.strip), ("film", source.film)) if part is not None}
    return {**data, "before": before, **run}


def stage_update(source: StageSource, base: Mapping[str, Utility], rows: int) -> dict[str, Any]:
    """The same for who has the first `rows` memories of the table, with what was believed of them at another time.

    In the place of `before` stands `jump`: [[n, q, visits]], what the run believed before the first step otherwise than
    `base` says; q is null for what it did not see.
    """
    table = _Table(source)
    steps = [
        finite(_step(trace, table.number, source, source.next_phase if trace is source.traces[-1] else None))
        for trace in source.traces
    ] or [_no_step()]
    moves = {
        str(step): [
            [table.number(name), None if known is None else known.q, 0 if known is None else known.visits]
            for name, known in moved.items()
        ]
        for step, moved in source.known.moves.items()
    }
    then = source.known.before
    jump: list[list[float | None]]
    jump = [[table.number(name), known.q, known.visits] for name, known in then.items() if base.get(name) != known]
    jump += [[table.number(name), None, 0] for name in base.keys() - then.keys()]
    # Last: steps may name memories that nobody knows.
    return {"run": _run(source), "memories": table.json(rows), "jump": jump, "moves": moves, "steps": steps}


def finite(data: Any) -> Any:
    """The same with null for every number that is none, which JSON does not have."""
    if isinstance(data, dict):
        return {name: finite(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not np.isfinite(data) else data


def _run(source: StageSource) -> dict[str, Any]:
    try:
        scale = list(q_range(source.run.settings))
    except (KeyError, TypeError, ValueError):
        scale = [-1.0, 0.0, 1.0]
    of_run = _fields(source.run, "id", "policy", "environment", "model", "simulated")
    return {**of_run, "bank": source.bank, "q": scale}


def _fields(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


@dataclass
class _Table:
    """Memories by number; one that is named and that nobody knows gets a number of its own."""

    source: StageSource
    _numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = {memory.id: n for n, memory in enumerate(self.source.memories)}

    def number(self, memory_id: str) -> int:
        return self._numbers.setdefault(memory_id, len(self._numbers))

    def json(self, first: int) -> dict[str, Any]:
        """The rows from `first` on; texts and histories of all that have any."""
        source, run = self.source, self.source.run.id
        names = [*self._numbers]
        unknown = names[len(source.memories) :]
        nobody = [None] * len(unknown)
        shown = source.memories[first:]
        families = {**source.families, **{trace.task.id: trace.task.family for trace in source.traces}}
        intents: dict[tuple[str, str], int] = {}
        numbers: list[int | None] = []
        for memory in shown:
            key = (_cut(memory.intent, LONGEST_INTENT), families.get(memory.task, ""))
            numbers.append(intents.setdefault(key, len(intents)))
        places = [_rounded(source.places.get(memory.id)) for memory in shown]
        whole = source.memories if source.whole is None else [m for m in source.memories if m.id in source.whole]
        return {
            "layout": source.layout,
            "id": names[first:],
            "label": [memory_label(name, run) for name in names[first:]],
            "x": [*(x for x, _ in places), *nobody],
            "y": [*(y for _, y in places), *nobody],
            "intent": [*numbers, *nobody],
            "outcome": [*(memory.outcome for memory in shown), *nobody],
            "step": [*(memory.step for memory in shown), *nobody],
            "run": [*(memory.run for memory in shown), *nobody],
            "about": [*(self._about(memory.id) for memory in shown), *nobody],
            "intents": [list(key) for key in intents],
            "texts": {str(self.number(memory.id)): _cut(memory.experience, LONGEST_TEXT) for memory in whole},
            "histories": {
                str(self.number(name)): [[point.step, point.after] for point in points]
                for name, points in source.histories.items()
            },
            "nearest": {
                str(self.number(name)): [[self.number(other), round(similarity, DIGITS)] for other, similarity in near]
                for name, near in source.nearest.items()
            },
            "now": {str(self.number(name)): known.q for name, known in source.now.items()},
        }

    def _about(self, memory_id: str) -> str | None:
        known = self.source.metadata.get(memory_id)
        return _cut(KNOWN_APART.join(known_of(known)), LONGEST_INTENT) if known else None


def _rounded(place: Point | None) -> tuple[float | None, float | None]:
    return (None, None) if place is None else (round(place[0], DIGITS), round(place[1], DIGITS))


def _cut(text: str, longest: int) -> str:
    """The text, or its beginning with a word on how much more there is; what is no Unicode is replaced.

    Signs that turn the letters after them round are left out: other words stand in the same line.
    """
    text = in_order(text).encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text) - longest:,} more characters)"


# --- one step ---------------------------------------------------------------------------------------------------------


def _step(trace: StepTrace, number: Number, source: StageSource, next_phase: Phase | None) -> dict[str, Any]:
    query, decision = source.queries.get(trace.step), trace.decision
    lines = spectrum(decision) if decision and decision.normaliser_lines else None
    lines = lines if lines and lines.ids else None
    recorded = source.recorded.get(trace.step, trace)
    changed = recorded.reward != trace.reward or recorded.update != trace.update
    return {
        **_fields(trace, "id", "step", "epoch", "origin"),
        "task": {**_fields(trace.task, "id", "family"), "intent": _cut(trace.task.intent, LONGEST_TEXT)},
        "lacks": list(trace.lacks),
        "query": list(_rounded(query)) if query else None,
        "next": None if next_phase is None else list(Phase).index(next_phase) + 1,
        "lines": [_cut(line(trace, phase), LONGEST_INTENT) for phase in Phase],
        "missing": _missing(trace, next_phase),
        "recall": trace.recall and _recall(trace.recall),
        "decision": decision and _decision(trace, decision, number, lines),
        "candidates": _candidates(trace, number, lines),
        "prompt": _prompt(trace.generate, number) if trace.generate and trace.generate.messages else None,
        "answer": trace.generate and stage_answer(trace.generate),
        "follows": None if trace.follows is None else list(map(number, trace.follows.memories)),
        "followed": followed(trace),
        "credit": credited_because(trace),
        "reward": trace.reward and _reward(trace.reward, number),
        "update": trace.update and _update(trace.update, trace.run, number),
        "then": {
            "reward": recorded.reward and _reward(recorded.reward, number),
            "update": recorded.update and _update(recorded.update, trace.run, number),
        }
        if changed
        else None,
        "write": trace.write and {"operations": [_written(one, trace.run, number) for one in trace.write.operations]},
    }


def _no_step() -> dict[str, Any]:
    """What is shown for a run that has no step yet: its memories are on the map all the same."""
    nothing = dict.fromkeys(("query", "recall", "decision", "prompt", "answer", "reward", "update", "write"))
    return {
        **nothing, "id": "", "step": 0, "epoch": 0, "task": {"id": "", "intent": "No step yet.", "family": ""},
        "origin": "agent", "lacks": [], "next": 1, "lines": [""] * len(Phase), "candidates": [],
        "follows": None, "followed": "", "credit": "", "then": None,
        "missing": {str(n + 1): NOT_YET for n in range(len(Phase))},
    }  # fmt: skip


def _missing(trace: StepTrace, next_phase: Phase | None) -> dict[str, str]:
    """Why a phase has no record; a task without its vector is a task all the same."""
    records = (trace.recall, trace.decision, trace.generate, trace.reward, trace.update, trace.write)
    waiting = list(Phase).index(next_phase) if next_phase is not None else len(Phase)
    why = NEVER_CAME if trace.origin == "agent" else NOT_REPORTED
    return {str(n + 1): NOT_YET if n >= waiting else why for n, record in enumerate(records, start=1) if record is None}


def _recall(recall: RecallRecord) -> dict[str, Any]:
    of_recall = _fields(recall, "rule", "why", "signal", "k1", "delta", "strict", "memories")
    return {**of_recall, "counts": recall.k1_counts, "pool": len(recall.pool)}


def _decision(trace: StepTrace, decision: Decision, number: Number, lines: Spectrum | None) -> dict[str, Any]:
    return {
        **_fields(decision, "k2", "weight", "normaliser", "mode", "note"),
        "lines": [_fields(one, "term", "mean", "sd", "source", "flat") for one in decision.normaliser_lines],
        "selected": list(map(number, decision.selected)),
        "greedy": list(map(number, decision.greedy)),
        "slides": lines is not None,
        "flips": [flip.weight for flip in lines.flips] if lines else [],
        "opens": _opens(trace, decision),
        "warnings": warnings(trace.recall, decision, trace.run) if trace.recall else [],
    }


def _opens(trace: StepTrace, decision: Decision) -> dict[str, float | None] | None:
    """What another pool of the step is standardised and bounded by; None where its candidates do not tell that pool."""
    recall = trace.recall
    if (
        trace.policy != MEMRL
        or not decision.normaliser_lines
        or recall is None
        or (recall.rule, recall.k1_counts) != ("similarity", "record")
    ):
        return None
    # A bonus or noise of exploration is another one in another pool.
    if any(len(c.terms) > 2 for c in decision.candidates) or not {c.reason for c in recall.left_out} <= _BY_RANK:
        return None
    try:
        settings = MemRLSettings.of(trace.settings)
    except SettingsError:
        return None
    return {
        "mean": settings.fixed_mean, "sd": settings.fixed_sd, "floor": settings.floor, "least": settings.least_q,
    }  # fmt: skip


def _candidates(trace: StepTrace, number: Number, lines: Spectrum | None) -> list[dict[str, Any]]:
    """The memories that were considered, in the order of phase A, those that missed the pool last."""
    recall, decision = trace.recall, trace.decision
    if decision is None:
        # Phase B has not spoken yet.
        return [
            {
                "memory": number(one.memory_id),
                "similarity": one.similarity,
                "rank_a": one.rank_recall,
                "own": own_score(recall, one.memory_id) if recall else "",
                "missed": one.reason is not None,
                "short": SHORT_REASONS[one.reason] if one.reason else "",
                "why": "",
            }
            for one in ((*recall.pool, *recall.left_out) if recall else ())
        ]
    pool = {seen.memory_id for seen in recall.pool} if recall else set()
    missed = {c.memory_id: c.memory_id not in pool if recall else c.rank_select is None for c in decision.candidates}
    ranks = {c.memory_id: c.rank_recall for c in decision.candidates}
    taken = {memory_id: lines.taken(memory_id) for memory_id in lines.ids} if lines else {}
    ties: dict[str, int] = {}
    if decision.normaliser_lines:
        # What orders members of a pool with equal scores and similarities: the step's seed, or age.
        rule: Ties = "older" if trace.settings.get("ties") == "older" else "seeded"
        keys = order_of_equals(np.array([*ranks.values()], dtype=np.int64), rule, decision.seed)
        ties = dict(zip(ranks, keys.argsort().argsort().tolist(), strict=True))
    return [
        {
            **_candidate(c),
            "memory": number(c.memory_id),
            "missed": missed[c.memory_id],
            "own": own_score(recall, c.memory_id) if recall else "",
            "why": reason_sentence(c, recall, decision) if recall else "",
            "tie": ties.get(c.memory_id, c.rank_select),
            "taken": taken.get(c.memory_id),
        }
        for c in sorted(decision.candidates, key=lambda c: (missed[c.memory_id], c.rank_recall))
    ]


def _candidate(candidate: Candidate) -> dict[str, Any]:
    terms = candidate.terms
    standard = [term.name for term in terms[:2]] == ["similarity", "q"]
    return {
        **_fields(candidate, "similarity", "q", "visits", "score", "selected"),
        "rank_a": candidate.rank_recall,
        "rank_b": candidate.rank_select,
        "z": [terms[0].normalised, terms[1].normalised] if standard else None,
        "rest": [
            # The noise of Thompson sampling is weighted like q itself; a bonus has a weight of its own.
            [term.name, term.normalised if term.name == "noise" else term.contribution, term.name == "noise"]
            for term in (terms[2:] if standard else terms)
        ],
        "short": SHORT_REASONS[candidate.reason],
    }


def _prompt(record: GenerateRecord, number: Number) -> list[dict[str, Any]]:
    messages, spans = sent(record, 0)
    shown = []
    for n, message in enumerate(messages):
        parts = passages(message.content, (span for span in spans if span.message == n))
        named = [[_cut(text, LONGEST_TEXT), number(memory) if memory else None] for _, text, memory in parts if text]
        shown.append({"role": message.role, "parts": named})
    return shown


def stage_answer(record: GenerateRecord) -> dict[str, Any]:
    """The answer of a step (see above), also of one that is under way."""
    turns = [
        {
            "text": _cut(turn.reply.text, LONGEST_TEXT),
            "observation": _cut(turn.observation, LONGEST_TEXT),
            "recalled": _cut(turn.recalled.text, LONGEST_TEXT) if turn.recalled else "",
            "notes": [*(["stopped"] if turn.reply.stopped else []), *reply_notes(turn.reply)],
        }
        for turn in record.turns
    ]
    return {**_fields(record, "model", "simulated"), "turns": turns}


def _reward(record: RewardRecord, number: Number) -> dict[str, Any]:
    return {
        **_fields(record, "reward", "source", "rater", "outcome", "environment"),
        "verdict": _cut(record.verdict, LONGEST_TEXT),
        "reason": _cut(record.reason, LONGEST_TEXT),
        "credited": list(map(number, record.credited)),
    }


def _update(update: UpdateRecord, run: str, number: Number) -> dict[str, Any]:
    changes = [
        {
            **_fields(change, "before", "after", "visits", "reward"),
            "memory": number(change.memory_id),
            "formula": update_formula(change, run),
        }
        for change in update.of_q
    ]
    return {"changes": changes, "others": len(update.changes) - len(changes)}


def _written(operation: MemoryOperation, run: str, number: Number) -> dict[str, Any]:
    return {
        "op": operation.op,
        "memory": number(operation.memory_id) if operation.op in ("ADD", "UPDATE", "MERGE") else None,
        "line": _cut(operation_line(operation, run), LONGEST_INTENT),
    }
