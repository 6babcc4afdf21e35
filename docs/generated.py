"""The site's pages that are made of the program: its commands and its methods. A hook of mkdocs."""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

CARD = ("record", "when", "recall", "select", "update", "write", "forget", "cannot", "carries_over")


def on_files(files: Any, config: Any) -> Any:
    """The files of the site with the generated ones."""
    from mkdocs.structure.files import File

    for path, text in (("reference/commands.md", commands()), ("reference/methods.md", methods())):
        files.append(File.generated(config, path, content=text))
    return files


def commands() -> str:
    """Every command of `memrl` with its arguments and options, in Markdown."""
    command = [sys.executable, "-m", "typer", "memrl_core.cli.main", "utils", "docs", "--name", "memrl"]
    written = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return html.unescape(written).replace("# `memrl`", "# Commands", 1)


def methods() -> str:
    """The card and the settings of each method, in Markdown."""
    from memrl_core.policies import POLICIES, policy_class
    from memrl_core.policies.base import BADGES, RULES
    from memrl_core.settings import allowed

    badges = "\n".join(f"- *{'official code' if name == 'code' else name}*: {text}" for name, text in BADGES.items())
    parts = ["# Methods", "`memrl policies NAME` prints the same.", badges, RULES]
    for name in POLICIES:
        policy = policy_class(name)
        spec = policy.spec
        parts += [f"## {spec.title}", f"`{name}` · *{spec.variant}* · {spec.citation}", spec.idea]
        parts += ["\n".join(f"- **{part.replace('_', ' ').capitalize()}.** {getattr(spec, part)}" for part in CARD)]
        if spec.deviations:
            parts += ["Where it differs from its source:", "\n".join(f"- {sentence}" for sentence in spec.deviations)]
        fields = [(key, field) for key, field in policy.Settings.model_fields.items() if key not in policy.ignored]
        rows = [(f"`{key}`", str(field.default), allowed(field), field.description or "") for key, field in fields]
        lines = [("setting", "default", "allowed", "what it is"), ("---",) * 4, *rows]
        parts += ["\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)]
    return "\n\n".join(parts) + "\n"
