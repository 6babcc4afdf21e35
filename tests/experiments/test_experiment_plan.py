"""An experiment as a file: what it may say, and how a fault in it is reported."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memrl_core.cli.main import app
from memrl_core.environments.tasks import named_tasks
from memrl_core.errors import InputError
from memrl_core.experiments import plan as plan_module
from memrl_core.experiments.cells import cells_of, of_epoch
from memrl_core.experiments.plan import Plan, Stage, read_plan
from memrl_core.policies import POLICIES
from memrl_core.settings import PRESETS, MemRLSettings

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "sample_data" / "experiments").glob("*.toml"))
WIDE = list(range(1, 60))
ARM = '[[arms]]\nname = "a"\n'


def a_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(f'title = "Mine"\n{text}', encoding="utf-8")
    return path


def refusal(path: Path, **changes: Any) -> str:
    with pytest.raises(InputError) as failure:
        read_plan(path, **changes)
    message = str(failure.value)
    assert "\n" not in message and ".." not in message and message.endswith(".")
    return message


@pytest.mark.parametrize(
    ("text", "line", "key", "allowed"),
    [
        ("seed = 3\n", 2, "seed", "Allowed: title, question, seeds, first_seed, epochs"),
        (
            f"{ARM}polcy = 'memrl'\n",
            4,
            "arms.1.polcy",
            "Allowed: name, policy, preset, settings, model_options, poison, prune",
        ),
        (f"{ARM}poison = {{ after = 2 }}\n", 4, "arms.1.poison.after", "less than or equal to 1 (given: 2)"),
        (f"{ARM}policy = 'other'\n", 4, "arms.1.policy", "Allowed: memrl"),
        ("[grid]\npolicy = ['other']\n", 2, "grid", "Allowed: memrl"),
        (f"{ARM}preset = 'db'\n", 4, "arms.1.preset", "allowed: alfworld, hle, bigcodebench, lifelong"),
        (f"{ARM}policy = 'rag'\npreset = 'hle'\n", 5, "arms.1.preset", "allowed: none"),
        ("[settings]\nweigth = 0\n", 2, "settings", "there is no setting “weigth”. Allowed: k1, "),
        (f"{ARM}settings = {{ weigth = 0 }}\n", 4, "arms.1.settings", "Allowed: k1, "),
        (f"{ARM}settings = {{ weight = 2 }}\n", 4, "arms.1.settings", "less than or equal to 1 (given: 2)"),
        (
            f"{ARM}policy = 'rag'\nsettings = {{ weight = 0 }}\n",
            5,
            "arms.1.settings",
            "the policy rag has no setting “weight”. Allowed: k1, ",
        ),
        (f"[settings]\nweight = 0\n{ARM}policy = 'rag'\n", 2, "settings", "no setting “weight”. Allowed: k1, "),
        (f"[settings]\nk2 = 200\n{ARM}policy = 'rag'\n", 2, "settings", "less than or equal to 100 (given: 200)"),
        (
            "[grid]\npolicy = ['memrl', 'rag']\nweight = [0]\n",
            2,
            "grid",
            "the policy rag has no setting “weight”. Allowed: k1, ",
        ),
        ("[grid]\nweight = [0.5, -1]\n", 2, "grid", "greater than or equal to 0 (given: -1)"),
        ("[grid]\nweight = []\n", 2, "grid", "at least one value"),
        ("model_options = { temperature = 3 }\n", 2, "model_options", "temperature"),
        (f"{ARM}model_options = {{ colour = 1 }}\n", 4, "arms.1.model_options", "num_predict"),
        ("seeds = 0\n", 2, "seeds", "greater than or equal to 1 (given: 0)"),
        ("seeds = 1001\n", 2, "seeds", "less than or equal to 1000"),
        ("epochs = 0\n", 2, "epochs", "greater than or equal to 1"),
        ("report = ['nope']\n", 2, "report.1", "'accuracy', 'forgetting'"),
        ("[[streams]]\nshift_at = [0]\n", 3, "streams.1.shift_at.1", "greater than or equal to 1"),
        ("[[streams]]\n[[streams.stages]]\ntasks = 'nowhere'\n", 4, "streams.1.stages.1.tasks", "household-train"),
        (
            "[[streams]]\n[[streams.stages]]\ntasks = 'household-train:fly'\n",
            4,
            "streams.1.stages.1.tasks",
            "no family “fly”. Known: cool",
        ),
        ("[[streams]]\nevaluate = ['nowhere']\n", 3, "streams.1.evaluate", "Known: household-train, household-heldout"),
        ("[[streams]]\nevaluate = ['household-demo', 'household-demo']\n", 3, "streams.1.evaluate", "listed twice"),
    ],
)
def test_a_fault_is_reported_with_its_line_its_key_and_what_is_allowed(
    tmp_path: Path, text: str, line: int, key: str, allowed: str
) -> None:
    message = refusal(a_file(tmp_path, text))
    assert message.startswith(f"mine.toml, line {line}: {key}: ")
    assert allowed in message


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (ARM + ARM, "same name"),
        ("[grid]\nweight = [0.5]\n[[arms]]\nname = 'λ = 0.5'\n", "same name"),
        ("[grid]\nweight = [0.5, 0.5]\n", "same name"),
        ("[[streams]]\n[[streams]]\n", "same name"),
        (f"compare_with = 'b'\n{ARM}", "“b”"),
        (f"{ARM}settings = {{ k1 = 2, k2 = 5 }}\n", "k2 = 5"),
        ("[grid]\nk1 = [2, 6]\nk2 = [1, 5]\n", "“k1 = 2, k2 = 5”"),
        (f"[settings]\nk1 = 2\n{ARM}settings = {{ k2 = 5 }}\n", "k2 = 5"),
        ("seeds = 1000\n[grid]\nweight = [0, 0.5, 1]\nalpha = [0.1, 0.2, 0.3, 0.4]\n", "more than 10,000 cells"),
        (f"[grid]\nk1 = {WIDE}\nk2 = {WIDE}\nvisits = {WIDE}\n", "more than 10,000 combinations"),
    ],
)
def test_what_does_not_fit_together_is_reported_with_its_names(tmp_path: Path, text: str, reported: str) -> None:
    assert reported in refusal(a_file(tmp_path, text))


def test_a_file_that_cannot_be_read_as_toml_is_reported(tmp_path: Path) -> None:
    assert "mine.toml" in refusal(a_file(tmp_path, "seeds = \n"))
    assert "line 2" in refusal(a_file(tmp_path, "seeds = \n"))
    assert "missing.toml" in refusal(tmp_path / "missing.toml")
    assert "cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize(("option", "value"), [("--seeds", "0"), ("--seeds", "-1"), ("--seeds", "1001")])
def test_seeds_that_are_asked_for_are_checked_like_those_of_the_file(tmp_path: Path, option: str, value: str) -> None:
    path = a_file(tmp_path, "")
    done = CliRunner().invoke(app, ["experiment", str(path), "--out", str(tmp_path / "out"), option, value])
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == refusal(path, seeds=int(value))
    assert "seeds" in message(done)
    assert not (tmp_path / "out").exists()


def test_epochs_that_are_asked_for_are_checked_and_hold_for_every_stage(tmp_path: Path) -> None:
    path = a_file(tmp_path, "[[streams]]\n[[streams.stages]]\nepochs = 7\n[[streams.stages]]\n")
    assert "epochs" in refusal(path, epochs=0)
    assert [stage.epochs for stage in read_plan(path).streams[0].stages] == [7, None]
    plan = read_plan(path, seeds=2, first_seed=40, epochs=3)
    assert (list(plan.all_seeds()), plan.epochs) == ([40, 41], 3)
    assert sorted({cell.seed for cell in cells_of(plan)}) == [40, 41]
    assert "first_seed" in refusal(path, first_seed=-1)
    assert [stage.epochs for stage in plan.streams[0].stages] == [None, None]


def test_one_stream_and_another_model_can_be_asked_for(tmp_path: Path) -> None:
    path = a_file(tmp_path, "".join(f"[[streams]]\nname = '{name}'\n[[streams.stages]]\n" for name in "xy"))
    plan = read_plan(path, model="gguf:smollm2", streams=["y"])
    assert (plan.model, [stream.name for stream in plan.streams]) == ("gguf:smollm2", ["y"])
    assert "z" in refusal(path, streams=["z"])


def message(done: object) -> str:
    return str(getattr(done, "exception", ""))


def test_every_combination_of_a_grid_is_an_arm_besides_those_that_are_written_down(tmp_path: Path) -> None:
    plan = read_plan(a_file(tmp_path, f"seeds = 2\n{ARM}\n[grid]\nweight = [0, 1]\nalpha = [0.1, 0.2, 0.3]\n"))
    combined = [f"λ = {weight}, α = {alpha}" for weight, alpha in product((0, 1), (0.1, 0.2, 0.3))]
    assert [arm.name for arm in plan.all_arms()] == ["a", *combined]
    assert plan.reference == "a"
    last = plan.settings_of(plan.all_arms()[-1]).model_dump()
    assert (last["weight"], last["alpha"]) == (1, 0.3)


def test_settings_of_the_whole_plan_hold_for_every_arm_whose_policy_has_them(tmp_path: Path) -> None:
    arms = f"{ARM}settings = {{ k2 = 2 }}\n[[arms]]\nname = 'b'\npolicy = 'rag'\n"
    plan = read_plan(a_file(tmp_path, f"{arms}[settings]\nweight = 0.9\nk1 = 7\nk2 = 5\n"))
    mine, other = (plan.settings_of(arm).model_dump() for arm in plan.all_arms())
    assert (mine["weight"], mine["k1"], mine["k2"]) == (0.9, 7, 2)
    assert (other["k1"], other["k2"], "weight" in other) == (7, 5, False)
    assert [set(cell.settings) for cell in cells_of(plan)[:2]] == [set(mine), set(other)]


def test_a_grid_combines_policies_with_settings_that_all_of_them_have(tmp_path: Path) -> None:
    plan = read_plan(a_file(tmp_path, "seeds = 1\n[grid]\npolicy = ['memrl', 'rag']\nk2 = [1, 3]\ndelta = [0]\n"))
    assert [(arm.name, arm.policy, plan.settings_of(arm).k2) for arm in plan.all_arms()] == [
        ("memrl, k2 = 1, δ = 0", "memrl", 1),
        ("memrl, k2 = 3, δ = 0", "memrl", 3),
        ("rag, k2 = 1, δ = 0", "rag", 1),
        ("rag, k2 = 3, δ = 0", "rag", 3),
    ]


def test_an_arm_that_the_world_cannot_serve_is_refused_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        plan_module, "fits", lambda policy, world, settings: "It needs a step reward."[: 99 * (policy == "rag")]
    )
    read_plan(a_file(tmp_path, ARM))
    assert "“a”" in refusal(a_file(tmp_path, f"{ARM}policy = 'rag'\n"))


def test_a_file_with_a_title_alone_compares_nothing_and_runs_memrl_as_it_is(tmp_path: Path) -> None:
    plan = read_plan(a_file(tmp_path, ""))
    assert [arm.name for arm in plan.all_arms()] == ["MemRL"]
    assert len(cells_of(plan)) == plan.cells == 10


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_experiment_is_whole_and_each_of_its_cells_has_a_name_of_its_own(path: Path) -> None:
    plan = read_plan(path)
    cells = cells_of(plan)
    assert len(cells) == plan.cells == len(plan.all_arms()) * len(plan.streams) * plan.seeds
    assert len({cell.name for cell in cells}) == len({cell.fingerprint for cell in cells}) == len(cells)
    assert plan.question and plan.reference in [arm.name for arm in plan.all_arms()]
    begin = [cell.seed for cell in cells[: len(cells) // plan.seeds]]
    assert set(begin) == {plan.first_seed}


def test_the_shipped_comparison_of_methods_has_every_policy_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = next(path for path in SHIPPED if path.stem == "methods")
    plan = read_plan(shipped)
    first, *grid = plan.all_arms()
    assert tuple(arm.policy for arm in grid) == POLICIES
    assert (first.policy, first.settings) == ("memrl", {"q0_success": 0.5, "q0_failure": -0.5})
    assert {plan.settings_of(arm).k2 for arm in plan.all_arms()} == {3}
    monkeypatch.setattr(plan_module, "POLICIES", ("rag", "none"))
    assert [arm.policy for arm in read_plan(shipped).all_arms()] == ["memrl", "rag", "none"]


def test_an_arm_runs_under_its_preset_with_its_own_settings_above_it(tmp_path: Path) -> None:
    plan = read_plan(a_file(tmp_path, f"{ARM}preset = 'lifelong'\nsettings = {{ k2 = 2 }}\n[settings]\nk1 = 7\n"))
    (arm,) = plan.all_arms()
    settings = plan.settings_of(arm).model_dump()
    assert settings == MemRLSettings.of({**PRESETS["lifelong"], "k2": 2}).model_dump()
    assert settings["q_floor"] == 0.0


CONDITIONS = """
[[streams]]
name = "any"
options = { mean = 0.5 }
[[streams.stages]]
tasks = "parametric-middle"
count = 10
fresh = true
[streams.grid]
spread = [0.0, 0.4]
repeat = [0.0, 0.5, 1.0]
"""


def test_a_streams_grid_is_a_stream_for_each_combination(tmp_path: Path) -> None:
    plan = read_plan(a_file(tmp_path, CONDITIONS))
    found = [(one.options, one.stages[0].repeat) for one in plan.streams]
    assert found == [({"mean": 0.5, "spread": s}, r) for s in (0.0, 0.4) for r in (0.0, 0.5, 1.0)]
    assert len({one.name for one in plan.streams}) == 6
    assert Plan.model_validate(plan.model_dump()) == plan


@pytest.mark.parametrize(
    ("grid", "cell"),
    [
        ("spread = [0.4, 0.9]", "spread 0.9"),
        ("colour = [1]", "colour 1"),
        ("repeat = [2]", "repeat 2"),
        ("spread = []", ""),
    ],
)
def test_a_condition_that_cannot_run_is_named(tmp_path: Path, grid: str, cell: str) -> None:
    text = CONDITIONS.partition("[streams.grid]")[0] + f"[streams.grid]\n{grid}\n"
    reported = refusal(a_file(tmp_path, text))
    assert cell in reported and "grid" in reported


def test_repeats_come_from_earlier_epochs_with_their_chance_and_are_the_same_for_every_arm() -> None:
    tasks = named_tasks("parametric-middle", 400)

    def epochs(repeat: float) -> list[list[str]]:
        stage = Stage(tasks="parametric-middle", count=100, fresh=True, repeat=repeat)
        return [[task.id for task in of_epoch(tasks, stage, epoch, seed=1)] for epoch in range(4)]

    never, half, always = map(epochs, (0.0, 0.5, 1.0))
    assert never == [[task.id for task in tasks[n : n + 100]] for n in range(0, 400, 100)]
    assert all(set(always[n]) <= {one for epoch in never[:n] for one in epoch} for n in (1, 2, 3))
    met = [one in {known for epoch in never[:n] for known in epoch} for n in (1, 2, 3) for one in half[n]]
    assert 0.4 < sum(met) / len(met) < 0.6
