"""The event log: one line per event, any values, slow and failing streams."""

import json
import logging
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_runtime import log
from tests.support.fake_clock import GUARD_SECONDS

logger = logging.getLogger("tests.namesrv.test_log")


class Written:
    """A file that receives the log."""

    def __init__(self) -> None:
        # a descriptor lives as long as the tests; a file object would warn that it was not closed
        self.descriptor, path = tempfile.mkstemp()
        Path(path).unlink()

    def begin(self, level: str, log_format: str) -> None:
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        log.configure(level, log_format, self.descriptor)

    def text(self) -> str:
        log.flush(GUARD_SECONDS)
        return os.pread(self.descriptor, 1 << 20, 0).decode()


written = Written()


def text_of(name: str, /, **fields: Any) -> str:
    """The event as a text line, without its time."""
    written.begin("debug", "text")
    log.event(logger, logging.INFO, name, **fields)
    return written.text().partition(" ")[2]


def json_of(name: str, /, **fields: Any) -> dict[str, object]:
    """The event as an object, without its time."""
    written.begin("debug", "json")
    log.event(logger, logging.INFO, name, **fields)
    line: dict[str, object] = json.loads(written.text())
    del line["ts"]
    return line


@pytest.mark.parametrize(
    ("log_format", "line"),
    [
        ("text", r"TIMEZ WARNING broker_evicted id=0 master=true zone=null seconds=120\.3\n"),
        (
            "json",
            r'{"ts":"TIMEZ","level":"warning","event":"broker_evicted","id":0,"master":true,"zone":null,"seconds":120\.3}\n',
        ),
    ],
)
def test_line(log_format: str, line: str) -> None:
    """A line has the UTC time with milliseconds, level, event, and fields in the given order."""
    written.begin("info", log_format)

    log.event(logger, logging.WARNING, "broker_evicted", id=0, master=True, zone=None, seconds=120.3004)

    assert re.fullmatch(line.replace("TIME", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}"), written.text())


@pytest.mark.parametrize(
    ("value", "in_text", "in_json"),
    [
        *(
            (value, in_text, value)
            for value, in_text in (
                *(("plain", "plain"), ("名前", "名前"), ("", '""'), ("a=b", '"a=b"'), ("a,b", '"a,b"')),
                *(('say "hi"', '"say \\"hi\\""'), ("back\\slash", '"back\\\\slash"')),
                *(("line\nbreak\r\t", '"line\\nbreak\\r\\t"'), ("\x1b[2Jgone", '"\\x1b[2Jgone"')),
                *(("\x00\x7f\x9b", '"\\x00\\x7f\\x9b"'), ("\U000e0001", '"\\U000e0001"'), ("\xa0", '"\\xa0"')),
            )
        ),
        *((None, "null", None), (True, "true", True), (0, "0", 0), (0.1 + 0.2, "0.3", 0.3)),
        *((float("nan"), "nan", "nan"), (float("inf"), "inf", "inf")),
        (1 << 64, "0x10000000000000000", "0x10000000000000000"),
        ("\udcff", '"\\\\udcff"', "\\udcff"),
        (["a", "b c", 1, None, 0.5], 'a,"b c",1,null,0.5', ["a", "b c", 1, None, 0.5]),
        ({"a": "b, c", "d": None, "e": ""}, '"a=b, c","d=null","e="', {"a": "b, c", "d": None, "e": ""}),
        *((frozenset({"x"}), "x", ["x"]), (Path("/var/lib"), "/var/lib", "/var/lib")),
        (b"\xff", "\"b'\\\\xff'\"", "b'\\xff'"),
        (ValueError("no\nway"), '"ValueError: no\\nway"', "ValueError: no\nway"),
        (OSError(28, "No space left"), '"OSError: [Errno 28] No space left"', "OSError: [Errno 28] No space left"),
    ],
)
def test_values(value: object, in_text: str, in_json: object) -> None:
    """Text values are quoted only if needed, and cannot start a line or move the cursor; JSON values are equal."""
    assert text_of("happened", value=value) == f"INFO happened value={in_text}\n"
    assert json_of("happened", value=value) == {"level": "info", "event": "happened", "value": in_json}


def test_large_mappings_are_shortened() -> None:
    """Names and values are cut, and the number of further members is shown."""
    value = json_of("happened", value={f"{number:02}" + "k" * 300: "v" * 300 for number in range(40)})["value"]

    assert isinstance(value, dict)
    assert (len(value), value["..."]) == (33, "[+8]")
    assert max(len(text) for pair in value.items() for text in pair) <= 256 + len("...[+999]")


def test_long_values_are_shortened() -> None:
    """A value keeps 256 characters and a list 32 items, with the number of missing ones; a field may have any name."""
    assert text_of("happened", value="x" * 256) == f"INFO happened value={'x' * 256}\n"
    assert text_of("happened", value="x" * 1000) == f"INFO happened value={'x' * 256}...[+744]\n"
    assert json_of("happened", value="x" * 1000)["value"] == "x" * 256 + "...[+744]"
    assert json_of("happened", value=list(range(40)))["value"] == [*range(32), "...[+8]"]
    fields = {"name": 1, "level": 2, "event": 3, "ts": 4}
    assert json_of("e", **fields) == {"level": "info", "event": "e", "name": 1, "level_": 2, "event_": 3, "ts_": 4}


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_text_stays_one_printable_line(values: list[str]) -> None:
    """No value breaks out of its line, its field or the terminal."""
    line = text_of("happened", **{f"f{number}": value for number, value in enumerate(values)})

    assert line.endswith("\n")
    assert line[:-1].isprintable()
    # outside of quotes each field has exactly one =
    assert len(values) == re.sub(r'"(\\.|[^"\\])*"', "", line).count("=")


@given(st.text(max_size=256))
def test_json_stays_one_ascii_line(value: str) -> None:
    """Any encodable value is read back unchanged."""
    written.begin("info", "json")
    log.event(logger, logging.INFO, "happened", value=value)
    line = written.text()

    assert line[:-1].isascii()
    assert line[:-1].isprintable()
    assert value.encode("utf-8", "backslashreplace").decode() == json.loads(line)["value"]


def test_bugs_and_other_libraries_are_one_line_each() -> None:
    """Errors contain their origin; asyncio's messages are events with a text field."""
    written.begin("info", "text")

    try:
        raise KeyError("a\nb")
    except KeyError as error:
        log.event(logger, logging.ERROR, "handler_failed", exc_info=error, code=105)
    logging.getLogger("asyncio").error("task %r\nfailed", 1)

    ours, theirs = written.text().splitlines()
    assert ' ERROR handler_failed code=105 error="KeyError: \'a\\\\nb\'" traceback="Traceback (most recent' in ours
    assert 'raise KeyError(\\"a\\\\nb\\")' in ours
    assert theirs.endswith('Z ERROR message_logged logger=asyncio message="task 1\\nfailed"')


def test_events_below_the_level_are_not_written() -> None:
    """Events below the level cost no formatting."""

    class Untouchable:
        def __str__(self) -> str:
            raise AssertionError

    levels = ["debug", "info", "warning", "error"]
    for least, level in enumerate(levels):
        written.begin(level, "json")
        for number, name in enumerate(levels):
            value = Untouchable() if number < least else number
            log.event(logger, logging.getLevelNamesMapping()[name.upper()], name, value=value)

        assert levels[least:] == [json.loads(line)["event"] for line in written.text().splitlines()]


def test_auto_format_and_reconfiguration() -> None:
    """`auto` is text on a terminal and JSON elsewhere; after a second configuration an event is written once."""
    controller, terminal = pty.openpty()
    reading, writing = os.pipe()
    for descriptor in (terminal, written.descriptor):
        written.begin("info", "json")
        log.configure("info", "json", writing)
        log.configure("info", "auto", descriptor)
        log.event(logger, logging.INFO, "started")
        log.flush(GUARD_SECONDS)
    assert os.read(controller, 1024).decode()[-15:] == " INFO started\r\n"
    assert events_of(written.text().splitlines()) == ["started"]
    for descriptor in (controller, terminal, writing):
        os.close(descriptor)
    with os.fdopen(reading) as unused:
        assert unused.read() == ""


def events_of(lines: Iterable[str]) -> list[object]:
    """Event names, and the counts of events about lost lines."""
    return [line.get("count", line["event"]) for line in map(json.loads, lines)]


def test_slow_reader_loses_counted_events() -> None:
    """Logging never waits for its reader; lost events are counted and reported when the reader continues."""
    reading, writing = os.pipe()
    log.configure("info", "json", writing)
    log.event(logger, logging.INFO, "first")
    log.flush(GUARD_SECONDS)
    before = log.lines_lost()
    many = 2 * log.MAX_QUEUED_BYTES // 1000
    for number in range(many):
        log.event(logger, logging.INFO, "more", number=number, text="x" * 200, other="y" * 200, third="z" * 200)
    log.flush(0.0)
    lost = log.lines_lost() - before
    assert 0 < lost < many

    with os.fdopen(reading) as lines:
        read = [next(lines) for _ in range(2 + many - lost)]
        log.event(logger, logging.INFO, "last")
        read.append(next(lines))
    assert events_of(read) == ["first", *["more"] * (many - lost), lost, "last"]
    os.close(writing)


def test_failing_stream_loses_counted_events(tmp_path: Path) -> None:
    """Events are lost while the stream fails, and their number is logged afterwards, without partial lines."""
    reading, writing = os.pipe()
    os.close(reading)
    log.configure("info", "json", writing)
    for _ in range(2):
        log.event(logger, logging.INFO, "lost")
        log.flush(GUARD_SECONDS)
    file = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.dup2(file, writing)
    log.event(logger, logging.INFO, "written")
    log.flush(GUARD_SECONDS)

    assert events_of((tmp_path / "log").read_text().splitlines()) == [2, "written"]
    assert log.lines_lost() == 2
    for descriptor in (file, writing):
        os.close(descriptor)


def test_partial_line_of_a_full_disk_is_ended(tmp_path: Path) -> None:
    """The next line begins on a line of its own."""
    script = """if True:
        import logging, os, resource, signal, sys
        from namesrv_runtime import log
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        log.configure("info", "json", file)
        for name in ("first", "second"):
            log.event(logging.getLogger(), logging.INFO, name)
            log.flush(60)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        log.event(logging.getLogger(), logging.INFO, "third")
    """
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "log")], check=True, timeout=120)

    first, torn, *rest = (tmp_path / "log").read_text().splitlines()
    assert events_of([first, *rest]) == ["first", 1, "third"]
    assert torn.startswith('{"ts":')


@pytest.mark.slow
def test_last_lines_are_written_or_given_up_at_the_exit() -> None:
    """A traceback is written, and a reader that never reads does not block the exit."""
    script = """if True:
        import logging
        from namesrv_runtime import log
        log.configure("info", "json", 1)
        for number in range(2000):
            log.event(logging.getLogger(), logging.INFO, "more", number=number, text="x" * 200)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert events_of(done.stdout.splitlines()) == ["more"] * 2000

    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as unread:
        assert unread.wait(120) == 0
