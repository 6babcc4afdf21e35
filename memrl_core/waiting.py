"""What a step under way waits for, as a screen and a terminal tell it."""

from __future__ import annotations

import time

from memrl_core.agent import Agent, Episode
from memrl_core.records import Phase

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
        self._answered = self._generates = False
        self.begin("")

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
        self._answered = True

    @property
    def seconds(self) -> float:
        """Since the phase or turn was begun."""
        return time.monotonic() - self._since

    @property
    def line(self) -> str:
        """The turn, what the model does, how many tokens have come and how fast; "" where nothing was begun."""
        parts = [self._doing]
        if self._tokens:
            parts.append(f"{self._tokens:,} token{'' if self._tokens == 1 else 's'}")
            if (writing := time.monotonic() - self._first) > 0 and self._tokens > 1:
                parts.append(f"{(self._tokens - 1) / writing:.1f} a second")
        elif self._generates:
            parts.append("reading the prompt" if self._answered else "loading the model")
        return " · ".join([*parts, f"{self.seconds:.1f} s"]) if self._doing else ""
