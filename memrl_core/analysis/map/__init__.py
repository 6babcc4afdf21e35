"""The frozen map of memories."""
