"""The gate for Tumult Analytics with the real library on a local Spark session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.gated.balances import balance, statuses
from tests.gated.pages import run_example
from tests.pdp.builders import started
from tmlt.analytics import (
    AddOneRow,
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    MaxRowsPerID,
    PureDPBudget,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)
from tmlt.analytics import _query_expr as steps

from dpolicy.errors import Denied, InvalidValue, OperationRejected
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.tumult import GatedSession
from dpolicy.integrations.tumult.query_columns import column_use
from dpolicy.pdp.decision_point import DecisionPoint

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {relation: change}}
schema:
  attributes: {income: {risk: high}, page: {risk: low}, country: {risk: low}}
  partitions:
    country: {values: [AT, CH]}
"""
USER = "  - {name: users, kind: custom, when: always, unit: user, budget: %s}\n"
INCOME = (
    "  - {name: incomes, kind: custom, when: '\"income\" in attributes', unit: user, budget: %s}\n"
)
COLUMNS = "user string, page string, country string, income int"
PAGES = KeySet.from_dict({"page": ["a", "b", "c"]})
PUBLIC = "country string, income int"
ATTRIBUTES = ["page", "income", "country"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


ROWS = [(f"u{n}", "abc"[n % 3], ["AT", "CH"][n % 2], n % 10) for n in range(30)]


class Watched:
    """Data that counts reads of its rows, and can fail at the first."""

    def __init__(self, spark: SparkSession, broken: bool = False) -> None:
        self._rows = spark.sparkContext.accumulator(0)
        rows = spark.sparkContext.parallelize(ROWS, 1).mapPartitions(
            _count_reads(self._rows, broken)
        )
        self.frame = spark.createDataFrame(rows, COLUMNS)

    @property
    def reads(self) -> int:
        """Number of rows that were read so far."""
        return int(self._rows.value)


def _count_reads(counter: Any, broken: bool) -> Callable[[Any], Iterator[Any]]:
    """Return a function that Spark can serialise: it refers to nothing else of this test."""

    def read(rows: Any) -> Iterator[Any]:
        for row in rows:
            counter.add(1)
            if broken:
                raise OSError("the disk is gone")
            yield row

    return read


def point_with(*policies: str) -> DecisionPoint:
    return started(*policies, head=HEAD)


def make_session(
    point: DecisionPoint, frame: DataFrame, change: Any = None, **arguments: Any
) -> GatedSession:
    gate = Gate(point, by="ada", unit="user", attributes=arguments.pop("attributes", ATTRIBUTES))
    names = {"user": ()}
    return GatedSession.from_dataframe(
        gate, "visits", frame, change or AddOneRow(), columns=names, **arguments
    )


# Charges of allowed queries


def test_an_allowed_query_is_charged_and_computed_once(spark: SparkSession) -> None:
    point, data = point_with(USER % "{epsilon: 2, delta: 0}"), Watched(spark)
    session = make_session(point, data.frame)
    assert data.reads == 0
    counts = session.evaluate(QueryBuilder("visits").groupby(PAGES).count(), PureDPBudget(0.5))
    assert statuses(point) == ["committed"]
    assert balance(point, "users") == 1  # 0.5 for a user added or removed is 1 for one changed
    reads = data.reads
    assert reads >= len(ROWS)
    assert counts.collect() == counts.collect()
    assert data.reads == reads  # the answer does not read the data again


@pytest.mark.parametrize(
    ("budget", "notion", "cost"),
    [
        (RhoZCDPBudget(0.1), "rho", 0.4),
        (ApproxDPBudget(0.5, 1e-9), "epsilon", 1.0),
    ],
)
def test_other_notions(spark: SparkSession, budget: Any, notion: str, cost: float) -> None:
    point = point_with(USER % ("{rho: 1}" if notion == "rho" else "{epsilon: 2}"))
    session = make_session(point, Watched(spark).frame, notion=type(budget))
    session.evaluate(QueryBuilder("visits").count(), budget)
    assert balance(point, "users", notion) == pytest.approx(cost)


def test_a_loss_without_bound_is_refused(spark: SparkSession) -> None:
    point, data = point_with(USER % "{epsilon: 2}"), Watched(spark)
    session = make_session(point, data.frame)
    with pytest.raises(InvalidValue):
        session.evaluate(QueryBuilder("visits").count(), PureDPBudget(float("inf")))
    with pytest.raises(ValueError, match="type"):
        session.evaluate(QueryBuilder("visits").count(), RhoZCDPBudget(1))
    assert not point.entries
    assert data.reads == 0


# No data is read before the reservation; data that was read is charged


def test_a_denied_query_reads_nothing(spark: SparkSession) -> None:
    point, data = point_with(USER % "{epsilon: 2}"), Watched(spark)
    with pytest.raises(Denied):
        make_session(point, data.frame).evaluate(QueryBuilder("visits").count(), PureDPBudget(3))
    assert statuses(point) == ["denied"]
    assert data.reads == 0


def test_a_crash_while_reading_stays_charged(spark: SparkSession) -> None:
    point, data = point_with(USER % "{epsilon: 2, delta: 0}"), Watched(spark, broken=True)
    with pytest.raises(Exception, match="the disk is gone"):
        make_session(point, data.frame).evaluate(QueryBuilder("visits").count(), PureDPBudget(0.5))
    assert statuses(point) == ["committed"]
    assert balance(point, "users") == 1


# Partitions


def test_costs_of_parts_add_up(spark: SparkSession) -> None:
    """Tumult gives each part a separate budget; here the same policy decides for all parts."""
    point = point_with(USER % "{epsilon: 2, delta: 0}")
    session = make_session(point, Watched(spark).frame)
    parts = session.partition_and_create("visits", "country", {"at": "AT", "ch": "CH"})
    assert {type(part) for part in parts.values()} == {GatedSession}
    parts["at"].evaluate(QueryBuilder("at").count(), PureDPBudget(0.6))
    parts["at"].stop()
    with pytest.raises(Denied):
        parts["ch"].evaluate(QueryBuilder("ch").count(), PureDPBudget(0.6))


def test_costs_of_parts_of_a_partition_do_not_add_up(spark: SparkSession) -> None:
    point = point_with(USER % "{epsilon: 2, delta: 0}")
    session = make_session(point, Watched(spark).frame)
    split = {"at": "AT", "ch": "CH"}
    parts = session.partition_and_create("visits", "country", split, partition="country")
    for name, part in parts.items():
        part.evaluate(QueryBuilder(name).count(), PureDPBudget(0.6))
        part.stop()
    assert statuses(point) == ["committed", "committed"]
    session.stop()
    with pytest.raises(RuntimeError, match="no longer active"):
        session.evaluate(QueryBuilder("visits").count(), PureDPBudget(0.1))
    assert len(point.entries) == 2


def test_a_changed_column_is_not_a_partition(spark: SparkSession) -> None:
    """Otherwise a query could move all users to Austria and charge only that block."""
    session = make_session(point_with(USER % "{epsilon: 2}"), Watched(spark).frame)
    moved = QueryBuilder("visits").select(["page"])
    moved = moved.map(lambda row: {"country": "AT"}, {"country": "VARCHAR"}, augment=True)
    session.create_view(moved, "moved")
    with pytest.raises(OperationRejected, match="not a partition"):
        session.partition_and_create("moved", "country", {"at": "AT"}, partition="country")
    session.create_view(QueryBuilder("visits").filter("income > 3"), "rich")
    parts = session.partition_and_create("rich", "country", {"at": "AT"}, partition="country")
    assert parts["at"]._gate.where == [{"country": ["AT"]}]


def test_another_column_is_not_a_partition(spark: SparkSession) -> None:
    """Parts by `page` contain users of all countries."""
    session = make_session(point_with(USER % "{epsilon: 2}"), Watched(spark).frame)
    with pytest.raises(OperationRejected, match="`page` is not the partition `country`"):
        session.partition_and_create("visits", "page", {"at": "AT"}, partition="country")


def test_the_column_of_a_partition_counts_as_used(spark: SparkSession) -> None:
    point = point_with(USER % "{epsilon: 2}")
    session = make_session(point, Watched(spark).frame, attributes=["page"])
    parts = session.partition_and_create("visits", "country", {"at": "AT"})
    with pytest.raises(OperationRejected, match="uses `country`"):
        parts["at"].evaluate(QueryBuilder("at").groupby(PAGES).count(), PureDPBudget(0.1))


def test_parts_of_limited_ids_use_every_column(spark: SparkSession) -> None:
    point = point_with(USER % "{epsilon: 2}")
    session = make_session(point, Watched(spark).frame, AddRowsWithID("user"))
    session.create_view(QueryBuilder("visits").enforce(MaxRowsPerID(3)), "limited")
    (part,) = session.partition_and_create("limited", "country", {"at": "AT"}).values()
    query = QueryBuilder("at").count()
    assert column_use(query._query_expr, part._name_bindings()).columns == EVERYTHING


# Attributes of the query


def test_an_undeclared_attribute_is_refused(spark: SparkSession) -> None:
    point, data = point_with(USER % "{epsilon: 2}"), Watched(spark)
    session = make_session(point, data.frame, attributes=["page"])
    with pytest.raises(OperationRejected, match="uses `income`"):
        session.evaluate(QueryBuilder("visits").filter("Income > 3").count(), PureDPBudget(0.1))
    session.create_view(QueryBuilder("visits").rename({"income": "x"}), "renamed")
    with pytest.raises(OperationRejected, match="uses `income`"):
        session.evaluate(QueryBuilder("renamed").sum("x", 0, 9), PureDPBudget(0.1))
    session.delete_view("renamed")
    assert not point.entries
    assert data.reads == 0


EVERYTHING = {"user", "page", "country", "income"}
REGIONS = KeySet.from_dict({"region": ["r"]})

#: Functions of a new builder each, because methods of a builder change it.
QUERIES: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "count": (lambda v: v.count(), set()),
    "filter": (lambda v: v.filter("Income > 3 AND `page` = 'a'").count(), {"income", "page"}),
    "grouped": (lambda v: v.groupby(PAGES).sum("income", 0, 9), {"page", "income"}),
    "distinct": (lambda v: v.count_distinct(["page"]), {"page"}),
    "distinct rows": (lambda v: v.select(["page", "user"]).count_distinct(), {"page", "user"}),
    "renamed": (lambda v: v.rename({"income": "x"}).sum("x", 0, 9), {"income"}),
    "mapped": (
        lambda v: v.select(["page", "income"]).map(lambda r: {"y": 1}, {"y": "INTEGER"}).count(),
        {"page", "income"},
    ),
    "nulls": (lambda v: v.drop_null_and_nan(["income"]).count(), {"income"}),
    "all nulls": (lambda v: v.drop_null_and_nan().count(), EVERYTHING),
    "replaced": (lambda v: v.replace_null_and_nan({"income": 0}).count(), set()),
    "groups": (lambda v: v.select(["page"]).get_groups(["page"]), {"page"}),
    "bounds": (lambda v: v.get_bounds("income"), {"income"}),
    "public": (
        lambda v: v.join_public("regions", ["country"]).groupby(REGIONS).count(),
        {"country"},
    ),
    "public by guess": (lambda v: v.join_public("regions").count(), EVERYTHING),
    "public of one name": (
        lambda v: v.join_public("pages", ["country"]).sum("income_left", 0, 9),
        EVERYTHING,
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_columns_of_queries(spark: SparkSession, name: str) -> None:
    session = make_session(point_with(USER % "{epsilon: 2}"), Watched(spark).frame)
    regions = spark.createDataFrame([("AT", "r")], "country string, region string")
    session.add_public_dataframe("regions", regions)
    session.add_public_dataframe("pages", spark.createDataFrame([("AT", 1)], PUBLIC))
    query, expected = QUERIES[name]
    built = query(QueryBuilder("visits"))._query_expr
    assert column_use(built, session._name_bindings()).columns == expected


def test_a_constraint_selects_rows_by_a_hash_over_all_columns(spark: SparkSession) -> None:
    session = make_session(
        point_with(USER % "{epsilon: 2}"), Watched(spark).frame, AddRowsWithID("user")
    )
    limited = QueryBuilder("visits").enforce(MaxRowsPerID(3)).count()
    used = column_use(limited._query_expr, session._name_bindings()).columns
    assert used == {"user", "page", "country", "income"}
    narrow = QueryBuilder("visits").select(["user", "page"]).enforce(MaxRowsPerID(3)).count()
    assert column_use(narrow._query_expr, session._name_bindings()).columns == {"user", "page"}


# Conditions that depend on more than a row


@pytest.fixture
def payroll(spark: SparkSession) -> Iterator[None]:
    """Table of the catalog that no session contains."""
    spark.createDataFrame([("ada", 95)], "who string, salary int").createOrReplaceTempView(
        "payroll"
    )
    yield
    spark.catalog.dropTempView("payroll")


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("(select max(salary) from payroll where who = 'ada') > 90", "ScalarSubquery"),
        ("income in (select salary from payroll)", "InSubquery"),
        ("exists (select 1 from payroll where salary > 90)", "Exists"),
        ("income > 3 or (select max(salary) from payroll) > 90", "ScalarSubquery"),
        ("case when (select count(1) from payroll) > 0 then true else false end", "Subquery"),
        ("monotonically_increasing_id() % 2 = 0", "monotonically_increasing_id"),
        ("spark_partition_id() = 0", "spark_partition_id"),
        ("rand() > 0.5", "rand"),
        ("uuid() > page", "uuid"),
        ("raise_error(page) is null", "raise_error"),
        ("java_method('java.lang.System', 'nanoTime') > page", "java_method"),
        ("input_file_name() = page", "input_file_name"),
        ("upper(coalesce(page, cast(rand() as string))) = 'A'", "rand"),
        ("current_user = page", "current_user"),
        ("own(page) = 'a'", "own"),
        ("initcap(page) = 'a'", "initcap"),
        ("exists(array(income), x -> x > 3)", "exists"),
    ],
)
def test_a_filter_beyond_its_row_is_refused(
    spark: SparkSession, payroll: None, condition: str, part: str
) -> None:
    point, data = point_with(USER % "{epsilon: 2}"), Watched(spark)
    session = make_session(point, data.frame)
    for own in ("own", "initcap"):  # The second replaces a function of Spark.
        spark.udf.register(own, lambda value: value)
    query = QueryBuilder("visits").filter(condition).count()
    with pytest.raises(OperationRejected, match=part):
        session.evaluate(query, PureDPBudget(0.1))
    with pytest.raises(OperationRejected, match=part):
        session.create_view(QueryBuilder("visits").filter(condition), "view")
    assert not point.entries
    assert data.reads == 0


@pytest.mark.parametrize(
    "condition",
    [
        "income < 7 or (income < 9 and page is null)",
        "Income BETWEEN 1 AND 7 and length(page) = 1",
        "`page` in ('a', 'b') and upper(page) like 'A%'",
        "case when income > 3 then true else income <=> null end",
        "cast(income as string) || page rlike '^3' and not (income % 2 = 0)",
        "coalesce(income, 0) - 1 > -abs(income) and if(income > 3, true, false)",
        "year(date(page)) = 2020 or date '2020-01-01' < to_date(page)",
        "hash(user) % 2 = 0",
    ],
)
def test_a_filter_of_its_row_is_allowed(spark: SparkSession, condition: str) -> None:
    point = point_with(USER % "{epsilon: 2}")
    session = make_session(point, Watched(spark).frame)
    session.evaluate(QueryBuilder("visits").filter(condition).count(), PureDPBudget(0.1))
    assert statuses(point) == ["committed"]


def test_a_step_that_the_gate_does_not_know_is_refused(spark: SparkSession) -> None:
    class OwnCount(steps.GroupByCount):  # type: ignore[misc]
        pass

    point = point_with(USER % "{epsilon: 2}")
    session = make_session(point, Watched(spark).frame)
    query = QueryBuilder("visits").count()
    known = query._query_expr
    query = replace(query, _query_expr=OwnCount(known.child, known.groupby_keys))
    with pytest.raises(OperationRejected, match="`OwnCount`"):
        session.evaluate(query, PureDPBudget(0.1))
    assert not point.entries


# `where` and `time` of the gate


def test_the_selection_is_applied(spark: SparkSession) -> None:
    point = point_with(USER % "{epsilon: 40000}")
    gate = Gate(point, unit="user", where={"country": ["CH"]}, attributes=["country"])
    session = GatedSession.from_dataframe(gate, "visits", Watched(spark).frame, AddOneRow())
    ((count,),) = session.evaluate(QueryBuilder("visits").count(), PureDPBudget(1000)).collect()
    assert count == sum(row[2] == "CH" for row in ROWS)
    timed = Gate(point, time={"from": "2026-10-01"})
    with pytest.raises(OperationRejected, match="`day`"):
        GatedSession.from_dataframe(timed, "visits", Watched(spark).frame, AddOneRow())


# Attempts to bypass the gate


def test_a_subclass_of_a_session_would_bypass_the_policy(spark: SparkSession) -> None:
    """The gate contains a session, because Tumult's constructor ignores subclasses."""

    class Subclass(Session):  # type: ignore[misc]
        pass

    frame = Watched(spark).frame
    session = Subclass.from_dataframe(PureDPBudget(1), "visits", frame, AddOneRow())
    assert type(session) is Session
    gated = make_session(point_with(USER % "{epsilon: 2}"), frame)
    assert type(gated) is GatedSession
    assert not isinstance(gated, Session)


def test_another_relation_is_refused(spark: SparkSession) -> None:
    gate = Gate(point_with(USER % "{epsilon: 2}"), relation="change")
    with pytest.raises(OperationRejected, match="protects `add-remove`"):
        GatedSession.from_dataframe(gate, "visits", Watched(spark).frame, AddOneRow())


def test_the_example_of_the_page(spark: SparkSession) -> None:
    point = point_with(USER % "{rho: 1}", INCOME % "{rho: 0.1}")
    variables = run_example("tumult", point=point, visits=Watched(spark).frame)
    assert sorted(row["page"] for row in variables["counts"].collect()) == ["a", "b", "c"]
    assert balance(point, "users", "rho") == pytest.approx(0.06)
    assert balance(point, "incomes", "rho") == 0
