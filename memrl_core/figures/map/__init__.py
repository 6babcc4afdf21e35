"""The map of memories."""
