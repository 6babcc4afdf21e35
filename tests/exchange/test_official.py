from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.exchange.contents import Contents
from memrl_core.exchange.official import checkpoint
from memrl_core.exchange.official.reader import is_official, read_official
from memrl_core.records import EventKind
from tests.exchange.official_writer import (
    CheckpointWriter,
    Written,
    a_selected,
    an_llb_record,
    three,
    unit,
    write_lines,
)


def brought_in(contents: Contents, path: Path) -> tuple[MemoryBank, str]:
    bank = MemoryBank.create(str(path), contents.embedder, contents.dimension)
    bank.write.adopt(contents.memories, contents.events, contents.traces)
    return bank, bank.runs()[0].id


def q_of(contents: Contents) -> dict[str, float | None]:
    return {e.memory_ids[0]: e.value for e in contents.events if e.kind is EventKind.MEMORY_IMPORTED}


def fault_with(contents: Contents, words: str) -> str:
    found = [fault for fault in contents.account.faults if words in fault]
    assert len(found) == 1, contents.account.faults
    return found[0]


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_sound_checkpoint_comes_in_whole_with_every_q_and_visit(tmp_path: Path) -> None:
    contents = read_official(CheckpointWriter(three()).write(tmp_path / "snapshot" / "3"))
    bank, run = brought_in(contents, tmp_path / "bank")
    assert {i: (u.q, u.visits) for i, u in bank.utilities(run).items()} == {
        "m1": (0.76, 4),
        "m2": (0.3, 1),
        "m3": (0.0, 0),
    }
    assert bank.memory("m3").parents == ("m1", "m2")
    assert [bank.memory(i).outcome for i in ("m1", "m2", "m3")] == ["success", "failure", "success"]
    assert bank.memory("m1").created == "2026-01-02T03:04:05.000+00:00"
    assert bank.memory("m1").intent == "count the rows"
    assert bank.memory("m1").experience.endswith("How it went: m1")
    assert contents.account.faults == ()
    alone = read_official(CheckpointWriter(three()).write(tmp_path / "alone", cache=False))
    assert (q_of(alone), alone.account.faults) == (q_of(contents), ())
    assert q_of(read_official(tmp_path / "snapshot" / "3" / "local_cache")) == q_of(contents)


def test_memories_of_one_second_come_in_the_order_in_which_they_were_stored(tmp_path: Path) -> None:
    """Their ids, by which textual_memory.json is sorted, are random; some runners write no microseconds either."""

    def written(memory_id: str, updated: str) -> Written:
        return Written(memory_id, f"task {memory_id}", metadata={"updated_at": updated})

    memories = [
        written("z", "2026-01-02T03:04:05.000100"),
        written("b", "2026-01-02T03:04:05.000300"),
        written("a", "2026-01-02T03:04:05.000300"),
        written("y", "2026-01-02T03:04:05.000200"),
    ]
    writer = CheckpointWriter(memories)
    writer.cube.sort(key=lambda entry: entry["id"])
    assert list(read_official(writer.write(tmp_path / "c")).memories) == ["z", "y", "b", "a"]


def test_memories_filed_under_one_intent_share_its_vector_and_key(tmp_path: Path) -> None:
    contents = read_official(CheckpointWriter(three()).write(tmp_path / "c"))
    (first, one), (second, two), (third, other) = (contents.memories[i] for i in ("m1", "m2", "m3"))
    assert first.intent_key == second.intent_key != third.intent_key
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, unit(0), rtol=1e-6)
    assert not np.allclose(one, other)
    writer = CheckpointWriter([Written("m1", "one")])
    writer.cube[0]["vector"] = [3 * x for x in unit(5)]
    np.testing.assert_allclose(
        read_official(writer.write(tmp_path / "d", cache=False)).memories["m1"][1], unit(5), rtol=1e-5
    )


def test_the_newest_of_several_checkpoints_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        CheckpointWriter([Written("m1", "one", q=number / 10)]).write(tmp_path / "run" / "snapshot" / str(number))
    contents = read_official(tmp_path / "run")
    assert q_of(contents) == {"m1": 1.0}
    assert any("snapshot/2, snapshot/9" in s for s in contents.account.read)
    assert q_of(read_official(tmp_path / "run" / "snapshot")) == {"m1": 1.0}
    assert q_of(read_official(tmp_path / "run" / "snapshot" / "2")) == {"m1": 0.2}
    CheckpointWriter([Written("m1", "one", q=0.5)]).write(tmp_path / "run" / "snapshot" / "final")
    assert q_of(read_official(tmp_path / "run")) == {"m1": 0.5}


@pytest.mark.parametrize("inside", ["", "snapshot"])
def test_the_only_checkpoint_below_is_read_whatever_its_name(tmp_path: Path, inside: str) -> None:
    CheckpointWriter([Written("m1", "one", q=0.4)]).write(tmp_path / "dump" / "snapshot" / "ck1")
    assert is_official(tmp_path / "dump" / inside)
    assert q_of(read_official(tmp_path / "dump" / inside)) == {"m1": 0.4}


def test_several_checkpoints_whose_names_tell_no_age_are_named_in_the_refusal(tmp_path: Path) -> None:
    for name in ("before", "after"):
        CheckpointWriter([Written("m1", "one")]).write(tmp_path / "snapshot" / name)
    assert is_official(tmp_path)
    with pytest.raises(InputError, match="snapshot/after, snapshot/before"):
        read_official(tmp_path)
    CheckpointWriter([Written("m1", "one", q=0.9)]).write(tmp_path / "snapshot" / "3")
    contents = read_official(tmp_path)
    assert q_of(contents) == {"m1": 0.9}
    assert any("snapshot/after, snapshot/before" in note for note in contents.account.read)


@pytest.mark.parametrize("inside", ["", "local_cache"])
def test_caches_alone_can_be_imported_and_the_account_warns_of_old_values(tmp_path: Path, inside: str) -> None:
    writer = CheckpointWriter(three())
    del writer.q_cache["m2"]
    writer.write(tmp_path / "c", cube=False)
    contents = read_official(tmp_path / "c" / inside)
    assert q_of(contents) == {"m1": 0.76, "m2": 0.0}
    fault_with(contents, "1 memories have their q from mem_cache.json alone, which may be old: m2.")
    fault_with(contents, "1 memories are in the index, and no file holds them: m3.")
    bank, run = brought_in(contents, tmp_path / "bank")
    assert bank.utilities(run)["m1"].q == 0.76


def test_the_cut_text_of_a_long_task_is_made_whole_from_the_index(tmp_path: Path) -> None:
    long = "x" * 5000
    contents = read_official(CheckpointWriter([Written("m1", long)]).write(tmp_path / "c"))
    assert contents.memories["m1"][0].intent == long


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.integers(0, 10**6), st.booleans(), st.integers(0, 3)), min_size=1, max_size=8
    )
)
def test_every_q_survives_whatever_is_cached_and_however_intents_are_grouped(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[float, int, bool, int]]
) -> None:
    memories = [
        Written(f"m{n}", f"task {n}", q=q, visits=visits, retrieved=retrieved, bucket=f"task {min(group, n)}")
        for n, (q, visits, retrieved, group) in enumerate(drawn)
    ]
    folder = tmp_path_factory.mktemp("drawn")
    bank, run = brought_in(read_official(CheckpointWriter(memories).write(folder / "c")), folder / "bank")
    assert {i: (u.q, u.visits) for i, u in bank.utilities(run).items()} == {m.id: (m.q, m.visits) for m in memories}


# --- faults -----------------------------------------------------------------------------------------------------------


def another_q(writer: CheckpointWriter) -> None:
    writer.q_cache["m1"] = 0.8


def orphan_of_the_index(writer: CheckpointWriter) -> None:
    del writer.index["drop a table"]


def ids_of_nothing(writer: CheckpointWriter) -> None:
    writer.index["drop a table"] += ["ghost", None]


def no_q_and_a_lost_parent(writer: CheckpointWriter) -> None:
    writer.cube[2]["payload"]["metadata"] |= {"related_memory_ids": ["gone", "m3"], "q_value": None}


@pytest.mark.parametrize(
    ("spoil", "q", "fault"),
    [
        (another_q, 0.8, "1 memories have another q in textual_memory.json than in q_cache.json"),
        (orphan_of_the_index, 0.76, "1 memories are not in the index"),
        (ids_of_nothing, 0.76, "1 memories are in the index, and no file holds them: ghost."),
        (no_q_and_a_lost_parent, 0.76, "1 memories have no q; it was taken as 0: m3."),
    ],
)
def test_stores_that_disagree_are_flagged_and_no_memory_is_lost(
    tmp_path: Path, spoil: Callable[[CheckpointWriter], None], q: float, fault: str
) -> None:
    writer = CheckpointWriter(three())
    spoil(writer)
    contents = read_official(writer.write(tmp_path / "c"))
    assert q_of(contents) == {"m1": q, "m2": 0.3, "m3": 0.0}
    fault_with(contents, fault)
    # A memory stands where the official retrieval looks for it: at its intent's vector, else at its own.
    own = {entry["id"]: entry["vector"] for entry in writer.cube}
    for intent, ids in {"count the rows": ("m1", "m2"), "drop a table": ("m3",)}.items():
        for memory_id in set(ids) & own.keys():
            is_filed = intent in writer.index and intent in writer.embeddings
            expected = writer.embeddings[intent] if is_filed else own[memory_id]
            np.testing.assert_allclose(contents.memories[memory_id][1], expected, rtol=1e-5)


def test_vectors_of_another_size_are_flagged_and_their_memories_skipped(tmp_path: Path) -> None:
    writer = CheckpointWriter(three())
    writer.cube[2]["vector"] = unit(3, 8)
    del writer.embeddings["drop a table"]
    contents = read_official(writer.write(tmp_path / "c"))
    assert set(contents.memories) == {"m1", "m2"}
    fault_with(contents, "there are also 1 of 8 dimensions")
    assert "memory m3" in [s.where for s in contents.account.skipped]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda text: text[:-20], "as JSON"),
        (lambda text: text.replace("0.76", "NaN"), "NaN"),
        (lambda text: text.replace("0.76", "Infinity"), "Infinity"),
        (lambda text: text.replace("0.76", "1e999"), "finite number"),
        (lambda text: text.replace("0.76", '"high"'), "valid number"),
        (lambda text: text.replace('"q_visits": 4', '"q_visits": -4'), "greater than or equal to 0"),
        (lambda text: text.replace('"id": "m2"', '"id": "m1"'), "“m1”"),
        (lambda text: text.replace('"vector": [', '"vector": ["1", ', 1), "of numbers"),
        (lambda text: text.replace('"vector": [', '"vector": [1e999, ', 1), "not finite"),
        (lambda text: text + "]", "as JSON"),
        (lambda text: text[:-1] + ",]", "as JSON"),
        (lambda text: "[" * 100_000, "as JSON"),
        (lambda text: "[]", "holds no memories"),
        (lambda text: "7", "valid list"),
        (lambda text: "[[]]", "valid dictionary"),
    ],
)
def test_a_broken_store_is_refused_with_a_sentence(tmp_path: Path, spoil: Any, sentence: str) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "c", cache=False)
    file = folder / "cube" / "textual_memory.json"
    damaged = spoil(file.read_text())
    assert damaged != file.read_text()
    file.write_text(damaged)
    with pytest.raises(InputError, match="Nothing was imported") as refused:
        read_official(folder)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("name", ["dict_memory", "query_embeddings", "q_cache", "mem_cache"])
@pytest.mark.parametrize("text", ['{"a": [1, 2', '{"a": NaN}', '{"a": "b"}', "[1]", "\x80"])
def test_a_broken_cache_is_refused_and_never_half_imported(tmp_path: Path, name: str, text: str) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "c")
    (folder / "local_cache" / f"{name}.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match="Nothing was imported"):
        read_official(folder)


def test_pickles_and_configurations_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "c")
    (folder / "state.pkl").write_bytes(pickle.dumps({"a": 1}))
    forbidden = [folder / "state.pkl", folder / "cube" / "config.json", *folder.rglob("storage.sqlite")]
    opened: list[Path] = []
    real = Path.open

    def watched(path: Path, *args: Any, **options: Any) -> Any:
        opened.append(path)
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", watched)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *a, **k: pytest.fail("unpickled"))
    contents = read_official(folder)
    assert opened
    assert not set(opened) & set(forbidden)
    assert {"qdrant", "cube/config.json", "state.pkl"} <= {s.where for s in contents.account.skipped}
    assert "sk-secret" not in repr(contents.account) + repr(contents.events)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "c")
    for inside in ("cube/textual_memory.json", "local_cache/q_cache.json", "snapshot_meta.json"):
        file, outside = folder / inside, tmp_path / "outside.json"
        file.rename(outside)
        file.symlink_to(outside)
        with pytest.raises(InputError, match="link"):
            read_official(folder)
        file.unlink()
        outside.rename(file)
    (folder / "local_cache").rename(tmp_path / "elsewhere")
    (folder / "local_cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="link"):
        read_official(folder)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "c")
    monkeypatch.setattr(checkpoint, "LARGEST_FILE", 1000)
    with pytest.raises(InputError, match="is larger than"):
        read_official(folder)


def test_what_the_official_code_did_not_write_is_distinct(tmp_path: Path) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "run" / "snapshot" / "1")
    trace = write_lines(tmp_path / "t" / "trace.jsonl", [an_llb_record("1", "a", {})])
    assert all(map(is_official, (folder, folder.parent, folder.parent.parent, folder / "local_cache", trace)))
    other = write_lines(tmp_path / "other" / "notes.jsonl", [{"a": 1}])
    for path in (tmp_path / "none", other, other.parent):
        assert not is_official(path)
        with pytest.raises(InputError, match="holds no checkpoint"):
            read_official(path)


def test_texts_that_no_database_could_hold_are_corrected(tmp_path: Path) -> None:
    writer = CheckpointWriter([Written("m1", "bad \ud800 half", metadata={"full_content": "\udfff"})])
    bank, _ = brought_in(read_official(writer.write(tmp_path / "c")), tmp_path / "bank")
    assert bank.memory("m1").intent == "bad ? half"


# --- run files --------------------------------------------------------------------------------------------------------


def an_llb_run(tmp_path: Path) -> Path:
    folder = CheckpointWriter(three()).write(tmp_path / "run" / "snapshot" / "1").parent.parent
    chosen = {"successed": [a_selected("m1", 0.5, 0.2)], "failed": [a_selected("m2", 0.1, 1.5)]}
    records = [
        an_llb_record("7", "count the rows", chosen, turns=2),
        an_llb_record("7", "count the rows", {}, success=False),
        an_llb_record("8", "unseen", {"successed": [a_selected("stranger", 1, 1)]}),
    ]
    write_lines(folder / "trace.jsonl", records)
    return folder


def test_steps_beside_a_checkpoint_leave_every_q_as_it_was_imported(tmp_path: Path) -> None:
    contents = read_official(an_llb_run(tmp_path))
    assert len(contents.traces) == 3
    bank, run = brought_in(contents, tmp_path / "bank")
    assert {i: (u.q, u.visits) for i, u in bank.utilities(run).items()} == {
        "m1": (0.76, 4),
        "m2": (0.3, 1),
        "m3": (0.0, 0),
    }
    assert bank.utilities(run, as_of=1) == bank.utilities(run)
    assert len(bank.traces(run)) == 3


def test_a_trace_tells_the_scores_of_what_was_selected_and_what_it_does_not_know(tmp_path: Path) -> None:
    contents = read_official(an_llb_run(tmp_path))
    first, second, third = contents.traces
    assert first.origin == "import"
    decision = first.decision
    assert decision.selected == ("m2", "m1")
    for candidate in decision.candidates:
        assert sum(term.contribution for term in candidate.terms) == pytest.approx(candidate.score)
        assert [term.name for term in candidate.terms] == ["similarity", "q"]
    assert [seen.memory_id for seen in (first.recall.pool if first.recall else ())] == ["m1", "m2"]
    assert any("candidates" in lack for lack in first.lacks)
    assert second.decision.mode == "fallback"
    assert (first.epoch, second.epoch) == (1, 2)
    assert [t.reward.outcome for t in contents.traces if t.reward] == ["success", "failure", "success"]
    assert third.decision is None
    assert any("checkpoint" in lack for lack in third.lacks)


def test_a_trace_tells_the_conversation_and_no_key_of_it(tmp_path: Path) -> None:
    first, _, third = read_official(an_llb_run(tmp_path)).traces
    generate = first.generate
    assert [message.content for message in generate.messages] == ["You write SQL.", "count the rows"]
    assert [(turn.reply.text, turn.observation) for turn in generate.turns] == [
        ("answer 1", "observation 1"),
        ("answer 2", ""),
    ]
    assert generate.turns[1].reply.prompt_tokens == 20
    assert generate.options == {"temperature": 0.0}
    np.testing.assert_allclose(first.embed.embedding, unit(0), rtol=1e-6)
    assert third.embed is None
    assert any("embedding" in lack for lack in third.lacks)


def test_scores_that_do_not_follow_from_their_terms_stand_alone(tmp_path: Path) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "c")
    selected = {**a_selected("m1", 0.5, 0.2), "score": 3.0}
    write_lines(folder / "trace.jsonl", [an_llb_record("1", "a", {"failed": [selected]})])
    decision = read_official(folder).traces[0].decision
    assert [term.name for term in decision.candidates[0].terms] == ["score"]


def test_a_trace_alone_is_read_as_lines_or_as_one_list(tmp_path: Path) -> None:
    records = [an_llb_record("1", "a", {"failed": [a_selected("m1", 1, 1)]}), an_llb_record("2", "b", {})]
    lines = read_official(write_lines(tmp_path / "t.jsonl", records))
    (tmp_path / "t.json").write_text(json.dumps(records))
    listed = read_official(tmp_path / "t.json")
    assert [t.task for t in lines.traces] == [t.task for t in listed.traces]
    assert not lines.memories
    bank, run = brought_in(lines, tmp_path / "bank")
    assert len(bank.steps.rows(run)) == 2


def test_a_bad_line_of_a_trace_is_skipped_by_its_number(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "t.jsonl", [an_llb_record("1", "a", {}), {"sample_index": "2"}])
    file.write_text(file.read_text() + '{"sample_index": "3", "task_desc')
    contents = read_official(file)
    assert len(contents.traces) == 1
    assert [s.where for s in contents.account.skipped] == ["t.jsonl, record 2", "t.jsonl, line 3"]


PARTS = (
    "retrieval", "params", "llm_calls", "outcome", "run", "prompt", "messages_wo_system", "usage", "successed",
    "memory_id", "selected_memories_by_bucket", "weight_sim", "k_retrieve", "content",
)  # fmt: skip


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(PARTS), inner, max_size=4),
        max_leaves=20,
    )
)
def test_no_record_can_make_the_reader_stumble(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    reported = drawn if isinstance(drawn, dict) else {"llm_calls": drawn, "retrieval": drawn}
    folder = tmp_path_factory.mktemp("drawn")
    good = an_llb_record("1", "a", {})
    file = write_lines(folder / "t.jsonl", [good, {**reported, "sample_index": drawn, "task_description": "b"}])
    contents = read_official(file)
    assert contents.traces[0].task.intent == "a"
    bank, run = brought_in(contents, folder / "bank")
    assert len(bank.traces(run)) == len(contents.traces)


def a_bcb_run(tmp_path: Path) -> Path:
    for epoch in (1, 2):
        for phase in ("train", "val"):
            here = tmp_path / f"epoch{epoch}" / phase
            key = {"task_id": f"BigCodeBench/{epoch}", "epoch": epoch, "phase": phase}
            write_lines(
                here / "memory_retrieval.jsonl",
                [{**key, "selected_ids": ["m1"], "retrieved_topk_queries": [["count the rows", 0.9]]}, {"task_id": 0}],
            )
            sample = {**key, "prompt": "write f", "raw_response": "def f(): ...", "model": "gpt"}
            status = "PASS" if phase == "train" else "FAIL"
            write_lines(here / "samples.jsonl", [{**sample, "status": status, "error": None}])
        CheckpointWriter(three()).write(tmp_path / f"epoch{epoch}" / "snapshot" / str(epoch))
    return tmp_path


def test_the_phases_of_a_bigcodebench_run_come_in_their_order(tmp_path: Path) -> None:
    contents = read_official(a_bcb_run(tmp_path / "run"))
    assert [(t.epoch, t.task.family) for t in contents.traces] == [(1, "train"), (1, "val"), (2, "train"), (2, "val")]
    first = contents.traces[0]
    assert (first.reward.outcome, first.reward.credited, first.reward.verdict) == ("success", ("m1",), "PASS")
    assert first.decision is None
    assert any("the decision" in lack for lack in first.lacks)
    assert len([s for s in contents.account.skipped if "prompt" in s.why]) == 4
    bank, run = brought_in(contents, tmp_path / "bank")
    assert bank.utilities(run)["m1"].q == 0.76
    assert bank.run(run).model == "gpt"


def test_the_calls_of_an_hle_run_are_paired_with_their_judgements(tmp_path: Path) -> None:
    picture = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": "data:..."}}]

    def call(kind: str, question: str, **more: Any) -> dict[str, Any]:
        return {"ts": "2026-01-01T00:00:00", "type": kind, "meta": {"question_id": question}, **more}

    def judged(question: str, correct: str) -> dict[str, Any]:
        meta = {"question_id": question, "question": f"text of {question}"}
        return {**call("judge", question), "meta": meta, "parsed": {"correct": correct, "reasoning": "since"}}

    folder = CheckpointWriter(three()).write(tmp_path / "c")
    write_lines(
        folder / "local_cache" / "llm_calls.jsonl",
        [
            call("solution", "q1", messages=[{"role": "user", "content": picture}], response="a frog"),
            call("solution", "q2", messages=[{"role": "user", "content": "two"}], response="2"),
            judged("q2", "no"),
            judged("q1", "yes"),
            judged("q1", "yes"),
            call("solution", "q3", messages=[], response=""),
        ],
    )
    contents = read_official(folder)
    assert [(t.task.id, t.task.intent, t.reward.outcome if t.reward else "") for t in contents.traces] == [
        ("q2", "text of q2", "failure"),
        ("q1", "text of q1", "success"),
    ]
    assert contents.traces[1].generate.messages[0].content == "what is it?\n[not text]"
    assert len({s.why for s in contents.account.skipped}) >= 2


def a_result_table(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "hle_valid_sec_1_results_20260101-000000.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "question", "raw_output", "correct", "retrieved_ids"])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_table_of_hle_results_is_read_with_its_memories(tmp_path: Path) -> None:
    folder = CheckpointWriter(three()).write(tmp_path / "c")
    answer = 'long, with "quotes"\n' * 20_000
    row = {"id": "a", "question": "x?", "raw_output": answer, "correct": True, "retrieved_ids": "['m2', 'm2', 7]"}
    no_lists = ["__import__('os')", "{[]: 1}", "[" * 1000, "('m1'" + "+'m1'" * 20_000 + ")", "'m1'", ""]
    table = a_result_table(
        folder, [row, *({"question": "z?", "correct": False, "retrieved_ids": cell} for cell in no_lists), {"id": "b"}]
    )
    contents = read_official(folder)
    first, *others = contents.traces
    assert (first.task.id, first.reward.outcome, first.reward.credited) == ("a", "success", ("m2",))
    assert first.generate.turns[0].reply.text == answer
    assert [(t.reward.outcome, t.reward.credited) for t in others] == [("failure", ())] * len(no_lists)
    assert ["row 8" in s.where for s in contents.account.skipped if "no question" in s.why] == [True]
    assert len(read_official(table).traces) == len(contents.traces)


@pytest.mark.parametrize("data", [b"", b"id,question\n\xff,x", b'id,question\n"1,x', b"id,question\n1,x\n1,x,2"])
def test_a_broken_table_of_hle_results_is_refused(tmp_path: Path, data: bytes) -> None:
    table = a_result_table(tmp_path, [])
    table.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read as a table"):
        read_official(table)
