"""Every diagnostic code → what it means and why; `docs/diagnostics.md` is made of this."""

from __future__ import annotations

#: Errors are below P100, warnings from there on. A code is never given a second meaning.
CATALOGUE: dict[str, tuple[str, str]] = {
    "P001": ("not YAML", "The text is neither YAML nor JSON, so nothing in it can be trusted."),
    "P002": (
        "too large or too deep",
        "A file past the limits is a slip or an attack; it is not read.",
    ),
    "P003": (
        "alias, anchor, tag, merge key or second document",
        "They make a text say something else than what stands there, and can blow up in memory.",
    ),
    "P004": ("a key stands twice", "YAML readers silently keep one of the two."),
    "P005": ("a number with a leading zero", "Some readers take `010` for eight."),
    "P006": ("unknown key", "A misspelt key would silently have no effect."),
    "P007": ("wrong type", "Another kind of value is expected here."),
    "P008": ("a key is missing", "Without it the text has no meaning."),
    "P009": ("not a sensible number", "Infinite, negative or absurd numbers are never meant."),
    "P010": ("a name is defined twice", "Rules are known by these names."),
    "P011": ("not a name", "Names are plain ASCII, so that two that look alike are alike."),
    "P012": ("not one of the choices", "Only a few words have a meaning here."),
    "P013": ("unknown period", "The calendar decides which unit covers which."),
    "P014": ("a unit covers itself", "The order of units must have no circles."),
    "P015": ("an empty range", "No privacy unit would lie in it."),
    "P016": ("a label that cannot be used", "A label is a choice of values, or any text."),
    "P017": (
        "`covers` or `of` with a period",
        "That this month's users lie in one household does not say that users do for ever.",
    ),
    "P018": (
        "a unit that does not say whose",
        "A month of a user and a month of a household are different things to protect.",
    ),
    "P020": ("unknown unit", "A budget means nothing without its privacy unit."),
    "P021": (
        "an extension without a catch-all",
        "A mechanism in none of the settings would be in no rule's scope and spend for free.",
    ),
    "P022": ("unknown category", "A misspelt category would have no attributes."),
    "P023": (
        "unknown attribute",
        "A misspelt attribute would never match, and be bounded by nothing.",
    ),
    "P024": ("unknown level", "Risk and membership levels are a closed list."),
    "P025": ("unknown label", "Labels are a closed vocabulary."),
    "P026": (
        "a stated order that is not true",
        "Orders decide which rules are pruned. A false one would drop a rule that binds.",
    ),
    "P027": ("an attribute without a risk level", "An attribute policy has no budget for it."),
    "P028": ("a category without a risk level", "A category policy has no budget for it."),
    "P029": ("no budget for a risk level", "Some attribute or category has this level."),
    "P030": ("not CEL", "The predicate cannot be parsed."),
    "P031": ("a CEL type error", "The predicate could fail, or be always false, on real releases."),
    "P032": (
        "refused in a predicate",
        "Predicates are kept to what is cheap to evaluate and can be reasoned about.",
    ),
    "P033": ("unknown value in a predicate", "The comparison could never be true."),
    "P040": ("ε without δ", "An ε budget is only half a guarantee."),
    "P041": (
        "a budget function that is not monotone",
        "A stricter policy would end in a looser rule.",
    ),
    "P042": ("a budget outside the points", "Beyond the points nobody said what the budget is."),
    "P043": ("a budget function without a result", "There is no budget to enforce."),
    "P044": ("a profile that is not allowed here", "Not every conversion is sound everywhere."),
    "P045": (
        "orders whose weights exceed 1",
        "δ is split between the orders; together they may not fail with more than δ.",
    ),
    "P046": ("too many rules", "The product of scopes and settings is larger than configured."),
    "P047": ("too many rules to draw", "A diagram of this size could not be read."),
    "P051": ("a release of a case cannot be used", "The step that names it could not be taken."),
    "P101": ("an unused category", "Its rules can never match."),
    "P102": ("a scope that can never match", "No mechanism the schema allows lies in it."),
    "P103": ("a policy without effect", "All its rules are implied by others, so none is checked."),
    "P104": (
        "a partition that a rule cannot use",
        "A change of the attribute moves a person to another block (theory 6.1).",
    ),
    "P105": ("a function that lowers a budget", "Contexts usually loosen budgets."),
    "P106": ("a stated order that could not be verified", "It is not used."),
    "P107": (
        "a partition without an owner",
        "Where several units stand side by side, only `of` can say which of them has one value.",
    ),
}
