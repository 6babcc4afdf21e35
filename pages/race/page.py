"""Race: two agents answer the same messages of a help desk with the same model, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from memrl_core.agent.preferences import banks_folder, load_preferences
from memrl_core.agent.run_parts import SMALL, create_bank, default_embedder, is_simulated, models_at_hand
from memrl_core.agent.twins import FASTEST, Side, TwinRuns, start_twins
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.figures.compare.race import race_data, race_sentence
from memrl_core.policies import settings_of
from memrl_core.settings import PolicySettings
from pages.shared import place as places
from pages.shared.models import chat_model_choice
from pages.shared.person import must_be, within_role
from pages.shared.text import errors_shown, failure_kept, literal

BANK, KIND = "race", "race"
PICTURE, ASKED = "race_picture", "race_asked"
SET, MOST = "helpdesk-train", 320
REFRESH = 0.7
SIDES = (("left", 0.0), ("right", 0.5))
NAMES = ("bank", "left", "right")
CREDITS = {"prompt": "all of the prompt", "followed": "what is followed"}
SHIFTS = "From the next message on every topic has another team. Nobody tells the agents."
ABOUT = (
    "Two agents answer the same messages of a help desk with the same model. A handbook of 40 cases is in the memory "
    "of both; two in five entries are out of date, and only rewards can show which. Watch the q of its entries rise "
    "and fall."
)
HERE = Path(__file__).parent

_race = st.components.v2.component(
    "memrl_race",
    html='<div class="race" data-testid="race" data-messages="0"></div>',
    css=(HERE / "race.css").read_text(encoding="utf-8"),
    js=(HERE / "race.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def _own_bank() -> MemoryBank:
    """The bank of races, made where it is not there yet. Raises `MemRLError`."""
    path = str(banks_folder() / BANK)
    if BANK not in places.known_banks():
        create_bank(path, default_embedder(), load_preferences()).close()
    return places.opened(path)


def _asked() -> TwinRuns | None:
    """The race that the address, or without one the session, names; what does not exist gets a notice."""
    asked = {name: st.query_params[name] for name in NAMES if name in st.query_params}
    asked = asked or dict(st.session_state.get("race_place", {}))
    if not {"left", "right"} <= asked.keys():
        return None
    uri = places.known_banks().get(asked.get("bank", BANK))
    if uri is None:
        st.warning(
            literal(f"There is no bank “{asked.get('bank', BANK)[:80]}” on this machine. Start a race of your own.")
        )
        return None
    try:
        twins = places.pair_of(places.opened(uri), asked["left"], asked["right"])
        if twins.bank.run(twins.runs[0]).environment != "helpdesk":
            raise MemRLError(f"{asked['left'][:80]} is no run at a help desk. The Lab shows other pairs.")
    except MemRLError as error:
        st.warning(literal(f"{error} Start a race of your own."), icon=":material/link_off:")
        return None
    st.query_params.update(asked)
    st.session_state["race_place"] = asked
    return twins


def _settings(side: str, weight: float) -> PolicySettings:
    """The settings of one side, as the person moves them."""
    st.markdown(f"**Agent on the {side}**")
    one, two, three = st.columns([2, 1, 2])
    chosen = {
        "weight": one.slider("λ · weight of q", 0.0, 1.0, weight, 0.05, key=f"race_{side}_weight"),
        "k2": two.number_input("k2", 1, 5, 1, key=f"race_{side}_k2", help="Memories in the prompt."),
        "credit": three.selectbox(
            "A reward credits", list(CREDITS), key=f"race_{side}_credit",
            format_func=lambda name: CREDITS[name],
        ),
    }  # fmt: skip
    return settings_of("memrl", chosen)


def _form() -> None:
    """What the race is about, and Start."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="race_start"):
        started = st.button("Start the race", icon=":material/flag:", type="primary", key="race_begin",
                            **within_role(places.bank_named(BANK), Role.MANAGE))  # fmt: skip
        small = SMALL if SMALL in models_at_hand([]) else ""
        with st.container(width=330):
            model = chat_model_choice("race", begin_with=small)
        count = st.number_input("Messages", 20, MOST, MOST, 20, key="race_count", width=130)
        seed = st.number_input("Seed", 0, 2**31 - 1, 1, key="race_seed", width=110,
                               help="The house, its handbook and all luck.")  # fmt: skip
    columns = st.columns(2, gap="large")
    sides = []
    for column, (side, weight) in zip(columns, SIDES, strict=True):
        with column:
            sides.append(Side(_settings(side, weight)))
    if started:
        with errors_shown():
            bank = _own_bank()
            must_be(bank, Role.MANAGE)
            options = {} if is_simulated(model) else {"num_ctx": 2048}
            twins = start_twins(
                bank, (sides[0], sides[1]), kind=KIND, environment="helpdesk", tasks=SET, task_count=int(count),
                seed=int(seed), model=model, model_options=options,
            )  # fmt: skip
            places.pairs()[(str(bank.uri), *twins.runs)] = twins
            _go_to(twins)
            twins.play(FASTEST, int(count))
            st.rerun()


def _go_to(twins: TwinRuns) -> None:
    at = {"bank": BANK, "left": twins.runs[0], "right": twins.runs[1]}
    st.session_state["race_place"] = at
    st.query_params.update(at)


def _controls(twins: TwinRuns, playing: bool) -> None:
    look = within_role(twins.bank, Role.MANAGE)
    left = len(twins.tasks) - _both(twins)
    with st.container(horizontal=True, vertical_alignment="center", key="race_controls"):
        if playing:
            st.button("Pause", icon=":material/pause:", type="primary", key="race_pause", shortcut="p",
                      on_click=_act, args=(twins, twins.pause), **look)  # fmt: skip
        elif left > 0:
            name = "Go on" if _both(twins) else "Play"
            st.button(name, icon=":material/play_arrow:", type="primary", key="race_play", shortcut="p",
                      on_click=_act, args=(twins, lambda: twins.play(FASTEST, left)), **look)  # fmt: skip
        st.button("Change the rules now", icon=":material/swap_horiz:", key="race_shift",
                  on_click=_act, args=(twins, twins.shift),
                  **within_role(twins.bank, Role.MANAGE, disabled=left <= 0,
                                help=SHIFTS))  # fmt: skip
        if st.button("Another race", icon=":material/flag:", type="tertiary", key="race_new"):
            twins.pause()
            st.session_state.pop("race_place", None)
            for name in NAMES:
                st.query_params.pop(name, None)
            st.rerun()
        st.page_link("pages/lab/page.py", label="The Lab", icon=":material/science:")
    if twins.error is not None:
        st.error(literal(str(twins.error)), icon=":material/error:")


def _both(twins: TwinRuns) -> int:
    """The messages that both have answered."""
    return min(twins.bank.next_step(run) for run in twins.runs) - 1


def _act(twins: TwinRuns, what: Callable[[], object]) -> None:
    with failure_kept():
        must_be(twins.bank, Role.MANAGE)
        what()


def _so_far(twins: TwinRuns, played: bool) -> None:
    """The picture; drawn again and again while they play."""
    if played and not twins.playing:
        st.rerun()
    info = twins.bank.run(twins.runs[0])
    data = race_data(twins.bank, twins.runs, [str(error or "") for error in twins.errors], len(twins.tasks))
    model = "simulated model" if info.simulated else info.model.removeprefix("gguf:")
    st.caption(literal(f"{model} · seed {info.seed} · message {_both(twins):,} of {len(twins.tasks):,}{_pace(twins)}"))
    _race(key=PICTURE, data=data, on_message_change=_message_asked_for)
    st.markdown(literal(race_sentence(data) or "The first answers are on their way."))
    st.caption(
        "One race is one seed: an anecdote. What several seeds of a small model say stands under “With a real "
        "language model” in the documents."
    )
    _open_in_compare(twins)


def _pace(twins: TwinRuns) -> str:
    """How fast it goes and how long it takes yet, measured in this session while it plays."""
    now = (time.monotonic(), _both(twins))
    begun = st.session_state.setdefault(f"race_clock_{twins.runs[0]}", now)
    if not twins.playing:
        st.session_state.pop(f"race_clock_{twins.runs[0]}", None)
        return ""
    done = now[1] - begun[1]
    if done < 3:
        return ""
    each = (now[0] - begun[0]) / done
    return f" · {each:.1f} s for both answers · {each * (len(twins.tasks) - now[1]) / 60:.0f} min left"


def _message_asked_for() -> None:
    """Keep the click: the run of the page that hears of it may be interrupted by the next one."""
    if step := st.session_state[PICTURE].get("message"):
        st.session_state[ASKED] = int(step)


def _open_in_compare(twins: TwinRuns) -> None:
    """Both decisions of the message that the person has clicked on, side by side."""
    step = st.session_state.pop(ASKED, None)
    if step is None:
        return
    bank = next((name for name, uri in places.known_banks().items() if uri == str(twins.bank.uri)), BANK)
    places.go(bank=bank, run=twins.runs[0], step=step)
    st.switch_page("pages/compare/page.py", query_params={**st.session_state["place"], "against": twins.runs[1]})


st.subheader("Race")
twins = _asked()
if twins is None:
    st.markdown(ABOUT)
    _form()
else:
    # Looked at once: a play that ends while the page is drawn would leave its parts at odds.
    playing = twins.playing
    _open_in_compare(twins)
    _controls(twins, playing)
    with st.container(key="race_so_far"):
        st.fragment(_so_far, run_every=REFRESH if playing else None)(twins, playing)
