"""`memrl rewards`: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.cli import main as cli
from tests.builders import a_chain, numbers
from tests.cli.conftest import memrl, printed


@pytest.fixture
def bank(tmp_path: Path) -> str:
    with a_chain(tmp_path / "bank", 3) as made:
        made.write.ratings.rate(Rating("r", 3, 0.5, "ann", "[red]so so[/]"))
    return str(tmp_path / "bank")


def rewards_in(uri: str) -> dict[tuple[int, str], float | None]:
    with MemoryBank.open(uri) as bank:
        return {(n, e.rater): e.value for n in (1, 2, 3) for e in bank.ratings.of("r", n) if e.source == "person"}


def a_file(folder: Path, text: str, name: str = "rewards.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def shown(*words: str) -> str:
    return CliRunner().invoke(cli.app, list(words)).output


def test_a_file_is_previewed_line_by_line_and_saved(bank: str, tmp_path: Path) -> None:
    file = a_file(tmp_path, "step,reward,rater,reason,colour\n2,1,[b]bo[/],good,red\n3,-1,ann,,red\n3,-1,ann,bad,red\n")
    message = printed("rewards", "import", file, "--bank", bank)
    assert "[b]bo[/]" in message and "changes +0.50 to −1.00" in message and "line 4 counts instead" in message
    assert "Passed over: colour" in message
    assert "1 new, 1 changed, 0 " in message
    assert "Saved 2 rewards" in message
    assert rewards_in(bank) == {(2, "[b]bo[/]"): 1.0, (3, "ann"): -1.0}


def test_a_dry_run_saves_nothing(bank: str, tmp_path: Path) -> None:
    before = rewards_in(bank)
    file = a_file(tmp_path, "step,reward\n2,1\n")
    code, message = memrl("rewards", "import", file, "--bank", bank, "--rater", "ann", "--dry-run")
    assert (code, "1 new" in message, "dry run" in message) == (0, True, True)
    assert rewards_in(bank) == before


def test_a_bad_line_stops_the_import_unless_it_is_to_be_skipped(bank: str, tmp_path: Path) -> None:
    before = rewards_in(bank)
    words = ["rewards", "import", a_file(tmp_path, "step,reward\n2,1\n9,1\n"), "--bank", bank, "--rater", "bo"]
    assert "Line 3" in shown(*words)
    code, refused = memrl(*words)
    assert code == 2 and "--skip-bad" in refused
    assert rewards_in(bank) == before
    code, message = memrl(*words, "--skip-bad")
    assert (code, "Saved 1 reward in" in message) == (0, True)
    assert rewards_in(bank) == {**before, (2, "bo"): 1.0}


def test_what_a_terminal_would_obey_is_not_printed(bank: str, tmp_path: Path) -> None:
    line = json.dumps({"step": 2, "reward": "\x1b[2J", "rater": "bo", "\x1b]0;x\x07": 1})
    good = json.dumps({"step": 2, "reward": 1, "rater": "bo", "reason": "\x1b[2J"})
    message = shown("rewards", "import", a_file(tmp_path, f"{line}\n{good}", "rewards.jsonl"), "--bank", bank)
    assert "\x1b" not in message and "\x07" not in message


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_is_exported_is_imported_by_another_bank(bank: str, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"out.{kind}"
    printed("rewards", "export", "--bank", bank, "-o", str(out))
    a_chain(tmp_path / "other", 3).close()
    printed("rewards", "export", "--bank", bank, "-o", str(out), "--overwrite")
    printed("rewards", "import", str(out), "--bank", str(tmp_path / "other"))
    assert rewards_in(str(tmp_path / "other")) == rewards_in(bank)
    again = memrl("rewards", "import", str(out), "--bank", bank)
    assert (again[0], "1 same as now" in again[1], "Saved 0 rewards" in again[1]) == (0, True, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["import", "{tmp}/none.csv", "--bank", "{tmp}/bank"], "no file"),
        (["import", "{tmp}/rewards.txt", "--bank", "{tmp}/bank"], ".csv or .jsonl"),
        (["import", "{tmp}/rewards.csv", "--bank", "{tmp}/none"], "no bank"),
        (["import", "{tmp}/rewards.csv", "--bank", "{tmp}/bank", "--run", "nobody"], "nobody"),
        (["import", "{tmp}/empty.csv", "--bank", "{tmp}/bank"], "be taken"),
        (["export", "--bank", "{tmp}/bank", "-o", "{tmp}/out.xlsx"], ".csv or .jsonl"),
        (["export", "--bank", "{tmp}/bank", "-o", "{tmp}/rewards.csv"], "exists already"),
        (["export", "--bank", "{tmp}/bank", "-o", "{tmp}/out.csv", "--run", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_leaves_nothing(
    bank: str, tmp_path: Path, words: list[str], says: str
) -> None:
    a_file(tmp_path, "step,reward,rater\n2,1,bo\n")
    a_file(tmp_path, "step,reward,rater\n", "empty.csv")
    before, files = rewards_in(bank), sorted(path.name for path in tmp_path.iterdir())
    code, message = memrl("rewards", *(word.format(tmp=tmp_path) for word in words))
    assert (code, says in message) == (2, True), message
    assert rewards_in(bank) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_a_batch_is_made_and_its_progress_printed(bank: str) -> None:
    given = ("--bank", bank, "--raters", "ann,[b]bo[/]", "--show", "all", "--overlap", "2", "--gold", "0.34")
    printed("rewards", "batch", *given, "--by", "dan")
    with MemoryBank.open(bank) as opened:
        (made,) = opened.batches.of("r")
        assert {rater: sorted(part) for rater, part in made.parts.items()} == {"ann": [1, 2], "[b]bo[/]": [1, 2, 3]}
        assert (len(made.gold), made.made_by) == (1, "dan")
        opened.write.ratings.rate(Rating("r", next(iter(made.gold)), 1.0, "[b]bo[/]"))
    code, message = memrl("rewards", "batches", "--bank", bank)
    assert (code, numbers(next(line for line in message.splitlines() if "[b]bo[/]" in line))[:4]) == (0, list("1311"))
    for wrong in (("--show", "none"), ("--overlap", "3"), ("--known", "ann")):
        assert memrl("rewards", "batch", *given, *wrong)[0] == 2
