"""Suggestions for misspelt names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from difflib import get_close_matches

#: Names longer than this are never suggested, nor is anything suggested for them.
MAX_WORD_LENGTH = 100


#: Of more names than this only the neighbours in the alphabet are compared, from either end.
MAX_COMPARED_NAMES = 200


def suggest(word: str, known_names: Iterable[str]) -> str | None:
    """`did you mean …?`, or what there is to choose from where that is short."""
    names = sorted(set(known_names))
    close = closest_name(word, names)
    if close is not None:
        return f"did you mean `{close}`?"
    if 0 < len(names) <= 12:
        return "known: " + ", ".join(f"`{name}`" for name in names)
    return None


def closest_name(word: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt word is most like, if it is like any."""
    candidates = sorted(name for name in names if len(name) <= MAX_WORD_LENGTH)
    if len(word) > MAX_WORD_LENGTH:
        return None
    if len(candidates) > MAX_COMPARED_NAMES:
        backwards = sorted(name[::-1] for name in candidates)
        ends = (name[::-1] for name in _neighbours(word[::-1], backwards))
        candidates = sorted({*_neighbours(word, candidates), *ends})
    close = get_close_matches(word, candidates, n=1, cutoff=0.6)
    return close[0] if close else None


def _neighbours(word: str, names: list[str]) -> list[str]:
    """The names next to a word in the alphabet: one slip leaves a long beginning alike."""
    position = bisect_left(names, word)
    return names[max(0, position - MAX_COMPARED_NAMES // 4) : position + MAX_COMPARED_NAMES // 4]
