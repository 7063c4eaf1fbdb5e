"""Compilation of policy texts: names, origins and number of rules, and diagnostics."""

from __future__ import annotations

from fractions import Fraction
from unittest.mock import patch

import pytest
from tests.rules.texts import compile_text, diagnostics, rejection_codes, warning_codes

from dpolicy.predicates.expression import Expression, matches, parse_predicate
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.releases.release_schema import Label, PredicateInput, ReleaseSchema
from dpolicy.rules import scope_order

HEAD = """dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-month: {period: month}}
schema:
  categories: {health: {risk: high}, location: {risk: medium}}
  attributes:
    diagnosis: {risk: high, member: [health]}
    zip: {risk: medium, member: [location], weak: [health]}
  labels:
    stage: {values: [final, tuning], default: final}
    dataset: {text: true}
"""
EXAMPLE = (
    HEAD
    + """policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 2}}
  - name: per-attribute
    kind: attribute
    unit: user
    budgets: {medium: {epsilon: 1.5}, high: {epsilon: 1}}
    except: {zip: {epsilon: 0.8}}
  - name: per-category
    kind: category
    units: [user, user-month]
    budgets: {medium: {epsilon: 1.6}, high: {epsilon: 1.2}}
    levels: {weak: {times: 2}}
  - name: tuning
    kind: extension
    settings:
      - {name: final, when: 'labels.stage == "final"', budget: same, below: [with-tuning]}
      - {name: with-tuning, when: always, budget: {times: 2}}
each-release:
  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 1}}
"""
)


def custom(*policies: str) -> str:
    """Return a policy text with custom policies."""
    lines = [
        f"  - {{kind: custom, unit: user, budget: {{rho: 1}}, {fields}}}" for fields in policies
    ]
    return HEAD + "policies:\n" + "\n".join(lines) + "\n"


def extension(*settings: str) -> str:
    """Return a policy text with one rule and one extension."""
    lines = "".join(f"      - {{budget: same, {fields}}}\n" for fields in settings)
    return (
        custom("name: g, when: always")
        + "  - name: x\n    kind: extension\n    settings:\n"
        + lines
    )


def test_the_number_of_rules_follows_the_formula() -> None:
    policy = compile_text(EXAMPLE)
    assert len(policy.cumulative.rules) == (1 + 2 + 2 * (2 * 3)) * 2
    assert len(policy.each_release.rules) == 1
    assert policy.rule_count == 31


def test_rule_names_contain_the_policy_the_element_and_the_setting() -> None:
    names = [rule.name for rule, _ in compile_text(EXAMPLE).all_rules]
    assert names[:6] == [
        "global × final",
        "global × with-tuning",
        "per-attribute[diagnosis] × final",
        "per-attribute[diagnosis] × with-tuning",
        "per-attribute[zip] × final",
        "per-attribute[zip] × with-tuning",
    ]
    assert names.count("per-category[health, strong] × final") == 2, "units are not in the name"
    assert names[-1] == "cap"


def test_a_rule_lists_its_policies_and_source_lines() -> None:
    rules = {rule.name: rule for rule, _ in compile_text(EXAMPLE).all_rules}
    rule = rules["per-attribute[zip] × with-tuning"]
    assert rule.policies == ("per-attribute", "tuning/with-tuning")
    lines = EXAMPLE.split("\n")
    assert [lines[span.line - 1].strip()[:14] for span in rule.sources] == [
        "- name: per-at",
        "- {name: with-",
    ]
    assert str(rule.sources[0]).startswith("policy.yaml:")
    assert not rule.each_release and rules["cap"].each_release


def test_budgets_follow_exceptions_levels_and_settings() -> None:
    budgets = {rule.name: rule.budget for rule, _ in compile_text(EXAMPLE).all_rules}
    delta = Fraction(1, 10**7)
    expected = {
        "per-attribute[zip] × with-tuning": "1.6",
        "per-attribute[diagnosis] × final": "1",
        "per-category[health, member] × final": "1.2",
        "per-category[health, strong] × final": "1.2",
        "per-category[health, weak] × with-tuning": "4.8",
    }
    for name, epsilon in expected.items():
        assert budgets[name] == EpsilonDelta(Fraction(epsilon), delta), name


def test_levels_are_cumulative() -> None:
    scopes = {rule.name: rule.predicates[0] for rule, _ in compile_text(EXAMPLE).all_rules}
    zip_code = PredicateInput(("zip",))
    results = [
        matches(scopes[f"per-category[health, {level}] × final"], zip_code)
        for level in ("member", "strong", "weak")
    ]
    assert results == [False, False, True]


def test_rules_support_negative_indices_and_slices() -> None:
    rules = compile_text(EXAMPLE).cumulative.rules
    assert rules[-1].name == rules[len(rules) - 1].name == list(rules)[-1].name
    assert [rule.number for rule in rules[2:5]] == [2, 3, 4]
    with pytest.raises(IndexError):
        rules[len(rules)]


def test_too_many_rules_are_rejected() -> None:
    limited = EXAMPLE.replace("delta: 1e-7}", "delta: 1e-7, max-rules: 29}")
    assert rejection_codes(limited) == ["P046"]
    enough = EXAMPLE.replace("delta: 1e-7}", "delta: 1e-7, max-rules: 30}")
    assert compile_text(enough).rule_count == 31


@pytest.mark.parametrize(
    "policies",
    [
        "  - {name: x, kind: extension, settings: [{name: any, when: always, budget: same}]}\n",
        "  - {name: c, kind: category, unit: user, budgets: {}}\n"
        "  - {name: x, kind: extension, settings: [{name: any, when: always, budget: same}]}\n",
    ],
)
def test_an_extension_without_base_rules_makes_no_rules(policies: str) -> None:
    assert compile_text("dpolicy: 1\npolicies:\n" + policies).rule_count == 0


def test_a_category_without_attributes_gives_a_warning() -> None:
    assert warning_codes(compile_text(HEAD.replace("weak: [health]", "weak: []"))) == []
    idle = HEAD.replace("member: [location], ", "")
    assert warning_codes(compile_text(idle)) == ["P101"]


@pytest.mark.parametrize(
    ("text", "policy_name"),
    [
        (custom('name: g, when: \'labels.stage == "final" && labels.stage == "tuning"\''), "`g`"),
        (extension("name: a, when: always", "name: b, when: 'false'"), "`b`"),
    ],
)
def test_a_predicate_that_never_matches_gives_a_warning(text: str, policy_name: str) -> None:
    warnings = [w for w in compile_text(text).warnings if w.code == "P102"]
    assert len(warnings) == 1 and policy_name in warnings[0].message


def test_a_policy_implied_by_other_policies_gives_a_warning() -> None:
    policy = compile_text(custom("name: a, when: always", "name: b, when: '\"zip\" in attributes'"))
    assert [(w.code, w.message) for w in policy.warnings] == [
        ("P103", "all rules of `b` are implied by other rules")
    ]


def test_a_rule_that_reads_a_partition_gives_a_warning() -> None:
    split = HEAD + "  partitions: {zip: {values: [a, b], of: user}}\n"
    text = split + custom("name: g, when: '\"zip\" in attributes'").removeprefix(HEAD)
    assert warning_codes(compile_text(text)) == ["P104"]
    text = split + custom("name: g, when: '\"diagnosis\" in attributes'").removeprefix(HEAD)
    assert warning_codes(compile_text(text)) == []


def test_a_setting_that_reads_a_partition_gives_a_warning() -> None:
    split = HEAD + "  partitions: {zip: {values: [a, b], of: user}}\n"
    text = extension("name: any, when: always", "name: b, when: '\"zip\" in attributes'")
    assert "P104" in warning_codes(compile_text(split + text.removeprefix(HEAD)))


def test_an_unverifiable_order_gives_a_warning_and_prunes_nothing() -> None:
    texts = (
        'name: small, when: \'labels.stage == "final" && "zip" in attributes\', below: [large]',
        "name: large, when: 'labels.stage == \"final\"'",
    )
    text = custom(*texts)
    assert compile_text(text).kept_count == 1
    with patch.object(scope_order, "MAX_SOLVER_CALLS", 0):
        policy = compile_text(text)
    assert warning_codes(policy) == ["P106"]
    assert policy.kept_count == 2, "an unverified order prunes no rule"


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ('labels.stage == "final"', '"zip" in attributes'),
        ('"zip" in attributes || "diagnosis" in attributes', '"zip" in attributes'),
        ('mechanism != "gaussian"', 'mechanism == "laplace"'),
        ("always", 'labels.stage == "final"'),
    ],
)
def test_a_false_order_is_rejected_with_a_valid_counterexample(smaller: str, larger: str) -> None:
    texts = f"name: small, when: '{smaller}', below: [large]", f"name: large, when: '{larger}'"
    for text in (extension("name: any, when: always", *texts), custom(*texts)):
        errors = [d for d in diagnostics(text) if d.code == "P026"]
        assert len(errors) == 1
        predicate_input = parse_counterexample(errors[0].help or "")
        assert is_match(smaller, predicate_input) and not is_match(larger, predicate_input)


def parse_counterexample(help_text: str) -> PredicateInput:
    """Parse the mechanism in a help text: `attributes: [a], stage: final, mechanism: laplace`."""
    mechanism = help_text.split(": ", 1)[1].removeprefix("attributes: [")
    names, fields = mechanism.split("]", 1)
    pairs = dict(pair.split(": ") for pair in fields.removeprefix(", ").split(", "))
    attributes = tuple(name for name in names.split(", ") if name)
    labels = {k: v for k, v in pairs.items() if k not in ("mechanism", "by")}
    return PredicateInput(attributes, labels, pairs["mechanism"], pairs.get("by", ""))


def is_match(text: str, predicate_input: PredicateInput) -> bool:
    """Evaluate a predicate on the printed mechanism."""
    labels = {
        "stage": Label("stage", ("final", "tuning"), default="final"),
        "dataset": Label("dataset", None),
    }
    if text == "always":
        return True
    predicate = parse_predicate(text, ReleaseSchema(frozenset({"zip", "diagnosis"}), labels))
    assert isinstance(predicate, Expression)
    return matches(predicate, predicate_input)


def test_a_true_order_gives_no_warning() -> None:
    texts = (
        "name: small, when: '\"zip\" in attributes', below: [large]",
        'name: large, when: \'"zip" in attributes || "diagnosis" in attributes\'',
    )
    assert warning_codes(compile_text(extension("name: any, when: always", *texts))) == []


def test_exactly_the_pruned_rules_have_a_witness() -> None:
    policy = compile_text(EXAMPLE)
    for section in policy.sections:
        for rule in section.rules:
            witness = section.implied_by(rule)
            assert (witness is None) == bool(section.pruning.kept[rule.number])
    assert policy.kept_count == len(policy.rules) == sum(w is None for _, w in policy.all_rules)
