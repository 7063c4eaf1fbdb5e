"""Views say what the slow and simple ways say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest
from tests.pages.conftest import NOW
from tests.pdp.builders import ZIP, body, mechanism, started

from dpolicy.balances.enforced_policy import enforce
from dpolicy.demo.sample_ledger import candidate_text, policy_text
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.rule_status import rule_status_table, used_share
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.rules.hasse.diagram import hasse_edges
from dpolicy.service.dashboard.pagination import PER_PAGE, paginate
from dpolicy.service.dashboard.views.burndown import (
    ESTIMATE_MONTHS,
    MAX_ESTIMATE_DAYS,
    rule_burndown,
)
from dpolicy.service.dashboard.views.log_page import log_page, log_span
from dpolicy.service.dashboard.views.overview_page import OverviewPage, overview_page
from dpolicy.service.dashboard.views.policy_page import policy_page, preview_policy
from dpolicy.service.dashboard.views.release_pages import find_releases
from dpolicy.service.dashboard.views.rule_neighbours import rule_neighbours
from dpolicy.service.dashboard.views.rule_page import find_rule, rule_key, rule_page
from dpolicy.service.dashboard.views.rule_status_row import RuleKey

TODAY = NOW.date()


def shown(
    point: DecisionPoint, page: int = 1, wanted: Mapping[str, str] = MappingProxyType({})
) -> OverviewPage:
    found = point.read_state(lambda state: overview_page(state, TODAY, wanted, page))
    assert found is not None
    return found


def all_lines(point: DecisionPoint) -> list[tuple[str, str, float | None, bool, dict[str, object]]]:
    pages = range(1, shown(point).paging.pages + 1)
    return [
        (s.rule.name, s.rule.unit, s.spent_amount, s.holds, dict(s.location))
        for page in pages
        for line in shown(point, page).lines
        for s in line.standings
    ]


def test_the_overview_tells_every_balance(company: DecisionPoint) -> None:
    naive = [
        (b.rule.name, b.rule.unit, next(iter(b.spent.values())), b.holds, dict(b.location))
        for b in company.budgets()
    ]
    assert sorted(all_lines(company), key=str) == sorted(naive, key=str)


def test_shares_are_those_of_the_command_line(company: DecisionPoint) -> None:
    found = {
        (s.rule.name, s.rule.unit): s.share
        for page in (1, 2)
        for line in shown(company, page).lines
        for s in line.standings
    }
    for balance in company.budgets():
        share = used_share(balance)
        assert share is not None
        assert found[balance.rule.name, balance.rule.unit] == pytest.approx(float(share), rel=1e-9)


def test_the_tightest_scope_comes_first(company: DecisionPoint) -> None:
    tops = [
        max(s.share or 0 for s in line.standings)
        for page in (1, 2)
        for line in shown(company, page).lines
    ]
    assert tops == sorted(tops, reverse=True)


def test_a_broken_rule_comes_before_all_others() -> None:
    loose = "  - {name: wide, kind: custom, when: always, unit: user, budget: {epsilon: 2}}\n"
    none = ZIP % "{mu: 1}"
    point = started(loose, none)
    point.import_past(body("past", mechanism(("zip",), epsilon="1.99")))
    first = shown(point).lines[0].standings[0]
    assert (first.rule.name, first.holds) == ("zips", False)
    assert first.share == pytest.approx(2.347, abs=1e-3)


def test_lasting_and_renewing_rules_of_a_scope_stand_together(company: DecisionPoint) -> None:
    line = next(found for found in shown(company).lines if found.title == "everything × standard")
    assert [s.rule.name for s in line.standings] == ["lifetime × standard", "monthly × standard"]
    assert [s.period for s in line.standings] == [None, "month"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"policy": "marketing"}, {"marketing"}),
        ({"category": "payment"}, {"category", "category-month"}),
        ({"unit": "rider-month"}, {"monthly", "category-month"}),
        ({"q": "home-zone ANY"}, {"attribute"}),
        ({"policy": "no such"}, set()),
    ],
)
def test_filters(company: DecisionPoint, wanted: dict[str, str], names: set[str]) -> None:
    found = {s.policies[0] for line in shown(company, 1, wanted).lines for s in line.standings}
    assert found == names


def test_an_attribute_filter_finds_every_rule_that_reads_it(company: DecisionPoint) -> None:
    policy_ = company.policy
    assert policy_ is not None
    found = {
        s.rule.name
        for line in shown(company, 1, {"attribute": "fare"}).lines
        for s in line.standings
    }
    naive = {
        b.rule.name
        for b in company.budgets()
        if "fare" in getattr(b.rule.base.predicate, "attributes", ())
    }
    assert found == naive and found


def test_the_burn_down_ends_where_the_balance_is(company: DecisionPoint) -> None:
    def followed(state: LedgerState) -> int:
        assert state.policy is not None
        now = rule_status_table(state)
        for position, number in enumerate(now.numbers.tolist()):
            found = rule_burndown(state, now.section, number, now.worst_points.get(position), TODAY)
            spent = next(iter(now.section.formatter_for(number)(now.losses[position]).values()))
            assert found.months[-1].spent == spent
        return len(now.numbers)

    assert company.read_state(followed) == 38


def test_a_budget_is_gone_on_the_day_the_pace_breaks_it(company: DecisionPoint) -> None:
    """The estimate again, day by day instead of by halving."""
    assert company.policy is not None
    rule = find_rule(company.policy, RuleKey("attribute[home-zone] × standard", "rider"))
    assert rule is not None
    of = enforce(company.policy).cumulative
    now = company.read_state(rule_status_table)
    position = now.numbers.tolist().index(rule.number)
    point = now.worst_points.get(position)
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
        start=np.zeros_like(now.losses[position]),
    )
    pace = [Fraction(int(amount), (this_month - first).days) for amount in recent]
    gate = of.bounds_for(np.array([rule.number]))

    def holds(days: int) -> bool:
        more = [int(a) + p * days for a, p in zip(now.losses[position].tolist(), pace, strict=True)]
        return bool(gate.are_within(np.array([[-(-m // 1) for m in more]], dtype=np.int64))[0])

    naive = next(day for day in range(MAX_ESTIMATE_DAYS) if not holds(day))
    found = company.read_state(lambda state: rule_burndown(state, of, rule.number, point, TODAY))
    assert found.months_of_pace == ESTIMATE_MONTHS
    assert found.exhausted == TODAY + timedelta(days=naive)


def test_rules_with_too_many_releases_are_followed_on_their_own_page(
    company: DecisionPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = company.read_state(lambda state: state.max_groups_charged_to_rule(0))
    assert most > 400
    monkeypatch.setattr("dpolicy.service.dashboard.views.overview_page.MOST_FOLLOWED", 100)
    lines = {line.title: line for line in shown(company).lines}
    assert lines["everything × standard"].burndown is None
    assert lines["home-zone × standard"].burndown is not None


def test_a_rule_that_renews_is_never_gone(company: DecisionPoint) -> None:
    wanted = RuleKey("monthly × standard", "rider-month")
    found = company.read_state(lambda state: rule_page(state, wanted, TODAY))
    assert found is not None and found.burndown is not None
    assert found.burndown.exhausted is None


def test_the_blocks_of_a_rule_that_renews(company: DecisionPoint) -> None:
    """Each month again, by asking for the budgets of that month alone."""
    wanted = RuleKey("monthly × standard", "rider-month")
    found = company.read_state(lambda state: rule_page(state, wanted, TODAY))
    assert found is not None and len(found.blocks) > 12
    for block in found.blocks:
        there = company.budgets({"time": block.name})
        share = used_share(next(b for b in there if b.rule.name == wanted.name))
        assert block.share == pytest.approx(float(share or 0), rel=1e-9)
    lasting = RuleKey("lifetime × standard", "rider")
    page = company.read_state(lambda state: rule_page(state, lasting, TODAY))
    assert page is not None and page.blocks == ()


def test_every_rule_is_found_by_its_name(company: DecisionPoint) -> None:
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
            near = rule_neighbours(section, number)
            assert near.wider == tuple(sorted(b for a, b in edges if a == number))
            assert near.narrower == tuple(sorted(a for a, b in edges if b == number))


def test_a_pruned_rule_says_what_implies_it(company: DecisionPoint) -> None:
    wanted = RuleKey("category[location, weak] × any", "rider")
    found = company.read_state(lambda state: rule_page(state, wanted, TODAY))
    assert found is not None and found.standing is None
    assert found.implied_by == RuleKey("category[location, strong] × any", "rider")


def test_the_dearest_releases_of_a_rule(company: DecisionPoint) -> None:
    wanted = RuleKey("attribute[home-zone] × standard", "rider")
    found = company.read_state(lambda state: rule_page(state, wanted, TODAY))
    assert found is not None
    costs = [spender.cost or 0 for spender in found.spenders]
    assert costs == sorted(costs, reverse=True)
    told = next(b for b in company.budgets() if b.rule.name == wanted.name)
    assert [s.release for s in found.spenders][: len(told.spenders)] == list(told.spenders)
    own = company.read_state(lambda state: rule_page(state, wanted, TODAY, "nobody"))
    assert own is not None and own.spenders == ()


def test_a_search_looks_at_ids_people_and_attributes(company: DecisionPoint) -> None:
    def names(own: str | None = None, **wanted: str) -> list[str]:
        pages = company.read_state(lambda s: find_releases(s, wanted, 1, own)).paging.pages
        return [
            name
            for page in range(1, pages + 1)
            for name, _ in company.read_state(
                lambda s, page=page: find_releases(s, wanted, page, own)  # type: ignore[misc]
            ).names
        ]

    assert names() == list(company.entries)[::-1]
    assert "home-zone-heat-map" in names(q="MARKETING home-zone")
    assert all("fare-report" in name for name in names(q="fare-report"))
    assert set(names(status="reserved")) == {"crowding-model"}
    assert set(names("finance")) == set(names(q="finance"))
    assert names(q="no such thing") == []


def test_pages_of_a_list() -> None:
    assert paginate(1, 0).as_json() == {"page": 1, "pages": 1, "total": 0}
    assert paginate(99, PER_PAGE + 1).items_on_page(range(PER_PAGE + 1)) == range(
        PER_PAGE, PER_PAGE + 1
    )
    assert paginate(-3, 5).page == 1


def test_the_log_pages_hold_every_record_once(company: DecisionPoint) -> None:
    total = company.head.sequence
    seen = []
    for page in range(1, paginate(1, total).pages + 1):
        span, behind = log_span(page, total)
        found = log_page(company.records(behind), span, "", None)
        seen += [(line.sequence, line.before, line.digest) for line in found.lines]
    assert [sequence for sequence, _, _ in seen] == list(range(total, 0, -1))
    assert all(older[2] == newer[1] for newer, older in pairwise(seen))


def test_rules_by_line_count_every_rule(company: DecisionPoint) -> None:
    assert company.policy is not None
    (text,) = policy_page(company.policy).texts
    by_line = {line.text.strip(): (line.kept, line.total) for line in text.lines if line.total}
    assert by_line["- name: lifetime"] == (2, 2)
    assert by_line["- name: attribute"] == (12, 16)
    settings = [counts for words, counts in by_line.items() if words.startswith("- {name: ")]
    assert settings[:2] == [(19, 35), (19, 35)]


def test_a_candidate_with_a_conflict(company: DecisionPoint) -> None:
    found = preview_policy(company, [("policy.yaml", candidate_text())])
    assert found.is_valid and not found.diagnostics
    assert {change.kind for change in found.changes} == {"tightened"}
    (conflict,) = found.conflicts
    assert conflict.rule.name == "attribute[home-zone] × standard"
    assert (conflict.needs["epsilon"] or 0) > 2.5


def test_a_candidate_that_is_the_policy_changes_nothing(company: DecisionPoint) -> None:
    found = preview_policy(company, [("policy.yaml", policy_text())])
    assert not (found.changes or found.conflicts or found.diagnostics)


def test_a_candidate_with_mistakes_tells_all_of_them(company: DecisionPoint) -> None:
    text = (
        policy_text()
        .replace("kind: category", "kind: categry")
        .replace("when: always", "when: 1 +")
    )
    found = preview_policy(company, [("policy.yaml", text)])
    assert not found.is_valid and len(found.diagnostics) > 2


def test_a_ledger_without_a_policy_has_no_overview() -> None:
    point = DecisionPoint(MemoryStore())
    assert point.read_state(lambda state: overview_page(state, TODAY, {}, 1)) is None


def test_rules_without_a_number_to_reach() -> None:
    """Unlimited and Rényi budgets have a share that is no number, or that of their worst order."""
    free = "  - {name: free, kind: custom, when: always, unit: user-day, budget: unlimited}\n"
    renyi = "  - {name: r, kind: custom, when: always, unit: user, budget: {renyi: {2: 1, 8: 4}}}\n"
    point = started(free, renyi)
    point.submit(body("a", mechanism((), kind="gaussian", sigma=2)))
    found = {s.rule.name: s for line in shown(point).lines for s in line.standings}
    assert found["free"].share is None
    assert found["r"].share == pytest.approx(0.25)
