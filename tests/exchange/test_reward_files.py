"""Rewards in files: the effect of every line is listed, good ones are one action, what is written is read back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import LONGEST_REASON, Rating
from memrl_core.bank.people.roles import LONGEST_NAME, Role
from memrl_core.errors import InputError, NotAllowed, UnknownRun
from memrl_core.exchange import reward_files
from memrl_core.exchange.reward_files import Effect, RewardFile, apply_rewards, export_rewards, kind_of, read_rewards
from memrl_core.learning.scales import RatingScales
from tests.builders import a_chain, a_run, a_step
from tests.small_banks import withdraw

STEPS = 4
BOOKKEEPING = ("by", "together", "undoes", "redoes")
ODD = (
    "=1+1",
    "'=1+1",
    "''@x",
    "+4",
    "−1",
    "<b>bo</b>",
    "[red]x[/]",
    'say "hi"',
    "a;b,c",
    "中 🙂",
    "a\r\nb",
    "“q”",
    "-",
)


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with new_bank(tmp_path / "bank") as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """Only to be read: ann has rated step 3 with 0.5."""
    made = new_bank(tmp_path_factory.mktemp("shared") / "bank")
    made.write.ratings.rate(Rating("r", 3, 0.5, "ann", "so so", {"scale": "stars", "stars": 4}))
    return made


def new_bank(path: Path) -> MemoryBank:
    return a_chain(path, STEPS)


def read(bank: MemoryBank, text: str, rater: str = "ann", **defaults: str) -> RewardFile:
    return read_rewards(text.encode(), "csv", bank, default_rater=rater, **defaults)


def given_in(bank: MemoryBank) -> dict[tuple[str, int, str], tuple[float | None, str, dict[str, Any]]]:
    """What people's rewards are, read from the ledger's events."""
    standing = {}
    for info in bank.runs():
        for row in bank.steps.rows(info.id):
            for event in bank.ratings.of(info.id, row.step):
                if event.source == "person":
                    payload = {k: v for k, v in event.payload.items() if k not in BOOKKEEPING}
                    standing[info.id, row.step, event.rater] = (event.value, event.reason, payload)
    return standing


# --- back and forth ---------------------------------------------------------------------------------------------------

texts = st.one_of(st.sampled_from(ODD), st.text(max_size=20))
names = st.one_of(st.sampled_from(ODD), st.text(min_size=1, max_size=20)).filter(lambda name: name.strip() != "*")
choices = st.dictionaries(
    st.sampled_from(["stars", "choice", "marks", "=x"]),
    st.one_of(st.integers(1, 5), texts, st.dictionaries(texts, st.integers(1, 5), max_size=2), st.none()),
    max_size=2,
)
scaled = st.builds(lambda scale, choice: {**({"scale": scale} if scale else {}), **choice}, texts, choices)
one_reward = st.tuples(st.integers(1, STEPS), st.floats(-1, 1), names, texts, scaled)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryBank, MemoryBank]:
    folder = tmp_path_factory.mktemp("scratch")
    return new_bank(folder / "from"), new_bank(folder / "to")


@given(st.lists(one_reward, min_size=1, max_size=4), st.sampled_from(["csv", "jsonl"]))
@example([(2, 0.1, text, text, {"scale": text, "note": text}) for text in ODD], "csv")
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back_whatever_people_say(
    scratch: tuple[MemoryBank, MemoryBank], rewards: list[tuple[Any, ...]], kind: Any
) -> None:
    one, other = scratch
    for bank in scratch:
        for run, step, rater in given_in(bank):
            withdraw(bank, run, step, rater)
    one.write.ratings.rate_all([Rating("r", *reward) for reward in rewards])
    data = export_rewards(one, kind)
    file = read_rewards(data, kind, other)
    assert [line.problem for line in file.lines if line.problem] == []
    apply_rewards(other, file)
    assert given_in(other) == given_in(one)
    assert {line.effect for line in read_rewards(data, kind, one).lines} == {Effect.SAME}


def test_no_cell_that_is_written_is_a_formula_and_numbers_stay_numbers(bank: MemoryBank) -> None:
    bank.write.ratings.rate_all([Rating("r", 2, -0.25, text, text, {"scale": text}) for text in ODD])
    table = export_rewards(bank, "csv").decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(table, newline="")))
    assert [(row["step"], row["reward"]) for row in rows] == [("2", "-0.25")] * len(ODD)
    cells = [row[name] for row in rows for name in ("rater", "reason", "scale")]
    assert [cell for cell in cells if cell.lstrip().startswith(("=", "+", "-", "@"))] == []


def test_rewards_are_written_by_run_step_and_rater(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "bank")
    bank.write.start_run(a_run("a"))
    bank.write.commit_step(*a_step(1, run="a"))
    for run, step, rater in (("r", 3, "bo"), ("r", 3, "ann"), ("r", 2, "cy"), ("a", 1, "zoe")):
        bank.write.ratings.rate(Rating(run, step, 0.5, rater))
    bank.write.ratings.rate(Rating("r", 4, 0.5, "ann"))
    withdraw(bank, "r", 4, "ann")
    rows = [json.loads(line) for line in export_rewards(bank, "jsonl").decode().splitlines()]
    assert [(row["run"], row["step"], row["rater"]) for row in rows] == [
        ("a", 1, "zoe"), ("r", 2, "cy"), ("r", 3, "ann"), ("r", 3, "bo"),
    ]  # fmt: skip
    assert len(export_rewards(bank, "jsonl", "a").splitlines()) == 1
    with pytest.raises(UnknownRun):
        export_rewards(bank, "csv", "nobody")


def test_a_reward_that_was_given_on_a_scale_is_written_with_its_choice(shared: MemoryBank) -> None:
    (row,) = map(json.loads, export_rewards(shared, "jsonl").splitlines())
    assert row.pop("created") == shared.ratings.of("r", 3)[-1].created
    assert row == {
        "run": "r", "step": 3, "rater": "ann", "reward": 0.5, "reason": "so so",
        "scale": "stars", "given": {"stars": 4}, "batch": "", "gold": None,
    }  # fmt: skip


# --- what a line would do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "effect", "then"),
    [
        ("step,reward\n2,1", Effect.NEW, "new"),
        ("step,reward\n3,-1", Effect.CHANGED, "changes +0.50 to −1.00"),
        ("step,reward\n3,0.125", Effect.CHANGED, "changes +0.50 to +0.125"),
        ("step,reward\n3,.5", Effect.SAME, "same as now"),
        ("step,reward,reason\n3,.5,so so", Effect.SAME, "same as now"),
        ("step,reward,reason\n3,.5,", Effect.CHANGED, "same reward, another reason"),
        ('step,reward,scale,given\n3,.5,stars,"{""stars"": 4}"', Effect.SAME, "same as now"),
        ("step,reward,scale\n3,.5,thumbs", Effect.CHANGED, "same reward, another choice on the scale"),
    ],
)
def test_each_line_says_what_it_would_do(shared: MemoryBank, table: str, effect: Effect, then: str) -> None:
    (line,) = read(shared, table).lines
    assert (line.effect, line.then, line.problem) == (effect, then, "")


def test_what_a_file_leaves_out_is_kept_with_the_same_reward(shared: MemoryBank) -> None:
    (line,) = read(shared, "step,reward,reason\n3,0.5,better words").lines
    assert line.rating == Rating("r", 3, 0.5, "ann", "better words", {"scale": "stars", "stars": 4})
    (line,) = read(shared, "step,reward\n3,-1").lines
    assert line.rating == Rating("r", 3, -1.0, "ann")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("step,reward\n99,1", "99"),
        ("step,reward\n2.5,1", "“2.5”"),
        ("step,reward\n1_0,1", "“1_0”"),
        ("step,reward\n,1", "no step"),
        ("step_id,reward\nnope,1", "“nope”"),
        ("step,reward\n2,good", "“good”"),
        ("step,reward\n2,nan", "“nan”"),
        ("step,reward\n2,1e999", "“1e999”"),
        ("step,reward\n2,1.5", "1.5"),
        ('step,reward\n2,"0,5"', "“0,5”"),
        ("step,reward\n2,0,5", "3 fields"),
        ("step,reward,run\n2,1,nobody", "“nobody”"),
        (f"step,reward,reason\n2,1,{'x' * (LONGEST_REASON + 1)}", "2,000"),
        (f"step,reward,rater\n2,1,{'x' * (LONGEST_NAME + 1)}", "person's name"),
        ("step,reward,given\n2,1,[4]", "“given”"),
        ("step,reward,given\n2,1,{", "“given”"),
        ('step,reward,given\n2,1,"{""x"": NaN}"', "“given”"),
        ('step,reward,given\n2,1,"{""by"": ""boss""}"', "“by”"),
        (f'step,reward,given\n2,1,"{{""x"": ""{"y" * 1000}""}}"', "1,000"),
    ],
)
def test_each_bad_line_says_what_is_wrong_with_it(shared: MemoryBank, table: str, says: str) -> None:
    (line,) = read(shared, table).lines
    assert (line.effect, line.rating, line.number) == (Effect.BAD, None, 2)
    assert says in line.problem


def test_a_line_without_a_rater_takes_the_default_or_is_bad(shared: MemoryBank) -> None:
    table = "step,reward,rater\n2,1,\n2,1,\u200b\n2,1, bo  b "
    raters = [line.rating and line.rating.rater for line in read(shared, table, rater=" ann ").lines]
    assert raters == ["ann", "ann", "bo b"]
    unnamed = read(shared, table, rater="").lines
    assert all("rater" in line.problem for line in unnamed[:2])


def test_a_step_is_found_by_its_id_in_any_run(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "bank")
    bank.write.start_run(a_run("other"))
    step_id = bank.steps.rows("r")[1].id
    table = (
        f"step,step_id,reward,run\n,{step_id},1,\n2,{step_id},1,r\n3,{step_id},1,\n0,{step_id},1,\n,{step_id},1,other"
    )
    by_id, both, *others = read(bank, table, default_run="other").lines
    assert by_id.rating == both.rating == Rating("r", 2, 1.0, "ann")
    assert all(line.effect is Effect.BAD and "step 2 of run r" in line.problem for line in others)
    (line,) = read(bank, f"step_id;reward\n{step_id};1").lines
    assert line.rating == by_id.rating


def test_a_bank_of_several_runs_asks_which_one(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "bank")
    bank.write.start_run(a_run("other"))
    table = "step,reward,run\n2,1,\n2,1,r"
    assert [line.effect for line in read(bank, table).lines] == [Effect.BAD, Effect.NEW]
    assert [line.effect for line in read(bank, table, default_run="r").lines] == [Effect.DOUBLED, Effect.NEW]
    with pytest.raises(UnknownRun):
        read(bank, table, default_run="nobody")


def test_of_lines_about_one_step_by_one_rater_the_last_good_one_counts(bank: MemoryBank) -> None:
    file = read(bank, "step,reward,rater\n2,1,ann\n2,0.5,bo\n2,-1, ann \n2,7,ann")
    assert [line.effect for line in file.lines] == [Effect.DOUBLED, Effect.NEW, Effect.NEW, Effect.BAD]
    assert file.lines[0].then == "line 4 counts instead"
    apply_rewards(bank, file)
    assert {rater: value for (_, _, rater), (value, _, _) in given_in(bank).items()} == {"ann": -1.0, "bo": 0.5}


def test_the_scale_of_the_run_bounds_its_rewards(bank: MemoryBank) -> None:
    bank.write.ratings.change_scales("r", RatingScales(thumbs_up=2.0), "ann")
    bank.write.ratings.rate(Rating("r", 3, 2.0, "ann"))
    assert read(bank, "step,reward\n2,2").lines[0].effect is Effect.NEW
    bank.write.ratings.change_scales("r", RatingScales(), "ann")
    assert [line.effect for line in read(bank, "step,reward\n2,2\n3,2").lines] == [Effect.BAD, Effect.SAME]


# --- how files are written elsewhere ----------------------------------------------------------------------------------


def test_semicolons_and_a_mark_at_the_beginning_are_recognised(shared: MemoryBank) -> None:
    table = '\ufeff"Step";Reward;Reason;\r\n2;1;right cup, wrong shelf;\r\n'
    (line,) = read(shared, table).lines
    assert line.rating == Rating("r", 2, 1.0, "ann", "right cup, wrong shelf")


def test_lines_are_numbered_as_an_editor_numbers_them(shared: MemoryBank) -> None:
    table = 'step,reward,reason\n\n2,1,"two\nlines"\n,,\n9,1,\n'
    assert [(line.number, line.effect) for line in read(shared, table).lines] == [(3, Effect.NEW), (6, Effect.BAD)]
    lines = read_rewards(b'\n{"step": 2, "reward": 1}\nno\n', "jsonl", shared, default_rater="ann").lines
    assert [(line.number, line.effect) for line in lines] == [(2, Effect.NEW), (3, Effect.BAD)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[1, 2]", "not a JSON object"),
        ('{"step": 2,', "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('{"step": 2, "reward": true}', "“reward”"),
        ('{"step": [2], "reward": 1}', "“step”"),
        ('{"step": 2, "reward": NaN}', "not a finite number"),
        ('{"step": 2, "reward": 1, "reason": "\\ud800"}', "“reason”"),
    ],
)
def test_a_broken_json_line_spoils_itself_only(shared: MemoryBank, line: str, says: str) -> None:
    text = f'{line}\n{{"step": 2, "reward": 0.5, "given": {{"stars": 4}}, "scale": "stars", "reason": null}}'
    bad, good = read_rewards(text.encode(), "jsonl", shared, default_rater="ann").lines
    assert says in bad.problem
    assert good.rating == Rating("r", 2, 0.5, "ann", "", {"scale": "stars", "stars": 4})


def test_a_line_that_is_not_utf8_spoils_itself_only(shared: MemoryBank) -> None:
    data = "step,reward,reason\n2,1,schön\n4,1,fine\n".encode("latin-1")
    bad, good = read_rewards(data, "csv", shared, default_rater="ann").lines
    assert "“reason”" in bad.problem
    assert good.effect is Effect.NEW


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "name the columns"),
        (b"step,reason\n2,x", "name the columns"),
        (b"step,reward,Step\n2,1,2", "two columns “step”"),
        (b"step_id,reward,step_id\nx,1,x", "two columns “step_id”"),
        (b'step,reward,reason\n2,1,fine\n3,1,"open\n4,1,x', "From line 3 on"),
        (b"step,reward,reason\n2,1," + b"x" * 200_000, "From line 2 on"),
        ("step,reward\n2,1".encode("utf-16"), "UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_a_sentence(shared: MemoryBank, data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        read_rewards(data, "csv", shared, default_rater="ann")
    assert "Nothing was saved" in str(refused.value)


def test_files_that_are_too_large_are_refused(shared: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="more than 20 MB"):
        read_rewards(b" " * 20_000_001, "jsonl", shared)
    monkeypatch.setattr(reward_files, "MOST_LINES", 2)
    assert len(read(shared, "step,reward\n2,1\n3,1\n\n").lines) == 2
    with pytest.raises(InputError, match="more than 2 lines"):
        read(shared, "step,reward\n2,1\n3,1\n4,1")


def test_the_suffix_of_a_path_says_its_kind(shared: MemoryBank, tmp_path: Path) -> None:
    (tmp_path / "a.CSV").write_text("step,reward\n2,1")
    (tmp_path / "a.jsonl").write_text('{"step": 2, "reward": 1}')
    one, other = (read_rewards(tmp_path / name, None, shared, "", "ann").lines for name in ("a.CSV", "a.jsonl"))
    assert one[0].rating == other[0].rating == Rating("r", 2, 1.0, "ann")
    with pytest.raises(InputError, match=r"\.csv or \.jsonl"):
        kind_of("a.xlsx")
    with pytest.raises(InputError, match="no file"):
        read_rewards(tmp_path / "none.csv", None, shared)


# --- giving them ------------------------------------------------------------------------------------------------------


def test_the_good_lines_are_one_action_that_the_importing_person_can_take_back(bank: MemoryBank) -> None:
    bank.write.ratings.rate(Rating("r", 3, 0.5, "bo", "so so"))
    before, q = given_in(bank), bank.utilities("r")
    file = read(bank, "step,reward,rater\n2,1,ann\n3,-1,bo\n4,-1,cy\n9,1,cy")
    events = apply_rewards(bank, file, by="ann")
    assert [(event.step, event.rater, event.value) for event in events] == [
        (2, "ann", 1.0), (3, "bo", -1.0), (4, "cy", -1.0),
    ]  # fmt: skip
    assert (len(bank.undo.done("ann")), len(bank.undo.done("cy"))) == (1, 0)
    bank.write.undo.undo("ann")
    assert given_in(bank) == before
    assert bank.utilities("r") == q


def test_rewards_in_the_name_of_others_are_for_those_who_may_manage(bank: MemoryBank) -> None:
    bank.write.people.assign("boss", Role.MANAGE, "boss")
    bank.write.people.assign("ann", Role.RATE, "boss")
    bank.write.people.assign("eve", Role.LOOK, "boss")
    own, others = read(bank, "step,reward\n2,1"), read(bank, "step,reward,rater\n2,-1,ann\n3,1,eve")
    events = bank.events()
    for file, person in ((own, "eve"), (others, "ann"), (others, "")):
        with pytest.raises(NotAllowed):
            apply_rewards(bank, file, by=person)
    assert bank.events() == events
    assert len(apply_rewards(bank, own, by="ann")) == 1
    assert {event.payload["by"] for event in apply_rewards(bank, others, by="boss")} == {"boss"}
