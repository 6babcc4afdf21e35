"""`memrl recall`: labels, sets in and out, and a guard that ends with 1 where a bar is missed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from memrl_core.agent import Agent
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import GRADES_IN_WORDS, Label
from memrl_core.cli import main as cli
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.recall_sets import as_jsonl, exported, read_set
from memrl_core.models.simulated import SimulatedModel
from tests.builders import a_run, an_agent_after
from tests.cli.conftest import memrl, printed
from tests.exchange.official_writer import CheckpointWriter, Written


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> str:
    """12 household steps, of which nothing is labelled."""
    with an_agent_after(tmp_path_factory.mktemp("recall") / "bank", 12).bank as made:
        return made.uri


@pytest.fixture
def bank(played: str, tmp_path: Path) -> str:
    """A copy of it with labels of two raters: r-0001 should come in step 5, and nothing in step 2."""
    with MemoryBank.open(played) as opened:
        opened.write_parts(tmp_path / "bank")
    uri = str(tmp_path / "bank")
    for words in (
        ["5", "r-0001", "--grade", "relevant"], ["5", "r-0002", "--grade", "0"], ["2", "--nothing"],
    ):  # fmt: skip
        printed("recall", "label", *words, "--rater", "ann", "--bank", uri)
    return uri


def labels_in(uri: str) -> dict[tuple[int, str, str], int | None]:
    with MemoryBank.open(uri) as opened:
        return {(one.step, one.memory_id, one.rater): one.grade for one in opened.judgements.standing()}


def test_labels_are_given_changed_withdrawn_and_undone(bank: str) -> None:
    assert labels_in(bank) == {(5, "r-0001", "ann"): 2, (5, "r-0002", "ann"): 0, (2, "", "ann"): 0}
    printed("recall", "label", "5", "r-0001", "--grade", "3", "--rater", "ann", "--bank", bank)
    printed("recall", "label", "5", "r-0002", "--withdraw", "--rater", "ann", "--bank", bank)
    assert labels_in(bank) == {(5, "r-0001", "ann"): 3, (2, "", "ann"): 0}
    for _ in range(2):
        printed("recall", "label", "--undo", "--rater", "ann", "--bank", bank)
    assert labels_in(bank)[5, "r-0001", "ann"] == 2 and labels_in(bank)[5, "r-0002", "ann"] == 0


@pytest.mark.parametrize(
    "words",
    [["5", "r-0001", "--grade", "7"], ["5", "r-0001"], ["5", "--nothing", "--something"], ["0"], ["99", "--nothing"]],
)
def test_a_label_that_cannot_be_is_one_sentence_and_saves_nothing(bank: str, words: list[str]) -> None:
    before = labels_in(bank)
    assert memrl("recall", "label", *words, "--bank", bank)[0] == 2
    assert labels_in(bank) == before


def test_what_the_environment_knows_is_labelled_apart_from_people(bank: str) -> None:
    printed("recall", "label", "--derive", "--bank", bank)
    with MemoryBank.open(bank) as opened:
        sources = {one.source for one in opened.judgements.standing()}
        assert sources == {"person", "derived"}
    message = printed("recall", "report", "--bank", bank, "--source", "person")
    assert "3 person" in message and "derived" not in message


def test_a_report_says_what_to_do_first_where_nothing_is_labelled(played: str) -> None:
    code, message = memrl("recall", "report", "--bank", played)
    assert code == 2 and "recall label" in message
    message = printed("recall", "report", "--bank", played, "--derived", "--embedder", "wordllama")
    assert message.count("false_recall") == 2 and "the same steps · wordllama" in message
    assert labels_in(played) == {}


@pytest.mark.parametrize("kind", ["jsonl", "qrels", "beir"])
def test_a_set_that_was_written_labels_another_bank_the_same(bank: str, played: str, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"set.{kind}"
    printed("recall", "export", str(out), "--format", kind, "--bank", bank)
    assert memrl("recall", "export", str(out), "--format", kind, "--bank", bank)[0] == 2
    with MemoryBank.open(played) as opened:
        opened.write_parts(tmp_path / "other")
    printed("recall", "import", str(out), "--rater", "bo", "--bank", str(tmp_path / "other"))
    found = {(step, memory): grade for (step, memory, _), grade in labels_in(str(tmp_path / "other")).items()}
    about_query = {(2, ""): 0} if kind == "jsonl" else {}
    assert found == {(5, "r-0001"): 2, (5, "r-0002"): 0, **about_query}


def test_what_cannot_be_used_of_a_set_is_named_and_the_rest_is_kept(bank: str, tmp_path: Path) -> None:
    lines = ["r/4 0 r-0001 -1", "r/4 0 r-0001 0", "r/4 0 gone 2", "r/4 0 r-0003 9", "r/99 0 r-0001 1", "x y"]
    (tmp_path / "a.qrels").write_text("\n".join(lines), encoding="utf-8")
    message = printed("recall", "import", str(tmp_path / "a.qrels"), "--bank", bank)
    for said in ("(irrelevant): 1.", "twice", "gone", "grade 9", "r/99", "Line 6"):
        assert said in message
    assert labels_in(bank)[4, "r-0001", "a.qrels"] == 0


@pytest.mark.parametrize(
    "text", ["", '{"query": "x"}', '{"query": 3, "judged": []}', "\x00\x01", '{"query": "x", "judged": [3]}', "{"]
)
def test_a_file_without_a_usable_label_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "set.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="no label that can be used"):
        read_set(tmp_path / "set.jsonl")


def test_ids_of_digits_spaces_and_whole_grades_are_read_however_a_file_writes_them(tmp_path: Path) -> None:
    def read(name: str, text: str) -> dict[tuple[str, str], int]:
        (tmp_path / name).write_bytes(text.encode())
        found = read_set(tmp_path / name)
        assert found.skipped == ()
        return {(query.id, one.memory): one.grade for query in found.queries for one in query.labels}

    expected = {("7", "3"): 2, ("7", "4"): 0}
    assert read("a.qrels", "\ufeff7 0 3 2.0\r\n\t7 0\t4  0\r\n\r\n") == expected
    assert read("b.tsv", "query-id\tcorpus-id\tscore\n 7\t3\t2\n7 \t4\t-1\n") == expected
    assert read("c.tsv", "7\ta b\t1\n") == {("7", "a b"): 1}
    row = {"id": 7, "query": "x", "step": "5", "judged": [{"memory": 3, "grade": "2"}, {"memory": "4", "grade": 0.0}]}
    assert read("d.jsonl", json.dumps(row)) == expected
    assert read("e.jsonl", json.dumps({**row, "id": 0, "step": 5.0})).keys() == {("0", "3"), ("0", "4")}


def test_every_part_of_a_set_that_cannot_be_used_is_named_by_its_file_and_line(tmp_path: Path) -> None:
    wrong = [{"memroy": "a", "grade": 1}, {"memory": "a", "grde": 1}, {"nothing": "yes"}, {"memory": "a", "grade": 1.5}]
    lines = [{"query": "x", "judgd": []}, {"query": "x", "step": 1.5, "judged": []}]
    lines.append({"query": "x", "judged": [*wrong, {"memory": "b", "grade": 1}]})
    (tmp_path / "set.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = read_set(tmp_path / "set.jsonl")
    for said, part in zip(found.skipped, ("judged", "step", "memory", "grade", "nothing", "1.5"), strict=True):
        assert part in said
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text('{"_id": 1, "text": "x"}\n{"id": 2}\nno\n', encoding="utf-8")
    (folder / "corpus.jsonl").write_text('{"text": "x"}\n', encoding="utf-8")
    (folder / "qrels" / "dev.tsv").write_text("1\ta\t1\n1\ta\n", encoding="utf-8")
    skipped = read_set(folder).skipped
    assert [one.partition(":")[0] for one in skipped] == ["dev.tsv", "queries.jsonl", "queries.jsonl", "corpus.jsonl"]
    (tmp_path / "list.json").write_text(json.dumps(lines), encoding="utf-8")
    with pytest.raises(InputError, match="list"):
        read_set(tmp_path / "list.json")


def test_a_set_reads_back_as_it_was_written(bank: str, tmp_path: Path) -> None:
    with MemoryBank.open(bank) as opened:
        queries = exported(opened)
    (tmp_path / "set.jsonl").write_bytes(as_jsonl(queries))
    assert list(read_set(tmp_path / "set.jsonl").queries) == queries


def test_the_guard_ends_with_1_where_a_bar_is_missed_and_with_0_where_all_hold(bank: str, tmp_path: Path) -> None:
    file, junit = str(tmp_path / "set.jsonl"), tmp_path / "bars.xml"
    printed("recall", "export", file, "--bank", bank)
    printed("recall", "check", file, "--bank", bank, "--min", "recall@10=0", "--max", "false_recall=1")
    words = ["recall", "check", file, "--bank", bank, "--min", "recall@10=0.1", "--max", "false_recall=0"]
    code, message = memrl(*words, "--junit", str(junit))
    assert code == 1 and "false_recall ≤ 0: 1.0000, missed" in message
    suite = ElementTree.parse(junit).getroot()
    assert suite.get("tests") == "2" and len(suite.findall(".//failure")) == int(suite.get("failures", "0")) >= 1
    # What cannot be computed is no bar that holds.
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    only = [row for row in rows if row["step"] == 5]
    Path(file).write_text("\n".join(json.dumps(row) for row in only), encoding="utf-8")
    words = ["recall", "check", file, "--bank", bank, "--max", "false_recall=1", "--junit", str(junit)]
    code, message = memrl(*words)
    (failed,) = ElementTree.parse(junit).getroot().findall(".//failure")
    why = "cannot be computed: no query says that nothing should come"
    assert code == 1 and "no query says that nothing should come" in message and why in str(failed.get("message"))
    for bad in (
        ["--min", "speed=1"],
        ["--min", "recall@10"],
        ["--min", "recall@10=7"],
        ["--junit", str(tmp_path / "missing" / "bars.xml")],
    ):
        assert memrl("recall", "check", file, "--bank", bank, *bad)[0] == 2


def test_the_guard_asks_a_set_of_another_bank_and_an_export(bank: str, tmp_path: Path) -> None:
    rows = [
        {
            "query": "put a clean mug on the desk",
            "judged": [{"memory": "r-0001", "grade": 2}, {"memory": "x", "grade": 1}],
        },
        {"query": "what nobody ever asked", "judged": [{"nothing": True}]},
    ]
    file = tmp_path / "set.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with MemoryBank.open(bank) as opened:
        write_bank(opened, tmp_path / "bank.zip", False)
    for place in (bank, str(tmp_path / "bank.zip")):
        message = printed("recall", "check", str(file), "--bank", place)
        assert "set.jsonl: 2 queries" in message and "1 of 2 memories of the set are not in this bank" in message
    assert memrl("recall", "check", str(file), "--bank", str(tmp_path / "none"))[0] == 2


def test_annotations_of_the_documents_of_spans_become_labels_with_their_raters(tmp_path: Path) -> None:
    documents = [{"document.id": "m1", "document.content": "Prefers oat milk"}, {"document.content": "Is vegetarian"}]
    span = {
        "name": "recall", "context": {"trace_id": "1", "span_id": "0xa"}, "start_time": "2026-05-01T10:00:00Z",
        "end_time": "2026-05-01T10:00:01Z",
        "attributes": {
            "openinference.span.kind": "RETRIEVER", "input.value": "make coffee", "retrieval.documents": documents,
        },
    }  # fmt: skip
    (tmp_path / "spans.jsonl").write_text(json.dumps(span), encoding="utf-8")
    bank = str(tmp_path / "theirs")
    memrl("import", str(tmp_path / "spans.jsonl"), "--bank", bank)

    def said(place: object, kind: str = "HUMAN", rater: str = "ann", span_id: str = "0xa", **result: object) -> object:
        about = {"span_id": span_id, "document_position": place, "name": "relevance", "annotator_kind": kind}
        return {**about, "identifier": rater, "result": result}

    lines = [
        said(0, label="relevant", explanation="milk for coffee"), span, {"data": [said(1, score=0.0)]},
        said(0, "LLM", "judge-1", score=0.2), said(7, score=1), said(0, span_id="0xff", score=1), said("x", score=1),
        said(1, rater="bo", label="perhaps"), said(1, "CODE", "c", score=-0.5),
    ]  # fmt: skip
    path = tmp_path / "annotated.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert len(read_set(path).skipped) == 4
    said_of_it = printed("recall", "import", str(path), "--bank", bank)
    assert "Negative grades, which count as 0 (irrelevant): 1." in said_of_it and "from this set: 4." in said_of_it
    with MemoryBank.open(bank) as opened:
        found = opened.judgements.standing()
        ids = {memory.experience: memory.id for memory in opened.memories()}
    oat, meat = ids["Prefers oat milk"], ids["Is vegetarian"]
    labels = {(one.memory_id, one.rater, one.grade, one.source, one.reason) for one in found}
    assert labels == {
        (oat, "ann", 2, "import", "milk for coffee"), (meat, "ann", 0, "import", ""),
        (oat, "judge-1", 0, "import", ""), (meat, "c", 0, "import", ""),
    }  # fmt: skip


def test_the_guard_names_memories_that_were_edited_or_forgotten_since_their_label(bank: str, tmp_path: Path) -> None:
    with MemoryBank.open(bank) as opened:
        run = opened.runs()[0].id
        step = next(t.step for t in opened.each_trace(run) if t.decision and t.decision.selected)
        memory = opened.trace(run, step).decision.selected[0]  # type: ignore[union-attr]
        opened.write.editing.forget(run, [memory], "ann")
    memrl("recall", "label", str(step), memory, "--grade", "2", "--rater", "ann", "--bank", bank)
    memrl("recall", "export", str(tmp_path / "set.jsonl"), "--bank", bank)
    said = printed("recall", "check", str(tmp_path / "set.jsonl"), "--bank", bank)
    assert memory in said and "since" in said


def test_a_batch_of_recall_is_made_and_shown_with_those_of_rewards(bank: str, played: str) -> None:
    words = ["--raters", "bo,cy", "--steps", "6", "--doubled", "0.5", "--gold", "0.5", "--method", "rag"]
    made = printed("recall", "batch", "--bank", bank, *words)
    assert made.count("labelled") == 1 and "bo" in made
    with MemoryBank.open(bank) as opened:
        (batch,) = opened.batches.of()
        assert (batch.kind, len(batch.grades), len(batch.pools)) == ("recall", 3, 6)
        assert sum(map(len, batch.parts.values())) == 9 and batch.methods == ("memrl", "rag")
        step = batch.parts["bo"][0]
        opened.write.judgements.judge(Label(batch.run, step, "", 0, "bo"))
    shown = printed("rewards", "batches", "--bank", bank)
    assert [line.split()[:3] for line in shown.splitlines() if "bo" in line] == [
        ["bo", "1", str(len(batch.parts["bo"]))]
    ]
    assert memrl("recall", "batch", "--bank", bank, "--raters", "bo", "--doubled", "1")[0] == 2
    assert memrl("recall", "batch", "--bank", bank, "--raters", "bo", "--method", "none-such")[0] == 2


def _measures(message: str) -> list[str]:
    """The lines of a table of measures."""
    lines = [" ".join(line.split()) for line in message.splitlines()]
    return [line for line in lines if line.startswith(("recall@", "hit@", "mrr", "ndcg"))]


@pytest.fixture
def derived(played: str, tmp_path: Path) -> str:
    """A copy of the played bank, labelled by what its environment knows."""
    with MemoryBank.open(played) as opened:
        opened.write_parts(tmp_path / "derived")
    printed("recall", "label", "--derive", "--bank", str(tmp_path / "derived"))
    return str(tmp_path / "derived")


@pytest.fixture
def two_runs(derived: str) -> str:
    """That bank with a run "later" of four steps, which knows nothing of what the first one stored."""
    with MemoryBank.open(derived) as opened:
        opened.write.start_run(replace(a_run("later"), environment="household", embedder=opened.embedder.name))
        agent = Agent(opened, "later", SimulatedModel(), HashingEmbedder(), make_environment("household"))
        list(agent.run(sample_tasks("household-train")[:4]))
    return derived


def test_a_query_whose_id_is_a_number_is_no_step_and_its_text_counts(bank: str, tmp_path: Path) -> None:
    before = labels_in(bank)
    foreign, judged = "what is the capital of France?", [{"memory": "r-0003", "grade": 2}]
    for row in ({"id": "5"}, {"id": 5}, {"id": "r/5"}, {"run": "r", "step": 5}, {"run": "r", "step": 10**30}):
        path = tmp_path / "set.jsonl"
        path.write_text(json.dumps({**row, "query": foreign, "judged": judged}), encoding="utf-8")
        code, message = memrl("recall", "import", str(path), "--bank", bank)
        assert code == 2 and "Nothing was imported" in message and labels_in(bank) == before
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "5", "text": foreign}), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n5\tr-0003\t2\n", encoding="utf-8")
    (tmp_path / "a.qrels").write_text("5 0 r-0003 2\n", encoding="utf-8")
    for path in (folder, tmp_path / "a.qrels"):
        assert memrl("recall", "import", str(path), "--bank", bank)[0] == 2 and labels_in(bank) == before
    # The same id with the text of another step is that step.
    with MemoryBank.open(bank) as opened:
        text = opened.trace("r", 7).task.intent
        steps = {trace.step for trace in opened.each_trace("r") if trace.task.intent == text}
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "5", "text": text}), encoding="utf-8")
    printed("recall", "import", str(folder), "--rater", "beir", "--bank", bank)
    assert {key for key in labels_in(bank) if key[2] == "beir"} == {(step, "r-0003", "beir") for step in steps}


def test_a_query_that_names_a_step_of_another_text_is_said_and_asked_by_its_own(bank: str, tmp_path: Path) -> None:
    row = {"run": "r", "step": 5, "query": "what is the capital of France?", "judged": [{"nothing": True}]}
    (tmp_path / "set.jsonl").write_text(json.dumps(row), encoding="utf-8")
    for command in ("import", "check"):
        _, message = memrl("recall", command, str(tmp_path / "set.jsonl"), "--bank", bank)
        assert command == "import" or ("name a step of another text" in message and "r/5" in message)


def test_the_guard_measures_a_set_the_same_in_every_format(derived: str, tmp_path: Path) -> None:
    tables = []
    for kind in ("jsonl", "qrels", "beir"):
        printed("recall", "export", str(tmp_path / kind), "--format", kind, "--bank", derived)
        tables.append(_measures(printed("recall", "check", str(tmp_path / kind), "--bank", derived)))
    assert len(tables[0]) > 5 and tables[0] == tables[1] == tables[2]


def test_qrels_of_which_no_query_can_be_asked_are_refused_with_a_reason_and_a_remedy(bank: str, tmp_path: Path) -> None:
    (tmp_path / "a.qrels").write_text("17 0 r-0001 2\n", encoding="utf-8")
    done = CliRunner().invoke(cli.app, ["recall", "check", str(tmp_path / "a.qrels"), "--bank", bank])
    assert isinstance(done.exception, InputError) and "Nothing was checked" in str(done.exception)
    assert "name no step or task of run r (17)" in done.output and "r/1" in done.output


def test_a_set_is_asked_in_the_run_that_it_names_and_what_another_run_cannot_know_is_said(
    two_runs: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "set.jsonl")
    printed("recall", "export", file, "--bank", two_runs)
    own = printed("recall", "check", file, "--bank", two_runs)
    assert "· run r" in own and _measures(own) == _measures(
        printed("recall", "check", file, "--bank", two_runs, "--run", "r")
    )
    assert "does not know" not in own
    other = printed("recall", "check", file, "--bank", two_runs, "--run", "later")
    assert "Run later does not know" in other and "cannot come" in other
    printed("recall", "label", "--derive", "--run", "later", "--bank", two_runs)
    printed("recall", "export", file, "--overwrite", "--bank", two_runs)
    assert "runs r, later" in printed("recall", "check", file, "--bank", two_runs)
    printed("recall", "export", file, "--overwrite", "--run", "later", "--bank", two_runs)
    assert "· run later" in printed("recall", "check", file, "--bank", two_runs)


def test_a_whole_import_or_what_was_derived_is_taken_back_by_one_command(bank: str, tmp_path: Path) -> None:
    before = labels_in(bank)
    (tmp_path / "x.qrels").write_text("r/5 0 r-0001 1\nr/6 0 r-0001 1\nr/7 0 r-0002 0\n", encoding="utf-8")
    (tmp_path / "y.qrels").write_text("r/7 0 r-0001 1\n", encoding="utf-8")
    for name in ("x", "y"):
        printed("recall", "import", str(tmp_path / f"{name}.qrels"), "--bank", bank)
    printed("recall", "label", "--derive", "--bank", bank)
    words = ["recall", "label", "--withdraw", "--bank", bank]
    assert "--withdraw" in printed("recall", "label", "--undo", "--rater", "x.qrels", "--bank", bank)
    # By hand x.qrels gave none; what stands is named.
    code, message = memrl(*words[:2], "5", "r-0001", *words[2:], "--rater", "x.qrels")
    assert code == 2 and "--source import --rater x.qrels" in message
    assert "3 labels from import by x.qrels are taken back" in printed(
        *words, "--source", "import", "--rater", "x.qrels"
    )
    assert {rater for *_, rater in labels_in(bank)} == {"ann", "y.qrels", "household"}
    assert "from derived" in printed(*words, "--source", "derived")
    printed(*words[:2], "7", "r-0001", *words[2:], "--source", "import", "--rater", "y.qrels")
    assert labels_in(bank) == before
    for wrong in (["99", "r-0001"], ["5", "r-0003"], ["--source", "import"], []):
        code, message = memrl(*words, *wrong)
        assert code == 2 and "Nothing was changed" in message
    assert "run r has no finished step 99" in memrl(*words, "99", "r-0001")[1].replace("Run", "run")
    # The same file again brings its labels back.
    printed("recall", "import", str(tmp_path / "x.qrels"), "--bank", bank)
    assert (6, "r-0001", "x.qrels") in labels_in(bank)


def test_what_is_undone_is_said_with_what_stands_now(bank: str) -> None:
    printed("recall", "label", "5", "r-0001", "--grade", "3", "--rater", "ann", "--bank", bank)
    words = ["recall", "label", "--undo", "--rater", "ann", "--bank", bank]
    for said in (
        "Step 5 of run r, memory r-0001, exactly right. Now it is: relevant.",
        "Step 2 of run r, the query, nothing should come. Now it is: no label.",
    ):
        assert f"Undone: {said}" in printed(*words)


@pytest.mark.parametrize("name", ["#1", "1", "r-0001", " #0001"])
def test_a_memory_is_named_as_it_is_shown(bank: str, name: str) -> None:
    printed("recall", "label", "6", name, "--grade", "yes", "--rater", "bo", "--bank", bank)
    assert labels_in(bank)[6, "r-0001", "bo"] == 2
    code, message = memrl("recall", "label", "6", "#999", "--grade", "yes", "--bank", bank)
    assert code == 2 and "memrl show STEP" in message


def test_the_same_words_mean_the_same_grades_in_a_terminal_and_in_files(tmp_path: Path) -> None:
    words = {**GRADES_IN_WORDS, True: 2, False: 0}
    judged = [{"memory": str(word), "grade": word} for word in words]
    (tmp_path / "set.jsonl").write_text(json.dumps({"query": "x", "judged": judged}), encoding="utf-8")
    (query,) = read_set(tmp_path / "set.jsonl").queries
    assert {label.memory: label.grade for label in query.labels} == {str(word): n for word, n in words.items()}


def test_an_embedder_of_an_unknown_name_is_said_to_be_taken_for_one_of_ollama(derived: str) -> None:
    code, message = memrl("recall", "report", "--bank", derived, "--embedder", "nonsense")
    assert code == 2 and "“nonsense” is none of hashing, wordllama" in message and "Ollama is not running" in message


def test_a_report_on_stored_derived_labels_says_that_they_favour_what_was_shown(derived: str) -> None:
    said = "favours what was shown"
    assert said in " ".join(printed("recall", "report", "--bank", derived).split())
    assert said not in " ".join(printed("recall", "report", "--bank", derived, "--derived").split())


def test_a_memory_with_another_text_is_said_once_and_does_not_count_as_the_one_that_was_labelled(
    bank: str, tmp_path: Path
) -> None:
    with MemoryBank.open(bank) as opened:
        trace = next(t for t in opened.each_trace("r") if t.recall and t.recall.pool)
    memory = trace.recall.pool[0].memory_id  # type: ignore[union-attr]
    row = {"query": trace.task.intent, "run": "r", "step": trace.step}
    tables = []
    for intent in ({}, {"intent": "what it said before"}):
        judged = [{"memory": memory, "grade": 2, **intent}]
        (tmp_path / "set.jsonl").write_text(json.dumps({**row, "judged": judged}), encoding="utf-8")
        tables.append(printed("recall", "check", str(tmp_path / "set.jsonl"), "--bank", bank))
    assert " 1.000" in _measures(tables[0])[0] and " 0.000" in _measures(tables[1])[0]
    assert "1 of 1 memories of the set have another text here" in tables[1] and "not in this bank" not in tables[1]


def test_a_checkpoint_whose_embedder_nobody_named_is_asked_with_vectors_made_for_the_check(tmp_path: Path) -> None:
    texts = ["count the rows", "drop a table", "list users by age"]
    checkpoint = CheckpointWriter([Written(f"m{n}", text) for n, text in enumerate(texts)]).write(tmp_path / "5")
    rows = [{"query": text, "judged": [{"memory": f"m{n}", "grade": 3}]} for n, text in enumerate(texts)]
    (tmp_path / "set.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = ["recall", "check", str(tmp_path / "set.jsonl"), "--bank", str(checkpoint), "--min", "mrr=1"]
    done = CliRunner().invoke(cli.app, asked)
    assert isinstance(done.exception, InputError) and "Ollama" not in done.output
    assert "not known which embedder made the vectors" in " ".join(done.output.split())
    assert "mrr ≥ 1: 1.0000, held." in printed(*asked, "--embedder", "hashing-64")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5", "set.jsonl"]


def test_fields_of_a_set_that_are_not_read_are_named(tmp_path: Path) -> None:
    row = {"query": "a", "text": "fetch the lamp", "judged": [{"memory": "m1", "grade": 2, "score": 0.3}]}
    (tmp_path / "set.jsonl").write_text(json.dumps(row))
    (note,) = read_set(tmp_path / "set.jsonl").notes
    assert "not read: text, score. A query has id, query, run" in note
