"""The banks in a folder of this machine: list, copy and delete them whole."""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from memrl_core.bank import flat
from memrl_core.bank.begun import BEGUN
from memrl_core.bank.store import LOCK_FILE, LOCK_PATIENCE, is_local
from memrl_core.errors import BankError, BankFull, BankMissing, BankReadOnly, InputError, NotABank

LONGEST_NAME = 60
MARK = "meta.lance"
VERSIONS = "_versions"
UNNAMED = ".tmp*"
"""What LanceDB is still writing."""


@dataclass(frozen=True, slots=True)
class BankSummary:
    """A bank in a folder: its name there, and its path."""

    name: str
    path: str


def is_bank(path: Path) -> bool:
    """Whether a folder looks like a bank; nothing is opened."""
    return (path / MARK).is_dir()


def list_banks(folder: Path) -> list[BankSummary]:
    """The banks directly in `folder`, by name; what begins with a dot is not listed."""
    found = [path for path in folder.iterdir() if not path.name.startswith(".") and is_bank(path)]
    return [BankSummary(path.name, str(path)) for path in sorted(found)]


def valid_name(name: str) -> str:
    """`name` as the name of a folder. Raises `InputError` when it cannot be one."""
    text = name.strip()
    odd = any(not (c.isascii() and (c.isalnum() or c in "-_.")) for c in text)
    if not text or len(text) > LONGEST_NAME or text.startswith(".") or odd:
        raise InputError(
            f"A bank's name has 1 to {LONGEST_NAME} letters, digits, “-”, “_” or “.” and does not begin with a dot. "
            "Nothing was changed; choose another name."
        )
    return text


def copy_bank(source: str | Path, target: Path) -> None:
    """Copy a local bank whole; a copy that is cut short never stands at `target`.

    Raises `BankMissing`, `NotABank`, `InputError` for a bank that is not on this machine, `BankError` while another
    process writes on and on, `BankFull`, `BankReadOnly`.
    """
    if not is_local(str(source)):
        raise InputError("Only banks on this machine can be copied here. Nothing was changed.")
    if not Path(source).exists():
        raise BankMissing(f"There is no bank at {source}. Nothing was copied.")
    if not is_bank(Path(source)):
        raise NotABank(f"The folder {source} holds no bank. Nothing was copied.")
    if target.exists():
        raise NotABank(f"Something is already stored at {target}. Nothing was changed; choose another name.")
    with _still(Path(source)):
        copy_folder(Path(source), target)


@contextmanager
def _still(bank: Path) -> Iterator[None]:
    """Within it, nobody writes to a bank or copies its tables: what moves meanwhile would be in no copy."""
    locks = [FileLock(bank / name) for name in (LOCK_FILE, flat.LOCK)]
    # Where nobody has ever written to it, a lock would only leave its file behind.
    try:
        for lock in locks if (bank / LOCK_FILE).exists() else ():
            lock.acquire(timeout=LOCK_PATIENCE)
    except Timeout:
        raise BankError(
            f"Another process has been writing to {bank} for more than {LOCK_PATIENCE:.0f} seconds. Nothing was "
            "copied; wait for it, or end it, and try again."
        ) from None
    except OSError:
        pass  # A place that cannot be written has no writer.
    try:
        yield
    finally:
        for lock in locks:
            lock.release()


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder whole, whatever it holds; a copy cut short never stands at `target`.

    Raises `BankFull`, `BankReadOnly`.
    """
    draft = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    try:
        with disk_sentences(target):
            # A version names files that were there before it: it must not be younger than the copies of these.
            for versions in source.glob(f"*.lance/{VERSIONS}"):
                shutil.copytree(versions, draft / versions.relative_to(source), ignore=shutil.ignore_patterns(UNNAMED))
            rest = shutil.ignore_patterns(VERSIONS, flat.LOCK, f"*{flat.DRAFT}-*", f"{BEGUN}*", UNNAMED)
            shutil.copytree(source, draft, ignore=rest, dirs_exist_ok=True)
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


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
        full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if getattr(error, "errno", None) in full or any(f"[Errno {number}]" in text for number in full):
            raise BankFull(f"The disk is full: {path} could not be written. Free some space and try again.") from error
        raise BankReadOnly(
            f"{path} cannot be changed ({text[:200]}). Make the folder writable and try again."
        ) from error
