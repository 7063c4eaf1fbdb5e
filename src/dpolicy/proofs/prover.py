"""Prover: the smallest bounds that a policy implies for a scope, or a history that breaks a claim.

A proof is about what the decision point enforces from an empty ledger under one policy. Imported
releases and accepted conflicts are an excess over it (docs/theory/proofs.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.budget import Budget, EpsilonDelta, Zcdp, budget_to_json
from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, Certificate, Notion
from dpolicy.proofs.claim import breaks_claim, implies_claim, make_claim, needed_amount, read_number
from dpolicy.proofs.cover import Cover, UnlimitedCase, find_cover, find_whole_cover
from dpolicy.proofs.history import Amounts, History, find_history
from dpolicy.proofs.mechanism_cases import CaseSearch, MechanismCase, UndecidedCover
from dpolicy.proofs.proof import Proof, make_proof
from dpolicy.proofs.proof_check import check_proof
from dpolicy.proofs.proof_question import Question, parse_question
from dpolicy.proofs.question_rules import additive_certificates, additive_limit, usable_rules
from dpolicy.rules.compiler import CompiledPolicy, load_policy

#: A loss that counts as no bound, if a history without a claim reaches it.
_NO_BOUND = Zcdp(Fraction(1000))


class ProofVerdict(StrEnum):
    """Result: a proof, a history that breaks the claim, or neither."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """The bounds of a question; with a claim, whether it holds.

    `proofs` has one proof for each notion that has a bound, and those of (ε, δ) that no other one
    implies. `worst` has the largest history of each proof, or None if the
    decision point confirms none; it is empty with a claim.
    `broken_by` breaks the claim, or shows that there is no bound. `reason` is why nothing is
    decided.
    """

    question: Question
    claim: Budget | None
    verdict: ProofVerdict
    proofs: tuple[Proof, ...]
    worst: tuple[History | None, ...] = ()
    broken_by: History | None = None
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether the claim is proved; without a claim, whether there is any bound."""
        return self.verdict is ProofVerdict.HOLDS

    @property
    def proof(self) -> Proof | None:
        """The first proof that implies the claim."""
        if self.claim is None:
            return self.proofs[0] if self.proofs else None
        return next((proof for proof in self.proofs if implies_claim(proof, self.claim)), None)

    def as_json(self) -> dict[str, object]:
        """Return the JSON of the answer."""
        histories = self.worst or (None,) * len(self.proofs)
        return {
            **self.question.as_json(),
            "claim": None if self.claim is None else budget_to_json(self.claim),
            "verdict": str(self.verdict),
            "proofs": [
                {**proof.as_json(), "worst-case": None if history is None else history.as_json()}
                for proof, history in zip(self.proofs, histories, strict=True)
            ],
            "broken-by": None if self.broken_by is None else self.broken_by.as_json(),
            "reason": self.reason or None,
        }


def prove(
    policy: CompiledPolicy | str | Path,
    when: str = "always",
    unit: str = "user",
    at: Mapping[str, str] | None = None,
    *,
    epsilon: Fraction | float | str | None = None,
    delta: Fraction | float | str | None = None,
    rho: Fraction | float | str | None = None,
    mu: Fraction | float | str | None = None,
) -> ProofAnswer:
    """Return the bounds that a policy implies for all releases in a scope, with their proofs.

    `when` is a CEL predicate or `always`. With a claim (ε with δ, ρ or μ), the answer says whether
    it holds. Raise `InvalidValue` if the question is not valid or has too many cases.
    """
    compiled = policy if isinstance(policy, CompiledPolicy) else load_policy(policy)
    stated = (None if value is None else read_number(value) for value in (epsilon, delta, rho, mu))
    return answer_question(compiled, parse_question(compiled, when, unit, at), make_claim(*stated))


def answer_question(
    policy: CompiledPolicy,
    question: Question,
    claim: Budget | None = None,
    *,
    with_worst: bool = True,
) -> ProofAnswer:
    """Return the proofs of a question, and whether the claim holds.

    Without a claim, the answer has the worst histories, unless `with_worst` is False.
    """
    search = CaseSearch(policy, question, usable_rules(policy, question))
    bounds = _Bounds(search)
    bounds.find(claim.delta if isinstance(claim, EpsilonDelta) else None)
    proofs = tuple(proof for proof, _ in bounds.covers)
    for proof in proofs:
        problem = check_proof(policy, proof)
        if problem is not None:
            raise InvariantBroken(f"a proof is not valid: {problem}")
    if any(claim is None or implies_claim(proof, claim) for proof in proofs):
        worst = tuple(bounds.worst_histories()) if claim is None and with_worst else ()
        return ProofAnswer(question, claim, ProofVerdict.HOLDS, proofs, worst)
    history = bounds.find_break(claim or _NO_BOUND)
    if history is not None:
        return ProofAnswer(question, claim, ProofVerdict.BROKEN, proofs, broken_by=history)
    reason = "there is no proof, and no history that the policy allows breaks the claim for certain"
    reasons = bounds.undecided or [reason]
    return ProofAnswer(question, claim, ProofVerdict.UNDECIDED, proofs, reason=reasons[0])


@dataclass(slots=True)
class _Bounds:
    """Covers of one question in every notion, and the cases without a limit.

    `undecided` are the reasons why the search for a cover gave up.
    """

    search: CaseSearch
    covers: list[tuple[Proof, Cover | None]] = field(default_factory=list)
    unlimited: dict[Certificate | None, MechanismCase] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)

    def find(self, delta: Fraction | None = None) -> None:
        """Find the cheapest cover in every notion.

        With `delta`, also find the cheapest cover by whole rules with at most this δ.
        """
        for certificate in additive_certificates(self.search.rules):
            limits = {
                number: limit
                for number, rule in self.search.rules.items()
                if (limit := additive_limit(rule, certificate)) is not None
            }
            self._find_cover(certificate, limits)
        costs = {
            number: (rule.budget.epsilon, rule.budget.delta)
            for number, rule in self.search.rules.items()
            if isinstance(rule.budget, EpsilonDelta)
        }
        first = self._find_cover(None, {number: epsilon for number, (epsilon, _) in costs.items()})
        if first is None:
            return
        if any(part.weight < 1 for part in first.parts):
            self._find_whole_cover(costs, None)
        if delta is not None and min(p.delta for p, _ in self.covers) > delta:
            self._find_whole_cover(costs, delta)

    def _find_whole_cover(
        self, costs: Mapping[int, tuple[Fraction, Fraction]], delta: Fraction | None
    ) -> None:
        try:
            weights = find_whole_cover(self.search, costs, delta)
        except UndecidedCover as failure:
            self.undecided.append(str(failure))
            return
        if weights is not None:
            self.covers.append((self._proof(None, weights), None))

    def _find_cover(
        self, certificate: Certificate | None, limits: Mapping[int, Fraction]
    ) -> Proof | None:
        try:
            cover = find_cover(self.search, limits)
            if isinstance(cover, UnlimitedCase):
                self.unlimited[certificate] = cover.case
                return None
            proof = self._proof(certificate, cover.weights)
        except UndecidedCover as failure:
            self.undecided.append(str(failure))
            return None
        has_pure = any(p.certificate == PURE and p.amount <= proof.amount for p, _ in self.covers)
        if certificate is not None or not has_pure:
            self.covers.append((proof, cover))
        return proof

    def _proof(self, certificate: Certificate | None, weights: Mapping[int, Fraction]) -> Proof:
        rules = self.search.rules
        pairs = [(rules[number], weight) for number, weight in weights.items()]
        return make_proof(self.search.question, certificate, pairs)

    def worst_histories(self) -> Iterator[History | None]:
        """Yield the largest history of each cover, or None if the decision point denies it."""
        for proof, cover in self.covers:
            history = None
            if cover is not None and cover.history:
                kind, amounts = _history_amounts(proof.certificate, cover.history)
                history = find_history(self.search, amounts, kind, proof.certificate or PURE)
            yield history

    def find_break(self, claim: Budget) -> History | None:
        """Return a history that breaks the claim, or None."""
        for certificate, amounts, largest in self._candidates():
            kind, scaled = _history_amounts(certificate, amounts)
            total = sum((amount for _, amount in scaled), Fraction(0))
            needed = needed_amount(claim, kind)
            totals = [needed, (needed + total) / 2, total] if largest else [needed, needed + 1]
            for target in totals if needed <= total or not largest else []:
                shares = [(case, amount * target / total) for case, amount in scaled]
                in_notion = PURE if kind == "laplace" else RHO
                history = find_history(self.search, shares, kind, in_notion)
                if history is not None and breaks_claim(history, claim):
                    return history
        leaks = self._find_leaks()
        return leaks if leaks is not None and breaks_claim(leaks, claim) else None

    def _find_leaks(self) -> History | None:
        """Return the largest history of stated δ that the rules admit; None if they admit none."""
        limits = {
            number: rule.bound.delta
            for number, rule in self.search.rules.items()
            if rule.bound.delta is not None
        }
        try:
            cover = find_cover(self.search, limits)
        except UndecidedCover:
            return None
        if isinstance(cover, UnlimitedCase):
            return find_history(self.search, [(cover.case, Fraction(1, 10))], "declared", None)
        return find_history(self.search, cover.history, "declared", None)

    def _candidates(self) -> Iterator[tuple[Certificate | None, Amounts, bool]]:
        """Yield amounts by case, and whether they are the largest that the limits admit."""
        for proof, cover in self.covers:
            if cover is not None and cover.history:
                yield proof.certificate, cover.history, True
        for certificate, case in self.unlimited.items():
            yield certificate, [(case, Fraction(1))], False


def _history_amounts(certificate: Certificate | None, amounts: Amounts) -> tuple[str, Amounts]:
    """Return the kind of mechanism, and the amounts in pure ε or ρ."""
    if certificate is None or certificate == PURE:
        return "laplace", amounts
    divisor = Fraction(1)
    if certificate == MU_SQUARED:
        divisor = Fraction(2)
    elif certificate.notion is Notion.RENYI:
        divisor = certificate.order
    return "gaussian", [(case, amount / divisor) for case, amount in amounts]
