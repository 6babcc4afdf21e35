"""The run files of the official code, as traces.

LifelongAgentBench: a trace, JSON lines with the scores of what was selected. BigCodeBench, in `epoch<n>/{train,val}/`:
`samples.jsonl` (task, prompt, raw answer, status) and `memory_retrieval.jsonl` (which memories were selected). HLE:
`local_cache/llm_calls.jsonl` (every call of the model and of the judge) and `hle_<tag>_results_<time>.csv`
(evaluations, with the memories that were in each prompt). Source: MemTensor/MemRL, `run/*_runner.py`.

What a file has becomes the trace; what it has not is named in `lacks`. No file has the reward as a number (it is a
setting of the run), so a trace has an outcome and no reward, and no reward enters the ledger: the q of the checkpoint
beside them holds these rewards already, and counting them again would move it.
"""

from __future__ import annotations

import ast
import hashlib
import io
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from memrl_core.errors import InputError
from memrl_core.exchange.contents import Skipped
from memrl_core.exchange.official.checkpoint import (
    AGAIN,
    Taken,
    data_of,
    lines_of,
    moment,
    numbered,
    task_of,
    text_of,
)  # fmt: skip
from memrl_core.records import (
    Candidate,
    Decision,
    EmbedRecord,
    GenerateRecord,
    MemorySpan,
    Message,
    Outcome,
    Reason,
    Recalled,
    RecallRecord,
    Reply,
    RewardRecord,
    Role,
    StepTrace,
    Task,
    Term,
    Turn,
)

ROUNDING = 1e-6
_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_OPTIONS = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort")
_MARKS = (b'"sample_index"', b'"task_description"')
_HEAD = 64 * 2**10
_LONGEST_LIST = 10**5
_NUMBERS = TypeAdapter(list[Annotated[FiniteFloat, Field(strict=True)]])


Choice = tuple[RecallRecord, Decision]
"""The part of a decision that a trace file has."""


@dataclass(frozen=True, slots=True)
class ReportedStep:
    """One step as a file has it. `place` names file and line; `used` are the memories that were in the prompt."""

    place: str
    epoch: int
    task: Task
    started: str = ""
    success: bool | None = None
    verdict: str = ""
    used: tuple[str, ...] = ()
    choice: Choice | None = None
    model: str = "unknown"
    options: Mapping[str, Any] | None = None
    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    lacks: tuple[str, ...] = ()


def trace_of(
    reported: ReportedStep, step: int, run: str, embedder: str, settings: Mapping[str, Any], taken: Taken
) -> StepTrace:
    """The trace of a step; memories that are not in the checkpoint cannot be shown and are named in `lacks`."""
    known = tuple(i for i in reported.used if i in taken.memories)
    lacks = [*reported.lacks, "the reward as a number, and how far it moved each q"]
    strangers = len(reported.used) - len(known)
    if strangers:
        lacks.append(f"{strangers} of the memories in its prompt, which are not in the checkpoint")
    choice = None if strangers else reported.choice
    if choice is not None:
        lacks += [
            "the candidates that were not selected",
            "mean and standard deviation of the pool",
            "whether it explored",
            "how many memories it could choose from",
        ]
    elif reported.used:
        lacks.append("the decision: scores and q of the candidates")
    vector = taken.intents.get(reported.task.intent)
    if vector is None:
        lacks.append("the embedding of its intent")
    outcome: Outcome = "unrated" if reported.success is None else "success" if reported.success else "failure"
    return StepTrace(
        id=hashlib.sha256(f"{run}\n{reported.place}".encode()).hexdigest()[:32],
        run=run,
        step=step,
        epoch=reported.epoch,
        task=reported.task,
        policy="memrl",
        settings=settings,
        started=reported.started,
        embed=None if vector is None else EmbedRecord(embedder, taken.dimension, tuple(map(float, vector))),
        recall=choice[0] if choice else None,
        decision=choice[1] if choice else None,
        generate=_generated(reported, known, taken),
        reward=RewardRecord(None, None, outcome, reported.verdict, "", "", known),
        origin="import",
        lacks=tuple(lacks),
    )


def _generated(reported: ReportedStep, known: Sequence[str], taken: Taken) -> GenerateRecord | None:
    if not reported.messages or not reported.turns:
        return None
    spans = []
    for memory_id in known:
        words = taken.memories[memory_id][0].experience.strip()
        places = ((number, message.content.find(words)) for number, message in enumerate(reported.messages))
        found = next(((number, start) for number, start in places if words and start >= 0), None)
        if found is not None:
            spans.append(MemorySpan(memory_id, found[0], found[1], found[1] + len(words)))
    return GenerateRecord(
        reported.model, False, reported.options or {}, reported.messages, tuple(spans), reported.turns
    )


# --- LifelongAgentBench -----------------------------------------------------------------------------------------------


def is_trace(path: Path) -> bool:
    """Whether a file looks like a trace, by its first bytes. Raises `OSError`."""
    if path.suffix not in (".jsonl", ".json") or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return all(mark in head for mark in _MARKS)


def llb_steps(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
    """The tasks of a trace file in its order. Raises `InputError`."""
    met: Counter[str] = Counter()
    for number, record in lines_of(path, root, skipped):
        place = f"{path.relative_to(root).as_posix()}, record {number}"
        intent = text_of(record.get("task_description")) if isinstance(record, dict) else ""
        if not intent.strip():
            skipped.append(Skipped(place, "it has no task description"))
            continue
        task = task_of(record.get("sample_index")) or place
        met[task] += 1
        lacks = ["the epoch (counted here by how often the task came up)"]
        success = _part(record, "outcome").get("success")
        if not isinstance(success, bool):
            success = None
            lacks.append("whether it succeeded")
        retrieval = _part(record, "retrieval")
        buckets = _part(retrieval, "selected_memories_by_bucket")
        chosen = [memory for name in ("successed", "failed") for memory in _parts(buckets, name)]
        messages, turns, options, is_complete = _conversation(record)
        if not is_complete:
            lacks.append("how its calls of the model follow from one another (the first is shown)")
        yield ReportedStep(
            place=place,
            epoch=met[task],
            task=Task(task, intent, "lifelongagentbench", text_of(_part(record, "run").get("task"))),
            started=moment(record.get("ts_start")),
            success=success,
            verdict=text_of(record.get("error")),
            used=tuple(dict.fromkeys(filter(None, (text_of(memory.get("memory_id")) for memory in chosen)))),
            choice=_choice(_part(retrieval, "params"), chosen),
            options=options,
            messages=messages,
            turns=turns,
            lacks=tuple(lacks),
        )


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _parts(record: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    parts = record.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _choice(params: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]]) -> Choice | None:
    """What was selected, when every number of it is there and each memory once; None otherwise."""
    k1, k2 = _count(params.get("k_retrieve")), _count(params.get("rl_topk"))
    try:
        by_similarity, by_q, delta = _NUMBERS.validate_python(
            [params.get(name) for name in ("weight_sim", "weight_q", "threshold")]
        )
        values = [
            _NUMBERS.validate_python(
                [memory.get(name) for name in ("similarity", "similarity_z", "q_estimate", "q_z", "score")]
            )
            for memory in chosen
        ]
    except ValidationError:
        return None
    ids = [text_of(memory.get("memory_id")) for memory in chosen]
    if k1 is None or k2 is None or not all(ids) or len(set(ids)) < len(ids):
        return None
    nearest = sorted(zip(values, ids, strict=True), key=lambda pair: -pair[0][0])
    ranks = {memory_id: rank for rank, (_, memory_id) in enumerate(nearest, start=1)}
    rows = sorted(zip(chosen, values, ids, strict=True), key=lambda row: -row[1][4])
    candidates = []
    for rank, (memory, row, memory_id) in enumerate(rows, start=1):
        similarity, similarity_z, q, q_z, score = row
        terms: tuple[Term, ...] = (
            Term("similarity", similarity, similarity_z, by_similarity, by_similarity * similarity_z),
            Term("q", q, q_z, by_q, by_q * q_z),
        )
        if not math.isclose(by_similarity * similarity_z + by_q * q_z, score, rel_tol=ROUNDING, abs_tol=ROUNDING):
            terms = (Term("score", score, score, 1.0, score),)
        candidates.append(
            Candidate(
                memory_id=memory_id,
                similarity=similarity,
                q=q,
                visits=_count(_part(memory, "metadata").get("q_visits")) or 0,
                terms=terms,
                score=score,
                rank_recall=ranks[memory_id],
                rank_select=rank,
                selected=True,
                reason=Reason.TOP_K2,
            )
        )
    selected = tuple(candidate.memory_id for candidate in candidates)
    recall = RecallRecord(
        k1=k1,
        k1_counts="intent",
        delta=delta,
        strict=False,
        memories=len(chosen),
        pool=tuple(Recalled(i, row[0], rank, None) for rank, (row, i) in enumerate(nearest, start=1)),
        left_out=(),
    )
    whole = by_similarity + by_q
    decision = Decision(
        k2=k2,
        weight=by_q / whole if whole > 0 else 0.0,
        normaliser="not reported",
        normaliser_lines=(),
        candidates=tuple(candidates),
        selected=selected,
        greedy=selected,
        mode="greedy" if selected else "fallback",
        epsilon=0.0,
        draw=None,
        seed=0,
        propensity=0.0,
    )
    return recall, decision


def _conversation(record: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[Turn, ...], dict[str, Any], bool]:
    """Messages, turns and options; the last is False when the calls are not one conversation."""
    calls = _parts(record, "llm_calls")
    if not calls:
        return (), (), {}, True
    sent = [_messages(call.get("messages_wo_system")) for call in calls]
    system = text_of(_part(record, "prompt").get("full_system_prompt"))
    first = (*([Message("system", system)] if system else ()), *sent[0])
    # Nothing else is taken over, since calls may carry keys.
    params = _part(calls[0], "params")
    options = {name: params[name] for name in _OPTIONS if isinstance(params.get(name), str | int | float)}
    observations = [_observation(before, after) for before, after in pairwise(sent)]
    if any(observation is None for observation in observations):
        return first, (_turn(calls[0]),), options, False
    turns = [_turn(call, words or "", False) for call, words in zip(calls, observations, strict=False)]
    return first, (*turns, _turn(calls[-1])), options, True


def _observation(before: Sequence[Message], after: Sequence[Message]) -> str | None:
    """What the environment said between two calls; None when the second does not continue the first."""
    added = after[len(before) :]
    if list(after[: len(before)]) != list(before) or [message.role for message in added] != ["assistant", "user"]:
        return None
    return added[1].content


def _turn(call: Mapping[str, Any], observation: str = "", last: bool = True) -> Turn:
    usage = _part(call, "usage")
    reply = Reply(
        text_of(call.get("response_text")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        answer_tokens=_count(usage.get("completion_tokens")),
    )
    return Turn(reply, observation, 0.0, terminated=last, truncated=False)


def _messages(reported: Any) -> list[Message]:
    """Chat messages as they were sent; of a message in parts the text, and a mark where a picture was."""
    read = []
    for message in reported if isinstance(reported, list) else ():
        if isinstance(message, dict):
            content = message.get("content")
            if isinstance(content, list):
                parts = [part for part in content if isinstance(part, dict)]
                content = "\n".join(text_of(p.get("text")) if p.get("type") == "text" else "[not text]" for p in parts)
            read.append(Message(_ROLES.get(str(message.get("role")), "user"), text_of(content)))
    return read


# --- BigCodeBench -----------------------------------------------------------------------------------------------------


def phases_in(folder: Path) -> list[Path]:
    """The folders of BigCodeBench phases in the order in which they ran."""
    around = [folder, *numbered(folder, "epoch")]
    places = [folder, *(place / phase for place in around for phase in ("train", "val"))]
    return [place for place in places if (place / "memory_retrieval.jsonl").is_file()]


def bcb_steps(phase: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
    """The tasks of one phase that are in both of its files. Raises `InputError`."""

    def key(record: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(record.get(name)) for name in ("task_id", "epoch", "phase"))

    path, retrievals = phase / "samples.jsonl", phase / "memory_retrieval.jsonl"
    samples = {}
    if path.is_symlink() or path.exists():
        samples = {key(sample): sample for _, sample in lines_of(path, root, skipped) if isinstance(sample, dict)}
    name = retrievals.relative_to(root).as_posix()
    for number, record in lines_of(retrievals, root, skipped):
        place = f"{name}, line {number}"
        sample = samples.get(key(record), {}) if isinstance(record, dict) else {}
        prompt = text_of(sample.get("prompt"))
        if not prompt.strip():
            skipped.append(Skipped(place, "samples.jsonl beside it has no prompt of this task"))
            continue
        epoch, kind = record.get("epoch"), text_of(record.get("phase"))
        status = sample.get("status")
        yield ReportedStep(
            place=place,
            epoch=epoch if isinstance(epoch, int) and 1 <= epoch < 2**31 else 1,
            task=Task(task_of(record.get("task_id")) or place, prompt, "bigcodebench", kind),
            success=status == "PASS" if isinstance(status, str) else None,
            verdict=": ".join(text_of(part) for part in (status, sample.get("error")) if isinstance(part, str)),
            used=_ids(record.get("selected_ids")),
            model=text_of(sample.get("model")) or "unknown",
            messages=(Message("user", prompt),),
            turns=_answer(sample.get("raw_response")),
            lacks=("the system prompt with the memories in it", "when it began"),
        )


def _ids(listed: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text_of(i) for i in listed if isinstance(i, str))) if isinstance(listed, list) else ()


def _answer(text: Any) -> tuple[Turn, ...]:
    return (_turn({"response_text": text}),) if isinstance(text, str) else ()


# --- HLE --------------------------------------------------------------------------------------------------------------


def hle_steps(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
    """The questions of `llm_calls.jsonl`, each with its judgement. Raises `InputError`.

    Many threads write the file, so a judgement belongs to the oldest answer to its question that has none yet.
    """
    name = path.relative_to(root).as_posix()
    waiting: dict[str, deque[tuple[str, Mapping[str, Any]]]] = {}
    met: Counter[str] = Counter()
    for number, call in lines_of(path, root, skipped):
        meta = call.get("meta") if isinstance(call, dict) else None
        if not isinstance(meta, dict):
            skipped.append(Skipped(f"{name}, line {number}", "it is not a call that this program knows"))
            continue
        question = task_of(meta.get("question_id"))
        if call.get("type") == "solution":
            waiting.setdefault(question, deque()).append((f"{name}, line {number}", call))
            continue
        if call.get("type") != "judge" or not waiting.get(question):
            skipped.append(Skipped(f"{name}, line {number}", "it judges an answer that is not there"))
            continue
        place, solution = waiting[question].popleft()
        met[question] += 1
        judged = _part(call, "parsed")
        correct = judged.get("correct")
        yield ReportedStep(
            place=place,
            epoch=met[question],
            task=Task(question or place, text_of(meta.get("question")) or "(no text)", "hle"),
            started=moment(solution.get("ts")),
            success=correct == "yes" if isinstance(correct, str) else None,
            verdict=text_of(judged.get("reasoning")),
            messages=tuple(_messages(solution.get("messages"))),
            turns=_answer(solution.get("response")),
            lacks=(
                "which memories were in its prompt",
                "the epoch (counted here by how often the question came up)",
                "pictures",
            ),
        )
    skipped += [Skipped(place, "its answer was never judged") for calls in waiting.values() for place, _ in calls]


def hle_result_steps(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
    """The questions of a table of results. Raises `InputError`."""
    import pandas as pd

    name, data = path.relative_to(root).as_posix(), data_of(path, root)
    try:
        rows = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False, encoding="utf-8-sig").to_dict("records")
    except ValueError as error:
        raise InputError(f"{path.name} cannot be read as a table. {AGAIN}") from error
    for number, row in enumerate(rows, start=1):
        place, intent = f"{name}, row {number}", text_of(row.get("question"))
        if not intent.strip():
            skipped.append(Skipped(place, "it has no question"))
            continue
        yield ReportedStep(
            place=place,
            epoch=1,
            task=Task(task_of(row.get("id")) or place, intent, "hle", "valid"),
            success={"True": True, "False": False}.get(text_of(row.get("correct"))),
            used=_ids(_python_list(text_of(row.get("retrieved_ids")))),
            messages=(Message("user", intent),),
            turns=_answer(row.get("raw_output")),
            lacks=("the system prompt with the memories in it", "the epoch", "when it began", "pictures"),
        )


def _python_list(cell: str) -> Any:
    """The value of a cell that holds a Python list; None when it cannot be read as one."""
    try:
        return ast.literal_eval(cell) if len(cell) <= _LONGEST_LIST else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
