"""Memories, traces and the ledger in one LanceDB database."""

from memrl_core.bank.bank import EmbedderIdentity, Layout, MemoryBank, StepRow

__all__ = ["EmbedderIdentity", "Layout", "MemoryBank", "StepRow"]
