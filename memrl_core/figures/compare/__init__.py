"""Figures of runs and methods side by side."""
