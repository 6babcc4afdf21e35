"""A bank as a file and back: nothing is lost, and nothing that is not a whole bank is believed."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from memrl_core import records
from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.storage import connecting
from memrl_core.bank.storage.schema import FORMAT
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.exchange import archive
from memrl_core.exchange.archive import MANIFEST, bank_bytes, read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in, read_any
from memrl_core.records import EventKind, LedgerEvent, Reason, StepTrace
from tests.builders import DIMENSION, a_bank, a_run, a_step, an_agent
from tests.small_banks import give_reward

RECORDS = [found for found in vars(records).values() if isinstance(found, type) and is_dataclass(found)]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """Steps of an agent, a person's rewards, a credit, a note, other settings, a fork that went on, and a map."""
    folder = tmp_path_factory.mktemp("banks")
    agent = an_agent(folder / "bank", delta=0.0)
    made = agent.bank
    traces = list(agent.run(sample_tasks("household-train")[:7]))
    last = traces[-1]
    credited = last.reward.credited
    given_reward = give_reward(made, "r", last.step, last.id, credited, 0.25, "Ada", "half right")
    made.write.ratings.revoke(given_reward.id, "Ada")
    give_reward(made, "r", last.step, last.id, credited, -0.125, "Bob")
    made.write.credits.assign("r", last.step, last.id, {credited[0]: 0.75}, "Ada", "tried without it")
    made.write.notes.pin("r", 2, "why?", "Ada", credited[:1], a=credited[0], ask="drop")
    made.write.change_settings("r", {**made.settings("r"), "alpha": 0.7}, 8)
    MapLayout(made).places()
    made.write.start_run(
        replace(a_run("fork", base="r", base_step=4, alpha=0.9), embedder=made.embedder.name, first_step=5)
    )
    step, vectors = a_step(5, credited=("r-0001",), run="fork")
    wide = np.zeros(made.embedder.dimension, dtype=np.float32)
    wide[:DIMENSION] = vectors["fork-0005"]
    made.write.commit_step(replace(step, embed=None), {"fork-0005": wide})
    return made


@pytest.fixture(scope="module")
def written(bank: MemoryBank) -> dict[str, bytes]:
    return {kind: bank_bytes(bank, kind) for kind in ("zip", "jsonl", "parquet")}


@pytest.fixture
def file(written: dict[str, bytes], tmp_path: Path) -> Callable[[str], Path]:
    def placed(kind: str) -> Path:
        target = tmp_path / f"bank.{kind}"
        target.write_bytes(written[kind])
        return target

    return placed


def assert_same(one: MemoryBank, two: MemoryBank) -> None:
    assert two.memories() == one.memories()
    for memory_id in one.memory_ids():
        assert two.embedding(memory_id).tobytes() == one.embedding(memory_id).tobytes()
    assert two.events() == one.events()
    assert two.runs() == one.runs()
    for info in one.runs():
        assert two.traces(info.id) == one.traces(info.id)
        assert two.utilities(info.id) == one.utilities(info.id)
        for row in one.steps.rows(info.id):
            assert two.utilities(info.id, row.step - 1) == one.utilities(info.id, row.step - 1)
    here, there = one.layouts.newest(), two.layouts.newest()
    assert (here is None) == (there is None)
    if here and there:
        assert (there.method, there.coordinates, there.fitted) == (here.method, here.coordinates, here.fitted)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_bank(path)
    assert "Nothing was imported" in str(caught.value)
    return str(caught.value)


# --- round trips ------------------------------------------------------------------------------------------------------


def test_a_bank_comes_back_bit_for_bit(bank: MemoryBank, file: Callable[[str], Path], tmp_path: Path) -> None:
    bring_in(read_bank(file("zip")), str(tmp_path / "again"))
    assert_same(bank, MemoryBank.open(str(tmp_path / "again")))


def test_json_lines_come_back_bit_for_bit(bank: MemoryBank, file: Callable[[str], Path], tmp_path: Path) -> None:
    assert bring_in(read_any(file("jsonl")), str(tmp_path / "again")).steps == 8
    assert_same(bank, MemoryBank.open(str(tmp_path / "again")))
    assert all(finding.ok for finding in check(str(tmp_path / "again")))


def test_parquet_brings_the_memories_and_their_q_in_each_run(
    bank: MemoryBank, file: Callable[[str], Path], tmp_path: Path
) -> None:
    arrival = bring_in(read_any(file("parquet")), str(tmp_path / "again"))
    again = MemoryBank.open(str(tmp_path / "again"))
    assert again.memories() == bank.memories()
    for memory_id in bank.memory_ids():
        assert again.embedding(memory_id).tobytes() == bank.embedding(memory_id).tobytes()
    assert [info.id for info in again.runs()] == [info.id for info in bank.runs()]
    for info in bank.runs():
        assert again.utilities(info.id) == bank.utilities(info.id)
        assert again.steps.rows(info.id) == []
    here, there = bank.layouts.newest(), again.layouts.newest()
    assert (there.method, there.coordinates, there.fitted) == (here.method, here.coordinates, here.fitted)
    assert any("steps" in lack for lack in arrival.account.lacks)
    assert all(finding.ok for finding in check(again.uri))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_export_that_was_brought_in_before_changes_nothing(
    file: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    bring_in(read_any(file(kind)), str(tmp_path / "again"))
    facts = MemoryBank.open(str(tmp_path / "again")).facts
    again = bring_in(read_any(file(kind)), str(tmp_path / "again"))
    assert (again.memories, again.steps, again.events) == (0, 0, 0)
    assert MemoryBank.open(str(tmp_path / "again")).facts == facts


LINES: tuple[tuple[Callable[[list[bytes]], Any], str], ...] = (
    (lambda lines: lines.pop(), "5 of 6 memories"),
    (lambda lines: lines.__delitem__(slice(1, 2)), "steps"),
    (lambda lines: lines.append(lines[-1]), "Line"),
    (lambda lines: lines.insert(3, b'{"other":{}}'), "Line 4"),
    (lambda lines: lines.insert(3, b'{"event":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "Line 4"),
    (lambda lines: lines.__setitem__(-1, lines[-1].replace(b'"step":', b'"step":' + b"9" * 1500)), "Line"),
    (lambda lines: lines.__setitem__(1, re.sub(rb'"step":\d+,', b'"step":%d,' % 2**40, lines[1], count=1)), "Line 2"),
    (lambda lines: lines.__setitem__(-1, re.sub(rb'"step":\d+,', b'"step":-7,', lines[-1], count=1)), "Line"),
    (lambda lines: [lines.__setitem__(n, re.sub(rb'"seq":\d+,', b'"seq":%d,' % 2**60, one)) for n, one in
                    enumerate(lines)], "Line"),
    (lambda lines: lines.__setitem__(0, lines[0].replace(b'"schema_version":1', b'"schema_version":7')), "version 7"),
    (lambda lines: lines.__setitem__(0, lines[0].replace(b'"dimension":', b'"dimension":1')), "changed"),
    (lambda lines: [lines.__setitem__(n, one.replace(b'"run_started"', b'"note_pinned"')) for n, one in
                    enumerate(lines)], "changed|never begins|whole"),
    (lambda lines: [lines.__setitem__(n, one.replace(b"r-0001", b"r-9999")) for n, one in enumerate(lines)
                    if one.startswith(b'{"memory"')], "whole|changed"),
)  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), LINES)
def test_json_lines_that_are_not_whole_are_refused(
    file: Callable[[str], Path], change: Callable[[list[bytes]], Any], sentence: str
) -> None:
    path = file("jsonl")
    lines = path.read_bytes().splitlines()
    lines[1:], memories = lines[1:], sum(line.startswith(b'{"memory"') for line in lines)
    change(lines)
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(InputError, match=sentence.replace("5 of 6", f"{memories - 1} of {memories}")) as caught:
        read_any(path)
    assert "Nothing was imported" in str(caught.value)


def test_a_parquet_file_that_is_cut_changed_or_too_large_is_refused(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file("parquet")
    table, whole = pq.read_table(path), path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged"):
        read_any(path)
    embedding = table.schema.get_field_index("embedding")
    for odd in (
        table.drop_columns(["believed"]),
        pa.concat_tables([table, table]),
        table.set_column(embedding, "embedding", pa.array([[0.0] * 3] * len(table), pa.list_(pa.float32(), 3))),
        table.set_column(0, "id", pa.array(range(len(table)))),
    ):
        pq.write_table(odd, path)
        with pytest.raises(InputError, match=r"damaged|whole"):
            read_any(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(InputError, match="memrl open"):
        read_any(path)
    path.write_bytes(whole)
    monkeypatch.setattr("memrl_core.exchange.exports.LARGEST", 1000)
    with pytest.raises(InputError, match="unpacks"):
        read_any(path)


def test_a_table_for_people_is_answered_with_what_can_be_imported(bank: MemoryBank, tmp_path: Path) -> None:
    write_bank(bank, tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"without vectors.*zip, JSON lines or Parquet"):
        read_any(tmp_path / "x.csv")


def test_an_unpacked_zip_is_the_bank(bank: MemoryBank, file: Callable[[str], Path], tmp_path: Path) -> None:
    with ZipFile(file("zip")) as packed:
        packed.extractall(tmp_path / "again")
        manifest = json.loads(packed.read(MANIFEST))
    (tmp_path / "again" / MANIFEST).unlink()
    assert_same(bank, MemoryBank.open(str(tmp_path / "again")))
    for name, described in manifest["files"].items():
        data = (tmp_path / "again" / name).read_bytes()
        assert (described["bytes"], described["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert (manifest["embedder"], manifest["dimension"]) == (bank.embedder.name, bank.embedder.dimension)


def test_a_bank_in_memory_can_be_written(tmp_path: Path) -> None:
    with MemoryBank.create("memory://", "hashing-8", DIMENSION) as bank:
        bank.write.start_run(a_run())
        bank.write.commit_step(*a_step(1))
        write_bank(bank, tmp_path / "x.zip")
        contents = read_bank(tmp_path / "x.zip")
        assert (list(contents.memories), len(contents.traces)) == (["r-0001"], 1)


def test_jsonl_holds_every_fact(bank: MemoryBank, file: Callable[[str], Path]) -> None:
    lines = [json.loads(line) for line in file("jsonl").read_text(encoding="utf-8").splitlines()]
    found: dict[str, list[Any]] = {"step": [], "event": [], "memory": []}
    for line in lines[1:]:
        for kind, values in line.items():
            found[kind].append(values)
    assert [TypeAdapter(LedgerEvent).validate_python(one) for one in found["event"]] == bank.events()
    traces = [trace for info in bank.runs() for trace in bank.traces(info.id)]
    assert [TypeAdapter(StepTrace).validate_python(one) for one in found["step"]] == traces
    vectors = {one["id"]: np.asarray(one["embedding"], dtype=np.float32).tobytes() for one in found["memory"]}
    assert vectors == {memory_id: bank.embedding(memory_id).tobytes() for memory_id in bank.memory_ids()}
    assert lines[0]["counts"] == {"memories": len(vectors), "steps": len(traces), "ledger": len(bank.events())}


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(st.text(max_size=30), st.text(max_size=30), st.none() | st.floats(-5, 5), st.integers(0, 7)),
        max_size=5,
    ),
    late=st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 1), st.sampled_from(["Ada", "Bob\n", "="])), max_size=3),
    alpha=st.floats(0.01, 1.0),
)
@example(steps=[("", "", -0.0, 0)], late=[], alpha=1.0)
def test_any_bank_survives_the_way_out_and_back(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, float | None, int]],
    late: list[tuple[int, float, str]],
    alpha: float,
) -> None:
    folder = tmp_path_factory.mktemp("b")
    bank = a_bank(folder / "bank", alpha=alpha)
    for number, (intent, experience, reward, seen) in enumerate(steps, start=1):
        credited = tuple(f"r-{n:04d}" for n in range(1, number) if seen & (1 << (n - 1)))
        trace, vectors = a_step(number, credited=credited, reward=reward)
        operation = replace(trace.write.operations[0], intent=intent, experience=experience, intent_key=intent)
        bank.write.commit_step(replace(trace, write=replace(trace.write, operations=(operation,))), vectors)
    for at, value, rater in late:
        if at < len(steps):
            row = bank.steps.rows("r")[at]
            give_reward(bank, "r", row.step, row.id, tuple(bank.memory_ids()[:at]), value, rater)
    write_bank(bank, folder / "x.zip")
    bring_in(read_bank(folder / "x.zip"), str(folder / "again"))
    assert_same(bank, MemoryBank.open(str(folder / "again")))
    shutil.rmtree(folder)


def test_a_vector_keeps_its_smallest_bits(tmp_path: Path) -> None:
    vector = np.array([1.0, -0.0, 1e-45, np.nextafter(np.float32(1e-4), np.float32(1)), 0, 0, 0, 0], dtype=np.float32)
    bank = a_bank(tmp_path / "bank")
    trace, _ = a_step(1)
    bank.write.commit_step(trace, {"r-0001": vector})
    write_bank(bank, tmp_path / "x.zip")
    assert read_bank(tmp_path / "x.zip").memories["r-0001"][1].tobytes() == vector.tobytes()


# --- writing ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_written_leaves_all_as_it_was(bank: MemoryBank, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.zip, \.jsonl, \.parquet, \.csv"):
        write_bank(bank, tmp_path / "x.xlsx")
    assert list(tmp_path.iterdir()) == []
    target = tmp_path / "x.csv"
    target.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_bank(bank, target)
    assert target.read_text() == "mine"
    write_bank(bank, target, overwrite=True)
    assert target.read_bytes() == bank_bytes(bank, "csv")


def test_a_file_that_cannot_be_finished_leaves_nothing(
    bank: MemoryBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MemoryBank, "traces", fails)
    with pytest.raises(Exception, match="disk"):
        write_bank(bank, tmp_path / "x.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_another_tool_can_read_the_parquet_file(bank: MemoryBank, file: Callable[[str], Path]) -> None:
    table = pq.read_table(file("parquet"))
    assert table["id"].to_pylist() == bank.memory_ids()
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), bank.embedder.dimension)
    assert {row["id"]: row["q"] for row in table.to_pylist() if row["q"] is not None} == {
        memory_id: utility.q for memory_id, utility in bank.utilities("fork").items()
    }


# --- zips that are refused --------------------------------------------------------------------------------------------

DATABASE = "bank.db"


def rezipped(source: Path, change: Callable[[ZipFile], None] | None = None, **members: bytes | None) -> Path:
    """A copy with some members replaced (None: left out; names without their suffix), and `change` done to it."""
    target = source.with_name("changed.zip")
    with ZipFile(source) as old, ZipFile(target, "w", ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = members.get(name.split(".")[0], old.read(name))
            if data is not None:
                new.writestr(name, data)
        if change:
            change(new)
    return target


def with_manifest(source: Path, **values: Any) -> Path:
    with ZipFile(source) as packed:
        manifest = json.loads(packed.read(MANIFEST))
    return rezipped(source, manifest=json.dumps({**manifest, **values}).encode())


def with_files(source: Path, **described: dict[str, Any]) -> Path:
    """A copy whose manifest describes these files as well."""
    with ZipFile(source) as packed:
        files = json.loads(packed.read(MANIFEST))["files"]
    return with_manifest(source, files={**files, **described})


def with_database(source: Path, *statements: str) -> Path:
    """A copy in whose database something was done, described by its manifest as if it belonged there."""
    path = source.with_name("spoiled.db")
    with ZipFile(source) as packed:
        path.write_bytes(packed.read(DATABASE))
        manifest = json.loads(packed.read(MANIFEST))
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    data = path.read_bytes()
    manifest["files"][DATABASE] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return rezipped(source, manifest=json.dumps(manifest).encode(), bank=data)


def test_a_zip_that_was_cut_short_is_refused(file: Callable[[str], Path]) -> None:
    path = file("zip")
    whole = path.read_bytes()
    for length in (0, 1, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_flipped_byte_is_refused(file: Callable[[str], Path]) -> None:
    path = file("zip")
    whole = path.read_bytes()
    with ZipFile(path) as packed:
        places = [member.header_offset + 60 for member in packed.infolist()]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        refusal(path)


def test_a_file_that_is_not_as_the_manifest_says_is_named(file: Callable[[str], Path]) -> None:
    path = file("zip")
    with ZipFile(path) as packed:
        data = packed.read(DATABASE)
    assert DATABASE in refusal(rezipped(path, bank=data[:-1] + bytes([data[-1] ^ 1])))
    assert DATABASE in refusal(rezipped(path, bank=data + b"x"))
    assert DATABASE in refusal(rezipped(path, bank=None))


@pytest.mark.parametrize("name", ["/etc/passwd", "../bank.db", "a/../../b", "..\\b", "C:\\b", "C:/b", "letter.txt"])
def test_a_member_that_the_manifest_does_not_name_is_refused(file: Callable[[str], Path], name: str) -> None:
    assert "does not hold what" in refusal(rezipped(file("zip"), lambda new: new.writestr(name, "x")))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(file: Callable[[str], Path]) -> None:
    refusal(rezipped(file("zip"), lambda new: new.writestr(DATABASE, "x")))


def test_a_link_in_the_zip_leads_nowhere(file: Callable[[str], Path]) -> None:
    link = ZipInfo("vectors/memories.lance/data/link.lance")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    words = b"../../secret"
    described = {"bytes": len(words), "sha256": hashlib.sha256(words).hexdigest()}
    path = with_files(file("zip"), **{link.filename: described})
    read_bank(rezipped(path.rename(path.with_name("named.zip")), lambda new: new.writestr(link, words)))


@pytest.mark.parametrize(
    "name",
    [
        "begun-x.json", "../bank.db", "/vectors/x", "vectors/../../x", "vectors/..\\x", "vectors/x",
        "vectors/other.lance/data/x.lance", "vectors/__manifest.lance/_versions/1.manifest",
        *(f"vectors/memories.lance/{inside}" for inside in (
            "x", "data/x", "data/../x.lance", "data/x/y.lance", "data/ü.lance", f"data/{'x' * 500}.lance",
            "_latest.manifest", "_versions/x.manifest", "_versions/1.manifest\n", "_refs/tags/a.json",
            "_refs/branches/a.json", "tree/a/_versions/1.manifest", "_indices/a/index.idx",
        )),
    ],
)  # fmt: skip
def test_a_manifest_that_names_other_places_is_refused(file: Callable[[str], Path], name: str) -> None:
    assert "two parts" in refusal(with_files(file("zip"), **{name: {"bytes": 1, "sha256": ""}}))


@pytest.mark.parametrize(
    "limits", [{"LARGEST": 1000}, {"RATIO_FROM": 2**20, "LARGEST_RATIO": 10}], ids=["size", "ratio"]
)
def test_a_zip_that_unpacks_to_too_much_is_refused(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    path, zeros = file("zip"), bytes(2**22)
    described = {"bytes": len(zeros), "sha256": hashlib.sha256(zeros).hexdigest()}
    bomb = with_files(rezipped(path, bank=zeros).rename(path.with_name("bomb.zip")), **{DATABASE: described})
    for name, value in limits.items():
        monkeypatch.setattr(archive, name, value)
    assert "more than a bank" in refusal(bomb)


def test_a_size_that_lies_is_refused(file: Callable[[str], Path]) -> None:
    path = file("zip")
    with ZipFile(path) as packed:
        described = json.loads(packed.read(MANIFEST))["files"][DATABASE]
    size = described["bytes"]
    for other in (-1, 0, 10, size - 1, size + 1, float(size), str(size), True, None, math.nan, math.inf, 10**4000):
        said = refusal(with_files(path, **{DATABASE: {**described, "bytes": other}}))
        assert "size that none can have" in said or (type(other) is int and 0 <= other < 2**63)


def test_a_size_below_nothing_makes_no_room_for_the_others(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, zeros = file("zip"), bytes(2**22)
    bomb = {"bytes": len(zeros), "sha256": hashlib.sha256(zeros).hexdigest()}
    with ZipFile(path) as packed:
        files = json.loads(packed.read(MANIFEST))["files"]
        other = next(name for name in files if name != DATABASE)
    hollow = {
        "bytes": -len(zeros) - sum(one["bytes"] for one in files.values()),
        "sha256": hashlib.sha256().hexdigest(),
    }
    source = with_files(path, **{DATABASE: bomb, other: hollow}).rename(path.with_name("hollow.zip"))
    monkeypatch.setattr(archive, "LARGEST", 2**20)
    monkeypatch.setattr(archive, "_copied", lambda *_: pytest.fail("something was unpacked"))
    refusal(rezipped(source, bank=zeros))


def test_members_that_claim_to_be_packed_large_do_not_raise_the_limit(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, zeros = file("zip"), bytes(2**22)
    described = {"bytes": len(zeros), "sha256": hashlib.sha256(zeros).hexdigest()}
    bomb = with_files(rezipped(path, bank=zeros).rename(path.with_name("bomb.zip")), **{DATABASE: described})
    whole = bytearray(bomb.read_bytes())
    with ZipFile(bomb) as packed:
        at = whole.index(DATABASE.encode(), packed.start_dir) - 46
    whole[at + 20 : at + 24] = (2**31).to_bytes(4, "little")
    bomb.write_bytes(whole)
    monkeypatch.setattr(archive, "RATIO_FROM", 2**20)
    monkeypatch.setattr(archive, "LARGEST_RATIO", 10)
    assert "more than a bank" in refusal(bomb)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"version": FORMAT + 1}, "Update the program"),
        ({"version": FORMAT - 1}, "format 1"),
        ({"version": str(FORMAT)}, ""),
        ({"format": "other"}, "not written by this program"),
        ({"files": {}}, "two parts"),
        ({"files": None}, ""),
        ({"files": {"bank.db": {}}}, ""),
        ({"files": ["bank.db"]}, ""),
        ({"files": "bank.db"}, ""),
        ({"version": 10**4000}, "Update the program"),
        ({"version": True}, ""),
    ],
    ids=str,
)
def test_a_manifest_that_cannot_be_is_refused(file: Callable[[str], Path], values: dict[str, Any], what: str) -> None:
    assert what in refusal(with_manifest(file("zip"), **values))


@pytest.mark.parametrize("manifest", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"{}", b"[" * 10_000])
def test_a_manifest_that_is_no_json_object_is_refused(file: Callable[[str], Path], manifest: bytes) -> None:
    refusal(rezipped(file("zip"), manifest=manifest))


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE steps SET trace = replace(trace, 'household', 'hausehold')", "not as it was written"),
        ("UPDATE q_values SET q = q + 1", "does not follow from the ledger"),
        ("DELETE FROM q_moves", "does not follow from the ledger"),
        ("UPDATE candidates SET q = 7", "not those of its record"),
        ("DELETE FROM meta", ""),
        ("DROP TABLE ledger", ""),
        ("CREATE TRIGGER extra AFTER INSERT ON ledger BEGIN DELETE FROM steps; END", "extra"),
        ("CREATE TABLE extra (a)", "extra"),
        ("CREATE INDEX extra ON ledger (hex(payload))", "extra"),
        ("DROP INDEX points_by_layout", "points_by_layout"),
        ("ALTER TABLE runs ADD COLUMN more TEXT CHECK (length(more) > 0)", "runs"),
        ("UPDATE meta SET value = '99' WHERE key = 'format'", "newer"),
    ],
)
def test_a_bank_that_is_not_whole_is_refused(file: Callable[[str], Path], statement: str, what: str) -> None:
    assert what in refusal(with_database(file("zip"), statement))


def test_a_check_that_takes_all_day_is_not_evaluated(file: Callable[[str], Path]) -> None:
    heavy = "CREATE TABLE heavy (a, CHECK (length(hex(zeroblob(a))) > 0))"
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT 100000000 FROM n"
    path = with_database(file("zip"), "PRAGMA ignore_check_constraints = ON", heavy, f"INSERT INTO heavy {rows}")
    assert "table heavy" in refusal(path)


def test_a_bank_that_takes_more_work_than_its_size_needs_is_refused(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file("zip")
    read_bank(path)
    for name, value in {"WORK": 0, "WORK_PER_BYTE": 0, "WORK_AT_ONCE": 10}.items():
        monkeypatch.setattr(connecting, name, value)
    assert "more work" in refusal(path)


def test_an_import_is_stopped_wherever_it_is(file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = file("zip")
    monkeypatch.setattr(connecting, "WORK_AT_ONCE", 10)
    asked = 0

    def counted(until: float) -> Callable[[], bool]:
        nonlocal asked
        asked = 0

        def cancelled() -> bool:
            nonlocal asked
            asked += 1
            return asked > until

        return cancelled

    read_bank(path, counted(math.inf))
    assert asked > 100
    for until in (0, 3, asked // 3, asked // 2, asked - 5):
        with pytest.raises(InputError, match=r"was stopped\. Nothing was imported"):
            read_bank(path, counted(until))


@pytest.mark.parametrize("data", [b"", b"id,intent\n", b"\x89PNG", b"[1, 2]", "ä".encode()])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    refusal(tmp_path / "x.zip")


# --- the page about the format ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [*RECORDS, EventKind, Reason], ids=lambda record: record.__name__)
def test_the_page_about_the_format_names_every_field_kind_of_event_and_reason(record: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    names = record if issubclass(record, Enum) else [field.name for field in fields(record)]
    assert [name for name in names if f"`{name}`" not in page] == []
