"""A run's memory as a store of LangGraph (`BaseStore`): needs the extra `langgraph`.

    graph = builder.compile(store=BankStore(Memory.open("bank", run="prod")))

A search with a query is a recall by the run's method, stored as a step. What is put becomes a memory: its experience is
the value's `text`, else all of it; its intent `intent`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp

from memrl_core.agent.memory import Memory, Recall
from memrl_core.agent.recorder import Recorder
from memrl_core.embedders.base import embedded

Place = tuple[tuple[str, ...], str]
OTHERS = ("memories",)  # The namespace of memories that were not put here.


class BankStore(BaseStore):
    """`get`, `put`, `delete`, `search`, `list_namespaces` and their `a…` forms; `last` is the newest recall."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.last: Recall | None = None
        self._recorder = Recorder(memory.bank, memory.run, strict=True)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """The results of operations, one behind the other."""
        return [self._do(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _do(self, op: Op) -> Result:
        if isinstance(op, PutOp):
            self._put(op)
            return None
        items = self._items()
        if isinstance(op, GetOp):
            return items.get((op.namespace, op.key), ("", None))[1]
        if isinstance(op, SearchOp):
            return self._search(op, dict(items.values()))
        assert isinstance(op, ListNamespacesOp)
        asked = [(one.match_type == "suffix", tuple(one.path)) for one in op.match_conditions or ()]
        spaces = {at[: op.max_depth] for at, _ in items if all(_matches(at, path, ends) for ends, path in asked)}
        return sorted(spaces)[op.offset : op.offset + op.limit]

    def _items(self) -> dict[Place, tuple[str, Item]]:
        """Every memory that the run sees, by its place: its id and what was put."""
        bank, run, found = self.memory.bank, self.memory.run, dict[Place, tuple[str, Item]]()
        about = bank.metadata(run)
        for name in bank.utilities(run):
            one, put = bank.memory(name), about.get(name, {}).get("put")
            space, key, value = put or (OTHERS, name, {"text": one.experience, "intent": one.intent})
            made = datetime.fromisoformat(one.created) if one.created else datetime.fromtimestamp(0, UTC)
            item = Item(value=value, key=key, namespace=tuple(space), created_at=made, updated_at=made)
            found[item.namespace, key] = name, item
        return found

    def _search(self, op: SearchOp, items: dict[str, Item]) -> list[SearchItem]:
        prefix = tuple(op.namespace_prefix)
        wanted: dict[str, Any] = dict.fromkeys(items)
        if op.query:
            self.last = self.memory.recall(op.query)
            decision = self.last.trace.decision
            wanted = {one.memory_id: one.score for one in decision.candidates} if decision is not None else {}
        found = [
            SearchItem(one.namespace, one.key, one.value, one.created_at, one.updated_at, score)
            for name, score in wanted.items()
            if (one := items.get(name)) is not None
            and one.namespace[: len(prefix)] == prefix
            and all(one.value.get(field) == value for field, value in (op.filter or {}).items())
        ]
        return found[op.offset : op.offset + op.limit]

    def _put(self, op: PutOp) -> None:
        bank, run = self.memory.bank, self.memory.run
        with bank.write.alone():
            if known := self._items().get((op.namespace, op.key)):
                bank.write.editing.forget(run, [known[0]])
            if op.value is not None:
                text = str(op.value.get("text") or json.dumps(op.value, ensure_ascii=False))
                intent = str(op.value.get("intent") or text)
                (vector,) = embedded(self.memory.embedder, [intent])
                self._recorder.remember(intent, text, vector, metadata={"put": [list(op.namespace), op.key, op.value]})


def _matches(space: tuple[str, ...], path: tuple[str, ...], ends: bool) -> bool:
    part = space[-len(path) :] if ends else space[: len(path)]
    return len(part) == len(path) and all(asked in ("*", one) for asked, one in zip(path, part, strict=True))
