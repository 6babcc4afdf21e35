"""One step that another agent reports, call by call."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from memrl_core.bank import MemoryBank
from memrl_core.errors import BankError, InputError, StepError
from memrl_core.recorder import incoming
from memrl_core.recorder.incoming import UNCHANGED, Hits, Vector
from memrl_core.recorder.step_report import StepReport, trace_of
from memrl_core.records import Phase, Reply, StepTrace, Turn, Utility


class RecordedStep:
    """A step to report inside its `with` block. Any call may be left out: the trace's `lacks` says which.

    Each is made once, but `answered` once a turn. The time since the call before is taken for the phase's. When the
    block raises, what was reported is stored as a step without a reward and the exception goes on.
    """

    def __init__(
        self, bank: MemoryBank, run: str, intent: str, task: str, epoch: int, embedding: Vector | None, model: str
    ) -> None:
        self._bank, self._run = bank, run
        self._report = StepReport(uuid.uuid4().hex, intent, task, epoch, embedding, model)
        self._called: set[str] = set()
        self._mark = 0.0
        self._trace: StepTrace | None = None
        self._ended = False

    def __enter__(self) -> Self:
        if self._report.started:
            raise StepError("This step has begun already. Ask the recorder for a new one.")
        self._report.started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._mark = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._report.failure = "" if kind is None else kind.__name__
        try:
            self._store()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"The step could not be recorded either: {failure}")

    @property
    def trace(self) -> StepTrace:
        """The step as it was stored. Raises `StepError` before the block has ended."""
        if self._trace is None:
            raise StepError("A step is stored when its `with` block ends; there is no trace before.")
        return self._trace

    def recalled(self, hits: Hits, *, k1: int | None = None, delta: float | None = None) -> None:
        """The pool of phase A: ids, or ids with cosines; `k1` and `delta` are the agent's pool size and gate.

        Raises `InputError` for a memory that the run does not know and for what is no cosine.
        """
        self._may("recalled")
        if "selected" in self._called:
            raise StepError(f"Report what was recalled before what was selected. {UNCHANGED}")
        pool = incoming.hits(hits)
        size = None if k1 is None else incoming.count(k1, "a pool size", least=1)
        gate = None if delta is None else incoming.number(delta, "a gate")
        known = self._known(pool)
        self._report.recalled, self._report.k1, self._report.delta = pool, size, gate
        self._report.values, self._report.memories = known, self._bank.memory_count(self._run)
        self._did("recalled", Phase.RECALL)

    def selected(
        self,
        ids: Sequence[str],
        scores: Mapping[str, float] | None = None,
        q: Mapping[str, float] | None = None,
    ) -> None:
        """What phase B chose, in the order of the prompt, with the agent's own scores and q of recalled memories.

        Raises `InputError` for memories that were not recalled.
        """
        self._may("selected")
        chosen = incoming.ids(ids)
        pool = self._report.recalled
        if pool is None:
            self._known(chosen)
        elif strange := [one for one in chosen if one not in pool]:
            raise InputError(f"The memory “{strange[0][:80]}” was selected but not recalled. {UNCHANGED}")
        scored, valued = incoming.numbers(scores, pool or (), "a score"), incoming.numbers(q, pool or (), "a q")
        self._report.selected, self._report.scores, self._report.q = chosen, scored, valued
        self._did("selected", Phase.SELECT)

    def prompted(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None) -> None:
        """What was sent to the model: messages with a role and a content, and the options (JSON) of the generation."""
        self._may("prompted")
        read = tuple(incoming.message(one, place) for place, one in enumerate(messages, start=1))
        self._report.options = incoming.options(options)
        self._report.messages = read
        self._did("prompted", Phase.GENERATE)

    def answered(
        self,
        text: str,
        *,
        prompt_tokens: int | None = None,
        answer_tokens: int | None = None,
        observation: str = "",
    ) -> None:
        """What the model said, with the token counts that it reported, and what the world said to it."""
        self._may("answered")
        counts = [None if n is None else incoming.count(n, "a token count") for n in (prompt_tokens, answer_tokens)]
        words, seen = incoming.text(text, "An answer"), incoming.text(observation, "An observation")
        reply = Reply(words, False, counts[0], counts[1], time.perf_counter() - self._mark)
        self._report.turns.append(Turn(reply, seen, 0.0, terminated=False, truncated=False))
        self._did("answered", Phase.GENERATE)

    def rewarded(self, value: float, why: str = "") -> None:
        """How well it went, as the agent's world says; `why` is the verdict in words."""
        self._may("rewarded")
        reward, verdict = incoming.number(value, "a reward"), incoming.text(why, "A verdict")
        self._report.reward, self._report.why = reward, verdict
        self._did("rewarded", Phase.REWARD)

    def wrote(self, experience: str, memory_id: str = "") -> None:
        """The episode as a new memory under the step's embedding; the bank names it unless an id is given.

        Raises `InputError` for an id that the bank has, and when the step was begun without an embedding.
        """
        self._may("wrote")
        words = incoming.text(experience, "An experience")
        if memory_id and incoming.memory_id(memory_id) in self._bank.memory_ids():
            raise InputError(f"This bank has a memory “{memory_id[:80]}” already. {UNCHANGED}")
        if self._report.embedding is None:
            raise InputError(f"A memory needs an embedding: begin the step with one. {UNCHANGED}")
        self._report.experience, self._report.memory_id = words, memory_id
        self._did("wrote", Phase.WRITE)

    # --- the steps of a report ----------------------------------------------------------------------------------------

    def _may(self, call: str) -> None:
        if not self._report.started or self._ended:
            raise StepError(f"A step is reported inside its `with` block. {UNCHANGED}")
        if call in self._called and call != "answered":
            raise StepError(f"{call}() was called before in this step; the first report stands. {UNCHANGED}")

    def _did(self, call: str, phase: Phase) -> None:
        now = time.perf_counter()
        self._report.seconds[phase.value] = self._report.seconds.get(phase.value, 0.0) + now - self._mark
        self._mark = now
        self._called.add(call)

    def _known(self, ids: Collection[str]) -> Mapping[str, Utility]:
        """What the run believes of `ids`, which it has to know."""
        believed = self._bank.utilities_of(self._run, ids)
        if len(believed) < len(ids):
            self._bank.refresh()
            believed = self._bank.utilities_of(self._run, ids)
        for one in ids:
            if one not in believed:
                raise InputError(f"{self._why_unknown(one)}: tell it with remember() first. {UNCHANGED}")
        return believed

    def _why_unknown(self, memory_id: str) -> str:
        try:
            self._bank.memory(memory_id)
        except BankError:
            return f"This bank holds no memory “{memory_id[:80]}”"
        return f"Run {self._run} does not know the memory “{memory_id[:80]}”, which another run wrote"

    def _store(self) -> None:
        bank, report = self._bank, self._report
        with bank.alone():
            trace = trace_of(report, bank, self._run)
            vectors = {}
            if trace.write is not None and report.embedding is not None:
                vectors = {operation.memory_id: report.embedding for operation in trace.write.operations}
            bank.commit_step(trace, vectors)
            # A step held back by `batch` would be unknown to the next process that numbers its own.
            bank.flush()
            self._trace = trace
