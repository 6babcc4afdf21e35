"""The same three arms in every environment: no memory, similarity alone, MemRL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memrl_core.agent.workspace import SIMULATED
from memrl_core.environments import environment_class, environment_names, why_unusable
from memrl_core.errors import InputError
from memrl_core.experiments.plan import ArmPlan, Plan, Stage, Stream

NO_MEMORY, SIMILARITY, MEMRL = "no memory", "similarity only", "MemRL"


def environments_plan(sets: Mapping[str, str], *, seeds: int, epochs: int, tasks: int, model: str = SIMULATED) -> Plan:
    """One stream a set of tasks (title to name of the set), `tasks` of each (0: all), gone through `epochs` times."""
    return Plan(
        title="Three arms in every environment",
        question="What does memory gain in each of these worlds, and what does learned utility add to similarity?",
        seeds=seeds,
        epochs=epochs,
        model=model,
        report=["environments"],
        compare_with=SIMILARITY,
        arms=[
            ArmPlan(name=NO_MEMORY, policy="none"),
            ArmPlan(name=SIMILARITY, policy="memrl", settings={"weight": 0.0}),
            ArmPlan(name=MEMRL, policy="memrl"),
        ],
        streams=[Stream(name=name, stages=[Stage(tasks=tasks_of, count=tasks)]) for name, tasks_of in sets.items()],
    )


def first_sets(wanted: Sequence[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """The first set of each environment whose world gives rewards, and for those left out, the sentence of why.

    `wanted` are environments (all when left out). Raises `InputError` for an unknown one.
    """
    sets: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in wanted or environment_names():
        if why := why_unusable(name):
            if wanted:
                raise InputError(why)
            left_out[name] = why
            continue
        found = environment_class(name)
        if found.reward_source != "environment":
            left_out[name] = "only a person gives rewards there"
        elif not found.sets:
            left_out[name] = "it has no tasks of its own; give a file of them by --file"
        else:
            sets[name] = found.sets[0]
    return sets, left_out
