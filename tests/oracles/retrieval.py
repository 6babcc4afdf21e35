"""Phases A and B written from equations 6 and 7 in plain Python; shares nothing with the core."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

from tests.oracles.ties import turn


def cosine(a: list[float], b: list[float]) -> float:
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(math.fsum(x * x for x in a)) / math.sqrt(math.fsum(y * y for y in b))


def phase_a(query: list[float], stored: list[list[float]], k1: int, delta: float, seed: int | None = None) -> list[int]:
    """Positions of the pool: TopK_k1 of { i : cos > delta }, most similar first; ties by the seed, else by age."""
    equal = range(len(stored)) if seed is None else [turn(i, seed, "recall") for i in range(len(stored))]
    similarity = [round(cosine(query, vector), 6) for vector in stored]
    passed = [i for i, s in enumerate(similarity) if s > delta]
    return sorted(passed, key=lambda i: (-similarity[i], equal[i]))[:k1]


def phase_a_by_intent(
    query: list[float], stored: list[list[float]], intents: list[int], k1: int, delta: float, seed: int | None = None
) -> list[int]:
    """The official code's pool: the k1 nearest distinct intents, then every memory of each; ties as in `phase_a`."""
    equal = range(len(stored)) if seed is None else [turn(i, seed, "recall") for i in range(len(stored))]
    similarity = [round(cosine(query, vector), 6) for vector in stored]
    nearest: list[int] = []
    for i in sorted(range(len(stored)), key=lambda i: (-similarity[i], equal[i])):
        if intents[i] not in nearest:
            nearest.append(intents[i])
    members = [i for i in range(len(stored)) if intents[i] in nearest[:k1] and similarity[i] > delta]
    return sorted(members, key=lambda i: (-similarity[i], equal[i]))


def _z(values: list[float]) -> list[float]:
    sd = pstdev(values)
    mean = fmean(values)
    return [0.0 if sd < 1e-9 else (value - mean) / sd for value in values]


def phase_b(similarity: list[float], q: list[float], weight: float) -> list[float]:
    """(1 - weight) z(similarity) + weight z(q) within the pool, population sd, zeros when it is below 1e-9."""
    return [(1 - weight) * s + weight * u for s, u in zip(_z(similarity), _z(q), strict=True)]


def phase_b_fixed(similarity: list[float], q: list[float], weight: float, mean: float, sd: float) -> list[float]:
    """The official code's normaliser: similarity by a configured mean and sd, q by the pool and cut at ±3."""
    by_q = [max(-3.0, min(3.0, z)) for z in _z(q)]
    return [(1 - weight) * (s - mean) / sd + weight * z for s, z in zip(similarity, by_q, strict=True)]


def shortlist(values: list[float], is_open: list[bool], wanted: int) -> list[int]:
    """Positions of the `wanted` largest open values, and of those less than 1e-5 below the last of them."""
    falling = sorted((value for value, seen in zip(values, is_open, strict=True) if seen), reverse=True)
    edge = falling[wanted - 1] - 1e-5 if len(falling) >= wanted else -math.inf
    return [i for i, value in enumerate(values) if is_open[i] and value >= edge]
