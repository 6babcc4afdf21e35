"""How far several raters agree on the same steps.

Sources: Cohen (1960), A coefficient of agreement for nominal scales; Krippendorff (2011), Computing Krippendorff's
alpha-reliability. Rewards R are finite; their judgement is read against the midpoint of r− and r+.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import krippendorff
import numpy as np

TOLERANCE = 1e-9
# `krippendorff` lays out three tables of steps x rewards x rewards (8 bytes each): this many cells take 240 MB.
MOST_CELLS = 10_000_000

Ratings = Mapping[str, Mapping[str, float]]


class Judgement(StrEnum):
    """What a reward says about an answer: above, at or below the midpoint."""

    GOOD = "good"
    NEUTRAL = "neutral"
    BAD = "bad"


Judged = Sequence[tuple[Judgement, Judgement]]


@dataclass(frozen=True, slots=True)
class RaterPair:
    """Two raters on the `shared_steps` that both rated: `same` of them, the `share`, with the same judgement.

    `kappa` is Cohen's κ over the judgements, −1 … 1; None where both gave one and the same judgement throughout.
    """

    first: str
    second: str
    shared_steps: int
    same: int
    share: float
    kappa: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far all raters of a run agree.

    `share` is the part of all pairs of ratings of one step with the same judgement, 0 … 1. `kappa` is Cohen's κ when
    exactly two raters share steps; `alpha` is Krippendorff's α of R at interval level (1: as one, 0: as by chance).
    What cannot be computed is None, and `note` says why.
    """

    raters: tuple[str, ...]
    steps_rated_by_two_or_more: int
    share: float | None
    kappa: float | None
    alpha: float | None
    note: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A step that raters see differently: R by rater, largest minus smallest R, and whether good meets bad."""

    step_id: str
    ratings: Mapping[str, float]
    range: float
    opposite: bool


def judgement(reward: float, midpoint: float) -> Judgement:
    """Good above the midpoint, bad below it, neutral within 1e-9 of it."""
    if abs(reward - midpoint) <= TOLERANCE:
        return Judgement.NEUTRAL
    return Judgement.GOOD if reward > midpoint else Judgement.BAD


def agreement(ratings: Ratings, midpoint: float) -> Agreement:
    """Of ratings {step id: {rater: R}}; steps with one rating count for nothing but the list of raters."""
    raters = tuple(sorted({rater for given in ratings.values() for rater in given}))
    shared = [given for given in ratings.values() if len(given) > 1]
    if not shared:
        return Agreement(raters, 0, None, None, None, "No step has two ratings yet.")
    judged = _judged_by_both(ratings, midpoint)
    alike = [one is other for both in judged.values() for one, other in both]
    kappa, no_kappa = _kappa_of_all(judged)
    alpha, no_alpha = _alpha(shared)
    return Agreement(raters, len(shared), sum(alike) / len(alike), kappa, alpha, f"{no_kappa} {no_alpha}".strip())


def pairwise_table(ratings: Ratings, midpoint: float) -> list[RaterPair]:
    """Every two raters that share a step, by name."""
    judged = _judged_by_both(ratings, midpoint)
    return [_rater_pair(*names, both) for names, both in sorted(judged.items())]


def disagreements(ratings: Ratings, midpoint: float, least: float) -> list[Disagreement]:
    """Steps with a good and a bad rating, or with R at least `least` apart.

    Those with good against bad come first, then the wider range, then the lower step id.
    """
    found = []
    for step_id, given in ratings.items():
        if len(given) < 2:
            continue
        apart = max(given.values()) - min(given.values())
        opposite = {Judgement.GOOD, Judgement.BAD} <= {judgement(reward, midpoint) for reward in given.values()}
        if opposite or apart >= least - TOLERANCE:
            found.append(Disagreement(step_id, dict(given), apart, opposite))
    return sorted(found, key=lambda one: (not one.opposite, -one.range, one.step_id))


def _judged_by_both(ratings: Ratings, midpoint: float) -> dict[tuple[str, str], Judged]:
    judged = defaultdict(list)
    for given in ratings.values():
        found = sorted((rater, judgement(reward, midpoint)) for rater, reward in given.items())
        for (first, one), (second, other) in combinations(found, 2):
            judged[first, second].append((one, other))
    return dict(judged)


def _rater_pair(first: str, second: str, both: Judged) -> RaterPair:
    same = sum(one is other for one, other in both)
    return RaterPair(first, second, len(both), same, same / len(both), _kappa(both))


def _kappa(both: Judged) -> float | None:
    one, other = ([str(judged) for judged in side] for side in zip(*both, strict=True))
    if len({*one, *other}) == 1:
        return None
    # Imported where it is needed: every command reads this module, and scikit-learn takes half a second.
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(one, other))


def _kappa_of_all(judged: Mapping[tuple[str, str], Judged]) -> tuple[float | None, str]:
    if len(judged) > 1:
        return None, "κ compares two raters; more share steps, so it stands with each pair."
    (((first, second), both),) = judged.items()
    kappa = _kappa(both)
    if kappa is None:
        return None, f"κ has no value: {first[:80]} and {second[:80]} never used a second judgement."
    return kappa, ""


def _alpha(shared: Sequence[Mapping[str, float]]) -> tuple[float | None, str]:
    rewards = {reward for given in shared for reward in given.values()}
    if max(rewards) - min(rewards) <= TOLERANCE:
        return None, "α has no value: all rewards on the shared steps are equal."
    if len(shared) * len(rewards) ** 2 > MOST_CELLS:
        return None, f"α was left out: {len(rewards):,} different rewards on {len(shared):,} shared steps are too many."
    row = {rater: number for number, rater in enumerate(sorted({rater for given in shared for rater in given}))}
    table = np.full((len(row), len(shared)), np.nan)
    for column, given in enumerate(shared):
        for rater, reward in given.items():
            table[row[rater], column] = reward
    # α is the same at any scale of R; at this one the squares of very large R stay finite.
    table /= np.nanmax(np.abs(table))
    return float(krippendorff.alpha(table, level_of_measurement="interval")), ""
