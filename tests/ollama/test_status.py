"""What is said of a server: its state with a remedy, its models, and a pull that can be watched and left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memrl_core.embedders.ollama import OllamaEmbedder
from memrl_core.errors import InputError, ModelInterrupted, ModelMissing, OllamaDown
from memrl_core.models import stream
from memrl_core.models.base import ModelOptions
from memrl_core.models.ollama import (
    InstalledModel,
    LoadedModel,
    OllamaModel,
    PullProgress,
    list_models,
    ollama_status,
    pull_model,
    rendered,
    show_model,
)
from memrl_core.records import Message
from tests.ollama.scene import LLAMA, NOMIC
from tests.ollama.server import OllamaServer


def test_a_running_server_tells_its_version_models_and_what_is_loaded(server: OllamaServer) -> None:
    server.models.pop(NOMIC.name)
    status = ollama_status(server.address, "llama3.2:latest")
    assert (status.state, status.remedy) == ("running", "")
    assert "0.12.6" in status.sentence and server.address in status.sentence
    of_weights = ("completion", "tools"), 131_072, True, "3.2B", "Q4_K_M"
    llama = InstalledModel("llama3.2", 2_019_393_189, *of_weights, digest=status.models[0].digest)
    assert status.models == (llama,)
    assert status.loaded == ()


def test_a_model_without_a_chat_template_is_reported(server: OllamaServer) -> None:
    server.models["base:latest"] = replace(LLAMA, name="base:latest", template="{{ .Prompt }}")
    assert [(model.name, model.chat_template) for model in ollama_status(server.address).models if model.can_chat] == [
        ("base", False),
        ("llama3.2", True),
    ]


def test_no_server_has_its_remedy(nobody: str) -> None:
    status = ollama_status(nobody, "llama3.2")
    assert status.state == "not_running"
    assert nobody in status.sentence
    assert status.remedy.splitlines()[0] == f"OLLAMA_HOST={nobody.removeprefix('http://')} ollama serve"
    assert "host.docker.internal" in status.remedy


def test_a_missing_model_has_its_remedy_and_the_alternatives(server: OllamaServer) -> None:
    status = ollama_status(server.address, "mistral")
    assert status.state == "model_missing"
    assert "mistral" in status.sentence
    assert "llama3.2" in status.sentence
    assert status.remedy == f"OLLAMA_HOST={server.address[7:]} ollama pull mistral"


def test_a_server_without_models_suggests_two(server: OllamaServer) -> None:
    server.models.clear()
    status = ollama_status(server.address)
    assert status.state == "running"
    assert "with no models" in status.sentence
    assert [line.split(" ", 1)[1] for line in status.remedy.splitlines()] == [
        "ollama pull llama3.2",
        "ollama pull nomic-embed-text",
    ]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("{}/elsewhere", "is not Ollama"), ("{}", "Nothing answers"), ("localhost", "“localhost”")],
    ids=["another server", "hangs", "no address"],
)
def test_what_cannot_be_asked_is_a_state_with_a_sentence(server: OllamaServer, address: str, sentence: str) -> None:
    server.faults.instead["/api/tags"] = "hang"
    status = ollama_status(address.format(server.address), timeout=0.2)
    assert status.state == "not_running"
    assert sentence in status.sentence


def test_a_model_in_memory_is_listed_as_loaded(server: OllamaServer) -> None:
    OllamaEmbedder("nomic-embed-text", server.address)
    assert ollama_status(server.address).loaded == (LoadedModel("nomic-embed-text", NOMIC.size, NOMIC.size // 2),)


def test_which_models_chat_and_which_embed(server: OllamaServer) -> None:
    server.models["old:1b"] = replace(LLAMA, name="old:1b", capabilities=None)
    can = {model.name: (model.can_chat, model.can_embed) for model in list_models(server.address)}
    assert can == {"llama3.2": (True, False), "nomic-embed-text": (False, True), "old:1b": (True, True)}


def test_capabilities_are_asked_once_for_the_same_bytes(server: OllamaServer) -> None:
    list_models(server.address)
    list_models(server.address)
    assert len(server.asked("/api/show")) == 2
    server.models[LLAMA.name] = replace(LLAMA, capabilities=("completion", "embedding"))
    assert all(model.can_embed for model in list_models(server.address))


def test_a_server_that_cannot_describe_its_models_still_lists_them(server: OllamaServer) -> None:
    server.faults.instead["/api/show"] = 500
    assert [(m.name, m.capabilities) for m in list_models(server.address)] == [
        ("llama3.2", None),
        ("nomic-embed-text", None),
    ]
    assert len(server.asked("/api/show")) == 1


def test_one_model_more_closely(server: OllamaServer) -> None:
    shown = show_model(server.address, "nomic-embed-text:latest")
    assert (shown.name, shown.parameters, shown.quantisation) == (
        "nomic-embed-text",
        "3.2B",
        "Q4_K_M",
    )
    assert (shown.context, shown.capabilities) == (2048, ("embedding",))
    with pytest.raises(ModelMissing, match="not installed"):
        show_model(server.address, "mistral")


def test_what_the_chat_template_makes_of_messages_is_reported_where_the_server_tells_it(server: OllamaServer) -> None:
    messages = [Message("system", "Act."), Message("user", "Task: go")]
    assert rendered(server.address, "llama3.2", messages, False) == "<|system|>Act.<|user|>Task: go"
    server.faults.renders = False
    with pytest.raises(InputError, match="not known"):
        rendered(server.address, "llama3.2", messages, False)
    assert server.asked("/api/chat")[-1]["options"]["num_predict"] == 1
    with pytest.raises(ModelMissing):
        rendered(server.address, "mistral", messages, False)


def test_a_pull_reports_its_progress_until_the_model_is_there(server: OllamaServer) -> None:
    reports = list(pull_model(server.address, "mistral"))
    assert reports[0] == PullProgress("pulling manifest", 0, 0)
    assert [r.completed for r in reports if r.total] == [0, 250, 500, 750, 1000]
    assert reports[-1].status == "success"
    assert ollama_status(server.address, "mistral").state == "running"


def test_a_cancelled_pull_stops_the_download(server: OllamaServer) -> None:
    server.faults.delay = 0.02
    seen: list[PullProgress] = []
    for report in pull_model(server.address, "mistral", lambda: len(seen) >= 2):
        seen.append(report)
    assert server.left.wait(10)
    assert len(seen) == 2
    assert ollama_status(server.address, "mistral").state == "model_missing"


def test_a_pull_of_nothing_of_what_is_not_there_or_from_nowhere_is_its_own_error(
    server: OllamaServer, nobody: str
) -> None:
    with pytest.raises(InputError):
        next(pull_model(server.address, " "))
    assert server.requests == []
    server.faults.pull_unknown = True
    with pytest.raises(ModelMissing, match="to pull"):
        list(pull_model(server.address, "mistrial"))
    with pytest.raises(OllamaDown):
        next(pull_model(nobody, "mistral"))


@pytest.mark.parametrize(
    ("fault", "sentence"), [("error", "signal: killed"), ("drop", "connection"), ("no_end", "broke off")]
)
def test_a_pull_that_breaks_says_so(server: OllamaServer, fault: str, sentence: str) -> None:
    server.faults.stream = fault
    with pytest.raises(ModelInterrupted, match=sentence):
        list(pull_model(server.address, "mistral"))


@pytest.mark.parametrize("path", ["/api/tags", "/api/version", "/api/ps", "/api/show"])
def test_json_that_is_nested_without_end_ends_in_a_sentence(server: OllamaServer, path: str) -> None:
    server.faults.instead[path] = "deep"
    assert ollama_status(server.address, "llama3.2").sentence


def test_a_reply_that_fills_the_memory_is_not_read_to_its_end(
    server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_BYTES", 1000)
    server.faults.instead["/api/tags"] = "deep"
    with pytest.raises(ModelInterrupted, match="more than"):
        list_models(server.address)
    with pytest.raises(ModelInterrupted, match="more than"):
        OllamaModel("llama3.2", server.address).chat([Message("user", "x")], ModelOptions())
