"""Text that tries to be more than text, on every screen: no script runs, and nothing but the app is asked for anything.

The texts are those of `payloads`, in every field that a model, a memory, an import, a link or another person fills.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from memrl_core.bank import MemoryBank
from memrl_core.figures.report.step import step_report
from memrl_core.learning.scales import Scale
from pages.compare import choice
from pages.decision.catalogue import QUESTIONS
from pages.lab import place
from pages.lab.twins import CHARTS
from pages.methods.learned import DRAWN
from tests.browser.conftest import RunningApp, watched_page
from tests.browser.hostile_home import IN_A_FILE, OF_METHODS, RUNS, make
from tests.browser.payloads import HOST, HTML, MARKDOWN, PLOTLY, RUN, STREAMLIT, WORDS
from tests.browser.test_story import settled

# Everywhere in the page, in shadow trees too. The app's own links to its pages carry names in their queries.
LOOK = """([host, words]) => {
  const found = [];
  const addresses = ["href", "src", "srcset", "srcdoc", "action", "formaction", "data", "poster", "background", "style",
                     "xlink:href"];
  const shown = (element) => element.outerHTML.slice(0, 300);
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) look(element.shadowRoot);
      const own = element.dataset?.testid === "stPageLink-NavLink";
      for (const { name, value } of element.attributes) {
        const hostile = value.includes(host) || value.includes("window.pwned") || /^\\s*javascript:/i.test(value);
        if (addresses.includes(name) && hostile && !own) found.push(`an address: ${shown(element)}`);
        if (name.startsWith("on")) found.push(`a handler: ${shown(element)}`);
      }
      const alone = element.childElementCount === 0 && words.includes(element.textContent.trim());
      if (alone) found.push(`marks were taken for marks: ${shown(element.parentElement)}`);
      if (element.classList.contains("katex")) found.push(`LaTeX: ${shown(element)}`);
    }
  };
  look(document);
  if (window.pwned) found.push("a script ran");
  return [...new Set(found)];
}"""
UNFOLD = """() => {
  const closed = [...document.querySelectorAll("[data-testid=stMain] details:not([open]) > summary")];
  closed.forEach((summary) => summary.click());
  return closed.length;
}"""
SHOWN = """() => {
  const fields = [...document.querySelectorAll("input, textarea")].map((field) => field.value);
  return [(document.querySelector("[data-testid=stMain]") ?? document.body).textContent, ...fields].join(" ");
}"""
MARKED = (*HTML, *MARKDOWN, *STREAMLIT, *PLOTLY, *RUNS.values(), *OF_METHODS.values())
DEPTH = 4
"""Folds within folds."""

HOSTILE = {"bank": "hostile", "run": RUNS["one"]}
FOREIGN = {"bank": "foreign", "run": IN_A_FILE["one"]}
PAIR = {"bank": "twins", "left": RUNS["one"], "right": RUNS["two"]}
LINKS = (f"<img src=x onerror={RUN}>", f"**pwnstrong** ![pwnimage](//{HOST}/a)", ":red[pwnred] $pwn$ :material/skull:")

Do = Callable[[Page], None]


def letters(text: str) -> str:
    """What is seen of a text: it may break its lines elsewhere, and holds nothing that cannot be seen."""
    return "".join(letter for letter in text if unicodedata.category(letter)[0] not in "CZ")


@dataclass
class Watched:
    """An app whose every text is hostile, a page of it, and every address that a page asked for or a dialog said."""

    app: RunningApp
    page: Page
    memories: dict[str, tuple[str, ...]]
    asked: list[str] = field(default_factory=list)

    def go(self, path: str, **link: str) -> None:
        self.page.goto(f"{self.app.url}/{path}?{urlencode(link)}")
        expect(self.page.get_by_test_id("stMainBlockContainer")).to_be_visible()
        settled(self.page)

    def unfold(self) -> None:
        """Open every fold, and those that come to sight in them."""
        for _ in range(DEPTH):
            if not self.page.evaluate(UNFOLD):
                return
            settled(self.page)

    def must_show_them(self) -> None:
        """Some payload that has marks stands there, or in a field, all its marks in place."""
        # A file of TOML ends its texts at a double quote.
        shown = letters(self.page.evaluate(SHOWN)).replace('"', "'")
        assert any(letters(payload).replace('"', "'") in shown for payload in MARKED)

    def must_be_harmless(self) -> None:
        assert self.page.evaluate(LOOK, [HOST, WORDS]) == []
        assert "could not be drawn" not in self.page.evaluate("document.body.textContent")
        assert self.page.get_by_test_id("stException").count() == 0
        own = (self.app.url, self.app.url.replace("http://", "ws://"), "data:", "blob:")
        assert [address for address in self.asked if not address.startswith(own)] == []


@pytest.fixture(scope="module")
def watched(browser: Browser, serve: Callable[..., RunningApp]) -> Iterator[Watched]:
    app = serve()
    make(app.home)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    pages = watched_page(context, app)
    page = next(pages)
    memories = {}
    for name in ("hostile", "foreign", "twins"):
        with MemoryBank.open(str(app.home / "banks" / name)) as bank:
            memories[name] = tuple(bank.memory_ids())
    found = Watched(app, page, memories)
    context.on("request", lambda request: found.asked.append(request.url))
    context.on("page", lambda opened: found.asked.append(f"a window: {opened.url}"))
    page.on("websocket", lambda socket: found.asked.append(socket.url))
    page.on("dialog", lambda dialog: (found.asked.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    yield found
    next(pages, None)
    context.close()
    log = (app.home / "server.log").read_text(encoding="utf-8", errors="replace")
    assert "pwn" not in log, f"The server's output holds contents of the banks: {log[-2000:]}"


def hover(page: Page) -> None:
    """Let every chart tell of its points: Plotly reads a small HTML in what it shows there."""
    for chart in page.locator(".memory-map").all():
        for point in chart.locator(".scatterlayer .point").all()[:6]:
            point.hover(force=True)
    page.get_by_test_id("stTooltipHoverTarget").first.hover()
    expect(page.get_by_test_id("stTooltipContent").first).to_be_visible()


def start_form(page: Page) -> None:
    page.get_by_role("button", name="Start a live run").click()
    settled(page)


def as_tables(page: Page) -> None:
    toggles = page.get_by_text("Show as table")
    for number in range(toggles.count()):
        toggles.nth(number).click()
    settled(page)


def everything_there(page: Page) -> None:
    """Tables, and what opens over the page, one after the other: each stays in sight until the next is opened."""
    as_tables(page)
    for kind in ("stPopover", "stSelectbox"):
        found = page.get_by_test_id("stMain").get_by_test_id(kind)
        for number in range(found.count()):
            inner = found.nth(number).locator("button" if kind == "stPopover" else "input").first
            if inner.is_visible() and inner.is_enabled():
                inner.click()
                settled(page)
                assert page.evaluate(LOOK, [HOST, WORDS]) == []
                page.keyboard.press("Escape")
                settled(page)


def all_scales(page: Page) -> None:
    """Every scale by which a step can be rated, then all else that is there."""
    menu = page.locator(".st-key-queue_menu button").first
    scales = page.locator(".st-key-rating_scale").get_by_role("radio")
    for number in range(len(get_args(Scale))):
        menu.click()
        expect(scales).to_have_count(len(get_args(Scale)))
        scales.nth(number).click()
        page.keyboard.press("Escape")
        settled(page)
        assert page.evaluate(LOOK, [HOST, WORDS]) == []
    everything_there(page)


def changes_of_a_memory(page: Page) -> None:
    """Every change that the dialog offers."""
    everything_there(page)
    page.locator(".st-key-change_memory button").click()
    changes = page.get_by_role("dialog").get_by_role("radio")
    expect(changes).to_have_count(4)
    for number in range(4):
        changes.nth(number).click()
        settled(page)
        assert page.evaluate(LOOK, [HOST, WORDS]) == []


def deleting(page: Page) -> None:
    """What is asked before a bank of a hostile name is deleted."""
    everything_there(page)
    page.get_by_role("button", name="Delete", exact=True).first.click()
    expect(page.get_by_role("dialog")).to_contain_text("This cannot be undone")


def tells(text: str, do: Do | None = None) -> Do:
    """The page is about `text`, and not about what it falls back to where a link names what is not there."""

    def done(page: Page) -> None:
        expect(page.get_by_test_id("stMain")).to_contain_text(text)
        if do is not None:
            do(page)

    return done


LAB = {
    place.TWINS: "Look closer",
    place.THEORY: "Every formula with its numbers",
    place.STUDY: "beats similarity in",
}
"""What stands there once the pair was opened."""

VIEWS: dict[str, tuple[str, dict[str, str], Do | None]] = {
    "home": ("", HOSTILE, start_form),
    "home, all that opens": ("", HOSTILE, everything_there),
    "home of what came from elsewhere": ("", FOREIGN, None),
    "a step": ("step", {**HOSTILE, "step": "6", "memory": "2"}, hover),
    "all that opens beside a step": ("step", {**HOSTILE, "step": "6", "memory": "2"}, everything_there),
    "a step of what came from elsewhere": ("step", {**FOREIGN, "step": "6", "memory": "1"}, hover),
    "the live end": ("step", HOSTILE, everything_there),
    **{
        f"the question {one.key}": (
            "decision",
            {**HOSTILE, "step": "6", "ask": one.key, "a": "1", "b": "3"},
            tells(one.text, everything_there if one.key == "pair" else None),
        )
        for one in QUESTIONS
    },
    "a question about another program": ("decision", {**FOREIGN, "step": "6", "ask": "origin", "a": "1"}, None),
    "the queue": ("rewards", {**HOSTILE, "view": "Queue", "show": "all"}, all_scales),
    "tasks": ("tasks", {**HOSTILE, "environment": "task_file"}, everything_there),
    "methods on a pool": ("methods", {**HOSTILE, "step": "6", "show": "On this pool"}, as_tables),
    **{
        f"what {policy} has learned": (
            "methods",
            {"bank": "methods", "run": OF_METHODS[policy], "show": "What it has learned"},
            tells("What has been learned by"),
        )
        for policy in DRAWN
    },
    "two runs": ("compare", {**HOSTILE, "against": RUNS["two"]}, as_tables),
    "one run under other settings": ("compare", {**HOSTILE, "under": "k2=1"}, None),
    **{f"the Lab's {view}": ("lab", {**PAIR, "view": view}, tells(LAB[view])) for view in place.VIEWS},
    **{f"the Lab's {chart} of twins": ("lab", {**PAIR, "chart": chart}, tells(LAB[place.TWINS])) for chart in CHARTS},
    "lessons": ("lessons", {}, None),
    "the memories": ("bank", {**HOSTILE, "memory": "4"}, changes_of_a_memory),
    "the memories of what came from elsewhere": ("bank", {**FOREIGN, "memory": "5"}, None),
}

SWITCHED = {
    "rewards": ("People", "What changed", "Audit", "Import and export", "Rules"),
    "bank": ("Settings", "Import and export", "Banks of this machine"),
    "methods": ("Cards",),
    "compare": (choice.METHODS,),
}
"""What is chosen on a page; its link is tried elsewhere."""


@pytest.mark.parametrize("view", VIEWS)
def test_no_text_becomes_more_than_text(watched: Watched, view: str) -> None:
    path, link, do = VIEWS[view]
    known = watched.memories.get(link.get("bank", ""), ())
    link = {name: known[int(value)] if name in ("memory", "a", "b") else value for name, value in link.items()}
    watched.go(path, **link)
    watched.unfold()
    if do is not None:
        do(watched.page)
    # The Lab calls runs by their settings.
    if path != "lab":
        watched.must_show_them()
    watched.must_be_harmless()


def test_no_report_becomes_more_than_text(watched: Watched, tmp_path: Path) -> None:
    with MemoryBank.open(str(watched.app.home / "banks" / "hostile")) as bank:
        file = tmp_path / "report.html"
        file.write_text(step_report(bank, RUNS["one"], 6), encoding="utf-8")
    before = len(watched.asked)
    watched.page.goto(file.as_uri())
    expect(watched.page.locator(".main-svg").first).to_be_visible()
    watched.must_show_them()
    assert watched.page.evaluate(LOOK, [HOST, WORDS]) == []
    asked, watched.asked[before:] = watched.asked[before:], []
    assert [one for one in asked if one != file.as_uri() and not one.startswith(("data:", "blob:"))] == []


def test_no_lesson_becomes_more_than_text(watched: Watched) -> None:
    watched.go("lessons", lesson="00-hostile")
    watched.must_show_them()
    watched.must_be_harmless()
    watched.page.locator(".ls-choices button").first.click()
    watched.page.locator(".ls-hand input").first.press("ArrowRight")
    expect(watched.page.locator(".ls-verdict")).not_to_be_empty()
    watched.must_be_harmless()


@pytest.mark.parametrize("path", SWITCHED)
def test_no_other_view_of_a_page_becomes_more_than_text(watched: Watched, path: str) -> None:
    watched.go(path, **HOSTILE, step="6")
    for view in SWITCHED[path]:
        if path == "rewards":
            watched.page.locator(".st-key-rewards_view input").click()
        role = "option" if path == "rewards" else "radio"
        watched.page.get_by_role(role, name=view, exact=True).click()
        settled(watched.page)
        watched.unfold()
        watched.must_show_them()
        if view == "Banks of this machine":
            deleting(watched.page)
        watched.must_be_harmless()


@pytest.mark.parametrize("text", LINKS)
def test_no_link_becomes_more_than_text(watched: Watched, text: str) -> None:
    watched.go("step", bank=text)
    expect(watched.page.locator(".st-key-not_here")).to_contain_text("There is no bank")
    watched.must_be_harmless()


@pytest.mark.parametrize(
    ("path", "link"),
    [("bank", {}), ("rewards", {"view": "Audit"})],
)
def test_no_table_gives_its_texts_away_as_formulas(
    page: Page, app: RunningApp, path: str, link: dict[str, str]
) -> None:
    """Streamlit's own button and its clipboard take texts as they are; the app's files do not."""
    page.goto(f"{app.url}/{path}?{urlencode({'bank': 'demo', 'run': 'household', **link})}")
    table = page.get_by_test_id("stDataFrame").first
    expect(table).to_be_visible()
    settled(page)
    table.hover()
    expect(page.get_by_role("button", name="Search").first).to_be_visible()
    expect(page.get_by_role("button", name="Download as CSV")).to_have_count(0)
