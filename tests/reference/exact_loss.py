"""Naive twin of `dpolicy.privacy.loss`: losses as plain fractions per certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class ExactLoss:
    """List of losses; every call recomputes the total."""

    entries: list[tuple[tuple[Fraction | None, ...], Fraction]] = field(default_factory=list)

    def add(self, amounts: Sequence[Fraction | None], delta: Fraction) -> None:
        """Add one entry; None is infinite."""
        self.entries.append((tuple(amounts), delta))

    def total(self, position: int) -> Fraction | None:
        """Return the sum in one certificate, or None if it is infinite."""
        values = [amounts[position] for amounts, _ in self.entries]
        if None in values:
            return None
        return sum((value for value in values if value is not None), Fraction(0))

    def delta(self) -> Fraction:
        """Return the sum of the δ-sides."""
        return sum((delta for _, delta in self.entries), Fraction(0))
