"""The page Lab: pairs are started, stepped and reopened by their links, and nothing given to it breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent import workspace
from memrl_core.agent.twins import Side, shifts_of, start_twins
from memrl_core.bank import MemoryBank
from memrl_core.environments.parametric import Parametric
from memrl_core.experiments import lab
from memrl_core.experiments.lab import QUESTIONS, lab_bank, pairs_in, settings_for
from memrl_core.settings import MemRLSettings
from pages.lab import study
from pages.lab.new_pair import OWN
from pages.lab.twins import CHARTS
from tests.pages.test_decision_page import plain

Visit = Callable[..., AppTest]
HOSTILE = "a|b ![p](https://evil.example/p.png) :red[y] **z** $a$ <img src=x onerror=hacked()>"


@pytest.fixture
def pair(home: Path) -> tuple[str, str]:
    """λ = 0 against λ = 0.5, seven steps on four tasks, in the Lab's own bank."""
    with lab_bank() as bank:
        return a_pair(bank, 7)


def a_pair(bank: MemoryBank, steps: int = 0, **left: Any) -> tuple[str, str]:
    sides = Side(MemRLSettings.of(left or {"weight": 0.0})), Side()
    twins = start_twins(bank, sides, task_count=4, seed=3)
    twins.step(steps)
    return twins.runs


def link_of(pair: tuple[str, str], **more: str) -> dict[str, str]:
    return {"bank": lab.BANK, "left": pair[0], "right": pair[1], **more}


def steps_in(pair: tuple[str, str]) -> list[int]:
    with lab_bank() as bank:
        return [len(bank.step_rows(run)) for run in pair]


def started(home: Path) -> list[tuple[str, str]]:
    with lab_bank() as bank:
        return pairs_in(bank)


def pressed(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    assert not app.exception
    return app


def to_the_lab(app: AppTest) -> AppTest:
    """As by the menu, which leaves no link."""
    app.query_params.clear()
    return app.switch_page("pages/lab/page.py").run()


def arrived(visit: Visit) -> AppTest:
    return to_the_lab(visit("home"))


def keys(app: AppTest) -> set[str]:
    return {str(button.key) for button in app.button}


def toasts(app: AppTest) -> str:
    return "\n".join(toast.value for toast in app.toast).replace("\\", "")


# --- starting a pair --------------------------------------------------------------------------------------------------


def test_a_first_visit_makes_the_bank_and_asks_what_to_see(home: Path, visit: Visit) -> None:
    app = arrived(visit)
    assert (home / "banks" / lab.BANK).is_dir()
    assert list(app.selectbox(key="lab_question").options) == [*QUESTIONS, OWN]
    assert "the same tasks" in plain(app) and "Earlier pairs" not in plain(app)
    assert dict(app.query_params) == {"bank": lab.BANK, "view": "twins"}


@pytest.mark.slow
@pytest.mark.parametrize("question", list(QUESTIONS))
def test_each_question_starts_the_pair_that_it_names(home: Path, visit: Visit, question: str) -> None:
    app = arrived(visit)
    app.selectbox(key="lab_question").select(question).run()
    app.number_input(key="lab_count").set_value(6).run()
    pressed(app, "lab_begin")
    (pair,) = started(home)
    with lab_bank() as bank:
        assert [bank.settings(run) for run in pair] == [side.model_dump() for side in settings_for(question)]
        assert bank.run(pair[0]).task_count == bank.run(pair[1]).task_count == 6
    assert "Nothing has happened" in plain(app) and "6 tasks · seed 0 · simulated model" in plain(app)
    assert {name: app.query_params[name] for name in ("left", "right")} == {"left": pair[0], "right": pair[1]}


def test_own_settings_start_a_pair(home: Path, visit: Visit) -> None:
    app = arrived(visit)
    app.selectbox(key="lab_question").select(OWN).run()
    app.number_input(key=f"lab_left_{OWN}_delta").set_value(-0.5).run()
    app.number_input(key=f"lab_right_{OWN}_k2").set_value(1).run()
    pressed(app, "lab_begin")
    (pair,) = started(home)
    with lab_bank() as bank:
        left, right = (bank.settings(run) for run in pair)
    assert (left["delta"], left["k2"], right["delta"], right["k2"]) == (-0.5, 3, 0.2, 1)


@pytest.mark.parametrize(
    ("name", "value", "message"), [("k2", 11, "k2 = 11 cannot be larger"), ("alpha", 0.0, "alpha")]
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_settings_that_cannot_be_get_a_sentence_and_start_nothing(
    home: Path, visit: Visit, name: str, value: float, message: str, side: str
) -> None:
    app = arrived(visit)
    app.selectbox(key="lab_question").select(OWN).run()
    app.number_input(key=f"lab_{side}_{OWN}_{name}").set_value(value).run()
    pressed(app, "lab_begin")
    assert len(app.error) == 1 and message in app.error[0].value.replace("\\", "")
    with lab_bank() as bank:
        assert bank.runs() == []


# --- stepping ---------------------------------------------------------------------------------------------------------


def test_each_step_moves_both_by_one(pair: tuple[str, str], visit: Visit) -> None:
    app = visit("lab", **link_of(pair))
    assert "Step 7 · epoch 2, task 3" in plain(app)
    pressed(app, "lab_step")
    assert "Step 8 · epoch 2, task 4" in plain(app)
    pressed(app, "lab_step")
    assert "Step 9 · epoch 3, task 1" in plain(app)
    assert steps_in(pair) == [9, 9]
    assert "| λ = 0 |" in plain(app) and "| λ = 0.5 |" in plain(app)


def test_finish_epoch_ends_with_its_last_task(pair: tuple[str, str], visit: Visit) -> None:
    app = visit("lab", **link_of(pair))
    assert app.button(key="lab_epoch").label == "Finish epoch 2"
    pressed(app, "lab_epoch")
    for _ in range(50):
        if app.run() and "lab_play" in keys(app):
            break
    assert steps_in(pair) == [8, 8]
    assert app.button(key="lab_epoch").label == "Finish epoch 3"


def test_no_button_names_an_epoch_that_play_has_left_behind(pair: tuple[str, str], visit: Visit) -> None:
    app = visit("lab", **link_of(pair))
    app.select_slider(key="lab_speed").set_value(20).run()
    pressed(app, "lab_play")
    assert app.button(key="lab_epoch").label == "Finish epoch"
    pressed(app, "lab_pause")
    app.run()
    assert app.button(key="lab_epoch").label == f"Finish epoch {min(steps_in(pair)) // 4 + 1}"


def test_the_world_shifts_and_says_so(pair: tuple[str, str], visit: Visit) -> None:
    app = pressed(visit("lab", **link_of(pair)), "lab_shift")
    assert "at step 8" in plain(app)
    with lab_bank() as bank:
        assert [shifts_of(bank, run) for run in pair] == [(8,), (8,)]


@pytest.mark.parametrize("chart", list(CHARTS))
def test_each_chart_is_drawn_and_kept_in_the_link(pair: tuple[str, str], visit: Visit, chart: str) -> None:
    app = visit("lab", **link_of(pair))
    app.segmented_control(key="lab_chart").set_value(chart).run()
    assert app.query_params.get("chart", "epochs") == chart
    app.toggle(key=f"lab_{chart}_0_table").set_value(True).run()
    assert len(app.dataframe) == 1 and len(app.dataframe[0].value)
    again = visit("lab", **link_of(pair, chart=chart))
    assert again.segmented_control(key="lab_chart").value == chart


# --- links and ways back ----------------------------------------------------------------------------------------------


def test_a_link_reopens_pair_view_and_chart(pair: tuple[str, str], visit: Visit) -> None:
    link = link_of(pair, view="twins", chart="grid")
    app = visit("lab", **link)
    assert "λ = 0 against λ = 0.5" in plain(app).replace("**", "")
    assert app.segmented_control(key="lab_chart").value == "grid"
    assert dict(app.query_params) == link


@pytest.mark.parametrize("view", ["theory", "landscape"])
def test_a_link_reopens_the_other_views(pair: tuple[str, str], visit: Visit, view: str) -> None:
    assert visit("lab", **link_of(pair, view=view)).segmented_control(key="lab_view").value == view


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"bank": "nobody"}, "no bank “nobody”"), ({"bank": "../../etc"}, "no bank"), ({"left": "nobody"}, "no run"),
     ({"right": "<b>x</b>"}, "no run"), ({"view": "moon"}, "no view “moon”"), ({"chart": "moon"}, "no chart “moon”")],
)  # fmt: skip
def test_a_link_to_what_is_not_there_gets_a_notice_and_something_to_do(
    pair: tuple[str, str], visit: Visit, wrong: dict[str, str], message: str
) -> None:
    app = visit("lab", **{**link_of(pair), **wrong})
    assert message in toasts(app) + plain(app)
    assert keys(app) & {"lab_begin", "lab_step"}
    assert not app.error
    lasts = not wrong.keys() & {"view", "chart"}
    assert lasts == bool(wrong.items() <= dict(app.query_params).items()) == bool(app.warning)


def test_runs_that_are_no_twins_get_a_notice_and_the_form(pair: tuple[str, str], visit: Visit) -> None:
    with lab_bank() as bank:
        workspace.start_run(bank, environment="household", tasks="household-train", seed=9, run="stranger")
    for right in ("stranger", pair[0]):
        app = visit("lab", **{**link_of(pair), "right": right})
        assert "twin" in plain(app)
        assert "lab_begin" in keys(app)


def test_a_pair_in_another_bank_is_shown(home: Path, visit: Visit) -> None:
    path = workspace.banks_folder() / "mine"
    embedder = workspace.make_embedder("hashing", workspace.Preferences())
    with MemoryBank.create(str(path), embedder.name, embedder.dimension) as bank:
        pair = a_pair(bank, 2)
    app = visit("lab", **{**link_of(pair), "bank": "mine"})
    assert "Step 2 · epoch 1" in plain(app)


def test_another_pair_shows_the_form_and_the_earlier_pairs_reopen(pair: tuple[str, str], visit: Visit) -> None:
    app = pressed(visit("lab", **link_of(pair)), "lab_another")
    assert "lab_begin" in keys(app) and "left" not in app.query_params
    assert "7 steps" in app.button(key=f"lab_open_{pair[0]}").label
    pressed(app, f"lab_open_{pair[0]}")
    assert "Step 7 · epoch 2" in plain(app)
    assert app.query_params["left"] == pair[0]


@pytest.mark.parametrize(
    ("key", "page", "link"),
    [("lab_to_left", "Replay of step", 0), ("lab_to_right", "Replay of step", 1), ("lab_compare", "settings", 0)],
)
def test_the_runs_of_a_pair_can_be_looked_at_elsewhere(
    pair: tuple[str, str], visit: Visit, key: str, page: str, link: int
) -> None:
    app = pressed(visit("lab", **link_of(pair)), key)
    assert app.query_params["run"] == pair[link]
    assert "lab_step" not in keys(app) and not app.error


def test_coming_back_finds_the_pair_that_was_left(pair: tuple[str, str], visit: Visit) -> None:
    app = visit("lab", **link_of(pair))
    app.switch_page("pages/home/page.py").run()
    app = to_the_lab(app)
    assert "Step 7 · epoch 2" in plain(app)


# --- theory -----------------------------------------------------------------------------------------------------------


def formulas_of(app: AppTest) -> list[str]:
    return list(app.dataframe[0].value["with these numbers"])


def test_theory_needs_no_pair_and_follows_its_sliders(home: Path, visit: Visit) -> None:
    app = visit("lab", view="theory")
    before = formulas_of(app)
    app.slider(key="theory_alpha_theory alone").set_value(0.9).run()
    after = formulas_of(app)
    assert len(before) == len(after) and before != after
    assert any("0.9" in reported for reported in after)
    assert "breaks the theory" not in plain(app)


@pytest.mark.parametrize("chart", ["mean", "variance", "trade-off", "shift"])
@pytest.mark.parametrize(
    "ends", [{}, {"alpha": 0.01, "beta": -1.0, "sigma": 0.0, "q0": 1.0, "updates": 1, "after": -1.0},
             {"alpha": 1.0, "beta": 1.0, "sigma": 1.0, "q0": 1.0, "updates": 60, "after": 1.0}],
)  # fmt: skip
def test_every_curve_is_drawn_at_the_ends_of_the_sliders(
    home: Path, visit: Visit, chart: str, ends: dict[str, float]
) -> None:
    app = visit("lab", view="theory")
    app.segmented_control(key="theory_chart").set_value(chart).run()
    for name, value in ends.items():
        key = "theory_alpha_theory alone" if name == "alpha" else f"theory_{name}"
        app.slider(key=key).set_value(value)
    app.run()
    assert len(app.get("plotly_chart")) == 1 and not app.exception and not app.error


def test_what_a_run_measured_is_laid_over_and_what_breaks_the_theory_is_said(
    pair: tuple[str, str], visit: Visit
) -> None:
    app = visit("lab", **link_of(pair, view="theory"))
    assert app.selectbox(key=f"theory_run_{'-'.join(pair)}").value == pair[0]
    assert "breaks the theory" in plain(app)
    # The assumptions are looked at in the background.
    assert app.session_state["work_breaks"][1].wait(60)
    app.run()
    for name in ("The mean reward of a memory stays the same", "Every memory is visited again and again"):
        assert name in plain(app)
    app.selectbox(key=f"theory_run_{'-'.join(pair)}").select("theory alone").run()
    assert "breaks the theory" not in plain(app)


@pytest.mark.parametrize("alpha", [0.001, 0.005, 0.333, 1.0])
def test_the_step_size_of_the_run_is_where_theory_begins(home: Path, visit: Visit, alpha: float) -> None:
    with lab_bank() as bank:
        pair = a_pair(bank, 5, alpha=alpha)
    app = visit("lab", **link_of(pair, view="theory"))
    assert app.slider(key=f"theory_alpha_{pair[0]}").value == pytest.approx(alpha)


# --- the landscape ----------------------------------------------------------------------------------------------------


def test_a_landscape_without_steps_says_what_to_do(home: Path, visit: Visit) -> None:
    with lab_bank() as bank:
        pair = a_pair(bank)
    app = visit("lab", **link_of(pair, view="landscape"))
    assert "no memory yet" in plain(app)
    assert not app.get("plotly_chart")


def test_a_landscape_has_a_frame_a_step_for_either_side(pair: tuple[str, str], visit: Visit) -> None:
    app = visit("lab", **link_of(pair, view="landscape"))
    assert "after step 7" in plain(app)
    assert len(app.get("plotly_chart")) == 1
    app.segmented_control(key="landscape_run").set_value(pair[1]).run()
    app.toggle(key="landscape_table").set_value(True).run()
    assert "q after step 7" in app.dataframe[0].value.columns


# --- what is not to be trusted ----------------------------------------------------------------------------------------


def test_hostile_names_and_settings_stay_text(home: Path, visit: Visit) -> None:
    with lab_bank() as bank:
        pair = a_pair(bank, 2)
        # What another program may have appended to the ledger.
        bank.change_settings(pair[0], {**bank.settings(pair[0]), "normaliser": HOSTILE}, 3)
    for view in ("twins", "landscape"):
        app = visit("lab", **link_of(pair, view=view))
        shown = "\n".join(element.value for kind in ("markdown", "caption", "toast") for element in app.get(kind))
        assert "hacked" in shown and not active(shown)
    app = pressed(visit("lab", **link_of(pair)), "lab_another")
    assert not active(app.button(key=f"lab_open_{pair[0]}").label)
    (warning,) = visit("lab", bank=lab.BANK, left=HOSTILE, right=HOSTILE).warning
    assert "hacked" in warning.value and not active(warning.value)


def active(text: str) -> list[str]:
    """Marks of the hostile text that something would act on."""
    return re.findall(r"(?<!\\)(?:\|b|\[p\]|:red|\*\*z|\$a|<img)|https://", text)


def test_the_study_is_a_picture_and_a_run_behind_it_can_be_made_again(home: Path, visit: Visit) -> None:
    app = visit("lab", view="study")
    assert not app.exception and "conditions" in app.markdown[0].value
    plan, found, rows = study.read()
    assert set(found["stream"]) <= {stream.name for stream in plan.streams} and set(rows["seed"]) <= set(range(20))
    row = rows[(rows["seed"] == 0) & (rows["epoch"] == 1)].iloc[-1]
    name = study.run_again(plan, row["stream"], study.ARM, 0)
    with MemoryBank.open(str(workspace.banks_folder() / name)) as bank:
        world = Parametric(**bank.run("learn").environment_options)
        first = [trace for trace in bank.traces("learn") if trace.epoch == 1 and trace.generate]
        chances = [world.chance(t.task, t.generate.turns[0].reply.text, t.step) for t in first if t.generate]
    # The study's own number, from the bank.
    assert np.mean(chances) == pytest.approx(row["success"])
