"""What Rememberer is here, in words, and what it can be told (arXiv 2306.07929)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from memrl_core.policies.spec import PolicySpec
from memrl_core.settings import PolicySettings


class RemembererSettings(PolicySettings):
    """How values are learned, which records are read, and how many are kept."""

    k1: int = Field(
        20, ge=1, le=1000, title="k1 · pool size", description="How many of the best records phase A hands on."
    )
    k2: int = Field(2, ge=0, le=100, title="k2 · exemplars", description="How many records give advice in a turn.")
    delta: float = Field(
        -1.0,
        ge=-1,
        le=1,
        title="δ · similarity gate",
        description="Records whose task is less similar than this are not recalled. The method has no gate: −1.",
    )
    variant: Literal["paper", "code"] = Field(
        "code",
        title="Variant",
        description="paper: n rewards, then the value of the state reached. code: all rewards to the end of the "
        "episode, as the released scripts run it.",
    )
    n: int = Field(
        1, ge=1, le=100, title="n · steps of the return", description="Rewards before the next value; `paper` only."
    )
    gamma: float = Field(1.0, ge=0, le=1, title="γ · discount", description="What a reward one step later counts.")
    step_size: Literal["1/N", "constant"] = Field(
        "1/N", title="Step size", description="1/N: the mean of all targets. constant: always α."
    )
    alpha: float = Field(0.1, gt=0, le=1, title="α · constant step size", description="Used by `constant` only.")
    task_weight: float = Field(
        0.5,
        ge=0,
        le=1,
        title="λ · weight of the task",
        description="1: the similarity of the tasks alone. 0: that of the observations alone.",
    )
    norandom: bool = Field(
        False,
        title="Recorded advice only",
        description="No action is invented: the best recorded one is encouraged and the worst discouraged, whatever "
        "their values.",
    )
    capacity: int = Field(
        500, ge=2, le=2000, title="States kept", description="Beyond this a new state or one of two alike goes."
    )
    action_capacity: int = Field(
        20,
        ge=1,
        le=1000,
        title="Actions kept in a state",
        description="Beyond this the one with the lowest immediate reward goes.",
    )


SPEC = PolicySpec(
    name="rememberer",
    title="Rememberer",
    citation="arXiv 2306.07929",
    variant="adapted",
    deviations=(
        "The similarity of observations is the share of their different words that stand in both; the source has a "
        "measure of its own for each environment.",
        "The similarity of tasks is the embedding's cosine. Every record is scored; the k1 best are the pool that is "
        "kept in the trace.",
        "The table learns at the end of the step, from the first turn to the last, instead of n turns behind.",
        "Rewards are the environment's verdicts in [0, 1] turn by turn; the step's reward, or a person's, mapped back "
        "to [0, 1], takes the place of the last.",
        "An action's immediate reward is that of its own turn; the released code pairs it with the turn before.",
        "States are dropped by the rule that the released code meant: there the matrix of similarities stays empty, "
        "and a full table refuses every new state. As in the code, of the two most alike the one with more samples "
        "goes, which looks inverted.",
        "What is encouraged is not discouraged as well. The best exemplar stands first. There is no limit of tokens.",
        "Invented advice is drawn by the step, the turn and the record, among the choices that its observation offers.",
        "Two Q tables, the history of actions and the reasons beside actions are left out.",
    ),
    idea="Every state remembers what was done in it and what that was worth. Before each turn the most similar states "
    "say which action to take and which to leave.",
    record="One memory a state (task and observation); for each action taken in it a learned value Q, how often it was "
    "taken, and its immediate reward.",
    when="Before every turn.",
    recall="Every record is scored by task and observation; the k1 best are handed on.",
    select="The k2 best by λ · similarity of the tasks + (1 − λ) · similarity of the observations; ties go to the "
    "record with more tries.",
    update="For each action of the episode: Q ← Q + (G − Q) / N, where G is the return of n steps, "
    "Σ γ^i r + γ^n max Q(s′, a′), or all rewards to the end.",
    write="One memory for each state met for the first time; a state known already only moves its values.",
    forget="At the limit of states a newcomer that is as redundant as the most alike pair, or one of that pair; at the "
    "limit of actions the one with the lowest immediate reward.",
    cannot="It needs actions that repeat: where every answer is worded anew, each is tried once and nothing is learned "
    "about it. A state that looks different is another state.",
    carries_over="Nothing of the memories that a run begins with: they hold no actions with values. Where it watches "
    "another policy's run, the states of each step stand under the memory which that step wrote.",
    feedback=("episode reward", "step reward", "human"),
    needs=("episode reward", "step reward", "next state"),
    learns="actions",
    variants=("adapted",),
)
