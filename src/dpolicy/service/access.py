"""Who is known, by which token, and what they may do → the person who asks.

Everything here is a frozen value: the access file is read whole or not at all (`access_file.py`),
and a request sees one version of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dpolicy.errors import Refused
from dpolicy.service.principal import EVERY_ROLE, LabelValues, Principal

#: The person everybody is on a machine that serves only itself.
LOCAL = Principal("local", EVERY_ROLE)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token of a person: only its hash is known here."""

    person: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class Access:
    """What the access file says; `local` where there is none and only this machine is served."""

    people: Mapping[str, Principal] = field(default_factory=dict)
    tokens: Mapping[str, Token] = field(default_factory=dict)
    restricted: LabelValues = field(default_factory=dict)
    local: bool = False

    def identify(self, credential: str | None, now: datetime) -> Principal:
        """The person behind a credential. Raises `Refused`."""
        if self.local:
            return LOCAL
        if not credential:
            raise Refused("unauthenticated", "send a token: `Authorization: Bearer …`")
        token = self.tokens.get(hashlib.sha256(credential.encode("utf-8", "replace")).hexdigest())
        if token is None or token.expires <= now:
            raise Refused("unauthenticated", "the token is unknown or has expired")
        return self.people[token.person]


def local_access() -> Access:
    """Everybody on this machine may do everything."""
    return _LOCAL_ACCESS


_LOCAL_ACCESS = Access(local=True)
