"""The hand on the stage: what rewards stand for a step, and what a person does to them there, by key or by mouse.

The browser reports each act with the step it is about. It is saved through the core's one door before anything moves:
the page runs again, and what the stage is sent then is what the bank holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st

from memrl_core.agent.live import LiveRun
from memrl_core.analysis.decision.explain import credited_because
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.people.reward_effect import Differing, Histories, differing_after, refolded_later
from memrl_core.analysis.recall.changed import changed_since
from memrl_core.analysis.recall.grades import Judged, judged
from memrl_core.analysis.recall.queries import fates_of, lost_sentence
from memrl_core.analysis.recall.uses import words_shared
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import MEANING, Label, Use
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.bank.people.undo import JUDGED, REWARDS
from memrl_core.errors import InputError, MemRLError, StepError
from memrl_core.learning import in_ledger, rewards_of
from memrl_core.learning.scales import RatingScales, graded_reward, options, rubric_reward
from memrl_core.records import LedgerEvent, Phase, StepTrace
from pages.shared.person import allowed, has_login, person, rename, within_role
from pages.shared.rewards import CHOSEN
from pages.shared.view import View, spec_of
from pages.shared.work import Work
from pages.step.moves import move

ACTS, DONE, LATER = "hand_acts", "hand_done", "hand_later"
NO_MEMORY = "No memory was in the prompt: a reward is kept with the step and moves no q."
APPLYING = "The reward is being applied: it can be changed once the step has ended."
AT_WORK = "The agent is at work: wait until the step has ended, or stop it."
NOT_ENDED = "A memory can be labelled once the step has ended."
NOT_ANSWERED = "There is no answer to judge yet."
ELSEWHERE = "The page has gone to another run since. Nothing was saved; go back to the step and press the key again."


@dataclass
class _Act:
    """What the last act on a run moved: the histories of the credited memories before and after it, the later steps
    whose moves of q are others since, and which of these would choose otherwise; None while that is not counted."""

    run: str
    step: int
    before: Histories
    after: Histories
    steps: list[int]
    others: list[int] | None = None
    counting: Work[list[Differing]] | None = field(default=None, compare=False)


# --- what a person does -----------------------------------------------------------------------------------------------


def heard(component: str) -> None:
    """Keep the acts that the browser reports for the run of the page that begins now, each once."""
    reported = st.session_state[component].get("acts") or {}
    done = st.session_state.get(DONE) or {}
    known = done.get("count", 0) if done.get("of") == reported.get("of") else 0
    new = [act for act in reported.get("last", ()) if act["n"] > known]
    if new:
        st.session_state[DONE] = {"of": reported["of"], "count": new[-1]["n"], "error": ""}
        st.session_state.setdefault(ACTS, []).extend(new)


def act_on(view: View) -> bool:
    """Do what the browser has reported, in its order; whether there was anything. A failure gets its sentence."""
    acts = st.session_state.pop(ACTS, [])
    for act in acts:
        error = ""
        try:
            _do(view, act)
        except MemRLError as failure:
            error = str(failure)
        st.session_state[DONE] = {**st.session_state.get(DONE, {}), "error": error}
    return bool(acts)


def _do(view: View, act: Mapping[str, Any]) -> None:
    if "name" in act:
        rename(str(act["name"]))
    if act["do"] == "name":
        return
    if act["run"] != view.run.id:
        raise InputError(ELSEWHERE)
    bank, step = view.place.bank, int(act["step"])
    bank.refresh()
    credited = bank.credits.of(view.run.id, step) if bank.steps.has(view.run.id, step) else ()
    before = bank.histories(view.run.id, credited)
    match act["do"]:
        case "rate":
            _rate(view, act)
        case "reason":
            _reason(view, act)
        case "undo":
            _undo(view, act)
        case "redo":
            _redo(view, act)
        case "credit":
            _credit(view, act, credited)
        case "label" | "unlabel":
            _label(view, act)
        case "use":
            about = view.run.id, int(act["step"]), str(act["memory"])
            bank.write.judgements.judge_use(Use(*about, act["used"], person(), str(act.get("reason", ""))))
        case "skip":
            move(view, partial(LiveRun.finish, unrated=True))
    after = bank.histories(view.run.id, credited)
    if after != before:
        if (earlier := st.session_state.get(LATER)) is not None and earlier.counting is not None:
            earlier.counting.stop()
        st.session_state[LATER] = _Act(view.run.id, step, before, after, refolded_later(before, after, step))


def _rate(view: View, act: Mapping[str, Any]) -> None:
    """Save the reward; a step that waited for it then runs to its end, which moves q."""
    ratings, step = view.place.bank.ratings, int(act["step"])
    value, given = _chosen(ratings.scales(view.run.id), act, *ratings.bounds(view.run.id, step))
    _save(view, act, value, given, str(act.get("reason", "")))
    if _under_way(view, act) and allowed(view.place.bank, Role.MANAGE):
        move(view, LiveRun.finish)


def _chosen(scales: RatingScales, act: Mapping[str, Any], low: float, high: float) -> tuple[float, Mapping[str, Any]]:
    """The reward that an act gives on the run's scale, and what is kept of it."""
    if "marks" in act:
        marks = {str(name): int(mark) for name, mark in act["marks"].items()}
        return rubric_reward(scales, marks, low, high), {"scale": "rubric", "marks": marks}
    if "grade" in act:
        grade = float(act["grade"])
        return graded_reward(grade, low, high), {"scale": "graded", "grade": grade}
    offered = options(scales, scales.scale, low, high) or options(scales, "thumbs", low, high)
    for option in offered:
        if option.key == act["key"]:
            return option.reward, option.given
    raise InputError("This run's scale has no such key by now. Nothing was saved; the buttons show which it has.")


def _under_way(view: View, act: Mapping[str, Any]) -> bool:
    """Whether an act is about the step that waits for its reward, which is not stored yet."""
    live = view.live
    if live is None or live.episode is None or live.episode.trace.id != act["id"]:
        return False
    return not view.place.bank.steps.has(view.run.id, int(act["step"]))


def _save(view: View, act: Mapping[str, Any], value: float, given: Mapping[str, Any], reason: str) -> None:
    bank, step = view.place.bank, int(act["step"])
    if _under_way(view, act):
        assert view.live is not None
        view.live.rate(value, person(), reason, given)
    elif bank.steps.has(view.run.id, step):
        bank.write.ratings.rate(Rating(view.run.id, step, value, person(), reason, given, str(act["id"])))
    else:
        raise StepError("This step was dropped. The reward was not saved.")


def _reason(view: View, act: Mapping[str, Any]) -> None:
    mine = _mine(view.place.bank.ratings.active(view.run.id, int(act["step"]), str(act["id"])))
    if mine is not None:
        given = {name: value for name, value in mine.payload.items() if name in CHOSEN}
        _save(view, act, mine.value or 0.0, given, str(act["reason"]))


def _undo(view: View, act: Mapping[str, Any]) -> None:
    """Take back what the person did last to the q of a step: who is credited, or the reward.

    Of rewards the last action, where it was about this one, else this reward alone.
    """
    bank, step = view.place.bank, int(act["step"])
    mine = _mine(bank.ratings.active(view.run.id, step, str(act["id"])))
    credit = bank.credits.standing(view.run.id, step) if bank.steps.has(view.run.id, step) else None
    if credit is not None and _undoes_credit(credit, mine):
        bank.write.credits.revoke(credit.id, person())
        return
    if mine is None:
        raise InputError("No reward of yours stands for this step by now. Nothing was changed.")
    done = bank.undo.done(person(), REWARDS)
    if done and mine in done[-1].events:
        bank.write.undo.undo(person(), REWARDS)
    else:
        bank.write.ratings.revoke(mine.id, person())


def _redo(view: View, act: Mapping[str, Any]) -> None:
    """Give again what the person took back last of a step: who is credited, or the last reward they took back."""
    bank, step = view.place.bank, int(act["step"])
    credit = bank.undo.undone_credit(view.run.id, step, person())
    if credit is None:
        bank.write.undo.redo(person(), REWARDS)
    else:
        own = credit.payload["rewards"]
        bank.write.credits.assign(view.run.id, step, credit.step_id, own, person(), credit.reason)


def _undoes_credit(credit: LedgerEvent | None, mine: LedgerEvent | None) -> bool:
    """Whether the person has said who is credited, and given no reward to the step since."""
    if credit is None or credit.rater != person():
        return False
    return mine is None or in_ledger(credit) > in_ledger(mine)


def _credit(view: View, act: Mapping[str, Any], credited: Sequence[str]) -> None:
    """Let one memory have the reward of a step alone, or let it have none of it; or all of the prompt again."""
    credits, run, step = view.place.bank.write.credits, view.run.id, int(act["step"])
    standing, memory = credits.standing(run, step), str(act["memory"])
    if act["what"] == "all":
        while standing is not None:  # What a newer one stood for, an older one would.
            credits.revoke(standing.id, person())
            standing = credits.standing(run, step)
        return
    if act["what"] == "only":
        own: dict[str, float | None] = {other: None for other in credited if other != memory}
        reason = f"only {memory_label(memory, run)} is credited"
    else:
        own = {**(standing.payload["rewards"] if standing is not None else {}), memory: None}
        reason = f"{memory_label(memory, run)} is not at fault"
    credits.assign(run, step, str(act["id"]), own, person(), str(act.get("reason", "")) or reason)


def _label(view: View, act: Mapping[str, Any]) -> None:
    """Say whether a memory was right to recall, or take that back: the last action, where it was about it."""
    bank, run, step, memory = view.place.bank, view.run.id, int(act["step"]), str(act["memory"])
    if act["do"] == "label":
        reason = str(act.get("reason", ""))
        bank.write.judgements.judge(Label(run, step, memory, act["grade"], person(), reason=reason))
        return
    done = bank.undo.done(person(), JUDGED)
    if done and any((event.run, event.step, event.memory_ids) == (run, step, (memory,)) for event in done[-1].events):
        bank.write.undo.undo(person(), JUDGED)
    else:
        bank.write.judgements.judge(Label(run, step, memory, None, person()))


def _mine(active: Sequence[LedgerEvent]) -> LedgerEvent | None:
    return next((event for event in active if event.source == "person" and event.rater == person()), None)


# --- what the stage shows of it ---------------------------------------------------------------------------------------


def hand_data(view: View, traces: Sequence[StepTrace]) -> dict[str, Any]:
    """What the hand on the stage shows: who rates, on which scale, and for each of the steps what stands.

    {rater, login, off: why nobody can rate, or "", scale: {name, options: [[key, label, reward]], criteria: [name]},
     waits: whether the step under way waits for it, done: {of, count, error}, later: {step, steps, others} | null,
     steps: {step: {id, off, counts, whose, environment, mine, reason, people: [[rater, reward, reason]],
                    credited: [id], credit: {id: its own reward or null} | null, credit_by, note, undo,
                    undoes: "credit" or "reward", redo, redoes: likewise,
                    labels: {id: [{grade, said, rater, source, reason, when, mine, since: what became of it since}]},
                    label_off, lost: {id: where it was lost, of those that should come and were not looked at},
                    uses: {id: {mine: what the person says of its use, said: [line], hint}} of the prompt}}}
    """
    bank, run = view.place.bank, view.run.id
    ratings = bank.ratings
    scales = ratings.scales(run)
    last = traces[-1].step if traces else view.run.first_step
    low, high = ratings.bounds(run, last)
    offered = options(scales, scales.scale, low, high)
    name = scales.scale
    if name == "pairwise":
        name, offered = "thumbs", options(scales, "thumbs", low, high)
    role = within_role(bank, Role.RATE)
    undone = bank.undo.undone(person(), REWARDS)
    again = {(event.run, event.step) for event in undone[-1].events} if undone else set()
    return {
        "rater": person(),
        "login": has_login(),
        "off": str(role["help"] or "") if role["disabled"] else "",
        "scale": {
            "name": name,
            "options": [[option.key, option.label, option.reward] for option in offered],
            "criteria": [criterion.name for criterion in scales.criteria] if name == "rubric" else [],
        },
        "waits": view.awaits_reward,
        "done": st.session_state.get(DONE),
        "later": _later(view),
        "steps": {str(trace.step): _of_step(view, trace, again) for trace in traces},
    }


def _of_step(view: View, trace: StepTrace, again: Collection[tuple[str, int]]) -> dict[str, Any]:
    bank, run = view.place.bank, view.run.id
    active = bank.ratings.active(run, trace.step, trace.id)
    parts = rewards_of(active, bank.settings(run, trace.step))
    people = [event for event in active if event.source == "person"]
    environment = next((event.value for event in active if event.source == "environment"), None)
    if environment is None and view.awaits_reward and view.live is not None and view.live.episode is not None:
        environment = view.live.episode.environment_reward
    mine = _mine(active)
    credit = bank.credits.standing(run, trace.step) if bank.steps.has(run, trace.step) else None
    undone_credit = bank.undo.undone_credit(run, trace.step, person()) is not None
    whose = [", ".join(part.raters) if part.source == "person" else "environment" for part in parts]
    return {
        "id": trace.id,
        "off": _off(view, trace),
        "counts": sum(part.value for part in parts) / len(parts) if parts else None,
        "whose": "yours" if whose == [person()] and mine else " and ".join(whose),
        "environment": environment,
        "mine": mine.value if mine is not None else None,
        "given": {name: value for name, value in mine.payload.items() if name in CHOSEN} if mine is not None else {},
        "reason": mine.reason if mine is not None else "",
        "people": [[event.rater, event.value, event.reason] for event in people if event is not mine],
        "note": _note(view, trace),
        "credited": list(bank.credits.of(run, trace.step)) if bank.steps.has(run, trace.step) else [],
        "credit": dict(credit.payload["rewards"]) if credit is not None else None,
        "credit_by": credit.rater if credit is not None else "",
        "undo": mine is not None or _undoes_credit(credit, mine),
        "undoes": "credit" if _undoes_credit(credit, mine) else "reward",
        "redo": undone_credit or (run, trace.step) in again,
        "redoes": "credit" if undone_credit else "reward",
        "labels": _labels(view, trace),
        "lost": _lost(view, trace),
        "uses": _uses(view, trace),
        "label_off": "" if bank.steps.has(run, trace.step) else NOT_ENDED,
    }


def _labels(view: View, trace: StepTrace) -> dict[str, list[dict[str, Any]]]:
    """What is said of the recall of each memory in a step, by whom and from where."""
    said: dict[str, list[dict[str, Any]]] = {}
    bank = view.place.bank
    standing = bank.judgements.standing(view.run.id, trace.step)
    since = dict(changed_since(bank, view.run.id, standing))
    for label in standing:
        if label.memory_id and label.grade is not None:
            said.setdefault(label.memory_id, []).append(
                {
                    "grade": label.grade,
                    "said": MEANING[label.grade],
                    "rater": label.rater,
                    "source": label.source,
                    "reason": label.reason,
                    "when": f"{label.created[:16].replace('T', ' ')} UTC",
                    "mine": label.source == "person" and label.rater == person(),
                    "since": f"{since[label].how} since" if label in since else "",
                }
            )
    return said


def _lost(view: View, trace: StepTrace) -> dict[str, str]:
    """Where the memories were lost that should come by the labels and that phase A did not look at closely."""
    bank, run = view.place.bank, view.run.id
    if not bank.steps.has(run, trace.step):
        return {}
    looked_at = {one.memory_id for one in trace.decision.candidates} if trace.decision is not None else set[str]()
    known = judged(bank.judgements.standing(run, trace.step)).get(trace.step, Judged({}))
    wanted = tuple((memory, grade) for memory, grade in known.relevant.items() if memory not in looked_at)
    return _sentences(bank, trace, bank.handle, trace.id, wanted) if wanted else {}


@st.cache_data(max_entries=200, show_spinner=False)
def _sentences(
    _bank: MemoryBank, _trace: StepTrace, handle: str, step_id: str, wanted: tuple[tuple[str, int], ...]
) -> dict[str, str]:
    """What became of these memories in a step that has ended, which nothing changes any more."""
    fates = fates_of(_bank, _trace, Judged(dict(wanted)))
    return {fate.memory_id: lost_sentence(fate, _trace.settings) for fate in fates}


def _uses(view: View, trace: StepTrace) -> dict[str, dict[str, Any]]:
    """What is known of the use of each memory in the prompt: by people, by its actions, by words as a hint."""
    selected = trace.decision.selected if trace.decision is not None and trace.generate is not None else ()
    uses = view.place.bank.judgements.uses(view.run.id, trace.step) if selected else []
    shared = words_shared(trace)
    found: dict[str, dict[str, Any]] = {}
    for memory in selected:
        said = {use.rater: use.used for use in uses if use.memory_id == memory}
        lines = [f"{'you' if rater == person() else rater}: {used}" for rater, used in said.items()]
        if trace.follows is not None:
            lines.append(f"its actions: {'followed' if memory in trace.follows.memories else 'not followed'}")
        words = shared.get(memory)
        hint = f"hint: the answer has {words[0]} of {words[1]} words that are this memory's own" if words else ""
        found[memory] = {"mine": said.get(person()), "said": lines, "hint": hint}
    return found


def _off(view: View, trace: StepTrace) -> str:
    """Why this step cannot be rated now; "" where it can."""
    if view.busy:
        return AT_WORK
    if view.moment.next_phase is None or trace is not view.moment.trace:
        return ""
    if view.moment.live and view.moment.next_phase in (Phase.UPDATE, Phase.WRITE):
        return APPLYING
    # One of ours can be judged before its world does.
    return "" if view.moment.reached(Phase.GENERATE) or view.moment.reached(Phase.REWARD) else NOT_ANSWERED


def _note(view: View, trace: StepTrace) -> str:
    """That a reward moves no q, where none does."""
    selected = trace.decision.selected if trace.decision is not None else ()
    credited = trace.reward.credited if trace.reward is not None else selected
    if credited:
        return ""
    spec = spec_of(trace)
    if selected and (why := credited_because(trace)):
        return f"{why} A reward is kept with the step and moves no q."
    if selected and spec is not None and not spec.keeps_q:
        return f"{spec.title} keeps no q of single memories."
    return NO_MEMORY if trace.decision is not None else ""


def _later(view: View) -> dict[str, Any] | None:
    """Which later steps' q followed the last act on this run, and which of them would choose otherwise since."""
    act = st.session_state.get(LATER)
    if act is None or act.run != view.run.id:
        return None
    return {"step": act.step, "steps": act.steps, "others": act.others}


def count_later(view: View) -> None:
    """Count which later steps would choose otherwise since the last act; the page runs again once it is known."""
    act = st.session_state.get(LATER)
    if act is not None and act.run == view.run.id and act.steps and act.others is None:
        _count(view.place.bank, act)


@st.fragment(run_every=0.5)
def _count(bank: MemoryBank, act: _Act) -> None:
    if act.counting is None:
        about = bank, act.run, act.step, act.before, act.after
        act.counting = Work(lambda report, cancelled: differing_after(*about, cancelled))
    if act.counting.result is None or act.others is not None:
        return
    act.others = [one.step for one in act.counting.result]
    st.rerun()
