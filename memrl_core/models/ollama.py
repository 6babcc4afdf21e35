"""An Ollama server, through the official client: a model that answers, what the server has, and what it can get."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from memrl_core.errors import (
    InputError,
    ModelError,
    ModelInterrupted,
    ModelMissing,
    ModelSlow,
    NotBound,
    OllamaDown,
    PromptTooLong,
    ServerDown,
    one_line,
)
from memrl_core.models.base import Cancelled, ModelOptions, OnText, fewest_tokens, slow, tells_no_room
from memrl_core.models.ollama_client import (
    as_sent,
    canonical_name,
    checked_address,
    checked_name,
    default_address,
    failure,
    failures,
    is_local,
    official,
    ollama_client,
    ollama_stream,
    pull_command,
    serve_command,
)
from memrl_core.models.stream import Arriving, Broken
from memrl_core.records import Message, Reply

if TYPE_CHECKING:
    import ollama

NANOSECONDS = 1e9
ABOUT_THE_SCHEMA = re.compile(r"schema|grammar|\bformat\b", re.IGNORECASE)
"""Words of a server that refuses a request for its schema."""
SENT = {"seed", "temperature", "num_ctx", "num_predict", "top_p", "num_thread"}
"""The options that go to the server as they are."""

UNPENALISED = {"repeat_penalty": 1.0}
"""Ollama's own 1.1 punishes tokens that stand in the prompt, and so the very answers that memories show."""
PULL_PATIENCE = 600.0
"""Seconds without news before a pull is given up: checking a large download is silent for minutes."""

NO_TEMPLATE = ("", "{{ .Prompt }}", "{{.Prompt}}")
"""Templates of a model that came without one of its own."""

SUGGESTED = ("llama3.2", "nomic-embed-text")
OFFERED = 5
"""How many installed models a sentence names."""


class OllamaModel:
    """A chat model of an Ollama server (a `LanguageModel`).

    `timeout` is how many seconds may pass without anything arriving. Nothing is asked of the server before `chat`.
    Raises `InputError` for a name or an address that cannot be one.
    """

    simulated = False
    binds = True

    def __init__(self, name: str, address: str | None = None, timeout: float = 60.0) -> None:
        self.name = checked_name(name)
        self.address = checked_address(address or default_address())
        self.timeout = timeout
        self._whole: dict[str, bool] = {"truncate": False, "shift": False}

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages` (see `LanguageModel`). Thinking and tool calls are not part of the answer.

        `Reply.seconds` is what the server measured, loading of the model included; our own clock when it gave nothing.
        An answer that meets a limit of `options` is cut there, and a broken character replaced: the reply says both.
        Raises `OllamaDown`, `ModelMissing`, `ModelSlow` (nothing arrived), `ModelInterrupted` (with what had arrived),
        `EmptyAnswer`, and `InputError` for text that is not UTF-8. `PromptTooLong` where the server refuses the prompt,
        where it must have cut it (servers before 0.12 do so without a word), or where no room is left for an answer,
        and `NotBound` where the server refuses the schema.
        """
        sent = as_sent(messages)  # Before anything is asked of the server.
        window, words = min(options.num_ctx, self._own_window or options.num_ctx), fewest_tokens(messages)
        if words > window:
            raise PromptTooLong(self.name, window)
        asked: dict[str, Any] = {
            "model": self.name,
            "messages": sent,
            "stream": True,
            "think": options.think,
            "options": {
                **options.model_dump(include=SENT, exclude_none=True),
                **UNPENALISED,
                **({"stop": options.stops} if options.stops else {}),
            },
            "keep_alive": options.keep_alive,
            **({} if schema is None else {"format": dict(schema)}),
        }

        async def ask(client: ollama.AsyncClient) -> AsyncIterator[ollama.ChatResponse]:
            # The official client's `chat` does not know the fields that keep the server from cutting a prompt.
            body = {**asked, **self._whole}
            kind: type[ollama.ChatResponse] = official().ChatResponse
            return await client._request(kind, "POST", "/api/chat", json=body, stream=True)

        arriving = Arriving(options, on_text, cancelled, bound=schema is not None)
        last = None
        patience = options.between_tokens or self.timeout
        stream = ollama_stream(ask, self.address, patience, arriving.ended, options.first_token or self.timeout)
        try:
            for part in stream:
                arriving.take(part.message.content or "", part.message.thinking or "", bool(part.done))
                last = part if part.done else last
        except Broken as broken:
            refused = str(broken.cause.error) if isinstance(broken.cause, official().ResponseError) else ""
            if self._whole and any(f'"{name}"' in refused for name in self._whole):
                self._whole = {}
                return self.chat(messages, options, on_text, cancelled, schema)
            if tells_no_room(refused):
                raise PromptTooLong(self.name, window) from None
            if options.think and "does not support thinking" in refused:
                plain = options.model_copy(update={"think": False})
                reply = self.chat(messages, plain, on_text, cancelled, schema)
                return replace(reply, notes=(*reply.notes, "this model cannot think first"))
            if schema is not None and not arriving.text and ABOUT_THE_SCHEMA.search(refused):
                raise NotBound(f"Ollama refuses to hold {self.name} to a schema.") from None
            raise failure(broken.cause, self.address, self.name, stream.patience, arriving.partial) from None
        if last is None:
            if not arriving.stopped and not arriving.cut and not arriving.whole:
                # Ollama ends the stream so, without a last part, when a model repeats one token 31 times.
                arriving.cut = "the server's own limit"
            return arriving.reply(self.name, window=window)
        read, measured = last.prompt_eval_count, last.total_duration
        if read is not None and read < words and words > window // 2:
            raise PromptTooLong(self.name, window)
        return arriving.reply(
            self.name,
            full=last.done_reason == "length",
            read=read,
            written=last.eval_count,
            seconds=measured / NANOSECONDS if measured else None,
            window=window,
            notes=slow(last.eval_count, (last.eval_duration or 0) / NANOSECONDS, options),
        )

    @cached_property
    def _own_window(self) -> int | None:
        """How many tokens prompt and answer of the model were made for; None where the server does not say."""
        with suppress(ModelError):  # Whatever is wrong, the question itself will show.
            return show_model(self.address, self.name, min(self.timeout, 2.0)).context
        return None


# --- what a server is, has and can get -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model on the server: `size` in bytes on its disk, `capabilities` in Ollama's words, `context` its window in
    tokens, `digest` that of its weights. What the server does not say is empty or None.

    Without a `chat_template` it goes on with a text, and does not know who said what.
    """

    name: str
    size: int
    capabilities: tuple[str, ...] | None
    context: int | None = None
    chat_template: bool | None = None
    parameters: str = ""
    quantisation: str = ""
    digest: str = ""

    @property
    def can_chat(self) -> bool:
        """False only when the server says that it cannot."""
        return self.capabilities is None or "completion" in self.capabilities

    @property
    def can_embed(self) -> bool:
        """False only when the server says that it cannot."""
        return self.capabilities is None or "embedding" in self.capabilities


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory now: `size` in bytes, of which `size_vram` on a graphics card."""

    name: str
    size: int
    size_vram: int


@dataclass(frozen=True, slots=True)
class OllamaStatus:
    """The server as it was when asked. `remedy` is what to type, empty when nothing is amiss."""

    state: Literal["running", "not_running", "model_missing"]
    sentence: str
    remedy: str
    models: tuple[InstalledModel, ...] = ()
    loaded: tuple[LoadedModel, ...] = ()


@dataclass(frozen=True, slots=True)
class PullProgress:
    """One report of a pull. `completed` of `total` bytes count for the part that `status` names; 0 when unknown."""

    status: str
    completed: int
    total: int


def ollama_status(address: str, model: str | None = None, timeout: float = 1.0) -> OllamaStatus:
    """Ask the server at `address` how it is, and whether it has `model`. Every answer waits `timeout` seconds at most.

    Never raises for what a server or a person can do: a bad address is a state too.
    """
    try:
        models = list_models(address, timeout)
    except InputError as error:
        return OllamaStatus("not_running", str(error), "")
    except ModelError as error:
        sentence = f"What answers at {address} is not Ollama."
        if isinstance(error, OllamaDown):
            sentence = f"Ollama is not running at {address}."
        elif isinstance(error, ModelSlow):
            sentence = f"Nothing answers at {address} within {timeout:g} s."
        elif type(error) in (ModelError, ServerDown):  # It could not even be asked.
            return OllamaStatus("not_running", str(error), "")
        return OllamaStatus("not_running", f"{sentence} Replay and demo still work.", _how_to_start(address))
    version, loaded = _version(address, timeout), _loaded(address, timeout)
    if model is not None and canonical_name(model) not in {installed.name for installed in models}:
        others = [one_line(installed.name) for installed in models if installed.can_chat][:OFFERED]
        choose = f"Pull it, or choose one that is: {', '.join(others)}." if others else "Pull it."
        sentence = f"Model {one_line(canonical_name(model))} is not installed at {address}. {choose}"
        return OllamaStatus("model_missing", sentence, pull_command(model, address), models, loaded)
    count = "1 model" if len(models) == 1 else f"{len(models) or 'no'} models"
    sentence = f"Ollama{' ' if version else ''}{version} is running at {address} with {count}."
    remedy = "" if models else "\n".join(pull_command(name, address) for name in SUGGESTED)
    return OllamaStatus("running", sentence, remedy, models, loaded)


def list_models(address: str, timeout: float = 1.0) -> tuple[InstalledModel, ...]:
    """The models installed at `address`, by name. Raises `InputError` for a bad address, `ModelError` otherwise."""
    models = []
    telling = True
    for listed in _listed(address, timeout):
        name = listed.model or ""
        model = InstalledModel(canonical_name(name), 0, None)
        if telling:
            try:
                model = _shown(address, name, listed.digest or "", timeout)
            except ModelError:
                # One that cannot answer now would cost its timeout again for every model.
                telling = False
        models.append(replace(model, size=int(listed.size or 0), digest=listed.digest or ""))
    return tuple(sorted(models, key=lambda model: model.name))


def show_model(address: str, name: str, timeout: float = 5.0) -> InstalledModel:
    """What the server knows of `name`, but for its size on the disk.

    Raises `ModelMissing` and other `ModelError`s, and `InputError` for a bad name.
    """
    wanted = checked_name(name)
    with _asking(address, wanted, timeout) as client:
        shown = client.show(wanted)
    details, facts = shown.details, shown.modelinfo or {}
    context = facts.get(f"{facts.get('general.architecture', '')}.context_length")
    return InstalledModel(
        name=wanted,
        size=0,
        capabilities=None if shown.capabilities is None else tuple(shown.capabilities),
        context=context if isinstance(context, int) else None,
        chat_template=None if shown.template is None else shown.template.strip() not in NO_TEMPLATE,
        parameters=(details.parameter_size if details else None) or "",
        quantisation=(details.quantization_level if details else None) or "",
    )


def facts(address: str, name: str, timeout: float = 5.0) -> dict[str, Any]:
    """What the server says of the weights of `name`: digest, quantisation, window, parameters, and its version.

    Raises `ModelMissing`, also for a model that cannot answer, other `ModelError`s, and `InputError` for a bad name.
    """
    shown = show_model(address, name, timeout)
    if shown.capabilities is not None and "completion" not in shown.capabilities:
        raise ModelMissing(
            f"{one_line(shown.name)} makes embeddings and cannot answer. Nothing was started; choose a model that can."
        )
    digest, version = weights_and_server(address, shown.name, timeout)
    reported = {
        "digest": digest,
        "quantisation": shown.quantisation,
        "context": shown.context,
        "parameters": shown.parameters,
        "server": version,
    }
    return {name: value for name, value in reported.items() if value}


def rendered(address: str, name: str, messages: Sequence[Message], think: bool, timeout: float = 5.0) -> str:
    """The text that the server makes of `messages` by the model's chat template.

    Raises `InputError` where the server does not say (before 0.12), and `ModelError`.
    """
    body = {
        "model": checked_name(name),
        "messages": as_sent(messages),
        "stream": False,
        "think": think,
        # A server that does not know the field answers: with as little as can be.
        "options": {"num_predict": 1},
        "_debug_render_only": True,
    }
    with _asking(address, name, timeout) as client:
        reported = client._request_raw("POST", "/api/chat", json=body).json()
        if "_debug_info" in reported:
            return str(reported["_debug_info"]["rendered_template"])
    raise InputError(
        f"What the chat template of {one_line(name)} makes of the messages is not known: this version of Ollama does "
        "not say."
    )


def pull_model(address: str, name: str, cancelled: Cancelled | None = None) -> Iterator[PullProgress]:
    """Have the server fetch `name`; yields every report until it is there.

    Leaving the iteration, or `cancelled()` turning true, stops the download; Ollama goes on from there another time.
    Raises `ModelMissing` when there is no such model to fetch, other `ModelError`s, and `InputError` for a bad name.
    """
    wanted = checked_name(name)

    async def ask(client: ollama.AsyncClient) -> AsyncIterator[ollama.ProgressResponse]:
        return await client.pull(wanted, stream=True)

    stream = ollama_stream(ask, checked_address(address), PULL_PATIENCE, cancelled)
    status = ""
    try:
        for part in stream:
            status = part.status or ""
            yield PullProgress(status, part.completed or 0, part.total or 0)
    except Broken as broken:
        # Ollama reports a name it cannot find in the middle of a stream, with no other sign than these words.
        if "file does not exist" in str(broken):
            raise ModelMissing(
                f"There is no model {wanted} to pull. Nothing was changed; check the spelling and the tag."
            ) from None
        raise failure(broken.cause, address, wanted, PULL_PATIENCE) from None
    if status != "success" and not stream.stopped:
        raise ModelInterrupted(f"The pull of {wanted} broke off. What was fetched is kept; pull again to go on.")


def weights_and_server(address: str, name: str, timeout: float = 5.0) -> tuple[str, str]:
    """The digest of the weights that `name` has at `address`, and the server's version; empty for what is unknown."""
    version = _version(address, timeout)
    try:
        digests = {canonical_name(model.model or ""): model.digest or "" for model in _listed(address, timeout)}
    except ModelError:
        digests = {}
    return digests.get(canonical_name(name), ""), f"Ollama {version}" if version else ""


def _listed(address: str, timeout: float) -> Sequence[ollama.ListResponse.Model]:
    with _asking(address, "", timeout) as client:
        models: Sequence[ollama.ListResponse.Model] = client.list().models
        return models


@contextmanager
def _asking(address: str, name: str, timeout: float) -> Iterator[Any]:
    """A client for one question, about the model `name` unless that is "". What fails within it is a `ModelError`."""
    try:
        with ollama_client(address, timeout) as client:
            yield client
    except failures() as error:
        raise failure(error, address, name, timeout) from None


@lru_cache(maxsize=256)
def _shown(address: str, name: str, digest: str, timeout: float) -> InstalledModel:
    """Remembered by digest: the same bytes can always do the same."""
    return show_model(address, name, timeout)


def _version(address: str, timeout: float) -> str:
    """The server's version, which the official client does not ask for; empty when it is not known."""
    with suppress(ModelError), _asking(address, "", timeout) as client:
        return str(client._request_raw("GET", "/api/version").json()["version"])
    return ""


def _loaded(address: str, timeout: float) -> tuple[LoadedModel, ...]:
    models: Sequence[ollama.ProcessResponse.Model] = ()
    with suppress(ModelError), _asking(address, "", timeout) as client:
        models = client.ps().models
    return tuple(
        LoadedModel(canonical_name(model.model or model.name or ""), int(model.size or 0), int(model.size_vram or 0))
        for model in models
    )


def _how_to_start(address: str) -> str:
    if not is_local(address):
        return f"# on the machine of that address:\n{serve_command(address)}"
    return f"{serve_command(address)}\n# From inside Docker, use the address http://host.docker.internal:11434"
