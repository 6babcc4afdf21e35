"""What one person does to the memories of a run, by the definition: a log that is replayed from the start each time.

Plain Python; shares nothing with the core. Everything happens between steps, so what is known as of a step is what was
done until the next began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Believed:
    """`seen` maps memories, oldest first, to (q, visits); `away` those that went."""

    seen: dict[str, tuple[float, int]]
    away: dict[str, tuple[float, int]]
    pinned: set[str]


@dataclass
class Lifecycle:
    """A run with step size `alpha`; each entry of `log` is (newest step then, step it is about, what, its data)."""

    alpha: float
    steps: list[tuple[tuple[str, ...], float, str]] = field(default_factory=list)
    log: list[tuple[int, int, str, Any]] = field(default_factory=list)
    done: list[tuple[list[Any], list[Any]]] = field(default_factory=list)
    undone: list[tuple[list[Any], list[Any]]] = field(default_factory=list)

    def step(self, credited: tuple[str, ...], reward: float, wrote: str) -> None:
        """One more step of the agent."""
        self.steps.append((credited, reward, wrote))

    # --- what the person does -----------------------------------------------------------------------------------------

    def pin(self, memory: str) -> None:
        self._do([("pin", memory)], [("unpin", memory)])

    def unpin(self, memory: str) -> None:
        self._do([("unpin", memory)], [("pin", memory)])

    def forget(self, memory: str) -> None:
        self._do([("hide", [memory])], [("show", [memory])])

    def replace(self, olds: list[str], new: str) -> None:
        """An edit of one memory or a merge of several."""
        self._do([("replace", olds, new)], [("hide", [new]), ("show", olds)])

    def restore(self, memory: str) -> None:
        """Bring a memory back; what is seen in its place goes."""
        latest = {old: (olds, new) for _, _, what, data in self.log if what == "replace" for olds, new in [data]
                  for old in olds}  # fmt: skip
        seen, group, place = self.believed().seen, [memory], memory
        for _ in latest:
            if place not in latest:
                break
            olds, new = latest[place]
            group += [old for old in olds if old != place]
            place = new
            if new in seen:
                self._do([("hide", [new]), ("show", group)], [("replace", group, new)])
                return
        self._do([("show", [memory])], [("hide", [memory])])

    def rate(self, step: int, value: float) -> None:
        before = self._given(step)
        if before != value:
            self._do([("rate", step, value)], [("rate", step, before)])

    def undo(self) -> None:
        if self.done:
            self.undone.append(self.done.pop())
            self._put(self.undone[-1][1])

    def redo(self) -> None:
        if self.undone:
            self.done.append(self.undone.pop())
            self._put(self.done[-1][0])

    def _do(self, forward: list[Any], backward: list[Any]) -> None:
        self.done.append((forward, backward))
        self.undone = []
        self._put(forward)

    def _put(self, happenings: list[Any]) -> None:
        now = len(self.steps)
        for what, *data in happenings:
            if what == "rate":
                self.log.append((now, data[0], what, data[1]))
            else:
                self.log.append((now, now, what, data if len(data) > 1 else data[0]))

    def _given(self, step: int, until: int | None = None) -> float | None:
        given = [value for known, about, what, value in self.log
                 if what == "rate" and about == step and (until is None or known <= until)]  # fmt: skip
        return given[-1] if given else None

    # --- what follows -------------------------------------------------------------------------------------------------

    def believed(self, until: int | None = None) -> Believed:
        """What the run believes now, or believed when step `until` had ended and the next had not begun."""
        values: dict[str, tuple[float, int]] = {}
        hidden: set[str] = set()
        pinned: set[str] = set()
        for number in range(len(self.steps) + 1 if until is None else until + 1):
            if number:
                credited, own, wrote = self.steps[number - 1]
                given = self._given(number, until)
                for memory in credited:
                    q, visits = values[memory]
                    values[memory] = (q + self.alpha * ((own if given is None else given) - q), visits + 1)
                values[wrote] = (0.0, 0)
            for known, about, what, data in self.log:
                if about == number and what != "rate" and (until is None or known <= until):
                    self._happen(what, data, values, hidden, pinned)
        return Believed(
            {memory: value for memory, value in values.items() if memory not in hidden},
            {memory: value for memory, value in values.items() if memory in hidden},
            pinned,
        )

    def _happen(
        self, what: str, data: Any, values: dict[str, tuple[float, int]], hidden: set[str], pinned: set[str]
    ) -> None:
        if what == "pin":
            pinned.add(data)
        elif what == "unpin":
            pinned.discard(data)
        elif what == "hide":
            hidden.update(data)
        elif what == "show":
            hidden.difference_update(data)
        else:
            olds, new = data
            hidden.discard(new)
            hidden.update(olds)
            if new not in values:
                total = sum(values[old][1] for old in olds)
                shares = [values[old][1] / total if total else 1 / len(olds) for old in olds]
                values[new] = (sum(s * values[old][0] for s, old in zip(shares, olds, strict=True)), total)
            if pinned & set(olds):
                pinned.add(new)
