"""Banks, traces, reports and people's rewards in and out of files, and banks with other vectors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, get_args

import typer
from rich.markup import escape
from rich.table import Table

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import default_embedder, embedder_name, new_embedder
from memrl_core.analysis.people.rating_queue import (
    QueueFilter,
    Show,
    batch_progress,
    drawn_batch,
    facts_of,
    queue,
    ratings_wanted,
)
from memrl_core.analysis.recall.pooling import recall_progress
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.storage.addresses import ENDING
from memrl_core.cli.console import BankOption, CtrlC, RunOption, at_work, cancelled, console, pairs, plain, run_of
from memrl_core.embedders.base import Embedder, texts_cut
from memrl_core.errors import InputError, few
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.bring_in import Arrival, bring_in, is_own, read_any
from memrl_core.exchange.contents import NOTHING, Account
from memrl_core.exchange.foreign.columns import FIELDS, listed
from memrl_core.exchange.foreign.opening import Look, look, open_memories, report_of
from memrl_core.exchange.foreign.tables import source_of
from memrl_core.exchange.foreign.traces import has_spans, import_spans
from memrl_core.exchange.new_banks import KEPT, Reembedded, merge, reembed
from memrl_core.exchange.reward_files import Effect, RewardFile, apply_rewards, export_rewards, kind_of, read_rewards
from memrl_core.exchange.safe_files import drafted, free_folder
from memrl_core.numerals import MINUS, counted, percent

LINES = 20
ONLY_CHECKED = "Nothing was imported: this was a check."


def import_file(
    path: Annotated[
        Path,
        typer.Argument(
            help="A bank's zip, JSON lines or Parquet; a checkpoint, trace or run of the official MemRL code; or spans "
            "of OpenInference, OpenTelemetry, Langfuse or Phoenix."
        ),
    ],
    bank: BankOption,
) -> None:
    """Import a file or a checkpoint folder into a bank, all of it or nothing, and list what was skipped."""
    if not is_own(path) and has_spans(path):
        with at_work("reading") as (on_progress, stopped):
            arrival = import_spans(path, bank, "", on_progress, stopped)
        if arrival is None:
            cancelled(f"Cancelled. {NOTHING}")
        _report(arrival)
        return
    with console.status("Reading and checking …"), CtrlC() as stop:
        contents = read_any(path, stop.asked)
    _report(bring_in(contents, bank))


def open_memory(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_URI",
            help="JSON, JSON lines, CSV, Parquet, SQLite, a folder or address of LanceDB tables, an ACE playbook, or "
            "what `memrl import` reads.",
        ),
    ],
    bank: Annotated[str, typer.Option("--bank", help="Folder of the new bank.")] = "",
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", help=f"A field's column, such as text=body; repeatable. Fields: {', '.join(FIELDS)}."),
    ] = None,
    table: Annotated[str, typer.Option("--table", help="The table, where there are several.")] = "",
    embedder: Annotated[
        str,
        typer.Option(help="Make all vectors anew by this one: wordllama, hashing, fastembed:NAME, or an Ollama model."),
    ] = "",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave rows out that cannot be taken.")] = False,
    only_check: Annotated[bool, typer.Option("--check", help="Only print what would come of it.")] = False,
) -> None:
    """Make a bank of the memories of another program: all of them or nothing. Ctrl-C leaves nothing behind."""
    if not bank and not only_check:
        raise InputError("A new bank needs a place. Nothing was imported; name its folder by --bank, or only --check.")
    if bank:
        free_folder(bank, NOTHING)  # Before anything long is read.
    if is_own(Path(file).expanduser()):
        if columns or table or skip_bad:
            raise InputError(
                f"{file[:200]} is read whole and has no columns to choose: --map, --table and --skip-bad are for other "
                f"programs' tables. {NOTHING} Leave them out."
            )
        made = new_embedder(embedder, load_preferences()) if embedder else None
        with console.status("Reading and checking …"), CtrlC() as stop:
            contents = read_any(Path(file).expanduser(), stop.asked)
        if only_check:
            _account(contents.account)
            held = f"{counted(len(contents.memories), 'memory')}, {counted(len(contents.traces), 'step')}"
            console.print(f"{held}. {ONLY_CHECKED}")
        elif made is None:
            _report(bring_in(contents, bank))
        else:
            with TemporaryDirectory(prefix="memrl-open-") as folder:
                passing = bring_in(contents, str(Path(folder) / "bank"))
                done, _ = _reembedded(passing.uri, made, bank, f"Cancelled. {NOTHING}")
            _report(replace(passing, uri=bank))
            _vectors(done, made)
        return
    named = dict(pairs(columns or [], "a column of a field", "text=body"))
    source = source_of(file, table)
    with at_work("reading") as (on_progress, stopped):
        looked = look(source, named, bool(embedder), on_progress, stopped)
    if looked is None:
        cancelled(f"Cancelled. {NOTHING}")
    _looked(looked, skip_bad)
    looked.must_be_whole(skip_bad)
    chosen = embedder or (default_embedder() if looked.fresh else "")
    if chosen:
        console.print(f"The vectors are made by {escape(embedder_name(chosen))}.")
    if only_check:
        console.print(ONLY_CHECKED)
        return
    made = new_embedder(chosen, load_preferences()) if chosen else None
    with at_work("writing") as (on_progress, stopped):
        arrival = open_memories(looked, bank, made, skip_bad, on_progress, stopped)
    if arrival is None:
        cancelled(f"Cancelled. {NOTHING}")
    are = "is" if arrival.memories == 1 else "are"
    console.print(
        f"{counted(arrival.memories, 'memory')} {are} in {escape(arrival.uri)}, known to run "
        f"{escape(arrival.runs[0])}. Look at it by: memrl app --bank {escape(arrival.uri)}"
    )


def _looked(looked: Look, skip_bad: bool) -> None:
    """Print what would come of a source: its columns, the first rows as memories, counts, and what is missing."""
    console.print("Columns: " + escape(", ".join(map(plain, listed(looked.mapped.columns)))))
    if others := [name for name in looked.columns if name not in looked.mapped.columns.values()]:
        console.print(f"Kept as metadata: {_cell(few(others))}")
    table = Table("id", "intent", "text", "q", "visits", "outcome", "created", "vector", box=None)
    for one in looked.preview:
        size = "" if one.vector is None else f"{len(one.vector):,}"
        q = "" if one.q is None else f"{one.q:+.3g}".replace("-", MINUS) if one.q else "0"
        visits = "" if one.visits is None else f"{one.visits:,}"
        table.add_row(_cell(one.id), _cell(one.intent), _cell(one.text), q, visits, one.outcome, one.created[:10], size)
    console.print(table)
    _account(report_of(looked, skip_bad))
    if not skip_bad:
        listing(
            f"{counted(looked.bad_count, 'row')} cannot be taken", [f"{one.where}: {one.why}" for one in looked.bad]
        )  # fmt: skip


def export_bank(
    out: Annotated[Path, typer.Argument(help="Ends in .zip (a backup), .jsonl, .parquet or .csv (for people only).")],
    bank: BankOption,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write a bank to one file."""
    with console.status("Writing …"), MemoryBank.open(bank) as memory:
        write_bank(memory, out, overwrite)
    console.print(f"Wrote {escape(str(out))}.")


def merge_banks(
    first: Annotated[str, typer.Argument(help="A bank.")],
    second: Annotated[str, typer.Argument(help="Another bank with vectors of the same embedder.")],
    bank: Annotated[str, typer.Option("--bank", help="The new bank that holds both.")],
    first_run: Annotated[str, typer.Option(help="The run of the first; its newest when left out.")] = "",
    second_run: Annotated[str, typer.Option(help="The run of the second; its newest when left out.")] = "",
) -> None:
    """Make one bank of two: all their runs, and a run that begins with the memories of one of each."""
    with MemoryBank.open(first) as one, MemoryBank.open(second) as other:
        merged = merge(one, other, bank, first_run, second_run)
    for run, memories in merged.sources:
        console.print(f"{memories:,} memories of run {escape(run)}")
    listing("Worth knowing", merged.notes)
    _renamed({**merged.renamed_runs, **merged.renamed_memories})
    console.print(
        f"Run {escape(merged.run)} knows {merged.memories:,} memories; {merged.shared:,} were known to both, of which "
        f"{merged.disputed:,} with another q. All of it is in {escape(merged.uri)}."
    )


def report_step(
    step: Annotated[int, typer.Argument(help="Number of the step.", min=1)],
    out: Annotated[Path, typer.Argument(help="The file to write, such as step-12.html.")],
    bank: BankOption,
    run: RunOption = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write one step as a single HTML file that opens without a network."""
    from memrl_core.figures.report.document import write_report
    from memrl_core.figures.report.step import step_report

    with MemoryBank.open(bank) as memory:
        write_report(step_report(memory, run_of(memory, run), step), out, overwrite)
    console.print(f"Wrote {escape(str(out))}.")


def write_run_player(
    out: Annotated[Path, typer.Argument(help="The file to write, such as run.html.")],
    bank: BankOption,
    run: RunOption = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write all steps of a run as one HTML file that plays them, with no server and no network."""
    from memrl_core.figures.stage.player import write_player

    with MemoryBank.open(bank) as memory:
        size = write_player(memory, run_of(memory, run), out, overwrite)
    console.print(f"Wrote {escape(str(out))} ({size / 1e6:.1f} MB).")


def _account(account: Account) -> None:
    console.print(f"Read {escape(plain(account.source))}:")
    for sentence in account.read:
        console.print(f"  {escape(plain(sentence))}")
    listing("What it lacks", account.lacks)
    listing("Faults in it", account.faults)
    listing("Skipped", [f"{skipped.where}: {skipped.why}" for skipped in account.skipped])


def _report(arrival: Arrival) -> None:
    _account(arrival.account)
    _renamed({**arrival.renamed_runs, **arrival.renamed_memories})
    console.print(
        f"New in {escape(arrival.uri)}: {counted(arrival.memories, 'memory')}, {counted(arrival.steps, 'step')} and "
        f"{counted(arrival.events, 'event')}."
    )


def _renamed(names: Mapping[str, str]) -> None:
    listing("Renamed, because the bank had others of that name", [f"{old} is now {new}" for old, new in names.items()])


def listing(title: str, lines: Sequence[str]) -> None:
    """Print the first `LINES` of some foreign lines under a title; nothing where there is none."""
    if not lines:
        return
    console.print(f"{title}:")
    for line in lines[:LINES]:
        console.print(f"  - {escape(plain(line))}")
    _how_many_more(len(lines), "  ")


def reembed_bank(
    bank: BankOption,
    embedder: Annotated[
        str, typer.Option(help="Who makes the vectors: wordllama, hashing, fastembed:NAME, or an Ollama model.")
    ],
    to: Annotated[str, typer.Option("--to", help="Folder of the new bank; beside the old one when left out.")] = "",
) -> None:
    """Make a new bank with the vectors of another embedder, or of its new weights. Ctrl-C leaves nothing behind."""
    made = new_embedder(embedder, load_preferences())
    target = to or f"{bank.rstrip('/').removesuffix(ENDING)}-{re.sub(r'[^A-Za-z0-9.]+', '-', made.name).strip('-.')}"
    free_folder(target, KEPT)  # Before the bar of the work is drawn.
    done, before = _reembedded(bank, made, target, "Cancelled. The bank is as it was, and no new one was made.")
    _vectors(done, made)
    console.print(f"{escape(bank)} is as it was.")
    console.print(
        "q, visits, ledger and traces are the same. Similarities that steps recorded are those of "
        f"{escape(before)}: these steps cannot be decided again. δ has another scale now (memrl doctor "
        "proposes one), and a map is laid out when it is opened."
    )
    if done.runs:
        console.print(f"Learned again from the vectors: q of {escape(', '.join(done.runs))}.")


def _reembedded(bank: str, made: Embedder, target: str, on_cancel: str) -> tuple[Reembedded, str]:
    """A new bank with the vectors of `made`, with a bar on the screen, and whose vectors the old one has."""
    with MemoryBank.open(bank) as memory, at_work("texts") as (on_progress, stop):
        done = reembed(memory, made, target, on_progress, stop)
    if done is None:
        cancelled(on_cancel)
    return done, memory.embedder.name


def _vectors(done: Reembedded, made: Embedder) -> None:
    console.print(
        f"{done.memories:,} memories and {done.steps:,} steps have vectors of {escape(made.name)} in "
        f"{escape(done.uri)}."
    )
    if cut := texts_cut(made):
        console.print(
            f"{escape(made.name)} takes less text than {cut:,} of these have: their vectors are those of the beginning."
        )


# --- rewards of people ------------------------------------------------------------------------------------------------

rewards_app = typer.Typer(
    help="Rewards that people gave to finished steps, as CSV or JSON Lines.", no_args_is_help=True
)
LONGEST = 60


@rewards_app.command("import")
def import_rewards(
    file: Annotated[Path, typer.Argument(help="Ends in .csv or .jsonl; has step, reward and perhaps run and rater.")],
    bank: BankOption,
    run: Annotated[str, typer.Option("--run", help="The run of lines that name none.")] = "",
    rater: Annotated[str, typer.Option("--rater", help="Who imports; also the rater of lines that name none.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be saved.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Save the good lines where others are bad.")] = False,
) -> None:
    """Give the rewards in a file: all of it or nothing, as one action, and each line's effect is listed."""
    with MemoryBank.open(bank) as memory:
        found = read_rewards(file, None, memory, run, rater)
        _preview(found)
        bad = found.counts[Effect.BAD]
        if bad and not skip_bad:
            raise InputError(
                f"{counted(bad, 'line')} cannot be taken. Nothing was saved; correct them, or leave them out by "
                "--skip-bad."
            )
        if dry_run:
            console.print("Nothing was saved: this was a dry run.")
            return
        saved = apply_rewards(memory, found, rater)
    console.print(f"Saved {counted(len(saved), 'reward')} in {escape(bank)}.")


@rewards_app.command("export")
def export(
    bank: BankOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; ends in .csv or .jsonl.")],
    run: Annotated[str, typer.Option("--run", help="The run; all of them when left out.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write every person's reward that holds to one file, which `memrl rewards import` reads."""
    kind = kind_of(out.name)
    with MemoryBank.open(bank) as memory:
        data = export_rewards(memory, kind, run)
    with drafted(out, overwrite) as file:
        file.write(data)
    console.print(f"Wrote {escape(str(out))}.")


@rewards_app.command("batch")
def batch(
    bank: BankOption,
    raters: Annotated[str, typer.Option("--raters", help="Their names, separated by commas.")],
    run: Annotated[str, typer.Option("--run", help="The run; not needed where the bank has one.")] = "",
    name: Annotated[str, typer.Option("--name", help="What the batch is called.")] = "batch",
    show: Annotated[
        str, typer.Option("--show", help="Which steps, as in the queue: unrated, all, disputed …")
    ] = "unrated",
    steps: Annotated[int, typer.Option("--steps", min=1, help="At most so many of them are drawn.")] = 40,
    overlap: Annotated[int, typer.Option("--overlap", min=1, help="How many of the raters get each step.")] = 1,
    gold: Annotated[float, typer.Option("--gold", min=0, max=1, help="The share of gold items.")] = 0.0,
    known: Annotated[str, typer.Option("--known", help="Whose rewards gold items have; else the environment's.")] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed shares out the same.")] = 0,
    by: Annotated[str, typer.Option("--by", help="Who makes it.")] = "",
) -> None:
    """Share steps out among raters, who find their part under Rewards; gold items show how often they are right."""
    with MemoryBank.open(bank) as memory:
        runs = [info.id for info in memory.runs()]
        if not run and len(runs) != 1:
            raise InputError(f"The bank has {len(runs):,} runs. Nothing was saved; name one by --run.")
        run = memory.run(run or runs[0]).id
        chosen, wrong = QueueFilter.from_query({"show": show, "run": run})
        if wrong:
            raise InputError(f"--show {show[:40]} is no queue; choose one of {', '.join(get_args(Show))}.")
        facts, scales = facts_of(memory), memory.ratings.scales(run)
        bounds = memory.ratings.bounds(run, memory.next_step(run))
        found = queue(facts, chosen, by, {run: ratings_wanted(facts, scales.ratings_wanted)}, {run: bounds})
        drawn = drawn_batch(
            name, found, raters.split(","), count=steps, overlap=overlap, gold_share=gold, known=known, seed=seed
        )
        print_batch(memory, memory.write.batches.make(drawn, by))


@rewards_app.command("batches")
def batches(bank: BankOption) -> None:
    """Print how far everybody is with each open batch, of rewards and of recall, and how often right on gold items."""
    with MemoryBank.open(bank) as memory:
        for one in memory.batches.of():
            if not one.closed:
                print_batch(memory, one)


def print_batch(bank: MemoryBank, batch: Batch) -> None:
    """How far each rater of a batch is, and how many gold items they judged, or labels of them gave, as is known."""
    if batch.kind == "recall":
        parts = recall_progress(batch, bank.judgements.standing(batch.run))
    else:
        middle = sum(bank.ratings.bounds(batch.run, bank.next_step(batch.run))) / 2
        parts = batch_progress(batch, facts_of(bank), middle)
    done = "labelled" if batch.kind == "recall" else "rated"
    table = Table("rater", done, "of", "gold", "right", "95 %", box=None, title=_cell(f"{batch.name} · {batch.run}"))
    for part in parts:
        low, high = part.gold.low, part.gold.high
        ends = "" if low is None or high is None else f"{percent(low)} – {percent(high)}"
        table.add_row(
            _cell(part.rater), f"{part.done}", f"{part.steps}", f"{part.gold.n}", f"{part.gold.successes}", ends
        )
    console.print(table)


def _preview(found: RewardFile) -> None:
    rows = found.rows()
    good, bad = [row for row in rows if not row["problem"]], [row for row in rows if row["problem"]]
    columns = ("line", "run", "step", "rater", "reward", "reason", "then")
    if good:
        table = Table(*columns, box=None)
        for row in good[:LINES]:
            reward = f"{row['reward']:+g}".replace("-", MINUS)
            table.add_row(*(_cell({**row, "reward": reward}[column]) for column in columns))
        console.print(table)
        _how_many_more(len(good))
    for row in bad[:LINES]:
        console.print(f"Line {row['line']:,}: {escape(row['problem'])}", style="red")
    _how_many_more(len(bad))
    if found.unknown:
        console.print(f"Passed over: {_cell(', '.join(found.unknown))}, which no reward has.")
    counts = found.counts
    console.print(
        f"{counts[Effect.NEW]:,} new, {counts[Effect.CHANGED]:,} changed, {counts[Effect.SAME]:,} same as now, "
        f"{counts[Effect.DOUBLED]:,} doubled, {counts[Effect.BAD]:,} bad."
    )


def _how_many_more(lines: int, before: str = "") -> None:
    if lines > LINES:
        console.print(f"{before}… and {lines - LINES:,} more.")


def _cell(value: object) -> str:
    text = plain(value)
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
