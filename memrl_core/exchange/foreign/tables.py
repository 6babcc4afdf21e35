"""What other programs store memories in, as rows: JSON, JSON lines, CSV, Parquet, SQLite, LanceDB, and ACE playbooks.

A file is known by its content. Rows are read one behind the other and never held together, so that a file may be larger
than the memory of the machine; only one JSON value is read as a whole. Everything in it is untrusted text.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from memrl_core.bank.storage.addresses import is_local
from memrl_core.bank.storage.folders import must_be_path
from memrl_core.bank.storage.foreign_tables import ROWS_AT_ONCE, LanceTable, lance_tables, sqlite_rows, sqlite_tables
from memrl_core.environments.tasks import OTHER_KINDS, not_utf8
from memrl_core.errors import InputError, few, one_line
from memrl_core.exchange.contents import NOTHING
from memrl_core.exchange.foreign.spans import is_span
from memrl_core.exchange.safe_files import opened

LARGEST_VALUE = 300 * 2**20
"""Bytes of a file that is one JSON value: decoded it takes several times as much memory."""
LONGEST_LINE = 64 * 2**20
HEAD = 64 * 2**10
MOST_COLUMNS = 2000
KINDS = "Memories are read from JSON, JSON lines, CSV, Parquet, SQLite, a folder of LanceDB tables or an ACE playbook."
SQLITE, PARQUET = b"SQLite format 3\0", b"PAR1"
OTHERS = (
    (codecs.BOM_UTF32_LE, "is written in UTF-32", "save it as UTF-8"),
    (codecs.BOM_UTF32_BE, "is written in UTF-32", "save it as UTF-8"),
    *OTHER_KINDS,
    (b"\x1f\x8b", "is compressed by gzip", "unpack it first (gunzip)"),
    (b"BZh", "is compressed by bzip2", "unpack it first (bunzip2)"),
    (b"\xfd7zXZ", "is compressed by xz", "unpack it first (unxz)"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd", "unpack it first (unzstd)"),
    (b"\x93NUMPY", "is a NumPy array without texts", "write texts and vectors to one Parquet file"),
    *((bytes((0x80, version)), "is a Python pickle, which could run a program", "save it as JSON lines or Parquet")
      for version in range(2, 6)),
)  # fmt: skip
"""Bytes by which a file begins that is not read here, what it is, and what to do."""
SEPARATORS = ",;\t|"
TEXTS = ("text", "memory", "content", "page_content", "value", "document", "experience")
"""Keys that an object has if it is one memory."""
ACE = re.compile(
    r"(?m)^\s*(?:[-*]\s+)?\[(?P<id>[^\]\s]+)\]\s*helpful=(?P<helpful>\d+)\s+harmful=(?P<harmful>\d+)\s*::\s*(?P<content>.*)"
)

Raw = Mapping[str, Any]
Place = tuple[str, "Raw | str", int]
"""Where a row stands, the row or why it cannot be read, and how much of the source (`Source.size`) is read with it."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of another program. `kind` names what they are stored in; `rows` begins anew at each call.

    `table` is the one that is read of `tables`; both are empty where there is only one. `size` is what the last number
    of a row comes to: bytes of a text, or rows. `facts` are what stands beside the rows, such as the embedder.
    """

    name: str
    kind: str
    size: int
    rows: Callable[[], Iterator[Place]]
    table: str = ""
    tables: tuple[str, ...] = ()
    facts: Raw = field(default_factory=dict)


def source_of(uri: str, table: str = "") -> Source:
    """The rows at a path, or in a LanceDB table at an address. `table` names one of several.

    Raises `InputError` for what is none of the known kinds, is empty, is not UTF-8, or has no such table.
    """
    if uri.startswith(("sqlite:///", "file://")):
        uri = uri.removeprefix("sqlite:///").removeprefix("file://")
    if uri.startswith(("http://", "https://")):
        raise InputError(f"{one_line(uri)} is an address of the web. {NOTHING} Download it, and name the file.")
    if not is_local(uri):
        return _of_lance(uri, table)
    must_be_path(uri)
    path = Path(uri).expanduser()
    if path.is_dir():
        return _of_lance(str(path), table)
    with opened(path) as file:
        head = file.read(HEAD)
    if head.startswith(SQLITE):
        return _of_sqlite(path, table)
    if table:
        raise InputError(f"{path.name} holds one table. {NOTHING} Leave --table away.")
    if head.startswith(PARQUET):
        return _of_parquet(path)
    for begin, what, remedy in OTHERS:
        if head.startswith(begin):
            raise InputError(f"{path.name} {what}. {NOTHING} {remedy[0].upper()}{remedy[1:]}.")
    head = head.removeprefix(codecs.BOM_UTF8)
    if not head.strip():
        raise InputError(f"{path.name} is empty. {NOTHING} Choose a file with memories.")
    if len(head) > 3 and 0 in head[:2] and (not any(head[0:64:2]) or not any(head[1:64:2])):
        raise InputError(f"{path.name} is written in UTF-16. {NOTHING} Save it as UTF-8.")
    if b"\r" in head and b"\n" not in head:
        raise InputError(
            f"The lines of {path.name} end in CR alone, as on old Macs. {NOTHING} Save it with the line ends of today."
        )
    if b"\0" in head:
        raise InputError(f"{path.name} is of a kind that is not known. {NOTHING} {KINDS}")
    return _of_text(path, head)


def _name(path: Path) -> str:
    return one_line(path.name, 80)


# --- text -------------------------------------------------------------------------------------------------------------


def _of_text(path: Path, head: bytes) -> Source:
    size, begin = path.stat().st_size, head.lstrip()
    if ACE.search(head.decode("utf-8", "replace")):
        return Source(_name(path), "an ACE playbook", size, lambda: _playbook(path))
    if begin[:1] in (b"{", b"["):
        first = begin.split(b"\n", 1)[0]
        is_lines = begin[:1] == b"{" and (_is_object(first) or (b"\n" not in begin and len(begin) >= HEAD // 2))
        if is_lines and not (b"\n" not in begin.strip() and _is_wrapped(first)):
            return Source(_name(path), "JSON lines", size, lambda: _json_lines(path))
        return _of_value(path, size)
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    if path.suffix.lower() not in (".csv", ".tsv") and not any(line.count(sign) for sign in SEPARATORS):
        raise InputError(f"{path.name} is a text in which no rows are found. {NOTHING} {KINDS}")
    separator = max(SEPARATORS, key=line.count)
    return Source(_name(path), "CSV", size, lambda: _csv(path, separator))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(from_json(line), dict)
    except ValueError:
        return False


def _is_wrapped(line: bytes) -> bool:
    """Whether the only line holds all memories, and is not one itself."""
    value = from_json(line) if _is_object(line) else {}
    return not is_span(value) and not set(TEXTS) & set(value) and bool(_entries(value))


def _lines(path: Path) -> Iterator[tuple[int, str, int]]:
    """Number, text and the bytes until its end of every line. Raises `InputError` for one that is not UTF-8."""
    with opened(path) as file:
        done = 0
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            done += len(line)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                raise InputError(
                    f"Line {number:,} of {path.name} is longer than {LONGEST_LINE / 2**20:.0f} MB. {NOTHING} Look for "
                    "a line end that is missing there, or for what is no text."
                )
            yield number, _decoded(path, line, number), done


def _unique(names: Iterable[str]) -> list[str]:
    """The names of columns, of which a repeated one gets a number behind it."""
    found: list[str] = []
    for name in names:
        again = sum(one == name or one.startswith(f"{name} (") for one in found)
        found.append(f"{name} ({again + 1})" if name in found else name)
    return found


def _decoded(path: Path, data: bytes, number: int = 1) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        fault = not_utf8(data)
        line = number + data[: error.start].count(b"\n")
        raise InputError(f"Line {line:,} of {path.name}: {fault.reason if fault else ''} {NOTHING}") from None


def _json_lines(path: Path) -> Iterator[Place]:
    for number, line, done in _lines(path):
        if line.strip():
            yield f"line {number:,}", _object(line), done


def _object(text: str) -> Raw | str:
    try:
        value = from_json(text, allow_inf_nan=True)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {str(error)[:200]}"
    return value if isinstance(value, dict) else "it is no JSON object"


def _of_value(path: Path, size: int) -> Source:
    if size > LARGEST_VALUE:
        raise InputError(
            f"{path.name} is one JSON value of {size / 2**20:,.0f} MB; at most {LARGEST_VALUE / 2**20:,.0f} MB are "
            f"read at once. {NOTHING} Write each memory on a line of its own (JSON lines), of which any number is read."
        )
    with opened(path) as file:
        text = _decoded(path, file.read().removeprefix(codecs.BOM_UTF8))
    try:
        value = from_json(text, allow_inf_nan=True)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path.name} cannot be read as JSON ({str(error)[:200]}). {NOTHING} Check the file."
        ) from None
    entries = [value] if isinstance(value, dict) and is_span(value) else _entries(value)
    if not entries and isinstance(value, dict) and any(isinstance(value.get(key), str) for key in TEXTS):
        entries = [value]
    if not entries:
        raise InputError(f"{path.name} is JSON in which no list of memories is found. {NOTHING} Check the file.")
    facts = {key: one for key, one in value.items() if not isinstance(one, list)} if isinstance(value, dict) else {}
    rows = [(f"entry {n:,}", one, n) for n, one in enumerate(entries, start=1)]
    return Source(_name(path), "JSON", len(rows), lambda: iter(rows), facts=facts)


def _entries(value: Any) -> list[Raw | str]:
    """The memories in a JSON value: a list of objects, wherever it is, objects by their ids, or columns (Chroma)."""
    if isinstance(value, list):
        texts = [{"text": one} if isinstance(one, str) else one for one in value]
        return [one if isinstance(one, dict) else "it is no JSON object" for one in texts]
    if not isinstance(value, dict):
        return []
    if letta := _letta(value):
        return letta
    if isinstance(ids := value.get("ids"), list) and any(
        isinstance(value.get(k), list) for k in ("documents", "metadatas")
    ):
        listed = {k: v for k, v in value.items() if isinstance(v, list) and len(v) == len(ids)}
        named = {"ids": "id", "documents": "document", "embeddings": "embedding", "metadatas": "metadata"}
        return [{named.get(k, k): v[n] for k, v in listed.items()} for n in range(len(ids))]
    lists = [one for one in value.values() if isinstance(one, list) and one and all(isinstance(x, dict) for x in one)]
    if lists:
        # Beside its memories mem0 gives the relations between their words, which may be more.
        return [*max(lists, key=lambda one: (bool(set(TEXTS) & set(one[0])), len(one)))]
    inner = [one for one in value.values() if isinstance(one, dict)]
    if inner and len(inner) == len(value):
        if len(inner) == 1 and (found := _entries(inner[0])):
            return found
        if len(inner) > 1 or any(isinstance(one, str) for one in inner[0].values()):
            return [{"id": key, **one} for key, one in value.items()]
    return next((found for one in inner if (found := _entries(one))), [])


def _letta(value: Raw) -> list[Raw | str]:
    """The memory of a Letta agent file: blocks (of either version of the schema) and archival passages."""
    if not ("agents" in value or "agent_type" in value or "core_memory" in value):
        return []
    agents = [one for one in value.get("agents") or () if isinstance(one, dict)]
    found: list[Raw | str] = []
    for holder in (value, *agents):
        for key in ("blocks", "core_memory", "memory_blocks", "passages", "archival_memory"):
            parts = holder.get(key)
            parts = parts.get("blocks") if isinstance(parts, dict) else parts
            for one in parts if isinstance(parts, list) else ():
                if isinstance(one, dict):
                    kind = "passage" if key in ("passages", "archival_memory") else "block"
                    text = one.get("value") or one.get("text") or one.get("content") or ""
                    rest = {name: value for name, value in one.items() if name not in ("value", "text", "content")}
                    found.append({"text": text, **rest, "letta": kind})
    return found


def _csv(path: Path, separator: str) -> Iterator[Place]:
    done, heading, begin = 0, list[str](), 1

    def texts() -> Iterator[str]:
        nonlocal done
        for _, line, until in _lines(path):
            done = until
            yield line

    rows = csv.reader(texts(), delimiter=separator, strict=True)
    try:
        for cells in rows:
            where, begin = f"line {begin:,}", rows.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            if not heading:
                heading = _unique(cell.strip() for cell in cells)
                continue
            if any(cells[len(heading) :]):
                yield where, f"it has {len(cells):,} cells, not {len(heading):,}", done
                continue
            yield where, {name: cell for name, cell in zip(heading, cells, strict=False) if cell != ""}, done
    except csv.Error as error:
        raise InputError(
            f"From line {begin:,} on {path.name} cannot be read as CSV ({error}). {NOTHING} Look for a quote there."
        ) from None


def _playbook(path: Path) -> Iterator[Place]:
    section = ""
    for number, line, done in _lines(path):
        found = ACE.match(line.strip())
        if found:
            yield f"line {number:,}", {**found.groupdict(), **({"section": section} if section else {})}, done
        elif line.startswith("#"):
            section = line.strip("# \r\n")
        elif line.strip():
            yield f"line {number:,}", "it is no line of a playbook: [id] helpful=N harmful=N :: text", done


# --- tables -----------------------------------------------------------------------------------------------------------


def _of_parquet(path: Path) -> Source:
    try:
        with pq.ParquetFile(path) as file:
            count = file.metadata.num_rows
            _must_be_few(path, file.schema_arrow.names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path.name} is not a whole Parquet file. {NOTHING} Take another copy of it.") from error

    def rows() -> Iterator[Place]:
        try:
            with pq.ParquetFile(path) as file:
                names = _unique(file.schema_arrow.names)
                batches = (batch.rename_columns(names) for batch in file.iter_batches(ROWS_AT_ONCE))
                yield from _numbered(row for batch in batches for row in batch.to_pylist())
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path.name} is damaged. {NOTHING} Take another copy of it.") from error

    return Source(_name(path), "Parquet", count, rows)


def _numbered(rows: Iterable[Raw]) -> Iterator[Place]:
    for number, row in enumerate(rows, start=1):
        yield f"row {number:,}", row, number


def _must_be_few(path: Path, columns: Iterable[str]) -> None:
    if (count := len(list(columns))) > MOST_COLUMNS:
        raise InputError(f"{path.name} has {count:,} columns, more than {MOST_COLUMNS:,}. {NOTHING} Leave some out.")


def _of_lance(uri: str, table: str) -> Source:
    names = lance_tables(uri)
    if not names:
        raise InputError(
            f"{one_line(uri)} is a folder without a LanceDB table. {NOTHING} Name a file, or the folder in which the "
            "tables lie."
        )
    chosen = _chosen(uri, names, table)
    lance = LanceTable(uri, chosen)
    return Source(_name(Path(uri)), "LanceDB", lance.count, lambda: _numbered(lance.rows()), chosen, tuple(names))


def _chosen(name: str, tables: list[str], asked: str) -> str:
    if not tables:
        raise InputError(f"{one_line(name)} holds no table with rows. {NOTHING} Choose another file.")
    if asked in tables:
        return asked
    if asked or len(tables) > 1:
        what = f"has no table “{asked[:80]}”" if asked else f"has {len(tables):,} tables"
        raise InputError(f"{one_line(name)} {what}. {NOTHING} Name one by --table: {few(tables)}.")
    return tables[0]


def _of_sqlite(path: Path, table: str) -> Source:
    counts = sqlite_tables(path)
    filled = [name for name, count in counts.items() if count]
    chosen = table or _most_like_memories(filled)
    chosen = _chosen(path.name, filled if not table else list(counts), chosen)
    rows = lambda: _numbered(sqlite_rows(path, chosen))  # noqa: E731
    return Source(_name(path), "SQLite", counts[chosen], rows, chosen, tuple(filled))


LIKELY = ("traces", "memories", "memory", "store", "notes", "documents", "items", "embeddings", "records")


def _most_like_memories(filled: list[str]) -> str:
    """The table to read where nobody names one: the only one, or one of a usual name; "" where a person must say."""
    if len(filled) == 1:
        return filled[0]
    named = [name for name in LIKELY if name in filled]
    return named[0] if named else ""
