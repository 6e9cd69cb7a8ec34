"""How is text from a server shown so that it can do nothing? Character by character, the unprintable ones as numbers.

Names come from brokers, and anybody who reaches the port can register one: an escape sequence in a topic's name would
repaint an operator's terminal, a right-to-left mark would turn its neighbours around.
"""

import re
from typing import Final

_NEITHER_PRINTABLE_NOR_BREAK: Final = re.compile(r"[^\n\x20-\x7e\xa1-\xac\xae-\u02ff]")


def shown(text: str) -> str:
    r"""The text with everything that is not printable as a Python escape: ESC is `\x1b`, a line break `\n`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def json_text(encoded: str) -> str:
    """JSON with the unprintable characters of its strings as escapes; it says the same."""
    return _NEITHER_PRINTABLE_NOR_BREAK.sub(_as_json_escape, encoded)


def _as_json_escape(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
