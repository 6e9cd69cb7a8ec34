"""Files of the daemon that commands check without a server."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.output import complain
from namesrv_remoting.typed_toml import FileError, text_of_file

T = TypeVar("T")


def read_file(path: Path, parse: Callable[[str], T]) -> T:
    """The content of a file; prints the problems of a file that a server would refuse, and ends the command."""
    try:
        text = text_of_file(path)
    except (OSError, FileError) as error:
        complain([f"{path}: {error.strerror if isinstance(error, OSError) else error}"])
        raise typer.Exit(ExitCode.USAGE) from None
    try:
        return parse(text)
    except FileError as error:
        complain(f"{path}: {problem}" for problem in error.problems)
        raise typer.Exit(ExitCode.NO) from None
