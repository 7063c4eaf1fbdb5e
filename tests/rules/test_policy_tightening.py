"""`only_tightens` accepts only policy changes that can never allow more."""

from __future__ import annotations

import pytest
from tests.pdp.builders import GLOBAL, HEAD, ZIP, exceeded_rules, policy, pure, started

from dpolicy.balances.enforced_policy import enforce
from dpolicy.decisions.decide import decide
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.policy.accounting.accounting_defaults import DEFAULTS
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.rules.tightening import only_tightens
from dpolicy.text.yaml_reader import Source

ZIPS = ZIP % "{epsilon: 1}"
CAP = "  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 1}}\n"
#: A section that has settings but no rule, because there are no categories.
TEAMS = """\
  - {name: none, kind: category, unit: user, budgets: {high: {epsilon: 1}, low: {epsilon: 1}}}
  - name: team
    kind: extension
    settings:
      - {name: all, when: always, budget: same}
      - {name: ads, when: 'labels.team == "ads"', budget: same}
"""

ANY = '\'"zip" in attributes || "views" in attributes\''
#: A rule for each of two attributes, and one for both.
ZIP_RULE = "  - {name: zips, kind: custom, when: '\"zip\" in attributes', unit: user, budget: %s}\n"
VIEWS_RULE = ZIP_RULE.replace("zip", "views")
BOTH_RULE = f"  - {{name: both, kind: custom, when: {ANY}, unit: user, budget: {{epsilon: 1}}}}\n"
ONE = "{epsilon: 1}"
#: The head with the relation under which a rule on a larger unit implies one on a smaller.
CHANGE = HEAD.replace("delta: 1e-7", "delta: 1e-7, relation: change")
PER_DAY = CAP.replace("unit: user", "unit: user-day")
ADS = "  - {name: ads, kind: custom, when: 'labels.team == \"ads\"', unit: user, budget: %s}\n"
#: A predicate that divides by zero if a release has no author.
DIVISION = "  - {name: by, kind: custom, when: '10 / size(by) > 3', unit: user, budget: %s}\n"
#: A rule inside `ZIPS` that fails on a record with an unknown team, also without zip codes.
UNKNOWN_TEAM = """\
  - name: team-zips
    kind: custom
    when: 'labels.team == "ads" ? "zip" in attributes : false'
    unit: user
    budget: %s
"""
MAPS_OR_ADS = ADS.replace('== "ads"', 'in ["ads", "maps"]').replace("name: ads", "name: both")

TIGHTER = {
    "the same": (policy(GLOBAL), policy(GLOBAL)),
    "a smaller budget": (policy(GLOBAL), policy(GLOBAL.replace("epsilon: 2", "epsilon: 1"))),
    "an additional rule": (policy(GLOBAL), policy(GLOBAL, ZIPS)),
    "an additional per-release rule": (policy(GLOBAL), policy(GLOBAL, each=CAP)),
    "an additional predicate": (policy(GLOBAL), policy(GLOBAL, each=TEAMS)),
    "another order": (policy(GLOBAL, ZIPS), policy(ZIPS, GLOBAL)),
    "a removed rule that a smaller budget implies": (
        policy(GLOBAL, ZIPS),
        policy(GLOBAL.replace("epsilon: 2", "epsilon: 1")),
    ),
    "a wider scope": (policy(GLOBAL, ZIPS), policy(GLOBAL, BOTH_RULE)),
    "another name of a rule": (policy(GLOBAL), policy(GLOBAL.replace("global", "all"))),
    "another text of the same scope": (
        policy(GLOBAL, ZIPS),
        policy(GLOBAL, ZIPS.replace('"zip" in', '"views" in attributes && false || "zip" in')),
    ),
    "a larger unit": (policy(GLOBAL, PER_DAY, head=CHANGE), policy(GLOBAL, CAP, head=CHANGE)),
    "an additional rule inside the covered scope": (
        policy(BOTH_RULE),
        policy(BOTH_RULE, ZIPS, VIEWS_RULE % ONE),
    ),
    "rules that cover the same scope together": (
        policy(ZIP_RULE % ONE, VIEWS_RULE % ONE),
        policy(BOTH_RULE),
    ),
    "a smaller budget of a pruned rule for one value of a label": (
        policy(GLOBAL, MAPS_OR_ADS % ONE, ADS % ONE),
        policy(GLOBAL, MAPS_OR_ADS % ONE, ADS % "{epsilon: 0.5}"),
    ),
    "another name of the policy set": (policy(GLOBAL), policy(GLOBAL, head=f"{HEAD}name: other\n")),
}
LOOSER = {
    "the first policy": (None, policy(GLOBAL)),
    "a larger budget": (policy(GLOBAL), policy(GLOBAL.replace("epsilon: 2", "epsilon: 3"))),
    "a removed rule": (policy(GLOBAL, ZIPS), policy(GLOBAL)),
    "a narrower scope": (
        policy(GLOBAL),
        policy(GLOBAL.replace("always", "'mechanism == \"pate\"'")),
    ),
    "another notion": (policy(GLOBAL), policy(GLOBAL.replace("epsilon: 2", "rho: 0.5"))),
    "another unit": (policy(GLOBAL), policy(GLOBAL.replace("unit: user", "unit: user-day"))),
    "the first rule that covers other releases": (policy(ZIPS), policy(ZIPS, GLOBAL)),
    "a removed per-release rule": (policy(GLOBAL, each=CAP), policy(GLOBAL)),
    "a rule for each release instead of all": (policy(GLOBAL, CAP), policy(GLOBAL, each=CAP)),
    "a cover by two rules": (
        policy(
            GLOBAL.replace("epsilon: 2", "epsilon: 9"),
            BOTH_RULE.replace("epsilon: 1", "epsilon: 2"),
        ),
        policy(GLOBAL.replace("epsilon: 2", "epsilon: 9"), ZIP_RULE % ONE, VIEWS_RULE % ONE),
    ),
    "a larger unit under add-remove": (policy(GLOBAL, PER_DAY), policy(GLOBAL, CAP)),
    "a smaller unit": (policy(GLOBAL, CAP, head=CHANGE), policy(GLOBAL, PER_DAY, head=CHANGE)),
    "a removed predicate that can fail": (
        policy(GLOBAL, ADS % ONE),
        policy(GLOBAL.replace("epsilon: 2", "epsilon: 1")),
    ),
    "a removed predicate that can divide by zero": (
        policy(GLOBAL, DIVISION % "{epsilon: 2}"),
        policy(GLOBAL),
    ),
    "a wider scope of a label, which a record may lack": (
        policy(GLOBAL, ADS % ONE),
        policy(GLOBAL, ADS.replace('== "ads"', 'in ["ads", "maps"]') % ONE),
    ),
    "a wider scope of a per-release rule with a loss distribution": (
        policy(GLOBAL, each=ZIP_RULE % "{epsilon: 1, delta: 1e-7}"),
        policy(GLOBAL, each=CAP.replace("epsilon: 1", "epsilon: 1, delta: 1e-7")),
    ),
    "a pruned rule without its witness, which counts records for it": (
        policy(GLOBAL, ZIPS, UNKNOWN_TEAM % "{epsilon: 2}"),
        policy(GLOBAL, ZIPS, UNKNOWN_TEAM % "{rho: 100}"),
    ),
    "a removed predicate without a rule": (policy(GLOBAL, each=TEAMS), policy(GLOBAL)),
}

#: A policy that uses every part of the language outside of rules.
EVERYTHING = """
dpolicy: 1
accounting:
  delta: 1e-7
  profile: classic
  orders: [4, 8, 16]
  relation: change
  require: additive
  uncovered: deny
  max-rules: 1000
  collapse: {after: 24 months, into: month}
units:
  user: {}
  household: {covers: [user]}
  user-day: {period: day, of: user}
  user-week: {period: 7 days from 2024-01-01, relation: change}
schema:
  risk-levels: [low, medium, high]
  membership-levels: [member, strong, weak]
  categories: {health: {risk: high}}
  attributes: {zip: {risk: high, member: [health]}, views: {risk: low}}
  labels:
    stage: {values: [final, tuning], default: final}
    purpose: {values: [research, product], many: true}
    team: {values: [ads, maps]}
    owner: {text: true, required: true}
  partitions:
    country: {values: [AT, CH], of: user}
    age: {from: 0, to: 119, stable: false}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 2}}
  - name: levels
    kind: category
    unit: user
    budgets: {low: {epsilon: 2}, medium: {epsilon: 2}, high: {epsilon: 1}}
"""
#: Name of a change: the text before it and after it. Each can make a release or a past charge
#: cheaper, or none of the rules can be compared any more.
OUTSIDE_OF_RULES = {
    "a larger delta": ("delta: 1e-7", "delta: 1e-6"),
    "a smaller delta": ("delta: 1e-7", "delta: 1e-8"),
    "another profile": ("profile: classic", "profile: anchored"),
    "other orders": ("[4, 8, 16]", "[4, 8, 32]"),
    "fewer orders": ("[4, 8, 16]", "[4, 8]"),
    "another relation": ("\n  relation: change", "\n  relation: add-remove"),
    "additive is not required": ("  require: additive\n", ""),
    "uncovered mechanisms are allowed": ("uncovered: deny", "uncovered: allow"),
    "another limit of rules": ("max-rules: 1000", "max-rules: 2000"),
    "no collapse": ("  collapse: {after: 24 months, into: month}\n", ""),
    "collapse later": ("after: 24 months", "after: 36 months"),
    "collapse earlier": ("after: 24 months", "after: 12 months"),
    "collapse into another period": ("into: month", "into: year"),
    "an additional unit": ("  user: {}\n", "  user: {}\n  user-month: {period: month, of: user}\n"),
    "a removed unit": ("  user-day: {period: day, of: user}\n", ""),
    "a redefined unit": ("period: day", "period: month"),
    "another phase": ("from 2024-01-01", "from 2024-01-02"),
    "a relation of a unit": ("relation: change}", "relation: add-remove}"),
    "another entity of a unit": ("period: day, of: user", "period: day, of: household"),
    "another cover": ("household: {covers: [user]}", "household: {}"),
    "an additional risk level": ("[low, medium, high]", "[low, medium, high, top]"),
    "other membership levels": ("[member, strong, weak]", "[member, weak, strong]"),
    "another risk of a category": ("health: {risk: high}", "health: {risk: low}"),
    "an additional attribute": ("views: {risk: low}", "views: {risk: low}, a: {risk: low}"),
    "a removed attribute": (", views: {risk: low}", ""),
    "another risk of an attribute": ("views: {risk: low}", "views: {risk: medium}"),
    "another membership": ("member: [health]", "weak: [health]"),
    "no membership": (", member: [health]", ""),
    "another default of a label": ("default: final", "default: tuning"),
    "no default of a label": (", default: final", ""),
    "an additional default of a label": ("[ads, maps]}", "[ads, maps], default: ads}"),
    "an additional value of a label": ("[ads, maps]", "[ads, maps, mail]"),
    "a removed value of a label": ("[ads, maps]", "[ads]"),
    "a label without many": ("product], many: true", "product]"),
    "a label that is not required": ("text: true, required: true", "text: true"),
    "a label that becomes required": ("[ads, maps]", "[ads, maps], required: true"),
    "a label with values instead of text": ("text: true", "values: [a, b]"),
    "an additional label": ("    owner:", "    mail: {text: true}\n    owner:"),
    "a removed label": ("    team: {values: [ads, maps]}\n", ""),
    "an additional partition": ("    age:", "    device: {values: [tv]}\n    age:"),
    "a removed partition": ("    age: {from: 0, to: 119, stable: false}\n", ""),
    "an additional value of a partition": ("[AT, CH]", "[AT, CH, DE]"),
    "other values of a partition": ("[AT, CH]", "[AT, DE]"),
    "another range of a partition": ("to: 119", "to: 99"),
    "a partition of another entity": ("CH], of: user", "CH], of: household"),
    "a partition that becomes stable": ("stable: false", "stable: true"),
}


@pytest.mark.parametrize("name", TIGHTER)
def test_a_tightening_is_accepted(name: str) -> None:
    old, new = TIGHTER[name]
    assert only_tightens(old, new)


@pytest.mark.parametrize("name", LOOSER)
def test_any_other_change_is_not_a_tightening(name: str) -> None:
    old, new = LOOSER[name]
    assert not only_tightens(old, new)


def compile_text(text: str) -> CompiledPolicy:
    """Compile a policy text."""
    return compile_policy([Source("policy.yaml", text)])


@pytest.mark.parametrize("name", OUTSIDE_OF_RULES)
def test_a_change_outside_of_the_rules_is_not_a_tightening(name: str) -> None:
    """Neither direction counts: which one charges more depends on the ledger."""
    before, after = OUTSIDE_OF_RULES[name]
    assert EVERYTHING.count(before) == 1
    old, new = compile_text(EVERYTHING), compile_text(EVERYTHING.replace(before, after))
    assert old.digest != new.digest
    assert not only_tightens(old, new)
    assert not only_tightens(new, old)


def test_the_same_text_is_a_tightening_in_full() -> None:
    tighter = EVERYTHING.replace("{epsilon: 2}}\n  - name", "{epsilon: 1}}\n  - name")
    assert only_tightens(compile_text(EVERYTHING), compile_text(EVERYTHING))
    assert only_tightens(compile_text(EVERYTHING), compile_text(tighter))


def test_the_same_text_under_other_defaults_is_not_a_tightening() -> None:
    """Defaults 3 charge Laplace noise less ρ than defaults 1 and 2, under the same text."""
    text = EVERYTHING.replace("epsilon: 2", "rho: 0.3").replace("epsilon: 1", "rho: 0.3")
    texts = [Source("policy.yaml", text.replace("  profile: classic\n", ""))]
    policies = {number: compile_policy(texts, DEFAULTS[number]) for number in DEFAULTS}
    assert len({candidate.digest for candidate in policies.values()}) == 1
    noise = {"kind": "laplace", "sensitivity": 0.8, "scale": 1}
    statements = {"additive": True, "labels": {"owner": "a"}, "unit": "user", "mechanism": noise}
    request = parse_request({"release": "a", "mechanisms": [statements]})
    allowed = {}
    for number, candidate in policies.items():
        enforced = enforce(candidate)
        allowed[number] = decide(enforced, None, resolve_or_reject(request, enforced)).allowed
    assert allowed == {1: False, 2: False, 3: True}
    for old in policies:
        for new in policies:
            assert only_tightens(policies[old], policies[new]) == (old == new)


def test_an_additional_rule_can_allow_an_uncovered_release() -> None:
    """A new rule can cover a release that was uncovered before, so it is not tighter."""
    assert not started(ZIPS).check(pure("a", "0.5", "views")).allowed
    assert started(ZIPS, GLOBAL).check(pure("a", "0.5", "views")).allowed


def test_a_predicate_without_a_rule_denies() -> None:
    """The label `team` is missing, so the setting `ads` has no answer."""
    assert not started(GLOBAL, each=TEAMS).check(pure("a", "0.5", "views")).allowed
    assert started(GLOBAL).check(pure("a", "0.5", "views")).allowed


def test_a_division_by_zero_denies() -> None:
    assert not started(GLOBAL, DIVISION % "{epsilon: 2}").check(pure("a", "0.5", "views")).allowed
    assert started(GLOBAL).check(pure("a", "0.5", "views")).allowed


def test_a_witness_that_counts_fewer_records_can_allow_more() -> None:
    """A record may match the pruned rule, so its witness is charged. Then the rule is kept."""
    old, new = LOOSER["a pruned rule without its witness, which counts records for it"]
    answers = []
    for candidate in (old, new):
        assert candidate is not None
        point = started(head=HEAD.replace("[ads, maps]", "[ads, maps, mail]"))
        past, request = pure("past", "0.9", "views"), pure("a", "0.5", "zip")
        past["mechanisms"][0]["labels"] = {"team": "mail"}
        request["mechanisms"][0]["labels"] = {"team": "maps"}
        point.import_past(past)
        point.apply(candidate, accept=["label team"])
        answers.append(point.check(request).allowed)
    assert answers == [False, True]


def test_a_cover_by_two_rules_can_allow_more() -> None:
    """Imported releases exceed one rule of the cover, and a release of the other is still allowed.

    So a bound that several rules imply from an empty ledger is no reason to accept a change.
    """
    old, new = LOOSER["a cover by two rules"]
    answers = []
    for candidate in (old, new):
        assert candidate is not None
        point = started()
        point.import_past(pure("past", "1.9", "zip"))
        accepted = [conflict.rule.name for conflict in exceeded_rules(point, candidate)]
        point.apply(candidate, accept=accepted)
        answers.append(point.check(pure("a", "0.5", "views")).allowed)
    assert answers == [False, True]
