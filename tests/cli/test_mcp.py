"""`memrl mcp`, with the client of the real SDK: in the process, over stdio and over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from memrl_core import Memory
from memrl_core.bank import MemoryBank
from memrl_core.cli.mcp_server import mcp_server
from tests.builders import awaited

TOKEN = "a token of the tests"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    with Memory.open(tmp_path / "bank", run="prod", embedder="hashing-64", settings={"delta": -1.0}) as memory:
        yield memory


async def called(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, given)
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


async def refused(client: Client, tool: str, **given: Any) -> str:
    result = await client.call_tool(tool, given)
    assert result.is_error
    return str(result.content[0].text)


async def a_session(client: Client) -> int:
    """Recall, remember, recall again, reward; the number of the last step."""
    first = await called(client, "recall", intent="heat the egg")
    assert f"step={first['step']}" in first["url"]
    written = await called(client, "remember", experience="use the microwave", step=first["step"], outcome="success")
    second = await called(client, "recall", intent="heat the egg")
    assert written["id"] in {one["id"] for one in second["memories"]} and "use the microwave" in second["text"]
    moved = await called(client, "reward", step=second["step"], value=1.0, reason="hot")
    assert set(moved["q"]) == {one["id"] for one in second["memories"]}
    assert all(q > 0 for q in moved["q"].values())
    return int(second["step"])


def test_a_client_recalls_remembers_rewards_and_asks_why(memory: Memory) -> None:
    async def session() -> None:
        async with Client(mcp_server(memory)) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"recall", "reward", "remember", "why"}
            step = await a_session(client)
            why = await called(client, "why", step=step)
            (candidate,) = why["candidates"]
            assert candidate["selected"] and candidate["reason"] and why["reward"] == 1.0
            for _ in range(2):  # A client that heard no answer asks again.
                await called(client, "remember", experience="fry it", intent="an omelette")
            about = json.loads((await client.read_resource("memrl://bank")).contents[0].text)
            assert (about["memories"], about["steps"]) == (2, 2)
            known = json.loads((await client.read_resource("memrl://memories")).contents[0].text)
            assert [one["experience"] for one in known] == ["use the microwave", "fry it"]
            for value in (1.0, 0.5):
                assert value == 1.0 or "already" in await refused(client, "reward", step=step, value=value)
            assert "no step 99" in await refused(client, "reward", step=99, value=1.0)
            assert "no step 99" in await refused(client, "why", step=99)
            assert "step" in await refused(client, "remember", experience="of nothing")
            assert "outcome" in await refused(client, "remember", experience="x", intent="y", outcome="failure")
            assert await refused(client, "recall", intent=" ")
            memory.bank.write.discard()
            assert "Traceback" not in await refused(client, "reward", step=1, value=1.0)

    awaited(session())


@pytest.mark.slow
def test_two_clients_at_once_share_a_run_over_stdio_and_http(tmp_path: Path) -> None:
    bank = str(tmp_path / "bank")
    environment = {**os.environ, "MEMRL_HOME": str(tmp_path / "home"), "MEMRL_MCP_TOKEN": TOKEN}
    command = ["-m", "memrl_core.cli.main", "mcp", "--bank", bank, "--run", "prod", "--embedder", "hashing-64"]
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    Memory.open(bank, run="prod", embedder="hashing-64").close()
    server = subprocess.Popen([sys.executable, *command, "--http", "--port", str(port)], env=environment)
    try:
        while True:
            try:
                assert httpx.post(url).status_code == 401
                break
            except httpx.TransportError:
                assert server.poll() is None
                time.sleep(0.2)
        known = {"Authorization": f"Bearer {TOKEN}"}
        sent = {**known, "Content-Type": "application/json"}
        for header, refusal in (("Origin", 403), ("Host", 421)):
            foreign = {**sent, header: "http://elsewhere.example" if header == "Origin" else "elsewhere.example"}
            assert httpx.post(url, headers=foreign, content="{}").status_code == refusal
        assert httpx.post(url, headers={"Authorization": "Bearer another"}).status_code == 401

        async def over_http() -> int:
            async with (
                create_mcp_http_client(headers=known) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                return await a_session(client)

        async def over_stdio() -> int:
            parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
            async with Client(parameters) as client:
                return await a_session(client)

        async def both() -> list[int]:
            return await asyncio.gather(over_http(), over_stdio())

        assert len(set(awaited(both()))) == 2
    finally:
        server.terminate()
        server.wait(timeout=20)
    with MemoryBank.open(bank) as stored:
        assert [row.step for row in stored.steps.rows("prod")] == [1, 2, 3, 4] and stored.memory_count("prod") == 2
