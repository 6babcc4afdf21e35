"""The page Lab: pairs are started, stepped and reopened by their links, and nothing given to it breaks it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import banks_folder
from memrl_core.agent.runs import start_run
from memrl_core.agent.twins import Side, shifts_of, start_twins
from memrl_core.bank import MemoryBank
from memrl_core.environments.parametric import Parametric
from memrl_core.experiments import lab
from memrl_core.experiments.lab import lab_bank, pairs_in
from memrl_core.records import EventKind
from memrl_core.settings import MemRLSettings
from pages.lab import place as lab_place
from pages.lab import study
from pages.lab.twins import CHARTS, MAP, METHODS
from pages.shared.place import pairs
from tests.pages.screen import Stored, Visit, click, plain

THEORY = lab_place.THEORY
Pair = tuple[str, str]
HOSTILE = "a|b ![p](https://evil.example/p.png) :red[y] **z** $a$ <img src=x onerror=hacked()>"


@pytest.fixture
def bank(home: Path) -> Iterator[Stored]:
    """The Lab's own bank, as it is stored whenever it is looked at."""
    with lab_bank() as opened:
        yield Stored(opened)


@pytest.fixture
def pair(home: Path) -> Pair:
    """λ = 0 against λ = 0.5, seven steps on four tasks, in the Lab's own bank."""
    with lab_bank() as opened:
        return a_pair(opened, 7)


@pytest.fixture
def at_lab(pair: Pair, visit: Visit) -> Visit:
    """Opens the page on the pair."""
    return lambda **more: visit("lab", **link_of(pair, **more))


def a_pair(bank: MemoryBank, steps: int = 0, **left: Any) -> Pair:
    sides = Side(MemRLSettings.of(left or {"weight": 0.0})), Side()
    twins = start_twins(bank, sides, task_count=4, seed=3)
    twins.step(steps)
    return twins.runs


def link_of(pair: Pair, **more: str) -> dict[str, str]:
    return {"bank": lab.BANK, "left": pair[0], "right": pair[1], **more}


def steps_in(bank: MemoryBank, pair: Pair) -> list[int]:
    return [len(bank.steps.rows(run)) for run in pair]


def keys(app: AppTest) -> set[str]:
    return {str(button.key) for button in app.button}


# --- opening, and starting a pair ------------------------------------------------------------------------------------


def test_a_first_visit_opens_with_a_pair_at_play_that_ends_by_itself(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, few in ((lab, "TASKS", 3), (lab, "EPOCHS_BEFORE_THE_SHIFT", 1), (lab_place, "OPENING_EPOCHS", 3)):
        monkeypatch.setattr(module, name, few)
    app = visit("home")
    app.query_params.clear()  # As by the menu, which leaves no link.
    app.switch_page("pages/lab/page.py").run()
    with lab_bank() as bank:
        (pair,) = pairs_in(bank)
    assert {name: app.query_params[name] for name in ("left", "right")} == {"left": pair[0], "right": pair[1]}
    assert "of 3 · seed 0 · simulated model" in plain(app)
    assert pairs()[str(banks_folder() / lab.BANK), *pair].wait(30)
    assert "lab_play" in keys(app.run())
    with lab_bank() as bank:
        assert steps_in(bank, pair) == [9, 9]
        assert shifts_of(bank, pair[0]) == (4,)


def pairs_menu(app: AppTest) -> AppTest:
    app.session_state["lab_pairs"] = True
    return app.run()


def test_two_methods_start_a_pair_and_have_the_sliders_that_they_go_by(bank: Stored, at_lab: Visit) -> None:
    app = pairs_menu(at_lab())
    app.selectbox(key="lab_question").select(METHODS).run()
    app.selectbox(key="lab_policy_left").select("rag").run()
    app.selectbox(key="lab_policy_right").select("memrl").run()
    app = click(app, "lab_begin")
    left, right = pairs_in(bank)[0]
    assert [bank.run(run).policy for run in (left, right)] == ["rag", "memrl"]
    sliders = {str(slider.key) for slider in app.slider}
    assert {f"lab_{right}_{name}" for name in ("alpha", "weight", "epsilon", "k2")} <= sliders
    assert f"lab_{left}_weight" not in sliders and f"lab_{left}_k2" in sliders


# --- stepping ---------------------------------------------------------------------------------------------------------


def test_each_step_moves_both_by_one(bank: Stored, pair: Pair, at_lab: Visit) -> None:
    app = at_lab()
    assert "Step 7 · epoch 2, task 3" in plain(app)
    click(app, "lab_step")
    assert "Step 8 · epoch 2, task 4" in plain(app)
    click(app, "lab_step")
    assert "Step 9 · epoch 3, task 1" in plain(app)
    assert steps_in(bank, pair) == [9, 9]
    assert "λ = 0: " in plain(app) and "λ = 0.5: " in plain(app)


def test_finish_epoch_ends_with_its_last_task(bank: Stored, pair: Pair, at_lab: Visit) -> None:
    app = at_lab()
    assert app.button(key="lab_epoch").label == "Finish epoch 2"
    click(app, "lab_epoch")
    for _ in range(50):
        if app.run() and "lab_play" in keys(app):
            break
    assert steps_in(bank, pair) == [8, 8]
    assert app.button(key="lab_epoch").label == "Finish epoch 3"


def test_the_world_shifts_and_says_so(bank: Stored, pair: Pair, at_lab: Visit) -> None:
    app = click(at_lab(), "lab_shift")
    assert "at step 8" in plain(app)
    assert [shifts_of(bank, run) for run in pair] == [(8,), (8,)]


def test_a_slider_is_an_event_that_holds_from_the_next_step_on(bank: Stored, pair: Pair, at_lab: Visit) -> None:
    app = at_lab()
    app.slider(key=f"lab_{pair[0]}_weight").set_value(1.0).run()
    click(app, "lab_step")
    (event,) = (event for event in bank.events(pair[0]) if event.kind is EventKind.SETTINGS_CHANGED)
    assert (event.step, event.payload["settings"]["weight"]) == (8, 1.0)
    assert [bank.trace(pair[0], step).settings["weight"] for step in (7, 8)] == [0.0, 1.0]
    assert not [event for event in bank.events(pair[1]) if event.kind is EventKind.SETTINGS_CHANGED]
    assert app.slider(key=f"lab_{pair[0]}_weight").value == 1.0


def test_settings_that_cannot_be_change_nothing_and_are_reported(bank: Stored, pair: Pair, at_lab: Visit) -> None:
    bank.write.change_settings(pair[0], {**bank.settings(pair[0]), "k1": 4}, 8)
    app = at_lab()
    app.slider(key=f"lab_{pair[0]}_k2").set_value(9).run()
    assert "k2 = 9 cannot be larger than k1 = 4" in plain(app) + "".join(error.value for error in app.error)
    assert app.slider(key=f"lab_{pair[0]}_k2").value == 3


@pytest.mark.parametrize(("chart", "key"), [*zip(CHARTS, ("accuracy", "map", "epochs"), strict=True)])
def test_a_link_opens_each_chart(at_lab: Visit, chart: str, key: str) -> None:
    app = at_lab(chart=chart)
    app.toggle(key=f"lab_{key}_table").set_value(True).run()
    assert len(app.dataframe) == 1 and len(app.dataframe[0].value)


# --- links and ways back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"bank": "nobody"}, "no bank “nobody”"), ({"bank": "../../etc"}, "no bank"), ({"left": "nobody"}, "no run"),
     ({"right": "<b>x</b>"}, "no run"), ({"view": "moon"}, ""), ({"chart": "moon"}, "")],
)  # fmt: skip
def test_a_link_to_what_is_not_there_gets_a_notice_and_something_to_do(
    pair: Pair, visit: Visit, wrong: dict[str, str], message: str
) -> None:
    app = visit("lab", **{**link_of(pair), **wrong})
    assert message in plain(app)
    assert keys(app) & {"lab_step"}
    assert not app.error
    lasts = not wrong.keys() & {"view", "chart"}
    assert lasts == bool(wrong.items() <= dict(app.query_params).items()) == bool(app.warning)


def test_runs_that_are_no_twins_get_a_notice_and_the_newest_pair(bank: Stored, pair: Pair, visit: Visit) -> None:
    start_run(bank, environment="household", tasks="household-train", seed=9, run="stranger")
    for right in ("stranger", pair[0]):
        app = visit("lab", **{**link_of(pair), "right": right})
        assert "twin" in plain(app)
        assert "lab_step" in keys(app)


def test_earlier_pairs_reopen(bank: Stored, pair: Pair, visit: Visit) -> None:
    later = a_pair(bank, 2)
    app = pairs_menu(visit("lab", **link_of(later)))
    assert "7 steps" in app.button(key=f"lab_open_{pair[0]}").label
    click(app, f"lab_open_{pair[0]}")
    assert "Step 7 · epoch 2" in plain(app)
    assert app.query_params["left"] == pair[0]


@pytest.mark.parametrize(
    ("key", "page", "link"),
    [("lab_to_left", "Replay of step", 0), ("lab_to_right", "Replay of step", 1), ("lab_compare", "settings", 0)],
)
def test_the_runs_of_a_pair_can_be_looked_at_elsewhere(
    pair: Pair, at_lab: Visit, key: str, page: str, link: int
) -> None:
    app = click(at_lab(), key)
    assert app.query_params["run"] == pair[link]
    assert "lab_step" not in keys(app) and not app.error


# --- theory -----------------------------------------------------------------------------------------------------------


def formulas_of(app: AppTest) -> list[str]:
    return list(app.dataframe[0].value["with these numbers"])


def test_theory_needs_no_pair_and_follows_its_sliders(home: Path, visit: Visit) -> None:
    app = visit("lab", view=THEORY)
    before = formulas_of(app)
    app.slider(key="theory_alpha_theory alone").set_value(0.9).run()
    after = formulas_of(app)
    assert len(before) == len(after) and before != after
    assert any("0.9" in reported for reported in after)


@pytest.mark.parametrize("chart", ["mean", "variance", "trade-off", "shift"])
def test_every_curve_is_drawn_at_the_ends_of_the_sliders(home: Path, visit: Visit, chart: str) -> None:
    app = visit("lab", view=THEORY)
    app.segmented_control(key="theory_chart").set_value(chart).run()
    for alpha, beta, sigma, updates in ((0.01, -1.0, 0.0, 1), (1.0, 1.0, 1.0, 60)):
        ends = {"alpha_theory alone": alpha, "beta": beta, "sigma": sigma, "q0": 1.0, "updates": updates, "after": beta}
        for name, value in ends.items():
            app.slider(key=f"theory_{name}").set_value(value)
        app.run()
        assert len(app.get("plotly_chart")) == 1 and not app.error


def test_what_a_run_measured_is_laid_over_theory(pair: Pair, at_lab: Visit) -> None:
    app = at_lab(view=THEORY)
    run = app.selectbox(key=f"theory_run_{'-'.join(pair)}")
    assert run.value == pair[0]
    measured = str(app.get("plotly_chart")[0].proto)
    run.select("theory alone").run()
    assert "measured, written" in measured and "measured, written" not in str(app.get("plotly_chart")[0].proto)


# --- both memories ----------------------------------------------------------------------------------------------------


def test_both_memories_have_a_frame_a_step(at_lab: Visit) -> None:
    app = at_lab(chart=MAP)
    (chart,) = app.get("plotly_chart")
    assert "after step 7" in chart.proto.alt
    app.toggle(key="lab_map_table").set_value(True).run()
    table = app.dataframe[0].value
    assert set(table["arm"]) == {"λ = 0", "λ = 0.5"} and {f"q after step {step}" for step in range(8)} <= set(table)


# --- what is not to be trusted ----------------------------------------------------------------------------------------


def test_hostile_names_and_settings_stay_text(bank: Stored, visit: Visit) -> None:
    pair = a_pair(bank, 2)
    # What another program may have appended to the ledger.
    bank.write.change_settings(pair[0], {**bank.settings(pair[0]), "normaliser": HOSTILE}, 3)
    for chart in CHARTS:
        app = visit("lab", **link_of(pair, chart=chart))
        shown = "\n".join(element.value for kind in ("markdown", "caption", "toast") for element in app.get(kind))
        assert "hacked" in shown and not active(shown)
    app = pairs_menu(visit("lab", **link_of(pair)))
    assert not active(app.button(key=f"lab_open_{pair[0]}").label)
    (warning,) = visit("lab", bank=lab.BANK, left=HOSTILE, right=HOSTILE).warning
    assert "hacked" in warning.value and not active(warning.value)


def active(text: str) -> list[str]:
    """Marks of the hostile text that something would act on."""
    return re.findall(r"(?<!\\)(?:\|b|\[p\]|:red|\*\*z|\$a|<img)|https://", text)


def test_the_study_is_a_picture_and_a_run_behind_it_can_be_made_again(home: Path, visit: Visit) -> None:
    app = visit("lab", view=lab_place.STUDY)
    assert "conditions" in app.markdown[0].value
    plan, found, rows = study.read()
    assert set(found["stream"]) <= {stream.name for stream in plan.streams} and set(rows["seed"]) <= set(range(20))
    row = rows[(rows["seed"] == 0) & (rows["epoch"] == 1)].iloc[-1]
    name = study.run_again(plan, row["stream"], study.ARM, 0)
    with MemoryBank.open(str(banks_folder() / name)) as bank:
        world = Parametric(**bank.run("learn").environment_options)
        first = [trace for trace in bank.traces("learn") if trace.epoch == 1 and trace.generate]
        chances = [world.chance(t.task, t.generate.turns[0].reply.text, t.step) for t in first if t.generate]
    # The study's own number, from the bank.
    assert np.mean(chances) == pytest.approx(row["success"])
