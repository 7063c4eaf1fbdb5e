"""Generator of the policy set of scenario S2: python make_scope.py [TOTAL] > scope/policy.yaml

The paper gives the distribution of the schema, not the schema itself. The script draws a schema
from a fixed seed. It uses only `random()`, which returns the same numbers in every Python version.
"""

from __future__ import annotations

import sys
from random import Random

SEED = 2025
ATTRIBUTES, CATEGORIES = 150, 10
CATEGORY_RISKS = ("low",) * 5 + ("medium",) * 4 + ("high",)
#: An attribute has at least two categories; each further one is added with this probability.
FURTHER_CATEGORY = 0.6
ZIPF_EXPONENT = 0.1

ATTRIBUTE_BUDGETS = {"low": 20, "medium": 9, "high": 3}
CATEGORY_BUDGETS = {"low": 12, "medium": 10, "high": 5}


def main() -> None:
    """Print the policy set for the total budget on the command line; the default is 10."""
    sys.stdout.write(scope_policy(int(sys.argv[1]) if len(sys.argv) > 1 else 10))


def scope_policy(total: int) -> str:
    """Return the text of the policy for one total budget, in canonical layout."""
    random = Random(SEED)
    risks = _draw_risks(random)
    attributes = "\n".join(
        f"    a{number:03}: {{risk: {risk}, {_draw_memberships(random)}}}"
        for number, risk in enumerate(risks)
    )
    categories = "\n".join(f"    c{n}: {{risk: {risk}}}" for n, risk in enumerate(CATEGORY_RISKS))
    return TEMPLATE.format(
        total=total,
        categories=categories,
        attributes=attributes,
        attribute_budgets=_format_budgets(ATTRIBUTE_BUDGETS, total),
        category_budgets=_format_budgets(CATEGORY_BUDGETS, total),
    )


def _draw_risks(random: Random) -> list[str]:
    """Draw the risks: of every ten attributes, eight are low, one is medium and one is high."""
    risks = []
    for _ in range(ATTRIBUTES // 10):
        ten = ["low"] * 8
        ten.insert(int(random.random() * 9), "medium")
        ten.insert(int(random.random() * 10), "high")
        risks += ten
    return risks


def _draw_memberships(random: Random) -> str:
    """Draw categories: `member` of the first; `strong` or `weak` ties to the others, half each."""
    categories = _draw_categories(random)
    ties: dict[str, list[int]] = {"member": categories[:1], "strong": [], "weak": []}
    for category in categories[1:]:
        ties["strong" if random.random() < 0.5 else "weak"].append(category)
    return ", ".join(
        f"{level}: [{', '.join(f'c{n}' for n in sorted(numbers))}]"
        for level, numbers in ties.items()
        if numbers
    )


def _draw_categories(random: Random) -> list[int]:
    """Draw distinct categories; the n-th has the weight 1 / n^0.1."""
    size = 2
    while size < CATEGORIES and random.random() < FURTHER_CATEGORY:
        size += 1
    remaining = list(range(CATEGORIES))
    return [remaining.pop(_draw_position(remaining, random)) for _ in range(size)]


def _draw_position(remaining: list[int], random: Random) -> int:
    """Draw a position in the list, in proportion to the weights of its categories."""
    weights = [1 / (number + 1) ** ZIPF_EXPONENT for number in remaining]
    point = random.random() * sum(weights)
    for position, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return position
    return len(remaining) - 1


def _format_budgets(by_risk: dict[str, int], total: int) -> str:
    """Format budgets by risk; no budget exceeds the total."""
    parts = (f"{risk}: {{epsilon: {min(budget, total)}}}" for risk, budget in by_risk.items())
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
