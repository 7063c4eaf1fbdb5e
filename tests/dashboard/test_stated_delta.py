"""Pages of a ledger whose releases state (ε, δ): δ has its own bar, line, cost and estimate."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from tests.dashboard.conftest import Fetch, requests_to
from tests.pdp.builders import body, mechanism, policy

from dpolicy.demo.demo_server import serve_in_thread
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import local_access
from dpolicy.service.dashboard.pages.charts import burndown_chart, sparkline
from dpolicy.service.dashboard.views.overview_page import build_overview_page
from dpolicy.service.dashboard.views.rule_page import build_rule_page
from dpolicy.service.dashboard.views.rule_status_row import RuleKey

HEAD = """
dpolicy: 1
accounting: {delta: 1e-8, leaks: 10 %}
schema: {attributes: {zip: {risk: high}, views: {risk: low}}}
"""
RULES = (
    "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 6}}\n",
    "  - {name: zips, kind: custom, when: '\"zip\" in attributes', unit: user, budget: {rho: 1}}\n",
)
TODAY = date(2026, 4, 15)


def leaky_point(*deltas: str, attribute: str = "views") -> DecisionPoint:
    """Return a ledger with one release of ε 0.5 per month from January, with these stated δ."""
    clock = [datetime(2026, 1, 5, tzinfo=UTC)]
    point = DecisionPoint(MemoryStore(), clock=lambda: clock[0])
    point.apply(policy(*RULES, head=HEAD))
    for number, delta in enumerate(deltas):
        clock[0] = datetime(2026, 1 + number, 10, tzinfo=UTC)
        past = mechanism((attribute,), epsilon="0.5", delta=delta)
        point.import_past(body(f"past-{number}", past))
    return point


def overview(point: DecisionPoint) -> Any:
    page = point.read_state(lambda state: build_overview_page(state, TODAY, {}, 1))
    assert page is not None
    return page


def rule_page(point: DecisionPoint, name: str = "all") -> Any:
    page = point.read_state(lambda state: build_rule_page(state, RuleKey(name, "user"), TODAY))
    assert page is not None
    return page


def test_the_share_of_a_rule_is_that_of_its_binding_quantity() -> None:
    _, status = overview(leaky_point("1e-9", "1e-9")).most_used
    assert (status.share, status.delta_share) == (2.0, 2.0)
    assert status.loss_share == pytest.approx(1 / 6)
    assert (status.binding, status.binding_symbol) == ("delta", "δ")
    assert status.exceeds_delta and not status.exceeds_loss
    shown = status.as_json()
    assert shown["delta"] == {"spent": 2e-9, "limit": 1e-9, "left": 0.0, "share": 2.0}
    assert shown["binding"] == "delta"


def test_the_estimate_names_the_quantity_that_is_exhausted_first() -> None:
    burndown = rule_page(leaky_point("1e-10", "1e-10", "1e-10")).usage.burndown
    assert burndown.exhausted_quantity == "delta" and burndown.exhausted_symbol == "δ"
    months = burndown.months
    assert [month.delta for month in months] == [1e-10, 2e-10, 3e-10, 3e-10]
    assert [month.delta_share for month in months] == pytest.approx([0.1, 0.2, 0.3, 0.3])
    assert [month.share for month in months] == pytest.approx([1 / 12, 2 / 12, 3 / 12, 3 / 12])
    pure = rule_page(leaky_point("0", "0", "0")).usage.burndown
    assert pure.exhausted_quantity == "epsilon" and not pure.has_stated_delta
    assert burndown.exhaustion_date < pure.exhaustion_date


def test_the_spenders_of_a_rule_exceeded_in_delta_state_a_delta() -> None:
    usage = rule_page(leaky_point("1e-10", "0", "2e-9")).usage
    assert [(s.release, s.delta) for s in usage.spenders] == [("past-2", 2e-9), ("past-0", 1e-10)]


def test_the_chart_has_a_line_for_delta() -> None:
    burndown = rule_page(leaky_point("1e-10", "2e-10", "3e-10")).usage.burndown
    chart = burndown_chart(burndown, TODAY)
    assert 'class="line delta"' in chart and "Stated δ: 60 %" in chart
    assert "60 %" in sparkline(burndown)
    exceeded = rule_page(leaky_point("1e-10", "2e-9")).usage.burndown
    assert 'class="ahead"' not in burndown_chart(exceeded, TODAY)
    pure = rule_page(leaky_point("0", "0", "0")).usage.burndown
    assert 'class="line delta"' not in burndown_chart(pure, TODAY)


@pytest.fixture
def fetch_leaky() -> Iterator[Fetch]:
    """Serve a ledger on which a stated δ exceeds a rule in ε and a rule in ρ."""
    point = leaky_point("1e-9", "1e-9", attribute="zip")
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        yield requests_to(url)


def test_pages_show_delta_beside_epsilon(fetch_leaky: Fetch) -> None:
    """Never `17 % exceeded`: the share, the bar and the text are those of δ."""
    for path in ("/", "/rule?name=all&unit=user"):
        text = fetch_leaky(path).text
        assert "200 %" in text and "of δ</span>" in text
        assert "stated δ 2e-09 of 1e-09, the part of δ 1e-08 kept for stated leaks" in text
    for path in ("/", "/rule?name=zips&unit=user"):
        text = fetch_leaky(path).text
        assert "δ 2e-09 is stated, and a budget in ρ allows none" in text
        assert "inf %" not in text and "∞" in text


def test_an_infinite_share_is_null_in_json(fetch_leaky: Fetch) -> None:
    page = fetch_leaky("/rule?name=zips&unit=user&format=json").json
    assert page["status"]["share"] is None and not page["status"]["holds"]
    assert page["status"]["delta"]["limit"] == 0.0
    groups = fetch_leaky("/?format=json").json["groups"]["policy"]
    assert {group["name"]: group["tightest"] for group in groups} == {"zips": None, "all": 2.0}


def test_a_denied_release_shows_its_delta(fetch_leaky: Fetch) -> None:
    release = "release: new\nmechanisms:\n  - {attributes: [views], mechanism: %s}\n"
    kind = "{kind: declared, epsilon: 0.1, delta: 1e-10}"
    text = fetch_leaky("/check", [("text", release % kind)]).text
    assert "stated δ 2e-09 → 2.1e-09 exceeds 1e-09" in text
    assert "state a smaller δ" in text
