"""Coalitions: the bound for the releases of any k values of a label, such as any two teams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import Budget, budget_to_json
from dpolicy.proofs.proof import Proof
from dpolicy.proofs.proof_question import Question, parse_question
from dpolicy.proofs.prover import ProofAnswer, ProofVerdict, answer_question
from dpolicy.releases.release_schema import Label
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.did_you_mean import suggest

#: Coalitions of one question; each of them is proved separately.
MAX_COALITIONS = 300


@dataclass(frozen=True, slots=True)
class CoalitionAnswer:
    """The answers for all coalitions. A bound counts only if every coalition has it."""

    label: str
    size: int
    claim: Budget | None
    answers: tuple[tuple[tuple[str, ...], ProofAnswer], ...]

    @property
    def verdict(self) -> ProofVerdict:
        """Broken if one coalition breaks the claim; holds if it holds for all."""
        verdicts = {answer.verdict for _, answer in self.answers}
        for verdict in (ProofVerdict.BROKEN, ProofVerdict.UNDECIDED):
            if verdict in verdicts:
                return verdict
        return ProofVerdict.HOLDS

    @property
    def decisive(self) -> tuple[tuple[str, ...], ProofAnswer]:
        """The first coalition with the verdict of all."""
        return next(pair for pair in self.answers if pair[1].verdict is self.verdict)

    @property
    def largest(self) -> tuple[tuple[tuple[str, ...], Proof], ...]:
        """A bound of each notion that all coalitions have, with the coalition of the largest.

        In (ε, δ) it has the largest ε and the largest δ, which can be of different coalitions.
        """
        by_notion: dict[object, list[tuple[tuple[str, ...], Proof]]] = {}
        for values, answer in self.answers:
            for notion, proof in {p.certificate: p for p in reversed(answer.proofs)}.items():
                by_notion.setdefault(notion, []).append((values, proof))
        return tuple(
            _join_bounds(bounds)
            for bounds in by_notion.values()
            if len(bounds) == len(self.answers)
        )

    def as_json(self) -> dict[str, object]:
        """Return the JSON of the answer."""
        values, answer = self.decisive
        broken = None if answer.broken_by is None else answer.broken_by.as_json()
        return {
            "any": self.size,
            "of": self.label,
            "claim": None if self.claim is None else budget_to_json(self.claim),
            "verdict": str(self.verdict),
            "bounds": [{"values": list(own), **p.as_json()} for own, p in self.largest],
            "broken-by": None if broken is None else {"values": list(values), **broken},
            "reason": answer.reason or None,
        }


def _join_bounds(
    bounds: Sequence[tuple[tuple[str, ...], Proof]],
) -> tuple[tuple[str, ...], Proof]:
    values, proof = max(bounds, key=lambda bound: (bound[1].amount, bound[1].delta))
    return values, replace(proof, delta=max(own.delta for _, own in bounds))


def prove_coalitions(
    policy: CompiledPolicy, question: Question, size: int, of: str, claim: Budget | None = None
) -> CoalitionAnswer:
    """Answer the question for the releases of every coalition of `size` values of the label `of`.

    Raise `InvalidValue` if the label has no list of values, or if there are too many coalitions.
    """
    label = _find_label(policy, of)
    values = label.values or ()
    if not 1 <= size <= len(values):
        message = f"`{of}` has {len(values)} values, so no coalition has {size}"
        raise InvalidValue("Q003", f"{message}; help: use `--any` from 1 to {len(values)}")
    if comb(len(values), size) > MAX_COALITIONS:
        message = f"{comb(len(values), size):,} coalitions, more than {MAX_COALITIONS}"
        raise InvalidValue("Q004", f"{message}; help: ask about fewer values in `--when`")
    answers = []
    for chosen in combinations(values, size):
        when = _limit_scope(question, label, chosen)
        own = parse_question(policy, when, question.unit, question.at)
        answers.append((chosen, answer_question(policy, own, claim, with_worst=False)))
    return CoalitionAnswer(of, size, claim, tuple(answers))


def _find_label(policy: CompiledPolicy, name: str) -> Label:
    labels: Mapping[str, Label] = policy.schema.labels
    if name in labels and labels[name].values is not None:
        return labels[name]
    listed = [other for other, label in labels.items() if label.values is not None]
    help_ = suggest(name, listed) or "a coalition needs a label with `values`"
    raise InvalidValue("Q003", f"`{name}` is no label with a list of values; help: {help_}")


def _limit_scope(question: Question, label: Label, chosen: Sequence[str]) -> str:
    """Return the scope of the question, limited to the mechanisms with one of the values."""
    if label.many:
        inside = " || ".join(f"{json.dumps(v)} in labels.{label.name}" for v in chosen)
    else:
        inside = f"labels.{label.name} in {json.dumps(list(chosen), ensure_ascii=False)}"
    if label.may_be_missing and not label.many:
        inside = f"has(labels.{label.name}) && {inside}"
    return inside if question.text == "always" else f"({question.text}) && ({inside})"
