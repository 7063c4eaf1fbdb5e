"""Titles of the R codes: problems of a release that only the active policy reveals.

`decisions/resolution.py`, `releases/regions.py` and `balances/balances.py` raise these codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpolicy.errors import InvalidValue

#: Title by code. A code never changes its meaning.
PROBLEMS: Mapping[str, str] = {
    "R001": "a mechanism states no unit, or a unit that the policy does not define",
    "R002": "an attribute is not in the schema of the policy",
    "R003": "a label is not in the schema of the policy",
    "R004": "a required label is missing",
    "R005": "a label has an unknown value, or several values where it accepts one",
    "R006": "a selection is outside the partitions of the policy",
    "R007": "the policy requires additive mechanisms",
    "R008": "a selection has too many boxes, or mechanisms overlap in too many regions",
    "R009": "the request and the release name different authors",
    "R010": "the mechanism is not private under the neighbouring relation",
    "R011": "the noise multiplier of a mechanism needs a stated neighbouring relation",
}


def author_problem(stated: str, by: str) -> InvalidValue:
    """Return the problem of a release that states another author than the request."""
    message = f"the release states the author `{stated}`, but the request is by `{by}`"
    return InvalidValue("R009", f"{message}; help: state one author")
