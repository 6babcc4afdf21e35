"""The one place that decides: both phases of a policy, from what a run knew as of a step.

Live steps and later turns, what-if, whole runs decided again, every method on one pool, and the effect of a reward all
call `decide`. The figure of the stage that computes in the browser is its twin, held equal by tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from memrl_core.policies.base import Ask, Policy, Vector
from memrl_core.records import Decision, RecallRecord
from memrl_core.retrieval.view import MemoryView


class Decided(NamedTuple):
    """Both phases, and the view as `select` saw it: with the q of then and what the model said when it was consulted.

    `decision` holds its propensity.
    """

    recall: RecallRecord
    decision: Decision
    view: MemoryView


def decide(
    policy: Policy[Any],
    view: MemoryView,
    seed: int,
    *,
    pool: RecallRecord | None = None,
    q: Mapping[str, float] | None = None,
    ask: Ask | None = None,
    coarse: Vector | None = None,
) -> Decided:
    """What `policy`, with its settings, recalls and selects from `view`; `seed` decides every random draw.

    `view` is the run's memory as of a step, asked with that step's embedding. `q` takes the place of the view's for the
    memories that it names. With a `pool` only phase B is run. Without `ask` the model is not consulted, and the answers
    that the view holds stand. `coarse` is as in `retrieval.recall`. Raises `InputError` when a q is not finite.
    """
    if q:
        view = with_q(view, q)
    if pool is None:
        assert view.asked is not None
        pool = policy.recall(view.asked.embedding, view, coarse)
    if ask is not None:
        assert view.asked is not None
        view = replace(view, asked=replace(view.asked, answers=policy.consult(pool, view, ask)))
    return Decided(pool, policy.select(pool, view, seed), view)


def with_q(view: MemoryView, q: Mapping[str, float]) -> MemoryView:
    """A view in which the memories that `q` names have that q; others keep theirs, and unknown ones are passed over."""
    values = view.q.copy()
    for memory_id, value in q.items():
        position = view.rows.get(memory_id, -1) - view.first_row
        if 0 <= position < len(values):
            values[position] = value
    return replace(view, q=values)


def view_of_pool(pool: RecallRecord, q: Mapping[str, float], visits: Sequence[int]) -> MemoryView:
    """The members of a pool alone, in its order, with this q and these visits (n,): for a decision by q alone."""
    ids = [member.memory_id for member in pool.pool]
    return MemoryView(
        ids=ids,
        embeddings=np.zeros((len(ids), 0), dtype=np.float32),
        q=np.array([q[memory_id] for memory_id in ids], dtype=np.float64),
        visits=np.array(visits, dtype=np.int64),
        intent_groups=np.zeros(len(ids), dtype=np.int64),
        rows={memory_id: row for row, memory_id in enumerate(ids)},
    )
