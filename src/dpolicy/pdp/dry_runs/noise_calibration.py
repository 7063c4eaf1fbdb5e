"""Noise calibration by decisions: the least noise with which a mechanism would be allowed now.

The search decides the mechanism with more and less noise, so it accounts for every rule, unit and
location, and for all that was spent. It reads no data and records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from dpolicy.balances.enforced_policy import state_mechanism
from dpolicy.decisions.completion import complete_meaning
from dpolicy.decisions.reasons import reasons_for
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import Denied, InvalidValue, InvariantBroken
from dpolicy.pdp.request_evaluation import active_policy, decide_mechanisms, evaluate_release
from dpolicy.pdp.rule_status import top_spenders
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.calibration import (
    CALIBRATED_PARAMETERS,
    LARGEST_NOISE,
    search_noise,
    unreachable_target_error,
)
from dpolicy.privacy.certificates import PURE
from dpolicy.privacy.privacy_filter import build_bound_arrays
from dpolicy.privacy.thresholds import bound_for_budget
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision, Reason
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_from_plain

#: Id of the release that the search decides. It is not recorded, so it may be in use.
_RELEASE_ID = "calibration"


@dataclass(frozen=True, slots=True, repr=False)
class CalibratedNoise:
    """The least noise with which a mechanism is allowed: `parameter` of its kind and the value.

    `release` is the decided release and `decision` the decision on it. `binding` are the rules that
    deny the release with less noise. It is empty if a target binds, or if no rule does.
    """

    parameter: str
    value: float
    release: Release
    decision: Decision
    binding: tuple[Reason, ...]

    def __repr__(self) -> str:
        rules = [reason.rule for reason in self.binding]
        return f"CalibratedNoise({self.parameter}={self.value!r}, binding={rules})"


def calibrate_mechanism(
    state: LedgerState, fields: Body, by: str = "", target: EpsilonDelta | None = None
) -> CalibratedNoise:
    """Return the least noise with which the active policy would allow a mechanism now.

    `fields` are those of a mechanism in a release; its noise, if it states one, is replaced. With
    `target`, the filter of the policy must also admit the mechanism alone to this budget, for the
    unit that it is stated for. Raise `Denied` if the policy allows it with no noise, `InvalidValue`
    (M019) if no noise meets the target or the kind has none, and `PolicyRejected` or
    `ReleaseRejected` if it is invalid. The balances of the state must be updated.
    """
    kind = _read_kind(fields)
    with_noise = _release_builder(fields, by, CALIBRATED_PARAMETERS[kind])
    resolve_or_reject(with_noise(LARGEST_NOISE), active_policy(state))
    meets_target = _target_check(state, target)

    def is_enough(noise: Fraction) -> bool:
        release = with_noise(noise)
        mechanisms = resolve_or_reject(release, active_policy(state))
        return meets_target(release) and decide_mechanisms(state, mechanisms).allowed

    interval = search_noise(is_enough)
    if interval is None:
        raise _failure(state, with_noise(LARGEST_NOISE), kind, target)
    release = with_noise(interval.enough)
    decision = evaluate_release(state, release)
    if not decision.allowed:
        raise InvariantBroken("a calibrated mechanism is denied")
    binding: tuple[Reason, ...] = ()
    if interval.too_little is not None:
        binding = _exceeded_rules(state, with_noise(interval.too_little))
    return CalibratedNoise(
        CALIBRATED_PARAMETERS[kind], float(interval.enough), release, decision, binding
    )


def _read_kind(fields: Body) -> str:
    kind = fields["mechanism"].get("kind") if isinstance(fields.get("mechanism"), Mapping) else None
    if not isinstance(kind, str) or kind not in CALIBRATED_PARAMETERS:
        kinds = ", ".join(sorted(CALIBRATED_PARAMETERS))
        raise InvalidValue("M019", f"`{kind}` has no noise to calibrate; one of {kinds}")
    return kind


def _release_builder(fields: Body, by: str, parameter: str) -> Callable[[Fraction], Release]:
    """Return the function that makes a release of the mechanism with a noise."""
    author = {"by": by} if by else {}

    def build(noise: Fraction) -> Release:
        mechanism = {**fields, "mechanism": {**fields["mechanism"], parameter: noise}}
        body = {"release": _RELEASE_ID, **author, "mechanisms": [mechanism]}
        return release_from_plain(body)

    return build


def _target_check(state: LedgerState, target: EpsilonDelta | None) -> Callable[[Release], bool]:
    """Return whether the filter of the policy admits a release alone to the target budget."""
    if target is None:
        return lambda release: True
    enforced = active_policy(state)
    units, accounting = enforced.policy.units, enforced.policy.accounting
    profile = accounting.used_profile
    leaks, shares = accounting.leaks_for(profile), accounting.shares_for(profile)
    bound = bound_for_budget(target, profile, accounting.orders, leaks, shares)
    offered = {certificate for clause in bound.clauses for certificate, _ in clause}
    certificates = tuple(sorted({PURE, *offered}))
    limits = build_bound_arrays([bound], certificates)

    def is_within_target(release: Release) -> bool:
        request = release.mechanisms[0]
        own = complete_meaning(release, enforced.policy).mechanisms[0]
        restatements = tuple((units[name], m) for name, m in request.restatements.items())
        costs = enforced.mechanism_costs(
            state_mechanism(request, units[own.unit], own.relation, restatements, certificates)
        )
        position = list(units).index(own.unit)
        return bool(limits.are_within(costs[position : position + 1])[0])

    return is_within_target


def _failure(
    state: LedgerState, release: Release, kind: str, target: EpsilonDelta | None
) -> Denied | InvalidValue:
    """Return the error of a search that ends without a result."""
    decision = evaluate_release(state, release)
    if decision.allowed and target is not None:
        return unreachable_target_error(kind, target.epsilon)
    return Denied(decision)


def _exceeded_rules(state: LedgerState, release: Release) -> tuple[Reason, ...]:
    mechanisms = resolve_or_reject(release, active_policy(state))
    verdict = decide_mechanisms(state, mechanisms)
    if verdict.allowed:
        return ()
    return reasons_for(verdict, partial(top_spenders, state))
