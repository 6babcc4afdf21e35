"""A run whose policy rewrites and deletes memories, by the definition: everything is done again from the first step.

Plain Python; shares nothing with the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Values = dict[str, tuple[float, int]]
Operation = tuple[str, str, tuple[str, ...]]


@dataclass
class Rewriting:
    """A run with step size `alpha`: each step credits memories, earns a reward and does operations (op, new, olds).

    `late` are rewards of a person that displace the environment's; `pins` maps the number of finished steps to what was
    pinned then.
    """

    alpha: float
    steps: list[tuple[tuple[str, ...], float, tuple[Operation, ...]]] = field(default_factory=list)
    late: dict[int, float] = field(default_factory=dict)
    pins: dict[int, list[str]] = field(default_factory=dict)

    def now(self) -> tuple[Values, set[str]]:
        """What the run sees, by memory (q, visits), and which of it is pinned."""
        values: Values = {}
        hidden: set[str] = set()
        pinned: set[str] = set()
        for number, (credited, own, operations) in enumerate(self.steps, start=1):
            reward = self.late.get(number, own)
            for memory in credited:
                q, visits = values[memory]
                values[memory] = q + self.alpha * (reward - q), visits + 1
            for op, new, olds in operations:
                there = [old for old in olds if old in values and old not in hidden]
                if op == "ADD":
                    values[new] = 0.0, 0
                elif op == "DELETE":
                    hidden.update(old for old in there if old not in pinned)
                elif there:
                    total = sum(values[old][1] for old in there)
                    shares = [values[old][1] / total if total else 1 / len(there) for old in there]
                    q = sum(share * values[old][0] for share, old in zip(shares, there, strict=True))
                    values[new] = (values[there[0]][0] if len(there) == 1 else q), total
                    hidden.update(there)
                    if pinned & set(there):
                        pinned.add(new)
            pinned.update(self.pins.get(number, ()))
        seen = {memory: value for memory, value in values.items() if memory not in hidden}
        return seen, pinned & seen.keys()
