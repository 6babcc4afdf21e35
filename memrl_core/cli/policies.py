"""The methods and the settings of each."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from memrl_core.cli.console import console
from memrl_core.policies import policy_class, policy_names, usable_policies
from memrl_core.settings import allowed


def list_policies(
    name: Annotated[str, typer.Argument(help="One of them: its rules, its settings and what each may be.")] = "",
) -> None:
    """List the methods, or show one with its settings."""
    if name:
        _show(name)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "method", "rules", "learns from", "source"):
        table.add_column(heading)
    for known in policy_names():
        if known not in usable_policies():
            table.add_row(known, "cannot be loaded", "", "", f"why: memrl policies {known}")
            continue
        spec = policy_class(known).spec
        learns_from = ", ".join(spec.feedback) or "nothing"
        table.add_row(known, escape(spec.title), spec.variant, learns_from, escape(spec.citation))
    console.print(table)
    console.print("More of one: memrl policies NAME. A run of it: memrl run --policy NAME.")


def _show(name: str) -> None:
    found = policy_class(name)
    spec = found.spec
    console.print(f"[bold]{escape(spec.title)}[/] ({spec.variant}) · {escape(spec.citation)}\n{escape(spec.idea)}")
    for word in ("record", "when", "recall", "select", "update", "write", "forget", "cannot", "carries_over"):
        console.print(f"[bold]{word.replace('_', ' ')}[/]: {escape(getattr(spec, word))}")
    for sentence in spec.deviations:
        console.print(f"  differs: {escape(sentence)}")
    if found.presets:
        console.print(f"[bold]presets[/]: {', '.join(found.presets)} (memrl run --preset NAME)")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("setting", "default", "allowed", "what it is"):
        table.add_column(heading)
    for key, field in found.Settings.model_fields.items():
        if key in found.ignored:
            continue
        table.add_row(key, escape(str(field.default)), escape(allowed(field)), escape(field.description or ""))
    console.print(table)
