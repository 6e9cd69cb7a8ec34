"""The daemon's log: one event, one line, its values as fields, in text or JSON."""

import json
import logging
import math
import re
import traceback
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TextIO

MAX_VALUE_CHARS = 256
MAX_ITEMS = 32  # of one list
# the end of a traceback says most; this holds about its last 60 calls
MAX_TRACEBACK_CHARS = 8192

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


def configure(level: str, log_format: str, stream: TextIO | None) -> None:
    """Send everything of this level and above to the stream, from other libraries too; the last call counts.

    `auto` is text on a terminal and JSON elsewhere. Without a stream (closed standard error) nothing is written.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _LineHandler)]:
        root.removeHandler(handler)
    root.addHandler(_LineHandler(stream, _formatter(log_format, stream)))
    root.setLevel(level.upper())


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


class _LineHandler(logging.Handler):
    """Writes lines; a stream that fails loses them, and their number is told when it works again."""

    def __init__(self, stream: TextIO | None, formatter: logging.Formatter) -> None:
        super().__init__()
        self.stream = stream
        self.setFormatter(formatter)
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, or count it as lost."""
        if self.stream is None:
            return
        lines = f"{self.format(record)}\n"
        if self.lost:
            lines = f"{self.format(self._lost_record())}\n{lines}"
        try:
            self.stream.write(lines)
            self.stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            # a full disk or a reader that went away must not stop the server, and there is nobody to tell
            self.lost += 1
        else:
            self.lost = 0

    def _lost_record(self) -> logging.LogRecord:
        return _EventRecord(__name__, logging.WARNING, "log_lines_lost", None, {"count": self.lost})


def _formatter(log_format: str, stream: TextIO | None) -> logging.Formatter:
    if log_format == "auto":
        log_format = "text" if stream is not None and stream.isatty() else "json"
    return JsonFormatter() if log_format == "json" else TextFormatter()


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
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _MAX_INT else _cut(hex(value))
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else str(value)
    if isinstance(value, BaseException):
        return _cut(f"{type(value).__name__}: {value}")
    if isinstance(value, list | tuple | AbstractSet):
        items = [_plain(item) for item in islice(value, MAX_ITEMS)]
        return items if len(value) <= MAX_ITEMS else [*items, f"...[+{len(value) - MAX_ITEMS}]"]
    return _cut(str(value))


def _cut(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    if len(text) > limit:
        text = f"{text[:limit]}...[+{len(text) - limit}]"
    # half a surrogate pair can be written in no encoding
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return ",".join(map(_text, value)) or '""'
    # strings are cut already, tracebacks to a limit of their own
    return quoted(value, MAX_TRACEBACK_CHARS) if isinstance(value, str) else str(value)


def _escaped(character: str) -> str:
    if character in _QUOTED:
        return f"\\{character}"
    return character if character.isprintable() else ascii(character)[1:-1]
