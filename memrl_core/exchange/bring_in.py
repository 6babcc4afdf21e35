"""What was read of a file into a bank, new or there already: all of it, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.bank.storage.addresses import is_local, plain
from memrl_core.bank.storage.places import is_bank
from memrl_core.errors import BankMissing, InputError
from memrl_core.exchange.archive import is_archive, read_bank
from memrl_core.exchange.contents import NOTHING, Account, Contents, Places, Skipped
from memrl_core.exchange.naming import Arriving
from memrl_core.exchange.official.reader import is_official, read_official
from memrl_core.exchange.whole_files import drafted_folder
from memrl_core.records import EventKind

UNCHANGED = "All of it was there already: nothing was changed."
ROLES_STAY = "a bank that holds something keeps its own roles"


@dataclass(frozen=True, slots=True)
class Arrival:
    """What an import did. `runs` are the runs, by their names in the bank at `uri`, to which anything came.

    `memories`, `steps` and `events` say how many were new. `renamed_memories` and `renamed_runs` map the name in the
    file to the one in the bank, where the bank had something else of that name.
    """

    account: Account
    uri: str
    runs: tuple[str, ...] = ()
    memories: int = 0
    steps: int = 0
    events: int = 0
    renamed_memories: Mapping[str, str] = field(default_factory=dict)
    renamed_runs: Mapping[str, str] = field(default_factory=dict)


def read_any(path: Path) -> Contents:
    """What can be imported, known by its content: a bank's zip, or a checkpoint, trace or run of the official code.

    Raises `InputError`, with what can be imported, for anything else; nothing is changed.
    """
    if path.is_file() and is_archive(path):
        return read_bank(path)
    if path.is_dir() and is_bank(path):
        raise InputError(f"{path.name} is a bank itself. {NOTHING} Open it instead.")
    if is_official(path):
        return read_official(path)
    what = "is not something that can be imported" if path.exists() else "is not there"
    raise InputError(
        f"{path.name} {what}. {NOTHING} Choose a bank that was exported here as a zip, or a checkpoint folder, a trace "
        "or a run of the official MemRL code."
    )


def bring_in(contents: Contents, uri: str, by: str = "") -> Arrival:
    """Take `contents` into the bank at `uri`, which is made when nothing is there.

    Importing the same again changes nothing. A bank that is there must hold vectors of the same embedder; what it has
    under the same name with other content stays, and the newcomer is renamed everywhere it is mentioned. No embedder
    has to be installed. The roles of people are taken over by an empty bank only: nobody gets a role by an import.
    Into a bank that holds something, `by`, if a person is named, must be allowed to manage it. Raises `InputError` for
    contents that do not fit, `NotAllowed`, and what opening and writing a bank raises.
    """
    uri = plain(uri)
    if not is_local(uri):
        return _into_address(contents, uri, by)
    path = Path(uri)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        with MemoryBank.open(uri) as bank:
            return _into(bank, contents, uri, by)
    return _into_new_folder(contents, path.absolute(), uri)


def _into_new_folder(contents: Contents, path: Path, uri: str) -> Arrival:
    with (
        drafted_folder(path, NOTHING) as draft,
        MemoryBank.create(str(draft), contents.embedder, contents.dimension, contents.digest) as bank,
    ):
        return _into(bank, contents, uri)


def _into_address(contents: Contents, uri: str, by: str) -> Arrival:
    try:
        with MemoryBank.open(uri) as bank:
            return _into(bank, contents, uri, by)
    except BankMissing:
        pass
    bank = MemoryBank.create(uri, contents.embedder, contents.dimension, contents.digest)
    try:
        with bank:
            return _into(bank, contents, uri)
    except BaseException:
        bank.discard()
        raise


def _into(bank: MemoryBank, contents: Contents, uri: str, by: str = "") -> Arrival:
    here = bank.embedder
    if here.is_another(contents.embedder, contents.dimension, contents.digest):
        weights = "" if (here.name, here.dimension) != (contents.embedder, contents.dimension) else ", by other weights"
        raise InputError(
            f"The file holds {contents.dimension:,}-dimensional vectors made by {contents.embedder[:80]}; the bank at "
            f"{uri} holds {here.dimension:,}-dimensional vectors made by {here.name}{weights}. Nothing was imported; "
            "import it as a new bank."
        )
    with bank.alone():
        if by and bank.facts:
            bank.people.must_be(by, Role.MANAGE)
        arriving = Arriving(contents, bank)
        names = arriving.names()
        named = {names.memories.get(i, i): (names.memory(m), v) for i, (m, v) in contents.memories.items()}
        memories = {i: placed for i, placed in named.items() if i not in arriving.memories}
        events = [e for e in map(names.event, contents.events) if e.id not in arriving.events]
        left_out = [e for e in events if bank.facts > 0 and e.kind is EventKind.ROLE_ASSIGNED]
        events = events if not left_out else [e for e in events if e.kind is not EventKind.ROLE_ASSIGNED]
        traces = [t for t in map(names.trace, contents.traces) if t.id not in arriving.steps]
        account = contents.account
        if left_out:
            roles = Skipped(f"{len(left_out):,} roles of people", ROLES_STAY)
            account = replace(account, skipped=(*account.skipped, roles))
        if memories or events or traces:
            bank.adopt(memories, events, traces)
        else:
            account = replace(account, read=(*account.read, UNCHANGED))
        # Two maps have no common directions: a bank that has its own map places the newcomers in it.
        if contents.places is not None and not arriving.memories and bank.layouts.newest() is None:
            _lay_out(bank, contents.places)
    return Arrival(
        account,
        uri,
        tuple(dict.fromkeys([*(event.run for event in events if event.run), *(trace.run for trace in traces)])),
        len(memories),
        len(traces),
        len(events),
        names.memories,
        names.runs,
    )


def _lay_out(bank: MemoryBank, places: Places) -> None:
    fitted = {memory_id: places.coordinates[memory_id] for memory_id in places.fitted}
    layout = bank.layouts.save(places.method, fitted)
    bank.layouts.add(layout, {i: place for i, place in places.coordinates.items() if i not in fitted})
