"""Large documents, JSON here and msgpack in `msgpack_slices`, read in slices of which none takes long.

One call of a parser over 16 MiB would keep an event loop for half a second. Both readers take the members of a document
that they are told of, and hand over what those hold: a small value whole, a large table or array slice by slice. Each
slice is a step of a generator; nothing of a document is looked at before what stands in front of it was accepted.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from namesrv_remoting.bodies.base import Steps, read_strictly
from namesrv_remoting.errors import BadRequestError

T = TypeVar("T")

# One topic or mapping, or one value that is parsed whole. A mapping has 10 to 20 bytes per queue of one topic.
MAX_VALUE_BYTES: Final = 64 * 1024
# members of a document and their names: a registration has two and five
MAX_MEMBERS: Final = 64
MAX_NAME_BYTES: Final = 64
# how deep fastjson's objects may be
_MAX_DEPTH: Final = 64
# A value that is skipped costs half a microsecond for each bracket that is not the end of a pair without another one in
# it. Real ones have hundreds of bytes between those.
_BYTES_PER_BRACKET: Final = 16
# After so many values of a table, or bytes of it, others may run: a slice takes a millisecond or two at most, nearly
# always a fiftieth of that.
_VALUES_PER_STEP: Final = 500
_BYTES_PER_STEP: Final = 128 * 1024
# what one match may look at; no key, string or run of blanks of a registration comes near it
_WINDOW: Final = 64 * 1024


class Member(msgspec.Struct, frozen=True):
    """A member of a document: what decodes it, and who takes it. One that comes twice is taken twice."""

    # of the value, or of some of its elements at a time
    decoder: Any
    take: Callable[[Any], object]
    # how long a value may be; how long slices of JSON are
    max_bytes: int = MAX_VALUE_BYTES
    # it comes in slices, and this is called before the first one
    begin: Callable[[], object] | None = None
    # how errors name its elements, and how many there may be, where a document says so beforehand
    what: str = ""
    most: int = 0


class Group(msgspec.Struct, frozen=True):
    """A member that is an object with members that are wanted."""

    begin: Callable[[], object]
    members: Mapping[str, Member]


_keys: Final = msgspec.json.Decoder(str)

_B: Final = rb"[ \t\n\r]*+"
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PLAIN: Final = rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+)*+'
_BLANKS: Final = re.compile(_B)
_KEY: Final = re.compile(b"(" + _STRING + b")" + _B + b":" + _B, re.DOTALL)
_NEXT: Final = re.compile(_B + b"([,}])" + _B)
_SCALAR: Final = re.compile(_STRING + rb'|[^\s"\[\]{},:]+', re.DOTALL)
# text without brackets and pairs of brackets around such text, as much as there is, and one bracket more
_BRACKET: Final = re.compile(
    _PLAIN + rb"(?:(?:\{" + _PLAIN + rb"\}|\[" + _PLAIN + rb"\])" + _PLAIN + rb")*+([\[\]{}]?)", re.DOTALL
)
# where an object ends and a member begins that is an object as well: nearly always between two topics
_LIKELY_CUT: Final = re.compile(rb"\}" + _B + b"," + _B + b"(?=" + _STRING + _B + b":" + _B + rb"\{)", re.DOTALL)


class JsonSlices:
    """A JSON document; `what` names it in errors.

    Its members are found with regular expressions that never see more than a window of it; what is wanted of them is
    parsed strictly.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        # whether likely cuts have been right so far
        self._guesses = True

    def read(self, members: Mapping[str, Member | Group]) -> Steps[None]:
        """Read the document, an object with a few members; others are skipped unchecked. Raises BadRequestError."""
        end = yield from self._object(self._blanks(0), members)
        if self._blanks(end) != len(self._data):
            self._fail("expected the end", end)

    # Each of these reads what begins at `at`, and returns the position behind it.

    def _object(self, at: int, members: Mapping[str, Member | Group] | Mapping[str, Member]) -> Steps[int]:
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

    def _member(self, at: int, member: Member | Group) -> Steps[int]:
        if member.begin is not None:
            member.begin()
        if isinstance(member, Group):
            return (yield from self._object(at, member.members))
        if member.begin is not None and self._data[at : at + 1] == b"{":
            return (yield from self._table(at, member))
        end = yield from self._skip(at, member.max_bytes if member.begin is None else MAX_VALUE_BYTES)
        member.take(read_strictly(member.decoder, self._data[at:end], self._what))
        return end

    def _table(self, at: int, member: Member) -> Steps[int]:
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
                end, at, is_last = yield from self._members(start, start + member.max_bytes)
                values = read_strictly(member.decoder, b"{" + self._data[start:end] + b"}", self._what)
                # the last slice of a table is rarely a likely one; any other says that the cuts are not where we look
                self._guesses = is_last
            member.take(values)
            held += len(values)
            if held >= _VALUES_PER_STEP or at - began >= _BYTES_PER_STEP:
                began, held = at, 0
                yield
        return at

    def _guess(self, member: Member, at: int) -> tuple[Any, int] | None:
        """The members up to a likely cut, if the parser confirms it.

        It does so only if the cut is between two members: anywhere else a string or a bracket would stay open, or close
        too early. So a wrong guess costs time, and never changes what a document says.
        """
        near = at + member.max_bytes
        cut = _LIKELY_CUT.search(self._data, near, near + MAX_VALUE_BYTES) if self._guesses else None
        if cut is None:
            return None
        try:
            values = read_strictly(member.decoder, b"{" + self._data[at : cut.start() + 1] + b"}", self._what)
        except BadRequestError:
            return None
        return values, cut.end()

    def _members(self, at: int, full: int) -> Steps[tuple[int, int, bool]]:
        """Members until the slice is full: the end of the last one, what comes next, whether that was the last."""
        while True:
            _, at = self._key(at)
            end = yield from self._skip(at, MAX_VALUE_BYTES)
            at, is_last = self._next(end)
            if is_last or at >= full:
                return end, at, is_last

    def _skip(self, at: int, max_bytes: int | None = None) -> Steps[int]:
        """Read a value, of which the brackets and strings are all that is looked at."""
        start = at
        if self._data[at : at + 1] not in (b"{", b"["):
            scalar = _SCALAR.match(self._data, at, at + _WINDOW)
            if scalar is None:
                self._fail("expected a value", at)
            return self._checked(start, scalar.end(), max_bytes)
        at = yielded = at + 1
        depth, steps = 1, 0
        while True:
            found = _BRACKET.match(self._data, at, at + _WINDOW)
            if found is None or found.end() == at:
                self._fail("unterminated object, array or string", start)
            at, bracket = self._checked(start, found.end(), max_bytes), found[1]
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
        """The position behind a comma or the end of an object, and whether it is the end."""
        found = _NEXT.match(self._data, at, at + _WINDOW)
        if found is None:
            self._fail("expected ',' or '}'", at)
        # blanks behind the end belong to what follows
        return (found.end(), False) if found[1] == b"," else (found.end(1), True)

    def _blanks(self, at: int) -> int:
        blanks = _BLANKS.match(self._data, at, at + _WINDOW)
        return at if blanks is None else blanks.end()

    def _fail(self, message: str, at: int) -> NoReturn:
        raise BadRequestError(f"body of {self._what} cannot be read: {message} at byte {at}")
