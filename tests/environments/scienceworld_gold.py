"""ScienceWorld's process, which also tells the engine's own solution of a task: for tests alone."""

from __future__ import annotations

from typing import Any

from memrl_core.environments.child import serve
from memrl_core.environments.games.scienceworld import World


class TellingWorld(World):
    """Answers {"do": "solve", "task": …, "variation": …} with the actions of the engine's solution, too."""

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["do"] != "solve":
            return super().answer(question)
        self._task = None
        self._engine.load(question["task"], question["variation"], "easy", generateGoldPath=True)
        return {"actions": self._engine.get_gold_action_sequence()}


if __name__ == "__main__":
    serve(TellingWorld().answer)
