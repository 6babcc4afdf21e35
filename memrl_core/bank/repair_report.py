"""What a repair did, as records and as a page."""

from __future__ import annotations

from dataclasses import dataclass

from memrl_core.bank.ledger import now


@dataclass(frozen=True, slots=True)
class TableRepair:
    """What became of a table: rows that could be read, that are kept as they were, set aside and made anew.

    `lost` are those of which nothing could be read; None when nobody can tell how many there were.
    """

    name: str
    read: int
    kept: int
    set_aside: int
    rebuilt: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did. `target` is "" when there was nothing to repair; then nothing was written.

    `copy` is the full copy of a bank that was repaired in place, else "". `told` are sentences on what the tables do
    not show, `remaining` on what is still wrong with the repaired bank.
    """

    source: str
    target: str
    copy: str
    tables: tuple[TableRepair, ...]
    told: tuple[str, ...]
    remaining: tuple[str, ...]


def report(made: Repair, aside: str) -> str:
    """The repair as a page of Markdown; `aside` names the folder with what was set aside, "" when there is none."""
    lines = [
        f"# Repair of {made.source}",
        "",
        f"Made {now()}.",
        "",
        _HEAD,
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for table in made.tables:
        lost = "not known" if table.lost is None else table.lost
        lines.append(f"| {table.name} | {table.read} | {table.kept} | {table.set_aside} | {table.rebuilt} | {lost} |")
    lines += ["", *(f"- {sentence}" for sentence in made.told)]
    if aside:
        lines += ["", f"What was set aside stands in `{aside}`, a line a row, each with the reason."]
    if made.copy:
        lines += ["", f"The bank as it was before: {made.copy}."]
    if made.remaining:
        lines += ["", "Still wrong:", "", *(f"- {sentence}" for sentence in made.remaining)]
    return "\n".join(lines) + "\n"


_HEAD = "| table | read | kept as they were | set aside | made anew | lost |"
