"""watch: every call of a retriever becomes a step, and the retriever gives and raises what it did before."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever as LangChainRetriever
from llama_index.core.retrievers import BaseRetriever as LlamaIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from memrl_core import Recorder, watch
from memrl_core.agent.watch import wait_for_watched, watched_bank
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError
from memrl_core.records import StepTrace
from tests.builders import awaited

TEXTS = {"m1": "prefers oat milk", "m2": "is vegetarian"}
CHROMA = {
    "ids": [["m1", "m2"]],
    "embeddings": None,
    "documents": [[*TEXTS.values()]],
    "uris": None,
    "included": ["metadatas", "documents", "distances"],
    "data": None,
    "metadatas": [[{"user": "7"}, None]],
    "distances": [[0.01, 1.81]],
}
"""What `collection.query` of Chroma 1.5 gives."""


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return MemoryBank.create(str(tmp_path / "bank"), "hashing-64", 64)


def recorded(bank: MemoryBank, run: str = "watched") -> list[StepTrace]:
    wait_for_watched()
    return bank.traces(run)


def hits_of(trace: StepTrace) -> list[tuple[str, float | None]]:
    return [(hit.memory_id, hit.score) for hit in trace.retrievals[0].hits]


def test_a_callable_gives_what_it_gave_and_each_call_is_a_step(bank: MemoryBank) -> None:
    def search(query: str, k: int = 2) -> list[tuple[str, float, str]]:
        """Look it up."""
        return [("m1", 12.7, TEXTS["m1"]), ("m2", 3.2, TEXTS["m2"])][:k]

    watched = watch(search, bank, kind="bm25")
    assert watched("coffee", k=2) == search("coffee") and watched.__doc__ == "Look it up."
    assert watched(query="coffee", k=1) == search("coffee", 1)
    assert watch(watched, bank) is watched
    first, second = recorded(bank)
    assert (first.task.intent, first.task.id) == ("coffee", second.task.id)
    assert hits_of(first) == [("m1", 12.7), ("m2", 3.2)] and len(hits_of(second)) == 1
    assert first.retrievals[0].name == "bm25" and first.retrievals[0].seconds >= 0
    assert first.decision.selected == ("m1", "m2") and bank.memory("m1").experience == TEXTS["m1"]
    assert first.retrievals[0].hits[0].cosine is not None


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"m1": 0.5}, [("m1", 0.5)]),
        (["m1", "m2"], [("m1", None), ("m2", None)]),
        ([{"id": "m1", "memory": "oat milk", "distance": 0.2}], [("m1", 0.2)]),
        ({"results": [{"id": "m1", "memory": "oat milk", "score": 7.0}]}, [("m1", 7.0)]),
        ([(Document("oat milk", id="m1"), 0.25)], [("m1", 0.25)]),
        (CHROMA, [("m1", 0.01), ("m2", 1.81)]),
        ({"ids": ["m2"], "documents": ["is vegetarian"], "metadatas": [None]}, [("m2", None)]),
        ({"ids": [[]], "distances": [[]], "documents": None}, []),
        ([], []),
        (None, []),
    ],
    ids=["mapping", "ids", "distance", "results", "scored", "chroma", "chroma get", "chroma empty", "none", "nothing"],
)
def test_hits_come_in_many_shapes(bank: MemoryBank, answer: Any, found: Any) -> None:
    assert watch(lambda query: answer, bank)("coffee") == answer
    (trace,) = recorded(bank)
    assert hits_of(trace) == found
    if (isinstance(answer, list) and answer and isinstance(answer[0], dict)) or answer is CHROMA:
        assert trace.retrievals[0].kind == "distance"
    if answer is CHROMA:
        assert [bank.memory(name).experience for name in trace.decision.selected] == [*TEXTS.values()]


def test_a_call_with_several_queries_is_a_step_with_a_retrieval_each(bank: MemoryBank) -> None:
    answer = {"ids": [["m1"], ["m2", "m1"]], "distances": [[0.0], [0.1, 0.2]], "documents": None}
    watch(lambda **asked: answer, bank)(query_texts=["coffee", "food"], n_results=2)
    watch(lambda **asked: CHROMA, bank)(query_texts=["coffee"])
    several, one = recorded(bank)
    assert [(found.query, len(found.hits)) for found in several.retrievals] == [("coffee", 1), ("food", 2)]
    assert (several.task.intent, one.task.intent) == ("coffee; food", "coffee")


def test_an_iterator_is_still_whole_for_the_agent_and_an_error_is_the_agents_own(bank: MemoryBank) -> None:
    assert list(watch(lambda query: iter(["m1", "a text of words"]), bank)("coffee")) == ["m1", "a text of words"]

    def fails(query: str) -> None:
        raise KeyError(query)

    with pytest.raises(KeyError):
        watch(fails, bank)("tea")
    assert watch(lambda query: [object()], bank)("odd")
    of = {trace.task.intent: trace for trace in recorded(bank)}
    found = of["coffee"].retrievals[0].hits
    assert [bank.memory(hit.memory_id).experience for hit in found if hit.known] == ["a text of words"]
    assert found[0].memory_id == "m1"
    assert any("KeyError ended it" in lack for lack in of["tea"].lacks)
    assert of["odd"].retrievals[0].hits == () and any("recalled()" in lack for lack in of["odd"].lacks)
    with pytest.raises(InputError, match="no retriever"):
        watch(3, bank)


def test_an_async_retriever_is_awaited_as_before(bank: MemoryBank) -> None:
    async def search(query: str) -> list[str]:
        await asyncio.sleep(0)
        return [f"{query} please"]

    class Search:
        async def __call__(self, query: str) -> list[str]:
            return await search(query)

    later: Callable[[str], Any] = lambda query: search(query)  # noqa: E731
    for one in (search, Search(), later):
        assert awaited(watch(one, bank)("tea")) == ["tea please"]
    assert [len(trace.retrievals[0].hits) for trace in recorded(bank)] == [1, 1, 1]


class Documents(LangChainRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(text, id=name, metadata={"score": 0.9}) for name, text in TEXTS.items()]


class Nodes(LlamaIndexRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text=text, id_=name), score=0.4) for name, text in TEXTS.items()]


def test_retrievers_of_langchain_and_llamaindex_come_back_themselves(bank: MemoryBank) -> None:
    documents, nodes = Documents(), Nodes()
    assert watch(documents, bank, "lc") is documents and watch(nodes, bank, "li") is nodes
    chain = documents | (lambda found: len(found))
    assert chain.invoke("coffee") == len(awaited(documents.ainvoke("coffee"))) == len(nodes.retrieve("coffee")) == 2
    assert len(awaited(nodes.aretrieve(QueryBundle("coffee")))) == 2
    for run, score in (("lc", 0.9), ("li", 0.4)):
        traces = recorded(bank, run)
        assert [hits_of(trace) for trace in traces] == [[("m1", score), ("m2", score)]] * 2
        assert {trace.task.intent for trace in traces} == {"coffee"}
    assert bank.memory("m2").experience == TEXTS["m2"]


def test_two_retrievers_over_the_same_documents_are_two_runs_of_one_bank(bank: MemoryBank) -> None:
    for run, score in (("bm25", 7.0), ("vectors", 0.5)):
        hits = [(name, score, text) for name, text in TEXTS.items()]
        watch(lambda query, hits=hits: hits, bank, run)("coffee")
        (trace,) = recorded(bank, run)
        assert [hit.known for hit in trace.retrievals[0].hits] == [True, True] and not trace.recall.left_out
        assert trace.decision.selected == ("m1", "m2")


def test_memories_of_a_bank_are_known_to_the_run_of_a_retriever_over_them(bank: MemoryBank) -> None:
    vector = HashingEmbedder(64).embed(["heat the egg"])[0]
    Recorder(bank, "mine").remember("heat the egg", "use the microwave", vector, memory_id="m7")
    watch(lambda query: ["m7"], bank)("warm an egg")
    watch(lambda query: [("m7", 0.2, "another text")], bank, "other")("warm an egg")
    (trace,), (other,) = recorded(bank), recorded(bank, "other")
    assert trace.decision.selected == ("m7",) and bank.memory("m7").experience == "use the microwave"
    assert [(hit.known, hit.text) for hit in other.retrievals[0].hits] == [(False, "another text")]
    assert any("does not know the memory “m7”" in lack for lack in other.lacks)


def test_without_the_banks_embedder_the_texts_stay_with_the_hits(tmp_path: Path) -> None:
    with MemoryBank.create(str(tmp_path / "other"), "someone/else", 4) as bank:
        watch(lambda query: [("m1", 0.12, "oat milk")], bank)("coffee")
        (trace,) = recorded(bank)
        assert [(hit.memory_id, hit.text, hit.known) for hit in trace.retrievals[0].hits] == [("m1", "oat milk", False)]
        assert bank.memory_ids() == []


def test_two_that_begin_at_once_make_one_bank(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        banks = list(threads.map(watched_bank, [tmp_path / "bank"] * 4))
    assert {bank.uri for bank in banks} == {str(tmp_path / "bank")}
    for bank in banks:
        bank.close()


@pytest.mark.slow
def test_a_program_that_ends_has_recorded_its_calls_in_the_bank_that_the_app_watches(tmp_path: Path) -> None:
    code = "import memrl_core; memrl_core.watch(lambda query: [('m1', 0.5, 'oat milk')])('coffee')"
    subprocess.run([sys.executable, "-c", code], check=True, env={"MEMRL_HOME": str(tmp_path), "HOME": str(tmp_path)})
    with MemoryBank.open(str(tmp_path / "banks" / "watched")) as bank:
        assert [trace.task.intent for trace in bank.traces("watched")] == ["coffee"]
