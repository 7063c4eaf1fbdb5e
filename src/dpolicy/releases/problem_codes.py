"""Titles of the R codes: problems of a release that only the active policy reveals.

`decisions/resolution.py`, `releases/regions.py` and `balances/balances.py` raise these codes.
"""

from __future__ import annotations

from collections.abc import Mapping

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
}
