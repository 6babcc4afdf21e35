"""The entry for other agents: one run of a bank, to which they add steps.

    with Recorder(bank).step("heat the egg", embedding=vector) as s:
        s.recalled([("r-0001", 0.83), ("r-0002", 0.41)])
        s.selected(["r-0001"])
        s.answered("heat egg with stove")
        s.rewarded(1.0)

Nothing is stored before the block ends. Then the step gets the next number, so any number of threads and processes of
one machine can report steps of one run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, StepError
from memrl_core.policies.base import intent_key
from memrl_core.recorder import step_report
from memrl_core.recorder.step_report import UNCHANGED, Embedding, Hits, StepReport, Vector, trace_of
from memrl_core.records import EventKind, LedgerEvent, Memory, Phase, Reply, RunInfo, StepTrace, Turn, Utility
from memrl_core.settings import MemRLSettings

ENVIRONMENT = "recorded"


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
        self._model = step_report.text(model, "A model's name")
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
                    created=_now(),
                )
                bank.start_run(info)

    def step(self, intent: str, *, embedding: Embedding | None = None, task: str = "", epoch: int = 1) -> RecordedStep:
        """A step to report in a `with` block; `embedding` (d,) is of any length, `task` names a task that recurs.

        Raises `InputError` for an empty intent or an embedding that the bank cannot hold.
        """
        return RecordedStep(
            self.bank,
            self.run,
            _intent(intent),
            step_report.text(task, "A task's name"),
            step_report.count(epoch, "an epoch", least=1),
            None if embedding is None else step_report.unit(embedding, self.bank.embedder.dimension),
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
        asked, words = _intent(intent), step_report.text(experience, "An experience")
        vector = step_report.unit(embedding, self.bank.embedder.dimension)
        worth, uses = step_report.number(q, "a q"), step_report.count(visits, "a number of visits")
        wanted = step_report.memory_id(memory_id) if memory_id else ""
        with self.bank.alone():
            taken = wanted or self.bank.next_memory_id(self.run)
            step = self.bank.next_step(self.run) - 1
            memory = Memory(taken, asked, words, "unrated", intent_key(asked), (), self.run, step, "", _now())
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
                    created=_now(),
                )
                self.bank.adopt({taken: (memory, vector)}, [event], [])
            return taken


def _intent(intent: object) -> str:
    found = step_report.text(intent, "An intent")
    if not found.strip():
        raise InputError(f"An intent is empty: say what the agent was asked to do. {UNCHANGED}")
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RecordedStep:
    """A step to report inside its `with` block. Any call may be left out: the trace's `lacks` says which.

    Each is made once, `answered` once per turn. The time since the previous call counts for the phase. When the block
    raises, what was reported is stored as a step without a reward, and the exception is raised on.
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
        self._report.started = _now()
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
        pool, report = step_report.hits(hits), self._report
        size = None if k1 is None else step_report.count(k1, "a pool size", least=1)
        gate = None if delta is None else step_report.number(delta, "a gate")
        report.values = self._known(pool)
        report.recalled, report.k1, report.delta = pool, size, gate
        report.memories = self._bank.memory_count(self._run)
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
        chosen = step_report.ids(ids)
        pool = self._report.recalled
        if pool is None:
            self._known(chosen)
        elif strange := [one for one in chosen if one not in pool]:
            raise InputError(f"The memory “{strange[0][:80]}” was selected but not recalled. {UNCHANGED}")
        scored, valued = step_report.numbers(scores, pool or (), "a score"), step_report.numbers(q, pool or (), "a q")
        self._report.selected, self._report.scores, self._report.q = chosen, scored, valued
        self._did("selected", Phase.SELECT)

    def prompted(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None) -> None:
        """What was sent to the model: messages with a role and a content, and the options (JSON) of the generation."""
        self._may("prompted")
        read = tuple(step_report.message(one, place) for place, one in enumerate(messages, start=1))
        self._report.options = step_report.options(options)
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
        """The model's reply, with the token counts that it reported, and the world's observation after it."""
        self._may("answered")
        counts = [None if n is None else step_report.count(n, "a token count") for n in (prompt_tokens, answer_tokens)]
        words, seen = step_report.text(text, "An answer"), step_report.text(observation, "An observation")
        reply = Reply(words, False, counts[0], counts[1], time.perf_counter() - self._mark)
        self._report.turns.append(Turn(reply, seen, 0.0, terminated=False, truncated=False))
        self._did("answered", Phase.GENERATE)

    def rewarded(self, value: float, why: str = "") -> None:
        """The reward that the agent's world gave; `why` is the verdict in words."""
        self._may("rewarded")
        reward, verdict = step_report.number(value, "a reward"), step_report.text(why, "A verdict")
        self._report.reward, self._report.why = reward, verdict
        self._did("rewarded", Phase.REWARD)

    def wrote(self, experience: str, memory_id: str = "") -> None:
        """Write the episode as a new memory under the step's embedding; the bank names it unless an id is given.

        Raises `InputError` for an id that the bank has, and when the step was begun without an embedding.
        """
        self._may("wrote")
        words = step_report.text(experience, "An experience")
        if memory_id and step_report.memory_id(memory_id) in self._bank.memory_ids():
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
            raise StepError(f"{call}() was called before in this step; the first report counts. {UNCHANGED}")

    def _did(self, call: str, phase: Phase) -> None:
        now = time.perf_counter()
        self._report.seconds[phase.value] = self._report.seconds.get(phase.value, 0.0) + now - self._mark
        self._mark = now
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
