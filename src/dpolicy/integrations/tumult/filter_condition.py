"""Check that the condition of a filter depends on one row only (theory 0.2).

Tumult passes the text of a condition to Spark. A subquery in it reads other tables without a
charge, and a function of the position of a row moves other rows. The parser of Spark gives the tree
of a condition; the check allows only the columns, operators and functions that are listed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import SparkSession

from dpolicy.errors import OperationRejected

_PACKAGES = (
    "org.apache.spark.sql.catalyst.expressions.",
    "org.apache.spark.sql.catalyst.analysis.",
)

#: Classes of tree nodes whose value follows from their children.
_OPERATORS = """
    Literal And Or Not EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual
    In IsNull IsNotNull Like ILike RLike LikeAll LikeAny NotLikeAll NotLikeAny CaseWhen Cast
    Add Subtract Multiply Divide IntegralDivide Remainder UnaryMinus UnaryPositive
    BitwiseAnd BitwiseOr BitwiseXor BitwiseNot
    Concat Substring StringLocate StringTrim StringTrimLeft StringTrimRight
    TimestampAdd TimestampDiff
"""

#: Functions of Spark whose value follows from their arguments.
_FUNCTIONS = """
    abs bround ceil ceiling exp floor greatest least ln log log10 log2 mod pmod pow power round sign
    signum sqrt
    char_length character_length concat concat_ws contains endswith initcap instr lcase left length
    locate lower lpad ltrim md5 position regexp_extract regexp_like regexp_replace replace reverse
    right rpad rtrim sha1 sha2 split_part startswith substr substring translate trim ucase upper
    coalesce if ifnull isnan isnotnull isnull nanvl nullif nvl nvl2
    bigint boolean date decimal double float int smallint string timestamp tinyint
    add_months date_add date_format date_part date_sub date_trunc datediff day dayofmonth dayofweek
    dayofyear extract hour last_day make_date minute month quarter second to_date to_timestamp trunc
    weekday weekofyear year
    hash xxhash64
"""

_ROW_OPERATORS = frozenset(_OPERATORS.split())
_ROW_FUNCTIONS = frozenset(_FUNCTIONS.split())


def check_condition(condition: str, columns: Collection[str]) -> None:
    """Raise `OperationRejected` if a condition can depend on more than a row with these columns."""
    spark = SparkSession.builder.getOrCreate()
    state = spark._jsparkSession.sessionState()
    own_columns = {column.casefold() for column in columns}
    for node in _nodes(state.sqlParser().parseExpression(condition)):
        match _class_name(node):
            case "UnresolvedAttribute":
                parts = _name_parts(node)
                if len(parts) != 1 or parts[0].casefold() not in own_columns:
                    _refuse(condition, f"`{'.'.join(parts)}`, which is not a column of the table")
            case "UnresolvedFunction":
                parts = _name_parts(node)
                if len(parts) != 1 or not _is_row_function(parts[0], spark, state):
                    _refuse(condition, f"the function `{'.'.join(parts)}`")
            case name if name not in _ROW_OPERATORS:
                _refuse(condition, f"`{name}`")


def _refuse(condition: str, part: str) -> None:
    raise OperationRejected(
        f"the filter `{condition}` contains {part}: its result may depend on other rows or "
        "tables; help: use comparisons and functions of the columns of one row, or `map`"
    )


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    children = tree.children()
    for position in range(children.size()):
        yield from _nodes(children.apply(position))


def _class_name(node: Any) -> str:
    """Return the name of a class of Spark, or else the full name, which is on no list."""
    name = str(node.getClass().getName())
    package, dot, simple = name.rpartition(".")
    return simple if package + dot in _PACKAGES else name


def _name_parts(node: Any) -> list[str]:
    parts = node.nameParts()
    return [str(parts.apply(position)) for position in range(parts.size())]


def _is_row_function(name: str, spark: Any, state: Any) -> bool:
    """Return whether a name is an allowed function, and still the one that Spark defines."""
    if name.casefold() not in _ROW_FUNCTIONS:
        return False
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    return str(state.catalog().lookupFunctionInfo(identifier).getSource()) == "built-in"
