"""Accounting defaults: what a policy that states nothing else is accounted by, by version.

A recorded policy keeps its meaning: the ledger records the number of the defaults beside the text
of a policy, and a later version that changes a default adds a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.mechanisms.cost_rules import NEWEST_RULES, CostRules
from dpolicy.privacy.thresholds import DEFAULT_LEAKS, LEAKS_OF_VERSION_0_2, Profile


@dataclass(frozen=True, slots=True)
class AccountingDefaults:
    """Defaults with one number.

    `leaks` is the share of δ for stated leaks under all profiles except `classic`. `profile` is the
    profile of policies that state none. With `has_ladder`, the anchor of `anchored` is an order of
    the ladder and has three quarters of the mass; without, it is α* itself and has half of it.
    `cost_rules` is the version of the bounds by which mechanisms are charged. With
    `exact_releases`, per-release rules also accept what a loss distribution certifies.
    """

    number: int
    leaks: Fraction
    profile: Profile = Profile.CLASSIC
    has_ladder: bool = False
    cost_rules: CostRules = CostRules.FIRST
    exact_releases: bool = False


#: The defaults of records without a number, which versions before 0.3 wrote.
FIRST_DEFAULTS = AccountingDefaults(1, LEAKS_OF_VERSION_0_2)

#: The defaults of records that the first versions with recorded meanings wrote.
SECOND_DEFAULTS = AccountingDefaults(2, DEFAULT_LEAKS)

#: The defaults of the policy language of this version.
NEWEST_DEFAULTS = AccountingDefaults(
    3,
    DEFAULT_LEAKS,
    Profile.ANCHORED,
    has_ladder=True,
    cost_rules=NEWEST_RULES,
    exact_releases=True,
)

#: All defaults by number.
DEFAULTS: Mapping[int, AccountingDefaults] = {
    defaults.number: defaults for defaults in (FIRST_DEFAULTS, SECOND_DEFAULTS, NEWEST_DEFAULTS)
}
