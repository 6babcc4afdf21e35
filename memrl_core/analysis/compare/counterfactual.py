"""Every decision of a run made again under other settings, each in the state in which it was really made.

The answers and rewards of the run stay as they were: this says what would have been selected, not how it would have
gone on. From the first step that differs, only a fork of the run can say that.

What the other settings would have earned is estimated from the propensities that a run has stored: every step is a
bandit's. Given its pool and q, a set of memories is selected with a known probability and a reward follows. Weights are
w = π(set) / μ(set), of the other settings and of those of the run. Sources: inverse propensity scores (Horvitz and
Thompson 1952), self-normalised (Swaminathan and Joachims 2015), doubly robust (Dudík, Langford and Li 2011), effective
sample size (Kong 1992). It is the worth of the choices with the memories and q that the run really had; what other
choices would have made of the memory is not in it.

Also: what changed between two moments of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.agent.asking import asked_by
from memrl_core.agent.learned_state import learned_before, learned_steps, learns
from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.decision.explain import tied_at
from memrl_core.analysis.decision.whatif import decided, recorded_q, situation_of, walked
from memrl_core.analysis.run.metrics import Estimate
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import make_policy
from memrl_core.policies.base import Policy
from memrl_core.policies.decide import decide
from memrl_core.records import Decision, RecallRecord, StepTrace
from memrl_core.retrieval import DIGITS, Floats
from memrl_core.retrieval.exploration import chance_by_ties, tied_at_cut


def changes(bank: MemoryBank, run: str, earlier: int, later: int) -> tuple[list[str], pd.DataFrame]:
    """What a run learned from the end of one finished step to another's: memories added, and q that moved.

    A row (memory_id, before, after, updates) for each q, the largest change first. Raises `InputError` unless
    0 ≤ earlier < later.
    """
    if not 0 <= earlier < later:
        raise InputError("Choose an earlier and a later step: the first number must be the smaller one.")
    then, now = bank.utilities(run, earlier), bank.utilities(run, later)
    rows = [
        (i, then[i].q, now[i].q, now[i].visits - then[i].visits) for i in now if i in then and now[i].q != then[i].q
    ]
    rows.sort(key=lambda row: -abs(row[2] - row[1]))
    return [i for i in now if i not in then], pd.DataFrame(rows, columns=["memory_id", "before", "after", "updates"])


@dataclass(frozen=True, slots=True)
class Supposed:
    """One step of a run decided under other settings: `recorded` and `selected` are the memories before and after."""

    step: int
    task: str
    recorded: tuple[str, ...]
    selected: tuple[str, ...]
    recall: RecallRecord
    decision: Decision

    @property
    def entered(self) -> tuple[str, ...]:
        """Selected under the other settings only."""
        return tuple(i for i in self.selected if i not in self.recorded)

    @property
    def left(self) -> tuple[str, ...]:
        """Selected in the recorded run only."""
        return tuple(i for i in self.recorded if i not in self.selected)

    @property
    def differs(self) -> bool:
        """Whether another set of memories would have been given to the model."""
        return set(self.recorded) != set(self.selected)


def counterfactual(
    bank: MemoryBank,
    run: str,
    settings: Mapping[str, Any],
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> list[Supposed]:
    """The selection of every step of `run` with `settings` in the place of its own, with the seeds drawn then.

    What `settings` does not name stays as it was at each step. Steps of other agents, steps that were recorded without
    an embedding or a decision, and those decided before the vectors were made anew are passed over. Raises
    `SettingsError` for a value out of range. When `cancelled()` turns true, what was done so far is returned.
    """
    recorded = {
        trace.step: (asked_by(trace), trace.decision)
        for trace in bank.each_trace(run)
        if trace.origin == "agent" and trace.decision and trace.embed and not trace.embed.decided_by
    }
    total = len(bank.steps.rows(run))
    name = bank.run(run).policy
    policies: dict[int, Policy[Any]] = {}
    found: list[Supposed] = []
    learned_at = _beyond_q(bank, run, make_policy(name, {**bank.settings(run), **settings}))
    for step, view, product in walked(bank, run, {step: asked.embedding for step, (asked, _) in recorded.items()}):
        if step not in recorded:
            continue
        if cancelled():
            break
        asked, then = recorded[step]
        own = bank.settings(run, step)
        policy = policies.get(id(own)) or policies.setdefault(id(own), make_policy(name, {**own, **settings}))
        view = replace(view, asked=asked, learned=learned_at(step))
        recall, decision, _ = decide(policy, view, then.seed, q=recorded_q(then), coarse=product)
        found.append(Supposed(step, asked.task, then.selected, decision.selected, recall, decision))
        on_progress(len(found), total)
    return found


def _beyond_q(bank: MemoryBank, run: str, policy: Policy[Any]) -> Callable[[int], Any]:
    """For steps in rising order: what the policy had learned beyond q; None where it keeps no such state."""
    if not learns(policy):
        return lambda step: None
    steps = learned_steps(bank, run)

    def at(step: int) -> Any:
        trace, state = next((trace, state) for trace, state in steps if trace.step == step)
        until = bank.steps.seen_until(run, step, trace.epoch)
        return state if until == step - 1 else learned_before(bank, run, until + 1)

    return at


OTHER_TIES = {"seeded": "older", "older": "seeded"}
"""The rules for ties, each with the other one."""


@dataclass(frozen=True, slots=True)
class Ties:
    """The steps of a run with a decision, those tied at each cut, and those for which `other` selects another set."""

    steps: int
    pool: int
    prompt: int
    either: int
    rule: str
    other: str
    changed: tuple[Supposed, ...]


def ties_of(bank: MemoryBank, run: str, on_progress: Progress = unheard, cancelled: Cancelled = never) -> Ties:
    """How many choices of a run went by a tie, and which would be others by the other rule. Raises `UnknownRun`."""
    cuts = [tied_at(trace.recall, trace.decision) for trace in bank.each_trace(run) if trace.decision is not None]
    rule = str(bank.settings(run).get("ties", "seeded"))
    supposed = counterfactual(bank, run, {"ties": OTHER_TIES[rule]}, on_progress, cancelled) if any(cuts) else []
    changed = tuple(one for one in supposed if one.differs)
    pool, prompt = (sum(cut in found for found in cuts) for cut in ("pool", "prompt"))
    return Ties(len(cuts), pool, prompt, sum(map(bool, cuts)), rule, OTHER_TIES[rule], changed)


# --- what other settings would have earned ----------------------------------------------------------------------------

RESAMPLES = 2000
LEAST_SUPPORT = 0.95
"""Of what the other settings would select, how much the run must have been able to select at least."""


@dataclass(frozen=True, slots=True)
class Earned:
    """What `steps` steps earned, and what they would have earned by each estimator: means, with steps drawn anew.

    `effective` is (Σw)² / Σw²: as many steps with weight 1 would tell as much. `heaviest` is the largest weight.
    """

    steps: int
    actual: Estimate
    ips: Estimate
    self_normalised: Estimate
    doubly_robust: Estimate
    effective: float
    heaviest: float


def estimates(reward: Floats, logged: Floats, wanted: Floats, modelled: Floats, modelled_wanted: Floats) -> Earned:
    """The estimators for steps (n,): reward, the probability of what was selected by the run's and the other settings.

    `modelled` is what a model of the reward says of the set that was selected, `modelled_wanted` its mean over what the
    other settings would select; the doubly robust estimate corrects it by what was seen. Raises `InputError` without
    steps, and where something was selected that could not have been.
    """
    if not len(reward) or not (logged > 0).all():
        raise InputError("An estimate needs steps, each selected with a probability above 0. Nothing was estimated.")
    weight = wanted / logged
    n = len(reward)
    drawn = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))

    def mean(values: Floats) -> Estimate:
        means = values[drawn].mean(axis=1)
        return Estimate(float(values.mean()), *map(float, np.quantile(means, (0.025, 0.975))))

    total = weight[drawn].sum(axis=1)
    ratios = (weight * reward)[drawn].sum(axis=1)[total > 0] / total[total > 0]
    normalised = Estimate(
        float((weight * reward).sum() / weight.sum()) if weight.any() else np.nan,
        *(map(float, np.quantile(ratios, (0.025, 0.975))) if ratios.size else (np.nan, np.nan)),
    )
    return Earned(
        n,
        mean(reward),
        mean(weight * reward),
        normalised,
        mean(modelled_wanted + weight * (reward - modelled)),
        float(weight.sum() ** 2 / (weight**2).sum()) if weight.any() else 0.0,
        float(weight.max()),
    )


def would_have_earned(
    bank: MemoryBank,
    run: str,
    settings: Mapping[str, Any],
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Earned:
    """What `settings` of MemRL, in the place of the run's own, would have earned in its rewarded steps.

    The model of the reward is the mean q of a set, 0 without memories. Raises `InputError` with a sentence where the
    run cannot tell: it has no reward, the probabilities of its choices are not known, it never tried what these
    settings would select, or these draw by noise.
    """
    if any(trace.origin != "agent" for trace in bank.each_trace(run) if trace.decision is not None):
        raise InputError(BY_OTHERS)
    supposed = counterfactual(bank, run, settings, on_progress, cancelled)
    if drawn := _draws_unsaid(bank, run, [one.step for one in supposed]):
        what = f"in step {drawn} this policy selects other memories with another seed, and calls its choice certain"
        raise InputError(UNKNOWN.format(what=what))
    rows = []
    reachable, could_explore = [], False
    for one in supposed:
        recorded = bank.trace(run, one.step).decision
        reward = bank.ratings.effective(run, one.step)
        if recorded is None or reward is None or not recorded.candidates:
            continue
        if "sampled" in (recorded.mode, one.decision.mode):
            raise InputError(
                "With exploration by noise (Thompson) the probability of every other set is not stored, so nothing can "
                "be said. A run with exploration = epsilon and ε of 0.1 or more makes it possible."
            )
        could_explore = could_explore or recorded.epsilon > 0
        reachable.append(_reachable(recorded, one))
        rows.append(
            (
                reward,
                recorded.propensity,
                _chance(one.decision, recorded.selected),
                _modelled(recorded.selected, recorded),
                _expected(one.decision),
            )
        )
    if not rows:
        raise InputError("No step of this run has a reward and something to select, so nothing can be said of it.")
    if (support := float(np.mean(reachable))) < LEAST_SUPPORT:
        raise InputError(_no_support(support, could_explore, settings))
    return estimates(*np.array(rows, dtype=np.float64).T)


UNKNOWN = (
    "The probabilities of this run's choices are not known: {what}. An estimate would be wrong, so nothing was "
    "estimated. A run of a policy that records how likely each choice was makes it possible."
)
BY_OTHERS = UNKNOWN.format(what="another program's agent made them")
CHECKED = 20
"""How many steps are decided again, and with how many other seeds: a policy that draws is seen at once."""


def _draws_unsaid(bank: MemoryBank, run: str, steps: Sequence[int]) -> int | None:
    """The first of some steps whose recorded choice is called certain and would be another with another seed."""
    for step in steps[:: max(1, len(steps) // CHECKED)]:
        trace = bank.trace(run, step)
        if trace.recall is None or trace.decision is None or trace.decision.propensity < 1:
            continue
        then, selected = situation_of(bank, trace), set(trace.decision.selected)
        policy = make_policy(then.policy, then.settings)
        again = (decide(policy, then.view, seed, pool=trace.recall).decision for seed in range(CHECKED))
        if any(set(decision.selected) != selected for decision in again):
            return step
    return None


def _no_support(support: float, could_explore: bool, settings: Mapping[str, Any]) -> str:
    what = f"Of what these settings would select, this run could have selected {100 * support:.0f} % of the sets"
    if not could_explore:
        return (
            f"{what}: it always took the best by its own settings (ε = 0), so nothing can be said of what it never "
            "tried. A run with ε of 0.1 or more makes it possible."
        )
    return (
        f"{what}, so nothing can be said: another number of memories (k2) or a wider pool (δ, k1) was never tried. A "
        "run with that k2, or with the wider pool and ε of 0.1 or more, makes it possible."
    )


def _tied(decision: Decision) -> tuple[list[str], list[str], set[str]]:
    """The pool in its order, the best of it, and those that a tie at the cut puts in or out by the seed alone."""
    ranked = [one for one in decision.candidates if one.rank_select is not None]
    ids, size = [one.memory_id for one in ranked], min(decision.k2, len(ranked))
    score = np.array([one.score or 0.0 for one in ranked]).round(DIGITS)
    similarity = np.array([one.similarity for one in ranked])
    tied = tied_at_cut(range(len(ranked)), size, score, similarity)
    return ids, ids[:size], {ids[index] for index in tied}


def _chance(decision: Decision, selected: Collection[str]) -> float:
    """The probability that a decision's rule selects a set, in any order."""
    ids, best, tied = _tied(decision)
    if not set(selected) <= set(ids) or len(selected) != len(best):
        return 0.0
    index_of = {memory_id: number for number, memory_id in enumerate(ids)}
    sets = [[index_of[i] for i in some] for some in (selected, best, tied)]
    return decision.epsilon / comb(len(ids), len(best)) + (1 - decision.epsilon) * chance_by_ties(*sets)


def _reachable(recorded: Decision, one: Supposed) -> float:
    """How much of what the other settings would select in a step the run could have selected."""
    ids, best, tied = _tied(one.decision)
    pool = {one.memory_id for one in recorded.candidates if one.rank_select is not None}
    if len(best) != min(recorded.k2, len(pool)):
        return 0.0
    drawn = one.decision.epsilon
    if recorded.epsilon > 0:
        return (1 - drawn) * ({*best, *tied} <= pool) + drawn * (set(ids) <= pool)
    alone = len(best) == len(ids)  # There is one set only.
    return (1 - drawn) * (_chance(recorded, best) > 0) + drawn * (alone and set(ids) == pool)


def _modelled(selected: Sequence[str], decision: Decision) -> float:
    q = {one.memory_id: one.q for one in decision.candidates}
    return float(np.mean([q[i] for i in selected])) if selected else 0.0


def _expected(decision: Decision) -> float:
    """The mean of the model of the reward over what a decision's rule selects."""
    ids, best, tied = _tied(decision)
    if not best:
        return 0.0
    certain = [i for i in best if i not in tied]
    drawn = len(best) - len(certain)
    by_rank = sum(_modelled([i], decision) for i in certain) + drawn * _modelled(sorted(tied), decision)
    return (1 - decision.epsilon) * by_rank / len(best) + decision.epsilon * _modelled(ids, decision)


# --- where utility overruled similarity, and the task was solved for that reason --------------------------------------

RerunnerOf = Callable[[StepTrace], Rerunner]
SEEDS = 11
"""How many other draws a reversal is tried with."""


@dataclass(frozen=True, slots=True)
class Reversal:
    """In `step`, a more similar memory of lower q stayed out and a less similar one of higher q went in.

    `by_similarity` is what λ = 0 would have given to the model instead of all that it got.
    """

    run: str
    step: int
    by_similarity: tuple[str, ...]


def overtaking(bank: MemoryBank, trace: StepTrace) -> Reversal | None:
    """What utility reversed in a greedy step; None where λ = 0 would have chosen the same."""
    if trace.decision is None or trace.decision.mode != "greedy":
        return None
    _, by_similarity = decided(situation_of(bank, trace), {**trace.settings, "weight": 0.0})
    had = set(trace.decision.selected)
    ranked = [c for c in trace.decision.candidates if c.rank_select is not None]
    out = [c for c in ranked if c.memory_id in by_similarity.selected and c.memory_id not in had]
    entered = [c for c in ranked if c.memory_id in had and c.memory_id not in by_similarity.selected]
    # Memories of equal similarity have ranks too: which of them is nearer is not a matter of similarity.
    if not any(a.similarity > b.similarity and a.q < b.q for a in out for b in entered):
        return None
    return Reversal(trace.run, trace.step, by_similarity.selected)


def reversal(bank: MemoryBank, trace: StepTrace, rerunner_of: RerunnerOf) -> Reversal | None:
    """The reversal to which a solved step owes its success; None when there is none.

    The step is answered again with what λ = 0 would have chosen: it must fail, and succeed with the memories that it
    had, with the step's own seed. So that a lucky guess is no reversal, the same holds of most of `SEEDS` other draws
    of world and model.
    """
    if trace.reward is None or trace.reward.outcome != "success" or (found := overtaking(bank, trace)) is None:
        return None
    assert trace.decision is not None
    at_first, *others = rerunner_of(trace), *(rerunner_of(_with_seed(trace, seed)) for seed in range(1, SEEDS + 1))
    had, instead = trace.decision.selected, found.by_similarity
    if _solves(at_first, instead) or not _solves(at_first, had):
        return None
    return found if _mostly(others, had) and not _mostly(others, instead) else None


def _with_seed(trace: StepTrace, seed: int) -> StepTrace:
    assert trace.decision is not None and trace.generate is not None
    options = {**trace.generate.options, "seed": seed}
    return replace(
        trace, decision=replace(trace.decision, seed=seed), generate=replace(trace.generate, options=options)
    )


def _solves(rerunner: Rerunner, memories: Sequence[str]) -> bool:
    return rerunner.rerun(memories).outcome == "success"


def _mostly(rerunners: Sequence[Rerunner], memories: Sequence[str]) -> bool:
    return sum(_solves(one, memories) for one in rerunners) > len(rerunners) / 2


def first_reversal(bank: MemoryBank, rerunner_of: RerunnerOf) -> Reversal | None:
    """The earliest reversal of the bank's oldest run, answered again by `rerunner_of`; None when it has none."""
    info = next(iter(bank.runs()), None)
    for row in bank.steps.rows(info.id) if info is not None else ():
        if found := reversal(bank, bank.trace(row.run, row.step), rerunner_of):
            return found
    return None
