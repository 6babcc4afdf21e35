"""The screen Playground."""
