"""A link comes from somebody else: it opens the banks of the app's folder and those opened by hand, and no other."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from memrl_core.agent.preferences import banks_folder, load_preferences
from memrl_core.bank import MemoryBank
from tests.builders import a_bank
from tests.pages.screen import Visit, page_text

ELSEWHERE = "elsewhere"


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank that nobody has opened here."""
    path = tmp_path_factory.mktemp("outside") / ELSEWHERE
    a_bank(path).close()
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every place at which a bank was looked for."""
    places: list[str] = []
    really = MemoryBank.open.__func__

    def noted(cls: type[MemoryBank], uri: str, *given: object, **more: object) -> MemoryBank:
        places.append(uri)
        return really(cls, uri, *given, **more)

    monkeypatch.setattr(MemoryBank, "open", classmethod(noted))
    return places


def spellings(outside: Path, banks: Path) -> list[str]:
    """Ways to name a bank by where it lies."""
    ways_up = "../" * len(banks.parts)
    return [
        str(outside),
        f"{ways_up}{outside.relative_to('/')}",
        quote(f"{ways_up}{outside.relative_to('/')}", safe=""),
        f"demo/../{ways_up}{outside.relative_to('/')}",
        outside.as_uri(),
        f"demo\x00{outside}",
        "..",
        ".",
        "",
        "~",
        "s3://somebody/bank",
        "a" * 5000,
        "demo/",
        "..\\..\\elsewhere",
    ]


@pytest.mark.parametrize("page", ["step", "lab"])
def test_a_link_opens_no_bank_by_its_path(
    demo: Path, visit: Visit, outside: Path, opened: list[str], page: str
) -> None:
    app = visit(page, bank="demo")
    for spelling in spellings(outside, banks_folder()):
        app.query_params["bank"] = spelling
        app.run()
        assert "no bank" in page_text(app), spelling
        assert app.query_params["bank"] in ([spelling], spelling)
    assert {Path(uri).parent for uri in opened} == {banks_folder()}


def test_a_link_opens_what_a_person_opened_by_hand(demo: Path, visit: Visit, outside: Path) -> None:
    app = visit("home")
    app.text_input(key="open_uri").set_value(str(outside)).run()
    app.button(key="open_uri_go").click().run()
    assert "no bank" not in page_text(visit("step", bank=ELSEWHERE))
    assert load_preferences().opened == {ELSEWHERE: str(outside)}


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("tasks", {"environment": "../../x", "set": "../../../etc/passwd-00000000", "task": "'; DROP TABLE steps; --"}),
        ("decision", {"bank": "demo", "ask": "__class__", "a": "' OR '1'='1", "weight": "1e999", "k1": "nan"}),
        ("compare", {"bank": "demo", "against": "household' OR 1=1,../x", "under": "__class__=1,k2='"}),
        ("methods", {"bank": "demo", "show": "What it has learned", "by": "os.system"}),
        ("rewards", {"bank": "demo", "view": "__init__", "show": "x", "only": "' OR ''='", "since": "9" * 400}),
    ],
)
def test_no_parameter_of_a_link_is_taken_for_more_than_a_name(
    demo: Path, visit: Visit, opened: list[str], page: str, link: dict[str, str]
) -> None:
    app = visit(page, **link)
    assert page_text(app)
    assert {Path(uri).parent for uri in opened} <= {banks_folder()}
