"""Checker: resolves the names of a policy set and compiles its predicates and functions.

It lists policies with errors in `faulty`. Later stages skip these policies and check the others,
so that one run reports all errors of a text.
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

#: Code of each kind of `ExpressionProblem`.
CEL_CODES = {
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
    """Policy set with resolved names and compiled predicates (by text)."""

    policies: PolicySet
    vocabulary: Vocabulary
    predicates: Mapping[str, Predicate]
    functions: Mapping[str, Callable[[str, float], float]]
    faulty: frozenset[str]


def check_policies(policies: PolicySet, diagnostics: DiagnosticCollector) -> CheckedPolicySet:
    """Resolve every name and compile every predicate; report all errors."""
    return _Checker(policies, diagnostics).check_all()


class _Checker:
    """One pass over the policies of a set, with the predicates and functions compiled so far."""

    def __init__(self, policies: PolicySet, diagnostics: DiagnosticCollector) -> None:
        self._policies = policies
        self._diagnostics = diagnostics
        self._vocabulary = read_vocabulary(policies, diagnostics)
        self._predicates: dict[str, Predicate] = {ALWAYS: Always()}
        self._functions: dict[str, Callable[[str, float], float]] = {}
        self._section: tuple[Policy, ...] = ()
        self._scopes = 0
        self._lacks_budget = False

    def check_all(self) -> CheckedPolicySet:
        """Check both sections and collect the names of policies with errors."""
        faulty = set()
        syntax_errors = self._diagnostics.errors
        for section in (self._policies.policies, self._policies.each_release):
            self._section, self._scopes = section, 0
            customs = frozenset(p.name for p in section if isinstance(p, CustomPolicy))
            for policy in section:
                errors_before, self._lacks_budget = len(self._diagnostics.errors), False
                self._check_policy(policy, customs)
                has_errors = len(self._diagnostics.errors) > errors_before
                if (
                    has_errors
                    or self._too_many_rules
                    or self._lacks_budget
                    or any(_contains(policy.span, error.span) for error in syntax_errors)
                ):
                    faulty.add(str(policy.name))
            if not self._check_rule_product(section, faulty):
                faulty.update(str(policy.name) for policy in section)
        return CheckedPolicySet(
            self._policies, self._vocabulary, self._predicates, self._functions, frozenset(faulty)
        )

    @property
    def _too_many_rules(self) -> bool:
        return self._scopes > self._policies.accounting.max_rules

    def _check_policy(self, policy: Policy, customs: frozenset[LocatedText]) -> None:
        match policy:
            case Extension():
                self._check_extension(policy)
            case CustomPolicy():
                self._check_scoped(policy, 1)
                self._compile_predicate(policy.when)
                self._check_budgets([policy.budget])
                self._check_below(policy.below, customs, "custom policy")
            case AttributePolicy():
                self._check_scoped(policy, len(self._policies.attributes))
                self._check_attribute_policy(policy)
            case CategoryPolicy():
                levels = len(self._policies.membership_levels)
                self._check_scoped(policy, len(self._policies.categories) * levels)
                self._check_category_policy(policy)

    def _check_rule_product(self, section: tuple[Policy, ...], faulty: set[str]) -> bool:
        """Return whether the section has a valid base policy and at most `max-rules` rules."""
        if self._too_many_rules:
            return False
        valid = tuple(policy for policy in section if policy.name not in faulty)
        total, limit = self._scopes, self._policies.accounting.max_rules
        factors = [str(total)]
        for policy in extensions(valid):
            total *= len(policy.settings)
            factors.append(str(len(policy.settings)))
            if total > limit:
                product = " × ".join(factors)
                self._diagnostics.report(
                    "P046",
                    f"the policies so far make {total:,} rules ({product}), more than {limit:,}",
                    policy.name.span,
                    "use fewer settings, or raise `accounting: max-rules`",
                )
                return False
        return bool(base_policies(valid))

    def _count_scopes(self, policy: BasePolicy, scopes: int) -> None:
        """Add the rules of a base policy, and report when the sum first exceeds `max-rules`."""
        exceeded_before, limit = self._too_many_rules, self._policies.accounting.max_rules
        self._scopes += scopes * max(1, len(policy.units))
        if self._too_many_rules and not exceeded_before:
            message = f"the policies so far make {self._scopes:,} rules, more than {limit:,}"
            help_ = "use fewer policies or units, or raise `accounting: max-rules`"
            self._diagnostics.report("P046", message, policy.name.span, help_)

    def _check_scoped(self, policy: BasePolicy, scopes: int) -> None:
        self._count_scopes(policy, scopes)
        if not policy.units:
            message = f"`{policy.name}` needs either `unit` or `units`"
            known_units = ", ".join(f"`{name}`" for name in self._policies.units)
            self._diagnostics.report(
                "P008", message, policy.name.span, f"name units of this policy set: {known_units}"
            )
        valid = [unit for unit in policy.units if unit]  # the empty name was already reported
        self._check_names(valid, self._policies.units, "P020", "unit")
        visited: set[str] = set()
        for unit in policy.units:
            if unit in visited:
                message = f"duplicate unit `{unit}`"
                self._diagnostics.report("P010", message, unit.span, "remove one of them")
            visited.add(unit)
        if policy.profile is not None:
            profile = read_profile(policy.profile, self._diagnostics)
            if profile is Profile.STATIC and self._section is self._policies.policies:
                report_static_profile(policy.profile.span, self._diagnostics)

    def _check_attribute_policy(self, policy: AttributePolicy) -> None:
        self._check_risk_budgets(policy)
        self._check_names(policy.exceptions, self._policies.attributes, "P023", "attribute")
        if self._too_many_rules:
            return
        for name, attribute in self._policies.attributes.items():
            if attribute.risk not in policy.budgets and name not in policy.exceptions:
                scope = f"the attribute `{name}`"
                self._report_missing_budget(policy, scope, attribute.risk, name.span, "P027")

    def _check_category_policy(self, policy: CategoryPolicy) -> None:
        self._check_risk_budgets(policy)
        self._check_names(policy.exceptions, self._policies.categories, "P022", "category")
        levels = self._policies.membership_levels
        self._check_names(policy.levels, levels, "P024", "membership level")
        for function in policy.levels.values():
            self._compile_function(function)
        if self._too_many_rules:
            return
        for name, category in self._policies.categories.items():
            if category.risk not in policy.budgets and name not in policy.exceptions:
                scope = f"the category `{name}`"
                self._report_missing_budget(policy, scope, category.risk, name.span, "P028")

    def _check_risk_budgets(self, policy: AttributePolicy | CategoryPolicy) -> None:
        self._check_names(policy.budgets, self._policies.risk_levels, "P024", "risk level")
        self._check_budgets([*policy.budgets.values(), *policy.exceptions.values()])

    def _report_missing_budget(
        self,
        policy: AttributePolicy | CategoryPolicy,
        scope: str,
        risk: LocatedText | None,
        span: Span,
        code: str,
    ) -> None:
        """Report a scope without a budget. An unknown risk level was already reported."""
        self._lacks_budget = True
        if risk is None:
            message = f"{scope} has no risk level, so `{policy.name}` has no budget for it"
            help_ = f"add `risk`, or add a budget under `except` of `{policy.name}`"
            self._diagnostics.report(code, message, span, help_)
        elif risk in self._policies.risk_levels:
            message = f"`{policy.name}` has no budget for the risk level `{risk}` of {scope}"
            help_ = f"add `{risk}` to its `budgets`"
            self._diagnostics.report("P029", message, policy.name.span, help_)

    def _check_budgets(self, budgets: Iterable[BudgetStatement]) -> None:
        for budget in budgets:
            lacks_delta = budget.epsilon is not None and budget.delta is None
            if lacks_delta and self._policies.accounting.delta is None and budget.span is not None:
                message = "the budget states ε without δ, and `accounting` has no `delta`"
                help_ = "add `accounting: {delta: 1e-7}`, or `delta: 0` here for pure DP"
                self._diagnostics.report("P040", message, budget.span, help_)

    def _check_extension(self, policy: Extension) -> None:
        names: dict[LocatedText, Span] = {}
        for name in (setting.name for setting in policy.settings):
            if name in names:
                message = f"the setting `{name}` is defined twice (first at {names[name]})"
                self._diagnostics.report("P010", message, name.span, "rename one of them")
            names.setdefault(name, name.span)
        if not any(setting.when == ALWAYS for setting in policy.settings):
            message = f"the extension `{policy.name}` has no setting that covers every mechanism"
            help_ = "add a setting with `when: always`, so that a rule covers every mechanism"
            self._diagnostics.report("P021", message, policy.name.span, help_)
        for setting in policy.settings:
            self._check_setting(setting, names)

    def _check_setting(self, setting: Setting, names: Collection[LocatedText]) -> None:
        self._compile_predicate(setting.when)
        self._compile_function(setting.function)
        self._check_below(setting.below, names, "setting")

    def _check_below(
        self, below: tuple[LocatedText, ...], known_names: Collection[LocatedText], what: str
    ) -> None:
        for name in below:
            if name not in known_names:
                message = f"unknown {what} `{name}`"
                self._diagnostics.report("P026", message, name.span, suggest(name, known_names))

    def _check_names(
        self, names: Iterable[LocatedText], known_names: Iterable[str], code: str, what: str
    ) -> None:
        known_set = set(known_names)
        for name in names:
            if name not in known_set:
                message = f"unknown {what} `{name}`"
                self._diagnostics.report(code, message, name.span, suggest(name, known_set))

    def _compile_predicate(self, text: LocatedText) -> None:
        if text in self._predicates:
            return
        result = parse_predicate(str(text), self._vocabulary.schema)
        if isinstance(result, tuple):
            self._report_problems(text, result)
        else:
            self._predicates[str(text)] = result

    def _compile_function(self, function: BudgetFunction) -> None:
        if not isinstance(function, Cel) or function.text in self._functions:
            return
        result = parse_budget_function(str(function.text), frozenset({"epsilon", "rho", "mu"}))
        if isinstance(result, tuple):
            self._report_problems(function.text, result)
        else:
            self._functions[str(function.text)] = result

    def _report_problems(self, text: LocatedText, problems: tuple[ExpressionProblem, ...]) -> None:
        for problem in problems:
            span = _part_span(text, problem.offset, problem.length)
            code = CEL_CODES[problem.kind]
            self._diagnostics.report(code, problem.message, span, problem.help)


def _part_span(text: LocatedText, offset: int, length: int) -> Span:
    """Return the span of a part of a text, or its whole span if it has escapes or line breaks."""
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


def _contains(outer: Span, inner: Span) -> bool:
    start, end = (outer.line, outer.column), (outer.end_line, outer.end_column)
    return inner.source is outer.source and start <= (inner.line, inner.column) < end
