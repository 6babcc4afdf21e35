"""The help desk: its rules, its handbook, what an agent remembers of it, and runs in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.runs import live_run, start_run
from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.environments.helpdesk import MESSAGES, TEAMS, Helpdesk
from memrl_core.errors import InputError
from memrl_core.experiments.epochs import follows_in
from memrl_core.experiments.executors import run_experiment
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.study import whole_step
from memrl_core.records import Reply, Task, Turn

TRAIN, HELDOUT = (Helpdesk.make_tasks(name) for name in Helpdesk.sets)
ONE_OF_EACH = {str(task.data["topic"]): task for task in TRAIN}


def rules(at_step: int = 1, **options: Any) -> dict[str, str]:
    """Topic to team, found by trying every team."""
    world, found = make_environment("helpdesk", **options), {}
    for topic, task in ONE_OF_EACH.items():
        for team in TEAMS:
            world.reset(task, seed=0, at_step=at_step)
            if world.step(team)[1]:
                found[topic] = team
    return found


def stale_entries(**options: Any) -> int:
    right = rules(**options)
    entries = Helpdesk(**options).first_memories()
    return sum(experience.split("> ")[1].strip() != right[topic_of(message)] for message, experience in entries)


def topic_of(message: str) -> str:
    begins = {topic: [text.partition("{where}")[0] for text in texts] for topic, texts in MESSAGES.items()}
    (found,) = [topic for topic, texts in begins.items() if message.startswith(tuple(texts))]
    return found


def episode(world: Any, task: Task, team: str, seed: int = 0) -> Turn:
    world.reset(task, seed=seed, at_step=1)
    observation, reward, terminated, truncated, _ = world.step(team)
    return Turn(Reply(team), observation, reward, terminated, truncated)


def test_every_topic_has_a_team_and_every_team_a_topic_which_the_house_decides() -> None:
    houses = [rules(house=house) for house in range(20)]
    assert all(sorted(found.values()) == sorted(TEAMS) for found in houses)
    for topic in MESSAGES:
        assert len({found[topic] for found in houses}) > 4


def test_all_rules_are_others_from_the_step_of_a_shift_on() -> None:
    before, after = rules(9, shift_at=10, house=3), rules(10, shift_at=10, house=3)
    assert before == rules(house=3)
    assert all(before[topic] != after[topic] for topic in MESSAGES)


@pytest.mark.parametrize(("stale", "entries", "wrong"), [(0.4, 5, 16), (0.0, 5, 0), (1.0, 3, 24)])
def test_the_stated_share_of_the_handbook_is_stale(stale: float, entries: int, wrong: int) -> None:
    for house in range(3):
        assert stale_entries(stale=stale, entries=entries, house=house) == wrong


def test_no_message_is_met_twice_neither_as_a_task_nor_in_a_handbook() -> None:
    met = [task.intent for task in (*TRAIN, *HELDOUT)]
    assert len(set(met)) == len(met) == 400
    for house in range(5):
        written = [message for message, _ in Helpdesk(house=house).first_memories()]
        assert len(set(written)) == 40 and not set(written) & set(met)


def test_an_entry_has_the_very_form_of_a_success_that_was_remembered() -> None:
    world = Helpdesk()
    message, experience = world.first_memories()[0]
    team = experience.split("> ")[1].strip()
    task = Task("t", message, "helpdesk", "", {"topic": "login"})
    assert world.distil(task, [episode(world, task, team)], "success") == experience


def test_a_failure_names_the_team_to_avoid_unless_it_is_told_not_to() -> None:
    reported = []
    for avoid in (True, False):
        world = Helpdesk(avoid=avoid)
        wrong = next(team for team in TEAMS if team != rules()["login"])
        task = ONE_OF_EACH["login"]
        reported.append(world.distil(task, [episode(world, task, wrong)], "failure"))
    assert f"> {wrong}" in reported[0] and "> " not in reported[1] and wrong in reported[1]


def test_noise_tells_the_stated_share_the_other_way_round_whichever_team_it_is() -> None:
    world, task = Helpdesk(noise=0.2), ONE_OF_EACH["door"]
    right = rules()["door"]
    wrong = next(team for team in TEAMS if team != right)
    solved = {team: np.mean([episode(world, task, team, seed).reward for seed in range(1000)]) for team in TEAMS}
    assert solved[right] == pytest.approx(0.8, abs=0.04) and solved[wrong] == pytest.approx(0.2, abs=0.04)
    assert episode(world, task, "Purple").reward == 0


def test_a_task_of_no_topic_is_refused_before_anything_is_passed_on() -> None:
    with pytest.raises(InputError):
        Helpdesk().reset(Task("t", "the roof leaks", "helpdesk", "", {"topic": "roof"}), seed=0, at_step=1)


def test_a_run_begins_with_the_handbook_of_the_house_of_its_seed(tmp_path: Path) -> None:
    with MemoryBank.create(str(tmp_path / "b"), "hashing-1024", 1024) as bank:
        info = start_run(bank, environment="helpdesk", tasks="helpdesk-train", seed=7)
        assert info.environment_options["house"] == 7
        known = {bank.memory(memory_id).experience for memory_id in bank.utilities(info.id)}
        assert known == {experience for _, experience in Helpdesk(house=7).first_memories()}
        agent = live_run(bank, info.id, load_preferences()).agent
        step = whole_step(agent, TRAIN[0], 1, lambda: False)
        assert step.recall.memories == 40
        later = start_run(bank, environment="helpdesk", tasks="helpdesk-train", seed=8, base=info.id)
        assert later.environment_options["house"] == 7 and len(bank.utilities(later.id)) == 41
        alone = start_run(bank, environment="helpdesk", tasks="helpdesk-train", environment_options={"handbook": False})
        assert not bank.utilities(alone.id)


@pytest.fixture(scope="module")
def plan() -> Plan:
    arms = [{"name": "none", "policy": "none"}, {"name": "similarity", "policy": "rag"}]
    stages = [{"tasks": "helpdesk-train", "count": 20, "fresh": True}]
    streams = [{"name": name, "options": {"stale": stale}, "stages": stages} for name, stale in (("a", 0), ("b", 1))]
    return Plan.model_validate({"title": "t", "seeds": 3, "epochs": 2, "arms": arms, "streams": streams})


@pytest.fixture(scope="module")
def compared(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return run_experiment(plan, tmp_path_factory.mktemp("helpdesk"), jobs=1).steps


def test_the_simulated_model_plays_it_and_a_handbook_helps_as_far_as_it_is_true(compared: pd.DataFrame) -> None:
    solved = compared.groupby(["stream", "arm"])["success"].apply(lambda found: found.astype(float).mean())
    assert solved["a", "similarity"] > 0.4 > solved["b", "similarity"] + 0.1
    assert solved["a", "none"] < 0.25
    assert (compared["valid"] == compared["choices"]).all()


def test_the_rows_of_an_experiment_say_which_memories_an_answer_follows(compared: pd.DataFrame) -> None:
    asked = compared[compared["arm"] == "similarity"].dropna(subset=["follows"])
    assert len(asked) and all(set(row.follows) <= set(row.used) for row in asked.itertuples())
    assert sum(map(bool, map(len, asked["follows"]))) > 0 and 0 < asked["taken"].sum() <= asked["at_hand"].sum()
    assert asked.loc[asked["taken"] == True, "success"].all()  # noqa: E712


def test_how_often_a_model_follows_is_counted_where_a_prompt_had_a_memory(plan: Plan, compared: pd.DataFrame) -> None:
    (found,) = follows_in(plan, compared, "abc")
    asked = [row for row in compared.itertuples() if row.follows is not None and len(row.used)]
    assert (found.digest, found.model, found.environment) == ("abc", "simulated", "helpdesk")
    assert found.steps == found.judged == len(asked) < len(compared)
    assert found.followed == sum(bool(len(row.follows)) for row in asked)
    assert (found.at_hand, found.taken) == (sum(row.at_hand for row in asked), sum(row.taken for row in asked))
    assert 0 < found.taken <= found.at_hand < found.steps


def test_fresh_tasks_are_the_same_for_every_arm_and_never_met_again(compared: pd.DataFrame) -> None:
    for _, cell in compared.groupby(["stream", "arm", "seed"]):
        assert cell["task"].is_unique and len(cell) == 40
    a, b = (compared[compared["arm"] == arm]["task"].tolist() for arm in ("none", "similarity"))
    assert a == b
