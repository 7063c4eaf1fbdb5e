"""Risk in words: what a loss or a budget lets an attacker learn about one privacy unit.

Every number is an upper bound and rounded up (theory/risk).
"""

from __future__ import annotations

from dpolicy.privacy.number_text import format_up
from dpolicy.privacy.risk.attacker_risk import PRIORS, AttackerRisk
from dpolicy.privacy.risk.risk_text import ASSUMPTION, format_percent

#: Rate of false alarms in the sentence about a test.
FALSE_POSITIVE_RATE = 0.01


def belief_sentence(risk: AttackerRisk, condition: str = "") -> str:
    """Return how much the belief of an attacker can grow, from some beliefs before.

    A `condition` is the first part of the sentence, such as "after one release".
    """
    steps = [f"from {_percent(p)} to at most {_percent(risk.posterior(p))}" for p in PRIORS]
    failure = risk.posterior_failure
    exception = f", except with probability {format_up(failure)}" if failure else ""
    growth = ", ".join(steps[:-1]) + f" and {steps[-1]}"
    clause = f"the belief of an attacker in a fact can grow {growth}{exception}."
    if not risk.is_bounded:
        clause = "there is no bound on what an attacker learns."
    sentence = f"{condition}, {clause}" if condition else clause
    return sentence[0].upper() + sentence[1:]


def detection_sentence(risk: AttackerRisk, unit: str) -> str:
    """Return how many units a test recognises that raises few false alarms."""
    rate = _percent(risk.true_positive_rate(FALSE_POSITIVE_RATE))
    return (
        f"A test for the data of one {unit} that raises {_percent(FALSE_POSITIVE_RATE)} false "
        f"alarms recognises at most {rate} of the true cases."
    )


def assumption_sentence(unit: str) -> str:
    """Return what the attacker is assumed to know, and what the numbers are not."""
    return (
        f"The attacker knows everything except one fact about one {unit}, and has all these "
        f"results: {ASSUMPTION}."
    )


def _percent(share: float) -> str:
    """Return a percentage that no line break divides."""
    return format_percent(share).replace(" ", "\u00a0")
