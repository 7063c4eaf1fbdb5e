"""Submissions: requests are planned before they wait to be written, and advised afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpolicy.pdp import commands
from dpolicy.pdp.commands import ExpectedPolicy, write_under_policy
from dpolicy.pdp.denial_answers import DenialAnswers
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.plans.planned_requests import PlanMemo
from dpolicy.pdp.plans.record_text import PlannedAnswer
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release


@dataclass(slots=True)
class Submissions:
    """Submits releases to a journal. Safe to share between threads."""

    journal: Journal
    denial_answers: DenialAnswers
    plans: PlanMemo = field(default_factory=PlanMemo)

    def submit(
        self, release: Release | Body, by: str, expected_policy: ExpectedPolicy, *, reserve: bool
    ) -> Decision:
        """Decide a release and charge or reserve it."""
        request = self.plans.plan(release, by, self.journal.published)
        answer = write_under_policy(
            self.journal,
            lambda log: commands.decide_request(log, request, by, reserve=reserve),
            expected_policy,
            request.weight,
        )
        if isinstance(answer, PlannedAnswer):
            answer = answer.decision
        if answer.allowed:
            return answer
        return self.denial_answers.advise_submission(request.read_release(), answer)
