"""Layouts: in which form of prompt does a language model make use of its memories?

The simulated model learns a memory, which is then used frozen: every model and layout gets the very same memories for
the very same tasks, none of which was met before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.agent.follows import actions_in, memory_texts
from memrl_core.agent.run_parts import SIMULATED, is_simulated
from memrl_core.analysis.decision.outline import valid_answers
from memrl_core.analysis.run.consultations import step_cost
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import named_tasks
from memrl_core.errors import InputError
from memrl_core.experiments.cells import drawn
from memrl_core.experiments.executors import RESULTS, ResultFolder
from memrl_core.experiments.report_table import (
    INTERVAL,
    NOTHING,
    PAIRED,
    ReportTable,
    number,
    points,
    share,
    solved,
    tokens,
    valid_share,
)
from memrl_core.experiments.study import Stopped, Study, checked_seeds
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.prompting import USUAL
from memrl_core.records import StepTrace, Task
from memrl_core.settings import MemRLSettings

TRANSCRIPT = {"layout": "transcript", **USUAL}
LAYOUTS: Mapping[str, Mapping[str, str]] = {
    "transcript": TRANSCRIPT,
    "transcript, choices in the prompt": TRANSCRIPT | {"choices": "prompt"},
    "transcript, choices in the schema": TRANSCRIPT | {"choices": "schema"},
    "transcript, failures named": TRANSCRIPT | {"failures": "named"},
    "transcript, failures unnamed": TRANSCRIPT | {"failures": "unnamed"},
    "transcript, best memory last": TRANSCRIPT | {"best": "last"},
    "transcript, all observations": TRANSCRIPT | {"seen": "all"},
    "turns": {"layout": "turns"},
    "block": {"layout": "block"},
}
"""Model options by name: those where nobody chose, each with one other value, and the other two layouts."""
K2 = (1, 3, 5)
LEARNED = 3
"""The memory is learned on this many times the tasks on which it is used, or on as many as there are."""
SIMILAR = {"weight": 0.0}
"""Memories come by similarity, so that stale ones and failures are among them."""
COLUMNS = (
    "model, layout, k2", "right", "none", "memory gains", "right one at hand", "follows a memory",
    "takes the right one", "leaves a wrong one", "repeats a failure", "valid answers", "seconds a step", "tokens",
)  # fmt: skip
FROZEN = "the simulated model has learned the memories on other tasks; they are used frozen, by similarity (λ = 0)"
COUNTED = "counts are over steps whose memories show an action; *at hand*: the right answer is among these"


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """`steps` has a row per step: set, seed, embedder, model, layout, memories (k2), task, success, what it follows,
    answers, seconds and tokens.

    `stopped` is True when a person ended it; what was finished by then is in `steps`.
    """

    steps: pd.DataFrame
    stopped: bool


def layouts_of(names: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """The layouts `names`, all where none is named, each form once. Raises `InputError` for an unknown one."""
    if unknown := [name for name in names if name not in LAYOUTS]:
        raise InputError(
            f"There is no layout “{unknown[0][:80]}”; there are: {'; '.join(LAYOUTS)}. Nothing was started."
        )
    chosen: dict[str, Mapping[str, str]] = {}
    for name in names or LAYOUTS:
        if names or LAYOUTS[name] not in chosen.values():
            chosen[name] = LAYOUTS[name]
    return chosen


def run_layouts(
    bank: MemoryBank,
    out: Path,
    models: Sequence[str],
    sets: Sequence[str],
    *,
    tasks: int = 0,
    seeds: Sequence[int] = range(3),
    epochs: int = 1,
    k2: Sequence[int] = K2,
    layouts: Sequence[str] = (),
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Layouts:
    """Let the simulated model learn on tasks of each set, then each of `models` do `tasks` others of it, frozen: with
    `k2` memories in the prompt in each of `layouts` (see `layouts_of`), and with none.

    Every run is kept in `bank`, whose embedder finds the memories, and its steps in the folder `out`, so that the same
    call goes on where it ended. Raises `InputError` for models, sets, layouts, numbers, seeds and a folder that cannot
    be used, before anything is stored, and what a run raises.
    """
    chosen, forms = checked_seeds(seeds, epochs), layouts_of(layouts)
    if not models or any(is_simulated(model) for model in models):
        raise InputError("Name one or more language models, such as gguf:smollm2. Nothing was started.")
    if not k2 or min(k2) < 1 or len(set(k2)) < len(k2):
        raise InputError("A layout shows k2 memories: one or more, each number once. Nothing was started.")
    uses = [("no memory", next(iter(forms.values())), 0)]
    uses += [(name, options, memories) for name, options in forms.items() for memories in k2]
    trials = {(name, seed): _trial(name, tasks, seed) for name in sets for seed in chosen}
    about = {"tasks": tasks, "epochs": epochs, "embedder": bank.embedder.name}
    with ResultFolder(out) as folder:
        rows = _finished(out, bank, about)
        done = {(row["set"], row["seed"], row["model"], row["layout"], row["memories"]): row["base"] for row in rows}
        study = Study(bank, "layouts", [SIMULATED, *models], on_progress, cancelled)
        of_each = len(models) * len(uses)
        study.total = sum(epochs * len(learned) + of_each * len(used) for learned, used in trials.values())
        stopped = False
        try:
            # A seed after the other, so that a part of them is already a fair comparison.
            for seed, (set_number, name) in product(chosen, enumerate(sets)):
                learned, used = trials[name, seed]
                base = next((base for key, base in done.items() if key[:2] == (name, seed)), "")
                if base:
                    study.done += epochs * len(learned)
                for (number, model), (at, (layout, options, memories)) in product(enumerate(models), enumerate(uses)):
                    if (name, seed, model, layout, memories) in done:
                        study.done += len(used)
                        continue
                    part = f"e{set_number}-s{seed}"
                    base = base or study.learn(part, learned, epochs, seed, SIMULATED, MemRLSettings.of(SIMILAR))
                    settings = MemRLSettings.of({**SIMILAR, "k2": memories})
                    run, _ = study.use(f"{part}-m{number}-l{at}", used, seed, model, base, options, settings)
                    given = {"set": name, "seed": seed, "model": model, "layout": layout, "memories": memories}
                    given |= {**about, "base": base, "run": run}
                    rows += [{**given, **_row(trace)} for trace in bank.each_trace(run)]
                    folder.write_rows(pd.DataFrame(rows))
        except Stopped:
            stopped = True
    asked = {
        (name, seed, model, layout, memories)
        for name, seed, model, (layout, _, memories) in product(sets, chosen, models, uses)
    }
    keys = ("set", "seed", "model", "layout", "memories")
    return Layouts(pd.DataFrame([row for row in rows if tuple(row[key] for key in keys) in asked]), stopped)


def layout_reports(found: Layouts) -> list[ReportTable]:
    """A table for each set of tasks and embedder, with a row for each model, layout and number of memories."""
    if found.steps.empty:
        return []
    tables = []
    for (name, embedder), of_set in found.steps.groupby(["set", "embedder"], sort=False):
        rows = []
        for (model, layout, memories), part in of_set.groupby(["model", "layout", "memories"], sort=False):
            if not memories:
                continue
            without = solved(of_set[(of_set["model"] == model) & (of_set["memories"] == 0)])
            rows.append(
                (
                    f"{model}, {layout}, {memories}",
                    share(solved(part).to_numpy()),
                    share(without.to_numpy()),
                    points(solved(part), without),
                    *_followed(part),
                    valid_share(part["valid"].sum(), part["asked"].sum()),
                    number(part.groupby("seed")["seconds"].mean().to_numpy()),
                    tokens(part),
                )
            )
        seeds, tasks = of_set["seed"].nunique(), of_set.groupby("seed")["task"].nunique().max()
        title = f"Layouts: {name}, {embedder} · {tasks} new tasks, {'1 seed' if seeds == 1 else f'{seeds} seeds'}"
        tables.append(ReportTable(title, COLUMNS, tuple(rows), (FROZEN, COUNTED, INTERVAL, PAIRED)))
    return tables


def _followed(part: pd.DataFrame) -> tuple[str, str, str, str, str]:
    """Right one at hand, follows a memory, takes the right one, leaves a wrong one, repeats a failure: n of n each."""
    known = part[part["follows"].notna()]
    follows = known["follows"].astype(bool)
    judged = known[known["at_hand"].notna()]
    at_hand = judged["at_hand"].astype(bool)
    left = ~follows[judged.index][~at_hand]
    warned = part[part["warned"].astype(bool)]
    return (
        _of(at_hand), _of(follows), _of(judged["taken"][at_hand].astype(bool)), _of(left),
        _of(warned["repeats"].astype(bool)),
    )  # fmt: skip


def _of(values: pd.Series) -> str:
    return f"{values.sum():,} of {len(values):,}" if len(values) else NOTHING


def _trial(name: str, tasks: int, seed: int) -> tuple[list[Task], list[Task]]:
    """The tasks to learn from and, `tasks` of them (0: half of the set), those that are then met for the first time."""
    there = len(named_tasks(name))
    used = tasks or there // 2
    if not 0 < used < there:
        raise InputError(f"{name} has {there:,} tasks: ask for at most {there - 1:,}, or for 0. Nothing was started.")
    chosen = drawn(name, min(there, (LEARNED + 1) * used), seed)
    return chosen[:-used], chosen[-used:]


def _finished(out: Path, bank: MemoryBank, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows that the folder holds. Raises `InputError` where they are of other tasks, epochs or another bank."""
    try:
        rows: list[dict[str, Any]] = pd.read_parquet(out / RESULTS).replace({np.nan: None}).to_dict("records")
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        rows = [{}]
    here = {info.id for info in bank.runs()}
    if any({key: row.get(key) for key in about} != about or row["base"] not in here for row in rows):
        raise InputError(
            f"The results in {out} are of other tasks or epochs, or of another bank. Nothing was started; choose "
            "another folder, or say the same --bank, --tasks and --epochs as then."
        )
    return rows


def _row(trace: StepTrace) -> dict[str, Any]:
    valid, asked = valid_answers(trace)
    cost, record, follows = step_cost(trace), trace.generate, trace.follows
    shown, avoided = set[str](), set[str]()
    for text in memory_texts(record).values() if record else ():
        to_take, to_avoid, _ = actions_in(text)
        shown.update(to_take)
        avoided.update(to_avoid)
    warned = avoided - shown
    return {
        "task": trace.task.id,
        "success": trace.reward is not None and trace.reward.outcome == "success",
        "follows": len(follows.memories) if follows is not None and shown else None,
        "at_hand": follows.at_hand if follows is not None and shown else None,
        "taken": follows.taken if follows is not None and shown else None,
        "warned": bool(warned),
        "repeats": any(turn.reply.text in warned for turn in trace.turns),
        "valid": valid,
        "asked": asked,
        "seconds": cost.seconds,
        "prompt_tokens": cost.prompt_tokens,
        "answer_tokens": cost.answer_tokens,
    }
