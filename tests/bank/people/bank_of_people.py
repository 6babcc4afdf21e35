"""A bank in which people have done everything that people can do."""

from __future__ import annotations

from pathlib import Path

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import NEWCOMERS, Role
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.learning.scales import RatingScales
from tests.builders import DIMENSION, a_bank, a_run, a_step

EMBEDDER = HashingEmbedder(DIMENSION)
ONE, TWO, THREE, FOUR = (f"r-{n:04d}" for n in range(1, 5))


def a_bank_of_people(path: Path) -> MemoryBank:
    """Runs "r" and "s" of four steps each, with an event of every kind that a person can bring about; Ann manages.

    In the end "r" sees memories 1 (pinned), 4 and "r-0003.2"; 2 is merged away with 3, and its rewording was undone.
    """
    bank = a_bank(path)
    bank.write.start_run(a_run("s"))
    for run in ("r", "s"):
        for step in range(1, 5):
            bank.write.commit_step(*a_step(step, tuple(f"{run}-{n:04d}" for n in range(1, step)), 1.0, run))
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign(NEWCOMERS, Role.RATE, "ann", "from now on")
    bank.write.ratings.change_scales("r", RatingScales(scale="stars"), "ann")
    bank.write.editing.pin("r", [ONE, TWO], "ann", "keep")
    bank.write.editing.unpin("r", [TWO], "ann")
    bank.write.editing.edit("r", TWO, "boil an egg", "boil it well", EMBEDDER, "ann", "clearer")
    bank.write.undo.undo("ann")
    bank.write.editing.forget("r", [FOUR], "ann")
    bank.write.editing.restore("r", [FOUR], "ann")
    bank.write.editing.merge("r", [TWO, THREE], "task 3", "both", EMBEDDER, "ann")
    bank.write.undo.undo("ann")
    bank.write.undo.redo("ann")
    bank.write.ratings.rate_pair(("r", 3), ("s", 3), "first", "bob", "better told")
    bank.write.ratings.rate(Rating("r", 4, -1.0, "bob"))
    mine = bank.ratings.mine("r", 4, "bob")
    bank.write.ratings.revoke(mine.id, "ann")
    bank.write.undo.undo("ann")
    bank.write.commit_step(*a_step(5, (ONE, "r-0002.3"), -1.0))
    return bank
