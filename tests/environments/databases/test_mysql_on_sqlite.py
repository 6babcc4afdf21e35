"""Statements of MySQL on SQLite: what comes out is what the manual of MySQL says."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from statistics import pstdev, stdev, variance
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.environments.databases.lifelong_db import near_misses
from memrl_core.environments.databases.mysql import Reading, columns_of, create_table, is_ordered, parsed, to_sqlite
from memrl_core.environments.databases.mysql_functions import register
from memrl_core.errors import InputError

COLUMNS = (
    ("boat_id", "INT"),
    ("harbour", "TEXT"),
    ("skipper", "VARCHAR(40)"),
    ("crew", "INT"),
    ("fee", "DECIMAL(8,2)"),
    ("length", "DOUBLE"),
    ("left_on", "TEXT"),
)
BOATS: Sequence[Sequence[Any]] = (
    (1, "Lund", "Ada", 4, 12.5, 7.25, "2024-01-31"),
    (2, "Visby", "Bo", 3, 20, 9.5, "2024-02-29"),
    (3, "lund", "ada", 3, 7.25, 6.0, "2023-12-24"),
    (4, "Arild", "Cleo", 7, 30.1, 12.125, "2024-02-01"),
    (5, "Visby", None, 2, 15, 8.0, "2024-03-15"),
)
CREWS, BOAT_IDS, DEPTHS = "SELECT crew FROM boats", "SELECT boat_id FROM boats", "SELECT depth FROM ports"
PORTS = (("name", "TEXT"), ("depth", "INT"))


def a_harbour() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    register(connection)
    connection.execute(create_table("boats", COLUMNS))
    connection.execute(create_table("ports", PORTS))
    connection.executemany(f"INSERT INTO boats VALUES ({', '.join('?' * len(COLUMNS))})", BOATS)
    connection.executemany("INSERT INTO ports VALUES (?, ?)", [("Visby", 9), ("Lund", 4)])
    return connection


def rows(statement: str, *then: str) -> list[tuple[Any, ...]]:
    """What the last of some statements gives, all in one database."""
    connection = a_harbour()
    for one in (statement, *then):
        found = connection.execute(to_sqlite(one, COLUMNS + PORTS)).fetchall()
    return found


def value(expression: str) -> Any:
    """What an expression gives."""
    return rows(f"SELECT {expression}")[0][0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7 / 2", 3.5),
        ("1 / 3", 0.3333),
        ("1 / 3 * 100", 33.3333),
        ("7 / 0", None),
        ("7 DIV 2", 3),
        ("-7 DIV 2", -3),
        ("7 % 3", 1),
        ("-7 MOD 3", -1),
        ("5.5 % 2", 1.5),
        ("MOD(7, 0)", None),
        ("'3 boats' + 4", 7),
        ("'a' || 'b'", 0),
        ("1 || 0", 1),
        ("1 && 0", 0),
        ("NULL <=> NULL", 1),
        ("!0", 1),
        ("'Lund' = 'lUND'", 1),
        ("LOWER('ÅLAND') = 'ÅLAND'", 0),
        ("UPPER('lund') = 'lund'", 1),
        ("BINARY 'Lund' = 'lund'", 0),
        ("'lund' = BINARY 'Lund'", 0),
        ("CONCAT('a', 'B') IN ('ab', 'c')", 1),
        ("'10' > 9", 1),
        ("'abc' LIKE 'A%'", 1),
        (r"'50%' LIKE '50\%'", 1),
        (r"'50x' LIKE '50\%'", 0),
        ("'Lund' REGEXP '^l'", 1),
        ("'Lund' NOT RLIKE 'd$'", 0),
        ("'Lund' REGEXP '('", None),
        ("'Lund' LIKE BINARY 'L_n%'", 1),
        (r"'5x' LIKE BINARY '5\%'", 0),
        ("ROUND(2.5)", 3),
        ("ROUND(-2.5)", -3),
        ("ROUND(1.005, 2)", 1.01),
        ("ROUND(1234, -2)", 1200),
        ("ROUND(NULL, 2)", None),
        ("TRUNCATE(1.999, 2)", 1.99),
        ("CEILING(1.2)", 2),
        ("FLOOR(-1.2)", -2),
        ("POWER(2, 10)", 1024),
        ("SQRT(-1)", None),
        ("POW(-8, 0.5)", None),
        ("LOG(2, 8)", 3),
        ("LN(0)", None),
        ("SIGN(-3)", -1),
        ("ABS('-4 kg')", 4),
        ("GREATEST(3, 10, 7)", 10),
        ("GREATEST('b', 'C')", "C"),
        ("LEAST(3, NULL)", None),
        ("IF(1 > 2, 'yes', 'no')", "no"),
        ("IFNULL(NULL, 5)", 5),
        ("ISNULL(NULL)", 1),
        ("CONCAT('a', 1, 'b')", "a1b"),
        ("CONCAT('a', NULL)", None),
        ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
        ("LEFT('harbour', 3)", "har"),
        ("RIGHT('harbour', 3)", "our"),
        ("SUBSTRING('harbour', 2, 3)", "arb"),
        ("SUBSTRING('harbour' FROM -3)", "our"),
        ("SUBSTR('harbour', 0)", ""),
        ("SUBSTRING_INDEX('a.b.c', '.', 2)", "a.b"),
        ("SUBSTRING_INDEX('a.b.c', '.', -1)", "c"),
        ("CHAR_LENGTH('å')", 1),
        ("LENGTH('å')", 2),
        ("TRIM('  a ')", "a"),
        ("TRIM(LEADING 'x' FROM 'xxax')", "ax"),
        ("LPAD('7', 3, '0')", "007"),
        ("RPAD('abcd', 2, '-')", "ab"),
        ("REVERSE('abc')", "cba"),
        ("REPEAT('ab', 2)", "abab"),
        ("INSTR('Harbour', 'B')", 4),
        ("LOCATE('r', 'harbour', 4)", 7),
        ("POSITION('x' IN 'harbour')", 0),
        ("CAST('12abc' AS SIGNED)", 12),
        ("CAST(1.6 AS SIGNED)", 2),
        ("CAST(2.345 AS DECIMAL(5, 2))", 2.35),
        ("CAST(12 AS CHAR)", "12"),
        ("CONVERT('2024-03-01 10:00:00', DATE)", "2024-03-01"),
        ("YEAR('2024-03-01')", 2024),
        ("MONTH('2024-03-01 10:20:30')", 3),
        ("DAY('no date')", None),
        ("DAYNAME('2024-03-01')", "Friday"),
        ("MONTHNAME('2024-03-01')", "March"),
        ("DATEDIFF('2024-03-01', '2024-02-01 23:00:00')", 29),
        ("TIMESTAMPDIFF(MONTH, '2024-01-31', '2024-02-29')", 0),
        ("TIMESTAMPDIFF(YEAR, '2024-03-01', '2020-03-02')", -3),
        ("TIMESTAMPDIFF(HOUR, '2024-03-01', '2024-03-02 01:30:00')", 25),
        ("DATE_ADD('2024-01-31', INTERVAL 1 MONTH)", "2024-02-29"),
        ("DATE_SUB('2024-03-01', INTERVAL 1 DAY)", "2024-02-29"),
        ("'2024-03-01' + INTERVAL 2 WEEK", "2024-03-15"),
        ("DATE('2024-03-01') - INTERVAL 1 YEAR", "2023-03-01"),
        ("DATE_ADD('2024-03-01', INTERVAL 90 MINUTE)", "2024-03-01 01:30:00"),
        ("DATE_ADD('9999-12-31', INTERVAL 1 DAY)", None),
        ("TIMESTAMPDIFF(FORTNIGHT, '2024-01-01', '2024-02-01')", None),
        ("CURDATE() = DATE(NOW())", 1),
        ("'it''s' = \"it's\"", 1),
        (r"'it\'s'", "it's"),
        ("'a' 'b'", "ab"),
    ],
)
def test_an_expression_gives_what_mysql_gives(expression: str, expected: Any) -> None:
    found = value(expression)
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)
    assert found is None or isinstance(found, str) == isinstance(expected, str)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT boat_id FROM boats WHERE harbour = 'LUND'", [(1,), (3,)]),
        ("SELECT COUNT(DISTINCT harbour) FROM boats", [(3,)]),
        ("SELECT boat_id FROM boats WHERE left_on > 2023 ORDER BY 1", [(1,), (2,), (4,), (5,)]),
        ("SELECT boat_id FROM boats WHERE crew = '3'", [(2,), (3,)]),
        ("SELECT boat_id FROM boats WHERE left_on IN (2023, 7)", [(3,)]),
        ("SELECT boat_id FROM boats WHERE left_on NOT IN (2023, 7)", [(1,), (2,), (4,), (5,)]),
        ("SELECT boat_id FROM boats WHERE left_on IN (2023, '2024-02-01')", [(3,), (4,)]),
        ("SELECT boat_id FROM boats WHERE left_on NOT IN (2023, '2024-02-01')", [(1,), (2,), (5,)]),
        ("SELECT boat_id FROM boats WHERE crew IN ('3 men', '7')", [(2,), (3,), (4,)]),
        ("SELECT boat_id FROM boats WHERE harbour IN ('LUND', 'x')", [(1,), (3,)]),
        ("SELECT `boat_id` FROM `boats` LIMIT 1, 2", [(2,), (3,)]),
        ("SELECT harbour AS 'port' FROM boats HAVING port = 'Arild'", [("Arild",)]),
        ("SELECT b.boat_id FROM db.boats AS b FORCE INDEX (x) WHERE b.crew = 7 FOR UPDATE", [(4,)]),
        ("SELECT fee * 1.1, SUM(fee) FROM boats", [(13.75, 84.85)]),
        ("SELECT CASE harbour WHEN 'LUND' THEN 1 ELSE 0 END FROM boats LIMIT 1", [(1,)]),
        ("SELECT MAX(crew) - MIN(crew) AS span FROM boats HAVING span > 99", []),
        ("SELECT GROUP_CONCAT(boat_id) FROM boats WHERE crew > 99", [(None,)]),
        ("SELECT harbour, MAX(crew) FROM boats GROUP BY harbour", [("Lund", 4), ("Visby", 3), ("Arild", 7)]),
        ("SELECT harbour FROM boats GROUP BY harbour LIMIT 1 OFFSET 1", [("Visby",)]),
        ("SELECT harbour FROM boats GROUP BY harbour ORDER BY COUNT(*) DESC LIMIT 2", [("Lund",), ("Visby",)]),
        ("SELECT harbour, AVG(fee) FROM boats GROUP BY harbour LIMIT 1", [("Lund", 9.875)]),
        ("SELECT AVG(crew) FROM boats WHERE boat_id < 4", [(3.3333,)]),
        ("SELECT AVG(length) FROM boats WHERE boat_id < 4", [((7.25 + 9.5 + 6) / 3,)]),
        ("SELECT SUM(crew) / COUNT(*) * 100 FROM boats WHERE boat_id < 4", [(333.3333,)]),
        ("SELECT (SELECT AVG(crew) FROM boats WHERE boat_id < 4)", [(3.3333,)]),
        ("SELECT boat_id FROM boats WHERE crew > (SELECT AVG(crew) FROM boats)", [(1,), (4,)]),
        (
            "SELECT p.name, COUNT(*) FROM ports p JOIN boats b ON b.harbour = p.name GROUP BY p.name",
            [("Visby", 2), ("Lund", 2)],
        ),
        ("(SELECT crew FROM boats WHERE boat_id = 1) UNION SELECT depth FROM ports ORDER BY 1 LIMIT 1", [(4,)]),
        (
            "(SELECT crew FROM boats ORDER BY crew LIMIT 1) UNION ALL (SELECT depth FROM ports ORDER BY depth LIMIT 1)",
            [(2,), (4,)],
        ),
        ("(SELECT crew FROM boats WHERE boat_id = 1)", [(4,)]),
        ("WITH big AS (SELECT * FROM boats WHERE crew > 3) SELECT COUNT(*) FROM big", [(2,)]),
        (
            "SELECT boat_id, RANK() OVER (ORDER BY crew DESC) AS place FROM boats ORDER BY place LIMIT 2",
            [(4, 1), (1, 2)],
        ),
        (
            "SELECT harbour FROM boats WHERE harbour LIKE 'l%' AND skipper IS NOT NULL # and nothing else",
            [("Lund",), ("lund",)],
        ),
    ],
)
def test_a_query_gives_what_mysql_gives(statement: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(statement) == expected


def test_a_column_without_a_name_of_its_own_is_called_by_its_text() -> None:
    connection = a_harbour()
    found = connection.execute(to_sqlite("SELECT COUNT(*), AVG(crew), boats.crew, crew AS c FROM boats", COLUMNS))
    assert [column[0] for column in found.description] == ["COUNT(*)", "AVG(crew)", "crew", "c"]


@pytest.mark.parametrize(
    ("statement", "reported"),
    [(f"SELECT '{'a' * 60}' REGEXP '^(a|aa)+$(?<!a)'", "user-defined"), ("SELECT harbor FROM boats", "no such column")],
    ids=["a pattern that would take ages", "a misspelt column"],
)
def test_what_fails_is_an_error_and_no_text(statement: str, reported: str) -> None:
    with pytest.raises(sqlite3.OperationalError, match=reported):
        rows(statement)


@pytest.mark.parametrize(
    ("change", "query", "expected"),
    [
        ("UPDATE boats SET crew = crew * 1.15 WHERE boat_id IN (1, 4)", CREWS, [5, 3, 3, 8, 2]),
        ("UPDATE boats SET crew = 2.5 WHERE boat_id = 1", "SELECT crew FROM boats WHERE boat_id = 1", [3]),
        ("UPDATE boats SET fee = fee / 3 WHERE boat_id = 2", "SELECT fee FROM boats WHERE boat_id = 2", [6.67]),
        (
            "UPDATE boats SET length = length / 3 WHERE boat_id = 5",
            "SELECT length FROM boats WHERE boat_id = 5",
            [8 / 3],
        ),
        (
            "UPDATE boats SET crew = crew + 1, fee = crew WHERE boat_id = 1",
            "SELECT fee FROM boats WHERE boat_id = 1",
            [5],
        ),
        ("UPDATE boats SET crew = '7.6' WHERE boat_id = 1", "SELECT crew FROM boats WHERE boat_id = 1", [8]),
        ("UPDATE boats SET harbour = 5 WHERE boat_id < 3", "SELECT harbour FROM boats WHERE boat_id < 3", ["5", "5"]),
        ("UPDATE boats SET harbour = crew WHERE boat_id = 1", "SELECT harbour FROM boats WHERE boat_id = 1", ["4"]),
        ("UPDATE boats SET harbour = (crew = '3 men')", "SELECT harbour FROM boats LIMIT 2", ["0", "1"]),
        ("UPDATE boats AS b SET b.crew = 9 WHERE b.boat_id = 2", CREWS, [4, 9, 3, 7, 2]),
        (
            "UPDATE boats b JOIN ports p ON b.harbour = p.name SET b.crew = p.depth WHERE b.skipper IS NOT NULL",
            CREWS,
            [4, 9, 4, 7, 2],
        ),
        ("UPDATE boats, ports SET crew = depth WHERE harbour = name", CREWS, [4, 9, 4, 7, 9]),
        (
            "UPDATE boats b JOIN (SELECT AVG(crew) AS mean FROM boats) m SET b.crew = 0 WHERE b.crew < m.mean",
            CREWS,
            [4, 0, 0, 7, 0],
        ),
        (
            "UPDATE boats SET crew = (SELECT n FROM (SELECT MAX(crew) AS n FROM boats) AS m) - crew",
            CREWS,
            [3, 4, 4, 0, 5],
        ),
        ("UPDATE boats SET crew = 0 ORDER BY crew DESC LIMIT 2", CREWS, [0, 3, 3, 0, 2]),
        ("DELETE FROM boats WHERE crew < 4 LIMIT 2", BOAT_IDS, [1, 4, 5]),
        ("DELETE FROM boats ORDER BY crew LIMIT 1", BOAT_IDS, [1, 2, 3, 4]),
        ("DELETE b FROM boats b JOIN ports p ON b.harbour = p.name WHERE p.depth > 5", BOAT_IDS, [1, 3, 4]),
        ("DELETE FROM b USING boats AS b JOIN ports AS p ON b.harbour = p.name", BOAT_IDS, [4]),
        ("DELETE b FROM boats b LEFT JOIN ports p ON b.harbour = p.name WHERE p.name IS NULL", BOAT_IDS, [1, 2, 3, 5]),
        (
            "DELETE FROM boats WHERE boat_id IN (SELECT boat_id FROM (SELECT * FROM boats WHERE crew = 3) AS few)",
            BOAT_IDS,
            [1, 4, 5],
        ),
        (
            "INSERT INTO boats (boat_id, crew) VALUES (6, 2.5), (7, DEFAULT)",
            "SELECT crew FROM boats WHERE boat_id > 5",
            [3, None],
        ),
        ("INSERT INTO boats SET boat_id = 6, crew = 8 / 3", "SELECT crew FROM boats WHERE boat_id = 6", [3]),
        ("INSERT IGNORE INTO ports (name, depth) VALUES ('Ystad', 5.5)", DEPTHS, [9, 4, 6]),
        ("REPLACE INTO ports (name, depth) VALUES ('Ystad', 5)", DEPTHS, [9, 4, 5]),
        ("INSERT INTO ports (name, depth) VALUES ('Lund', 1) ON DUPLICATE KEY UPDATE depth = 2", DEPTHS, [9, 4, 1]),
        ("INSERT INTO ports (name, depth) SELECT harbour, AVG(crew) FROM boats WHERE boat_id < 3", DEPTHS, [9, 4, 4]),
        (
            "WITH far AS (SELECT 5 AS n) UPDATE boats JOIN far SET boats.crew = far.n",
            "SELECT DISTINCT crew FROM boats",
            [5],
        ),
    ],
)
def test_a_change_leaves_what_mysql_leaves(change: str, query: str, expected: list[Any]) -> None:
    assert [row[0] for row in rows(change, query)] == [
        pytest.approx(one) if isinstance(one, float) else one for one in expected
    ]


@pytest.mark.parametrize(
    ("statement", "reported"),
    [
        ("", "no statement"),
        (" ; ", "no statement"),
        ("-- nothing", "no statement"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("DROP TABLE boats", "Only SELECT"),
        ("CREATE TABLE t (a INT)", "Only SELECT"),
        ("SHOW TABLES", "Only SELECT"),
        ("EXPLAIN SELECT 1", "Only SELECT"),
        ("hello", "Only SELECT"),
        ("SELECT FROM WHERE", "not MySQL"),
        ("SELECT 'open", "not MySQL"),
        ("SELECT (1", "not MySQL"),
        ("SELECT " + "(" * 50 + "1" + ")" * 50, "nested"),
        ("SELECT " + "NOT " * 3000 + "1", "can be read"),
        ("SELECT '" + "a" * 30_000 + "'", "too long"),
        ("DELETE FROM boats WHERE crew > (SELECT AVG(crew) FROM boats)", "error 1093"),
        ("UPDATE boats SET crew = (SELECT MAX(crew) FROM boats)", "error 1093"),
        ("UPDATE boats b JOIN ports p SET b.crew = 1, p.depth = 1", "One table"),
        ("DELETE b, p FROM boats b JOIN ports p", "one table"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(statement: str, reported: str) -> None:
    with pytest.raises(InputError, match=reported) as refused:
        to_sqlite(statement, COLUMNS)
    assert "\x1b" not in str(refused.value)


@given(st.text(alphabet="SELECT FROM boats WHERE ()'\"`;,*=<>%@#-/|&\\\n0a1bUPDATESETDELETEJOIN", max_size=80))
def test_no_text_does_worse_than_a_sentence(text: str) -> None:
    for statement in (text, f"SELECT {text}", f"UPDATE {text}", f"DELETE {text}", f"INSERT INTO {text}"):
        try:
            to_sqlite(statement, COLUMNS)
        except InputError as refused:
            assert str(refused)


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=30))
def test_spread_and_average_are_those_of_the_values(values: list[int]) -> None:
    connection = sqlite3.connect(":memory:")
    register(connection)
    connection.execute(create_table("t", (("n", "INT"),)))
    connection.executemany("INSERT INTO t VALUES (?)", [(one,) for one in values])
    asked = "SELECT STDDEV(n), STDDEV_SAMP(n), VAR_SAMP(n), AVG(n) FROM t"
    deviation, of_sample, of_variance, mean = connection.execute(to_sqlite(asked, (("n", "INT"),))).fetchone()
    assert deviation == pytest.approx(pstdev(values))
    assert of_sample == pytest.approx(stdev(values))
    assert of_variance == pytest.approx(variance(values))
    exact = (Decimal(sum(values)) / len(values)).quantize(Decimal("0.0001"), rounding=ROUND_HALF_UP)
    assert Decimal(str(mean)) == exact


@given(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=30))
def test_groups_come_in_the_order_of_their_first_rows(values: list[str]) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(create_table("t", (("g", "TEXT"),)))
    connection.executemany("INSERT INTO t VALUES (?)", [(one,) for one in values])
    found = connection.execute(to_sqlite("SELECT g, COUNT(*) FROM t GROUP BY g", (("g", "TEXT"),))).fetchall()
    assert found == [(one, values.count(one)) for one in dict.fromkeys(values)]


def test_values_for_all_columns_are_stored_by_their_place() -> None:
    connection = a_harbour()
    connection.execute(to_sqlite("INSERT INTO ports VALUES ('Ystad', 5.5)", PORTS))
    assert connection.execute("SELECT * FROM ports").fetchall()[-1] == ("Ystad", 6)


def test_only_an_order_at_the_top_counts_as_one() -> None:
    assert is_ordered(parsed("SELECT a FROM t ORDER BY a"))
    assert is_ordered(parsed("(SELECT a FROM t ORDER BY a)"))
    assert is_ordered(parsed("(SELECT a FROM t) UNION SELECT b FROM t ORDER BY 1"))
    assert not is_ordered(parsed("SELECT a FROM (SELECT a FROM t ORDER BY a) AS s"))


@pytest.mark.parametrize("written", ["INT", "TEXT", "VARCHAR(20)", "DECIMAL(10, 2)", "ENUM('a', 'b')", "int unsigned"])
def test_a_table_is_made_with_the_types_of_mysql(written: str) -> None:
    made = create_table("a `table`", (("a", written),))
    sqlite3.connect(":memory:").execute(made)
    assert columns_of(made)[0][0] == "a"


@pytest.mark.parametrize("written", ["", "BLOB", "INT); DROP TABLE t; --", "MONEY"])
def test_a_type_that_is_not_known_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="type"):
        create_table("t", (("a", written),))


NEARLY = [
    "SELECT DISTINCT harbour, SUM(crew) AS n FROM boats WHERE crew > 2 AND fee < 30 GROUP BY harbour "
    "HAVING SUM(crew) > 3 ORDER BY n DESC LIMIT 2 OFFSET 1",
    "UPDATE boats SET crew = crew + 1, fee = 3 WHERE boat_id = 2",
    "DELETE FROM boats WHERE crew = 3 OR fee > 20",
    "INSERT INTO boats (boat_id, harbour) VALUES (6, 'Ystad')",
]


@pytest.mark.parametrize("statement", NEARLY)
def test_near_misses_can_be_read_and_differ(statement: str) -> None:
    found = list(near_misses(statement, 12, seed=1))
    assert 4 <= len(found) <= 12
    assert len(set(found)) == len(found)
    written = [parsed(one).sql(dialect=Reading, comments=False) for one in (statement, *found)]
    assert written[0] not in found
    assert written[1:] == found


def test_near_misses_are_of_many_sorts_and_the_seed_decides() -> None:
    assert [*near_misses(NEARLY[0], 8, seed=3)] == [*near_misses(NEARLY[0], 8, seed=3)]
    assert [*near_misses(NEARLY[0], 8, seed=3)] != [*near_misses(NEARLY[0], 8, seed=4)]
    tops = {parsed(one).args.get("having") is None for one in near_misses(NEARLY[0], 40, seed=3)}
    assert tops == {True, False}
