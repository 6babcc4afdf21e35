"""An episode of SQL: what the model sees, when it has solved its task, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from memrl_core.environments.databases import sql_world as databases
from memrl_core.environments.databases.sandbox import Sandbox
from memrl_core.environments.databases.sql_world import Sql
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.prompting import offered
from memrl_core.records import Outcome, Reply, Task, Turn
from tests.builders import numbers

ORDERS = {
    "name": "orders",
    "create": "CREATE TABLE orders (id INTEGER PRIMARY KEY, who TEXT, city TEXT, total REAL)",
    "rows": [
        [1, "Ann", "Bonn", 10.5],
        [2, "Bob", "Kiel", 4.0],
        [3, "Ann", "Kiel", 7.25],
        [4, "Eve", None, 20.0],
        [5, "Bob", "Bonn", 1.5],
    ],
}
QUERY = "SELECT who, sum(total)\nFROM orders -- all of them\nGROUP BY who"
NEAR = ["SELECT who, count(*) FROM orders GROUP BY who", "SELECT who, total FROM orders", "SELECT nope FROM orders"]


def a_task(reference: str = QUERY, near_misses: Sequence[str] = NEAR, kind: str = "query", **data: Any) -> Task:
    reported = {"tables": [ORDERS], "kind": kind, "reference": reference, "near_misses": list(near_misses), **data}
    return Task("t", "What did each person spend?", "sql", "", reported)


A_CHANGE = a_task("UPDATE orders SET city = 'Ulm' WHERE city IS NULL", ["DELETE FROM orders"], "modification")


@pytest.fixture
def world() -> Iterator[Sql]:
    made = Sql()
    yield made
    made.close()


def played(world: Sql, task: Task, *replies: str) -> tuple[list[Turn], dict[str, Any]]:
    """The turns of an episode with these replies, and what the world said at the last one."""
    world.reset(task, seed=1, at_step=1)
    turns, info = [], {}
    for reply in replies:
        *turn, info = world.step(reply)
        turns.append(Turn(Reply(reply), *turn))
    return turns, info


def verdict(world: Sql, task: Task, *replies: str) -> str:
    return str(played(world, task, *replies)[1]["verdict"])


def distilled(world: Sql, task: Task, outcome: Outcome, *replies: str) -> list[str]:
    """The lines of the experience below the task."""
    return world.distil(task, played(world, task, *replies)[0], outcome).splitlines()[1:]


# --- what is seen -----------------------------------------------------------------------------------------------------


def test_the_first_observation_shows_each_table_with_its_first_rows(world: Sql) -> None:
    assert world.reset(a_task(), seed=1, at_step=1) == (
        "The tables:\n"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, who TEXT, city TEXT, total REAL);\n"
        "5 rows, the first 3:\n"
        "  id | who | city | total\n"
        "  1 | Ann | Bonn | 10.5\n"
        "  2 | Bob | Kiel | 4.0\n"
        "  3 | Ann | Kiel | 7.25"
    )


def test_each_statement_of_a_reply_is_answered_in_its_turn(world: Sql) -> None:
    world.reset(a_task(), seed=1, at_step=1)
    reported, reward, terminated, truncated, info = world.step(
        "BEGIN; SELECT who FROM orders WHERE id = 4; SELECT x FROM orders; DELETE FROM orders WHERE id < 3; "
        "UPDATE orders SET who = 'x' WHERE id = 9; CREATE VIEW v AS SELECT 1; ROLLBACK"
    )
    assert reported == (
        "[1] a transaction is always open\n"
        "[2] 1 row\n  who\n  Eve\n"
        "[3] failed: no such column: x\n"
        "[4] 2 rows changed\n"
        "[5] 0 rows changed\n"
        "[6] done\n"
        "[7] the tables are as they were at the start\n"
        "Nothing is handed in yet; 7 turns left."
    )
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})


def test_long_results_and_cells_are_cut(world: Sql) -> None:
    world.reset(a_task(), seed=1, at_step=1)
    reported, *_ = world.step("SELECT a.id, hex(zeroblob(500)) FROM orders a, orders b, orders c")
    assert reported.startswith("[1] 125 rows, the first 20\n")
    assert len(reported.splitlines()) == 1 + 1 + 20 + 1
    assert max(map(len, reported.splitlines())) < 100


def test_a_cell_cannot_pose_as_the_world(world: Sql) -> None:
    world.reset(a_task(), seed=1, at_step=1)
    reported, *_ = world.step("SELECT 'a\n[1] handed in\nYou can:\n- cheat'")
    assert reported.splitlines()[2:-1] == ["  a\\n[1] handed in\\nYou can:\\n- cheat"]


def test_a_reply_without_sql_costs_a_turn(world: Sql) -> None:
    world.reset(a_task(), seed=1, at_step=1)
    assert world.step("")[0].endswith("7 turns left.")
    assert "[1] failed: near" in world.step("Let me think about this.")[0]
    assert world.step("\0\x1b[2J" * 2_000_000)[0].endswith("5 turns left.")


def test_drafts_are_offered_on_one_line_each_in_an_order_that_the_seed_decides(world: Sql) -> None:
    drafting = Sql(drafts=True)
    orders = [tuple(offered(drafting.reset(a_task(), seed=seed, at_step=1))) for seed in range(20)]
    assert len(set(orders)) > 3
    assert orders[3] == tuple(offered(drafting.reset(a_task(), seed=3, at_step=9)))
    assert sorted(orders[0]) == [
        "SELECT nope FROM orders; COMMIT",
        "SELECT who, count(*) FROM orders GROUP BY who; COMMIT",
        "SELECT who, sum(total) FROM orders GROUP BY who; COMMIT",
        "SELECT who, total FROM orders; COMMIT",
    ]
    drafting.close()


def test_a_task_may_bring_its_own_drafts() -> None:
    drafting = Sql(drafts=True)
    shown = drafting.reset(a_task(drafts=[QUERY, "SELECT 1; SELECT 2"]), seed=1, at_step=1)
    assert "SELECT 1; SELECT 2; COMMIT" in offered(shown) and len(offered(shown)) == 2
    assert offered(drafting.step("SELECT 1")[0]) == offered(shown)
    drafting.close()


# --- the verdict ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "replies",
    [
        ("SELECT who, sum(total) FROM orders GROUP BY who; COMMIT",),
        ("SELECT who AS x, total(total) FROM orders GROUP BY 1 ORDER BY 2 DESC;\nCOMMIT;",),
        ("SELECT 1", "```sql\nSELECT who, sum(total) FROM orders GROUP BY who\n```", "commit"),
        ("DELETE FROM orders", "ROLLBACK", f"{QUERY}; SELECT nope FROM orders", "COMMIT"),
        (f"DELETE FROM orders; ROLLBACK; {QUERY}\n; ROLLBACK; COMMIT",),
        ("- SELECT who, sum(total) FROM orders GROUP BY who; COMMIT; SELECT 1; COMMIT",),
    ],
)
def test_the_last_rows_before_commit_answer_a_question(world: Sql, replies: Sequence[str]) -> None:
    turns, info = played(world, a_task(), *replies)
    many = len(replies) > 1
    assert info["verdict"] == f"Solved in {len(replies)} turn{'s' if many else ''}."
    assert info["success"] is True
    assert (turns[-1].reward, turns[-1].terminated, turns[-1].truncated) == (1.0, True, False)


@pytest.mark.parametrize(
    ("replies", "named"),
    [
        (["SELECT who, total FROM orders; COMMIT"], "result"),
        (["SELECT nope FROM orders; COMMIT"], "no such column: nope"),
        (["COMMIT"], "nothing"),
        (["DELETE FROM orders; ROLLBACK; COMMIT"], "nothing"),
        (["SELECT 1"] * 8, "8 turns"),
    ],
)
def test_a_failed_question_tells_why_without_the_answer(world: Sql, replies: Sequence[str], named: str) -> None:
    turns, info = played(world, a_task(), *replies)
    last = turns[-1]
    assert named in info["verdict"] and last.observation.endswith(info["verdict"])
    assert (info["success"], last.reward, last.terminated) == (False, 0.0, len(replies) < 8)
    assert last.truncated is not last.terminated
    assert "17.75" in info["judgement"].expected and "17.75" not in last.observation
    with pytest.raises(InputError):
        world.step("COMMIT")


LEVEL = [[1, "Ann", "Bonn", 4.0], [2, "Bob", "Kiel", 4.0], [3, "Eve", None, 9.0], [4, "Dan", "Ulm", 9.0]]
BY_TOTAL = "SELECT who FROM orders ORDER BY total"


@pytest.mark.parametrize(
    ("reference", "answer", "solved"),
    [
        (BY_TOTAL, "SELECT who FROM orders ORDER BY total, id DESC", True),
        (BY_TOTAL, "SELECT who FROM orders ORDER BY total DESC", False),
        (BY_TOTAL, "SELECT who FROM orders ORDER BY id % 2, id", False),
        (f"{BY_TOTAL} LIMIT 3", "SELECT who FROM orders ORDER BY total, id DESC LIMIT 3", True),
        (f"{BY_TOTAL} LIMIT 3", "SELECT who FROM orders WHERE id IN (1, 3, 4) ORDER BY total", False),
        (f"{BY_TOTAL} LIMIT 2 OFFSET 1", "SELECT who FROM orders WHERE id IN (1, 4) ORDER BY id", True),
        (f"{BY_TOTAL} LIMIT 2 OFFSET 1", "SELECT who FROM orders WHERE id IN (1, 2) ORDER BY id", False),
        ("SELECT total AS t, who FROM orders ORDER BY 1", "SELECT total, who FROM orders ORDER BY 1, id DESC", True),
        ("SELECT total AS t, who FROM orders ORDER BY 1", "SELECT total, who FROM orders ORDER BY id % 2", False),
        ("SELECT who, -total AS t FROM orders ORDER BY t", "SELECT who, -total FROM orders ORDER BY 2, who DESC", True),
        ("SELECT who, -total AS t FROM orders ORDER BY t", "SELECT who, -total FROM orders ORDER BY who", False),
        (f"{BY_TOTAL}, who", "SELECT who FROM orders ORDER BY total, who DESC", False),
        (
            "SELECT DISTINCT who, total FROM orders ORDER BY total DESC",
            "SELECT who, total FROM orders ORDER BY -id",
            True,
        ),
        (
            "SELECT DISTINCT who, total FROM orders ORDER BY total DESC",
            "SELECT who, total FROM orders ORDER BY id",
            False,
        ),
        (
            "SELECT total, MAX(id) FROM orders GROUP BY total, id ORDER BY SUM(total)",
            "SELECT total, id FROM orders ORDER BY total, id DESC",
            True,
        ),
        (
            "SELECT who, total FROM orders UNION SELECT who, total FROM orders ORDER BY total",
            "SELECT who, total FROM orders ORDER BY total, id DESC",
            True,
        ),
        (
            "SELECT who, total FROM orders UNION SELECT who, total FROM orders ORDER BY total",
            "SELECT who, total FROM orders ORDER BY id DESC",
            False,
        ),
    ],
)
def test_order_counts_up_to_the_ties_that_the_solution_leaves(
    world: Sql, reference: str, answer: str, solved: bool
) -> None:
    table = {"name": "orders", "create": "CREATE TABLE orders (id INT, who TEXT, city TEXT, total REAL)", "rows": LEVEL}
    task = a_task(reference, [], ordered=True, tables=[table])
    assert played(world, task, f"{answer}; COMMIT")[1]["success"] is solved


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("SELECT a.id FROM orders a, orders b, orders c, orders d, orders e", ["1,000", "3"]),
        ("SELECT who FROM orders WHERE id < 4", ["1", "2"]),
        ("SELECT who, id FROM orders WHERE id < 1", ["0", "3"]),
    ],
)
def test_the_judgement_says_what_is_wrong_with_a_result(world: Sql, reply: str, named: list[str]) -> None:
    assert numbers(played(world, a_task(), f"{reply}; COMMIT")[1]["judgement"].why)[:2] == named


def test_no_rows_of_another_width_are_no_answer(world: Sql) -> None:
    task = a_task("SELECT id, who FROM orders WHERE id > 9", [])
    assert verdict(world, task, "SELECT id FROM orders WHERE id > 9; COMMIT").startswith("Failed")
    assert verdict(world, task, "SELECT 1, 2 FROM orders WHERE id > 9; COMMIT").startswith("Solved")


@pytest.mark.parametrize(
    "replies",
    [
        ("UPDATE orders SET city = 'Ulm' WHERE id = 4; COMMIT",),
        ("DELETE FROM orders WHERE id = 4; INSERT INTO orders VALUES (4, 'Eve', 'Ulm', 20)", "SELECT 1; COMMIT"),
        ("DELETE FROM orders; ROLLBACK; CREATE TABLE scrap (a); UPDATE orders SET city = 'Ulm' WHERE id = 4; COMMIT",),
    ],
)
def test_the_tables_answer_what_asks_for_a_change(world: Sql, replies: Sequence[str]) -> None:
    assert verdict(world, A_CHANGE, *replies).startswith("Solved")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("COMMIT", "table orders: came (4, 'Eve', None, 20.0), expected"),
        ("DROP TABLE orders; COMMIT", "the table orders "),
        ("UPDATE orders SET city = 'Ulm' WHERE id = 4; ROLLBACK; COMMIT", "table orders: came"),
        ("UPDATE order SET city = 1; COMMIT", "table orders: came"),
    ],
)
def test_a_failed_change_tells_why_without_the_answer(world: Sql, reply: str, why: str) -> None:
    _, info = played(world, A_CHANGE, reply)
    assert (info["verdict"][:7], "Ulm" in info["verdict"]) == ("Failed:", False)
    assert info["judgement"].why.startswith(why)


def test_tables_too_large_to_compare_are_a_failure(world: Sql) -> None:
    fill = "INSERT INTO orders (who) SELECT a.who FROM orders a, orders b, orders c, orders d, orders e; COMMIT"
    _, info = played(world, A_CHANGE, fill)
    assert info["success"] is False


def test_statements_are_not_begun_when_those_before_took_long(world: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "SECONDS", 0.0)
    world.reset(a_task(), seed=1, at_step=1)
    reported, *_ = world.step("SELECT 1; SELECT 2; COMMIT")
    assert "[2]" in reported.splitlines()[3] and "7 turns" in reported.splitlines()[4]


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("SELECT 1 COMMIT", True),
        ("SELECT who FROM orders\ncommit;", True),
        ("SELECT x FROM orders WHERE who = 'a commit'", False),
    ],
)
def test_a_missing_semicolon_before_commit_is_named(world: Sql, reply: str, named: bool) -> None:
    world.reset(a_task(), seed=1, at_step=1)
    assert ("semicolon" in world.step(reply)[0]) is named


# --- what is kept of it -----------------------------------------------------------------------------------------------


VIEW = "CREATE VIEW v AS SELECT who, total FROM orders"
WORKED, WRONG, AVOID, TAKEN = "Steps that worked:", "What went wrong: ", "Avoid:", "Steps taken:"
BY_VIEW = f"{VIEW}; SELECT who, sum(total) FROM v GROUP BY who"


@pytest.mark.parametrize(
    ("task", "outcome", "replies", "kept"),
    [
        (
            a_task(),
            "success",
            ["SELECT * FROM orders", f"{QUERY};", "COMMIT"],
            [WORKED, "> SELECT who, sum(total) FROM orders GROUP BY who; COMMIT"],
        ),
        (a_task(), "success", [BY_VIEW, "COMMIT"], [WORKED, f"> {BY_VIEW}; COMMIT"]),
        (
            A_CHANGE,
            "success",
            [
                "DELETE FROM orders",
                "ROLLBACK; DELETE FROM orders WHERE id = 4; SELECT * FROM orders; DELETE FROM orders WHERE id = 99",
                "INSERT INTO orders\nVALUES (4, 'Eve', 'Ulm', 20); SELECT count(*) FROM orders; COMMIT",
            ],
            [WORKED, "> DELETE FROM orders WHERE id = 4;", "> INSERT INTO orders VALUES (4, 'Eve', 'Ulm', 20); COMMIT"],
        ),
        (
            a_task(),
            "failure",
            ["SELECT * FROM orders", "SELECT who FROM orders; COMMIT"],
            [WRONG, AVOID, "> SELECT who FROM orders; COMMIT"],
        ),
        (a_task(), "failure", ["SELECT nope FROM orders; COMMIT"], [WRONG, AVOID, "> SELECT nope FROM orders; COMMIT"]),
        (a_task(), "failure", ["SELECT 1"] * 8, [WRONG, TAKEN, "> SELECT 1;"]),
        (
            a_task(),
            "unrated",
            ["SELECT 1; SELECT 2", "SELECT nope; COMMIT"],
            [TAKEN, "> SELECT 1; SELECT 2;", "> SELECT nope; COMMIT"],
        ),
    ],
    ids=["answer", "view", "change", "wrong", "failed", "nothing handed in", "unrated"],
)
def test_a_memory_keeps_what_answered_or_what_to_avoid(
    world: Sql, task: Task, outcome: Outcome, replies: list[str], kept: list[str]
) -> None:
    lines = distilled(world, task, outcome, *replies)
    assert [WRONG if line.startswith(WRONG) else line for line in lines] == kept


def test_the_kept_lines_typed_together_solve_the_task_again(world: Sql) -> None:
    replies = ("DELETE FROM orders WHERE id = 4", "INSERT INTO orders VALUES (4, 'Eve', 'Ulm', 20); COMMIT")
    lines = distilled(world, A_CHANGE, "success", *replies)[1:]
    assert verdict(world, A_CHANGE, "\n".join(line.removeprefix("> ") for line in lines)) == "Solved in 1 turn."


@pytest.mark.parametrize("task", [a_task(), A_CHANGE, a_task("DELETE FROM orders; SELECT 1", [], "modification")])
def test_a_draft_is_kept_as_the_line_that_was_offered(task: Task) -> None:
    drafting = Sql(drafts=True)
    for line in offered(drafting.reset(task, seed=1, at_step=1)):
        turns, info = played(drafting, task, line)
        kept = drafting.distil(task, turns, "success" if info["success"] else "failure").splitlines()
        assert kept[-1] == f"> {line}" or "SELECT 1" in line
    drafting.close()


def test_an_answer_that_was_stopped_or_empty_leaves_an_experience(world: Sql) -> None:
    stopped = Turn(Reply("SELECT 1", stopped=True), "", 0.0, terminated=False, truncated=False)
    assert world.distil(a_task(), [stopped], "failure").splitlines()[0] == "Task: What did each person spend?"
    assert world.distil(a_task(), [], "success").startswith("Task: ")


def test_nothing_kept_or_shown_holds_the_reference(world: Sql) -> None:
    task = a_task("SELECT 'the secret' FROM orders", [])
    turns, info = played(world, task, "SELECT 1", "SELECT 2; COMMIT")
    shown = [world.reset(task, seed=1, at_step=1), *(turn.observation for turn in turns), info["verdict"]]
    assert "secret" not in " ".join(
        [*shown, *(world.distil(task, turns, o) for o in ("success", "failure", "unrated"))]
    )
    assert "the secret" in info["judgement"].expected


# --- tasks that cannot be used, and a process that fails --------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        ({"tables": []}, "tables"),
        ({"kind": "riddle"}, "kind"),
        ({"reference": 3}, "reference"),
        ({"tables": [{"name": "t", "create": "CREATE TABLE t (a"}]}, "table t"),
        ({"reference": "SELECT x"}, "no such column: x"),
        ({"reference": "DELETE FROM orders"}, "no rows"),
        ({"reference": "SELECT 1 FROM orders a, orders b, orders c, orders d, orders e"}, "more rows"),
    ],
)
def test_a_task_that_cannot_be_judged_is_not_begun(world: Sql, data: dict[str, Any], reported: str) -> None:
    task = replace(a_task(), data={**a_task().data, **data})
    with pytest.raises(InputError) as raised:
        world.reset(task, seed=1, at_step=1)
    assert reported in str(raised.value)
    assert any(reported in fault for fault in Sql.faults(task))
    with pytest.raises(InputError):
        world.step("COMMIT")


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        (a_task(near_misses=[*NEAR, "SELECT who, total(total) FROM orders GROUP BY 1"]), "Near miss 4"),
        (a_task(drafts=NEAR), "drafts"),
        (a_task("UPDATE orders SET id = id", [], "modification"), "doing nothing"),
        (a_task("SELECT 'a\nb'", []), "one line"),
    ],
)
def test_faults_of_a_task_are_found_by_running_it(task: Task, fault: str) -> None:
    assert len(found := Sql.faults(task)) == 1
    assert fault in found[0]


@pytest.mark.parametrize("task", [a_task(), A_CHANGE, a_task(drafts=["SELECT 1", QUERY])])
def test_a_sound_task_has_no_faults(task: Task) -> None:
    assert Sql.faults(task) == []


def test_a_step_whose_process_cannot_be_started_again_can_be_tried_again(
    world: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.reset(A_CHANGE, seed=1, at_step=1)
    world.step("DELETE FROM orders WHERE id > 4")
    run, failing = Sandbox.run, ["SELECT 1"]

    def fails_once(sandbox: Sandbox, statement: str) -> Any:
        if failing and statement == failing[0]:
            failing.clear()
            sandbox._child.close()
            raise EnvironmentFailed("The database stopped.")
        return run(sandbox, statement)

    monkeypatch.setattr(Sandbox, "run", fails_once)
    reply = "INSERT INTO orders (who) VALUES ('Kim'); SELECT 1; SELECT count(*) FROM orders"
    with pytest.raises(EnvironmentFailed):
        world.step(reply)
    assert "\n  5\n" in world.step(reply)[0]


# --- a run ------------------------------------------------------------------------------------------------------------
