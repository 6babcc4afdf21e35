"""What several people can do and undo, by the definition: a pair of stacks a person, and one value a (step, person)."""

from __future__ import annotations

from dataclasses import dataclass, field

Key = tuple[int, str]


@dataclass
class Raters:
    """`standing` maps (step, person) to the reward that stands."""

    standing: dict[Key, float] = field(default_factory=dict)
    done: dict[str, list[tuple[Key, float | None, float | None]]] = field(default_factory=dict)
    undone: dict[str, list[tuple[Key, float | None, float | None]]] = field(default_factory=dict)

    def rate(self, step: int, person: str, value: float | None) -> None:
        """None takes the reward back; what changes nothing is not a deed."""
        before = self.standing.get((step, person))
        if before != value:
            self.done.setdefault(person, []).append(((step, person), before, value))
            self.undone[person] = []
            self._put((step, person), value)

    def undo(self, person: str) -> None:
        if self.done.get(person):
            deed = self.done[person].pop()
            self.undone.setdefault(person, []).append(deed)
            self._put(deed[0], deed[1])

    def redo(self, person: str) -> None:
        if self.undone.get(person):
            deed = self.undone[person].pop()
            self.done.setdefault(person, []).append(deed)
            self._put(deed[0], deed[2])

    def _put(self, key: Key, value: float | None) -> None:
        if value is None:
            self.standing.pop(key, None)
        else:
            self.standing[key] = value


def beliefs(
    steps: list[tuple[tuple[str, ...], float]],
    standing: dict[Key, float],
    alpha: float,
    human_rewards: str = "override",
    several_raters: str = "mean",
) -> dict[str, tuple[float, int]]:
    """q and visits from (credited memories, the environment's reward) a step, and the people's standing rewards.

    Step n, from 1, writes memory "r-000n".
    """
    known: dict[str, tuple[float, int]] = {}
    for number, (credited, environment) in enumerate(steps, start=1):
        people = [value for (step, _), value in sorted(standing.items()) if step == number]
        moves = [environment]
        if people:
            counts = {value: people.count(value) for value in people}
            most = [value for value, count in counts.items() if count == max(counts.values())]
            said = sum(people) / len(people)
            if several_raters == "majority" and len(most) == 1:
                said = most[0]
            moves = {"override": [said], "mean": [(said + environment) / 2], "both": [environment, said]}[human_rewards]
        for memory in credited:
            for reward in moves:
                q, visits = known[memory]
                known[memory] = (q + alpha * (reward - q), visits + 1)
        known[f"r-{number:04d}"] = (0.0, 0)
    return known
