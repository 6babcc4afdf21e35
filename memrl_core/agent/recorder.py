"""The entry for other agents: one run of a bank, to which they add steps.

    with Recorder(bank).step("heat the egg", embedding=vector) as s:
        s.recalled([("r-0001", 0.83), ("r-0002", 0.41)])
        s.selected(["r-0001"])
        s.answered("heat egg with stove")
        s.rewarded(1.0)

Nothing is stored before the block ends. Then the step gets the next number, so any number of threads and processes of
one machine can report steps of one run. Nothing is filled in that was not reported or measured: where a record needs a
number that was not reported, the trace's `lacks` says so.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.errors import InputError, StepError
from memrl_core.policies import make_policy
from memrl_core.policies.base import intent_key
from memrl_core.records import (
    Candidate,
    Decision,
    EmbedRecord,
    EventKind,
    GenerateRecord,
    LedgerEvent,
    Memory,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    Phase,
    Reason,
    Recalled,
    RecallRecord,
    Reply,
    RewardRecord,
    RunInfo,
    StepTrace,
    Task,
    Term,
    Turn,
    UpdateRecord,
    Utility,
    WriteRecord,
)
from memrl_core.settings import MemRLSettings

__all__ = ["RecordedStep", "Recorder"]

Vector = npt.NDArray[np.float32]
Embedding = Sequence[float] | npt.NDArray[Any]
Hits = Mapping[str, float | None] | Iterable[str | tuple[str, float | None]]

ENVIRONMENT = "recorded"
UNCHANGED = "This call changed nothing."
ROUNDING = 1e-3
"""How far beyond ±1 a cosine may lie that another program computed."""


# --- what a call may say ----------------------------------------------------------------------------------------------

Checked = TypeVar("Checked")


def _printable(words: str) -> str:
    if not words.strip() or not words.isprintable():
        raise ValueError("an id has printable characters")
    return words


def _utf8(words: str) -> str:
    words.encode()
    return words


def _json(options: dict[str, Any]) -> dict[str, Any]:
    json.dumps(options, allow_nan=False)
    return options


_plain = BeforeValidator(lambda value: value.item() if isinstance(value, np.generic) else value)
_Text = Annotated[str, Field(strict=True), AfterValidator(_utf8)]
_Id = Annotated[str, Field(strict=True, max_length=200), AfterValidator(_printable)]
_Number = Annotated[float, _plain, Field(strict=True, allow_inf_nan=False)]
_Cosine = Annotated[float, _plain, Field(strict=True, ge=-1 - ROUNDING, le=1 + ROUNDING)]


class _Message(BaseModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: _Text | None = None


INTENT: TypeAdapter[str] = TypeAdapter(Annotated[_Text, Field(pattern=r"\S")])
TEXT: TypeAdapter[str] = TypeAdapter(_Text)
ID: TypeAdapter[str] = TypeAdapter(_Id)
IDS: TypeAdapter[list[str]] = TypeAdapter(list[_Id])
COSINE: TypeAdapter[float] = TypeAdapter(_Cosine)
NUMBER: TypeAdapter[float] = TypeAdapter(_Number)
NUMBERS: TypeAdapter[dict[str, float]] = TypeAdapter(dict[_Id, _Number])
COUNT: TypeAdapter[int] = TypeAdapter(Annotated[int, _plain, Field(strict=True, ge=0)])
FROM_ONE: TypeAdapter[int] = TypeAdapter(Annotated[int, _plain, Field(strict=True, ge=1)])
MESSAGES: TypeAdapter[list[_Message]] = TypeAdapter(list[_Message])
OPTIONS: TypeAdapter[dict[str, Any]] = TypeAdapter(Annotated[dict[str, Any], AfterValidator(_json)])


def _checked(kind: TypeAdapter[Checked], value: object, what: str) -> Checked:
    """The value as this kind. Raises `InputError` where it is none; `what` says what it should be."""
    try:
        return kind.validate_python(value)
    except (ValidationError, TypeError) as error:
        why = str(error)
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False)[0]
            where = " ".join(str(part + 1) if isinstance(part, int) else f"“{part}”"[:80] for part in problem["loc"])
            why = f"{where}{': ' if where else ''}{problem['msg']} (given: {problem['input']!r:.80})"
        raise InputError(f"This is not {what}: {why}. {UNCHANGED}") from None


def _ids(given: Iterable[str]) -> list[str]:
    """Memories, each named once."""
    found = _checked(IDS, given if isinstance(given, str) else list(given), "a list of ids of memories")
    if len(set(found)) != len(found):
        raise InputError(f"A memory is named twice. {UNCHANGED}")
    return found


def _hits(given: Hits) -> dict[str, float | None]:
    """Memories with their cosines as they were given, None where they were not."""
    listed = given.items() if isinstance(given, Mapping) else given
    pairs = [hit if isinstance(hit, tuple | list) else (hit, None) for hit in listed]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(f"Give each memory as its id, or as (id, similarity). {UNCHANGED}")
    names = _ids(pair[0] for pair in pairs)
    what = "a cosine, which lies in [-1, 1]; leave out what is none"
    cosines = [None if cosine is None else _checked(COSINE, cosine, what) for _, cosine in pairs]
    return dict(zip(names, cosines, strict=True))


def unit(given: Embedding, dimension: int) -> Vector:
    """An embedding as a vector (d,) of length 1."""
    try:
        vector = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"An embedding is not a list of numbers. {UNCHANGED}") from None
    if vector.shape != (dimension,):
        raise InputError(
            f"An embedding of shape {vector.shape} does not fit this bank: give one list of {dimension} numbers. "
            + UNCHANGED
        )
    largest = float(np.abs(vector).max())
    if not 0 < largest < math.inf:
        raise InputError(f"An embedding is not finite, or all of it is 0. {UNCHANGED}")
    # Scaled first: the squares of huge or tiny numbers leave the range of floats.
    scaled = vector / largest
    found: Vector = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return found


# --- the calls --------------------------------------------------------------------------------------------------------


class Recorder:
    """Adds the steps of another agent to one run of a bank; threads may share it.

    A run that the bank does not have is started with these `settings` (None: the default ones); one that it has keeps
    its own. `model` is the name of the language model that answers. Raises `InputError` for a name that a run
    cannot have.
    """

    def __init__(
        self, bank: MemoryBank, run: str = "recorded", settings: MemRLSettings | None = None, model: str = "unknown"
    ) -> None:
        self.bank, self.run = bank, run
        self._model = _checked(TEXT, model, "a model's name")
        with bank.alone():
            if run not in {info.id for info in bank.runs()}:
                info = RunInfo(
                    id=run,
                    environment=ENVIRONMENT,
                    tasks="",
                    policy="memrl",
                    settings=(settings or MemRLSettings()).model_dump(),
                    seed=0,
                    model=self._model,
                    simulated=False,
                    embedder=bank.embedder.name,
                    base=None,
                    base_step=0,
                    created=now(),
                )
                bank.start_run(info)

    def step(self, intent: str, *, embedding: Embedding | None = None, task: str = "", epoch: int = 1) -> RecordedStep:
        """A step to report in a `with` block; `embedding` (d,) is of any length, `task` names a task that recurs.

        Raises `InputError` for an empty intent or an embedding that the bank cannot hold.
        """
        return RecordedStep(
            self.bank,
            self.run,
            _checked(INTENT, intent, "an intent, which says what the agent was asked to do"),
            _checked(TEXT, task, "a task's name"),
            _checked(FROM_ONE, epoch, "an epoch"),
            None if embedding is None else unit(embedding, self.bank.embedder.dimension),
            self._model,
        )

    def remember(
        self,
        intent: str,
        experience: str,
        embedding: Embedding,
        *,
        memory_id: str = "",
        q: float = 0.0,
        visits: int = 0,
    ) -> str:
        """The id of a memory that the agent has already, which the run knows from now on with this q.

        The same call again changes nothing. Raises `InputError` for an id that has another text.
        """
        asked, words = _checked(INTENT, intent, "an intent"), _checked(TEXT, experience, "an experience")
        vector = unit(embedding, self.bank.embedder.dimension)
        worth, uses = _checked(NUMBER, q, "a q"), _checked(COUNT, visits, "a number of visits")
        wanted = _checked(ID, memory_id, "an id of a memory") if memory_id else ""
        with self.bank.alone():
            taken = wanted or self.bank.next_memory_id(self.run)
            step = self.bank.next_step(self.run) - 1
            memory = Memory(taken, asked, words, "unrated", intent_key(asked), (), self.run, step, "", now())
            if taken in self.bank.memory_ids():
                memory = self.bank.memory(taken)
            if (memory.intent, memory.experience) != (asked, words):
                raise InputError(f"This bank has another memory “{taken[:80]}” already. {UNCHANGED}")
            if not self.bank.utilities_of(self.run, [taken]):
                event = LedgerEvent(
                    id=uuid.uuid4().hex,
                    seq=self.bank.clock + 1,
                    run=self.run,
                    step=step,
                    step_id="",
                    known_at=step,
                    kind=EventKind.MEMORY_IMPORTED,
                    memory_ids=(taken,),
                    value=worth,
                    payload={"visits": uses},
                    created=now(),
                )
                self.bank.adopt({taken: (memory, vector)}, [event], [])
            return taken


class RecordedStep:
    """A step to report inside its `with` block. Any call may be left out: the trace's `lacks` says which.

    Each is made once, `answered` once per turn. The time since the previous call counts for the phase. When the block
    raises, what was reported is stored as a step without a reward, and the exception is raised on.
    """

    def __init__(
        self, bank: MemoryBank, run: str, intent: str, task: str, epoch: int, embedding: Vector | None, model: str
    ) -> None:
        self._bank, self._run = bank, run
        self._intent, self._task, self._epoch, self._embedding, self._model = intent, task, epoch, embedding, model
        self._called: set[str] = set()
        self._mark, self._started, self._ended, self._failure = 0.0, "", False, ""
        self._seconds: dict[str, float] = {}
        self._stored: StepTrace | None = None
        # What was reported; None and empty where it was not.
        self._pool: dict[str, float | None] | None = None
        self._known_then: Mapping[str, Utility] = {}
        self._memories = 0
        self._k1: int | None = None
        self._delta: float | None = None
        self._chosen: tuple[str, ...] | None = None
        self._scores: dict[str, float] = {}
        self._q: dict[str, float] = {}
        self._messages: tuple[Message, ...] = ()
        self._options: dict[str, Any] = {}
        self._turns: list[Turn] = []
        self._reward: float | None = None
        self._why = ""
        self._experience: str | None = None
        self._memory_id = ""

    def __enter__(self) -> Self:
        if self._started:
            raise StepError("This step has begun already. Ask the recorder for a new one.")
        self._started, self._mark = now(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._failure = "" if kind is None else kind.__name__
        try:
            self._store()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"The step could not be recorded either: {failure}")

    @property
    def trace(self) -> StepTrace:
        """The step as it was stored. Raises `StepError` before the block has ended."""
        if self._stored is None:
            raise StepError("A step is stored when its `with` block ends; there is no trace before.")
        return self._stored

    def recalled(self, hits: Hits, *, k1: int | None = None, delta: float | None = None) -> None:
        """The pool of phase A: ids, or ids with cosines; `k1` and `delta` are the agent's pool size and gate.

        Raises `InputError` for a memory that the run does not know and for what is no cosine.
        """
        self._may("recalled")
        if "selected" in self._called:
            raise StepError(f"Report what was recalled before what was selected. {UNCHANGED}")
        pool = _hits(hits)
        size = None if k1 is None else _checked(FROM_ONE, k1, "a pool size")
        gate = None if delta is None else _checked(NUMBER, delta, "a gate")
        self._known_then = self._known(pool)
        self._pool, self._k1, self._delta = pool, size, gate
        self._memories = self._bank.memory_count(self._run)
        self._did("recalled", Phase.RECALL)

    def selected(
        self, ids: Sequence[str], scores: Mapping[str, float] | None = None, q: Mapping[str, float] | None = None
    ) -> None:
        """What phase B chose, in the order of the prompt, with the agent's own scores and q of recalled memories.

        Raises `InputError` for memories that were not recalled.
        """
        self._may("selected")
        chosen = _ids(ids)
        scored, valued = _checked(NUMBERS, scores or {}, "a score"), _checked(NUMBERS, q or {}, "a q")
        if self._pool is None:
            self._known(chosen)
        named = [*scored, *valued] if self._pool is None else [*chosen, *scored, *valued]
        if strange := [one for one in named if one not in (self._pool or ())]:
            raise InputError(f"The memory “{strange[0][:80]}” was selected or scored but not recalled. {UNCHANGED}")
        self._chosen, self._scores, self._q = tuple(chosen), scored, valued
        self._did("selected", Phase.SELECT)

    def prompted(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None) -> None:
        """What was sent to the model: messages with a role and a content, and the options (JSON) of the generation.

        What a tool says is kept as said by the user.
        """
        self._may("prompted")
        read = _checked(MESSAGES, [dict(message) for message in messages], "a list of messages")
        self._options = _checked(OPTIONS, dict(options or {}), "JSON")
        self._messages = tuple(Message("user" if m.role == "tool" else m.role, m.content or "") for m in read)
        self._did("prompted", Phase.GENERATE)

    def answered(
        self, text: str, *, prompt_tokens: int | None = None, answer_tokens: int | None = None, observation: str = ""
    ) -> None:
        """The model's reply, with the token counts that it reported, and the world's observation after it."""
        self._may("answered")
        counts = [None if n is None else _checked(COUNT, n, "a token count") for n in (prompt_tokens, answer_tokens)]
        words, seen = _checked(TEXT, text, "an answer"), _checked(TEXT, observation, "an observation")
        reply = Reply(words, False, counts[0], counts[1], time.perf_counter() - self._mark)
        self._turns.append(Turn(reply, seen, 0.0, terminated=False, truncated=False))
        self._did("answered", Phase.GENERATE)

    def rewarded(self, value: float, why: str = "") -> None:
        """The reward that the agent's world gave; `why` is the verdict in words."""
        self._may("rewarded")
        reward, verdict = _checked(NUMBER, value, "a reward"), _checked(TEXT, why, "a verdict")
        self._reward, self._why = reward, verdict
        self._did("rewarded", Phase.REWARD)

    def wrote(self, experience: str, memory_id: str = "") -> None:
        """Write the episode as a new memory under the step's embedding; the bank names it unless an id is given.

        Raises `InputError` for an id that the bank has, and when the step was begun without an embedding.
        """
        self._may("wrote")
        words = _checked(TEXT, experience, "an experience")
        if memory_id and _checked(ID, memory_id, "an id of a memory") in self._bank.memory_ids():
            raise InputError(f"This bank has a memory “{memory_id[:80]}” already. {UNCHANGED}")
        if self._embedding is None:
            raise InputError(f"A memory needs an embedding: begin the step with one. {UNCHANGED}")
        self._experience, self._memory_id = words, memory_id
        self._did("wrote", Phase.WRITE)

    def _may(self, call: str) -> None:
        if not self._started or self._ended:
            raise StepError(f"A step is reported inside its `with` block. {UNCHANGED}")
        if call in self._called and call != "answered":
            raise StepError(f"{call}() was called before in this step; the first report counts. {UNCHANGED}")

    def _did(self, call: str, phase: Phase) -> None:
        at = time.perf_counter()
        self._seconds[phase.value] = self._seconds.get(phase.value, 0.0) + at - self._mark
        self._mark = at
        self._called.add(call)

    def _known(self, ids: Collection[str]) -> Mapping[str, Utility]:
        """The utilities of `ids`, which the run has to know."""
        known = self._bank.utilities_of(self._run, ids)
        if len(known) < len(ids):
            self._bank.refresh()
            known = self._bank.utilities_of(self._run, ids)
        if unknown := [one for one in ids if one not in known]:
            raise InputError(
                f"Run {self._run} does not know the memory “{unknown[0][:80]}”: call remember() first. {UNCHANGED}"
            )
        return known

    # --- its trace ----------------------------------------------------------------------------------------------------

    def _store(self) -> None:
        bank = self._bank
        with bank.alone():
            trace = self._made()
            vectors = {}
            if trace.write is not None and self._embedding is not None:
                vectors = {operation.memory_id: self._embedding for operation in trace.write.operations}
            bank.commit_step(trace, vectors)
            # A step held back by `batch` would be unknown to the next process that numbers its own.
            bank.flush()
            self._stored = trace

    def _made(self) -> StepTrace:
        """The step as the next one of the run; nobody else may append meanwhile."""
        bank, run = self._bank, self._run
        number, settings, info = bank.next_step(run), bank.settings(run), bank.run(run)
        policy = make_policy(info.policy, settings)
        reward = None if self._failure else self._reward
        outcome, credited = policy.outcome_of(reward), self._chosen or ()
        lacks = [
            what
            for what, is_reported in (
                ("the embedding of its intent", self._embedding is not None),
                ("which memories it recalled", self._pool is not None),
                ("which memories it selected", self._chosen is not None),
                ("what it sent to the model", bool(self._messages)),
                ("what the model answered", bool(self._turns)),
                ("how well it went", reward is not None),
                ("what it wrote into its memory", self._experience is not None),
                (f"what would have come after {self._failure} ended it", not self._failure),
            )
            if not is_reported
        ]
        recall = self._recall(lacks)
        embed = None
        if self._embedding is not None:
            embed = EmbedRecord(bank.embedder.name, bank.embedder.dimension, tuple(self._embedding.tolist()))
        return StepTrace(
            id=uuid.uuid4().hex,
            run=run,
            step=number,
            epoch=self._epoch,
            task=Task(self._task or f"{run}-{number}", self._intent, info.environment),
            policy=info.policy,
            settings=settings,
            started=self._started,
            seconds=self._seconds,
            embed=embed,
            recall=recall,
            decision=None if recall is None or self._chosen is None else self._decision(recall, lacks),
            generate=self._generate(lacks) if self._messages or self._turns else None,
            reward=RewardRecord(
                reward=reward,
                source=None if reward is None else "environment",
                outcome=outcome,
                verdict="" if reward is None else self._why,
                rater="",
                reason="",
                credited=credited,
            ),
            update=UpdateRecord(
                () if reward is None else policy.update(credited, reward, bank.utilities_of(run, credited))
            ),
            write=None if self._experience is None else self._write(self._experience, settings, outcome, lacks),
            origin="recorder",
            lacks=tuple(lacks),
        )

    def _recall(self, lacks: list[str]) -> RecallRecord | None:
        """The pool, most similar first; None where a similarity was neither reported nor can be measured."""
        if self._pool is None:
            return None
        similarities = {one: similarity for one, similarity in self._pool.items() if similarity is not None}
        if missing := [one for one in self._pool if one not in similarities]:
            if self._embedding is None:
                lacks.append(f"how similar the memories are that it recalled ({', '.join(self._pool)})")
                return None
            lacks.append(
                f"the similarities it saw of {', '.join(missing)}: those here are cosines that the bank measured"
            )
            similarities |= {one: float(self._bank.embedding(one) @ self._embedding) for one in missing}
        if self._k1 is None or self._delta is None:
            lacks.append("how large its pool may be and from which similarity on it recalls (k1, δ)")
        ranked = sorted(self._pool, key=lambda one: -similarities[one])
        return RecallRecord(
            k1=len(ranked) if self._k1 is None else self._k1,
            k1_counts="record",
            delta=-1.0 if self._delta is None else self._delta,
            strict=False,
            memories=self._memories,
            pool=tuple(Recalled(one, similarities[one], rank, None) for rank, one in enumerate(ranked, start=1)),
            left_out=(),
        )

    def _decision(self, recall: RecallRecord, lacks: list[str]) -> Decision:
        """The choice from the pool. Without a score for each memory only the order of the prompt is a ranking."""
        chosen, pool = self._chosen or (), [seen.memory_id for seen in recall.pool]
        unscored = [one for one in pool if one not in self._scores]
        if unscored:
            lacks.append(f"the scores of {', '.join(unscored)}")
        ranking = chosen if unscored else tuple(sorted(pool, key=lambda one: -self._scores[one]))
        if of_the_bank := [one for one in pool if one not in self._q]:
            lacks.append(f"the q it saw of {', '.join(of_the_bank)}: those here are the bank's")
        lacks.append(
            "how it ranks: λ, ε, the seed and the probability of this choice are not known, though they are 0 here"
        )
        candidates = []
        for seen in recall.pool:
            memory_id, score = seen.memory_id, self._scores.get(seen.memory_id)
            utility = self._known_then[memory_id]
            candidates.append(
                Candidate(
                    memory_id=memory_id,
                    similarity=seen.similarity,
                    q=self._q.get(memory_id, utility.q),
                    visits=utility.visits,
                    terms=() if unscored or score is None else (Term("score", score, score, 1.0, score),),
                    score=score,
                    rank_recall=seen.rank_recall,
                    rank_select=ranking.index(memory_id) + 1 if memory_id in ranking else None,
                    selected=memory_id in chosen,
                    reason=Reason.TOP_K2 if memory_id in chosen else Reason.BEYOND_K2,
                )
            )
        candidates.sort(key=lambda one: one.rank_select or len(candidates) + one.rank_recall)
        return Decision(
            k2=len(chosen),
            weight=0.0,
            normaliser="unknown",
            normaliser_lines=(),
            candidates=tuple(candidates),
            selected=chosen,
            greedy=ranking[: len(chosen)],
            mode="greedy" if recall.pool else "fallback",
            epsilon=0.0,
            draw=None,
            seed=0,
            propensity=0.0,
        )

    def _generate(self, lacks: list[str]) -> GenerateRecord:
        spans: list[MemorySpan] = []
        for one in self._chosen or () if self._messages else ():
            span = _place(one, self._bank.memory(one).experience.strip(), self._messages, spans)
            if span is None:
                lacks.append(f"where the memory {one} is in the prompt")
            else:
                spans.append(span)
        spans.sort(key=lambda span: (span.message, span.start))
        return GenerateRecord(self._model, False, self._options, self._messages, tuple(spans), tuple(self._turns))

    def _write(self, experience: str, settings: Mapping[str, Any], outcome: Outcome, lacks: list[str]) -> WriteRecord:
        wanted = self._memory_id
        if wanted in self._bank.memory_ids():
            lacks.append(f"a free name for the memory it wrote: {wanted} is another's, so the bank chose one")
            wanted = ""
        operation = MemoryOperation(
            op="ADD",
            memory_id=wanted or self._bank.next_memory_id(self._run),
            intent=self._intent,
            experience=experience,
            outcome=outcome,
            intent_key=intent_key(self._intent),
            q0=float(settings["q0_failure" if outcome == "failure" else "q0_success"]),
            parents=self._chosen or (),
        )
        return WriteRecord((operation,))


def _place(memory_id: str, words: str, messages: Sequence[Message], taken: Sequence[MemorySpan]) -> MemorySpan | None:
    """Where a memory is in the prompt word for word, in a place that no other memory has."""
    for number, message in enumerate(messages):
        start = message.content.find(words) if words else -1
        while start >= 0:
            end = start + len(words)
            if not any(span.message == number and start < span.end and span.start < end for span in taken):
                return MemorySpan(memory_id, number, start, end)
            start = message.content.find(words, start + 1)
    return None
