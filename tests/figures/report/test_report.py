"""Reports: one file that says everything, loads nothing and lets no foreign text act."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

from memrl_core.agent.recorder import Recorder
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.figures.picture import Picture
from memrl_core.figures.report.document import Document, Passage, picture_report, write_report
from memrl_core.figures.report.step import step_report
from tests.builders import a_bank, a_step, a_vector, an_agent_after

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=hacked()>\u2028'\"&lt;=1+1"


class Parsed(HTMLParser):
    """A document as a browser takes it apart."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._within: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            while self._within.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._within and self._within[-1] == "script":
            self.scripts.append(data)
        elif not self._within or self._within[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return "".join(self.text)


def loads_nothing(html: str) -> None:
    """No part of a document asks for anything from elsewhere, and its policy forbids it."""
    parsed = Parsed(html)
    for tag, attributes in parsed.tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}
        assert not {"src", "href", "action", "data"} & attributes.keys(), tag
        assert not any(name.startswith("on") for name in attributes), tag
    policies = [a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies and "default-src 'none'" in str(policies[0])


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBank]:
    with an_agent_after(tmp_path_factory.mktemp("banks") / "bank", 16, run="mine").bank as bank:
        yield bank


def test_a_step_is_told_from_its_task_to_its_memory(bank: MemoryBank) -> None:
    trace = bank.trace("mine", 14)
    assert trace.decision
    words = Parsed(step_report(bank, "mine", 14)).words
    assert trace.task.intent in words
    assert "SIMULATED" in words
    for message in trace.generate.messages:
        assert message.content.split("\n")[0] in words
    for turn in trace.generate.turns:
        assert turn.reply.text in words
    for change in trace.update.changes:
        assert f"{change.after:+.3f}".replace("-", "−") in words
    assert trace.write.operations[0].experience in words
    for flip in spectrum(trace.decision).flips:
        assert f"{flip.weight:.3f}" in words


def test_nothing_is_loaded_from_anywhere(bank: MemoryBank) -> None:
    loads_nothing(step_report(bank, "mine", 14))


def test_foreign_text_stays_text_wherever_it_stands(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        trace, vectors = a_step(1)
        operation = replace(trace.write.operations[0], intent=HOSTILE, experience=HOSTILE)
        reported = replace(
            trace,
            task=replace(trace.task, intent=HOSTILE, id=HOSTILE),
            write=replace(trace.write, operations=(operation,)),
            settings={"weight": HOSTILE},
            lacks=(HOSTILE,),
            origin="import",
        )
        bank.write.commit_step(reported, vectors)
        bank.write.notes.pin("r", 1, HOSTILE, HOSTILE)
        html = step_report(bank, "r", 1)
    parsed = Parsed(html)
    assert "window.hacked=1" in parsed.words
    assert not any("hacked" in script for script in parsed.scripts)
    assert not any(tag == "img" for tag, _ in parsed.tags)


def test_a_figure_with_foreign_text_cannot_end_its_block() -> None:
    figure = go.Figure(go.Scatter(x=[1], y=[1], text=[HOSTILE], name=HOSTILE))
    html = picture_report(Picture(figure, pd.DataFrame({HOSTILE: [HOSTILE]}), HOSTILE, HOSTILE))
    parsed = Parsed(html)
    blocks = [a for tag, a in parsed.tags if tag == "script" and a.get("type") == "application/json"]
    assert len(blocks) == 1
    assert not any(tag == "img" for tag, _ in parsed.tags)


def test_marked_passages_are_shown_letter_for_letter() -> None:
    document = Document("t")
    document.verbatim([Passage("\n a <b>"), Passage(" c ", "memory #1"), Passage("\nd")], "what was sent")
    found = re.search(r"<pre>\n(.*?)</pre>", document.html(), re.S)
    assert Parsed(found[1]).words == "\n a <b>memory #1 c \nd"


def test_a_step_that_another_agent_reported_says_what_it_does_not_tell(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        recorder = Recorder(bank, "theirs")
        with recorder.step("do it", embedding=a_vector(1)) as step:
            step.answered("done")
        words = Parsed(step_report(bank, "theirs", 1)).words
    assert "which reported it" in words and "does not report" in words
    assert "no record of what was recalled" in words


def test_a_report_is_not_written_over_another_unless_that_is_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    write_report("one", target)
    with pytest.raises(InputError, match="exists already"):
        write_report("two", target)
    assert target.read_text() == "one"
    write_report("two", target, overwrite=True)
    assert target.read_text() == "two"
