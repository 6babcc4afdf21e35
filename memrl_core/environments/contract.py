"""What every environment must keep, as checks for its author.

    from memrl_core.environments.contract import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_world_keeps_the_contract(check):
        check(lambda: MyWorld(), a_task)

A check raises `AssertionError` with a sentence. It needs no bank and no model: replies are made up.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any, NamedTuple, get_args

import numpy as np

from memrl_core.environments.base import Environment, StepResult
from memrl_core.environments.tasks import tasks_of_set
from memrl_core.errors import MemRLError
from memrl_core.guards import a_step, a_text, checked, read_again
from memrl_core.plugins import LONGEST, Breach
from memrl_core.prompting import CHOICE_MARK, CHOICES, MEMORY_HEADER, TASK_LINE, YOUR_TASK, offered
from memrl_core.records import Judgement, Outcome, Reply, Task, Turn

Make = Callable[[], Environment]
Answer = Callable[[str, int], str]
"""What is replied to an observation in a turn, counted from 0."""

MOST_VALUES, OTHERS, WORLDS = 24, 2, 4
"""Changes of what is hidden in a task that are tried, other tasks whose labels are put in, worlds of other seeds."""

ODD_REPLIES = {
    "nothing": "",
    "ten megabytes": "word " * 2_000_000,
    "control characters": "\0\a\b\x1b[2J\x7f\u202e\ud800\r\n\t",
    "what is not offered": "do what nobody can do",
}


class Played(NamedTuple):
    """An episode: all observations, the turns, and the environment's `info` at the end (empty without one)."""

    observations: tuple[str, ...]
    turns: tuple[Turn, ...]
    info: dict[str, Any]


def knows_its_task(make: Make, task: Task) -> None:
    """The task is for this environment, is JSON, and has no faults."""
    with closing(make()) as world:
        assert task.environment == world.name, f"The task is for “{task.environment[:80]}”, not for “{world.name}”."
        with checked("The task"):
            same = read_again(dict[str, Any], task.data, "its data") == task.data
        assert same, "Its data is not the same after it was JSON."
        faults = world.faults(task)
        assert faults == [], f"The task has faults: {' '.join(faults)[:1000]}"


def ends_within_its_turns(make: Make, task: Task) -> None:
    """Each turn has a text, a reward from 0 to 1, and two truths; the last one a verdict; whatever is replied."""
    with closing(make()) as world:
        for seed in range(3):
            played = play(world, task, seed, guesses(seed))
            assert played.info, f"Seed {seed}: after {world.max_turns} actions it has not ended."
        for what, reply in ODD_REPLIES.items():
            played = play(world, task, 0, _replies([reply]), what)
            assert played.info, f"After {world.max_turns} actions it has not ended; the first was {what}."


def plays_alike_from_the_same_seed(make: Make, task: Task) -> None:
    """The same task, seed and actions give the same observations, rewards and end, and leave the task as it is."""
    data = copy.deepcopy(dict(task.data))
    for seed in range(2):
        with closing(make()) as one, closing(make()) as other:
            first = play(one, task, seed, guesses(seed))
            for again in (play(other, task, seed, guesses(seed)), play(one, task, seed, guesses(seed))):
                assert again == first, f"Seed {seed}: two episodes differ {_where(first, again)}."
    assert task.data == data, "An episode changes the data of its task."


def begins_anew(make: Make, task: Task) -> None:
    """A new episode knows nothing of one that did not end, also after `close`, which can be called at any time."""
    with closing(make()) as fresh, closing(make()) as used:
        used.close()
        first = play(fresh, task, 1, guesses(1))
        for closes in (False, True):
            _replied(used, guesses(3)(_reset(used, task, 3), 0), "a guess")
            if closes:
                used.close()
                used.close()
            again = play(used, task, 1, guesses(1))
            after = "`close`" if closes else "an unfinished episode"
            assert again == first, f"After {after} the next one differs {_where(first, again)}."


def gives_no_answer_away(make: Make, task: Task) -> None:
    """Neither the verdict nor an experience holds what was expected, unless the model had read or said it."""
    for seed in range(3):
        with closing(make()) as world:
            played = play(world, task, seed, guesses(seed))
            judgement = played.info.get("judgement")
            if not isinstance(judgement, Judgement):
                continue
            answers = [turn.reply.text for turn in played.turns]
            known = "\n".join([world.instructions, task.intent, *played.observations, *answers])
            texts = {f"the experience of {o}": world.distil(task, played.turns, o) for o in get_args(Outcome)}
            for where, text in {"the verdict": played.info["verdict"], **texts}.items():
                away = _holds(text, judgement.expected) and not _holds(known, judgement.expected)
                assert not away, f"Seed {seed}: {where} gives away what was expected."


def distils_however_it_ended(make: Make, task: Task) -> None:
    """Every outcome, and an answer that was stopped, becomes a text that begins with the task."""
    with closing(make()) as world:
        played = play(world, task, 0, guesses(0))
        stopped = Turn(Reply("I was", stopped=True), "", 0.0, terminated=False, truncated=False)
        for outcome in get_args(Outcome):
            for turns in (played.turns, (*played.turns[:-1], stopped)):
                with checked(f"`distil`, after {outcome}"):
                    text = a_text("the experience", world.distil(task, turns, outcome))
                head = f"{TASK_LINE}{task.intent}".splitlines()[0]
                assert head in text.splitlines(), f"An experience of {outcome} has no line “{head[:80]}”."


def remembers_only_what_was_seen(make: Make, task: Task) -> None:
    """Episodes in which the agent read, did and saw the same become the same memory, byte for byte.

    What it could not see is changed: the task's family, every label and answer in its data, also into those of other
    tasks of the environment, and what the environment draws from its seed option.
    """
    with closing(make()) as world, closing(make()) as other:
        for seed in range(2):
            played = play(world, task, seed, guesses(seed))
            for name, hidden in islice(_with_something_else_hidden(world, task), MOST_VALUES):
                _must_remember_the_same(world, task, played, other, hidden, seed, name)
        for drawn in range(1, WORLDS) if world.seed_option else ():
            option, kind = world.seed_option, type(world)
            with closing(kind(**{option: 0})) as first, closing(kind(**{option: drawn})) as second:
                played = play(first, task, drawn, guesses(drawn))
                _must_remember_the_same(first, task, played, second, task, drawn, f"the option {option}")


def fits_the_layout(make: Make, task: Task) -> None:
    """What is offered stands at the end of an observation, and no line of it is a heading of the prompt."""
    with closing(make()) as world:
        with checked("What a model reads"):
            a_text("`instructions`", world.instructions)
        for observation in play(world, task, 0, guesses(0)).observations:
            broken = layout_breaks(observation)
            assert not broken, f"{broken}: “{observation[-200:]}”."


CHECKS: tuple[Callable[[Make, Task], None], ...] = (
    knows_its_task,
    ends_within_its_turns,
    plays_alike_from_the_same_seed,
    begins_anew,
    gives_no_answer_away,
    distils_however_it_ended,
    remembers_only_what_was_seen,
    fits_the_layout,
)
"""Every check of the contract; each takes a function that makes the environment, and a task."""


def play(world: Environment, task: Task, seed: int, answer: Answer, what: str = "a guess") -> Played:
    """An episode of at most `max_turns` actions. Raises `AssertionError` when anything but a turn comes of an action.

    `what` says in words what is replied.
    """
    observations = [_reset(world, task, seed)]
    turns: list[Turn] = []
    info: dict[str, Any] = {}
    while not info and len(turns) < world.max_turns:
        reply = answer(observations[-1], len(turns))
        observation, reward, terminated, truncated, info = _replied(world, reply, what)
        observations.append(observation)
        turns.append(Turn(Reply(reply), observation, reward, terminated, truncated))
    return Played(tuple(observations), tuple(turns), info)


def guesses(seed: int) -> Answer:
    """Replies with one of the lines that are offered, as the seed decides; with a few words where none is."""
    rng = np.random.default_rng(seed)

    def guess(observation: str, turn: int) -> str:
        choices = offered(observation)
        return choices[int(rng.integers(len(choices)))] if choices else f"answer {int(rng.integers(100))}"

    return guess


def layout_breaks(observation: str) -> str:
    """What keeps an observation from being read as `memrl_core.prompting` lays it out; empty when nothing does."""
    lines = observation.splitlines()
    header = MEMORY_HEADER.partition("{")[0]
    if any(line == YOUR_TASK or line.startswith(header) for line in lines):
        return "A line of it is a heading of the prompt"
    if CHOICES not in lines:
        return ""
    listed = lines[len(lines) - lines[::-1].index(CHOICES) :]
    offers = [line for line in listed if line.startswith(CHOICE_MARK) and line.removeprefix(CHOICE_MARK).strip()]
    return "" if listed and offers == listed else f"Under “{CHOICES}” stand lines that offer nothing"


def _with_something_else_hidden(world: Environment, task: Task) -> Iterator[tuple[str, Task]]:
    """The task with something else where an agent cannot look, and the name of that place."""
    yield "the family", replace(task, family=f"{task.family}x")
    others = [other.data for other in _others(world) if other.data != task.data][:OTHERS]
    for key, value in task.data.items():
        known = [data[key] for data in others if data.get(key) not in (None, value)]
        made = [f"{value}x"] if isinstance(value, str) else [value + 1] if isinstance(value, int | float) else []
        for another in (*known, *made):
            yield f"“{key}”", replace(task, data={**copy.deepcopy(dict(task.data)), key: another})
    for data in others:
        yield "its data", replace(task, data=data)


def _others(world: Environment) -> list[Task]:
    """Tasks of the first set of an environment, evenly taken; none where it has none or cannot make them."""
    for make in (tasks_of_set, type(world).make_tasks):
        with suppress(MemRLError, IndexError):
            tasks = make(world.sets[0])
            return tasks[:: max(1, len(tasks) // (2 * OTHERS))]
    return []


def _must_remember_the_same(
    world: Environment, task: Task, played: Played, other: Environment, hidden: Task, seed: int, name: str
) -> None:
    """Raises `AssertionError` with the label and the memory where an episode of `hidden` that looks as the one of
    `task` is remembered otherwise.
    """
    try:
        seen = play(other, hidden, seed, _replies([turn.reply.text for turn in played.turns]))
    except AssertionError:
        return  # The environment does not take this value.
    if seen[:2] != played[:2]:
        return
    for outcome in get_args(Outcome):
        with checked(f"`distil`, after {outcome}, with another {name}"):
            texts = [world.distil(task, played.turns, outcome), other.distil(hidden, seen.turns, outcome)]
        line = next((a for a, b in zip_longest(*map(str.splitlines, texts)) if a != b), "") or ""
        assert texts[0] == texts[1], (
            f"Seed {seed}: the memory of {outcome} depends on {name}, which no action revealed: “{line[:200]}”."
        )


def _replies(replies: Sequence[str]) -> Answer:
    return lambda _, turn: replies[turn] if turn < len(replies) else ""


def _reset(world: Environment, task: Task, seed: int) -> str:
    with checked("`reset`"):
        return _short(a_text("the observation", world.reset(task, seed=seed, at_step=1), blank=True))


def _replied(world: Environment, reply: str, what: str) -> StepResult:
    with checked(f"`step`, when the reply is {what}"):
        given = world.step(reply)
        step = a_step(given)
        _short(given[0])
        return step


def _short(observation: str) -> str:
    if len(observation) > LONGEST:
        raise Breach(f"the observation has {len(observation):,} characters; at most {LONGEST:,} are kept")
    return observation


def _where(first: Played, again: Played) -> str:
    if first.observations[0] != again.observations[0]:
        return "at the first observation"
    turns = enumerate(zip(first.turns, again.turns, strict=False), start=1)
    return next((f"in turn {number}" for number, (one, other) in turns if one != other), "at the end")


def _holds(text: str, part: str) -> bool:
    """Whether a text has a part as words of its own; case and spaces do not count."""
    wanted, within = (" ".join(one.casefold().split()) for one in (part, text))
    return bool(wanted) and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", within) is not None
