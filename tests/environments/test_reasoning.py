"""Questions of reasoning-gym: the same ones every time, judged without evaluating what was answered."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace

import pytest
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS

from memrl_core.environments import make_environment, why_unusable
from memrl_core.environments.reasoning import FAMILIES, Reasoning, _dataset
from memrl_core.environments.tasks import LONGEST_INTENT, tasks_of_set
from memrl_core.errors import InputError
from memrl_core.records import Task

TASK = Task("t", "?", "reasoning", "gcd", {"family": "gcd", "seed": 1, "place": 0})


def test_no_family_evaluates_what_was_answered() -> None:
    assert {DATASETS[family][0].score_answer for family in FAMILIES} == {ProceduralDataset.score_answer}


def test_the_right_answer_earns_one_and_any_other_nothing() -> None:
    world = make_environment("reasoning")
    tasks = Reasoning.make_tasks("reasoning-heldout")
    assert len(tasks) == 4 * len(FAMILIES) and len({task.intent for task in tasks}) == len(tasks)
    for task in tasks[: len(FAMILIES)]:
        assert len(task.intent) <= LONGEST_INTENT
        right = str(_dataset(task.data["family"], task.data["seed"])[task.data["place"]]["answer"])
        for answer, reward in ((right, 1.0), ("__import__('os')", 0.0), ("", 0.0)):
            world.reset(task, seed=0, at_step=1)
            assert world.step(answer)[1] == reward, (task.id, answer)


def test_no_question_of_one_set_stands_in_the_other() -> None:
    train, heldout = ({task.intent for task in Reasoning.make_tasks(name)} for name in Reasoning.sets)
    assert len(train) > 7 * len(FAMILIES) and not train & heldout


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "reasoning_gym" else found(name))
    _dataset.cache_clear()
    extra = r"memrl-inspector\[reasoning\]"
    assert re.search(extra, why_unusable("reasoning"))
    with pytest.raises(InputError, match=extra):
        tasks_of_set("reasoning-train")
    with pytest.raises(InputError, match=extra):
        make_environment("reasoning").reset(TASK, seed=0, at_step=1)


def test_a_task_of_another_world_is_refused_with_what_is_wrong() -> None:
    for odd, wrong in (
        ({"family": "f"}, "family"),
        ({"place": 32}, "place"),
        ({"seed": -1}, "seed"),
        ({"seed": "1"}, "seed"),
    ):
        with pytest.raises(InputError, match=wrong):
            make_environment("reasoning").reset(replace(TASK, data={**TASK.data, **odd}), seed=0, at_step=1)
