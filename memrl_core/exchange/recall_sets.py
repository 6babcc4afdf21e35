"""Golden sets of recall in files: queries with the memories that should come, to keep, edit, import and check.

A set is JSON Lines that a person can read: a query a line, with the memories that were labelled for it. TREC qrels and
BEIR folders (queries, corpus, qrels) are read and written too. What cannot be used is listed with its line, and the
rest is kept.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrl_core.analysis.recall.grades import SOURCES, Judged, Rule, judged
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import GRADES_IN_WORDS, HIGHEST_GRADE, Label, LabelSource
from memrl_core.errors import InputError, few, printable
from memrl_core.exchange.foreign.spans import Score, Span, document_scores, is_span, spans_in
from memrl_core.exchange.foreign.traces import documents_of, question_of
from memrl_core.exchange.safe_files import opened
from memrl_core.numerals import counted

NOTHING = "Nothing was changed"
LONGEST_TEXT = 100_000
MOST_LINES = 1_000_000
QUERY = ("id", "query", "run", "step", "judged", "nothing")
LABEL = ("memory", "grade", "nothing", "rater", "source", "intent", "reason")
"""The fields of a line of a set, and of each of its labels."""
NAMED = 3


@dataclass(frozen=True, slots=True)
class SetLabel:
    """One label in a file: of a memory by its id, with the intent it was given for where the file says it.

    Without a memory it says whether anything should come. A grade is 0 … 3.
    """

    memory: str
    grade: int
    rater: str = ""
    source: LabelSource = "import"
    intent: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SetQuery:
    """One query of a set. `run` and `step` are the step it was asked in, "" and 0 where the file does not say."""

    id: str
    text: str = ""
    run: str = ""
    step: int = 0
    labels: tuple[SetLabel, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallSet:
    """A set as it was read. `notes` say what was corrected, `skipped` which lines could not be used and why."""

    queries: tuple[SetQuery, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


# --- writing ----------------------------------------------------------------------------------------------------------


def exported(bank: MemoryBank, run: str = "") -> list[SetQuery]:
    """The labelled steps of a run, or of all runs, with every rater's label. Raises `UnknownRun`."""
    found = []
    for name in [bank.run(run).id] if run else [info.id for info in bank.runs()]:
        by_step: dict[int, list[Label]] = defaultdict(list)
        for label in bank.judgements.standing(name):
            by_step[label.step].append(label)
        for step, labels in sorted(by_step.items()):
            written = tuple(_written(bank, label) for label in labels)
            found.append(SetQuery(f"{name}/{step}", bank.trace(name, step).task.intent, name, step, written))
    return found


def _written(bank: MemoryBank, label: Label) -> SetLabel:
    intent = bank.memory(label.memory_id).intent if label.memory_id else ""
    return SetLabel(label.memory_id, label.grade or 0, label.rater, label.source, intent, label.reason)


def as_jsonl(queries: Iterable[SetQuery]) -> bytes:
    """A set as JSON Lines; `read_set` reads it back."""
    return "".join(f"{json.dumps(_line(query), ensure_ascii=False)}\n" for query in queries).encode(
        errors="backslashreplace"
    )


def _line(query: SetQuery) -> dict[str, Any]:
    row: dict[str, Any] = {"id": query.id, "query": query.text}
    if query.run:
        row |= {"run": query.run, "step": query.step}
    row["judged"] = [
        {
            **({"memory": label.memory} if label.memory else {"nothing": label.grade == 0}),
            **({"grade": label.grade, "intent": label.intent} if label.memory else {}),
            "rater": label.rater,
            "source": label.source,
            **({"reason": label.reason} if label.reason else {}),
        }
        for label in query.labels
    ]
    return row


def as_qrels(queries: Iterable[SetQuery]) -> bytes:
    """TREC qrels, `query 0 memory grade` a line, with one grade of several raters. Labels of queries have no place."""
    return "".join(
        f"{query.id.replace(' ', '_')} 0 {memory.replace(' ', '_')} {grade}\n"
        for query in queries
        for memory, grade in judged_of(query).grades.items()
    ).encode(errors="backslashreplace")


def beir_files(queries: Iterable[SetQuery], bank: MemoryBank) -> dict[str, bytes]:
    """The files of a BEIR folder by their names in it: queries, the bank's memories as the corpus, and qrels."""
    listed = list(queries)

    def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode(errors="backslashreplace")

    scores = ["query-id\tcorpus-id\tscore\n"]
    for query in listed:
        scores += [f"{query.id}\t{memory}\t{grade}\n" for memory, grade in judged_of(query).grades.items()]
    return {
        "queries.jsonl": lines({"_id": query.id, "text": query.text} for query in listed),
        "corpus.jsonl": lines({"_id": m.id, "title": m.intent, "text": m.experience} for m in bank.memories()),
        "qrels/test.tsv": "".join(scores).encode(errors="backslashreplace"),
    }


def judged_of(query: SetQuery, rule: Rule = "majority", names: Mapping[str, str] | None = None) -> Judged:
    """One grade a memory; `names` are the ids that memories have in another bank, and those it does not name stay."""
    known = names or {}
    labels = [Label("", 0, known.get(one.memory, one.memory), one.grade, one.rater, one.source) for one in query.labels]
    return judged(labels, rule).get(0, Judged({}))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_set(path: Path) -> RecallSet:
    """A set from JSON Lines, TREC qrels (also as BEIR's TSV), a BEIR folder, or spans with annotations of their
    documents (OpenInference, as Phoenix writes them), known by its content.

    Raises `InputError` for anything else, and where no line can be used.
    """
    reader = _Reader()
    if path.is_dir():
        reader.beir(path)
    else:
        lines = _lines(path)
        first = next((line for _, line in lines if line.strip()), "")
        if _is_of_traces(first):
            reader.annotations(lines)
        elif first.lstrip().startswith("["):
            raise InputError(f"{path.name[:80]} is a JSON list. {NOTHING}; give each query a line of its own.")
        elif first.lstrip().startswith("{"):
            reader.jsonl(lines)
        else:
            reader.qrels(lines)
    found = reader.set()
    if not found.queries:
        first = " ".join(found.skipped[:NAMED])
        more = f" and {len(found.skipped) - NAMED:,} more" if len(found.skipped) > NAMED else ""
        why = f" What could not be used: {first.removesuffix('.')}{more}." if found.skipped else ""
        raise InputError(
            f"{path.name[:80]} holds no label that can be used.{why} {NOTHING}; give JSON Lines with “query” and "
            "“judged”, TREC qrels, a BEIR folder, or spans with annotations of their documents."
        )
    return found


def _is_of_traces(line: str) -> bool:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and (is_span(row) or next(document_scores(row), None) is not None)


def _lines(path: Path) -> list[tuple[int, str]]:
    with opened(path) as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path.name[:80]} is not UTF-8 text. {NOTHING}; save it as UTF-8.") from None
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise InputError(f"{path.name[:80]} has more than {MOST_LINES:,} lines. {NOTHING}; split it.")
    return list(enumerate(lines, start=1))


class _Reader:
    """Gathers queries and labels, line by line."""

    def __init__(self) -> None:
        self._texts: dict[str, SetQuery] = {}
        self._labels: dict[str, dict[tuple[str, str, str], SetLabel]] = {}
        self._skipped: list[str] = []
        self._negative = self._doubled = self._changed = 0
        self._unread = dict[str, None]()

    def set(self) -> RecallSet:
        """What was read; queries without a label are left out."""
        queries = tuple(
            SetQuery(one.id, one.text, one.run, one.step, tuple(labels.values()))
            for one_id, labels in self._labels.items()
            if labels and (one := self._texts.get(one_id, SetQuery(one_id)))
        )
        notes = []
        if self._negative:
            notes.append(f"Negative grades, which count as 0 (irrelevant): {self._negative:,}.")
        if self._doubled:
            notes.append(f"Lines that stand twice and count once: {self._doubled:,}.")
        if self._changed:
            notes.append(f"Labels given twice with different grades, of which the later counts: {self._changed:,}.")
        if self._unread:
            notes.append(
                f"Fields that mean nothing here and are not read: {few(printable(one)[:40] for one in self._unread)}. "
                f"A query has {', '.join(QUERY)}; a label in “judged” has {', '.join(LABEL)}."
            )
        return RecallSet(queries, tuple(notes), tuple(self._skipped))

    def jsonl(self, lines: Iterable[tuple[int, str]]) -> None:
        """Our own sets."""
        for number, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise InputError("it is no JSON object")
                self._query(row, number)
            except (ValueError, RecursionError):
                self._skipped.append(f"Line {number:,} is no JSON.")
            except InputError as error:
                self._skipped.append(f"Line {number:,}: {error}.")

    def _query(self, row: Mapping[str, Any], number: int) -> None:
        text, run, step = row.get("query", ""), row.get("run", ""), row.get("step", 0)
        if not isinstance(text, str) or len(text) > LONGEST_TEXT or not isinstance(run, str):
            raise InputError("“query” and “run” are texts")
        step = _whole(step)
        if step is None or step < 0:
            raise InputError("“step” is a whole number from 0 on")
        listed = row.get("judged")
        if not isinstance(listed, list):
            raise InputError("it has no list “judged”")
        named = row.get("id")
        query_id = str((f"{run}/{step}" if run else text) if named in (None, "") else named)
        if not query_id.strip():
            raise InputError("it has neither a query nor a step")
        self._texts.setdefault(query_id, SetQuery(query_id, text, run, step))
        self._unread |= dict.fromkeys(name for name in row if name not in QUERY)
        if isinstance(row.get("nothing"), bool):
            listed = [*listed, {"nothing": row["nothing"]}]
        for at, one in enumerate(listed, start=1):
            try:
                self._judged(query_id, one)
            except InputError as error:
                self._skipped.append(f"Line {number:,}, label {at:,}: {error}.")

    def _judged(self, query_id: str, one: Any) -> None:
        if not isinstance(one, dict):
            raise InputError("it is no JSON object")
        memory: Any
        grade: Any
        if isinstance(one.get("nothing"), bool):
            memory, grade = "", int(not one["nothing"])
        else:
            if "nothing" in one:
                raise InputError("“nothing” is true or false")
            if missing := [name for name in ("memory", "grade") if name not in one]:
                raise InputError(f"it has no “{missing[0]}”")
            memory, grade = one["memory"], one["grade"]
            if isinstance(memory, int) and not isinstance(memory, bool):
                memory = str(memory)  # A file may write an id of digits as a number.
            if isinstance(grade, bool):
                grade = "yes" if grade else "no"
        texts = {key: one.get(key, "") for key in ("rater", "source", "intent", "reason")}
        if not all(isinstance(text, str) for text in texts.values()):
            raise InputError("rater, source, intent and reason are texts")
        named = texts.pop("source") or "import"
        source = next((known for known in SOURCES if known == named), None)
        if source is None:
            raise InputError(f"“{named[:40]}” is no source of labels")
        if not isinstance(memory, str) or (not memory.strip() and "nothing" not in one):
            raise InputError("“memory” is the id of a memory")
        self._unread |= dict.fromkeys(name for name in one if name not in LABEL)
        self._add(query_id, memory, grade, source=source, **texts)

    def annotations(self, lines: Iterable[tuple[int, str]]) -> None:
        """Spans of traces and judgements of the documents that they retrieved, in any order; a trace is a query."""
        spans: dict[str, Span] = {}
        judged = []
        for number, row in self._objects(lines):
            judged += [(number, *one) for one in document_scores(row)]
            spans |= {one.id: one for one in spans_in(row) if isinstance(one, Span)} if is_span(row) else {}
        for number, span_id, place, score in judged:
            try:
                self._annotated(spans.get(span_id), span_id, place, score)
            except InputError as error:
                self._skipped.append(f"Line {number:,}: {error}.")

    def _annotated(self, span: Span | None, span_id: str, place: int | None, score: Score) -> None:
        if span is None:
            raise InputError(f"the span {printable(span_id)[:40]} is not in this file: give its spans with them")
        documents = documents_of(span)
        if place is None or place >= len(documents):
            raise InputError(f"the span has {len(documents):,} documents, counted from 0, and none at {place}")
        memory, text = documents[place]
        if not memory:
            raise InputError("the document has neither an id nor a text")
        query = span.trace[:200]
        self._texts.setdefault(query, SetQuery(query, question_of(span)[:LONGEST_TEXT]))
        self._add(query, memory, _grade_of(score), rater=score.rater, intent=text, reason=score.reason)

    def qrels(self, lines: Iterable[tuple[int, str]], of: str = "") -> None:
        """TREC: query, iteration, memory, grade; or BEIR's TSV: query, memory, grade, under a heading.

        `of` names the file in what is said of a line, where there are several.
        """
        for number, line in lines:
            cells = [cell.strip() for cell in line.strip().split("\t")]
            if len(cells) not in (3, 4):
                cells = line.split()  # Spaces, or some of both.
            if not cells or cells[0].lower() == "query-id":
                continue
            if len(cells) not in (3, 4):
                said = counted(len(cells), "column")
                self._skipped.append(f"{of}Line {number:,} has {said}, not query, 0, memory and grade.")
                continue
            try:
                self._add(cells[0], cells[-2], cells[-1])
            except InputError as error:
                self._skipped.append(f"{of}Line {number:,}: {error}.")

    def beir(self, folder: Path) -> None:
        """A folder with queries.jsonl, corpus.jsonl and qrels/*.tsv; texts of the corpus say which memory is meant."""
        files = sorted((folder / "qrels").glob("*.tsv"))
        if not (folder / "queries.jsonl").is_file() or not files:
            raise InputError(
                f"{folder.name[:80]} is no BEIR folder: it has queries.jsonl, corpus.jsonl and qrels/*.tsv. {NOTHING}."
            )
        for file in files:
            self.qrels(_lines(file), f"{file.name}: ")
        for _, query in self._objects(_lines(folder / "queries.jsonl"), "queries.jsonl: ", "_id"):
            text = str(query.get("text", ""))[:LONGEST_TEXT]
            self._texts[str(query["_id"])] = SetQuery(str(query["_id"]), text)
        file = folder / "corpus.jsonl"
        rows = self._objects(_lines(file), f"{file.name}: ", "_id") if file.is_file() else ()
        corpus = {str(row["_id"]): str(row.get("title") or row.get("text") or "") for _, row in rows}
        for labels in self._labels.values():
            for key, label in labels.items():
                labels[key] = SetLabel(label.memory, label.grade, label.rater, intent=corpus.get(label.memory, ""))

    def _objects(
        self, lines: Iterable[tuple[int, str]], of: str = "", key: str = ""
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The JSON objects in some lines, which have this `key`; `of` names the file in what is said of other lines."""
        for number, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict) and (not key or key in row):
                yield number, row
            else:
                self._skipped.append(f"{of}Line {number:,} is no JSON object{f' with “{key}”' if key else ''}.")

    def _add(self, query_id: str, memory: str, grade: Any, source: LabelSource = "import", **texts: str) -> None:
        whole = GRADES_IN_WORDS.get(grade.strip().lower()) if isinstance(grade, str) else None
        whole = _whole(grade) if whole is None else whole
        if whole is None:
            raise InputError(f"“{printable(str(grade))[:20]}” is no grade: give 0 to {HIGHEST_GRADE}")
        if whole > HIGHEST_GRADE:
            raise InputError(f"the grade {whole} is more than {HIGHEST_GRADE}, the highest one")
        if whole < 0:
            self._negative, whole = self._negative + 1, 0
        labels = self._labels.setdefault(query_id, {})
        label = SetLabel(memory, whole, source=source, **texts)
        key = memory, label.rater, label.source
        if key in labels:
            same = labels[key].grade == whole
            self._doubled, self._changed = self._doubled + same, self._changed + (not same)
        labels[key] = label


def _whole(value: Any) -> int | None:
    """A whole number, also written as 2.0 or in a text; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() and not isinstance(value, bool) else None


EVEN = 0.5
"""From this score on a document counts as relevant, where an annotation gives a share and no grade."""


def _grade_of(score: Score) -> int:
    """A grade by an annotation's label, else by its score: 0 to 1 as relevant or not, 2 and 3 as they are."""
    word = score.label.strip().lower().replace("_", " ")
    if word in GRADES_IN_WORDS:
        return GRADES_IN_WORDS[word]
    if score.value is None:
        raise InputError(f"“{printable(score.label)[:40]}” is no relevance, and there is no score")
    if score.value < 0:
        return -1  # It counts as 0, and is said as any negative grade is.
    if score.value > 1:
        if score.value != int(score.value):
            raise InputError(f"{score.value:g} is no grade: give 0 to 1, 2 or {HIGHEST_GRADE}")
        return int(score.value)
    return 2 if score.value >= EVEN else 0
