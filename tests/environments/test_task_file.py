"""A person's own tasks as an environment: how an answer is judged, what is remembered of it, and who else judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.rerun import Rerunner
from memrl_core.environments import make_environment
from memrl_core.environments.contract import CHECKS
from memrl_core.environments.databases.judging import database_data
from memrl_core.environments.own_tasks.environment import JUDGED_BY_A_PERSON, LONGEST_TEXT, TaskFile
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import InputError
from memrl_core.models.base import ModelOptions
from memrl_core.prompting import offered
from memrl_core.records import Judgement, Message, Outcome, Reply, Task, Turn
from tests.builders import an_agent

TREES = (
    "CREATE TABLE trees (name TEXT, height INTEGER); INSERT INTO trees VALUES ('oak', 21), ('elm', 30), ('fir', NULL)"
)
HIGHEST = {"checker": "sql", "setup": TREES, "reference": "SELECT name FROM trees ORDER BY height DESC LIMIT 1"}
ANIMALS = {"checker": "choice", "choices": ["the hen", " the  horse "], "reference": "A"}


class Says:
    """A model that says the same in every turn."""

    name, simulated, binds = "says", False, False

    def __init__(self, text: str) -> None:
        self.text = text

    def chat(self, messages: list[Message], options: ModelOptions, *_: Any, **__: Any) -> Reply:
        return Reply(self.text)


@pytest.fixture
def world() -> Iterator[TaskFile]:
    with closing(TaskFile()) as made:
        yield made


CONTRACT = {
    "text": {"reference": "quetzal"},
    "number": {"checker": "numeric", "reference": "7351"},
    "pattern": {"checker": "regex", "reference": "que+tzal"},
    "choice": ANIMALS,
    "sql": HIGHEST,
    "person": {},
}


def a_task(intent: str = "Well?", **data: Any) -> Task:
    return Task("t", intent, "task_file", "", data)


def played(world: TaskFile, task: Task, *answers: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
    world.reset(task, seed=1, at_step=1)
    for answer in answers:
        message = world.step(answer)
    return message


def distilled(world: TaskFile, task: Task, answer: str, outcome: Outcome) -> str:
    observation, reward, terminated, truncated, _ = played(world, task, answer)
    return world.distil(task, [Turn(Reply(answer), observation, reward, terminated, truncated)], outcome)


@pytest.mark.parametrize("kind", CONTRACT)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_kind_of_task_keeps_the_contract_of_environments(check: Callable[..., None], kind: str) -> None:
    check(TaskFile, a_task("What is it?", **CONTRACT[kind]))


def test_one_answer_ends_a_task_and_is_judged_by_its_checker(world: TaskFile) -> None:
    task = a_task(checker="numeric", reference=40, tolerance=1)
    observation, reward, terminated, truncated, info = played(world, task, "about 41")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert observation == info["verdict"]
    assert info["judgement"] == Judgement("40", "about 41", info["judgement"].why)
    with pytest.raises(InputError, match="ended"):
        world.step("40")


def test_without_a_checker_a_reference_is_compared_as_text_or_as_a_choice(world: TaskFile) -> None:
    assert played(world, a_task(reference="Oslo"), "oslo")[1] == 1.0
    assert played(world, a_task(reference="Oslo", choices=["Rome", "Oslo"]), "B")[1] == 1.0


def test_people_read_the_choice_that_was_right_in_full(world: TaskFile) -> None:
    assert played(world, a_task(**ANIMALS), "B")[4]["judgement"].expected == "A) the hen"


def test_choices_are_offered_and_nothing_else_is(world: TaskFile) -> None:
    assert offered(world.reset(a_task(**ANIMALS), seed=1, at_step=1)) == ["the hen", "the horse"]
    assert offered(world.reset(a_task(reference="x"), seed=1, at_step=1)) == []


def test_a_wrong_answer_tells_nobody_but_people_what_was_expected(world: TaskFile) -> None:
    task = a_task(reference="quetzal")
    observation, reward, _, _, info = played(world, task, "magpie")
    assert (reward, info["judgement"].expected) == (0.0, "quetzal")
    reported = world.distil(task, [Turn(Reply("magpie"), observation, 0.0, True, False)], "failure")
    assert "quetzal" not in f"{observation}{info['verdict']}{reported}"
    assert "Avoid:\n> magpie" in reported and info["verdict"] in reported


def test_a_success_is_remembered_as_what_worked_and_a_person_may_overrule(world: TaskFile) -> None:
    task = a_task(reference="quetzal")
    assert distilled(world, task, "quetzal", "success").endswith("Steps that worked:\n> quetzal")
    overruled = distilled(world, task, "quetzal", "failure")
    assert "a person" in overruled and "right" not in overruled
    assert "The answer:\n> quetzal" in distilled(world, task, "quetzal", "unrated")


def test_a_long_answer_is_cut_for_memories_and_people(world: TaskFile) -> None:
    answer = "[b]\x00" * 2_500_000
    assert len(distilled(world, a_task(reference="x"), answer, "failure")) < LONGEST_TEXT + 300
    assert len(played(world, a_task(reference="x"), answer)[4]["judgement"].came) == LONGEST_TEXT


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"checker": "magic", "reference": "x"}, "“magic”"),
        ({"checker": [], "reference": "x"}, "checker is a text"),
        ({"checker": False, "reference": "x"}, "checker is a text"),
        ({"reference": "\u200b"}, "reference is empty"),
        ({"refrence": "x"}, "is it “reference”?"),
        ({"checker": "exact"}, "needs a reference"),
        ({"checker": "choice", "reference": "A"}, "needs choices"),
        ({"checker": "sql", "reference": "SELECT 1"}, "needs setup"),
        ({"reference": "x", "tolerance": 1}, "numeric"),
        ({"tolerance": 1}, "numeric"),
        ({"reference": 5}, "reference is a text"),
        ({"reference": " "}, "reference is empty"),
        ({"reference": "x" * 5000}, "5,000 characters"),
        ({"reference": "a\x07b"}, "cannot be shown"),
        ({"checker": "numeric", "reference": "many"}, "not one number"),
        ({"checker": "numeric", "reference": "3 or 4"}, "not one number"),
        ({"checker": "numeric", "reference": "4 apples"}, "not one number"),
        ({"checker": "numeric", "reference": True}, "not true or false"),
        ({"checker": "numeric", "reference": 1, "tolerance": "-1"}, "tolerance"),
        ({"checker": "regex", "reference": "("}, "pattern"),
        ({"choices": "ab", "reference": "A"}, "choices"),
        ({"choices": ["a"], "reference": "A"}, "2 to 26"),
        ({"choices": ["x", "X "], "reference": "A"}, "choice 2"),
        ({"choices": ["x", "You can: y"], "reference": "A"}, "choice 2"),
        ({"choices": ["x", "y"], "reference": "z"}, "choices"),
        ({"checker": "sql", "setup": "CREATE TABLE t (n)", "reference": "SELEC 1"}, "does not run"),
        ({"checker": "sql", "setup": "CREATE TABLE t (", "reference": "SELECT 1"}, "setup: “CREATE TABLE t (”"),
        ({"checker": "sql", "setup": "-- nothing", "reference": "SELECT 1"}, "no statement"),
        ({"checker": "sql", "setup": "SELECT 1", "reference": "SELECT 1"}, "no table"),
        (
            {"checker": "sql", "setup": "CREATE TABLE t (a, b AS (a + 1))", "reference": "SELECT b FROM t"},
            "the table t",
        ),
        (
            {"checker": "sql", "setup": f"{TREES}; CREATE UNIQUE INDEX i ON trees (name)", "reference": "SELECT 1"},
            "the unique index i",
        ),
        ({"checker": "sql", "setup": f"{TREES}; CREATE VIEW v AS SELECT 1", "reference": "SELECT 1"}, "the view v"),
    ],
)
def test_a_task_that_cannot_be_judged_is_reported_and_refused(world: TaskFile, data: dict[str, Any], says: str) -> None:
    assert any(says in reported for reported in TaskFile.faults(a_task(**data)))
    with pytest.raises(InputError):
        world.reset(a_task(**data), seed=1, at_step=1)


def test_sql_tasks_take_turns_on_the_tables_that_they_set_up(world: TaskFile) -> None:
    task = a_task("Which tree is the highest?", **HIGHEST)
    begun = world.reset(task, seed=1, at_step=1)
    assert "CREATE TABLE trees" in begun and "LIMIT 1" not in begun
    assert "COMMIT" in world.instructions
    observation, reward, terminated, _, info = world.step("SELECT name FROM trees WHERE height = 30")
    assert (reward, terminated, info) == (0.0, False, {}) and "elm" in observation
    assert world.step("COMMIT")[4]["success"]
    world.reset(a_task(reference="x"), seed=1, at_step=1)
    assert "COMMIT" not in world.instructions


def test_a_change_is_judged_by_the_tables_that_it_leaves(world: TaskFile) -> None:
    data = {"checker": "sql", "setup": TREES, "reference": "UPDATE trees SET height = 9 WHERE name = 'fir'"}
    assert TaskFile.faults(a_task(**data)) == []
    assert played(world, a_task(**data), "UPDATE trees SET height = 9 WHERE height IS NULL; COMMIT")[4]["success"]
    assert not played(world, a_task(**data), "UPDATE trees SET height = 9; COMMIT")[4]["success"]


@pytest.mark.parametrize(
    ("reference", "ordered"),
    [
        ("SELECT name FROM trees ORDER BY height", True),
        ("SELECT name FROM trees order  by height LIMIT 2", True),
        ("SELECT name FROM (SELECT name FROM trees ORDER BY height)", False),
        ("SELECT name FROM trees WHERE name <> 'order by' -- order by", False),
        ('SELECT name AS "order by" FROM trees', False),
        ("SELECT rank() OVER (ORDER BY height) FROM trees", False),
    ],
)
def test_the_order_of_rows_counts_where_the_reference_asks_for_one(reference: str, ordered: bool) -> None:
    data = database_data(TREES, reference)
    assert (data["kind"], data["ordered"]) == ("query", ordered)
    assert data["tables"][0]["rows"] == [["oak", 21], ["elm", 30], ["fir", None]]


def test_an_index_in_a_setup_and_words_like_those_of_computed_columns_do_no_harm(world: TaskFile) -> None:
    setup = f"{TREES}; CREATE INDEX i ON trees (name); CREATE TABLE alias (kind TEXT DEFAULT 'as (x)' /* as (y) */)"
    task = a_task(checker="sql", setup=setup, reference="SELECT name FROM trees WHERE height = 30")
    assert TaskFile.faults(task) == []
    assert played(world, task, "SELECT 'elm'; COMMIT")[4]["success"]


def test_a_task_without_a_reference_earns_no_reward_and_moves_no_q(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", Says("Thank you!"), environment="task_file", epsilon=0)
    first, second = agent.run([a_task("Thank a neighbour.")], epochs=2)
    for trace in (first, second):
        assert (trace.reward.reward, trace.reward.environment, trace.reward.outcome) == (None, None, "unrated")
        assert trace.reward.verdict == JUDGED_BY_A_PERSON
        assert trace.update.changes == ()
    assert second.decision.selected


def test_answering_it_again_earns_no_reward_either(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", Says("Thank you!"), environment="task_file")
    unjudged, judged = agent.run([a_task("Thank a neighbour."), a_task("Well?", reference="x")])
    for trace, reward in ((unjudged, None), (judged, -1.0)):
        assert Rerunner(agent.bank, trace, Says("y"), make_environment("task_file")).rerun(()).reward == reward


def test_a_run_over_the_example_learns_the_choices(tmp_path: Path) -> None:
    checked = check_file(sample_data_path() / "task_files" / "example.jsonl")
    agent = an_agent(tmp_path / "bank", environment="task_file")
    with closing(agent.environment):
        traces = list(agent.run(checked.accepted, epochs=2))
    first, second = ({t.task.id: t.reward.outcome for t in traces if t.epoch == epoch} for epoch in (1, 2))
    assert list(second.values()).count("success") >= list(first.values()).count("success")
    families = {task.id: task.family for task in checked.accepted}
    assert any(families[name] == "choices" and first[name] != "success" == second[name] for name in second)
