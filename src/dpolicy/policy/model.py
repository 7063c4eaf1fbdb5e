"""What a policy text says, as frozen values: every name remembers where it stands.

Spans never take part in equality, so two texts that say the same are equal, and
`parse(format(x)) == x`. Nothing here is resolved yet: `checker.py` looks names up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dpolicy.privacy.thresholds import DEFAULT_ORDERS, Profile
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.text.yaml_reader import LocatedText, Span

DEFAULT_RISK_LEVELS = ("low", "medium", "high")
DEFAULT_MEMBERSHIP_LEVELS = ("member", "strong", "weak")

#: A rule product past this is refused unless the policy raises it: 100 bytes a rule is 200 MB.
DEFAULT_MAX_RULES = 2_000_000


@dataclass(frozen=True, slots=True)
class Collapse:
    """Time steps that ended so many months ago are kept together, in blocks of a longer period."""

    after: int
    into: str


@dataclass(frozen=True, slots=True)
class Accounting:
    """How losses are counted in this deployment."""

    delta: Fraction | None = None
    profile: Profile = Profile.CLASSIC
    orders: tuple[Fraction, ...] = DEFAULT_ORDERS
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE
    require_additive: bool = False
    allow_uncovered: bool = False
    max_rules: int = DEFAULT_MAX_RULES
    collapse: Collapse | None = None


@dataclass(frozen=True, slots=True)
class UnitStatement:
    """A privacy unit: whose data (`of`), how much of it (`period`), and what it covers."""

    period: str | None = None
    of: LocatedText | None = None
    covers: tuple[LocatedText, ...] = ()
    relation: NeighbouringRelation | None = None


@dataclass(frozen=True, slots=True)
class Category:
    """A group of attributes that say something together."""

    risk: LocatedText | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of the data: its risk, and the categories it belongs to at each level."""

    risk: LocatedText | None = None
    memberships: Mapping[LocatedText, tuple[LocatedText, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelStatement:
    """A label of releases: a choice of values, or any text."""

    values: tuple[LocatedText, ...] | None = None
    text: bool = False
    many: bool = False
    default: LocatedText | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """What splits privacy units into blocks: listed values, or a range of whole numbers.

    Each unit named by `of` has one value; without it, the smallest unit that there is.
    """

    values: tuple[LocatedText, ...] | None = None
    first: int | None = None
    last: int | None = None
    stable: bool = True
    of: LocatedText | None = None


@dataclass(frozen=True, slots=True)
class BudgetStatement:
    """A budget as written; an ε without δ takes the δ of the accounting."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None
    mu: Fraction | None = None
    renyi: tuple[tuple[Fraction, Fraction], ...] | None = None
    unlimited: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Same:
    """The budget as it is."""


@dataclass(frozen=True, slots=True)
class Times:
    """The budget, multiplied."""

    factor: Fraction
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Plus:
    """The budget, raised by an amount."""

    amount: Fraction
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Through:
    """Straight lines through points; beyond the last ones only if `extend`."""

    points: tuple[tuple[Fraction, Fraction], ...]
    extend: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cel:
    """A CEL expression over `budget`."""

    text: LocatedText
    span: Span = field(compare=False, repr=False)


BudgetFunction = Same | Times | Plus | Through | Cel


@dataclass(frozen=True, slots=True)
class CustomPolicy:
    """One scope, written as a predicate."""

    name: LocatedText
    when: LocatedText
    units: tuple[LocatedText, ...]
    budget: BudgetStatement
    below: tuple[LocatedText, ...]
    profile: LocatedText | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AttributePolicy:
    """One scope for each attribute, with a budget by risk level."""

    name: LocatedText
    units: tuple[LocatedText, ...]
    budgets: Mapping[LocatedText, BudgetStatement]
    exceptions: Mapping[LocatedText, BudgetStatement]
    profile: LocatedText | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CategoryPolicy:
    """One scope for each category and membership level, with a budget by risk level."""

    name: LocatedText
    units: tuple[LocatedText, ...]
    budgets: Mapping[LocatedText, BudgetStatement]
    levels: Mapping[LocatedText, BudgetFunction]
    exceptions: Mapping[LocatedText, BudgetStatement]
    profile: LocatedText | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """One context of an extension and what it does to budgets."""

    name: LocatedText
    when: LocatedText
    function: BudgetFunction
    below: tuple[LocatedText, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Extension:
    """Turns every rule into one rule for each setting."""

    name: LocatedText
    settings: tuple[Setting, ...]
    span: Span = field(compare=False, repr=False)


BasePolicy = CustomPolicy | AttributePolicy | CategoryPolicy
Policy = BasePolicy | Extension

#: The word that matches every mechanism.
ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Everything that the files of a policy set say."""

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
    """The policies of a section that make rules of their own."""
    return [policy for policy in section if not isinstance(policy, Extension)]


def extensions(section: tuple[Policy, ...]) -> list[Extension]:
    """The policies of a section that multiply rules, in the order they apply."""
    return [policy for policy in section if isinstance(policy, Extension)]
