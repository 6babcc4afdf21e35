"""What a run believes, by the definition: replay every step from the start, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Given:
    """A person's reward, in the order given; `step` counts from 0."""

    id: str
    step: int
    rater: str
    value: float
    revoked: bool = False


def utilities_by_definition(
    steps: list[tuple[tuple[str, ...], float]], log: list[Given], alpha: float
) -> dict[str, tuple[float, int]]:
    """Memory to (q, visits): each step's reward is the mean of the persons' latest unrevoked ones, else its own."""
    believed: dict[str, tuple[float, int]] = {}
    for number, (credited, own) in enumerate(steps):
        persons = {}
        for given in log:
            if given.step == number:
                persons[given.rater] = None if given.revoked else given.value
        values = [value for value in persons.values() if value is not None]
        reward = sum(values) / len(values) if values else own
        for memory in credited:
            q, visits = believed[memory]
            believed[memory] = (q + alpha * (reward - q), visits + 1)
        believed[f"r-{number + 1:04d}"] = (0.0, 0)
    return believed
