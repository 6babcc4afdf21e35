"""RMM's reranker: adapters on both embeddings, a drawn order, and REINFORCE by which memories were used.

Source: arXiv 2503.08026, retrospective reflection; follows the card “RMM”. Its other half, which writes and merges
topics of a dialogue, is not for experiences and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import GenericAlias
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, create_model

from memrl_core.policies.base import Ask, Lesson, Policy, PolicySpec, Question, UngatedSettings
from memrl_core.policies.ranking import (
    Chosen,
    Floats,
    TermColumn,
    gumbel_top,
    ordered_log_gradient,
    ordered_log_probability,
    positions,
    ranked,
    similarities,
)
from memrl_core.prompting import ANSWER_MARK, AVOID
from memrl_core.records import Decision, Memory, Reason, RecallRecord, StepTrace, ValueChange
from memrl_core.retrieval import score_order
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import usual

ADAPTED = "similarity after adapters / τ"
NOISE = "noise"
NORMS = ("‖W_q‖", "‖W_m‖")

SPEC = PolicySpec(
    name="rmm_reranker",
    title="RMM reranker",
    citation="arXiv 2503.08026",
    variant="adapted",
    deviations=(
        "Only the reranker: the paper's other half writes and merges topics of dialogues, not experiences.",
        "W_q and W_m have a low rank (setting) instead of being whole matrices, for want of data. The entries of W "
        "begin with the paper's N(0, .01), read as a standard deviation.",
        "Gumbel noise is added to s / τ. Added to s, τ would not change the order.",
        "The gradient is that of the exact probability of the ordered sample (Plackett–Luce), each draw with the "
        "advantage of the memory drawn; one task is a batch (paper: 4).",
        "The citations are asked for after the answer, not in the same call. A reply that cannot be read is no "
        "feedback.",
    ),
    idea="Two small matrices learn to bend the similarity of task and memory towards what the model really uses. The "
    "order is drawn, not taken from the top, so that others get their chance.",
    recall="The k1 memories most similar to the intent; no gate, unless δ is above −1.",
    select="s = (q + W_q q) · (m + W_m m); the k2 largest of s / τ + g, with Gumbel noise g: an ordered sample without "
    "replacement.",
    update="φ ← φ + η Σ (R − b) ∇ ln P(sample) for W_q and W_m, R = +1 for a cited memory and −1 for another. b = .5 "
    "makes that lopsided: +0.5 for what was cited, −1.5 for what was not.",
    cannot="It keeps no value of a memory: what is learned is a direction in the space of embeddings, for all alike.",
    carries_over="Every memory. The steps of other policies teach it nothing: it learns only from orders that it drew "
    "itself.",
    feedback=("citation",),
    needs=("citations",),
    learns="matrices",
)


class RMMSettings(UngatedSettings):
    """The parameters of RMM's reranker."""

    k1: int = usual("k1", 20)
    k2: int = usual("k2", 5, "How many are drawn.")
    temperature: float = Field(
        0.5, ge=0.01, le=10, title="τ · temperature", description="Small: nearly the best k2. Large: nearly at random."
    )
    learning_rate: float = Field(0.001, gt=0, le=1, title="η · learning rate", description="Step size of REINFORCE.")
    baseline: float = Field(
        0.5, ge=-1, le=1, title="b · baseline", description="0 weighs +1 and −1 alike; above it, −1 teaches more."
    )
    rank: int = Field(
        16, ge=1, le=128, title="Rank of the adapters", description="Of W_q and W_m as the run begins to learn."
    )


@dataclass(slots=True)
class Learned:
    """The adapters (None before the first lesson) and how many lessons they have had."""

    adapters: Adapters | None = None
    lessons: int = 0


class RMMReranker(Policy[RMMSettings]):
    """RMM's reranker over a pool recalled by similarity."""

    spec = SPEC
    Settings = RMMSettings

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """An ordered sample of k2 by s / τ; the seed decides the noise."""
        settings, n = self.settings, len(recalled.pool)
        scores, note = self._scores(recalled, view)
        by_adapters = scores / settings.temperature
        order, noise = gumbel_top(by_adapters, settings.k2, np.random.default_rng(seed))
        ranks = np.array([member.rank_recall for member in recalled.pool])
        greedy = score_order(by_adapters, similarities(recalled), ranks)[: settings.k2].tolist()
        terms = [TermColumn(ADAPTED, scores, normalised=by_adapters), TermColumn(NOISE, noise)]
        chosen = None
        if n:
            changed = set(order) ^ set(greedy)
            log_probability = ordered_log_probability(by_adapters, order)
            reasons = dict.fromkeys(changed, Reason.NOISE)
            chosen = Chosen(order, "sampled", log_propensity=log_probability, reasons=reasons, greedy=greedy)
        return ranked(recalled, view, terms, k2=settings.k2, seed=seed, chosen=chosen, note=note)

    def review(self, trace: StepTrace, memories: Sequence[Memory], ask: Ask) -> None:
        """Ask which memories of the prompt the answer used."""
        turns = trace.turns
        if memories and turns and not turns[-1].reply.stopped:
            ask(question(trace.task.intent, memories, [turn.reply.text.strip() for turn in turns]))

    def start(self, memories: Sequence[Memory]) -> Learned:
        """Nothing learned yet."""
        return Learned()

    def learn(self, state: Learned, lesson: Lesson) -> tuple[ValueChange, ...]:
        """One step of REINFORCE from a sample that this policy drew itself."""
        settings, trace, decision = self.settings, lesson.trace, lesson.trace.decision
        if trace.policy != SPEC.name or trace.embed is None or decision is None or decision.mode != "sampled":
            return ()
        rewards = _rewards(lesson, decision.selected)
        if not rewards:
            return ()
        pool = [candidate.memory_id for candidate in decision.candidates if candidate.rank_select is not None]
        query = np.asarray(trace.embed.embedding, dtype=np.float64)
        memories = np.stack([lesson.embedding_of(memory_id) for memory_id in pool]).astype(np.float64)
        order = [pool.index(memory_id) for memory_id in decision.selected]
        before, rate, temperature = self._adapters(state, len(query)), settings.learning_rate, settings.temperature
        advantages = [reward - settings.baseline for reward in rewards]
        after = reinforced(before, query, memories, order, advantages, temperature=temperature, rate=rate)
        state.adapters, state.lessons = after, state.lessons + 1
        log_p = [ordered_log_probability(a.scores(query, memories) / temperature, order) for a in (before, after)]
        given = ", ".join(f"{one}: {reward:+g}" for one, reward in zip(decision.selected, rewards, strict=True))
        formula = (
            f"φ + η Σ (R − b) ∇ ln P with η = {rate:g}, b = {settings.baseline:g}; R of {given}; "
            f"ln P of the sample {log_p[0]:.4f} → {log_p[1]:.4f}"
        )
        mean = float(np.mean(rewards))
        return tuple(
            ValueChange("", old, new, state.lessons, mean, rate, "parameters", name, formula)
            for name, old, new in zip(NORMS, before.norms(), after.norms(), strict=True)
        )

    def values(self, state: Learned) -> Mapping[str, float]:
        """‖W_q‖ and ‖W_m‖, once something was learned."""
        return {} if state.adapters is None else dict(zip(NORMS, state.adapters.norms(), strict=True))

    def _adapters(self, state: Any, dimension: int) -> Adapters:
        if isinstance(state, Learned) and state.adapters is not None:
            return state.adapters
        return first_adapters(dimension, self.settings.rank, seed=0)

    def _scores(self, recalled: RecallRecord, view: MemoryView) -> tuple[Floats, str]:
        """s (n,) of the pool, and what is to be said of it."""
        if view.asked is None:
            return similarities(recalled), "s is the similarity: the embedding of what is asked is not known."
        rows = positions(recalled, view)
        memories = view.embeddings[rows].astype(np.float64)
        query = view.asked.embedding.astype(np.float64)
        lessons = view.learned.lessons if isinstance(view.learned, Learned) else 0
        return self._adapters(view.learned, len(query)).scores(query, memories), f"W_q and W_m after {lessons} lessons."


def _rewards(lesson: Lesson, selected: Sequence[str]) -> list[float]:
    """R of each memory of the prompt; none without usable feedback."""
    citations = next((one.filled for one in lesson.trace.consulted if one.purpose == CITATIONS), None)
    if citations is None or not set(citations["cited"]) <= set(selected):
        return []
    return [1.0 if memory_id in citations["cited"] else -1.0 for memory_id in selected]


# --- adapters: q′ = q + W_q q, m′ = m + W_m m, s = q′ · m′, and REINFORCE on them -------------------------------------


FIRST_SD = 0.01


class Adapters(NamedTuple):
    """W_q = `up_q` · `down_q` and W_m = `up_m` · `down_m`: (d, rank) · (rank, d) each. No array is ever changed."""

    up_q: Floats
    down_q: Floats
    up_m: Floats
    down_m: Floats

    def scores(self, query: Floats, memories: Floats) -> Floats:
        """s (n,) of `memories` (n, d) for `query` (d,): q′ · m′ = (q′ + W_mᵀ q′) · m, one product for the pool."""
        adapted = self._adapted_query(query)
        scores: Floats = memories @ (adapted + self.down_m.T @ (self.up_m.T @ adapted))
        return scores

    def norms(self) -> tuple[float, float]:
        """‖W_q‖ and ‖W_m‖ (Frobenius)."""
        return _norm(self.up_q, self.down_q), _norm(self.up_m, self.down_m)

    def gradient(self, query: Floats, memories: Floats, by_score: Floats) -> Adapters:
        """The gradient of anything whose gradient in s is `by_score` (n,), in each of the four matrices."""
        memory = by_score @ memories
        to_query, to_memory = memory + self.up_m @ (self.down_m @ memory), self._adapted_query(query)
        return Adapters(
            up_q=np.outer(to_query, self.down_q @ query),
            down_q=np.outer(self.up_q.T @ to_query, query),
            up_m=np.outer(to_memory, self.down_m @ memory),
            down_m=np.outer(self.up_m.T @ to_memory, memory),
        )

    def moved(self, gradient: Adapters, rate: float) -> Adapters:
        """The adapters after a step of `rate` up the gradient."""
        return Adapters(*(matrix + rate * change for matrix, change in zip(self, gradient, strict=True)))

    def _adapted_query(self, query: Floats) -> Floats:
        return query + self.up_q @ (self.down_q @ query)


@lru_cache(maxsize=8)
def first_adapters(dimension: int, rank: int, seed: int) -> Adapters:
    """Untrained adapters: the entries of W_q and W_m have mean 0 and standard deviation `FIRST_SD`.

    The lower factors have entries of variance 1 / rank, so that the rank does not decide how large W is or how fast it
    learns.
    """
    rng = np.random.default_rng(seed)

    def pair() -> tuple[Floats, Floats]:
        return rng.normal(scale=FIRST_SD, size=(dimension, rank)), rng.normal(scale=rank**-0.5, size=(rank, dimension))

    return Adapters(*pair(), *pair())


def reinforced(
    adapters: Adapters,
    query: Floats,
    memories: Floats,
    order: Sequence[int],
    advantages: Sequence[float],
    *,
    temperature: float,
    rate: float,
) -> Adapters:
    """Δφ = η Σ_j (R_j − b) ∇ ln P(order[j] | what was left of the pool), for scores s / τ.

    `query` (d,) and `memories` (n, d) are float64 unit vectors; `order` holds positions as they were drawn.
    """
    scores = adapters.scores(query, memories) / temperature
    by_score = ordered_log_gradient(scores, order, advantages) / temperature
    return adapters.moved(adapters.gradient(query, memories, by_score), rate)


def _norm(up: Floats, down: Floats) -> float:
    return float(np.sqrt(max(0.0, np.einsum("ij,ji->", up.T @ up, down @ down.T))))


# --- citations: which memories of a prompt an answer used -------------------------------------------------------------


CITATIONS = "citations"
_REQUEST = (
    "You are shown memories of earlier tasks, a task, and what was done with those memories at hand. Say which of the "
    "memories were really used in it, by their ids. Name none that only look alike; name nothing when none was used."
)


class Citations(BaseModel):
    """Which memories an answer used."""

    cited: list[str]


def question(intent: str, memories: Sequence[Memory], replies: Sequence[str]) -> Question[Citations]:
    """Asks which of `memories` were used in `replies`; without a model, those that said to do what was done."""
    form = citations_of([memory.id for memory in memories])
    known = "\n\n".join(f"[memory {memory.id}]\n{memory.experience.strip()}" for memory in memories)
    done = {line.strip().removeprefix(ANSWER_MARK).strip() for reply in replies for line in reply.splitlines()}
    return Question(
        CITATIONS,
        form,
        _REQUEST,
        message=f"{known}\n\nTask: {intent}\nWhat was done:\n" + "\n".join(replies),
        template=form(cited=[memory.id for memory in memories if to_follow(memory) & done]),
    )


def citations_of(memory_ids: Sequence[str]) -> type[Citations]:
    """The form in which these memories, and no others, can be cited."""
    listed = GenericAlias(list, (Literal.__getitem__(tuple(memory_ids)),))
    cited = Field(description="The ids of the memories that were used; empty when none was.")
    fields: dict[str, Any] = {"cited": (listed, cited)}
    return create_model("Citations", __base__=Citations, **fields)


def to_follow(memory: Memory) -> set[str]:
    """The actions that a memory says to do: its lines that begin with "> ", but for those to avoid."""
    actions, section = set(), ""
    for line in memory.experience.splitlines():
        if not line.startswith(ANSWER_MARK):
            section = line.strip() or section
        elif section != AVOID:
            actions.add(line.removeprefix(ANSWER_MARK).strip())
    return actions
