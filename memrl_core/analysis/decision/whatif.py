"""A recorded step decided again, by other settings, other methods, or on the vectors of another embedder.

Its intent, what the run saw, q, visits and seed stay those of the step. No model is asked, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.agent.asking import templates, view_before
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import InputError, MemRLError, SettingsError
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.base import PolicySpec, seed_of
from memrl_core.policies.decide import decide, with_q
from memrl_core.prompting import YOUR_TASK
from memrl_core.records import Decision, RecallRecord, StepTrace
from memrl_core.retrieval import exact_similarity, turns_of
from memrl_core.retrieval.view import MemoryView

NOT_REPLAYABLE = (
    "This step was recorded {what}, so it cannot be decided again. What was stored is shown; the live controls need a "
    "step of this program's agent, or one that was recorded with its embedding and decided by the same rules."
)


NORMALISERS = ("pool", "fixed", "raw")
AT_ONCE = 64
"""Queries that are multiplied, and texts that are embedded, at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What a decision was made from: the policy's rules, what the run saw and was asked, and the seed."""

    policy: str
    settings: Mapping[str, Any]
    view: MemoryView
    seed: int

    @property
    def query(self) -> npt.NDArray[np.float32]:
        """The embedding (d,) of what memory was asked for."""
        assert self.view.asked is not None
        return self.view.asked.embedding


def situation_of(bank: MemoryBank, trace: StepTrace) -> Situation:
    """The situation in which a finished step decided; q of what it considered is taken from the step itself.

    Raises `InputError` when the step was recorded without what is needed, or by an agent whose rules are not known: its
    own choice is then not what this program's rules give.
    """
    situation = situation_for_ours(bank, trace)
    if trace.decision is None or trace.recall is None:
        raise InputError(NOT_REPLAYABLE.format(what="without a decision"))
    if trace.origin != "agent" and not _explains(situation, trace.recall, trace.decision):
        raise InputError(NOT_REPLAYABLE.format(what="by an agent that selects by rules of its own"))
    return situation


def situation_for_ours(bank: MemoryBank, trace: StepTrace) -> Situation:
    """The same, whoever decided: what the rules of the run would have made of the step.

    Raises `InputError` when the step was recorded without what is needed.
    """
    if trace.embed is None:
        raise InputError(NOT_REPLAYABLE.format(what="without the embedding of its intent"))
    if trace.embed.decided_by:
        raise InputError(NOT_REPLAYABLE.format(what=f"with the similarities of {trace.embed.decided_by[:80]}"))
    if not knows_its_memory(trace):
        raise InputError(NOT_REPLAYABLE.format(what="without the memory as it was then"))
    decision = trace.decision
    view = with_q(view_before(bank, trace), recorded_q(decision) if decision is not None else {})
    return Situation(trace.policy, trace.settings, view, 0 if decision is None else decision.seed)


def knows_its_memory(trace: StepTrace) -> bool:
    """Whether the run holds what a step could recall from; a file of the official code has its memory at the end."""
    return trace.origin != "import" or bool(trace.retrievals)


def chosen_from(trace: StepTrace) -> str:
    """In words, the memories that `would_choose` chooses from; traces do not say which were stored at which time."""
    return "all documents that the traces of this run name" if trace.origin == "import" else "all that the run knew"


def would_choose(bank: MemoryBank, trace: StepTrace) -> tuple[str, ...] | None:
    """What the rules of the run would have put before the model, greedily, in a step that another agent decided.

    None in a step of our own, and in one that was recorded without what is needed.
    """
    if trace.origin == "agent" or not trace.retrievals:
        return None
    try:
        return decided(situation_for_ours(bank, trace))[1].greedy
    except (InputError, SettingsError):
        return None


def _explains(situation: Situation, recall: RecallRecord, decision: Decision) -> bool:
    """Whether this program's rules give the pool and the selection that were recorded."""
    again, chosen = decided(situation)
    pool = {member.memory_id for member in recall.pool}
    return pool == {member.memory_id for member in again.pool} and set(chosen.selected) == set(decision.selected)


def recorded_q(decision: Decision) -> dict[str, float]:
    """The q of the memories that a step considered; a reward between its beginning and its decision counted already."""
    return {candidate.memory_id: candidate.q for candidate in decision.candidates}


def decided(situation: Situation, settings: Mapping[str, Any] | None = None) -> tuple[RecallRecord, Decision]:
    """Both phases in a situation, under its own or other settings. Raises `SettingsError` for a value out of range."""
    policy = make_policy(situation.policy, situation.settings if settings is None else settings)
    recall, decision, _ = decide(policy, situation.view, situation.seed)
    return recall, decision


def walked(
    bank: MemoryBank, run: str, queries: Mapping[int, npt.NDArray[np.float32]]
) -> Iterator[tuple[int, MemoryView, npt.NDArray[np.float32] | None]]:
    """Every finished step with what it recalled from, as `bank.walk`, and the product of that with its query.

    `queries` has vectors (d,) by step, of which many are multiplied at once: the walk's view has the same rows at every
    step. The product (n,) is as in `retrieval.recall`; None for a step without a query.
    """
    waiting, products = sorted(queries), dict[int, npt.NDArray[np.float32]]()
    for step, view in bank.walk(run):
        if step in queries and step not in products:
            some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            products = dict(zip(some, view.products(np.stack([queries[one] for one in some])), strict=True))
        yield step, view, products.pop(step, None)


def by_normaliser(situation: Situation, settings: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """What greedy selection takes under each normaliser of MemRL from the pool of `settings`, best first."""
    pool, _ = decided(situation, settings)
    greedy = {**settings, "epsilon": 0.0, "exploration": "epsilon"}
    policies = {name: make_policy(situation.policy, {**greedy, "normaliser": name}) for name in NORMALISERS}
    view, seed = situation.view, situation.seed
    return {name: decide(policy, view, seed, pool=pool).decision.greedy for name, policy in policies.items()}


def rank_of(situation: Situation, memory_id: str) -> tuple[int, float]:
    """Where a memory stands by similarity among all that the run saw (1 = nearest), and its similarity.

    Raises `InputError` for a memory that the run did not know then.
    """
    view, query = situation.view, situation.query
    if not view.sees(memory_id):
        raise InputError(f"The run did not know the memory {memory_id[:80]} at this step.")
    position = view.position(memory_id)
    own = float(exact_similarity(view.embeddings[[position]], query)[0])
    coarse = view.embeddings @ query
    if view.visible is not None:
        coarse[~view.visible] = -2
    near = np.flatnonzero(coarse >= own - 1e-4)
    exact = exact_similarity(view.embeddings[near], query)
    ahead = near < position
    if situation.settings.get("ties") == "seeded":
        turns = turns_of(near, view, seed_of(view))
        ahead = turns < turns[near == position]
    before = (exact > own) | ((exact == own) & ahead)
    return 1 + int(before.sum()), own


# --- the vectors of another embedder ----------------------------------------------------------------------------------

MOST = 20_000
"""Memories that a step may have seen: their vectors are held in memory, and a server takes minutes for so many."""
BY_MORE_THAN_INTENTS = (
    "{} finds memories by more than the vectors of their intents. Nothing was embedded; start a run of it in a bank of "
    "the other embedder."
)
Space = Mapping[str, npt.NDArray[np.float32]]
"""The vector (d,) of each text by one embedder."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a memory stands for one embedder: its cosine, its rank by it, and what both phases made of it."""

    similarity: float
    rank: int
    in_pool: bool
    rank_select: int | None
    selected: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """A memory that either embedder brought to phase A's notice, `before` as recorded and `after` with the other."""

    memory_id: str
    before: Placed
    after: Placed


def embedded_anew(
    situation: Situation,
    embedder: Embedder,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Situation | None:
    """The same situation with the vectors that `embedder` makes; None when `cancelled()` turned true.

    `on_progress` hears how many of how many texts are embedded. Raises `InputError` where more than `MOST` memories
    were seen, or where memories are found by more than their intent, and `ModelError`.
    """
    view = situation.view
    policy = make_policy(situation.policy, situation.settings)
    if view.learned is not None or view.asked is None:
        raise InputError(BY_MORE_THAN_INTENTS.format(policy.spec.title))
    if view.size > MOST:
        raise InputError(
            f"The run saw {view.size:,} memories at this step; at most {MOST:,} are embedded anew here. Nothing was "
            "embedded; `memrl reembed` makes a bank with the vectors of another embedder."
        )
    key = policy.key(view.asked)
    intents = (view.memories[view.ids[position]].intent for position in view.positions().tolist())
    space = space_of([key, *intents], embedder, on_progress, cancelled)
    if space is None:
        return None
    return replace(situation, view=replace(seen_in(space, view), asked=replace(view.asked, embedding=space[key])))


def space_of(texts: Iterable[str], embedder: Embedder, on_progress: Progress, cancelled: Cancelled) -> Space | None:
    """The vectors that `embedder` makes of texts; None when `cancelled()` turned true. Raises `ModelError`."""
    different, found = list(dict.fromkeys(texts)), dict[str, npt.NDArray[np.float32]]()
    for start in range(0, len(different), AT_ONCE):
        if cancelled():
            return None
        batch = different[start : start + AT_ONCE]
        found |= zip(batch, embedded(embedder, batch), strict=True)
        on_progress(len(found), len(different))
    return found


def seen_in(space: Space, view: MemoryView) -> MemoryView:
    """What the run saw, with the vectors that a space has of the memories' intents; nobody asks."""
    positions = view.positions()
    ids = [view.ids[position] for position in positions.tolist()]
    dimension = len(next(iter(space.values())))
    vectors = np.array([space[view.memories[i].intent] for i in ids], dtype=np.float32).reshape(-1, dimension)
    rows = {memory_id: row for row, memory_id in enumerate(ids)}
    q, visits, groups = view.q[positions], view.visits[positions], view.intent_groups[positions]
    return MemoryView(ids, vectors, q, visits, groups, rows, memories=view.memories)


def moved(
    before: tuple[Situation, RecallRecord, Decision], after: tuple[Situation, RecallRecord, Decision]
) -> list[Moved]:
    """Every memory that phase A reports on with either embedder, those nearest with the new one first."""
    seen = dict.fromkeys(candidate.memory_id for _, _, made in (before, after) for candidate in made.candidates)
    found = [Moved(memory_id, _placed(*before, memory_id), _placed(*after, memory_id)) for memory_id in seen]
    return sorted(found, key=lambda one: one.after.rank)


def _placed(situation: Situation, recall: RecallRecord, decision: Decision, memory_id: str) -> Placed:
    rank, similarity = rank_of(situation, memory_id)
    candidate = next((c for c in decision.candidates if c.memory_id == memory_id), None)
    return Placed(
        similarity,
        rank,
        any(member.memory_id == memory_id for member in recall.pool),
        candidate.rank_select if candidate else None,
        memory_id in decision.selected,
    )


# --- every method on the pool of one step -----------------------------------------------------------------------------

SHARED = ("k1", "k2", "delta", "reward_success", "reward_failure", "human_rewards", "several_raters")
"""The settings that all methods are given alike: how much they may recall and give, and what rewards mean."""
NOT_ASKED = "No model was asked here: its template answered."


@dataclass(frozen=True, slots=True)
class OnThisPool:
    """What one method makes of a step: both phases and the text that the model would read before its task.

    `problem` says why there is none; then recall and decision are None.
    """

    spec: PolicySpec
    recall: RecallRecord | None
    decision: Decision | None
    given: str
    notes: tuple[str, ...] = ()
    problem: str = ""


def on_this_pool(
    bank: MemoryBank,
    trace: StepTrace,
    policies: Sequence[str],
    own_recall: bool = False,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> list[OnThisPool] | None:
    """What each of `policies` would select in a step, under those of the step's settings that it knows.

    On the same pool only phase B differs. Each has learned what it would have by watching the run up to this step;
    methods that ask a model go by their templates.
    With `own_recall` each also recalls for itself. None when `cancelled()` turned true. Raises `InputError` for a step
    whose intent's embedding or pool is not known.
    """
    if trace.embed is None or trace.recall is None or trace.decision is None:
        raise InputError("This step was recorded without its intent's embedding or its pool. Choose another step.")
    if own_recall and trace.embed.decided_by:
        raise InputError("This step was decided before the bank's vectors were made anew. Choose a later step.")
    found = []
    for done, name in enumerate(policies, start=1):
        if cancelled():
            return None
        found.append(_asked(bank, trace, name, own_recall))
        on_progress(done, len(policies))
    return found


def _asked(bank: MemoryBank, trace: StepTrace, name: str, own_recall: bool) -> OnThisPool:
    assert trace.recall is not None and trace.decision is not None and trace.embed is not None
    settings = trace.settings if name == trace.policy else {k: trace.settings[k] for k in SHARED if k in trace.settings}
    policy = make_policy(name, settings_that_fit(name, settings).model_dump())
    try:
        consults = "model on read" in policy.spec.needs
        recalled, decision, view = decide(
            policy,
            view_before(bank, trace, name),
            trace.decision.seed,
            pool=None if own_recall else replace(trace.recall, left_out=()),
            q=recorded_q(trace.decision),
            ask=templates if consults else None,
        )
        notes = (NOT_ASKED,) if consults else ()
        chosen = [bank.memory(memory_id) for memory_id in decision.selected]
        messages, _ = policy.render(chosen, "", trace.task.intent, "", view)
    except MemRLError as error:
        return OnThisPool(policy.spec, None, None, "", problem=str(error))
    given = messages[-1].content.rpartition(YOUR_TASK)[0].strip()
    if decision.note:
        notes = (*notes, decision.note)
    return OnThisPool(policy.spec, recalled, decision, given, notes)
