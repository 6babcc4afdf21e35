"""Whose role does not cover a change finds its button disabled, with the reason, on every screen."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import banks_folder
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import COVERS, NEWCOMERS, Role
from memrl_core.experiments.lab import BANK
from tests.pages.screen import RUN, Stored, Visit, by_hand, click, on_stage, plain, stands

pytestmark = pytest.mark.usefixtures("ann")

SCREENS = {
    "step": ({}, {"step": Role.MANAGE, "finish": Role.MANAGE, "run_many": Role.MANAGE}),
    "decision": ({"step": "21"}, {"rewind": Role.MANAGE, "Pin": Role.RATE}),
    "bank": ({"memory": f"{RUN}-0007"}, {"change_memory": Role.MANAGE}),
}
"""The buttons, by key or label, of a screen that is opened by a link, with the role that each is for."""


def assign(bank: MemoryBank | Stored, role: Role, name: str = "ann") -> None:
    bank.write.people.assign("boss", Role.MANAGE, "boss")
    bank.write.people.assign(name, role, "boss")


def button(app: AppTest, name: str):
    return next(one for one in app.button if name in (one.key, one.label))


def is_open(one, role: Role) -> bool:
    """Whether a button can be pressed; one that cannot says that the role does not cover what `role` is for."""
    assert one.disabled is (COVERS[role] in (one.help or ""))
    return not one.disabled


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("has", Role)
def test_each_button_is_open_to_those_who_may(bank: Stored, visit: Visit, screen: str, has: Role) -> None:
    assign(bank, has)
    link, buttons = SCREENS[screen]
    app = visit(screen, bank="demo", **link)
    order = list(Role)
    for name, role in buttons.items():
        assert is_open(button(app, name), role) is (order.index(has) >= order.index(role))


def test_who_only_looks_rates_nothing_on_step(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo", step="21")
    assert on_stage(app)["hand"]["off"] == ""
    assign(bank, Role.LOOK)
    # Also by a key that was pressed before the page knew.
    by_hand(app, key=1)
    assert "may look" in on_stage(app)["hand"]["done"]["error"] and stands(app)["mine"] is None
    assert COVERS[Role.RATE] in on_stage(app)["hand"]["off"]


def test_what_is_no_longer_covered_between_drawing_and_click_is_refused(bank: Stored, visit: Visit) -> None:
    app = visit("step", bank="demo")
    assign(bank, Role.LOOK)
    assert "ann may look" in plain(click(app, "step"))


def test_forms_that_change_a_bank_ask_for_the_role_in_it(bank: Stored, visit: Visit) -> None:
    assign(bank, Role.LOOK)
    app = visit("bank", bank="demo")
    app.segmented_control(key="bank_view").set_value("Settings").run()
    assert not is_open(button(app, "Save for the next steps"), Role.MANAGE)
    app.segmented_control(key="bank_view").set_value("Banks of this machine").run()
    assert not is_open(button(app, "reset_demo"), Role.MANAGE)
    app.segmented_control(key="bank_view").set_value("Import and export").run()
    app.text_input(key="import_path").set_value("/tmp/any.zip").run()
    assert is_open(button(app, "import"), Role.MANAGE)
    app.text_input(key="import_target").set_value("demo").run()
    assert not is_open(button(app, "import"), Role.MANAGE)
    app = visit("home", bank="demo")
    assert is_open(button(app, "start_run"), Role.MANAGE)
    app.text_input(key="new_run_bank").set_value("demo").run()
    assert not is_open(button(app, "start_run"), Role.MANAGE)


def test_the_lab_moves_no_pair_for_who_only_looks(bank: Stored, visit: Visit) -> None:
    app = visit("lab")
    click(app, "lab_pause")
    with MemoryBank.open(str(banks_folder() / BANK)) as lab:
        assign(lab, Role.LOOK, NEWCOMERS)
        before = len(lab.events())
        assert "ann may look" in plain(click(app, "lab_step"))
        lab.refresh()
        assert len(lab.events()) == before
        names = ("lab_play", "lab_step", "lab_epoch", "lab_shift")
        assert [name for name in names if is_open(button(app, name), Role.MANAGE)] == []
