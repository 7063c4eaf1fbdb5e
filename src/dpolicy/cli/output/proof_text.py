"""Text of proofs and of histories that break a claim. Bounds are rounded up."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Zcdp, format_budget
from dpolicy.privacy.certificates import MU_SQUARED, format_order
from dpolicy.privacy.conversion import gaussian_to_epsilon
from dpolicy.privacy.number_text import BUDGET_DIGITS, format_down, format_up
from dpolicy.proofs.coalitions import CoalitionAnswer
from dpolicy.proofs.history import History
from dpolicy.proofs.proof import Part, Proof
from dpolicy.proofs.proof_question import Question
from dpolicy.proofs.prover import ProofAnswer, ProofVerdict
from dpolicy.releases.body import Body

#: What a kind of history reaches.
_REACHED = {"laplace": "pure ε", "gaussian": "ρ", "declared": "δ"}


def answer_lines(answer: ProofAnswer) -> list[str]:
    """Return the lines of an answer."""
    subject = _subject(answer.question)
    if answer.claim is None:
        if not answer.proofs:
            return _no_bound_lines(answer, subject)
        lines = []
        for number, proof in enumerate(answer.proofs):
            lines.append(f"the policy keeps {subject} within {bound_text(proof.budget)}")
            lines.append(f"  because of {_parts_text(proof)}")
            if answer.worst and answer.worst[number] is not None:
                lines.append(f"  {_worst_text(proof, answer.worst[number])}")
        return lines
    claim = bound_text(answer.claim)
    if answer.proof is not None:
        proof = answer.proof
        own = _bound_at_claim(proof, answer.claim)
        return [
            f"{claim} holds: the policy keeps {subject} within {own}",
            f"  because of {_parts_text(proof)}",
        ]
    return [*_refusal_lines(answer, claim, subject), *_known_lines(answer)]


def coalition_lines(coalition: CoalitionAnswer, question: Question) -> list[str]:
    """Return the lines of an answer for coalitions."""
    people = f"any {coalition.size} of `{coalition.label}`"
    subject = f"{_subject(question)}, by {people},"
    if coalition.verdict is not ProofVerdict.HOLDS:
        values, answer = coalition.decisive
        claim = "a bound" if coalition.claim is None else bound_text(coalition.claim)
        return _refusal_lines(answer, claim, f"{subject} such as {' and '.join(values)}")
    lines = []
    if coalition.claim is not None:
        lines.append(f"{bound_text(coalition.claim)} holds for {people}")
    for values, proof in coalition.largest:
        lines.append(f"the policy keeps {subject} within {bound_text(proof.budget)}")
        lines.append(f"  for {' and '.join(values)} because of {_parts_text(proof)}")
    return lines


def bound_text(budget: Budget) -> str:
    """Return a bound as text, rounded up."""
    match budget:
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            pure = f"ε {format_up(epsilon, BUDGET_DIGITS)}"
            return f"{pure}, δ {format_up(delta, BUDGET_DIGITS)}" if delta else pure
        case Zcdp(rho=rho):
            return f"ρ {format_up(rho, BUDGET_DIGITS)}"
        case Gdp(mu=mu):
            return f"μ {format_up(mu, BUDGET_DIGITS)}"
        case Renyi(orders=orders):
            texts = (f"Rényi({format_order(o)}) {format_up(v, BUDGET_DIGITS)}" for o, v in orders)
            return ", ".join(texts)
        case _:
            return "no bound"


def _subject(question: Question) -> str:
    place = "".join(f", {name} {value}" for name, value in question.at.items())
    scope = "all releases" if question.text == "always" else f"all releases in `{question.text}`"
    return f"{scope} for one {question.unit}{place}"


def _parts_text(proof: Proof) -> str:
    if not proof.parts:
        return "the scope: the policy allows no mechanism in it"
    return " + ".join(_part_text(part, proof) for part in proof.parts)


def _part_text(part: Part, proof: Proof) -> str:
    unit = "" if part.rule.unit == proof.question.unit else f" for {part.rule.unit}"
    budget = format_budget(part.rule.budget).replace("  ", ", ")
    weight = "" if part.weight == 1 else f"{part.weight} × "
    return f"{weight}{part.rule.name}{unit} ({budget})"


def _worst_text(proof: Proof, history: History | None) -> str:
    if history is None:
        return ""
    if proof.certificate == MU_SQUARED:
        reached = f"μ {format_down(math.sqrt(history.reached), 6)}"
    else:
        symbol = bound_text(proof.budget).split(" ")[0]
        symbol = "pure ε" if symbol == "ε" else symbol
        reached = f"{symbol} {format_down(history.reached, 6)}"
    text = f"the policy allows {_reach_words(history)} {reached}"
    is_exact = history.reached == proof.amount and not proof.delta
    return f"{text}: no smaller bound holds" if is_exact else text


def _no_bound_lines(answer: ProofAnswer, subject: str) -> list[str]:
    return _refusal_lines(answer, "a bound", subject)


def _refusal_lines(answer: ProofAnswer, claim: str, subject: str) -> list[str]:
    history = answer.broken_by
    if history is None:
        return [f"undecided: {claim} for {subject}", f"  {answer.reason}"]
    reached = _reached_text(history, answer.claim)
    return [
        f"{claim} does not hold for {subject}",
        f"  the policy allows {_reach_words(history)} {reached}:",
        *(f"  {line}" for line in _release_lines(history)),
    ]


def _bound_at_claim(proof: Proof, claim: Budget) -> str:
    """Return the bound of a proof; with a claimed ε, also the ε that it implies at the δ."""
    own = bound_text(proof.budget)
    if not isinstance(claim, EpsilonDelta) or isinstance(proof.budget, EpsilonDelta):
        return own
    epsilon = proof.epsilon(claim.delta)
    return own if epsilon is None else f"{own}, which is ε {format_up(epsilon)} at the claimed δ"


def _reached_text(history: History, claim: Budget | None) -> str:
    """Return what a history reaches, rounded down; Gaussian noise also as ε at the claimed δ.

    A history whose notion has no conversion to that of the claim breaks every such claim.
    """
    text = f"{_REACHED[history.kind]} {format_down(history.reached, 9)}"
    if history.kind == "declared":
        return text if isinstance(claim, EpsilonDelta | None) else f"{text}, with no finite ρ or μ"
    if history.kind != "gaussian" or not isinstance(claim, EpsilonDelta):
        return text
    if not claim.delta:
        return f"{text}, with no finite ε at δ 0"
    epsilon = gaussian_to_epsilon(math.sqrt(2 * history.reached), claim.delta)
    return f"{text}, which is ε {format_down(epsilon, 6)} at δ {format_down(claim.delta)}"


def _known_lines(answer: ProofAnswer) -> Iterator[str]:
    for proof in answer.proofs:
        yield f"  the policy implies {bound_text(proof.budget)}, by {_parts_text(proof)}"


def _release_lines(history: History) -> Iterator[str]:
    for release in history.releases[:20]:
        yield f"  {_release_text(release)}"
    if len(history.releases) > 20:
        yield f"  … and {len(history.releases) - 20} more"


def _release_text(release: Body) -> str:
    mechanism = release["mechanisms"][0]
    parameters = dict(mechanism["mechanism"])
    kind = parameters.pop("kind")
    noise = ", ".join(f"{name} {value}" for name, value in parameters.items())
    attributes = ", ".join(mechanism.get("attributes", ())) or "no attribute"
    labels = "".join(f", {name}: {value}" for name, value in mechanism.get("labels", {}).items())
    return f"{release['release']}: {kind} ({noise}) for {mechanism['unit']}, {attributes}{labels}"


def _reach_words(history: History) -> str:
    count = len(history.releases)
    return "1 release that reaches" if count == 1 else f"{count} releases that together reach"
