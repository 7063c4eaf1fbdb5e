"""Policy set → looked-up names and compiled predicates; whatever cannot be meant is reported.

A policy with a mistake of its own is named in `faulty`, so that later stages can go on with the
others and every mistake of a text is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from dpolicy.policy.model import (
    ALWAYS,
    AttributePolicy,
    BasePolicy,
    BudgetFunction,
    BudgetStatement,
    CategoryPolicy,
    Cel,
    CustomPolicy,
    Extension,
    Policy,
    PolicySet,
    Setting,
    base_policies,
    extensions,
)
from dpolicy.policy.parser import read_profile, report_static_profile
from dpolicy.policy.vocabulary import Vocabulary, read_vocabulary
from dpolicy.predicates.cel_functions import parse_budget_function
from dpolicy.predicates.expression import Always, ExpressionProblem, Predicate, parse_predicate
from dpolicy.privacy.thresholds import Profile
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.did_you_mean import suggest
from dpolicy.text.yaml_reader import LocatedText, Span

#: Which code each kind of mistake in a CEL text has.
_CEL_CODES = {
    "syntax": "P030",
    "type": "P031",
    "refused": "P032",
    "too-large": "P032",
    "unknown-label": "P025",
    "unknown-attribute": "P023",
    "unknown-value": "P033",
}


@dataclass(frozen=True, slots=True)
class CheckedPolicySet:
    """A policy set whose names are looked up."""

    policies: PolicySet
    vocabulary: Vocabulary
    predicates: Mapping[str, Predicate]
    functions: Mapping[str, Callable[[str, float], float]]
    faulty: frozenset[str]


def check_policies(policies: PolicySet, diagnostics: DiagnosticCollector) -> CheckedPolicySet:
    """Look up every name and read every predicate; mistakes go to `found`."""
    return _Checker(policies, diagnostics).check_all()


class _Checker:
    """Walks the policies once; holds what has been compiled so far."""

    def __init__(self, policies: PolicySet, diagnostics: DiagnosticCollector) -> None:
        self._policies = policies
        self._found = diagnostics
        self._vocabulary = read_vocabulary(policies, diagnostics)
        self._predicates: dict[str, Predicate] = {ALWAYS: Always()}
        self._functions: dict[str, Callable[[str, float], float]] = {}
        self._section: tuple[Policy, ...] = ()
        self._scopes = 0
        self._lacking = False

    def check_all(self) -> CheckedPolicySet:
        """Check both sections, and note which policies have mistakes."""
        faulty = set()
        misread = self._found.errors
        for section in (self._policies.policies, self._policies.each_release):
            self._section, self._scopes = section, 0
            customs = frozenset(p.name for p in section if isinstance(p, CustomPolicy))
            for policy in section:
                before, self._lacking = len(self._found.errors), False
                self._check_policy(policy, customs)
                told = len(self._found.errors) > before or self._too_many or self._lacking
                if told or any(_lies_in(m.span, policy.span) for m in misread):
                    faulty.add(str(policy.name))
            if not self._can_be_multiplied(section, faulty):
                faulty.update(str(policy.name) for policy in section)
        return CheckedPolicySet(
            self._policies, self._vocabulary, self._predicates, self._functions, frozenset(faulty)
        )

    @property
    def _too_many(self) -> bool:
        return self._scopes > self._policies.accounting.max_rules

    def _check_policy(self, policy: Policy, customs: frozenset[LocatedText]) -> None:
        match policy:
            case Extension():
                self._check_extension(policy)
            case CustomPolicy():
                self._check_scoped(policy, 1)
                self._read_predicate(policy.when)
                self._check_budgets([policy.budget])
                self._check_below(policy.below, customs, "custom policy")
            case AttributePolicy():
                self._check_scoped(policy, len(self._policies.attributes))
                self._check_attribute_policy(policy)
            case CategoryPolicy():
                levels = len(self._policies.membership_levels)
                self._check_scoped(policy, len(self._policies.categories) * levels)
                self._check_category_policy(policy)

    def _can_be_multiplied(self, section: tuple[Policy, ...], faulty: set[str]) -> bool:
        """Whether there is something to multiply, and the product stays within the limit."""
        if self._too_many:
            return False
        sound = [policy for policy in section if policy.name not in faulty]
        total, limit = self._scopes, self._policies.accounting.max_rules
        factors = [str(total)]
        for policy in extensions(tuple(sound)):
            total *= len(policy.settings)
            factors.append(str(len(policy.settings)))
            if total > limit:
                shown = " × ".join(factors)
                self._found.report(
                    "P046",
                    f"the policies up to here make {total:,} rules ({shown}), more than {limit:,}",
                    policy.name.span,
                    "use fewer settings, or raise `accounting: max-rules`",
                )
                return False
        return bool(base_policies(tuple(sound)))

    def _count_scopes(self, policy: BasePolicy, scopes: int) -> None:
        """Refuse what even without settings are too many rules, before anything is built."""
        before, limit = self._too_many, self._policies.accounting.max_rules
        self._scopes += scopes * max(1, len(policy.units))
        if self._too_many and not before:
            shown = f"the policies up to here make {self._scopes:,} rules, more than {limit:,}"
            help_ = "use fewer policies or units, or raise `accounting: max-rules`"
            self._found.report("P046", shown, policy.name.span, help_)

    def _check_scoped(self, policy: BasePolicy, scopes: int) -> None:
        self._count_scopes(policy, scopes)
        if not policy.units:
            shown = f"`{policy.name}` needs either `unit` or `units`"
            known = ", ".join(f"`{name}`" for name in self._policies.units)
            self._found.report(
                "P008", shown, policy.name.span, f"units of this policy set: {known}"
            )
        named = [unit for unit in policy.units if unit]  # one that is wrong has been told already
        self._check_known(named, self._policies.units, "P020", "unit")
        seen: set[str] = set()
        for unit in policy.units:
            if unit in seen:
                self._found.report("P010", f"the unit `{unit}` stands here twice", unit.span, None)
            seen.add(unit)
        if policy.profile is not None:
            profile = read_profile(policy.profile, self._found)
            if profile is Profile.STATIC and self._section is self._policies.policies:
                report_static_profile(policy.profile.span, self._found)

    def _check_attribute_policy(self, policy: AttributePolicy) -> None:
        self._check_by_risk(policy)
        self._check_known(policy.exceptions, self._policies.attributes, "P023", "attribute")
        if self._too_many:
            return
        for name, attribute in self._policies.attributes.items():
            if attribute.risk not in policy.budgets and name not in policy.exceptions:
                what = f"the attribute `{name}`"
                self._tell_no_budget(policy, what, attribute.risk, name.span, "P027")

    def _check_category_policy(self, policy: CategoryPolicy) -> None:
        self._check_by_risk(policy)
        self._check_known(policy.exceptions, self._policies.categories, "P022", "category")
        levels = self._policies.membership_levels
        self._check_known(policy.levels, levels, "P024", "membership level")
        for function in policy.levels.values():
            self._read_function(function)
        if self._too_many:
            return
        for name, category in self._policies.categories.items():
            if category.risk not in policy.budgets and name not in policy.exceptions:
                what = f"the category `{name}`"
                self._tell_no_budget(policy, what, category.risk, name.span, "P028")

    def _check_by_risk(self, policy: AttributePolicy | CategoryPolicy) -> None:
        self._check_known(policy.budgets, self._policies.risk_levels, "P024", "risk level")
        self._check_budgets([*policy.budgets.values(), *policy.exceptions.values()])

    def _tell_no_budget(
        self,
        policy: AttributePolicy | CategoryPolicy,
        what: str,
        risk: LocatedText | None,
        span: Span,
        code: str,
    ) -> None:
        """Tell of a scope of a policy by risk without a budget; an unknown risk has been told."""
        self._lacking = True
        if risk is None:
            shown = f"{what} has no risk level, so `{policy.name}` has no budget for it"
            self._found.report(
                code, shown, span, f"give it `risk`, or a budget under `except` of `{policy.name}`"
            )
        elif risk in self._policies.risk_levels:
            shown = f"`{policy.name}` has no budget for the risk level `{risk}` of {what}"
            self._found.report("P029", shown, policy.name.span, f"add `{risk}` to its `budgets`")

    def _check_budgets(self, statements: Iterable[BudgetStatement]) -> None:
        for said in statements:
            lacks_delta = said.epsilon is not None and said.delta is None
            if lacks_delta and self._policies.accounting.delta is None and said.span is not None:
                shown = "this budget states ε without δ, and `accounting` has no `delta`"
                help_ = "add `accounting: {delta: 1e-7}`, or `delta: 0` here for pure DP"
                self._found.report("P040", shown, said.span, help_)

    def _check_extension(self, policy: Extension) -> None:
        names: dict[LocatedText, Span] = {}
        for name in (setting.name for setting in policy.settings):
            if name in names:
                shown = f"the setting `{name}` is defined twice (first at {names[name]})"
                self._found.report("P010", shown, name.span, "rename one of them")
            names.setdefault(name, name.span)
        if not any(setting.when == ALWAYS for setting in policy.settings):
            shown = f"extension policy `{policy.name}` has no setting that covers every mechanism"
            help_ = (
                "add a setting with `when: always`; without it some releases would be in no "
                "rule's scope"
            )
            self._found.report("P021", shown, policy.name.span, help_)
        for setting in policy.settings:
            self._check_setting(setting, names)

    def _check_setting(self, setting: Setting, names: Collection[LocatedText]) -> None:
        self._read_predicate(setting.when)
        self._read_function(setting.function)
        self._check_below(setting.below, names, "setting")

    def _check_below(
        self, below: tuple[LocatedText, ...], known_names: Collection[LocatedText], what: str
    ) -> None:
        for word in below:
            if word not in known_names:
                shown = f"there is no {what} `{word}` here"
                self._found.report("P026", shown, word.span, suggest(word, known_names))

    def _check_known(
        self, words: Iterable[LocatedText], known_names: Iterable[str], code: str, what: str
    ) -> None:
        names = set(known_names)
        for word in words:
            if word not in names:
                shown = f"there is no {what} `{word}`"
                self._found.report(code, shown, word.span, suggest(word, names))

    def _read_predicate(self, text: LocatedText) -> None:
        if text in self._predicates:
            return
        answer = parse_predicate(str(text), self._vocabulary.schema)
        if isinstance(answer, tuple):
            self._report_cel(text, answer)
        else:
            self._predicates[str(text)] = answer

    def _read_function(self, function: BudgetFunction) -> None:
        if not isinstance(function, Cel) or function.text in self._functions:
            return
        answer = parse_budget_function(str(function.text), frozenset({"epsilon", "rho", "mu"}))
        if isinstance(answer, tuple):
            self._report_cel(function.text, answer)
        else:
            self._functions[str(function.text)] = answer

    def _report_cel(self, text: LocatedText, mistakes: tuple[ExpressionProblem, ...]) -> None:
        for mistake in mistakes:
            span = _inside(text, mistake.offset, mistake.length)
            self._found.report(_CEL_CODES[mistake.kind], mistake.message, span, mistake.help)


def _inside(text: LocatedText, offset: int, length: int) -> Span:
    """The place of a part of a one-line text; of all of it where escapes hide the part."""
    span = text.span
    if span.line != span.end_line:
        return span
    line = span.source.line(span.line)[span.column - 1 : span.end_column - 1]
    start = line.find(text)
    if start < 0:
        return span
    column = span.column + start + min(offset, max(len(text) - 1, 0))
    end = min(column + length, span.end_column)
    return Span(span.source, span.line, column, span.line, max(end, column + 1))


def _lies_in(inner: Span, outer: Span) -> bool:
    start, end = (outer.line, outer.column), (outer.end_line, outer.end_column)
    return inner.source is outer.source and start <= (inner.line, inner.column) < end
