"""The pairs of runs that this server plays: they outlive a reload of the page and a look at another one."""

from __future__ import annotations

import streamlit as st

from memrl_core.agent.twins import TwinRuns, open_twins
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError


@st.cache_resource
def pairs() -> dict[tuple[str, str, str], TwinRuns]:
    """Every pair that somebody looked at, by bank and runs."""
    return {}


def remember(twins: TwinRuns) -> None:
    """Keep a pair."""
    pairs()[(str(twins.bank.uri), *twins.runs)] = twins


def pair_of(bank: MemoryBank, left: str, right: str) -> TwinRuns:
    """The pair as it is played, or opened now. Raises as `open_twins` does."""
    known = pairs().get((str(bank.uri), left, right))
    if known is not None and known.bank is bank:
        return known
    twins = open_twins(bank, left, right)
    remember(twins)
    return twins


def forget_pairs(uri: str) -> None:
    """Drop the pairs of a bank that is about to be replaced or deleted. Raises `InputError` while one plays."""
    own = [key for key in pairs() if key[0] == uri]
    if any(pairs()[key].playing for key in own):
        raise InputError("Two agents are playing in this bank. Pause them first; nothing was changed.")
    for key in own:
        del pairs()[key]
