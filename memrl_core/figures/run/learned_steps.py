"""What methods decided step by step: RMM's reranking, Rememberer's actions, tallies, and when memory was given."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.deciding import GIVEN, NONE_LEFT, NOTHING, PRUNED, SILENT, Ranks
from memrl_core.analysis.run.learned.values import OPERATIONS, KnownAction, KnownState
from memrl_core.figures.palette import (
    CUT,
    ENTERED,
    LEFT,
    LEFT_OUT,
    NEUTRAL,
    SELECTED,
    UTILITY,
    bare_layout,
    plain,
    row_axis,
)
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned_values import distinct, mark_size, step_axis
from memrl_core.policies.methods.memory_r1_ops import UNUSABLE
from memrl_core.policies.methods.rmm_reranker import NORMS

STAGES = ("similarity", "after adapters", "after noise")
ROW_HEIGHT = 26
CITED = {True: "cited: R = +1", False: "not cited: R = −1", None: "reply not parsed: no feedback"}


def bump_picture(ranks: Sequence[Ranks], k2: int, run: str) -> Picture:
    """A line a memory of the pool through its three ranks; coloured where it crossed the cut after k2 on the way."""
    figure = go.Figure()
    for one in ranks:
        places = (one.recalled, one.adapted, one.drawn)
        label = plain(memory_label(one.memory_id, run))
        colour = _colour(places, k2)
        figure.add_scatter(
            x=[0, 1, 2],
            y=places,
            mode="lines+markers+text",
            line={"color": colour, "width": 1.2 if colour == NEUTRAL else 2.6},
            marker={"color": colour, "size": 8},
            text=[label, "", f"✓ {label}" if one.drawn <= k2 else label],
            textposition=["middle left", "top center", "middle right"],
            cliponaxis=False,
            showlegend=False,
            hovertemplate=f"{label}: rank {places[0]} → {places[1]} → {places[2]}<extra></extra>",
        )
    if len(ranks) > k2 > 0:
        figure.add_hline(y=k2 + 0.5, line={"color": CUT, "dash": "dash", "width": 1.5})
        figure.add_annotation(
            x=-0.6, y=k2 + 0.5, text=f"k2 = {k2}", showarrow=False, xanchor="left", yanchor="bottom"
        )  # fmt: skip
    figure.update_layout(bare_layout(height=90 + ROW_HEIGHT * max(len(ranks), 1)))
    figure.update_xaxes(
        range=[-0.6, 2.6], tickvals=[0, 1, 2], ticktext=list(STAGES), side="top", zeroline=False, showgrid=False
    )
    figure.update_yaxes(autorange="reversed", visible=False)
    title = _bump_title(ranks, k2, run)
    table = pd.DataFrame(
        {
            "memory": [memory_label(one.memory_id, run) for one in ranks],
            "rank by similarity": [one.recalled for one in ranks],
            "after adapters": [one.adapted for one in ranks],
            "after noise": [one.drawn for one in ranks],
            "in the prompt": [one.drawn <= k2 for one in ranks],
        }
    )
    return Picture(figure, table, title, f"Lines from rank by similarity over adapters to noise. {title}.")


def norms_picture(norms: pd.DataFrame) -> Picture:
    """‖W_q‖ and ‖W_m‖ after each lesson (`analysis.learned.reranking.adapter_norms`)."""
    figure = go.Figure()
    for name, colour, symbol in zip(NORMS, (SELECTED, UTILITY), ("circle", "square"), strict=True):
        figure.add_scatter(
            x=norms["step"],
            y=norms[name],
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": 2},
            marker={"color": colour, "symbol": symbol, "size": 7},
            customdata=norms["lessons"],
            hovertemplate="step %{x}: %{y:.5f} after %{customdata} lessons<extra></extra>",
        )
    figure.update_layout(bare_layout(height=280))
    if len(norms):
        figure.update_xaxes(step_axis(int(norms["step"].iloc[0]), int(norms["step"].iloc[-1])))
    figure.update_yaxes(title_text="‖W‖", zeroline=False)
    if norms.empty:
        title = "The adapters have had no lesson yet: they are as they were drawn"
    else:
        moves = ", ".join(f"{name} from {norms[name].iloc[0]:.4f} to {norms[name].iloc[-1]:.4f}" for name in NORMS)
        title = f"After {int(norms['lessons'].iloc[-1])} lessons: {moves}"
    return Picture(figure, norms, title, f"Two lines of the size of the adapters. {title}.")


def citations_picture(cited: pd.DataFrame, run: str) -> Picture:
    """A mark a memory of each prompt, by step and place: cited, not cited, or a reply that could not be read."""
    looks = {True: ("circle", SELECTED), False: ("circle-open", NEUTRAL), None: ("x-thin-open", UTILITY)}
    figure, size = go.Figure(), mark_size(cited["step"])
    for value, (symbol, colour) in looks.items():
        rows = cited[cited["cited"].map(lambda one, value=value: one is value).astype(bool)]
        figure.add_scatter(
            x=rows["step"],
            y=rows["place"],
            mode="markers",
            name=CITED[value],
            marker={"symbol": symbol, "color": colour, "size": size, "line": {"width": 2, "color": colour}},
            customdata=[plain(memory_label(memory_id, run)) for memory_id in rows["memory"]],
            hovertemplate="step %{x}: %{customdata}, place %{y}<extra></extra>",
        )
    figure.update_layout(bare_layout(height=150 + 22 * int(cited["place"].max() if len(cited) else 1)))
    if len(cited):
        figure.update_xaxes(step_axis(int(cited["step"].min()), int(cited["step"].max())))
    figure.update_yaxes(title_text="place in the prompt", autorange="reversed", dtick=1, zeroline=False)
    title = _citations_title(cited)
    table = pd.DataFrame(
        {
            "step": cited["step"].to_numpy(),
            "place": cited["place"].to_numpy(),
            "memory": [memory_label(memory_id, run) for memory_id in cited["memory"]],
            "feedback": [CITED[value] for value in cited["cited"]],
        }
    )
    return Picture(figure, table, title, f"Marks by step and place in the prompt. {title}.")


def _colour(places: tuple[int, int, int], k2: int) -> str:
    """Of a line: in the prompt by adapters or noise, out of it by them, or neither."""
    was_in, is_in = places[0] <= k2, places[2] <= k2
    if is_in != was_in:
        return ENTERED if is_in else LEFT
    return NEUTRAL


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
    labels = distinct([_label(action) for action in state.actions])
    figure = go.Figure()
    for advice, (colour, name) in LOOKS.items():
        shown = [
            (label, action) for label, action in zip(labels, state.actions, strict=True) if action.advice == advice
        ]
        if not shown:
            continue
        figure.add_bar(
            orientation="h",
            name=name,
            x=[action.q for _, action in shown],
            y=[label for label, _ in shown],
            marker={
                "color": colour,
                "pattern": {"shape": ["x" if action.invented else "" for _, action in shown]},
                "line": {"color": NEUTRAL, "width": 1},
            },
            hovertemplate="%{y}: Q %{x:.3f}<extra></extra>",
        )
    reach = max([0.1, *(abs(action.q) for action in state.actions)])
    below = min([0.0, *(action.q for action in state.actions)])
    figure.add_scatter(
        x=[max(0.0, action.q) for action in state.actions],
        y=labels,
        mode="text",
        text=[_beside(action) for action in state.actions],
        textposition="middle right",
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )
    figure.update_layout(bare_layout(height=120 + ACTION_HEIGHT * len(labels), bargap=0.35, barmode="overlay"))
    figure.update_xaxes(title_text="Q", range=[1.1 * below, 1.7 * reach], zeroline=True, zerolinecolor=NEUTRAL)
    figure.update_yaxes(row_axis(labels))
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
    return pd.DataFrame(
        {
            "action": [action.text for action in state.actions],
            "Q": [action.q for action in state.actions],
            "n": [action.tries for action in state.actions],
            "immediate reward": [action.reward for action in state.actions],
            "advice": [action.advice for action in state.actions],
            "invented": [action.invented for action in state.actions],
        }
    )


CHANGES = {
    "ADD": (SELECTED, ""),
    "UPDATE": (ENTERED, "/"),
    "DELETE": (LEFT, "x"),
    "NOOP": (LEFT_OUT, ""),
    UNUSABLE: (UTILITY, "."),
}


def operations_picture(counts: pd.DataFrame) -> Picture:
    """A bar an epoch, of the operations done in it (`analysis.learned.tallies.operations_by_epoch`)."""
    figure = go.Figure()
    for name in OPERATIONS:
        colour, pattern = CHANGES[name]
        figure.add_bar(
            x=counts["epoch"],
            y=counts[name],
            name=name,
            marker={"color": colour, "pattern": {"shape": pattern}, "line": {"width": 1, "color": NEUTRAL}},
            hovertemplate=f"epoch %{{x}}: %{{y}} × {name}<extra></extra>",
        )
    figure.update_layout(bare_layout(height=320, barmode="stack", bargap=0.35))
    figure.update_xaxes(title_text="epoch", type="category")
    figure.update_yaxes(title_text="operations", zeroline=False)
    sums = {name: int(counts[name].sum()) for name in OPERATIONS}
    named = ", ".join(f"{n} {name}" for name, n in sums.items() if name != UNUSABLE)
    title = f"{named}; {sums[UNUSABLE]} replies were of no use" if sum(sums.values()) else "No operation was done yet"
    return Picture(figure, counts, title, f"Stacked bars of operations by epoch. {title}.")


def pass_picture(solved: pd.DataFrame) -> Picture:
    """The share of tasks solved within k tries, by k; hollow where k tries are not over for every task.

    `solved` is `analysis.learned.tallies.solved_within`.
    """
    whole = (solved["over"] == solved["tasks"]).tolist()
    figure = go.Figure()
    figure.add_scatter(
        x=solved["k"],
        y=solved["share"],
        mode="lines+markers",
        line={"color": SELECTED, "width": 2, "shape": "hv"},
        marker={"color": SELECTED, "size": 10, "symbol": ["circle" if one else "circle-open" for one in whole]},
        customdata=solved[["solved", "tasks", "over"]],
        hovertemplate="pass@%{x}: %{customdata[0]} of %{customdata[1]} tasks; k tries are over for %{customdata[2]}"
        "<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(bare_layout(height=300))
    figure.update_xaxes(title_text="k tries", tick0=1, dtick=max(1, len(solved) // 10), zeroline=False)
    figure.update_yaxes(title_text="pass@k", range=[-0.03, 1.03], tickformat=".0%", zeroline=False)
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


def timeline_picture(became: pd.DataFrame, words: Mapping[str, str], asked_for: int) -> Picture:
    """A row for each way that it can go, a mark each time; below them how each step ended.

    `became` is `analysis.learned.deciding.what_became`, `words` names its ways in the terms of the method, in the order
    of the rows. `asked_for` is the step looked at, which is marked.
    """
    figure, size = go.Figure(), mark_size(became["step"])
    for what, name in words.items():
        rows = became[became["what"] == what]
        symbol, colour = WAYS[what]
        figure.add_scatter(
            x=rows["step"] + rows["turn"] * TURN,
            y=[name] * len(rows),
            mode="markers",
            name=name,
            showlegend=False,
            marker={
                "symbol": symbol,
                "color": colour,
                "opacity": 1,
                "size": [max(4, size // 2) if turn else size for turn in rows["turn"]],
                "line": {"color": colour, "width": 2},
            },
            customdata=[_hover(row) for row in rows.to_dict("records")],
            hovertemplate="%{customdata}<extra></extra>",
        )
    ends = became.drop_duplicates("step")
    figure.add_scatter(
        x=ends["step"],
        y=[ENDED] * len(ends),
        mode="text",
        text=[OUTCOMES.get(outcome, "") for outcome in ends["outcome"]],
        customdata=ends["outcome"],
        hovertemplate="step %{x}: %{customdata}<extra></extra>",
        showlegend=False,
    )
    rows = [*words.values(), ENDED]
    figure.add_vline(x=asked_for, line={"color": CUT, "width": 1, "dash": "dot"})
    figure.update_layout(bare_layout(height=70 + WAY_HEIGHT * len(rows)))
    if len(became):
        figure.update_xaxes(step_axis(int(became["step"].min()), int(became["step"].max())))
    figure.update_yaxes(row_axis(rows))
    title = _timeline_title(became, words)
    table = became.assign(what=[words.get(what, what) for what in became["what"]])
    return Picture(figure, table, title, f"Marks by step in a row for each way that it went. {title}.")


def _hover(row: Mapping[Hashable, Any]) -> str:
    turn = f", turn {row['turn']}" if row["turn"] else ""
    return f"step {row['step']}{turn}: {row['given']} of {row['recalled']} given<br>{plain(row['why'], 140)}"


def _timeline_title(became: pd.DataFrame, words: Mapping[str, str]) -> str:
    if became.empty:
        return "Memory was not asked in any step that can be looked at"
    counts = became["what"].value_counts()
    counted = " · ".join(f"{name}: {counts[what]}" for what, name in words.items() if what in counts)
    return f"Memory was asked {len(became):,} times — {counted}"
