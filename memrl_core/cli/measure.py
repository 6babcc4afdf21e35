"""Experiments, and the claims of documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from memrl_core.agent.run_parts import HASHING, SIMULATED, default_embedder
from memrl_core.cli.console import (
    CtrlC,
    ModelHost,
    Pace,
    PerHost,
    at_hosts,
    at_work,
    cancelled,
    console,
    open_or_create,
    progress,
)
from memrl_core.errors import InputError

# Experiments and pandas are imported where they are needed: a quarter of the time in which any command starts.
if TYPE_CHECKING:
    from memrl_core.experiments.frozen_use import FrozenUse
    from memrl_core.experiments.plan import Plan
    from memrl_core.experiments.report_table import ReportTable
    from memrl_core.experiments.study import Study

StudyBank = Annotated[str, typer.Option("--bank", help="The bank that keeps every run of the experiment.")]
Seeds = Annotated[int, typer.Option(help="How many seeds.", min=1)]
Tasks = Annotated[int, typer.Option(help="How many tasks of each set; 0 takes all.", min=0)]
Epochs = Annotated[int, typer.Option(help="How many times through the tasks to learn from.", min=1)]


claims_app = typer.Typer(no_args_is_help=True, help="What the documents and lessons state.")


@claims_app.command("check")
def check_claims(
    quick: Annotated[bool, typer.Option("--quick", help="Only those that take seconds.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="Folder of results of experiments (NAME/results.parquet), read where there.")
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=2**32 - 100, help="First of the 40 seeds for sentences; today's without."),
    ] = None,
) -> None:
    """Compute every number and sentence that a document or a lesson states as a finding; exit 1 where one is not so."""
    from memrl_core.experiments.claims import all_checked

    done = []
    for found in all_checked(quick, results, first_seed):
        done.append(found)
        words = found.claim.says.replace("{}", "…")
        console.print(f"{'does not hold' if found.why else 'holds':13} {found.claim.where}: {words}", markup=False)
        for value, (low, high) in found.numbers:
            console.print(f"{'':13} stated {value:g}, computed {low:.4g}…{high:.4g}", markup=False)
        for words in found.found:
            console.print(f"{'':13} {words}", markup=False)
        if found.why:
            console.print(f"{'':13} {found.why}", markup=False)
    wrong = sum(bool(one.why) for one in done)
    console.print(f"{len(done) - wrong} hold, {wrong} do not")
    if wrong:
        raise typer.Exit(1)


def modular_memory(
    bank: StudyBank,
    first: Annotated[str, typer.Option(help="Set A, such as household-train:heat,cool.")] = "household-train:heat,cool",
    second: Annotated[str, typer.Option(help="Set B.")] = "household-train:clean,examine",
    first_use: Annotated[
        str, typer.Option(help="What A is used on; empty: on A itself.")
    ] = "household-heldout:heat,cool",
    second_use: Annotated[
        str, typer.Option(help="What B is used on; empty: on B itself.")
    ] = "household-heldout:clean,examine",
    tasks: Tasks = 0,
    seeds: Seeds = 5,
    epochs: Epochs = 3,
    model: Annotated[str, typer.Option(help="A model, as for `memrl run`.")] = SIMULATED,
) -> None:
    """Memories learned apart on two sets, merged and used frozen, against each alone, both together, and none."""
    from memrl_core.experiments.frozen_use import run_modular_memory

    _frozen_use(
        bank,
        "modular",
        [model],
        lambda study: run_modular_memory(
            study, first, second, first_use=first_use, second_use=second_use, tasks=tasks, seeds=range(seeds),
            epochs=epochs,
        ),
    )  # fmt: skip


def cross_model(
    bank: StudyBank,
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="A model, as for `memrl run`, or simulated-50, which reads its memories half of the time; repeatable.",
        ),
    ],
    learn_on: Annotated[str, typer.Option(help="The set to learn from.")] = "household-train",
    use_on: Annotated[str, typer.Option(help="The set to use them on; empty: the same.")] = "household-heldout",
    tasks: Tasks = 0,
    seeds: Seeds = 5,
    epochs: Epochs = 3,
) -> None:
    """Let every model use, frozen, the memory that every other one has learned."""
    from memrl_core.experiments.frozen_use import run_cross_model

    asked: Any = {"tasks": tasks, "seeds": range(seeds), "epochs": epochs}
    _frozen_use(bank, "cross", model, lambda study: run_cross_model(study, learn_on, use_on, **asked))


def _frozen_use(bank: str, kind: str, models: Sequence[str], measure: Callable[[Study], FrozenUse]) -> None:
    """Measure in `bank` with a bar, and print the tables."""
    from memrl_core.experiments.frozen_use import frozen_use_reports
    from memrl_core.experiments.report_table import rich_tables
    from memrl_core.experiments.study import Study

    with open_or_create(bank, default=HASHING) as memory, at_work("episodes") as (on_progress, stop):
        found = measure(Study(memory, kind, models, on_progress=on_progress, cancelled=stop))
    for table in frozen_use_reports(found):
        console.print(*rich_tables(table, console.width))
    if found.stopped:
        cancelled("Cancelled: only the seeds that were finished are counted.")
    console.print(f"Every run of this is in {escape(bank)}: `memrl app` opens it.")


def layouts(
    bank: StudyBank,
    model: Annotated[list[str], typer.Option("--model", help="A language model, such as gguf:smollm2; repeatable.")],
    env: Annotated[
        list[str] | None, typer.Option("--env", help="An environment, or all that have tasks: all; repeatable.")
    ] = None,
    on: Annotated[str, typer.Option(help="A set of tasks, in the place of an environment's first.")] = "",
    tasks: Tasks = 20,
    seeds: Seeds = 3,
    epochs: Epochs = 1,
    k2: Annotated[
        list[int] | None, typer.Option("--k2", help="Memories in the prompt; repeatable. Left out: 1, 3 and 5.", min=1)
    ] = None,
    layout: Annotated[list[str] | None, typer.Option(help="Only this layout; repeatable. Left out: all.")] = None,
    embedder: Annotated[
        str, typer.Option(help="What finds the memories, for a new bank; wordllama where none is named.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the results; the same again goes on where it ended. Left out: beside the bank."),
    ] = None,
) -> None:
    """Let language models use the same memories for new tasks in each layout of the prompt, and answer without any."""
    from memrl_core.environments.tasks import first_sets
    from memrl_core.experiments.executors import REPORT, RESULTS
    from memrl_core.experiments.prompt_layouts import K2, layout_reports, run_layouts

    sets = [on] if on else [] if env else ["household-train"]
    if env:
        firsts, left_out = first_sets([] if "all" in env else env)
        sets += firsts.values()
        for environment, why in left_out.items():
            console.print(escape(f"Left out: {environment}, because {why}"))
    folder = out or Path(f"{bank.rstrip('/')}-layouts")
    with (
        open_or_create(bank, embedder, default=default_embedder()) as memory,
        at_work("episodes") as (on_progress, stop),
    ):
        found = run_layouts(
            memory, folder, model, sets, tasks=tasks, seeds=range(seeds), epochs=epochs, k2=k2 or K2,
            layouts=layout or (), on_progress=on_progress, cancelled=stop,
        )  # fmt: skip
    tables = layout_reports(found)
    _write_report(folder, tables)
    console.print(f"The rows are in {escape(str(folder / RESULTS))}, the tables in {escape(str(folder / REPORT))}.")
    if found.stopped:
        cancelled("Cancelled. Run the same command again to go on.")
    console.print(f"Every run of this is in {escape(bank)}: `memrl app` opens it.")


def _write_report(out: Path, tables: Sequence[ReportTable]) -> None:
    """Print tables, and leave them in the folder."""
    from memrl_core.experiments.executors import REPORT, ResultFolder, machine_line
    from memrl_core.experiments.report_table import markdown, rich_tables

    for table in tables:
        console.print(*rich_tables(table, console.width))
    if tables:
        ResultFolder(out).write_text(REPORT, "\n".join([f"{machine_line()}\n", *map(markdown, tables)]))


def experiment(
    file: Annotated[
        Path, typer.Argument(help="The experiment: a TOML file, such as those in sample_data/experiments.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results; the same again goes on where it ended.")],
    seeds: Annotated[int | None, typer.Option(help="How many seeds, in the place of the file's.")] = None,
    first_seed: Annotated[int | None, typer.Option(help="The first seed, in the place of the file's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="How many epochs, in the place of the file's.")] = None,
    model: Annotated[str | None, typer.Option(help="A model, in the place of the file's.")] = None,
    stream: Annotated[
        list[str] | None, typer.Option(help="Only this stream of the file; repeatable; all when left out.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes on this machine; 0: one per core.", min=0)] = 0,
    scheduler: Annotated[str, typer.Option(help="A Dask scheduler, such as tcp://host:8786.")] = "",
    banks: Annotated[
        str, typer.Option(help="Folder in which each cell keeps its bank; left out, banks are deleted.")
    ] = "",
    model_host: ModelHost = "",
    per_host: PerHost = 1,
) -> None:
    """Run an experiment: every cell of policies × settings × streams × seeds. Ctrl-C ends it; what is done stays."""
    from memrl_core.experiments.plan import read_plan

    plan = read_plan(file, seeds=seeds, first_seed=first_seed, epochs=epochs, model=model, streams=stream or ())
    if model_host:
        plan = plan.model_copy(update={"model_hosts": model_host.split(","), "per_host": per_host})
    _run(plan, out, jobs, scheduler, banks, trusted=bool(model_host))


def _run(plan: Plan, out: Path, jobs: int, scheduler: str = "", banks: str = "", trusted: bool = False) -> None:
    """Run the cells with a bar, print the tables and leave them in the folder. The hosts of a plan that somebody else
    may have written are not `trusted`.
    """
    from memrl_core.experiments.executors import PICTURES, RESULTS, ResultFolder, run_experiment
    from memrl_core.experiments.method_arms import picture_page
    from memrl_core.experiments.reports import reports

    console.print(escape(plan.title), style="bold")
    named = at_hosts(plan.model, plan.model_hosts, plan.per_host, trusted)
    with named as hosts, progress(Pace()) as bars, CtrlC() as stop:
        bar = bars.add_task("steps", total=None)
        found = run_experiment(
            plan,
            out,
            jobs=jobs,
            scheduler=scheduler,
            banks=banks,
            hosts=hosts,
            on_progress=lambda done, cells: bars.update(bar, description=f"cells {done:,} of {cells:,}, steps"),
            on_steps=lambda done, steps: bars.update(bar, completed=done, total=steps),
            cancelled=stop.asked,
        )
    for note in found.notes:
        console.print(escape(note), style="yellow")
    _write_report(out, reports(found))
    if page := picture_page(found):
        ResultFolder(out).write_text(PICTURES, page)
        console.print(f"The same in pictures: {escape(str(out / PICTURES))}")
    where = f"; their results are in {escape(str(out / RESULTS))}" if found.done else ""
    console.print(f"{found.done} of {found.cells} cells are finished{where}.")
    if found.skipped:
        console.print(f"Steps skipped, because the embedder has no vector of their text: {found.skipped:,}.")
    if found.error:
        raise InputError(found.error)
    if found.stopped:
        cancelled("Cancelled. Run the same command again to go on.")
    if found.skipped:
        raise typer.Exit(1)
