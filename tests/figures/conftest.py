"""What holds of every picture that a test of figures makes: words, a table, no colour and no markup from elsewhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.io.json import to_json_plotly

from memrl_core.figures import palette
from memrl_core.figures.picture import Picture

COLOUR = re.compile(r"#[0-9a-fA-F]{6}|(?:rgb|hsl)a?\(.*\)|white|black|red|green|blue|gr[ae]y|orange|yellow|purple")
HOSTILE = "<a href='javascript:alert(1)'>x</a></script><b onclick=hacked()>y</b> %{hostile} <extra>z &lt;i&gt;\n\u202e"
"""A name or text from elsewhere; what becomes of it in a picture is looked at when the test is over."""
ACTS = re.compile(r"<a |<b |</?script|<extra>z|\u202e", re.IGNORECASE)
OF_THE_PALETTE = {palette.pale(colour) for colour, _ in palette.DASHED_LINES}


@pytest.fixture(autouse=True)
def every_picture_keeps_the_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Picture]]:
    """The pictures of a test, which are looked at when it is over."""
    made: list[Picture] = []
    begin = Picture.__init__

    def noted(self: Picture, *given: Any, **more: Any) -> None:
        begin(self, *given, **more)
        made.append(self)

    monkeypatch.setattr(Picture, "__init__", noted)
    yield made
    for picture in made:
        assert picture.title and picture.title in picture.alt and picture.alt.endswith("."), picture.alt
        drawn = json.loads(picture.to_json())
        assert picture.height == picture.figure.layout.height
        assert message(go.Figure(drawn)) == message(picture.figure), "it reaches the browser as it was checked"
        assert drawn["layout"]["paper_bgcolor"] == drawn["layout"]["plot_bgcolor"] == palette.CLEAR
        drawn["layout"].pop("template", None)
        assert not ACTS.search(json.dumps(drawn, ensure_ascii=False)), picture.title
        assert not [trace for trace in drawn["data"] if "%{hostile}" in str(trace.get("hovertemplate"))], picture.title
        assert set(colours(drawn)) <= {*colours(vars(palette)), *OF_THE_PALETTE}, picture.title


def colours(tree: Any) -> Iterator[str]:
    """All texts in it that are a colour."""
    if isinstance(tree, str):
        yield from [tree] if COLOUR.fullmatch(tree) else []
    elif isinstance(tree, dict | list | tuple):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from colours(one)


def message(figure: go.Figure) -> Any:
    """Everything that a figure says, arrays as lists however they were packed."""
    return json.loads(to_json_plotly(figure.to_plotly_json()), object_hook=_unpacked)


def _unpacked(part: dict[str, Any]) -> Any:
    if not part.keys() >= {"dtype", "bdata"}:
        return part
    numbers = np.frombuffer(base64.b64decode(part["bdata"]), part["dtype"])
    shape = [int(length) for length in str(part.get("shape", len(numbers))).split(",")]
    return json.loads(to_json_plotly(numbers.reshape(shape).tolist()))  # A number that is none is null.
