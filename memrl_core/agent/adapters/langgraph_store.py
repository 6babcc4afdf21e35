"""A run's memory as a store of LangGraph (`BaseStore`): needs the extra `langgraph`.

    graph = builder.compile(store=BankStore(Memory.open("bank", run="prod")))

A search with a query is a recall by the run's method among what its namespace and filter allow, stored as a step. What
is put becomes a memory: its experience is the value's `text`, else all of it; its intent `intent`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from memrl_core.agent.memory import Memory, Recall
from memrl_core.embedders.base import embedded

Place = tuple[tuple[str, ...], str]
OTHERS = ("memories",)  # The namespace of memories that were not put here.


class BankStore(BaseStore):
    """`get`, `put`, `delete`, `search`, `list_namespaces` and their `a…` forms; `last` is the newest recall."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.last: Recall | None = None

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
        model = InMemoryStore()  # Prefixes, filters and conditions mean what they mean there.
        model.batch([PutOp(*place, item.value) for place, (_, item) in items.items()])
        if not isinstance(op, SearchOp):
            return model.batch([op])[0]
        held: Any = model.batch([op._replace(query=None, offset=0, limit=len(items))])[0]
        inside = {(one.namespace, one.key) for one in held}
        return self._search(op, dict(known for place, known in items.items() if place in inside), len(items))

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

    def _search(self, op: SearchOp, items: dict[str, Item], count: int) -> list[SearchItem]:
        wanted: dict[str, Any] = dict.fromkeys(items)
        if op.query:
            scope = f"only the namespace {op.namespace_prefix}" + (f" by {op.filter}" if op.filter else "")
            self.last = self.memory.recall(op.query, of=items if len(items) < count else None, scope=scope)
            recall, decision = self.last.trace.recall, self.last.trace.decision
            scores = {one.memory_id: one.score for one in decision.candidates} if decision is not None else {}
            pool = {one.memory_id for one in recall.pool} if recall is not None else {}
            wanted = {name: score for name, score in scores.items() if name in pool}
        found = [(items[name], score) for name, score in wanted.items()]
        return [
            SearchItem(one.namespace, one.key, one.value, one.created_at, one.updated_at, score)
            for one, score in found[op.offset : op.offset + op.limit]
        ]

    def _put(self, op: PutOp) -> None:
        bank, run = self.memory.bank, self.memory.run
        with bank.write.alone():
            if known := self._items().get((op.namespace, op.key)):
                bank.write.editing.forget(run, [known[0]])
            if op.value is not None:
                text = str(op.value.get("text") or json.dumps(op.value, ensure_ascii=False))
                intent = str(op.value.get("intent") or text)
                (vector,) = embedded(self.memory.embedder, [intent])
                self.memory.recorder.remember(
                    intent, text, vector, metadata={"put": [list(op.namespace), op.key, op.value]}
                )
