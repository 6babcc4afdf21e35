"""Cooking games of TextWorld, for the package textworld."""
