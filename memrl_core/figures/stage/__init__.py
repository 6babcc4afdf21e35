"""The stage: one recorded step as a picture that plays in a browser, in the app and in a file of its own."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from memrl_core.analysis.decision.labels import FUNCTION_WORDS
from memrl_core.figures.stage.data import Known, StageSource, known_of_run, nearest_memories, stage_data, stage_update

__all__ = [
    "Known",
    "StageSource",
    "known_of_run",
    "nearest_memories",
    "stage_data",
    "stage_script",
    "stage_style",
    "stage_update",
]

_HERE = Path(__file__).parent
_MODULES = ("dom.js", "phase_b.js", "model.js", "memory_map.js", "q_axis.js", "ranks.js", "stage.js")
_IMPORT = re.compile(r"^import .* from \"\./.*\";\n", re.MULTILINE)


@cache
def stage_script() -> str:
    """The stage's JavaScript as one module, which exports `mountStage(element, data, callbacks)`."""
    words = f"const FUNCTION_WORDS = new Set({json.dumps(sorted(FUNCTION_WORDS))});"
    return "\n".join((words, *(_IMPORT.sub("", (_HERE / name).read_text(encoding="utf-8")) for name in _MODULES)))


@cache
def stage_style() -> str:
    """The stage's CSS."""
    return (_HERE / "stage.css").read_text(encoding="utf-8")
