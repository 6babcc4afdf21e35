"""A run's memory as the memory service of Google's Agent Development Kit: needs the extra `adk`.

    runner = Runner(agent=agent, memory_service=BankMemoryService(Memory.open("bank", run="prod")), …)

A search is a recall by the run's method among the memories of the asking app and user, stored as a step. Of a
session each message of a person becomes an intent, and what the agent said to it the experience.
"""

from __future__ import annotations

import asyncio

from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, Part

from memrl_core.agent.memory import Memory, Recall
from memrl_core.embedders.base import embedded


class BankMemoryService(BaseMemoryService):
    """Sessions in, memories out; `last` is the newest recall, to be rewarded."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.last: Recall | None = None

    async def add_session_to_memory(self, session: Session) -> None:
        """Take in the exchanges of a session; one that is here already stays as it is."""
        await asyncio.to_thread(self._add, session)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """What the run's method recalls for a query, of this app's user, best first."""
        return await asyncio.to_thread(self._search, app_name, user_id, query)

    def _add(self, session: Session) -> None:
        about = {"app": session.app_name, "user": session.user_id, "session": session.id}
        asked, name, said = "", "", list[str]()
        for event in [*session.events, None]:
            text = "" if event is None else _text(event.content)
            if event is not None and event.author != "user":
                said += [text] if text else []
                continue
            if asked and said:
                (vector,) = embedded(self.memory.embedder, [asked])
                self.memory.recorder.remember(asked, "\n".join(said), vector, memory_id=name, metadata=about)
            if event is not None:
                asked, name, said = text, f"{session.id}:{event.id}"[:200], []

    def _search(self, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        about = self.memory.bank.metadata(self.memory.run)
        mine = [one for one, it in about.items() if (it.get("app"), it.get("user")) == (app_name, user_id)]
        self.last = self.memory.recall(query, of=mine, scope=f"only those of user {user_id} of the app {app_name}")
        entries = [
            MemoryEntry(content=Content(role="model", parts=[Part(text=one.experience)]), timestamp=one.created or None)
            for one in self.last.memories
        ]
        return SearchMemoryResponse(memories=entries)


def _text(content: Content | None) -> str:
    parts = (content.parts if content is not None else None) or []
    return "\n".join(part.text for part in parts if part.text)
