"""Traces of other programs: what is read of each form, and which steps come of it."""

from __future__ import annotations

import itertools
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from memrl_core.analysis.decision.whatif import would_choose
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.errors import BankFull, InputError
from memrl_core.exchange.bring_in import Arrival
from memrl_core.exchange.foreign import traces
from memrl_core.exchange.foreign.traces import has_spans
from memrl_core.records import StepTrace, ToolCall

DOCUMENTS = [
    {"document.id": "m1", "document.content": "Prefers oat milk", "document.score": 0.82},
    {"document.id": "m2", "document.content": "Is vegetarian", "document.score": 12.5},
]


def span(name: str, kind: str, second: int, parent: str | None = None, trace: str = "0x1", **attributes: Any) -> Any:
    return {
        "name": name, "context": {"trace_id": trace, "span_id": name}, "parent_id": parent,
        "start_time": f"2026-05-01T10:00:{second:02}Z", "end_time": f"2026-05-01T10:00:{second + 1:02}Z",
        "attributes": {"openinference.span.kind": kind, **attributes},
    }  # fmt: skip


RECALL = span("recall", "RETRIEVER", 1, "root", **{"input.value": "make coffee", "retrieval.documents": DOCUMENTS})
CHAT = span(
    "chat", "LLM", 2, "root",
    **{
        "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "Know: Prefers oat milk",
        "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "make coffee",
        "llm.output_messages.0.message.content": "Coffee with oat milk.", "llm.model_name": "m-1",
        "llm.token_count.prompt": 20, "llm.token_count.completion": 5,
    },
)  # fmt: skip
ROOT = span(
    "root", "CHAIN", 0, **{"input.value": json.dumps({"messages": [{"type": "human", "content": "make coffee"}]})}
)
TOOL = span("kettle", "TOOL", 3, "root", **{"output.value": "water is hot"})
JUDGE = span(
    "judge", "EVALUATOR", 4, "root", **{"eval.name": "correctness", "eval.score": 1.0, "eval.label": "correct"}
)


def of_trace(trace: str, row: Any) -> Any:
    return {**row, "context": {**row["context"], "trace_id": trace}}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def imported(path: Path, uri: Path) -> Arrival:
    if not uri.exists():
        MemoryBank.create(str(uri), "hashing-64", 64).close()
    arrival = traces.import_spans(path, str(uri))
    assert arrival is not None
    return arrival


def steps(uri: Path) -> list[StepTrace]:
    with MemoryBank.open(str(uri)) as bank:
        assert all(finding.ok for finding in check(str(uri)))
        return list(bank.traces(bank.runs()[-1].id))


def test_the_spans_of_one_trace_become_one_step_with_their_own_numbers(tmp_path: Path) -> None:
    path = lines(tmp_path / "s.jsonl", ROOT, RECALL, CHAT, TOOL, JUDGE)
    assert has_spans(path)
    imported(path, tmp_path / "bank")
    (step,) = steps(tmp_path / "bank")
    assert step.task.intent == "make coffee" and step.started.startswith("2026-05-01T10:00:00")
    assert step.recall and [(one.memory_id, one.signal) for one in step.recall.pool] == [("m1", 0.82), ("m2", 12.5)]
    assert step.decision and step.decision.selected == ("m1",)
    assert step.generate and step.generate.model == "m-1" and step.generate.spans[0].memory_id == "m1"
    (turn,) = step.turns
    assert (turn.reply.text, turn.reply.prompt_tokens, turn.reply.answer_tokens) == ("Coffee with oat milk.", 20, 5)
    assert turn.tools == (ToolCall("kettle", "", "water is hot"),)
    assert step.reward and (step.reward.reward, step.reward.outcome, step.reward.credited) == (1.0, "success", ("m1",))
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        run = bank.runs()[0].id
        assert bank.utilities(run)["m1"].visits == 1 and bank.utilities(run)["m1"].q > 0
        assert bank.utilities(run)["m2"].visits == 0


def test_order_and_repetition_of_spans_change_nothing(tmp_path: Path) -> None:
    wanted = None
    for number, rows in enumerate(list(permutations((ROOT, RECALL, CHAT, JUDGE)))[::7]):
        (tmp_path / str(number)).mkdir()
        path = lines(tmp_path / str(number) / "s.jsonl", *rows, rows[1], {**rows[0], "end_time": None})
        imported(path, tmp_path / str(number) / "bank")
        with MemoryBank.open(str(tmp_path / str(number) / "bank")) as bank:
            found = bank.traces("traces-s"), bank.events()
        wanted = wanted or found
        assert found == wanted


def test_the_same_file_again_changes_nothing(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "s.jsonl", ROOT, RECALL, CHAT, JUDGE, span("late", "LLM", 5, trace="0x2", **{"output.value": "x"})
    )
    assert imported(path, tmp_path / "bank").steps == 2
    again = imported(path, tmp_path / "bank")
    assert (again.steps, again.memories, again.events) == (0, 0, 0)


def otlp(key: str, value: Any) -> Any:
    kind = "stringValue" if isinstance(value, str) else "doubleValue"
    return {"key": key, "value": {kind: value}}


def gen_ai_in_otlp() -> list[Any]:
    records = json.dumps(
        [{"id": "m1", "content": "Prefers oat milk", "score": 0.8}, {"id": "m2", "content": "Is vegan"}]
    )
    search = {
        "gen_ai.operation.name": "search_memory", "gen_ai.memory.query.text": "make coffee",
        "gen_ai.memory.records": records,
    }  # fmt: skip
    chat = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "make coffee"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Here."}]}]),
    }  # fmt: skip
    event = {
        "name": "gen_ai.evaluation.result",
        "attributes": [otlp("gen_ai.evaluation.name", "reward"), otlp("gen_ai.evaluation.score.value", 0.5)],
    }
    spans = [
        {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": f"eee19b7ec3c1b17{n}", "name": str(n),
         "startTimeUnixNano": f"17776296000{n}0000000", "endTimeUnixNano": f"17776296000{n}5000000",
         "attributes": [otlp(k, v) for k, v in attributes.items()], "events": [event] if n else []}
        for n, attributes in enumerate((search, chat))
    ]  # fmt: skip
    return [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}]


def langfuse() -> list[Any]:
    observations = [
        {"id": "o1", "type": "RETRIEVER", "name": "search", "startTime": "2026-05-01T10:00:00Z",
         "input": {"query": "make coffee"}, "output": [{"id": "m1", "page_content": "Prefers oat milk"},
                                                       {"id": "m2", "page_content": "Is vegan"}]},
        {"id": "o2", "type": "GENERATION", "startTime": "2026-05-01T10:00:01Z", "model": "m-1",
         "input": [{"role": "user", "content": "make coffee"}], "output": {"role": "assistant", "content": "Here."}},
    ]  # fmt: skip
    scores = [{"name": "reward", "value": 0.5, "source": "API"}]
    return [{"id": "t1", "name": "agent", "input": "make coffee", "observations": observations, "scores": scores}]


def langfuse_apart() -> list[Any]:
    (trace,) = langfuse()
    apart = [{**one, "traceId": "t1"} for one in trace["observations"]]
    return [{"traceId": "t1", "id": "s", "name": "reward", "value": 0.5, "source": "API"}, *reversed(apart)]


def phoenix() -> list[Any]:
    rows = [
        {"context.trace_id": "t", "context.span_id": "1", "parent_id": None, "span_kind": "RETRIEVER", "name": "r",
         "start_time": "2026-05-01T10:00:00+00:00", "attributes.input.value": "make coffee",
         "attributes.retrieval.documents": [{"document": {"id": "m1", "content": "Prefers oat milk"}},
                                            {"document": {"id": "m2", "content": "Is vegan"}}]},
        {"context.trace_id": "t", "context.span_id": "2", "parent_id": "1", "span_kind": "LLM", "name": "l",
         "start_time": "2026-05-01T10:00:01+00:00", "attributes.output.value": "Here.",
         "attributes.llm.model_name": "m-1",
         "annotations": [{"name": "reward", "annotator_kind": "CODE", "result": {"score": 0.5}}]},
    ]  # fmt: skip
    return rows


@pytest.mark.parametrize("form", [gen_ai_in_otlp, langfuse, langfuse_apart, phoenix])
def test_each_form_gives_the_same_step(form: Any, tmp_path: Path) -> None:
    imported(lines(tmp_path / "s.jsonl", *form()), tmp_path / "bank")
    (step,) = steps(tmp_path / "bank")
    assert step.task.intent == "make coffee" and step.recall and step.generate and step.reward
    assert [one.memory_id for one in step.recall.pool] == ["m1", "m2"]
    assert (step.generate.model, step.turns[0].reply.text, step.reward.reward) == ("m-1", "Here.", 0.5)


def test_each_retrieval_of_a_trace_is_kept_with_its_query_and_scores(tmp_path: Path) -> None:
    best = [{"document.id": "m2", "document.content": "Is vegetarian", "document.score": 0.2}, {"document.id": "m9"}]
    again = span("again", "RETRIEVER", 2, "root", **{"input.value": "cook dinner", "retrieval.documents": best})
    imported(lines(tmp_path / "s.jsonl", ROOT, RECALL, again), tmp_path / "bank")
    (step,) = steps(tmp_path / "bank")
    assert [(one.query, one.kind, one.asked_by) for one in step.retrievals] == [
        ("", "other", "root"),
        ("cook dinner", "other", "root"),
    ]
    found = [[(hit.memory_id, hit.score, hit.known) for hit in one.hits] for one in step.retrievals]
    assert found == [[("m1", 0.82, True), ("m2", 12.5, True)], [("m2", 0.2, True), ("m9", None, False)]]
    assert step.recall and [one.memory_id for one in step.recall.pool] == ["m1", "m2"]


def test_beside_a_traced_choice_stands_what_our_rules_would_have_chosen(tmp_path: Path) -> None:
    far = [{"document.id": "m3", "document.content": "Lives in Riga"}]
    other = span("r", "RETRIEVER", 1, trace="0x7", **{"input.value": "Is vegetarian", "retrieval.documents": far})
    imported(lines(tmp_path / "s.jsonl", RECALL, other), tmp_path / "bank")
    _, second = steps(tmp_path / "bank")
    assert second.decision and second.decision.selected == ("m3",)
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        chosen = would_choose(bank, second)
        assert chosen and chosen[0] == "m2", "which the traces name as well, and it is the very question"


def test_a_persons_annotation_becomes_their_reward(tmp_path: Path) -> None:
    note = {
        "name": "quality",
        "annotator_kind": "HUMAN",
        "identifier": "ann",
        "result": {"score": -1, "explanation": "cold"},
    }
    imported(lines(tmp_path / "s.jsonl", RECALL, {**CHAT, "annotations": [note]}), tmp_path / "bank")
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        run = bank.runs()[0].id
        (given,) = (
            bank.ratings.standing(run, 1)
            if hasattr(bank.ratings, "standing")
            else [e for e in bank.events() if e.source == "person"]
        )
        assert (given.rater, given.value, given.reason) == ("ann", -1.0, "cold")
        assert bank.utilities(run)["m1"].q < 0


def test_the_reranker_says_what_was_selected(tmp_path: Path) -> None:
    best = [{"document.id": "m2", "document.content": "Is vegetarian", "document.score": 3.5}]
    rerank = span(
        "rerank", "RERANKER", 2, "root", **{"reranker.query": "make coffee", "reranker.output_documents": best}
    )
    imported(lines(tmp_path / "s.jsonl", RECALL, rerank), tmp_path / "bank")
    (step,) = steps(tmp_path / "bank")
    assert step.decision and step.decision.selected == ("m2",) and step.recall and len(step.recall.pool) == 2


def test_memories_that_the_bank_has_stay_its_own(tmp_path: Path) -> None:
    imported(lines(tmp_path / "a.jsonl", RECALL), tmp_path / "bank")
    nameless = [{"document.id": "m1", "document.score": 1.0}, {"document.id": "m9", "document.score": 0.5}]
    other = span("r", "RETRIEVER", 1, trace="0x7", **{"input.value": "tea", "retrieval.documents": nameless})
    changed = [{"document.id": "m2", "document.content": "Eats fish now"}]
    third = span("r", "RETRIEVER", 2, trace="0x8", **{"input.value": "lunch", "retrieval.documents": changed})
    arrival = imported(lines(tmp_path / "b.jsonl", other, third), tmp_path / "bank")
    assert arrival.memories == 1
    first, second = steps(tmp_path / "bank")
    assert first.recall and [one.memory_id for one in first.recall.pool] == ["m1"]
    assert any("m9" in lack for lack in first.lacks)
    assert second.recall and [one.memory_id for one in second.recall.pool] == ["m2-2"]


def test_a_document_without_an_id_is_the_memory_of_its_text(tmp_path: Path) -> None:
    imported(lines(tmp_path / "a.jsonl", RECALL), tmp_path / "bank")
    nameless = [{"document.content": "Is vegetarian"}, {"document.content": "Likes jazz"}]
    other = span("r", "RETRIEVER", 1, trace="0x7", **{"input.value": "dinner", "retrieval.documents": nameless})
    arrival = imported(lines(tmp_path / "b.jsonl", other), tmp_path / "bank")
    (step, *_) = steps(tmp_path / "bank")
    assert arrival.memories == 1 and step.recall and step.recall.pool[0].memory_id == "m2"


@pytest.mark.parametrize(
    "row",
    [
        {**RECALL, "context": {}},
        {**RECALL, "start_time": "yesterday", "end_time": None},
        {**RECALL, "start_time": "1970-01-01T00:00:01Z"},
        {**RECALL, "attributes": None},
        {**RECALL, "attributes": {"openinference.span.kind": "RETRIEVER", "retrieval.documents": "none"}},
        {**RECALL, "attributes": {"openinference.span.kind": "LLM", "llm.input_messages": [None, 3]}},
        {**RECALL, "attributes": {"a": 1, "a.b": 2, "a.b.c": 3, "0": 4}, "events": "x", "scores": [3, {"score": "x"}]},
        {**RECALL, "parent_id": "recall"},
        {"resourceSpans": [3, {"scopeSpans": [{"spans": [{"traceId": "x"}, 4]}]}]},
        {"resourceSpans": 5},
        {"resourceSpans": [{"scopeSpans": [7, {"spans": [{"traceId": "x", "attributes": [
            {"key": "a", "value": {"arrayValue": 3}}, {"key": "b", "value": {"kvlistValue": {"values": 2}}}]}]}]}]},
    ],
)  # fmt: skip
def test_an_odd_span_hurts_no_other(row: Any, tmp_path: Path) -> None:
    good = span("r", "RETRIEVER", 1, trace="0x9", **{"input.value": "tea", "retrieval.documents": DOCUMENTS})
    imported(lines(tmp_path / "s.jsonl", good, row, "no object"), tmp_path / "bank")
    assert "tea" in [step.task.intent for step in steps(tmp_path / "bank")]


def test_agents_tools_and_retrievers_within_each_other_fold_into_turns(tmp_path: Path) -> None:
    def says(answer: str) -> dict[str, str]:
        return {"input.value": "q", "output.value": answer}

    rows = [
        span("main", "AGENT", 0, **{"input.value": "make coffee"}),
        span("plan", "LLM", 1, "main", **says("ask the cook")),
        span("ask", "TOOL", 2, "main", **{"tool.name": "ask_cook", "input.value": "{}", "output.value": "oat milk"}),
        span("cook", "AGENT", 3, "ask", **{"agent.name": "cook"}),
        span("think", "LLM", 4, "cook", **says("look")),
        span("wrapped", "LLM", 5, "think", **says("look")),
        span("look", "TOOL", 6, "cook", **{"tool.name": "search", "output.value": "found"}),
        span("docs", "RETRIEVER", 7, "look", **{"input.value": "milk", "retrieval.documents": DOCUMENTS}),
        span("own", "RETRIEVER", 8, "main", **{"input.value": "coffee", "retrieval.documents": DOCUMENTS}),
        span("clock", "TOOL", 9, "main", **{"tool.name": "clock", "output.value": "noon"}),
        span("end", "LLM", 10, "main", **says("Here.")),
    ]
    imported(lines(tmp_path / "s.jsonl", *reversed(rows)), tmp_path / "bank")
    (step,) = steps(tmp_path / "bank")
    used = [(turn.reply.text, [tool.name for tool in turn.tools]) for turn in step.turns]
    assert used == [("ask the cook", ["ask_cook", "clock"]), ("look", ["search"]), ("Here.", [])]
    assert [one.asked_by for one in step.retrievals] == ["ask_cook › cook › search", "main"]
    assert not any("spans" in lack for lack in step.lacks)


def test_tools_before_a_reply_and_without_one_are_kept(tmp_path: Path) -> None:
    first = span("kettle", "TOOL", 1, "root", **{"output.value": "hot"})
    alone = span("kettle", "TOOL", 2, trace="0x5", **{"output.value": "cold"})
    imported(lines(tmp_path / "s.jsonl", ROOT, first, CHAT, alone), tmp_path / "bank")
    found = [
        [(turn.reply.text, [t.result for t in turn.tools]) for turn in step.turns] for step in steps(tmp_path / "bank")
    ]
    assert found == [[("Coffee with oat milk.", ["hot"])], [("", ["cold"])]]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"start_time": None}, "when 1 of its spans began"),
        ({"start_time": "1999-05-01T10:00:00Z"}, "days after the first"),
        ({"end_time": "2026-05-01T09:00:00Z"}, "how long 1 of its spans took"),
        ({"context": {"trace_id": "0x1"}}, "the ids of 1 of its spans"),
        ({"parent_id": "0x77"}, "did not come: 77"),
        ({"attributes": {"traceloop.entity.input": "x"}}, "of no convention"),
    ],
    ids=["undated", "years apart", "backwards", "nameless", "orphan", "another version"],
)
def test_what_is_odd_about_a_span_is_a_sentence_of_the_step(changed: Any, says: str, tmp_path: Path) -> None:
    imported(lines(tmp_path / "s.jsonl", ROOT, CHAT, {**RECALL, **changed}), tmp_path / "bank")
    (step,) = steps(tmp_path / "bank")
    assert sum(says in lack for lack in step.lacks) == 1


def test_the_same_traces_under_another_name_of_a_file_are_not_another_run(tmp_path: Path) -> None:
    uri, rows = str(tmp_path / "bank"), [ROOT, RECALL, CHAT]
    imported(lines(tmp_path / "monday.jsonl", *rows), tmp_path / "bank")
    again = traces.import_spans(lines(tmp_path / "copy.jsonl", *reversed(rows)), uri)
    assert again and again.steps == again.events == 0 and "there already" in again.account.read[-1]
    second, third = ([of_trace(f"0x{number}", row) for row in rows] for number in (2, 3))
    grown = traces.import_spans(lines(tmp_path / "tuesday.jsonl", *rows, *second), uri)
    assert grown and (grown.steps, grown.runs) == (1, ("traces-monday",))
    assert [step.step for step in steps(tmp_path / "bank")] == [1, 2]
    part = traces.import_spans(lines(tmp_path / "monday.jsonl", *second), uri)
    assert part and part.steps == part.events == 0 and "there already" in part.account.read[-1]
    other = traces.import_spans(lines(tmp_path / "other.jsonl", *second, *third), uri)
    assert other and (other.steps, other.runs) == (2, ("traces-other",))
    assert other.account.read[-1] == "1 of its 2 traces are steps of run traces-monday too."


@pytest.mark.parametrize("together", [1500, 2**28], ids=["in parts", "at once"])
def test_scores_that_came_since_are_rewards_of_the_steps_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(traces, "TOGETHER", together)
    uri, rows = tmp_path / "bank", [ROOT, RECALL, CHAT]
    rows += [of_trace("0x2", row) for row in rows]
    imported(lines(tmp_path / "monday.jsonl", *rows), uri)

    def judged(*scores: Any) -> Arrival:
        arrival = traces.import_spans(lines(tmp_path / "s.jsonl", *rows, *scores), str(uri))
        assert arrival and arrival.steps == 0 and len(steps(uri)) == 2
        return arrival

    def rewards(number: int) -> list[Any]:
        with MemoryBank.open(str(uri)) as bank:
            return [(event.source, event.rater, event.value) for event in bank.ratings.of("traces-monday", number)]

    ann = {"trace_id": "0x2", "name": "quality", "score": 0.5, "author_user_id": "ann", "source": "ANNOTATION"}
    arrival = judged(JUDGE, ann)
    assert (arrival.events, arrival.runs) == (2, ("traces-monday",)) and "2" in arrival.account.read[-1]
    assert (rewards(1), rewards(2)) == ([("environment", "", 1.0)], [("person", "ann", 0.5)])
    with MemoryBank.open(str(uri)) as bank:
        assert bank.utilities("traces-monday")["m1"].visits == 2
    assert judged(JUDGE, ann).events == 0
    otherwise = of_trace("0x1", {**JUDGE, "attributes": {**JUDGE["attributes"], "eval.score": 0.0}})
    changed = judged(otherwise, {**ann, "score": -1.0})
    assert changed.events == 1 and "came first" in changed.account.skipped[0].why
    assert (rewards(1), rewards(2)) == ([("environment", "", 1.0)], [("person", "ann", -1.0)])


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seven traces in a file that is read in parts: their spans lie apart, and the newest come first."""
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(traces, "default_embedder", lambda: "hashing-64")
    monkeypatch.setattr(traces, "TOGETHER", 1500)
    return lines(tmp_path / "s.jsonl", *_seven())


def _seven() -> list[Any]:
    rows = []
    for kind in (RECALL, JUDGE, CHAT, ROOT):
        for number in reversed(range(7)):
            times = {name: kind[name].replace("10:00", f"10:{10 + number}") for name in ("start_time", "end_time")}
            context = {"trace_id": f"0x{number + 1}", "span_id": kind["name"]}
            rows.append({**kind, **times, "context": context})
    rows[3]["attributes"] = {**RECALL["attributes"], "retrieval.documents": [DOCUMENTS[1], {"document.content": "New"}]}
    return [*rows[:9], rows[2], *rows[9:], {"trace_id": "0x9", "name": "lost", "score": 1.0, "source": "API"}]


def test_a_large_file_is_read_in_parts_and_gives_the_same(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrival = traces.import_spans(large, str(tmp_path / "bank"))
    monkeypatch.setattr(traces, "TOGETHER", 2**28)
    whole = traces.import_spans(large, str(tmp_path / "whole"))
    assert arrival and whole and arrival.runs == ("traces-s",) and arrival.account == whole.account
    assert (arrival.steps, arrival.memories) == (7, whole.memories)
    assert steps(tmp_path / "bank") == steps(tmp_path / "whole") and len(steps(tmp_path / "bank")) == 7
    with MemoryBank.open(str(tmp_path / "bank")) as bank, MemoryBank.open(str(tmp_path / "whole")) as other:
        assert bank.utilities("traces-s") == other.utilities("traces-s")
        assert bank.metadata("traces-s") == other.metadata("traces-s")


def test_a_large_file_that_has_grown_goes_on_with_its_run(large: Path, tmp_path: Path) -> None:
    rows, uri = large.read_text().splitlines(keepends=True), tmp_path / "bank"
    large.write_text("".join(row for row in rows if '"0x7"' not in row))
    assert traces.import_spans(large, str(uri)).steps == 6
    large = large.rename(tmp_path / "grown.jsonl")
    large.write_text("".join(rows))
    again = traces.import_spans(large, str(uri))
    assert again and (again.steps, again.runs) == (1, ("traces-s",)) and "6 traces" in again.account.read[-1]
    assert traces.import_spans(large, str(uri)).steps == 0 and [step.step for step in steps(uri)] == [*range(1, 8)]
    large.write_text("".join(row for row in rows if '"0x1"' not in row))
    assert traces.import_spans(large, str(uri)).runs == ("traces-grown",)


@pytest.mark.parametrize("is_there", [False, True], ids=["new bank", "bank of others"])
def test_of_a_large_file_all_arrives_or_nothing(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    uri = tmp_path / "bank"
    if is_there:
        imported(lines(tmp_path / "before.jsonl", ROOT, RECALL, CHAT), uri)
    for stops in (0, 3, 8):
        asked = itertools.count()
        assert traces.import_spans(large, str(uri), cancelled=lambda: next(asked) >= stops) is None  # noqa: B023
    seen, add = itertools.count(), traces.Steps.add

    def fails(self: Any, *given: Any) -> bool:
        if next(seen) == 5:
            raise BankFull("The disk is full.")
        return add(self, *given)

    monkeypatch.setattr(traces.Steps, "add", fails)
    with pytest.raises(BankFull):
        traces.import_spans(large, str(uri))
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".bank")]
    assert uri.exists() == is_there
    if is_there:
        assert len(steps(uri)) == 1
        with MemoryBank.open(str(uri)) as bank:
            assert len(bank.runs()) == 1 and set(bank.memory_ids()) == {"m1", "m2"}


def test_a_file_without_a_usable_trace_is_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "s.jsonl", {**RECALL, "context": {"trace_id": ""}})
    with pytest.raises(InputError, match="no trace"):
        imported(path, tmp_path / "bank")
