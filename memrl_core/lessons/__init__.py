"""Lessons: short sequences of pages that a teacher writes as TOML files, each around a scene of the running program."""
