"""Reader of large JSON documents in slices, each of which takes little time (`msgpack_slices` does so for msgpack).

One call of a parser for 16 MiB would stop the event loop for half a second. Both readers read the given members of a
document: a small one at once, a large table or array slice by slice. Each slice is a step of a generator; a part of
the document is only examined after everything before it has been accepted.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import msgspec

from namesrv_remoting.bodies.base import Steps, read_strictly
from namesrv_remoting.errors import BadRequestError

T = TypeVar("T")

# The most bytes of a topic, a mapping, or a value that is parsed at once. A mapping takes 10 to 20 bytes per queue.
MAX_VALUE_BYTES: Final = 64 * 1024
# The most members of a document, and bytes of their names; a registration has two members, with five inside.
MAX_MEMBERS: Final = 64
MAX_NAME_BYTES: Final = 64
# the largest depth of nested objects
_MAX_DEPTH: Final = 64
# Skipping a value costs half a microsecond for each bracket of a nested pair; real documents have hundreds of bytes
# between such brackets.
_BYTES_PER_BRACKET: Final = 16
# The values or bytes of a table in one step: a step takes a millisecond or two at most, usually a fiftieth of that.
_VALUES_PER_STEP: Final = 500
_BYTES_PER_STEP: Final = 128 * 1024
# The most bytes of one regular expression match; keys, strings and blanks of a registration are far shorter.
_WINDOW: Final = 64 * 1024


# The following classes say how a member of a document is read. A member may occur twice: `begin` is called before each
# occurrence, and `take` gets the decoded values.


class Whole(msgspec.Struct, frozen=True):
    """A small member, which is decoded at once."""

    decoder: Any
    take: Callable[[Any], object]
    max_bytes: int = MAX_VALUE_BYTES


class Table(msgspec.Struct, frozen=True):
    """An object in JSON that is decoded in slices of about so many bytes; another value is decoded at once."""

    # decodes a slice
    decoder: Any
    take: Callable[[Any], object]
    begin: Callable[[], object]
    slice_bytes: int


class Elements(msgspec.Struct, frozen=True):
    """An array or map in msgpack that is decoded in slices."""

    # decodes a slice
    decoder: msgspec.msgpack.Decoder[Any]
    take: Callable[[Any], object]
    begin: Callable[[], object]
    # the name of the elements in errors, and their largest number
    what: str
    most: int


class Group(msgspec.Struct, frozen=True):
    """An object in JSON, some of whose members are read."""

    begin: Callable[[], object]
    members: Mapping[str, "JsonMember"]


JsonMember: TypeAlias = Whole | Table | Group
MsgpackMember: TypeAlias = Whole | Elements


_keys: Final = msgspec.json.Decoder(str)

_B: Final = rb"[ \t\n\r]*+"
# Repeated groups are greedy within an atomic group: before Python 3.11.5 (Debian 12 has 3.11.2), a possessive repeat of
# a group also takes the part of the text that an incomplete last repetition has matched (python/cpython#106052).
_STRING: Final = rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_PLAIN: Final = rb'[^"\[\]{}]*+(?>(?:' + _STRING + rb'[^"\[\]{}]*+)*)'
_BLANKS: Final = re.compile(_B)
_KEY: Final = re.compile(b"(" + _STRING + b")" + _B + b":" + _B, re.DOTALL)
_NEXT: Final = re.compile(_B + b"([,}])" + _B)
_SCALAR: Final = re.compile(_STRING + rb'|[^\s"\[\]{},:]+', re.DOTALL)
# text without brackets, and pairs of brackets around such text, as often as possible, and then one bracket
_BRACKET: Final = re.compile(
    _PLAIN + rb"(?>(?:(?:\{" + _PLAIN + rb"\}|\[" + _PLAIN + rb"\])" + _PLAIN + rb")*)([\[\]{}]?)", re.DOTALL
)
# the end of an object before a member that is an object, too: nearly always the boundary between two topics
_LIKELY_CUT: Final = re.compile(rb"\}" + _B + b"," + _B + b"(?=" + _STRING + _B + b":" + _B + rb"\{)", re.DOTALL)


class JsonSlices:
    """A JSON document; `what` names it in errors.

    Regular expressions, which never see more than a window of the document, find its members; the members that are read
    are parsed strictly.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        # False after a likely cut was missing or rejected by the parser, until the end of that table
        self._guesses = True

    def read(self, members: Mapping[str, JsonMember]) -> Steps[None]:
        """Read the given members of the document; other members are skipped unchecked. Raises BadRequestError."""
        end = yield from self._object(self._blanks(0), members)
        if self._blanks(end) != len(self._data):
            self._fail("expected the end", end)

    # The following methods read items that begin at `at`; their results contain the position after the item.

    def _object(self, at: int, members: Mapping[str, JsonMember]) -> Steps[int]:
        at = self._opened(at)
        if self._data[at : at + 1] == b"}":
            return at + 1
        for _ in range(MAX_MEMBERS):
            key, at = self._key(at)
            member = members.get(read_strictly(_keys, key, self._what))
            at = yield from self._skip(at) if member is None else self._member(at, member)
            yield
            at, is_last = self._next(at)
            if is_last:
                return at
        self._fail(f"more than {MAX_MEMBERS} members", at)

    def _member(self, at: int, member: JsonMember) -> Steps[int]:
        if isinstance(member, Group):
            member.begin()
            return (yield from self._object(at, member.members))
        if isinstance(member, Table):
            member.begin()
            if self._data[at : at + 1] == b"{":
                return (yield from self._table(at, member))
        end = yield from self._skip(at, member.max_bytes if isinstance(member, Whole) else MAX_VALUE_BYTES)
        member.take(read_strictly(member.decoder, self._data[at:end], self._what))
        return end

    def _table(self, at: int, member: Table) -> Steps[int]:
        at = self._opened(at)
        if self._data[at : at + 1] == b"}":
            return at + 1
        is_last = False
        began, held = at, 0
        while not is_last:
            guessed = self._guess(member, at)
            if guessed is not None:
                values, at = guessed
            else:
                start = at
                end, at, is_last = yield from self._members(start, start + member.slice_bytes)
                values = read_strictly(member.decoder, b"{" + self._data[start:end] + b"}", self._what)
                # The last slice of a table rarely ends at a likely cut. In other slices the cut was missing or wrong.
                self._guesses = is_last
            member.take(values)
            held += len(values)
            if held >= _VALUES_PER_STEP or at - began >= _BYTES_PER_STEP:
                began, held = at, 0
                yield
        return at

    def _guess(self, member: Table, at: int) -> tuple[Any, int] | None:
        """The members up to a likely cut, if the parser confirms it.

        The parser does so only if the cut is between two members: anywhere else a string or a bracket would stay open,
        or close too early. So a wrong guess costs time, but never changes the meaning of a document.
        """
        near = at + member.slice_bytes
        cut = _LIKELY_CUT.search(self._data, near, near + MAX_VALUE_BYTES) if self._guesses else None
        if cut is None:
            return None
        try:
            values = read_strictly(member.decoder, b"{" + self._data[at : cut.start() + 1] + b"}", self._what)
        except BadRequestError:
            return None
        return values, cut.end()

    def _members(self, at: int, full: int) -> Steps[tuple[int, int, bool]]:
        """Find members until the slice is full; return the last end, the next position, and True at the table's end."""
        while True:
            _, at = self._key(at)
            end = yield from self._skip(at, MAX_VALUE_BYTES)
            at, is_last = self._next(end)
            if is_last or at >= full:
                return end, at, is_last

    def _skip(self, at: int, max_bytes: int | None = None) -> Steps[int]:
        """Skip a value, examining only its brackets and strings."""
        start = at
        if self._data[at : at + 1] not in (b"{", b"["):
            scalar = _SCALAR.match(self._data, at, at + _WINDOW)
            if scalar is None:
                self._fail("expected a value", at)
            return self._checked(start, scalar.end(), max_bytes)
        at = yielded = at + 1
        depth, steps = 1, 0
        while True:
            bracket_match = _BRACKET.match(self._data, at, at + _WINDOW)
            if bracket_match is None or bracket_match.end() == at:
                self._fail("unterminated object, array or string", start)
            at, bracket = self._checked(start, bracket_match.end(), max_bytes), bracket_match[1]
            if bracket:
                depth += 1 if bracket in b"{[" else -1
            if not depth:
                return at
            if depth > _MAX_DEPTH:
                self._fail(f"json nested deeper than {_MAX_DEPTH}", at)
            steps += 1
            if steps * _BYTES_PER_BRACKET > at - start + _WINDOW:
                self._fail("too many brackets", start)
            if steps % 4096 == 0 or at - yielded > 4 * _WINDOW:
                yielded = at
                yield

    def _checked(self, start: int, end: int, max_bytes: int | None) -> int:
        if max_bytes is not None and end - start > max_bytes:
            self._fail(f"value of more than {max_bytes} bytes", start)
        return end

    def _opened(self, at: int) -> int:
        if self._data[at : at + 1] != b"{":
            self._fail("expected an object", at)
        return self._blanks(at + 1)

    def _key(self, at: int) -> tuple[bytes, int]:
        key = _KEY.match(self._data, at, at + _WINDOW)
        if key is None:
            self._fail("expected a key", at)
        return key[1], key.end()

    def _next(self, at: int) -> tuple[int, bool]:
        """The position after a comma or the end of an object, and True for the end."""
        next_match = _NEXT.match(self._data, at, at + _WINDOW)
        if next_match is None:
            self._fail("expected ',' or '}'", at)
        # Blanks after the end belong to the next item.
        return (next_match.end(), False) if next_match[1] == b"," else (next_match.end(1), True)

    def _blanks(self, at: int) -> int:
        blanks = _BLANKS.match(self._data, at, at + _WINDOW)
        return at if blanks is None else blanks.end()

    def _fail(self, message: str, at: int) -> NoReturn:
        raise BadRequestError(f"body of {self._what} cannot be read: {message} at byte {at}")
