"""The screen Step."""
