"""A run's memory in the frameworks of others, with their real packages."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.memory import Memory
from memrl_core.agent.recorder import Recorder
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.cli.otlp import PATH, Receiver
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
    assert trace.task.intent == "make coffee" and memory.bank.ratings.effective("r", 1) == 1.0
    store.put(("u", "food"), "a", {"text": "Drinks tea now", "intent": "make coffee"})
    store.delete(("u", "food"), "b")
    assert store.get(("u", "food"), "a").value["text"] == "Drinks tea now" and store.get(("u", "food"), "b") is None
    assert [one.key for one in awaited(store.asearch(("u",), query="make coffee"))] == ["a"]
    assert all(finding.ok for finding in check(str(tmp_path / "bank")))


def test_a_search_of_a_namespace_is_a_recall_among_its_memories(memory: Memory) -> None:
    store = adapter("langgraph_store", "langgraph.store.base").BankStore(memory)
    for number in range(30):
        store.put(("bob",), f"{number}", {"text": f"Oat milk, says Bob {number}", "intent": "make coffee", "n": number})
    store.put(("ann",), "a", {"text": "Drinks it black", "intent": "make some coffee"})
    assert [one.key for one in store.search(("ann",), query="make coffee")] == ["a"]
    store.last.reward(1.0)
    trace = memory.bank.trace("r", 1)
    assert trace.recall.memories == 1 and memory.bank.credits.of("r", 1) == trace.decision.selected
    assert any("only the namespace ('ann',)" in lack for lack in trace.lacks)
    store.put(("ann",), "b", {"text": "Her cat is called Minka", "intent": "zzz qqq"})
    assert [one.key for one in store.search(("ann",), query="make coffee")] == ["a"]  # The gate δ rejects the other.
    assert {one.key for one in store.search(("bob",), filter={"n": {"$gte": 28}})} == {"28", "29"}
    assert {one.key for one in store.search(("bob",), query="make coffee", filter={"n": {"$lt": 2}})} == {"0", "1"}


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


@dataclass(frozen=True)
class Reported:
    """What a step must say alike, whoever recorded it; `answer` is None where the step says that it does not know."""

    intent: str
    hits: list[tuple[str, float]]
    selected: tuple[str, ...]
    answer: str | None
    reward: float | None


def reported(bank: MemoryBank, run: str) -> list[Reported]:
    found = []
    for step in bank.traces(run):
        assert step.recall is not None and step.decision is not None
        hits = [(one.memory_id, round(one.similarity, 5)) for one in step.recall.pool]
        is_known = not any("answered" in lack for lack in step.lacks)
        answer = step.turns[-1].reply.text if is_known else None
        reward = bank.ratings.effective(run, step.step)
        found.append(Reported(step.task.intent, hits, step.decision.selected, answer, reward))
    return found


@pytest.mark.slow
def test_a_langgraph_agent_gives_the_same_steps_by_recorder_adapter_and_spans(
    tmp_path: Path,
) -> None:
    """Its 60 documents, stub model and rewards are the same; of a store only the answer is not recorded."""
    graphs = importlib.import_module("langgraph.graph")
    core = importlib.import_module("langchain_core.documents")
    retrievers = importlib.import_module("langchain_core.retrievers")
    models = importlib.import_module("langchain_core.language_models.fake_chat_models")
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    processors = importlib.import_module("opentelemetry.sdk.trace.export")
    exporting = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    instrumenting = importlib.import_module("openinference.instrumentation.langchain")

    embedder = HashingEmbedder(256)
    things = ("egg", "kettle", "lamp", "door", "plant", "clock", "mug", "book", "pan", "towel")
    acts = ("heat", "clean", "move", "open", "find", "cool")
    texts = {f"doc-{n:02}": f"To {acts[n % 6]} the {things[n // 6]}, follow rule {n}." for n in range(60)}
    vectors = dict(zip(texts, embedder.embed([*texts.values()]), strict=True))
    questions = ["heat the egg", "clean the lamp", "open the door"]
    pool, chosen = 5, 3

    def nearest(question: str) -> list[tuple[str, float]]:
        (asked,) = embedder.embed([question])
        return sorted(((one, float(vector @ asked)) for one, vector in vectors.items()), key=lambda one: -one[1])[:pool]

    class Nearest(retrievers.BaseRetriever):  # type: ignore[misc, name-defined]
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            found = nearest(query)
            return [core.Document(id=one, page_content=texts[one], metadata={"score": score}) for one, score in found]

    def graph(search: Callable[[str], list[tuple[str, float, str]]]) -> Any:
        model = models.FakeListChatModel(responses=[f"answer to {question}" for question in questions])

        def recall(state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "found": search(state["question"])}

        def answer(state: dict[str, Any]) -> dict[str, Any]:
            known = "\n".join(text for *_, text in state["found"][:chosen])
            return {**state, "answer": model.invoke([("system", known), ("user", state["question"])]).content}

        builder = graphs.StateGraph(dict)
        builder.add_node("recall", recall)
        builder.add_node("answer", answer)
        builder.add_edge(graphs.START, "recall")
        builder.add_edge("recall", "answer")
        return builder.compile()

    def by_retriever(question: str) -> list[tuple[str, float, str]]:
        return [(one.id, one.metadata["score"], one.page_content) for one in Nearest().invoke(question)]

    # By the recorder.
    def known_to(place: str, run: str) -> tuple[MemoryBank, Recorder]:
        bank = MemoryBank.create(str(tmp_path / place), embedder.name, 256)
        made = Recorder(bank, run)
        for name, text in texts.items():
            made.remember(text, text, vectors[name], memory_id=name)
        return bank, made

    recorded, recorder = known_to("recorded", "r")
    agent = graph(by_retriever)
    for number, question in enumerate(questions):
        with recorder.step(question, embedding=embedder.embed([question])[0]) as s:
            done = agent.invoke({"question": question})
            s.recalled([(name, score) for name, score, _ in done["found"]])
            s.selected([name for name, *_ in done["found"][:chosen]])
            s.answered(done["answer"])
            s.rewarded(float(number % 2))
    # By the adapter: the store recalls itself.
    settings = {"k1": pool, "k2": chosen, "weight": 0.0, "delta": -1.0, "epsilon": 0.0, "k1_counts": "record"}
    stored = Memory.open(str(tmp_path / "stored"), run="r", embedder=embedder, settings=settings)
    store = adapter("langgraph_store", "langgraph.store.base").BankStore(stored)
    keys = {}
    for name, text in texts.items():
        store.put(("docs",), name, {"text": text, "intent": text})
        keys[next(reversed([*stored.bank.memory_ids()]))] = name

    def by_store(question: str) -> list[tuple[str, float, str]]:
        return [(one.key, one.score, one.value["text"]) for one in store.search(("docs",), query=question, limit=pool)]

    agent = graph(by_store)
    for number, question in enumerate(questions):
        agent.invoke({"question": question})
        store.last.reward(float(number % 2))
    # By spans of the real instrumentation.
    known_to("traced", "documents")[0].close()
    receiver = Receiver(str(tmp_path / "traced"), 0)
    provider = sdk.TracerProvider()
    address = f"http://127.0.0.1:{receiver.port}{PATH}"
    provider.add_span_processor(processors.SimpleSpanProcessor(exporting.OTLPSpanExporter(endpoint=address)))
    instrumenting.LangChainInstrumentor().instrument(tracer_provider=provider)
    try:
        tracer, agent = provider.get_tracer("test"), graph(by_retriever)
        for number, question in enumerate(questions):
            with tracer.start_as_current_span("task", attributes={"input.value": question}):
                agent.invoke({"question": question})
                judged = {"openinference.span.kind": "EVALUATOR", "eval.name": "reward", "eval.score": number % 2}
                tracer.start_span("judge", attributes=judged).end()
    finally:
        instrumenting.LangChainInstrumentor().uninstrument()
        provider.shutdown()
        receiver.close()

    with MemoryBank.open(str(tmp_path / "traced")) as traced:
        ways = {
            "recorder": reported(recorded, "r"),
            "adapter": reported(stored.bank, "r"),
            "spans": reported(traced, "otlp"),
        }
        own = [[one.score for one in step.retrievals[0].hits] for step in traced.traces("otlp")]
    ways["adapter"] = [
        replace(
            one, hits=[(keys[name], score) for name, score in one.hits], selected=tuple(map(keys.get, one.selected))
        )
        for one in ways["adapter"]
    ]
    assert [one.intent for one in ways["recorder"]] == questions
    assert [len(one.hits) for one in ways["recorder"]] == [pool] * 3 and ways["recorder"][0].hits[0][0] == "doc-00"
    assert ways["recorder"] == ways["spans"]
    assert [replace(one, answer=None) for one in ways["recorder"]] == ways["adapter"]
    assert own == [[score for _, score in nearest(question)] for question in questions]


@pytest.mark.slow
def test_a_memory_service_of_adk_gives_a_user_their_own_memories(tmp_path: Path) -> None:
    """In an environment of its own: google-adk wants older packages than the app and the other tests have."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    asked = next(one for one in requires("memrl-inspector") or () if one.startswith("google-adk"))
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        asked.partition(";")[0].strip(),
    ]
    subprocess.run(install, check=True, capture_output=True, text=True, timeout=1500)
    # What else the core needs comes from the environment of the tests, behind what was installed.
    theirs = [path for path in sys.path if path.endswith("site-packages")]
    (own,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (own / "zz_libraries.pth").write_text("\n".join(theirs) + "\n")
    program = Path(__file__).with_name("adk_memory_service.py")
    done = subprocess.run(
        [python, program, tmp_path / "bank"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert str(own) in done.stdout
