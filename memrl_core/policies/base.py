"""What the agent needs of a memory method: one interface for all of them, with the plainest behaviour as default."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from memrl_core.policies.ranking import TermColumn, ranked, similarities
from memrl_core.prompting import first_messages
from memrl_core.records import (
    Decision,
    Follows,
    Memory,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    Reason,
    Recalled,
    RecallRecord,
    StepTrace,
    Utility,
    ValueChange,
)
from memrl_core.retrieval import NEAR_MISSES, exact_similarity, recall
from memrl_core.retrieval.exploration import Ties
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import PolicySettings, usual

Vector = npt.NDArray[np.float32]
FLOAT32_SLACK = 1e-6
"""By how much the cosine of a float32 unit vector with itself may miss 1."""
Form = TypeVar("Form", bound=BaseModel)
S = TypeVar("S", bound=PolicySettings)
Known = TypeVar("Known")


# --- what a method is, in words and declarations ----------------------------------------------------------------------

Variant = Literal["paper", "code", "adapted"]
Feedback = Literal["episode reward", "step reward", "citation", "human"]
Learns = Literal["nothing", "q", "success rate", "actions", "kernel", "network", "matrices", "text", "counts"]
Need = Literal["episode reward", "step reward", "next state", "citations", "model on write", "model on read"]

BADGES: Mapping[Variant, str] = {
    "paper": "Every rule is the paper's.",
    "code": "Every rule is the paper's or its released code's, and where they differ at least one is the code's.",
    "adapted": "At least one rule is ours or a part of the method is missing: no figure of its paper can be expected.",
}
"""When a method is called *paper*, *official code* (`code`) or *adapted*, under the settings in force."""
RULES = (
    "Rules are: when memory is asked, what one record holds, which memories are recalled and selected and by which "
    "key, what a reward moves, and what is written, linked and forgotten. Not rules, but named as deviations: the "
    "wording of prompts, the embedder, values of settings, what the source leaves open, and what replaces a "
    "language model."
)
"""What `BADGES` go by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """One method as it is offered here.

    `variant` says whose rules these are, by `BADGES`; `variants` names all that its settings can give it, and is empty
    where they change nothing of it. `deviations` says in plain words where the rules differ from the source, and is
    never empty for "adapted". The texts from `idea` to `cannot` are the method's card, a sentence or two each. `needs`
    is what it must be given, `feedback` what it learns from, `learns` where that is kept: only where it is "q" or
    "success rate" are memories credited with rewards, so that their q and visits move. `carries_over` says what it can
    use of a memory that another policy wrote.
    """

    name: str
    title: str
    citation: str
    variant: Variant
    deviations: tuple[str, ...]
    idea: str
    record: str = "One memory an episode: intent with its embedding, experience."
    when: str = "At the beginning of the task."
    recall: str
    select: str
    update: str = "Nothing: rewards change no value."
    write: str = "One new memory an episode."
    forget: str = "Nothing."
    cannot: str
    carries_over: str
    learns: Learns
    feedback: tuple[Feedback, ...] = ("episode reward", "human")
    needs: tuple[Need, ...] = ()
    variants: tuple[Variant, ...] = ()

    @property
    def keeps_q(self) -> bool:
        """Whether a memory's q is moved by rewards."""
        return self.learns in ("q", "success rate")


# --- what the agent needs of it ---------------------------------------------------------------------------------------


class UngatedSettings(PolicySettings):
    """Settings of methods without a similarity gate: δ is open unless it is set."""

    delta: float = usual("delta", -1.0, "Memories less similar than this are not recalled. The method has no gate: −1.")


@dataclass(frozen=True, slots=True)
class Question(Generic[Form]):
    """Something that a policy asks the model for its own ends.

    The model gets `request` as the system message, `message` as the user's, and fills in `form`. `template` is how the
    policy itself fills it in where no language model is there.
    """

    purpose: str
    form: type[Form]
    request: str
    message: str
    template: Form


class Ask(Protocol):
    """Asks the model; None when its reply did not fit the form, which counts as no answer. Raises `ModelError`."""

    def __call__(self, question: Question[Form]) -> Form | None:
        """The form as filled in."""
        ...


def answer_to(question: Question[Any], ask: Ask) -> dict[str, Any]:
    """What `consult` gives of one question: the form as it was filled in, by the purpose; None where it did not fit."""
    form = ask(question)
    return {question.purpose: None if form is None else form.model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class When:
    """Whether memory is asked before a turn, and why."""

    now: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class NewExperience:
    """What WRITE may store: the episode's intent with the embedding (d,) of the policy's key, the text, how it ended.

    `memory_id` is the id for one new memory; `fresh_id()` gives one more each time. `parents` are the memories that
    were in the prompt, `trace` the step so far, `embed` makes unit vectors (n, d) of texts.
    """

    memory_id: str
    intent: str
    embedding: Vector
    experience: str
    outcome: Outcome
    parents: tuple[str, ...]
    trace: StepTrace
    fresh_id: Callable[[], str]
    embed: Callable[[Sequence[str]], npt.NDArray[np.float32]]

    @property
    def verdict(self) -> str:
        """The environment's sentence on the episode; "" without one."""
        return self.trace.reward.verdict if self.trace.reward is not None else ""


@dataclass(frozen=True, slots=True)
class Written:
    """An operation, and the embedding (d,) under which its memory is stored (None where it writes none)."""

    operation: MemoryOperation
    embedding: Vector | None = None

    def but(self, **changes: Any) -> Written:
        """The same with other fields of the operation."""
        return replace(self, operation=replace(self.operation, **changes))


@dataclass(frozen=True, slots=True)
class Lesson:
    """A finished step as a policy learns from it: what happened, and the reward that stands for it now.

    In UPDATE the step's `trace` has no `write` yet. `embedding_of` gives a memory's unit vector (d,), `memory_of` its
    text. The step may have been made by another policy: then its decision and what it wrote follow that one's rules.
    """

    trace: StepTrace
    reward: float | None
    outcome: Outcome
    embedding_of: Callable[[str], Vector]
    memory_of: Callable[[str], Memory]


class Policy(Generic[S]):
    """The rules of one method under given settings; what a method does not say otherwise, it does as plain RAG does.

    Every hook is free of side effects, except that `learn` and `remember` change the `state` that they are given.
    """

    spec: PolicySpec
    Settings: ClassVar[type[PolicySettings]] = PolicySettings
    wants_summary: ClassVar[bool] = True
    """Whether the model shall sum the episode up before `write`; False for methods that ask for words of their own."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings that belong together, by name, such as those of a published configuration."""
    strict: bool = True
    """Whether phase A wants similarity > δ (paper), or ≥ δ (official code)."""
    ignored: ClassVar[tuple[str, ...]] = ()
    """Settings of all policies that this one does not go by: no form offers them."""

    def __init__(self, settings: S) -> None:
        self.settings: S = settings

    # --- before the answer --------------------------------------------------------------------------------------------

    def when(self, asked: Asked) -> When:
        """Whether to recall before this turn. Turn 0 is the beginning of the task."""
        return When(asked.turn == 0, "at the beginning of the task" if asked.turn == 0 else "")

    def key(self, asked: Asked) -> str:
        """The text whose embedding is compared with the memories'."""
        return asked.intent

    def embedded_text(self, operation: MemoryOperation, trace: StepTrace) -> str:
        """The text whose embedding is that of the memory which this operation of the step wrote."""
        return operation.intent

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """Phase A: the pool for `query` (d,); `coarse` as in `retrieval.recall`."""
        settings = self.settings
        return recall(
            query,
            view,
            k1=settings.k1,
            k1_counts=settings.k1_counts,
            delta=settings.delta,
            strict=self.strict,
            coarse=coarse,
            exclude_task=self.excluded_task(view),
            ties=settings.ties,
            seed=seed_of(view),
        )

    def wide_recall(
        self,
        query: Vector,
        view: MemoryView,
        best_first: Callable[[Sequence[Recalled]], Sequence[int]],
        *,
        inside: npt.NDArray[np.bool_] | None = None,
        delta: float = -1.0,
        strict: bool = False,
        coarse: Vector | None = None,
    ) -> RecallRecord:
        """Phase A for methods that look at every memory: the first k1 by `best_first` of those `inside` (n,), past δ.

        `best_first` gives the positions of measured memories in the order in which they are wanted. Ranks of the recall
        count by similarity to `query` (d,); `left_out` holds the next in that order, and the nearest before the gate.
        """
        inside = np.ones(len(view.ids), dtype=np.bool_) if inside is None else inside
        seen = inside if view.visible is None else inside & view.visible
        everything = recall(
            query,
            replace(view, visible=seen),
            k1=max(1, int(seen.sum())),
            k1_counts="record",
            delta=delta,
            strict=strict,
            coarse=coarse,
            exclude_task=self.excluded_task(view),
            ties=self.settings.ties,
            seed=seed_of(view),
        )
        k1 = self.settings.k1
        order, pool = list(best_first(everything.pool)), everything.pool
        missed = [replace(pool[index], reason=Reason.BEYOND_K1) for index in sorted(order[k1 : k1 + NEAR_MISSES])]
        return replace(
            everything,
            k1=k1,
            memories=view.size,
            pool=tuple(pool[index] for index in sorted(order[:k1])),
            left_out=(*missed, *everything.left_out),
        )

    def excluded_task(self, view: MemoryView) -> str:
        """The task whose own memories are left out: the one that is asked, if the settings say so."""
        return view.asked.task if self.settings.exclude_same_task and view.asked is not None else ""

    def consult(self, recalled: RecallRecord, view: MemoryView, ask: Ask) -> Mapping[str, Any]:
        """What the policy wants the model to say before it selects, by purpose; put into `view.asked.answers`."""
        return {}

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Phase B: which of the pool are put before the model, and why; `seed` decides every random draw.

        Here the k2 most similar.
        """
        return self.by_similarity(recalled, view, seed)

    def by_similarity(self, recalled: RecallRecord, view: MemoryView, seed: int, **others: Any) -> Decision:
        """The k2 most similar of the pool: `ranked` with its `others`."""
        return self.ranked(recalled, view, [TermColumn("similarity", similarities(recalled))], seed, **others)

    def ranked(
        self, recalled: RecallRecord, view: MemoryView, terms: Sequence[TermColumn], seed: int, **others: Any
    ) -> Decision:
        """The best k2 of the pool by the sum of `terms`: `ranking.ranked` with its `others`, under the settings."""
        return ranked(
            recalled, view, terms, seed=seed, **{"k2": self.settings.k2, "ties": self.settings.ties, **others}
        )

    def render(
        self, selected: Sequence[Memory], instructions: str, intent: str, observation: str, view: MemoryView
    ) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
        """The first messages of the episode, and where in them each memory stands."""
        return first_messages(instructions, selected, intent, observation)

    def render_turn(self, selected: Sequence[Memory], view: MemoryView) -> str:
        """What is put under the observation before a later turn, by the conventions of `memrl_core.prompting`."""
        return ""

    # --- after the answer ---------------------------------------------------------------------------------------------

    def reward_of(self, verdict: float) -> float:
        """The environment's verdict in [0, 1] on the policy's scale of rewards: r− at 0, r+ at 1, linear between."""
        low, high = self.settings.reward_failure, self.settings.reward_success
        return low + verdict * (high - low)

    def outcome_of(self, reward: float | None) -> Outcome:
        """Success above the middle of r− and r+, failure below it; unrated without a reward."""
        if reward is None or reward == self.settings.q_midpoint:
            return "unrated"
        return "success" if reward > self.settings.q_midpoint else "failure"

    def review(self, trace: StepTrace, memories: Sequence[Memory], ask: Ask) -> None:
        """What the policy wants the model to say of the answer, with `memories` in the prompt; kept in the trace."""

    def credited(self, decision: Decision, follows: Follows | None = None) -> tuple[str, ...]:
        """The memories whose q a reward moves: those of the prompt; none, where the method keeps no q.

        `follows` says which of them the answer follows; None where that is not known.
        """
        return decision.selected if self.spec.keeps_q else ()

    @staticmethod
    def rule(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
        """q after a reward, by the settings of the step: what the fold of a run's ledger goes by."""
        return believed.q

    def step_size(self, believed: Utility) -> float:
        """The share of the way to the reward that q goes next, by `rule`."""
        return type(self).rule(believed, believed.q + 1, self.settings.model_dump()) - believed.q

    def update(self, credited: Sequence[str], reward: float, values: Mapping[str, Utility]) -> tuple[ValueChange, ...]:
        """How `reward` moves the q of the memories credited with it."""
        changes = []
        for memory_id in credited:
            before = values[memory_id]
            after = type(self).rule(before, reward, self.settings.model_dump())
            changes.append(ValueChange(memory_id, before.q, after, before.visits + 1, reward, self.step_size(before)))
        return tuple(changes)

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """What becomes of the episode in the memory: one new memory, unless `duplicates` says otherwise."""
        return (one_memory(new, view, self.settings),)

    def forget(self, view: MemoryView) -> tuple[MemoryOperation, ...]:
        """DELETE operations for what the run shall see no longer; pinned memories are kept whatever this says."""
        return ()

    # --- what is learned beyond q -------------------------------------------------------------------------------------

    def start(self, memories: Sequence[Memory]) -> Any:
        """What is known before the first step by a run that begins with `memories`; None for methods without state."""
        return None

    def learn(self, state: Any, lesson: Lesson) -> tuple[ValueChange, ...]:
        """Change `state` by a step's feedback, and report every value that moved."""
        return ()

    def remember(self, state: Any, lesson: Lesson) -> None:
        """Take note in `state` of what a finished step wrote."""

    def values(self, state: Any) -> Mapping[str, float]:
        """Every learned value of `state` by a name that `learn` reports as "memory_id", "memory_id:name" or "name"."""
        return {}


def learned_in(view: MemoryView, kind: type[Known]) -> Known:
    """What a policy has learned of this `kind`, as a view has it; empty where another policy's state is there."""
    return view.learned if isinstance(view.learned, kind) else kind()


def changed_value(change: ValueChange) -> str:
    """The name under which `Policy.values` knows what a change has moved."""
    if change.target == "parameters":
        return change.name
    return change.memory_id if change.target == "memory" else f"{change.memory_id}:{change.name}"


def seed_of(known: MemoryView | StepTrace) -> int:
    """The step's seed, as a view is asked with it or a trace holds it; 0 where neither is known."""
    if isinstance(known, StepTrace):
        return known.decision.seed if known.decision is not None else 0
    return known.asked.seed if known.asked is not None else 0


def nearest(vector: Vector, view: MemoryView, count: int, ties: Ties, seed: int) -> tuple[Recalled, ...]:
    """The memories most similar to `vector` (d,), nearest first, behind no gate; `ties` as in `recall`."""
    near = recall(vector, view, k1=count, k1_counts="record", delta=-1.0, strict=False, ties=ties, seed=seed)
    return near.pool


def intent_key(intent: str) -> str:
    """Equal for equal intents; what k1 counts when it counts intents."""
    return hashlib.sha256(intent.strip().lower().encode()).hexdigest()[:16]


def one_memory(new: NewExperience, view: MemoryView, settings: PolicySettings, q0: float = 0.0) -> Written:
    """The episode as one memory (official code of MemRL, `add_memories`, for what `duplicates` offers)."""
    embedding, key, duplicate_of = new.embedding, intent_key(new.intent), None
    alike = () if settings.duplicates == "keep" else _same_intent(new, view, settings.duplicate_threshold)
    if settings.duplicates == "skip":
        words = new.experience.split()
        stored = (view.memories[view.ids[position]] for position in alike)
        duplicate_of = next((m.id for m in stored if m.outcome == new.outcome and m.experience.split() == words), None)
    elif len(alike):
        embedding, key = view.embeddings[alike[0]].copy(), view.memories[view.ids[alike[0]]].intent_key
    operation = MemoryOperation(
        op="ADD" if duplicate_of is None else "NOOP",
        memory_id=new.memory_id if duplicate_of is None else "",
        intent=new.intent,
        experience=new.experience,
        outcome=new.outcome,
        intent_key=key,
        q0=q0,
        parents=new.parents,
        duplicate_of=duplicate_of,
    )
    return Written(operation, None if duplicate_of else embedding)


def added(
    new: NewExperience, memory_id: str, experience: str, embedding: Vector | None = None, **changes: Any
) -> Written:
    """A memory of the episode with another text (and, with `embedding` (d,), under another key) than the usual one.

    `changes` are other fields of the operation, such as `data`, `op`, `replaces` or `why`.
    """
    operation = MemoryOperation(
        op="ADD",
        memory_id=memory_id,
        intent=new.intent,
        experience=experience,
        outcome=new.outcome,
        intent_key=intent_key(new.intent),
        q0=0.0,
        parents=new.parents,
    )
    return Written(replace(operation, **changes), new.embedding if embedding is None else embedding)


def nothing(new: NewExperience, why: str, same_as: str | None = None) -> Written:
    """A NOOP: nothing becomes of the episode, perhaps because the memory `same_as` says it already."""
    return Written(added(new, "", new.experience, op="NOOP", why=why, duplicate_of=same_as).operation)


def deleted(memory_ids: Sequence[str], why: str) -> MemoryOperation:
    """An operation after which the run no longer sees these memories."""
    return MemoryOperation("DELETE", "", "", "", "unrated", "", 0.0, (), replaces=tuple(memory_ids), why=why)


def _same_intent(new: NewExperience, view: MemoryView, threshold: float) -> Sequence[int]:
    """The positions of the memories near enough to count as the same intent, nearest first, older first in ties."""
    similarity = view.embeddings @ new.embedding
    near = similarity >= threshold - FLOAT32_SLACK
    alike = np.flatnonzero(near if view.visible is None else near & view.visible)
    exact = exact_similarity(view.embeddings[alike], new.embedding)
    positions: list[int] = alike[(-exact).argsort(kind="stable")].tolist()
    return positions


def outcome_judged(policy: Policy[Any], reward: float | None, solved: bool | None) -> Outcome:
    """What the world's own reward means: as the world says where it does (half a solution is none), else by it."""
    if reward is None or solved is None:
        return policy.outcome_of(reward)
    return "success" if solved else "failure"


def outcome_now(policy: Policy[Any], trace: StepTrace, reward: float | None) -> Outcome:
    """What a finished step came to: as it was judged while its reward stands, else by `reward`, as it is now."""
    judged = trace.reward
    return judged.outcome if judged is not None and judged.reward == reward else policy.outcome_of(reward)
