"""Numbers as people read them: one minus sign, one thousands separator, as many decimals as asked for."""

from __future__ import annotations

import pytest

from memrl_core.numerals import dimensions, fixed, percent, short, signed, weight


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (signed(-0.3), "−0.300"),
        (signed(0.25, 1), "+0.2"),
        (signed(-0.0001), "+0.000"),
        (fixed(-1234.5, 1), "−1,234.5"),
        (fixed(-0.0), "0.000"),
        (short(-0.5), "−0.5"),
        (percent(5 / 6), "83.3 %"),
        (percent(-0.02), "−2.0 %"),
        (weight(0.433402), "0.4334"),
        (dimensions(1024), "1,024 dimensions"),
        (dimensions(1), "1 dimension"),
    ],
)
def test_a_number_is_written_in_one_way(written: str, expected: str) -> None:
    assert written == expected
