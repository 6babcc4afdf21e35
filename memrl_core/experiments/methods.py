"""Methods compared, each in a bank of its own: the arms of equal seed meet the same tasks with the same luck."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memrl_core.agent import workspace
from memrl_core.agent.setup import fits
from memrl_core.analysis.compare.methods import (
    NO_MEMORY,
    MethodCurve,
    MethodRow,
    luck_curve,
    method_curves,
    method_rows,
)
from memrl_core.environments.tasks import environment_of
from memrl_core.errors import InputError, MemRLError
from memrl_core.experiments.cells import Cell, drawn, run_cell
from memrl_core.experiments.epochs import durations
from memrl_core.experiments.plan import ArmPlan, Stage, Stream
from memrl_core.experiments.study import Progress, Stopped, checked_seeds
from memrl_core.models.base import Cancelled
from memrl_core.policies import settings_of
from memrl_core.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class Arm:
    """One method in a comparison; `settings` None are its defaults."""

    name: str
    policy: str
    settings: PolicySettings | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """Every setting by name. Raises `SettingsError` where the policy does not have them."""
        return settings_of(self.policy, {} if self.settings is None else self.settings.model_dump()).model_dump()


@dataclass(frozen=True, slots=True, eq=False)
class MethodsCompared:
    """What became of the arms.

    `rows` are the lines of a table, in the order given, each compared with the arm `without` memory and with the
    `reference`; `curves` are their CSR by epoch and `luck` is Pass@e. `steps` has a row per step and arm
    (`cells.SCHEMA`, with `model_seconds`). `refused` maps an arm that did not run to the sentence of why. `seeds` are
    those that every other arm has finished; `stopped` is True when a person ended it before.
    """

    model: str
    seeds: tuple[int, ...]
    without: str
    reference: str
    rows: tuple[MethodRow, ...]
    curves: tuple[MethodCurve, ...]
    luck: MethodCurve | None
    steps: pd.DataFrame
    refused: Mapping[str, str]
    stopped: bool


def compare_methods(
    arms: Sequence[Arm],
    *,
    tasks: str = "household-train",
    count: int = 30,
    seeds: Sequence[int] = range(3),
    epochs: int = 3,
    model: str = workspace.SIMULATED,
    preferences: workspace.Preferences | None = None,
    on_progress: Progress | None = None,
    cancelled: Cancelled | None = None,
) -> MethodsCompared:
    """Run `arms` on `count` tasks of a set (0: all), drawn anew for each seed, `epochs` times, in temporary banks.

    An arm without memory is added where there is none. Arms that lack something in this world, and those that fail on
    the way, are refused, and the others go on. `on_progress` gets the steps done and their total. When `cancelled()`
    turns true, it ends within a step, and the seeds that were over count.

    Raises `InputError` or `SettingsError` for arms, tasks and seeds that cannot be used, before anything is run.
    """
    chosen = checked_seeds(seeds, epochs)
    preferences = preferences or workspace.load_preferences()
    environment, arms = environment_of(tasks), _with_one_without_memory(arms)
    refused = {arm.name: why for arm in arms if (why := fits(arm.policy, environment, arm.values))}
    started = [arm for arm in arms if arm.name not in refused]
    stream, steps_an_arm = Stream(stages=[Stage(tasks=tasks, count=count)]), epochs * len(drawn(tasks, count, 0))
    done, total, report = 0, len(chosen) * steps_an_arm * len(started), on_progress or (lambda done, total: None)

    def count_step() -> None:
        nonlocal done
        done += 1
        report(done, total)

    def run(arm: Arm, seed: int) -> pd.DataFrame:
        plan = ArmPlan(name=arm.name, policy=arm.policy, settings=dict(arm.values))
        cell = Cell(arm=plan, settings=plan.settings, stream=stream, seed=seed, epochs=epochs, model=model)
        with tempfile.TemporaryDirectory(prefix="memrl-methods-") as folder:
            table = run_cell(cell, f"{folder}/bank", cancelled, preferences, count_step)
        return table.to_pandas().assign(model_seconds=durations([table])["model_seconds"])

    frames: dict[int, list[pd.DataFrame]] = {}
    stopped = False
    for seed in chosen:
        parts: list[pd.DataFrame] = []
        try:
            for number, arm in enumerate(started, start=1):
                if arm.name not in refused:
                    try:
                        parts.append(run(arm, seed))
                    except MemRLError as error:
                        refused[arm.name] = str(error)
                done = steps_an_arm * (len(frames) * len(started) + number)
                report(done, total)
        except Stopped:
            stopped = True
            break
        frames[seed] = parts
    running = [arm for arm in arms if arm.name not in refused]
    without = next((arm.name for arm in running if _is_without_memory(arm)), "")
    reference = running[0].name if running else ""
    there = [part for parts in frames.values() for part in parts if part["arm"].iloc[0] not in refused]
    if not there:
        nothing = pd.DataFrame()
        return MethodsCompared(model, tuple(frames), without, reference, (), (), None, nothing, refused, stopped)
    steps = pd.concat(there, ignore_index=True)
    rows, curves = tuple(method_rows(steps, without, reference)), tuple(method_curves(steps))
    luck = luck_curve(steps, without)
    return MethodsCompared(model, tuple(frames), without, reference, rows, curves, luck, steps, refused, stopped)


def _is_without_memory(arm: Arm) -> bool:
    return arm.policy == NO_MEMORY or arm.values["k2"] == 0


def _with_one_without_memory(arms: Sequence[Arm]) -> list[Arm]:
    """The arms, checked, with one without memory among them. Raises `InputError` and `SettingsError`."""
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) < len(names) or not all(0 < len(name) <= 80 for name in names):
        raise InputError("A comparison needs arms, each with a name of its own of at most 80 letters.")
    if any(_is_without_memory(arm) for arm in arms):
        return list(arms)
    name = next(name for name in ("no memory", "without memory", "nothing") if name not in names)
    return [*arms, Arm(name, NO_MEMORY)]
