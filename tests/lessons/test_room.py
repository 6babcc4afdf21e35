"""A room for a class: what phones may do, what they may know, and thirty of them at once."""

from __future__ import annotations

import logging
import math
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from memrl_core.errors import InputError
from memrl_core.experiments.sentences import ANSWERS, OF_THE_ROOM
from memrl_core.lessons.lesson import load_shelf
from memrl_core.lessons.room import (
    BACK_WITHIN,
    MOST_OF_AN_ADDRESS,
    MOST_STUDENTS,
    QUESTIONS,
    OpenRoom,
    Overview,
    Question,
    Room,
    question_of,
)

QUESTION = Question("Which?", ("a", "b", "c"), answer=1, because="since b", left={"weight": 0.0}, right={"weight": 1.0})


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenRoom]:
    page = tmp_path / "phone.html"
    page.write_text("<!doctype html><title>a phone</title>", encoding="utf-8")
    room = OpenRoom(Room(QUESTION), {"phone.html": page})
    yield room
    room.close()


@contextmanager
def a_phone(opened: OpenRoom, name: str = "Ada") -> Iterator[httpx.Client]:
    with httpx.Client(base_url=opened.address, timeout=30) as phone:
        assert phone.post("join", json={"name": name}).json()["joined"]
        yield phone


def test_a_phone_predicts_once_and_learns_the_answer_only_when_it_is_revealed(opened: OpenRoom) -> None:
    with a_phone(opened) as phone:
        assert phone.post("predict", json={"choice": 2}).json()["mine"] == 2
        assert phone.post("predict", json={"choice": 1}).json()["mine"] == 2
        before = phone.get("state").json()
        assert (before["answer"], before["because"]) == (None, "")
        opened.room.go_to("revealed")
        assert phone.get("state").json()["answer"] == 1
        assert phone.post("predict", json={"choice": 0}).json()["mine"] == 2
    assert opened.room.overview().votes == (0, 0, 1)


def test_a_reload_keeps_name_seed_and_prediction_and_two_of_one_name_are_numbered(opened: OpenRoom) -> None:
    with a_phone(opened) as one, a_phone(opened) as other:
        one.post("predict", json={"choice": 0})
        again = one.post("join", json={"name": "somebody else"}).json()
        assert (again["name"], again["seed"], again["mine"]) == ("Ada", 2, 0)
        second = other.get("state").json()
        assert (second["name"], second["seed"]) == ("Ada (2)", 3)
    assert opened.room.overview().students == 2


def test_results_belong_to_their_question_and_the_first_stands(opened: OpenRoom) -> None:
    with a_phone(opened) as phone:
        number = phone.get("state").json()["number"]
        phone.post("report", json={"number": number, "result": 0.5})
        assert opened.room.overview().results == ()  # Nobody plays yet.
        opened.room.go_to("play")
        phone.post("report", json={"number": number - 1, "result": 0.25})
        phone.post("report", json={"number": number, "result": -0.125})
        phone.post("report", json={"number": number, "result": 1.0})
        assert opened.room.overview().results == (-0.125,)
        opened.room.ask(QUESTION)
        assert opened.room.overview() == Overview("predict", 1, (0, 0, 0), ())


JOIN, PREDICT, REPORT = ("join", "predict", "report")
LONG = "9" * 1500


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (JOIN, '{"name": 7}'),
        (JOIN, '{"name": ["Ada"]}'),
        (JOIN, b'{"name": "\xff\xfe"}'),
        (PREDICT, '{"choice": 3}'),
        (PREDICT, f'{{"choice": {LONG}}}'),
        (PREDICT, '{"choice": 1e400}'),
        (PREDICT, '{"choice": true}'),
        (PREDICT, '{"choice": "0"}'),
        (PREDICT, '{"choice": {"0": 0}}'),
        (PREDICT, "[]"),
        (PREDICT, "{"),
        (PREDICT, ""),
        (PREDICT, "[" * 1900),
        (PREDICT, '{"choice":' * 190),
        (PREDICT, '{"choice": 0, "more": ' + "[" * 900 + "]" * 900 + "}"),
        (PREDICT, '{"choice": 0, "more": "' + "x" * 5000 + '"}'),
        (REPORT, '{"number": 1, "result": NaN}'),
        (REPORT, '{"number": 1, "result": Infinity}'),
        (REPORT, '{"number": 1, "result": 1e9}'),
        (REPORT, '{"number": 1, "result": null}'),
        (REPORT, f'{{"number": 1, "result": {LONG}}}'),
        (REPORT, f'{{"number": 1, "result": -{LONG}}}'),
        (REPORT, '{"number": [1], "result": 0.5}'),
        (REPORT, '{"number": NaN, "result": 0.5}'),
    ],
)
def test_what_no_page_of_ours_would_send_is_refused_and_changes_nothing(
    opened: OpenRoom, caplog: pytest.LogCaptureFixture, path: str, body: str | bytes
) -> None:
    with a_phone(opened) as phone:
        opened.room.go_to("play" if path == REPORT else "predict")
        answer = phone.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422) and answer.json()["error"]
        assert phone.get("state").json()["name"] == "Ada"
    assert opened.room.overview().votes == (0, 0, 0) and opened.room.overview().results == ()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]  # A traceback would be one.


@pytest.mark.parametrize("result", [10**1500, -(10**1500), math.inf, math.nan])
def test_a_result_that_no_phone_computes_is_a_sentence(result: float) -> None:
    room = Room(QUESTION)
    token = room.join("Ada")
    room.go_to("play")
    with pytest.raises(InputError):
        room.report(token, 1, result)


def test_a_body_that_never_arrives_is_given_up(opened: OpenRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.lessons.room.BODY_WITHIN", 0.05)
    where = httpx.URL(opened.address)
    head = f"POST {where.path}join HTTP/1.1\r\nHost: {where.host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((where.host, where.port or 0), timeout=30) as phone:
        phone.sendall(f'{head}Content-Length: 1000\r\n\r\n{{"name"'.encode())
        assert b" 400 " in phone.recv(100)
    assert opened.room.overview().students == 0


def test_nothing_but_the_room_can_be_reached_and_only_with_its_code_and_name(opened: OpenRoom) -> None:
    port = httpx.URL(opened.address).port
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as stranger:
        for path in ("/", "/AAAAAAAA/", "/AAAAAAAA/state", "/é/state", f"/{opened.room.code}/page.py"):
            assert stranger.get(path).status_code == 404, path
        inside = f"/{opened.room.code}/"
        assert stranger.get(inside).status_code == 200
        assert stranger.get(inside, headers={"Host": f"elsewhere.example:{port}"}).status_code == 400
        assert stranger.post(inside + "predict", data={"choice": 0}).status_code == 400  # As a form elsewhere would.
        assert stranger.post(inside + "predict", json={"choice": 0}).status_code == 422  # Has not joined.
        assert "default-src 'none'" in stranger.get(inside).headers["Content-Security-Policy"]


def test_a_closed_room_does_not_answer_and_an_address_of_another_machine_is_a_sentence(opened: OpenRoom) -> None:
    with pytest.raises(InputError):
        OpenRoom(Room(QUESTION), {}, "192.0.2.1")
    opened.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(opened.address)


def test_every_phone_hears_that_the_room_is_closed_and_then_its_server_ends(opened: OpenRoom) -> None:
    with a_phone(opened) as one, a_phone(opened) as other:
        assert one.get("state").json()["joined"] and other.get("state").json()["joined"]
        opened.close()
        for phone in (one, other):
            answer = phone.get("state")
            assert (answer.status_code, answer.text) == (404, "This room is closed.")
    opened._thread.join(timeout=30)
    assert not opened._thread.is_alive()
    with pytest.raises(httpx.ConnectError):
        httpx.get(opened.address)


def test_the_server_ends_although_a_phone_never_hears_it(opened: OpenRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.lessons.room.HEARD_WITHIN", 0.05)
    with a_phone(opened) as phone:
        phone.get("state")
    opened.close()
    opened._thread.join(timeout=30)
    assert not opened._thread.is_alive()


def test_one_device_is_one_participant_and_one_that_drops_its_cookie_is_none(
    opened: OpenRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("memrl_core.lessons.room.monotonic", lambda: now[0])
    monkeypatch.setattr("memrl_core.lessons.room.MOST_OF_AN_ADDRESS", 5)
    with a_phone(opened) as phone:
        for number in range(3):
            assert phone.post("join", json={"name": f"Eve {number}"}).json()["name"] == "Ada"
        assert opened.room.names() == ("Ada",)
        refused = 0
        for number in range(8):
            phone.cookies.clear()
            # A header may claim that it comes from elsewhere.
            header = {"X-Forwarded-For": f"198.51.100.{number}"}
            refused += phone.post("join", json={"name": "Eve"}, headers=header).status_code == 422
        assert refused == 4 and opened.room.overview().students == 5
        now[0] = BACK_WITHIN + 1
        assert opened.room.names() == ("Ada",)


def test_whatever_one_address_does_there_is_room_for_the_others_and_a_class_behind_one_gets_in() -> None:
    room = Room(QUESTION)
    for number in range(MOST_OF_AN_ADDRESS):
        room.seen_by(room.join(f"{number}", None, "192.0.2.7"))
    with pytest.raises(InputError, match="your address"):
        room.join("one more", None, "192.0.2.7")
    assert room.seen_by(room.join("another", None, "192.0.2.8"))["joined"]
    assert room.overview().students == MOST_OF_AN_ADDRESS + 1 > 60


def test_who_is_put_out_stays_out_and_the_others_keep_their_seeds(opened: OpenRoom) -> None:
    with a_phone(opened) as ada, a_phone(opened, "Eve") as eve:
        eve.post("predict", json={"choice": 0})
        opened.room.put_out("Eve")
        assert opened.room.names() == ("Ada",) and opened.room.overview().votes == (0, 0, 0)
        assert eve.get("state").json() == {"joined": False, "out": True}
        assert "put you out" in eve.post("join", json={"name": "Eve"}).json()["error"]
        assert eve.post("predict", json={"choice": 0}).status_code == 422
        with a_phone(opened, "Grace") as grace:
            assert (ada.get("state").json()["seed"], grace.get("state").json()["seed"]) == (2, 4)


def test_phones_see_that_the_teacher_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("memrl_core.lessons.room.monotonic", lambda: now[0])
    room = Room(QUESTION)
    token = room.join("Ada")
    assert not room.seen_by(token)["away"]
    now[0] = 60.0
    assert room.seen_by(token)["away"]
    room.overview()
    assert not room.seen_by(token)["away"]


def test_thirty_phones_predict_and_play_at_once_and_none_is_lost(opened: OpenRoom) -> None:
    def predicts(phone: httpx.Client, number: int) -> int:
        return phone.post("predict", json={"choice": number % 3}).json()["mine"]

    def plays(phone: httpx.Client) -> int:
        mine = phone.get("state").json()
        phone.post("report", json={"number": mine["number"], "result": mine["seed"] / 100})
        return mine["seed"]

    with ExitStack() as phones, ThreadPoolExecutor(30) as pool:
        here = list(pool.map(lambda _: phones.enter_context(a_phone(opened)), range(30)))
        assert list(pool.map(predicts, here, range(30))) == [number % 3 for number in range(30)]
        assert opened.room.overview().votes == (10, 10, 10)
        opened.room.go_to("play")
        assert sorted(pool.map(plays, here)) == list(range(2, 32))
    assert math.isclose(sum(opened.room.overview().results), sum(range(2, 32)) / 100)


def test_a_room_knows_what_it_was_asked_and_a_lesson_of_ones_own_becomes_its_question() -> None:
    room = Room(QUESTION)
    room.ask(QUESTIONS["One memory or three?"])
    assert room.asked == (QUESTION, QUESTIONS["One memory or three?"])
    lessons = load_shelf().lessons
    asked = question_of(lessons["02-similarity-cannot-let-go"])
    assert asked.choices[asked.answer or 0] == "With what changed, and less with what stayed"
    assert asked.left == {"weight": 0.0, "shifts": [145]} and asked.right == {"shifts": [145]}
    assert (asked.since, asked.steps) == (145, 288)
    # Both sides are named by what differs, also where one of them has a default.
    assert asked.effect == "what λ = 0.5 adds to λ = 0 after the shift"
    assert question_of(lessons["11-a-full-memory"]).effect.startswith(
        "what all memories kept adds to memories kept = 48"
    )
    gated = lessons["05-the-gate"]
    assert question_of(gated.model_copy(update={"finding": gated.finding[:2]})).effect.startswith(
        "what δ = 0.7 adds to no gate"
    )
    alone = question_of(lessons["08-the-same-words"])
    assert alone.left == alone.right == {} and len(alone.choices) == 3


def test_the_room_and_the_lesson_about_similarity_say_the_same() -> None:
    question, lesson = QUESTIONS["Does utility help when the world shifts?"], ANSWERS["02-similarity-cannot-let-go"]
    helps = question.choices[question.answer or 0] == "The one that also goes by q"
    assert helps and {bound.measure for bound in lesson} == {"changed", "stayed"}
    assert all(bound.least >= 0 for bound in (*lesson, *OF_THE_ROOM["Does utility help when the world shifts?"]))
    stated = {
        (one.measure, one.settings.lambda_): one.mean or 0
        for one in load_shelf().lessons["02-similarity-cannot-let-go"].finding
    }
    for measure in ("changed", "stayed"):
        assert (stated[measure, 0.5] > stated[measure, 0.0]) is helps
    points = re.search(r"([\d.]+) points more after the shift", question.because)
    both = sum(100 * (stated[measure, 0.5] - stated[measure, 0.0]) for measure in ("changed", "stayed")) / 2
    # The lesson speaks of all steps after the shift, the room of the first 96 of them, where the difference is smaller.
    assert points and 0 < float(points[1]) < 2 * both


def test_a_full_room_and_a_question_without_choices_are_sentences() -> None:
    room = Room(QUESTION)
    for _ in range(MOST_STUDENTS):
        room.join("")
    with pytest.raises(InputError):
        room.join("one more")
    with pytest.raises(InputError):
        Question("Which?", ("a",))


@pytest.mark.parametrize("title", QUESTIONS)
def test_no_question_mixes_what_is_solved_before_its_shift_with_what_is_solved_after(title: str) -> None:
    question = QUESTIONS[title]
    for side in (question.left, question.right):
        assert not [shift for shift in side["shifts"] if question.since < shift <= question.steps]
