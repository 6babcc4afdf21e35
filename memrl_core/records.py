"""The facts of a step and of a bank, as frozen records.

A record says everything and does nothing. Screens, figures, exports and tests read these and nothing else.
Times are ISO 8601 strings in UTC; durations are seconds; steps count from 1 within a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self

Outcome = Literal["success", "failure", "unrated"]
Role = Literal["system", "user", "assistant", "tool"]
RewardSource = Literal["environment", "person"]
SignalKind = Literal["cosine", "dot", "distance", "rank", "bm25", "other"]
"""What a score of another agent is. Of a distance and a rank less is better, of the others more."""
UNKNOWN = "unknown"
"""The name of a model, an embedder or an environment that another program did not name."""


class Phase(StrEnum):
    """The phases of one step, in the order in which they run."""

    EMBED = "EMBED"
    RECALL = "RECALL"
    SELECT = "SELECT"
    GENERATE = "GENERATE"
    REWARD = "REWARD"
    UPDATE = "UPDATE"
    WRITE = "WRITE"


class Reason(StrEnum):
    """Why a memory was, or was not, put before the model (the list is closed)."""

    TOP_K2 = "top_k2"
    RANDOM_EXPLORE = "random_explore"
    BELOW_DELTA = "below_delta"
    BEYOND_K1 = "beyond_k1"
    BEYOND_K2 = "beyond_k2"
    NOT_DRAWN = "not_drawn"
    Q_BELOW_MINIMUM = "q_below_minimum"
    SAME_TASK = "same_task"
    OTHER_TASK = "other_task"
    NOT_RECENT = "not_recent"
    OVER_BUDGET = "over_budget"
    COLD_START = "cold_start"
    NOISE = "noise"
    KEPT_SILENT = "kept_silent"
    PRUNED_BY_MODEL = "pruned_by_model"


MISSED = (
    Reason.BELOW_DELTA,
    Reason.BEYOND_K1,
    Reason.Q_BELOW_MINIMUM,
    Reason.SAME_TASK,
    Reason.OTHER_TASK,
    Reason.NOT_RECENT,
)
"""The reasons of memories that never reached the pool."""


SCOPE = "scope"
"""Under which name the data of a task say in words which memories could be recalled, such as "only user 7's"."""


@dataclass(frozen=True, slots=True)
class Task:
    """What an environment asks for. `data` is JSON that only the environment reads."""

    id: str
    intent: str
    environment: str
    family: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memory:
    """One stored (intent, experience); its embedding lives beside it in the bank's matrix.

    `intent_key` is equal for memories that count as one intent when k1 counts intents.
    `parents` are the ids of the memories that were in the prompt when this one was written.
    """

    id: str
    intent: str
    experience: str
    outcome: Outcome
    intent_key: str
    parents: tuple[str, ...]
    run: str
    step: int
    task: str
    created: str


# --- phases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmbedRecord:
    """EMBED: the intent as a unit vector. `embedding` has `dimension` float32 values.

    `decided_by` names the embedder whose similarities the step recorded, where its vector was made anew since. `cut`
    means that the text was longer than the embedder takes, and the vector is that of its beginning.
    """

    embedder: str
    dimension: int
    embedding: tuple[float, ...]
    decided_by: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Recalled:
    """One memory that phase A measured. `reason` is None for members of the pool; ranks count from 1.

    `signal` is the score by which another agent recalled it, where that is no cosine, and `signal_name` its name.
    """

    memory_id: str
    similarity: float
    rank_recall: int
    reason: Reason | None
    signal: float | None = None
    signal_name: str = ""


@dataclass(frozen=True, slots=True)
class RecallRecord:
    """RECALL (phase A): the pool, and the nearest memories that missed it with the reason.

    `strict` says whether the gate is similarity > delta (paper) or >= delta (official code).
    `memories` is how many memories the run could see. `rule` is how the policy recalls ("own score": another agent, by
    scores that are no cosines), `why` its reason for recalling nothing or otherwise than by similarity. `signal` is the
    name of another agent's scores, such as "bm25".
    """

    k1: int
    k1_counts: Literal["record", "intent"]
    delta: float
    strict: bool
    memories: int
    pool: tuple[Recalled, ...]
    left_out: tuple[Recalled, ...]
    rule: Literal["similarity", "recency", "same task", "everything", "random", "nothing", "own score"] = "similarity"
    why: str = ""
    signal: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory that another agent's retrieval found.

    `score` is as the agent gave it, None where it gave none. `cosine` is measured by the stored vectors, None where one
    of the two is not stored. `known` is False for a memory that the run did not know when the agent named it; `text`
    is then what the agent said that it holds, where it did.
    """

    memory_id: str
    score: float | None = None
    cosine: float | None = None
    known: bool = True
    text: str = ""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One query of another agent with its hits, the agent's best first.

    `kind` says what its scores are and `signal` is their name. `asked_by` is who asked (a turn, a tool, a sub-agent),
    `scope` what the query was restricted to, such as "only user 7's". `query` is "" where it is the step's intent.
    """

    hits: tuple[Hit, ...]
    kind: SignalKind = "cosine"
    signal: str = ""
    query: str = ""
    asked_by: str = ""
    scope: str = ""
    at: str = ""
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The name of its scores."""
        return self.signal or ("score" if self.kind == "other" else self.kind)


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of a score: contribution = weight * normalised.

    `raw` is what was measured; where nothing is standardised, `normalised` is the same number.
    """

    name: str
    raw: float
    normalised: float
    weight: float
    contribution: float
    clipped: bool = False


@dataclass(frozen=True, slots=True)
class NormaliserLine:
    """How one term was standardised: (raw - mean) / sd, cut at ±clip; `flat` when sd counted as zero.

    `source` says whose mean and sd these are; with "none" the term was weighed as it is.
    """

    term: str
    mean: float
    sd: float
    source: Literal["pool", "configured", "none"]
    clip: float | None
    flat: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """One memory considered in one step, with every number that decided its fate.

    `terms` add up to `score`. A memory that never reached phase B has no terms, no score and no `rank_select`.
    """

    memory_id: str
    similarity: float
    q: float
    visits: int
    terms: tuple[Term, ...]
    score: float | None
    rank_recall: int
    rank_select: int | None
    selected: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """SELECT (phase B): all candidates in score order, then those that missed the pool in similarity order.

    `selected` is the order in which the memories are put before the model. `draw` is the uniform number compared with
    `epsilon` (None when no number was drawn). `greedy` is what would have been selected without exploration.
    `propensity` is the probability with which this policy selects this set, given the pool, and 0 where it is not
    known; `log_propensity` the logarithm of that of this order, where the order was drawn. `mode` says how it came
    about: greedy, explored, nothing in the pool (fallback), too little learned yet (cold), drawn by its scores
    (sampled), or kept back on purpose (silent). `note` says so in words.
    """

    k2: int
    weight: float
    normaliser: str
    normaliser_lines: tuple[NormaliserLine, ...]
    candidates: tuple[Candidate, ...]
    selected: tuple[str, ...]
    greedy: tuple[str, ...]
    mode: Literal["greedy", "explore", "fallback", "cold", "sampled", "silent"]
    epsilon: float
    draw: float | None
    seed: int
    propensity: float
    log_propensity: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message, in the form Ollama takes it."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class MemorySpan:
    """Where a memory stands in the prompt: messages[message].content[start:end]."""

    memory_id: str
    message: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. `stopped` is True when a person cancelled; the text is then what had been received.

    `cut` is the limit that ended it, such as "32 tokens"; "" when the model came to its own end. `replaced` is how many
    broken characters (half surrogates) U+FFFD stands for. Token counts are None when the model does not report them.

    Where the environment offers a closed list, `text` is the line that the answer was read as, `raw` what the model
    wrote where that differs, `bound` whether a schema held the model to the list, and `offered` whether the answer is
    on it; None where nothing is offered.

    `thinking` is what the model wrote down before its answer, which is no part of it; `options` those that it was
    asked with instead of the record's, because an attempt before it failed; `notes` what else is to be known of how the
    answer came about. `window` is how many tokens prompt and answer may have together, where that is known. `host` is
    the address that answered, where there were several. `cost` is what it cost, in the money of who reported it.
    `cached_tokens` of the prompt were known to the server from an
    earlier one and not read again, where it says so.
    """

    text: str
    stopped: bool = False
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    seconds: float = 0.0
    cut: str = ""
    replaced: int = 0
    raw: str = ""
    bound: bool = False
    offered: bool | None = None
    thinking: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    window: int | None = None
    host: str = ""
    cached_tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that an agent used: its name, the arguments and the result as text."""

    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class TurnRecall:
    """What memory added before a later turn of an episode: both phases, and the text put under the observation."""

    why: str
    recall: RecallRecord
    decision: Decision
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange of GENERATE: the model's reply, and what the environment said to it.

    `recalled` is what memory added before the reply, in policies that recall within an episode. `left_out` are the
    memories of the first messages that were not sent with this turn, because the prompt did not fit. `tools` are those
    that another agent used in this turn.
    """

    reply: Reply
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    recalled: TurnRecall | None = None
    left_out: tuple[str, ...] = ()
    tools: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateRecord:
    """GENERATE: exactly what was sent and what came back.

    Turn n (from 0) was sent `messages` followed by, for every earlier turn, its reply as an assistant message and its
    observation as a user message, which ends with the text of what was recalled before the turn that follows; without
    the memories that it left out. What already the first turn left out is in neither `messages` nor `spans`.
    """

    model: str
    simulated: bool
    options: Mapping[str, Any]
    messages: tuple[Message, ...]
    spans: tuple[MemorySpan, ...]
    turns: tuple[Turn, ...]

    @property
    def answered(self) -> bool:
        """Whether the model said anything in some turn, or was stopped in it."""
        return any(turn.reply.text.strip() or turn.reply.stopped for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How an environment came to its verdict, for people: what was expected, what came, and why that did or did not do.

    It may hold the right answer, so no model, method or memory ever gets it.
    """

    expected: str
    came: str
    why: str


@dataclass(frozen=True, slots=True)
class RewardRecord:
    """REWARD: the reward of the step as it stood when the step ended; `reward` is None when nobody gave one.

    `verdict` is the environment's sentence, and `judgement` how it came to it, where it says so. `credited` are the
    memories that the reward goes to. `environment` is the environment's own reward, which a person's may have
    displaced; None when it gave none, and in older steps.
    """

    reward: float | None
    source: RewardSource | None
    outcome: Outcome
    verdict: str
    rater: str
    reason: str
    credited: tuple[str, ...]
    environment: float | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class Follows:
    """The memories of the prompt whose action the answer took, in the order of the prompt.

    `at_hand` says whether the right answer stood among the actions that the memories of the prompt show, and `taken`
    whether the model then gave it; None where the environment does not say what was right.
    """

    memories: tuple[str, ...]
    at_hand: bool | None = None
    taken: bool | None = None


@dataclass(frozen=True, slots=True)
class Consulted:
    """One question that a policy asked the model for its own ends, as a form to fill in (JSON by a schema).

    `filled` is the form; None when the reply did not fit it, which counts as no answer. `simulated` says that no model
    was asked and the policy's own template filled it. `cut` is the limit that ended the reply, "" when none did;
    `notes` what else is to be known of it.
    """

    purpose: str
    phase: Phase
    messages: tuple[Message, ...]
    reply: str
    filled: Mapping[str, Any] | None
    simulated: bool
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    seconds: float = 0.0
    cut: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One learned value that moved from `before` to `after`.

    With `target` "memory" the value is a memory's: its q, unless `name` says otherwise, moved by `alpha` towards
    `reward`. With "action" it belongs to an action within a memory, with "parameters" to the policy as a whole; `name`
    names it. `formula` is the update with its numbers, where it is not after = before + alpha * (reward - before).
    """

    memory_id: str
    before: float
    after: float
    visits: int
    reward: float
    alpha: float
    target: Literal["memory", "action", "parameters"] = "memory"
    name: str = "q"
    formula: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """UPDATE: the values that moved, those of memories in the order of the prompt."""

    changes: tuple[ValueChange, ...]

    @property
    def of_q(self) -> tuple[ValueChange, ...]:
        """The moves of q among them."""
        return tuple(change for change in self.changes if change.target == "memory" and change.name == "q")


@dataclass(frozen=True, slots=True)
class MemoryOperation:
    """One thing that WRITE did to the memory.

    ADD writes `memory_id`. UPDATE and MERGE write it in the place of `replaces`; DELETE lets the run see `replaces` no
    longer. NOOP names in `duplicate_of` the memory that made it unnecessary. `data` is what the policy keeps with the
    memory beside its text, as JSON; `why` its reason.
    """

    op: Literal["ADD", "UPDATE", "MERGE", "DELETE", "NOOP"]
    memory_id: str
    intent: str
    experience: str
    outcome: Outcome
    intent_key: str
    q0: float
    parents: tuple[str, ...]
    duplicate_of: str | None = None
    replaces: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """WRITE: the memory operations of the step."""

    operations: tuple[MemoryOperation, ...]


@dataclass(frozen=True, slots=True)
class StepTrace:
    """The immutable record of a step. Phases that have not run yet (or never will) are None.

    `id` is unique to this attempt; `step` counts from 1 within the run. `settings` are those in force. `seconds` maps a
    phase's name to its duration. `consulted` is what the policy asked the model. `origin` says whose step it is: this
    program's agent, another agent that reported it, or a file. `lacks` names in plain words what another agent or a
    file left out. `retrievals` are the queries of another agent, as it reported them; ours has the one of `recall`.
    `follows` is None where it cannot be known which memories the answer follows, and in older steps.
    """

    id: str
    run: str
    step: int
    epoch: int
    task: Task
    policy: str
    settings: Mapping[str, Any]
    started: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    embed: EmbedRecord | None = None
    recall: RecallRecord | None = None
    decision: Decision | None = None
    generate: GenerateRecord | None = None
    reward: RewardRecord | None = None
    update: UpdateRecord | None = None
    write: WriteRecord | None = None
    consulted: tuple[Consulted, ...] = ()
    origin: Literal["agent", "recorder", "import"] = "agent"
    lacks: tuple[str, ...] = ()
    follows: Follows | None = None
    retrievals: tuple[Retrieval, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of GENERATE; none before it has run."""
        return () if self.generate is None else self.generate.turns

    @property
    def skipped(self) -> bool:
        """Whether our own agent ended the step before the model's last turn, because a text of it has no vector."""
        last = self.turns[-1] if self.turns else None
        whole = last is not None and (last.terminated or last.truncated or last.reply.stopped)
        return self.origin == "agent" and self.reward is not None and not whole

    @property
    def ending(self) -> str:
        """How the step ended: "skipped", "no answer", or its outcome; "" before it has ended."""
        if self.reward is None:
            return ""
        if self.skipped:
            return "skipped"
        rated = self.generate is None or self.generate.answered or self.reward.outcome != "unrated"
        return self.reward.outcome if rated else "no answer"

    @property
    def operations(self) -> tuple[MemoryOperation, ...]:
        """The operations of WRITE; none before it has run."""
        return () if self.write is None else self.write.operations


# --- ledger -----------------------------------------------------------------------------------------------------------


class EventKind(StrEnum):
    """What an event of the ledger says."""

    RUN_STARTED = "run_started"
    SETTINGS_CHANGED = "settings_changed"
    MEMORY_WRITTEN = "memory_written"
    MEMORY_IMPORTED = "memory_imported"
    MEMORY_FORGOTTEN = "memory_forgotten"
    MEMORY_RESTORED = "memory_restored"
    MEMORY_EDITED = "memory_edited"
    MEMORY_MERGED = "memory_merged"
    MEMORY_PINNED = "memory_pinned"
    MEMORY_UNPINNED = "memory_unpinned"
    ENVIRONMENT_CHANGED = "environment_changed"
    REWARD_GIVEN = "reward_given"
    REWARD_REVOKED = "reward_revoked"
    CREDIT_ASSIGNED = "credit_assigned"
    CREDIT_REVOKED = "credit_revoked"
    NOTE_PINNED = "note_pinned"
    NOTE_REMOVED = "note_removed"
    MEMORY_JUDGED = "memory_judged"
    QUERY_JUDGED = "query_judged"
    USE_JUDGED = "use_judged"
    BATCH_MADE = "batch_made"
    BATCH_CLOSED = "batch_closed"
    SCALES_CHANGED = "scales_changed"
    ROLE_ASSIGNED = "role_assigned"


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One fact that moved, or may move, a q.

    `seq` is a Lamport clock (one more than the highest this writer had seen), so that any reader sorts events alike.
    `step` is the step the event is about; `known_at` the newest step that had begun in the run when it was appended,
    which is what "as of step t" goes by. `step_id` names the attempt: events of an attempt whose trace was never
    appended do not count. `value` is the reward, the q0 of a written memory, or the q an imported one came with (its
    visits are in the payload). A credit's payload maps each memory to its own reward, or to null for no credit, under
    "rewards"; a note's text is its `reason`. `revokes` names the event that no longer counts.

    A reward's payload may say on which scale a person gave it. An edited or merged memory is a new one
    (`memory_ids[0]`) in the place of those that the payload lists under "replaces"; restoring these takes away those
    under "takes_away". What a person takes back or does again names the event under "undoes" or "redoes". The value
    of a label is the grade of the memory, or whether anything should come for a query; without one it is withdrawn. Its
    payload says under "from" where it comes from. Roles belong to the bank, not to a run: their `run` is "".
    """

    id: str
    seq: int
    run: str
    step: int
    step_id: str
    known_at: int
    kind: EventKind
    memory_ids: tuple[str, ...] = ()
    value: float | None = None
    source: RewardSource | None = None
    rater: str = ""
    reason: str = ""
    revokes: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A seeded sequence of steps under one policy. A run with a `base` starts from what that run knew at `base_step`.

    `tasks` names the list of tasks ("" when each step begins with what a person types), of which the run takes the
    first `task_count`; `environment_options` are what the environment is made with, as last
    changed, `model_options` those of its model that somebody chose, `model_facts` what its server or file reported of
    the weights when the run began. The steps of a run that was forked from another go on with the other's numbers, from
    `first_step` on, so that both meet the same tasks and seeds.
    """

    id: str
    environment: str
    tasks: str
    policy: str
    settings: Mapping[str, Any]
    seed: int
    model: str
    simulated: bool
    embedder: str
    base: str | None
    base_step: int
    created: str
    task_count: int = 0
    environment_options: Mapping[str, Any] = field(default_factory=dict)
    first_step: int = 1
    model_options: Mapping[str, Any] = field(default_factory=dict)
    model_facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_others(
        cls,
        id: str,
        environment: str,
        settings: Mapping[str, Any],
        model: str,
        embedder: str,
        created: str,
        policy: str = "memrl",
    ) -> Self:
        """A run whose steps another program decides: without tasks of ours, a seed or a run that it goes on from."""
        return cls(id, environment, "", policy, settings, 0, model, False, embedder, None, 0, created)


@dataclass(frozen=True, slots=True)
class Utility:
    """What a run believes of one memory."""

    q: float
    visits: int


@dataclass(frozen=True, slots=True)
class UtilityPoint:
    """One entry of a memory's history in a run: q after the event. The first is its writing (no reward)."""

    memory_id: str
    step: int
    before: float | None
    after: float
    visits: int
    reward: float | None
    source: RewardSource | None
    raters: tuple[str, ...]
