"""The small picture on a lesson's card: what the lesson is about, drawn from one simulated run of seed 1.

`python -m memrl_core.lessons.cards` writes those of the shipped lessons, and the Lab's, beside the lessons. None shows
the answer to a lesson's question: what the question asks for is not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np

from memrl_core.learning import updated_q
from memrl_core.lessons.lesson import Lesson, load_shelf, shipped_folder
from memrl_core.lessons.measures import LENGTH, Run, run_of
from memrl_core.lessons.world import CHANCES, Settings, embeddings

LAB = "lab"
WIDTH, HEIGHT, MARGIN = 240, 96, 6
BLOCK = 24
"""Steps of which a curve shows the mean."""
SHIFT = 145
SHOWN = 140
"""The step whose pool is drawn, shortly before the world shifts."""
RATES = (0.02, 0.3, 0.9)
GATE, WIDE = 0.7, 48
"""A gate, and the size of a pool that has memories on both sides of it."""
ACCENT = "#3d85d1"
"""Read on white and on dark grey alike; everything else has the colour of the text."""


def card(lesson: Lesson) -> str:
    """The lesson's picture as SVG, by the first setting under the reader's hand."""
    drawing = {
        "alpha": _rates, "lambda": _plane, "epsilon": _uses, "change": _ever, "k1": _ranks, "k2": _ranks,
        "delta": _gate, "keep": _uses, "step": _life, "rest": _before, "shifted": _ever,
    }[lesson.hand[0]]  # fmt: skip
    if lesson.picture == "credit":
        drawing = _plane
    if lesson.picture == "pair":
        drawing = _twins
    given = lesson.finding[0].settings if lesson.finding else lesson.start
    settings = given.settings(1)
    if lesson.hand[0] == "delta":
        settings = replace(settings, k1=WIDE, delta=-1.0)
    return drawing(run_of(settings))


def lab_card() -> str:
    """Two agents in a world that shifts: how well λ = 0 and λ = ½ do."""
    one, two = (_curve(run_of(Settings(weight=weight))) for weight in (0.0, 0.5))
    parts = [*_chances(), _shift(), _line(one, (0, 1)), _line(two, (0, 1), chosen=True)]
    return _svg("Success of two agents over 288 steps, λ = 0 and λ = ½; halfway the world shifts.", parts)


# --- what is drawn ----------------------------------------------------------------------------------------------------


def _before(run: Run) -> str:
    curve = _curve(run)
    parts = [*_chances(), _shift(), _line(curve[: len(curve) // 2], (0, 1), until=0.5, chosen=True)]
    return _svg("Success over the first 144 steps, until the world shifts.", [*parts, _text(0.75, 0.5, "?")])


def _ever(run: Run) -> str:
    ever = [step.ever for step in run.steps]
    parts = [_level(1, (0, 1)), _line(ever, (0, 1), chosen=True)]
    return _svg("The share of tasks that were solved at least once, over 288 steps: it never falls.", parts)


def _rates(run: Run) -> str:
    rewards = _rewards(run, _most_used(run))
    parts = [_level(0, (-1, 1))]
    for rate in RATES:
        q = [0.0]
        for reward in rewards:
            q.append(updated_q(q[-1], reward, rate))
        parts.append(_line(q, (-1, 1), chosen=rate == RATES[1]))
    rates = ", ".join(f"{rate:g}" for rate in RATES)
    return _svg(f"q of one memory after each of its {len(rewards)} rewards, with α = {rates}.", parts)


def _life(run: Run) -> str:
    rewards, q = _rewards(run, _most_used(run)), [0.0]
    for reward in rewards:
        q.append(updated_q(q[-1], reward, RATES[1]))
    dots = [_dot(n / len(rewards), _up(value, (-1, 1)), 2.5, True) for n, value in enumerate(q)]
    parts = [_level(0, (-1, 1)), _line(q, (-1, 1)), *dots]
    return _svg(f"q of one memory after each of its {len(rewards)} rewards.", parts)


def _plane(run: Run) -> str:
    similarity, q, chosen = _pool(run)
    low, high = min(similarity), max(similarity)
    parts = [_level(0, (-1, 1))]
    for x, y, used in zip(similarity, q, chosen, strict=True):
        parts.append(_dot(_up(x, (low, high)), _up(y, (-1, 1)), 4, used))
    text = (
        f"{len(q)} recalled memories by similarity (right) and q (up); the {sum(chosen)} given to the model are filled."
    )
    return _svg(text, parts)


def _gate(run: Run) -> str:
    similarity = sorted(_pool(run)[0])
    limits = (min(similarity) - 0.02, 1.0)
    parts = [_level(GATE, limits)]
    for n, value in enumerate(similarity):
        parts.append(_dot(n / (len(similarity) - 1), _up(value, limits), 3.5, value >= GATE))
    return _svg(
        f"Similarities of {len(similarity)} recalled memories; those above the gate δ = {GATE} are filled.", parts
    )


def _ranks(run: Run) -> str:
    choice = run.steps[SHOWN - 1].choice
    order = sorted(zip(choice.score, choice.pool, strict=True), reverse=True)
    low, high = order[-1][0] - 0.2, order[0][0]
    bars = [_bar(n, len(order), _up(score, (low, high)), one in choice.chosen) for n, (score, one) in enumerate(order)]
    text = f"Scores of {len(order)} recalled memories, the best first; those given to the model are filled."
    return _svg(text, bars)


def _uses(run: Run) -> str:
    uses = sorted(run.memory.uses, reverse=True)
    each = [fmean(uses[n : n + BLOCK // 4]) for n in range(0, len(uses), BLOCK // 4)]
    bars = [_bar(n, len(each), value / each[0], True) for n, value in enumerate(each)]
    return _svg(f"How often each of {len(uses)} memories was used, the most used first; many never.", bars)


def _twins(run: Run) -> str:
    half = LENGTH // 2
    memory = run.memory
    kinds = list(zip(memory.task, memory.way, memory.success, strict=True))[:half]
    paths: dict[int, list[tuple[int, float]]] = {}
    for step in run.steps[:half]:
        for number, value in zip(step.choice.chosen, step.moved, strict=True):
            paths.setdefault(number, []).append((step.step, value))
    pairs = [(a, b) for a, b in combinations(sorted(paths), 2) if kinds[a] == kinds[b]]
    one, two = max(pairs, key=lambda pair: min(len(paths[pair[0]]), len(paths[pair[1]])))
    parts = [_level(0, (-1, 1)), _text(0.9, 0.5, "?")]
    for number, chosen in ((one, True), (two, False)):
        points = [(number + 1, 0.0), *paths[number]]
        parts.append(_path([(0.8 * step / half, _up(value, (-1, 1))) for step, value in points], chosen))
    return _svg("q of two memories with the same words, over the first 144 steps.", parts)


# --- what a run holds -------------------------------------------------------------------------------------------------


def _curve(run: Run) -> list[float]:
    """Mean true chance of success in blocks of steps."""
    return [fmean(step.chance for step in run.steps[n : n + BLOCK]) for n in range(0, LENGTH, BLOCK)]


def _most_used(run: Run) -> int:
    return int(np.argmax(run.memory.uses))


def _rewards(run: Run, number: int) -> list[float]:
    """The rewards of the steps that used a memory, in their order."""
    return [1.0 if step.success else -1.0 for step in run.steps if number in step.choice.chosen]


def _pool(run: Run) -> tuple[list[float], list[float], list[bool]]:
    """Similarity, q and whether it was given to the model, of each memory recalled in the step `SHOWN`."""
    step, q = run.steps[SHOWN - 1], [0.0] * LENGTH
    for before in run.steps[: SHOWN - 1]:
        for number, value in zip(before.choice.chosen, before.moved, strict=True):
            q[number] = value
    pool, vectors = step.choice.pool, embeddings()
    similar = [float(vectors[step.task] @ vectors[run.memory.task[number]]) for number in pool]
    return similar, [q[number] for number in pool], [number in step.choice.chosen for number in pool]


# --- SVG --------------------------------------------------------------------------------------------------------------


def _up(value: float, limits: tuple[float, float]) -> float:
    """Where a value lies between its limits, from 0 to 1."""
    low, high = limits
    return (value - low) / (high - low)


def _at(x: float, y: float) -> tuple[str, str]:
    """A point in the SVG's units; x goes right and y up, both from 0 to 1."""
    across, down = MARGIN + x * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - y * (HEIGHT - 2 * MARGIN)
    return f"{across:.1f}", f"{down:.1f}"


def _path(points: Sequence[tuple[float, float]], chosen: bool = False) -> str:
    joined = " ".join(",".join(_at(*point)) for point in points)
    look = (
        f'stroke="{ACCENT}" stroke-width="2.5"' if chosen else 'stroke="currentColor" stroke-width="1.5" opacity=".6"'
    )
    return f'<polyline points="{joined}" fill="none" stroke-linejoin="round" {look}/>'


def _line(
    values: Sequence[float], limits: tuple[float, float], until: float = 1.0, chosen: bool = False
) -> str:  # fmt: skip
    last = len(values) - 1
    return _path([(until * n / last, _up(value, limits)) for n, value in enumerate(values)], chosen)


def _level(value: float, limits: tuple[float, float]) -> str:
    (left, y), (right, _) = _at(0, _up(value, limits)), _at(1, _up(value, limits))
    look = 'stroke="currentColor" opacity=".45" stroke-dasharray="3 3"'
    return f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" {look}/>'


def _chances() -> list[str]:
    """What guessing gets and the best there is."""
    return [_level(fmean(CHANCES), (0, 1)), _level(max(CHANCES), (0, 1))]


def _shift() -> str:
    (x, top), (_, bottom) = _at(SHIFT / LENGTH, 1), _at(SHIFT / LENGTH, 0)
    return f'<line x1="{x}" x2="{x}" y1="{top}" y2="{bottom}" stroke="currentColor" opacity=".6"/>'


def _dot(x: float, y: float, size: float, chosen: bool) -> str:
    across, down = _at(x, y)
    look = f'fill="{ACCENT}"' if chosen else 'fill="none" stroke="currentColor" opacity=".6"'
    return f'<circle cx="{across}" cy="{down}" r="{size}" {look}/>'


def _bar(n: int, count: int, height: float, chosen: bool) -> str:
    (x, top), (_, bottom) = _at(n / count, height), _at(0, 0)
    wide, tall = 0.7 * (WIDTH - 2 * MARGIN) / count, max(0.8, float(bottom) - float(top))
    look = f'fill="{ACCENT}"' if chosen else 'fill="currentColor" opacity=".35"'
    return f'<rect x="{x}" y="{float(bottom) - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}" {look}/>'


def _text(x: float, y: float, text: str) -> str:
    across, down = _at(x, y)
    look = 'dy="9" text-anchor="middle" font-size="26" fill="currentColor" opacity=".6"'
    return f'<text x="{across}" y="{down}" {look}>{text}</text>'


def _svg(alt: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}">'
    return f"{head}\n{body}\n</svg>\n"


# --- the committed files ----------------------------------------------------------------------------------------------


def cards() -> dict[Path, str]:
    """The picture of each shipped lesson and the Lab's, by the file where it is kept."""
    shelf = load_shelf()
    found = {_file(key): card(lesson) for key, lesson in shelf.lessons.items() if key not in shelf.own}
    return {**found, _file(LAB): lab_card()}


def kept(key: str) -> str:
    """The picture of a shipped lesson, or the Lab's, as it is kept; "" for one that has none."""
    return _file(key).read_text(encoding="utf-8") if _file(key).is_file() else ""


def _file(key: str) -> Path:
    return shipped_folder() / f"{key}.svg"


if __name__ == "__main__":
    for file, text in cards().items():
        file.write_text(text, encoding="utf-8")
        print(file)
