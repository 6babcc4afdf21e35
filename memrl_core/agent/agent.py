"""One step of a memory-based agent, phase by phase.

The screen calls `Episode.advance` once a click, a headless run calls it to the end; the records are the same.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, repeat
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.agent.asking import Asking
from memrl_core.agent.follows import follows_of
from memrl_core.agent.learned_state import learn_at, learned_before, learned_now
from memrl_core.agent.turns import ended, no_answer, recalled_for, take_turn, unsent, with_turn, write_experience
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.embedders.base import Embedder, Vectors, embedded, texts_cut
from memrl_core.environments.base import Environment
from memrl_core.environments.tasks import check_intent
from memrl_core.errors import (
    InputError,
    ModelError,
    ModelInterrupted,
    ModelSlow,
    NoVector,
    PolicyFailed,
    StepError,
    what_happened,
)
from memrl_core.learning import earned
from memrl_core.learning.fold import Earned
from memrl_core.models.base import THINKING, Cancelled, LanguageModel, ModelOptions, OnText, checked_options
from memrl_core.policies import make_policy
from memrl_core.policies.base import NewExperience, Vector, outcome_judged, outcome_now
from memrl_core.policies.decide import decide
from memrl_core.prompting import USUAL, offered, without_tried
from memrl_core.records import (
    Consulted,
    Decision,
    EmbedRecord,
    Follows,
    GenerateRecord,
    Judgement,
    LedgerEvent,
    Memory,
    MemoryOperation,
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
    ValueChange,
    WriteRecord,
)
from memrl_core.retrieval.view import Asked, MemoryView

PhaseRecord = EmbedRecord | RecallRecord | Decision | GenerateRecord | RewardRecord | UpdateRecord | WriteRecord

NO_VECTOR = np.zeros(0, dtype=np.float32)
NO_ANSWER_YET = "The episode has not ended."
STOPPED = "The answer was stopped: it is kept, and earns no reward unless a person gives one."
NOTHING_TO_WRITE = "the model gave no answer"


class Agent:
    """A run of a bank together with the model, embedder and environment that advance it."""

    def __init__(
        self,
        bank: MemoryBank,
        run: str,
        model: LanguageModel,
        embedder: Embedder,
        environment: Environment,
        options: ModelOptions | None = None,
    ) -> None:
        self.bank = bank
        self.run_id = run
        self.model = model
        self.embedder = embedder
        self.environment = environment
        self._seen: tuple[int, MemoryView] | None = None
        self._chosen = options.model_dump() if options else checked_options(bank.run(run).model_options)

    @property
    def options(self) -> ModelOptions:
        """The options of its model: those of the run, and the environment's limit of an answer where it has none."""
        limit = self.environment.spec.answer_tokens + (THINKING if self._chosen.get("think") else 0)
        return ModelOptions.model_validate({"num_predict": limit, **self._chosen})

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The unit vectors (n, d) of `texts`. Raises `ModelError` for an embedder that gives anything else."""
        return embedded(self.embedder, texts)

    def as_of(self, step: int) -> MemoryView:
        """What the run saw when a step had ended; kept for the steps of one mini-batch."""
        if self._seen is None or self._seen[0] != step:
            self._seen = step, self.bank.view(self.run_id, step)
        return self._seen[1]

    def begin(self, task: Task, epoch: int = 1) -> Episode:
        """Start the next step of the run on `task`; nothing is stored before the step ends or a person rates it.

        A task whose data hold `wordings` is asked in another of these each epoch.
        """
        wordings = task.data.get("wordings")
        if isinstance(wordings, list) and wordings:
            task = replace(task, intent=check_intent(str(wordings[(epoch - 1) % len(wordings)])))
        return Episode(self, task, epoch)

    def run(
        self,
        tasks: Sequence[Task],
        epochs: int = 1,
        cancelled: Cancelled | None = None,
        on_text: OnText | None = None,
        on_move: Callable[[Episode], None] | None = None,
        after: int = 0,
    ) -> Iterator[StepTrace]:
        """Every task once an epoch, in order, but for the first `after` steps; yields each trace after it was appended.

        When `cancelled()` turns true the step under way is dropped and the iteration ends; earlier steps are kept. A
        model that fails in the middle of an answer is asked once more, and a task with a text that has no vector is
        skipped (`Episode.skip`).
        `on_move` gets the episode before each phase and each turn, `on_text` each piece of text.
        """
        steps = [(epoch, task) for epoch in range(1, epochs + 1) for task in tasks]
        for epoch, task in steps[after:]:
            episode = self.begin(task, epoch)
            while episode.phase is not None:
                if cancelled is not None and cancelled():
                    return
                if on_move is not None:
                    on_move(episode)
                try:
                    episode.advance(on_text, cancelled)
                except NoVector as error:
                    episode.skip(error)
                except ModelInterrupted:
                    if episode.failed > 1:
                        raise
            yield episode.trace


class Episode:
    """One step under way.

    `phase` is the phase that runs next (None when the step has ended); `trace` holds what has happened; `observation`
    is what the environment last said; `interrupted` the text that had arrived when the last model call failed, and
    `failed` how often it has failed in the middle: the next attempt takes another seed.
    """

    def __init__(self, agent: Agent, task: Task, epoch: int) -> None:
        self._agent = agent
        bank, run = agent.bank, agent.run_id
        info = bank.run(run)
        step = bank.next_step(run)
        settings = bank.settings(run)
        self.policy = make_policy(info.policy, settings)
        self.seed = step_seed(info.seed, step)
        self._options = agent.options.model_copy(update={"seed": self.seed % 2**31})
        self.trace = StepTrace(
            id=uuid.uuid4().hex,
            run=run,
            step=step,
            epoch=epoch,
            task=task,
            policy=info.policy,
            settings=settings,
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        self.phase: Phase | None = Phase.EMBED
        self.interrupted = ""
        self.failed = 0
        self._query = NO_VECTOR
        self._view: MemoryView  # From RECALL on.
        self._in_batch = False
        self._vectors: Mapping[str, npt.NDArray[np.float32]] = {}
        self._left_out: tuple[str, ...] = ()
        self._stopped = False
        self._turn_recall: tuple[int, TurnRecall | None] = (0, None)
        self._earned: tuple[Earned, ...] = ()
        self._info: Mapping[str, Any] = {}
        self._asked_before: tuple[Consulted, ...] = ()
        self.observation = agent.environment.reset(task, seed=self.seed, at_step=step)
        bank.write.begin_step(run, step)

    def advance(self, on_text: OnText | None = None, cancelled: Cancelled | None = None) -> PhaseRecord:
        """Run the next phase and return its record; in GENERATE, run one turn.

        Raises `StepError` when the step has ended, and whatever the phase raises: the phase can then be run again and
        nothing that came before is lost.
        """
        if self.phase is None:
            raise StepError("This step has ended. Begin the next task.")
        phase = self.phase
        begun = time.perf_counter()
        try:
            field, run = _PHASES[phase]
            record = run(self, on_text, cancelled)
        except (ModelInterrupted, ModelSlow):
            self.failed += 1
            raise
        self.failed = 0
        spent = {**self.trace.seconds, phase: self.trace.seconds.get(phase, 0.0) + time.perf_counter() - begun}
        changes: dict[str, Any] = {"seconds": spent, field: record}
        self.trace = replace(self.trace, **changes)
        if phase is Phase.WRITE:
            try:
                self.trace = self._agent.bank.write.commit_step(self.trace, self._vectors)
            except (PolicyFailed, InputError):
                self.trace = replace(self.trace, write=None)  # What cannot be stored at all has to be made anew.
                raise
        self.phase, self._asked_before = self._after(phase), self.trace.consulted
        return record

    def finish(self, on_text: OnText | None = None, cancelled: Cancelled | None = None) -> StepTrace:
        """Run all phases that are left."""
        while self.phase is not None:
            self.advance(on_text, cancelled)
        return self.trace

    def keep_partial(self) -> GenerateRecord:
        """End GENERATE with what had arrived when the model failed, marked as stopped; a person may still rate it.

        Raises `StepError` when no answer is under way.
        """
        if self.phase is not Phase.GENERATE:
            raise StepError("No answer is under way.")
        record = self.trace.generate or self.prompt()
        at, recalled = self._turn_recall
        sent = recalled if at == len(record.turns) else None
        reply = Reply(self.interrupted, stopped=True)
        turn = Turn(reply, "", 0.0, terminated=False, truncated=False, recalled=sent, left_out=self._left_out)
        self._stopped = True
        record = self._after_turn(record, turn)
        self.trace = replace(self.trace, generate=record)
        self.phase = Phase.REWARD
        return record

    def skip(self, error: NoVector) -> StepTrace:
        """End the step without the phases that are left, and store it, so that the run goes on with the next task.

        There is no reward unless the step had one, and no memory; the trace says which text has no vector.
        Raises `StepError` when the step has ended.
        """
        if self.phase is None:
            raise StepError("This step has ended. Begin the next task.")
        why = what_happened(error)
        short = "the step was skipped" if self.trace.reward is None else why
        nothing = MemoryOperation("NOOP", "", self.trace.task.intent, "", "unrated", "", 0.0, (), why=short)
        self.trace = replace(
            self.trace,
            reward=self.trace.reward or RewardRecord(None, None, "unrated", f"Skipped: {why}.", "", "", ()),
            update=self.trace.update or UpdateRecord(()),
            write=WriteRecord((nothing,)),
        )
        self.trace = self._agent.bank.write.commit_step(self.trace, {})
        self.phase = None
        return self.trace

    @property
    def generated(self) -> bool:
        """Whether GENERATE has come to its end."""
        return self.phase in (Phase.REWARD, Phase.UPDATE, Phase.WRITE, None)

    @property
    def verdict(self) -> str:
        """What the environment says of the episode."""
        if self._stopped:
            return STOPPED
        if self.unanswered:
            return no_answer(self.trace.turns, self.trace.seconds.get(Phase.GENERATE, 0.0))
        return str(self._info.get("verdict", NO_ANSWER_YET))

    @property
    def judgement(self) -> Judgement | None:
        """How the environment came to its verdict, None where it does not say; for people alone."""
        return None if self._stopped or self.unanswered else self._info.get("judgement")

    @property
    def unanswered(self) -> bool:
        """Whether the episode has ended and the model said nothing in any turn: that tells nothing of its memories."""
        return self.generated and not (self.trace.generate and self.trace.generate.answered)

    @property
    def judged_by_a_person(self) -> bool:
        """Whether the environment leaves the verdict to people: always, or on this task."""
        by_person = self._agent.environment.reward_source == "person"
        return by_person or (self.generated and self._info.get("success", True) is None)

    @property
    def awaits_reward(self) -> bool:
        """Whether a person is to give the reward now, and nobody has."""
        return self.phase is Phase.REWARD and self.judged_by_a_person and not self._given()

    @property
    def environment_reward(self) -> float | None:
        """The environment's reward on the policy's scale; None when it gives none, or there is no whole answer."""
        if self.judged_by_a_person or self._stopped or not self.generated or self.unanswered:
            return None
        assert self.trace.generate is not None
        return self.policy.reward_of(self.trace.generate.turns[-1].reward)

    @property
    def follows(self) -> Follows | None:
        """Which memories of the prompt the answer follows; None where that cannot be known (see `follows_of`)."""
        if not self.generated or self.unanswered:
            return None
        return follows_of(self.trace.task, self.trace.generate, self.judgement)

    @property
    def credited(self) -> tuple[str, ...]:
        """The memories whose q a reward moves."""
        return () if self.trace.decision is None else self.policy.credited(self.trace.decision, self.follows)

    def preview(self) -> tuple[ValueChange, ...]:
        """The moves of q that UPDATE is about to make; none while there is no reward. Nothing is stored."""
        if self.trace.reward is not None:
            return self._moves(self._earned)
        return self._moves(earned(self.environment_reward, self._people(), self.trace.settings))

    def prompt(self) -> GenerateRecord:
        """What GENERATE sends first, as a record without turns. Raises `StepError` before phase B has selected."""
        agent, decision = self._agent, self.trace.decision
        if decision is None:
            raise StepError("There is no prompt before phase B has selected the memories.")
        selected = [self._as_it_counts(agent.bank.memory(memory_id)) for memory_id in decision.selected]
        messages, spans = self.policy.render(
            selected, agent.environment.instructions, self.trace.task.intent, self.observation, self._view
        )
        listed = not agent.model.simulated and offered(self.observation)
        layout = self._options.layout or ("transcript" if listed else "block")
        options = {**self._options.model_dump(), "layout": layout}
        usual = {name: options[name] or value for name, value in USUAL.items()}
        return GenerateRecord(agent.model.name, agent.model.simulated, {**options, **usual}, messages, spans, ())

    def _as_it_counts(self, memory: Memory) -> Memory:
        """A memory with the outcome of its step as it counts now: a person may have judged it otherwise since.

        Only what the environment laid out is laid out anew; the words of a model were about the other outcome.
        """
        bank, world = self._agent.bank, self._agent.environment
        reward = bank.ratings.effective(memory.run, memory.step)
        if reward is None or self.policy.outcome_of(reward) == memory.outcome:
            return memory
        trace = bank.trace(memory.run, memory.step)
        outcome = outcome_now(self.policy, trace, reward)
        own = world.distil(trace.task, trace.turns, memory.outcome) if trace.task.environment == world.name else ""
        if outcome == memory.outcome or not own or not memory.experience.startswith(own.strip()):
            return memory
        return replace(memory, outcome=outcome, experience=world.distil(trace.task, trace.turns, outcome))

    def rate(self, value: float, rater: str, reason: str = "", given: Mapping[str, Any] | None = None) -> LedgerEvent:
        """Append a person's reward for this step at once; it takes the place of the environment's.

        `given` is kept with it: the scale and what they chose there.

        Raises `StepError` before there is an answer and after the reward was applied, and as `RatingsWriter.rate`.
        """
        if self.phase is not Phase.REWARD:
            raise StepError("A reward can be given here once the answer has ended and until it is applied.")
        trace, attempt = self.trace, self.trace.id
        rating = Rating(trace.run, trace.step, value, rater, reason, given or {}, attempt, self.credited)
        return self._agent.bank.write.ratings.rate(rating)

    def _after(self, phase: Phase) -> Phase | None:
        if phase is Phase.GENERATE and not ended(self.trace.turns[-1]):
            return phase
        return _NEXT[phase]

    def _embed(self, on_text: OnText | None, cancelled: Cancelled | None) -> EmbedRecord:
        embedder = self._agent.embedder
        cut_before = texts_cut(embedder)
        (self._query,) = self._agent.embed([self.policy.key(self._asked(NO_VECTOR))])
        cut = texts_cut(embedder) > cut_before
        return EmbedRecord(embedder.name, embedder.dimension, tuple(self._query.tolist()), cut=cut)

    def _asked(self, embedding: Vector, turn: int = 0, answers: Mapping[str, Any] | None = None) -> Asked:
        task = self.trace.task
        seen = without_tried(self.observation)
        return Asked(embedding, task.id, task.intent, seen, turn, self.trace.step, answers or {}, self.seed)

    def _recall(self, on_text: OnText | None, cancelled: Cancelled | None) -> RecallRecord:
        bank, run = self._agent.bank, self.trace.run
        until = bank.steps.seen_until(run, self.trace.step, self.trace.epoch)
        self._in_batch = until < self.trace.step - 1
        learned = learned_before(bank, run, until + 1) if self._in_batch else learned_now(bank, run)
        seen = self._agent.as_of(until) if self._in_batch else bank.view(run)
        self._view = replace(seen, asked=self._asked(self._query), learned=learned)
        return self.policy.recall(self._query, self._view)

    def _select(self, on_text: OnText | None, cancelled: Cancelled | None) -> Decision:
        assert self.trace.recall is not None
        ask = self._asking(Phase.SELECT, on_text, cancelled)
        try:
            made = decide(self.policy, self._view, self.seed, pool=self.trace.recall, ask=ask)
        except ModelError:  # What was asked of a model that then failed is asked again.
            raise
        except Exception:
            self._keep(ask)
            raise
        self._keep(ask)
        self._view = made.view
        return made.decision

    def _recalled_in_turn(self, turn: int, cancelled: Cancelled | None) -> TurnRecall | None:
        """Both phases before a later turn of the episode, where the policy asks for them.

        Once a turn: when the answer fails and is asked for again, what was recalled for it stands.
        """
        at, known = self._turn_recall
        if at == turn:
            return known
        assert self._view.asked is not None
        asked, seed = self._asked(self._view.asked.embedding, turn), step_seed(self.seed, turn)
        ask = self._asking(Phase.GENERATE, None, cancelled)
        found = recalled_for(self.policy, asked, self._view, self._agent.embed, ask, seed)
        self._keep(ask)
        self._turn_recall = turn, found
        return found

    def _asking(self, phase: Phase, on_text: OnText | None, cancelled: Cancelled | None) -> Asking:
        return Asking(self._agent.model, self._options.again(self.failed), phase, on_text, cancelled)

    def _keep(self, ask: Asking) -> None:
        """What was asked stands in the trace, in the place of an earlier attempt at the same phase or turn."""
        self.trace = replace(self.trace, consulted=(*self._asked_before, *ask.asked))

    def _generate(self, on_text: OnText | None, cancelled: Cancelled | None) -> GenerateRecord:
        agent, decision = self._agent, self.trace.decision
        assert decision is not None
        record = self.trace.generate or self.prompt()
        recalled = self._recalled_in_turn(len(record.turns), cancelled) if record.turns else None
        try:
            turn, info = take_turn(
                agent.model, agent.environment, record, on_text, cancelled, recalled, self.failed, decision.selected
            )
        except ModelInterrupted as error:
            # What an earlier attempt got is worth more than nothing.
            self.interrupted, self._left_out = error.partial or self.interrupted, error.left_out
            raise
        self.interrupted = ""
        if turn.reply.stopped:
            self._stopped = True
        else:
            self.observation, self._info = turn.observation, info
        return self._after_turn(record, turn)

    def _after_turn(self, record: GenerateRecord, turn: Turn) -> GenerateRecord:
        """`record` with `turn`; the decision says which memories were never sent."""
        decision = self.trace.decision
        if not record.turns and turn.left_out and decision is not None:
            self.trace = replace(self.trace, decision=unsent(decision, turn.left_out))
        return with_turn(record, turn)

    def _reward(self, on_text: OnText | None, cancelled: Cancelled | None) -> RewardRecord:
        given = self._given()
        self.trace = replace(self.trace, follows=self.follows)
        self._earned = earned(self.environment_reward, self._people(), self.trace.settings)
        reward = fmean(part.value for part in self._earned) if self._earned else None
        return RewardRecord(
            reward=reward,
            source=self._earned[-1].source if self._earned else None,
            outcome=self._outcome(reward),
            verdict=self.verdict,
            rater=", ".join(event.rater for event in given),
            reason=" · ".join(event.reason for event in given if event.reason),
            credited=self.credited,
            environment=self.environment_reward,
            judgement=self.judgement,
        )

    def _given(self) -> list[LedgerEvent]:
        return self._agent.bank.ratings.active(self.trace.run, self.trace.step, self.trace.id)

    def _people(self) -> dict[str, float]:
        return {event.rater: event.value or 0.0 for event in self._given()}

    def _outcome(self, reward: float | None) -> Outcome:
        by_people = any(part.source == "person" for part in self._earned)
        return outcome_judged(self.policy, reward, None if by_people else self._info.get("success"))

    def _update(self, on_text: OnText | None, cancelled: Cancelled | None) -> UpdateRecord:
        assert self.trace.reward is not None and self.trace.decision is not None
        ask = self._asking(Phase.UPDATE, on_text, cancelled)
        prompted = [self._agent.bank.memory(memory_id) for memory_id in self.trace.decision.selected]
        self.policy.review(self.trace, prompted, ask)
        self._keep(ask)
        learned = learn_at(self._agent.bank, self.trace, self.trace.reward.reward, self.trace.reward.outcome)
        return UpdateRecord((*self._moves(self._earned), *learned))

    def _moves(self, rewards: Sequence[Earned]) -> tuple[ValueChange, ...]:
        """How the rewards move q, one after the other."""
        values = dict(self._agent.bank.utilities(self.trace.run, of=self.credited))
        # A memory may have been forgotten since it was selected.
        known = [memory_id for memory_id in self.credited if memory_id in values]
        changes: list[ValueChange] = []
        for part in rewards:
            moved = self.policy.update(known, part.value, values)
            values |= {change.memory_id: Utility(change.after, change.visits) for change in moved}
            changes += moved
        return tuple(changes)

    def _write(self, on_text: OnText | None, cancelled: Cancelled | None) -> WriteRecord:
        agent, trace = self._agent, self.trace
        assert trace.generate is not None and trace.reward is not None
        if trace.write is not None:  # What could not be appended is not written a second time under another name.
            return trace.write
        if self.unanswered:
            nothing = MemoryOperation("NOOP", "", trace.task.intent, "", "unrated", "", 0.0, (), why=NOTHING_TO_WRITE)
            self._vectors = {}
            return WriteRecord((nothing,))
        experience = write_experience(
            agent.model, agent.environment, trace, on_text, cancelled, self.policy.wants_summary, self.failed
        )
        memory_id = agent.bank.write.next_memory_id(trace.run)
        new = NewExperience(
            memory_id,
            trace.task.intent,
            self._query,
            experience,
            trace.reward.outcome,
            trace.decision.selected if trace.decision is not None else (),
            trace,
            map("{}-{}".format, repeat(memory_id), count(2)).__next__,
            agent.embed,
        )
        # Within a mini-batch nothing is known of what its earlier steps wrote.
        now = self._view if self._in_batch else agent.bank.view(trace.run)
        view = replace(now, asked=self._view.asked, learned=self._view.learned)
        ask = self._asking(Phase.WRITE, on_text, cancelled)
        written = self.policy.write(new, view, ask)
        self._keep(ask)
        self._vectors = {w.operation.memory_id: w.embedding for w in written if w.embedding is not None}
        return WriteRecord((*(w.operation for w in written), *self.policy.forget(view)))


def step_seed(run_seed: int, step: int) -> int:
    """The seed of everything random in a step: equal for equal steps of runs with equal seeds."""
    return int(np.random.SeedSequence([run_seed, step]).generate_state(1, np.uint32)[0])


_PHASES: dict[Phase, tuple[str, Callable[[Episode, OnText | None, Cancelled | None], PhaseRecord]]] = {
    Phase.EMBED: ("embed", Episode._embed),
    Phase.RECALL: ("recall", Episode._recall),
    Phase.SELECT: ("decision", Episode._select),
    Phase.GENERATE: ("generate", Episode._generate),
    Phase.REWARD: ("reward", Episode._reward),
    Phase.UPDATE: ("update", Episode._update),
    Phase.WRITE: ("write", Episode._write),
}
"""The order of the work: the field of the trace that each phase fills, and what fills it."""
_NEXT: dict[Phase, Phase | None] = dict(zip(Phase, [*[*Phase][1:], None], strict=True))
