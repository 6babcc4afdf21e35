"""The screen Home."""
