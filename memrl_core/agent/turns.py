"""GENERATE and WRITE: the exchanges with the model and the world, and the text that an episode becomes.

For WRITE the environment lays out what was done. A real model adds its own words (arXiv 2601.03192, prompts of section
1.4 in our wording): a strategy after a success, a reflection after a failure. The simulated model has no words of its
own, so its memories are the environment's layout alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from memrl_core.embedders.base import Vectors
from memrl_core.environments.base import Environment, spoken
from memrl_core.errors import EmptyAnswer, ModelInterrupted, NotBound, PromptTooLong
from memrl_core.models.base import THINKING, Cancelled, LanguageModel, ModelOptions, OnText
from memrl_core.numerals import counted
from memrl_core.policies.base import Ask, Policy
from memrl_core.policies.decide import decide
from memrl_core.prompting import ANSWER_MARK, CHOICE_MARK, messages_sent, offered, with_tried, without, without_tried
from memrl_core.records import Decision, GenerateRecord, Message, Reason, Reply, StepTrace, Turn, TurnRecall
from memrl_core.retrieval.view import Asked, MemoryView

STRATEGY_REQUEST = (
    "You turn a solved task into a strategy that helps with similar tasks. Read the task and what was done. "
    "Answer with three to five short steps in general terms, without names that only this task has."
)
REFLECTION_REQUEST = (
    "You turn a failed attempt into a lesson. Read the task and what was done. Answer with three short lines: "
    "the root cause, the pattern to avoid, and what to do instead."
)
REFLECTION_TEMPERATURE = 0.3
WORDS_LIMIT = 200
"""Tokens of a strategy or a reflection: five short steps take half of it."""


def write_experience(
    model: LanguageModel,
    environment: Environment,
    trace: StepTrace,
    on_text: OnText | None = None,
    cancelled: Cancelled | None = None,
    in_own_words: bool = True,
    attempt: int = 0,
) -> str:
    """The experience of the step in `trace`. Raises `ModelError` when the model fails; it can be asked again.

    Without `in_own_words` no model is asked; `attempt` counts from 0 how often it has failed. When the person cancels,
    the words that had arrived are kept.
    """
    assert trace.generate is not None and trace.reward is not None
    outcome = trace.reward.outcome
    layout = environment.distil(trace.task, trace.generate.turns, outcome)
    if model.simulated or outcome == "unrated" or not (in_own_words and environment.own_words):
        return layout
    request = STRATEGY_REQUEST if outcome == "success" else REFLECTION_REQUEST
    limit = WORDS_LIMIT + (THINKING if trace.generate.options.get("think") else 0)
    # Where an action ends, such as at the end of a line, is not where several lines end.
    options = ModelOptions.model_validate({**trace.generate.options, "num_predict": limit, "stop": None}).again(attempt)
    if outcome == "failure":
        options = options.model_copy(update={"temperature": REFLECTION_TEMPERATURE})
    account = f"{layout}\n\nHow it ended: {trace.reward.verdict}"
    try:
        reply = model.chat([Message("system", request), Message("user", account)], options, on_text, cancelled)
    except (EmptyAnswer, PromptTooLong):
        return layout
    cut = f" (cut at {reply.cut})" if reply.cut else ""
    return f"{layout}\n\nIn the words of {model.name}{cut}:\n{reply.text.strip()}"


Embed = Callable[[Sequence[str]], Vectors]


def take_turn(
    model: LanguageModel,
    environment: Environment,
    record: GenerateRecord,
    on_text: OnText | None = None,
    cancelled: Cancelled | None = None,
    recalled: TurnRecall | None = None,
    attempt: int = 0,
    selected: Sequence[str] = (),
) -> tuple[Turn, Mapping[str, Any]]:
    """The turn that follows those in `record`, and the environment's info. Raises what the model or the world raises.

    `recalled` is what memory adds before it; `attempt` counts from 0 how often this turn has failed. A reply that was
    stopped does not reach the environment. Where the environment offers a closed list, a model that can is bound to it,
    and what others say is read leniently; a server that refuses to bind is asked without. An answer that cannot be used
    costs a turn, as any other action that is not possible does.

    Where the prompt does not fit, the memory that was `selected` last is left out, then the one before it, then what is
    recalled for this turn. A prompt that does not fit even so is not asked, which costs a turn.
    """
    choices = offered(record.turns[-1].observation if record.turns else record.messages[-1].content)
    bound = bool(choices) and model.binds
    options = ModelOptions.model_validate(record.options).again(attempt)
    left_out = record.turns[-1].left_out if record.turns else ()
    reply: Reply | None = None
    notes: tuple[str, ...] = ()
    while reply is None:
        # What is sent has the form of the answers that are asked for.
        sent = messages_sent(record, len(record.turns), recalled.text if recalled else "", bound, left_out)
        try:
            reply = _answer(model, sent, choices, bound, options, on_text, cancelled)
        except ModelInterrupted as error:
            error.left_out = left_out
            raise
        except NotBound:
            if not bound:
                raise
            bound, notes = False, ("not bound to the lines offered: the server refused the schema",)
        except PromptTooLong as error:
            in_prompt = {span.memory_id for span in record.spans} - set(left_out)
            last = next((memory_id for memory_id in reversed(selected) if memory_id in in_prompt), None)
            if last is not None:
                left_out = (*left_out, last)
            elif recalled is not None and recalled.text:
                recalled = replace(recalled, text="", decision=unsent(recalled.decision, recalled.decision.selected))
            else:
                why = f"not asked: the prompt does not fit into {error.room}"
                reply = Reply("", notes=(why,), window=error.window, offered=False if choices else None)
    if left_out:
        notes = (*notes, f"{counted(len(left_out), 'memory')} left out of the prompt, which did not fit")
    if notes:
        reply = replace(reply, notes=(*reply.notes, *notes))
    if attempt:
        reply = replace(reply, options={"seed": options.seed, **reply.options})
    if reply.stopped:
        return Turn(reply, "", 0.0, terminated=False, truncated=False, recalled=recalled, left_out=left_out), {}
    observation, reward, terminated, truncated, info = environment.step(reply.text)
    turn = Turn(reply, observation, reward, terminated, truncated, recalled, left_out)
    if environment.repeats and not ended(turn):
        return _heeding_repeats(record, turn, environment.repeats, info)
    return turn, info


def _heeding_repeats(
    record: GenerateRecord, turn: Turn, most: int, info: Mapping[str, Any]
) -> tuple[Turn, Mapping[str, Any]]:
    """`turn` with what was tried before in the state that it leads to; the last one of its episode, where its action
    repeats for the time number `most` what was done in the same state before.
    """
    states = [record.messages[-1].content, *(without_tried(one.observation) for one in record.turns)]
    done = [(state, one.reply.text) for state, one in zip(states, (*record.turns, turn), strict=True)]
    if done.count(done[-1]) > most:
        times = "once" if most == 1 else f"{most} times"
        verdict = f"Failed: “{spoken(turn.reply.text)}” was repeated {times} in the same state."
        # A memory of the episode says what went wrong by the first line of what was observed last.
        observation = f"The same action was repeated {times} in the same state.\n{turn.observation}"
        ended_here = replace(turn, observation=observation, reward=0.0, truncated=True)
        return ended_here, {**info, "verdict": verdict, "success": False}
    tried = dict.fromkeys(spoken(action) for state, action in done if state == turn.observation)
    return replace(turn, observation=with_tried(turn.observation, [*tried])) if tried else turn, info


def with_turn(record: GenerateRecord, turn: Turn) -> GenerateRecord:
    """`record` after `turn`; what the first turn left out of the prompt is not in it."""
    if not record.turns and turn.left_out:
        messages, spans = without(record.messages, record.spans, turn.left_out)
        record = replace(record, messages=messages, spans=spans)
    return replace(record, turns=(*record.turns, turn))


def unsent(decision: Decision, left_out: Collection[str]) -> Decision:
    """`decision` with the memories `left_out`, for which the prompt had no room, among those that were not sent."""
    return replace(
        decision,
        selected=tuple(memory_id for memory_id in decision.selected if memory_id not in left_out),
        candidates=tuple(
            replace(c, selected=False, reason=Reason.OVER_BUDGET) if c.memory_id in left_out else c
            for c in decision.candidates
        ),
        note=f"{decision.note} The prompt did not fit into the model's context window, so it was sent without "
        f"{len(left_out)} of the memories that had been selected; no reward moves what was not sent.".strip(),
    )


def _answer(
    model: LanguageModel,
    sent: Sequence[Message],
    choices: Sequence[str],
    bound: bool,
    options: ModelOptions,
    on_text: OnText | None,
    cancelled: Cancelled | None,
) -> Reply:
    """What `model` answers to the messages `sent`, read as one of `choices` where there are any.

    Who answers with nothing before the time is over is asked once more with another seed; nothing again is an empty
    reply. Raises `ModelError`.
    """
    schema = {"type": "string", "enum": list(choices)} if bound else None
    if choices and schema is None and options.stop is None:
        options = options.model_copy(update={"stop": r"\n"})
    begun, reply = time.perf_counter(), Reply("")
    for asked in (options, options.again(1, after_nothing=True)):
        other: dict[str, Any] = {"seed": asked.seed, "temperature": asked.temperature} if asked is not options else {}
        try:
            reply = model.chat(sent, asked, on_text, cancelled, schema)
            reply = replace(reply, options=other) if other else reply
            break
        except EmptyAnswer as error:
            thinking = "\n".join(filter(None, (reply.thinking, error.thinking)))
            reply = Reply("", cut=error.cut, thinking=thinking, options=other)
            if time.perf_counter() - begun >= options.in_all:
                break
    if reply.stopped or not choices:
        return reply
    action = read_choice(reply.text, choices)
    text = reply.text if action is None else action
    raw = "" if text == reply.text else reply.text
    strays = bound and not reply.cut and reply.text and _from_json(reply.text) not in choices
    notes = (*reply.notes, "the server did not hold the answer to them") if strays else reply.notes
    return replace(reply, text=text, raw=raw, bound=bound, offered=action is not None, notes=notes)


def read_choice(text: str, choices: Sequence[str]) -> str | None:
    """The one of `choices` that an answer means, or None when it means none or more than one.

    It may differ in case, be quoted, numbered (as the list is, from 1) or introduced ("Action: go north"), or stand as
    the only line offered within a longer text.
    """
    known = {_bare_choice(choice): choice for choice in choices}
    first = next((line for line in text.splitlines() if line.strip()), "")
    for part in (_from_json(text), text, first):
        bare = _bare(part)
        for bared in (bare, _bare(bare.partition(":")[2])):
            if bared in known:
                return known[bared]
        if bare.isascii() and bare.isdigit() and 1 <= int(bare) <= len(choices):
            return choices[int(bare) - 1]
    lowered = f" {' '.join(text.casefold().split())} "
    found = [bare for bare in known if re.search(rf"(?<!\w){re.escape(bare)}(?!\w)", lowered)]
    found = [bare for bare in found if not any(bare != other and bare in other for other in found)]
    return known[found[0]] if len(found) == 1 else None


def _bare(text: str) -> str:
    """`text` in one case and one line, without marks of lists, numbers before it, quotes and a full stop."""
    line = " ".join(text.casefold().split())
    line = line.removeprefix(ANSWER_MARK.strip()).removeprefix(CHOICE_MARK.strip()).strip()
    line = re.sub(r"^\(?\d{1,3}[.):]\s+(?=\S)", "", line)
    return line.strip("\"'`*“”‘’ ").rstrip(".").strip("\"'`*“”‘’ ")


_bare_choice = lru_cache(4096)(_bare)
"""The same choices stand in every turn."""


def _from_json(text: str) -> str:
    """The string that `text` is as JSON, or that its only field holds; "" for anything else."""
    if text.lstrip()[:1] not in ('"', "{"):  # Most answers are no JSON, and to fail costs more than to look.
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return value if isinstance(value, str) else ""


def recalled_for(
    policy: Policy[Any], asked: Asked, view: MemoryView, embed: Embed, ask: Ask, seed: int
) -> TurnRecall | None:
    """Both phases before a later turn of an episode, in which `asked` still has the embedding of the beginning; None
    where the policy does not ask for them. `embed` makes unit vectors (n, d) of texts.
    """
    when = policy.when(asked)
    if not when.now:
        return None
    asked = replace(asked, embedding=embed([policy.key(asked)])[0], seed=seed)
    recall, decision, seen = decide(policy, replace(view, asked=asked), seed, ask=ask)
    memories_read = [seen.memories[memory_id] for memory_id in decision.selected]
    return TurnRecall(when.why, recall, decision, policy.render_turn(memories_read, seen))


def no_answer(turns: Sequence[Turn], seconds: float) -> str:
    """The verdict on an episode in which no turn has an answer, and which took so many seconds."""
    thought = sum(len(turn.reply.thinking) for turn in turns)
    only = f"All of it was thinking: {thought:,} characters" if thought else "The model said nothing"
    lasted = f"{counted(len(turns), 'turn')}, {seconds:.1f} s"
    return f"No answer. {only} in {lasted}. No reward is given, no q moves and no memory is written."


def ended(turn: Turn) -> bool:
    """Whether no turn follows this one."""
    return turn.terminated or turn.truncated or turn.reply.stopped
