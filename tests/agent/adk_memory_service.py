"""What the memory service for Google's ADK must do, as a program: run where google-adk is installed.

It prints where that package lies. `test_adapters` runs it in an environment of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

from memrl_core.agent.memory import Memory
from memrl_core.embedders.hashing import HashingEmbedder


def main(place: str) -> None:
    """Put the sessions of two users into a bank, and search it as three."""
    memory = Memory.open(place, run="r", embedder=HashingEmbedder(256), settings={"k2": 2})
    service = importlib.import_module("memrl_core.agent.adapters.adk_memory").BankMemoryService(memory)
    events = importlib.import_module("google.adk.events.event")
    sessions = importlib.import_module("google.adk.sessions.session")
    types = importlib.import_module("google.genai.types")

    def said(author: str, text: str) -> Any:
        return events.Event(author=author, id=f"{author}-{text}", content=types.Content(parts=[types.Part(text=text)]))

    for user, answer in (("ann", "Prefers oat milk"), *((f"bob{n}", "Drinks it black") for n in range(20))):
        exchange = [said("user", "make coffee"), said("agent", answer), said("user", "thanks")]
        session = sessions.Session(id=f"s-{user}", app_name="app", user_id=user, events=exchange)
        for _ in range(2):
            asyncio.run(service.add_session_to_memory(session))
    found = asyncio.run(service.search_memory(app_name="app", user_id="ann", query="make coffee"))
    service.last.reward(1.0)
    assert memory.bank.credits.of("r", 1) == service.last.trace.decision.selected and len(service.last.memories) == 1
    assert [one.content.parts[0].text for one in found.memories] == ["Prefers oat milk"]
    assert asyncio.run(service.search_memory(app_name="app", user_id="eve", query="make coffee")).memories == []
    assert len(memory.bank.utilities("r")) == 21 and memory.bank.next_step("r") == 3
    print(events.__file__)


if __name__ == "__main__":
    main(sys.argv[1])
