"""TOML files that people write: read, checked against a model, and every fault named with its line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from memrl_core.errors import InputError

Model = TypeVar("Model", bound=BaseModel)
Where = tuple[str | int, ...]
MOST_NAMED = 10
"""Faults of one file that are listed one by one."""
LONG = 100
"""Letters from which on a fault is named once in a file, and then called the same."""
MOST_LINES, MOST_LETTERS = 300, 20_000
"""Lines, and letters, in which the place of a fault is looked for."""
LARGEST = 2**18
"""Letters of a file that is read; a person writes a tenth of it."""

MOST_PARTS = 16
"""Parts of a dotted key; the time to read one grows with their square."""
_MANY_PARTS = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_PARTS},}}""")


def read_model(path: Path, model: type[Model]) -> Model:
    """The file as a `model`.

    Raises `InputError` when it cannot be read, is not TOML, or does not fit: one sentence with the line, the key, what
    was wrong and what is allowed.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise InputError(f"{path.name[:80]} is not text in UTF-8. Nothing was begun; save it as UTF-8.") from None
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({type(error).__name__})"
        raise InputError(f"{path.name[:80]} {why}. Nothing was begun; check the path of the file.") from None
    if len(text) > LARGEST:
        raise InputError(f"{path.name} has more than {LARGEST:,} letters. Nothing was begun; shorten it.")
    if _MANY_PARTS.search(text):
        raise InputError(f"{path.name} has a key of more than {MOST_PARTS} parts. Nothing was begun; shorten it.")
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
    """The line, from 1, on which the value at `where` ends; without one, the first line of what it belongs in.

    It is the first line with which the beginning of the file, read for itself, holds that value.
    """
    lines = text[:MOST_LETTERS].splitlines()[:MOST_LINES]
    depth = next((depth for depth in range(len(where), 0, -1) if _holds(text, where[:depth])), 0)
    ends = range(1, len(lines) + 1) if depth else ()
    return next((end for end in ends if _holds("\n".join(lines[:end]), where[:depth])), None)


def _holds(text: str, where: Sequence[str | int]) -> bool:
    with suppress(ValueError, LookupError, TypeError):
        reduce(getitem, where, _parsed(text))  # type: ignore[arg-type]
        return True
    return False


_parsed = lru_cache(maxsize=MOST_LINES + 1)(tomllib.loads)
"""The same beginnings of a file are read for each of its faults."""


def _sentence(name: str, text: str, model: type[BaseModel], error: ValidationError) -> str:
    problems = []
    listed: set[tuple[str, ...]] = set()
    named: set[str] = set()
    for problem in error.errors(include_url=False)[:MOST_NAMED]:
        where = problem["loc"]
        fault = _fault(model, where, dict(problem), listed)
        key, colon, rest = fault.partition(": ")
        if not where and colon and key in model.model_fields:
            # A model that checks several keys together begins with the one to change.
            where, fault = (key,), rest
        line = line_of(text, where)
        key = ".".join(str(part + 1) if isinstance(part, int) else part[:80] for part in where)
        if fault in named:
            fault = "the same"
        elif len(fault) > LONG:
            named.add(fault)
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
