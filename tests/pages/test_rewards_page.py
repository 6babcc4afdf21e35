"""Rewards, the queue: every scale saves what it says, nothing is lost, shown too early, counted twice or by chance."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.runtime.context import ContextProxy
from streamlit.testing.v1 import AppTest

from memrl_core.analysis.people import rating_queue
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating, RatingsWriter
from memrl_core.bank.people.roles import NEWCOMERS, Role
from memrl_core.errors import BankDamaged
from memrl_core.learning.scales import RatingScales
from memrl_core.records import EventKind
from pages.rewards.queue import ALL_MINE, EMPTY, SHOWN, UNASSIGNED
from pages.shared import person as who
from pages.shared.text import literal
from tests.pages.screen import (
    RUN,
    Stored,
    Visit,
    a_bank,
    at,
    beliefs,
    by_hand,
    by_people,
    click,
    everything,
    far,
    full,
    give,
    key_starting,
    known_as,
    page_text,
    picker,
    plain,
    press,
    rewards,
    standing,
    step_id,
    step_judged,
)

MARKUP = "<b>x</b> **y** :red[z]"


@pytest.fixture
def queue(visit: Visit, ann: None) -> Visit:
    """Opens the queue of the demo, as ann."""
    return lambda **link: visit("rewards", bank="demo", **link)


def on_scale(app: AppTest, scale: str) -> AppTest:
    return app.segmented_control(key="rating_scale").set_value(scale).run()


# --- scales -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "digit", "reward", "given"),
    [
        ("thumbs", "1", -1.0, {"thumb": "down"}),
        ("thumbs", "5", 1.0, {"thumb": "up"}),
        ("graded", "4", 0.5, {"grade": 0.5}),
        ("stars", "2", -0.5, {"stars": 2}),
    ],
)
def test_one_button_saves_a_rating_moves_only_the_q_of_the_prompt_and_goes_on(
    bank: Stored, queue: Visit, scale: str, digit: str, reward: float, given: dict[str, object]
) -> None:
    step = step_judged(bank, 1.0 if reward < 0 else -1.0).step
    before = beliefs(bank)
    app = on_scale(queue(step=str(step)), scale)
    assert at(press(app, digit)) == step + 1
    (event,) = by_people(bank)
    assert (event.step, event.value, event.rater) == (step, reward, "ann")
    assert dict(event.payload) == {"scale": scale, **given}
    prompt = set(bank.credits.of(RUN, step))
    assert {i for i, q in beliefs(bank).items() if q != before[i]} == prompt
    assert f"{len(prompt)} q moved" in plain(app)


def test_a_grade_between_is_chosen_with_the_slider_and_saved_with_its_button(bank: Stored, queue: Visit) -> None:
    app = on_scale(queue(step="5"), "graded")
    key = f"grade_{step_id(bank, 5)}"
    app.slider(key=key).set_value(0.35).run()
    assert rewards(bank) == []
    click(app, f"save_{key}")
    (event,) = by_people(bank)
    assert (event.value, dict(event.payload)) == (pytest.approx(0.35), {"scale": "graded", "grade": 0.35})


def test_the_last_mark_of_a_rubric_saves_the_weighted_mean(bank: Stored, queue: Visit) -> None:
    app = on_scale(queue(step="5"), "rubric")
    for number, mark in enumerate((5, 4, 3)):
        assert rewards(bank) == []
        key_starting(app, f"mark_{number}_{mark}_").click().run()
    (event,) = by_people(bank)
    assert event.value == pytest.approx(2 * (2 * 1.0 + 0.75 + 0.5) / 4 - 1)
    assert event.payload["marks"] == {"correct": 5, "complete": 4, "clear": 3}
    assert at(app) == 6


def test_marks_that_could_not_be_saved_stay(bank: Stored, queue: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    app = on_scale(queue(step="5"), "rubric")
    with monkeypatch.context() as patched:
        patched.setattr(RatingsWriter, "rate", full)
        for number in range(3):
            key_starting(app, f"mark_{number}_4_").click().run()
    assert "disk is full" in plain(app) and rewards(bank) == []
    key_starting(app, "mark_2_4_").click().run()
    assert rewards(bank) == [(5, 0.5)]


@pytest.mark.parametrize(("choice", "left", "right"), [("first", 0.0, -1.0), ("second", -1.0, 0.0), ("tie", 0.0, 0.0)])
def test_two_answers_that_both_failed_are_compared_as_one_action(
    bank: Stored, queue: Visit, choice: str, left: float, right: float
) -> None:
    app = on_scale(queue(), "pairwise")
    key_starting(app, f"pair_{choice}_").click().run()
    assert rewards(bank) == [(1, left), (9, right)]
    assert {event.payload["scale"] for event in by_people(bank)} == {"pairwise"}
    assert step_id(bank, 1) not in key_starting(app, "pair_tie_").key
    shown = key_starting(app, "pair_tie_").key
    click(app, "queue_undo")
    assert standing(bank, 1) == standing(bank, 9) == {}
    assert key_starting(app, "pair_tie_").key == f"pair_tie_{step_id(bank, 1)}_{step_id(bank, 9)}" != shown
    click(app, "queue_redo")
    assert (standing(bank, 1), standing(bank, 9)) == ({"ann": left}, {"ann": right})
    assert far(app).startswith("**1 of 16** rated")


def test_the_runs_own_rewards_are_shown_beside_the_buttons_and_used(bank: Stored, queue: Visit) -> None:
    own = {"scale": "stars", "stars": (-1, -0.5, 0, 0.25, 2), "thumbs_up": 0.75}
    bank.write.ratings.change_scales(RUN, RatingScales.of(own), "ann")
    app = queue(step="5")
    assert "4 → +0.25 · 5 → +2.00" in plain(app)
    press(app, "5")
    on_scale(app, "thumbs")
    assert "good → +0.75" in plain(app)
    press(app, "5")
    assert rewards(bank) == [(5, 2.0), (6, 0.75)]


# --- once, and none by chance -----------------------------------------------------------------------------------------


def test_a_key_that_comes_before_anyone_can_have_read_is_not_counted(
    bank: Stored, queue: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rating_queue, "TOO_SOON", 3600.0)
    app = press(queue(step="5"), "5")
    assert "could have read" in plain(app)
    assert at(app) == 5 and rewards(bank) == []


def test_a_key_that_arrives_when_its_answer_has_gone_rates_nothing_and_says_so(bank: Stored, queue: Visit) -> None:
    app = queue(step="5")
    key_starting(app, "rate_1_").click()
    app = press(app, "5")
    assert rewards(bank) == [(5, -1.0)] and at(app) == 6
    assert "not counted" in plain(app)


def test_another_choice_takes_the_place_of_the_first_and_both_stay_on_record(bank: Stored, queue: Visit) -> None:
    app = click(press(queue(step="5"), "5"), "queue_previous")
    assert "You gave **+1.000**" in plain(app)
    press(app, "1")
    assert rewards(bank) == [(5, 1.0), (5, -1.0)] and standing(bank, 5) == {"ann": -1.0}
    click(app, "queue_undo")
    assert "You gave **+1.000**" in plain(app) and standing(bank, 5) == {"ann": 1.0}
    assert far(app).startswith("**1 of 40** rated")


def test_what_could_not_be_saved_is_reported_and_the_same_key_saves_it_with_its_reason(
    bank: Stored, queue: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = queue(step="5")
    app.text_input(key=f"reason_{step_id(bank, 5)}").set_value("on the wrong shelf")
    with monkeypatch.context() as patched:
        patched.setattr(RatingsWriter, "rate", full)
        press(app, "5")
    assert "disk is full" in plain(app) and "not saved" in plain(app)
    assert at(app) == 5 and rewards(bank) == []
    press(app, "5")
    (event,) = by_people(bank)
    assert (event.step, event.value, event.reason) == (5, 1.0, "on the wrong shelf")
    assert at(app) == 6 and "disk is full" not in plain(app)


def test_a_step_that_cannot_be_read_gets_its_own_sentence(
    demo: Path, queue: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise BankDamaged("Step 5 cannot be read.")

    monkeypatch.setattr(MemoryBank, "trace", damaged)
    assert "Step 5 cannot" in plain(queue(step="5"))


# --- moving -----------------------------------------------------------------------------------------------------------


def test_skipped_steps_come_again_when_nothing_else_is_left(demo: Path, queue: Visit) -> None:
    app = queue(show="random", sample="3")
    first = at(app)
    click(app, "queue_skip")
    assert "1 skipped" in far(app)
    second = at(press(app, "5"))
    press(app, "5")
    assert at(app) == first and second != first
    press(app, "5")
    assert "all 3 of this" in plain(app)
    assert far(app).startswith("**3 of 3** rated")
    assert app.button(key="queue_next").disabled and app.button(key="queue_skip").disabled


def test_undo_goes_back_to_the_step_unrated_and_redo_rates_it_again(bank: Stored, queue: Visit) -> None:
    before = beliefs(bank)
    step = step_judged(bank, -1.0).step
    app = press(queue(step=str(step)), "5")
    after = beliefs(bank)
    assert after != before
    click(app, "queue_undo")
    assert at(app) == step and "You gave" not in plain(app) and beliefs(bank) == before
    assert f"+1.000 for step {step}" in plain(app)
    assert far(app).startswith("**0 of 40** rated")
    click(app, "queue_redo")
    assert at(app) == step and "You gave **+1.000**" in plain(app) and beliefs(bank) == after
    assert far(app).startswith("**1 of 40** rated") and app.button(key="queue_redo").disabled


def test_a_reason_is_saved_with_the_rating_and_saved_again_when_it_changes(bank: Stored, queue: Visit) -> None:
    app = queue(step="5")
    key = f"reason_{step_id(bank, 5)}"
    app.text_input(key=key).set_value("wrong shelf").run()
    assert rewards(bank) == []
    click(press(app, "1"), "queue_previous")
    assert app.text_input(key=key).value == "wrong shelf"
    app.text_input(key=key).set_value("wrong drawer").run()
    assert at(app) == 5
    assert [(e.value, e.reason) for e in by_people(bank)] == [(-1.0, "wrong shelf"), (-1.0, "wrong drawer")]
    assert by_people(bank)[1].payload["thumb"] == "down"


def test_a_reason_typed_before_another_reward_is_saved_once_with_that_reward(bank: Stored, queue: Visit) -> None:
    app = click(press(queue(step="5"), "1"), "queue_previous")
    app.text_input(key=f"reason_{step_id(bank, 5)}").set_value("the right shelf")
    press(app, "5")
    assert [(event.value, event.reason) for event in by_people(bank)] == [(-1.0, ""), (1.0, "the right shelf")]


# --- what is in it ----------------------------------------------------------------------------------------------------


def walked(app: AppTest) -> list[int]:
    steps = [at(app)]
    while not app.button(key="queue_next").disabled:
        steps.append(at(click(app, "queue_next")))
    return steps


def test_a_link_gives_the_same_steps_again(demo: Path, visit: Visit, queue: Visit) -> None:
    app = queue(show="random", seed="3", sample="5")
    steps = walked(app)
    link = dict(app.query_params)
    assert len(set(steps)) == 5
    assert {name: link[name] for name in ("show", "seed", "sample")} == {"show": "random", "seed": "3", "sample": "5"}
    assert sorted(walked(queue(show="random", seed="3", sample="5"))) == sorted(steps)
    assert at(visit("rewards", **link)) == steps[-1]


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ({"seed": "9" * 30}, "The link's seed"),
        ({"sample": "0", "since": "soon"}, "The link's sample “0” cannot be used"),
        ({"only": "<b>no</b>"}, "This bank has no run “<b>no</b>”"),
        ({"policy": "none"}, "This bank has no policy “none”"),
    ],
)
def test_a_link_that_cannot_be_gets_a_sentence_and_the_default(
    demo: Path, queue: Visit, link: dict[str, str], says: str
) -> None:
    app = queue(**link)
    assert says in plain(app)
    assert far(app).startswith("**0 of 40** rated")


def test_an_empty_queue_says_why_and_has_no_bar(bank: Stored, visit: Visit, queue: Visit) -> None:
    app = visit("rewards", bank=a_bank())
    for show in SHOWN:
        app.selectbox(key="queue_show").set_value(show).run()
        assert (UNASSIGNED.format(name="ann") if show == "batch" else "this filter") in plain(app)
    assert "no pair" in plain(on_scale(app, "pairwise"))
    bank.write.ratings.rate_all([Rating(RUN, step, 1.0, "ann") for step in range(1, 41)])
    app = queue()
    for show, says in {"awaiting": ALL_MINE, **EMPTY, "batch": UNASSIGNED}.items():
        app.selectbox(key="queue_show").set_value(show).run()
        assert says.format(steps="40 steps", name="ann") in plain(app)
        assert not app.get("progress")


def test_a_bank_without_a_run_says_what_to_do_and_can_be_left(demo: Path, visit: Visit) -> None:
    app = visit("rewards", bank=a_bank(runs=False))
    assert "has no run" in plain(app)
    picker(app, "Bank").set_value("demo").run()
    assert far(app).startswith("**0 of 40** rated")


def test_a_step_wants_two_ratings_once_two_have_rated_and_as_many_as_the_rules_say(bank: Stored, queue: Visit) -> None:
    give(bank, 1, 1.0, "bob")
    assert far(queue(show="wanting")).startswith("**0 of 39** rated")
    give(bank, 1, 1.0, "cem")
    give(bank, 2, 1.0, "bob")
    app = queue(show="wanting")
    assert far(app).startswith("**0 of 39** rated")
    bank.write.ratings.change_scales(RUN, RatingScales(ratings_wanted=3), "ann")
    assert far(app.run()).startswith("**0 of 40** rated")


# --- blind ------------------------------------------------------------------------------------------------------------


def test_nothing_tells_the_verdict_before_the_person_has_rated(bank: Stored, queue: Visit) -> None:
    step = step_judged(bank, -1.0)
    give(bank, step.step, 0.25, "bob", "a reason of bob")
    bank.write.ratings.change_scales(RUN, RatingScales(ratings_wanted=3), "ann")
    assert step.reward.verdict
    verdict = step.reward.verdict
    app = queue(step=str(step.step))
    words = everything(app)
    assert "1 person" in words
    for hidden in (verdict, "q now", "The environment −1.000", "the environment", "+0.250", "a reason of bob"):
        assert hidden not in words
    press(app, "5")
    saved = next(line for line in plain(app).splitlines() if "Saved" in line)
    assert "+1.000" in saved and "environment" not in saved
    words = everything(click(app, "queue_previous"))
    for shown in (verdict, "q now", "The environment −1.000", "bob +0.250: a reason of bob", "You +1.000"):
        assert shown in words


def test_at_the_end_the_person_reads_where_the_environment_judged_otherwise(bank: Stored, queue: Visit) -> None:
    failed = step_judged(bank, -1.0).step
    app = queue(step=str(failed), show="all")
    for row in bank.steps.rows(RUN):
        if row.step not in (failed, 40):
            give(bank, row.step, 1.0, "ann")
    app = queue(show="unrated")
    for _ in range(2):
        press(app, "5")
    judged = {event.step: event.value for event in bank.events(RUN) if event.source == "environment"}
    apart = [step for step in (failed, 40) if judged[step] < 0]
    assert f"judged too, it disagrees with you on {len(apart)}: step {apart[0]} of" in plain(app)


def test_pairs_that_are_not_blind_show_both_verdicts(bank: Stored, queue: Visit) -> None:
    traces = [bank.trace(RUN, row.step) for row in bank.steps.rows(RUN)]
    judged = {trace.id: trace.reward.environment for trace in traces if trace.reward is not None}
    app = on_scale(queue(), "pairwise")
    while {judged[one] for one in key_starting(app, "pair_tie_").key.split("_")[2:]} != {-1.0, 1.0}:
        click(app, "queue_next")
    words = everything(app)
    assert "The environment −1.000" not in words and "The environment +1.000" not in words
    bank.write.ratings.change_scales(RUN, RatingScales(hide_verdict=False), "ann")
    words = everything(app.run())
    assert "The environment −1.000" in words and "The environment +1.000" in words


# --- several people ---------------------------------------------------------------------------------------------------


def test_what_another_rates_meanwhile_is_closed_in_this_sitting(bank: Stored, queue: Visit) -> None:
    app = queue(show="wanting")
    give(bank, 2, 1.0, "bob")
    app.run()
    assert far(app).startswith("**0 of 39** rated") and "last seen: bob" in plain(app)
    assert at(press(app, "5")) == 3


def test_a_name_with_markup_is_kept_as_typed_and_shown_letter_for_letter(bank: Stored, queue: Visit) -> None:
    known_as("")
    app = queue(step="5")
    assert app.text_input(key="rewards_name").value == ""
    app.text_input(key="rewards_name").set_value(MARKUP).run()
    press(app, "5")
    give(bank, 5, -1.0, "bob")
    assert [event.rater for event in by_people(bank)] == [MARKUP, "bob"]
    for view in ("People", "What changed", "Audit", "Rules"):
        app.selectbox(key="rewards_view").set_value(view).run()
        assert MARKUP not in page_text(app)
        if view != "Rules":
            assert MARKUP in everything(app) or MARKUP in app.selectbox(key="changed_who").options
    known_as("bob")
    app = queue(show="all", step="5")
    assert MARKUP not in page_text(app) and literal(f"{MARKUP} +1.000") in page_text(app)


@pytest.mark.parametrize("typed", ["*", " * "])
def test_a_name_that_cannot_be_is_refused_in_a_sentence(demo: Path, queue: Visit, typed: str) -> None:
    app = queue(step="5")
    app.text_input(key="rewards_name").set_value(typed).run()
    assert "person's name" in plain(app)
    assert app.text_input(key="rewards_name").value == "ann"


@pytest.mark.parametrize(
    ("browser", "connected", "rates"), [("another", True, False), ("another", False, True), ("mine", True, True)]
)
def test_only_another_browser_that_is_connected_now_makes_a_nameless_person_type_a_name(
    demo: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch, browser: str, connected: bool, rates: bool
) -> None:
    monkeypatch.setattr(ContextProxy, "cookies", {who.BROWSER: "mine"})
    monkeypatch.setattr(who, "_is_connected", lambda session: connected)
    monkeypatch.setattr(who, "_nameless", {"another session": browser}.copy)
    assert key_starting(visit("rewards", bank="demo"), "rate_1_").disabled is not rates


def with_roles(bank: Stored, **roles: Role) -> None:
    bank.write.people.assign("boss", Role.MANAGE, "boss")
    for name, role in roles.items():
        bank.write.people.assign(NEWCOMERS if name == "everybody" else name, role, "boss")


@pytest.mark.parametrize(
    ("roles", "rates", "manages"),
    [
        ({"everybody": Role.LOOK}, False, False),
        ({"everybody": Role.LOOK, "ann": Role.RATE}, True, False),
        ({"ann": Role.MANAGE}, True, True),
    ],
)
def test_each_role_can_press_what_it_may_do(
    bank: Stored, queue: Visit, roles: dict[str, Role], rates: bool, manages: bool
) -> None:
    with_roles(bank, **roles)
    app = queue(step="5")
    assert key_starting(app, "rate_1_").disabled is not rates
    assert app.text_input(key=f"reason_{step_id(bank, 5)}").disabled is not rates
    assert ("under People" in plain(app)) is not rates
    assert ("ann may" in plain(app)) is not manages
    on_scale(app, "pairwise")
    assert key_starting(app, "pair_tie_").disabled is not rates
    app.selectbox(key="rewards_view").set_value("Rules").run()
    for label in ("Save the rule", "Save the scales"):
        assert next(b for b in app.button if b.label == label).disabled is not manages
    app.selectbox(key="rewards_view").set_value("People").run()
    assert next(b for b in app.button if b.label == "Assign").disabled is not manages


def test_a_role_taken_away_between_drawing_and_click_is_refused_by_the_core(bank: Stored, queue: Visit) -> None:
    app = press(queue(step="5"), "5")
    with_roles(bank, ann=Role.LOOK)
    press(app, "5")
    assert "ann may look" in plain(app)
    assert at(app) == 6 and rewards(bank) == [(5, 1.0)]
    assert app.button(key="queue_undo").disabled
    assert standing(bank, 5) == {"ann": 1.0}
    assert {event.kind for event in by_people(bank)} == {EventKind.REWARD_GIVEN, EventKind.ROLE_ASSIGNED}


def test_the_step_page_saves_through_the_same_rules_and_the_queue_takes_it_back(
    bank: Stored, visit: Visit, queue: Visit
) -> None:
    app = by_hand(visit("step", bank="demo", step="21"), key=1, reason="dropped it")
    (event,) = by_people(bank)
    assert (event.step, event.value, event.reason, event.payload["thumb"]) == (21, -1.0, "dropped it", "down")
    assert by_hand(app, "undo") and standing(bank, 21) == {}
    by_hand(app, key=1)
    app = click(queue(), "queue_undo")
    assert at(app) == 21 and standing(bank, 21) == {}
