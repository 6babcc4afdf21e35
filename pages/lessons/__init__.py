"""The screen Lessons."""
