"""Runs side by side, and a run beside what it would have been."""
