"""The rules by which ratings become rewards and rewards move q, each kept in the ledger of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import streamlit as st

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.errors import SettingsError
from memrl_core.learning.scales import RatingScales, Scale, mapping_words
from memrl_core.policies import settings_that_fit
from memrl_core.records import EventKind
from memrl_core.settings import PolicySettings
from pages.rewards.panel import SCALES
from pages.shared.person import person, within_role
from pages.shared.picture import show_table
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal, minute

COMBINING = {
    "human_rewards": {
        "override": "A person's reward takes the place of the environment's",
        "mean": "Half of each",
        "both": "Both: the environment's moves q first, then the person's",
    },
    "several_raters": {
        "mean": "The mean of their rewards",
        "majority": "What most of them gave; the mean where no one has most",
    },
}
OWN = ("thumbs_up", "thumbs_down", "better", "worse", "tie")


def rules(place: Place) -> None:
    """How rewards of people and environment combine, and what each scale is worth, for one run."""
    bank = place.bank
    run = place.info.id
    look = within_role(bank, Role.MANAGE)
    if look["disabled"]:
        st.info("You may look at these rules. Only someone who may manage this bank changes them.")
    left, right = st.columns(2, gap="large")
    with left:
        _combining(bank, run, look)
    with right:
        _scales(bank, run, look)


def _combining(bank: MemoryBank, run: str, look: Mapping[str, Any]) -> None:
    st.subheader("Which rewards count", anchor=False)
    try:
        current = settings_that_fit(bank.run(run).policy, bank.settings(run))
    except SettingsError:
        st.info(
            "The method of this run is not installed here, so its rules can be looked at in the audit and not changed. "
            "Nothing is lost; install its package to change them."
        )
        return
    version = _last_change(bank, run, EventKind.SETTINGS_CHANGED)
    with st.form(f"combining{version}", border=False):
        chosen = {
            name: st.selectbox(
                PolicySettings.model_fields[name].title or name, list(words), list(words).index(getattr(current, name)),
                format_func=words.__getitem__, key=f"{name}_{run}{version}",
            )
            for name, words in COMBINING.items()
        }  # fmt: skip
        everything = st.checkbox(
            "For the whole run, from its first step on", key="combining_all",
            help="Then every q is folded anew. Otherwise it holds from the next step on.",
        )  # fmt: skip
        saved = st.form_submit_button("Save the rule", type="primary", icon=":material/save:", **look)
    st.caption(
        "Rewards of people and of the environment are separate facts. A rule only says which of them move q; it can be "
        "changed back, and the facts stay."
    )
    if not saved:
        return
    with errors_shown():
        if everything:
            bank.write.change_settings_throughout(run, chosen, by=person())
        else:
            bank.write.change_settings(run, {**current.model_dump(), **chosen}, bank.next_step(run), by=person())
        st.toast("Saved.", icon=":material/save:")
        st.rerun()


def _last_change(bank: MemoryBank, run: str, kind: EventKind) -> str:
    """The newest change of this kind, shown above its form, whose keys hold it: others' changes then come in whole."""
    newest = max(bank.events(run, (kind,)), key=lambda e: (e.seq, e.id), default=None)
    if newest is None:
        return ""
    st.caption(literal(f"Last changed by {newest.rater or 'the program'}, {minute(newest.created)}."))
    return f"_{newest.id}"


def _scales(bank: MemoryBank, run: str, look: Mapping[str, Any]) -> None:
    st.subheader("What a rating is worth", anchor=False)
    now, (low, high) = bank.ratings.scales(run), bank.ratings.bounds(run, bank.next_step(run))
    show_table(
        [{"scale": SCALES[scale], "R": mapping_words(now, scale, low, high)} for scale in get_args(Scale)],
        "scale_words",
        "Each scale with the reward that each rating becomes",
    )
    version = _last_change(bank, run, EventKind.SCALES_CHANGED)
    with st.form(f"scales{version}", border=False):
        scale = st.selectbox(
            "The scale that the queue offers first", get_args(Scale), get_args(Scale).index(now.scale),
            format_func=SCALES.__getitem__, key=f"scale_{run}{version}",
        )  # fmt: skip
        blind = st.checkbox(
            "Rate blind", now.hide_verdict, key=f"blind_{run}{version}",
            help=RatingScales.model_fields["hide_verdict"].description,
        )  # fmt: skip
        wanted = st.number_input(
            "Ratings wanted of each step", 1, 20, now.ratings_wanted, key=f"wanted_{run}{version}",
            placeholder="one, and two once two people have rated",
        )  # fmt: skip
        with st.expander("Own rewards for thumbs, stars and pairs"):
            st.caption(f"Empty: r− = {low:g}, r+ = {high:g} and equal parts between. From −10 to 10.")
            own: dict[str, Any] = {
                name: st.number_input(
                    RatingScales.model_fields[name].title or name, -10.0, 10.0, getattr(now, name), step=0.1,
                    key=f"{name}_{run}{version}", placeholder="the run's",
                )
                for name in OWN
            }  # fmt: skip
            stars = st.text_input(
                "R of 1 … 5 stars, five numbers", " ".join(f"{r:g}" for r in now.stars or ()),
                key=f"stars_{run}{version}", placeholder="-1 -0.5 0 0.5 1", max_chars=80,
            )  # fmt: skip
        with st.expander("Criteria of the rubric"):
            criteria = st.data_editor(
                [{"criterion": c.name, "weight": c.weight} for c in now.criteria],
                num_rows="dynamic",
                hide_index=True,
                key=f"criteria_{run}{version}",
                column_config={"weight": st.column_config.NumberColumn("weight", min_value=0.01, max_value=100.0)},
            )
        saved = st.form_submit_button("Save the scales", type="primary", icon=":material/save:", **look)
    st.caption("Rewards that were given already keep the value they had.")
    if not saved:
        return
    with errors_shown():
        chosen = RatingScales.of(
            {
                "scale": scale,
                "hide_verdict": blind,
                "ratings_wanted": wanted,
                **own,
                "stars": tuple(stars.replace(",", " ").split()) or None,
                "criteria": tuple(
                    {"name": str(row["criterion"]), "weight": row["weight"] or 1.0}
                    for row in criteria
                    if row["criterion"]
                ),
            }
        )
        bank.write.ratings.change_scales(run, chosen, person())
        st.toast("Saved.", icon=":material/save:")
        st.rerun()
