"""docs/recorder_example.py: a plain Ollama loop, against the loopback server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from memrl_core.bank import MemoryBank
from tests.ollama.server import OllamaServer

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "recorder_example.py"


def run_example(server: OllamaServer, bank: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), str(bank)],
        env={**os.environ, "OLLAMA_HOST": server.address, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_example_records_what_was_sent_to_and_said_by_ollama(server: OllamaServer, tmp_path: Path) -> None:
    server.faults.answer = "It is Jupiter."
    done = run_example(server, tmp_path / "bank")
    assert done.returncode == 0, done.stderr
    bank = MemoryBank.open(str(tmp_path / "bank"))
    traces = bank.traces("ollama-loop")
    assert [trace.step for trace in traces] == [1, 2, 3, 4]
    chats = server.asked("/api/chat")
    for trace, sent in zip(traces, chats, strict=True):
        assert trace.origin == "recorder"
        assert trace.generate.model == sent["model"] == "llama3.2"
        assert [{"role": m.role, "content": m.content} for m in trace.generate.messages] == sent["messages"]
        (turn,) = trace.generate.turns
        assert turn.reply.text == "It is Jupiter." and (turn.reply.prompt_tokens or 0) > 0
    assert [trace.reward.reward for trace in traces if trace.reward] == [1.0, -1.0, 1.0, -1.0]
    assert [len(trace.decision.selected) for trace in traces if trace.decision] == [0, 1, 2, 2]

    third = traces[2]
    query = np.asarray(third.embed.embedding)
    oracle = {m: float(bank.embedding(m) @ query) for m in bank.memory_ids()[:2]}
    assert {m.memory_id: m.similarity for m in third.recall.pool} == pytest.approx(oracle, abs=1e-6)
    assert third.recall.pool[0].similarity == pytest.approx(1.0, abs=1e-6)
    for span in third.generate.spans:
        text = third.generate.messages[span.message].content[span.start : span.end]
        assert text == bank.memory(span.memory_id).experience
    assert len(third.generate.spans) == 2
