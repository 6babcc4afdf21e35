"""A run's memory as a retriever of LlamaIndex: needs the extra `llamaindex`.

retriever = BankRetriever(Memory.open("bank", run="prod"))
engine = RetrieverQueryEngine.from_args(retriever)
retriever.last.reward(1.0)
"""

from __future__ import annotations

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from memrl_core.agent.memory import Memory, Recall


class BankRetriever(BaseRetriever):
    """Each query is a recall by the run's method, stored as a step; `last` is the newest.

    The nodes are the memories for the prompt in its order: their ids, texts, scores, and intent and q as metadata.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.last: Recall | None = None

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.last = self.memory.recall(query_bundle.query_str)
        decision = self.last.trace.decision
        by_id = {one.memory_id: one for one in decision.candidates} if decision is not None else {}
        return [
            NodeWithScore(
                node=TextNode(
                    id_=one.id, text=one.experience, metadata={"intent": one.intent, "q": by_id[one.id].q},
                    excluded_llm_metadata_keys=["q"], excluded_embed_metadata_keys=["q"],
                ),
                score=by_id[one.id].score,
            )
            for one in self.last.memories
        ]  # fmt: skip
