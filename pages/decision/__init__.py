"""The screen Decision."""
