"""Labels made into grades, measures against trec_eval, curves against single decisions, and a funnel that adds up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import pytrec_eval

from memrl_core.agent import Agent
from memrl_core.agent.asking import templates, view_before
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.analysis.recall.found import Ranking, mean_of, measured, notes_of, rankings
from memrl_core.analysis.recall.grades import (
    Deriver,
    Judged,
    agreement_of,
    agreement_sentences,
    judged,
    on_gold,
    settled,
    with_people,
)
from memrl_core.analysis.recall.model_judge import judged_by
from memrl_core.analysis.recall.pooling import agreement_in, done_steps, pooled, recall_batch, recall_progress
from memrl_core.analysis.recall.queries import (
    FOLLOWED,
    NOT_FOLLOWED,
    STAGES,
    Query,
    fates_of,
    funnel,
    labelled,
    left_at,
    lost_at,
    weights_that_select,
)
from memrl_core.analysis.recall.success import against_success
from memrl_core.analysis.recall.tune import (
    MEASURES,
    Point,
    Pools,
    best_setting,
    grid,
    outcomes,
    over_delta,
    over_weight,
    per_query,
    pools_of,
    why_not,
)
from memrl_core.analysis.recall.uses import UseCounts, use_counts, used_in_steps, words_shared
from memrl_core.analysis.run.metrics import Estimate, rate
from memrl_core.bank.people.judgements import Label, Use
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import environment_class
from memrl_core.environments.base import Environment
from memrl_core.environments.helpdesk import Helpdesk
from memrl_core.environments.household import HANDBOOK_CASES, Household
from memrl_core.environments.tasks import sample_tasks, tasks_of_set
from memrl_core.errors import InputError
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import make_policy
from memrl_core.policies.base import seed_of
from memrl_core.policies.decide import decide
from memrl_core.records import Reason, Recalled, RecallRecord, Reply
from memrl_core.retrieval import exact_similarity, select
from tests.builders import an_agent, an_agent_after


def random_rankings(count: int, seed: int = 0) -> list[Ranking]:
    """Queries with random labels and results, some without any."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        ids = [f"m{n}" for n in rng.permutation(30)]
        grades = {i: int(g) for i, g in zip(ids[:20], rng.integers(0, 4, 20) * (rng.random(20) < 0.3), strict=True)}
        pool = [ids[n] for n in rng.permutation(30)[: rng.integers(0, 12)]]
        nothing = not any(grades.values())
        found.append(Ranking(pool, pool[::-1][:3], Judged(grades, nothing)))
    return found


def test_measures_are_those_of_trec_eval_on_random_labels() -> None:
    found = random_rankings(60)
    asked = {str(n): one for n, one in enumerate(found) if one.judged.relevant}
    names = {
        "recall@10": "recall_10", "hit@5": "success_5", "mrr": "recip_rank", "ndcg": "ndcg", "precision@5": "P_5",
        "ndcg@5": "ndcg_cut_5",
    }  # fmt: skip
    oracle = pytrec_eval.RelevanceEvaluator(
        {n: dict(one.judged.grades) for n, one in asked.items()}, set(names.values())
    )
    for phase in "ab":
        came = {n: one.pool if phase == "a" else one.selected for n, one in asked.items()}
        scores = oracle.evaluate(
            {n: {memory: -float(rank) for rank, memory in enumerate(ids)} for n, ids in came.items()}
        )
        for ours, theirs in names.items():
            (measure,) = measured(found, [f"{ours}.{phase}"])
            expected = sum(scores[n][theirs] if n in scores else 0.0 for n in asked) / len(asked)
            assert measure.share.value == pytest.approx(expected) and measure.queries == len(asked)


def test_false_recall_empty_recall_and_coverage_are_counted_over_their_own_queries() -> None:
    found = [
        Ranking(["a"], ["a"], Judged({"a": 0}, True)),
        Ranking([], [], Judged({}, True)),
        Ranking([], [], Judged({"b": 2})),
        Ranking(["b", "c"], ["b", "c"], Judged({"b": 2})),
    ]
    false, empty, coverage, recall = measured(found, ["false_recall", "empty", "coverage", "recall@5"])
    assert [(one.share.value, one.queries) for one in (false, empty, coverage)] == [(0.5, 2), (0.5, 2), (0.75, 2)]
    assert recall.share.value == 0.5 and recall.notes == ()
    thin = [Ranking(["x", "y", "z"], ["x", "y", "z"], Judged({"x": 1}))]
    (alone,) = measured(thin, ["precision@3"])
    assert np.isnan(alone.share.low) and "no interval" in alone.notes[0] and "33%" in alone.notes[1]
    (none,) = measured([], ["mrr"])
    assert none.queries == 0 and np.isnan(none.share.value)


def test_a_note_of_one_query_names_its_measures() -> None:
    one = [Ranking(["a"], ["a"], Judged({"a": 1}, False)), Ranking(["b"], ["b"], Judged({"b": 1}, False))]
    mixed = measured([*one, Ranking(["a"], ["a"], Judged({"a": 0}, True))], ["mrr", "false_recall"])
    assert notes_of(mixed) == ["One query: no interval (false recall)."]
    assert notes_of(measured(one[:1], ["mrr", "hit@1"])) == ["One query: no interval."]


@pytest.mark.parametrize("name", ["recall", "mrr@0", "false_recall@3", "ndcg@x", "recall@10.c", "speed@3", ""])
def test_a_measure_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is no measure"):
        measured([], [name])


def held(
    population: npt.NDArray[np.float64],
    size: int,
    draws: int,
    interval: Callable[[npt.NDArray[np.float64]], Estimate] = mean_of,
) -> float:
    """In what share of samples of a population the interval contains the mean of all of it."""
    rng, mean = np.random.default_rng(size), population.mean()
    intervals = [interval(rng.choice(population, size)) for _ in range(draws)]
    return float(np.mean([one.low <= mean <= one.high for one in intervals]))


def drawn_anew(values: npt.NDArray[np.float64]) -> Estimate:
    """The mean with the percentile bootstrap's interval."""
    means = np.random.default_rng(0).choice(values, (1000, len(values))).mean(axis=1)
    return Estimate(float(values.mean()), *map(float, np.quantile(means, (0.025, 0.975))))


@pytest.mark.parametrize("size", [5, 10, 40])
def test_an_interval_contains_the_truth_as_often_as_it_says_also_with_few_queries(size: int) -> None:
    rng = np.random.default_rng(3)
    for values in ([0, 0, 0.1, 0.3, 0.5, 1], [0, 1, 1, 1], [0.3, 0.4, 0.5, 0.6], [0] + [1] * 19):
        assert held(rng.choice(values, 2000), size, 500) >= 0.9


def test_an_interval_is_too_short_where_a_rare_value_is_far_from_others_that_are_close_together() -> None:
    rare = np.append(np.random.default_rng(0).uniform(0.09, 0.11, 97), [1.0] * 3)
    assert held(rare, 20, 1000) < 0.5


def test_a_few_steps_without_a_failure_do_not_say_that_there_is_none() -> None:
    always, never, same = (mean_of(np.full(6, value)) for value in (1.0, 0.0, 0.5))
    assert (
        (always.high, never.low) == (1.0, 0.0)
        and 0.3 < always.low < 0.7
        and never.high == pytest.approx(1 - always.low)
    )
    assert same.low < 0.5 < same.high
    # Of zeros and ones it is Wilson's, with Student's quantile.
    share = mean_of(np.array([1.0] * 30 + [0.0] * 70))
    assert (share.low, share.high) == pytest.approx((0.2189, 0.3958), abs=3e-3)


# --- several raters, and what an environment knows --------------------------------------------------------------------


def test_raters_that_differ_are_settled_by_the_rule_and_people_go_before_what_was_derived() -> None:
    assert [settled([0, 2, 3], rule) for rule in ("majority", "any", "strict")] == [2, 3, 0]  # type: ignore[arg-type]
    assert settled([0, 2]) == 0
    labels = [
        Label("r", 1, "a", 0, "ann"), Label("r", 1, "a", 2, "household", "derived"),
        Label("r", 1, "b", 3, "household", "derived"), Label("r", 1, "", 0, "ann"), Label("r", 2, "", 0, "ann"),
    ]  # fmt: skip
    found = judged(labels)
    assert found[1] == Judged({"a": 0, "b": 0}, True) and found[2] == Judged({}, True)
    assert judged(labels, sources=("person",))[1] == Judged({"a": 0}, True)
    assert judged(labels, sources=("derived", "person"))[1] == Judged({"a": 2, "b": 3}, False)
    # The environment says that nothing should come, a person what should.
    other = [Label("r", 3, "", 0, "household", "derived"), Label("r", 3, "c", 2, "ann")]
    assert judged(other)[3] == Judged({"c": 2}, False)


def test_who_says_that_nothing_should_come_and_what_should_is_told_and_the_memory_counts() -> None:
    found = judged([Label("r", 1, "a", 2, "ann"), Label("r", 1, "", 0, "ann"), Label("r", 2, "", 0, "ann")])
    assert found[1] == Judged({"a": 2}, False, contradicts=True) and not found[2].contradicts
    (false,) = measured([Ranking(("a",), ("a",), one) for one in found.values()], ["false_recall"])
    assert false.queries == 1 and any("1 step" in note and "the memory counts" in note for note in false.notes)


def test_agreement_is_of_people_and_a_judge_is_held_to_them() -> None:
    labels = [
        Label("r", 1, "a", 0, "ann"), Label("r", 1, "a", 1, "bob"), Label("r", 1, "b", 3, "bob"),
        Label("r", 1, "a", 2, "llama", "judge"), Label("r", 1, "b", 2, "llama", "judge"),
        Label("r", 1, "c", 2, "llama", "judge"), Label("r", 1, "b", 0, "household", "derived"),
    ]  # fmt: skip
    both = agreement_of(labels)
    assert both.raters == ("ann", "bob") and both.steps_rated_by_two_or_more == 1 and both.share == 0
    found = with_people(labels)
    assert {who: (right.share, right.n) for who, right in found.items()} == {
        "household (derived)": (0.0, 1), "llama (judge)": (0.5, 2),
    }  # fmt: skip
    assert with_people(labels, "any")["llama (judge)"].share == 1.0
    said = agreement_sentences(labels)
    assert len(said) == 3 and "llama (judge)" in said[2] and "50.0 %" not in said[0]
    assert agreement_sentences(labels[2:3]) == []


def test_environments_say_of_what_kind_their_tasks_and_handbooks_are() -> None:
    for name in ("household-train", "parametric-far", "helpdesk-train"):
        tasks = tasks_of_set(name)
        world = environment_class(tasks[0].environment)
        assert {world.kind_of(task.intent, task) for task in tasks} == {task.family for task in tasks}
    written = Household(handbook=5).first_memories()
    assert {Household.kind_of(intent, None) for intent, _ in written} == set(HANDBOOK_CASES)
    assert all(Helpdesk.kind_of(intent, None) for intent, _ in Helpdesk().first_memories())
    assert Household.kind_of("nothing of the kind", None) == Environment.kind_of("x", None) == ""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """24 household steps."""
    return an_agent_after(tmp_path_factory.mktemp("recall") / "bank", 24, delta=0.12, k1=6)


def test_the_funnel_adds_up_to_all_that_should_come(agent: Agent) -> None:
    queries = labelled(agent.bank, "r", derive=True)
    assert queries is not None
    found = funnel(queries)
    should = sum(len(query.judged.relevant) for query in queries)
    lost = {stage: len(places) for stage, places in found.lost.items()}
    assert set(lost) == set(STAGES) - {"given"}
    assert found.counts["labelled"] == should == sum(lost.values()) + found.counts["in the prompt"]
    assert min(lost["below delta"], lost["beyond k1"], lost["reranked away"], found.counts["in the prompt"]) > 0
    assert [*found.counts.values()] == sorted(found.counts.values(), reverse=True)
    for query in queries:
        for fate in query.fates:
            assert (fate.stage == "given") == (fate.memory_id in query.selected)
            if fate.stage == "below delta":
                assert fate.similarity is not None and fate.similarity <= 0.12
            if fate.stage == "beyond k1":
                assert fate.rank is not None and fate.rank > 6
    # Each part of it can be opened: what is left after a stage is what is not lost up to it, with its steps.
    for name, count in found.counts.items():
        assert len(left_at(queries, name)) == count
    for stage, gone in found.lost.items():
        opened = lost_at(queries, stage)
        assert [(query.step, fate.memory_id) for query, fate in opened] == list(gone)
    assert found.used is not None and len(left_at(queries, FOLLOWED)) == found.used
    assert len(lost_at(queries, NOT_FOLLOWED)) == found.counts["in the prompt"] - found.used
    # One step alone says the same of its memories.
    last = queries[-1]
    assert fates_of(agent.bank, agent.bank.trace("r", last.step), last.judged) == last.fates
    # Ranks are those of all exact similarities.
    for query in queries[-4:]:
        trace = agent.bank.trace("r", query.step)
        view, known = view_before(agent.bank, trace), {fate.memory_id: fate for fate in query.fates}
        ids = [view.ids[place] for place in view.positions().tolist()]
        exact = exact_similarity(view.embeddings[view.positions()], np.asarray(trace.embed.embedding, dtype=np.float32))  # type: ignore[union-attr]
        for place, memory_id in enumerate(ids):
            fate = known.get(memory_id)  # type: ignore[assignment]
            if fate is not None and fate.stage in ("beyond k1", "below delta"):
                assert fate.similarity == pytest.approx(float(exact[place]), abs=1e-9)
                ahead, behind = int((exact > exact[place]).sum()), int((exact < exact[place]).sum())
                assert fate.rank is not None and 1 + ahead <= fate.rank <= len(ids) - behind


def test_a_label_of_a_memory_that_the_run_did_not_know_then_is_lost_before_all_else(agent: Agent) -> None:
    grades = {3: Judged({"r-0020": 2, "r-0001": 2}), 5: Judged({}, True)}
    queries = labelled(agent.bank, "r", grades)
    assert queries is not None
    assert [query.step for query in queries] == [3, 5]
    assert {fate.memory_id: fate.stage for fate in queries[0].fates}["r-0020"] == "not stored"
    assert funnel(queries).counts["labelled"] == 2
    assert labelled(agent.bank, "r") == []


def test_another_embedder_finds_other_memories_without_anything_stored(agent: Agent) -> None:
    before = agent.bank.facts
    queries = labelled(agent.bank, "r", derive=True, embedder=HashingEmbedder(dimension=64))
    own = labelled(agent.bank, "r", derive=True)
    assert queries is not None and own is not None and agent.bank.facts == before
    assert [query.judged for query in queries] == [query.judged for query in own]
    assert any(one.pool != other.pool for one, other in zip(queries, own, strict=True))
    assert labelled(agent.bank, "r", derive=True, embedder=HashingEmbedder(), cancelled=lambda: True) is None


def test_tuning_at_the_settings_of_the_run_selects_what_the_run_selected(agent: Agent) -> None:
    queries = labelled(agent.bank, "r", derive=True)
    assert queries is not None
    settings = agent.bank.settings("r")
    pools = pools_of(queries, settings)
    own = Point(settings["delta"], settings["weight"], settings["k1"], settings["k2"])
    found = outcomes(pools, own)
    assert found.hits.tolist() == [sum(i in query.judged.relevant for i in query.selected) for query in queries]
    assert found.pool.tolist() == [len(query.pool) for query in queries]
    # The step that saw no memory yet counts in both, where nothing should come.
    assert not queries[0].ids and queries[0].judged.nothing
    (false,) = measured(rankings(queries), ["false_recall"])
    assert per_query(pools, found, own.k2, "false_recall").mean() == pytest.approx(false.share.value)
    assert over_delta(pools, own)["false_recall"].at(own.delta) == pytest.approx(false.share.value)
    with pytest.raises(InputError, match="labelled"):
        pools_of([], settings)
    assert why_not(settings, "memrl") == "" and why_not({**settings, "normaliser": "raw"}, "memrl")


def test_the_weights_and_the_q_that_would_select_a_memory_that_was_reranked_away_do_so(agent: Agent) -> None:
    queries = labelled(agent.bank, "r", derive=True)
    assert queries is not None
    lost = [(q, f) for q in queries for f in q.fates if f.stage == "reranked away"]
    for query, fate in lost[:6]:
        trace = agent.bank.trace("r", query.step)
        situation = situation_of(agent.bank, trace)
        for low, high in weights_that_select(trace, fate.memory_id):
            _, again = decided(situation, {**trace.settings, "weight": (low + high) / 2})
            assert fate.memory_id in again.selected
        assert fate.memory_id not in decided(situation)[1].selected
    assert any(weights_that_select(agent.bank.trace("r", q.step), f.memory_id) for q, f in lost)


def test_a_model_labels_apart_from_people_and_its_prompt_is_kept(agent: Agent) -> None:
    class Judge(SimulatedModel):
        name = "judge-1"
        replies = iter(['{"grade": 2, "reason": "same kind"}', "no JSON", '{"grade": 9}'])

        def chat(self, *_: Any, **__: Any) -> Reply:
            return Reply(next(self.replies))

    trace = agent.bank.trace("r", 20)
    memories = [agent.bank.memory(i) for i in ("r-0001", "r-0002", "r-0003")]
    labels = list(judged_by(Judge(), ModelOptions(), trace, memories))
    assert labels[1:] == [None, None]
    assert labels[0] is not None
    agent.bank.write.judgements.judge(labels[0])
    (stored,) = agent.bank.judgements.standing("r", 20)
    assert (stored.rater, stored.source, stored.grade, stored.reason) == ("judge-1", "judge", 2, "same kind")
    assert stored.prompt and "same kind of task" in stored.prompt
    agent.bank.write.judgements.judge(Label("r", 20, "r-0001", None, "judge-1", "judge"))
    assert agent.bank.judgements.standing("r") == []


# --- curves against single decisions ----------------------------------------------------------------------------------


def random_pools(count: int, depth: int, seed: int = 0, **others: Any) -> Pools:
    """Random pools in which equal similarities and equal q are common."""
    rng = np.random.default_rng(seed)
    similarity = -np.sort(-rng.uniform(-0.2, 1, (count, depth)).round(2), axis=1)
    grade = (rng.random((count, depth)) < 0.15) * rng.integers(1, 4, (count, depth))
    nothing = rng.random(count) < 0.2
    grade[nothing] = 0
    relevant = grade.astype(bool).sum(axis=1) + rng.integers(0, 2, count) * ~nothing
    equals = np.tile(np.arange(1, depth + 1), (count, 1))
    q = rng.normal(size=(count, depth)).round(1)
    return Pools(similarity, q, equals, grade.astype(np.int64), relevant, ~nothing, nothing, True, **others)


def decided_singly(pools: Pools, point: Point) -> list[int]:
    """Relevant memories that `retrieval.select` gives, pool by pool."""
    hits = []
    for row in range(len(pools.q)):
        members = tuple(
            Recalled(str(place), float(similarity), place + 1, None)
            for place, similarity in enumerate(pools.similarity[row, : point.k1])
            if similarity > point.delta
        )
        record = RecallRecord(point.k1, "record", point.delta, True, len(members), members, ())
        decision = select(
            record, pools.q[row, : len(members)], np.zeros(len(members), dtype=np.int64), k2=point.k2,
            weight=point.weight, normaliser="pool", fixed_mean=0.5, fixed_sd=0.15, epsilon=0.0, seed=0,
        )  # fmt: skip
        hits.append(sum(int(pools.grade[row, int(memory_id)] > 0) for memory_id in decision.selected))
        assert all(c.reason is Reason.TOP_K2 for c in decision.candidates if c.selected)
    return hits


def test_a_setting_for_all_queries_at_once_selects_what_each_decision_alone_selects() -> None:
    pools = random_pools(250, 14)
    # Equals are drawn by the step's seed there; here both sides break them by rank.
    from memrl_core.retrieval.exploration import order_of_equals

    drawn = order_of_equals(np.arange(1, 15, dtype=np.int64), "seeded", 0)
    pools.equals[:] = drawn
    for point in (Point(0.2, 0.5, 10, 3), Point(-0.3, 0.0, 14, 2), Point(0.6, 1.0, 12, 4)):
        assert outcomes(pools, point).hits.tolist() == decided_singly(pools, point)


@pytest.mark.parametrize("others", [{}, {"least_q": -0.5, "floor": -0.2}])
def test_curves_over_delta_and_weight_are_exact_on_a_thousand_random_pools(others: dict[str, float]) -> None:
    pools, rng = random_pools(1000, 12, seed=1, **others), np.random.default_rng(2)
    by_delta, by_weight = over_delta(pools, Point(0.2, 0.5, 10, 3)), over_weight(pools, Point(0.2, 0.5, 10, 3))
    deltas = [*rng.uniform(-0.3, 1.1, 6), *pools.similarity[:4, 3]]
    points = [(by_delta, delta, Point(float(delta), 0.5, 10, 3)) for delta in deltas]
    points += [(by_weight, weight, Point(0.2, float(weight), 10, 3)) for weight in (0.0, *rng.uniform(0, 1, 8))]
    for curves, x, point in points:
        found = outcomes(pools, point)
        for measure in MEASURES:
            assert curves[measure].at(x) == pytest.approx(per_query(pools, found, 3, measure).mean(), abs=1e-9)


def test_a_grid_has_the_measure_of_every_pair_of_k1_and_k2() -> None:
    pools = random_pools(100, 12)
    found = grid(pools, Point(0.2, 0.5, 10, 3), [3, 8], [2, 5], "precision")
    assert np.isnan(found[0, 1])
    own = outcomes(pools, Point(0.2, 0.5, 8, 5))
    assert found[1, 1] == pytest.approx(per_query(pools, own, 5, "precision").mean())


def test_the_best_setting_keeps_the_bar_and_reports_each_query_by_what_the_others_chose() -> None:
    rng, count = np.random.default_rng(5), 30
    # What is relevant lies at 0.8 and has a low q; nothing should come where all lie below 0.4.
    nothing = np.arange(count) % 3 == 0
    similarity = np.where(nothing[:, None], 0.35, 0.8) - np.arange(6) * 0.01 - rng.uniform(0, 0.001, (count, 6))
    grade = np.zeros((count, 6), dtype=np.int64)
    grade[~nothing, 0] = 2
    q = np.tile([-1.0, 1, 1, 1, 1, 1], (count, 1))
    equals = np.tile(np.arange(1, 7), (count, 1))
    pools = Pools(similarity, q, equals, grade, grade.sum(axis=1) // 2, ~nothing, nothing, True)
    best = best_setting(pools, Point(0.0, 1.0, 6, 1), bar=0.0)
    assert best.now.value == 0 and best.now_false_recall.value == 1
    assert best.value.value == 1 and best.false_recall.value == 0 and best.stable == 1
    assert similarity[nothing].max() <= best.point.delta < 0.8 and best.point.weight <= 0.5
    assert best.gains_over(Point(0.0, 1.0, 6, 1))
    said = best.sentences(Point(0.0, 1.0, 6, 1))
    assert len(said) == 2 and "instead of 0.00" in said[0] and "instead of 1.00" in said[1]
    # The best is what the run has: no other is offered.
    again = best_setting(pools, best.point, bar=0.0)
    assert not again.gains_over(best.point) and "is the best of" in again.sentences(best.point)[0]
    # Above the bar, or no better where it had no say: it says so.
    worse = replace(best, value=best.now, false_recall=replace(best.false_recall, value=1.0))
    said = worse.sentences(Point(0.0, 1.0, 6, 1))
    assert not worse.gains_over(Point(0.0, 1.0, 6, 1)) and "better in nothing" in said[2] and "label more" in said[3]
    with pytest.raises(InputError, match="false recall"):
        best_setting(random_pools(40, 6), Point(0.2, 0.5, 6, 3), bar=-1.0)


def test_leaving_a_query_out_never_lets_it_choose_its_own_setting() -> None:
    # Each query alone is best served by another λ: what is reported is by the settings of the others.
    pools = random_pools(12, 6, seed=9)
    best = best_setting(pools, Point(0.2, 0.5, 6, 2), bar=1.0)
    tuned = per_query(pools, outcomes(pools, best.point), 2, "recall").mean()
    assert best.value.value <= tuned + 1e-9


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[Query], list[Query]]]:
    """The labelled steps of 40 seeds of household, as they were and on the vectors of a poor embedder."""
    tasks, found = sample_tasks("household-train"), []
    for seed in range(40):
        made = an_agent(tmp_path_factory.mktemp("forty") / "bank", k1=6, delta=0.0)
        list(made.run([tasks[place] for place in np.random.default_rng(seed).permutation(len(tasks))[:24]]))
        own = labelled(made.bank, "r", derive=True)
        # A few dimensions put most words into the same place.
        poor = labelled(made.bank, "r", derive=True, embedder=HashingEmbedder(dimension=4))
        assert own is not None and poor is not None
        found.append((own, poor))
    return found


@pytest.mark.slow
def test_derived_labels_tell_which_embedder_is_better_on_forty_seeds(
    forty: list[tuple[list[Query], list[Query]]],
) -> None:
    # The one nearest memory, behind no gate.
    point, wins = Point(-2.0, 0.0, 6, 1), 0
    for own, poor in forty:
        one, other = (outcomes(pools_of(qs, qs[-1].settings), point).hits.sum() for qs in (own, poor))
        wins += int(one > other)
    assert wins >= 36


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 10, 20, 50])
def test_the_interval_of_each_measure_contains_that_of_all_queries_of_forty_seeds(
    forty: list[tuple[list[Query], list[Query]]], size: int
) -> None:
    asked = [one for own, _ in forty for one in rankings(own) if one.judged.relevant]
    names = ["hit@3.b", "recall@6", "recall@3.b", "mrr", "ndcg.b", "precision@3"]
    # Each query alone has its value; the population is all of them.
    values = np.array([[one.share.value for one in measured([query], names)] for query in asked])
    found = {name: held(values[:, column], size, 1000) for column, name in enumerate(names)}
    assert min(found.values()) >= 0.9, found
    if size == 5:
        anew = {name: held(values[:, column], size, 300, drawn_anew) for column, name in enumerate(names)}
        assert max(anew.values()) < 0.9, anew


def test_how_far_a_memory_comes_is_counted_with_what_people_say_before_what_is_followed(tmp_path: Path) -> None:
    agent = an_agent_after(tmp_path / "bank", 3, 4, delta=0.0, k2=2)
    bank, traces = agent.bank, list(agent.bank.each_trace("r"))

    def counted(said: dict[tuple[int, str], bool]) -> dict[str, UseCounts]:
        """By hand, from the traces."""
        expected = {}
        for memory in bank.memories():
            pooled = [t for t in traces if t.recall and memory.id in {one.memory_id for one in t.recall.pool}]
            given = [t for t in pooled if memory.id in t.decision.selected]
            made = {}
            for t in given:
                follows = None if t.follows is None else memory.id in t.follows.memories
                made[t.step] = said.get((t.step, memory.id), follows)
            used = [t for t in given if made[t.step]]
            won = sum(t.reward.reward > 0 for t in used)
            far = (len(used), won) if any(one is not None for one in made.values()) else (None, None)
            if pooled:
                expected[memory.id] = UseCounts(len(pooled), len(given), *far)
        return expected

    assert use_counts(bank, "r") == counted({})
    last = traces[-1]
    (one, *_), follows = last.decision.selected, () if last.follows is None else last.follows.memories
    for rater in ("ann", "bo"):
        bank.write.judgements.judge_use(Use("r", last.step, one, "contradicted" if one in follows else "used", rater))
    bank.write.judgements.judge_use(Use("r", last.step, one, "used" if one in follows else "ignored", "cy"))
    assert use_counts(bank, "r") == counted({(last.step, one): one not in follows})
    expected = len({*follows} ^ {one})
    assert used_in_steps(bank, "r", {last.step: follows, 2: None}) == {last.step: expected, 2: None}
    assert all(counts.surfaced <= 2 for counts in use_counts(bank, "r", 3).values())


def test_words_shared_with_the_answer_are_those_that_are_a_memorys_own(tmp_path: Path) -> None:
    agent = an_agent_after(tmp_path / "bank", 3, 2, delta=0.0, k2=2)
    trace = next(t for t in agent.bank.each_trace("r") if t.decision and len(t.decision.selected) == 2)
    shared = words_shared(trace)
    assert set(shared) <= set(trace.decision.selected)
    assert all(0 <= n <= of and of > 0 for n, of in shared.values())
    texts = {m: agent.bank.memory(m).experience for m in trace.decision.selected}
    assert set(shared) == set(texts) or len(set(texts.values())) == 1


def test_recall_is_set_against_success_by_family_with_an_interval_and_what_it_does_not_explain(tmp_path: Path) -> None:
    bank = an_agent_after(tmp_path / "bank", 8, 4, delta=0.0, k2=2).bank
    queries = [one for one in labelled(bank, "r", derive=True) or [] if one.judged.relevant]
    found = against_success(bank, "r", queries)
    won = {trace.step: trace.reward.reward > 0 for trace in bank.each_trace("r")}
    share = {q.step: len({*q.given} & {*q.judged.relevant}) / min(2, len(q.judged.relevant)) for q in queries}
    mean = float(np.mean(list(share.values())))
    better = [won[step] for step, one in share.items() if one >= mean - 1e-9]
    worse = [won[step] for step, one in share.items() if one < mean - 1e-9]
    assert (found.better, found.worse) == ((len(better), sum(better)), (len(worse), sum(worse)))
    assert found.difference.value == pytest.approx(np.mean(better) - np.mean(worse))
    assert found.difference.low <= found.difference.value <= found.difference.high
    assert found.full == (sum(s == 1 for s in share.values()), sum(won[k] for k, s in share.items() if s == 1))
    assert sum(group.steps for group in found.groups) == len(queries)
    assert {group.name for group in found.groups} == {bank.trace("r", q.step).task.family for q in queries}
    # By one step, and by none, nothing is compared.
    (alone,) = {against_success(bank, "r", queries[:1]).difference.known}
    assert not alone and against_success(bank, "r", []).sentences == ()


def test_people_are_held_against_what_the_environment_knows_and_others_are_not(tmp_path: Path) -> None:
    bank = an_agent_after(tmp_path / "bank", 4, 2).bank
    deriver, trace = Deriver(bank, "r"), bank.trace("r", 8)
    known = {memory.id: deriver.grade(trace.task, memory) for memory in bank.memories() if memory.step < 8}
    assert len({bool(grade) for grade in known.values()}) == 2 and on_gold(bank, "r", []) == {}
    for place, (memory_id, grade) in enumerate(known.items()):
        bank.write.judgements.judge(Label("r", 8, memory_id, 3 if grade else 0, "ann"))
        bank.write.judgements.judge(Label("r", 8, memory_id, 0 if grade and place else 1, "bo"))
        bank.write.judgements.judge(Label("r", 8, memory_id, 3, "model", "judge"))
    found = on_gold(bank, "r", bank.judgements.standing("r"))
    right = sum((not (grade and place)) == bool(grade) for place, grade in enumerate(known.values()))
    assert set(found) == {"ann", "bo"} and (found["ann"].share, found["ann"].n) == (1.0, len(known))
    assert found["bo"].share == pytest.approx(right / len(known))


# --- batches of recall ------------------------------------------------------------------------------------------------


def test_a_batch_is_shared_out_with_gold_items_and_some_labelled_twice(agent: Agent) -> None:
    bank = agent.bank
    made = recall_batch(bank, "r", "b", ["ann", "bo"], count=10, doubled=0.4, gold_share=0.3, seed=3)
    assert made is not None and made.kind == "recall"
    given = [step for part in made.parts.values() for step in part]
    assert (len(set(given)), len(given), len(made.grades)) == (10, 14, 3)
    assert {len(part) for part in made.parts.values()} == {7} and made.pools.keys() == set(given)
    deriver = Deriver(bank, "r")
    for step, grades in made.grades.items():
        task = bank.trace("r", step).task
        assert grades == {one: deriver.grade(task, bank.memory(one)) for one in made.pools[step]}
    assert made == recall_batch(bank, "r", "b", ["ann", "bo"], count=10, doubled=0.4, gold_share=0.3, seed=3)
    for wrong in ({"doubled": 0.5, "raters": ["ann"]}, {"raters": [" "]}, {"gold_share": 0.5, "known": "cy"},
                  {"known": "ann"}):  # fmt: skip
        raters = wrong.pop("raters", ["ann", "bo"])
        with pytest.raises(InputError, match="Nothing was saved"):
            recall_batch(bank, "r", "b", raters, count=10, **wrong)  # type: ignore[arg-type]


def test_the_pool_of_a_batch_is_the_union_of_what_several_methods_and_embedders_put_first(agent: Agent) -> None:
    bank, other = agent.bank, HashingEmbedder(dimension=16)
    steps = [15, 24]
    found = pooled(bank, "r", steps, ["rag", "exprecent"], [other], depth=4)
    nearest = labelled(bank, "r", dict.fromkeys(steps, Judged({})), embedder=other)
    assert found is not None and nearest is not None
    for step, query in zip(steps, nearest, strict=True):
        trace = bank.trace("r", step)
        by_method = [[one.memory_id for one in trace.decision.candidates][:4]]  # type: ignore[union-attr]
        for name in ("rag", "exprecent"):
            again = decide(
                make_policy(name, {"k1": 4, "k2": 4}), view_before(bank, trace, name), seed_of(trace), ask=templates
            )
            by_method.append([*again.decision.selected])
        by_method.append([*query.ids[:4]])
        assert set(found[step]) == {one for ids in by_method for one in ids}
        # The first of each come before the second of any.
        firsts = {ids[0] for ids in by_method if ids}
        assert set(found[step][: len(firsts)]) == firsts
    alone = pooled(bank, "r", steps, depth=4)
    assert alone is not None and all(set(alone[step]) < set(found[step]) for step in steps)
    assert pooled(bank, "r", steps, ["rag"], cancelled=lambda: True) is None
    ranked = recall_batch(bank, "r", "b", ["ann"], count=99, methods=["rag"], as_ranked=True)
    assert ranked is not None and ranked.pools == pooled(bank, "r", sorted(ranked.pools), ["rag"])


def test_a_rater_is_held_against_the_known_grades_of_the_steps_that_they_are_done_with(tmp_path: Path) -> None:
    bank = an_agent_after(tmp_path / "bank", 8, 2, delta=0.0).bank
    for memory_id in ("r-0001", "r-0002"):
        bank.write.judgements.judge(Label("r", 12, memory_id, 2 if memory_id == "r-0001" else 0, "cy"))
    bank.write.judgements.judge(Label("r", 13, "", 0, "cy"))
    made = recall_batch(bank, "r", "b", ["ann", "bo"], count=16, doubled=1.0, gold_share=0.125, known="cy")
    assert made is not None and made.grades.keys() == {12, 13} and made.grades[12] == {"r-0001": 2, "r-0002": 0}
    assert set(made.grades[13].values()) == {0}
    bank.write.batches.make(made, "cy")
    # Ann grades all of both, one of step 12 otherwise than is known; Bo says that nothing should come, in both.
    for step in (12, 13):
        bank.write.judgements.judge_all(
            [Label("r", step, one, 1 if step == 12 else 0, "ann") for one in made.pools[step]]
        )
        bank.write.judgements.judge(Label("r", step, "", 0, "bo"))
    labels = bank.judgements.standing("r")
    known = 2 + len(made.pools[13])
    ann, bo = recall_progress(made, labels)
    assert (ann.steps, ann.done, ann.gold.n, ann.gold.successes) == (16, 2, known, known - 1)
    assert (bo.done, bo.gold.n, bo.gold.successes) == (2, known, known - 1)
    # The labels of a step hang together: two steps give a wider interval than as many labels apart would.
    alone = rate(["success"] * (known - 1) + ["failure"])
    assert ann.gold.low is not None and alone.low is not None and ann.gold.low < alone.low
    assert done_steps(made, "ann", labels) == {12, 13} and agreement_in(made, labels).share is None
    bank.write.judgements.judge(Label("r", 13, made.pools[13][0], 2, "bo"))
    labels = bank.judgements.standing("r")
    assert done_steps(made, "bo", labels) == {12} and agreement_in(made, labels).share == 0
