"""The labelled steps of a run as queries: what lay how near, what came, and where each memory that should come went.

Every step is looked at in the state in which it decided. No model is asked, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from memrl_core.agent.learned_state import learns
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.analysis.decision.whatif import BY_MORE_THAN_INTENTS, Space, recorded_q, seen_in, space_of, walked
from memrl_core.analysis.recall.grades import Deriver, Judged, judged
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Embedder
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.numerals import fixed
from memrl_core.policies import make_policy
from memrl_core.policies.base import seed_of
from memrl_core.policies.decide import decide
from memrl_core.records import MISSED, Reason, RecallRecord, StepTrace
from memrl_core.retrieval import exact_similarity, recall
from memrl_core.retrieval.exploration import order_of_equals
from memrl_core.retrieval.view import Asked, MemoryView

DEPTH = 50
"""So many of the nearest memories of a query are kept: what no pool reaches is not looked at in curves."""
EVERYTHING = -2.0
PRODUCT_SLACK = 1e-4

Stage = Literal[
    "not stored", "other space", "below delta", "beyond k1", "kept out", "reranked away", "no room", "given"
]
"""Where a memory that should come went, in the order of the work; "given" is in the prompt."""
STAGES: tuple[Stage, ...] = get_args(Stage)
FUNNEL = ("labelled", "stored", "comparable", "through the gate", "in the pool", "selected", "in the prompt", "used")


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a memory that should come: the stage at which it was lost, or "given".

    `similarity` and `rank` (1 = nearest of all that the run saw) are None where its vector cannot be compared. The
    similarity is the δ below which the gate would let it in. `used` says whether the answer follows it, None where that
    is not known.
    """

    memory_id: str
    grade: int
    stage: Stage
    similarity: float | None = None
    rank: int | None = None
    used: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One labelled step.

    `pool` are the memories of phase A, nearest first, `selected` those of phase B, best first, and `given` those in the
    prompt. `ids`, `similarity`, `q` and `equals` (n,) are the nearest `DEPTH` memories, nearest first: their cosine, q
    as of the step, and by what equals are ordered in phase B; empty where no vector is known. `fates` are those of all
    memories that should come.
    """

    run: str
    step: int
    intent: str
    judged: Judged
    pool: tuple[str, ...]
    selected: tuple[str, ...]
    given: tuple[str, ...]
    ids: tuple[str, ...]
    similarity: npt.NDArray[np.float64]
    q: npt.NDArray[np.float64]
    equals: npt.NDArray[np.int64]
    fates: tuple[Fate, ...]
    settings: Mapping[str, Any]
    strict: bool = True
    task: str = ""
    family: str = ""
    comparable: bool = True


def labelled(
    bank: MemoryBank,
    run: str,
    by_step: Mapping[int, Judged] | None = None,
    *,
    derive: bool = False,
    embedder: Embedder | None = None,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> list[Query] | None:
    """The labelled steps of a run, in their order; None when `cancelled()` turned true.

    `by_step` are the labels; without them those of the bank. With `derive` the environment's knowledge labels, in every
    step, all memories that the run saw. With an `embedder`, every step is decided again on its vectors, made here.
    Raises `UnknownRun`, `ModelError`, and `InputError` where a run finds memories by more than the vectors of intents.
    """
    chosen = judged(bank.judgements.standing(run)) if by_step is None else dict(by_step)
    # What was put in the place of a memory after a step could not come in it: its label is about steps to come.
    replacing = bank.editing.replacing(run) if chosen else frozenset[str]()
    deriver = Deriver(bank, run) if derive else None
    if deriver is not None and not deriver.knows:
        deriver = None
    wanted = {row.step for row in bank.steps.rows(run)} if deriver is not None else set(chosen)
    traces = {trace.step: trace for trace in bank.each_trace(run) if trace.step in wanted} if wanted else {}
    space = None
    if embedder is not None and traces:
        policy = make_policy(bank.run(run).policy, bank.settings(run))
        if learns(policy) or "model on read" in policy.spec.needs:
            raise InputError(BY_MORE_THAN_INTENTS.format(policy.spec.title))
        texts = [trace.task.intent for trace in traces.values()] + [memory.intent for memory in bank.memories()]
        space = space_of(texts, embedder, on_progress, cancelled)
        if space is None:
            return None
    found: list[Query] = []
    vectors = {step: vector for step, trace in traces.items() if (vector := _vector(trace)) is not None}
    for step, view, product in walked(bank, run, vectors if space is None else {}) if traces else ():
        if step not in traces:
            continue
        if cancelled():
            return None
        trace = traces[step]
        if deriver is not None:
            memories = [view.memories[view.ids[place]] for place in view.positions().tolist()]
            chosen[step] = judged(deriver.of_step(trace, memories)).get(step, Judged({}))
        found.append(_query(trace, view, _of_then(chosen[step], view, replacing), space, product))
        on_progress(len(found), len(traces))
    return found


def _of_then(known: Judged, view: MemoryView, replacing: frozenset[str]) -> Judged:
    """What is known of a step without the memories that took the place of others since."""
    if replacing.isdisjoint(known.grades):
        return known
    grades = {i: grade for i, grade in known.grades.items() if i not in replacing or view.sees(i)}
    return replace(known, grades=grades)


def fates_of(bank: MemoryBank, trace: StepTrace, known: Judged) -> tuple[Fate, ...]:
    """What became in one finished step of the memories that should come."""
    view = bank.view(trace.run, bank.steps.seen_until(trace.run, trace.step, trace.epoch))
    return _query(trace, view, known, None, None).fates


def lost_sentence(fate: Fate, settings: Mapping[str, Any]) -> str:
    """Where a memory that should come was lost, with its numbers; "" for one that was given."""
    at = "" if fate.similarity is None else f" Similarity {fixed(fate.similarity)}, rank {fate.rank:,}"
    delta, k1 = float(settings.get("delta", 0.0)), settings.get("k1")
    match fate.stage:
        case "not stored":
            return "Lost: not stored. The run did not know it at this step."
        case "other space":
            return "Lost: its vector, or the query's, is of another embedder."
        case "below delta":
            return f"Lost below δ.{at}; δ was {delta:g}."
        case "beyond k1":
            return f"Lost beyond k1.{at}; k1 was {k1}."
        case "kept out":
            return f"Lost: a rule of the method kept it out of the pool.{at}."
        case "reranked away":
            return f"Lost in phase B: others had a higher score.{at}."
        case "no room":
            return f"Lost: selected, and left out of the prompt, which was full.{at}."
        case _:
            return ""


def _vector(trace: StepTrace) -> npt.NDArray[np.float32] | None:
    """The vector (d,) of a step's intent; None where there is none in the space of the bank's vectors."""
    if trace.embed is None or trace.embed.decided_by:
        return None
    return np.asarray(trace.embed.embedding, dtype=np.float32)


def _query(
    trace: StepTrace, view: MemoryView, known: Judged, space: Space | None, product: npt.NDArray[np.float32] | None
) -> Query:
    settings, recalled, decision = trace.settings, trace.recall, trace.decision
    vector = _vector(trace)
    if space is not None:
        vector, view = space[trace.task.intent], seen_in(space, view)
    seed = seed_of(trace)
    if vector is not None and product is None:
        product = np.asarray(view.embeddings @ vector)
    ids, similarity, q, equals = (
        nearest(view, vector, settings, seed, product) if vector is not None else ((), *_NOTHING)
    )
    if decision is not None and space is None:
        recorded = recorded_q(decision)
        q = np.array([recorded.get(memory_id, value) for memory_id, value in zip(ids, q.tolist(), strict=True)])
    strict = recalled.strict if recalled is not None else True
    if space is None:
        pool = tuple(member.memory_id for member in recalled.pool) if recalled is not None else ()
        selected = decision.selected if decision is not None else ()
        given = _given(trace, selected)
    else:
        assert vector is not None
        asked = Asked(vector, trace.task.id, trace.task.intent, step=trace.step, seed=seed)
        recalled, decided, _ = decide(make_policy(trace.policy, settings), replace(view, asked=asked), seed)
        strict, pool = recalled.strict, tuple(member.memory_id for member in recalled.pool)
        selected = given = decided.selected
    fates = tuple(
        _fate(memory_id, grade, trace, view, vector, product, pool, selected, given, recalled, strict)
        for memory_id, grade in known.relevant.items()
    )
    return Query(
        trace.run, trace.step, trace.task.intent, known, pool, selected, given, ids, similarity, q, equals, fates,
        settings, strict, trace.task.id, trace.task.family or "", vector is not None,
    )  # fmt: skip


_NOTHING = np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64)


def nearest(
    view: MemoryView,
    vector: npt.NDArray[np.float32],
    settings: Mapping[str, Any],
    seed: int,
    product: npt.NDArray[np.float32] | None = None,
    depth: int = DEPTH,
) -> tuple[tuple[str, ...], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The `depth` memories nearest to `vector` (d,), nearest first: ids, similarities, q and order of equals (n,).

    The order is that of phase A, also among equals. `product` (n,) is as in `retrieval.recall`.
    """
    ties = "older" if settings.get("ties") == "older" else "seeded"
    record = recall(
        vector,
        view,
        k1=depth,
        k1_counts="record",
        delta=EVERYTHING,
        strict=False,
        coarse=product,
        ties=ties,  # type: ignore[arg-type]
        seed=seed,
    )
    ids = tuple(member.memory_id for member in record.pool)
    similarity = np.array([member.similarity for member in record.pool], dtype=np.float64)
    ranks = np.arange(1, len(ids) + 1, dtype=np.int64)
    return ids, similarity, view.q[view.positions_of(ids)], order_of_equals(ranks, ties, seed)  # type: ignore[arg-type]


def _given(trace: StepTrace, selected: Collection[str]) -> tuple[str, ...]:
    """The selected memories that were sent to the model: all, where the step does not say what was sent."""
    if trace.generate is None or (trace.origin != "agent" and not trace.generate.spans):
        return tuple(selected)
    left_out = set(trace.turns[0].left_out) if trace.turns else set()
    sent = {span.memory_id for span in trace.generate.spans} - left_out
    return tuple(memory_id for memory_id in selected if memory_id in sent)


def _fate(
    memory_id: str,
    grade: int,
    trace: StepTrace,
    view: MemoryView,
    vector: npt.NDArray[np.float32] | None,
    product: npt.NDArray[np.float32] | None,
    pool: Sequence[str],
    selected: Collection[str],
    given: Collection[str],
    recalled: RecallRecord | None,
    strict: bool,
) -> Fate:
    used = None if trace.follows is None else memory_id in trace.follows.memories
    similarity, rank = _placed(memory_id, view, vector, product, recalled)
    if memory_id in given:
        return Fate(memory_id, grade, "given", similarity, rank, used)
    stage: Stage
    if memory_id in selected:
        stage = "no room"
    elif memory_id in pool:
        stage = "reranked away"
    elif not view.sees(memory_id):
        stage = "not stored"
    elif similarity is None:
        stage = "other space"
    else:
        stage = _missed(memory_id, similarity, trace, recalled, strict)
    return Fate(memory_id, grade, stage, similarity, rank)


def _missed(memory_id: str, similarity: float, trace: StepTrace, recalled: RecallRecord | None, strict: bool) -> Stage:
    """Why a memory with a known similarity is not in the pool: as the step recorded it, or by its gate."""
    left_out = recalled.left_out if recalled is not None else ()
    reason = next((member.reason for member in left_out if member.memory_id == memory_id), None)
    if reason in MISSED and reason not in (Reason.BELOW_DELTA, Reason.BEYOND_K1):
        return "kept out"
    delta = recalled.delta if recalled is not None else float(trace.settings.get("delta", 0.0))
    beyond = similarity > delta if strict else similarity >= delta
    return "beyond k1" if beyond else "below delta"


def _placed(
    memory_id: str,
    view: MemoryView,
    vector: npt.NDArray[np.float32] | None,
    product: npt.NDArray[np.float32] | None,
    recalled: RecallRecord | None,
) -> tuple[float | None, int | None]:
    """A memory's similarity and its rank by it; of those that phase A recorded as it was recorded.

    `product` (n,) is that of all vectors with `vector`, whose last digits depend on how it was computed: what lies
    within `PRODUCT_SLACK` is compared exactly.
    """
    seen = (*recalled.pool, *recalled.left_out) if recalled is not None else ()
    for member in seen:
        if member.memory_id == memory_id and member.signal is None and vector is not None:
            return member.similarity, member.rank_recall
    if vector is None or product is None or not view.sees(memory_id):
        return None, None
    own = float(exact_similarity(view.embeddings[[view.position(memory_id)]], vector)[0])
    ahead = product > own + PRODUCT_SLACK
    near = (product >= own - PRODUCT_SLACK) & ~ahead
    if view.visible is not None:
        ahead, near = ahead & view.visible, near & view.visible
    exact = exact_similarity(view.embeddings[np.flatnonzero(near)], vector)
    return own, 1 + int(np.count_nonzero(ahead)) + int(np.count_nonzero(exact > own))


def weights_that_select(trace: StepTrace, memory_id: str) -> list[tuple[float, float]]:
    """The stretches of λ, (from, to) each, on which a memory of a step's pool is selected; none where there is none."""
    return [] if trace.decision is None else spectrum(trace.decision).taken(memory_id)


# --- the funnel -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Funnel:
    """How many of the memories that should come are left after each stage (`FUNNEL`), and where the others went.

    `lost` maps every stage but "given" to the (step, memory) that were lost there. All that are lost at the stages up
    to one and what is left after it add up to `counts["labelled"]`. `used` is None where it is known of none.
    """

    counts: Mapping[str, int]
    lost: Mapping[Stage, tuple[tuple[int, str], ...]]
    used: int | None


_LOST_BEFORE: Mapping[str, tuple[Stage, ...]] = {
    "stored": ("not stored",),
    "comparable": ("other space",),
    "through the gate": ("below delta",),
    "in the pool": ("beyond k1", "kept out"),
    "selected": ("reranked away",),
    "in the prompt": ("no room",),
}
"""The counts of a funnel after the first, with the stages at which memories are lost before each."""


def funnel(queries: Iterable[Query]) -> Funnel:
    """The funnel of loss of labelled steps."""
    fates = [(query.step, fate) for query in queries for fate in query.fates]
    lost: dict[Stage, tuple[tuple[int, str], ...]] = {
        stage: tuple((step, fate.memory_id) for step, fate in fates if fate.stage == stage) for stage in STAGES[:-1]
    }
    left = len(fates)
    counts = {"labelled": left}
    for name, stages in _LOST_BEFORE.items():
        left -= sum(len(lost[stage]) for stage in stages)
        counts[name] = left
    known = [fate.used for _, fate in fates if fate.stage == "given" and fate.used is not None]
    return Funnel(counts, lost, sum(known) if known else None)


PROMPT, FOLLOWED, NOT_FOLLOWED = "in the prompt", "followed by the answer", "not followed by the answer"


def left_at(queries: Iterable[Query], name: str) -> list[tuple[Query, Fate]]:
    """The memories that are left after a stage of the funnel: one of `FUNNEL` or `FOLLOWED`, each with its step."""
    gone: set[Stage] = set()
    for stage, lost in _LOST_BEFORE.items() if name != FUNNEL[0] else ():
        gone.update(lost)
        if stage == name:
            break
    found = [(query, fate) for query in queries for fate in query.fates if fate.stage not in gone]
    return [(query, fate) for query, fate in found if fate.used] if name == FOLLOWED else found


def lost_at(queries: Iterable[Query], name: Stage | str) -> list[tuple[Query, Fate]]:
    """The memories that were lost at a stage, or, with `NOT_FOLLOWED`, that the answer is not known to follow."""
    wanted = "given" if name == NOT_FOLLOWED else name
    found = [(query, fate) for query in queries for fate in query.fates if fate.stage == wanted]
    return [(query, fate) for query, fate in found if not fate.used] if name == NOT_FOLLOWED else found


def stages_before(name: str) -> tuple[str, ...]:
    """The stages at which memories are lost just before one of the funnel's counts, or before `FOLLOWED`."""
    return (NOT_FOLLOWED,) if name == FOLLOWED else _LOST_BEFORE.get(name, ())
