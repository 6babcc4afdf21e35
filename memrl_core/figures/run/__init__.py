"""Figures of a whole run."""
