"""What the README shows as code is the code."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_worked_example_is_the_one_that_is_tested() -> None:
    example = (ROOT / "docs" / "recorder_example.py").read_text(encoding="utf-8").rstrip()
    assert f"```python\n{example}\n```" in (ROOT / "README.md").read_text(encoding="utf-8")
