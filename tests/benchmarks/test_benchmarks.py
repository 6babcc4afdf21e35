"""Benchmarks measure the real thing; how fast it is belongs to no test."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from benchmarks import first_token, step, suite
from benchmarks.__main__ import app
from benchmarks.measuring import Aim, Row, Sizes
from benchmarks.results import contents, table_of
from benchmarks.suite import DEFAULT, benchmark, run_benchmarks
from benchmarks.synthetic import RUN, SETTINGS, synthetic_bank
from memrl_core.analysis.memory.exposure import uses
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.policies.methods.memrl import MemRL
from tests.builders import an_agent

MEMORIES, STEPS = 40, 30
TINY = Sizes(memories=8, steps=5, repeat=1, dimension=16)


@cache
def measured(name: str) -> tuple[Row, ...]:
    """What a benchmark finds of as little as can be."""
    return tuple(run_benchmarks([name], TINY))


def test_a_synthetic_bank_is_sound_and_as_large_as_asked() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        assert len(bank.memories(RUN)) == MEMORIES
        assert [row.step for row in bank.steps.rows(RUN)] == list(range(1, STEPS + 1))
        assert len(uses(bank, RUN)) == STEPS * SETTINGS.k1
        bank.write.flush()
        assert all(finding.ok for finding in check(bank.uri))


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULT)
def test_a_benchmark_measures_each_time_beside_its_reference(name: str) -> None:
    found = measured(name)
    assert {row.benchmark for row in found} == {name} == {benchmark(name).NAME}
    for row in found:
        assert np.isfinite(row.seconds).all() and row.memories >= 1
        assert row.reference and len(row.reference_seconds) >= 1 if row.seconds else row.value is not None and row.unit
    assert any(row.aim for row in found)
    assert all(row.peak_mb is None or row.peak_mb > 1 for row in found)
    assert len({(row.what, row.memories, row.dimension, row.size) for row in found}) == len(found)


@pytest.mark.slow
def test_the_wait_for_a_first_token_is_measured_in_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_token, "ANSWERS", 2)
    with ThreadPoolExecutor(1) as apart:  # Tests of the browser may have left Playwright's loop in this thread.
        (row,) = apart.submit(lambda: list(run_benchmarks([first_token.NAME], TINY))).result()
    # Later than the word left the server, and before the server, a second later, ends the answer.
    assert len(row.seconds) == 2 and all(0 < wait < first_token.PAUSE for wait in row.seconds)
    assert row.aim == Aim("median_s", 0.15)


@pytest.mark.slow
def test_a_step_is_measured_beside_an_append_at_first_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "GROUP", 3)
    monkeypatch.setattr(step, "WARM_UP", 1)
    found = {row.what: row for row in run_benchmarks(["step"], TINY)}
    first, later = found["a step without model and world"], found["the same, later"]
    assert len(first.seconds) == len(first.reference_seconds) == len(later.seconds) == 3
    assert found["a step later, against one at first"].reference_seconds == first.seconds
    assert (found["growth on disk ÷ bytes of the facts"].value or 0) > 0
    assert all(row.aim for what, row in found.items() if what != "the same, later")
    assert all(row.peak_mb for row in found.values())


def test_a_recall_multiplies_the_only_copy_of_the_vectors() -> None:
    with synthetic_bank(2000) as bank:
        view = bank.view(RUN)
        assert np.shares_memory(view.embeddings[7], bank.view(RUN).embeddings[7])
        policy, query = MemRL(SETTINGS), view.embeddings[7].copy()
        policy.recall(query, view)
        tracemalloc.start()
        policy.recall(query, view)
        further = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert further < np.asarray(view.embeddings).nbytes / 10


def test_a_crash_in_a_batch_loses_at_most_its_steps_and_no_part_of_one(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    with agent.bank.write.batch(4):
        traces = list(agent.run(sample_tasks("household-train")[:10]))
        with MemoryBank.open(agent.bank.uri) as survived:
            assert [row.id for row in survived.steps.rows(agent.run_id)] == [trace.id for trace in traces[:8]]
            assert survived.utilities(agent.run_id) == agent.bank.utilities(agent.run_id, as_of=8)
            assert len(survived.memories()) == 8
        assert all(finding.ok for finding in check(agent.bank.uri))
    agent.bank.close()


TIMED = Row(
    "b", "this", 10_000, 384, (0.5, 3.0, 1.25), "that", (0.5, 0.5, 0.5), aim=Aim("ratio", 2), peak_mb=1234.4, size="all"
)
RATE = Row("b", "steps per second", 10_000, 384, value=376.2, unit="/s", aim=Aim("value", 150, at_least=True))
MACHINE = "a machine"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> list[Sizes]:
    """A benchmark that measures nothing and fails at 13 repetitions; the sizes that it was given."""
    given: list[Sizes] = []

    class Stub:
        NAME = "b"

        @staticmethod
        def measure(sizes: Sizes) -> Iterator[Row]:
            given.append(sizes)
            yield from (TIMED, RATE)
            if sizes.repeat == 13:
                raise InputError("It went wrong.")

    monkeypatch.setattr(suite, "benchmark", lambda name: Stub)
    return given


def bench(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


def test_a_file_has_the_promised_names_and_null_for_what_a_row_has_not() -> None:
    nothing = Row("b", "not a number", 1, None, (float("nan"),), peak_mb=float("inf"))
    found = contents([TIMED, RATE, nothing], MACHINE)
    assert found["machine"] == MACHINE
    assert json.dumps(found, allow_nan=False) and "1 of 2 aims met; missed: b: this" in table_of(found).notes
    timed, rate, none = found["rows"]
    assert timed.pop("p95_s") == pytest.approx(2.825)
    assert timed == {
        "benchmark": "b", "what": "this", "memories": 10_000, "dimension": 384, "size": "all", "ratio_median": 2.5,
        "median_s": 1.25, "min_s": 0.5, "max_s": 3.0, "repetitions": 3, "reference": "that", "reference_median_s": 0.5,
        "over_s": 0.75, "value": None, "unit": None, "peak_mb": 1234.4, "aim": "≤ 2 ×", "met": False,
    }  # fmt: skip
    assert (rate["value"], rate["unit"], rate["median_s"], rate["aim"]) == (376.2, "/s", None, "≥ 150 /s")
    assert none["median_s"] is none["peak_mb"] is none["met"] is None


def test_the_command_measures_prints_and_keeps_the_rows(tmp_path: Path, stub: list[Sizes]) -> None:
    file = tmp_path / "rows.json"
    sizes = ("--memories", "5", "--steps", "6", "--repeat", "7", "--dimension", "8")
    done = bench("policies", *sizes, "--json", str(file))
    assert (done.exit_code, stub) == (0, [Sizes(5, 6, 7, 8)])
    shown = ("1.25 s", "2.50 ×", "1,234", "376 /s", "1 of 2 aims met")
    assert all(part in done.output for part in shown) and "…" not in done.output
    assert [row["what"] for row in json.loads(file.read_text())["rows"]] == ["this", "steps per second"]


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path, stub: list[Sizes]) -> None:
    done = bench("policies", "--repeat", "13", "--json", str(tmp_path / "rows.json"))
    assert isinstance(done.exception, InputError)
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 2


@pytest.mark.slow
def test_the_command_prints_the_machine_and_a_sentence_without_a_traceback() -> None:
    command = [sys.executable, "-m", "benchmarks"]
    sizes = ("--memories", "50", "--steps", "5", "--repeat", "1")
    done = subprocess.run([*command, "questions", *sizes], capture_output=True, text=True)
    assert done.returncode == 0 and "cores" in done.stdout and "questions" in done.stdout
    wrong = subprocess.run([*command, "nothing"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "no benchmark" in wrong.stderr and "Traceback" not in wrong.stderr
