"""Ids of memories come from files, too: no figure takes anything in them for markup."""

from __future__ import annotations

from memrl_core.analysis.decision.labels import memory_label

EVIL = "<a href='https://other.example'>x</a> <b>y</b> %{customdata[0]} <extra>z</extra>"
MARKS = ("<a href", "</a>", "<b>y", "%{customdata[0]} ", "<extra>z")


def test_a_foreign_id_is_read_as_it_was_written_and_is_no_markup() -> None:
    label = memory_label(EVIL, "r")
    assert label.replace("\u2060", "") == EVIL
    assert not [mark for mark in MARKS if mark in label]
