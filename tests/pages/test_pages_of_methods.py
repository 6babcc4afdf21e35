"""The pages that show a step, its memory and its rewards, for runs of methods that differ most from MemRL."""

from __future__ import annotations

from pathlib import Path

import pytest

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.places import copy_bank
from memrl_core.policies import policy_class
from memrl_core.records import Phase
from pages.decision.catalogue import QUESTIONS
from tests.pages.screen import Visit, opened, page_text, shown

METHODS = ("none", "memp", "rememberer", "memento", "rmm_reranker", "a_mem", "webcoach")
STEPS = 9


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each of `METHODS` on three tasks, three times."""
    embedder = workspace.make_embedder("hashing", workspace.Preferences())
    path = tmp_path_factory.mktemp("methods") / "bank"
    with MemoryBank.create(str(path), embedder.name, embedder.dimension) as bank:
        for name in METHODS:
            workspace.start_run(
                bank, environment="household", tasks="household-train", task_count=3, policy=name, run=name, seed=2
            )
            with bank.batch(STEPS):
                live = workspace.live_run(bank, name, workspace.Preferences())
                assert len(list(live.agent.run(live.tasks, 3))) == STEPS
    return path


@pytest.fixture
def bank(recorded: Path, home: Path) -> str:
    copy_bank(recorded, workspace.banks_folder() / "methods")
    return "methods"


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_step_of_every_method_can_be_looked_at(visit: Visit, bank: str, name: str) -> None:
    app = shown(visit("step", bank=bank, run=name, step=str(STEPS)))
    assert policy_class(name).spec.title in page_text(app).replace("\\", "")
    shown(opened(app, *Phase))


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
