"""Cost preview: what the filters of the rules would charge for a release alone; pure."""

from __future__ import annotations

from dataclasses import dataclass

from dpolicy.decisions.filter_costs import FilterCost, filter_costs
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.pdp.request_evaluation import active_policy, decide_mechanisms
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.release import Release


@dataclass(frozen=True, slots=True)
class CostPreview:
    """Costs by filter of each mechanism alone, and of all mechanisms of the release together.

    `problems` are the messages of predicates that failed; their section has no costs.
    """

    mechanisms: tuple[tuple[FilterCost, ...], ...]
    release: tuple[FilterCost, ...]
    problems: tuple[str, ...] = ()


def preview_costs(state: LedgerState, release: Release) -> CostPreview:
    """Return the costs that the reasons of a decision would name, for every matching rule.

    The balances of the state must be updated. Raise `ReleaseRejected` if the active policy cannot
    resolve the release.
    """
    mechanisms = resolve_or_reject(release, active_policy(state))
    together = decide_mechanisms(state, mechanisms)
    return CostPreview(
        tuple(filter_costs(decide_mechanisms(state, [mechanism])) for mechanism in mechanisms),
        filter_costs(together),
        together.predicate_errors,
    )
