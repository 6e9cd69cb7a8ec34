"""The log of a process: one line per event, with fields, in text or JSON, written by a thread."""

import json
import logging
import math
import os
import re
import select
import threading
import traceback
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

MAX_VALUE_CHARS = 256
MAX_ITEMS = 32  # of one list or mapping
EVENTS_PER_TICK: Final = 20  # see LimitedEvent
# The end of a traceback is its most useful part; this many characters hold about 60 calls.
MAX_TRACEBACK_CHARS = 8192

STANDARD_ERROR: Final = 2
# About twenty thousand lines may wait for a slow reader; further lines are lost and counted.
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
# At the end of a process, the longest wait until the last lines are written.
FLUSH_SECONDS: Final = 2.0
# Lines per write: after each write the thread may have to wait for a busy event loop.
_BATCH_LINES: Final = 256

# The keys of every JSON line; a field with one of these names gets an underscore.
_FIXED = frozenset({"ts", "level", "event"})
_QUOTED = frozenset('"\\')
# A value without separators, quotes and escapes is written without quotes.
_BARE = re.compile(r'[^\s"=,\\]+')
# Larger integers are not counts; Python refuses to write very large integers in decimal.
_MAX_INT = 1 << 64


def event(
    logger: logging.Logger, level: int, name: str, /, *, exc_info: BaseException | None = None, **fields: object
) -> None:
    """Log one event, named in the past tense. A disabled level costs next to nothing."""
    if not logger.isEnabledFor(level):
        return
    # logger.log would look up the calling line, which costs more than all the rest and is never shown.
    error = None if exc_info is None else (type(exc_info), exc_info, exc_info.__traceback__)
    logger.handle(_EventRecord(logger.name, level, name, error, fields))


class LimitedEvent:
    """One event that peers cause: the log has the first twenty of a tick, and the number of the rest.

    Without a limit, a peer in a loop could fill the disk.
    """

    def __init__(self, logger: logging.Logger, level: int, name: str, *, rest: str = "") -> None:
        self._logger = logger
        self._level = level
        self._name = name
        # the event with the number of the rest; empty: `events_not_logged`, which names this event
        self._rest = rest
        # occurrences since the last tick that were logged, and that were not
        self._logged = self._unlogged = 0

    def log(self, **fields: Any) -> None:
        """Log one occurrence, or count it."""
        if self._logged >= EVENTS_PER_TICK:
            self._unlogged += 1
            return
        self._logged += 1
        event(self._logger, self._level, self._name, **fields)

    def tick(self, **fields: Any) -> None:
        """Log the number of the occurrences since the last tick that have no line of their own."""
        if self._unlogged and self._rest:
            event(self._logger, self._level, self._rest, more=self._unlogged, **fields)
        elif self._unlogged:
            event(self._logger, self._level, "events_not_logged", more=self._unlogged, of=self._name)
        self._logged = self._unlogged = 0


class LimitedLog:
    """Log of all events that peers cause; each name and level is a `LimitedEvent`."""

    def __init__(self) -> None:
        # (event, level) -> its limit
        self._events: dict[tuple[str, int], LimitedEvent] = {}

    def event(self, logger: logging.Logger, level: int, name: str, /, *, rest: str = "", **fields: Any) -> None:
        """Log one event as `event` does, or count it; `rest` as in LimitedEvent."""
        if not logger.isEnabledFor(level):
            return
        limited = self._events.get((name, level))
        if limited is None:
            limited = self._events[name, level] = LimitedEvent(logger, level, name, rest=rest)
        limited.log(**fields)

    def tick(self) -> None:
        """Log, for each event, the number of its occurrences since the last tick that have no line of their own."""
        for limited in self._events.values():
            limited.tick()


def configure(level: str, log_format: str, descriptor: int = STANDARD_ERROR) -> None:
    """Write all events of this level and above, including those of other libraries, to a file descriptor.

    The last call counts. The format `auto` is text on a terminal and JSON elsewhere. Logging never waits: a thread
    writes the lines, and lines that find the queue full are lost and counted.
    """
    root = logging.getLogger()
    root.setLevel(level.upper())
    is_text = os.isatty(descriptor) if log_format == "auto" else log_format == "text"
    formatter = TextFormatter() if is_text else JsonFormatter()
    for writer in _writers():
        if writer.descriptor == descriptor:
            writer.setFormatter(formatter)
            return
        root.removeHandler(writer)
        writer.close()
    root.addHandler(_LineWriter(descriptor, formatter))


def flush(seconds: float) -> None:
    """Wait until all lines are written, but not for longer than this."""
    for writer in _writers():
        writer.flush(seconds)


def lines_lost() -> int:
    """The number of lines that could not be written since the start."""
    return sum(writer.lost for writer in _writers())


def _writers() -> list["_LineWriter"]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, _LineWriter)]


def quoted(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    """The text on one line, cut at the limit, without control characters; in quotes unless it is a plain word."""
    text = _cut(text, limit)
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    return f'"{"".join(map(_escaped, text))}"'


def printable(text: str) -> str:
    """The whole text, with escapes in place of characters that are not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


class TextFormatter(logging.Formatter):
    """Lines for people: time, level, event, then `field=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        name, fields = _content(record)
        values = "".join(f" {key}={_text(value)}" for key, value in fields.items())
        return f"{_time(record)} {record.levelname} {printable(name)}{values}"


class JsonFormatter(logging.Formatter):
    """Lines for collectors: one JSON object, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        name, fields = _content(record)
        line: dict[str, object] = {"ts": _time(record), "level": record.levelname.lower(), "event": name}
        line |= {f"{key}_" if key in _FIXED else key: value for key, value in fields.items()}
        # DEL is the only control character that ASCII JSON leaves unescaped.
        return json.dumps(line, separators=(",", ":")).replace("\x7f", "\\u007f")


class _EventRecord(logging.LogRecord):
    def __init__(self, logger: str, level: int, name: str, error: Any, fields: Mapping[str, object]) -> None:
        super().__init__(logger, level, "", 0, name, None, error)
        self.fields = fields


class _LineWriter(logging.Handler):
    """Writes lines in a thread of its own: a reader that stops reading blocks that thread and nothing else.

    A line is lost when the queue is full or the write fails; a later line of the log reports the number of lost lines.
    """

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.setFormatter(formatter)
        # the number of lost lines, and how many of them no line reports yet
        self.lost = self._unreported = 0
        # lines that wait to be written, and their bytes; a number stands for the line that reports so many lost lines
        self._queue: deque[bytes | int] = deque()
        self._queued_bytes = 0
        self._is_closed = False
        # guards the fields above, for moments only; notified when one of them changes
        self._changed = threading.Condition()
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line, or count it as lost."""
        line = self._line(record)
        with self._changed:
            if self._queued_bytes + len(line) > MAX_QUEUED_BYTES:
                self.lost += 1
                self._unreported += 1
                return
            self._report_lost()
            self._queue.append(line)
            self._queued_bytes += len(line)
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Wait until all lines are written, for at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue, seconds)

    def close(self) -> None:
        """Write the queued lines, and accept no further lines."""
        super().close()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _report_lost(self) -> None:
        if self._unreported:
            self._queue.append(self._unreported)
            self._unreported = 0

    def _write_all(self) -> None:
        is_torn = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closed)
                if not self._queue:
                    return
                batch = list(islice(self._queue, _BATCH_LINES))
            lines = [
                self._line(_EventRecord(__name__, logging.WARNING, "log_lines_lost", None, {"count": item}))
                if isinstance(item, int)
                else item
                for item in batch
            ]
            data = b"".join(lines)
            # Half a line from a failed write is ended before the next line begins.
            written = self._written(b"\n" + data if is_torn else data) - is_torn
            is_torn = written < 0 or (written > 0 and data[written - 1 : written] != b"\n")
            with self._changed:
                for item, line in zip(batch, lines, strict=True):
                    self._queue.popleft()
                    reported = item if isinstance(item, int) else 0
                    self._queued_bytes -= 0 if reported else len(line)
                    written -= len(line)
                    if written < 0:
                        self._unreported += reported or 1
                        self.lost += not reported
                if written == 0:
                    self._report_lost()
                self._changed.notify_all()

    def _written(self, data: bytes) -> int:
        """Write the data, however long that takes; return how many bytes were written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.descriptor, rest) :]
            except BlockingIOError:
                # Another process that shares this pipe or terminal has made it non-blocking.
                select.select([], [self.descriptor], [])
            except OSError:
                break  # The disk is full or the reader has left, so that the error cannot be reported.
        return len(data) - len(rest)


def _content(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    if isinstance(record, _EventRecord):
        name, fields = record.msg, {key: _plain(value) for key, value in record.fields.items()}
    else:  # a record of asyncio or another library
        name, fields = "message_logged", {"logger": record.name, "message": _plain(record.getMessage())}
    if record.exc_info and record.exc_info[1]:
        fields["error"] = _plain(record.exc_info[1])
        fields["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))[-MAX_TRACEBACK_CHARS:]
    return name, fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    """The value as JSON types of bounded size; floats to three digits, which for seconds are milliseconds."""
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) < _MAX_INT else _cut(hex(value))
        case float() if math.isfinite(value):
            return round(value, 3)
        case list() | tuple() | AbstractSet():
            items = [_plain(item) for item in islice(value, MAX_ITEMS)]
            return items if len(value) <= MAX_ITEMS else [*items, f"...[+{len(value) - MAX_ITEMS}]"]
        case Mapping():
            more = {"...": f"[+{len(value) - MAX_ITEMS}]"} if len(value) > MAX_ITEMS else {}
            return {_cut(str(key)): _plain(item) for key, item in islice(value.items(), MAX_ITEMS)} | more
        case _:
            return _cut(f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value))


def _cut(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    if len(text) > limit:
        text = f"{text[:limit]}...[+{len(text) - limit}]"
    # Half a surrogate pair cannot be written in any encoding.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    match value:
        case list():
            return ",".join(map(_text, value)) or '""'
        case dict():
            return _text([f"{key}={item if isinstance(item, str) else _text(item)}" for key, item in value.items()])
        case str():
            # The text is cut already; tracebacks have a limit of their own.
            return quoted(value, MAX_TRACEBACK_CHARS)
        case _:
            return json.dumps(value)


def _escaped(character: str) -> str:
    if character in _QUOTED:
        return f"\\{character}"
    return character if character.isprintable() else ascii(character)[1:-1]
