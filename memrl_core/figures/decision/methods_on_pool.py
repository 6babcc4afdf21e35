"""Which memories each method puts before the model in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label, memory_labels, reason_sentence
from memrl_core.analysis.decision.whatif import OnThisPool
from memrl_core.figures.palette import BELOW, INSIDE, LEFT_OUT, NEUTRAL, SELECTED, drawn, marks, plain, row_axis
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed
from memrl_core.records import Candidate, Decision, Memory, RecallRecord

ROW_HEIGHT = 30
INTENT_SHOWN = 34


def methods_on_pool_picture(found: Sequence[OnThisPool], memories: Mapping[str, Memory], run: str) -> Picture:
    """A row per method, a column per memory that any of them considered; filled with its place where it is given."""
    decided = [(one, one.recall, one.decision) for one in found if one.recall is not None and one.decision is not None]
    scored = [{c.memory_id: c for c in decision.candidates if c.score is not None} for *_, decision in decided]
    similarity = {memory_id: candidate.similarity for by_id in scored for memory_id, candidate in by_id.items()}
    ids = sorted(similarity, key=lambda memory_id: -similarity[memory_id])
    columns = [memory_label(memory_id, run) for memory_id in ids]
    rows = [plain(one.spec.title, 44) for one, *_ in decided]
    traces = []
    for given in (True, False):
        points = [
            (
                column,
                row,
                str(decision.selected.index(memory_id) + 1) if given else "",
                _hover(one.spec.title, candidate, recall, decision, memories.get(memory_id)),
            )
            for (one, recall, decision), by_id, row in zip(decided, scored, rows, strict=True)
            for memory_id, column in zip(ids, columns, strict=True)
            if (candidate := by_id.get(memory_id)) is not None and candidate.selected is given
        ]
        traces.append(
            marks(
                [column for column, *_ in points],
                [row for _, row, *_ in points],
                "put before the model, with its place" if given else "considered, not given",
                SELECTED if given else LEFT_OUT,
                "%{customdata}",
                size=22 if given else 9,
                edge={"width": 0 if given else 1, "color": NEUTRAL},
                text=[place for *_, place, _ in points],
                textfont={"color": INSIDE, "size": 11},
                customdata=[hover for *_, hover in points],
            )
        )
    figure = drawn(
        traces,
        height=130 + ROW_HEIGHT * max(len(rows), 1),
        xaxis={"type": "category", "categoryorder": "array", "categoryarray": columns, "side": "top", "tickangle": -40},
        yaxis={**row_axis(rows), "showgrid": True},
        legend={**BELOW, "y": -0.02},
    )
    title = _title([decision for *_, decision in decided])
    alt = f"A grid of methods and memories; filled circles are given to the model. {title}."
    return Picture(figure, _table(found, memories, run), title, alt)


def _hover(title: str, candidate: Candidate, recall: RecallRecord, decision: Decision, memory: Memory | None) -> str:
    terms = " + ".join(f"{plain(t.name, 40)} {signed(t.contribution)}" for t in candidate.terms)
    lines = [
        f"<b>{plain(title)}</b>",
        plain(memory.intent, INTENT_SHOWN) if memory else "",
        f"score {signed(candidate.score or 0.0)}" + (f" = {terms}" if terms else ""),
        plain(reason_sentence(candidate, recall, decision), 120),
    ]
    return "<br>".join(line for line in lines if line)


def _title(decisions: Sequence[Decision]) -> str:
    choices = [frozenset(decision.selected) for decision in decisions]
    if not choices:
        return "No method could be asked"
    different = len(set(choices))
    silent = sum(not choice for choice in choices)
    sentence = f"{len(choices):,} methods, {different} different choice{'s' if different > 1 else ''}"
    return f"{sentence}; {silent} give the model nothing" if silent else sentence


def _table(found: Sequence[OnThisPool], memories: Mapping[str, Memory], run: str) -> pd.DataFrame:
    rows = []
    for one in found:
        chosen = one.decision.selected if one.decision else ()
        by_id = {c.memory_id: c for c in one.decision.candidates} if one.decision else {}
        rows.append(
            {
                "method": one.spec.title,
                "rules": one.spec.variant,
                "given to the model": memory_labels(chosen, run),
                "outcomes": ", ".join(memories[i].outcome for i in chosen if i in memories),
                "why": "; ".join(
                    f"{memory_label(i, run)}: "
                    + " + ".join(f"{t.name} {signed(t.contribution)}" for t in by_id[i].terms)
                    for i in chosen
                ),
                "notes": one.problem or " ".join(one.notes),
            }
        )
    return pd.DataFrame(rows)
