"""A bank on a PostgreSQL server, its vectors on an object store: two processes rate it at once, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import RESTORE, check
from memrl_core.bank.step_search import StepQuery
from memrl_core.errors import BankDamaged, BankError, BankMissing, BankUnreachable, NotABank
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.records import Follows, GenerateRecord, Message, Reply, Turn
from tests.builders import a_bank, a_chain, a_step
from tests.object_store import object_store, set_environment
from tests.small_banks import give_reward

pytestmark = pytest.mark.slow

ROOT = str(Path(__file__).resolve().parents[2])
EACH = 12
RATER = f"""
import sys
sys.path.insert(0, {ROOT!r})
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
bank = MemoryBank.open(sys.argv[1])
for n in range({EACH}):
    bank.write.ratings.rate(Rating("r", 1 + n % 3, (n // 3) / 8, sys.argv[2]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL server of its own, in a temporary folder on a free loopback port."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert found, "PostgreSQL is missing: apt-get install postgresql"
    programs = found[-1].parent
    folder = tmp_path_factory.mktemp("postgresql")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    as_owner = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if as_owner:
        # PostgreSQL does not run as root, whose folders its user may not enter.
        folder = Path("/tmp") / f"memrl-postgresql-{port}"
        folder.mkdir()
        shutil.chown(folder, "postgres")
    data = folder / "data"

    def run(program: str, *words: str) -> None:
        done = subprocess.run([*as_owner, str(programs / program), *words], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr

    try:
        run("initdb", "-D", str(data), "-A", "trust", "-U", "memrl", "--no-sync")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        yield f"postgresql+psycopg://memrl@127.0.0.1:{port}"
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def uri(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with object_store("AKIDOFTHETESTS", "s3cr3t-of-the-tests") as store:
        set_environment(store, monkeypatch)
        store.buckets["bucket"] = {}
        file = tmp_path / "team.toml"
        file.write_text(f'database = "{server}/postgres"\nvectors = "s3://bucket/team"\n')
        yield str(file)
        with suppress(BankError):
            MemoryBank.open(str(file)).write.discard()


def test_two_processes_rate_one_bank_at_once_and_the_doctor_finds_it_whole(uri: str, tmp_path: Path) -> None:
    with a_chain(uri, 3) as bank:
        raters = [subprocess.Popen([sys.executable, "-c", RATER, uri, who]) for who in ("ann", "bo")]
        assert [rater.wait(timeout=300) for rater in raters] == [0, 0]
        bank.refresh()
        for who in ("ann", "bo"):
            assert len([event for event in bank.events("r") if event.rater == who]) == EACH
            bank.write.undo.undo(who)
        bank.write.commit_step(*a_step(4, ("r-0001",)))
        for query, steps in (
            (StepQuery(task="TASK 2"), [2]),
            (StepQuery(source="person", empty_pool=True), [1, 2, 3]),
            (StepQuery(reranked=True), []),
            (StepQuery(follows=True), []),
        ):
            assert bank.steps.matching("r", query) == steps
        assert [sorted(row.sources[1:]) for row in bank.steps.found("r", [1, 2, 3])] == 3 * [["ann", "bo"]]
        again = MemoryBank.open(uri)
        assert again.utilities("r") == bank.utilities("r")
        assert again.histories("r") == bank.histories("r")
        assert again.traces("r") == bank.traces("r")
        again.close()
        write_bank(bank, tmp_path / "bank.zip")
        assert list(read_bank(tmp_path / "bank.zip").events) == bank.events()
    assert [finding for finding in check(uri) if not finding.ok] == []


def test_a_database_without_tables_is_no_bank_until_one_is_made_there(uri: str) -> None:
    with pytest.raises(BankMissing):
        MemoryBank.open(uri)
    assert [(finding.name, finding.ok, finding.remedy == RESTORE) for finding in check(uri)] == [
        ("opens", False, False)
    ]
    a_bank(uri).close()
    assert all(finding.ok for finding in check(uri))


def test_a_server_that_is_gone_and_a_place_that_is_taken_are_said(uri: str, tmp_path: Path) -> None:
    a_bank(uri).close()
    with pytest.raises(NotABank):
        a_bank(uri)
    nobody = tmp_path / "nobody.toml"
    nobody.write_text('database = "postgresql+psycopg://memrl@127.0.0.1:9/x"\nvectors = "s3://bucket/team"\n')
    with pytest.raises(BankUnreachable, match="does not answer"):
        MemoryBank.open(str(nobody))
    assert [finding.remedy == RESTORE for finding in check(str(nobody))] == [False]


def test_the_bank_whose_vectors_are_lost_is_named(uri: str, tmp_path: Path) -> None:
    a_bank(uri).close()
    lost = tmp_path / "lost.toml"
    lost.write_text(Path(uri).read_text(encoding="utf-8").replace("s3://bucket/team", "elsewhere"), encoding="utf-8")
    with pytest.raises(BankDamaged, match=str(tmp_path / "elsewhere")):
        MemoryBank.open(str(lost)).memories()


def test_a_character_that_the_server_does_not_store_is_named(uri: str) -> None:
    with a_bank(uri) as bank:
        bank.write.commit_step(*a_step(1))
        row = bank.steps.rows("r")[0]
        with pytest.raises(BankError, match="NUL"):
            give_reward(bank, "r", 1, row.id, ("r-0001",), 0.5, "ann", "a\0b")
        assert [event for event in bank.events("r") if event.rater] == []


@pytest.mark.parametrize("answer", ["a\0b", r"a\u0000b"])
def test_an_answer_with_the_character_nul_is_kept_and_found(server: str, uri: str, answer: str) -> None:
    turn = Turn(Reply(answer), "", 0.0, False, False)
    trace, vectors = a_step(2, ("r-0001",))
    record = GenerateRecord("m", False, {}, (Message("user", "?"),), (), (turn,))
    with a_chain(uri, 1) as bank:
        bank.write.commit_step(replace(trace, generate=record, follows=Follows(("r-0001",))), vectors)
        answered = bank.trace("r", 2).generate
        assert answered is not None and answered.turns[0].reply.text == answer
        assert bank.steps.matching("r", StepQuery(task="task 2")) == [2]
    with create_engine(f"{server}/postgres").connect() as tables:
        followed = tables.exec_driver_sql("SELECT follows FROM steps ORDER BY step").scalars()
        assert [*followed] == [None, '["r-0001"]']
    assert [finding for finding in check(uri) if not finding.ok] == []
