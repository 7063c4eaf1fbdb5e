"""Writes the policy set of scenario S2: python make_scope.py [TOTAL] > scope/policy.yaml

The paper gives the distribution of the schema, not the schema. It is drawn here from a fixed seed,
with `random()` only, which gives the same numbers in every version of Python.
"""

from __future__ import annotations

import sys
from random import Random

SEED = 2025
ATTRIBUTES, CATEGORIES = 150, 10
CATEGORY_RISKS = ("low",) * 5 + ("medium",) * 4 + ("high",)
#: After the category it is a member of an attribute has at least one more, and goes on like this.
CONTINUE = 0.6
ZIPF_EXPONENT = 0.1

ATTRIBUTE_BUDGETS = {"low": 20, "medium": 9, "high": 3}
CATEGORY_BUDGETS = {"low": 12, "medium": 10, "high": 5}


def main() -> None:
    """Print the policy set for the total budget on the command line, 10 if there is none."""
    sys.stdout.write(scope_policy(int(sys.argv[1]) if len(sys.argv) > 1 else 10))


def scope_policy(total: int) -> str:
    """The policy text for one total budget, in canonical layout."""
    draw = Random(SEED)
    risks = _risks(draw)
    attributes = "\n".join(
        f"    a{number:03}: {{risk: {risk}, {_memberships(draw)}}}"
        for number, risk in enumerate(risks)
    )
    categories = "\n".join(f"    c{n}: {{risk: {risk}}}" for n, risk in enumerate(CATEGORY_RISKS))
    return TEMPLATE.format(
        total=total,
        categories=categories,
        attributes=attributes,
        attribute_budgets=_budgets(ATTRIBUTE_BUDGETS, total),
        category_budgets=_budgets(CATEGORY_BUDGETS, total),
    )


def _risks(draw: Random) -> list[str]:
    """Of every ten attributes eight are low, one medium and one high, somewhere among the ten."""
    risks = []
    for _ in range(ATTRIBUTES // 10):
        ten = ["low"] * 8
        ten.insert(int(draw.random() * 9), "medium")
        ten.insert(int(draw.random() * 10), "high")
        risks += ten
    return risks


def _memberships(draw: Random) -> str:
    """Member of the first category drawn; strongly or weakly tied to the others, half each."""
    categories = _categories(draw)
    ties: dict[str, list[int]] = {"member": categories[:1], "strong": [], "weak": []}
    for category in categories[1:]:
        ties["strong" if draw.random() < 0.5 else "weak"].append(category)
    return ", ".join(
        f"{level}: [{', '.join(f'c{n}' for n in sorted(found))}]"
        for level, found in ties.items()
        if found
    )


def _categories(draw: Random) -> list[int]:
    """Different categories, the n-th with a weight of 1 / n^0.1."""
    size = 2
    while size < CATEGORIES and draw.random() < CONTINUE:
        size += 1
    left = list(range(CATEGORIES))
    return [left.pop(_position(left, draw)) for _ in range(size)]


def _position(left: list[int], draw: Random) -> int:
    """The place in the list that a random point of its summed weights falls on."""
    weights = [1 / (number + 1) ** ZIPF_EXPONENT for number in left]
    point = draw.random() * sum(weights)
    for position, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return position
    return len(left) - 1


def _budgets(by_risk: dict[str, int], total: int) -> str:
    """No scope has more than everything together."""
    parts = (f"{risk}: {{epsilon: {min(most, total)}}}" for risk, most in by_risk.items())
    return f"{{{', '.join(parts)}}}"


TEMPLATE = """\
# Scenario S2 of the paper at ε_t = {total}. Written by make_scope.py; change that, not this.
dpolicy: 1
name: paper-scope

accounting:
  delta: 1e-7
  relation: add-remove

units:
  user: {{}}

schema:
  categories:
{categories}
  attributes:
{attributes}
  # Users are split into slots; a release reads some of them.
  partitions:
    slot: {{from: 0, to: 204799}}

policies:
  - name: global
    kind: custom
    when: always
    unit: user
    budget: {{epsilon: {total}}}

  # At most 20, 9 and 3, and never more than everything together.
  - name: per-attribute
    kind: attribute
    unit: user
    budgets: {attribute_budgets}

  # At most 12, 10 and 5, and never more than everything together.
  - name: per-category
    kind: category
    unit: user
    budgets: {category_budgets}
    levels: {{strong: {{times: 1.5}}, weak: {{times: 2}}}}
"""


if __name__ == "__main__":
    main()
