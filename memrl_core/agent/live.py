"""The step under way of one run, moved on by clicks or in the background.

A screen holds none of this: it asks for a move, then draws what is there. Work that takes longer than `PATIENCE` goes
on in a thread, so that a screen can show progress and stop it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memrl_core.agent import Agent, Episode
from memrl_core.bank.begun import BegunStep, StepMark
from memrl_core.environments.tasks import check_intent
from memrl_core.errors import InputError, MemRLError, NoVector, StepError
from memrl_core.logs import logger
from memrl_core.models.gguf import PREFIX
from memrl_core.numerals import counted
from memrl_core.records import LedgerEvent, Phase, Task

DOING = {
    Phase.EMBED: "embedding the task",
    Phase.RECALL: "recalling memories",
    Phase.SELECT: "choosing memories",
    Phase.REWARD: "taking the reward",
    Phase.UPDATE: "learning",
    Phase.WRITE: "writing the memory",
}


class Waiting:
    """The turn or phase that runs, its `text` as far as it has come, and the `seconds` since it was begun."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._generates = False
        self._doing, self.text, self._tokens = "", "", 0
        self._since = self._first = time.monotonic()

    def begin(self, doing: str) -> None:
        """Something else runs from now on."""
        self._doing, self.text, self._tokens = doing, "", 0
        self._since = self._first = time.monotonic()

    def on_move(self, episode: Episode) -> None:
        """The episode is about to run its next phase or turn."""
        if episode.phase is None:
            return
        turn = len(episode.trace.generate.turns) + 1 if episode.trace.generate else 1
        of = f"turn {turn} of {self._agent.environment.max_turns}"
        self.begin(of if episode.phase is Phase.GENERATE else DOING[episode.phase])
        self._generates = episode.phase is Phase.GENERATE and not self._agent.model.simulated

    def on_text(self, piece: str) -> None:
        """A piece of text has come; a server sends one a token."""
        if not self._tokens:
            self._first = time.monotonic()
        self.text += piece
        self._tokens += 1

    @property
    def seconds(self) -> float:
        """Since the phase or turn was begun."""
        return time.monotonic() - self._since

    @property
    def line(self) -> str:
        """The turn, what the model does, how many tokens have come and how fast; "" where nothing was begun."""
        parts = [self._doing]
        if self._tokens:
            parts.append(counted(self._tokens, "token"))
            if (writing := time.monotonic() - self._first) > 0 and self._tokens > 1:
                parts.append(f"{(self._tokens - 1) / writing:.1f} a second")
        elif self._generates:
            # Whether it loads the model, reads the prompt or answers somebody else first, no server says of one
            # request by itself: Ollama has no view of its queue (/api/ps lists what is loaded, and its stream begins
            # with the first token), vLLM counts over all requests, and so do llama.cpp's /slots, which name no client.
            # llama.cpp alone reports how far it read the prompt, for a field (return_progress) that others refuse.
            here = self._agent.model.name.startswith(PREFIX)
            parts.append("waiting for the model" if here else "waiting for the server")
        return " · ".join([*parts, f"{self.seconds:.1f} s"]) if self._doing else ""


PATIENCE = 0.25
ENDING = 0.05
"""Seconds in which a thread that has done its last phase is given to end, when the next one is asked for."""

BUSY = "The agent is still working. Wait for it, or press Stop."
UNEXPECTED = "Something unexpected went wrong ({error}). What was saved is safe; the step under way can be tried again."

log = logger(__name__)


class InBackground:
    """Work that goes on in a thread, one piece at a time; `error` is what stopped the last."""

    unexpected = UNEXPECTED

    def __init__(self) -> None:
        self.error: MemRLError | None = None
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether work goes on in the background."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the work in the background; True when it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.busy

    def _begin_work(self, work: Callable[[], None]) -> None:
        self.error = None
        self._thread = threading.Thread(target=self._guarded, args=(work,), daemon=True, name=type(self).__name__)
        self._thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except MemRLError as error:
            self.error = error
        except Exception as error:
            log.exception("work in the background failed in an unexpected way")
            self.error = StepError(self.unexpected.format(error=type(error).__name__))


class LiveRun(InBackground):
    """One run that is being advanced: its agent, its tasks, the episode under way and the work in the background.

    `episode` is the step under way or the one that ended last; `error` what stopped the last move; `waiting` what runs
    now, with the text that is arriving; `done` of `total` the progress of several tasks.
    """

    def __init__(self, agent: Agent, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.agent = agent
        self.tasks = tuple(tasks)
        self.episode: Episode | None = None
        self.waiting = Waiting(agent)
        self.done = 0
        self.total = 0
        self._asked = 0
        self._mark = StepMark(agent.bank.uri, agent.run_id)
        self._cancel = threading.Event()
        self._lock = threading.RLock()

    @property
    def under_way(self) -> bool:
        """Whether a step has begun and not ended."""
        return self.episode is not None and self.episode.phase is not None

    @property
    def at(self) -> tuple[Any, ...]:
        """What would run next: equal for two looks between which nobody moved the run."""
        if self.episode is None or self.episode.phase is None:
            return (self.agent.bank.next_step(self.agent.run_id),)
        return self.episode.trace.id, self.episode.phase, len(self.episode.trace.turns)

    def next_task(self) -> tuple[Task, int] | None:
        """The task after the newest step, with its epoch; None when the run has no list of tasks."""
        if not self.tasks:
            return None
        position = self.agent.bank.next_step(self.agent.run_id) - 1
        return self.tasks[position % len(self.tasks)], position // len(self.tasks) + 1

    def begin(self, intent: str | None = None) -> None:
        """Begin the next step: on the next task of the list, or on `intent` where the environment takes free text.

        Raises `InputError` for an intent that cannot be used, `StepError` while a step is under way.
        """
        with self._lock:
            self._must_be_idle()
            if self.under_way:
                raise StepError("Finish the step under way first.")
            if intent is not None:
                text = check_intent(intent)
                number = self.agent.bank.next_step(self.agent.run_id)
                task, epoch = Task(f"typed-{number}", text, self.agent.environment.name), 1
            else:
                task, epoch = self._listed()
            self.error = None
            self._begin(task, epoch)

    def step(self, count: int = 1) -> None:
        """Run the next `count` phases (in GENERATE one turn each); begins the next task when none is under way.

        While phases run, `count` more are run after them; Stop leaves out what is still to come. Raises `InputError`
        when no task is under way and the run has no list of them, `StepError` while other work goes on.
        """
        if not self._asked:
            self.wait(ENDING)
        with self._lock:
            if self._asked:
                self._asked += count
                return
            if not self.under_way:
                self._listed()
            self._start(self._steps)
            self._asked = count
        self.wait(PATIENCE)

    def finish(self, unrated: bool = False) -> None:
        """Run the phases that are left of this task.

        Where a person gives the reward and nobody has, stop before it; with `unrated`, end the step without one.
        Raises as `step`.
        """
        if not self.under_way:
            self._listed()
        self._work(lambda: self._finish(unrated))

    def run_many(self, count: int) -> None:
        """Run `count` tasks to their end, the one under way first."""
        if count < 1:
            raise InputError("Choose at least one task.")
        self._work(lambda: self._run_many(count), total=count)

    def stop(self) -> None:
        """Ask the work in the background to end; an answer under way is kept and marked as stopped."""
        self._cancel.set()

    def keep_partial(self) -> None:
        """Go on with what had arrived when the model failed."""
        with self._lock:
            self._idle_episode().keep_partial()
            self.error = None

    def skip(self) -> None:
        """End the step under way, which failed because a text has no vector; the next begins with the next task."""
        with self._lock:
            episode = self._idle_episode()
            if isinstance(self.error, NoVector):
                episode.skip(self.error)
                self.error = None
                self._mark.clear()

    def drop(self) -> None:
        """Forget the step under way; nothing of it was stored but rewards, which then do not count."""
        with self._lock:
            self._must_be_idle()
            self.episode, self.error = None, None
            self._mark.clear()

    def rate(self, value: float, rater: str, reason: str = "", given: Mapping[str, Any] | None = None) -> LedgerEvent:
        """A person's reward for the step under way, appended at once."""
        with self._lock:
            return self._idle_episode().rate(value, rater, reason, given)

    def _must_be_idle(self) -> None:
        if self.busy:
            raise StepError(BUSY)

    def _idle_episode(self) -> Episode:
        self._must_be_idle()
        if self.episode is None:
            raise StepError("No step is under way.")
        return self.episode

    def _work(self, move: Callable[[], None], total: int = 0) -> None:
        with self._lock:
            self._start(move, total)
        self.wait(PATIENCE)

    def _start(self, move: Callable[[], None], total: int = 0) -> None:
        self._must_be_idle()
        self._cancel.clear()
        self.done, self.total = 0, total
        self.waiting.begin("")
        self._begin_work(move)

    def _steps(self) -> None:
        with self._lock:
            pass  # `step` stores how many phases are asked for before it lets go of the lock.
        try:
            while self._asked and not self._cancel.is_set():
                if self.under_way:
                    self._advance()
                else:
                    self._begin_listed()
                with self._lock:
                    self._asked -= 1
                if self.episode is not None and self.episode.awaits_reward:
                    return  # A key too many must not leave the answer unrated.
        finally:
            self._asked = 0

    def _advance(self) -> None:
        assert self.episode is not None
        self.waiting.on_move(self.episode)
        self.episode.advance(self.waiting.on_text, self._cancel.is_set)
        if self.episode.phase is None:
            self._mark.clear()

    def _listed(self) -> tuple[Task, int]:
        following = self.next_task()
        if following is None:
            raise InputError("This run has no list of tasks. Type what the agent should do.")
        return following

    def _begin_listed(self) -> None:
        # In the background like every move: some worlds take seconds to be set up.
        self._begin(*self._listed())

    def _begin(self, task: Task, epoch: int) -> None:
        self.episode = self.agent.begin(task, epoch)
        trace = self.episode.trace
        self._mark.set(BegunStep(trace.step, task.intent, trace.started))

    def _finish(self, unrated: bool) -> None:
        if not self.under_way:
            self._begin_listed()
        assert self.episode is not None
        while self.episode.phase is not None:
            if self.episode.awaits_reward and not unrated:
                return
            self._advance()
            if self._cancel.is_set():
                return

    def _run_many(self, count: int) -> None:
        while self.done < count and not self._cancel.is_set():
            self._finish(unrated=True)
            self.done += not self.under_way
