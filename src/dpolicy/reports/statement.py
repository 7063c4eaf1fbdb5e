"""Public statement: all releases with their data, ε and δ, without authors and ids.

It has one line for each release, like the lists of deployments that organisations publish. Names
of releases and mechanisms, authors, reasons and labels stay in the ledger.
"""

from __future__ import annotations

from fractions import Fraction

from dpolicy.decisions.release_totals import total_costs
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.privacy.cost_report import round_up_to_printed_float
from dpolicy.reports.board_report import risk_note, risk_sentence
from dpolicy.reports.document import (
    Cell,
    CellKind,
    Document,
    DocumentTable,
    Facts,
    Note,
    Paragraph,
    Section,
    TableColumn,
)
from dpolicy.reports.dossier import unit_definitions
from dpolicy.reports.ledger_facts import LedgerFacts, ReleaseFact
from dpolicy.reports.promise_tables import public_promise_table
from dpolicy.reports.spending_tables import ask_spending, unit_table

#: δ of the stated ε if the policy has none.
DEFAULT_DELTA = Fraction("1e-7")


def build_statement(point: DecisionPoint, facts: LedgerFacts) -> Document:
    """Build the public statement of a ledger."""
    answers = ask_spending(point, facts)
    name = facts.policy.policy_set.name or "policy"
    return Document(
        "statement",
        f"Privacy statement: {name}",
        f"All releases that were computed with differential privacy, as of {facts.generated[:10]}",
        (
            Section(
                "In short",
                (Paragraph(risk_sentence(answers)), risk_note(answers), unit_table(answers)),
            ),
            Section("Protected units", (unit_definitions(facts),)),
            Section("Promises", (public_promise_table(facts),)),
            Section(
                "Releases",
                (
                    _release_table(facts),
                    Note(
                        "ε of each release alone, at δ, rounded up. Losses of several releases do "
                        "not add up in ε; the first table has all releases together."
                    ),
                ),
            ),
            Section(
                "Evidence",
                (
                    Facts(
                        {
                            "Records of the ledger": str(facts.audit.records),
                            "Hash of the last record": facts.audit.head,
                            "Verified": "no" if facts.audit.findings else "yes",
                        }
                    ),
                ),
            ),
        ),
    )


def _release_table(facts: LedgerFacts) -> DocumentTable:
    columns = (
        TableColumn("Month", is_short=True),
        TableColumn("Data"),
        TableColumn("Period of the data", is_short=True),
        TableColumn("Protected unit", is_short=True),
        TableColumn("Method", is_short=True),
        TableColumn("ε", CellKind.LOSS, "no bound"),
        TableColumn("δ", CellKind.DELTA),
    )
    return DocumentTable(columns, tuple(_release_row(fact, facts) for fact in facts.releases))


def _release_row(fact: ReleaseFact, facts: LedgerFacts) -> tuple[Cell, ...]:
    release = fact.release
    kinds = ", ".join(dict.fromkeys(mechanism.kind for mechanism in release.mechanisms))
    unit, epsilon, delta = _loss(fact, facts)
    data = ", ".join(fact.attributes) or "no attribute"
    return fact.day[:7], data, _period(fact), unit, kinds, epsilon, delta


def _period(fact: ReleaseFact) -> str:
    """Return the first and the last day of the data; `…` for an open end."""
    periods = [mechanism.get("time") for mechanism in fact.release.body["mechanisms"]]
    stated = [period for period in periods if period]
    if len(stated) < len(periods):
        return "all time"
    starts, ends = ([period.get(key) for period in stated] for key in ("from", "to"))
    first = min(starts) if all(starts) else "…"
    last = max(ends) if all(ends) else "…"
    return f"{first} to {last}"


def _loss(fact: ReleaseFact, facts: LedgerFacts) -> tuple[str, float | None, float]:
    """Return the stated unit of a release, with its ε at δ for that unit."""
    delta = facts.policy.accounting.delta or DEFAULT_DELTA
    if fact.meaning is None:
        return "unknown", None, float(delta)
    unit = fact.meaning.mechanisms[0].unit
    cost = total_costs(fact.release, fact.meaning, facts.policy)[unit]
    at_delta = max(delta, 2 * cost.delta)
    return unit, cost.epsilon(at_delta), round_up_to_printed_float(at_delta)
