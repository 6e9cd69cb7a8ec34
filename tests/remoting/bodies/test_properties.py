"""The syntax of java.util.Properties as Java reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.properties import PropertiesError, format_properties, parse_properties

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        # a key ends at the first =, : or blank; only CR and LF end lines; only blank, tab and form feed are blanks
        ("", {}),
        *((text, {"listenPort": "9876"}) for text in ("listenPort=9876", "listenPort = 9876\n", "listenPort:9876")),
        *(
            (text, {"listenPort": "9876"})
            for text in ("listenPort 9876", "listenPort\t\f9876", "  \t listenPort : 9876")
        ),
        ("a=b=c", {"a": "b=c"}),
        ("a = = b\nc : = d", {"a": "= b", "c": "= d"}),
        ("a b = c", {"a": "b = c"}),
        ("a\nb=\n=c", {"a": "", "b": "", "": "c"}),
        ("a=b  ", {"a": "b  "}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3\n\n\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a=1\x0b2\x852\u20283", {"a": "1\x0b2\x852\u20283"}),
        ("a=\xa0b", {"a": "\xa0b"}),
        # # and ! begin a comment only at the beginning of a line, and comments are not continued
        ("# a=b\n  ! a=b\nc=d", {"c": "d"}),
        ("# ends in a backslash \\\na=b", {"a": "b"}),
        ("a=b # c", {"a": "b # c"}),
        ("a#=b", {"a#": "b"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        # an odd number of backslashes joins a line with the next one, whose leading blanks are dropped
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n\tc", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a\\\n  b=c", {"ab": "c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("\\\na=b", {"a": "b"}),
        ("\\\n", {}),
        ("a=1,\\\n  2,\\\n  3", {"a": "1,2,3"}),
        # a backslash makes a control character or a UTF-16 unit, or removes the meaning of the next character
        ("a=\\t\\n\\r\\f", {"a": "\t\n\r\f"}),
        ("a=\\\\\nb=\\q\\b\\0\nc=\\ d\ne\\ f=g", {"a": "\\", "b": "qb0", "c": " d", "e f": "g"}),
        ("a\\=b\\:c=d", {"a=b:c": "d"}),
        ("\\#a=b", {"#a": "b"}),
        ("a=\\u0041\\u00e9\\u4E2d", {"a": "Aé中"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=\\u00410", {"a": "A0"}),
        ("a=\\\\u12", {"a": "\\u12"}),
        ("é=中", {"é": "中"}),
    ],
)
def test_text_is_read(text: str, properties: dict[str, str]) -> None:
    """The result equals Java's."""
    assert parse_properties(text) == properties


BROKEN = ("a=\\u", "a=\\u12", "a=\\u12g4", "a=\\U0041\\u", "\\u=b", "a=\\u 041", "a=\\u+041")
UNPAIRED = ("a=\\ud83d", "a=\\ude00\\ud83d", "\\ud83d=b", "a=\ud83d")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, r"malformed \\uxxxx escape ") for text in BROKEN),
        # text after a broken escape cannot forge a log line
        ("a=\\u1\x1b[2J", r"malformed \\uxxxx escape '\\\\u1\\x1b\[2'$"),
        *((text, "half a surrogate pair") for text in UNPAIRED),
    ],
)
def test_broken_unicode_escape_is_an_error(text: str, error: str) -> None:
    """Java refuses an escape without four digits; it would keep an unpaired surrogate, which cannot be encoded."""
    with pytest.raises(PropertiesError, match=error):
        parse_properties(text)


@given(st.text(st.sampled_from("a \t\f=:#!\\u0d8\n\r\ud83dé")) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text gives properties or a PropertiesError."""
    try:
        properties = parse_properties(text)
    except PropertiesError:
        return
    for key, value in properties.items():
        (key + value).encode()


@given(st.dictionaries(TEXTS, TEXTS))
def test_written_properties_are_read_back(properties: dict[str, str]) -> None:
    """Every key and value survives writing and reading."""
    assert parse_properties(format_properties(properties)) == properties


def test_written_lines_are_sorted_and_plain() -> None:
    """Lines are key=value as in Apache's response, sorted, with necessary escapes only."""
    properties = {"listenPort": "9876", "bindAddress": "::", "configStorePath": "C:\\x y", "a": " b\n"}

    assert format_properties(properties) == "a=\\ b\\n\nbindAddress=::\nconfigStorePath=C:\\\\x y\nlistenPort=9876\n"
