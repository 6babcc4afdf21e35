"""Whether an answer is right, by one of four rules.

exact     the texts are equal after Unicode NFKC, without regard to case and to signs that cannot be seen (of Unicode's
          category Cf), with white space trimmed and runs of it as one space.
numeric   the number in the answer is within the tolerance of the reference (none: equal). The number is the first one
          after the last "answer:", else the last one. 1,234.5 and 1e3 and 3/4 are numbers; signs of per cent and
          currency and units are passed over, so that 25% counts as 25 and 5km as 5. Groups parted by blanks or
          underscores (1 000, 1_000), a comma that groups no thousands, and what is joined to further letters and digits
          (0x10, 2x4) make it no number.
regex     the pattern is found somewhere in the answer, as the library `regex` reads it: case counts unless it begins
          with (?i). A search that takes too long counts as not found.
choice    the answer is one of the choices, compared as in exact, or its letter (A is the first), or both.

An empty answer is wrong. Of a long one the first `MOST_CHARACTERS` are judged.

Run as a program, this is the process in which patterns are searched for, bounded in time and memory.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import cache
from string import ascii_uppercase
from typing import Any

import regex

from memrl_core.environments.child import Child, ChildFailed, serve
from memrl_core.environments.databases.sandbox_child import confine
from memrl_core.errors import EnvironmentFailed, InputError

CHILD = "memrl_core.environments.own_tasks.answers"
SECONDS = 1.0
"""Processor time that a search may take, so that a busy machine judges alike."""

STARTING = 60.0
SLACK = 9.0
"""Seconds of the clock beyond `SECONDS`, for compiling too, after which its process is ended."""


@dataclass(frozen=True, slots=True)
class Search:
    """What became of a search: `found`, or why it was `stopped`, or why the pattern is none (`fault`)."""

    found: bool = False
    stopped: str = ""
    fault: str = ""


def search(pattern: str, text: str) -> Search:
    """Look for `pattern`, as the library `regex` reads it, anywhere in `text`.

    A search of more than `SECONDS`, or of too much memory, is stopped. Raises `EnvironmentFailed` when the process for
    it cannot be started.
    """
    with closing(Child(CHILD)) as child:
        try:
            if not child.running:
                child.ask({"pattern": "", "text": "", "seconds": SECONDS}, STARTING)
        except ChildFailed as error:
            raise EnvironmentFailed(
                f"No pattern can be searched for ({error}). Nothing was judged; try again."
            ) from None
        try:
            answer = child.ask({"pattern": pattern, "text": text, "seconds": SECONDS}, SECONDS + SLACK)
        except ChildFailed as error:
            return Search(stopped=str(error))
    return Search(bool(answer.get("found")), str(answer.get("stopped", "")), str(answer.get("fault", "")))


MOST_CHARACTERS = 100_000
LARGEST_EXPONENT = 1_000
MOST_CHOICES = len(ascii_uppercase)

RIGHT = "The answer is right."
WRONG = "The answer is not what was expected."
EMPTY = "The answer is empty."
NO_NUMBER = "There is no number in the answer."
OTHER_NUMBER = "The number in the answer is not the one expected."
NO_CHOICE = "The answer is none of the choices."
OTHER_CHOICE = "The answer is the wrong choice."
NOT_MATCHED = "The answer is not of the form that was expected."
STOPPED = f"The answer could not be searched within {SECONDS:g} s, which counts as wrong."

_FEWEST_PER_CHARACTER = 4
"""NFKC makes at most so many characters one."""

_CONTEXT = Context(prec=60, Emax=10**6, Emin=-(10**6), traps=[])
_NUMBER = re.compile(
    r"(?<![^\W_])(?<![^\W_][.,_])"  # Not within a word or another number.
    r"([-+]?+(?!0[xX])(?>\d{1,3}(?:[, \u00a0\u2009\u202f]\d{3}(?!\d))++|\d++|(?=\.\d))(?:\.\d++)?+(?:[eE][-+]?\d++)?+)"
    r"(?:/(\d++(?:\.\d++)?+))?+(?![.,_]?\d)(?![^\W\d_]++\d)"
)
_MARKER = re.compile(r"answer\s*:", re.IGNORECASE)
_LABEL = re.compile(r"[(\[]?([A-Za-z])(?:[)\].:]|\s*[-–]\s|\s*$)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sentence` is one that gives nothing away; `why` is for people and may name the right answer."""

    success: bool
    sentence: str
    why: str


def judge(answer: str, data: Mapping[str, Any]) -> Verdict:
    """Judge `answer` by a task's `checker`, `reference` and, where they belong to it, `choices` and `tolerance`.

    Raises `InputError` for a checker or a reference that is none, and `EnvironmentFailed` where a pattern cannot be
    searched for.
    """
    checker = _CHECKERS.get(str(data.get("checker")))
    if checker is None:
        raise InputError(f"There is no checker “{str(data.get('checker'))[:80]}”. Known: {', '.join(_CHECKERS)}.")
    kept = answer[:MOST_CHARACTERS]
    verdict = checker(kept, data) if kept.strip() else Verdict(False, EMPTY, EMPTY)
    if len(answer) <= MOST_CHARACTERS:
        return verdict
    cut = f"Only the first {MOST_CHARACTERS:,} of {len(answer):,} characters were judged."
    return Verdict(verdict.success, f"{verdict.sentence} {cut}", f"{verdict.why} {cut}")


def exact(answer: str, data: Mapping[str, Any]) -> Verdict:
    """By the rule "exact"."""
    if _same(answer, str(data["reference"])):
        return Verdict(True, RIGHT, "Both texts are the same, but for case and white space.")
    return Verdict(False, WRONG, "The texts differ in more than case and white space.")


def numeric(answer: str, data: Mapping[str, Any]) -> Verdict:
    """By the rule "numeric"."""
    expected = number_of(str(data["reference"]))
    if expected is None:
        raise InputError("The reference is no number.")
    came = number_of(answer)
    if came is None:
        return Verdict(False, NO_NUMBER, NO_NUMBER)
    tolerance = tolerance_of(data.get("tolerance"), expected)
    near = came == expected or abs(_CONTEXT.subtract(came, expected)) <= tolerance
    read = f"The answer was read as {came:.12g}, which is"
    if tolerance:
        why = f"{read} {'within' if near else 'not within'} {tolerance:.12g} of {expected:.12g}."
    else:
        why = f"{read} {'equal' if near else 'not equal'} to {expected:.12g}."
    return Verdict(near, RIGHT if near else OTHER_NUMBER, why)


def matching(answer: str, data: Mapping[str, Any]) -> Verdict:
    """By the rule "regex"."""
    done = search(str(data["reference"]), answer)
    if done.fault:
        raise InputError(f"The reference is no pattern: {done.fault}.")
    if done.stopped:
        return Verdict(False, STOPPED, f"The search for the pattern was stopped: {done.stopped}.")
    if done.found:
        return Verdict(True, RIGHT, "The pattern was found in the answer.")
    return Verdict(False, NOT_MATCHED, "The pattern was not found in the answer.")


def choice(answer: str, data: Mapping[str, Any]) -> Verdict:
    """By the rule "choice"."""
    choices = [str(one) for one in data["choices"]]
    expected, came = chosen(str(data["reference"]), choices), chosen(answer, choices)
    if expected is None:
        raise InputError("The reference is none of the choices.")
    if came is None:
        return Verdict(False, NO_CHOICE, "The answer is neither one of the choices nor the letter of one.")
    why = f"The answer is choice {ascii_uppercase[came]}, expected was choice {ascii_uppercase[expected]}."
    return Verdict(came == expected, RIGHT if came == expected else OTHER_CHOICE, why)


_CHECKERS: Mapping[str, Callable[[str, Mapping[str, Any]], Verdict]] = {
    "exact": exact,
    "numeric": numeric,
    "regex": matching,
    "choice": choice,
}


def number_of(text: str) -> Decimal | None:
    """The number that `text` gives as its answer, exactly (fractions to 60 digits); None when there is none."""
    text = without_unseen(text).replace("−", "-")
    markers = list(_MARKER.finditer(text))
    after = text[markers[-1].end() :] if markers else text
    found = [number for match in _NUMBER.finditer(after) if (number := _number(match)) is not None]
    return (found[0] if markers else found[-1]) if found else None


def number_alone(text: str) -> Decimal | None:
    """The number that `text` is, signs of per cent and currency aside; None when it says anything else."""
    around = _NUMBER.sub(" ", without_unseen(text).replace("−", "-"), count=1)
    return None if any(map(str.isalnum, around)) else number_of(text)


def tolerance_of(tolerance: Any, expected: Decimal) -> Decimal:
    """How far a number may be from `expected`: 0.5 or "0.5" is that much, "1%" that share of it.

    Raises `InputError` for what is neither.
    """
    if tolerance is None:
        return Decimal(0)
    text = str(tolerance).strip()
    try:
        read = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        read = Decimal("NaN")
    sound = read.is_finite() and read >= 0 and abs(read.adjusted()) <= LARGEST_EXPONENT
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | str) or not sound:
        raise InputError(f"tolerance is a number that is not negative, or one with %, such as “1%”; not “{text[:80]}”.")
    return _CONTEXT.multiply(_CONTEXT.divide(read, Decimal(100)), abs(expected)) if text.endswith("%") else read


def chosen(text: str, choices: Sequence[str]) -> int | None:
    """The position of the choice that `text` names by its text, its letter, or both; None when it names none."""
    text = without_unseen(text)
    by_text = next((n for n, one in enumerate(choices) if _same(text, one)), None)
    label = _LABEL.fullmatch(text.strip())
    if by_text is not None or label is None:
        return by_text
    position = ascii_uppercase.index(label[1].upper())
    named = position < len(choices) and (not label[2].strip() or _same(label[2], choices[position]))
    return position if named else None


def without_unseen(text: str) -> str:
    """The text without signs of Unicode's category Cf, such as a byte order mark or a space of no width."""
    return text if text.isascii() else "".join(sign for sign in text if unicodedata.category(sign) != "Cf")


def _number(match: re.Match[str]) -> Decimal | None:
    try:
        number, below = Decimal(match[1].replace(",", "")), Decimal(match[2] or 1)
    except InvalidOperation:  # An exponent that no machine holds, or groups parted by blanks.
        return None
    if not below or any(part and abs(part.adjusted()) > LARGEST_EXPONENT for part in (number, below)):
        return None
    return number if match[2] is None else _CONTEXT.divide(number, below)


def _same(one: str, other: str) -> bool:
    one, other = " ".join(without_unseen(one).split()), _plain(without_unseen(other))
    # Normalising is slow for long runs of accents; what is that much longer cannot become equal.
    return len(one) <= _FEWEST_PER_CHARACTER * len(other) and _plain(one) == other


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


# --- in the process of its own ----------------------------------------------------------------------------------------

_NO_PATTERN = (regex.error, ValueError, TypeError, OverflowError, RecursionError, IndexError, KeyError)
_confined = cache(confine)


def found(question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether `pattern` is `found` in `text`; else why it is no pattern (`fault`) or why the search was `stopped`."""
    _confined()
    try:
        pattern = regex.compile(question["pattern"])
    except MemoryError:
        return {"fault": "it needs too much memory"}
    except _NO_PATTERN as error:
        return {"fault": str(error)[:200] or type(error).__name__}
    try:
        return {"found": pattern.search(question["text"], timeout=question["seconds"]) is not None}
    except TimeoutError:
        return {"stopped": f"it took longer than {question['seconds']:g} s"}
    except MemoryError:
        return {"stopped": "it needed too much memory"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(found)
