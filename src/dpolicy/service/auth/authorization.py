"""Authorization of releases: author, restricted labels, and whether approval is needed.

Labels are resolved by the active policy, including defaults, so omitting a restricted label does
not bypass the check (SECURITY.md, item 4). The policy must still be active when the operation is
executed (`Authorization`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import DPolicyError, PredicateFailed, RequestRefused
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.request_evaluation import no_policy_error
from dpolicy.predicates.expression import Expression, matches, parse_predicate
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_with_author
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.service.auth.access_rules import AccessRules
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest


def author_name(call: ApiRequest) -> str:
    """Return the author of releases that state none: the caller, or none without an access file."""
    return "" if call.access.local else call.principal.name


def with_caller_as_author(call: ApiRequest, release: Release) -> Release:
    """Return the release with the caller as its author. Raise `RequestRefused` if it names another
    author. Without an access file callers cannot be distinguished, and the author stays as stated.
    """
    if call.access.local:
        return release
    name = call.principal.name
    if release.by not in ("", name):
        raise RequestRefused(
            "forbidden", f"the release names the author `{release.by}`, but the caller is `{name}`"
        )
    return release_with_author(release, name)


@dataclass(frozen=True, slots=True)
class Authorization:
    """Result of an authorization: whether approval is needed, and the policy that determined it.

    The decision point writes only while `expected_policy` is active. It is `ANY_POLICY` if the
    result does not depend on the policy.
    """

    needs_approval: bool
    expected_policy: ExpectedPolicy


def requires_approval(call: ApiRequest, releases: Sequence[Release]) -> bool:
    """Return whether one of the releases needs approval under the newest policy. Raise
    `RequestRefused` if the caller may not use one of their labels.
    """
    if not depends_on_policy(call.access):
        return False
    enforced = call.decision_point.enforced_policy
    return authorize_under(call, releases, enforced).needs_approval


def authorize_releases(call: ApiRequest, releases: Sequence[Release]) -> Authorization:
    """Check the labels of releases and whether one needs approval. Raise `RequestRefused` if the
    caller may not use one of their labels.

    This uses the published policy, which needs no lock. It may be older than the active one, so an
    error under it counts only if it is the newest policy of the ledger.
    """
    if not depends_on_policy(call.access):
        return Authorization(False, ANY_POLICY)
    published = call.decision_point.published_state.enforced
    try:
        return authorize_under(call, releases, published)
    except DPolicyError:
        newest = call.decision_point.enforced_policy
        if newest is published:
            raise
        return authorize_under(call, releases, newest)


def depends_on_policy(access: AccessRules) -> bool:
    """Return whether a policy determines which releases a caller may submit without approval."""
    return access.approval.when is not None or bool(access.restricted)


def authorize_under(
    call: ApiRequest, releases: Sequence[Release], enforced: EnforcedPolicy | None
) -> Authorization:
    """Authorize releases under a policy. Raise `RequestRefused`, or `OperationRejected` without a
    policy.
    """
    when = call.access.approval.when
    if enforced is None:
        raise no_policy_error()
    inputs = ensure_labels_granted(call, releases, enforced)
    policy = enforced.policy
    needs_approval = when is not None and any(_matches(when, policy, item) for item in inputs)
    return Authorization(needs_approval, policy)


def ensure_labels_granted(
    call: ApiRequest, releases: Sequence[Release], enforced: EnforcedPolicy | None
) -> Sequence[PredicateInput]:
    """Return the predicate inputs of all mechanisms: resolved by the policy, or with the labels as
    stated if there is no policy. Raise `RequestRefused` if the caller may not use a label.
    """
    if enforced is None:
        inputs = [
            PredicateInput(labels=m.labels) for release in releases for m in release.mechanisms
        ]
    else:
        inputs = [
            m.predicate_input for release in releases for m in resolve_or_reject(release, enforced)
        ]
    for item in inputs:
        _check_labels(call, item)
    return inputs


def ensure_owner(call: ApiRequest, owner: str) -> None:
    """Raise `RequestRefused` unless the caller is the owner of a release, or an officer."""
    is_officer = Role.OFFICER in call.principal.roles
    if not (call.access.local or is_officer or owner == call.principal.name):
        raise RequestRefused("forbidden", "the release belongs to another person")


def _check_labels(call: ApiRequest, predicate_input: PredicateInput) -> None:
    for label, values in call.access.restricted.items():
        claimed = predicate_input.labels.get(label, ())
        claimed_values = {claimed} if isinstance(claimed, str) else set(claimed)
        missing = claimed_values & values - call.principal.grants.get(label, frozenset())
        if missing:
            value = min(missing)
            raise RequestRefused("label-not-granted", f"`{label}: {value}` needs a grant")


def _matches(when: str, policy: CompiledPolicy, predicate_input: PredicateInput) -> bool:
    """Return whether a condition is true. It counts as true if the policy cannot resolve it or if
    its evaluation fails.
    """
    predicate = _parse_condition(when, policy)
    try:
        return predicate is None or matches(predicate, predicate_input)
    except PredicateFailed:
        return True


@lru_cache(maxsize=8)
def _parse_condition(when: str, policy: CompiledPolicy) -> Expression | None:
    parsed = parse_predicate(when, policy.checked_policy_set.vocabulary.schema)
    return parsed if isinstance(parsed, Expression) else None
