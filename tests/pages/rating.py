"""What the tests of rewards share: a bank's facts read by another handle, and the queue as a person works it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from streamlit.testing.v1 import AppTest

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.records import EventKind, LedgerEvent, StepTrace
from tests.pages.test_decision_page import plain

RUN = "household"


def known_as(name: str) -> None:
    """The name that this machine remembers for its person."""
    workspace.save_preferences(workspace.load_preferences().model_copy(update={"rater": name}))


def give(demo: Path, step: int, value: float, rater: str, reason: str = "") -> None:
    """A reward that somebody gives elsewhere."""
    with MemoryBank.open(str(demo)) as bank:
        bank.ratings.rate(Rating(RUN, step, value, rater, reason))


def by_people(demo: Path) -> list[LedgerEvent]:
    """All that people did, oldest first."""
    with MemoryBank.open(str(demo)) as bank:
        return [event for event in bank.events() if event.source == "person"]


def rewards(demo: Path) -> list[tuple[int, float | None]]:
    """The rewards that people gave, undone or not, as (step, R)."""
    return [(event.step, event.value) for event in by_people(demo) if event.kind is EventKind.REWARD_GIVEN]


def standing(demo: Path, step: int) -> dict[str, float | None]:
    """Each person's reward that stands for a step."""
    with MemoryBank.open(str(demo)) as bank:
        return {event.rater: event.value for event in bank.ratings.of(RUN, step) if event.source == "person"}


def beliefs(demo: Path) -> dict[str, float]:
    """q of every memory."""
    with MemoryBank.open(str(demo)) as bank:
        return {memory_id: utility.q for memory_id, utility in bank.utilities(RUN).items()}


def step_id(demo: Path, step: int) -> str:
    with MemoryBank.open(str(demo)) as bank:
        return next(row.id for row in bank.step_rows(RUN) if row.step == step)


def step_judged(demo: Path, reward: float, after: int = 0, remembering: str = "") -> StepTrace:
    """The first step later than `after` that the environment gave `reward`, with memories in its prompt.

    With `remembering`, a memory's id, that memory is among them.
    """
    with MemoryBank.open(str(demo)) as bank:
        for row in bank.step_rows(RUN):
            if row.step <= after:
                continue
            credited = bank.credited(RUN, row.step)
            trace = bank.trace(RUN, row.step)
            judged = trace.reward is not None and trace.reward.environment == reward
            if judged and credited and (not remembering or remembering in credited):
                return trace
    raise LookupError(f"The demo bank has no step with memories that the environment gave {reward}.")


def key_starting(app: AppTest, start: str):
    """The button whose key starts so."""
    (found,) = [button for button in app.button if (button.key or "").startswith(start)]
    return found


def press(app: AppTest, digit: str) -> AppTest:
    """Rate what is shown with a digit."""
    return key_starting(app, f"rate_{digit}_").click().run()


def click(app: AppTest, key: str) -> AppTest:
    return app.button(key=key).click().run()


def submit(app: AppTest, label: str) -> AppTest:
    """Send the form whose button says so."""
    return next(button for button in app.button if button.label == label).click().run()


def at(app: AppTest) -> int:
    """The step that the queue shows."""
    return int(app.query_params["step"])


def far(app: AppTest) -> str:
    """How far the person is, with what stands in its help."""
    (said,) = [one for one in app.markdown if one.value.endswith("** rated")]
    return " · ".join(part for part in (said.value, said.help) if part)


def table(app: AppTest, column: str) -> pd.DataFrame:
    """The table that has such a column."""
    (found,) = [frame.value for frame in app.dataframe if column in frame.value]
    return found


def everything(app: AppTest) -> str:
    """All that can be read on the page: words, tables, fields, buttons and their help."""
    widgets = [*app.button, *app.selectbox, *app.text_input, *app.number_input, *app.checkbox]
    labels = [f"{widget.label} {getattr(widget, 'help', '')}" for widget in widgets]
    metrics = [f"{metric.label} {metric.value}" for metric in app.metric]
    bars = [bar.text for bar in app.get("progress")]
    frames = [frame.value.to_csv() for frame in app.dataframe]
    return "\n".join([plain(app), *labels, *metrics, *bars, *frames])
