"""How rewards become q: value updates, and the fold of a ledger."""

from memrl_core.learning.fold import (
    BRINGS_IN,
    CHANGES_MEMORIES,
    REPLACES,
    REWARDING,
    Fold,
    SettingsAt,
    UpdateRule,
    active_rewards,
    assigned_credit,
    beginning,
    by_step,
    copied,
    earned,
    effective_reward,
    folded,
    in_ledger,
    memrl_rule,
    moves_of,
    named_by,
    order_key,
    rewards_of,
    shares_in,
    unmoved,
    updated_q,
)  # fmt: skip

__all__ = (
    "BRINGS_IN", "CHANGES_MEMORIES", "REPLACES", "REWARDING", "Fold", "SettingsAt", "UpdateRule", "active_rewards",
    "assigned_credit", "beginning", "by_step", "copied", "earned", "effective_reward", "folded", "in_ledger",
    "memrl_rule", "moves_of", "named_by", "order_key", "rewards_of", "shares_in", "unmoved", "updated_q",
)  # fmt: skip
