"""Every candidate of every step of a run as one table: what the questions about a whole run are asked of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from memrl_core.bank import MemoryBank
from memrl_core.learning import active_rewards, effective_reward, order_key
from memrl_core.policies import outcome_of
from memrl_core.records import MISSED, LedgerEvent

ATTEMPT = ("step", "epoch", "task", "outcome", "reward")


def attempts(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row a finished step (n, 7): step, epoch, task, outcome, reward, pool, selected.

    `reward` is the one that counts now, and `outcome` follows from it. `pool` is how many memories were recalled and
    `selected` their ids that went to the model; both are missing (NA, None) where no decision was recorded.
    """
    rows = parsed(bank.step_table(run, [*ATTEMPT, "trace"]))
    candidates = pc.struct_field(rows["decision"], "candidates").combine_chunks()
    pooled = np.asarray(in_pool(pc.struct_field(pc.list_flatten(candidates), "reason")), dtype=bool)
    members = np.asarray(pc.list_parent_indices(candidates))[pooled]
    frame = rows.select(ATTEMPT).to_pandas()
    decided = np.asarray(rows["decision"].is_valid(), dtype=bool)
    frame["pool"] = pd.Series(np.bincount(members, minlength=len(frame)), dtype="Int64").where(decided)
    chosen = pc.struct_field(rows["decision"], "selected").to_pylist()
    frame["selected"] = pd.Series([None if ids is None else tuple(ids) for ids in chosen], dtype=object)
    return as_rated_now(frame, bank, run)


BLOCK = 8 * 1024 * 1024
ROWS_AT_ONCE = 4000
COLUMNS = (
    "step", "epoch", "task", "outcome", "reward", "memory_id", "similarity", "q", "rank_recall", "rank_select",
    "selected",
)  # fmt: skip

_MISSED = [reason.value for reason in MISSED]
_CANDIDATE = pa.struct({"memory_id": pa.string(), "q": pa.float64(), "reason": pa.string()})
_TRACE = pa.schema(
    {
        "origin": pa.string(),
        "decision": pa.struct(
            {"candidates": pa.list_(_CANDIDATE), "selected": pa.list_(pa.string()), "seed": pa.int64()}
        ),
    }
)


def parsed(steps: pa.Table) -> pa.Table:
    """Rows of `steps` with two columns read from the traces' JSON: `origin`, and `decision`.

    The decision holds its candidates, selection and seed; it is null where none was recorded.
    """
    if steps.num_rows == 0:
        read = pa.table([pa.array([], field.type) for field in _TRACE], schema=_TRACE)
    else:
        starts = range(0, steps.num_rows, ROWS_AT_ONCE)
        read = pa.concat_tables([_read(steps["trace"].slice(at, ROWS_AT_ONCE)) for at in starts])
    origin = pc.fill_null(read["origin"], "agent")
    return steps.append_column("origin", origin).append_column("decision", read["decision"])


def in_pool(reasons: pa.Array) -> pa.BooleanArray:
    """Whether each candidate was in the pool, by its reason: those that missed it say by which rule."""
    return pc.invert(pc.is_in(reasons, pa.array(_MISSED)))


def _read(traces: pa.ChunkedArray) -> pa.Table:
    """Origin and decision of each trace, read by Arrow straight from the JSON's bytes."""
    lines = pc.binary_join_element_wise(traces, "", "\n").combine_chunks()
    _, offsets, data = lines.buffers()
    first = np.frombuffer(offsets, dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    text = data.slice(int(first[0]), int(first[-1] - first[0]))
    longest = int(np.diff(first).max())
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=max(BLOCK, 2 * longest)),
        parse_options=pj.ParseOptions(explicit_schema=_TRACE, unexpected_field_behavior="ignore"),
    )


def uses(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row a member of a pool (n, 11), in the order of steps and ranks; see `COLUMNS`.

    `q` is the one before the step; `reward` is the one that counts now, with what people said since, and
    `outcome` follows from it. `rank_select` is missing where an agent reports no score.
    """
    found = bank.candidate_table(run, [*COLUMNS, "reason"])
    frame = found.filter(in_pool(found["reason"])).drop(["reason"]).to_pandas()
    return as_rated_now(frame, bank, run)


def as_rated_now(frame: pd.DataFrame, bank: MemoryBank, run: str) -> pd.DataFrame:
    """The same rows, their `reward` and `outcome` by what people said since their steps ended; changed in place."""
    changed = _rated_by_people(bank, run)
    if changed:
        policy, settings = bank.run(run).policy, bank.settings(run)
        later = frame["step"].map(changed)
        touched = frame["step"].isin(changed.keys())
        frame.loc[touched, "reward"] = later[touched]
        frame.loc[touched, "outcome"] = [
            outcome_of(policy, settings, None if np.isnan(r) else r) for r in later[touched]
        ]
    return frame


def _rated_by_people(bank: MemoryBank, run: str) -> dict[int, float]:
    """Steps whose reward may be another now than when they ended, with the one that counts."""
    finished = {row.id: row.step for row in bank.step_rows(run)}
    of_step: dict[int, list[LedgerEvent]] = {}
    for event in sorted(bank.events(run), key=order_key):
        if event.step == finished.get(event.step_id):
            of_step.setdefault(event.step, []).append(event)
    rewards = {
        step: effective_reward(active_rewards(events), bank.settings(run, step))
        for step, events in of_step.items()
        if any(event.source == "person" for event in events)
    }
    return {step: float("nan") if reward is None else reward for step, reward in rewards.items()}
