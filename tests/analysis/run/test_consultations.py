"""How often questions to the model came back as a form: counted from the traces of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.run.consultations import consultations, summed
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.policies.methods.webcoach import COACH, CONDENSE
from memrl_core.records import Consulted, Phase
from tests.builders import a_bank, a_run, a_step
from tests.policies.policy_run import an_agent_of

ASKED = st.builds(
    Consulted,
    st.sampled_from(["advice", "grade", "condense"]),
    st.sampled_from([Phase.SELECT, Phase.WRITE]),
    st.just(()),
    st.just("{}"),
    st.sampled_from([None, {}, {"ok": True}]),
    simulated=st.just(False),
    prompt_tokens=st.none() | st.integers(0, 99),
    answer_tokens=st.none() | st.integers(0, 99),
    seconds=st.integers(0, 9).map(float),
)


def a_question(purpose: str, filled: Any, simulated: bool = False) -> Consulted:
    return Consulted(purpose, Phase.SELECT, (), "", filled, simulated, 10, 5, 0.5)


def a_bank_that_asked(path: Path, *steps: tuple[Consulted, ...]) -> MemoryBank:
    bank = a_bank(path)
    for number, asked in enumerate(steps, start=1):
        trace, vectors = a_step(number)
        bank.commit_step(replace(trace, consulted=asked), vectors)
    return bank


@given(steps=st.lists(st.lists(ASKED, max_size=4).map(tuple), min_size=1, max_size=5))
def test_the_counts_are_those_of_a_plain_loop(steps: list[tuple[Consulted, ...]]) -> None:
    found = {one.purpose: one for one in summed(one for asked in steps for one in asked)}
    every = [one for asked in steps for one in asked]
    assert list(found) == list(dict.fromkeys(one.purpose for one in every))
    for purpose, counted in found.items():
        own = [one for one in every if one.purpose == purpose]
        failed = [one for one in own if one.filled is None]
        assert (counted.asked, counted.not_parsed, counted.filled) == (len(own), len(failed), len(own) - len(failed))
        assert counted.tokens == sum(one.prompt_tokens or 0 for one in own) + sum(one.answer_tokens or 0 for one in own)
        assert counted.seconds == sum(one.seconds for one in own)
        assert counted.failure_rate == len(failed) / len(own)


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
    bank.start_run(replace(a_run("f", base="r", base_step=2), first_step=3))
    trace, vectors = a_step(3, run="f")
    bank.commit_step(replace(trace, consulted=(a_question("grade", {}),)), vectors)
    assert [(one.purpose, one.asked) for one in consultations(bank, "f")] == [("grade", 1)]
