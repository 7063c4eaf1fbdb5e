"""A token that somebody else signed (OIDC, JWT) → the person it speaks for.

Only signatures with a private key are taken: a token without one (`alg: none`), or one that anybody
could make who knows the public key (`HS256`), is refused before any key is looked at.
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

#: Every algorithm with a private and a public key.
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
#: Seconds by which the clocks of issuer and server may differ.
LEEWAY = 30
#: Seconds for which fetched keys are good, and between two attempts to fetch them.
FRESH, RETRY = 600.0, 30.0
#: Key sets are a few kilobytes.
MAX_KEYS_BYTES = 200_000

_NEEDED = ["exp", "iss", "aud"]


class IssuerKeys:
    """The public keys of an issuer, from a file or an address. Safe to share between threads."""

    def __init__(self, place: str, folder: Path) -> None:
        self._place, self._folder = place, folder
        self._lock = Lock()
        self._found: dict[str | None, Any] = {}
        self._read, self._tried = -FRESH, -RETRY

    def find(self, name: str | None) -> Any:
        """A key by its name; asked for anew if it is old or unknown. Raises `Refused`."""
        with self._lock:
            now = monotonic()
            stale = now - self._read > FRESH or name not in self._found
            if stale and now - self._tried > (RETRY if self._remote else 0):
                self._tried = now
                self._found = {key.key_id: key for key in self._fetched()}
                self._read = now
            if name is None and len(self._found) == 1:
                return next(iter(self._found.values()))
            if name is None or name not in self._found:
                raise RequestRefused("unauthenticated", "the token is signed with an unknown key")
            return self._found[name]

    @property
    def _remote(self) -> bool:
        return self._place.startswith(("https://", "http://"))

    def _fetched(self) -> Sequence[Any]:
        """The keys that sign; those of other uses and kinds are left out by the library."""
        try:
            if self._remote:
                with urlopen(self._place, timeout=5) as answer:
                    data = answer.read(MAX_KEYS_BYTES)
            else:
                data = (self._folder / self._place).read_bytes()
            return jwt.PyJWKSet.from_dict(json.loads(data)).keys
        except (OSError, ValueError, AttributeError, TypeError, jwt.PyJWTError) as error:
            said = f"the keys of the issuer cannot be read from `{self._place}`: {error}"
            raise RequestRefused("access-unreadable", said) from error


@dataclass(frozen=True, slots=True)
class Issuer:
    """Somebody whose tokens are believed, for one audience.

    The claim `name` says for whom a token speaks: with `subjects` those whom these map to people,
    and nobody else; without, the person of that name.
    """

    issuer: str
    audience: str
    keys: IssuerKeys
    name: str = "sub"
    subjects: Mapping[str, str] | None = None

    def verify_person(self, token: str) -> str:
        """The person whom a token speaks for. Raises `Refused`."""
        header = jwt.get_unverified_header(token)
        algorithm, number = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise RequestRefused("unauthenticated", "the token is not signed with a private key")
        key = self.keys.find(number if isinstance(number, str) else None)
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": _NEEDED},
            )
        except (jwt.PyJWTError, TypeError, ValueError, AttributeError) as error:
            raise RequestRefused("unauthenticated", f"the token is not good: {error}") from None
        said = claims.get(self.name)
        if not isinstance(said, str):
            raise RequestRefused("unauthenticated", f"the token does not say its `{self.name}`")
        person = said if self.subjects is None else self.subjects.get(said)
        if person is None:
            raise RequestRefused(
                "unauthenticated", f"the `{self.name}` of the token is none of `subjects`"
            )
        return person


def find_issuer(token: str, issuers: Sequence[Issuer]) -> Issuer:
    """Who says to have signed a token; nothing of it is believed yet. Raises `Refused`."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise RequestRefused("unauthenticated", "the token cannot be read") from None
    for issuer in issuers:
        if issuer.issuer == claims.get("iss"):
            return issuer
    raise RequestRefused("unauthenticated", "the token is signed by nobody known here")
