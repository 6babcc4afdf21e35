"""Write the database task sets: `python sample_data/make_sql_tasks.py`. The same seed writes the same files."""

from __future__ import annotations

from pathlib import Path

from sql_tasks.making import lines, task_sets

SEED = 7


def main() -> None:
    """Write the sets beside this file."""
    folder = Path(__file__).parent / "tasks"
    folder.mkdir(exist_ok=True)
    for name, tasks in task_sets(SEED).items():
        (folder / f"sql-{name}.jsonl").write_text(lines(tasks), encoding="utf-8")


if __name__ == "__main__":
    main()
