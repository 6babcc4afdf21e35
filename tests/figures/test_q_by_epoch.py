"""The spread of q by epoch: quantiles and shares as the table has them."""

from __future__ import annotations

import pandas as pd
import pytest

from memrl_core.analysis.run.over_time import Q_BY_EPOCH
from memrl_core.figures.run.reliability import q_by_epoch_picture


def test_the_bands_are_the_quantiles_and_the_bars_add_up_to_all_memories() -> None:
    rows = [
        ("r", 1, 8, 8, 0.5, 0.25, 0.25, 0.5, 0.5, 0.0, -0.5, -0.4, -0.1, 0.0, 0.1, 0.4, 0.5),
        ("r", 2, 16, 16, 0.75, 0.5, 0.25, 0.25, 0.25, 0.1, -0.6, -0.5, -0.2, 0.1, 0.3, 0.6, 0.7),
    ]
    picture = q_by_epoch_picture(pd.DataFrame(rows, columns=list(Q_BY_EPOCH)))
    drawn = {trace.name: trace for trace in picture.figure.data}
    assert list(drawn["median"].y) == [0.0, 0.1]
    assert list(drawn["90 % of memories"].y) == [0.4, 0.6, -0.5, -0.4]
    for epoch in (0, 1):
        assert sum(drawn[name].y[epoch] for name in ("positive", "at zero", "negative")) == pytest.approx(1)
    assert "+0.100" in picture.title and "50%" in picture.title
