"""Questions about all steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from memrl_core.analysis.compare.counterfactual import BY_OTHERS, changes, counterfactual, ties_of, would_have_earned
from memrl_core.analysis.decision import explain
from memrl_core.analysis.memory.exposure import (
    AT_LEAST,
    ROLES,
    Role,
    Starvation,
    attempts,
    harm,
    left_out,
    profile,
    starvation,
    with_role,
)
from memrl_core.analysis.memory.provenance import under_another_alpha
from memrl_core.analysis.run.calibration import Calibration, in_sample, prequential
from memrl_core.analysis.run.following import follow_counts, funnel
from memrl_core.analysis.run.over_time import forgetting, losses, q_by_epoch, transfer
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.figures.decision.recall import similarity_picture
from memrl_core.figures.memory.utility import use_picture
from memrl_core.figures.run.reliability import funnel_picture, q_by_epoch_picture, reliability_picture
from memrl_core.numerals import fixed, percent, signed
from pages.decision.case import Case, chosen_step, over_steps, uses_of
from pages.shared import place as places
from pages.shared.forms import gate_of_bank
from pages.shared.picture import chosen_row, show, show_table
from pages.shared.text import literal

SHOWN = 200


def misleading(case: Case) -> None:
    """Which memories mislead, and which help from afar?"""
    _roles(case, ("distractors", "far but useful"))


def hurt(case: Case) -> None:
    """Which memories hurt most?"""
    memories = {memory.id: memory for memory in case.bank.memories()}
    found = harm(uses_of(case), case.bank.histories(case.run), memories)
    if found.empty:
        st.markdown("No memory was given to the model in a step that has a reward, so none has hurt.")
        return
    by = st.segmented_control("Lowest first by", ["earned", "credited"], default="earned", key="hurt_by", required=True)
    found = found.sort_values([by, "memory_id"], kind="stable")
    worst = found.iloc[0]
    label, total = literal(case.label(str(worst["memory_id"]))), float(worst[by])
    if total < case.recorded.q_midpoint * worst["uses"]:
        st.markdown(f"**{label}** hurt most: its rewards add up to {signed(total)}.")
    else:
        st.markdown(f"None hurt on the whole: the lowest sum, {signed(total)}, has **{label}**.")
    rows = found.head(SHOWN)
    show_table(
        rows.assign(memory_id=rows["memory_id"].map(case.label)),
        "hurt_rows",
        "The memories by the sum of the rewards they earned, the lowest first",
        columns={"memory_id": "memory"},
        signs=("earned", "credited", "q"),
    )
    st.caption(
        "Earned: the rewards of the steps whose prompt held it, whoever else was in it. Credited: the rewards that "
        "moved its q. Neither says that it caused them: “Who earned the reward?” answers a step again without it."
    )


def overlooked(case: Case) -> None:
    """Which steps failed although a better memory was in the pool, unselected?"""
    table = uses_of(case)
    found = left_out(table)
    failed = int(table.loc[table["outcome"] == "failure", "step"].nunique())
    st.markdown(f"**{len(found):,} of {failed:,} failed steps** with a pool left out a memory with a higher q.")
    if found.empty:
        return
    rows = found.head(SHOWN)
    step = chosen_step(
        [
            {
                "step": one.step,
                "task": one.task,
                "best given": case.label(one.selected),
                "its q": one.q_selected,
                "best left out": case.label(one.left_out),
                "q of that": one.q_left_out,
                "rank by similarity": one.rank,
                "left out with a higher q": one.better,
            }
            for one in rows.itertuples()
        ],
        rows["step"].tolist(),
        "overlooked_rows",
        "Failed steps whose pool held an unselected memory with a higher q, the widest gap first",
        signs=("its q", "q of that"),
    )
    with st.container(horizontal=True):
        if step is not None and st.button(f"Open step {step}", icon=":material/history:", key="overlooked_step"):
            places.go_to_steps(step=step)
        if st.button("All of them on Steps", icon=":material/table_rows:", key="overlooked_all"):
            only = {"outcome": "failure", "better": "a higher q left out"}
            st.switch_page("pages/steps/page.py", query_params={**st.session_state["place"], **only})
    st.caption("q as it was before the step. A higher q is no proof that the memory would have helped here.")


def contrary(case: Case) -> None:
    """Which failures help, and which successes were luck?"""
    _roles(case, ("corrective failures", "lucky successes"))


def _roles(case: Case, roles: Sequence[Role]) -> None:
    memories = {memory.id: memory for memory in case.bank.memories(case.run)}
    k2 = case.recorded.k2
    found = profile(uses_of(case), case.bank.utilities(case.run), memories, k2)
    for role in roles:
        members = with_role(found, role, case.recorded.q_midpoint, k2)
        st.markdown(f"**{role.capitalize()}: {len(members):,}** · {ROLES[role]}")
        if members.empty:
            st.caption(f"None among the memories that were in at least {AT_LEAST} pools.")
            continue
        rows = members.head(SHOWN).assign(memory_id=members["memory_id"].head(SHOWN).map(case.label))
        show_table(
            rows[[*rows.columns.drop("intent"), "intent"]],
            f"role_{role}",
            f"The {role} of this run",
            columns={
                "memory_id": "memory",
                "q": "q now",
                "pools": "in pools",
                "near": f"in {k2} nearest",
                "selected": "given",
            },
            write={"q": signed, "similarity": fixed, "rank": partial(fixed, places=1), "success": percent},
        )
        st.caption("Rank and similarity are means over its pools; success is the share of its rated uses.")


def spread(case: Case) -> None:
    """How are the q spread, epoch by epoch?"""
    found = q_by_epoch(case.bank, case.run, uses_of(case))
    if found.empty:
        st.info("This run has no memory yet. Play some steps first; then this shows how their q are spread.")
        return
    show(q_by_epoch_picture(found), "q_by_epoch")
    if found["never recalled"].isna().all():
        names = ", ".join(f"{row.epoch}: {literal(row.run)}" for row in found.itertuples())
        several = f"The checkpoints of these memories in this bank, the one with the fewest updates first: {names}."
        alone = "Import the checkpoints of other epochs into this bank to see q over the run."
        st.caption(
            "A checkpoint holds the q and the visits that each memory had when it was written, and no more: it cannot "
            "tell which memories were never recalled, nor how q lay before. " + (several if len(found) > 1 else alone)
        )


def calibrated(case: Case) -> None:
    """Is q calibrated?"""
    low, high = case.recorded.reward_failure, case.recorded.reward_success
    table = uses_of(case)
    before = prequential(table, low, high)
    after = in_sample(table, case.bank.utilities(case.run), low, high)
    st.markdown(f"**{literal(explain.calibrated(before.per_use))}**")
    for found, says in (
        (before, "**Prequential**: q before each step against the outcome of that step"),
        (after, "**In-sample**: q now against the outcomes that made it, as the paper's figure does"),
    ):
        st.markdown(says)
        _calibration(case, found)


def _calibration(case: Case, found: Calibration) -> None:
    unit = "Per use" if found.kind == "prequential" else "Per memory"
    sentences = [explain.correlated(found.per_use, unit), explain.correlated(found.per_bin, "Per bin")]
    st.markdown("\n".join(f"- {literal(sentence)}" for sentence in sentences))
    if found.bins.empty:
        st.caption("No rated use yet.")
    else:
        show(reliability_picture(found, case.recorded.model_dump()), f"reliability_{found.kind}")


def came_how_far(case: Case) -> None:
    """How far do recalls get: recalled, selected, followed, right?"""
    found = over_steps(case, "funnel", lambda *progress: funnel(case.bank, case.run, *progress))
    if found is None:
        return
    show(funnel_picture(found), "funnel")
    counts = follow_counts(case.bank.each_trace(case.run))
    if counts.sentence:
        st.markdown(literal(f"{counts.sentence[0].upper()}{counts.sentence[1:]}."))
    if counts.warning:
        st.warning(literal(counts.warning))
    st.caption(
        "Each stage counts among the steps that came to the stage before, where that is known: an answer in free text "
        "follows nobody knows what. Right: such an answer is a success as rewards count now; it may be right by luck."
    )


def changed(case: Case) -> None:
    """What changed between two steps?"""
    first, last = case.place.first_step, case.place.last_step
    if last <= first:
        st.info("The run has one step so far: there is nothing to compare yet.")
        return
    since = case.place.step if case.place.step is not None and case.place.step < last else first
    earlier, later = st.slider(
        "From the end of step … to the end of step …", first, last, (since, last), key=f"changed_{case.run}_{since}"
    )
    if earlier == later:
        st.info("Choose two different steps.")
        return
    added, moved = changes(case.bank, case.run, earlier, later)
    st.markdown(f"Memories added: **{len(added):,}**. q moved: **{len(moved):,}**.")
    if len(moved):
        rows = moved.head(SHOWN)
        show_table(
            rows.assign(
                memory_id=rows["memory_id"].map(case.label),
                change=rows["after"] - rows["before"],
                intent=[case.memory(i).intent for i in rows["memory_id"]],
            ),
            "moved",
            "The memories whose q moved, largest change first",
            signs=("before", "after", "change"),
            columns={"memory_id": "memory", "before": "q before", "after": "q after", "change": "Δ"},
        )


def earned(case: Case) -> None:
    """What would these settings have earned?"""
    if case.at is not None and not case.own:
        st.info(BY_OTHERS)
        return
    if not case.changed:
        st.info("Choose another λ, k2 or δ on the left: what it would have earned is estimated from the propensities.")
        return

    found = over_steps(case, "earned", lambda *progress: would_have_earned(case.bank, case.run, case.tried, *progress))
    if found is None:
        return
    rows = {
        "as it was": found.actual,
        "inverse propensity (IPS)": found.ips,
        "self-normalised": found.self_normalised,
        "doubly robust": found.doubly_robust,
    }
    show_table(
        [{"estimate": name, "mean reward": one.value, "low": one.low, "high": one.high} for name, one in rows.items()],
        "earned",
        "What the run earned a step, and what the other settings would have",
        signs=("mean reward", "low", "high"),
    )
    st.markdown(
        f"{found.steps:,} steps, worth **{found.effective:.1f}** of the other settings' own (effective sample size); "
        f"the largest weight is {found.heaviest:.1f}."
    )
    st.caption(
        "Intervals hold 95 % over steps drawn anew. Each choice is judged with the memories and q that the run really "
        "had; what other choices would have made of the memory is not in it. Few effective steps: trust none of it."
    )


def ties(case: Case) -> None:
    """How many choices were ties, and what would the other rule have done?"""
    found = over_steps(case, "ties", lambda *progress: ties_of(case.bank, case.run, *progress))
    if found is None:
        return
    st.markdown(
        f"**{found.either:,} of {found.steps:,} choices** went by a tie: {found.pool:,} at the cut of k1, "
        f"{found.prompt:,} at the cut of k2. The rule is *{found.rule}*; by *{found.other}* {len(found.changed):,} "
        "steps would have had other memories."
    )
    if found.changed:
        show_table(
            [
                {
                    "step": one.step,
                    "task": one.task,
                    f"by {found.rule}": explain.names(one.recorded, case.run),
                    f"by {found.other}": explain.names(one.selected, case.run),
                }
                for one in found.changed[:SHOWN]
            ],
            "by_ties",
            "Steps that the other rule for ties would have given other memories",
        )
    st.caption(
        "Each step is decided again with the memory and q it had. What a run under the other rule would have become is "
        "another question: start it with the setting *Ties*."
    )


def supposed(case: Case) -> None:
    """Would the run have gone otherwise under these settings?"""
    if not case.changed:
        st.info("Choose other settings on the left: every step of the run is then decided again under them.")
        return
    if case.tried.keys() == {"alpha"}:
        _other_alpha(case)
        return

    found = over_steps(case, "supposed", lambda *progress: counterfactual(case.bank, case.run, case.tried, *progress))
    if found is None:
        return
    differing = [one for one in found if one.differs]
    if not found:
        st.info("No step of this run was recorded with what a decision needs.")
        return
    if not differing:
        st.markdown(f"Not at all: in all {len(found):,} steps the same memories would have been selected.")
        return
    st.markdown(
        f"In **{len(differing):,} of {len(found):,} steps** other memories would have been selected, first in step "
        f"{differing[0].step}. What the model would have answered is not known: fork the run to find out."
    )
    step = chosen_step(
        [
            {
                "step": one.step,
                "task": one.task,
                "would enter": explain.names(one.entered, case.run),
                "would leave": explain.names(one.left, case.run),
            }
            for one in differing[:SHOWN]
        ],
        [one.step for one in differing[:SHOWN]],
        "supposed_rows",
        "The steps in which other memories would have been selected",
    )
    st.caption("Each step is decided in the state in which it really was, with only the settings tried out changed.")
    label = f"Look at step {step} under these settings"
    if step is not None and st.button(label, icon=":material/arrow_forward:", key="supposed_go"):
        places.go(step=step)
        st.rerun()


def _other_alpha(case: Case) -> None:
    """What every q would be under another α, with the same decisions and rewards."""
    alpha = case.weighed.alpha
    found = under_another_alpha(case.bank.histories(case.run), alpha)
    moved = found[found["rewards"] > 0]
    change = (moved["q_then"] - moved["q"]).abs()
    if moved.empty:
        st.markdown("No reward has moved a q in this run, so no α would have.")
        return
    st.markdown(
        f"With α = {alpha:g}, the same decisions and the same rewards, the **{len(moved):,} memories** that were "
        f"rewarded have a q that differs by {fixed(change.mean())} on average, at most {fixed(change.max())}."
    )
    rows = moved.head(SHOWN)
    show_table(
        rows.assign(
            memory_id=rows["memory_id"].map(case.label),
            change=rows["q_then"] - rows["q"],
            intent=[case.memory(i).intent for i in rows["memory_id"]],
        ),
        "other_alpha",
        "The memories by how much their q would differ, the largest difference first",
        columns={"memory_id": "memory", "q": "q now", "q_then": f"q with α = {alpha:g}", "change": "Δ"},
        signs=("q", "q_then", "change"),
    )
    st.caption(
        "Each q is computed anew from the rewards that moved it. Other q would have led to other choices and rewards: "
        "fork the run from a step to find out."
    )


def unused(case: Case) -> None:
    """What is never recalled, and how concentrated is use?"""
    if not case.bank.steps.rows(case.run):
        st.info(
            "No step of this run is here, so nothing says which memories were in a pool. “How are the q spread, epoch "
            "by epoch?” counts those whose q never moved."
        )
        return
    found = _starvation(case.bank, case.bank.state, case.run, case.recorded.delta, uses_of(case))
    with st.container(horizontal=True):
        st.metric("Never in a pool", len(found.never_recalled), width="content")
        st.metric("In pools, never given", len(found.never_selected), width="content")
        st.metric("Without a neighbour beyond δ", len(found.loners), width="content")
    if found.gini is not None:
        show(use_picture(found), "use_curve")
    lists = {
        "Never in a pool": found.never_recalled,
        "In pools, never given": found.never_selected,
        "Without a neighbour beyond δ": found.loners,
    }
    chosen = st.segmented_control("Show", list(lists), default="Never in a pool", required=True, key="unused_list")
    pools = uses_of(case)["memory_id"].value_counts()
    ids = sorted(lists[str(chosen)], key=lambda memory_id: -int(pools.get(memory_id, 0)))[:SHOWN]
    if not ids:
        st.caption("None.")
        return
    row = chosen_row(
        [
            {
                "memory": case.label(i),
                "in pools": int(pools.get(i, 0)),
                "written in step": case.memory(i).step or None,
                "intent": case.memory(i).intent,
            }
            for i in ids
        ],
        "unused_rows",
        f"{chosen}, those first that are in most pools",
    )
    if row is None:
        st.caption("Choose a row to see the steps that had the memory in their pool.")
    elif ids[row] in pools and st.button(
        f"Steps with {literal(case.label(ids[row]))} in their pool", icon=":material/table_rows:", key="unused_steps"
    ):
        st.switch_page("pages/steps/page.py", query_params={**st.session_state["place"], "pooled": ids[row]})


@st.cache_data(max_entries=8, show_spinner="Comparing every memory with every other …")
def _starvation(_bank: MemoryBank, state: str, run: str, delta: float, _uses: pd.DataFrame) -> Starvation:
    return starvation(_bank.view(run), _uses, threshold=1.0, delta=delta)


def fitting_gate(case: Case) -> None:
    """Which δ fits this bank?"""
    try:
        found = gate_of_bank(case.bank, case.bank.uri, case.bank.state, case.run)
    except InputError as error:
        st.info(literal(str(error)))
        return
    sampled = ", a sample of all" if found.sampled else ""
    st.markdown(
        f"**δ = {found.delta:.3f}**: a fifth of the pairs of intents in this run are more similar than that "
        f"({found.intents:,} intents{sampled}, {found.pairs:,} pairs, mean {signed(found.mean)}, sd {found.sd:.3f}). "
        f"In force here is δ = {case.recorded.delta:g}."
    )
    show(similarity_picture(found, case.recorded.delta), "gate_histogram")


def transferred(case: Case) -> None:
    """Is it transfer or memorisation?"""
    found = transfer(case.bank, case.run, uses_of(case))
    if found.empty:
        st.info("No memory was given to the model yet.")
        return
    uses = found.groupby("origin", observed=True)["uses"].sum()
    known = int(uses.drop("unknown", errors="ignore").sum())
    if known:
        same = int(uses.get("same task", 0)) / known
        st.markdown(f"**{percent(same)} of the uses** were of memories that the same task had written before.")
    else:
        st.markdown("From which tasks the memories came is not known.")
    show_table(
        found,
        "transfer",
        "Uses by epoch and by where the memory came from, with the successes of their steps",
        columns={
            "origin": "memory from",
            "share": "share of uses",
            "similarity": "mean similarity",
            "low": "from",
            "high": "to",
        },
        write={"share": percent, "similarity": fixed, "success": percent, "low": percent, "high": percent},
    )


def forgot(case: Case) -> None:
    """What was forgotten, and which change of memories went with it?"""
    table = _attempts(case.bank, case.bank.state, case.run)
    lost = losses(table)
    by_epoch = forgetting(table)
    if len(by_epoch) < 2:
        st.info(
            "Forgetting shows when tasks come again and are rated both times: let the run go through its tasks a "
            "second time, or rate its answers."
        )
        return
    st.markdown(
        f"**Failures after the same task had been solved at some time: {len(lost):,}**, "
        f"{by_epoch['lost_last'].sum():,} of them right after a success (the column *of these failed now*)."
    )
    show_table(
        by_epoch,
        "forgetting",
        "Forgetting by epoch",
        shares=("of_failures", "of_solved"),
        columns={
            "solved_last": "solved the time before",
            "lost_last": "of these failed now",
            "of_failures": "share of failures",
            "of_solved": "share of solved",
        },
    )
    if lost.empty:
        return
    step = chosen_step(
        [
            {
                "task": one.task,
                "solved in step": one.solved_step,
                "failed in step": one.failed_step,
                "no longer given": "not recorded" if one.left is None else explain.names(one.left, case.run),
                "given instead": "not recorded" if one.entered is None else explain.names(one.entered, case.run),
            }
            for one in lost.head(SHOWN).itertuples()
        ],
        lost["failed_step"].tolist(),
        "losses",
        "Tasks that were solved and failed later, with the memories that were swapped",
    )
    if step is not None and st.button(f"Open step {step}", icon=":material/history:", key="loss_step"):
        places.go_to_steps(step=step)


@st.cache_data(max_entries=4, show_spinner="Reading every step of the run …")
def _attempts(_bank: MemoryBank, state: str, run: str) -> pd.DataFrame:
    return attempts(_bank, run)
