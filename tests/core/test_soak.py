"""The soak: seconds of it without a browser, and what its rows say of growth."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import soaked_app
from benchmarks.soak import APP, HERE, Soaked, grown, rows_of, soak
from benchmarks.soak_watch import Disk, Sample, Witness, sampled
from memrl_core.errors import InputError

MINUTE = 60.0


def _soaked(files: int = 0, beyond: float = 0.0, share: float = 1.5, of: str = HERE) -> Soaked:
    """A soak of an hour that ended with so much more than it began with."""
    found = Soaked(60 * MINUTE, steps=10, clicks=4)
    for minute in range(61):
        part = minute / 60
        found.samples.append(Sample(of, minute * MINUTE, 300.0, 20 + round(files * part), 12))
        found.witnesses.append(Witness(minute * MINUTE, 300 + beyond * part, 280.0, 1000))
        found.disks.append(Disk(minute * MINUTE, 1500, share))
    return found


def _missed(found: Soaked) -> list[str]:
    return [row.what for row in rows_of(found) if row.is_met is False]


@pytest.mark.slow
def test_some_seconds_of_use_leave_nothing_amiss() -> None:
    found = soak(0.05, browsers=False, witnesses=2, every=0.5)
    assert found.failures == []
    assert found.steps >= 6 and found.ratings >= 2
    assert len(found.witnesses) == len(found.disks) == 2
    assert found.witnesses[-1].facts > 0
    assert _missed(found) == []


def test_growth_is_that_of_the_line_through_the_points() -> None:
    assert grown([(0.0, 5.0), (10.0, 7.0), (20.0, 9.0)]) == pytest.approx(4.0)
    assert grown([(0.0, 5.0), (1.0, 9.0), (2.0, 5.0)]) == pytest.approx(0.0)
    assert grown([(3.0, 5.0)]) == 0.0


def test_a_soak_that_stays_flat_keeps_to_all_its_bounds() -> None:
    assert _missed(_soaked()) == []


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (_soaked(files=40), "open files of this process, growth"),
        (_soaked(beyond=300.0), "memory beyond what a new process takes for the bank, growth"),
        (_soaked(share=4.0), "disk for each byte of facts"),
        (_soaked(files=80, of=APP), "open files of the app, growth"),
    ],
    ids=["files", "memory", "disk", "app"],
)
def test_what_grows_is_found_out(found: Soaked, missed: str) -> None:
    assert _missed(found) == [missed]


def test_a_sample_sees_a_file_that_is_left_open(tmp_path: Path) -> None:
    before = sampled(HERE, 0.0)
    with (tmp_path / "open").open("w"):
        assert sampled(HERE, 1.0).files == before.files + 1
    assert before.resident_mb > 10 and before.threads >= 1


def test_without_chromium_a_soak_with_browsers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="Chromium"):
        soaked_app.SteppedApp()
