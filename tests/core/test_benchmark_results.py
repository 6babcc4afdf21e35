"""What `memrl bench` prints, leaves in a file, and says about two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from benchmarks import suite
from benchmarks.changes import compared
from benchmarks.measuring import Aim, Row, Sizes
from benchmarks.results import Results, must_be_writable, read_rows, results_of, write_results
from benchmarks.table import WIDTH, aims_line, benchmark_table, comparison_lines, comparison_table
from benchmarks.words import aim_of, duration, figure
from memrl_core import cli
from memrl_core.errors import InputError, MemRLError
from memrl_core.experiments.machine import Machine, this_machine

MACHINE = Machine("Linux x86_64", 2, 23.5, "3.12.1", "0.1.0")
DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIMED = Row(
    "b", "this", 10_000, 384, (0.5, 3.0, 1.25), "that", (0.5, 0.5, 0.5), aim=Aim("ratio", 2), peak_mb=1234.4, size="all"
)
RATE = Row("b", "steps per second", 10_000, 384, value=376.2, unit="/s", aim=Aim("value", 150, at_least=True))
MORE = Row("b", "added", 10_000, None, (0.002,), "its commit", (0.0015,), aim=Aim("over_s", 0.001))


def results(*rows: Row, machine: Machine = MACHINE) -> Results:
    return results_of(rows, machine, DATE)


def printed(table: Table) -> str:
    console = Console(width=WIDTH, file=StringIO(), record=True)
    console.print(table)
    return console.export_text()


def memrl(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, ["bench", *words])
    if isinstance(done.exception, MemRLError):
        return 2, str(done.exception)
    return done.exit_code, done.output


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> list[Sizes]:
    """A benchmark that measures nothing: it hears the sizes."""
    heard: list[Sizes] = []

    class Stub:
        NAME = "b"

        @staticmethod
        def measure(sizes: Sizes) -> Iterator[Row]:
            heard.append(sizes)
            yield from (TIMED, RATE)
            if sizes.rounds == 13:
                raise InputError("It went wrong.")

    monkeypatch.setattr(suite, "benchmark", lambda name: Stub)
    return heard


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0"), (0.00004, "4.0e-05"), (0.0312, "0.031"), (0.99961, "1.00"), (1.256, "1.26"), (12.34, "12.3"),
     (99.96, "100"), (201_234.5, "201,234"), (-2.5, "-2.50")],
)  # fmt: skip
def test_a_figure_has_three_digits_or_all_before_the_point(value: float, told: str) -> None:
    assert figure(value) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(61.24, "61.2 s"), (0.9999, "1.00 s"), (0.0123, "12.3 ms"), (0.0005, "500 µs"), (0.0, "0 µs")]
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_an_aim_is_told_as_somebody_would_say_it() -> None:
    assert [aim_of(row) for row in (TIMED, RATE, MORE)] == ["≤ 2 ×", "≥ 150 /s", "≤ 1 ms more"]
    assert aim_of(Row("b", "w", 1, None, aim=Aim("median_s", 0.2))) == "≤ 200 ms"
    assert aim_of(Row("b", "w", 1, None)) == ""


def test_the_table_says_everything_at_120_columns_and_cuts_no_figure() -> None:
    text = printed(benchmark_table(results(TIMED, RATE, MORE)))
    assert max(map(len, text.splitlines())) <= 120
    assert "…" not in text
    joined = " ".join(text.split())
    for part in ("2026-01-02", "2 cores", "23.5 GiB", "memrl 0.1.0", "Python 3.12.1", "1.25 s", "2.82 s",
                 "10,000 × 384", "that, 500 ms", "2.50 ×", "1,234", "≤ 2 ×", "✗ no", "376 /s", "≥ 150 /s",
                 "✓ yes"):  # fmt: skip
        assert part in joined


def test_the_last_line_counts_the_aims_and_names_those_that_are_missed() -> None:
    assert aims_line(results(TIMED, RATE, MORE).rows) == "2 of 3 aims met. Missed: b: this."
    assert aims_line(results(RATE).rows) == "1 of 1 aims met."


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    written = results(TIMED, RATE, MORE, machine=this_machine())
    write_results(tmp_path / "rows.json", written)
    assert read_rows(tmp_path / "rows.json") == written
    write_results(tmp_path / "rows.json", results(RATE))
    assert read_rows(tmp_path / "rows.json") == results(RATE)


def test_a_file_has_the_promised_names_and_null_for_what_a_row_has_not(tmp_path: Path) -> None:
    nothing = Row("b", "not a number", 1, None, (float("nan"),), peak_mb=float("inf"))
    write_results(tmp_path / "rows.json", results(TIMED, RATE, nothing))

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    found = json.loads((tmp_path / "rows.json").read_text(), parse_constant=refuse)
    assert found["machine"] == {
        "system": "Linux x86_64", "cores": 2, "memory_gib": 23.5, "python": "3.12.1", "version": "0.1.0",
    }  # fmt: skip
    assert found["date"].startswith("2026-01-02T03:04:05")
    timed, rate, none = found["rows"]
    assert timed.pop("p95_s") == pytest.approx(2.825)
    assert timed == {
        "benchmark": "b", "what": "this", "memories": 10_000, "dimension": 384, "size": "all", "ratio_median": 2.5,
        "median_s": 1.25, "min_s": 0.5, "max_s": 3.0, "repetitions": 3, "reference": "that", "reference_median_s": 0.5,
        "over_s": 0.75, "value": None, "unit": None, "peak_mb": 1234.4, "aim": "≤ 2 ×", "met": False,
    }  # fmt: skip
    assert (rate["value"], rate["unit"], rate["median_s"], rate["reference"]) == (376.2, "/s", None, None)
    assert none["median_s"] is none["peak_mb"] is none["met"] is None


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"rows": []}', b'{"machine": 1, "date": "x", "rows": 3}'])
def test_what_is_no_measurement_is_told_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.json").write_bytes(content)
    with pytest.raises(InputError, match="holds no measurements"):
        read_rows(tmp_path / "rows.json")


def timed(ratio: float, spread: float = 0.0, **other: Any) -> Row:
    """A row of this ratio to a reference of a second, whose quickest repetition and p95 are `spread` apart."""
    return Row(**{"benchmark": "b", "what": "this", "memories": 1, "dimension": None, **other},
               seconds=(ratio - spread, ratio, ratio), reference="that", reference_seconds=(1.0,))  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (timed(2.0, 0.5), timed(2.4, 0.1), False),
        (timed(2.0, 0.1), timed(2.4, 0.5), False),
        (timed(2.0, 0.1), timed(2.4, 0.2), True),
        (timed(2.4, 0.0), timed(2.0, 0.0), False),
    ],
)
def test_a_row_got_worse_when_it_did_by_more_than_both_spreads(before: Row, after: Row, worse: bool) -> None:
    (change,) = compared(results(before), results(after)).changes
    assert change.is_worse is worse
    assert change.percent == pytest.approx(100 * (change.after / change.before - 1))  # type: ignore[operator]


def test_rows_belong_together_by_what_memories_dimension_and_size() -> None:
    row = timed(2.0)
    others = [timed(2.0, what="more"), timed(2.0, memories=2), timed(2.0, dimension=3), timed(2.0, size="all")]
    found = compared(results(row, *others[:2]), results(row, *others[2:]))
    assert [change.row.what for change in found.changes] == ["this"]
    assert (len(found.only_old), len(found.only_new)) == (2, 2)
    lines = comparison_lines(found)
    assert lines[0] == "Only in the old file: b: more (1 memory)"
    assert lines[-1] == "0 of 1 rows got worse by more than their spread."


def test_a_value_that_misses_its_aim_now_is_marked() -> None:
    slow = Row("b", "steps per second", 10_000, 384, value=149.0, unit="/s", aim=RATE.aim)
    text = printed(comparison_table(compared(results(RATE), results(slow))))
    assert "376 /s" in text and "149 /s" in text and "-60.4 %" in text and "✗ misses its aim now" in text


def test_another_machine_is_told_and_another_version_is_none() -> None:
    other, newer = (
        Machine("Linux x86_64", 8, 23.5, "3.12.1", "0.1.0"),
        Machine("Linux x86_64", 2, 23.6, "3.13", "0.2.0"),
    )
    assert compared(results(RATE), results(RATE, machine=other)).machines_differ
    assert not compared(results(RATE), results(RATE, machine=newer)).machines_differ


def test_the_command_measures_what_was_asked_prints_it_and_leaves_it(tmp_path: Path, stub: list[Sizes]) -> None:
    file = tmp_path / "rows.json"
    words = [
        "--memories",
        "5",
        "--steps",
        "6",
        "--repeat",
        "7",
        "--dimension",
        "8",
        "--minutes",
        "0.5",
        "--rounds",
        "9",
    ]
    code, text = memrl("diagram", *words, "--json", str(file))
    assert (code, stub) == (0, [Sizes(5, 6, 7, 8, 0.5, 9)])
    assert "…" not in text and text.rstrip().endswith("1 of 2 aims met. Missed: b: this.")
    assert [row.what for row in read_rows(file).rows] == ["this", "steps per second"]


def test_what_was_measured_before_a_failure_is_printed_and_kept(tmp_path: Path, stub: list[Sizes]) -> None:
    code, text = memrl("diagram", "--rounds", "13", "--json", str(tmp_path / "rows.json"))
    assert (code, text) == (2, "It went wrong.")
    assert len(read_rows(tmp_path / "rows.json").rows) == 2


@pytest.mark.parametrize("place", [".", "nowhere/rows.json", "file/rows.json", "n" * 300])
def test_a_place_that_no_file_can_be_written_to_is_told_before_measuring(
    tmp_path: Path, place: str, stub: list[Sizes]
) -> None:
    (tmp_path / "file").touch()
    code, text = memrl("diagram", "--json", str(tmp_path / place))
    assert code == 2 and "Nothing was measured" in text
    assert stub == []
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]


def test_asking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text("kept")
    must_be_writable(tmp_path / "kept.json")
    must_be_writable(tmp_path / "new.json")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("kept.json", "kept")]


def test_the_command_compares_two_files(tmp_path: Path, stub: list[Sizes]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_results(old, results(timed(2.0)))
    write_results(new, results(timed(3.0)))
    code, text = memrl("--compare", str(old), str(new))
    assert code == 0 and stub == []
    assert all(part in text for part in ("2.00 ×", "3.00 ×", "+50.0 %", "✗ worse", "1 of 1 rows got worse"))


def test_comparing_with_what_cannot_be_read_ends_with_a_sentence_and_1(tmp_path: Path) -> None:
    write_results(tmp_path / "old.json", results(RATE))
    code, text = memrl("--compare", str(tmp_path / "old.json"), str(tmp_path / "new.json"))
    assert code == 1
    assert "cannot be read" in " ".join(text.split()) and "Traceback" not in text
    assert memrl("diagram", "--compare", str(tmp_path / "old.json"), str(tmp_path / "old.json"))[0] == 2


def test_this_machine_says_how_large_it_is() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory_gib is None or machine.memory_gib > 0.1
