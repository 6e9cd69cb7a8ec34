"""Suggestions in messages about a misspelt name."""

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """The end of a message about an unknown word: the most similar known word, if there is one, ignoring the prefix."""
    import difflib  # noqa: PLC0415  # only for mistakes, and start-up counts

    names = {name.removeprefix(prefix).lower(): name for name in known}
    near = difflib.get_close_matches(word.removeprefix(prefix).lower(), names, n=1)
    return f" (did you mean {names[near[0]]}?)" if near else ""
