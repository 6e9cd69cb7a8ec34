"""Printing of answers: tables for people, JSON or YAML for programs.

Standard output gets answers and nothing else; what is wrong goes to standard error.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.text import Text

from namesrv_client.ctl import PROGRAM, exit_codes
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.wording import json_text, shown

# into a pipe or file a row is a line, however long
_PIPE_WIDTH: Final = 1_000_000
# what a terminal does on these
CLEAR: Final = "\x1b[H\x1b[2J"
HOME: Final = "\x1b[H"
ERASE_LINE: Final = "\x1b[K"
ERASE_BELOW: Final = "\x1b[J"


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found: for programs, for people, and the exit code that says it in one number."""

    document: Any
    body: Sequence[RenderableType]
    code: int = exit_codes.OK
    # for standard error
    problems: Sequence[str] = ()


class Output:
    """Prints in the chosen format."""

    def __init__(self, options: Options) -> None:
        self.format = options.output
        self._is_terminal = sys.stdout.isatty()
        # renders only: what it writes itself it would write its own way into a pipe that nobody reads
        self._console = Console(
            file=sys.stdout,
            # names are never markup
            markup=False,
            emoji=False,
            highlight=False,
            color_system="auto" if options.color else None,
            width=None if self._is_terminal else _PIPE_WIDTH,
        )
        self._has_painted = False

    def report(self, report: Report) -> None:
        """Print it once."""
        if self.format == "table":
            self._write(self._rendered(*report.body))
        else:
            self._write(self._spelt(report.document, is_one_of_many=False))
        complain(report.problems)

    def repaint(self, report: Report, head: str) -> None:
        """Print it in the place of the last one; where there is no terminal, below it."""
        if self.format != "table":
            self.document(report.document)
            complain(report.problems)
            return
        problems = [Text(shown(problem), style="red") for problem in report.problems]
        page = self._rendered(Text(head, style="dim"), *problems, *report.body)
        self._write(self._painted(page) if self._is_terminal else page)

    def _painted(self, page: str) -> str:
        """What puts a page on the screen: over the old one line by line, since a cleared screen would flicker."""
        lines = page.splitlines()
        height = self._console.height
        if len(lines) > height - 1:
            lines[height - 2 :] = [f"... {len(lines) - height + 2} more lines"]
        begin = HOME if self._has_painted else CLEAR
        self._has_painted = True
        return begin + "".join(f"{line}{ERASE_LINE}\n" for line in lines) + ERASE_BELOW

    def line(self, text: Text, document: Any) -> None:
        """One more of many."""
        if self.format == "table":
            self._write(self._rendered(text, soft_wrap=True))
        else:
            self.document(document)

    def document(self, document: Any) -> None:
        """One more document: a line of JSON, or a YAML document of its own."""
        self._write(self._spelt(document, is_one_of_many=True))

    def _rendered(self, *parts: RenderableType, soft_wrap: bool = False) -> str:
        with self._console.capture() as captured:
            for part in parts:
                self._console.print(part, soft_wrap=soft_wrap, crop=False)
        text = captured.get()
        # a table's last column is filled up, for its background
        return text if self._is_terminal else "".join(f"{line.rstrip()}\n" for line in text.splitlines())

    def _spelt(self, document: Any, *, is_one_of_many: bool) -> str:
        if self.format == "yaml":
            return yaml_text(document, is_one_of_many=is_one_of_many)
        # not a number, which JSON cannot say, becomes null
        encoded = msgspec.json.encode(document)
        indented = encoded if is_one_of_many else msgspec.json.format(encoded, indent=2)
        return json_text(indented.decode(), is_ascii=not _speaks_unicode()) + "\n"

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def yaml_text(document: Any, *, is_one_of_many: bool = False) -> str:
    """The document in YAML."""
    spelt = _yaml(document, is_one_of_many=is_one_of_many, allow_unicode=_speaks_unicode())
    if all(character.isprintable() or character == "\n" for character in spelt):
        return spelt
    # YAML has no objection to a right-to-left mark, we have
    return _yaml(document, is_one_of_many=is_one_of_many, allow_unicode=False)


def _yaml(document: Any, *, is_one_of_many: bool, allow_unicode: bool) -> str:
    spelt: str = yaml.safe_dump(
        document, sort_keys=False, explicit_start=is_one_of_many, allow_unicode=allow_unicode, width=10_000
    )
    return spelt


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")


def complain(problems: Iterable[str]) -> None:
    """Say what is wrong, a line each, on standard error."""
    for problem in problems:
        sys.stderr.write(f"{PROGRAM}: {shown(problem)}\n")
