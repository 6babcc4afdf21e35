"""What a run is compared with: other runs, or itself under other settings; kept in the URL beside the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from memrl_core.errors import SettingsError
from memrl_core.policies import settings_of
from memrl_core.settings import PolicySettings
from pages.shared.forms import settings_fields, settings_in_use
from pages.shared.place import Place
from pages.shared.text import literal

AGAINST, UNDER, ARMS = "against", "under", "arms"
OTHER_RUNS, OTHER_SETTINGS, METHODS = "Other runs", "Itself under other settings", "Methods side by side"
MOST = 4
LEARNING = ("alpha", "q0_success", "q0_failure")
DECIDING = ("k1", "k1_counts", "delta", "k2", "weight", "normaliser", "fixed_mean", "fixed_sd", "epsilon")


@dataclass(frozen=True)
class Choice:
    """The runs to compare with, the settings to suppose, or methods of their own; nothing until something is chosen."""

    against: tuple[str, ...] | None = None
    under: Mapping[str, Any] | None = None
    methods: bool = False


def asked() -> dict[str, str]:
    """What the link asks for, else what was chosen last; to be read before `place.current` rewrites the URL."""
    here = {name: st.query_params[name] for name in (AGAINST, UNDER, ARMS) if name in st.query_params}
    if here and not st.session_state.pop("compare_moved", False):
        st.session_state["compare"] = here
    return dict(st.session_state.get("compare", {}))


def choose(place: Place, wanted: Mapping[str, str]) -> Choice:
    """Draw the choice and return it; whatever the link asks for and does not exist gets a sentence."""
    assert place.run is not None
    if st.session_state.get("compare_bank", place.bank_name) != place.bank_name:
        st.session_state["compare"], wanted = {}, {}
    st.session_state["compare_bank"] = place.bank_name
    others = [info.id for info in reversed(place.bank.runs()) if info.id != place.run.id]
    ways = [OTHER_RUNS, OTHER_SETTINGS, METHODS] if others else [OTHER_SETTINGS, METHODS]
    shown = OTHER_SETTINGS if UNDER in wanted or not others else OTHER_RUNS
    st.session_state["compare_way"] = METHODS if ARMS in wanted else shown
    way = st.segmented_control(
        "Compare with", ways, key="compare_way", required=True, on_change=_take_way, args=(place, others)
    )
    if way == METHODS:
        st.query_params.setdefault(ARMS, "")
        return Choice(methods=True)
    if not others:
        st.info(
            "This bank has one run. To compare two, start a second on the same tasks and seed on Home, fork this one, "
            "or import one into this bank. Until then this run can be compared with itself under other settings."
        )
        st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    choice = _runs(place, wanted, others) if way == OTHER_RUNS else _settings(place, wanted)
    _write_url(choice)
    return choice


def _runs(place: Place, wanted: Mapping[str, str], others: list[str]) -> Choice:
    assert place.run is not None
    named = [name for name in wanted[AGAINST].split(",") if name] if AGAINST in wanted else [_nearest(place, others)]
    if place.run.id in named:
        named = [name for name in named if name != place.run.id] or [_nearest(place, others)]
        st.info(
            f"{literal(place.run.id)} does not differ from itself, so it is compared with {literal(', '.join(named))}. "
            f"Choose another run, or “{OTHER_SETTINGS}”."
        )
    if missing := [name for name in named if name not in others]:
        st.warning(literal(f"This bank has no run {', '.join(missing)[:200]}. The comparison goes on without."))
    asked = [name for name in dict.fromkeys(named) if name in others]
    if len(asked) > MOST:
        st.warning(f"At most {MOST} runs are compared with one: the first {MOST} are shown.")
    st.session_state["compare_runs"] = asked[:MOST]
    chosen = st.multiselect(
        f"{literal(place.run.id)} with",
        others,
        key="compare_runs",
        max_selections=MOST,
        placeholder="Choose one to four runs",
        on_change=lambda: _keep(AGAINST, ",".join(st.session_state["compare_runs"])),
    )
    if not chosen:
        st.info("Choose at least one other run above.")
    return Choice(against=tuple(chosen))


def _nearest(place: Place, others: list[str]) -> str:
    """The run that this one goes on from, else the newest other."""
    assert place.run is not None
    return place.run.base if place.run.base in others else others[0]


def _settings(place: Place, wanted: Mapping[str, str]) -> Choice:
    assert place.run is not None
    try:
        current = settings_of(place.run.policy, place.bank.settings(place.run.id))
    except SettingsError:
        st.info("This run was made under settings that this program does not have, so it cannot be decided again here.")
        return Choice()
    supposed = current
    if wanted.get(UNDER):
        try:
            pairs = dict(part.partition("=")[::2] for part in wanted[UNDER].split(","))
            supposed = settings_of(place.run.policy, {**current.model_dump(), **pairs})
        except SettingsError as error:
            st.error(literal(str(error)))
            _keep(UNDER, "")
    with st.form("compare_settings", border=True):
        st.caption(
            "Every decision of the run is made again under these settings, from what the run knew then, with the same "
            "seeds. Only phases A and B are: nobody knows what the model would have answered."
        )
        columns, values = st.columns(3), supposed.model_dump()
        deciding = deciding_settings(place.run.policy)
        for place_of, column in enumerate(columns):
            names = deciding[place_of::3]
            with column:
                fields = settings_fields(supposed, f"compare_{place.run.id}_{wanted.get(UNDER, '')}", names)
                values |= {name: fields[name] for name in names}
        if st.form_submit_button("Compare", type="primary", icon=":material/compare_arrows:"):
            _take_settings(place.run.policy, current, values)
    if not wanted.get(UNDER) or supposed == current:
        st.info("Change at least one setting above and press Compare.")
        return Choice()
    return Choice(under={n: v for n, v in supposed.model_dump().items() if v != getattr(current, n)})


def deciding_settings(policy: str) -> tuple[str, ...]:
    """The settings of a policy that phases A and B go by."""
    used, shared = settings_in_use(policy), PolicySettings.model_fields
    own = (name for name in used if name not in shared and name not in LEARNING)
    return tuple(dict.fromkeys((*(name for name in DECIDING if name in used), *own)))


def _take_settings(policy: str, current: PolicySettings, values: Mapping[str, Any]) -> None:
    try:
        chosen = settings_of(policy, values).model_dump()
    except SettingsError as error:
        st.error(literal(str(error)))
        return
    changed = {name: value for name, value in chosen.items() if value != getattr(current, name)}
    _keep(UNDER, ",".join(f"{name}={value}" for name, value in changed.items()))
    st.rerun()


def _take_way(place: Place, others: list[str]) -> None:
    if st.session_state["compare_way"] == METHODS:
        _keep(ARMS, "")
    elif st.session_state["compare_way"] == OTHER_SETTINGS:
        _keep(UNDER, "")
    else:
        _keep(AGAINST, _nearest(place, others))


def _keep(name: str, value: str) -> None:
    st.session_state["compare"] = {name: value}
    # What a callback writes to the URL does not reach the browser in time, so the next run must not read it there.
    st.session_state["compare_moved"] = True


def _write_url(choice: Choice) -> None:
    for name, value in st.session_state.get("compare", {}).items():
        st.query_params[name] = value
    if choice.against:
        st.query_params[AGAINST] = ",".join(choice.against)
