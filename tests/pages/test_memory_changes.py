"""Bank, one memory: reworded, merged, pinned, forgotten, restored and taken back, by those who may."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.bank.people.roles import Role
from memrl_core.records import EventKind
from tests.pages.screen import RUN, Stored, Visit, by_people, click, plain

ONE, TWO = f"{RUN}-0007", f"{RUN}-0008"


pytestmark = pytest.mark.usefixtures("ann")


def memory(visit: Visit, memory_id: str = ONE) -> AppTest:
    return visit("bank", bank="demo", memory=memory_id)


def dialog(app: AppTest, **fields: Any) -> AppTest:
    """Open the dialog, or keep it open, and fill it in: the harness closes it at every run."""
    if not [button for button in app.button if button.key == "change_go"]:
        click(app, "change_memory")
    for key, value in fields.items():
        if key == "change_what":
            app.segmented_control(key=key).set_value(value)
        elif key == "change_others":
            app.multiselect(key=key).set_value(value)
        elif "experience" in key:
            app.text_area(key=key).set_value(value)
        else:
            app.text_input(key=key).set_value(value)
    app.button(key="change_memory").click()
    return app


def change(app: AppTest, **fields: Any) -> AppTest:
    dialog(app, **fields).button(key="change_go").click()
    return app.run()


def seen(bank: Stored) -> set[str]:
    return set(bank.utilities(RUN))


def what_became(app: AppTest) -> list[str]:
    return [box.label for box in app.expander if box.label.startswith("What became of it")]


def test_a_new_wording_takes_the_place_of_a_memory_with_its_q_and_is_taken_back(bank: Stored, visit: Visit) -> None:
    q = bank.utilities(RUN)[ONE]
    app = change(memory(visit), change_experience="do it <b>better</b>", change_reason="**clearer**")
    assert app.query_params["memory"] == f"{ONE}.2" and what_became(app) == ["What became of it · 2"]
    assert "#7.2: **clearer**" in plain(app)
    assert bank.utilities(RUN)[f"{ONE}.2"] == q and ONE in bank.editing.away(RUN)
    assert bank.memory(f"{ONE}.2").experience == "do it <b>better</b>"
    click(app, "undo_change")
    assert app.query_params["memory"] == ONE and ONE in seen(bank) and f"{ONE}.2" not in seen(bank)


def test_two_memories_are_merged_into_one(bank: Stored, visit: Visit) -> None:
    app = dialog(memory(visit), change_what="Merge").run()
    dialog(app, change_others=[TWO]).run()
    assert "\n" in app.text_area(key="merge_experience_1").value
    change(app)
    assert len(seen(bank)) == 39 and not {ONE, TWO} & seen(bank)
    assert bank.memory(app.query_params["memory"]).parents == (ONE, TWO)
    click(app, "undo_change")
    assert len(seen(bank)) == 40 and {ONE, TWO} <= seen(bank)


@pytest.mark.slow
def test_a_pinned_memory_is_not_forgotten_until_it_is_unpinned(bank: Stored, visit: Visit) -> None:
    app = change(dialog(memory(visit), change_what="Pin").run())
    assert "pinned]" in plain(app)
    dialog(app, change_what="Forget").run()
    assert "unpin it first" in plain(change(app))
    assert ONE in seen(bank)
    dialog(app, change_what="Pin").run()
    assert app.button(key="change_go").label == "Unpin"
    change(app)
    assert [event.kind for event in by_people(bank)] == [EventKind.MEMORY_PINNED, EventKind.MEMORY_UNPINNED]


def test_a_forgotten_memory_is_listed_and_restored(bank: Stored, visit: Visit) -> None:
    app = change(dialog(memory(visit), change_what="Forget").run(), change_reason="wrong")
    assert ONE not in seen(bank) and "no longer sees" in plain(app)
    assert "1 that the run no longer sees" in [box.label for box in app.expander]
    click(app, "restore_memory")
    assert ONE in seen(bank) and what_became(app) == ["What became of it · 3"]
    click(app, "undo_change")
    assert ONE not in seen(bank)
    click(app, "undo_change")
    assert ONE in seen(bank)


def test_who_may_not_manage_changes_no_memory(bank: Stored, visit: Visit) -> None:
    bank.write.people.assign("boss", Role.MANAGE, "boss")
    bank.write.people.assign("ann", Role.RATE, "boss")
    bank.write.editing.forget(RUN, [TWO], "boss")
    assert memory(visit).button(key="change_memory").disabled
    assert memory(visit, TWO).button(key="restore_memory").disabled
