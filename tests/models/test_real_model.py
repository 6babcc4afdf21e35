"""A real language model, SmolLM2-135M, acts in whole steps and solves more with a memory than without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memrl_core.agent import Agent
from memrl_core.agent.runs import start_run
from memrl_core.analysis.decision.outline import valid_answers
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import OPEN_PLACES, TREATMENTS, VERBS, Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.base import ModelOptions
from memrl_core.models.gguf import GgufModel
from memrl_core.policies import settings_of
from memrl_core.records import Message, Reply, StepTrace, Task

SMOLLM2 = "gguf:smollm2"
TASKS = sample_tasks("household-train")[:6]
OPTIONS = ModelOptions(num_ctx=2048, num_predict=32)


class Expert:
    """Knows each task's data and does what solves it, with the appliances that mostly work."""

    name, simulated, binds = "expert", True, False

    def chat(self, messages: Sequence[Message], *_: Any, **__: Any) -> Reply:
        asked = next(message.content for message in messages if message.role == "user")
        task = next(task for task in TASKS if f"Task: {task.intent}\n" in asked.rpartition("## Your task")[2])
        return Reply(script(task)[sum(message.role == "assistant" for message in messages)])


def script(task: Task) -> list[str]:
    """The actions that solve a task of the household."""
    thing, treatment = str(task.data["object"]), str(task.data.get("treatment", ""))
    places = [str(place) for name, place in task.data["things"].items() if name.partition("#")[0] == thing]
    actions: list[str] = []
    for place in places[: int(task.data.get("count", 1))]:
        if place not in OPEN_PLACES and f"search {place}" not in actions:
            actions.append(f"search {place}")
        actions.append(f"take {thing} from {place}")
        if treatment:
            works: Mapping[str, float] = TREATMENTS[treatment]
            actions.append(f"{VERBS[treatment]} {thing} with {max(works, key=lambda name: works[name])}")
        actions.append(f"put {thing} on {task.data['target']}")
    return actions


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StepTrace]]:
    """The same tasks by an expert, then by SmolLM2 with the expert's memories and without any, same seeds."""
    path = str(tmp_path_factory.mktemp("real") / "bank")
    with MemoryBank.create(path, "hashing-256", 256) as bank:
        expert = start_run(bank, environment="household", tasks="household-train", task_count=len(TASKS), run="expert")

        # What a model of this size says of an episode is long and of no use.
        world = Household()
        world.own_words = False

        def steps(run: str, model: Any) -> list[StepTrace]:
            agent = Agent(
                bank, run, model, HashingEmbedder(256), world, options=ModelOptions(num_ctx=2048, num_predict=32)
            )
            return list(agent.run(TASKS))

        found = {"expert": steps(expert.id, Expert())}
        for name, policy in (("memory", "rag"), ("none", "none")):
            settings = settings_of("rag", {"k2": 1}) if policy == "rag" else None
            run = start_run(
                bank,
                environment="household",
                tasks="household-train",
                task_count=len(TASKS),
                model=SMOLLM2,
                policy=policy,
                settings=settings,
                base="expert" if policy == "rag" else None,
                run=name,
            )
            found[name] = steps(run.id, GgufModel(SMOLLM2))
        return found


def solved(traces: Sequence[StepTrace]) -> int:
    """How many steps ended well."""
    return sum(trace.reward is not None and trace.reward.outcome == "success" for trace in traces)


def test_nearly_all_its_answers_are_among_the_lines_offered(played: dict[str, list[StepTrace]]) -> None:
    counts = [valid_answers(trace) for name in ("memory", "none") for trace in played[name]]
    valid, asked = sum(found for found, _ in counts), sum(of for _, of in counts)
    assert asked >= 2 * len(TASKS)
    assert valid / asked >= 0.95


def test_with_a_memory_of_the_task_it_solves_more_than_without(played: dict[str, list[StepTrace]]) -> None:
    assert solved(played["expert"]) >= 5, "the memories are worth following"
    assert solved(played["memory"]) >= solved(played["none"]) + 3
