"""The commands that move banks, checkpoints, traces and reports: what they leave and how they end."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from memrl_core.bank import MemoryBank
from memrl_core.cli import console
from memrl_core.cli import main as cli
from memrl_core.embedders.hashing import HashingEmbedder
from tests.builders import a_bank, a_step, an_agent_after
from tests.cli.conftest import memrl, printed
from tests.exchange.official_writer import CheckpointWriter, Written


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    an_agent_after(tmp_path / "bank", 6, run="mine").bank.close()
    return tmp_path / "bank"


def a_checkpoint(folder: Path, *q: float) -> Path:
    memories = [Written(f"m{number}", f"task {number}", q=value, visits=2) for number, value in enumerate(q)]
    return CheckpointWriter(memories).write(folder)


def test_an_official_checkpoint_is_imported_and_q_values_holds_its_utilities(tmp_path: Path) -> None:
    code, message = memrl("import", str(a_checkpoint(tmp_path / "5", 0.25, -0.5)), "--bank", str(tmp_path / "new"))
    assert code == 0, message
    with closing(sqlite3.connect(tmp_path / "new" / "bank.db")) as database:
        rows = database.execute("SELECT memory_id, q, visits FROM q_values ORDER BY memory_id").fetchall()
    assert rows == [("m0", 0.25, 2), ("m1", -0.5, 2)]
    assert "2 memories" in message and "Skipped" in message


def test_what_is_exported_comes_back_as_it_was(bank: Path, tmp_path: Path) -> None:
    printed("export", "--bank", str(bank), str(tmp_path / "out.zip"))
    printed("import", str(tmp_path / "out.zip"), "--bank", str(tmp_path / "again"))
    with MemoryBank.open(str(bank)) as one, MemoryBank.open(str(tmp_path / "again")) as other:
        assert other.events() == one.events()
        assert other.traces("mine") == one.traces("mine")
        assert dict(other.utilities("mine")) == dict(one.utilities("mine"))


def test_two_banks_become_one_that_knows_both(bank: Path, tmp_path: Path) -> None:
    an_agent_after(tmp_path / "second", 4, run="theirs").bank.close()
    printed("merge", str(bank), str(tmp_path / "second"), "--bank", str(tmp_path / "both"))
    with MemoryBank.open(str(tmp_path / "both")) as both:
        assert {info.id for info in both.runs()} == {"mine", "theirs", "merged"}
        assert len(both.utilities("merged")) == len(both.utilities("mine")) + len(both.utilities("theirs"))


def test_a_step_is_reported_in_one_file(bank: Path, tmp_path: Path) -> None:
    printed("report", "3", str(tmp_path / "step.html"), "--bank", str(bank))
    assert "Step 3" in (tmp_path / "step.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["import", "{tmp}/nothing", "--bank", "{tmp}/new"], "is not there"),
        (["import", "{tmp}/foreign.zip", "--bank", "{tmp}/new"], "Nothing was imported"),
        (["export", "--bank", "{tmp}/bank", "{tmp}/out.docx"], "Nothing was written"),
        (["export", "--bank", "{tmp}/bank", "{tmp}/foreign.zip"], "exists already"),
        (["export", "--bank", "{tmp}/none", "{tmp}/out.zip"], "no bank"),
        (["import", "{tmp}/bank", "--bank", f"{'x' * 5000}.toml"], "is a bank itself"),
        (["import", "x" * 5000, "--bank", "{tmp}/new"], "longer than a path may be"),
        (["export", "--bank", f"{'x' * 5000}.toml", "{tmp}/out.zip"], "longer than a path may be"),
        (["export", "--bank", "{tmp}/foreign.toml", "{tmp}/out.zip"], "nested too deeply"),
        (["export", "--bank", "{tmp}/bank", f"{'x' * 5000}.zip"], "longer than a path may be"),
        (["report", "1", f"{'x' * 5000}.html", "--bank", "{tmp}/bank"], "longer than a path may be"),
        (["merge", "{tmp}/bank", "{tmp}/other", "--bank", "{tmp}/new"], "hashing-8"),
        (["report", "99", "{tmp}/s.html", "--bank", "{tmp}/bank"], "no step 99"),
        (["report", "1", "{tmp}/s.html", "--bank", "{tmp}/bank", "--run", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_leaves_nothing(
    bank: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    (tmp_path / "foreign.zip").write_bytes(b"PK\x03\x04 not ours")
    (tmp_path / "foreign.toml").write_text(f"database = {'[' * 3000}{']' * 3000}", encoding="utf-8")
    with a_bank(tmp_path / "other") as other:
        other.write.commit_step(*a_step(1))
    before = sorted(path.name for path in tmp_path.iterdir())
    code, message = memrl(*(word.format(tmp=tmp_path) for word in words))
    assert code == 2
    assert says in message
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_experiment_keeps_its_runs_in_the_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "EVERY", 0.0)
    message = printed(
        "cross-model", "--bank", str(tmp_path / "study"), "--model", "simulated", "--model", "simulated-50", "--tasks",
        "2", "--seeds", "1", "--epochs", "1", "--use-on", "",
    )  # fmt: skip
    assert "simulated" in message
    # No bar moves in a file, so lines say what is done.
    done, total = re.findall(r"(\d+) of (\d+) after \d+ s", message)[-1]
    assert done == total != "0"
    with MemoryBank.open(str(tmp_path / "study")) as bank:
        assert bank.runs() and all(info.simulated for info in bank.runs())


def test_any_command_says_that_a_path_is_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["memrl", "tasks", "check", "x" * 5000])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "longer than a path may be" in capsys.readouterr().err


# --- memories of other programs ---------------------------------------------------------------------------------------


def test_memories_of_another_program_become_a_bank_after_a_look(tmp_path: Path) -> None:
    file = tmp_path / "playbook.txt"
    file.write_text(
        "[a-1] helpful=5 harmful=1 :: Check units.\n[a-2] helpful=0 harmful=4 :: Guess.\n", encoding="utf-8"
    )
    looked = printed("open", str(file), "--check", "--embedder", "hashing")
    assert "2 memories" in looked and "a-1" in looked and "helpful = helpful" in looked
    printed("open", str(file), "--bank", str(tmp_path / "new"), "--embedder", "hashing")
    with MemoryBank.open(str(tmp_path / "new")) as bank:
        known = bank.utilities(bank.runs()[0].id)
    assert {i: (u.q, u.visits) for i, u in known.items()} == {"a-1": (5 / 6, 6), "a-2": (0.0, 4)}


def test_an_export_of_our_own_is_opened_as_the_bank_that_it_was(bank: Path, tmp_path: Path) -> None:
    for kind in ("zip", "jsonl", "parquet"):
        printed("export", "--bank", str(bank), str(tmp_path / f"out.{kind}"))
        assert "6 memories" in printed("open", str(tmp_path / f"out.{kind}"), "--check")
        printed("open", str(tmp_path / f"out.{kind}"), "--bank", str(tmp_path / kind))
        with MemoryBank.open(str(bank)) as one, MemoryBank.open(str(tmp_path / kind)) as other:
            assert dict(other.utilities("mine")) == dict(one.utilities("mine"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{tmp}/none.json", "--check"], "no file"),
        (["{tmp}/good.jsonl"], "--bank"),
        (["{tmp}/good.jsonl", "--bank", "{tmp}/bank"], "already stored"),
        (["{tmp}/good.jsonl", "--check", "--map", "text=nothing"], "nothing"),
        (["{tmp}/good.jsonl", "--check", "--map", "text"], "name=value"),
        (["{tmp}/bad.jsonl", "--check"], "line 2"),
        (["{tmp}/bad.jsonl", "--bank", "{tmp}/new"], "line 2"),
        (["{tmp}/foreign.zip", "--check"], "zip"),
        (["https://example.org/m.json", "--check"], "address"),
    ],
)
def test_what_cannot_be_opened_ends_with_a_sentence_and_no_bank(
    words: list[str], says: str, bank: Path, tmp_path: Path
) -> None:
    (tmp_path / "good.jsonl").write_text('{"text": "a", "vector": [1, 0]}\n', encoding="utf-8")
    (tmp_path / "bad.jsonl").write_text('{"text": "a", "q": 1}\n{"text": \n', encoding="utf-8")
    (tmp_path / "foreign.zip").write_bytes(b"PK\x03\x04 and no more")
    code, message = memrl("open", *(word.replace("{tmp}", str(tmp_path)) for word in words))
    assert code == 2 and says in message
    assert not (tmp_path / "new").exists()


def test_spans_of_traces_become_the_steps_of_a_run(tmp_path: Path) -> None:
    document = {"document.id": "m1", "document.content": "Prefers oat milk", "document.score": 0.82}
    attributes = {"openinference.span.kind": "RETRIEVER", "input.value": "coffee", "retrieval.documents": [document]}
    row = {"name": "recall", "context": {"trace_id": "0x1", "span_id": "0xa"}, "attributes": attributes}
    (tmp_path / "s.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    code, message = memrl("open", str(tmp_path / "s.jsonl"), "--check")
    assert code == 2 and "memrl import" in message
    MemoryBank.create(str(tmp_path / "new"), "hashing-64", 64).close()
    assert "1 step and" in printed("import", str(tmp_path / "s.jsonl"), "--bank", str(tmp_path / "new"))
    with MemoryBank.open(str(tmp_path / "new")) as bank:
        (trace,) = bank.traces("traces-s")
    assert trace.recall is not None and trace.recall.pool[0].signal == 0.82
    assert "coffee" in printed("show", "1", "--bank", str(tmp_path / "new"))


def test_a_checkpoint_is_opened_with_the_vectors_of_an_embedder_that_is_here(tmp_path: Path) -> None:
    made, new = str(a_checkpoint(tmp_path / "5", 0.25, -0.5)), str(tmp_path / "new")
    code, message = memrl("open", made, "--bank", new, "--map", "text=body")
    assert code == 2 and "--map" in message and not Path(new).exists()
    message = printed("open", made, "--bank", new, "--embedder", "hashing-64")
    assert "2 memories and 0 steps have vectors of hashing-64" in message
    with MemoryBank.open(new) as bank:
        (run,) = bank.runs()
        assert bank.embedder.name == "hashing-64"
        assert {known.q for known in bank.utilities(run.id).values()} == {0.25, -0.5}
        view = bank.view(run.id)
        expected = HashingEmbedder(64).embed([bank.memory(one).intent for one in view.ids])
        assert np.allclose(np.asarray(view.embeddings), expected, atol=1e-6)
