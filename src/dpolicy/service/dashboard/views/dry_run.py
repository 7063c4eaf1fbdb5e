"""Dry runs: evaluate a release, or select among the candidates of a round, without charging."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import yaml

from dpolicy.allocation.batch_file import check_unique_ids, parse_batch
from dpolicy.allocation.round import allocate
from dpolicy.allocation.round_result import AllocationResult
from dpolicy.errors import (
    DPolicyError,
    InvalidValue,
    InvariantBroken,
    LedgerDamaged,
    LedgerUnavailable,
    OperationRejected,
    PolicyRejected,
    ReleaseRejected,
    RequestRefused,
)
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.edits import with_more_noise, without_attribute
from dpolicy.releases.python.python_values import to_plain_body
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_from_node
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, NumberShape
from dpolicy.text.yaml_reader import MAX_DIGITS, MAX_EXPONENT, Source, read_nodes

#: Largest number of candidates that the rounds page accepts, so that it responds quickly.
MAX_PAGE_CANDIDATES = 200


@dataclass(frozen=True, slots=True)
class ReleaseDryRun:
    """Decision that a release would get, or all problems of its text."""

    text: str
    problems: tuple[str, ...] = ()
    decision: Decision | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "problems": list(self.problems),
            "decision": None if self.decision is None else self.decision.as_json(),
        }


@dataclass(frozen=True, slots=True)
class RoundDryRun:
    """Result of an allocation round without charges, or all problems of its text."""

    text: str
    strategy: str
    problems: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    result: AllocationResult | None = None

    @property
    def utilities(self) -> Mapping[str, float]:
        """Return the utility of each candidate; 1 if the candidate has none."""
        return {r.id: 1.0 if r.utility is None else float(r.utility) for r in self.releases}

    @property
    def authors(self) -> Mapping[str, str]:
        """Return the author of each candidate."""
        return {r.id: r.by for r in self.releases}

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "strategy": self.strategy,
            "problems": list(self.problems),
            "utilities": dict(self.utilities),
            "round": self.result.as_json() if self.result else None,
        }


def dry_run_release(text: str, check: Callable[[Release], Decision]) -> ReleaseDryRun:
    """Parse a release and evaluate it with `check`; errors of the text become problems."""
    diagnostics = DiagnosticCollector()
    try:
        node = read_nodes(Source("release", text), diagnostics.report)
        release = None if node is None else release_from_node(node, diagnostics.report)
        if release is None or diagnostics.errors:
            raise PolicyRejected(diagnostics.sorted_diagnostics)
        return ReleaseDryRun(text, decision=check(release))
    except DPolicyError as error:
        return ReleaseDryRun(text, _problems(error))


def dry_run_round(decision_point: DecisionPoint, text: str, strategy: str) -> RoundDryRun:
    """Parse the candidates and select among them with a strategy; errors become problems."""
    diagnostics = DiagnosticCollector()
    try:
        entries = list(parse_batch(Source("candidates", text), diagnostics))
        if diagnostics.errors:
            raise PolicyRejected(diagnostics.sorted_diagnostics)
        releases = tuple(entry.release for entry in entries)
        if len(releases) > MAX_PAGE_CANDIDATES:
            raise OperationRejected(
                f"this page accepts at most {MAX_PAGE_CANDIDATES} candidates, not {len(releases)}; "
                "use `dpolicy allocate`"
            )
        check_unique_ids(releases)
        result = allocate(decision_point, releases, strategy, dry_run=True)
        return RoundDryRun(text, strategy, (), releases, result)
    except DPolicyError as error:
        return RoundDryRun(text, strategy, _problems(error))


def _problems(error: DPolicyError) -> tuple[str, ...]:
    """Return the problems that the user can correct; raise errors of the server and the ledger."""
    match error:
        case InvariantBroken() | LedgerDamaged() | LedgerUnavailable():
            raise error
        case PolicyRejected():
            return tuple(str(diagnostic) for diagnostic in error.diagnostics)
        case ReleaseRejected():
            return tuple(str(problem) for problem in error.problems)
        case InvalidValue():
            return (error.message,)
    return (str(error),)


def apply_counter_offer(body: Body, offer: Mapping[str, str]) -> Body:
    """Return the release with more noise (`factor`) or without an `attribute`."""
    if "factor" in offer:
        return with_more_noise(body, _parse_factor(offer["factor"])) or body
    if "attribute" in offer:
        return without_attribute(body, offer["attribute"])
    return body


def _parse_factor(text: str) -> Fraction:
    """Parse a noise factor within the limits of numbers in files; larger ones cost too much time.

    Raise `RequestRefused` if it is not a positive number within these limits.
    """
    diagnostics = DiagnosticCollector()
    node = read_nodes(Source("factor", text), diagnostics.report)
    factor: Any = INVALID if node is None else _FACTOR.read(node, diagnostics.report)
    if factor is INVALID or diagnostics.errors:
        limits = f"with at most {MAX_DIGITS} digits and an exponent of at most {MAX_EXPONENT}"
        raise RequestRefused("bad-request", f"`factor` must be {_FACTOR.title}, {limits}")
    return Fraction(factor)


_FACTOR = NumberShape("a number above 0", above=Fraction(0))


def release_to_yaml(body: Body) -> str:
    """Return the release as YAML, with keys in the usual order."""
    plain = json.loads(encode_canonical(to_plain_body(body)))
    plain["mechanisms"] = [_order_keys(fields, _MECHANISM_KEYS) for fields in plain["mechanisms"]]
    ordered = _order_keys(plain, ("release", "by", "utility", "mechanisms"))
    return str(
        yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, default_flow_style=None)
    )


#: First keys of a mechanism in YAML; all other keys follow.
_MECHANISM_KEYS = ("name", "mechanism", "unit", "additive", "attributes", "labels", "where", "time")


def _order_keys(fields: dict[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    return {**{key: fields[key] for key in first if key in fields}, **fields}
