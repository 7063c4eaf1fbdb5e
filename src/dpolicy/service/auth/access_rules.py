"""Access rules: people, tokens, issuers, restricted labels and approval rules.

All values are frozen. The access file is loaded completely or not at all (`access_file.py`), and
each request uses one version of it.
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

#: Principal of every caller if the server has no access file.
LOCAL = Principal("local", EVERY_ROLE)

#: Prefix of generated tokens; secret scanners can recognise it.
PREFIX = "dpolicy_"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Person and expiry time of a bearer token; the access file has only the hash of a token."""

    person: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """Requests that need approval: releases that match `when`, voids, and policies that do not
    only tighten.
    """

    when: str | None = None
    void: bool = True
    policy: bool = True


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Content of the access file; `local` if there is no file and the server accepts only its own
    machine.
    """

    people: Mapping[str, Principal] = field(default_factory=dict)
    tokens: Mapping[str, AccessToken] = field(default_factory=dict)
    issuers: tuple[Issuer, ...] = ()
    restricted: LabelValues = field(default_factory=dict)
    approval: ApprovalRules = field(default_factory=ApprovalRules)
    local: bool = False

    def identify(self, credential: str | None, now: datetime) -> Principal:
        """Return the principal of a credential; may fetch the keys of an issuer.

        Raise `RequestRefused` if the credential is missing or invalid.
        """
        if self.local:
            return LOCAL
        if not credential:
            raise RequestRefused(
                "unauthenticated", "no token; send the header `Authorization: Bearer <token>`"
            )
        if is_jwt(credential):
            name = find_issuer(credential, self.issuers).verify_person(credential)
        else:
            name = self._token_owner(credential, now)
        person = self.people.get(name)
        if person is None:
            raise RequestRefused(
                "unauthenticated", "the token is valid, but its subject is not in the access file"
            )
        return person

    def _token_owner(self, credential: str, now: datetime) -> str:
        """Return the person of a token. The lookup need not take constant time: timing reveals only
        the hash of random bytes.
        """
        token = self.tokens.get(hash_token(credential))
        if token is None or token.expires <= now:
            raise RequestRefused("unauthenticated", "unknown or expired token")
        return token.person


def is_jwt(credential: str | None) -> bool:
    """Return whether a credential has the form of a signed token (JWT): three parts with dots."""
    return credential is not None and credential.count(".") == 2


def generate_token() -> tuple[str, str]:
    """Return a random token and its hash."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret, hash_token(secret)


def hash_token(secret: str) -> str:
    """Return the SHA-256 hash of a token in hexadecimal, as in the access file."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def local_access() -> AccessRules:
    """Return the rules without an access file: each caller has all roles and needs no approval."""
    return _LOCAL_ACCESS


_LOCAL_ACCESS = AccessRules(approval=ApprovalRules(void=False, policy=False), local=True)
