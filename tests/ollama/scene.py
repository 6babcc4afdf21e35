"""What the loopback server has, what it was asked, and what it shall do wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass
class Faults:
    """What goes wrong from now on.

    `instead` maps a path to what happens there instead of an answer: an HTTP status (with `says`; those from 300 to 399
    send the client to `elsewhere`), silence, JSON nested 100,000 deep, or a closed connection. `stream` is how a stream
    goes wrong once `after` pieces of it were sent. Delays are in seconds.
    `answer` is what a model says, `form` what it says where a JSON schema came with the question; `endless` says it
    over and over. A server that is `unlimited` does not heed `num_predict`, one that is `thinking` says what it should
    answer as its thoughts. `schema` is what becomes of a
    JSON schema, `fields` of `truncate` and `shift`, which came with Ollama 0.12. After `chats_left` answers all models
    are gone. `page` is answered to every chat, as HTML with the status of `instead` if there is one. With
    `silent_thoughts` it sends none of its own. It says that it has written `a_second` tokens a second. One that
    `renders` tells what its chat template makes of messages, as it does from 0.12 on. A text of more
    than `most_letters` is not embedded, cut or not, and `poison` is what becomes of a text that names it.
    """

    instead: dict[str, int | Literal["hang", "drop", "deep"]] = field(default_factory=dict)
    elsewhere: str = ""
    says: str = "llama runner process has terminated: signal: killed"
    stream: Literal["", "error", "hang", "drop", "no_end", "not_json", "not_an_object", "odd_fields", "deep"] = ""
    after: int = 2
    first_delay: float = 0.0
    delay: float = 0.0
    answer: str | None = None
    form: str | None = None
    endless: bool = False
    unlimited: bool = False
    thinking: bool = False
    schema: Literal["heeded", "ignored", "refused"] = "heeded"
    chats_left: int = 1_000_000
    page: str = ""
    fields: Literal["heeded", "ignored", "refused"] = "heeded"
    silent_thoughts: bool = False
    a_second: float = 40.0
    embedding: Literal["", "zeros", "nan", "huge", "null", "ragged", "too_few"] = ""
    pull_unknown: bool = False
    renders: bool = True
    most_letters: int = 0
    poison: Literal["", "zeros", "no_json", "drop"] = ""


@dataclass(frozen=True)
class Model:
    """An installed model: its dimension is 0 when it makes no embeddings; `capabilities` None is left out of `show`."""

    name: str
    size: int
    family: str
    capabilities: tuple[str, ...] | None
    context: int
    dimension: int = 0
    template: str = "{{ range .Messages }}<|{{ .Role }}|>{{ .Content }}{{ end }}"


@dataclass(frozen=True)
class Request:
    """One request as it came in; `body` is empty for GET."""

    method: str
    path: str
    body: dict[str, Any] = field(default_factory=dict)


LLAMA = Model("llama3.2:latest", 2_019_393_189, "llama", ("completion", "tools"), 131_072)
NOMIC = Model("nomic-embed-text:latest", 274_302_450, "nomic-bert", ("embedding",), 2048, dimension=64)
