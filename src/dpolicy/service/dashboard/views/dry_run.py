"""A text with a release, or with several that compete → what would become of them, uncharged."""

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
from dpolicy.releases.body import Body, to_plain_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.edits import with_more_noise, without_attribute
from dpolicy.releases.release import Release
from dpolicy.releases.release_format import release_from_node
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, NumberShape
from dpolicy.text.yaml_reader import MAX_DIGITS, MAX_EXPONENT, Source, read_nodes

#: Others wait while a round is decided, so that a page takes only what is quick.
MAX_PAGE_CANDIDATES = 200


@dataclass(frozen=True, slots=True)
class ReleaseDryRun:
    """What would be answered, or all that is wrong with the text."""

    text: str
    problems: tuple[str, ...] = ()
    decision: Decision | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "problems": list(self.problems),
            "decision": self.decision.as_json() if self.decision else None,
        }


@dataclass(frozen=True, slots=True)
class RoundDryRun:
    """Who would win and why others would lose, or all that is wrong with the text."""

    text: str
    strategy: str
    problems: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    shared: AllocationResult | None = None

    @property
    def utilities(self) -> Mapping[str, float]:
        """What each candidate is worth."""
        return {r.id: 1.0 if r.utility is None else float(r.utility) for r in self.releases}

    @property
    def teams(self) -> Mapping[str, str]:
        """Who asks for each candidate."""
        return {r.id: r.by for r in self.releases}

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "strategy": self.strategy,
            "problems": list(self.problems),
            "utilities": dict(self.utilities),
            "round": self.shared.as_json() if self.shared else None,
        }


def dry_run_release(text: str, check: Callable[[Release], Decision]) -> ReleaseDryRun:
    """What would be answered to a release now."""
    found = DiagnosticCollector()
    try:
        node = read_nodes(Source("release", text), found.report)
        release = None if node is None else release_from_node(node, found.report)
        if release is None or found.errors:
            raise PolicyRejected(found.sorted_diagnostics)
        return ReleaseDryRun(text, decision=check(release))
    except DPolicyError as error:
        return ReleaseDryRun(text, _problems(error))


def dry_run_round(point: DecisionPoint, text: str, strategy: str) -> RoundDryRun:
    """What a strategy would choose among the releases of a text."""
    found = DiagnosticCollector()
    try:
        entries = list(parse_batch(Source("candidates", text), found))
        if found.errors:
            raise PolicyRejected(found.sorted_diagnostics)
        releases = tuple(entry.release for entry in entries)
        if len(releases) > MAX_PAGE_CANDIDATES:
            said = f"a page takes at most {MAX_PAGE_CANDIDATES} candidates"
            raise OperationRejected(
                f"{said}, and there are {len(releases)}: use `dpolicy allocate`"
            )
        check_unique_ids(releases)
        shared = allocate(point, releases, strategy, dry_run=True)
        return RoundDryRun(text, strategy, (), releases, shared)
    except DPolicyError as error:
        return RoundDryRun(text, strategy, _problems(error))


def _problems(error: DPolicyError) -> tuple[str, ...]:
    """What is wrong with a text; what is wrong with the server is raised on."""
    match error:
        case InvariantBroken() | LedgerDamaged() | LedgerUnavailable():
            raise error
        case PolicyRejected():
            return tuple(str(found) for found in error.diagnostics)
        case ReleaseRejected():
            return tuple(str(problem) for problem in error.problems)
        case InvalidValue():
            return (error.message,)
    return (str(error),)


def apply_counter_offer(body: Body, offer: Mapping[str, str]) -> Body:
    """A release with a counter-offer taken: more noise, or an attribute left out."""
    if "factor" in offer:
        return with_more_noise(body, _factor(offer["factor"])) or body
    if "attribute" in offer:
        return without_attribute(body, offer["attribute"])
    return body


def _factor(text: str) -> Fraction:
    """A factor of noise, with the limits of any number in a text: larger ones take for ever."""
    found = DiagnosticCollector()
    node = read_nodes(Source("factor", text), found.report)
    factor: Any = INVALID if node is None else _FACTOR.read(node, found.report)
    if factor is INVALID or found.errors:
        limits = f"with at most {MAX_DIGITS} digits and an exponent of at most {MAX_EXPONENT}"
        raise RequestRefused("bad-request", f"`factor` must be {_FACTOR.title}, {limits}")
    return Fraction(factor)


_FACTOR = NumberShape("a number above 0", above=Fraction(0))


def release_to_yaml(body: Body) -> str:
    """A release as people write it."""
    plain = json.loads(encode_canonical(to_plain_body(body)))
    plain["mechanisms"] = [_ordered(said, _MECHANISM) for said in plain["mechanisms"]]
    ordered = _ordered(plain, ("release", "by", "utility", "mechanisms"))
    return str(
        yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, default_flow_style=None)
    )


#: The order in which people say what a mechanism is.
_MECHANISM = ("name", "mechanism", "unit", "additive", "attributes", "labels", "where", "time")


def _ordered(fields: dict[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    return {**{key: fields[key] for key in first if key in fields}, **fields}
