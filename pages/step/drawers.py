"""What the stage has no room for, opened by a click on its phase: what was sent, every formula, verdicts."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Literal

import streamlit as st

from memrl_core.agent.memory import is_open
from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import rendered
from memrl_core.analysis.decision.explain import (
    contradiction,
    credited_because,
    normaliser_line,
    own_scores,
    score_formula,
    setting_notes,
    update_formula,
    warnings,
)
from memrl_core.analysis.decision.labels import memory_label, memory_labels, reason_sentence
from memrl_core.analysis.decision.moment import later_reward
from memrl_core.analysis.decision.outline import (
    BOUND,
    CUT_INTENT,
    TITLES,
    line,
    passages,
    reply_notes,
    tokens_of,
    valid_answers,
    value_label,
)
from memrl_core.analysis.decision.whatif import chosen_from, would_choose
from memrl_core.analysis.people.reward_effect import compiled, marked
from memrl_core.errors import BankError
from memrl_core.models.base import ModelOptions
from memrl_core.numerals import dimensions, signed
from memrl_core.policies import make_policy
from memrl_core.prompting import offered, sent
from memrl_core.records import (
    Candidate,
    Consulted,
    GenerateRecord,
    Judgement,
    MemoryOperation,
    MemorySpan,
    Message,
    Phase,
    Reply,
    StepTrace,
    Turn,
)
from pages.shared import place as places
from pages.shared.text import in_badge, literal, said, verbatim
from pages.shared.view import View, arm_line, spec_of
from pages.shared.work import working

PROMPT_HEIGHT = 420
ROLES: dict[str, Literal["gray", "blue", "violet", "green"]] = {
    "system": "gray",
    "user": "blue",
    "assistant": "violet",
    "tool": "green",
}
KEY, DRAWER = "stage", "drawer"
"""In the session: the stage, and the phase that is open on it, 1 to 7, or None."""
MOST_FORMULAS = 12
JUDGED_HEIGHT, MOST_LINES = 260, 9


def open_drawer() -> None:
    """Take over from the browser which phase a person has opened."""
    st.session_state[DRAWER] = st.session_state[KEY].get("drawer")


def close_drawer() -> None:
    """Close what is open; the browser follows."""
    st.session_state[DRAWER] = None


def drawer(view: View) -> None:
    """What there is to read of the phase that a person has opened; the browser lays it over a panel of the stage."""
    number = int(st.session_state.get(DRAWER) or 0)
    if number not in range(1, len(Phase) + 1):
        return
    phase = list(Phase)[number - 1]
    with st.container(key="drawer", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", key="drawer_head"):
            summary = line(view.counted, phase) if view.counted and view.moment.reached(phase) else ""
            said = f" — {literal(summary)}" if summary else ""
            st.markdown(f"**{number} · {_title(view, phase)}**{said}", width="stretch")
            st.button("Close", icon=":material/close:", type="tertiary", key="close_drawer", on_click=close_drawer)
        _content(view, phase)


def _title(view: View, phase: Phase) -> str:
    keeps_q = view.spec is None or view.spec.keeps_q
    return TITLES[phase] if phase is not Phase.UPDATE or keeps_q else "Update"


def _content(view: View, phase: Phase) -> None:
    reached, trace = view.moment.reached, view.moment.trace
    arriving = view.busy and view.live is not None and not view.live.total
    draw, ready = {
        Phase.EMBED: (_task, True),
        Phase.RECALL: (_retrievals, True) if trace is not None and trace.retrievals else (_pool, reached(Phase.RECALL)),
        Phase.SELECT: (_rerank, reached(Phase.SELECT)),
        Phase.GENERATE: (_arriving if arriving else _answer, arriving or reached(Phase.SELECT)),
        Phase.REWARD: (_reward, reached(Phase.GENERATE)),
        Phase.UPDATE: (_update, reached(Phase.UPDATE)),
        Phase.WRITE: (_new_memory, reached(Phase.WRITE)),
    }[phase]
    if ready:
        draw(view)
    elif view.busy and view.moment.next_phase is phase:
        st.caption("The agent is at it …")
    elif trace is not None and trace.origin != "agent":
        st.caption("This step came from elsewhere, without this part.")
    elif trace is not None and trace.skipped:
        assert trace.reward is not None
        st.caption(literal(f"The step ended before this part. {trace.reward.verdict}"))
    else:
        st.caption("Not reached yet: press **Step** (N).")


def _task(view: View) -> None:
    trace = view.moment.trace
    if trace is None:
        if view.run.tasks:
            st.caption("The first task comes from the list: press **Step** (N).")
        elif view.run.environment != "conversation":
            st.caption("This run has no step: its memories came without the tasks that wrote them.")
        return
    verbatim(trace.task.intent)
    facts = [f"step {trace.step}", f"epoch {trace.epoch}", f"seed of the run {view.run.seed}"]
    if trace.task.family:
        facts.append(f"family {trace.task.family}")
    if trace.embed:
        facts.append(f"embedded by {trace.embed.embedder} into {dimensions(trace.embed.dimension)}")
    st.caption(literal(" · ".join(facts)))
    if trace.embed and trace.embed.cut:
        st.warning(literal(CUT_INTENT.format(embedder=trace.embed.embedder)), icon=":material/content_cut:")
    rewarded = bool(view.place.bank.ratings.active(view.run.id, trace.step, trace.id))
    if sentence := is_open(trace, rewarded):
        st.info(literal(sentence), icon=":material/hourglass_top:")
    if trace.lacks:
        with st.expander(f"This step came from elsewhere: what it does not tell ({len(trace.lacks):,})", key="lacks"):
            for sentence in trace.lacks:
                st.text(sentence)


def _retrievals(view: View) -> None:
    """What another agent retrieved: a tab for each query, with the scores under the names that they have there."""
    found, run = view.trace.retrievals, view.run.id
    labels = [f"{n} · {literal(one.asked_by or one.name)}" for n, one in enumerate(found, start=1)]
    for number, (tab, one) in enumerate(zip(st.tabs(labels), found, strict=True)):
        with tab:
            verbatim(one.query or view.trace.task.intent)
            spent = "" if one.seconds is None else f"{1000 * one.seconds:,.0f} ms"
            facts = [f"scores: {one.name}", one.asked_by and f"asked by {one.asked_by}", one.scope, spent, one.at]
            st.caption(literal(" · ".join(filter(None, facts))))
            if not one.hits:
                st.info("This query found no memory.")
                continue
            st.dataframe(
                [
                    {
                        "rank": rank,
                        "memory": memory_label(hit.memory_id, run),
                        one.name: hit.score,
                        **({} if one.kind == "cosine" else {"cosine by the stored vectors": hit.cosine}),
                        "text": hit.text or _text(view, hit.memory_id),
                        "": "" if hit.known else "not seen by this run",
                    }
                    for rank, hit in enumerate(one.hits, start=1)
                ],
                key=f"retrieval_{number}",
                hide_index=True,
                alt="What this query found, the agent's best first, with its scores and the cosines by the vectors",
            )
            if sentence := contradiction(one, run):
                st.warning(literal(sentence), icon=":material/info:")
    ours = would_choose(view.place.bank, view.trace)
    if ours is not None:
        chosen = literal(memory_labels(ours, run) if ours else "no memory")
        title = make_policy(view.trace.policy, view.trace.settings).spec.title
        st.caption(
            f":material/functions: Ours, not the agent's: under the settings of this run {literal(title)} would have "
            f"chosen **{chosen}** of {chosen_from(view.trace)}."
        )


def _text(view: View, memory_id: str) -> str:
    """What a memory holds, also of one that was deleted; "" where the bank has none of that id."""
    try:
        return view.place.bank.memory(memory_id).experience
    except BankError:
        return ""


def _pool(view: View) -> None:
    trace = view.trace
    assert trace.recall is not None
    recall = trace.recall
    own = recall.rule == "own score"
    rows = [
        {
            "rank": seen.rank_recall,
            "memory": memory_label(seen.memory_id, trace.run),
            **({recall.signal or "score": seen.signal} if own else {}),
            "cosine by the stored vectors" if own else "similarity": seen.similarity,
            "in the pool": seen.reason is None,
            "intent": view.memories[seen.memory_id].intent if seen.memory_id in view.memories else "",
        }
        for seen in (*recall.pool, *recall.left_out)
    ]
    for sentence in setting_notes(trace.settings):
        st.warning(literal(sentence), icon=":material/info:")
    if not rows:
        st.info("Phase A looked at no memory: the pool is empty.")
        return
    st.dataframe(
        rows,
        key="pool_table",
        hide_index=True,
        alt="What phase A looked at, with rank, scores and whether it is in",
    )
    _consulted(trace, Phase.RECALL)


def _rerank(view: View) -> None:
    trace = view.trace
    assert trace.recall is not None and trace.decision is not None
    decision = trace.decision
    ranked = [c for c in decision.candidates if c.rank_select is not None]
    spec = spec_of(trace)
    if spec is not None and trace.policy != "memrl":
        arm_line(spec)
    _consulted(trace, Phase.SELECT)
    if not ranked:
        st.info(literal(decision.note) or "The pool is empty: there is nothing to rank, and the model gets no memory.")
        return
    if not any(candidate.terms for candidate in ranked):
        _chosen_without_scores(view, ranked)
        return
    if decision.note:
        st.info(literal(decision.note), icon=":material/info:")
    for sentence in (*warnings(trace.recall, decision, view.run.id), *setting_notes(trace.settings)):
        st.warning(literal(sentence), icon=":material/info:")
    by_rule = "(1 − λ) · similarity_z + λ · q_z" if decision.normaliser_lines else _sum_of_terms(ranked)
    if decision.normaliser_lines:
        by_rule += "".join(f" + {term.name}" for term in ranked[0].terms[2:])
    worth = f", with λ = {decision.weight:g}" if decision.normaliser_lines else ""
    st.markdown(literal(f"score = {by_rule}{worth}"))
    at_cut = ranked[: decision.k2 + 1]
    verbatim("\n".join(score_formula(candidate, view.run.id) for candidate in at_cut))
    _as_table(trace)
    if decision.normaliser_lines:
        st.caption(f"Normaliser **{literal(decision.normaliser)}** — {literal(normaliser_line(decision))}")
    if decision.log_propensity is not None:
        st.caption(f"This order is drawn with probability {decision.propensity:.3g} from these scores.")
    if view.moment.next_phase is None:
        _marked(view)
        _ask_link()


def _as_table(trace: StepTrace) -> None:
    """All candidates with every number that decided, for those who cannot see the stage."""
    assert trace.decision is not None and trace.recall is not None
    own = trace.recall.rule == "own score"
    signals = {one.memory_id: one.signal for one in trace.recall.pool}
    st.dataframe(
        [
            {
                "memory": memory_label(c.memory_id, trace.run),
                "rank A": c.rank_recall,
                **({trace.recall.signal or "score A": signals.get(c.memory_id)} if own else {}),
                "cosine by the stored vectors" if own else "similarity": c.similarity,
                "q": c.q,
                **{f"z {term.name}": term.normalised for term in c.terms},
                "score": c.score,
                "rank B": c.rank_select,
                "selected": c.selected,
                "why": reason_sentence(c, trace.recall, trace.decision),
            }
            for c in trace.decision.candidates
        ],
        key="candidates_table",
        hide_index=True,
        alt="The candidates of this step with similarity, q, both z, score, ranks and the reason",
    )


def _sum_of_terms(ranked: Sequence[Candidate]) -> str:
    terms = next(candidate.terms for candidate in ranked if candidate.terms)
    return " + ".join(term.name if term.weight == 1 else f"{term.weight:g} · {term.name}" for term in terms)


def _marked(view: View) -> None:
    """Says so when the rewards as they stand now would have put other memories before the model."""
    trace, bank = view.trace, view.place.bank
    choices = compiled(bank, view.run.id, (trace.step, trace.step))
    for step in marked(choices, bank.histories(view.run.id, view.moment.pool)) if choices else ():
        would = memory_labels(step.would, view.run.id)
        st.info(
            f"Rewards that came later changed the q of this pool: by what is known now of the steps before, this one "
            f"would have selected {literal(would)}. What it did is not rewritten.",
            icon=":material/bookmark:",
        )


def _chosen_without_scores(view: View, ranked: Sequence[Candidate]) -> None:
    chosen = memory_labels((c.memory_id for c in ranked if c.selected), view.run.id)
    st.markdown(f"The agent gave these to the model: **{literal(chosen)}**. By which scores is not recorded.")
    if view.trace.recall is not None and (sentence := own_scores(view.trace.recall, view.run.id)):
        st.warning(literal(sentence), icon=":material/info:")
    _ask_link()


def _ask_link() -> None:
    st.page_link(
        "pages/decision/page.py",
        label="Ask about this decision: what would change it, who earned the reward …",
        icon=":material/contact_support:",
    )
    st.page_link(
        "pages/methods/page.py",
        label="What would other methods have put before the model?",
        icon=":material/compare:",
        query_params={**st.session_state["place"], "show": "On this pool"},
    )


def _answer(view: View) -> None:
    trace = view.trace
    record = trace.generate or _prompt(view)
    _sent(view, record)
    if not record.turns:
        return
    valid, asked = valid_answers(trace)
    if valid < asked:
        st.warning(
            f"{asked - valid:,} of {asked:,} answers were not among the lines offered. Each of them cost a turn.",
            icon=":material/rule:",
        )
    with st.container(height=PROMPT_HEIGHT if len(record.turns) > 2 else "content", key="answer"):
        _turns(view, record, record.turns)
    _consulted(trace, Phase.GENERATE)


def _sent(view: View, record: GenerateRecord) -> None:
    """Show what the model reads in one turn, message by message."""
    trace = view.trace
    turn, layout = 0, record.options.get("layout") or "block"
    with st.container(horizontal=True, vertical_alignment="center"):
        what = "was sent" if record.turns else "will be sent"
        turns = len(record.turns)
        st.markdown(f"**Exactly what {what}**, laid out as {layout}", width="content")
        if turns > 1:
            turn = st.selectbox(
                "Turn", range(turns), format_func=lambda n: f"turn {n + 1} of {turns}", width=150,
                label_visibility="collapsed", key=f"prompt_turn_{trace.id}",
            )  # fmt: skip
    messages, spans = sent(record, turn, bound=_will_bind(view, record))
    _memories_in(view, record, turn, {span.memory_id for span in spans})
    with st.container(height=PROMPT_HEIGHT, key="prompt"):
        whole = {span.message: span for span in spans if span.end - span.start == len(messages[span.message].content)}
        # A memory that is sent as several messages stands in one frame.
        for span, group in groupby(enumerate(messages), lambda one: whole[one[0]].memory_id if one[0] in whole else ""):
            _messages(view, [*group], [] if span else spans, span)
    if trace.origin == "agent" and not record.simulated:
        _by_the_template(record, messages)


def _messages(view: View, messages: Sequence[tuple[int, Message]], spans: Sequence[MemorySpan], memory_id: str) -> None:
    """Numbered messages as they are, with a frame around each memory in them, or around all, which are `memory_id`."""
    if not memory_id:
        for number, message in messages:
            _role(message)
            _message(view, spans, number, message)
        return
    number = messages[0][0]
    with st.container(border=True, key=f"span_{number}_0"):
        _memory_button(view, memory_id, f"prompt_{number}_0", _q_then(view).get(memory_id))
        for _, message in messages:
            _role(message)
            verbatim(message.content)


def _by_the_template(record: GenerateRecord, messages: Sequence[Message]) -> None:
    """What the model's chat template makes of the messages, when a person asks for it."""
    wanted = st.toggle(
        "As the model reads it",
        key="prompt_template",
        help="The one text that the chat template of the model, as it is installed now, makes of these messages.",
    )
    if not wanted:
        return
    options, preferences = ModelOptions.model_validate(record.options), load_preferences()
    text = working(
        "template", f"{record.model} {hash(messages)}",
        lambda *_: rendered(record.model, messages, options, preferences), "messages",
    )  # fmt: skip
    if text is not None:
        with st.container(height=PROMPT_HEIGHT, key="prompt_as_read"):
            verbatim(text)


def _role(message: Message) -> None:
    st.badge(message.role, color=ROLES[message.role])


def _will_bind(view: View, record: GenerateRecord) -> bool:
    """Whether the next turn holds the model to the lines that it is offered."""
    choices = offered(record.turns[-1].observation if record.turns else record.messages[-1].content)
    return bool(choices) and view.live is not None and view.live.agent.model.binds


def _memories_in(view: View, record: GenerateRecord, turn: int, framed: Collection[str]) -> None:
    """A button for each memory that the turn was sent and that has no frame in the messages."""
    left_out = record.turns[turn].left_out if record.turns else ()
    remaining = dict.fromkeys(span.memory_id for span in record.spans if span.memory_id not in (*left_out, *framed))
    if remaining:
        with st.container(horizontal=True, gap="small"):
            for memory_id in remaining:
                _memory_button(view, memory_id, f"sent_{memory_id}", _q_then(view).get(memory_id))


def _q_then(view: View) -> dict[str, float]:
    # Why it is in the prompt follows from the q at the decision, not by what the step then made of it.
    trace = view.moment.trace
    return {c.memory_id: c.q for c in trace.decision.candidates} if trace and trace.decision else {}


@st.fragment(run_every=0.4)
def _arriving(view: View) -> None:
    """The turn under way with the text that is arriving, and below it the one before."""
    assert view.live is not None
    waiting, episode = view.live.waiting, view.live.episode
    with st.container(border=True, key="streamed"):
        st.caption(literal(waiting.line) or "Setting up the task …")
        if waiting.text:
            verbatim(waiting.text)
    record = episode.trace.generate if episode is not None and episode.phase is not None else None
    if record is not None:
        st.caption("The turn before:")
        _turns(view, record, record.turns[-1:])


def _turns(view: View, record: GenerateRecord, turns: Sequence[Turn]) -> None:
    """What came back in each turn, and what the world said to it."""
    who = "simulated model" if record.simulated else record.model
    for turn in turns:
        if turn.recalled is not None:
            with st.chat_message("memory", avatar=":material/database:"):
                st.caption(literal(f"Memory was asked before this turn: {turn.recalled.why}"))
                verbatim(turn.recalled.text or "(nothing was added)")
        with st.chat_message("assistant", avatar=":material/smart_toy:"):
            st.badge(in_badge(who), color="violet" if record.simulated else "green")
            if turn.reply.thinking:
                with st.expander("Thinking, which is no part of the answer"):
                    verbatim(turn.reply.thinking)
            said(view.run.environment, turn.reply.text or "(nothing had arrived)")
            _about_reply(turn.reply)
        for tool in turn.tools:
            with st.chat_message("tool", avatar=":material/build:"):
                st.caption(literal(f"Tool {tool.name}"))
                verbatim(tool.arguments or "(no arguments)")
                verbatim(tool.result or "(no result)")
        if turn.observation:
            with st.chat_message("user", avatar=":material/public:"):
                verbatim(turn.observation)


def _prompt(view: View) -> GenerateRecord:
    assert view.live is not None and view.live.episode is not None
    return view.live.episode.prompt()


def _message(view: View, spans: Sequence[MemorySpan], number: int, message: Message) -> None:
    """A message as it is, with a frame around each memory in it."""
    q = _q_then(view)
    for start, text, memory_id in passages(message.content, (span for span in spans if span.message == number)):
        if memory_id:
            with st.container(border=True, key=f"span_{number}_{start}"):
                _memory_button(view, memory_id, f"prompt_{number}_{start}", q.get(memory_id))
                verbatim(text)
        elif text.strip():
            verbatim(text.strip("\n"))


def _about_reply(reply: Reply) -> None:
    parts = [f"{reply.seconds:.2f} s", *tokens_of(reply)]
    if reply.stopped:
        parts.append("**stopped**: kept as it was, no automatic reward")
    parts += [literal(note) if note == BOUND else f"**{literal(note)}**" for note in reply_notes(reply)]
    st.caption(" · ".join(parts))


def _reward(view: View) -> None:
    trace = view.trace
    given = view.counted.reward if view.counted else None
    if given is not None:
        verdict, value, judgement = given.verdict, given.reward, given.judgement
    else:
        assert view.live is not None and view.live.episode is not None
        episode = view.live.episode
        verdict, value, judgement = episode.verdict, episode.environment_reward, episode.judgement
    if given is not None and given.source == "person" and value is not None:
        by = given.rater or "a person"
        st.markdown(f"**{signed(value)}** from {literal(f'{by}: {given.reason}' if given.reason else by)}")
        value = given.environment
    st.markdown(f"The environment: {'no reward of its own' if value is None else f'reward **{signed(value)}**'}")
    verbatim(verdict)
    if judgement is not None:
        _judged(judgement)
    if later := later_reward(view.place.bank, trace):
        st.info(literal(later))


def _update(view: View) -> None:
    trace = view.counted
    assert trace is not None and trace.update is not None
    if not trace.update.changes:
        st.info(f"No value moved: {_why_nothing_moved(view)}.")
        _consulted(trace, Phase.UPDATE)
        return
    of_q = trace.update.of_q
    if because := credited_because(trace):
        st.markdown(literal(because))
    now = view.place.bank.utilities(view.run.id, of=[change.memory_id for change in of_q])
    if of_q:
        st.dataframe(
            [
                {
                    "memory": memory_label(change.memory_id, view.run.id),
                    "reward": change.reward,
                    "q": change.before,
                    "→ q": change.after,
                    "Δ": change.after - change.before,
                    "now": now[change.memory_id].q if change.memory_id in now else None,
                }
                for change in of_q
            ],
            key="credited_table",
            hide_index=True,
            alt="The memories that are credited, each with its q before and after this step, and now",
        )
    verbatim("\n".join(update_formula(change, view.run.id) for change in trace.update.changes[:MOST_FORMULAS]))
    if len(trace.update.changes) > MOST_FORMULAS:
        st.caption(f"{len(trace.update.changes) - MOST_FORMULAS} more values moved: the stage has those of q.")
    others = [change for change in trace.update.changes if change not in of_q]
    if others:
        st.dataframe(
            [
                {"what": value_label(c, view.run.id), "before": c.before, "after": c.after, "Δ": c.after - c.before}
                for c in others
            ],
            key="moved_values",
            hide_index=True,
            alt="The learned values that moved, before and after",
        )
    _consulted(trace, Phase.UPDATE)


def _why_nothing_moved(view: View) -> str:
    trace = view.trace
    spec = spec_of(trace)
    if spec is not None and not spec.feedback:
        return f"{spec.title} learns from no reward"
    if trace.reward and trace.reward.reward is None:
        return "nobody gave a reward"
    if not view.moment.selected:
        return "no memory was in the prompt"
    return "there was no usable feedback in this step"


def _new_memory(view: View) -> None:
    trace = view.trace
    assert trace.write is not None
    if not trace.write.operations:
        who = "this method keeps no memory" if trace.origin == "agent" else "the agent wrote no memory"
        st.info(f"Nothing was written: {who} of this episode.")
    for number, operation in enumerate(trace.write.operations):
        with st.container(key=f"operation_{number}"):
            _operation(view, operation)
    _consulted(trace, Phase.WRITE)


def _operation(view: View, operation: MemoryOperation) -> None:
    run = view.run.id
    replaced = memory_labels(operation.replaces, run)
    if operation.op == "NOOP":
        same = memory_label(operation.duplicate_of or "", run)
        why = f"the same experience stands in {same} already" if operation.duplicate_of else operation.why
        st.info(f"Nothing was written: {literal(why or 'the method saw no need')}.")
        return
    if operation.op == "DELETE":
        st.warning(literal(f"Deleted: {replaced}. {operation.why}"), icon=":material/delete:")
        return
    known = view.moment.utilities.get(operation.memory_id)
    _memory_button(view, operation.memory_id, f"written_{operation.memory_id}", known.q if known else None)
    if operation.replaces:
        st.caption(literal(f"Replaces {replaced}, with its q. {operation.why}"))
        _difference(view, operation)
    verbatim(operation.experience)
    used = memory_labels(operation.parents, run)
    keeps_q = view.spec is None or view.spec.keeps_q
    starts = f"{operation.outcome} · " + (f"starts at q {signed(operation.q0)} · " if keeps_q else "")
    if operation.replaces:
        starts = ""
    st.caption(literal(f"{starts}memories in its prompt: {used}"))
    if operation.data:
        with st.expander("What the method keeps beside the text", key=f"data_{operation.memory_id}"):
            verbatim(json.dumps(dict(operation.data), ensure_ascii=False, indent=1))


def _difference(view: View, operation: MemoryOperation) -> None:
    """Line by line, what the new text has and the old had not."""
    before: list[str] = []
    for memory_id in operation.replaces:
        try:
            before += view.place.bank.memory(memory_id).experience.splitlines()
        except BankError:
            return
    lines = difflib.unified_diff(before, operation.experience.splitlines(), "before", "after", lineterm="", n=1)
    text = "\n".join(lines)
    if text:
        with st.expander("What changed in its text", key=f"diff_{operation.memory_id}"):
            verbatim(text)


def _memory_button(view: View, memory_id: str, key: str, q: float | None) -> None:
    """The memory's name and the q that it had where it is shown; a click opens it."""
    keeps_q = view.spec is None or view.spec.keeps_q
    worth = f" · q {signed(q)}" if q is not None and keeps_q else ""
    st.button(
        f"memory {literal(memory_label(memory_id, view.run.id))}{worth}",
        icon=":material/ink_highlighter:",
        type="tertiary",
        key=f"open_{key}",
        on_click=places.go,
        kwargs={"memory": memory_id},
        help="Show this memory's card on the stage",
    )


def _consulted(trace: StepTrace, *phases: Phase) -> None:
    """What the method asked the model for its own ends in these phases."""
    asked = [one for one in trace.consulted if one.phase in phases]
    if not asked:
        return
    failed = sum(one.filled is None for one in asked)
    label = f"What the method asked the model ({len(asked):,})"
    if failed:
        label += f" — {failed} without a usable answer"
    with st.expander(label, icon=":material/forum:", key=f"consulted_{'_'.join(phases)}"):
        _questions(asked)


def _questions(asked: Sequence[Consulted]) -> None:
    for number, one in enumerate(asked):
        with st.container(border=True, key=f"consulted_{one.phase}_{number}"):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"**{literal(one.purpose)}**")
                if one.simulated:
                    st.badge("template, no model asked", color="violet", icon=":material/theater_comedy:")
                elif one.filled is None:
                    st.badge("no usable answer: counts as no feedback", color="orange", icon=":material/warning:")
            verbatim(one.messages[-1].content)
            for note in one.notes:
                st.caption(literal(note))
            if one.filled is not None:
                verbatim(json.dumps(dict(one.filled), ensure_ascii=False, indent=1))
            elif one.reply:
                cut = f" (cut at {one.cut})" if one.cut else ""
                st.caption(literal(f"The reply{cut}, which does not fit the form:"))
                verbatim(one.reply)


def _judged(judgement: Judgement) -> None:
    """What was expected beside what came, and why that did or did not do; no model and no memory reads this."""
    with st.container(key="judgement"):
        sides = (("Expected", judgement.expected), ("Came", judgement.came))
        for column, (title, text) in zip(st.columns(2), sides, strict=True):
            with column:
                st.caption(title)
                with st.container(height=JUDGED_HEIGHT if text.count("\n") > MOST_LINES else "content"):
                    verbatim(text or "(nothing)")
        st.markdown(f"**Why.** {literal(judgement.why)}")
