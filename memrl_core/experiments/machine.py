"""The machine that something was measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime

from memrl_core import __version__


@dataclass(frozen=True, slots=True)
class Machine:
    """What was measured on; `memory_gib` is None where the system does not tell, `version` is that of this program."""

    system: str
    cores: int
    memory_gib: float | None
    python: str
    version: str


def this_machine() -> Machine:
    """This machine."""
    return Machine(
        f"{platform.system()} {platform.machine()}",
        os.cpu_count() or 1,
        _memory_gib(),
        platform.python_version(),
        __version__,
    )


def this_moment() -> datetime:
    """Now, to the second, in UTC."""
    return datetime.now(UTC).replace(microsecond=0)


def machine_line(machine: Machine, date: datetime) -> str:
    """Where and when something was measured, in one line."""
    memory = "memory unknown" if machine.memory_gib is None else f"{machine.memory_gib:.1f} GiB"
    return (
        f"{date.astimezone(UTC):%Y-%m-%d %H:%M} UTC · {machine.system}, {machine.cores} cores, {memory} · "
        f"memrl {machine.version} · Python {machine.python}"
    )


def _memory_gib() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return None
