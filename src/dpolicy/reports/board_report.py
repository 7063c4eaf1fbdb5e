"""Board report: promises, use, trend, spenders, denials, policy changes and attestation."""

from __future__ import annotations

from fractions import Fraction

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.privacy.number_text import format_down, format_up
from dpolicy.privacy.risk.attacker_risk import attacker_risk, risk_of_budget
from dpolicy.privacy.risk.risk_text import format_percent
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
from dpolicy.reports.ledger_facts import LedgerFacts
from dpolicy.reports.promise_tables import (
    MAX_RULES,
    conflict_table,
    promise_table,
    use_table,
)
from dpolicy.reports.spending_tables import (
    SpendingAnswers,
    ask_spending,
    author_table,
    category_table,
    release_table,
    trend_table,
    unit_table,
)

FILTER_NOTE = "Used amounts are as the filter of each rule counts them (dpolicy budgets)."
SPENT_NOTE = (
    "ε of all releases together at the stated δ, rounded up (dpolicy spent). It is an accounting "
    "value; the guarantee is the limit of the rules."
)
#: Number of denials and policy changes that the report lists, newest first.
MAX_LISTED = 20


def build_board_report(point: DecisionPoint, facts: LedgerFacts) -> Document:
    """Build the report of a ledger for a board."""
    answers = ask_spending(point, facts)
    name = facts.policy.policy_set.name or "policy"
    return Document(
        "board",
        f"Privacy report: {name}",
        f"As of record {facts.audit.records}, {facts.generated}",
        (
            _summary(answers),
            _promises(answers),
            _use(answers),
            Section(
                "Trend by month",
                (
                    Note(
                        f"For each {answers.main_unit}, in the month in which a release happened. "
                        "Months without a release are left out. " + SPENT_NOTE
                    ),
                    trend_table(answers),
                ),
            ),
            _spenders(answers),
            _denials(facts),
            _policy_changes(facts),
            _conflicts(facts),
            attestation(facts),
        ),
    )


def _summary(answers: SpendingAnswers) -> Section:
    facts, spending = answers.facts, answers.main
    days = [fact.day for fact in facts.releases]
    period = f"{days[0]} to {days[-1]}" if days else "none"
    return Section(
        "Summary",
        (
            Paragraph(risk_sentence(answers)),
            *_exceeded_warning(facts),
            Facts(
                {
                    "Releases that count": str(len(facts.releases)),
                    "Dates of the releases": period,
                    "Denied releases": str(len(facts.denials)),
                    "Enforced rules": str(len(facts.policy.rules)),
                    "Exceeded rules": str(len(facts.exceeded_rules)),
                    "Open proposals": str(facts.open_proposals),
                    f"ε for each {spending.unit}": _epsilon_text(spending.epsilon, spending.delta),
                    "Ledger": "verified" if not facts.audit.findings else "NOT VERIFIED",
                }
            ),
        ),
    )


def risk_sentence(answers: SpendingAnswers) -> str:
    """Return in words what an attacker can learn about one unit from all releases together."""
    spending = answers.main
    risk = attacker_risk(spending.cost, spending.delta)
    if not spending.release_count:
        return "No release counts as spent: an attacker has learned nothing from this ledger."
    if not risk.is_bounded:
        return "The releases together have no bound: an attacker may have learned everything."
    coin, rare = (format_percent(risk.posterior(prior)) for prior in (0.5, 0.01))
    count, failure = spending.release_count, risk.posterior_failure
    releases = "The release" if count == 1 else f"All {count:,} releases together"
    larger = f" A larger belief has a probability of at most {format_up(failure)}."
    return (
        f"{releases}: an attacker who believes a statement about one {spending.unit} with 50 % "
        f"ends at no more than {coin}, and one who believes it with 1 % at no more than {rare}."
        f"{larger if failure else ''}"
    )


def risk_note(answers: SpendingAnswers) -> Note:
    """Return what a belief in a report is, and how likely a larger one is at most."""
    risks = [attacker_risk(spent.cost, spent.delta) for spent in answers.by_unit.values()]
    budgets = {rule.budget for rule in answers.facts.policy.rules}
    risks += [risk_of_budget(budget) for budget in budgets]
    failure = max(risk.posterior_failure for risk in risks)
    return Note(
        "A belief is the probability that an attacker gives to a statement about one unit, such as "
        "“this person is in the data”. The attacker knows everything else. The bounds are worst "
        f"cases; a larger belief has a probability of at most {format_up(failure)}. The rules "
        "guarantee the belief beside a limit; a belief that follows from an ε is an accounting "
        "value, as the ε is."
    )


def _epsilon_text(epsilon: float | None, delta: Fraction) -> str:
    return "no bound" if epsilon is None else f"{format_up(epsilon)} at δ {format_down(delta)}"


def _exceeded_warning(facts: LedgerFacts) -> tuple[Paragraph, ...]:
    count = len(facts.exceeded_rules)
    if not count:
        return ()
    words = "1 rule is" if count == 1 else f"{count} rules are"
    text = f"{words} exceeded by recorded releases: new releases in the same scope are denied."
    return (Paragraph(text, is_warning=True),)


def _promises(answers: SpendingAnswers) -> Section:
    facts = answers.facts
    kept, total = facts.policy.kept_count, facts.policy.rule_count
    text = (
        f"The policy has {total} rules. {kept} of them are enforced, and the others follow from "
        "them. A release is allowed only if every rule that covers it still holds afterwards."
    )
    return Section("Promises", (Paragraph(text), promise_table(facts), risk_note(answers)))


def _use(answers: SpendingAnswers) -> Section:
    return Section(
        "Use",
        (
            _add_title("By unit", unit_table(answers)),
            _add_title("By category and unit", category_table(answers)),
            Note(SPENT_NOTE + " A release counts in every category of its attributes."),
            _add_title("Most used rules", use_table(answers.facts.statuses[:MAX_RULES])),
            Note(FILTER_NOTE),
        ),
    )


def _add_title(title: str, table: DocumentTable) -> DocumentTable:
    return DocumentTable(table.columns, table.rows, table.empty, title)


def _spenders(answers: SpendingAnswers) -> Section:
    return Section(
        "Biggest spenders",
        (
            _add_title("By author", author_table(answers)),
            _add_title("By release", release_table(answers)),
            Note(f"For each {answers.main_unit}. " + SPENT_NOTE),
        ),
    )


def _denials(facts: LedgerFacts) -> Section:
    columns = (
        TableColumn("Date", is_short=True),
        TableColumn("Release", is_short=True),
        TableColumn("By", is_short=True),
        TableColumn("Rules that denied it"),
    )
    rows: list[tuple[Cell, ...]] = [
        (denial.day, denial.release, denial.by, ", ".join(denial.rules))
        for denial in reversed(facts.denials[-MAX_LISTED:])
    ]
    table = DocumentTable(columns, tuple(rows), "No release was denied.")
    return Section("Denials", (table, *_left_out(len(facts.denials))))


def _policy_changes(facts: LedgerFacts) -> Section:
    columns = (
        TableColumn("Record", CellKind.COUNT),
        TableColumn("Date", is_short=True),
        TableColumn("By", is_short=True),
        TableColumn("Reason"),
        TableColumn("Policy", is_short=True),
        TableColumn("Accepted conflicts"),
    )
    rows: list[tuple[Cell, ...]] = [
        (c.sequence, c.day, c.by, c.because, f"{c.digest[:19]}…", ", ".join(c.accepted))
        for c in reversed(facts.changes[-MAX_LISTED:])
    ]
    table = DocumentTable(columns, tuple(rows))
    return Section("Policy changes", (table, *_left_out(len(facts.changes))))


def _left_out(count: int) -> tuple[Note, ...]:
    older = count - MAX_LISTED
    return (Note(f"{older} older ones are left out."),) if older > 0 else ()


def _conflicts(facts: LedgerFacts) -> Section:
    text = (
        "A rule is exceeded if releases before the policy, or releases that were imported, spent "
        "more than its limit. It denies new releases in its scope."
    )
    return Section("Open conflicts", (Paragraph(text), conflict_table(facts)))


def attestation(facts: LedgerFacts) -> Section:
    """Return the section that names the last verified record and the result of the audit."""
    audit = facts.audit
    result = "verified: hash chain, state and every decision" if not audit.findings else "FAILED"
    findings = tuple(
        Paragraph(f"Record {finding.sequence}: {finding.problem}", is_warning=True)
        for finding in audit.findings[:MAX_LISTED]
    )
    return Section(
        "Attestation",
        (
            Facts(
                {
                    "Result of dpolicy verify": result,
                    "Last verified record": str(audit.records),
                    "Hash of that record": audit.head or "none",
                    "Time of this report": facts.generated,
                    "Policy": facts.policy.digest,
                }
            ),
            *findings,
            Note(
                "The same hash from dpolicy verify on a copy of the ledger proves that this report "
                "and the copy are about the same records."
            ),
        ),
    )
