"""The stage on Step: the decision as one picture that plays, fed with the step at hand and those around it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from memrl_core.agent.live import LiveRun
from memrl_core.agent.runs import can_go_on
from memrl_core.analysis.decision.moment import as_it_counts, considered
from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.figures.stage.data import (
    Known,
    StageSource,
    as_it_counts_now,
    finite,
    known_of_run,
    nearest_memories,
    query_places,
    stage_answer,
    stage_data,
    stage_update,
    written_by,
)
from memrl_core.figures.stage.film import film_data
from memrl_core.figures.stage.player import stage_script, stage_style
from memrl_core.figures.stage.strip import is_rewound, run_strip, strip_data
from memrl_core.numerals import fixed
from memrl_core.records import Memory, StepTrace, Utility
from memrl_core.settings import symbol
from pages.shared import place as places
from pages.shared.person import within_role
from pages.shared.picture import layout_of
from pages.shared.rewind import next_changed, use_settings
from pages.shared.text import failure_kept, literal
from pages.shared.view import View, families_of
from pages.step.drawers import DRAWER, KEY, open_drawer
from pages.step.hand import AT_WORK, hand_data, heard

SENT, KNOWN, HEARD, SHOWN, ASKED = "stage_sent", "stage_known", "stage_heard", "stage_shown", "stage_asked"
PATIENCE = 10.0
"""Seconds after which nothing is done any more that the stage has asked for."""
STRIP, FILM, BEFORE = "stage_strip", "stage_film", "stage_before"
AROUND = 6
"""Steps before and after the one that is shown which go along, so that a person moves among them without the server."""
MOST_ADDED = 256
"""Memories that are sent beside the table before the table is sent anew."""
MOST_FOLDED = 4_000
"""Steps of a run up to which all that it ever believed is held ready for a replay."""
TO_BANK = "memory"
ACTIONS = (
    ("pair", "Why was it selected or not?"),
    ("flips", "At which λ does it change?"),
    ("required", "What would have to change?"),
    ("origin", "Who moved its q?"),
    ("twin", "Has it a twin?"),
    (TO_BANK, "Change it on Bank"),
)
"""Questions of Decision that a memory's card leads to, and the page where it is changed."""
LOOK = ("phase", "lambda", "k1", "k2", "delta", "colour", "find")
"""What the address says of the view besides the place: how far the step is shown, settings that are tried, the colour
of the map and what is searched for on it."""
TRIED = ("weight", "k1", "k2", "delta")
"""The settings that can be tried on the stage, and used from the next step on."""
SELECTING = (("bank", "Open in Bank"),)

_stage = st.components.v2.component(
    "memrl_stage",
    html='<div class="stage-host"></div>',
    css=stage_style(),
    js=stage_script() + Path(__file__).with_name("stage_host.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
# What does not change from step to step goes to the browser once.
_table = st.components.v2.component(
    "memrl_stage_table",
    js="""
export default function ({ data, setStateValue }) {
  window.memrlStageTables = { [data.key]: data.table };
  setStateValue("taken", data.key);
}
""",
)

# All moves of q of a run, when somebody wants to see them as a film.
_film = st.components.v2.component(
    "memrl_film",
    js="""
export default function ({ data, setStateValue }) {
  window.memrlFilms = { [data.key]: data.film };
  window.memrlStage?.playFilm();
  setStateValue("taken", data.key);
}
""",
)

_arriving = st.components.v2.component(
    "memrl_stage_arriving",
    js="""
export default function ({ data }) {
  window.memrlStage?.showWaiting(data.line, data.text, data.turns);
}
""",
)


def stage(view: View, acted: bool = False) -> bool:
    """Draw the step at the view's moment; of a run without a step its memories, where it has any.

    `acted` says that a person has just done something to it, and waits to see that move. Returns whether this is the
    session's first picture, after which the browser has the page run again.
    """
    if view.moment.trace is None and not view.moment.utilities:
        st.info("No memories yet. Press **Step**: the first task writes the first point of the map.")
        return False
    first = f"{KEY}_taken" not in st.session_state
    layout = layout_of(view.place.bank.uri, view.place.bank)
    source = _source(view, layout, acted)
    key, base, rows = _sent(source, view)
    trace = view.moment.trace
    at, last = trace.step if trace else 0, view.place.last_step
    st.session_state[SHOWN] = (at, last)
    data = {
        **stage_update(source, base, rows),
        "key": key,
        "first": rows,
        "at": at,
        "bank": view.place.bank_name,
        "memory": view.place.memory,
        "look": look_in_link(),
        "replays": not view.moment.live,
        "playing": st.session_state.get(places.PLAYING) == (view.place.bank_name, view.run.id, view.place.step),
        "heard": st.session_state.get(HEARD),
        "moved_by_page": places.moves(),
        "first_step": view.place.first_step,
        "newest": places.newest_step(view.place),
        "strip": None if first else _strip(view),
        "film": f"{view.place.bank.handle}·{source.run.id}·{view.place.bank.state}",
        "actions": [list(action) for action in ACTIONS] if view.moment.next_phase is None else [],
        "selecting": [list(action) for action in SELECTING],
        "drawer": st.session_state.get(DRAWER),
        "use": _to_come(view),
        "hand": finite(hand_data(view, source.traces)),
    }
    _stage(
        key=KEY, data=data, on_went_change=_went, on_look_change=_nothing, on_asked_change=_asked,
        on_acts_change=_acted, on_drawer_change=open_drawer, height="content",
    )  # fmt: skip
    if asked := _to_do():
        what, about = asked
        _ask(what, about, data["film"], view)
    if st.session_state.get(FILM) == data["film"] != st.session_state.get(f"{FILM}_taken"):
        film = film_data(view.place.bank, source.run.id)
        shot = _film(key=f"{KEY}_film", data={"key": data["film"], "film": film}, on_taken_change=_nothing, height=1)
        st.session_state[f"{FILM}_taken"] = shot.taken
    if st.session_state.get(f"{KEY}_taken") != key:
        static = stage_data(replace(source, traces=(), known=Known(base, {}), whole=(), histories={}))
        taken = _table(key=f"{KEY}_table", data={"key": key, "table": static}, on_taken_change=_nothing, height=1)
        st.session_state[f"{KEY}_taken"] = taken.taken
    return first


def table_in_browser() -> tuple[str, list[str]] | None:
    """The name of the table of memories that the browser has, and the memories in it in their order."""
    sent = st.session_state.get(SENT)
    return sent and sent[:2]


def stage_arriving(live: LiveRun) -> None:
    """Show on the stage what goes on, the turns of the episode so far, and what has arrived of an answer."""
    waiting, episode = live.waiting, live.episode
    record = episode.trace.generate if episode is not None and episode.phase is not None else None
    turns = stage_answer(record)["turns"] if record is not None else []
    _arriving(key=f"{KEY}_arriving", data={"line": waiting.line, "text": waiting.text, "turns": turns}, height=1)


def _nothing() -> None:
    """A component tells its state only where somebody asks to be called."""


def _acted() -> None:
    heard(KEY)


def _asked() -> None:
    # Kept until it is done: a run of the page that is cut short, by a report that comes right behind, forgets it.
    if asked := st.session_state[KEY].get("asked"):
        st.session_state[ASKED] = time.monotonic(), asked


def _to_do() -> Any:
    """What the stage has asked for lately and was not done yet; None without it."""
    at, asked = st.session_state.pop(ASKED, (0.0, None))
    return asked if time.monotonic() - at < PATIENCE else None


def _went() -> None:
    """Follow the browser to the step and the memory that a person has gone to."""
    went = st.session_state[KEY].get("went")
    heard = st.session_state.get(HEARD) or {}
    if not went or (heard.get("of") == went["of"] and heard["count"] >= went["count"]):
        return
    st.session_state[HEARD] = {"of": went["of"], "count": went["count"]}
    at = st.session_state.get("place", {})
    playing = st.session_state.pop(places.PLAYING, None)
    shown, last = st.session_state[SHOWN]
    # What was reported before a person moved by the page, and arrives after it, takes nobody back.
    if went["moves"] == places.moves():
        if went["playing"] and playing:
            bank, run, _ = playing
            places.play(bank, run, went["step"])
        if went["step"] != int(at.get("step", shown)):
            # Beyond the finished ones there is the step under way.
            places.keep(step=went["step"] if went["step"] <= last else None)
    if went["memory"] != at.get("memory"):
        places.keep(memory=went["memory"])


def look_in_link() -> dict[str, str]:
    """How the stage shows the step, as parameters of the address: as the browser reports, at first as a link says."""
    look: dict[str, str] | None = st.session_state.get(KEY, {}).get("look")
    if look is None:
        return {name: st.query_params[name] for name in LOOK if name in st.query_params}
    for name in LOOK:
        if name not in look:
            st.query_params.pop(name, None)
    return {name: str(look[name]) for name in LOOK if name in look}


def _to_come(view: View) -> dict[str, Any] | None:
    """The settings of the steps to come that can be tried on the stage, from which step on others can be used, and why
    not now, or ""; None where the run is only looked at."""
    bank, run = view.place.bank, view.run
    if not view.moment.live or not can_go_on(run):
        return None
    look = within_role(bank, Role.MANAGE, disabled=view.busy, help=AT_WORK)
    values = bank.settings(run.id)
    return {
        "step": next_changed(view.place, view.live is not None and view.live.under_way),
        "values": {name: values[name] for name in TRIED if name in values},
        "off": str(look["help"] or "") if look["disabled"] else "",
    }


def _ask(what: str, asked: str | list[str] | dict[str, Any], film: str, view: View) -> None:
    """Ask Decision about a memory, show several on Bank or some steps on Steps, have the film sent, use settings, or go
    to a step of another run."""
    if what == "film":
        st.session_state[FILM] = film
        return
    if isinstance(asked, dict):
        to_come = _to_come(view)
        with failure_kept():
            if to_come is not None:
                chosen = {name: asked[name] for name in TRIED if name in asked}
                use_settings(view.place, chosen, to_come["step"])
                named = ", ".join(f"{symbol(name)} {value:g}" for name, value in chosen.items())
                st.toast(f"From step {to_come['step']:,} on: {named}.", icon=":material/tune:")
        st.rerun()
    if what == "run":
        places.go(run=asked[0], step=int(asked[1]))
        st.rerun()
    if what == "list":
        window = {"window": "-".join(asked)}
        st.switch_page("pages/steps/page.py", query_params={**st.session_state["place"], **window})
    if not isinstance(asked, str):
        st.switch_page("pages/bank/page.py", query_params={**st.session_state["place"], **places.selecting(asked)})
    st.session_state["place"] = {**st.session_state["place"], "memory": asked}
    if what == TO_BANK:
        st.switch_page("pages/bank/page.py", query_params=st.session_state["place"])
    st.switch_page("pages/decision/page.py", query_params=st.session_state["place"] | places.asking(what, asked))


# --- what is sent -----------------------------------------------------------------------------------------------------


def _strip(view: View) -> dict[str, Any]:
    """The strip of the run; of one that the session has seen, what has come since."""
    bank, run = view.place.bank, view.run
    of, state, known, data = st.session_state.get(STRIP, (None, None, {}, None))
    if of != (bank.uri, run.id) or state != bank.state:
        known = known if of == (bank.uri, run.id) else {}
        there = {info.id for info in bank.runs()}
        wanted = [run.id, *([run.base] if run.base in there and is_rewound(run) else [])]
        strips = {name: run_strip(bank, name, known.get(name)) for name in wanted}
        data = strip_data(strips[run.id], run, strips.get(run.base or ""))
        st.session_state[STRIP] = ((bank.uri, run.id), bank.state, strips, data)
    shown: dict[str, Any] = data
    return shown


def _source(view: View, layout: MapLayout, acted: bool) -> StageSource:
    bank, run, trace = view.place.bank, view.run.id, view.moment.trace
    # Of a session's first picture the step alone: the browser asks again once it has the table.
    first = f"{KEY}_taken" not in st.session_state
    traces = [] if trace is None else [trace] if first else _around(view, trace)
    recorded = {trace.step: trace for trace in traces}
    if view.moment.next_phase is None:
        traces = [as_it_counts(bank, trace) for trace in traces]
    written = {one.memory_id for trace in traces if trace.write for one in trace.write.operations if one.op != "DELETE"}
    credited = {change.memory_id for trace in traces if trace.update for change in trace.update.of_q}
    cast = written.union(credited, *map(considered, traces), [view.place.memory] if view.place.memory else [])
    # What the whole run believed takes a second where it is long: not between a key and what it moves.
    known = _known(view, traces, cast, folded=not first and not acted)
    coordinates = layout.places()
    memories = _memories(bank, run, known)
    return StageSource(
        run=view.run,
        bank=view.place.bank_name,
        traces=traces,
        memories=memories,
        places=coordinates,
        queries=query_places(traces, memories, coordinates, layout.place_query),
        known=known,
        whole=cast,
        next_phase=view.moment.next_phase,
        families=families_of(view.run.tasks),
        histories=bank.histories(run, cast),
        layout=layout.id,
        nearest=_nearest(bank, run, view.place.memory),
        now=bank.utilities(run, of=cast),
        metadata=_metadata(bank, bank.state, run),
        recorded={} if view.moment.next_phase is not None else recorded,
    )


@st.cache_data(max_entries=4, show_spinner=False)
def _metadata(_bank: MemoryBank, state: str, run: str) -> dict[str, Mapping[str, Any]]:
    return _bank.metadata(run)


def _nearest(bank: MemoryBank, run: str, memory_id: str | None) -> dict[str, list[tuple[str, float]]]:
    """What the run sees that is nearest to the memory whose card is open."""
    if memory_id is None:
        return {}
    seen = bank.view(run)
    rows = seen.positions()
    embeddings = seen.embeddings if seen.visible is None else seen.embeddings[rows]
    found = nearest_memories(
        bank.memory(memory_id), bank.embedding(memory_id), lambda row: bank.memory(seen.ids[rows[row]]), embeddings
    )
    return {memory_id: found}


def _around(view: View, trace: StepTrace) -> list[StepTrace]:
    """The steps that go along: in a replay the neighbours, as far as they can be read."""
    if view.moment.live:
        return [trace]
    first = max(view.place.first_step, trace.step - AROUND)
    last = min(view.place.last_step, trace.step + AROUND)
    traces = [trace]
    for steps in (range(trace.step - 1, first - 1, -1), range(trace.step + 1, last + 1)):
        for step in steps:
            try:
                found = view.place.bank.trace(view.run.id, step)
            except MemRLError:
                break
            traces.append(found)
    return sorted(traces, key=lambda one: one.step)


def _known(view: View, traces: Sequence[StepTrace], cast: Collection[str], folded: bool) -> Known:
    """What the run believes of the time before the first of the traces, and what each of them changed of that.

    Every q is as the bank has it now; where not all is held ready, that of the `cast` at least.
    """
    bank, run = view.place.bank, view.run.id
    if view.moment.next_phase is not None or not traces:
        return Known(bank.utilities(run), {})
    first, last = traces[0].step, traces[-1].step
    if view.moment.live:
        # Nothing came after it: what it did not move is as it is now.
        now = bank.utilities(run)
        unmoved = {name: now.get(name, known) for name, known in _before(bank, run, first).items()}
        return as_it_counts_now(Known(unmoved, {}), bank.histories(run, cast), first, last)
    if not folded or view.place.last_step > MOST_FOLDED:
        then = _before(bank, run, first)
        return as_it_counts_now(Known(then, written_by(traces)), bank.histories(run, cast), first, last)
    # Which memories it saw changes with every fact but a person's reward or credit, and takes a second to find out.
    key, state = (bank.handle, run, bank.facts - bank.steps.outside_changes(run)), bank.state
    held = st.session_state.get(KNOWN)
    if held is None or held[:2] != (key, state):
        of_run: Known = held[2] if held is not None and held[0] == key else known_of_run(bank, run)
        counted = as_it_counts_now(of_run, bank.histories(run), view.place.first_step, view.place.last_step)
        held = st.session_state[KNOWN] = (key, state, counted)
    whole: Known = held[2]
    before = dict(whole.before)
    for step in sorted(step for step in whole.moves if step < first):
        for name, utility in whole.moves[step].items():
            if utility is None:
                before.pop(name, None)
            else:
                before[name] = utility
    return Known(before, {one.step: whole.moves[one.step] for one in traces if one.step in whole.moves})


def _before(bank: MemoryBank, run: str, step: int) -> Mapping[str, Utility]:
    """What the run believed when `step` began.

    What comes later changes nothing of that, and to fold it takes long where the run is: not after every key.
    """
    key = (bank.handle, run, step)
    held: tuple[Any, Mapping[str, Utility]] | None = st.session_state.get(BEFORE)
    if held is None or held[0] != key:
        held = st.session_state[BEFORE] = (key, bank.utilities(run, as_of=step - 1))
    return held[1]


def _memories(bank: MemoryBank, run: str, known: Known) -> list[Memory]:
    """All that the run ever knew, those first that are in the table which the browser has, in its order."""
    ever = {**bank.utilities(run), **bank.editing.away(run), **known.before}
    sent = st.session_state.get(SENT)
    first: list[str] = sent[1] if sent is not None and sent[0].startswith(f"{bank.handle}·{run}·") else []
    fresh = ever.keys() - set(first)
    seen = {memory.id: memory for memory in bank.memories(run)}
    in_order = (*first, *(name for name in ever if name in fresh))
    return [seen[name] if name in seen else bank.memory(name) for name in in_order]


def _sent(source: StageSource, view: View) -> tuple[str, Mapping[str, Utility], int]:
    """The name of the table that the browser has or gets now, what it says was believed, and its rows."""
    bank, run = view.place.bank, source.run.id
    family = f"{bank.handle}·{run}·{source.layout}·"
    sent = st.session_state.get(SENT)
    if sent is None or not sent[0].startswith(family) or len(source.memories) - len(sent[1]) > MOST_ADDED:
        ids = [memory.id for memory in source.memories]
        sent = st.session_state[SENT] = (f"{family}{len(ids)}", ids, source.known.before)
    return sent[0], sent[2], len(sent[1])


LAYOUTS_HEIGHT = 440
"""Of both maps, with their titles and the line below."""
DIGITS = 4

_preview = st.components.v2.component(
    "memrl_layouts",
    html='<div class="layouts-host"></div>',
    css=Path(__file__).with_name("layouts.css").read_text(encoding="utf-8"),
    js=Path(__file__).with_name("layouts.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def layout_choice(view: View, layout: MapLayout) -> None:
    """A proposed layout beside the one in force, to be used or dropped; once it is used, the way back."""
    table = table_in_browser()
    if layout.proposal is not None and table is not None:
        _proposal(view, layout, *table)
    elif layout.can_go_back:
        with st.container(horizontal=True, vertical_alignment="center", key="layout_taken"):
            st.markdown(f":material/map: {literal(layout.announcement)}", width="stretch")
            st.button("Back to the old map", key="layout_back", icon=":material/undo:", on_click=layout.go_back)
            st.button("Stay", key="layout_stay", on_click=layout.stay)


def _proposal(view: View, layout: MapLayout, key: str, ids: Sequence[str]) -> None:
    proposal = layout.proposal
    assert proposal is not None
    now = layout.places()
    both = [proposal.coordinates[name] if name in proposal.coordinates and name in now else None for name in ids]
    known = view.place.bank.utilities(view.run.id)
    before = [[known[name].q, known[name].visits] if name in known else None for name in ids]
    axes = [[None if at is None else round(at[axis], DIGITS) for at in both] for axis in (0, 1)]
    with st.container(border=True, key="layout_proposal"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(
                f":material/map: **A new layout of the map, {proposal.method} of {len(proposal.fitted):,} memories.** "
                f"Nothing moves until you use it; then it moves for everyone who uses this bank.{_trust(layout)}",
                width="stretch",
            )
            st.button("Use the new map", key="layout_use", type="primary", on_click=layout.take_proposal)
            st.button("Keep the old", key="layout_keep", on_click=layout.drop_proposal)
        data = {"key": key, "id": proposal.id, "x": axes[0], "y": axes[1], "before": before}
        _preview(key="layouts", height=LAYOUTS_HEIGHT, data=finite(data))


def _trust(layout: MapLayout) -> str:
    if not np.isfinite(layout.trust).all():
        return ""
    now, new = (fixed(value, 2) for value in layout.trust)
    return f" Trustworthiness (1: all neighbours on the map are neighbours by cosine): old {now}, new {new}."


def map_menu(view: View) -> None:
    """How the map was made, under a button in the row above the stage."""
    layout = layout_of(view.place.bank.uri, view.place.bank)
    icon = ":material/warning:" if layout.error or layout.outgrown else ":material/map:"
    with st.popover("Map", icon=icon, type="tertiary", key="map_menu"):
        layout_notes(layout)


def layout_notes(layout: MapLayout) -> None:
    """How the map was made, what is being done to it, and how to lay it out anew."""
    if layout.announcement and not layout.can_go_back:
        st.info(literal(layout.announcement), icon=":material/map:")
    if layout.error:
        st.warning(literal(layout.error), icon=":material/map:")
    if layout.state == "fitting":
        _while_fitting(layout)
    elif layout.outgrown and layout.proposal is None:
        with st.container(horizontal=True, vertical_alignment="center", key="outgrown"):
            st.caption(
                f":material/map: This map was fitted on {layout.fitted:,} memories, fewer than half of those it shows. "
                "A new one would show the others better; you see it beside this one before anything moves."
            )
            st.button("Propose a new layout", key="lay_out_anew", icon=":material/refresh:", on_click=layout.relayout)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"Map: {layout.method} of the embeddings, frozen. Distances on it are approximate; ranking uses cosine in "
            "the full space."
        )
        if layout.state == "ready" and layout.proposal is None and not layout.outgrown:
            st.button(
                "Re-layout", key="relayout", icon=":material/refresh:", type="tertiary", on_click=layout.relayout,
                help="Fit a new layout and show it beside this one. Nothing moves until you use it.",
            )  # fmt: skip


@st.fragment(run_every=2)
def _while_fitting(layout: MapLayout) -> None:
    if layout.state != "fitting":
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{layout.progress} The map stays as it is until then.")
        st.button("Stop", icon=":material/stop_circle:", key="stop_layout", type="tertiary", on_click=layout.stop)
