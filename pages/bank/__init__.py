"""The screen Bank."""
