"""Sets of tasks by name, whole or some of their families."""

from __future__ import annotations

from memrl_core.environments import environment_class, environment_names, make_environment, why_unusable
from memrl_core.environments.task_sets import set_names, tasks_of_set
from memrl_core.errors import InputError
from memrl_core.records import Task


def named_tasks(name: str, count: int = 0) -> list[Task]:
    """The first `count` tasks (0: all) of a set such as "household-train" or "household-train:heat,cool".

    What stands behind the colon are families. Raises `InputError` for a set or family that does not exist, and for an
    environment in which only a person gives rewards: nothing could be measured there.
    """
    set_name, _, listed = name.partition(":")
    tasks = tasks_of_set(set_name.strip())
    families = [family.strip() for family in listed.split(",") if family.strip()]
    there = list(dict.fromkeys(task.family for task in tasks))
    for family in families:
        if family not in there:
            raise InputError(f"The set {set_name} has no family “{family[:80]}”. Known: {', '.join(there)}.")
    for environment in dict.fromkeys(task.environment for task in tasks):
        if make_environment(environment).reward_source != "environment":
            raise InputError(f"In {environment} only a person gives rewards. Choose a set that is judged by its world.")
    chosen = [task for task in tasks if not families or task.family in families]
    return chosen[: count or len(chosen)]


def judged_sets() -> list[str]:
    """The sets whose world gives rewards and can be used on this machine, in the order of the environments."""
    judged = [
        name
        for name in environment_names()
        if not why_unusable(name) and environment_class(name).reward_source == "environment"
    ]
    return [one for name in judged for one in set_names(name)]


def environment_of(name: str) -> str:
    """The environment that a set of tasks is for. Raises as `named_tasks`."""
    return named_tasks(name, 1)[0].environment
