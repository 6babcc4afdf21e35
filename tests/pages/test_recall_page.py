"""The page Recall: labels by a person, what the environment derives, and the setting that is used from then on."""

from __future__ import annotations

import json
from pathlib import Path

from streamlit.testing.v1 import AppTest

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.recall.queries import labelled
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.judgements import Label
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.numerals import percent
from memrl_core.records import EventKind
from tests.pages.screen import (
    RUN,
    Download,
    Stored,
    Visit,
    at_rest,
    beliefs,
    by_hand,
    known_as,
    on_stage,
    page_text,
    plain,
    stands,
)


def test_without_labels_it_says_what_to_do_and_derived_ones_are_a_switch(visit: Visit, bank: Stored) -> None:
    app = at_rest(visit("recall", bank="demo", run=RUN), "recall")
    assert app.info and not app.dataframe
    at_rest(app.toggle(key="recall_derived").set_value(True).run(), "recall")
    assert not app.exception
    measures = app.dataframe[0].value
    assert {"recall@10", "false recall", "coverage"} <= set(measures["measure"])
    assert bank.judgements.standing() == []


def test_a_grade_is_stored_shown_and_undone(visit: Visit, bank: Stored) -> None:
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    app.button(key="grade_2").click().run()
    (label,) = bank.judgements.standing(RUN, 20)
    assert (label.grade, label.source) == (2, "person")
    # After the last memory comes the first that has no label yet.
    at = f"label_at_{RUN}_20"
    assert app.session_state[at] == 1
    app.session_state[at] = 999
    app.run()
    app.button(key="grade_0").click().run()
    assert app.session_state[at] == 1 and len(bank.judgements.standing(RUN, 20)) == 2
    app.button(key="label_undo").click().run()
    app.button(key="label_nothing").click().run()
    assert {one.memory_id for one in bank.judgements.standing(RUN, 20)} == {label.memory_id, ""}
    contradiction = f"You say that nothing should come, and that {memory_label(label.memory_id, RUN)} should."
    assert contradiction in page_text(app).replace("\\", "")
    for _ in range(2):
        app.button(key="label_undo").click().run()
    assert bank.judgements.standing(RUN, 20) == [] and not app.exception


def test_a_label_has_the_name_that_was_typed_last_also_where_that_comes_with_the_press(
    visit: Visit, bank: Stored
) -> None:
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    app.text_input(key="recall_name").set_value("Ada")
    app.button(key="grade_2").click().run()
    assert [label.rater for label in bank.judgements.standing(RUN, 20)] == ["Ada"]


def test_what_should_have_come_is_found_by_its_words(visit: Visit, bank: Stored) -> None:
    app = visit("recall", bank="demo", run=RUN, step="30", recall_view="Label")
    app.text_input(key="label_search").set_value("put").run()
    given = next(b for b in app.button if str(b.key).startswith("should_") and not b.disabled)
    given.click().run()
    (label,) = bank.judgements.standing(RUN, 30)
    assert given.key == f"should_{label.memory_id}" and label.reason


def test_the_best_setting_is_used_from_the_next_step_on(visit: Visit, bank: Stored) -> None:
    before, then = bank.settings(RUN), bank.next_step(RUN)
    app = visit("recall", bank="demo", run=RUN, recall_view="Tune", recall_derived="true")
    at_rest(app, "recall")
    app.slider(key="recall_bar_value").set_value(1.0).run()
    assert not app.exception
    app.button(key="recall_use").click().run()
    changed = [event for event in bank.events(RUN) if event.kind is EventKind.SETTINGS_CHANGED]
    assert len(changed) == 1 and changed[0].step == then
    now = bank.settings(RUN)
    assert (now["delta"], now["weight"]) != (before["delta"], before["weight"])
    assert {k: v for k, v in now.items() if k not in ("delta", "weight")} == {
        k: v for k, v in before.items() if k not in ("delta", "weight")
    }


def test_settings_are_not_compared_where_no_memory_should_come(visit: Visit, bank: Stored) -> None:
    bank.write.judgements.judge(Label(RUN, 20, "", 0, "ann"))
    app = at_rest(visit("recall", bank="demo", run=RUN, recall_view="Tune"), "recall")
    assert any("cannot be compared" in one.value for one in app.info)
    assert "is highest at" not in page_text(app) and "recall_use" not in {button.key for button in app.button}


def test_labels_of_the_bank_are_measured_with_what_is_thin_said(visit: Visit, bank: Stored) -> None:
    bank.write.judgements.judge(Label(RUN, 20, bank.trace(RUN, 20).decision.selected[0], 2, "ann"))
    app = at_rest(visit("recall", bank="demo", run=RUN), "recall")
    assert set(app.dataframe[0].value["steps"]) <= {0, 1}
    assert any("no interval" in one.value for one in app.caption)


def test_next_goes_on_to_the_next_step_or_to_the_next_of_a_persons_batch(visit: Visit, bank: Stored) -> None:
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    app.button(key="label_step").click().run()
    assert app.query_params["step"] in ("21", ["21"])
    app.button(key="grade_1").click().run()
    rater, first = bank.judgements.standing(RUN, 21)[0].rater, bank.judgements.standing(RUN, 21)[0].memory_id
    # Of a batch of rewards nothing is asked here; of one of recall, its own memories are.
    bank.write.batches.make(Batch(run=RUN, name="rewards", parts={rater: (30,)}), "ann")
    known = bank.trace(RUN, 7).decision.candidates[0].memory_id
    batch = Batch(
        run=RUN, name="recall", kind="recall", parts={rater: (21, 7), "bo": (7,)}, overlap=2,
        pools={21: (first,), 7: (known,)}, grades={7: {known: 0}}, methods=("memrl", "rag"),
    )  # fmt: skip
    stored = bank.write.batches.make(batch, "ann")
    assert (
        bank.batches.of(RUN)[-1] == stored
        and stored.model_copy(update={"id": "", "made_by": "", "created": ""}) == batch
    )
    app = visit("recall", bank="demo", run=RUN, step="21", recall_view="Label")
    assert any("1 of 2" in one.value for one in app.markdown) and not app.success
    assert [one.key for one in app.toggle] == []
    app.button(key="label_batch").click().run()
    assert app.query_params["step"] in ("7", ["7"])
    # On gold items the result is said at the end, not before.
    app.button(key="grade_2").click().run()
    assert app.success and any(f"**{percent(0)}** of 1 label" in one.value for one in app.markdown)


def test_on_the_stages_card_a_memory_is_labelled_by_hand_and_undone_and_no_q_moves(visit: Visit, bank: Stored) -> None:
    before, (inside, *_) = beliefs(bank), bank.trace(RUN, 20).decision.selected
    pool = {one.memory_id for one in bank.trace(RUN, 20).decision.candidates}
    outside = next(memory.id for memory in bank.memories() if memory.id not in pool)
    app = visit("step", bank="demo", step="20")
    assert stands(app)["labels"] == {} and stands(app)["label_off"] == ""
    by_hand(app, "label", memory=inside, grade=0, reason="another object")
    by_hand(app, "label", memory=outside, grade=2)
    bank.write.judgements.judge(Label(RUN, 20, inside, 2, "household", "derived"))
    mine, derived = by_hand(app, "name", name="someone") and stands(app)["labels"][inside]
    assert (mine["grade"], mine["mine"], mine["reason"], mine["source"]) == (0, True, "another object", "person")
    assert (derived["grade"], derived["mine"], derived["source"]) == (2, False, "derived")
    assert stands(app)["labels"][outside][0]["grade"] == 2
    # The newest is undone as an action; an older one is withdrawn by itself.
    by_hand(app, "unlabel", memory=outside)
    by_hand(app, "unlabel", memory=inside)
    assert stands(app)["labels"] == {inside: [derived]} and on_stage(app)["hand"]["done"]["error"] == ""
    assert beliefs(bank) == before


def test_what_an_answer_made_of_a_memory_is_said_on_the_card_and_counted_on_steps_and_bank(
    visit: Visit, bank: Stored
) -> None:
    memory, *_ = bank.trace(RUN, 20).decision.selected
    app = visit("step", bank="demo", step="20")
    assert set(stands(app)["uses"]) == set(bank.trace(RUN, 20).decision.selected)
    by_hand(app, "use", memory=memory, used="used")
    assert stands(app)["uses"][memory]["mine"] == "used" and stands(app)["uses"][memory]["hint"].startswith("hint")
    rows = visit("steps", bank="demo", run=RUN, window="20").dataframe[0].value
    step = bank.trace(RUN, 20)
    used = {memory, *step.follows.memories}
    assert (rows["used"].tolist(), rows["helpful"].tolist()) == ([len(used)], [len(used) * (step.reward.reward > 0)])
    table = visit("bank", bank="demo", run=RUN).dataframe[0].value
    label = f"#{int(memory.rpartition('-')[2])}"
    (row,) = table[table["memory"] == label].to_dict("records")
    in_steps = [t for t in bank.traces(RUN) if t.step == 20 or memory in t.follows.memories]
    helped = [t for t in in_steps if t.reward.reward > 0]
    assert (row["used"], row["helpful"]) == (len(in_steps), len(helped))
    assert row["surfaced"] >= row["selected"] >= row["used"]


def test_runs_and_embedders_stand_side_by_side_and_what_cannot_be_embedded_is_said(visit: Visit, bank: Stored) -> None:
    app = visit("recall", bank="demo", run=RUN, recall_view="Side by side", recall_derived="true")
    at_rest(app.multiselect(key="recall_embedders").set_value(["hashing-64", "openai:nowhere"]).run(), "beside")
    assert not app.exception
    rows = app.dataframe[0].value
    assert rows["run"].tolist() == [RUN, RUN] and rows["steps"].nunique() == 1
    assert rows["embedder"].tolist() == [bank.run(RUN).embedder, "hashing-64 (again)"]
    assert rows["recall@10 · A"].iloc[0] != rows["recall@10 · A"].iloc[1]
    assert any("nowhere" in one.value for one in app.caption)


def test_the_best_setting_starts_a_new_run_from_a_step(visit: Visit, bank: Stored) -> None:
    app = at_rest(visit("recall", bank="demo", run=RUN, recall_view="Tune", recall_derived="true"), "recall")
    app.slider(key="recall_bar_value").set_value(1.0).run()
    app.number_input(key="recall_fork_step").set_value(7).run()
    app.button(key="recall_fork").click().run()
    (new,) = [info for info in bank.runs() if info.base == RUN]
    assert (new.first_step, new.base_step) == (7, 6) and new.settings["k2"] == bank.settings(RUN, 7)["k2"]
    assert (new.settings["delta"], new.settings["weight"]) != (
        bank.settings(RUN, 7)["delta"], bank.settings(RUN, 7)["weight"],
    )  # fmt: skip


def test_a_golden_set_is_taken_away_and_brought_in_once_it_was_looked_at(
    visit: Visit, bank: Stored, downloads: dict[str, Download]
) -> None:
    memory = bank.trace(RUN, 20).decision.selected[0]
    bank.write.judgements.judge(Label(RUN, 20, memory, 2, "ann", reason="the same object"))
    visit("recall", bank="demo", run=RUN, recall_view="Label")
    (line,) = downloads["recall_set_out"].text.splitlines()
    assert (
        json.loads(line)["judged"][0] | {"memory": memory, "grade": 2, "rater": "ann"} == json.loads(line)["judged"][0]
    )
    row = {"query": bank.trace(RUN, 21).task.intent, "run": RUN, "step": 21, "judged": [{"memory": memory, "grade": 3}]}
    broken = json.dumps(row | {"judged": [{"memory": "nobody", "grade": 1}]})
    app = visit("recall", bank="demo", run=RUN, recall_view="Label")
    app.file_uploader(key="recall_set_file").upload("mine.jsonl", f"{json.dumps(row)}\n{broken}\nno JSON\n".encode())
    app.run().button(key="recall_set_ask").click().run()
    assert "Line 3 is no JSON" in plain(app) and "nobody" in plain(app)
    assert bank.judgements.standing(RUN, 21) == []
    app.button(key="recall_set_save").click().run()
    (label,) = bank.judgements.standing(RUN, 21)
    assert (label.memory_id, label.grade, label.rater, label.source) == (memory, 3, "mine.jsonl", "import")
    assert not app.exception and any("1 label" in one.value for one in app.success)


def test_a_set_that_cannot_be_read_is_said_in_a_sentence(visit: Visit, bank: Stored, tmp_path: Path) -> None:
    app = at_rest(visit("recall", bank="demo", run=RUN), "recall")
    assert app.button(key="recall_set_ask").disabled
    for path, said in (("/nowhere/set.jsonl", "no file"), (str(tmp_path), "no BEIR folder")):
        app.text_input(key="recall_set_path").set_value(path).run()
        app.button(key="recall_set_ask").click().run()
        assert any(said in one.value for one in app.error)
    assert bank.judgements.standing() == []


def test_a_reason_is_kept_with_the_next_labels_of_a_step(visit: Visit, bank: Stored) -> None:
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    app.text_input(key=f"label_reason_{RUN}_20").set_value("another object")
    app.button(key="grade_0").click().run()
    app.button(key="grade_2").click().run()
    assert [label.reason for label in bank.judgements.standing(RUN, 20)] == ["another object"] * 2
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    app.session_state[f"label_at_{RUN}_20"] = 0
    assert "another object" in page_text(app.run())
    app = visit("recall", bank="demo", run=RUN, step="21", recall_view="Label")
    app.button(key="grade_1").click().run()
    assert [label.reason for label in bank.judgements.standing(RUN, 21)] == [""]


def test_undo_says_what_it_took_back_and_goes_to_its_step(visit: Visit, bank: Stored) -> None:
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    app.button(key="grade_2").click().run()
    (label,) = bank.judgements.standing(RUN, 20)
    app.button(key="label_step").click().run()
    app.button(key="label_undo").click().run()
    assert bank.judgements.standing(RUN) == [] and app.query_params["step"] in ("20", ["20"])
    assert any("in step 20" in one.value.replace("\\", "") for one in app.toast)
    assert any(f"#{int(label.memory_id.rpartition('-')[2])}" in one.value.replace("\\", "") for one in app.toast)


def test_only_what_was_in_memory_at_a_step_is_offered_as_missing(visit: Visit, bank: Stored) -> None:
    app = visit("recall", bank="demo", run=RUN, step="5", recall_view="Label")
    app.text_input(key="label_search").set_value("put").run()
    offered = {str(button.key).removeprefix("should_") for button in app.button if "should_" in str(button.key)}
    assert offered and all(bank.memory(one).step < 5 for one in offered)
    assert any("Not in memory at this step" in one.value for one in app.caption)


def test_a_text_that_was_edited_since_is_said_and_asked_anew(visit: Visit, bank: Stored) -> None:
    memory, *_ = bank.trace(RUN, 20).decision.selected
    rater = "ann"
    known_as(rater)
    bank.write.judgements.judge(Label(RUN, 20, memory, 2, rater))
    new = bank.write.editing.edit(RUN, memory, bank.memory(memory).intent, "Another text.", HashingEmbedder(), rater)
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    assert "1 label is of a memory that was changed since (1 edited)" in plain(app)
    at = f"label_at_{RUN}_20"
    app.session_state[at] = 999
    app.run()
    assert "label the new text" in plain(app) and "Another text." in page_text(app)
    app.button(key="grade_0").click().run()
    assert {one.memory_id: one.grade for one in bank.judgements.standing(RUN, 20)} == {memory: 2, new.id: 0}
    # The steps of then are measured by the labels of then: the new text could not come in them.
    app.button(key="label_undo").click().run()
    bank.write.judgements.judge(Label(RUN, 20, new.id, 3, rater))
    app = at_rest(visit("recall", bank="demo", run=RUN), "recall")
    assert "1 edited" in plain(app)
    assert "not stored" not in [str(option) for one in app.segmented_control for option in one.options]


def test_the_rule_and_the_source_of_labels_are_chosen_on_the_page(visit: Visit, bank: Stored) -> None:
    memory, *_ = bank.trace(RUN, 20).decision.selected
    for rater, grade in (("ann", 2), ("bo", 0)):
        bank.write.judgements.judge(Label(RUN, 20, memory, grade, rater))
    bank.write.judgements.judge(Label(RUN, 21, memory, 2, "set.jsonl", "import"))

    def steps(app: AppTest) -> str:
        return next(one.value for one in at_rest(app, "recall").markdown if "labelled step" in one.value)

    def hit(app: AppTest) -> list[int]:
        table = at_rest(app, "recall").dataframe[0].value
        return table[table["measure"] == "mrr"]["steps"].tolist()

    app = visit("recall", bank="demo", run=RUN)
    assert "2 labelled steps" in steps(app) and hit(app) == [1, 1]
    assert hit(app.segmented_control(key="recall_rule").set_value("any").run()) == [2, 2]
    app.segmented_control(key="recall_source").set_value("person").run()
    assert "1 labelled step**" in steps(app) and hit(app) == [1, 1]
    app = visit("recall", bank="demo", run=RUN, recall_rule="any", recall_source="import")
    assert "1 labelled step**" in steps(app) and hit(app) == [1, 1]
    at_rest(app.segmented_control(key="recall_source").set_value("judge").run(), "recall")
    assert any("this source" in one.value for one in app.info)


def test_each_part_of_the_funnel_opens_its_steps(visit: Visit, bank: Stored) -> None:
    given, other = bank.trace(RUN, 20).decision.selected[:2]
    bank.write.judgements.judge(Label(RUN, 20, given, 2, "ann"))
    bank.write.judgements.judge(Label(RUN, 20, other, 1, "ann"))
    app = at_rest(visit("recall", bank="demo", run=RUN), "recall")
    parts = app.segmented_control(key="recall_stage")
    assert any("in the prompt (2)" in str(option) for option in parts.options)
    parts.set_value("left: in the prompt").run()
    assert app.dataframe[-1].value["memory"].nunique() == 2
    # A bar that was clicked.
    app.session_state["recall_part"] = "labelled", False
    app.session_state["recall_stage"] = None
    app.run()
    assert app.session_state["recall_stage"] == "left: labelled" and len(app.dataframe[-1].value) == 2


def test_the_way_from_rewards_to_label_stays_in_the_link(visit: Visit, bank: Stored) -> None:
    memory = bank.trace(RUN, 20).decision.candidates[0].memory_id
    known_as("ann")
    for name in ("one", "two"):
        batch = Batch(run=RUN, name=name, kind="recall", parts={"ann": (20,)}, overlap=1, pools={20: (memory,)})
        bank.write.batches.make(batch, "ann")
    app = visit("rewards", bank="demo", run=RUN)
    # A step in two batches is one step.
    assert any("**1 step**" in one.value for one in app.markdown)
    app.button(key="to_recall_batch").click().run()
    assert app.query_params["recall_view"] in ("Label", ["Label"]) and app.query_params["step"] in ("20", ["20"])
    app = visit("recall", bank="demo", run=RUN, step="20", recall_view="Label")
    assert any("**0 of 1** steps" in one.value for one in app.markdown)
    app.button(key="grade_1").click().run()
    assert any("**1 of 1** steps" in one.value for one in app.markdown) and len(app.success) == 2


def test_the_card_says_where_a_memory_that_should_come_was_lost(visit: Visit, bank: Stored) -> None:
    trace = bank.trace(RUN, 20)
    looked = {one.memory_id for one in trace.decision.candidates}
    outside = next(m.id for m in bank.memories() if m.id not in looked and 0 < m.step < 20)
    app = visit("step", bank="demo", step="20")
    assert stands(app)["lost"] == {}
    by_hand(app, "label", memory=outside, grade=2)
    (fate,) = (
        fate for query in labelled(bank, RUN) for fate in query.fates if (query.step, fate.memory_id) == (20, outside)
    )
    said = stands(app)["lost"][outside]
    assert said.startswith("Lost below δ.") and f"similarity {fate.similarity:.3f}, rank {fate.rank}" in said.lower()
    by_hand(app, "label", memory=outside, grade=0)
    assert stands(app)["lost"] == {}


def test_the_card_says_that_a_labelled_text_was_edited_since(visit: Visit, bank: Stored) -> None:
    memory, *_ = bank.trace(RUN, 20).decision.selected
    bank.write.judgements.judge(Label(RUN, 20, memory, 2, "ann"))
    assert stands(visit("step", bank="demo", step="20"))["labels"][memory][0]["since"] == ""
    bank.write.editing.edit(RUN, memory, bank.memory(memory).intent, "Another text.", HashingEmbedder(), "ann")
    assert stands(visit("step", bank="demo", step="20"))["labels"][memory][0]["since"] == "edited since"
