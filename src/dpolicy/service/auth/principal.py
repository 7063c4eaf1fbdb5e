"""Principals: authenticated people with their roles and grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Role(StrEnum):
    """Role of a person; a person can have several."""

    ANALYST = "analyst"
    APPROVER = "approver"
    OFFICER = "officer"
    AUDITOR = "auditor"


EVERY_ROLE = frozenset(Role)

#: Label → restricted values, or the values for which a person has a grant.
LabelValues = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated person. The name comes from the token or the access file, never from the body
    of a request.
    """

    name: str
    roles: frozenset[Role]
    grants: LabelValues = field(default_factory=lambda: MappingProxyType({}))

    @property
    def only_analyst(self) -> bool:
        """Whether the person may see only their own releases."""
        return self.roles == {Role.ANALYST}
