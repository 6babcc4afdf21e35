"""The page Methods, and the other pages on runs of methods that differ most from MemRL."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import banks_folder
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.policies import POLICIES, policy_class
from memrl_core.records import Phase
from pages.decision.catalogue import QUESTIONS
from pages.methods.learned import DRAWN
from pages.shared.text import literal
from tests.analysis.many_methods import STEPS, a_bank_of
from tests.pages.screen import Visit, opened, page_text, picker, shown

UNLIKE_MEMRL = ("none", "memp", "rememberer", "memento", "rmm_reranker", "a_mem", "webcoach")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve steps for every method."""
    path = tmp_path_factory.mktemp("methods") / "methods"
    a_bank_of(path, {name: {} for name in POLICIES}).close()
    return path


@pytest.fixture
def bank(recorded: Path, home: Path) -> str:
    copy_bank(recorded, banks_folder() / "methods")
    return "methods"


def test_every_method_has_a_card_with_what_it_is_and_cannot(visit: Visit) -> None:
    reported = page_text(shown(visit("methods")))
    for name in POLICIES:
        spec = policy_class(name).spec
        assert f"**{literal(spec.title)}**" in reported
        assert literal(name) in reported
    assert reported.count("**What it cannot do.**") == len(POLICIES)


def test_a_table_has_a_row_for_every_method_and_what_is_credited_and_forgotten(visit: Visit) -> None:
    table = shown(visit("methods", show="Side by side")).dataframe[0].value
    specs = {spec.title: spec for spec in (policy_class(name).spec for name in POLICIES)}
    assert set(table["method"]) == set(specs)
    for row in table.to_dict("records"):
        assert (row["credited"], row["forgotten"]) == (specs[row["method"]].update, specs[row["method"]].forget)


def test_the_cards_can_be_narrowed_by_what_a_method_learns_from(visit: Visit) -> None:
    app = shown(visit("methods"))
    app = shown(app.button_group(key="methods_feedback").set_value(["nothing"]).run())
    reported = page_text(app)
    assert "**RAG**" in reported and "**MemRL**" not in reported
    app = shown(app.text_input(key="methods_find").set_value("no such word anywhere").run())
    assert "No method" in page_text(app)


def test_a_link_asks_all_methods_about_a_step(visit: Visit) -> None:
    app = shown(visit("methods", show="On this pool", step="12"))
    while app.session_state["work_on_this_pool"][1].busy:
        app = shown(app.run())
    app = shown(app.run())
    assert any(element.value.startswith("**Step 12**") for element in app.markdown)
    assert f"{len(POLICIES)} methods" in page_text(app)
    app = shown(app.selectbox(key="methods_one").set_value("none").run())
    assert "(nothing)" in "\n".join(element.value for element in app.code)


# --- what it has learned ----------------------------------------------------------------------------------------------

WORKS = (
    "values", "rates", "named", "cases", "actions", "novelty", "cited", "notes", "timeline", "operations", "tries",
    "workflows", "asked",
)  # fmt: skip
LEARN_NOTHING = ("none", "rag", "exprag", "exprecent")
AS_TEXT = ("awm", "reflexion", "rememberer")
LEARNED = "What it has learned"


@pytest.fixture
def seen(visit: Visit, bank: str) -> Visit:
    """Opens the part on a run of that bank, for its own method or, with `by`, another."""
    return lambda run, **link: settled(visit("methods", show=LEARNED, bank=bank, run=run, **link))


def settled(app: AppTest) -> AppTest:
    """The page once nothing of the run is being read any more; fails when it shows an error."""
    works = [f"work_learned_{name}" for name in WORKS]
    while any(app.session_state[work][1].busy for work in works if work in app.session_state):
        app = app.run()
    app = app.run()
    assert not [error.value for error in app.error]
    return app


def charts(app: AppTest) -> int:
    return len(app.get("plotly_chart"))


@pytest.mark.slow
def test_what_a_runs_own_method_has_learned_can_be_opened_for_every_method(seen: Visit) -> None:
    app = seen("memrl")
    for name in POLICIES:
        app = settled(picker(app, "Run").set_value(name).run())
        reported = page_text(app)
        assert f"**Step {STEPS}**" in reported, name
        assert app.selectbox(key="by").value == "own", name
        assert ("Nothing is learned" in reported) >= (name in LEARN_NOTHING), name
        assert charts(app) or name in (*LEARN_NOTHING, *AS_TEXT, "memento"), name
        assert "no model is asked" not in reported, name


@pytest.mark.slow
def test_what_every_other_method_would_have_learned_can_be_opened(seen: Visit) -> None:
    app = seen("memrl")
    for name in POLICIES[1:]:
        app = settled(app.selectbox(key="by").set_value(name).run())
        assert "no model is asked" in page_text(app), name
        assert charts(app) or name in (*LEARN_NOTHING, *AS_TEXT), name


@pytest.mark.parametrize("run", ["memrl", "rag"])
def test_q_is_drawn_for_a_method_that_keeps_it_and_has_no_picture_of_its_own(
    seen: Visit, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(DRAWN, "memrl")
    assert charts(seen(run, by="MemRL" if run != "memrl" else "own")) == 1


def test_a_link_opens_a_method_and_an_unknown_one_the_runs_own(seen: Visit) -> None:
    app = seen("rag", by="MemRL", step="7")
    assert app.selectbox(key="by").value == "memrl"
    assert "**Step 7**" in page_text(app) and charts(app) == 1
    app = seen("rag", by="no such method")
    assert app.selectbox(key="by").value == "own"


def test_how_often_a_model_was_asked_is_reported_for_methods_that_ask(seen: Visit) -> None:
    assert f"choose operation: {STEPS}" in page_text(seen("memory_r1_ops"))
    assert "of the model" not in page_text(seen("memrl"))


def test_texts_of_a_task_are_shown_letter_for_letter(seen: Visit) -> None:
    with MemoryBank.open(str(banks_folder() / "methods")) as bank:
        memory = next(memory for memory in bank.memories("reflexion"))
    app = seen("reflexion", step=str(memory.step))
    assert memory.experience in [element.value for element in app.code]


# --- other pages on runs of methods that differ most from MemRL ------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", UNLIKE_MEMRL)
def test_a_step_of_every_method_can_be_looked_at(visit: Visit, bank: str, name: str) -> None:
    app = shown(visit("step", bank=bank, run=name, step=str(STEPS)))
    assert policy_class(name).spec.title in page_text(app).replace("\\", "")
    for phase in Phase:
        app = shown(opened(app, phase))


@pytest.mark.parametrize("name", ["memp", "a_mem", "rememberer"])
def test_every_question_is_answered_or_says_why_it_cannot_be(visit: Visit, bank: str, name: str) -> None:
    app = shown(visit("decision", bank=bank, run=name, step=str(STEPS)))
    asked = [question.key for question in QUESTIONS if question.rules != "any"]
    offered = app.selectbox(key="question").options
    for question in QUESTIONS:
        if question.key in asked and f"{question.group} · {question.text}" in offered:
            app = shown(app.selectbox(key="question").select(question.key).run())
    assert "not score by" in page_text(shown(app.selectbox(key="question").select("flips").run()))


@pytest.mark.parametrize("page", ["bank", "rewards", "compare", "methods"])
def test_other_pages_take_a_run_of_another_method(visit: Visit, bank: str, page: str) -> None:
    shown(visit(page, bank=bank, run="webcoach"))


def test_the_settings_of_a_run_are_those_of_its_method(visit: Visit, bank: str) -> None:
    app = shown(visit("bank", bank=bank, run="memp"))
    app = shown(app.button_group(key="bank_view").set_value("Settings").run())
    keys = [str(element.key) for element in (*app.number_input, *app.selectbox)]
    assert any(key.endswith("_delete_below") for key in keys)
    assert not any(key.endswith("_weight") for key in keys)
