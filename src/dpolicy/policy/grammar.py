"""Grammar of a policy file: its keys, their values, and the objects that the reader builds.

The grammar is the only description of the language. The reader, the suggestions for misspelt keys
and the JSON Schema for editors are derived from it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dpolicy.policy.accounting.accounting_grammar import ACCOUNTING, RELATION, UNREADABLE_ACCOUNTING
from dpolicy.policy.budget_grammar import BUDGET, FUNCTION
from dpolicy.policy.model import (
    ALWAYS,
    AttributePolicy,
    BudgetStatement,
    CategoryPolicy,
    CustomPolicy,
    Extension,
    Same,
    Setting,
    UnitStatement,
)
from dpolicy.policy.schema_grammar import SCHEMA
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.text.shapes import (
    ListShape,
    MapShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    Shape,
    TextShape,
)
from dpolicy.text.tagged_shapes import TaggedUnionShape
from dpolicy.text.yaml_reader import LocatedText, Span

#: Limits far above the size of any maintained policy set. Some checks compare all pairs.
MAX_POLICIES, MAX_SETTINGS, MAX_UNITS = 10_000, 1_000, 500

PREDICATE = TextShape("`always` or a CEL expression")


def _placeholder_name(span: Span) -> LocatedText:
    """Return a unique name for a policy without a valid one, so that its other keys are checked."""
    return LocatedText(f"?{span.line}:{span.column}", span)


#: Replacements for invalid values of a policy or setting. A policy with an error is never compiled,
#: and the checker never looks up the unit with the empty name.
_FALLBACKS: dict[str, Callable[[Span], Any]] = {
    "name": _placeholder_name,
    "when": lambda span: LocatedText(ALWAYS, span),
    "unit": lambda span: LocatedText("", span),
    "units": lambda span: (LocatedText("", span),),
    "profile": lambda _: None,
    "below": lambda _: (),
    "levels": lambda _: {},
    "except": lambda _: {},
}
_CUSTOM_FALLBACKS = {**_FALLBACKS, "budget": lambda _: BudgetStatement(unlimited=True)}
_SETTING_FALLBACKS = {**_FALLBACKS, "budget": lambda _: Same()}

_COMMON_FIELDS: dict[str, RecordField] = {
    "name": RecordField(NameShape(), "name of the policy, part of its rule names", required=True),
    "kind": RecordField(TextShape(), required=True),
}
_SCOPED_FIELDS: dict[str, RecordField] = {
    **_COMMON_FIELDS,
    "unit": RecordField(NameShape(), "privacy unit of the rules"),
    "units": RecordField(
        ListShape(NameShape(), "a list of units", least=1), "privacy units, one rule for each"
    ),
    "profile": RecordField(
        NameShape(), "method that turns (ε, δ) into thresholds, for the rules of this policy"
    ),
}
_RISK_FIELDS: dict[str, RecordField] = {
    **_SCOPED_FIELDS,
    "budgets": RecordField(
        MapShape(BUDGET, fallback=BudgetStatement(unlimited=True)),
        "budget of each risk level",
        default={},
    ),
    "except": RecordField(
        MapShape(BUDGET, fallback=BudgetStatement(unlimited=True)),
        "budgets of single attributes or categories",
        default={},
    ),
}


def _units(values: dict[str, Any]) -> tuple[Any, ...]:
    """Return the units of a policy; an empty tuple if it has both or neither of the two keys.

    The checker reports the empty tuple.
    """
    one, many = values["unit"], values["units"]
    if one is not None and many is not None:
        return ()
    return (one,) if one is not None else (many or ())


SETTING = RecordShape(
    "a setting",
    {
        "name": RecordField(NameShape(), "name of the setting, part of rule names", required=True),
        "when": RecordField(PREDICATE, "predicate that selects mechanisms", required=True),
        "budget": RecordField(FUNCTION, "function applied to budgets", required=True),
        "below": RecordField(
            ListShape(NameShape()), "settings whose scopes contain this scope", default=()
        ),
    },
    lambda v, span: Setting(v["name"], v["when"], v["budget"], v["below"], span),
    _SETTING_FALLBACKS,
)

POLICY = TaggedUnionShape(
    "a policy",
    "kind",
    {
        "custom": RecordShape(
            "a custom policy",
            {
                **_SCOPED_FIELDS,
                "when": RecordField(PREDICATE, "predicate that selects mechanisms", required=True),
                "budget": RecordField(BUDGET, "bound on the composed loss", required=True),
                "below": RecordField(
                    ListShape(NameShape()), "policies whose scopes contain this scope", default=()
                ),
            },
            lambda v, span: CustomPolicy(
                v["name"], v["when"], _units(v), v["budget"], v["below"], v["profile"], span
            ),
            _CUSTOM_FALLBACKS,
        ),
        "attribute": RecordShape(
            "an attribute policy",
            _RISK_FIELDS,
            lambda v, span: AttributePolicy(
                v["name"], _units(v), v["budgets"], v["except"], v["profile"], span
            ),
            _FALLBACKS,
        ),
        "category": RecordShape(
            "a category policy",
            {
                **_RISK_FIELDS,
                "levels": RecordField(
                    MapShape(FUNCTION), "budget function of each membership level", default={}
                ),
            },
            lambda v, span: CategoryPolicy(
                v["name"], _units(v), v["budgets"], v["levels"], v["except"], v["profile"], span
            ),
            _FALLBACKS,
        ),
        "extension": RecordShape(
            "an extension policy",
            {
                **_COMMON_FIELDS,
                "settings": RecordField(
                    ListShape(
                        SETTING,
                        "a list of settings",
                        least=1,
                        most=MAX_SETTINGS,
                    ),
                    "settings of the extension",
                    required=True,
                ),
            },
            lambda v, span: Extension(v["name"], v["settings"], span),
            _FALLBACKS,
        ),
    },
)

UNIT = RecordShape(
    "a unit",
    {
        "period": RecordField(
            TextShape("a period such as `month`"), "period of the data that is protected"
        ),
        "of": RecordField(NameShape(), "unit without a period whose data this is"),
        "covers": RecordField(ListShape(NameShape()), "units contained in this one", default=()),
        "relation": RecordField(RELATION, "neighbouring relation of this unit"),
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
        "name": RecordField(NameShape(), "name of the policy set"),
        "accounting": RecordField(ACCOUNTING),
        "units": RecordField(
            MapShape(UNIT, fallback=UnitStatement(), most=MAX_UNITS), "privacy units", default={}
        ),
        "schema": RecordField(SCHEMA),
        "policies": RecordField(
            ListShape(POLICY, "a list of policies", most=MAX_POLICIES),
            "policies that bound all releases together",
            default=(),
        ),
        "each-release": RecordField(
            ListShape(POLICY, "a list of policies", most=MAX_POLICIES),
            "policies that bound each release separately",
            default=(),
        ),
    },
    lambda values, _: values,
    {key: lambda _: None for key in ("dpolicy", "name", "schema")}
    | {key: lambda _: () for key in ("policies", "each-release")}
    | {"units": lambda _: {}, "accounting": lambda _: UNREADABLE_ACCOUNTING},
)
