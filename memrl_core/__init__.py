"""The core of MemRL Inspector: everything that works without a screen."""

__version__ = "0.2.0"
