"""What the page Race draws is what the bank holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from memrl_core.agent.follows import actions_in
from memrl_core.agent.twins import Side, start_twins
from memrl_core.bank import MemoryBank
from memrl_core.bank.finished_steps import Steps
from memrl_core.bank.storage.codec import StepRow
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.helpdesk import MESSAGES, Helpdesk, topics
from memrl_core.figures.compare.race import race_data, race_sentence
from memrl_core.models.base import never
from memrl_core.settings import MemRLSettings


def test_outcomes_utilities_and_worth_of_both_sides_are_those_of_the_bank(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    with MemoryBank.create(str(tmp_path / "bank"), embedder.name, embedder.dimension) as bank:
        sides = Side(MemRLSettings.of({"weight": 0.0, "k2": 1})), Side(MemRLSettings.of({"k2": 1}))
        twins = start_twins(
            bank, sides, kind="race", environment="helpdesk", tasks="helpdesk-train", task_count=30, seed=5
        )
        assert race_sentence(race_data(bank, twins.runs)) == ""
        twins.step(12)
        assert twins.shift() == 13
        before = race_data(bank, twins.runs, ("", "gone"), 30)
        twins.step(4)
        data = race_data(bank, twins.runs, total=30)
        assert (data["total"], data["shifts"], data["floor"], len(data["topics"])) == (30, [13], 1 / 8, 8)
        assert [side["error"] for side in before["sides"]] == ["", "gone"]
        for side, run in zip(data["sides"], twins.runs, strict=True):
            rows = bank.steps.rows(run)
            assert side["outcomes"] == "".join("1" if row.outcome == "success" else "0" for row in rows)
            q = {row[0]: (row[4], row[5]) for row in side["memories"]}
            known = bank.utilities(run)
            assert q == {i: (round(known[i].q, 4), known[i].visits) for i in known}
            world = make_environment("helpdesk", **bank.run(run).environment_options)
            assert isinstance(world, Helpdesk)
            for memory_id, _, topic, kind, *_, given in side["memories"]:
                memory = bank.memory(memory_id)
                (shown, *_), _, _ = actions_in(memory.experience)[0] or ("",), 0, 0
                right = world.right_team(list(MESSAGES)[topic], 17)
                assert kind == ("failure" if not shown else "right" if shown == right else "wrong")
                assert given == ("given" in memory_id)
        handbook = [row for row in race_data(bank, twins.runs)["sides"][0]["memories"] if row[6]]
        assert len(handbook) == 40
        right = sum(outcome == "1" for outcome in data["sides"][0]["outcomes"])
        assert f"{right / 16:.0%}".replace("%", " %") in race_sentence(data).replace("\u202f", " ")


def test_a_step_that_comes_while_the_picture_is_read_is_written_before_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder, read = HashingEmbedder(), Steps.rows
    with MemoryBank.create(str(tmp_path / "bank"), embedder.name, embedder.dimension) as bank:
        sides = Side(MemRLSettings.of({"weight": 0.0, "k2": 1})), Side(MemRLSettings.of({"k2": 1}))
        twins = start_twins(bank, sides, kind="race", environment="helpdesk", tasks="helpdesk-train", seed=5)

        def with_a_step(self: Steps, run: str) -> list[StepRow]:
            if self is bank.steps:
                twins._advance(never)
            return read(self, run)

        monkeypatch.setattr(Steps, "rows", with_a_step)
        with bank.write.batch(50):
            shown = [len(side["outcomes"]) for side in race_data(bank, twins.runs)["sides"]]
            with MemoryBank.open(str(tmp_path / "bank")) as other:
                written = [len(read(other.steps, run)) for run in twins.runs]
    assert shown == [1, 2]
    assert written == [2, 2]


def test_every_message_of_tasks_and_handbook_has_its_topic() -> None:
    for name in Helpdesk.sets:
        assert all(topics()[task.intent] == task.data["topic"] for task in Helpdesk.make_tasks(name))
    handbook = Helpdesk(house=3).first_memories()
    assert {topics()[intent] for intent, _ in handbook} == set(MESSAGES)
    world = Helpdesk(house=3)
    wrong = [i for i, text in handbook if actions_in(text)[0][0] != world.right_team(topics()[i], 1)]
    assert len(wrong) == 16, "two in five entries are out of date"
