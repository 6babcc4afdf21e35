"""How far several raters agree on the same steps.

Sources: Cohen (1960), A coefficient of agreement for nominal scales; Krippendorff (2011), Computing Krippendorff's
alpha-reliability. Rewards R are finite; a judgement is 1 above the midpoint of r− and r+, 0 on it, −1 below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import krippendorff
import numpy as np

TOLERANCE = 1e-9
# `krippendorff` lays out three tables of steps x rewards x rewards (8 bytes each): this many cells take 240 MB.
MOST_CELLS = 10_000_000

Ratings = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class RaterPair:
    """Two raters on the `shared_steps` that both rated: `same` of them with the same judgement.

    `kappa` is Cohen's κ over the judgements, −1 … 1; None where both gave one and the same judgement throughout.
    """

    first: str
    second: str
    shared_steps: int
    same: int
    kappa: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far all raters of a run agree; `pairs` are every two that share a step, by name.

    `share` is the part of all pairs of ratings of one step with the same judgement, 0 … 1. `kappa` is Cohen's κ when
    exactly two raters share steps; `alpha` is Krippendorff's α of R at interval level (1: as one, 0: as by chance).
    What cannot be computed is None, and `note` says why.
    """

    raters: tuple[str, ...]
    steps_rated_by_two_or_more: int
    pairs: tuple[RaterPair, ...]
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


def judgement(reward: float, midpoint: float) -> int:
    """1 above the midpoint, −1 below it, 0 within 1e-9 of it."""
    return 0 if abs(reward - midpoint) <= TOLERANCE else 1 if reward > midpoint else -1


def agreement(ratings: Ratings, midpoint: float) -> Agreement:
    """Of ratings {step id: {rater: R}}; steps with one rating count for nothing but the list of raters."""
    raters = tuple(sorted({rater for given in ratings.values() for rater in given}))
    shared = [given for given in ratings.values() if len(given) > 1]
    if not shared:
        return Agreement(raters, 0, (), None, None, None, "No step has two ratings yet.")
    judged: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for given in shared:
        for first, second in combinations(sorted(given), 2):
            judged[first, second].append((judgement(given[first], midpoint), judgement(given[second], midpoint)))
    pairs = tuple(
        RaterPair(*names, len(both), sum(one == other for one, other in both), _kappa(both))
        for names, both in sorted(judged.items())
    )
    share = sum(pair.same for pair in pairs) / sum(pair.shared_steps for pair in pairs)
    kappa, notes = pairs[0].kappa if len(pairs) == 1 else None, []
    if len(pairs) > 1:
        notes.append("κ compares two raters; more share steps, so it stands with each pair.")
    elif kappa is None:
        names = f"{pairs[0].first[:80]} and {pairs[0].second[:80]}"
        notes.append(f"κ has no value: {names} never used a second judgement.")
    alpha, why_not = _alpha(shared)
    return Agreement(raters, len(shared), pairs, share, kappa, alpha, " ".join([*notes, why_not]).strip())


def disagreements(ratings: Ratings, midpoint: float, least: float) -> list[Disagreement]:
    """Steps with a good and a bad rating, or with R at least `least` apart.

    Those with good against bad come first, then the wider range, then the lower step id.
    """
    rows = []
    for step_id, given in ratings.items():
        if len(given) > 1:
            apart = max(given.values()) - min(given.values())
            opposite = {1, -1} <= {judgement(reward, midpoint) for reward in given.values()}
            if opposite or apart >= least - TOLERANCE:
                rows.append(Disagreement(step_id, dict(given), apart, opposite))
    return sorted(rows, key=lambda row: (not row.opposite, -row.range, row.step_id))


def _kappa(both: Sequence[tuple[int, int]]) -> float | None:
    one, other = zip(*both, strict=True)
    if len({*one, *other}) == 1:
        return None
    # Imported where it is needed: every command reads this module, and most need none of this.
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(one, other))


def _alpha(shared: Sequence[Mapping[str, float]]) -> tuple[float | None, str]:
    rewards = {reward for given in shared for reward in given.values()}
    if max(rewards) - min(rewards) <= TOLERANCE:
        return None, "α has no value: all rewards on the shared steps are equal."
    if len(shared) * len(rewards) ** 2 > MOST_CELLS:
        return None, f"α was left out: {len(rewards):,} different rewards on {len(shared):,} shared steps are too many."
    import pandas as pd  # See `_kappa`.

    table = pd.DataFrame(shared).to_numpy(dtype=np.float64).T
    # α is the same at any scale of R; at this one the squares of very large R stay finite.
    return float(krippendorff.alpha(table / np.nanmax(np.abs(table)), level_of_measurement="interval")), ""
