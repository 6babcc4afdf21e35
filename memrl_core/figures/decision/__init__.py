"""Figures of one decision."""
