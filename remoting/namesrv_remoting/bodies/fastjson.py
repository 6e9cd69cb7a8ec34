r"""Reader of fastjson 1.2.83's dialect: what it writes or accepts that standard JSON does not.

It writes integer map keys bare (`{0:"10.0.0.1:10911"}`); nothing else of what it writes is out of the standard. Its
`{"$ref":"$.a"}`, for an object that it meets twice, is standard and is read as the object that it is.

It accepts, and so does `loads`: bare integer keys, unquoted identifiers as keys, single quotes, a byte order mark,
raw control characters in strings, backspace and form feed as blanks, the escapes `\'`, `\v`, `\F`, `\xHH` and `\0` to
`\7` (one digit), and of duplicate keys the last.

It accepts, and `loads` refuses, because nobody is known to send it and each would need a meaning: doubled, trailing and
missing commas, comments, `undefined`, `NaN`, `new Date(0)`, `Set[0]`, `x'00'`, numbers such as `+1`, `01`, `1.`, `1L`,
keys such as `1.5`, other control characters as blanks, lone surrogates, invalid UTF-8, an empty document.
"""

import json
import re
from decimal import Decimal
from typing import Any, Final

import msgspec

# The reader is plain Python, and the loop waits for it. Headers and bodies of real peers that need it stay below 2 KiB:
# brokers and clients, whatever their size, write nothing that is out of the standard but bare integer keys, and those
# have a faster road.
MAX_BYTES: Final = 4 * 1024
# what a message quotes of the document
_EXCERPT_CHARACTERS: Final = 16
_POSITION: Final = re.compile(r" \(byte (\d+)\)")

_INTEGER_KEY: Final = re.compile(rb"(?<=[{,])(-?\d++)(?=:)")

# blanks; a string; a bare key; any other word or number, or run of other characters, but of those that begin a string
_TOKEN: Final = re.compile(
    r"([ \t\n\r\f\b]++)"
    r'|"((?:[^"\\]++|\\.)*+)"'
    r"|'((?:[^'\\]++|\\.)*+)'"
    r"|(-?+(?:0|[1-9][0-9]*+)|[A-Za-z_$][A-Za-z0-9_]*+)(?=[ \t\n\r\f\b]*+:)"
    r"""|([A-Za-z0-9_$.+-]++|[^"'\\ \t\n\r\f\bA-Za-z0-9_$.+-]++)""",
    re.DOTALL,
)
_BLANKS, _KEY, _OTHER = 1, 4, 5
# in a string: an escape, or what standard JSON has only escaped
_UNUSUAL: Final = re.compile(r'\\x([0-9a-fA-F]{2})|\\(.)|(["\x00-\x1f])', re.DOTALL)
_ESCAPES: Final = {"'": "'", "v": r"\u000b", "F": r"\f", **{digit: rf"\u000{digit}" for digit in "01234567"}}


class FastjsonError(ValueError):
    """Not a document that fastjson would take, or beyond a limit."""


def quote_bare_keys(data: bytes) -> bytes:
    r"""The document with quotes around its bare integer keys, for a strict parser to decide about.

    This may hit the inside of a string, and is safe all the same. The first quote that it puts inside a string ends
    that string for the parser, and the next character is `-` or a digit, where only `,`, `:`, `]`, `}` or a blank may
    stand: the parser fails, and `loads` decides. The quote follows `{` or `,`, so no backslash can hide it. Outside of
    strings, an integer between `{` or `,` and `:` is nothing but a key. So a document that parses has its own meaning.
    """
    # what stands between the keys and the keys in turn: a third of the time that a substitution takes
    parts = _INTEGER_KEY.split(data)
    return data if len(parts) == 1 else b'"'.join(parts)


def loads(data: bytes, kind: Any = Any) -> Any:
    """The value of a document in fastjson's dialect; integer keys become strings, numeric strings numbers.

    Raises FastjsonError, and nothing else, if it is too long, not a document, or not of that type.
    """
    if len(data) > MAX_BYTES:
        raise FastjsonError(f"json of {len(data)} bytes, limit {MAX_BYTES}")
    standard = _in_standard_json(data)
    try:
        return msgspec.json.decode(standard, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # where in the document is not known any more
        raise FastjsonError(_POSITION.sub(lambda at: f" near {_excerpt(standard, int(at[1]))}", str(error))) from error


def _excerpt(standard: bytes, at: int) -> str:
    return repr(standard[at:].decode(errors="replace")[:_EXCERPT_CHARACTERS])


def _in_standard_json(data: bytes) -> bytes:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FastjsonError(f"invalid utf-8 {data[error.start : error.start + 4]!r} at byte {error.start}") from None
    written: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise FastjsonError(f"unterminated string {text[at : at + _EXCERPT_CHARACTERS]!r}")
        if token.lastindex == _OTHER:
            written.append(token[_OTHER])
        elif token.lastindex == _KEY:
            written.append(f'"{token[_KEY]}"')
        elif token.lastindex == _BLANKS:
            written.append(" ")
        else:
            written.append(f'"{_UNUSUAL.sub(_usual, token[token.lastindex or 0])}"')
        at = token.end()
    return "".join(written).encode()


def _usual(found: re.Match[str]) -> str:
    byte, escape, raw = found.groups()
    if byte is not None:
        return rf"\u00{byte}"
    if raw is not None:
        return r"\"" if raw == '"' else rf"\u{ord(raw):04x}"
    # what fastjson does not know either stays, and is refused
    return _ESCAPES.get(escape, found[0])


def coerce_ext_fields(members: dict[str, Any]) -> dict[str, str]:
    """What fastjson makes of an object for a `Map<String,String>`; a null member counts as absent.

    Numbers and booleans become their JSON text, containers compact JSON. Raises FastjsonError if nested too deeply.
    """
    try:
        return {name: _text(member) for name, member in members.items() if member is not None}
    except RecursionError:
        raise FastjsonError("ext fields nested too deeply") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        # the text of Java's BigDecimal: 1E-7 where Python writes 1e-07, and no negative zero
        return str(Decimal(repr(value or 0.0)))
    return json.dumps(without_nulls(value), ensure_ascii=False, separators=(",", ":"))


def without_nulls(value: Any) -> Any:
    """As fastjson writes: null members of objects are left out, null elements of arrays stay."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(element) for element in value]
    return value
