"""Tasks that a person pastes into the playground: short texts in groups, which become its families.

Nothing of them is trusted: they are shown as text, and reach no file and no model but the table of word vectors.
"""

from __future__ import annotations

from memrl_core.errors import InputError

FEWEST, MOST = 8, 40
FEWEST_GROUPS, MOST_GROUPS = 2, 8
LONGEST_TEXT, LONGEST_NAME = 120, 24
LONGEST = 6000
"""Characters of all that is pasted."""
UNCHANGED = "The tasks stay as they were."

Groups = tuple[tuple[str, tuple[str, ...]], ...]
"""Each group's name and its texts."""


def groups_of(pasted: str) -> Groups:
    """The groups of what was pasted: a text a line, a blank line between groups; a line that begins with # names one.

    Raises `InputError` where they are too many or too few, a text is too long, or one stands there twice.
    """
    if len(pasted) > LONGEST:
        raise InputError(f"That is {len(pasted):,} characters, and at most {LONGEST:,} can be used. {UNCHANGED}")
    groups: list[tuple[str, list[str]]] = []
    begin = True
    for line in (" ".join(line.split()) for line in pasted.splitlines()):
        if line.startswith("#"):
            groups.append((line.strip("# ")[:LONGEST_NAME], []))
            begin = False
        elif not line:
            begin = not groups or bool(groups[-1][1])
        else:
            if begin or not groups:
                groups.append(("", []))
            groups[-1][1].append(line)
            begin = False
    found = [(name or f"Group {number}", tuple(texts)) for number, (name, texts) in enumerate(groups, 1) if texts]
    _must_fit(found)
    return tuple(found)


def _must_fit(groups: list[tuple[str, tuple[str, ...]]]) -> None:
    texts = [text for _, some in groups for text in some]
    if not FEWEST <= len(texts) <= MOST:
        are = "is 1 text" if len(texts) == 1 else f"are {len(texts)} texts"
        raise InputError(f"There {are}; give {FEWEST} to {MOST}, one a line. {UNCHANGED}")
    if not FEWEST_GROUPS <= len(groups) <= MOST_GROUPS:
        are = "is 1 group" if len(groups) == 1 else f"are {len(groups)} groups"
        raise InputError(
            f"There {are}; give {FEWEST_GROUPS} to {MOST_GROUPS}, with a blank line between them. {UNCHANGED}"
        )
    if too_long := [text for text in texts if len(text) > LONGEST_TEXT]:
        raise InputError(
            f"“{too_long[0][:30]}…” has {len(too_long[0])} characters; a text has at most {LONGEST_TEXT}. {UNCHANGED}"
        )
    if twice := [text for number, text in enumerate(texts) if text in texts[:number]]:
        raise InputError(f"“{twice[0][:60]}” stands there twice. Take one of them out. {UNCHANGED}")
