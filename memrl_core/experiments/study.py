"""The runs of an experiment: memories are learned in ordinary runs, then used frozen in others that start from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memrl_core.agent import Agent, Episode
from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import make_model
from memrl_core.agent.runs import live_run, start_run
from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.errors import InputError, NoVector
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.records import Phase, StepTrace, Task
from memrl_core.settings import PolicySettings

STEPS_A_WRITE = 20
USE_SEED = 1_000_000
"""Added to the seed of a use: under its own seed again, each task would meet the very luck that it was learned with."""

Use = tuple[str, list[bool]]
"""A run that used a memory, and which of its tasks ended well."""


class Stopped(Exception):
    """The person stopped the experiment; what was stored stays."""


class Study:
    """What all runs of one experiment share; counts their steps.

    `name` is what the names of its runs begin with, `models` are named as in `make_model`. `done` of `total` steps are
    over; `on_progress` gets both after each. Every run is kept in `bank`.
    """

    def __init__(
        self,
        bank: MemoryBank,
        kind: str,
        models: Sequence[str],
        on_progress: Progress = unheard,
        cancelled: Cancelled = never,
    ) -> None:
        self.bank, self.models = bank, models
        self.name = bank.write.new_run_id(kind)
        self.done = self.total = 0
        self._preferences = load_preferences()
        self._models = {model: make_model(model, self._preferences) for model in models}
        self._on_progress, self._cancelled = on_progress, cancelled

    def learn(
        self,
        part: str,
        tasks: Sequence[Task],
        epochs: int,
        seed: int,
        model: str,
        settings: PolicySettings | None = None,
    ) -> str:
        """Go through `tasks` `epochs` times with an empty memory; the run's name. `settings` are of this run alone.

        Raises `Stopped`.
        """
        return self._played(whole_step, part, tasks, epochs, seed, model, settings)[0]

    def use(
        self,
        part: str,
        tasks: Sequence[Task],
        seed: int,
        model: str,
        base: str | None,
        options: Mapping[str, Any] | None = None,
        settings: PolicySettings | None = None,
    ) -> Use:
        """Go through `tasks` once with what `base` knows (None: nothing), which stays as it is: nothing is credited,
        updated or written. `options` are the model's. The run's name, and which tasks ended well. Raises `Stopped`.
        """
        run, traces = self._played(frozen_step, part, tasks, 1, seed + USE_SEED, model, settings, base, options)
        return run, [trace.reward is not None and trace.reward.outcome == "success" for trace in traces]

    def _played(
        self,
        play: Callable[[Agent, Task, int, Cancelled], StepTrace],
        part: str,
        tasks: Sequence[Task],
        epochs: int,
        seed: int,
        model: str,
        settings: PolicySettings | None,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[str, list[StepTrace]]:
        """A new run of `tasks`: its name and its steps."""
        info = start_run(
            self.bank,
            environment=tasks[0].environment,
            tasks="",
            settings=settings,
            seed=seed,
            model=model,
            base=base,
            run=f"{self.name}-{part}",
            model_options=options,
        )
        agent = live_run(self.bank, info.id, self._preferences).agent
        agent.model = self._models[model]
        worlds = {agent.environment.name: agent.environment}
        traces = []
        with self.bank.write.batch(STEPS_A_WRITE):
            for epoch in range(1, epochs + 1):
                for task in tasks:
                    name = task.environment
                    agent.environment = worlds[name] = worlds.get(name) or make_environment(name)
                    traces.append(play(agent, task, epoch, self._cancelled))
                    self.done += 1
                    self._on_progress(self.done, self.total)
        return info.id, traces


def whole_step(agent: Agent, task: Task, epoch: int, cancelled: Cancelled) -> StepTrace:
    """One step from its task to its written memory, or skipped where a text of it has no vector (`Episode.skip`).

    Raises `Stopped` when `cancelled()` turns true on the way.
    """
    return _advanced(agent, task, epoch, None, cancelled).trace


def frozen_step(agent: Agent, task: Task, epoch: int, cancelled: Cancelled) -> StepTrace:
    """One step that leaves the memory as it is: nothing is credited, updated or written. Raises `Stopped`."""
    trace = _advanced(agent, task, epoch, Phase.UPDATE, cancelled).trace
    assert trace.reward is not None
    if trace.skipped:  # It is stored already, and credits nothing.
        return trace
    # A reward moves the memories that it credits; UPDATE and WRITE never run.
    trace = replace(trace, reward=replace(trace.reward, credited=()))
    agent.bank.write.commit_step(trace, {})
    return trace


def _advanced(agent: Agent, task: Task, epoch: int, until: Phase | None, cancelled: Cancelled) -> Episode:
    episode = agent.begin(task, epoch)
    while episode.phase is not until:
        if cancelled():
            raise Stopped
        try:
            episode.advance(cancelled=cancelled)
        except NoVector as error:
            episode.skip(error)
            return episode
    if until is not None and cancelled():
        raise Stopped
    return episode


def checked_seeds(seeds: Sequence[int], epochs: int) -> list[int]:
    """`seeds` if they can be used. Raises `InputError` for none, doubles or negative ones, and for no epoch."""
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed < USE_SEED for seed in seeds):
        raise InputError(f"An experiment needs seeds from 0 to {USE_SEED - 1:,}, each once. Nothing was started.")
    if epochs < 1:
        raise InputError("A memory is learned in at least one epoch. Nothing was started.")
    return list(seeds)
