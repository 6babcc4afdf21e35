"""Labels of memories that were edited, merged or forgotten since: each is kept, with the text it was given for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.editing import Gone
from memrl_core.bank.people.judgements import Label
from memrl_core.numerals import counted


def changed_since(bank: MemoryBank, run: str, labels: Iterable[Label]) -> list[tuple[Label, Gone]]:
    """Of these labels of a run those whose memory went since they were given, with what became of it."""
    about = [label for label in labels if label.run == run and label.memory_id and label.grade is not None]
    gone = bank.editing.gone(run) if about else {}
    return [
        (label, gone[label.memory_id])
        for label in about
        if label.memory_id in gone and gone[label.memory_id].when > label.created
    ]


def changed_sentence(changed: Iterable[tuple[Label, Gone]]) -> str:
    """How many labels are of memories that changed since, and how many texts are to be labelled anew; "" for none."""
    listed = list(changed)
    if not listed:
        return ""
    ways = Counter(gone.how for _, gone in listed)
    how = ", ".join(f"{count:,} {way}" for way, count in ways.most_common())
    anew = len({(label.step, gone.now) for label, gone in listed if gone.now})
    asked = f" Label asks anew for {counted(anew, 'new text')}." if anew else ""
    are = "is of a memory that was" if len(listed) == 1 else "are of memories that were"
    return (
        f"{counted(len(listed), 'label')} {are} changed since ({how}): kept, with the text of then, and counted for "
        f"the steps of then.{asked}"
    )
