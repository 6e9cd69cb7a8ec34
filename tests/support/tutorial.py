"""Follows one of our tutorials: runs its commands and compares their output."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.pages import ROOT, blocks, example

BIN: Final = Path(sys.executable).parent


def form(text: str) -> str:
    """Output with time, host and figures replaced."""
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "ns1", text)
    text = re.sub(r"\b\d+(\.\d+)? m?s\b|\b\d+ [hm]( \d+ [ms])?\b", "TIME", text)
    return re.sub(r"[\s-]+", " ", re.sub(r"\d+", "0", text)).strip()


class Reader:
    """A reader of a tutorial, with a directory and a port of its own."""

    def __init__(self, directory: Path, page: str, stand_ins: Mapping[str, str]) -> None:
        self.directory = directory
        self._page = page
        self._stand_ins = stand_ins
        self.environ = {"PATH": os.pathsep.join((str(BIN), os.environ["PATH"])), "COLUMNS": "200"}

    def text(self, name: str) -> str:
        """A block of the page."""
        text = example(self._page, name)
        for written, meant in self._stand_ins.items():
            text = text.replace(written, meant)
        return text

    def does(self, name: str, *, code: int = 0) -> tuple[str, str]:
        """Run the commands of a block, which must end with this code; return their output and their errors."""
        done = subprocess.run(
            ["sh", "-euc", self.text(name)],
            cwd=self.directory,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, done.stderr

    def sees(self, name: str, *, code: int = 0) -> str:
        """Run a block; its output must contain the block `NAME.output`, apart from figures.

        If the page has a block `NAME.errors`, standard error must contain this block.
        """
        printed, errors = self.does(name, code=code)
        assert form(self.text(f"{name}.output")) in form(printed), printed
        if any(block.example == f"{name}.errors" for block in blocks(ROOT / self._page)):
            assert form(self.text(f"{name}.errors")) in form(errors), errors
        return printed
