"""Which memories greedy selection takes, by scoring and sorting anew; shares nothing with the core but the tie rule."""

from __future__ import annotations

from fractions import Fraction
from statistics import fmean, pstdev

from tests.oracles.ties import turn


def z_pool(values: list[float]) -> list[float]:
    """Within the pool, population sd; zeros when it is below 1e-9."""
    sd, mean = pstdev(values), fmean(values)
    return [0.0 if sd < 1e-9 else (v - mean) / sd for v in values]


def z_sides(
    similarity: list[float], q: list[float], normaliser: str, mean: float, sd: float
) -> tuple[list[float], list[float]]:
    """Both sides of a pool under one of the normalisers."""
    if not q or normaliser == "raw":
        return similarity, q
    if normaliser == "pool":
        return z_pool(similarity), z_pool(q)
    return [(s - mean) / sd for s in similarity], [max(-3.0, min(3.0, z)) for z in z_pool(q)]


def taken(
    similarity_z: list[float],
    q_z: list[float],
    similarity: list[float],
    weight: float,
    k2: int,
    seed: int | None = None,
) -> list[int]:
    """Positions of the k2 best of a pool as recalled, ties (to nine digits) to the more similar, then by the seed; to
    the earlier without one.
    """
    score = [round((1 - weight) * s + weight * u, 9) for s, u in zip(similarity_z, q_z, strict=True)]
    equal = range(len(score)) if seed is None else [turn(rank, seed, "select") for rank in range(1, len(score) + 1)]
    return sorted(range(len(score)), key=lambda i: (-score[i], -similarity[i], equal[i]))[:k2]


def crossings(similarity_z: list[float], q_z: list[float]) -> list[tuple[float, int, int]]:
    """(weight, overtaking, overtaken) of every two lines whose order is strictly another at 0 than at 1, exactly."""
    found = []
    a, b = [Fraction(z) for z in similarity_z], [Fraction(z) for z in q_z]
    for i in range(len(a)):
        for j in range(len(a)):
            if a[i] < a[j] and b[i] > b[j]:
                found.append((float((a[j] - a[i]) / ((a[j] - a[i]) + (b[i] - b[j]))), i, j))
    return sorted(found)


def given_to_the_model(
    similarity: list[float],
    q: list[float],
    *,
    k1: int,
    k2: int,
    delta: float,
    weight: float,
    normaliser: str,
    mean: float,
    sd: float,
    seed: int | None = None,
) -> set[int]:
    """Both phases on memories in order of age: positions that greedy selection gives to the model."""
    open_gate = [s > delta if normaliser == "pool" else s >= delta for s in similarity]
    equal = range(len(similarity)) if seed is None else [turn(i, seed, "recall") for i in range(len(similarity))]
    pool = sorted((i for i, passed in enumerate(open_gate) if passed), key=lambda i: (-similarity[i], equal[i]))[:k1]
    near = [similarity[i] for i in pool]
    by_similarity, by_q = z_sides(near, [q[i] for i in pool], normaliser, mean, sd)
    return {pool[i] for i in taken(by_similarity, by_q, near, weight, k2, seed)}
