"""Spent page: a question about spending as a form, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dpolicy.errors import (
    InvalidValue,
    OperationRejected,
    PolicyRejected,
    RequestRefused,
)
from dpolicy.pdp.spending.spending import Spending
from dpolicy.rules.compiler import CompiledPolicy

#: Fields of the form, which are the query parameters of the page.
FIELDS = ("when", "rule", "unit", "at", "since", "by", "delta")

#: Number of releases in the answer, and of rules that the form suggests.
MAX_LISTED, MAX_SUGGESTED = 50, 500

#: Returns the answer to a question, whose keys are those of the API.
AnswerQuestion = Callable[[Mapping[str, Any]], Spending]


@dataclass(frozen=True, slots=True)
class SpentPage:
    """Values of the form, choices for them, and the answer or the problems of the question."""

    form: Mapping[str, str]
    units: tuple[str, ...]
    rules: tuple[str, ...]
    spending: Spending | None = None
    problems: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "question": dict(self.form),
            "problems": list(self.problems),
            "answer": None if self.spending is None else self.spending.as_json(),
        }


def build_spent_page(
    policy: CompiledPolicy, form: Mapping[str, str], answer: AnswerQuestion
) -> SpentPage:
    """Answer the question of a form; errors of its values become problems."""
    units = tuple(map(str, policy.units))
    if "unit" not in form and "rule" not in form:
        form = {**form, "unit": units[0]}
    rules = tuple(dict.fromkeys(rule.name for rule, _ in islice(policy.all_rules, MAX_SUGGESTED)))
    try:
        return SpentPage(form, units, rules, answer(_parse_question(form)))
    except PolicyRejected as error:
        problems = tuple(str(diagnostic) for diagnostic in error.diagnostics)
    except InvalidValue as error:
        problems = (error.message,)
    except (OperationRejected, RequestRefused) as error:
        problems = (str(error),)
    return SpentPage(form, units, rules, None, problems)


def _parse_question(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the question with the keys of the API. Raise `RequestRefused` for a bad location."""
    question: dict[str, Any] = {key: form.get(key) for key in FIELDS}
    at = [part.strip() for part in form.get("at", "").split(",") if part.strip()]
    pairs = [part.partition("=") for part in at]
    if not all(name and value for name, _, value in pairs):
        raise RequestRefused("bad-request", "a place has the form country=CH, time=2026-10")
    question["at"] = {name.strip(): value.strip() for name, _, value in pairs} or None
    authors = [name.strip() for name in form.get("by", "").split(",") if name.strip()]
    return {**question, "by": tuple(authors) or None, "limit": MAX_LISTED}
