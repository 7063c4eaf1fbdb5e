"""The shapes of a policy text: which keys there are, what they take, and what they build.

This table is the language's only description: the reader, "did you mean", and the shipped JSON
Schema all come from it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dpolicy.policy.model import (
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
from dpolicy.policy.schema_grammar import (
    ALREADY_REPORTED,
    ATTRIBUTE,
    COLLAPSE,
    MAX_VALUES,
    ORDERS,
    PARTITION,
    POINTS,
    RENYI,
    UNIT_NAMES,
)
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.text.shapes import (
    BooleanShape,
    ChoiceShape,
    KeywordOrShape,
    ListShape,
    MapShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    Shape,
    TextShape,
)
from dpolicy.text.tagged_shapes import KeyedUnionShape, TaggedUnionShape
from dpolicy.text.yaml_reader import LocatedText, Span

#: No budget that means anything is near this; a slip of the decimal point often is.
MAX_BUDGET_NUMBER = Fraction(100_000)

AMOUNT = NumberShape(
    "a number from 0 to 100,000",
    least=Fraction(0),
    most=MAX_BUDGET_NUMBER,
    help="a budget without a bound is `unlimited`",
)
DELTA = NumberShape("a δ of at least 0 and below 1", least=Fraction(0), below=Fraction(1))
FACTOR = NumberShape(
    "a factor above 0 and at most 100,000", above=Fraction(0), most=MAX_BUDGET_NUMBER
)
SHIFT = NumberShape(
    "a number from -100,000 to 100,000", least=-MAX_BUDGET_NUMBER, most=MAX_BUDGET_NUMBER
)

#: No policy set that people maintain comes near these; what compares all pairs must stay quick.
MAX_POLICIES, MAX_SETTINGS, MAX_UNITS, MAX_LEVELS = 10_000, 1_000, 500, 100


def _statement(**names: str) -> Callable[[dict[str, Any], Span], BudgetStatement]:
    def build(values: dict[str, Any], span: Span) -> BudgetStatement:
        return BudgetStatement(**{key: values[name] for key, name in names.items()}, span=span)

    return build


BUDGET = KeyedUnionShape(
    "a budget",
    {
        "epsilon": RecordShape(
            "an ε budget",
            {
                "epsilon": RecordField(AMOUNT, "ε", required=True),
                "delta": RecordField(DELTA, "δ; 0 is pure DP"),
            },
            _statement(epsilon="epsilon", delta="delta"),
        ),
        "rho": RecordShape(
            "a ρ budget",
            {"rho": RecordField(AMOUNT, "ρ of zCDP", required=True)},
            _statement(rho="rho"),
        ),
        "mu": RecordShape(
            "a μ budget",
            {"mu": RecordField(AMOUNT, "μ of GDP", required=True)},
            _statement(mu="mu"),
        ),
        "renyi": RecordShape(
            "a Rényi budget",
            {"renyi": RecordField(RENYI, "order → divergence; all must hold", required=True)},
            _statement(renyi="renyi"),
        ),
    },
    words={"unlimited": BudgetStatement(unlimited=True)},
)

FUNCTION = KeyedUnionShape(
    "a budget function",
    {
        "times": RecordShape(
            "a `times` function",
            {"times": RecordField(FACTOR, "factor", required=True)},
            lambda v, span: Times(v["times"], span),
        ),
        "plus": RecordShape(
            "a `plus` function",
            {"plus": RecordField(SHIFT, "amount", required=True)},
            lambda v, span: Plus(v["plus"], span),
        ),
        "through": RecordShape(
            "a `through` function",
            {
                "through": RecordField(POINTS, "points on straight lines", required=True),
                "beyond": RecordField(ChoiceShape(("error", "extend"), "`error` or `extend`")),
            },
            lambda v, span: Through(v["through"], v["beyond"] == "extend", span),
        ),
        "cel": RecordShape(
            "a `cel` function",
            {"cel": RecordField(TextShape(), "an expression over `budget`", required=True)},
            lambda v, span: Cel(v["cel"], span),
        ),
    },
    words={"same": Same()},
)

PREDICATE = TextShape("`always` or a CEL expression")


def _nameless(span: Span) -> LocatedText:
    """A name for what has none, so that the rest of it is checked too."""
    return LocatedText(f"?{span.line}:{span.column}", span)


#: What stands in for values of a policy or setting that are wrong. A policy with a mistake is never
#: compiled, and the unit with the empty name is never looked up.
_RESCUE: dict[str, Callable[[Span], Any]] = {
    "name": _nameless,
    "when": lambda span: LocatedText(ALWAYS, span),
    "unit": lambda span: LocatedText("", span),
    "units": lambda span: (LocatedText("", span),),
    "profile": lambda _: None,
    "below": lambda _: (),
    "levels": lambda _: {},
    "except": lambda _: {},
}
_RESCUE_CUSTOM = {**_RESCUE, "budget": lambda _: BudgetStatement(unlimited=True)}
_RESCUE_SETTING = {**_RESCUE, "budget": lambda _: Same()}

_COMMON: dict[str, RecordField] = {
    "name": RecordField(NameShape(), "names the rules", required=True),
    "kind": RecordField(TextShape(), required=True),
}
_SCOPED: dict[str, RecordField] = {
    **_COMMON,
    "unit": RecordField(NameShape(), "the privacy unit"),
    "units": RecordField(UNIT_NAMES, "several privacy units"),
    "profile": RecordField(NameShape(), "how ε becomes thresholds, for this policy's rules"),
}
_BY_RISK: dict[str, RecordField] = {
    **_SCOPED,
    "budgets": RecordField(
        MapShape(BUDGET, fallback=BudgetStatement(unlimited=True)),
        "a budget for each risk level",
        default={},
    ),
    "except": RecordField(
        MapShape(BUDGET, fallback=BudgetStatement(unlimited=True)),
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


POLICY = TaggedUnionShape(
    "a policy",
    "kind",
    {
        "custom": RecordShape(
            "a custom policy",
            {
                **_SCOPED,
                "when": RecordField(PREDICATE, "which mechanisms", required=True),
                "budget": RecordField(BUDGET, "the bound", required=True),
                "below": RecordField(
                    ListShape(NameShape()), "policies this scope lies inside", default=()
                ),
            },
            lambda v, span: CustomPolicy(
                v["name"], v["when"], _units(v), v["budget"], v["below"], v["profile"], span
            ),
            _RESCUE_CUSTOM,
        ),
        "attribute": RecordShape(
            "an attribute policy",
            _BY_RISK,
            lambda v, span: AttributePolicy(
                v["name"], _units(v), v["budgets"], v["except"], v["profile"], span
            ),
            _RESCUE,
        ),
        "category": RecordShape(
            "a category policy",
            {
                **_BY_RISK,
                "levels": RecordField(MapShape(FUNCTION), "by membership level", default={}),
            },
            lambda v, span: CategoryPolicy(
                v["name"], _units(v), v["budgets"], v["levels"], v["except"], v["profile"], span
            ),
            _RESCUE,
        ),
        "extension": RecordShape(
            "an extension policy",
            {
                **_COMMON,
                "settings": RecordField(
                    ListShape(
                        RecordShape(
                            "a setting",
                            {
                                "name": RecordField(NameShape(), "names the rules", required=True),
                                "when": RecordField(PREDICATE, "which mechanisms", required=True),
                                "budget": RecordField(
                                    FUNCTION, "what it does to budgets", required=True
                                ),
                                "below": RecordField(
                                    ListShape(NameShape()), "settings it lies inside", default=()
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

RELATIONS = ChoiceShape(tuple(NeighbouringRelation), "a neighbouring relation")

ACCOUNTING = RecordShape(
    "`accounting`",
    {
        "delta": RecordField(DELTA, "the δ of every budget that states only ε"),
        "profile": RecordField(NameShape(), "how (ε, δ) becomes Rényi thresholds"),
        "orders": RecordField(
            KeywordOrShape({"default": DEFAULT_ORDERS}, ORDERS), "the Rényi grid"
        ),
        "relation": RecordField(RELATIONS, "the neighbouring relation of every unit"),
        "require": RecordField(
            ChoiceShape(("additive",), "`additive`"), "refuse mechanisms that are not"
        ),
        "uncovered": RecordField(
            ChoiceShape(("allow", "deny"), "`allow` or `deny`"), "mechanisms that no rule covers"
        ),
        "max-rules": RecordField(
            NumberShape(
                "a whole number of rules", above=Fraction(0), most=Fraction(8_000_000), whole=True
            ),
            "the largest rule product to compile",
        ),
        "collapse": RecordField(COLLAPSE, "keep time steps of long ago together"),
    },
    lambda values, _: values,
    dict.fromkeys(
        ("profile", "orders", "relation", "require", "uncovered", "collapse"), lambda _: None
    )
    | {"max-rules": lambda _: None, "delta": lambda _: Fraction(1, 10**7)},
)

#: Stands in for a section that cannot be read; the δ keeps budgets from being reported for it.
_ACCOUNTING_UNKNOWN = {**dict.fromkeys(ACCOUNTING.fields), "delta": Fraction(1, 10**7)}

SCHEMA = RecordShape(
    "`schema`",
    {
        "risk-levels": RecordField(
            ListShape(NameShape(), least=1, most=MAX_LEVELS), "lowest first"
        ),
        "membership-levels": RecordField(
            ListShape(NameShape(), least=1, most=MAX_LEVELS), "closest first"
        ),
        "categories": RecordField(
            MapShape(
                RecordShape(
                    "a category",
                    {"risk": RecordField(NameShape(), "its risk level")},
                    lambda v, _: Category(v["risk"]),
                    {"risk": lambda span: LocatedText("", span)},
                ),
                fallback=Category(ALREADY_REPORTED),
            ),
            "groups of attributes",
            default={},
        ),
        "attributes": RecordField(
            MapShape(ATTRIBUTE, fallback=Attribute(ALREADY_REPORTED)),
            "the columns of the data",
            default={},
        ),
        "labels": RecordField(
            MapShape(
                RecordShape(
                    "a label",
                    {
                        "values": RecordField(
                            ListShape(NameShape(), least=1, most=MAX_VALUES), "the choices"
                        ),
                        "text": RecordField(BooleanShape(), "any text", default=False),
                        "many": RecordField(
                            BooleanShape(), "several values at once", default=False
                        ),
                        "default": RecordField(NameShape(), "the value where none is said"),
                        "required": RecordField(
                            BooleanShape(), "a release must say it", default=False
                        ),
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
        "partitions": RecordField(
            MapShape(PARTITION, fallback=Partition()), "what splits units into blocks", default={}
        ),
    },
    lambda values, _: values,
    {key: lambda _: None for key in ("risk-levels", "membership-levels")}
    | {key: lambda _: {} for key in ("categories", "attributes", "labels", "partitions")},
)

UNIT = RecordShape(
    "a unit",
    {
        "period": RecordField(
            TextShape("a period such as `month`"), "how much of the data is protected"
        ),
        "of": RecordField(NameShape(), "whose data, `user` if left out"),
        "covers": RecordField(ListShape(NameShape()), "units that lie inside this one", default=()),
        "relation": RecordField(RELATIONS, "its own neighbouring relation"),
    },
    lambda v, _: UnitStatement(
        v["period"],
        v["of"],
        v["covers"],
        NeighbouringRelation(v["relation"]) if v["relation"] else None,
    ),
)

FILE: Shape = RecordShape(
    "a policy file",
    {
        "dpolicy": RecordField(
            NumberShape("the version `1`", least=Fraction(1), most=Fraction(1), whole=True)
        ),
        "name": RecordField(NameShape(), "the name of the policy set"),
        "accounting": RecordField(ACCOUNTING),
        "units": RecordField(
            MapShape(UNIT, fallback=UnitStatement(), most=MAX_UNITS), "privacy units", default={}
        ),
        "schema": RecordField(SCHEMA),
        "policies": RecordField(
            ListShape(POLICY, "a list of policies", most=MAX_POLICIES),
            "hold for all releases together",
            default=(),
        ),
        "each-release": RecordField(
            ListShape(POLICY, "a list of policies", most=MAX_POLICIES),
            "hold for every release by itself",
            default=(),
        ),
    },
    lambda values, _: values,
    {key: lambda _: None for key in ("dpolicy", "name", "schema")}
    | {key: lambda _: () for key in ("policies", "each-release")}
    | {"units": lambda _: {}, "accounting": lambda _: _ACCOUNTING_UNKNOWN},
)
