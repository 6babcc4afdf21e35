"""The fold of a ledger, called by hand: rewards, shares, and every order in which the same events can arrive."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.learning import (
    REWARDING,
    Fold,
    SettingsAt,
    by_step,
    copied,
    effective_reward,
    folded,
    memrl_rule,
    named_by,
    order_key,
    shares_in,
)
from memrl_core.records import EventKind, LedgerEvent

STEPS = 6
MEMORIES = tuple(f"m{number}" for number in range(4))
EDITED, MERGED = "edited", "merged"
VALUES = st.sampled_from([-1.0, -0.3, 0.1, 0.7, 1.0, 1 / 3])


def event(number: int, kind: EventKind, step: int, **others: Any) -> LedgerEvent:
    return LedgerEvent(f"e{number:03d}", number, "r", step, "", step, kind, **others)


def history() -> list[LedgerEvent]:
    """Four memories; after step 2 one is edited, after step 4 two are merged, and α changes at step 4."""
    settings: Mapping[str, Any] = {"alpha": 0.3, "human_rewards": "both"}
    written = [event(1 + n, EventKind.MEMORY_WRITTEN, 0, memory_ids=(i,), value=n / 7) for n, i in enumerate(MEMORIES)]
    return [
        event(0, EventKind.RUN_STARTED, 0, payload={"settings": settings}),
        *written,
        event(900, EventKind.MEMORY_EDITED, 2, memory_ids=(EDITED,), payload={"replaces": ["m1"]}),
        event(901, EventKind.SETTINGS_CHANGED, 4, payload={"settings": {**settings, "alpha": 0.1}}),
        event(902, EventKind.MEMORY_MERGED, 4, memory_ids=(MERGED,), payload={"replaces": [EDITED, "m2"]}),
    ]


def settings_at(events: Sequence[LedgerEvent]) -> SettingsAt:
    changes = [e for e in events if e.kind in (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED)]

    def at(step: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = max((e for e in changes if e.step <= step), key=order_key).payload["settings"]
        return found

    return at


@st.composite
def rewardings(draw: st.DrawFn) -> list[LedgerEvent]:
    """Rewards of the environment and of people, some taken back, and credits of single memories."""
    made: list[LedgerEvent] = []
    credited = {step: tuple(draw(st.sets(st.sampled_from([*MEMORIES, EDITED, MERGED]), max_size=3)))
                for step in range(1, STEPS + 1)}  # fmt: skip
    for number in range(10, 10 + draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(REWARDING))
        undone = {EventKind.REWARD_REVOKED: EventKind.REWARD_GIVEN, EventKind.CREDIT_REVOKED: EventKind.CREDIT_ASSIGNED}
        if kind in undone:
            standing = [e for e in made if e.kind is undone[kind]]
            if not standing:
                continue
            old = draw(st.sampled_from(standing))
            made.append(event(number, kind, old.step, memory_ids=old.memory_ids, revokes=old.id))
            continue
        step = draw(st.integers(1, STEPS))
        others: dict[str, Any] = {"memory_ids": credited[step]}
        if kind is EventKind.REWARD_GIVEN:
            rater = draw(st.sampled_from(["", "ann", "bob"]))
            others |= {"value": draw(VALUES), "rater": rater, "source": "person" if rater else "environment"}
        else:
            others["payload"] = {"rewards": {memory_id: draw(VALUES) for memory_id in credited[step]}}
        made.append(event(number, kind, step, **others))
    return made


def anew(events: Sequence[LedgerEvent]) -> Fold:
    return folded(Fold(memrl_rule), events, ())


def says(fold: Fold) -> str:
    """All that a fold says, every digit of it."""
    return repr((fold.utilities, sorted(fold.away.items()), dict(fold.histories)))


@given(st.data(), rewardings())
def test_the_same_events_give_the_same_q_in_whatever_order_they_come(
    data: st.DataObject, given_events: list[LedgerEvent]
) -> None:
    events = [*history(), *given_events]
    assert says(anew(data.draw(st.permutations(events)))) == says(anew(events))


@given(rewardings())
def test_a_fold_that_follows_step_by_step_is_bit_for_bit_the_one_made_anew(given_events: list[LedgerEvent]) -> None:
    events, fold = [*history(), *given_events], Fold(memrl_rule)
    for step, members in sorted(by_step(events, lambda attempt: True).items()):
        fold = copied(fold)
        fold.take(step, members)
        assert says(fold) == says(anew([one for one in events if one.step <= step]))


@given(rewardings())
def test_a_fold_of_only_the_memories_that_a_step_names_moves_them_as_the_whole_one_does(
    given_events: list[LedgerEvent],
) -> None:
    whole = Fold(memrl_rule)
    for step, members in by_step([*history(), *given_events], lambda attempt: True).items():
        named = {memory_id for one in members for memory_id in named_by(one)}
        stored = {i: len(points) for i, points in whole.histories.items()}
        part = Fold(memrl_rule, whole.settings)
        part.utilities = {i: utility for i, utility in whole.utilities.items() if i in named}
        part.away = {i: utility for i, utility in whole.away.items() if i in named}
        part.histories = {i: [] for i in whole.histories if i in named}
        part.take(step, members)
        whole.take(step, members)
        for i, points in part.histories.items():
            assert repr(points) == repr(whole.histories[i][stored.get(i, 0) :])
            assert (part.utilities.get(i), part.away.get(i)) == (whole.utilities.get(i), whole.away.get(i))


@given(st.data(), rewardings())
def test_late_rewards_are_worked_in_bit_for_bit_in_whatever_order_they_come(
    data: st.DataObject, given_events: list[LedgerEvent]
) -> None:
    known = history()
    fold, at = anew(known), settings_at(known)
    for late in data.draw(st.permutations(given_events)):
        insort(known, late, key=order_key)
        found = fold.refolded({late.step: [one for one in known if one.step == late.step]}, at)
        assert found is not None
        fold.replace_histories(found)
        assert says(fold) == says(anew(known))


def test_a_reward_moves_the_memory_that_took_the_place_of_what_it_named() -> None:
    reward = event(10, EventKind.REWARD_GIVEN, 1, memory_ids=("m1",), value=1.0, source="environment")
    fold = anew([*history(), reward])
    q = 1 / 7 + 0.3 * (1 - 1 / 7)
    assert fold.away["m1"].q == fold.away[EDITED].q == q
    assert fold.utilities[MERGED].q == q and fold.utilities[MERGED].visits == 1


def rated(number: int, value: float, rater: str = "") -> LedgerEvent:
    return event(
        number, EventKind.REWARD_GIVEN, 1, value=value, rater=rater, source="person" if rater else "environment"
    )


@pytest.mark.parametrize(
    ("rule", "own", "values", "shares"),
    [
        ("mean", None, (1.0, 1.0, -1.0), [{"e001": 1 / 3, "e002": 1 / 3, "e003": 1 / 3}]),
        ("majority", None, (1.0, 1.0, -1.0), [{"e001": 1 / 2, "e002": 1 / 2}]),
        ("majority", None, (1.0, -1.0), [{"e001": 1 / 2, "e002": 1 / 2}]),
        ("majority", 0.5, (1.0, 1.0, -1.0), [{"e000": 1 / 2, "e001": 1 / 4, "e002": 1 / 4}]),
    ],
)
def test_who_was_outvoted_has_no_share_in_the_reward(
    rule: str, own: float | None, values: tuple[float, ...], shares: list[dict[str, float]]
) -> None:
    active = [rated(number, value, f"p{number}") for number, value in enumerate(values, start=1)]
    if own is not None:
        active.insert(0, rated(0, own))
    settings = {"several_raters": rule, "human_rewards": "mean" if own is not None else "override"}
    found = [dict(one) for one in shares_in(active, settings)]
    assert found == shares
    by_id = {one.id: one.value or 0.0 for one in active}
    assert effective_reward(active, settings) == pytest.approx(sum(s * by_id[i] for i, s in found[0].items()))
