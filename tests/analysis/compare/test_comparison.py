"""Runs compared: every metric and interval against counting by hand, scipy, and all draws one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent import Agent
from memrl_core.analysis.compare import comparison as comparisons
from memrl_core.analysis.compare.alignment import Alignment, Line, align, line_of, supposed_line
from memrl_core.analysis.compare.comparison import (
    Comparison,
    Difference,
    Metric,
    compare,
    cumulative_reward,
    divergences,
    finding,
    left_alone,
    metric_table,
    metrics,
    pair_rows,
    setting_differences,
    setup_warnings,
    shared_past,
)
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.analysis.run.metrics import percentiles
from memrl_core.bank import MemoryBank
from memrl_core.settings import MemRLSettings
from tests.analysis.lockstep import a_compared, a_line, begun, commit, rewarded, tasks_line
from tests.builders import a_bank, an_agent_after, numbers

Row = dict[str, Any]


# --- the oracle: metrics counted with dictionaries and loops ----------------------------------------------------------


def counted(alignment: Alignment, line: int) -> dict[str, float | None]:
    """Every metric of one line, from the rows where all lines have a value."""

    def known(field: str) -> list[tuple[tuple[str, str], int, Any]]:
        return [
            ((row.task, row.intent), row.occurrence, getattr(row.steps[line], field))
            for row in alignment.rows
            if all(getattr(step, field) is not None for step in row.steps)
        ]

    won = {(task, epoch): outcome == "success" for task, epoch, outcome in known("outcome")}
    tasks = {(row.task, row.intent) for row in alignment.rows}
    epochs = sorted({row.occurrence for row in alignment.rows})
    found: dict[str, float | None] = {}
    if won:
        found["success rate"] = fmean(won.values())
    if won and len(epochs) > 1:
        met = {task for task, _ in won}
        ever = [any(w for (t, _), w in won.items() if t == task) for task in met]
        found["cumulative success (CSR)"] = fmean(ever)
        whole = [epoch for epoch in epochs if all((task, epoch) in won for task in tasks)]
        if whole:
            found["last epoch"] = fmean(won[task, whole[-1]] for task in tasks)
        of_failures, of_successes = [], []
        for before, now in pairwise(epochs):
            both = [(won[t, before], won[t, now]) for t in tasks if (t, before) in won and (t, now) in won]
            lost = both.count((True, False))
            failures, successes = sum(not n for _, n in both), sum(b for b, _ in both)
            of_failures += [lost / failures] if failures else []
            of_successes += [lost / successes] if successes else []
        found["forgetting A"] = fmean(of_failures) if of_failures else None
        found["forgetting B"] = fmean(of_successes) if of_successes else None
    for name, field, read in (
        ("mean reward", "reward", float),
        ("valid answers", "valid", float),
        ("follows a memory", "follows", float),
        ("right one at hand", "at_hand", float),
        ("right one taken", "taken", float),
        ("turns", "turns", float),
        ("tokens read", "tokens_read", float),
        ("tokens written", "tokens_written", float),
        ("pool size", "pool", float),
        ("memories given", "selected", len),
    ):
        values = [read(value) for _, _, value in known(field)]
        if values:
            found[name] = fmean(values)
    return found


@st.composite
def some_lines(draw: st.DrawFn) -> list[Line]:
    """Two or three runs over up to four tasks and three epochs, with holes in what is known of them."""
    tasks, epochs = "wxyz"[: draw(st.integers(1, 4))], draw(st.integers(1, 3))
    number = st.none() | st.integers(0, 5)
    lines = []
    for name in "abc"[: draw(st.integers(2, 3))]:
        order = [task for _ in range(epochs) for task in draw(st.permutations(tasks))]
        steps = [
            a_compared(
                name,
                step,
                task,
                outcome=draw(st.sampled_from(["success", "failure", "success", "failure", None])),
                reward=draw(st.none() | st.sampled_from([-1.0, 0.25, 1.0])),
                turns=draw(number),
                tokens_read=draw(number),
                tokens_written=draw(number),
                valid=draw(st.none() | st.sampled_from([0.0, 0.7, 1.0])),
                follows=draw(st.none() | st.booleans()),
                at_hand=draw(st.none() | st.booleans()),
                taken=draw(st.none() | st.booleans()),
                pool=draw(number),
                selected=draw(st.none() | st.integers(0, 3).map(lambda n: tuple("klm"[:n]))),
            )
            for step, task in enumerate(order[: draw(st.integers(1, len(order)))], start=1)
        ]
        lines.append(a_line(name, steps))
    return lines


@given(some_lines())
def test_every_metric_is_what_counting_by_hand_gives(lines: list[Line]) -> None:
    alignment = align(lines)
    found = {metric.name: metric for metric in metrics(alignment)}
    by_hand = [counted(alignment, line) for line in range(len(lines))]
    names = {name for one in by_hand for name in one if any(other[name] is not None for other in by_hand)}
    assert set(found) == names
    for name, metric in found.items():
        assert list(metric.values) == pytest.approx([one[name] for one in by_hand], nan_ok=True)
        for value, delta in zip(metric.values[1:], metric.deltas, strict=True):
            known = None not in (value, metric.values[0])
            assert delta.value == pytest.approx(value - metric.values[0]) if known else delta is None


@given(some_lines())
def test_rewards_add_up_over_the_rows_that_have_one_in_every_run(lines: list[Line]) -> None:
    alignment = align(lines)
    rows = [row for row in alignment.rows if all(step.reward is not None for step in row.steps)]
    found = cumulative_reward(alignment)
    if not rows:
        assert found is None
        return
    assert list(found.positions) == list(range(1, len(rows) + 1))
    for line in range(len(lines)):
        sums = [sum(row.steps[line].reward or 0 for row in rows[:end]) for end in found.positions]
        assert list(found.totals[line]) == pytest.approx(sums)
    assert np.allclose(found.differences, found.totals[1:] - found.totals[0])
    one_task = len({(row.task, row.intent) for row in rows}) < 2
    assert bool(np.isnan(found.low).all()) == bool(np.isnan(found.high).any()) == one_task
    assert one_task or bool((found.low <= found.high).all())


def test_a_long_run_is_drawn_at_a_few_places_and_ends_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "POINTS", 7)
    tasks = "vwxyz" * 8
    rewards = np.random.default_rng(4).choice([-1.0, 1.0], size=(2, len(tasks)))
    found = cumulative_reward(rewarded(tasks, *rewards))
    assert len(found.positions) == 7
    assert (found.positions[0], found.positions[-1]) == (1, 40)
    sums = (rewards[1] - rewards[0]).cumsum()
    assert list(found.differences[0]) == pytest.approx(sums[found.positions - 1])
    drawn = _draws_of_sums(rewards[1] - rewards[0], 5, int(found.positions[3]))
    assert (found.low[0][3], found.high[0][3]) == pytest.approx(tuple(np.quantile(drawn, (0.025, 0.975))), abs=1.6)


def _draws_of_sums(gained: np.ndarray, tasks: int, end: int) -> list[float]:
    """The sum over the first `end` rows for every possible draw of `tasks` tasks that recur in turn."""
    own = [gained[:end][task::tasks].sum() for task in range(tasks)]
    return [sum(own[task] for task in draw) for draw in product(range(tasks), repeat=tasks)]


# --- intervals --------------------------------------------------------------------------------------------------------


def mean_reward(alignment: Alignment) -> Metric:
    return next(metric for metric in metrics(alignment) if metric.name == "mean reward")


@pytest.mark.parametrize("seed", range(3))
def test_with_one_epoch_the_interval_is_that_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = rng.normal(size=40)
    other = one + rng.normal(0.2, 0.6, size=40)
    metric = mean_reward(rewarded([f"t{n}" for n in range(40)], one, other))
    expected = scipy.stats.bootstrap(
        (one, other),
        lambda x, y, axis: np.mean(y, axis=axis) - np.mean(x, axis=axis),
        paired=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(9),
    )
    (delta,) = metric.deltas
    # A quantile of 2,000 draws is uncertain by about 3 of its 100 parts of the standard error.
    near = 0.15 * float(expected.standard_error)
    assert (delta.low, delta.high) == pytest.approx(tuple(expected.confidence_interval), abs=near)
    unpaired = float(np.hypot(one.std(), other.std())) / np.sqrt(40)
    assert delta.high - delta.low < 3.92 * unpaired * 0.8


@pytest.mark.parametrize("epochs", [(2, 2, 2), (3, 1, 2)])
def test_with_few_tasks_the_interval_is_that_of_all_draws_of_whole_tasks(epochs: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(epochs))
    tasks = [t for t, n in zip("xyz", epochs, strict=True) for _ in range(n)]
    gained = rng.normal(size=len(tasks)).round(2)
    metric = mean_reward(rewarded(tasks, np.zeros(len(tasks)), gained))
    of = {task: [g for t, g in zip(tasks, gained, strict=True) if t == task] for task in "xyz"}
    means = [fmean([*of[a], *of[b], *of[c]]) for a, b, c in product("xyz", repeat=3)]
    (delta,) = metric.deltas
    assert metric.tasks == 3
    # The rarest draw has a share of 1 / 27, more than the tail: the ends are the extremes.
    assert (delta.low, delta.high) == pytest.approx((min(means), max(means)))


def test_tasks_without_a_value_are_not_drawn() -> None:
    gained, unknown = [0.0, 0.3, 1.1, -0.8, 0.4], [None] * 45
    metric = mean_reward(rewarded([f"t{n}" for n in range(50)], [0.0] * 5 + unknown, gained + unknown))
    means = [fmean(draw) for draw in product(gained, repeat=5)]
    (delta,) = metric.deltas
    assert metric.tasks == 5
    assert (delta.low, delta.high) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))), abs=0.06)


@given(st.lists(st.none() | st.floats(-9, 9), min_size=1, max_size=30))
def test_draws_without_a_value_are_left_out(values: list[float | None]) -> None:
    column = np.array([np.nan if v is None else v for v in values])
    found, of_nothing = percentiles(np.stack([column, np.full(len(column), np.nan)], axis=1)).T
    known = [v for v in values if v is not None]
    assert found == pytest.approx(np.percentile(known, [2.5, 97.5]) if known else [np.nan] * 2, nan_ok=True)
    assert np.isnan(of_nothing).all()


def test_values_of_one_task_have_no_interval_whatever_else_was_met() -> None:
    metric = mean_reward(rewarded("xy", [-1.0, None], [1.0, None]))
    assert metric.tasks == 1
    (delta,) = metric.deltas
    assert delta is not None and delta.value == 2.0 and np.isnan([delta.low, delta.high]).all()


# --- one run against itself -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return an_agent_after(tmp_path_factory.mktemp("banks") / "bank", 10, epochs=2, k1=8, delta=0.1)


def itself(agent: Agent, **changes: Any) -> tuple[Comparison, list[Any]]:
    decided = counterfactual(agent.bank, "r", {**agent.bank.settings("r"), **changes})
    line = line_of(agent.bank, "r")
    return compare(agent.bank, [line, supposed_line(line, decided, "r supposed")]), decided


@pytest.mark.parametrize("changes", [{"k2": 1}, {"weight": 1.0}, {"delta": 0.6}, {"k1": 3, "weight": 0.1}, {}])
def test_other_settings_select_what_the_counterfactual_says(agent: Agent, changes: dict[str, Any]) -> None:
    comparison, decided = itself(agent, **changes)
    (pairs,) = comparison.pairs
    assert len(pairs) == len(decided) == 20
    for pair, supposed in zip(pairs, decided, strict=True):
        assert pair.one.selected == supposed.recorded and pair.other.selected == supposed.selected
        assert (Difference.MEMORIES in pair.differences) == supposed.differs
        assert (pair.added, pair.removed) == (supposed.entered, supposed.left)
        assert pair.other.pool == len(supposed.recall.pool)
    assert any(pair.differences for pair in pairs) == bool(changes)


def test_what_would_have_followed_is_not_made_up(agent: Agent) -> None:
    comparison, _ = itself(agent, k2=1)
    assert {metric.name for metric in comparison.metrics} == {"pool size", "memories given"}
    assert comparison.rewards is None
    assert {entry.difference for entry in divergences(comparison.pairs[0])} == {Difference.MEMORIES, Difference.ORDER}
    assert not any("reward" in name for name in pair_rows(comparison, 1).columns)
    assert finding(comparison)
    assert setup_warnings(comparison.alignment) == []
    assert shared_past(comparison.alignment) == left_alone(comparison.alignment) == ""


def test_supposed_settings_are_reported_beside_those_of_the_run(agent: Agent) -> None:
    settings = {**agent.bank.settings("r"), "k2": 1, "weight": 0.75}
    line = line_of(agent.bank, "r")
    found = setting_differences(agent.bank, [line, supposed_line(line, [], "r supposed")], {"r supposed": settings})
    assert found == titled(k2=("3", "1"), weight=("0.5", "0.75"))


def titled(**values: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {MemRLSettings.model_fields[name].title or name: given for name, given in values.items()}


# --- how they were set up ---------------------------------------------------------------------------------------------


def warned(*lines: Line) -> str:
    return "\n".join(setup_warnings(align(lines)))


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"environment": "sql"}, "(a: household, b: sql)"),
        ({"tasks": ""}, "(a: household-train, b: "),
        ({"embedder": "minilm"}, "embedder (a: hashing-8, b: minilm)"),
        ({"model": "llama"}, "model (a: simulated, b: llama)"),
        ({"seed": 7}, "seed (a: 1, b: 7)"),
        ({"policy": "rag"}, "policy (a: memrl, b: rag)"),
        ({"environment_options": {"shift_at": 9}}, "(a: none, b: shift_at = 9)"),
        ({"settings": {"reward_failure": 0.0, "reward_success": 1.0}}, "(a: -1 to 1, b: 0 to 1)"),
        ({"base": "elsewhere", "base_step": 5}, "elsewhere"),
    ],
)
def test_each_condition_that_is_not_shared_gets_a_sentence(info: dict[str, Any], says: str) -> None:
    one = tasks_line("a", "xy")
    (sentence,) = setup_warnings(align([one, tasks_line("b", "xy", **info)]))
    assert says in sentence and sentence.endswith(".")
    assert warned(one, tasks_line("b", "xy"), tasks_line("c", "xy", **info)).count("\n") == 0


def test_another_order_gets_a_sentence_for_every_run_that_has_it() -> None:
    found = setup_warnings(align([tasks_line("a", "xyz"), tasks_line("b", "xzy"), tasks_line("c", "zyx")]))
    assert [sentence.split(" met ")[0] for sentence in found] == ["a and b", "a and c"]


def test_a_fork_does_not_start_from_another_memory() -> None:
    base = tasks_line("a", "xyz")
    fork = replace(base, name="b", info=replace(base.info, id="b", base="a", base_step=1, first_step=2))
    own = tuple(replace(step, run="b") for step in base.steps[1:])
    assert warned(base, replace(fork, steps=base.steps[:1] + own)) == ""
    whole = replace(fork.info, base_step=0, first_step=1)
    again = replace(whole, id="c", base="b")
    lines = [base, tasks_line("b", "xyz"), tasks_line("c", "xyz")]
    assert warned(lines[0], replace(lines[1], info=whole), replace(lines[2], info=again)) == ""
    later = replace(again, base_step=3)
    assert "step 3" in warned(lines[0], replace(lines[1], info=whole), replace(lines[2], info=later))


def given_settings(bank: MemoryBank, *runs: str) -> dict[str, tuple[str, ...]]:
    return setting_differences(bank, [line_of(bank, run) for run in runs])


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    bank = a_bank(tmp_path / "bank", "a")
    begun(bank, "b")
    for run in "ab":
        for task in "uvwxyz":
            commit(bank, run, task)
    return bank


def test_settings_that_were_changed_are_reported_one_after_the_other(bank: MemoryBank) -> None:
    settings = bank.settings("a")
    assert given_settings(bank, "a", "b") == {}
    bank.write.change_settings("a", {**settings, "weight": 0.7, "k2": 1}, 3)
    assert given_settings(bank, "a", "b") == titled(weight=("0.5 → 0.7", "0.5"), k2=("3 → 1", "3"))


def test_a_run_without_a_step_is_reported_by_the_settings_it_would_have_even_if_they_differ_little(
    bank: MemoryBank,
) -> None:
    begun(bank, "c", settings={**bank.settings("a"), "delta": 0.2000001})
    assert given_settings(bank, "a", "c") == titled(delta=("0.2", "0.2000001"))


def test_a_setting_that_an_older_run_does_not_have_is_its_default(bank: MemoryBank) -> None:
    settings = bank.settings("a")
    older = {name: value for name, value in settings.items() if name not in ("credit", "k1")}
    begun(bank, "c", settings=older)
    bank.write.change_settings("a", {**settings, "credit": "followed"}, 3)
    assert given_settings(bank, "c", "a") == titled(credit=("prompt", "prompt → followed"))


def test_settings_of_a_past_that_is_shared_are_no_difference(bank: MemoryBank) -> None:
    changed = {**bank.settings("a"), "weight": 0.7}
    bank.write.change_settings("a", changed, 2)
    begun(bank, "fork", base="a", base_step=3, first_step=4, settings=changed)
    for task in "xyz":
        commit(bank, "fork", task)
    assert given_settings(bank, "a", "fork") == {}
    # Beside a run that does not share it, the past of the fork counts.
    assert given_settings(bank, "b", "fork") == titled(weight=("0.5", "0.5 → 0.7"))


# --- words ------------------------------------------------------------------------------------------------------------


def outcomes(name: str, won: Sequence[bool]) -> Line:
    earned = {True: {"outcome": "success", "reward": 1.0}, False: {"outcome": "failure", "reward": -1.0}}
    return a_line(name, [a_compared(name, n, f"t{n}", **earned[w]) for n, w in enumerate(won, 1)])


def a_comparison(tmp_path: Path, *lines: Line) -> Comparison:
    bank = a_bank(tmp_path / "bank", lines[0].name)
    for line in lines[1:]:
        bank.write.start_run(line.info)
    return compare(bank, lines)


def test_the_finding_says_whether_it_may_be_chance(tmp_path: Path) -> None:
    good, mixed = [True] * 20, [True, False] * 10
    comparison = a_comparison(tmp_path, outcomes("a", mixed), outcomes("b", good), outcomes("c", mixed[::-1]))
    assert numbers(finding(comparison)) == ["+0.500", "20", "+0.000", "20"]
    of_b, of_c = finding(comparison).replace("b:", "c:").replace("0.500", "0.000").split("; ")
    assert of_b != of_c


def test_one_task_is_no_finding_about_chance(tmp_path: Path) -> None:
    comparison = a_comparison(tmp_path, outcomes("a", [False]), outcomes("b", [True]))
    assert numbers(finding(comparison)) == ["+1.000"]


def test_the_table_of_metrics_holds_every_value_whatever_the_runs_are_called(tmp_path: Path) -> None:
    lines = [outcomes("n", [True, False, True]), outcomes("metric", [False] * 3), outcomes("tasks", [True] * 3)]
    table = metric_table(a_comparison(tmp_path, *lines))
    assert list(table.columns) == ["what is measured", "n", "metric", "Δ metric", "tasks", "Δ tasks", "n (tasks)"]
    row = table.iloc[0]
    assert (row["n"], row["metric"], row["tasks"], row["n (tasks)"]) == ("0.667", "0.000", "1.000", "3")
    assert row["Δ metric"].startswith("−0.667 [−1.000 to ")


def test_a_table_of_pairs_names_memories_as_the_first_run_knows_them(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank", "a") as bank:
        begun(bank, "b")
        commit(bank, "a", "w")
        for run in "ab":
            commit(bank, run, "x")
            commit(bank, run, "y")
        commit(bank, "b", "only b")
        commit(bank, "a", "z", selected=["a-0001", "a-0002"], reward=-1.0)
        commit(bank, "b", "z", selected=["b-0002", "b-0001", "b-0003"])
        table = pair_rows(compare(bank, [line_of(bank, "a"), line_of(bank, "b")]), 1)
    last = table.iloc[-1]
    assert (last["step"], last["step of b"], last["task"], last["time"]) == (4, 4, "z", 1)
    assert last["differs in"] == "memories, reward"
    assert (last["shared"], last["added"], last["removed"]) == ("#2", "#3, b-0003", "#1")
    assert (last["reward a"], last["reward b"]) == (-1.0, 1.0)


def test_runs_with_nothing_in_common_have_an_empty_table(tmp_path: Path) -> None:
    comparison = a_comparison(tmp_path, tasks_line("a", "x"), tasks_line("b", "y"))
    assert comparison.metrics == () and comparison.rewards is None
    assert pair_rows(comparison, 1).empty and "differs in" in pair_rows(comparison, 1).columns
    assert left_alone(comparison.alignment).endswith("1 of a, 1 of b.")


def test_a_shared_past_is_reported(bank: MemoryBank) -> None:
    begun(bank, "fork", base="a", base_step=3, first_step=4)
    commit(bank, "fork", "x")
    alignment = align([line_of(bank, "a"), line_of(bank, "fork")])
    assert numbers(shared_past(alignment))[0] == "3"
    assert left_alone(alignment).endswith("2 of a.")
