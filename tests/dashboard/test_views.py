"""Tests of the views against slow and simple computations of the same values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest
from tests.dashboard.conftest import NOW
from tests.pdp.builders import ZIP, body, mechanism, started

from dpolicy.balances.enforced_policy import enforce
from dpolicy.demo.sample_ledger import candidate_text, policy_text
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import rule_status_table, used_share
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.number_text import format_share
from dpolicy.rules.hasse.diagram import hasse_edges
from dpolicy.service.dashboard.pagination import PER_PAGE, paginate
from dpolicy.service.dashboard.views.burndown import (
    ESTIMATE_MONTHS,
    MAX_ESTIMATE_DAYS,
    build_burndown,
)
from dpolicy.service.dashboard.views.log_page import build_log_page, select_log_records
from dpolicy.service.dashboard.views.overview_page import OverviewPage, build_overview_page
from dpolicy.service.dashboard.views.policy_page import build_policy_page, preview_policy
from dpolicy.service.dashboard.views.release_pages import (
    ReleaseSearchResult,
    find_releases,
)
from dpolicy.service.dashboard.views.rule_neighbours import find_neighbours
from dpolicy.service.dashboard.views.rule_page import (
    RulePage,
    build_rule_page,
    find_rule,
    rule_key,
)
from dpolicy.service.dashboard.views.rule_status_row import RuleKey, RuleStatusRow

TODAY = NOW.date()


def read_overview(
    point: DecisionPoint, page: int = 1, filters: Mapping[str, str] = MappingProxyType({})
) -> OverviewPage:
    overview = point.read_state(lambda state: build_overview_page(state, TODAY, filters, page))
    assert overview is not None
    return overview


def read_rule_page(
    point: DecisionPoint, key: RuleKey, visible_owner: str | None = None
) -> RulePage:
    page = point.read_state(lambda state: build_rule_page(state, key, TODAY, visible_owner))
    assert page is not None
    return page


def all_rows(point: DecisionPoint) -> list[tuple[str, str, float | None, bool, dict[str, object]]]:
    pages = range(1, read_overview(point).pagination.pages + 1)
    return [
        (s.rule.name, s.rule.unit, s.spent_amount, s.holds, dict(s.location))
        for page in pages
        for row in read_overview(point, page).rows
        for s in row.statuses
    ]


def test_the_overview_has_every_balance(company: DecisionPoint) -> None:
    naive = [
        (b.rule.name, b.rule.unit, next(iter(b.spent.values())), b.holds, dict(b.location))
        for b in company.budgets()
    ]
    assert sorted(all_rows(company), key=str) == sorted(naive, key=str)


def test_shares_equal_those_of_the_command_line(company: DecisionPoint) -> None:
    shares = {
        (s.rule.name, s.rule.unit): s.share
        for page in (1, 2)
        for row in read_overview(company, page).rows
        for s in row.statuses
    }
    for balance in company.budgets():
        share = used_share(balance)
        assert share is not None
        on_page = shares[balance.rule.name, balance.rule.unit]
        assert on_page == pytest.approx(float(share), rel=1e-9)
        assert format_share(on_page) == format_share(share)


def test_the_most_used_scope_comes_first(company: DecisionPoint) -> None:
    tops = [
        max(s.share or 0 for s in row.statuses)
        for page in (1, 2)
        for row in read_overview(company, page).rows
    ]
    assert tops == sorted(tops, reverse=True)


def test_an_exceeded_rule_comes_first() -> None:
    loose = "  - {name: wide, kind: custom, when: always, unit: user, budget: {epsilon: 2}}\n"
    none = ZIP % "{mu: 1}"
    point = started(loose, none)
    point.import_past(body("past", mechanism(("zip",), epsilon="1.99")))
    first = read_overview(point).rows[0].statuses[0]
    assert (first.rule.name, first.holds) == ("zips", False)
    assert first.share == pytest.approx(2.347, abs=1e-3)


def test_lifetime_and_renewing_rules_of_a_scope_share_a_row(company: DecisionPoint) -> None:
    rows = read_overview(company).rows
    row = next(row for row in rows if row.title == "everything × standard")
    assert [s.rule.name for s in row.statuses] == ["lifetime × standard", "monthly × standard"]
    assert [s.period for s in row.statuses] == [None, "month"]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"policy": "marketing"}, {"marketing"}),
        ({"category": "payment"}, {"category", "category-month"}),
        ({"unit": "rider-month"}, {"monthly", "category-month"}),
        ({"q": "home-zone ANY"}, {"attribute"}),
        ({"policy": "no such"}, set()),
    ],
)
def test_filters(company: DecisionPoint, filters: dict[str, str], names: set[str]) -> None:
    rows = read_overview(company, 1, filters).rows
    assert {s.policies[0] for row in rows for s in row.statuses} == names


def test_an_attribute_filter_selects_every_rule_that_reads_it(company: DecisionPoint) -> None:
    names = {
        s.rule.name
        for row in read_overview(company, 1, {"attribute": "fare"}).rows
        for s in row.statuses
    }
    naive = {
        b.rule.name
        for b in company.budgets()
        if "fare" in getattr(b.rule.base.predicate, "attributes", ())
    }
    assert names == naive and names


def test_the_burn_down_ends_at_the_balance(company: DecisionPoint) -> None:
    def compare_all(state: LedgerState) -> int:
        assert state.policy is not None
        table = rule_status_table(state)
        for position, number in enumerate(table.numbers.tolist()):
            point = table.worst_points.get(position)
            burndown = build_burndown(state, table.section, number, point, TODAY)
            formatter = table.section.formatter_for(number)
            spent = next(iter(formatter(table.losses[position]).values()))
            assert burndown.months[-1].spent == spent
        return len(table.numbers)

    assert company.read_state(compare_all) == 38


def test_the_estimate_is_the_first_day_on_which_the_rule_is_exceeded(
    company: DecisionPoint,
) -> None:
    """Recompute the estimate day by day and with fractions, instead of by bisection."""
    assert company.policy is not None
    rule = find_rule(company.policy, RuleKey("attribute[home-zone] × standard", "rider"))
    assert rule is not None
    section = enforce(company.policy).cumulative
    table = company.read_state(rule_status_table)
    position = table.numbers.tolist().index(rule.number)
    point = table.worst_points.get(position)
    rows: list[tuple[int, LossArray]] = company.read_state(
        lambda state: [
            (c.month, row * c.count) for c, row in state.groups_charged_to_rule(rule.number, point)
        ]
    )
    this_month = TODAY.replace(day=1)
    first = this_month
    for _ in range(ESTIMATE_MONTHS):
        first = (first - timedelta(days=1)).replace(day=1)
    recent = sum(
        (row for month, row in rows if first.toordinal() <= month < this_month.toordinal()),
        start=np.zeros_like(table.losses[position]),
    )
    daily = [Fraction(int(amount), (this_month - first).days) for amount in recent]
    bounds = section.bounds_for(np.array([rule.number]))
    spent = table.losses[position].tolist()

    def is_satisfied_after(days: int) -> bool:
        losses = [int(loss) + charge * days for loss, charge in zip(spent, daily, strict=True)]
        rounded = np.array([[-(-loss // 1) for loss in losses]], dtype=np.int64)
        return bool(bounds.are_within(rounded)[0])

    naive = next(day for day in range(MAX_ESTIMATE_DAYS) if not is_satisfied_after(day))
    burndown = company.read_state(
        lambda state: build_burndown(state, section, rule.number, point, TODAY)
    )
    assert burndown.estimate_months == ESTIMATE_MONTHS
    assert burndown.exhaustion_date == TODAY + timedelta(days=naive)


def test_rules_with_too_many_charges_have_a_burn_down_only_on_their_own_page(
    company: DecisionPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    charges = company.read_state(
        lambda state: state.totals.max_groups_charged_to(0, state.charge_groups)
    )
    assert charges > 400
    monkeypatch.setattr("dpolicy.service.dashboard.views.overview_page.MAX_BURNDOWN_CHARGES", 100)
    rows = {row.title: row for row in read_overview(company).rows}
    assert rows["everything × standard"].burndown is None
    assert rows["home-zone × standard"].burndown is not None


def test_a_rule_that_renews_has_no_exhaustion_date(company: DecisionPoint) -> None:
    usage = read_rule_page(company, RuleKey("monthly × standard", "rider-month")).usage
    assert usage.burndown is not None
    assert usage.burndown.exhaustion_date is None


def test_the_blocks_of_a_rule_that_renews(company: DecisionPoint) -> None:
    """Compare each month with the budgets of that month alone."""
    key = RuleKey("monthly × standard", "rider-month")
    blocks = read_rule_page(company, key).usage.blocks
    assert len(blocks) > 12
    for block in blocks:
        statuses = company.budgets({"time": block.name})
        share = used_share(next(s for s in statuses if s.rule.name == key.name))
        assert block.share == pytest.approx(float(share or 0), rel=1e-9)
    lifetime = RuleKey("lifetime × standard", "rider")
    assert read_rule_page(company, lifetime).usage.blocks == ()


def test_find_rule_finds_every_rule_by_its_key(company: DecisionPoint) -> None:
    assert company.policy is not None
    for rule, _ in company.policy.all_rules:
        assert find_rule(company.policy, rule_key(rule)) == rule
    for wrong in ("", "lifetime", "lifetime × no", "no × any", "lifetime × any × any"):
        assert find_rule(company.policy, RuleKey(wrong, "rider")) is None


def test_neighbours_are_the_covers_of_the_whole_diagram(company: DecisionPoint) -> None:
    assert company.policy is not None
    section = company.policy.cumulative
    edges = hasse_edges(section, range(len(section.rules)))
    for number in range(len(section.rules)):
        if any(number in pair for pair in edges):  # the first of rules of equal scope
            neighbours = find_neighbours(section, number)
            assert neighbours.wider == tuple(sorted(b for a, b in edges if a == number))
            assert neighbours.narrower == tuple(sorted(a for a, b in edges if b == number))


def test_the_page_of_a_pruned_rule_names_its_witness(company: DecisionPoint) -> None:
    page = read_rule_page(company, RuleKey("category[location, weak] × any", "rider"))
    assert page.implied_by == RuleKey("category[location, strong] × any", "rider")


def test_the_page_of_a_pruned_rule_has_its_balance(company: DecisionPoint) -> None:
    key = RuleKey("category[location, weak] × any", "rider")
    usage = read_rule_page(company, key).usage
    budgets = {status.name: status for status in company.budgets(pruned=True)}
    assert usage.status is not None and usage.status.spent == budgets[key.name].spent
    assert [s.release for s in usage.spenders[:5]] == list(budgets[key.name].spenders)
    assert usage.locations and usage.burndown is not None


def test_the_top_spenders_of_a_rule(company: DecisionPoint) -> None:
    key = RuleKey("attribute[home-zone] × standard", "rider")
    spenders = read_rule_page(company, key).usage.spenders
    costs = [spender.cost or 0 for spender in spenders]
    assert costs == sorted(costs, reverse=True)
    expected = next(s for s in company.budgets() if s.rule.name == key.name).spenders
    assert [s.release for s in spenders][: len(expected)] == list(expected)
    assert read_rule_page(company, key, "unknown").usage.spenders == ()


def test_a_search_reads_ids_authors_and_attributes(company: DecisionPoint) -> None:
    def search(visible_owner: str | None = None, **filters: str) -> list[str]:
        def find(state: LedgerState, page: int) -> ReleaseSearchResult:
            return find_releases(state, filters, page, visible_owner)

        pages = company.read_state(lambda state: find(state, 1)).pagination.pages
        return [
            name
            for page in range(1, pages + 1)
            for name, _ in company.read_state(
                lambda state, page=page: find(state, page)  # type: ignore[misc]
            ).entries
        ]

    assert search() == list(company.entries)[::-1]
    assert "home-zone-heat-map" in search(q="MARKETING home-zone")
    assert all("fare-report" in name for name in search(q="fare-report"))
    assert set(search(status="reserved")) == {"crowding-model"}
    assert set(search("finance")) == set(search(q="finance"))
    assert search(q="no such thing") == []


def test_pagination_of_a_list() -> None:
    assert paginate(1, 0).as_json() == {"page": 1, "pages": 1, "total": 0}
    assert paginate(99, PER_PAGE + 1).items_on_page(range(PER_PAGE + 1)) == range(
        PER_PAGE, PER_PAGE + 1
    )
    assert paginate(-3, 5).page == 1


def test_the_log_pages_have_every_record_once(company: DecisionPoint) -> None:
    total = company.head.sequence
    hashes = []
    for number in range(1, paginate(1, total).pages + 1):
        pagination, start = select_log_records(number, total)
        page = build_log_page(company.records(start), pagination, "", None)
        hashes += [(row.sequence, row.previous, row.digest) for row in page.rows]
    assert [sequence for sequence, _, _ in hashes] == list(range(total, 0, -1))
    assert all(older[2] == newer[1] for newer, older in pairwise(hashes))


def test_rules_by_line_count_every_rule(company: DecisionPoint) -> None:
    assert company.policy is not None
    (file,) = build_policy_page(company.policy).files
    by_line = {line.text.strip(): (line.kept, line.total) for line in file.lines if line.total}
    assert by_line["- name: lifetime"] == (2, 2)
    assert by_line["- name: attribute"] == (12, 16)
    settings = [counts for text, counts in by_line.items() if text.startswith("- {name: ")]
    assert settings[:2] == [(19, 35), (19, 35)]


def test_a_candidate_with_a_conflict(company: DecisionPoint) -> None:
    candidate = preview_policy(company, [("policy.yaml", candidate_text())])
    assert candidate.is_valid and not candidate.diagnostics
    assert {change.kind for change in candidate.changes} == {"tightened"}
    (conflict,) = candidate.conflicts
    assert conflict.rule.name == "attribute[home-zone] × standard"
    assert (conflict.required["epsilon"] or 0) > 2.5


def test_the_active_policy_as_candidate_changes_nothing(company: DecisionPoint) -> None:
    candidate = preview_policy(company, [("policy.yaml", policy_text())])
    assert not (candidate.changes or candidate.conflicts or candidate.diagnostics)


def test_a_candidate_has_a_diagnostic_for_every_error(company: DecisionPoint) -> None:
    text = (
        policy_text()
        .replace("kind: category", "kind: categry")
        .replace("when: always", "when: 1 +")
    )
    candidate = preview_policy(company, [("policy.yaml", text)])
    assert not candidate.is_valid and len(candidate.diagnostics) > 2


def test_a_ledger_without_a_policy_has_no_overview() -> None:
    point = DecisionPoint(MemoryStore())
    assert point.read_state(lambda state: build_overview_page(state, TODAY, {}, 1)) is None


def test_shares_of_unlimited_and_renyi_budgets() -> None:
    """An unlimited budget has no share; a Rényi budget has the share of its most used order."""
    free = "  - {name: free, kind: custom, when: always, unit: user-day, budget: unlimited}\n"
    renyi = "  - {name: r, kind: custom, when: always, unit: user, budget: {renyi: {2: 1, 8: 4}}}\n"
    point = started(free, renyi)
    point.submit(body("a", mechanism((), kind="gaussian", sigma=2)))
    shares = {s.rule.name: s.share for row in read_overview(point).rows for s in row.statuses}
    assert shares["free"] is None
    assert shares["r"] == pytest.approx(0.25)


def test_what_is_left_is_a_difference_of_decimals() -> None:
    key = RuleKey("all", "user")
    row = RuleStatusRow(key, (), {"epsilon": 1}, {"epsilon": 0.3}, 0.3, True, {}, None)
    assert row.as_json()["left"] == 0.7
    row = replace(row, budget={"epsilon": 1.1}, spent={"epsilon": 0.4}, delta_limit=1e-9)
    assert row.as_json()["left"] == 0.7 and row.as_json()["delta"]["left"] == 1e-9
