"""How is text from a server shown so that it can do nothing? Character by character, the unprintable ones as numbers.

Names come from brokers, and anybody who reaches the port can register one: an escape sequence in a topic's name would
repaint an operator's terminal, a right-to-left mark would turn its neighbours around.
"""

import re
from typing import Final

# in JSON the only unprintable character outside of strings is the line break
_BEYOND_ASCII: Final = re.compile(r"[^\n\x20-\x7e]")


def shown(text: str) -> str:
    r"""The text with everything that is not printable as a Python escape: ESC is `\x1b`, a line break `\n`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def json_text(encoded: str, *, is_ascii: bool = False) -> str:
    """JSON with the unprintable characters of its strings (or all beyond ASCII) as escapes; it says the same."""
    return _BEYOND_ASCII.sub(lambda found: _json_escape(found[0], is_ascii=is_ascii), encoded)


def _json_escape(character: str, *, is_ascii: bool) -> str:
    if character.isprintable() and not is_ascii:
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
