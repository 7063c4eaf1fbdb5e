"""The access file → who may do what, with every mistake located; read anew whenever it changes.

A file with a mistake lets nobody in until it is mended: to go on with what it said before would
keep those in who were meant to be shut out.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from dpolicy.errors import PolicyRejected, Refused
from dpolicy.language.diagnostics import Findings
from dpolicy.language.parser import read_source
from dpolicy.language.release import Day
from dpolicy.language.shape import (
    INVALID,
    Choice,
    Field,
    Flag,
    ListOf,
    MapOf,
    Name,
    Record,
    Shape,
    Text,
    WordOr,
    wrong_type,
)
from dpolicy.language.source import Node, Report, Scalar, Source, read_nodes
from dpolicy.predicates.expression import size_mistake
from dpolicy.service.access import Access, Approval, Token
from dpolicy.service.issuer import Issuer, Keys
from dpolicy.service.principal import Principal, Role

_HASH = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger("dpolicy")

#: A file that changes under every one of so many reads cannot be read now.
MOST_READS = 10


@dataclass(frozen=True, slots=True)
class _Hash:
    """The SHA-256 of a token, in hexadecimal."""

    title: str = "the SHA-256 of a token, as `dpolicy token` prints it"

    def read(self, node: Node, report: Report) -> Any:
        if isinstance(node, Scalar) and _HASH.fullmatch(node.text):
            return node.word
        return wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_HASH.pattern}$"}


@dataclass(frozen=True, slots=True)
class _When:
    """A predicate in CEL, looked up in the policy in force whenever a release is asked for."""

    title: str = "a predicate in CEL"

    def read(self, node: Node, report: Report) -> Any:
        text = Text(self.title).read(node, report)
        if text is not INVALID and (mistake := size_mistake(text)) is not None:
            report("P030", mistake.message, node.span, None)
            return INVALID
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


_LABELS = MapOf(ListOf(Name("a value of a label"), least=1), "a map of labels to values")
_TOKEN = Record(
    "a token",
    {
        "sha256": Field(_Hash(), required=True),
        "expires": Field(Day(), "the first day on which it is no good", required=True),
    },
    lambda v, _: (v["sha256"], v["expires"]),
)
_PERSON = Record(
    "a person",
    {
        "roles": Field(ListOf(Choice(tuple(Role), "a role"), least=1), required=True),
        "grants": Field(_LABELS, "restricted values that may be claimed", default={}),
        "tokens": Field(ListOf(_TOKEN), default=()),
    },
    lambda values, _: values,
)
_ISSUER = Record(
    "an issuer",
    {
        "issuer": Field(Text(), "as its tokens say it", required=True),
        "audience": Field(Text(), "for whom its tokens must be meant", required=True),
        "keys": Field(Text(), "a JWKS file beside this one, or an https address", required=True),
        "name": Field(Text(), "the claim that says who it is; sub if left out", default="sub"),
        "subjects": Field(MapOf(Name("a person"), key=Text()), "claim → person, and nobody else"),
    },
    lambda values, _: values,
)
_APPROVAL = Record(
    "`approval`",
    {
        "when": Field(_When(), "releases that need a second person"),
        "void": Field(Flag(), default=True),
        "policy": Field(Flag(), "all that does not only tighten", default=True),
    },
    lambda v, _: Approval(None if v["when"] is None else str(v["when"]), v["void"], v["policy"]),
)
ACCESS: Shape = Record(
    "an access file",
    {
        "access": Field(WordOr({"1": 1}, Choice(("1",), "a version of this file")), required=True),
        "people": Field(MapOf(_PERSON, "a map of people"), required=True),
        "issuers": Field(ListOf(_ISSUER, "a list of issuers"), default=()),
        "restricted": Field(_LABELS, "values that need a grant", default={}),
        "approval": Field(_APPROVAL, default=Approval()),
    },
    lambda values, _: values,
)


def load_access(path: Path) -> Access:
    """The access that a file grants. Raises `PolicyRejected` with every mistake in it, and
    `OSError` if it cannot be read.
    """
    found = Findings()
    node = read_nodes(_steady(path), found)
    values: Any = None if node is None else ACCESS.read(node, found)
    if values is None or values is INVALID or found.errors:
        raise PolicyRejected(found.all)
    tokens = _tokens(values["people"], found)
    issuers = tuple(
        _issuer(said, values["people"], path.parent, found) for said in values["issuers"]
    )
    if found.errors:
        raise PolicyRejected(found.all)
    people = {
        str(name): Principal(
            str(name), frozenset(map(Role, said["roles"])), _label_values(said["grants"])
        )
        for name, said in values["people"].items()
    }
    return Access(people, tokens, issuers, _label_values(values["restricted"]), values["approval"])


def _steady(path: Path) -> Source:
    """The text of a file that was the same before and after: half a text can be a good one, too."""
    for _ in range(MOST_READS):
        before = _version(path)
        source = read_source(path)
        if before == _version(path):
            return source
    raise OSError(f"`{path}` changes while it is read")


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _tokens(people: Any, found: Findings) -> dict[str, Token]:
    tokens: dict[str, Token] = {}
    for name, said in people.items():
        for digest, day in said["tokens"]:
            if digest in tokens:
                found("P010", "this token is listed twice", digest.span)
            tokens[str(digest)] = Token(str(name), _start_of(day))
    return tokens


def _issuer(said: Any, people: Any, folder: Path, found: Findings) -> Issuer:
    listed = said["subjects"]
    for person in (listed or {}).values():
        if person not in people:
            found("P012", f"`{person}` is none of the people", person.span)
    keys = said["keys"]
    if keys.startswith("http://") and urlsplit(keys).hostname not in ("127.0.0.1", "localhost"):
        found("P012", "keys must come by https, or anybody on the way can put in theirs", keys.span)
    subjects = None if listed is None else {str(s): str(person) for s, person in listed.items()}
    claim, texts = str(said["name"]), (str(said["issuer"]), str(said["audience"]))
    return Issuer(*texts, Keys(str(keys), folder), claim, subjects)


def _label_values(said: Any) -> dict[str, frozenset[str]]:
    return {str(label): frozenset(map(str, values)) for label, values in said.items()}


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class AccessFile:
    """What an access file says now. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._seen = _version(path)
        self._access: Access | None = load_access(path)

    def __call__(self) -> Access:
        """The access of the newest text. Raises `Refused` while that cannot be read."""
        with self._lock:
            version = _version(self._path)
            if version != self._seen:
                self._seen, self._access = version, self._reread()
            if self._access is None:
                raise Refused("access-unreadable", "the access file of the server has mistakes")
            return self._access

    def _reread(self) -> Access | None:
        try:
            access = load_access(self._path)
        except (PolicyRejected, OSError) as error:
            _log.error("nobody is let in until the access file is mended:\n%s", error)
            return None
        _log.warning("the access file was read anew")
        return access
