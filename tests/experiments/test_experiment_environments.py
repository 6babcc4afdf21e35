"""Experiments over several environments: what may stand together, and the table of what memory gains in each."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from memrl_core.environments import ENVIRONMENTS
from memrl_core.environments.tasks import first_sets
from memrl_core.errors import InputError
from memrl_core.experiments.executors import Experiment, run_experiment
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.reports import reports


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    streams = [{"name": name, "stages": [{"tasks": f"{name}-train", "count": 6}]} for name in ("sql", "household")]
    plan = a_plan(
        seeds=2, epochs=2, streams=streams, arms=ARMS, report=["environments"], compare_with="similarity only"
    )
    return run_experiment(plan, tmp_path_factory.mktemp("environments"), jobs=1)


def a_plan(**changes: Any) -> Plan:
    return Plan.model_validate({"title": "t", "seeds": 1, "epochs": 1, **changes})


NAMES = ("no memory", "similarity only", "MemRL")
ARMS = [{"name": NAMES[0], "policy": "none"}, {"name": NAMES[1], "settings": {"weight": 0.0}}, {"name": NAMES[2]}]
SQL = {"name": "sql", "stages": [{"tasks": "sql-train"}]}


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"streams": [{**SQL, "stages": [{"tasks": "sql-train"}, {"tasks": "household-train"}]}]}, "one stream"),
        ({"streams": [{**SQL, "shift_at": [3]}]}, "cannot shift"),
        ({"streams": [SQL], "arms": [{"name": "a", "poison": {}}]}, "cannot be poisoned"),
    ],
    ids=["two environments in one stream", "a shift without the option", "poison where nothing misleads"],
)
def test_what_an_environment_cannot_do_is_no_plan(plan: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        a_plan(**plan)


def test_every_environment_runs_with_the_same_three_arms(found: Experiment) -> None:
    assert found.error == "" and found.done == found.cells == 12
    (table,) = reports(found)
    assert [row[0] for row in table.rows] == [
        f"{name} · {arm}" for name in ("sql", "household") for arm in ("no memory", "similarity only", "MemRL")
    ]


def test_first_and_last_epoch_are_the_shares_that_were_solved(found: Experiment) -> None:
    (table,) = reports(found)
    for row in table.rows:
        stream, arm = row[0].split(" · ")
        steps = [step for step in found.steps.to_dict("records") if (step["stream"], step["arm"]) == (stream, arm)]
        for column, epoch in ((2, 1), (3, 2)):
            solved = [float(step["success"]) for step in steps if step["epoch"] == epoch]
            assert row[column].startswith(f"{100 * sum(solved) / len(solved):.1f} %")
        last = [step["reward"] for step in steps if step["epoch"] == 2]
        assert row[5].startswith(f"{100 * sum((r + 1) / 2 for r in last) / len(last):.1f} %")


def test_answers_that_had_to_be_offered_are_counted(found: Experiment) -> None:
    assert (found.steps["valid"] == found.steps["choices"]).all() and (found.steps["choices"] > 0).all()
    (table,) = reports(found)
    assert [row[9] for row in table.rows] == ["100.0 %"] * 6


def test_environments_that_cannot_be_compared_are_left_out_with_the_reason() -> None:
    sets, left_out = first_sets()
    assert sets["sql"] == "sql-train"
    assert "person" in left_out["conversation"] and "tasks" in left_out["lifelong_db"]
    assert set(sets) | set(left_out) >= set(ENVIRONMENTS)
    with pytest.raises(InputError, match="no environment"):
        first_sets(["moon"])
