"""What methods decided step by step: RMM's reranking, Rememberer's actions, tallies, and when memory was given."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.deciding import GIVEN, NONE_LEFT, NOTHING, PRUNED, SILENT, Ranks
from memrl_core.analysis.run.learned.values import OPERATIONS, KnownAction, KnownState
from memrl_core.figures.decision.rerank import crossing, rank_figure, rank_line
from memrl_core.figures.palette import (
    CUT,
    ENTERED,
    LEFT,
    LEFT_OUT,
    NEUTRAL,
    SELECTED,
    UTILITY,
    bars,
    curve,
    drawn,
    marks,
    plain,
    row_axis,
    titled,
    upright,
    words,
)
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned_values import mark_size, step_axis
from memrl_core.policies.methods.memory_r1_ops import UNUSABLE
from memrl_core.policies.methods.rmm_reranker import NORMS

STAGES = ("similarity", "after adapters", "after noise")
CITED = {True: "cited: R = +1", False: "not cited: R = −1", None: "reply not parsed: no feedback"}


def bump_picture(ranks: Sequence[Ranks], k2: int, run: str) -> Picture:
    """A line a memory of the pool through its three ranks; coloured where it crossed the cut after k2 on the way."""
    lines = []
    for one in ranks:
        places = (one.recalled, one.adapted, one.drawn)
        label = plain(memory_label(one.memory_id, run))
        ends = [label, f"✓ {label}" if one.drawn <= k2 else label]
        colour = crossing(one.recalled, one.drawn, k2)
        hover = f"{label}: rank {places[0]} → {places[1]} → {places[2]}"
        lines.append(rank_line(places, ends, colour, hover))
    figure = rank_figure(lines, STAGES, k2, 90)
    title = _bump_title(ranks, k2, run)
    rows = [(memory_label(one.memory_id, run), one.recalled, one.adapted, one.drawn, one.drawn <= k2) for one in ranks]
    columns = ["memory", "rank by similarity", "after adapters", "after noise", "in the prompt"]
    table = pd.DataFrame(rows, columns=columns)
    return Picture(figure, table, title, f"Lines from rank by similarity over adapters to noise. {title}.")


def norms_picture(norms: pd.DataFrame) -> Picture:
    """‖W_q‖ and ‖W_m‖ after each lesson (`analysis.learned.reranking.adapter_norms`)."""
    hover = "step %{x}: %{y:.5f} after %{customdata} lessons"
    lines = [
        curve(norms["step"], norms[name], name, colour, hover, symbol=symbol, customdata=norms["lessons"])
        for name, colour, symbol in zip(NORMS, (SELECTED, UTILITY), ("circle", "square"), strict=True)
    ]
    figure = drawn(lines, height=280, xaxis=step_axis(norms["step"]), yaxis=titled("‖W‖"))
    if norms.empty:
        title = "The adapters have had no lesson yet: they are as they were drawn"
    else:
        moves = ", ".join(f"{name} from {norms[name].iloc[0]:.4f} to {norms[name].iloc[-1]:.4f}" for name in NORMS)
        title = f"After {int(norms['lessons'].iloc[-1])} lessons: {moves}"
    return Picture(figure, norms, title, f"Two lines of the size of the adapters. {title}.")


def citations_picture(cited: pd.DataFrame, run: str) -> Picture:
    """A mark a memory of each prompt, by step and place: cited, not cited, or a reply that could not be read."""
    looks = {True: ("circle", SELECTED), False: ("circle-open", NEUTRAL), None: ("x-thin-open", UTILITY)}
    traces, size = [], mark_size(cited["step"])
    for value, (symbol, colour) in looks.items():
        rows = cited.loc[[one is value for one in cited["cited"]]]
        named = [plain(memory_label(memory_id, run)) for memory_id in rows["memory"]]
        look = {"symbol": symbol, "size": size, "edge": {"width": 2, "color": colour}, "customdata": named}
        hover = "step %{x}: %{customdata}, place %{y}"
        traces.append(marks(rows["step"], rows["place"], CITED[value], colour, hover, **look))
    figure = drawn(
        traces,
        height=150 + 22 * int(cited["place"].max() if len(cited) else 1),
        xaxis=step_axis(cited["step"]),
        yaxis=titled("place in the prompt", autorange="reversed", dtick=1),
    )
    title = _citations_title(cited)
    table = cited[["step", "place"]].assign(
        memory=[memory_label(memory_id, run) for memory_id in cited["memory"]],
        feedback=[CITED[value] for value in cited["cited"]],
    )
    return Picture(figure, table, title, f"Marks by step and place in the prompt. {title}.")


def _bump_title(ranks: Sequence[Ranks], k2: int, run: str) -> str:
    if not ranks:
        return "Nothing to rank: the pool is empty"
    moved = sum(one.recalled != one.adapted for one in ranks)
    by_noise = [memory_label(one.memory_id, run) for one in ranks if one.drawn <= k2 < one.adapted]
    sentence = f"The adapters moved {moved} of {len(ranks):,} memories"
    if by_noise:
        return f"{sentence}; the noise brought {', '.join(by_noise)} into the prompt"
    return f"{sentence}; the noise changed nothing of what is in the prompt"


def _citations_title(cited: pd.DataFrame) -> str:
    asked = cited["step"].nunique()
    if not asked:
        return "No answer was asked for its citations yet"
    unparsed = cited.loc[cited["cited"].isna(), "step"].nunique()
    read = [bool(one) for one in cited["cited"] if one is not None]
    share = f"{sum(read)} of {len(read):,} memories in a prompt were cited" if read else "no reply could be read"
    return f"{share}; {unparsed} of {asked} replies did not parse"


LOOKS = {
    "encouraged": (SELECTED, "▲ encouraged"),
    "discouraged": (UTILITY, "▼ discouraged"),
    "": (LEFT_OUT, "no advice"),
}
ACTION_HEIGHT = 30


def actions_picture(state: KnownState) -> Picture:
    """A bar an action of a state, as long as its learned value; what the advice has invented is hatched and said so."""
    texts = pd.Series([_label(action) for action in state.actions], dtype=object)
    # A category axis has one row for labels that are alike.
    before = texts.groupby(texts).cumcount()
    labels = [text if n == 0 else f"{text} ({n + 1})" for text, n in zip(texts, before, strict=True)]
    traces = []
    for advice, (colour, name) in LOOKS.items():
        shown = [(label, one) for label, one in zip(labels, state.actions, strict=True) if one.advice == advice]
        if shown:
            pattern = ["x" if action.invented else "" for _, action in shown]
            values, rows = [action.q for _, action in shown], [label for label, _ in shown]
            hover = "%{y}: Q %{x:.3f}"
            bar = bars(values, rows, name, colour, hover, pattern=pattern, orientation="h")
            bar["marker"]["line"] = {"color": NEUTRAL, "width": 1}
            traces.append(bar)
    q = [action.q for action in state.actions]
    traces.append(words([max(0.0, value) for value in q], labels, [_beside(action) for action in state.actions]))
    reach = max([0.1, *map(abs, q)])
    across = {"range": [1.1 * min([0.0, *q]), 1.7 * reach], "zeroline": True, "zerolinecolor": NEUTRAL}
    look = {"height": 120 + ACTION_HEIGHT * len(labels), "bargap": 0.35, "barmode": "overlay"}
    figure = drawn(traces, xaxis=titled("Q", **across), yaxis=row_axis(labels), **look)
    title = _actions_title(state)
    return Picture(figure, _actions_table(state), title, f"A bar an action, as long as its value Q. {title}.")


def _label(action: KnownAction) -> str:
    text = plain(action.text, 44)
    return f"{text} (invented)" if action.invented else text


def _beside(action: KnownAction) -> str:
    if action.invented:
        return f"  {action.q:.2f} made up"
    return f"  Q = {action.q:.2f}, n = {action.tries}"


def _actions_title(state: KnownState) -> str:
    known = [action for action in state.actions if not action.invented]
    advice = f"{len(known):,} action{'s' if len(known) != 1 else ''} known here"
    best = next((action for action in state.actions if action.advice == "encouraged"), None)
    if best is None:
        return f"{advice}; none is encouraged"
    made_up = ", which is invented" if best.invented else ""
    return f"{advice}; encouraged: {' '.join(best.text.split())[:60]}{made_up}"


def _actions_table(state: KnownState) -> pd.DataFrame:
    rows = [(one.text, one.q, one.tries, one.reward, one.advice, one.invented) for one in state.actions]
    return pd.DataFrame(rows, columns=["action", "Q", "n", "immediate reward", "advice", "invented"])


CHANGES = {
    "ADD": (SELECTED, ""),
    "UPDATE": (ENTERED, "/"),
    "DELETE": (LEFT, "x"),
    "NOOP": (LEFT_OUT, ""),
    UNUSABLE: (UTILITY, "."),
}


def operations_picture(counts: pd.DataFrame) -> Picture:
    """A bar an epoch, of the operations done in it (`analysis.learned.tallies.operations_by_epoch`)."""
    traces = []
    for name in OPERATIONS:
        colour, pattern = CHANGES[name]
        hover = f"epoch %{{x}}: %{{y}} × {name}"
        traces.append(bars(counts["epoch"], counts[name], name, colour, hover, pattern=pattern))
        traces[-1]["marker"]["line"] = {"width": 1, "color": NEUTRAL}
    look = {"height": 320, "barmode": "stack", "bargap": 0.35, "yaxis": titled("operations")}
    figure = drawn(traces, xaxis={"title": {"text": "epoch"}, "type": "category"}, **look)
    sums = {name: int(counts[name].sum()) for name in OPERATIONS}
    named = ", ".join(f"{n} {name}" for name, n in sums.items() if name != UNUSABLE)
    title = f"{named}; {sums[UNUSABLE]} replies were of no use" if sum(sums.values()) else "No operation was done yet"
    return Picture(figure, counts, title, f"Stacked bars of operations by epoch. {title}.")


def pass_picture(solved: pd.DataFrame) -> Picture:
    """The share of tasks solved within k tries, by k; hollow where k tries are not over for every task.

    `solved` is `analysis.learned.tallies.solved_within`.
    """
    whole = solved["over"] == solved["tasks"]
    hover = "pass@%{x}: %{customdata[0]} of %{customdata[1]} tasks; k tries are over for %{customdata[2]}"
    look = {"symbol": ["circle" if one else "circle-open" for one in whole], "size": 10, "shape": "hv"}
    line = curve(solved["k"], solved["share"], "", SELECTED, hover, **look)
    line["customdata"] = solved[["solved", "tasks", "over"]].to_numpy()
    across = titled("k tries", tick0=1, dtick=max(1, len(solved) // 10))
    up = titled("pass@k", range=[-0.03, 1.03], tickformat=".0%")
    figure = drawn([line], height=300, xaxis=across, yaxis=up)
    title = _pass_title(solved)
    return Picture(figure, solved, title, f"A line of the share of tasks solved within k tries. {title}.")


def _pass_title(solved: pd.DataFrame) -> str:
    if solved.empty:
        return "No try was judged yet"
    first, last = solved.iloc[0], solved.iloc[-1]
    sentence = f"pass@1 is {int(first['solved'])} of {int(first['tasks'])} tasks"
    if len(solved) > 1:
        sentence += f", pass@{int(last['k'])} is {int(last['solved'])}: luck alone, without memory"
    open_tasks = int(last["tasks"] - last["over"])
    return f"{sentence}; {open_tasks} tasks still have tries to come" if open_tasks else sentence


WAYS = {
    GIVEN: ("circle", SELECTED),
    PRUNED: ("diamond", ENTERED),
    NONE_LEFT: ("x", LEFT),
    SILENT: ("square-open", UTILITY),
    NOTHING: ("circle-open", LEFT_OUT),
}
OUTCOMES = {"success": "▲", "failure": "▼", "unrated": "○"}
WAY_HEIGHT = 40
TURN = 0.06
"""Of a step's width by which the mark of a later turn is moved to the right."""
ENDED = "the step ended"


def timeline_picture(became: pd.DataFrame, ways: Mapping[str, str], asked_for: int) -> Picture:
    """A row for each way that it can go, a mark each time; below them how each step ended.

    `became` is `analysis.learned.deciding.what_became`, `ways` names them in the terms of the method, in the order
    of the rows. `asked_for` is the step looked at, which is marked.
    """
    traces, size = [], mark_size(became["step"])
    for what, name in ways.items():
        rows = became[became["what"] == what]
        symbol, colour = WAYS[what]
        sizes = [max(4, size // 2) if turn else size for turn in rows["turn"]]
        look = {"symbol": symbol, "size": sizes, "edge": {"color": colour, "width": 2}, "showlegend": False}
        at = rows["step"] + rows["turn"] * TURN, [name] * len(rows)
        hovers = [_hover(row) for row in rows.to_dict("records")]
        traces.append(marks(*at, name, colour, "%{customdata}", customdata=hovers, **look))
    ends = became.drop_duplicates("step")
    how = [OUTCOMES.get(outcome, "") for outcome in ends["outcome"]]
    hover = "step %{x}: %{customdata}<extra></extra>"
    look = {"textposition": "middle center", "customdata": ends["outcome"], "hovertemplate": hover}
    traces.append(words(ends["step"], [ENDED] * len(ends), how, **look))
    labels = [*ways.values(), ENDED]
    figure = drawn(
        traces,
        height=70 + WAY_HEIGHT * len(labels),
        shapes=[upright(asked_for, color=CUT, width=1, dash="dot")],
        xaxis=step_axis(became["step"]),
        yaxis=row_axis(labels),
    )
    title = _timeline_title(became, ways)
    table = became.assign(what=became["what"].replace(ways))
    return Picture(figure, table, title, f"Marks by step in a row for each way that it went. {title}.")


def _hover(row: Mapping[Hashable, Any]) -> str:
    turn = f", turn {row['turn']}" if row["turn"] else ""
    return f"step {row['step']}{turn}: {row['given']} of {row['recalled']} given<br>{plain(row['why'], 140)}"


def _timeline_title(became: pd.DataFrame, ways: Mapping[str, str]) -> str:
    if became.empty:
        return "Memory was not asked in any step that can be looked at"
    counts = became["what"].value_counts()
    counted = " · ".join(f"{name}: {counts[what]}" for what, name in ways.items() if what in counts)
    return f"Memory was asked {len(became):,} times — {counted}"
