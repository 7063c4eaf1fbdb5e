"""Texts of an attacker risk for people, with the assumption beside the numbers, rounded up."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpolicy.privacy.number_text import format_up
from dpolicy.privacy.risk.attacker_risk import FALSE_POSITIVE_RATES, PRIORS, AttackerRisk

#: Significant digits of a displayed probability.
_DIGITS = 3

#: Assumption that every text with a risk states.
ASSUMPTION = (
    "worst case over all people, outputs and prior knowledge; it is not a probability of harm"
)


def risk_lines(
    risk: AttackerRisk,
    priors: Sequence[float] = PRIORS,
    rates: Sequence[float] = FALSE_POSITIVE_RATES,
) -> list[str]:
    """Return one sentence for each prior and each false-positive rate, and the best guess."""
    return [
        *(
            f"an attacker who believes {format_percent(prior)} ends at no more than "
            f"{format_percent(risk.posterior(prior))}"
            for prior in priors
        ),
        *(
            f"an attack with {format_percent(rate)} false alarms recognises at most "
            f"{format_percent(risk.true_positive_rate(rate))} of people"
            for rate in rates
        ),
        f"a guess between two possibilities is right in at most {format_percent(risk.guess(0.5))} "
        f"(advantage {format_percent(risk.advantage)})",
    ]


def risk_summary(risk: AttackerRisk) -> str:
    """Return the risk in one line: two posteriors and the true-positive rate at 1 %."""
    beliefs = ", ".join(
        f"{format_percent(prior)} → {format_percent(risk.posterior(prior))}"
        for prior in (0.5, 0.01)
    )
    rate = format_percent(risk.true_positive_rate(0.01))
    return f"belief {beliefs}; recognised {rate} at 1 % false alarms"


def assumption_lines(risks: Sequence[AttackerRisk]) -> list[str]:
    """Return the assumption of every number, and the largest probability of a larger belief."""
    lines = [ASSUMPTION]
    failure = max((risk.posterior_failure for risk in risks if risk.is_bounded), default=0.0)
    if failure:
        lines.append(f"a larger belief has probability at most {format_up(failure)}")
    return lines


def format_percent(probability: float) -> str:
    """Return a probability in per cent, rounded up; 100 % is the text of 1 only."""
    percent = 100 * Fraction(repr(probability))
    texts = [format_up(percent, digits) for digits in (_DIGITS, _DIGITS + 2)]
    text = next((text for text in texts if percent >= 100 or Fraction(text) < 100), "< 100")
    return f"{text} %"
