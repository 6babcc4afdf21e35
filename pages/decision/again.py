"""Questions that ask the model again: an answer without a memory, and each memory's share in the reward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

import streamlit as st

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.rerun import MOST_RERUNS, Credit, Method, Rerun, Rerunner, cost, credit
from memrl_core.agent.run_parts import SIMULATED
from memrl_core.agent.runs import rerunner
from memrl_core.analysis.decision.outline import reply_notes
from memrl_core.analysis.memory.exposure import attempts
from memrl_core.analysis.memory.provenance import contamination
from memrl_core.bank.people.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.learning import memrl_rule
from memrl_core.models.base import Cancelled, Progress
from memrl_core.numerals import signed
from memrl_core.records import GenerateRecord, LedgerEvent, Message
from pages.decision.case import Case
from pages.shared.models import chat_model_choice
from pages.shared.person import person, role_to_take_back, within_role
from pages.shared.picture import show_table
from pages.shared.text import errors_shown, literal, verbatim
from pages.shared.work import asked_for, working

SHOWN = 200
HEIGHT = 340


def prompt(case: Case, a: str) -> None:
    """What did the model read, in which order, and what does it answer without A?"""
    record = case.trace.generate
    if record is None:
        st.info("The prompt of this step was not stored.")
        return
    placed = [span.memory_id for span in record.spans]
    given = case.trace.decision.selected if case.trace.decision else tuple(placed)
    st.markdown(f"The model read {literal(', '.join(map(case.label, placed or given)) or 'no memory')}, in this order.")
    if unplaced := [case.label(i) for i in given if i not in placed]:
        st.caption(literal(f"Where in the prompt these stood is not known: {', '.join(unplaced)}."))
    left, right = st.columns(2)
    with left, st.container(height=HEIGHT, key="asked_prompt"):
        for message in record.messages:
            st.caption(f"{message.role} message")
            verbatim(message.content)
    with right, st.container(height=HEIGHT, key="asked_answer"):
        st.caption("answer as recorded" + (" · simulated model" if record.simulated else ""))
        _conversation(record)
    rerunner = _rerunner(case)
    if rerunner is None or not rerunner.memories:
        return
    without = st.multiselect(
        "Answer again without",
        rerunner.memories,
        default=[a] if a in rerunner.memories else [],
        format_func=case.label,
        key=f"without_{case.trace.id}_{a}",
    )
    kept = tuple(i for i in rerunner.memories if i not in without)
    st.caption(f"One episode of {_who(case, record)} with the same seed. Nothing is stored.")
    asked = f"{case.trace.id}·{kept}"
    if not asked_for("Answer again", "rerun", ":material/replay:", asked, type="primary"):
        return
    found = working("rerun", asked, lambda _, cancelled: rerunner.rerun(kept, cancelled=cancelled), "answers")
    if found is None:
        return
    before = case.trace.reward
    then = "no reward" if before is None or before.reward is None else f"reward {signed(before.reward)}"
    now = "no reward" if found.reward is None else f"reward {signed(found.reward)}"
    answers = [turn.reply.text for turn in found.generate.turns]
    same = case.trace.generate is not None and answers == [turn.reply.text for turn in case.trace.generate.turns]
    verdict = "**The same answer**" if same else "**Another answer**"
    st.markdown(f"{verdict}: {now} instead of {then}." if now != then else f"{verdict}, {now} as before.")
    with st.container(height=HEIGHT, key="answered_again"):
        _conversation(found.generate)
        if found.verdict:
            st.caption("verdict")
            verbatim(found.verdict)


def _conversation(record: GenerateRecord) -> None:
    for turn in record.turns:
        verbatim(turn.reply.text or "(nothing)")
        if turn.observation:
            st.caption("and the environment")
            verbatim(turn.observation)


def prompt_again(case: Case) -> None:
    """What does this prompt get with another temperature, seed, model or text?"""
    record = case.trace.generate
    if record is None:
        st.info("The prompt of this step was not stored.")
        return
    # Whether the run's own model can be had is asked when it is chosen.
    if _rerunner(case, SIMULATED) is None:
        return
    with st.form("prompt_again", border=False):
        model, temperature, seed = st.columns([2, 1, 1], vertical_alignment="bottom")
        with model:
            chosen = chat_model_choice("again", own=case.bank.run(case.run).model)
        warmth = temperature.number_input(
            "Temperature", 0.0, 2.0, float(record.options.get("temperature", 0.0)), 0.1, key=f"again_t_{case.trace.id}"
        )
        drawn = seed.number_input(
            "Seed", 0, 2**31 - 1, int(record.options.get("seed", 0)), key=f"again_seed_{case.trace.id}"
        )
        messages = tuple(
            Message(
                message.role,
                st.text_area(
                    f"{message.role} message", message.content, key=f"again_{n}_{case.trace.id}",
                    height=HEIGHT if message.role == "user" else "content",
                ),
            )
            for n, message in enumerate(record.messages)
        )  # fmt: skip
        if layout := {"block": "", None: ""}.get(record.options.get("layout"), record.options.get("layout")):
            st.caption(literal(f"Memories are laid out as {layout} when this is sent, as they were in the run."))
        if st.form_submit_button("Run this prompt", type="primary", icon=":material/play_arrow:"):
            st.session_state["asked_prompt"] = (case.trace.id, chosen, warmth, drawn, messages)
    asked = st.session_state.get("asked_prompt")
    st.caption("The episode is played to its end in the step's own world. Nothing is stored, and no q moves.")
    if asked is None or asked[0] != case.trace.id:
        return
    _, name, warmth, drawn, messages = asked

    begin = partial(rerunner, case.bank, case.trace, load_preferences(), name)
    found = working("prompt", repr(asked), _Episode(begin, messages, warmth, drawn), "turns", _Episode.draw)
    if found is None:
        return
    before = case.trace.reward
    left, right = st.columns(2)
    with left:
        st.markdown(f"**Recorded** · {literal(record.model)}")
        _answered(record, before.reward if before else None, before.verdict if before else "", "asked_recorded")
    with right:
        st.markdown(f"**Now** · {literal(found.generate.model)}" + (" · stopped" if found.stopped else ""))
        _answered(found.generate, found.reward, found.verdict, "asked_now")


class _Episode:
    """A prompt to be answered: `record` has the turns that are over, `text` what came of the one under way."""

    def __init__(
        self, begin: Callable[[], Rerunner], messages: tuple[Message, ...], temperature: float, seed: int
    ) -> None:
        self.record: GenerateRecord | None = None
        self.text = ""
        self._begin, self._asked = begin, (messages, temperature, seed)

    def __call__(self, report: Progress, cancelled: Cancelled) -> Rerun:
        return self._begin().rerun_prompt(*self._asked, self._take, cancelled, self._turned)

    def _take(self, piece: str) -> None:
        self.text += piece

    def _turned(self, record: GenerateRecord) -> None:
        self.record, self.text = record, ""

    def draw(self) -> None:
        """What there is so far."""
        if self.record is not None:
            _conversation(self.record)
        if self.text:
            verbatim(self.text)


def _answered(record: GenerateRecord, reward: float | None, verdict: str, key: str) -> None:
    """One side: what it was worth, whether it could be used, what it took, and what was said."""
    replies = [turn.reply for turn in record.turns]
    turns = "1 turn" if len(replies) == 1 else f"{len(replies)} turns"
    facts = ["no reward" if reward is None else f"reward {signed(reward)}", turns]
    if unusable := sum(reply.offered is False or not reply.text for reply in replies):
        facts.append(f"{unusable} of them not valid")
    for count, what in (
        (sum(reply.prompt_tokens or 0 for reply in replies), "read"),
        (sum(reply.answer_tokens or 0 for reply in replies), "written"),
    ):
        if count:
            facts.append(f"{count:,} tokens {what}")
    facts.append(f"{sum(reply.seconds for reply in replies):.2f} s")
    st.markdown(literal(" · ".join(facts)))
    if notes := dict.fromkeys(note for reply in replies for note in reply_notes(reply)):
        st.caption(literal("; ".join(notes)))
    with st.container(height=HEIGHT, key=key):
        _conversation(record)
        if verdict:
            st.caption("verdict")
            verbatim(verdict)


def shares(case: Case) -> None:
    """Who earned the reward?"""
    rerunner = _rerunner(case)
    if rerunner is None:
        return
    if not rerunner.memories:
        st.info("No memory was in this prompt, so there is nothing to share the reward among.")
        return
    if not rerunner.rewarded:
        st.info("Here people give the reward, so an answer that nobody has seen has none: there is nothing to share.")
        return
    standing = case.bank.credits.standing(case.run, case.trace.step)
    if standing is not None:
        _standing(case, standing)
    count = len(rerunner.memories)
    methods = [method for method in get_args(Method) if cost(method, count) <= MOST_RERUNS]
    if not methods:
        st.info(f"{count} memories were in the prompt: even leave-one-out would need more than {MOST_RERUNS} answers.")
        return
    chosen: Method = st.segmented_control("Method", methods, default=methods[0], required=True, key="share_method")
    assert case.trace.generate is not None
    needed = cost(chosen, count)
    seconds = sum(turn.reply.seconds for turn in case.trace.generate.turns)
    st.markdown(
        f"This asks {_who(case, case.trace.generate)} for **{needed} answers** with the same seed, about "
        f"{max(1, round(needed * seconds))} s by the time this step took. q is not touched."
    )
    asked = f"{case.trace.id}·{chosen}"
    if not asked_for("Find the shares", "find_shares", ":material/balance:", asked, type="primary"):
        return

    def share(report: Progress, cancelled: Cancelled) -> Credit | None:
        return credit(chosen, rerunner.memories, partial(rerunner.rerun, cancelled=cancelled), report, cancelled)

    found = working("shares", asked, share, "answers")
    if found is not None:
        _shares(case, found, standing is not None)


def _shares(case: Case, found: Credit, assigned: bool) -> None:
    low, high = case.recorded.reward_failure, case.recorded.reward_success
    own = found.rewards(low, high)
    reward = case.bank.ratings.effective(case.run, case.trace.step)
    utilities = case.bank.utilities(case.run, case.trace.step - 1)
    rule = partial(memrl_rule, settings=case.recorded.model_dump())
    rows = [
        {
            "memory": case.label(i),
            "share": share,
            "own reward": own[i],
            "MemRL's reward": reward,
            "q then": utilities[i].q,
            "q by own reward": rule(utilities[i], own[i]),
            "q by MemRL": None if reward is None else rule(utilities[i], reward),
        }
        for i, share in found.shares.items()
    ]
    recorded = case.trace.reward.reward if case.trace.reward else None
    show_table(
        rows,
        "shares",
        "Each memory's share in the reward, beside MemRL's equal credit",
        signs=(name for name in rows[0] if name != "memory"),
    )
    if recorded is not None and recorded != found.reached:
        st.warning(
            f"With all memories the model now reached {signed(found.reached)}, not {signed(recorded)} as recorded: it "
            "does not answer alike each time, so the shares hold chance as well."
        )
    st.caption(
        "Half of a share, counted from the middle of r− and r+, is a memory's own reward: what made no difference gets "
        "the middle. MemRL gives every memory in the prompt the whole reward."
    )
    if reward is None or assigned:
        return
    look = within_role(case.bank, Role.RATE)
    if st.button("Let these count for q in this step", key="apply_shares", icon=":material/done_all:", **look):
        with errors_shown():
            case.bank.write.credits.assign(case.run, case.trace.step, case.trace.id, own, person(), found.method)
            st.rerun()


def _standing(case: Case, standing: LedgerEvent) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(f"In this step each memory's own reward counts ({literal(standing.reason)}), instead of one for all.")
        look = within_role(case.bank, role_to_take_back(standing))
        if st.button("Undo", key="undo_shares", icon=":material/undo:", **look):
            with errors_shown():
                case.bank.write.credits.revoke(standing.id, person())
                st.rerun()


def contaminated(case: Case) -> None:
    """How much of q is company?"""
    count = sum(len(chosen or ()) + 1 for chosen in attempts(case.bank, case.run)["selected"])
    st.markdown(
        "Every memory in a prompt gets the whole reward. Here every step is answered again with each of its memories "
        f"left out, about **{count:,} answers** in all; what a memory changes is its own reward. q is not touched."
    )
    asked = f"{case.bank.state}·{case.run}"
    if not asked_for("Measure", "measure_company", ":material/balance:", asked, type="primary"):
        return
    preferences = load_preferences()
    found = working(
        "company", asked,
        lambda *progress: contamination(
            case.bank, case.run, lambda trace: rerunner(case.bank, trace, preferences), *progress
        ),
        "steps answered again",
    )  # fmt: skip
    if found is None:
        return
    if found.share is None:
        st.info("No q of this run was moved yet, so there is nothing to take apart.")
        return
    st.markdown(f"**{100 * found.share:.0f} % of this run's q is company** ({found.steps:,} steps answered again).")
    rows = found.memories.head(SHOWN).assign(memory=found.memories["memory_id"].head(SHOWN).map(case.label))
    show_table(
        rows.drop(columns="memory_id")[["memory", "visits", "q", "earned", "company"]].to_dict("records"),
        "company",
        "q as credited beside q as earned, largest difference first",
        signs=("q", "earned", "company"),
    )
    st.caption(
        "Earned: the run's own rule, with each memory's leave-one-out reward in the place of the whole one. Company: "
        "the difference. The share is Σ|company| / (Σ|company| + Σ|earned|)."
    )


def _rerunner(case: Case, model: str = "") -> Rerunner | None:
    try:
        return rerunner(case.bank, case.trace, load_preferences(), model)
    except MemRLError as error:
        st.info(literal(str(error)))
        return None


def _who(case: Case, record: GenerateRecord) -> str:
    return "the simulated model" if record.simulated else f"the model {literal(record.model)}"
