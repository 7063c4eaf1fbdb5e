"""Methods of a decision point for the service: many requests in one commit, each with its own
author and policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dpolicy.errors import DPolicyError, InvalidValue
from dpolicy.pdp.commands import (
    ANY_POLICY,
    Answer,
    ExpectedPolicy,
    RecordedAnswer,
    read_answer,
    write_under_policy,
)
from dpolicy.pdp.denial_answers import DenialAnswers
from dpolicy.pdp.journal.journal import MAX_BATCH, Journal, PublishedState
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.many_releases.batch_commands import (
    Submission,
    decide_or_reject,
    split_by_weight,
)
from dpolicy.pdp.plans.planned_requests import PlannedRequest
from dpolicy.pdp.plans.submissions import Submissions
from dpolicy.pdp.plans.submitted_decisions import SubmittedDecisions
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release


class ManyReleases:
    """Base of `DecisionPoint`: requests for many releases."""

    _journal: Journal
    _denial_answers: DenialAnswers
    _submissions: Submissions

    @property
    def published_state(self) -> PublishedState:
        """The last record that this process knows to be durable, and its policy; needs no lock."""
        return self._journal.published

    def plan_request(self, release: Release, by: str) -> PlannedRequest:
        """Prepare the submission of a parsed release under the published policy.

        A content that was prepared before is not prepared again. Raise `ReleaseRejected` for
        another author than `by`.
        """
        return self._submissions.plans.plan(release, by, self._journal.published)

    def submit_many(
        self,
        releases: Sequence[Release | Body],
        by: str = "",
        *,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> SubmittedDecisions:
        """Submit releases that do not depend on each other; up to 256 share one commit, and fewer
        if they have many boxes.

        Each is decided as by `submit`, in order. The result has a decision or a `DPolicyError` for
        each; if a later commit fails, the error of each release that it would have decided. A
        denial has no counter-offers; `check` gives them.
        """
        require_list(releases)
        outcomes: list[RecordedAnswer | DPolicyError] = []
        for start in range(0, len(releases), MAX_BATCH):
            batch = [self._plan_or_reject(r, by) for r in releases[start : start + MAX_BATCH]]
            try:
                for part in split_by_weight(batch, MAX_BATCH):
                    outcomes += self._decide_batch(batch[part], by, expected_policy)
            except DPolicyError as error:
                if not outcomes:
                    raise
                outcomes += [error] * (len(releases) - len(outcomes))
                break
        return SubmittedDecisions(outcomes)

    def _plan_or_reject(self, release: Release | Body, by: str) -> PlannedRequest | DPolicyError:
        try:
            return self._submissions.plans.plan(release, by, self._journal.published)
        except DPolicyError as error:
            return error

    def _decide_batch(
        self,
        batch: Sequence[PlannedRequest | DPolicyError],
        by: str,
        expected_policy: ExpectedPolicy,
    ) -> list[RecordedAnswer | DPolicyError]:
        """Decide the requests that could be planned, in one commit."""

        def decide(log: WriteTransaction) -> list[RecordedAnswer | DPolicyError]:
            return [
                decide_or_reject(log, request, by)
                if isinstance(request, PlannedRequest)
                else request
                for request in batch
            ]

        weight = sum(item.weight for item in batch if isinstance(item, PlannedRequest))
        return write_under_policy(self._journal, decide, expected_policy, max(weight, len(batch)))

    def decide_many(self, submissions: Sequence[Submission]) -> list[Answer | DPolicyError]:
        """Decide submissions in order, without advice for denials.

        They share one commit, or several if they have many boxes. The answer is a decision, or the
        JSON text of the decision on an allowed release; if a later commit fails, its error.
        """
        answers: list[RecordedAnswer | DPolicyError] = []
        requests = [submission.request for submission in submissions]
        for part in split_by_weight(requests, MAX_BATCH):
            weight = sum(request.weight for request in requests[part])
            try:
                answers += self._journal.write(partial(_decide_each, submissions[part]), weight)
            except DPolicyError as error:
                if not answers:
                    raise
                answers += [error] * (len(submissions) - len(answers))
                break
        return [read_answer(answer) for answer in answers]

    def add_advice(self, release: Release, decision: Decision) -> Decision:
        """Return a denial with counter-offers and top spenders, and other decisions unchanged."""
        return self._denial_answers.advise_submission(release, decision)


def _decide_each(
    submissions: Sequence[Submission], log: WriteTransaction
) -> list[RecordedAnswer | DPolicyError]:
    return [decide_or_reject(log, *submission) for submission in submissions]


def require_list(releases: object) -> None:
    """Raise `InvalidValue` (P007) for anything but a list of releases."""
    if not isinstance(releases, Sequence) or isinstance(releases, str | bytes):
        kind = type(releases).__name__
        raise InvalidValue("P007", f"`releases` is a value of the type `{kind}`; help: give a list")
