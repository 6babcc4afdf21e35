"""`memrl mcp`: the memory of a run for any client of the Model Context Protocol, such as a coding agent."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import uvicorn
from rich.markup import escape
from starlette.responses import PlainTextResponse

from memrl_core.agent.memory import Memory, step_url
from memrl_core.analysis.decision.explain import warnings
from memrl_core.analysis.decision.labels import reason_sentence
from memrl_core.cli.console import BankOption, console
from memrl_core.cli.serving import LOCALHOST
from memrl_core.embedders.base import embedded
from memrl_core.errors import BankError, InputError, MemRLError
from memrl_core.logs import loggable, logger
from memrl_core.records import Outcome

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.types import ASGIApp, Receive, Scope, Send

Found = TypeVar("Found")
MOST_LISTED = 200
MISSING = "The package mcp, which speaks with the clients, is not installed: pip install memrl-inspector[mcp]"
INSTRUCTIONS = (
    "A memory that learns which of its experiences are useful. Call recall with what you are about to do and follow "
    "what it gives you; afterwards call reward with how well it went, and remember with what you learned."
)
_log = logger(__name__)


def serve_mcp(
    bank: BankOption,
    run: Annotated[str, typer.Option("--run", help="The run; made when the bank has none of that name.")] = "mcp",
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP on this machine, instead of stdio.")] = False,
    port: Annotated[int, typer.Option(help="Port of --http.", min=1, max=65535)] = 8765,
    token: Annotated[
        str, typer.Option(envvar="MEMRL_MCP_TOKEN", help="What a client of --http must know; drawn when left out.")
    ] = "",
    embedder: Annotated[str, typer.Option(help="The embedder of a bank that is made; else the bank's own.")] = "",
    policy: Annotated[str, typer.Option(help="The method of a run that is made.")] = "memrl",
) -> None:
    """Offer a run's memory to clients of the Model Context Protocol: recall, reward, remember, why."""
    with Memory.open(bank, run, embedder or None, policy=policy) as memory:
        server = mcp_server(memory)
        if not http:
            server.run("stdio")
            return
        token = token or secrets.token_urlsafe(24)
        console.print(f"http://{LOCALHOST}:{port}/mcp with the header “Authorization: Bearer {escape(token)}”")
        uvicorn.run(http_app(server, token), host=LOCALHOST, port=port, log_level="warning")


def http_app(server: MCPServer[Any], token: str) -> ASGIApp:
    """The server over streamable HTTP, for requests of this machine that know the token."""
    from mcp.server.transport_security import TransportSecuritySettings

    names = (LOCALHOST, "localhost", "[::1]")
    own = TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in names], allowed_origins=[f"http://{name}:*" for name in names]
    )
    return _Guarded(server.streamable_http_app(transport_security=own), token)


class _Guarded:
    """An application behind a token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not secrets.compare_digest(given, self._wanted):
                refused = PlainTextResponse("The token is missing or another. memrl mcp says which it is.\n", 401)
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


def mcp_server(memory: Memory) -> MCPServer[Any]:
    """The tools and resources of a memory. Raises `InputError` where the package mcp is not installed."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise InputError(MISSING) from None
    server: MCPServer[Any] = MCPServer("memrl", instructions=INSTRUCTIONS)
    bank, run = memory.bank, memory.run

    async def done(call: Callable[[], Found]) -> Found:
        """What a call gives, made in a thread. Raises `ToolError` with a sentence."""
        try:
            return await asyncio.to_thread(call)
        except MemRLError as error:
            raise ToolError(str(error)) from None
        except Exception as error:
            _log.warning("A tool of MCP failed (%s).", loggable(error))
            raise ToolError(f"The memory could not do this ({type(error).__name__}). Nothing was changed.") from None

    @server.tool()
    async def recall(intent: str, task: str = "") -> dict[str, Any]:
        """What was learned before that helps with an intent. `task` names a task that recurs.

        Give `step` to reward and remember later.
        """
        hit = await done(lambda: memory.recall(intent, task=task))
        numbers = {one.memory_id: one for one in hit.trace.decision.candidates} if hit.trace.decision else {}
        memories = [
            {
                "id": one.id,
                "intent": one.intent,
                "experience": one.experience,
                "outcome": one.outcome,
                "q": numbers[one.id].q,
                "similarity": numbers[one.id].similarity,
            }
            for one in hit.memories
        ]
        return {"step": hit.step, "memories": memories, "text": hit.text, "url": await done(lambda: hit.url)}

    @server.tool()
    async def reward(step: int, value: float, reason: str = "") -> dict[str, Any]:
        """How well it went after the recall of this step: 1 for success, -1 for failure, or between."""

        def give() -> dict[str, Any]:
            memory.reward(step, value, reason)
            moved = bank.utilities(run, of=bank.credits.of(run, step))
            return {"step": step, "q": {name: known.q for name, known in moved.items()}}

        return await done(give)

    @server.tool()
    async def remember(
        experience: str, step: int | None = None, intent: str = "", outcome: Outcome | None = None
    ) -> dict[str, Any]:
        """Store what was learned, in the recall of this step with its `outcome`, or for an intent without one."""

        def write() -> str:
            if step is not None:
                return memory.write(step, experience, outcome)
            if not (intent.strip() and experience.strip()):
                raise InputError("Say in which step, or for which intent, this was learned. Nothing was written.")
            if outcome is not None:
                raise InputError(
                    "An outcome is that of a step: say in which step this was learned, or give no outcome. Nothing was "
                    "written."
                )
            (vector,) = embedded(memory.embedder, [intent])
            return memory.remember(intent, experience, vector)

        return {"id": await done(write)}

    @server.tool()
    async def why(step: int) -> dict[str, Any]:
        """Why the memories of a step were chosen: every candidate with its numbers and the reason, and a link."""
        return await done(lambda: _why(memory, step))

    @server.resource("memrl://bank", mime_type="application/json")
    async def about_bank() -> str:
        """The bank, its run, and how many memories and steps there are."""
        info = bank.run(run)
        about = {
            "bank": bank.uri,
            "embedder": bank.embedder.name,
            "run": run,
            "method": info.policy,
            "memories": bank.memory_count(run),
            "steps": bank.next_step(run) - info.first_step,
        }
        return json.dumps(about)

    @server.resource("memrl://memories", mime_type="application/json")
    async def memories() -> str:
        """The newest memories of the run, with their q."""
        known = bank.utilities(run)
        found = [
            {"id": m.id, "intent": m.intent, "experience": m.experience} for m in bank.memories(run)[-MOST_LISTED:]
        ]
        return json.dumps([{**one, "q": known[one["id"]].q} for one in found], ensure_ascii=False)

    return server


def _why(memory: Memory, step: int) -> dict[str, Any]:
    bank, run = memory.bank, memory.run
    if not bank.steps.has(run, step):
        raise InputError(f"Run {run} has no step {step}.")
    trace = bank.trace(run, step)
    if trace.recall is None or trace.decision is None:
        raise BankError(f"Step {step} of run {run} has no decision.")
    candidates = [
        {
            "memory": one.memory_id,
            "intent": bank.memory(one.memory_id).intent,
            "similarity": one.similarity,
            "q": one.q,
            "score": one.score,
            "rank": one.rank_select,
            "selected": one.selected,
            "reason": reason_sentence(one, trace.recall, trace.decision),
        }
        for one in trace.decision.candidates
    ]
    notes = warnings(trace.recall, trace.decision, run)
    return {
        "intent": trace.task.intent,
        "candidates": candidates,
        "notes": notes,
        "reward": bank.ratings.effective(run, step),
        "url": step_url(bank, run, step),
    }
