"""Phases A and B: what is recalled and what is selected."""

from memrl_core.retrieval.phases import (
    CLIP,
    DIGITS,
    FLAT_SD,
    NEAR_MISSES,
    ROUNDING,
    Floats,
    Standardised,
    exact_similarity,
    is_cosine,
    of_task,
    positions_in,
    recall,
    score_order,
    select,
    standardised_pool,
    turns_of,
    without_poor,
    zscore,
)  # fmt: skip

__all__ = (
    "CLIP", "DIGITS", "FLAT_SD", "NEAR_MISSES", "ROUNDING", "Floats", "Standardised", "exact_similarity", "is_cosine",
    "of_task", "positions_in", "recall", "score_order", "select", "standardised_pool", "turns_of", "without_poor",
    "zscore",
)  # fmt: skip
