"""Lessons are data: every fault is told with its line, every shipped one can be walked through, and progress stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import workspace
from memrl_core.agent.twins import TwinRuns, open_twins
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, MemRLError, UnknownRun
from memrl_core.learning import updated_q
from memrl_core.lessons import progress
from memrl_core.lessons.decision import DecisionScene
from memrl_core.lessons.ladder import MOST_REWARDS, LadderScene
from memrl_core.lessons.lesson import Lesson, read_lesson
from memrl_core.lessons.pictures import ladder_picture, twins_picture
from memrl_core.lessons.progress import Kept, Progress
from memrl_core.lessons.shelf import lessons_bank, load_shelf, own_folder, shipped_folder
from memrl_core.lessons.twins import TwinsScene
from memrl_core.lessons.words import Words, filled
from memrl_core.records import StepTrace
from memrl_core.retrieval import zscore

SHIPPED = {path.stem: read_lesson(path) for path in sorted(shipped_folder().glob("[0-9]*.toml"))}
STILL = [key for key, lesson in SHIPPED.items() if lesson.scene.kind != "twins"]

ME, SOMEBODY = "a" * 32, "b" * 32

A_LESSON = """\
title = "One"
summary = "A lesson."
minutes = 3
claim = "Something is so."

[scene]
kind = "ladder"
alpha = 0.5

[predict]
question = "Is it?"
choices = ["Yes", "No"]
answer = 1
because = "It is."

[do]
text = "Press."

[[do.check]]
value = "rewards"
at_least = 1
label = "Pressed"
hint = "The button."

[[do.check]]
value = "q"
at_least = 0.5
label = "Up"
hint = "Again."

[reveal]
text = "So."

[notice]
points = ["It was."]
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBank]:
    """The recorded demo, as lessons see it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMRL_HOME", str(tmp_path_factory.mktemp("lessons")))
        with MemoryBank.open(str(lessons_bank())) as opened:
            yield opened


def written(folder: Path, text: str, name: str = "one.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def line(text: str, key: str) -> int:
    return next(n for n, row in enumerate(text.splitlines(), start=1) if row.startswith(key))


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_lesson_is_read_from_its_file(tmp_path: Path) -> None:
    lesson = read_lesson(written(tmp_path, A_LESSON))
    assert (lesson.title, lesson.minutes, lesson.scene.alpha) == ("One", 3, 0.5)
    assert [check.condition for check in lesson.do.check] == ["rewards at_least 1.0", "q at_least 0.5"]


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ('kind = "ladder"', 'kind = "snake"', "kind", "'memories', 'decision', 'ladder' or 'twins'"),
        ("alpha = 0.5", "alpha = 1.5", "alpha", "less than or equal to 1"),
        ("alpha = 0.5", "alpha = 0.5\nspeed = 3", "speed", "no such key. Allowed: kind, q0, alpha"),
        ("minutes = 3", "minutes = 0", "minutes", "greater than or equal to 1"),
        ("answer = 1", "answer = 3", "answer", "counted from 1 to 2"),
        ('["Yes", "No"]', '["Yes"]', "choices", "at least 2"),
        ('value = "rewards"', 'value = "stars"', 'value = "stars"', "no value “stars”. Allowed: rewards, successes"),
        ("at_least = 1\n", "at_least = 1\nat_most = 2\n", "[[do.check]]", "exactly one of at_least, at_most, is"),
        ("at_least = 1\n", "", "[[do.check]]", "exactly one of at_least, at_most, is"),
        ("at_least = 1\n", "is = true\n", 'value = "rewards"', "is a number"),
        ('because = "It is."', 'because = "![x](http://elsewhere/x.png)"', "because", "no pictures"),
    ],
)  # fmt: skip
def test_a_fault_in_a_lesson_is_told_with_its_line_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    text = A_LESSON.replace(old, new, 1)
    assert text != A_LESSON
    with pytest.raises(InputError) as failure:
        read_lesson(written(tmp_path, text))
    reported = str(failure.value)
    assert f"one.toml, line {line(text, key)}: " in reported
    assert message in reported


def test_a_lesson_without_a_scene_or_that_is_not_toml_gets_its_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"one\.toml: scene: this key is missing"):
        read_lesson(written(tmp_path, A_LESSON.replace("[scene]", "[decor]")))
    with pytest.raises(InputError, match=r"one\.toml is not TOML: .*line 1"):
        read_lesson(written(tmp_path, "title = One"))
    with pytest.raises(InputError, match="cannot be read"):
        read_lesson(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("at_least = 2", 2.0, True), ("at_least = 2", 1.9, False), ("at_most = 0", 0.0, True),
        ("at_most = 0", 0.1, False), ("is = 3", 3.0, True), ("is = 3", 2.0, False), ("at_least = 2", None, False),
    ],
)  # fmt: skip
def test_a_check_compares_a_value_that_is_there(
    tmp_path: Path, condition: str, value: float | None, holds: bool
) -> None:
    lesson = read_lesson(written(tmp_path, A_LESSON.replace("at_least = 1", condition, 1)))
    assert lesson.do.check[0].holds({} if value is None else {"rewards": value}) is holds


def test_an_own_lesson_joins_replaces_and_cannot_break_the_others() -> None:
    written(own_folder(), A_LESSON, "zz-mine.toml")
    written(own_folder(), A_LESSON.replace('"One"', '"Ein Dreier"'), "01-a-memory-is-a-triplet.toml")
    written(own_folder(), A_LESSON.replace("minutes = 3", "minutes = 'three'"), "02-similarity-alone-fails.toml")
    shelf = load_shelf()
    assert list(shelf.lessons) == [*SHIPPED, "zz-mine"]
    assert shelf.lessons["01-a-memory-is-a-triplet"].title == "Ein Dreier"
    assert shelf.lessons["02-similarity-alone-fails"] == SHIPPED["02-similarity-alone-fails"]
    (trouble,) = shelf.troubles
    assert trouble.startswith("02-similarity-alone-fails.toml, line 3: minutes: ")


def test_the_words_of_the_page_are_one_file_that_a_translation_replaces() -> None:
    shipped = (shipped_folder() / "words.toml").read_text(encoding="utf-8")
    written(own_folder(), shipped.replace('heading = "Lessons"', 'heading = "Lektionen"'), "words.toml")
    assert load_shelf().words.heading == "Lektionen"
    written(own_folder(), "heading = 3", "words.toml")
    shelf = load_shelf()
    assert shelf.words.heading == "Lessons"
    assert shelf.troubles and shelf.troubles[0].startswith("words.toml, line 1: heading: ")


def test_only_the_names_in_braces_are_filled_and_nothing_in_them_is_acted_on() -> None:
    assert filled("{n} of {m}", n=1, m="{n}") == "1 of {n}"
    assert filled("{n.__class__}", n=1) == "{n.__class__}"


def test_words_and_what_fills_them_make_no_picture_together() -> None:
    assert filled("You said!{choice}", choice="[x](https://evil/p.png)") == "You said!\\[x](https://evil/p.png)"
    assert filled("!{a}{b}", a="", b="[x](//evil)") == "!\\[x](//evil)"
    assert filled("{a}[x](//evil)", a="\\!") == "\\!\\[x](//evil)"


def test_what_ships_is_numbered_lessons_without_trouble() -> None:
    shelf = load_shelf()
    assert shelf.troubles == ()
    assert [int(key[:2]) for key in shelf.lessons] == list(range(1, len(SHIPPED) + 1))
    assert isinstance(shelf.words, Words)
    assert len({lesson.title for lesson in shelf.lessons.values()}) == len(SHIPPED)


# --- the shipped lessons can be walked through, and what they say is so -----------------------------------------------


def picked(bank: MemoryBank, fits: Callable[[str, float, int], bool]) -> str:
    utilities = bank.utilities("household")
    return next(m.id for m in bank.memories("household") if fits(m.outcome, utilities[m.id].q, utilities[m.id].visits))


def far_twins(bank: MemoryBank) -> list[str]:
    """Two used memories with the very same words whose q are furthest apart, the low one first."""
    known = {i: u for i, u in bank.utilities("household").items() if u.visits}
    words = {i: bank.memory(i).experience for i in known}
    pairs = [(low, high) for low in known for high in known if words[low] == words[high]]
    return list(max(pairs, key=lambda pair: known[pair[1]].q - known[pair[0]].q))


def done(key: str, bank: MemoryBank) -> list[dict[str, Any]]:
    """What a person does in each lesson without twins, as the inputs of its scene one after the other."""
    if key.startswith("01"):
        return [
            {"memory": picked(bank, lambda outcome, q, visits: visits >= 5)},
            {"memory": picked(bank, lambda outcome, q, visits: visits == 0)},
        ]
    if key.startswith("02"):
        return [{"weight": 0.5}]
    if key.startswith("03"):
        return [{"rewards": [1.0] * 4}, {"rewards": [1.0] * 4 + [-1.0]}]
    if key.startswith("04"):
        return [{"weight": 0.0}, {"weight": 1.0}]
    if key.startswith("05"):
        rewards = [1.0] * 8 + [-1.0]
        return [{"rewards": rewards}, {"rewards": rewards, "alpha": 0.1}, {"rewards": rewards, "alpha": 0.8}]
    if key.startswith("07"):
        return [
            {"memory": picked(bank, lambda outcome, q, visits: outcome == "failure" and q >= 0.5)},
            *({"memory": one} for one in far_twins(bank)),
        ]
    raise AssertionError(f"Say here what a person does in the lesson {key}.")


def performed(lesson: Lesson[Any], bank: MemoryBank, states: list[Mapping[str, Any]]) -> Kept:
    kept = Kept()
    for inputs in states:
        kept = progress.moved(kept, **inputs)
        kept = progress.observed(lesson, kept, lesson.scene.observe(bank, kept.inputs))
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("key", SHIPPED)
def test_a_lesson_can_be_finished_with_a_right_and_with_a_wrong_prediction(key: str, bank: MemoryBank) -> None:
    lesson = SHIPPED[key]
    untouched = progress.observed(lesson, Kept(), lesson.scene.observe(bank, {}))
    assert progress.missing(lesson, untouched) == ("predict", "do")
    kept = performed(lesson, bank, done(key, bank)) if key in STILL else walked(key)[1]
    assert progress.missing(lesson, kept) == ("predict",)
    assert not progress.saw(lesson, kept, "reveal").locked
    for choice in range(1, len(lesson.predict.choices) + 1):
        reported = progress.saw(lesson, progress.predicted(lesson, kept, choice), "reveal")
        assert reported.locked
        assert progress.is_right(lesson, reported) is (choice == lesson.predict.answer)
        assert progress.saw(lesson, reported, "notice").finished
        with pytest.raises(InputError, match="stands"):
            progress.predicted(lesson, reported, 1)


@pytest.mark.parametrize("key", STILL)
def test_no_step_of_a_lesson_is_done_before_the_person_does_it(key: str, bank: MemoryBank) -> None:
    lesson = SHIPPED[key]
    for leave_out in range(len(states := done(key, bank))):
        kept = performed(lesson, bank, states[:leave_out])
        assert "do" in progress.missing(lesson, kept)


def test_similarity_alone_chooses_three_failures_and_utility_better_ones(bank: MemoryBank) -> None:
    lesson = SHIPPED["02-similarity-alone-fails"]
    scene = lesson.scene
    assert isinstance(scene, DecisionScene)
    assert scene.looked_at(bank, {}).trace.task.intent in lesson.predict.question
    at_start = scene.observe(bank, {})
    assert (at_start["selected_failures"], at_start["selected_successes"]) == (3, 0)
    assert lesson.predict.choices[lesson.predict.answer - 1] == "None"
    looked = scene.looked_at(bank, {})
    intents = {bank.memory(memory_id).intent for memory_id in looked.decision.selected}
    assert intents == {looked.trace.task.intent}
    # No rule for ties makes the point: just these are as similar as can be.
    nearest = [c.memory_id for c in looked.decision.candidates if c.similarity > 0.999]
    assert set(nearest) == set(looked.decision.selected)
    for hinted in (0.5, 0.6, 0.8):
        assert float(scene.observe(bank, {"weight": hinted})["selected_q_mean"]) >= 0.2


def test_utility_keeps_the_failure_that_was_never_used_and_brings_in_what_has_served_well(bank: MemoryBank) -> None:
    scene = SHIPPED["02-similarity-alone-fails"].scene
    assert isinstance(scene, DecisionScene)
    looked = scene.looked_at(bank, {"weight": 0.5})
    now, at_start = set(looked.decision.selected), set(looked.at_start.selected)
    before = bank.utilities("household", scene.step - 1)
    assert all(before[i].visits and before[i].q > 0.3 for i in now - at_start)
    ((untried,), tried) = now & at_start, at_start - now
    assert (before[untried].visits, before[untried].q) == (0, 0.0)
    assert all(before[i].visits and before[i].q < 0 for i in tried)


@pytest.mark.parametrize(("alpha", "updates"), [(0.05, 14), (0.3, 2), (0.5, 1), (0.9, 1), (1.0, 1)])
def test_updates_to_half_are_whole_and_at_least_one(alpha: float, updates: int, bank: MemoryBank) -> None:
    values = SHIPPED["05-too-stiff-too-nervous"].scene.observe(bank, {"alpha": alpha})
    assert values["updates_to_half"] == updates
    assert (1 - alpha) ** updates <= 0.5 + 1e-12 < (1 - alpha) ** (updates - 1)


def test_step_sizes_that_keep_the_order_choose_alike_at_lambda_one_only() -> None:
    rewards = [(1, -1, 1, 1, -1, -1), (-1, 1, -1, 1), (1, -1, -1, 1, 1), (1, -1, 1)]
    similarities = np.array([0.43, 1.0, 0.74, 0.36])

    def q_under(alpha: float) -> list[float]:
        return [reduce(lambda q, reward: updated_q(q, reward, alpha), given, 0.0) for given in rewards]

    calm, nervous = map(np.array, (q_under(0.05), q_under(0.9)))
    assert list(np.argsort(calm)) == list(np.argsort(nervous))
    for weight, alike in ((1.0, True), (0.5, False)):
        best = [int(np.argmax((1 - weight) * zscore(similarities).z + weight * zscore(q).z)) for q in (calm, nervous)]
        assert (best[0] == best[1]) is alike


def test_at_lambda_one_the_memories_are_of_other_tasks_but_from_the_pool(bank: MemoryBank) -> None:
    scene = SHIPPED["04-lambda-from-0-to-1"].scene
    assert isinstance(scene, DecisionScene)
    similar, both, useful = (scene.looked_at(bank, {"weight": weight}) for weight in (0.0, 0.75, 1.0))
    assert all("pan" in bank.memory(i).intent for i in similar.decision.selected)
    assert sum(c.similarity > 0.999 for c in similar.decision.candidates if c.rank_select is not None) == 4
    assert not any("pan" in bank.memory(i).intent for i in useful.decision.selected)
    assert {"pan" in bank.memory(i).intent for i in both.decision.selected} == {True, False}
    pool = {c.memory_id for c in useful.decision.candidates if c.rank_select is not None}
    assert set(useful.decision.selected) <= pool
    known = bank.utilities("household", scene.step - 1)
    best = max(known, key=lambda memory_id: known[memory_id].q)
    assert best not in pool, "the best memory of all was not similar enough to be looked at"


def test_the_numbers_in_the_lesson_of_a_reward_are_those_of_its_ladder(bank: MemoryBank) -> None:
    lesson = SHIPPED["03-a-reward-moves-q"]
    assert (lesson.scene.q0, lesson.scene.alpha) == (0.0, 0.3)
    once = lesson.scene.observe(bank, {"rewards": [1.0]})["q"]
    assert f"At {once:g}" == lesson.predict.choices[lesson.predict.answer - 1]


def test_after_eight_successes_and_a_failure_the_largest_step_size_is_furthest_from_the_mean(bank: MemoryBank) -> None:
    lesson = SHIPPED["05-too-stiff-too-nervous"]
    scene = lesson.scene
    assert isinstance(scene, LadderScene)
    rewards = [1.0] * 8 + [-1.0]
    mean = sum(rewards) / len(rewards)
    off = {climb.alpha: abs(climb.values[-1] - mean) for climb in scene.climbs({"rewards": rewards})}
    assert f"The one with α = {max(off, key=off.__getitem__):g}" == lesson.predict.choices[lesson.predict.answer - 1]
    assert {f"The one with α = {alpha:g}" for alpha in off} == set(lesson.predict.choices)
    _, stiff, nervous = (climb.values[-1] for climb in scene.climbs({"rewards": rewards}))
    assert nervous < -0.7 and 0 < stiff < 0.5 * mean


def test_failures_can_be_worth_more_than_successes_in_the_demo(bank: MemoryBank) -> None:
    utilities = bank.utilities("household")
    memories = bank.memories("household")
    good = [m for m in memories if m.outcome == "failure" and utilities[m.id].q >= 0.5]
    assert [m.step < 5 for m in good].count(True) == 2


def test_two_memories_with_the_same_words_were_used_for_other_tasks_in_other_company(bank: MemoryBank) -> None:
    scene, pair = SHIPPED["07-a-failure-worth-remembering"].scene, far_twins(bank)
    low, high = (bank.memory(memory_id) for memory_id in pair)
    assert low.experience == high.experience and low.id != high.id
    values = [scene.observe(bank, {"memory": memory_id}) for memory_id in pair]
    apart = float(values[1]["q"]) - float(values[0]["q"])
    assert values[0]["q_below_same_words"] == pytest.approx(apart) == values[1]["q_above_same_words"]
    assert float(values[0]["q"]) < 0 < float(values[1]["q"])
    traces = [bank.trace("household", row.step) for row in bank.step_rows("household")]
    uses = [[trace for trace in traces if memory_id in trace.decision.selected] for memory_id in pair]
    tasks, company = ([{what(trace) for trace in used} for used in uses] for what in (task_of, company_of))
    assert tasks[0] != tasks[1] and company[0] != company[1]
    rewards = [sum(trace.reward.outcome == "success" for trace in used) / len(used) for used in uses]
    assert rewards[0] < rewards[1]
    unused = next(i for i, utility in bank.utilities("household").items() if not utility.visits)
    assert "q_above_same_words" not in scene.observe(bank, {"memory": unused})


def task_of(trace: StepTrace) -> str:
    return trace.task.id


def company_of(trace: StepTrace) -> frozenset[str]:
    return frozenset(trace.decision.selected)


def test_every_memory_of_the_demo_began_with_the_same_q_and_the_last_was_never_used(bank: MemoryBank) -> None:
    settings = bank.settings("household")
    assert settings["q0_success"] == settings["q0_failure"]
    newest = bank.memories("household")[-1]
    assert bank.utilities("household")[newest.id].visits == 0


def played_through(scene: TwinsScene, pair: TwinRuns, bank: MemoryBank) -> None:
    with bank.batch(50):
        while not (scene.waits_for_shift(pair) and scene.steps_to_play(pair) == 0):
            if not scene.steps_to_play(pair):
                return
            pair.step(scene.steps_to_play(pair))
    pair.shift()
    played_through(scene, pair, bank)


def walked(key: str) -> tuple[Lesson[Any], Kept, list[list[float]]]:
    """A lesson of twins, done: what is kept, and the accuracies, CSR and forgotten shares of both, six rows."""
    lesson = SHIPPED[key]
    scene = lesson.scene
    assert isinstance(scene, TwinsScene)
    with MemoryBank.open(str(lessons_bank())) as opened:
        kept = progress.observed(lesson, Kept(), scene.observe(opened, {}))
        assert kept.passed == ()
        pair = scene.begin(opened)
        kept = progress.moved(kept, left=pair.runs[0], right=pair.runs[1])
        pair.step(scene.task_count)
        kept = progress.observed(lesson, kept, scene.observe(opened, kept.inputs))
        assert kept.passed == ()
        played_through(scene, pair, opened)
        values = scene.observe(opened, kept.inputs)
        kept = progress.observed(lesson, kept, values)
        played = scene.played(opened, kept.inputs)
        names = scene.started(kept.inputs)
        assert played is not None and names is not None and open_twins(opened, *names).steps == played.steps
        table = twins_picture(played, ("left", "right"), scene.task_count).table
        rows = [
            table.loc[table["arm"] == side, column].tolist()
            for side in ("left", "right")
            for column in ("accuracy", "CSR", "solved before, failing now")
        ]
        assert [values[f"left_{name}"] for name in ("accuracy", "csr", "forgotten")] == pytest.approx(
            [row[-1] for row in rows[:3]]
        )
    return lesson, kept, rows


@pytest.mark.slow
def test_when_the_world_shifts_the_agent_that_learned_falls_and_recovers() -> None:
    lesson, kept, (_, _, _, right, _, forgotten) = walked("06-the-world-shifts")
    scene = lesson.scene
    assert isinstance(scene, TwinsScene) and scene.shift_after is not None
    assert (scene.task_count, scene.shift_after, scene.epochs) == (8, 8, 12)
    assert (scene.left.weight, scene.right.weight) == (0.0, 0.5)
    before, after = scene.shift_after - 1, scene.shift_after
    assert right[after] < right[before] <= right[-1]
    assert forgotten[after] == max(forgotten) > forgotten[-1]
    with MemoryBank.open(str(lessons_bank())) as opened:
        run = str(kept.inputs["right"])
        attempts = [[opened.trace(run, epoch * 8 + task) for epoch in (before, after, 11)] for task in range(1, 9)]
    outcomes = ("success", "failure", "success")
    won_back = [steps for steps in attempts if tuple(step.reward.outcome for step in steps) == outcomes]
    assert won_back
    for _, lost, _ in won_back:
        assert lost.update.changes and all(change.after < change.before for change in lost.update.changes)
    assert any(set(lost.decision.selected) != set(back.decision.selected) for _, lost, back in won_back)


@pytest.mark.slow
def test_the_same_csr_can_hide_that_half_was_lost() -> None:
    lesson, _, (left, left_csr, left_lost, right, right_csr, right_lost) = walked("08-forgetting-and-csr")
    assert lesson.scene.epochs == len(left) == 8
    assert (lesson.scene.left.weight, lesson.scene.right.weight) == (0.0, 0.5)
    assert left_csr[-1] == right_csr[-1]
    assert right[-1] == right_csr[-1] and right_lost[-1] == 0
    assert all(a <= b for row in (left_csr, right_csr) for a, b in pairwise(row))
    assert [csr - solved for csr, solved in zip(left_csr, left, strict=True)] == pytest.approx(left_lost)
    assert left_lost[-1] == pytest.approx(left_csr[-1] / 2)


def test_a_lesson_of_twins_begun_again_comes_out_the_same(bank: MemoryBank) -> None:
    lesson = SHIPPED["08-forgetting-and-csr"]
    scene = lesson.scene.model_copy(update={"task_count": 4, "epochs": 3, "shift_after": 1})
    reported = []
    for _ in range(2):
        pair = scene.begin(bank)
        played_through(scene, pair, bank)
        values = dict(scene.observe(bank, dict(zip(("left", "right"), pair.runs, strict=True))))
        assert values["finished"] and values["shifts"] == 1
        reported.append(values)
    assert reported[0] == reported[1]


# --- scenes -----------------------------------------------------------------------------------------------------------


def test_a_scene_yields_only_values_that_a_check_may_ask_for(bank: MemoryBank) -> None:
    for key, lesson in SHIPPED.items():
        states: list[dict[str, Any]] = [{}] if key not in STILL else [{}, *done(key, bank)]
        for inputs in states:
            values = lesson.scene.observe(bank, inputs)
            assert values.keys() <= lesson.scene.VALUES.keys()
            for name, value in values.items():
                assert isinstance(value, (int, float) if lesson.scene.VALUES[name] is float else str | bool)


def test_looking_at_a_scene_changes_nothing_in_the_bank(bank: MemoryBank) -> None:
    before = bank.facts
    for key in STILL:
        for inputs in done(key, bank):
            SHIPPED[key].scene.observe(bank, inputs)
    assert bank.facts == before


def test_inputs_of_another_scene_or_out_of_range_get_a_sentence(bank: MemoryBank) -> None:
    with pytest.raises(InputError, match="Start this lesson again"):
        SHIPPED["03-a-reward-moves-q"].scene.observe(bank, {"weight": 1})
    with pytest.raises(MemRLError):
        SHIPPED["02-similarity-alone-fails"].scene.observe(bank, {"weight": 7})
    with pytest.raises(UnknownRun):
        SHIPPED["08-forgetting-and-csr"].scene.observe(bank, {"left": "gone", "right": "gone-too"})


def test_only_the_controls_of_a_lesson_can_be_moved(bank: MemoryBank) -> None:
    values = SHIPPED["02-similarity-alone-fails"].scene.observe(bank, {"k2": 0, "weight": 0.5})
    assert values["k2"] == 3 and values["weight"] == 0.5


def test_a_ladder_ends_somewhere(bank: MemoryBank) -> None:
    scene = SHIPPED["03-a-reward-moves-q"].scene
    assert isinstance(scene, LadderScene)
    full = {"rewards": [1.0] * (MOST_REWARDS - 1)}
    with pytest.raises(InputError, match="enough"):
        scene.with_reward(scene.with_reward(full, 1.0), 1.0)


def test_the_ladder_is_drawn_as_it_was_climbed() -> None:
    scene = SHIPPED["05-too-stiff-too-nervous"].scene
    assert isinstance(scene, LadderScene)
    picture = ladder_picture(scene, {"rewards": [1.0, -1.0], "alpha": 0.5})
    assert picture.table["q, α = 0.5"].tolist() == [0.0, 0.5, -0.25]
    assert picture.table["expected of the same mean"].tolist() == [0.0, 0.0, 0.0]
    assert "2 rewards took q from +0.000 to −0.250" in picture.title
    assert ladder_picture(scene, {}).title.endswith("0 rewards took q from +0.000 to +0.000")


def test_the_lessons_look_at_a_bank_of_their_own(home: Path) -> None:
    demo = workspace.demo_bank()
    mine = lessons_bank()
    assert mine != demo and mine == lessons_bank()
    shutil.rmtree(demo)
    with MemoryBank.open(str(mine)) as opened:
        assert [info.id for info in opened.runs()] == ["household"]


# --- progress ---------------------------------------------------------------------------------------------------------


def finished(lesson: Lesson[Any], prediction: int) -> Kept:
    passed = tuple(check.condition for check in lesson.do.check)
    return Kept(prediction=prediction, passed=passed, seen=progress.PAGES)


def test_progress_survives_reopening_and_a_lesson_can_be_begun_again_and_brought_back() -> None:
    lesson = SHIPPED["03-a-reward-moves-q"]
    progress.change(ME, "03", lambda kept: progress.moved(kept, rewards=[1.0, -1.0]))
    progress.change(ME, "03", lambda kept: progress.predicted(lesson, kept, 2))
    progress.change(ME, "03", lambda kept: progress.saw(lesson, kept, "claim"))
    known = progress.load_progress(ME).of("03")
    assert (known.prediction, known.inputs, known.seen) == (2, {"rewards": [1.0, -1.0]}, ("claim",))
    assert progress.next_page(known) == "predict"
    progress.start_again(ME, "03")
    assert progress.load_progress(ME).of("03") == Kept()
    progress.undo_start_again(ME, "03")
    assert progress.load_progress(ME) == Progress(lessons={"03": known})
    progress.start_again(ME, "03")
    progress.change(ME, "03", lambda kept: progress.predicted(lesson, kept, 1))
    assert progress.load_progress(ME).cleared == {}


def test_a_browser_sees_its_own_progress_only() -> None:
    lesson = SHIPPED["03-a-reward-moves-q"]
    progress.change(ME, "03", lambda kept: progress.predicted(lesson, kept, 2))
    assert progress.load_progress(SOMEBODY) == Progress()
    progress.change(SOMEBODY, "03", lambda kept: progress.predicted(lesson, kept, 1))
    assert progress.load_progress(ME).of("03").prediction == 2
    with pytest.raises(InputError, match="id"):
        progress.load_progress("../somewhere")


def test_what_was_predicted_counts_once_the_scene_was_seen() -> None:
    lesson = SHIPPED["03-a-reward-moves-q"]
    assert not progress.opens(lesson, Kept(), "do") and progress.saw(lesson, Kept(), "do") == Kept()
    kept = progress.predicted(lesson, progress.predicted(lesson, Kept(), 1), 3)
    assert progress.opens(lesson, kept, "do") and not progress.opens(lesson, kept, "reveal")
    kept = progress.saw(lesson, kept, "do")
    with pytest.raises(InputError, match="stands"):
        progress.predicted(lesson, kept, 2)
    assert kept.prediction == 3


def test_the_score_counts_what_was_revealed_only() -> None:
    one, two, three = list(SHIPPED)[:3]
    right = {key: SHIPPED[key].predict.answer for key in (one, two, three)}
    known = Progress(
        lessons={
            one: finished(SHIPPED[one], right[one]),
            two: finished(SHIPPED[two], right[two] % len(SHIPPED[two].predict.choices) + 1),
            three: Kept(prediction=right[three], seen=("claim", "predict", "do")),
            "deleted": Kept(prediction=1, seen=progress.PAGES),
        }
    )
    reported = progress.score(SHIPPED, known)
    assert (reported.right, reported.predicted, reported.finished, reported.lessons) == (1, 2, 2, 8)


def test_a_prediction_that_a_rewritten_lesson_no_longer_offers_is_asked_for_anew() -> None:
    lesson = SHIPPED["03-a-reward-moves-q"]
    kept = progress.fitting(lesson, finished(lesson, 5))
    assert kept.prediction is None and not kept.locked
    assert progress.missing(lesson, kept) == ("predict",)
    with pytest.raises(InputError, match="no choice 9"):
        progress.predicted(lesson, kept, 9)


def test_progress_that_cannot_be_read_is_put_aside_and_told(home: Path) -> None:
    folder = home / "lesson-progress"
    folder.mkdir(parents=True)
    (folder / f"{ME}.json").write_text("{broken")
    with pytest.raises(InputError, match=rf"kept as {ME}-unreadable\.json"):
        progress.load_progress(ME)
    assert progress.load_progress(ME) == Progress()
    assert (folder / f"{ME}-unreadable.json").read_text() == "{broken"


def test_progress_that_cannot_be_saved_is_told(home: Path) -> None:
    (home / "lesson-progress" / f"{ME}.draft").mkdir(parents=True)
    with pytest.raises(InputError, match="could not be saved"):
        progress.change(ME, "03", lambda kept: progress.moved(kept, rewards=[]))
