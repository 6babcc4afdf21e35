"""Sets of tasks by name, whole or some of their families."""

from __future__ import annotations

from memrl_core.environments import environment_class, environment_names, make_environment, why_unusable
from memrl_core.environments.tasks import set_names, tasks_of_set
from memrl_core.errors import InputError
from memrl_core.records import Task


def named_tasks(name: str, count: int = 0) -> list[Task]:
    """The first `count` tasks (0: all) of a set such as "household-train" or "household-train:heat,cool".

    What stands behind the colon is a family, or several with commas between them. Raises `InputError` for a set or
    family that does not exist, and where only people can judge: nothing could be measured there.
    """
    set_name, _, listed = name.partition(":")
    tasks = tasks_of_set(set_name.strip())
    there = list(dict.fromkeys(task.family for task in tasks))
    families = [family for family in there if family and family.strip() == listed.strip()]
    families = families or [family.strip() for family in listed.split(",") if family.strip()]
    for family in families:
        if family not in there:
            raise InputError(f"The set {set_name} has no family “{family[:80]}”. Known: {', '.join(there)}.")
    for environment in dict.fromkeys(task.environment for task in tasks):
        if make_environment(environment).reward_source != "environment":
            raise InputError(f"In {environment} only a person gives rewards. Choose a set that is judged by its world.")
    chosen = [task for task in tasks if not families or task.family in families]
    from memrl_core.environments.own_tasks.environment import left_to_people

    if all(map(left_to_people, chosen)):
        raise InputError(
            f"The tasks of {name[:80]} have no reference, so only people can judge them, and nothing can be measured. "
            "Nothing was run; give them references, or choose another set."
        )
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
