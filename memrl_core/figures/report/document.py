"""One HTML document that needs nothing but itself: no network, no other file, and no text in it that could act.

Every text is escaped. The scripts are Plotly's and the few lines that draw; a policy in the document's head lets a
browser run these two alone, known by their hashes, and load nothing from anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd
from plotly.offline import get_plotlyjs

from memrl_core import __version__
from memrl_core.bank.ledger import now
from memrl_core.exchange.safe_files import drafted, html_document
from memrl_core.figures.picture import Picture
from memrl_core.numerals import NOTHING, fixed

_HERE = Path(__file__).parent
_STYLE = (_HERE / "document.css").read_text(encoding="utf-8")
_DRAW = (_HERE / "document.js").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a text that is shown letter for letter; one with a label is marked with it."""

    text: str
    label: str = ""


class Document:
    """Title, sections and what stands in them, in the order in which they are added; `html` gives the whole."""

    def __init__(self, title: str, lead: str = "") -> None:
        self.title = title
        self._body: list[str] = [f"<h1>{escape(title)}</h1>"]
        self._pictures = 0
        if lead:
            self._body.append(f'<p class="lead">{escape(lead)}</p>')

    def section(self, title: str) -> None:
        """Begin a section."""
        self._body.append(f"<h2>{escape(title)}</h2>")

    def subsection(self, title: str) -> None:
        """Begin a part of a section."""
        self._body.append(f"<h3>{escape(title)}</h3>")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._body.append(f"<p>{escape(text)}</p>")

    def note(self, text: str) -> None:
        """Add something that is good to know."""
        self._body.append(f'<p class="note"><strong>Note:</strong> {escape(text)}</p>')

    def warning(self, text: str) -> None:
        """Add something to know before a conclusion is drawn."""
        self._body.append(f'<p class="warning"><strong>Careful:</strong> {escape(text)}</p>')

    def table(self, rows: Iterable[Mapping[str, object]] | pd.DataFrame, caption: str) -> None:
        """Add a table with a caption; a column for every key, in the order in which they first appear."""
        self._body.append(_table(rows, caption))

    def verbatim(self, text: str | Sequence[Passage], caption: str) -> None:
        """Add a text letter for letter, with its marked passages."""
        passages = [Passage(text)] if isinstance(text, str) else text
        # A browser drops the first line break after <pre>: this one, and none of the text's own.
        block = f"<pre>\n{''.join(map(_passage, passages))}</pre>"
        self._body.append(f"<figure><figcaption>{escape(caption)}</figcaption>{block}</figure>")

    def picture(self, picture: Picture) -> None:
        """Add a figure under its finding, with its words for those who cannot see it and its table."""
        self._pictures += 1
        height = picture.figure.layout.height or 450
        self._body.append(
            f"<figure><figcaption>{escape(picture.title)}</figcaption>"
            f'<div class="chart" role="img" aria-label="{escape(picture.alt)}" style="height:{height:g}px"></div>'
            f'<script type="application/json">{_figure_json(picture)}</script>'
            f"<details><summary>The same as a table</summary>{_table(picture.table, picture.title)}</details></figure>"
        )

    def html(self) -> str:
        """The whole document."""
        scripts = [get_plotlyjs(), _DRAW] if self._pictures else []
        made = f"Made by MemRL Inspector {__version__} on {now()[:19].replace('T', ' ')} UTC."
        body = (
            "<main>",
            *self._body,
            "</main>",
            f"<footer>{escape(made)}</footer>",
            *(f"<script>{script}</script>" for script in scripts),
        )
        return html_document(self.title, f"\n{_STYLE}", "'unsafe-inline'", body, scripts, "data: blob:")


def picture_report(picture: Picture) -> str:
    """One picture as a document of its own."""
    document = Document(picture.title)
    document.picture(picture)
    return document.html()


def write_report(html: str, target: Path, overwrite: bool = False) -> None:
    """Write a document to `target`, whole or not at all.

    Raises `InputError` when `target` exists and is not to be overwritten, `BankFull`, `BankReadOnly`.
    """
    with drafted(target, overwrite) as file:
        file.write(html.encode("utf-8"))


def _figure_json(picture: Picture) -> str:
    """The figure without its template, for the page brings its own; no "<" in it can end the block."""
    figure = json.loads(picture.figure.to_json())
    figure["layout"].pop("template", None)
    return json.dumps(figure, separators=(",", ":")).replace("<", "\\u003c")


def _passage(passage: Passage) -> str:
    if not passage.label:
        return escape(passage.text)
    return f"<mark><b>{escape(passage.label)}</b>{escape(passage.text)}</mark>"


def _table(rows: Iterable[Mapping[str, object]] | pd.DataFrame, caption: str) -> str:
    found = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else list(rows)
    columns = list(dict.fromkeys(str(name) for row in found for name in row))
    numbers = {name for name in columns if any(_is_number(row.get(name)) for row in found)}
    heads = "".join(f'<th scope="col"{_aligned(name in numbers)}>{escape(name)}</th>' for name in columns)
    lines = "\n".join(
        "<tr>" + "".join(f"<td{_aligned(name in numbers)}>{_cell(row.get(name))}</td>" for name in columns) + "</tr>"
        for row in found
    )
    named = escape(caption)
    return (
        f'<div class="wide" role="region" aria-label="{named}" tabindex="0"><table><caption>{named}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


def _aligned(number: bool) -> str:
    return ' class="number"' if number else ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object) -> str:
    """A value as text; a float shows three decimals and carries all of them in its `data` element."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f'<data value="{float(value)!r}">{fixed(value)}</data>'
    return escape(str(value))
