"""Replies are read as the SQL they hold: statement by statement, whatever stands in quotes, comments and around it."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.environments.databases.statements import control_of, on_one_line, read, split

pieces = st.lists(
    st.sampled_from(
        ["'", '"', "`", "[", "]", ";", "--", "/*", "*/", "\n", " ", "  ", "SELECT", "1", "a", ">", "-", "\0"]
    ),
    max_size=30,
).map("".join)


mysql_pieces = st.lists(
    st.sampled_from(["'", '"', "`", "\\", "#", ";", "-", "--", "/*", "*/", "\n", " ", "SELECT", "1", "[", "]"]),
    max_size=30,
).map("".join)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' AS \"a;b\", 'it''s;' FROM [c;d], `e;f`", ["SELECT ';' AS \"a;b\", 'it''s;' FROM [c;d], `e;f`"]),
        ("SELECT 1 -- one; two\n, 2; /* a; b */ SELECT 3", ["SELECT 1 -- one; two\n, 2", "/* a; b */ SELECT 3"]),
        (" ;; -- nothing\n; /* nothing */", []),
        ("SELECT 'open; COMMIT", ["SELECT 'open; COMMIT"]),
        ("> SELECT 1;\n> COMMIT", ["SELECT 1", "COMMIT"]),
        ("- SELECT 1 - 2; COMMIT", ["SELECT 1 - 2", "COMMIT"]),
        ("SELECT a\n- b\n> c FROM t", ["SELECT a\n- b\n> c FROM t"]),
    ],
)
def test_a_text_falls_into_its_statements(text: str, statements: list[str]) -> None:
    assert split(text) == statements


@given(pieces)
def test_every_statement_but_the_last_is_whole_for_sqlite_too(text: str) -> None:
    parts = split(text.replace("\0", ""))
    assert all(sqlite3.complete_statement(part + "\n;") for part in parts[:-1])


@given(pieces)
def test_what_was_split_once_is_not_split_again(text: str) -> None:
    assert all(len(split(part)) <= 1 for part in split(text))


@given(pieces)
def test_one_line_is_one_line_for_good(text: str) -> None:
    once = on_one_line(text)
    assert on_one_line(once) == once


@given(mysql_pieces)
def test_a_text_of_mysql_is_not_split_again_and_stays_on_its_line(text: str) -> None:
    assert all(len(split(part, "mysql")) <= 1 for part in split(text, "mysql"))
    once = on_one_line(text, "mysql")
    assert on_one_line(once, "mysql") == once


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        (r"SELECT 'it\'s; so'; COMMIT", [r"SELECT 'it\'s; so'", "COMMIT"]),
        (r'SELECT "a\"; b"; COMMIT', [r'SELECT "a\"; b"', "COMMIT"]),
        (r"SELECT 'end\\'; COMMIT", [r"SELECT 'end\\'", "COMMIT"]),
        ("SELECT 'it''s;'; COMMIT", ["SELECT 'it''s;'", "COMMIT"]),
        ("SELECT 5--3; COMMIT", ["SELECT 5--3", "COMMIT"]),
        ("SELECT 5 -- 3; it's\n; COMMIT", ["SELECT 5 -- 3; it's", "COMMIT"]),
        ("SELECT 5 # it's; so\n; COMMIT", ["SELECT 5 # it's; so", "COMMIT"]),
        ("SELECT [5; COMMIT", ["SELECT [5", "COMMIT"]),
        ("SELECT `a\\`; COMMIT", ["SELECT `a\\`", "COMMIT"]),
    ],
)
def test_a_text_of_mysql_falls_into_its_statements(text: str, statements: list[str]) -> None:
    assert split(text, "mysql") == statements


def test_two_minus_signs_of_mysql_never_become_a_comment() -> None:
    assert on_one_line("SELECT 5--/* less */ 3 # why", "mysql") == "SELECT 5- - 3"


def test_a_commit_with_a_comment_of_mysql_is_a_commit() -> None:
    assert control_of("COMMIT # it's done", "mysql") == "commit"


def test_white_space_and_comments_go_but_quotes_stay() -> None:
    assert on_one_line("SELECT  a, -- why\n\t'b  -- c' /* d\n e */ FROM\nt\n") == "SELECT a, 'b  -- c' FROM t"


@pytest.mark.parametrize(
    ("reply", "statements"),
    [
        ("Here it is:\n```sql\nSELECT 1;\n```\nHope it helps; really.", ["SELECT 1"]),
        ("```\nSELECT 1\n```\nand then\n```SQL\nSELECT 2\n```", ["SELECT 1", "SELECT 2"]),
        ("```sql\nSELECT 1\n```\n\nCOMMIT;\n", ["SELECT 1", "COMMIT"]),
        ("ROLLBACK\n```\nSELECT 1", ["ROLLBACK", "SELECT 1"]),
        ("```SELECT\n1```", ["SELECT\n1"]),
        ("I think: SELECT 1", ["I think: SELECT 1"]),
        ("", []),
        ("``````", []),
    ],
)
def test_fenced_parts_count_where_there_are_any(reply: str, statements: list[str]) -> None:
    assert read(reply) == (statements, "")


def test_a_reply_that_is_too_long_loses_its_end_and_the_half_statement_there() -> None:
    statements, reported = read("SELECT 1;" + "DELETE FROM a WHERE b = 1 AND " + "c = 2 AND " * 100_000)
    assert statements == ["SELECT 1"] and "20,000" in reported


def test_only_so_many_statements_are_read() -> None:
    statements, reported = read("SELECT 1;" * 100)
    assert len(statements) == 20 and "20" in reported


@pytest.mark.parametrize(
    ("statement", "control"),
    [
        ("COMMIT", "commit"),
        ("commit  work -- done", "commit"),
        ("Rollback Transaction", "rollback"),
        ("BEGIN", "begin"),
        ("START TRANSACTION", "begin"),
        ("begin immediate", "begin"),
        ("ROLLBACK TO a", ""),
        ("COMMITTED", ""),
        ("SELECT 'COMMIT'", ""),
    ],
)
def test_words_to_the_world_are_told_from_sql(statement: str, control: str) -> None:
    assert control_of(statement) == control
