"""From text to rules: their names and origins, how many there are, and what authors are told."""

from __future__ import annotations

from fractions import Fraction
from unittest.mock import patch

import pytest
from tests.rules.texts import codes, compiled, diagnostics, rejected

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
    """A text of custom policies."""
    lines = [f"  - {{kind: custom, unit: user, budget: {{rho: 1}}, {said}}}" for said in policies]
    return HEAD + "policies:\n" + "\n".join(lines) + "\n"


def extension(*settings: str) -> str:
    """A text of one rule and one extension."""
    lines = "".join(f"      - {{budget: same, {said}}}\n" for said in settings)
    return (
        custom("name: g, when: always")
        + "  - name: x\n    kind: extension\n    settings:\n"
        + lines
    )


def test_the_number_of_rules_is_the_formula() -> None:
    made = compiled(EXAMPLE)
    assert len(made.cumulative.rules) == (1 + 2 + 2 * (2 * 3)) * 2
    assert len(made.each_release.rules) == 1
    assert made.rule_count == 31


def test_names_say_where_a_rule_came_from() -> None:
    names = [rule.name for rule, _ in compiled(EXAMPLE).all_rules]
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


def test_a_rule_knows_its_policies_and_lines() -> None:
    rules = {rule.name: rule for rule, _ in compiled(EXAMPLE).all_rules}
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
    budgets = {rule.name: rule.budget for rule, _ in compiled(EXAMPLE).all_rules}
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
    scopes = {rule.name: rule.predicates[0] for rule, _ in compiled(EXAMPLE).all_rules}
    zip_code = PredicateInput(("zip",))
    found = [
        matches(scopes[f"per-category[health, {level}] × final"], zip_code)
        for level in ("member", "strong", "weak")
    ]
    assert found == [False, False, True]


def test_rules_can_be_counted_from_the_end_and_sliced() -> None:
    rules = compiled(EXAMPLE).cumulative.rules
    assert rules[-1].name == rules[len(rules) - 1].name == list(rules)[-1].name
    assert [rule.number for rule in rules[2:5]] == [2, 3, 4]
    with pytest.raises(IndexError):
        rules[len(rules)]


def test_too_many_rules_are_refused() -> None:
    limited = EXAMPLE.replace("delta: 1e-7}", "delta: 1e-7, max-rules: 29}")
    assert rejected(limited) == ["P046"]
    enough = EXAMPLE.replace("delta: 1e-7}", "delta: 1e-7, max-rules: 30}")
    assert compiled(enough).rule_count == 31


@pytest.mark.parametrize(
    "policies",
    [
        "  - {name: x, kind: extension, settings: [{name: any, when: always, budget: same}]}\n",
        "  - {name: c, kind: category, unit: user, budgets: {}}\n"
        "  - {name: x, kind: extension, settings: [{name: any, when: always, budget: same}]}\n",
    ],
)
def test_an_extension_of_nothing_makes_no_rules(policies: str) -> None:
    assert compiled("dpolicy: 1\npolicies:\n" + policies).rule_count == 0


def test_an_idle_category_is_told() -> None:
    assert codes(compiled(HEAD.replace("weak: [health]", "weak: []"))) == []
    idle = HEAD.replace("member: [location], ", "")
    assert codes(compiled(idle)) == ["P101"]


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (custom('name: g, when: \'labels.stage == "final" && labels.stage == "tuning"\''), "`g`"),
        (extension("name: a, when: always", "name: b, when: 'false'"), "`b`"),
    ],
)
def test_what_never_matches_is_told(text: str, about: str) -> None:
    found = [w for w in compiled(text).warnings if w.code == "P102"]
    assert len(found) == 1 and about in found[0].message


def test_a_policy_that_others_imply_is_told() -> None:
    made = compiled(custom("name: a, when: always", "name: b, when: '\"zip\" in attributes'"))
    assert [(w.code, w.message) for w in made.warnings] == [
        ("P103", "all rules of `b` are implied by other rules")
    ]


def test_a_partition_that_a_rule_is_about_is_told() -> None:
    split = HEAD + "  partitions: {zip: {values: [a, b]}}\n"
    text = split + custom("name: g, when: '\"zip\" in attributes'").removeprefix(HEAD)
    assert codes(compiled(text)) == ["P104"]
    text = split + custom("name: g, when: '\"diagnosis\" in attributes'").removeprefix(HEAD)
    assert codes(compiled(text)) == []


def test_a_setting_about_a_partition_is_told_too() -> None:
    split = HEAD + "  partitions: {zip: {values: [a, b]}}\n"
    said = extension("name: any, when: always", "name: b, when: '\"zip\" in attributes'")
    assert "P104" in codes(compiled(split + said.removeprefix(HEAD)))


def test_an_order_that_nobody_can_verify_is_told_and_not_used() -> None:
    texts = (
        'name: small, when: \'labels.stage == "final" && "zip" in attributes\', below: [large]',
        "name: large, when: 'labels.stage == \"final\"'",
    )
    text = custom(*texts)
    assert compiled(text).kept_count == 1
    with patch.object(scope_order, "MAX_SOLVER_CALLS", 0):
        made = compiled(text)
    assert codes(made) == ["P106"]
    assert made.kept_count == 2, "what is not verified prunes nothing"


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ('labels.stage == "final"', '"zip" in attributes'),
        ('"zip" in attributes || "diagnosis" in attributes', '"zip" in attributes'),
        ('mechanism != "gaussian"', 'mechanism == "laplace"'),
        ("always", 'labels.stage == "final"'),
    ],
)
def test_a_false_order_is_refuted_by_an_example_that_refutes(smaller: str, larger: str) -> None:
    texts = f"name: small, when: '{smaller}', below: [large]", f"name: large, when: '{larger}'"
    for text in (extension("name: any, when: always", *texts), custom(*texts)):
        found = [d for d in diagnostics(text) if d.code == "P026"]
        assert len(found) == 1
        facts = example(found[0].help or "")
        assert said(smaller, facts) and not said(larger, facts)


def example(help_: str) -> PredicateInput:
    """The mechanism that a message prints: `attributes: [a], stage: final, mechanism: laplace`."""
    shown = help_.split(": ", 1)[1].removeprefix("attributes: [")
    names, rest = shown.split("]", 1)
    pairs = dict(pair.split(": ") for pair in rest.removeprefix(", ").split(", "))
    attributes = tuple(name for name in names.split(", ") if name)
    labels = {k: v for k, v in pairs.items() if k not in ("mechanism", "by")}
    return PredicateInput(attributes, labels, pairs["mechanism"], pairs.get("by", ""))


def said(text: str, facts: PredicateInput) -> bool:
    """What the predicate says of the printed mechanism."""
    labels = {
        "stage": Label("stage", ("final", "tuning"), default="final"),
        "dataset": Label("dataset", None),
    }
    if text == "always":
        return True
    predicate = parse_predicate(text, ReleaseSchema(frozenset({"zip", "diagnosis"}), labels))
    assert isinstance(predicate, Expression)
    return matches(predicate, facts)


def test_a_true_order_is_accepted_in_silence() -> None:
    texts = (
        "name: small, when: '\"zip\" in attributes', below: [large]",
        'name: large, when: \'"zip" in attributes || "diagnosis" in attributes\'',
    )
    assert codes(compiled(extension("name: any, when: always", *texts))) == []


def test_witnesses_are_found_by_rule() -> None:
    made = compiled(EXAMPLE)
    for section in made.sections:
        for rule in section.rules:
            witness = section.implied_by(rule)
            assert (witness is None) == bool(section.pruning.kept[rule.number])
    assert made.kept_count == len(made.rules) == sum(w is None for _, w in made.all_rules)
