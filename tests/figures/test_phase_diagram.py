"""The phase diagram: every number of the table stands in its cell, and certainty is told."""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd
import pytest

from memrl_core.errors import InputError
from memrl_core.figures.compare.phase_diagram import phase_diagram


def conditions(**more: Any) -> pd.DataFrame:
    rows = []
    for spread, noise, repeat in product((0.0, 0.4), (0.0, 0.2), (0.0, 1.0)):
        difference = spread * (1 - 2 * noise) / 4
        rows.append(
            {
                "spread": spread,
                "noise": noise,
                "repeat": repeat,
                "stream": f"<b>{spread} {noise} {repeat}",
                "reference": 0.5,
                "success": 0.5 + difference,
                "difference": difference,
                "low": difference - 0.01,
                "high": difference + 0.01,
                "seeds": 20,
                **more,
            }
        )
    return pd.DataFrame(rows)


def test_each_cell_has_its_difference_and_bold_where_the_interval_leaves_out_zero() -> None:
    picture = phase_diagram(conditions(), "spread", "noise", "repeat", "MemRL", "similarity")
    first, second, *handles = picture.figure.data
    assert [list(row) for row in first.z] == [list(row) for row in second.z]
    assert [[round(value, 6) for value in row] for row in first.z] == [[0, 10], [0, 6]]
    assert [list(row) for row in first.text] == [["+0.0", "<b>+10.0</b>"], ["+0.0", "<b>+6.0</b>"]]
    assert "4 of 8" in picture.title and len(picture.table) == 8
    assert "<b>0" not in str(first.customdata)
    # What is clicked names its stream.
    assert [(one.x[1], one.y[1], one.customdata[1][6]) for one in handles] == [("0.4", "0", 10), ("0.4", "0", 10)]


def test_a_scale_is_never_narrower_than_ten_points() -> None:
    picture = phase_diagram(conditions(difference=0.001), "spread", "noise", "repeat", "MemRL", "similarity")
    assert (picture.figure.layout.coloraxis.cmin, picture.figure.layout.coloraxis.cmax) == (-5, 5)


def test_what_does_not_vary_or_varies_besides_is_told() -> None:
    with pytest.raises(InputError, match="colour"):
        phase_diagram(conditions(), "colour", "noise", "repeat", "MemRL", "similarity")
    twice = pd.concat([conditions(), conditions()])
    with pytest.raises(InputError, match="vary too"):
        phase_diagram(twice, "spread", "noise", "repeat", "MemRL", "similarity")
