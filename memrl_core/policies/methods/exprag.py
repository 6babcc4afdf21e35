"""ExpRAG: similar experiences with a label that says whether they were right.

Source: Evo-Memory (arXiv 2511.20857), the baseline R = top-k φ(x, m), M ← M ∪ {S(x, ŷ, f)}, k = 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memrl_core.policies.base import Ask, NewExperience, Policy, PolicySpec, UngatedSettings, Written, one_memory
from memrl_core.prompting import first_messages
from memrl_core.records import Memory, MemorySpan, Message, Outcome
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import usual

FEEDBACK = "Feedback: "
LABELS: dict[Outcome, str] = {
    "success": "this was correct.",
    "failure": "this was not correct.",
    "unrated": "nobody has judged this.",
}
TEMPLATE = "{experience}\n" + FEEDBACK + "{label}"
LAID_OUT = (
    "In the template S(x, ŷ, f), whose wording is ours, x is the task, ŷ what the environment lays out of the episode "
    "(after a failure also what to avoid and to try instead) and not the whole attempt, f the label."
)


class ExpRagSettings(UngatedSettings):
    """The settings of ExpRAG; its k is k2."""

    k2: int = usual("k2", 4, "The paper's k: how many are retrieved.")


def templated(experience: str, outcome: Outcome) -> str:
    """S(x, ŷ, f): an experience that ends with the label of its outcome. One that has a label keeps it."""
    text = experience.strip()
    if text.rpartition("\n")[2].startswith(FEEDBACK):
        return text
    return TEMPLATE.format(experience=text, label=LABELS[outcome])


class ExpRag(Policy[ExpRagSettings]):
    """The k most similar experiences, each with its label."""

    spec = PolicySpec(
        name="exprag",
        title="ExpRAG",
        citation="arXiv 2511.20857, baseline ExpRAG",
        variant="adapted",
        deviations=(
            LAID_OUT,
            "φ compares the intents, not the experiences as a whole, and by the bank's embedder, not the paper's.",
        ),
        idea="Each episode becomes a text of task, answer and whether it was correct. The k texts most like the task "
        "are put before the model as examples.",
        record="One memory an episode: intent with its embedding, and the templated experience with its label.",
        recall="The k1 memories most similar to the intent. The gate δ is open unless it is set.",
        select="The k = k2 most similar.",
        update="Nothing: the label is in the text, and no value moves.",
        write="One new memory an episode, correct or not.",
        cannot="The label says how the episode ended, not whether the text helps others: a misleading one is recalled "
        "for ever.",
        carries_over="Every memory; one of another policy gets its label in the prompt. Its q is not read.",
        learns="nothing",
        needs=("episode reward",),
    )
    Settings = ExpRagSettings

    def render(
        self, selected: Sequence[Memory], instructions: str, intent: str, observation: str, view: MemoryView
    ) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
        """Every experience in the template, also one that another policy wrote."""
        labelled = [replace(memory, experience=templated(memory.experience, memory.outcome)) for memory in selected]
        return first_messages(instructions, labelled, intent, observation)

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """The episode in the template, unless `duplicates` says otherwise."""
        text = templated(new.experience, new.outcome)
        return (one_memory(replace(new, experience=text), view, self.settings),)
