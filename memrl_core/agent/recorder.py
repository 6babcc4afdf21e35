"""The entry for other agents: one run of a bank, to which they add steps.

    with Recorder(bank).step("heat the egg", embedding=vector) as s:
        s.recalled([("r-0001", 0.83), ("r-0002", 0.41)])
        s.selected(["r-0001"])
        s.answered("heat egg with stove")
        s.rewarded(1.0)

Nothing is stored before the block ends. Then the step gets the next number, so any number of threads and processes of
one machine can report steps of one run. Nothing is filled in that was not reported or measured: where a record needs a
number that was not reported, the trace's `lacks` says so.

No call raises into the agent that reports. What cannot be used is left out, with a sentence in `lacks`; a recorder with
`strict=True` raises instead, and then the call changes nothing. What the bank cannot take (a full disk, a bank that is
gone) waits as JSON lines in a file beside it, and is stored before the next step that can be, or by the next recorder
of the run.
"""

from __future__ import annotations

import json
import math
import os
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from memrl_core.agent.recorded_trace import REPORT, Operation, StepReport, Written, trace_of
from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.bank.operations import METADATA
from memrl_core.bank.people.ratings import Rating
from memrl_core.errors import BankError, InputError, MemRLError, StepError, few
from memrl_core.learning import REPLACES
from memrl_core.logs import loggable, logger
from memrl_core.models.base import whole_characters
from memrl_core.policies.base import intent_key
from memrl_core.records import (
    EventKind,
    Hit,
    Memory,
    Message,
    Phase,
    Reply,
    Retrieval,
    RunInfo,
    SignalKind,
    StepTrace,
    ToolCall,
    Turn,
    Utility,
)
from memrl_core.retrieval import ROUNDING, is_cosine
from memrl_core.settings import MemRLSettings

__all__ = ["RecordedStep", "Recorder"]

Vector = npt.NDArray[np.float32]
Embedding = Sequence[float] | npt.NDArray[Any]
Hits = Mapping[str, float | None] | Iterable[str | tuple[str, float | None] | tuple[str, float | None, str]]
Parts = Mapping[str, Mapping[str, float]]

ENVIRONMENT = "recorded"
UNCHANGED = "This call changed nothing."
NO_INTENT = "(no intent was reported)"
LONGEST_TEXT = 10_000_000
LARGEST_NUMBER, LARGEST_COUNT = 1e6, 10**9
"""Of rewards, q and scores, and of counts: what is beyond them would leave the range of sums or of the database."""
REPEATED = ("recalled", "answered", "called", "wrote")
"""The reports that a step may have several of."""
WAITING = ".recorded.jsonl"
"""How the name of the file goes on in which reports wait for a bank that cannot be written."""
BUSY = 1.0
"""Seconds that a report waits for another writer of the bank where reports wait already."""
MOST_UNUSED, LONGEST_SENTENCE = 50, 400
"""Sentences that a step keeps of what could not be used, and characters of one."""

KINDS: tuple[SignalKind, ...] = get_args(SignalKind)
BEST_FIRST: dict[SignalKind, int] = {"cosine": -1, "dot": -1, "bm25": -1, "distance": 1, "rank": 1}
"""By which sign the scores of a kind rank; `other` has the order in which they were given."""

_log = logger(__name__)


# --- what a call may say ----------------------------------------------------------------------------------------------

Checked = TypeVar("Checked")
Given = ParamSpec("Given")
COSINE_IN_WORDS = "a cosine, which lies in [-1, 1]; leave out what is none"


def _printable(words: str) -> str:
    if not words.strip() or not words.isprintable():
        raise ValueError("an id has printable characters")
    return words


def _within_limits(number: float) -> float:
    if abs(number) > LARGEST_NUMBER:
        raise ValueError(f"beyond ±{LARGEST_NUMBER:,.0f}")
    return number


def _utf8(words: str) -> str:
    # A `max_length` of pydantic reads the text as UTF-8 first, and says less of what is wrong.
    if len(words) > LONGEST_TEXT:
        raise ValueError(f"at most {LONGEST_TEXT:,} characters")
    words.encode()
    return words


def _json(options: dict[str, Any]) -> dict[str, Any]:
    # A copy: the agent may change its own before the step ends.
    copied: dict[str, Any] = json.loads(json.dumps(options, allow_nan=False))
    return copied


_plain = BeforeValidator(lambda value: value.item() if isinstance(value, np.generic) else value)
_Text = Annotated[str, Field(strict=True), AfterValidator(_utf8)]
_Id = Annotated[str, Field(strict=True, max_length=200), AfterValidator(_printable)]
_Number = Annotated[float, _plain, Field(strict=True, allow_inf_nan=False), AfterValidator(_within_limits)]
_Cosine = Annotated[float, _plain, Field(strict=True, ge=-1 - ROUNDING, le=1 + ROUNDING)]


class _Message(BaseModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: _Text | None = None


INTENT: TypeAdapter[str] = TypeAdapter(Annotated[_Text, Field(pattern=r"\S")])
TEXT: TypeAdapter[str] = TypeAdapter(_Text)
ID: TypeAdapter[str] = TypeAdapter(_Id)
COSINE: TypeAdapter[float] = TypeAdapter(_Cosine)
NUMBER: TypeAdapter[float] = TypeAdapter(_Number)
COUNT: TypeAdapter[int] = TypeAdapter(Annotated[int, _plain, Field(strict=True, ge=0, le=LARGEST_COUNT)])
FROM_ONE: TypeAdapter[int] = TypeAdapter(Annotated[int, _plain, Field(strict=True, ge=1, le=LARGEST_COUNT)])
MESSAGE: TypeAdapter[_Message] = TypeAdapter(_Message)
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


class _Unused:
    """What could not be used of the reports of an agent, a sentence each; where `strict`, that is raised instead."""

    def __init__(self, strict: bool, renamed: Mapping[str, str] | None = None) -> None:
        self.strict = strict
        # The memory that stands now in the place of one that was updated or merged.
        self._renamed = renamed or {}
        self._sentences: deque[str] = deque()
        self._more = 0

    def add(self, call: str, error: Exception) -> None:
        """Keep why a report made by `call` could not be used. Raises `error` where `strict`."""
        if self.strict:
            raise error
        why = str(error) if isinstance(error, MemRLError) else traceback.format_exception_only(error)[0]
        sentence = f"{call}(): {' '.join(why.replace(UNCHANGED, '').split()).removesuffix('.')}"
        if len(self._sentences) < MOST_UNUSED:
            self._sentences.append(whole_characters(sentence)[0][:LONGEST_SENTENCE])
        else:
            self._more += 1

    def taken(self, call: str, read: Callable[[], Checked], otherwise: Checked) -> Checked:
        """What `read` gives; `otherwise` where it raises, with a sentence."""
        try:
            return read()
        except Exception as error:
            self.add(call, error)
            return otherwise

    def value(self, call: str, kind: TypeAdapter[Checked], given: Any, what: str) -> Checked | None:
        """The value as this kind; None where it is none, with a sentence."""
        return self.taken(call, partial(_checked, kind, given, what), None)

    def optional(self, call: str, kind: TypeAdapter[Checked], given: Any, what: str) -> Checked | None:
        """The value as this kind; None where it is none, with a sentence, and where None was given."""
        return None if given is None else self.value(call, kind, given, what)

    def text(self, call: str, given: Any, what: str) -> str:
        """A text; of one that cannot be stored whole, what can be; "" for what is none."""
        found = self.value(call, TEXT, given, what)
        if found is None:
            found = whole_characters(given[:LONGEST_TEXT])[0] if isinstance(given, str) else ""
        return found

    def ids(self, call: str, given: Iterable[Any]) -> list[str]:
        """Memories, each once."""
        found: list[str] = []
        if isinstance(given, str | bytes):
            raise InputError(f"This is not a list of ids of memories: one text. {UNCHANGED}")
        for one in given:
            name = self.value(call, ID, one, "an id of a memory")
            name = name and self._renamed.get(name, name)
            if name in found:
                self.add(call, InputError(f"The memory “{name[:80]}” is named twice. {UNCHANGED}"))
            elif name is not None:
                found.append(name)
        return found

    def hits(self, call: str, given: Hits, cosines: bool = False) -> dict[str, Hit]:
        """Memories with their scores as they were given, None where they were not or are no numbers."""
        if isinstance(given, str | bytes):
            raise InputError(f"This is not a list of memories: one text. {UNCHANGED}")
        found: dict[str, Hit] = {}
        for hit in given.items() if isinstance(given, Mapping) else given:
            parts = hit if isinstance(hit, tuple | list) else (hit, None)
            if len(parts) not in (2, 3):
                self.add(call, InputError(f"Give each memory as its id, or as (id, score). {UNCHANGED}"))
                continue
            for name in self.ids(call, parts[:1]):
                if name in found:
                    self.add(call, InputError(f"The memory “{name[:80]}” is named twice. {UNCHANGED}"))
                    continue
                kind = (COSINE, COSINE_IN_WORDS) if self.strict and cosines else (NUMBER, f"a score of “{name[:80]}”")
                score = self.optional(call, kind[0], parts[1], kind[1])
                text = self.text(call, parts[2], f"the text of “{name[:80]}”") if len(parts) == 3 else ""
                found[name] = Hit(name, score, text=text)
        return found

    def numbers(self, call: str, given: Mapping[Any, Any] | None, what: str) -> dict[str, float]:
        """Numbers by memory."""
        found = {}
        for one, value in dict(given or {}).items():
            for name in self.ids(call, [one]):
                number = self.value(call, NUMBER, value, f"{what} of “{name[:80]}”")
                if number is not None:
                    found[name] = number
        return found

    def kept(self) -> list[str]:
        """The sentences until now."""
        more = [f"{self._more:,} more reports that could not be used"] if self._more else []
        return [*self._sentences, *more]

    def forget(self, count: int) -> None:
        """Drop the first `count` sentences, and how many more there were: a step has kept them."""
        self._more = 0
        for _ in range(min(count, len(self._sentences))):
            self._sentences.popleft()


class _Waiting:
    """Reports that the bank could not take, as JSON lines in a file beside it; in memory where there is no file."""

    def __init__(self, uri: str) -> None:
        self.file = None if "://" in uri else Path(uri + WAITING)
        self._lock = FileLock(f"{self.file}.lock", timeout=10)
        self._held: list[str] = []
        self._changing = Lock()

    @property
    def place(self) -> str:
        """Where they wait, in words."""
        return "this process" if self._held or self.file is None else str(self.file)

    def __bool__(self) -> bool:
        return bool(self._held) or (self.file is not None and self.file.exists())

    def add(self, report: Mapping[str, Any]) -> None:
        """Keep a report."""
        report_line = json.dumps(report, allow_nan=False)
        try:
            if self.file is None:
                raise OSError("This bank has no folder.")
            with self._lock:
                _append(self.file, report_line)
        except (OSError, Timeout):
            with self._changing:
                self._held.append(report_line)

    def take(self, store: Callable[[dict[str, Any]], bool]) -> None:
        """Give each report to `store`, in order; those for which it is not True stay. Raises what `store` raises."""
        with self._changing:  # Another thread may add one meanwhile.
            held, self._held = self._held, []
        try:
            held = [one for one in held if not self._is_stored(one, store)]
        finally:
            with self._changing:
                self._held = [*held, *self._held]
        if self.file is None or not self.file.exists():
            return
        with self._lock:
            lines = self.file.read_text(encoding="utf-8").splitlines()
            left = [one for one in lines if not self._is_stored(one, store)]
            if not left:
                self.file.unlink()
            elif len(left) < len(lines):
                # Whole or not at all: on a full disk the file as it was stays.
                draft = self.file.with_name(f"{self.file.name}.{uuid.uuid4().hex[:8]}")
                try:
                    draft.write_text("".join(f"{one}\n" for one in left), encoding="utf-8")
                    draft.replace(self.file)
                finally:
                    draft.unlink(missing_ok=True)

    @staticmethod
    def _is_stored(report_line: str, store: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether a report is stored now. Raises where the bank cannot be written; any other failure is its own."""
        try:
            report = json.loads(report_line)
        except ValueError:  # The last line of a process that was killed while it wrote.
            return False
        try:
            return store(report)
        except (BankError, OSError):
            raise
        except Exception as failure:
            _log.warning("A report that waits does not fit the bank (%s). It stays where it is.", loggable(failure))
            return False


def _append(file: Path, line: str) -> None:
    """Add a line to a file, whole or not at all; a line that was cut short before is ended first."""
    with file.open("ab+") as lines:
        end = lines.seek(0, os.SEEK_END)
        if end:
            lines.seek(end - 1)
            line = line if lines.read(1) == b"\n" else f"\n{line}"
        try:
            lines.write(f"{line}\n".encode())
            lines.flush()
        except OSError:
            lines.truncate(end)
            raise


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
    its own. `model` is the name of the language model that answers. Its calls raise nothing into the agent unless
    `strict`: what cannot be used becomes a sentence in `lacks` of the step, or of the next one where no step is open.
    With `background` a step is stored in a thread of its own after its block has ended, and `close` waits for that.
    Making a recorder raises `InputError` for a name that a run cannot have. `is_begun` says whether the bank has its
    run.
    """

    def __init__(
        self,
        bank: MemoryBank,
        run: str = "recorded",
        settings: MemRLSettings | None = None,
        model: str = "unknown",
        strict: bool = False,
        background: bool = False,
    ) -> None:
        self.bank, self.run = bank, run
        self._waiting = _Waiting(bank.uri)
        # One thread, so that the steps keep their order; what it has not stored yet is stored before the program ends.
        self._behind = ThreadPoolExecutor(1, "recorder") if background else None
        self._model = _checked(TEXT, model, "a model's name")
        self._renamed: dict[str, str] = {}
        self._unused = _Unused(strict, self._renamed)
        chosen = (settings or MemRLSettings()).model_dump()
        self._info = RunInfo.of_others(run, ENVIRONMENT, chosen, self._model, bank.embedder.name, now())
        self.is_begun = False
        try:
            self._begin()
        except (BankError, OSError) as failure:
            # The bank cannot be written now: the run begins with the first step that it can take.
            self._unused.add("Recorder", failure)
            return
        self._store_waiting()

    def _begin(self) -> None:
        """Start the run if the bank does not have it. Raises what writing raises."""
        bank, run = self.bank, self.run
        if self.is_begun:
            return
        with bank.write.alone():
            if run not in {info.id for info in bank.runs()}:
                bank.write.start_run(self._info)
        self.is_begun = True
        if bank.editing.away(run):
            for event in bank.events(run, REPLACES):
                self._renaming(event.payload.get("replaces", ()), event.memory_ids[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait until every step that has ended is stored; the bank stays open."""
        if self._behind is not None:
            self._behind.shutdown()
            self._behind = None

    def _must_be_free(self) -> None:
        """Raise `BankError` where reports wait for the bank and another process still writes to it, as a long import.

        The agent has waited for that process once.
        """
        if self._waiting and not self._unused.strict and self.bank.write.is_busy(BUSY):
            raise BankError(f"Another process is still writing to {self.bank.uri}.")

    def _renaming(self, replaced: Iterable[str], memory_id: str) -> None:
        """From now on the agent means `memory_id` by the ids of what it replaced."""
        for old, name in list(self._renamed.items()):
            if name in replaced:
                self._renamed[old] = memory_id
        self._renamed.update(dict.fromkeys(replaced, memory_id))

    def _store_waiting(self) -> None:
        """Store what waits for the bank, as far as it can take it."""
        if self._waiting:
            try:
                self._begin()
                self._waiting.take(self._stored_late)
            except Exception as failure:
                _log.warning("What waits in %s could not be stored (%s).", self._waiting.place, loggable(failure))

    def _stored_late(self, report: dict[str, Any]) -> bool:
        if report.get("run") != self.run:
            return False
        if report["call"] == "remember":
            asked, words, vector, wanted, worth, payload = report["given"]
            self._kept(asked, words, self._unit(vector), wanted, worth, payload)
        elif report["call"] == "reward":
            self._unused.taken("reward", partial(self._give, *report["given"]), None)
        else:
            step = REPORT.validate_python(report["given"])
            if step.embedding is not None:
                step.embedding = self._unit(step.embedding).tolist()
            step.sentences.insert(0, f"a bank that could be written when it ended: it waited in {self._waiting.place}")
            if self.bank.steps.attempt(step.id) is None:
                self._store(step)
        return True

    def _store(self, report: StepReport) -> StepTrace:
        """Store a step as the next one of the run. Raises what storing raises."""
        bank, before = self.bank, self._unused.kept()
        with bank.write.alone():
            trace, vectors = trace_of(bank, self.run, report, before)
            trace = bank.write.commit_step(trace, vectors)
            # A step held back by `batch` would be unknown to the next process that numbers its own.
            bank.write.flush()
        for operation in trace.operations:
            if operation.op in ("UPDATE", "MERGE"):
                self._renaming(operation.replaces, operation.memory_id)
        self._unused.forget(len(before))
        return trace

    def _wait(self, report: Mapping[str, Any], failure: Exception) -> None:
        """Keep a report that the bank could not take, and say so in the next step."""
        self._waiting.add({"run": self.run, **report})
        _log.warning("A %s could not be stored (%s). It waits.", report["call"], loggable(failure))
        what = f"A {report['call']} before this step could not be stored: {failure} It waits in {self._waiting.place}."
        self._unused.add(report["call"], StepError(what))

    def reward(self, step_or_id: int | str, value: float, reason: str = "", rater: str = "") -> None:
        """A reward that came after its step had ended, for the step of this number or of the agent's own id.

        Without a `rater` it is the reward of the agent's world, which a step has once; with one, that person's, which
        may be changed. Where it cannot be given, the next step says why; a strict recorder raises `InputError`.
        """
        try:
            number = _checked(NUMBER, value, "a reward")
            words = self._unused.text("reward", reason, "a reason")
            who = self._unused.text("reward", rater, "the name of a rater")
            if self._behind is not None:
                self._behind.submit(lambda: None).result()
            if not isinstance(step_or_id, int | str) or isinstance(step_or_id, bool):
                raise InputError(f"Name a step by its number or by the id that the agent gave it. {UNCHANGED}")
            try:
                self._must_be_free()
                self._give(step_or_id, number, words, who)
            except (BankError, OSError, InputError) as failure:
                if self._unused.strict or (isinstance(failure, InputError) and not self._waiting):
                    raise
                self._wait({"call": "reward", "given": [step_or_id, number, words, who]}, failure)
        except Exception as error:
            self._unused.add("reward", error)

    def _give(self, step_or_id: int | str, value: float, reason: str, rater: str) -> None:
        bank, run = self.bank, self.run
        with bank.write.alone():
            step = step_or_id
            if isinstance(step, str):
                row = bank.steps.attempt(_step_id(run, step))
                if row is None:
                    raise InputError(f"Run {run} has no step with the id “{step[:80]}”. {UNCHANGED}")
                step = row.step
            if not bank.steps.has(run, step):
                raise InputError(f"Run {run} has no step {step}. {UNCHANGED}")
            if rater:
                bank.write.ratings.rate(Rating(run, step, value, rater, reason))
                return
            trace = bank.trace(run, step)
            given = bank.write.event(
                run,
                step,
                EventKind.REWARD_GIVEN,
                trace.id,
                event_id=f"{trace.id}:environment",
                memory_ids=bank.credits.of(run, step),
                value=value,
                source="environment",
                reason=reason,
            )
            standing = bank.events_of([given.id])
            if standing and standing[0].value != value:
                raise InputError(
                    f"Step {step} of run {run} has the reward {standing[0].value:g} already, and the first counts; a "
                    f"person may give another. {UNCHANGED}"
                )
            bank.write.adopt({}, [given], [])

    def step(
        self, intent: str, *, embedding: Embedding | None = None, task: str = "", epoch: int = 1, id: str = ""
    ) -> RecordedStep:
        """A step to report in a `with` block; `embedding` (d,) is of any length, `task` names a task that recurs.

        `id` is the agent's own name for the step, by which `reward` finds it. A strict recorder raises `InputError` for
        an empty intent, an `id` that a step has, and an embedding that the bank cannot hold.
        """
        unused = _Unused(self._unused.strict, self._renamed)
        asked = unused.text("step", intent, "an intent, which says what the agent was asked to do")
        report = StepReport(
            id=uuid.uuid4().hex,
            intent=unused.value("step", INTENT, asked, "an intent") or NO_INTENT,
            task=unused.text("step", task, "a task's name"),
            epoch=unused.value("step", FROM_ONE, epoch, "an epoch") or 1,
            embedding=unused.taken("step", lambda: None if embedding is None else self._unit(embedding).tolist(), None),
            model=self._model,
            own_id=unused.taken("step", partial(self._own_id, id), ""),
        )
        if report.own_id:
            report.id = _step_id(self.run, report.own_id)
        return RecordedStep(self, report, unused)

    def _own_id(self, given: str) -> str:
        if given and self.bank.steps.attempt(_step_id(self.run, _checked(ID, given, "an id of a step"))) is not None:
            raise InputError(f"Run {self.run} has a step with the id “{given[:80]}” already. {UNCHANGED}")
        return given

    def remember(
        self,
        intent: str,
        experience: str,
        embedding: Embedding,
        *,
        memory_id: str = "",
        q: float = 0.0,
        visits: int = 0,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """The id of a memory that the agent has already, which the run knows from now on with this q.

        `metadata` is what else is known of it, as JSON: user, agent, tags, source, valid from …

        The same call again changes nothing. Of an id that has another text, the bank keeps the text that it has; a
        strict recorder raises `InputError`. Where nothing was kept, the id is the one that was given.
        """
        unused, call = self._unused, "remember"
        try:
            asked = _checked(INTENT, unused.text(call, intent, "an intent"), "an intent")
            words = unused.text(call, experience, "an experience")
            vector = self._unit(embedding)
            worth = unused.value(call, NUMBER, q, "a q") or 0.0
            uses = unused.value(call, COUNT, visits, "a number of visits") or 0
            wanted = _checked(ID, memory_id, "an id of a memory") if memory_id else ""
            payload = {"visits": uses, **_about(unused, call, metadata)}
            try:
                self._must_be_free()
                self._begin()
                return self._kept(asked, words, vector, wanted, worth, payload)
            except (BankError, OSError) as failure:
                if unused.strict:
                    raise
                wanted = wanted or f"{self.run}-{uuid.uuid4().hex[:12]}"
                self._wait({"call": call, "given": [asked, words, vector.tolist(), wanted, worth, payload]}, failure)
                return wanted
        except Exception as error:
            unused.add(call, error)
            return memory_id if isinstance(memory_id, str) else ""

    def _kept(
        self, asked: str, words: str, vector: Vector, wanted: str, worth: float, payload: Mapping[str, Any]
    ) -> str:
        with self.bank.write.alone():
            taken = wanted or self.bank.write.next_memory_id(self.run)
            step = self.bank.next_step(self.run) - 1
            memory = Memory(taken, asked, words, "unrated", intent_key(asked), (), self.run, step, "", now())
            if self.bank.holds(taken):
                memory = self.bank.memory(taken)
            if (memory.intent, memory.experience) != (asked, words):
                raise InputError(f"This bank has another memory “{taken[:80]}” already. {UNCHANGED}")
            if not self.bank.utilities(self.run, of=[taken]):
                event = self.bank.write.event(
                    self.run, step, EventKind.MEMORY_IMPORTED, memory_ids=(taken,), value=worth, payload=payload
                )
                self.bank.write.adopt({taken: (memory, vector)}, [event], [])
            return taken

    def _unit(self, embedding: Embedding) -> Vector:
        return unit(embedding, self.bank.embedder.dimension)


_Call = Callable[Concatenate["RecordedStep", Given], None]


def _reported(phase: Phase) -> Callable[[_Call[Given]], _Call[Given]]:
    """A report on this phase that raises nothing into the agent, unless the recorder is strict."""

    def around(call: _Call[Given]) -> _Call[Given]:
        @wraps(call)
        def report(step: RecordedStep, /, *args: Given.args, **kwargs: Given.kwargs) -> None:
            try:
                step._may(call.__name__)
                call(step, *args, **kwargs)
                step._did(call.__name__, phase)
            except Exception as error:
                step._not_used(call.__name__, error)

        return report

    return around


class RecordedStep:
    """A step to report inside its `with` block. Any call may be left out: the trace's `lacks` says which.

    Each is made once, but `recalled` once per retrieval and `answered` once per turn; a step that ends without `wrote`
    has written nothing. The time since the previous call counts for the phase. When the block raises, what was reported
    is stored as a step without a reward, and the exception is raised on.
    """

    def __init__(self, recorder: Recorder, report: StepReport, unused: _Unused) -> None:
        self._recorder, self._bank, self._run = recorder, recorder.bank, recorder.run
        self._report = report
        # What could not be used of this step, and of the calls between steps, which the next step keeps.
        self._unused, self._between = unused, recorder._unused
        self._mark, self._ended, self._is_recalled_since = 0.0, False, False
        self._storing: Future[None] | None = None
        self._stored: StepTrace | None = None

    def __enter__(self) -> Self:
        if self._report.started:
            self._not_used("step", StepError("This step has begun already. Ask the recorder for a new one."))
        else:
            self._report.started, self._mark = now(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ended:
            return
        self._ended = True
        self._report.failure = "" if kind is None else kind.__name__
        behind = self._recorder._behind
        try:
            if behind is None or self._unused.strict:
                self._stored_or_waiting()
            else:
                self._storing = behind.submit(self._stored_or_waiting)
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"The step could not be recorded either: {failure}")

    def _stored_or_waiting(self) -> None:
        """Store the step; where that fails, keep it for later. Raises where the recorder is strict."""
        self._report.sentences = self._unused.kept()
        try:
            self._recorder._must_be_free()
            self._recorder._begin()
            self._recorder._store_waiting()
            self._stored = self._recorder._store(self._report)
        except Exception as failure:
            if self._unused.strict:
                raise
            try:
                self._recorder._wait({"call": "step", "given": REPORT.dump_python(self._report, mode="json")}, failure)
            except Exception as second:
                _log.warning("A step of run %s is lost (%s).", self._run, loggable(second))

    def _not_used(self, call: str, error: Exception) -> None:
        """Keep why a report made by `call` could not be used: in this step, or in the next one when it has ended.

        Raises `error` where the recorder is strict.
        """
        (self._between if self._ended else self._unused).add(call, error)

    @property
    def trace(self) -> StepTrace:
        """The step as it was stored. Raises `StepError` before the block has ended."""
        if self._storing is not None:
            self._storing.result()
        if self._stored is None:
            raise StepError("A step is stored when its `with` block ends; there is no trace before.")
        return self._stored

    @_reported(Phase.RECALL)
    def recalled(
        self,
        hits: Hits,
        kind: SignalKind | None = None,
        signal: str | None = None,
        query: str | None = None,
        *,
        asked_by: str = "",
        scope: str = "",
        embedding: Embedding | None = None,
        seconds: float | None = None,
        k1: int | None = None,
        delta: float | None = None,
    ) -> None:
        """What one retrieval found: ids, (id, score), or (id, score, text); a step may have several.

        `kind` says what the scores are: "cosine" unless a `signal` is named, which is their name. Where they are no
        cosines, because of their kind, because one is out of [-1, 1] or because the vectors of the bank contradict
        them, they are kept as the agent's own: those of a declared kind rank by it (of a distance and a rank the
        smallest first), all others in the order given. `query` is what was asked where that is not the intent, with its
        `embedding`, `asked_by` who asked, `scope` what the query was restricted to, `k1` and `delta` the agent's pool
        size and gate. A strict recorder raises `InputError` for a memory that the run does not know and for a cosine
        out of [-1, 1].
        """
        report, unused = self._report, self._unused
        if "selected" in report.called and report.pool is None:
            raise StepError(f"Report what was recalled before what was selected. {UNCHANGED}")
        words = {
            name: " ".join(unused.text("recalled", text or "", what).split())
            for name, text, what in (
                ("signal", signal, "the name of a signal"),
                ("asked_by", asked_by, "the name of who asked"),
                ("scope", scope, "what a query was restricted to"),
            )
        }
        asked = unused.text("recalled", query or "", "a query")
        other: SignalKind = "other"
        of = unused.taken("recalled", partial(_kind, kind, words["signal"]), other)
        found = unused.hits("recalled", hits, cosines=of == "cosine")
        size = unused.optional("recalled", FROM_ONE, k1, "a pool size")
        gate = unused.optional("recalled", NUMBER, delta, "a gate")
        spent = unused.optional("recalled", NUMBER, seconds, "seconds")
        known = self._known("recalled", found)
        vector = report.vector if asked in ("", report.intent) else None
        if embedding is not None:
            vector = unused.taken("recalled", partial(self._recorder._unit, embedding), vector)
        measured = {} if vector is None else {one: float(self._bank.embedding(one) @ vector) for one in known}
        made = [replace(hit, cosine=measured.get(one), known=one in known) for one, hit in found.items()]
        if (
            kind is None
            and of == "other"
            and made
            and all(hit.cosine is not None and hit.score is not None for hit in made)
        ):
            of = "cosine"  # Scores of which only the name is known are what the stored vectors say.
        if of == "cosine" and not all(is_cosine(hit.score, hit.cosine) for hit in made if hit.score is not None):
            of = "other"
        if of in BEST_FIRST and all(hit.score is not None for hit in made):
            made.sort(key=lambda hit: BEST_FIRST[of] * (hit.score or 0.0))
        report.retrievals.append(Retrieval(tuple(made), of, query=asked, at=now(), seconds=spent, **words))
        report.known_then = {**report.known_then, **known}
        report.memories = self._bank.memory_count(self._run) if self._recorder.is_begun else 0
        report.pool = tuple(dict.fromkeys((*(report.pool or ()), *(hit.memory_id for hit in made if hit.known))))
        report.k1, report.delta = size or report.k1, report.delta if gate is None else gate
        self._is_recalled_since = True

    @_reported(Phase.RECALL)
    def scored(
        self,
        total: Mapping[str, float],
        parts: Parts | None = None,
        weights: Mapping[str, float] | None = None,
        name: str = "total",
    ) -> None:
        """The scores by which the agent ranked what it had recalled, largest first, under the `name` that they have.

        `parts` maps the name of each signal to its scores by memory, `weights` the name to its weight (1 where none is
        given). Scores of memories that were not recalled are not kept; a strict recorder raises `InputError` for them.
        """
        report, unused = self._report, self._unused
        totals = unused.numbers("scored", total, "a score")
        shares: dict[str, dict[str, float]] = {}
        for signal, scores in dict(parts or {}).items():
            label = unused.text("scored", signal, "the name of a signal")
            shares[label] = unused.numbers("scored", scores, f"a score “{label[:80]}”")
        factors: dict[str, float] = {}
        for signal, weight in dict(weights or {}).items():
            label = unused.text("scored", signal, "the name of a signal")
            factor = unused.value("scored", NUMBER, weight, "a weight")
            factors[label] = 1.0 if factor is None else factor
        strange = [one for one in totals if one not in (report.pool or ())]
        if strange:
            listed = few(f"“{one[:80]}”" for one in strange)
            self._not_used("scored", InputError(f"Scored but not recalled: {listed}. {UNCHANGED}"))
        label = unused.text("scored", name, "the name of a score") or "total"
        report.total = label, {one: score for one, score in totals.items() if one not in strange}
        report.parts, report.weights = shares, factors
        reported = {retrieval.name for retrieval in report.retrievals}
        for signal, scores in shares.items():
            if signal not in reported and scores:
                hits = tuple(Hit(one, score, known=one in report.known_then) for one, score in scores.items())
                report.retrievals.append(Retrieval(hits, _kind(None, signal), signal, at=now()))

    @_reported(Phase.SELECT)
    def selected(
        self, ids: Sequence[str], scores: Mapping[str, float] | None = None, q: Mapping[str, float] | None = None
    ) -> None:
        """What phase B chose, in the order of the prompt, with the agent's own scores and q of recalled memories.

        What a later retrieval of the step brought is selected by another call. A strict recorder raises `InputError`
        for memories that were not recalled.
        """
        report, unused = self._report, self._unused
        chosen = unused.ids("selected", ids)
        scored = unused.numbers("selected", scores, "a score")
        valued = unused.numbers("selected", q, "a q")
        pool = report.pool or ()
        usable = pool if report.pool is not None else self._known("selected", chosen)
        if report.total is not None:
            scored = {**report.total[1], **scored}
        named = [*(chosen if report.pool is not None else ()), *scored, *valued]
        if strange := list(dict.fromkeys(one for one in named if one not in pool)):
            listed = few(f"“{one[:80]}”" for one in strange)
            self._not_used("selected", InputError(f"Selected or scored but not recalled: {listed}. {UNCHANGED}"))
        chosen = [one for one in chosen if one in usable]
        report.chosen = tuple(dict.fromkeys((*(report.chosen or ()), *chosen)))
        report.scores |= {one: score for one, score in scored.items() if one in pool}
        report.q |= {one: worth for one, worth in valued.items() if one in pool}
        self._is_recalled_since = False

    @_reported(Phase.GENERATE)
    def prompted(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None) -> None:
        """What was sent to the model: messages with a role and a content, and the options (JSON) of the generation."""
        report, unused = self._report, self._unused
        sent = []
        for number, message in enumerate(messages, start=1):
            read = partial(_message, message, f"message {number} of a prompt")
            one = unused.taken("prompted", read, None)
            if one is not None:
                sent.append(Message(one.role, one.content or ""))
        nothing: dict[str, Any] = {}
        given = unused.taken("prompted", lambda: _checked(OPTIONS, dict(options or {}), "JSON"), nothing)
        report.messages, report.options = tuple(sent), given

    @_reported(Phase.GENERATE)
    def answered(
        self,
        text: str,
        *,
        prompt_tokens: int | None = None,
        answer_tokens: int | None = None,
        observation: str = "",
        seconds: float | None = None,
        cost: float | None = None,
    ) -> None:
        """The model's reply, with the token counts that it reported, and the world's observation after it.

        `seconds` is how long it took (the time since the call before, where that is not given), `cost` what it cost.
        """
        report, unused = self._report, self._unused
        read = unused.optional("answered", COUNT, prompt_tokens, "a token count")
        written = unused.optional("answered", COUNT, answer_tokens, "a token count")
        words = unused.text("answered", text, "an answer")
        seen = unused.text("answered", observation, "an observation")
        spent = unused.optional("answered", NUMBER, seconds, "seconds")
        price = unused.optional("answered", NUMBER, cost, "a cost")
        took = time.perf_counter() - self._mark if spent is None else spent
        reply = Reply(words, False, read, written, took, cost=price)
        report.turns.append(Turn(reply, seen, 0.0, terminated=False, truncated=False, tools=tuple(report.tools)))
        report.tools = []

    @_reported(Phase.GENERATE)
    def called(self, tool: str, arguments: Any = "", result: Any = "") -> None:
        """A tool that the agent used after its last reply: name, arguments and result, as text or JSON."""
        report, unused = self._report, self._unused
        name = unused.text("called", tool, "a tool's name")
        given, came = (
            one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, default=str)
            for one in (arguments, result)
        )
        used = ToolCall(name, unused.text("called", given, "arguments"), unused.text("called", came, "a result"))
        if report.turns:
            report.turns[-1] = replace(report.turns[-1], tools=(*report.turns[-1].tools, used))
        else:  # Before its first reply: they belong to the first turn.
            report.tools.append(used)

    @_reported(Phase.REWARD)
    def rewarded(self, value: float, why: str = "") -> None:
        """The reward that the agent's world gave; `why` is the verdict in words."""
        report = self._report
        reward = _checked(NUMBER, value, "a reward")
        report.reward, report.why = reward, self._unused.text("rewarded", why, "a verdict")

    @_reported(Phase.WRITE)
    def wrote(
        self,
        experience: str = "",
        memory_id: str = "",
        op: Operation = "add",
        replaces: Iterable[str] = (),
        reason: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """An operation on the memory; a step may have several.

        `add` writes the episode as a new memory under the step's embedding. `update` and `merge` write it in the place
        of the memories that it `replaces`, with their q; `supersede` as a new one, and deletes these; `delete` deletes
        them. What was replaced or deleted can still be shown in older steps. The bank names what is written unless an
        id is given that is free. `metadata` is what else is known of it, as JSON. Without an embedding of the step
        nothing is added. A strict recorder raises `InputError` where something cannot be done.
        """
        report, unused = self._report, self._unused
        if op not in get_args(Operation):
            raise InputError(f"“{op!s:.80}” is none of {', '.join(get_args(Operation))}. {UNCHANGED}")
        if op == "delete":
            words = ""
        elif isinstance(experience, str):
            words = unused.text("wrote", experience, "an experience")
        else:
            words = _checked(TEXT, experience, "an experience")  # Which raises.
        replaced = unused.ids("wrote", [replaces] if isinstance(replaces, str) else replaces)
        if op != "add":
            replaced = replaced or unused.ids("wrote", [memory_id] if memory_id else [])
            known = self._known("wrote", replaced)
            replaced = [one for one in replaced if one in known]
            if not replaced:
                raise InputError(f"Say which memories that the run knows are meant by {op}. {UNCHANGED}")
        wanted = "" if memory_id in replaced or op == "delete" else memory_id
        wanted = unused.taken("wrote", partial(self._free, wanted), "")
        if op == "add" and report.embedding is None:
            raise InputError(f"A memory needs an embedding: begin the step with one. {UNCHANGED}")
        why = unused.text("wrote", reason, "a reason")
        about = _about(unused, "wrote", metadata)
        report.written.append(Written(op, wanted, words, tuple(replaced), why, about))

    def _free(self, memory_id: str) -> str:
        if memory_id and self._bank.holds(_checked(ID, memory_id, "an id of a memory")):
            raise InputError(f"This bank has a memory “{memory_id[:80]}” already. {UNCHANGED}")
        return memory_id

    def _may(self, call: str) -> None:
        if not self._report.started or self._ended:
            raise StepError(f"A step is reported inside its `with` block. {UNCHANGED}")
        again = call in REPEATED or (call == "selected" and self._is_recalled_since)
        if call in self._report.called and not again:
            raise StepError(f"{call}() was called before in this step; the first report counts. {UNCHANGED}")
        self._report.tried.add(call)

    def _did(self, call: str, phase: Phase) -> None:
        at = time.perf_counter()
        self._report.seconds[phase.value] = self._report.seconds.get(phase.value, 0.0) + at - self._mark
        self._mark = at
        self._report.called.add(call)

    def _known(self, call: str, ids: Collection[str]) -> Mapping[str, Utility]:
        """The utilities of those of `ids` that the run knows."""
        if not self._recorder.is_begun:
            return {}
        known = self._bank.utilities(self._run, of=ids)
        if len(known) < len(ids):
            self._bank.refresh()
            known = self._bank.utilities(self._run, of=ids)
        if unknown := [f"“{one[:80]}”" for one in ids if one not in known]:
            what = f"the memory {unknown[0]}" if len(unknown) == 1 else f"the memories {few(unknown)}"
            self._not_used(
                call,
                InputError(
                    f"Run {self._run} does not know {what}: not remembered by remember(), or deleted. {UNCHANGED}"
                ),
            )
        return known


def _step_id(run: str, own_id: str) -> str:
    """The id of the step to which the agent gave this one."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{run}/{own_id}").hex


def _about(unused: _Unused, call: str, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata as an event and an operation hold it; nothing where there is none or it is not JSON."""
    nothing: dict[str, Any] = {}
    found = unused.taken(call, lambda: _checked(OPTIONS, dict(metadata or {}), "metadata, which is JSON"), nothing)
    return {METADATA: found} if found else {}


def _kind(given: Any, signal: str) -> SignalKind:
    """The kind that scores are declared as: that of a signal named like a kind, "other" of one that is only named."""
    if given is None:
        named: dict[str, SignalKind] = {one: one for one in KINDS}
        return named.get(signal.lower(), "other") if signal else "cosine"
    if given not in KINDS:
        raise InputError(f"“{given!s:.80}” is no kind of score: {', '.join(KINDS)}. {UNCHANGED}")
    kind: SignalKind = given
    return kind


def _message(given: Any, what: str) -> _Message:
    return _checked(MESSAGE, dict(given), what)
