"""Drawings that skip Plotly's checks: what a browser gets of them is what the checked figure says."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.io.json import to_json_plotly

from memrl_core.analysis.decision.moment import current, memories_of
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.environments.tasks import sample_tasks
from memrl_core.figures.decision.decision_diagram import decision_diagram
from memrl_core.figures.decision.recall import recall_picture
from memrl_core.figures.decision.rerank import score_picture, slope_picture
from memrl_core.figures.memory.utility import moves_picture
from memrl_core.figures.palette import drawn
from memrl_core.figures.picture import Picture
from tests.analysis.decision.test_spectrum import decided
from tests.builders import an_agent


def message(figure: go.Figure) -> Any:
    """Everything that a figure says, arrays as lists however they were packed."""
    return json.loads(to_json_plotly(figure.to_plotly_json()), object_hook=_unpacked)


def _unpacked(part: dict[str, Any]) -> Any:
    if part.keys() != {"dtype", "bdata"}:
        return part
    return np.frombuffer(base64.b64decode(part["bdata"]), part["dtype"]).tolist()


def test_the_diagram_of_a_decision_reaches_the_browser_as_the_checked_figure_has_it() -> None:
    lines = spectrum(decided([0.9, 0.5, 0.1, 0.4], [0.0, 1.0, 0.4, -0.3], 2, 0.5, "pool"))
    assert lines.flips
    picture = decision_diagram(lines, 0.3, 0.5, "r")
    assert message(go.Figure(json.loads(picture.to_json()))) == message(picture.figure)
    assert picture.height == 430 and list(picture.table.columns) == ["λ from", "λ to", "selected"]


def test_the_charts_of_a_step_reach_the_browser_as_the_checked_figures_have_them(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", k1=8, delta=0.0)
    list(agent.run(sample_tasks("household-train")[:16], epochs=2))
    moment = current(agent.bank, "r", None)
    trace, memories = moment.trace, memories_of(agent.bank, moment)
    assert trace.recall and trace.decision
    for picture in (
        recall_picture(trace.recall, trace.decision, memories, "r"),
        slope_picture(trace.decision, "r"),
        score_picture(trace.decision, memories, "r"),
        moves_picture(trace.update.changes, trace.settings, "r"),
    ):
        assert message(go.Figure(json.loads(picture.to_json()))) == message(picture.figure)
        assert picture.height == picture.figure.layout.height and len(picture.table)


def test_a_property_that_plotly_does_not_have_is_refused_by_the_figure() -> None:
    with pytest.raises(ValueError, match="colour"):
        _ = Picture(drawn([{"type": "scatter", "colour": 1}]), pd.DataFrame(), "t", "t.").figure
