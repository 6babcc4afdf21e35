"""A damaged bank is told and made whole: what was read stays as it was, what is derived comes back, nothing is lost."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import synthetic_bank
from memrl_core import cli
from memrl_core.bank import MemoryBank, exchanging, repair, store
from memrl_core.bank.consequences import consequences
from memrl_core.bank.integrity import check
from memrl_core.bank.repair_report import Repair
from memrl_core.bank.salvage import batches, opened
from memrl_core.bank.store import TABLES, _sentences
from memrl_core.errors import BankError, BankFull, BankMissing, BankReadOnly, InputError, NotABank
from tests.builders import a_bank, a_run, a_step, a_vector

ROOT = Path(__file__).parents[2]
STEPS = 3
SAID_ONCE = {
    "meta": {"value"},
    "memories": {"created", "task", "step", "outcome", "intent_key", "parents", "embedding"},
    "steps": {"created", "trace", "embedding"},
    "ledger": {"created", "seq", "known_at", "rater", "reason", "payload", "value", "memory_ids", "step_id", "kind"},
    "layouts": {"layout", "method", "x", "y", "fitted"},
}
"""What nothing else in a bank tells, so that a flipped bit in it may make sense."""
Rows = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module", autouse=True)
def without_a_journal() -> Iterator[None]:
    """Every append is a commit of LanceDB's, and closing a bank joins its files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FEW", 0)
        patch.setattr(store, "MANY_FRAGMENTS", 2)
        yield


@pytest.fixture(scope="module")
def whole(without_a_journal: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank with two runs, a person's reward, a note and a map, each append still in a file of its own."""
    path = tmp_path_factory.mktemp("whole") / "bank"
    bank = a_bank(path)
    for step in range(1, STEPS + 1):
        bank.commit_step(*a_step(step, credited=(f"r-{step - 1:04d}",) if step > 1 else ()))
    bank.give_reward("r", 3, bank.trace("r", 3).id, ("r-0002",), -1.0, "ann", "bad")
    bank.notes.pin("r", 2, "a note", "ann")
    bank.start_run(a_run("f", base="r", base_step=3))
    bank.commit_step(*a_step(4, credited=("r-0001",), run="f"))
    bank.layouts.save("PCA", {f"r-{step:04d}": (float(step), 2.0) for step in range(1, STEPS + 1)})
    bank.checkpoint()
    return path


@pytest.fixture
def bank(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "bank")


def rows_of(path: Path) -> Rows:
    """Every row of every table by its id, as text and bytes that can be compared. Raises what reading raises."""
    found: Rows = {}
    for name in TABLES:
        found[name] = {}
        for number, row in enumerate(row for part in batches(str(path), name, opened(str(path), name)) for row in part):
            key = str(row.get("id") or row.get("key") or f"{row.get('run')} {row.get('memory_id')} {number}")
            found[name][key] = {k: v.tobytes() if isinstance(v, np.ndarray) else v for k, v in row.items()}
    return found


def broken(path: Path) -> dict[str, str]:
    return {f.name: f.sentence for f in check(str(path)) if not f.ok and f.name != "disk"}


def data_files(path: Path, table: str) -> list[Path]:
    return sorted((path / f"{table}.lance" / "data").iterdir(), key=lambda file: file.stat().st_mtime_ns)


def newest_manifest(path: Path, table: str) -> Path:
    return min((path / f"{table}.lance" / "_versions").glob("*.manifest"))


@dataclass(frozen=True)
class Damage:
    file: Path
    how: str


def damaged(path: Path, seed: int) -> Damage:
    """Damage one file that the seed decides."""
    rng = random.Random(seed)
    file = rng.choice(sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")))
    how = rng.choice(["flip", "flip", "flips", "zeros", "cut", "delete"])
    data = bytearray(file.read_bytes())
    place = rng.randrange(len(data))
    if how == "delete":
        file.unlink()
        return Damage(file, how)
    if how == "cut":
        del data[place:]
    elif how == "zeros":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    else:
        for _ in range(8 if how == "flips" else 1):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return Damage(file, how)


def changed_cells(before: Rows, after: Rows) -> Iterator[tuple[str, str]]:
    """Table and column of every cell that differs; of a row that is gone, the table and its id."""
    for name in TABLES:
        for key in before[name].keys() | after[name].keys():
            one, other = before[name].get(key), after[name].get(key)
            if one is None or other is None:
                yield name, key
            else:
                yield from ((name, column) for column in one if one[column] != other.get(column))


@pytest.mark.parametrize("seeds", [range(start, start + 10) for start in range(0, 40, 10)], ids=str)
def test_damage_that_changes_what_is_read_is_told(whole: Path, tmp_path: Path, seeds: range) -> None:
    before = rows_of(whole)
    for seed in seeds:
        path = shutil.copytree(whole, tmp_path / str(seed))
        damage = damaged(path, seed)
        if broken(path):
            continue
        unnoticed = {cell for cell in changed_cells(before, rows_of(path)) if cell[0] != "q_values"}
        assert all(column in SAID_ONCE[table] for table, column in unnoticed), (seed, damage, unnoticed)


@pytest.mark.parametrize("seeds", [range(100, 103), range(103, 106)], ids=str)
def test_whatever_is_damaged_the_repaired_bank_is_whole_and_holds_only_what_was_there(
    whole: Path, tmp_path: Path, seeds: range
) -> None:
    before = rows_of(whole)
    for seed in seeds:
        path = shutil.copytree(whole, tmp_path / str(seed))
        damage = damaged(path, seed)
        made = repair.repair(str(path), tmp_path / f"{seed}-repaired")
        if not made.target:
            assert broken(path) == {}
            continue
        assert broken(Path(made.target)) == {}, (seed, damage)
        after = rows_of(Path(made.target))
        for table in made.tables[:3]:
            same = [key for key, row in after[table.name].items() if before[table.name].get(key) == row]
            odd = {column for key, row in after[table.name].items() if (old := before[table.name].get(key))
                   for column in row if row[column] != old[column]}  # fmt: skip
            assert len(same) >= table.kept or odd <= SAID_ONCE[table.name], (seed, damage, table, odd)


def test_a_whole_bank_is_not_touched(bank: Path) -> None:
    before = sorted(bank.parent.rglob("*"))
    assert repair.repair(str(bank)) == Repair(str(bank), "", "", (), (), ())
    assert sorted(bank.parent.rglob("*")) == before


def utilities(path: Path) -> dict[str, Any]:
    with MemoryBank.open(str(path)) as opened_bank:
        return {info.id: opened_bank.utilities(info.id) for info in opened_bank.runs()}


@pytest.mark.parametrize("number", [1, 3])
def test_events_of_a_step_that_were_lost_are_told_again_and_q_is_the_same(bank: Path, number: int) -> None:
    q = utilities(bank)
    data_files(bank, "ledger")[number].unlink()
    made = repair.repair(str(bank))
    assert utilities(Path(made.target)) == q
    assert (made.tables[2].lost, made.tables[2].rebuilt) in ((1, 1), (2, 2))


def test_a_step_whose_record_is_lost_stays_ended_and_q_is_the_same(bank: Path) -> None:
    q = utilities(bank)
    data_files(bank, "steps")[1].unlink()
    made = repair.repair(str(bank))
    assert utilities(Path(made.target)) == q
    with MemoryBank.open(made.target) as repaired:
        assert "its record was damaged" in repaired.trace("r", 2).lacks[0]
    assert "Of step 2 of run r it is still known that it ended and what it earned." in made.told


def test_of_many_lost_records_one_sentence_tells(bank: Path) -> None:
    for file in data_files(bank, "steps"):
        file.unlink()
    told = [one for one in repair.repair(str(bank)).told if "still known" in one]
    assert told == [
        "Of step 4 of run f it is still known that it ended and what it earned.",
        "Of steps 1 to 3 of run r it is still known that they ended and what they earned.",
    ]


def test_a_memory_that_is_lost_is_seen_by_no_run_and_known_to_be_lost(bank: Path) -> None:
    data_files(bank, "memories")[1].unlink()
    made = repair.repair(str(bank))
    with MemoryBank.open(made.target) as repaired:
        assert repaired.view("r").ids == ["r-0001", "r-0003"]
    aside = (Path(made.target) / repair.SET_ASIDE / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"]["memory_ids"] for line in aside] == [["r-0002"]]
    assert any("lost since a repair: 1 memories (r-0002)" in f.sentence for f in check(made.target))


def test_a_table_that_went_back_to_an_older_version_is_told_and_made_up_for(bank: Path) -> None:
    q = utilities(bank)
    newest_manifest(bank, "steps").unlink()
    assert "newest 1 versions of the table are gone" in broken(bank)["table steps"]
    assert utilities(Path(repair.repair(str(bank)).target)) == q


def test_a_manifest_that_cannot_be_read_gives_way_to_the_one_before(bank: Path) -> None:
    newest_manifest(bank, "memories").write_bytes(b"no manifest")
    made = repair.repair(str(bank))
    assert any("older versions" in sentence for sentence in made.told)
    assert (made.tables[0].kept, made.tables[0].lost) == (STEPS, None)


def test_rows_of_a_joined_file_that_is_damaged_come_from_older_versions(bank: Path) -> None:
    before = rows_of(bank)["ledger"]
    opened(str(bank), "ledger").optimize()
    data_files(bank, "ledger")[-1].unlink()
    made = repair.repair(str(bank))
    after = rows_of(Path(made.target))["ledger"]
    assert after == before


def rewritten(path: Path, table: str, row_id: str, **cells: Any) -> None:
    """Put other cells into a row, as a flipped bit would."""
    with MemoryBank.open(str(path)) as bank:
        rows = bank._store.read(table).to_pylist()
        bank._store.overwrite(table, [{**row, **cells} if row["id"] == row_id else row for row in rows])


def test_a_reward_that_differs_from_its_step_is_told_and_put_right(bank: Path) -> None:
    q = utilities(bank)
    event = next(i for i, row in rows_of(bank)["ledger"].items() if row["value"] == 1.0 and row["step"] == 2)
    rewritten(bank, "ledger", event, value=0.5)
    assert "is another in the ledger" in broken(bank)["ledger and steps"]
    assert utilities(Path(repair.repair(str(bank)).target)) == q


def test_a_memory_with_another_text_than_its_step_wrote_is_told_and_put_right(bank: Path) -> None:
    rewritten(bank, "memories", "r-0002", experience="did iT")
    assert "r-0002" in broken(bank)["texts"]
    made = repair.repair(str(bank))
    with MemoryBank.open(made.target) as repaired:
        assert repaired.memory("r-0002").experience == "did it"
    aside = json.loads((Path(made.target) / repair.SET_ASIDE / "memories.jsonl").read_text())
    assert aside["row"]["experience"] == "did iT"


def test_a_memory_whose_embedding_is_not_finite_is_set_aside_with_its_text(bank: Path) -> None:
    rewritten(bank, "memories", "r-0003", embedding=np.full(8, np.inf, np.float32))
    made = repair.repair(str(bank))
    aside = json.loads((Path(made.target) / repair.SET_ASIDE / "memories.jsonl").read_text())
    assert (aside["row"]["experience"], aside["row"]["embedding"][0]) == ("did it", "inf")
    assert broken(Path(made.target)) == {}


@pytest.mark.parametrize("cells", [{"payload": "{"}, {"kind": "unheard_of"}, {"value": float("nan")}, {"source": "x"}])
def test_an_event_that_cannot_be_is_told_and_set_aside(bank: Path, cells: dict[str, Any]) -> None:
    event = next(i for i, row in rows_of(bank)["ledger"].items() if row["rater"] == "ann")
    rewritten(bank, "ledger", event, **cells)
    assert event in broken(bank)["events"]
    made = repair.repair(str(bank))
    assert broken(Path(made.target)) == {}
    assert made.tables[2].set_aside == 1


def test_of_two_rows_under_one_id_the_first_is_kept(bank: Path) -> None:
    with MemoryBank.open(str(bank)) as opened_bank:
        row = opened_bank._store.find("memories", "id", "r-0001").to_pylist()[0]
        opened_bank._store.append("memories", [{**row, "intent": "another", "embedding": a_vector(9)}])
    assert "r-0001 (memories)" in broken(bank)["ids"]
    made = repair.repair(str(bank))
    with MemoryBank.open(made.target) as repaired:
        assert repaired.memory("r-0001").intent == "task 1"


def test_the_description_is_found_again_in_embeddings_and_steps(bank: Path) -> None:
    shutil.rmtree(bank / "meta.lance")
    made = repair.repair(str(bank))
    with MemoryBank.open(made.target) as repaired:
        assert (repaired.embedder.name, repaired.embedder.dimension) == ("hashing-8", 8)


def test_an_embedder_that_nothing_names_is_asked_for(bank: Path) -> None:
    for name in ("meta", "steps", "ledger"):
        shutil.rmtree(bank / f"{name}.lance")
    with pytest.raises(InputError, match="--embedder"):
        repair.repair(str(bank))
    assert not list(bank.parent.glob(".bank*"))
    assert MemoryBank.open(repair.repair(str(bank), embedder="mine").target).embedder.name == "mine"


def test_a_map_that_cannot_be_read_is_left_out(bank: Path) -> None:
    data_files(bank, "layouts")[0].write_bytes(b"no map")
    made = repair.repair(str(bank))
    with MemoryBank.open(made.target) as repaired:
        assert repaired.layouts.newest() is None


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indexed") / "bank"
    with synthetic_bank(500, dimension=32) as bank:
        bank.index()
        bank.close()
        shutil.copytree(bank.uri, path)
    return path


def spoil_index(path: Path) -> None:
    for file in (path / "memories.lance" / "_indices").rglob("*.idx"):
        file.write_bytes(bytes(byte ^ 0x5A for byte in file.read_bytes()))


def test_an_index_that_finds_its_memories_is_said_to(indexed: Path) -> None:
    said = {f.name: f.sentence for f in check(str(indexed)) if f.ok}
    assert said["index"] == "The index finds memories by their own embeddings."


def test_an_index_that_cannot_be_searched_is_told_and_made_anew_by_a_repair(indexed: Path, tmp_path: Path) -> None:
    path = shutil.copytree(indexed, tmp_path / "bank")
    spoil_index(path)
    assert list(broken(path)) == ["index"]
    made = repair.repair(str(path))
    assert "The index of the memories was made anew." in made.told
    with MemoryBank.open(made.target, search="indexed") as repaired:
        assert repaired.by_index and len(repaired.memory_ids()) == 500
    assert broken(Path(made.target)) == {}


def test_a_damaged_table_is_not_laid_on_the_index(indexed: Path, tmp_path: Path) -> None:
    path = shutil.copytree(indexed, tmp_path / "bank")
    for file in data_files(path, "memories"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert "index" not in broken(path) and "table memories" in broken(path)


def test_an_index_that_cannot_be_searched_is_made_anew_by_the_command(indexed: Path, tmp_path: Path) -> None:
    path = shutil.copytree(indexed, tmp_path / "bank")
    spoil_index(path)
    assert CliRunner().invoke(cli.app, ["index", str(path)]).exit_code == 0
    assert broken(path) == {}


def test_the_beginning_of_a_run_that_is_lost_is_made_of_its_first_step(bank: Path) -> None:
    data_files(bank, "ledger")[0].unlink()
    made = repair.repair(str(bank))
    with MemoryBank.open(made.target) as repaired:
        assert repaired.run("r").policy == "memrl"
        assert repaired.view("r").ids == [f"r-{step:04d}" for step in range(1, STEPS + 1)]
    assert any("beginning of run r was lost" in sentence for sentence in made.told)


def test_what_a_step_leaves_in_the_ledger_is_what_its_record_says(bank: Path) -> None:
    with MemoryBank.open(str(bank)) as opened_bank:
        trace = opened_bank.trace("r", 2)
        told = [(e.id, e.kind, e.memory_ids, e.value) for e in opened_bank.events("r") if e.id.startswith(trace.id)]
    assert [(one.id, one.kind, one.memory_ids, one.value) for one in consequences(trace)] == told


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_copy_beside_takes_a_free_name_and_the_damaged_bank_stays(bank: Path) -> None:
    data_files(bank, "layouts")[0].unlink()
    before = {file: file.read_bytes() for file in bank.rglob("*") if file.is_file()}
    first, second = repair.repair(str(bank)), repair.repair(str(bank))
    assert (Path(first.target).name, Path(second.target).name) == ("bank-repaired", "bank-repaired-2")
    assert {file: file.read_bytes() for file in bank.rglob("*") if file.is_file()} == before


def test_a_target_that_is_there_is_left_alone(bank: Path, tmp_path: Path) -> None:
    data_files(bank, "layouts")[0].unlink()
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="already stored"):
        repair.repair(str(bank), tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_no_bank_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BankMissing, match="There is no bank"):
        repair.repair(str(tmp_path / "nothing"))
    with pytest.raises(NotABank, match="nothing of a bank"):
        repair.repair(str(tmp_path))


def test_in_place_the_damaged_bank_stays_as_a_copy(bank: Path) -> None:
    data_files(bank, "layouts")[0].unlink()
    damage = broken(bank)
    made = repair.repair(str(bank), in_place=True)
    assert broken(bank) == {}
    assert Path(made.copy).name == "bank-before-repair-1"
    assert broken(Path(made.copy)).keys() == damage.keys()
    assert sorted(path.name for path in bank.parent.iterdir()) == ["bank", "bank-before-repair-1"]


def test_in_place_waits_for_no_writer(bank: Path) -> None:
    data_files(bank, "layouts")[0].unlink()
    with repair._alone(bank, True), pytest.raises(BankError, match="Another process is writing"):
        repair.repair(str(bank), in_place=True)


class Killed(BaseException):
    """As sudden as a kill: nothing in the program catches it."""


def killed(*paths: Path) -> None:
    raise Killed


@pytest.mark.parametrize("moment", ["the copy", "the exchange"])
def test_killed_at_any_moment_the_old_bank_is_at_its_name(
    bank: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    data_files(bank, "layouts")[0].unlink()
    before = {file: file.read_bytes() for file in bank.rglob("*.lance/**/*") if file.is_file()}
    if moment == "the copy":
        monkeypatch.setattr(Path, "rename", killed)
    else:
        monkeypatch.setattr(repair, "exchange", killed)
    with pytest.raises(Killed):
        repair.repair(str(bank), in_place=True)
    assert {file: file.read_bytes() for file in bank.rglob("*.lance/**/*") if file.is_file()} == before
    assert bank.with_name("bank-before-repair-1").exists() == (moment == "the exchange")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two names at once")
def test_neither_name_is_ever_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.setattr(Path, "rename", killed)
    exchanging.exchange(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("at_once", [True, False])
def test_two_folders_change_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    if not at_once:
        monkeypatch.setattr(exchanging, "_exchanged_at_once", lambda one, other: False)
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchanging.exchange(tmp_path / "a", tmp_path / "b")
    assert [sorted(os.listdir(tmp_path / name)) for name in "ab"] == [["b"], ["a"]]


def test_what_an_earlier_repair_set_aside_stays(bank: Path) -> None:
    (bank / repair.SET_ASIDE).mkdir()
    (bank / repair.SET_ASIDE / "memories.jsonl").write_text("earlier")
    data_files(bank, "memories")[1].unlink()
    target = Path(repair.repair(str(bank)).target)
    assert (target / repair.SET_ASIDE / "memories.jsonl").read_text() == "earlier"
    assert (target / "set-aside-2" / "ledger.jsonl").is_file()


# --- the command, and what the disk refuses ---------------------------------------------------------------------------


def memrl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    monkeypatch.setattr(sys, "argv", ["memrl", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    return ended.value.code, " ".join((said.out + said.err).split())


def test_the_command_reports_what_became_of_each_table(
    bank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_files(bank, "ledger")[2].unlink()
    code, said = memrl(monkeypatch, capsys, "repair", str(bank))
    assert (code, "A whole bank is at" in said) == (0, True)
    assert "| ledger | 10 | 10 | 0 | 2 | 2 |" in (bank.with_name("bank-repaired") / repair.REPORT).read_text()


def test_the_command_says_that_there_is_nothing_to_repair(
    bank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = memrl(monkeypatch, capsys, "repair", str(bank))
    assert (code, "Nothing to repair" in said) == (0, True)
    assert memrl(monkeypatch, capsys, "repair", str(bank / "nowhere"))[0] == 2


@pytest.mark.parametrize(
    ("number", "kind"),
    [(122, BankFull), (28, BankFull), (27, BankFull), (30, BankReadOnly), (13, BankReadOnly), (1, BankReadOnly)],
)
@pytest.mark.parametrize("from_lance", [True, False])
def test_what_the_system_refuses_is_a_sentence(number: int, kind: type[BankError], from_lance: bool) -> None:
    told = f"LanceError(IO): {os.strerror(number)} (os error {number})"
    error = RuntimeError(told) if from_lance else OSError(number, os.strerror(number))
    with pytest.raises(kind), _sentences("somewhere", "the bank"):
        raise error


NO_ROOM = """
import resource, signal, sys
sys.path.insert(0, {root!r})
from memrl_core.bank import MemoryBank
from memrl_core.bank.repair import repair
from memrl_core.errors import BankFull
bank = MemoryBank.open({whole!r})
rows = bank._store.read("q_values").to_pylist()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
for attempt in (
    lambda: MemoryBank.create({new!r}, "hashing-8", 8),
    lambda: bank._store.overwrite("q_values", rows),
    lambda: repair({damaged!r}),
):
    try:
        attempt()
    except BankFull as error:
        print(error)
"""


@pytest.mark.slow
def test_a_full_disk_is_said_by_a_new_bank_an_overwrite_and_a_repair(bank: Path, tmp_path: Path) -> None:
    odd = shutil.copytree(bank, tmp_path / "odd")
    data_files(odd, "layouts")[0].unlink()
    script = NO_ROOM.format(root=str(ROOT), whole=str(bank), new=str(tmp_path / "new"), damaged=str(odd))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.stdout.count("The disk is full") == 3, done.stderr
    assert broken(bank) == {}
    assert not (tmp_path / "odd-repaired").exists()
