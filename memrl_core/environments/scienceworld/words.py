"""ScienceWorld in words: what a reply asks for, what is offered, which goals there are, and an episode as a memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memrl_core.environments.base import DONE, block, layout, spoken
from memrl_core.prompting import AVOID, STEPS_THAT_WORKED, TASK_LINE, TRY_INSTEAD, WHAT_WENT_WRONG
from memrl_core.records import Outcome, Turn

ALL_POINTS = 100
LONGEST_SEEN = 8_000
SHORTEST_WORD = 3
EMPTY_WORDS = frozenset({"the", "task", "your"})
"""These, and shorter words of an intent, say nothing of what a task is about."""

REFUSED = "You cannot do “"
TAKEN_AWAY = "The game ends here and takes all points away."

_NOT_KNOWN = ("No known action matches", "Unknown action.")
_WHICH = "Ambiguous request:"
_WITHOUT_EFFECT = ("'m not sure how to", "'s not clear how to", " already ", " can't ", "There is only one thing")
"""The engine's own words, these and those of the two lines above."""

_ONLY_LOOKS = ("look", "examine", "read", "inventory", "task")
_WORD = re.compile(r"\w+")
_POINTS = re.compile(r"^Score: (\d+) of 100(?: \(([+-]\d+)\))?", re.MULTILINE)
_GOAL = re.compile(r"^\d+\t(true|false)\t\s*\w+\t(.+)$", re.MULTILINE)
_FURTHER = "Unordered and Optional Subgoals:"


def answered(action: str, response: str) -> str:
    """What the engine said to an action, as the model reads it."""
    if response.startswith(_NOT_KNOWN):
        return f"{REFUSED}{action[:80]}” here: there is no such action, or no such thing."
    return plain(response)


def plain(response: str) -> str:
    """What the engine said, without tabs, empty lines and excessive length."""
    lines = (line.rstrip().replace("\t", "  ") for line in response.splitlines())
    return "\n".join(line for line in lines if line)[:LONGEST_SEEN]


def score_line(points: int, gained: int) -> str:
    """The score so far, and what the last action changed in it."""
    return f"Score: {points} of {ALL_POINTS}" + (f" ({gained:+d})" if gained else "") + "."


def choices(valid: Sequence[str], intent: str, most: int) -> list[str]:
    """At most `most` of the valid actions: those that share most words with the task first, then in alphabetic order.

    Where some have to be left out, each verb gives as many as the others as long as it has any: on the engine's own
    solutions this keeps 85 of 100 steps among 150 offered, the first 150 in this order only 32 to 53.
    """
    wanted = {word for word in _WORD.findall(intent.lower()) if len(word) >= SHORTEST_WORD} - EMPTY_WORDS
    ordered = sorted(set(valid), key=lambda action: (-len(wanted.intersection(_WORD.findall(action.lower()))), action))
    given: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for place, action in enumerate(ordered):
        verb = action.partition(" ")[0]
        turns.append((given[verb], place))
        given[verb] += 1
    return [ordered[place] for place in sorted(place for _, place in sorted(turns)[:most])]


# --- goals ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Goal:
    """A part of a task as the engine names it; one that is not `needed` helps and gives points."""

    text: str
    reached: bool
    needed: bool


def goals_of(report: str) -> tuple[Goal, ...]:
    """The goals in the engine's report of its progress."""
    needed, _, further = report.partition(_FURTHER)
    return tuple(
        Goal(text.strip(), reached == "true", part is needed)
        for part in (needed, further)
        for reached, text in _GOAL.findall(part)
    )


def expected(goals: Sequence[Goal]) -> str:
    """What a task asks for, for people."""
    in_order = [goal.text for goal in goals if goal.needed]
    on_the_way = [goal.text for goal in goals if not goal.needed]
    return f"{ALL_POINTS} points.\n{block('In this order:', in_order)}{block('What helps on the way:', on_the_way)}"


def reached(goals: Sequence[Goal]) -> str:
    """Which goals were reached, and which of the needed ones were not, for people."""
    done = [goal.text for goal in goals if goal.reached]
    left = [goal.text for goal in goals if goal.needed and not goal.reached]
    return f"Reached: {'; '.join(done) or 'nothing'}. Not reached: {'; '.join(left) or 'nothing that was needed'}."


# --- memories ---------------------------------------------------------------------------------------------------------


def experience(intent: str, turns: Sequence[Turn], outcome: Outcome) -> str:
    """An episode as the text of a memory: the actions that changed something, up to the last that gained points.

    After a failure they are what to try instead, and the action that lost all points is what to avoid.
    """
    done = [(spoken(turn.reply.text), turn.observation) for turn in turns]
    points = next((_points(observed)[0] for _, observed in reversed(done) if _POINTS.search(observed)), 0)
    wrong = f"{WHAT_WENT_WRONG}{points} of {ALL_POINTS} points after {len(turns)} turn{'s' * (len(turns) != 1)}.\n"
    avoid = ""
    if done and TAKEN_AWAY in done[-1][1]:
        lost = culprit([action for action, _ in done])
        wrong, avoid = f"{WHAT_WENT_WRONG}“{lost}” ended the game and took all points.\n", block(AVOID, [lost])
        done = done[: -2 if done[-1][0] != lost else -1]
    changed = _that_changed(done)
    last_gain = max((place for place, (_, observed) in enumerate(done) if _points(observed)[1] > 0), default=-1)
    kept = [done[place][0] for place in changed if place <= last_gain]
    tried = block(DONE, list(dict.fromkeys(done[place][0] for place in changed))) if changed else ""
    head = f"{TASK_LINE}{intent}\n"
    if outcome == "failure" and points < ALL_POINTS:
        return head + wrong + avoid + (block(TRY_INSTEAD, kept) if kept else tried)
    if outcome == "failure" or not changed:
        return layout(intent, turns, outcome)  # A person may judge otherwise than the game.
    worked = block(STEPS_THAT_WORKED if outcome == "success" else DONE, kept) if kept else tried
    return head + worked + (wrong + avoid if points < ALL_POINTS else "")


def culprit(actions: Sequence[str]) -> str:
    """The last action; the one before it where the last is the number of one of its meanings."""
    return actions[-2] if actions[-1].isdecimal() and len(actions) > 1 else actions[-1]


def _points(observation: str) -> tuple[int, int]:
    """The points after a turn, and how many it gained."""
    found = _POINTS.findall(observation)
    return (int(found[-1][0]), int(found[-1][1] or 0)) if found else (0, 0)


def _that_changed(done: Sequence[tuple[str, str]]) -> list[int]:
    """The places of the actions that gained points, or may have changed something."""
    places = []
    for place, (action, observed) in enumerate(done):
        first = observed.partition("\n")[0]
        if first.startswith(_WHICH):
            following = done[place + 1 : place + 2]
            idle = not any(number.isdecimal() and not response.startswith(REFUSED) for number, response in following)
        else:
            looks = action.partition(" ")[0].lower() in _ONLY_LOOKS
            idle = looks or first.startswith(REFUSED) or any(words in first for words in _WITHOUT_EFFECT)
        if action and (not idle or _points(observed)[1] > 0):
            places.append(place)
    return places
