"""What several people can do and undo, by the definition: a pair of stacks a person, and one value a (step, person).

What somebody did for another stays when others have set that value since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Key = tuple[int, str]
Change = tuple[Key, float | None, float | None, int]
"""A value before and after, and how often it had been set then."""


@dataclass
class Raters:
    """`standing` maps (step, person) to the reward that stands."""

    standing: dict[Key, float] = field(default_factory=dict)
    done: dict[str, list[list[Change]]] = field(default_factory=dict)
    undone: dict[str, list[list[Change]]] = field(default_factory=dict)
    set_by: dict[Key, list[str]] = field(default_factory=dict)

    def rate(self, step: int, person: str, value: float | None) -> None:
        """None takes the reward back; what changes nothing is no action."""
        self._do(person, {(step, person): value} if self.standing.get((step, person)) != value else {})

    def rate_for(self, actor: str, step: int, values: dict[str, float]) -> None:
        """Somebody gives, in one action, rewards in the names of others; in whose name and by whom makes a reward."""
        given = {(step, person): value for person, value in values.items()}
        self._do(actor, {key: v for key, v in given.items() if (self.standing.get(key), self._last(key)) != (v, actor)})

    def revoke(self, actor: str, step: int, person: str) -> None:
        """Somebody takes another's reward back."""
        self._do(actor, {(step, person): None} if (step, person) in self.standing else {})

    def undo(self, actor: str) -> bool:
        """False when it is refused."""
        if self.done.get(actor):
            action = self.done[actor][-1]
            if self._blocked(actor, action):
                return False
            self.undone.setdefault(actor, []).append(self.done[actor].pop())
            for key, before, _, _ in action:
                self._put(key, before, actor)
        return True

    def redo(self, actor: str) -> bool:
        """False when it is refused."""
        if self.undone.get(actor):
            action = self.undone[actor][-1]
            if self._blocked(actor, action):
                return False
            self.undone[actor].pop()
            self.done[actor].append([self._changed(key, after, actor) for key, _, after, _ in action])
        return True

    def _do(self, actor: str, values: dict[Key, float | None]) -> None:
        if values:
            self.done.setdefault(actor, []).append([self._changed(key, v, actor) for key, v in values.items()])
            self.undone[actor] = []

    def _changed(self, key: Key, value: float | None, actor: str) -> Change:
        before = self.standing.get(key)
        self._put(key, value, actor)
        return key, before, value, len(self.set_by[key])

    def _blocked(self, actor: str, action: list[Change]) -> bool:
        return any(key[1] != actor and {*self.set_by[key][times:]} - {actor} for key, _, _, times in action)

    def _last(self, key: Key) -> str:
        return self.set_by.get(key, [""])[-1]

    def _put(self, key: Key, value: float | None, actor: str) -> None:
        self.set_by.setdefault(key, []).append(actor)
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
            message = sum(people) / len(people)
            if several_raters == "majority" and len(most) == 1:
                message = most[0]
            moves = {"override": [message], "mean": [(message + environment) / 2], "both": [environment, message]}[
                human_rewards
            ]
        for memory in credited:
            for reward in moves:
                q, visits = known[memory]
                known[memory] = (q + alpha * (reward - q), visits + 1)
        known[f"r-{number:04d}"] = (0.0, 0)
    return known
