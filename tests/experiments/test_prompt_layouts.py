"""How memories are laid out for a model, and how an answer is read as one of the lines offered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent import Agent
from memrl_core.agent.run_parts import make_model
from memrl_core.agent.runs import start_run
from memrl_core.agent.turns import read_choice
from memrl_core.analysis.decision.outline import reply_notes
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import ENVIRONMENTS, environment_class
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import tasks_of_set
from memrl_core.errors import EmptyAnswer, InputError, ModelInterrupted
from memrl_core.experiments.prompt_layouts import LAYOUTS, Layouts, layout_reports, layouts_of, run_layouts
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import (
    CONTINUE,
    TRIED,
    USUAL,
    first_messages,
    messages_sent,
    offered,
    sent,
    with_tried,
    without_tried,
)
from memrl_core.records import GenerateRecord, Memory, Message, Outcome, Phase, Reply, Turn

OFFERED = ["take egg from fridge", "take egg from table", "search drawer", "put egg on desk"]


def _memory(intent: str, experience: str, outcome: Outcome) -> Memory:
    return Memory(f"m-{intent}", intent, experience, outcome, intent, (), "r", 1, "t", "")


WORKED = _memory("heat the egg", "Task: heat the egg\nSteps that worked:\n> take egg\n> heat egg", "success")
FAILED = _memory("cool it", "Task: cool it\nWhat went wrong: It broke.\nAvoid:\n> cool egg", "failure")


@pytest.mark.parametrize(
    "shown",
    [
        "take egg from table",
        "Take Egg from Table.",
        "> take egg from table",
        '"take egg from table"',
        '{"action": "take egg from table"}',
        "Action: take egg from table",
        "2",
        "2. take egg from table",
        "I think that I should `take egg from table` now.",
        "\n\n- take egg from table\nbecause the egg is there",
    ],
)
def test_an_answer_is_read_as_the_line_it_means(shown: str) -> None:
    assert read_choice(shown, OFFERED) == "take egg from table"


@pytest.mark.parametrize(
    "shown", ["", "take egg", "7", "search drawer or put egg on desk", "[" * 100_000, "eat the egg"]
)
def test_an_answer_that_means_no_line_or_two_is_not_read_as_one(shown: str) -> None:
    assert read_choice(shown, OFFERED) is None


def _record(layout: str, **options: str) -> GenerateRecord:
    seen = "You see an egg.\nYou can:\n- take egg\n- wait"
    messages, spans = first_messages("Act.", [WORKED, FAILED], "heat the egg now", seen)
    return GenerateRecord("model", False, {"layout": layout, **USUAL, **options}, messages, spans, ())


@pytest.mark.parametrize("layout", ["transcript", "turns"])
@pytest.mark.parametrize("bound", [True, False])
def test_every_action_and_what_went_wrong_is_in_each_layout(layout: str, bound: bool) -> None:
    reported = "\n".join(
        message.content for message in messages_sent(_record(layout, failures="named"), 0, bound=bound)
    )
    for word in ("heat the egg", "take egg", "heat egg", "cool it", "It broke.", "cool egg", "heat the egg now"):
        assert word in reported
    assert ("- wait" in reported) is (layout == "turns" or not bound), "in a bound transcript the schema holds the list"
    assert "[memory" not in reported and "## " not in reported


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("layout", ["block", "transcript", "turns"])
@pytest.mark.parametrize("choices", ["schema", "prompt"])
@pytest.mark.parametrize("bound", [True, False])
def test_the_instructions_of_every_environment_stand_in_every_prompt(
    name: str, layout: str, choices: str, bound: bool
) -> None:
    instructions = environment_class(name).instructions
    messages, spans = first_messages(instructions, [WORKED, FAILED], "heat the egg", "An egg.\nYou can:\n- wait")
    record = GenerateRecord("model", False, {**USUAL, "layout": layout, "choices": choices}, messages, spans, ())
    for turns in range(2):
        turn = Turn(Reply("wait", bound=bound), "You wait.\nYou can:\n- wait", 0.0, False, False)
        first, *others = messages_sent(replace(record, turns=(turn,) * turns), turns, bound=bound)
        assert instructions and first == Message("system", instructions)
        held = bound and layout == "transcript" and choices == "schema"
        assert ("- wait" in others[-1].content) is not held


def test_a_step_of_before_is_shown_with_what_was_sent_then() -> None:
    record = replace(_record("transcript"), options={"layout": "transcript"})
    assert messages_sent(record, 0, bound=True)[0] == Message("system", CONTINUE)


def test_the_best_memory_and_what_was_seen_stand_where_the_options_say() -> None:
    other = replace(WORKED, id="m-2", experience=WORKED.experience.replace("the egg", "the pan"))
    turns = [Turn(Reply(f"a{n}", bound=True), f"o{n}\nYou can:\n- wait", 0.0, False, False) for n in range(3)]
    texts = {}
    for best, seen in (("first", "latest"), ("last", "all")):
        messages, spans = first_messages("Act.", [WORKED, other, FAILED], "now", "begun\nYou can:\n- wait")
        options = {"layout": "transcript", **USUAL, "best": best, "seen": seen}
        record = GenerateRecord("model", False, options, messages, spans, tuple(turns))
        texts[best] = messages_sent(record, 3, bound=True)[-1].content
    places = {best: [text.index(word) for word in ("cool it", "the egg", "the pan")] for best, text in texts.items()}
    assert places["first"] == sorted(places["first"])
    assert places["last"][0] < places["last"][2] < places["last"][1], "failures first, then the best next to the task"
    assert texts["first"].endswith('now\no2\n"a0"\n"a1"\n"a2"\n')
    assert texts["last"].endswith('now\nbegun\n"a0"\no0\n"a1"\no1\n"a2"\no2\n')


@pytest.mark.parametrize("bound", [True, False])
def test_a_failure_that_is_not_named_says_what_went_wrong_without_its_action(bound: bool) -> None:
    blamed = replace(FAILED, experience=FAILED.experience.replace("It broke.", "You cannot cool egg here."))
    for failures, shown in (("named", True), ("unnamed", False)):
        messages, spans = first_messages("Act.", [WORKED, blamed], "now", "You see.\nYou can:\n- wait")
        options = {"layout": "transcript", **USUAL, "failures": failures}
        record = GenerateRecord("model", False, options, messages, spans, ())
        text = messages_sent(record, 0, bound=bound)[-1].content
        assert ("cool egg" in text) is shown and ("You cannot … here." in text) is not shown
        assert "take egg" in text and "What went wrong: You cannot" in text


@pytest.mark.parametrize(
    "seen", ["You see.\nYou can:\n- a\n- b", "You can:\n- a", "Text.", "One.\n\nYou can:\n- a", ""]
)
def test_what_was_tried_stands_before_the_choices_and_can_be_taken_out(seen: str) -> None:
    marked = with_tried(seen, ["open the box", "two\nlines"])
    assert f"{TRIED}open the box; two lines" in marked.splitlines()
    assert offered(marked) == offered(seen)
    assert without_tried(marked) == seen == without_tried(seen)


def test_a_transcript_shows_actions_in_the_very_form_that_is_asked_for() -> None:
    turn = Turn(Reply("take egg", bound=True, offered=True), "You hold it.\nYou can:\n- wait", 0.0, False, False)
    record = replace(_record("transcript", failures="named"), turns=(turn,))
    *_, last = messages_sent(record, 1, bound=True)
    lines = last.content.splitlines()
    begin = lines.index("Task: heat the egg")
    assert lines[begin : begin + 3] == ["Task: heat the egg", json.dumps("take egg"), json.dumps("heat egg")]
    assert lines.index("Task: cool it") < begin, "what stands next to the task is followed first"
    assert "Avoid: cool egg" in lines and json.dumps("cool egg") not in lines, "what looks like an answer is done"
    assert lines[-1] == json.dumps("take egg") and "- wait" not in lines
    assert "You hold it." in lines and "You see an egg." not in lines


@pytest.mark.parametrize("layout", ["block", "transcript", "turns"])
@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("turns", [0, 1])
def test_what_is_sent_tells_where_each_memory_stands(layout: str, bound: bool, turns: int) -> None:
    turn = Turn(Reply("take egg", bound=bound, offered=True), "You hold it.\nYou can:\n- wait", 0.0, False, False)
    messages, spans = sent(replace(_record(layout), turns=(turn,) * turns), turns, bound=bound)
    for memory, own, other in ((WORKED, "heat egg", "cool it"), (FAILED, "It broke.", "take egg")):
        mine = [span for span in spans if span.memory_id == memory.id]
        reported = "\n".join(messages[span.message].content[span.start : span.end] for span in mine)
        assert own in reported and other not in reported and "heat the egg now" not in reported
    assert layout != "turns" or len(spans) == 5


@pytest.mark.parametrize("layout", ["block", "turns"])
@pytest.mark.parametrize("bound", [True, False])
def test_a_turn_begins_with_all_that_the_one_before_sent_so_that_a_server_reads_it_once(
    layout: str, bound: bool
) -> None:
    turn = Turn(Reply("take egg", bound=bound, offered=True), "You hold it.\nYou can:\n- wait", 0.0, False, False)
    record = _record(layout)
    for _ in range(3):
        before = messages_sent(record, len(record.turns), bound=bound)
        record = replace(record, turns=(*record.turns, turn))
        after = messages_sent(record, len(record.turns), bound=bound)
        assert after[: len(before)] == before and len(after) == len(before) + 2


@pytest.mark.parametrize("bound", [True, False])
def test_a_transcript_begins_with_its_memories_and_its_task_in_every_turn(bound: bool) -> None:
    turn = Turn(Reply("take egg", bound=bound, offered=True), "You hold it.\nYou can:\n- wait", 0.0, False, False)
    record = _record("transcript")
    *first, begun = messages_sent(record, 0, bound=bound)
    *then, later = messages_sent(replace(record, turns=(turn, turn)), 2, bound=bound)
    assert first == then
    shared = begun.content[: begun.content.index("Task: heat the egg now\n") + len("Task: heat the egg now\n")]
    assert later.content.startswith(shared)


def test_earlier_tasks_are_exchanges_of_the_chat() -> None:
    messages = messages_sent(_record("turns"), 0, bound=False)
    assert [message.role for message in messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "user",
    ]
    assert [message.content for message in messages if message.role == "assistant"] == ["take egg", "heat egg"]


@pytest.mark.parametrize("layout", ["block", "transcript", "turns"])
def test_the_simulated_model_follows_a_memory_in_every_layout(layout: str) -> None:
    turn = Turn(Reply("take egg"), "You hold it.\nYou can:\n- wait\n- heat egg\n- cool egg", 0.0, False, False)
    record = replace(_record(layout), turns=(turn,))
    replies = [
        SimulatedModel().chat(messages_sent(record, number, bound=False), ModelOptions(seed=seed)).text
        for number in (0, 1)
        for seed in range(5)
    ]
    assert replies == ["take egg"] * 5 + ["heat egg"] * 5


class Scripted:
    """A model that says the first line its schema allows, or nothing in its first `silent` turns (True: in none), or
    nothing at temperature 0 (`mute`), and breaks in the middle of every answer but each `every`th.
    """

    name, simulated = "scripted", False

    def __init__(self, binds: bool = True, every: int = 1, mute: bool = False, silent: bool | int = False) -> None:
        self.asked: list[ModelOptions] = []
        self.schemas: list[Any] = []
        self.binds, self._every, self._mute, self._silent = binds, every, mute, silent

    def chat(
        self, messages: Sequence[Message], options: ModelOptions, _on: Any = None, _off: Any = None, schema: Any = None
    ) -> Reply:
        self.asked.append(options)
        self.schemas.append(schema)
        if len(self.asked) % self._every:
            raise ModelInterrupted("It broke.", "so far")
        # Who says nothing is asked twice in a turn.
        silent = self._silent is True or len(self.asked) <= 2 * self._silent
        if silent or (self._mute and options.temperature == 0):
            raise EmptyAnswer("It said nothing.", "32 tokens", "Hm, hm.")
        return Reply(json.dumps(schema["enum"][0]) if schema else "in words")


def _step(model: Any, path: Path, **chosen: Any) -> Any:
    with MemoryBank.create(str(path / "bank"), "hashing-64", 64) as bank:
        run = start_run(bank, environment="household", tasks="household-train", task_count=1, model_options=chosen).id
        agent = Agent(bank, run, model, HashingEmbedder(64), Household())
        return next(agent.run(tasks_of_set("household-train")[:1]))


def test_a_model_that_can_is_bound_to_the_lines_offered_and_what_it_wrote_is_kept(tmp_path: Path) -> None:
    model = Scripted()
    turns = _step(model, tmp_path).generate.turns
    assert all(turn.reply.bound and turn.reply.offered for turn in turns)
    assert turns[0].reply.raw == json.dumps(turns[0].reply.text)
    assert turns[0].reply.text in model.schemas[0]["enum"]


def test_an_empty_answer_among_others_costs_a_turn_and_ends_no_run(tmp_path: Path) -> None:
    trace = _step(Scripted(silent=1), tmp_path)
    first, *others = trace.generate.turns
    assert (first.reply.text, first.reply.offered, first.reply.cut) == ("", False, "32 tokens")
    assert others and all(turn.reply.offered for turn in others)
    assert trace.reward.environment is not None and trace.operations[0].op == "ADD"


def test_an_episode_without_any_answer_says_nothing_about_its_memories(tmp_path: Path) -> None:
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-64", 64) as bank:
        tasks = tasks_of_set("household-train")[:1]
        run = start_run(bank, environment="household", tasks="household-train", task_count=1).id
        list(Agent(bank, run, SimulatedModel(), HashingEmbedder(64), Household()).run(tasks))
        before = bank.utilities(run)
        trace = next(Agent(bank, run, Scripted(silent=True), HashingEmbedder(64), Household()).run(tasks))
        assert trace.decision.selected and len(trace.generate.turns) == Household.max_turns
        assert (trace.reward.reward, trace.reward.environment, trace.reward.outcome) == (None, None, "unrated")
        assert "thinking: 150 characters in 10 turns" in trace.reward.verdict
        assert trace.follows is None, "of an answer that never came nothing is known"
        assert not trace.update.changes and bank.utilities(run) == before and bank.memory_count(run) == len(before)
        assert [(op.op, op.why) for op in trace.operations] == [("NOOP", "the model gave no answer")]


def test_a_person_may_still_rate_an_episode_without_any_answer(tmp_path: Path) -> None:
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-64", 64) as bank:
        task, *_ = tasks_of_set("household-train")
        run = start_run(bank, environment="household", tasks="household-train", task_count=1).id
        episode = Agent(bank, run, Scripted(silent=True), HashingEmbedder(64), Household()).begin(task)
        while episode.phase is not Phase.REWARD:
            episode.advance()
        episode.rate(-1.0, "ann")
        trace = episode.finish()
        assert (trace.reward.reward, trace.reward.source) == (-1.0, "person") and bank.memory_count(run) == 0


def test_one_line_is_wanted_of_a_model_that_cannot_be_bound_and_thinking_has_room_of_its_own(tmp_path: Path) -> None:
    free, bound, chosen = Scripted(binds=False), Scripted(), Scripted(binds=False)
    for number, (model, options) in enumerate(((free, {}), (bound, {"think": True}), (chosen, {"stop": "."}))):
        (tmp_path / str(number)).mkdir()
        _step(model, tmp_path / str(number), **options)
    *actions, words = free.asked
    assert {option.stops[0] for option in actions} == {"\n"} and words.stops == []
    assert {(tuple(option.stops), option.num_predict) for option in bound.asked[:-1]} == {((), 32 + 1024)}
    assert {tuple(option.stops) for option in chosen.asked} == {(".",), ()}


def test_who_said_nothing_is_asked_once_more_with_another_seed_and_warmer(tmp_path: Path) -> None:
    model = Scripted(mute=True)
    replies = [turn.reply for turn in _step(model, tmp_path).generate.turns]
    first, second = model.asked[:2]
    assert first.seed != second.seed and (first.temperature, second.temperature) == (0, 0.5)
    assert all(reply.offered for reply in replies)
    assert [dict(reply.options) for reply in replies] == [{"seed": second.seed, "temperature": 0.5}] * len(replies)
    assert f"asked again with seed {second.seed}, temperature 0.5" in reply_notes(replies[0])


def test_an_attempt_after_a_failed_one_takes_another_seed_which_the_trace_keeps(tmp_path: Path) -> None:
    model = Scripted(every=2)
    trace = _step(model, tmp_path)
    seeds = [options.seed for options in model.asked]
    assert seeds[::2] == seeds[:1] * len(trace.generate.turns) + seeds[:1] and seeds[1::2] == [seeds[1]] * len(
        seeds[1::2]
    )
    assert seeds[0] != seeds[1] == trace.generate.turns[0].reply.options["seed"]
    assert trace.write.operations[0].experience.endswith("in words")
    (tmp_path / "twice").mkdir()
    with pytest.raises(ModelInterrupted):
        _step(Scripted(every=3), tmp_path / "twice")


@pytest.mark.slow
def test_each_layout_is_tried_with_the_same_memories_on_new_tasks_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reader(SimulatedModel):
        name, simulated = "reader", False

    made = make_model
    monkeypatch.setattr(
        "memrl_core.experiments.study.make_model", lambda name, *own: Reader() if name == "reader" else made(name, *own)
    )
    monkeypatch.setattr("memrl_core.agent.runs.must_be_there", lambda *_: {})
    sets = ["household-train", "helpdesk-train"]
    options = {"tasks": 8, "seeds": [0], "k2": [1, 3], "layouts": ["transcript", "turns"]}
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-256", 256) as bank:
        steps = [0]
        stopped = run_layouts(
            bank, tmp_path / "out", ["reader"], sets, **options,
            on_progress=lambda done, total: steps.append(done), cancelled=lambda: steps[-1] >= 50,
        )  # fmt: skip
        assert stopped.stopped and len(stopped.steps) == 24
        found = run_layouts(bank, tmp_path / "out", ["reader"], sets, **options).steps
        again = len(bank.runs())
        assert run_layouts(bank, tmp_path / "out", ["reader"], sets, **options).steps.equals(found)
        assert len(bank.runs()) == again, "what is finished is not done again"
        for other in ({"tasks": 5}, {"epochs": 2}, {"layouts": ["upside down"]}, {"k2": [0]}, {"tasks": 240}):
            with pytest.raises(InputError, match="Nothing was started"):
                run_layouts(bank, tmp_path / "out", ["reader"], sets, **{**options, **other})
        infos = {run: bank.run(run) for run in found["run"]}
        learned = {base: {trace.task.id for trace in bank.each_trace(base)} for base in found["base"].unique()}
    assert len(found) == 2 * (2 * 2 + 1) * 8 and found["run"].nunique() == 10
    assert set(stopped.steps["run"]) <= set(found["run"])
    for row in found.itertuples():
        info = infos[row.run]
        assert info.base == row.base and info.settings["k2"] == row.memories
        assert not row.memories or LAYOUTS[row.layout].items() <= info.model_options.items()
        assert row.task not in learned[row.base], "no task was met before"
    assert found.groupby(["set", "seed"])["base"].nunique().max() == 1
    assert (found["valid"] == found["asked"]).all() and (found["asked"] > 0).all()
    tables = layout_reports(Layouts(found, False))
    assert [len(table.rows) for table in tables] == [4, 4]
    desk = found[(found["set"] == "helpdesk-train") & (found["memories"] == 3)]
    known = desk[desk["at_hand"].notna()]
    assert (known["taken"].astype(bool) == known["success"].astype(bool))[known["at_hand"].astype(bool)].all()
    assert known["follows"].gt(0).mean() > 0.9, "the simulated reader does what it reads"


def test_each_form_of_a_prompt_is_measured_once() -> None:
    forms = layouts_of(())
    assert "transcript" in forms and len(forms) == len({tuple(sorted(form.items())) for form in forms.values()})
    assert list(layouts_of(["block"])) == ["block"]
