"""The small network of Memento's parametric read: how likely a case helps in a state.

Source: arXiv 2508.16153, the single-step loss of its parametric memory (binary cross-entropy on state, case, outcome).
The paper trains its text encoder too; here the embeddings stay as they are and only θ learns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]

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
