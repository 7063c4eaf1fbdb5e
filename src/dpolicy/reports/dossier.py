"""Dossier: an evaluation in the order of NIST SP 800-226, and an impact assessment.

Part 1 follows the main chapters of SP 800-226 (2025): guarantee, algorithms, deployment. Part 2
follows Article 35(7) GDPR. dpolicy fills in what policy and ledger state; everything else is a
blank for the officer.
"""

from __future__ import annotations

from collections import Counter

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.policy.model import PolicySet
from dpolicy.reports.board_report import SPENT_NOTE, attestation, risk_note, risk_sentence
from dpolicy.reports.document import (
    Blank,
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
from dpolicy.reports.ledger_facts import LedgerFacts
from dpolicy.reports.promise_tables import conflict_table, promise_table
from dpolicy.reports.spending_tables import (
    SpendingAnswers,
    ask_spending,
    category_table,
    closest_level,
    unit_table,
)


def build_dossier(point: DecisionPoint, facts: LedgerFacts) -> Document:
    """Build the dossier of a ledger."""
    answers = ask_spending(point, facts)
    name = facts.policy.policy_set.name or "policy"
    return Document(
        "dossier",
        f"Privacy dossier: {name}",
        f"As of record {facts.audit.records}, {facts.generated}. The officer completes every part "
        "that is marked “To be filled in”.",
        (
            *_guarantee(answers),
            *_algorithms(facts),
            *_deployment(facts),
            *_impact_assessment(answers),
            attestation(facts),
        ),
    )


def _guarantee(answers: SpendingAnswers) -> tuple[Section, ...]:
    facts = answers.facts
    return (
        Section(
            "Part 1. Evaluation in the order of NIST SP 800-226",
            (Note("Each heading names the chapter of the publication that it answers."),),
        ),
        Section(
            "The guarantee: privacy parameters (chapter 2)",
            (
                Paragraph(risk_sentence(answers)),
                promise_table(facts),
                risk_note(answers),
                Blank("Why are these limits appropriate for the people in the data?"),
            ),
            3,
        ),
        Section(
            "The guarantee: variant and composition (chapter 2)",
            (
                Facts(_accounting(facts)),
                Paragraph(
                    "Filters compose the losses of all releases, also if a release was chosen "
                    "after the results of others (docs/theory/filters.md). A later policy never "
                    "changes what a recorded release means (docs/theory/records.md)."
                ),
            ),
            3,
        ),
        Section(
            "The guarantee: unit of privacy (chapter 2)",
            (
                unit_definitions(facts),
                unit_table(answers),
                Note(SPENT_NOTE),
                Blank("Which people or groups are not covered by these units?"),
            ),
            3,
        ),
    )


def _accounting(facts: LedgerFacts) -> dict[str, str]:
    accounting = facts.policy.accounting
    delta = accounting.delta
    notions = Counter(type(rule.budget).__name__ for rule in facts.policy.rules)
    words = {
        "EpsilonDelta": "(ε, δ)",
        "Zcdp": "zero-concentrated (ρ)",
        "Gdp": "Gaussian (μ)",
        "Renyi": "Rényi",
        "Unlimited": "unlimited",
    }
    return {
        "Variants of differential privacy": ", ".join(
            f"{words[name]}: {count} rules" for name, count in notions.items()
        ),
        "δ of budgets that state only ε": "none" if delta is None else str(float(delta)),
        "Neighbouring relation": str(accounting.relation),
        "Releases that no rule covers": "allowed" if accounting.allow_uncovered else "denied",
    }


def unit_definitions(facts: LedgerFacts) -> DocumentTable:
    """Return the privacy units of the policy: the protected entity and the period."""
    columns = (
        TableColumn("Unit"),
        TableColumn("Protected entity"),
        TableColumn("Period"),
        TableColumn("Relation"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            unit.entity,
            "all time" if unit.period is None else f"one {unit.period}",
            str(unit.relation),
        )
        for name, unit in facts.policy.units.items()
    ]
    return DocumentTable(columns, tuple(rows))


def _algorithms(facts: LedgerFacts) -> tuple[Section, ...]:
    kinds = Counter(m.kind for fact in facts.releases for m in fact.release.mechanisms)
    columns = (TableColumn("Mechanism"), TableColumn("Uses", CellKind.COUNT))
    rows: list[tuple[Cell, ...]] = [(kind, count) for kind, count in kinds.most_common()]
    declared = kinds.get("declared", 0)
    return (
        Section(
            "Algorithms: mechanisms (chapter 3)",
            (
                DocumentTable(columns, tuple(rows), "No release counts as spent."),
                Paragraph(
                    f"{declared} of the mechanisms state their loss themselves (declared); dpolicy "
                    "computes the loss of all others from their parameters."
                ),
                Blank("Which libraries ran the mechanisms? In which versions? Who reviewed them?"),
            ),
            3,
        ),
        Section(
            "Algorithms: utility and bias (chapter 3)",
            (
                Blank("How accurate are the results, and for which groups is the error largest?"),
                Blank("Which systemic, human or statistical bias can the noise hide or amplify?"),
            ),
            3,
        ),
    )


def _deployment(facts: LedgerFacts) -> tuple[Section, ...]:
    return (
        Section(
            "Deployment: trust model (chapter 4)",
            (Blank("Who can read the data before noise is added?"),),
            3,
        ),
        Section(
            "Deployment: implementation challenges (chapter 4)",
            (
                Paragraph(
                    "dpolicy counts in integers and rounds costs up and budgets down. It answers "
                    "only after the decision is recorded. It does not run mechanisms."
                ),
                Blank("How are floating-point attacks and timing side channels prevented?"),
            ),
            3,
        ),
        Section(
            "Deployment: data security and access control (chapter 4)",
            (
                Facts({"Denied releases": str(len(facts.denials))}),
                Blank("How are raw data and the ledger protected, and who has access?"),
            ),
            3,
        ),
        Section(
            "Deployment: exposure of collected data (chapter 4)",
            (Blank("Which data are collected, where are they stored, and when are they deleted?"),),
            3,
        ),
    )


def _impact_assessment(answers: SpendingAnswers) -> tuple[Section, ...]:
    return (
        Section(
            "Part 2. Data protection impact assessment",
            (
                Note("The headings follow Article 35 GDPR."),
                Blank("Name of the controller, of the data protection officer and of the project."),
            ),
        ),
        _description(answers.facts),
        Section(
            "Necessity and proportionality, Article 35(7)(b)",
            (
                Blank("Legal basis of the processing, and why these releases are necessary."),
                Blank("Could the purpose be reached with fewer attributes or more noise?"),
            ),
            3,
        ),
        Section(
            "Risks to the rights and freedoms of people, Article 35(7)(c)",
            (
                Paragraph(risk_sentence(answers)),
                category_table(answers),
                Note(SPENT_NOTE),
                Blank("Which harm can follow for people, how likely and how severe is it?"),
            ),
            3,
        ),
        _measures(answers.facts),
        Section(
            "Advice, views and review, Article 35(2), (9) and (11)",
            (
                Blank("Advice of the data protection officer."),
                Blank("Views of the people concerned, or the reason why they were not sought."),
                Blank("Remaining risk, decision, date of the next review, signature."),
            ),
            3,
        ),
    )


def _description(facts: LedgerFacts) -> Section:
    return Section(
        "Description of the processing and its purposes, Article 35(7)(a)",
        (
            Paragraph("Releases compute statistics or models from the data, with noise."),
            _data_table(facts.policy.policy_set),
            _purposes(facts),
            Blank("Purposes, recipients, retention, and any legitimate interest."),
        ),
        3,
    )


def _measures(facts: LedgerFacts) -> Section:
    text = (
        f"{len(facts.policy.rules)} rules limit what all releases together reveal. Releases that "
        f"were denied: {len(facts.denials)}. The ledger is append-only and its records are hashed."
    )
    return Section(
        "Measures against the risks, Article 35(7)(d)",
        (
            Paragraph(text),
            conflict_table(facts),
            Blank("Further measures: contracts, access control, training, review."),
        ),
        3,
    )


def _data_table(policies: PolicySet) -> DocumentTable:
    """Return the attributes by category and risk level."""
    level = closest_level(policies)
    columns = (TableColumn("Category"), TableColumn("Risk"), TableColumn("Attributes"))
    rows: list[tuple[Cell, ...]] = []
    listed: set[str] = set()
    for category, definition in policies.categories.items():
        members = [
            str(name)
            for name, attribute in policies.attributes.items()
            if category in attribute.memberships.get(level, ())
        ]
        listed.update(members)
        rows.append((str(category), str(definition.risk or "–"), ", ".join(members)))
    others = [str(name) for name in policies.attributes if str(name) not in listed]
    if others:
        rows.append(("no category", None, ", ".join(others)))
    return DocumentTable(columns, tuple(rows), "The policy names no attributes.")


def _purposes(facts: LedgerFacts) -> DocumentTable:
    """Return how many releases have each value of each label."""
    counts: Counter[tuple[str, str]] = Counter()
    for fact in facts.releases:
        pairs = {
            (name, value)
            for mechanism in fact.release.mechanisms
            for name, values in mechanism.labels.items()
            for value in ((values,) if isinstance(values, str) else values)
        }
        counts.update(pairs)
    columns = (TableColumn("Label"), TableColumn("Value"), TableColumn("Releases", CellKind.COUNT))
    rows: list[tuple[Cell, ...]] = [(*pair, count) for pair, count in sorted(counts.items())]
    return DocumentTable(columns, tuple(rows[:50]), "No release has labels.")
