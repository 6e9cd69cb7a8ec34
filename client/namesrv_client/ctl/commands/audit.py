"""`audit`: reads the audit trail of a server from its files; no server is asked."""

import gzip
import json
import os
import re
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from heapq import merge
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, Report, complain, moment, table
from namesrv_client.ctl.running import print_once, run
from namesrv_client.ctl.servers import Servers
from namesrv_runtime.log import printable

Line = dict[str, Any]

_FOLLOW_SECONDS: Final = 0.5
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_HOUR: Final = 3600
_FILE: Final = re.compile(r"(?P<run>[^.].*-[0-9a-f]+)-(?P<number>[0-9]+)\.jsonl\.(?P<suffix>open|gz)")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which lines are wanted: all that fit every filter that is there."""

    kinds: frozenset[str] = frozenset()
    account: str | None = None
    peer: str | None = None
    request: str | None = None
    broker: str | None = None
    topic: str | None = None
    since_ms: float = 0.0

    def admit(self, line: Mapping[str, Any]) -> bool:
        """Whether a line is wanted."""
        request = None if self.request is None else self.request.upper().replace("-", "_")
        return (
            line["ts_ms"] >= self.since_ms
            and (not self.kinds or line["event"] in self.kinds)
            and _fits(self.account, [line.get("account")])
            and _fits(self.peer, [each for peer in _peers(line) for each in _spellings(peer)])
            and _fits(request, [line.get("request")])
            and _fits(self.broker, _named(line, "broker_name", "brokerName"))
            and _fits(self.topic, _named({name: line.get(name) for name in ("changes", "about")}, "topic"))
        )


def _fits(pattern: str | None, values: Iterator[Any] | list[Any]) -> bool:
    return pattern is None or any(isinstance(value, str) and fnmatchcase(value, pattern) for value in values)


def _peers(line: Mapping[str, Any]) -> list[Any]:
    return [line.get("peer"), line.get("proxied"), *(line.get("by_address") or ())]


def _spellings(peer: object) -> list[str]:
    """An address with its port and without."""
    return [peer, peer.rpartition(":")[0].strip("[]")] if isinstance(peer, str) else []


def _named(value: object, *names: str) -> Iterator[object]:
    """All values of members that are called so, however deep."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in names:
                yield inner
            yield from _named(inner, *names)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, *names)


def audit(  # noqa: PLR0913 - each is an option
    options: Options,
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIRECTORY]",
            help="A server's data directory, or its audit-log-dir. Default: NAMESRV_DATA_DIR, else that of a server "
            "of yours on this machine.",
            show_default=False,
        ),
    ] = None,
    *,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing lines until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many of the last lines.")] = 50,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only from then on: 30m or 7d ago, or 2026-03-01T08:00."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--event", help="Only lines of this kind: change, refusal, dropped, start, stop."),
    ] = None,
    account: Annotated[str | None, typer.Option("--account", help="Only what this account asked (* for any).")] = None,
    peer: Annotated[str | None, typer.Option("--peer", metavar="ADDRESS", help="Only what came from there.")] = None,
    request: Annotated[str | None, typer.Option("--request", help="Only this request, by RocketMQ's name.")] = None,
    broker: Annotated[str | None, typer.Option("--broker", help="Only what names this broker.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only what names this topic.")] = None,
) -> None:
    """Show who changed what on a server, and who was refused what.

    Reads the files of the server's audit trail; run it where they are. Exits with 1 if one of them is damaged.
    """
    filters = Filters(frozenset(kind or ()), account, peer, request, broker, topic, _since(since))
    trail = Trail(_trail_directory(directory), filters)
    if follows:
        _follow(options, trail, limit)
    lines = list(deque(trail.news(), maxlen=limit))
    columns = ("time", "event", "account", "peer", "request", "what")
    rows = [(moment(line["ts_ms"]), *_cells(line)) for line in lines]
    code = ExitCode.NO if trail.problems else ExitCode.OK
    document = {"directory": str(trail.directory), "lines": lines}
    print_once(options, Report(document, table(columns, rows), code, trail.problems))


def _follow(options: Options, trail: "Trail", limit: int) -> None:
    async def stream(servers: Servers, output: Output) -> int:
        lines: Iterator[Line] = iter(deque(trail.news(), maxlen=limit))
        while True:
            for line in lines:
                cells = [moment(line["ts_ms"]), *_cells(line)]
                output.say(line, Text(printable("  ".join(cell or "-" for cell in cells))))
            complain(trail.problems)
            trail.problems.clear()
            await servers.clock.sleep(_FOLLOW_SECONDS)
            lines = trail.news()

    run(options, stream, ExitCode.OK)


@dataclass
class Trail:
    """The lines of a directory, in the order in which they were written; those of several runs by their time."""

    directory: Path
    filters: Filters = field(default_factory=Filters)
    # what could not be read, a line each
    problems: list[str] = field(default_factory=list)
    # bytes that were read, by file without its suffix; closed files that were read to their end
    _read: dict[Path, int] = field(default_factory=dict)
    _finished: set[Path] = field(default_factory=set)

    def news(self) -> Iterator[Line]:
        """What has come since the last time that is wanted."""
        for folder in sorted(self.directory.glob("dt=*/hour=*")):
            if _end_ms(folder) < self.filters.since_ms:
                continue
            # of each run, in order: the number of a file, and whether it is closed
            runs: dict[str, dict[int, bool]] = {}
            for path in folder.iterdir():
                if name := _FILE.fullmatch(path.name):
                    files = runs.setdefault(name["run"], {})
                    # for a moment it is there twice
                    files[int(name["number"])] = files.get(int(name["number"]), False) or name["suffix"] == "gz"
            parts = [self._of_run(folder / run, files) for run, files in runs.items()]
            yield from filter(self.filters.admit, merge(*parts, key=lambda line: int(line["ts_ms"])))

    def _of_run(self, stem: Path, files: Mapping[int, bool]) -> Iterator[Line]:
        for number, is_closed in sorted(files.items()):
            yield from self._lines(stem.with_name(f"{stem.name}-{number}"), is_closed=is_closed)

    def _lines(self, stem: Path, *, is_closed: bool) -> Iterator[Line]:
        if stem in self._finished:
            return
        try:
            with self._opened(stem, is_closed=is_closed) as file:
                file.seek(self._read.get(stem, 0))
                for raw in file:
                    # half a line is being written, or is the last of a server that was killed
                    if raw.endswith(b"\n"):
                        self._read[stem] = self._read.get(stem, 0) + len(raw)
                        yield from self._parsed(stem, raw)
        except (OSError, EOFError, zlib.error) as error:
            self.problems.append(f"{stem}: {error}")
            self._finished.add(stem)
        if is_closed:
            self._finished.add(stem)

    def _opened(self, stem: Path, *, is_closed: bool) -> Any:
        if not is_closed:
            try:
                return stem.with_name(f"{stem.name}.jsonl.open").open("rb")
            except FileNotFoundError:
                # closed since we looked
                pass
        return gzip.open(stem.with_name(f"{stem.name}.jsonl.gz"))

    def _parsed(self, stem: Path, raw: bytes) -> Iterator[Line]:
        try:
            line = json.loads(raw)
            int(line["ts_ms"]), line["event"]
        except (ValueError, TypeError, KeyError):
            self.problems.append(f"{stem}: not a line of an audit trail: {raw[:80]!r}")
        else:
            yield line


def _trail_directory(directory: Path | None) -> Path:
    if directory is None:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        directory = Path(os.environ.get("NAMESRV_DATA_DIR") or Path(home) / "namesrv")
    inside = directory / "audit"
    if inside.is_dir():
        return inside
    if not directory.is_dir():
        raise typer.BadParameter(f"no such directory: {directory}", param_hint="DIRECTORY")
    return directory


def _since(text: str | None) -> float:
    """The milliseconds since 1970 of `2h` (ago) or `2026-03-01T08:00`."""
    if text is None:
        return 0.0
    if ago := re.fullmatch(r"([0-9]+)([smhd])(?: ago)?", text.strip()):
        return (time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000
    try:
        return datetime.fromisoformat(text).timestamp() * 1000
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"not a time: {text!r} (for example 30m, 2h, 7d, 2026-03-01T08:00)", param_hint="--since"
        ) from None


def _end_ms(folder: Path) -> float:
    """When the hour of a folder is over; a folder that is called otherwise is always of interest."""
    try:
        begin = datetime.strptime(f"{folder.parent.name} {folder.name}", "dt=%Y-%m-%d hour=%H").replace(tzinfo=UTC)
    except ValueError:
        return float("inf")
    return (begin.timestamp() + _HOUR) * 1000


# -- lines in words ---------------------------------------------------------------------------------------------------


def _cells(line: Line) -> tuple[str | None, ...]:
    return (line["event"], line.get("account") or None, line.get("peer"), line.get("request"), sentence(line) or None)


def sentence(line: Line) -> str:
    """What a line says, in one sentence."""
    match line:
        case {"event": "change", "changes": [*changes]}:
            return "; ".join(filter(None, map(_change, changes)))
        case {"event": "refusal"}:
            about = " ".join(f"{name}={value}" for name, value in (line.get("about") or {}).items())
            words = [f"{line.get('reason')}: {line.get('remark')}", f"[{about}]" if about else ""]
            words.append("(observed only)" if line.get("observed") else "")
            words.append(f"({line['repeated']} times more)" if line.get("repeated") else "")
            return " ".join(filter(None, words))
        case {"event": "refusals"}:
            addresses = ", ".join(f"{address} ({count})" for address, count in (line.get("by_address") or {}).items())
            return f"{line.get('count')} others refused{f': {addresses}' if addresses else ''}"
        case {"event": "dropped"}:
            return f"{line.get('count')} lines lost"
    return ""


def _change(change: Any) -> str:
    match change:
        case {"what": "broker", "before": before, "after": after}:
            broker = after or before or {}
            how = "removed" if after is None else "registered" if before is None else "changed"
            reason = f" ({change['reason']})" if change.get("reason") else ""
            name = f"{change.get('cluster')}/{broker.get('broker_name')}/{broker.get('broker_id')}"
            return f"{how} {name} at {change.get('broker_addr')}{reason}"
        case {"what": "routes", "topics": int(topics), "named": [*named]}:
            more = f" and {topics - len(named)} more" if topics > len(named) else ""
            return f"routes of {', '.join(str(each.get('topic')) for each in named)}{more}"
        case {"what": "account", "account": name, "before": before, "after": after}:
            how = "added" if before is None else "removed" if after is None else "changed"
            return f"account {name} {how}{', secrets rotated' if change.get('rotated') else ''}"
        case {"what": what, "before": before, "after": after}:
            subject = [change[name] for name in ("namespace", "key", "broker_name", "setting") if name in change]
            name = "/".join(map(str, subject))
            return f"{str(what).replace('_', ' ')} {name}: {_value(before)} -> {_value(after)}"
    return str(change.get("what")) if isinstance(change, dict) else ""


def _value(value: object) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
