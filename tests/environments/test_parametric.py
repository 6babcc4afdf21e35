"""The parametric world: what its parameters mean, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.parametric import FAMILIES, SETS, WAYS, Parametric
from memrl_core.errors import InputError
from memrl_core.prompting import offered
from memrl_core.records import Task

TASKS = Parametric.make_tasks("parametric-middle")


def share_that_works(way: str, at_step: int = 1, **options: Any) -> float:
    world, won = Parametric(**options), 0.0
    for seed in range(2000):
        world.reset(TASKS[0], seed=seed, at_step=at_step)
        won += world.step(way)[1]
    return won / 2000


def test_the_ways_of_every_family_have_the_same_chances_in_an_order_of_their_own() -> None:
    world = Parametric(world=3, ways=5, mean=0.5, spread=0.4)
    orders = set()
    for family in range(FAMILIES):
        chances = world.reliabilities(family, 1)
        assert sorted(chances.values()) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
        orders.add(tuple(chances.values()))
    assert len(orders) > FAMILIES / 2


def test_a_way_works_as_often_as_its_chance_says() -> None:
    for way, chance in Parametric(world=3).reliabilities(0, 1).items():
        assert share_that_works(way, world=3) == pytest.approx(chance, abs=0.04)
    assert share_that_works("Walnut", world=3) == 0


def test_noise_tells_a_share_of_results_the_other_way_round() -> None:
    best = max(Parametric(world=3).reliabilities(0, 1).items(), key=lambda known: known[1])
    assert share_that_works(best[0], world=3, noise=0.2) == pytest.approx(0.8 * best[1] + 0.2 * (1 - best[1]), abs=0.04)


def test_a_change_moves_every_chance_to_another_way_and_makes_nothing_easier() -> None:
    world = Parametric(world=3, shift_at=[10, 20])
    for family in range(FAMILIES):
        before, after, later = (world.reliabilities(family, step) for step in (9, 10, 20))
        assert sorted(before.values()) == sorted(after.values()) == sorted(later.values())
        assert all(before[way] != after[way] != later[way] for way in WAYS[:4])


def test_tasks_of_a_family_are_about_equally_similar_and_the_set_says_how_far_families_lie_apart() -> None:
    between = {}
    for name in SETS:
        tasks = Parametric.make_tasks(name)[: 20 * FAMILIES]
        vectors = HashingEmbedder().embed([task.intent for task in tasks])
        family = np.array([task.data["family"] for task in tasks])
        same = (family[:, None] == family) & ~np.eye(len(tasks), dtype=bool)
        similar = vectors @ vectors.T
        assert similar[same].mean() == pytest.approx(0.67, abs=0.03)
        assert similar[same].std() < 0.05
        between[name] = similar[family[:, None] != family].mean()
    assert between["parametric-far"] < 0.1 < between["parametric-middle"] < 0.45 < between["parametric-near"] < 0.6


def test_every_task_is_there_once_and_its_family_cannot_be_read_from_what_is_offered() -> None:
    assert len({task.intent for task in TASKS}) == len(TASKS) == 2000
    world = make_environment("parametric", world=5, ways=3)
    assert {tuple(offered(world.reset(task, seed=1, at_step=1))) for task in TASKS[:FAMILIES]} == {WAYS[:3]}


def test_a_task_of_another_world_is_refused() -> None:
    with pytest.raises(InputError):
        Parametric().reset(Task("t", "put a hot egg on the table", "household", "", {}), seed=0, at_step=1)
