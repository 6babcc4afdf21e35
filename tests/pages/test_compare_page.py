"""The page Compare: links reopen it, every difference can be reached, and no bank breaks it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import Preferences, banks_folder
from memrl_core.agent.recorder import Recorder
from memrl_core.agent.run_parts import make_embedder
from memrl_core.agent.runs import fork, start_run
from memrl_core.analysis.compare.alignment import line_of
from memrl_core.analysis.compare.comparison import Comparison, compare, divergences, finding
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.settings import MemRLSettings
from tests.analysis.lockstep import begun, commit, go_on
from tests.builders import a_bank as bank_with_a_run
from tests.builders import a_vector
from tests.pages.screen import Download, Visit, a_bank, click, page_text, picker, plain
from tests.small_banks import give_reward

HOSTILE = (
    "=1+1 [x](https://evil.example) :red[y] <img src=x onerror=hacked()> **z** $a$ ![p](https://evil.example/p.png)"
)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `base` on six tasks twice, `fork` from its step 5 with k2 = 1, and `other` with another seed and λ."""
    embedder = make_embedder("hashing", Preferences())
    path = tmp_path_factory.mktemp("recorded") / "bank"
    with MemoryBank.create(str(path), embedder.name, embedder.dimension) as bank:
        same: dict[str, Any] = {"environment": "household", "tasks": "household-train", "task_count": 6}
        start_run(bank, **same, run="base", seed=3)
        go_on(bank, "base", 12)
        start_run(bank, **same, run="other", seed=4, settings=MemRLSettings(weight=1.0, delta=0.1))
        go_on(bank, "other", 12)
        fork(bank, "base", 5, {**bank.settings("base"), "k2": 1, "delta": 0.0}, name="fork")
        go_on(bank, "fork", 8)
    return path


@pytest.fixture
def mine(home: Path, recorded: Path) -> Path:
    copy_bank(recorded, banks_folder() / "mine")
    return banks_folder() / "mine"


@pytest.fixture
def compared(visit: Visit) -> Visit:
    """Opens the page, on run `base` of the bank where the link names none."""
    return lambda **link: visit("compare", **({} if "bank" in link else {"bank": "mine", "run": "base"}), **link)


def comparison_of(path: Path, *runs: str) -> Comparison:
    with MemoryBank.open(str(path)) as bank:
        return compare(bank, [line_of(bank, run) for run in runs])


# --- links and choices ------------------------------------------------------------------------------------------------


def test_a_link_reopens_runs_step_by_step(mine: Path, compared: Visit) -> None:
    app = compared(step="7", against="fork")
    assert app.multiselect(key="against").value == ["fork"]
    text = plain(app)
    assert finding(comparison_of(mine, "base", "fork")) in text
    assert "first 4 steps" in text
    assert "base** · step 7" in text and "fork** · step 7" in text
    assert "pair **3** of 8" in text


def test_what_was_not_the_same_is_warned_of_and_settings_are_a_table(mine: Path, compared: Visit) -> None:
    app = compared(against="other")
    assert "seed (base: 3, other: 4)" in plain(app)
    table = app.table[0].value
    assert list(table.iloc[:, 0]) == ["δ · similarity gate", "λ · weight of q"]
    assert [cell.replace("\\", "") for cell in table["other"]] == ["0.1", "1"]


@pytest.mark.parametrize("against", ["<b>nobody</b>", "base"])
def test_a_link_to_no_other_run_asks_for_one(mine: Path, compared: Visit, against: str) -> None:
    assert "one other run" in plain(compared(against=against))


def test_changing_to_the_other_run_turns_the_comparison_round(mine: Path, compared: Visit) -> None:
    app = compared(against="fork")
    picker(app, "Run").select("fork").run()
    assert app.query_params["run"] == "fork"
    assert app.multiselect(key="against").value == ["base"]
    assert finding(comparison_of(mine, "fork", "base")) in plain(app)


def test_choosing_another_run_compares_with_that(mine: Path, compared: Visit) -> None:
    app = compared(against="fork")
    app.multiselect(key="against").set_value(["other"]).run()
    assert finding(comparison_of(mine, "base", "other")) in plain(app)
    app.multiselect(key="against").set_value([]).run()
    assert "one other run" in plain(app)


def test_of_three_runs_either_is_laid_beside_the_first_without_the_steps_they_share(
    mine: Path, compared: Visit
) -> None:
    app = compared(against=["fork", "other"])
    assert "fork** · step" in plain(app)
    app.segmented_control(key="compare_line").set_value("other").run()
    assert "other** · step" in plain(app)
    assert len(app.table[-1].value.columns) == 7
    with MemoryBank.open(str(mine)) as bank:
        fork(bank, "base", 12, bank.settings("base"), name="late")
    app = compared(against=["late", "fork"])
    assert "shared with late" in plain(app) and len(app.get("plotly_chart")) == 2


# --- from difference to difference ------------------------------------------------------------------------------------


def test_every_first_difference_is_one_press_away(mine: Path, compared: Visit) -> None:
    against = "other"
    entries = divergences(comparison_of(mine, "base", against).pairs[0])
    firsts = {entry.difference: entry.first.one.step for entry in entries if entry.first is not None}
    assert firsts
    app = compared(against=against)
    for difference, step in firsts.items():
        click(app, f"first_{difference}")
        assert app.query_params["step"] == str(step)
        assert f"base** · step {step}" in plain(app)


@pytest.mark.slow
def test_next_and_previous_stop_at_every_difference(mine: Path, compared: Visit) -> None:
    pairs = comparison_of(mine, "base", "fork").pairs[0]
    app = compared(step=str(pairs[0].one.step), against="fork")
    assert app.button(key="compare_Previous difference").disabled
    wanted = [pair.one.step for pair in pairs[1:] if pair.differences]
    met = []
    while not app.button(key="compare_Next difference").disabled:
        click(app, "compare_Next difference")
        met.append(int(app.query_params["step"]))
    assert met == wanted
    while not app.button(key="compare_Previous difference").disabled:
        click(app, "compare_Previous difference")
    differing = [pair.one.step for pair in pairs if pair.differences]
    assert int(app.query_params["step"]) == (differing or [pairs[0].one.step])[0]


def test_a_step_that_both_share_says_so_and_leads_on(mine: Path, compared: Visit) -> None:
    app = compared(step="2", against="fork")
    assert "Step 2 of base" in plain(app)
    click(app, "compare_first")
    assert "pair **" in plain(app)


def test_the_q_of_a_memory_in_the_prompt_is_one_press_away(mine: Path, compared: Visit) -> None:
    pair = next(pair for pair in comparison_of(mine, "base", "fork").pairs[0] if pair.removed)
    memory = next(i for i in pair.one.selected or () if i.startswith("base-000") and int(i[-4:]) < 5)
    app = compared(step=str(pair.one.step), against="fork")
    click(app, f"q_base_{memory}")
    assert app.selectbox(key="compare_memory").value == memory
    assert app.query_params["memory"] == memory
    assert f"#{int(memory[-4:])}: q ends at" in plain(app)


# --- other settings ---------------------------------------------------------------------------------------------------


def until_decided(app: AppTest) -> AppTest:
    for _ in range(50):
        if "Where they part" in [heading.value for heading in app.subheader]:
            return app
        app.run()
    raise AssertionError("the steps were never decided")


def test_a_link_reopens_other_settings(mine: Path, compared: Visit) -> None:
    app = until_decided(compared(under="k2=1,weight=0.9"))
    assert app.query_params["under"] == "k2=1,weight=0.9"
    with MemoryBank.open(str(mine)) as bank:
        decided = counterfactual(bank, "base", {**bank.settings("base"), "k2": 1, "weight": 0.9})
    text = plain(app)
    assert f"in {sum(one.differs for one in decided)} of 12 steps" in text
    assert "base supposed (k2 = 1, λ = 0.9)" in text
    assert "would have answered" in text
    headings = [heading.value for heading in app.subheader]
    assert not any("achieved" in heading or "one memory" in heading for heading in headings)
    assert not any("reward" in name for name in app.dataframe[0].value.columns)


def test_settings_chosen_on_the_page_are_compared_and_kept_in_the_link(mine: Path, compared: Visit) -> None:
    app = compared(against="fork")
    app.segmented_control(key="compare").set_value("Itself under other settings").run()
    assert "least one setting" in plain(app)
    next(field for field in app.number_input if field.label.startswith("k2")).set_value(1)
    click(app, "compare_go")
    app = until_decided(app)
    assert app.query_params["under"] == "k2=1"
    app.segmented_control(key="compare").set_value("Other runs").run()
    assert "under" not in app.query_params and "What they achieved" in [h.value for h in app.subheader]


def test_what_is_tried_first_has_a_slider_and_a_field_that_move_together(mine: Path, compared: Visit) -> None:
    app = compared(compare="Itself under other settings")
    first = ["λ", "k1", "k2", "δ", "ε"]
    assert [slider.label.split(" ")[0] for slider in app.slider][-5:] == first

    def of(fields: Any, sign: str) -> Any:
        return next(field for field in fields if field.label.startswith(f"{sign} "))

    of(app.slider, "λ").set_value(0.8).run()
    assert of(app.number_input, "λ").value == 0.8
    of(app.number_input, "k1").set_value(120).run()
    assert (of(app.slider, "k1").value, of(app.slider, "k1").max) == (120, 120)
    of(app.number_input, "δ").set_value(0.123).run()
    assert of(app.slider, "δ").value == 0.123
    of(app.number_input, "δ").set_value(None).run()
    assert of(app.number_input, "δ").value == 0.123
    click(app, "compare_go")
    assert app.query_params["under"] == "k1=120,delta=0.123,weight=0.8"


@pytest.mark.parametrize("under", ["k2=11", "nothing", "k1=2,k2=5", "weight=<b>", ","])
def test_settings_that_cannot_be_get_a_sentence(mine: Path, compared: Visit, under: str) -> None:
    app = compared(under=under)
    assert len(app.error) == 1 and "not changed" in app.error[0].value.replace("\\", "")
    assert "least one setting" in plain(app)


# --- what is taken away -----------------------------------------------------------------------------------------------


def test_the_table_as_csv_has_no_formula_and_no_made_up_number(
    home: Path, compared: Visit, downloads: dict[str, Download]
) -> None:
    hostile_bank(home)
    compared(bank="foreign", run="a", against="b")
    rows = downloads["compare_csv"].rows
    assert rows and all(row["task"].startswith("'=") and row["intent"].startswith("'=") for row in rows)
    assert {row["reward b"] for row in rows} == {"1.0", ""}
    html = downloads["compare_report"].text
    assert "Where a and b part" in html and "<img" not in html


def hostile_bank(home: Path) -> None:
    with bank_with_a_run(home / "banks" / "foreign", "a") as bank:
        begun(bank, "b", environment=HOSTILE, model=HOSTILE, settings={"weight": HOSTILE, HOSTILE: [1]})
        for run in "ab":
            commit(bank, run, HOSTILE, HOSTILE, wrote=[f"{run}{HOSTILE}"], answers=[HOSTILE + run])
            commit(bank, run, HOSTILE, HOSTILE, selected=[f"{run}{HOSTILE}", *(["aother"] if run == "a" else [])],
                   reward=None if run == "b" else -1.0, answers=[HOSTILE + run], wrote=[f"{run}other"])  # fmt: skip


def test_foreign_text_stays_text(home: Path, compared: Visit) -> None:
    hostile_bank(home)
    for step in ("1", "2"):
        app = compared(bank="foreign", run="a", against="b", step=step)
        kinds = ("markdown", "caption", "info", "warning", "error", "success", "subheader")
        texts = [element.value for kind in kinds for element in app.get(kind)]
        for table in (element.value for element in app.table):
            texts += [str(cell) for row in table.itertuples(index=False) for cell in row] + list(table.columns)
        assert sum("evil" in text for text in texts) > 3
        for text in texts:
            unescaped = re.sub(r"\\.", "", text)
            assert not [mark for mark in ("](", ":red[", "**z", "$a$", "<img", "://") if mark in unescaped], text
        assert HOSTILE in [block.value for block in app.code]


# --- banks that have little to compare --------------------------------------------------------------------------------


def test_one_run_says_how_to_get_a_second(home: Path, compared: Visit) -> None:
    app = compared(bank=a_bank())
    for way in ("start a second", "fork this one", "import one"):
        assert way in plain(app)
    app = compared(bank="mine", under="k2=1")
    for _ in range(3):
        app.run()
    assert "laid beside another" in plain(app)


def test_runs_of_other_agents_that_tell_little_can_be_compared(home: Path, compared: Visit) -> None:
    with bank_with_a_run(home / "banks" / "reported", "r") as bank:
        for run, answer in (("one", "left"), ("other", "right")):
            recorder = Recorder(bank, run)
            with recorder.step("go somewhere"):
                pass
            with recorder.step("go home") as step:
                step.answered(answer)
            memory = recorder.remember("go", f"by {run}", a_vector(1), memory_id=f"{run}-m")
            with recorder.step("go far", embedding=a_vector(2)) as step:
                step.recalled([(memory, 0.5)])
                step.selected([memory])
    app = compared(bank="reported", run="one", against="other")
    text = plain(app)
    assert "judged the answers" in text
    assert "1 of 1 steps" in text.replace(" (1.000)", "")
    assert "pair **2** of 3" in text
    assert "Which memories were given" in text
    app = compared(bank="reported", run="one", against="other", step="1")
    assert "What the model answered" in plain(app)
    assert "memory was given" not in plain(app)
    app = compared(bank="reported", run="one", against="other", step="3")
    assert "pair **3** of 3" in plain(app)
    for _ in range(3):
        app = compared(bank="reported", run="one", under="k2=1")


def test_a_reward_given_since_is_in_the_comparison(mine: Path, compared: Visit) -> None:
    before = comparison_of(mine, "base", "other")
    assert finding(before) in plain(compared(against="other"))
    with MemoryBank.open(str(mine)) as bank:
        for trace in bank.traces("other"):
            give_reward(bank, "other", trace.step, trace.id, (), 0.9, "ann")
    after = comparison_of(mine, "base", "other")
    assert finding(after) != finding(before)
    assert finding(after) in plain(compared(against="other"))


def test_a_run_made_under_unknown_settings_is_compared_with_others_only(home: Path, compared: Visit) -> None:
    with bank_with_a_run(home / "banks" / "foreign", "a") as bank:
        bank.write.start_run(replace(bank.run("a"), id="b", settings={"heat": 3}))
        for run in "ab":
            commit(bank, run, "x")
    assert "decided again" in plain(compared(bank="foreign", run="b", under="k2=1"))
    assert "pair **1** of 1" in plain(compared(bank="foreign", run="b", against="a"))


# --- methods side by side ---------------------------------------------------------------------------------------------


def ended(app: AppTest) -> AppTest:
    """The page once the work in the background is over."""
    app.session_state["work_arms"][1].wait(120)
    app.run()
    assert not app.error
    return app


def small(visit: Visit, **link: Any) -> AppTest:
    usual = {"arms": ["No memory", "RAG", "MemRL"], "count": "4", "seeds": "2", "epochs": "2"}
    return visit("compare", compare="Methods side by side", **{**usual, **link})


def test_a_link_fills_the_form_and_nothing_runs_before_start(visit: Visit) -> None:
    app = small(visit, k2="2", tasks="household-heldout")
    assert app.multiselect(key="arms").value == ["none", "rag", "memrl"]
    values = [app.number_input(key=name).value for name in ("count", "seeds", "epochs", "k2")]
    assert values == [4, 2, 2, 2]
    assert app.selectbox(key="tasks").value == "household-heldout"
    assert "48 steps" in page_text(app)
    assert "work_arms" not in app.session_state


def test_a_link_that_makes_no_sense_is_passed_over(visit: Visit) -> None:
    app = small(visit, arms="nope", count="-3", seeds="9999999999", tasks="x")
    assert app.multiselect(key="arms").value == ["none", "rag", "memp", "memrl"]


@pytest.mark.slow
def test_own_banks_show_csr_beside_luck_gain_forgetting_cost_and_every_number(visit: Visit) -> None:
    app = small(visit)
    app = ended(app.button(key="arms_start").click().run())
    reported = page_text(app)
    assert "no ranking" in reported
    (table,) = [frame for frame in app.dataframe if "over no memory" in frame.value.columns]
    assert list(table.value["arm"]) == ["No memory", "RAG", "MemRL"]
    assert set(table.value["rules of"]) == {"paper"}
    assert table.value["CSR"].str.contains("%").all() and table.value["forgetting B"].notna().all()
    assert "paired" in reported


def test_an_adapted_arm_carries_its_deviations(visit: Visit) -> None:
    app = small(visit, arms=["No memory", "ExpRAG"], seeds="1", epochs="1")
    app = ended(app.button(key="arms_start").click().run())
    assert "ExpRAG · adapted" in page_text(app)
    assert any("adapted arms (1)" in box.label for box in app.expander)
