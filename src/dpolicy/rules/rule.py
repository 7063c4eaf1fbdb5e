"""Rules, and the rules of one section as a product: base rules × settings of each extension.

A rule is a scope, a unit and a budget (paper, section 4). A section can have a million rules, so
`RuleProduct` stores the factors and builds a `Rule` only on access.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, overload

from dpolicy.predicates.expression import Predicate
from dpolicy.privacy.budget import Budget, budget_to_json, format_budget
from dpolicy.privacy.thresholds import BudgetBound, Profile
from dpolicy.text.summaries import html_line, one_line
from dpolicy.text.yaml_reader import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Separator of the factors in a rule name.
TIMES = " × "


@dataclass(frozen=True, slots=True)
class BaseRule:
    """A rule before any extension: one scope of a base policy, for one unit.

    `subject` is the attribute or category, `level` the membership level of a category, and `risk`
    the risk level of the subject; they are empty if there is none.
    """

    name: str
    policy: str
    predicate: Predicate
    unit: str
    budget: Budget
    profile: Profile
    span: Span
    subject: str = ""
    level: str = ""
    risk: str = ""


@dataclass(frozen=True, slots=True)
class SettingFactor:
    """One setting of an extension, as a factor of rules."""

    extension: str
    name: str
    predicate: Predicate
    below: tuple[str, ...]
    span: Span


#: The settings of one extension.
SettingAxis = tuple[SettingFactor, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Bound on the composed loss of all mechanisms in a scope, for one privacy unit."""

    number: int
    base: BaseRule
    settings: tuple[SettingFactor, ...]
    budget: Budget
    bound: BudgetBound
    each_release: bool

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return one_line(self, self.name, f"unit {self.unit}", format_budget(self.budget))

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    @property
    def name(self) -> str:
        """Names of the base rule and the settings; the unit is not part of the name."""
        return TIMES.join((self.base.name, *(setting.name for setting in self.settings)))

    @property
    def unit(self) -> str:
        """Name of the privacy unit."""
        return self.base.unit

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """Predicates of the scope; a mechanism is in the scope if it matches all of them."""
        return (self.base.predicate, *(setting.predicate for setting in self.settings))

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the base policy and of the settings, as `extension/setting`."""
        parts = (f"{setting.extension}/{setting.name}" for setting in self.settings)
        return (self.base.policy, *parts)

    @property
    def sources(self) -> tuple[Span, ...]:
        """Positions of the base policy and of the settings in the policy text."""
        return (self.base.span, *(setting.span for setting in self.settings))


@dataclass(frozen=True, slots=True, eq=False)
class RuleProduct(Sequence[Rule]):
    """All rules of a section. Rule `n` is base rule `n // width` under the settings `n % width`."""

    bases: tuple[BaseRule, ...]
    axes: tuple[SettingAxis, ...]
    budgets: tuple[Budget, ...]
    profiles: tuple[Profile, ...]
    bounds: tuple[BudgetBound, ...]
    budget_numbers: NDArray[np.int32]
    bound_numbers: NDArray[np.int32]
    each_release: bool
    #: Number of rules for each base rule.
    width: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", prod(len(axis) for axis in self.axes))

    def __len__(self) -> int:
        return len(self.bases) * self.width

    def settings_at(self, combination: int) -> tuple[SettingFactor, ...]:
        """Return one setting per extension; `combination` counts with the last axis fastest."""
        settings = []
        for axis in reversed(self.axes):
            combination, position = divmod(combination, len(axis))
            settings.append(axis[position])
        return tuple(reversed(settings))

    @overload
    def __getitem__(self, number: int) -> Rule: ...
    @overload
    def __getitem__(self, number: slice) -> list[Rule]: ...
    def __getitem__(self, number: int | slice) -> Rule | list[Rule]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        base, combination = divmod(number, self.width)
        return Rule(
            number=number,
            base=self.bases[base],
            settings=self.settings_at(combination),
            budget=self.budgets[self.budget_numbers[number]],
            bound=self.bounds[self.bound_numbers[number]],
            each_release=self.each_release,
        )

    def __iter__(self) -> Iterator[Rule]:
        return (self[number] for number in range(len(self)))


def rule_to_json(rule: Rule, witness: Rule | None) -> dict[str, object]:
    """Return the JSON of a rule; `witness` is the kept rule that implies a pruned one."""
    return {
        "name": rule.name,
        "unit": rule.unit,
        "budget": budget_to_json(rule.budget),
        "kept": witness is None,
        "implied-by": None if witness is None else witness.name,
        "implied-by-unit": None if witness is None else witness.unit,
        "each-release": rule.each_release,
        "policies": list(rule.policies),
        "source": [str(span) for span in rule.sources],
    }
