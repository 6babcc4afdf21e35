"""Memento's three reads as cards, and its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from memrl_core.policies.spec import PolicySpec, Variant
from memrl_core.settings import PolicySettings

PAPER_K, CODE_K = 4, 8

_CASES = (
    "Only the case memory is the paper's, not its planner and executor: a plan is the environment's list of the "
    "actions that mattered, or of what went wrong, and embeddings are the bank's. How cases are kept, found and "
    "shown is as in the source."
)
_UNCUT = "No text is cut before it is embedded; the source cuts it at 256 tokens."
_SAME_LABEL = "Every case of the prompt gets the whole task's outcome as its label, whether it helped or not."

SPEC = PolicySpec(
    name="memento",
    title="Memento",
    citation="arXiv 2508.16153",
    variant="paper",
    deviations=(_CASES, _UNCUT),
    idea="Past cases (task, plan, outcome r) are put before the model: the K most like the task, those that worked to "
    "follow and those that failed to avoid. Two other reads, kernel and network, learn a value that belongs to the "
    "pair of task and case, which MemRL's q does not.",
    record="A case for each episode: embedding of the task, plan, outcome.",
    when="At the beginning of the task.",
    recall="The k1 cases most similar to the task; no gate, unless δ is above −1.",
    select="The K = k2 most similar.",
    update="Nothing that selection goes by. The outcome of every use is noted, so that another read can be tried out.",
    write="One case an episode, positive or negative.",
    forget="Nothing.",
    cannot="A similar case that never helps is read for ever: like RAG, this read values no case.",
    carries_over="Every memory is a case.",
    learns="nothing",
    needs=("episode reward",),
    variants=("paper", "code", "adapted"),
)

KERNEL = replace(
    SPEC,
    title="Memento, kernel",
    variant="adapted",
    deviations=(
        "The kernel is a fixed Gaussian or cosine of frozen embeddings; in the paper it is learned, and the released "
        "code has no kernel.",
        "A case without past uses has no value in the paper; here it has the Q of an unused case (setting).",
        "Only each task's beginning counts as a state, so the reward is the whole target: nothing is bootstrapped.",
        "The paper derives the policy μ = softmax(Q / α), which draws one case; here K are drawn without replacement "
        "where τ is above 0, and with τ = 0 the K highest are taken.",
        _CASES,
        _UNCUT,
    ),
    idea="Q(s, c) is the mean outcome of the past uses of case c, weighted by how like their tasks were to this one. "
    "MemRL's q belongs to the memory; this value belongs to the pair of task and case, and knows who asks.",
    select="The K = k2 with the highest Q_EC(s, c) = Σ k(s, s′) Q′ / Σ k(s, s′) over the past uses of c; equal values "
    "go to the more similar. With τ above 0, K drawn by softmax(Q_EC / τ).",
    update=f"(s, r) joins the past uses of every case of the prompt. {_SAME_LABEL}",
    cannot="A single past use decides for every task, however unlike: Σ k Q′ / Σ k is then Q′ itself.",
    carries_over="Every memory is a case. Steps of other policies teach it as its own do: what was in their prompts, "
    "and how the task ended; what came before the run's first step it has not seen.",
    learns="kernel",
)

NETWORK = replace(
    SPEC,
    title="Memento, network",
    variant="adapted",
    deviations=(
        "The paper trains its text encoder with the network; here embeddings are frozen and pass a fixed random "
        "projection to 64 numbers, drawn once from the network's seed.",
        "[e_s; e_c; e_s ⊙ e_c; r_c] → 64 → 1 with ReLU and one Adam step on a replay batch a task; the paper puts "
        "two layers on SimCSE, the released code retrains encoder and head, with dropout and class weights.",
        "Until there are enough labelled rows with both outcomes the K most similar are taken (setting).",
        _CASES,
        _UNCUT,
    ),
    idea="A small network learns p(r = 1 | s, c), the chance that case c helps in task s. MemRL's q belongs to the "
    "memory, not to (query, memory); this value is computed anew for each pair.",
    recall="The whole bank: every case is scored, and the k1 with the highest p are handed on.",
    select="The K = k2 with the highest p(r = 1 | s, c; θ); by similarity as long as too little was learned.",
    update=f"One Adam step of binary cross-entropy on a replay batch of (s, c, r). {_SAME_LABEL}",
    cannot="It needs many labelled uses before its chances say more than similarity does; until then it can do worse.",
    carries_over=KERNEL.carries_over,
    learns="network",
)

Read = Literal["similar", "kernel", "network"]
SPECS: Mapping[Read, PolicySpec] = {"similar": SPEC, "kernel": KERNEL, "network": NETWORK}


class MementoSettings(PolicySettings):
    """The parameters of Memento, and of the parts that the paper leaves to the reader."""

    variant: Literal["paper", "code"] = Field(
        "paper",
        title="Variant",
        description="paper: K = 4. code: K = 8, and a K of 4 becomes 8. The reads kernel and network stay adapted.",
    )
    k1_counts: Literal["record", "intent"] = Field(
        "record",
        title="k1 counts",
        description="record: k1 cases. intent: all cases of the k1 nearest intents. Not used by `network`.",
    )
    delta: float = Field(
        -1.0,
        ge=-1,
        le=1,
        title="δ · similarity gate",
        description="Cases less similar than this are not recalled. The method has no gate: −1. Not used by `network`.",
    )
    k2: int = Field(
        PAPER_K,
        ge=0,
        le=100,
        title="k2 · cases in the prompt",
        description="The method's K: 4 in the paper, which tried 1 to 32, and 8 in the released code.",
    )
    reward_failure: float = Field(
        0.0, ge=-10, le=10, title="r− · reward of a failure", description="Also thumbs down. The paper's r is 0 or 1."
    )
    read: Read = Field(
        "similar",
        title="Read",
        description="similar: the K most alike. kernel: by the outcomes of past uses, weighted by how alike their "
        "tasks were. network: by a learned chance to help, over the whole bank.",
    )
    kernel: Literal["gaussian", "cosine"] = Field(
        "gaussian",
        title="Kernel",
        description="gaussian: exp(−‖s − s′‖² / 2h²). cosine: of s and s′, at least 0. Used by `kernel` only.",
    )
    bandwidth: float = Field(
        0.5, ge=0.1, le=5, title="h · width of the kernel", description="Used by the Gaussian kernel only."
    )
    unused_q: float = Field(
        0.5, ge=0, le=1, title="Q of an unused case", description="Used by `kernel` where a case has no past uses."
    )
    temperature: float = Field(
        0.0,
        ge=0,
        le=10,
        title="τ · temperature of the choice",
        description="0: the K highest Q_EC. Above: K cases drawn by softmax(Q_EC / τ), the paper's policy (its α). "
        "Used by `kernel` only.",
    )
    cold_rows: int = Field(
        30,
        ge=2,
        le=100_000,
        title="Rows before the network decides",
        description="Labelled rows, with both outcomes among them; until then the most similar are taken.",
    )
    learning_rate: float = Field(
        0.003, gt=0, le=0.1, title="η · learning rate", description="Adam's step size. Used by `network` only."
    )
    batch: int = Field(
        32, ge=1, le=256, title="Replay batch", description="Rows in one step of learning. Used by `network` only."
    )
    network_seed: int = Field(
        0,
        ge=0,
        le=2**31 - 1,
        title="Seed of the network",
        description="Decides its first weights, its projection and its batches. Used by `network` only.",
    )

    @model_validator(mode="before")
    @classmethod
    def _follow_the_variant(cls, values: Any) -> Any:
        """Forms send every value: the paper's K beside the code's variant is no choice of a person's."""
        if not isinstance(values, dict) or values.get("variant") != "code":
            return values
        return {**values, "k2": CODE_K} if values.get("k2", PAPER_K) == PAPER_K else values


def card(settings: MementoSettings) -> PolicySpec:
    """The card of the read in force, with whose rules the settings make it."""
    spec, differences = SPECS[settings.read], tuple(_differences(settings))
    if spec.variant == "adapted":
        return replace(spec, deviations=(*spec.deviations, *differences))
    variant: Variant = "adapted" if settings.delta > -1 else settings.variant
    return replace(spec, variant=variant, deviations=(*spec.deviations, *differences))


def _differences(settings: MementoSettings) -> Iterator[str]:
    source, k = ("paper", PAPER_K) if settings.variant == "paper" else ("released code", CODE_K)
    if settings.k2 != k:
        yield f"K = {settings.k2}; the {source} sets {k}. The rule is the same."
    if settings.read != "network" and settings.delta > -1:
        yield "Recall has a similarity gate δ; the source has none."
