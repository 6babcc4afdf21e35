"""A comparison as a document: it says what the screen says, loads nothing and lets no foreign text act."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.compare.alignment import line_of, supposed_line
from memrl_core.analysis.compare.comparison import (
    Comparison,
    compare,
    finding,
    pair_rows,
    setting_differences,
    setup_warnings,
)
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.figures.report.comparison import comparison_report
from memrl_core.models.simulated import SimulatedModel
from tests.analysis.lockstep import begun, commit
from tests.builders import a_bank, an_agent
from tests.figures.report.test_report import HOSTILE, Parsed, loads_nothing


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """Runs `one` and `other`, which met eight tasks twice: the second in another order, from another seed."""
    agent = an_agent(tmp_path_factory.mktemp("banks") / "bank", run="one")
    bank, tasks = agent.bank, sample_tasks("household-train")[:8]
    begun(bank, "other", embedder=HashingEmbedder().name, seed=5, settings={**bank.settings("one"), "k2": 1})
    list(agent.run(tasks, epochs=2))
    second = Agent(bank, "other", SimulatedModel(), HashingEmbedder(), make_environment("household"))
    list(second.run(tasks[::-1], epochs=2))
    return bank


def reported(bank: MemoryBank, comparison: Comparison, supposed: dict[str, Any] | None = None) -> str:
    return comparison_report(bank, comparison, setting_differences(bank, comparison.alignment.lines, supposed))


def recorded(bank: MemoryBank, *runs: str) -> Comparison:
    return compare(bank, [line_of(bank, run) for run in runs])


def test_a_report_tells_setup_outcomes_and_every_pair_that_differs(bank: MemoryBank) -> None:
    comparison = recorded(bank, "one", "other")
    words = Parsed(reported(bank, comparison)).words
    warnings = setup_warnings(comparison.alignment)
    assert len(warnings) == 2
    assert all(sentence in words for sentence in (*warnings, "SIMULATED", finding(comparison)))
    for metric in comparison.metrics:
        assert metric.name in words and metric.meaning in words
        for value in metric.values:
            assert value is None or f"{value:,.3f}".replace("-", "−") in words
    assert "k2" in words
    rows = pair_rows(comparison, 1)
    differing = rows[rows["differs in"] != ""]
    assert len(differing) > 0
    assert f"The {len(differing)} of {len(rows)} " in words
    html = reported(bank, comparison)
    for row in differing.to_dict("records"):
        assert f"<td>{escape(row['differs in'])}</td>" in html and escape(row["intent"]) in html


def test_a_report_of_three_runs_has_a_part_for_each_but_the_first(bank: MemoryBank) -> None:
    begun(bank, "third", embedder=HashingEmbedder().name)
    words = Parsed(reported(bank, recorded(bank, "one", "other", "third"))).words
    assert "other part" in words and "third part" in words
    assert "0 of 0" in words


def test_a_report_of_one_run_under_other_settings_makes_up_no_outcome(bank: MemoryBank) -> None:
    settings = {**bank.settings("one"), "k2": 1}
    line = line_of(bank, "one")
    comparison = compare(bank, [line, supposed_line(line, counterfactual(bank, "one", settings), "supposed")])
    words = Parsed(reported(bank, comparison, {"supposed": settings})).words
    assert "What they achieved" not in words and "success rate" not in words
    assert "supposed part" in words and "Other memories" in words


def test_nothing_is_loaded_from_anywhere(bank: MemoryBank) -> None:
    loads_nothing(reported(bank, recorded(bank, "one", "other")))


def test_foreign_text_stays_text_wherever_it_stands(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank", "a") as bank:
        named = dict.fromkeys(("environment", "model", "tasks"), HOSTILE)
        begun(bank, "b", **named, settings={"weight": HOSTILE, HOSTILE: 1}, environment_options={HOSTILE: HOSTILE})
        for run, answer in (("a", "left"), ("b", HOSTILE)):
            commit(bank, run, HOSTILE, HOSTILE, wrote=[f"{run}{HOSTILE}"])
            commit(bank, run, HOSTILE, HOSTILE, selected=[f"a{HOSTILE}"] if run == "a" else [], answers=[answer])
        html = reported(bank, recorded(bank, "a", "b"))
    parsed = Parsed(html)
    assert parsed.words.count("window.hacked=1") > 8
    assert not any(script.startswith("window.hacked") for script in parsed.scripts)
    assert not any(tag == "img" for tag, _ in parsed.tags)
