"""Parser: reads each file by the grammar and merges the sections into one policy set."""

from __future__ import annotations

from collections.abc import Sequence
from errno import ENOENT
from pathlib import Path
from typing import Any

from dpolicy.errors import FileMissing
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS, AccountingDefaults
from dpolicy.policy.accounting.tuned_accounting import tune_accounting
from dpolicy.policy.grammar import FILE
from dpolicy.policy.model import (
    DEFAULT_MAX_RULES,
    DEFAULT_MEMBERSHIP_LEVELS,
    DEFAULT_RISK_LEVELS,
    Accounting,
    Policy,
    PolicySet,
    UnitStatement,
    base_policies,
)
from dpolicy.privacy.thresholds import DEFAULT_ORDERS, Profile
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.did_you_mean import suggest
from dpolicy.text.shapes import INVALID
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import (
    LocatedText,
    MapNode,
    ScalarNode,
    Source,
    Span,
    TextNode,
    read_nodes,
)

#: Keys that only a policy file has. A file with one of them is parsed as a policy file.
POLICY_KEYS = {"dpolicy", "policies", "each-release", "accounting", "units", "schema"}

#: Suffixes of policy files; other files in a policy directory are ignored.
SUFFIXES = (".yaml", ".yml", ".json")

#: Ending of JSON Schemas, which editors keep beside policy files.
SCHEMA_ENDING = ".schema.json"


def policy_files(path: Path) -> list[Path]:
    """Return the file, or the policy and case files of a directory. Raise `FileMissing` if none."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if _is_policy_file(file))
    if not files:
        raise FileMissing(ENOENT, "no policy file in this directory", str(path))
    return files


def _is_policy_file(file: Path) -> bool:
    """Return whether a file of a policy directory belongs to the policy set."""
    is_schema = file.name.lower().endswith(SCHEMA_ENDING)
    return file.suffix.lower() in SUFFIXES and not is_schema and file.is_file()


def read_sources(path: Path) -> list[Source]:
    """Read the files of a policy set."""
    return [read_source(file) for file in policy_files(path)]


def parse_policies(
    sources: Sequence[Source],
    diagnostics: DiagnosticCollector,
    defaults: AccountingDefaults = NEWEST_DEFAULTS,
) -> PolicySet | None:
    """Parse sources into one policy set, or return None if no source is readable.

    Releases and cases beside policy files are skipped. `defaults` complete texts that state
    nothing else.
    """
    files = []
    for source in sources:
        node = read_nodes(source, diagnostics.report)
        if node is None or (len(sources) > 1 and _is_release_or_case(node)):
            continue
        files.append(_parse_file(node, source, diagnostics))
    if not files:
        if not diagnostics.errors:
            diagnostics.report(
                "P008", "none of the files is a policy", Span(sources[0], 1, 1, 1, 2), None
            )
        return None
    readable = [values for values in files if values is not INVALID]
    return _merge_files(readable, defaults, diagnostics)


def _is_release_or_case(node: TextNode) -> bool:
    keys = {key.text for key, _ in node.entries} if isinstance(node, MapNode) else set()
    return not keys & POLICY_KEYS and bool(keys & {"release", "steps"})


def _parse_file(node: TextNode, source: Source, diagnostics: DiagnosticCollector) -> Any:
    """Return the values of a file by key, with the spans of its keys under `keys`."""
    start = Span(source, 1, 1, 1, 2)
    if _is_release_or_case(node):
        diagnostics.report(
            "P008",
            "the file is a release or a case, not a policy",
            start,
            "run cases with `dpolicy test`",
        )
        return INVALID
    if isinstance(node, MapNode) and node.get("dpolicy") is None:
        diagnostics.report(
            "P008", "a policy file needs `dpolicy: 1`", start, "add it as the first line"
        )
    if isinstance(node, ScalarNode) and node.kind == "null":
        diagnostics.report(
            "P008", "the file is empty", start, "run `dpolicy init` to create a starter policy"
        )
        return INVALID
    values = FILE.read(node, diagnostics.report)
    if values is INVALID or not isinstance(node, MapNode):
        return INVALID
    return {**values, "keys": {key.text: key.span for key, _ in node.entries}}


def _merge_files(
    files: list[dict[str, Any]], defaults: AccountingDefaults, diagnostics: DiagnosticCollector
) -> PolicySet:
    schemas = [file["schema"] or {} for file in files]
    levels = {
        key: _single_value(
            [
                (s.get(key), f["keys"].get("schema"))
                for s, f in zip(schemas, files, strict=True)
                if s
            ],
            key,
            diagnostics,
        )
        for key in ("risk-levels", "membership-levels")
    }
    merged = {
        key: _merge_maps([schema.get(key) or {} for schema in schemas], diagnostics)
        for key in ("categories", "attributes", "labels", "partitions")
    }
    units = _merge_maps([file["units"] or {} for file in files], diagnostics)
    policies = tuple(policy for file in files for policy in file["policies"])
    each_release = tuple(policy for file in files for policy in file["each-release"])
    _report_duplicate_policies(policies + each_release, diagnostics)
    return PolicySet(
        name=_single_value(
            [(f["name"], f["keys"].get("name")) for f in files], "name", diagnostics
        ),
        accounting=_build_accounting(files, policies, defaults, diagnostics),
        units=units or {LocatedText("user", _any_span(files)): UnitStatement()},
        risk_levels=levels["risk-levels"] or DEFAULT_RISK_LEVELS,
        membership_levels=levels["membership-levels"] or DEFAULT_MEMBERSHIP_LEVELS,
        categories=merged["categories"],
        attributes=merged["attributes"],
        labels=merged["labels"],
        partitions=merged["partitions"],
        policies=policies,
        each_release=each_release,
    )


def _any_span(files: list[dict[str, Any]]) -> Span:
    """Return a span for a definition that is in no file."""
    spans = [span for file in files for span in file["keys"].values()]
    return spans[0] if spans else Span(Source("policy", ""), 1, 1, 1, 2)


def _single_value(
    values: list[tuple[Any, Span | None]], key: str, diagnostics: DiagnosticCollector
) -> Any:
    """Return the value of a key that only one file may define; report further definitions."""
    defined = [(value, span) for value, span in values if value is not None]
    for _, span in defined[1:]:
        if span is not None:
            diagnostics.report("P010", f"`{key}` is defined in two files", span, "keep one of them")
    return defined[0][0] if defined else None


def _merge_maps(
    maps: list[dict[LocatedText, Any]], diagnostics: DiagnosticCollector
) -> dict[LocatedText, Any]:
    """Merge maps; report a name that is defined twice, and keep its first definition."""
    merged: dict[LocatedText, Any] = {}
    spans: dict[str, Span] = {}
    for entries in maps:
        for name, value in entries.items():
            if name in spans:
                _report_duplicate(name, spans[name], diagnostics)
                continue
            spans[name] = name.span
            merged[name] = value
    return merged


def _report_duplicate_policies(
    policies: tuple[Policy, ...], diagnostics: DiagnosticCollector
) -> None:
    spans: dict[str, Span] = {}
    for policy in policies:
        if policy.name in spans:
            _report_duplicate(policy.name, spans[policy.name], diagnostics)
        spans.setdefault(policy.name, policy.name.span)


def _report_duplicate(name: LocatedText, first: Span, diagnostics: DiagnosticCollector) -> None:
    diagnostics.report(
        "P010", f"`{name}` is defined twice (first at {first})", name.span, "rename one of them"
    )


def _build_accounting(
    files: list[dict[str, Any]],
    policies: tuple[Policy, ...],
    defaults: AccountingDefaults,
    diagnostics: DiagnosticCollector,
) -> Accounting:
    fields = _single_value(
        [(f["accounting"], f["keys"].get("accounting")) for f in files], "accounting", diagnostics
    )
    if fields is None:
        return Accounting(defaults=defaults)
    profile, is_stated = Profile.CLASSIC, fields["profile"] is not None
    if is_stated:
        profile = read_profile(fields["profile"], diagnostics)
    is_kept = is_stated and profile is Profile.CLASSIC is not defaults.profile
    is_default = any(policy.profile is None for policy in base_policies(policies))
    if profile is Profile.STATIC and is_default:
        report_static_profile(fields["profile"].span, diagnostics)
    accounting = Accounting(
        delta=fields["delta"],
        profile=profile,
        orders=DEFAULT_ORDERS if fields["orders"] is None else fields["orders"],
        relation=NeighbouringRelation(fields["relation"] or NeighbouringRelation.ADD_REMOVE),
        require_additive=fields["require"] == "additive",
        allow_uncovered=fields["uncovered"] == "allow",
        max_rules=fields["max-rules"] or DEFAULT_MAX_RULES,
        collapse=fields["collapse"],
        leaks=fields["leaks"],
        keeps_classic=is_kept or None,
        tuned_for=fields["tuned-for"] and tuple(fields["tuned-for"]),
        defaults=defaults,
    )
    span = next(f["keys"]["accounting"] for f in files if f["accounting"] is not None)
    return tune_accounting(accounting, policies, span, diagnostics)


def read_profile(name: LocatedText, diagnostics: DiagnosticCollector) -> Profile:
    """Return a profile by name; report an unknown name and return the default."""
    try:
        return Profile(name)
    except ValueError:
        diagnostics.report(
            "P044", f"unknown profile `{name}`", name.span, suggest(name, tuple(Profile))
        )
        return Profile.CLASSIC


def report_static_profile(span: Span, diagnostics: DiagnosticCollector) -> None:
    """Report the profile `static` in a cumulative policy, where costs are chosen adaptively."""
    message = "the profile `static` is valid only for `each-release` policies"
    help_ = "use `anchored`: the costs of several releases are chosen adaptively (theory 2.4)"
    diagnostics.report("P044", message, span, help_)
