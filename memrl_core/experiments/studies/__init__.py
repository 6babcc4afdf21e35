"""Experiments that are more than arms on streams of tasks: learned here, used there; one bank for several methods."""
