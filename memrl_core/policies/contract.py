"""What every policy must keep: made sound at each call for those of other packages, and as checks for an author.

    from memrl_core.policies.contract import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_policy_keeps_the_contract(check):
        check(lambda: MyPolicy(MySettings()))

A check raises `AssertionError` with a sentence. It needs no bank and no model: memories are made up.
"""

from __future__ import annotations

import copy
import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import isroutine
from types import NoneType
from typing import Any, get_type_hints

import numpy as np

from memrl_core.errors import PolicyFailed, SettingsError
from memrl_core.plugins import Breach, checked, guarded, read_again, shortened
from memrl_core.policies.base import Policy, PolicySpec, Written, changed_value
from memrl_core.policies.trial import OUTCOMES, Prompt, World
from memrl_core.records import Decision, MemoryOperation, Outcome, RecallRecord, Utility
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import PolicySettings

__all__ = ["CHECKS", "HOOKS", "World", "decision_breaks", "guarded_policy"]

Make = Callable[[], Policy[Any]]
TOLERANCE = 1e-9
DRAWS = 2000
FARTHEST = 5
"""Standard deviations between a probability and a share of `DRAWS` that are still taken for chance."""


# --- what a policy gives, made sound ----------------------------------------------------------------------------------

HOOKS: Mapping[str, Any] = {
    name: get_type_hints(getattr(Policy, name))["return"]
    for name, member in vars(Policy).items()
    if isroutine(member) and not name.startswith("_") and name not in ("ranked", "wide_recall")
}
"""The hooks of a policy and what each gives: no other type passes, and no infinite number or NaN."""


def guarded_policy(name: str, found: Any) -> type[Policy[Any]]:
    """`found` with its hooks guarded, known by `name` whatever its card says; a hook gives what the bank will hold.

    Raises `Breach` when it is no policy or could not be shown, `SettingsError` when its defaults fail.
    """
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise Breach("it is no subclass of memrl_core.policies.base.Policy")
    if not (isinstance(found.Settings, type) and issubclass(found.Settings, PolicySettings)):
        raise Breach("its `Settings` are no subclass of PolicySettings")
    if not isinstance(found.ignored, tuple | list) or not {*found.ignored} <= found.Settings.model_fields.keys():
        raise Breach("its `ignored` is no tuple of names of its settings")
    spec, plugin = sound_spec(getattr(found, "spec", None), name), f"policy “{name[:80]}”"

    def named(_: None, policy: Policy[Any], *__: Any) -> None:
        policy.spec = sound_spec(policy.spec, name)

    settings = guarded(found.Settings, plugin, SettingsError, {"of": lambda given, *_: given})
    made = guarded(found, plugin, SettingsError, {"__init__": named}, spec=spec, Settings=settings)
    made = guarded(made, plugin, PolicyFailed, {hook: functools.partial(_sound, hook) for hook in HOOKS})
    made(made.Settings.of({}))
    return made


def _sound(hook: str, given: Any, *called_with: Any) -> Any:
    """What a hook gave, as it is read once it was stored, if it fits what the hook was called with."""
    if HOOKS[hook] in (Any, NoneType):
        return given
    kept: Any = read_again(HOOKS[hook], given) if hook != "write" else ()
    strangers: list[str] = []
    if hook == "write":
        if not all(isinstance(one, Written) for one in given):
            raise Breach(f"{shortened(given)} is not a tuple of Written")
        kept = tuple(replace(one, operation=read_again(MemoryOperation, one.operation)) for one in given)
    elif hook == "select" and (broken := decision_breaks(called_with[1], given)):
        raise Breach(broken)
    elif hook == "forget" and (others := [one.op for one in kept if one.op != "DELETE"]):
        raise Breach(f"it gave {others[0]} instead of DELETE")
    elif hook == "credited":
        strangers = [memory_id for memory_id in kept if memory_id not in called_with[1].selected]
    elif hook == "update":
        strangers = [change.memory_id for change in kept if change.memory_id not in called_with[1]]
    if strangers:
        raise Breach(f"it named “{strangers[0][:80]}”, to which no reward goes")
    return kept


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
    """Rewards move q where `learns` says so; elsewhere nothing is credited, and q and visits decide nothing."""
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
        nothing = np.zeros(len(looked.view.ids))
        unlearned = replace(looked.view, q=nothing, visits=nothing.astype(np.int64))
        assert _judged(policy, looked.view) == _judged(policy, unlearned), (
            f"q or visits decide, and `learns` is “{learns}”: no memory is credited, so both stay as they began."
        )


def writes_what_can_be_stored(make: Make) -> None:
    """What is written has new ids, an embedding each, and takes the place of memories that are there."""
    for outcome in OUTCOMES:
        world = World(make(), 5)
        ids = set(world.memories)
        for written in world.write(7, outcome):
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
    try:
        copied = copy.deepcopy(world.state)
    except Exception as error:
        raise AssertionError(f"The state cannot be copied ({type(error).__name__}: {error}).") from None
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
    records += [written.operation for outcome in OUTCOMES for written in world.write(8, outcome)]
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
        world.write(90, outcome)
        world.forget(90)
        world.state = state
        assert _decided(world) == before, f"The decision knows that the step ended as {outcome}."


def reads_no_hidden_label(make: Make) -> None:
    """A task's family and data, which only the environment may know, change no decision and no memory."""
    first, second = (World(make(), 15, label=label) for label in ("one", "another"))
    assert _decided(first) == _decided(second), "A decision depends on the family or the data of tasks."
    for outcome in OUTCOMES:
        wrote = [[one.operation for one in world.write(91, outcome)] for world in (first, second)]
        assert wrote[0] == wrote[1], f"What is written after {outcome} depends on the family or the data of tasks."


def says_how_likely_its_order_was(make: Make) -> None:
    """Where the probability of an order is given, orders are drawn as often as it says."""
    for size in (3, 4):
        world = World(make(), 14, size=size, steps=0)
        looked = world.look()
        if looked.decision.log_propensity is None:
            continue
        likely: dict[tuple[str, ...], float] = {}
        drawn: Counter[tuple[str, ...]] = Counter()
        for seed in range(DRAWS):
            decision = world.policy.select(looked.recalled, looked.view, seed)
            broken = decision_breaks(looked.recalled, decision)
            assert not broken, f"Seed {seed}: {broken}."
            log_propensity = decision.log_propensity
            assert log_propensity is not None, f"Seed {seed}: the probability of the order is missing."
            chance = likely.setdefault(decision.selected, math.exp(log_propensity))
            assert abs(chance - math.exp(log_propensity)) < TOLERANCE, "One order has two probabilities."
            drawn[decision.selected] += 1
        assert sum(likely.values()) <= 1 + TOLERANCE, "The probabilities of the orders add up to more than 1."
        for order, chance in likely.items():
            far = FARTHEST * math.sqrt(DRAWS * chance * (1 - chance)) + 1
            assert abs(drawn[order] - DRAWS * chance) <= far, (
                f"An order of probability {chance:.3f} was drawn {drawn[order]} times of {DRAWS}."
            )


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
    says_how_likely_its_order_was,
)
"""Every check of the contract; each takes a function that makes the policy anew."""


def decision_breaks(recalled: RecallRecord, decision: Decision) -> str:
    """What is wrong with a decision about a pool."""
    pool = {member.memory_id for member in recalled.pool}
    missed = {member.memory_id for member in recalled.left_out}
    strangers = [i for i in (*decision.selected, *decision.greedy) if i not in pool]
    if strangers:
        return f"it chose “{strangers[0][:80]}”, which is not in the pool"
    if len(set(decision.selected)) < len(decision.selected):
        return "it chose a memory twice"
    if {c.memory_id for c in decision.candidates} != pool | missed:
        return "its candidates are not the pool and what missed it"
    for candidate in decision.candidates:
        if candidate.selected != (candidate.memory_id in decision.selected):
            return f"{candidate.memory_id[:80]} is called selected in one place and not in another"
        numbers = [n for t in candidate.terms for n in (t.raw, t.normalised, t.weight, t.contribution)]
        if not np.isfinite([*numbers, candidate.score or 0.0]).all():
            return f"a number of {candidate.memory_id[:80]} is not finite"
        total = sum(term.contribution for term in candidate.terms)
        if candidate.score is not None and abs(total - candidate.score) > 1e-6 * max(1.0, abs(total)):
            return f"the terms of {candidate.memory_id[:80]} add up to {total}, its score is {candidate.score}"
    chance, log = decision.propensity, decision.log_propensity
    if decision.draw is not None and not math.isfinite(decision.draw):
        return f"it drew the number {decision.draw}"
    if not -TOLERANCE <= chance <= 1 + TOLERANCE:
        return f"the probability of its choice is {chance}"
    if log is not None and not (log <= TOLERANCE and abs(chance - math.exp(log)) <= TOLERANCE):
        return f"the probability of its order is {chance}, and its logarithm {log}"
    return ""


def sound_spec(spec: Any, name: str) -> PolicySpec:
    """A card under the name by which the policy is known. Raises `Breach` for one that cannot be shown."""
    if not isinstance(spec, PolicySpec):
        raise Breach("`spec` is no PolicySpec")
    found: PolicySpec = read_again(PolicySpec, replace(spec, name=name), "`spec`")
    if found.variant == "adapted" and not found.deviations:
        raise Breach("`spec` is called adapted and names no deviations")
    return found


def _decides_soundly(world: World, when: str) -> None:
    looked = world.look()
    broken = decision_breaks(looked.recalled, looked.decision)
    assert not broken, f"{when}: {broken}."
    world.render(looked.decision)


def _stored_alike(record: Any) -> None:
    with checked("A record"):
        same = read_again(type(record), record) == record
    assert same, f"{record!r:.80} is not the same after it was stored."


def _judged(policy: Policy[Any], view: MemoryView) -> Any:
    """What a decision about a view comes to, without the q and visits that it notes."""
    assert view.asked is not None
    decision = policy.select(policy.recall(view.asked.embedding, view), view, 0)
    return decision.selected, [(c.memory_id, c.terms, c.score, c.rank_select, c.reason) for c in decision.candidates]


def _decided(world: World) -> tuple[Mapping[str, Any], RecallRecord, Decision, Prompt]:
    looked = world.look()
    return looked.answers, looked.recalled, looked.decision, world.render(looked.decision)
