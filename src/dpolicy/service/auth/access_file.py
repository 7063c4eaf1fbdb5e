"""Access file: people, roles, tokens, issuers and approval rules. It is reloaded when it changes.

While the file has an error, the server rejects every request. If it kept the previous rules, people
who were removed from the file would keep their access.
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
    IdentityShape,
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

#: Number of times that a file is read if it changes during each read.
MAX_READ_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class _HashShape:
    """Shape of the SHA-256 hash of a token in hexadecimal."""

    title: str = "the SHA-256 of a token, as `dpolicy token` prints it"

    def read(self, node: TextNode, report: Report) -> Any:
        if isinstance(node, ScalarNode) and _HASH.fullmatch(node.text):
            return node.located_text
        return report_wrong_type(node, self.title, report)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_HASH.pattern}$"}


@dataclass(frozen=True, slots=True)
class _PredicateShape:
    """Shape of a predicate in CEL. It is type-checked against the active policy at each request."""

    title: str = "a predicate in CEL"

    def read(self, node: TextNode, report: Report) -> Any:
        text = TextShape(self.title).read(node, report)
        problem = None if text is INVALID else size_problem(text)
        if problem is not None:
            report("P030", problem.message, node.span, None)
            return INVALID
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


_LABELS = MapShape(ListShape(NameShape("a value of a label"), least=1), "a map of labels to values")
_TOKEN = RecordShape(
    "a token",
    {
        "sha256": RecordField(_HashShape(), required=True),
        "expires": RecordField(
            DateShape(), "first day on which the token is invalid", required=True
        ),
    },
    lambda values, _: (values["sha256"], values["expires"]),
)
_PERSON = RecordShape(
    "a person",
    {
        "roles": RecordField(ListShape(ChoiceShape(tuple(Role), "a role"), least=1), required=True),
        "grants": RecordField(
            _LABELS, "restricted label values that the person may use", default={}
        ),
        "tokens": RecordField(ListShape(_TOKEN), default=()),
    },
    lambda values, _: values,
)
_ISSUER = RecordShape(
    "an issuer",
    {
        "issuer": RecordField(TextShape(), "value of the claim `iss` in its tokens", required=True),
        "audience": RecordField(
            TextShape(), "value of the claim `aud` in its tokens", required=True
        ),
        "keys": RecordField(
            TextShape(), "JWKS file beside this file, or an https URL", required=True
        ),
        "name": RecordField(
            TextShape(), "claim that identifies the person; default sub", default="sub"
        ),
        "subjects": RecordField(
            MapShape(IdentityShape("a person"), key=TextShape()),
            "claim → person; other claims are rejected",
        ),
    },
    lambda values, _: values,
)
_APPROVAL = RecordShape(
    "`approval`",
    {
        "when": RecordField(_PredicateShape(), "releases that need approval"),
        "void": RecordField(BooleanShape(), default=True),
        "policy": RecordField(
            BooleanShape(), "policies need approval unless they only tighten", default=True
        ),
    },
    lambda values, _: ApprovalRules(
        None if values["when"] is None else str(values["when"]), values["void"], values["policy"]
    ),
)
ACCESS: Shape = RecordShape(
    "an access file",
    {
        "access": RecordField(
            KeywordOrShape({"1": 1}, ChoiceShape(("1",), "a version of this file")), required=True
        ),
        "people": RecordField(
            MapShape(_PERSON, "a map of people", key=IdentityShape()), required=True
        ),
        "issuers": RecordField(ListShape(_ISSUER, "a list of issuers"), default=()),
        "restricted": RecordField(_LABELS, "label values that need a grant", default={}),
        "approval": RecordField(_APPROVAL, default=ApprovalRules()),
    },
    lambda values, _: values,
)


def load_access(path: Path) -> AccessRules:
    """Load the access rules of a file. Raise `PolicyRejected` with all diagnostics, and `OSError`
    if the file cannot be read.
    """
    diagnostics = DiagnosticCollector()
    node = read_nodes(_read_unchanged(path), diagnostics.report)
    values: Any = None if node is None else ACCESS.read(node, diagnostics.report)
    if values is None or values is INVALID or diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    tokens = _parse_tokens(values["people"], diagnostics)
    issuers = tuple(
        _parse_issuer(fields, values["people"], path.parent, diagnostics)
        for fields in values["issuers"]
    )
    if diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    people = {
        str(name): Principal(
            str(name), frozenset(map(Role, fields["roles"])), _label_values(fields["grants"])
        )
        for name, fields in values["people"].items()
    }
    return AccessRules(
        people, tokens, issuers, _label_values(values["restricted"]), values["approval"]
    )


def _read_unchanged(path: Path) -> Source:
    """Read a file that does not change during the read; a half-written file can be valid YAML.
    Raise `OSError` if the file changes during every attempt.
    """
    for _ in range(MAX_READ_ATTEMPTS):
        before = _file_version(path)
        source = read_source(path)
        if before == _file_version(path):
            return source
    raise OSError(f"`{path}` changed during each of {MAX_READ_ATTEMPTS} reads")


def _file_version(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _parse_tokens(people: Any, diagnostics: DiagnosticCollector) -> dict[str, AccessToken]:
    tokens: dict[str, AccessToken] = {}
    for name, fields in people.items():
        for digest, expires in fields["tokens"]:
            if digest in tokens:
                diagnostics.report("P010", "this token is listed twice", digest.span)
            tokens[str(digest)] = AccessToken(str(name), _start_of_day(expires))
    return tokens


def _parse_issuer(
    fields: Any, people: Any, folder: Path, diagnostics: DiagnosticCollector
) -> Issuer:
    for person in (fields["subjects"] or {}).values():
        if person not in people:
            diagnostics.report("P012", f"`{person}` is not under `people`", person.span)
    keys = fields["keys"]
    if keys.startswith("http://") and urlsplit(keys).hostname not in ("127.0.0.1", "localhost"):
        message = "the URL of the keys must use https; over http an attacker can replace the keys"
        diagnostics.report("P012", message, keys.span)
    subjects = fields["subjects"]
    if subjects is not None:
        subjects = {str(subject): str(person) for subject, person in subjects.items()}
    return Issuer(
        issuer=str(fields["issuer"]),
        audience=str(fields["audience"]),
        keys=IssuerKeys(str(keys), folder),
        name=str(fields["name"]),
        subjects=subjects,
    )


def _label_values(fields: Any) -> dict[str, frozenset[str]]:
    return {str(label): frozenset(map(str, values)) for label, values in fields.items()}


def _start_of_day(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class AccessFile:
    """Access rules of a file, reloaded when the file changes. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._loaded_version = _file_version(path)
        self._access: AccessRules | None = load_access(path)

    def __call__(self) -> AccessRules:
        """Return the current access rules. Raise `RequestRefused` while the file has an error."""
        with self._lock:
            version = _file_version(self._path)
            if version != self._loaded_version:
                self._loaded_version, self._access = version, self._reload()
            if self._access is None:
                raise RequestRefused(
                    "access-unreadable", "the access file of the server has errors"
                )
            return self._access

    def _reload(self) -> AccessRules | None:
        try:
            access = load_access(self._path)
        except (PolicyRejected, OSError) as error:
            _log.error(
                "the access file has errors; every request is rejected until it is fixed:\n%s",
                error,
            )
            return None
        _log.warning("the access file was reloaded")
        return access
