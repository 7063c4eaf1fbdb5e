"""The newest release that a rule charges, and how many more like it are allowed now."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from dpolicy.errors import OperationRejected, ReleaseRejected
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.release_archive import SPENDING_STATUSES
from dpolicy.service.dashboard.views.rule_page import LastRelease, RulePage, find_rule
from dpolicy.service.dashboard.views.rule_status_row import RuleKey

#: Number of releases, newest first, among which the page looks for one that the rule charges.
MAX_RELEASES_SEARCHED = 1_000


def add_last_release(point: DecisionPoint, page: RulePage, owner: str | None) -> RulePage:
    """Return the page of a kept cumulative rule with its newest release.

    With `owner`, only releases of that person count.
    """
    if page.usage.status is None:
        return page
    name = point.read_state(lambda state: _newest_release(state, page.rule, owner))
    if name is None:
        return page
    try:
        headroom = point.headroom(name)
    except (OperationRejected, ReleaseRejected):  # such as: the policy cannot resolve it
        return page
    own = [r for r in headroom.rules if (r.rule, r.unit) == (page.rule.name, page.rule.unit)]
    if not own:
        return page
    return replace(page, last_release=LastRelease(name, own[-1].more, headroom.more))


def _newest_release(state: LedgerState, key: RuleKey, owner: str | None) -> str | None:
    rule = find_rule(state.policy, key) if state.policy else None
    if rule is None:
        return None
    uncharged: set[int] = set()
    for name, entry in islice(reversed(state.entries.items()), MAX_RELEASES_SEARCHED):
        number = entry.charge_group
        is_visible = owner in (None, state.charge_groups[number].by)
        if entry.status not in SPENDING_STATUSES or not is_visible or number in uncharged:
            continue
        if any(rule.number in charge.rule_numbers for charge in state.charges_for_release(entry)):
            return name
        uncharged.add(number)
    return None
