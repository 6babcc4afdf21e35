"""Which column of a foreign table holds what, and one row of it as a memory.

A nested object is several columns (`value.text`). A column is guessed by its name and kept only where a sample of its
values is of the right kind; a person may name another. What no field takes is kept as metadata.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic_core import from_json, to_json

from memrl_core.errors import InputError, few
from memrl_core.exchange.contents import NOTHING
from memrl_core.exchange.official.checkpoint import moment, text_of
from memrl_core.records import Outcome

Vector = npt.NDArray[np.float64]
Raw = Mapping[str, Any]

FIELDS = ("text", "intent", "vector", "q", "visits", "outcome", "created", "metadata", "id", "helpful", "harmful")
"""What `--map` may name. `helpful` and `harmful` are counts of good and bad uses: q is the share of the good ones."""
LARGEST_Q, MOST_VISITS = 1e6, 2**53
LONGEST_TEXT, LONGEST_ID = 1_000_000, 200
DEEPEST = 4
SAMPLE = 200
SHOWN = 40
ENOUGH = 0.9
"""The share of a sample that must be of the right kind for a column to be guessed."""

_USUAL = {
    "vector": "vector embedding embeddings emb vec vectors dense_vector text_vector content_vector embedding_vector "
    "text_embedding content_embedding vec_summary intent_embedding query_embedding vector_data",
    "text": "text memory experience content page_content document lesson insight body note fact memory_text value "
    "chunk passage observation summary description message data answer output response agent_text reflection",
    "intent": "intent query question task task_description goal situation problem instruction prompt user_text "
    "trigger title label input",
    "q": "q q_value q_val qvalue utility utility_score utility_value learned_utility usefulness q_estimate note_q "
    "q_score memory_value value",
    "visits": "visits q_visits visit_count n_visits num_visits q_updates update_count use_count usage_count uses "
    "times_used access_count retrieval_count recall_count hit_count",
    "outcome": "outcome success succeeded is_success was_successful task_success result status passed",
    "created": "created_at created timestamp created_time creation_time creation_date inserted_at memory_time "
    "stored_at written_at datetime time date ts",
    "id": "id _id memory_id uuid key note_id doc_id document_id record_id id_ bullet_id",
}
_NAMES = {asked: names.split() for asked, names in _USUAL.items()}
_COUNTS = (
    ("helpful", "harmful"), ("helpful_count", "harmful_count"), ("success_count", "failure_count"),
    ("successes", "failures"), ("wins", "losses"), ("upvotes", "downvotes"), ("thumbs_up", "thumbs_down"),
)  # fmt: skip
_EMBEDDERS = ("embedder", "embedding_model", "embedding_model_name", "embed_model")
_HOLDERS = (
    "value",
    "metadata",
    "payload",
    "properties",
    "data",
    "meta",
    "cmetadata",
    "metadata_",
    "attributes",
    "info",
)
"""Columns in which a text may be a JSON object."""
_SUCCESS = "success succeeded successful true yes 1 1.0 pass passed ok correct solved won resolved"
_FAILURE = "failure failed fail false no 0 0.0 -1 error incorrect wrong lost unsolved unresolved"
_OUTCOMES: Mapping[str, Outcome] = {
    **dict.fromkeys(_SUCCESS.split(), "success"),
    **dict.fromkeys(_FAILURE.split(), "failure"),
}


# --- values -----------------------------------------------------------------------------------------------------------


class Unfit(ValueError):
    """Why a value is not what its column is said to hold, as a clause."""


def number_of(value: Any) -> float | None:
    """A finite number; None for what is not there, NaN too. Raises `Unfit`."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        if isinstance(value, str):
            value = value.strip()
            value = value.replace(",", ".") if re.fullmatch(r"[+-]?\d+,\d+", value) else value
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Unfit(f"“{str(value)[:60]}” is not a number") from None
    if math.isnan(number):
        return None
    if abs(number) > LARGEST_Q:
        raise Unfit(f"{number:g} is beyond ±{LARGEST_Q:,.0f}")
    return number


def count_of(value: Any) -> int | None:
    """A whole number from 0 on; None for what is not there. Raises `Unfit`."""
    number = number_of(value)
    if number is None:
        return None
    if number < 0 or number != int(number):
        raise Unfit(f"{number:g} is not a count")
    return int(number)


def vector_of(value: Any) -> Vector | None:
    """A list of numbers, as such, as JSON or as float32 in bytes (d,); None for what is not there. Raises `Unfit`.

    Bytes that make no sense as float32 and do as float64 are these; a text may have the bytes in base64. It may hold
    NaN or zeros only: `unit_of` says so.
    """
    if value is None or (isinstance(value, str | bytes | list) and not len(value)):
        return None
    if isinstance(value, str) and len(value) >= 12 and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", value):
        with suppress(ValueError):
            value = base64.b64decode(value, validate=True)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        if len(data) % 4 or len(data) < 8:
            raise Unfit("it is no vector: its bytes are no float32 numbers")
        with np.errstate(invalid="ignore"):  # Of a signalling NaN.
            single = np.frombuffer(data, "<f4").astype(np.float64)
        if len(data) % 8 == 0 and len(data) >= 16 and not _is_sensible(single):
            double = np.frombuffer(data, "<f8").astype(np.float64)
            return double if _is_sensible(double) else single
        return single
    if isinstance(value, str):
        words = value.strip()
        try:
            value = (
                from_json(words, allow_inf_nan=True)
                if words[:1] == "["
                else [float(x) for x in re.split(r"[,;\s]+", words)]
            )
        except ValueError:
            raise Unfit(f"“{words[:40]}” is no vector") from None
    if isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    try:
        vector = np.asarray([math.nan if one is None else one for one in value], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise Unfit("it is no list of numbers") from None
    if vector.ndim != 1 or len(vector) < 2 or not all(isinstance(one, int | float | None) for one in value):
        raise Unfit("it is no list of numbers")
    return vector


def _is_sensible(numbers: Vector) -> bool:
    """Whether numbers can be those of an embedding: bytes of another type are far off as a rule."""
    sizes = np.abs(numbers)
    return bool(np.all((sizes == 0) | ((sizes > 1e-15) & (sizes < 1e6))))


def unit_of(vector: Vector) -> npt.NDArray[np.float32]:
    """The vector with length 1. Raises `Unfit` for one that is not finite, or has no direction."""
    if not np.isfinite(vector).all():
        raise Unfit("its vector has NaN or infinite numbers")
    largest = float(np.abs(vector).max())
    if largest == 0:
        raise Unfit("its vector is all zeros")
    scaled = vector / largest  # The squares of huge or tiny numbers would leave the range of floats.
    unit: npt.NDArray[np.float32] = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return unit


def outcome_of(value: Any) -> Outcome:
    """What a word, a truth value or 1, 0 and -1 say of success; "unrated" for anything else."""
    return _OUTCOMES.get(str(value).strip().lower(), "unrated")


def created_of(value: Any) -> str:
    """A time as ISO 8601 in UTC: of a text, a `datetime`, or seconds, milli- or microseconds since 1970; else ""."""
    if isinstance(value, date):  # Or a `datetime`, which is one.
        return moment(value.isoformat())
    words = str(value).strip() if value is not None and not isinstance(value, bool) else ""
    if re.fullmatch(r"(19|20)\d{10}(\d\d)?", words):  # A-MEM: 202611272315
        with_seconds = "%S" if len(words) == 14 else ""
        try:
            return moment(datetime.strptime(words, f"%Y%m%d%H%M{with_seconds}").isoformat())
        except ValueError:
            return ""
    if re.fullmatch(r"\d{9,19}(\.\d+)?", words):
        seconds = float(words)
        while seconds > 1e11:
            seconds /= 1000
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return moment(words.replace(" UTC", "+00:00")) if words else ""


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise Unfit("its text is bytes")
    if isinstance(value, Mapping | list):
        value = to_json(value, inf_nan_mode="strings", fallback=str).decode()
    words = text_of(value if isinstance(value, str) else "" if value is None else str(value))
    if len(words) > LONGEST_TEXT:
        raise Unfit(f"its text has {len(words):,} characters, more than {LONGEST_TEXT:,}")
    return words


# --- columns ----------------------------------------------------------------------------------------------------------


def columns_of(row: Raw) -> dict[str, Any]:
    """The values of a row by their columns: those of a nested object by their path, such as `value.text`."""
    found: dict[str, Any] = {}

    def walk(part: Mapping[Any, Any], before: str, depth: int) -> None:
        for key, value in part.items():
            name = f"{before}{key}"
            if isinstance(value, str | bytes) and value.lstrip()[:1] in ("{", b"{") and _words(name)[-1] in _HOLDERS:
                value = _parsed(value)
            if isinstance(value, dict) and value and depth < DEEPEST:
                walk(value, f"{name}.", depth + 1)
            else:
                found[name] = value

    walk(row, "", 1)
    return found


def _parsed(value: str | bytes) -> Any:
    try:
        return from_json(value, allow_inf_nan=True)
    except ValueError:
        return value


def _words(name: str) -> list[str]:
    """The parts of a column's path, in lower case and with underscores: `metadata.createdAt` → metadata, created_at."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [re.sub(r"[\s-]+", "_", part.strip()).lower() for part in snake.split(".")]


def is_there(value: Any) -> bool:
    """Whether a cell holds anything."""
    return value is not None and not (isinstance(value, str | bytes | list | dict) and not len(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not _is_number(value)


def _can_be(read: Callable[[Any], Any], value: Any) -> bool:
    try:
        return read(value) is not None
    except Unfit:
        return False


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool | list | dict | bytes) and _can_be(number_of, value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and _can_be(count_of, value)


def _is_vector(value: Any) -> bool:
    return _can_be(vector_of, value)


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "vector": _is_vector,
    "text": _is_text,
    "intent": _is_text,
    "q": _is_number,
    "visits": _is_count,
    "outcome": lambda value: outcome_of(value) != "unrated",
    "created": lambda value: bool(created_of(value)),
    "id": lambda value: isinstance(value, str | int) and not isinstance(value, bool),
}


@dataclass(frozen=True, slots=True)
class Mapped:
    """Which column each field has; `known` names the program that a preset knows, `embedder` who made the vectors.

    `passed_over` says of columns that are named like a field why they are not taken for it.
    """

    columns: Mapping[str, str]
    known: str = ""
    embedder: str = ""
    passed_over: tuple[str, ...] = ()


PRESETS: Sequence[tuple[str, Sequence[frozenset[str]], Mapping[str, Sequence[str]]]] = (
    (
        "a MemOS local plugin",
        (frozenset({"value", "alpha", "priority"}), frozenset({"user_text", "agent_text", "value"})),
        {
            "text": ("agent_text", "summary", "reflection"),
            "intent": ("user_text", "summary"),
            "vector": ("vec_summary",),
            "q": ("value",),
            "created": ("ts",),
            "id": ("id",),
        },
    ),
    ("a Letta agent file", (frozenset({"letta"}),), {"text": ("text",), "intent": ("label",), "id": ("id",)}),
    (
        "A-MEM notes",
        (frozenset({"content", "keywords", "context"}), frozenset({"content", "links", "tags", "keywords"})),
        {"text": ("content",), "visits": ("retrieval_count",), "created": ("timestamp",), "id": ("id", "note_id")},
    ),
    ("an ACE playbook", (frozenset({"helpful", "harmful"}),), {"text": ("content", "text"), "id": ("id",)}),
    ("LangGraph store rows", (frozenset({"namespace", "key"}), frozenset({"prefix", "key"})), {"id": ("key",)}),
    (
        "mem0 get_all()",
        (frozenset({"memory", "hash"}), frozenset({"memory", "user_id"}), frozenset({"memory", "updated_at"})),
        {"text": ("memory",), "id": ("id",), "created": ("created_at",)},
    ),
)  # fmt: skip
"""By what columns the rows of a program are known, any of the sets, and the first columns to try for a field."""


def mapped(sample: Sequence[Mapping[str, Any]], named: Mapping[str, str], facts: Raw) -> Mapped:
    """The columns of some rows: those that a person `named` by field, and the guessed ones. A field may have none.

    Raises `InputError` for a field or a column that is not there, and where no column can be the text.
    """
    names = list(dict.fromkeys(name for row in sample for name in row))
    for asked, column in named.items():
        if asked not in FIELDS:
            raise InputError(f"There is no field “{asked[:40]}” to map. {NOTHING} There are {', '.join(FIELDS)}.")
        if column and not any(name == column or name.startswith(f"{column}.") for name in names):
            there = ", ".join(name[:60] for name in names[:SHOWN])
            raise InputError(f"There is no column “{column[:80]}” for {asked}. {NOTHING} There are {there}.")
    values = {name: [row[name] for row in sample if is_there(row.get(name))] for name in names}
    tops = {_words(name)[0] for name in names}
    known, preferred = "", dict[str, Sequence[str]]()
    for title, sets, columns in PRESETS:
        if any(one <= tops for one in sets):
            known, preferred = title, dict(columns)
            break
    chosen = {asked: column for asked, column in named.items() if column}
    taken = set(chosen.values())
    refused = {asked for asked, column in named.items() if not column}
    for asked in ("id", "vector", "visits", "created", "outcome", "intent", "text", "q"):
        if asked in chosen or asked in refused:
            continue
        usual = [*preferred.get(asked, ()), *_NAMES[asked]]
        order = sorted(
            (usual.index(_words(name)[-1]), name.count("."), name)
            for name in names
            if name not in taken and _words(name)[-1] in usual
        )
        if asked == "vector":  # Several vectors, each under a name of its own.
            order += [(0, 1, name) for name in names if name not in taken and _words(name)[0] in usual and "." in name]
        column = next((name for *_, name in order if _fits(asked, values[name])), "")
        if not column and asked == "vector":
            column = next((name for name in names if name not in taken and _is_of_vectors(values[name])), "")
        if column:
            chosen[asked] = column
            taken.add(column)
    if "text" not in chosen:
        texts = [
            (sum(map(len, values[n])) / len(values[n]), n) for n in names if n not in taken and _fits("text", values[n])
        ]
        if not texts and "intent" in chosen:
            texts = [(0.0, chosen.pop("intent"))]
        if not texts:
            odd = "".join(f" {one}" for one in _passed_over({**chosen, "text": ""}, refused, values))
            raise InputError(
                f"No column can be the text of a memory ({few(name[:60] for name in names) or 'there is none'}).{odd} "
                f"{NOTHING} Name one by --map text=COLUMN."
            )
        chosen["text"] = max(texts)[1]
    if not {"q", "visits"} & set(chosen):
        by_name = {_words(name)[-1]: name for name in names if name not in taken}
        pair = next((pair for pair in _COUNTS if set(pair) <= set(by_name)), None)
        if pair is not None and all(_fits("visits", values[by_name[one]]) for one in pair):
            chosen |= dict(zip(("helpful", "harmful"), (by_name[one] for one in pair), strict=True))
    return Mapped(chosen, known, _embedder(values, facts), tuple(_passed_over(chosen, refused, values)))


def _passed_over(
    chosen: Mapping[str, str], refused: Collection[str], values: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """A sentence on each column that has the very name of a field and is not of its kind."""
    for asked in _KINDS:
        if chosen.get(asked) or asked in refused or (asked == "q" and "helpful" in chosen):
            continue
        for name, found in values.items():
            if name.lower() not in _NAMES[asked][:2] or name in chosen.values() or not found:
                continue
            odd = [one for one in found if not _KINDS[asked](one)]
            yield (
                f"The column {name[:60]} is not taken for {_MEANING[asked]}: {len(odd):,} of its first {len(found):,} "
                f"values cannot be that ({few(str(one)[:40] for one in odd)}). --map {asked}={name[:60]} takes it."
            )


_MEANING = {
    "vector": "a vector", "text": "the text", "intent": "the intent", "q": "q", "visits": "a number of visits",
    "outcome": "the outcome", "created": "the time at which it was made", "id": "the id",
}  # fmt: skip


def _fits(asked: str, found: Sequence[Any]) -> bool:
    return bool(found) and sum(map(_KINDS[asked], found)) >= ENOUGH * len(found)


def _is_of_vectors(found: Sequence[Any]) -> bool:
    """Whether a column of any name holds vectors: lists of as many numbers in most of its rows."""
    lists = [one for one in found if isinstance(one, list) and len(one) >= 8 and _is_vector(one)]
    return bool(lists) and len(lists) >= ENOUGH * len(found)


def _embedder(values: Mapping[str, Sequence[Any]], facts: Raw) -> str:
    """Who made the vectors, where the rows or what stands beside them say so once; "" otherwise."""
    flat = columns_of(facts)
    said = {str(one) for name, found in values.items() if _words(name)[-1] in _EMBEDDERS for one in found}
    said |= {str(one) for name, one in flat.items() if _words(name)[-1] in _EMBEDDERS and isinstance(one, str) and one}
    only = said.pop() if len(said) == 1 else ""
    return only[:LONGEST_ID] if only.isprintable() else ""


# --- a row ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """One row as a memory; `where` is its place. What the row does not say is None, "" or empty."""

    where: str
    id: str
    text: str
    intent: str
    vector: Vector | None = None
    q: float | None = None
    visits: int | None = None
    outcome: Outcome = "unrated"
    created: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def found_in(where: str, row: Raw, columns: Mapping[str, str], with_vector: bool) -> Found:
    """The memory in a row. Raises `Unfit` with the reason why there is none; without `with_vector` it has none."""
    flat = columns_of(row)

    def cell(name: str) -> Any:
        column = columns.get(name, "")
        if column in flat or not column:
            return flat.get(column)
        inner = {key.removeprefix(f"{column}."): one for key, one in flat.items() if key.startswith(f"{column}.")}
        return inner or None

    def read(name: str, of: Callable[[Any], Any]) -> Any:
        try:
            return of(cell(name))
        except Unfit as error:
            raise Unfit(f"{name} (column {columns[name][:60]}): {error}") from None

    text = read("text", _text)
    if not text.strip():
        raise Unfit("it has no text")
    intent = read("intent", _text) if "intent" in columns else ""
    q, visits = read("q", number_of), read("visits", count_of)
    if "helpful" in columns:
        good, bad = read("helpful", count_of) or 0, read("harmful", count_of) or 0
        visits = good + bad if visits is None else visits
        q = good / (good + bad) if q is None and good + bad else q
    vector = None
    if with_vector:
        vector = read("vector", vector_of)
        if vector is None:
            raise Unfit("it has no vector")
    name = cell("id")
    if name is not None and (not str(name).strip() or not str(name).isprintable() or len(str(name)) > LONGEST_ID):
        raise Unfit(f"its id “{str(name)[:40]}” cannot be one: up to {LONGEST_ID} printable characters")
    return Found(
        where,
        text_of("" if name is None else str(name).strip()),
        text,
        intent if intent.strip() else "",
        vector,
        q,
        visits,
        outcome_of(cell("outcome")),
        created_of(cell("created")),
        _metadata(flat, columns),
    )


def _metadata(flat: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """What no field takes; where a person named a column for metadata, that one only."""
    only, taken = columns.get("metadata", ""), {column for name, column in columns.items() if name != "metadata"}
    kept = {
        name: value
        for name, value in flat.items()
        if is_there(value)
        and not isinstance(value, bytes)
        and name not in taken
        and not any(name.startswith(f"{column}.") for column in taken)
        and (not only or name == only or name.startswith(f"{only}."))
        and not (isinstance(value, list) and len(value) > SAMPLE)
    }
    plain: dict[str, Any] = from_json(to_json(kept, inf_nan_mode="strings", fallback=str))
    return plain


def listed(columns: Mapping[str, str]) -> Iterable[str]:
    """The mapping in words, a field each, in the order of `FIELDS`."""
    return (f"{name} = {columns[name]}" for name in FIELDS if name in columns)
