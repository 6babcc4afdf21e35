"""A language model of any server that speaks OpenAI's protocol (vLLM, LM Studio, llama-server, LiteLLM, OpenAI itself),
through the official client.

The key is read from `OPENAI_API_KEY` at each call. It, and what else the environment has the client send about a person
(`OPENAI_CUSTOM_HEADERS`, organisation, project), goes to the address that `OPENAI_BASE_URL` names (without it, to
OpenAI), to hosts that are named on the command line, and to no other. It stands in no name, record or sentence.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import httpx2
import openai

from memrl_core.errors import (
    InputError,
    ModelError,
    ModelInterrupted,
    ModelMissing,
    NotBound,
    PromptTooLong,
    ServerDown,
    one_line,
)
from memrl_core.models.base import Cancelled, ModelOptions, OnText, slow, tells_no_room, whole_characters
from memrl_core.models.ollama_client import (
    FAILURES,
    LONGEST_NAME,
    OPENAI,
    OPENAI_COMPATIBLE,
    as_sent,
    broken,
    checked_address,
    connection,
    openai_address,
    what_is_kept,
)
from memrl_core.models.proxies import must_be_sendable, silent_proxy
from memrl_core.models.stream import Arriving, Broken, Stream
from memrl_core.records import Message, Reply

PREFIX = "openai:"
ALL_FAILURES = (openai.OpenAIError, httpx2.HTTPError, *FAILURES)
SHOWS_A_KEY = 8
"""A text that has as many characters of the key in a row is quoted nowhere: servers repeat the half of one, too."""

NO_KEY = "none"
"""The client wants one; servers without keys ignore it."""
IMPERSONAL = frozenset(
    {"host", "connection", "accept", "accept-encoding", "content-type", "content-length", "transfer-encoding"}
)
"""The headers that go to an address which does not get the key."""

ABOUT_THE_SCHEMA = ("response_format", "schema", "grammar", "guided", "structured")
"""Words of servers that refuse a request for its schema."""


class OpenAIModel:
    """A chat model of an OpenAI-compatible server (a `LanguageModel`).

    `timeout` is how many seconds may pass without anything arriving, `trusted` whether the key goes to an address that
    the environment does not name. Nothing is asked of the server before `chat`. Raises `InputError` for a name or an
    address that cannot be one.
    """

    simulated = False

    def __init__(self, name: str, address: str, timeout: float = 60.0, trusted: bool = False) -> None:
        self._model = checked_model(name)
        self.name = PREFIX + self._model
        self.address = checked_server(address)
        self.timeout = timeout
        self._trusted = trusted
        self.binds = True
        # OpenAI itself wants an object where others take the bare list of lines.
        self._wraps = self.address == OPENAI

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages` (see `LanguageModel`). Reasoning is not part of the answer.

        Raises `ServerDown`, `ModelMissing`, `ModelSlow` (nothing arrived), `ModelInterrupted` (with what had arrived),
        `EmptyAnswer`, `ModelError` where the key is refused, `InputError` for text that is not UTF-8, and `NotBound`
        when the server refuses the schema, or takes it and answers otherwise. `PromptTooLong` where the server says so.
        """
        if schema is None:
            return self._answer(messages, options, on_text, cancelled)
        action = "enum" in schema
        for wraps in [False, True] if action and not self._wraps else [action]:
            try:
                reply = self._answer(messages, options, on_text, cancelled, schema, wraps)
            except NotBound:
                continue
            self._wraps = self._wraps or wraps
            return reply
        self.binds = self.binds and not action
        raise NotBound(f"{self.address} does not hold {self.name} to a schema.")

    def _answer(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None,
        cancelled: Cancelled | None,
        schema: Mapping[str, Any] | None = None,
        wraps: bool = False,
    ) -> Reply:
        """What the server answers; by an object with the field `answer` when it `wraps` the schema."""
        asked: dict[str, Any] = {
            "model": self._model,
            "messages": as_sent(messages),
            _limit_name(self.address): options.num_predict,
            **options.model_dump(include={"seed", "temperature", "top_p"}, exclude_none=True),
            **({"stop": options.stops} if options.stops else {}),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if schema is not None:
            asked["response_format"] = _response_format(schema, wraps)

        async def ask(client: openai.AsyncOpenAI) -> AsyncIterator[_Part]:
            return _parts(await client.chat.completions.create(**asked))

        arriving = Arriving(options, on_text, cancelled, _clean, schema is not None)
        ending, usage = "", _NO_USAGE
        patience, first = options.between_tokens or self.timeout, options.first_token or self.timeout
        must_be_sendable("OPENAI_API_KEY")
        given = _connection(self.address, max(patience, first), self._trusted, asynchronous=True)
        stream = Stream(lambda: _later(self.address, given), ask, ALL_FAILURES, patience, arriving.ended, first)
        try:
            for part in stream:
                usage, ending = part.usage or usage, part.ending or ending
                arriving.take(part.text, part.thought, bool(ending))
        except Broken as broken:
            if isinstance(broken.cause, openai.APIError) and tells_no_room(broken.cause.message):
                raise PromptTooLong(self.name) from None
            if schema is not None and _is_about_the_schema(broken.cause):
                raise NotBound(f"{self.address} refuses the schema of an answer.") from None
            partial = arriving.partial
            raise failure(broken.cause, self.address, self._model, stream.patience, partial, self._trusted) from None
        if not ending and not (arriving.cut or arriving.stopped or arriving.whole):
            text = arriving.partial
            raise ModelInterrupted(
                f"The answer of {self.name} broke off{'' if text else ' before it began'}. Everything before this call "
                f"is kept; try again, or check what answers at {self.address}.",
                text,
            )
        read, written, cached = usage
        # How many threads there are is not chosen here, and so no remedy.
        notes = slow(written, arriving.writing, options.model_copy(update={"num_thread": 1}))
        full = ending == "length"
        reply = arriving.reply(self.name, full=full, read=read, written=written, cached=cached, notes=notes)
        if schema is None or reply.stopped:
            return reply
        text = _unfenced(reply.text)
        value = _read(text)
        if wraps and isinstance(value, dict):
            value = value.get("answer")
            text = json.dumps(value, ensure_ascii=False)
        if not reply.cut and not (value in schema["enum"] if "enum" in schema else isinstance(value, dict)):
            raise NotBound(f"{self.address} takes a schema and does not answer by it.")
        return replace(reply, text=text)


_Usage = tuple[int | None, int | None, int | None]
_NO_USAGE: _Usage = (None, None, None)


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a streamed answer: its text, its reasoning, why it is the last, and, where the server says, how
    many tokens were read and written, and how many of those read came from the server's cache."""

    text: str
    thought: str
    ending: str
    usage: _Usage | None


async def _parts(chunks: AsyncIterator[Any]) -> AsyncIterator[_Part]:
    """The parts of an answer. Raises one of `ALL_FAILURES` for what is no answer: the client checks nothing."""
    async for chunk in chunks:
        usage = chunk.usage and (int(chunk.usage.prompt_tokens), int(chunk.usage.completion_tokens), _cached(chunk))
        choice = chunk.choices[0] if chunk.choices else None
        delta = choice and choice.delta
        yield _Part(
            "" + ((delta and delta.content) or ""),
            "" + ((delta and getattr(delta, "reasoning_content", None)) or ""),
            "" + ((choice and choice.finish_reason) or ""),
            usage or None,
        )


def _cached(chunk: Any) -> int | None:
    reported = getattr(chunk.usage.prompt_tokens_details, "cached_tokens", None)
    if reported is None:
        # llama.cpp's server has a field of its own for it.
        reported = (getattr(chunk, "timings", None) or {}).get("cache_n")
    return None if reported is None else int(reported)


def facts(name: str, address: str, timeout: float, ask: bool = True, trusted: bool = False) -> dict[str, Any]:
    """What the server says of a model: quantisation, context window, parameters, bytes, and what it is itself.

    With `ask`, one that the server does not list is asked for a token. The key goes to a `trusted` address, too. Raises
    `ModelError` when it cannot be asked, and `InputError`.
    """
    model = checked_model(name)
    try:
        with client(address, timeout, trusted) as server:
            listed, by = _listed(server)
            named = [one for one in listed if model in (one["id"], *(one.get("aliases") or ()))]
            if not named and ask:
                hello: Any = {"messages": [{"role": "user", "content": "Hi"}], _limit_name(address): 1}
                server.chat.completions.create(model=model, **hello)
        # A server of one model answers with it under any name.
        one = (named or (listed if len(listed) == 1 else [{}]))[0]
        reported = {**one, **(one.get("meta") or {}), "by": by}
    except ALL_FAILURES as error:
        raise failure(error, address, model, timeout, trusted=trusted) from None
    window = "n_ctx" if "n_ctx" in reported else "max_model_len"
    names = {"quantisation": "ftype", "context": window, "parameters": "n_params", "bytes": "size", "from": "root"}
    found = {ours: reported.get(theirs) for ours, theirs in {**names, "server": "by"}.items()}
    return {name: value for name, value in found.items() if value and isinstance(value, int | str)}


def list_models(address: str, timeout: float = 1.0) -> tuple[str, ...]:
    """The names of the models that the server at `address` lists. Raises `ModelError`, `InputError`."""
    try:
        with client(address, timeout) as server:
            return tuple(sorted(str(one["id"]) for one in _listed(server)[0]))
    except ALL_FAILURES as error:
        raise failure(error, address, "", timeout) from None


def _listed(server: openai.OpenAI) -> tuple[list[dict[str, Any]], str]:
    """The models that a server lists, and the program that it says it is; nothing where it lists none."""
    try:
        reply = server.models.with_raw_response.list()
    except (openai.NotFoundError, openai.PermissionDeniedError):
        return [], ""
    return [one.model_dump() for one in reply.parse().data], one_line(reply.headers.get("server", ""))


def client(address: str, timeout: float, trusted: bool = False) -> openai.OpenAI:
    """The official client for what is asked and answered at once. Raises `InputError` for a bad address."""
    address = checked_server(address)
    must_be_sendable("OPENAI_API_KEY")
    http = openai.DefaultHttpxClient(**_connection(address, timeout, trusted, asynchronous=False))
    return openai.OpenAI(base_url=address, api_key=_key() or NO_KEY, http_client=http, max_retries=0)


def _later(address: str, given: dict[str, Any]) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(**given)
    return openai.AsyncOpenAI(base_url=address, api_key=_key() or NO_KEY, http_client=http)


def _connection(address: str, timeout: float, trusted: bool, asynchronous: bool) -> dict[str, Any]:
    given = connection(address, timeout, asynchronous=asynchronous, http=httpx2)
    if not gets_the_key(address, trusted):
        given["event_hooks"]["request"] = [_nameless_later if asynchronous else _nameless]
    return given


def _nameless(request: httpx2.Request) -> None:
    """Leave out of a request whatever the environment adds about who asks: the key, an organisation, own headers."""
    for name in {*request.headers} - IMPERSONAL:
        del request.headers[name]


async def _nameless_later(request: httpx2.Request) -> None:
    _nameless(request)


def checked_model(name: str) -> str:
    """The model that `openai:NAME` names. Raises `InputError` for what cannot be a name."""
    model = name.strip().removeprefix(PREFIX)
    if not model or len(model) > LONGEST_NAME or any(c.isspace() or not c.isprintable() for c in model):
        raise InputError(
            f"“{one_line(name)}” is not a model's name. Write it like {PREFIX}NAME, with a name that the server lists."
        )
    return model


def checked_server(address: str) -> str:
    """`address` as that of an OpenAI-compatible server. Raises `InputError`."""
    return checked_address(address, *OPENAI_COMPATIBLE)


def failure(
    error: Exception, address: str, model: str, timeout: float, partial: str = "", trusted: bool = False
) -> ModelError:
    """One of `ALL_FAILURES` as an error whose sentence a person can act on; the key is not in it."""
    name, kept = PREFIX + one_line(model) if model else address, what_is_kept(partial)
    if isinstance(error.__cause__, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)):
        return silent_proxy(address, kept) or ServerDown(
            f"No server answers at {address}. {kept}; start it, or name another with OPENAI_BASE_URL, and try again. "
            "Replay and demo still work."
        )
    if isinstance(error, (openai.AuthenticationError, openai.PermissionDeniedError)):
        what = "refused the key in" if _key() else "wants a key in"
        if not gets_the_key(address, trusted):
            what = "wants a key, which goes to OPENAI_BASE_URL alone:"
        return ModelError(
            f"{address} {what} OPENAI_API_KEY (HTTP {error.status_code}). {kept}; set OPENAI_BASE_URL and "
            "OPENAI_API_KEY where this program is started, and start it again."
        )
    if isinstance(error, openai.NotFoundError):
        return ModelMissing(
            f"{address} has no model {one_line(model)}. {kept}; choose one that it lists, or check that the address "
            "ends as the server wants it (often in /v1)."
        )
    if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
        status = (
            f"HTTP {error.status_code}" if isinstance(error, openai.APIStatusError) else "in the middle of an answer"
        )
        answer = _quoted(error.message.removeprefix(f"Error code: {getattr(error, 'status_code', '')} - "))
        return ModelInterrupted(
            f"{address} gave up on {name} ({status}): “{answer}”. {kept}; try again or take another model.", partial
        )
    if isinstance(error, (openai.APITimeoutError, httpx2.TimeoutException)):
        error = httpx.ReadTimeout("")
    elif isinstance(error, (openai.APIConnectionError, httpx2.HTTPError)):
        error = httpx.ReadError("")
    return broken(error, address, name, "an OpenAI-compatible server", timeout, partial)


def gets_the_key(address: str, trusted: bool = False) -> bool:
    """Whether the key goes to `address`: to the one that the environment names, and to a `trusted` one."""
    return trusted or address == openai_address()


def _key() -> str:
    return os.environ.get("OPENAI_API_KEY", "").strip()


def _quoted(text: str) -> str:
    """`text` fit for a sentence; left out where it shows a good part of the key."""
    key = _key()
    parts = (key[at : at + SHOWS_A_KEY] for at in range(max(1, len(key) - SHOWS_A_KEY + 1)))
    return "(left out, for the key stands in it)" if key and any(part in text for part in parts) else one_line(text)


def _clean(text: str) -> tuple[str, int]:
    """`text` as it can be kept (see `whole_characters`), without the key."""
    key = _key()
    return whole_characters(text.replace(key, "(key)") if len(key) >= SHOWS_A_KEY else text)


def _limit_name(address: str) -> str:
    # The newer models of OpenAI refuse the name that everybody else knows.
    return "max_completion_tokens" if address == OPENAI else "max_tokens"


def _response_format(schema: Mapping[str, Any], wraps: bool) -> dict[str, Any]:
    # Strict is what makes OpenAI hold to it; of the schemas of forms it would refuse those with optional fields.
    strict = "enum" in schema
    wanted = dict(schema)
    if wraps:
        fields = {"properties": {"answer": wanted}, "required": ["answer"], "additionalProperties": False}
        wanted = {"type": "object", **fields}
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": strict, "schema": wanted}}


def _is_about_the_schema(error: Exception) -> bool:
    return (
        isinstance(error, openai.APIStatusError)
        and error.status_code in (400, 415, 422, 500, 501)
        and any(word in error.message.lower() for word in ABOUT_THE_SCHEMA)
    )


def _unfenced(text: str) -> str:
    """What stands within the Markdown fence that some servers write around an answer by a schema."""
    return text.strip().partition("\n")[2].rpartition("```")[0].strip() if text.lstrip().startswith("```") else text


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
