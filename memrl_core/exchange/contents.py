"""A bank outside of a bank: what every import reads and every export writes, and what there is to say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memrl_core.records import LedgerEvent, Memory, StepTrace


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was not taken over: `where` it stands (file, line or id) and `why`, as a clause."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Account:
    """What an import found, for the person who asked for it. All of it is plain, untrusted text.

    `source` names the kind of thing that was read. `read` says what was taken over, a sentence each; `skipped` what was
    not; `faults` what is wrong in the source itself although it was taken over; `lacks` what the source cannot tell.
    """

    source: str
    read: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    faults: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """The newest layout of the map: `method`, coordinates by memory, and the memories it was fitted on."""

    method: str
    coordinates: Mapping[str, tuple[float, float]]
    fitted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """Facts of any number of runs, ready to be adopted by a bank.

    `memories` maps ids to memory and unit embedding (d,) float32, oldest first; `events` is the ledger, in which every
    run begins with its RUN_STARTED; `traces` are the finished steps. `embedder`, `dimension` and `digest` say what made
    the vectors (`EmbedderIdentity`).
    """

    embedder: str
    dimension: int
    memories: Mapping[str, tuple[Memory, npt.NDArray[np.float32]]]
    events: tuple[LedgerEvent, ...]
    traces: tuple[StepTrace, ...] = ()
    places: Places | None = None
    account: Account = field(default_factory=lambda: Account("a bank"))
    digest: str = ""
