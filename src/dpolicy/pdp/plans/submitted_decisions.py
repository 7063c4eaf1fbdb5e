"""The results of `submit_many`, in the order of the releases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import overload

from dpolicy.errors import DPolicyError
from dpolicy.pdp.plans.record_text import PlannedAnswer
from dpolicy.releases.decision import Decision
from dpolicy.text.summaries import html_line, one_line


class SubmittedDecisions(Sequence[Decision | DPolicyError]):
    """A decision or a refusal for each release.

    The decision of a planned answer is read from its recorded text at each access.
    """

    def __init__(self, answers: Sequence[Decision | PlannedAnswer | DPolicyError]) -> None:
        self._answers = answers

    def __len__(self) -> int:
        return len(self._answers)

    @overload
    def __getitem__(self, position: int) -> Decision | DPolicyError: ...
    @overload
    def __getitem__(self, position: slice) -> SubmittedDecisions: ...
    def __getitem__(self, position: int | slice) -> Decision | DPolicyError | SubmittedDecisions:
        if isinstance(position, slice):
            return SubmittedDecisions(self._answers[position])
        answer = self._answers[position]
        return answer.decision if isinstance(answer, PlannedAnswer) else answer

    @property
    def allowed_count(self) -> int:
        """The number of allowed releases."""
        return sum(
            answer.allowed for answer in self._answers if not isinstance(answer, DPolicyError)
        )

    def texts(self) -> list[str | DPolicyError]:
        """Return the JSON text of each decision, or the refusal."""
        return [
            json.dumps(answer.as_json(), ensure_ascii=False, sort_keys=True)
            if isinstance(answer, Decision)
            else answer.text
            if isinstance(answer, PlannedAnswer)
            else answer
            for answer in self._answers
        ]

    def __repr__(self) -> str:
        return one_line(self, f"{len(self)} releases", f"{self.allowed_count} allowed")

    def _repr_html_(self) -> str:
        return html_line(repr(self))
