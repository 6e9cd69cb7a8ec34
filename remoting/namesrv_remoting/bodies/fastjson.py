r"""Reader of fastjson 1.2.83's dialect: what it writes or accepts that standard JSON does not.

It writes integer map keys bare (`{0:"10.0.0.1:10911"}`); nothing else of what it writes is out of the standard. Its
`{"$ref":"$.a"}`, for an object that it meets twice, is standard and is read as the object that it is.

It accepts, and so does `loads`: bare integer keys, unquoted identifiers as keys, single quotes, a byte order mark,
raw control characters in strings, backspace and form feed as blanks, the escapes `\'`, `\v`, `\F`, `\xHH` and `\0` to
`\7` (one digit), and of duplicate keys the last.

It accepts, and `loads` refuses, because nobody is known to send it and each would need a meaning: doubled, trailing and
missing commas, comments, `undefined`, `NaN`, `new Date(0)`, `Set[0]`, `x'00'`, numbers such as `+1`, `01`, `1.`, `1L`,
keys such as `1.5`, other control characters as blanks, lone surrogates, invalid UTF-8, an empty document.
Refused as well: numbers of more than 400 digits, and those that are infinite as a double.
"""

import json
import math
import re
from decimal import Decimal
from typing import Final, NoReturn

# The reader takes up to 1.7 µs a byte, and the loop waits for it. Headers and bodies of real peers that need it stay
# below 2 KiB: brokers and clients, whatever their size, write nothing that is out of the standard but bare integer
# keys, and those have a faster road.
MAX_BYTES: Final = 4 * 1024
# fastjson keeps BigIntegers; the widest integer of the protocol has 19 digits, and int() is quadratic in theirs
MAX_DIGITS: Final = 400
# what a message quotes of the document
_EXCERPT_CHARACTERS: Final = 16

_BLANKS: Final = re.compile(r"[ \t\n\r\f\b]*")
_WORD: Final = re.compile(r"true|false|null")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BARE_KEY: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))|[A-Za-z_$][A-Za-z0-9_]*")
# searched, not matched: however long a string without an end is, there is nothing to go back to
_DOUBLE_QUOTE_OR_ESCAPE: Final = re.compile(r'["\\]')
_SINGLE_QUOTE_OR_ESCAPE: Final = re.compile(r"['\\]")
_ESCAPE: Final = re.compile(
    r"\\(?:"
    r"u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"  # a surrogate pair is one character
    r"|(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))"
    r"|(.))",
    re.DOTALL,
)
_ESCAPED: Final = {
    **dict(zip("\"'\\/bfnrtvF", "\"'\\/\b\f\n\r\t\v\f", strict=True)),
    **{digit: chr(int(digit)) for digit in "01234567"},
}
_WORDS: Final = {"true": True, "false": False, "null": None}

_INTEGER_KEY: Final = re.compile(rb"(?<=[{,])(-?\d++)(?=:)")


class FastjsonError(ValueError):
    """Not a document that fastjson would take, or beyond a limit; `position` is the byte where, when there is one."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message} at byte {position}")
        self.position = position


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


def loads(data: bytes, *, max_depth: int = 64, max_bytes: int = MAX_BYTES) -> object:
    """The value of a document in fastjson's dialect; integer keys become strings, as in standard JSON.

    Raises:
        FastjsonError: it is too long, too deep, or not a document; nothing else is ever raised.
    """
    if len(data) > max_bytes:
        raise FastjsonError(f"json of {len(data)} bytes, limit {max_bytes}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FastjsonError(f"invalid utf-8 {data[error.start : error.start + 4]!r}", error.start) from None
    reader = _Reader(text, max_depth)
    try:
        return reader.document()
    except RecursionError:
        # only for a caller who allows more depth than the interpreter has
        raise FastjsonError(f"json nested deeper than the stack, limit {max_depth}") from None


class _Reader:
    """One document. Each method reads what begins at `at`, and returns its value and the position behind it."""

    __slots__ = ("_max_depth", "_text")

    def __init__(self, text: str, max_depth: int) -> None:
        self._text = text
        self._max_depth = max_depth

    def document(self) -> object:
        value, at = self._value(self._skip_blanks(1 if self._text.startswith("\ufeff") else 0), 0)
        at = self._skip_blanks(at)
        if at != len(self._text):
            self._expected("the end", at)
        return value

    def _value(self, at: int, depth: int) -> tuple[object, int]:
        first = self._text[at : at + 1]
        if first == '"' or first == "'":  # noqa: PLR1714 - twice as fast as a set, and most values are strings
            return self._string(at)
        if first == "{":
            return self._object(at + 1, self._deeper(at, depth))
        if first == "[":
            return self._array(at + 1, self._deeper(at, depth))
        if word := _WORD.match(self._text, at):
            return _WORDS[word[0]], word.end()
        return self._number(at)

    def _object(self, at: int, depth: int) -> tuple[dict[str, object], int]:
        members: dict[str, object] = {}
        at = self._skip_blanks(at)
        if self._text.startswith("}", at):
            return members, at + 1
        while True:
            key, at = self._key(at)
            at = self._skip_blanks(at)
            if not self._text.startswith(":", at):
                self._expected("':'", at)
            members[key], at = self._value(self._skip_blanks(at + 1), depth)
            at = self._skip_blanks(at)
            if self._text.startswith("}", at):
                return members, at + 1
            if not self._text.startswith(",", at):
                self._expected("',' or '}'", at)
            at = self._skip_blanks(at + 1)

    def _array(self, at: int, depth: int) -> tuple[list[object], int]:
        elements: list[object] = []
        at = self._skip_blanks(at)
        if self._text.startswith("]", at):
            return elements, at + 1
        while True:
            value, at = self._value(at, depth)
            elements.append(value)
            at = self._skip_blanks(at)
            if self._text.startswith("]", at):
                return elements, at + 1
            if not self._text.startswith(",", at):
                self._expected("',' or ']'", at)
            at = self._skip_blanks(at + 1)

    def _key(self, at: int) -> tuple[str, int]:
        if bare := _BARE_KEY.match(self._text, at):
            self._check_digits(bare[1] or "", at)
            return bare[0], bare.end()
        if not self._text.startswith(('"', "'"), at):
            self._expected("a key", at)
        return self._string(at)

    def _string(self, at: int) -> tuple[str, int]:
        text = self._text
        quote_or_escape = _DOUBLE_QUOTE_OR_ESCAPE if text[at] == '"' else _SINGLE_QUOTE_OR_ESCAPE
        found = quote_or_escape.search(text, at + 1)
        while found and found[0] == "\\":
            found = quote_or_escape.search(text, found.end() + 1)
        if found is None:
            self._fail("unterminated string", at)
        content = text[at + 1 : found.start()]
        if "\\" in content:
            content = _ESCAPE.sub(lambda escape: self._unescaped(escape, at + 1), content)
        return content, found.end()

    def _unescaped(self, escape: re.Match[str], content_at: int) -> str:
        high, low, unit, byte, single = escape.groups()
        if high is not None:
            return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
        if single is None:
            character = chr(int(unit or byte, 16))
            if "\ud800" <= character <= "\udfff":
                # there is no UTF-8 for it: whoever is answered with this string could not be
                self._fail(f"lone surrogate {escape[0]}", content_at + escape.start())
            return character
        if single not in _ESCAPED:
            self._fail(f"unknown escape {escape[0]!r}", content_at + escape.start())
        return _ESCAPED[single]

    def _number(self, at: int) -> tuple[float, int]:
        number = _NUMBER.match(self._text, at)
        if number is None:
            self._expected("a value", at)
        self._check_digits(number[0], at)
        if number[1] is None and number[2] is None:
            return int(number[0]), number.end()
        value = float(number[0])
        if math.isinf(value):
            self._fail(f"number {number[0][:_EXCERPT_CHARACTERS]} out of range", at)
        return value, number.end()

    def _check_digits(self, number: str, at: int) -> None:
        if len(number) - number.startswith("-") > MAX_DIGITS:
            self._fail(f"number of {len(number)} characters, limit {MAX_DIGITS}", at)

    def _deeper(self, at: int, depth: int) -> int:
        if depth >= self._max_depth:
            self._fail(f"json nested deeper than {self._max_depth}", at)
        return depth + 1

    def _skip_blanks(self, at: int) -> int:
        # nearly every document is compact: look before matching
        if self._text[at : at + 1] > " ":
            return at
        blanks = _BLANKS.match(self._text, at)
        return at if blanks is None else blanks.end()

    def _expected(self, what: str, at: int) -> NoReturn:
        found = self._text[at : at + _EXCERPT_CHARACTERS]
        self._fail(f"expected {what}, got {found!r}" if found else f"expected {what}, got the end", at)

    def _fail(self, message: str, at: int) -> NoReturn:
        raise FastjsonError(message, len(self._text[:at].encode()))


def coerce_ext_fields(value: object) -> dict[str, str]:
    """What fastjson makes of a value for a `Map<String,String>`; a null member counts as absent.

    Numbers and booleans become their JSON text, containers become compact JSON.

    Raises:
        FastjsonError: not an object, or a member that JSON does not have.
    """
    if not isinstance(value, dict):
        raise FastjsonError(f"ext fields are not an object: {_excerpt(value)}")
    return {_name(key): _text(member) for key, member in value.items() if member is not None}


def _name(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int):
        return _text(key)
    raise FastjsonError(f"ext field name is not a string: {_excerpt(key)}")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        # the text of Java's BigDecimal: 1E-7 where Python writes 1e-07, and no negative zero
        return str(Decimal(repr(value or 0.0)))
    try:
        return json.dumps(_without_nulls(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise FastjsonError(f"ext field cannot be encoded as JSON: {_excerpt(value)}") from None


def _without_nulls(value: object) -> object:
    """As fastjson writes: null members of objects are left out, null elements of arrays stay."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(element) for element in value]
    return value


def _excerpt(value: object) -> str:
    try:
        return repr(value)[:64]
    except (ValueError, RecursionError):
        # an int beyond what str() writes, or a nest beyond the stack
        return type(value).__name__
