"""The built wheel, installed in a clean environment, brings the whole app."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import httpx
import pytest

from tests.browser.conftest import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it; what it depends on comes from the environment of the tests."""
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = place.glob("*.whl")
    environment = place / "venv"
    venv.create(environment)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    subprocess.run([*install, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    theirs = [path for path in sys.path if path.endswith("site-packages")]
    # Only the libraries are shared: the project itself must come from the wheel, so editable hooks are not run.
    Path(own, "libraries.pth").write_text("\n".join(theirs) + "\n")
    return python


def run(python: Path, *command: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python.with_name("memrl"), *command],
        env={**os.environ, "MEMRL_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_command_line_works_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "run", "--tasks", "3", "--bank", str(tmp_path / "bank"), home=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = run(installed, "show", "9", home=tmp_path)
    assert shown.returncode == 0, shown.stderr
    bank = str(tmp_path / "bank")
    for command in (("--version",), ("doctor", "--bank", bank), ("policies",), ("tasks", "list")):
        done = run(installed, *command, home=tmp_path)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (command, done.stdout, done.stderr)
    where = subprocess.run(
        [installed, "-c", "import memrl_core; print(memrl_core.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(installed.parents[1]) in where.stdout


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_program(installed: Path) -> None:
    """Lessons, scripts and sample data as well as the code."""
    (own,) = installed.parents[1].glob("lib/python*/site-packages")
    found = {
        path.relative_to(own).as_posix().removeprefix("memrl_inspector/") for path in own.rglob("*") if path.is_file()
    }
    wanted = {
        path.relative_to(ROOT).as_posix()
        for folder in ("memrl_core", "pages", "sample_data", ".streamlit")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.rpartition(".")[2] for path in wanted} >= {"py", "js", "css", "toml", "json"}
    assert not wanted - found


@pytest.mark.slow
def test_the_wheel_leaves_the_documents_out_and_says_where_they_are(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "claims", "check", home=tmp_path)
    assert done.returncode == 2 and "docs/" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_app_starts_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    port = free_port()
    server = subprocess.Popen(
        [installed.with_name("memrl"), "app", "--port", str(port), "--headless"],
        env={**os.environ, "MEMRL_HOME": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/_stcore/health").status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.2)
        else:
            raise AssertionError("the app did not start")
    finally:
        server.terminate()
        assert server.wait(20) == 0
