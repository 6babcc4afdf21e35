"""Runs in lockstep as a document."""

from __future__ import annotations

from collections.abc import Mapping

from memrl_core.analysis.compare.comparison import (
    SAYS,
    Comparison,
    divergences,
    finding,
    frequency,
    left_alone,
    metric_table,
    pair_rows,
    setup_warnings,
    shared_past,
)
from memrl_core.bank import MemoryBank
from memrl_core.figures.compare.comparison import reward_picture
from memrl_core.figures.report.document import Document
from memrl_core.figures.report.step import bank_name, model_name


def comparison_report(bank: MemoryBank, comparison: Comparison, settings: Mapping[str, tuple[str, ...]]) -> str:
    """A comparison of runs of one bank as one HTML document; `settings` are those in which they differ."""
    names = comparison.names
    document = Document(
        f"{names[0]} compared with {', '.join(names[1:])}", f"Runs of {bank_name(bank)} in lockstep on the same tasks."
    )
    _tell_setup(document, comparison, settings)
    if any(line.info.id != comparison.alignment.lines[0].info.id for line in comparison.alignment.lines):
        document.section("What they achieved")
        document.paragraph(finding(comparison) + ".")
        document.table(metric_table(comparison), "Every metric; Δ to the first with its 95 % interval; n counts tasks")
        document.table(
            ({"metric": metric.name, "is": metric.meaning} for metric in comparison.metrics), "What each metric is"
        )
        if comparison.rewards is not None:
            document.picture(reward_picture(comparison.rewards, names))
    for line, pairs in enumerate(comparison.pairs, start=1):
        document.section(f"Where {names[0]} and {names[line]} part")
        document.table(
            (
                {
                    "differ in": SAYS[entry.difference],
                    "how often": frequency(entry),
                    "first in step": entry.first.one.step if entry.first else None,
                }
                for entry in divergences(pairs)
            ),
            "Ways to differ",
        )
        rows = pair_rows(comparison, line)
        differing = rows[rows["differs in"] != ""]
        document.table(differing, f"The {len(differing):,} of {len(rows):,} pairs of steps that differ")
    return document.html()


def _tell_setup(document: Document, comparison: Comparison, settings: Mapping[str, tuple[str, ...]]) -> None:
    if any(line.info.simulated for line in comparison.alignment.lines):
        document.warning("A SIMULATED model was at work in at least one of the runs: no language model answered there.")
    for sentence in setup_warnings(comparison.alignment):
        document.warning(sentence)
    for sentence in (shared_past(comparison.alignment), left_alone(comparison.alignment)):
        if sentence:
            document.note(sentence)
    document.table(
        (
            {
                "run": line.name,
                "model": model_name(line.info),
                "embedder": line.info.embedder,
                "environment": line.info.environment,
                "tasks": line.info.tasks,
                "seed": str(line.info.seed),
                "begun": line.info.created,
            }
            for line in comparison.alignment.lines
        ),
        "The runs",
    )
    if settings:
        document.table(
            (
                {"setting that differs": title, **dict(zip(comparison.names, values, strict=True))}
                for title, values in settings.items()
            ),
            "Settings that differ",
        )
    else:
        document.paragraph("All settings are the same.")
