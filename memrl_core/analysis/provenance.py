"""Which rewards made a q what it is, and what it would be without one of them."""

from __future__ import annotations

from dataclasses import dataclass

from memrl_core.bank import MemoryBank
from memrl_core.learning import active_rewards, assigned_credit, effective_reward, order_key, updated_q
from memrl_core.records import LedgerEvent, UtilityPoint


@dataclass(frozen=True, slots=True)
class Contribution:
    """One reward's part in a q.

    `value` is the reward, or the memory's own one where a person let that count in its place. `share` is its weight in
    today's q: α (1 − α)^(updates since), divided by the number of people whose mean counted. `without` is what q would
    be today had this reward never been given: the step then counts by the rewards that are left, or does not move q.
    """

    step: int
    event_id: str
    source: str
    rater: str
    value: float
    before: float
    after: float
    share: float
    without: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """q of one memory as a sum: q0 with its remaining weight, and each reward with its own; all weights add up to 1."""

    q: float
    q0: float
    q0_share: float
    contributions: tuple[Contribution, ...]


def provenance(bank: MemoryBank, run: str, memory_id: str, as_of: int | None = None) -> Provenance | None:
    """How q of a memory came about in a run; None when the run does not know the memory."""
    points = bank.history(run, memory_id, as_of)
    if not points:
        return None
    rewarded = points[1:]
    behind = _behind(bank, run, memory_id, as_of)[1:]
    alphas = [alpha for alpha, _ in behind]
    shares = _shares(alphas)
    found = []
    for position, point in enumerate(rewarded):
        at_step = behind[position][1]
        own = assigned_credit(at_step).get(memory_id)
        active = active_rewards(at_step)
        for event in active:
            rest = active_rewards([e for e in at_step if e.id != event.id])
            found.append(
                Contribution(
                    step=point.step,
                    event_id=event.id,
                    source=event.source or "",
                    rater=event.rater,
                    value=event.value or 0.0 if own is None else own,
                    before=point.before or 0.0,
                    after=point.after,
                    share=shares[position] / len(active),
                    without=_replayed(points, alphas, position, _earned(memory_id, rest, own)),
                )
            )
    q0_share = 1.0
    for alpha in alphas:
        q0_share *= 1 - alpha
    return Provenance(points[-1].after, points[0].after, q0_share, tuple(found))


def _behind(bank: MemoryBank, run: str, memory_id: str, as_of: int | None) -> list[tuple[float, list[LedgerEvent]]]:
    """For each point of a memory's history: the step size, and the events of its step in the run it happened in."""
    info = bank.run(run)
    earlier = _behind(bank, info.base, memory_id, info.base_step) if info.base else []
    own = bank.history(run, memory_id, as_of)[len(earlier) :]
    events: dict[int, list[LedgerEvent]] = {}
    for event in bank.events(run):
        if as_of is None or event.known_at <= as_of:
            events.setdefault(event.step, []).append(event)
    found = []
    finished = {row.id for row in bank.step_rows(run)}
    for point in own:
        at_step = sorted(events.get(point.step, ()), key=order_key)
        counted = [e for e in at_step if not e.step_id or e.step_id in finished]
        found.append((_alpha(bank, run, point), counted))
    return [*earlier, *found]


def _earned(memory_id: str, active: list[LedgerEvent], own: float | None) -> float | None:
    """What these rewards of a step let a memory move towards; None when none of them is about it."""
    if not any(memory_id in event.memory_ids for event in active):
        return None
    return effective_reward(active) if own is None else own


def _alpha(bank: MemoryBank, run: str, point: UtilityPoint) -> float:
    """The step size behind a recorded move (eq. 4); where nothing moved, the one of the settings."""
    if point.before is None or point.reward is None:
        return 0.0
    distance = point.reward - point.before
    if abs(distance) > 1e-9:
        return (point.after - point.before) / distance
    return float(bank.settings(run, point.step)["alpha"])


def _shares(alphas: list[float]) -> list[float]:
    shares = []
    remaining = 1.0
    for alpha in reversed(alphas):
        shares.append(alpha * remaining)
        remaining *= 1 - alpha
    return shares[::-1]


def _replayed(points: list[UtilityPoint], alphas: list[float], left_out: int, reward: float | None) -> float:
    q = points[0].after
    for position, (point, alpha) in enumerate(zip(points[1:], alphas, strict=True)):
        value = reward if position == left_out else point.reward
        if value is not None:
            q = updated_q(q, value, alpha)
    return q
