"""TOML files that people write: read, checked against a model, and every fault named with its line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from memrl_core.errors import InputError

Model = TypeVar("Model", bound=BaseModel)
Where = tuple[str | int, ...]
MOST_NAMED = 10
"""Faults of one file that are listed one by one."""

_TABLE = re.compile(r"\s*\[(\[?)([^\[\]#]+)\]")
_KEY = re.compile(r"\s*([\w\"'-]+(?:\s*\.\s*[\w\"'-]+)*)\s*=")


def read_model(path: Path, model: type[Model]) -> Model:
    """The file as a `model`.

    Raises `InputError` when it cannot be read, is not TOML, or does not fit: one sentence with the line, the key, what
    was wrong and what is allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name} cannot be read ({type(error).__name__}). Check the path of the file.") from None
    try:
        return model.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path.name} is not TOML: {error}. Correct the line and try again.") from None
    except RecursionError:
        raise InputError(f"{path.name} is nested too deeply. Take lists out of lists and try again.") from None
    except ValidationError as error:
        raise InputError(_sentence(path.name, text, model, error)) from None
    except ValueError:  # Of `int`, for thousands of digits.
        raise InputError(f"{path.name} holds a number with too many digits. Correct it and try again.") from None


def line_of(text: str, where: Sequence[str | int]) -> int | None:
    """The line, from 1, on which the key `where` stands, else the nearest one around it, else the first one in it.

    None when there is none of these.
    """
    sought = tuple(where)
    keys = list(_keys(text))
    around = [(len(key), -number) for number, key in keys if key == sought[: len(key)]]
    if around:
        return -max(around)[1]
    return next((number for number, key in keys if key[: len(sought)] == sought), None) if sought else None


def _keys(text: str) -> Iterator[tuple[int, Where]]:
    """Every table and key with its line; entries of arrays of tables are counted from 0."""
    table: Where = ()
    counts: dict[Where, int] = {}
    quoted = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if quoted:
            quoted = "" if quoted in line else quoted
            continue
        if header := _TABLE.match(line):
            name = _parts(header[2])
            table = _placed(name, counts)
            if header[1]:
                counts[name] = counts.get(name, -1) + 1
                table = (*table, counts[name])
                counts = {known: n for known, n in counts.items() if known == name or known[: len(name)] != name}
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_parts(key[1]))
            quoted = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _placed(name: tuple[str, ...], counts: dict[Where, int]) -> Where:
    """A table's name with the number of the entry it belongs to after each array of tables in it."""
    placed: list[str | int] = []
    for end, part in enumerate(name, start=1):
        placed.append(part)
        if end < len(name) and name[:end] in counts:
            placed.append(counts[name[:end]])
    return tuple(placed)


def _sentence(name: str, text: str, model: type[BaseModel], error: ValidationError) -> str:
    problems = []
    listed: set[tuple[str, ...]] = set()
    for problem in error.errors(include_url=False)[:MOST_NAMED]:
        where = problem["loc"]
        fault = _fault(model, where, dict(problem), listed)
        key, colon, rest = fault.partition(": ")
        if not where and colon and key in model.model_fields:
            # A model that checks several keys together begins with the one to change.
            where, fault = (key,), rest
        line = line_of(text, where)
        key = ".".join(str(part + 1) if isinstance(part, int) else part[:80] for part in where)
        problems.append(f"{name}{f', line {line}' if line else ''}: {f'{key}: ' if key else ''}{fault}")
    more = error.error_count() - len(problems)
    return "; ".join(problems) + (f"; and {more:,} more" if more else "") + ". Correct the file and try again."


def _fault(model: type[BaseModel], where: Where, problem: dict[str, Any], listed: set[tuple[str, ...]]) -> str:
    """What is wrong at `where`; the keys that are allowed are listed once, and noted in `listed`."""
    if problem["type"] == "extra_forbidden":
        fields = tuple(_fields(model, where[:-1]))
        if fields in listed:
            return "there is no such key"
        listed.add(fields)
        return f"there is no such key. Allowed: {', '.join(fields)}"
    if problem["type"] == "missing":
        return "this key is missing"
    fault = str(problem["msg"]).removeprefix("Value error, ")
    fault = fault[:1].lower() + fault[1:]
    return fault if isinstance(problem["input"], dict) else f"{fault} (given: {problem['input']!r:.80})"


def _fields(model: type[BaseModel], where: Where) -> list[str]:
    """The keys that the model at `where` knows."""
    for part in where:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            model = inner or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model in a type such as `list[Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)
