"""Memento (AgentFly): past cases before the model, read by similarity or by a learned value of (task, case).

Source: arXiv 2508.16153, non-parametric and parametric memory, and its episodic control with a kernel; follows the card
“Memento / AgentFly”.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import expit

from memrl_core.policies.base import Lesson, Policy, PolicySpec, UngatedSettings, Variant, Vector, learned_in
from memrl_core.policies.ranking import Chosen, Floats, TermColumn, best_first, chance_of, similar
from memrl_core.records import Decision, Memory, Outcome, Reason, Recalled, RecallRecord, ValueChange
from memrl_core.retrieval import exact_similarity
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import usual

PAPER_K, CODE_K = 4, 8
UNUSED_Q = 0.5
"""Q of a case without past uses."""
BATCH = 32
"""Rows in one step of learning."""

_CASES = (
    "Only the case memory is the paper's, not its planner and executor: a plan is the environment's list of the "
    "actions that mattered, or of what went wrong, and embeddings are the bank's. How cases are kept, found and "
    "shown is as in the source."
)
_UNCUT = "No text is cut before it is embedded; the source cuts it at 256 tokens."
_SAME_LABEL = "Every case of the prompt gets the whole task's outcome as its label, whether it helped or not."

SPEC = PolicySpec(
    name="memento",
    title="Memento",
    citation="arXiv 2508.16153",
    variant="paper",
    deviations=(_CASES, _UNCUT),
    idea="Past cases (task, plan, outcome r) are put before the model: the K most like the task, those that worked to "
    "follow and those that failed to avoid. Two other reads, kernel and network, learn a value that belongs to the "
    "pair of task and case, which MemRL's q does not.",
    record="A case for each episode: embedding of the task, plan, outcome.",
    recall="The k1 cases most similar to the task; no gate, unless δ is above −1.",
    select="The K = k2 most similar.",
    update="Nothing that selection goes by. The outcome of every use is noted, so that another read can be tried out.",
    write="One case an episode, positive or negative.",
    cannot="A similar case that never helps is read for ever: like RAG, this read values no case.",
    carries_over="Every memory is a case.",
    learns="nothing",
    needs=("episode reward",),
    variants=("paper", "code", "adapted"),
)

KERNEL = replace(
    SPEC,
    title="Memento, kernel",
    variant="adapted",
    deviations=(
        "The kernel is a fixed Gaussian of frozen embeddings; in the paper it is learned, and the released "
        "code has no kernel.",
        "A case without past uses has no value in the paper; here its Q is 0.5.",
        "Only each task's beginning counts as a state, so the reward is the whole target: nothing is bootstrapped.",
        "The paper derives the policy μ = softmax(Q / α), which draws one case; here the K highest are taken.",
        _CASES,
        _UNCUT,
    ),
    idea="Q(s, c) is the mean outcome of the past uses of case c, weighted by how like their tasks were to this one. "
    "MemRL's q belongs to the memory; this value belongs to the pair of task and case, and knows who asks.",
    select="The K = k2 with the highest Q_EC(s, c) = Σ k(s, s′) Q′ / Σ k(s, s′) over the past uses of c; equal values "
    "go to the more similar.",
    update=f"(s, r) joins the past uses of every case of the prompt. {_SAME_LABEL}",
    cannot="A single past use decides for every task, however unlike: Σ k Q′ / Σ k is then Q′ itself.",
    carries_over="Every memory is a case. Steps of other policies teach it as its own do: what was in their prompts, "
    "and how the task ended; what came before the run's first step it has not seen.",
    learns="kernel",
)

NETWORK = replace(
    SPEC,
    title="Memento, network",
    variant="adapted",
    deviations=(
        "The paper trains its text encoder with the network; here embeddings are frozen and pass a fixed random "
        "projection to 64 dimensions.",
        "[e_s; e_c; e_s ⊙ e_c; r_c] → 64 → 1 with ReLU and one Adam step on a replay batch a task; the paper puts "
        "two layers on SimCSE, the released code retrains encoder and head, with dropout and class weights.",
        "Until there are enough labelled rows with both outcomes the K most similar are taken (setting).",
        _CASES,
        _UNCUT,
    ),
    idea="A small network learns p(r = 1 | s, c), the chance that case c helps in task s. MemRL's q belongs to the "
    "memory, not to (query, memory); this value is computed anew for each pair.",
    recall="The whole bank: every case is scored, and the k1 with the highest p are handed on.",
    select="The K = k2 with the highest p(r = 1 | s, c; θ); by similarity as long as too little was learned.",
    update=f"One Adam step of binary cross-entropy on a replay batch of (s, c, r). {_SAME_LABEL}",
    cannot="It needs many labelled uses before its chances say more than similarity does; until then it can do worse.",
    carries_over=KERNEL.carries_over,
    learns="network",
)

Read = Literal["similar", "kernel", "network"]
SPECS: Mapping[Read, PolicySpec] = {"similar": SPEC, "kernel": KERNEL, "network": NETWORK}


class MementoSettings(UngatedSettings):
    """The parameters of Memento, and of the parts that the paper leaves to the reader."""

    k1_counts: Literal["record", "intent"] = usual(
        "k1_counts", "record", "record: k1 cases. intent: all cases of the k1 nearest intents. Not used by `network`."
    )
    k2: int = usual(
        "k2",
        PAPER_K,
        "The method's K: 4 in the paper, which tried 1 to 32, and 8 in the released code.",
        title="k2 · cases in the prompt",
    )
    reward_failure: float = usual("reward_failure", 0.0, "Also thumbs down. The paper's r is 0 or 1.")
    read: Read = Field(
        "similar",
        title="Read",
        description="similar: the K most alike. kernel: by the outcomes of past uses, weighted by how alike their "
        "tasks were. network: by a learned chance to help, over the whole bank.",
    )
    bandwidth: float = Field(0.5, ge=0.1, le=5, title="h · width of the kernel", description="Used by `kernel` only.")
    cold_rows: int = Field(
        30,
        ge=2,
        le=100_000,
        title="Rows before the network decides",
        description="Labelled rows, with both outcomes among them; until then the most similar are taken.",
    )
    learning_rate: float = Field(
        0.003, gt=0, le=0.1, title="η · learning rate", description="Adam's step size. Used by `network` only."
    )


def card(settings: MementoSettings) -> PolicySpec:
    """The card of the read in force, with whose rules the settings make it."""
    spec, differences = SPECS[settings.read], tuple(_differences(settings))
    if spec.variant == "adapted":
        return replace(spec, deviations=(*spec.deviations, *differences))
    variant: Variant = "adapted" if settings.delta > -1 else "code" if settings.k2 == CODE_K else "paper"
    return replace(spec, variant=variant, deviations=(*spec.deviations, *differences))


def _differences(settings: MementoSettings) -> Iterator[str]:
    if settings.k2 not in (PAPER_K, CODE_K):
        yield f"K = {settings.k2}; the paper sets {PAPER_K}, its released code {CODE_K}. The rule is the same."
    if settings.read != "network" and settings.delta > -1:
        yield "Recall has a similarity gate δ; the source has none."


# --- the policy -------------------------------------------------------------------------------------------------------


class Memento(Policy[MementoSettings]):
    """Memento with one of its three reads."""

    spec = SPECS["similar"]
    Settings = MementoSettings

    def __init__(self, settings: MementoSettings) -> None:
        super().__init__(settings)
        self.spec = card(settings)

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """The k1 most similar; for the network the k1 best of the whole bank."""
        if self.settings.read != "network":
            return super().recall(query, view, coarse)

        def by_chance_to_help(members: Sequence[Recalled]) -> Sequence[int]:
            order: list[int] = best_first(self._judged(members, view)[0].contribution, members, "older", 0).tolist()
            return order

        found = self.wide_recall(query, view, by_chance_to_help, coarse=coarse)
        return replace(found, rule="everything", why="The network scores every case; the k1 best are the pool.")

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The K best by similarity, Q_EC or p."""
        settings, pool = self.settings, recalled.pool
        terms, cold, note = self._judged(pool, view)
        chosen = None
        if cold:
            order = best_first(terms.contribution, pool, settings.ties, seed)
            taken = order[: settings.k2].tolist()
            chance, _ = chance_of(taken, terms.contribution, order, pool, settings.ties)
            chosen = Chosen(taken, "cold", chance, reasons=dict.fromkeys(taken, Reason.COLD_START))
        return self.ranked(recalled, view, [terms], seed, chosen=chosen, note=note)

    def start(self, memories: Sequence[Memory]) -> Cases:
        """No use of any case yet."""
        return Cases()

    def learn(self, state: Cases, lesson: Lesson) -> tuple[ValueChange, ...]:
        """Every case of the prompt gets the whole task's outcome as its label (r = 1 success, 0 failure)."""
        trace = lesson.trace
        if lesson.outcome == "unrated" or trace.embed is None or trace.decision is None or not trace.decision.selected:
            return ()
        asked = np.asarray(trace.embed.embedding, dtype=np.float32)
        used, outcome = trace.decision.selected, LABELS[lesson.outcome]
        predicted, weights = self._predicted(state, asked, used, lesson)
        state.states.append(asked)
        for memory_id, prediction in zip(used, predicted, strict=True):
            case_outcome = lesson.memory_of(memory_id).outcome
            state.add_use(memory_id, lesson.embedding_of(memory_id), case_outcome, outcome, prediction)
        if self.settings.read == "kernel":
            return self._valued(state, asked, used, outcome, predicted, weights)
        return self._trained(state, trace.step, len(used), outcome) if self.settings.read == "network" else ()

    def values(self, state: Cases) -> Mapping[str, float]:
        """kernel: Q_EC of each case where it was used last. network: the loss of the last batch, and the rows."""
        if self.settings.read == "kernel":
            return dict(state.worth)
        if self.settings.read == "network" and state.losses:
            return {"loss": state.losses[-1].after, "rows": float(state.losses[-1].rows)}
        return {}

    def _judged(self, members: Sequence[Recalled], view: MemoryView) -> tuple[TermColumn, bool, str]:
        """What these are ranked by, whether that is for want of anything learned, and a note about it."""
        settings, alike = self.settings, TermColumn("similarity", similar(members))
        cases = learned_in(view, Cases)
        if settings.read == "similar" or not members:
            return alike, False, ""
        if view.asked is None:
            return alike, True, "Taken by similarity: the embedding of what is asked is not known."
        ids = [member.memory_id for member in members]
        if settings.read == "kernel":
            values, weights = episodic_values(cases, view.asked.embedding, ids, settings.bandwidth)
            known = int((weights > 0).sum())
            note = f"{known} of {len(ids)} cases have past uses; the others count as Q = {UNUSED_Q:g}."
            return TermColumn("Q_EC(s, c)", values), known == 0, note
        if cases.network is None or not cases.enough(settings.cold_rows):
            return alike, True, self._why_cold(cases)
        rows = [view.position(memory_id) for memory_id in ids]
        outcomes = np.array([LABELS[view.memories[memory_id].outcome] for memory_id in ids], dtype=np.float64)
        p = chances(cases.network, view.asked.embedding, view.embeddings[rows], outcomes)
        return TermColumn("p(r = 1 | s, c)", p), False, f"θ after {cases.network.steps} steps of learning."

    def _why_cold(self, cases: Cases) -> str:
        rows, wanted = len(cases.uses), self.settings.cold_rows
        if rows < wanted:
            return f"Taken by similarity: {rows} of the {wanted} labelled rows that the network needs."
        if not cases.enough(wanted):
            return f"Taken by similarity: all {rows} labelled rows have the same outcome."
        return "Taken by similarity: no network was trained in this run."

    def _predicted(
        self, cases: Cases, asked: Vector, used: Sequence[str], lesson: Lesson
    ) -> tuple[list[float], list[float]]:
        """What was predicted of each use before its outcome was known (NaN: nothing), and the kernel's Σ k."""
        nothing = [float("nan")] * len(used)
        if self.settings.read == "kernel":
            values, weights = episodic_values(cases, asked, used, self.settings.bandwidth)
            return np.where(weights > 0, values, np.nan).tolist(), weights.tolist()
        if self.settings.read == "network" and cases.network is not None and cases.enough(self.settings.cold_rows):
            vectors = np.stack([lesson.embedding_of(memory_id) for memory_id in used])
            outcomes = np.array([LABELS[lesson.memory_of(memory_id).outcome] for memory_id in used])
            return chances(cases.network, asked, vectors, outcomes).tolist(), nothing
        return nothing, nothing

    def _valued(
        self,
        cases: Cases,
        asked: Vector,
        used: Sequence[str],
        outcome: float,
        predicted: Sequence[float],
        weights: Sequence[float],
    ) -> tuple[ValueChange, ...]:
        """Q_EC of each case in this state before and after its new use."""
        after, _ = episodic_values(cases, asked, used, self.settings.bandwidth)
        changes = []
        for index, memory_id in enumerate(used):
            now, weight = float(after[index]), weights[index]
            before = predicted[index] if weight > 0 else UNUSED_Q
            uses = len(cases.of([memory_id])[1])
            cases.worth[memory_id] = now
            formula = (
                f"Σ k Q′ / Σ k = ({weight:.3f} × {before:.3f} + 1 × {outcome:g}) / ({weight:.3f} + 1) = {now:.3f}; the "
                f"whole task's outcome, r = {outcome:g}, is the label of every case of the prompt"
            )
            changes.append(
                ValueChange(memory_id, before, now, uses, outcome, 1 / (weight + 1), name="Q_EC", formula=formula)
            )
        return tuple(changes)

    def _trained(self, cases: Cases, step: int, new: int, outcome: float) -> tuple[ValueChange, ...]:
        """One step of the network on a replay batch, and what it did to the loss."""
        settings, rows = self.settings, len(cases.uses)
        if cases.network is None:
            cases.network = new_network(len(cases.states[0]), seed=0)
        batch = cases.batch(BATCH, np.random.default_rng([0, rows]))
        cases.network, before, after = trained(cases.network, batch, settings.learning_rate)
        cases.losses.append(Loss(step, rows, before, after))
        formula = (
            f"−mean[r ln p + (1 − r) ln(1 − p)] of {len(batch.outcomes)} rows: {before:.4f} → {after:.4f}, by one Adam "
            f"step with η = {settings.learning_rate:g}"
        )
        labelled = f"{rows - new} + {new} = {rows}: every case of the prompt with the task's outcome, r = {outcome:g}"
        return (
            ValueChange(
                "", before, after, cases.network.steps, outcome, settings.learning_rate, "parameters", "loss", formula
            ),
            ValueChange("", rows - new, rows, cases.network.steps, outcome, 1.0, "parameters", "rows", labelled),
        )


# --- uses of cases, and what is learned from them ---------------------------------------------------------------------


LABELS: dict[Outcome, float] = {"success": 1.0, "failure": 0.0, "unrated": 0.5}
_ROW = np.dtype([("state", "i8"), ("case", "i8"), ("outcome", "f8"), ("predicted", "f8")])


@dataclass(frozen=True, slots=True)
class Loss:
    """One step of the network: binary cross-entropy of the replay batch before and after it, with `rows` rows known."""

    step: int
    rows: int
    before: float
    after: float


@dataclass(slots=True)
class Cases:
    """The uses of cases so far: of each the state (of `states`), the case (of `vectors`), outcome and prediction.

    `states` has an embedding (d,) for each task, `vectors` one for each case that was used, `outcomes` what became of
    the case itself; `numbers` says which case has which number. A prediction is NaN where none was made. `worth` is
    Q_EC of each case in the state in which it was used last.
    """

    states: list[Vector] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)
    uses: list[tuple[int, int, float, float]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    worth: dict[str, float] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    network: Network | None = None

    @property
    def rows(self) -> npt.NDArray[Any]:
        """The uses (n,) with the columns state, case, outcome and predicted."""
        return np.array(self.uses, _ROW)

    def add_use(self, memory_id: str, vector: Vector, case_outcome: Outcome, outcome: float, predicted: float) -> None:
        """Note that a case was in the prompt in the newest state, and how the task ended."""
        if memory_id not in self.numbers:
            self.numbers[memory_id] = len(self.vectors)
            self.vectors.append(vector)
            self.outcomes.append(LABELS[case_outcome])
        self.uses.append((len(self.states) - 1, self.numbers[memory_id], outcome, predicted))

    def enough(self, rows: int) -> bool:
        """Whether there are so many labelled rows, and both outcomes among them."""
        return len(self.uses) >= rows and len({outcome for _, _, outcome, _ in self.uses}) > 1

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """`size` rows (or all, where there are fewer) drawn without replacement."""
        drawn = [self.uses[row] for row in rng.choice(len(self.uses), size=min(size, len(self.uses)), replace=False)]
        return Batch(
            np.stack([self.states[state] for state, *_ in drawn]),
            np.stack([self.vectors[case] for _, case, *_ in drawn]),
            np.array([self.outcomes[case] for _, case, *_ in drawn]),
            np.array([outcome for _, _, outcome, _ in drawn]),
        )

    def of(self, memory_ids: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """The uses of these cases: which of them each belongs to (n,), and its row (n,)."""
        indices = np.full(len(self.numbers), -1, dtype=np.int64)
        for index, memory_id in enumerate(memory_ids):
            if memory_id in self.numbers:
                indices[self.numbers[memory_id]] = index
        rows = self.rows
        of = indices[rows["case"]]
        return of[of >= 0], rows[of >= 0]

    def __deepcopy__(self, memo: dict[int, Any]) -> Cases:
        # No array and no row is ever changed: copies share them.
        lists = ("states", "vectors", "outcomes", "uses", "numbers", "worth", "losses")
        return replace(self, **{name: copy.copy(getattr(self, name)) for name in lists})


def kernel_of(similarity: Floats, bandwidth: float) -> Floats:
    """k(s, s′) (n,) of unit vectors with these cosines (n,): exp(−‖s − s′‖² / 2h²)."""
    weight: Floats = np.exp((similarity - 1) / bandwidth**2)
    return weight


def episodic_values(cases: Cases, state: Vector, memory_ids: Sequence[str], bandwidth: float) -> tuple[Floats, Floats]:
    """Q_EC(s, c) = Σ k(s, s′) Q′ / Σ k(s, s′) over the past uses of each case, and Σ k: both (n,).

    Where Σ k is 0 there is nothing to go by, and Q_EC is `UNUSED_Q`.
    """
    n = len(memory_ids)
    of, uses = cases.of(memory_ids)
    if not len(uses):
        return np.full(n, UNUSED_Q), np.zeros(n)
    seen, back = np.unique(uses["state"], return_inverse=True)
    weight = kernel_of(exact_similarity(np.stack([cases.states[one] for one in seen]), state), bandwidth)[back]
    total = np.bincount(of, weight, minlength=n).astype(np.float64)
    earned = np.bincount(of, weight * uses["outcome"], minlength=n).astype(np.float64)
    return np.where(total > 0, earned / np.where(total > 0, total, 1), UNUSED_Q), total


# --- the network of the parametric read -------------------------------------------------------------------------------


PROJECTED = 64
HIDDEN = 64
INPUTS = 3 * PROJECTED + 1
PARAMETERS = (INPUTS + 1) * HIDDEN + HIDDEN + 1
_FIRST_DECAY, _SECOND_DECAY, _TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """`projection` (d, PROJECTED) of embeddings, never changed; all weights in one vector `theta` (PARAMETERS,).

    `mean` and `square` (PARAMETERS,) are Adam's running means of the gradient and its square after `steps` steps. No
    array is ever changed, so that copies of a state can share a network.
    """

    projection: Floats
    theta: Floats
    mean: Floats
    square: Floats
    steps: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """n labelled rows: unit embeddings of `states` (n, d) and `cases` (n, d), what became of each case and of its use.

    `case_outcomes` (n,) are 1 for a success, 0 for a failure and 0.5 for a case nobody has judged; `outcomes` (n,) are
    1 or 0.
    """

    states: npt.NDArray[np.float32]
    cases: npt.NDArray[np.float32]
    case_outcomes: Floats
    outcomes: Floats


def new_network(dimension: int, seed: int) -> Network:
    """A network for embeddings of `dimension` numbers: Gaussian projection and first layer, last layer near zero."""
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(dimension, PROJECTED))
    theta = np.zeros(PARAMETERS)
    first, _, last, _ = _layers(theta)
    first[:] = rng.normal(scale=(2 / INPUTS) ** 0.5, size=first.shape)
    last[:] = rng.normal(scale=0.1 / HIDDEN**0.5, size=last.shape)
    return Network(projection, theta, np.zeros(PARAMETERS), np.zeros(PARAMETERS))


def features(network: Network, batch: Batch) -> Floats:
    """[e_s; e_c; e_s ⊙ e_c; r_c] (n, INPUTS) of projected embeddings."""
    state, case = batch.states @ network.projection, batch.cases @ network.projection
    return np.hstack([state, case, state * case, batch.case_outcomes[:, None]])


def chances(
    network: Network, state: npt.NDArray[np.float32], cases: npt.NDArray[np.float32], case_outcomes: Floats
) -> Floats:
    """p(r = 1 | s, c; θ) (n,) of `cases` (n, d) with outcomes (n,) in the state (d,).

    The state is the same for all, so its part of the first layer is worked out once: one product for all cases is left.
    """
    first, first_bias, last, last_bias = _layers(network.theta)
    of_state, of_case, of_both = np.split(first[:-1], 3)
    asked = state @ network.projection
    same = asked @ of_state + first_bias
    hidden = (cases @ network.projection) @ (of_case + asked[:, None] * of_both) + same
    hidden += case_outcomes[:, None] * first[-1]
    p: Floats = expit(np.maximum(hidden, 0) @ last + last_bias)
    return p


def cross_entropy(theta: Floats, inputs: Floats, outcomes: Floats) -> float:
    """−mean[r ln p + (1 − r) ln(1 − p)] over rows (n, INPUTS) with outcomes (n,)."""
    logits, _ = _logits(theta, inputs)
    return float(np.mean(np.logaddexp(0, logits) - outcomes * logits))


def cross_entropy_gradient(theta: Floats, inputs: Floats, outcomes: Floats) -> Floats:
    """Its gradient in θ (PARAMETERS,)."""
    logits, hidden = _logits(theta, inputs)
    gradient = np.zeros(PARAMETERS)
    first, first_bias, last, last_bias = _layers(gradient)
    by_logit = (expit(logits) - outcomes) / len(outcomes)
    by_hidden = np.outer(by_logit, _layers(theta)[2]) * (hidden > 0)
    first[:], first_bias[:] = inputs.T @ by_hidden, by_hidden.sum(axis=0)
    last[:], last_bias[:] = hidden.T @ by_logit, by_logit.sum()
    return gradient


def trained(network: Network, batch: Batch, rate: float) -> tuple[Network, float, float]:
    """The network after one Adam step of size `rate` on a batch, and the batch's cross-entropy before and after it."""
    inputs = features(network, batch)
    before = cross_entropy(network.theta, inputs, batch.outcomes)
    gradient = cross_entropy_gradient(network.theta, inputs, batch.outcomes)
    steps = network.steps + 1
    mean = _FIRST_DECAY * network.mean + (1 - _FIRST_DECAY) * gradient
    square = _SECOND_DECAY * network.square + (1 - _SECOND_DECAY) * gradient**2
    step = mean / (1 - _FIRST_DECAY**steps) / (np.sqrt(square / (1 - _SECOND_DECAY**steps)) + _TINY)
    theta = network.theta - rate * step
    after = cross_entropy(theta, inputs, batch.outcomes)
    return replace(network, theta=theta, mean=mean, square=square, steps=steps), before, after


def _layers(theta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Views of θ: weights (INPUTS, HIDDEN) and bias (HIDDEN,) of the first layer, weights (HIDDEN,) and bias (1,)."""
    weights = INPUTS * HIDDEN
    first = theta[:weights].reshape(INPUTS, HIDDEN)
    return first, theta[weights : weights + HIDDEN], theta[weights + HIDDEN : -1], theta[-1:]


def _logits(theta: Floats, inputs: Floats) -> tuple[Floats, Floats]:
    """The logits (n,) and the hidden layer (n, HIDDEN) behind them."""
    first, first_bias, last, last_bias = _layers(theta)
    hidden = np.maximum(inputs @ first + first_bias, 0)
    return hidden @ last + last_bias, hidden
