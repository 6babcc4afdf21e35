"""When utility helps: the study's conditions as a picture, and the runs behind each."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from memrl_core.agent.preferences import banks_folder
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import MemRLError
from memrl_core.experiments.cells import RUN, cells_of, run_cell
from memrl_core.experiments.epochs import by_seed, conditions
from memrl_core.experiments.plan import Plan, read_plan
from memrl_core.figures.compare.comparison import phase_diagram
from memrl_core.figures.palette import plain
from pages.shared import place as places
from pages.shared.picture import chosen_row, table_twin
from pages.shared.text import literal

STUDY = "when-utility-helps"
ARM, REFERENCE = "MemRL", "similarity"


def when_utility_helps() -> None:
    """The difference to similarity under every condition; a click shows its seeds, another runs one of them again."""
    plan, found, rows = read()
    repeat = st.segmented_control(
        "Tasks", sorted(found["repeat"].unique()), default=0.0, required=True, key="study_repeat",
        format_func={0.0: "never return", 1.0: "return after the first epoch"}.__getitem__,
    )  # fmt: skip
    part = found[found["repeat"] == repeat]
    picture = phase_diagram(part, "spread", "epoch", "noise", ARM, REFERENCE)
    st.markdown(f"**{literal(picture.title)}**")
    event = st.plotly_chart(
        picture.figure, key="study_picture", on_select="rerun", selection_mode="points", alt=picture.alt
    )
    st.caption(
        "Percentage points of the true chance of what was answered, paired by seed; bold where the 95 % interval "
        "leaves out 0. Spread: of the reliability of equally similar memories. Noise: how often a reward is false. An "
        "epoch is eight visits to each of four families. Theory and all numbers: docs, Results. Click on a cell for "
        "its runs."
    )
    table_twin(picture, "study_picture")
    points = event.selection.points
    if points:
        named = {(plain(row["stream"]), str(row["epoch"])): row for row in part.to_dict("records")}
        row = named.get((str(points[0]["customdata"][0]), str(points[0]["y"])))
        if row is not None:
            _runs_behind(plan, rows[(rows["stream"] == row["stream"]) & (rows["epoch"] == row["epoch"])], row)


def _runs_behind(plan: Plan, rows: pd.DataFrame, row: dict[str, object]) -> None:
    st.markdown(f"**{literal(str(row['stream']))} · epoch {row['epoch']}: the seeds behind it**")
    named = {"reference": REFERENCE, "success": ARM}
    shown = rows.sort_values("seed")[["seed", *named, "difference"]].rename(columns=named)
    alt = "What both arms reached under each seed"
    picked = chosen_row(shown, "study_seeds", alt, shares=(REFERENCE, ARM), signs=("difference",))
    if picked is None:
        st.caption("Choose a seed to run it again here: the same tasks, luck and choices, as a bank to look at.")
        return
    seed = int(shown.iloc[picked]["seed"])
    with st.container(horizontal=True):
        for arm in (ARM, REFERENCE):
            st.button(
                f"Run seed {seed} again · {arm}", icon=":material/replay:", key=f"study_{arm}",
                on_click=partial(_again, plan, str(row["stream"]), arm, seed),
            )  # fmt: skip


def _again(plan: Plan, stream: str, arm: str, seed: int) -> None:
    """Run one cell of the study again, and open it on Step."""
    try:
        name = run_again(plan, stream, arm, seed)
    except MemRLError as error:
        st.toast(literal(str(error)), icon=":material/error:", duration="long")
        return
    places.steps_next(bank=name, run=RUN)


def run_again(plan: Plan, stream: str, arm: str, seed: int) -> str:
    """Run one cell of the study into a bank of its own; the bank's name."""
    (cell,) = (c for c in cells_of(plan) if (c.stream.name, c.arm.name, c.seed) == (stream, arm, seed))
    name = f"study-{cell.name}"
    run_cell(cell, str(banks_folder() / name))
    return name


@st.cache_data(max_entries=1, show_spinner="Reading the study …")
def read() -> tuple[Plan, pd.DataFrame, pd.DataFrame]:
    """The plan, its conditions, and a row per seed of each."""
    plan = read_plan(sample_data_path() / "experiments" / f"{STUDY}.toml")
    epochs = pd.read_parquet(sample_data_path() / f"{STUDY}.parquet")
    return plan, conditions(plan, epochs), by_seed(plan, epochs)
