"""A room for a class: students predict on their phones, the teacher reveals, and every phone plays a seed of its own.

A room is a small web server beside the app. It knows one question at a time, the predictions, and what the phones
report; nothing else of the app can be reached through it. It listens on this machine only, unless the teacher opens it
to the network, and everything in it lies under a code that is drawn when it is opened and void when it is closed.

What phones send is not trusted: names are cut and numbered, a choice has to be one of those offered, a result is one
finite number, bodies and the number of students are limited, and the first prediction stands.
"""

from __future__ import annotations

import json
import math
import secrets
import socket
import threading
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import uvicorn
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import InputError

Stage = Literal["predict", "revealed", "play"]
"""What the room is at: predictions are open; they are closed and the answer is shown; every phone plays its seed."""

LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Of a code: none that looks like another."""
CODE_LENGTH = 8
MOST_STUDENTS = 200
LONGEST_NAME = 40
LONGEST_BODY = 2000
AWAY_AFTER = 20.0
"""Seconds after which phones show that the teacher's screen does not answer."""
COOKIE = "room"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What a class is asked: one of `choices` is right, `answer` (from 0), or none is where `answer` is None.

    `left` and `right` are settings of the playground's world (`memrl_core.lessons.world.Settings`): each phone plays
    both with a seed of its own, and reports how much more often `right` solved its tasks, −1 to 1: in words, `effect`.
    """

    text: str
    choices: tuple[str, ...]
    answer: int | None = None
    because: str = ""
    effect: str = ""
    left: Mapping[str, Any] = field(default_factory=dict)
    right: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 240

    def __post_init__(self) -> None:
        if not self.text.strip() or len(self.choices) < 2 or not all(choice.strip() for choice in self.choices):
            raise InputError("A question needs a text and at least two choices. Fill them in.")


def _shipped_questions() -> Mapping[str, Question]:
    text = (sample_data_path() / "room.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Question]).validate_python(tomllib.loads(text))


QUESTIONS = _shipped_questions()
"""Title to question, of those that come with the program."""


@dataclass(frozen=True, slots=True)
class Student:
    """Somebody in the room; `choice` and `result` are None until they are given, and anew with every question."""

    name: str
    seed: int
    choice: int | None = None
    result: float | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """What the teacher sees: how many are here, how often each choice was taken, and the results of the phones."""

    stage: Stage
    students: int
    votes: tuple[int, ...]
    results: tuple[float, ...]


class Room:
    """What goes on in a room. Safe to use from several threads."""

    def __init__(self, question: Question) -> None:
        self.code = "".join(secrets.choice(LETTERS) for _ in range(CODE_LENGTH))
        self._lock = threading.Lock()
        self._students: dict[str, Student] = {}
        self._seen = monotonic()
        self._number = 0
        self._stage: Stage = "predict"
        self.ask(question)

    @property
    def question(self) -> Question:
        """The question that is open."""
        return self._question

    def ask(self, question: Question) -> None:
        """Put another question: predictions and results begin anew, and everybody in the room stays."""
        with self._lock:
            self._question, self._stage, self._number = question, "predict", self._number + 1
            self._students = {token: replace(one, choice=None, result=None) for token, one in self._students.items()}

    def go_to(self, stage: Stage) -> None:
        """Close the predictions and show the answer, or let the phones play."""
        with self._lock:
            self._stage = stage

    def overview(self) -> Overview:
        """The room as it is now, for the teacher, who is present from then on."""
        with self._lock:
            self._seen = monotonic()
            here = list(self._students.values())
            votes = [0] * len(self._question.choices)
            for one in here:
                if one.choice is not None:
                    votes[one.choice] += 1
            results = tuple(one.result for one in here if one.result is not None)
            return Overview(self._stage, len(here), tuple(votes), results)

    def join(self, name: str, token: str | None = None) -> str:
        """The token by which a phone is known; one that is known already keeps it, its name and its prediction.

        Raises `InputError` when the room is full.
        """
        with self._lock:
            if token in self._students:
                return str(token)
            if len(self._students) >= MOST_STUDENTS:
                raise InputError(f"The room is full: {MOST_STUDENTS} are in it.")
            new = secrets.token_urlsafe(16)
            # Seeds count up, so that no two phones tell the same story; 1 is the teacher's own.
            self._students[new] = Student(self._free_name(name), len(self._students) + 2)
            return new

    def predict(self, token: str, choice: object) -> None:
        """Take a prediction; the first stands. Raises `InputError` for one that cannot be taken."""
        with self._lock:
            one = self._known(token)
            if type(choice) is not int or not 0 <= choice < len(self._question.choices):
                raise InputError("That is not one of the choices.")
            if self._stage == "predict" and one.choice is None:
                self._students[token] = replace(one, choice=choice)

    def report(self, token: str, number: object, result: object) -> None:
        """Take what a phone's seed gave for question `number`; the first result stands, one of another question is
        passed over. Raises `InputError` for what is no result."""
        with self._lock:
            one = self._known(token)
            if type(result) not in (int, float) or not math.isfinite(result) or abs(result) > 1:  # type: ignore[arg-type]
                raise InputError("That is not a result.")
            if self._stage == "play" and one.result is None and number == self._number:
                self._students[token] = replace(one, result=float(result))  # type: ignore[arg-type]

    def seen_by(self, token: str | None) -> dict[str, Any]:
        """What a phone may know now, as JSON: the answer only once it is revealed."""
        with self._lock:
            one = self._students.get(token or "")
            if one is None:
                return {"joined": False}
            hidden = {"answer": None, "because": ""} if self._stage == "predict" else {}
            return {
                **asdict(self._question),
                **hidden,
                "joined": True,
                "name": one.name,
                "seed": one.seed,
                "number": self._number,
                "stage": self._stage,
                "mine": one.choice,
                "result": one.result,
                "away": monotonic() - self._seen > AWAY_AFTER,
            }

    def _known(self, token: str) -> Student:
        if token not in self._students:
            raise InputError("You are not in this room. Join it first.")
        return self._students[token]

    def _free_name(self, asked: str) -> str:
        kept = "".join(letter for letter in " ".join(asked.split()) if letter.isprintable())[:LONGEST_NAME]
        kept = kept or f"Guest {len(self._students) + 1}"
        taken, name, number = {one.name for one in self._students.values()}, kept, 2
        while name in taken:
            name, number = f"{kept} ({number})", number + 1
        return name


class OpenRoom:
    """A room that can be reached, at `address`, until it is closed.

    `host` is the address it listens on: this machine's own for its own browser, one of `network_address()` for phones.
    `files` are the phone's page and what it loads, by name; the page itself is "phone.html". Raises `InputError` when
    nothing can be opened there.
    """

    def __init__(self, room: Room, files: Mapping[str, Path], host: str = "127.0.0.1") -> None:
        self.room = room
        self._socket = socket.socket()
        try:
            self._socket.bind((host, 0))
            # Phones that come before the server has begun wait, and are not refused.
            self._socket.listen(2 * MOST_STUDENTS)
        except OSError as error:
            self._socket.close()
            raise InputError(f"No room can be opened at {host} ({error.strerror}). Choose another.") from error
        self.address = f"http://{host}:{self._socket.getsockname()[1]}/{room.code}/"
        config = uvicorn.Config(
            _application(room, files, host),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            limit_concurrency=2 * MOST_STUDENTS,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="room", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the room: its code leads nowhere from now on."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=5)
        self._socket.close()


def network_address() -> str:
    """The address by which others of the same network reach this machine; 127.0.0.1 where there is no network."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Reserved for documents: asks for a route and sends nothing.
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _application(room: Room, files: Mapping[str, Path], host: str) -> Starlette:
    def ours(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def handled(request: Request) -> Response:
            if not secrets.compare_digest(request.path_params["code"].encode(), room.code.encode()):
                return Response("There is no such room.", 404, HEADERS)
            try:
                response = await handler(request)
            except InputError as error:
                response = JSONResponse({"error": str(error)}, 422)
            except (ValueError, ClientDisconnect):
                response = JSONResponse({"error": "That could not be read."}, 400)
            response.headers.update(HEADERS)
            return response

        return handled

    async def page(request: Request) -> Response:
        return FileResponse(files["phone.html"])

    async def file(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        return FileResponse(path) if path is not None else Response("", 404)

    async def join(request: Request) -> Response:
        given = await _body(request)
        token = room.join(str(given.get("name", "")), request.cookies.get(COOKIE))
        response = JSONResponse(room.seen_by(token))
        response.set_cookie(COOKIE, token, path=f"/{room.code}", httponly=True, samesite="strict")
        return response

    async def state(request: Request) -> Response:
        return JSONResponse(room.seen_by(request.cookies.get(COOKIE)))

    async def predict(request: Request) -> Response:
        room.predict(request.cookies.get(COOKIE, ""), (await _body(request)).get("choice"))
        return await state(request)

    async def report(request: Request) -> Response:
        given = await _body(request)
        room.report(request.cookies.get(COOKIE, ""), given.get("number"), given.get("result"))
        return await state(request)

    return Starlette(
        routes=[
            Route("/{code}/", ours(page)),
            Route("/{code}/state", ours(state)),
            Route("/{code}/join", ours(join), methods=["POST"]),
            Route("/{code}/predict", ours(predict), methods=["POST"]),
            Route("/{code}/report", ours(report), methods=["POST"]),
            Route("/{code}/{name}", ours(file)),
        ],
        # A page elsewhere could let its own name lead here.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[host, "localhost", "127.0.0.1"])],
    )


async def _body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type") != "application/json":
        raise ValueError  # What a form of another site could send is never that.
    read = b""
    async for chunk in request.stream():
        read += chunk
        if len(read) > LONGEST_BODY:
            raise ValueError
    given = json.loads(read)
    if not isinstance(given, dict):
        raise ValueError
    return given
