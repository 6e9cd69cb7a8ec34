"""Manual pages of our commands, made from the output of `--help`.

    python -m tools.man_pages DIRECTORY

No generator supports all five programs. click-man 0.6 leaves out every option of namesrvctl, because typer 0.29 has its
own copy of click, and cuts summaries at 45 characters. argparse-manpage 4.8 supports the other four, without the
commands that have separate parsers (passwd, compare, compact). help2man does not read commands. All our help texts
have one format, which this module parses.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from namesrv import version


@dataclass(frozen=True)
class Page:
    """The texts of a page that the help does not contain."""

    section: int
    summary: str
    see_also: str
    # Commands that the help text does not list below `Commands:`.
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
        files=(("~/.config/namesrvctl", "saved contexts (namesrvctl context)"),),
    ),
}


@dataclass
class Help:
    """The parts of a help text."""

    usage: list[str] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)
    sections: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def items(self, title: str) -> list[tuple[str, str]]:
        """Tag and text of each entry of a section."""
        return list(_items(self.sections.get(title, [])))


def parsed(text: str) -> Help:
    """The parts of a help text of argparse, click or ours."""
    found = Help()
    usage, _, rest = text.strip("\n").partition("\n\n")
    found.usage = [line.strip() for line in re.sub(r"^usage:", "", usage, flags=re.IGNORECASE).splitlines()]
    title = None
    for block in re.split(r"\n\n+", rest):
        lines = block.splitlines()
        heading = re.fullmatch(r"(\S.*):", lines[0])
        if heading and len(lines) > 1 and lines[1].startswith(" "):
            title = heading[1]
            found.sections[title] = lines[1:]
        elif title is not None and lines[0].startswith(" "):
            found.sections[title] += ["", *lines]
        else:
            (found.paragraphs if title is None else found.notes).append(" ".join(line.strip() for line in lines))
    return found


def _items(lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    tag, text = "", ""
    for line in lines:
        first = re.match(r" {1,3}(\S.*?)(?: {2,}(\S.*))?$", line)
        if first:
            if tag:
                yield tag, text
            tag, text = first[1], first[2] or ""
        elif line.strip():
            text = f"{text} {line.strip()}".strip()
    if tag:
        yield tag, text


def page(program: str, texts: dict[str, str]) -> str:
    """The page in roff; `texts` has the help of the program, under an empty name, and of its commands."""
    about, main = PAGES[program], parsed(texts[""])
    known = {item for title in main.sections for item in main.items(title)}
    out = [
        f'.TH {program.upper()} {about.section} "" "namesrv {version()}" "namesrv"',
        ".SH NAME",
        f"{_quoted(program)} \\- {_quoted(about.summary)}",
        ".SH SYNOPSIS",
        *_synopsis(program, main.usage),
        ".SH DESCRIPTION",
        *_paragraphs(main.paragraphs),
        *_sections(main, ".SH"),
    ]
    if len(texts) > 1:
        out.append(".SH COMMANDS")
    for command, text in texts.items():
        if command:
            of_command = parsed(text)
            for title in of_command.sections:
                # Every command has the program's options, too.
                kept = [item for item in of_command.items(title) if item not in known]
                if not title.startswith("example"):
                    of_command.sections[title] = [line for tag, says in kept for line in (f"  {tag}", f"      {says}")]
            out += [f".SS {_quoted(command)}", *_synopsis(f"{program} {command}", of_command.usage)]
            out += [*_paragraphs(of_command.paragraphs), *_sections(of_command, ".PP")]
    if main.notes:
        out += [".SH NOTES", *_paragraphs(main.notes)]
    if about.files:
        out += [".SH FILES", *_tagged(about.files)]
    return "\n".join([*out, ".SH SEE ALSO", _references(about.see_also), ""])


def _sections(text: Help, macro: str) -> Iterable[str]:
    for title, lines in text.sections.items():
        if title == "Commands" or not any(lines):
            continue
        if macro == ".SH":
            yield f".SH {_quoted(title.upper())}"
        elif not title.lower().endswith(("options", "arguments")):
            yield from (".PP", f"{_quoted(title)}:")
        if title.startswith("example"):
            yield from (".nf", *(_quoted(line.strip()) for line in lines if line), ".fi")
        else:
            yield from _tagged(text.items(title))
    if macro != ".SH":
        yield from _paragraphs(text.notes)


def _synopsis(program: str, usage: Sequence[str]) -> Iterable[str]:
    for number, line in enumerate(usage):
        if number:
            yield ".br"
        yield f".B {_quoted(program)}"
        yield _quoted(line.removeprefix(program).strip()) or "\\&"


def _paragraphs(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        yield from (".PP", _quoted(text))


def _tagged(items: Iterable[tuple[str, str]]) -> Iterable[str]:
    for tag, text in items:
        if text:
            yield from (".TP", f".B {_quoted(tag)}", _quoted(text))
        else:
            yield from (".PP", _quoted(tag))


def _references(names: str) -> str:
    return "\n".join(
        f".BR {name.partition('(')[0]} ({name.partition('(')[2]}" for name in names.replace("-", "\\-").split(" ")
    )


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    # In roff a quotation mark begins an argument, and a full stop or an apostrophe begins a request.
    return re.sub(r"^([.'])", r"\\&\1", text.replace('"', "\\(dq"))


def help_of(program: str) -> dict[str, str]:
    """The help texts of a program, its commands and their commands, as installed in this environment."""
    texts = {"": _help(program)}
    waiting = [*PAGES[program].commands, *(name for name, _ in parsed(texts[""]).items("Commands"))]
    while waiting:
        command = waiting.pop(0)
        text = _help(program, *command.split())
        commands = [f"{command} {name}" for name, _ in parsed(text).items("Commands")]
        waiting[:0] = commands
        if not commands:
            texts[command] = text
    return texts


def _help(program: str, *words: str) -> str:
    # One line for each paragraph, and no boxes around typer's texts.
    environ = {**os.environ, "COLUMNS": "1000", "TYPER_USE_RICH": "0", "NO_COLOR": "1", "HOME": "/nonexistent"}
    command = [str(Path(sys.executable).parent / program), *words, "--help"]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own


def write(directory: Path) -> Iterable[Path]:
    """Write all pages, each as NAME.SECTION."""
    directory.mkdir(parents=True, exist_ok=True)
    for program, about in PAGES.items():
        path = directory / f"{program}.{about.section}"
        path.write_text(page(program, help_of(program)), encoding="utf-8")
        yield path


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Write the manual pages of all commands.")
    arguments.add_argument("directory", type=Path, metavar="DIRECTORY")
    for written in write(arguments.parse_args().directory):
        sys.stdout.write(f"{written}\n")
