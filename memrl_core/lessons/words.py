"""The words of the page Lessons: one file, so that a translation is a file."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from memrl_core.lessons.lesson import Text
from memrl_core.toml_files import read_model


class Words(BaseModel):
    """Every text of the page that is not a lesson's. Names in braces are replaced by numbers and names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # the list
    heading: Text
    introduction: Text
    score: Text
    no_score: Text
    begin: Text
    go_on: Text
    read_again: Text
    minutes: Text
    pages_seen: Text
    finished: Text
    write_own: Text
    write_own_how: Text
    scene_kind: Text
    scene_settings: Text
    scene_values: Text
    file_troubles: Text
    unknown_lesson: Text
    unknown_page: Text
    # a lesson
    claim: Text
    predict: Text
    do: Text
    reveal: Text
    notice: Text
    back: Text
    next: Text
    next_lesson: Text
    all_lessons: Text
    your_prediction: Text
    prediction_kept: Text
    prediction_locked: Text
    right: Text
    wrong: Text
    you_said: Text
    answer_was: Text
    checks: Text
    hint: Text
    closed: Text
    go_there: Text
    start_again: Text
    cleared: Text
    undo: Text
    present: Text
    leave_presenting: Text
    # the scenes
    pick_memory: Text
    intent: Text
    experience: Text
    same_words: Text
    embedding: Text
    outcome: Text
    q: Text
    visits: Text
    memory: Text
    similarity: Text
    given_to_model: Text
    nothing_given: Text
    weight: Text
    delta: Text
    k2: Text
    alpha: Text
    give_reward: Text
    take_back: Text
    rewards_so_far: Text
    updates_to_half: Text
    start_twins: Text
    play_epoch: Text
    playing: Text
    stop: Text
    shift: Text
    twins_done: Text
    shifted_at: Text
    accuracy: Text
    csr: Text
    forgotten: Text


def read_words(path: Path) -> Words:
    """The words in a TOML file. Raises `InputError` with file, line and key for one that is missing or unknown."""
    return read_model(path, Words)


def filled(text: str, **values: object) -> str:
    """`text` with the names in braces replaced; nothing else in it is acted on, whoever wrote it.

    Two texts that hold no picture can make one where they meet: “!{choice}” and “[x](address)”.
    """
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text.replace("![", "!\\[")
