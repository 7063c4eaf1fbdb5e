"""A state and a request → the decision to record, or why the request makes no sense there; pure.

A repeated id gives back the recorded answer. What ends or redescribes a release may never lower
what it is charged for beyond what was really run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpolicy.enforcement.balances import Balances
from dpolicy.enforcement.check import (
    Verdict,
    certificates_of,
    charges,
    decide,
    nowhere_above,
    prepared,
)
from dpolicy.enforcement.explanation import counter_offers, reasons
from dpolicy.enforcement.governance import most_spent
from dpolicy.enforcement.resolution import Resolved, resolve
from dpolicy.enforcement.state import RESERVED, VOIDED, Entry, State
from dpolicy.errors import (
    InvalidValue,
    InvariantBroken,
    Misused,
    PolicyRejected,
    ReleaseRejected,
)
from dpolicy.language.diagnostics import Findings
from dpolicy.language.release import release_from
from dpolicy.language.source import Source, read_json
from dpolicy.ledger.canonical import encode
from dpolicy.ledger.events import Event, ReleaseDecided, ReleaseImported
from dpolicy.releases.body import Body, plain_body, release_of
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy


def read_request(release: Release | Body) -> Release:
    """A release as it will be recorded: from its plain values, read as strictly as a file."""
    said = release.body if isinstance(release, Release) else release
    found = Findings()
    node = read_json(Source("release", encode(plain_body(said)).decode("utf-8")), found)
    read = None if node is None else release_from(node, found)
    if read is None or found.errors:
        raise PolicyRejected(found.all)
    return read


def judge(state: State, release: Release) -> Decision:
    """What the rules say of a release now, with reasons and counter-offers."""
    policy = state.policy
    if policy is None:
        raise no_policy()
    mechanisms = readable(release, policy)
    state.account.expect(release, mechanisms)
    try:
        verdict = decide(policy, state.balances, mechanisms, state.today)
    except InvalidValue as error:  # its mechanisms overlap in too many ways
        raise ReleaseRejected([error]) from None
    return Decision(
        release=release.id,
        allowed=verdict.allowed,
        policy=policy.digest,
        reasons=reasons(verdict, lambda number, at: most_spent(state, number, at)),
        uncovered=verdict.uncovered,
        failed=verdict.failed,
        would_fit=offers(policy, state.balances, state.today, release.body, verdict),
    )


def readable(release: Release, policy: CompiledPolicy) -> tuple[Resolved, ...]:
    """The mechanisms of a release, or everything that a policy cannot read of it."""
    mechanisms, problems = resolve(release, policy, certificates_of(policy))
    if problems:
        raise ReleaseRejected(problems)
    return mechanisms


def replayed(event: Event, status: str, release: Release) -> Decision:
    """The answer that was given to this id before."""
    if not isinstance(event, ReleaseDecided | ReleaseImported):
        raise InvariantBroken("only what was asked can be replayed")
    if encode(event.body) != encode(release.body):
        raise Misused(f"the id `{release.id}` was used for another release", "id-taken")
    if isinstance(event, ReleaseImported):
        raise Misused(
            f"the release `{release.id}` was imported: it is charged already", "already-imported"
        )
    if status == VOIDED:
        raise Misused(
            f"the release `{release.id}` was voided: ask again under another id", "already-voided"
        )
    return Decision.from_json(json.loads(event.answer)).again()


def reservation(state: State, release: str) -> Entry:
    """A release that is held and can be committed or voided."""
    entry = state.entries.get(release)
    if entry is None:
        raise Misused(f"there is no release `{release}`", "not-found")
    if entry.status != RESERVED:
        raise Misused(f"the release `{release}` is {entry.status}, not reserved", "not-reserved")
    return entry


def check_less(state: State, entry: Entry, body: Body) -> None:
    """What was run must cost no rule more than what was reserved, and be covered by as many."""
    policy = state.policy
    if policy is None:
        raise no_policy()
    mechanisms = readable(release_of(body), policy)
    verdict = decide(policy, None, mechanisms)
    each = [checks for checks in verdict.checks if checks.of.section.rules.each_release]
    if verdict.uncovered or verdict.failed or not all(checks.holds.all() for checks in each):
        raise Misused("what was run would not have been allowed", "more-than-reserved")
    of, _ = prepared(policy)
    matches = [of.section.index.match(m.facts) for m in mechanisms]
    used = charges(of, mechanisms, matches, state.contents[entry.content].month)
    if not nowhere_above(of, used, state.charges_of(entry)):
        raise Misused("what was run costs more than what was reserved", "more-than-reserved")


def not_proposed(state: State, release: str) -> None:
    """Raise `Misused` if a second person has yet to answer for a release, or has refused it."""
    proposal = state.proposal_of("release", release)
    if proposal is not None and proposal.open:
        said = f"the release `{release}` waits for a second person as proposal {proposal.number}"
        raise Misused(said, "waiting")
    if proposal is not None and not proposal.approved:
        raise rejected(release)


def rejected(release: str) -> Misused:
    """The error for a release that a second person did not want."""
    said = f"the release `{release}` was rejected: ask again under another id"
    return Misused(said, "already-rejected")


def no_policy() -> Misused:
    """The error for a ledger on which nothing can be decided yet."""
    return Misused("the ledger has no policy yet: `dpolicy apply` puts one in force", "no-policy")


def still_in_force(state: State, judged_by: CompiledPolicy | None) -> None:
    """Raise `Misused` if another policy came into force since somebody judged by one."""
    now = state.policy
    if (now and now.digest) != (judged_by and judged_by.digest):
        said = "another policy came into force meanwhile: look at it, and ask again"
        raise Misused(said, "policy-changed")


def losses_of(body: Body) -> list[dict[str, Any]]:
    """All of a body that decides what its mechanisms lose."""
    described = ("attributes", "labels", "name")
    return [
        {key: value for key, value in said.items() if key not in described}
        for said in body["mechanisms"]
    ]


def offers(
    policy: CompiledPolicy, balances: Balances, today: int, body: Body, verdict: Verdict
) -> tuple[Mapping[str, Any], ...]:
    """What would fit instead of a release that does not."""
    if verdict.allowed or verdict.failed or verdict.uncovered:
        return ()

    def fits(changed: Body) -> bool:
        try:
            mechanisms, problems = resolve(release_of(changed), policy, certificates_of(policy))
        except InvalidValue:
            return False
        return not problems and decide(policy, balances, mechanisms, today).allowed

    return counter_offers(body, fits)
