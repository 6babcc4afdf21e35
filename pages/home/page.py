"""Home: what this is, and the three ways in."""

from pathlib import Path

import pandas as pd
import streamlit as st

from memrl_core.agent.preferences import DEMO, REAL_DEMO, demo_bank, load_preferences
from memrl_core.agent.recorder import ENVIRONMENT
from memrl_core.agent.runs import rerunner
from memrl_core.analysis.compare.counterfactual import first_reversal
from memrl_core.analysis.decision.outline import valid_answers
from memrl_core.analysis.run.following import follow_counts
from memrl_core.analysis.run.metrics import paired_interval
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_data_path
from memrl_core.lessons import cards
from memrl_core.lessons.lesson import load_shelf
from memrl_core.numerals import percent, signed
from pages.shared import place as places
from pages.shared.forms import open_bank_form, start_run_form
from pages.shared.header import header
from pages.shared.models import ollama_panel
from pages.shared.place import play
from pages.shared.text import failure_kept, literal, minute

HERE = Path(__file__).parent
PLAYGROUND = HERE.parent / "playground"
LESSONS = 3
LAST = 50  # Steps of a run whose answers are counted: enough to see how it goes, and soon read.

QWEN = "of its first 80 of 320 messages it got 37 right, of the last 80 it got 47"
SUCCESSES, OVER_SUCCESSES = "successes alone, k2 = 1", "MemRL over successes, k2 = 1"
ABOVE = "successes above a learned threshold, k2 = 1"
RACE = "λ = 0 against λ = ½ at a help desk, live, with a real language model that runs in this program."

_running = st.components.v2.component(
    "memrl_running",
    html='<canvas class="home-running" role="img" aria-label="The memory of the playground while it learns"></canvas>',
    css=".home-running { display: block; width: 100%; height: 300px; color: var(--st-text-color); "
    "font-family: var(--st-font, sans-serif); }",
    js="\n".join(
        path.read_text()
        for path in (*(PLAYGROUND / f"{name}.js" for name in ("core", "pictures", "averages")), HERE / "running.js")
    ),
    isolate_styles=False,
)


_card = st.components.v2.component(
    "memrl_card",
    html='<div class="home-card"></div>',
    css=".home-card { color: var(--st-text-color); } .home-card svg { display: block; width: 100%; height: auto; }",
    js="export default ({ data, parentElement }) => { parentElement.querySelector('.home-card').innerHTML = data; };",
    isolate_styles=False,
)
"""A picture of `cards.kept`: SVG of this program, which takes the colour of the text."""


@st.cache_data(max_entries=64, show_spinner=False)
def _answers(_bank: MemoryBank, uri: str, run: str, first: int, last: int) -> str:
    """Of the steps from `first` to `last`: how many of the answers that had to be on a list were, and how many follow a
    memory; "" where neither is known.
    """
    traces = _bank.traces(run, (first, last))
    valid, asked = map(sum, zip(*map(valid_answers, traces), strict=True))
    parts = [f"{percent(valid / asked, 0)} valid answers" if asked else "", follow_counts(traces).sentence]
    return "".join(f"{part} · " for part in parts if part)


@st.cache_data(max_entries=64, show_spinner=False)
def _unusable(_bank: MemoryBank, state: str, run: str) -> int:
    return _bank.steps.unusable_reports(run)


@st.cache_data(show_spinner=False)
def _real_model() -> str:
    """What a real language model gets right at the help desk by similarity and with utility, over all and successes."""
    rows = pd.read_parquet(sample_data_path() / "real-models.parquet").query("model == 'gguf:smollm2'")
    arms = [f"{name}, k2 = 1" for name in ("λ = 0", "MemRL")]
    last, first = rows["epoch"] > rows["epoch"].max() - 2, rows["epoch"] <= 2
    similar, learned = (_by_seed(rows[last], arm) for arm in arms)
    begun = [_by_seed(rows[first], arm) for arm in arms]
    messages = rows.groupby(["arm", "seed"])["tasks"].sum().max()
    return (
        f"SmolLM2 at the help desk, {len(learned)} seeds of {messages} new messages, one memory in the prompt: of the "
        f"last 80 it gets {percent(similar.mean(), 0)} right with the most similar memory and "
        f"{percent(learned.mean(), 0)} with MemRL, {_ahead(learned, similar)} points more; in the first 80 "
        f"it is {_ahead(begun[1], begun[0])}. Where failures are never recalled, it is "
        f"{percent(_by_seed(rows[last], SUCCESSES).mean(), 0)} with the most similar success, "
        f"{percent(_by_seed(rows[last], OVER_SUCCESSES).mean(), 0)} with MemRL over successes, and "
        f"{percent(_by_seed(rows[last], ABOVE).mean(), 0)} where q only excludes memories and similarity ranks them."
    )


def _ahead(one: pd.Series, other: pd.Series) -> str:
    """By how many points `one` is ahead of `other`, paired by seed, with its interval; in whole points."""
    ends = paired_interval(one.to_numpy(), other.to_numpy())
    mean, low, high = (signed(100 * float(value), 0) for value in ((one - other).mean(), *ends))
    return f"{mean} ({low}…{high})"


def _by_seed(rows: pd.DataFrame, arm: str) -> pd.Series:
    """The share right of an arm, by seed."""
    return rows[rows["arm"] == arm].groupby("seed")["accuracy"].mean()


def _play(name: str) -> None:
    with failure_kept():
        bank = places.opened(str(demo_bank(name)))
        recorded = bank.runs()[0]
        step, preferences = recorded.first_step, load_preferences()
        if name == DEMO:
            # The step that was solved by a memory which utility put before a more similar one.
            found = first_reversal(bank, lambda trace: rerunner(bank, trace, preferences))
            step = found.step if found is not None and found.run == recorded.id else step
        play(name, recorded.id, step)
        places.steps_next(bank=name, run=recorded.id, step=step)


def lessons_and_lab() -> None:
    """The first lessons, and the Lab."""
    shelf = load_shelf()
    lessons = shelf.lessons
    st.subheader("Learn how it works")
    *columns, last = st.columns(LESSONS + 1)
    for column, (key, lesson) in zip(columns, lessons.items(), strict=False):
        with column, st.container(border=True, height="stretch"):
            if picture := "" if key in shelf.own else cards.kept(key):
                _card(key=f"card_{key}", data=picture)
            st.markdown(f"**{literal(lesson.title)}**")
            st.caption(literal(lesson.predict.question))
            if st.button("Begin", icon=":material/school:", type="tertiary", key=f"home_{key}"):
                st.switch_page("pages/lessons/page.py", query_params={"lesson": key})
    with last, st.container(border=True, height="stretch"):
        _card(key="card_lab", data=cards.kept(cards.LAB))
        st.markdown("**Lab**")
        st.caption("Two agents side by side under two settings, and a world that shifts under them.")
        if st.button("Open the Lab", icon=":material/science:", type="tertiary", key="home_lab"):
            st.switch_page("pages/lab/page.py")


about, running = st.columns([2, 3], vertical_alignment="center")
with about:
    st.title("MemRL Inspector")
    st.markdown(
        "See **why** a memory-based agent recalled, reranked and used each memory — give the answer a reward, "
        "and watch the memory's utilities move."
    )
    with st.container(horizontal=True, key="home_ways"):
        if st.button("Open the playground", icon=":material/play_circle:", type="primary", key="open_playground"):
            st.switch_page("pages/playground/page.py")
        if st.button("Race two agents", icon=":material/flag:", key="open_race", help=RACE):
            st.switch_page("pages/race/page.py")
    st.caption(
        "The picture: a frozen model gets memories (blue lines) for each task, and each reward moves their q. In the "
        "playground you change the settings and the world."
    )
with running:
    _running(key="running")

place = places.current(stop=False)
if place is not None:
    header(place)

demo, start, openings = st.columns(3, border=True)
with demo:
    st.markdown("#### See a recorded agent")
    st.markdown(
        "The demo's model is simulated, and its run was chosen for a *reversal*: utility overrules similarity, and "
        "without that the task fails. The help desk is one run of a real language model, Qwen2.5-Coder 0.5B with one "
        f"memory in the prompt, as it came: {QWEN}. One run is an anecdote."
    )
    st.button(
        "Play the demo",
        icon=":material/play_arrow:",
        width="stretch",
        key="play_demo",
        on_click=_play,
        args=(DEMO,),
    )
    st.button(
        "Play Qwen 0.5B at the help desk",
        icon=":material/smart_toy:",
        width="stretch",
        key="play_demo_qwen",
        on_click=_play,
        args=(REAL_DEMO,),
    )
    st.caption(literal(_real_model()))
with start:
    st.markdown("#### Step an agent yourself")
    st.markdown(
        "Household, help desk, SQL, science or your own tasks, with a language model of Ollama, one that runs in this "
        "program, or the simulated one."
    )
    with st.popover("Start a live run", icon=":material/add:", width="stretch"):
        start_run_form(place)
    _card(key="card_start", data=cards.kept("06-how-many"))
    st.caption("One step: the memories that phase A recalls, by their score. The best go to the model.")
with openings:
    st.markdown("#### Look at a bank")
    st.markdown(
        "A bank that `memrl run` or another session left on this machine, or one in any folder, or elsewhere by its "
        "TOML file; or what mem0, LangGraph, Letta and others have stored."
    )
    with st.popover("Open a bank", icon=":material/folder_open:", width="stretch"):
        open_bank_form()
    if st.button(
        "Open the memories of another program", icon=":material/move_to_inbox:", width="stretch", key="foreign"
    ):
        st.session_state["bank_view"] = "Import and export"
        st.switch_page("pages/bank/page.py")
    _card(key="card_bank", data=cards.kept("07-never-tried"))
    st.caption("One bank: how often each of its memories was used, the most used first.")

lessons_and_lab()

if place is not None:
    st.subheader("Recent runs")
    runs = list(reversed(place.bank.runs()))
    if not runs:
        st.info("This bank has no run yet. Start one above: its first memory will be the first point on the map.")
    for info in runs[:8]:
        rows = place.bank.steps.rows(info.id)
        answers = ""
        if rows and not info.simulated:
            answers = _answers(place.bank, place.bank.uri, info.id, rows[-LAST:][0].step, rows[-1].step)
        with st.container(horizontal=True, vertical_alignment="center", key=f"run_{info.id}"):
            if st.button(literal(info.id), icon=":material/arrow_forward:", key=f"open_{info.id}", width=260):
                places.go_to_steps(bank=place.bank_name, run=info.id)
            if info.environment == ENVIRONMENT and (count := _unusable(place.bank, place.bank.state, info.id)):
                answers += f"{count:,} with reports that could not be used · "
            st.markdown(
                f"{len(rows)} steps · {answers}{literal(info.environment)} · "
                f"{'simulated model' if info.simulated else literal(info.model)} · seed {info.seed} · "
                f"{literal(minute(info.created))}"
            )

st.subheader("What the five words mean")
words = (
    ("Memory", "An intent, the experience it left, and a utility q, learned from rewards."),
    ("Phase A", "Recalls the k1 memories whose intents are most similar, if they pass the gate δ."),
    ("Phase B", "Scores them by (1 − λ) · z(similarity) + λ · z(q) and gives the best k2 to the model."),
    ("Reward", "Every memory in the prompt moves: q ← q + α (R − q). Nothing else does."),
    ("Write", "The episode becomes a new memory: a script if it worked, a caution if it did not."),
)
for column, (word, meaning) in zip(st.columns(len(words)), words, strict=True):
    with column:
        st.markdown(f"**{word}**")
        st.caption(meaning)

ollama_panel()
