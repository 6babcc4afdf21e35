"""A bank: facts in SQLite or PostgreSQL, memories in LanceDB."""

from memrl_core.bank.bank import MemoryBank
from memrl_core.bank.identity import EmbedderIdentity
from memrl_core.bank.storage.codec import StepRow
from memrl_core.bank.storage.layouts import Layout

__all__ = ["EmbedderIdentity", "Layout", "MemoryBank", "StepRow"]
