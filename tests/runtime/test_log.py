"""One event, one line, whatever is in its values and whoever reads it or does not."""

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
    """A file that the log goes to."""

    def __init__(self) -> None:
        # A bare descriptor lasts as long as the tests; a file object would warn that it was not closed.
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
    """Time in UTC with milliseconds, level, event, fields in the order given."""
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
        *((frozenset({"x"}), "x", ["x"]), (Path("/var/lib"), "/var/lib", "/var/lib")),
        (b"\xff", "\"b'\\\\xff'\"", "b'\\xff'"),
        (ValueError("no\nway"), '"ValueError: no\\nway"', "ValueError: no\nway"),
        (OSError(28, "No space left"), '"OSError: [Errno 28] No space left"', "OSError: [Errno 28] No space left"),
    ],
)
def test_values(value: object, in_text: str, in_json: object) -> None:
    """In text one is quoted only if it has to be, and nothing in it can begin a line or move a cursor.

    In JSON every value says the same.
    """
    assert f"INFO happened value={in_text}\n" == text_of("happened", value=value)
    assert {"level": "info", "event": "happened", "value": in_json} == json_of("happened", value=value)


def test_long_values_are_cut_and_fixed_names_kept() -> None:
    """A value keeps 256 characters, a list 32 items, and both say how much is missing; a field may have any name."""
    assert f"INFO happened value={'x' * 256}\n" == text_of("happened", value="x" * 256)
    assert f"INFO happened value={'x' * 256}...[+744]\n" == text_of("happened", value="x" * 1000)
    assert json_of("happened", value="x" * 1000)["value"] == "x" * 256 + "...[+744]"
    assert [*range(32), "...[+8]"] == json_of("happened", value=list(range(40)))["value"]
    fields = {"name": 1, "level": 2, "event": 3, "ts": 4}
    assert json_of("e", **fields) == {"level": "info", "event": "e", "name": 1, "level_": 2, "event_": 3, "ts_": 4}


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
    written.begin("info", "json")
    log.event(logger, logging.INFO, "happened", value=value)
    line = written.text()

    assert line[:-1].isascii()
    assert line[:-1].isprintable()
    assert value.encode("utf-8", "backslashreplace").decode() == json.loads(line)["value"]


def test_bugs_and_other_libraries_are_one_line_each() -> None:
    """With the error and where it came from; what asyncio says is an event as well, its text a field."""
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
    """And cost no formatting."""

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


def test_where_and_how_it_is_written() -> None:
    """`auto` is text for people and JSON for collectors; configured twice, an event is written once, as said last."""
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
    with os.fdopen(reading) as nobody:
        assert nobody.read() == ""


def events_of(lines: Iterable[str]) -> list[object]:
    """Events by name, those that tell of lost ones by their number."""
    return [line.get("count", line["event"]) for line in map(json.loads, lines)]


def test_reader_that_does_not_read() -> None:
    """Whoever logs does not wait for it; what was lost in between is counted, and said once it reads again."""
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
        said = [next(lines) for _ in range(2 + many - lost)]
        log.event(logger, logging.INFO, "last")
        said.append(next(lines))
    assert ["first", *["more"] * (many - lost), lost, "last"] == events_of(said)
    os.close(writing)


def test_stream_that_fails(tmp_path: Path) -> None:
    """What it does not take is lost; once it works again the log says how much, and no line is half there."""
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


def test_line_that_a_full_disk_cut(tmp_path: Path) -> None:
    """It is ended before the next one, which a reader of lines can then read."""
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


def test_process_that_ends_writes_its_last_lines_or_gives_up() -> None:
    """A bug's traceback gets out; a reader that never reads keeps no process from ending."""
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


def test_printable_escapes_only_what_is_not() -> None:
    """For texts that stand alone: no quotes, no cut, no control characters."""
    assert log.printable('plain a"b\\c\nb\x1b') == 'plain a"b\\c\\nb\\x1b'
