"""A bank with its vectors on an S3-compatible store: it works as a folder does, and no key is shown or stored."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.storage import addresses
from memrl_core.bank.storage.addresses import shown
from memrl_core.errors import BankMissing, BankUnreachable, MemRLError, NotABank, RunMoved
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.bring_in import bring_in, read_any
from tests.builders import a_bank, a_run, a_step
from tests.cli.conftest import memrl
from tests.object_store import ObjectStore, object_store, set_environment

ACCESS_KEY, SECRET = "AKIDOFTHETESTS", "s3cr3t-of-the-tests"
BUCKET = "bank-bucket"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store(ACCESS_KEY, SECRET) as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectStore:
    """The server with one empty bucket, and an environment in which it is the only store there is."""
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "160")
    set_environment(server, monkeypatch)
    server.buckets.clear()
    server.buckets[BUCKET] = {}
    server.requests.clear()
    server.is_closed_to_writers = False
    return server


@pytest.fixture
def uri(store: ObjectStore, tmp_path: Path) -> str:
    return named(tmp_path, f"s3://{BUCKET}/some/bank")


def named(folder: Path, vectors: str) -> str:
    """The TOML file of a bank with its facts in this folder and its vectors at an address."""
    file = folder / "team.toml"
    file.write_text(f'database = "team.db"\nvectors = "{vectors}"\n')
    return str(file)


def q_of(bank: MemoryBank, run: str = "r") -> dict[str, float]:
    return {memory_id: utility.q for memory_id, utility in bank.utilities(run).items()}


def must_not_tell(*texts: str) -> None:
    for text in texts:
        assert SECRET not in text and ACCESS_KEY not in text


# --- it works ---------------------------------------------------------------------------------------------------------


def test_what_was_written_is_there_after_reopening(uri: str) -> None:
    with a_bank(uri) as bank:
        bank.write.commit_step(*a_step(1))
        bank.write.commit_step(*a_step(2, credited=("r-0001",)))
        before = q_of(bank)
    with MemoryBank.open(uri) as again:
        assert q_of(again) == before
        assert before["r-0001"] > 0
        assert [row.step for row in again.steps.rows("r")] == [1, 2]


@pytest.mark.slow
def test_the_command_line_makes_goes_on_with_and_checks_it(uri: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "memrl_core.cli.main", "run", "--bank", uri, "--tasks", "4", "--run", "one"],
        capture_output=True,
        text=True,
    )
    must_not_tell(process.stdout, process.stderr)
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    for words in (["run", "--tasks", "3", "--run", "two", "--base", "one"], ["doctor"], ["show", "2"]):
        status, message = memrl(*words, "--bank", uri)
        must_not_tell(message)
        assert status == 0, message
    with MemoryBank.open(uri) as bank:
        assert [len(bank.steps.rows(run)) for run in ("one", "two")] == [4, 3]


def test_two_writers_lose_nothing(uri: str) -> None:
    bank = a_bank(uri)
    bank.write.start_run(a_run("other"))
    other = MemoryBank.open(uri)
    for step in range(1, 6):
        bank.write.commit_step(*a_step(step))
        other.write.commit_step(*a_step(step, run="other"))
    with pytest.raises(RunMoved):
        other.write.commit_step(*a_step(1))
    bank.close()
    other.close()
    assert all(finding.ok for finding in check(uri))
    with MemoryBank.open(uri) as again:
        assert len(again.steps.rows("r")) == len(again.steps.rows("other")) == 5


def test_closing_joins_what_many_appends_left(uri: str, store: ObjectStore) -> None:
    bank = a_bank(uri)
    for step in range(1, 9):
        bank.write.commit_step(*a_step(step))
    bank.close()
    database = addresses.connect(f"s3://{BUCKET}/some/bank")
    table = database.open_table("memories")
    assert (table.count_rows(), table.stats()["fragment_stats"]["num_fragments"]) == (8, 1)


def test_a_bank_goes_through_an_archive_and_back(uri: str, tmp_path: Path) -> None:
    with a_bank(uri) as bank:
        bank.write.commit_step(*a_step(1))
        bank.write.commit_step(*a_step(2, credited=("r-0001",)))
        before = q_of(bank)
        write_bank(bank, tmp_path / "bank.zip")
    (tmp_path / "other").mkdir()
    other = named(tmp_path / "other", f"s3://{BUCKET}/other")
    bring_in(read_any(tmp_path / "bank.zip"), other)
    with MemoryBank.open(other) as copy:
        assert q_of(copy) == before


@pytest.fixture
def made(uri: str, store: ObjectStore) -> str:
    """A bank that is there; nobody was asked for it since."""
    a_bank(uri).close()
    store.requests.clear()
    return uri


# --- it says what is wrong --------------------------------------------------------------------------------------------


def refusal(uri: str) -> str:
    """The sentence that opening a bank that is there ends with; fails when it tells a key or a foreign text."""
    with pytest.raises(BankUnreachable) as caught:
        MemoryBank.open(uri)
    error = caught.value
    assert error.__cause__ is None
    must_not_tell(str(error), "".join(traceback.format_exception(error)))
    assert "RetryError" not in "".join(traceback.format_exception(error))
    return str(error)


def test_nothing_there_is_a_missing_bank(uri: str) -> None:
    with pytest.raises(BankMissing, match=f"no bank at {uri}"):
        MemoryBank.open(uri)


def test_something_else_there_is_no_bank_and_stays(uri: str, store: ObjectStore, tmp_path: Path) -> None:
    a_bank(uri).write.commit_step(*a_step(1))
    left = dict(store.buckets[BUCKET])
    (tmp_path / "team.db").unlink()
    with pytest.raises(NotABank):
        MemoryBank.create(uri, "hashing-8", 8)
    assert store.buckets[BUCKET] == left


def test_a_missing_bucket_is_named(made: str, tmp_path: Path) -> None:
    assert "s3://nowhere/bank" in refusal(named(tmp_path, "s3://nowhere/bank"))


@pytest.mark.parametrize("name", addresses.KEYS)
def test_without_a_key_nobody_is_asked(
    made: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name)
    assert f"{name} is not set" in refusal(made)
    assert store.requests == []


def test_a_wrong_key_is_reported_as_such(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"not-{SECRET}")
    assert "keys" in refusal(made)


def test_keys_that_may_only_read_append_nothing(uri: str, store: ObjectStore) -> None:
    a_bank(uri).close()
    bank = MemoryBank.open(uri)
    store.is_closed_to_writers = True
    with pytest.raises(BankUnreachable, match="keys"):
        bank.write.commit_step(*a_step(1))
    store.is_closed_to_writers = False
    assert not MemoryBank.open(uri).steps.rows("r")


@pytest.mark.slow
def test_a_server_that_is_not_there_is_reported(
    made: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://ann:{SECRET}@127.0.0.1:9")
    assert "does not answer" in refusal(made)
    must_not_tell(*capfd.readouterr())


@pytest.mark.parametrize("address", ["ftp://host/bank", "http://host/bank", "s3://", "s3:///bank"])
def test_an_address_of_no_known_kind_is_refused(made: str, tmp_path: Path, store: ObjectStore, address: str) -> None:
    assert refusal(named(tmp_path, address))
    assert store.requests == []


def test_a_damaged_object_is_damage_and_not_a_lost_connection(uri: str, store: ObjectStore) -> None:
    with a_bank(uri) as bank:
        bank.write.commit_step(*a_step(1))
    for key in [key for key in store.buckets[BUCKET] if "/memories.lance/data/" in key]:
        del store.buckets[BUCKET][key]
    (fault,) = [finding for finding in check(uri) if not finding.ok]
    assert fault.name == "memories"
    assert "answer" not in fault.sentence and store.address not in fault.sentence


# --- it keeps the keys to itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        f"s3://{ACCESS_KEY}:{SECRET}@{BUCKET}/bank",
        f"s3://{BUCKET}/bank?X-Amz-Credential={ACCESS_KEY}&X-Amz-Signature={SECRET}",
        f"s3://{BUCKET}/bank#{SECRET}",
        f"az://{SECRET}@account/bank",
    ],
)
def test_an_address_that_carries_a_key_is_refused(made: str, tmp_path: Path, store: ObjectStore, address: str) -> None:
    uri = named(tmp_path, address)
    assert "in the environment" in refusal(uri)
    with pytest.raises(BankUnreachable):
        MemoryBank.create(uri, "hashing-8", 8)
    must_not_tell(shown(address))
    assert store.requests == []


def test_no_command_repeats_a_key_that_it_was_given(store: ObjectStore) -> None:
    address = f"s3://{ACCESS_KEY}:{SECRET}@{BUCKET}/bank"
    for words in (
        ["run", "--tasks", "1"],
        ["doctor"],
        ["show", "1"],
        ["export", "bank.zip"],
        ["merge", address, address],
    ):
        status, message = memrl(*words, "--bank", address)
        assert status == 2
        assert "ends in .toml" in " ".join(message.split())
        must_not_tell(message)


def test_no_key_is_stored_or_logged(
    uri: str, store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with a_bank(uri) as bank:
        bank.write.commit_step(*a_step(1))
        bank.write.commit_step(*a_step(2))
        store.is_closed_to_writers = True
        with pytest.raises(MemRLError):
            bank.write.commit_step(*a_step(3))
        bank._vectors.compact()
        store.is_closed_to_writers = False
    assert "put off" in caplog.text
    must_not_tell(caplog.text, *capfd.readouterr())
    assert store.address not in caplog.text
    held = [*store.buckets[BUCKET].values(), *(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())]
    assert held
    assert not any(SECRET.encode() in data or ACCESS_KEY.encode() in data for data in held)
