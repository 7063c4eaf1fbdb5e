"""The shapes of a policy text: which keys there are, what they take, and what they build.

This table is the language's only description: the reader, "did you mean", and the shipped JSON
Schema all come from it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dpolicy.language.model import (
    ALWAYS,
    Attribute,
    AttributePolicy,
    BudgetStatement,
    Category,
    CategoryPolicy,
    Cel,
    CustomPolicy,
    Extension,
    LabelStatement,
    Partition,
    Plus,
    Same,
    Setting,
    Through,
    Times,
    UnitStatement,
)
from dpolicy.language.schema_shapes import (
    ATTRIBUTE,
    COLLAPSE,
    MAX_VALUES,
    ORDERS,
    PARTITION,
    POINTS,
    RENYI,
    TOLD,
    UNIT_NAMES,
)
from dpolicy.language.shape import (
    Choice,
    Field,
    Flag,
    ListOf,
    MapOf,
    Name,
    Number,
    Record,
    Shape,
    Text,
    WordOr,
)
from dpolicy.language.source import Span, Word
from dpolicy.language.tagged import ByKey, ByTag
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units import Relation

#: No budget that means anything is near this; a slip of the decimal point often is.
ABSURD = Fraction(100_000)

AMOUNT = Number(
    "a number from 0 to 100,000",
    least=Fraction(0),
    most=ABSURD,
    help="a budget without a bound is `unlimited`",
)
DELTA = Number("a δ of at least 0 and below 1", least=Fraction(0), below=Fraction(1))
FACTOR = Number("a factor above 0 and at most 100,000", above=Fraction(0), most=ABSURD)
SHIFT = Number("a number from -100,000 to 100,000", least=-ABSURD, most=ABSURD)

#: No policy set that people maintain comes near these; what compares all pairs must stay quick.
MAX_POLICIES, MAX_SETTINGS, MAX_UNITS, MAX_LEVELS = 10_000, 1_000, 500, 100


def _statement(**names: str) -> Callable[[dict[str, Any], Span], BudgetStatement]:
    def build(values: dict[str, Any], span: Span) -> BudgetStatement:
        return BudgetStatement(**{key: values[name] for key, name in names.items()}, span=span)

    return build


BUDGET = ByKey(
    "a budget",
    {
        "epsilon": Record(
            "an ε budget",
            {
                "epsilon": Field(AMOUNT, "ε", required=True),
                "delta": Field(DELTA, "δ; 0 is pure DP"),
            },
            _statement(epsilon="epsilon", delta="delta"),
        ),
        "rho": Record(
            "a ρ budget", {"rho": Field(AMOUNT, "ρ of zCDP", required=True)}, _statement(rho="rho")
        ),
        "mu": Record(
            "a μ budget", {"mu": Field(AMOUNT, "μ of GDP", required=True)}, _statement(mu="mu")
        ),
        "renyi": Record(
            "a Rényi budget",
            {"renyi": Field(RENYI, "order → divergence; all must hold", required=True)},
            _statement(renyi="renyi"),
        ),
    },
    words={"unlimited": BudgetStatement(unlimited=True)},
)

FUNCTION = ByKey(
    "a budget function",
    {
        "times": Record(
            "a `times` function",
            {"times": Field(FACTOR, "factor", required=True)},
            lambda v, span: Times(v["times"], span),
        ),
        "plus": Record(
            "a `plus` function",
            {"plus": Field(SHIFT, "amount", required=True)},
            lambda v, span: Plus(v["plus"], span),
        ),
        "through": Record(
            "a `through` function",
            {
                "through": Field(POINTS, "points on straight lines", required=True),
                "beyond": Field(Choice(("error", "extend"), "`error` or `extend`")),
            },
            lambda v, span: Through(v["through"], v["beyond"] == "extend", span),
        ),
        "cel": Record(
            "a `cel` function",
            {"cel": Field(Text(), "an expression over `budget`", required=True)},
            lambda v, span: Cel(v["cel"], span),
        ),
    },
    words={"same": Same()},
)

PREDICATE = Text("`always` or a CEL expression")


def _nameless(span: Span) -> Word:
    """A name for what has none, so that the rest of it is checked too."""
    return Word(f"?{span.line}:{span.column}", span)


#: What stands in for values of a policy or setting that are wrong. A policy with a mistake is never
#: compiled, and the unit with the empty name is never looked up.
_RESCUE: dict[str, Callable[[Span], Any]] = {
    "name": _nameless,
    "when": lambda span: Word(ALWAYS, span),
    "unit": lambda span: Word("", span),
    "units": lambda span: (Word("", span),),
    "profile": lambda _: None,
    "below": lambda _: (),
    "levels": lambda _: {},
    "except": lambda _: {},
}
_RESCUE_CUSTOM = {**_RESCUE, "budget": lambda _: BudgetStatement(unlimited=True)}
_RESCUE_SETTING = {**_RESCUE, "budget": lambda _: Same()}

_COMMON: dict[str, Field] = {
    "name": Field(Name(), "names the rules", required=True),
    "kind": Field(Text(), required=True),
}
_SCOPED: dict[str, Field] = {
    **_COMMON,
    "unit": Field(Name(), "the privacy unit"),
    "units": Field(UNIT_NAMES, "several privacy units"),
    "profile": Field(Name(), "how ε becomes thresholds, for this policy's rules"),
}
_BY_RISK: dict[str, Field] = {
    **_SCOPED,
    "budgets": Field(
        MapOf(BUDGET, fallback=BudgetStatement(unlimited=True)),
        "a budget for each risk level",
        default={},
    ),
    "except": Field(
        MapOf(BUDGET, fallback=BudgetStatement(unlimited=True)),
        "a budget for one attribute or category",
        default={},
    ),
}


def _units(values: dict[str, Any]) -> tuple[Any, ...]:
    """`unit` or `units`; both or neither is told by the checker, which sees an empty tuple."""
    one, many = values["unit"], values["units"]
    if one is not None and many is not None:
        return ()
    return (one,) if one is not None else (many or ())


POLICY = ByTag(
    "a policy",
    "kind",
    {
        "custom": Record(
            "a custom policy",
            {
                **_SCOPED,
                "when": Field(PREDICATE, "which mechanisms", required=True),
                "budget": Field(BUDGET, "the bound", required=True),
                "below": Field(ListOf(Name()), "policies this scope lies inside", default=()),
            },
            lambda v, span: CustomPolicy(
                v["name"], v["when"], _units(v), v["budget"], v["below"], v["profile"], span
            ),
            _RESCUE_CUSTOM,
        ),
        "attribute": Record(
            "an attribute policy",
            _BY_RISK,
            lambda v, span: AttributePolicy(
                v["name"], _units(v), v["budgets"], v["except"], v["profile"], span
            ),
            _RESCUE,
        ),
        "category": Record(
            "a category policy",
            {**_BY_RISK, "levels": Field(MapOf(FUNCTION), "by membership level", default={})},
            lambda v, span: CategoryPolicy(
                v["name"], _units(v), v["budgets"], v["levels"], v["except"], v["profile"], span
            ),
            _RESCUE,
        ),
        "extension": Record(
            "an extension policy",
            {
                **_COMMON,
                "settings": Field(
                    ListOf(
                        Record(
                            "a setting",
                            {
                                "name": Field(Name(), "names the rules", required=True),
                                "when": Field(PREDICATE, "which mechanisms", required=True),
                                "budget": Field(FUNCTION, "what it does to budgets", required=True),
                                "below": Field(
                                    ListOf(Name()), "settings it lies inside", default=()
                                ),
                            },
                            lambda v, span: Setting(
                                v["name"], v["when"], v["budget"], v["below"], span
                            ),
                            _RESCUE_SETTING,
                        ),
                        "a list of settings",
                        least=1,
                        most=MAX_SETTINGS,
                    ),
                    "the contexts",
                    required=True,
                ),
            },
            lambda v, span: Extension(v["name"], v["settings"], span),
            _RESCUE,
        ),
    },
)

RELATIONS = Choice(tuple(Relation), "a neighbouring relation")

ACCOUNTING = Record(
    "`accounting`",
    {
        "delta": Field(DELTA, "the δ of every budget that states only ε"),
        "profile": Field(Name(), "how (ε, δ) becomes Rényi thresholds"),
        "orders": Field(WordOr({"default": DEFAULT_ORDERS}, ORDERS), "the Rényi grid"),
        "relation": Field(RELATIONS, "the neighbouring relation of every unit"),
        "require": Field(Choice(("additive",), "`additive`"), "refuse mechanisms that are not"),
        "uncovered": Field(
            Choice(("allow", "deny"), "`allow` or `deny`"), "mechanisms that no rule covers"
        ),
        "max-rules": Field(
            Number(
                "a whole number of rules", above=Fraction(0), most=Fraction(8_000_000), whole=True
            ),
            "the largest rule product to compile",
        ),
        "collapse": Field(COLLAPSE, "keep time steps of long ago together"),
    },
    lambda values, _: values,
    dict.fromkeys(
        ("profile", "orders", "relation", "require", "uncovered", "collapse"), lambda _: None
    )
    | {"max-rules": lambda _: None, "delta": lambda _: Fraction(1, 10**7)},
)

#: Stands in for a section that cannot be read; the δ keeps budgets from being reported for it.
_ACCOUNTING_UNKNOWN = {**dict.fromkeys(ACCOUNTING.fields), "delta": Fraction(1, 10**7)}

SCHEMA = Record(
    "`schema`",
    {
        "risk-levels": Field(ListOf(Name(), least=1, most=MAX_LEVELS), "lowest first"),
        "membership-levels": Field(ListOf(Name(), least=1, most=MAX_LEVELS), "closest first"),
        "categories": Field(
            MapOf(
                Record(
                    "a category",
                    {"risk": Field(Name(), "its risk level")},
                    lambda v, _: Category(v["risk"]),
                    {"risk": lambda span: Word("", span)},
                ),
                fallback=Category(TOLD),
            ),
            "groups of attributes",
            default={},
        ),
        "attributes": Field(
            MapOf(ATTRIBUTE, fallback=Attribute(TOLD)), "the columns of the data", default={}
        ),
        "labels": Field(
            MapOf(
                Record(
                    "a label",
                    {
                        "values": Field(ListOf(Name(), least=1, most=MAX_VALUES), "the choices"),
                        "text": Field(Flag(), "any text", default=False),
                        "many": Field(Flag(), "several values at once", default=False),
                        "default": Field(Name(), "the value where none is said"),
                        "required": Field(Flag(), "a release must say it", default=False),
                    },
                    lambda v, _: LabelStatement(
                        v["values"],
                        v["text"],
                        v["many"],
                        v["default"],
                        v["required"],
                    ),
                    {key: lambda _: False for key in ("many", "required")}
                    | {"values": lambda _: (), "default": lambda _: None},
                ),
                fallback=LabelStatement(()),
            ),
            "the closed vocabulary of releases",
            default={},
        ),
        "partitions": Field(
            MapOf(PARTITION, fallback=Partition()), "what splits units into blocks", default={}
        ),
    },
    lambda values, _: values,
    {key: lambda _: None for key in ("risk-levels", "membership-levels")}
    | {key: lambda _: {} for key in ("categories", "attributes", "labels", "partitions")},
)

UNIT = Record(
    "a unit",
    {
        "period": Field(Text("a period such as `month`"), "how much of the data is protected"),
        "of": Field(Name(), "whose data, `user` if left out"),
        "covers": Field(ListOf(Name()), "units that lie inside this one", default=()),
        "relation": Field(RELATIONS, "its own neighbouring relation"),
    },
    lambda v, _: UnitStatement(
        v["period"], v["of"], v["covers"], Relation(v["relation"]) if v["relation"] else None
    ),
)

FILE: Shape = Record(
    "a policy file",
    {
        "dpolicy": Field(
            Number("the version `1`", least=Fraction(1), most=Fraction(1), whole=True)
        ),
        "name": Field(Name(), "the name of the policy set"),
        "accounting": Field(ACCOUNTING),
        "units": Field(
            MapOf(UNIT, fallback=UnitStatement(), most=MAX_UNITS), "privacy units", default={}
        ),
        "schema": Field(SCHEMA),
        "policies": Field(
            ListOf(POLICY, "a list of policies", most=MAX_POLICIES),
            "hold for all releases together",
            default=(),
        ),
        "each-release": Field(
            ListOf(POLICY, "a list of policies", most=MAX_POLICIES),
            "hold for every release by itself",
            default=(),
        ),
    },
    lambda values, _: values,
    {key: lambda _: None for key in ("dpolicy", "name", "schema")}
    | {key: lambda _: () for key in ("policies", "each-release")}
    | {"units": lambda _: {}, "accounting": lambda _: _ACCOUNTING_UNKNOWN},
)
