"""What would have let a memory that was reranked away win: another λ, or another q."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision.spectrum import required_q
from memrl_core.analysis.decision.whatif import situation_of
from memrl_core.analysis.recall.queries import Fate, Query, weights_that_select
from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.numerals import signed
from pages.shared.text import literal


def winning(bank: MemoryBank, query: Query, fate: Fate) -> None:
    """The λ and the q at which the memory would be selected."""
    trace = bank.trace(query.run, query.step)
    try:
        stretches = weights_that_select(trace, fate.memory_id)
        if stretches:
            where = ", ".join(f"{low:.3f} – {high:.3f}" for low, high in stretches)
            weight = float(query.settings.get("weight", 0.0))
            st.markdown(f"It would be selected at λ {where} (the step had {weight:g}).")
        else:
            st.markdown("No λ would select it.")
        needed = required_q(situation_of(bank, trace), fate.memory_id)
        if needed.needed is None:
            st.markdown(literal(needed.note))
        else:
            st.markdown(
                f"It would be selected with a q {needed.beyond} {signed(needed.needed)} (it had {signed(needed.now)})."
            )
    except MemRLError as error:
        st.caption(literal(str(error)))
