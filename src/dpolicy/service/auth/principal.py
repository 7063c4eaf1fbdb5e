"""Who asks: a person, what they may do, and which restricted labels they may claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Role(StrEnum):
    """What a person may do; a person can have several."""

    ANALYST = "analyst"
    APPROVER = "approver"
    OFFICER = "officer"
    AUDITOR = "auditor"


EVERY_ROLE = frozenset(Role)

#: Label → values that only those with a grant may claim; `grants` of a person look the same.
LabelValues = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified person. The name comes from a token or the access file, never from a request."""

    name: str
    roles: frozenset[Role]
    grants: LabelValues = field(default_factory=lambda: MappingProxyType({}))

    @property
    def only_analyst(self) -> bool:
        """Whether this person sees only what is their own."""
        return self.roles == {Role.ANALYST}
