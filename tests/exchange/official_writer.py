"""Writes what the official MemRL code leaves on disk, from its description alone; shares no code with the reader."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

CUT = 4096


def unit(seed: int, dimension: int = 16) -> list[float]:
    """A unit vector that the seed decides."""
    vector = np.random.default_rng(seed).normal(size=dimension)
    return [float(x) for x in vector / np.linalg.norm(vector)]


def between(mostly: list[float], partly: list[float]) -> list[float]:
    """A unit vector near the first, with a cosine of about 0.99."""
    vector = np.array(mostly) + 0.1 * np.array(partly)
    return [float(x) for x in vector / np.linalg.norm(vector)]


@dataclass
class Written:
    """One memory of a checkpoint. `bucket` is the intent it is filed under: its own text unless it was grouped.

    Its vector is near that of its bucket, as it is in the official code, unless it is `foreign` there.
    """

    id: str
    text: str
    q: float = 0.0
    visits: int = 0
    success: bool | None = True
    bucket: str | None = None
    foreign: bool = False
    retrieved: bool = False
    stale_q: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def filed_under(self) -> str:
        return self.text if self.bucket is None else self.bucket

    def payload(self, q: float) -> dict[str, Any]:
        reported = {
            "user_id": "u",
            "status": "activated",
            "type": "procedure" if self.success else "adjustment",
            "success": self.success,
            "q_value": q,
            "q_visits": self.visits,
            "memory_time": "2026-01-02T03:04:05",
            "updated_at": "2026-01-09T00:00:00",
            "full_content": f"Task: {self.text[:40]}\n\nHow it went: {self.id}",
            **self.metadata,
        }
        return {"id": self.id, "memory": self.text[:CUT], "metadata": reported}


class CheckpointWriter:
    """A checkpoint in memory, to be spoiled part by part before it is written."""

    def __init__(self, memories: list[Written], dimension: int = 16) -> None:
        self.vectors = {text: unit(n, dimension) for n, text in enumerate(dict.fromkeys(m.text for m in memories))}
        self.index: dict[str, list[Any]] = {}
        for memory in memories:
            self.index.setdefault(memory.filed_under, []).append(memory.id)
        self.embeddings: dict[str, Any] = {
            text: self.vectors.get(text) or unit(900 + n, dimension) for n, text in enumerate(self.index)
        }
        for memory in memories:
            if memory.filed_under != memory.text and not memory.foreign:
                self.vectors[memory.text] = between(self.embeddings[memory.filed_under], self.vectors[memory.text])
        self.cube: list[Any] = [
            {"id": m.id, "vector": self.vectors[m.text], "payload": m.payload(m.q)} for m in memories
        ]
        self.q_cache: dict[str, Any] = {m.id: m.q for m in memories if m.retrieved}
        self.mem_cache = {m.id: m.payload(m.stale_q) for m in memories if m.retrieved}
        self.meta: dict[str, Any] = {"checkpoint_id": "1", "created_at": "2026-01-10T00:00:00+00:00"}

    def write(self, folder: Path, cube: bool = True, cache: bool = True) -> Path:
        if cube:
            (folder / "cube").mkdir(parents=True)
            data = json.dumps(self.cube).encode()
            (folder / "cube" / "textual_memory.json").write_bytes(data)
            (folder / "cube" / "config.json").write_text('{"api_key": "sk-secret"}')
            meta = {"textual_memory_md5": hashlib.md5(data).hexdigest(), **self.meta}
            (folder / "snapshot_meta.json").write_text(json.dumps(meta))
            storage = folder / "qdrant" / "collection" / "memp_u" / "storage.sqlite"
            storage.parent.mkdir(parents=True)
            storage.write_bytes(b"\x80\x04not to be opened")
        if cache:
            (folder / "local_cache").mkdir(parents=True)
            for name, value in (
                ("dict_memory", self.index),
                ("query_embeddings", self.embeddings),
                ("q_cache", self.q_cache),
                ("mem_cache", self.mem_cache),
            ):
                (folder / "local_cache" / f"{name}.json").write_text(json.dumps(value))
        return folder


def three() -> list[Written]:
    """Two memories of one intent, one of which failed, and one that descends from both."""
    return [
        Written("m1", "count the rows", q=0.76, visits=4, retrieved=True),
        Written("m2", "count all rows", q=0.3, visits=1, bucket="count the rows", retrieved=True, success=False),
        Written("m3", "drop a table", metadata={"related_memory_ids": ["m1", "m2"]}),
    ]


def an_llb_record(
    index: str, task: str, chosen: dict[str, list[dict[str, Any]]], success: bool = True, turns: int = 1
) -> dict[str, Any]:
    """A record of a LifelongAgentBench trace."""
    messages: list[dict[str, str]] = [{"role": "user", "content": task}]
    calls = []
    for turn in range(1, turns + 1):
        calls.append(
            {
                "call_id": turn,
                "messages_wo_system": list(messages),
                "params": {"temperature": 0.0, "api_key": "sk-secret"},
                "response_text": f"answer {turn}",
                "usage": {"prompt_tokens": 10 * turn, "completion_tokens": turn},
            }
        )
        messages += [
            {"role": "assistant", "content": f"answer {turn}"},
            {"role": "user", "content": f"observation {turn}"},
        ]
    return {
        "sample_index": index,
        "task_description": task,
        "run": {"exp_name": "e", "task": "db_bench", "mode": "train", "retrieve_k": 10},
        "ts_start": "2026-01-03T00:00:00Z",
        "retrieval": {
            "params": {"k_retrieve": 10, "threshold": 0.5, "rl_topk": 5, "weight_sim": 0.5, "weight_q": 0.5},
            "selected_memories_by_bucket": chosen,
        },
        "prompt": {"full_system_prompt": "You write SQL."},
        "llm_calls": calls,
        "outcome": {"success": success, "steps": turns},
        "error": None,
    }


def a_selected(memory_id: str, similarity_z: float, q_z: float) -> dict[str, Any]:
    """A selected memory of such a record, whose score is half of each z."""
    return {
        "memory_id": memory_id,
        "similarity": 0.6 + similarity_z / 10,
        "similarity_z": similarity_z,
        "q_estimate": 0.3 + q_z / 10,
        "q_z": q_z,
        "score": 0.5 * similarity_z + 0.5 * q_z,
        "metadata": {"q_visits": 2},
    }


def write_lines(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
