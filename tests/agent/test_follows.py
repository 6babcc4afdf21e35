"""Which memories an answer follows, against transcripts written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from memrl_core.agent.follows import follows_of
from memrl_core.policies import make_policy
from memrl_core.prompting import first_messages
from memrl_core.records import Follows, GenerateRecord, Judgement, Memory, Outcome, Reply, Task, Turn
from tests.policies.pools import a_pool, by_template

DOOR = Task("t", "The door outside sticks today.", "helpdesk", "door")
HEAT = Task("t", "put a hot egg on the counter", "household", "heat")


def _memory(name: str, experience: str, outcome: Outcome = "success") -> Memory:
    return Memory(name, name, experience, outcome, name, (), "r", 1, "t", "")


def _message(name: str, team: str, outcome: Outcome = "success") -> Memory:
    steps = f"Steps that worked:\n> {team}" if outcome == "success" else f"What went wrong: no.\nAvoid:\n> {team}"
    return _memory(name, f"Task: A message about {name}.\n{steps}\n", outcome)


def _script(name: str, intent: str, actions: Sequence[str]) -> Memory:
    return _memory(name, f"Task: {intent}\nSteps that worked:\n" + "".join(f"> {action}\n" for action in actions))


def _answered(task: Task, memories: Sequence[Memory], *answers: str, offered: bool | None = True) -> GenerateRecord:
    messages, spans = first_messages("Answer.", memories, task.intent, "You can:\n- Red\n- Blue")
    turns = tuple(Turn(Reply(answer, offered=offered), "", 0.0, False, False) for answer in answers)
    return GenerateRecord("model", False, {}, messages, spans, turns)


RED, BLUE, NOT_RED = _message("a", "Red"), _message("b", "Blue"), _message("c", "Red", "failure")
TRY_BLUE = _memory("d", "Task: x\nWhat went wrong: no.\nAvoid:\n> Red\nTry instead:\n> Blue\n", "failure")


@pytest.mark.parametrize(
    ("memories", "answer", "followed"),
    [
        ([RED, BLUE], "Red", ("a",)),
        ([RED, BLUE, _message("e", "Red")], "Red", ("a", "e")),
        ([RED, BLUE], "Green", ()),
        ([NOT_RED], "Red", None),
        ([NOT_RED, BLUE], "Red", ()),
        ([TRY_BLUE], "Blue", ("d",)),
        ([TRY_BLUE], "Red", ()),
        ([], "Red", ()),
    ],
)
def test_an_answer_follows_the_memories_that_show_it_and_not_those_that_warn_of_it(
    memories: list[Memory], answer: str, followed: tuple[str, ...] | None
) -> None:
    found = follows_of(DOOR, _answered(DOOR, memories, answer))
    assert (found and found.memories) == followed


@pytest.mark.parametrize(
    ("memories", "answer", "at_hand", "taken"),
    [
        ([RED, BLUE], "Blue", True, True),
        ([RED, BLUE], "Red", True, False),
        ([RED], "Blue", False, False),
        ([RED], "Red", False, False),
        ([], "Blue", False, False),
    ],
)
def test_what_was_right_is_at_hand_only_where_a_memory_of_the_prompt_shows_it(
    memories: list[Memory], answer: str, at_hand: bool, taken: bool
) -> None:
    found = follows_of(DOOR, _answered(DOOR, memories, answer), Judgement("Blue", answer, ""))
    assert found is not None and (found.at_hand, found.taken) == (at_hand, taken)


@pytest.mark.parametrize(
    ("actions", "followed"),
    [
        (["take egg from fridge", "heat egg with stove", "put egg on counter"], True),
        (["search drawer", "heat egg with stove", "put egg on counter"], True),
        (["take egg from fridge", "heat egg with microwave", "put egg on counter"], False),
        (["heat egg with stove", "search drawer", "take egg from fridge"], False),
    ],
)
def test_a_script_is_followed_where_two_of_its_actions_are_taken_in_a_row(actions: list[str], followed: bool) -> None:
    steps = ["take potato from drawer", "heat potato with stove", "put potato on desk"]
    memory = _script("m", "put a hot potato on the desk", steps)
    found = follows_of(HEAT, _answered(HEAT, [memory], *actions))
    assert found is not None and bool(found.memories) is followed


def test_an_answer_off_the_list_counts_for_nothing_and_free_text_is_not_known() -> None:
    assert follows_of(DOOR, _answered(DOOR, [RED], "Red", offered=False)) == Follows(())
    assert follows_of(DOOR, _answered(DOOR, [RED], "Red", offered=None)) is None
    assert follows_of(DOOR, None) is None


@pytest.mark.parametrize(
    ("settings", "follows", "credited"),
    [
        ({}, Follows(("m1",)), ("m0", "m1", "m2")),
        ({"credit": "followed"}, Follows(("m1",)), ("m1",)),
        ({"credit": "followed"}, Follows(()), ()),
        ({"credit": "followed", "unfollowed": "all"}, Follows(()), ("m0", "m1", "m2")),
        ({"credit": "followed"}, None, ("m0", "m1", "m2")),
    ],
)
def test_credit_goes_to_the_prompt_or_to_what_was_followed(
    settings: dict[str, str], follows: Follows | None, credited: tuple[str, ...]
) -> None:
    policy = make_policy("memrl", settings)
    decision = by_template("memrl", a_pool(("success", 0.9)))
    assert policy.credited(replace(decision, selected=("m0", "m1", "m2")), follows) == credited
    assert policy.spec.variant == ("paper" if not settings else "adapted")
