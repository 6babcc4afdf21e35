"""What README, CONTRIBUTING, SECURITY and the site name is there: files, tests, targets of make, commands, options."""

from __future__ import annotations

import json
import re
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.main import get_command

from memrl_core.bank import MemoryBank
from memrl_core.cli.main import app
from memrl_core.experiments.executors import run_experiment
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.toml_files import read_model
from memrl_core.policies import POLICIES
from tests.experiments import tiny_experiment

ROOT = Path(__file__).parents[2]
COMMANDS: Any = get_command(app)
GENERATED = {"commands.md", "methods.md"}
OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in (*OUTSIDE, *ROOT.glob("docs/**/*.md"))
}
PATH = re.compile(r"(?<![\w/.~-])((?:memrl_core|pages|tests|docs|sample_data|benchmarks)/[\w./-]*\w)")
STATED = re.compile(r"(\d+\.\d)[^\d(|]*\((\d+\.\d) to (\d+\.\d)\)")
INTERVAL = re.compile(r"(\d+\.\d) pp \((\d+\.\d)…(\d+\.\d)\)")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)")


def test_every_path_and_link_leads_somewhere() -> None:
    lost = []
    for name, text in PAGES.items():
        lost += [(name, path) for path in PATH.findall(text) if not (ROOT / path).exists()]
        links = {link for link in LINK.findall(text) if Path(link).name not in GENERATED}
        lost += [(name, link) for link in links if not ((ROOT / name).parent / link).exists()]
    assert lost == [] and len(PAGES) > 15


def test_an_interval_of_the_results_at_a_glance_stands_on_the_page_that_is_linked() -> None:
    compared = 0
    for row in re.findall(r"^\|.*\]\(.*$", PAGES["docs/results/index.md"], re.MULTILINE):
        pages = " ".join(PAGES[f"docs/results/{link}"] for link in LINK.findall(row) if "/" not in link)
        # A page gives what the first arm adds to the second with the other sign, and then the ends in the other order.
        reported = {(mean, *sorted((low, high))) for mean, low, high in INTERVAL.findall(re.sub("[+−]", "", pages))}
        stated = {(mean, *sorted((low, high))) for mean, low, high in STATED.findall(row)}
        assert stated <= reported
        compared += len(stated)
    assert compared == 10


def test_every_test_and_every_target_of_make_is_there() -> None:
    text = "\n".join(PAGES.values())
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)\b", text, re.MULTILINE))
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()
    assert targets >= {"app", "test", "lint", "docs"}
    written = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    named = set(re.findall(r"\btest_\w+\b(?!\.py)", text)) - {
        "test_my_policy_keeps_the_contract",
        "test_it_keeps_the_contract",
    }
    assert {name for name in named if f"def {name}(" not in written} == set()


def test_every_command_with_its_options_can_be_typed() -> None:
    """Each line of a shell block, and each `memrl …` in a sentence."""
    typed = [line for text in PAGES.values() for line in re.findall(r"(?:^|`)memrl ([a-z][^`\n]*)", text, re.MULTILINE)]
    wrong = []
    for line in typed:
        words = shlex.split(line, comments=True)
        command = COMMANDS
        while words and hasattr(command, "commands") and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in options]
        if hasattr(command, "commands") or unknown:
            wrong.append(f"memrl {line}")
    assert wrong == [] and len(typed) > 30


def test_readme_and_contributing_are_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 150
    assert len(PAGES["CONTRIBUTING.md"].splitlines()) <= 150


def test_the_agent_in_the_readme_records_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGES["README.md"], re.MULTILINE | re.DOTALL)
    exec(code, {})
    with MemoryBank.open("my-bank") as bank:
        first, second = bank.memories("my-run")
        q = {memory_id: utility.q for memory_id, utility in bank.utilities("my-run").items()}
        (candidate,) = bank.trace("my-run", 2).recall.pool
    assert candidate.similarity == pytest.approx(0.8) and candidate.memory_id == first.id
    assert q[first.id] > q[second.id] == 0.0
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 12


def test_the_notebook_records_an_agent_and_draws_its_decision() -> None:
    cells = json.loads((ROOT / "docs/notebooks/record-and-look.ipynb").read_text(encoding="utf-8"))["cells"]
    known: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "notebook", "exec"), known)
    assert known["trace"].step == 5 and len(known["q"]) == 5 and len(set(known["q"].values())) > 1
    assert len(known["picture"].table) == 4 and known["picture"].figure.data


def test_what_docker_starts_is_reached_from_this_machine_only() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert all(port.startswith("127.0.0.1:") for one in services.values() for port in one.get("ports", []))
    words = services["app"]["command"]
    assert words[:2] == ["memrl", "app"] and set(words[2:]) <= {"--headless"}
    assert services["app"]["environment"]["OLLAMA_HOST"].endswith(services["ollama"]["ports"][0].split(":")[1])
    # A checkout in which the app ran has gigabytes that the image does not need.
    assert {".git", ".venv"} <= set((ROOT / ".dockerignore").read_text(encoding="utf-8").split())


def test_every_command_and_option_says_what_it_does() -> None:
    commands = [COMMANDS]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        assert command.help, command.name
        assert [parameter.name for parameter in command.params if not parameter.help] == [], command.name
    assert len(commands) > 20


def script(name: str) -> ModuleType:
    """A script of docs/ as a module."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec and spec.loader
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_pages_of_results_say_the_command_and_copy_the_report(tmp_path: Path) -> None:
    plan = {"title": "T", "question": "Why?", "seeds": 3, "epochs": 2, "model": "simulated", "embedder": "hashing"}
    (tmp_path / "experiment.json").write_text(json.dumps({"plan": plan}), encoding="utf-8")
    (tmp_path / "report.md").write_text("| arm | 12.5 % |\n", encoding="utf-8")
    page = script("write_results").experiment(tmp_path)
    assert f"memrl experiment sample_data/experiments/{tmp_path.name}.toml" in page
    assert "3 seeds, 2 epochs" in page and page.endswith("| arm | 12.5 % |\n")


@pytest.mark.slow
def test_a_page_of_an_experiment_has_a_picture_of_its_arms_and_the_same_results_give_the_same(tmp_path: Path) -> None:
    plan = tiny_experiment.a_plan(count=3, seeds=2)
    run_experiment(plan, tmp_path / "tiny", jobs=1)
    results = script("write_results")
    linked = results.picture(tmp_path / "tiny", tmp_path)
    drawn = (tmp_path / "tiny.svg").read_bytes()
    assert "(tiny.svg)" in linked and "no memory" in linked and "MemRL" in linked
    assert results.picture(tmp_path / "tiny", tmp_path) == linked and (tmp_path / "tiny.svg").read_bytes() == drawn


@pytest.mark.slow
def test_the_page_of_conditions_has_the_picture_that_its_results_give(tmp_path: Path) -> None:
    results = script("write_results")
    plan = read_model(ROOT / "sample_data" / "experiments" / f"{results.STUDY}.toml", Plan)
    rows = results.by_seed(plan, pd.read_parquet(results.DATA))
    linked = results.picture_of_gains(rows, ["spread", "noise", "repeat"], tmp_path / f"{results.STUDY}.svg")
    assert linked in (results.RESULTS / f"{results.STUDY}.md").read_text(encoding="utf-8")
    assert (tmp_path / f"{results.STUDY}.svg").read_bytes() == (results.RESULTS / f"{results.STUDY}.svg").read_bytes()


@pytest.mark.slow
def test_every_command_and_method_has_its_place_in_the_generated_pages() -> None:
    generated = script("generated")
    commands, methods = generated.commands(), generated.methods()
    assert [name for name in COMMANDS.commands if f"## `memrl {name}`" not in commands] == []
    assert [name for name in POLICIES if f"`{name}` · *" not in methods] == []
