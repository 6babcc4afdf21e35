"""Rows on their way to the tables: written at once, or held back and written several steps at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from memrl_core.bank.store import Store

IN_ORDER = ("memories", "ledger", "steps")
"""A step counts once its row in `steps` is there, so that row comes last."""


class Appends:
    """The writing side of a bank. `steps_held` is how many finished steps may be held back; 0 writes at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, list[dict[str, Any]]] = {name: [] for name in IN_ORDER}
        self._steps = 0
        self._beside: ThreadPoolExecutor | None = None
        self.steps_held = 0

    def held(self, name: str) -> int:
        """How many rows of a table are held back."""
        return len(self.waiting(name))

    def waiting(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table that are held back."""
        return self._held[name]

    def put(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Append rows to a table, now or with the next `flush`. Raises `BankFull`, `BankReadOnly`, `BankDamaged`."""
        if not rows:
            return
        if self.steps_held:
            self._held[name].extend(rows)
        else:
            self._store.append(name, rows)

    def put_together(self, rows: Mapping[str, list[dict[str, Any]]], written: Callable[[str], None]) -> None:
        """Append to several tables, which only what follows may refer to; `written` hears of each.

        Where each append is a request to a store elsewhere, they are made at the same time.

        Raises what `put` does, after all have ended.
        """
        if self.steps_held or self._store.has_journal or sum(map(bool, rows.values())) < 2:
            for name, its_rows in rows.items():
                self.put(name, its_rows)
                written(name)
            return
        if self._beside is None:
            self._beside = ThreadPoolExecutor(len(IN_ORDER) - 1, thread_name_prefix="append")
        beside = self._beside
        under_way = {name: beside.submit(self.put, name, its_rows) for name, its_rows in rows.items()}
        wait(under_way.values())
        for name, one in under_way.items():
            if one.exception() is None:
                written(name)
        for one in under_way.values():
            one.result()

    def step_ended(self) -> None:
        """Note that a step is whole; writes when enough are held back."""
        self._steps += 1
        if self._steps >= self.steps_held:
            self.flush()

    def flush(self) -> None:
        """Write what is held back; what could not be written stays held."""
        for name in IN_ORDER:
            if self._held[name]:
                self._store.append(name, self._held[name])
                self._held[name] = []
        self._steps = 0

    def close(self) -> None:
        """Let go of the threads that append; another append has new ones."""
        if self._beside is not None:
            self._beside.shutdown()
            self._beside = None
