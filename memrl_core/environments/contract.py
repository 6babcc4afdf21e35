"""What every environment must keep, as checks that the author of one can run.

    from memrl_core.environments.contract import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_world_keeps_the_contract(check):
        check(lambda: MyWorld(), a_task)

A check raises `AssertionError` with a sentence. It needs no bank and no model: replies are made up.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any, get_args

import numpy as np

from memrl_core.environments.base import Environment
from memrl_core.environments.guard import Step, a_count, a_step, a_text, as_json
from memrl_core.environments.tasks import tasks_of_set
from memrl_core.errors import MemRLError
from memrl_core.plugins import LONGEST, Breach, words_of
from memrl_core.prompting import CHOICE_MARK, CHOICES, MEMORY_HEADER, TASK_LINE, YOUR_TASK, offered
from memrl_core.records import Judgement, Outcome, Reply, Task, Turn

Make = Callable[[], Environment]
Answer = Callable[[str, int], str]
"""What is replied to an observation in a turn, counted from 0."""

MOST_VALUES, OTHERS, WORLDS = 24, 4, 4
"""Changes of what is hidden in a task that are tried, other tasks whose labels are put in, worlds of other seeds."""

SECONDS = 10.0
"""For the changes of one task and seed: engines take seconds for an episode."""

ODD_REPLIES = {
    "nothing": "",
    "ten megabytes": "word " * 2_000_000,
    "control characters": "\0\a\b\x1b[2J\x7f\u202e\ud800\r\n\t",
    "what is not offered": "do what nobody can do",
}


@dataclass(frozen=True, slots=True)
class Played:
    """An episode: the first observation, the turns, and the environment's `info` at the end (empty without one)."""

    first: str
    turns: tuple[Turn, ...]
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether it came to an end."""
        return bool(self.info)

    @property
    def observations(self) -> tuple[str, ...]:
        """All of them, the first one too."""
        return (self.first, *(turn.observation for turn in self.turns))


def plays_alike_from_the_same_seed(make: Make, task: Task) -> None:
    """The same task, seed and actions give the same observations, rewards and end, in one world and in two."""
    for seed in range(2):
        with closing(make()) as one, closing(make()) as other:
            first = play(one, task, seed, guesses(seed))
            for again in (play(other, task, seed, guesses(seed)), play(one, task, seed, guesses(seed))):
                assert again == first, f"Seed {seed}: two episodes differ {_where(first, again)}."


def ends_whatever_is_replied(make: Make, task: Task) -> None:
    """It ends within `max_turns` actions, and what it says stays short, whatever a model replies."""
    with closing(make()) as world:
        for what, reply in ODD_REPLIES.items():
            played = play(world, task, 0, _odd(reply), what)
            assert played.ended, f"After {world.max_turns} actions it has not ended; the first was {what}."


def gives_whole_turns(make: Make, task: Task) -> None:
    """Each turn has a text, a reward from 0 to 1, and two truths; the last one a verdict and how it was judged."""
    for seed in range(3):
        with closing(make()) as world:
            played = play(world, task, seed, guesses(seed))
            assert played.ended, f"Seed {seed}: after {world.max_turns} actions it has not ended."


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


def begins_anew_after_an_unfinished_episode(make: Make, task: Task) -> None:
    """A new episode knows nothing of one that did not end."""
    with closing(make()) as fresh, closing(make()) as used:
        first = play(fresh, task, 1, guesses(1))
        _reset(used, task, 2)
        _stepped(used, guesses(3)(_reset(used, task, 3), 0), "a guess")
        again = play(used, task, 1, guesses(1))
        assert again == first, f"After an unfinished episode the next one differs {_where(first, again)}."


def works_again_after_it_was_closed(make: Make, task: Task) -> None:
    """`close` can be called at any time, and twice; then it can be reset."""
    with closing(make()) as world:
        world.close()
        first = play(world, task, 1, guesses(1))
        world.close()
        world.close()
        _reset(world, task, 2)
        world.close()
        again = play(world, task, 1, guesses(1))
        assert again == first, f"After `close` an episode differs {_where(first, again)}."


def distils_however_it_ended(make: Make, task: Task) -> None:
    """Every outcome, and an answer that was stopped, becomes a text that begins with the task."""
    with closing(make()) as world:
        played = play(world, task, 0, guesses(0))
        stopped = Turn(Reply("I was", stopped=True), "", 0.0, terminated=False, truncated=False)
        for outcome in get_args(Outcome):
            for turns in (played.turns, (*played.turns[:-1], stopped)):
                with _in(f"`distil`, after {outcome}"):
                    text = a_text("the experience", world.distil(task, turns, outcome))
                head = f"{TASK_LINE}{task.intent}".splitlines()[0]
                assert head in text.splitlines(), f"An experience of {outcome} has no line “{head[:80]}”."


def remembers_only_what_was_seen(make: Make, task: Task) -> None:
    """Episodes in which the agent read, did and saw the same become the same memory, byte for byte.

    What it could not see is changed: the task's family, every label and answer in its data, also into those of other
    tasks of the environment, and what the environment draws from its seed option.
    """
    with closing(make()) as world, closing(make()) as other:
        hidden = list(islice(_with_something_else_hidden(world, task), MOST_VALUES))
        for seed in range(2):
            played = play(world, task, seed, guesses(seed))
            until = time.monotonic() + SECONDS
            for name, one in hidden:
                _must_remember_the_same(world, task, played, other, one, seed, name)
                if time.monotonic() > until:
                    break
        if option := world.seed_option:
            for drawn in range(1, WORLDS):
                with closing(type(world)(**{option: 0})) as first, closing(type(world)(**{option: drawn})) as second:
                    played = play(first, task, drawn, guesses(drawn))
                    _must_remember_the_same(first, task, played, second, task, drawn, f"the option {option}")


def _must_remember_the_same(
    world: Environment, task: Task, played: Played, other: Environment, hidden: Task, seed: int, name: str
) -> None:
    """Raises `AssertionError` with the label and the memory where an episode of `hidden` that looks as the one of
    `task` is remembered otherwise.
    """
    try:
        seen = play(other, hidden, seed, _the_same([turn.reply.text for turn in played.turns]))
    except AssertionError:
        return  # The environment does not take this value.
    if (seen.first, seen.turns) != (played.first, played.turns):
        return
    for outcome in get_args(Outcome):
        with _in(f"`distil`, after {outcome}, with another {name}"):
            texts = [other.distil(hidden, seen.turns, outcome), world.distil(task, played.turns, outcome)]
        line = next((a for a, b in zip_longest(*(text.splitlines() for text in texts[::-1])) if a != b), "")
        assert texts[0] == texts[1], (
            f"Seed {seed}: the memory of {outcome} depends on {name}, which no action revealed: “{(line or '')[:200]}”."
        )


def _with_something_else_hidden(world: Environment, task: Task) -> Iterator[tuple[str, Task]]:
    """The task with something else where an agent cannot look, and the name of that place: the shallow ones first."""
    yield "the family", replace(task, family=f"{task.family}x")
    others = [other for other in _others(world) if other.data != task.data][:OTHERS]
    for path, value in sorted(_leaves(task.data), key=lambda leaf: len(leaf[0])):
        known = [found for other in others if (found := _at(other.data, path)) not in (None, value)]
        made = f"{value}x" if isinstance(value, str) else value + 1
        for another in [*dict.fromkeys(one for one in known if isinstance(one, (str, int, float))), made]:
            data: Any = copy.deepcopy(dict(task.data))
            *way, last = path
            within = data
            for key in way:
                within = within[key]
            within[last] = another
            yield f"“{'.'.join(map(str, path))}”", replace(task, data=data)
    for other in others:
        yield "its data", replace(task, data=other.data)


def _others(world: Environment) -> list[Task]:
    """Tasks of the first set of an environment, evenly taken; none where it has none or cannot make them."""
    for make in (tasks_of_set, type(world).make_tasks):
        with suppress(MemRLError, IndexError):
            found = make(world.sets[0])
            return found[:: max(1, len(found) // OTHERS)]
    return []


def _at(data: Any, path: Sequence[Any]) -> Any:
    """What stands at a place within JSON; None where there is no such place."""
    for key in path:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return None
    return data


def _leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str | int | float]]:
    """Every text and number within JSON, and where it stands."""
    if isinstance(data, (str, int, float)) and not isinstance(data, bool):
        yield path, data
    elif isinstance(data, (Mapping, list, tuple)):
        for key in data if isinstance(data, Mapping) else range(len(data)):
            yield from _leaves(data[key], (*path, key))


def fits_the_layout(make: Make, task: Task) -> None:
    """What is offered stands at the end of an observation, and no line of it is a heading of the prompt."""
    with closing(make()) as world:
        with _in("What a model reads"):
            a_text("`instructions`", world.instructions)
        for observation in play(world, task, 0, guesses(0)).observations:
            broken = layout_breaks(observation)
            assert not broken, f"{broken}: “{observation[-200:]}”."


def knows_its_task(make: Make, task: Task) -> None:
    """The task is for this environment, is JSON, and has no faults."""
    with closing(make()) as world:
        assert task.environment == world.name, f"The task is for “{task.environment[:80]}”, not for “{world.name}”."
        with _in("The task"):
            as_json("its data", task.data)
        faults = world.faults(task)
        assert faults == [], f"The task has faults: {' '.join(faults)[:1000]}"


CHECKS: tuple[Callable[[Make, Task], None], ...] = (
    knows_its_task,
    gives_whole_turns,
    plays_alike_from_the_same_seed,
    ends_whatever_is_replied,
    gives_no_answer_away,
    begins_anew_after_an_unfinished_episode,
    works_again_after_it_was_closed,
    distils_however_it_ended,
    remembers_only_what_was_seen,
    fits_the_layout,
)
"""Every check of the contract; each takes a function that makes the environment, and a task."""


def play(world: Environment, task: Task, seed: int, answer: Answer, what: str = "a guess") -> Played:
    """An episode of at most `max_turns` actions. Raises `AssertionError` when anything but a turn comes of an action.

    `what` says in words what is replied.
    """
    first = observation = _reset(world, task, seed)
    turns: list[Turn] = []
    while len(turns) < a_count("`max_turns`", world.max_turns):
        reply = answer(observation, len(turns))
        observation, reward, terminated, truncated, info = _stepped(world, reply, what)
        turns.append(Turn(Reply(reply), observation, reward, terminated, truncated))
        if terminated or truncated:
            return Played(first, tuple(turns), info)
    return Played(first, tuple(turns), {})


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


@contextmanager
def _in(what: str) -> Iterator[None]:
    """Within it, what fails or breaks the contract does so as an `AssertionError`."""
    try:
        yield
    except Breach as breach:
        raise AssertionError(f"{what}: {breach}.") from None
    except Exception as error:
        raise AssertionError(f"{what}: {words_of(error)}.") from error


def _odd(reply: str) -> Answer:
    return lambda observation, turn: reply if turn == 0 else ""


def _the_same(answers: Sequence[str]) -> Answer:
    return lambda observation, turn: answers[turn] if turn < len(answers) else ""


def _reset(world: Environment, task: Task, seed: int) -> str:
    with _in("`reset`"):
        return _short(a_text("the observation", world.reset(task, seed=seed, at_step=1), blank=True))


def _stepped(world: Environment, reply: str, what: str) -> Step:
    with _in(f"`step`, when the reply is {what}"):
        given = world.step(reply)
        step = a_step(given)
        _short(given[0])
        return step


def _short(observation: str) -> str:
    if len(observation) > LONGEST:
        raise Breach(f"the observation has {len(observation):,} characters; at most {LONGEST:,} are kept")
    return observation


def _where(first: Played, again: Played) -> str:
    if first.first != again.first:
        return "at the first observation"
    turns = enumerate(zip(first.turns, again.turns, strict=False), start=1)
    return next((f"in turn {number}" for number, (one, other) in turns if one != other), "at the end")


def _holds(text: str, part: str) -> bool:
    """Whether a text has a part as words of its own; case and spaces do not count."""
    wanted, within = (" ".join(one.casefold().split()) for one in (part, text))
    return bool(wanted) and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", within) is not None
