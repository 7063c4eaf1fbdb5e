"""Markers of slow tests: `make test-fast` leaves out some, and coverage is not traced in others."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: Directories and modules that take more than about two seconds of CPU time.
SLOW = (
    "allocation/test_hindsight.py",
    "allocation/test_paper_workload.py",
    "allocation/test_problem_builder.py",
    "allocation/test_rounding_cuts.py",
    "allocation/test_simulation.py",
    "allocation/test_strategies.py",
    "balances",
    "cli/test_diagnostics_page.py",
    "cli/test_reference_pages.py",
    "cli/test_verify_tampered.py",
    "client",
    "contracts",
    "dashboard",
    "decisions/test_decisions.py",
    "demo",
    "evaluation",
    "faults",
    "integrations/test_cohere.py",
    "integrations/test_contributions.py",
    "integrations/test_registry.py",
    "ledger/test_canonical.py",
    "pdp/test_audit.py",
    "pdp/test_block_charges.py",
    "pdp/test_impact.py",
    "pdp/test_stateful.py",
    "policy/test_bombs.py",
    "policy/test_formatter.py",
    "predicates/test_implication.py",
    "predicates/test_properties.py",
    "privacy/test_conversion.py",
    "privacy/test_curves.py",
    "privacy/test_privacy_filter.py",
    "privacy/test_loss.py",
    "privacy/test_units.py",
    "properties",
    "releases/test_regions.py",
    "service",
    "test_examples.py",
)

#: Tests that run the same code thousands of times. Tracing makes them two to three times slower,
#: and other tests cover the same lines.
UNTRACED = (
    "balances/test_collapse.py",
    "balances/test_partition_space.py",
    "balances/test_rule_grids.py",
    "faults",
    "ledger/test_decided_records.py",
    "pdp/test_meaning_machine.py",
    "pdp/test_plans.py",
    "pdp/test_stateful.py",
    "privacy/test_privacy_filter.py",
    "privacy/test_units.py",
    "properties",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of a slow directory or module."""
    for marker, names in (("slow", SLOW), ("no_cover", UNTRACED)):
        paths = [HERE / name for name in names]
        for item in items:
            if any(item.path.is_relative_to(path) for path in paths):
                item.add_marker(marker)
