"""The page Steps: a filter is kept in the link, and what passes it is named, shown and taken away."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from streamlit.testing.v1 import AppTest

from memrl_core import Recorder
from memrl_core.agent.preferences import banks_folder
from memrl_core.bank import MemoryBank
from tests.builders import numbers
from tests.pages.screen import Download, Stored, Visit


def reported(app: AppTest) -> list[str]:
    """How many of how many steps are shown."""
    return next(numbers(text.value) for text in app.markdown if " of " in text.value and "steps" in text.value)


def test_a_link_with_a_filter_shows_its_steps_until_it_is_cleared(visit: Visit, bank: Stored) -> None:
    failed = {row.step for row in bank.steps.rows("household") if row.outcome == "failure"}
    app = visit("steps", bank="demo", run="household", outcome="failure", by="nonsense")
    assert reported(app) == [str(len(failed)), "40"]
    assert set(app.dataframe[0].value["step"]) == failed
    app.selectbox(key="empty").set_value("empty pool").run()
    empty = [row for row in bank.steps.found("household", sorted(failed)) if not row.pool]
    assert reported(app) == [str(len(empty)), "40"]
    app.text_input(key="window").set_value("3-12").run()
    assert reported(app) == [str(sum(3 <= row.step <= 12 for row in empty)), "40"]
    app.button(key="steps_clear").click().run()
    assert reported(app) == ["40", "40"]


def test_the_file_of_steps_says_what_the_table_says_of_how_far_memories_came(
    visit: Visit, bank: Stored, downloads: dict[str, Download]
) -> None:
    app = visit("steps", bank="demo", run="household")
    shown = app.dataframe[0].value.set_index("step")
    rows = {int(row["step"]): row for row in downloads["steps_csv"].rows}
    assert set(rows) == set(shown.index) and (shown["used"] < shown["selected"]).any()
    for name in ("surfaced", "selected", "used", "helpful"):
        assert {step: row[name] for step, row in rows.items()} == {
            step: "" if pd.isna(value) else str(int(value)) for step, value in shown[name].items()
        }


def test_what_no_step_passes_says_so_and_leaves_a_way_back(visit: Visit, demo: Path) -> None:
    app = visit("steps", bank="demo", run="household", pooled="#4711")
    assert reported(app) == ["0", "40"]
    assert app.info
    assert app.button(key="steps_clear")
    assert app.get("download_button")[0].proto.disabled


def test_steps_are_filtered_by_what_is_known_of_the_memories_in_their_pool(visit: Visit) -> None:
    with MemoryBank.create(str(banks_folder() / "users"), "two", 2) as bank:
        recorder = Recorder(bank, "r")
        for user in (7, 8):
            about = {"user": user, "tags": ["kitchen"]}
            recorder.remember("egg", f"as {user} likes it", [1.0, 0.0], memory_id=f"m{user}", metadata=about)
        for hits in (["m7"], ["m8"], ["m7", "m8"], []):
            with recorder.step("egg", embedding=[1.0, 0.0]) as s:
                s.recalled(hits)
    app = visit("steps", bank="users", run="r", about="user: 7")
    assert reported(app) == ["2", "4"] and set(app.dataframe[0].value["step"]) == {1, 3}
    app.multiselect(key="about").set_value(["user: 8", "tags: kitchen"]).run()
    assert set(app.dataframe[0].value["step"]) == {2, 3}
    app.button(key="steps_clear").click().run()
    assert reported(app) == ["4", "4"]
    assert not visit("steps", bank="demo", run="household").multiselect, "of what nobody knows nothing is asked"


def test_metadata_is_offered_of_memories_that_are_still_there(visit: Visit) -> None:
    with MemoryBank.create(str(banks_folder() / "users"), "two", 2) as bank:
        recorder = Recorder(bank, "r")
        for user in (7, 8):
            recorder.remember("egg", f"as {user} likes it", [1.0, 0.0], memory_id=f"m{user}", metadata={"user": user})
        with recorder.step("egg", embedding=[1.0, 0.0]) as s:
            s.recalled(["m7"])
            s.wrote(memory_id="m8", op="delete")
    app = visit("bank", bank="users", run="r")
    assert app.multiselect(key="memory_about").options == ["user: 7"]
