"""Families of diagnostic codes: their tables, their explanations, and how their examples run.

The tables with the titles are part of the code. The explanations here exist only for the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpolicy.balances.balances import MAX_DISJOINT_CHARGES
from dpolicy.integrations.cohere.cohere_model import PROBLEMS as COHERE_PROBLEMS
from dpolicy.integrations.registry.registry_import import PROBLEMS as REGISTRY_PROBLEMS
from dpolicy.policy.diagnostic_codes import CATALOGUE
from dpolicy.privacy.mechanisms.parameters import MAX_DIGITS
from dpolicy.privacy.mechanisms.parameters import PROBLEMS as MECHANISM_PROBLEMS
from dpolicy.privacy.units.calendar import EARLIEST, LATEST, MAX_DAYS
from dpolicy.privacy.units.calendar import PROBLEMS as CALENDAR_PROBLEMS
from dpolicy.privacy.units.privacy_units import MAX_BLOCKS, MAX_INTERVALS
from dpolicy.proofs.coalitions import MAX_COALITIONS
from dpolicy.proofs.mechanism_cases import MAX_CASES
from dpolicy.proofs.proof_question import PROBLEMS as QUESTION_PROBLEMS
from dpolicy.releases.problem_codes import PROBLEMS as RELEASE_PROBLEMS
from dpolicy.releases.regions import MAX_BOXES


@dataclass(frozen=True, slots=True)
class CodeFamily:
    """Codes with the same first letter.

    Examples are written to `input_file` and run with `command`, after the `setup` commands and in
    a directory that also contains the `shared_files`.
    """

    letter: str
    heading: str
    introduction: str
    titles: Mapping[str, str]
    explanations: Mapping[str, str] = field(default_factory=dict)
    input_file: str = "release.yaml"
    command: str = "dpolicy cost release.yaml"
    shared_files: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()


_APPLY = "dpolicy apply policy.yaml --ledger ledger.db"

_MECHANISM_EXPLANATIONS = {
    "M001": "[Releases](releases.md) lists the kinds and their parameters.",
    "M004": "A number must be written without quotes.",
    "M006": "Noise, sensitivities and losses must be from 10⁻⁹ to 10⁹, and counts at most 10⁹. "
    f"A number may have at most {MAX_DIGITS} digits.",
    "M009": "`declared` states a loss in exactly one notion. `randomized-response` has either two "
    "answers (`truth`) or more (`values` and `noise`).",
    "M011": "Orders from 1.01 to 1,000,000 are accepted.",
    "M014": "State the loss that holds for every database.",
    "M015": "The noise can be `gumbel`, `laplace` or `exponential`.",
    "M016": "At the end of the range the loss is unbounded, or the output does not depend on the "
    "data.",
    "M017": "`also` restates only parameters that are relative to the unit, such as `sensitivity`.",
    "M018": "Only Python code can cause this problem. `dpolicy cost` reports such a unit as "
    "[P020](#p020), and a decision reports it as [R001](#r001).",
    "M019": "Gaussian noise, for example, never reaches δ = 0.",
}

_CALENDAR_EXPLANATIONS = {
    "U001": "`dpolicy cost` reads the period from the name of the unit. In a policy, an invalid "
    "period is [P013](#p013).",
    "U002": f"The limit is {MAX_DAYS:,} days.",
    "U003": f"Days from {EARLIEST} to {LATEST} are accepted.",
    "U004": f"Python code can state up to {MAX_INTERVALS:,} intervals; a release file states one.",
    "U005": "Only Python code that calls `blocks_between` can cause this problem. The limit is "
    f"{MAX_BLOCKS:,} blocks.",
}

_RELEASE_EXPLANATIONS = {
    "R001": "A mechanism may omit its unit if the policy has only one unit, or a unit `user`.",
    "R002": "Attributes select the rules that a mechanism is charged to.",
    "R003": "A misspelt label would not be read by any rule.",
    "R004": "A label is required if the policy states `required: true`.",
    "R005": "A label accepts several values only if the policy states `many: true`.",
    "R006": "A mechanism selects listed values, or a range within the range of a partition.",
    "R007": "The policy states `require: additive`. A mechanism is additive if it is a sum over "
    "records, without dropping and refilling ([group privacy](theory/group-privacy.md)).",
    "R008": f"A selection may have {MAX_BOXES:,} boxes, and the mechanisms of a release may divide "
    f"the blocks of a rule into {MAX_DISJOINT_CHARGES} regions. Each of them costs time in every "
    "later decision.",
    "R009": "Rules read the author of the release. The author that a request names fills it, or "
    "must equal it.",
    "R010": "With `add-remove`, a neighbouring database has one answer less, and the number of "
    "answers is no secret.",
    "R011": "A noise multiplier is relative to how much one unit changes a sum, which depends on "
    "the relation ([releases](releases.md)). Libraries state it for `add-remove`.",
}

_REGISTRY_EXPLANATIONS = {
    "G002": "ε without δ is accepted only under `Pure DP`, ρ under `Zero-concentrated DP`, and μ "
    "under `Gaussian DP`.",
    "G003": "`User level` is the unit `user`. For other names, use `--unit`.",
    "G004": "Each publication for the same privacy unit is charged, so their number must be "
    "stated. An entry that contains its release was published once.",
    "G005": "`dpolicy export --to registry` writes the release of an entry into one line.",
    "G006": "The import would charge less than the published loss.",
}

_COHERE_EXPLANATIONS = {
    "C004": 'An unknown name never counts as "no match".',
    "C007": "A cost must be stated for every Rényi order of the schema.",
    "C008": "In some files of Cohere, the `eps_values` of the schema are not the orders. Pass the "
    "orders to `read_schema` in that case.",
    "C010": f"A selection may have {MAX_BOXES:,} boxes.",
    "C011": "A request needs a cost for at least one unit, at an order from 1.01 to 1,000,000.",
    "C020": "The files have budgets of the form (ε, δ) with δ above 0.",
    "C021": "Cohere's files write units as `UserMonth`, and dpolicy as `user-month`. The name "
    "`Rules` is reserved.",
    "C022": "The costs in the files are Rényi divergences, which have no δ.",
    "C023": "Cohere would charge the release to no budget.",
    "C024": "A decision denies such a release; the files cannot express that.",
}

_QUESTION_EXPLANATIONS = {
    "Q001": "The scope is a predicate as in a policy, or `always`.",
    "Q002": "A question is about one privacy unit of the policy.",
    "Q003": "A coalition consists of listed values, so the label needs `values`.",
    "Q004": f"The rules may distinguish {MAX_CASES} cases of a question, and there may be "
    f"{MAX_COALITIONS} coalitions.",
    "Q005": "A claim is ε, with δ or without, ρ or μ.",
}

FAMILIES = (
    CodeFamily(
        letter="P",
        heading="Policy, release and case files (P)",
        introduction="Problems of a file that dpolicy reads. Codes from P100 are warnings.",
        titles={code: title for code, (title, _) in CATALOGUE.items()},
        explanations={code: explanation for code, (_, explanation) in CATALOGUE.items()},
        input_file="policy.yaml",
        command="dpolicy check policy.yaml",
    ),
    CodeFamily(
        letter="M",
        heading="Mechanism parameters (M)",
        introduction="Problems of a mechanism that are independent of the policy.",
        titles=MECHANISM_PROBLEMS,
        explanations=_MECHANISM_EXPLANATIONS,
    ),
    CodeFamily(
        letter="U",
        heading="Units and calendar (U)",
        introduction="Problems of the period of a privacy unit, and of the days that a mechanism "
        "reads.",
        titles=CALENDAR_PROBLEMS,
        explanations=_CALENDAR_EXPLANATIONS,
    ),
    CodeFamily(
        letter="R",
        heading="Releases under a policy (R)",
        introduction="Problems of a release that the active policy reveals. The names of a policy "
        'are a closed\nvocabulary: an unknown name is an error and never counts as "no match". '
        "The decision point\ncharges nothing for such a release.",
        titles=RELEASE_PROBLEMS,
        explanations=_RELEASE_EXPLANATIONS,
        command="dpolicy submit release.yaml --ledger ledger.db",
        shared_files=("policy.yaml",),
        setup=(_APPLY,),
    ),
    CodeFamily(
        letter="G",
        heading="Registry entries (G)",
        introduction="Problems of an entry of the [deployments registry](integrations/registry.md) "
        "that is imported.",
        titles=REGISTRY_PROBLEMS,
        explanations=_REGISTRY_EXPLANATIONS,
        input_file="entry.yaml",
        command="dpolicy import entry.yaml --ledger ledger.db",
        shared_files=("policy.yaml",),
        setup=(_APPLY,),
    ),
    CodeFamily(
        letter="Q",
        heading="Questions to the prover (Q)",
        introduction="Problems of a question or claim of [`dpolicy prove`](prove.md).",
        titles=QUESTION_PROBLEMS,
        explanations=_QUESTION_EXPLANATIONS,
        command="dpolicy prove policy.yaml --unit user",
        shared_files=("policy.yaml",),
    ),
    CodeFamily(
        letter="C",
        heading="Cohere files (C)",
        introduction="Problems of [Cohere's files](integrations/cohere.md), and of policies and "
        "releases that are\nexported to them. Import and export are Python functions; no command "
        "uses them.",
        titles=COHERE_PROBLEMS,
        explanations=_COHERE_EXPLANATIONS,
        shared_files=("policy.yaml", "schema.json", "requests_0.json"),
    ),
)


def family_for(code: str) -> CodeFamily:
    """Return the family of a code. Raise `KeyError` if no family has its letter."""
    return {family.letter: family for family in FAMILIES}[code[:1]]


def severity(code: str) -> str:
    """Return `error`, or `warning` for codes from P100."""
    return "warning" if code >= "P100" and code.startswith("P") else "error"
