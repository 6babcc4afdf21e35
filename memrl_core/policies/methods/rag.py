"""RAG: the most similar memories, whatever became of them. Source: the RAG baseline of arXiv 2601.03192."""

from __future__ import annotations

from memrl_core.policies.base import Policy, PolicySpec
from memrl_core.policies.ranking import TermColumn, similarities
from memrl_core.records import Decision, RecallRecord
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import PolicySettings


class Rag(Policy[PolicySettings]):
    """Similarity alone."""

    spec = PolicySpec(
        name="rag",
        title="RAG",
        citation="arXiv 2601.03192, baseline",
        variant="paper",
        deviations=(
            "In the prompt the memories stand under headings that say how their episodes ended, as for every method "
            "here; how they ended plays no part in the choice.",
        ),
        idea="The memories whose intent is most like the task are put before the model. Nothing is learned about "
        "whether they help.",
        recall="The k1 memories (or intents) most similar to the intent, beyond the gate δ.",
        select="The k2 most similar.",
        write="One new memory an episode, whether it succeeded or failed.",
        cannot="A similar memory that always misleads is recalled for ever, and copies of one intent can fill the "
        "pool.",
        carries_over="Every memory; its q is not read.",
        learns="nothing",
        feedback=(),
    )

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The k2 most similar of the pool."""
        return self.ranked(recalled, view, [TermColumn("similarity", similarities(recalled))], seed)
