"""Room: a class predicts on its phones, sees what happens, and every phone plays a seed of its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import segno
import streamlit as st

from memrl_core.errors import InputError, MemRLError
from memrl_core.figures.compare.comparison import results_picture
from memrl_core.lessons.lesson import load_shelf
from memrl_core.lessons.room import QUESTIONS, OpenRoom, Overview, Question, Room, Stage, network_address, question_of
from pages.shared.picture import show
from pages.shared.text import failure_kept, literal

FILES = Path(__file__).parent
PHONE = {
    **{name: FILES / name for name in ("phone.html", "phone.css", "phone.js")},
    "core.js": FILES.parent / "playground" / "core.js",
}
OWN = "Write my own question"
INCOMPLETE = "A question and at least two choices are needed."
CODE = "room_code"
LOOK_EVERY = 1.0
NEXT: dict[Stage, tuple[str, Stage]] = {
    "predict": ("Reveal", "revealed"),
    "revealed": ("Every phone plays its own seed", "play"),
}


@st.cache_resource
def _open_rooms() -> dict[str, OpenRoom]:
    """The rooms of this server by code: a teacher finds them again from any tab, and after a reload."""
    return {}


def _opened() -> OpenRoom | None:
    """The room of the address; without one there, that of this session, so that other screens lead back to it."""
    code = st.query_params.get("room", st.session_state.get(CODE, ""))
    opened = _open_rooms().get(code)
    if opened is not None:
        st.session_state[CODE] = st.query_params["room"] = code
    return opened


def _open() -> None:
    with failure_kept():
        address = network_address() if st.session_state["room_network"] else "127.0.0.1"
        opened = OpenRoom(Room(_must_be_whole(_question())), PHONE, address)
        _open_rooms()[opened.room.code] = opened
        st.query_params["room"] = opened.room.code


def _enter(code: str) -> None:
    st.query_params["room"] = code


def _close(code: str) -> None:
    if st.session_state.get(CODE) == code:
        st.session_state.pop(CODE)
        st.query_params.pop("room", None)
    opened = _open_rooms().pop(code, None)
    if opened is not None:
        opened.close()


def _ask(room: Room, asked: int) -> None:
    with failure_kept():
        room.ask(_must_be_whole(_question(asked)))


def _put_out(room: Room) -> None:
    if name := st.session_state["room_out_name"]:
        room.put_out(name)


def _question_form(asked: Collection[str] = ()) -> Question | None:
    """The question that was chosen or written; None while it cannot be asked. `asked` are titles of those before."""
    titles = [*QUESTIONS, *_of_own_lessons(), OWN]
    # The first that was not asked yet.
    begun = next((at for at, one in enumerate(titles) if one not in asked), 0)
    title = st.selectbox("What the class is asked", titles, begun, key=_chosen(len(asked)))
    if title == OWN:
        st.text_area("Question", key="room_text", max_chars=500)
        st.text_area("Choices, one per line", key="room_choices", max_chars=1000)
        st.selectbox("Which is right", ["none: there is no right answer", *_lines()], key="room_right")
    question = _question(len(asked))
    if question is None:
        st.caption(INCOMPLETE)
    return question


def _question(asked: int = 0) -> Question | None:
    """What the form holds now, when so many were asked: with a press comes what was typed last."""
    title, ours = st.session_state[_chosen(asked)], _of_own_lessons()
    if title in QUESTIONS or title in ours:
        return QUESTIONS[title] if title in QUESTIONS else ours[title]
    lines, right = _lines(), st.session_state.get("room_right")
    try:
        return Question(st.session_state.get("room_text", ""), lines, lines.index(right) if right in lines else None)
    except MemRLError:
        return None


def _must_be_whole(question: Question | None) -> Question:
    if question is None:
        raise InputError(f"{INCOMPLETE} Nothing was asked.")
    return question


def _chosen(asked: int) -> str:
    return f"room_question{asked or ''}"


def _lines() -> tuple[str, ...]:
    """The choices of an own question."""
    return tuple(line.strip() for line in st.session_state.get("room_choices", "").splitlines() if line.strip())


def _of_own_lessons() -> dict[str, Question]:
    """Questions by their titles."""
    shelf = load_shelf()
    return {f"Lesson: {shelf.lessons[key].title}": question_of(shelf.lessons[key]) for key in sorted(shelf.own)}


def _asked(room: Room) -> tuple[str, ...]:
    """The titles of the questions that this room was asked, shipped ones and those of own lessons."""
    return tuple(title for title, question in {**QUESTIONS, **_of_own_lessons()}.items() if question in room.asked)


def _on_the_phones(question: Question) -> None:
    """What a student sees before the reveal."""
    with st.container(border=True, key="room_phone"):
        st.caption("On every phone")
        st.markdown(f"**{literal(question.text)}**")
        for number, choice in enumerate(question.choices):
            st.button(literal(choice), key=f"room_phone_{number}", disabled=True, width="stretch")


def _rooms_that_are_open() -> None:
    """Every room of this server, to enter or to close: the tab it was opened in may be lost."""
    for code, opened in list(_open_rooms().items()):
        with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"room_of_{code}"):
            st.markdown(
                f"**A room is open**, with {len(opened.room.names())} in it: {literal(opened.room.question.text)}"
            )
            st.button("Enter it", key=f"room_enter_{code}", on_click=_enter, args=(code,))
            st.button("Close it", key=f"room_close_{code}", on_click=_close, args=(code,))


def _door() -> None:
    st.title("A room for a class", anchor=False)
    _rooms_that_are_open()
    st.markdown(
        "Students open a link on their phones and predict; bars fill here as they do. Then you reveal what happens, "
        "and every phone plays the same agents with a seed of its own: whether an effect holds for everyone or only on "
        "average stands on the wall."
    )
    form, phone = st.columns([3, 2], gap="large")
    with form:
        question = _question_form()
        st.toggle(
            "Let phones of this network join",
            key="room_network",
            help="Without it only browsers of this machine can. With it the room, and nothing else of this app, can be "
            "reached from the network until you close it, by whoever has its code.",
        )
        st.button(
            "Open the room",
            type="primary",
            icon=":material/meeting_room:",
            key="room_open",
            disabled=question is None,
            on_click=_open,
        )
        st.caption(
            "1 · They predict, and cannot change it.  2 · You reveal what happens over many seeds.  3 · Every phone "
            "plays its own seed, and a histogram of their results stands here."
        )
    if question is not None:
        with phone:
            _on_the_phones(question)


def _link(opened: OpenRoom) -> None:
    code = segno.make(opened.address, error="m")
    st.image(code.svg_data_uri(scale=6, border=2, dark="#000", light="#fff"), width=260)
    st.code(opened.address, language=None, wrap_lines=True)
    if "//127.0.0.1" in opened.address:
        st.caption("Only browsers of this machine can join.")


def _bars(question: Question, seen: Overview) -> None:
    given = sum(seen.votes)
    st.markdown(f"**{given} of {seen.students}** have predicted")
    for number, (choice, votes) in enumerate(zip(question.choices, seen.votes, strict=True)):
        right = seen.stage != "predict" and question.answer == number
        st.progress(votes / max(1, given), f"{'✓ ' if right else ''}{literal(choice)} · {votes}")
    if seen.stage != "predict" and question.because:
        st.markdown(literal(question.because))


@st.fragment(run_every=LOOK_EVERY)
def _live(opened: OpenRoom) -> None:
    if opened.room.is_closed:
        st.rerun()  # In another tab.
    question, seen = opened.room.question, opened.room.overview()
    if seen.stage == "play":
        show(results_picture(seen.results, question.effect), "room_results")
        st.caption(f"{len(seen.results)} of {seen.students} phones have played.")
    else:
        _bars(question, seen)
    if seen.stage in NEXT and (seen.stage == "predict" or question.left != question.right):
        label, stage = NEXT[seen.stage]
        st.button(label, type="primary", key=f"room_{stage}", on_click=opened.room.go_to, args=(stage,))


@st.fragment(run_every=LOOK_EVERY)
def _people(room: Room) -> None:
    name = st.selectbox("Who", room.names(), index=None, placeholder="Nobody chosen", key="room_out_name")
    st.caption("Their prediction and result go with them, and their phone cannot join again.")
    st.button("Put out", key="room_out", disabled=name is None, on_click=_put_out, args=(room,))


opened = _opened()
if opened is None:
    if "room" in st.query_params:
        st.info("That room is closed. Open another.")
    _door()
else:
    st.subheader(literal(opened.room.question.text), anchor=False)
    stage, door = st.columns([3, 1], gap="large")
    with door:
        _link(opened)
    with stage:
        _live(opened)
    with st.container(horizontal=True, key="room_moves"):
        with st.popover("Another question", icon=":material/quiz:"):
            asked = _asked(opened.room)
            following = _question_form(asked)
            if following is not None:
                st.markdown(literal(following.text))
                st.button("Ask it", key="room_ask", on_click=_ask, args=(opened.room, len(asked)))
        with st.popover("Put somebody out", icon=":material/person_remove:", key="room_people"):
            _people(opened.room)
        st.button(
            "Close the room",
            icon=":material/no_meeting_room:",
            key="room_close",
            on_click=_close,
            args=(opened.room.code,),
        )
