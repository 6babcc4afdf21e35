"""A small text household: find an object, perhaps treat it with an appliance, and put it where it belongs.

In the spirit of ALFWorld's six task families (place, examine in light, clean, heat, cool, place two); own world, words
and rules. Every treatment can be done with two appliances of unequal, hidden reliability, in an order that changes from
episode to episode: one that fails ruins the object and ends the episode. Which of the two is the reliable one is drawn
from the number of the house. Nothing knows which memory, if any, was used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from memrl_core.environments.base import (
    Environment,
    EnvironmentSpec,
    StepResult,
    TurnsOptions,
    choices_listed,
    last_step,
    layout,
    script,
    spoken,
    steps_of_change,
)
from memrl_core.errors import InputError
from memrl_core.prompting import ANSWER_MARK, STEPS_THAT_WORKED, TASK_LINE, offered
from memrl_core.records import Outcome, RewardSource, Task, Turn

TREATMENTS: Mapping[str, Mapping[str, float]] = {
    "heat": {"microwave": 0.5, "stove": 0.95},
    "clean": {"dishwasher": 0.5, "sink": 0.95},
    "cool": {"fridge": 0.5, "freezer": 0.95},
    "light": {"desk lamp": 0.5, "floor lamp": 0.95},
}
"""Treatment to appliance to the chance that it works in house 0. Never shown to an agent."""

VERBS = {"heat": "heat", "clean": "clean", "cool": "cool", "light": "examine"}
OPEN_PLACES = ("counter", "table", "desk", "shelf")
CLOSED_PLACES = ("cabinet", "drawer", "basket", "pantry")
PLACES = OPEN_PLACES + CLOSED_PLACES
RUINED = " is ruined"
MISLEADING_LINES = 12
"""More than an episode has turns, so that none is left for anything else."""
GOAL_FAMILIES = ("place", "examine", "clean", "heat", "cool", "place two")

HANDBOOK_THINGS = {"vase": "table", "jug": "cabinet", "pie": "pantry", "scarf": "drawer", "pear": "basket"}
"""Things of the handbook's cases, none of which is in a task, and where they are."""
HANDBOOK_CASES: Mapping[str, tuple[str, str]] = {
    "place": ("put the {o} on the {t}", ""),
    "examine": ("look at the {o} in good light", "light"),
    "clean": ("put a clean {o} on the {t}", "clean"),
    "heat": ("put a hot {o} on the {t}", "heat"),
    "cool": ("put a cold {o} on the {t}", "cool"),
    "place two": ("put two {o}s on the {t}", ""),
}
"""Family to what such a task is called in the handbook, and the treatment it needs."""

INSTRUCTIONS = (
    "You act in a household. Each turn you see what happened and what you can do. "
    "Answer with exactly one of the lines offered, without the dash. "
    "If memories of earlier tasks are given, use them."
)


class HouseholdOptions(TurnsOptions):
    """What can change in the household."""

    house: int = Field(
        0,
        ge=0,
        title="House",
        description="Which appliance of a pair is the reliable one is drawn from this number; where nobody chose, it "
        "is the run's seed.",
    )
    handbook: int = Field(
        0,
        ge=0,
        le=len(HANDBOOK_THINGS),
        title="Cases of a handbook",
        description="For each family of tasks, that many solved cases with other things are written into the memory "
        "before the first step; 0: the memory begins empty.",
    )
    stale: float = Field(
        0.4, ge=0, le=1, title="Stale share", description="Of these cases, that much uses the less reliable appliance."
    )
    shift_at: int | list[int] = Field(
        0,
        title="The world changes at step",
        description="From this step on the appliances' hidden reliabilities are swapped; 0 leaves the world as it is.",
    )


class Household(Environment):
    """The household world; `HouseholdOptions` says what its arguments mean.

    From each step of `shift_at` on the reliabilities of a pair are swapped; a second shift swaps them back.
    """

    name = "household"
    spec = EnvironmentSpec(
        title="Household",
        idea="Find an object, perhaps heat, clean, cool or light it, and put it where it belongs. For every treatment "
        "there are two appliances of unequal, hidden reliability, so what worked once need not be what works best.",
        judged="By the world itself: 1 when the object lies where it should, treated as it should; 0 when an appliance "
        "ruined it or the turns ran out.",
        source="Written for this program; no model is needed, and the true chances are known.",
        answer_tokens=32,
    )
    Options = HouseholdOptions
    sets = ("household-train", "household-heldout", "household-demo")
    seed_option = "house"
    reward_source: RewardSource = "environment"
    instructions = INSTRUCTIONS
    max_turns = 10

    @classmethod
    def kind_of(cls, intent: str, task: Task | None) -> str:
        """The family of a task, or that of a case of the handbook."""
        return _family_in_handbook(intent) if task is None else task.family

    @classmethod
    def misleading(cls, task: Task) -> str:
        """A script that carries the object to and fro between wrong places until no turn is left."""
        try:
            thing, target = str(task.data["object"]), str(task.data["target"])
            where = str(task.data["things"][thing])
        except (KeyError, TypeError):
            return ""
        wrong = [place for place in OPEN_PLACES if place not in (target, where)]
        lines = [] if where in OPEN_PLACES else [f"search {where}"]
        lines.append(f"take {thing} from {where}")
        for turn in range(MISLEADING_LINES):
            place = wrong[turn % len(wrong)]
            lines += [f"put {thing} on {place}", f"take {thing} from {place}"]
        steps = "\n".join(ANSWER_MARK + line for line in lines[:MISLEADING_LINES])
        return f"{TASK_LINE}{task.intent}\n{STEPS_THAT_WORKED}\n{steps}\n"

    def __init__(self, **chosen: Any) -> None:
        options = self._options = HouseholdOptions(**chosen)
        self.shifts = tuple(steps_of_change(options.shift_at))
        rng = np.random.default_rng([options.house, 0])
        self._swapped = {treatment: bool(options.house) and bool(rng.random() < 0.5) for treatment in TREATMENTS}
        self._object = self._target = self._treatment = self._holding = ""
        self._wanted = self._delivered = self._turns = self._at_step = 0
        self._where: dict[str, str] = {}
        self._appliances: dict[str, list[str]] = {}
        self._searched: list[str] = []
        self._treated, self._ended = False, True

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`. Raises `InputError` when the task is not one of this household."""
        try:
            self._object = str(task.data["object"])
            self._target = str(task.data["target"])
            self._treatment = str(task.data.get("treatment", ""))
            self._wanted = int(task.data.get("count", 1))
            self._where = {str(thing): str(place) for thing, place in dict(task.data["things"]).items()}
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InputError(f"Task {task.id[:80]} is not a household task. Choose tasks of the household.") from None
        self._rng = np.random.default_rng(seed)
        # What is offered first must say nothing about which of a pair is reliable.
        order = np.random.default_rng([seed, 1])
        self._appliances = {t: [list(pair)[i] for i in order.permutation(len(pair))] for t, pair in TREATMENTS.items()}
        self._at_step = at_step
        self._searched = list(OPEN_PLACES)
        self._holding = ""
        self._treated = not self._treatment
        self._delivered = 0
        self._turns = 0
        self._ended = False
        seen = "; ".join(f"on the {place}: {', '.join(self._on(place)) or 'nothing'}" for place in OPEN_PLACES)
        return self._described(f"You see, {seen}. Closed: {', '.join(CLOSED_PLACES)}. Your hands are empty.")

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task, a sentence each: what it lacks, and what nobody could reach or do."""
        world = cls()
        try:
            world.reset(task, seed=0, at_step=1)
        except InputError:
            return ["It is not a household task: its data holds object, target and things (thing to place)."]
        return list(world._faults())

    def _faults(self) -> Iterator[str]:
        if self._target not in OPEN_PLACES:
            yield f"Nothing can be put on “{self._target[:80]}”; target is one of {', '.join(OPEN_PLACES)}."
        if self._treatment and self._treatment not in TREATMENTS:
            yield f"There is no treatment “{self._treatment[:80]}”; known: {', '.join(TREATMENTS)}."
        for thing, place in self._where.items():
            if place not in PLACES:
                yield f"{thing[:80]} is in “{place[:80]}”, where nobody can look; places are {', '.join(PLACES)}."
        if self._wanted < 1:
            yield "count is at least 1."
        there = sum(_kind(thing) == self._object for thing in self._where)
        if there < self._wanted:
            yield f"It asks for {self._wanted:,} of “{self._object[:80]}”, and there are {there}."

    def reliability(self, treatment: str, appliance: str, at_step: int) -> float:
        """The true chance that `appliance` works at `at_step`: for studies, never for an agent."""
        pair = TREATMENTS[treatment]
        swaps = self._swapped[treatment] + sum(at_step >= shift for shift in self.shifts)
        if swaps % 2 == 0:
            return pair[appliance]
        other = next(name for name in pair if name != appliance)
        return pair[other]

    def works(self, treatment: str, appliance: str) -> bool:
        """Draw whether `appliance` works this time; a study of chances may decide it in another way."""
        return bool(self._rng.random() < self.reliability(treatment, appliance, self._at_step))

    def step(self, action: str) -> StepResult:
        """Do one action. What is not offered costs a turn and changes nothing."""
        if self._ended:
            raise InputError("This episode has ended. Begin the next task.")
        self._turns += 1
        chosen = spoken(action)
        if chosen not in self._choices():
            response, ruined = f"You cannot do “{chosen[:80]}” here.", False
        else:
            response, ruined = self._done(chosen)
        solved = self._delivered == self._wanted and not ruined
        self._ended = ruined or solved or self._turns >= self.max_turns
        if ruined:
            return last_step(response, f"Failed: {response}", False)
        if solved:
            return last_step(response, f"Solved in {self._turns} turns.", True)
        if self._ended:
            return last_step(response, f"Failed: not done after {self._turns} turns.", False, truncated=True)
        return self._described(response), 0.0, False, False, {}

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The actions that mattered, or what went wrong and what to try instead: of what was read, seen and done only.

        The task's data is hidden from the agent, so it is hidden from what the agent remembers too.
        """
        done = [(spoken(turn.reply.text), turn.observation) for turn in turns if not turn.reply.stopped]
        if not done:
            return layout(task.intent, turns, outcome)
        acted = [action for action, _ in done]
        wanted = _wanted(task.intent, done)
        kept = _that_mattered(wanted, done)
        if outcome != "failure":
            return script(task.intent, outcome, kept or acted)
        last = done[-1][1].partition("\n")[0] or "It was not done in time."
        ruined = [acted[-1]] if RUINED in last else []
        searched = [action for action in acted if action.startswith("search ") and action not in kept]
        better = _better_script(task.intent, wanted, done) if wanted else []
        return script(task.intent, outcome, better, wrong=last, avoid=ruined or searched)

    def first_memories(self) -> list[tuple[str, str]]:
        """The handbook: solved cases of every family, with things that are in no task; a share of them stale."""
        written = []
        rng = np.random.default_rng([self._options.house, 2])
        for intent, treatment in HANDBOOK_CASES.values():
            places = list(rng.permutation(OPEN_PLACES))
            stale = round(self._options.stale * self._options.handbook)
            for number, (thing, place) in enumerate(list(HANDBOOK_THINGS.items())[: self._options.handbook]):
                target = next(known for known in [places[number % len(places)], *places] if known != place)
                steps = [f"search {place}"] if place in CLOSED_PLACES else []
                fetch, put = f"take {thing} from {place}", f"put {thing} on {target}"
                steps.append(fetch)
                if treatment:
                    by_reliability = sorted(TREATMENTS[treatment], key=lambda a: self.reliability(treatment, a, 0))
                    steps.append(f"{VERBS[treatment]} {thing} with {by_reliability[number >= stale]}")
                if treatment != "light":
                    steps.append(put)
                if "two" in intent:
                    steps += [fetch, put]
                called = intent.format(o=thing, t=target)
                written.append((called, script(called, "success", steps)))
        return [written[position] for position in rng.permutation(len(written))]

    def _choices(self) -> list[str]:
        offered = [f"search {place}" for place in PLACES if place not in self._searched]
        if not self._holding:
            offered += [
                f"take {_kind(thing)} from {place}" for thing, place in self._where.items() if place in self._searched
            ]
            return list(dict.fromkeys(offered))
        thing = _kind(self._holding)
        if not self._treated:
            offered += [f"{VERBS[t]} {thing} with {a}" for t, pair in self._appliances.items() for a in pair]
        offered += [f"put {thing} on {place}" for place in OPEN_PLACES]
        return offered

    def _on(self, place: str) -> list[str]:
        return [_kind(thing) for thing, where in self._where.items() if where == place]

    def _done(self, action: str) -> tuple[str, bool]:
        verb, _, rest = action.partition(" ")
        if verb == "search":
            self._searched.append(rest)
            found = self._on(rest)
            return (f"In the {rest} you find: {', '.join(found)}." if found else f"The {rest} is empty."), False
        if verb == "take":
            kind, _, place = rest.partition(" from ")
            self._holding = next(t for t, p in self._where.items() if _kind(t) == kind and p == place)
            del self._where[self._holding]
            return f"You hold the {kind}.", False
        if verb == "put":
            kind, _, place = rest.partition(" on ")
            right = kind == self._object and place == self._target and self._treated
            self._delivered += right
            if not right:
                self._where[self._holding] = place
            self._holding = ""
            return f"You put the {kind} on the {place}.", False
        return self._treat(verb, rest)

    def _treat(self, verb: str, rest: str) -> tuple[str, bool]:
        kind, _, appliance = rest.partition(" with ")
        treatment = next(name for name, word in VERBS.items() if word == verb)
        if not self.works(treatment, appliance):
            return f"The {appliance} fails and the {kind}{RUINED}.", True
        if kind == self._object and treatment == self._treatment:
            self._treated = True
            if treatment == "light":
                self._delivered = self._wanted
        return f"The {appliance} works: {verb} {kind} is done.", False

    def _described(self, response: str) -> str:
        return f"{response}\n{choices_listed(self._choices())}"


def _family_in_handbook(intent: str) -> str:
    """The family of a case of the handbook; "" for another text."""
    for family, (called, _) in HANDBOOK_CASES.items():
        before, _, rest = called.partition("{o}")
        pattern = re.escape(before) + r"\w+" + re.escape(rest).replace(re.escape("{t}"), r"\w+")
        if re.fullmatch(pattern, intent):
            return family
    return ""


def _kind(thing: str) -> str:
    return thing.partition("#")[0]


def _words(intent: str) -> set[str]:
    return set(re.findall(r"\w+", intent.lower()))


def _offered(done: Sequence[tuple[str, str]]) -> list[str]:
    """Every choice that was offered after an action, in order."""
    return [choice for _, observed in done for choice in offered(observed)]


def _wanted(intent: str, done: Sequence[tuple[str, str]]) -> str:
    """The kind of object that the intent names, of those that could be taken; "" when none of them is named."""
    words = _words(intent)
    takes = (line for line in [*(action for action, _ in done), *_offered(done)] if line.startswith("take "))
    kinds = (line.removeprefix("take ").rpartition(" from ")[0] for line in takes)
    return next((kind for kind in kinds if not words.isdisjoint((kind, f"{kind}s", f"{kind}es"))), "")


def _that_mattered(wanted: str, done: Sequence[tuple[str, str]]) -> list[str]:
    """The actions on the object the task is about, and the searches that found it; no refused ones."""
    acted = [action for action, _ in done]
    kept: list[str] = []
    for position, (action, observed) in enumerate(done):
        if observed.startswith("You cannot"):
            continue
        verb, _, rest = action.partition(" ")
        found = f"take {wanted} from {rest}" in acted[position + 1 :]
        if found if verb == "search" else rest.split(" ")[0] == wanted:
            kept.append(action)
    return kept


def _better_script(intent: str, wanted: str, done: Sequence[tuple[str, str]]) -> list[str]:
    """In hindsight: fetch the object from where it was seen, treat it as was tried, and put it where the intent says.

    A treatment that did its work is kept; of one that ruined the object the other appliance is named. Where a treatment
    was offered and none was found, the script ends with the object in hand: nobody has seen how it goes on.
    """
    acted, choices = [action for action, _ in done], _offered(done)
    take = next(line for line in [*acted, *choices] if line.startswith(f"take {wanted} from "))
    place = take.rpartition(" from ")[2]
    steps = [f"search {place}"] if f"search {place}" in acted else []
    steps.append(take)
    verbs = tuple(f"{verb} {wanted} with " for verb in VERBS.values())
    if any(choice.startswith(verbs) for choice in choices):
        treated = _treatment_found(verbs, done)
        if not treated:
            return steps
        steps.append(treated)
    words = _words(intent)
    target = next((place for place in OPEN_PLACES if place in words), "")
    if not target:
        return steps
    finish = f"put {wanted} on {target}"
    return [*steps, finish, *([take, finish] if words & {"two", "both"} else [])]


def _treatment_found(verbs: tuple[str, ...], done: Sequence[tuple[str, str]]) -> str:
    """The treatment that worked and is asked for no longer, or the other way of one that failed; "" without either."""
    for action, observed in reversed(done):
        stem, _, _ = action.rpartition(" with ")
        if f"{stem} with " not in verbs or observed.startswith("You cannot"):
            continue
        if RUINED in observed:
            return next((c for c in _offered(done) if c.startswith(f"{stem} with ") and c != action), "")
        choices = offered(observed)
        if choices and not any(choice.startswith(verbs) for choice in choices):
            return action
    return ""
