"""fastjson's dialect: reading it as fastjson does, with one exception class."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.fastjson import MAX_BYTES, FastjsonError, coerce_ext_fields, loads, quote_bare_keys

# strings that look like bare keys or quotes
nasty_text = st.text(alphabet="{}[],:-0123456789\"'\\ aé\n")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def values(keys: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """JSON values with such keys."""
    return st.recursive(
        scalars | st.text() | nasty_text,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=20,
    )


json_values = values(st.text() | nasty_text)
java_values = values(st.integers() | nasty_text)
# documents in which quotes, escapes and keys meet at random
documents = st.lists(
    st.sampled_from([*"{}[],:\"\"''\\1a0 ", "-1", '{"a":"', ',1:"', '"}', "\\u002c", "\\x2c", "\\'", "{a:"]),
    max_size=20,
).map("".join)


def written_by_fastjson(value: object) -> str:
    """A value as Java writes it: compact, with bare integer keys."""
    if isinstance(value, dict):
        members = (f"{_key(key)}:{written_by_fastjson(member)}" for key, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written_by_fastjson, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: object) -> str:
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


def with_string_keys(value: object) -> object:
    """The same value with the keys of standard JSON."""
    if isinstance(value, dict):
        return {str(key): with_string_keys(member) for key, member in value.items()}
    if isinstance(value, list):
        return [with_string_keys(element) for element in value]
    return value


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        ({"0": "10.0.0.1:10911", "-1": ""}, b"\xef\xbb\xbf{0:'10.0.0.1:10911',-1:''}"),
        ({"0": 2}, b'{0:1,"0":2}'),
        ({"code": 105}, b"{code:105}"),
        ({"_a1": 1, "$b": 2}, b"{_a1:1,$b \t:2}"),
        ({'a"b': "c'd"}, b"{'a\"b':'c\\'d'}"),
        ({"a": 2}, b'{"a":1,"a":2}'),
        ({"a": [1, 2]}, b' { "a" :\t[ 1 ,\r2 ]\n}\x08\x0c '),
        ([{}, []], b"[{ },[ ]]"),
        ([0, -1, 1.5, -2500.0, 0.01], b"[0,-1,1.5,-2.5e3,1E-2]"),
        (9223372036854775808, b"9223372036854775808"),
        ("A\x0b\x0c\x0c\x08\n\r\t\"'\\/", b'"\\x41\\v\\f\\F\\b\\n\\r\\t\\"\\\'\\\\\\/"'),
        ("\x00\x07" + "7", b'"\\0\\77"'),
        ("\xe9\xff", b'"\\u00E9\\xfF"'),
        ("\U0001f600", b'"\\ud83d\\uDE00"'),
        ("é\U0001f600", '"é\U0001f600"'.encode()),
        ("a\nb\x00c\x1f", b'"a\nb\x00c\x1f"'),
    ],
)
def test_reads_as_fastjson_does(expected: object, data: bytes) -> None:
    """The expected values are fastjson 1.2.83's; integer keys become strings."""
    assert loads(data) == expected


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("Input data was truncated", b""),
        ("JSON is malformed: trailing characters near ''", b"{} x"),
        ("JSON is malformed: object keys must be strings near ',\"b\":2}'", b'{"a":1,,"b":2}'),
        ("JSON is malformed: trailing comma in object near '}'", b'{"a":1,}'),
        ("JSON is malformed: object keys must be strings near ',\"a\":1}'", b'{,"a":1}'),
        ("JSON is malformed: invalid character near ',2]'", b"[1,,2]"),
        ("JSON is malformed: expected ',' or ']' near '2]'", b"[1\x0c 2]"),
        ("JSON is malformed: expected ',' or '}' near '\"b\":2}'", b'{"\xc3\xa9":1 b:2}'),
        ("JSON is malformed: expected ':' near '}'", b'{"a"}'),
        *(("JSON is malformed: ", data) for data in (
            b"{a.b:1}", b"{01:2}", b"[01]", b"[+1]", b"[1.]", b"[1L]", b"[-]", b"[NaN]", b"[-Infinity]", b"[undefined]",
            b"[TRUE]", b'{"a":/*c*/1}', b"\x0b1", b"{1.5:2}", b"{-a:1}", b"{a:b}", b"[a:1]", b'{"a":b:1}', b"{1a:2}",
            b"{}}", b'["\\q"]', b'["\\8"]', b'["\xc3\xa9\\u00g0"]', b'["a\\x4"]', b'["\\ude00\\ud83d"]',
        )),
        # an unpaired surrogate has no UTF-8, so that no response could contain it
        ("Input data was truncated", b'["\\ud83d"]'),
        ("unterminated string '\"a'", b'["a'),
        ("unterminated string '\"'", b'{"a":"b{c:1,\'d\':"e"'),
        ("unterminated string ", b"[\"a\\'b'']"),
        ("unterminated string '\\\\'", b"\\"),
        ("Number out of range - at `$[0]`", b"[1e400]"),
        ("invalid utf-8 b'\\xff\"]' at byte 2", b'["\xff"]'),
        ("invalid utf-8 b'\\xed\\xa0\\x80\"' at byte 2", b'["\xed\xa0\x80"]'),
        # from Python 3.13 on this is not too deep, but truncated
        (("maximum recursion depth exceeded while deserializing an object", "Input data was truncated"), b"[" * 4096),
        ("json of 4097 bytes, limit 4096", b"\xff" * 4097),
    ],
)  # fmt: skip
def test_error_has_the_reason_and_place(message: str | tuple[str, ...], data: bytes) -> None:
    """The place is part of the message where it is known."""
    with pytest.raises(FastjsonError) as refused:
        loads(data)

    assert str(refused.value).startswith(message)
    assert len(str(refused.value)) < 200


def test_document_at_the_limit_is_read() -> None:
    """4 KiB and numbers with all of their digits are read."""
    assert str(loads(b"1" * MAX_BYTES)) == "1" * MAX_BYTES


@given(st.binary() | (nasty_text | documents).map(str.encode))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    """Any input gives a value that can be sent on, or a FastjsonError."""
    try:
        found = loads(data)
    except FastjsonError:
        return
    msgspec.json.encode(str(found))


@given(java_values)
def test_javas_output_is_read(value: object) -> None:
    """Bare integer keys are quoted anywhere, and never inside strings."""
    assert with_string_keys(value) == loads(written_by_fastjson(value).encode())


@given(documents | java_values.map(written_by_fastjson))
def test_quoting_agrees_with_the_exact_reader(text: str) -> None:
    """The strict parser's result after quoting equals the exact reader's, for documents of any origin."""
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
    """The expected values are fastjson 1.2.83's `Map<String,String>`, without null members."""
    assert coerce_ext_fields(loads(data)) == expected


def test_coerce_refuses_a_recursive_value() -> None:
    """A value that contains itself raises an error."""
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(FastjsonError, match=r"^ext fields nested too deeply$"):
        coerce_ext_fields({"a": endless})


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_coerced_values_are_strings(members: dict[str, object]) -> None:
    """Every ext field is a string, for any content of the object."""
    assert all(isinstance(text, str) for text in coerce_ext_fields(members).values())
