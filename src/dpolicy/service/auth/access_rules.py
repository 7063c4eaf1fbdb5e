"""Who is known, by which token, and what they may do → the person who asks.

Everything here is a frozen value: the access file is read whole or not at all (`access_file.py`),
and a request sees one version of it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dpolicy.errors import RequestRefused
from dpolicy.service.auth.oidc import Issuer, find_issuer
from dpolicy.service.auth.principal import EVERY_ROLE, LabelValues, Principal

#: The person everybody is on a machine that serves only itself.
LOCAL = Principal("local", EVERY_ROLE)

#: So that a token that turns up somewhere can be told for what it is.
PREFIX = "dpolicy_"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token of a person: only its hash is known here."""

    person: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """What needs a second person: releases that `when` matches, voids, and looser policies."""

    when: str | None = None
    void: bool = True
    policy: bool = True


@dataclass(frozen=True, slots=True)
class AccessRules:
    """What the access file says; `local` where there is none and only this machine is served."""

    people: Mapping[str, Principal] = field(default_factory=dict)
    tokens: Mapping[str, AccessToken] = field(default_factory=dict)
    issuers: tuple[Issuer, ...] = ()
    restricted: LabelValues = field(default_factory=dict)
    approval: ApprovalRules = field(default_factory=ApprovalRules)
    local: bool = False

    def identify(self, credential: str | None, now: datetime) -> Principal:
        """The person behind a credential; may ask an issuer for its keys. Raises `Refused`."""
        if self.local:
            return LOCAL
        if not credential:
            raise RequestRefused("unauthenticated", "send a token: `Authorization: Bearer …`")
        name = self._issued(credential) if is_jwt(credential) else self._known(credential, now)
        person = self.people.get(name)
        if person is None:
            raise RequestRefused(
                "unauthenticated", "the token is good, but speaks for nobody known here"
            )
        return person

    def _known(self, credential: str, now: datetime) -> str:
        """A hash of random bytes says nothing about them, so looking it up needs no care."""
        token = self.tokens.get(hash_token(credential))
        if token is None or token.expires <= now:
            raise RequestRefused("unauthenticated", "the token is unknown or has expired")
        return token.person

    def _issued(self, credential: str) -> str:
        return find_issuer(credential, self.issuers).verify_person(credential)


def is_jwt(credential: str | None) -> bool:
    """Whether a credential looks like a signed token (JWT): three parts between dots."""
    return credential is not None and credential.count(".") == 2


def generate_token() -> tuple[str, str]:
    """A secret that nobody can guess, and its hash."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret, hash_token(secret)


def hash_token(secret: str) -> str:
    """The hash under which a token is known."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def local_access() -> AccessRules:
    """Everybody on this machine may do everything, alone."""
    return _LOCAL_ACCESS


_LOCAL_ACCESS = AccessRules(approval=ApprovalRules(void=False, policy=False), local=True)
