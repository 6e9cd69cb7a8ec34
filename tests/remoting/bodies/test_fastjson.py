"""fastjson's dialect is read as fastjson reads it, and fails with no other exception."""

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.fastjson import FastjsonError, coerce_ext_fields, loads, quote_bare_keys

MEBIBYTE = 1 << 20

# what could make quoting and parsing disagree: everything that looks like the beginning of a bare key, and quotes
nasty_text = st.text(alphabet="{}[],:-0123456789\"'\\ aé\n")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    scalars | st.text() | nasty_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | nasty_text, inner, max_size=5),
    max_leaves=20,
)
java_values = st.recursive(
    scalars | st.text() | nasty_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.integers() | nasty_text, inner, max_size=5),
    max_leaves=20,
)


def written_by_fastjson(value: object) -> str:
    """A value as Java writes it: compact, with the integer keys of its maps bare."""
    if isinstance(value, dict):
        members = (f"{_key(key)}:{written_by_fastjson(member)}" for key, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written_by_fastjson, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: object) -> str:
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


def with_string_keys(value: object) -> object:
    """The same value with the keys that standard JSON has."""
    if isinstance(value, dict):
        return {str(key): with_string_keys(member) for key, member in value.items()}
    if isinstance(value, list):
        return [with_string_keys(element) for element in value]
    return value


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        ({"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}, b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}'),
        ({"-1": "a"}, b'{-1:"a"}'),
        ({"0": 2}, b'{0:1,"0":2}'),
        ({"code": 105}, b"{code:105}"),
        ({"_a1": 1, "$b": 2}, b"{_a1:1,$b:2}"),
        ({"true": 1, "null": 2}, b"{true:1,null:2}"),
        ({"a": "b"}, b"{'a':'b'}"),
        ({'a"b': "c'd"}, b"{'a\"b':'c\\'d'}"),
        ({"a": 2}, b'{"a":1,"a":2}'),
        ({"a": 1}, b'\xef\xbb\xbf{"a":1}'),
        ({"a": [1, 2]}, b' { "a" :\t[ 1 ,\r2 ]\n}\x08\x0c '),
        ({}, b"{ }"),
        ([], b"[ ]"),
        ([True, False, None], b"[true,false,null]"),
        ([0, -1, 1.5, -2500.0, 0.01], b"[0,-1,1.5,-2.5e3,1E-2]"),
        (9223372036854775808, b"9223372036854775808"),
        ("", b"''"),
        ({"A": 1}, b'{"\\x41":1}'),
        ("A\x0b\x0c\x0c\x08\n\r\t\"'\\/", b'"\\x41\\v\\f\\F\\b\\n\\r\\t\\"\\\'\\\\\\/"'),
        ("\x00\x07" + "7", b'"\\0\\77"'),
        ("\xe9\xff", b'"\\u00E9\\xfF"'),
        ("\U0001f600", b'"\\ud83d\\uDE00"'),
        ("é\U0001f600", '"é\U0001f600"'.encode()),
        ("a\nb\x00c", b'"a\nb\x00c"'),
    ],
)
def test_reads_what_fastjson_reads(expected: object, data: bytes) -> None:
    """Each of these is what fastjson 1.2.83 makes of the same bytes; integer keys become strings."""
    assert expected == loads(data)


@pytest.mark.parametrize(
    ("position", "message", "data"),
    [
        (0, "expected a value, got the end", b""),
        (3, "expected a value, got the end", b"\xef\xbb\xbf"),
        (3, "expected the end, got 'x'", b"{} x"),
        (2, "expected the end, got '}'", b"{}}"),
        (7, "expected a key, got ',\"b\":2}'", b'{"a":1,,"b":2}'),
        (7, "expected a key, got '}'", b'{"a":1,}'),
        (1, "expected a key, got ',\"a\":1}'", b'{,"a":1}'),
        (3, "expected a value, got ',2]'", b"[1,,2]"),
        (3, "expected a value, got ']'", b"[1,]"),
        (3, "expected ',' or ']', got '2]'", b"[1 2]"),
        (7, "expected ',' or '}', got '\"b\":2}'", b'{"a":1 "b":2}'),
        (4, "expected ':', got '}'", b'{"a"}'),
        (2, "expected ':', got '.b:1}'", b"{a.b:1}"),
        (2, "expected ':', got '1:2}'", b"{01:2}"),
        (2, "expected ',' or ']', got '1]'", b"[01]"),
        (1, "expected a value, got '+1]'", b"[+1]"),
        (2, "expected ',' or ']', got '.]'", b"[1.]"),
        (2, "expected ',' or ']', got 'L]'", b"[1L]"),
        (1, "expected a value, got '-]'", b"[-]"),
        (1, "expected a value, got 'NaN]'", b"[NaN]"),
        (1, "expected a value, got '-Infinity]'", b"[-Infinity]"),
        (1, "expected a value, got 'undefined]'", b"[undefined]"),
        (1, "expected a value, got 'TRUE]'", b"[TRUE]"),
        (5, "expected a value, got '/*c*/1}'", b'{"a":/*c*/1}'),
        (0, "expected a value, got '\\x0b1'", b"\x0b1"),
        (1, "unterminated string", b'["a'),
        (1, "unterminated string", b"['a\\']"),
        (2, "unknown escape '\\\\q'", b'["\\q"]'),
        (2, "unknown escape '\\\\8'", b'["\\8"]'),
        (4, "unknown escape '\\\\u'", b'["\xc3\xa9\\u00g0"]'),
        (3, "unknown escape '\\\\x'", b'["a\\x4"]'),
        (2, "lone surrogate \\ud83d", b'["\\ud83d"]'),
        (2, "lone surrogate \\ude00", b'["\\ude00\\ud83d"]'),
        (1, "number 1e400 out of range", b"[1e400]"),
        (2, "invalid utf-8 b'\\xff\"]'", b'["\xff"]'),
        (2, "invalid utf-8 b'\\xed\\xa0\\x80\"'", b'["\xed\xa0\x80"]'),
    ],
)
def test_refusal_names_what_and_where(position: int, message: str, data: bytes) -> None:
    """Every refusal says what was found and at which byte of the document."""
    with pytest.raises(FastjsonError) as refused:
        loads(data)

    assert (position, f"{message} at byte {position}") == (refused.value.position, str(refused.value))


def test_too_long_a_document_is_refused_with_both_numbers() -> None:
    """The length is looked at before anything else, so the bytes do not matter."""
    assert "1" * 8 == str(loads(b"1" * 8, max_bytes=8))
    with pytest.raises(FastjsonError, match=r"^json of 9 bytes, limit 8$") as refused:
        loads(b"\xff" * 9, max_bytes=8)
    assert refused.value.position is None


def test_depth_counts_containers() -> None:
    """64 containers inside each other are read, the 65th is refused where it begins."""
    assert json.loads("[" * 64 + "]" * 64) == loads(b"[" * 64 + b"]" * 64)
    with pytest.raises(FastjsonError, match=r"^json nested deeper than 64 at byte 64$"):
        loads(b"[" * 65 + b"]" * 65)
    with pytest.raises(FastjsonError, match=r"^json nested deeper than 1 at byte 5$"):
        loads(b'{"a":{}}', max_depth=1)


def test_numbers_end_at_400_digits() -> None:
    """400 digits are read, with and without a sign; one more is refused, as a value, a key or a fraction."""
    digits = b"1" * 400

    assert [int("1" * 400), -int("1" * 400)] == loads(b"[%s,-%s]" % (digits, digits))
    for data in (b"[1%s]" % digits, b"[-1%s]" % digits, b"{1%s:0}" % digits, b"[0.%s]" % digits):
        with pytest.raises(FastjsonError, match=r"^number of 40[12] characters, limit 400 at byte 1$"):
            loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * MEBIBYTE,
        (b'{"a":' * MEBIBYTE)[:MEBIBYTE],
        b"{a:" * (MEBIBYTE // 3),
        b"'" * MEBIBYTE,
        b'"' * MEBIBYTE,
        b"\\" * MEBIBYTE,
        b'"' + b"\\" * (MEBIBYTE - 1),
        b'["' + b"\\x" * (MEBIBYTE // 2 - 1),
        b"[" + b"9" * (MEBIBYTE - 1),
        b"{" + b"9" * (MEBIBYTE - 1),
        b"[1e" + b"9" * (MEBIBYTE - 3),
        b"{" + b"a" * (MEBIBYTE - 1),
        b" " * MEBIBYTE,
        b"[" + b'"",' * (MEBIBYTE // 3 - 1),
        b"{" + b"0:0," * (MEBIBYTE // 4 - 1),
        b",1:" * (MEBIBYTE // 3),
    ],
    ids=lambda data: repr(data[:6]),
)
def test_hostile_mebibyte_fails_fast(data: bytes) -> None:
    """No document makes the reader go over its bytes again and again: that would be 64 times the work for 8 times."""
    eighth, whole = _computing_seconds(data[: MEBIBYTE // 8]), _computing_seconds(data)

    # what ends at once takes no time that could be compared
    assert whole < 24 * max(eighth, 0.01)


def _computing_seconds(data: bytes) -> float:
    """Compared with each other only: how fast the machine is makes no difference."""
    started = time.process_time()
    with pytest.raises(FastjsonError):
        loads(data, max_bytes=MEBIBYTE)
    quote_bare_keys(data)
    return time.process_time() - started


@pytest.mark.parametrize("data", [b"[" * MEBIBYTE, (b'{"a":' * MEBIBYTE)[:MEBIBYTE]], ids=["arrays", "objects"])
def test_depth_beyond_the_stack_is_a_refusal(data: bytes) -> None:
    """A caller who allows any depth gets no RecursionError either."""
    with pytest.raises(FastjsonError, match=r"^json nested deeper than the stack, limit 1048576$"):
        loads(data, max_depth=MEBIBYTE, max_bytes=MEBIBYTE)


@given(st.binary() | nasty_text.map(str.encode))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    """Whatever arrives: a value, or a FastjsonError whose position is inside the document."""
    position: int | None = 0
    try:
        loads(data)
    except FastjsonError as refused:
        position = refused.position
    assert position is not None
    assert 0 <= position <= len(data)


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_standard_json_reads_as_it_always_did(value: object, ensure_ascii: bool, indent: int | None) -> None:  # noqa: FBT001 - given
    """The dialect contains the standard: what json writes is read as json reads it."""
    data = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent).encode()

    assert json.loads(data) == loads(data)


@given(java_values)
def test_what_java_writes_is_read(value: object) -> None:
    """Bare integer keys anywhere, whatever the strings around them hold."""
    assert with_string_keys(value) == loads(written_by_fastjson(value).encode())


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        (b'{"0":"a","-1":"b"}', b'{0:"a",-1:"b"}'),
        (b'{"a":{"0":1,"1":2}}', b'{"a":{0:1,1:2}}'),
        (b'{"0":"a"}', b'{"0":"a"}'),
        (b'{ 0:"a"}', b'{ 0:"a"}'),
        (b'{a:"b"}', b'{a:"b"}'),
        # inside a string, where it makes the document unreadable for a strict parser
        (b'{"a":"b,"1":c"}', b'{"a":"b,1:c"}'),
    ],
)
def test_quote_bare_keys(expected: bytes, data: bytes) -> None:
    """Only integers between `{` or `,` and `:` get quotes."""
    assert expected == quote_bare_keys(data)


@given(java_values)
def test_quoting_never_changes_what_java_wrote(value: object) -> None:
    """A strict parser of the quoted bytes finds the right value or fails; it never finds another one."""
    try:
        found = msgspec.json.decode(quote_bare_keys(written_by_fastjson(value).encode()))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert with_string_keys(value) == found


@given(
    st.lists(
        st.sampled_from(
            [
                "{",
                "}",
                "[",
                "]",
                ",",
                ":",
                '"',
                '"',
                "'",
                "\\",
                "1",
                "-1",
                "0",
                "a",
                " ",
                '{"a":"',
                ',1:"',
                '"}',
                "\\u002c",
            ]
        ),
        max_size=20,
    ).map("".join)
)
def test_quoting_and_the_exact_reader_agree(text: str) -> None:
    """Of documents of any origin: what the strict parser reads after quoting is what the exact reader reads."""
    data = text.encode()
    try:
        found = msgspec.json.decode(quote_bare_keys(data))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert found == loads(data)


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        ({"brokerId": "1", "compressed": "true", "x": "false"}, b'{"brokerId":1,"compressed":true,"x":false}'),
        ({"a": "1.5", "b": "-3", "c": "99999999999999999999"}, b'{"a":1.5,"b":-3,"c":99999999999999999999}'),
        # as Java's BigDecimal writes them
        ({"a": "1E+21", "b": "1E-7", "c": "0.00001", "d": "0.0"}, b'{"a":1e+21,"b":1e-7,"c":0.00001,"d":-0.0}'),
        ({"b": ""}, b'{"a":null,"b":""}'),
        ({"null": "2", "1": "x"}, b'{null:2,1:"x"}'),
        ({"a": "{}", "b": "[]"}, b'{"a":{},"b":[ ]}'),
        ({"a": '{"b":[1,"é/",null,{}]}'}, '{"a":{"b": [1, "é/", null, {"c":null}], "d":null}}'.encode()),
        ({"a": '{"0":true}'}, b'{"a":{0:true}}'),
        ({}, b"{}"),
    ],
)
def test_coerce_ext_fields(expected: dict[str, str], data: bytes) -> None:
    """Each of these is what fastjson 1.2.83 puts into a `Map<String,String>`, less the null members."""
    assert expected == coerce_ext_fields(loads(data))


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (r"ext fields are not an object: \[\]", []),
        ("ext fields are not an object: None", None),
        ("ext fields are not an object: 'x'", "x"),
        pytest.param("ext fields are not an object: list", [10**5000], id="more digits than str() writes"),
        (r"ext field name is not a string: b'a'", {b"a": "x"}),
        (r"ext field cannot be encoded as JSON: b'\\xff'", {"a": b"\xff"}),
        ("ext field cannot be encoded as JSON: nan", {"a": float("nan")}),
        (r"ext field cannot be encoded as JSON: \[inf\]", {"a": [float("inf")]}),
        pytest.param("ext field cannot be encoded as JSON: int", {"a": 10**5000}, id="the same in a field"),
    ],
)
def test_coerce_refuses_what_is_not_of_json(message: str, value: object) -> None:
    """Only an object of JSON values can become ext fields."""
    with pytest.raises(FastjsonError, match=f"^{message}$"):
        coerce_ext_fields(value)


def test_coerce_refuses_what_has_no_end() -> None:
    """A value that holds itself ends the stack, not the server."""
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(FastjsonError, match=r"^ext field cannot be encoded as JSON: \[\[\.\.\.\]\]$"):
        coerce_ext_fields({"a": endless})


@given(json_values)
def test_coerced_values_are_strings(value: object) -> None:
    """Whatever an object holds, its ext fields are strings and can be sent."""
    try:
        fields = coerce_ext_fields(value)
    except FastjsonError:
        assert not isinstance(value, dict)
        return
    assert all(isinstance(text.encode(), bytes) for item in fields.items() for text in item)
