"""What a person's own task says beside its intent: how its answer is judged."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from memrl_core.environments.answers import MOST_CHOICES, chosen, judge, number_alone, tolerance_of, without_unseen
from memrl_core.environments.databases.task import database_data
from memrl_core.environments.patterns import search
from memrl_core.errors import InputError
from memrl_core.prompting import CHOICES

EXACT, NUMERIC, REGEX, CHOICE, SQL = "exact", "numeric", "regex", "choice", "sql"
CHECKERS = (EXACT, NUMERIC, REGEX, CHOICE, SQL)
KEYS = ("checker", "reference", "choices", "tolerance", "setup")

LONGEST_REFERENCE = 4_000
LONGEST_CHOICE = 300
LONGEST_SETUP = 20_000

_ONLY_FOR = {"choices": CHOICE, "tolerance": NUMERIC, "setup": SQL}
_NEEDED = {CHOICE: "choices", SQL: "setup"}
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


def checker_of(data: Mapping[str, Any]) -> str:
    """Who judges: the checker that is named, else choice or exact where there is a reference; "" is a person."""
    named = data.get("checker")
    if named is not None or data.get("reference") is None:
        return str(named or "")
    return CHOICE if data.get("choices") is not None else EXACT


def faults_of(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with `data`, a sentence each. A key that is null counts as left out.

    A pattern is compiled, SQL is run, and the reference is judged by its own checker. Raises `EnvironmentFailed` when
    the process for that cannot be had.
    """
    told = unknown_keys(data, KEYS)
    given = {key: value for key, value in data.items() if key in KEYS and value is not None}
    checker = checker_of(given)
    if not isinstance(given.get("checker", ""), str):
        return [*told, f"checker is a text, not {_KINDS[type(given['checker'])]}."]
    if "checker" in given and given["checker"] not in CHECKERS:
        return [*told, f"There is no checker “{checker[:80]}”; known: {', '.join(CHECKERS)}."]
    told += [
        f"{key} is for the checker {one} alone." for key, one in _ONLY_FOR.items() if key in given and one != checker
    ]
    told += [f"The checker {one} needs {key}." for one, key in _NEEDED.items() if checker == one and key not in given]
    told += _faults_of_values(given, checker)
    return _faults_when_tried(given, checker) if checker and not told else told


def unknown_keys(given: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """A sentence for each key that no task has, with the one that was perhaps meant."""
    told: list[str] = []
    for key in given:
        if key not in known:
            near = get_close_matches(key[:80], known, n=1)
            told.append(f"There is no key “{key[:80]}”" + (f"; is it “{near[0]}”?" if near else "."))
    return told


def faults_of_text(key: str, value: Any, longest: int) -> list[str]:
    """Why a value is no text that can be used, as a sentence in a list."""
    if not isinstance(value, str):
        return [f"{key} is a text, not {_KINDS.get(type(value), 'null')}."]
    if not without_unseen(value).strip():
        return [f"{key} is empty."]
    if len(value) > longest:
        return [f"{key} has {len(value):,} characters; at most {longest:,} fit."]
    unseen = any(unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t\r" for sign in value)
    return [f"{key} holds characters that cannot be shown."] if unseen else []


def _faults_of_values(given: Mapping[str, Any], checker: str) -> list[str]:
    told = _faults_of_reference(given.get("reference"), checker) if checker else []
    if "choices" in given:
        told += _faults_of_choices(given["choices"])
    if "setup" in given:
        told += faults_of_text("setup", given["setup"], LONGEST_SETUP)
    return told


def _faults_of_reference(reference: Any, checker: str) -> list[str]:
    if reference is None:
        return [f"The checker {checker} needs a reference."]
    if checker == NUMERIC and isinstance(reference, int | float) and not isinstance(reference, bool):
        return [] if math.isfinite(reference) else ["reference is no finite number."]
    return faults_of_text("reference", reference, LONGEST_REFERENCE)


def _faults_of_choices(choices: Any) -> list[str]:
    if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
        return ["choices is a list of texts."]
    if not 2 <= len(choices) <= MOST_CHOICES:
        return [f"choices holds {len(choices):,} texts; 2 to {MOST_CHOICES} are allowed."]
    for number, one in enumerate(choices, start=1):
        if told := faults_of_text(f"choice {number}", one, LONGEST_CHOICE):
            return told
        if len(one.splitlines()) > 1 or CHOICES in one:
            return [f"choice {number} is not one line of plain text."]
        if chosen(one, choices) != number - 1:
            return [f"choice {number} says the same as another."]
    return []


def _faults_when_tried(given: Mapping[str, Any], checker: str) -> list[str]:
    reference = given["reference"]
    try:
        if checker == SQL:
            database_data(given["setup"], reference)
            return []
        if checker == REGEX:
            done = search(reference, "")
            return [f"The pattern cannot be used: {done.fault or done.stopped}."] if done.fault or done.stopped else []
        if checker == NUMERIC:
            expected = number_alone(str(reference))
            if expected is None:
                return [f"reference is not one number and nothing else: “{reference[:80]}”."]
            tolerance_of(given.get("tolerance"), expected)
        right = judge(str(reference), {**given, "checker": checker}).success
    except InputError as error:
        return [str(error)]
    return [] if right else ["The reference fails its own check."]
