"""Printing of reports: tables for people, JSON or YAML for programs.

Standard output gets reports only; remarks go to standard error. Text from servers is escaped: any peer that reaches
their port can register a name, and an escape sequence in it would repaint an operator's terminal.
"""

import json
import math
import re
import select
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.text import Text

from namesrv_client.ctl import PROGRAM, ExitCode
from namesrv_client.ctl.options import Options
from namesrv_client.health import instance_of, subject_of
from namesrv_remoting.bodies.extensions import Event
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import printable
from namesrv_runtime.program import EXIT_PIPE_CLOSED

# Into a pipe or file each row is one line of any length.
_PIPE_WIDTH: Final = 1_000_000
# Control sequences of terminals.
CLEAR: Final = "\x1b[H\x1b[2J"
HOME: Final = "\x1b[H"
ERASE_LINE: Final = "\x1b[K"
ERASE_BELOW: Final = "\x1b[J"

# Shown for an absent value.
ABSENT: Final = "-"
# Interval of looks at the reader of standard output.
_LOOK_SECONDS: Final = 0.5
# Fields of an event that name its broker.
_OF_THE_BROKER: Final = ("cluster", "broker_name", "broker_id", "broker_addr")
# Number of spaces between two columns.
_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a command: for programs, for people, and as an exit code."""

    document: Any
    body: Sequence[RenderableType]
    code: ExitCode = ExitCode.OK
    # Lines for standard error.
    remarks: Sequence[str] = ()


class Output:
    """Prints in the chosen format."""

    def __init__(self, options: Options) -> None:
        self.format = options.output
        self._is_terminal = sys.stdout.isatty()
        # The console only renders: rich handles the broken pipe of a closed reader in its own way, so `_write` writes
        # the text.
        self._console = Console(
            file=sys.stdout,
            # Names from servers must not be read as markup.
            markup=False,
            emoji=False,
            highlight=False,
            color_system="auto" if options.color else None,
            width=None if self._is_terminal else _PIPE_WIDTH,
        )
        self._has_painted = False

    def report(self, report: Report, *, head: str | None = None) -> None:
        """Print a report; with a head it replaces the last report on a terminal, and follows it elsewhere."""
        if head is None or self.format != "table":
            self.say(report.document, *report.body, is_one_of_many=head is not None)
            complain(report.remarks)
            return
        remarks = [Text(printable(line), style="red") for line in report.remarks]
        page = self._rendered(Text(head, style="dim"), *remarks, *report.body)
        self._write(self._painted(page) if self._is_terminal else page)

    def say(self, document: Any, *parts: RenderableType, is_one_of_many: bool = True) -> None:
        """Print the parts, or the document for programs; one of many is a line of JSON or a YAML document."""
        if self.format == "table":
            self._write(self._rendered(*parts, soft_wrap=True))
        elif self.format == "yaml":
            self._write(yaml_text(document, is_one_of_many=is_one_of_many))
        else:
            # NaN and infinity, which JSON does not have, become null.
            encoded = msgspec.json.encode(document)
            indented = encoded if is_one_of_many else msgspec.json.format(encoded, indent=2)
            self._write(json_text(indented.decode(), is_ascii=not speaks_unicode()) + "\n")

    async def rest(self, clock: Clock, seconds: float) -> None:
        """Sleep; end the command once standard output is a pipe without a reader, as a write to it would."""
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > 0:
            if not _has_reader():
                raise SystemExit(EXIT_PIPE_CLOSED)
            await clock.sleep(min(left, _LOOK_SECONDS))

    def live(self) -> Live:
        """A separate screen to paint on, which the terminal removes at the end."""
        return Live(console=self._console, screen=True, auto_refresh=False)

    def _painted(self, page: str) -> str:
        """The text that paints a page over the old one line by line, since a cleared screen would flicker."""
        lines = page.splitlines()
        height = self._console.height
        if len(lines) > height - 1:
            lines[height - 2 :] = [f"... {counted(len(lines) - height + 2, 'more line')}"]
        begin = HOME if self._has_painted else CLEAR
        self._has_painted = True
        return begin + "".join(f"{line}{ERASE_LINE}\n" for line in lines) + ERASE_BELOW

    def _rendered(self, *parts: RenderableType, soft_wrap: bool = False) -> str:
        with self._console.capture() as captured:
            for part in parts:
                self._console.print(part, soft_wrap=soft_wrap, crop=False)
        return captured.get()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _has_reader() -> bool:
    """False if standard output is a pipe that no process reads any more."""
    polled = select.poll()
    try:
        polled.register(sys.stdout, 0)
    except OSError:
        # A test runner may replace standard output by an object in memory.
        return True
    return not polled.poll(0)


def yaml_text(document: Any, *, is_one_of_many: bool = False) -> str:
    """The document in YAML."""
    import yaml  # noqa: PLC0415  # slow to import, and rarely needed

    spelt = ""
    # YAML leaves a right-to-left mark unescaped; such a document is written in ASCII.
    for allow_unicode in (speaks_unicode(), False):
        spelt = yaml.safe_dump(
            document, sort_keys=False, explicit_start=is_one_of_many, allow_unicode=allow_unicode, width=10_000
        )
        if all(character.isprintable() or character == "\n" for character in spelt):
            break
    return spelt


def speaks_unicode() -> bool:
    """True if standard output can show more than ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def complain(lines: Iterable[str]) -> None:
    """Print lines on standard error."""
    for line in lines:
        sys.stderr.write(f"{PROGRAM}: {printable(line)}\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[RenderableType]:
    """A table of the rows, without columns that are empty in all rows; nothing without rows."""
    if not rows:
        return []
    used = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return [_Rows([columns[at] for at in used], [[row[at] for at in used] for row in rows])]


def _head(column: str) -> str:
    """The column's name in capitals, but for the address of a server in it, as in ns1:9876."""
    return " ".join(word if ":" in word else word.upper() for word in column.split(" "))


class _Rows:
    """Lines without a frame, so that awk can cut them; where a line is too long, a block for each row.

    Values are never wrapped or cut, since half of a name is useless.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self._heads = [Text(_head(name), "bold") for name in columns]
        self._is_numeric = [{type(row[at]) for row in rows} <= {int, float} for at in range(len(columns))]
        self._rows = [[cell(value) for value in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        lines = [self._heads, *self._rows]
        widths = [max(line[at].cell_len for line in lines) for at in range(len(self._heads))]
        gap = " " * _GAP
        if sum(widths) + _GAP * (len(widths) - 1) <= options.max_width:
            for line in lines:
                aligned = [value.copy() for value in line]
                for value, width, is_numeric in zip(aligned, widths, self._is_numeric, strict=True):
                    value.align("right" if is_numeric else "left", width)
                joined = Text(gap).join(aligned)
                joined.rstrip()
                yield joined
            return
        width = max(head.cell_len for head in self._heads)
        for number, row in enumerate(self._rows):
            if number:
                yield Text("")
            for head, value in zip(self._heads, row, strict=True):
                if console.is_alt_screen and width + _GAP + value.cell_len > options.max_width:
                    # This screen cuts longer lines off; elsewhere the terminal breaks them.
                    yield head
                    yield Text.assemble(value, overflow="fold")
                    continue
                yield Text.assemble((head.plain.ljust(width), "bold"), gap, value, overflow="ignore", no_wrap=True)


def cell(value: object) -> Text:
    """A value as a table shows it."""
    if isinstance(value, Text):
        return value
    if value is None:
        return Text(ABSENT, style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(printable(str(value)))


def counted(count: int, what: str) -> str:
    """A count with its noun, whose plural ends in s."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


class _Count(int):
    """A number in a text: `{count}` becomes 1,234, and `{count:topic}` becomes "1 topic" or "1,234 topics"."""

    def __format__(self, noun: str) -> str:
        number = int(self)
        return counted(number, noun) if noun else f"{number:,}"


def filled(text: str, /, **values: object) -> str:
    """A text with its placeholders filled; a number may have a noun, as in {count:topic}."""
    return text.format(**values | {name: _Count(value) for name, value in values.items() if isinstance(value, int)})


def lasting(seconds: float | None) -> str | None:
    """A duration for people: 0.3 s, 3 m 20 s, 2 h 5 m, 4 d 1 h."""
    if seconds is None or not math.isfinite(seconds):
        # A server may send any number.
        return None
    sign, whole = ("-" if seconds < 0 else ""), int(abs(seconds))
    for unit, name, smaller, smaller_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            return f"{sign}{whole // unit} {name} {whole % unit // smaller} {smaller_name}"
    return f"{seconds:.1f} s"


def ago(seconds: float | None) -> str | None:
    """A duration with "ago"."""
    text = lasting(seconds)
    return None if text is None else f"{text} ago"


def moment(ts_ms: int | None) -> str | None:
    """A date and time in UTC, as --at and --since take it."""
    if ts_ms is None:
        return None
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ts_ms / 1000)) + f".{ts_ms % 1000:03}"
    except (ValueError, OverflowError, OSError):
        # A server may send any number.
        return str(ts_ms)


def event_text(event: Event) -> str:
    """The fields of an event in a line: the broker as one word, all other fields by name."""
    fields, words = event.fields, []
    if (key := instance_of(event)) is not None:
        words = [subject_of(key), *([str(fields["broker_addr"])] if "broker_addr" in fields else [])]
        fields = {name: value for name, value in fields.items() if name not in _OF_THE_BROKER}
    for name, value in fields.items():
        if value is not None:
            words.append(f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}")
    return " ".join(words)


# In JSON the only unprintable character outside of strings is the line break.
_BEYOND_ASCII: Final = re.compile(r"[^\n\x20-\x7e]")


def json_text(encoded: str, *, is_ascii: bool = False) -> str:
    """The same JSON with the unprintable characters of its strings (or all beyond ASCII) as escapes."""
    return _BEYOND_ASCII.sub(
        lambda match: match[0] if match[0].isprintable() and not is_ascii else json.dumps(match[0])[1:-1], encoded
    )
