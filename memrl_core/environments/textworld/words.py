"""What an episode of a cooking game becomes as the text of an experience: from what was said and seen alone."""

from __future__ import annotations

from collections.abc import Sequence

from memrl_core.environments.layout import DONE, NOT_DONE_IN_TIME, block, layout, spoken
from memrl_core.prompting import AVOID, STEPS_THAT_WORKED, TASK_LINE, TRY_INSTEAD, WHAT_WENT_WRONG
from memrl_core.records import Outcome, Turn

REFUSED = "You cannot do “"
OUT_OF_TURNS = "The turns have run out."
POINTS = "You have {} of {} points."

# The game's own words.
_GAINED = "Your score has just gone up"
_LOST = "*** You lost! ***"
_WON = "*** The End ***"

_WAY_BACK = {"go north": "go south", "go south": "go north", "go east": "go west", "go west": "go east"}
_BETWEEN = (" with ", " from ", " into ", " on ", " in ")


def experience(intent: str, turns: Sequence[Turn], outcome: Outcome) -> str:
    """The actions that led to points, and what lost the game; where none gained a point, what was tried."""
    done = [(spoken(turn.reply.text), turn.observation) for turn in turns if not turn.reply.stopped]
    last = done[-1][1] if done else ""
    kept = _that_led_to_points(done)
    if not done or (outcome == "success" and not kept) or (outcome == "failure" and _says(last, _WON)):
        return layout(intent, turns, outcome)  # A person may judge otherwise than the game.
    head = f"{TASK_LINE}{intent}\n"
    wrong = "" if _says(last, _WON) else f"{WHAT_WENT_WRONG}{_what_went_wrong(done[-1][0], last)}\n"
    avoid = block(AVOID, [done[-1][0]]) if _says(last, _LOST) else ""
    if not kept:
        tried = dict.fromkeys(action for action, observed in done if not observed.startswith(REFUSED))
        return head + wrong + avoid + block(DONE, list(tried))
    if outcome == "failure":
        return head + wrong + avoid + block(TRY_INSTEAD, kept)
    return head + block(STEPS_THAT_WORKED if outcome == "success" else DONE, kept) + wrong + avoid


def first_line(text: str) -> str:
    """What the game says first."""
    return text.partition("\n")[0]


def _that_led_to_points(done: Sequence[tuple[str, str]]) -> list[str]:
    """Of (action, what was observed) the actions that gained points, and what led to them.

    These are the ways there without turning back, what was opened, and the first taking of what gained points later:
    hands are never full, so nothing need be put away.
    """
    gains = {position for position, (_, observed) in enumerate(done) if _says(observed, _GAINED)}
    used = {thing for position in gains for thing in _things(done[position][0])}
    kept: list[str] = []
    taken: set[str] = set()
    for position, (action, observed) in enumerate(done[: max(gains, default=-1) + 1]):
        if observed.startswith(REFUSED):
            continue
        verb, thing = action.partition(" ")[0], next(iter(_things(action)), "")
        if verb == "take" and thing in used - taken:
            taken.add(thing)
            kept.append(action)
        elif position in gains and verb != "take":
            kept.append(action)
        elif verb == "go" and kept and kept[-1] == _WAY_BACK.get(action):
            kept.pop()
        elif verb == "go" or (verb == "open" and action not in kept):
            kept.append(action)
    return kept


def _things(action: str) -> list[str]:
    """What an action names: the thing, and with, from or on what."""
    rest = action.partition(" ")[2]
    between = next((word for word in _BETWEEN if word in rest), None)
    return [part for part in (rest.split(between) if between else [rest]) if part]


def _what_went_wrong(action: str, last: str) -> str:
    if _says(last, _LOST):
        return f"“{action}” lost the game: {first_line(last)}"
    return " ".join(last.splitlines()[-2:]) if _says(last, OUT_OF_TURNS) else NOT_DONE_IN_TIME


def _says(observed: str, words: str) -> bool:
    """Whether a line begins with these words; a reply that was refused stands within its line."""
    return any(line.startswith(words) for line in observed.splitlines())
