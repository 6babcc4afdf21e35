"""How far people's rewards moved each q."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.picture import Picture
from memrl_core.figures.utility import moves_drawing

MOST_SHOWN = 12


def taught_picture(moved: Mapping[str, tuple[float, float]], settings: Mapping[str, Any], run: str) -> Picture:
    """A row a memory from q without the rewards to q now, in the order given; the table holds them all.

    `moved` maps memory ids to (q without, q now).
    """
    rows = [(memory_label(memory_id, run), without, now) for memory_id, (without, now) in moved.items()]
    figure = moves_drawing(rows[:MOST_SHOWN], settings).figure()
    risen = sum(now > without for _, without, now in rows)
    title = f"{risen} q stand higher and {len(rows) - risen} lower than without these rewards"
    if len(rows) > MOST_SHOWN:
        title += f"; the {MOST_SHOWN} that moved most"
    table = pd.DataFrame(
        {
            "memory": [label for label, _, _ in rows],
            "q without": [without for _, without, _ in rows],
            "q now": [now for _, _, now in rows],
            "Δ": [now - without for _, without, now in rows],
        }
    )
    return Picture(figure, table, title, f"For each memory a line from q without the rewards to q now. {title}.")
