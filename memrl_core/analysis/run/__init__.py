"""A whole run: how well it went, what its method learned, and what theory says."""
