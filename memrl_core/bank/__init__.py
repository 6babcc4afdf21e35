"""Memories, traces and the ledger in one LanceDB database."""

from memrl_core.bank.bank import EmbedderIdentity, MemoryBank, StepRow

__all__ = ["EmbedderIdentity", "MemoryBank", "StepRow"]
