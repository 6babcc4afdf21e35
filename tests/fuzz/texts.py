"""Files that people write: rewards, tasks, experiments and lessons; and settings."""

from __future__ import annotations

import csv
import io
import json
import os
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.environments import environment_class
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import keep, load_tasks, sample_data_path, tasks_of_set
from memrl_core.errors import InputError, MemRLError, SettingsError
from memrl_core.exchange.reward_files import Effect, apply_rewards, export_rewards, read_rewards
from memrl_core.experiments.plan import read_plan
from memrl_core.experiments.toml_files import read_model
from memrl_core.lessons.lesson import Lesson
from memrl_core.policies import POLICIES, make_policy, settings_of
from tests.fuzz.mutations import RAW, Cut, Edit, as_json, cut, cuts, edited, edits
from tests.fuzz.sources import bank_path, copied, is_a_sentence, is_whole

# --- rewards ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """Changes to one of several files, which `of` names or counts."""

    of: Any
    edits: list[Edit]
    cuts: list[Cut]


def cases(of: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Case]:
    """Cases of a kind of file, with at most so many edits."""
    return st.builds(Case, of, edits(most), st.just([]) | cuts(2))


REWARD_CASES = cases(st.sampled_from(["csv,", "csv;", "jsonl"]), 5)
REWARDS: list[dict[str, Any]] = [
    {"run": "r", "step": 1, "rater": "cid", "reward": 0.5, "reason": "well, done"},
    {"run": "r", "step": 2, "rater": "cid", "reward": -1, "reason": "=1+1", "scale": "stars", "given": {"stars": 4}},
    {"run": "s", "step": 3, "rater": "bob", "reward": 1.0, "reason": ""},
    {"run": "r", "step": 1, "rater": "cid", "reward": 0.25, "reason": "again", "step_id": ""},
]


def check_rewards(case: Case, folder: Path) -> None:
    """A file of rewards: shown, given in one action, and the same when it is read again."""
    rows = edited(REWARDS, case.edits)
    text = _as_lines(rows) if case.of == "jsonl" else _as_csv(rows, case.of[-1])
    data = cut(text.encode("utf-8", "surrogatepass"), case.cuts)
    uri = copied(bank_path(), folder)
    kind: Any = case.of.rstrip(",;")
    with MemoryBank.open(str(uri)) as bank:
        facts = bank.facts
        try:
            file = read_rewards(data, kind, bank)
            assert bank.facts == facts
            assert len(file.rows()) == len(file.lines)
            json.dumps(file.rows())
            apply_rewards(bank, file)
        except MemRLError as error:
            is_a_sentence(error)
            assert bank.facts == facts, "refused, and the bank is another"
            return
        again = read_rewards(export_rewards(bank, kind), kind, bank)
        assert all(line.effect is Effect.SAME for line in again.lines), [asdict(line) for line in again.lines]
    is_whole(uri)


def _as_lines(rows: Any) -> str:
    return "\n".join(map(as_json, rows)) if isinstance(rows, list) else as_json(rows)


def _as_csv(rows: Any, sign: str) -> str:
    listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    columns = list(dict.fromkeys(key for row in listed for key in row))
    file = io.StringIO()
    writer = csv.writer(file, delimiter=sign)
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column, "")) for column in columns] for row in listed)
    return file.getvalue()


def _cell(value: Any) -> str:
    return as_json(value) if isinstance(value, dict | list) else RAW.get(str(value), str(value))


# --- tasks ------------------------------------------------------------------------------------------------------------


BEES: dict[str, Any] = {
    "instruction": "Which bees made more than five trips? Give their numbers.",
    "table_info": {
        "name": "bees",
        "column_info_list": [{"name": "bee_id", "type": "INT"}, {"name": "trips", "type": "INT"}],
        "row_list": [[1, 4], [2, 9], [3, 6]],
    },
    "answer_info": {"md5": None, "direct": [[2], [3]], "sql": "SELECT bee_id FROM bees WHERE trips > 5;"},
    "skill_list": ["select", "where_single_condition"],
}


@cache
def _task_files() -> dict[str, Any]:
    def lines_of(path: Path) -> list[Any]:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:4]]

    own = [json.loads(line) for line in (sample_data_path() / "task_files" / "example.jsonl").read_text().splitlines()]
    return {
        "own": own[:9],
        "tables": own[9:11],
        "household": lines_of(sample_data_path() / "tasks" / "household-train.jsonl"),
        "sql": lines_of(sample_data_path() / "tasks" / "sql-train.jsonl")[:1],
        "lifelong": {"0": BEES, "1": {**BEES, "skill_list": ["select"]}},
    }


TASK_CASES = cases(st.sampled_from(["own", "own", "tables", "household", "sql", "lifelong"]))


def check_tasks(case: Case, folder: Path) -> None:
    """A file of tasks: each line is taken or reported, and what is kept comes back as it was."""
    tree = edited(_task_files()[case.of], case.edits)
    text = "\n".join(map(as_json, tree)) if isinstance(tree, list) else as_json(tree)
    path = folder / "some tasks.jsonl"
    path.write_bytes(cut(text.encode("utf-8", "surrogatepass"), case.cuts))
    try:
        assert load_tasks(path)
    except InputError as error:
        is_a_sentence(error)
    try:
        checked = check_file(path)
    except InputError as error:
        is_a_sentence(error)
        return
    for where, reason in checked.reported:
        is_a_sentence(InputError(f"{where}: {reason}"))
    for task in checked.accepted:
        assert environment_class(task.environment).faults(task) == []
    if checked.accepted:
        with mock.patch.dict(os.environ, MEMRL_HOME=str(folder / "home")):
            assert tasks_of_set(keep(checked)) == list(checked.accepted)


# --- experiments and lessons ------------------------------------------------------------------------------------------


TOML_CASES = cases(st.integers(0, 20))


def check_experiment(case: Case, folder: Path) -> None:
    """An experiment's file: a plan whose every arm can run, or a sentence."""
    path = _spoilt_toml("experiments", case, folder)
    try:
        plan = read_plan(path)
    except InputError as error:
        is_a_sentence(error)
        return
    assert read_plan(path) == plan
    assert plan.cells == len(plan.all_arms()) * len(plan.streams) * plan.seeds
    assert plan.reference in [arm.name for arm in plan.all_arms()]
    for arm in plan.all_arms():
        make_policy(arm.policy, plan.settings_of(arm).model_dump())


def check_lesson(case: Case, folder: Path) -> None:
    """A lesson's file: a lesson whose question has its answer and whose settings a run can have, or a sentence."""
    path = _spoilt_toml("lessons", case, folder)
    try:
        lesson = read_model(path, Lesson)
    except InputError as error:
        is_a_sentence(error)
        return
    assert 1 <= lesson.predict.answer <= len(lesson.predict.choices)
    assert lesson.start.settings(seed=1).seed == 1


def _spoilt_toml(kind: str, case: Case, folder: Path) -> Path:
    sources = _toml_files(kind)
    path = folder / "a file.toml"
    tree = edited(sources[case.of % len(sources)], case.edits)
    path.write_bytes(cut(_as_toml(tree).encode("utf-8", "surrogatepass"), case.cuts))
    return path


@cache
def _toml_files(kind: str) -> list[Any]:
    paths = sorted((sample_data_path() / kind).glob("*.toml"))
    return [tomllib.loads(path.read_text(encoding="utf-8")) for path in paths if path.stem != "words"]


def _as_toml(tree: Any) -> str:
    """One key a line, and what is in it on the same line: TOML can say all of it so."""
    if not isinstance(tree, dict):
        return _toml_value(tree)
    return "".join(f"{json.dumps(str(key))} = {_toml_value(value)}\n" for key, value in tree.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return RAW.get(value, as_json(value)) if isinstance(value, str) else as_json(value).replace("NaN", "nan")


# --- settings ---------------------------------------------------------------------------------------------------------


SETTINGS_CASES = cases(st.sampled_from(POLICIES))


def check_settings(case: Case, folder: Path) -> None:
    """The settings of a policy: taken, and the same when they are stored and read again, or a sentence."""
    given = edited(settings_of(case.of, {}).model_dump(mode="json"), case.edits)
    if not isinstance(given, dict):
        return
    try:
        taken = settings_of(case.of, given)
        make_policy(case.of, given)
    except SettingsError as error:
        is_a_sentence(error)
        return
    stored = json.loads(json.dumps(taken.model_dump(mode="json"), allow_nan=False))
    assert settings_of(case.of, stored) == taken
