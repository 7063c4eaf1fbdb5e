"""Tests in a real browser: the tasks of an officer and an analyst, accessibility, keyboard, phone.

Every test also checks that pages send requests to this machine only and that the console is empty.
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
PATHS = [
    path.removesuffix("?verify=1")
    for path in PAGES
    if not path.startswith("/static") and ".svg" not in path
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Run one browser for all tests of this module."""
    with browser() as running:
        yield running


class MonitoredPage:
    """Page with the hosts of its requests and the messages of its console."""

    def __init__(self, page: Page) -> None:
        self.page, self.hosts, self.messages = page, set[str](), list[str]()
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))


Visit = Callable[..., Page]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Return a function that opens a URL in a new window."""
    windows: list[tuple[Any, MonitoredPage]] = []

    def open_page(url: str, **options: Any) -> Page:
        window = chromium.new_context(viewport={"width": 1360, "height": 900}, **options)
        monitored = MonitoredPage(window.new_page())
        windows.append((window, monitored))
        monitored.page.goto(url)
        return monitored.page

    yield open_page
    for window, monitored in windows:
        window.close()
        assert monitored.hosts == {"127.0.0.1"}
        assert monitored.messages == []


def test_an_officer_tightens_a_policy(own_site: str, visit: Visit) -> None:
    """Overview → tight rule → candidate with an error → preview → conflict → activation."""
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
    limit = "except: {home-zone: {epsilon: 3}}"
    assert limit in text
    page.get_by_role("textbox", name="policy.yaml").fill(
        text.replace(limit, "except: {home-zon: {epsilon: 2.5}}")
    )
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".diagnostic")).to_contain_text("did you mean `home-zone`?")
    expect(page.get_by_role("button", name="Activate")).to_have_count(0)
    tighter = text.replace(limit, "except: {home-zone: {epsilon: 2.5}}")
    editor.fill(tighter)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("table", name="Conflicts")).to_contain_text("enough: ε 2.9")
    expect(page.get_by_role("table", name="Changed rules")).to_contain_text("tightened")
    changed = page.get_by_role("table", name="Changed decisions")
    expect(changed).to_contain_text("denied")
    page.get_by_label("Reason (stored in the ledger)").fill("the board wants it tighter")
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("alert")).to_contain_text("not accepted")
    page.get_by_role("checkbox").check()
    page.get_by_label("Reason (stored in the ledger)").fill("the board wants it tighter")
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("status")).to_contain_text("active since record")
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator("table.log tbody tr").first).to_contain_text("the board wants it tighter")
    page.get_by_role("link", name="Budgets", exact=True).click()
    expect(page.locator("table.scopes tbody tr").first).to_contain_text("exceeded")


def test_an_analyst_tries_a_counter_offer(own_site: str, visit: Visit) -> None:
    """Releases → denied release → reasons → counter-offer → allocation round → approval."""
    page = visit(f"{own_site}/releases")
    page.get_by_label("Id, team, attribute or mechanism").fill("marketing home-zone")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="denied").click()
    page.get_by_role("link", name="home-zone-heat-map").click()
    expect(page.get_by_role("heading", name="Why it was denied")).to_be_visible()
    exceeded = page.get_by_role("table", name="Rules that would be exceeded")
    expect(exceeded).to_contain_text("attribute[home-zone] × standard")
    page.get_by_role("link", name="Try it with more noise").click()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name="would be allowed")).to_be_visible()
    page.get_by_role("link", name="Rounds", exact=True).click()
    page.get_by_role("link", name="Load the example round").click()
    page.get_by_label("Strategy").select_option("price")
    page.get_by_role("button", name="Select").click()
    candidates = page.get_by_role("table", name="Selected and not selected candidates")
    expect(candidates).to_contain_text(
        "fits on its own but not together with the selected releases"
    )
    expect(candidates).to_contain_text("shadow price")
    page.get_by_role("link", name="Approvals", exact=True).click()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_contain_text("is stored in record")
    expect(page.get_by_text("No open proposals")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_pages_are_accessible(site: str, visit: Visit, path: str, scheme: str) -> None:
    """axe reports no violation of names, labels, landmarks, heading order or contrast."""
    page = visit(f"{site}{path}", color_scheme=scheme, bypass_csp=True)
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("path", "button"),
    [
        ("/policy?example=1", "Preview"),
        ("/rounds?example=1", "Select"),
        ("/check?release=home-zone-heat-map&factor=3", "Try it"),
        ("/check?release=home-zone-heat-map", "Try it"),
    ],
)
def test_form_results_are_accessible(
    site: str, visit: Visit, path: str, button: str, scheme: str
) -> None:
    page = visit(f"{site}{path}", color_scheme=scheme, bypass_csp=True)
    page.get_by_role("button", name=button).click()
    page.wait_for_load_state()
    assert violations(page) == []


def violations(page: Page) -> list[str]:
    """Return the violations that axe reports for a page."""
    page.evaluate(gzip.decompress(AXE.read_bytes()).decode("utf-8"))
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    report = page.evaluate(f"axe.run({{runOnly: {json.dumps(rules)}}})")
    return [
        f"{violation['id']}: {node['html'][:120]} {node['failureSummary']}"
        for violation in report["violations"]
        for node in violation["nodes"]
    ]


def test_axe_reports_violations(site: str, visit: Visit) -> None:
    """Canary: axe reports a missing label, low contrast and a skipped heading level."""
    page = visit(f"{site}/login", bypass_csp=True)
    page.set_content(
        '<html lang="en"><title>x</title><main><h1>x</h1><h3>y</h3><input>'
        '<p style="color:#ccc;background:#fff">pale</p></main></html>'
    )
    report = " ".join(violations(page))
    assert all(rule in report for rule in ("label:", "color-contrast:", "heading-order:"))


@pytest.mark.parametrize("path", PATHS)
def test_every_control_is_reachable_by_keyboard(site: str, visit: Visit, path: str) -> None:
    """Tab visits every link, field and button once, in page order, with a visible focus."""
    page = visit(f"{site}{path}")
    controls = "a[href], button, input:not([type=hidden]), textarea, select, summary"
    expected = page.evaluate(
        f"[...document.querySelectorAll('{controls}')].filter(e => e.checkVisibility()).length"
    )
    page.evaluate("document.activeElement.blur()")
    visited = 0
    first = page.locator(".skip")
    for step in range(expected + 60):
        page.keyboard.press("Tab")
        if step == 0:
            expect(first).to_be_focused()
        state = page.evaluate(
            "(() => { const e = document.activeElement; if (e === document.body) return null;"
            f" return [e.matches('{controls}'), getComputedStyle(e).outlineStyle] }})()"
        )
        if state is None:
            break
        visited += state[0]
        assert state[1] != "none"
    assert visited == expected


@pytest.mark.parametrize("path", PATHS)
def test_pages_fit_a_phone(site: str, visit: Visit, path: str) -> None:
    """No page is wider than the screen: wide tables scroll in their own frame."""
    page = visit(f"{site}{path}")
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_dark_and_light_differ(site: str, visit: Visit) -> None:
    backgrounds = {
        visit(site, color_scheme=scheme).evaluate(
            "getComputedStyle(document.documentElement).backgroundColor"
        )
        for scheme in ("light", "dark")
    }
    assert len(backgrounds) == 2
