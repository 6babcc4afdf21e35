"""Ollama's HTTP API as the loopback server speaks it: JSON, and NDJSON in chunks for streams."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from tests.ollama.answers import answer, embedding, form
from tests.ollama.scene import Model, Request

if TYPE_CHECKING:
    from tests.ollama.server import OllamaServer

NOW = "2026-01-01T00:00:00.000000Z"
VERSION = "0.12.6"
PULL_SIZE = 1000
FOR_EVER = 3600.0
DEEP = "[" * 100_000 + "]" * 100_000


class ClientLeft(Exception):
    """The other end closed the connection."""


class Dropped(Exception):
    """This end closed the connection, as a fault asked for."""


class Handler(BaseHTTPRequestHandler):
    """One connection; a request is looked up by method and path."""

    server: OllamaServer
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        """Serve the connection; a client that resets it between two requests is no error."""
        with contextlib.suppress(ConnectionResetError):
            super().handle()

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `server.requests` instead."""

    def _route(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        self.server.requests.append(Request(method, self.path, body))
        routes = {
            ("GET", "/api/tags"): self._tags,
            ("GET", "/api/version"): lambda _: self._json({"version": VERSION}),
            ("GET", "/api/ps"): self._ps,
            ("POST", "/api/show"): self._show,
            ("POST", "/api/embed"): self._embed,
            ("POST", "/api/chat"): self._chat,
            ("POST", "/api/pull"): self._pull,
        }
        route = routes.get((method, self.path))
        try:
            instead = self.server.faults.instead.get(self.path)
            if self.server.faults.page and self.path == "/api/chat":
                self._plain(instead if isinstance(instead, int) else 200, self.server.faults.page, "text/html")
            elif isinstance(instead, int):
                self._json({"error": self.server.faults.says}, instead)
            elif instead is not None:
                self._go_wrong(instead)
            elif route is None:
                self._plain(404, "404 page not found")
            else:
                route(body)
        except (ClientLeft, BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            self.server.left.set()
        except Dropped:
            self.close_connection = True

    # --- plain answers ---

    def _tags(self, _: dict[str, Any]) -> None:
        self._json({"models": [self._listed(model) for model in self.server.models.values()]})

    def _ps(self, _: dict[str, Any]) -> None:
        loaded = [
            {**self._listed(model), "size_vram": model.size // 2, "expires_at": NOW, "context_length": 8192}
            for model in self.server.models.values()
            if any(asked.get("model", "") in (model.name, model.name.removesuffix(":latest")) for asked in self._used())
        ]
        self._json({"models": loaded})

    def _used(self) -> list[dict[str, Any]]:
        return [*self.server.asked("/api/chat"), *self.server.asked("/api/embed")]

    def _show(self, body: dict[str, Any]) -> None:
        model = self._installed(body)
        if model is None:
            return
        shown = {
            "modelfile": f"FROM {model.name}",
            "template": model.template,
            "details": self._listed(model)["details"],
            "model_info": {
                "general.architecture": model.family,
                f"{model.family}.context_length": model.context,
                f"{model.family}.embedding_length": model.dimension or 3072,
            },
            "modified_at": NOW,
        }
        if model.capabilities is not None:
            shown["capabilities"] = list(model.capabilities)
        self._json(shown)

    def _embed(self, body: dict[str, Any]) -> None:
        model = self._installed(body)
        if model is None:
            return
        if not model.dimension:
            self._json({"error": "this model does not support embeddings"}, 501)
            return
        self._pause(self.server.faults.first_delay)
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        long = [text for text in texts if 20 + 3 * len(text.split()) // 2 > model.context]
        if long and body.get("truncate") is False:
            self._json({"error": "the input length exceeds the context length"}, 400)
            return
        limit, poison = self.server.faults.most_letters, self.server.faults.poison
        if limit and any(len(text) > limit for text in texts):
            self._json({"error": "the input length exceeds the context length"}, 400)
            return
        poisoned = [bool(poison) and "poison" in text for text in texts]
        if any(poisoned) and poison == "drop":
            raise Dropped
        if any(poisoned) and poison == "no_json":
            self._json({"error": "failed to encode response: json: unsupported value: NaN"}, 500)
            return
        vectors: list[Any] = [embedding(text, model.dimension) for text in texts]
        vectors = [[0.0] * model.dimension if bad else made for bad, made in zip(poisoned, vectors, strict=True)]
        fault = self.server.faults.embedding
        if fault == "too_few":
            vectors.pop()
        elif fault:
            odd = {"zeros": 0.0, "nan": float("nan"), "huge": 1e308, "null": None, "ragged": 1.0}
            vectors[-1] = [odd[fault]] * (model.dimension - (fault == "ragged"))
        self._json({"model": body["model"], "embeddings": vectors, **_counts(len(texts), 0)})

    # --- streams ---

    def _chat(self, body: dict[str, Any]) -> None:
        model = self._installed(body)
        if model is None:
            return
        seed = int(body.get("options", {}).get("seed", 0))
        faults = self.server.faults
        faults.chats_left -= 1
        if faults.chats_left <= 0:
            self.server.models.clear()
        if faults.schema == "refused" and body.get("format"):
            self._json({"error": "invalid JSON schema in format"}, 500)
            return
        if body.get("think") and "thinking" not in (model.capabilities or ("thinking",)):
            self._json({"error": f'"{body["model"]}" does not support thinking'}, 400)
            return
        if not self._fits(body):
            return
        if body.get("_debug_render_only") and faults.renders:
            whole = "".join(f"<|{message['role']}|>{message['content']}" for message in body["messages"])
            self._json({"model": body["model"], "created_at": NOW, "_debug_info": {"rendered_template": whole}})
            return
        text = answer(body["messages"], seed) if faults.answer is None else faults.answer
        if body.get("format") and faults.schema == "heeded":
            text = form(body["format"], body["messages"]) if faults.form is None else faults.form
        call = {"function": {"name": "look_up", "arguments": {"what": "weather"}}}
        asides = [
            {"role": "assistant", "content": "", "thinking": "They want an action. "},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        asides = [] if faults.silent_thoughts else asides
        sentence = "thinking" if faults.thinking else "content"
        pieces = itertools.cycle(_pieces(text)) if faults.endless else iter(_pieces(text))
        messages = itertools.chain(asides, ({"role": "assistant", "content": "", sentence: piece} for piece in pieces))
        self._answer(body, ({"message": message} for message in messages), len(asides))

    def _fits(self, body: dict[str, Any]) -> bool:
        """Whether the messages fit, if need be without the oldest ones; else the refusal was sent."""
        fields = self.server.faults.fields
        if fields == "refused" and "truncate" in body:
            self._json({"error": 'json: unknown field "truncate"'}, 400)
            return False
        model = self._installed(body)
        window = min(int(body.get("options", {}).get("num_ctx", 4096)), model.context if model else 4096)
        if _tokens(body) <= window:
            return True
        if fields == "heeded" and body.get("truncate") is False:
            self._json({"error": "the input length exceeds the context length"}, 400)
            return False
        while _tokens(body) > window and len(body["messages"]) > 1:
            body["messages"].pop(next((n for n, m in enumerate(body["messages"]) if m["role"] != "system"), 0))
        return True

    def _spent(self, body: dict[str, Any], sentence: int) -> dict[str, int]:
        return {**_counts(_tokens(body), sentence), "eval_duration": int(1e9 * sentence / self.server.faults.a_second)}

    def _answer(self, body: dict[str, Any], made: Iterator[dict[str, Any]], asides: int) -> None:
        head = {"model": body["model"], "created_at": NOW}
        limit = 10 * 4096
        if not self.server.faults.unlimited:
            limit = int(body.get("options", {}).get("num_predict", limit))
        parts = list(itertools.islice(made, asides + limit))
        end = {
            **head,
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "length" if next(made, None) is not None else "stop",
            **self._spent(body, len(parts) - asides),
        }
        self._pause(self.server.faults.first_delay)
        if body.get("stream", True):
            self._stream(self._faulty(({**head, **part, "done": False} for part in parts), end, asides))
        else:
            whole = "".join(part["message"]["content"] for part in parts)
            self._json({**end, "message": {"role": "assistant", "content": whole}})

    def _faulty(self, parts: Iterable[dict[str, Any]], end: dict[str, Any], asides: int) -> Iterator[dict[str, Any]]:
        faults = self.server.faults
        for number, part in enumerate(parts):
            if faults.stream and number - asides == faults.after:
                self._go_wrong(faults.stream)
                return
            self._pause(faults.delay)
            yield part
            self.server.pieces_sent += 1
        yield end

    def _pull(self, body: dict[str, Any]) -> None:
        name, faults = str(body["model"]), self.server.faults
        if faults.pull_unknown:
            self._stream([{"status": "pulling manifest"}, {"error": "pull model manifest: file does not exist"}])
            return
        layer = {"status": "pulling 6a0746a1ec1a", "digest": f"sha256:{_digest(name)}", "total": PULL_SIZE}
        parts = [
            {"status": "pulling manifest"},
            *({**layer, "completed": done} for done in range(0, PULL_SIZE + 1, PULL_SIZE // 4)),
            {"status": "verifying sha256 digest"},
            {"status": "writing manifest"},
        ]
        self._stream(self._faulty(parts, {"status": "success"}, asides=0))
        if not faults.stream:
            full = name if ":" in name else f"{name}:latest"
            self.server.models[full] = Model(full, PULL_SIZE, "llama", ("completion",), 4096)

    # --- the wire ---

    def _installed(self, body: dict[str, Any]) -> Model | None:
        name = str(body.get("model", ""))
        model = self.server.models.get(name) or self.server.models.get(f"{name}:latest")
        if model is None:
            self._json({"error": f"model '{name}' not found"}, 404)
        return model

    def _listed(self, model: Model) -> dict[str, Any]:
        details = {"format": "gguf", "family": model.family, "families": [model.family]}
        return {
            "name": model.name,
            "model": model.name,
            "modified_at": NOW,
            "size": model.size,
            "digest": _digest(f"{self.server.salt} {model}"),
            "details": {**details, "parameter_size": "3.2B", "quantization_level": "Q4_K_M"},
        }

    def _json(self, value: Any, status: int = 200) -> None:
        self._plain(status, json.dumps(value), "application/json; charset=utf-8")

    def _plain(self, status: int, text: str, kind: str = "text/plain") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if 300 <= status < 400:
            self.send_header("Location", f"{self.server.faults.elsewhere}{self.path}")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, parts: Iterable[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self._chunk(json.dumps(part).encode() + b"\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _go_wrong(self, fault: str) -> None:
        instead_of_a_part = {
            "error": json.dumps({"error": self.server.faults.says}),
            "not_json": "<html>a proxy's page</html>",
            "not_an_object": "[1, 2]",
            "odd_fields": '{"message": 7, "status": 7}',
        }
        if fault == "deep":
            self._plain(200, DEEP) if self.path != "/api/chat" else self._chunk(DEEP.encode() + b"\n")
        elif fault == "hang":
            self._pause(FOR_EVER)
        elif fault == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
            raise Dropped
        elif fault in instead_of_a_part:
            self._chunk(instead_of_a_part[fault].encode() + b"\n")

    def _pause(self, seconds: float) -> None:
        """Wait, unless the client goes away meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.02))
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise ClientLeft


def _pieces(text: str) -> list[str]:
    """The text word by word, as tokens would arrive."""
    return [piece for piece in re.split(r"(?= )", text) if piece]


def _tokens(body: dict[str, Any]) -> int:
    """Of the prompt: one and a half a word, and those of the chat template."""
    return 20 + 3 * sum(len(str(message["content"]).split()) for message in body.get("messages", ())) // 2


def _counts(prompt: int, sentence: int) -> dict[str, int]:
    times = {"total_duration": 1_500_000_000, "load_duration": 500_000_000}
    if not sentence:
        return {**times, "prompt_eval_count": prompt}
    return {
        **times,
        "prompt_eval_count": prompt,
        "prompt_eval_duration": 200_000_000,
        "eval_count": sentence,
        "eval_duration": 800_000_000,
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
