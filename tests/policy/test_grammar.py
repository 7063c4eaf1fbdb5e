"""Grammar: every key of the language, with values of every wrong type."""

from __future__ import annotations

import pytest
from tests.policy.diagnose import diagnose, error_codes

SETTING, ALL, SAME = "{name: a, when: always, budget: same}", "always", "same"

#: Every key of a policy text, with `?` for its value, and a valid value.
VALID_VALUES = {
    "dpolicy: ?": "1",
    "name: ?": "x",
    "accounting: ?": "{}",
    "accounting: {delta: ?}": "1e-7",
    "accounting: {profile: ?}": "classic",
    "accounting: {orders: ?}": "[2, 8]",
    "accounting: {orders: [2, ?]}": "8",
    "accounting: {relation: ?}": "change",
    "accounting: {require: ?}": "additive",
    "accounting: {uncovered: ?}": "allow",
    "accounting: {max-rules: ?}": "100",
    "units: ?": "{user: {}}",
    "units: {user: ?}": "{}",
    "units: {user: {period: ?}}": "month",
    "units: {user: {}, month: {period: month, of: ?}}": "user",
    "units: {user: {}, home: {covers: ?}}": "[user]",
    "units: {user: {}, home: {covers: [?]}}": "user",
    "units: {user: {relation: ?}}": "add-remove",
    "schema: ?": "{}",
    "schema: {risk-levels: ?}": "[a, b]",
    "schema: {membership-levels: [?]}": "a",
    "schema: {categories: ?}": "{}",
    "schema: {attributes: ?}": "{}",
    "schema: {attributes: {a: {risk: ?}}}": "low",
    "schema: {categories: {c: {risk: ?}}, attributes: {a: {weak: [c]}}}": "low",
    "schema: {categories: {c: {}}, attributes: {a: {member: ?}}}": "[c]",
    "schema: {labels: ?}": "{}",
    "schema: {labels: {l: ?}}": "{text: true}",
    "schema: {labels: {l: {values: ?}}}": "[a, b]",
    "schema: {labels: {l: {values: [a], default: ?}}}": "a",
    "schema: {labels: {l: {text: ?}}}": "true",
    "schema: {labels: {l: {values: [a], many: ?}}}": "true",
    "schema: {labels: {l: {values: [a], required: ?}}}": "false",
    "schema: {partitions: ?}": "{}",
    "schema: {partitions: {p: ?}}": "{values: [a]}",
    "schema: {partitions: {p: {values: ?}}}": "[a]",
    "schema: {partitions: {p: {from: ?, to: 9}}}": "0",
    "schema: {partitions: {p: {values: [a], stable: ?}}}": "false",
    "policies: ?": "[]",
    "policies: [?]": "{name: p, kind: custom, when: always, unit: user, budget: unlimited}",
    "policies: [{name: ?, kind: custom, when: always, unit: user, budget: unlimited}]": "p",
    "policies: [{name: p, kind: ?, when: always, unit: user, budget: unlimited}]": "custom",
    "policies: [{name: p, kind: custom, when: ?, unit: user, budget: unlimited}]": "always",
    "policies: [{name: p, kind: custom, when: always, unit: ?, budget: unlimited}]": "user",
    "policies: [{name: p, kind: custom, when: always, units: ?, budget: unlimited}]": "[user]",
    "policies: [{name: p, kind: custom, when: always, unit: user, budget: ?}]": "{rho: 1}",
    "policies: [{name: p, kind: custom, when: always, unit: user, budget: {mu: ?}}]": "1",
    "policies: [{name: p, kind: custom, when: always, unit: user, budget: {renyi: ?}}]": "{2: 1}",
    "policies: [{name: p, kind: custom, when: always, unit: user, budget: {renyi: {2: ?}}}]": "1",
    "policies: [{name: p, kind: attribute, unit: user, budgets: ?}]": "{low: {rho: 1}}",
    "policies: [{name: p, kind: attribute, unit: user, budgets: {low: ?}}]": "{rho: 1}",
    "policies: [{name: p, kind: attribute, unit: user, except: ?}]": "{}",
    "policies: [{name: p, kind: category, unit: user, levels: ?}]": "{weak: {times: 2}}",
    "policies: [{name: p, kind: category, unit: user, levels: {weak: ?}}]": "{times: 2}",
    "policies: [{name: p, kind: category, unit: user, levels: {weak: {times: ?}}}]": "2",
    "policies: [{name: p, kind: category, unit: user, levels: {weak: {plus: ?}}}]": "2",
    "policies: [{name: p, kind: category, unit: user, levels: {weak: {cel: ?}}}]": "'1.0'",
    "policies: [{name: e, kind: extension, settings: ?}]": f"[{SETTING}]",
    "policies: [{name: e, kind: extension, settings: [?]}]": SETTING,
    "policies: [{name: e, kind: extension, settings: [{name: a, when: ?, budget: same}]}]": ALL,
    "policies: [{name: e, kind: extension, settings: [{name: a, when: always, budget: ?}]}]": SAME,
    "each-release: ?": "[]",
}

VALUES = {
    "nothing": "~",
    "flag": "true",
    "number": "-7.25",
    "infinity": ".inf",
    "text": "some-text",
    "accent": "é",
    "list": "[[1]]",
    "map": "{some-key: 1}",
    "zero": "010",
}


def policy(key: str, value: str) -> str:
    head = "" if key.startswith("dpolicy") else "dpolicy: 1\n"
    return f"{head}{key.replace('?', value)}\n"


@pytest.mark.parametrize("key", VALID_VALUES)
def test_a_valid_value_is_accepted(key: str) -> None:
    assert error_codes(policy(key, VALID_VALUES[key])) == []


@pytest.mark.parametrize("key", VALID_VALUES)
def test_wrong_values_are_reported_at_their_position(key: str) -> None:
    rejected = 0
    for value in VALUES.values():
        problems = [d for d in diagnose(policy(key, value)) if d.code < "P100"]
        rejected += bool(problems)
        assert len(problems) <= 3, [str(d) for d in problems]
        for diagnostic in problems:
            assert diagnostic.span.line == policy(key, value).count("\n")
            assert "^" in str(diagnostic)
    assert rejected >= 4, "most of the values must be rejected"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dpolicy: 2", ["P009"]),
        ("dpolicy: 1.5", ["P009"]),
        ("dpolicy: '1'", ["P007"]),
        ("name: x", ["P008"]),
        ("dpolicy: 1\npolicies: [{name: p}]", ["P008"]),
        ("dpolicy: 1\npolicies: [{name: p, kind: costum}]", ["P012"]),
        ("dpolicy: 1\npolicies: [{kind: extension}]", ["P008"]),
        ("dpolicy: 1\nschema: {labels: {l: {}}}", ["P016"]),
        ("dpolicy: 1\nschema: {labels: {l: {text: true, values: [a]}}}", ["P016"]),
        ("dpolicy: 1\nschema: {labels: {l: {values: [a], many: true, default: a}}}", ["P016"]),
        ("dpolicy: 1\nschema: {labels: {l: {values: [a, a]}}}", ["P010"]),
        ("dpolicy: 1\nschema: {labels: {l: {values: []}}}", ["P007"]),
        ("dpolicy: 1\nschema: {partitions: {p: {values: [a, a]}}}", ["P010"]),
        ("dpolicy: 1\nschema: {partitions: {p: {from: 0}}}", ["P008"]),
        ("dpolicy: 1\nschema: {partitions: {p: {from: 0, to: 1.5}}}", ["P009"]),
        ("dpolicy: 1\nschema: {partitions: {p: {from: 0, to: 1e13}}}", ["P009"]),
        ("dpolicy: 1\nschema: {attributes: {a: {wek: [c]}}, categories: {c: }}", ["P024"]),
        ("dpolicy: 1\naccounting: {orders: [1]}", ["P009"]),
        ("dpolicy: 1\naccounting: {orders: [[]]}", ["P007"]),
        ("dpolicy: 1\naccounting: {profile: clasic}", ["P044"]),
        ("dpolicy: 1\nunits: {user: {covers: [usr]}}", ["P020"]),
        ("dpolicy: 1\nunits: {user: {covers: [user]}}", ["P014"]),
        ("dpolicy: 1\nunits: {user: {period: 0 days}}", ["P013"]),
        ("dpolicy: 1\nunits: {user: {period: 30 days from 2026-02-30}}", ["P013"]),
    ],
)
def test_single_errors(text: str, expected: list[str]) -> None:
    assert error_codes(f"{text}\n") == expected


CUSTOM = "dpolicy: 1\npolicies: [{{name: p, kind: custom, when: always, {}}}]\n"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("unit: user, budget: {epsilon: 1, rho: 1}", ["P008"]),
        ("unit: user, budget: {}", ["P008"]),
        ("unit: user, budget: {delta: 1e-7}", ["P008"]),
        ("unit: user, budget: {epsilon: 1, delta: 1}", ["P009"]),
        ("unit: user, budget: {epsilon: 1, delta: -1e-9}", ["P009"]),
        ("unit: user, budget: {epsilon: 1, delta: 0}", []),
        ("unit: user, budget: {rho: 1, delta: 0}", ["P006"]),
        ("unit: user, budget: unlimted", ["P012"]),
        ("unit: user, budget: {renyi: {1: 1}}", ["P009"]),
        ("unit: user, budget: {renyi: {2: 1, 2.0: 1}}", ["P004"]),
        ("unit: user, budget: {renyi: {two: 1}}", ["P007"]),
        ("budget: {rho: 1}", ["P008"]),
        ("unit: user, units: [user], budget: {rho: 1}", ["P008"]),
        ("units: [user, user], budget: {rho: 1}", ["P010"]),
        ("units: [], budget: {rho: 1}", ["P007"]),
        ("unit: user, budget: {rho: 1}, below: [q]", ["P026"]),
        ("unit: user, budget: {rho: 1}, profile: fancy", ["P044"]),
    ],
)
def test_single_errors_in_a_policy(keys: str, expected: list[str]) -> None:
    assert error_codes(CUSTOM.format(keys)) == expected


FUNCTION = """\
dpolicy: 1
policies:
  - {{name: p, kind: custom, when: always, unit: user, budget: {{rho: 1}}}}
  - {{name: q, kind: custom, when: always, unit: user, budget: {{rho: 2}}}}
  - {{name: e, kind: extension, settings: [{{name: a, when: always, budget: {}}}]}}
"""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("{times: 0}", ["P009"]),
        ("{times: 2, plus: 1}", ["P008"]),
        ("{through: [[2, 1], [1, 2]]}", ["P043"]),
        ("{through: [[1, 1], [1, 2]]}", ["P043"]),
        ("{through: [[1], [2, 2]]}", ["P007"]),
        ("{through: []}", ["P007"]),
        ("{through: [[1, 2], [2, 1]]}", ["P041"]),
        ("{through: [[1, 1], [1.5, 2]]}", ["P042"]),
        ("{through: [[1, 1], [1.5, 2]], beyond: extend}", []),
        ("{through: [[1, 1], [1.5, 2]], beyond: extnd}", ["P012"]),
        ("{cel: 'budget.rho * 2.0'}", []),
        ("{cel: '3.0 - budget.rho'}", ["P041"]),
        ("{cel: 'budget.rh * 2.0'}", ["P031"]),
        ("{cel: 'budget.rho * 2'}", ["P031"]),
        ("{cel: 'budget.rho *'}", ["P030"]),
        ("{cel: 'budget.rho > 1.0'}", ["P031"]),
        ("{cel: 'budget.rho / 0.0'}", ["P043", "P043"]),
        ("{cel: 'budget.epsilon'}", ["P043", "P043"]),
        ("{plus: -2}", ["P043"]),
        ("{times: 100000}", ["P043"]),
        ("unlimited", ["P012"]),
    ],
)
def test_single_errors_in_a_function(function: str, expected: list[str]) -> None:
    assert error_codes(FUNCTION.format(function)) == expected
