"""A memory for any agent: both phases of a method, and a bank that keeps every recall as a step.

    memory = Memory.open("bank", run="prod", embedder="wordllama")
    hit = memory.recall("heat the egg")
    answer = model(hit.messages)
    hit.reward(1.0, reason="it was hot")
    hit.write("open the microwave, put the egg in")

A recall is stored as a step at once, so that nothing is lost when the program ends; its reward and what it writes come
after it. Any number of threads and processes of one machine may share a run.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import numpy as np

from memrl_core.agent.agent import step_seed
from memrl_core.agent.learned_state import learned_now
from memrl_core.agent.preferences import load_preferences, remember_bank
from memrl_core.agent.recorder import ENVIRONMENT, Recorder
from memrl_core.agent.run_parts import bank_at, embedder_of, make_embedder
from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.environments.tasks import check_intent
from memrl_core.errors import InputError
from memrl_core.policies import make_policy, settings_of
from memrl_core.policies.base import NewExperience, Vector, one_memory
from memrl_core.policies.decide import decide
from memrl_core.records import (
    SCOPE,
    EmbedRecord,
    EventKind,
    Message,
    Outcome,
    RewardRecord,
    RunInfo,
    StepTrace,
    Task,
    UpdateRecord,
)
from memrl_core.records import Memory as MemoryRecord
from memrl_core.retrieval.view import Asked

__all__ = ["Memory", "Recall"]

OPEN_FOR = timedelta(hours=1)
"""How long a recall that got no reward is shown as open."""
OPEN_UNTIL = "open_until"
"""Under which name the task of a recall holds until when it is open."""
ADDRESS = "http://localhost:8501"


class Memory:
    """The memory of an agent: one run of a bank, which any number of threads and processes may share.

    Make one with `open`. Its calls raise what `MemRLError` is the root of, with a sentence. `recorder` is that of its
    run.
    """

    def __init__(self, bank: MemoryBank, run: str, embedder: Embedder) -> None:
        self.bank, self.run, self.embedder = bank, run, embedder
        self.recorder = Recorder(bank, run, strict=True)

    @classmethod
    def open(
        cls,
        bank: str | Path | MemoryBank,
        run: str = "memory",
        embedder: str | Embedder | None = None,
        *,
        policy: str = "memrl",
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """The memory of a run. A bank or a run that is not there is made, the run under `policy` with its `settings`.

        `embedder` is one, or the name of one, such as "wordllama"; None is the bank's own. Raises `EmbedderMismatch`
        when it did not make the bank's vectors, `ModelError` when it cannot be had, `SettingsError`, and what opening a
        bank raises.
        """
        preferences = load_preferences()
        made = make_embedder(embedder, preferences) if isinstance(embedder, str) else embedder
        if not isinstance(bank, MemoryBank):
            bank = bank_at(str(bank), preferences, made)
        made = made or embedder_of(bank, preferences)
        bank.embedder.must_match(made)
        chosen = settings_of(policy, settings or {}).model_dump()
        with bank.write.alone():
            if run not in {info.id for info in bank.runs()}:
                bank.write.start_run(
                    RunInfo.of_others(run, ENVIRONMENT, chosen, "unknown", bank.embedder.name, now(), policy)
                )
        return cls(bank, run, made)

    def close(self) -> None:
        """Close the bank."""
        self.bank.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def recall(self, intent: str, *, task: str = "", of: Collection[str] | None = None, scope: str = "") -> Recall:
        """What the run's method recalls and selects for an intent, stored as a step of the run.

        `task` names a task that recurs. `of` are the ids of the memories that may be recalled (None: all of the run),
        and `scope` says in words which these are, such as "only user 7's". Raises `InputError` for an intent that is
        empty or no text, `ModelError` when it has no vector, and what writing raises.
        """
        bank, run = self.bank, self.run
        if not isinstance(intent, str):
            raise InputError(f"An intent is a text, not {type(intent).__name__}. Nothing was recalled.")
        asked = check_intent(intent)
        info = bank.run(run)
        policy = make_policy(info.policy, bank.settings(run))
        key = policy.key(Asked(np.zeros(0, dtype=np.float32), task, asked))
        (vector,) = embedded(self.embedder, [key])
        started = datetime.now(UTC)
        with bank.write.alone():
            number, settings = bank.next_step(run), bank.settings(run)
            policy, seed = make_policy(info.policy, settings), step_seed(info.seed, number)
            name = task or f"{run}-{number}"
            asking = Asked(vector, name, asked, step=number, seed=seed)
            view = replace(bank.view(run), asked=asking, learned=learned_now(bank, run))
            made = decide(policy, view if of is None else view.only(of), seed)
            open_until = {OPEN_UNTIL: (started + OPEN_FOR).isoformat(timespec="seconds")}
            credited = policy.credited(made.decision, None)
            lacks = ["what the model was sent and answered: the agent only asked its memory"]
            if of is not None:
                open_until[SCOPE] = scope or "some memories alone"
                lacks.append(f"the memories outside its scope ({scope or 'not named'}): they could not be recalled")
            trace = StepTrace(
                id=uuid.uuid4().hex,
                run=run,
                step=number,
                epoch=1,
                task=Task(name, asked, info.environment, data=open_until),
                policy=info.policy,
                settings=settings,
                started=started.isoformat(timespec="milliseconds"),
                embed=EmbedRecord(self.embedder.name, self.embedder.dimension, tuple(vector.tolist())),
                recall=made.recall,
                decision=made.decision,
                reward=RewardRecord(None, None, "unrated", "", "", "", credited),
                update=UpdateRecord(()),
                origin="recorder",
                lacks=tuple(lacks),
            )
            trace = bank.write.commit_step(trace, {})
            bank.write.flush()
            memories = tuple(bank.memory(memory_id) for memory_id in made.decision.selected)
        render = policy.render
        return Recall(self, trace, memories, lambda: render(memories, "", asked, "", made.view)[0])

    async def arecall(
        self, intent: str, *, task: str = "", of: Collection[str] | None = None, scope: str = ""
    ) -> Recall:
        """`recall` in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.recall, intent, task=task, of=of, scope=scope)

    def reward(self, of: Recall | int, value: float, reason: str = "", rater: str = "") -> None:
        """The reward of a recall, or of the step of this number; with a `rater`, that person's.

        Raises `InputError` for a step that is not there, a value that is no number, and another reward than the one
        that the world gave.
        """
        self.recorder.reward(of.step if isinstance(of, Recall) else of, value, reason, rater)

    def remember(self, intent: str, experience: str, embedding: Sequence[float] | Vector) -> str:
        """Store an experience for an intent that nobody recalled for, with its embedding (d,); returns its id.

        The same intent and experience again are the same memory.
        """
        memory_id = f"{self.run}-{_digest(intent, experience)}"
        return self.recorder.remember(intent, experience, embedding, memory_id=memory_id)

    def write(self, of: Recall | int, experience: str, outcome: Outcome | None = None) -> str:
        """Store what was learned in a recall, or in the step of this number, as a new memory; returns its id.

        `outcome` is that of the reward where nobody says. The same again in the same step is stored once, and under the
        run's setting `duplicates` what equals an older memory is that memory, or has its embedding. Raises `InputError`
        for a step that is not there and an empty experience.
        """
        bank, run, step = self.bank, self.run, of.step if isinstance(of, Recall) else of
        words = experience.strip() if isinstance(experience, str) else ""
        if not words:
            raise InputError("An experience is a text that says what was learned. Nothing was written.")
        if outcome not in (None, "success", "failure", "unrated"):
            raise InputError(f"“{outcome!s:.80}” is none of success, failure and unrated. Nothing was written.")
        with bank.write.alone():
            if not bank.steps.has(run, step):
                raise InputError(f"Run {run} has no step {step}. Nothing was written.")
            trace = bank.trace(run, step)
            if trace.embed is None:
                raise InputError(f"Step {step} of run {run} has no vector of its intent. Nothing was written.")
            if outcome is None:
                outcome = make_policy(trace.policy, trace.settings).outcome_of(bank.ratings.effective(run, step))
            event_id = f"{trace.id}:{_digest(words, outcome)}"
            if stored := bank.events_of([event_id]):
                return stored[0].memory_ids[0]
            q0 = trace.settings.get("q0_failure" if outcome == "failure" else "q0_success", 0.0)
            parents = trace.decision.selected if trace.decision is not None else ()
            new = NewExperience(
                memory_id=bank.write.next_memory_id(run),
                intent=trace.task.intent,
                embedding=np.asarray(trace.embed.embedding, dtype=np.float32),
                experience=words,
                outcome=outcome,
                parents=parents,
                trace=trace,
                fresh_id=partial(bank.write.next_memory_id, run),
                embed=partial(embedded, self.embedder),
            )
            written = one_memory(new, bank.view(run), settings_of(trace.policy, trace.settings))
            made = written.operation
            if made.duplicate_of is not None:
                return made.duplicate_of
            assert written.embedding is not None
            memory = MemoryRecord(
                made.memory_id, made.intent, words, outcome, made.intent_key, parents, run, step, trace.task.id, now()
            )
            event = bank.write.event(
                run,
                step,
                EventKind.MEMORY_WRITTEN,
                trace.id,
                event_id=event_id,
                memory_ids=(memory.id,),
                value=float(q0),
            )
            bank.write.adopt({memory.id: (memory, written.embedding)}, [event], [])
        return memory.id


class Recall:
    """What a memory recalled for one intent: a step of its run.

    `memories` are those to be put before the model, in that order; `trace` holds every number that decided.
    """

    def __init__(
        self,
        memory: Memory,
        trace: StepTrace,
        memories: Sequence[MemoryRecord],
        render: Callable[[], Sequence[Message]],
    ) -> None:
        self._memory, self._render = memory, render
        self.trace, self.memories = trace, tuple(memories)

    @property
    def step(self) -> int:
        """The number of the step."""
        return self.trace.step

    @cached_property
    def messages(self) -> list[dict[str, str]]:
        """The memories and the intent as chat messages with `role` and `content`, none of them empty."""
        return [{"role": one.role, "content": one.content} for one in self._render() if one.content]

    @property
    def text(self) -> str:
        """The memories as one text, "" without any."""
        return "\n\n".join(memory.experience for memory in self.memories)

    @property
    def url(self) -> str:
        """A link to the step in the app that `memrl app` starts."""
        return step_url(self._memory.bank, self.trace.run, self.step)

    def reward(self, value: float, reason: str = "", rater: str = "") -> None:
        """See `Memory.reward`."""
        self._memory.reward(self, value, reason, rater)

    def write(self, experience: str, outcome: Outcome | None = None) -> str:
        """See `Memory.write`."""
        return self._memory.write(self, experience, outcome)


def _digest(*parts: str) -> str:
    """Equal for the same texts."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def step_url(bank: MemoryBank, run: str, step: int) -> str:
    """A link to a step in the app of this machine, which then knows the bank by a name.

    Raises `InputError` where that name cannot be kept.
    """
    uri = bank.uri if "://" in bank.uri else str(Path(bank.uri).resolve())
    return f"{ADDRESS}/step?{urlencode({'bank': remember_bank(uri), 'run': run, 'step': step})}"


def is_open(trace: StepTrace, rewarded: bool) -> str:
    """How a recall stands that nobody has rewarded, in words; "" for any other step."""
    until = str(trace.task.data.get(OPEN_UNTIL, ""))
    if not until or rewarded or trace.origin != "recorder":
        return ""
    if datetime.now(UTC).isoformat(timespec="seconds") < until:
        return f"This recall is open until {until}: nobody has rewarded it yet."
    return f"This recall ended at {until} without a reward. One that comes later still counts."
