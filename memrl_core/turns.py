"""One exchange of GENERATE: what memory adds, what the model is sent and says, and what the world says to that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memrl_core.embedders.base import Vectors
from memrl_core.environments.base import Environment
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions, OnText
from memrl_core.policies.base import Ask, Policy
from memrl_core.prompting import conversation_so_far
from memrl_core.records import GenerateRecord, Turn, TurnRecall
from memrl_core.view import Asked, MemoryView

Embed = Callable[[Sequence[str]], Vectors]


def take_turn(
    model: LanguageModel,
    environment: Environment,
    record: GenerateRecord,
    on_text: OnText | None = None,
    cancelled: Cancelled | None = None,
    recalled: TurnRecall | None = None,
) -> tuple[Turn, Mapping[str, Any]]:
    """The turn that follows those in `record`, and the environment's info. Raises what the model or the world raises.

    `recalled` is what memory adds before it. A reply that was stopped does not reach the environment.
    """
    sent = conversation_so_far(record.messages, record.turns, recalled.text if recalled else "")
    reply = model.chat(sent, ModelOptions.model_validate(record.options), on_text, cancelled)
    if reply.stopped:
        return Turn(reply, "", 0.0, terminated=False, truncated=False, recalled=recalled), {}
    observation, reward, terminated, truncated, info = environment.step(reply.text)
    return Turn(reply, observation, reward, terminated, truncated, recalled), info


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
    seen = replace(view, asked=asked)
    recall = policy.recall(asked.embedding, seen)
    seen = replace(seen, asked=replace(asked, said=policy.consult(recall, seen, ask)))
    decision = policy.select(recall, seen, seed)
    told = [seen.memories[memory_id] for memory_id in decision.selected]
    return TurnRecall(when.why, recall, decision, policy.render_turn(told, seen))


def ended(turn: Turn) -> bool:
    """Whether no turn follows this one."""
    return turn.terminated or turn.truncated or turn.reply.stopped
