"""Runs: started, forked, and given what they need to go on or to answer a step again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memrl_core.agent import Agent
from memrl_core.agent.live import LiveRun
from memrl_core.agent.preferences import Preferences, load_preferences
from memrl_core.agent.rerun import Rerunner
from memrl_core.agent.run_parts import (
    SIMULATED,
    SMALL,
    embedder_of,
    is_simulated,
    make_model,
    must_be_the_same,
    must_be_there,
)
from memrl_core.agent.setup import fits, give
from memrl_core.bank import MemoryBank
from memrl_core.environments import OWN_WORDS, REPEATS, environment_class, environment_names, make_environment
from memrl_core.environments.tasks import tasks_of_set
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.models.base import checked_options
from memrl_core.models.hosts import Hosts
from memrl_core.policies import make_policy, policy_class, settings_of
from memrl_core.records import RunInfo, StepTrace, Task
from memrl_core.settings import PolicySettings

REPEATED = 3
"""So many repeats in the same state end an episode of a language model: small ones go round in circles."""


def start_run(
    bank: MemoryBank,
    *,
    environment: str,
    tasks: str,
    task_count: int = 0,
    settings: PolicySettings | None = None,
    seed: int = 0,
    model: str = SIMULATED,
    base: str | None = None,
    run: str | None = None,
    policy: str = "memrl",
    environment_options: dict[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    model_facts: Mapping[str, Any] | None = None,
    by: str = "",
) -> RunInfo:
    """Start a run in `bank`, with what its world gives it or with what the run `base` knows now; `by` is the person.

    `settings` are the policy's; None stands for its defaults. `model_facts` are what `must_be_there` gave just now; the
    model is asked where they are not given. Options of the environment that nobody chose are those of `begins_with`;
    what its world draws is drawn from the seed. Raises `InputError` or `SettingsError` for a part or a setting that
    does not exist, `EnvironmentFailed` for a world that this machine cannot run, and `ModelError` for a model that
    cannot be asked, before anything is written; and `NotAllowed`.
    """
    chosen = settings_of(policy, settings.model_dump() if settings is not None else {}).model_dump()
    make_policy(policy, chosen)
    simulated = is_simulated(model)
    found = environment_class(environment)
    options = {**begins_with(environment, model), **(environment_options or {})}
    if found.seed_option and found.seed_option not in options:
        known = bank.run(base).environment_options if base else {}
        options[found.seed_option] = known.get(found.seed_option, seed)
    world = make_environment(environment, **options)
    if lacking := found.missing():
        raise EnvironmentFailed(f"{lacking} Nothing was started.")
    if missing := fits(policy, environment, chosen, people_reward=True):
        raise InputError(f"{missing} Nothing was started; choose another method, or another environment.")
    info = RunInfo(
        id=run or bank.write.new_run_id(environment),
        environment=environment,
        tasks=tasks,
        policy=policy,
        settings=chosen,
        seed=seed,
        model=model,
        simulated=simulated,
        embedder=bank.embedder.name,
        base=base,
        base_step=bank.next_step(base) - 1 if base else 0,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        task_count=task_count,
        environment_options=options,
        model_options=checked_options(model_options or {}),
    )
    tasks_of(info)
    facts = must_be_there(model, load_preferences()) if model_facts is None else model_facts
    info = replace(info, model_facts=dict(facts))
    first = [(intent, experience, "") for intent, experience in world.first_memories()] if base is None else []
    embedder = embedder_of(bank, load_preferences()) if first else None
    bank.write.start_run(info, by)
    if embedder is not None:
        give(bank, info.id, "given", first, embedder)
    return info


def begins_with(environment: str, model: str) -> Mapping[str, Any]:
    """The options of `environment` that a run with `model` begins with, where nobody chose."""
    found = environment_class(environment)
    if is_simulated(model):
        return found.simulated_options
    # Asked for a lesson, a model of this size writes prose that has nothing to do with it, and memories fill with it.
    begun: dict[str, Any] = {OWN_WORDS: False} if model == SMALL else {}
    return begun | ({REPEATS: REPEATED} if REPEATS in found.Options.model_fields else {})


def tasks_of(info: RunInfo) -> list[Task]:
    """The tasks of a run, in order; empty when its steps begin with what a person types.

    Raises `InputError` when the set is not here, is for another environment, or has fewer than the run wants, and
    `EnvironmentFailed` when an environment that makes its tasks itself cannot.
    """
    if not info.tasks:
        return []
    tasks = tasks_of_set(info.tasks)
    if others := {task.environment for task in tasks} - {info.environment}:
        raise InputError(
            f"The tasks of {info.tasks} are for {', '.join(sorted(others))}, not for {info.environment}. Choose the "
            "environment that they are for."
        )
    if info.task_count > len(tasks):
        raise InputError(
            f"The set {info.tasks} has {len(tasks):,} tasks; {info.task_count:,} were asked for. Ask for at most "
            f"{len(tasks):,}, or for 0, which takes all."
        )
    return tasks[: info.task_count or len(tasks)]


def fork(
    bank: MemoryBank,
    run: str,
    step: int,
    settings: Mapping[str, Any],
    name: str | None = None,
    by: str = "",
    model: str = "",
) -> RunInfo:
    """Start a run that knows what `run` knew before `step`, and goes on from there under other settings.

    It meets the tasks and seeds that the other met, because it goes on with its numbers. `model` is another model than
    that of the other run, with that model's options and facts; "" keeps it. Raises `InputError` for a step
    that the run does not have or an environment that is not here, `SettingsError` for a value out of range,
    `ModelError` for a model that cannot be asked, and `NotAllowed` when the person `by` may not manage the bank.
    """
    info = bank.run(run)
    bank.trace(run, step)
    make_policy(info.policy, settings)
    make_environment(info.environment, **info.environment_options)
    forked = replace(
        info,
        id=name or bank.write.new_run_id(f"{run}-fork"),
        settings=dict(settings),
        base=run,
        base_step=step - 1,
        first_step=step,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    if model and model != info.model:
        preferences = load_preferences()
        options = checked_options(preferences.model_options.get(model, {}))
        facts = dict(must_be_there(model, preferences))
        forked = replace(forked, model=model, simulated=is_simulated(model), model_options=options, model_facts=facts)
    bank.write.start_run(forked, by)
    return forked


def what_carries_over(bank: MemoryBank, info: RunInfo) -> str:
    """What a run can use of what it begins with, where another policy wrote that; empty otherwise."""
    if info.base is None or bank.run(info.base).policy == info.policy:
        return ""
    theirs = bank.run(info.base)
    return f"{info.base} was made by the policy {theirs.policy}. {policy_class(info.policy).spec.carries_over}"


def can_go_on(info: RunInfo) -> bool:
    """Whether this program has the world of a run; one that was imported or recorded can only be looked at."""
    return info.environment in environment_names()


def live_run(bank: MemoryBank, run: str, preferences: Preferences, hosts: Hosts | None = None) -> LiveRun:
    """The run with everything it needs to go on, its model at `hosts` where some are given.

    Raises `ModelError` when its embedder cannot be had, `EmbedderMismatch` when that is no longer what made the bank,
    and `ModelChanged` when its model has other weights now.
    """
    info = bank.run(run)
    must_be_the_same(info, preferences, hosts)
    embedder = embedder_of(bank, preferences)
    world = make_environment(info.environment, **info.environment_options)
    return LiveRun(Agent(bank, run, make_model(info.model, preferences, hosts), embedder, world), tasks_of(info))


def reconnect(live: LiveRun, preferences: Preferences) -> None:
    """Give an idle run its model and embedder anew, as after a change of address; the step under way goes on.

    Raises `ModelError` when the embedder cannot be had; the model is then the new one already. Raises `ModelChanged`
    before anything is changed.
    """
    bank, run = live.agent.bank, live.agent.run_id
    must_be_the_same(bank.run(run), preferences)
    live.agent.model = make_model(bank.run(run).model, preferences)
    live.agent.embedder = embedder_of(bank, preferences)


def rerunner(bank: MemoryBank, trace: StepTrace, preferences: Preferences, model: str = "") -> Rerunner:
    """What answers a finished step of this program's agent again, with its world and with its model or another `model`.

    Raises `InputError` for a step of another agent: its world is not here.
    """
    info = bank.run(trace.run)
    if trace.origin != "agent":
        raise InputError("This step was not made here, so its world and model cannot be asked again.")
    return Rerunner(
        bank,
        trace,
        make_model(model or info.model, preferences),
        make_environment(info.environment, **info.environment_options),
        embed=lambda texts: embedder_of(bank, preferences).embed(texts),
        must_hold=None if model not in ("", info.model) else lambda: must_be_the_same(info, preferences),
    )
