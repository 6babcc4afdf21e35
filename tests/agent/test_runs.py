"""A person's preferences and banks, the parts of runs by name, and runs that start, fork and go on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.preferences import (
    Preferences,
    banks_folder,
    demo_bank,
    home_problem,
    keep_options,
    load_preferences,
    reset_demo_bank,
    save_preferences,
)
from memrl_core.agent.run_parts import create_bank
from memrl_core.agent.runs import live_run, reconnect, rerunner, start_run
from memrl_core.analysis.compare.counterfactual import first_reversal
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.storage.folders import list_banks
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import BankReadOnly, EmbedderMismatch, InputError, OllamaDown, SettingsError
from memrl_core.records import Phase
from memrl_core.settings import MemRLSettings
from memrl_core.settings import home as home_folder
from tests.ollama.scene import LLAMA, Model
from tests.ollama.server import OllamaServer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    return tmp_path


def test_the_demo_is_a_whole_bank_with_a_reversal_and_a_frozen_map() -> None:
    path = demo_bank()
    assert all(finding.ok for finding in check(str(path)))
    with MemoryBank.open(str(path)) as bank:
        found = first_reversal(bank, lambda trace: rerunner(bank, trace, Preferences()))
        # The task is solved for that reason: with what λ = 0 would have chosen it is not.
        trace = bank.trace(found.run, found.step)
        again = rerunner(bank, trace, Preferences())
        _, by_similarity = decided(situation_of(bank, trace), {**trace.settings, "weight": 0.0})
        assert set(by_similarity.selected) != set(again.memories)
        assert trace.reward.outcome == again.rerun(again.memories).outcome == "success"
        assert again.rerun(by_similarity.selected).outcome == "failure"
        # Each epoch asks in other words.
        assert len({trace.task.intent for trace in bank.traces("household")}) == 40
        layout = bank.layouts.newest()
        assert set(layout.coordinates) == set(bank.memory_ids())


def test_resetting_the_demo_takes_back_what_was_added() -> None:
    with MemoryBank.open(str(demo_bank())) as bank:
        before = bank.next_step("household")
        live = live_run(bank, "household", Preferences())
        live.finish()
        assert live.wait(20)
        assert bank.next_step("household") == before + 1
    with MemoryBank.open(str(reset_demo_bank())) as bank:
        assert bank.next_step("household") == before


def test_all_who_open_the_demo_first_get_the_same_whole_bank() -> None:
    with ThreadPoolExecutor(4) as threads:
        paths = {found.result() for found in [threads.submit(demo_bank) for _ in range(4)]}
    (path,) = paths
    assert all(finding.ok for finding in check(str(path)))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_preferences_are_kept_and_a_broken_file_is_passed_over(home: Path) -> None:
    save_preferences(Preferences(rater="ann", timeout=5))
    assert load_preferences().rater == "ann"
    (home / "preferences.json").write_text("{broken")
    assert load_preferences() == Preferences()


@pytest.mark.parametrize("place", ["/dev/null/home", "x" * 300])
def test_without_a_home_that_can_be_written_there_is_a_passing_demo_and_sentences_name_memrl_home(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    assert home_problem() == ""
    monkeypatch.setenv("MEMRL_HOME", place)
    assert "MEMRL_HOME" in home_problem()
    assert list_banks(banks_folder()) == [] and load_preferences() == Preferences()
    demo = demo_bank()
    assert demo == demo_bank() and sample_data_path() not in demo.parents
    with MemoryBank.open(str(demo)) as bank:
        assert bank.runs()
    with pytest.raises(InputError, match="MEMRL_HOME"):
        save_preferences(Preferences(rater="ann"))


def test_a_bank_that_the_home_has_no_room_for_names_memrl_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMRL_HOME", "/dev/null/home")
    with pytest.raises(BankReadOnly, match="MEMRL_HOME"):
        create_bank(str(banks_folder() / "new"), "hashing", Preferences())


def test_a_user_without_a_home_folder_has_one_at_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMRL_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert home_folder() == Path("/.memrl")


def test_what_nobody_chose_is_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1111")
    save_preferences(load_preferences().model_copy(update={"rater": "ann"}))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:2222")
    assert load_preferences().ollama_address == "http://127.0.0.1:2222"
    assert load_preferences().rater == "ann"


def test_a_run_of_unknown_parts_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    bank = MemoryBank.create(str(tmp_path / "bank"), embedder.name, embedder.dimension)
    with pytest.raises(InputError, match="no environment"):
        start_run(bank, environment="nowhere", tasks="")
    with pytest.raises(InputError, match="of tasks"):
        start_run(bank, environment="household", tasks="nothing")
    with pytest.raises(InputError, match="240 tasks"):
        start_run(bank, environment="household", tasks="household-train", task_count=241)
    with pytest.raises(SettingsError, match="no policy"):
        start_run(bank, environment="household", tasks="household-train", policy="other")
    assert bank.runs() == []


@pytest.mark.parametrize(("model", "own_words"), [("gguf:smollm2", False), ("llama3.2", True)])
def test_a_model_too_small_for_lessons_is_asked_for_none_unless_somebody_wants_them(
    tmp_path: Path, model: str, own_words: bool
) -> None:
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-256", 256) as bank:
        parts: Any = {"environment": "household", "tasks": "household-demo", "model": model, "model_facts": {}}
        usual = start_run(bank, **parts, run="usual").environment_options
        asked = start_run(bank, **parts, run="asked", environment_options={"own_words": True})
    assert usual.get("own_words", True) is own_words
    assert asked.environment_options["own_words"] is True


def test_a_run_takes_settings_and_knowledge_of_its_base(tmp_path: Path) -> None:
    with MemoryBank.open(str(demo_bank())) as bank:
        info = start_run(
            bank,
            environment="household",
            tasks="household-heldout",
            base="household",
            settings=MemRLSettings.of({"weight": 0.0}),
            run="held-out",
        )
        assert (info.base_step, bank.settings("held-out")["weight"]) == (40, 0.0)
        assert dict(bank.utilities("held-out")) == dict(bank.utilities("household"))


def test_an_embedder_that_now_gives_another_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    changed = Model("nomic-embed-text:latest", 1, "nomic-bert", ("embedding",), 2048, dimension=32)
    with OllamaServer(models=(LLAMA, changed)) as server:
        bank = MemoryBank.create(str(tmp_path / "bank"), "nomic-embed-text", 64)
        start_run(bank, environment="household", tasks="household-train", run="r")
        with pytest.raises(EmbedderMismatch, match="64 dimensions then, 32 ") as refused:
            live_run(bank, "r", Preferences(ollama_address=server.address))
        assert "memrl reembed --bank" in str(refused.value)


def test_a_model_that_answers_makes_the_vectors_of_a_new_bank_only_by_its_full_name(tmp_path: Path) -> None:
    with OllamaServer() as server:
        server.models["llama3.2"] = replace(LLAMA, dimension=16)
        here = Preferences(ollama_address=server.address)
        with pytest.raises(InputError, match=r"nomic-embed-text.*ollama:llama3\.2"):
            create_bank(str(tmp_path / "bank"), "llama3.2", here)
        assert not (tmp_path / "bank").exists()
        with create_bank(str(tmp_path / "bank"), "ollama:llama3.2", here) as bank:
            assert bank.embedder.name == "llama3.2"


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path) -> None:
    with OllamaServer() as server:
        here = Preferences(ollama_address=server.address)
        with create_bank(str(tmp_path / "bank"), "nomic-embed-text", here) as bank:
            made = bank.embedder
            start_run(bank, environment="household", tasks="household-train", run="r")
            live_run(bank, "r", here)
            server.salt = "other weights"
            with pytest.raises(EmbedderMismatch, match="memrl reembed --bank"):
                live_run(bank, "r", here)
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.embedder == made
        assert len(made.digest) == 64 and made.version.startswith("Ollama ")


def test_a_step_that_lost_its_server_goes_on_at_another_address(tmp_path: Path) -> None:
    with OllamaServer() as server:
        bank = MemoryBank.create(str(tmp_path / "bank"), "nomic-embed-text", 64)
        start_run(bank, environment="household", tasks="household-train", run="r", model="llama3.2", model_facts={})
        live = live_run(bank, "r", Preferences(ollama_address=server.address))
        for _ in range(4):
            live.step()
            assert live.wait(20)
    live.finish()
    assert live.wait(20)
    assert isinstance(live.error, OllamaDown)
    assert live.episode.phase is Phase.GENERATE
    attempt = live.episode.trace.id
    with OllamaServer() as another:
        reconnect(live, Preferences(ollama_address=another.address))
        live.finish()
        assert live.wait(20)
    assert live.error is None
    assert bank.trace("r", 1).id == attempt


def test_what_a_model_begins_with_is_kept_without_what_is_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    keep_options("small", {"choices": "prompt"})
    keep_options("other", {"layout": "turns"})
    keep_options("other", {})
    assert load_preferences().model_options == {"small": {"choices": "prompt"}}
    with pytest.raises(SettingsError, match="choices"):
        keep_options("small", {"choices": "everywhere"})
    kept = tmp_path / "preferences.json"
    kept.write_text(json.dumps({"rater": "ann", "model_options": {"small": {"best": "last"}, "bad": {"best": "so"}}}))
    preferences = load_preferences()
    assert (preferences.rater, preferences.model_options) == ("ann", {"small": {"best": "last"}})
