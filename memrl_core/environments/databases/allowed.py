"""What a statement in the sandbox may do; all else is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

ACTIONS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_REINDEX,  # Asked for by CREATE INDEX.
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_VIEW,
    }
)
"""What SQLite asks leave for, and gets."""

# Neither random nor randomblob, and dates with the clock of `clock`: the same statement gives the same rows.
_HARMLESS = """
    -> ->> abs avg changes char coalesce concat concat_ws count format glob group_concat hex if ifnull iif instr
    last_insert_rowid length like likelihood likely lower ltrim max min nullif octet_length printf quote replace round
    rtrim sign soundex sqlite_version string_agg substr substring sum total total_changes trim typeof unhex unicode
    unlikely upper zeroblob
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power
    radians sin sinh sqrt tan tanh trunc
    current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    json json_array json_array_length json_each json_extract json_group_array json_group_object json_insert json_object
    json_patch json_quote json_remove json_replace json_set json_tree json_type json_valid
"""
FUNCTIONS = frozenset(_HARMLESS.split())
"""The functions that may be called."""

REFUSED: Mapping[int, str] = {
    sqlite3.SQLITE_ATTACH: "ATTACH",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_PRAGMA: "PRAGMA",
    sqlite3.SQLITE_ALTER_TABLE: "ALTER TABLE",
    sqlite3.SQLITE_ANALYZE: "ANALYZE",
    sqlite3.SQLITE_CREATE_VTABLE: "a virtual table",
    sqlite3.SQLITE_CREATE_TRIGGER: "a trigger",
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER: "a trigger",
    sqlite3.SQLITE_TRANSACTION: "a transaction of its own",
    sqlite3.SQLITE_SAVEPOINT: "a savepoint",
}
"""Words for some of what is refused."""

INNER_TABLES = frozenset(("dbstat", "fts3tokenize", "sqlite_dbpage", "sqlite_stmt", "bytecode", "tables_used"))
"""Tables by which SQLite tells about itself."""
