"""The log of a process: one event, one line, its values as fields, in text or JSON, written by a thread."""

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
MAX_ITEMS = 32  # of one list
# the end of a traceback says most; this holds about its last 60 calls
MAX_TRACEBACK_CHARS = 8192

STANDARD_ERROR: Final = 2
# Some twenty thousand lines wait for a reader that does not read; those after them are lost.
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
# At the end of a process, for whoever should read the last lines.
FLUSH_SECONDS: Final = 2.0
# Written at once: after each write the thread may have to wait for a loop that is busy.
_BATCH_LINES: Final = 256

# what every JSON line has; a field of such a name gets an underscore
_FIXED = frozenset({"ts", "level", "event"})
_QUOTED = frozenset('"\\')
# nothing that separates, ends or escapes a value
_BARE = re.compile(r'[^\s"=,\\]+')
# larger integers are no counts, and Python refuses to write very large ones in decimal
_MAX_INT = 1 << 64


def event(
    logger: logging.Logger, level: int, name: str, /, *, exc_info: BaseException | None = None, **fields: object
) -> None:
    """Log one event, named in the past tense; next to nothing is done when the level is off."""
    if not logger.isEnabledFor(level):
        return
    # not logger.log: that looks for the calling line, which costs more than all the rest and is not shown
    error = None if exc_info is None else (type(exc_info), exc_info, exc_info.__traceback__)
    logger.handle(_EventRecord(logger.name, level, name, error, fields))


def configure(level: str, log_format: str, descriptor: int = STANDARD_ERROR) -> None:
    """Write everything of this level and above to a file descriptor, from other libraries too; the last call counts.

    `auto` is text on a terminal and JSON elsewhere. Whoever logs never waits: a thread writes, and what it cannot write
    soon enough is lost and counted.
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
    """How many lines could not be written since the start."""
    return sum(writer.lost for writer in _writers())


def _writers() -> list["_LineWriter"]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, _LineWriter)]


def quoted(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    """The text on one line, cut at the limit, nothing in it that acts on a terminal, quoted if it has to be."""
    text = _cut(text, limit)
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    return f'"{"".join(map(_escaped, text))}"'


def printable(text: str) -> str:
    """The whole text with what is not printable escaped, to be shown as it is otherwise."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


class TextFormatter(logging.Formatter):
    """Lines for people: time, level, event, then `field=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        name, fields = _content(record)
        values = "".join(f" {key}={_text(value)}" for key, value in fields.items())
        return f"{_time(record)} {record.levelname} {printable(name)}{values}"


class JsonFormatter(logging.Formatter):
    """Lines for collectors: one flat JSON object, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        name, fields = _content(record)
        line: dict[str, object] = {"ts": _time(record), "level": record.levelname.lower(), "event": name}
        line |= {f"{key}_" if key in _FIXED else key: value for key, value in fields.items()}
        # DEL is the one character that terminals act on and ASCII JSON leaves as it is
        return json.dumps(line, separators=(",", ":")).replace("\x7f", "\\u007f")


class _EventRecord(logging.LogRecord):
    def __init__(self, logger: str, level: int, name: str, error: Any, fields: Mapping[str, object]) -> None:
        super().__init__(logger, level, "", 0, name, None, error)
        self.fields = fields


class _LineWriter(logging.Handler):
    """Has lines written by a thread of its own: a reader that does not read holds up that thread and nothing else.

    What finds the queue full or cannot be written is lost, and the log says how much when it goes on.
    """

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.setFormatter(formatter)
        # lines that were lost, in all, and of these the ones that the log does not tell of yet
        self.lost = self._untold = 0
        # lines until they are written, and their bytes; a number stands for the line that tells of so many lost ones
        self._queue: deque[bytes | int] = deque()
        self._queued_bytes = 0
        self._is_closed = False
        # held for moments only; whoever waits, waits for it
        self._changed = threading.Condition()
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line, or count it as lost."""
        line = self._line(record)
        with self._changed:
            if self._queued_bytes + len(line) > MAX_QUEUED_BYTES:
                self.lost += 1
                self._untold += 1
                return
            self._tell_lost()
            self._queue.append(line)
            self._queued_bytes += len(line)
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Wait until all lines are written, but not for longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue, seconds)

    def close(self) -> None:
        """Write what is queued, and take no more."""
        super().close()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _tell_lost(self) -> None:
        if self._untold:
            self._queue.append(self._untold)
            self._untold = 0

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
            # half a line that was written ends before the next one begins
            written = self._written(b"\n" + data if is_torn else data) - is_torn
            is_torn = written < 0 or (written > 0 and data[written - 1 : written] != b"\n")
            with self._changed:
                for item, line in zip(batch, lines, strict=True):
                    self._queue.popleft()
                    tells_of = item if isinstance(item, int) else 0
                    self._queued_bytes -= 0 if tells_of else len(line)
                    written -= len(line)
                    if written < 0:
                        self._untold += tells_of or 1
                        self.lost += not tells_of
                if written == 0:
                    self._tell_lost()
                self._changed.notify_all()

    def _written(self, data: bytes) -> int:
        """Write, for as long as that takes; how many bytes it became."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.descriptor, rest) :]
            except BlockingIOError:
                # somebody who has the same pipe or terminal made it so
                select.select([], [self.descriptor], [])
            except OSError:
                break  # a full disk, or a reader that went away, and nobody to tell
        return len(data) - len(rest)


def _content(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    if isinstance(record, _EventRecord):
        name, fields = record.msg, {key: _plain(value) for key, value in record.fields.items()}
    else:  # of asyncio or another library
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
        case float():
            return round(value, 3) if math.isfinite(value) else str(value)
        case BaseException():
            return _cut(f"{type(value).__name__}: {value}")
        case list() | tuple() | AbstractSet():
            items = [_plain(item) for item in islice(value, MAX_ITEMS)]
            return items if len(value) <= MAX_ITEMS else [*items, f"...[+{len(value) - MAX_ITEMS}]"]
        case _:
            return _cut(str(value))


def _cut(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    if len(text) > limit:
        text = f"{text[:limit]}...[+{len(text) - limit}]"
    # half a surrogate pair can be written in no encoding
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    match value:
        case list():
            return ",".join(map(_text, value)) or '""'
        case str():
            # cut already, tracebacks to a limit of their own
            return quoted(value, MAX_TRACEBACK_CHARS)
        case _:
            return json.dumps(value)


def _escaped(character: str) -> str:
    if character in _QUOTED:
        return f"\\{character}"
    return character if character.isprintable() else ascii(character)[1:-1]
