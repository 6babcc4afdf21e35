"""Ordered samples without replacement: each place goes to one of those left, by softmax of their scores.

That is the Plackett–Luce model. Adding Gumbel noise to the scores and taking the largest draws from it exactly
(Kool et al. 2019, arXiv 1903.06059).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def gumbel_top(scores: Floats, m: int, rng: np.random.Generator) -> tuple[tuple[int, ...], Floats]:
    """The positions of an ordered sample of `m` (or all, where there are fewer), and the noise (n,) that drew it."""
    noise = rng.gumbel(size=len(scores))
    order = np.argsort(-(scores + noise), kind="stable")[:m]
    return tuple(order.tolist()), noise


def ordered_log_probability(scores: Floats, order: Sequence[int]) -> float:
    """ln P of drawing the positions `order` (distinct) in this order from `scores` (n,); 0 for an empty order."""
    left = scores.astype(np.float64)
    total = 0.0
    for position in order:
        highest = left.max()
        total += float(left[position] - highest - np.log(np.exp(left - highest).sum()))
        left[position] = -np.inf
    return total


def ordered_log_gradient(scores: Floats, order: Sequence[int], weights: Sequence[float]) -> Floats:
    """The gradient (n,) in `scores` (n,) of Σ_j weights[j] ln P(order[j] | what was left when it was drawn)."""
    left = scores.astype(np.float64)
    gradient = np.zeros(len(left))
    for position, weight in zip(order, weights, strict=True):
        chances = np.exp(left - left.max())
        gradient -= weight * chances / chances.sum()
        gradient[position] += weight
        left[position] = -np.inf
    return gradient
