"""WebCoach: episodes are condensed as they are kept, and a coach reads the nearest ones and speaks or keeps silent.

Source: arXiv 2511.12997 (WebCondenser, External Memory Store, Coach). Its released code recalls three episodes instead
of five and does not leave out the task's own: settings offer that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from memrl_core.policies.base import (
    Ask,
    NewExperience,
    Policy,
    PolicySpec,
    Question,
    UngatedSettings,
    When,
    Written,
    answer_to,
    one_memory,
    seed_of,
)
from memrl_core.policies.ranking import Chosen
from memrl_core.policies.texts import (
    SECTIONS,
    as_sentence,
    members_of,
    memories_shown,
    one_line,
    section,
    sections_of,
    task_shown,
    went_wrong,
)
from memrl_core.prompting import (
    ANSWER_MARK,
    AVOID,
    MEMORY_HEADER,
    STEPS_THAT_WORKED,
    TASK_LINE,
    TRY_INSTEAD,
    WHAT_WENT_WRONG,
    first_messages,
    memory_blocks,
)
from memrl_core.records import Decision, Memory, MemorySpan, Message, Reason, Recalled, RecallRecord
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import usual

NO_COACH = "No coach was asked about this pool: "
GATE = 0.3
"""With the simulated model a rule replaces the coach: it speaks above this similarity of the nearest episode."""


class WebCoachSettings(UngatedSettings):
    """How many episodes the coach reads, when it is asked, and what the nearest episodes are."""

    k1: int = usual("k1", 5, "How many episodes are recalled; 5 in the paper.")
    k2: int = usual("k2", 5, "How many of them the coach reads (5 in the paper), and the model gets when it speaks.")
    exclude_same_task: bool = usual("exclude_same_task", True)
    every: int = Field(
        0,
        ge=0,
        le=100,
        title="Coach every n turns",
        description="The coach is asked again before every n-th turn of an episode; 0: at its beginning only.",
    )


SPEC = PolicySpec(
    name="webcoach",
    title="WebCoach",
    citation="arXiv 2511.12997",
    variant="adapted",
    deviations=(
        "Text only: the source's agents also see screenshots of web pages.",
        "Episodes are kept and found by the embedding of the intent; the source embeds the condensed summary, of the "
        "episode so far when the coach is asked.",
        "The coach is asked at the beginning of the task; within the episode only where “Coach every n turns” is set.",
        "Below the coach's message stand the condensed episodes that it has read; in the source the agent sees its "
        "message alone.",
        "With the simulated model a rule replaces the coach and the condenser; it is named in every note.",
    ),
    idea="A coach reads condensed episodes of similar tasks and either gives advice or keeps silent, so that memory "
    "is kept away from a task that it does not fit.",
    record="One memory a completed episode: summary, workflows that worked, patterns that failed; the first two of "
    "each stand in a prompt.",
    when="At the beginning of the task; also before every n-th turn where that is set.",
    recall="The k1 most similar episodes, none of the task that is asked.",
    select="The coach decides: the k2 nearest with its advice above them, or nothing.",
    write="One condensed episode, if it has an outcome; an unrated one is not kept.",
    cannot="It does not learn which advice helped. In the source's own tables memory made the smallest model worse: "
    "the coach is only as good as the model that plays it.",
    carries_over="Every memory, as it stands; its q is not read.",
    learns="nothing",
    needs=("episode reward", "model on write", "model on read"),
)


class WebCoach(Policy[WebCoachSettings]):
    """A coach between the memory and the model."""

    spec = SPEC
    Settings = WebCoachSettings
    wants_summary = False

    def when(self, asked: Asked) -> When:
        """At the beginning, and before every n-th turn where the settings say so."""
        if asked.turn == 0:
            return When(True, "at the beginning of the task")
        every = self.settings.every
        now = every > 0 and asked.turn % every == 0
        return When(now, f"the coach is asked every {every} turns" if now else "")

    def consult(self, recalled: RecallRecord, view: MemoryView, ask: Ask) -> Mapping[str, Any]:
        """What the coach says of the episodes that it reads; it is not asked about none."""
        read = self.by_similarity(recalled, view, seed_of(view)).selected
        if not read:
            return {}
        return answer_to(coach_question(members_of(recalled, read), view), ask)

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """All that the coach has read when it speaks, nothing when it keeps silent."""
        decision = self.by_similarity(recalled, view, seed)
        if not decision.selected:
            return decision
        read = members_of(recalled, decision.selected)
        coaching, note = heard(read, view)
        if coaching is not None and coaching.intervene:
            return replace(decision, note=" ".join(filter(None, (note, decision.note))))
        silent = Chosen((), "silent", reasons=dict.fromkeys(range(len(recalled.pool)), Reason.KEPT_SILENT))
        return self.by_similarity(recalled, view, seed, chosen=silent, note=note)

    def render(
        self, selected: Sequence[Memory], instructions: str, intent: str, observation: str, view: MemoryView
    ) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
        """The coach's message with the memories that it comes from, then those memories and the task."""
        messages, spans = first_messages(instructions, selected, intent, observation)
        above = coach_message(selected, view)
        coached = tuple(replace(m, content=above + m.content) if m.role == "user" else m for m in messages)
        moved = (replace(span, start=span.start + len(above), end=span.end + len(above)) for span in spans)
        return coached, tuple(moved)

    def render_turn(self, selected: Sequence[Memory], view: MemoryView) -> str:
        """The coach's message and the memories that it comes from; nothing when it keeps silent."""
        if not selected:
            return ""
        return (coach_message(selected, view) + memory_blocks(selected)[0]).strip()

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """The condensed episode; nothing while nobody has judged it."""
        if new.outcome == "unrated":
            return ()
        condensed = ask(condenser_question(new))
        if condensed is None:
            why = "The condenser's reply does not fit its form: the episode is kept as it was laid out."
            return (one_memory(new, view, self.settings).but(why=why),)
        written = one_memory(replace(new, experience=laid_out(new.intent, condensed)), view, self.settings)
        return (written.but(data=condensed.model_dump(mode="json")),)


# --- the coach --------------------------------------------------------------------------------------------------------


COACH = "coach's advice"
ADVICE = "## Advice of the coach"
QUOTED = 2
"""Successes, and failures, that the rule in the coach's place quotes."""
COACH_REQUEST = (
    "You coach an agent. You are given its task, what it sees and condensed episodes of earlier tasks. Decide whether "
    "advice from these episodes would help it now; keep silent when they do not fit the task. Fill in the form. "
    "intervene: whether you speak. advice: what the agent shall do or avoid, short and concrete, from the episodes "
    "alone; empty when you keep silent. reason: one sentence on why you speak or keep silent."
)
UNREADABLE = "The coach's reply does not fit its form, which counts as no answer: it kept silent."
NO_ADVICE = "The coach wanted to speak and gave no advice: it kept silent."


class Coaching(BaseModel):
    """What the coach says."""

    intervene: bool
    advice: str
    reason: str


def coach_question(read: Sequence[Recalled], view: MemoryView) -> Question[Coaching]:
    """What the coach is asked about the episodes that it reads; without a language model the rule answers."""
    message = f"{task_shown(view)}\n\nEpisodes, best first:\n\n{memories_shown(read, view)}"
    return Question(COACH, Coaching, COACH_REQUEST, message, rule_in_its_place(read, view))


def rule_in_its_place(read: Sequence[Recalled], view: MemoryView) -> Coaching:
    """The form as filled in without a language model: by the best similarity and the outcomes."""
    best = max(member.similarity for member in read)
    memories = [view.memories[member.memory_id] for member in read]
    judged = [memory for memory in memories if memory.outcome != "unrated"]
    speaks = best > GATE and bool(judged)
    if best <= GATE:
        why = f"the best similarity {best:.2f} is not above {GATE:g}."
    elif not judged:
        why = "no episode here is known to have worked or failed."
    else:
        why = f"the best similarity {best:.2f} is above {GATE:g}, and {len(judged)} of the episodes are judged."
    advice = advice_from(judged) if speaks else ""
    return Coaching(intervene=speaks, advice=advice, reason=f"by the rule in the model's place, {why}")


def advice_from(memories: Sequence[Memory]) -> str:
    """Advice in the words of the memories: the first successes and failures, each quoted under its id."""
    parts = []
    for outcome, opening in (("success", "Do as here, where it worked."), ("failure", "Mind this, where it failed.")):
        for memory in [memory for memory in memories if memory.outcome == outcome][:QUOTED]:
            parts.append(f"{opening}\n{MEMORY_HEADER.format(id=memory.id)}\n{quoted(memory)}")
    return "\n".join(parts)


def heard(read: Sequence[Recalled], view: MemoryView) -> tuple[Coaching | None, str]:
    """What the coach said of the episodes that it reads (None: nothing usable), and the note on it.

    Where it was not asked the rule in its place speaks.
    """
    if COACH not in view.answers:
        rule = rule_in_its_place(read, view)
        return rule, NO_COACH + rule.reason
    if view.answers[COACH] is None:
        return None, UNREADABLE
    coaching = Coaching.model_validate(view.answers[COACH])
    if coaching.intervene and not coaching.advice.strip():
        return None, NO_ADVICE
    return coaching, f"The coach {'spoke' if coaching.intervene else 'kept silent'}: {as_sentence(coaching.reason)}"


def coach_message(selected: Sequence[Memory], view: MemoryView) -> str:
    """The coach's advice under the ids of the memories that it comes from; empty where it has none to give."""
    given = view.answers.get(COACH) or {"advice": ""}
    advice = str(given["advice"]).strip() if COACH in view.answers else advice_from(selected)
    if not selected or not advice:
        return ""
    sources = MEMORY_HEADER.format(id=", ".join(memory.id for memory in selected))
    return f"{ADVICE}\n\n{sources}\n{advice}\n\n"


# --- the condenser ----------------------------------------------------------------------------------------------------


CONDENSE = "condensed episode"
CONDENSE_REQUEST = (
    "You condense the finished episode of an agent for a coach who reads it before similar tasks. Fill in the form. "
    "summary: three to five sentences on what was to be done, what was done and how it ended. success_workflows: the "
    "ways that worked, each with a short name and its steps. fail_modes: the patterns that failed, each with the "
    "actions to avoid and what to do instead. Leave a list empty where there is nothing to say."
)
KEPT = 2
"""Fail modes and workflows of an episode that stand in a prompt."""
LONGEST_QUOTE = 300


class Workflow(BaseModel):
    """A way that worked."""

    name: str
    steps: list[str]


class FailMode(BaseModel):
    """A pattern that failed."""

    pattern: str
    avoid: list[str]
    instead: list[str]


class Condensed(BaseModel):
    """An episode as the condenser tells it."""

    summary: str
    fail_modes: list[FailMode]
    success_workflows: list[Workflow]


def condenser_question(new: NewExperience) -> Question[Condensed]:
    """What the condenser is asked about a finished episode; without a language model it is cut to its lines."""
    ended = f"{new.outcome}. {new.verdict}".strip()
    message = f"{new.experience.strip()}\n\nHow it ended: {ended}"
    return Question(CONDENSE, Condensed, CONDENSE_REQUEST, message, _cut_to_lines(new, ended))


def laid_out(intent: str, condensed: Condensed) -> str:
    """A condensed episode as the text of an experience: summary, the first workflows, the first fail modes."""
    text = f"{TASK_LINE}{intent}\nSummary: {one_line(condensed.summary)}\n"
    for workflow in condensed.success_workflows[:KEPT]:
        text += section(STEPS_THAT_WORKED, workflow.steps)
    for mode in condensed.fail_modes[:KEPT]:
        text += f"{WHAT_WENT_WRONG}{one_line(mode.pattern)}\n" + section(AVOID, mode.avoid)
        text += section(TRY_INSTEAD, mode.instead)
    return text


def quoted(memory: Memory) -> str:
    """The lines of a memory that say what to do or to avoid; its beginning where it has none."""
    lines = memory.experience.strip().splitlines()
    if not any(line.startswith(ANSWER_MARK) for line in lines):
        return memory.experience.strip()[:LONGEST_QUOTE]
    return "\n".join(line for line in lines if line in SECTIONS or line.startswith((TASK_LINE, ANSWER_MARK)))


def _cut_to_lines(new: NewExperience, ended: str) -> Condensed:
    worked, avoid, instead = sections_of(new.experience).values()
    wrong = went_wrong(new.experience)
    failed = bool(wrong or avoid or instead)
    return Condensed(
        summary=f"It ended as a {ended}",
        fail_modes=[FailMode(pattern=wrong, avoid=avoid, instead=instead)] if failed else [],
        success_workflows=[Workflow(name=new.intent, steps=worked)] if worked else [],
    )
