"""Tasks about databases: SQLite in a process of its own, how results are compared, and the episode of SQL."""
