"""`memrl claims check`: what documents state is computed again, and what no longer holds is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memrl_core.cli.main import app
from memrl_core.errors import InputError
from memrl_core.experiments import claims
from memrl_core.experiments.claims import Claim, checked
from memrl_core.experiments.sentences import ANSWERS, OF_THE_ROOM, REASONS, Bound, first_fresh_seed
from memrl_core.lessons.lesson import load_shelf
from memrl_core.lessons.room import QUESTIONS

PAGE = "Over 40 seeds it\ngains −2.5 points, of 30 %."
SAYS = "Over {} seeds it gains {} points, of {} %."


def a_claim(*intervals: tuple[float, float], says: str = SAYS) -> Claim:
    return Claim("page.md", says, lambda results: intervals, quick=True)


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (a_claim((40, 40), (-3, -2), (29, 31)), ""),
        (a_claim((40, 40), (-3, -2.6), (29, 31)), "-2.5 is not in -3…-2.6"),
        (a_claim((40, 40), says="Over {} seeds it loses"), "any more"),
        (Claim("other.md", SAYS, lambda results: []), "not there"),
        (a_claim((40, 40)), "it states 3 numbers, and 1 can be computed"),
        (Claim("page.md", SAYS, lambda results: [{}["an arm"]]), "it cannot be computed: 'an arm'"),
    ],
)
def test_a_claim_holds_while_its_numbers_lie_in_the_interval(tmp_path: Path, claim: Claim, why: str) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    found = checked(claim, tmp_path)
    assert why in found.why and bool(found.why) is bool(why)


def test_the_command_counts_and_fails_where_one_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    says = "The plane compares what is *kept*"
    monkeypatch.setattr(claims, "CLAIMS", (Claim("docs/screens.md", says, lambda results: [], quick=True),))
    done = CliRunner().invoke(app, ["claims", "check"])
    assert done.exit_code == 0 and done.output.splitlines()[-1] == "1 hold, 0 do not"
    monkeypatch.setattr(claims, "CLAIMS", (Claim("docs/screens.md", "no such words", lambda results: [], quick=True),))
    done = CliRunner().invoke(app, ["claims", "check", "--quick"])
    assert done.exit_code == 1 and done.output.splitlines()[-1] == "0 hold, 1 do not"


@pytest.mark.slow
def test_the_quick_claims_hold() -> None:
    done = CliRunner().invoke(app, ["claims", "check", "--quick"])
    assert done.exit_code == 0, done.output


def test_the_words_of_every_claim_stand_in_its_document() -> None:
    root = claims.ROOT
    missing = [claim for claim in claims.CLAIMS if claim.stated((root / claim.where).read_text("utf-8")) is None]
    assert [f"{claim.where}: {claim.says}" for claim in missing] == []


SHARE = re.compile(r"[+−-]?\d+(?:\.\d+)?(?: ± \d+(?:\.\d+)?)? (?:%|points?\b)")
BY_HAND = [
    "README.md", "pages", "docs", "sample_data/lessons", "sample_data/presets.toml", "sample_data/room.toml",
]  # fmt: skip
PICTURE = re.compile(r"!\[[^\]]*\]")
"""The words for a picture: the script that draws it prints them."""
NO_FINDINGS = {
    # Levels of intervals, what chance and the best player get in a world, and stories that a question tells.
    "pages": {"95 %", "0 %"},
    "docs": {"95 %"},
    "docs/write_results.py": {"80 %"},
    "docs/how-to/rating.md": {"45 points"},
    "docs/how-to/recall.md": {"90 %", "3 %"},
    "docs/screens.md": {"40 %", "90 %"},
    "docs/teaching.md": {"80 %", "55 %"},
    "sample_data/lessons/01-frozen-and-plastic.toml": {"75 %"},
    "sample_data/lessons/15-what-transfers.toml": {"40 %", "60 %"},
}


def test_every_share_and_gain_that_is_written_by_hand_is_a_claim() -> None:
    root = claims.ROOT
    files = [path for place in BY_HAND for path in sorted([root / place, *(root / place).rglob("*")]) if path.is_file()]
    unclaimed = []
    for path in files:
        where = path.relative_to(root).as_posix()
        if path.suffix not in {".md", ".py", ".toml"} or where.startswith("docs/results"):
            continue
        text = PICTURE.sub("", path.read_text("utf-8"))
        claimed = [claim.found(text) for claim in claims.CLAIMS if claim.where == where]
        spans = [found.span() for found in claimed if found is not None]
        free = NO_FINDINGS.get(where, set()) | NO_FINDINGS.get(where.partition("/")[0], set())
        for share in SHARE.finditer(text):
            if share[0] not in free and not any(begin <= share.start() < end for begin, end in spans):
                unclaimed.append(f"{where}: {share[0]}")
    assert not unclaimed, "; ".join(unclaimed)


AN_EFFECT = re.compile(
    r"\b(many|most|few|fewer|hardly|nearly|seldom|often|about|better|worse|more|less|larger|smaller|sooner|slowly|"
    r"\w+ of (two|three|four|five|ten)|help(s|ed)?|costs?|gains?|not all)\b(?! (similar|than))|%",
    re.IGNORECASE,
)
DEFINED = {
    # What words mean, what the reader is told to do, and what follows from the rule that moves q.
    "The **stability–plasticity dilemma**: where the same weights do both, more of one costs the other.",
    "A small α trusts many rewards, a large one the last.",
    "With k2 = 1 the model gets the one best memory instead of three.",
    "With 0.02 an old trust fades slowly: , since z(q) gives a small q the same weight.",
    "At λ = 0 the memories most similar to the task go to the model.",
    "With α = 0.3, of the memories of what changed that had a q of 0.5 and more at the shift, : yours may be one that "
    "does not.",
    "**Credit** goes to what was used, not to what helped.",
    "What was learned helps with what never came, if the memories of one task are recalled for another: **transfer**.",
}


def test_what_a_lesson_says_of_many_of_most_or_of_more_has_a_predicate() -> None:
    shelf, unproven = load_shelf(), []
    for key, lesson in shelf.lessons.items():
        proven = [says for number, says, _ in REASONS if key.startswith(number)]
        for text in (lesson.sentence, lesson.predict.question, lesson.predict.because):
            for says in proven:
                text = text.replace(says, "")
            unproven += [
                f"{key}: {one}"
                for one in re.split(r"(?<=[.?!])\s+", text)
                if AN_EFFECT.search(one) and not one.endswith("?") and one not in DEFINED
            ]
    assert unproven == []


def test_what_is_said_of_layouts_and_of_ranking_is_what_was_measured(tmp_path: Path) -> None:
    where = "docs/real-models.md"
    page = (claims.ROOT / where).read_text("utf-8")
    (tmp_path / "docs").mkdir()
    quick = [one for one in claims.CLAIMS if one.where == where and one.quick]
    for old, new in (
        ("in place of 70.0 and 70.0", "in place of 71.0 and 70.0"),
        ("17.5 less at k2 = 1", "7.5 less at k2 = 1"),
        ("31 of 33 messages", "32 of 33 messages"),
        ("less than some 20 points", "less than some 5 points"),
        ("between −2.5 and +2.8 points", "between −2.5 and +1.8 points"),
        ("1277 of 1465 messages", "1278 of 1465 messages"),
    ):
        assert page.count(old) == 1
        (tmp_path / where).write_text(page.replace(old, new), encoding="utf-8")
        (about,) = (one for one in quick if one.stated(page) != one.stated(page.replace(old, new)))
        assert not checked(about, claims.ROOT).why and checked(about, tmp_path).why, new


def test_every_number_of_a_rooms_answers_is_a_claim() -> None:
    says = [claim.says for claim in claims.CLAIMS if claim.where == "sample_data/room.toml"]
    for question in QUESTIONS.values():
        stated = re.sub("60", "", question.because)
        covered = [claim for claim in says if claims.Claim("", claim, lambda results: []).stated(question.because)]
        assert sum(claim.count("{}") for claim in covered) == len(re.findall(claims.NUMBER, stated)), question.because


def test_a_sentence_is_refuted_by_any_setting_that_the_hand_reaches(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("With α = 0 the tasks\nsucceed less often.")
    says = "With α = 0 the tasks succeed less often."
    here = {"alpha": 0.3}
    for bound, why in (
        (Bound("before", -100, 100, ({"alpha": 0.0},), here), ""),
        (Bound("before", 0.0, 0.0, ({"alpha": 0.3}, {"alpha": 0.0}), here), "refuted: before (alpha 0.0)"),
    ):
        found = checked(Claim("page.md", says, lambda results: [], bounds=(bound,)), tmp_path, first_seed=12)
        assert why in found.why and bool(found.why) is bool(why) and len(found.found) == len(bound.settings)


def test_every_lesson_and_answer_of_the_room_has_a_predicate_and_each_day_its_own_seeds() -> None:
    shelf = load_shelf()
    assert set(ANSWERS) == set(shelf.lessons) - shelf.own
    assert set(OF_THE_ROOM) == {title for title, question in QUESTIONS.items() if question.answer is not None}
    assert first_fresh_seed() % 100 == 0 and first_fresh_seed() + 100 < 2**32


def test_without_the_documents_the_command_says_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    done = CliRunner().invoke(app, ["claims", "check", "--quick"])
    assert isinstance(done.exception, InputError) and "docs/" in str(done.exception)
