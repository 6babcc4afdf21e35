"""Choices that went by a tie: found, counted, and decided again by the other rule."""

from __future__ import annotations

from pathlib import Path

from memrl_core.analysis.compare.counterfactual import ties_of
from memrl_core.environments.tasks import sample_tasks
from memrl_core.experiments.executors import run_experiment
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.reports import reports
from tests.builders import an_agent


def test_ties_are_counted_at_both_cuts_and_the_other_rule_is_told(tmp_path: Path) -> None:
    for rule, other in (("seeded", "older"), ("older", "seeded")):
        agent = an_agent(tmp_path / rule, weight=0.0, k1=3, k2=1, ties=rule)
        task = sample_tasks("household-train")[:1]
        traces = list(agent.run(task, 6))
        found = ties_of(agent.bank, "r")
        # From the third step on two equals stand at the cut of k2, from the fifth on four at that of k1.
        assert (found.steps, found.prompt, found.pool, found.either) == (6, 4, 2, 4)
        assert (found.rule, found.other) == (rule, other)
        first = traces[0].write.operations[0].memory_id if traces[0].write else ""
        for one in found.changed:
            by_age = one.selected if other == "older" else one.recorded
            assert by_age == (first,) != (one.recorded if other == "older" else one.selected)


def test_reports_tell_ties_and_own_memories_and_a_stream_can_leave_these_out(tmp_path: Path) -> None:
    plan = Plan.model_validate(
        {
            "title": "t", "seeds": 1, "epochs": 3, "arms": [{"name": "a", "settings": {"weight": 0, "k2": 1}}],
            "streams": [{"name": "s", "stages": [{"count": 4}], "grid": {"own_memories": [True, False]}}],
        }
    )  # fmt: skip
    experiment = run_experiment(plan, tmp_path / "out", jobs=1)
    with_own, without = (part for _, part in experiment.steps.groupby("stream", sort=False))
    assert with_own["used_same_task"].map(any).any() and not without["used_same_task"].map(any).any()
    tied = with_own[with_own["tied"]]
    assert len(tied) and not with_own[~with_own["tied"]]["other_by_tie"].any()
    notes = " · ".join(reports(experiment)[0].notes)
    own = 100 * experiment.steps["used_same_task"].map(any).mean()
    changed = 100 * experiment.steps["other_by_tie"].mean()
    assert f"a {100 * experiment.steps['tied'].mean():.0f} % ({changed:.0f} %)" in notes
    assert f"a {own:.0f} %" in notes
