"""Values of a page's query; an invalid value counts as absent."""

from collections.abc import Mapping, Sequence

_MOST_DIGITS = 6
# A NameServer accepts no longer name or value.
MAX_CHARACTERS = 32 * 1024


def number(query: Mapping[str, str], name: str, default: int = 1) -> int:
    """A small whole number."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else default


def choice(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """One of several words, by default the first."""
    text = query.get(name, "")
    return text if text in choices else choices[0]
