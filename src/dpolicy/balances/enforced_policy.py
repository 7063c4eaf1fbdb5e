"""A compiled policy, prepared for enforcement: bounds, displays and granularities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances
from dpolicy.balances.loss_display import LossFormatter, certificates_for_display, loss_formatter
from dpolicy.balances.partition_space import RuleGranularities, granularities_for
from dpolicy.privacy.certificates import PURE, Certificate
from dpolicy.privacy.filter import BoundArrays, build_bound_arrays
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import loss_width
from dpolicy.releases.regions import Box
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection


@dataclass(frozen=True, slots=True, eq=False)
class EnforcedSection:
    """A section laid out for decisions: by number of bound, of budget, and of base scope."""

    compiled: CompiledSection
    certificates: Certificates
    bounds: BoundArrays
    formatters: tuple[LossFormatter, ...]
    unit_of_base: NDArray[np.intp]
    granularities: RuleGranularities

    def bounds_for(self, numbers: NDArray[np.intp]) -> BoundArrays:
        """What the losses of rules must stay within."""
        return self.bounds[self.compiled.rules.bound_numbers[numbers]]

    def unit_positions(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """The positions of the units of rules."""
        return self.unit_of_base[numbers // self.compiled.rules.width]

    @property
    def full_extent(self) -> Box:
        """The whole extent of each axis."""
        return self.granularities.space.box

    def empty_balances(self) -> Balances:
        """The balances before the first release."""
        return Balances.zero(self.granularities, loss_width(self.certificates))

    def formatter_for(self, number: int) -> LossFormatter:
        """How the losses of a rule are told."""
        return self.formatters[int(self.compiled.rules.budget_numbers[number])]


@lru_cache(maxsize=64)
def certificates_for(policy: CompiledPolicy) -> Certificates:
    """The certificates in which losses are kept under a policy."""
    used: set[Certificate] = {PURE}
    orders = policy.policy_set.accounting.orders
    for section in policy.sections:
        rules = section.rules
        used |= {c for bound in rules.bounds for clause in bound.clauses for c, _ in clause}
        for budget, profile in zip(rules.budgets, rules.profiles, strict=True):
            used |= set(certificates_for_display(budget, profile, orders))
    return tuple(sorted(used))


@lru_cache(maxsize=64)
def enforced_sections(policy: CompiledPolicy) -> tuple[EnforcedSection, EnforcedSection]:
    """Both sections, laid out once: over all releases, and for each release."""
    certificates, orders = certificates_for(policy), policy.policy_set.accounting.orders
    units = list(policy.checked_policy_set.vocabulary.units)

    def lay_out(section: CompiledSection) -> EnforcedSection:
        rules = section.rules
        return EnforcedSection(
            section,
            certificates,
            build_bound_arrays(rules.bounds, certificates),
            tuple(
                loss_formatter(budget, profile, orders, certificates)
                for budget, profile in zip(rules.budgets, rules.profiles, strict=True)
            ),
            np.array([units.index(base.unit) for base in rules.bases], dtype=np.intp),
            granularities_for(policy, rules),
        )

    return lay_out(policy.cumulative), lay_out(policy.each_release)
