"""One bank: opened and closed here, read by its own methods, changed by those of `bank.write`.

A step's memories go to the vectors first; then its row, its events and the q that follow from them are stored in one
transaction. q is never a fact: it is the fold of a run's events, and `q_values` holds the result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from memrl_core.bank.identity import EmbedderIdentity
from memrl_core.bank.ledger import now
from memrl_core.bank.reading import Reader
from memrl_core.bank.storage.database import Database
from memrl_core.bank.storage.folders import address_of, disk_sentences, write_parts
from memrl_core.bank.storage.schema import FORMAT
from memrl_core.bank.storage.vectors import Vectors
from memrl_core.bank.writing import Writer
from memrl_core.embedders.base import Embedder
from memrl_core.logs import logger

log = logger(__name__)


class MemoryBank(Reader):
    """A bank that can be read; `write` changes it, a method one transaction."""

    def __init__(self, uri: str, database: Database, vectors: Vectors) -> None:
        super().__init__(uri, database, vectors)
        values = database.description()
        self.embedder = EmbedderIdentity.of(values, uri)
        self.write = Writer(self._facts, self._q, self._last, self.embedder, is_sealed="digest" in values)

    @classmethod
    def create(
        cls,
        uri: str,
        embedder_name: str,
        dimension: int,
        digest: str = "",
        version: str = "",
        before: Sequence[str] = (),
    ) -> Self:
        """Make an empty bank for vectors of one embedder (`EmbedderIdentity`).

        `uri` is a folder, a TOML file that names a database and vectors, or "memory://". Raises `NotABank` when
        something is there already, `BankUnreachable`, `BankReadOnly`, `BankMisplaced`, `BankFull`.
        """
        values = {
            "format": str(FORMAT),
            "embedder": embedder_name,
            "dimension": str(dimension),
            "embedder_digest": digest,
            "embedder_version": version,
            "embedders_before": json.dumps(list(before)),
            "created": now(),
        }
        address = address_of(str(uri))
        address.must_be_free()
        with address.left_as_it_was():
            vectors = address.make_vectors(dimension)
            database = Database.at(address.database, address.shown)
            with database.closed_on_failure():
                database.create(values)
                bank = cls(address.uri, database, vectors)
                bank._last.accept()
                return bank

    @classmethod
    def open(cls, uri: str, embedder: Embedder | None = None) -> Self:
        """Open a bank; without an embedder it can be looked at.

        Raises `BankMissing`, `NotABank`, `BankTooNew`, `BankDamaged`, `BankUnreachable`, or `EmbedderMismatch` when
        `embedder` is not the one that made the vectors.
        """
        address = address_of(str(uri))
        address.must_be_there()
        database = Database.at(address.database, address.shown)
        with database.closed_on_failure():
            dimension = int(database.description()["dimension"])
            bank = cls(address.uri, database, address.open_vectors(dimension))
            if embedder is not None:
                bank.embedder.must_match(embedder)
            if bank.missing:
                log.warning("%s", bank.missing)
            return bank

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is held back and tidy up what has grown; the handle can still be read."""
        with self._lock:
            self.write.flush()
            if self._facts.last_saved is not None:
                self.write.compact()
                self._last.end()
            self._database.close()

    def write_parts(self, folder: Path) -> None:
        """Write a copy of the bank as it is at this moment into a new folder of this machine.

        Raises `BankFull`, `BankReadOnly`, `BankDamaged`.
        """
        self.write.flush()
        with disk_sentences(folder):
            write_parts(self._database, self._vectors, folder)
