"""Create the screenshots of docs/dashboard.md: `python -m tests.dashboard.screenshots`.

The screenshots show the demo. `python -m tests.dashboard.screenshots DIR` writes them to another
directory, together with a full screenshot of every other page of the demo.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import FloatRect, Page, ViewportSize
from tests.dashboard.chromium import browser

from dpolicy.demo.demo_server import company_app, serve_in_thread
from dpolicy.ledger.stores.memory import MemoryStore

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
WIDTH = 1240
RULE = "/rule?name=attribute%5Bhome-zone%5D+%C3%97+standard&unit=rider"
#: Pages without a picture in the docs, by file name.
OTHER_PAGES = {
    "other-overview-filtered": "/?category=location",
    "other-rule-renewing": "/rule?name=monthly+%C3%97+standard&unit=rider-month",
    "other-rule-implied": "/rule?name=category%5Btravel%2C+weak%5D+%C3%97+any&unit=rider",
    "other-rule-per-release": "/rule?name=release-cap&unit=rider&section=each-release",
    "other-releases": "/releases",
    "other-release-reserved": "/releases/crowding-model",
    "other-check": "/check?release=home-zone-heat-map&factor=1.2",
    "other-policy": "/policy",
    "other-approvals": "/approvals",
    "other-rounds": "/rounds?example=1",
    "other-log": "/log?verify=1",
    "other-login": "/login",
    "other-problem": "/releases/no-such-release",
}


def main(arguments: list[str]) -> None:
    """Write the screenshots."""
    directory = Path(arguments[0]) if arguments else IMAGES
    directory.mkdir(parents=True, exist_ok=True)
    app = company_app(MemoryStore(), datetime.now(UTC))
    with serve_in_thread(app, 0) as (url, _), browser() as running:
        viewport = ViewportSize(width=WIDTH, height=900)
        light = running.new_page(color_scheme="light", viewport=viewport)
        dark = running.new_page(color_scheme="dark", viewport=viewport)
        dark.goto(url)
        capture(dark, directory / "overview-dark.png", 838)
        capture_documented_pages(light, url, directory)
        if arguments:
            for name, path in OTHER_PAGES.items():
                light.goto(f"{url}{path}")
                capture(light, directory / f"{name}.png")
            light.goto(f"{url}{OTHER_PAGES['other-check']}")
            submit(light, "Try it")
            capture(light, directory / "other-check-result.png")


def capture_documented_pages(page: Page, url: str, directory: Path) -> None:
    """Write the screenshots in light colours that the docs use."""
    page.goto(url)
    capture(page, directory / "overview.png", 917)
    page.goto(f"{url}{RULE}")
    capture(page, directory / "rule.png")
    page.goto(f"{url}/spent?when=%22home-zone%22+in+attributes&unit=rider")
    capture(page, directory / "spent.png", 940)
    page.goto(f"{url}/releases/home-zone-heat-map")
    capture(page, directory / "denied.png")
    page.goto(f"{url}/policy?example=1")
    submit(page, "Preview")
    capture(page, directory / "candidate.png", 1400)
    page.goto(f"{url}/policy")
    box = page.get_by_text("policies:", exact=True).last.bounding_box()
    capture(page, directory / "policy.png", 626, int(box["y"]) - 4 if box else 0)
    page.goto(f"{url}/rounds?example=1")
    page.get_by_label("Strategy").select_option("price")
    submit(page, "Select")
    capture(page, directory / "round.png", 954)


def submit(page: Page, button: str) -> None:
    """Press a button and wait for the next page."""
    page.get_by_role("button", name=button).click()
    page.wait_for_load_state()


def capture(page: Page, path: Path, height: int | None = None, top: int = 0) -> None:
    """Write a screenshot of a page, or of `height` pixels of it from `top`."""
    full_height = page.evaluate("document.documentElement.scrollHeight")
    clip = FloatRect(x=0, y=top, width=WIDTH, height=min(height or full_height, full_height - top))
    page.screenshot(path=path, full_page=True, clip=clip)


if __name__ == "__main__":
    main(sys.argv[1:])
