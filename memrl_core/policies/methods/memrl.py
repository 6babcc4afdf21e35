"""MemRL: recall by similarity, rerank by learned utility, move the utility of what was used.

Source: arXiv 2601.03192 v2, sections on two-phase retrieval and utility update (eq. 4, 6, 7); where its official code
differs, a setting offers the code's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from memrl_core.learning import memrl_rule
from memrl_core.policies.base import Ask, NewExperience, Policy, PolicySpec, Variant, Vector, Written, one_memory
from memrl_core.records import Decision, Follows, RecallRecord, Utility
from memrl_core.retrieval import positions_in, select, without_poor
from memrl_core.retrieval.exploration import Exploration
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import PRESETS, MemRLSettings

SPEC = PolicySpec(
    name="memrl",
    title="MemRL",
    citation="arXiv 2601.03192",
    variant="paper",
    deviations=(
        "The paper leaves ties, pools of one and equal values open: equal values have z = 0; ties go to the more "
        "similar, then to the one that the step's seed draws, or to the older by a setting, as in the official code.",
        "ε, the q floor and the least q are the official code's, not the paper's; all are off unless set. With its "
        "normaliser the mean and sd of q are taken before memories below the least q leave, with the paper's after.",
        "Every task finds the memory that the task before it left, unless batch_size is set. The official runners "
        "retrieve for a mini-batch of tasks from one state of the memory, and update and write after it: 32 tasks on "
        "ALFWorld and HLE, 25 on BigCodeBench, 5 on LifelongAgentBench.",
        "Two switches of the official code, off in its configurations, are not here: one memory a task, and a bonus "
        "for memories used before.",
    ),
    idea="A memory's utility q is learned from rewards and weighed against similarity when memories are chosen. The "
    "language model stays as it is; only the memory learns.",
    record="One memory an episode: intent with its embedding, experience, utility q.",
    recall="The k1 memories (or intents) most similar to the intent, beyond the gate δ.",
    select="The k2 best by (1 − λ) z(similarity) + λ z(q), standardised within the pool.",
    update="Every memory of the prompt: q ← q + α (R − q), with the same full reward R.",
    write="One new memory an episode, with the q0 of its outcome.",
    cannot="q belongs to the memory, not to the pair of task and memory: it cannot know who asks.",
    carries_over="Every memory; q and visits as another run with rewards left them.",
    needs=("episode reward",),
    learns="q",
    variants=("paper", "code", "adapted"),
)


class MemRL(Policy[MemRLSettings]):
    """The policy of MemRL under given settings; `spec` says whose rules these are."""

    spec = SPEC
    Settings = MemRLSettings
    presets = PRESETS

    def __init__(self, settings: MemRLSettings) -> None:
        super().__init__(settings)
        ours, of_code = tuple(_ours(settings)), tuple(_of_code(settings))
        variant: Variant = "adapted" if ours else "code" if of_code else "paper"
        mixed = tuple(_left_as_in_the_paper(settings)) if of_code else ()
        self.spec = replace(SPEC, variant=variant, deviations=(*SPEC.deviations, *of_code, *mixed, *ours))
        self.strict = settings.normaliser == "pool"
        self.exploration = Exploration(settings.exploration, settings.ucb_c, settings.thompson_scale, settings.ties)

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """Phase A (eq. 6). The gate is `>` with the paper's normaliser and `>=` with the official code's."""
        recalled = super().recall(query, view, coarse)
        return without_poor(recalled, view, self.settings.least_q, self.settings.floor)

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Phase B (eq. 7)."""
        rows = positions_in(view, recalled)
        return select(
            recalled,
            view.q[rows],
            view.visits[rows],
            k2=self.settings.k2,
            weight=self.settings.weight,
            normaliser=self.settings.normaliser,
            fixed_mean=self.settings.fixed_mean,
            fixed_sd=self.settings.fixed_sd,
            epsilon=self.settings.epsilon,
            seed=seed,
            exploration=self.exploration,
            floor=self.settings.floor,
        )

    def credited(self, decision: Decision, follows: Follows | None = None) -> tuple[str, ...]:
        """All of the prompt (eq. 4), or those that the answer follows, by the setting `credit`."""
        in_prompt = super().credited(decision, follows)
        if self.settings.credit == "prompt" or follows is None:
            return in_prompt
        if not follows.memories and self.settings.unfollowed == "all":
            return in_prompt
        return tuple(memory_id for memory_id in in_prompt if memory_id in follows.memories)

    @staticmethod
    def rule(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
        """Eq. 4, and never below a q floor."""
        return memrl_rule(believed, reward, settings)

    def step_size(self, believed: Utility) -> float:
        """α (eq. 4)."""
        return self.settings.alpha

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """One new memory an episode, unless `duplicates` says otherwise."""
        q0 = self.settings.q0_failure if new.outcome == "failure" else self.settings.q0_success
        return (one_memory(new, view, self.settings, q0),)


def _of_code(settings: MemRLSettings) -> Iterator[str]:
    """What of these settings is the official code's and not the paper's."""
    if settings.normaliser == "fixed":
        yield (
            "Official code: similarity is standardised by a set mean and sd, z of q within the pool and cut at ±3, the "
            "gate is ≥ δ. The paper standardises both within the pool, cuts nothing, and has > δ."
        )
        if (settings.fixed_mean, settings.fixed_sd) not in {(p["fixed_mean"], p["fixed_sd"]) for p in PRESETS.values()}:
            yield (
                f"The mean {settings.fixed_mean:g} and sd {settings.fixed_sd:g} stand in none of the official code's "
                "configurations, which have their own (presets), measured on text-embedding-3-large."
            )
    if settings.normaliser == "raw":
        yield (
            "Official code: its z-scores are switched off, cosine and q are weighed as they are, and the gate is ≥ δ. "
            "The paper standardises both within the pool, and has > δ."
        )
    if settings.k1_counts == "intent":
        yield "Official code: k1 counts intents, and all memories of each are recalled. The paper's k1 counts memories."
    if settings.exploration == "epsilon" and settings.epsilon > 0:
        yield "Official code: with the chance ε the whole prompt is drawn at random from the pool. The paper has no ε."
    if settings.floor is not None:
        yield (
            "Official code: the update stores no q below the floor, and in phase B a lower q counts as the floor. "
            "The paper has no floor."
        )
    if settings.least_q is not None:
        yield "Official code: memories below the least q are not recalled. The paper recalls them whatever their q."
    if settings.duplicates == "group":
        yield (
            "Official code: a memory whose intent is like a known one is kept under that one's embedding. In the paper "
            "each has its own."
        )
    if settings.batch_size > 1:
        yield (
            f"Official code: {settings.batch_size} tasks of an epoch recall from one state of the memory, none sees "
            "what the others left. The paper says nothing of mini-batches."
        )
    if settings.q0_success or settings.q0_failure:
        yield (
            "Official code: the first q is a setting for each outcome (q_init: 0.5 for both on LifelongAgentBench; its "
            "HLE runner gives 1 to a success and 0 to a failure). In the paper every q begins at 0."
        )


def _left_as_in_the_paper(settings: MemRLSettings) -> Iterator[str]:
    """Where settings of the official code stand beside rules of the paper that the code does not have."""
    if settings.normaliser == "pool":
        yield (
            "As in the paper, both sides are standardised within the pool and the gate is > δ; the official code has a "
            "set mean and sd for similarity, and ≥ δ."
        )
    if settings.k1_counts == "record":
        yield "As in the paper, k1 counts memories; in the official code it counts intents."
    if settings.ties == "seeded":
        yield "Of equals the step's seed draws one; the official code's stable sort puts the older memory first."
    if settings.batch_size == 1:
        yield "Every task finds the memory that the task before it left; the official runners work in mini-batches."
    if settings.duplicates == "keep":
        yield "As in the paper, every memory has its own embedding; the official code groups intents that are alike."


def _ours(settings: MemRLSettings) -> Iterator[str]:
    """What of these settings is neither the paper's nor its code's."""
    if settings.exclude_same_task:
        yield "Memories of the task that is asked are left out; the paper and its code recall them."
    if settings.credit == "followed":
        nobody = "no q moves" if settings.unfollowed == "nobody" else "all of the prompt move"
        yield (
            "A reward moves only the memories whose action the answer took; the paper moves every memory of the "
            f"prompt. Where the answer follows none, {nobody}; where that cannot be known, all of the prompt move."
        )
    if settings.duplicates == "skip":
        yield "An episode with the outcome and text of a known one is not written; the paper and its code keep both."
    if settings.exploration == "ucb":
        yield (
            "The bonus of UCB is ours: c · √(ln(1 + N) / (1 + visits)) is added to the score, with N visits of the "
            "pool in all. It is not standardised, so that it fades as visits even out."
        )
    if settings.exploration == "thompson":
        yield (
            "Noise on q is ours, after Thompson sampling: sd s / √(1 + visits), divided by the pool's sd of q (by 1 "
            "where all q are equal) and weighted with λ like q itself."
        )
