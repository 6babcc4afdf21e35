"""The command line: what it leaves, what it prints, and how it ends."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import lancedb
import pytest
from streamlit.runtime.pages_manager import PagesManager

from memrl_core.agent.preferences import Preferences, demo_bank, load_preferences
from memrl_core.analysis.decision.gate import suggest_delta
from memrl_core.analysis.decision.labels import memory_labels
from memrl_core.bank import MemoryBank
from memrl_core.cli import main as cli
from memrl_core.cli import terminal
from memrl_core.errors import ModelSlow
from memrl_core.models import gguf
from memrl_core.models.ollama import OllamaStatus
from memrl_core.records import Reason
from memrl_core.settings import PRESETS, MemRLSettings
from tests.builders import a_bank, a_step
from tests.cli.conftest import memrl, printed


@pytest.mark.slow
def test_a_run_of_sixty_tasks_twice_leaves_its_tables(home: Path) -> None:
    uri = str(home / "bank")
    words = ["run", "--env", "household", "--tasks", "60", "--epochs", "2", "--seed", "1", "--bank", uri]
    done = subprocess.run(
        [sys.executable, "-m", "memrl_core.cli.main", *words, "--batch", "20"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    database = sqlite3.connect(home / "bank" / "bank.db")
    assert database.execute("SELECT count(*) FROM steps").fetchone() == (120,)
    assert database.execute("SELECT count(q), count(visits) FROM q_values WHERE run <> ''").fetchone() == (120, 120)
    assert lancedb.connect(f"{uri}/vectors").open_table("memories").to_arrow()["id"].null_count == 0
    assert "Saved 120 steps" in done.stdout
    assert "epoch" in done.stdout and "solved" in done.stdout
    assert done.stderr == ""


def counted(bank: Path) -> int:
    """How many steps are stored; 0 while the bank is being made."""
    try:
        (count,) = sqlite3.connect(bank / "bank.db").execute("SELECT count(*) FROM steps").fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(count)


@pytest.mark.slow
def test_interrupting_keeps_what_is_done(home: Path) -> None:
    uri = str(home / "bank")
    running = subprocess.Popen(
        [sys.executable, "-m", "memrl_core.cli.main", "run", "--epochs", "50", "--bank", uri],
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (home / "bank" / "bank.db").exists() and counted(home / "bank") > 2:
            break
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    message, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Cancelled after" in message
    kept = counted(home / "bank")
    assert f"Cancelled after {kept} of 12000 steps" in " ".join(message.split())


def test_a_preset_sets_everything_that_is_not_given(home: Path) -> None:
    words = ["--preset", "lifelong", "--setting", "k2=2", "--tasks", "2", "--bank", str(home / "bank")]
    printed("run", *words)
    (run,) = MemoryBank.open(str(home / "bank")).runs()
    assert run.settings == MemRLSettings.of({**PRESETS["lifelong"], "k2": 2}).model_dump()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--setting", "weight=2"], "weight"),
        (["--setting", "weight=nan"], "weight"),
        (["--setting", "k1=2", "--setting", "k2=3"], "k2 = 3"),
        (["--setting", "weight"], "as name=value"),
        (["--setting", "colour=blue"], "colour"),
        (["--preset", "webarena"], "alfworld, hle, bigcodebench, lifelong"),
        (["--preset", "hle", "--policy", "rag"], "no preset “hle”"),
        (["--env", "nowhere"], "nowhere"),
        (["--set", "nothing"], "of tasks"),
        (["--tasks", "9999"], "240 tasks"),
        (["--base", "nobody"], "no run “nobody”"),
        (["--run", "a/b"], "A run's name"),
        (["--embedder", "nomic-embed-text"], "not running"),
    ],
)
def test_a_wrong_value_is_a_sentence_and_exit_code_2(home: Path, words: list[str], says: str) -> None:
    code, message = memrl("run", "--bank", str(home / "bank"), *words)
    assert (code, says in message) == (2, True), message
    if (home / "bank").exists():
        assert MemoryBank.open(str(home / "bank")).runs() == []


def test_what_nobody_foresaw_is_one_sentence_and_its_traceback_goes_to_the_log(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RecursionError("secret")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    reported = capfd.readouterr()
    assert ended.value.code == 1
    assert (
        "RecursionError" in reported.err
        and "Traceback" not in reported.err + reported.out
        and "secret" not in reported.err
    )
    log = (home / "home" / "memrl.log").read_text()
    assert "RecursionError" in log and "in fail" in log and "secret" not in log


def test_show_prints_the_numbers_of_a_step() -> None:
    wanted = {Reason.TOP_K2, Reason.BEYOND_K2, Reason.BELOW_DELTA}
    with MemoryBank.open(str(demo_bank())) as bank:
        trace = next(
            one
            for one in bank.traces("household")
            if one.decision is not None and wanted <= {c.reason for c in one.decision.candidates}
        )
    assert trace.update.of_q
    message = printed("show", str(trace.step))
    assert f"step {trace.step} of run" in message and f"> {trace.generate.turns[0].reply.text}" in message
    assert "beyond k2" in message and "below δ" in message
    for change in trace.update.of_q:
        before, reward, after = (
            f"{value:+.3f}".replace("-", "−") for value in (change.before, change.reward, change.after)
        )
        number = int(change.memory_id.rpartition("-")[2])
        assert f"q(#{number}) = {before} + 0.3 × ({reward} − ({before})) = {after}" in message
        assert change.after == pytest.approx(change.before + 0.3 * (change.reward - change.before))


def test_show_prints_what_the_answer_follows_and_whom_that_credits(home: Path) -> None:
    where = ("--bank", str(home / "bank"))
    printed("run", "--env", "helpdesk", "--tasks", "6", "--setting", "credit=followed", *where)
    with MemoryBank.open(where[1]) as bank:
        traces = [trace for trace in bank.traces(bank.runs()[0].id) if trace.follows and trace.follows.memories]
    assert traces
    for trace in traces:
        message = printed("show", str(trace.step), *where)
        assert trace.follows is not None
        labels = memory_labels(trace.follows.memories, trace.run)
        assert f"Follows {labels} · right one" in message and f"because the answer follows: {labels}." in message


def test_markup_in_a_bank_is_printed_as_it_is(home: Path) -> None:
    bank = a_bank(home / "bank")
    trace, vectors = a_step(1)
    bank.write.commit_step(
        replace(trace, task=replace(trace.task, intent="[bold red]x[/] [link=http://a]y[/link]")), vectors
    )
    bank.close()
    code, message = memrl("show", "1", "--bank", str(home / "bank"))
    assert (code, "[bold red]x[/] [link=http://a]y[/link]" in message) == (0, True)


def test_the_doctor_finds_a_healthy_bank_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.console, "width", 200)
    message = printed("doctor")
    assert "not running" in message and "OLLAMA_HOST=127.0.0.1:9 ollama serve" in message
    assert "broken" not in message and "OpenAI" not in message


def test_the_doctor_names_each_place_of_models_and_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.console, "width", 300)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setitem(gguf.PACKAGED, "smollm2", replace(gguf.PACKAGED["smollm2"], module="no_such_module"))
    message = printed("doctor")
    assert "http://127.0.0.1:9/v1" in message and "smollm2" in message


def test_the_doctor_asks_all_servers_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=30)

    def ollama(*_: object) -> OllamaStatus:
        both.wait()
        return OllamaStatus("not_running", "Nothing answers.", "")

    def openai(*_: object) -> tuple[str, ...]:
        both.wait()
        raise ModelSlow("Nothing answers.")

    monkeypatch.setattr(terminal, "ollama_status", ollama)
    monkeypatch.setattr(terminal, "openai_models", openai)
    rows = terminal.model_rows(Preferences())
    assert [row.level for row in rows if row.sentence == "Nothing answers."] == ["optional"] * 2


def test_the_doctor_and_what_reads_work_without_a_home_that_can_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.console, "width", 300)
    monkeypatch.setenv("MEMRL_HOME", "/dev/null/home")
    code, message = memrl("doctor")
    assert code == 2 and "MEMRL_HOME" in message and message.count("broken") == 1
    assert "step 1 of run" in printed("show", "1")
    assert "Saved 1 step" in printed("run", "--tasks", "1", "--bank", str(home / "bank"))


ENVIRONMENTS = [
    {"ALL_PROXY": "socks5://127.0.0.1:9", "NO_PROXY": "localhost,[::1]", "OLLAMA_HOST": "'127.0.0.1:9'"},
    {"HTTP_PROXY": "socks5h://127.0.0.1:9", "https_proxy": "socks4://h", "no_proxy": "fd00::/8", "OLLAMA_HOST": "::1"},
    {"http_proxy": "http://[::1", "OLLAMA_HOST": "localhost:abc", "OPENAI_BASE_URL": "[", "OPENAI_API_KEY": "ü"},
    {"all_proxy": "http://h:abc", "OLLAMA_HOST": "localhost:99999", "SSL_CERT_FILE": "/missing", "TMPDIR": "/missing"},
    {"LANG": "C", "PYTHONIOENCODING": "ascii", "COLUMNS": "abc", "TERMINAL_WIDTH": "abc", "PYTHONWARNINGS": "nonsense"},
    {"HF_HOME": "/dev/null/x", "MEMRL_LOG_CONTENTS": "?", "STREAMLIT_LOGGER_LEVEL": "?", "MEMRL_HOME": "/dev/null/x"},
]


def test_the_remedy_for_an_address_that_cannot_be_is_never_that_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OLLAMA_HOST", "OPENAI_BASE_URL"):
        monkeypatch.setenv(variable, "::::")
    remedies = {row.what.partition(" ")[0]: row.remedy for row in terminal.model_rows(Preferences())}
    assert (remedies["Ollama"], remedies["OpenAI-compatible"]) == ("unset OLLAMA_HOST", "unset OPENAI_BASE_URL")


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda one: next(iter(one)))
def test_nothing_in_the_environment_stops_a_command(home: Path, environment: dict[str, str]) -> None:
    bank = str(home / "bank")
    commands = [
        *(["--help"], ["--version"], ["run", "--help"], ["policies"], ["tasks", "list"], ["doctor"]),
        *(["run", "--bank", bank, "--tasks", "2"], ["show", "1", "--bank", bank]),
        ["export", str(home / "bank.zip"), "--bank", bank],
    ]
    code = (
        "import sys\nfrom memrl_core import Recorder\nfrom memrl_core.cli.main import main\n"
        f"for words in {commands!r}:\n"
        "    sys.argv = ['memrl', *words]\n"
        "    try:\n        main()\n    except SystemExit as ended:\n        print('ended', words[0], ended.code)\n"
        "from streamlit.testing.v1 import AppTest\n"
        f"assert not AppTest.from_file({str(cli.app_file())!r}, default_timeout=60).run().exception\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={**os.environ, **environment})
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, said
    assert "Traceback" not in said and "nobody foresaw" not in said and "could not be drawn" not in said
    broken = environment.get("MEMRL_HOME", "").startswith("/dev/null")
    ended = [line.split()[1:] for line in said.splitlines() if line.startswith("ended")]
    assert ended == [[words[0], "2" if broken and words == ["doctor"] else "0"] for words in commands]
    assert (home / "bank.zip").exists()


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["STREAMLIT_THEME_BASE", "STREAMLIT_SERVER_MAX_UPLOAD_SIZE"])
def test_a_variable_that_keeps_streamlit_from_starting_is_named(variable: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memrl_core.cli.main", "app", "--headless", "--port", "8619"],
        capture_output=True,
        text=True,
        env={**os.environ, variable: "nonsense"},
        timeout=120,
    )
    assert done.returncode == 2 and variable in done.stderr and "nobody foresaw" not in done.stderr


def test_what_the_home_has_no_room_for_ends_with_a_sentence_that_names_memrl_home(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMRL_HOME", "x" * 300)
    monkeypatch.setattr(sys, "argv", ["memrl", "tasks", "list"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    message = capfd.readouterr().err
    assert ended.value.code == 2 and "MEMRL_HOME" in message and "nobody foresaw" not in message


@pytest.mark.parametrize(("hard", "then"), [(1_000_000, 4096), (512, 512)])
def test_the_app_may_have_more_open_files_than_macos_allows_at_first(hard: int, then: int) -> None:
    resource = pytest.importorskip("resource")
    code = "import resource; from memrl_core.cli.serving import raise_open_files as rise\n"
    code += "print(rise(), rise(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    hard = min(hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)),
    )
    assert done.stdout.split() == [str(min(then, hard))] * 3 + [str(hard)]


def test_the_doctor_says_when_too_few_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "open files" not in {row.what for row in terminal.machine_rows()}
    monkeypatch.setattr(terminal, "raise_open_files", lambda: 256)
    (row,) = [row for row in terminal.machine_rows() if row.what == "open files"]
    assert "256" in row.sentence and "ulimit" in row.remedy


def test_the_doctor_proposes_a_gate_on_the_scale_of_the_embedder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.console, "width", 300)
    uri = str(home / "bank")
    printed("run", "--tasks", "12", "--bank", uri)
    message = memrl("doctor", "--bank", uri)[1]
    with MemoryBank.open(uri) as bank:
        found = suggest_delta(bank.view(bank.runs()[-1].id))
    assert f"--setting delta={found.delta:.2f}" in message and found.delta != pytest.approx(0.2, abs=0.01)


def test_the_doctor_names_a_damaged_table_and_writes_anew_what_follows_from_the_ledger(home: Path) -> None:
    bank = a_bank(home / "bank")
    bank.write.commit_step(*a_step(1))
    bank.close()
    with sqlite3.connect(home / "bank" / "bank.db") as database:
        database.execute("UPDATE q_values SET q = 7")
    assert memrl("doctor", "--bank", str(home / "bank"))[0] == 2
    printed("doctor", "--rebuild", "--bank", str(home / "bank"))
    assert MemoryBank.open(str(home / "bank")).utilities("r")["r-0001"].q == 0
    with sqlite3.connect(home / "bank" / "bank.db") as database:
        database.execute("UPDATE runs SET policy = '', info = replace(info, 'memrl', 'rmm')")
    code, message = memrl("doctor", "--bank", str(home / "bank"))
    assert (code, "bank: runs" in message, "broken" in message) == (2, True, True)


@pytest.mark.slow
def test_another_run_in_the_same_bank_can_start_from_the_first(home: Path) -> None:
    uri = str(home / "bank")
    printed("run", "--tasks", "3", "--run", "one", "--bank", uri)
    printed("run", "--tasks", "2", "--run", "two", "--base", "one", "--bank", uri)
    with MemoryBank.open(uri) as bank:
        assert (bank.view("one").size, bank.view("two").size) == (3, 5)


def test_the_app_offers_a_bank_that_a_toml_file_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_served", lambda command: 0)
    a_bank(home / "there").close()
    (home / "team.toml").write_text('database = "there/bank.db"\nvectors = "there/vectors"\n', encoding="utf-8")
    code, message = memrl("app", "--headless", "--port", "8124", "--bank", str(home / "team.toml"))
    assert code == 0 and "http://127.0.0.1:8124/bank?bank=team" in message.replace("\n", "")
    assert load_preferences().opened == {"team": str(home / "team.toml")}
    code, message = memrl("app", "--headless", "--port", "8124", "--bank", str(home / "nothing"))
    assert code != 0 and "nothing" in message.replace("\n", "")


def test_the_app_is_found_and_listens_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(cli, "_served", lambda command: asked.append(command) or 0)
    printed("app", "--port", "8123", "--headless")
    command = asked[0]
    assert Path(command[command.index("run") + 1]).name == "app.py"
    assert command[command.index("--server.address") + 1] == "127.0.0.1"
    assert command[command.index("--server.port") + 1] == "8123"
    assert os.path.isdir(Path(command[command.index("run") + 1]).parent / "pages")


def test_a_link_that_is_opened_first_finds_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_load_figures", lambda: None)
    monkeypatch.setattr(cli.runpy, "run_module", lambda *given, **more: None)
    monkeypatch.setattr(cli.sys, "argv", [])
    monkeypatch.setattr(PagesManager, "uses_pages_directory", None)
    assert cli._served(["streamlit"]) == 0
    assert PagesManager.uses_pages_directory is False


def test_without_a_login_the_app_serves_this_machine_only_and_says_so(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(cli, "_served", lambda command: asked.append(command) or 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    _, message = memrl("app", "--address", "0.0.0.0")
    assert "set up" in " ".join(message.split())
    assert "Listening on 127.0.0.1 only" in message
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text('[auth]\ncookie_secret = "x"\n')
    _, message = memrl("app", "--address", "0.0.0.0")
    assert "log in" in message
    assert [command[command.index("--server.address") + 1] for command in asked] == ["127.0.0.1", "0.0.0.0"]
    assert [command.count("--server.allowedHosts") for command in asked] == [3, 1]
    assert asked[1][asked[1].index("--server.allowedHosts") + 1] == "*"


def test_no_command_waits_for_libraries_that_it_may_not_need() -> None:
    libraries = {"sklearn", "pandas", "sqlglot", "lancedb", "streamlit"}
    script = f"import sys, memrl_core.cli.main; print({libraries} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
