"""Methods side by side on the page Compare: a form that a link fills in, a run with progress, and what came out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_methods_page import words

Visit = Callable[..., AppTest]


def ended(app: AppTest) -> AppTest:
    """The page once the work in the background is over."""
    app.session_state["work_arms"][1].wait(120)
    app.run()
    assert not app.error
    return app


def small(visit: Visit, **link: Any) -> AppTest:
    return visit(
        "compare",
        **{
            "arms": ["No memory", "RAG", "MemRL"],
            "compare": "Methods side by side",
            "count": "4",
            "seeds": "2",
            "epochs": "2",
            **link,
        },
    )


def test_a_link_fills_the_form_and_nothing_runs_before_start(visit: Visit) -> None:
    app = small(visit, k2="2", tasks="household-heldout")
    assert app.multiselect(key="arms").value == ["none", "rag", "memrl"]
    values = [app.number_input(key=name).value for name in ("count", "seeds", "epochs", "k2")]
    assert values == [4, 2, 2, 2]
    assert app.selectbox(key="tasks").value == "household-heldout"
    assert "48 steps" in words(app)
    assert "work_arms" not in app.session_state


def test_a_link_that_makes_no_sense_is_passed_over(visit: Visit) -> None:
    app = visit(
        "compare",
        compare="Methods side by side",
        arms="nope",
        count="-3",
        seeds="9999999999",
        tasks="x",
    )
    assert app.multiselect(key="arms").value == ["none", "rag", "memp", "memrl"]


@pytest.mark.slow
def test_own_banks_show_csr_beside_luck_gain_forgetting_cost_and_every_number(visit: Visit) -> None:
    app = small(visit)
    app = ended(app.button(key="arms_start").click().run())
    reported = words(app)
    assert "no ranking" in reported
    (table,) = [frame for frame in app.dataframe if "over no memory" in frame.value.columns]
    assert list(table.value["arm"]) == ["No memory", "RAG", "MemRL"]
    assert set(table.value["rules of"]) == {"paper"}
    assert table.value["CSR"].str.contains("%").all() and table.value["forgetting B"].notna().all()
    assert "paired" in reported


def test_an_adapted_arm_carries_its_deviations(visit: Visit) -> None:
    app = small(visit, arms=["No memory", "ExpRAG"], seeds="1", epochs="1")
    app = ended(app.button(key="arms_start").click().run())
    assert "ExpRAG · adapted" in words(app)
    assert any("adapted arms (1)" in box.label for box in app.expander)
