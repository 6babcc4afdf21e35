"""Which of equals goes first by a step's seed, in whole numbers; shares nothing with the core but the rule."""

from __future__ import annotations

from hashlib import blake2b

ALL = 2**64 - 1


def turn(number: int, seed: int, phase: str) -> int:
    """The key by which number `number` of a tie is ordered: SplitMix64 from a state that seed and phase name."""
    begin = int.from_bytes(blake2b(f"{phase} {seed}".encode(), digest_size=8).digest(), "little")
    z = (begin + number * 0x9E3779B97F4A7C15) & ALL
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & ALL
    return (z ^ (z >> 31)) >> 1
