"""AWM: one workflow for each sequence of actions that worked, written anew after a success and after nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.agent.asking import templates
from memrl_core.agent.learned_state import learned_before, learned_now
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.environments.household import OPEN_PLACES, TREATMENTS, VERBS, Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.policies.base import NewExperience
from memrl_core.policies.methods.awm import (
    Awm,
    AwmSettings,
    Induced,
    Success,
    Workflow,
    Workflows,
    abstracted,
    induction_question,
    kind_of,
    laid_out,
    steps_of,
)
from memrl_core.prompting import ANSWER_MARK
from memrl_core.records import Memory, Outcome, Reply, StepTrace, Task
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import view_of
from tests.policies.policy_run import EMBEDDER, an_agent_of, newcomer

EGG = Success(
    "put a hot egg on the counter",
    ("search fridge", "take egg from fridge", "heat egg with stove", "put egg on counter"),
)
TASKS = sample_tasks("household-train")


def an_end(outcome: Outcome = "success", verb: str = "heat") -> NewExperience:
    steps = [step.replace("heat", verb) for step in EGG.steps]
    text = f"Task: {EGG.intent}\nSteps that worked:\n" + "\n".join(ANSWER_MARK + step for step in steps)
    return newcomer("awm", EGG.intent, text, outcome)


def a_view(state: Workflows | None = None, hidden: Sequence[str] = (), **similar: float) -> MemoryView:
    """Memories by id, "_" standing for ".", with their cosine to the query (1, 0)."""
    ids = [name.replace("_", ".") for name in similar]
    memories = {i: Memory(i, i, i, "success", i, (i[:-2],) if "." in i else (), "r", 1, "t1", "") for i in ids}
    return view_of(
        ids, np.reshape([(x, (1 - x * x) ** 0.5) for x in similar.values()], (-1, 2)),
        visible=np.array([i not in hidden for i in ids], dtype=bool), memories=memories,
        asked=Asked(np.array([1, 0], dtype=np.float32), task="t1"), learned=state,
    )  # fmt: skip


def induced(memory_id: str, verb: str = "heat") -> Workflows:
    workflow = Workflow(name="warm", docstring="warm a thing", steps=["fetch it"])
    return Workflows(
        {f"search, take, {verb}, put": Induced(memory_id, workflow, (Success("warm a mug", ("heat mug with stove",)),))}
    )


# --- a workflow -------------------------------------------------------------------------------------------------------


MUGS = Success("there should be two mugs on the shelf", ("take mug from desk", "put mug on shelf"))


@pytest.mark.parametrize(
    ("success", "intent", "steps"),
    [
        (
            EGG,
            "put a hot {object-1} on the {object-2}",
            "search fridge; take {object-1} from fridge; heat {object-1} with stove; put {object-1} on {object-2}",
        ),
        (
            MUGS,
            "there should be two {object-1} on the {object-2}",
            "take {object-1} from desk; put {object-1} on {object-2}",
        ),
        (Success("say hello", ("hello",)), "say hello", "hello"),
    ],
)
def test_the_template_puts_placeholders_for_what_the_actions_are_about(
    success: Success, intent: str, steps: str
) -> None:
    assert abstracted(success) == (intent, tuple(steps.split("; ")))


def test_a_workflow_reads_abstract_first_and_ends_with_what_worked() -> None:
    text = laid_out(Workflow(name="heat", docstring="warm\nit", steps=["take {object-1}"]), EGG)
    assert text.splitlines()[:5] == [
        "Task: put a hot egg on the counter",
        "Workflow: heat",
        "warm it",
        "1. take {object-1}",
        "Steps that worked:",
    ]
    assert text.splitlines()[5:] == [f"> {step}" for step in EGG.steps]


def test_the_model_reads_the_workflow_so_far_and_the_successes() -> None:
    before = Workflow(name="warm", docstring="to warm a thing", steps=["fetch it"])
    reported = induction_question("heat", before, [Success("warm a mug", ("heat mug with stove",)), EGG]).message
    for part in ("Actions: heat", "Workflow: warm", "1. fetch it", "> heat mug with stove", "> put egg on counter"):
        assert part in reported


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_kind_of_success_is_what_its_actions_are_called() -> None:
    assert kind_of(EGG.steps) == "search, take, heat, put"
    assert kind_of(["go east", "Go north", "take key", "go west"]) == "go, take, go"
    assert kind_of([" ", ""]) == kind_of([]) == ""


def test_the_first_success_of_a_kind_adds_and_the_next_takes_its_place() -> None:
    (first,) = Awm(AwmSettings()).write(an_end(), a_view(), templates)
    assert (first.operation.op, first.operation.replaces) == ("ADD", ())
    (second,) = Awm(AwmSettings()).write(an_end(), a_view(induced("w"), w=0.5), templates)
    assert (second.operation.op, second.operation.replaces) == ("UPDATE", ("w",))
    assert [one["intent"] for one in second.operation.data["successes"]] == ["warm a mug", EGG.intent]
    (other,) = Awm(AwmSettings()).write(an_end(verb="cool"), a_view(induced("w"), w=0.5), templates)
    assert other.operation.op == "ADD"


def test_a_workflow_is_found_by_its_name_and_docstring() -> None:
    (written,) = Awm(AwmSettings()).write(an_end(), a_view(), templates)
    assert written.embedding is not None
    assert np.array_equal(
        written.embedding, EMBEDDER.embed(["search, take, heat, put\nput a hot {object-1} on the {object-2}"])[0]
    )


@pytest.mark.parametrize(
    ("outcome", "ask"), [("failure", templates), ("unrated", templates), ("success", lambda question: None)]
)
def test_only_successes_and_usable_answers_change_a_workflow(outcome: Outcome, ask: Any) -> None:
    (written,) = Awm(AwmSettings()).write(an_end(outcome), a_view(induced("w"), w=0.5), ask)
    assert (written.operation.op, written.embedding) == ("NOOP", None)
    assert written.operation.why


def test_what_people_reworded_is_replaced_and_what_they_forgot_begins_anew() -> None:
    policy = Awm(AwmSettings())
    (worded,) = policy.write(an_end(), a_view(induced("w"), ["w"], w=0.5, w_2=0.5), templates)
    assert worded.operation.replaces == ("w.2",)
    (anew,) = policy.write(an_end(), a_view(induced("w"), ["w"], w=0.5), templates)
    assert anew.operation.op == "ADD"
    assert [one["intent"] for one in anew.operation.data["successes"]] == [EGG.intent]


def test_so_many_successes_are_kept_as_the_settings_say() -> None:
    (written,) = Awm(AwmSettings(successes=1)).write(an_end(), a_view(induced("w"), w=0.5), templates)
    assert [one["intent"] for one in written.operation.data["successes"]] == [EGG.intent]


# --- recall -----------------------------------------------------------------------------------------------------------


def pool(policy: Awm, view: MemoryView) -> list[str]:
    return [seen.memory_id for seen in policy.recall(view.asked.embedding, view).pool]


def test_the_nearest_workflows_are_recalled() -> None:
    state = Workflows({**induced("far", "cool").by_kind, **induced("near").by_kind})
    view = a_view(state, far=0.1, stranger=0.9, near=0.5)
    assert pool(Awm(AwmSettings(k1=2, k2=2)), view) == ["stranger", "near"]


# --- a whole run ------------------------------------------------------------------------------------------------------


class Solver:
    """Knows its way about the household (a `LanguageModel`)."""

    name, simulated, binds = "simulated", True, False

    def __init__(self, world: Household) -> None:
        self.world = world

    def chat(self, messages: Any, options: Any, *_: Any, schema: Mapping[str, Any] | None = None) -> Reply:
        world = self.world
        thing = world._object
        if not world._holding:
            place = next(p for t, p in world._where.items() if t.partition("#")[0] == thing and p != world._target)
            hidden = place not in OPEN_PLACES and place not in world._searched
            return Reply(f"search {place}" if hidden else f"take {thing} from {place}")
        if not world._treated:
            surest = max(TREATMENTS[world._treatment].items(), key=lambda pair: pair[1])[0]
            return Reply(f"{VERBS[world._treatment]} {thing} with {surest}")
        return Reply(f"put {thing} on {world._target}")


def solved(agent: Agent, tasks: Sequence[Task]) -> list[StepTrace]:
    """Steps of a model that can do it, which then leaves the agent to its own."""
    agent.model, own = Solver(agent.environment), agent.model
    traces = list(agent.run(tasks))
    agent.model = own
    return traces


def written_by(trace: StepTrace) -> str:
    return trace.write.operations[0].memory_id


def test_a_run_keeps_one_workflow_for_each_kind_of_success(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "awm")
    traces = solved(agent, TASKS[:12])
    won = [trace for trace in traces if trace.reward and trace.reward.outcome == "success"]
    newest = {kind_of(steps_of(agent.bank.memory(written_by(trace)).experience)): trace for trace in won}
    state = learned_now(agent.bank, "r")
    assert len(won) > len(newest) > 2
    assert state.by_kind.keys() == newest.keys()
    assert [one.memory_id for one in state.by_kind.values()] and len(agent.bank.utilities("r")) == len(newest)
    for kind, trace in newest.items():
        memory_id = state.by_kind[kind].memory_id
        assert memory_id == written_by(trace)
        assert agent.bank.memory(memory_id).experience.startswith(f"Task: {trace.task.intent}\nWorkflow: {kind}\n")
    agent.bank.close()
    again = MemoryBank.open(agent.bank.uri)
    assert learned_now(again, "r") == state
    assert learned_before(again, "r", 13) == state
    assert all(finding.ok for finding in check(agent.bank.uri))
