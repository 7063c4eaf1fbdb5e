"""Policy model: the parsed content of a policy set, before names are resolved.

Spans do not take part in equality, so two texts with the same content are equal, and
`parse(format(x)) == x`. `checker.py` resolves the names. The policy digest hashes the names of
these classes and fields, so they must not change. A field that was added later is `IF_STATED`: the
digest of a policy that does not state it stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS, AccountingDefaults
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.shares.anchored_shares import anchored_shares
from dpolicy.privacy.shares.chains import DeltaShares
from dpolicy.privacy.thresholds import DEFAULT_ORDERS, Profile
from dpolicy.privacy.units.calendar import Period, PeriodKind
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.text.yaml_reader import LocatedText, Span

DEFAULT_RISK_LEVELS = ("low", "medium", "high")
DEFAULT_MEMBERSHIP_LEVELS = ("member", "strong", "weak")

#: Metadata of a field that the digest contains only if its value is not None.
IF_STATED = MappingProxyType({"digest": "if stated"})

#: Default of `max-rules`: 200 MB at 100 bytes per rule.
DEFAULT_MAX_RULES = 2_000_000


@dataclass(frozen=True, slots=True)
class Collapse:
    """Merging of time steps: steps that ended `after` months ago become steps of period `into`."""

    after: int
    into: str

    @property
    def period(self) -> Period:
        """The period of the merged time steps."""
        return Period(PeriodKind(self.into))


@dataclass(frozen=True, slots=True)
class TypicalMechanism:
    """Mechanism that thresholds are tuned for, with its weight in the mix."""

    parameters: Mapping[str, object]
    weight: Fraction
    mechanism: Mechanism = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Accounting:
    """Accounting options of a policy set.

    `profile` is the stated profile, `classic` if the text states none: the digest of a text without
    a profile does not depend on the defaults. `keeps_classic` is True if the text states `classic`
    and the defaults have another profile; `used_profile` is what applies. `leaks` is the share of δ
    for stated leaks. Without it, the share of `defaults` applies to all profiles except
    `classic`.
    `defaults` are not part of the content, but of the version that recorded the policy. `tuned` are
    the shares of δ that follow from `tuned_for` and the budgets of the policy set.
    """

    delta: Fraction | None = None
    profile: Profile = Profile.CLASSIC
    orders: tuple[Fraction, ...] = DEFAULT_ORDERS
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE
    require_additive: bool = False
    allow_uncovered: bool = False
    max_rules: int = DEFAULT_MAX_RULES
    collapse: Collapse | None = None
    leaks: Fraction | None = field(default=None, metadata=IF_STATED)
    keeps_classic: bool | None = field(default=None, metadata=IF_STATED)
    tuned_for: tuple[TypicalMechanism, ...] | None = field(default=None, metadata=IF_STATED)
    tuned: DeltaShares | None = field(default=None, compare=False, repr=False)
    defaults: AccountingDefaults = field(default=NEWEST_DEFAULTS, compare=False)

    @property
    def used_profile(self) -> Profile:
        """The profile of policies that state none."""
        is_stated = self.profile is not Profile.CLASSIC or self.keeps_classic
        return self.profile if is_stated else self.defaults.profile

    def leaks_for(self, profile: Profile) -> Fraction | None:
        """Return the share of δ for stated leaks; None is what the weights of `classic` leave."""
        if self.leaks is not None or profile is Profile.CLASSIC:
            return self.leaks
        return self.defaults.leaks

    def shares_for(self, profile: Profile) -> DeltaShares | None:
        """Return the shares of δ of the orders; None is the split of the profile by the grid."""
        if profile is not Profile.ANCHORED:
            return None
        if self.tuned is not None:
            return self.tuned
        return anchored_shares(self.orders) if self.defaults.has_ladder else None


@dataclass(frozen=True, slots=True)
class UnitStatement:
    """Privacy unit: its entity (`of`), its period, and the units that it covers."""

    period: str | None = None
    of: LocatedText | None = None
    covers: tuple[LocatedText, ...] = ()
    relation: NeighbouringRelation | None = None


@dataclass(frozen=True, slots=True)
class Category:
    """Group of attributes with a risk level."""

    risk: LocatedText | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    """Column of the data: its risk level, and its categories by membership level."""

    risk: LocatedText | None = None
    memberships: Mapping[LocatedText, tuple[LocatedText, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelStatement:
    """Label of mechanisms: one of `values`, or any text."""

    values: tuple[LocatedText, ...] | None = None
    text: bool = False
    many: bool = False
    default: LocatedText | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """Dimension that splits privacy units into blocks: values, or a range of whole numbers.

    All data of one member of the entity `of` has one value, for all time. The default is the
    smallest entity.
    """

    values: tuple[LocatedText, ...] | None = None
    first: int | None = None
    last: int | None = None
    stable: bool = True
    of: LocatedText | None = None


@dataclass(frozen=True, slots=True)
class BudgetStatement:
    """Budget as written. An ε without δ uses the δ of `accounting`."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None
    mu: Fraction | None = None
    renyi: tuple[tuple[Fraction, Fraction], ...] | None = None
    unlimited: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Same:
    """Budget function that returns the budget unchanged."""


@dataclass(frozen=True, slots=True)
class Times:
    """Budget function that multiplies the budget."""

    factor: Fraction
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Plus:
    """Budget function that adds an amount, which can be negative."""

    amount: Fraction
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Through:
    """Piecewise linear budget function; `extend` extrapolates outside the points."""

    points: tuple[tuple[Fraction, Fraction], ...]
    extend: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cel:
    """Budget function written as a CEL expression over `budget`."""

    text: LocatedText
    span: Span = field(compare=False, repr=False)


BudgetFunction = Same | Times | Plus | Through | Cel


@dataclass(frozen=True, slots=True)
class CustomPolicy:
    """Policy with one scope, written as a predicate."""

    name: LocatedText
    when: LocatedText
    units: tuple[LocatedText, ...]
    budget: BudgetStatement
    below: tuple[LocatedText, ...]
    profile: LocatedText | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AttributePolicy:
    """Policy with one scope per attribute and a budget per risk level."""

    name: LocatedText
    units: tuple[LocatedText, ...]
    budgets: Mapping[LocatedText, BudgetStatement]
    exceptions: Mapping[LocatedText, BudgetStatement]
    profile: LocatedText | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CategoryPolicy:
    """Policy with one scope per category and membership level, and a budget per risk level."""

    name: LocatedText
    units: tuple[LocatedText, ...]
    budgets: Mapping[LocatedText, BudgetStatement]
    levels: Mapping[LocatedText, BudgetFunction]
    exceptions: Mapping[LocatedText, BudgetStatement]
    profile: LocatedText | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of an extension: a scope and the function that it applies to budgets."""

    name: LocatedText
    when: LocatedText
    function: BudgetFunction
    below: tuple[LocatedText, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Extension:
    """Policy that replaces every rule by one rule per setting."""

    name: LocatedText
    settings: tuple[Setting, ...]
    span: Span = field(compare=False, repr=False)


BasePolicy = CustomPolicy | AttributePolicy | CategoryPolicy
Policy = BasePolicy | Extension

#: Keyword of the predicate that matches every mechanism.
ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Content of all files of a policy set."""

    name: str | None
    accounting: Accounting
    units: Mapping[LocatedText, UnitStatement]
    risk_levels: tuple[str, ...]
    membership_levels: tuple[str, ...]
    categories: Mapping[LocatedText, Category]
    attributes: Mapping[LocatedText, Attribute]
    labels: Mapping[LocatedText, LabelStatement]
    partitions: Mapping[LocatedText, Partition]
    policies: tuple[Policy, ...]
    each_release: tuple[Policy, ...]


def base_policies(section: tuple[Policy, ...]) -> list[BasePolicy]:
    """Return the base policies of a section."""
    return [policy for policy in section if not isinstance(policy, Extension)]


def extensions(section: tuple[Policy, ...]) -> list[Extension]:
    """Return the extensions of a section, in the order in which they apply."""
    return [policy for policy in section if isinstance(policy, Extension)]
