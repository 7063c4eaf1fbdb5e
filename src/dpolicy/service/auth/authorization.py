"""A release and who asks → the release in their name, whether they may claim its labels, and
whether a second person has to agree.

Labels are read as the policy in force reads them, defaults included, so that leaving one out is no
way around (threat T6). That policy must still be active when the
release is written (`expected_policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import PredicateFailed, RequestRefused
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.request_evaluation import no_policy_error
from dpolicy.predicates.expression import Expression, matches, parse_predicate
from dpolicy.releases.release import Release
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest


def with_caller_as_author(call: ApiRequest, release: Release) -> Release:
    """The release as asked for by the caller. Raises `Refused` if it names somebody else.

    Without an access file nobody is told apart, and a release may say what it likes.
    """
    if call.access.local:
        return release
    name = call.principal.name
    if release.by not in ("", name):
        raise RequestRefused("forbidden", f"the release is by `{release.by}`, and you are `{name}`")
    return replace(release, by=name, body={**release.body, "by": name})


def requires_approval(call: ApiRequest, releases: Sequence[Release]) -> bool:
    """Whether one of the releases has to be approved. Raises `Refused` for a label that the caller
    may not claim.
    """
    return authorize_releases(call, releases)[0]


def authorize_releases(
    call: ApiRequest, releases: Sequence[Release]
) -> tuple[bool, ExpectedPolicy]:
    """Return whether a release needs approval, and the policy under which that was decided."""
    when, restricted = call.access.approval.when, call.access.restricted
    if when is None and not restricted:
        return False, ANY_POLICY
    enforced = call.decision_point.enforced_policy
    if enforced is None:
        raise no_policy_error()
    facts = claimed_inputs(call, releases, enforced)
    second = when is not None and any(_matches(when, enforced.policy, one) for one in facts)
    return second, enforced.policy


def claimed_inputs(
    call: ApiRequest, releases: Sequence[Release], enforced: EnforcedPolicy | None
) -> Sequence[PredicateInput]:
    """What releases say of themselves, as a policy reads it, or as it stands where there is none.
    Raises `Refused` for a label that the caller may not claim.
    """
    if enforced is None:
        facts = [
            PredicateInput(labels=m.labels) for release in releases for m in release.mechanisms
        ]
    else:
        facts = [
            m.predicate_input for release in releases for m in resolve_or_reject(release, enforced)
        ]
    for one in facts:
        _check_labels(call, one)
    return facts


def ensure_owner(call: ApiRequest, owner: str) -> None:
    """Raise `Refused` unless what is asked about is the caller's own, or they look after all."""
    others = call.principal.roles & {Role.OFFICER}
    if not (call.access.local or others or owner == call.principal.name):
        raise RequestRefused("forbidden", "this is another person's release")


def _check_labels(call: ApiRequest, facts: PredicateInput) -> None:
    for label, values in call.access.restricted.items():
        said = facts.labels.get(label, ())
        claimed = {said} if isinstance(said, str) else set(said)
        missing = claimed & values - call.principal.grants.get(label, frozenset())
        if missing:
            value = min(missing)
            raise RequestRefused(
                "label-not-granted", f"`{label}: {value}` may be claimed with a grant"
            )


def _matches(when: str, policy: CompiledPolicy, facts: PredicateInput) -> bool:
    """Whether a condition holds; one that the policy cannot read, or that fails, holds."""
    predicate = _predicate(when, policy)
    try:
        return predicate is None or matches(predicate, facts)
    except PredicateFailed:
        return True


@lru_cache(maxsize=8)
def _predicate(when: str, policy: CompiledPolicy) -> Expression | None:
    found = parse_predicate(when, policy.checked_policy_set.vocabulary.schema)
    return found if isinstance(found, Expression) else None
