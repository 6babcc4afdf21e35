"""A home folder in which every text that is not the program's own tries to be more than text."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import NEWCOMERS, Role
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import keep, sample_data_path, sample_tasks
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.contents import Contents
from memrl_core.learning.scales import Criterion, RatingScales
from memrl_core.policies import POLICIES
from memrl_core.records import Consulted, Decision, Judgement, Message, Phase, StepTrace
from tests.analysis.many_methods import a_bank_of
from tests.browser.payloads import HOST, HTML, LATEX, MARKDOWN, ODD, PAYLOADS, PLOTLY, RUN, STREAMLIT, TEMPLATES
from tests.builders import a_run, an_agent

STEPS = 8
SHORT = tuple(" ".join(kind) for kind in (
    (PLOTLY[1], MARKDOWN[0]), (HTML[3], LATEX[0]), (PLOTLY[0], STREAMLIT[0]), (MARKDOWN[6], STREAMLIT[3], PLOTLY[2]),
))  # fmt: skip
TOGETHER = tuple(" ".join(kind) for kind in (HTML, MARKDOWN, (*STREAMLIT, *LATEX), (*PLOTLY, *TEMPLATES), ODD[:3]))
PEOPLE = {"ann": f"<img src=x onerror={RUN}> **pwnstrong**", "bob": f":red[pwnred] ![pwnimage](//{HOST}/z)"}
RUNS = {"one": f"<b>pwnbold</b> [pwnlink](//{HOST}/run) one", "two": f"__pwnstrong__ <img src=x onerror={RUN}>"}
IN_A_FILE = {"one": "__pwnstrong__", "two": "_pwnemphasis_"}
"""What an imported file may call its runs; a bank in a folder can hold any name."""
CRITERIA = (f"<img src=x onerror={RUN}>", "**pwnstrong** [pwnlink](//a)")
FOLDER = f"<img src=x onerror={RUN}> **pwnstrong**"
"""What the folder of a bank may be called by whoever put it there."""
OF_METHODS = {policy: f"<b>pwnbold</b> **pwnstrong** {policy}" for policy in POLICIES}
"""In the bank "methods", a run of each method."""

OWN = frozenset({
    "intent", "experience", "content", "text", "observation", "verdict", "expected", "came", "why", "reason", "family",
    "purpose", "reply", "note", "model", "task", "choice",
})  # fmt: skip
ELSEWHERE = OWN | {"environment", "policy", "embedder", "formula", "normaliser", "term", "tasks"}


class Spoiled:
    """Records with a payload in the place of every free text; the same text always gets the same one."""

    def __init__(self, names: Mapping[str, str], texts: frozenset[str]) -> None:
        self._names, self._texts = dict(names), texts
        self._known: dict[str, str] = {}
        self._number = count()

    def of(self, value: Any, field: str = "") -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: self.of(getattr(value, f.name), f.name) for f in fields(value)})
        if isinstance(value, Mapping):
            return {self._names.get(key, key): self.of(inner, key) for key, inner in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(self.of(inner, field) for inner in value)
        if type(value) is not str:
            return value
        if value in self._names:
            return self._names[value]
        # Memories are framed in a message by where they begin and end in it.
        return (f"{value} " if field == "content" else "") + self.text(value) if field in self._texts else value

    def text(self, instead: str = "") -> str:
        if instead not in self._known:
            number = next(self._number)
            self._known[instead] = f"{PAYLOADS[number % len(PAYLOADS)]} {TOGETHER[number % len(TOGETHER)]}"
        return self._known[instead]


def make(home: Path) -> None:
    """Fill the home folder of an app: four banks, a set of tasks and a lesson."""
    with _a_plain_bank(home / "plain") as plain:
        write_bank(plain, home / "plain.zip")
    contents = read_bank(home / "plain.zip")
    bring_in(_spoiled(contents, RUNS, OWN), str(home / "banks" / "hostile"))
    # The Lab goes on with its runs, so it needs a model that can be asked.
    bring_in(_spoiled(contents, RUNS, OWN - {"model"}), str(home / "banks" / "twins"))
    with a_bank_of(home / "of_methods", {policy: {} for policy in POLICIES}, steps=STEPS) as of_methods:
        write_bank(of_methods, home / "methods.zip")
    bring_in(_spoiled(read_bank(home / "methods.zip"), OF_METHODS, OWN), str(home / "banks" / "methods"))
    bring_in(_of_another_program(_spoiled(contents, IN_A_FILE, ELSEWHERE)), str(home / "foreign"))
    with MemoryBank.open(str(home / "foreign")) as foreign:
        write_bank(foreign, home / "foreign.zip")
    bring_in(read_bank(home / "foreign.zip"), str(home / "banks" / "foreign"))
    copy_bank(home / "banks" / "foreign", home / "banks" / FOLDER)
    _a_set_of_tasks(home)
    _a_lesson(home)


def _a_plain_bank(path: Path) -> MemoryBank:
    agent = an_agent(path, run="one", delta=0.0)
    bank = agent.bank
    bank.write.start_run(replace(a_run("two", delta=0.0, weight=0.9), embedder=bank.embedder.name))
    tasks = (sample_tasks("household-train")[:4] * 2)[:STEPS]
    for run in ("one", "two"):
        agent.run_id = run
        for _ in agent.run(tasks):
            pass
    bank.write.ratings.rate_pair(("one", 6), ("two", 6), "first", "ann", "a reason for a pair")
    bank.write.ratings.rate(Rating("one", 6, -1.0, "bob", "a reason against it"))
    bank.write.ratings.rate(Rating("one", 5, 0.5, "ann", "a reason"))
    bank.write.notes.pin("one", 6, "a note", "ann", (), ask="pair")
    bank.write.editing.edit(
        "one", bank.memory_ids()[0], "another intent", "other words", agent.embedder, "ann", "clearer"
    )
    bank.write.editing.forget("one", [bank.memory_ids()[1]], "bob", "wrong")
    criteria = tuple(Criterion(name=name) for name in CRITERIA)
    bank.write.ratings.change_scales("one", RatingScales(criteria=criteria), "ann")
    trace = bank.trace("one", 7)
    bank.write.credits.assign(
        "one", 7, trace.id, dict.fromkeys(trace.reward.credited[:1], 0.5), "ann", "tried without it"
    )
    bank.write.people.assign("ann", Role.MANAGE, "ann", "she made it")
    bank.write.people.assign(NEWCOMERS, Role.MANAGE, "ann", "all may")
    return bank


def _spoiled(contents: Contents, runs: Mapping[str, str], texts: frozenset[str]) -> Contents:
    names = {**runs, **PEOPLE}
    for number, memory_id in enumerate(contents.memories):
        run, dash, rest = memory_id.partition("-")
        names[memory_id] = f"{SHORT[number // 2 % len(SHORT)]} {number}" if number % 2 else f"{runs[run]}{dash}{rest}"
    spoil = Spoiled(names, texts)
    names |= {t.task.id: spoil.text(t.task.id) for t in contents.traces}
    spoil = Spoiled(names, texts)
    return replace(
        contents,
        memories={names[i]: (spoil.of(memory), vector) for i, (memory, vector) in contents.memories.items()},
        events=tuple(map(spoil.of, contents.events)),
        traces=tuple(_asked_and_judged(spoil.of(trace), spoil) for trace in contents.traces),
    )


def _asked_and_judged(trace: StepTrace, spoil: Spoiled) -> StepTrace:
    """What the household tells nothing of: a judgement, and what a method asked the model."""
    message = spoil.text("said")
    form = {message: message, "list": [message]}
    asked = [
        Consulted(message, phase, (Message("user", message),), message, filled, simulated=False)
        for phase in (Phase.SELECT, Phase.GENERATE, Phase.WRITE)
        for filled in (form, None)
    ]
    return replace(
        trace,
        consulted=tuple(asked),
        decision=replace(trace.decision, note=message),
        reward=replace(trace.reward, judgement=Judgement(message, message, message)),
        write=replace(
            trace.write, operations=tuple(replace(o, data=form, why=message) for o in trace.write.operations)
        ),
    )


def _of_another_program(contents: Contents) -> Contents:
    name = " ".join((HTML[3], *MARKDOWN[:2], STREAMLIT[0]))
    spoil = Spoiled({"simulated": name}, ELSEWHERE)

    def terms_of(decision: Decision) -> Decision:
        named = (
            replace(c, terms=tuple(replace(t, name=f"{t.name} {name}") for t in c.terms)) for c in decision.candidates
        )
        return replace(decision, candidates=tuple(named))

    def lacking(trace: StepTrace) -> StepTrace:
        embed = replace(trace.embed, embedder=name)
        return replace(
            trace, origin="import", lacks=(name, spoil.text()), embed=embed, decision=terms_of(trace.decision),
            settings={**trace.settings, name: name},
        )  # fmt: skip

    begun = {"embedder": name, "simulated": False, "environment_options": {name: name}}
    events = tuple(
        replace(event, payload={**event.payload, **begun}) if event.kind == "run_started" else event
        for event in contents.events
    )
    return replace(contents, embedder=name, events=events, traces=tuple(map(lacking, contents.traces)))


def _a_set_of_tasks(home: Path) -> None:
    path = home / "![pwnimage] **pwnstrong**.jsonl"
    lines = [{"intent": text, "id": text[:150], "family": text[:100], "reference": text} for text in (*PAYLOADS[:12],)]
    lines.append({"intent": TOGETHER[0], "choices": [TOGETHER[1], TOGETHER[2]], "reference": TOGETHER[1]})
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MEMRL_HOME", str(home))
        keep(check_file(path))


def _a_lesson(home: Path) -> None:
    text = (sample_data_path() / "lessons" / "03-alpha.toml").read_text(encoding="utf-8")
    lesson = tomllib.loads(text)
    for part in (lesson["title"], lesson["sentence"], lesson["predict"]["choices"][0]):
        hostile = " ".join(HTML[:5]) if part == lesson["sentence"] else HTML[2]
        text = text.replace(part, hostile.replace('"', "'").replace("\\", "/"))
    (home / "lessons").mkdir()
    (home / "lessons" / "00-hostile.toml").write_text(text, encoding="utf-8")
