"""Text of the reasons of a decision: JSON as `Reason.as_json` gives it, from cached parts.

Of a reason, only the place, the losses before and after the release and the binding quantity depend
on the balances. The text must be byte for byte that of `json.dumps(..., sort_keys=True)`.

A record holds the answer as a JSON string, so every quote of the answer is escaped in the record.
All parts here are *nested*: escaped as they occur in the record. So the answer of a decision need
not be escaped again.
"""

from __future__ import annotations

from json.encoder import JSONEncoder, encode_basestring
from typing import NamedTuple

from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.kernel.kernel import BudgetEpsilon
from dpolicy.balances.loss_display import (
    MAX_EXACT_QUANTA,
    LossFormatter,
    decimal_rounded_up,
    delta_rounded_up,
)
from dpolicy.privacy.budget import EpsilonDelta, budget_notion
from dpolicy.privacy.certificates import QUANTA_PER_UNIT
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import DELTA_QUANTA


def nest_text(text: str) -> str:
    """Return a text as it occurs inside a JSON string."""
    return encode_basestring(text)[1:-1]


def nested_json(value: object) -> str:
    """Return the JSON text of a value as it occurs inside a recorded answer."""
    return nest_text(_json(value))


class RuleText(NamedTuple):
    """The parts of a reason that depend on the rule only, in the order of the sorted keys.

    `binding` is the text of the binding quantity of a loss without stated δ. `loss_start` is the
    text before the number of such a loss; None if the number is not a decimal of its quanta.
    `reserves` has the ε of a variance, which may be smaller than the sums.
    """

    formatter: LossFormatter
    reserves: BudgetEpsilon | None
    loss_start: str | None
    binding: str
    before_cost: str
    after_cost: str
    end: str


class ReasonText(NamedTuple):
    """The parts of a reason that depend on a rule and a cost.

    `middle` is the text from the binding quantity to the loss before the release. `start`,
    `plain_middle` and `plain_end` are the texts around the numbers of losses without stated δ.
    """

    rule: RuleText
    middle: str
    start: str
    plain_middle: str
    plain_end: str

    def with_plain_numbers(self, at: str, before: int, after: int, delta: int) -> str | None:
        """Return the reason of losses in quanta; `at` is the text of the location.

        `delta` is the stated δ after the release. Return None if it is above 0, or if a float may
        not print a number exactly. The loss before a release is at most the loss after it.
        """
        if delta or after >= MAX_EXACT_QUANTA or self.rule.loss_start is None:
            return None
        return (
            f"{self.start}{after / QUANTA_PER_UNIT!r}{_BEFORE_LOCATION}{at}"
            f"{self.plain_middle}{before / QUANTA_PER_UNIT!r}{self.plain_end}"
        )

    def with_losses(self, at: str, binding: str, before: str, after: str) -> str:
        """Return the reason; all arguments are texts."""
        return f"{_START}{after}{_AT}{at}{_BINDING}{binding}{self.middle}{before}{self.rule.end}"


_START, _AT, _BINDING = (nest_text(text) for text in ('{"after": ', ', "at": ', ', "binding": '))
_BEFORE_LOCATION = f"}}{_AT}"


def describe_reason_text(
    section: EnforcedSection, number: int, cost: int, delta: int, *, holds: bool
) -> ReasonText:
    """Return the parts of the reason of a rule; the cost of the release is in quanta."""
    rule: RuleText = section.reason_texts.get_or_compute(
        (number, holds), lambda _: _describe_rule_text(section, number, holds=holds)
    )
    middle = f"{rule.before_cost}{loss_json(rule.formatter, cost, delta)}{rule.after_cost}"
    return ReasonText(
        rule,
        middle,
        f"{_START}{rule.loss_start}",
        f"{_BINDING}{rule.binding}{middle}{rule.loss_start}",
        f"}}{rule.end}",
    )


def _describe_rule_text(section: EnforcedSection, number: int, *, holds: bool) -> RuleText:
    rule, formatter = section.describe_rule(number), section.formatter_for(number)
    (figure,) = formatter.figures
    zero = loss_json(formatter, 0, 0)
    return RuleText(
        formatter,
        None if figure.reserves is None else figure.reserves.epsilon,
        zero.removesuffix("0.0}") if figure.format_amount is decimal_rounded_up else None,
        nested_json(budget_notion(formatter.budget)),
        nest_text(f', "budget": {_json(rule["budget"])}, "cost": '),
        nest_text(
            f', "each-release": {_json(rule["each_release"])}, "holds": {_json(holds)}'
            f', "leaks": {_json(rule["leaks"])}, "policies": {_json(list(rule["policies"]))}'
            f', "rule": {_json(rule["rule"])}, "source": {_json(rule["source"])}, "spent": '
        ),
        nest_text(f', "spent-most": [], "unit": {_json(rule["unit"])}}}'),
    )


_json = JSONEncoder(ensure_ascii=False, sort_keys=True).encode


def loss_json(formatter: LossFormatter, quanta: int, delta: int) -> str:
    """Return the nested text of a displayed loss with one number, in quanta, and stated δ."""
    (figure,) = formatter.figures
    amount = "null" if quanta >= INFINITE else float.__repr__(figure.format_amount(quanta))
    if isinstance(formatter.budget, EpsilonDelta) or 0 < delta < DELTA_QUANTA:
        return f'{{\\"delta\\": {delta_rounded_up(delta)!r}, \\"{figure.name}\\": {amount}}}'
    return f'{{\\"{figure.name}\\": {amount}}}'
