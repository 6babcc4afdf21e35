"""The page Tasks: every environment has its page, and a person's own file comes in with a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import banks_folder
from memrl_core.bank import MemoryBank
from memrl_core.environments import environment_class
from memrl_core.environments.tasks import kept_sets
from pages.shared.text import literal
from tests.pages.screen import Visit, page_text, shown

PLAIN = ("household", "task_file", "conversation")


def a_file(folder: Path, *lines: object) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(line) if isinstance(line, dict) else line}\n" for line in lines))
    return path


def checked(app: AppTest, path: Path) -> AppTest:
    app = app.text_input(key="tasks_path").set_value(str(path)).run()
    return app.button(key="tasks_check").click().run()


@pytest.mark.parametrize("name", PLAIN)
def test_every_environment_says_what_it_is_and_who_judges(visit: Visit, name: str) -> None:
    app = shown(visit("tasks", environment=name))
    spec = environment_class(name).spec
    assert literal(spec.title) in page_text(app)
    assert literal(spec.judged) in page_text(app)


def test_a_task_shows_its_prompt_and_hides_the_answer_in_a_fold(visit: Visit) -> None:
    app = shown(visit("tasks", environment="sql", set="sql-train"))
    prompt = "\n".join(block.value for block in app.code)
    assert "CREATE TABLE" in prompt
    assert [fold.label for fold in app.get("expander") if "answer away" in fold.label]


def test_a_choice_that_the_browser_never_got_comes_back_from_the_link(visit: Visit) -> None:
    app = shown(visit("tasks", environment="sql", set="sql-heldout"))
    app.session_state["tasks_environment"] = None
    app = shown(app.run())
    assert app.query_params["environment"] == "sql"
    assert app.selectbox(key="tasks_set_sql").value == "sql-heldout"


def test_a_file_is_reported_line_by_line_and_what_is_right_is_kept(home: Path, visit: Visit, tmp_path: Path) -> None:
    path = a_file(tmp_path, {"intent": "What is two plus two?", "reference": "4", "checker": "numeric"}, "{not json")
    app = shown(checked(visit("tasks"), path))
    assert "1 accepted, 1 reported" in page_text(app)
    (reported,) = [frame.value for frame in app.dataframe if list(frame.value.columns) == ["where", "why"]]
    assert "2" in str(reported["where"].iloc[0])
    app = shown(app.button(key="tasks_keep").click().run())
    (kept,) = kept_sets()
    assert (kept.environment, kept.tasks) == ("task_file", 1)
    assert "two plus two" in "\n".join(block.value for block in app.code)
    app = shown(app.button(key=f"drop_{kept.name}").click().run())
    assert kept_sets() == ()


def test_a_run_begins_on_the_set_that_is_looked_at(home: Path, visit: Visit) -> None:
    app = shown(visit("tasks", environment="sql", set="sql-heldout"))
    app.text_input(key="new_run_bank").set_value("fresh").run()
    app.selectbox(key="new_run_model").set_value("simulated").run()
    app.button(key="start_run").click().run()
    with MemoryBank.open(str(banks_folder() / "fresh")) as bank:
        (info,) = bank.runs()
        assert (info.environment, info.tasks) == ("sql", "sql-heldout")
        assert dict(info.environment_options) == {"drafts": True}


def test_a_damaged_set_is_reported_on_the_page(home: Path, visit: Visit, tmp_path: Path) -> None:
    path = a_file(tmp_path, {"intent": "What is two plus two?", "reference": "4", "checker": "numeric"})
    app = shown(checked(visit("tasks"), path))
    app = shown(app.button(key="tasks_keep").click().run())
    (kept,) = kept_sets()
    stored = home / "tasks" / f"{kept.name}.jsonl"
    stored.write_bytes(stored.read_bytes() + b"x")
    app = visit("tasks")
    assert kept_sets() == ()
    assert "damaged" in "\n".join(element.value for element in app.warning)


def test_what_an_engine_lacks_is_said_once(visit: Visit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    app = visit("tasks", environment="scienceworld")
    listed = [element.value for element in (*app.warning, *app.error) if "Java" in element.value]
    assert len(listed) == 1 and "default" in listed[0]
