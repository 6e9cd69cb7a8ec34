"""Reading a document in slices: the result equals that of the whole."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.base import read_strictly
from namesrv_remoting.bodies.slices import JsonMember, JsonSlices, Table, Whole
from namesrv_remoting.errors import BadRequestError
from tests.remoting.bodies.test_fastjson import written_by_fastjson
from tests.support.steps import finished


class Document(msgspec.Struct):
    """A document with a small value, a table and other members."""

    small: list[str] | None = None
    table: dict[str, "Value"] | None = None


class Value(msgspec.Struct):
    """A value of the table."""

    name: str = ""
    ids: dict[int, int] = {}


SMALL = msgspec.json.Decoder(list[str] | None)
TABLE = msgspec.json.Decoder(dict[str, Value] | None)
WHOLE = msgspec.json.Decoder(Document)


def in_slices(data: bytes, slice_bytes: int) -> tuple[Document, int]:
    """A document read in slices of this size, and the number of slices of its table."""
    found, slices = Document(), 0

    def take_small(values: list[str] | None) -> None:
        found.small = values

    def begin() -> None:
        found.table = {}

    def take(values: dict[str, Value] | None) -> None:
        nonlocal slices
        slices += 1
        found.table = None if values is None else (found.table or {}) | values

    members: dict[str, JsonMember] = {
        "small": Whole(SMALL, take_small, 1024),
        "table": Table(TABLE, take, begin, slice_bytes),
    }
    finished(JsonSlices(data, "DOCUMENT").read(members))
    return found, slices


# characters that look like boundaries, also within strings; what looks like a bare key is refused, see fastjson
texts = st.text(st.sampled_from('a\\"{}[],:')) | st.sampled_from(['},"a":{', '"},"b":{"', "é\U0001f600", ""])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
values = st.fixed_dictionaries(
    {}, optional={"name": texts, "ids": st.dictionaries(st.integers(-9, 99), st.integers(-9, 99)), "other": anything}
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "small": st.none() | st.lists(texts, max_size=3),
        "table": st.none() | st.dictionaries(texts, values, max_size=12),
        "other": anything,
        "more": anything,
    },
)


def _pretty(value: object) -> str:
    return json.dumps(value, indent=1)


@given(documents, st.sampled_from([json.dumps, _pretty, written_by_fastjson]), st.integers(1, 60))
def test_slices_equal_the_whole(value: object, write: object, slice_bytes: int) -> None:
    """Results are equal for any format, any strings and any slice size."""
    assert callable(write)
    data = write(value).encode()

    assert read_strictly(WHOLE, data, "DOCUMENT") == in_slices(data, slice_bytes)[0]


def test_table_is_split_into_full_slices() -> None:
    """A hundred topics as Java writes them are in the first slice with room."""
    table = {f"T{number:02}": {"attributes": {}, "name": "x" * 20, "order": False} for number in range(100)}
    found, slices = in_slices(json.dumps({"table": table}, separators=(",", ":")).encode(), slice_bytes=610)

    assert set(table) == set(found.table or ())
    assert slices in range(10, 14)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "expected an object at byte 0"),
        (b"{", "expected a key at byte 1"),
        (b'{"a":1', "expected ',' or '}' at byte 6"),
        (b'{"a":1,}', "expected a key at byte 7"),
        (b'{"a":}', "expected a value at byte 5"),
        (b'{"a":1} x', "expected the end at byte 7"),
        (b'{"a":[1', "unterminated object, array or string at byte 5"),
        (b'{"a":' + b"[" * 66 + b"]" * 66 + b"}", "json nested deeper than 64 at byte 70"),
        (b'{"a":["' + b"a" * 65536 + b'"]}', "unterminated object, array or string at byte 5"),
        (b'{"a":' + b" " * 65537 + b"1}", "expected a value at byte 65537"),
        (b'{"a":[' + b"[[]]," * 20_000 + b"1]}", "too many brackets at byte 5"),
        (b"{" + b'"a":1,' * 65 + b'"a":1}', "more than 64 members at byte 385"),
        (b'{"small":["' + b"a" * 1024 + b'"]}', "value of more than 1024 bytes at byte 9"),
        (b"{\"small\":['a']}", "JSON is malformed: invalid character (byte 1)"),
        (b'{"table":1}', "Expected `object | null`, got `int`"),
        (b'{"table":{"a":{"name":1}}}', "Expected `str`, got `int` - at `$[...].name`"),
        (b'{"table":{"a":{},}}', "expected a key at byte 17"),
        (b'{"table":{"a":{"x":"' + b"a" * 65536 + b'"}}}', "unterminated object, array or string at byte 14"),
        (b'{"table":{"a":{"x":' + b'"aaaaaaaa",' * 6000 + b'"b"]}}}', "value of more than 65536 bytes at byte 14"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_document_is_refused(data: bytes, error: str) -> None:
    """The error names the expected token and place, or the exceeded limit."""
    with pytest.raises(BadRequestError) as caught:
        in_slices(data, 100)
    assert caught.value.remark == f"body of DOCUMENT cannot be read: {error}"


@given(st.text('{}[]",:01 \\smaltben').map(str.encode), st.integers(1, 20))
def test_no_bytes_break_the_reader(data: bytes, slice_bytes: int) -> None:
    """Any input gives a document or an error; strict JSON is accepted with the same result."""
    try:
        found = in_slices(data, slice_bytes)[0]
    except BadRequestError:
        found = None
    try:
        whole = WHOLE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert whole == found
