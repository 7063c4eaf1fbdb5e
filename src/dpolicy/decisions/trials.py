"""Trials: decisions of changed releases, of which one denial may cost only a fixed number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.decide import Verdict, decide
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_release
from dpolicy.errors import InvalidValue
from dpolicy.releases.body import Body, release_from_body

#: Largest number of decisions that the advice on one denial costs, besides those of
#: `search_counter_offers`. A request must have bounded work.
MAX_TRIALS = 64


@dataclass(frozen=True, slots=True)
class DecisionTrial:
    """A changed release, with its resolved mechanisms and the verdict on it."""

    body: Body
    mechanisms: Sequence[ResolvedMechanism]
    verdict: Verdict


@dataclass(slots=True)
class DecisionTrials:
    """Policy and balances against which changed releases are decided, and the remaining trials."""

    enforced: EnforcedPolicy
    balances: Balances
    today: int
    remaining: int = MAX_TRIALS

    def decide(self, body: Body) -> DecisionTrial | None:
        """Decide a changed release; None if it is not valid or no trial remains."""
        if self.remaining <= 0:
            return None
        self.remaining -= 1
        mechanisms = self.resolve(body)
        if mechanisms is None:
            return None
        try:
            verdict = decide(self.enforced, self.balances, mechanisms, self.today)
        except InvalidValue:
            return None
        return DecisionTrial(body, mechanisms, verdict)

    def is_allowed(self, body: Body) -> bool:
        """Return whether a changed release would be allowed; False if no trial remains."""
        trial = self.decide(body)
        return trial is not None and trial.verdict.allowed

    def resolve(self, body: Body) -> Sequence[ResolvedMechanism] | None:
        """Return the resolved mechanisms of a changed release; None if it is not valid."""
        try:
            mechanisms, problems = resolve_release(release_from_body(body), self.enforced)
        except InvalidValue:
            return None
        return None if problems else mechanisms
