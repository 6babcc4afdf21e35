"""The doctor's look at a bank: every damage is found, named and given a remedy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memrl_core.bank import MemoryBank, codec, knowledge
from memrl_core.bank.integrity import check
from memrl_core.bank.store import Store
from memrl_core.errors import BankDamaged
from tests.builders import a_bank, a_step, a_vector


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    with a_bank(tmp_path / "bank") as made:
        for step in range(1, 6):
            made.commit_step(*a_step(step, credited=(f"r-{step - 1:04d}",) if step > 1 else ()))
    return tmp_path / "bank"


def problems(path: Path) -> dict[str, str]:
    findings = check(str(path))
    assert all(finding.remedy for finding in findings if not finding.ok)
    return {finding.name: finding.sentence for finding in findings if not finding.ok}


def test_a_whole_bank_has_nothing_amiss(bank: Path) -> None:
    assert problems(bank) == {}
    assert any("agrees with it" in finding.sentence for finding in check(str(bank)))


def test_nothing_at_the_place_is_said(tmp_path: Path) -> None:
    assert "There is no bank" in problems(tmp_path / "nothing")["opens"]


@pytest.mark.parametrize("table", ["memories", "ledger", "steps", "q_values"])
def test_a_garbled_table_is_named_and_the_others_are_still_read(bank: Path, table: str) -> None:
    for file in (bank / f"{table}.lance" / "data").iterdir():
        file.write_bytes(b"garbage" * 10)
    found = problems(bank)
    assert f"table {table}" in found
    others = {"memories", "ledger", "steps", "q_values"} - {table}
    assert not any(f"table {name}" in found for name in others)


def test_a_table_that_is_gone_is_said(bank: Path) -> None:
    shutil.rmtree(bank / "steps.lance")
    assert "steps" in problems(bank)["opens"]


def test_an_embedding_that_is_no_unit_vector_is_named(bank: Path) -> None:
    made = a_bank(bank.with_name("odd"))
    trace, vectors = a_step(1)
    made._known.mirror.checked = lambda vector: vector.astype(np.float32)  # type: ignore[method-assign]
    made.commit_step(trace, {memory_id: 3 * vector for memory_id, vector in vectors.items()})
    made.close()
    assert "r-0001" in problems(bank.with_name("odd"))["embeddings"]


def test_a_ledger_that_names_a_missing_memory_is_said(bank: Path) -> None:
    made = a_bank(bank.with_name("odd"))
    made.commit_step(*a_step(1, credited=("nobody",)))
    made.close()
    assert "nobody" in problems(bank.with_name("odd"))["references"]


def test_steps_that_never_ended_are_counted_and_do_no_harm(bank: Path) -> None:
    made = a_bank(bank.with_name("open"))
    made.begin_step("r", 1)
    made.give_reward("r", 1, "an-attempt", (), 1.0, "ann")
    made.close()
    assert problems(bank.with_name("open")) == {}
    assert any("1 steps began" in finding.sentence for finding in check(str(bank.with_name("open"))))


def said(path: Path, name: str) -> str:
    return next(finding.sentence for finding in check(str(path)) if finding.name == name)


def test_memories_of_no_run_and_parents_that_are_not_there_are_named(bank: Path) -> None:
    with MemoryBank.open(str(bank)) as opened:
        stray = replace(opened.memory("r-0001"), id="stray", parents=("gone",))
        opened.adopt({"stray": (stray, a_vector(77))}, [], [])
    assert "stray" in said(bank, "orphans")
    assert "gone" in said(bank, "parents")
    assert problems(bank) == {}


def test_an_empty_place_among_the_parents_is_no_parent(bank: Path) -> None:
    with MemoryBank.open(str(bank)) as opened:
        memory = replace(opened.memory("r-0001"), id="other", parents=("gone",))
    row = codec.memory_row(memory, a_vector(1)) | {"parents": [None, "gone"]}
    Store.open(str(bank))[0].append("memories", [row])
    with MemoryBank.open(str(bank)) as opened:
        assert opened.memory("other").parents == ("gone",)
    assert "gone" in said(bank, "parents")


@pytest.mark.parametrize(
    ("table", "odd"),
    [("steps", {"step": 2**53}), ("ledger", {"step": 2**53}), ("ledger", {"known_at": -(2**53)}),
     ("ledger", {"value": float("-inf")})],
)  # fmt: skip
@pytest.mark.parametrize("many", [1, 10**9])
def test_a_number_that_cannot_be_is_said_at_once(
    bank: Path, table: str, odd: dict[str, float], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = Store.open(str(bank))
    row = store.read(table).to_pylist()[-1]
    store.append(table, [row | {"id": "far"} | odd])
    monkeypatch.setattr(knowledge, "MANY", many)
    with pytest.raises(BankDamaged, match="cannot be read"):
        MemoryBank.open(str(bank))
    assert any("far" in sentence and next(iter(odd)) in sentence for sentence in problems(bank).values())


def test_a_snapshot_that_differs_names_the_memory(bank: Path) -> None:
    with MemoryBank.open(str(bank)) as opened:
        rows = opened._store.read("q_values").to_pylist()
        opened._store.overwrite(
            "q_values", [{**row, "q": 99.0} if row["memory_id"] == "r-0002" else row for row in rows]
        )
    assert "differs for 1: r-0002" in said(bank, "utilities")


def test_a_step_whose_intent_is_no_unit_vector_is_named(tmp_path: Path) -> None:
    with a_bank(tmp_path / "odd") as made:
        trace, vectors = a_step(1)
        assert trace.embed is not None
        odd = replace(trace, embed=replace(trace.embed, embedding=tuple(3 * x for x in trace.embed.embedding)))
        made.commit_step(odd, vectors)
    assert trace.id in problems(tmp_path / "odd")["intents"]
