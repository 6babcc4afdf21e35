"""What works without a network connects to nothing, in native code too; the app to this machine alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOUND = 99
GUARD = f"""
import ctypes, os, platform, sys
HERE = {{"127.0.0.1", "::1", "localhost", "", None}}

def heard(event, given):
    if event == "socket.getaddrinfo":
        place = given[0]
    elif event in ("socket.connect", "socket.sendto", "socket.gethostbyname") and isinstance(given[-1], tuple):
        place = given[-1][0]
    else:
        return
    if (place.decode() if isinstance(place, bytes) else place) not in HERE:
        os.write(2, f"{{event}} {{place}}".encode())
        os._exit({FOUND})

def no_connections():
    # The kernel ends this process at the first connect(2), whoever calls it: Lance does so in native code.
    call = {{"x86_64": 42, "aarch64": 203}}.get(platform.machine())
    if sys.platform != "linux" or call is None:
        return
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7FFF0000)]
    class Step(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.POINTER(Step))]
    filled = (Step * len(steps))(*(Step(*step) for step in steps))
    program = Program(len(steps), filled)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()

sys.addaudithook(heard)
"""
BANKS = """
from pathlib import Path
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.bring_in import bring_in, read_any
from tests.builders import a_chain

folder = Path(sys.argv[1])
a_chain(folder / "bank", 4).close()
with MemoryBank.open(str(folder / "bank")) as bank:
    for kind in ("zip", "jsonl", "parquet", "csv"):
        write_bank(bank, folder / f"out.{kind}")
bring_in(read_any(folder / "out.zip"), str(folder / "again"))
assert all(finding.ok for finding in check(str(folder / "again")))
"""
RUN = """
from memrl_core.cli.main import app
bank = sys.argv[1] + "/bank"
for words in (
    ["run", "--tasks", "2", "--model", sys.argv[2], "--bank", bank],
    ["report", "1", sys.argv[1] + "/step.html", "--bank", bank],
    ["player", sys.argv[1] + "/run.html", "--bank", bank],
):
    try:
        app(words)
    except SystemExit as ended:
        assert not ended.code, words
"""
APP = """
from streamlit.testing.v1 import AppTest
page = AppTest.from_file("app.py", default_timeout=120).run()
assert not page.exception, page.exception
"""
SERVER = """
import threading, time, urllib.request
from memrl_core.cli.main import app

port = sys.argv[2]
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def asked():
    for _ in range(600):
        try:
            with direct.open(f"http://127.0.0.1:{port}/_stcore/health") as answer:
                os._exit(0 if answer.status == 200 else 1)
        except OSError:
            time.sleep(0.1)
    os._exit(1)

threading.Thread(target=asked, daemon=True).start()
app(["app", "--port", port])
"""


def guarded(script: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own that ends at the first connection to elsewhere."""
    # Whoever looks for a proxy, a store or a mirror in the environment finds one, and it is not this machine.
    far = "http://192.0.2.1:9"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "AWS_ENDPOINT_URL", "HF_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ALLOW_HTTP": "true"}
    home = {"HOME": str(folder), "MEMRL_HOME": str(folder / "home"), "OLLAMA_HOST": "127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, "-c", GUARD + script, str(folder), *words],
        cwd=ROOT, env={**os.environ, **dict.fromkeys(names, far), **keys, **home},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        "import socket; socket.create_connection(('192.0.2.1', 9))",
        "import urllib.request; urllib.request.urlopen('http://example.invalid')",
        "no_connections(); import socket; socket.create_connection(('127.0.0.1', 9))",
        "no_connections(); import lancedb; lancedb.connect('s3://bucket/x', storage_options="
        "{'aws_endpoint': 'http://127.0.0.1:9', 'allow_http': 'true'}).open_table('x')",
    ],
    ids=["Python", "a name", "loopback", "native"],
)  # fmt: skip
@pytest.mark.slow
def test_the_guard_finds_connections(tmp_path: Path, script: str) -> None:
    done = guarded(script, tmp_path)
    assert done.returncode in (FOUND, -31), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("no_connections()" + BANKS, ()),
        ("no_connections()" + RUN, ("simulated",)),
        ("no_connections()" + RUN, ("gguf:smollm2",)),
        (APP, ()),
        (SERVER, ("{port}",)),
    ],
    ids=["importing, opening and every export", "a simulated run", "a run in this process", "pages", "the app's start"],
)  # fmt: skip
def test_nothing_connects_elsewhere(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = guarded(script, tmp_path, *(word.format(port=port) for word in words))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
