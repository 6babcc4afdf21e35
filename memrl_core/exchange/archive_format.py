"""What the files of a bank have in common: their header, their records, and what no bank could hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from memrl_core import __version__
from memrl_core.bank import codec
from memrl_core.bank.roles import NEWCOMERS, Role, person_name
from memrl_core.bank.undo import REVERSIBLE
from memrl_core.errors import InputError, SettingsError
from memrl_core.exchange.renaming import LINKS
from memrl_core.learning.scales import RatingScales
from memrl_core.records import EventKind, LedgerEvent, Memory, StepTrace

FORMAT = "memrl-bank"
SCHEMA_VERSION = 1
NOTHING = "Nothing was imported."
AGAIN = f"{NOTHING} Export the bank again, or take another copy of the file."
LARGEST_WHOLE = 2**53

TRACE = TypeAdapter(StepTrace)
EVENT = TypeAdapter(LedgerEvent)
MEMORY = TypeAdapter(Memory)
_REWARDS = TypeAdapter(dict[str, float])
_VISITS = TypeAdapter(int)
_NAMES = TypeAdapter(list[str])
_REPLACING = (EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED)

# Only a number that matches can be too large for a float; looking for it is far cheaper than walking every line.
_PERHAPS_HUGE = re.compile(rb"[eE]\+?\d{3}|\d{200}")


class Counts(BaseModel):
    """How many of each the bank held, so that a file that was cut short is known as such."""

    model_config = ConfigDict(frozen=True)

    memories: int = Field(ge=0)
    steps: int = Field(ge=0)
    ledger: int = Field(ge=0)


class Header(BaseModel):
    """`run.json` of a zip, the first line of a JSONL file, and the metadata of a Parquet file.

    `runs` are the runs of the bank (fields of `RunInfo`), oldest first; `layout` is the method of the map in force.
    """

    model_config = ConfigDict(frozen=True)

    format: str = FORMAT
    schema_version: int = SCHEMA_VERSION
    program: str = __version__
    embedder: str
    dimension: int = Field(ge=1, le=65536)
    embedder_digest: str = ""
    created: str
    runs: tuple[dict[str, Any], ...]
    layout: str | None = None
    counts: Counts


def header_of(data: bytes, name: str) -> Header:
    """The header in the JSON `data`. Raises `InputError` when the file `name` is not one of ours, or a newer one."""
    try:
        values = parsed(data)
    except ValueError as error:
        raise InputError(f"The header of {name} cannot be read: {reason_of(error)}. {AGAIN}") from error
    if not isinstance(values, Mapping) or values.get("format") != FORMAT:
        raise InputError(f"{name} was not written by this program. {NOTHING} Choose a bank that was exported here.")
    version = values.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{name} names no schema that this program knows. {AGAIN}")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{name} is of schema {version}; this program reads up to {SCHEMA_VERSION}. {NOTHING} Update the program."
        )
    try:
        header = Header.model_validate(dict(values))
        for payload in header.runs:
            codec.run_of(payload)
    except ValidationError as error:
        raise InputError(f"The header of {name} cannot be used: {reason_of(error)}. {AGAIN}") from error
    return header


def parsed(line: bytes) -> Any:
    """Decoded JSON without NaN, infinities and broken text. Raises `ValueError`."""
    values = from_json(line, allow_inf_nan=False)
    if _PERHAPS_HUGE.search(line) and not _finite(values):
        raise ValueError("a number is too large")
    return values


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return all(map(_finite, value)) if isinstance(value, list) else True


def event_of(values: Any) -> LedgerEvent:
    """The event in decoded JSON. Raises `ValueError` for one that no bank could hold."""
    event: LedgerEvent = EVENT.validate_python(values)
    _whole(event.seq, event.step, event.known_at)
    payload = event.payload
    if event.kind is EventKind.RUN_STARTED and codec.run_of(payload).id != event.run:
        raise ValueError("it starts another run than its own")
    if event.kind is EventKind.SETTINGS_CHANGED and not isinstance(payload.get("settings"), Mapping):
        raise ValueError("it has no settings")
    if event.kind is EventKind.ENVIRONMENT_CHANGED and not isinstance(payload.get("options"), Mapping):
        raise ValueError("it has no options")
    if event.kind is EventKind.CREDIT_ASSIGNED:
        rewards = _REWARDS.validate_python(payload.get("rewards"))
        if not all(map(math.isfinite, rewards.values())):
            raise ValueError("a reward is no finite number")
    if event.kind in (EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED):
        _whole(_VISITS.validate_python(payload.get("visits", 0)))
    if event.kind in _REPLACING and not (len(event.memory_ids) == 1 and _names(payload.get("replaces"))):
        raise ValueError("it does not say which one memory takes the place of which")
    if event.kind is EventKind.MEMORY_RESTORED and "takes_away" in payload:
        _must_restore(payload)
    if event.kind is EventKind.SCALES_CHANGED:
        _must_be_scales(payload.get("scales"))
    if event.kind is EventKind.ROLE_ASSIGNED:
        _must_be_role(event)
    if event.kind in REVERSIBLE and not all(isinstance(payload.get(key, ""), str) for key in (*LINKS, "by")):
        raise ValueError("it names another event, a step or a person by something that is not a text")
    if max(event.step, event.known_at) > codec.LARGEST_STEP:
        raise ValueError("it is about a step that cannot be")
    if event.value is not None and not math.isfinite(event.value):
        raise ValueError("its value is no finite number")
    if event.value is None and event.kind is EventKind.REWARD_GIVEN:
        raise ValueError("it is a reward without a value")
    _must_be_readable("" if event.id else "has an empty id")
    return event


def _names(values: Any) -> list[str]:
    names: list[str] = _NAMES.validate_python(values)
    return names


def _must_restore(payload: Mapping[str, Any]) -> None:
    if len(_names(payload["takes_away"])) != 1 or payload.get("kind") not in _REPLACING:
        raise ValueError("it does not say which one memory it takes away and what that came by")


def _must_be_scales(values: Any) -> None:
    try:
        RatingScales.of(values if isinstance(values, Mapping) else {"scale": None})
    except SettingsError as error:
        raise ValueError(f"its scales cannot be used: {error}") from error


def _must_be_role(event: LedgerEvent) -> None:
    person, role = event.payload.get("person"), event.payload.get("role")
    if event.run or event.step or event.step_id:
        raise ValueError("a role belongs to the bank and not to a run or a step")
    if not isinstance(person, str) or person != _stored_name(person) or role not in list(Role):
        raise ValueError("it does not say which person may look, rate or manage")


def _stored_name(person: str) -> str:
    try:
        return person if person == NEWCOMERS else person_name(person)
    except InputError as error:
        raise ValueError("it names nobody") from error


def trace_of(values: Any, dimension: int) -> StepTrace:
    """The step in decoded JSON. Raises `ValueError` for one that no bank of `dimension`-number vectors could hold."""
    trace: StepTrace = TRACE.validate_python(values)
    _whole(trace.step, trace.epoch)
    _must_be_readable("" if trace.id else "has an empty id")
    _must_be_readable("" if trace.step <= codec.LARGEST_STEP else f"has a step that cannot be: {trace.step}")
    if trace.embed is not None and len(trace.embed.embedding) != dimension:
        raise ValueError(f"its embedding has {len(trace.embed.embedding)} numbers and not {dimension}")
    return trace


def memory_of(values: Any) -> Memory:
    """The memory in decoded JSON. Raises `ValueError` for one that no bank could hold."""
    memory: Memory = MEMORY.validate_python(values)
    _whole(memory.step)
    _must_be_readable("" if memory.id else "has an empty id")
    _must_be_readable("" if memory.step <= codec.LARGEST_STEP else f"has a step that cannot be: {memory.step}")
    return memory


def _must_be_readable(fault: str) -> None:
    if fault:
        raise ValueError(f"it {fault}")


def _whole(*numbers: int) -> None:
    if not all(0 <= number <= LARGEST_WHOLE for number in numbers):
        raise ValueError("a whole number is out of range")


def reason_of(error: Exception) -> str:
    """Why a line or a row could not be used, as a clause."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:80]
        return f"{place}: {first['msg'].lower()}" if place else first["msg"].lower()
    return str(error)[:200]
