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

from dpolicy.errors import PolicyRejected, RequestRefused
from dpolicy.predicates.expression import size_problem
from dpolicy.releases.release_format import DateShape
from dpolicy.service.auth.access_rules import AccessRules, AccessToken, ApprovalRules
from dpolicy.service.auth.oidc import Issuer, IssuerKeys
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import (
    INVALID,
    BooleanShape,
    ChoiceShape,
    KeywordOrShape,
    ListShape,
    MapShape,
    NameShape,
    RecordField,
    RecordShape,
    Shape,
    TextShape,
    report_wrong_type,
)
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import Report, ScalarNode, Source, TextNode, read_nodes

_HASH = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger("dpolicy")

#: A file that changes under every one of so many reads cannot be read now.
MAX_READ_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class _Hash:
    """The SHA-256 of a token, in hexadecimal."""

    title: str = "the SHA-256 of a token, as `dpolicy token` prints it"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and _HASH.fullmatch(node.text):
            return node.located_text
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_HASH.pattern}$"}


@dataclass(frozen=True, slots=True)
class _When:
    """A predicate in CEL, looked up in the policy in force whenever a release is asked for."""

    title: str = "a predicate in CEL"

    def read(self, node: TextNode, report: Report) -> Any:
        text = TextShape(self.title).read(node, report)
        if text is not INVALID and (mistake := size_problem(text)) is not None:
            report("P030", mistake.message, node.span, None)
            return INVALID
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


_LABELS = MapShape(ListShape(NameShape("a value of a label"), least=1), "a map of labels to values")
_TOKEN = RecordShape(
    "a token",
    {
        "sha256": RecordField(_Hash(), required=True),
        "expires": RecordField(DateShape(), "the first day on which it is no good", required=True),
    },
    lambda v, _: (v["sha256"], v["expires"]),
)
_PERSON = RecordShape(
    "a person",
    {
        "roles": RecordField(ListShape(ChoiceShape(tuple(Role), "a role"), least=1), required=True),
        "grants": RecordField(_LABELS, "restricted values that may be claimed", default={}),
        "tokens": RecordField(ListShape(_TOKEN), default=()),
    },
    lambda values, _: values,
)
_ISSUER = RecordShape(
    "an issuer",
    {
        "issuer": RecordField(TextShape(), "as its tokens say it", required=True),
        "audience": RecordField(TextShape(), "for whom its tokens must be meant", required=True),
        "keys": RecordField(
            TextShape(), "a JWKS file beside this one, or an https address", required=True
        ),
        "name": RecordField(
            TextShape(), "the claim that says who it is; sub if left out", default="sub"
        ),
        "subjects": RecordField(
            MapShape(NameShape("a person"), key=TextShape()), "claim → person, and nobody else"
        ),
    },
    lambda values, _: values,
)
_APPROVAL = RecordShape(
    "`approval`",
    {
        "when": RecordField(_When(), "releases that need a second person"),
        "void": RecordField(BooleanShape(), default=True),
        "policy": RecordField(BooleanShape(), "all that does not only tighten", default=True),
    },
    lambda v, _: ApprovalRules(
        None if v["when"] is None else str(v["when"]), v["void"], v["policy"]
    ),
)
ACCESS: Shape = RecordShape(
    "an access file",
    {
        "access": RecordField(
            KeywordOrShape({"1": 1}, ChoiceShape(("1",), "a version of this file")), required=True
        ),
        "people": RecordField(MapShape(_PERSON, "a map of people"), required=True),
        "issuers": RecordField(ListShape(_ISSUER, "a list of issuers"), default=()),
        "restricted": RecordField(_LABELS, "values that need a grant", default={}),
        "approval": RecordField(_APPROVAL, default=ApprovalRules()),
    },
    lambda values, _: values,
)


def load_access(path: Path) -> AccessRules:
    """The access that a file grants. Raises `PolicyRejected` with every mistake in it, and
    `OSError` if it cannot be read.
    """
    found = DiagnosticCollector()
    node = read_nodes(_steady(path), found.report)
    values: Any = None if node is None else ACCESS.read(node, found.report)
    if values is None or values is INVALID or found.errors:
        raise PolicyRejected(found.sorted_diagnostics)
    tokens = _tokens(values["people"], found)
    issuers = tuple(
        _issuer(said, values["people"], path.parent, found) for said in values["issuers"]
    )
    if found.errors:
        raise PolicyRejected(found.sorted_diagnostics)
    people = {
        str(name): Principal(
            str(name), frozenset(map(Role, said["roles"])), _label_values(said["grants"])
        )
        for name, said in values["people"].items()
    }
    return AccessRules(
        people, tokens, issuers, _label_values(values["restricted"]), values["approval"]
    )


def _steady(path: Path) -> Source:
    """The text of a file that was the same before and after: half a text can be a good one, too."""
    for _ in range(MAX_READ_ATTEMPTS):
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


def _tokens(people: Any, diagnostics: DiagnosticCollector) -> dict[str, AccessToken]:
    tokens: dict[str, AccessToken] = {}
    for name, said in people.items():
        for digest, day in said["tokens"]:
            if digest in tokens:
                diagnostics.report("P010", "this token is listed twice", digest.span)
            tokens[str(digest)] = AccessToken(str(name), _start_of(day))
    return tokens


def _issuer(fields: Any, people: Any, folder: Path, diagnostics: DiagnosticCollector) -> Issuer:
    listed = fields["subjects"]
    for person in (listed or {}).values():
        if person not in people:
            diagnostics.report("P012", f"`{person}` is none of the people", person.span)
    keys = fields["keys"]
    if keys.startswith("http://") and urlsplit(keys).hostname not in ("127.0.0.1", "localhost"):
        diagnostics.report(
            "P012", "keys must come by https, or anybody on the way can put in theirs", keys.span
        )
    subjects = None if listed is None else {str(s): str(person) for s, person in listed.items()}
    claim, texts = str(fields["name"]), (str(fields["issuer"]), str(fields["audience"]))
    return Issuer(*texts, IssuerKeys(str(keys), folder), claim, subjects)


def _label_values(fields: Any) -> dict[str, frozenset[str]]:
    return {str(label): frozenset(map(str, values)) for label, values in fields.items()}


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class AccessFile:
    """What an access file says now. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._seen = _version(path)
        self._access: AccessRules | None = load_access(path)

    def __call__(self) -> AccessRules:
        """The access of the newest text. Raises `Refused` while that cannot be read."""
        with self._lock:
            version = _version(self._path)
            if version != self._seen:
                self._seen, self._access = version, self._reread()
            if self._access is None:
                raise RequestRefused(
                    "access-unreadable", "the access file of the server has mistakes"
                )
            return self._access

    def _reread(self) -> AccessRules | None:
        try:
            access = load_access(self._path)
        except (PolicyRejected, OSError) as error:
            _log.error("nobody is let in until the access file is mended:\n%s", error)
            return None
        _log.warning("the access file was read anew")
        return access
