"""What ScienceWorld and TextWorld share: an engine in a child process that says what can be done, and counts points."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from memrl_core.environments.base import Environment, StepResult, last_step, spoken
from memrl_core.environments.child import Child, ChildFailed
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.prompting import ANSWER_MARK
from memrl_core.records import Judgement

REFUSED = "You cannot do “"
LONGEST_TEXT = 4_000


class EngineWorld(Environment):
    """A world of an engine in the module `child`, run as a process of its own.

    Each question holds all actions since the beginning, so that a new process goes on where another one ended. An
    answer has at least `text`, `score`, and `offered`. The reward comes once, at the end: earlier turns give 0 although
    the game counts its points as they are made, because what learns from single turns adds rewards up.
    """

    child: ClassVar[str]
    remedy: ClassVar[str] = ""
    seconds_to_start: ClassVar[float] = 120.0
    seconds_to_act: ClassVar[float] = 60.0

    def __init__(self, max_turns: int = 30) -> None:
        self.max_turns = max_turns
        self._child = Child(self.child)
        self._ended = True
        self._turns = 0
        self._question: Mapping[str, Any] = {}
        self._answer: dict[str, Any] = {}
        self._actions: list[str] = []
        self._came: list[str] = []

    def step(self, action: str) -> StepResult:
        """Do one action. What the game does not know costs a turn.

        After `EnvironmentFailed` the same action can be tried again: a new process plays up to here.
        """
        if self._ended:
            raise InputError("This episode has ended. Begin the next task.")
        typed, before = spoken(action), self._points
        command = self._command(typed)
        if command is None:
            response = f"{REFUSED}{typed[:80]}” here."
        else:
            self._answer = self._play([*self._actions, command])
            self._actions.append(command)
            response = self._response(command)
        self._turns += 1
        gained = self._points - before
        note = f" ({gained:+d})" if gained else " (refused)" if response.startswith(REFUSED) else ""
        self._came.append(f"{ANSWER_MARK}{typed[:80]}{note}")
        if self._over or self._turns >= self.max_turns:
            self._ended = True
            return self._end(response, gained)
        return self._described(response, gained), 0.0, False, False, {}

    def close(self) -> None:
        """Give the process to whoever needs one next; the environment can be reset again."""
        self._ended = True
        self._child.close()

    @property
    def _points(self) -> int:
        return max(0, int(self._answer["score"]))

    @property
    @abstractmethod
    def _over(self) -> bool:
        """Whether the game has ended by itself."""

    @abstractmethod
    def _command(self, typed: str) -> str | None:
        """What the game gets for what was typed; None where it gets nothing."""

    @abstractmethod
    def _response(self, command: str) -> str:
        """What the model reads of the answer to a command."""

    @abstractmethod
    def _described(self, response: str, gained: int) -> str:
        """An observation: the response, and what can be done."""

    @abstractmethod
    def _end(self, response: str, gained: int) -> StepResult:
        """The last step of an episode."""

    def _judged(
        self, seen: str, verdict: str, success: bool, reward: float, expected: str, why: str, truncated: bool
    ) -> StepResult:
        came = "\n".join(self._came)
        judgement = Judgement(*(text[:LONGEST_TEXT] for text in (expected, f"{verdict}\n{came}", why)))
        return last_step(seen, verdict, success, judgement, reward=reward, truncated=truncated)

    def _start(self, question: Mapping[str, Any]) -> None:
        """Begin a game. Raises `EnvironmentFailed`."""
        self._question, self._turns, self._actions, self._came = question, 0, [], []
        was_running = self._child.running
        try:
            self._answer = self._play([])
        except EnvironmentFailed:
            if not was_running:
                raise
            self._start(question)  # One that nobody used may have ended meanwhile.

    def _play(self, actions: list[str]) -> dict[str, Any]:
        """The answer to all these actions. Raises `EnvironmentFailed`."""
        within = self.seconds_to_act if actions and self._child.running else self.seconds_to_start
        try:
            return self._child.ask({**self._question, "do": "play", "actions": actions}, within)
        except ChildFailed as error:
            raise EnvironmentFailed(
                f"{self.spec.title} stopped: {error}. What came before is kept; {self.remedy}try again, and a new "
                "process plays up to here."
            ) from None


def turns_in_words(count: int) -> str:
    """A number of turns in words."""
    return f"{count} turn{'' if count == 1 else 's'}"
