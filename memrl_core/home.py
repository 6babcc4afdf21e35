"""The folder of this person's banks, task files and preferences."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`MEMRL_HOME` decides it; without it, it is `.memrl` in the home folder."""
    return Path(os.environ.get("MEMRL_HOME") or Path.home() / ".memrl")
