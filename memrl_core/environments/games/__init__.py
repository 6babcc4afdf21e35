"""Text games behind an extra: an engine in a child process, one file a game."""
