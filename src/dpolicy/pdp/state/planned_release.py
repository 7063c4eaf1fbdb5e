"""Planned release: what a fold needs of a record that this process has built."""

from __future__ import annotations

from typing import NamedTuple

from dpolicy.balances.planned_charge import PlannedCharge
from dpolicy.pdp.state.charge_groups import ResolvedChargeGroup
from dpolicy.pdp.state.release_archive import ALLOWED, DENIED, RESERVED


class PlannedRelease(NamedTuple):
    """A decided release whose record this process has built; `expires` is None if not reserved.

    `by`, `mechanisms` and `meaning` determine its charge group. `charge` is None if it is charged
    to no rule.
    """

    release: str
    at: str
    expires: str | None
    by: str
    mechanisms: bytes
    meaning: str
    resolved: ResolvedChargeGroup
    charge: PlannedCharge | None
    allowed: bool

    @property
    def status(self) -> str:
        """The status of the release in the state."""
        if not self.allowed:
            return DENIED
        return ALLOWED if self.expires is None else RESERVED
