"""A bank whose vectors lie on an object store in the app: opened by its TOML file, linked to, no key on the screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import DEMO, load_preferences, remember_bank
from memrl_core.agent.runs import live_run, start_run
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError
from pages.shared import place as places
from tests.object_store import ObjectStore, object_store, set_environment
from tests.pages.screen import Visit, page_text

ACCESS_KEY, SECRET = "AKIDOFTHETESTS", "s3cr3t-of-the-tests"


def address(home: Path) -> str:
    """The TOML file of a bank whose facts are on this machine and whose vectors are in the store."""
    file = home / "shared.toml"
    file.write_text(f'database = "{home}/shared.db"\nvectors = "s3://bucket/team/shared"\n')
    return str(file)


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store(ACCESS_KEY, SECRET) as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, home: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The store with a bank of two steps at `address`."""
    set_environment(server, monkeypatch)
    places.opened.clear()
    server.buckets.clear()
    server.buckets["bucket"] = {}
    embedder = HashingEmbedder()
    with MemoryBank.create(address(home), embedder.name, embedder.dimension) as bank:
        info = start_run(bank, environment="household", tasks="household-train", run="far")
        live = live_run(bank, info.id, load_preferences())
        assert len(list(live.agent.run(live.tasks[:2]))) == 2
    return server


def open_address(app: AppTest, address: str) -> AppTest:
    app.text_input(key="open_uri").set_value(address).run()
    return app.button(key="open_uri_go").click().run()


def must_not_tell(app: AppTest, home: Path) -> None:
    kept = [file.read_bytes() for file in home.rglob("*") if file.is_file()]
    for key in (ACCESS_KEY, SECRET):
        assert key not in page_text(app) + "".join(toast.value for toast in app.toast)
        assert key not in str(app.query_params)
        assert not any(key.encode() in data for data in kept)


def test_a_bank_is_opened_by_its_address_and_its_run_goes_on(store: ObjectStore, home: Path, visit: Visit) -> None:
    app = open_address(visit("home"), address(home))
    assert not app.error
    must_not_tell(app, home)
    assert load_preferences().opened == {"shared": address(home)}
    app = visit("step", bank="shared", run="far", step="2")
    assert not app.error
    assert app.session_state["place"] == {"bank": "shared", "run": "far", "step": "2"}
    must_not_tell(app, home)
    assert visit("step", bank=address(home)).session_state["place"]["bank"] == "shared"


def test_a_link_makes_nobody_knock_at_an_address_that_was_never_opened(
    store: ObjectStore, demo: Path, home: Path, visit: Visit
) -> None:
    store.requests.clear()
    app = visit("step", bank="demo")
    app.query_params["bank"] = f"s3://{ACCESS_KEY}:{SECRET}@bucket/team/shared"
    app.run()
    assert "s3://bucket/team/shared" in app.warning[0].value.replace("\\", "") and SECRET not in app.warning[0].value
    assert app.session_state["place"]["bank"] == DEMO
    must_not_tell(app, home)
    assert store.requests == []


def test_an_address_with_keys_is_neither_opened_nor_kept(store: ObjectStore, home: Path, visit: Visit) -> None:
    store.requests.clear()
    app = open_address(visit("home"), f"s3://{ACCESS_KEY}:{SECRET}@bucket/team/shared")
    assert ".toml" in app.error[0].value
    assert not load_preferences().opened
    assert store.requests == []
    assert not any(SECRET.encode() in file.read_bytes() for file in home.rglob("*") if file.is_file())


@pytest.mark.slow
def test_a_bank_whose_store_is_gone_is_reported_in_a_sentence(
    store: ObjectStore, home: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_bank(address(home))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    app = visit("step", bank="shared")
    assert "does not answer" in app.error[0].value
    assert app.button(key="leave")


def test_two_banks_whose_addresses_end_alike_get_two_names(home: Path) -> None:
    names = [remember_bank(f"/{folder}/bank.toml") for folder in ("one", "two", "one")]
    assert names == ["bank", "bank-2", "bank"]
    with pytest.raises(InputError):
        remember_bank("/two/not a name.toml")
