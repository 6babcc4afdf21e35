"""Which labels count: those of which source, and which grade raters that differ give together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import streamlit as st

from memrl_core.analysis.recall.grades import SOURCES, Judged, Rule, judged
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import Label, LabelSource
from pages.shared.place import Place

ALL = "all"
RULES: tuple[Rule, ...] = get_args(Rule)


@dataclass(frozen=True)
class Which:
    """The labels that count: `derived` by the environment on the fly, else those that are stored."""

    rule: Rule = "majority"
    sources: tuple[LabelSource, ...] = SOURCES
    derived: bool = False

    def among(self, bank: MemoryBank, run: str) -> list[Label]:
        """The labels of a run that stand and are of these sources."""
        return [label for label in bank.judgements.standing(run) if label.source in self.sources]

    def of(self, bank: MemoryBank, run: str) -> dict[int, Judged]:
        """The grades of a run by step."""
        return judged(bank.judgements.standing(run), self.rule, self.sources)


def chosen_labels(place: Place) -> Which:
    """A button of the page's bar; nothing is asked where there is nothing to choose from."""
    if not place.bank.judgements.standing(place.info.id):
        return Which()
    with st.popover("Which labels", icon=":material/rule:", key="recall_which"):
        source = st.segmented_control(
            "Labels by", [ALL, *SOURCES], key="recall_source", default=ALL, required=True, bind="query-params",
            help="People, files, models or the environment. Of all, the first of these that labelled a memory counts.",
        )  # fmt: skip
        rule = st.segmented_control(
            "Raters that differ give together", RULES, key="recall_rule", default=RULES[0], required=True,
            bind="query-params", help="Majority: the middle grade, or the lower of two. Any: the highest. Strict: the "
            "lowest.",
        )  # fmt: skip
    return Which(rule, tuple(one for one in SOURCES if source in (ALL, one)))
