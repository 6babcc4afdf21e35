"""The screen Steps."""
