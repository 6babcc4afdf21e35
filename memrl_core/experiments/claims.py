"""Every number and every sentence that a document or a lesson states as a finding, computed again.

A claim is where it stands, the words with `{}` for each number, and what computes them. A number holds where it lies in
the interval of what is computed now: the 95 % interval over seeds, or what rounding leaves of a number that follows
from the seeds alone. Tables under docs/results are written by the script that measures; the claims are of what they
show first.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from memrl_core.agent.preferences import REAL_DEMO, RECORDINGS
from memrl_core.analysis.run.metrics import paired_interval, seed_interval
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import InputError, MemRLError
from memrl_core.experiments.cells import EVALUATE, LEARN
from memrl_core.experiments.epochs import conditions
from memrl_core.experiments.executors import run_experiment
from memrl_core.experiments.lab import fall_at_the_shift, lab_bank
from memrl_core.experiments.plan import Plan, read_plan
from memrl_core.experiments.sentences import FRESH, Bound, first_fresh_seed, sentences
from memrl_core.experiments.toml_files import read_model
from memrl_core.lessons.lesson import PRESETS, Finding, Lesson, Preset, shipped_folder
from memrl_core.lessons.measures import OF_RUN, run_of
from memrl_core.lessons.room import QUESTIONS, Question
from memrl_core.lessons.world import Play, Settings

ROOT = Path(__file__).resolve().parents[2]
"""The folder above the package: of a checkout, or of what is installed."""
SEEDS = 40
STUDENTS = 60
NUMBER = r"([+−-]?\d+(?:\.\d+)?)"
Interval = tuple[float, float]
Compute = Callable[[Path | None], Sequence[Interval]]


@dataclass(frozen=True, slots=True)
class Claim:
    """`compute` gives, for each `{}` of `says`, between which numbers it holds; it may read results of experiments.

    The words stand in `where`, relative to the checkout. `bounds` are what makes the words true on seeds that they were
    not written with. A `quick` claim takes seconds.
    """

    where: str
    says: str
    compute: Compute
    quick: bool = False
    bounds: tuple[Bound, ...] = ()

    def stated(self, text: str) -> list[float] | None:
        """The numbers as they stand in the document; None where the words are not there."""
        found = self.found(text)
        return None if found is None else [float(number.replace("−", "-")) for number in found.groups()]

    def found(self, text: str) -> re.Match[str] | None:
        """Where the words stand in the text of the document."""
        words = [r"\s+".join(map(re.escape, part.split(" "))) for part in self.says.split("{}")]
        return re.search(NUMBER.join(words), text)


def exactly(value: float, digits: int = 0) -> Interval:
    """The numbers that are `value` when it is rounded to so many digits."""
    half = 0.5 * 10**-digits + 1e-9
    return value - half, value + half


# --- lessons ----------------------------------------------------------------------------------------------------------


def _lessons() -> Iterator[Claim]:
    """Every `[[finding]]` of every shipped lesson, a mean over the seeds 1 to 40 to three digits."""
    for path in sorted(shipped_folder().glob("*.toml")):
        tables = path.read_text(encoding="utf-8").split("[[finding]]")[1:]
        for finding, table in zip(read_model(path, Lesson).finding, tables, strict=True):
            says = re.sub(r"mean = \S+", "mean = {}", " ".join(table.split()))
            yield Claim(f"sample_data/lessons/{path.name}", f"[[finding]] {says}", partial(_of_lesson, finding))


def _teaching(results: Path | None) -> list[Interval]:
    """What lesson 4 measures before the shift, at λ = 1 and at ½, in whole percent."""
    (path,) = shipped_folder().glob("04-*.toml")
    half, one = (finding for finding in read_model(path, Lesson).finding if finding.measure == "before")
    return [exactly(100 * finding.computed(SEEDS)) for finding in (one, half)]


def _of_lesson(finding: Finding, results: Path | None) -> list[Interval]:
    return [exactly(finding.computed(SEEDS), 3)]


# --- playground -------------------------------------------------------------------------------------------------------


MEASURED = ("before", "changed", "stayed")
"""Mean true chance of success before the shift, and after it for what changed and for what stayed."""


def one_seed(preset: Preset, seed: int) -> tuple[float, ...]:
    """What a preset does under one seed, in the order of `MEASURED`."""
    run = run_of(preset.run_settings(seed))
    return tuple([OF_RUN[name](run) for name in MEASURED])


@cache
def _by_seed(name: str) -> pd.DataFrame:
    """What the preset of this name does, in per cent: a row per seed, a column for each of `MEASURED`."""
    (preset,) = (one for one in PRESETS if one.name == name)
    found = [one_seed(preset, seed) for seed in range(1, SEEDS + 1)]
    return 100 * pd.DataFrame(found, columns=MEASURED)


def _playground() -> Iterator[Claim]:
    titles = {
        "default": "default: α = 0.3, λ = 0.5", "stiff": "stiff: α = 0.02", "nervous": "nervous: α = 0.9",
        "forgetful": "forgetful: the latest 24 memories", "blind to q": "blind to q: λ = 0",
        "blind to meaning": "blind to meaning: λ = 1",
    }  # fmt: skip
    for preset in PRESETS:
        row = f"| {titles[preset.name]} |" + 3 * " {} % ({}…{}) |"
        yield Claim("docs/screens.md", row, partial(_of_preset, preset), quick=preset.name in ("default", "blind to q"))


def _of_preset(preset: Preset, results: Path | None) -> list[Interval]:
    columns = (column for _, column in _by_seed(preset.name).items())
    return [exactly(value, 1) for column in columns for value in _mean_with_interval(column)]


def _plane(results: Path | None) -> list[Interval]:
    """By sample_data/plane.json, which `python -m benchmarks.plane` writes."""
    found = json.loads((sample_data_path() / "plane.json").read_text(encoding="utf-8"))
    (model,) = (one for one in found["ghosts"] if one["loss"] == "value")
    as_much = sorted(dot["kept"] for dot in found["dots"] if dot["gained"][0] >= model["gained"][0])
    return [
        *(exactly(100 * value) for value in (*model["kept"], *model["before"])),
        exactly(len(found["dots"])),
        exactly(len(as_much)),
        *(exactly(100 * value) for value in (*model["gained"], *as_much[0], *as_much[-1])),
    ]


# --- room -------------------------------------------------------------------------------------------------------------


def _room() -> Iterator[Claim]:
    """What each question of a room says came of it over 60 seeds, and in how many of them it came otherwise."""

    def open_numbers(sentence: str) -> str:
        return re.sub(NUMBER, lambda number: number[0] if number[0] == f"{STUDENTS}" else "{}", sentence)

    for title, question in QUESTIONS.items():
        effect, otherwise = re.split(r"(?<=\.) (?=In \d)", question.because)
        yield Claim("sample_data/room.toml", open_numbers(effect), partial(_of_question, title))
        yield Claim("sample_data/room.toml", open_numbers(otherwise), partial(_otherwise, title))


def effect_of(question: Question, seeds: int = STUDENTS) -> tuple[float, float, int]:
    """The mean difference that the phones of `seeds` students would report, in percentage points, 1.96 standard errors,
    and how many have the opposite sign of the mean."""

    def share(side: dict[str, object], seed: int) -> float:
        settings = Settings(**{"seed": seed, **side})  # type: ignore[arg-type]
        return fmean(step.success for step in islice(Play(settings), question.since - 1, question.steps))

    # Students' seeds begin with 2.
    found = [
        100 * (share(dict(question.right), seed) - share(dict(question.left), seed)) for seed in range(2, seeds + 2)
    ]
    mean = fmean(found)
    return mean, 1.96 * stdev(found) / seeds**0.5, sum(one * mean < 0 for one in found)


_effect = cache(lambda title: effect_of(QUESTIONS[title]))


def _of_question(title: str, results: Path | None) -> list[Interval]:
    mean, half, _ = _effect(title)
    return [exactly(abs(mean) if "costs" in QUESTIONS[title].because else mean, 1), exactly(half, 1)]


def _otherwise(title: str, results: Path | None) -> list[Interval]:
    return [exactly(_effect(title)[2])]


# --- experiments ------------------------------------------------------------------------------------------------------


WIDE_AND_NOISY = "spread 0.4 · noise 0.4 · repeat 1.0"


def _results(
    name: str, results: Path | None, streams: Sequence[str] = (), arms: Sequence[str] = (), **changes: Any
) -> Any:
    """The plan of a shipped experiment and its results (`epochs.by_epoch`): from RESULTS/NAME, else run anew.

    Anew, only these streams and arms are run, with `changes` of the plan.
    """
    plan = read_plan(sample_data_path() / "experiments" / f"{name}.toml")
    kept = results / name / "results.parquet" if results is not None else None
    if kept is not None and kept.is_file():
        return plan, pd.read_parquet(kept)
    some: dict[str, Any] = plan.model_dump() | changes
    if streams:
        some["streams"] = [stream for stream in some["streams"] if stream["name"] in streams]
    if arms:
        chosen = [arm.model_dump() for arm in plan.all_arms() if arm.name in arms]
        some |= {"grid": {}, "arms": chosen, "compare_with": arms[0]}
    plan = Plan.model_validate(some)
    with tempfile.TemporaryDirectory() as folder:
        return plan, run_experiment(plan, Path(folder), jobs=1).epochs


def _condition(name: str, stream: str, arms: Sequence[str], own: bool, results: Path | None) -> list[Interval]:
    """The row of one condition: last epoch of both arms, the difference in each, and perhaps own memories.

    `arms` are the reference and the arm, in an experiment that has more.
    """
    plan, epochs = _results(name, results, [stream], arms)
    found = conditions(plan, epochs[epochs["arm"].isin(arms)] if arms else epochs)
    rows = found[found["stream"] == stream].sort_values("epoch").to_dict("records")
    values = [rows[-1][name] for name in ("reference", "success")]
    for row in rows:
        values += [row["difference"], row["low"], row["high"]]
    return [exactly(100 * float(value), 1) for value in values] + [exactly(100 * rows[-1]["own_memory"])] * own


def _row(name: str, stream: str, epochs: int, arms: Sequence[str] = ()) -> Claim:
    """The row of one condition in the table of a study."""
    called = f"{stream} · {arms[1]} against {arms[0]}" if arms else stream
    says = f"| {called} | {{}} → {{}} % |" + " {} pp ({}…{}) |" * epochs + " {} % |" * bool(arms)
    return Claim(f"docs/results/{name}.md", says, partial(_condition, name, stream, arms, bool(arms)))


def _gain(name: str, stream: str, arm: str, against: str, results: Path | None, phase: str = LEARN) -> list[Interval]:
    """What an arm adds to another in the last epoch of a stream, in percentage points, and its interval."""
    _, epochs = _results(name, results, [stream], (against, arm))
    learned = epochs[(epochs["phase"] == phase) & (epochs["stream"] == stream)]
    last = learned[learned["epoch"] == learned["epoch"].max()]
    by_arm = last.pivot_table(index="seed", columns="arm", values="accuracy")
    low, high = paired_interval(by_arm[arm].to_numpy(), by_arm[against].to_numpy())
    mean = (by_arm[arm] - by_arm[against]).mean()
    return [exactly(100 * float(value), 1) for value in (mean, low, high)]


def _over_the_run(name: str, stream: str, arm: str, against: str, results: Path | None) -> list[Interval]:
    """What an arm adds to another over all tasks that it learned from, in percentage points, and its interval."""
    _, epochs = _results(name, results, [stream], (against, arm))
    learned = epochs[(epochs["phase"] == LEARN) & (epochs["stream"] == stream)]
    by_arm = learned.pivot_table(index="seed", columns="arm", values="accuracy")
    return _in_percents(_gained(by_arm[arm], by_arm[against]))


def _over_rag(arm: str, results: Path | None) -> list[Interval]:
    """What a method adds to plain RAG; the table's interval draws tasks anew, too, and follows not from seeds alone."""
    return _gain("methods", "household", arm, "rag", results)[:1]


WINDOWS = (("first 80", slice(None, 2)), ("last 80", slice(-2, None)), ("all 320", slice(None)))
"""Of the 320 messages of a seed, by epochs of 40."""


SMOLLM2 = "gguf:smollm2"


def _help_desk(epochs: slice, model: str = SMOLLM2) -> pd.DataFrame:
    """The share right by seed (rows) and arm that a model got in some epochs of the help desk, as the results say that
    ship.
    """
    return _by_arm(pd.read_parquet(sample_data_path() / "real-models.parquet").query("model == @model"), epochs)


def _by_arm(rows: pd.DataFrame, epochs: slice) -> pd.DataFrame:
    """The share right by seed (rows) and arm in some epochs."""
    chosen = rows[rows["epoch"].isin(sorted(rows["epoch"].unique())[epochs])]
    return chosen.pivot_table(index="seed", columns="arm", values="accuracy")


def _gained(one: pd.Series, other: pd.Series) -> tuple[float, float, float]:
    """By how much `one` is ahead of `other`, and the interval, paired by the seeds that both have."""
    one, other = one.dropna().align(other.dropna(), join="inner")
    low, high = paired_interval(one.to_numpy(), other.to_numpy())
    return float((one - other).mean()), float(low), float(high)


def _in_percents(values: Sequence[float]) -> list[Interval]:
    return [exactly(100 * value, 1) for value in values]


def _pair(arm: str, other: str, model: str, epochs: slice) -> Callable[[Path | None], list[Interval]]:
    """What two arms got right at the help desk (see `_compared`)."""
    return lambda results: _compared(_help_desk(epochs, model)[[arm, other]])


def _compared(by_arm: pd.DataFrame) -> list[Interval]:
    """What two arms got right, by how much the other is ahead, and in how many of the seeds that both have."""
    both = by_arm.dropna()
    first, second = (both[arm] for arm in both)
    values = [*_mean_with_interval(first), *_mean_with_interval(second), *_gained(second, first)]
    return [*_in_percents(values), exactly(float((second > first).sum()), 0), exactly(float(len(both)), 0)]


def _credited(stream: str, epochs: slice) -> Callable[[Path | None], list[Interval]]:
    """What SmolLM2 got right in a world with each way to credit (see `_compared`)."""

    def found(results: Path | None) -> list[Interval]:
        rows = pd.read_parquet(sample_data_path() / "real-credit.parquet")
        return _compared(_by_arm(rows[rows["stream"] == stream], epochs)[["prompt", "followed"]])

    return found


def _credit_by_following(results: Path | None) -> list[Interval]:
    """With one memory in the prompt: in how many seeds credit by following ran, in how many shares it is the same."""
    rows = pd.read_parquet(sample_data_path() / "real-models.parquet").query("model == @SMOLLM2")
    shares = rows.pivot_table(index=["seed", "epoch"], columns="arm", values="accuracy")
    both = shares[[LEARNED, f"{LEARNED}, credit by following"]].dropna()
    same = (both[LEARNED] == both[f"{LEARNED}, credit by following"]).sum()
    return [exactly(len(both.index.unique("seed"))), exactly(int(same))] if len(both) == same else []


def _without_memory(epochs: slice) -> Callable[[Path | None], list[Interval]]:
    """What SmolLM2 got right without memory, and by how much λ = 0 is ahead of it."""

    def found(results: Path | None) -> list[Interval]:
        by_arm = _help_desk(epochs)
        without, similar = by_arm["no memory"], by_arm[SIMILAR]
        return _in_percents([*_mean_with_interval(without), *_gained(similar, without)])

    return found


def _demo(results: Path | None) -> list[Interval]:
    """Of the recorded run of a real model: how many messages, and how many of the first and the last 80 were right."""
    with tempfile.TemporaryDirectory() as folder:
        copy_bank(sample_data_path() / RECORDINGS[REAL_DEMO], Path(folder) / "bank")
        with MemoryBank.open(str(Path(folder) / "bank")) as bank:
            rows = bank.steps.rows(bank.runs()[0].id)
    first, last = ([row.outcome for row in part].count("success") for part in (rows[:80], rows[-80:]))
    return [exactly(value) for value in (80, len(rows), first, 80, last)]


def _ahead(arm: str, *others: str) -> Callable[[slice], Callable[[Path | None], list[Interval]]]:
    """What SmolLM2 got right at the help desk in an arm, and by how much that is ahead of others."""

    def in_epochs(epochs: slice) -> Callable[[Path | None], list[Interval]]:
        def found(results: Path | None) -> list[Interval]:
            by_arm = _help_desk(epochs)
            gains = [gain for other in others for gain in _gained(by_arm[arm], by_arm[other])]
            return _in_percents([*_mean_with_interval(by_arm[arm].dropna()), *gains])

        return found

    return in_epochs


def _at_the_end(results: Path | None) -> list[Interval]:
    """What the arms get right of the last 80 messages: λ = 0, MemRL and its gain, and three over successes."""
    last = WINDOWS[1][1]
    by_similarity, (learned, _, _, *gain) = _ahead(SIMILAR)(last)(results), _ahead(LEARNED, SIMILAR)(last)(results)
    return [by_similarity[0], learned, *gain, *(_ahead(arm)(last)(results)[0] for arm in (ALONE, OVER, ABOVE))]


def _in_whole_percents(results: Path | None) -> list[Interval]:
    """The same shares of the five arms, without the gain."""
    similar, learned, _, _, _, *over_successes = map(fmean, _at_the_end(results))
    return [exactly(share) for share in (similar, learned, *over_successes)]


SIMILAR, LEARNED = "λ = 0, k2 = 1", "MemRL, k2 = 1"
ALONE, OVER = "successes alone, k2 = 1", "MemRL over successes, k2 = 1"
ABOVE = "successes above a learned threshold, k2 = 1"
AHEAD = {
    "{} messages": _ahead(ALONE, SIMILAR, LEARNED),
    "{}, over successes": _ahead(OVER, ALONE, LEARNED, SIMILAR),
    "{}, above a threshold": _ahead(ABOVE, ALONE, OVER),
}
"""The rows of three tables of docs/real-models.md."""
FOLLOWING = "MemRL, k2 = 3, credit by following"
PAIRS = {
    "": (SIMILAR, LEARNED, SMOLLM2),
    ", k2 = 3": ("λ = 0, k2 = 3", "MemRL, k2 = 3", SMOLLM2),
    ", following": ("MemRL, k2 = 3", FOLLOWING, SMOLLM2),
    ", 0.5B": (SIMILAR, LEARNED, "gguf:qwen2.5-coder-0.5b.gguf"),
    ", 1.5B": ("λ = 0, k2 = 3", "MemRL, k2 = 3", "gguf:qwen2.5-coder-1.5b.gguf"),
}
"""Two arms and the model of the rows of other tables there, by what stands behind the window in their first cell."""
CREDITED = (
    ("parametric, first 160", "parametric", slice(None, 4)),
    ("parametric, last 160", "parametric", slice(-4, None)),
    ("household, all 160", "household", slice(None)),
)
"""The rows of another table there: the first cell, the world and the epochs of 40 tasks."""


def _in_world(stream: str, *epochs: int) -> pd.DataFrame:
    """The share right by seed (rows) and arm that SmolLM2 got in a world, in some epochs or all; by what ships."""
    rows = pd.read_parquet(sample_data_path() / "real-worlds.parquet").query("stream == @stream")
    chosen = rows[rows["epoch"].isin(epochs)] if epochs else rows
    return chosen.pivot_table(index="seed", columns="arm", values="accuracy")


def _real_model(stream: str) -> Callable[[Path | None], list[Interval]]:
    """What SmolLM2 got right in a world: without memory, by similarity, with MemRL."""

    def found(results: Path | None) -> list[Interval]:
        by_arm = _in_world(stream)
        values = [value for arm in ("no memory", "similarity", "MemRL") for value in _mean_with_interval(by_arm[arm])]
        return _in_percents([*values, *_gained(by_arm["MemRL"], by_arm["similarity"])])

    return found


def _last_help_desk(results: Path | None) -> list[Interval]:
    """What MemRL adds in the last 40 messages, and by how much successes alone are worse than all memories."""
    last, whole = _in_world("helpdesk", 4), _in_world("helpdesk")
    worse = _gained(whole["similarity"], whole["similarity over successes"])
    return _in_percents([*_gained(last["MemRL"], last["similarity"]), *worse])


def _parametric(results: Path | None) -> list[Interval]:
    """The mean of three arms in the parametric world, and what MemRL adds there to similarity."""
    by_arm = _in_world("parametric")
    means = [float(by_arm[arm].mean()) for arm in ("no memory", "similarity", "MemRL")]
    return _in_percents([*means, *_gained(by_arm["MemRL"], by_arm["similarity"])])


def _household_ends(results: Path | None) -> list[Interval]:
    """What MemRL adds in the last 40 tasks of the household, and what three arms solve of the first and the last 40."""
    first, last = _in_world("household", 1), _in_world("household", 4)
    arms = ("similarity", "MemRL", "similarity over successes")
    ends = [float(part[arm].mean()) for arm in arms for part in (first, last)]
    return _in_percents([*_gained(last["MemRL"], last["similarity"]), *ends])


def _ranks_or_excludes(results: Path | None) -> list[Interval]:
    """Of the last 80 messages: what q adds to successes alone, and the interval of what ranking adds to excluding; of
    the first 80: what ranking adds, its interval, and in how many seeds it is ahead."""
    last, first = _help_desk(WINDOWS[1][1]), _help_desk(WINDOWS[0][1])
    added, _, _ = _gained(last[OVER], last[ALONE])
    _, low, high = _gained(last[OVER], last[ABOVE])
    early, *between = _gained(first[OVER], first[ABOVE])
    ahead = int((first[OVER] > first[ABOVE]).sum())
    return [
        exactly(100 * added), *_in_percents([low, high]),
        exactly(100 * early), *_in_percents(between), exactly(ahead), exactly(len(first[OVER].dropna())),
    ]  # fmt: skip


def _over_similarity(results: Path | None) -> list[Interval]:
    last = _help_desk(WINDOWS[1][1])
    return [exactly(100 * _gained(last[LEARNED], last[SIMILAR])[0])]


def _taken_at_hand(results: Path | None) -> list[Interval]:
    """In how many messages Qwen2.5-Coder 1.5B took what was right, and in how many that stood in the prompt."""
    rows = pd.read_parquet(sample_data_path() / "real-models.parquet")
    rows = rows[rows["model"] == PAIRS[", 1.5B"][2]]
    return [exactly(int(rows[column].sum())) for column in ("taken", "at_hand")]


def _in_the_prompt(count: str, *arms: str, model: str = SMOLLM2) -> Callable[[Path | None], list[Interval]]:
    """Of a model's last 80 messages, how many per cent had this in the prompt, by arm."""

    def found(results: Path | None) -> list[Interval]:
        rows = pd.read_parquet(sample_data_path() / "real-models.parquet")
        rows = rows[rows["model"] == model]
        last = rows[rows["epoch"].isin(sorted(rows["epoch"].unique())[WINDOWS[1][1]])]
        sums = last.groupby("arm")[[count, "tasks"]].sum(min_count=1)
        return [exactly(100 * float(sums.loc[arm, count]) / float(sums.loc[arm, "tasks"])) for arm in arms]

    return found


SIMULATED_ARMS = ("no memory", "similarity", "similarity over successes", "MemRL")


@cache
def _simulated() -> pd.DataFrame:
    """The share right of the simulated model at the help desk, by seed, and epoch and arm (columns); run anew."""
    _, epochs = _results("real-worlds", None, ["helpdesk"], model="simulated", seeds=10)
    return epochs[epochs["phase"] == LEARN].pivot_table(index="seed", columns=["epoch", "arm"], values="accuracy")


def _simulated_in(*epochs: int) -> pd.DataFrame:
    """The same by seed and arm, in some epochs of 40 messages, or in all four."""
    return pd.concat([_simulated()[epoch] for epoch in epochs or (1, 2, 3, 4)]).groupby(level="seed").mean()


def _simulated_row(arm: str) -> Callable[[Path | None], list[Interval]]:
    """What an arm of the simulated model gets right of all messages, of the first 40 and of the last."""

    def found(results: Path | None) -> list[Interval]:
        parts = (_simulated_in(*epochs)[arm] for epochs in ((), (1,), (4,)))
        return _in_percents([value for part in parts for value in _mean_with_interval(part)])

    return found


def _simulated_gains(results: Path | None) -> list[Interval]:
    """By how much no memory is worse than similarity, and MemRL better, over all messages and over the last 40."""
    whole, last = _simulated_in(), _simulated_in(4)
    gains = [_gained(whole["similarity"], whole["no memory"])]
    gains += [_gained(part["MemRL"], part["similarity"]) for part in (whole, last)]
    return _in_percents([value for gain in gains for value in gain])


LAYOUTS = "docs/results/layouts.md"
MODELS = ("smollm2", "qwen2.5-coder-0.5b.gguf", "qwen2.5-coder-1.5b.gguf")


@cache
def _layouts(table: int) -> dict[tuple[str, str, int], list[float]]:
    """The numbers of a row by model, layout and k2, as a table of the page of layouts has them, which `memrl layouts`
    measures and `docs/write_results.py` writes: their results take hours and do not ship.
    """
    tables = (ROOT / LAYOUTS).read_text(encoding="utf-8").split("**Layouts: ")[1:]
    rows = re.findall(r"^\| gguf:([^,]+), (.+), (\d) \|(.+)\|$", tables[table], re.MULTILINE)
    return {
        (model, layout, int(k2)): [float(number) for number in re.findall(r"\d+(?:\.\d+)?", rest)]
        for model, layout, k2, rest in rows
    }


NONE, RIGHT, AT_HAND, SHOWN, TAKEN, REPEATED, FAILED = 1, 0, 9, 10, 13, 17, 18
"""Where a row of one seed has the share right without memory; where any row has the share right; in how many messages
the right answer was at hand, of how many; in how many of these it was taken; and how often a lone failure was repeated,
of how many."""


def _by_layout(table: int, *asked: tuple[int, str, int, int]) -> list[Interval]:
    """Numbers of a table: of which model, layout and k2, and which number of its row."""
    return [exactly(_layouts(table)[MODELS[model], layout, k2][number], 1) for model, layout, k2, number in asked]


def _turns(results: Path | None) -> list[Interval]:
    """The share right of each model with turns at k2 = 1 and 3, and with a transcript."""
    asked = [(model, layout, k2, RIGHT) for model in range(3) for layout in ("turns", "transcript") for k2 in (1, 3)]
    return _by_layout(0, *asked)


def _block(results: Path | None) -> list[Interval]:
    return _by_layout(0, *[(model, "block", k2, RIGHT) for model in range(3) for k2 in (1, 3)])


def _choices(results: Path | None) -> list[Interval]:
    """How many points each model loses by the list of choices: 0.5B at k2 = 1 (and 3), SmolLM2 at 1, 1.5B at 3."""
    lost = {
        (model, k2): rows[model, "transcript", k2][RIGHT] - rows[model, "transcript, choices in the prompt", k2][RIGHT]
        for rows in [_layouts(0)]
        for model in MODELS
        for k2 in (1, 3)
    }
    small, middle, large = MODELS
    either = sorted((lost[middle, 1], lost[middle, 3]))
    return [(either[1] - 0.05, either[0] + 0.05), *(exactly(lost[one], 1) for one in ((small, 1), (large, 3)))]


def _named_failures(results: Path | None) -> list[Interval]:
    """How often each model did what a lone failure names, of how many, and what one does not name."""
    named = [(model, "transcript, failures named", 1, REPEATED) for model in range(3)]
    unnamed = [(model, "transcript", 1, REPEATED) for model in range(3)]
    return _by_layout(0, *named, (0, "transcript", 1, FAILED), *unnamed)


def _taken(results: Path | None) -> list[Interval]:
    asked = [(0, TAKEN), (0, AT_HAND), (1, TAKEN), (2, TAKEN)]
    return _by_layout(0, *((model, "transcript", 1, number) for model, number in asked))


def _best_layout(results: Path | None) -> list[Interval]:
    """By how many points any layout is ahead of the default for any model with one or three memories, at the most: the
    sentence holds above.
    """
    ahead = [
        numbers[RIGHT] - rows[model, "transcript", k2][RIGHT]
        for rows in (_layouts(0), _layouts(1))
        for (model, _, k2), numbers in rows.items()
        if k2 < 5
    ]
    return [(max(ahead), float("inf"))]


def _best_last(results: Path | None) -> list[Interval]:
    """What each model, the largest first, gets right of five memories with the best one last, and with it first; none
    where another layout is ahead of the default by more than 20 points.
    """
    rows = _layouts(2)
    ahead = {key: numbers[RIGHT] - rows[key[0], "transcript", 5][RIGHT] for key, numbers in rows.items()}
    if [key for key, points in ahead.items() if points > 20] != [(MODELS[2], "transcript, best memory last", 5)]:
        return []
    asked = [
        (model, layout, 5, RIGHT) for model in (2, 1, 0) for layout in ("transcript, best memory last", "transcript")
    ]
    return _by_layout(2, *asked)


def _five_memories(results: Path | None) -> list[Interval]:
    asked = [(0, AT_HAND), (0, RIGHT), (1, RIGHT), (2, RIGHT)]
    of = [_by_layout(table, (one, "transcript", k2, number)) for one, number in asked for table, k2 in ((2, 5), (0, 3))]
    return [interval for intervals in of for interval in intervals]


def _minilm(results: Path | None) -> list[Interval]:
    """For how many messages the right answer is at hand at k2 = 1, by each embedder, and what is right by MiniLM."""
    at_hand = [
        interval
        for table in (1, 0)
        for interval in _by_layout(table, *((0, "transcript", 1, n) for n in (AT_HAND, SHOWN)))
    ]
    return at_hand + _by_layout(1, *((model, "transcript", k2, RIGHT) for model in range(3) for k2 in (1, 3, 5)))


def _in_the_household(results: Path | None) -> list[Interval]:
    """How many of 20 tasks each model solves in each layout, and without memory."""
    layouts = ("transcript", "transcript, all observations", "transcript, choices in the prompt", "turns")
    asked = [(layout, RIGHT) for layout in layouts] + [("transcript", NONE)]
    return [exactly(round(_layouts(3)[model, layout, 3][number] / 5)) for layout, number in asked for model in MODELS]


def _mean_with_interval(values: pd.Series) -> tuple[float, float, float]:
    low, high = seed_interval(values.to_numpy())
    return float(values.mean()), float(low), float(high)


@cache
def _falls_in_the_lab() -> list[tuple[float, float]]:
    """By how many points the share solved falls at the shift of the Lab's first pair in each seed, left and right."""
    falls = []
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as folder, lab_bank(Path(folder) / "bank") as bank:
            falls.append(fall_at_the_shift(seed, bank))
    return falls


def _lab(results: Path | None) -> list[Interval]:
    """The mean of either side, and half of its 95 % interval."""
    sides = [(fmean(side), 1.96 * stdev(side) / SEEDS**0.5) for side in zip(*_falls_in_the_lab(), strict=True)]
    return [exactly(number) for mean_and_half in sides for number in mean_and_half]


CLAIMS: tuple[Claim, ...] = (
    *_lessons(),
    *(Claim(one.where, one.says, lambda results: [], bounds=one.bounds) for one in sentences()),
    Claim("docs/teaching.md", "at λ = 1 the agent does {} % and not {} before the shift", _teaching),
    *_playground(),
    *_room(),
    Claim(
        "docs/screens.md",
        "a linear model of the reward keeps {} ± {} % of the {} ± {} % that it could before. Of the {} settings of the "
        "memory {} gain at least as much ({} ± {} %), and they keep {} ± {} to {} ± {} %.",
        _plane,
        quick=True,
    ),
    Claim(
        "docs/real-models.md",
        "Without memory {} % of the messages go to the right team ({}…{}), with the most similar memories {} % "
        "({}…{}), with MemRL {} % ({}…{}): a difference of {} points ({}…{})",
        _real_model("helpdesk"),
        quick=True,
    ),
    *(
        Claim(
            "docs/real-models.md",
            f"| {name}{tag} | {{}} % ({{}}…{{}}) | {{}} % ({{}}…{{}}) | {{}} points ({{}}…{{}}) | {{}} of {{}} |",
            _pair(*pair, epochs),
            quick=True,
        )
        for tag, pair in PAIRS.items()
        for name, epochs in WINDOWS
    ),
    *(
        Claim(
            "docs/real-models.md",
            f"| {name} | {{}} % ({{}}…{{}}) | {{}} % ({{}}…{{}}) | {{}} points ({{}}…{{}}) | {{}} of {{}} |",
            _credited(stream, epochs),
            quick=True,
        )
        for name, stream, epochs in CREDITED
    ),
    *(
        Claim(
            "docs/real-models.md",
            f"| {name}, no memory | {{}} % ({{}}…{{}}) | {{}} points ({{}}…{{}}) |",
            _without_memory(epochs),
            quick=True,
        )
        for name, epochs in WINDOWS
    ),
    Claim(
        "docs/real-models.md",
        "in {} seeds, all {} shares of 40 messages are equal to those of MemRL",
        _credit_by_following,
        quick=True,
    ),
    Claim(
        "README.md",
        "{} % right with the most similar memory and {} % with MemRL (+{} points, +{}…+{}, ten seeds), {} % with the "
        "most similar success, {} % with MemRL over successes, and {} % where q only excludes memories and similarity "
        "ranks them",
        _at_the_end,
        quick=True,
    ),
    Claim(
        "docs/real-models.md",
        "SmolLM2 gets {} % right with the most similar memory, {} % with MemRL, {} % with the most similar success, "
        "{} % with MemRL over successes, and {} % where q only excludes",
        _in_whole_percents,
        quick=True,
    ),
    Claim(
        "docs/results/index.md",
        "it gets {} % right by similarity, {} % with MemRL, {} % by similarity over successes alone, {} % with MemRL "
        "over successes and {} % where q only excludes",
        _in_whole_percents,
        quick=True,
    ),
    Claim(
        "pages/home/page.py",
        "of its first {} of {} messages it got {} right, of the last {} it got {}",
        _demo,
        quick=True,
    ),
    *(
        Claim(
            "docs/real-models.md",
            f"| {row.format(name)} | {{}} % ({{}}…{{}})" + " | {} points ({}…{})" * others + " |",
            ahead(epochs),
            quick=True,
        )
        for (row, ahead), others in zip(AHEAD.items(), (2, 3, 2), strict=True)
        for name, epochs in WINDOWS
    ),
    Claim(
        "docs/real-models.md",
        "Without memory it solves {} % of the new tasks ({}…{}), with the most similar memories {} % ({}…{}), with "
        "MemRL {} % ({}…{}): a difference of {} points ({}…{})",
        _real_model("household"),
        quick=True,
    ),
    Claim(
        "docs/real-models.md",
        "and {} ({}…{}) in the last 40 messages. Similarity over successes alone is worse by {} points ({}…{})",
        _last_help_desk,
        quick=True,
    ),
    Claim(
        "docs/real-models.md",
        "{} % without memory, {} % with the most similar, {} % with MemRL (against similarity {} points, {}…{})",
        _parametric,
        quick=True,
    ),
    Claim(
        "docs/real-models.md",
        "and {} ({}…{}) in the last 40 tasks. The help of memory comes from the handbook, and shrinks over the run: "
        "by similarity {} % of the first 40 tasks are solved and {} % of the last, by MemRL {} and {}. Failures beside "
        "the handbook are not the cause, for with successes alone it is {} and {}",
        _household_ends,
        quick=True,
    ),
    Claim(
        "docs/real-models.md",
        "q adds {} points there over successes alone; what ranking adds to excluding lies between {} and {} points. In "
        "the first 80 messages ranking adds {} points ({}…{}), in {} of {} seeds",
        _ranks_or_excludes,
        quick=True,
    ),
    Claim("docs/real-models.md", "So the {} points of MemRL over λ = 0 above", _over_similarity, quick=True),
    Claim(
        "docs/real-models.md",
        "has one in the prompt of {} % of the last 80 messages with λ = 0 and of {} % with MemRL",
        _in_the_prompt("failing", *PAIRS[", 0.5B"][:2], model=PAIRS[", 0.5B"][2]),
        quick=True,
    ),
    *(
        Claim("docs/real-models.md", says, _in_the_prompt(count, *arms), quick=True)
        for says, count, arms in (
            (
                "a failure stands in the prompt of {} % with λ = 0 and of {} % with MemRL",
                "failing",
                ("λ = 0, k2 = 3", "MemRL, k2 = 3"),
            ),
            (
                "stands in that of {} % with λ = 0, of {} % with MemRL and of {} % with credit by following",
                "at_hand",
                ("λ = 0, k2 = 3", "MemRL, k2 = 3", FOLLOWING),
            ),
            (
                "a failure stands in the prompt of {} % of the last 80 messages, in place of {} %",
                "failing",
                (FOLLOWING, "MemRL, k2 = 3"),
            ),
        )
    ),
    Claim(
        "docs/real-models.md",
        "It takes what is right where it is at hand in {} of {} messages",
        _taken_at_hand,
        quick=True,
    ),
    *(
        Claim(
            "docs/real-models.md",
            f"| {arm} | {{}} % ({{}}…{{}}) | {{}} % ({{}}…{{}}) | {{}} % ({{}}…{{}}) |",
            _simulated_row(arm),
        )
        for arm in SIMULATED_ARMS
    ),
    Claim(
        "docs/real-models.md",
        "Against similarity, no memory is worse by {} points ({}…{}). **MemRL gains as utilities are learned**: {} "
        "points ({}…{}) over all messages and {} ({}…{}) over the last 40",
        _simulated_gains,
    ),
    *(
        Claim("docs/real-models.md", says, compute, quick=True)
        for says, compute in (
            (
                "SmolLM2 {} and {} % in place of {} and {}, the 0.5B model {} and {} in place of {} and {}, the 1.5B "
                "model {} and {} in place of {} and {}",
                _turns,
            ),
            ("hardly more than without memory ({} and {} %; {} and {}), the largest {} and {}", _block),
            (
                "the 0.5B model got {} points less at either k2, SmolLM2 {} less at k2 = 1, and the 1.5B model as much "
                "and {} less",
                _choices,
            ),
            ("the models did just that in {}, {} and {} of {} messages; unnamed, in {}, {} and {}", _named_failures),
            ("SmolLM2 took it in {} of {} messages, the 0.5B model in {}, the 1.5B model in {}", _taken),
            (
                "a difference of less than some {} points shows nothing. **With one and three memories no layout does "
                "better than the default for any of the three by more than that**",
                _best_layout,
            ),
            (
                "with the best memory last the 1.5B model gets {} % right in place of {}; the 0.5B model {} in place "
                "of {} and SmolLM2 {} in place of {}, so",
                _best_last,
            ),
            (
                "the right answer is at hand in {} of 40 messages in place of {}, and no model gets more right: "
                "SmolLM2 {} % in place of {} with three, the 0.5B model {} in place of {}, the 1.5B model {} in place "
                "of {}",
                _five_memories,
            ),
            (
                "for {} of {} messages in place of {} of {} with one memory, and SmolLM2 gets {}, {} and {} % right at "
                "k2 = 1, 3 and 5, the 0.5B model {}, {} and {}, the 1.5B model {}, {} and {}",
                _minilm,
            ),
            (
                "with the latest observation SmolLM2 solves {} of 20, the 0.5B model {} and the 1.5B model {}; with "
                "all observations {}, {} and {}; with the list of choices in the prompt {}, {} and {}; as earlier "
                "exchanges of the chat {}, {} and {}; without memory {}, {} and {}",
                _in_the_household,
            ),
        )
    ),
    Claim("docs/screens.md", "falls by {} ± {} points at λ = 0 and by {} ± {} at λ = ½", _lab),
    Claim("pages/lab/twins.py", 'falls by {} ± {} points at " "λ = 0 and by {} ± {} at λ = ½', _lab),
    _row("when-utility-helps", WIDE_AND_NOISY, 5),
    _row("what-decides", "tasks parametric-far", 5, ("λ = 0.0, k2 = 1", "λ = 0.5, k2 = 1")),
    _row("other-families", "middle", 1, ("λ = 0.0, δ = 0.2", "λ = 1.0, δ = 0.2")),
    _row("other-families", "middle", 1, ("λ = 0.0, δ = 0.5", "λ = 1.0, δ = 0.5")),
    Claim(
        "docs/results/main-comparison.md",
        "| MemRL (λ = 0.5) | 84.5 % (81.0…87.7) | {} pp ({}…{}) |",
        partial(_gain, "main-comparison", "household", "MemRL (λ = 0.5)", "similarity alone (λ = 0)"),
    ),
    *(
        Claim("docs/results/methods.md", f"| {arm} | {last} pp (+{wide}) | {{}} pp", partial(_over_rag, arm))
        for arm, last, wide in (
            ("memrl", "paper | 66.7 % (58.0…76.0) | +58.0", "46.0…+72.0"),
            ("exprag", "adapted | 60.0 % (53.3…66.0) | +51.3", "40.7…+62.7"),
        )
    ),
    *(
        Claim(
            "docs/results/lambda.md",
            f"| {arm} | {last} | {{}} pp ({{}}…{{}}) |",
            partial(_gain, "lambda", "household", arm, "λ = 0"),
        )
        for arm, last in (("λ = 0.25", "84.8 % (81.8…87.8)"), ("λ = 1", "79.7 % (77.0…82.2)"))
    ),
    *(
        Claim(
            "docs/results/without-own-task.md",
            f"| own_memories {own} · MemRL | {success} | {{}} pp ({{}}…{{}}) |",
            partial(_gain, "without-own-task", f"own_memories {own}", "MemRL", "similarity"),
        )
        for own, success in ((True, "66.0 % (61.3…71.0)"), (False, "19.3 % (13.0…26.3)"))
    ),
    Claim(
        "docs/results/index.md",
        "moving only the memories that the answer follows adds {} points ({} to {}) at the help desk over all tasks",
        partial(_over_the_run, "credit", "helpdesk", "followed", "prompt"),
    ),
    Claim(
        "docs/results/index.md",
        "shows no difference in the parametric world, {} ({} to {})",
        partial(_over_the_run, "credit", "parametric", "followed", "prompt"),
    ),
    Claim(
        "docs/results/transfer.md",
        "| MemRL (λ = 0.5) | household-heldout | 31.5 % (28.5…34.5) | {} pp ({}…{}) |",
        partial(_gain, "transfer", "household", "MemRL (λ = 0.5)", "similarity alone (λ = 0)", phase=EVALUATE),
    ),
)
"""All that is stated as a finding. What a real model did is read from the results that ship: it takes hours."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A claim beside what was computed for it; `why` says why it does not hold, and is empty where it does."""

    claim: Claim
    numbers: Sequence[tuple[float, Interval]]
    why: str = ""
    found: Sequence[str] = ()


def checked(claim: Claim, root: Path, results: Path | None = None, first_seed: int | None = None) -> Checked:
    """The claim, computed again; its bounds on the 40 seeds from `first_seed` on, by default those of today."""
    try:
        stated = claim.stated((root / claim.where).read_text(encoding="utf-8"))
    except OSError:
        return Checked(claim, (), "the document is not there")
    if stated is None:
        return Checked(claim, (), "the document does not say this any more: change the claim with it")
    try:
        computed = claim.compute(results)
    except (MemRLError, LookupError, OSError, ValueError) as error:
        return Checked(claim, (), f"it cannot be computed: {error or type(error).__name__}")
    if len(computed) != len(stated):
        return Checked(claim, (), f"it states {len(stated)} numbers, and {len(computed)} can be computed")
    numbers = list(zip(stated, computed, strict=True))
    wrong = [f"{value:g} is not in {low:.4g}…{high:.4g}" for value, (low, high) in numbers if not low <= value <= high]
    first = first_fresh_seed() if first_seed is None else first_seed
    found = [one for bound in claim.bounds for one in bound.found(range(first, first + FRESH))]
    wrong += [f"refuted: {words}" for words, holds in found if not holds]
    return Checked(claim, numbers, "; ".join(wrong), [words for words, _ in found])


def all_checked(quick: bool, results: Path | None, first_seed: int | None = None) -> Iterator[Checked]:
    """Every claim, or those that take seconds only, checked.

    Raises `InputError` where the documents are not there: they are not installed with the package.
    """
    if not (ROOT / "docs" / "screens.md").is_file():
        raise InputError(
            "The documents are not part of an installed memrl-inspector. Run `memrl claims check` from a checkout of "
            "its source, beside the folder docs/. Nothing was computed."
        )
    return (checked(claim, ROOT, results, first_seed) for claim in CLAIMS if claim.quick or not quick)
