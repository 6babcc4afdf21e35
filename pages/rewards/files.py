"""Rewards in bulk: a file's lines looked at one by one before any counts, and everybody's rewards as such a file."""

from __future__ import annotations

from functools import partial
from typing import Literal

import streamlit as st

from memrl_core.bank.people.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.exchange.reward_files import Effect, apply_rewards, export_rewards, kind_of, read_rewards
from memrl_core.exchange.safe_files import file_name
from pages.shared.person import person, within_role
from pages.shared.picture import download, show_table
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal, verbatim

EXAMPLE = "run,step,rater,reward,reason\nhousehold,12,ann,1,\nhousehold,13,ann,-0.5,wrong shelf\n"
WORDS = {
    Effect.NEW: "new",
    Effect.CHANGED: "changes",
    Effect.SAME: "the same as now",
    Effect.DOUBLED: "given again further down",
    Effect.BAD: "cannot be used",
}
SHOWN = 1000


def reward_files(place: Place) -> None:
    """Import on the left, export on the right."""
    taken_in, given_out = st.columns([3, 2], gap="large")
    with taken_in:
        _import(place)
    with given_out:
        _export(place)


def _import(place: Place) -> None:
    st.subheader("Import", anchor=False)
    st.markdown(
        "A CSV or JSON Lines file with a line per reward. Nothing counts before you have seen what it would do."
    )
    with st.expander("What it looks like"):
        verbatim(EXAMPLE)
        st.caption(
            "`run` may be left out where the bank has one run, `rater` where it is you, `reason` always. In JSON Lines "
            "each line is an object with the same names."
        )
    uploaded = st.file_uploader("File", type=["csv", "jsonl"], key="rewards_file")
    if uploaded is None:
        return
    bank = place.bank
    bank.refresh()
    try:
        default_run = place.run.id if place.run is not None and len(bank.runs()) == 1 else ""
        file = read_rewards(uploaded.getvalue(), kind_of(uploaded.name), bank, default_run, person())
    except MemRLError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    counts = file.counts
    listed = " · ".join(f"{counts[effect]:,} {words}" for effect, words in WORDS.items() if counts.get(effect))
    st.markdown(f"**{len(file.lines):,} lines**: {listed}")
    if file.unknown:
        st.caption(literal(f"Passed over, as they mean nothing here: {', '.join(file.unknown)}."))
    rows = file.rows()
    rows.sort(key=lambda row: not row["problem"])
    show_table(rows[:SHOWN], "reward_lines", "Each line of the file with what it would do")
    if len(rows) > SHOWN:
        st.caption(f"The first {SHOWN:,} are shown, those that cannot be used on top.")
    good = counts.get(Effect.NEW, 0) + counts.get(Effect.CHANGED, 0)
    bad = counts.get(Effect.BAD, 0)
    label = f"Save {good:,} rewards" + (f", leave out {bad:,} lines" if bad else "")
    own = all(line.rating.rater == person() for line in file.lines if line.rating)
    look = within_role(bank, Role.RATE if own else Role.MANAGE, disabled=not good)
    if st.button(label, type="primary", key="apply_rewards", **look):
        with errors_shown():
            events = apply_rewards(bank, file, person())
            st.success(f"Saved {len(events):,} rewards, as one action: Undo in the queue takes all of them back.")


def _export(place: Place) -> None:
    st.subheader("Export", anchor=False)
    bank = place.bank
    runs = ["", *(info.id for info in reversed(bank.runs()))]
    run = st.selectbox("Of run", runs, key="export_of", format_func=lambda name: name or "every run")
    count = sum(len(bank.ratings.raters(info.id)) for info in bank.runs() if run in ("", info.id))
    st.caption("Every person's reward that stands, in the same form; importing it again changes nothing.")
    if not count:
        st.info("Nobody has rated here yet.")
        return
    kinds: tuple[Literal["csv", "jsonl"], ...] = ("csv", "jsonl")
    for kind in kinds:
        name = file_name(place.bank_name, run, "rewards", kind=kind)
        download(f"As {kind.upper()}", partial(export_rewards, bank, kind, run), name, f"export_rewards_{kind}")
