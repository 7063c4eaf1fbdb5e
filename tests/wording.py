"""Counts of house idioms and banned identifiers, in prose and in code.

`python -m tests.wording PATH…` prints where each idiom occurs; `python -m tests.wording` prints
the totals that `tests/test_wording.py` limits.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dpolicy"

#: Idioms that the glossary replaces. Counted without regard to case, outside of code spans.
IDIOMS = {
    "told": r"\b(?:told|tells?|telling)\b",
    "said": r"\b(?:said|saying)\b",
    "say": r"\bsays? (?:so|that|who|what|why|how|where|which|nothing|of)\b",
    "asked": r"\basked\b",
    "found": r"(?<!not )(?<!be )\bfound\b",
    "shown": r"\bshown\b",
    "seen": r"\bseen\b",
    "whoever": r"\b(?:whoever|whatever|whichever)\b",
    "nobody": r"\bnobody\b",
    "somebody": r"\b(?:somebody|everybody|anybody)\b",
    "stands": r"\bstands?\b(?!-)",
    "alike": r"\balike\b",
    "anew": r"\banew\b",
    "by itself": r"\bby (?:itself|themselves)\b",
    "meant": r"\b(?:is|are|was|were) meant\b",
    "mend": r"\b(?:mend|mends|mended|mending)\b",
    "made of": r"\bmade of\b",
    "headless what": r"(?:^|[.;:] +)what (?:is|was|are|were|has|had|would|could|may|can)\b",
    "headless who": r"(?:^|[.;:] +)who (?:\w+s|is|may|has)\b(?![^.]*\?)",
    "as much again": r"\bas much again\b",
    "meanwhile": r"\bmeanwhile\b",
    "in force": r"\bin force\b",
    "for good": r"\bfor good\b",
    "of its own": r"\bof (?:its|their|one's) own\b",
    "next to nothing": r"\bnext to nothing\b",
    "does not know": r"\b(?:knows?|knew) (?:nothing|no|only|its|of)\b",
    "would be worth": r"\b(?:would be|is|are) worth\b",
}
#: A sentence for each idiom, which shows that it is counted.
EXAMPLES = {
    "told": "The analyst is told the reason.",
    "said": "The policy said no.",
    "say": "A record says who wrote it.",
    "asked": "Releases that were asked for.",
    "found": "Every problem found.",
    "shown": "The budget shown here.",
    "seen": "The last record seen.",
    "whoever": "It is charged to whoever submits.",
    "nobody": "Nobody approves alone.",
    "somebody": "A name that somebody chose.",
    "stands": "The rule stands for itself.",
    "alike": "Units are treated alike.",
    "anew": "The file is written anew.",
    "by itself": "Each release by itself.",
    "meant": "Which unit is meant.",
    "mend": "Mend the file.",
    "made of": "A rule made of factors.",
    "headless what": "What was spent is added.",
    "headless who": "Who submits is recorded.",
    "as much again": "Twice as much again.",
    "meanwhile": "Another writer came meanwhile.",
    "in force": "The policy in force.",
    "for good": "It is spent for good.",
    "of its own": "A lock of its own.",
    "next to nothing": "It costs next to nothing.",
    "does not know": "The store knows nothing about it.",
    "would be worth": "More budget would be worth 3.",
}
_PATTERNS = {name: re.compile(text, re.IGNORECASE | re.MULTILINE) for name, text in IDIOMS.items()}

#: Names that say nothing about the value that they hold.
BANNED_NAMES = frozenset({"said", "told", "found", "asked", "shown", "known", "seen"})

#: Past participles without the regular ending.
_IRREGULAR = frozenset(
    {"told", "said", "found", "shown", "known", "seen", "given", "taken", "made", "kept", "held"}
    | {"lost", "sent", "built", "drawn", "written", "broken", "chosen", "spent", "hidden", "laid"}
)
#: Words that end like a participle and are none.
_NOUNS = frozenset({"need", "embed", "feed", "seed", "speed", "shed", "hundred"})
#: First words of predicates, which may end in a participle.
_PREDICATES = ("is_", "has_", "are_", "was_", "can_")

_FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def prose_of_markdown(text: str) -> str:
    """Return a page without code blocks, code spans, link targets and comments."""
    text = re.sub(r"<!--.*?-->", " ", _FENCE.sub(" ", text), flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "`x`", text))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every docstring of a module with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), re.sub(r"`[^`\n]*`", "`x`", text)


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every string literal of at least three words that is not a docstring."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in statements:
            continue
        if isinstance(node.value, str):
            text = re.sub(r"`[^`\n]*`", "`x`", node.value)
            if len(_WORD.findall(text)) >= 3:
                yield node.lineno, text


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield every comment line of a module."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.search(r"(?:^|\s)#:? +(.*)", line)
        if match:
            yield number, re.sub(r"`[^`\n]*`", "`x`", match.group(1))


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(_WORD.findall(text))


def count_idioms(text: str) -> Counter[str]:
    """Return how often each idiom occurs in a text."""
    return Counter({name: n for name, p in _PATTERNS.items() if (n := len(p.findall(text)))})


def rate(texts: list[str]) -> float:
    """Return idioms per 10,000 words."""
    words = sum(count_words(text) for text in texts)
    idioms = sum(count_idioms(text).total() for text in texts)
    return 10_000 * idioms / words if words else 0.0


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every name that a module binds: parameters, targets, fields and loop variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def public_types(tree: ast.Module) -> Iterator[str]:
    """Yield every public class and type alias of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[:1].isupper() and not name.isupper() and any(c.islower() for c in name):
                yield name


def function_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every function and method name of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


def is_participle(name: str) -> bool:
    """Return whether the head of a function name, its last word, is a past participle."""
    plain = name.strip("_")
    last = plain.rsplit("_", 1)[-1]
    if plain.startswith(_PREDICATES) or last in _NOUNS:
        return False
    return last in _IRREGULAR or last.endswith("ed")


def pages() -> list[Path]:
    """Return every page that people read."""
    top = sorted(ROOT.glob("*.md"))
    return top + [
        p for d in ("docs", "examples", ".github") for p in sorted((ROOT / d).rglob("*.md"))
    ]


def sources() -> list[Path]:
    """Return every module of the package."""
    return sorted(SOURCE.rglob("*.py"))


def _places(path: Path) -> Iterator[tuple[int, str, str]]:
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        for name, pattern in _PATTERNS.items():
            prose = prose_of_markdown(text) if path.suffix == ".md" else text
            for match in pattern.finditer(prose):
                start = max(0, match.start() - 40)
                yield 0, name, " ".join(prose[start : match.end() + 40].split())
        return
    tree = ast.parse(text)
    for kind, items in (
        ("docstring", docstrings(tree)),
        ("message", messages(tree)),
        ("comment", comments(text)),
    ):
        for line, piece in items:
            for name in count_idioms(piece):
                yield line, f"{kind} {name}", " ".join(piece.split())[:110]
    for line, name in bound_names(tree):
        if name in BANNED_NAMES:
            yield line, "name", name
    for line, name in function_names(tree):
        if is_participle(name):
            yield line, "participle", name


def totals() -> dict[str, float]:
    """Return every number that the ratchet limits."""
    trees = [ast.parse(p.read_text("utf-8")) for p in sources()]
    functions = [name for tree in trees for _, name in function_names(tree)]
    templates = [
        re.sub(r"\{[{%#].*?[}%#]\}|<[^>]*>", " ", p.read_text("utf-8"), flags=re.DOTALL)
        for p in sorted(SOURCE.rglob("*.html"))
    ]
    return {
        "docs": rate([prose_of_markdown(p.read_text("utf-8")) for p in pages()]),
        "docstrings": rate([text for tree in trees for _, text in docstrings(tree)]),
        "messages": rate([text for tree in trees for _, text in messages(tree)]),
        "comments": rate([text for p in sources() for _, text in comments(p.read_text("utf-8"))]),
        "templates": rate(templates),
        "banned names": sum(n in BANNED_NAMES for t in trees for _, n in bound_names(t)),
        "participles, per cent": 100 * sum(map(is_participle, functions)) / len(functions),
        "functions *_of": sum(name.endswith("_of") for name in functions),
    }


def main(arguments: list[str]) -> None:
    """Print the totals, or the places in the given files and directories."""
    if not arguments:
        for name, value in totals().items():
            print(f"{name:24} {value:8.1f}")
    for argument in arguments:
        given = Path(argument)
        files = [given] if given.is_file() else sorted(given.rglob("*"))
        for path in (p for p in files if p.suffix in {".py", ".md", ".html", ".yaml"}):
            for line, name, text in _places(path):
                print(f"{path}:{line}: {name}: {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
