"""Which embedder made the vectors of a bank."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from memrl_core.embedders.base import Embedder
from memrl_core.errors import EmbedderMismatch


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """The embedder that made a bank's vectors; `digest` of its weights and `version` of its server are "" if unknown.

    `before` are those that made the vectors before they were made anew; `bank` is the address of the bank.
    """

    name: str
    dimension: int
    digest: str = ""
    version: str = ""
    before: tuple[str, ...] = ()
    bank: str = field(default="", compare=False)

    def is_another(self, name: str, dimension: int, digest: str = "") -> bool:
        """True if an embedder cannot have made these vectors: by its name, its size, or its weights where known."""
        return (name, dimension) != (self.name, self.dimension) or ("" != self.digest != digest != "")

    @classmethod
    def of(cls, description: Mapping[str, str], bank: str) -> Self:
        """The embedder that the description of the bank at this address names."""
        return cls(
            description["embedder"],
            int(description["dimension"]),
            description.get("embedder_digest", ""),
            description.get("embedder_version", ""),
            tuple(json.loads(description.get("embedders_before", "[]"))),
            bank,
        )

    def must_match(self, embedder: Embedder) -> None:
        """Raise `EmbedderMismatch` unless `embedder` made the vectors."""
        if not self.is_another(embedder.name, embedder.dimension, embedder.digest):
            return
        if embedder.name == self.name:
            raise EmbedderMismatch(
                f"{self.name} has other weights now than those that made the vectors of this bank "
                f"({_weights(self)} then, {_weights(embedder)} now). Nothing was changed; install those again, or make "
                f"the vectors anew: memrl reembed --bank {shlex.quote(self.bank)} --embedder {shlex.quote(self.name)}"
            )
        raise EmbedderMismatch(
            f"This bank holds {self.dimension:,}-dimensional vectors made by {self.name}; "
            f"{embedder.name} gives {embedder.dimension:,}. Nothing was changed; open it with {self.name}, or "
            "make a bank with other vectors of it (memrl reembed)."
        )


def _weights(embedder: EmbedderIdentity | Embedder) -> str:
    return f"{embedder.dimension:,} dimensions" + (f", {embedder.digest[:19]}" if embedder.digest else "")
