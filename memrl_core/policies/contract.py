"""What every policy must keep, as checks for its author.

    from memrl_core.policies.contract import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_policy_keeps_the_contract(check):
        check(lambda: MyPolicy(MySettings()))

A check raises `AssertionError` with a sentence. It needs no bank and no model: memories are made up.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from memrl_core.guards import TOLERANCE, checked, decision_breaks, read_again, sound_spec
from memrl_core.policies.base import (
    Ask,
    Form,
    Lesson,
    NewExperience,
    Policy,
    Question,
    Vector,
    When,
    Written,
    changed_value,
)
from memrl_core.policies.decide import decide
from memrl_core.records import (
    Candidate,
    Consulted,
    Decision,
    EmbedRecord,
    GenerateRecord,
    Memory,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    Phase,
    RecallRecord,
    Reply,
    RewardRecord,
    StepTrace,
    Task,
    Turn,
    TurnRecall,
    UpdateRecord,
    Utility,
    WriteRecord,
)
from memrl_core.retrieval.view import Asked, Embeddings, MemoryView

Make = Callable[[], Policy[Any]]
SEEDS = 200
DRAWS = 1000
FEW = 20
"""Draws of one and the same certain choice after which no more are made: `says_when_chance_chooses` has made them."""
ROUNDED = 1e-6
"""How far the probabilities of one choice may lie apart: some are found by numerical integration."""
DRAWN = ("explore", "sampled")
FARTHEST = 5
"""Standard deviations between a probability and a share of `DRAWS` that are still taken for chance."""


# --- a made-up run, without a bank or a model -------------------------------------------------------------------------

DIMENSION = 16
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "unrated")
EXPERIENCE = "Task: {intent}\nSteps that worked:\n> take egg from table\n> put egg on desk"
BEGIN = "You see, on the table: egg.\nYou can:\n- take egg from table\n- search drawer"
OFFER = "You hold an egg.\nYou can:\n- put egg on desk"
Prompt = tuple[tuple[Message, ...], tuple[MemorySpan, ...]]


def by_template(phase: Phase, noted: list[Consulted]) -> Ask:
    """Answers each question of a policy with the policy's own template, and notes it."""

    def ask(question: Question[Form]) -> Form | None:
        filled = question.template.model_dump(mode="json")
        noted.append(Consulted(question.purpose, phase, (), "", filled, simulated=True))
        return question.template.model_copy(deep=True)

    return ask


class Looked(NamedTuple):
    """Both phases for one thing that is asked: what was asked of the model and given back, the pool and the choice."""

    view: MemoryView
    consulted: list[Consulted]
    answers: Mapping[str, Any]
    recalled: RecallRecord
    decision: Decision


class World:
    """A made-up run of a policy, from `seed`: `size` memories of another's, then `steps` steps of its own.

    `label` is what only the environment may know of its tasks. `unmoved` names those of "q" and "visits" that stay 0.
    In a run of `equals` all memories of another's have the same vector.
    """

    def __init__(
        self,
        policy: Policy[Any],
        seed: int,
        size: int = 8,
        steps: int = 6,
        label: str = "",
        unmoved: Sequence[str] = (),
        equals: bool = False,
    ) -> None:
        self.policy, self._label, self._unmoved = policy, label, unmoved
        self.memories: dict[str, Memory] = {}
        self._seed = seed
        rng = np.random.default_rng(seed)
        self._vectors: list[Vector] = []
        self._gone: set[str] = set()
        for number in range(size):
            intent = f"put a hot thing {number % 5} on the table"
            outcome = OUTCOMES[number % 3]
            memory = _memory(f"m-{number:04d}", intent, EXPERIENCE.format(intent=intent), outcome, number)
            self._keep(memory, self._vectors[0] if equals and number else _unit(rng))
        self.state = policy.start(list(self.memories.values()))
        for step in range(1, steps + 1):
            self.step(step)

    def look(self, step: int = 90, turn: int = 0) -> Looked:
        """Both phases for a new task, or before a later turn of it."""
        asked = self._asked(step, turn)
        asked_of_model: list[Consulted] = []
        ask = by_template(Phase.GENERATE if turn else Phase.SELECT, asked_of_model)
        seed = self._seed * 100 + step + 1000 * turn
        recalled, decision, view = decide(self.policy, self.view(asked), seed, ask=ask)
        return Looked(view, asked_of_model, view.answers, recalled, decision)

    def look_in_turn(self, step: int, turn: int) -> tuple[Looked, TurnRecall] | None:
        """What memory adds before a later turn; None where the policy does not ask for it."""
        asked = self._asked(step, turn)
        when = self.policy.when(asked)
        assert isinstance(when, When), "`when` gives no When."
        if not when.now:
            return None
        looked = self.look(step, turn)
        text = self.policy.render_turn(self._chosen(looked.decision), looked.view)
        return looked, TurnRecall(when.why, looked.recalled, looked.decision, text)

    def render(self, decision: Decision) -> Prompt:
        """The prompt that a decision gives."""
        view = self.view(self._asked(90))
        return self.policy.render(self._chosen(decision), "Act.", "put a hot egg on the table", "You see an egg.", view)

    def step(self, step: int, outcome: Outcome | None = None) -> None:
        """One whole step, at the end of which the policy has learned."""
        trace = self.trace(step, outcome or OUTCOMES[step % 2])
        self.policy.learn(self.state, self.lesson(trace))
        written = self.write(trace)
        _, forgotten = self.forget(step)
        for one in written:
            op = one.operation
            if one.embedding is not None and op.memory_id:
                memory = _memory(op.memory_id, op.intent, op.experience, op.outcome, step, trace.task.id)
                self._keep(memory, one.embedding)
        operations = (*(one.operation for one in written), *forgotten)
        for operation in operations:
            self._gone.update(operation.replaces)
        self.policy.remember(self.state, self.lesson(replace(trace, write=WriteRecord(operations))))

    def forget(self, step: int = 90) -> tuple[MemoryView, Sequence[MemoryOperation]]:
        """What the policy forgets at the end of a step, and the memories that it saw."""
        view = self.view(self._asked(step))
        return view, self.policy.forget(view)

    def trace(self, step: int, outcome: Outcome) -> StepTrace:
        """A step that ended so, up to its feedback."""
        looked = self.look(step)
        asked, decision, won = self._asked(step), looked.decision, outcome == "success"
        within = self.look_in_turn(step, 1)
        turns = (
            Turn(Reply("take egg from table"), OFFER, 0.0, False, False),
            Turn(Reply("put egg on desk"), "Done.", float(won), True, False, within[1] if within else None),
        )
        reward = self.policy.reward_of(float(won)) if outcome != "unrated" else None
        trace = StepTrace(
            id=f"step-{step}",
            run="made-up",
            step=step,
            epoch=1,
            task=Task(asked.task, asked.intent, "household", self._label, {"label": self._label}),
            policy=self.policy.spec.name,
            settings=self.policy.settings.model_dump(),
            started="2026-01-01T00:00:00+00:00",
            embed=EmbedRecord("made-up", DIMENSION, tuple(map(float, asked.embedding))),
            recall=looked.recalled,
            decision=decision,
            generate=GenerateRecord("made-up", True, {}, (), (), turns),
            reward=RewardRecord(reward, "environment", outcome, "", "", "", self.policy.credited(decision), reward),
            update=UpdateRecord(()),
            consulted=(*looked.consulted, *(within[0].consulted if within else ())),
        )
        reviewed: list[Consulted] = []
        self.policy.review(trace, self._chosen(decision), by_template(Phase.UPDATE, reviewed))
        return replace(trace, consulted=(*trace.consulted, *reviewed))

    def lesson(self, trace: StepTrace) -> Lesson:
        """A step as the policy learns from it."""
        assert trace.reward is not None
        rows = {memory_id: row for row, memory_id in enumerate(self.memories)}
        return Lesson(
            trace,
            trace.reward.reward,
            trace.reward.outcome,
            lambda memory_id: self._vectors[rows[memory_id]],
            lambda memory_id: self.memories[memory_id],
        )

    def write(self, trace: StepTrace) -> Sequence[Written]:
        """What the policy writes at the end of a step."""
        assert trace.embed is not None and trace.reward is not None and trace.decision is not None
        fresh = iter(range(1000))
        new = NewExperience(
            memory_id=f"made-up-{trace.step:04d}",
            intent=trace.task.intent,
            embedding=np.asarray(trace.embed.embedding, dtype=np.float32),
            experience=EXPERIENCE.format(intent=trace.task.intent),
            outcome=trace.reward.outcome,
            parents=trace.decision.selected,
            trace=trace,
            fresh_id=lambda: f"made-up-{trace.step:04d}-{next(fresh)}",
            embed=lambda texts: np.stack([_unit(np.random.default_rng(list(text.encode()))) for text in texts]),
        )
        return self.policy.write(new, self.view(self._asked(trace.step)), by_template(Phase.WRITE, []))

    def view(self, asked: Asked) -> MemoryView:
        """What the run sees now."""
        ids = list(self.memories)
        rng = np.random.default_rng([self._seed, 7])
        visible = np.array([memory_id not in self._gone for memory_id in ids], dtype=bool)
        view = MemoryView(
            ids=ids,
            # In two parts, as a bank's may lie in several.
            embeddings=Embeddings(map(np.array, (self._vectors[:3], self._vectors[3:])), DIMENSION),
            q=rng.normal(size=len(ids)),
            visits=rng.integers(0, 5, len(ids)),
            intent_groups=np.arange(len(ids)),
            rows={memory_id: row for row, memory_id in enumerate(ids)},
            visible=None if visible.all() else visible,
            memories=self.memories,
            asked=asked,
            learned=self.state,
        )
        return replace(view, **{name: np.zeros_like(getattr(view, name)) for name in self._unmoved})

    def _keep(self, memory: Memory, vector: Vector) -> None:
        self.memories[memory.id] = memory
        self._vectors.append(vector)

    def _chosen(self, decision: Decision) -> list[Memory]:
        return [self.memories[memory_id] for memory_id in decision.selected]

    def _asked(self, step: int, turn: int = 0) -> Asked:
        rng = np.random.default_rng([self._seed, step, turn] if turn else [self._seed, step])
        intent, observation = "put a hot egg on the table", OFFER if turn else BEGIN
        asked = Asked(_unit(rng), f"t{step % 4}", intent, observation, turn, step)
        assert isinstance(self.policy.key(asked), str), "The key is no text."
        return asked


def _unit(rng: np.random.Generator) -> Vector:
    vector = np.abs(rng.normal(size=DIMENSION)) + 0.2
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _memory(memory_id: str, intent: str, experience: str, outcome: Outcome, step: int, task: str = "") -> Memory:
    return Memory(memory_id, intent, experience, outcome, intent, (), "made-up", step, task or f"t{step % 4}", "")


# --- the checks -------------------------------------------------------------------------------------------------------


def chooses_from_the_pool(make: Make) -> None:
    """What is chosen was recalled, and the terms of each score add up to it; also from few and from strange memories.

    Memories that the policy did not write are candidates like others, or none at all.
    """
    for seed, size, steps in (*((seed, 8, 6) for seed in range(5)), (0, 0, 0), (0, 1, 0), (2, 12, 0)):
        world = World(make(), seed, size, steps)
        _decides_soundly(world, f"Seed {seed}, {size} memories, {steps} steps")


def decides_alike_from_the_same_seed(make: Make) -> None:
    """The same steps give the same learned values; the same memory, intent and seed the same decision, every time.

    Deciding changes nothing of what was learned.
    """
    for seed in range(3):
        first, second = World(make(), seed), World(make(), seed)
        before = dict(first.policy.values(first.state))
        assert before == dict(second.policy.values(second.state)), f"Seed {seed}: two runs learned different values."
        chosen = _decided(first)
        assert chosen == _decided(second), f"Seed {seed}: two decisions from the same seed differ."
        assert chosen == _decided(first), "Deciding twice gives two decisions."
        assert before == dict(first.policy.values(first.state)), "Deciding changed what was learned."


def has_a_card(make: Make) -> None:
    """The policy's card under its settings has every text, and of the choices only those that there are."""
    policy = make()
    with checked("The card"):
        sound_spec(policy.spec, policy.spec.name)


def works_in_later_turns(make: Make) -> None:
    """Memory can be asked before later turns, where the policy says so."""
    world = World(make(), 8)
    for turn in range(1, 4):
        found = world.look_in_turn(90, turn)
        if found is not None:
            looked, record = found
            broken = decision_breaks(looked.recalled, looked.decision)
            assert not broken, f"Before turn {turn}: {broken}."
            _stored_alike(record)


def reports_what_it_learns(make: Make) -> None:
    """`learn` moves no value that it does not report, and what it reports is what became of the values.

    A step that nobody has judged is a lesson too, before and after others.
    """
    world = World(make(), 3, steps=0)
    outcomes: tuple[Outcome, ...] = ("unrated", "success", "failure", "success", "unrated", "failure", "unrated")
    policy = world.policy
    for step, outcome in enumerate(outcomes, start=1):
        before, state = dict(policy.values(world.state)), copy.deepcopy(world.state)
        reported = {changed_value(one): one for one in policy.learn(state, world.lesson(world.trace(step, outcome)))}
        after = dict(policy.values(state))
        moved = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        silent = moved - reported.keys()
        assert not silent, f"{min(silent)} moved and was not reported."
        for name, change in reported.items():
            assert name not in after or abs(after[name] - change.after) < TOLERANCE, f"{name} is not what was reported."
        world.step(step, outcome)
    _decides_soundly(world, "After steps without a reward")


def updates_only_the_credited(make: Make) -> None:
    """A reward moves the q of memories that are credited with it, each as the fold of the ledger will."""
    world = World(make(), 4)
    decision = world.look().decision
    credited = world.policy.credited(decision)
    assert set(credited) <= set(decision.selected), "A memory is credited that was not in the prompt."
    believed = {memory_id: Utility(0.25, 2) for memory_id in credited}
    for change in world.policy.update(credited, 1.0, believed):
        assert change.memory_id in credited, f"{change.memory_id} moved without being credited."
        known = believed[change.memory_id]
        rule = type(world.policy).rule
        assert change.before == known.q, "A change does not begin with what was believed."
        assert change.after == rule(known, 1.0, world.policy.settings.model_dump()), "update and rule disagree."


def learns_where_its_card_says(make: Make) -> None:
    """Rewards move q where `learns` says so; elsewhere nothing is credited, and no hook goes by q or visits."""
    for seed in range(3):
        world = World(make(), seed)
        policy, looked = world.policy, world.look()
        learns, credited = policy.spec.learns, policy.credited(looked.decision)
        if policy.spec.keeps_q:
            assert credited or not looked.decision.selected, f"`learns` is “{learns}”, and no memory is credited."
            moved = [
                type(policy).rule(Utility(0.25, 2), reward, policy.settings.model_dump()) for reward in (-1.0, 1.0)
            ]
            assert moved != [0.25, 0.25], f"`learns` is “{learns}”, and no reward moves q: `rule` says how far."
            continue
        assert not credited, f"Memories are credited with rewards, and `learns` is “{learns}”, not “q”."
        assert learns != "nothing" or not policy.values(world.state), "Values are learned, and `learns` is “nothing”."
        for name in ("q", "visits"):
            # Many tasks, so that a branch taken by chance is seen.
            depends = _depends(world, World(make(), seed, unmoved=(name,)), tasks=range(90, 120))
            assert not depends, (
                f"{depends} depends on the {name} of memories, and `learns` is “{learns}”: no memory is credited, so "
                "that q and visits stay as they began."
            )


def writes_what_can_be_stored(make: Make) -> None:
    """What is written has new ids, an embedding each, and takes the place of memories that are there."""
    for outcome in OUTCOMES:
        world = World(make(), 5)
        ids = set(world.memories)
        for written in world.write(world.trace(7, outcome)):
            operation = written.operation
            if operation.op in ("ADD", "UPDATE", "MERGE"):
                assert operation.memory_id and operation.memory_id not in ids, "A new memory has no id of its own."
                ids.add(operation.memory_id)
                assert written.embedding is not None, f"{operation.memory_id} has no embedding."
                assert abs(float(np.linalg.norm(written.embedding)) - 1) < 1e-3, "An embedding has not length 1."
                assert operation.experience.strip(), f"{operation.memory_id} has no text."
            assert set(operation.replaces) <= ids, "A memory is replaced that is not there."


def has_a_state_that_can_be_copied(make: Make) -> None:
    """A deep copy of what was learned has the same values, and goes its own way."""
    world = World(make(), 10)
    with checked("The state cannot be copied"):
        copied = copy.deepcopy(world.state)
    policy, before = world.policy, dict(world.policy.values(world.state))
    assert before == dict(policy.values(copied)), "A copy of the state has other values."
    first = _decided(world)
    kept, world.state = world.state, copied
    assert first == _decided(world), "A copy of the state decides otherwise."
    world.step(7)
    assert before == dict(policy.values(kept)), "Learning in a copy of the state has changed the state."
    lesson = world.lesson(world.trace(8, "success"))
    policy.learn(copied, lesson)
    assert before == dict(policy.values(kept)), "Learning in a copy of the state has changed the state."


def gives_what_can_be_stored(make: Make) -> None:
    """Every record is read again as it was written, and what is kept as JSON is the same after it was JSON."""
    world = World(make(), 11)
    looked = world.look()
    records: list[Any] = [looked.recalled, looked.decision]
    records += world.policy.learn(world.state, world.lesson(world.trace(7, "success")))
    records += [written.operation for outcome in OUTCOMES for written in world.write(world.trace(8, outcome))]
    records += world.forget()[1]
    for record in (*records, dict(looked.answers)):
        _stored_alike(record)
    asked = {one.purpose: one.filled for one in looked.consulted}
    assert dict(looked.answers) == asked, "What `consult` gives is not what the model said, by purpose."


def forgets_only_what_is_there(make: Make) -> None:
    """`forget` only deletes, and only memories that the run sees."""
    world = World(make(), 12)
    for step in range(7, 13):
        view, operations = world.forget(step)
        for operation in operations:
            assert operation.op == "DELETE", f"`forget` does {operation.op}."
            assert operation.replaces, "`forget` deletes nothing."
            strangers = [memory_id for memory_id in operation.replaces if not view.sees(memory_id)]
            assert not strangers, f"{strangers[0]} is forgotten and is not there."
        world.step(step)


def decides_alike_however_the_step_ends(make: Make) -> None:
    """A decision and its prompt are the same when the step was tried before and ended so, or otherwise."""
    world = World(make(), 13)
    state = world.state
    before = _decided(world)
    for outcome in OUTCOMES:
        world.state = copy.deepcopy(state)
        trace = world.trace(90, outcome)
        world.policy.learn(world.state, world.lesson(trace))
        world.write(trace)
        world.forget(90)
        world.state = state
        assert _decided(world) == before, f"The decision knows that the step ended as {outcome}."


def reads_no_hidden_label(make: Make) -> None:
    """A task's family and data, which only the environment may know, change no decision, no value and no memory."""
    depends = _depends(World(make(), 15, label="one"), World(make(), 15, label="another"))
    assert not depends, f"{depends} depends on the family or the data of tasks."


def says_when_chance_chooses(make: Make) -> None:
    """What a decision calls certain is what every seed gives: the set, its order and its scores, also among equals."""
    many = _many(make)
    for policy, looked, equals in _looks(
        make, (3, 0, False), (5, 2, False), (8, 6, False), (many, 0, False), (many, 0, True)
    ):
        sets: dict[frozenset[str], int] = {}
        certain: list[Decision] = []
        for seed in range(SEEDS):
            decision = decide(policy, looked.view, seed, pool=looked.recalled).decision
            sets.setdefault(frozenset(decision.selected), seed)
            if decision.propensity >= 1 - TOLERANCE and decision.mode not in DRAWN:
                certain.append(decision)
        if not certain:
            continue
        pool = f"Of one pool of {len(looked.recalled.pool)}, {SEEDS} seeds select"
        says = f"a decision says that chance had no part in it (mode {certain[0].mode}, propensity 1)"
        assert len(sets) == 1, (
            f"{pool} {len(sets)} sets of memories, while {says}: give `Chosen` the mode “sampled” and the probability "
            "of the set."
        )
        scores = {tuple((one.memory_id, one.score) for one in sorted(d.candidates, key=_by_id)) for d in certain}
        assert len(scores) == 1, (
            f"{pool} by {len(scores)} different lists of scores, while {says}: where a score holds noise, give "
            "`Chosen` the mode “sampled” and the probability of the set, 1 where there is no other."
        )
        # Among equals the seed decides which stands first, as it does in `ranked`.
        orders = {decision.selected for decision in certain}
        assert equals or len(orders) == 1, (
            f"{pool} one set in {len(orders)} orders, while {says}: give `Chosen` the mode “sampled” and "
            "`log_propensity`, the logarithm of the probability of the order."
        )


def recalls_the_same_whatever_the_seed(make: Make) -> None:
    """Phase A draws only among equally similar memories: no propensity speaks of a pool that was drawn."""
    for policy, looked, _ in _looks(make, (_many(make), 0, False)):
        asked = looked.view.asked
        assert asked is not None
        views = (replace(looked.view, asked=replace(asked, seed=seed)) for seed in range(SEEDS // 4))
        pools = {frozenset(one.memory_id for one in policy.recall(asked.embedding, view).pool) for view in views}
        assert len(pools) == 1, (
            f"{SEEDS // 4} seeds recall {len(pools)} different pools, and the probability of none is recorded: draw in "
            "`select`, from a pool that does not depend on the seed."
        )


def says_how_likely_its_choice_was(make: Make) -> None:
    """A set of memories, or their order where `log_propensity` is given, is drawn as often as its probability says."""
    k2 = make().settings.k2
    for policy, looked, _ in _looks(make, (k2 + 1, 0, False), (k2 + 2, 0, True)):
        likely: dict[object, float] = {}
        drawn: Counter[object] = Counter()
        for seed in range(DRAWS):
            decision = decide(policy, looked.view, seed, pool=looked.recalled).decision
            broken = decision_breaks(looked.recalled, decision)
            assert not broken, f"Seed {seed}: {broken}."
            if seed == FEW and len(drawn) == 1 and next(iter(likely.values())) >= 1 - TOLERANCE:
                break
            ordered = decision.log_propensity is not None
            choice: object = decision.selected if ordered else frozenset(decision.selected)
            chance = likely.setdefault(choice, decision.propensity)
            assert abs(chance - decision.propensity) < ROUNDED, "One choice has two probabilities."
            drawn[choice] += 1
        total = sum(likely.values())
        assert total <= 1 + len(likely) * ROUNDED, f"The probabilities of the choices add up to {total:.3g}."
        count = drawn.total()
        for made, chance in likely.items():
            far = FARTHEST * math.sqrt(count * chance * max(0.0, 1 - chance)) + 2
            assert abs(drawn[made] - count * chance) <= far, (
                f"A choice of probability {chance:.3f} was drawn {drawn[made]} times of {count}."
            )


def _looks(make: Make, *runs: tuple[int, int, bool]) -> Iterator[tuple[Policy[Any], Looked, bool]]:
    """Pools to draw from many times, at the beginning and within a step, and whether they may hold equals.

    `runs` are those of so many memories and steps, of equals or not. What a policy writes in its steps may be alike.
    """
    for seed, (size, steps, equals) in enumerate(runs):
        world = World(make(), seed, size, steps, unmoved=("q", "visits") if equals else (), equals=equals)
        in_turn = world.look_in_turn(90, 1)
        for looked in (world.look(), *([in_turn[0]] if in_turn else ())):
            yield world.policy, looked, equals or steps > 0


def _many(make: Make) -> int:
    """More memories than one decision takes."""
    k2: int = make().settings.k2
    return max(12, k2 + 4)


def _by_id(candidate: Candidate) -> str:
    return candidate.memory_id


CHECKS: tuple[Callable[[Make], None], ...] = (
    has_a_card,
    chooses_from_the_pool,
    decides_alike_from_the_same_seed,
    works_in_later_turns,
    reports_what_it_learns,
    updates_only_the_credited,
    learns_where_its_card_says,
    writes_what_can_be_stored,
    has_a_state_that_can_be_copied,
    gives_what_can_be_stored,
    forgets_only_what_is_there,
    decides_alike_however_the_step_ends,
    reads_no_hidden_label,
    says_when_chance_chooses,
    recalls_the_same_whatever_the_seed,
    says_how_likely_its_choice_was,
)
"""Every check of the contract; each takes a function that makes the policy anew."""


def _decides_soundly(world: World, when: str) -> None:
    looked = world.look()
    broken = decision_breaks(looked.recalled, looked.decision)
    assert not broken, f"{when}: {broken}."
    world.render(looked.decision)


def _stored_alike(record: Any) -> None:
    with checked("A record"):
        same = read_again(type(record), record) == record
    assert same, f"{record!r:.80} is not the same after it was stored."


def _depends(first: World, second: World, tasks: Sequence[int] = (91,)) -> str:
    """What of two runs differs, by name, but for the q and visits that decisions note; "" where nothing does.

    Decisions are made for new tasks with these numbers.
    """
    alike = zip(_came_to(first, tasks).items(), _came_to(second, tasks).values(), strict=True)
    return next((name for (name, one), other in alike if one != other), "")


def _came_to(world: World, tasks: Sequence[int]) -> Mapping[str, Any]:
    """What a run's policy decides, learns, writes and forgets, by name."""
    looks = [world.look(task) for task in tasks]
    turns = [found and found[1] for found in (world.look_in_turn(task, 1) for task in tasks)]
    written = [one for outcome in OUTCOMES for one in world.write(world.trace(91, outcome))]
    return {
        "A decision": [(look.answers, _judged(look.recalled, look.decision)) for look in looks],
        "A prompt": [world.render(look.decision) for look in looks],
        "A decision within a step": [
            turn and (turn.why, turn.text, _judged(turn.recall, turn.decision)) for turn in turns
        ],
        "What is learned": dict(world.policy.values(world.state)),
        "What is written": [
            (one.operation, None if one.embedding is None else one.embedding.tolist()) for one in written
        ],
        "What is forgotten": world.forget(91)[1],
    }


def _judged(recalled: RecallRecord, decision: Decision) -> Any:
    """What both phases come to, without the q and visits that they note."""
    judged = [(c.memory_id, c.terms, c.score, c.rank_select, c.reason) for c in decision.candidates]
    return recalled, decision.selected, judged


def _decided(world: World) -> tuple[Mapping[str, Any], RecallRecord, Decision, Prompt]:
    looked = world.look()
    return looked.answers, looked.recalled, looked.decision, world.render(looked.decision)
