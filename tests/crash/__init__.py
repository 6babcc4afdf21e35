"""Processes that are killed, or share a bank, and a computation of what must be left."""
