"""What a run is compared with: other runs, or itself under other settings; kept in the URL beside the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st
from pydantic.fields import FieldInfo

from memrl_core.errors import SettingsError
from memrl_core.policies import settings_of
from memrl_core.settings import PolicySettings
from pages.shared.forms import settings_fields, settings_in_use
from pages.shared.place import Place
from pages.shared.text import literal

AGAINST, UNDER, WAY = "against", "under", "compare"
OTHER_RUNS, OTHER_SETTINGS, METHODS = "Other runs", "Itself under other settings", "Methods side by side"
MOST = 4
LEARNING = ("alpha", "q0_success", "q0_failure")
SLIDERS = {"weight": 1.0, "k1": 50, "k2": 10, "delta": 1.0, "epsilon": 1.0}
"""What is tried first, and where its slider ends."""
DECIDING = ("k1", "k1_counts", "delta", "k2", "weight", "normaliser", "fixed_mean", "fixed_sd", "epsilon")


@dataclass(frozen=True)
class Choice:
    """The runs to compare with, the settings to suppose, or methods of their own; nothing until something is chosen."""

    against: tuple[str, ...] | None = None
    under: Mapping[str, Any] | None = None
    methods: bool = False


def choose(place: Place) -> Choice:
    """Draw the choice and return it; whatever the link asks for and does not exist gets a sentence."""
    others = [info.id for info in reversed(place.bank.runs()) if info.id != place.info.id]
    ways = [OTHER_RUNS, OTHER_SETTINGS, METHODS] if others else [OTHER_SETTINGS, METHODS]
    if WAY not in st.query_params and st.session_state.get(WAY) not in ways:
        st.session_state[WAY] = OTHER_SETTINGS if UNDER in st.query_params else ways[0]
    way = st.segmented_control("Compare with", ways, key=WAY, required=True, bind="query-params")
    if way != OTHER_SETTINGS:
        st.query_params.pop(UNDER, None)
    if way == METHODS:
        return Choice(methods=True)
    if not others:
        st.info(
            "This bank has one run. To compare two, start a second on the same tasks and seed on Home, fork this one, "
            "or import one into this bank. Until then this run can be compared with itself under other settings."
        )
        st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    return _runs(place, others) if way == OTHER_RUNS else _settings(place)


def _runs(place: Place, others: list[str]) -> Choice:
    held: list[str] | None = st.session_state.get(AGAINST)
    if (held is None and AGAINST not in st.query_params) or (held and not set(held) & set(others)):
        st.session_state[AGAINST] = [_nearest(place, others)]
    elif held:
        st.session_state[AGAINST] = [name for name in held if name in others]
    chosen = st.multiselect(
        f"{literal(place.info.id)} with", others, key=AGAINST, max_selections=MOST, bind="query-params",
        placeholder="Choose one to four runs",
    )  # fmt: skip
    if not chosen:
        st.info("Choose at least one other run above.")
    return Choice(against=tuple(chosen))


def _nearest(place: Place, others: list[str]) -> str:
    """The run that this one goes on from, else the newest other."""
    return place.info.base if place.info.base in others else others[0]


def _settings(place: Place) -> Choice:
    wanted = st.query_params.get(UNDER, "")
    try:
        current = settings_of(place.info.policy, place.bank.settings(place.info.id))
    except SettingsError:
        st.info("This run was made under settings that this program does not have, so it cannot be decided again here.")
        return Choice()
    supposed = current
    if wanted:
        try:
            pairs = dict(part.partition("=")[::2] for part in wanted.split(","))
            supposed = settings_of(place.info.policy, {**current.model_dump(), **pairs})
        except SettingsError as error:
            st.error(literal(str(error)))
            wanted = ""
    _fields(place.info.policy, current, supposed, f"compare_{place.info.id}_{wanted}")
    if not wanted or supposed == current:
        st.info("Change at least one setting above and press Compare.")
        return Choice()
    return Choice(under={n: v for n, v in supposed.model_dump().items() if v != getattr(current, n)})


@st.fragment
def _fields(policy: str, current: PolicySettings, supposed: PolicySettings, key: str) -> None:
    """The settings to suppose: those that one tries first as sliders with a field each, the others folded."""
    deciding, values = deciding_settings(policy), supposed.model_dump()
    first = [name for name in SLIDERS if name in deciding]
    rest = [name for name in deciding if name not in first]
    with st.container(border=True, key="compare_settings"):
        st.caption(
            "Every decision of the run is made again under these settings, from what the run knew then, with the same "
            "seeds. Only phases A and B are: nobody knows what the model would have answered."
        )
        columns = st.columns(len(first) or 1, gap="medium", vertical_alignment="bottom")
        for name, column in zip(first, columns, strict=False):
            with column:
                field, own = type(supposed).model_fields[name], f"{key}_{name}_{values[name]}"
                values[name] = _slider(field, values[name], own, SLIDERS[name])
        if rest:
            with st.expander(f"{len(rest)} more settings", key=f"{key}_more"):
                for number, column in enumerate(st.columns(3)):
                    names = tuple(rest[number::3])
                    with column:
                        fields = settings_fields(supposed, key, names)
                        values |= {name: fields[name] for name in names}
        if st.button("Compare", type="primary", icon=":material/compare_arrows:", key="compare_go"):
            _take_settings(policy, current, values)


def _slider(field: FieldInfo, value: float, key: str, most: float) -> float:
    """A setting as a slider and as a field for the exact number, which move together.

    The slider ends at `most`, unless more is given; the field goes as far as the setting does.
    """
    kind, step = (int, 1) if isinstance(value, int) else (float, 0.05)
    bounds = {name: getattr(one, name) for one in field.metadata for name in ("ge", "le") if hasattr(one, name)}
    low, high = kind(bounds["ge"]), kind(bounds["le"])
    slid, typed = f"{key}_slid", f"{key}_typed"
    now: float = st.session_state.setdefault(key, value)

    def take(given: str) -> None:
        # An emptied field goes back to what it was.
        if st.session_state[given] is not None:
            st.session_state[key] = st.session_state[given]

    st.session_state[slid] = st.session_state[typed] = now
    label, written = field.title or key, "%.3f" if kind is float else None
    st.slider(
        label, low, max(now, kind(most)), step=step, format=written, key=slid, on_change=take, args=(slid,),
        help=field.description,
    )  # fmt: skip
    st.number_input(
        label, low, high, None, step=step, format=written, key=typed, on_change=take, args=(typed,),
        label_visibility="collapsed",
    )  # fmt: skip
    return now


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
    st.query_params[UNDER] = ",".join(f"{name}={value}" for name, value in changed.items())
    st.rerun()
