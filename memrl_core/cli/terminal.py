"""How runs, steps and checks look in a terminal. Text from memories and models is printed as plain text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from memrl_core.agent.preferences import Preferences, home_problem
from memrl_core.agent.run_parts import HASHING, PATIENCE, default_embedder, embedder_of, openai_models
from memrl_core.analysis.decision.explain import credited_because, followed, update_formula
from memrl_core.analysis.decision.gate import suggest_delta
from memrl_core.analysis.decision.labels import SHORT_REASONS, memory_label, weights_label
from memrl_core.analysis.decision.outline import CUT_INTENT, operation_line, reply_notes
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import Finding
from memrl_core.bank.storage.addresses import shown
from memrl_core.cli.serving import FEW_FILES, MANY_FILES, raise_open_files
from memrl_core.environments import environment_names, why_unusable
from memrl_core.errors import EmbedderMismatch, InputError, MemRLError, one_line
from memrl_core.models.gguf import LLAMA, PACKAGED, PREFIX, weights_of
from memrl_core.models.ollama import ollama_status
from memrl_core.models.ollama_client import odd_environment
from memrl_core.numerals import counted, fixed, percent, signed
from memrl_core.policies import make_policy
from memrl_core.records import Memory, RunInfo, StepTrace
from memrl_core.settings import symbol

if TYPE_CHECKING:
    import pandas as pd

MODELS_NAMED = 8


def run_header(info: RunInfo, steps: int) -> str:
    """One line that says what is about to run, with those settings that are not what they usually are."""
    model = "simulated model" if info.simulated else info.model
    policy = make_policy(info.policy, info.settings)
    usual = type(policy.settings)()
    chosen = [
        f"{symbol(name, type(usual))} {value}"
        for name, value in policy.settings.model_dump().items()
        if value != getattr(usual, name)
    ]
    method = policy.spec.title + (f" ({', '.join(chosen)})" if chosen else "")
    options = ", ".join(f"{name} {value}" for name, value in info.model_options.items())
    parts = [
        f"{method} in {info.environment}",
        model + (f" ({options})" if options else ""),
        *([weights] if (weights := weights_label(info.model_facts)) else []),
        f"seed {info.seed}",
        counted(steps, "step"),
        info.embedder,
    ]
    return f"Run [bold]{escape(info.id)}[/]: {escape(' · '.join(parts))}"


def epoch_table(epochs: pd.DataFrame, info: RunInfo) -> Table:
    """A row per epoch (`outline.by_epoch`): success rate, cumulative success, use of memory, movement of q, time."""
    table = Table(
        title=f"{info.id} · {'simulated model' if info.simulated else info.model}",
        caption="success: ended well · solved: at least once so far\n"
        "memory: one was in the prompt · reranked: utility changed which\n"
        "valid: answers that were among the lines offered",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    for heading in ("epoch", "steps", "success", "solved", "memory", "reranked", "valid", "reward", "|Δq|", "ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for e in epochs.itertuples():
        table.add_row(
            str(e.epoch),
            str(e.steps),
            "–" if math.isnan(e.success) else percent(e.success),
            "–" if math.isnan(e.solved) else percent(e.solved),
            percent(e.memory, 0),
            percent(e.reranked, 0),
            "–" if math.isnan(e.valid) else percent(e.valid, 0),
            "–" if math.isnan(e.reward) else signed(e.reward),
            "–" if math.isnan(e.moved) else f"{e.moved:.3f}",
            f"{1000 * e.seconds:.1f}",
        )
    return table


def lines_of(done: Iterable[StepTrace]) -> list[str]:
    """The notes on the answers of several steps, each with how many answers it holds for."""
    turns = [turn for trace in done if trace.generate for turn in trace.generate.turns]
    notes = Counter(note for turn in turns for note in turn.reply.notes)
    return [f"{count:,} of {len(turns):,} answers: {note}." for note, count in notes.items()]


def memories_in(trace: StepTrace) -> set[str]:
    """The ids of all memories that a step's decision names."""
    return set() if trace.decision is None else {candidate.memory_id for candidate in trace.decision.candidates}


def step_parts(trace: StepTrace, memories: Mapping[str, Memory]) -> Iterable[RenderableType]:
    """The step from task to new memory, a part at a time."""
    yield Panel(Text(trace.task.intent), title=f"step {trace.step} of run {trace.run} · epoch {trace.epoch}")
    if trace.embed and trace.embed.cut:
        yield Text(CUT_INTENT.format(embedder=trace.embed.embedder), style="yellow")
    if trace.recall and trace.decision:
        yield _decision_table(trace, memories)
        if trace.decision.note:
            yield Text(trace.decision.note)
    if trace.generate:
        label = "simulated model" if trace.generate.simulated else trace.generate.model
        for number, turn in enumerate(trace.generate.turns, start=1):
            if turn.recalled is not None and turn.recalled.decision.selected:
                yield Text(f"   memory before turn {number}: {', '.join(turn.recalled.decision.selected)}", style="dim")
            notes = ", ".join([*(["stopped"] if turn.reply.stopped else []), *reply_notes(turn.reply)])
            yield Text(f"{number}. {label}: {turn.reply.text.strip()}{f' ({notes})' if notes else ''}")
    if follows := followed(trace):
        yield Text(f"{follows[0].upper()}{follows[1:]}.")
    if trace.reward:
        reward = "no reward" if trace.reward.reward is None else f"reward {signed(trace.reward.reward)}"
        yield Text(" · ".join(filter(None, (trace.reward.outcome, reward, trace.reward.verdict))), style="bold")
        if judged := trace.reward.judgement:
            for title, text in (("expected", judged.expected), ("came", judged.came), ("why", judged.why)):
                yield Panel(Text(text), title=title, title_align="left")
    if trace.update:
        if because := credited_because(trace):
            yield Text(because)
        for change in trace.update.changes:
            yield Text(update_formula(change, trace.run))
    if trace.write:
        for operation in trace.write.operations:
            yield Panel(Text(operation.experience), title=operation_line(operation, trace.run))


def _decision_table(trace: StepTrace, memories: Mapping[str, Memory]) -> Table:
    assert trace.recall is not None and trace.decision is not None
    table = Table(
        title=f"phase A: {len(trace.recall.pool):,} of {trace.recall.memories:,} memories recalled",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
        expand=True,  # So that the intents alone are cut where a terminal is narrow.
    )
    for heading in ("#", "A", "B", "sim", "z", "q", "z", "score"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why", no_wrap=True)
    table.add_column("intent", no_wrap=True, overflow="ellipsis", ratio=1)
    for c in trace.decision.candidates:
        z = {term.name: signed(term.normalised, 2) for term in c.terms}
        table.add_row(
            Text(memory_label(c.memory_id, trace.run)),
            str(c.rank_recall),
            str(c.rank_select or "–"),
            fixed(c.similarity),
            z.get("similarity", "–"),
            signed(c.q),
            z.get("q", "–"),
            "–" if c.score is None else signed(c.score),
            SHORT_REASONS[c.reason],
            Text(memories[c.memory_id].intent),
            style="bold" if c.selected else "",
        )
    return table


@dataclass(frozen=True, slots=True)
class DoctorRow:
    """One thing that was checked: `broken` needs the remedy, `optional` is fine to live with."""

    what: str
    level: Literal["ok", "optional", "broken"]
    sentence: str
    remedy: str


def model_rows(preferences: Preferences) -> list[DoctorRow]:
    """What was found of the models that can be asked: of Ollama, in the process, of an OpenAI-compatible server."""
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ollama_status, preferences.ollama_address)
        listed = pool.submit(openai_models, preferences)
    status, odd = asked.result(), {one.variable: one.remedy for one in odd_environment()}
    is_there = status.state != "not_running"
    remedy = status.remedy or ("" if is_there else odd.get("OLLAMA_HOST", ""))
    rows = [DoctorRow("Ollama", "ok" if is_there else "optional", status.sentence, remedy)]
    for name in PACKAGED:
        try:
            rows.append(DoctorRow(f"{PREFIX}{name}", "ok", f"The weights are at {weights_of(PREFIX + name)}.", ""))
        except MemRLError as error:
            rows.append(DoctorRow(f"{PREFIX}{name}", "optional", str(error), f"memrl model pull {name}\n{LLAMA}"))
    what = f"OpenAI-compatible server at {preferences.openai_address}"
    try:
        if names := listed.result():
            rows.append(DoctorRow(what, "ok", f"It lists {', '.join(map(one_line, names[:MODELS_NAMED]))}.", ""))
    except MemRLError as error:
        start = f"# start the server of that address, or name another:\nOPENAI_BASE_URL={preferences.openai_address}"
        rows.append(DoctorRow(what, "optional", str(error), odd.get("OPENAI_BASE_URL", start)))
    return rows


def machine_rows() -> list[DoctorRow]:
    """What of this machine, and of the variables about servers, stands in the way."""
    rows = [DoctorRow(odd.variable, "optional", odd.sentence, odd.remedy) for odd in odd_environment()]
    if problem := home_problem():
        rows.append(DoctorRow("home", "broken", problem, "export MEMRL_HOME=/a/folder/of/yours"))
    if (most := raise_open_files()) < FEW_FILES:
        rows.append(
            DoctorRow(
                "open files",
                "optional",
                f"This program may have {most:,} files open at a time. The app has three for each page that was opened "
                "in the last two minutes, and shows blank pages when there are no more.",
                f"ulimit -n {MANY_FILES}",
            )
        )
    return rows


def doctor_rows(models: Sequence[DoctorRow], findings: Iterable[Finding]) -> list[DoctorRow]:
    """What was found of the models, the environments and the bank."""
    rows = [*models]
    own = "embedder wordllama" if default_embedder() != HASHING else "lexical embedder hashing"
    rows.append(DoctorRow("embedded default", "ok", f"The simulated model and the {own} are always there.", ""))
    lacking = {name: why for name in environment_names() if (why := why_unusable(name))}
    usable = ", ".join(name for name in environment_names() if name not in lacking)
    rows.append(DoctorRow("environments", "ok", f"These can be used: {usable}.", ""))
    rows += [DoctorRow(f"environment: {name}", "optional", why, "") for name, why in lacking.items()]
    for finding in findings:
        rows.append(
            DoctorRow(f"bank: {finding.name}", "ok" if finding.ok else "broken", finding.sentence, finding.remedy)
        )
    return rows


def embedder_row(bank: MemoryBank, preferences: Preferences) -> DoctorRow:
    """Whether the embedder that made the bank's vectors can be had, with the same weights."""
    mine, what = bank.embedder, "bank: embedder"
    quick = preferences.model_copy(update={"timeout": min(preferences.timeout, PATIENCE)})
    try:
        embedder_of(bank, quick)
    except EmbedderMismatch as error:
        return DoctorRow(what, "broken", str(error), f"memrl reembed --bank {bank.uri} --embedder {mine.name}")
    except MemRLError as error:
        return DoctorRow(what, "optional", str(error), "")
    known = ", ".join([*filter(None, [mine.version, mine.digest and f"weights {mine.digest[:12]}"])])
    return DoctorRow(what, "ok", f"{mine.name} is here{f' ({known})' if mine.version else ''}.", "")


def gate_row(bank: MemoryBank) -> DoctorRow | None:
    """What the δ of the newest run lets pass, and the δ that is proposed; None where that is unknown."""
    info = next((info for info in reversed(bank.runs()) if "delta" in info.settings), None)
    if info is None:
        return None
    try:
        found = suggest_delta(bank.view(info.id))
    except InputError:
        return None
    delta = float(bank.settings(info.id)["delta"])
    return DoctorRow(
        "bank: δ",
        "ok",
        f"δ {fixed(delta, 2)} of run {info.id} lets {percent(found.passing(delta), 0)} of the pairs of different "
        f"intents pass, as {bank.embedder.name} compares them; {fixed(found.delta, 2)} lets a fifth pass.",
        f"Proposed for a new run: --setting delta={found.delta:.2f}",
    )


def doctor_table(rows: Sequence[DoctorRow], uri: str) -> Table:
    """A row per check, with its remedy."""
    table = Table(title=Text(f"memrl doctor · {shown(uri)}"))
    for heading in ("what", "", "found", "remedy"):
        # A command that is cut cannot be typed.
        table.add_column(heading, overflow="fold")
    marks = {"ok": "[green]ok[/]", "optional": "[yellow]optional[/]", "broken": "[red]broken[/]"}
    for row in rows:
        table.add_row(Text(row.what), marks[row.level], Text(row.sentence), Text(row.remedy))
    return table
