"""The app, a run in a terminal and somebody's own agent on one bank at once: each finds what the others did."""

from __future__ import annotations

import subprocess
import sys

from playwright.sync_api import Page, expect

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.environments.tasks import sample_data_path
from tests.browser.conftest import RunningApp
from tests.browser.test_story import drawn_stage, press_step, settled
from tests.crash.whole import Rows

TASKS, RECORDED = 12, 20
AGENT = f"""
import sys
import numpy as np
from memrl_core.bank import MemoryBank
from memrl_core.agent.recorder import Recorder

with MemoryBank.open(sys.argv[1]) as bank:
    recorder = Recorder(bank, "recorded")
    for number, vector in enumerate(np.eye(bank.embedder.dimension)[:{RECORDED}]):
        with recorder.step(f"put the mug of table {{number}} away", embedding=vector) as step:
            step.answered("It is in the cupboard.")
            step.rewarded(1.0)
            step.wrote("look in the cupboard")
"""


def test_what_the_app_a_terminal_and_an_agent_do_at_once_is_all_there_once(page: Page, app: RunningApp) -> None:
    path = app.home / "banks" / "shared"
    path.parent.mkdir(parents=True, exist_ok=True)
    copy_bank(sample_data_path() / "demo_bank", path)
    with MemoryBank.open(str(path)) as bank:
        before = {info.id: len(bank.steps.rows(info.id)) for info in bank.runs()}
    page.goto(f"{app.url}/step?bank=shared")
    drawn_stage(page)
    settled(page)
    terminal = [sys.executable, "-m", "memrl_core.cli.main", "run", "--bank", str(path), "--run", "terminal"]
    others = [
        subprocess.Popen([*terminal, "--tasks", str(TASKS)], stdout=subprocess.DEVNULL),
        subprocess.Popen([sys.executable, "-c", AGENT, str(path)]),
    ]
    try:
        pressed = 0
        while pressed < 7 or any(other.poll() is None for other in others):
            press_step(page)
            pressed += 1
        assert [other.wait() for other in others] == [0, 0]
    finally:
        for other in others:
            other.kill()
    while "next task" not in page.locator(".st-key-step button").inner_text():
        press_step(page)
    for run, steps in (("terminal", TASKS), ("recorded", RECORDED)):
        page.goto(f"{app.url}/step?bank=shared&run={run}")
        drawn_stage(page)
        expect(page.locator(".st-key-memory_count")).to_contain_text(f"{steps} memories")
        settled(page)
    with MemoryBank.open(str(path)) as bank:
        after = {info.id: len(bank.steps.rows(info.id)) for info in bank.runs()}
    assert after.keys() - before.keys() == {"terminal", "recorded"}
    assert (after["terminal"], after["recorded"]) == (TASKS, RECORDED)
    assert sum(after[run] for run in before) > sum(before.values())
    assert Rows.of(str(path)).doubled() == []
    assert [finding for finding in check(str(path)) if not finding.ok] == []
