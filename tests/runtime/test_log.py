"""One event, one line, whatever is in its values and whatever happens to the stream."""

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_runtime import log

logger = logging.getLogger("tests.namesrv.test_log")


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def text_of(name: str, /, **fields: Any) -> str:
    """The event as a text line, without its time."""
    stream = io.StringIO()
    log.configure("debug", "text", stream)
    log.event(logger, logging.INFO, name, **fields)
    return stream.getvalue().partition(" ")[2]


def json_of(name: str, /, **fields: Any) -> dict[str, object]:
    """The event as an object, without its time."""
    stream = io.StringIO()
    log.configure("debug", "json", stream)
    log.event(logger, logging.INFO, name, **fields)
    line: dict[str, object] = json.loads(stream.getvalue())
    del line["ts"]
    return line


def test_text_line() -> None:
    """Time in UTC with milliseconds, level, event, fields in the order given."""
    stream = io.StringIO()
    log.configure("info", "text", stream)

    log.event(logger, logging.WARNING, "broker_evicted", cluster="c1", broker="b:10911", silent_seconds=120.3004)

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING broker_evicted "
        r"cluster=c1 broker=b:10911 silent_seconds=120\.3\n",
        stream.getvalue(),
    )


def test_json_line() -> None:
    """One object per line with time, level and event first, values with their types."""
    stream = io.StringIO()
    log.configure("info", "json", stream)

    log.event(logger, logging.INFO, "broker_evicted", cluster="c1", id=0, master=True, zone=None, silent_seconds=1.5)

    assert re.fullmatch(
        r'\{"ts":"[-\dT:.]{23}Z","level":"info","event":"broker_evicted","cluster":"c1","id":0,"master":true,'
        r'"zone":null,"silent_seconds":1\.5\}\n',
        stream.getvalue(),
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("10.0.0.1:10911", "10.0.0.1:10911"),
        ("名前", "名前"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ("a,b", '"a,b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("line\nbreak\r\t", '"line\\nbreak\\r\\t"'),
        ("\x1b[2Jgone", '"\\x1b[2Jgone"'),
        ("\x00\x7f\x9b", '"\\x00\\x7f\\x9b"'),
        ("\u2028\u202e", '"\\u2028\\u202e"'),
        ("\U000e0001", '"\\U000e0001"'),
        ("\xa0", '"\\xa0"'),
        ("\udcff", '"\\\\udcff"'),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-5, "-5"),
        (0.1 + 0.2, "0.3"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (1 << 64, "0x10000000000000000"),
        (["a", "b c", 1], 'a,"b c",1'),
        ((), '""'),
        (frozenset({"x"}), "x"),
        (Path("/var/lib"), "/var/lib"),
        (b"\xff", "\"b'\\\\xff'\""),
        (ValueError("no\nway"), '"ValueError: no\\nway"'),
    ],
)
def test_values_in_text(value: object, shown: str) -> None:
    """A value is quoted only if it has to be, and nothing in it can begin a line or move a cursor."""
    assert f"INFO happened value={shown}\n" == text_of("happened", value=value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("line\nbreak", "line\nbreak"),
        ("\x1b[2J\x7f", "\x1b[2J\x7f"),
        ("\udcff", "\\udcff"),
        (float("nan"), "nan"),
        (1 << 64, "0x10000000000000000"),
        (["a", None, 0.5], ["a", None, 0.5]),
        (Path("/var/lib"), "/var/lib"),
        (OSError(28, "No space left"), "OSError: [Errno 28] No space left"),
    ],
)
def test_values_in_json(value: object, shown: object) -> None:
    """Every value becomes valid JSON that says the same."""
    assert {"level": "info", "event": "happened", "value": shown} == json_of("happened", value=value)


def test_long_values_are_cut() -> None:
    """A value keeps 256 characters, a list 32 items, and both say how much is missing."""
    assert f"INFO happened value={'x' * 256}\n" == text_of("happened", value="x" * 256)
    assert f"INFO happened value={'x' * 256}...[+744]\n" == text_of("happened", value="x" * 1000)
    assert "x" * 256 + "...[+744]" == json_of("happened", value="x" * 1000)["value"]
    assert [*range(32), "...[+8]"] == json_of("happened", value=list(range(40)))["value"]


def test_field_called_like_a_fixed_one() -> None:
    """A field may have any name; those that every JSON line has are kept."""
    assert {"level": "info", "event": "e", "name": 1, "level_": 2, "event_": 3, "ts_": 4} == json_of(
        "e", name=1, level=2, event=3, ts=4
    )


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_text_stays_one_printable_line(values: list[str]) -> None:
    """No value breaks out of its line, its field or the terminal."""
    line = text_of("happened", **{f"f{number}": value for number, value in enumerate(values)})

    assert line.endswith("\n")
    assert line[:-1].isprintable()
    # outside of quotes there is exactly one = for each field
    assert len(values) == re.sub(r'"(\\.|[^"\\])*"', "", line).count("=")


@given(st.text(max_size=256))
def test_json_stays_one_ascii_line(value: str) -> None:
    """Any value comes back as it was, but for what no encoding can write."""
    stream = io.StringIO()
    log.configure("info", "json", stream)
    log.event(logger, logging.INFO, "happened", value=value)
    line = stream.getvalue()

    assert line[:-1].isascii()
    assert line[:-1].isprintable()
    assert value.encode("utf-8", "backslashreplace").decode() == json.loads(line)["value"]


def test_traceback_is_a_field() -> None:
    """A bug is one line, too, with the error and where it came from."""
    stream = io.StringIO()
    log.configure("info", "text", stream)

    try:
        raise KeyError("a\nb")
    except KeyError as error:
        log.event(logger, logging.ERROR, "handler_failed", exc_info=error, code=105)

    line = stream.getvalue()
    assert 1 == line.count("\n")
    assert ' ERROR handler_failed code=105 error="KeyError: \'a\\\\nb\'" traceback="Traceback (most recent' in line
    assert 'raise KeyError(\\"a\\\\nb\\")' in line


def test_other_libraries_are_logged_the_same_way() -> None:
    """What asyncio says is an event as well, its text a field."""
    stream = io.StringIO()
    log.configure("info", "text", stream)

    logging.getLogger("asyncio").error("task %r\nfailed", 1)

    assert stream.getvalue().endswith('Z ERROR message_logged logger=asyncio message="task 1\\nfailed"\n')


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", ["a", "b", "c", "d"]),
        ("info", ["b", "c", "d"]),
        ("warning", ["c", "d"]),
        ("error", ["d"]),
    ],
)
def test_level(level: str, events: list[str]) -> None:
    """Events below the level are not written."""
    stream = io.StringIO()
    log.configure(level, "json", stream)

    for name, severity in zip("abcd", [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR], strict=True):
        log.event(logger, severity, name)

    assert events == [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


def test_event_below_the_level_looks_at_no_value() -> None:
    """An event that is off costs no formatting."""

    class Untouchable:
        def __str__(self) -> str:
            raise AssertionError

    stream = io.StringIO()
    log.configure("info", "text", stream)

    log.event(logger, logging.DEBUG, "request_read", value=Untouchable())

    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(("stream", "first"), [(Terminal(), "2"), (io.StringIO(), "{")])
def test_auto_is_text_on_a_terminal(stream: io.StringIO, first: str) -> None:
    """People get text, collectors get JSON."""
    log.configure("info", "auto", stream)
    log.event(logger, logging.INFO, "started")

    assert first == stream.getvalue()[0]


def test_last_configuration_counts() -> None:
    """Configured twice, an event is still written once."""
    first, second = io.StringIO(), io.StringIO()
    log.configure("info", "json", first)
    log.configure("info", "json", second)
    log.event(logger, logging.INFO, "started")

    assert ("", 1) == (first.getvalue(), second.getvalue().count("\n"))


class Failing(io.StringIO):
    """A stream that fails while it is told to."""

    error: Exception | None = None

    def write(self, text: str) -> int:
        """Write, or fail."""
        if self.error:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "No space left on device"), BlockingIOError(), ValueError("closed file")]
)
def test_stream_that_fails_disturbs_nobody(error: Exception) -> None:
    """Lines are lost while the stream fails, and their number is the first thing said afterwards."""
    stream = Failing()
    log.configure("info", "text", stream)

    stream.error = error
    log.event(logger, logging.INFO, "first")
    log.event(logger, logging.INFO, "second")
    stream.error = None
    log.event(logger, logging.INFO, "third")
    log.event(logger, logging.INFO, "fourth")

    assert ["WARNING log_lines_lost count=2", "INFO third", "INFO fourth"] == [
        line.partition(" ")[2] for line in stream.getvalue().splitlines()
    ]


def test_closed_stream_disturbs_nobody() -> None:
    """Neither does a stream that was closed, nor none at all, as with 2>&-."""
    stream = io.StringIO()
    log.configure("info", "text", stream)
    stream.close()
    log.event(logger, logging.INFO, "lost")

    log.configure("info", "auto", None)
    log.event(logger, logging.INFO, "lost")


@pytest.mark.parametrize(
    ("text", "shown"), [("plain text", "plain text"), ('a"b\\c', 'a"b\\c'), ("a\nb\x1b", "a\\nb\\x1b")]
)
def test_printable_escapes_only_what_is_not(text: str, shown: str) -> None:
    """For texts that stand alone: no quotes, no cut, no control characters."""
    assert shown == log.printable(text)
