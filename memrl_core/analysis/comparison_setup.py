"""How compared runs were set up: what makes their difference hard to read, and which settings differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memrl_core.analysis.alignment import Alignment, Line, parted_after
from memrl_core.bank import MemoryBank
from memrl_core.policies import settings_fields_of
from memrl_core.records import RunInfo


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that is not the same in all lines, as text a line; "0.5; 0.7 from step 12" where it was changed."""

    name: str
    title: str
    values: tuple[str, ...]


_CONDITIONS: tuple[tuple[str, Callable[[RunInfo], str], str], ...] = (
    ("environment", lambda run: run.environment, "they did not act in the same world"),
    ("set of tasks", lambda run: run.tasks or "typed by a person", "only the tasks that both met are compared"),
    ("embedder", lambda run: run.embedder, "similarities cannot be compared"),
    (
        "model",
        lambda run: f"{run.model} {str(run.model_facts.get('digest', ''))[:12]}".strip(),
        "other answers may be the model's doing",
    ),
    ("seed", lambda run: str(run.seed), "luck was not the same"),
    ("policy", lambda run: run.policy, "they did not select by the same rules"),
    (
        "environment options",
        lambda run: ", ".join(f"{k} = {v}" for k, v in sorted(run.environment_options.items())) or "none",
        "the world did not behave alike",
    ),
    (
        "model options",
        lambda run: ", ".join(f"{k} = {v}" for k, v in sorted(run.model_options.items())) or "none",
        "other answers may be the model's doing",
    ),
    (
        "reward scale",
        lambda run: f"{_text(run.settings.get('reward_failure'))} to {_text(run.settings.get('reward_success'))}",
        "rewards and q are not in the same unit",
    ),
)


def setup_warnings(alignment: Alignment) -> list[str]:
    """One sentence for each condition other than the settings that the lines do not share."""
    lines = alignment.lines
    found = []
    for line in range(1, len(lines)):
        if alignment.reordered(line):
            found.append(
                f"{lines[0].name} and {lines[line].name} met the tasks in another order: they knew other memories when "
                "they came to the same task."
            )
    for what, read, consequence in _CONDITIONS:
        values = [read(line.info) for line in lines]
        if len(set(values)) > 1:
            said = ", ".join(f"{line.name}: {value}" for line, value in zip(lines, values, strict=True))
            found.append(f"The runs differ in {what} ({said}): {consequence}.")
    starts = [_start(line.info, {other.info.id: other.info for other in lines}) for line in lines]
    if len(set(starts)) > 1 and not alignment.past:
        said = ", ".join(f"{line.name}: {start}" for line, start in zip(lines, starts, strict=True))
        found.append(f"They did not start from the same memory ({said}).")
    return found


def _start(info: RunInfo, known: Mapping[str, RunInfo]) -> str:
    if info.base is None:
        return "empty"
    base = known.get(info.base)
    if base is not None and info.base_step < base.first_step:
        return _start(base, known)
    return f"what {info.base} knew after step {info.base_step}"


def setting_differences(
    bank: MemoryBank, lines: Sequence[Line], supposed: Mapping[str, Mapping[str, Any]] | None = None
) -> list[SettingDifference]:
    """The settings in which the lines differ, over the steps that they do not share.

    `supposed` gives what is changed in lines that were only supposed, by name.
    """
    begin = min((parted_after(lines[0], line) for line in lines[1:]), default=0)
    courses = [
        [(first, {**own, **(supposed or {}).get(line.name, {})}) for first, own in _course(bank, line, begin)]
        for line in lines
    ]
    fields = [settings_fields_of(line.info.policy) for line in lines]
    titles = {name: field.title or name for known in fields for name, field in known.items()}
    names = dict.fromkeys([*titles, *(name for course in courses for _, settings in course for name in settings)])
    found = []
    for name in names:
        values = tuple(_told(course, name) for course in courses)
        if len(set(values)) > 1:
            found.append(SettingDifference(name, titles.get(name, name), values))
    return found


def _course(bank: MemoryBank, line: Line, after: int) -> list[tuple[int, Mapping[str, Any]]]:
    """The settings of every step of a line that comes after step `after`; without such a step, those of its run now."""
    course = [(step.step, bank.settings(step.run, step.step)) for step in line.steps if step.step > after]
    return course or [(1, bank.settings(line.info.id))]


def _told(course: Sequence[tuple[int, Mapping[str, Any]]], name: str) -> str:
    parts: list[str] = []
    last = None
    for first_step, settings in course:
        value = settings.get(name)
        if not parts:
            parts.append(_text(value))
        elif value != last:
            parts.append(f"{_text(value)} from step {first_step}")
        last = value
    return "; ".join(parts)


def _text(value: Any) -> str:
    return "not set" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)
