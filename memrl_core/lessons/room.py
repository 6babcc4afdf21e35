"""A room for a class: students predict on their phones, the teacher reveals, and every phone plays a seed of its own.

A room is a small web server beside the app. It knows one question at a time, the predictions, and what the phones
report; nothing else of the app can be reached through it. It listens on this machine only, unless the teacher opens it
to the network, and everything in it lies under a code that is drawn when it is opened and void when it is closed.

What phones send is not trusted: names are cut and numbered, a choice has to be one of those offered, a result is one
finite number, bodies and the number of students are limited, and the first prediction stands. A phone is known by its
cookie. One that does not send it back loses its place, and no address takes more than half of the room, so that one
machine cannot fill it; a class behind one address can still join.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal, TypeVar

import uvicorn
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import InputError
from memrl_core.lessons.lesson import Given, Lesson
from memrl_core.lessons.measures import LENGTH
from memrl_core.lessons.world import Settings

Stage = Literal["predict", "revealed", "play"]
"""What the room is at: predictions are open; they are closed and the answer is shown; every phone plays its seed."""

LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Of a code: none that looks like another."""
CODE_LENGTH = 8
MOST_STUDENTS = 200
MOST_OF_AN_ADDRESS = MOST_STUDENTS // 2
LONGEST_NAME = 40
LONGEST_BODY = 2000
BODY_WITHIN = 10.0
"""Seconds in which a body has to arrive."""
BACK_WITHIN = 10.0
"""Seconds in which a phone that joined has to send its cookie; ours does within one."""
AWAY_AFTER = 20.0
"""Seconds after which phones show that the teacher's screen does not answer."""
HEARD_WITHIN = 60.0
"""Seconds for which a closed room still says that it is closed, while a phone has not heard it."""
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
    both with a seed of its own for `steps` steps, and reports how much more often `right` solved its tasks from step
    `since` on, −1 to 1: in words, `effect`.
    """

    text: str
    choices: tuple[str, ...]
    answer: int | None = None
    because: str = ""
    effect: str = ""
    left: Mapping[str, Any] = field(default_factory=dict)
    right: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 240
    since: int = 1

    def __post_init__(self) -> None:
        if not self.text.strip() or len(self.choices) < 2 or not all(choice.strip() for choice in self.choices):
            raise InputError("A question needs a text and at least two choices. Fill them in.")


def _shipped_questions() -> Mapping[str, Question]:
    text = (sample_data_path() / "room.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Question]).validate_python(tomllib.loads(text))


QUESTIONS = _shipped_questions()
"""Title to question, of those that come with the program."""


def question_of(lesson: Lesson) -> Question:
    """What a class is asked by a lesson; phones play where a finding of it compares two settings by success."""
    found = [one for one in lesson.finding if one.measure in PARTS and one.settings != lesson.start]
    predict = lesson.predict
    asked = Question(
        predict.question.replace("**", ""),
        tuple(predict.choices),
        predict.answer - 1,
        predict.because.replace("**", ""),
    )
    if not found:
        return asked
    since, steps = PARTS[found[0].measure]
    before, after = lesson.start, found[0].settings
    left, right = _changes(before), _changes(after)
    when = "before the shift" if since == 1 else "after the shift"
    return replace(
        asked,
        effect=f"what {_in_words(after, before)} adds to {_in_words(before, after)} {when}"[:200],
        left=left,
        right=right,
        since=since,
        steps=steps,
    )


NO_GATE = -0.1
"""Of δ on the screen: every similarity is above it."""
PARTS = {"before": (1, 144), "level": (97, 144), "changed": (145, 288), "stayed": (145, 288)}
"""The steps of which phones report for a measure of a lesson, of all tasks: what changed and what stayed."""


def _changes(given: Given) -> dict[str, Any]:
    """What of some settings is not the default, as settings of a run."""
    one, plain = asdict(given.settings(1)), asdict(Settings())
    # Below every similarity there is no gate.
    plain["delta"] = one["delta"] if one["delta"] < 0 else plain["delta"]
    found = {name: value for name, value in one.items() if value != plain[name] and name != "keep"}
    keep = {"keep": given.keep} if given.keep < LENGTH else {}
    return {**found, **keep, "shifts": list(given.settings(1).shifts)}


SIGNS = {"alpha": "α", "lambda": "λ", "epsilon": "ε", "change": "change rate", "delta": "δ", "keep": "memories kept"}


def _in_words(given: Given, other: Given) -> str:
    """In what some settings differ from others, as `phone.js` names it beside the curves."""
    theirs = other.model_dump(by_alias=True)
    named = {("keep", LENGTH): "all memories kept", ("delta", NO_GATE): "no gate"}
    named |= {("shifted", True): "a shift", ("shifted", False): "no shift"}
    return ", ".join(
        named.get((name, value), f"{SIGNS.get(name, name)} = {value:g}")
        for name, value in given.model_dump(by_alias=True).items()
        if value != theirs[name]
    )


@dataclass(frozen=True, slots=True)
class Student:
    """Somebody in the room; `choice` and `result` are None until they are given, and anew with every question.

    `address` is where the phone joined from, `joined` when, and `came_back` whether it has sent its cookie since.
    """

    name: str
    seed: int
    address: str | None
    joined: float
    came_back: bool = False
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
        self._out: set[str] = set()
        self._joined = 0
        self._waited_for: set[str] | None = None
        self._all_heard = threading.Event()
        self._seen = monotonic()
        self._number = 0
        self._asked: list[Question] = []
        self._stage: Stage = "predict"
        self._question = question
        self.ask(question)

    @property
    def question(self) -> Question:
        """The question that is open."""
        return self._question

    @property
    def asked(self) -> tuple[Question, ...]:
        """Every question up to now, the open one last."""
        return tuple(self._asked)

    def ask(self, question: Question) -> None:
        """Put another question: predictions and results begin anew, and everybody in the room stays."""
        with self._lock:
            self._question, self._stage, self._number = question, "predict", self._number + 1
            self._asked.append(question)
            self._students = {token: replace(one, choice=None, result=None) for token, one in self._students.items()}

    def go_to(self, stage: Stage) -> None:
        """Close the predictions and show the answer, or let the phones play."""
        with self._lock:
            self._stage = stage

    def overview(self) -> Overview:
        """The room as it is now, for the teacher, who is present from then on."""
        with self._lock:
            self._seen = monotonic()
            self._drop_the_lost()
            here = list(self._students.values())
            votes = [0] * len(self._question.choices)
            for one in here:
                if one.choice is not None:
                    votes[one.choice] += 1
            results = tuple(one.result for one in here if one.result is not None)
            return Overview(self._stage, len(here), tuple(votes), results)

    def names(self) -> tuple[str, ...]:
        """The names of those in the room, in the order in which they joined; no two are equal."""
        with self._lock:
            self._drop_the_lost()
            return tuple(one.name for one in self._students.values())

    def put_out(self, name: str) -> None:
        """Take somebody out of the room, with their prediction and result; their phone cannot join again."""
        with self._lock:
            gone = {token for token, one in self._students.items() if one.name == name}
            self._out |= gone
            self._students = {token: one for token, one in self._students.items() if token not in gone}

    def join(self, name: str, token: str | None = None, address: str | None = None) -> str:
        """The token by which a phone is known; one that is known already keeps it, its name and its prediction.

        `address` is where it asks from, if that is known. Raises `InputError` when the room is full, when half of it
        is taken from that address, and for a phone that was put out.
        """
        with self._lock:
            if token in self._students:
                self._students[token] = replace(self._students[token], came_back=True)
                return token
            if token in self._out:
                raise InputError("The teacher has put you out of this room.")
            self._drop_the_lost()
            if len(self._students) >= MOST_STUDENTS:
                raise InputError(f"The room is full: {MOST_STUDENTS} are in it.")
            if address and sum(one.address == address for one in self._students.values()) >= MOST_OF_AN_ADDRESS:
                raise InputError(f"{MOST_OF_AN_ADDRESS} have joined from your address, and no more can.")
            new = secrets.token_urlsafe(16)
            self._joined += 1
            # Seeds count up, so that no two phones tell the same story; 1 is the teacher's own.
            self._students[new] = Student(self._free_name(name), self._joined + 1, address, monotonic())
            return new

    def predict(self, token: str, choice: int) -> None:
        """Take a prediction; the first stands. Raises `InputError` for one that cannot be taken."""
        with self._lock:
            one = self._known(token)
            if not 0 <= choice < len(self._question.choices):
                raise InputError("That is not one of the choices.")
            if self._stage == "predict" and one.choice is None:
                self._students[token] = replace(one, choice=choice)

    def report(self, token: str, number: int, result: float) -> None:
        """Take what a phone's seed gave for question `number`; the first result stands, one of another question is
        passed over. Raises `InputError` for what is no result."""
        with self._lock:
            one = self._known(token)
            if not -1 <= result <= 1:
                raise InputError("That is not a result.")
            if self._stage == "play" and one.result is None and number == self._number:
                self._students[token] = replace(one, result=float(result))

    def seen_by(self, token: str | None) -> dict[str, Any]:
        """What a phone that sends its cookie may know now, as JSON; see `state_for`."""
        with self._lock:
            if token in self._students:
                self._students[token] = replace(self._students[token], came_back=True)
        return self.state_for(token)

    def state_for(self, token: str | None) -> dict[str, Any]:
        """What a phone may know now, as JSON: the answer only once it is revealed."""
        with self._lock:
            one = self._students.get(token or "")
            if one is None:
                return {"joined": False, "out": token in self._out}
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

    def close(self) -> None:
        """End the room. Nobody can do anything in it any more; phones are answered that it is closed."""
        with self._lock:
            if self._waited_for is None:
                here = {token for token, one in self._students.items() if one.came_back}
                self._waited_for = here | self._out
                self._all_heard_if_nobody_waits()

    @property
    def is_closed(self) -> bool:
        """Whether the room has ended."""
        return self._waited_for is not None

    def hears_of_the_end(self, token: str | None) -> None:
        """Note that a phone was answered that the room is closed."""
        with self._lock:
            if self._waited_for is not None:
                self._waited_for.discard(token or "")
                self._all_heard_if_nobody_waits()

    def all_heard(self, within: float) -> bool:
        """Whether every phone has heard, within so many seconds, that the room is closed."""
        return self._all_heard.wait(within)

    def _all_heard_if_nobody_waits(self) -> None:
        if not self._waited_for:
            self._all_heard.set()

    def _drop_the_lost(self) -> None:
        """Free the places of phones that have not sent their cookie since they joined: they keep none."""
        late = monotonic() - BACK_WITHIN
        self._students = {token: one for token, one in self._students.items() if one.came_back or one.joined > late}

    def _known(self, token: str) -> Student:
        if token not in self._students:
            raise InputError("You are not in this room. Join it first.")
        return self._students[token]

    def _free_name(self, asked: str) -> str:
        kept = "".join(letter for letter in " ".join(asked.split()) if letter.isprintable())[:LONGEST_NAME]
        kept = kept or f"Guest {self._joined}"
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
            # A phone's address is the one it connects from, whatever its headers say.
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="room", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the room at once. Its server ends as soon as every phone has heard that, after a minute at the latest."""
        self.room.close()
        if self.room.all_heard(0):
            self._end()
        else:
            threading.Thread(target=self._end, name="room closes", daemon=True).start()

    def _end(self) -> None:
        self.room.all_heard(HEARD_WITHIN)
        self._server.should_exit = True
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
            if room.is_closed:
                room.hears_of_the_end(request.cookies.get(COOKIE))
                return Response("This room is closed.", 404, HEADERS)
            try:
                response = await handler(request)
            except InputError as error:
                response = JSONResponse({"error": str(error)}, 422)
            except (ValueError, ClientDisconnect, TimeoutError):
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
        given = await _body(request, _Join)
        address = request.client.host if request.client is not None else None
        token = room.join(given.name, request.cookies.get(COOKIE), address)
        response = JSONResponse(room.state_for(token))
        response.set_cookie(COOKIE, token, path=f"/{room.code}", httponly=True, samesite="strict")
        return response

    async def state(request: Request) -> Response:
        return JSONResponse(room.seen_by(request.cookies.get(COOKIE)))

    async def predict(request: Request) -> Response:
        room.predict(request.cookies.get(COOKIE, ""), (await _body(request, _Predict)).choice)
        return await state(request)

    async def report(request: Request) -> Response:
        given = await _body(request, _Report)
        room.report(request.cookies.get(COOKIE, ""), given.number, given.result)
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


class _Body(BaseModel):
    model_config = ConfigDict(strict=True)


Kind = TypeVar("Kind", bound=_Body)


class _Join(_Body):
    name: str = ""


class _Predict(_Body):
    choice: int


class _Report(_Body):
    number: int
    result: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


async def _body(request: Request, kind: type[Kind]) -> Kind:
    """The body of a request; raises `ValueError` for what is none of this kind, `TimeoutError` for one that is late."""
    if request.headers.get("content-type") != "application/json":
        raise ValueError  # What a form of another site could send is never that.
    read = b""
    async with asyncio.timeout(BODY_WITHIN):
        async for chunk in request.stream():
            read += chunk
            if len(read) > LONGEST_BODY:
                raise ValueError
    return kind.model_validate_json(read)
