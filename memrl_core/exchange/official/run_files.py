"""The run files of the official code's BigCodeBench and HLE runs.

BigCodeBench, in `epoch<n>/{train,val}/`: `samples.jsonl` (task, prompt, raw answer, status) and
`memory_retrieval.jsonl` (which memories were selected). HLE: `local_cache/llm_calls.jsonl` (every call of the model and
of the judge) and `hle_<tag>_results_<time>.csv` (evaluations). Source: MemTensor/MemRL, `run/{bcb,hle}_runner.py`.
"""

from __future__ import annotations

import ast
import csv
import io
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from memrl_core.errors import InputError
from memrl_core.exchange.contents import Skipped
from memrl_core.exchange.official.imported_memories import moment, task_of
from memrl_core.exchange.official.imported_steps import Choice, ReportedStep, Scored, messages_of, options_of
from memrl_core.exchange.official.json_files import AGAIN, data_of, lines_of, numbered, text_of
from memrl_core.records import Message, Reply, Task, Turn

_LONGEST_CELL = 16 * 2**20
_LONGEST_LIST = 10**5


def phases_in(folder: Path) -> list[Path]:
    """The folders of BigCodeBench phases in the order in which they ran."""
    around = [folder, *numbered(folder, "epoch")]
    places = [folder, *(place / phase for place in around for phase in ("train", "val"))]
    return [place for place in places if (place / "memory_retrieval.jsonl").is_file()]


def bcb_steps(phase: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
    """The tasks of one phase, as far as both files tell of them. Raises `InputError`."""
    samples = {}
    path = phase / "samples.jsonl"
    if path.is_symlink() or path.exists():
        for _, sample in lines_of(path, root, skipped):
            if isinstance(sample, dict):
                samples[_same(sample)] = sample
    retrievals = phase / "memory_retrieval.jsonl"
    name = retrievals.relative_to(root).as_posix()
    for number, record in lines_of(retrievals, root, skipped):
        place = f"{name}, line {number}"
        sample = samples.get(_same(record)) if isinstance(record, dict) else None
        prompt = text_of(sample.get("prompt")) if sample else ""
        if sample is None or not prompt.strip():
            skipped.append(Skipped(place, "samples.jsonl beside it has no prompt of this task"))
            continue
        epoch, kind = record.get("epoch"), text_of(record.get("phase"))
        status, used = sample.get("status"), record.get("selected_ids")
        yield ReportedStep(
            place=place,
            epoch=epoch if isinstance(epoch, int) and 1 <= epoch < 2**31 else 1,
            task=Task(task_of(record.get("task_id")) or place, prompt, "bigcodebench", kind),
            success=status == "PASS" if isinstance(status, str) else None,
            verdict=": ".join(text_of(part) for part in (status, sample.get("error")) if isinstance(part, str)),
            used=tuple(dict.fromkeys(text_of(i) for i in used if isinstance(i, str))) if isinstance(used, list) else (),
            model=text_of(sample.get("model")) or "unknown",
            messages=(Message("user", prompt),),
            turns=_answer(sample.get("raw_response")),
            lacks=("the system prompt with the memories in it", "when it began"),
        )


def _same(record: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(record.get(name)) for name in ("task_id", "epoch", "phase"))


def _answer(text: Any) -> tuple[Turn, ...]:
    return (Turn(Reply(text_of(text)), "", 0.0, terminated=True, truncated=False),) if isinstance(text, str) else ()


def hle_call_steps(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
    """The questions of `llm_calls.jsonl`, each with its judgement. Raises `InputError`.

    Many threads write the file, so a judgement belongs to the oldest answer to its question that has none yet.
    """
    name = path.relative_to(root).as_posix()
    waiting: dict[str, deque[tuple[int, Mapping[str, Any]]]] = {}
    met: dict[str, int] = {}
    for number, call in lines_of(path, root, skipped):
        meta = call.get("meta") if isinstance(call, dict) else None
        if not isinstance(meta, dict):
            skipped.append(Skipped(f"{name}, line {number}", "it is not a call that this program knows"))
            continue
        question = task_of(meta.get("question_id"))
        if call.get("type") == "solution":
            waiting.setdefault(question, deque()).append((number, call))
        elif call.get("type") == "judge" and waiting.get(question):
            line, solution = waiting[question].popleft()
            met[question] = met.get(question, 0) + 1
            yield _judged(
                f"{name}, line {line}", question, met[question], solution, call, text_of(meta.get("question"))
            )
        else:
            skipped.append(Skipped(f"{name}, line {number}", "it judges an answer that is not there"))
    for number, _ in (call for calls in waiting.values() for call in calls):
        skipped.append(Skipped(f"{name}, line {number}", "its answer was never judged"))


def _judged(
    place: str, question: str, epoch: int, solution: Mapping[str, Any], judge: Mapping[str, Any], intent: str
) -> ReportedStep:
    parsed = judge.get("parsed")
    correct = parsed.get("correct") if isinstance(parsed, dict) else None
    return ReportedStep(
        place=place,
        epoch=epoch,
        task=Task(question or place, intent or "(no text)", "hle"),
        started=moment(solution.get("ts")) or "",
        success=correct == "yes" if isinstance(correct, str) else None,
        verdict=text_of(parsed.get("reasoning")) if isinstance(parsed, dict) else "",
        messages=tuple(messages_of(solution.get("messages"))),
        turns=_answer(solution.get("response")),
        lacks=(
            "which memories were in its prompt",
            "the epoch (counted here by how often the question came up)",
            "pictures",
        ),
    )


def hle_result_steps(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
    """The questions of a table of results. Raises `InputError`."""
    name = path.relative_to(root).as_posix()
    csv.field_size_limit(_LONGEST_CELL)
    try:
        rows = csv.DictReader(io.StringIO(data_of(path, root).decode("utf-8-sig"), newline=""))
        for number, row in enumerate(rows, start=1):
            place, intent = f"{name}, row {number}", text_of(row.get("question"))
            if not intent.strip():
                skipped.append(Skipped(place, "it has no question"))
                continue
            yield ReportedStep(
                place=place,
                epoch=1,
                task=Task(task_of(row.get("id")) or place, intent, "hle", "valid"),
                success={"True": True, "False": False}.get(row.get("correct") or ""),
                used=_ids(row.get("retrieved_ids")),
                messages=(Message("user", intent),),
                turns=_answer(row.get("raw_output")),
                lacks=("the system prompt with the memories in it", "the epoch", "when it began", "pictures"),
            )
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path.name} cannot be read as a table. {AGAIN}") from error


def _ids(cell: str | None) -> tuple[str, ...]:
    """The ids in a cell that holds a Python list of texts."""
    if not cell or len(cell) > _LONGEST_LIST:
        return ()
    try:
        listed = ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    return tuple(dict.fromkeys(text_of(i) for i in listed if isinstance(i, str))) if isinstance(listed, list) else ()


_MARKS = (b'"sample_index"', b'"task_description"')
_HEAD = 64 * 2**10


def is_trace(path: Path) -> bool:
    """Whether a file looks like a trace, by its first bytes. Raises `OSError`."""
    if path.suffix not in (".jsonl", ".json") or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return all(mark in head for mark in _MARKS)


def steps_of(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[ReportedStep]:
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
        yield _step(record, place, Task(task, intent, "lifelongagentbench", _family(record)), met[task])


def _family(record: Mapping[str, Any]) -> str:
    return text_of(_part(record, "run").get("task"))


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _parts(record: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    parts = record.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _step(record: Mapping[str, Any], place: str, task: Task, epoch: int) -> ReportedStep:
    lacks = ["the epoch (counted here by how often the task came up)"]
    success = _part(record, "outcome").get("success")
    if not isinstance(success, bool):
        success = None
        lacks.append("whether it succeeded")
    buckets = _part(_part(record, "retrieval"), "selected_memories_by_bucket")
    chosen = [memory for name in ("successed", "failed") for memory in _parts(buckets, name)]
    used = [text_of(m.get("memory_id")) for m in chosen]
    choice = _choice(_part(_part(record, "retrieval"), "params"), chosen)
    messages, turns, options, is_complete = _generation(record)
    if not is_complete:
        lacks.append("how its calls of the model follow from one another (the first is shown)")
    return ReportedStep(
        place=place,
        epoch=epoch,
        task=task,
        started=moment(record.get("ts_start")) or "",
        success=success,
        verdict=text_of(record.get("error")),
        used=tuple(dict.fromkeys(i for i in used if i)),
        choice=choice,
        options=options,
        messages=messages,
        turns=turns,
        lacks=tuple(lacks),
    )


def _choice(params: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]]) -> Choice | None:
    """What was selected, when every number of it is there and each memory once; None otherwise."""
    scored = [_scored(memory) for memory in chosen]
    weights = [params.get(name) for name in ("weight_sim", "weight_q", "threshold")]
    counts = [params.get(name) for name in ("k_retrieve", "rl_topk")]
    if not all(map(_is_number, weights)) or not all(isinstance(n, int) and 0 <= n < 2**31 for n in counts):
        return None
    whole = [s for s in scored if s is not None]
    if len(whole) < len(scored) or len({s.memory_id for s in whole}) < len(whole):
        return None
    by_similarity, by_q, delta = (float(weight or 0) for weight in weights)
    k1, k2 = (int(count or 0) for count in counts)
    return Choice(tuple(sorted(whole, key=lambda s: -s.score)), by_similarity, by_q, k1, k2, delta)


def _scored(memory: Mapping[str, Any]) -> Scored | None:
    numbers = [memory.get(name) for name in ("similarity", "similarity_z", "q_estimate", "q_z", "score")]
    memory_id = text_of(memory.get("memory_id"))
    if not memory_id or not all(map(_is_number, numbers)):
        return None
    similarity, similarity_z, q, q_z, score = (float(number or 0) for number in numbers)
    visits = _part(memory, "metadata").get("q_visits")
    count = visits if isinstance(visits, int) and 0 <= visits < 2**53 else 0
    return Scored(memory_id, similarity, similarity_z, q, q_z, score, count)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**53 if isinstance(value, int) else math.isfinite(value)


def _generation(record: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[Turn, ...], dict[str, Any], bool]:
    """Messages, turns and options; the last is False when the calls are not one conversation."""
    calls = _parts(record, "llm_calls")
    if not calls:
        return (), (), {}, True
    sent = [messages_of(call.get("messages_wo_system")) for call in calls]
    system = text_of(_part(record, "prompt").get("full_system_prompt"))
    first = (*([Message("system", system)] if system else ()), *sent[0])
    options = options_of(calls[0].get("params"))
    heard = [_heard(before, after) for before, after in pairwise(sent)]
    if any(observation is None for observation in heard):
        return first, (_turn(calls[0], "", True),), options, False
    turns = [_turn(call, words or "", False) for call, words in zip(calls, heard, strict=False)]
    return first, (*turns, _turn(calls[-1], "", True)), options, True


def _heard(before: Sequence[Message], after: Sequence[Message]) -> str | None:
    """What the environment said between two calls; None when the second does not continue the first."""
    added = after[len(before) :]
    if list(after[: len(before)]) != list(before) or [message.role for message in added] != ["assistant", "user"]:
        return None
    return added[1].content


def _turn(call: Mapping[str, Any], observation: str, last: bool) -> Turn:
    usage = _part(call, "usage")
    tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    asked, answered = (n if isinstance(n, int) and 0 <= n < 2**53 else None for n in tokens)
    reply = Reply(text_of(call.get("response_text")), prompt_tokens=asked, answer_tokens=answered)
    return Turn(reply, observation, 0.0, terminated=last, truncated=False)
