"""Redefinition: a name that a policy defines otherwise than recorded releases used it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: How the recorded releases are charged after a redefinition was accepted, by kind of name.
_EFFECTS = {
    "unit": "by group privacy",
    "label": "to every rule that they may match",
    "partition": "for all values",
}


@dataclass(frozen=True, slots=True)
class Redefinition:
    """A name that a policy defines otherwise than recorded releases used it.

    `count` is the number of these releases and `releases` are the first of them.
    """

    kind: str
    defined: str
    releases: tuple[str, ...]
    count: int

    @property
    def name(self) -> str:
        """The name with which the conflict is accepted, such as `unit user-day`."""
        return f"{self.kind} {self.defined}"

    @property
    def message(self) -> str:
        """The conflict as a sentence."""
        count = "1 release uses" if self.count == 1 else f"{self.count} releases use"
        return f"the policy redefines the {self.kind} `{self.defined}`, which {count}"

    @property
    def help(self) -> str:
        """How to resolve the conflict."""
        effect = _EFFECTS[self.kind]
        return f"use another name, or accept `{self.name}` to charge the recorded releases {effect}"

    @staticmethod
    def from_json(payload: Mapping[str, Any]) -> Redefinition:
        """Decode the JSON of a redefinition. Raise `KeyError` if a key is missing."""
        return Redefinition(
            payload["kind"], payload["name"], tuple(payload["releases"]), payload["count"]
        )

    def as_json(self) -> dict[str, Any]:
        """Return the redefinition as JSON."""
        return {
            "kind": self.kind,
            "name": self.defined,
            "accept": self.name,
            "releases": list(self.releases),
            "count": self.count,
            "message": self.message,
            "help": self.help,
        }
