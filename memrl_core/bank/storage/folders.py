"""Where banks lie: in folders of this machine, which can be listed, copied and deleted, in memory, or elsewhere."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tomllib
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from memrl_core.bank.storage.addresses import CUT, ENDING, is_local, shown
from memrl_core.bank.storage.copying import copy_database
from memrl_core.bank.storage.database import FILE, LAST, TURNS, Database
from memrl_core.bank.storage.failures import FULL, missing
from memrl_core.bank.storage.vectors import FOLDER, ArrowVectors, LanceVectors, Vectors
from memrl_core.errors import (
    BankError,
    BankFull,
    BankMisplaced,
    BankMissing,
    BankReadOnly,
    BankUnreachable,
    InputError,
    NotABank,
)
from memrl_core.settings import home

LONGEST_NAME = 60
LONGEST_FILE = 2**14
"""Letters of a file that names a bank, which has two lines."""
IN_MEMORY = ":memory:"
DEVICE = "device of Windows (CON, NUL, COM1 …)"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a bank lies: the address of its database and that of its vectors. `shown` stands in sentences."""

    uri: str
    database: str
    vectors: str
    shown: str

    def must_be_free(self) -> None:
        """Raise `NotABank` where something is stored already; what a creation cut short has left does not count."""
        if not is_local(self.uri):
            return
        path = Path(self.uri)
        if (path.exists() and not path.is_dir()) or (path.is_dir() and any(path.iterdir()) and not _was_begun(path)):
            raise NotABank(f"Something is already stored at {self.uri}. Nothing was changed; choose another place.")

    def must_be_there(self) -> None:
        """Raise `BankMissing` or `NotABank` where no bank can be."""
        if self.database == IN_MEMORY:
            raise missing(self.uri)
        if not is_local(self.uri):
            if "://" not in self.database and not Path(self.database).is_file():
                raise missing(self.uri)
            return
        path = Path(self.uri)
        if not path.exists():
            raise missing(self.uri)
        if not path.is_dir():
            raise NotABank(f"{self.uri} is a file, not a bank. Nothing was changed; choose the folder of a bank.")
        if not (path / FILE).is_file():
            raise NotABank(f"The folder {self.uri} holds no bank. Nothing was changed; choose the folder of a bank.")

    def make_vectors(self, dimension: int) -> Vectors:
        """New, empty vectors. Raises `NotABank`, `BankUnreachable`, `BankReadOnly`, `BankFull`."""
        if self.database == IN_MEMORY:
            return ArrowVectors(dimension)
        if is_local(self.uri):
            with disk_sentences(Path(self.uri)):
                Path(self.uri).mkdir(parents=True, exist_ok=True)
        return LanceVectors.create(self.vectors, dimension)

    @contextmanager
    def left_as_it_was(self) -> Iterator[None]:
        """Within it a bank is made; where the place turns out not to hold one, the folder begun for it is deleted."""
        begun = is_local(self.uri) and self.database != IN_MEMORY and not Path(self.uri).exists()
        try:
            yield
        except (BankMisplaced, BankReadOnly, BankFull):  # After any other failure somebody else may be at work there.
            if begun:
                shutil.rmtree(self.uri, ignore_errors=True)
            raise

    def open_vectors(self, dimension: int) -> Vectors:
        """The vectors there. Raises `BankDamaged`, `BankUnreachable`."""
        return LanceVectors.open(self.vectors, dimension)


def address_of(uri: str) -> Address:
    """Where the bank is that a folder, a TOML file or "memory://" names.

    Raises `BankUnreachable` for any other address, `BankMissing` and `NotABank` for a file that is none or not usable.
    """
    if uri.lower().startswith("memory://"):
        return Address(uri, IN_MEMORY, "", uri)
    if is_local(uri) or uri.endswith(ENDING):
        must_be_path(uri)
    if uri.endswith(ENDING):
        return _named_in(Path(uri))
    if not is_local(uri):
        raise BankUnreachable(
            f"A bank is no single address such as {shown(uri)[:CUT]}. Nothing was opened; name its database and its "
            "vectors in a file that ends in .toml (docs/format.md), and give that."
        )
    return Address(uri, str(Path(uri) / FILE), str(Path(uri) / FOLDER), uri)


def _named_in(file: Path) -> Address:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LONGEST_FILE + 1)
        if len(text) > LONGEST_FILE:
            raise ValueError(f"it has more than {LONGEST_FILE:,} letters")
        values = tomllib.loads(text)
    except FileNotFoundError:
        raise missing(str(file)) from None
    except RecursionError:
        raise NotABank(f"{file} is nested too deeply. Nothing was opened; check the file.") from None
    except (OSError, ValueError) as error:
        raise NotABank(f"{file} cannot be read ({error}). Nothing was opened; check the file.") from error
    named = [values.get("database"), values.get("vectors")]
    if set(values) != {"database", "vectors"} or not all(isinstance(one, str) and one for one in named):
        raise NotABank(
            f"{file} does not name a bank. Nothing was opened; it has two lines: database = "
            '"postgresql+psycopg://user@host/name" and vectors = "s3://bucket/path" (docs/format.md).'
        )
    database, vectors = map(str, named)
    for part in (database, vectors):
        if "://" not in part:
            must_be_path(str(file.parent / part))
    if "://" not in database:
        database = str(file.parent / database)
    if "://" not in vectors:
        vectors = str(file.parent / vectors)
    elif not database.startswith(("postgresql", "sqlite")) and "://" in database:
        raise NotABank(f"{file} names a database that is not supported. Nothing was opened; use PostgreSQL.")
    return Address(str(file), database, vectors, str(file))


def must_be_path(path: str) -> None:
    """Raise `NotABank` for a path that no file of this machine can have, whether or not there is one."""
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:  # ValueError: of the character NUL.
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            return
        why = "is longer than a path may be" if isinstance(error, OSError) else "holds the character NUL"
        raise NotABank(
            f"{path[:CUT]!r}{' …' if len(path) > CUT else ''} {why}. Nothing was changed; check the path."
        ) from None


def _was_begun(path: Path) -> bool:
    """Whether a folder holds nothing but the empty parts of a bank whose making was cut short."""
    if not {entry.name for entry in path.iterdir()} <= {
        FOLDER,
        *(FILE + ending for ending in ("", "-wal", "-shm", "-journal", TURNS, LAST)),
    }:
        return False
    database = Database.at(str(path / FILE), str(path))
    try:
        return not database.is_made()
    except BankError:
        return False
    finally:
        database.close()


@dataclass(frozen=True, slots=True)
class BankSummary:
    """A bank in a folder: its name there, and its path."""

    name: str
    path: str


def is_bank(path: Path) -> bool:
    """Whether a folder looks like a bank; nothing is opened."""
    return os.path.isfile(path / FILE)


def list_banks(folder: Path) -> list[BankSummary]:
    """The banks directly in `folder`, by name; what begins with a dot is not listed. None where it cannot be read."""
    try:
        found = [path for path in folder.iterdir() if not path.name.startswith(".") and is_bank(path)]
    except OSError:
        found = []
    return [BankSummary(path.name, str(path)) for path in sorted(found)]


def is_reserved(name: str) -> bool:
    """Whether Windows takes `name`, whatever ending it has, for a device: no file there can have it."""
    return re.match(r"(con|prn|aux|nul|(com|lpt)[0-9])(\.|$)", name, re.IGNORECASE) is not None


def valid_name(name: str) -> str:
    """`name` as the name of a folder. Raises `InputError` when it cannot be one."""
    text = name.strip()
    odd = any(not (c.isascii() and (c.isalnum() or c in "-_.")) for c in text)
    if not text or len(text) > LONGEST_NAME or text[0] in ".-" or odd or is_reserved(text):
        raise InputError(
            f"A bank's name has 1 to {LONGEST_NAME} letters (A to Z), digits, “-”, “_” or “.”, does not begin with “.” "
            f"or “-”, and is no {DEVICE}. Nothing was changed; choose another name."
        )
    return text


def copy_bank(source: str | Path, target: Path) -> None:
    """Copy a local bank as it is at this moment; a copy that is cut short never stands at `target`.

    Raises `BankMissing`, `NotABank`, `InputError` for a bank that is not on this machine, `BankFull`, `BankReadOnly`.
    """
    if not is_local(str(source)):
        raise InputError("Only banks on this machine can be copied here. Nothing was changed.")
    if not Path(source).exists():
        raise BankMissing(f"There is no bank at {source}. Nothing was copied.")
    if not is_bank(Path(source)):
        raise NotABank(f"The folder {source} holds no bank. Nothing was copied.")
    taken = NotABank(f"Something is already stored at {target}. Nothing was changed; choose another name.")
    if target.exists():
        raise taken
    draft = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    try:
        with disk_sentences(target):
            address = address_of(str(source))
            database = Database.at(address.database, address.shown)
            with closing(database):
                write_parts(database, address.open_vectors(int(database.description()["dimension"])), draft)
            try:
                draft.rename(target)
            except OSError:
                if target.exists():  # Somebody else was quicker.
                    raise taken from None
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_parts(database: Database, vectors: Vectors, target: Path) -> None:
    """Write the two parts of a bank into a new folder: the facts of one moment, and the memories they name."""
    target.mkdir()
    copy_database(database, target / FILE)
    # Read afterwards: every memory that the facts name is there by now.
    copy = LanceVectors.create(str(target / FOLDER), vectors.dimension)
    rows = vectors.read()
    if rows.num_rows:
        copy.append(rows)


def delete_bank(path: Path) -> None:
    """Delete a local bank; it is gone from the folder before its files are. Raises `NotABank`, `BankReadOnly`."""
    if not is_bank(path):
        raise NotABank(f"There is no bank at {path}. Nothing was deleted.")
    doomed = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    with disk_sentences(path):
        path.rename(doomed)
        shutil.rmtree(doomed)


@contextmanager
def disk_sentences(path: Path) -> Iterator[None]:
    """What the system refuses within it, as `BankFull` or `BankReadOnly` about `path`."""
    try:
        yield
    except (OSError, shutil.Error) as error:
        text = str(error)
        if getattr(error, "errno", None) in FULL or any(f"[Errno {number}]" in text for number in FULL):
            raise BankFull(f"The disk is full: {path} could not be written. Free some space and try again.") from error
        elsewhere = ", or set MEMRL_HOME to another folder," if path.is_relative_to(home()) else ""
        # What was to be made has a name for the time of its making, which nobody knows.
        there = next((one for one in (path, *path.parents) if os.path.exists(one)), path)
        reason = getattr(error, "strerror", None) or text[:200]
        raise BankReadOnly(
            f"{there} cannot be changed ({reason}). Make the folder writable{elsewhere} and try again."
        ) from error
