"""A database task made of a script that sets its tables up and the statement that solves it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from typing import Any

from memrl_core.environments.databases.sandbox import Ran, Sandbox
from memrl_core.environments.databases.statements import on_one_line, split
from memrl_core.errors import InputError

_MADE = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]""")
_INNERMOST = re.compile(r"\([^()]*\)")
_GENERATED = re.compile(r"\bas\s*\(", re.IGNORECASE)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def database_data(setup: str, reference: str) -> Mapping[str, Any]:
    """The `Task.data` of a database task: what `setup` leaves, and `reference` with what it shows of itself.

    It is a query when it only returns rows, and their order counts when it ends with an ORDER BY of its own. Raises
    `InputError` with the statement that does not run, or that makes something else than tables of plain columns, and
    `EnvironmentFailed`. Indexes that only make it faster are left out.
    """
    with closing(Sandbox()) as sandbox:
        sandbox.begin([])
        _run(sandbox, setup, "setup")
        made = [(str(kind), str(name), str(create)) for kind, name, create in sandbox.run(_MADE).rows]
        for kind, name, create in made:
            if told := _faults_of_made(kind, name, create):
                raise InputError(f"setup makes {told}")
        content = sandbox.content()
        tables = [
            {"name": name, "create": create, "rows": content[name]} for kind, name, create in made if kind == "table"
        ]
        if not tables:
            raise InputError("setup makes no table.")
        changes = any(ran.changed or not ran.columns for ran in _run(sandbox, reference, "reference"))
    kind = "modification" if changes else "query"
    return {"tables": tables, "kind": kind, "reference": reference, "ordered": not changes and _ordered(reference)}


def _faults_of_made(kind: str, name: str, create: str) -> str:
    if kind == "index":
        unique = create.upper().startswith("CREATE UNIQUE")
        return f"the unique index {name[:80]}; write UNIQUE in the table instead." if unique else ""
    if kind != "table":
        return f"the {kind} {name[:80]}; it can only make tables."
    if _GENERATED.search(_QUOTED.sub(" ", on_one_line(create))):
        return f"the table {name[:80]} with a column that is computed; make it a plain column with its values."
    return ""


def _run(sandbox: Sandbox, script: str, what: str) -> list[Ran]:
    done: list[Ran] = []
    for statement in split(script):
        ran = sandbox.run(statement)
        if ran.error:
            raise InputError(f"{what}: “{on_one_line(statement)[:80]}” does not run: {ran.error[:200].rstrip('.')}.")
        done.append(ran)
    if not done:
        raise InputError(f"{what} holds no statement.")
    return done


def _ordered(script: str) -> bool:
    """Whether the last statement has an ORDER BY that is not within brackets."""
    left = _QUOTED.sub(" ", on_one_line(split(script)[-1]))
    while (inner := _INNERMOST.sub(" ", left)) != left:
        left = inner
    return _ORDER.search(left) is not None
