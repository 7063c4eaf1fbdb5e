"""Suggestions for misspelt names: the only implementation of "did you mean"."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from difflib import get_close_matches

#: Longer names are neither suggested nor corrected: the comparison takes quadratic time.
MAX_WORD_LENGTH = 100

#: With more candidates, only the neighbours in alphabetical order are compared, in the order of
#: the names and in the order of the reversed names.
MAX_COMPARED_NAMES = 200

#: A help text lists all known names if there are at most this many.
MAX_LISTED_NAMES = 12


def suggest(word: str, known_names: Iterable[str]) -> str | None:
    """Return `did you mean …?`, else the list of known names if it is short, else None."""
    names = sorted(set(known_names))
    return suggest_closest(word, names) or list_names(names)


def suggest_closest(word: str, known_names: Iterable[str]) -> str | None:
    """Return `did you mean …?`, or None if no known name is similar."""
    close = closest_name(word, known_names)
    return None if close is None else f"did you mean `{close}`?"


def list_names(known_names: Iterable[str]) -> str | None:
    """Return a help text that lists the known names, or None if there are none or too many."""
    names = sorted(set(known_names))
    if not 0 < len(names) <= MAX_LISTED_NAMES:
        return None
    listed = ", ".join(f"`{name}`" for name in names)
    return f"use {listed}" if len(names) == 1 else f"use one of {listed}"


def closest_name(word: str, names: Iterable[str]) -> str | None:
    """Return the name most similar to a misspelt word, or None if no name is similar."""
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
    """Return the names around the position of a word in sorted names.

    A word with one typing error shares a long prefix or suffix with the intended name.
    """
    position = bisect_left(names, word)
    return names[max(0, position - MAX_COMPARED_NAMES // 4) : position + MAX_COMPARED_NAMES // 4]
