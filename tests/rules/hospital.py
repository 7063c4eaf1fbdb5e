"""Policy of a hospital at real size: 60 attributes, 8 categories, 3 units and 2 extensions.

The numbers of attributes and categories are those of a user's policy; names and memberships are
drawn by fixed arithmetic.
"""

from __future__ import annotations

from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

CATEGORIES = {
    "diagnosis": "high",
    "genetics": "high",
    "mental-health": "high",
    "medication": "medium",
    "location": "medium",
    "insurance": "medium",
    "demographics": "low",
    "operations": "low",
}


def hospital_text(high: float = 1, category_high: float = 2) -> str:
    """Return the policy text; the arguments are the ε of attributes and categories at high risk."""
    categories = "".join(f"    {name}: {{risk: {risk}}}\n" for name, risk in CATEGORIES.items())
    attributes = "".join(_attribute_line(number) for number in range(60))
    return f"""\
dpolicy: 1
name: hospital
accounting: {{delta: 1e-8, relation: add-remove}}
units:
  patient: {{}}
  patient-month: {{period: month}}
  patient-day: {{period: day}}
schema:
  categories:
{categories}  attributes:
{attributes}  labels:
    deployment: {{values: [internal, public], default: internal}}
    stage: {{values: [final, tuning], default: final}}
policies:
  - name: everything
    kind: custom
    when: always
    units: [patient, patient-month, patient-day]
    budget: {{epsilon: 6}}
  - name: per-attribute
    kind: attribute
    unit: patient
    budgets: {{low: {{epsilon: 2.5}}, medium: {{epsilon: 1.5}}, high: {{epsilon: {high}}}}}
  - name: per-category
    kind: category
    unit: patient
    budgets: {{low: {{epsilon: 5}}, medium: {{epsilon: 3}}, high: {{epsilon: {category_high}}}}}
    levels: {{strong: {{times: 1.25}}, weak: {{times: 1.5}}}}
  - name: deployment
    kind: extension
    settings:
      - {{name: public, when: 'labels.deployment == "public"', budget: same}}
      - {{name: any, when: always, budget: {{times: 2}}}}
  - name: stage
    kind: extension
    settings:
      - {{name: final, when: 'labels.stage == "final"', budget: same}}
      - {{name: with-tuning, when: always, budget: {{times: 1.5}}}}
each-release:
  - {{name: release-cap, kind: custom, when: always, unit: patient-month, budget: {{epsilon: 1}}}}
"""


def _attribute_line(number: int) -> str:
    names = list(CATEGORIES)
    member, strong, weak = (names[(number * step + step) % 8] for step in (1, 3, 5))
    risk = "high" if number % 5 == 0 else "medium" if number % 5 in (1, 2) else "low"
    tie = f", strong: [{strong}]" if number % 3 == 0 and strong != member else ""
    tie += f", weak: [{weak}]" if number % 4 == 0 and weak not in (member, strong) else ""
    return f"    field-{number:02}: {{risk: {risk}, member: [{member}]{tie}}}\n"


def compile_hospital(high: float = 1, category_high: float = 2) -> CompiledPolicy:
    """Return the compiled policy."""
    return compile_policy([Source("hospital.yaml", hospital_text(high, category_high))])
