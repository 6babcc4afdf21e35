"""MemP's settings and its card (arXiv 2508.06433)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from memrl_core.policies.spec import PolicySpec
from memrl_core.settings import PolicySettings

MOST = 200
"""Memories whose facts are compared, or among which chance decides: all of them stand in the trace."""


class MempSettings(PolicySettings):
    """What MemP can be told; its k is k2."""

    k1: int = Field(
        10,
        ge=1,
        le=1000,
        title="k1 · pool size",
        description="How many memories phase A recalls at most. Not used by “ave_fact” and “random”.",
    )
    k1_counts: Literal["record", "intent"] = Field(
        "record",
        title="k1 counts",
        description="record: k1 memories. intent: all memories of the k1 nearest intents. Not used by “ave_fact” and "
        "“random”.",
    )
    delta: float = Field(
        0.2,
        ge=-1,
        le=1,
        title="δ · similarity gate",
        description="Memories less similar than this are not recalled. Not used by “ave_fact” and “random”.",
    )
    k2: int = Field(10, ge=0, le=100, title="k2 · memories in the prompt", description="The method's k.")
    reward_failure: float = Field(
        0.0, ge=-10, le=10, title="r− · reward of a failure", description="Also thumbs down. The method has 0 and 1."
    )
    variant: Literal["paper", "code"] = Field(
        "paper",
        title="Variant",
        description="code: failing memories are deleted, and a task that has a memory gets no second one.",
    )
    build: Literal["direct", "round"] = Field(
        "direct",
        title="Build",
        description="direct: the script that is written of the episode. round: the turns of it that the model chooses.",
    )
    recall_by: Literal["query", "facts", "ave_fact", "random"] = Field(
        "query",
        title="Recall by",
        description="query: the intent. facts: its content words, as one text. ave_fact: fact by fact. random: k2 of "
        "all memories.",
    )
    update: Literal["vanilla", "validation", "adjustment"] = Field(
        "adjustment",
        title="Update",
        description="vanilla: every episode is stored. validation: successes. adjustment: successes; a failure rewords "
        "the memory that was followed.",
    )
    delete_from: int = Field(
        3, ge=1, le=1000, title="Deleted from n hits", description="Variant code: uses before a memory can be deleted."
    )
    delete_below: float = Field(
        0.5, ge=0, le=1, title="Deleted below", description="Variant code: the success rate below which it is."
    )


SPEC = PolicySpec(
    name="memp",
    title="MemP",
    citation="arXiv 2508.06433",
    variant="paper",
    deviations=(
        "Memories are counted, deleted and written after each task; the released code does so after a batch. There the "
        "reward of a use is looked up by the place of its memory's first use in the batch, so that a second use counts "
        "the first one's reward. That is not copied: each use counts its own.",
        "The released code's thresholds of .5 and .4 are largest distances of its vector index; here δ is the least "
        "cosine.",
        "The script of build “direct” is what a language model writes of the episode in one call, three to five steps "
        "in general terms, below the actions that worked. With the simulated model it is these actions alone.",
        "With the simulated model a memory whose steps went wrong is reworded as the environment lays the failure out; "
        "to another only the reason is added.",
        "There is no cold start from given trajectories.",
    ),
    idea="An agent keeps scripts of what it did. The memory is kept clean by what is stored, by rewording a script "
    "that has failed, and by deleting scripts that fail too often.",
    record="One memory a script, with hits and successes: its success rate stands as q, its hits as visits.",
    when="At the beginning of the task.",
    recall="By the intent, by its facts, or at random.",
    select="The k2 most similar, by cosine of the intent or mean cosine of the facts; or k2 drawn at random.",
    update="The first memory of the prompt alone: q = successes / hits, a 1/N mean. q does not choose memories.",
    write="Every episode, or successes only; with “adjustment” a failure rewords the first memory of its prompt, which "
    "keeps its q and visits.",
    forget="Released code: a memory with at least 3 hits of which less than half were successes. Paper: nothing.",
    cannot="What is deleted or reworded goes by the first memory alone, although the model has read k2 of them. "
    "Without a first success, validation and adjustment have nothing to begin with.",
    carries_over="Every memory; q and visits go on as a success rate, q cut to 0 … 1, which they are only if the other "
    "policy's were one. So what this run did not store is deleted by its uses in this run alone. Its facts are the "
    "content words of its intent.",
    needs=("episode reward", "model on write"),
    learns="success rate",
    variants=("paper", "code", "adapted"),
)


def adaptations(settings: MempSettings) -> Iterator[str]:
    """What building, storing and comparing by facts have been changed to."""
    if settings.build == "round":
        yield "The events of a “round” are the turns as they were; the model only chooses among them."
    if settings.update == "vanilla":
        yield (
            "A failure that “vanilla” stores is kept as what went wrong and what to try instead, among the failures of "
            "the prompt; the source makes a script of it like any other."
        )
    if settings.recall_by == "facts":
        yield (
            "The facts of the task asked are its content words: the intent is embedded before any model can be asked. "
            "They are compared with the intents of memories, as in the released code."
        )
    if settings.recall_by == "ave_fact":
        yield (
            "Facts are compared by the embedded embedder of letters and words, because no other is at hand in phase B. "
            "With the simulated model they are the content words of the intent, each under its place. Memories that "
            f"share no key come last; the released code leaves them out. Of more than {MOST} memories the most similar "
            "by intent are compared; the source compares all."
        )


def differences(settings: MempSettings) -> Iterator[str]:
    """What the settings in force do otherwise without changing what comes of it."""
    if settings.recall_by == "random":
        yield (
            f"Of more than {MOST} memories {MOST} are drawn first, by the step's number, and k2 of these by its seed: "
            "each memory has the same chance, as if drawn from all."
        )
