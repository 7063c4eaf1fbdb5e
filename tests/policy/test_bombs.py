"""Hostile texts: `dpolicy check` rejects each with its position, in little time and memory.

Each bomb runs in a separate process, limited to 200 MB above the interpreter with all modules
imported, and to ten seconds of processor time. Both limits are far above the need; the measured
values are printed (`pytest -s`), not asserted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

#: Memory limit of a bomb, above the base of the interpreter.
MEMORY = 200 * 2**20
#: Limit in processor time, which is independent of the load of the machine.
SECONDS = 10
#: Limit in wall-clock time, for a process that waits.
PATIENCE = 120

#: Program that imports all modules, limits its address space to the current size plus `MEMORY`,
#: runs the command, and prints its time and memory. Reserved but unused memory counts too.
CHILD = """
import resource, sys, time
import dpolicy.cli.commands.policy.check, dpolicy.cli.main, dpolicy.cli.output.printing
def kilobytes(name):
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith(name))
limit = kilobytes("VmSize") * 1024 + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2])))
base = kilobytes("VmHWM")
start = time.process_time()
code = dpolicy.cli.main.exit_code(["check", sys.argv[3]])
spent = time.process_time() - start
print(f"{spent:.2f} s {(kilobytes('VmHWM') - base) / 1024:.0f} MB")
sys.exit(code)
"""

HEAD = "dpolicy: 1\naccounting: {delta: 1e-7}\n"
POLICY = "{name: p, kind: custom, when: always, unit: user, budget: {epsilon: 1}}"


def laughs() -> str:
    lines = [f"a: &a [{', '.join(['lol'] * 9)}]"]
    pairs = zip("abcdefgh", "bcdefghi", strict=True)
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairs]
    return "\n".join([*lines, ""])


def merges() -> str:
    many = ", ".join(["*x"] * 20)
    lines = [f"k{n}: &k{n} {{<<: [{many}], a{n}: 1}}" for n in range(300)]
    return "\n".join([f"{HEAD}x: &x {{a: 1}}", *lines, ""])


def when(expression: str) -> str:
    quoted = json.dumps(expression)
    policy = POLICY.replace("always", quoted)
    return f"{HEAD}schema: {{attributes: {{a: {{}}}}}}\npolicies:\n  - {policy}\n"


def nest_quantifiers() -> str:
    expression = "true"
    for depth in range(28):
        expression = f"attributes.all(x{depth}, {expression})"
    return when(expression)


def product(extensions: int, settings: int) -> str:
    lines = ["policies:", f"  - {POLICY}"]
    for n in range(extensions):
        lines += [f"  - name: e{n}", "    kind: extension", "    settings:"]
        lines += [f"    - {{name: s{m}, when: always, budget: same}}" for m in range(settings)]
    return "\n".join([HEAD, *lines, ""])


def attributes(count: int, entry: str = "") -> str:
    return "{" + ", ".join(f"a{n}: {{{entry}}}" for n in range(count)) + "}"


def many_policies(count: int) -> str:
    return "".join(f"  - {POLICY.replace('name: p', f'name: p{n}')}\n" for n in range(count))


def units(count: int, inner: Callable[[int], str]) -> str:
    return f"{HEAD}units:\n" + "".join(f"  u{n}: {{{inner(n)}}}\n" for n in range(count))


def by_attribute(count: int) -> str:
    policy = "{{name: p{}, kind: attribute, unit: user, budgets: {{low: {{rho: 1}}}}}}"
    schema = f"schema: {{attributes: {attributes(10_000, 'risk: low')}}}\n"
    return f"{HEAD}{schema}policies: [{', '.join(policy.format(n) for n in range(count))}]\n"


def budget(number: str) -> str:
    return f"{HEAD}policies:\n  - {POLICY.replace('epsilon: 1', f'epsilon: {number}')}\n"


#: name → the text, and the code that it must be refused with.
BOMBS: dict[str, tuple[Callable[[], str], str]] = {
    "billion laughs": (laughs, "P003"),
    "merge keys": (merges, "P003"),
    "5,000 flow lists": (lambda: f"{HEAD}policies: {'[' * 5000}{']' * 5000}\n", "P002"),
    "5,000 flow maps": (lambda: f"{HEAD}policies: {'{a: ' * 5000}{'}' * 5000}\n", "P002"),
    "100,000 open brackets": (lambda: f"{HEAD}policies: {'[' * 100_000}\n", "P002"),
    "5,000 block lists": (lambda: f"{HEAD}policies:\n{'- ' * 5000}a\n", "P002"),
    "1,900 block maps": (lambda: HEAD + "".join(f"{' ' * n}a:\n" for n in range(1900)), "P002"),
    "10 MB": (lambda: f"{HEAD}# {'x' * 10_000_000}\n", "P002"),
    "1,000,000 keys": (lambda: f"{HEAD}schema: {{attributes: {attributes(10**6)}}}\n", "P002"),
    "180,000 keys": (lambda: f"{HEAD}schema: {{attributes: {attributes(180_000)}}}\n", "P002"),
    "150,000 unknown keys": (lambda: HEAD + "".join(f"k{n}: 1\n" for n in range(150_000)), "P002"),
    "60,000 unknown levels": (
        lambda: f"{HEAD}schema: {{attributes: {attributes(40_000, 'risk: x')}}}\n",
        "P024",
    ),
    "300,000 times one key": (lambda: HEAD + "k: 1\n" * 300_000, "P004"),
    "100,000 policies": (lambda: f"{HEAD}policies:\n{many_policies(10**5)}", "P002"),
    "15,000 policies": (lambda: f"{HEAD}policies:\n{many_policies(15_000)}", "P002"),
    "exponent": (lambda: budget("1e999999999"), "P009"),
    "a million digits": (lambda: budget("9" * 10**6), "P009"),
    "a million zeros": (lambda: budget("0" * 10**6), "P005"),
    "name of 1 MB": (lambda: f"{HEAD}name: {'x' * 10**6}\n", "P011"),
    "key of 1 MB": (lambda: f"{HEAD}? '{'x' * 10**6}'\n: 1\n", "P006"),
    "predicate of 1 MB": (lambda: when("by == '" + "x" * 10**6 + "'"), "P032"),
    "28 nested all": (nest_quantifiers, "P032"),
    "10,000 parentheses": (lambda: when("(" * 10_000 + "true" + ")" * 10_000), "P032"),
    "1,900 parentheses": (lambda: when("(" * 1900 + "true" + ")" * 1900), "P032"),
    "5,000 or": (lambda: when(" || ".join(["by == 'a'"] * 5000)), "P032"),
    "doubling by map": (
        lambda: when("['aaaaaaaa']" + ".map(x, x + x)" * 24 + ".exists(y, y == '')"),
        "P032",
    ),
    "doubling by plus": (lambda: when(" + ".join(["by"] * 500) + " == 'x'"), "P032"),
    "regular expression": (lambda: when("by.matches('(a+)+$')"), "P032"),
    "64 extensions of 64 settings": (lambda: product(64, 64), "P046"),
    "9,000 extensions of 2 settings": (lambda: product(9_000, 2), "P046"),
    "40,000 settings": (lambda: product(1, 40_000), "P002"),
    "9,000 policies for 10,000 attributes": (lambda: by_attribute(9_000), "P046"),
    "a circle of 300 units": (lambda: units(300, lambda n: f"covers: [u{(n + 1) % 300}]"), "P014"),
    "5,000 units": (lambda: units(5_000, lambda _: ""), "P002"),
    "5,000 units with periods": (lambda: units(5_000, lambda n: f"period: {n + 2} days"), "P002"),
    "100,000 points": (
        lambda: product(1, 1).replace(
            "same", "{through: [" + ", ".join(f"[{n}, {n}]" for n in range(60_000)) + "]}"
        ),
        "P002",
    ),
    "150,000 orders": (
        lambda: f"dpolicy: 1\naccounting: {{orders: [{', '.join(map(str, range(2, 150_000)))}]}}\n",
        "P002",
    ),
    "100,000 risk levels": (
        lambda: f"{HEAD}schema: {{risk-levels: [{', '.join(f'l{n}' for n in range(10**5))}]}}\n",
        "P002",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_rejected_with_its_position(bomb: str, tmp_path: Path) -> None:
    write, code = BOMBS[bomb]
    file = tmp_path / "policy.yaml"
    file.write_text(write(), "utf-8")
    arguments = [sys.executable, "-c", CHILD, str(MEMORY), str(SECONDS), "policy.yaml"]
    done = subprocess.run(
        arguments, cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=False, text=True
    )
    print(f"{bomb}: {done.stdout.strip()}")
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert done.returncode == 3, done.stderr[-2000:]
    reported = re.findall(r"^policy\.yaml:\d+:\d+: error (P\d\d\d)", done.stderr, re.MULTILINE)
    assert code in reported
    assert len(done.stderr) < 100_000
