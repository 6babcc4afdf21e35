"""Tasks that were made for MySQL: its statements on SQLite, and the DB-bench of LifelongAgentBench."""
