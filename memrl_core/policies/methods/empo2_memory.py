"""EMPO² memory (no GRPO): tips from earlier episodes, read before every turn, and a meter of how new a state is.

Source: arXiv 2602.23008 and its released code, the memory half alone: no language model is trained here. The paper
takes the tips that are most similar, the released code those with the best stored score: the setting `variant` offers
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from memrl_core.policies.base import (
    Ask,
    Lesson,
    NewExperience,
    Policy,
    PolicySpec,
    Question,
    Vector,
    When,
    Written,
    added,
    deleted,
    learned_in,
)
from memrl_core.policies.ranking import Floats, TermColumn, best_first, similar, similarities
from memrl_core.policies.texts import exchanges, memories_in_prompts, verdict_of
from memrl_core.prompting import ANSWER_MARK, TASK_LINE, memory_blocks
from memrl_core.records import Decision, Memory, MemoryOperation, Recalled, RecallRecord, StepTrace
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import PolicySettings, usual


class Empo2Settings(PolicySettings):
    """Which tips are read, how many are kept, and whether new states are explored."""

    variant: Literal["paper", "code"] = Field(
        "code",
        title="Variant",
        description="paper: the most similar tips. code: beyond the gate, those with the best stored score.",
    )
    k1: int = usual("k1", 20, "How many tips phase A hands on.")
    k2: int = usual("k2", 10, "How many tips a turn gives.", title="k2 · tips in a turn")
    delta: float = usual("delta", 0.5, "Tips that are not more similar than this are left.")
    capacity: int = Field(
        1000, ge=1, le=100_000, title="Tips kept in a list", description="Beyond this the oldest of the list go."
    )


SPEC = PolicySpec(
    name="empo2_memory",
    title="EMPO² memory (no GRPO)",
    citation="arXiv 2602.23008, its memory alone",
    variant="adapted",
    deviations=(
        "No language model is trained: of the method only the memory is here, and its results are not to be expected.",
        "The key is the embedding of the intent and the observation; in the source, of the whole chat so far. A tip "
        "is keyed by the last prompt of its episode.",
        "Each task has its list, as in the source; a task that is met for the first time reads all lists.",
        "Novelty is shown, not rewarded.",
        "Novelty counts the tips found, as the released code does; in the paper it is 1 / n over the distinct states "
        "met so far that are like this one.",
        "The paper reads the 10 most similar tips, however little they are; here δ holds for both variants (−1: none).",
        "A score is the step's reward, or a person's, mapped back to [0, 1], and 0.5 for an unrated episode. A late "
        "reward counts when tips are ordered, while their text keeps what was known.",
        "With the simulated model the environment's own layout of the episode replaces the tip.",
    ),
    idea="At the end of an episode the model writes a tip. Before each turn the tips that were kept for states like "
    "this one are read; how few there are says how new the state is.",
    record="One memory a turn: the tip, the action taken, the final score; all of an episode under the same key.",
    when="Before every turn.",
    recall="The tips of the same list whose key is more similar than δ to the intent and the observation; of these the "
    "k1 with the best score (code), or the k1 most similar (paper).",
    select="The k2 with the best score, ties to the more similar (code), or the k2 most similar (paper). "
    "Novelty = 1 / (n + 1), where n is the number of tips found, at most k2.",
    update="Nothing: rewards change no value. The score of an episode stands with its tips.",
    write="One record for each turn of the episode with the tip that the model gives; the same text is kept once.",
    forget="The oldest of a list, beyond its limit.",
    cannot="It does not learn which tip helps: a tip keeps the score of the episode that it came from. Its key is the "
    "end of that episode, so the first turns of another find few.",
    carries_over="Memories of another policy, by their own key. Where it has seen their step: in that task's list, "
    "with that step's score; otherwise in every list, with 1 for a success, 0 for a failure and 0.5 for the rest.",
    learns="nothing",
    needs=("episode reward", "model on write"),
)


# --- the policy -------------------------------------------------------------------------------------------------------


TIP = "tip"
REQUEST = (
    "You have just finished a task. Read what was done and how it ended. Write one tip, in one to three sentences, for "
    "whoever meets this task or one like it again: what to do, or what to stay away from."
)
TIP_LINE = "Tip: "
ACTION_TAKEN = "Action taken:"
FINAL_SCORE = "Final score: "
NOT_RATED = "not rated"
SCORE_OF_UNRATED = 0.5


class Tip(BaseModel):
    """What the model leaves for the next time."""

    tip: str = Field(description="One to three sentences.")


@dataclass(slots=True)
class Kept:
    """A tip as it is ordered: the task in whose list it is, its score in [0, 1], and its text without layout."""

    listed: str
    score: float
    text: str


@dataclass(slots=True)
class Tips:
    """What is known of tips by memory, oldest first, and which tasks were met so far."""

    kept: dict[str, Kept] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)


class Empo2Memory(Policy[Empo2Settings]):
    """Tips by state, and how new a state is."""

    spec = SPEC
    ignored = ("k1_counts", "duplicates", "duplicate_threshold")
    Settings = Empo2Settings

    def when(self, asked: Asked) -> When:
        """Before every turn."""
        return When(True, "before every turn")

    def key(self, asked: Asked) -> str:
        """The intent and the observation."""
        return _key(asked.intent, asked.observation)

    def embedded_text(self, operation: MemoryOperation, trace: StepTrace) -> str:
        """The intent and the last observation of the episode."""
        return _key(operation.intent, exchanges(trace)[-1].observation)

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """The k1 best tips of the list beyond the gate."""
        tips = learned_in(view, Tips)
        asked = view.asked
        listed = asked.task if asked is not None and asked.task in tips.met else ""
        inside = np.array(
            [not listed or _listed(tips, memory_id) in ("", listed) for memory_id in view.ids], dtype=np.bool_
        )
        delta = self.settings.delta

        def best(members: Sequence[Recalled]) -> Sequence[int]:
            return self._best_first(members, view)

        found = self.wide_recall(query, view, best, inside=inside, delta=delta, strict=True, coarse=coarse)
        why = f"the list of “{listed}”" if listed else "all lists: this task is met for the first time"
        return replace(found, why=why)

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The k2 best tips."""
        settings, n = self.settings, len(recalled.pool)
        scores, alike = _scores(recalled.pool, view), similarities(recalled)
        by_score = 1.0 if settings.variant == "code" else 0.0
        found = min(n, settings.k2)
        novelty = 1 / (found + 1)
        terms = [
            TermColumn("score", scores, by_score),
            TermColumn("similarity", alike, 1 - by_score),
            TermColumn("novelty", np.full(n, novelty), 0.0),
        ]
        note = f"Novelty 1/({found} + 1) = {novelty:.2f}: {found} {'tip' if found == 1 else 'tips'} beyond δ."
        return self.ranked(recalled, view, terms, seed, note=note)

    def render_turn(self, selected: Sequence[Memory], view: MemoryView) -> str:
        """The tips, as at the beginning of the task."""
        return memory_blocks(selected)[0].strip()

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """One record for each turn with the model's tip; nothing where its tip could not be read."""
        met = exchanges(new.trace)
        given = ask(_question(new)) if met else None
        if given is None or not given.tip.strip():
            return ()
        tips, listed, score = learned_in(view, Tips), new.trace.task.id, _final_score(new)
        same_list = [i for i, kept in tips.kept.items() if kept.listed == listed and view.sees(i)]
        known = {tips.kept[i].text: i for i in same_list}
        key = new.embed([_key(new.intent, met[-1].observation)])[0]
        ids = iter([new.memory_id])
        written: list[Written] = []
        for action in (" ".join(exchange.turn.reply.text.split()) for exchange in met):
            text = f"{given.tip.strip()}; {action}; {score}"
            laid_out = _laid_out(new.intent, given.tip.strip(), action, score)
            data = {"list": listed, "text": text}
            one = added(new, "", laid_out, key, parents=memories_in_prompts(new.trace), data=data)
            if text in known:
                twin = one.but(op="NOOP", duplicate_of=known[text], why="the very same record is kept")
                written.append(Written(twin.operation))
                continue
            known[text] = next(ids, "") or new.fresh_id()
            same_list.append(known[text])
            written.append(one.but(memory_id=known[text]))
        beyond = same_list[: max(0, len(same_list) - self.settings.capacity)]
        why = f"more than {self.settings.capacity} tips in the list of “{listed[:80]}”: the oldest go"
        return (*written, Written(deleted(beyond, why))) if beyond else tuple(written)

    def start(self, memories: Sequence[Memory]) -> Tips:
        """No task was met yet."""
        return Tips()

    def remember(self, state: Tips, lesson: Lesson) -> None:
        """Keep the list and the score of what was written, as the reward stands now."""
        trace = lesson.trace
        listed = trace.task.id
        state.met.add(listed)
        score = SCORE_OF_UNRATED if lesson.reward is None else verdict_of(lesson.reward, trace.settings)
        for one in trace.operations:
            for gone in one.replaces:
                state.kept.pop(gone, None)
            if one.op in ("ADD", "UPDATE", "MERGE"):
                text = str(one.data.get("text", one.experience))
                state.kept[one.memory_id] = Kept(str(one.data.get("list", listed)), score, text)

    def _best_first(self, members: Sequence[Recalled], view: MemoryView) -> list[int]:
        by = _scores(members, view) if self.settings.variant == "code" else similar(members)
        order: list[int] = best_first(by, members, "older", 0).tolist()
        return order


def _listed(tips: Tips, memory_id: str) -> str:
    """The list of a memory; empty for one whose step was never seen."""
    kept = tips.kept.get(memory_id)
    return kept.listed if kept is not None else ""


def _scores(members: Sequence[Recalled], view: MemoryView) -> Floats:
    """The stored score of each memory (n,); by its outcome where its step was never seen."""
    tips, scores = learned_in(view, Tips), []
    for member in members:
        kept = tips.kept.get(member.memory_id)
        by_outcome = {"success": 1.0, "failure": 0.0}.get(view.memories[member.memory_id].outcome, SCORE_OF_UNRATED)
        scores.append(by_outcome if kept is None else kept.score)
    return np.array(scores, dtype=np.float64)


def _key(intent: str, observation: str) -> str:
    return f"{intent}\n{observation}".strip()


def _final_score(new: NewExperience) -> str:
    reward = new.trace.reward.reward if new.trace.reward is not None else None
    return NOT_RATED if reward is None else f"{verdict_of(reward, new.trace.settings):.2f}"


def _laid_out(intent: str, tip: str, action: str, score: str) -> str:
    """A record as the text of a memory."""
    lines = [TASK_LINE + intent, TIP_LINE + tip, ACTION_TAKEN, ANSWER_MARK + action, FINAL_SCORE + score]
    return "\n".join(lines)


def _question(new: NewExperience) -> Question[Tip]:
    """Asks for the tip; without a language model it is what the environment lays out, without the task."""
    message = f"{new.experience.strip()}\n\nHow it ended: {new.outcome}. {new.verdict}".strip()
    lines = [line for line in new.experience.strip().splitlines() if not line.startswith(TASK_LINE)]
    return Question(TIP, Tip, REQUEST, message, Tip(tip="\n".join(lines)))
