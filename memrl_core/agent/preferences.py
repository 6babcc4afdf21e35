"""What a person keeps on this machine: preferences, the folder of banks, and copies of the banks that come recorded.

`MEMRL_HOME` decides the folder; without it, it is `.memrl` in the home folder.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.addresses import ENDING, is_local
from memrl_core.bank.storage.folders import copy_bank, delete_bank, is_bank, list_banks, valid_name
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import BankMissing, BankReadOnly, InputError, NotABank, SettingsError, one_line
from memrl_core.models.base import checked_options
from memrl_core.models.ollama_client import default_address, openai_address
from memrl_core.settings import home

DEMO, REAL_DEMO = "demo", "demo-qwen"
RECORDINGS = {DEMO: "demo_bank", REAL_DEMO: "demo_qwen_bank"}
"""The banks that come recorded, and their folders in the sample data: one with the simulated model, one with a real."""


class Preferences(BaseModel):
    """What a person chose for this machine; kept in `preferences.json` in the home folder."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ollama_address: str = Field(default_factory=default_address)
    openai_address: str = Field(default_factory=openai_address)
    timeout: float = Field(60.0, ge=1, le=3600)
    rater: str = Field("", max_length=80)
    opened: dict[str, str] = Field(default_factory=dict, description="Banks outside the home folder: name to URI.")
    model_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="What new runs of a model begin with: the model's name to its options."
    )

    @field_validator("model_options")
    @classmethod
    def _usable(cls, kept: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Without what is no option of a model, as a file that was changed by hand may have."""
        usable = {}
        for model, options in kept.items():
            with suppress(SettingsError):
                usable[model] = checked_options(options)
        return usable


def banks_folder() -> Path:
    """The folder in which banks made by the app live; created when missing, where that is possible."""
    folder = home() / "banks"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def home_problem() -> str:
    """Why nothing can be stored in the home folder, as a sentence with its remedy; "" where it can be written."""
    folder = banks_folder()
    if os.access(folder, os.W_OK):
        return ""
    return (
        f"The folder {one_line(str(folder))} cannot be written, so that no bank and no preference is kept there. "
        "Looking at banks goes on, in the demo with a copy that is deleted when the program ends; set MEMRL_HOME to a "
        "folder that can be written."
    )


def load_preferences() -> Preferences:
    """The stored preferences; the defaults when there are none or they cannot be read."""
    try:
        return Preferences.model_validate_json((home() / "preferences.json").read_bytes())
    except (OSError, ValidationError):
        return Preferences()


def save_preferences(preferences: Preferences) -> None:
    """Store the preferences, whole or not at all. Raises `InputError` when the folder cannot be written."""
    target = home() / "preferences.json"
    draft = target.with_suffix(".draft")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # What nobody chose stays open, so that OLLAMA_HOST goes on deciding it.
        draft.write_text(preferences.model_dump_json(indent=1, exclude_unset=True))
        draft.replace(target)
    except OSError as error:
        raise InputError(
            f"The preferences could not be saved ({error.strerror}). They stay in force until the app ends; make "
            f"{target.parent} writable, or set MEMRL_HOME to another folder, to keep them."
        ) from None


def keep_options(model: str, options: Mapping[str, Any]) -> None:
    """Begin every new run of `model` on this machine with these options, in place of earlier ones.

    Raises `SettingsError` for what is no option, and `InputError` where the preferences cannot be written.
    """
    preferences = load_preferences()
    kept = {name: known for name, known in preferences.model_options.items() if name != model}
    if usable := checked_options(options):
        kept[model] = usable
    save_preferences(preferences.model_copy(update={"model_options": kept}))


def remember_bank(uri: str) -> str:
    """The name by which a bank goes here, which no other has; the address of one outside the home folder is kept.

    Raises `InputError` when its last part cannot be a name, or the preferences cannot be written.
    """
    preferences = load_preferences()
    here = {summary.name for summary in list_banks(banks_folder())}
    if Path(uri).parent == banks_folder().resolve() and Path(uri).name in here:
        return Path(uri).name
    for name, kept in preferences.opened.items():
        if kept == uri and name not in here:
            return name
    wanted = valid_name(Path(uri.rstrip("/")).name.removesuffix(ENDING))
    taken = here | preferences.opened.keys()
    name = wanted if wanted not in taken else next(n for i in count(2) if (n := f"{wanted}-{i}") not in taken)
    save_preferences(preferences.model_copy(update={"opened": {**preferences.opened, name: uri}}))
    return name


def demo_bank(name: str = DEMO) -> Path:
    """The person's own copy of one of `RECORDINGS`; made from the recorded one when it is not there.

    Where the home folder cannot be written, it is one for this process alone. Raises `BankMissing` when this
    installation came without the recording.
    """
    target = banks_folder() / name
    if not is_bank(target) and home_problem():
        return _passing_copy(name)
    if not target.exists():
        try:
            copy_bank(_recording(name), target)
        except NotABank:
            if not target.exists():
                raise
            # Another browser or process has made it meanwhile.
    return target


@cache
def _passing_copy(name: str) -> Path:
    """A copy of a recorded bank that is deleted when the program ends. Raises `BankReadOnly`."""
    try:
        folder = Path(mkdtemp(prefix="memrl-"))
    except OSError as error:
        raise BankReadOnly(f"{home_problem()} Nor can the folder for temporary files ({error.strerror}).") from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy_bank(_recording(name), folder / name)
    return folder / name


def reset_demo_bank(name: str = DEMO) -> Path:
    """Put a recorded bank back; what was added to the copy is lost. Raises as `demo_bank` does."""
    source, target = _recording(name), banks_folder() / name
    if target.exists():
        delete_bank(target)
    copy_bank(source, target)
    return target


def _recording(name: str) -> Path:
    source = sample_data_path() / RECORDINGS[name]
    if not source.is_dir():
        raise BankMissing("The recorded demo bank is not part of this installation. Start a live run instead.")
    return source


def discard_bank(uri: str) -> None:
    """Delete a bank that lies anywhere."""
    if is_local(uri):
        delete_bank(Path(uri))
    else:
        MemoryBank.open(uri).write.discard()
