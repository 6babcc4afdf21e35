"""One cell of an experiment: one arm on one stream under one seed, run in a bank of its own."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from memrl_core import __version__
from memrl_core.agent import Agent
from memrl_core.agent.preferences import Preferences, discard_bank, load_preferences
from memrl_core.agent.run_parts import HASHING, create_bank, embedder_of, is_simulated, must_be_there
from memrl_core.agent.runs import live_run, start_run
from memrl_core.agent.setup import give
from memrl_core.analysis.compare.counterfactual import OTHER_TIES, counterfactual
from memrl_core.analysis.decision.explain import tied_at
from memrl_core.analysis.decision.outline import valid_answers
from memrl_core.analysis.run.consultations import step_cost
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.storage.addresses import is_local
from memrl_core.environments import environment_class
from memrl_core.environments.tasks import named_tasks
from memrl_core.errors import BankError, BankMissing, EmbedderMismatch, InputError, ModelChanged
from memrl_core.experiments.plan import ArmPlan, Plan, Stage, Stream
from memrl_core.experiments.study import STEPS_A_WRITE, USE_SEED, frozen_step, whole_step
from memrl_core.models.base import Cancelled, checked_options, never
from memrl_core.models.hosts import Hosts
from memrl_core.policies import make_policy, settings_of
from memrl_core.policies.texts import memories_in_prompts
from memrl_core.records import RunInfo, StepTrace, Task

LEARN, EVALUATE = "learn", "evaluate"
RUN = "learn"
_LATIN = str.maketrans({"λ": "weight", "α": "alpha", "δ": "delta", "ε": "epsilon"})

_TRACE = TypeAdapter(StepTrace)
_INT, _FLOAT, _TEXT, _BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
SCHEMA = pa.schema(
    {
        **dict.fromkeys(("arm", "policy", "badge", "stream"), _TEXT),
        "seed": _INT,
        "phase": _TEXT,
        "stage": _INT,
        "set": _TEXT,
        **dict.fromkeys(("epoch", "step"), _INT),
        **dict.fromkeys(("task", "family"), _TEXT),
        "success": _BOOL,
        **dict.fromkeys(("chance", "reward"), _FLOAT),
        **dict.fromkeys(("memories", "memories_after", "pool"), _INT),
        "used": pa.list_(_TEXT),
        **dict.fromkeys(("used_similarity", "used_q"), pa.list_(_FLOAT)),
        "used_visits": pa.list_(_INT),
        "used_outcome": pa.list_(_TEXT),
        **dict.fromkeys(("used_same_task", "used_poison"), pa.list_(_BOOL)),
        **dict.fromkeys(("tied", "other_by_tie", "tainted"), _BOOL),
        "poison_left": _INT,
        "poison_q": _FLOAT,
        **dict.fromkeys(("prompt_tokens", "answer_tokens", "calls", "consulted", "unparsed", "choices", "valid"), _INT),
        "follows": pa.list_(_TEXT),
        **dict.fromkeys(("at_hand", "taken"), _BOOL),
    }
)
"""A row per step; equal for equal cells. `badge` says whose rules the policy follows (`PolicySpec.variant`). `chance`
is the true chance that what was answered works, null where nobody knows it. `used…` is what was selected when the task
began; q and visits are those before the step. `tied`: equals stood on both sides of the cut of k1 or of k2, and
`other_by_tie` where the other rule for ties would have selected others. `memories` were seen when it began and
`memories_after` when it had ended. `tainted`: a poisoned memory, or one that descends from such a one, was in the
prompt; `poison_left` poisoned memories were there after the step, with the mean q `poison_q`. Then its cost
(`analysis.run.consultations`), how many answers had to be one of those offered, and how many were; and the memories
that the answer follows, whether the right answer was at hand in the prompt, and whether it was taken, null where
unknown (`agent.follows`)."""

CELL = ["arm", "stream", "seed"]
SECONDS = b"seconds"
"""Key of a table's metadata: by step, how long it took and how long its model (JSON), in the order of the rows."""
SKIPPED = b"skipped"
"""Key of a table's metadata: how many steps were skipped, because a text of them has no vector."""


class Cell(BaseModel):
    """What a cell does; equal cells do the same, bit for bit. `epochs` holds for stages that do not say their own."""

    model_config = ConfigDict(frozen=True)

    arm: ArmPlan
    settings: dict[str, Any]
    stream: Stream
    seed: int
    epochs: int
    model: str
    model_options: dict[str, Any] = Field(default_factory=dict)
    embedder: str = HASHING

    @property
    def fingerprint(self) -> str:
        """A name for exactly this cell, with the tasks as they are, under this version of the program."""
        sets = [*(stage.tasks for stage in self.stream.stages), *self.stream.evaluate]
        content = json.dumps(
            [__version__, SCHEMA.names, self.model_dump(mode="json"), *map(_tasks_digest, sets)], sort_keys=True
        )
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def steps(self) -> int:
        """How many steps it has, frozen uses among them."""
        stream = self.stream
        learned = sum((one.epochs or self.epochs) * (one.count or _tasks_in(one.tasks)) for one in stream.stages)
        used = sum(stream.evaluate_count or _tasks_in(name) for name in stream.evaluate)
        return learned + len(stream.stages) * used

    @property
    def name(self) -> str:
        """A name for people and for folders."""
        plain = f"{self.arm.name} {self.stream.name}".lower().translate(_LATIN)
        words = re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")
        return f"{words[:60]}-s{self.seed}-{self.fingerprint[:8]}"


@cache
def _tasks_digest(name: str) -> str:
    return hashlib.sha256(TypeAdapter(list[Task]).dump_json(named_tasks(name))).hexdigest()


@cache
def _tasks_in(name: str) -> int:
    return len(named_tasks(name))


def cells_of(plan: Plan) -> list[Cell]:
    """All cells of a plan, a seed after the other, so that a part of them is already a fair comparison."""
    return [
        Cell(
            arm=arm,
            settings=plan.settings_of(arm).model_dump() | ({} if stream.own_memories else {"exclude_same_task": True}),
            stream=stream,
            seed=seed,
            epochs=plan.epochs,
            model=plan.model,
            model_options={**plan.model_options, **arm.model_options},
            embedder=plan.embedder,
        )
        for seed in plan.all_seeds()
        for stream in plan.streams
        for arm in plan.all_arms()
    ]


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The steps that an attempt at a cell left in its bank, by run, and the rows of the first of them."""

    traces: Mapping[str, Sequence[StepTrace]] = field(default_factory=dict)
    rows: Sequence[dict[str, Any]] = ()

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return sum(map(len, self.traces.values()))

    def trace(self, run: str, step: int) -> StepTrace | None:
        """A step of a run, counted from 1; None for one that is missing."""
        traces = self.traces.get(run, ())
        return traces[step - 1] if step <= len(traces) else None


class _CannotGoOn(Exception):
    """What an attempt left cannot be used, and why, as a clause."""


def run_cell(
    cell: Cell,
    uri: str,
    cancelled: Cancelled = never,
    on_step: Callable[[], object] | None = None,
    hosts: Hosts | None = None,
    checkpoint: Path | None = None,
    on_note: Callable[[str], object] | None = None,
) -> pa.Table:
    """Run a cell in a bank at `uri`. Its table is the same whether it was run at once or in several attempts.

    The file `checkpoint` holds the rows of an attempt that ended early; where it is there, the cell goes on in that
    attempt's bank, with the step that is missing. Where they do not fit together, `on_note` gets the sentence that says
    why, and the cell begins anew, as it does without a `checkpoint`: what lies at `uri` is deleted first.

    The table has a row per step (`SCHEMA`) and, in its metadata, the cell's fingerprint, a digest of all its traces,
    which is equal for equal cells, and durations (`SECONDS`), which are not. `on_step` is called after every step that
    is not in the checkpoint; `hosts` answer for the model.
    Raises `Stopped` when `cancelled()` turns true, and what a run raises.
    """
    noted = rows_in(checkpoint)
    try:
        earlier = _left(cell, uri, checkpoint)
        if earlier.steps:
            return _run(cell, uri, cancelled, on_step, hosts, checkpoint, noted, earlier)
    except (_CannotGoOn, ModelChanged, EmbedderMismatch) as error:
        what = "embedder" if isinstance(error, EmbedderMismatch) else "model"
        why = str(error) if isinstance(error, _CannotGoOn) else f"its {what} has other weights now"
        if on_note is not None:
            on_note(f"The cell {cell.name} was cut short and cannot go on where it was: {why}. It began anew.")
    _clear(uri, made_here=checkpoint is not None and checkpoint.exists())
    return _run(cell, uri, cancelled, on_step, hosts, checkpoint, noted, _Earlier())


def rows_in(checkpoint: Path | None) -> int:
    """How many rows the checkpoint of a cell has; 0 where there is none."""
    if checkpoint is None or not checkpoint.exists():
        return 0
    with checkpoint.open("rb") as file:
        return max(0, sum(line.endswith(b"\n") for line in file) - 1)


def _left(cell: Cell, uri: str, checkpoint: Path | None) -> _Earlier:
    """What an earlier attempt at `cell` left; nothing where there was none. Raises `_CannotGoOn`."""
    if checkpoint is None or not checkpoint.exists():
        return _Earlier()
    rows = []
    with checkpoint.open(encoding="utf-8", errors="replace") as file:
        if file.readline() != f"{cell.fingerprint}\n":
            raise _CannotGoOn("what is left is of another cell")
        for line in file:
            try:
                rows.append(json.loads(line))
            except ValueError:  # A kill can cut the last line, which is written again.
                break
    if not rows:  # Nothing is lost, and a kill may have cut short how its bank was made.
        return _Earlier()
    if is_local(uri) and not Path(uri).exists():
        raise _CannotGoOn("its bank was deleted")
    if broken := [finding.sentence for finding in check(uri) if not finding.ok]:
        raise _CannotGoOn(f"its bank is damaged ({broken[0].rstrip('.')})")
    try:
        with MemoryBank.open(uri) as bank:
            if any(bank.ratings.raters(info.id) for info in bank.runs()):
                raise _CannotGoOn("somebody rated steps in its bank")
            traces = {info.id: bank.traces(info.id) for info in bank.runs()}
    except BankError as error:
        raise _CannotGoOn(f"its bank cannot be read ({str(error).rstrip('.')})") from None
    found = _Earlier(traces, rows)
    # A row is noted when its step is stored, or held back for a write of several.
    if found.steps > len(rows) + 1:
        raise _CannotGoOn("the rows of some of its steps are lost")
    return replace(found, rows=rows[: found.steps])


def _run(
    cell: Cell,
    uri: str,
    cancelled: Cancelled,
    on_step: Callable[[], object] | None,
    hosts: Hosts | None,
    checkpoint: Path | None,
    noted: int,
    earlier: _Earlier,
) -> pa.Table:
    preferences = load_preferences()
    # A step of a real model takes longer than a write, and is not to be lost.
    at_once = STEPS_A_WRITE if is_simulated(cell.model) else 1
    with ExitStack() as worlds:
        note = _noting(cell, checkpoint, earlier.rows, worlds)
        bank = worlds.enter_context(
            MemoryBank.open(uri) if earlier.steps else create_bank(uri, cell.embedder, preferences)
        )
        course = _Course(cell, bank, preferences, cancelled, worlds, hosts, earlier)
        with bank.write.batch(at_once):
            rows = []
            for row in course.rows():
                rows.append(row)
                if len(rows) > len(earlier.rows):
                    note(row)
                if on_step is not None and len(rows) > noted:
                    on_step()
            _mark_other_ties(bank, cell, rows)
    metadata = {
        "fingerprint": cell.fingerprint,
        "digest": course.digest.hexdigest(),
        "version": __version__,
        SECONDS: json.dumps(course.seconds),
        SKIPPED: str(course.skipped),
    }
    return pa.Table.from_pylist(rows, SCHEMA.with_metadata(metadata))


def _noting(
    cell: Cell, checkpoint: Path | None, rows: Sequence[dict[str, Any]], closing: ExitStack
) -> Callable[[dict[str, Any]], object]:
    """What appends a row to the checkpoint of a cell, which begins with `rows`; nothing where it has none."""
    if checkpoint is None:
        return lambda row: None
    draft = checkpoint.with_name(f"{checkpoint.name}.draft")
    draft.write_text("".join([f"{cell.fingerprint}\n", *map(_line, rows)]), encoding="utf-8")
    draft.replace(checkpoint)
    file = closing.enter_context(checkpoint.open("a", encoding="utf-8", buffering=1))
    return lambda row: file.write(_line(row))


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=lambda number: number.item()) + "\n"


def _mark_other_ties(bank: MemoryBank, cell: Cell, rows: Sequence[dict[str, Any]]) -> None:
    """Fill in for which steps of learning the other rule for ties would have selected another set."""
    learned = {row["step"]: row for row in rows if row["phase"] == LEARN}
    if not any(row["tied"] for row in learned.values()):
        return
    other = OTHER_TIES[str(cell.settings.get("ties", "seeded"))]
    for one in counterfactual(bank, RUN, {"ties": other}):
        learned[one.step]["other_by_tie"] = set(one.recorded) != set(one.selected)


def drawn(name: str, count: int, seed: int) -> list[Task]:
    """`count` tasks (0: all) of a set, drawn and put in order by the seed alone."""
    tasks = named_tasks(name)
    order = np.random.default_rng([seed, zlib.crc32(name.encode())]).permutation(len(tasks))
    return [tasks[position] for position in order[: count or len(tasks)]]


def of_epoch(chosen: Sequence[Task], stage: Stage, epoch: int, seed: int) -> list[Task]:
    """The tasks of an epoch (0: the first) of fresh ones: new, or with the chance `stage.repeat` of an earlier epoch.

    Equal for all arms under a seed; a higher chance repeats what a lower one does, and more.
    """
    first = epoch * stage.count
    rng = np.random.default_rng([seed, epoch, zlib.crc32(b"repeat")])
    chances, earlier = rng.random(stage.count), rng.integers(0, max(first, 1), stage.count)
    repeated = (chances < stage.repeat) & (epoch > 0)
    return [chosen[earlier[n] if repeated[n] else first + n] for n in range(stage.count)]


class _Course:
    """One cell on its way through its stream."""

    def __init__(
        self,
        cell: Cell,
        bank: MemoryBank,
        preferences: Preferences,
        cancelled: Cancelled,
        worlds: ExitStack,
        hosts: Hosts | None,
        earlier: _Earlier,
    ) -> None:
        self._cell, self._bank, self._preferences, self._cancelled = cell, bank, preferences, cancelled
        self._worlds, self._hosts, self._earlier = worlds, hosts, earlier
        self._badge = make_policy(cell.arm.policy, cell.settings).spec.variant
        self.digest = hashlib.sha256()
        self.seconds: list[tuple[float, float]] = []
        self.skipped = 0
        self._steps: dict[str, int] = {}
        self._poisoned: set[str] = set()
        self._tainted: set[str] = set()

    def rows(self) -> Iterator[dict[str, Any]]:
        cell, epoch = self._cell, 0
        total = sum(stage.epochs or cell.epochs for stage in cell.stream.stages)
        agent = self._agent(RUN, cell.seed, None)
        for number, stage in enumerate(cell.stream.stages, start=1):
            epochs = stage.epochs or cell.epochs
            chosen = drawn(stage.tasks, stage.count * epochs if stage.fresh else stage.count, cell.seed)
            for turn in range(epochs):
                tasks = of_epoch(chosen, stage, turn, cell.seed) if stage.fresh else chosen
                self._intervene(epoch, total, tasks)
                epoch += 1
                for task in tasks:
                    yield self._step(whole_step, agent, task, epoch, LEARN, number, stage.tasks)
            for name in cell.stream.evaluate:
                run = f"{EVALUATE}-{number}-{re.sub('[^A-Za-z0-9.]+', '-', name)}"
                frozen = self._agent(run, cell.seed + USE_SEED * number, RUN)
                for task in drawn(name, cell.stream.evaluate_count, cell.seed):
                    yield self._step(frozen_step, frozen, task, epoch, EVALUATE, number, name)

    def _step(
        self,
        play: Callable[[Agent, Task, int, Cancelled], StepTrace],
        agent: Agent,
        task: Task,
        epoch: int,
        phase: str,
        stage: int,
        name: str,
    ) -> dict[str, Any]:
        """The row of the next step of the agent's run, which an earlier attempt may have stored."""
        run, position = agent.run_id, len(self.seconds)
        self._steps[run] = self._steps.get(run, 0) + 1
        trace = self._earlier.trace(run, self._steps[run])
        if trace is None:
            return self._row(agent, play(agent, task, epoch, self._cancelled), phase, stage, name)
        if (trace.task.id, trace.epoch) != (task.id, epoch):
            raise _CannotGoOn(f"its bank is of another cell, whose step {trace.step} has another task")
        row = self._row(agent, trace, phase, stage, name)
        # What the run knew then stands in the row that was noted then. A step that was stored just before a kill has
        # none, but nothing has happened since.
        return self._earlier.rows[position] if position < len(self._earlier.rows) else row

    def _agent(self, run: str, seed: int, base: str | None) -> Agent:
        facts = must_be_there(self._cell.model, self._preferences, self._hosts)
        if run in self._earlier.traces:
            self._must_be_as_planned(self._bank.run(run), seed, base)
        else:
            self._start(run, seed, base, facts)
        agent = live_run(self._bank, run, self._preferences, self._hosts).agent
        self._worlds.callback(agent.environment.close)
        return agent

    def _must_be_as_planned(self, info: RunInfo, seed: int, base: str | None) -> None:
        """Raise `_CannotGoOn` for a run of an earlier attempt that is not of this cell."""
        cell = self._cell
        settings = settings_of(cell.arm.policy, cell.settings).model_dump()
        planned = cell.arm.policy, settings, cell.model, checked_options(cell.model_options), seed, base
        if (info.policy, dict(info.settings), info.model, dict(info.model_options), info.seed, info.base) != planned:
            raise _CannotGoOn("its bank is of other settings")

    def _start(self, run: str, seed: int, base: str | None, facts: Mapping[str, Any]) -> None:
        cell = self._cell
        self._bank.write.flush()
        shifts = list(cell.stream.shift_at)
        if base is not None:
            # A frozen use is another run with its own step numbers: it meets the world as it is by now.
            swaps = sum(shift <= self._bank.next_step(base) for shift in shifts)
            shifts = [1] if swaps % 2 else []
        start_run(
            self._bank,
            environment=cell.stream.environment,
            tasks="",
            settings=settings_of(cell.arm.policy, cell.settings),
            seed=seed,
            model=cell.model,
            base=base,
            run=run,
            policy=cell.arm.policy,
            environment_options={**cell.stream.options, **({"shift_at": shifts} if shifts else {})},
            model_options=cell.model_options,
            model_facts=facts,
        )

    def _intervene(self, epoch: int, total: int, tasks: Sequence[Task]) -> None:
        """What the arm does to the memory before the epoch after `epoch`."""
        arm = self._cell.arm
        if arm.poison is not None and epoch == _epoch_at(arm.poison.after, total):
            # An earlier attempt may have come so far.
            given = [one for one in self._bank.memory_ids() if one.startswith(f"{RUN}-{POISON}-")]
            self._poisoned = set(
                given or poison(self._bank, RUN, tasks, arm.poison.memories, arm.poison.q, self._cell.seed)
            )
            self._tainted |= self._poisoned
        is_over = self._earlier.trace(RUN, self._steps.get(RUN, 0) + 1) is not None
        if arm.prune is not None and epoch == _epoch_at(arm.prune.after, total) and not is_over:
            prune(self._bank, RUN, arm.prune.q_below, arm.prune.visits)

    def _row(self, agent: Agent, trace: StepTrace, phase: str, stage: int, name: str) -> dict[str, Any]:
        assert trace.reward is not None
        self.digest.update(_TRACE.dump_json(_timeless(trace)))
        self.skipped += trace.skipped
        recall, decision = trace.recall, trace.decision  # None in a step that was skipped before them.
        by_id = {candidate.memory_id: candidate for candidate in decision.candidates} if decision else {}
        used = [by_id[memory_id] for memory_id in decision.selected] if decision else []
        memories = [self._bank.memory(candidate.memory_id) for candidate in used]
        tainted = not self._tainted.isdisjoint(memories_in_prompts(trace))
        if tainted and trace.write is not None:
            self._tainted.update(op.memory_id for op in trace.write.operations if op.op not in ("DELETE", "NOOP"))
        poison_left = [known.q for known in self._bank.utilities(trace.run, of=self._poisoned).values()]
        cost = step_cost(trace)
        self.seconds.append((sum(trace.seconds.values()), cost.seconds))
        valid, choices = valid_answers(trace)
        outcome = trace.reward.outcome
        return {
            "arm": self._cell.arm.name,
            "policy": trace.policy,
            "badge": self._badge,
            "stream": self._cell.stream.name,
            "seed": self._cell.seed,
            "phase": phase,
            "stage": stage,
            "set": name,
            "epoch": trace.epoch,
            "step": trace.step,
            "task": trace.task.id,
            "family": trace.task.family,
            "success": None if outcome == "unrated" else outcome == "success",
            "chance": _chance(agent, trace),
            "reward": trace.reward.reward,
            "memories": recall.memories if recall else self._bank.memory_count(trace.run),
            "memories_after": self._bank.memory_count(trace.run),
            "pool": len(recall.pool) if recall else 0,
            "used": [candidate.memory_id for candidate in used],
            "used_similarity": [candidate.similarity for candidate in used],
            "used_q": [candidate.q for candidate in used],
            "used_visits": [candidate.visits for candidate in used],
            "used_outcome": [memory.outcome for memory in memories],
            "used_same_task": [memory.task == trace.task.id for memory in memories],
            "used_poison": [candidate.memory_id in self._poisoned for candidate in used],
            "tied": bool(recall and decision and tied_at(recall, decision)),
            "other_by_tie": False,
            "tainted": tainted,
            "poison_left": len(poison_left),
            "poison_q": float(np.mean(poison_left)) if poison_left else None,
            "prompt_tokens": cost.prompt_tokens,
            "answer_tokens": cost.answer_tokens,
            "calls": cost.calls,
            "consulted": cost.consulted,
            "unparsed": cost.unparsed,
            "choices": choices,
            "valid": valid,
            "follows": list(trace.follows.memories) if trace.follows is not None else None,
            "at_hand": trace.follows.at_hand if trace.follows is not None else None,
            "taken": trace.follows.taken if trace.follows is not None else None,
        }


def _epoch_at(share: float, total: int) -> int:
    """The epoch after which something is done: at least the first and before the last; a single one has it before."""
    return min(max(1, round(share * total)), total - 1)


def _clear(uri: str, made_here: bool) -> None:
    """Delete the bank at `uri`, and whatever lies there of one that an attempt at this cell was making."""
    here = is_local(uri)
    if here:
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
    if here and made_here:
        shutil.rmtree(uri, ignore_errors=True)
    elif not here or Path(uri).exists():
        with suppress(BankMissing):
            discard_bank(uri)


def _chance(agent: Agent, trace: StepTrace) -> float | None:
    """The true chance that what was answered works, whatever came of it; None in worlds that do not know it."""
    if trace.generate is None or not trace.generate.turns:
        return None
    return agent.environment.chance(trace.task, trace.generate.turns[0].reply.text, trace.step)


def _timeless(trace: StepTrace) -> StepTrace:
    """The trace without what differs between two equal runs: its id, the clock, the durations, who answered and what
    it had cached.
    """
    generate = trace.generate
    if generate is not None:
        turns = tuple(
            replace(turn, reply=replace(turn.reply, seconds=0.0, host="", cached_tokens=None))
            for turn in generate.turns
        )
        generate = replace(generate, turns=turns)
    consulted = tuple(replace(one, seconds=0.0) for one in trace.consulted)
    return replace(trace, id="", started="", seconds={}, generate=generate, consulted=consulted)


# --- memories that look like help and are harm, and forgetting what has proved bad ------------------------------------

POISON = "poison"


def poison(bank: MemoryBank, run: str, tasks: Sequence[Task], count: int, q: float, seed: int) -> list[str]:
    """Store `count` malicious memories for tasks drawn from `tasks`, seen by `run` from its next step on; their ids.

    They are plausible experiences under the intents of tasks that are to come, so that similarity alone recalls them:
    in the literature, memory injection (AgentPoison, arXiv 2407.12784; MINJA, 2503.03704). Each is labelled a success
    and says what the environment's `misleading` does. Raises `InputError` for a task of a world that has none.
    """
    rng = np.random.default_rng([seed, 0x70])
    chosen = [tasks[int(i)] for i in rng.choice(len(tasks), size=count, replace=count > len(tasks))]
    texts = [environment_class(task.environment).misleading(task) for task in chosen]
    if "" in texts:
        task = chosen[texts.index("")]
        raise InputError(
            f"Nothing misleading is known of task {task.id[:80]} of the world {task.environment[:80]}, so it cannot be "
            "poisoned. Nothing was stored; choose tasks of another world."
        )
    memories = [(task.intent, text, task.id) for task, text in zip(chosen, texts, strict=True)]
    return give(bank, run, POISON, memories, embedder_of(bank, load_preferences()), q)


def prune(bank: MemoryBank, run: str, q_below: float, visits: int) -> list[str]:
    """Let `run` forget the memories whose q is below `q_below` after at least `visits` updates; their ids.

    Memories that people pinned stay.
    """
    pinned = bank.editing.pinned(run)
    doomed = [
        memory_id
        for memory_id, utility in bank.utilities(run).items()
        if utility.visits >= visits and utility.q < q_below and memory_id not in pinned
    ]
    if doomed:
        bank.write.editing.forget(run, doomed, reason=f"q below {q_below:g} after at least {visits} updates")
    return doomed
