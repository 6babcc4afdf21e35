"""The page Race: started with one click, paused, gone on with and reopened by its link; what fails has a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import banks_folder
from memrl_core.agent.run_parts import SIMULATED
from memrl_core.agent.twins import TwinRuns
from memrl_core.bank import MemoryBank
from memrl_core.errors import ModelError, ModelMissing
from memrl_core.figures.compare.race import race_data
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Reply
from pages.shared.place import pairs
from tests.pages.screen import Visit, page_text

WAIT = 60.0


def the_race() -> TwinRuns:
    return list(pairs().values())[-1]


def started(visit: Visit, messages: int = 20) -> AppTest:
    """A race of the simulated model, which is over."""
    app = visit("race")
    app.selectbox(key="race_model").set_value(SIMULATED)
    app.number_input(key="race_count").set_value(messages)
    app.button(key="race_begin").click().run()
    assert the_race().wait(WAIT)
    return app.run()


def test_a_race_is_started_with_one_click_and_reopened_by_its_link(visit: Visit) -> None:
    app = started(visit)
    twins = the_race()
    link = {name: "".join(app.query_params[name]) for name in ("bank", "left", "right")}
    assert (link["left"], link["right"]) == twins.runs and link["bank"] == "race"
    with MemoryBank.open(str(banks_folder() / "race")) as bank:
        infos = [bank.run(run) for run in twins.runs]
        assert [bank.next_step(run) - 1 for run in twins.runs] == [20, 20]
        assert [info.settings["weight"] for info in infos] == [0.0, 0.5]
        assert {(info.settings["k2"], info.environment, info.seed) for info in infos} == {(1, "helpdesk", 1)}
    assert "Of 20 messages" in page_text(app)
    assert "message 20 of 20" in page_text(visit("race", **link))


def test_the_sides_differ_as_the_person_says(visit: Visit) -> None:
    app = visit("race")
    app.selectbox(key="race_model").set_value(SIMULATED)
    app.number_input(key="race_count").set_value(20)
    app.slider(key="race_left_weight").set_value(0.25)
    app.number_input(key="race_right_k2").set_value(3)
    app.selectbox(key="race_right_credit").set_value("followed")
    app.button(key="race_begin").click().run()
    twins = the_race()
    left, right = (twins.bank.run(run).settings for run in twins.runs)
    assert (left["weight"], left["k2"], left["credit"]) == (0.25, 1, "prompt")
    assert (right["weight"], right["k2"], right["credit"]) == (0.5, 3, "followed")
    assert twins.wait(WAIT)


def test_the_rules_change_for_both_and_the_race_goes_on_after_a_pause(visit: Visit) -> None:
    app = started(visit, 60)
    twins = the_race()
    assert not [button for button in app.button if button.key == "race_play"], "it is over"
    assert app.button(key="race_shift").disabled
    app.button(key="race_new").click().run()
    assert app.button(key="race_begin")
    again = visit("race", bank="race", left=twins.runs[0], right=twins.runs[1])
    assert "message 60 of 60" in page_text(again)


class Leaving(SimulatedModel):
    """The simulated model, which is gone after five answers."""

    asked = 0

    def chat(self, *given: Any, **more: Any) -> Reply:
        self.asked += 1
        if self.asked > 5:
            raise ModelError("The model went away. Start it again.")
        return super().chat(*given, **more)


@pytest.mark.parametrize("side", [0, 1])
def test_of_a_race_whose_one_side_fails_the_other_goes_on_and_the_reason_stands_there(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    models = [Leaving(), SimulatedModel()][:: 1 if side == 0 else -1]
    monkeypatch.setattr("memrl_core.agent.runs.make_model", lambda *_: models.pop(0) if models else SimulatedModel())
    app = started(visit)
    twins = the_race()
    done = [twins.bank.next_step(run) - 1 for run in twins.runs]
    assert (done[side], done[1 - side]) == (5, 20)
    errors = [str(error or "") for error in twins.errors]
    assert "went away" in race_data(twins.bank, twins.runs, errors)["sides"][side]["error"]
    assert not app.error and app.button(key="race_play").label == "Go on"


@pytest.mark.parametrize(
    "link",
    [
        {"left": "nobody", "right": "nobody-else"},
        {"bank": "nowhere", "left": "a", "right": "b"},
        {"left": "<img src=x onerror=hacked()>", "right": "**x**"},
    ],
)
def test_a_link_to_no_race_gets_a_sentence_and_the_way_to_one(visit: Visit, link: dict[str, str]) -> None:
    started(visit)
    app = visit("race", **link)
    assert len(app.warning) == 1 and "Start a race of your own" in app.warning[0].value
    assert app.button(key="race_begin")


def test_a_model_that_is_not_there_starts_nothing(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise ModelMissing("There is no model nowhere. Nothing was started.")

    app = visit("race")
    monkeypatch.setattr("memrl_core.agent.twins.must_be_there", missing)
    app.button(key="race_begin").click().run()
    assert "no model nowhere" in app.error[0].value
    with MemoryBank.open(str(banks_folder() / "race")) as bank:
        assert bank.runs() == []
