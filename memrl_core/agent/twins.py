"""Two runs side by side: the same tasks, seeds and world, two sets of settings; stepped together or played.

Both are ordinary runs of a bank, so whatever shows a run shows them too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memrl_core.agent.live import InBackground
from memrl_core.agent.preferences import Preferences, load_preferences
from memrl_core.agent.run_parts import SIMULATED, must_be_there
from memrl_core.agent.runs import can_go_on, live_run, start_run, tasks_of
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Vectors
from memrl_core.environments import environment_class, make_environment
from memrl_core.errors import InputError, MemRLError, SettingsError, StepError
from memrl_core.models.base import Cancelled, never
from memrl_core.policies import make_policy, policy_class, settings_of
from memrl_core.records import StepTrace, Task
from memrl_core.settings import MemRLSettings, PolicySettings, symbol

UNEXPECTED = "Something unexpected went wrong ({error}). The finished steps are saved; play on, or start a new pair."
FASTEST = 50.0
A_MOMENT = 0.002
"""Seconds between two steps in which a waiting change of world or settings gets the lock."""
WRITE_EVERY = 0.4
"""Seconds of play that are written at a time: an append costs more than a step."""


@dataclass(frozen=True, slots=True)
class Side:
    """What one of the two runs goes by; `settings` are the policy's, None stands for its defaults."""

    settings: PolicySettings | None = None
    policy: str = "memrl"


@dataclass(frozen=True, slots=True)
class Change:
    """What is otherwise from `step` on: the world, or a side's settings."""

    step: int
    text: str


class TwinRuns(InBackground):
    """Two runs that are advanced together.

    `runs` are their names, left and right; `tasks` the list that an epoch goes through; `error` what stopped the play.
    Where the step of one fails, the other goes on: `errors` has what stopped each, None for who has not been stopped.
    `chances` are those of the steps of each run that somebody has asked for so far (`experiments.lab`).
    """

    unexpected = UNEXPECTED
    playing = InBackground.busy

    def __init__(self, bank: MemoryBank, left: str, right: str, preferences: Preferences) -> None:
        super().__init__()
        self.bank = bank
        self.runs = left, right
        self.tasks: tuple[Task, ...] = tuple(tasks_of(bank.run(left)))
        self._agents = [live_run(bank, run, preferences).agent for run in self.runs]
        self._pause = threading.Event()
        self.errors: list[MemRLError | None] = [None, None]
        self.chances: dict[str, list[float | None]] = {run: [] for run in self.runs}
        self._pace = 1.0
        self._written = 0
        self._is_simulated = bank.run(left).simulated
        self._between = threading.Lock()

    @property
    def steps(self) -> int:
        """How many steps both have finished; while they play, those that are written."""
        return self._written if self.playing else self._finished

    @property
    def _finished(self) -> int:
        """The steps that both, or the one that is not stopped, have finished."""
        going = [run for run, error in zip(self.runs, self.errors, strict=True) if error is None]
        return min(self.bank.next_step(run) for run in going or self.runs) - 1

    @property
    def shifts(self) -> tuple[int, ...]:
        """The steps from which on the world's reliabilities are swapped, up to the next step."""
        return tuple(step for step in shifts_of(self.bank, self.runs[0]) if step <= self.steps + 1)

    def step(self, count: int = 1) -> None:
        """Do `count` steps in each run. Raises `StepError` while they play, and what a step raises."""
        if self.playing:
            raise StepError("The runs are playing. Pause them first.")
        self.error, self.errors = None, [None, None]
        with self.bank.write.batch(2 * count):
            for _ in range(count):
                with self._between:
                    self._advance(never)
        for error in filter(None, self.errors):
            raise error

    def play(self, per_second: float, steps: int | None = None) -> None:
        """Do `steps` steps in each run (None: until paused) in the background, at most `per_second` of them a second.

        The steps of `WRITE_EVERY` seconds are written together, those of a language model one by one; a crash loses at
        most these, and `steps` counts what is written. Who was stopped by an error is tried again. Raises `InputError`
        for a speed that is not above 0 and at most `FASTEST`.
        """
        self.change_speed(per_second)
        if self._pause.is_set():
            self.wait()
        if self.playing:
            return
        self._pause.clear()
        self.errors = [None, None]
        self._written = self._finished
        last = None if steps is None else self._written + steps
        self._begin_work(lambda: self._play(last))

    def change_speed(self, per_second: float) -> None:
        """Play at another speed from the next step on. Raises `InputError` as `play` does."""
        if not 0 < per_second <= FASTEST:
            raise InputError(f"The speed is a number above 0 and at most {FASTEST:g} steps a second.")
        self._pace = 1 / per_second

    def pause(self) -> None:
        """Stop playing; a step under way in either run is dropped, and done again when they go on."""
        self._pause.set()

    def shift(self) -> int:
        """Change the world under both from the next step on; returns that step.

        Raises `InputError` where the world is not one that can shift.
        """
        if "shift_at" not in environment_class(self.bank.run(self.runs[0]).environment).Options.model_fields:
            raise InputError("Only the household, the help desk and the parametric world can shift.")
        with self._between:
            at = max(self.bank.next_step(run) for run in self.runs)
            # A second shift before the next step takes the first one back.
            shifts = set(shifts_of(self.bank, self.runs[0])) ^ {at}
            for run, agent in zip(self.runs, self._agents, strict=True):
                info = self.bank.run(run)
                self.bank.write.change_environment(run, {**info.environment_options, "shift_at": sorted(shifts)})
                agent.environment = make_environment(info.environment, **self.bank.run(run).environment_options)
            return at

    def change(self, side: int, **settings: Any) -> int:
        """Give one side (0 left, 1 right) other settings from its next step on, as an event; returns that step.

        Raises `SettingsError` for values that its policy does not allow.
        """
        run = self.runs[side]
        with self._between:
            changed = settings_of(self.bank.run(run).policy, {**self.bank.settings(run), **settings})
            at = self.bank.next_step(run)
            self.bank.write.change_settings(run, changed.model_dump(), at)
            return at

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The unit vectors (n, d) of `texts`, as both sides have them. Raises `ModelError`."""
        return self._agents[0].embed(texts)

    def chance(self, trace: StepTrace) -> float | None:
        """The true chance that what was answered in a finished step works; None in worlds that do not know it."""
        if trace.generate is None or not trace.generate.turns:
            return None
        return self._agents[0].environment.chance(trace.task, trace.generate.turns[0].reply.text, trace.step)

    def _play(self, last: int | None) -> None:
        while not self._pause.is_set() and (last is None or self._finished < last):
            together = max(1, round(WRITE_EVERY / self._pace)) if self._is_simulated else 1
            if last is not None:
                together = min(together, last - self._finished)
            with self.bank.write.batch(2 * together):
                for _ in range(together):
                    self._one_pair()
            self._written = self._finished

    def _one_pair(self) -> None:
        if self._pause.is_set():
            return
        begun = time.monotonic()
        with self._between:
            self._advance(self._pause.is_set)
        # A moment at least, in which who waits to change something comes to it.
        self._pause.wait(max(A_MOMENT, self._pace - (time.monotonic() - begun)))

    def _advance(self, cancelled: Cancelled) -> None:
        """One step in each run; a run that is behind catches up alone. Raises what has stopped both."""
        following = {n: self.bank.next_step(self.runs[n]) for n, error in enumerate(self.errors) if error is None}
        first = min(following.values())
        epoch, task = divmod(first - 1, len(self.tasks))
        for n in [n for n, step in following.items() if step == first]:
            try:
                episode = self._agents[n].begin(self.tasks[task], epoch + 1)
                while episode.phase is not None and not cancelled():
                    episode.advance(cancelled=cancelled)
            except MemRLError as error:
                self.errors[n] = error
        if (one := self.errors[0]) is not None and self.errors[1] is not None:
            raise one


def start_twins(
    bank: MemoryBank,
    sides: tuple[Side, Side],
    *,
    kind: str = "twins",
    environment: str = "household",
    tasks: str = "household-train",
    task_count: int = 30,
    seed: int = 0,
    shift_at: Sequence[int] = (),
    model: str = SIMULATED,
    model_options: Mapping[str, Any] | None = None,
) -> TwinRuns:
    """Start two runs in `bank` on the first `task_count` tasks of the set `tasks` (0: all).

    The world shifts at the steps `shift_at` by itself. `kind` is what the names of the runs begin with.

    Raises `InputError` or `SettingsError` for a part that does not exist, and `ModelError` for a model that cannot be
    asked, before anything is written.
    """
    for side in sides:
        make_policy(side.policy, side.settings.model_dump() if side.settings is not None else {})
    facts = must_be_there(model, load_preferences())
    pair = bank.write.new_run_id(kind)
    options: dict[str, Any] = {"tasks": tasks, "task_count": task_count, "seed": seed, "model": model}
    options |= {"model_options": model_options, "model_facts": facts}
    if shift_at:
        options["environment_options"] = {"shift_at": sorted(shift_at)}
    names = []
    for side, name in zip(sides, ("left", "right"), strict=True):
        info = start_run(
            bank, environment=environment, settings=side.settings, policy=side.policy, run=f"{pair}-{name}", **options
        )
        names.append(info.id)
    return open_twins(bank, names[0], names[1])


def open_twins(bank: MemoryBank, left: str, right: str) -> TwinRuns:
    """Two runs of a bank as twins, to go on with.

    Raises `UnknownRun`, and `InputError` when they are one run or do not have the same tasks, seed, model and world.
    """
    one, other = bank.run(left), bank.run(right)
    if left == right:
        raise InputError(f"{left} is no twin of itself. Choose two runs.")
    shared = "environment tasks task_count seed model environment_options model_options first_step base"
    for what in shared.split():
        if getattr(one, what) != getattr(other, what):
            raise InputError(
                f"{left} and {right} are no twins: they differ in {what.replace('_', ' ')}. Compare shows such runs."
            )
    if not one.tasks or not can_go_on(one) or one.first_step != 1:
        raise InputError(f"{left} and {right} have no list of tasks to go through here. Compare shows such runs.")
    return TwinRuns(bank, left, right, load_preferences())


def shifts_of(bank: MemoryBank, run: str) -> tuple[int, ...]:
    """The steps of a run from which on its world is another."""
    given = bank.run(run).environment_options.get("shift_at", 0)
    return tuple(sorted(step for step in ([given] if isinstance(given, int) else given) if step))


def changes_of(bank: MemoryBank, run: str) -> tuple[Change, ...]:
    """The changes of a run's settings so far, one per step, with what each setting was and is."""
    kind, found = _settings_of(bank.run(run).policy), []
    before = bank.settings(run, bank.run(run).first_step - 1)
    for step in range(bank.run(run).first_step, bank.next_step(run) + 1):
        now = bank.settings(run, step)
        different = [name for name in now if now[name] != before.get(name)] if now is not before else []
        if different:
            moves = (f"{symbol(name, kind)} {_shown(before.get(name))} → {_shown(now[name])}" for name in different)
            found.append(Change(step, ", ".join(moves)))
        before = now
    return tuple(found)


def labels(bank: MemoryBank, left: str, right: str) -> tuple[str, str]:
    """What tells the two apart: their policies, and the settings of both that differ, by their symbols.

    “left” and “right” when nothing does.
    """
    infos = [bank.run(run) for run in (left, right)]
    settings = [bank.settings(run) for run in (left, right)]
    one, other = kinds = [_settings_of(info.policy) for info in infos]
    shared = [name for name in one.model_fields if name in other.model_fields]
    different = [name for name in shared if settings[0].get(name) != settings[1].get(name)]
    sides = [
        [info.policy] * (infos[0].policy != infos[1].policy)
        + [f"{symbol(name, kind)} = {_shown(own.get(name))}" for name in different]
        for info, own, kind in zip(infos, settings, kinds, strict=True)
    ]
    return (", ".join(sides[0]) or "left", ", ".join(sides[1]) or "right")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _settings_of(policy: str) -> type[PolicySettings]:
    """The settings that a policy has; MemRL's for one that is not installed here."""
    try:
        return policy_class(policy).Settings
    except SettingsError:
        return MemRLSettings
