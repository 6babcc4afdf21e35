"""Every question that the page Decision answers, in the order of the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pages.decision import again, one_memory, this_decision, whole_run

Needs = Literal["own", "decision", "situation", "step", "run"]


@dataclass(frozen=True)
class Question:
    """`key` stands in links; `memories` names the choices it needs: "" , "a", "b" or "ab".

    `needs` says what must be there: a decision of this program's agent, any stored decision, one that can be made
    again, a step, or only a run. `rules` says which methods have an answer: all, those that keep a q, those that move
    it by a step size α, or MemRL alone, whose score it takes apart.
    """

    key: str
    group: str
    text: str
    draw: Callable[..., None]
    memories: Literal["", "a", "b", "ab"] = ""
    needs: Needs = "decision"
    rules: Literal["any", "q", "alpha", "score"] = "any"


DECISION, MEMORY, RUN = "This decision", "One memory", "The whole run"

QUESTIONS = (
    Question("flips", DECISION, "At which λ would the choice change?", this_decision.flips, needs="own", rules="score"),
    Question("pair", DECISION, "Why was A selected and B not?", this_decision.pair, "ab"),
    Question("required", DECISION, "How much would q have to change for B to get in, or A to fall out?",
             this_decision.required, "ab", "situation", rules="score"),
    Question("gate", DECISION, "What kept B out of the pool? What would δ or k1 let in?", this_decision.gate, "b",
             "situation", rules="score"),
    Question("draw", DECISION, "Was this an exploration draw? What would greedy have done?", this_decision.draw,
             needs="own"),
    Question("prompt", DECISION, "What did the model read, and what does it answer without A?", again.prompt, "a",
             "step"),
    Question("again", DECISION, "What does this prompt get with another temperature, seed, model or text?",
             again.prompt_again, needs="step"),
    Question("shares", DECISION, "Who earned the reward?", again.shares, "", "step"),
    Question("normalisers", DECISION, "Did normalisation decide it?", this_decision.normalisers,
             needs="situation", rules="score"),
    Question("embedder", DECISION, "What would another embedder have recalled and chosen?",
             this_decision.other_embedder, needs="situation"),
    Question("origin", MEMORY, "Which rewards made A's q what it is?", one_memory.origin, "a", "run", rules="alpha"),
    Question("served", MEMORY, "Is A good in general, or only for such intents?", one_memory.served, "a", "run"),
    Question("trusted", MEMORY, "How far can A's q be trusted?", one_memory.trusted, "a", "run", rules="alpha"),
    Question("company", MEMORY, "Did A earn its credit, or its company?", one_memory.company, "a", "run", rules="q"),
    Question("family", MEMORY, "From which memories was A born, and what came of it?", one_memory.family, "a", "run"),
    Question("twin", MEMORY, "Has A a twin, and do they share its uses?", one_memory.twin, "a", "run"),
    Question("misleading", RUN, "Which memories are similar but harmful, which far but useful?", whole_run.misleading,
             needs="run", rules="q"),
    Question("hurt", RUN, "Which memories hurt most, by the rewards they earned or were credited with?", whole_run.hurt,
             needs="run", rules="q"),
    Question("overlooked", RUN, "Which steps failed although a better memory was in the pool, unselected?",
             whole_run.overlooked, needs="run", rules="q"),
    Question("contrary", RUN, "Which failures help, and which successes were luck?", whole_run.contrary,
             needs="run", rules="q"),
    Question("funnel", RUN, "How far do recalls get: recalled, selected, followed by the answer, right?",
             whole_run.came_how_far, needs="run"),
    Question("spread", RUN, "How are the q spread, epoch by epoch?", whole_run.spread, needs="run", rules="q"),
    Question("calibrated", RUN, "Is q calibrated?", whole_run.calibrated, needs="run", rules="q"),
    Question("changed", RUN, "What changed between two steps?", whole_run.changed, needs="run"),
    Question("supposed", RUN, "Would the run have gone otherwise under these settings?", whole_run.supposed,
             needs="step"),
    Question("earned", RUN, "What would these settings have earned?", whole_run.earned, needs="step", rules="score"),
    Question("contaminated", RUN, "How much of q is company?", again.contaminated, needs="step", rules="alpha"),
    Question("ties", RUN, "How many choices were ties, and what would the other rule have done?", whole_run.ties,
             needs="step"),
    Question("unused", RUN, "What is never recalled? How concentrated is use?", whole_run.unused, needs="run"),
    Question("copies", RUN, "Which memories are near-duplicates, and do they split the uses?", one_memory.duplicates,
             needs="run"),
    Question("transfer", RUN, "Is it transfer or memorisation?", whole_run.transferred, needs="run"),
    Question("forgotten", RUN, "What was forgotten, and which change of memories went with it?", whole_run.forgot,
             needs="run"),
    Question("fitting", RUN, "Which δ fits this bank?", whole_run.fitting_gate, needs="run"),
    Question("probe", RUN, "What does the agent recall for a text I type?", this_decision.probe, needs="run"),
)  # fmt: skip
BY_KEY = {question.key: question for question in QUESTIONS}
