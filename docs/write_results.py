"""Write the site's tables from measurements: `python docs/write_results.py FOLDER ... BENCH.json ...`.

A folder is one of `memrl experiment`, or of `memrl layouts`; all of these go to one page. Finished cells of
real-models.toml and real-credit.toml with a language model are added to those in sample_data instead, and the pictures
of the former drawn anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import paired_interval, seed_interval
from memrl_core.analysis.run.theory import order_probability, visits_to_order
from memrl_core.environments.parametric import FAMILIES, Parametric
from memrl_core.experiments.cells import LEARN
from memrl_core.experiments.epochs import axes, by_seed, conditions, gains
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.prompt_layouts import Layouts, layout_reports
from memrl_core.experiments.report_table import difference, markdown
from memrl_core.figures.palette import DASHED_LINES, NAMED_LINES

PAGES = Path(__file__).parent
RESULTS = PAGES / "results"
STUDY = "when-utility-helps"
DATA = Path(__file__).parents[1] / "sample_data" / f"{STUDY}.parquet"
"""The study's results, which the Lab shows."""
REAL = DATA.with_name("real-models.parquet")
"""The results with real models that the page of this name, Home and the claims read, of every model (see `keep`)."""
CREDIT = DATA.with_name("real-credit.parquet")
"""Those of credit by following in worlds other than the help desk, likewise."""
SHOWN = ["model", "stream", "arm", "seed", "epoch", "tasks", "accuracy"]
COUNTED = ["failing", "follows", "at_hand", "taken"]
"""Steps of an epoch with a failure in the prompt, that follow a memory, with what is right at hand, that took it; not
known of the first cells."""
ALPHA = 0.3
GREY = "#7f858e"
"""Read on the light and on the dark page alike."""
COLOURS = tuple(colour for colour, _ in DASHED_LINES) + NAMED_LINES


def experiment(folder: Path) -> str:
    """The page of an experiment: its question, the command, and the report that it wrote."""
    plan = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))["plan"]
    command = f"memrl experiment sample_data/experiments/{folder.name}.toml --out ./{folder.name}"
    report = (folder / "report.md").read_text(encoding="utf-8")
    scale = f"{plan['seeds']} seeds, {plan['epochs']} epochs, model: {plan['model']}, embedder: {plan['embedder']}."
    findings = study(folder) if "conditions" in plan.get("report", ()) else ""
    head = f"# {plan['title']}\n\n{plan['question']}\n\n```sh\n{command}\n```\n\n{scale}"
    shown = picture(folder, RESULTS) if (folder / "results.parquet").exists() else ""
    return f"{head}{shown}{findings}\n\n{report.rstrip()}\n"


def picture(folder: Path, into: Path) -> str:
    """Draw what the arms of the one stream solve in each epoch and their differences in the last, and link it.

    Nothing is drawn of several streams: their shares have no common floor and ceiling.
    """
    plan = Plan.model_validate(json.loads((folder / "experiment.json").read_text(encoding="utf-8"))["plan"])
    epochs, file = pd.read_parquet(folder / "results.parquet"), into / f"{folder.resolve().name}.svg"
    learned = epochs[epochs["phase"] == LEARN]
    if learned["stream"].nunique() != 1 or learned["arm"].nunique() > len(COLOURS):
        return ""
    measure = "chance" if learned["chance"].notna().all() else "accuracy"
    shares = learned.pivot_table(index=["arm", "seed"], columns="epoch", values=measure, sort=False)
    found = conditions(plan, epochs)
    last = found[found["epoch"] == found["epoch"].max()] if len(found) else found
    _draw(shares, last, ("epoch", "difference in the last epoch, points"), file)
    means = ", ".join(
        f"{arm} {100 * part.mean().iloc[-1]:.0f} %" for arm, part in shares.groupby(level="arm", sort=False)
    )
    alt = f"What is solved in each epoch, with 95 % intervals over seeds; in the last: {means}. Right: the differences."
    return f"\n\n![{alt}]({file.name})"


def _draw(shares: pd.DataFrame, last: pd.DataFrame, axes: tuple[str, str], file: Path) -> None:
    """Draw the share of each arm over the columns of `shares` (rows: arm, seed), and the differences beside it.

    `last` has a row for each difference: arm, against, difference, low, high.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    with pyplot.rc_context(_look(file)):
        figure, (curves, dots) = pyplot.subplots(1, 2, figsize=(11, 4), width_ratios=(3, 2), layout="constrained")
        for colour, (arm, part) in zip(COLOURS, shares.groupby(level="arm", sort=False), strict=False):
            low, high = seed_interval(part.to_numpy(dtype=np.float64))
            curves.plot(part.columns, 100 * part.mean(), color=colour, marker="o", markersize=3, label=arm)
            curves.fill_between(part.columns, 100 * low, 100 * high, color=colour, alpha=0.2, linewidth=0)
        for value in (0, 100):
            curves.axhline(value, color=GREY, linestyle=":", linewidth=1)
        curves.set(xlabel=axes[0], ylabel="solved, %", ylim=(-4, 104), xticks=shares.columns)
        figure.legend(*curves.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower left", ncols=4)
        for row, one in enumerate(reversed(last.to_dict("records"))):
            dots.plot([100 * one["low"], 100 * one["high"]], [row, row], color=COLOURS[0], linewidth=2)
            dots.plot(100 * one["difference"], row, "o", color=COLOURS[0])
        names = [f"{arm}\nagainst {other}" for arm, other in zip(last["arm"], last["against"], strict=True)]
        dots.set_yticks(range(len(names)), names[::-1], fontsize=8)
        dots.axvline(0, color=GREY, linewidth=1)
        dots.set(xlabel=axes[1], ylim=(-0.6, len(names) - 0.4))
        _save(figure, file)


def keep(folder: Path, file: Path) -> None:
    """Add the finished cells of an experiment with a language model to a file that ships, in place of the same ones."""
    plan = Plan.model_validate(json.loads((folder / "experiment.json").read_text(encoding="utf-8"))["plan"])
    found = pd.read_parquet(folder / "results.parquet").query("phase == @LEARN")
    found["model"] = re.sub("gguf:.*/", "gguf:", plan.model)
    steps = pd.read_parquet(folder / "steps.parquet").query("phase == @LEARN")
    counts = steps.assign(
        failing=["failure" in outcomes for outcomes in steps["used_outcome"]],
        follows=[memories is not None and len(memories) > 0 for memories in steps["follows"]],
        at_hand=steps["at_hand"].eq(True),
        taken=steps["taken"].eq(True),
    )
    by_epoch = counts.groupby(["stream", "arm", "seed", "epoch"])[COUNTED].sum().astype("Int64").reset_index()
    kept = found[SHOWN].merge(by_epoch, on=["stream", "arm", "seed", "epoch"], how="left")
    rows = pd.concat([*([pd.read_parquet(file)] if file.exists() else []), kept], ignore_index=True)
    rows.drop_duplicates(["model", "stream", "arm", "seed", "epoch"], keep="last").to_parquet(file, index=False)


def draw_real_models() -> None:
    """Draw what each model gets right at the help desk with as many memories in its prompt, and print the links."""
    rows = pd.read_parquet(REAL)
    rows["k2"] = rows["arm"].str.extract(r"k2 = (\d+)")[0].fillna("1")
    for (model, k2), part in rows.groupby(["model", "k2"], sort=False):
        if part["seed"].nunique() < 2:  # One seed has no band.
            continue
        messages = part["epoch"] * part["tasks"]
        part = part.assign(messages=messages, arm=part["arm"].str.replace(f", k2 = {k2}", ""))
        shares = part.pivot_table(index=["arm", "seed"], columns="messages", values="accuracy", sort=False)
        last = shares.iloc[:, -2:].mean(axis="columns").unstack("arm")[list(part["arm"].unique())]
        similar = "λ = 0"
        found = []
        for arm in last.columns.drop(similar):
            both = last[[arm, similar]].dropna()
            low, high = paired_interval(both[arm].to_numpy(), both[similar].to_numpy())
            found.append((arm, similar, (both[arm] - both[similar]).mean(), low, high))
        columns = ["arm", "against", "difference", "low", "high"]
        picture = PAGES / f"{REAL.stem}-{re.sub('[^a-z0-9.]+', '-', model)}-{k2}.svg"
        _draw(shares, pd.DataFrame(found, columns=columns), ("messages", "difference in the last 80, points"), picture)
        means = ", ".join(f"{arm} {100 * last[arm].mean():.0f} %" for arm in last.columns)
        alt = f"What is right of each 40 messages, with 95 % intervals over seeds; of the last 80: {means}."
        print(f"![{alt} Right: the differences.]({picture.name})")


def _look(file: Path) -> dict[Any, Any]:
    greys = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "legend.labelcolor")
    return {"svg.hashsalt": file.name, **dict.fromkeys(greys, GREY)}


def _save(figure: Any, file: Path) -> None:
    from matplotlib import pyplot

    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, transparent=True, metadata={"Date": None})
    pyplot.close(figure)


def picture_of_gains(rows: pd.DataFrame, names: Sequence[str], file: Path) -> str:
    """Draw the gain in the first and the last epoch by each parameter, the mean over the others, and link it."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    ends = (int(rows["epoch"].min()), int(rows["epoch"].max()))
    with pyplot.rc_context(_look(file)):
        figure, panels = pyplot.subplots(
            1, len(names), figsize=(11, 3.4), sharey=True, squeeze=False, layout="constrained"
        )
        for name, panel in zip(names, panels[0], strict=True):
            found = gains(rows, [name, "epoch"])
            for shift, epoch, colour in zip((-0.08, 0.08), ends, COLOURS, strict=False):
                part = found[found["epoch"] == epoch]
                at = np.arange(len(part)) + shift
                panel.vlines(at, 100 * part["low"], 100 * part["high"], color=colour, linewidth=2)
                panel.plot(at, 100 * part["difference"], "o", color=colour, label=f"epoch {epoch}")
            panel.axhline(0, color=GREY, linewidth=1)
            panel.set(
                xlabel=name, xticks=range(len(part)), xticklabels=part[name].astype(str), xlim=(-0.5, len(part) - 0.5)
            )
        panels[0, 0].set_ylabel("difference, points")
        panels[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
        _save(figure, file)
    alt = f"The difference by {', '.join(names)}, with 95 % intervals over seeds, in epochs {ends[0]} and {ends[1]}."
    return f"\n\n![{alt}]({file.name})"


def study(folder: Path) -> str:
    """What a grid of conditions shows: the gain by each parameter and epoch, and what theory expects of it."""
    plan = Plan.model_validate(json.loads((folder / "experiment.json").read_text(encoding="utf-8"))["plan"])
    rows = by_seed(plan, pd.read_parquet(folder / "results.parquet"))
    last, several = rows["epoch"].max(), rows["arm"].nunique() > 1
    text = ""
    for arm, part in rows.groupby("arm", sort=False):
        found = gains(part, ["stream", "epoch"])
        above, below = (int(side.sum()) for side in (found["low"] > 0, found["high"] < 0))
        text += (
            f"\n\n**{arm} against {part['against'].iloc[0]}:** the interval of the difference lies above 0 in "
            f"{above} of {len(found)} conditions and below in {below}; without a difference 1 in 20 would lie outside."
        )
        if not several and axes(plan):
            text += picture_of_gains(part, list(axes(plan)), RESULTS / f"{folder.resolve().name}.svg")
        for name in () if several else axes(plan):
            text += f"\n\nBy {name}, the mean over the other parameters, in percentage points:\n\n" + _by(part, name)
    if "spread" in axes(plan):
        text += "\n\n" + theory(
            [float(str(value)) for value in axes(plan)["spread"]], int(plan.streams[0].stages[0].count)
        )
    if copied := folder.name == STUDY:
        DATA.write_bytes((folder / "results.parquet").read_bytes())
    shown = " The Lab shows it as a picture (*When utility helps*), a click from the runs behind each point." * copied
    return f"{text}\n\nEpoch {last} is the last.{shown} Every condition:"


def _by(rows: pd.DataFrame, name: str) -> str:
    found = gains(rows, [name, "epoch"])
    epochs = sorted(found["epoch"].unique())
    lines = [f"| {name} | " + " | ".join(f"epoch {epoch}" for epoch in epochs) + " |"]
    lines.append("| --- |" + " ---: |" * len(epochs))
    for value, part in found.groupby(name, sort=False):
        cells = part.set_index("epoch").loc[epochs, ["difference", "low", "high"]].to_numpy()
        lines.append(f"| {value} | " + " | ".join(difference(*map(float, cell)) for cell in cells) + " |")
    return "\n".join(lines)


def theory(spreads: list[float], steps: int) -> str:
    """From how many visits on q tells the best way of a family from the next."""
    ways = Parametric.Options().ways
    lines = [
        "| spread | best, next | visits until q orders them with 80 % | after 8 visits | after 40 |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    for spread in spreads:
        worse, better = np.linspace(0.5 - spread, 0.5 + spread, ways)[-2:]
        visits = visits_to_order(ALPHA, better, worse)
        sure = (f"{100 * float(order_probability(n, ALPHA, better, worse)):.0f} %" for n in (8, 40))
        lines.append(f"| {spread:g} | {better:.2f}, {worse:.2f} | {visits or 'never'} | " + " | ".join(sure) + " |")
    return (
        f"Theory (equations 12 and 17, α = {ALPHA}, no noise): how often a memory of the best way has the higher q "
        f"than one of the next best, both updated so many times. An epoch is {steps // FAMILIES} tasks of each family, "
        "and each task updates k2 memories.\n\n" + "\n".join(lines)
    )


def performance(measured: Path) -> str:
    """The page of `python -m benchmarks --json`: each time beside a reference of the same run."""
    sys.path.append(str(Path(__file__).parents[1]))  # The benchmarks are not installed.
    from benchmarks.results import table_of

    found = json.loads(measured.read_text(encoding="utf-8"))
    table, names = table_of(found), " ".join(dict.fromkeys(row["benchmark"] for row in found["rows"]))
    return (
        f"# Performance\n\n```sh\npython -m benchmarks {names} --json bench.json\n"
        "python docs/write_results.py bench.json\n```\n\n"
        "Times of a shared machine say little; the ratio to a reference that is measured in turns with it, in the same "
        f"run, says more.\n\n{markdown(table)}"
    )


def layouts(folders: list[Path]) -> str:
    """The page on the layouts of a prompt: a table for each set of tasks that one of the folders has."""
    steps = pd.concat([pd.read_parquet(folder / "results.parquet") for folder in folders], ignore_index=True)
    steps["model"] = steps["model"].str.replace("gguf:.*/", "gguf:", regex=True)
    tables = "\n".join(map(markdown, layout_reports(Layouts(steps, stopped=False))))
    models = " ".join(f"--model {model}" for model in dict.fromkeys(steps["model"]))
    sets = " ".join(f"--on {name}" for name in dict.fromkeys(steps["set"]))
    tasks, seeds = steps["tasks"].max(), steps["seed"].nunique()
    shown = " ".join(f"--k2 {memories}" for memories in sorted(set(steps["memories"]) - {0}))
    return (
        "# In which layout do models use memories?\n\n"
        f"```sh\nmemrl layouts --bank ./study {models} {sets} --tasks {tasks} --seeds {seeds} {shown}\n```\n\n"
        "The simulated model has learned a memory, which is used frozen: every model and layout gets the very same "
        "memories for the very same tasks, which nobody has met before. Each table says its tasks and seeds; with few "
        "of them it is a hint. Seconds are of a machine that did other work as well.\n\n"
        f"{tables}"
    )


def main(names: list[str]) -> None:
    """Write a page for each, and say where."""
    measured: list[Path] = []
    for path in map(Path, names):
        if path.suffix != ".json" and not (path / "experiment.json").exists():
            measured.append(path)
            continue
        if path.suffix != ".json" and path.resolve().name.startswith(REAL.stem):
            keep(path, REAL)
            draw_real_models()
            continue
        if path.suffix != ".json" and path.resolve().name.startswith(CREDIT.stem):
            keep(path, CREDIT)
            continue
        page = RESULTS / ("performance.md" if path.suffix == ".json" else f"{path.resolve().name}.md")
        page.write_text(performance(path) if path.suffix == ".json" else experiment(path), encoding="utf-8")
        print(page)
    if measured:
        page = RESULTS / "layouts.md"
        page.write_text(layouts(measured), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main(sys.argv[1:])
