"""Shows on the terminal what happens, as it happens."""

import sys
import time
from typing import Final, TextIO

# Who speaks -> the colour of it. Colours that can be told apart on dark and on light ground.
_COLOURS: Final = {
    "you": "1;35",
    "ns1": "36",
    "ns2": "34",
    "producer": "32",
    "consumer": "33",
    "report": "36",
    "console": "36",
}
_BAD: Final = "31"
_DIM: Final = "2"
_BOLD: Final = "1"
_WIDTH: Final = 9


class Screen:
    """A timeline of lines: the time since the beginning, who, and what. Coloured on a terminal, plain elsewhere."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._is_coloured = out.isatty()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def line(self, who: str, what: str, *, is_bad: bool = False) -> None:
        """One thing that has happened."""
        text = self._painted(what, _BAD) if is_bad else self._painted(what, _BOLD) if who == "you" else what
        self._write(f"{self._painted(f'{self.seconds:7.2f} s', _DIM)}  {self._name(who)}  {text}")

    def heading(self, text: str) -> None:
        """What is going to happen."""
        self._write("")
        self._write(self._painted(text, _BOLD))

    def note(self, text: str) -> None:
        """What is good to know about it."""
        self._write(text)

    def _name(self, who: str) -> str:
        return self._painted(f"{who:<{_WIDTH}}", _COLOURS.get(who, "0"))

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._is_coloured else text

    def _write(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()
