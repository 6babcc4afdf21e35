"""A-MEM: notes with keywords and links that change each other, and that no reward reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.agent.asking import templates
from memrl_core.agent.learned_state import learned_now
from memrl_core.analysis.run.learned.deciding import Watching
from memrl_core.analysis.run.learned.notes import edits, notes_and_links
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies.base import NewExperience, Question
from memrl_core.policies.methods.a_mem import (
    ANALYSE,
    EVOLVE,
    LINK_SIMILARITY,
    AMem,
    AMemSettings,
    Evolution,
    Neighbour,
    NeighbourNow,
    Note,
    Notes,
    analysis_question,
    content_of,
    evolution_question,
    with_note,
)
from memrl_core.records import Memory
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import alike_tasks, view_of
from tests.policies.policy_run import EMBEDDER, an_agent_of, newcomer

EGG = "Task: put a hot egg on the table\nSteps that worked:\n> take egg from fridge\n> heat egg with stove"


def a_memory(memory_id: str, task: str = "", parents: tuple[str, ...] = (), text: str = "") -> Memory:
    reported = text or f"Task: {memory_id}"
    return Memory(memory_id, f"intent of {memory_id}", reported, "success", memory_id, parents, "r", 1, task, "")


def a_view(
    similar: Mapping[str, float], state: Notes | None = None, hidden: Sequence[str] = (), **memories: Memory
) -> MemoryView:
    """Memories by id with their cosine to the query (1, 0)."""
    ids = list(similar)
    return view_of(
        ids, [(x, (1 - x * x) ** 0.5) for x in similar.values()],
        visible=np.array([i not in hidden for i in ids]), memories={i: a_memory(i) for i in ids} | memories,
        asked=Asked(np.array([1, 0], dtype=np.float32), task="t1"), learned=state,
    )  # fmt: skip


def chosen(view: MemoryView, **values: Any) -> tuple[str, ...]:
    policy = AMem(AMemSettings.of({"k1": 3, "k2": 2, "linked": 1, **values}))
    return policy.select(policy.recall(view.asked.embedding, view), view, 0).selected


def linked(**links: str) -> Notes:
    """A note each for all that is named; `a="b c"` links a with b and c."""
    ids = dict.fromkeys([*links, *" ".join(links.values()).split()])
    return Notes({i: Note(links=tuple(links.get(i, "").split())) for i in ids})


def a_noted_view(texts: Mapping[str, str], state: Notes | None = None) -> MemoryView:
    """Memories of these texts under the vectors of the texts; without `state` no note is known of them."""
    ids = list(texts)
    memories = {i: a_memory(i, text=text) for i, text in texts.items()}
    return view_of(ids, EMBEDDER.embed(list(texts.values())), memories=memories, learned=state)


def written_of(text: str) -> NewExperience:
    return newcomer("a_mem", "warm an egg", text, "failure", 100, ("p",))


class Answers:
    """Fills in a form as it is told to, by purpose; otherwise as the template does."""

    def __init__(self, **reported: Any) -> None:
        self.reported = reported
        self.asked: list[Question[Any]] = []

    def __call__(self, question: Question[Any]) -> Any:
        self.asked.append(question)
        return self.reported[question.purpose] if question.purpose in self.reported else templates(question)


# --- the note ---------------------------------------------------------------------------------------------------------


def test_the_template_counts_words_and_takes_the_actions_for_tags() -> None:
    note = analysis_question(EGG, "put a hot egg on the table").template
    assert note.keywords == ["egg", "hot", "table", "take", "fridge", "heat"]
    assert note.tags == ["take", "heat"]
    assert note.context == "put a hot egg on the table"


def test_a_note_stands_below_its_content_and_comes_off_again() -> None:
    note = Note(keywords=("egg",), tags=("take", "heat"), context="an egg")
    text = with_note(EGG, note)
    assert text == f"{EGG}\nNote:\nContext: an egg\nKeywords: egg\nTags: take, heat"
    assert (content_of(text), content_of(EGG)) == (EGG, EGG)


def test_a_near_note_is_linked_when_it_shares_a_keyword() -> None:
    near = [
        Neighbour("alike", LINK_SIMILARITY, "", Note(keywords=("egg", "table"), tags=("take",))),
        Neighbour("other words", 0.9, "", Note(keywords=("mug",))),
        Neighbour("too far", LINK_SIMILARITY - 0.01, "", Note(keywords=("egg",))),
    ]
    evolution = evolution_question(EGG, Note(keywords=("egg",), tags=("heat", "take")), near).template
    assert evolution.links == ["alike"]
    assert evolution.neighbours == [NeighbourNow(memory="alike", context="", tags=["take", "heat"])]


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_newcomer_is_linked_and_its_neighbour_takes_its_tags() -> None:
    old = Note(keywords=("egg", "hot"), tags=("take",), context="an egg", links=("r-0000",))
    view = a_noted_view({"r-0001": with_note(EGG, old)}, Notes({"r-0001": old}))
    new = written_of(EGG.replace("take egg from fridge", "search pantry"))
    added, evolved = AMem(AMemSettings()).write(new, view, templates)
    assert (added.operation.op, added.operation.memory_id, added.operation.outcome) == ("ADD", "r-0100", "failure")
    assert added.operation.data["links"] == ["r-0001"]
    op = evolved.operation
    assert (op.op, op.memory_id, op.replaces, op.parents) == ("UPDATE", "r-0100-2", ("r-0001",), ("r-0001",))
    assert (op.intent, op.outcome) == ("intent of r-0001", "success")
    assert op.data == {**old.model_dump(mode="json"), "tags": ["take", "search", "heat"]}
    assert op.experience == with_note(EGG, old.model_copy(update={"tags": ("take", "search", "heat")}))
    text = "\n".join((EGG, "egg hot", "take search heat", "an egg"))
    assert np.array_equal(evolved.embedding, EMBEDDER.embed([text])[0])


def test_the_nearest_notes_are_shown_to_the_model_and_not_the_oldest() -> None:
    texts = {f"r-{n:04d}": f"Task: wash the mug number {n} in the sink" for n in range(1, 8)}
    texts |= {f"r-{n:04d}": EGG.replace("table", f"table {n}") for n in range(8, 13)}
    asked = Answers()
    AMem(AMemSettings()).write(written_of(EGG), a_noted_view(texts), asked)
    analyse, evolve = asked.asked
    assert (analyse.purpose, evolve.purpose) == (ANALYSE, EVOLVE)
    assert [i for i in texts if f"[{i}]" in evolve.message] == [f"r-{n:04d}" for n in range(8, 13)]


def test_the_model_may_link_rename_and_retell() -> None:
    reported = Evolution(
        links=["r-0002", "nobody", "r-0002"],
        tags=["kitchen"],
        neighbours=[
            NeighbourNow(memory="r-0001", context="needs\nheat", tags=["kitchen", "kitchen"]),
            NeighbourNow(memory="nobody", context="", tags=[]),
            NeighbourNow(memory="r-0002", context="", tags=[]),
        ],
    )
    view = a_noted_view({"r-0001": EGG, "r-0002": EGG + "!"})
    added, evolved = AMem(AMemSettings()).write(written_of(EGG), view, Answers(**{EVOLVE: reported}))
    assert (added.operation.data["links"], added.operation.data["tags"]) == (["r-0002"], ["kitchen"])
    assert (evolved.operation.replaces, evolved.operation.data["context"]) == (("r-0001",), "needs heat")
    assert evolved.operation.data["tags"] == ["kitchen"]


def test_an_answer_that_cannot_be_used_leaves_a_plain_note_and_says_so() -> None:
    view = a_noted_view({"r-0001": EGG})
    (added,) = AMem(AMemSettings()).write(written_of(EGG), view, Answers(**{ANALYSE: None, EVOLVE: None}))
    assert added.operation.data == Note().model_dump(mode="json")
    assert added.operation.why
    assert content_of(added.operation.experience) == EGG


# --- recall -----------------------------------------------------------------------------------------------------------

FAR = {"near": 0.9, "second": 0.8, "third": 0.7, "far": 0.1}


def test_a_linked_note_takes_the_last_place() -> None:
    view = a_view(FAR, linked(near="far"))
    assert chosen(view) == ("near", "far")
    assert chosen(view, linked=0) == ("near", "second")
    assert chosen(a_view(FAR, linked(far="near"))) == ("near", "far")


def test_a_decision_says_which_note_came_by_its_link() -> None:
    view = a_view(FAR, linked(near="far"))
    policy = AMem(AMemSettings(k1=3, k2=2, linked=1))
    recalled = policy.recall(view.asked.embedding, view)
    decision = policy.select(recalled, view, 0)
    assert [(seen.memory_id, seen.rank_recall) for seen in recalled.pool] == [
        ("near", 1), ("second", 2), ("third", 3), ("far", 4),
    ]  # fmt: skip
    assert decision.note.endswith(" far.")
    assert decision.greedy == decision.selected == ("near", "far")


def test_a_linked_note_of_the_same_task_stays_outside_where_that_is_asked_for() -> None:
    view = a_view(FAR, linked(near="far"), far=a_memory("far", task="t1"))
    assert chosen(view) == ("near", "far")
    assert chosen(view, exclude_same_task=True) == ("near", "second")


def test_links_follow_what_was_replaced_and_leave_what_was_forgotten() -> None:
    state = linked(near="gone")
    state.replaced = {"gone": "far"}
    assert chosen(a_view(FAR | {"gone": 0.0}, state, hidden=["gone"])) == ("near", "far")
    assert chosen(a_view(FAR | {"gone": 0.0}, state, hidden=["gone", "far"])) == ("near", "second")


def test_the_links_of_an_evolved_note_are_its_newest_and_come_back_with_the_old_one() -> None:
    state = linked(old="far", new="second", near="")
    state.replaced = {"old": "new"}
    similar = {"old": 0.9, "new": 0.89, "third": 0.8, "far": 0.1, "second": 0.0}
    assert chosen(a_view(similar, state, hidden=["old"])) == ("new", "second")
    assert chosen(a_view(similar, state, hidden=["new"])) == ("old", "far")


def test_links_follow_what_people_have_reworded() -> None:
    similar = {"near": 0.9, "second": 0.8, "third": 0.7, "old": 0.0, "old.2": 0.1, "new": 0.05}
    worded = a_memory("old.2", parents=("old",))
    view = a_view(similar, linked(near="old"), ["old", "new"], **{"old.2": worded})
    assert chosen(view) == ("near", "old.2")
    state = linked(near="old")
    state.replaced = {"old.2": "new"}
    assert chosen(a_view(similar, state, ["old", "old.2"], **{"old.2": worded})) == ("near", "new")


# --- a whole run ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """Twelve household steps."""
    agent = an_agent_of(tmp_path_factory.mktemp("b") / "bank", "a_mem")
    assert len(list(agent.run(alike_tasks()[:12]))) == 12
    return agent.bank


def test_a_run_links_its_notes_and_lets_them_evolve(lived: MemoryBank) -> None:
    operations = [op for trace in lived.traces("r") for op in trace.write.operations]
    evolved = [op for op in operations if op.op == "UPDATE"]
    assert len(operations) - len(evolved) == 12 == len(lived.utilities("r"))
    assert evolved
    found = [edit for step in range(1, 13) for edit in edits(Watching(lived, "r", step, "a_mem"))]
    assert [(edit.new, (edit.old,)) for edit in found] == [(op.memory_id, op.replaces) for op in evolved]
    for edit in found:
        ((part, (before, after)),) = edit.changes.items()
        assert part == "tags" and set(before) < set(after)
    graph = notes_and_links(Watching(lived, "r", 12, "a_mem"))
    assert set(graph.notes) == set(lived.utilities("r"))
    assert graph.links and {end for link in graph.links for end in link} <= set(graph.notes)


def test_memories_of_another_policy_are_notes_that_can_evolve(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "rag")
    list(agent.run(sample_tasks("household-train")[:1]))
    fork = {"policy": "a_mem", "settings": AMemSettings().model_dump()}
    info = replace(agent.bank.run("r"), id="fork", base="r", base_step=1, first_step=2, **fork)
    agent.bank.write.start_run(info)
    assert learned_now(agent.bank, "fork") == Notes({"r-0001": Note()})
    trace = (
        Agent(agent.bank, "fork", SimulatedModel(), EMBEDDER, agent.environment)
        .begin(sample_tasks("household-train")[0])
        .finish()
    )
    assert trace.decision.selected == ("r-0001",)
