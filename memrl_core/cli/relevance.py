"""`memrl recall`: label what was recalled, measure it, and guard it by a golden set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal
from xml.etree import ElementTree

import typer
from rich.markup import escape
from rich.table import Table

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import embedder_of, is_simulated, make_model, must_be_there, new_embedder
from memrl_core.analysis.decision.labels import memory_named
from memrl_core.analysis.recall.changed import changed_sentence, changed_since
from memrl_core.analysis.recall.found import PLAIN, Measure, lacking, measured, notes_of, rankings, usual
from memrl_core.analysis.recall.grades import SOURCES, STORED_DERIVED, Deriver, agreement_sentences, judged, on_gold
from memrl_core.analysis.recall.model_judge import judged_by
from memrl_core.analysis.recall.pooling import DEPTH, recall_batch
from memrl_core.analysis.recall.queries import funnel, labelled
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import GRADES_IN_WORDS, MEANING, USES, Label, LabelSource, Use
from memrl_core.bank.people.roles import SOMEONE, person_name
from memrl_core.bank.people.undo import JUDGED, Action, label_key
from memrl_core.cli.console import BankOption, CtrlC, RunOption, at_work, cancelled, console, plain, run_of
from memrl_core.cli.exchange import LINES, listing, print_batch
from memrl_core.embedders.base import Embedder
from memrl_core.errors import BankMissing, InputError, ModelError, NotABank, few
from memrl_core.exchange.bring_in import bring_in, read_any
from memrl_core.exchange.new_banks import reembed
from memrl_core.exchange.recall_sets import as_jsonl, as_qrels, beir_files, exported, read_set
from memrl_core.exchange.recall_sets_in_banks import answered, labels_for
from memrl_core.exchange.safe_files import drafted
from memrl_core.models.base import ModelOptions
from memrl_core.numerals import counted, percent
from memrl_core.records import EventKind

recall_app = typer.Typer(help="Was the right memory found? Labels, measures and a guard.", no_args_is_help=True)
JUDGES_TOKENS = 200
"""A grade and a short reason."""
RaterOption = Annotated[str, typer.Option("--rater", help="Who labels.")]
RuleOption = Annotated[
    Literal["majority", "any", "strict"], typer.Option("--rule", help="Which grade several raters give together.")
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--source", help=f"Only labels from here; repeatable: {', '.join(SOURCES)}. Else all, in this order."),
]


@recall_app.command("label")
def label(
    bank: BankOption,
    step: Annotated[int, typer.Argument(help="Number of the step; 0 with --derive or --undo.", min=0)] = 0,
    memory: Annotated[
        str,
        typer.Argument(help="The memory, by its name in memrl show or its id; none for --nothing and --something."),
    ] = "",
    grade: Annotated[
        str, typer.Option("--grade", help=f"0 to 3 ({', '.join(MEANING)}), or a word: {', '.join(GRADES_IN_WORDS)}.")
    ] = "",
    nothing: Annotated[bool, typer.Option("--nothing", help="For this step nothing should come.")] = False,
    something: Annotated[bool, typer.Option("--something", help="For this step something should come.")] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take this rater's label back; without STEP all labels of --source.")
    ] = False,
    source: Annotated[
        str, typer.Option("--source", help=f"Where labels to --withdraw come from: {', '.join(SOURCES)}.")
    ] = "person",
    derive: Annotated[
        bool, typer.Option("--derive", help="Label all that the run's steps considered by what the environment knows.")
    ] = False,
    judge: Annotated[
        str, typer.Option("--judge", help="Let this model label what the step, or every step, considered.")
    ] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Undo this rater's last label.")] = False,
    rater: RaterOption = "",
    reason: Annotated[str, typer.Option("--reason", help="Why.")] = "",
    run: Annotated[
        str, typer.Option("--run", help="The run; the newest when left out, and for --withdraw without STEP all.")
    ] = "",
) -> None:
    """Say how relevant a memory was to a step, or that nothing should have come. No q moves."""
    with MemoryBank.open(bank) as opened:
        name = run_of(opened, run)
        if undo:
            done = opened.write.undo.undo(rater or SOMEONE, JUDGED)
            console.print(_nothing_to_undo(rater) if done is None else escape(plain(_undone(opened, done))))
            return
        if withdraw:
            console.print(escape(plain(_withdrawn(opened, name if step or run else "", step, memory, rater, source))))
            return
        if derive:
            console.print(_derived(opened, name))
            return
        if judge:
            _judge(opened, name, judge, step)
            return
        if not step:
            raise InputError("Name a step: memrl recall label STEP MEMORY --grade 2. Nothing was saved.")
        value = _grade(grade, memory, nothing, something)
        given = Label(name, step, _memory_of(opened, memory, name), value, rater, reason=reason)
        opened.write.judgements.judge(given)
        console.print(escape(plain(f"{_about(name, step, given.memory_id)}: {_meant(given)}.")))


def _memory_of(bank: MemoryBank, written: str, run: str) -> str:
    """The id of the memory that a person names by it or as screens do. Raises `InputError` where there is none."""
    if not written:
        return ""
    for name in (written, memory_named(written, run)):
        if bank.holds(name):
            return name
    raise InputError(
        f"This bank holds no memory “{written[:80]}”. Nothing was saved. memrl show STEP names the memories of a step, "
        f"such as #7 for {run}-0007 of run {run}; the page Bank and memrl recall export have their whole ids."
    )


def _about(run: str, step: int, memory: str) -> str:
    return f"Step {step} of run {run}, {f'memory {memory}' if memory else 'the query'}"


def _meant(label: Label | None) -> str:
    if label is None or label.grade is None:
        return "no label"
    if label.memory_id:
        return MEANING[label.grade]
    return "something should come" if label.grade else "nothing should come"


def _withdrawn(bank: MemoryBank, run: str, step: int, memory: str, rater: str, source: str) -> str:
    """Take labels of a rater from a source back: of a memory or the query of a step, or all; a sentence that says so.

    Raises `InputError` where no such label stands.
    """
    (of,) = _sources([source])
    who = person_name(rater) if rater or of == "person" else ""
    whose = f"from {of}{f' by {who}' if who else ''}"
    if step and not bank.steps.has(run, step):
        raise InputError(f"Run {run} has no finished step {step}. Nothing was changed.")
    if not step and of == "person" and not rater:
        raise InputError("Name a STEP, a --rater, or a --source of labels to take back. Nothing was changed.")
    memory = _memory_of(bank, memory, run) if step else ""
    standing = bank.judgements.standing(run or None, step or None)
    here = [one for one in standing if not step or one.memory_id == memory]
    found = [one for one in here if one.source == of and who in ("", one.rater)]
    where = _about(run, step, memory) if step else f"Run {run}" if run else "This bank"
    if not found:
        others = ", ".join(sorted({f"--source {one.source} --rater {one.rater}" for one in here})[:LINES])
        say = f"; what stands has {others}" if others else ""
        raise InputError(f"{where}: no label {whose} stands. Nothing was changed{say}.")
    bank.write.judgements.judge_all([replace(one, grade=None, reason="") for one in found])
    if step:
        return f"{where}: taken back is {', '.join(_meant(one) for one in found)} {whose}."
    return f"{where}: {counted(len(found), 'label')} {whose} {'is' if len(found) == 1 else 'are'} taken back."


def _nothing_to_undo(rater: str) -> str:
    return (
        f"{escape(plain(rater or SOMEONE))} gave no label here by hand that can be undone. Labels of a file, a model "
        "or the environment are taken back by --withdraw with --source import, judge or derived, and perhaps --rater."
    )


def _undone(bank: MemoryBank, action: Action) -> str:
    """What was undone, and what is said now."""
    first = action.first
    memory = first.memory_ids[0] if first.memory_ids else ""
    if len(action.events) > 1:
        steps = few(sorted({event.step for event in action.events}))
        return f"Undone: {len(action.events):,} labels of run {first.run} (steps {steps})."
    if first.kind is EventKind.USE_JUDGED:
        before = next((str(use) for use, value in USES.items() if value == first.value), "no use")
        uses = bank.judgements.uses(first.run, first.step)
        now = next((str(one.used) for one in uses if _same(one, memory, first.rater)), "no use")
    else:
        given = Label(first.run, first.step, memory, None if first.value is None else int(first.value), first.rater)
        before = _meant(given)
        labels = bank.judgements.standing(first.run, first.step)
        own = (one for one in labels if _same(one, memory, first.rater) and one.source == first.payload.get("from"))
        now = _meant(next(own, None))
    return f"Undone: {_about(first.run, first.step, memory)}, {before}. Now it is: {now}."


def _same(one: Label | Use, memory: str, rater: str) -> bool:
    return (one.memory_id, one.rater) == (memory, rater)


def _grade(grade: str, memory: str, nothing: bool, something: bool) -> int:
    if nothing or something:
        if memory or grade or nothing == something:
            raise InputError("--nothing and --something are about the query: name one, no memory and no grade.")
        return int(something)
    if not memory:
        raise InputError("Name a memory and its --grade, or say --nothing. Nothing was saved.")
    word = grade.strip().lower()
    if word in GRADES_IN_WORDS:
        return GRADES_IN_WORDS[word]
    if not word.isdecimal() or int(word) >= len(MEANING):
        raise InputError(
            f"“{grade[:20]}” is no grade: give 0 to 3, or one of {', '.join(GRADES_IN_WORDS)}. Nothing was saved."
        )
    return int(word)


def _derived(bank: MemoryBank, run: str) -> str:
    deriver = Deriver(bank, run)
    if not deriver.knows:
        raise InputError(
            f"The environment of run {run[:80]} does not know what its tasks are about. Nothing was saved; label by "
            "hand, or import a set."
        )
    labels: list[Label] = []
    for trace in bank.each_trace(run):
        considered = trace.decision.candidates if trace.decision is not None else ()
        labels += deriver.of_step(trace, [bank.memory(one.memory_id) for one in considered])
        if labels and not labels[-1].memory_id and not labels[-1].grade:
            labels.pop()  # What a step did not consider is not looked at: that nothing fits is not known.
    bank.write.judgements.judge_all(labels)
    return f"{len(labels):,} derived labels stand in run {escape(run)}, kept apart from those of people."


def _judge(bank: MemoryBank, run: str, name: str, step: int) -> None:
    """Label by a model, step by step; what was labelled before Ctrl-C or a failure is kept."""
    if is_simulated(name):
        raise InputError("The simulated model judges nothing. Name a language model. Nothing was saved.")
    preferences = load_preferences()
    must_be_there(name, preferences)
    model, options = make_model(name, preferences), ModelOptions(num_predict=JUDGES_TOKENS)
    steps = [step] if step else [row.step for row in bank.steps.rows(run)]
    saved = refused = 0
    with at_work("steps") as (on_progress, stop):
        for done, number in enumerate(steps):
            on_progress(done, len(steps))
            if stop():
                break
            trace = bank.trace(run, number)
            considered = trace.decision.candidates if trace.decision is not None else ()
            memories = [bank.memory(one.memory_id) for one in considered]
            labels = list(judged_by(model, options, trace, memories))
            good = [one for one in labels if one is not None]
            if good:
                bank.write.judgements.judge_all(good)
            saved, refused = saved + len(good), refused + len(labels) - len(good)
    console.print(f"{saved:,} labels by {escape(plain(model.name))} stand in run {escape(run)}.")
    if refused:
        console.print(f"{refused:,} answers were no grade and were left out.", style="yellow")


@recall_app.command("batch")
def batch(
    bank: BankOption,
    raters: Annotated[str, typer.Option("--raters", help="Their names, separated by commas.")],
    run: RunOption = "",
    name: Annotated[str, typer.Option("--name", help="What the batch is called.")] = "recall",
    steps: Annotated[int, typer.Option("--steps", min=1, help="At most so many steps are drawn.")] = 40,
    doubled: Annotated[
        float, typer.Option("--doubled", min=0, max=1, help="The share of steps that two raters get.")
    ] = 0.0,
    gold: Annotated[float, typer.Option("--gold", min=0, max=1, help="The share of gold items.")] = 0.0,
    known: Annotated[
        str, typer.Option("--known", help="Whose labels gold items have; else what the environment knows.")
    ] = "",
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help="Pool over this method too, such as rag; repeatable."),
    ] = None,
    embedders: Annotated[
        list[str] | None, typer.Option("--embedder", help="Pool over the vectors of this one too; repeatable.")
    ] = None,
    depth: Annotated[int, typer.Option("--depth", min=1, max=50, help="So many of the first of each.")] = DEPTH,
    as_ranked: Annotated[bool, typer.Option("--as-ranked", help="Memories as ranked, not in drawn order.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed draws the same.")] = 0,
    by: Annotated[str, typer.Option("--by", help="Who makes it.")] = "",
) -> None:
    """Share steps out among raters to label their recall; the memories are pooled over several methods."""
    others = [new_embedder(one, load_preferences()) for one in embedders or []]
    with MemoryBank.open(bank) as opened:
        with at_work("steps") as (on_progress, stop):
            made = recall_batch(
                opened, run_of(opened, run), name, raters.split(","), count=steps, doubled=doubled, gold_share=gold,
                known=known, methods=methods or [], embedders=others, depth=depth, as_ranked=as_ranked, seed=seed,
                on_progress=on_progress, cancelled=stop,
            )  # fmt: skip
        if made is None:
            cancelled("Cancelled. Nothing was stored.")
        print_batch(opened, opened.write.batches.make(made, by))


@recall_app.command("export")
def export(
    out: Annotated[Path, typer.Argument(help="The file to write, such as set.jsonl; for beir a new folder.")],
    bank: BankOption,
    run: Annotated[str, typer.Option("--run", help="The run; all labelled runs when left out.")] = "",
    kind: Annotated[
        Literal["jsonl", "qrels", "beir"], typer.Option("--format", help="JSON Lines, TREC qrels, or a BEIR folder.")
    ] = "jsonl",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write the labels of a bank, or of one run, as a golden set."""
    with MemoryBank.open(bank) as opened:
        queries = exported(opened, run)
        if not queries:
            raise InputError("No step is labelled yet. Nothing was written; label some with memrl recall label.")
        if kind == "beir":
            files = {out / name: data for name, data in beir_files(queries, opened).items()}
            (out / "qrels").mkdir(parents=True, exist_ok=True)
        else:
            files = {out: as_jsonl(queries) if kind == "jsonl" else as_qrels(queries)}
    for path, data in files.items():
        with drafted(path, overwrite) as file:
            file.write(data)
    console.print(f"Wrote {counted(len(queries), 'query')} to {escape(str(out))}.")


@recall_app.command("import")
def import_set(
    file: Annotated[
        Path,
        typer.Argument(help="JSON Lines, TREC qrels, a BEIR folder, or spans with annotations of their documents."),
    ],
    bank: BankOption,
    run: Annotated[
        str, typer.Option("--run", help="The run of queries that name no step; the newest when left out.")
    ] = "",
    rater: RaterOption = "",
    by: Annotated[str, typer.Option("--by", help="Who imports, where that is another one.")] = "",
) -> None:
    """Take the labels of a set into a bank, for the steps that it names or that have its task or text."""
    found = read_set(file)
    with MemoryBank.open(bank) as opened:
        name = run_of(opened, run)
        imported = labels_for(found, opened, name, rater or file.name[:80], by)
        stored = opened.write.judgements.judge_all(imported.labels) if imported.labels else []
        listing("Corrected", found.notes)
        listing("Skipped", found.skipped)
        listing("Worth knowing", imported.notes)
        if not imported.labels:
            raise InputError("No label of this set is about a step and a memory of this bank. Nothing was imported.")
        # Names of raters are stored without odd characters, so that two of a file may be one here.
        console.print(f"Labels in {escape(bank)} from this set: {len(set(map(label_key, stored))):,}.")


@recall_app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="The golden set: JSON Lines, TREC qrels, or a BEIR folder.")],
    bank: BankOption,
    run: Annotated[
        str,
        typer.Option("--run", help="Ask this run every query; else each that names a step its run, others the newest."),
    ] = "",
    least: Annotated[list[str] | None, typer.Option("--min", help="A bar, such as recall@10=0.8; repeatable.")] = None,
    most: Annotated[
        list[str] | None, typer.Option("--max", help="A bar, such as false_recall=0.1; repeatable.")
    ] = None,
    rule: RuleOption = "majority",
    anew: Annotated[
        str,
        typer.Option("--embedder", help="Ask with vectors of this embedder, made for the check and not kept."),
    ] = "",
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write the bars as a JUnit file.")] = None,
) -> None:
    """Ask a bank every query of a golden set, print the measures, and exit 1 where a bar is missed.

    A bank may come from anywhere: a folder, an export, or a checkpoint of the official code.
    """
    bars = [_bar(one, "--min") for one in least or []] + [_bar(one, "--max") for one in most or []]
    measured([], [name for name, _, _ in bars])  # A wrong name is said before anything is embedded.
    # A place that cannot be written is said before any query is asked.
    with drafted(junit, overwrite=True) if junit is not None else nullcontext() as report:
        found = read_set(file)
        made = new_embedder(anew, load_preferences()) if anew else None
        with _any_bank(bank, made) as opened:
            name = run_of(opened, run)
            embedder, problem = (made, "") if made is not None else _embedder(opened)
            came = answered(found, opened, name, embedder, rule, only=bool(run))
            listing("Corrected", found.notes)
            listing("Skipped", found.skipped)
            listing("Worth knowing", [*([problem] if problem else []), *came.notes])
            if not came.rankings:
                raise InputError(f"No query of {file.name[:80]} can be asked, as said above. Nothing was checked.")
            settings = opened.settings(came.runs[0])
            k1, k2 = int(settings.get("k1", 10)), int(settings.get("k2", 3))
            names = list(dict.fromkeys([*(name for name, _, _ in bars), *usual(k1, k2)]))
            values = measured(came.rankings, names)
        asked = f"run{'s' if len(came.runs) > 1 else ''} {', '.join(came.runs)}"
        _print_measures(values, f"{file.name}: {counted(len(came.rankings), 'query')} · {asked}")
        by_name = {measure.name: measure for measure in values}
        results = [(bar, by_name[bar[0]], _held(bar, by_name[bar[0]])) for bar in bars]
        for (bar_name, sign, value), measure, held in results:
            unknown = f"cannot be computed ({lacking(bar_name)})"
            now = unknown if math.isnan(measure.share.value) else f"{measure.share.value:.4f}"
            said = f"{bar_name} {sign} {value:g}: {now}, {'held' if held else 'missed'}."
            console.print(escape(said), style="green" if held else "red")
        if report is not None:
            report.write(_junit(file.name, results))
    if not all(held for *_, held in results):
        raise typer.Exit(1)


Bar = tuple[str, Literal["≥", "≤"], float]


def _bar(text: str, option: Literal["--min", "--max"]) -> Bar:
    name, equals, value = text.partition("=")
    try:
        number = float(value)
        if not equals or not 0 <= number <= 1:
            raise ValueError
    except ValueError:
        raise InputError(f"{option} {text[:80]} is no bar: write it as recall@10=0.8, from 0 to 1.") from None
    return name.strip().lower(), "≥" if option == "--min" else "≤", number


def _held(bar: Bar, measure: Measure) -> bool:
    """Whether a measure keeps to its bar; what cannot be computed does not."""
    _, sign, value = bar
    share = measure.share.value
    return not math.isnan(share) and (share >= value - 1e-9 if sign == "≥" else share <= value + 1e-9)


def _junit(name: str, results: Sequence[tuple[Bar, Measure, bool]]) -> bytes:
    """The bars and what became of them in the XML of JUnit."""
    failures = sum(not held for *_, held in results)
    suite = ElementTree.Element("testsuite", name="memrl recall", tests=str(len(results)), failures=str(failures))
    for (bar_name, sign, value), measure, held in results:
        case = ElementTree.SubElement(suite, "testcase", classname=plain(name), name=f"{bar_name} {sign} {value:g}")
        if not held:
            over = counted(measure.queries, "query")
            said = f"{bar_name} is {measure.share.value:.4f} over {over}, not {sign} {value:g}"
            if math.isnan(measure.share.value):
                said = f"{bar_name} cannot be computed: {lacking(bar_name)}"
            ElementTree.SubElement(case, "failure", message=said)
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written


@contextmanager
def _any_bank(place: str, anew: Embedder | None = None) -> Iterator[MemoryBank]:
    """A bank to read: one that is there, or what `memrl import` would take, in a folder that vanishes afterwards.

    With `anew` it has the vectors of this embedder, also in such a folder.
    """
    with ExitStack() as until_read:
        try:
            bank = until_read.enter_context(MemoryBank.open(place))
        except (BankMissing, NotABank):
            if not Path(place).exists():
                raise
            passing = f"{until_read.enter_context(TemporaryDirectory(prefix='memrl-recall-'))}/bank"
            with CtrlC() as stop:
                bring_in(read_any(Path(place), stop.asked), passing)
            bank = until_read.enter_context(MemoryBank.open(passing))
        if anew is not None:
            passing = f"{until_read.enter_context(TemporaryDirectory(prefix='memrl-recall-'))}/bank"
            with at_work("texts") as (on_progress, stopped):
                if reembed(bank, anew, passing, on_progress, stopped) is None:
                    cancelled("Cancelled. Nothing was stored.")
            bank = until_read.enter_context(MemoryBank.open(passing))
        yield bank


def _embedder(bank: MemoryBank) -> tuple[Embedder | None, str]:
    """The bank's embedder, or None and why it cannot be had: queries of finished steps have vectors without it."""
    try:
        return embedder_of(bank, load_preferences()), ""
    except (ModelError, InputError) as error:
        return None, f"{error} Only queries of finished steps can be asked."


@recall_app.command("report")
def report(
    bank: BankOption,
    run: Annotated[str, typer.Option("--run", help="The run; all labelled runs when left out.")] = "",
    source: SourceOption = None,
    rule: RuleOption = "majority",
    derived: Annotated[
        bool, typer.Option("--derived", help="Label every memory by what the environment knows; nothing is stored.")
    ] = False,
    embedders: Annotated[
        list[str] | None,
        typer.Option("--embedder", help="Also decide every step again on the vectors of this embedder; repeatable."),
    ] = None,
) -> None:
    """Print how good recall was on labelled steps, and where what should have come was lost."""
    from memrl_core.analysis.recall.success import against_success  # It needs pandas, which takes a while to load.

    sources = _sources(source or [])
    others = [new_embedder(one, load_preferences()) for one in embedders or []]
    with MemoryBank.open(bank) as opened:
        shown = 0
        for name in [opened.run(run).id] if run else [info.id for info in opened.runs()]:
            labels = opened.judgements.standing(name)
            queries = labelled(opened, name, judged(labels, rule, sources), derive=derived) or []
            if not queries:
                continue
            shown += 1
            info, settings = opened.run(name), opened.settings(name)
            k1, k2 = int(settings.get("k1", 10)), int(settings.get("k2", 3))
            title = f"{name} · {info.policy} · {info.embedder} · {counted(len(queries), 'labelled step')}"
            _print_measures(measured(rankings(queries), usual(k1, k2)), title)
            for made in others:
                with at_work("texts") as (on_progress, stop):
                    again = labelled(
                        opened, name, judged(labels, rule, sources), derive=derived, embedder=made,
                        on_progress=on_progress, cancelled=stop,
                    )  # fmt: skip
                if again is None:
                    cancelled("Cancelled. Nothing was stored.")
                _print_measures(measured(rankings(again), usual(k1, k2)), f"the same steps · {made.name}")
            by_source = Counter(label.source for label in labels if label.source in sources)
            said = ", ".join(f"{by_source[one]:,} {one}" for one in sources if by_source[one])
            console.print(f"Labels: {'derived, not stored' if derived else said}.")
            if by_source["derived"] and not derived:
                console.print(f"{STORED_DERIVED} --derived labels every memory.", style="yellow")
            if since := changed_sentence(changed_since(opened, name, labels)):
                console.print(since, style="yellow")
            found = funnel(queries)
            console.print(_funnel_table(found.counts))
            if found.used is not None:
                console.print(f"{found.used:,} of those in the prompt were followed by the answer.")
            for sentence in against_success(opened, name, queries).sentences:
                console.print(sentence)
            for sentence in agreement_sentences([one for one in labels if one.source in sources], rule):
                console.print(escape(plain(sentence)))
            for rater, right in on_gold(opened, name, labels).items():
                ends = f"{percent(right.low or 0.0, 0)} – {percent(right.high or 0.0, 0)}"
                share = f"{percent(right.share or 0.0, 0)} of {counted(right.n, 'label')}"
                console.print(f"{escape(plain(rater))} labels as the environment knows in {share} ({ends}).")
        if not shown and derived:
            raise InputError(
                "No step can be labelled: no environment here knows what its tasks are about. Label by hand with "
                "memrl recall label STEP MEMORY --grade 2, or bring in a set with memrl recall import."
            )
        if not shown:
            raise InputError(
                "No step is labelled yet. Begin with memrl recall label STEP MEMORY --grade 2, with --derive, or with "
                "memrl recall import."
            )


def _sources(given: Sequence[str]) -> tuple[LabelSource, ...]:
    for one in given:
        if one not in SOURCES:
            raise InputError(f"“{one[:40]}” is no source of labels; there are {', '.join(SOURCES)}.")
    return tuple(one for one in SOURCES if not given or one in given)


def _print_measures(measures: Sequence[Measure], title: str) -> None:
    table = Table("measure", "phase", "mean", "95 %", "queries", box=None, title=escape(plain(title)))
    for one in measures:
        share = one.share
        ends = "" if math.isnan(share.low) else f"{share.low:.3f} – {share.high:.3f}"
        mean = "" if math.isnan(share.value) else f"{share.value:.3f}"
        name = one.name.removesuffix(".b").removesuffix(".a")
        phase = "" if name in PLAIN else one.phase
        table.add_row(name, phase, mean, ends, f"{one.queries:,}")
    console.print(table)
    for note in notes_of(measures):
        console.print(note, style="yellow")


def _funnel_table(counts: Mapping[str, int]) -> Table:
    table = Table("of what should come", "left", "lost before", box=None)
    before = None
    for name, count in counts.items():
        gone = "" if before is None or before == count else f"{before - count:,}"
        table.add_row(name, f"{count:,}", gone)
        before = count
    return table
