"""Figures of memories and their q."""
