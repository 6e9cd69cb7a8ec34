"""Manual pages of our commands: the output of `--help` as it is, of a program and of each of its commands.

No generator supports all five programs. click-man 0.6 leaves out every option of namesrvctl, because typer 0.29 has its
own copy of click, and cuts summaries at 45 characters. argparse-manpage 4.8 supports the other four, without the
commands that have separate parsers (passwd, compare, compact). help2man does not read commands.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from namesrv import version
from namesrv_client.ctl.app import COMMANDS


@dataclass(frozen=True)
class Page:
    """The texts of a page that the help does not contain."""

    section: int
    summary: str
    see_also: str
    # Commands whose help the program's own help does not contain.
    commands: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


PAGES: Final = {
    "namesrv": Page(
        8,
        "NameServer for message brokers",
        "namesrvctl(1), namesrv-console(8)",
        files=(
            ("/etc/namesrv/namesrv.toml", "settings of namesrv.service"),
            ("/etc/namesrv/namesrv.env", "the same as environment variables, which win; need not exist"),
            ("/var/lib/namesrv", "state of namesrv.service: expected brokers, KV configuration, heartbeat log"),
        ),
    ),
    "namesrv-broker-agent": Page(
        8,
        "keep a broker registered with every NameServer",
        "namesrv(8)",
        files=(("/etc/namesrv/agent.toml", "the broker of namesrv-broker-agent.service, and its topics"),),
    ),
    "namesrv-console": Page(
        8,
        "web console of NameServers",
        "namesrv(8), namesrvctl(1)",
        commands=("passwd",),
        files=(
            ("/etc/namesrv/console.env", "servers and options of namesrv-console.service"),
            ("/var/lib/namesrv-console/audit", "who signed in there and changed what"),
        ),
    ),
    "namesrv-staleness": Page(1, "report how long stale routes lasted", "namesrv(8)", commands=("compare", "compact")),
    "namesrvctl": Page(
        1,
        "inspect and change NameServers",
        "namesrv(8)",
        commands=tuple(COMMANDS),
        files=(("~/.config/namesrvctl", "saved contexts (namesrvctl context)"),),
    ),
}


def page(program: str) -> str:
    """The page in roff, of the program as it is installed in this environment."""
    about = PAGES[program]
    out = [
        f'.TH {program.upper()} {about.section} "" "namesrv {version()}" "namesrv"',
        ".SH NAME",
        f"{_quoted(program)} \\- {_quoted(about.summary)}",
        ".SH DESCRIPTION",
        *_help(program),
    ]
    if about.commands:
        out.append(".SH COMMANDS")
    for command in about.commands:
        out += [f".SS {_quoted(command)}", *_help(program, *command.split())]
    if about.files:
        out.append(".SH FILES")
    for file, text in about.files:
        out += [".TP", f".B {_quoted(file)}", _quoted(text)]
    return "\n".join([*out, ".SH SEE ALSO", _quoted(about.see_also), ""])


def _help(program: str, *words: str) -> Iterator[str]:
    # No boxes around typer's texts. With the indentation of `man` the lines have 80 columns.
    environ = {**os.environ, "COLUMNS": "73", "TYPER_USE_RICH": "0", "NO_COLOR": "1", "HOME": "/nonexistent"}
    command = [str(Path(sys.executable).parent / program), *words, "--help"]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)  # noqa: S603  # our own
    # The commands follow with their whole help; click cuts their summaries.
    text = done.stdout.partition("\nCommands:\n")[0]
    yield ".nf"
    yield from map(_quoted, text.strip("\n").splitlines())
    yield ".fi"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    # In roff a quotation mark begins an argument, and a full stop or an apostrophe begins a request.
    return re.sub(r"^([.'])", r"\\&\1", text.replace('"', "\\(dq"))
