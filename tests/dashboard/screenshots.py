"""Takes the pictures of docs/dashboard.md anew: `python -m tests.dashboard.screenshots`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import FloatRect, Page
from tests.dashboard.chromium import browser

from dpolicy.demo.demo_server import company_app, serve_in_thread
from dpolicy.ledger.stores.memory import MemoryStore

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
WIDTH = 1240
RULE = "/rule?name=attribute%5Bhome-zone%5D+%C3%97+standard&unit=rider"


def main() -> None:
    """Every picture, from the made-up company."""
    IMAGES.mkdir(exist_ok=True)
    app = company_app(MemoryStore(), datetime.now(UTC))
    with serve_in_thread(app, 0) as (url, _), browser() as running:
        for scheme in ("light", "dark"):
            page = running.new_page(
                color_scheme=scheme,
                viewport={"width": WIDTH, "height": 900},
            )
            if scheme == "dark":
                page.goto(url)
                taken(page, "overview-dark", 860)
                continue
            page.goto(url)
            taken(page, "overview", 1000)
            page.goto(f"{url}{RULE}")
            taken(page, "rule")
            page.goto(f"{url}/releases/home-zone-heat-map")
            taken(page, "denied")
            page.goto(f"{url}/policy?example=1")
            page.get_by_role("button", name="See what it would do").click()
            page.wait_for_load_state()
            taken(page, "candidate", 1400)
            page.goto(f"{url}/policy")
            top = page.get_by_text("policies:", exact=True).last.bounding_box()
            taken(page, "policy", 640, int(top["y"]) - 16 if top else 0)
            page.goto(f"{url}/rounds?example=1")
            page.get_by_label("Strategy").select_option("price")
            page.get_by_role("button", name="Who would win?").click()
            page.wait_for_load_state()
            taken(page, "round", 1000)


def taken(page: Page, name: str, height: int | None = None, top: int = 0) -> None:
    """A picture of a page, or of a part of it."""
    whole = page.evaluate("document.documentElement.scrollHeight")
    size = FloatRect(x=0, y=top, width=WIDTH, height=min(height or whole, whole - top))
    page.screenshot(path=IMAGES / f"{name}.png", full_page=True, clip=size)


if __name__ == "__main__":
    main()
