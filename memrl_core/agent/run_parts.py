"""The parts of a run by their names: embedders, and models with what their servers say of them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from memrl_core.agent.preferences import Preferences
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Embedder
from memrl_core.embedders.fastembed import PREFIX as FASTEMBED_PREFIX
from memrl_core.embedders.fastembed import FastEmbedder
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.embedders.ollama import OllamaEmbedder
from memrl_core.embedders.wordllama import NAMES as WORDLLAMA
from memrl_core.embedders.wordllama import WordLlamaEmbedder, is_installed
from memrl_core.errors import (
    BankError,
    BankMissing,
    InputError,
    MemRLError,
    ModelChanged,
    ModelError,
    ModelMissing,
    OllamaDown,
    one_line,
)
from memrl_core.models import gguf, ollama
from memrl_core.models.base import LanguageModel, ModelOptions
from memrl_core.models.gguf import GgufModel, is_gguf
from memrl_core.models.hosts import HostedModel, Hosts
from memrl_core.models.ollama_client import (
    OPENAI,
    OPENAI_COMPATIBLE,
    canonical_name,
    checked_address,
    ollama_address,
)
from memrl_core.models.simulated import NAME, SimulatedModel, SimulatedReader
from memrl_core.records import UNKNOWN, Message, RunInfo

SMALL = "gguf:smollm2"
"""The weights that come with the program."""
SIMULATED = "simulated"
OLLAMA_PREFIX = "ollama:"
HASHING = "hashing"
OPENAI_PREFIX = "openai:"

WEIGHTS = ("digest", "quantisation", "parameters", "bytes", "from")
"""The facts of a model that do not change while its weights are the same."""

PATIENCE = 5.0
"""Seconds within which a server has to say what model it has."""


# --- embedders --------------------------------------------------------------------------------------------------------


def default_embedder() -> str:
    """The embedder of new banks where nobody chooses: WordLlama, or hashing on a machine that has no wheel of it."""
    return WORDLLAMA[0] if is_installed() else HASHING


def make_embedder(name: str, preferences: Preferences) -> Embedder:
    """The embedder a bank remembers as `name`: "hashing-1024", "wordllama-256", "fastembed:NAME", "openai:NAME", or a
    model of Ollama, also as "ollama:NAME"; "hashing" and "wordllama" choose these.

    Raises `ModelError` when it is not installed, a server is needed and cannot give it, or nobody named it.
    """
    if name == UNKNOWN:
        raise ModelError(
            "It is not known which embedder made the vectors of this bank, so no other text can be compared with them. "
            "Nothing was changed. Make a bank with vectors of an embedder that you have: memrl reembed --embedder NAME."
        )
    if name.startswith(HASHING):
        return _hashing(name)
    if name in WORDLLAMA:
        return WordLlamaEmbedder()
    if name.startswith(FASTEMBED_PREFIX):
        return FastEmbedder(name)
    if name.startswith(OPENAI_PREFIX):
        _openai()
        from memrl_core.embedders.openai import OpenAIEmbedder

        return OpenAIEmbedder(name, preferences.openai_address, preferences.timeout)
    return OllamaEmbedder(
        name.removeprefix(OLLAMA_PREFIX), address=preferences.ollama_address, timeout=preferences.timeout
    )


def new_embedder(name: str, preferences: Preferences) -> Embedder:
    """The embedder `name` for new vectors. Raises `ModelError`, and `InputError` for a plain name of a model of which
    Ollama says that it makes no embeddings: "ollama:NAME" takes it all the same.
    """
    try:
        made = make_embedder(name, preferences)
    except OllamaDown as error:
        if name.startswith(OLLAMA_PREFIX):
            raise
        raise OllamaDown(
            f"“{one_line(name)[:80]}” is none of {HASHING}, {WORDLLAMA[0]}, {FASTEMBED_PREFIX}NAME and "
            f"{OPENAI_PREFIX}NAME, so it is taken for a model of Ollama. {error}"
        ) from error
    # `OpenAIEmbedder` is an `OllamaEmbedder`, too, and its server has no word for what a model can do.
    if isinstance(made, OllamaEmbedder) and not name.startswith((OLLAMA_PREFIX, OPENAI_PREFIX)):
        if ollama.show_model(made.address, made.name, preferences.timeout).can_embed:
            return made
        others = [one_line(model.name) for model in ollama.list_models(made.address) if model.can_embed]
        choose = f"Choose {' or '.join(others[:3])}" if others else "Run `ollama pull nomic-embed-text` and choose that"
        raise InputError(
            f"{one_line(made.name)} is a model that answers; Ollama does not list embeddings among what it can do. "
            f"Nothing was created. {choose}; or name it {OLLAMA_PREFIX}{one_line(made.name)} to take its vectors all "
            "the same."
        )
    return made


def embedder_name(name: str) -> str:
    """What a bank calls the embedder `name`; no server is asked."""
    if name.startswith(HASHING):
        return _hashing(name).name
    if name.startswith(OPENAI_PREFIX):
        return name
    return WORDLLAMA[-1] if name in WORDLLAMA else canonical_name(name.removeprefix(OLLAMA_PREFIX))


def embeds_here(name: str) -> bool:
    """Whether an embedder runs in this program at once, without a server or a download."""
    return name.startswith(HASHING) or name in WORDLLAMA


def _hashing(name: str) -> HashingEmbedder:
    size = name.removeprefix(f"{HASHING}-")
    return HashingEmbedder(int(size)) if size.isascii() and size.isdigit() else HashingEmbedder()


def embedder_of(bank: MemoryBank, preferences: Preferences) -> Embedder:
    """The embedder that made the bank's vectors.

    Raises `ModelError` when it cannot be had, `EmbedderMismatch` when that name now stands for another.
    """
    made = make_embedder(bank.embedder.name, preferences)
    bank.embedder.must_match(made)
    return made


def create_bank(uri: str, embedder: str, preferences: Preferences) -> MemoryBank:
    """A new bank for vectors of `embedder` (see `new_embedder`). Raises `ModelError`, `InputError`, `NotABank`."""
    made = new_embedder(embedder, preferences)
    return MemoryBank.create(uri, made.name, made.dimension, made.digest, made.version)


def bank_at(uri: str, preferences: Preferences, embedder: Embedder | None = None) -> MemoryBank:
    """The bank at `uri`; a new one for vectors of `embedder`, else of the default one, where nothing is there.

    Programs that begin at once get the same bank. Raises what opening and making a bank raise, and `ModelError`.
    """
    with suppress(BankError):  # Nothing is there, or another program is about to make it.
        return MemoryBank.open(uri, embedder)
    with ExitStack() as stack:
        if "://" not in uri:
            with suppress(OSError):  # Where no lock can be written, `create` says why no bank can.
                stack.enter_context(FileLock(f"{uri}.lock", timeout=60))
        try:
            return MemoryBank.open(uri, embedder)
        except BankMissing:
            made = embedder or new_embedder(default_embedder(), preferences)
            return MemoryBank.create(uri, made.name, made.dimension, made.digest, made.version)


# --- models -----------------------------------------------------------------------------------------------------------


def make_model(name: str, preferences: Preferences, hosts: Hosts | None = None) -> LanguageModel:
    """The embedded model ("simulated"), one that reads less ("simulated-50": half of the time), a file that
    runs in this process ("gguf:smollm2"), one of an OpenAI-compatible server ("openai:NAME"), or an Ollama model, also
    as "ollama:NAME"; the last two at any of the `hosts`, where some are given. Raises `InputError` and `ModelMissing`.
    """
    if name == SIMULATED:
        return SimulatedModel()
    if found := NAME.fullmatch(name):
        return SimulatedReader(int(found[1]))
    if is_gguf(name):
        return GgufModel(name)
    if hosts is None:
        return _model_at(_address_of(name, preferences), name, preferences.timeout)
    models = {address: _model_at(address, name, preferences.timeout, hosts.trusted) for address in hosts.addresses}
    patience = min(preferences.timeout, PATIENCE)
    return HostedModel(models, hosts, lambda address: _facts_at(address, name, patience, False, hosts.trusted))


def _model_at(address: str, name: str, timeout: float, trusted: bool = False) -> LanguageModel:
    if name.startswith(OPENAI_PREFIX):
        served: LanguageModel = _openai().OpenAIModel(name, address, timeout, trusted)
        return served
    return ollama.OllamaModel(name.removeprefix(OLLAMA_PREFIX), address=address, timeout=timeout)


def _address_of(model: str, preferences: Preferences) -> str:
    return preferences.openai_address if model.startswith(OPENAI_PREFIX) else preferences.ollama_address


def _openai() -> Any:
    """The module of OpenAI-compatible servers, imported only where it is needed.

    Raises `ModelMissing` where their client is not installed.
    """
    if importlib.util.find_spec("openai") is None:
        raise ModelMissing(
            "The client of OpenAI-compatible servers is not installed. Nothing was started; run `pip install openai`, "
            "or choose another model."
        )
    from memrl_core.models import openai

    return openai


def hosts_of(model: str, given: Sequence[str], per_host: int, folder: Path, trusted: bool) -> Hosts:
    """The hosts of a model from what a person writes, such as `10.0.0.7` or `http://gpu:8080/v1`.

    Raises `InputError` for what is no address, and for a model that runs in this program.
    """
    if is_simulated(model) or is_gguf(model):
        raise InputError(f"{one_line(model)} runs in this program and has no hosts. Nothing was started.")
    if model.startswith(OPENAI_PREFIX):
        whole = (one if "://" in one else f"http://{one}{'' if '/' in one else '/v1'}" for one in given)
        addresses = [checked_address(one, *OPENAI_COMPATIBLE) for one in whole]
    else:
        addresses = [ollama_address(one) for one in given]
    return Hosts(tuple(dict.fromkeys(addresses)), per_host, folder, trusted)


def must_be_there(model: str, preferences: Preferences, hosts: Hosts | None = None, ask: bool = True) -> dict[str, Any]:
    """What the model's server, or file, says of its weights; empty for a simulated one.

    Raises `ModelError` unless the model can be asked now, at one of the `hosts` where some are given, and `InputError`
    for what is no name of one, or hosts that have different weights. Without `ask`, nothing is loaded or answered.
    """
    if is_simulated(model):
        return {}
    if is_gguf(model):
        if ask:
            gguf.must_load(model)
        return gguf.facts(model)
    if hosts is None:
        return _facts_at(_address_of(model, preferences), model, preferences.timeout, ask)
    facts_by_address = {}
    for address in hosts.alive():
        try:
            facts_by_address[address] = _facts_at(address, model, preferences.timeout, ask, hosts.trusted)
        except ModelError as error:
            hosts.pass_over(address, str(error))
    if not facts_by_address:
        raise hosts.nobody(model)
    (first, facts), *others = facts_by_address.items()
    for address, theirs in others:
        if differs := _other_weights(facts, theirs):
            raise InputError(
                f"Under the name {one_line(model)} {first} and {address} have different weights ({differs[0]}). "
                "Nothing was started; install the same on both, or leave one of them out."
            )
    return facts


def _facts_at(address: str, model: str, timeout: float, ask: bool, trusted: bool = False) -> dict[str, Any]:
    if model.startswith(OPENAI_PREFIX):
        reported: dict[str, Any] = _openai().facts(model, address, timeout, ask, trusted)
        return reported
    return ollama.facts(address, model.removeprefix(OLLAMA_PREFIX), timeout)


def must_be_the_same(info: RunInfo, preferences: Preferences, hosts: Hosts | None = None) -> None:
    """Raise `ModelChanged` where other weights answer under the name of a run's model than when it began.

    A model that cannot be reached now raises nothing here.
    """
    if not info.model_facts:
        return
    try:
        hurried = preferences.model_copy(update={"timeout": min(preferences.timeout, PATIENCE)})
        now = must_be_there(info.model, hurried, hosts, ask=False)
    except ModelError:
        return
    if differs := _other_weights(info.model_facts, now):
        name = differs[0]
        raise ModelChanged(
            f"Under the name {one_line(info.model)} other weights answer now than when the run {info.id} began: {name} "
            f"{one_line(str(info.model_facts[name]))[:80]} then, {one_line(str(now[name]))[:80]} now. All steps are "
            "kept and none was added. Start a new run, which may begin with what this one knows, or install the "
            "weights of then."
        )


def _other_weights(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The facts about weights that both sides have, and that differ."""
    return [name for name in WEIGHTS if name in one and name in other and one[name] != other[name]]


def rendered(model: str, messages: Sequence[Message], options: ModelOptions, preferences: Preferences) -> str:
    """The text that the chat template of a model makes of `messages`, as it is installed now.

    Raises `InputError` where the server does not say, and `ModelError`.
    """
    if is_gguf(model):
        return GgufModel(model).rendered(messages, options)
    address = _address_of(model, preferences)
    if model.startswith(OPENAI_PREFIX):
        raise InputError(f"The server at {address} applies the chat template itself, and does not show the result.")
    name, timeout = model.removeprefix(OLLAMA_PREFIX), preferences.timeout
    return ollama.rendered(address, name, messages, options.think, timeout)


def is_simulated(model: str) -> bool:
    """Whether `model` names the embedded model or one of its readers."""
    return model == SIMULATED or NAME.fullmatch(model) is not None


def is_of_ollama(model: str) -> bool:
    """Whether `model` names a model of Ollama, which a plain name does."""
    return not is_simulated(model) and not is_gguf(model) and not model.startswith(OPENAI_PREFIX)


def models_at_hand(of_ollama: Iterable[str]) -> list[str]:
    """The models that can answer here, what to begin with first: Ollama's, those in this program, the simulated one."""
    own = [f"{gguf.PREFIX}{name}" for name in gguf.PACKAGED]
    return [*of_ollama, *(name for name in own if not lacks(name)), SIMULATED]


def lacks(model: str) -> str:
    """What stands in the way of a model that runs in this program, as a sentence with its remedy; "" when nothing."""
    try:
        gguf.weights_of(model)
    except MemRLError as error:
        return str(error)
    return ""


def openai_models(preferences: Preferences) -> tuple[str, ...]:
    """The models of the OpenAI-compatible server as they are named here; none where no such server was chosen.

    Raises `ModelError` when it does not list them, and `InputError` for a bad address.
    """
    if preferences.openai_address == OPENAI and not os.environ.get("OPENAI_API_KEY"):
        return ()
    return tuple(OPENAI_PREFIX + name for name in _openai().list_models(preferences.openai_address))
