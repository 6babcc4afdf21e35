"""A run's memory in the frameworks of others, with their real packages."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.memory import Memory
from memrl_core.bank.check import check
from memrl_core.embedders.hashing import HashingEmbedder
from tests.builders import awaited


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    made = HashingEmbedder(256)
    return Memory.open(str(tmp_path / "bank"), run="r", embedder=made, settings={"k2": 2})


def adapter(name: str, package: str) -> Any:
    importlib.import_module(package)
    return importlib.import_module(f"memrl_core.agent.adapters.{name}")


def test_a_store_of_langgraph_keeps_items_and_recalls_by_both_phases(memory: Memory, tmp_path: Path) -> None:
    store = adapter("langgraph_store", "langgraph.store.base").BankStore(memory)
    store.put(("u", "food"), "a", {"text": "Prefers oat milk", "intent": "make coffee"})
    store.put(("u", "food"), "b", {"text": "Is vegetarian", "intent": "cook a dinner"})
    store.put(("v",), "c", {"note": 3})
    item = store.get(("u", "food"), "a")
    assert (item.key, item.namespace, item.value["text"]) == ("a", ("u", "food"), "Prefers oat milk")
    assert [one.key for one in store.search(("u",), query="make coffee", limit=1)] == ["a"]
    assert [one.key for one in store.search(("u",), filter={"text": "Is vegetarian"})] == ["b"]
    assert store.list_namespaces() == [("u", "food"), ("v",)] and store.list_namespaces(prefix=("v",)) == [("v",)]
    store.last.reward(1.0)
    trace = memory.bank.trace("r", 1)
    assert trace.task.intent == "make coffee" and memory.bank.effective_reward("r", 1) == 1.0
    store.put(("u", "food"), "a", {"text": "Drinks tea now", "intent": "make coffee"})
    store.delete(("u", "food"), "b")
    assert store.get(("u", "food"), "a").value["text"] == "Drinks tea now" and store.get(("u", "food"), "b") is None
    assert [one.key for one in awaited(store.asearch(("u",), query="make coffee"))] == ["a"]
    assert all(finding.ok for finding in check(str(tmp_path / "bank")))


def test_a_graph_of_langgraph_finds_its_memory_in_the_store(memory: Memory) -> None:
    made = adapter("langgraph_store", "langgraph.store.base")
    graphs = importlib.import_module("langgraph.graph")
    bases = importlib.import_module("langgraph.store.base")
    store = made.BankStore(memory)
    store.put(("u",), "a", {"text": "Prefers oat milk", "intent": "make coffee"})

    def answer(state: dict[str, Any], *, store: bases.BaseStore) -> dict[str, Any]:  # type: ignore[name-defined]
        return {"answer": [one.value["text"] for one in store.search(("u",), query=state["question"])]}

    answer.__annotations__["store"] = bases.BaseStore
    builder = graphs.StateGraph(dict)
    builder.add_node("answer", answer)
    builder.add_edge(graphs.START, "answer")
    assert builder.compile(store=store).invoke({"question": "make coffee"})["answer"] == ["Prefers oat milk"]
    assert memory.bank.trace("r", 1).task.intent == "make coffee"


def test_a_retriever_of_llamaindex_gives_the_memories_of_the_prompt(memory: Memory) -> None:
    retriever = adapter("llamaindex_retriever", "llama_index.core").BankRetriever(memory)
    for intent, text in (("make coffee", "Prefers oat milk"), ("cook a dinner", "Is vegetarian")):
        memory.remember(intent, text, memory.embedder.embed([intent])[0])
    nodes = retriever.retrieve("make coffee")
    assert [node.node.node_id for node in nodes] == [one.id for one in retriever.last.memories]
    assert nodes[0].node.get_content() == "Prefers oat milk" and nodes[0].node.metadata["intent"] == "make coffee"
    assert awaited(retriever.aretrieve("cook a dinner"))[0].node.text == "Is vegetarian"
    assert memory.bank.next_step("r") == 3


def test_a_memory_service_of_adk_gives_a_user_their_own_memories(memory: Memory) -> None:
    # Every release of it wants an older starlette than the app has, so it cannot stand among the packages of the tests.
    pytest.importorskip("google.adk.memory", reason="google-adk cannot be installed beside the app: install it alone")
    service = adapter("adk_memory", "google.adk.memory").BankMemoryService(memory)
    events = importlib.import_module("google.adk.events.event")
    sessions = importlib.import_module("google.adk.sessions.session")
    types = importlib.import_module("google.genai.types")

    def said(author: str, text: str) -> Any:
        return events.Event(author=author, id=f"{author}-{text}", content=types.Content(parts=[types.Part(text=text)]))

    for user, answer in (("ann", "Prefers oat milk"), ("bob", "Drinks it black")):
        exchange = [said("user", "make coffee"), said("agent", answer), said("user", "thanks")]
        session = sessions.Session(id=f"s-{user}", app_name="app", user_id=user, events=exchange)
        awaited(service.add_session_to_memory(session))
        awaited(service.add_session_to_memory(session))
    found = awaited(service.search_memory(app_name="app", user_id="ann", query="make coffee"))
    assert [one.content.parts[0].text for one in found.memories] == ["Prefers oat milk"]
    assert awaited(service.search_memory(app_name="app", user_id="eve", query="make coffee")).memories == []
    assert len(memory.bank.utilities("r")) == 2 and memory.bank.next_step("r") == 3
