"""DB-bench of LifelongAgentBench: one table, one question or change, answered in MySQL; the tasks are a person's file.

Judging follows the benchmark. A query is right when its rows are those of the reference statement, numbers within
1e-6, texts exactly; a change is right when the table holds what it holds after the reference statement. Two things
differ. The benchmark is stricter: it compares the rows of every query in their published order; here the order counts
when the reference has an ORDER BY at its top, and rows that this leaves level may come in any order (where a LIMIT cuts
through them, any of them may come), because what MySQL does beyond is promised to nobody. And the benchmark compares a
changed table by a hash that was published; here it is compared by its rows.

MySQL's statements run on SQLite: see `translate`.
"""

from __future__ import annotations

from typing import ClassVar

from memrl_core.environments.base import EnvironmentSpec
from memrl_core.environments.databases.judging import DatabaseTask, database_task, faults_of
from memrl_core.environments.databases.mysql.kinds import Columns
from memrl_core.environments.databases.mysql.translate import CHILD, columns_of, to_sqlite
from memrl_core.environments.databases.statements import Dialect
from memrl_core.environments.databases.world import INSTRUCTIONS, DatabaseWorld
from memrl_core.errors import InputError
from memrl_core.records import Task


class LifelongDb(DatabaseWorld):
    """The tasks of a file of DB-bench; `lifelong_file` reads it."""

    name = "lifelong_db"
    spec = EnvironmentSpec(
        title="LifelongAgentBench: databases",
        idea="Answer a question about one table, or change it as asked, by typing MySQL; hand in with COMMIT. The "
        "simulated model chooses among ready statements instead.",
        judged="By running it: 1 when the rows, or for a change the table, are those that the published statement "
        "gives; 0 when they are not, or when nothing was handed in. The order counts where the statement has an ORDER "
        "BY, up to its ties; the benchmark itself is stricter and wants every row in its published place.",
        source="The DB-bench tasks of LifelongAgentBench, as published with the official MemRL code (MIT licence). "
        "The file is not part of this program. Load it below, or in a terminal: memrl tasks check FILE, then "
        "memrl run --env FILE. Its MySQL runs on SQLite.",
        answer_tokens=400,
    )
    instructions = INSTRUCTIONS.replace("an SQLite database", "a MySQL database")
    sandbox_child: ClassVar[str] = CHILD
    dialect: ClassVar[Dialect] = "mysql"

    def translate(self, statement: str) -> str:
        """A statement of MySQL as SQLite has it. Raises `InputError` for one that cannot be translated."""
        return to_sqlite(statement, _columns(self._task))

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task: its reference and its near misses are run."""
        world = cls()
        try:
            world._task = database_task(task, cls.dialect)
            return faults_of(world._task, world._sandbox, world.translate)
        except InputError as error:
            return [str(error)]
        finally:
            world.close()


def _columns(task: DatabaseTask) -> Columns:
    return tuple(column for table in task.tables for column in columns_of(table.create))
