"""DB-bench of LifelongAgentBench: its file read into tasks, and how they are judged."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memrl_core.environments.databases import lifelong_db as reader
from memrl_core.environments.databases.judging import database_task
from memrl_core.environments.databases.lifelong_db import (
    LifelongDb,
    LifelongFile,
    family_of,
    is_lifelong,
    read_lifelong,
)
from memrl_core.environments.databases.mysql import CHILD, columns_of, to_sqlite
from memrl_core.environments.databases.sandbox import Sandbox, Table
from memrl_core.errors import InputError
from memrl_core.prompting import offered
from memrl_core.records import Reply, Task, Turn

PUBLISHED = next(
    (found for folder in Path(__file__).parents if (found := folder / "shared/data/lifelong_db_sample.json").is_file()),
    Path("lifelong_db_sample.json"),
)

COLUMNS = (("bee_id", "INT"), ("hive", "TEXT"), ("trips", "INT"), ("honey", "INT"))
BEES: Sequence[Sequence[Any]] = (
    (1, "South", 4, 10),
    (2, "North", 9, 7),
    (3, "South", 6, 3),
    (4, "East", 2, 8),
    (5, "North", 5, 5),
    (6, "West", 8, 1),
)
BUSY = "SELECT bee_id FROM bees WHERE trips > 5;"
MOVE = "UPDATE bees SET hive = 'West' WHERE trips < 5;"
BY_HIVE = "SELECT hive, AVG(honey) AS mean FROM bees GROUP BY hive LIMIT 2 OFFSET 1;"
BY_HIVE_ROWS = [["North", 6.0], ["East", 8.0]]


def an_entry(sql: str = BUSY, direct: Any = ([2], [3], [6]), as_text: bool = True, **other: Any) -> dict[str, Any]:
    """An entry in the layout of the file; `direct` None is for changes."""
    table = {
        "name": "bees",
        "column_info_list": [{"name": name, "type": written} for name, written in COLUMNS],
        "row_list": [list(row) for row in BEES],
    }
    answer = {"md5": None if direct else "0" * 32, "direct": direct and [list(row) for row in direct], "sql": sql}
    parts = {"table_info": table, "answer_info": answer, "skill_list": ["select", "where_single_condition"]} | other
    written = {key: repr(part) if as_text and not isinstance(part, str) else part for key, part in parts.items()}
    return {"instruction": "Which bees made more than five trips? Give their numbers.", **written}


def with_direct(direct: str) -> dict[str, Any]:
    return an_entry() | {"answer_info": f"{{'sql': {BUSY!r}, 'direct': {direct}}}"}


def with_table(columns: Sequence[tuple[str, str]], *rows: list[Any]) -> dict[str, Any]:
    listed = [{"name": name, "type": written} for name, written in columns]
    return an_entry(table_info={"name": "t", "column_info_list": listed, "row_list": list(rows)})


def a_change(sql: str = MOVE) -> dict[str, Any]:
    return an_entry(sql, None)


def a_file(*entries: Mapping[str, Any]) -> LifelongFile:
    return read_lifelong(json.dumps({str(number): entry for number, entry in enumerate(entries)}))


def a_task(**entry: Any) -> Task:
    read = a_file(an_entry(**entry))
    assert read.reported == ()
    return read.tasks[0]


def why(entry: Any) -> str:
    """The one reason why an entry is not used."""
    read = a_file(entry)
    assert read.tasks == () and len(read.reported) == 1
    assert read.reported[0].where == "entry 0"
    return read.reported[0].reason


# --- the published file -----------------------------------------------------------------------------------------------

needs_the_file = pytest.mark.skipif(
    not PUBLISHED.is_file(),
    reason="shared/data/lifelong_db_sample.json, of LifelongAgentBench and not ours to ship, is not beside the project",
)


@pytest.fixture(scope="module")
def published() -> LifelongFile:
    return read_lifelong(PUBLISHED.read_bytes())


@needs_the_file
def test_every_published_task_is_accepted_and_can_be_told_from_near_misses(published: LifelongFile) -> None:
    assert len(published.tasks) == 62
    assert published.reported == ()
    assert all(1 <= len(task.data["near_misses"]) <= 3 for task in published.tasks)
    assert len({task.family for task in published.tasks}) > 5


@needs_the_file
def test_published_changes_leave_the_very_table_that_mysql_left(published: LifelongFile) -> None:
    """The hash that was published is MySQL's own: of the sorted hashes of the rows, five digits each."""
    hashes = {f"lifelong-db-{key}": _literal(entry, "md5") for key, entry in json.loads(PUBLISHED.read_text()).items()}
    changes = [task for task in published.tasks if task.data["kind"] == "modification"]
    assert len(changes) > 10
    for task in changes:
        assert _hash(_after(task, task.data["reference"])) == hashes[task.id]


def _literal(entry: Mapping[str, str], key: str) -> Any:
    return ast.literal_eval(entry["answer_info"])[key]


def _after(task: Task, statement: str) -> Sequence[Sequence[Any]]:
    made = database_task(task).made
    with closing(Sandbox(child=CHILD)) as sandbox:
        sandbox.begin(made)
        sandbox.run(to_sqlite(statement, columns_of(made[0].create)))
        return sandbox.content()[made[0].name]


def _hash(rows: Sequence[Sequence[Any]]) -> str:
    lines = [",".join(str(value) for value in row if value is not None) for row in rows]
    return hashlib.md5(
        ",".join(sorted(hashlib.md5(line.encode()).hexdigest()[:5] for line in lines)).encode()
    ).hexdigest()


@needs_the_file
def test_every_published_statement_handed_in_at_once_solves_its_task(
    published: LifelongFile, world: LifelongDb
) -> None:
    for task in published.tasks:
        assert info(world, task, f"{task.data['reference']}; COMMIT")["success"], task.id


# --- reading ----------------------------------------------------------------------------------------------------------


def test_an_entry_becomes_a_task() -> None:
    task = a_task()
    assert (task.id, task.environment, task.family) == ("lifelong-db-0", "lifelong_db", "select where")
    assert task.intent.endswith("Give their numbers. The table bees has the columns bee_id, hive, trips, honey.")
    assert task.data["kind"] == "query" and task.data["ordered"] is False
    assert task.data["reference"] == BUSY
    assert task.data["expected"] == [[2], [3], [6]]
    assert task.data["skills"] == ["select", "where_single_condition"]
    assert json.loads(json.dumps(task.data)) == task.data


def test_the_parts_of_an_entry_may_be_json_as_well() -> None:
    assert a_task(as_text=False) == a_task()


def test_drafts_look_alike_and_one_of_them_solves_the_task() -> None:
    task = a_task()
    assert len(task.data["drafts"]) == 4
    assert task.data["drafts"][1:] == task.data["near_misses"]
    assert not any(draft.endswith(";") for draft in task.data["drafts"])
    assert LifelongDb.faults(task) == []


def test_only_such_a_file_is_taken_for_one() -> None:
    assert is_lifelong({"0": an_entry()})
    assert not any(map(is_lifelong, ([], {}, {"intent": "x"}, {"0": {"instruction": "x"}}, "text", None)))


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (7, "valid dictionary"),
        ({key: part for key, part in an_entry().items() if key != "instruction"}, "instruction: Field required"),
        (an_entry() | {"instruction": "  "}, "empty"),
        (an_entry(table_info="["), "no Python literal"),
        (an_entry(table_info="[" * 100_000), "no Python literal"),
        (an_entry(table_info="-" * 100_000 + "1"), "no Python literal"),
        (an_entry(table_info="1" + "+1" * 50_000), "no Python literal"),
        (an_entry(table_info="'" + "x" * 300_000 + "'"), "at most 200,000"),
        (an_entry(table_info="__import__('os')"), "no Python literal"),
        (an_entry(table_info={"name": "bees", "row_list": []}), "column_info_list"),
        (an_entry(skill_list=[1]), "skill_list"),
        (with_table([("a", "BLOB")]), "type"),
        (with_table([("a", "INT"), ("A", "INT")]), "duplicate column"),
        (with_table([("a", "INT")], [1], []), "bindings"),
        (an_entry(sql="SELECT nothing FROM bees"), "does not run"),
        (an_entry(sql="SELECT FROM"), "not MySQL"),
        (an_entry(sql="DROP TABLE bees"), "Only SELECT"),
        (an_entry(sql="SHOW TABLES"), "Only SELECT"),
        (an_entry(direct=[[2], [3]]), "3 rows"),
        (
            an_entry(sql="SELECT bee_id FROM bees WHERE trips > 5 ORDER BY trips", direct=[[2], [6], [3]]),
            "order is not",
        ),
        (an_entry() | {"instruction": "\x00\x1b"}, "empty"),
        (an_entry() | {"instruction": "x" * 20_001}, "20,000"),
        (with_direct("[([1],)]"), "direct"),
        (with_direct("[(2,), ({},)]"), "direct"),
        (with_direct("[({1},)]"), "direct"),
        (with_direct("[(b'x',)]"), "direct"),
        (with_direct("[(1e999,)]"), "direct"),
        (with_direct(f"[({'9' * 400},)]"), "direct"),
        (an_entry(direct=None), "no rows"),
        (an_entry(sql=MOVE), "rows"),
        (a_change("DELETE FROM bees WHERE trips > 99"), "doing nothing"),
        (a_change("DELETE FROM bees WHERE trips > (SELECT AVG(trips) FROM bees)"), "error 1093"),
    ],
)
def test_an_entry_that_cannot_be_used_is_reported_with_the_reason(entry: Any, shown: str) -> None:
    reason = why(entry)
    assert shown in reason
    assert len(reason) < 600


def test_the_rest_of_a_file_is_kept() -> None:
    read = a_file(an_entry(), 7, a_change())
    assert [task.id for task in read.tasks] == ["lifelong-db-0", "lifelong-db-2"]
    assert [one.where for one in read.reported] == ["entry 1"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "not a JSON object"),
        ("[" * 100_000, "recursion"),
        ("1" * 10_000, "not JSON"),
        (b"{\xff}", "not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_as_a_whole_is_refused(text: Any, shown: str) -> None:
    with pytest.raises(InputError, match=shown) as refused:
        read_lifelong(text)
    assert "Nothing was read" in str(refused.value)


def test_a_table_that_is_too_large_to_be_kept_in_every_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    known = a_task().data
    bare = {key: known[key] for key in ("tables", "kind", "reference", "ordered")}
    for longest in (100, len(json.dumps(bare)) + 10):
        monkeypatch.setattr(reader, "LONGEST_DATA", longest)
        assert f"{longest:,}" in why(an_entry())


@pytest.mark.parametrize(
    ("sql", "direct", "noted"),
    [
        (
            "SELECT hive FROM bees ORDER BY hive, trips",
            [["East"], ["North"], ["North"], ["South"], ["South"], ["West"]],
            False,
        ),
        ("SELECT bee_id FROM bees ORDER BY hive LIMIT 2", [[4], [2]], True),
        ("SELECT bee_id FROM bees WHERE trips < 6 ORDER BY hive", [[4], [5], [1]], False),
        ("SELECT bee_id FROM bees WHERE trips > 4 ORDER BY hive", [[2], [5], [3], [6]], True),
    ],
)
def test_a_note_tells_when_an_order_leaves_ties_open(sql: str, direct: Any, noted: bool) -> None:
    read = a_file(an_entry(sql, direct))
    assert len(read.tasks) == 1
    assert any("leaves ties open" in sentence for _, sentence in read.notes) is noted


@pytest.mark.parametrize(
    ("kind", "skills", "family"),
    [
        ("select", ["select", "having_aggregate_calculation", "group_by_single_column"], "select having"),
        ("select", ["where_single_condition", "subquery_nested", "select"], "select sub-select"),
        ("update", ["update", "where_single_condition"], "update"),
        ("delete", ["delete", "subquery_nested", "where_nested_conditions"], "delete sub-select"),
        ("insert", [], "insert"),
    ],
)
def test_tasks_of_one_sort_are_a_family(kind: str, skills: list[str], family: str) -> None:
    assert family_of(kind, skills) == family


# --- judging ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[LifelongDb]:
    made = LifelongDb()
    yield made
    made.close()


def info(world: LifelongDb, task: Task, reply: str) -> dict[str, Any]:
    world.reset(task, seed=1, at_step=1)
    return world.step(reply)[4]


@pytest.mark.parametrize(
    ("entry", "reply", "success"),
    [
        (an_entry(), "SELECT bee_id FROM bees WHERE trips >= 6; COMMIT;", True),
        (an_entry(), "SELECT bee_id FROM bees WHERE trips > 5 ORDER BY bee_id DESC; COMMIT;", True),
        (an_entry(), "SELECT bee_id FROM bees WHERE trips > 6; COMMIT;", False),
        (an_entry(), 'SELECT bee_id FROM bees WHERE hive = "north" OR trips IN (6, 8); COMMIT;', False),
        (an_entry(BY_HIVE, BY_HIVE_ROWS), BY_HIVE + " COMMIT;", True),
        (
            an_entry(BY_HIVE, BY_HIVE_ROWS),
            "SELECT hive, SUM(honey) / COUNT(*) FROM bees GROUP BY 1 LIMIT 1, 2; COMMIT",
            True,
        ),
        (an_entry(BY_HIVE, BY_HIVE_ROWS), "SELECT hive, AVG(honey) FROM bees GROUP BY hive LIMIT 2; COMMIT;", False),
        (a_change(), MOVE + " COMMIT;", True),
        (a_change(), "UPDATE bees b JOIN (SELECT 5 AS n) few SET b.hive = 'West' WHERE b.trips < few.n; COMMIT;", True),
        (a_change(), "UPDATE bees SET hive = 'west' WHERE trips < 5; COMMIT;", False),
        (
            a_change("UPDATE bees SET honey = honey * 1.15"),
            "UPDATE bees SET honey = ROUND(honey * 1.15); COMMIT;",
            True,
        ),
        (a_change(), "COMMIT;", False),
    ],
)
def test_what_is_handed_in_is_judged_by_running_it(
    world: LifelongDb, entry: Mapping[str, Any], reply: str, success: bool
) -> None:
    ended = info(world, a_file(entry).tasks[0], reply)
    assert ended["success"] is success
    assert bool(ended["judgement"].why) and bool(ended["judgement"].expected)


@pytest.mark.parametrize(
    "statement",
    [
        r"INSERT INTO bees VALUES (7, 'bee\'s', 1, 1)",
        r"INSERT INTO bees VALUES (7, 'a\'b; c', 1, 1)",
        r'INSERT INTO bees VALUES (7, "say \"; [hi]\\", 1, 1)',
        "INSERT INTO bees VALUES (7, 'South', 5--3, 1)",
        "UPDATE bees SET hive = 'West' # it's; near\nWHERE trips < 5",
        "UPDATE bees SET hive = 'West' -- it's; near\nWHERE trips < 5",
        "UPDATE bees SET hive = 5 WHERE trips < 5",
        "UPDATE bees SET hive = trips WHERE trips < 5",
    ],
)
def test_a_change_of_mysql_handed_in_at_once_solves_its_task(world: LifelongDb, statement: str) -> None:
    task = a_file(a_change(statement)).tasks[0]
    assert info(world, task, f"{statement}; COMMIT")["success"]
    assert LifelongDb.faults(task) == []
    drafting = LifelongDb(drafts=True)
    lines = offered(drafting.reset(task, seed=1, at_step=1))
    drafting.close()
    assert any(info(world, task, line)["success"] for line in lines)


def test_the_memory_of_a_change_with_a_backslash_is_typed_as_it_stands(world: LifelongDb) -> None:
    statement = r"INSERT INTO bees VALUES (7, 'bee\'s; # own', 5--3, 1)"
    task = a_file(a_change(statement)).tasks[0]
    reply = f"{statement};\nCOMMIT # it's done"
    world.reset(task, seed=1, at_step=1)
    observation, reward, terminated, truncated, _ = world.step(reply)
    assert reward == 1
    turn = Turn(Reply(reply), observation, reward, terminated, truncated)
    line = world.distil(task, [turn], "success").splitlines()[-1]
    assert info(world, task, line)["success"]


@pytest.mark.parametrize(
    ("sql", "direct", "answer", "solved"),
    [
        ("SELECT bee_id FROM bees ORDER BY hive LIMIT 3", [[4], [5], [2]], "ORDER BY hive, trips DESC LIMIT 3", True),
        ("SELECT bee_id FROM bees ORDER BY hive LIMIT 3", [[4], [5], [2]], "ORDER BY hive DESC LIMIT 3", False),
        ("SELECT bee_id FROM bees ORDER BY hive LIMIT 2", [[4], [5]], "WHERE bee_id IN (2, 4) ORDER BY hive", True),
        ("SELECT bee_id FROM bees ORDER BY hive LIMIT 2", [[4], [5]], "WHERE bee_id IN (2, 5) ORDER BY hive", False),
    ],
)
def test_rows_that_an_order_leaves_level_may_be_published_and_handed_in_in_any_order(
    world: LifelongDb, sql: str, direct: Any, answer: str, solved: bool
) -> None:
    task = a_task(sql=sql, direct=direct)
    assert task.data["ordered"] is True
    assert info(world, task, f"SELECT bee_id FROM bees {answer}; COMMIT;")["success"] is solved


def test_a_task_with_a_damaged_reference_has_a_fault() -> None:
    task = a_task()
    broken = Task(task.id, task.intent, task.environment, "", {**task.data, "reference": "SELECT nothing FROM bees"})
    assert "no such column" in LifelongDb.faults(broken)[0]
    assert LifelongDb.faults(Task("x", "y", "lifelong_db")) != []


def test_functions_of_mysql_run_in_the_sandbox_and_its_limits_hold() -> None:
    sandbox = Sandbox(child=CHILD)
    sandbox.begin([Table("t", "CREATE TABLE t (a INT)", [[1], [3]])])
    assert sandbox.run(to_sqlite("SELECT STDDEV(a), DATE_FORMAT('2024-03-01', '%M') FROM t")).rows == ((1.0, "March"),)
    assert "not allowed" in sandbox.run("SELECT random()").error
    sandbox.close()
