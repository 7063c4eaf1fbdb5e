"""Catalogue of the P codes: title and explanation of each; the source of `docs/diagnostics.md`."""

from __future__ import annotations

#: Title and explanation by code. Codes below P100 are errors, the others warnings. A code never
#: changes its meaning.
CATALOGUE: dict[str, tuple[str, str]] = {
    "P001": (
        "not valid YAML",
        "The file is neither YAML nor JSON, or contains invisible control characters.",
    ),
    "P002": (
        "too large or too deeply nested",
        "The file exceeds a size limit. The limits bound the time and memory that a file can cost.",
    ),
    "P003": (
        "alias, anchor, tag, merge key or second document",
        "These YAML features make the content differ from the visible text, and an alias can "
        "expand to gigabytes.",
    ),
    "P004": ("duplicate key", "Most YAML readers silently keep only one of the two values."),
    "P005": ("number with a leading zero", "Some YAML readers read `010` as eight."),
    "P006": ("unknown key", "A misspelt key would silently have no effect."),
    "P007": ("wrong type", "The value has another type than the key requires."),
    "P008": (
        "missing key",
        "A required key is missing, or a map does not have exactly one of several alternatives.",
    ),
    "P009": (
        "number out of range",
        "The number is infinite, negative, too large, or has too many digits.",
    ),
    "P010": (
        "duplicate name",
        "Decisions and conflicts refer to rules by these names, so each must be unique.",
    ),
    "P011": (
        "invalid name",
        "Names must be ASCII, so that names that look the same are the same.",
    ),
    "P012": ("invalid choice", "The key accepts only a fixed set of keywords."),
    "P013": (
        "unknown period",
        "The period of a unit must be a calendar period or a number of days.",
    ),
    "P014": ("cycle of units", "A unit cannot cover itself, directly or through other units."),
    "P015": ("empty range", "The first value of a partition is greater than the last one."),
    "P016": (
        "invalid label definition",
        "A label has either a list of values or `text: true`. A default must be one of the values; "
        "a label with `many` has no default.",
    ),
    "P017": (
        "`covers` or `of` with a period",
        "Only units without a period can be covered or named by `of`. If the users of one month "
        "belong to one household, this does not hold for all time.",
    ),
    "P018": (
        "unit without an owner",
        "A month of a user and a month of a household are different privacy units. The name of a "
        "unit with a period starts with a defined unit and a separator such as `-`, or the unit "
        "states `of`. A unit without a period has no `of`.",
    ),
    "P020": ("unknown unit", "A budget has no meaning without its privacy unit."),
    "P021": (
        "extension without a catch-all setting",
        "A mechanism that matches no setting would be in the scope of no rule and cost nothing.",
    ),
    "P022": ("unknown category", "A misspelt category would have no attributes."),
    "P023": ("unknown attribute", "A predicate with a misspelt attribute would never match."),
    "P024": (
        "unknown level",
        "Risk levels and membership levels must be listed in the schema, or be default levels.",
    ),
    "P025": ("unknown label", "A predicate can read only labels that the schema defines."),
    "P026": (
        "false stated order",
        "`below` decides which rules are pruned. A false statement would remove a rule that is not "
        "implied by another one.",
    ),
    "P027": (
        "attribute without a risk level",
        "An attribute policy selects the budget of an attribute by its risk level.",
    ),
    "P028": (
        "category without a risk level",
        "A category policy selects the budget of a category by its risk level.",
    ),
    "P029": (
        "risk level without a budget",
        "An attribute or category has a risk level for which the policy states no budget.",
    ),
    "P030": ("not valid CEL", "The expression cannot be parsed."),
    "P031": (
        "CEL type error",
        "The expression could fail, or always be false, when a release is decided.",
    ),
    "P032": (
        "expression not allowed",
        "Expressions are limited to operations that are fast to evaluate and that the implication "
        "check can analyse.",
    ),
    "P033": ("unknown value in a predicate", "The comparison could never be true."),
    "P040": ("ε without δ", "An (ε, δ) budget needs both numbers."),
    "P041": (
        "budget function that is not monotone",
        "A stricter budget would become a looser one.",
    ),
    "P042": (
        "budget outside the points",
        "The function is defined only between its first and its last point.",
    ),
    "P043": ("budget function without a result", "There is no budget to enforce."),
    "P044": (
        "profile not allowed",
        "The profile is unknown, or its conversion from (ε, δ) to thresholds is not sound for "
        "this policy.",
    ),
    "P045": (
        "weights of orders above 1",
        "δ is split between the orders by weight, so that the total failure probability is at "
        "most δ.",
    ),
    "P046": (
        "too many rules",
        "The number of scopes times the number of settings exceeds `max-rules`.",
    ),
    "P047": ("too many rules to draw", "A diagram of this size would be unreadable."),
    "P048": (
        "invalid typical mechanism",
        "`tuned-for` lists mechanisms with the parameters that a release would state. The shares "
        "of δ follow from their costs.",
    ),
    "P049": (
        "`tuned-for` without effect",
        "The shares of δ can be tuned only for cumulative (ε, δ) budgets with the profile "
        "`anchored` that admit the listed mechanisms.",
    ),
    "P051": ("unreadable release of a case", "The step that names the release cannot run."),
    "P101": ("unused category", "No attribute belongs to the category, so its rules never match."),
    "P102": ("scope that never matches", "The schema allows no mechanism in this scope."),
    "P103": (
        "policy without effect",
        "Every rule of the policy is implied by another rule, so none of them is enforced.",
    ),
    "P104": (
        "partition that a rule cannot use",
        "The rule reads the attribute of the same name. A change of that attribute moves a person "
        "to another block (theory 6.1).",
    ),
    "P105": (
        "budget function that lowers a budget",
        "Settings usually loosen budgets. This warning is for information.",
    ),
    "P106": (
        "stated order that could not be verified",
        "Pruning does not use the statement.",
    ),
    "P107": (
        "partition without an owner",
        "A partition is a property of an entity: all data of one entity has one value, for all "
        "time. If a policy set has several smallest entities, or a shorter unit of the entity, "
        "`of` states which entity it is. A property that changes from day to day needs "
        "`stable: false`.",
    ),
}
