"""The screen Tasks."""
