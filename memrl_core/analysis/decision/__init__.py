"""One decision: what was recalled and selected, why, and what would have changed it."""
