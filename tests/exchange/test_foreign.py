"""Memories of other programs: what is guessed of each kind, what is said of it, and which bank comes of it."""

from __future__ import annotations

import base64
import csv
import gc
import json
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memrl_core.bank import MemoryBank, matrix
from memrl_core.bank.check import check
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError
from memrl_core.exchange.bring_in import Arrival
from memrl_core.exchange.foreign.opening import Look, look, open_memories, source_of
from memrl_core.records import EventKind, Memory


def looked(path: Path, fresh: bool = False, table: str = "", **columns: str) -> Look:
    found = look(source_of(str(path), table), columns, fresh)
    assert found is not None
    return found


def opened(path: Path, bank: Path, skip_bad: bool = False, fresh: bool = False, **columns: str) -> Arrival:
    seen = looked(path, fresh, **columns)
    arrival = open_memories(seen, str(bank), HashingEmbedder(64) if seen.fresh else None, skip_bad)
    assert arrival is not None
    return arrival


def values(path: Path) -> dict[str, tuple[str, str, float, int]]:
    """Intent, experience, q and visits of every memory that the run of a bank knows."""
    with MemoryBank.open(str(path)) as bank:
        known = bank.utilities(bank.runs()[-1].id)
        return {i: (bank.memory(i).intent, bank.memory(i).experience, u.q, u.visits) for i, u in known.items()}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def is_whole(bank: Path) -> bool:
    return all(finding.ok for finding in check(str(bank)))


# --- what each program writes -----------------------------------------------------------------------------------------


def mem0(path: Path) -> None:
    rows = [
        {"id": "a", "memory": "Likes tea", "hash": "1", "metadata": {"topic": "food"}, "score": None,
         "created_at": "2026-05-01T10:00:00-07:00", "user_id": "u"},
        {"id": "b", "memory": "Is vegan", "hash": "2", "metadata": None, "created_at": "2026-05-02T10:00:00"},
    ]  # fmt: skip
    relations = [{"source": "ann", "relationship": "drinks", "target": one} for one in ("tea", "milk", "water")]
    path.write_text(json.dumps({"results": rows, "relations": relations}), encoding="utf-8")


def langgraph(path: Path) -> None:
    lines(
        path,
        {"namespace": ["u", "m"], "key": "a", "value": {"text": "Likes tea", "q": 0.4}, "created_at": "2026-05-01"},
        {"namespace": ["u", "m"], "key": "b", "value": {"text": "Is vegan", "q": -0.1}, "created_at": "2026-05-01"},
    )


def langgraph_in_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE store (prefix TEXT, key TEXT, value TEXT, created_at TEXT)")
        database.execute("CREATE TABLE store_migrations (v INTEGER)")
        database.execute("INSERT INTO store_migrations VALUES (3)")
        for key, text in (("a", "Likes tea"), ("b", "Is vegan")):
            database.execute("INSERT INTO store VALUES ('u.m', ?, ?, '2026-05-01')", (key, json.dumps({"data": text})))
        database.commit()


def letta(path: Path) -> None:
    blocks = [{"id": "a", "label": "human", "value": "Likes tea", "limit": 5000}]
    passages = [{"id": "b", "text": "Is vegan", "created_at": "2026-05-01T10:00:00"}]
    path.write_text(
        json.dumps({"agents": [{"name": "x", "messages": []}], "blocks": blocks, "passages": passages, "tools": []}),
        encoding="utf-8",
    )


def letta_of_before(path: Path) -> None:
    memory = [{"label": "a", "value": "Likes tea", "id": "a"}, {"label": "b", "value": "Is vegan", "id": "b"}]
    path.write_text(json.dumps({"agent_type": "memgpt_agent", "core_memory": memory, "messages": []}), encoding="utf-8")


def memos(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE episodes (id TEXT, status TEXT)")
        database.execute("INSERT INTO episodes VALUES ('e', 'closed')")
        database.execute(
            "CREATE TABLE traces (id TEXT, ts INTEGER, user_text TEXT, agent_text TEXT, summary TEXT, reflection TEXT, "
            "value REAL, alpha REAL, r_human REAL, priority REAL, vec_summary BLOB, vec_action BLOB)"
        )
        for n, (key, text) in enumerate((("a", "Likes tea"), ("b", "Is vegan"))):
            vector = np.asarray([1, n, 0, 2], "<f4").tobytes()
            row = (key, 1_777_629_600_000, f"asked {key}", text, "", "", 0.5 - n, 0.1, None, 0.0, vector, vector)
            database.execute("INSERT INTO traces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.commit()


def a_mem(path: Path) -> None:
    note = {"keywords": ["x"], "links": [], "context": "General", "tags": [], "timestamp": "202605011000"}
    rows = {"a": {"content": "Likes tea", "retrieval_count": 3, **note}, "b": {"content": "Is vegan", **note}}
    path.write_text(json.dumps(rows), encoding="utf-8")


def ace(path: Path) -> None:
    path.write_text(
        "## STRATEGIES\n[a] helpful=5 harmful=1 :: Likes tea\n\n- [b] helpful=0 harmful=0 :: Is vegan\n",
        encoding="utf-8",
    )


def chroma(path: Path) -> None:
    columns = {"ids": ["a", "b"], "documents": ["Likes tea", "Is vegan"], "embeddings": [[1, 0], [0, 1]]}
    path.write_text(json.dumps({**columns, "metadatas": [{"x": 1}, None], "uris": None}), encoding="utf-8")


def table_with_semicolons(path: Path) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows(
            [["memory id", "Question", "Answer", "utility", "success"], ["a", "tea?", "Likes tea", "0,5", "true"],
             ["b", "vegan?", "Is vegan", "-0,25", "false"]]
        )  # fmt: skip


def parquet(path: Path) -> None:
    vectors = pa.array([[1.0, 0.0], [0.0, 2.0]], pa.list_(pa.float32(), 2))
    pq.write_table(
        pa.table({"id": ["a", "b"], "text": ["Likes tea", "Is vegan"], "vector": vectors, "q": [0.1, None]}), path
    )


def lance(path: Path) -> None:
    rows = [
        {"id": "a", "text": "Likes tea", "vector": [1.0, 0.0]},
        {"id": "b", "text": "Is vegan", "vector": [0.0, 1.0]},
    ]
    lancedb.connect(str(path)).create_table("memories", data=rows)


TEA, VEGAN = "Likes tea", "Is vegan"
KINDS = {
    mem0: {"a": (TEA, TEA, 0, 0), "b": (VEGAN, VEGAN, 0, 0)},
    langgraph: {"a": (TEA, TEA, 0.4, 0), "b": (VEGAN, VEGAN, -0.1, 0)},
    langgraph_in_sqlite: {"a": (TEA, TEA, 0, 0), "b": (VEGAN, VEGAN, 0, 0)},
    letta: {"a": ("human", TEA, 0, 0), "b": (VEGAN, VEGAN, 0, 0)},
    letta_of_before: {"a": ("a", TEA, 0, 0), "b": ("b", VEGAN, 0, 0)},
    memos: {"a": ("asked a", TEA, 0.5, 0), "b": ("asked b", VEGAN, -0.5, 0)},
    a_mem: {"a": (TEA, TEA, 0, 3), "b": (VEGAN, VEGAN, 0, 0)},
    ace: {"a": (TEA, TEA, 5 / 6, 6), "b": (VEGAN, VEGAN, 0, 0)},
    chroma: {"a": (TEA, TEA, 0, 0), "b": (VEGAN, VEGAN, 0, 0)},
    table_with_semicolons: {"a": ("tea?", TEA, 0.5, 0), "b": ("vegan?", VEGAN, -0.25, 0)},
    parquet: {"a": (TEA, TEA, 0.1, 0), "b": (VEGAN, VEGAN, 0, 0)},
    lance: {"a": (TEA, TEA, 0, 0), "b": (VEGAN, VEGAN, 0, 0)},
}


@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__)
def test_what_a_program_wrote_becomes_a_whole_bank_with_its_numbers(write: Any, tmp_path: Path) -> None:
    path = tmp_path / ("of.csv" if write is table_with_semicolons else "of")
    write(path)
    arrival = opened(path, tmp_path / "bank")
    assert values(tmp_path / "bank") == KINDS[write]
    assert arrival.memories == 2 and is_whole(tmp_path / "bank")


def test_times_outcomes_vectors_and_metadata_come_with_the_memories(tmp_path: Path) -> None:
    memos(tmp_path / "memos.db")
    opened(tmp_path / "memos.db", tmp_path / "one")
    table_with_semicolons(tmp_path / "t.csv")
    opened(tmp_path / "t.csv", tmp_path / "two")
    mem0(tmp_path / "m.json")
    opened(tmp_path / "m.json", tmp_path / "three")
    with MemoryBank.open(str(tmp_path / "one")) as bank:
        assert bank.memory("a").created.startswith("2026-05-01T10:00:00")
        assert bank.embedding("b").tolist() == pytest.approx([6**-0.5, 6**-0.5, 0, 2 * 6**-0.5])
    with MemoryBank.open(str(tmp_path / "two")) as bank:
        assert [bank.memory(i).outcome for i in "ab"] == ["success", "failure"]
    with MemoryBank.open(str(tmp_path / "three")) as bank:
        imported = {e.memory_ids[0]: e.payload for e in bank.events() if e.kind is EventKind.MEMORY_IMPORTED}
        assert imported["a"]["metadata"] == {"hash": "1", "metadata.topic": "food", "user_id": "u"}
        assert bank.memory("a").created.startswith("2026-05-01T17:00:00")


def test_a_person_names_the_columns_that_nobody_could_guess(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "x.jsonl",
        {"was": "Likes tea", "wofür": "tea?", "gut": 0.5},
        {"was": "Is vegan", "wofür": "vegan?", "gut": 1},
    )
    opened(path, tmp_path / "bank", text="was", intent="wofür", q="gut")
    assert list(values(tmp_path / "bank").values()) == [("tea?", "Likes tea", 0.5, 0), ("vegan?", "Is vegan", 1.0, 0)]
    with pytest.raises(InputError, match="wofuer"):
        looked(path, intent="wofuer")
    with pytest.raises(InputError, match="no field"):
        looked(path, meaning="was")


# --- bad input --------------------------------------------------------------------------------------------------------

GOOD = {"id": "good", "text": "kept", "vector": [1.0, 0.0, 0.0]}
BAD = {
    "dimensions": {"id": "x", "text": "other size", "vector": [1.0, 0.0]},
    "NaN": {"id": "x", "text": "not a number", "vector": [1.0, float("nan"), 0.0]},
    "zeros": {"id": "x", "text": "no direction", "vector": [0.0, 0.0, 0.0]},
    "no vector": {"id": "x", "text": "nothing", "vector": None},
    "no text": {"id": "x", "text": " ", "vector": [1.0, 0.0, 0.0]},
    "no list": {"id": "x", "text": "a word", "vector": "north"},
}


@pytest.mark.parametrize(("why", "row"), BAD.items(), ids=BAD)
def test_a_bad_row_is_named_and_left_out_only_on_request(why: str, row: Any, tmp_path: Path) -> None:
    rows = [{**GOOD, "id": f"g{n}", "text": f"kept {n}"} for n in range(20)]
    path = lines(tmp_path / "x.jsonl", *rows[:7], row, *rows[7:])
    seen = looked(path)
    assert (seen.bad_count, seen.bad[0].where, seen.memories) == (1, "line 8", 20)
    with pytest.raises(InputError, match="line 8"):
        opened(path, tmp_path / "bank")
    assert not (tmp_path / "bank").exists()
    opened(path, tmp_path / "bank", skip_bad=True)
    assert set(values(tmp_path / "bank")) == {f"g{n}" for n in range(20)} and is_whole(tmp_path / "bank")


def test_one_embedder_for_all_takes_rows_whose_vectors_are_bad(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "x.jsonl", GOOD, BAD["dimensions"], {**BAD["NaN"], "id": "y"}, {**BAD["no vector"], "id": "z"}
    )
    opened(path, tmp_path / "bank", fresh=True)
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.embedder.name == "hashing-64" and set(bank.memory_ids()) == {"good", "x", "y", "z"}


def test_a_text_of_which_the_embedder_makes_no_vector_is_a_bad_row(tmp_path: Path) -> None:
    lines(tmp_path / "x.jsonl", {"id": "a", "text": "?!"}, {"id": "b", "text": "words"})
    with pytest.raises(InputError, match="line 1"):
        opened(tmp_path / "x.jsonl", tmp_path / "bank")
    arrival = opened(tmp_path / "x.jsonl", tmp_path / "bank", skip_bad=True)
    assert list(values(tmp_path / "bank")) == ["b"] and arrival.account.skipped[0].where == "line 1"


def test_a_column_that_is_not_what_it_was_said_to_be_is_named_with_its_rows(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", {"text": "a", "topic": "food", "q": 1}, {"text": "b", "topic": "tea", "q": 0.5})
    seen = looked(path, q="topic")
    assert seen.bad_count == 2 and "food" in seen.bad[0].why and "topic" in seen.bad[0].why


def test_the_same_id_with_another_text_gets_a_name_and_is_told(tmp_path: Path) -> None:
    rows = [
        {"id": "m", "text": "first"},
        {"id": "m", "text": "second"},
        {"id": "m", "text": "first"},
        {"id": "n", "text": "first"},
    ]
    seen = looked(lines(tmp_path / "x.jsonl", *rows))
    assert (seen.renamed.count, seen.repeated.count, seen.alike.count, seen.memories) == (1, 1, 1, 3)
    opened(tmp_path / "x.jsonl", tmp_path / "bank")
    assert {i: v[1] for i, v in values(tmp_path / "bank").items()} == {"m": "first", "m-2": "second", "n": "first"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("id,text\n1,Müller\n".encode("cp1252"), "Windows-1252"),
        ('{"text": "a"}\n{"text": "Müller"}\n'.encode("cp1252"), "Line 2.*Windows-1252"),
        ('[{"text": "Müller"}]'.encode("cp1252"), "Windows-1252"),
        ('{"text": "a"}'.encode("utf-16"), "UTF-16"),
        (b"  \n", "empty"),
        (b"PAR1 and no more", "Parquet"),
        (b"SQLite format 3\0 and no more", "SQLite"),
        (b"{\"text\": ", "JSON"),
        (b"just some words", "no rows"),
        (b"\x93NUMPY\0\0\0", "NumPy"),
        ('{"text": "a"}'.encode("utf-16-le"), "UTF-16"),
        ('{"text": "a"}'.encode("utf-32"), "UTF-32"),
        (b"\x1f\x8b\x08\0 and so on", "gzip"),
        (b"\x80\x04\x95 and so on", "pickle"),
        (b"id,text\r1,a\r2,b\r", "CR alone"),
        (b"text\n\n", "no row|no rows"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_of_the_kinds_is_refused_with_what_it_is(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InputError, match=says):
        looked(tmp_path / "x")


def test_a_line_without_an_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.exchange.foreign.tables.LONGEST_LINE", 100)
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n{"text": "' + "b" * 200 + '"}\n')
    with pytest.raises(InputError, match=r"Line 2 .*longer"):
        looked(tmp_path / "x.jsonl")


def test_columns_of_one_name_are_both_kept(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,text,text\n1,a,b\n")
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]), tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        (found,) = looked(tmp_path / name).preview
        assert (found.text, found.metadata) == ("a", {"text (2)": "b"})


@pytest.mark.parametrize("kind", ["<f4", "<f8", "base64"])
def test_vectors_in_bytes_are_read_as_the_numbers_that_they_are(kind: str, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, 64))
    given = [vector.astype("<f4" if kind == "base64" else kind).tobytes() for vector in vectors]
    if kind == "base64":
        rows = [{"text": f"t{n}", "embedding": base64.b64encode(one).decode()} for n, one in enumerate(given)]
        path = lines(tmp_path / "x.jsonl", *rows)
    else:
        path = tmp_path / "x.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute("create table notes (text, embedding blob)")
            database.executemany("insert into notes values (?, ?)", [(f"t{n}", one) for n, one in enumerate(given)])
            database.commit()
    found = looked(path).preview
    assert all(np.allclose(one.vector, vector, atol=1e-6) for one, vector in zip(found, vectors, strict=True))


def test_a_column_with_the_name_of_a_field_that_is_not_taken_for_it_is_named(tmp_path: Path) -> None:
    seen = looked(lines(tmp_path / "x.jsonl", {"text": "a", "q": "high"}, {"text": "b", "q": 0.5}))
    assert "q" not in seen.mapped.columns and len(seen.mapped.passed_over) == 1 and "high" in seen.mapped.passed_over[0]
    seen = looked(lines(tmp_path / "y.jsonl", {"text": "a", "q": 0.2, "status": "new"}))
    assert seen.mapped.passed_over == ()


def test_one_memory_over_several_lines_is_a_file_of_one(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"id": "m", "text": "a", "tags": ["x"]}, indent=2))
    assert [one.text for one in looked(tmp_path / "x.json").preview] == ["a"]


def test_a_table_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    lance(tmp_path / "db")
    (tmp_path / "db" / "memories.lance" / "data" / "x.lance").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="link"):
        looked(tmp_path / "db")


def test_views_and_tables_of_missing_modules_are_passed_over(tmp_path: Path) -> None:
    memos(tmp_path / "memos.db")
    with closing(sqlite3.connect(tmp_path / "memos.db")) as database:
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT * FROM n"
        database.execute(f"CREATE VIEW memories AS {endless}")
        database.execute("PRAGMA writable_schema = 1")
        module = "CREATE VIRTUAL TABLE notes USING vec0(embedding float[4])"
        database.execute("INSERT INTO sqlite_master VALUES ('table', 'notes', 'notes', 0, ?)", (module,))
        database.commit()
    assert looked(tmp_path / "memos.db").memories == 2


def test_a_database_without_rows_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE memories (text TEXT)")
    with pytest.raises(InputError, match="no table with rows"):
        looked(tmp_path / "x.db")


def test_of_several_tables_one_is_named(tmp_path: Path) -> None:
    lance(tmp_path / "db")
    lancedb.connect(str(tmp_path / "db")).create_table("other", data=[{"text": "x", "vector": [1.0, 0.0]}])
    with pytest.raises(InputError, match="memories, other"):
        looked(tmp_path / "db")
    assert looked(tmp_path / "db", table="memories").memories == 2


def test_a_cancelled_opening_leaves_nothing(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", *({"text": f"memory {n}", "vector": [1.0, n]} for n in range(600)))
    seen = looked(path)
    assert look(source_of(str(path)), cancelled=lambda: True) is None
    assert open_memories(seen, str(tmp_path / "bank"), cancelled=lambda: True) is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_file_that_changes_between_the_look_and_the_writing_leaves_nothing(tmp_path: Path) -> None:
    seen = looked(lines(tmp_path / "x.jsonl", {"text": "a", "vector": [1, 0]}, {"text": "b", "vector": [1, 0]}))
    lines(tmp_path / "x.jsonl", {"text": "a", "vector": [1, 0]})
    with pytest.raises(InputError, match="changed"):
        open_memories(seen, str(tmp_path / "bank"))
    assert not (tmp_path / "bank").exists()


def test_texts_of_a_large_file_are_not_held_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MOST_TEXTS", 1_000)
    texts = [f"text {number} {'x' * 100}" for number in range(300)]
    held = []

    def written(done: int, size: int) -> None:
        held.append(sum(isinstance(one, Memory) for one in gc.get_objects()))

    seen = looked(lines(tmp_path / "m.jsonl", *({"text": text} for text in texts)))
    assert open_memories(seen, str(tmp_path / "bank"), HashingEmbedder(64), on_progress=written) is not None
    assert len(held) == 5 and max(held) - held[0] < 64
    assert [text for _, text, _, _ in values(tmp_path / "bank").values()] == texts


@pytest.mark.slow
def test_a_file_is_read_row_by_row_however_large_it_is(tmp_path: Path) -> None:
    peaks = []
    for count in (200, 2000):
        with (tmp_path / f"{count}.jsonl").open("w") as file:
            for number in range(count):
                file.write(json.dumps({"id": f"m{number}", "text": f"{number} " + "x" * 20_000}) + "\n")
        tracemalloc.start()
        assert looked(tmp_path / f"{count}.jsonl").memories == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Of 36 MB more, only ids and digests stay.
    assert peaks[1] - peaks[0] < 2 * 2**20
