"""The sandbox runs what tasks need and nothing that could harm; what is stopped leaves the tables as they were."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.environments.databases import mysql_functions
from memrl_core.environments.databases import sandbox as module
from memrl_core.environments.databases.sandbox import Limits, Sandbox, Table
from memrl_core.environments.databases.sandbox_child import NOW
from memrl_core.errors import EnvironmentFailed, InputError

PEOPLE = Table("people", "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)", [[1, "Ann"], [2, "Bob"], [3, None]])
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
HANGS = "SELECT printf('%.*c', 2000000000, 'x')"
SMALL = Limits(instructions=2_000_000, seconds=120)
"""So many seconds that the slowest machine reaches the instructions first."""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(SMALL)
    made.begin([PEOPLE])
    yield made
    made.close()


def names(sandbox: Sandbox) -> list[object]:
    return [name for (name,) in sandbox.run("SELECT name FROM people ORDER BY id").rows]


def assert_unharmed(sandbox: Sandbox) -> None:
    assert names(sandbox) == ["Ann", "Bob", None]


def process_of(sandbox: Sandbox) -> int:
    assert sandbox._child.pid is not None
    return sandbox._child.pid


def test_rows_come_with_the_names_of_their_columns(sandbox: Sandbox) -> None:
    ran = sandbox.run("SELECT id, name AS who FROM people WHERE id < 3")
    assert (ran.columns, ran.rows, ran.error, ran.cut) == (("id", "who"), ((1, "Ann"), (2, "Bob")), "", False)


def test_a_change_counts_its_rows_and_stays(sandbox: Sandbox) -> None:
    assert sandbox.run("UPDATE people SET name = 'Eve' WHERE id > 1").changed == 2
    assert sandbox.content() == {"people": [[1, "Ann"], [2, "Eve"], [3, "Eve"]]}


def test_every_kind_of_value_comes_back_as_it_was(sandbox: Sandbox) -> None:
    values = [None, 2**63 - 1, -(2**63), 0.1, math.inf, -math.inf, "a'b\n\u2028“é", b"\x00\xff"]
    sandbox.begin([Table("t", "CREATE TABLE t (v)", [[value] for value in values])])
    came = [row[0] for row in sandbox.content()["t"]]
    assert came == values
    assert [type(value) for value in came] == [type(value) for value in values]


def test_a_blob_may_be_written_as_json_has_it(sandbox: Sandbox) -> None:
    sandbox.begin([Table("t", "CREATE TABLE t (v)", [[{"blob": "00ff"}]])])
    assert sandbox.run("SELECT v FROM t").rows == ((b"\x00\xff",),)


def test_views_indexes_and_tables_of_its_own_can_be_made_and_dropped(sandbox: Sandbox) -> None:
    for statement in (
        "CREATE INDEX i ON people (name)",
        "CREATE VIEW v AS SELECT name FROM people",
        "CREATE TABLE kept AS SELECT * FROM v",
        "CREATE TABLE other (a)",
        "DROP INDEX i",
        "DROP VIEW v",
        "DROP TABLE kept",
    ):
        assert sandbox.run(statement).error == "", statement
    assert set(sandbox.content()) == {"people", "other"}


@pytest.mark.parametrize("faulty", ["SELECT nothing FROM people", "SELEC 1", "SELECT 1; SELECT 2", "SELECT 'open"])
def test_faulty_sql_is_an_error_in_words(sandbox: Sandbox, faulty: str) -> None:
    assert sandbox.run(faulty).error
    assert_unharmed(sandbox)


@pytest.mark.parametrize(
    ("create", "rows"),
    [
        ("CREATE TABLE t (a", []),
        ("CREATE TABLE other (a)", []),
        ("CREATE TABLE t (a)", [[1, 2]]),
        ("CREATE TABLE t (a)", [[2**70]]),
        ("CREATE TABLE t (a)", [[[1]]]),
        ("CREATE TABLE t (a)", [[{"blob": "no hex"}]]),
        ("CREATE TABLE t (a)", [[{}]]),
        ("ATTACH 'x.db' AS t", []),
    ],
)
def test_tables_that_cannot_be_made_are_reported(sandbox: Sandbox, create: str, rows: list[list[object]]) -> None:
    with pytest.raises(InputError, match="table t: "):
        sandbox.begin([Table("t", create, rows)])


def test_a_new_beginning_knows_nothing_of_the_old_one(sandbox: Sandbox) -> None:
    sandbox.run("CREATE TABLE left_over (a)")
    sandbox.begin([Table("t", "CREATE TABLE t (a)")])
    assert sandbox.content() == {"t": []}
    assert "no such table" in sandbox.run("SELECT * FROM left_over").error


def test_nothing_can_be_asked_before_the_beginning() -> None:
    with pytest.raises(InputError, match="database"):
        Sandbox().run("SELECT 1")


# --- ways out ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH '{file}' AS other",
        "ATTACH 'file:{file}?mode=rwc' AS other",
        "VACUUM INTO '{file}'",
        "SELECT writefile('{file}', 'text')",
        "SELECT readfile('{file}')",
        "CREATE TABLE people_copy AS SELECT writefile('{file}', name) FROM people",
    ],
)
def test_no_file_is_read_or_written(sandbox: Sandbox, tmp_path: Path, statement: str) -> None:
    file = tmp_path / "out.db"
    reported = sandbox.run(statement.format(file=file)).error
    assert (
        reported.startswith("not allowed here: ATTACH") or "no such function" in reported or "cannot VACUUM" in reported
    )
    assert not file.exists()
    assert_unharmed(sandbox)


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        ("PRAGMA writable_schema = 1", "PRAGMA"),
        ("PRAGMA max_page_count = 100000000", "PRAGMA"),
        ("SELECT * FROM pragma_database_list", "pragma_database_list"),
        ("SELECT load_extension('x')", "load_extension"),
        ("SELECT fts3_tokenizer('simple')", "fts3_tokenizer"),
        ("SELECT * FROM dbstat", "dbstat"),
        ("SELECT randomblob(10)", "randomblob"),
        ("CREATE TEMP TABLE people AS SELECT 1", "a temporary table or view"),
        ("CREATE TABLE temp.people (id)", "a temporary table or view"),
        ("CREATE TEMPORARY VIEW people AS SELECT 1", "a temporary table or view"),
        ("CREATE VIEW temp.people AS SELECT 1", "a temporary table or view"),
        ("CREATE VIRTUAL TABLE v USING fts4(a)", "virtual table"),
        ("CREATE TRIGGER t AFTER INSERT ON people BEGIN DELETE FROM people; END", "trigger"),
        ("CREATE TEMP TRIGGER t AFTER INSERT ON people BEGIN DELETE FROM people; END", "temporary"),
        ("ALTER TABLE people ADD COLUMN age", "ALTER TABLE"),
        ("BEGIN", "transaction"),
        ("COMMIT", "transaction"),
        ("SAVEPOINT s", "savepoint"),
        ("DETACH main", "DETACH"),
    ],
)
def test_what_no_task_needs_is_refused(sandbox: Sandbox, statement: str, refused: str) -> None:
    ran = sandbox.run(statement)
    assert ran.error.startswith("not allowed here: ") and refused in ran.error
    assert_unharmed(sandbox)


@pytest.mark.parametrize("statement", ["UPDATE sqlite_master SET sql = 'x'", "DELETE FROM sqlite_schema"])
def test_the_schema_is_not_written_directly(sandbox: Sandbox, statement: str) -> None:
    assert "sqlite_" in sandbox.run(statement).error
    assert_unharmed(sandbox)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limits for a process")
def test_its_process_can_open_nothing_even_without_the_list_of_what_is_allowed(tmp_path: Path) -> None:
    child = tmp_path / "open_child.py"
    child.write_text(
        "import sqlite3\n"
        "from memrl_core.environments.databases.sandbox_child import confine\n"
        "confine()\n"
        "for open_it in (lambda: open('new', 'w'), lambda: sqlite3.connect('new.db').execute('CREATE TABLE t (a)')):\n"
        "    try:\n"
        "        open_it()\n"
        "        print('opened')\n"
        "    except (OSError, sqlite3.Error):\n"
        "        print('refused')\n"
    )
    reported = subprocess.run(
        [sys.executable, str(child)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert reported.stdout.split() == ["refused", "refused"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["open_child.py"]


@pytest.mark.parametrize("function", ["random()", "randomblob(4)", "sqlite_compileoption_get(0)", "sqlite_source_id()"])
@pytest.mark.parametrize("where", ["CREATE TABLE t (a, b DEFAULT ({}))", "CREATE TABLE t (a, b AS ({}))"])
def test_what_may_not_be_called_is_not_called_by_a_table_either(sandbox: Sandbox, function: str, where: str) -> None:
    sandbox.run(where.format(function))
    assert sandbox.run("INSERT INTO t (a) VALUES (1)").error
    assert sandbox.content().get("t", []) == []


@pytest.mark.parametrize("hidden", ["SELECT random() AS a", "SELECT name FROM pragma_database_list"])
def test_a_view_hides_nothing_of_what_is_refused(sandbox: Sandbox, hidden: str) -> None:
    sandbox.run(f"CREATE VIEW v AS {hidden}")
    assert sandbox.run("SELECT * FROM v").error.startswith("not allowed here: ")


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "came"),
    [
        ("date('now')", "2025-01-01"),
        ("date()", "2025-01-01"),
        ("DATE('n' || 'OW', '-1 day')", "2024-12-31"),
        ("date(CAST('now' AS BLOB))", "2025-01-01"),
        ("datetime('now' || char(0) || 'x')", "2025-01-01 00:00:00"),
        ("datetime('now', 'localtime')", "2025-01-01 00:00:00"),
        ("time('now')", "00:00:00"),
        ("julianday('now')", 2460676.5),
        ("unixepoch('now')", 1735689600),
        ("strftime('%Y %j')", "2025 001"),
        ("strftime('%H', 'now', '+5 hours')", "05"),
        ("current_date || ' ' || CURRENT_TIME || ' ' || current_timestamp", "2025-01-01 00:00:00 2025-01-01 00:00:00"),
    ],
)
def test_the_clock_stands_still(sandbox: Sandbox, asked: str, came: object) -> None:
    assert sandbox.run(f"SELECT {asked}").rows == ((came,),)


@given(
    function=st.sampled_from(["date", "time", "datetime", "julianday"]),
    moment=st.datetimes().map(str) | st.floats(0, 5e6) | st.none() | st.text(max_size=5),
    change=st.sampled_from(["+0 days", "+1 month", "start of year", "-36 hours", "weekday 0", "no change at all"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_dates_are_counted_as_sqlite_counts_them(sandbox: Sandbox, function: str, moment: Any, change: str) -> None:
    with closing(sqlite3.connect(":memory:")) as plain:
        expected = plain.execute(f"SELECT {function}(?, ?)", (moment, change)).fetchall()
    sandbox.begin([Table("t", "CREATE TABLE t (a, b)", [[moment, change]])])
    assert list(sandbox.run(f"SELECT {function}(a, b) FROM t").rows) == expected


def test_the_clock_is_that_of_tasks_made_for_mysql() -> None:
    assert str(mysql_functions.NOW) == NOW


def test_views_defaults_checks_and_indexes_may_use_dates(sandbox: Sandbox) -> None:
    for statement in (
        "CREATE TABLE t (a, day DEFAULT CURRENT_DATE CHECK (date(day) > '2000'), year AS (strftime('%Y', day)))",
        "CREATE INDEX i ON t (date(day, '+1 day'))",
        "CREATE VIEW v AS SELECT a, date(day, '+1 day') AS next, year FROM t",
        "INSERT INTO t (a) VALUES (1)",
    ):
        assert sandbox.run(statement).error == "", statement
    assert sandbox.run("SELECT * FROM v").rows == ((1, "2025-01-02", "2025"),)


# --- a statement that fails -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conflict", ["FAIL", "ABORT", "ROLLBACK"])
def test_a_statement_that_fails_in_the_middle_changes_nothing(sandbox: Sandbox, conflict: str) -> None:
    assert "UNIQUE" in sandbox.run(f"INSERT OR {conflict} INTO people VALUES (8, 'x'), (1, 'y')").error
    assert_unharmed(sandbox)
    assert sandbox.run("INSERT OR IGNORE INTO people VALUES (4, 'Dan'), (1, 'y') RETURNING id").rows == ((4,),)
    assert names(sandbox) == ["Ann", "Bob", None, "Dan"]


def test_a_change_whose_rows_are_cut_is_made_whole(sandbox: Sandbox) -> None:
    ran = sandbox.run(f"INSERT INTO people (name) {ENDLESS} SELECT 'more' FROM n LIMIT 1500 RETURNING id")
    assert (len(ran.rows), ran.cut, ran.error) == (1_000, True, "")
    assert sandbox.run("SELECT count(*) FROM people").rows == ((1_503,),)


# --- too much ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        f"{ENDLESS} SELECT count(*) FROM n",
        f"{ENDLESS} SELECT 1 FROM n WHERE x < 0",
        f"INSERT INTO people (name) {ENDLESS} SELECT 'more' FROM n",
        "UPDATE people SET name = (" + ENDLESS + " SELECT count(*) FROM n)",
    ],
)
def test_a_statement_that_never_ends_is_stopped_and_changes_nothing(sandbox: Sandbox, statement: str) -> None:
    reported = sandbox.run(statement).error
    assert "2,000,000 instructions" in reported or "full" in reported
    assert_unharmed(sandbox)


def test_the_clock_stops_what_is_slow_without_many_instructions() -> None:
    slow = Sandbox(Limits(seconds=0.2, instructions=10**15))
    slow.begin([PEOPLE])
    reported = slow.run(f"{ENDLESS} SELECT sum(length(hex(zeroblob(40000)))) FROM n").error
    assert "0.2 seconds" in reported
    assert_unharmed(slow)
    slow.close()


def test_ten_million_rows_are_cut(sandbox: Sandbox) -> None:
    sandbox.begin([Table("d", "CREATE TABLE d (n)", [[n] for n in range(10)])])
    ran = sandbox.run("SELECT a.n FROM d a, d b, d c, d e, d f, d g, d h")
    assert (len(ran.rows), ran.cut, ran.error) == (1_000, True, "")


def test_wide_rows_are_cut_by_their_characters(sandbox: Sandbox) -> None:
    ran = sandbox.run(f"{ENDLESS} SELECT hex(zeroblob(40000)) FROM n LIMIT 50")
    assert (len(ran.rows), ran.cut) == (12, True)


def test_small_changes_cannot_fill_the_memory_either(sandbox: Sandbox) -> None:
    reported = [
        sandbox.run(f"CREATE TABLE t{n} AS {ENDLESS} SELECT zeroblob(90000) FROM n LIMIT 150").error for n in (1, 2)
    ]
    assert reported == ["", "database or disk is full"]


def test_ten_megabytes_of_sql_are_not_read(sandbox: Sandbox) -> None:
    assert "at most 50,000" in sandbox.run("SELECT '" + "x" * 10_000_000 + "'").error
    assert_unharmed(sandbox)


@pytest.mark.parametrize(
    "statement",
    [
        f"{ENDLESS} SELECT x FROM n ORDER BY zeroblob(90000), x DESC",
        f"{ENDLESS} SELECT group_concat(hex(zeroblob(40000))) FROM n",
        "SELECT zeroblob(2000000000)",
        f"CREATE TABLE big AS {ENDLESS} SELECT zeroblob(90000) FROM n",
        f"SELECT json_group_array(y) FROM ({ENDLESS} SELECT hex(zeroblob(40000)) AS y FROM n)",
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + " + ".join("1" * 5_000),
        " UNION ALL ".join(["SELECT 1"] * 1_000),
        "SELECT " + ", ".join("1" * 5_000),
        "SELECT '\0'",
        "\0",
        "\ud800",
        "SELECT 'a' LIKE '" + "%a" * 5_000 + "'",
    ],
    ids=lambda statement: ascii(statement[:40]),
)
def test_gigabytes_and_monstrous_sql_are_an_error_and_do_no_harm(sandbox: Sandbox, statement: str) -> None:
    assert sandbox.run(statement).error
    assert_unharmed(sandbox)


def test_a_table_beyond_the_bound_that_nobody_needs_is_left_out(sandbox: Sandbox) -> None:
    sandbox.run(f"CREATE TABLE scratch AS {ENDLESS} SELECT x FROM n LIMIT 2000")
    assert list(sandbox.content({"People"})) == ["people"]
    with pytest.raises(InputError):
        sandbox.content({"scratch"})


@pytest.mark.parametrize("length", ["400000", "49999"])
def test_one_instruction_cannot_take_seconds(length: str) -> None:
    with closing(Sandbox()) as made:
        made.begin([PEOPLE])
        ran = made.run(f"SELECT instr(hex(zeroblob({length})), hex(zeroblob({length} / 2)) || '1')")
        assert "too big" in ran.error or ran.rows == ((0,),)


# --- a process that ends ----------------------------------------------------------------------------------------------


def test_a_process_that_hangs_is_ended_and_the_changes_so_far_are_kept(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.run("DELETE FROM people WHERE id > 1")
    monkeypatch.setattr(module, "SLACK", 0.3 - SMALL.seconds)
    assert sandbox.run(HANGS).error
    monkeypatch.undo()
    assert names(sandbox) == ["Ann"]


def test_a_process_killed_in_the_middle_leaves_the_tables_as_they_were_before(sandbox: Sandbox) -> None:
    sandbox.begin([PEOPLE])
    sandbox.run("INSERT INTO people VALUES (4, 'Dan')")
    sandbox.run("CREATE VIEW v AS SELECT count(*) AS n FROM people")
    killed = process_of(sandbox)

    def kill() -> None:
        time.sleep(0.3)
        os.kill(killed, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    reported = sandbox.run(HANGS).error
    killer.join()
    assert reported
    assert names(sandbox) == ["Ann", "Bob", None, "Dan"]
    assert sandbox.run("SELECT n FROM v").rows == ((4,),)


def test_a_process_killed_between_two_statements_is_not_noticed(sandbox: Sandbox) -> None:
    sandbox.run("UPDATE people SET name = 'Eve' WHERE name IS NULL RETURNING id")
    os.kill(process_of(sandbox), signal.SIGKILL)
    while sandbox._child.running:
        time.sleep(0.01)
    assert names(sandbox) == ["Ann", "Bob", "Eve"]


def test_a_table_that_hangs_its_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLACK", 0.3 - SMALL.seconds)
    with pytest.raises(EnvironmentFailed, match="started"):
        Sandbox(SMALL).begin([Table("t", f"CREATE TABLE t AS {HANGS}")])


def test_a_sandbox_never_reads_the_tables_of_another_whose_process_it_takes_over(sandbox: Sandbox) -> None:
    with closing(Sandbox()) as other:
        other.begin([Table("people", "CREATE TABLE people (id INTEGER, name TEXT)", [[9, "Zoe"]])])
    sandbox._child._process.end()
    sandbox._child.close()
    assert_unharmed(sandbox)
