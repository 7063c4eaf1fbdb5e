"""Verification of signed tokens (OIDC, JWT).

Only asymmetric algorithms are accepted. A token without a signature (`alg: none`), or one that can
be made with the public key (`HS256`), is refused before any key is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any
from urllib.request import urlopen

import jwt

from dpolicy.errors import RequestRefused

#: The accepted algorithms; all are asymmetric.
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
#: Seconds by which the clocks of issuer and server may differ.
LEEWAY = 30
#: Seconds for which fetched keys are used, and between two attempts to fetch them.
FRESH, RETRY = 600.0, 30.0
#: Upper limit for the size of a key set; usual ones have a few kilobytes.
MAX_KEYS_BYTES = 200_000

_REQUIRED_CLAIMS = ["exp", "iss", "aud"]


class IssuerKeys:
    """Public keys of an issuer, from a file or a URL. Safe to share between threads."""

    def __init__(self, location: str, folder: Path) -> None:
        self._location, self._folder = location, folder
        self._lock = Lock()
        self._keys: dict[str | None, Any] = {}
        self._last_fetch, self._last_attempt = -FRESH, -RETRY

    def find(self, name: str | None) -> Any:
        """Return the key with id `name`, or the only key if `name` is None.

        Fetch the keys if they are old or the id is unknown. Raise `RequestRefused` if there is no
        such key.
        """
        with self._lock:
            now = monotonic()
            stale = now - self._last_fetch > FRESH or name not in self._keys
            if stale and now - self._last_attempt > (RETRY if self._is_remote else 0):
                self._last_attempt = now
                self._keys = {key.key_id: key for key in self._fetch()}
                self._last_fetch = now
            if name is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            if name is None or name not in self._keys:
                raise RequestRefused("unauthenticated", "the token is signed with an unknown key")
            return self._keys[name]

    @property
    def _is_remote(self) -> bool:
        return self._location.startswith(("https://", "http://"))

    def _fetch(self) -> Sequence[Any]:
        """Return the keys for signatures; the library omits keys of other uses and types."""
        try:
            if self._is_remote:
                with urlopen(self._location, timeout=5) as response:
                    data = response.read(MAX_KEYS_BYTES)
            else:
                data = (self._folder / self._location).read_bytes()
            return jwt.PyJWKSet.from_dict(json.loads(data)).keys
        except (OSError, ValueError, AttributeError, TypeError, jwt.PyJWTError) as error:
            message = f"cannot read the keys of the issuer from `{self._location}`: {error}"
            raise RequestRefused("access-unreadable", message) from error


@dataclass(frozen=True, slots=True)
class Issuer:
    """Identity provider whose tokens are accepted for one audience.

    The claim called `name` identifies the person. With `subjects`, only the claims that it maps to
    people are accepted; without it, the claim must be the name of a person.
    """

    issuer: str
    audience: str
    keys: IssuerKeys
    name: str = "sub"
    subjects: Mapping[str, str] | None = None

    def verify_person(self, token: str) -> str:
        """Verify a token and return the name of its person. Raise `RequestRefused` if invalid."""
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise RequestRefused(
                "unauthenticated", "the signature algorithm of the token is not accepted"
            )
        key = self.keys.find(key_id if isinstance(key_id, str) else None)
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": _REQUIRED_CLAIMS},
            )
        except (jwt.PyJWTError, TypeError, ValueError, AttributeError) as error:
            raise RequestRefused("unauthenticated", f"invalid token: {error}") from None
        subject = claims.get(self.name)
        if not isinstance(subject, str):
            raise RequestRefused("unauthenticated", f"the token has no claim `{self.name}`")
        person = subject if self.subjects is None else self.subjects.get(subject)
        if person is None:
            raise RequestRefused(
                "unauthenticated", f"the claim `{self.name}` of the token is not in `subjects`"
            )
        return person


def find_issuer(token: str, issuers: Sequence[Issuer]) -> Issuer:
    """Return the issuer that a token names; the signature is not verified yet.

    Raise `RequestRefused` if the token is malformed or its issuer is unknown.
    """
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise RequestRefused("unauthenticated", "malformed token") from None
    for issuer in issuers:
        if issuer.issuer == claims.get("iss"):
            return issuer
    raise RequestRefused("unauthenticated", "unknown token issuer")
