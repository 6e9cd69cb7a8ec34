r"""Reader of the JSON dialect of fastjson 1.2.83, where that differs from standard JSON.

fastjson writes integer map keys bare (`{0:"10.0.0.1:10911"}`); everything else that it writes is standard JSON. Its
`{"$ref":"$.a"}`, for an object that occurs twice, is standard JSON and is read as an object.

fastjson and `loads` accept: bare integer keys, unquoted identifiers as keys, single quotes, a byte order mark, raw
control characters in strings, backspace and form feed as blanks, the escapes `\'`, `\v`, `\F`, `\xHH` and `\0` to `\7`
(one digit), and duplicate keys, of which the last counts.

fastjson accepts, and `loads` refuses, because no known peer sends it and each would need a meaning: doubled, trailing
and missing commas, comments, `undefined`, `NaN`, `new Date(0)`, `Set[0]`, `x'00'`, numbers such as `+1`, `01`, `1.`,
`1L`, keys such as `1.5`, other control characters as blanks, lone surrogates, invalid UTF-8, an empty document.
"""

import json
import re
from decimal import Decimal
from typing import Any, Final

import msgspec

# The reader is plain Python, and the event loop waits for it. Headers and bodies of real peers that need it stay below
# 2 KiB: brokers and clients of any size write standard JSON except for bare integer keys, which `quote_bare_keys`
# handles faster.
MAX_BYTES: Final = 4 * 1024
# length of the excerpt in error messages
_EXCERPT_CHARACTERS: Final = 16
_POSITION: Final = re.compile(r" \(byte (\d+)\)")

_INTEGER_KEY: Final = re.compile(rb"(?<=[{,])(-?\d++)(?=:)")

# Alternatives: blanks; a string; a bare key; another word or number, or a sequence of other characters except quotes.
_TOKEN: Final = re.compile(
    r"([ \t\n\r\f\b]++)"
    r'|"((?>(?:[^"\\]++|\\.)*))"'
    r"|'((?>(?:[^'\\]++|\\.)*))'"
    r"|(-?+(?:0|[1-9][0-9]*+)|[A-Za-z_$][A-Za-z0-9_]*+)(?=[ \t\n\r\f\b]*+:)"
    r"""|([A-Za-z0-9_$.+-]++|[^"'\\ \t\n\r\f\bA-Za-z0-9_$.+-]++)""",
    re.DOTALL,
)
_BLANKS, _KEY, _OTHER = 1, 4, 5
# in a string: an escape, or a character that standard JSON requires to be escaped
_UNUSUAL: Final = re.compile(r'\\x([0-9a-fA-F]{2})|\\(.)|(["\x00-\x1f])', re.DOTALL)
_ESCAPES: Final = {"'": "'", "v": r"\u000b", "F": r"\f", **{digit: rf"\u000{digit}" for digit in "01234567"}}


class FastjsonError(ValueError):
    """The document is not one that fastjson accepts, or exceeds a limit."""


def quote_bare_keys(data: bytes) -> bytes:
    r"""The document with quotes around its bare integer keys, as input of a strict parser.

    The substitution may hit the inside of a string, and is safe all the same. The first quote that is put inside a
    string ends that string for the parser, and the next character is `-` or a digit, where only `,`, `:`, `]`, `}` or a
    blank is allowed: the parser fails, and the caller tries `loads`. The quote follows `{` or `,`, so no backslash can
    escape it. Outside of strings, an integer between `{` or `,` and `:` is always a key. So a document that the parser
    accepts has kept its meaning.
    """
    # re.split takes a third of the time of a substitution.
    parts = _INTEGER_KEY.split(data)
    return data if len(parts) == 1 else b'"'.join(parts)


def loads(data: bytes, kind: Any = Any) -> Any:
    """The value of a document in fastjson's dialect; integer keys become strings, numeric strings numbers.

    Raises FastjsonError, and no other error, if the document is too long, malformed, or of another type.
    """
    if len(data) > MAX_BYTES:
        raise FastjsonError(f"json of {len(data)} bytes, limit {MAX_BYTES}")
    standard = _in_standard_json(data)
    try:
        return msgspec.json.decode(standard, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The position in the original document is unknown here, so the message quotes the text instead.
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
            written.append(f'"{_UNUSUAL.sub(_standard_token, token[token.lastindex or 0])}"')
        at = token.end()
    return "".join(written).encode()


def _standard_token(token: re.Match[str]) -> str:
    byte, escape, raw = token.groups()
    if byte is not None:
        return rf"\u00{byte}"
    if raw is not None:
        return r"\"" if raw == '"' else rf"\u{ord(raw):04x}"
    # Escapes that fastjson does not know either stay unchanged, and the parser refuses them.
    return _ESCAPES.get(escape, token[0])


def coerce_ext_fields(members: dict[str, Any]) -> dict[str, str]:
    """An object as fastjson reads it into a `Map<String,String>`: null members are dropped.

    Numbers and booleans become their JSON text, containers compact JSON. Raises FastjsonError for too deep nesting.
    """
    try:
        return {name: _text(member) for name, member in members.items() if member is not None}
    except RecursionError:
        raise FastjsonError("ext fields nested too deeply") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        # The text of Java's BigDecimal: 1E-7 where Python writes 1e-07, and no negative zero.
        return str(Decimal(repr(value or 0.0)))
    return json.dumps(without_nulls(value), ensure_ascii=False, separators=(",", ":"))


def without_nulls(value: Any) -> Any:
    """The value as fastjson writes it: without null members of objects; null elements of arrays stay."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(element) for element in value]
    return value
