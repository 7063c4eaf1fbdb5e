"""The examples are valid, their cases pass, and their pages state correct numbers.

The tests derive the expected rules from the plain YAML of a policy set, not with the code under
test.
"""

from __future__ import annotations

import re
import runpy
from collections import Counter
from datetime import date
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.reference.conversions import renyi_to_epsilon_classic

from dpolicy.cases.case_file import load_case
from dpolicy.cases.runner import run_case
from dpolicy.cli.main import exit_code
from dpolicy.policy.parser import policy_files
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.conversion import zcdp_to_epsilon
from dpolicy.privacy.mechanisms.gaussian import Gaussian
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.rules.compiler import CompiledPolicy, load_policy

EXAMPLES = Path(__file__).parent.parent / "examples"
CASES = sorted(EXAMPLES.rglob("*_test.yaml"))
PAGES = sorted(EXAMPLES.rglob("README.md"))
RELEASES = sorted((EXAMPLES / "web-analytics" / "releases").glob("*.yaml"))

#: Every policy set with its number of rules and its number of kept rules.
POLICY_SETS = {
    "paper/cohere": (1, 1),
    "paper/context": (2, 2),
    "paper/figure": (22, 10),
    "paper/hasse": (7, 3),
    "paper/scope": (181, 32),
    "paper/time": (2, 2),
    "web-analytics": (130, 98),
    "census-2020": (11, 11),
    "governance": (3, 2),
    "wikimedia": (4, 4),
    "research-rounds": (4, 3),
    "contributions": (2, 2),
    "two-attacks": (2, 2),
    "hospital": (113, 70),
}


def load_sections(name: str) -> dict[str, Any]:
    """Return the sections of all files of a policy set as one dict."""
    merged: dict[str, Any] = {}
    for file in policy_files(EXAMPLES / name):
        merged |= yaml.safe_load(file.read_text("utf-8"))
    return merged


def relative_name(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def scope_text(total: int) -> str:
    text = runpy.run_path(str(EXAMPLES / "paper" / "make_scope.py"))["scope_policy"](total)
    assert isinstance(text, str)
    return text


def compile_text(text: str, folder: Path) -> CompiledPolicy:
    file = folder / "policy.yaml"
    file.write_text(text, "utf-8")
    return load_policy(file)


def kept_names(compiled: CompiledPolicy) -> set[tuple[str, str]]:
    return {(rule.name, rule.unit) for rule in compiled.rules}


def table_rows(page: Path) -> list[list[str]]:
    lines = page.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]


def test_every_policy_set_is_listed_and_has_a_page_and_a_case() -> None:
    other_folders = {"mistakes", "releases", "resolved", "rounds", "spreadsheet", "tighter"}
    folders = {relative_name(file.parent) for file in EXAMPLES.rglob("*.yaml")}
    assert {f for f in folders if Path(f).name not in other_folders} == set(POLICY_SETS)
    for name in POLICY_SETS:
        assert EXAMPLES / name / "README.md" in PAGES
        assert any(case.parent == EXAMPLES / name for case in CASES)


@pytest.mark.parametrize("name", POLICY_SETS)
def test_check_and_fmt_report_nothing(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["check", str(EXAMPLES / name)]) == 0
    assert exit_code(["fmt", "--check", str(EXAMPLES / name)]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("case", CASES, ids=relative_name)
def test_every_step_of_a_case_passes(case: Path) -> None:
    outcomes = list(run_case(load_case(case)))
    assert len(outcomes) >= 2
    assert [o for o in outcomes if o.problem is not None] == []


@pytest.mark.parametrize("name", POLICY_SETS)
def test_the_number_of_rules_and_kept_rules_is_as_listed(name: str) -> None:
    """The number of rules is Σ units × (1, attributes, or categories × levels) × settings."""
    total, kept = POLICY_SETS[name]
    policy = load_sections(name)
    assert total == sum(count_rules(policy, section) for section in ("policies", "each-release"))
    compiled = load_policy(EXAMPLES / name)
    assert (compiled.rule_count, compiled.kept_count) == (total, kept)


def count_rules(policy: dict[str, Any], section: str) -> int:
    schema = policy.get("schema", {})
    levels = schema.get("membership-levels", ["member", "strong", "weak"])
    scopes = {
        "custom": 1,
        "attribute": len(schema.get("attributes", {})),
        "category": len(schema.get("categories", {})) * len(levels),
    }
    policies = policy.get(section, [])
    bases = [p for p in policies if p["kind"] != "extension"]
    settings = prod(len(p["settings"]) for p in policies if p["kind"] == "extension")
    return settings * sum(len(p.get("units", ["one"])) * scopes[p["kind"]] for p in bases)


# The paper's scenarios


def test_the_scope_file_equals_the_output_of_its_generator() -> None:
    assert (EXAMPLES / "paper" / "scope" / "policy.yaml").read_text("utf-8") == scope_text(10)


def test_the_scope_schema_has_the_distribution_of_the_paper() -> None:
    schema = load_sections("paper/scope")["schema"]
    attributes = schema["attributes"]
    assert list(attributes) == [f"a{n:03}" for n in range(150)]
    risks = Counter(a["risk"] for a in attributes.values())
    assert risks == {"low": 120, "medium": 15, "high": 15}
    assert Counter(c["risk"] for c in schema["categories"].values()) == {
        "low": 5,
        "medium": 4,
        "high": 1,
    }
    ties = [tied_categories(a) for a in attributes.values()]
    assert all(len(a["member"]) == 1 for a in attributes.values())
    assert all(len(set(tied)) == len(tied) for tied in ties)
    assert 3.2 <= sum(map(len, ties)) / 150 <= 3.8


def tied_categories(attribute: dict[str, Any]) -> list[str]:
    levels = ("member", "strong", "weak")
    return [category for level in levels for category in attribute.get(level, [])]


@pytest.mark.parametrize("total", [3, 5, 7, 10, 15, 20])
def test_the_kept_scope_rules_match_the_definition_and_the_page(total: int, tmp_path: Path) -> None:
    """Compare the kept rules with the definition, pair by pair, and with the table of the page."""
    text = scope_text(total)
    compiled = compile_text(text, tmp_path)
    kept = expected_kept_names(yaml.safe_load(text), total)
    assert {name for name, _ in kept_names(compiled)} == kept
    [row] = [r for r in table_rows(EXAMPLES / "paper/scope/README.md") if r[0] == str(total)]
    caps = [" / ".join(str(min(n, total)) for n in limits) for limits in ((20, 9, 3), (12, 10, 5))]
    assert row == [str(total), *caps, str(len(kept))]
    assert exit_code(["fmt", "--check", str(tmp_path / "policy.yaml")]) == 0


def expected_kept_names(policy: dict[str, Any], total: int) -> set[str]:
    attributes = policy["schema"]["attributes"]
    scopes = [("global", frozenset(attributes) | {"none"}, Fraction(total))]
    for name, attribute in attributes.items():
        budget = {"low": 20, "medium": 9, "high": 3}[attribute["risk"]]
        scope = frozenset({name})
        scopes.append((f"per-attribute[{name}]", scope, Fraction(min(budget, total))))
    for category, definition in policy["schema"]["categories"].items():
        budget = {"low": 12, "medium": 10, "high": 5}[definition["risk"]]
        scope = frozenset()
        for level, factor in (("member", "1"), ("strong", "1.5"), ("weak", "2")):
            scope |= {n for n, a in attributes.items() if category in a.get(level, [])}
            limit = min(budget, total) * Fraction(factor)
            scopes.append((f"per-category[{category}, {level}]", scope, limit))
    return {
        name
        for i, (name, scope, limit) in enumerate(scopes)
        if not any(
            scope <= wider
            and (other_limit < limit or (other_limit == limit and (scope < wider or j < i)))
            for j, (_, wider, other_limit) in enumerate(scopes)
            if j != i
        )
    }


def test_the_context_budgets_match_the_table_of_the_page(tmp_path: Path) -> None:
    text = (EXAMPLES / "paper/context/policy.yaml").read_text("utf-8")
    rows = table_rows(EXAMPLES / "paper/context/README.md")
    [totals] = [row[1:] for row in rows if row[0].startswith("ε_t")]
    [standards] = [row[1:] for row in rows if row[0] == "standard"]
    assert totals == ["3", "5", "7", "10", "15", "20"]
    for total, standard in zip(totals, standards, strict=True):
        compiled = compile_text(text.replace("{epsilon: 2}", f"{{epsilon: {standard}}}"), tmp_path)
        budgets = [budget_to_json(rule.budget) for rule in compiled.rules]
        assert budgets == [
            {"epsilon": float(standard), "delta": 1e-7},
            {"epsilon": float(total), "delta": 1e-7},
        ]


def test_the_hasse_example_has_the_edges_of_the_paper() -> None:
    section = load_policy(EXAMPLES / "paper/hasse").cumulative
    order = section.factor_orders
    number = {
        ("everything", "user"): 1,
        ("everything", "user-month"): 2,
        ("everything", "user-week"): 3,
        ("location", "user"): 4,
        ("everything", "device-month"): 5,
        ("every-day", "user-day"): 6,
        ("location", "user-quarter"): 7,
    }
    rules = [number[rule.name, rule.unit] for rule in section.rules]
    below = {
        (rules[i], rules[j])
        for i in range(7)
        for j in range(7)
        if i != j
        and order.scopes.leq(order.scope_of_base[i], order.scope_of_base[j])
        and order.units.leq(order.unit_of_base[i], order.unit_of_base[j])
    }
    lines = {
        (a, b) for a, b in below if not any((a, c) in below and (c, b) in below for c in rules)
    }
    assert lines == {(2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (6, 3), (7, 4)}
    budgets = {n: budget_to_json(r.budget) for n, r in zip(rules, section.rules, strict=True)}
    epsilons = (7, 7, 7, 5, 7, 3, 5)
    assert budgets == {n: {"epsilon": e, "delta": 1e-7} for n, e in enumerate(epsilons, 1)}


# The Census


def test_census_budgets_are_the_recomputed_losses_rounded_up() -> None:
    table = {row[0].strip("`"): row[2:] for row in table_rows(EXAMPLES / "census-2020/README.md")}
    rules = {rule.name: rule for rule in load_policy(EXAMPLES / "census-2020").rules}
    assert len(rules) == 11
    for name, rule in rules.items():
        loss, budget = map(Fraction, table[name])
        assert budget_to_json(rule.budget) == {"rho": float(budget)}
        assert 0 < budget - loss < Fraction("0.011")


def test_census_losses_by_level_follow_from_the_published_settings() -> None:
    shares = {"us": 104, "state": 1440, "county": 447, "tract": 687, "block-group": 1256}
    shares["block"] = 165
    assert sum(shares.values()) == 4099
    table = {row[0].strip("`"): row[2:] for row in table_rows(EXAMPLES / "census-2020/README.md")}
    total = Fraction(542, 339) ** 2
    cumulative = Fraction(0)
    for level in ("block", "block-group", "tract", "county", "state"):
        cumulative += total * shares[level] / 4099
        name = level if level == "block" else f"from-{level}"
        assert abs(cumulative - Fraction(table[name][0])) <= Fraction("0.00005")
    assert abs(total - Fraction(table["global"][0])) <= Fraction("0.0000005")


def load_census_script() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "census-2020" / "make_release.py"))


def test_the_census_has_65_measurements_and_the_published_total() -> None:
    measurements = list(load_census_script()["measurements"]())
    total = sum((rho for *_, rho in measurements), Fraction(0))
    assert len(measurements) == 65 and total == Fraction(293764, 114921)
    assert f"{float(total):.4f}" == "2.5562"
    assert f"{zcdp_to_epsilon(total, Fraction('1e-10')):.2f}" == "17.14"


def test_the_census_file_equals_the_output_of_its_script(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load_census_script()["main"]()
    file = EXAMPLES / "census-2020" / "releases" / "redistricting.yaml"
    assert capsys.readouterr().out == file.read_text("utf-8")
    stated = yaml.safe_load(file.read_text("utf-8"))["mechanisms"]
    exact_rhos = [rho for *_, rho in load_census_script()["measurements"]()]
    for mechanism, rho in zip(stated, exact_rhos, strict=True):
        assert 0 <= Fraction(repr(mechanism["mechanism"]["rho"])) - rho < Fraction("1e-12")


def test_census_losses_by_scope_are_sums_of_the_measurements() -> None:
    table = {row[0].strip("`"): row[2:] for row in table_rows(EXAMPLES / "census-2020/README.md")}
    measurements = list(load_census_script()["measurements"]())
    scopes = {
        f"per-attribute[{name}]": name for name in ("cenrace", "hispanic", "votingage", "hhgq")
    }
    for rule, name in scopes.items():
        rho = sum(
            (rho for _, _, attributes, rho in measurements if name in attributes), Fraction(0)
        )
        assert f"{float(rho):.6f}" == table[rule][0]
    rho = sum((rho for _, _, attributes, rho in measurements if attributes), Fraction(0))
    assert f"{float(rho):.6f}" == table["per-category[demographics, member]"][0]


# The web company


@pytest.mark.parametrize("file", RELEASES, ids=relative_name)
def test_a_release_uses_only_names_of_the_vocabulary(file: Path) -> None:
    policy = load_sections("web-analytics")
    schema = policy["schema"]
    release = yaml.safe_load(file.read_text("utf-8"))
    assert release["release"] == file.stem
    for mechanism in release["mechanisms"]:
        parsed, problems = parse_mechanism(parse_decimals(mechanism["mechanism"]))
        assert parsed is not None and not problems
        assert mechanism["unit"] in policy["units"]
        assert set(mechanism["attributes"]) <= set(schema["attributes"])
        assert "dataset" in mechanism["labels"]
        for label, value in mechanism["labels"].items():
            values = value if schema["labels"][label].get("many") else [value]
            assert set(values) <= set(schema["labels"][label].get("values", values))
        for partition, values in mechanism.get("where", {}).items():
            assert set(values) <= set(schema["partitions"][partition]["values"])
        time = mechanism.get("time", {"from": date.min, "to": date.max})
        assert time["from"] <= time["to"]


def test_daily_page_views_stay_within_the_budgets_for_a_year() -> None:
    release = yaml.safe_load(RELEASES[0].read_text("utf-8"))
    gaussian, _ = parse_mechanism(parse_decimals(release["mechanisms"][0]["mechanism"]))
    assert isinstance(gaussian, Gaussian)
    rho = gaussian.sensitivity**2 / (2 * gaussian.sigma**2)
    assert Fraction("0.0149") < rho <= Fraction("0.015")
    for days, limit in ((1, 1.001), (7, 2.8), (31, 6.05), (365, 24.5)):
        delta = Fraction(1, 10**7)
        epsilon = min(
            renyi_to_epsilon_classic(order, days * rho * order, delta) for order in DEFAULT_ORDERS
        )
        assert epsilon <= limit


def parse_decimals(parameters: dict[str, Any]) -> dict[str, object]:
    """Convert floats to the exact decimals of the text."""
    return {k: Fraction(str(v)) if isinstance(v, float) else v for k, v in parameters.items()}


def test_the_overview_lists_the_number_of_rules() -> None:
    listed = {
        match[1]: row[-1]
        for row in table_rows(EXAMPLES / "README.md")
        if (match := re.search(r"\((.*?)\)", row[0]))
    }
    counts = {name: f"{kept} of {total}" for name, (total, kept) in POLICY_SETS.items()}
    assert listed == counts
