"""What an experiment found, worked by hand: every number of every report, and whatever is not finished yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from memrl_core.experiments.cells import SCHEMA
from memrl_core.experiments.epochs import by_epoch, conditions, counterparts
from memrl_core.experiments.executors import Experiment, run_experiment
from memrl_core.experiments.plan import Plan, Report
from memrl_core.experiments.report_table import ReportTable, markdown
from memrl_core.experiments.reports import reports

SET = "household-train"
ALL_REPORTS = list(get_args(Report))


def a_plan(report: str = "accuracy", arms: Sequence[str] = ("old", "new"), **changes: Any) -> Plan:
    return Plan.model_validate({"title": "T", "report": [report], "arms": [{"name": arm} for arm in arms], **changes})


def a_row(
    arm: str, seed: int, epoch: int, step: int, task: str, success: bool | None, **changes: Any
) -> dict[str, Any]:
    """A step in which no memory was used, unless `changes` say otherwise."""
    empty: dict[str, list[Any]] = {name: [] for name in SCHEMA.names if name.startswith("used")}
    return {
        "arm": arm, "stream": "household", "seed": seed, "phase": "learn", "stage": 1, "set": SET, "epoch": epoch,
        "step": step, "task": task, "family": "heat", "success": success, "reward": 1.0, "memories": step, "pool": 0,
        "tied": False, "other_by_tie": False, "tainted": False, "chance": nan,
        "poison_left": 0, "poison_q": None, **empty, **changes,
    }  # fmt: skip


def a_use(
    q: float, visits: int = 1, outcome: str = "success", own: bool = True, poison: bool = False
) -> dict[str, Any]:
    """The lists of a step that used one memory."""
    return {
        "used": ["m"], "used_similarity": [0.9], "used_q": [q], "used_visits": [visits], "used_outcome": [outcome],
        "used_same_task": [own], "used_poison": [poison],
    }  # fmt: skip


def epochs_of(arm: str, seed: int, outcomes: Sequence[str], first: int = 1, **changes: Any) -> list[dict[str, Any]]:
    """A text an epoch, a letter a task: + solved, - failed, ? not rated."""
    letters = {"+": True, "-": False, "?": None}
    rows = []
    for epoch, text in enumerate(outcomes, start=first):
        for column, letter in enumerate(text):
            step = (epoch - 1) * len(text) + column + 1
            rows.append(a_row(arm, seed, epoch, step, f"t{column}", letters[letter], **changes))
    return rows


def an_experiment(plan: Plan, rows: Iterable[dict[str, Any]]) -> Experiment:
    steps = pd.DataFrame(list(rows))
    return Experiment(plan, Path("out"), steps, by_epoch(plan, steps), 1, 1, False, "")


def the_table(plan: Plan, rows: Iterable[dict[str, Any]]) -> ReportTable:
    (table,) = reports(an_experiment(plan, rows))
    return table


def cells(table: ReportTable) -> dict[str, dict[str, str]]:
    """By row and column."""
    return {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}


# --- a row an epoch ---------------------------------------------------------------------------------------------------


def test_settings_stand_beside_the_measures_of_an_epoch() -> None:
    rows = [
        a_row("new", 0, 1, 1, "a", True),
        a_row("new", 0, 1, 2, "b", True),
        a_row("new", 0, 2, 3, "a", True),
        a_row("new", 0, 2, 4, "b", False),
        a_row("new", 0, 2, 1, "c", True, phase="evaluate"),
    ]
    plan = Plan.model_validate({"title": "T", "arms": [{"name": "new", "settings": {"weight": 0.25}}]})
    found = by_epoch(plan, pd.DataFrame(rows))
    assert list(found["phase"]) == ["learn", "learn", "evaluate"]
    assert list(found["memories"]) == [2, 4, 1]
    assert set(found["weight"]) == {0.25} and set(found["policy"]) == {"memrl"}


# --- the reports ------------------------------------------------------------------------------------------------------


def test_steps_without_a_result_are_counted_beside_the_shares_that_leave_them_out() -> None:
    rows = [*epochs_of("old", 0, ["++--"]), *epochs_of("new", 0, ["+?-?"])]
    found = the_table(a_plan(), rows)
    assert cells(found)["new"]["last epoch"].startswith("50.0 %")
    assert any(note.startswith("steps without a result") and note.endswith("old 0, new 2") for note in found.notes)
    whole = the_table(a_plan(), epochs_of("old", 0, ["++--"]))
    assert not any("without a result" in note for note in whole.notes)


def test_accuracy_is_that_of_the_last_epoch_and_differences_are_paired_by_seed() -> None:
    rows = [
        *epochs_of("old", 0, ["++--", "+---"]),
        *epochs_of("old", 1, ["----", "++--"]),
        *epochs_of("new", 0, ["----", "+++-"]),
        *epochs_of("new", 1, ["----", "++++"]),
    ]
    found = cells(the_table(a_plan(), rows))
    # old: 1/4 and 2/4; new: 3/4 and 4/4, better by 50 points under either seed, so the interval has no width.
    assert found["old"]["last epoch"] == "37.5 % (25.0…50.0)"
    assert found["new"]["last epoch"] == "87.5 % (75.0…100.0)"
    assert found["new"]["against old"] == "+50.0 pp (+50.0…+50.0)"
    assert found["old"]["against old"] == "–"
    # old, seed 0: t0 and t1 ever, t1 lost; seed 1: t0 and t1, none lost.
    assert found["old"]["CSR"] == "50.0 % (50.0…50.0)"
    assert found["old"]["solved before, failing now"] == "12.5 % (0.0…25.0)"


def test_a_seed_that_only_one_arm_has_is_left_out_of_the_difference() -> None:
    rows = [*epochs_of("old", 0, ["--"]), *epochs_of("new", 0, ["+-"]), *epochs_of("new", 1, ["++"])]
    found = cells(the_table(a_plan(), rows))
    assert found["new"]["last epoch"] == "75.0 % (50.0…100.0)"
    assert found["new"]["against old"] == "+50.0 pp"


def test_forgetting_by_both_definitions() -> None:
    # Epoch 2: of t0, t1 solved, t1 lost; failures t1, t3. Epoch 3: of t0, t2 solved, t0 lost; failures t0, t1, t3.
    rows = [*epochs_of("old", 0, ["++--", "+-+-", "--+-"]), *epochs_of("new", 0, ["++--", "+++-", "++++"])]
    found = cells(the_table(a_plan("forgetting"), rows))
    assert found["old"] == {
        "solved before, failing now": "37.5 %",
        "forgetting rate (of failures)": "41.7 %",
        "forgetting rate (of solved)": "50.0 %",
        "of failures, against old": "–",
        "lost per task": "0.75",
        "won back per task": "0.00",
    }
    assert found["new"]["forgetting rate (of solved)"] == "0.0 %"
    assert found["new"]["of failures, against old"] == "−41.7 pp"


def test_won_back_counts_what_was_lost_and_came_again() -> None:
    found = cells(the_table(a_plan("forgetting", ["old"]), epochs_of("old", 0, ["++", "--", "+-", "++"])))
    # Lost: 2 in epoch 2, 1 still in epoch 3; won back: t0 in epoch 3, t1 in epoch 4; two tasks.
    assert (found["old"]["lost per task"], found["old"]["won back per task"]) == ("1.50", "1.00")


A, B = "household-train:heat", "household-train:clean"
STREAM = {"name": "s", "evaluate": [A, B], "stages": [{"tasks": A}, {"tasks": B}, {"tasks": A}]}


def a_stream_of(arm: str, learned: Sequence[str], used: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """A stage an epoch: its outcomes, then those of the frozen use on A and on B."""
    rows = []
    for stage, (name, text, uses) in enumerate(zip((A, B, A), learned, used, strict=True), start=1):
        where = {"stream": "s", "stage": stage}
        rows += epochs_of(arm, 0, [text], first=stage, set=name, **where)
        for other, outcomes in zip((A, B), uses, strict=True):
            rows += epochs_of(arm, 0, [outcomes], first=stage, set=other, phase="evaluate", **where)
    return rows


def test_a_stream_gives_average_accuracy_and_transfer_back_and_forth() -> None:
    plan = a_plan("streams", ["no memory", "new"], streams=[STREAM])
    rows = a_stream_of("no memory", ["----"] * 3, [("----", "+---")] * 3)
    rows += a_stream_of("new", ["+++-", "++--", "+---"], [("++++", "++--"), ("+---", "+++-"), ("----", "----")])
    found = cells(the_table(plan, rows))
    # R = [[1, 0.5], [0.25, 0.75]] after the first stage of each set; b = [0, 0.25].
    assert found["new"] == {
        "average accuracy": "50.0 %",
        "backward transfer": "−75.0 pp",
        "forward transfer": "+25.0 pp",
        "back to the first set": "−50.0 pp",
    }
    assert found["no memory"]["forward transfer"] == "+0.0 pp"


def test_transfer_is_the_frozen_use_after_the_last_stage() -> None:
    plan = a_plan("transfer", streams=[STREAM])
    rows = a_stream_of("old", ["----"] * 3, [("++++", "++++"), ("++++", "++++"), ("+---", "++--")])
    rows += a_stream_of("new", ["----"] * 3, [("----", "----"), ("----", "----"), ("++--", "+---")])
    table = the_table(plan, rows)
    assert table.rows == (
        ("old", A, "25.0 %", "–"),
        ("old", B, "50.0 %", "–"),
        ("new", A, "50.0 %", "+25.0 pp"),
        ("new", B, "25.0 %", "−25.0 pp"),
    )


def test_a_shift_is_reported_with_what_was_before_and_how_long_the_way_back_was() -> None:
    plan = a_plan("shift", ["quick", "lost"], streams=[{"shift_at": [31]}])
    worlds = {"quick": "+" * 30 + "-" * 6 + "+" * 60, "lost": "+" * 30 + "-" * 60}
    rows = [
        row
        for arm, text in worlds.items()
        for step, letter in enumerate(text, start=1)
        for row in [a_row(arm, 0, 1, step, f"t{step}", letter == "+")]
    ]
    found = cells(the_table(plan, rows))
    # Quick: 24 of the first 30 steps after the shift; within 5 points at most 1 of 30 may fail: steps 36 … 65 do that.
    assert list(found["quick"].values()) == ["100.0 %", "80.0 %", "100.0 %", "1 of 1", "35"]
    assert list(found["lost"].values()) == ["100.0 %", "0.0 %", "0.0 %", "0 of 1", "–"]


def test_correlation_is_of_single_uses_and_of_bin_means() -> None:
    plan = a_plan("correlation", ["old"])
    pairs = [(-0.9, False), (-0.9, False), (0.9, True), (0.9, True), (0.1, False), (0.1, True)]
    rows = [a_row("old", 0, 1, n, f"t{n}", won, **a_use(q)) for n, (q, won) in enumerate(pairs, start=1)]
    rows.append(a_row("old", 0, 1, 9, "unrated", None, **a_use(5.0)))
    found = cells(the_table(plan, rows))["old"]
    q, won = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    pearson = ((q - q.mean()) * (won - won.mean())).sum() / (len(q) * q.std() * won.std())
    assert found["uses"] == "6"
    assert found["Pearson, per use"] == f"{pearson:.2f}"
    # Three bins with means (-0.9, 0), (0.1, 0.5), (0.9, 1).
    means = np.corrcoef([-0.9, 0.1, 0.9], [0, 0.5, 1])[0, 1]
    assert found["Pearson of 8 bin means"] == f"{means:.2f}"


def test_failures_with_a_high_q_are_counted_by_whose_task_it_is() -> None:
    plan = a_plan("failures", ["old"])
    uses = [
        (True, a_use(0.6, outcome="failure", own=True)),
        (False, a_use(0.6, outcome="failure", own=False)),
        (False, a_use(0.7, outcome="failure", own=False)),
        (True, a_use(0.9, outcome="success")),
        (False, a_use(0.9, visits=0, outcome="failure")),
        (False, a_use(0.4, outcome="failure")),
    ]
    rows = [a_row("old", 0, 1, n, f"t{n}", won, **used) for n, (won, used) in enumerate(uses, start=1)]
    table = the_table(plan, rows)
    assert "q of at least 0.5" in table.title
    assert list(cells(table)["old"].values()) == ["75.0 %", "33.3 %", "100.0 %", "0.0 %", "100.0 %"]


# --- what is not there yet, or never is -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A real experiment with everything in it that a report can be about."""
    stages = [{"tasks": name, "count": 4} for name in (A, B, A)]
    plan = Plan.model_validate(
        {
            "title": "All",
            "seeds": 2,
            "epochs": 2,
            "report": ALL_REPORTS,
            "compare_with": "MemRL",
            "arms": [
                {"name": "no memory", "settings": {"k2": 0}},
                {"name": "MemRL"},
                {"name": "hit", "settings": {"alpha": 0.9}},
            ],
            "streams": [
                {"name": "there and back", "stages": stages, "evaluate": [A, B], "evaluate_count": 3},
                {"name": "plain", "stages": [{"count": 4}], "shift_at": [3]},
            ],
        }
    )
    return run_experiment(plan, tmp_path_factory.mktemp("all") / "out", jobs=1)


def only(experiment: Experiment, keep: pd.Series) -> Experiment:
    steps = experiment.steps[keep]
    return Experiment(experiment.plan, experiment.out, steps, by_epoch(experiment.plan, steps), 1, 12, True, "")


@pytest.mark.slow
def test_every_report_can_be_told_of_any_cells_that_are_finished(finished: Experiment) -> None:
    assert (finished.done, finished.error) == (12, "")
    steps = finished.steps
    both = {"plain", "there and back"}
    for arms, streams, seeds in (
        ({"no memory"}, both, {0}),
        ({"MemRL"}, {"plain"}, {0, 1}),
        ({"hit"}, both, {0}),
        ({"no memory", "hit"}, {"there and back"}, {0, 1}),
        ({"no memory", "MemRL", "hit"}, both, {0, 1}),
    ):
        part = only(finished, steps["arm"].isin(arms) & steps["stream"].isin(streams) & steps["seed"].isin(seeds))
        tables = reports(part)
        assert len(tables) == len(ALL_REPORTS)
        for table in tables:
            assert "nan" not in markdown(table), table.title
            assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.slow
def test_a_reference_that_lacks_a_seed_the_others_have_is_compared_where_it_can_be(finished: Experiment) -> None:
    steps = finished.steps
    part = only(finished, (steps["arm"] != "MemRL") | ((steps["seed"] == 1) & (steps["stream"] == "plain")))
    assert len(reports(part)) == len(ALL_REPORTS)


@pytest.mark.parametrize(("report", "why"), [("transfer", "has sets"), ("streams", "different sets"), ("shift", "30")])
def test_a_report_about_what_was_never_run_says_so(report: str, why: str) -> None:
    table = the_table(a_plan(report), epochs_of("old", 0, ["+-"]))
    assert table.rows == ()
    assert why in table.notes[0]


def test_a_name_with_a_bar_does_not_break_a_table_of_markdown() -> None:
    text = markdown(the_table(a_plan(arms=["a | b"]), epochs_of("a | b", 0, ["+"])))
    assert "| a \\| b | 100.0 % |" in text


def test_windows_compare_each_arm_with_its_own_similarity_in_the_first_and_the_last_80_steps() -> None:
    arms = [
        {"name": "none", "policy": "none"},
        {"name": "flat 1", "settings": {"weight": 0.0, "k2": 1}},
        {"name": "q 1", "settings": {"k2": 1}},
        {"name": "flat 3", "settings": {"weight": 0.0}},
        {"name": "q 3"},
        {"name": "followed 3", "settings": {"credit": "followed"}},
    ]
    plan = Plan.model_validate({"title": "T", "report": ["windows"], "arms": arms, "compare_with": "flat 1"})
    solved = {
        "none": (0, 0),
        "flat 1": (40, 48),
        "q 1": (44, 64),
        "flat 3": (60, 60),
        "q 3": (50, 72),
        "followed 3": (60, 60),
    }
    rows: list[dict[str, Any]] = []
    for arm, (early, late) in solved.items():
        for seed, more in ((0, 0), (1, 8 * (arm == "q 1"))):
            text = "+" * early + "-" * (80 - early) + "-" * 10 + "+" * (late + more) + "-" * (80 - late - more)
            used = [a_use(0.5) if arm == "q 1" and step < 20 else {} for step in range(len(text))]
            for step, letter in enumerate(text):
                follows = {"follows": ["m"] if step < 15 else [], "at_hand": step < 10, "taken": step < 5}
                rows.append(a_row(arm, seed, 1, step + 1, f"t{step}", letter == "+", **{**used[step], **follows}))
    found = cells(the_table(plan, rows))
    assert found["q 1"]["first 80 steps"].startswith("55.0 %")
    assert found["q 1"]["last 80 steps"] == "85.0 % (80.0…90.0)"
    assert [found[arm]["against"] for arm in solved] == ["flat 1", "–", "flat 1", "–", "flat 3", "flat 3"]
    assert found["q 1"]["difference, last 80 steps"] == "+25.0 pp (+20.0…+30.0)"
    assert found["q 1"]["seeds ahead, last 80 steps"] == "2 of 2"
    assert found["q 3"]["difference, first 80 steps"] == "−12.5 pp (−12.5…−12.5)"
    assert found["flat 1"]["difference, all steps"] == found["flat 1"]["seeds ahead, last 80 steps"] == "–"
    assert found["q 1"]["from a memory · right at hand · taken"] == "30 of 40 · 20 of 40 · 10"


def test_windows_of_a_short_run_are_its_halves_and_leave_out_what_was_not_rated() -> None:
    found = cells(the_table(a_plan("windows", compare_with="old"), [
        *epochs_of("old", 0, ["+-?-", "+--?"]), *epochs_of("new", 0, ["++?-", "++++"]),
    ]))  # fmt: skip
    assert found["new"]["first 4 steps"] == "66.7 %" and found["new"]["last 4 steps"] == "100.0 %"
    assert found["new"]["difference, last 4 steps"] == "+66.7 pp"
    assert found["new"]["seeds ahead, last 4 steps"] == "1 of 1"


def test_poison_is_followed_from_the_epoch_in_which_it_comes_in() -> None:
    plan = a_plan("poison", ["clean", "hit"])
    rows = epochs_of("clean", 0, ["++", "++", "++"])
    rows += epochs_of("hit", 0, ["++"])
    bad, good = a_use(0.0, poison=True), a_use(0.5)
    rows += [
        a_row("hit", 0, 2, 3, "t0", False, tainted=True, poison_left=3, poison_q=-0.1, **bad),
        a_row("hit", 0, 2, 4, "t1", False, tainted=True, poison_left=3, poison_q=-0.2, **bad),
        a_row("hit", 0, 3, 5, "t0", True, poison_left=3, poison_q=-0.2, **good),
        a_row("hit", 0, 3, 6, "t1", False, tainted=True, poison_left=2, poison_q=-0.4, **good),
    ]
    clean, hit = the_table(plan, rows).rows
    assert hit == ("hit", "−100.0 pp", "−50.0 pp", "100.0 %", "0.0 %", "50.0 %", "−0.20", "−0.40", "2.00")
    assert clean == ("clean", "–", "–", "0.0 %", "0.0 %", "0.0 %", "–", "–", "–")


def test_conditions_compare_each_arm_with_its_own_similarity_in_every_epoch(tmp_path: Path) -> None:
    plan = Plan.model_validate(
        {
            "title": "t", "seeds": 2, "epochs": 2, "report": ["conditions"],
            "grid": {"weight": [0.0, 0.5], "k2": [1, 2]},
            "streams": [
                {"name": "p", "stages": [{"tasks": "parametric-far", "count": 6, "fresh": True}],
                 "grid": {"spread": [0.0, 0.4]}}
            ],
        }
    )  # fmt: skip
    experiment = run_experiment(plan, tmp_path / "out", jobs=1)
    assert counterparts(plan) == {"λ = 0.5, k2 = 1": "λ = 0.0, k2 = 1", "λ = 0.5, k2 = 2": "λ = 0.0, k2 = 2"}
    found = conditions(plan, pd.read_parquet(tmp_path / "out" / "results.parquet"))
    assert len(found) == 2 * 2 * 2
    steps = experiment.steps
    for row in found.to_dict("records"):
        part = steps[(steps["stream"] == row["stream"]) & (steps["epoch"] == row["epoch"])]
        won = [part[part["arm"] == arm]["chance"].mean() for arm in (row["arm"], row["against"])]
        assert (row["success"], row["reference"]) == pytest.approx(won)
        # Where all ways are equally reliable, no choice among them can be better.
        assert row["spread"] or row["difference"] == pytest.approx(0)
    assert set(steps[steps["stream"] == "spread 0.4"]["chance"].round(3)) <= {0.1, 0.367, 0.633, 0.9}
