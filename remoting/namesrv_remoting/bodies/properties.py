"""Reader and writer of the syntax of java.util.Properties."""

import re
from collections.abc import Iterator, Mapping

# Java's three line ends and three blanks; str.splitlines and str.strip would accept more.
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_KEY = re.compile(r"(?>(?:[^\\=: \t\f]++|\\.)*)", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {character: f"\\{letter}" for letter, character in _CONTROLS.items()} | {"\\": "\\\\"}


class PropertiesError(ValueError):
    """The text has a broken escape, or half a surrogate pair."""


def parse_properties(text: str) -> dict[str, str]:
    """All keys and values; of a repeated key the last value counts. Raises PropertiesError."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        end = key.end() if key else 0
        separator = _SEPARATOR.match(line, end)
        value = line[separator.end() if separator else end :]
        properties[_unescaped(line[:end])] = _unescaped(value)
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Sorted `key=value` lines, without the comment and date that Java puts first."""
    return "".join(f"{_escaped_key(key)}={_escaped(properties[key])}\n" for key in sorted(properties))


def _logical_lines(text: str) -> Iterator[str]:
    lines = iter(_LINE_END.split(text))
    for first in lines:
        line = first.lstrip(_BLANKS)
        if line.startswith(("#", "!")):
            continue
        parts = []
        # An odd number of backslashes at the end continues the line.
        while line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            line = next(lines, "").lstrip(_BLANKS)
        parts.append(line)
        if joined := "".join(parts):
            yield joined


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(_meaning, text) if "\\" in text else text
    if plain.isascii():
        return plain
    try:
        # Java's characters are UTF-16 units, so that two escapes may form one character.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PropertiesError(f"half a surrogate pair in {text[:100]!a}") from None


def _meaning(escape: re.Match[str]) -> str:
    what = escape[1]
    if len(what) > 1:
        return chr(int(what[1:], 16))
    if what == "u":
        raise PropertiesError(f"malformed \\uxxxx escape {escape.string[escape.start() : escape.start() + 6]!a}")
    return _CONTROLS.get(what, what)


def _escaped(value: str) -> str:
    text = "".join(_WRITTEN.get(character, character) for character in value)
    # An unescaped leading blank would count as part of the separator.
    return f"\\{text}" if text.startswith(" ") else text


def _escaped_key(key: str) -> str:
    text = "".join(_WRITTEN.get(character, character) for character in key)
    return re.sub(r"[=: #!]", r"\\\g<0>", text)
