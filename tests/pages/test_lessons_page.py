"""The page Lessons: every lesson is walked page by page, nothing is shown too early, and a reload keeps it all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.runtime.context import ContextProxy
from streamlit.testing.v1 import AppTest

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.lessons.progress import PAGES, Kept, load_progress
from memrl_core.lessons.shelf import load_shelf, shipped_folder
from pages.shared.lesson_place import COOKIE
from pages.shared.pairs import forget_pairs, pairs
from tests.pages.test_pages import page_text

Visit = Callable[..., AppTest]
ME, SOMEBODY = "a" * 32, "b" * 32
LADDER = "03-a-reward-moves-q"

TWINS = """\
title = "Two agents"
summary = "Side by side."
minutes = 2
claim = "They differ."

[scene]
kind = "twins"
task_count = 2
epochs = 2
seed = 1
shift_after = 1
left = { weight = 0.0 }
right = { weight = 1.0 }

[predict]
question = "Do they?"
choices = ["Yes", "No"]
answer = 1
because = "So it is."

[do]
text = "Play."

[[do.check]]
value = "finished"
is = true
label = "Played"
hint = "Press."

[reveal]
text = "There."

[notice]
points = ["Seen."]
"""


@pytest.fixture
def visit(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Visit:
    """As by a browser that was here before."""
    monkeypatch.setattr(ContextProxy, "cookies", {COOKIE: ME})
    return visit


def opened(visit: Visit, lesson: str, page: str = "", **link: str) -> AppTest:
    """A page of a lesson, opened by its link in a new session."""
    return visit("lessons", lesson=lesson, **({"page": page} if page else {}), **link)


def tried(visit: Visit, lesson: str, choice: int = 1, **link: str) -> AppTest:
    """The page Do after a prediction."""
    opened(visit, lesson, "predict").button(key=f"prediction_{choice}").click().run()
    return opened(visit, lesson, "do", **link)


def own(home: Path, name: str, text: str) -> None:
    (home / "lessons").mkdir(exist_ok=True)
    (home / "lessons" / name).write_text(text, encoding="utf-8")


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def html(app: AppTest) -> str:
    return "\n".join(element.proto.body for element in app.get("html"))


def test_the_list_shows_every_lesson_and_leads_into_one(visit: Visit) -> None:
    app = visit("lessons")
    shelf = load_shelf()
    assert all(lesson.title in page_text(app) for lesson in shelf.lessons.values())
    assert f"0 of {len(shelf.lessons)} lessons finished" in page_text(app)
    (kinds,) = app.table
    assert list(kinds.value.iloc[:, 0]) == ["memories", "decision", "ladder", "twins"]
    app.button(key=f"open_{LADDER}").click().run()
    assert (app.query_params["lesson"], app.query_params["page"]) == (LADDER, "claim")
    assert shelf.lessons[LADDER].claim.splitlines()[0] in page_text(app)


@pytest.mark.slow
@pytest.mark.parametrize("key", list(load_shelf().lessons))
def test_every_page_of_every_lesson_is_a_link(visit: Visit, key: str) -> None:
    app = visit("lessons")
    for page in PAGES:
        app.query_params["lesson"], app.query_params["page"] = key, page
        app.run()
        assert not app.error and not app.exception
        assert load_shelf().lessons[key].title in page_text(app)
        assert app.query_params["page"] == page


def test_a_lesson_is_walked_with_a_right_prediction_and_survives_a_reload(visit: Visit) -> None:
    app = opened(visit, LADDER)
    app.button(key="move_right").click().run()
    assert app.query_params["page"] == "predict"
    app.button(key="prediction_2").click().run()
    app.button(key="move_right").click().run()
    for _ in range(4):
        app.button(key="reward_0").click().run()
    assert "check_box: q has climbed" in page_text(app) and "check_box_outline_blank: You gave" in page_text(app)

    app = opened(visit, LADDER, "do")
    assert [metric.value for metric in app.metric][:2] == ["+0.760", "4"]
    app.button(key="reward_1").click().run()
    app.button(key="move_right").click().run()
    assert app.query_params["page"] == "reveal"
    assert any("You predicted it" in success.value for success in app.success)
    assert any(metric.value == "5" for metric in app.metric)

    app.button(key="page_predict").click().run()
    assert app.button(key="prediction_2").disabled and "checked" in app.button(key="prediction_2").icon
    app = opened(visit, LADDER, "notice")
    assert load_shelf().lessons[LADDER].notice.points[0] in page_text(app)
    app = visit("lessons")
    assert f"1 of {len(load_shelf().lessons)} lessons" in page_text(app)


def test_a_wrong_prediction_is_told_kindly_with_the_reason(visit: Visit) -> None:
    lesson = load_shelf().lessons["02-similarity-alone-fails"]
    app = tried(visit, "02-similarity-alone-fails", 4)
    app.slider(key="lesson_weight").set_value(0.5).run()
    assert "check_box_outline_blank" not in page_text(app)
    app.button(key="move_right").click().run()
    reported = "\n".join(info.value for info in app.info)
    assert "said: All three" in reported and "happens: None" in reported and lesson.predict.because in reported
    assert app.slider(key="lesson_weight").disabled
    app.button(key="move_right").click().run()
    assert "said: All three" in "\n".join(info.value for info in app.info)
    assert "0 of 1 predictions right" in page_text(visit("lessons"))


def test_a_prediction_stands_once_the_scene_was_seen(visit: Visit) -> None:
    app = opened(visit, LADDER, "do")
    assert not app.get("plotly_chart") and "reward_0" not in {button.key for button in app.button}
    assert load_progress(ME).of(LADDER).seen == ()
    app.button(key="go_predict").click().run()
    for choice in (1, 2):
        app.button(key=f"prediction_{choice}").click().run()
    app.button(key="move_right").click().run()
    assert "reward_0" in {button.key for button in app.button}
    app.button(key="move_left").click().run()
    assert all(app.button(key=f"prediction_{choice}").disabled for choice in (1, 2, 3))
    assert load_progress(ME).of(LADDER).prediction == 2


@pytest.mark.slow
def test_browsers_of_one_server_do_not_see_each_others_lessons(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    tried(visit, LADDER, 2)
    monkeypatch.setattr(ContextProxy, "cookies", {COOKIE: SOMEBODY})
    assert "page_predict" in {button.key for button in opened(visit, LADDER, "predict").button}
    assert load_progress(SOMEBODY).of(LADDER).prediction is None
    for given in ({}, {COOKIE: "../../somewhere"}):
        monkeypatch.setattr(ContextProxy, "cookies", given)
        assert not visit("lessons").exception
    monkeypatch.setattr(ContextProxy, "cookies", {COOKIE: ME})
    assert opened(visit, LADDER, "predict").button(key="prediction_2").disabled


def test_the_reveal_stays_closed_and_says_what_is_missing(visit: Visit) -> None:
    lesson = load_shelf().lessons[LADDER]
    for page in ("reveal", "notice"):
        app = opened(visit, LADDER, page)
        assert lesson.reveal.text not in page_text(app) and lesson.notice.points[0] not in page_text(app)
        assert lesson.predict.because not in page_text(app)
        assert "Still missing" in page_text(app) and lesson.do.check[0].label in page_text(app)
        assert {"go_predict", "go_do"} <= {button.key for button in app.button}
    app.button(key="go_predict").click().run()
    assert app.query_params["page"] == "predict"
    assert load_progress(ME).of(LADDER).seen == ("predict",)


def test_a_memory_is_picked_read_and_its_history_revealed(visit: Visit) -> None:
    key = "01-a-memory-is-a-triplet"
    app = tried(visit, key, 3)
    app.selectbox(key="lesson_memory").select("household-0009").run()
    app.selectbox(key="lesson_memory").select("household-0040").run()
    assert "look at the book in good light" in [code.value for code in app.code]
    app = opened(visit, key, "reveal")
    assert "no reward yet" in page_text(app).replace("\\", "")
    assert any("You predicted it" in success.value for success in app.success)


@pytest.mark.slow
def test_two_agents_are_started_played_shifted_and_found_again(home: Path, visit: Visit) -> None:
    own(home, "twins.toml", TWINS)
    app = tried(visit, "twins")
    app.button(key="start_twins").click().run()
    started = load_progress(ME).of("twins").inputs
    (pair,) = (twins for key, twins in pairs().items() if key[1:] == (started["left"], started["right"]))
    app.button(key="play").click().run()
    assert pair.wait(30)
    app.run()
    assert {"shift"} <= {button.key for button in app.button} and "play" not in {button.key for button in app.button}
    app.button(key="shift").click().run()
    app.button(key="play").click().run()
    assert pair.wait(30)
    app = opened(visit, "twins", "do")
    assert "played all 2 epochs" in page_text(app) and "shifted before step 3" in page_text(app)
    assert "λ = 0" in page_text(app).replace("\\", "")
    assert load_progress(ME).of("twins").passed == ("finished is True",)
    assert "There." in page_text(opened(visit, "twins", "reveal"))


def test_a_broken_lesson_of_ones_own_is_told_and_the_others_stay(home: Path, visit: Visit) -> None:
    own(home, "broken.toml", TWINS.replace("answer = 1", "answer = 9"))
    own(home, "mine.toml", TWINS.replace('"Two agents"', '"<b>Mine</b> & yours"'))
    app = visit("lessons")
    (warning,) = app.warning
    line = TWINS.splitlines().index("answer = 1") + 1
    assert f"broken.toml, line {line}: predict.answer" in warning.value.replace("\\", "")
    assert "open_mine" in {button.key for button in app.button} and f"open_{LADDER}" in {b.key for b in app.button}
    assert not any(element.allow_html for element in app.markdown if "Mine" in element.value)


def test_a_lesson_is_cleared_and_brought_back(visit: Visit) -> None:
    app = tried(visit, LADDER)
    app.button(key="reward_0").click().run()
    kept = load_progress(ME).of(LADDER)
    app.button(key="start_again").click().run()
    assert load_progress(ME).of(LADDER) == Kept(seen=("claim",))
    app.button(key=f"undo_{LADDER}").click().run()
    assert load_progress(ME).of(LADDER).inputs == kept.inputs


def test_a_link_to_what_is_not_there_gets_a_notice(visit: Visit) -> None:
    app = opened(visit, "<b>none</b>", "do")
    assert any("no lesson" in toast.value for toast in app.toast)
    assert "lesson" not in app.query_params
    app = opened(visit, LADDER, "nowhere", presenter="yes")
    assert any("no page" in toast.value for toast in app.toast)
    assert app.query_params["page"] == "claim" and "presenter" not in app.query_params


def test_presenting_hides_the_menu_enlarges_the_type_and_can_be_left(visit: Visit) -> None:
    app = opened(visit, LADDER, "claim", presenter="1")
    assert "font-size: 140%" in html(app) and "stHeader" in html(app)
    assert "prefers-reduced-motion" in html(app)
    app.button(key="move_right").click().run()
    assert (app.query_params["page"], app.query_params["presenter"]) == ("predict", "1")
    app.button(key="present").click().run()
    assert "presenter" not in app.query_params and "font-size: 140%" not in html(app)


def test_charts_grow_with_the_type_while_presenting(visit: Visit) -> None:
    tried(visit, LADDER)

    def type_size(**link: str) -> object:
        (chart,) = opened(visit, LADDER, "do", **link).get("plotly_chart")
        return json.loads(chart.proto.spec)["layout"].get("font", {}).get("size")

    assert type_size(presenter="1") == 18
    assert type_size() is None


def test_the_arrow_keys_turn_the_pages(visit: Visit) -> None:
    app = opened(visit, LADDER, "do")
    shortcuts = {button.key: button.proto.shortcut for button in app.button if button.proto.shortcut}
    assert {"move_left": "left", "move_right": "right"}.items() <= shortcuts.items()


def test_a_translation_is_a_file(home: Path, visit: Visit) -> None:
    shipped = (shipped_folder() / "words.toml").read_text(encoding="utf-8")
    own(home, "words.toml", shipped.replace('next = "Next"', 'next = "Weiter"'))
    assert "Weiter" in labels(opened(visit, LADDER))


def test_a_scene_that_cannot_be_shown_says_so_and_the_lesson_can_be_begun_again(home: Path, visit: Visit) -> None:
    own(home, "gone.toml", TWINS.replace('kind = "twins"', 'kind = "decision"\nstep = 999').replace(
        "task_count = 2\nepochs = 2\nseed = 1\nshift_after = 1\nleft = { weight = 0.0 }\nright = { weight = 1.0 }\n", ""
    ).replace('value = "finished"', 'value = "changed"'))  # fmt: skip
    app = tried(visit, "gone")
    assert any("999" in error.value for error in app.error)
    assert "start_again" in {button.key for button in app.button}


def test_a_bank_of_a_person_that_took_the_name_is_told_and_left_alone(home: Path, visit: Visit) -> None:
    path = home / "banks" / "lessons"
    path.parent.mkdir(parents=True, exist_ok=True)
    MemoryBank.create(str(path), "hashing-8", 8).close()
    app = tried(visit, "02-similarity-alone-fails")
    assert "that name" in app.error[0].value
    assert path.is_dir()


def test_a_bank_in_which_agents_play_is_not_deleted(home: Path, visit: Visit) -> None:
    tried(visit, "06-the-world-shifts").button(key="start_twins").click().run()
    (key,) = (key for key in pairs() if key[0].startswith(str(home)))
    twins = pairs()[key]
    twins.play(1.0, 3)
    with pytest.raises(InputError, match="Two agents are playing in this bank"):
        forget_pairs(key[0])
    twins.pause()
    assert twins.wait(30)
    forget_pairs(key[0])
    assert key not in pairs()
