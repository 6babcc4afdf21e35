"""A bank as a file and back: nothing is lost, and nothing that is not a whole bank is believed."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import stat
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.exchange import archive, archive_limits, archive_read
from memrl_core.exchange.archive import bank_bytes, read_bank, write_bank
from memrl_core.exchange.archive_format import Header
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.contents import Contents
from memrl_core.records import (
    Candidate,
    Consulted,
    Decision,
    EmbedRecord,
    EventKind,
    GenerateRecord,
    LedgerEvent,
    Memory,
    MemoryOperation,
    MemorySpan,
    Message,
    NormaliserLine,
    Reason,
    Recalled,
    RecallRecord,
    Reply,
    RewardRecord,
    RunInfo,
    StepTrace,
    Term,
    Turn,
    TurnRecall,
    UpdateRecord,
    ValueChange,
    WriteRecord,
)
from tests.builders import DIMENSION, a_bank, a_run, a_step, an_agent

RECORDS = [
    Memory, RunInfo, LedgerEvent, StepTrace, EmbedRecord, Recalled, RecallRecord, Term, NormaliserLine, Candidate,
    Decision, Message, MemorySpan, Reply, Turn, GenerateRecord, RewardRecord, ValueChange, UpdateRecord,
    MemoryOperation, WriteRecord, TurnRecall, Consulted,
]  # fmt: skip
MEMBERS = ["run.json", "steps.jsonl", "ledger.jsonl", "memories.parquet"]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """Steps of an agent, a person's rewards, a credit, a note, other settings, a fork that went on, and a map."""
    folder = tmp_path_factory.mktemp("banks")
    agent = an_agent(folder / "bank", delta=0.0)
    made = agent.bank
    traces = list(agent.run(sample_tasks("household-train")[:7]))
    last = traces[-1]
    assert last.reward is not None
    credited = last.reward.credited
    given_reward = made.give_reward("r", last.step, last.id, credited, 0.25, "Ada", "half right")
    made.revoke_reward(given_reward.id, "Ada")
    made.give_reward("r", last.step, last.id, credited, -0.125, "Bob")
    made.credits.assign("r", last.step, last.id, {credited[0]: 0.75}, "Ada", "tried without it")
    made.notes.pin("r", 2, "why?", "Ada", credited[:1], a=credited[0], ask="drop")
    made.change_settings("r", {**made.settings("r"), "alpha": 0.7}, 8)
    MapLayout(made).places()
    made.start_run(replace(a_run("fork", base="r", base_step=4, alpha=0.9), embedder=made.embedder.name, first_step=5))
    step, vectors = a_step(5, credited=("r-0001",), run="fork")
    wide = np.zeros(made.embedder.dimension, dtype=np.float32)
    wide[:DIMENSION] = vectors["fork-0005"]
    made.commit_step(replace(step, embed=None), {"fork-0005": wide})
    return made


@pytest.fixture
def file(bank: MemoryBank, tmp_path: Path) -> Callable[[str], Path]:
    def written(kind: str) -> Path:
        target = tmp_path / f"bank.{kind}"
        write_bank(bank, target)
        return target

    return written


def assert_same(one: MemoryBank, two: MemoryBank) -> None:
    assert two.memories() == one.memories()
    for memory_id in one.memory_ids():
        assert two.embedding(memory_id).tobytes() == one.embedding(memory_id).tobytes()
    assert two.events() == one.events()
    assert two.runs() == one.runs()
    for info in one.runs():
        assert two.traces(info.id) == one.traces(info.id)
        assert two.utilities(info.id) == one.utilities(info.id)
        for row in one.step_rows(info.id):
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


@pytest.mark.parametrize("kind", ["zip", "jsonl"])
def test_a_bank_comes_back_bit_for_bit(
    bank: MemoryBank, file: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    bring_in(read_bank(file(kind)), str(tmp_path / "again"))
    assert_same(bank, MemoryBank.open(str(tmp_path / "again")))


def test_the_table_of_utilities_holds_what_was_imported(
    bank: MemoryBank, file: Callable[[str], Path], tmp_path: Path
) -> None:
    bring_in(read_bank(file("zip")), str(tmp_path / "again"))
    rows = sqlite3.connect(tmp_path / "again" / "bank.db").execute(
        "SELECT run, memory_id, q, visits FROM q_values WHERE NOT away"
    )
    found = {(run, memory_id): (q, visits) for run, memory_id, q, visits in rows}
    assert found == {(info.id, i): (u.q, u.visits) for info in bank.runs() for i, u in bank.utilities(info.id).items()}


def test_a_parquet_file_keeps_every_memory_and_what_every_run_believed(
    bank: MemoryBank, file: Callable[[str], Path], tmp_path: Path
) -> None:
    contents = read_bank(file("parquet"))
    bring_in(contents, str(tmp_path / "again"))
    again = MemoryBank.open(str(tmp_path / "again"))
    assert again.memories() == bank.memories()
    for info in bank.runs():
        if bank.utilities(info.id):
            assert dict(again.utilities(f"{info.id}-memories")) == dict(bank.utilities(info.id))
    assert contents.account.lacks and not contents.account.skipped


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(st.text(max_size=30), st.text(max_size=30), st.none() | st.floats(-5, 5), st.integers(0, 7)),
        max_size=5,
    ),
    late=st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 1), st.sampled_from(["Ada", "Bob\n", "="])), max_size=3),
    alpha=st.floats(0.01, 1.0),
    kind=st.sampled_from(["zip", "jsonl"]),
)
def test_any_bank_survives_the_way_out_and_back(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, float | None, int]],
    late: list[tuple[int, float, str]],
    alpha: float,
    kind: str,
) -> None:
    folder = tmp_path_factory.mktemp("b")
    bank = a_bank(folder / "bank", alpha=alpha)
    for number, (intent, experience, reward, seen) in enumerate(steps, start=1):
        credited = tuple(f"r-{n:04d}" for n in range(1, number) if seen & (1 << (n - 1)))
        trace, vectors = a_step(number, credited=credited, reward=reward)
        assert trace.write is not None
        operation = replace(trace.write.operations[0], intent=intent, experience=experience, intent_key=intent)
        bank.commit_step(replace(trace, write=replace(trace.write, operations=(operation,))), vectors)
    for at, value, rater in late:
        if at < len(steps):
            row = bank.step_rows("r")[at]
            bank.give_reward("r", row.step, row.id, tuple(bank.memory_ids()[:at]), value, rater)
    write_bank(bank, folder / f"x.{kind}")
    bring_in(read_bank(folder / f"x.{kind}"), str(folder / "again"))
    assert_same(bank, MemoryBank.open(str(folder / "again")))
    shutil.rmtree(folder)


def test_a_vector_keeps_its_smallest_bits(tmp_path: Path) -> None:
    vector = np.array([1.0, -0.0, 1e-45, np.nextafter(np.float32(1e-4), np.float32(1)), 0, 0, 0, 0], dtype=np.float32)
    bank = a_bank(tmp_path / "bank")
    trace, _ = a_step(1)
    bank.commit_step(trace, {"r-0001": vector})
    for kind in ("zip", "jsonl", "parquet"):
        write_bank(bank, tmp_path / f"x.{kind}")
        assert read_bank(tmp_path / f"x.{kind}").memories["r-0001"][1].tobytes() == vector.tobytes()


# --- writing ----------------------------------------------------------------------------------------------------------


def test_the_progress_rises_to_one(bank: MemoryBank, tmp_path: Path) -> None:
    for kind in ("zip", "jsonl", "parquet", "csv"):
        seen: list[float] = []
        write_bank(bank, tmp_path / f"x.{kind}", on_progress=seen.append)
        assert seen == sorted(seen)
        assert seen[-1] == 1.0


def test_steps_are_read_in_parts_and_none_is_lost(
    bank: MemoryBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    read = MemoryBank.traces

    def noted(self: MemoryBank, run: str, steps: tuple[int, int] | None = None) -> list[StepTrace]:
        assert steps is not None, "all steps of a run were read at once"
        asked.append(steps)
        return read(self, run, steps)

    monkeypatch.setattr(archive, "AT_ONCE", 2)
    monkeypatch.setattr(MemoryBank, "traces", noted)
    write_bank(bank, tmp_path / "x.zip")
    assert len(asked) > len(bank.runs())
    told = {(trace.run, trace.step) for trace in read_bank(tmp_path / "x.zip").traces}
    assert told == {(info.id, row.step) for info in bank.runs() for row in bank.step_rows(info.id)}


def test_a_file_is_not_written_over_unless_that_is_asked_for(bank: MemoryBank, tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    target.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_bank(bank, target)
    assert target.read_text() == "mine"
    write_bank(bank, target, overwrite=True)
    assert target.read_bytes().startswith(b"\xef\xbb\xbf")


def test_an_unknown_suffix_is_answered_with_those_that_are_known(bank: MemoryBank, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.zip, \.jsonl, \.parquet, \.csv"):
        write_bank(bank, tmp_path / "x.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_finished_leaves_nothing(
    bank: MemoryBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MemoryBank, "traces", fails)
    with pytest.raises(Exception, match="The disk is full"):
        write_bank(bank, tmp_path / "x.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_for_a_download_are_the_file(bank: MemoryBank, tmp_path: Path) -> None:
    write_bank(bank, tmp_path / "x.csv")
    assert bank_bytes(bank, "csv") == (tmp_path / "x.csv").read_bytes()


def test_another_tool_can_read_the_parquet_file(bank: MemoryBank, file: Callable[[str], Path]) -> None:
    table = pq.read_table(file("parquet"))
    assert table["id"].to_pylist() == bank.memory_ids()
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), bank.embedder.dimension)
    assert {row["id"]: row["q"] for row in table.to_pylist() if row["q"] is not None} == {
        memory_id: utility.q for memory_id, utility in bank.utilities("fork").items()
    }


# --- zips that are refused --------------------------------------------------------------------------------------------


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


def with_header(source: Path, **values: Any) -> Path:
    with ZipFile(source) as archive:
        header = json.loads(archive.read("run.json"))
    return rezipped(source, run=json.dumps({**header, **values}).encode())


def test_a_zip_that_was_cut_short_is_refused(file: Callable[[str], Path]) -> None:
    path = file("zip")
    data = path.read_bytes()
    for length in (4, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        assert "damaged" in refusal(path)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_flipped_byte_is_refused(file: Callable[[str], Path], member: str) -> None:
    path = file("zip")
    with ZipFile(path) as archive:
        info = archive.getinfo(member)
    data = bytearray(path.read_bytes())
    data[data.index(member.encode(), info.header_offset) + info.compress_size // 2 + 40] ^= 0xFF
    path.write_bytes(data)
    assert "damaged" in refusal(path)


@pytest.mark.parametrize("missing", MEMBERS)
def test_a_missing_member_is_named(file: Callable[[str], Path], missing: str) -> None:
    assert f"no {missing}" in refusal(rezipped(file("zip"), None, **{missing.split(".")[0]: None}))


def test_a_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("holiday.jpg", b"...")
    assert "no run.json" in refusal(tmp_path / "photos.zip")


@pytest.mark.parametrize("name", ["/etc/passwd", "../run.json", "a/../../b", "..\\b", "C:\\b", "C:/b"])
def test_a_path_out_of_the_zip_is_refused(file: Callable[[str], Path], name: str) -> None:
    assert "points out of the zip" in refusal(rezipped(file("zip"), lambda new: new.writestr(name, b"")))


def test_a_link_in_the_zip_is_refused(file: Callable[[str], Path]) -> None:
    link = ZipInfo("memories")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "is a link" in refusal(rezipped(file("zip"), lambda new: new.writestr(link, ".")))


def test_other_members_are_passed_over_and_named(file: Callable[[str], Path]) -> None:
    def add(new: ZipFile) -> None:
        for number in range(30):
            new.writestr(f"extra/{number}.txt", b"hello")

    skipped = read_bank(rezipped(file("zip"), add)).account.skipped
    assert skipped[0].where == "extra/0.txt"
    assert skipped[-1].where == "10 more files"
    assert len(skipped) == 21


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(file: Callable[[str], Path]) -> None:
    assert "more than once" in refusal(rezipped(file("zip"), lambda new: new.writestr("run.json", b"{}")))


def test_another_packing_is_refused(file: Callable[[str], Path]) -> None:
    def pack(new: ZipFile) -> None:
        new.writestr("steps.jsonl", b"", compress_type=ZIP_BZIP2)

    assert "packed in a way" in refusal(rezipped(file("zip"), pack, steps=None))


def test_a_member_that_unfolds_to_hundreds_of_times_its_size_is_refused(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_limits, "RATIO_FROM", 1_000_000)
    assert "200 times its size" in refusal(rezipped(file("zip"), steps=b"\n" * 2_000_000))


def test_a_declared_size_beyond_the_limit_is_refused_before_reading(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file("zip")
    monkeypatch.setattr(archive_limits, "LARGEST", 1000)
    monkeypatch.setattr(archive_read, "_lines", None)
    assert "Import a smaller bank" in refusal(path)


def test_what_is_really_unfolded_is_counted(file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = file("zip")
    monkeypatch.setattr(archive_read, "must_not_swell", lambda *_: None)
    monkeypatch.setattr(archive_limits, "LARGEST", 20_000)
    assert "unfolds to more than" in refusal(path)


def test_a_size_that_lies_is_refused(file: Callable[[str], Path]) -> None:
    path = file("zip")
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)
    assert data[entry + 46 : entry + 57] == b"steps.jsonl"
    struct.pack_into("<L", data, entry + 24, 50)
    path.write_bytes(data)
    refusal(path)


def test_a_newer_schema_asks_for_an_update(file: Callable[[str], Path]) -> None:
    assert "Update the program" in refusal(with_header(file("zip"), schema_version=2))


@pytest.mark.parametrize(
    "values",
    [
        {"format": "other"},
        {"schema_version": "1"},
        {"dimension": 0},
        {"dimension": 8},
        {"embedder": None},
        {"embedder": "another"},
        {"runs": []},
        {"runs": [{"id": "r"}]},
        {"counts": {"memories": 1, "steps": 1, "ledger": 1}},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_is_refused(file: Callable[[str], Path], values: dict[str, Any]) -> None:
    refusal(with_header(file("zip"), **values))


@pytest.mark.parametrize("header", [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"format": NaN}', b"[" * 10_000])
def test_a_header_that_is_no_json_object_is_refused(file: Callable[[str], Path], header: bytes) -> None:
    refusal(rezipped(file("zip"), run=header))


# --- lines that are refused -------------------------------------------------------------------------------------------


def changed(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """The JSONL file with its objects (the header is the first) changed in place."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line[kind] for line in lines[1:] if kind in line]


def test_bad_lines_are_reported_by_their_numbers(file: Callable[[str], Path]) -> None:
    path = file("jsonl")
    lines = path.read_bytes().splitlines()
    lines[3] = b"{"
    path.write_bytes(b"\n".join(lines))
    assert "in line 4:" in refusal(path)
    for number in range(2, 10):
        lines[number] = b"nonsense"
    path.write_bytes(b"\n".join(lines))
    assert "in lines 3, 4, 5, 6, 7 and 3 more:" in refusal(path)


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"7",
        b"{}",
        b'{"other": {}}',
        b'{"memory": 1}',
        b'{"event": {"id": "e"}}',
        b'{"step": null}',
        b"\xff",
        b'{"event": NaN}',
        b'{"event": ' + b"[" * 5000,
    ],
)
def test_a_line_that_is_no_record_is_reported(file: Callable[[str], Path], line: bytes) -> None:
    path = file("jsonl")
    count = len(path.read_bytes().splitlines())
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert f"line {count + 1}:" in refusal(path)


def test_bad_lines_in_a_zip_name_the_member(file: Callable[[str], Path]) -> None:
    assert "ledger.jsonl cannot be read in line 2:" in refusal(rezipped(file("zip"), ledger=b"\n{]\n"))


def test_a_jsonl_file_that_was_cut_between_lines_is_refused(file: Callable[[str], Path]) -> None:
    path = file("jsonl")
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[:-1]))
    assert "announces" in refusal(path)


def test_a_line_without_an_end_is_not_read_to_its_end(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_limits, "LONGEST_LINE", 2**20)
    path = file("jsonl")
    path.write_bytes(path.read_bytes() + b"x" * (2**20 + 2))
    assert "longer than" in refusal(path)


def test_a_jsonl_file_beyond_the_limit_is_refused(file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = file("jsonl")
    monkeypatch.setattr(archive_limits, "LARGEST", path.stat().st_size - 1)
    assert "Import a smaller bank" in refusal(path)


def shorter(lines: list[dict[str, Any]]) -> None:
    of_kind(lines, "memory")[2]["embedding"].pop()


def twice(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        found = of_kind(lines, kind)
        found[1]["id"] = found[0]["id"]

    return change


def put(record: str, position: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        of_kind(lines, record)[position].update(values)

    return change


def unbegun(lines: list[dict[str, Any]]) -> None:
    of_kind(lines, "event")[3]["run"] = "ghost"


def endless(lines: list[dict[str, Any]]) -> None:
    starts = [event for event in of_kind(lines, "event") if event["kind"] == "run_started"]
    starts[0]["payload"]["base"] = "fork"


def without_alpha(lines: list[dict[str, Any]]) -> None:
    for event in of_kind(lines, "event"):
        if event["kind"] in ("run_started", "settings_changed"):
            event["payload"]["settings"].pop("alpha")


def renamed_run(lines: list[dict[str, Any]]) -> None:
    text = json.dumps(lines).replace('"fork"', '"../fork"')
    lines[:] = json.loads(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shorter, "says 1,024-dimensional vectors; .* has 1,023"),
        (twice("memory"), "memory .* more than once"),
        (twice("step"), "step .* more than once"),
        (twice("event"), "event .* more than once"),
        (put("step", 1, step=1), "step “1 of run r” .* more than once"),
        (put("memory", 0, embedding=[0.0] * 1024), "length 1"),
        (put("memory", 0, embedding=[1e300] * 1024), "length 1"),
        (put("memory", 0, embedding=[float("nan")] * 1024), "cannot be read in line"),
        (put("memory", 0, embedding=["1"] * 1024), "not a list of finite numbers"),
        (put("memory", 0, embedding=None), "not a list of finite numbers"),
        (put("memory", 0, x=float("inf")), "cannot be read in line"),
        (put("memory", 0, x=None), "place on the map"),
        (put("memory", 0, fitted=-1), "order in the map"),
        (put("memory", 0, step=2**60), "out of range"),
        (put("memory", 0, id=""), "empty id"),
        (put("memory", 0, believed=[{"run": "r", "q": 0.5}]), "finite number with a number of visits"),
        (put("memory", 0, believed=["r"]), "finite number with a number of visits"),
        (put("step", 0, id=""), "empty id"),
        (put("event", 1, kind="reward_given", value=None), "reward without a value"),
        (put("event", 1, value=float("nan")), "cannot be read in line"),
        (put("event", 1, kind="exploded"), "kind"),
        (put("event", 1, seq=-1), "out of range"),
        (put("step", 0, embed={"embedder": "e", "dimension": 2, "embedding": [1.0, 0.0]}), "2 numbers"),
        (unbegun, "never begins"),
        (endless, "goes back to itself"),
        (without_alpha, "does not follow from its ledger"),
        (renamed_run, "cannot be the name of a run"),
    ],
)
def test_contents_that_no_bank_could_hold_are_refused(
    file: Callable[[str], Path], change: Callable[[list[dict[str, Any]]], object], said: str
) -> None:
    assert re.search(said, refusal(changed(file("jsonl"), change)))


def test_a_number_too_large_for_a_float_is_refused(file: Callable[[str], Path]) -> None:
    path = file("jsonl")
    text = path.read_text(encoding="utf-8")
    assert '"value":-0.125' in text
    path.write_text(text.replace('"value":-0.125', '"value":1e999'), encoding="utf-8")
    assert "too large" in refusal(path)


def test_a_memory_that_is_missing_is_reported_and_the_rest_is_kept(file: Callable[[str], Path], tmp_path: Path) -> None:
    def drop(lines: list[dict[str, Any]]) -> None:
        lines[:] = [line for line in lines if line.get("memory", {}).get("id") != "r-0002"]
        lines[0]["counts"]["memories"] -= 1

    contents = read_bank(changed(file("jsonl"), drop))
    assert "r-0002" in contents.account.faults[0]
    assert any("not in the file" in skipped.why for skipped in contents.account.skipped)
    bring_in(contents, str(tmp_path / "again"))
    assert "r-0002" not in MemoryBank.open(str(tmp_path / "again")).utilities("r")


# --- Parquet files and others that are refused ------------------------------------------------------------------------


def without_number(table: pa.Table) -> pa.Array:
    column = table["believed"]
    rows = [[{**belief, "q": float("nan")} for belief in row] for row in column.to_pylist()]
    return pa.array(rows, column.type)


def reparqueted(path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    pq.write_table(change(pq.read_table(path)), path)
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace_schema_metadata({}), "which embedder"),
        (lambda t: t.drop_columns(["experience"]), "no column “experience”"),
        (lambda t: t.slice(1), "announces"),
        (lambda t: pa.concat_tables([t.slice(1), t.slice(1, 1)]), "more than once"),
        (lambda t: t.set_column(t.schema.get_field_index("believed"), "believed", without_number(t)), "finite"),
        (lambda t: t.set_column(t.schema.get_field_index("q"), "q", pa.array(["1"] * len(t))), "is needed"),
        (lambda t: t.set_column(t.schema.get_field_index("intent"), "intent", pa.nulls(len(t), pa.string())), "rows 1"),
    ],
)
def test_a_parquet_file_that_is_no_bank_is_refused(
    file: Callable[[str], Path], change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    assert said in refusal(reparqueted(file("parquet"), change))


def test_a_vector_that_is_not_a_number_in_a_parquet_file_is_refused(file: Callable[[str], Path]) -> None:
    def spoil(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("embedding")
        kind = table.schema.field(at).type
        spoilt = pa.FixedSizeListArray.from_arrays(
            pa.array(np.full(len(table) * kind.list_size, np.nan, np.float32)), kind.list_size
        )
        return table.set_column(at, table.schema.field(at), spoilt)

    assert "length 1" in refusal(reparqueted(file("parquet"), spoil))


def test_a_parquet_file_that_was_cut_short_is_refused(file: Callable[[str], Path]) -> None:
    path = file("parquet")
    path.write_bytes(path.read_bytes()[:-20])
    assert "cut short" in refusal(path)


@pytest.mark.parametrize("data", [b"", b"id,intent\n", b"\x89PNG", b"[1, 2]", "ä".encode()])
def test_a_file_of_another_kind_is_answered_with_what_can_be_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "some.file").write_bytes(data)
    assert ".zip, .jsonl or .parquet" in refusal(tmp_path / "some.file")


def test_nothing_and_a_folder_are_sentences(tmp_path: Path) -> None:
    assert "There is no file" in refusal(tmp_path / "nothing.zip")
    assert "cannot be read" in refusal(tmp_path)


def test_the_contents_of_a_file_are_facts_and_nothing_else(file: Callable[[str], Path], bank: MemoryBank) -> None:
    contents = read_bank(file("zip"))
    assert isinstance(contents, Contents)
    assert (contents.embedder, contents.dimension) == (bank.embedder.name, bank.embedder.dimension)
    assert str(len(bank.events())) in contents.account.read[0]


@pytest.mark.parametrize("record", [Header, *RECORDS], ids=lambda record: record.__name__)
def test_the_page_about_the_format_names_every_field(record: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    fields = getattr(record, "__dataclass_fields__", None) or record.model_fields
    assert [name for name in fields if f"`{name}`" not in page] == []


def test_the_page_about_the_format_names_every_kind_of_event() -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    assert [kind for kind in EventKind if f"`{kind}`" not in page] == []


def test_the_page_about_the_format_names_every_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
