"""The database tasks that come with the program: what they ask can be solved, and a careless statement can mislead."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from memrl_core.environments.databases.sql_world import Sql
from memrl_core.environments.tasks import sample_data_path, sample_tasks
from memrl_core.models.simulated import _carried
from memrl_core.prompting import FOLLOW, STEPS_THAT_WORKED, TASK_LINE, YOUR_TASK
from memrl_core.records import Task

SETS = ("sql-train", "sql-heldout")
Row = dict[str, Any]


@cache
def tasks_of(name: str) -> tuple[Task, ...]:
    return tuple(sample_tasks(name))


def every_task() -> list[Task]:
    return [task for name in SETS for task in tasks_of(name)]


def of_family(family: str) -> list[Task]:
    return [task for task in every_task() if task.family == family]


def came_of(task: Task, statement: str, pragma: str = "") -> Any:
    """What a statement leads to: rows, in order where that counts, or all tables; None when it does not run."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table in task.data["tables"]:
            database.execute(table["create"])
            database.executemany(
                f"INSERT INTO {table['name']} VALUES ({','.join('?' * len(table['rows'][0]))})", table["rows"]
            )
        database.execute(pragma)
        try:
            rows = database.execute(statement).fetchall()
        except sqlite3.Error:
            return None
        if task.data["kind"] == "query":
            return rows if task.data["ordered"] else Counter(rows)
        return {
            table["name"]: Counter(database.execute(f"SELECT * FROM {table['name']}")) for table in task.data["tables"]
        }


@cache
def results() -> dict[str, tuple[Any, list[str]]]:
    """By id of task: where its reference leads, and the drafts that lead there."""
    found = {}
    for task in every_task():
        wanted = came_of(task, task.data["reference"])
        found[task.id] = wanted, [draft for draft in task.data["drafts"] if came_of(task, draft) == wanted]
    return found


def expected(task: Task) -> Any:
    return results()[task.id][0]


def passing(task: Task) -> list[str]:
    return results()[task.id][1]


@cache
def parts() -> list[list[str]]:
    text = (sample_data_path() / "sql_tasks" / "words.csv").read_text(encoding="utf-8")
    return [line.split(",") for line in text.splitlines()]


def schema_of(task: Task) -> str:
    name = task.data["tables"][0]["name"]
    return next(parts()[0][words.index(name)] for words in parts() if name in words)


# --- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_sets_are_what_their_maker_writes(tmp_path: Path) -> None:
    shutil.copy(sample_data_path() / "make_sql_tasks.py", tmp_path)
    shutil.copytree(sample_data_path() / "sql_tasks", tmp_path / "sql_tasks")
    subprocess.run([sys.executable, str(tmp_path / "make_sql_tasks.py")], check=True)
    for name in SETS:
        made = (tmp_path / "tasks" / f"{name}.jsonl").read_bytes()
        assert made == (sample_data_path() / "tasks" / f"{name}.jsonl").read_bytes()
        assert len(made) < 500_000


def test_no_task_and_no_family_in_the_same_schema_stands_in_both_sets() -> None:
    train, heldout = ({(task.family, schema_of(task)) for task in tasks_of(name)} for name in SETS)
    assert not train & heldout
    assert {family for family, _ in train} == {family for family, _ in heldout}
    assert len({task.intent for task in every_task()}) == len(every_task()) == len({task.id for task in every_task()})


def test_a_task_fits_the_layout_of_prompts_and_names_each_identifier() -> None:
    for task in every_task():
        statements = [task.data["reference"], *task.data["near_misses"], *task.data["drafts"]]
        assert all(len(text.splitlines()) == 1 and ";" not in text and "--" not in text for text in statements)
        assert len(task.intent.splitlines()) == 1 and task.intent[0].isalpha()
        identifiers = {
            word for table in task.data["tables"] for word in re.findall(r"(?<=[ (])[a-z_]+", table["create"])
        }
        used = identifiers & set(re.findall(r"\w+", task.data["reference"])) - {"id"}
        literals = re.findall(r"'([a-z]+)'", task.data["reference"])
        assert {*used, *literals} <= set(re.findall(r"\w+", task.intent)), task.id


# --- the traps --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_references_solve_their_tasks_and_near_misses_do_not() -> None:
    for task in every_task():
        unchanged = came_of(task, "SELECT 1")
        assert expected(task) not in (None, [], Counter()), task.id
        assert task.data["kind"] == "query" or expected(task) != unchanged, task.id
        assert all(came_of(task, wrong) != expected(task) for wrong in task.data["near_misses"]), task.id


def test_the_judge_of_the_environment_finds_no_fault() -> None:
    one_of_each = {(task.family, len(passing(task))): task for task in every_task()}
    assert [fault for task in one_of_each.values() for fault in Sql.faults(task)] == []


@pytest.mark.parametrize("name", SETS)
def test_in_every_family_a_second_draft_passes_in_some_tasks_and_fails_in_others(name: str) -> None:
    numbers: dict[str, set[int]] = defaultdict(set)
    for task in tasks_of(name):
        numbers[task.family].add(len(passing(task)))
    assert all(found == {1, 2} for found in numbers.values())


def test_an_order_that_counts_is_total() -> None:
    ordered = [task for task in every_task() if task.data["ordered"]]
    assert len({task.family for task in ordered}) >= 2
    for task in ordered:
        assert came_of(task, task.data["reference"], "PRAGMA reverse_unordered_selects = ON") == expected(task)


# --- carried over -----------------------------------------------------------------------------------------------------


def pairs_of_a_family() -> Iterator[tuple[Task, Task]]:
    """A task to learn from and a held-out one, of one family."""
    return ((one, other) for one, other in product(*map(tasks_of, SETS)) if one.family == other.family)


def carried_over(known: Task, statement: str, new: Task) -> str:
    """What the simulated model makes of `statement`, remembered from one task, in another."""
    memory = f"[memory m]\n{TASK_LINE}{known.intent}\n{STEPS_THAT_WORKED}\n> {statement}\n"
    return _carried(f"{FOLLOW}\n\n{memory}\n{YOUR_TASK}\n\n{TASK_LINE}{new.intent}\n")[1][0].lines[0]


def test_the_reference_of_one_task_becomes_that_of_another_when_its_words_are_replaced() -> None:
    pairs = list(pairs_of_a_family())
    exact = sum(carried_over(one, one.data["reference"], other) == other.data["reference"] for one, other in pairs)
    assert len(pairs) > 600
    assert exact / len(pairs) >= 0.95


# --- oracles: the same answers without SQL ----------------------------------------------------------------------------


def table_of(task: Task, name: str) -> list[Row]:
    table = next(table for table in task.data["tables"] if table["name"] == name)
    columns = [column.split()[0] for column in table["create"].split("(", 1)[1].split(",")]
    return [dict(zip(columns, row, strict=True)) for row in table["rows"]]


def asked(task: Task, pattern: str) -> tuple[str, ...]:
    found = re.match(pattern, task.intent)
    assert found, task.intent
    return found.groups()


def test_shared_first_places_are_those_that_python_finds() -> None:
    for task in of_family("shared-first-place"):
        label, size, who = asked(task, r"List the (\w+) and (\w+) of the row of (\w+) with")
        rows = [row for row in table_of(task, who) if row[size] is not None]
        best = max(row[size] for row in rows)
        assert expected(task) == Counter((row[label], row[size]) for row in rows if row[size] == best)


def test_counts_with_zeros_are_those_that_python_finds() -> None:
    pattern = (
        r"For every row of (\w+) give the (\w+) and how many rows of (\w+) with the (\w+) '(\w+)' mention it in (\w+)"
    )
    for task in of_family("count-with-zero"):
        who, label, what, state, value, refers = asked(task, pattern)
        counts = Counter(row[refers] for row in table_of(task, what) if row[state] == value)
        assert expected(task) == Counter((row[label], counts[row["id"]]) for row in table_of(task, who))


def test_what_is_left_after_clearing_is_what_python_leaves() -> None:
    pattern = r"Delete every row of (\w+) whose (\w+) falls on the day '([\d-]+)' or on an earlier one"
    for task in of_family("clear-until"):
        what, moment, day = asked(task, pattern)
        left = [row for row in table_of(task, what) if row[moment].split()[0] > day]
        assert expected(task) == {what: Counter(tuple(row.values()) for row in left)}


def test_tallies_are_those_that_python_adds_up() -> None:
    pattern = (
        r"Set the (\w+) of every row of (\w+) to the sum of (\w+) over the rows of (\w+) that mention its id in (\w+)"
    )
    for task in of_family("tally"):
        tally, who, amount, what, refers = asked(task, pattern)
        sums: Counter[int] = Counter()
        for row in table_of(task, what):
            sums[row[refers]] += row[amount]
        kept = [{**row, tally: sums[row["id"]]} for row in table_of(task, who)]
        assert expected(task)[who] == Counter(tuple(row.values()) for row in kept)
