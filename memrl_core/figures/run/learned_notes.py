"""What is learned as text or as cases: A-MEM's notes and links, EMPO²'s tips, Memento's losses and cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, degrees, pi, sin

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.notes import CaseHistory, LinkGraph
from memrl_core.figures.palette import CUT, ENTERED, LEFT, NEUTRAL, POOL, RING, SELECTED, UTILITY, bare_layout, plain
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned_values import step_axis
from memrl_core.figures.run.reliability import success_dots

COIN = 0.6931471805599453
"""−ln 0.5: the loss of saying one half to everything."""
MOST_SHOWN = 30
CALIBRATION_NAMES = {
    "low": "p from",
    "high": "p to",
    "p": "mean p",
    "n": "uses",
    "success_low": "95 % from",
    "success_high": "95 % to",
}
KERNEL_NAMES = {"outcome": "r", "similarity": "cosine", "weight": "k(s, s′)", "share": "share of all weights"}


def loss_picture(losses: pd.DataFrame) -> Picture:
    """The batch's loss before each task's step of learning, and after it (`analysis.learned.cases.losses`)."""
    figure = go.Figure()
    figure.add_hline(y=COIN, line={"color": CUT, "dash": "dash", "width": 1})
    if len(losses):
        figure.add_annotation(
            x=1, xref="paper", y=COIN, text="says one half to everything", xanchor="right", yanchor="bottom",
            showarrow=False,
        )  # fmt: skip
    for column, name, colour, symbol in (
        ("before", "before its step", SELECTED, "circle"),
        ("after", "after it", UTILITY, "circle-open"),
    ):
        figure.add_scatter(
            x=losses["step"],
            y=losses[column],
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": 2, "dash": "solid" if column == "before" else "dot"},
            marker={"color": colour, "symbol": symbol, "size": 7},
            customdata=losses["rows"],
            hovertemplate="step %{x}: %{y:.4f} with %{customdata} labelled rows<extra></extra>",
        )
    figure.update_layout(bare_layout(height=300))
    first, last = (int(losses["step"].iloc[0]), int(losses["step"].iloc[-1])) if len(losses) else (1, 1)
    figure.update_xaxes(step_axis(first, last))
    figure.update_yaxes(title_text="cross-entropy of the batch", rangemode="tozero", zeroline=False)
    title = _loss_title(losses)
    return Picture(figure, losses, title, f"The loss of each task's replay batch before and after learning. {title}.")


def case_calibration_picture(bins: pd.DataFrame) -> Picture:
    """A dot a bin of predictions at its share of successes, with the 95 % Wilson interval; larger for more uses.

    `bins` is `analysis.learned.cases.case_calibration`; every prediction was made before its outcome was known.
    """
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="p says it exactly", line={"color": CUT, "dash": "dash"},
        hoverinfo="skip",
    )  # fmt: skip
    hover = "mean p %{x:.2f}: %{y:.0%} of %{customdata[2]:d} uses succeeded<extra></extra>"
    figure.add_scatter(name="p before each use", hovertemplate=hover, **success_dots(bins, "p"))
    figure.update_layout(bare_layout(height=320))
    figure.update_xaxes(title_text="predicted p", range=[-0.03, 1.12], zeroline=False, dtick=0.2)
    figure.update_yaxes(title_text="success", range=[-0.03, 1.03], tickformat=".0%", zeroline=False)
    title = _calibration_title(bins)
    table = bins.rename(columns=CALIBRATION_NAMES)
    return Picture(figure, table, title, f"Dots of success against p with their intervals and a diagonal. {title}.")


def kernel_picture(weights: pd.DataFrame, history: CaseHistory, case: str) -> Picture:
    """A bar a past use of a case: its share in Q_EC(s, c), coloured and hatched by how the use ended.

    `weights` is `analysis.learned.cases.kernel_weights`, `case` the name of the case.
    """
    settings = history.settings
    by_weight = weights.sort_values("weight", ascending=False, kind="stable")
    rows = by_weight.head(MOST_SHOWN)
    labels = [f"step {step}" for step in rows["step"]]
    figure = go.Figure()
    for outcome, name, colour, pattern in ((1.0, "succeeded", SELECTED, ""), (0.0, "failed", UTILITY, "/")):
        members = (rows["outcome"] == outcome).tolist()
        figure.add_bar(
            orientation="h",
            name=name,
            x=[share if member else None for share, member in zip(rows["share"], members, strict=True)],
            y=labels,
            marker={"color": colour, "pattern": {"shape": pattern}},
            customdata=rows[["similarity", "weight"]].to_numpy(),
            hovertemplate="%{y}: cosine %{customdata[0]:.3f}, k = %{customdata[1]:.3f}, %{x:.1%}<extra></extra>",
        )
    figure.update_layout(bare_layout(height=110 + 24 * max(len(rows), 1), barmode="overlay", bargap=0.3))
    figure.update_xaxes(title_text="share of k(s, s′) in Q_EC", tickformat=".0%", rangemode="tozero", zeroline=False)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=labels, autorange="reversed")
    kernels = {"gaussian": f"a Gaussian kernel of width h = {settings.bandwidth:g}", "cosine": "a cosine kernel"}
    value = float((weights["share"] * weights["outcome"]).sum())
    if weights["weight"].sum() > 0:
        title = (
            f"Q_EC of {case} here is {value:.3f}: the outcomes of {_uses(len(weights))}, weighted by how alike the "
            "tasks are"
        )
        if len(weights) > MOST_SHOWN:
            title += f" (the {MOST_SHOWN} that weigh most are drawn)"
    else:
        title = f"{case} has no past use to go by: its Q counts as {settings.unused_q:g}"
    alt = f"Bars of the share of each past use under {kernels[settings.kernel]}. {title}."
    return Picture(figure, by_weight.rename(columns=KERNEL_NAMES), title, alt)


def _loss_title(losses: pd.DataFrame) -> str:
    if losses.empty:
        return "No task has trained the network yet"
    early, late = losses["before"].head(5).mean(), losses["before"].tail(5).mean()
    change = "fell" if late < early else "rose"
    return (
        f"Over {len(losses):,} tasks the loss {change} from {early:.3f} to {late:.3f} (means of the first and last "
        f"{min(5, len(losses))}); {COIN:.3f} is a coin"
    )


def _calibration_title(bins: pd.DataFrame) -> str:
    if bins.empty:
        return "No prediction was made yet: nothing to hold p against"
    n = int(bins["n"].sum())
    off = float(((bins["success"] - bins["p"]).abs() * bins["n"]).sum() / n)
    return f"p is {off:.0%} off the success that followed, on average over {_uses(n)}"


def _uses(n: int) -> str:
    return "1 use" if n == 1 else f"{n:,} uses"


Places = Mapping[str, tuple[float, float]]
SHAPES = {"success": "circle", "failure": "x", "unrated": "circle-open"}
MOST_NAMED = 60
OUTSIDE = 1.14
"""How far from the middle of the circle, whose radius is 1, names stand."""


def link_picture(graph: LinkGraph, run: str, places: Places | None = None) -> Picture:
    """A mark a note and a line a link; what the step looked at has written or edited stands out.

    Notes lie at `places`, or on a circle by age, the oldest on top, where none are given.
    """
    ids = [note.memory_id for note in graph.notes]
    at = {i: places[i] for i in ids if i in places} if places is not None else _circle(ids)
    figure, about = go.Figure(), _about(graph, run)
    labelled = ids if len(ids) <= MOST_NAMED else graph.written | graph.edited
    if places is None:
        for number, memory_id in enumerate(ids):
            if memory_id in labelled:
                _name_outside(figure, plain(memory_label(memory_id, run)), number, len(ids))
    for new in (False, True):
        links = [link for link in graph.links if (link[0] in graph.written | graph.edited) is new]
        _add_links(figure, links, at, new)
    for name, members, colour, size in (
        ("note", set(ids) - graph.written - graph.edited, POOL, 12),
        ("edited in this step", graph.edited, UTILITY, 17),
        ("written in this step", graph.written, ENTERED, 17),
    ):
        shown = [i for i in ids if i in members and i in at]
        figure.add_scatter(
            x=[at[i][0] for i in shown],
            y=[at[i][1] for i in shown],
            mode="markers" if places is None else "markers+text",
            name=name,
            text=[plain(memory_label(i, run)) if i in labelled else "" for i in shown],
            textposition="top center",
            cliponaxis=False,
            marker={
                "color": colour,
                "size": size,
                "symbol": [SHAPES[graph.outcomes[i]] for i in shown],
                "line": {"width": 1, "color": NEUTRAL},
            },
            customdata=[about[i] for i in shown],
            hovertemplate="%{customdata}<extra></extra>",
        )
    legend = {"orientation": "h", "yanchor": "top", "y": -0.02, "x": 0}
    figure.update_layout(bare_layout(height=520, legend=legend, margin={"l": 24, "r": 24, "t": 28, "b": 8}))
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, scaleanchor="x" if places is None else None)
    title = _links_title(graph, run)
    return Picture(figure, _links_table(graph, run), title, f"Notes as marks, links as lines between them. {title}.")


def _circle(ids: list[str]) -> Places:
    turn = 2 * pi / max(len(ids), 1)
    return {memory_id: (sin(number * turn), cos(number * turn)) for number, memory_id in enumerate(ids)}


def _name_outside(figure: go.Figure, name: str, number: int, notes: int) -> None:
    """The name of a note on the circle, read outwards on its right half and inwards on its left."""
    turn = 2 * pi * number / notes
    angle = degrees(turn) - 90 if turn <= pi else degrees(turn) + 90
    figure.add_annotation(
        x=OUTSIDE * sin(turn), y=OUTSIDE * cos(turn), text=name, textangle=angle, showarrow=False, font={"size": 11}
    )


def _add_links(figure: go.Figure, links: list[tuple[str, str]], at: Places, new: bool) -> None:
    x: list[float | None] = []
    y: list[float | None] = []
    for one, other in links:
        if one in at and other in at:
            x += [at[one][0], at[other][0], None]
            y += [at[one][1], at[other][1], None]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        name="link of what is new" if new else "link",
        line={"color": UTILITY if new else RING, "width": 2 if new else 1},
        opacity=1 if new else 0.6,
        hoverinfo="skip",
        showlegend=bool(x),
    )


def _linked(graph: LinkGraph) -> Mapping[str, Sequence[str]]:
    """What each note is linked with."""
    found: dict[str, list[str]] = {node.memory_id: [] for node in graph.notes}
    for one, other in graph.links:
        found[one].append(other)
        found[other].append(one)
    return found


def _about(graph: LinkGraph, run: str) -> Mapping[str, str]:
    """What is shown of each note when it is pointed at."""
    linked = _linked(graph)
    found = {}
    for node in graph.notes:
        name, links = plain(memory_label(node.memory_id, run)), len(linked[node.memory_id])
        lines = [
            f"<b>{name}</b> · {graph.outcomes[node.memory_id]} · {links} links",
            plain(node.note.context, 90),
            plain("keywords: " + ", ".join(node.note.keywords), 90) if node.note.keywords else "",
            plain("tags: " + ", ".join(node.note.tags), 90) if node.note.tags else "",
        ]
        found[node.memory_id] = "<br>".join(line for line in lines if line)
    return found


def _links_title(graph: LinkGraph, run: str) -> str:
    notes, links = len(graph.notes), len(graph.links)
    if not notes:
        return "No note yet"
    linked = _linked(graph)
    sentence = f"{notes} notes, {links} links, {sum(not others for others in linked.values())} notes without any"
    if links:
        hub = max(linked, key=lambda memory_id: len(linked[memory_id]))
        sentence += f"; {memory_label(hub, run)} has most, {len(linked[hub])}"
    if graph.edited:
        sentence += f"; this step edited {len(graph.edited):,} of its neighbours"
    return sentence


def _links_table(graph: LinkGraph, run: str) -> pd.DataFrame:
    linked = _linked(graph)
    return pd.DataFrame(
        {
            "note": [memory_label(node.memory_id, run) for node in graph.notes],
            "context": [node.note.context for node in graph.notes],
            "keywords": [", ".join(node.note.keywords) for node in graph.notes],
            "tags": [", ".join(node.note.tags) for node in graph.notes],
            "linked with": [", ".join(memory_label(i, run) for i in linked[node.memory_id]) for node in graph.notes],
            "outcome": [graph.outcomes[node.memory_id] for node in graph.notes],
        }
    )


ROW_HEIGHT = 24


def novelty_picture(novelty: pd.DataFrame) -> Picture:
    """A bar a step, as high as the mean novelty of its turns, with a dot a turn (`analysis.learned.tips.novelty`)."""
    steps = novelty.groupby("step")["novelty"].mean()
    figure = go.Figure()
    figure.add_bar(
        x=steps.index,
        y=steps,
        name="mean of the step",
        marker={"color": POOL, "line": {"width": 1, "color": NEUTRAL}},
        hovertemplate="step %{x}: %{y:.2f} on average<extra></extra>",
    )
    figure.add_scatter(
        x=novelty["step"],
        y=novelty["novelty"],
        mode="markers",
        name="a turn",
        marker={"color": SELECTED, "size": 6},
        customdata=novelty[["turn", "tips"]],
        hovertemplate="step %{x}, turn %{customdata[0]}: 1 / (%{customdata[1]} + 1) = %{y:.2f}<extra></extra>",
    )
    figure.update_layout(bare_layout(height=280, bargap=0.25))
    if len(novelty):
        figure.update_xaxes(step_axis(int(novelty["step"].min()), int(novelty["step"].max())))
    figure.update_yaxes(title_text="novelty 1 / (n + 1)", range=[0, 1.05], zeroline=False)
    title = _novelty_title(steps)
    return Picture(figure, novelty, title, f"Bars of novelty by step. {title}.")


def tips_picture(tips: pd.DataFrame, k2: int, run: str) -> Picture:
    """Rank by score joined to rank by similarity, a line a tip; coloured where the cut after k2 falls between them.

    `tips` is `analysis.learned.tips.tips_in_order`.
    """
    figure = go.Figure()
    for memory_id, by_score, by_similarity, given in zip(
        tips["memory"], tips["by score"], tips["by similarity"], tips["given"], strict=True
    ):
        colour = NEUTRAL if (by_score <= k2) == (by_similarity <= k2) else ENTERED if by_score <= k2 else LEFT
        label = plain(memory_label(memory_id, run))
        figure.add_scatter(
            x=[0, 1],
            y=[by_score, by_similarity],
            mode="lines+markers+text",
            line={"color": colour, "width": 1.2 if colour == NEUTRAL else 2.5},
            marker={"color": colour, "size": 8},
            text=[f"✓ {label}" if given else label, label],
            textposition=["middle left", "middle right"],
            cliponaxis=False,
            showlegend=False,
            hovertemplate=f"{label}: rank {by_score} by score, {by_similarity} by similarity<extra></extra>",
        )
    if len(tips) > k2 > 0:
        figure.add_hline(y=k2 + 0.5, line={"color": CUT, "dash": "dash", "width": 1.5})
    figure.update_layout(bare_layout(height=80 + ROW_HEIGHT * max(len(tips), 1)))
    figure.update_xaxes(
        range=[-0.6, 1.6], tickvals=[0, 1], ticktext=["by stored score", "by cosine"], side="top", zeroline=False,
        showgrid=False,
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", visible=False)
    title = _tips_title(tips, k2)
    table = tips.assign(memory=[memory_label(memory_id, run) for memory_id in tips["memory"]])
    return Picture(figure, table, title, f"Lines from rank by score to rank by cosine. {title}.")


def _novelty_title(steps: pd.Series) -> str:
    if steps.empty:
        return "Memory was not asked in any step that can be looked at"
    first, last = steps.iloc[0], steps.iloc[-1]
    return f"Novelty went from {first:.2f} in step {steps.index[0]} to {last:.2f} in step {steps.index[-1]}"


def _tips_title(tips: pd.DataFrame, k2: int) -> str:
    if tips.empty:
        return "No tip was found here: the state is as new as can be"
    both = int(((tips["by score"] <= k2) & (tips["by similarity"] <= k2)).sum())
    first = min(k2, len(tips))
    found = "1 tip" if len(tips) == 1 else f"{len(tips):,} tips"
    if both == first:
        return f"{found} found; score and cosine agree on the first {first}"
    return f"{found} found; the first {first} by score and the first {first} by cosine have {both} in common"
