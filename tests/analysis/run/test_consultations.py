"""How often questions to the model came back as a form: counted from the traces of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from memrl_core.analysis.run.consultations import consultations
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.policies.methods.webcoach import COACH, CONDENSE
from memrl_core.records import Consulted, Phase
from tests.builders import a_bank, a_run, a_step
from tests.policies.policy_run import an_agent_of


def a_question(purpose: str, filled: Any, simulated: bool = False) -> Consulted:
    return Consulted(purpose, Phase.SELECT, (), "", filled, simulated, 10, 5, 0.5)


def a_bank_that_asked(path: Path, *steps: tuple[Consulted, ...]) -> MemoryBank:
    bank = a_bank(path)
    for number, asked in enumerate(steps, start=1):
        trace, vectors = a_step(number)
        bank.write.commit_step(replace(trace, consulted=asked), vectors)
    return bank


def test_the_counts_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    asked = (a_question("grade", {}), a_question("advice", None), a_question("grade", None)), (a_question("grade", {}),)
    found = consultations(a_bank_that_asked(tmp_path / "bank", *asked), "r")
    assert [(one.purpose, one.asked, one.not_parsed, one.failure_rate) for one in found] == [
        ("grade", 3, 1, 1 / 3), ("advice", 1, 1, 1.0)
    ]  # fmt: skip


def test_without_a_model_there_is_no_rate_of_failure(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "webcoach")
    list(agent.run(sample_tasks("household-train")[:4]))
    reported = {one.purpose: one for one in consultations(agent.bank, "r")}
    assert {purpose: (one.asked, one.simulated) for purpose, one in reported.items()} == {
        CONDENSE: (4, 4),
        COACH: (3, 3),
    }
    assert {one.failure_rate for one in reported.values()} == {None}


def test_a_fork_counts_its_own_steps_only(tmp_path: Path) -> None:
    bank = a_bank_that_asked(tmp_path / "bank", *[(a_question("advice", {}),)] * 3)
    bank.write.start_run(replace(a_run("f", base="r", base_step=2), first_step=3))
    trace, vectors = a_step(3, run="f")
    bank.write.commit_step(replace(trace, consulted=(a_question("grade", {}),)), vectors)
    assert [(one.purpose, one.asked) for one in consultations(bank, "f")] == [("grade", 1)]
