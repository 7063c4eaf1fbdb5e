"""Headroom of a release against the ledger state; pure."""

from __future__ import annotations

from dpolicy.decisions.decide import charges_by_region, match_mechanisms
from dpolicy.decisions.headroom.headroom import Headroom, find_headroom
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.release import Release


def release_headroom(state: LedgerState, release: Release) -> Headroom:
    """Return how many more releases of this content `submit` would allow now.

    The balances of the state must be updated. Raise `ReleaseRejected` if `submit` would.
    """
    enforced = active_policy(state)
    mechanisms = resolve_or_reject(release, enforced)
    try:
        headroom = find_headroom(enforced, state.balances, mechanisms, state.today, release.id)
        if headroom.more != 0 and any(mechanism.region is not None for mechanism in mechanisms):
            matches, _ = match_mechanisms(enforced.cumulative, mechanisms)
            charges = charges_by_region(enforced.cumulative, mechanisms, matches, state.today)
            state.balances.ensure_few_cuts(charges)
        return headroom
    except InvalidValue as error:
        raise ReleaseRejected([error]) from None
