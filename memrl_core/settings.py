"""Settings of an agent as data with ranges: validated once at the door, shown by the screen from the same fields."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from memrl_core.errors import SettingsError

Normaliser = Literal["pool", "fixed", "raw"]
OFF = -10.0
"""A bound on q that bounds nothing: no reward and no q0 of these settings is below it."""
NAMED, LONGEST = 3, 200
"""How many mistakes a sentence names, and how many characters of a given value."""


class PolicySettings(BaseModel):
    """Settings of every policy: how many memories it may use, what rewards mean, what becomes of doubles."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    k1: int = Field(10, ge=1, le=1000, title="k1 · pool size", description="How many memories phase A recalls at most.")
    k1_counts: Literal["record", "intent"] = Field(
        "record",
        title="k1 counts",
        description="record: k1 memories (paper). intent: all memories of the k1 nearest intents (official code).",
    )
    delta: float = Field(
        0.2, ge=-1, le=1, title="δ · similarity gate", description="Memories less similar than this are not recalled."
    )
    k2: int = Field(
        3, ge=0, le=100, title="k2 · memories in the prompt", description="How many phase B gives the model."
    )
    ties: Literal["seeded", "older"] = Field(
        "seeded",
        title="Ties",
        description="Which of equals goes first, at the cut of k1 and of k2. seeded: the step's seed decides. older: "
        "the older memory (official code), so that equal intents keep to their first attempts.",
    )
    exclude_same_task: bool = Field(
        False,
        title="Leave out the same task",
        description="Memories of the very task that is asked are not recalled: what is left is transfer, not recall of "
        "the answer.",
    )
    batch_size: int = Field(
        1,
        ge=1,
        le=1000,
        title="Mini-batch",
        description="So many steps of an epoch recall from the memory as it was before the first of them; their "
        "rewards and memories count after the last. 1: after every step (paper). The official runners: 32 on "
        "ALFWorld and HLE, 25 on BigCodeBench, 5 on LifelongAgentBench.",
    )
    reward_success: float = Field(1.0, ge=-10, le=10, title="r+ · reward of a success", description="Also thumbs up.")
    reward_failure: float = Field(
        -1.0, ge=-10, le=10, title="r− · reward of a failure", description="Also thumbs down."
    )
    human_rewards: Literal["override", "mean", "both"] = Field(
        "override",
        title="People and environment",
        description="override: a person's reward takes the place of the environment's. mean: half of each. both: the "
        "environment's moves q first, then the person's.",
    )
    several_raters: Literal["mean", "majority"] = Field(
        "mean",
        title="Several people",
        description="mean of their rewards, or the one that most of them gave (the mean where no one has most).",
    )
    duplicates: Literal["keep", "skip", "group"] = Field(
        "keep",
        title="Near-duplicate intents",
        description="keep: every episode is a new memory. skip: not written when a memory of the same outcome and text "
        "exists. group: written under the embedding of the nearest intent (official code).",
    )
    duplicate_threshold: float = Field(
        0.95, ge=0, le=1, title="Near-duplicate from", description="Cosine from which two intents count as the same."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.k2 > self.k1:
            raise ValueError(f"k2 = {self.k2} cannot be larger than k1 = {self.k1}: the prompt is chosen from the pool")
        if self.reward_failure >= self.reward_success:
            raise ValueError("the reward of a failure must be below the reward of a success")
        return self

    @property
    def q_midpoint(self) -> float:
        """The middle of the colour scale of q: halfway between r− and r+."""
        return (self.reward_success + self.reward_failure) / 2

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Validate `values`; raise `SettingsError` with one sentence that names each wrong value."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise SettingsError(sentence_of(error, cls)) from None


def usual(name: str, default: Any, description: str = "", title: str = "") -> Any:
    """The setting `name` of every policy, within the same range, with another default and, where given, other words."""
    known = PolicySettings.model_fields[name]
    limits = {key: getattr(one, key) for one in known.metadata for key in ("ge", "le") if hasattr(one, key)}
    return Field(default, title=title or known.title, description=description or known.description, **limits)


class MemRLSettings(PolicySettings):
    """The parameters of MemRL (arXiv 2601.03192, table 8), with the choices its official code adds."""

    weight: float = Field(
        0.5, ge=0, le=1, title="λ · weight of q", description="0: similarity alone. 1: utility alone."
    )
    normaliser: Normaliser = Field(
        "pool",
        title="Normaliser",
        description="pool: both sides standardised within the pool (paper). fixed: similarity by a set mean and sd, "
        "q by the pool and cut at ±3 (official code). raw: cosine and q as they are (the code with its z-scores off).",
    )
    fixed_mean: float = Field(
        0.5,
        ge=-1,
        le=1,
        title="Similarity mean (fixed)",
        description="Used by `fixed` only. Of this bank's embedder; 0.5 is ours, the presets have the official code's.",
    )
    fixed_sd: float = Field(
        0.15,
        gt=0,
        le=2,
        title="Similarity sd (fixed)",
        description="Used by `fixed` only. 0.15 is ours, the presets have the official code's.",
    )
    epsilon: float = Field(
        0.0,
        ge=0,
        le=1,
        title="ε · exploration",
        description="Chance that the memories are drawn at random from the pool.",
    )
    exploration: Literal["epsilon", "ucb", "thompson"] = Field(
        "epsilon",
        title="Exploration",
        description="epsilon: by chance ε (official code). ucb: a bonus for memories with few visits. thompson: noise "
        "on q, the less the more visits. The last two are ours and leave ε aside.",
    )
    ucb_c: float = Field(1.0, ge=0, le=10, title="c · weight of the bonus", description="Used by `ucb` only.")
    thompson_scale: float = Field(
        0.5, gt=0, le=10, title="s · scale of the noise", description="Used by `thompson` only: its sd without visits."
    )
    q_floor: float = Field(
        OFF,
        ge=OFF,
        le=10,
        title="q floor",
        description="The update stores no lower q, and phase B counts a lower one as this (official code). −10: off.",
    )
    q_min: float = Field(
        OFF,
        ge=OFF,
        le=10,
        title="Least q",
        description="Memories with a lower q are not recalled (official code). −10: off.",
    )
    alpha: float = Field(0.3, gt=0, le=1, title="α · step size", description="How far one reward moves a q.")
    credit: Literal["prompt", "followed"] = Field(
        "prompt",
        title="Credit",
        description="Whose q a reward moves. prompt: every memory of the prompt (paper). followed: those whose action "
        "the answer took; all of the prompt where that cannot be known, as with free text.",
    )
    unfollowed: Literal["nobody", "all"] = Field(
        "nobody",
        title="Credit where none is followed",
        description="Used by `followed` only. nobody: no q moves. all: every memory of the prompt.",
    )
    q0_success: float = Field(0.0, ge=-10, le=10, title="q0 of successes", description="q of a new success.")
    q0_failure: float = Field(0.0, ge=-10, le=10, title="q0 of failures", description="q of a new failure.")

    @property
    def floor(self) -> float | None:
        """The q floor; None when it is off."""
        return self.q_floor if self.q_floor > OFF else None

    @property
    def least_q(self) -> float | None:
        """The least q of memories that are recalled; None when any will do."""
        return self.q_min if self.q_min > OFF else None


_OFFICIAL: Mapping[str, Any] = {
    "k1": 5,
    "k1_counts": "intent",
    "delta": 0.5,
    "k2": 3,
    "weight": 0.5,
    "normaliser": "fixed",
    "fixed_mean": 0.1856827586889267,
    "fixed_sd": 0.09407906234264374,
    "epsilon": 0.0,
    "exploration": "epsilon",
    "ties": "older",
    "q_floor": OFF,
    "q_min": OFF,
    "alpha": 0.3,
    "q0_success": 0.0,
    "q0_failure": 0.0,
    "reward_success": 1.0,
    "reward_failure": -1.0,
    "duplicates": "group",
    "duplicate_threshold": 0.9,
    "batch_size": 32,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "alfworld": {**_OFFICIAL, "fixed_mean": 0.5187, "fixed_sd": 0.1203},
    "hle": {**_OFFICIAL, "q0_success": 1.0},
    "bigcodebench": {**_OFFICIAL, "fixed_mean": 0.31, "fixed_sd": 0.1, "k2": 5, "epsilon": 0.1, "q_min": -0.8,
                     "batch_size": 25},
    "lifelong": {
        **_OFFICIAL, "k1": 10, "k2": 5, "epsilon": 0.01, "q_min": -0.8, "q_floor": 0.0, "q0_success": 0.5,
        "q0_failure": 0.5, "reward_failure": 0.0, "duplicate_threshold": 0.99, "batch_size": 5,
    },
}  # fmt: skip
"""The official code's four configurations as settings of `memrl`, by name: what its runs go by at commit 7c3beba.

δ is 0.5 in all four: their `tau` is read only where `sim_threshold` is missing, and it has a default. The mean 0.39 and
sd 0.14 of the LifelongAgentBench configuration are never handed on by its runner, so that the service's own hold, which
are HLE's. HLE's runner sets the first q itself. Means and sd are of cosines of text-embedding-3-large.
"""


def symbol(setting: str, of: type[PolicySettings] = MemRLSettings) -> str:
    """How a setting is written in formulas, such as λ."""
    field = of.model_fields.get(setting)
    return ((field and field.title) or setting).partition(" · ")[0]


def allowed(field: FieldInfo) -> str:
    """What a setting may be: its choices, or its range."""
    if get_origin(field.annotation) is Literal:
        return " | ".join(map(str, get_args(field.annotation)))
    if field.annotation is bool:
        return "true | false"
    signs = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
    found = ((sign, getattr(limit, name, None)) for limit in field.metadata for name, sign in signs)
    limits = [f"{sign} {value}" for sign, value in found if value is not None]
    return ", ".join(limits) or "anything"


def sentence_of(error: ValidationError, of: type[BaseModel] | None = None) -> str:
    """What is wrong with which value of `of`, for a person: under its name, and its title as it stands in a form."""
    parts = []
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden" and of is not None:
            parts.append(f"There is no setting “{where[:80]}”; allowed: {', '.join(of.model_fields)}")
            continue
        what = problem["msg"].removeprefix("Value error, ")
        given = "" if not where else f" (given: {_short(problem['input'])})"
        field = of.model_fields.get(where) if of is not None else None
        called = f", “{field.title}”" if field is not None and field.title else ""
        parts.append(f"{where[:80]}{called}: {what}{given}" if where else what)
    further = len(parts) - NAMED
    return "Settings were not changed. " + "; ".join(parts[:NAMED]) + (f"; and {further} more." if further > 0 else ".")


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def home() -> Path:
    """The folder of this person's banks, task files and preferences: `MEMRL_HOME`, or `.memrl` in the home folder."""
    person = os.path.expanduser("~")  # Stays as it is for a user whom the system does not know.
    return Path(os.path.expanduser(os.environ.get("MEMRL_HOME") or Path("/" if person == "~" else person, ".memrl")))
