"""The page Methods: every method has its card, all stand side by side, and each answers for a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

from memrl_core.policies import POLICIES, policy_class
from pages.shared.text import literal
from tests.pages.test_pages import a_bank

Visit = Callable[..., AppTest]


def shown(app: AppTest) -> AppTest:
    """The page, unless it shows an error."""
    assert not [error.value for error in app.error]
    return app


def words(app: AppTest) -> str:
    elements = (*app.markdown, *app.caption, *app.info, *app.warning, *app.subheader)
    return "\n".join(str(element.value) for element in elements)


def test_every_method_has_a_card_with_what_it_is_and_cannot(visit: Visit) -> None:
    reported = words(shown(visit("methods")))
    for name in POLICIES:
        spec = policy_class(name).spec
        assert f"**{literal(spec.title)}**" in reported
        assert literal(name) in reported
    assert reported.count("**What it cannot do.**") == len(POLICIES)


def test_the_cards_can_be_narrowed_by_what_a_method_learns_from(visit: Visit) -> None:
    app = shown(visit("methods"))
    app = shown(app.button_group(key="methods_feedback").set_value(["nothing"]).run())
    reported = words(app)
    assert "**RAG**" in reported and "**MemRL**" not in reported
    app = shown(app.text_input(key="methods_find").set_value("no such word anywhere").run())
    assert "No method" in words(app)


def test_a_link_asks_all_methods_about_a_step(visit: Visit) -> None:
    app = shown(visit("methods", show="On this pool", step="12"))
    while app.session_state["work_on_this_pool"][1].busy:
        app = shown(app.run())
    app = shown(app.run())
    assert any(element.value.startswith("**Step 12**") for element in app.markdown)
    assert f"{len(POLICIES)} methods" in words(app)
    app = shown(app.selectbox(key="methods_one").set_value("none").run())
    assert "(nothing)" in "\n".join(element.value for element in app.code)


def test_a_bank_without_a_step_says_what_to_do(visit: Visit, home: Path) -> None:
    assert "no finished step" in words(shown(visit("methods", show="On this pool", bank=a_bank())))
