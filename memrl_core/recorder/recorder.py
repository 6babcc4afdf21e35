"""The entry for other agents: one run of a bank, to which they add steps.

    with Recorder(bank).step("heat the egg", embedding=vector) as s:
        s.recalled([("r-0001", 0.83), ("r-0002", 0.41)])
        s.selected(["r-0001"])
        s.answered("heat egg with stove")
        s.rewarded(1.0)

Nothing is stored before the block ends. Then the step gets the number that comes next, so that any number of threads
and processes of one machine can report steps of one run.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from memrl_core.bank import MemoryBank
from memrl_core.errors import BankError, InputError
from memrl_core.policies.base import intent_key
from memrl_core.recorder import incoming
from memrl_core.recorder.incoming import UNCHANGED, Embedding
from memrl_core.recorder.step import RecordedStep
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo
from memrl_core.settings import MemRLSettings

ENVIRONMENT = "recorded"


class Recorder:
    """Adds the steps of another agent to one run of a bank; threads may share it.

    A run that the bank does not have is started with these `settings` (None: the default ones); one that it has goes on
    under its own. `model` is the name of the language model that answers. Raises `InputError` for a name that a run
    cannot have.
    """

    def __init__(
        self, bank: MemoryBank, run: str = "recorded", settings: MemRLSettings | None = None, model: str = "unknown"
    ) -> None:
        self.bank, self.run = bank, run
        self._model = incoming.text(model, "A model's name")
        with bank.alone():
            if run not in {info.id for info in bank.runs()}:
                bank.start_run(self._started(settings or MemRLSettings()))

    def step(self, intent: str, *, embedding: Embedding | None = None, task: str = "", epoch: int = 1) -> RecordedStep:
        """A step to report in a `with` block; `embedding` (d,) is of any length, `task` names a task that recurs.

        Raises `InputError` for an empty intent or an embedding that the bank cannot hold.
        """
        return RecordedStep(
            self.bank,
            self.run,
            _intent(intent),
            incoming.text(task, "A task's name"),
            incoming.count(epoch, "an epoch", least=1),
            None if embedding is None else incoming.unit(embedding, self.bank.embedder.dimension),
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
        """Let the run know a memory that the agent has already, with the q it had; returns its id.

        Telling the same again changes nothing. Raises `InputError` for an id that stands for another text.
        """
        asked, words = _intent(intent), incoming.text(experience, "An experience")
        vector = incoming.unit(embedding, self.bank.embedder.dimension)
        worth, uses = incoming.number(q, "a q"), incoming.count(visits, "a number of visits")
        wanted = incoming.memory_id(memory_id) if memory_id else ""
        with self.bank.alone():
            taken = wanted or self.bank.next_memory_id(self.run)
            step = self.bank.next_step(self.run) - 1
            memory = self._stored(taken) or Memory(
                taken, asked, words, "unrated", intent_key(asked), (), self.run, step, "", _now()
            )
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

    def _stored(self, memory_id: str) -> Memory | None:
        try:
            return self.bank.memory(memory_id)
        except BankError:
            return None

    def _started(self, settings: MemRLSettings) -> RunInfo:
        return RunInfo(
            id=self.run,
            environment=ENVIRONMENT,
            tasks="",
            policy="memrl",
            settings=settings.model_dump(),
            seed=0,
            model=self._model,
            simulated=False,
            embedder=self.bank.embedder.name,
            base=None,
            base_step=0,
            created=_now(),
        )


def _intent(intent: object) -> str:
    found = incoming.text(intent, "An intent")
    if not found.strip():
        raise InputError(f"An intent is empty: say what the agent was asked to do. {UNCHANGED}")
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
