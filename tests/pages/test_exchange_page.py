"""Bank, Import and export: what arrives, what is said of it, and what a wrong file leads to."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import banks_folder, load_preferences
from memrl_core.agent.run_parts import make_embedder
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.exchange.bring_in import read_any
from pages.bank import import_export
from tests.exchange.official_writer import CheckpointWriter, Written
from tests.pages.screen import Stored, Visit, a_bank, at_rest, page_text, plain


def exchange(visit: Visit, **link: str) -> AppTest:
    app = visit("bank", **link)
    app.segmented_control(key="bank_view").set_value("Import and export").run()
    return app


def import_path(app: AppTest, path: Path, target: str) -> AppTest:
    app.text_input(key="import_path").set_value(str(path))
    app.text_input(key="import_target").set_value(target).run()
    return at_rest(app.button(key="import").click().run(), "import")


def test_an_import_can_be_stopped_and_leaves_nothing(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    def endless(path: Path, cancelled: Callable[[], bool]) -> None:
        while not cancelled():
            stopped.wait(0.01)
        stopped.set()
        raise InputError("The import was stopped. Nothing was imported.")

    monkeypatch.setattr(import_export, "read_any", endless)
    app = exchange(visit, bank="demo")
    app.text_input(key="import_path").set_value(str(tmp_path))
    app.text_input(key="import_target").set_value("never").run()
    app.button(key="import").click().run()
    app.button(key="stop_import").click().run()
    assert app.session_state["work_import"][1].wait(30) and stopped.is_set()
    app.run()
    assert any("was stopped" in error.value for error in app.error)
    assert not (banks_folder() / "never").exists()
    monkeypatch.setattr(import_export, "read_any", read_any)
    path = tmp_path / "broken.json"
    path.write_text("{")
    app = import_path(app, path, "never")
    assert any("is not something" in error.value for error in app.error)


def test_a_checkpoint_arrives_with_an_account_of_what_was_skipped(demo: Path, bank: Stored, visit: Visit) -> None:
    memories = [Written(f"m{n}", f"task <b>{n}</b>", q=n / 10, visits=1) for n in range(5)]
    folder = CheckpointWriter(memories).write(demo.parent.parent / "snapshot" / "5")
    app = import_path(exchange(visit, bank="demo"), folder, "from-paper")
    assert not app.error
    assert {"5 memories", "0 steps", "6 events"} <= set(re.findall(r"\d+ \w+", plain(app)))
    assert "Skipped" in plain(app) and "not tell" in plain(app)
    with MemoryBank.open(str(banks_folder() / "from-paper")) as bank:
        (run,) = bank.runs()
        assert bank.utilities(run.id)["m3"].q == pytest.approx(0.3)
    for page in ("step", "decision", "compare", "bank"):
        visit(page, bank="from-paper")
    assert "from elsewhere" in page_text(visit("step", bank="from-paper"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", json.dumps({"a": 1}).encode(), b"\x80\x04pickle"])
def test_a_foreign_file_gets_a_sentence_and_makes_no_bank(demo: Path, visit: Visit, content: bytes) -> None:
    path = demo.parent.parent / "odd.zip"
    path.write_bytes(content)
    app = import_path(exchange(visit, bank="demo"), path, "odd")
    assert any("Nothing was imported" in error.value for error in app.error)
    assert not (banks_folder() / "odd").exists()


def test_files_of_spans_that_are_uploaded_become_runs_of_their_own_names(demo: Path, visit: Visit) -> None:
    for name in ("monday", "tuesday"):
        call = {"openinference.span.kind": "LLM", "input.value": f"a question of {name}", "output.value": "an answer"}
        span = {"trace_id": name, "span_id": "1", "name": "call", "attributes": call}
        app = exchange(visit, bank="demo")
        app.file_uploader(key="import_file").upload(f"{name}.JSONL", json.dumps(span).encode() + b"\n")
        app.text_input(key="import_target").set_value("spans").run()
        at_rest(app.button(key="import").click().run(), "import")
        assert not app.error and not app.exception
    with MemoryBank.open(str(banks_folder() / "spans")) as bank:
        assert {info.id for info in bank.runs()} == {"traces-monday", "traces-tuesday"}


def test_two_banks_are_merged_into_a_third(bank: Stored, visit: Visit) -> None:
    name = a_bank("mine", embedder=make_embedder("wordllama", load_preferences()))
    app = exchange(visit, bank="demo")
    app.selectbox(key="merge_first").set_value("demo")
    app.selectbox(key="merge_second").set_value(name)
    app.text_input(key="merge_name").set_value("both").run()
    app.button(key="merge").click().run()
    with MemoryBank.open(str(banks_folder() / "both")) as bank:
        assert {"household", "r"} <= {info.id for info in bank.runs()}


def test_memories_of_another_program_are_seen_before_a_bank_is_made_of_them(demo: Path, visit: Visit) -> None:
    path = demo.parent.parent / "notes.jsonl"
    rows = [{"id": f"n{n}", "body": f"note <b>{n}</b>", "worth": n / 10, "about": f"about {n}"} for n in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    app = exchange(visit, bank="demo")
    app.text_input(key="foreign_path").set_value(str(path)).run()
    app.button(key="foreign_look").click().run()
    assert "12 memories" in page_text(app) and len(app.dataframe[0].value) == 10
    assert app.button(key="foreign_make").disabled
    app.selectbox(key="foreign_map_intent").set_value("about").run()
    app.selectbox(key="foreign_map_q").set_value("worth").run()
    app.selectbox(key="foreign_embedder").set_value("hashing").run()
    app.checkbox(key="foreign_skip").check().run()
    app.text_input(key="foreign_name").set_value("notes").run()
    at_rest(app.button(key="foreign_make").click().run(), "foreign_write")
    assert not app.error and not app.exception
    with MemoryBank.open(str(banks_folder() / "notes")) as bank:
        known = bank.utilities(bank.runs()[0].id)
        assert bank.memory("n3").intent == "about 3" and known["n3"].q == pytest.approx(0.3) and len(known) == 12
    for page in ("step", "decision", "bank"):
        visit(page, bank="notes")
