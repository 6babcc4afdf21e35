"""What EMPO² memory is here, in words, and what it can be told (arXiv 2602.23008)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from memrl_core.policies.spec import PolicySpec
from memrl_core.settings import PolicySettings


class Empo2Settings(PolicySettings):
    """Which tips are read, how many are kept, and whether new states are explored."""

    variant: Literal["paper", "code"] = Field(
        "code",
        title="Variant",
        description="paper: the most similar tips. code: beyond the gate, those with the best stored score.",
    )
    k1: int = Field(20, ge=1, le=1000, title="k1 · pool size", description="How many tips phase A hands on.")
    k2: int = Field(10, ge=0, le=100, title="k2 · tips in a turn", description="How many tips a turn gives.")
    delta: float = Field(
        0.5, ge=-1, le=1, title="δ · similarity gate", description="Tips that are not more similar than this are left."
    )
    novelty_explores: bool = Field(
        False,
        title="New states are explored",
        description="A turn is answered without tips with the chance ε = ε0 · novelty. Ours, not the method's.",
    )
    epsilon: float = Field(
        0.2, ge=0, le=1, title="ε0 · exploration", description="ε where no tip is known; used by the setting above."
    )
    capacity: int = Field(
        1000, ge=1, le=100_000, title="Tips kept in a list", description="Beyond this the oldest of the list go."
    )


SPEC = PolicySpec(
    name="empo2_memory",
    title="EMPO² memory (no GRPO)",
    citation="arXiv 2602.23008, its memory alone",
    variant="adapted",
    deviations=(
        "No language model is trained: of the method only the memory is here, and its results are not to be expected.",
        "The key is the embedding of the intent and the observation; in the source, of the whole chat so far. A tip "
        "is keyed by the last prompt of its episode.",
        "Each task has its list, as in the source; a task that is met for the first time reads all lists.",
        "Novelty is shown, not rewarded. Where it is set, it is the chance to answer without tips; both are ours.",
        "Novelty counts the tips found, as the released code does; in the paper it is 1 / n over the distinct states "
        "met so far that are like this one.",
        "The paper reads the 10 most similar tips, however little they are; here δ holds for both variants (−1: none).",
        "A score is the step's reward, or a person's, mapped back to [0, 1], and 0.5 for an unrated episode. A late "
        "reward counts when tips are ordered, while their text keeps what was known.",
        "With the simulated model the environment's own layout of the episode stands in for the tip.",
    ),
    idea="At the end of an episode the model writes a tip. Before each turn the tips that were kept for states like "
    "this one are read; how few there are says how new the state is.",
    record="One memory a turn: the tip, the action taken, the final score; all of an episode under the same key.",
    when="Before every turn.",
    recall="The tips of the same list whose key is more similar than δ to the intent and the observation; of these the "
    "k1 with the best score (code), or the k1 most similar (paper).",
    select="The k2 with the best score, ties to the more similar (code), or the k2 most similar (paper). "
    "Novelty = 1 / (n + 1), where n is the number of tips found, at most k2.",
    update="Nothing: rewards change no value. The score of an episode stands with its tips.",
    write="One record for each turn of the episode with the tip that the model gives; the same text is kept once.",
    forget="The oldest of a list, beyond its limit.",
    cannot="It does not learn which tip helps: a tip keeps the score of the episode that it came from. Its key is the "
    "end of that episode, so the first turns of another find few.",
    carries_over="Memories of another policy, by their own key. Where it has seen their step: in that task's list, "
    "with that step's score; otherwise in every list, with 1 for a success, 0 for a failure and 0.5 for the rest.",
    learns="nothing",
    needs=("episode reward", "model on write"),
    variants=("adapted",),
)
