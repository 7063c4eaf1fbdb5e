"""Hypothesis strategies: policy sets that follow the grammar, written in any layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

#: The formatter treats `when` and `cel` as text, so any text is possible.
texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        "always",
        'labels.stage == "final"',
        "it's",
        "a: b",
        "a #b",
        "# no comment",
        "- x",
        "{",
        "1e-7",
    ]
)
NAMES = ("user", "zip", "low", "a b", "no", "1.50", "null", "true", "x-1", "y:z")
names = st.sampled_from(NAMES)
unique_names = st.lists(names, min_size=1, max_size=3, unique=True)
numbers = st.builds(
    lambda whole, digits, exponent: f"{whole}{digits}{exponent}",
    st.integers(0, 99).map(str),
    st.sampled_from(["", ".5", ".25", ".0", ".125"]),
    st.sampled_from(["", "", "", "e-3", "E+1", "e2"]),
)


@dataclass(frozen=True)
class Number:
    """Number as written, so that layouts keep it and values can be compared."""

    text: str


def number(choices: st.SearchStrategy[str] = numbers) -> st.SearchStrategy[Number]:
    return choices.map(Number)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return maps with these keys, `_` for `-`; keys that start with `opt_` are optional."""

    def key(name: str) -> str:
        return name.removeprefix("opt_").rstrip("_").replace("_", "-")

    required = {key(n): s for n, s in fields.items() if not n.startswith("opt_")}
    optional = {key(n): s for n, s in fields.items() if n.startswith("opt_")}
    return st.fixed_dictionaries(required, optional=optional)


deltas = number(st.sampled_from(["0", "1e-7", "1e-9", "0.000001"]))
budgets = st.one_of(
    record(epsilon=number(), opt_delta=deltas),
    record(rho=number()),
    record(mu=number()),
    st.dictionaries(st.sampled_from(["2", "8", "1.5"]), number(), min_size=1).map(
        lambda curve: {"renyi": curve}
    ),
    st.just("unlimited"),
)
points = st.lists(
    st.tuples(st.integers(0, 9), number()), min_size=1, max_size=3, unique_by=lambda p: p[0]
)
functions = st.one_of(
    st.just("same"),
    record(times=number(st.sampled_from(["1", "2.5", "1e1"]))),
    record(plus=number(st.sampled_from(["-1", "0.5", "3"]))),
    record(
        through=points.map(
            lambda ps: [[Number(str(x)), y] for x, y in sorted(ps, key=lambda p: p[0])]
        ),
        opt_beyond=st.sampled_from(["extend", "error"]),
    ),
    record(cel=texts),
)
by_risk = {
    "name": names,
    "unit": names,
    "budgets": st.dictionaries(names, budgets, max_size=3),
    "opt_except": st.dictionaries(names, budgets, max_size=2),
}
settings_ = record(name=names, when=texts, budget=functions, opt_below=st.lists(names, max_size=2))
policies = st.one_of(
    record(
        name=names,
        kind=st.just("custom"),
        when=texts,
        units=unique_names,
        budget=budgets,
        opt_below=unique_names,
    ),
    record(kind=st.just("attribute"), **by_risk),
    record(
        kind=st.just("category"),
        opt_levels=st.dictionaries(names, functions, max_size=2),
        **by_risk,
    ),
    record(
        name=names, kind=st.just("extension"), settings=st.lists(settings_, min_size=1, max_size=3)
    ),
)
labels = st.one_of(
    record(values=unique_names, opt_default=names, opt_required=st.booleans()),
    record(text=st.just(True), opt_many=st.booleans()),
)
partitions = st.one_of(
    record(values=unique_names, opt_stable=st.booleans()),
    record(from_=number(st.sampled_from(["0", "-5"])), to=number(st.sampled_from(["9", "1e3"]))),
)
schemas = record(
    opt_risk_levels=unique_names,
    opt_categories=st.dictionaries(names, record(opt_risk=names), max_size=2),
    opt_attributes=st.dictionaries(
        names, record(opt_risk=names, opt_weak=unique_names), max_size=3
    ),
    opt_labels=st.dictionaries(names, labels, max_size=2),
    opt_partitions=st.dictionaries(names, partitions, max_size=2),
)
accountings = record(
    opt_delta=deltas,
    opt_relation=st.sampled_from(["add-remove", "change"]),
    opt_orders=st.lists(number(st.sampled_from(["2", "4.5", "8", "1e2"])), min_size=1, max_size=2)
    | st.just("default"),
    opt_max_rules=number(st.sampled_from(["10", "5000"])),
)


def distinct(section: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the policies with unique names."""
    return [{**policy, "name": f"{policy['name']}{n}"} for n, policy in enumerate(section)]


policy_sets = record(
    dpolicy=st.just(Number("1")),
    opt_name=names,
    opt_accounting=accountings,
    opt_units=st.dictionaries(names, record(opt_period=st.just("month")), min_size=1, max_size=3),
    opt_schema=schemas,
    opt_policies=st.lists(policies, max_size=3).map(distinct),
)

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
_COMMENT = st.text("ab #:'\"{}[],-é🙂", max_size=6).map(str.rstrip)


@dataclass
class Layout:
    """Writer of YAML that draws every layout choice and collects the comments it writes."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    comments: list[str] = field(default_factory=list)

    def text(self, value: dict[str, Any]) -> str:
        """Return a document."""
        lines = self.block(value, 0)
        return "\n".join([*lines, *self.alone(0), ""])

    def comment(self) -> str:
        text = f"# c{len(self.comments)} {self.draw(_COMMENT)}".rstrip()
        self.comments.append(text)
        return text

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(1, one_in)) == 1)

    def alone(self, indent: int) -> list[str]:
        """Return a comment line, an empty line, or nothing."""
        lines = [" " * indent + self.comment()] if self.chance(6) else []
        return ["", *lines] if self.chance(8) else lines

    def ending(self) -> str:
        return f"  {self.comment()}" if self.chance(6) else ""

    def block(self, value: Any, indent: int) -> list[str]:
        """Return a map or list with one entry per line."""
        step = self.draw(st.sampled_from([2, 2, 4]))
        lines: list[str] = []
        entries = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for key, child in entries:
            head = " " * indent + ("-" if key is None else f"{self.scalar(key)}:")
            lines += self.alone(indent)
            if isinstance(child, dict | list) and child and self.chance(2):
                lines += [head + self.ending(), *self.block(child, indent + step)]
            elif isinstance(child, dict | list) and child and self.chance(3):
                lines += self.spread(f"{head} ", child, indent + step)
            else:
                lines.append(f"{head} {self.flow(child)}{self.ending()}")
        return lines

    def spread(self, head: str, value: Any, indent: int) -> list[str]:
        """Return a flow map or list over several lines, with comments between them."""
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        lines = [head + opening + self.ending()]
        items = self.items(value)
        for position, item in enumerate(items):
            comma = "," if position < len(items) - 1 or self.chance(2) else ""
            lines += [*self.alone(indent), " " * indent + item + comma + self.ending()]
        return [*lines, " " * indent + closing + self.ending()]

    def items(self, value: Any) -> list[str]:
        if isinstance(value, dict):
            return [f"{self.scalar(key)}: {self.flow(child)}" for key, child in value.items()]
        return [self.flow(child) for child in value]

    def flow(self, value: Any) -> str:
        if isinstance(value, dict | list):
            opening, closing = "{}" if isinstance(value, dict) else "[]"
            gap = self.draw(st.sampled_from(["", " "]))
            return f"{opening}{gap}{', '.join(self.items(value))}{gap}{closing}"
        return self.scalar(value)

    def scalar(self, value: Any) -> str:
        if isinstance(value, Number):
            return value.text
        if isinstance(value, bool):
            return "true" if value else "false"
        forms = [double_quoted(value)]
        if value.isprintable():
            forms.append("'" + value.replace("'", "''") + "'")
        if _PLAIN.fullmatch(value) and value != "null" and (value in NAMES or value[0].isalpha()):
            forms += [value, value]
        return str(self.draw(st.sampled_from(forms)))


def double_quoted(text: str) -> str:
    """Return a double-quoted text with all special characters escaped."""
    safe = re.compile(r"[A-Za-z0-9 é]")
    return '"' + "".join(c if safe.fullmatch(c) else f"\\U{ord(c):08x}" for c in text) + '"'


def canonical(value: Any) -> str:
    """Return a value as JSON on one line."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{double_quoted(k)}: {canonical(v)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(canonical(item) for item in value) + "]"
    if isinstance(value, Number):
        return value.text
    return str(value).lower() if isinstance(value, bool) else double_quoted(value)
