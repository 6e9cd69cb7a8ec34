"""Runs our commands in this process, with the settings of containers and units."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple
from unittest.mock import patch

Main = Callable[[Sequence[str] | None], int]


class Ended(NamedTuple):
    """A command's exit code and output."""

    code: int
    out: str
    err: str


def run(main: Main, *words: str, environ: Mapping[str, str] | None = None) -> Ended:
    """Run a command with these words, without the developer's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
    out, err = StringIO(), StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.dict(os.environ, {**kept, **(environ or {})}, clear=True),
    ):
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def unknown_flags(flags: Sequence[str], main: Main, *words: str) -> set[str]:
    """Flags that are missing in a command's --help."""
    shown = run(main, *words, "--help")
    assert shown.code == 0, shown.err
    return {flag for flag in flags if flag.startswith("--")} - set(re.findall(r"--[a-z-]+", shown.out))
