"""Methods on the same tasks: every number of the table by hand or in plain Python, and what runs them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import combinations
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from memrl_core.agent.setup import fits
from memrl_core.analysis.compare.methods import MethodRow, luck_curve, method_curves, method_rows, paired_by_task
from memrl_core.analysis.run.consultations import cost_of
from memrl_core.analysis.run.metrics import Estimate
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, PolicyFailed, SettingsError
from memrl_core.experiments.cells import cells_of, run_cell
from memrl_core.experiments.epochs import by_epoch
from memrl_core.experiments.executors import COSTS, Experiment, run_experiment
from memrl_core.experiments.method_arms import Arm, MethodsCompared, compare_methods, picture_page
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.report_table import ReportTable, rich_tables
from memrl_core.experiments.reports import reports
from memrl_core.policies import POLICIES, make_policy
from memrl_core.policies.methods.rag import Rag
from memrl_core.records import Consulted, Message, Phase, Reply, Turn
from memrl_core.settings import MemRLSettings

ARMS = (Arm("MemRL", "memrl"), Arm("RAG", "rag"), Arm("nothing", "none"))
Outcome = bool | None
Grids = Sequence[Sequence[Sequence[Outcome]]]


# --- frames of steps --------------------------------------------------------------------------------------------------


def frame(arm: str, grids: Grids, policy: str = "memrl", stage: int = 1, **changes: Any) -> list[dict[str, Any]]:
    """A grid (epochs, tasks) a seed, as steps of one arm."""
    rows = []
    for seed, grid in enumerate(grids):
        for epoch, line in enumerate(grid, start=1):
            for task, success in enumerate(line):
                step = (epoch - 1) * len(line) + task + 1
                rows.append(
                    {"arm": arm, "policy": policy, "badge": "paper", "seed": seed, "stage": stage, "epoch": epoch,
                     "step": step, "task": f"t{task}", "success": success, "memories_after": step,
                     "prompt_tokens": 10, "answer_tokens": 2, "calls": 3, "consulted": 1, "unparsed": 0, **changes}
                )  # fmt: skip
    return rows


def letters(*seeds: str) -> list[list[list[Outcome]]]:
    """A text a seed, a word an epoch, a letter a task: + solved, - failed, ? not rated."""
    reported: dict[str, Outcome] = {"+": True, "-": False, "?": None}
    return [[[reported[letter] for letter in word] for word in text.split()] for text in seeds]


def rows_of(*parts: Iterable[dict[str, Any]], without: str = "", reference: str = "") -> dict[str, MethodRow]:
    steps = pd.DataFrame([row for part in parts for row in part])
    return {row.arm: row for row in method_rows(steps, without, reference)}


def same(found: float, expected: float) -> bool:
    return found == pytest.approx(expected, nan_ok=True)


# --- the measures, in plain Python ------------------------------------------------------------------------------------

OUTCOMES = st.sampled_from([True, False, None])
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
GRIDS = SHAPES.flatmap(
    lambda shape: st.lists(
        st.lists(
            st.lists(OUTCOMES, min_size=shape[2], max_size=shape[2]), min_size=shape[1], max_size=shape[1]
        ),
        min_size=shape[0],
        max_size=shape[0],
    )
)  # fmt: skip


def mean_of(values: Iterable[float]) -> float:
    known = [value for value in values if not isnan(value)]
    return fmean(known) if known else nan


def share(solved: int, of: int) -> float:
    return solved / of if of else nan


def tries_of(grid: Sequence[Sequence[Outcome]]) -> list[list[bool]]:
    """The rated tries of each task that has any."""
    columns = [[line[task] for line in grid if line[task] is not None] for task in range(len(grid[0]))]
    return [[bool(won) for won in column] for column in columns if column]


def by_luck(grid: Sequence[Sequence[Outcome]], epoch: int) -> float:
    """Pass@k over all ways to take a task's first so many tries from all its tries."""
    chances = []
    for task in range(len(grid[0])):
        tries = [line[task] for line in grid if line[task] is not None]
        k = sum(line[task] is not None for line in grid[:epoch])
        if tries:
            chances.append(fmean(any(chosen) for chosen in combinations(tries, k)))
    return fmean(chances) if chances else nan


def forgotten(grid: Sequence[Sequence[Outcome]]) -> tuple[float, float]:
    of_failures, of_solved = [], []
    for epoch in range(1, len(grid)):
        before = {}
        for line in grid[:epoch]:
            before.update({task: won for task, won in enumerate(line) if won is not None})
        now = {task: won for task, won in enumerate(grid[epoch]) if won is not None}
        lost = [task for task, won in now.items() if not won and before.get(task)]
        of_failures.append(share(len(lost), sum(not won for won in now.values())))
        of_solved.append(share(len(lost), sum(bool(before.get(task)) for task in now)))
    return mean_of(of_failures), mean_of(of_solved)


@settings(max_examples=15)
@given(GRIDS)
def test_every_measure_of_an_arm_is_what_its_steps_come_to(grids: Grids) -> None:
    row = rows_of(frame("a", grids), without="a")["a"]
    last = [grid[-1] for grid in grids]
    assert same(row.success.value, mean_of(share(line.count(True), len(line) - line.count(None)) for line in last))
    solved = [share(sum(any(tries) for tries in tries_of(grid)), len(tries_of(grid))) for grid in grids]
    assert same(row.csr.value, mean_of(solved))
    rates = [forgotten(grid) for grid in grids]
    assert same(row.lost_of_failures.value, mean_of(a for a, _ in rates))
    assert same(row.lost_of_solved.value, mean_of(b for _, b in rates))
    assert same(row.memories, len(grids[0]) * len(grids[0][0]))
    assert (row.tokens, row.calls, row.consulted, row.unparsed) == (12, 3, 1, 0)


@settings(max_examples=15)
@given(GRIDS)
def test_luck_is_pass_at_as_many_tries_and_ends_where_csr_ends(grids: Grids) -> None:
    steps = pd.DataFrame(frame("none", grids, policy="none"))
    luck, (csr,) = luck_curve(steps, "none"), method_curves(steps)
    rated = all(tries_of(grid) for grid in grids)
    for epoch in range(1, len(grids[0]) + 1) if rated else ():
        assert same(luck.value[epoch - 1], mean_of(by_luck(grid, epoch) for grid in grids))
    assert same(luck.value[-1], csr.value[-1])


def test_the_gain_is_the_mean_of_the_last_epochs_differences_task_by_task() -> None:
    mine, nothing = letters("---- ++-?", "---- +++-"), letters("++++ +---", "++++ --+-")
    found = rows_of(frame("a", mine), frame("b", nothing, "none"), without="b", reference="a")
    # Seed 0: 0, +1, 0, unrated; seed 1: +1, +1, 0, 0.
    assert found["a"].gain.value == pytest.approx(3 / 7)
    assert found["b"].against.value == pytest.approx(-3 / 7)
    assert not found["b"].gain.known and not found["a"].against.known


def test_forgetting_is_counted_within_a_stage() -> None:
    first = frame("a", letters("++ -+"))
    second = [{**row, "stage": 2, "epoch": row["epoch"] + 2} for row in frame("a", letters("-- --"))]
    assert rows_of(first, second)["a"].lost_of_failures.value == fmean([1.0, 0.0])


def test_the_share_of_unparsed_answers_is_of_those_that_were_asked_for() -> None:
    reported = frame("a", letters("+-+-"))
    for row, (asked, unparsed) in zip(reported, [(0, 0), (2, 1), (1, 1), (1, 0)], strict=True):
        row |= {"consulted": asked, "unparsed": unparsed}
    assert rows_of(reported)["a"].unparsed == 0.5
    assert isnan(rows_of(frame("a", letters("+"), consulted=0))["a"].unparsed)


# --- intervals --------------------------------------------------------------------------------------------------------


def drawn_anew(seeds: Sequence[Sequence[float]], draws: int = 2000) -> tuple[float, float]:
    """Seeds drawn anew, and the tasks of each drawn one, one at a time."""
    rng = random.Random(7)
    means = []
    for _ in range(draws):
        every = [value for seed in rng.choices(seeds, k=len(seeds)) for value in rng.choices(seed, k=len(seed))]
        means.append(fmean(every))
    means.sort()
    return means[int(0.025 * draws)], means[int(0.975 * draws)]


@pytest.mark.parametrize(
    "seeds",
    [
        [[1.0, 0.0, 0.0, 1.0, -1.0, 0.0]],
        [[1.0] * 9 + [0.0] * 6, [0.0] * 12 + [-1.0] * 3, [1.0] * 5 + [0.0] * 10],
        [[1.0, 0.0] * 10, [1.0, 1.0, 0.0, -1.0] * 4],
    ],
)
def test_the_interval_is_that_of_seeds_and_their_tasks_drawn_anew(seeds: list[list[float]]) -> None:
    found = paired_by_task([np.array(seed) for seed in seeds])
    assert found.value == pytest.approx(fmean(value for seed in seeds for value in seed))
    low, high = drawn_anew(seeds)
    assert found.low == pytest.approx(low, abs=0.06) and found.high == pytest.approx(high, abs=0.06)


def test_equal_differences_leave_no_doubt_and_none_at_all_no_value() -> None:
    assert paired_by_task([np.array([0.25, 0.25]), np.array([0.25])]) == Estimate(0.25, 0.25, 0.25)
    assert not paired_by_task([np.array([nan])]).known
    assert not paired_by_task([]).known


# --- what a step costs ------------------------------------------------------------------------------------------------


def test_the_cost_of_an_answer_counts_turns_questions_and_what_could_not_be_read() -> None:
    turns = [Turn(Reply("a", prompt_tokens=n, answer_tokens=1, seconds=0.5), "", 0, False, False) for n in (5, 7)]
    asked = [
        Consulted("p", Phase.SELECT, (), "", {"a": 1}, simulated=False, prompt_tokens=3, answer_tokens=2, seconds=1.0),
        Consulted("p", Phase.SELECT, (), "?", None, simulated=False, prompt_tokens=4, answer_tokens=1, seconds=1.0),
    ]
    found = cost_of(turns, asked)
    assert (found.prompt_tokens, found.answer_tokens) == (5 + 7 + 3 + 4, 1 + 1 + 2 + 1)
    assert (found.calls, found.consulted, found.unparsed, found.seconds) == (4, 2, 1, 3.0)


def test_a_template_costs_its_words_and_an_unreported_count_leaves_no_sum() -> None:
    message = Message("user", "three small words")
    template = Consulted("p", Phase.WRITE, (message,), "", {"so": "it is"}, simulated=True)
    assert cost_of([], [template]).prompt_tokens == 3
    assert cost_of([], [template]).answer_tokens == len(['{"so":', '"it', 'is"}'])
    untold = Turn(Reply("a"), "", 0, False, False)
    assert cost_of([untold], [template]).prompt_tokens is None


# --- experiments ------------------------------------------------------------------------------------------------------


def a_plan(policies: Sequence[str], seeds: int = 2, **changes: Any) -> Plan:
    shown = {"title": "Tiny", "question": "Which?", "seeds": seeds, "epochs": 2, "report": ["methods"]}
    streams = [{"stages": [{"count": 4}]}]
    return Plan.model_validate({**shown, "grid": {"policy": list(policies)}, "streams": streams, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Two seeds, two epochs and four tasks of arms of which one asks the model questions of its own."""
    folder = tmp_path_factory.mktemp("methods")
    plan = a_plan(["memrl", "rag", "none", "self_rag"], compare_with="rag")
    return run_experiment(plan, folder / "out", jobs=1, banks=str(folder / "banks"))


def test_each_step_has_the_cost_of_its_trace_and_the_badge_of_its_policy(finished: Experiment) -> None:
    asked = 0
    for cell in cells_of(finished.plan):
        with MemoryBank.open(str(finished.out.parent / "banks" / cell.name)) as bank:
            traces, memories = bank.traces("learn"), bank.memory_count("learn")
        steps = finished.steps
        mine = steps[(steps["arm"] == cell.arm.name) & (steps["seed"] == cell.seed)]
        badge = make_policy(cell.arm.policy, cell.settings).spec.variant
        for (_, row), trace in zip(mine.iterrows(), traces, strict=True):
            asked += len(trace.consulted)
            assert row["calls"] == len(trace.generate.turns) + len(trace.consulted)
            assert (row["consulted"], row["unparsed"]) == (len(trace.consulted), 0)
            words = sum(len(m.content.split()) for one in trace.consulted for m in one.messages)
            assert row["prompt_tokens"] == sum(t.reply.prompt_tokens or 0 for t in trace.generate.turns) + words
            assert (row["policy"], row["badge"]) == (cell.arm.policy, badge)
        assert mine["memories_after"].iloc[-1] == memories
    assert asked, "an arm of this experiment asks questions"


def test_a_cell_is_the_same_again_but_for_how_long_it_took(tmp_path: Path, finished: Experiment) -> None:
    plan = finished.plan
    cell = next(cell for cell in cells_of(plan) if cell.arm.policy == "self_rag")
    again = run_cell(cell, str(tmp_path / "bank"))
    steps = finished.steps
    mine = steps[(steps["arm"] == cell.arm.name) & (steps["seed"] == cell.seed)].reset_index(drop=True)
    pd.testing.assert_frame_equal(again.to_pandas(), mine)
    took = pd.read_parquet(finished.out / COSTS)
    assert list(took["step"]) == list(steps["step"]) and (took["seconds"] > took["model_seconds"]).all()
    assert (took["model_seconds"] > 0).all()


def test_the_report_has_a_row_an_arm_and_the_page_its_pictures(finished: Experiment) -> None:
    (table,) = reports(finished)
    assert [row[0] for row in table.rows] == ["memrl", "rag", "none", "self_rag"]
    reported = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert reported["rag"]["against rag"] == reported["none"]["over no memory"] == "–"
    assert reported["memrl"]["unparsed"] == "–" and reported["self_rag"]["unparsed"] == "0.0 %"
    assert len({row["no memory, as many tries"] for row in reported.values()}) == 1
    page = picture_page(finished)
    assert page.count("<figure>") == 4


def table_of(plan: Plan, rows: Iterable[dict[str, Any]]) -> ReportTable:
    filler = {"stream": "household", "phase": "learn", "set": "s", "memories": 0, "tied": False,
              "other_by_tie": False, "used_same_task": [], "chance": nan}  # fmt: skip
    steps = pd.DataFrame([{**row, **filler} for row in rows])
    (table,) = reports(Experiment(plan, Path("out"), steps, by_epoch(plan, steps), 1, 1, False, ""))
    return table


def test_a_row_of_the_report_worked_by_hand() -> None:
    plan = a_plan([], grid={}, arms=[{"name": "new"}, {"name": "luck", "settings": {"k2": 0}}], compare_with="luck")
    table = table_of(plan, [*frame("new", letters("++-- +-++")), *frame("luck", letters("+--- -+--"))])
    new, luck = table.rows
    # One seed: no interval over seeds; the last epoch differs by +1, -1, +1, +1 on its four tasks.
    assert new[:3] == ("new", "paper", "75.0 %")
    assert new[3].startswith("+50.0 pp (") and new[4] == new[3]
    assert new[5:] == ("100.0 %", "50.0 %", "100.0 %", "50.0 %", "8", "12", "3.0", "0.0 %")
    assert luck[3:5] == ("–", "–") and luck[7:9] == ("33.3 %", "100.0 %")


@pytest.mark.parametrize("width", [40, 80, 400])
def test_a_table_that_is_too_wide_for_a_terminal_comes_in_parts_without_a_broken_word(width: int) -> None:
    words = ("memory_r1_ops", "(+18.3…+45.0)", "100.0", "%")
    columns = ("arm", *(f"column {number}" for number in range(9)))
    report = ReportTable(
        "T", columns, tuple((words[0], *(f"{words[2]} {words[3]} {words[1]}",) * 9) for _ in "ab"), ("n",)
    )
    tables = rich_tables(report, width)
    heads = [[str(column.header) for column in table.columns] for table in tables]
    assert all(head[0] == "arm" for head in heads)
    assert [name for head in heads for name in head[1:]] == list(columns[1:])
    assert (len(tables) == 1) == (width == 400)
    console = Console(width=width, file=StringIO())
    console.print(*tables)
    shown = console.file.getvalue()
    assert shown.count(words[1]) == 18 and shown.count(words[0]) == 2 * len(tables)
    assert all(len(line) <= width for line in shown.splitlines())


# --- what a world lacks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_the_household_gives_what_every_method_needs(policy: str) -> None:
    assert fits(policy, "household") == ""


def test_a_conversation_gives_no_reward_by_itself() -> None:
    shown = fits("memrl", "conversation")
    assert "MemRL" in shown and "conversation" in shown
    assert fits("rag", "conversation") == fits("none", "conversation") == ""
    with pytest.raises(SettingsError, match="no policy"):
        fits("nothing", "household")
    with pytest.raises(InputError, match="no environment"):
        fits("rag", "nowhere")


# --- compared from a screen -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary banks, in which nothing may be left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def compared(arms: Sequence[Arm] = ARMS, **changes: Any) -> MethodsCompared:
    return compare_methods(arms, **{"count": 2, "seeds": [0, 1], "epochs": 1, **changes})


@pytest.mark.slow
def test_arms_in_banks_of_their_own_are_the_cells_of_an_experiment(finished: Experiment) -> None:
    names = ["memrl", "rag", "none", "self_rag"]
    found = compared(arms=[Arm(name, name) for name in names], count=4, epochs=2)
    assert (found.steps["model_seconds"] >= 0).all()
    pd.testing.assert_frame_equal(found.steps.drop(columns="model_seconds"), finished.steps)
    assert repr(list(found.rows)) == repr(method_rows(found.steps, "none", "memrl"))
    assert (found.without, found.seeds) == ("none", (0, 1))
    assert [curve.arm for curve in found.curves] == names and found.luck is not None


def test_an_arm_without_memory_runs_beside_those_that_have_some() -> None:
    found = compared(ARMS[:1], seeds=[0])
    assert [row.arm for row in found.rows] == ["MemRL", "no memory"] and found.without == "no memory"
    bare = Arm("bare", "memrl", MemRLSettings(k2=0))
    assert [row.arm for row in compared([ARMS[0], bare], seeds=[0]).rows] == ["MemRL", "bare"]


def test_an_arm_that_fails_is_refused_with_its_sentence_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise PolicyFailed("It broke.")

    monkeypatch.setattr(Rag, "select", failing)
    reported: list[tuple[int, int]] = []
    found = compared(on_progress=lambda *at: reported.append(at))
    assert found.refused == {"RAG": "It broke."}
    assert [done for done, _ in reported] == sorted(done for done, _ in reported) and reported[-1] == (12, 12)
    assert [row.arm for row in found.rows] == ["MemRL", "nothing"]
    assert set(found.steps["arm"]) == {"MemRL", "nothing"} and found.seeds == (0, 1)


@pytest.mark.parametrize(("after", "seeds"), [(0, ()), (9, (0,))])
def test_it_ends_within_a_step_with_the_seeds_that_were_over(after: int, seeds: tuple[int, ...]) -> None:
    steps = 0

    def count(done: int, _: int) -> None:
        nonlocal steps
        steps = done

    found = compared(on_progress=count, cancelled=lambda: steps >= after)
    assert found.stopped and steps <= after + 1 and found.seeds == seeds
    assert (set(found.steps["seed"]) if len(found.steps) else set()) == set(seeds) and bool(found.rows) == bool(seeds)


@pytest.mark.parametrize(
    ("arms", "changes", "reported"),
    [
        ([], {}, "needs arms"),
        ([ARMS[0], Arm("MemRL", "rag")], {}, "its own"),
        ([Arm("", "rag")], {}, "its own"),
        ([Arm("a", "unknown")], {}, "no policy"),
        ([Arm("a", "rag", MemRLSettings())], {}, "weight"),
        (ARMS, {"seeds": []}, "needs seeds"),
        (ARMS, {"epochs": 0}, "one epoch"),
        (ARMS, {"tasks": "nowhere"}, "of tasks"),
        (ARMS, {"tasks": "conversation"}, "gives rewards"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    arms: Sequence[Arm], changes: dict[str, Any], reported: str
) -> None:
    heard: list[int] = []
    with pytest.raises((InputError, SettingsError), match=reported):
        compared(arms, on_progress=lambda done, total: heard.append(done), **changes)
    assert heard == []
