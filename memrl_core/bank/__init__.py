"""Memories, traces and the ledger in one LanceDB database."""

from memrl_core.bank.bank import EmbedderIdentity, MemoryBank
from memrl_core.bank.knowledge import StepRow
from memrl_core.bank.layouts import Layout

__all__ = ["EmbedderIdentity", "Layout", "MemoryBank", "StepRow"]
