"""Files → one policy set: each file is read by its shape, then the sections are put together."""

from __future__ import annotations

from collections.abc import Sequence
from errno import ENOENT
from pathlib import Path
from typing import Any

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

#: What only a policy says: a file with one of these is read as one, or reported.
POLICY_KEYS = {"dpolicy", "policies", "each-release", "accounting", "units", "schema"}

#: What a policy directory holds; anything else beside it is left alone.
SUFFIXES = (".yaml", ".yml", ".json")


def policy_files(path: Path) -> list[Path]:
    """The files of a policy set: the file itself, or those of a directory, cases among them."""
    if not path.is_dir():
        return [path]
    files = sorted(
        file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file()
    )
    if not files:
        raise FileNotFoundError(ENOENT, "there is no policy file here", str(path))
    return files


def read_sources(path: Path) -> list[Source]:
    """The texts of a policy set."""
    return [read_source(file) for file in policy_files(path)]


def parse_policies(sources: Sequence[Source], diagnostics: DiagnosticCollector) -> PolicySet | None:
    """All that the files say, or None where nothing could be read; mistakes go to `found`."""
    files = []
    for source in sources:
        node = read_nodes(source, diagnostics.report)
        if node is None or (len(sources) > 1 and _is_release(node)):
            continue  # what says nothing of a policy set may lie beside it
        files.append(_read_file(node, source, diagnostics))
    if not files:
        if not diagnostics.errors:
            diagnostics.report(
                "P008", "there is no policy here", Span(sources[0], 1, 1, 1, 2), None
            )
        return None
    return _policy_set([values for values in files if values is not INVALID], diagnostics)


def _is_release(node: TextNode) -> bool:
    """Whether a file beside the policies is a release or a case, and nothing else."""
    keys = {key.text for key, _ in node.entries} if isinstance(node, MapNode) else set()
    return not keys & POLICY_KEYS and bool(keys & {"release", "steps"})


def _read_file(node: TextNode, source: Source, diagnostics: DiagnosticCollector) -> Any:
    start = Span(source, 1, 1, 1, 2)
    if _is_release(node):
        diagnostics.report(
            "P008", "this is a release or a case, not a policy", start, "`dpolicy test` runs cases"
        )
        return INVALID
    if isinstance(node, MapNode) and node.get("dpolicy") is None:
        diagnostics.report(
            "P008", "a policy file needs `dpolicy: 1`", start, "write it as the first line"
        )
    if isinstance(node, ScalarNode) and node.kind == "null":
        diagnostics.report(
            "P008", "the file is empty", start, "`dpolicy init` writes a policy to start from"
        )
        return INVALID
    values = FILE.read(node, diagnostics.report)
    if values is INVALID or not isinstance(node, MapNode):
        return INVALID
    return {**values, "keys": {key.text: key.span for key, _ in node.entries}}


def _policy_set(files: list[dict[str, Any]], diagnostics: DiagnosticCollector) -> PolicySet:
    schemas = [file["schema"] or {} for file in files]
    levels = {
        key: _only(
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
        key: _merged([schema.get(key) or {} for schema in schemas], diagnostics)
        for key in ("categories", "attributes", "labels", "partitions")
    }
    units = _merged([file["units"] or {} for file in files], diagnostics)
    policies = tuple(policy for file in files for policy in file["policies"])
    each_release = tuple(policy for file in files for policy in file["each-release"])
    _report_twice(policies + each_release, diagnostics)
    return PolicySet(
        name=_only([(f["name"], f["keys"].get("name")) for f in files], "name", diagnostics),
        accounting=_accounting(files, policies, diagnostics),
        units=units or {LocatedText("user", _nowhere(files)): UnitStatement()},
        risk_levels=levels["risk-levels"] or DEFAULT_RISK_LEVELS,
        membership_levels=levels["membership-levels"] or DEFAULT_MEMBERSHIP_LEVELS,
        categories=merged["categories"],
        attributes=merged["attributes"],
        labels=merged["labels"],
        partitions=merged["partitions"],
        policies=policies,
        each_release=each_release,
    )


def _nowhere(files: list[dict[str, Any]]) -> Span:
    spans = [span for file in files for span in file["keys"].values()]
    return spans[0] if spans else Span(Source("policy", ""), 1, 1, 1, 2)


def _only(values: list[tuple[Any, Span | None]], key: str, diagnostics: DiagnosticCollector) -> Any:
    """The value that one file gives; a second file that gives it too is reported."""
    given = [(value, span) for value, span in values if value is not None]
    for _, span in given[1:]:
        if span is not None:
            diagnostics.report("P010", f"`{key}` is defined in two files", span, "keep one of them")
    return given[0][0] if given else None


def _merged(
    maps: list[dict[LocatedText, Any]], diagnostics: DiagnosticCollector
) -> dict[LocatedText, Any]:
    """One map out of several; a name that two of them define is reported."""
    merged: dict[LocatedText, Any] = {}
    places: dict[str, Span] = {}
    for entries in maps:
        for name, value in entries.items():
            if name in places:
                _twice(name, places[name], diagnostics)
                continue
            places[name] = name.span
            merged[name] = value
    return merged


def _report_twice(policies: tuple[Policy, ...], diagnostics: DiagnosticCollector) -> None:
    places: dict[str, Span] = {}
    for policy in policies:
        if policy.name in places:
            _twice(policy.name, places[policy.name], diagnostics)
        places.setdefault(policy.name, policy.name.span)


def _twice(name: LocatedText, first: Span, diagnostics: DiagnosticCollector) -> None:
    diagnostics.report(
        "P010", f"`{name}` is defined twice (first at {first})", name.span, "rename one of them"
    )


def _accounting(
    files: list[dict[str, Any]], policies: tuple[Policy, ...], diagnostics: DiagnosticCollector
) -> Accounting:
    given = _only(
        [(f["accounting"], f["keys"].get("accounting")) for f in files], "accounting", diagnostics
    )
    if given is None:
        return Accounting()
    profile = (
        read_profile(given["profile"], diagnostics)
        if given["profile"] is not None
        else Profile.CLASSIC
    )
    by_default = any(policy.profile is None for policy in base_policies(policies))
    if profile is Profile.STATIC and by_default:
        report_static_profile(given["profile"].span, diagnostics)
    return Accounting(
        delta=given["delta"],
        profile=profile,
        orders=DEFAULT_ORDERS if given["orders"] is None else given["orders"],
        relation=NeighbouringRelation(given["relation"] or NeighbouringRelation.ADD_REMOVE),
        require_additive=given["require"] == "additive",
        allow_uncovered=given["uncovered"] == "allow",
        max_rules=given["max-rules"] or DEFAULT_MAX_RULES,
        collapse=given["collapse"],
    )


def read_profile(name: LocatedText, diagnostics: DiagnosticCollector) -> Profile:
    """A profile by its name; an unknown one is reported and read as the default."""
    try:
        return Profile(name)
    except ValueError:
        diagnostics.report(
            "P044", f"there is no profile `{name}`", name.span, suggest(name, tuple(Profile))
        )
        return Profile.CLASSIC


def report_static_profile(span: Span, diagnostics: DiagnosticCollector) -> None:
    """The profile `static` where costs are chosen one after another."""
    shown = "the profile `static` holds only for each release by itself"
    help_ = "costs over many releases are chosen adaptively (theory 2.4): use `anchored`"
    diagnostics.report("P044", shown, span, help_)
