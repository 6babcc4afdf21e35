"""Rewards, beside the queue: who agrees, what it changed, who did what, rewards as files, and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.analysis.people.agreement import agreement
from memrl_core.bank.people.judgements import Label
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.learning.scales import RatingScales
from memrl_core.numerals import percent
from memrl_core.records import EventKind
from memrl_core.settings import MemRLSettings
from tests.builders import numbers
from tests.pages.screen import (
    RUN,
    Download,
    Stored,
    Visit,
    at,
    at_rest,
    beliefs,
    by_people,
    click,
    everything,
    far,
    give,
    known_as,
    plain,
    press,
    rewards,
    standing,
    step_judged,
    submit,
    table,
)

TWO = {"ann": (1.0, 1.0, -1.0, -1.0), "bob": (1.0, -1.0, -1.0, -1.0)}
THREE = {**TWO, "cem": (0.5, 0.0, -1.0, -0.5)}


pytestmark = pytest.mark.usefixtures("ann")


@pytest.fixture
def view(visit: Visit, demo: Path) -> Visit:
    """Opens a view of the demo's rewards."""
    return lambda name, **link: visit("rewards", bank="demo", view=name, **link)


def rated_by(bank: Stored, people: Mapping[str, tuple[float, ...]]) -> None:
    bank.write.ratings.rate_all(
        [Rating(RUN, n, r, who) for who, given in people.items() for n, r in enumerate(given, 1)]
    )


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_made_under_people_is_the_raters_queue_and_tells_nothing_before_it_is_done(
    bank: Stored, view: Visit, visit: Visit
) -> None:
    app = view("People")
    app.multiselect(key="batch_raters").set_value(["ann", "<b>bob</b>"])
    app.number_input(key="batch_count").set_value(4)
    app.number_input(key="batch_overlap").set_value(2)
    app.number_input(key="batch_gold").set_value(50)
    app = submit(app, "Make the batch")
    (made,) = bank.batches.of(RUN)
    truth = {step: bank.trace(RUN, step).reward for step in made.parts["ann"]}
    assert (len(made.gold), made.overlap, made.made_by) == (2, 2, "ann")
    assert made.gold == {step: truth[step].environment for step in made.gold}
    assert "judged as known" not in table(app, "of")

    app = visit("rewards", bank="demo")
    assert (at(app), app.query_params["show"]) == (made.parts["ann"][0], "batch")
    verdicts = {reward.verdict for reward in truth.values()}
    for number, step in enumerate(made.parts["ann"]):
        if number == 2:  # Who comes back finds the count of the whole batch.
            app = visit("rewards", bank="demo")
        assert any(f"**{number} of 4** rated" in one.value for one in app.markdown)
        assert at(app) == step
        app = press(app, "5")
        assert not any(verdict in everything(app) for verdict in verdicts if verdict)
        assert "environment" not in next(one.value for one in app.markdown if "Saved" in one.value)
    assert [step for step, _ in rewards(bank)] == list(made.parts["ann"])
    assert "to_gold" in [one.key for one in app.button]
    # Also for who comes back by the menu: a new session does not know that it was this person who rated.
    again = visit("rewards", bank="demo")
    assert any("all that was assigned" in one.value for one in again.info)
    again.button(key="to_gold").click().run()
    assert again.session_state["rewards_view"] == "People"

    app.text_input(key="rewards_name").set_value("cem").run()
    assert any("cem" in one.value for one in app.info) and "to_gold" not in [one.key for one in app.button]
    app.text_input(key="rewards_name").set_value("ann").run()

    app = view("People")
    rows = table(app, "judged as known").set_index("rater")
    right = sum(reward > 0 for reward in made.gold.values())
    assert list(rows.loc["ann"])[:4] == [4, 4, 2, percent(right / 2)]
    assert list(rows.loc["<b>bob</b>"])[:3] == [0, 4, 0]
    app = click(app, f"close_{made.id}")
    assert not any("of" in frame.value for frame in app.dataframe)


def test_a_batch_of_recall_is_pooled_over_methods_and_leads_its_raters_to_recall(
    bank: Stored, view: Visit, visit: Visit
) -> None:
    app = view("People")
    app.multiselect(key="recall_batch_raters").set_value(["ann", "bo"])
    app.number_input(key="recall_batch_count").set_value(4)
    app.number_input(key="recall_batch_double").set_value(50)
    app.number_input(key="recall_batch_gold").set_value(50)
    app.multiselect(key="recall_batch_embedders").set_value(["hashing-64"])
    app = at_rest(submit(app, "Make the recall batch"), "recall_batch")
    (made,) = bank.batches.of(RUN)
    assert (made.kind, made.methods, len(made.grades)) == ("recall", ("memrl", "rag", "hashing-64"), 2)
    assert sum(map(len, made.parts.values())) == 6 and len(made.pools) == 4
    assert table(app, "labelled").columns.tolist() == ["rater", "labelled", "of"]
    # Answers to reward are offered as before; the labels are one click away.
    app = visit("rewards", bank="demo")
    assert app.query_params.get("show") != "batch"
    assert any(f"**{len(made.parts['ann'])} steps**" in one.value for one in app.markdown)
    for step in made.parts["ann"]:
        bank.write.judgements.judge_all([Label(RUN, step, one, 0, "ann") for one in made.pools[step]])
    app = view("People")
    row = table(app, "gold labels").set_index("rater").loc["ann"]
    known = {step: made.grades[step] for step in made.parts["ann"] if step in made.grades}
    grades = [grade for by_memory in known.values() for grade in by_memory.values()]
    assert list(row)[:3] == [len(made.parts["ann"])] * 2 + [len(grades)]
    assert row["as is known"] == percent(sum(grade == 0 for grade in grades) / len(grades))
    app = click(app, f"close_{made.id}")
    assert not any("labelled" in frame.value for frame in app.dataframe)


# --- people -----------------------------------------------------------------------------------------------------------


def test_of_three_raters_each_pair_has_its_kappa_and_all_have_one_alpha(bank: Stored, view: Visit) -> None:
    rated_by(bank, THREE)
    app = view("People")
    shown = {metric.label: metric.value for metric in app.metric}
    steps = {str(step): {who: given[step] for who, given in THREE.items()} for step in range(4)}
    found = agreement(steps, 0.0)
    assert "Cohen's κ" not in shown and shown["Krippendorff's α"] == f"{found.alpha:.3f}"
    assert "κ compares two raters" in plain(app)
    pairs = table(app, "Cohen's κ").to_dict("records")
    assert [(row["rater"], row["and"]) for row in pairs] == [("ann", "bob"), ("ann", "cem"), ("bob", "cem")]
    assert [row["Cohen's κ"] for row in pairs] == [f"{one.kappa:.3f}" for one in agreement(steps, 0.0).pairs]


def test_the_disputed_steps_are_listed_and_lead_to_a_queue_of_exactly_these(bank: Stored, view: Visit) -> None:
    rated_by(bank, TWO)
    app = view("People")
    (row,) = table(app, "apart").to_dict("records")
    assert (row["step"], row["apart"], row["ratings"]) == (2, "2.000", "ann +1.000, bob −1.000")
    click(app, "to_disputes")
    assert (app.query_params["show"], app.query_params["only"]) == ("disputed", RUN)
    assert at(app) == 2 and far(app).startswith("**0 of 1** rated")


def test_a_dispute_is_talked_over_and_the_comments_are_notes_of_its_step(bank: Stored, view: Visit) -> None:
    rated_by(bank, TWO)
    app = view("People")
    app.text_area(key="comment_text").set_value("It heated the **wrong** pan.")
    submit(app, "Comment")
    assert "It heated the **wrong** pan." in [text.value for text in app.text]
    (note,) = bank.notes.standing(RUN, 2)
    assert note.reason == "It heated the **wrong** pan."


@pytest.mark.parametrize(
    ("name", "says"),
    [("People", "Nobody has rated"), ("What changed", "in that time"), ("Audit", "done anything")],
)
def test_a_view_of_a_bank_that_nobody_touched_says_so(view: Visit, name: str, says: str) -> None:
    app = view(name)
    assert says in plain(app)
    if name == "People":
        assert table(app, "may").to_dict("records")[0]["may"] == "manage"


def assign(app: AppTest, name: str, role: Role, everybody: bool = False) -> AppTest:
    app.selectbox(key="role_for").set_value("everybody else" if everybody else "a person")
    app.text_input(key="role_name").set_value(name)
    app.selectbox(key="role_role").set_value(role)
    return submit(app, "Assign")


def test_roles_are_assigned_and_nobody_locks_everybody_out(bank: Stored, view: Visit) -> None:
    app = view("People")
    assert "Whose role?" in plain(assign(app, " ", Role.RATE))
    assert "nobody could manage" in plain(assign(app, "", Role.RATE, everybody=True))
    assign(app, "ann", Role.MANAGE)
    assign(app, "", Role.RATE, everybody=True)
    reported = {row["person"]: row["may"] for row in table(app, "may").to_dict("records")}
    assert reported == {"everybody else": "rate", "ann": "manage"}
    assert bank.people.role_of("bob") is Role.RATE
    known_as("bob")
    assert next(b for b in view("People").button if b.label == "Assign").disabled


# --- what changed -----------------------------------------------------------------------------------------------------


def test_what_changed_tells_of_q_then_of_selections_then_of_answers(bank: Stored, view: Visit) -> None:
    before = beliefs(bank)
    rated_by(bank, {"ann": (1.0,) * 24})
    app = view("What changed")
    moved = {i for i, q in beliefs(bank).items() if q != before[i]}
    furthest = max(abs(q - before[i]) for i, q in beliefs(bank).items())
    assert f"{len(moved)} q moved, by up to {furthest:.2g}" in plain(app)
    app.session_state["later_choices"][RUN][1].wait(30)
    app.run()
    differing = table(app, "without")
    assert f"{len(differing)} of the last 20 tasks" in plain(app)
    assert all(row["without"] != row["now"] for row in differing.to_dict("records"))
    click(app, "rerun_changed")
    at_rest(app, "rerun_changed")
    assert f"Of {len(differing)} tasks re-run" in plain(app) and "the simulated model" in plain(app)
    reported = [box.label for box in app.expander if " → " in box.label]
    assert len(reported) == len(differing)
    assert len(by_people(bank)) == 24


# --- audit ------------------------------------------------------------------------------------------------------------


def test_the_audit_is_filtered_by_person_kind_memory_and_program(
    bank: Stored, view: Visit, downloads: dict[str, Download]
) -> None:
    give(bank, 5, 1.0, "ann", "right shelf")
    give(bank, 6, 1.0, "bob")
    bank.write.undo.undo("bob")
    bank.write.editing.pin(RUN, [f"{RUN}-0001"], "ann")
    app = view("Audit")
    assert len(table(app, "when (UTC)")) == 4
    words = table(app, "when (UTC)")["what"].tolist()
    assert sum("undone since" in line for line in words) == 1
    app.selectbox(key="audit_who").set_value("ann").run()
    assert table(app, "when (UTC)")["reason"].tolist() == ["", "right shelf"]
    app.selectbox(key="audit_kind").set_value("rewards").run()
    (row,) = downloads["audit_csv"].rows
    assert (row["who"], row["step"], float(row["value"]), row["reason"]) == ("ann", "5", 1.0, "right shelf")
    app.text_input(key="audit_memory").set_value("nobody's").run()
    assert "done anything" in plain(app)
    app.text_input(key="audit_memory").set_value(f"{RUN}-0001")
    app.selectbox(key="audit_who").set_value("")
    app.selectbox(key="audit_kind").set_value("all").run()
    of_people = len(table(app, "when (UTC)"))
    app.checkbox(key="audit_program").check().run()
    assert "the environment" in set(table(app, "when (UTC)")["who"])
    assert len(table(app, "when (UTC)")) > of_people


def test_the_moves_of_one_q_lead_from_its_beginning_to_what_it_is(
    bank: Stored, view: Visit, downloads: dict[str, Download]
) -> None:
    step = step_judged(bank, -1.0, remembering=f"{RUN}-0001").step
    give(bank, step, 1.0, "bob")
    app = view("Audit", memory=f"{RUN}-0001")
    moves = table(app, "q after").to_dict("records")
    assert moves[-1]["q after"] == pytest.approx(beliefs(bank)[f"{RUN}-0001"])
    for earlier, move in pairwise(moves):
        before, reward, after = (move[name] for name in ("q before", "reward", "q after"))
        assert earlier["q after"] == move["q before"]
        assert after == pytest.approx(before + move["α"] * (reward - before))
    (of_bob,) = [move for move in moves if move["step"] == step]
    assert of_bob["from"].startswith("bob (") and of_bob["reward"] == 1.0
    rows = downloads["q_moves_csv"].rows
    assert [row["step"] for row in rows] == [str(move["step"]) for move in moves]
    assert [float(row["q after"]) for row in rows] == pytest.approx([move["q after"] for move in moves], abs=1e-6)


# --- files ------------------------------------------------------------------------------------------------------------

LINES = b"""run,step,rater,reward,reason,colour
household,3,ann,1,good,red
,4,,-1,,
household,99,ann,1,,
x,y,ann,z,,
"""


def uploaded(app: AppTest, content: bytes, name: str = "rewards.csv") -> AppTest:
    return app.file_uploader(key="rewards_file").upload(name, content).run()


def test_a_file_is_looked_at_line_by_line_and_saved_as_one_action(bank: Stored, view: Visit) -> None:
    app = uploaded(view("Import and export"), LINES)
    assert "**4 lines**: 2 new" in plain(app)
    assert "here: colour" in plain(app)
    problems = table(app, "problem")["problem"].tolist()
    assert all(problems[:2]) and not any(problems[2:]) and "no finished step 99" in problems[0]
    assert rewards(bank) == []
    assert numbers(app.button(key="apply_rewards").label) == ["2", "2"]
    click(app, "apply_rewards")
    assert "Saved 2 rewards" in plain(app)
    assert (standing(bank, 3), standing(bank, 4)) == ({"ann": 1.0}, {"ann": -1.0})
    app.selectbox(key="rewards_view").set_value("Queue").run()
    assert far(app).startswith("**0 of 38** rated")
    click(app, "queue_undo")
    assert standing(bank, 3) == standing(bank, 4) == {}
    assert at(app) == 3 and far(app).startswith("**0 of 40** rated")
    assert app.button(key="queue_undo").disabled


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"PK\x03\x04", b"a,b\n1,2\n"])
def test_a_file_that_holds_no_rewards_gets_a_sentence(bank: Stored, view: Visit, content: bytes) -> None:
    app = uploaded(view("Import and export"), content)
    (error,) = app.error
    assert "Nothing was saved" in error.value and rewards(bank) == []


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_export_holds_every_reward_and_changes_nothing_when_it_comes_back(
    bank: Stored, view: Visit, downloads: dict[str, Download], kind: str
) -> None:
    assert "Nobody has rated" in plain(view("Import and export"))
    give(bank, 3, 1.0, "=bob", 'first, "quoted"\n')
    give(bank, 4, -0.5, "ann")
    app = view("Import and export")
    uploaded(app, downloads[f"export_rewards_{kind}"].data(), f"rewards.{kind}")
    assert "**2 lines**: 2" in plain(app)
    assert app.button(key="apply_rewards").disabled


# --- rules ------------------------------------------------------------------------------------------------------------


def rules(bank: Stored, step: int | None = None) -> tuple[str, str]:
    settings = MemRLSettings.of(bank.settings(RUN, step))
    return settings.human_rewards, settings.several_raters


def rule_field(app: AppTest, name: str):
    """A rule's field, whose key also names the last change of the rules."""
    (found,) = [field for field in app.selectbox if (field.key or "").startswith(f"{name}_{RUN}")]
    return found


def test_a_rule_holds_from_the_next_step_or_for_the_whole_run(bank: Stored, view: Visit) -> None:
    rated_by(bank, {"ann": (1.0,) * 6})
    first = beliefs(bank)
    app = view("Rules")
    rule_field(app, "human_rewards").set_value("mean")
    rule_field(app, "several_raters").set_value("majority")
    submit(app, "Save the rule")
    assert (rules(bank), rules(bank, 40)) == (("mean", "majority"), ("override", "mean"))
    assert beliefs(bank) == first
    app.checkbox(key="combining_all").check()
    submit(app, "Save the rule")
    assert rules(bank) == rules(bank, 1) == ("mean", "majority")
    assert beliefs(bank) != first and len(rewards(bank)) == 6
    rule_field(app, "human_rewards").set_value("override")
    rule_field(app, "several_raters").set_value("mean")
    submit(app, "Save the rule")
    assert beliefs(bank) == first


def scales(bank: Stored) -> RatingScales:
    return bank.ratings.scales(RUN)


def test_scales_are_changed_shown_and_offered_by_the_queue(bank: Stored, view: Visit) -> None:
    app = view("Rules")
    app.selectbox(key=f"scale_{RUN}").set_value("stars")
    app.checkbox(key=f"blind_{RUN}").uncheck()
    app.number_input(key=f"wanted_{RUN}").set_value(3)
    app.number_input(key=f"thumbs_up_{RUN}").set_value(0.5)
    app.text_input(key=f"stars_{RUN}").set_value("-1, -0.5, 0, 0.5, 0.75")
    submit(app, "Save the scales")
    chosen = scales(bank)
    assert (chosen.scale, chosen.hide_verdict, chosen.thumbs_up, chosen.ratings_wanted) == ("stars", False, 0.5, 3)
    assert chosen.stars == (-1, -0.5, 0, 0.5, 0.75)
    reported = dict(zip(table(app, "R")["scale"], table(app, "R")["R"], strict=True))
    assert reported["Thumbs"] == "bad → −1.00 · good → +0.50" and reported["1 – 5"].endswith("5 → +0.75")
    app.selectbox(key="rewards_view").set_value("Queue").run()
    assert app.segmented_control(key="rating_scale").value == "stars"
    press(app, "5")
    assert rewards(bank) == [(1, 0.75)]


@pytest.mark.parametrize(("stars", "says"), [("1 0 0 0 -1", "must not fall from 1 to 5"), ("a b c d e", "stars")])
def test_wrong_stars_are_refused_in_a_sentence(bank: Stored, view: Visit, stars: str, says: str) -> None:
    app = view("Rules")
    app.text_input(key=f"stars_{RUN}").set_value(stars)
    submit(app, "Save the scales")
    assert any(says in error.value.replace("\\", "") for error in app.error)
    assert scales(bank) == RatingScales()
    assert EventKind.SCALES_CHANGED not in {event.kind for event in by_people(bank)}
