"""Lessons: files that can be read, faults that are reported with their line, findings that hold."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

import pytest

from memrl_core.errors import InputError
from memrl_core.experiments.toml_files import read_model
from memrl_core.lessons.cards import ACCENT, LAB, cards, kept
from memrl_core.lessons.lesson import Finding, Lesson, load_shelf, own_folder, shipped_folder
from memrl_core.lessons.measures import MEASURES, OF_RUN, run_of
from memrl_core.lessons.world import Settings, family_of

SHIPPED = sorted(shipped_folder().glob("*.toml"))
WORDS_A_MINUTE = 130


def test_the_lessons_name_stability_and_plasticity_and_take_a_minute_and_a_half_to_read() -> None:
    shelf = load_shelf()
    assert shelf.troubles == () and len(shelf.lessons) == len(SHIPPED)
    texts = [
        " ".join((one.title, one.sentence, one.predict.question, *one.predict.choices, one.predict.because))
        for one in shelf.lessons.values()
    ]
    assert "**Stability**" in texts[0] and "**plasticity**" in texts[0]
    assert sum(len(text.split()) for text in texts) / WORDS_A_MINUTE < 1.5 * len(texts)
    assert {name for one in shelf.lessons.values() for name in one.hand} >= {
        "alpha",
        "lambda",
        "epsilon",
        "delta",
        "k1",
        "k2",
    }


def test_a_lesson_of_ones_own_replaces_the_one_of_its_name_and_a_fault_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    own_folder().mkdir()
    text = SHIPPED[2].read_text(encoding="utf-8")
    mine = own_folder() / SHIPPED[2].name
    mine.write_text(text.replace("α: too stiff, too nervous", "Mine"), encoding="utf-8")
    assert load_shelf().lessons[mine.stem].title == "Mine"
    assert [text.splitlines()[line - 1][:6] for line in load_shelf().stated_at[mine.stem]] == ["mean ="] * 6
    mine.write_text(text.split("[[finding]]")[0], encoding="utf-8")
    assert load_shelf().lessons[mine.stem].finding == [] and load_shelf().stated_at[mine.stem] == ()
    mine.write_text(text.replace("answer = 2", "answer = 9"), encoding="utf-8")
    shelf = load_shelf()
    assert shelf.lessons[mine.stem].title == "α: too stiff, too nervous"
    assert len(shelf.troubles) == 1 and "answer" in shelf.troubles[0] and "1 to 3" in shelf.troubles[0]


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ('measure = "before"', 'measure = "after"', "there is no measure “after”"),
        ("alpha = 0.02", "alpha = 7", "less than or equal to 1"),
        ('hand = ["alpha"]', 'hand = ["colour"]', "hand"),
        ("[predict]", "[predicts]", "predict"),
        ('hand = ["alpha"]', 'hand = ["alpha", "k1", "alpha"]', "each slider can be there once"),
    ],
)
def test_a_fault_is_reported_with_its_line(tmp_path: Path, old: str, new: str, reported: str) -> None:
    text = (shipped_folder() / "03-alpha.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "own.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"own\.toml, line") as raised:
        read_model(tmp_path / "own.toml", Lesson)
    assert reported in str(raised.value)


def test_a_fault_that_a_file_repeats_lists_the_measures_once_and_each_line(tmp_path: Path) -> None:
    text = (shipped_folder() / "03-alpha.toml").read_text(encoding="utf-8").replace('"before"', '"after"')
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        read_model(tmp_path / "own.toml", Lesson)
    said = str(raised.value)
    assert said.count("there is no measure") == 1 and said.count(": the same") == 3
    lines = [number for number, line in enumerate(text.splitlines(), 1) if '"after"' in line]
    assert [f"line {number}:" in said for number in lines] == [True] * 4
    (tmp_path / "own.toml").write_bytes(text.replace('"after"', '"before"').encode("utf-8-sig"))
    assert read_model(tmp_path / "own.toml", Lesson).title
    (tmp_path / "own.toml").write_bytes(text.encode("utf-16"))
    with pytest.raises(InputError, match=r"own\.toml is not text in UTF-8"):
        read_model(tmp_path / "own.toml", Lesson)


def test_a_finding_is_computed_from_seeds() -> None:
    assert set(MEASURES) >= {"kept", "gained", "trained_kept", "before", "changed", "never", "pair", "fallen", "gap"}
    assert 0 < Finding(measure="before", mean=0).computed(seeds=2) < 0.9


def test_precision_recall_and_false_recall_are_counted_by_families_among_what_is_kept() -> None:
    run = run_of(Settings(seed=5, k1=48, delta=0.7, keep=20))
    right, recalled, come = [], [], []
    for number, step in enumerate(run.steps):
        kept = range(max(0, number - 20), number)
        own = [one for one in kept if family_of(run.memory.task[one]) == family_of(step.task)]
        hits = len({*own} & {*step.choice.pool})
        right += [hits / len(step.choice.pool)] if step.choice.pool else []
        recalled += [hits / len(own)] if own else []
        come += [] if own else [len(step.choice.pool) > 0]
    found = [OF_RUN[name](run) for name in ("precision", "recall", "false_recall")]
    assert found == pytest.approx([fmean(right), fmean(recalled), fmean(come)])
    assert len(come) > 8 and 0 < found[2] < 1


@pytest.mark.slow
def test_the_pictures_on_the_cards_are_what_their_script_draws() -> None:
    drawn = cards()
    assert {path.stem for path in drawn} == {path.stem for path in SHIPPED} | {LAB}
    assert {path: path.read_text(encoding="utf-8") for path in drawn} == drawn


@pytest.mark.parametrize("key", [*(path.stem for path in SHIPPED), LAB])
def test_a_card_has_a_small_picture_in_the_colours_of_both_themes_with_words_for_it(key: str) -> None:
    root = ElementTree.fromstring(kept(key))
    assert root.get("role") == "img" and len(root.get("aria-label", "")) > 20
    looks = {part.get(name, "none") for part in root.iter() for name in ("fill", "stroke")}
    assert looks <= {"currentColor", "none", ACCENT}
    left, top, right, bottom = map(float, root.get("viewBox", "").split())
    for part in root:
        across = [float(part.get(name, 0)) for name in ("x", "x1", "x2", "cx")]
        down = [float(part.get(name, 0)) for name in ("y", "y1", "y2", "cy")]
        for point in part.get("points", "").split():
            x, y = map(float, point.split(","))
            across.append(x)
            down.append(y)
        assert left <= min(across) and max(across) <= right and top <= min(down) and max(down) <= bottom
    assert len(kept(key)) < 4000


def test_a_lesson_of_ones_own_has_no_picture_of_the_shelf() -> None:
    assert kept("my-lesson") == ""
