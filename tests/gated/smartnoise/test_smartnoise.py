"""The gate for SmartNoise SQL with the real library on SQLite, which records statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from snsql import Privacy, from_connection
from tests.gated.balances import balance, statuses
from tests.gated.pages import run_example
from tests.pdp.builders import started

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.declared_attributes import columns_named_in
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.smartnoise import GatedReader
from dpolicy.pdp.decision_point import DecisionPoint

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7, orders: []}
units: {user: {relation: change}}
schema:
  attributes: {income: {risk: high}, page: {risk: low}}
"""
USER = "  - {name: users, kind: custom, when: always, unit: user, budget: %s}\n"
INCOME = (
    "  - {name: incomes, kind: custom, when: '\"income\" in attributes', unit: user, budget: %s}\n"
)
ROWS = [(n, "abc"[n % 3], n % 10) for n in range(300)]
BUDGET = "{epsilon: 9, delta: 1e-3}"


def table_metadata(**changes: Any) -> dict[str, Any]:
    """Return the metadata of the table for SmartNoise."""
    table = {
        "max_ids": 2,
        "user": {"type": "int", "private_id": True},
        "page": {"type": "string"},
        "income": {"type": "int", "lower": 0, "upper": 9},
    }
    return {"": {"S": {"visits": {**table, **changes}}}}


class Database:
    """Table that records the statements it receives."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("ATTACH ':memory:' AS S")
        self.connection.execute("CREATE TABLE S.visits (user INT, page TEXT, income INT)")
        self.connection.executemany("INSERT INTO S.visits VALUES (?, ?, ?)", ROWS)
        self.connection.commit()
        self.statements: list[str] = []
        self.connection.set_trace_callback(self.statements.append)


@pytest.fixture
def database() -> Iterator[Database]:
    instance = Database()
    yield instance
    instance.connection.close()


def make_reader(point: DecisionPoint, connection: Any, **changes: Any) -> GatedReader:
    attributes = changes.pop("attributes", ["page", "income"])
    arguments = {
        "privacy": Privacy(epsilon=0.5, delta=1e-6),
        "metadata": table_metadata(),
        "columns": {"user": ()},
        **changes,
    }
    gate = Gate(point, by="ada", unit="user", attributes=attributes)
    return GatedReader(gate, connection, **arguments)


def point_with(*policies: str) -> DecisionPoint:
    return started(*policies or (USER % BUDGET,), head=HEAD)


# Charges of allowed queries


@pytest.mark.parametrize(
    ("query", "mechanisms"),
    [
        ("SELECT COUNT(DISTINCT user) AS n FROM S.visits", 1),
        ("SELECT SUM(income) AS s FROM S.visits", 2),
        ("SELECT AVG(income) AS m FROM S.visits", 3),
        ("SELECT page, COUNT(*) AS n, AVG(income) AS m FROM S.visits GROUP BY page", 4),
    ],
)
def test_every_mechanism_is_charged(database: Database, query: str, mechanisms: int) -> None:
    """With ε = 0.5 an average costs 1.5: a sum, a count and a count of users."""
    point = point_with()
    rows = make_reader(point, database.connection).execute(query)
    assert len(rows) == (4 if "GROUP" in query else 2)
    assert statuses(point) == ["committed"]
    assert balance(point, "users") == pytest.approx(mechanisms)  # 0.5 each, and twice under change
    assert len(database.statements) == 1


def test_an_exhausted_budget_denies_further_queries(database: Database) -> None:
    point = point_with(USER % "{epsilon: 3, delta: 1e-3}")
    reader = make_reader(point, database.connection)
    reader.execute("SELECT AVG(income) AS m FROM S.visits")
    assert balance(point, "users") == pytest.approx(3)
    with pytest.raises(Denied):
        reader.execute("SELECT COUNT(*) AS n FROM S.visits")
    # SmartNoise alone would continue: it counts the loss but has no limit.
    plain = from_connection(
        database.connection, privacy=Privacy(epsilon=9), metadata=table_metadata(censor_dims=False)
    )
    plain.execute("SELECT COUNT(*) AS n FROM S.visits")


def test_answers_as_a_frame() -> None:
    frame = pd.DataFrame(ROWS, columns=["user", "page", "income"])
    answer = make_reader(point_with(), frame).execute_df("SELECT COUNT(*) AS n FROM S.visits")
    assert list(answer.columns) == ["n"]


# No data is read before the reservation; data that was read is charged


def test_a_denied_query_reads_nothing(database: Database) -> None:
    point = point_with(USER % "{epsilon: 1, delta: 1e-3}")
    with pytest.raises(Denied):
        make_reader(point, database.connection).execute("SELECT AVG(income) AS m FROM S.visits")
    assert statuses(point) == ["denied"]
    assert database.statements == []


def test_a_crash_while_reading_stays_charged(database: Database) -> None:
    def fail(value: int) -> int:
        raise OSError("the disk is gone")

    database.connection.create_function("broken", 1, fail)
    database.connection.execute("ALTER TABLE S.visits RENAME TO kept")
    database.connection.execute(
        "CREATE VIEW S.visits AS SELECT user, page, broken(income) AS income FROM kept"
    )
    point = point_with()
    with pytest.raises(sqlite3.OperationalError):
        make_reader(point, database.connection).execute("SELECT SUM(income) AS s FROM S.visits")
    assert statuses(point) == ["committed"]


# Attributes of the query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT SUM(income) AS s FROM S.visits",
        "SELECT COUNT(*) AS n FROM S.visits WHERE INCOME > 3",
        "SELECT page, COUNT(*) AS n FROM S.visits GROUP BY page HAVING SUM(income) > 3",
        "SELECT page, COUNT(*) AS n FROM S.visits AS v GROUP BY page ORDER BY AVG(v.income)",
    ],
)
def test_an_undeclared_attribute_is_refused(database: Database, query: str) -> None:
    point = point_with()
    with pytest.raises(OperationRejected, match="uses `income`"):
        make_reader(point, database.connection, attributes=["page"]).execute(query)
    assert not point.entries
    assert database.statements == []


def test_only_declared_attributes_are_charged(database: Database) -> None:
    point = point_with(USER % BUDGET, INCOME % "{epsilon: 1, delta: 1e-3}")
    reader = make_reader(point, database.connection, attributes=["page"])
    reader.execute("SELECT page, COUNT(*) AS n FROM S.visits GROUP BY page")
    assert balance(point, "incomes") == 0


COLUMNS = ["user", "page", "income"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) AS n FROM S.visits",
        "SELECT page, COUNT(*) AS n FROM S.visits GROUP BY page ORDER BY n",
        "SELECT VAR(income) AS v FROM S.visits WHERE Page = 'a'",
        "SELECT page AS x, SUM(income) AS s FROM S.visits GROUP BY page",
        "SELECT COUNT(DISTINCT page) AS n FROM S.visits",
    ],
)
def test_the_database_reads_no_other_column(database: Database, query: str) -> None:
    """SQLite reports the columns that a statement reads; the private id is always among them."""
    read = set()

    def watch(action: int, table: Any, column: Any, *_: Any) -> int:
        if action == sqlite3.SQLITE_READ and table == "visits":
            read.add(column)
        return sqlite3.SQLITE_OK

    database.connection.set_authorizer(watch)
    make_reader(point_with(), database.connection).execute(query)
    assert read - {"", "user"} == set(columns_named_in(query, COLUMNS)) - {"user"}


# Attempts to bypass the gate


@pytest.mark.filterwarnings("ignore:Sensitivity for income")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"income": {"type": "int", "lower": 0, "upper": 9, "sensitivity": 1}}, "sensitivity: 1"),
        ({"income": {"type": "int", "lower": -9, "upper": 1, "sensitivity": 8}}, "sensitivity: 8"),
        (
            {"income": {"type": "int", "sensitivity": 1}, "clamp_columns": False},
            "`clamp_columns`",
        ),
        ({"clamp_columns": False}, "`clamp_columns`"),
        ({"sample_max_ids": False}, "`sample_max_ids`"),
    ],
)
def test_limits_that_nothing_enforces_are_refused(
    database: Database, changes: dict[str, Any], message: str
) -> None:
    """The noise would be for smaller values, or for fewer rows, than the answer contains."""
    point = point_with()
    reader = make_reader(point, database.connection, metadata=table_metadata(**changes))
    with pytest.raises(OperationRejected, match=message):
        reader.execute("SELECT SUM(income) AS s FROM S.visits")
    assert not point.entries
    assert not database.statements


@pytest.mark.filterwarnings("ignore:Sensitivity for income")
def test_limits_that_add_noise_are_allowed(database: Database) -> None:
    large = {"income": {"type": "int", "lower": 0, "upper": 9, "sensitivity": 10}}
    rows = {"row_privacy": True, "sample_max_ids": False, "user": {"type": "int"}}
    for changes in (large, rows):
        reader = make_reader(point_with(), database.connection, metadata=table_metadata(**changes))
        reader.execute("SELECT SUM(income) AS s FROM S.visits")


def test_groups_that_are_not_censored_are_refused(database: Database) -> None:
    metadata = table_metadata(censor_dims=False)
    grouped = "SELECT page, COUNT(*) AS n FROM S.visits GROUP BY page"
    point = point_with()
    with pytest.raises(OperationRejected, match="reveals which groups exist"):
        make_reader(point, database.connection, metadata=metadata).execute(grouped)
    reader = make_reader(point, database.connection, metadata=metadata, public_groups=True)
    assert len(reader.execute(grouped)) == 4


def test_hidden_spending_is_refused() -> None:
    frame = pd.DataFrame(ROWS, columns=["user", "page", "income"])
    reader = make_reader(point_with(), frame, metadata=table_metadata(use_dpsu=True))
    with pytest.raises(OperationRejected, match="a separate ε"):
        reader.execute("SELECT page, COUNT(*) AS n FROM S.visits GROUP BY page")


def test_columns_without_bounds_are_refused_before_they_are_read(database: Database) -> None:
    point = point_with()
    metadata = table_metadata(income={"type": "int"})
    with pytest.raises(OperationRejected, match="without bounds"):
        make_reader(point, database.connection, metadata=metadata).execute(
            "SELECT SUM(income) AS s FROM S.visits"
        )
    assert not point.entries
    assert database.statements == []


def test_a_budget_cannot_be_changed_from_outside(database: Database) -> None:
    point, privacy = (
        point_with(USER % "{epsilon: 3, delta: 1e-3}"),
        Privacy(epsilon=0.5, delta=1e-6),
    )
    reader = make_reader(point, database.connection, privacy=privacy)
    privacy.epsilon = 50.0
    reader.execute("SELECT COUNT(*) AS n FROM S.visits")
    assert statuses(point) == ["committed"]


def test_invalid_queries_are_not_charged(database: Database) -> None:
    point = point_with()
    reader = make_reader(point, database.connection)
    for query in (
        "SELECT income FROM S.visits",
        "SELECT MAX(income) AS m FROM S.visits",
        "SELECT COUNT(*) AS n FROM S.visits; SELECT COUNT(*) AS n FROM S.visits",
        "SELECT COUNT(*) AS n FROM (SELECT * FROM S.visits) AS v",
    ):
        with pytest.raises(ValueError):
            reader.execute(query)
    assert not point.entries
    assert database.statements == []


def test_gates_that_are_refused(database: Database) -> None:
    point = point_with()
    arguments: dict[str, Any] = {
        "privacy": Privacy(epsilon=1.0),
        "metadata": table_metadata(),
    }
    with pytest.raises(OperationRejected, match="`selected=True`"):
        GatedReader(Gate(point, time={"from": "2026-10-01"}), database.connection, **arguments)
    with pytest.raises(OperationRejected, match="protects `add-remove`"):
        GatedReader(Gate(point, relation="change"), database.connection, **arguments)


def test_the_example_of_the_page(database: Database) -> None:
    point = point_with()
    frame = pd.DataFrame(ROWS, columns=["user", "page", "income"])
    variables = run_example("smartnoise", point=point, visits=frame)
    assert list(variables["averages"].columns) == ["page", "average"]
    assert balance(point, "users") == pytest.approx(1.2)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT income, SUM(income) AS s FROM S.visits GROUP BY income",
        "SELECT income, AVG(income) AS s FROM S.visits GROUP BY income",
        "SELECT page, SUM(user) AS s FROM S.visits GROUP BY page",
    ],
)
def test_columns_that_are_not_clamped_are_refused(database: Database, query: str) -> None:
    """SmartNoise scales the noise to the bounds of such a column but sums unclamped values."""
    point = point_with()
    metadata = table_metadata(user={"type": "int", "private_id": True, "lower": 0, "upper": 9})
    with pytest.raises(OperationRejected, match="does not clamp"):
        make_reader(point, database.connection, metadata=metadata).execute(query)
    assert not point.entries
    allowed = "SELECT page, SUM(income) AS s FROM S.visits GROUP BY page"
    assert make_reader(point, database.connection).execute(allowed)
