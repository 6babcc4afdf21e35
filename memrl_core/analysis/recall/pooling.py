"""Recall shared out among raters: steps with the memories to grade for each, pooled over methods as in TREC.

What one method shows is what gets labels, and a method that would find others would then look worse than it is. So the
memories of a step are the union of what it considered itself and of the first `depth` of other methods and embedders,
each decided again as of the step. Gold items are steps whose grades are known, which raters cannot tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest

import numpy as np

from memrl_core.agent.asking import templates, view_before
from memrl_core.analysis.people.agreement import Agreement
from memrl_core.analysis.people.rating_queue import ENVIRONMENT, UNCHANGED, PartProgress, shared_out
from memrl_core.analysis.recall.grades import RELEVANT, Deriver, Judged, agreement_of, judged
from memrl_core.analysis.recall.queries import labelled
from memrl_core.analysis.run.metrics import Rate, wilson
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.judgements import Label
from memrl_core.bank.people.roles import person_name
from memrl_core.embedders.base import Embedder
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.numerals import counted
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.base import seed_of
from memrl_core.policies.decide import decide
from memrl_core.records import StepTrace

DEPTH = 10
"""So many of the first of each method are in a pool, unless another depth is chosen."""


def pooled(
    bank: MemoryBank,
    run: str,
    steps: Sequence[int],
    methods: Sequence[str] = (),
    embedders: Sequence[Embedder] = (),
    depth: int = DEPTH,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> dict[int, tuple[str, ...]] | None:
    """The memories to grade for each step, the first of every method before the second of any; None when cancelled.

    They are the first `depth` that the step considered itself, those that each of `methods` would take under its usual
    settings with k1 = k2 = `depth`, and those nearest on the vectors of each of `embedders`. Raises `InputError` for a
    method that cannot decide these steps again, `ModelError`, `UnknownRun`.
    """
    found: dict[int, list[Sequence[str]]] = {}
    for done, step in enumerate(steps):
        if cancelled():
            return None
        on_progress(done, len(steps))
        trace = bank.trace(run, step)
        considered = trace.decision.candidates if trace.decision is not None else ()
        found[step] = [
            [one.memory_id for one in considered][:depth],
            *(_taken_by(bank, trace, name, depth) for name in methods),
        ]
    for embedder in embedders:
        queries = labelled(
            bank, run, dict.fromkeys(steps, Judged({})), embedder=embedder, on_progress=on_progress, cancelled=cancelled
        )
        if queries is None:
            return None
        for query in queries:
            found[query.step].append(query.ids[:depth])
    return {
        step: tuple(dict.fromkeys(one for one in chain.from_iterable(zip_longest(*lists)) if one is not None))
        for step, lists in found.items()
    }


def _taken_by(bank: MemoryBank, trace: StepTrace, name: str, depth: int) -> tuple[str, ...]:
    """What a method would take first in a step, best first."""
    if trace.embed is None or trace.embed.decided_by:
        raise InputError(
            f"Step {trace.step} has no vector in the space of the bank, so no other method can be asked. {UNCHANGED}; "
            "pool the run's own results alone."
        )
    policy = make_policy(name, settings_that_fit(name, {"k1": depth, "k2": depth}).model_dump())
    return decide(policy, view_before(bank, trace, name), seed_of(trace), ask=templates).decision.greedy[:depth]


def recall_batch(
    bank: MemoryBank,
    run: str,
    name: str,
    raters: Iterable[str],
    *,
    count: int,
    doubled: float = 0.0,
    gold_share: float = 0.0,
    known: str = ENVIRONMENT,
    methods: Sequence[str] = (),
    embedders: Sequence[Embedder] = (),
    depth: int = DEPTH,
    as_ranked: bool = False,
    seed: int = 0,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Batch | None:
    """A batch of `count` finished steps of a run whose recall is to be graded, drawn with a seed; not stored yet.

    A share `doubled` of them goes to two raters each, the others to one, all to those who have not labelled them.
    `gold_share` of them are gold items: the grades that `known`, the environment or a person, gives are remembered. The
    memories of a step are `pooled`, in a drawn order or `as_ranked`. None when it was cancelled. Raises as `pooled`,
    and `InputError` where that cannot be.
    """
    names = list(dict.fromkeys(person_name(rater) for rater in raters if rater.strip()))
    if not names:
        raise InputError(f"Nobody would label this batch. {UNCHANGED}; name one rater or more.")
    if doubled and len(names) < 2:
        raise InputError(f"One rater cannot label a step twice. {UNCHANGED}; name another one, or let none be doubled.")
    if known in names:
        raise InputError(f"{known[:80]} cannot label what {known[:80]}'s own labels are to judge. {UNCHANGED}.")
    labels = [label for label in bank.judgements.standing(run) if label.source == "person"]
    said: dict[str, set[int]] = defaultdict(set)
    for label in labels:
        said[label.rater].add(label.step)
    everyone = [row.step for row in bank.steps.rows(run)]
    open_to = {step: [rater for rater in names if step not in said[rater]] for step in everyone}
    candidates = [step for step in everyone if open_to[step]]
    if not candidates:
        raise InputError(f"These raters have labelled every finished step of the run. {UNCHANGED}; name others.")
    rng = np.random.default_rng(seed)
    mixed = [candidates[index] for index in rng.permutation(len(candidates)).tolist()]
    count = min(count, len(mixed))
    wanted_gold = round(gold_share * count)
    gold = _gold_steps(bank, run, mixed, known, said, wanted_gold) if wanted_gold else []
    if len(gold) < wanted_gold:
        knows = f"{known[:80]} has labelled" if known else "The environment knows what should come in"
        what = f"let {known[:80]} label more" if known else "name a person whose labels are known"
        raise InputError(
            f"{counted(wanted_gold, 'gold item')} are wanted. {knows} {len(gold) or 'none'} of these steps. "
            f"{UNCHANGED}; {what}, or want fewer."
        )
    chosen = [*gold, *(step for step in mixed if step not in set(gold))][:count]
    twice = set(np.array(chosen)[rng.permutation(count)[: round(doubled * count)]].tolist())
    parts = shared_out({step: 1 + (step in twice) for step in chosen}, open_to, names, rng)
    pools = pooled(bank, run, sorted(chosen), methods, embedders, depth, on_progress, cancelled)
    if pools is None:
        return None
    grades = {step: _known_grades(bank, run, step, pools[step], known, labels) for step in gold}
    # What a person knows to be right or wrong is asked too, also where no method brings it.
    pools = {step: tuple(dict.fromkeys([*pool, *grades.get(step, ())])) for step, pool in pools.items()}
    if not as_ranked:
        pools = {step: tuple(pool[n] for n in rng.permutation(len(pool)).tolist()) for step, pool in pools.items()}
    return Batch(
        run=run, name=name, parts=parts, overlap=2 if twice else 1, seed=seed, kind="recall", pools=pools,
        grades=grades, methods=(bank.run(run).policy, *methods, *(embedder.name for embedder in embedders)),
    )  # fmt: skip


def _gold_steps(
    bank: MemoryBank, run: str, steps: Sequence[int], known: str, said: Mapping[str, set[int]], wanted: int
) -> list[int]:
    """The first `wanted` of the steps of which it is known what should come."""
    if known:
        return [step for step in steps if step in said.get(known, ())][:wanted]
    deriver = Deriver(bank, run)
    knows = (step for step in steps if deriver.knows and deriver.speaks_of(bank.trace(run, step).task))
    return [step for step, _ in zip(knows, range(wanted), strict=False)]


def _known_grades(
    bank: MemoryBank, run: str, step: int, pool: Sequence[str], known: str, labels: Sequence[Label]
) -> dict[str, int]:
    """The grades that are known of a step: of a person all, of the environment those of the pool."""
    if known:
        said = judged(label for label in labels if (label.rater, label.step) == (known, step))[step]
        return {**(dict.fromkeys(pool, 0) if said.nothing else {}), **said.grades}
    deriver, task = Deriver(bank, run), bank.trace(run, step).task
    grades = {memory_id: deriver.grade(task, bank.memory(memory_id)) for memory_id in pool}
    return {memory_id: grade for memory_id, grade in grades.items() if grade is not None}


# --- how far everybody is ---------------------------------------------------------------------------------------------


def parts_of(bank: MemoryBank, rater: str, run: str = "") -> list[tuple[Batch, int]]:
    """The steps of a rater's parts of all open batches of recall, of a run or of all, the oldest batch first."""
    opened = (batch for batch in bank.batches.of(run) if not batch.closed and batch.kind == "recall")
    return [(batch, step) for batch in opened for step in batch.parts.get(rater, ())]


def done_steps(batch: Batch, rater: str, labels: Iterable[Label]) -> set[int]:
    """The steps of a rater's part whose every memory they have graded, or for which they say that nothing should come.

    Where no memory was pooled, any label of the step counts. `labels` are those of the batch's run.
    """
    mine, steps = _by_step(rater, labels), batch.parts.get(rater, ())
    return {
        step
        for step in steps
        if _nothing(mine[step]) or (mine[step] and set(batch.pools.get(step, ())) <= mine[step].keys())
    }


def batch_labels(batch: Batch, labels: Iterable[Label]) -> list[Label]:
    """Of these labels of the run, those that people gave to the memories of a batch."""
    asked = {(rater, step) for rater, steps in batch.parts.items() for step in steps}
    return [
        label
        for label in labels
        if label.source == "person" and (label.rater, label.step) in asked
        and label.memory_id in batch.pools.get(label.step, ())
    ]  # fmt: skip


def recall_progress(batch: Batch, labels: Iterable[Label]) -> list[PartProgress]:
    """Each rater's progress, and in how many labels of gold items they say relevant or not as is known.

    Who says that nothing should come says of every memory that it is irrelevant. The labels of one step hang together,
    so the interval counts each step as a cluster.
    """
    given = list(labels)
    rows = []
    for rater, steps in batch.parts.items():
        mine, right, clusters = _by_step(rater, given), list[bool](), list[int]()
        for step in steps:
            for memory_id, grade in batch.grades.get(step, {}).items():
                said = mine[step].get(memory_id, 0 if _nothing(mine[step]) else None)
                if said is not None:
                    right.append((said >= RELEVANT) == (grade >= RELEVANT))
                    clusters.append(step)
        gold = Rate(0, 0, None, None, None)
        if right:
            share = sum(right) / len(right)
            gold = Rate(sum(right), len(right), share, *wilson(share, clusters))
        rows.append(PartProgress(rater, len(steps), len(done_steps(batch, rater, given)), gold))
    return rows


def agreement_in(batch: Batch, labels: Iterable[Label]) -> Agreement:
    """How far those agree who labelled the same memories of a batch."""
    return agreement_of(batch_labels(batch, labels))


def _by_step(rater: str, labels: Iterable[Label]) -> defaultdict[int, dict[str, int]]:
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for label in labels:
        if label.source == "person" and label.rater == rater and label.grade is not None:
            found[label.step][label.memory_id] = label.grade
    return found


def _nothing(grades: Mapping[str, int]) -> bool:
    """Whether these labels of a step say that nothing should come, and none that a memory should."""
    return grades.get("") == 0 and not any(grade >= RELEVANT for memory_id, grade in grades.items() if memory_id)
