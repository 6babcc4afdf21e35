"""The sandbox's process for statements that were MySQL's: SQLite with the functions that it lacks."""

from __future__ import annotations

from memrl_core.environments.child import serve
from memrl_core.environments.databases.mysql_functions import NAMES, register
from memrl_core.environments.databases.sandbox_child import Database

if __name__ == "__main__":
    serve(Database(register, NAMES).answer)
