"""`memrl`: the same agent, banks and checks as the app, in a terminal."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import pkgutil
import runpy
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from memrl_core import __version__
from memrl_core.agent.preferences import banks_folder, demo_bank, home_problem, load_preferences, remember_bank
from memrl_core.agent.preferences import keep_options as keep_for_new_runs
from memrl_core.agent.recorder import Recorder
from memrl_core.agent.run_parts import SIMULATED, embedder_of, must_be_there
from memrl_core.agent.runs import live_run, start_run, what_carries_over
from memrl_core.agent.watch import WATCHED, watched_bank
from memrl_core.analysis.decision.labels import weights_label
from memrl_core.analysis.decision.outline import by_epoch, not_rated, valid_answers
from memrl_core.analysis.run.following import LATEST, follow_counts
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check, rebuild
from memrl_core.cli import exchange, mcp_server, measure, parts, relevance, terminal
from memrl_core.cli.console import (
    AtWork,
    BankOption,
    CtrlC,
    ModelHost,
    PerHost,
    RunOption,
    at_hosts,
    cancelled,
    console,
    open_or_create,
    pairs,
    progress,
    run_of,
)
from memrl_core.cli.otlp import PATH, RUN, Receiver
from memrl_core.cli.parts import environment_and_set
from memrl_core.cli.serving import (
    LOCALHOST,
    NEEDS_LOGIN,
    is_loopback,
    login_is_set_up,
    own_hosts,
    raise_open_files,
)
from memrl_core.environments import options_of
from memrl_core.errors import InputError, MemRLError, ModelError, one_line
from memrl_core.logs import logger
from memrl_core.models.base import CHOSEN, checked_options
from memrl_core.numerals import counted
from memrl_core.policies import settings_of
from memrl_core.records import StepTrace
from memrl_core.settings import home

HIGHEST_PORT = 65535

app = typer.Typer(
    help="Step a memory-based agent through its tasks, and look at every decision it made.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def app_file() -> Path:
    """The app's main script: beside the core in a checkout, in `memrl_inspector` when installed.

    Raises `InputError` when it is in neither place.
    """
    root = Path(__file__).resolve().parents[2]
    for candidate in (root / "app.py", root / "memrl_inspector" / "app.py"):
        if candidate.is_file() and (candidate.parent / "pages").is_dir():
            return candidate
    raise InputError("The app's pages are not part of this installation. Install the package memrl-inspector again.")


@app.command("app")
def serve(
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=HIGHEST_PORT)] = 8501,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser.")] = False,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = LOCALHOST,
    bank: Annotated[str, typer.Option(help="A bank to offer: its folder, or a TOML file that names one.")] = "",
    otlp: Annotated[
        int,
        typer.Option(
            help="Take OpenTelemetry spans on this port too (OTLP over HTTP), as steps.", min=0, max=HIGHEST_PORT
        ),
    ] = 0,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show what retrievers that memrl_core.watch() is around are asked.")
    ] = False,
) -> None:
    """Start the app in the browser."""
    link = ""
    receiver = _received(bank or str(banks_folder() / RUN), otlp) if otlp else None
    if receiver is not None and not bank:
        link = f"/step?bank={RUN}"
    if watch:
        with watched_bank(bank or None) as watched:
            Recorder(watched, WATCHED)
            bank = watched.uri
    if bank:
        place = str(Path(os.path.expanduser(bank)).resolve())
        MemoryBank.open(place).close()
        name = remember_bank(place)
        link = f"/step?bank={name}&run={WATCHED}" if watch else f"/bank?bank={name}"
    has_login = login_is_set_up((Path(), Path(os.path.expanduser("~"))))
    if not is_loopback(address):
        if has_login:
            console.print(f"Listening on {escape(address)}: everybody who can reach it is asked to log in.")
        else:
            console.print(f"{escape(NEEDS_LOGIN.format(address=address))}", style="bold yellow")
            console.print(f"Listening on {LOCALHOST} only.", style="bold yellow")
            address = LOCALHOST
    command = ["streamlit", "run", str(app_file())]
    command += ["--server.port", str(port), "--server.address", address, "--server.headless", str(headless).lower()]
    hosts = ("*",) if has_login else own_hosts(address)
    command += [word for host in hosts for word in ("--server.allowedHosts", host)]
    console.print(f"MemRL Inspector is at http://{escape(address)}:{port}{escape(link)}. Ctrl-C ends it.")
    try:
        raise typer.Exit(_served(command))
    finally:
        if receiver is not None:
            receiver.close()
            console.print(escape(receiver.summary))


def _received(bank: str, port: int) -> Receiver:
    """What takes spans while the app runs, into a bank of its own unless one is named."""
    receiver = Receiver(bank, port, on_failure=lambda sentence: console.print(escape(sentence), style="yellow"))
    console.print(
        f"Spans sent to http://{LOCALHOST}:{receiver.port}{PATH} become steps of run {RUN} in {escape(bank)}."
    )
    return receiver


def _served(command: list[str]) -> int:
    """Run the server until it ends; Ctrl-C and a termination end it too.

    It runs in this process, which has loaded by now most of what the pages need: in a process of its own the first
    visitor would wait for all of it once more, and it would be in memory twice.
    """
    # Until a server has seen its first `st.navigation`, Streamlit takes the files of a folder named `pages` for all the
    # pages there are, and tells a visitor who comes by a link that the page does not exist.
    importlib.import_module("streamlit.runtime.pages_manager").PagesManager.uses_pages_directory = False
    # Not before: Streamlit asks Plotly for pandas as it is loaded, and half of pandas ends the program.
    raise_open_files()
    threading.Thread(target=_load_figures, daemon=True, name="figures").start()
    sys.argv = command
    chosen = ", ".join(sorted(name for name in os.environ if name.startswith("STREAMLIT_")))
    unset = f"Streamlit takes these variables for its options: {chosen}. Unset the one whose value it does not know."
    try:
        runpy.run_module("streamlit", run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if code and chosen:
            raise InputError(f"The app did not start, or was ended by an error; nothing was changed. {unset}") from None
        return code
    except Exception as error:
        if not chosen:
            raise
        raise InputError(f"The app could not start ({one_line(str(error))}); nothing was changed. {unset}") from error
    return 0


def _load_figures() -> None:
    """What only the pages need, loaded while the server starts and nobody waits for it."""
    for name in ("memrl_core.figures", "memrl_core.analysis"):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)


@app.command()
def run(
    ctx: typer.Context,
    bank: BankOption,
    env: Annotated[
        str, typer.Option(help="An environment (`memrl tasks list`), or a file of tasks: JSONL, or DB-bench's JSON.")
    ] = "household",
    tasks: Annotated[int, typer.Option(help="How many tasks of the set; 0 takes all.", min=0)] = 0,
    task_set: Annotated[str, typer.Option("--set", help="Name of the set of tasks.")] = "",
    epochs: Annotated[int, typer.Option(help="How many times through the tasks.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    model: Annotated[
        str,
        typer.Option(
            help="simulated, gguf:smollm2 or gguf:PATH (in this process), openai:NAME, or an Ollama model's name."
        ),
    ] = SIMULATED,
    embedder: Annotated[
        str,
        typer.Option(
            help="wordllama (meaning, the default of new banks), hashing (letters and words), fastembed:NAME, "
            "openai:NAME, or an Ollama embedding model's name."
        ),
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--setting", help="A setting of the policy, such as weight=0.5; repeatable.")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(help="Settings of a published configuration: alfworld, hle, bigcodebench or lifelong for memrl."),
    ] = "",
    policy: Annotated[str, typer.Option(help="The method; `memrl policies` lists all.")] = "memrl",
    name: Annotated[str, typer.Option("--run", help="Name of the new run.")] = "",
    base: Annotated[str, typer.Option("--base", help="Start from what this run of the bank knows.")] = "",
    options: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of the environment, such as drafts=false; repeatable."),
    ] = None,
    model_options: Annotated[
        list[str] | None,
        typer.Option("--model-option", help=f"An option of the model: {', '.join(CHOSEN)}; repeatable."),
    ] = None,
    layout: Annotated[
        str, typer.Option(help="How memories are laid out in the prompt: transcript, turns or block.")
    ] = "",
    keep_options: Annotated[
        bool, typer.Option("--keep-options", help="Begin new runs of this model so from now on, in the app too.")
    ] = False,
    resume: Annotated[
        str, typer.Option(help="Go on with this run where it ended; its own settings, model and tasks are used.")
    ] = "",
    shift_at: Annotated[int, typer.Option(help="Step at which the world of household or helpdesk changes.", min=0)] = 0,
    model_host: ModelHost = "",
    per_host: PerHost = 1,
    batch: Annotated[int, typer.Option(help="Steps per write; a crash loses at most this many.", min=1, max=1000)] = 1,
) -> None:
    """Run an agent over tasks without a screen. Ctrl-C ends it after the step under way; what is done is kept."""
    preferences = load_preferences()
    chosen = settings_of(policy, pairs(settings or [], "a setting", "weight=0.5"), preset)
    env, task_set = environment_and_set(env, task_set)
    given_options = pairs(model_options or [], "a model option", "temperature=0.7")
    given_options |= {"layout": layout} if layout else {}
    chosen_options = checked_options({**preferences.model_options.get(model, {}), **given_options})
    world = {**pairs(options or [], "an option", "drafts=false"), **({"shift_at": shift_at} if shift_at else {})}
    hosts = None if resume else ctx.with_resource(at_hosts(model, model_host, per_host))
    facts = {} if resume else must_be_there(model, preferences, hosts)
    with MemoryBank.open(bank) if resume else open_or_create(bank, embedder) as memory:
        if resume:
            info = memory.run(resume)
            hosts = ctx.with_resource(at_hosts(info.model, model_host, per_host))
            must_be_there(info.model, preferences, hosts)
        embedder_of(memory, preferences)
        if not resume:
            info = start_run(
                memory,
                environment=env,
                tasks=task_set,
                task_count=tasks,
                settings=chosen,
                seed=seed,
                model=model,
                base=base or None,
                run=name or None,
                policy=policy,
                environment_options=options_of(env, world),
                model_options=chosen_options,
                model_facts=facts,
            )
            if keep_options:
                keep_for_new_runs(model, chosen_options)
        live = live_run(memory, info.id, preferences, hosts)
        total = len(live.tasks) * epochs
        before, earlier = memory.next_step(info.id) - info.first_step, memory.steps.rows(info.id)
        if before >= total:
            raise InputError(
                f"The run {info.id} has {before:,} steps, and {counted(epochs, 'epoch')} of its "
                f"{len(live.tasks):,} tasks {'is' if epochs == 1 else 'are'} {total:,}. Nothing was run; ask for more "
                "with --epochs."
            )
        console.print(terminal.run_header(info, total), no_wrap=True, overflow="ellipsis")
        if line := what_carries_over(memory, info):
            console.print(escape(line))
        stop = CtrlC()
        done: list[StepTrace] = []
        waiting = live.waiting
        with closing(live.agent.environment), memory.write.batch(batch), progress(AtWork(waiting)) as bars, stop:
            bar = bars.add_task("steps", total=total, completed=before)
            try:
                for trace in live.agent.run(live.tasks, epochs, stop.asked, waiting.on_text, waiting.on_move, before):
                    done.append(trace)
                    bars.advance(bar)
                    if trace.skipped and trace.reward:
                        bars.console.print(escape(f"Step {trace.step}: {trace.reward.verdict}"), style="yellow")
            except ModelError:
                console.print(
                    f"The model failed after {before + len(done):,} of {total:,} steps, which are kept. Go on with "
                    f"--resume {escape(info.id)}."
                )
                raise
        console.print(terminal.epoch_table(by_epoch(done, earlier), info))
        valid, asked = map(sum, zip(*map(valid_answers, done), strict=True)) if done else (0, 0)
        if asked:
            console.print(f"Valid answers: {valid / asked:.1%} ({valid:,} of {asked:,} were among the lines offered).")
        if followed := follow_counts(done).sentence:
            console.print(f"{followed[0].upper()}{followed[1:]}.")
        if ignores := follow_counts(done[-LATEST:]).warning:
            console.print(escape(ignores), style="yellow")
        for line in (*not_rated(done), *terminal.lines_of(done)):
            console.print(escape(line))
        if stop.pressed:
            cancelled(
                f"Cancelled after {before + len(done)} of {total} steps; they are kept in run {escape(info.id)}. Go on "
                f"with --resume {escape(info.id)}."
            )
        console.print(f"Saved {counted(len(done), 'step')} as run {escape(info.id)} in {escape(bank)}.")
        if any(trace.skipped for trace in done):
            raise typer.Exit(1)


@app.command()
def show(
    step: Annotated[int, typer.Argument(help="Number of the step.", min=1)],
    bank: BankOption = "",
    run_id: RunOption = "",
) -> None:
    """Print one step: what was recalled, why it was selected, and which q-values moved."""
    with MemoryBank.open(bank or str(demo_bank())) as memory:
        trace = memory.trace(run_of(memory, run_id), step)
        for part in terminal.step_parts(trace, {i: memory.memory(i) for i in terminal.memories_in(trace)}):
            console.print(part)
        if unmoved := memory.credits.unmoved(trace.run):
            console.print(escape(unmoved), style="yellow")
        if weights := weights_label(memory.run(trace.run).model_facts):
            console.print(escape(f"{memory.run(trace.run).model}: {weights}"), style="dim")


@app.command()
def doctor(
    bank: BankOption = "",
    rebuild_derived: Annotated[
        bool, typer.Option("--rebuild", help="First write again what follows from the ledger: each q and its moves.")
    ] = False,
) -> None:
    """Check the models, the embedder and a bank; every problem comes with its remedy."""
    preferences = load_preferences()
    uri = bank or str(demo_bank())
    if rebuild_derived:
        console.print(f"q of every run of {escape(uri)} was written again ({rebuild(uri):,}).")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(terminal.model_rows, preferences)
        findings = list(check(uri))
    rows = terminal.machine_rows() + terminal.doctor_rows(asked.result(), findings)
    if all(finding.ok for finding in findings):
        memory = MemoryBank.open(uri)
        rows += [terminal.embedder_row(memory, preferences), *filter(None, [terminal.gate_row(memory)])]
    console.print(terminal.doctor_table(rows, uri))
    if any(row.level == "broken" for row in rows):
        raise typer.Exit(2)


@app.callback(invoke_without_command=True)
def version(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Shared by all commands."""
    if show_version:
        console.print(__version__)
        raise typer.Exit


app.command("reembed")(exchange.reembed_bank)
app.command("open")(exchange.open_memory)
app.command("import")(exchange.import_file)
app.command("export")(exchange.export_bank)
app.command("merge")(exchange.merge_banks)
app.command("report")(exchange.report_step)
app.command("player")(exchange.write_run_player)
app.command("experiment")(measure.experiment)
app.command("mcp")(mcp_server.serve_mcp)
app.command("policies")(parts.list_policies)
app.command("modular-memory")(measure.modular_memory)
app.command("cross-model")(measure.cross_model)
app.command("layouts")(measure.layouts)
app.add_typer(exchange.rewards_app, name="rewards")
app.add_typer(relevance.recall_app, name="recall")
app.add_typer(measure.claims_app, name="claims")
app.add_typer(parts.models_app, name="model")
app.add_typer(parts.tasks_app, name="tasks")


def main(command: Callable[[], object] | None = None) -> None:
    """Run the command; a failure that a person can act on is one sentence and exit code 2, any other one and 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # Not every encoding has a λ.
    if not os.environ.get("TERMINAL_WIDTH", "").isdecimal():
        os.environ.pop("TERMINAL_WIDTH", None)  # Typer takes it for a number.
    try:
        (command or app)()
    except MemRLError as error:
        Console(stderr=True).print(escape(str(error)), style="red")
        sys.exit(2)
    except Exception as error:
        if isinstance(error, OSError) and (problem := home_problem()):
            Console(stderr=True).print(escape(f"{one_line(str(error))}. {problem}"), style="red")
            sys.exit(2)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            said = f"“{str(error.filename)[:80]} …” is longer than a path may be. Nothing was changed; check the path."
            Console(stderr=True).print(escape(said), style="red")
            sys.exit(2)
        Console(stderr=True).print(escape(_unexpected(error)), style="red")
        sys.exit(1)


def _unexpected(error: Exception) -> str:
    """What to say of a failure that nobody has foreseen, after its traceback has gone to the log."""
    file = home() / "memrl.log"
    log = logger(__name__)
    log.propagate = False
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        log.addHandler(logging.FileHandler(file, encoding="utf-8"))
        log.exception("%s: a command failed: %s", datetime.now(UTC).isoformat(timespec="seconds"), sys.argv[1:2])
        where = f"{file} says where"
    except OSError:
        where = f"{file} could not be written"
    return (
        f"The command failed in a way that nobody foresaw ({type(error).__name__}; {where}). What was saved is kept. "
        "Try again; if it fails again, run memrl doctor."
    )


if __name__ == "__main__":
    main()
