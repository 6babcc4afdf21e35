"""Experiments on one machine: the same seed gives the same traces, and whatever ends a run keeps what is finished."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from memrl_core import __version__
from memrl_core.agent.live import LiveRun
from memrl_core.agent.runs import live_run
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.cli import console
from memrl_core.cli.main import app
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.tasks import named_tasks
from memrl_core.errors import EmbedderMismatch, InputError, MemRLError, ModelChanged, NoVector
from memrl_core.experiments import cells as cells_module
from memrl_core.experiments.cells import Cell, cells_of, rows_in, run_cell
from memrl_core.experiments.executors import Experiment, ResultFolder, run_experiment
from memrl_core.experiments.plan import Plan, Stream
from memrl_core.experiments.study import Stopped
from memrl_core.records import StepTrace
from tests.experiments.tiny_experiment import ROOT, a_plan, a_plan_file, kept, results, started, until


def digest_of(cell: Cell, folder: Path) -> str:
    digest: bytes = run_cell(cell, str(folder)).schema.metadata[b"digest"]
    return digest.decode()


def digests(out: Path) -> list[str]:
    return [cell["digest"] for cell in json.loads((out / "experiment.json").read_text())["cells"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An experiment of four cells that nothing ended, in one process, with its banks."""
    folder = tmp_path_factory.mktemp("whole")
    return run_experiment(a_plan(seeds=2), folder / "out", jobs=1, banks=str(folder / "banks"))


# --- the same again ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_cell_has_the_same_digest_and_any_other_another(tmp_path: Path) -> None:
    plan = a_plan(seeds=2, arms=[{"name": "a"}])
    first, second = cells_of(plan)
    here = digest_of(first, tmp_path / "here")
    assert digest_of(first, tmp_path / "there") == here
    assert digest_of(first, tmp_path / "there") == here, "a bank that stands there is begun anew"
    others = [
        second,
        *cells_of(a_plan(arms=[{"name": "a", "settings": {"alpha": 0.31}}])),
        *cells_of(a_plan(arms=[{"name": "a"}], epochs=3)),
        *cells_of(a_plan(arms=[{"name": "a"}], count=5)),
    ]
    found = {digest_of(cell, tmp_path / f"other{number}") for number, cell in enumerate(others)}
    assert len(found | {here}) == 5


def test_options_of_the_model_reach_the_runs_of_every_arm_and_an_arms_own_go_before(tmp_path: Path) -> None:
    arms = [{"name": "a"}, {"name": "b", "model_options": {"temperature": 0.9}}]
    cells = cells_of(a_plan(count=2, epochs=1, arms=arms, model_options={"temperature": 0.2, "num_predict": 20}))
    found = []
    for cell in cells:
        run_cell(cell, str(tmp_path / cell.arm.name))
        with MemoryBank.open(str(tmp_path / cell.arm.name)) as bank:
            generate = bank.trace(bank.runs()[0].id, 1).generate
            found.append((generate.options["temperature"], generate.options["num_predict"]))
    assert found == [(0.2, 20), (0.9, 20)]


def test_a_task_without_a_vector_is_skipped_in_every_phase_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = named_tasks("household-train:heat")[0].intent
    embed = HashingEmbedder.embed

    def without(self: HashingEmbedder, texts: Sequence[str]) -> Any:
        if poison in texts:
            raise NoVector("Nothing fits. Nothing was stored; take another embedder.")
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed", without)
    stages = [{"tasks": "household-train:heat", "count": 0}]
    stream = {"stages": stages, "evaluate": ["household-train:heat"], "evaluate_count": 0}
    found = run_experiment(a_plan(streams=[stream], epochs=1, arms=[{"name": "a"}]), tmp_path / "out", jobs=1)
    assert (found.error, found.skipped) == ("", 2)
    skipped = found.steps[found.steps["success"].isna()]
    assert skipped["phase"].to_list() == ["learn", "evaluate"] and (skipped["pool"] == 0).all()
    assert found.steps["success"].notna().sum() == len(found.steps) - 2


def test_the_name_of_an_arm_changes_no_digest_and_names_another_cell(tmp_path: Path) -> None:
    (one,), (other,) = (cells_of(a_plan(arms=[{"name": name}])) for name in "ab")
    assert one.fingerprint != other.fingerprint
    assert digest_of(one, tmp_path / "a") == digest_of(other, tmp_path / "b")


def test_tasks_that_changed_since_are_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = cells_of(a_plan(arms=[{"name": "a"}]))
    before = cell.fingerprint
    first, *others = named_tasks(cell.stream.stages[0].tasks)
    changed = [replace(first, intent=f"{first.intent} please"), *others]
    monkeypatch.setattr(cells_module, "named_tasks", lambda name: changed)
    cells_module._tasks_digest.cache_clear()
    try:
        assert cell.fingerprint != before
    finally:
        cells_module._tasks_digest.cache_clear()


def test_steps_are_counted_within_the_cells_on_the_way(tmp_path: Path) -> None:
    evaluated = {"stages": [{"count": 3}, {"count": 2, "epochs": 1}], "evaluate": ["household-heldout"]}
    plan = a_plan(streams=[{**evaluated, "evaluate_count": 2}])
    seen: list[tuple[int, int]] = []
    found = run_experiment(plan, tmp_path / "out", jobs=1, on_steps=lambda done, total: seen.append((done, total)))
    assert seen[0][0] == 0 and {total for _, total in seen} == {len(found.steps)} == {2 * (3 * 2 + 2 + 2 * 2)}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    again: list[tuple[int, int]] = []
    run_experiment(plan, tmp_path / "out", on_steps=lambda done, total: again.append((done, total)))
    assert again == [(len(found.steps), len(found.steps))], "finished cells count from the beginning"


def test_an_experiment_says_in_a_log_how_far_it_is_within_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY", 0.0)
    file = a_plan_file(tmp_path / "plan.toml", count=30)
    message = CliRunner().invoke(app, ["experiment", str(file), "--out", str(tmp_path / "out"), "--jobs", "1"]).output
    within = re.compile(r"cells [01] of 2, steps: (\d+) of 120 after .* s each, .* left")
    steps = {int(found[1]) for line in message.splitlines() if (found := within.search(line))}
    assert steps - {60, 120}, message


def test_a_process_that_ends_for_being_idle_writes_no_warning_of_joblib(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        run_experiment(a_plan(), tmp_path / "out", jobs=1)
        warnings.warn(
            "A worker stopped while some jobs were given to the executor. This can be …", UserWarning, stacklevel=1
        )
        warnings.warn("Something else.", UserWarning, stacklevel=1)
    assert [str(one.message) for one in caught if one.category is UserWarning] == ["Something else."]


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path: Path, whole: Experiment) -> None:
    apart = run_experiment(a_plan(seeds=2), tmp_path / "out", jobs=2)
    assert digests(apart.out) == digests(whole.out)
    pd.testing.assert_frame_equal(apart.steps, whole.steps)
    pd.testing.assert_frame_equal(results(apart.out), results(whole.out))


def test_arms_of_one_seed_meet_the_same_tasks_and_another_seed_meets_others(whole: Experiment) -> None:
    tasks = whole.steps.groupby(["seed", "arm"])["task"].apply(list)
    assert tasks[0, "no memory"] == tasks[0, "MemRL"]
    assert tasks[0, "MemRL"] != tasks[1, "MemRL"]


def test_what_it_came_from_stands_beside_the_results(whole: Experiment) -> None:
    message = json.loads((whole.out / "experiment.json").read_text())
    assert Plan.model_validate(message["plan"]) == whole.plan
    assert message["seeds"] == [0, 1]
    assert message["versions"]["memrl"] == __version__
    assert {"python", "numpy", "lancedb", "joblib"} <= set(message["versions"])
    assert [cell["name"] for cell in message["cells"]] == [cell.name for cell in cells_of(whole.plan)]
    assert all(len(cell["digest"]) == 64 for cell in message["cells"])
    assert pq.read_schema(whole.out / "results.parquet").metadata[b"title"] == b"Tiny"


# --- banks ------------------------------------------------------------------------------------------------------------


def test_each_cell_keeps_a_bank_that_has_every_step_of_its_table(whole: Experiment) -> None:
    for cell in cells_of(whole.plan):
        with MemoryBank.open(str(whole.out.parent / "banks" / cell.name)) as bank:
            mine = whole.steps[(whole.steps["arm"] == cell.arm.name) & (whole.steps["seed"] == cell.seed)]
            traces = list(bank.traces("learn"))
            assert [trace.task.id for trace in traces] == list(mine["task"])
            assert [list(trace.decision.selected) for trace in traces if trace.decision] == [
                list(used) for used in mine["used"]
            ]


def test_without_a_place_for_banks_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert run_experiment(a_plan(), tmp_path / "out", jobs=1).done == 2
    assert list((tmp_path / "temporary").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "temporary"]


# --- stopped, killed, cut short ---------------------------------------------------------------------------------------


def test_a_stopped_experiment_keeps_what_is_finished_and_goes_on_from_there(tmp_path: Path, whole: Experiment) -> None:
    out = tmp_path / "out"
    heard: list[tuple[int, int]] = []
    stopped = run_experiment(
        whole.plan, out, jobs=1, on_progress=lambda *done: heard.append(done), cancelled=lambda: (1, 4) in heard
    )
    assert stopped.stopped and not stopped.error
    assert 1 <= stopped.done < 4
    before = kept(out)
    assert len(before) == stopped.done == results(out).groupby(["arm", "seed"]).ngroups
    again = run_experiment(whole.plan, out, jobs=1)
    assert (again.done, again.stopped, again.error) == (4, False, "")
    assert before.items() <= kept(out).items()
    pd.testing.assert_frame_equal(again.steps, whole.steps)


def test_a_stop_in_the_middle_of_a_long_cell_ends_it_within_a_step(tmp_path: Path) -> None:
    """With 1000 epochs of 40 tasks the cell would take minutes."""
    banks = tmp_path / "banks"
    plan = a_plan(count=40, epochs=1000, arms=[{"name": "a"}])
    stopped = run_experiment(plan, tmp_path / "out", jobs=1, banks=str(banks), cancelled=banks.exists)
    assert (stopped.stopped, stopped.done) == (True, 0)
    assert stopped.steps.empty and stopped.epochs.empty


@pytest.mark.parametrize("harm", ["half", "empty", "another's", "draft"])
def test_a_cell_without_a_whole_file_of_its_own_counts_as_not_finished(
    tmp_path: Path, whole: Experiment, harm: str
) -> None:
    out = shutil.copytree(whole.out, tmp_path / "out")
    cell, other = cells_of(whole.plan)[:2]
    path = out / "cells" / f"{cell.name}.parquet"
    content = path.read_bytes()
    if harm == "draft":
        path.rename(path.with_name(f".{path.name}.draft"))
    else:
        foreign = (out / "cells" / f"{other.name}.parquet").read_bytes()
        path.write_bytes({"half": content[: len(content) // 2], "empty": b"", "another's": foreign}[harm])
    with ResultFolder(out) as folder:
        assert folder.kept(cell) is None
        assert folder.kept(other) is not None
    assert run_experiment(whole.plan, out, jobs=1).done == 4
    with ResultFolder(out) as folder:
        assert folder.kept(cell) == pq.read_table(whole.out / "cells" / path.name)


@pytest.mark.slow
def test_an_experiment_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    file = a_plan_file(tmp_path / "tiny.toml", seeds=3, count=15)
    out = tmp_path / "out"
    process = started(file, out, "--jobs", "1")
    until(lambda: kept(out), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = kept(out)
    assert 1 <= len(before) < 6
    plan = a_plan(count=15, seeds=3)
    again = run_experiment(plan, out, jobs=1)
    assert (again.done, again.error) == (6, "")
    assert before.items() <= kept(out).items()
    whole = run_experiment(plan, tmp_path / "whole", jobs=1)
    pd.testing.assert_frame_equal(results(out), results(whole.out))


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_experiment_with_a_sentence_and_the_same_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    out = tmp_path / "out"

    killed: list[int] = []

    def kill_one(done: int, _: int) -> None:
        # A cell that was finished before may still be reported after it.
        if done and not killed:
            killed.append(a_worker())
            os.kill(killed[0], signal.SIGKILL)

    found = run_experiment(a_plan(count=20, seeds=3), out, jobs=2, on_progress=kill_one)
    assert "was killed" in found.error and "are kept" in found.error
    assert 1 <= found.done == len(kept(out)) < 6
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("memrl-")] == []
    again = run_experiment(a_plan(count=20, seeds=3), out, jobs=2)
    assert (again.done, again.error, again.notes) == (6, "", ())
    whole = run_experiment(a_plan(count=20, seeds=3), tmp_path / "whole", jobs=2)
    pd.testing.assert_frame_equal(again.steps, whole.steps)


def a_worker() -> int:
    """The id of a process in which cells of this one run."""
    for process in Path("/proc").glob("[0-9]*"):
        # Some of them end while they are looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            command = (process / "cmdline").read_bytes()
            if f"PPid:\t{os.getpid()}\n" in (process / "status").read_text() and b"popen_loky_posix" in command:
                return int(process.name)
    raise AssertionError("There is none.")


@pytest.mark.slow
def test_ctrl_c_ends_the_command_with_a_sentence_and_what_is_finished(tmp_path: Path) -> None:
    file = a_plan_file(tmp_path / "tiny.toml", seeds=50, epochs=5, count=20)
    out = tmp_path / "out"
    process = started(file, out, "--jobs", "1")
    until(lambda: kept(out), process)
    os.killpg(process.pid, signal.SIGINT)
    message, noise = process.communicate(timeout=60)
    assert process.returncode == 130, noise
    assert noise == ""
    assert "go on" in message
    assert f"{len(kept(out))} of 100" in message
    assert list((tmp_path / "temporary").iterdir()) == []


# --- within a cell ----------------------------------------------------------------------------------------------------

WORLDS: dict[str, dict[str, Any]] = {
    "a household with frozen uses and a shift": {
        "streams": [
            {
                "shift_at": [3],
                "stages": [{"count": 2}, {"count": 1, "epochs": 1}],
                "evaluate": ["household-heldout"],
                "evaluate_count": 1,
            }
        ]
    },
    "poison, pruned": {
        "epochs": 4,
        "arms": [
            {
                "name": "poisoned",
                "settings": {"epsilon": 0.3},
                "poison": {"memories": 3, "after": 0.25},
                "prune": {"after": 0.5, "q_below": 0.5, "visits": 1},
            }
        ],
        "streams": [{"stages": [{"count": 3}]}],
    },
    "a helpdesk with a handbook": {"streams": [{"stages": [{"tasks": "helpdesk-train", "count": 4}]}]},
}


def ended_after(cell: Cell, uri: Path, checkpoint: Path, steps: int) -> None:
    """An attempt at `cell` that is cancelled after this many steps."""
    done = [0]

    def count() -> None:
        done[0] += 1

    with suppress(Stopped):
        run_cell(cell, str(uri), lambda: done[0] >= steps, count, checkpoint=checkpoint)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the steps that were played to their end, whatever came of their rows."""
    ended: list[int] = []

    def counted(play: Callable[..., StepTrace]) -> Callable[..., StepTrace]:
        def step(*asked: Any) -> StepTrace:
            trace = play(*asked)
            ended.append(trace.step)
            return trace

        return step

    for name in ("whole_step", "frozen_step"):
        monkeypatch.setattr(cells_module, name, counted(getattr(cells_module, name)))
    return ended


@pytest.mark.parametrize("world", WORLDS)
def test_a_cell_that_is_cut_short_anywhere_has_the_table_of_one_that_is_not(
    tmp_path: Path, played: list[int], world: str
) -> None:
    cell = cells_of(a_plan(**{"arms": [{"name": "MemRL", "settings": {"epsilon": 0.3}}], **WORLDS[world]}))[0]
    whole = run_cell(cell, str(tmp_path / "whole"))
    once = len(played)
    uri, checkpoint, new = tmp_path / "bank", tmp_path / "rows", []
    for _ in range(whole.num_rows):  # Every attempt adds one step.
        before = rows_in(checkpoint)
        ended_after(cell, uri, checkpoint, 1)
        assert rows_in(checkpoint) == before + 1
    found = run_cell(cell, str(uri), on_step=lambda: new.append(1), checkpoint=checkpoint, on_note=pytest.fail)
    assert found.equals(whole) and not new
    assert len(played) == 2 * once == 2 * whole.num_rows, "no step is played twice"
    assert found.schema.metadata[b"digest"] == whole.schema.metadata[b"digest"]


def test_a_step_that_was_stored_without_its_row_and_a_row_that_is_cut_are_no_loss(
    tmp_path: Path, played: list[int]
) -> None:
    cell = cells_of(a_plan(arms=[{"name": "MemRL"}]))[0]
    whole = run_cell(cell, str(tmp_path / "whole"))
    ended_after(cell, tmp_path / "bank", tmp_path / "rows", 5)
    lines = (tmp_path / "rows").read_text().splitlines(keepends=True)
    (tmp_path / "rows").write_text("".join(lines[:-1]) + lines[-1][:20])
    new: list[int] = []
    found = run_cell(
        cell,
        str(tmp_path / "bank"),
        on_step=lambda: new.append(1),
        checkpoint=tmp_path / "rows",
        on_note=pytest.fail,
    )
    assert found.equals(whole)
    assert len(played) == 2 * whole.num_rows, "no step is played twice"
    assert len(new) == whole.num_rows - 4, "those whose rows were not noted"


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        ("deleted", "was deleted"),
        ("torn", "is damaged"),
        ("of other settings", "other settings"),
        ("of other tasks", "another task"),
        ("rated", "rated"),
        ("rows lost", "are lost"),
        ("another's rows", "another cell"),
    ],
)
def test_a_cell_whose_bank_does_not_serve_begins_anew_and_says_why(tmp_path: Path, harm: str, why: str) -> None:
    arms = [{"name": "a", "settings": {"k2": 1}}, {"name": "b", "settings": {"k2": 2}}]
    cell, other_settings = cells_of(a_plan(arms=arms))
    uri, checkpoint = tmp_path / "bank", tmp_path / "rows"
    whole = run_cell(cell, str(tmp_path / "whole"))
    ended_after(cell, uri, checkpoint, 5)
    if harm in ("deleted", "of other settings", "of other tasks"):
        shutil.rmtree(uri)
    if harm == "of other settings":
        ended_after(other_settings, uri, tmp_path / "others", 5)
    elif harm == "of other tasks":
        ended_after(cell.model_copy(update={"stream": other_tasks(cell)}), uri, tmp_path / "others", 5)
    elif harm == "torn":
        content = (uri / "bank.db").read_bytes()
        (uri / "bank.db").write_bytes(content[: len(content) // 2])
    elif harm == "rated":
        with MemoryBank.open(str(uri)) as bank:
            bank.write.ratings.rate(Rating("learn", 2, 0.25, "ann"))
    elif harm == "rows lost":
        checkpoint.write_text("".join(checkpoint.read_text().splitlines(keepends=True)[:3]))
    elif harm == "another's rows":
        checkpoint.write_text(checkpoint.read_text().replace(cell.fingerprint, other_settings.fingerprint))
    notes: list[str] = []
    found = run_cell(cell, str(uri), checkpoint=checkpoint, on_note=notes.append)
    assert found.equals(whole)
    assert len(notes) == 1 and why in notes[0] and cell.name in notes[0] and "began anew" in notes[0]


@pytest.mark.parametrize(
    ("error", "why"), [(ModelChanged("Other weights."), "model has"), (EmbedderMismatch("Others."), "embedder has")]
)
def test_a_cell_whose_model_or_embedder_has_other_weights_now_begins_anew_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: MemRLError, why: str
) -> None:
    cell = cells_of(a_plan(arms=[{"name": "MemRL"}]))[0]
    ended_after(cell, tmp_path / "bank", tmp_path / "rows", 3)
    errors = [error]

    def changed(*asked: Any) -> LiveRun:
        if errors:
            raise errors.pop()
        return live_run(*asked)

    monkeypatch.setattr("memrl_core.experiments.cells.live_run", changed)
    notes: list[str] = []
    found = run_cell(cell, str(tmp_path / "bank"), checkpoint=tmp_path / "rows", on_note=notes.append)
    assert found.equals(run_cell(cell, str(tmp_path / "whole")))
    assert len(notes) == 1 and why in notes[0]


def other_tasks(cell: Cell) -> Stream:
    return Stream.model_validate({**cell.stream.model_dump(), "stages": [{"tasks": "household-heldout", "count": 4}]})


def test_a_bank_that_was_being_made_when_all_was_killed_is_made_anew_without_a_word(tmp_path: Path) -> None:
    cell = cells_of(a_plan(arms=[{"name": "MemRL"}]))[0]
    uri, checkpoint = tmp_path / "bank", tmp_path / "rows"
    ended_after(cell, uri, checkpoint, 0)
    (uri / "bank.db").unlink()
    assert rows_in(checkpoint) == 0
    found = run_cell(cell, str(uri), checkpoint=checkpoint, on_note=pytest.fail)
    assert found.equals(run_cell(cell, str(tmp_path / "whole")))


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "jobs"), [(signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGKILL, 2)])
def test_an_experiment_that_is_ended_goes_on_within_its_cells(tmp_path: Path, ending: int, jobs: int) -> None:
    out, plan = tmp_path / "out", a_plan(count=20, epochs=6)
    process = started(a_plan_file(tmp_path / "tiny.toml", epochs=6, count=20), out, "--jobs", str(jobs))
    until(lambda: any(rows_in(path) > 20 for path in (out / "cells").glob(".*.rows")), process)
    os.killpg(process.pid, ending)
    process.communicate(timeout=60)
    noted = sum(map(rows_in, (out / "cells").glob(".*.rows")))
    assert noted > 20
    seen: list[int] = []
    again = run_experiment(plan, out, jobs=jobs, on_steps=lambda done, total: seen.append(done))
    assert (again.done, again.error, again.notes) == (2, "", ())
    assert seen[0] >= noted, "the steps of an earlier attempt count at once"
    whole = run_experiment(plan, tmp_path / "whole", jobs=jobs)
    assert digests(out) == digests(whole.out)
    pd.testing.assert_frame_equal(again.steps, whole.steps)
    pd.testing.assert_frame_equal(results(out), results(whole.out))
    assert not list((out / "cells").glob(".*")) and not (out / ".under-way").exists()


# --- a disk that is full, a folder that cannot be used ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("when", ["at once", "after a cell"])
def test_a_disk_that_is_too_full_for_the_results_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    out = tmp_path / "out"
    written = pq.write_table

    def full(table: object, path: Path) -> None:
        if when == "at once" or kept(out):
            raise OSError(errno.ENOSPC, "No space left on device")
        written(table, path)

    monkeypatch.setattr(pq, "write_table", full)
    if when == "at once":
        found = run_experiment(a_plan(), out, jobs=1)
        assert "is full" in found.error and found.done == 0
    else:
        with pytest.raises(InputError, match="are kept"):
            run_experiment(a_plan(), out, jobs=1)
        assert len(kept(out)) == 1
    monkeypatch.undo()
    assert run_experiment(a_plan(), out, jobs=1).done == 2


def refused(out: Path) -> str:
    with pytest.raises(InputError) as failure:
        run_experiment(a_plan(), out, jobs=1)
    return str(failure.value)


def test_a_file_in_the_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    assert "cannot be written" in refused(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_the_results_of_another_experiment_are_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_experiment(a_plan(title="Other"), out, jobs=1)
    before = {file.name: file.read_bytes() for file in out.glob("*.*") if file.name != ".lock"}
    assert "Other" in refused(out)
    assert {file.name: file.read_bytes() for file in out.glob("*.*") if file.name != ".lock"} == before
    assert run_experiment(a_plan(title="Other", epochs=3), out, jobs=1).done == 2


def test_a_folder_that_another_process_works_in_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".lock"):
        assert "the experiment" in refused(tmp_path / "out")
    assert kept(tmp_path / "out") == {}
    assert run_experiment(a_plan(), tmp_path / "out", jobs=1).done == 2


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "sample_data" / "experiments").glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_experiment_runs_to_its_reports(tmp_path: Path, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head, *stages = text.split("[[streams.stages]]\n")
    small = head + "".join(f"[[streams.stages]]\ncount = 2\n{without_count(stage)}" for stage in stages)
    file = tmp_path / path.name
    file.write_text(small.replace("evaluate =", "evaluate_count = 2\nevaluate ="), encoding="utf-8")
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["experiment", str(file), "--out", str(out), "--seeds", "2", "--epochs", "2", "--jobs", "1"]
    )
    assert done.exit_code == 0, done.output
    assert all(digests(out))
    assert (out / "report.md").read_text(encoding="utf-8").count("**") >= 2
    found = results(out)
    assert {"policy", "arm", "stream", "seed", "phase", "stage", "set", "epoch", "tasks", "accuracy"} <= set(found)
    assert {"csr", "forgetting_rate_of_failures", "memories"} <= set(found)


def without_count(stage: str) -> str:
    return "".join(line for line in stage.splitlines(keepends=True) if not line.startswith("count"))


@pytest.mark.slow
def test_a_frozen_use_between_stages_does_not_undo_a_shift(tmp_path: Path) -> None:
    """Nothing is written while a memory is used frozen, so what is learned is the same with and without it."""
    stages = [{"tasks": "household-train:heat", "count": 8}] * 3
    streams = [{"shift_at": [18], "stages": stages, "evaluate": names} for names in ([], ["household-train:heat"])]
    learned = []
    for number, stream in enumerate(streams):
        (cell,) = cells_of(a_plan(arms=[{"name": "a"}], streams=[stream]))
        table = run_cell(cell, str(tmp_path / f"{number}")).to_pandas()
        learned.append(table[table["phase"] == "learn"].reset_index(drop=True))
    assert learned[0].equals(learned[1])
