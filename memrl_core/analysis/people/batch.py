"""Work shared out among raters: who rates which steps, who is how far, and how often each meets the known reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memrl_core.analysis.people.agreement import judgement
from memrl_core.analysis.people.rating_queue import RatedStep
from memrl_core.analysis.run.rates import Rate, rate
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.roles import person_name
from memrl_core.errors import InputError

ENVIRONMENT = ""
"""Whose rewards are known: the environment's, or else those of the person of that name."""
UNCHANGED = "Nothing was saved"


@dataclass(frozen=True, slots=True)
class PartProgress:
    """How far a rater is with her part, and on how many gold items her judgement is that of the known reward."""

    rater: str
    steps: int
    done: int
    gold: Rate


def drawn_batch(
    name: str,
    steps: Sequence[RatedStep],
    raters: Iterable[str],
    *,
    count: int,
    overlap: int = 1,
    gold_share: float = 0.0,
    known: str = ENVIRONMENT,
    seed: int = 0,
) -> Batch:
    """A batch of `count` of these steps of one run, or of all if there are fewer, drawn with a seed; not stored yet.

    Each step goes to `overlap` raters who have not rated it, or to as many as there are, so that all have equally much
    to do. `gold_share` of the steps are gold items: the reward that `known` gave is remembered. They lie anywhere in
    the queues and look like the others. Raises `InputError` where that cannot be.
    """
    names = list(dict.fromkeys(person_name(rater) for rater in raters if rater.strip()))
    if not names:
        raise InputError(f"Nobody would rate this batch. {UNCHANGED}; name one rater or more.")
    if not 1 <= overlap <= len(names):
        raise InputError(
            f"A step cannot get {overlap} ratings of {len(names)} raters. {UNCHANGED}; name more, or want fewer."
        )
    if known in names:
        raise InputError(f"{known[:80]} cannot rate what {known[:80]}'s own rewards are to judge. {UNCHANGED}.")
    open_to = {step.step: [rater for rater in names if rater not in step.people] for step in steps}
    asked = [step for step in steps if open_to[step.step]]
    if not asked:
        raise InputError(f"These raters have rated all of these steps. {UNCHANGED}; choose other steps.")
    rng = np.random.default_rng(seed)
    mixed = [asked[place] for place in rng.permutation(len(asked))]
    count = min(count, len(mixed))
    wanted_gold = round(gold_share * count)
    truth = {step.step: reward for step in mixed if (reward := _known_reward(step, known)) is not None}
    if wanted_gold > len(truth):
        raise InputError(
            f"{wanted_gold} gold items are wanted, and {len(truth)} of these steps have a reward of "
            f"{known[:80] or 'the environment'}. {UNCHANGED}; want fewer, or let another's rewards be known."
        )
    gold = [step.step for step in mixed if step.step in truth][:wanted_gold]
    others = [step.step for step in mixed if step.step not in set(gold)][: count - len(gold)]
    parts: dict[str, list[int]] = {rater: [] for rater in names}
    load: Counter[str] = Counter()
    # Gold first: each rater gets equally much of it, then equally much in all.
    for step in [*gold, *others]:
        by_chance = [open_to[step][place] for place in rng.permutation(len(open_to[step]))]
        for rater in sorted(by_chance, key=load.__getitem__)[:overlap]:
            load[rater] += 1
            parts[rater].append(step)
    return Batch(
        run=asked[0].run,
        name=name,
        parts={rater: tuple(int(step) for step in rng.permutation(part)) for rater, part in parts.items()},
        gold={step: truth[step] for step in gold},
        overlap=overlap,
        seed=seed,
    )


def assigned_to(batches: Iterable[Batch], rater: str) -> list[tuple[str, int]]:
    """The steps, (run, number), of a rater's parts of all batches that are open, the oldest batch first."""
    return list(
        dict.fromkeys((batch.run, step) for batch in batches if not batch.closed for step in batch.parts.get(rater, ()))
    )


def batch_progress(batch: Batch, facts: Iterable[RatedStep], midpoint: float) -> list[PartProgress]:
    """Each rater's progress in a batch, by the rewards that stand in `facts`."""
    people = {step.step: step.people for step in facts if step.run == batch.run}
    return [_part(batch, rater, steps, people, midpoint) for rater, steps in batch.parts.items()]


def _part(
    batch: Batch, rater: str, steps: Sequence[int], people: Mapping[int, Mapping[str, float]], midpoint: float
) -> PartProgress:
    given = {step: people[step][rater] for step in steps if rater in people.get(step, {})}
    met = [
        judgement(given[step], midpoint) is judgement(batch.gold[step], midpoint)
        for step in steps
        if step in given and step in batch.gold
    ]
    return PartProgress(rater, len(steps), len(given), rate("success" if one else "failure" for one in met))


def _known_reward(step: RatedStep, known: str) -> float | None:
    return step.people.get(known) if known else step.environment
