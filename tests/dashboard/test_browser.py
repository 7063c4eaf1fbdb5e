"""The stories of an officer and an analyst in a real browser, by keyboard, light and dark.

Every page that is opened is watched: no request leaves this machine, and the console stays empty.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.dashboard.chromium import browser

from dpolicy.demo.demo_server import PAGES

AXE = Path(__file__).parent.parent / "data" / "axe" / "axe.min.js.gz"
SHOWN = [path.removesuffix("?verify=1") for path in PAGES]
READ = [path for path in SHOWN if not path.startswith("/static") and ".svg" not in path]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of this module."""
    with browser() as running:
        yield running


class Watched:
    """A page, what it asked for, and what its console says."""

    def __init__(self, page: Page) -> None:
        self.page, self.hosts, self.said = page, set[str](), list[str]()
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))


Open = Callable[..., Page]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """Opens a page at an address, in a window of its own."""
    windows: list[tuple[Any, Watched]] = []

    def open_(address: str, **options: Any) -> Page:
        window = chromium.new_context(viewport={"width": 1360, "height": 900}, **options)
        watched = Watched(window.new_page())
        windows.append((window, watched))
        watched.page.goto(address)
        return watched.page

    yield open_
    for window, watched in windows:
        window.close()
        assert watched.hosts == {"127.0.0.1"}
        assert watched.said == []


def test_the_officers_story(own_site: str, visit: Open) -> None:
    """Overview → a tight rule → a candidate with a mistake → its difference → conflict → apply."""
    page = visit(own_site)
    expect(page.get_by_role("heading", level=1)).to_have_text("Budgets")
    attributes = page.get_by_role("region", name="Attributes")
    attributes.get_by_role("link", name="home-zone").click()
    page.get_by_role("row", name="home-zone × standard").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("attribute[home-zone] × standard")
    expect(page.get_by_role("img", name="share of the budget")).to_be_visible()
    expect(page.get_by_role("link", name="mobility-report", exact=False).first).to_be_visible()
    page.get_by_role("link", name="Policy", exact=True).click()
    editor = page.get_by_role("textbox", name="policy.yaml")
    text = editor.input_value()
    limit = "except: {home-zone: {epsilon: 3.5}}"
    assert limit in text
    page.get_by_role("textbox", name="policy.yaml").fill(
        text.replace(limit, "except: {home-zon: {epsilon: 2.5}}")
    )
    page.get_by_role("button", name="See what it would do").click()
    expect(page.locator(".diagnostic")).to_contain_text("did you mean `home-zone`?")
    expect(page.get_by_role("button", name="Apply this policy")).to_have_count(0)
    tighter = text.replace(limit, "except: {home-zone: {epsilon: 2.5}}")
    editor.fill(tighter)
    page.get_by_role("button", name="See what it would do").click()
    expect(page.get_by_role("table", name="Conflicts")).to_contain_text("at least ε 3.")
    expect(page.get_by_role("table", name="Rules that change")).to_contain_text("tightened")
    otherwise = page.get_by_role("table", name="decided otherwise")
    expect(otherwise).to_contain_text("denied")
    page.get_by_label("Why, for the record").fill("the board wants it tighter")
    page.get_by_role("button", name="Apply this policy").click()
    expect(page.get_by_role("alert")).to_contain_text("not accepted")
    page.get_by_role("checkbox").check()
    page.get_by_label("Why, for the record").fill("the board wants it tighter")
    page.get_by_role("button", name="Apply this policy").click()
    expect(page.get_by_role("status")).to_contain_text("in force from record")
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator("table.log tbody tr").first).to_contain_text("the board wants it tighter")
    page.get_by_role("link", name="Budgets", exact=True).click()
    expect(page.locator("table.scopes tbody tr").first).to_contain_text("broken")


def test_the_analysts_story(own_site: str, visit: Open) -> None:
    """Releases → the denied one → reasons → a counter-offer that fits → a round."""
    page = visit(f"{own_site}/releases")
    page.get_by_label("Id, team, attribute or mechanism").fill("marketing home-zone")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="denied").click()
    page.get_by_role("link", name="home-zone-heat-map").click()
    expect(page.get_by_role("heading", name="Why it was denied")).to_be_visible()
    broken = page.get_by_role("table", name="Rules that it would break")
    expect(broken).to_contain_text("attribute[home-zone] × standard")
    page.get_by_role("link", name="Try it with more noise").click()
    page.get_by_role("button", name="What would be decided?").click()
    expect(page.get_by_role("heading", name="would be allowed")).to_be_visible()
    page.get_by_role("link", name="Rounds", exact=True).click()
    page.get_by_role("link", name="Load the example round").click()
    page.get_by_label("Strategy").select_option("price")
    page.get_by_role("button", name="Who would win?").click()
    found = page.get_by_role("table", name="Winners and losers")
    expect(found).to_contain_text("fits alone, not beside the winners")
    expect(found).to_contain_text("price")
    page.get_by_role("link", name="Approvals", exact=True).click()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_contain_text("Answered")
    expect(page.get_by_text("Nothing waits")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", READ)
def test_pages_are_accessible(site: str, visit: Open, path: str, scheme: str) -> None:
    """axe finds nothing: names, labels, landmarks, order of headings, contrast in both schemes."""
    page = visit(f"{site}{path}", color_scheme=scheme, bypass_csp=True)
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("path", "button"),
    [
        ("/policy?example=1", "See what it would do"),
        ("/rounds?example=1", "Who would win?"),
        ("/check?release=home-zone-heat-map&factor=3", "What would be decided?"),
        ("/check?release=home-zone-heat-map", "What would be decided?"),
    ],
)
def test_answers_are_accessible(
    site: str, visit: Open, path: str, button: str, scheme: str
) -> None:
    page = visit(f"{site}{path}", color_scheme=scheme, bypass_csp=True)
    page.get_by_role("button", name=button).click()
    page.wait_for_load_state()
    assert violations(page) == []


def violations(page: Page) -> list[str]:
    """What axe finds on a page."""
    page.evaluate(gzip.decompress(AXE.read_bytes()).decode("utf-8"))
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate(f"axe.run({{runOnly: {json.dumps(rules)}}})")
    return [
        f"{one['id']}: {node['html'][:120]} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def test_axe_finds_what_is_wrong(site: str, visit: Open) -> None:
    """The canary: a page without names and with pale words is not let through."""
    page = visit(f"{site}/login", bypass_csp=True)
    page.set_content(
        '<html lang="en"><title>x</title><main><h1>x</h1><h3>y</h3><input>'
        '<p style="color:#ccc;background:#fff">pale</p></main></html>'
    )
    found = " ".join(violations(page))
    assert all(rule in found for rule in ("label:", "color-contrast:", "heading-order:"))


@pytest.mark.parametrize("path", READ)
def test_everything_is_reached_by_keyboard(site: str, visit: Open, path: str) -> None:
    """Tab goes through every link, field and button, in the order of the page, and can be seen."""
    page = visit(f"{site}{path}")
    reach = "a[href], button, input:not([type=hidden]), textarea, select, summary"
    wanted = page.evaluate(
        f"[...document.querySelectorAll('{reach}')].filter(e => e.checkVisibility()).length"
    )
    page.evaluate("document.activeElement.blur()")
    seen = 0
    first = page.locator(".skip")
    for step in range(wanted + 60):
        page.keyboard.press("Tab")
        if step == 0:
            expect(first).to_be_focused()
        state = page.evaluate(
            "(() => { const e = document.activeElement; if (e === document.body) return null;"
            f" return [e.matches('{reach}'), getComputedStyle(e).outlineStyle] }})()"
        )
        if state is None:
            break
        seen += state[0]
        assert state[1] != "none"
    assert seen == wanted


@pytest.mark.parametrize("path", READ)
def test_pages_fit_a_phone(site: str, visit: Open, path: str) -> None:
    """Nothing sticks out: wide tables scroll in their own frame."""
    page = visit(f"{site}{path}")
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_dark_and_light_differ(site: str, visit: Open) -> None:
    grounds = {
        visit(site, color_scheme=scheme).evaluate(
            "getComputedStyle(document.documentElement).backgroundColor"
        )
        for scheme in ("light", "dark")
    }
    assert len(grounds) == 2
