"""Questions and changes about small databases of everyday life, answered in SQL."""

from __future__ import annotations

from memrl_core.environments.base import EnvironmentSpec
from memrl_core.environments.databases.world import DatabaseWorld


class Sql(DatabaseWorld):
    """The tasks about databases that come with the program."""

    name = "sql"
    spec = EnvironmentSpec(
        title="SQL",
        idea="Answer a question about a few tables, or change them as asked, by typing SQL; hand in with COMMIT. The "
        "simulated model chooses among ready statements instead.",
        judged="By running it: 1 when the rows, or for a change the tables, are those that the task's own solution "
        "gives; 0 when they are not, or when nothing was handed in. Where order counts, rows that its ORDER BY leaves "
        "level may come in any order.",
        source="Tables and tasks written for this program, in plain SQLite; no model is needed to judge them.",
        answer_tokens=400,
    )
    sets = ("sql-train", "sql-heldout")
