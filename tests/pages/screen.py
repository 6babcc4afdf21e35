"""What the tests of pages share: a page read and worked as a person does, and the bank behind it in another handle."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import banks_folder, load_preferences, save_preferences
from memrl_core.agent.runs import start_run
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.embedders.base import Embedder
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import BankFull
from memrl_core.records import EventKind, LedgerEvent, Phase, StepTrace

Visit = Callable[..., AppTest]
RUN = "household"
KINDS = ("markdown", "caption", "info", "warning", "error", "success", "text", "code", "title", "subheader", "toast")


class Stored:
    """A bank that takes in what the app has written before each look."""

    def __init__(self, bank: MemoryBank) -> None:
        self._bank = bank

    def __getattr__(self, name: str) -> Any:
        self._bank.refresh()
        return getattr(self._bank, name)


@dataclass
class Download:
    """What a download button offers, made when it is asked for."""

    data: Any
    file_name: str

    @property
    def text(self) -> str:
        made = self.data() if callable(self.data) else self.data
        return made if isinstance(made, str) else bytes(made).decode("utf-8-sig")

    @property
    def rows(self) -> list[dict[str, str]]:
        """The lines of a CSV file."""
        return list(csv.DictReader(io.StringIO(self.text)))


def full(*_: object, **__: object) -> None:
    """In place of what would write to a disk that is full."""
    raise BankFull("The disk is full.")


def a_bank(
    name: str = "mine",
    environment: str = "household",
    model: str = "simulated",
    runs: bool = True,
    embedder: Embedder | None = None,
) -> str:
    embedder = embedder or HashingEmbedder()
    path = banks_folder() / name
    with MemoryBank.create(str(path), embedder.name, embedder.dimension, embedder.digest) as bank:
        if runs:
            tasks = "household-train" if environment == "household" else ""
            # As when it began with a model whose server has told nothing of it, and may be gone.
            start_run(bank, environment=environment, tasks=tasks, model=model, model_facts={}, run="r")
    return name


# --- the page ---------------------------------------------------------------------------------------------------------


def page_text(app: AppTest) -> str:
    """All words on the page."""
    labels = [box.label for box in app.get("expander")] + [box.proto.popover.label for box in app.get("popover")]
    return "\n".join([str(element.value) for kind in KINDS for element in app.get(kind)] + labels)


def plain(app: AppTest) -> str:
    """All words on the page, without the marks that keep them from being read as Markdown."""
    return page_text(app).replace("\\", "")


def shown(app: AppTest) -> AppTest:
    """The page, unless it shows an error."""
    assert not [error.value for error in app.error]
    return app


def at_rest(app: AppTest, key: str) -> AppTest:
    """The page once the work of this key is over, where there is any."""
    if f"work_{key}" not in app.session_state:
        return app
    assert app.session_state[f"work_{key}"][1].wait(120)
    return app.run()


def opened(app: AppTest, phase: Phase) -> AppTest:
    """The page Step with what there is to read of a phase open."""
    app.session_state["drawer"] = list(Phase).index(phase) + 1
    return app.run()


def key_starting(app: AppTest, start: str):
    """The button whose key starts so."""
    (found,) = [button for button in app.button if (button.key or "").startswith(start)]
    return found


def picker(app: AppTest, label: str):
    """The field of the header that chooses another bank or run."""
    (found,) = [field for field in app.selectbox if field.label == label]
    return found


def press(app: AppTest, digit: str) -> AppTest:
    """Rate what is shown with a digit."""
    return key_starting(app, f"rate_{digit}_").click().run()


def on_stage(app: AppTest) -> dict[str, Any]:
    """What the stage on Step was sent last."""
    (sent,) = [one.proto.json for one in app.get("bidi_component") if one.proto.component_name == "memrl_stage"]
    found: dict[str, Any] = json.loads(sent)
    return found


def stands(app: AppTest) -> dict[str, Any]:
    """What the hand on the stage says of the step that is shown."""
    sent = on_stage(app)
    found: dict[str, Any] = sent["hand"]["steps"][str(sent["at"])]
    return found


def by_hand(app: AppTest, do: str = "rate", **act: Any) -> AppTest:
    """What the stage reports when a person acts on the step that is shown, by key or by mouse."""
    sent = on_stage(app)
    about = {"run": sent["run"]["id"], "step": sent["at"], "id": stands(app)["id"]}
    app.session_state["hand_acts"] = [{"n": 1, "do": do, **about, **act}]
    return app.run()


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


# --- the bank behind it -----------------------------------------------------------------------------------------------


def known_as(name: str) -> None:
    """The name that this machine remembers for its person."""
    save_preferences(load_preferences().model_copy(update={"rater": name}))


def give(bank: MemoryBank, step: int, value: float, rater: str, reason: str = "") -> None:
    """A reward that somebody gives elsewhere."""
    bank.write.ratings.rate(Rating(RUN, step, value, rater, reason))


def by_people(bank: MemoryBank) -> list[LedgerEvent]:
    """All that people did, oldest first."""
    return [event for event in bank.events() if event.source == "person"]


def rewards(bank: MemoryBank) -> list[tuple[int, float | None]]:
    """The rewards that people gave, undone or not, as (step, R)."""
    return [(event.step, event.value) for event in by_people(bank) if event.kind is EventKind.REWARD_GIVEN]


def standing(bank: MemoryBank, step: int) -> dict[str, float | None]:
    """Each person's reward that stands for a step."""
    return {event.rater: event.value for event in bank.ratings.of(RUN, step) if event.source == "person"}


def beliefs(bank: MemoryBank) -> dict[str, float]:
    """q of every memory."""
    return {memory_id: utility.q for memory_id, utility in bank.utilities(RUN).items()}


def step_id(bank: MemoryBank, step: int) -> str:
    return next(row.id for row in bank.steps.rows(RUN) if row.step == step)


def step_judged(bank: MemoryBank, reward: float, after: int = 0, remembering: str = "") -> StepTrace:
    """The first step later than `after` that the environment gave `reward`, with memories in its prompt.

    With `remembering`, a memory's id, that memory is among them.
    """
    for row in bank.steps.rows(RUN):
        if row.step <= after:
            continue
        credited = bank.credits.of(RUN, row.step)
        trace = bank.trace(RUN, row.step)
        judged = trace.reward is not None and trace.reward.environment == reward
        if judged and credited and (not remembering or remembering in credited):
            return trace
    raise LookupError(f"The demo bank has no step with memories that the environment gave {reward}.")
