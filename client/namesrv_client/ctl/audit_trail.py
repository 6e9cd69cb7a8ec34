"""The audit trail of a server, read from its files: the lines that pass the filters, in order and as sentences."""

import gzip
import json
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from heapq import merge
from pathlib import Path
from typing import Any, Final, cast

from namesrv_client.ctl.output import filled
from namesrv_client.health import InstanceKey, subject_of
from namesrv_remoting.addresses import host_of
from namesrv_remoting.codes import RequestCode

Line = dict[str, Any]

# The kinds of lines; the trail of a console has sign_in, too.
KINDS: Final = ("change", "changes", "refusal", "refusals", "dropped", "start", "opened", "stop", "sign_in")
# The requests of lines, by RocketMQ's names, and causes that are no requests. A console's trail may have other names.
REQUESTS: Final = (*RequestCode.__members__, "SIGHUP", "CONNECT", "UNKNOWN", "SIGN_IN")

NO_DIRECTORY: Final = "no such directory"
_HOUR: Final = 3600
_FILE: Final = re.compile(r"(?P<run>[^.].*-[0-9a-f]+)-(?P<number>[0-9]+)\.jsonl\.(?P<suffix>open|gz)")


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters for lines of the audit trail; a line must match every filter that is set."""

    kinds: frozenset[str] = frozenset()
    account: str | None = None
    peer: str | None = None
    request: str | None = None
    broker: str | None = None
    topic: str | None = None
    since_ms: float = 0.0

    def admit(self, line: Mapping[str, Any]) -> bool:
        """True if a line matches all filters."""
        request = None if self.request is None else request_name(self.request)
        return (
            line["ts_ms"] >= self.since_ms
            and (not self.kinds or line["event"] in self.kinds)
            and _fits(self.account, [line.get("account")])
            and _fits(self.peer, [each for peer in _peers(line) for each in _spellings(peer)])
            and _fits(request, [line.get("request")])
            and _fits(self.broker, _named(line, "broker_name", "brokerName"))
            and _fits(self.topic, _named({name: line.get(name) for name in ("changes", "about")}, "topic"))
        )


def request_name(text: str) -> str:
    """The name of a request as lines have it: PUT_KV_CONFIG for `put-kv-config`."""
    return text.upper().replace("-", "_")


def _fits(pattern: str | None, values: Iterator[Any] | list[Any]) -> bool:
    return pattern is None or any(isinstance(value, str) and fnmatchcase(value, pattern) for value in values)


def _peers(line: Mapping[str, Any]) -> list[Any]:
    return [line.get("peer"), line.get("proxied"), *(line.get("by_address") or ())]


def _spellings(peer: object) -> list[str]:
    """An address with its port and without."""
    return [peer, host_of(peer)] if isinstance(peer, str) else []


def _named(value: object, *names: str) -> Iterator[object]:
    """All values of members with one of these names, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in names:
                yield inner
            yield from _named(inner, *names)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, *names)


@dataclass
class Trail:
    """The lines of a directory, in the order in which they were written; lines of several boots by their time."""

    # Directory of the trail, or the data directory that contains it.
    place: Path
    filters: Filters = field(default_factory=Filters)
    # Errors of reading, a line each.
    problems: list[str] = field(default_factory=list)
    # Number of bytes read, by file name without suffix; closed files that were read to their end.
    _read: dict[Path, int] = field(default_factory=dict)
    _finished: set[Path] = field(default_factory=set)
    # Folders without read permission, each of which is a problem once.
    _unreadable: set[Path] = field(default_factory=set)
    # Kinds of lines of other logs, such as a heartbeat log, each of which is a problem once.
    _unknown_kinds: set[str] = field(default_factory=set)

    @property
    def directory(self) -> Path:
        """The directory of the files; a server that has just started makes it with the first line."""
        inside = self.place / "audit"
        has_trail = directory_error(self.place) is None and directory_error(inside) != NO_DIRECTORY
        return inside if has_trail else self.place

    def exists(self) -> bool:
        """True if a server has written a trail there."""
        return bool(self._hours())

    def news(self) -> Iterator[Line]:
        """The matching lines that were written since the last call."""
        for folder in self._hours():
            if _end_ms(folder) >= self.filters.since_ms:
                yield from self._of_hour(folder)

    def last(self, most: int) -> list[Line]:
        """The last matching lines, without reading older hours."""
        lines: list[Line] = []
        for folder in reversed(self._hours()):
            if len(lines) >= most or _end_ms(folder) < self.filters.since_ms:
                break
            lines = [*deque(self._of_hour(folder), maxlen=most), *lines]
        return lines[-most:]

    def _hours(self) -> list[Path]:
        """The folders of hours, the oldest first."""
        days = self._listed(self.directory, "dt=*")
        return [hour for day in days for hour in self._listed(day, "hour=*")]

    def _listed(self, folder: Path, pattern: str) -> list[Path]:
        """The paths in a folder that match a pattern, sorted; none in a folder that was removed meanwhile."""
        try:
            return sorted(path for path in folder.iterdir() if fnmatchcase(path.name, pattern))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if folder not in self._unreadable:
                self._unreadable.add(folder)
                self.problems.append(f"{folder}: {str(error.strerror).lower()}")
            return []

    def _of_hour(self, folder: Path) -> Iterator[Line]:
        # The files of each boot: number of a file -> whether it is closed.
        runs: dict[str, dict[int, bool]] = {}
        for path in self._listed(folder, "*"):
            if name := _FILE.fullmatch(path.name):
                files = runs.setdefault(name["run"], {})
                # A file that is being closed exists for a moment in both forms.
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
                    # An incomplete line is still being written, or is the last one of a server that was killed.
                    if raw.endswith(b"\n"):
                        self._read[stem] = self._read.get(stem, 0) + len(raw)
                        yield from self._parsed(stem, raw)
        except FileNotFoundError:
            # The server has removed the file since the directory was listed, since it keeps its trail for some days.
            self._finished.add(stem)
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
                # The server has closed the file since the directory was listed.
                pass
        return gzip.open(stem.with_name(f"{stem.name}.jsonl.gz"))

    def _parsed(self, stem: Path, raw: bytes) -> Iterator[Line]:
        try:
            line = json.loads(raw)
            int(line["ts_ms"]), line["event"]
        except (ValueError, TypeError, KeyError):
            self.problems.append(f"{stem}: not a line of an audit trail: {raw[:80]!r}")
            return
        if (kind := str(line["event"])) in KINDS:
            yield line
        elif kind not in self._unknown_kinds:
            self._unknown_kinds.add(kind)
            self.problems.append(f"{stem}: lines of kind {kind!r} are not of an audit trail, and left out")


def directory_error(path: Path) -> str | None:
    """The reason that the files of a directory cannot be read, such as `NO_DIRECTORY`; None if they can be."""
    try:
        os.scandir(path).close()
        # Names can be listed without the permission to open files.
        os.stat(os.path.join(path, "."))  # noqa: PTH116, PTH118 - pathlib drops the dot
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return NO_DIRECTORY
    except OSError as error:
        return str(error.strerror).lower()
    return None


def _end_ms(folder: Path) -> float:
    """End of the hour of a folder; infinity for a folder with another name, so that its lines are always read."""
    try:
        begin = datetime.strptime(f"{folder.parent.name} {folder.name}", "dt=%Y-%m-%d hour=%H").replace(tzinfo=UTC)
    except ValueError:
        return float("inf")
    return (begin.timestamp() + _HOUR) * 1000


# -- lines as sentences ------------------------------------------------------------------------------------------------

# Fills the placeholders of one of TEXTS; the console does so in other languages.
Text = Callable[..., str]

TEXTS: Final[Mapping[str, str]] = {
    "and": "; ",
    "broker_registered": "registered {broker} at {address}",
    "broker_changed": "changed {broker} at {address}",
    "broker_removed": "removed {broker} at {address}",
    "routes": "routes of {topics}",
    "routes_and_more": "routes of {topics} and {more} more",
    "account_added": "account {account} added",
    "account_changed": "account {account} changed",
    "account_removed": "account {account} removed",
    "secrets_rotated": "{change}, secrets rotated",
    "access_file": "access file",
    "not_done": "not done on {server}: {error}",
    "value": "{what} {name}: {before} -> {after}",
    "on_server": "{change} on {server}",
    "no_value": "none",
    "kv": "kv",
    "setting": "setting",
    "write_permission": "write permission",
    "registration": "registration",
    "topic": "topic",
    "acknowledgement": "acknowledgement",
    "broker_that_left": "broker that left",
    "because": "{change} ({reason})",
    "silent": "silent",
    "disconnected": "disconnected",
    "unregistered": "unregistered",
    "superseded": "superseded",
    "operator": "operator",
    "expired": "expired",
    "last_of": "{change} (the last of {count:change} within {seconds} s)",
    "observed": "(observed only)",
    "repeated": "({count} more)",
    "more_refused": "{count} more refused",
    "more_changes": "{count:more change} of brokers",
    "signed_in": "signed in to the console ({source})",
    "lost": "lines lost: {count}",
}
# Things that a change may be of, and reasons of changes; those that only a newer server knows have no text.
_KINDS: Final = frozenset(
    {"kv", "setting", "write_permission", "registration", "topic", "acknowledgement", "broker_that_left", "access_file"}
)
_REASONS: Final = frozenset({"silent", "disconnected", "unregistered", "superseded", "operator", "expired"})
# Fields that name the subject of a change.
_SUBJECT: Final = ("namespace", "key", "broker_name", "topic", "setting")


def in_english(key: str, /, **values: object) -> str:
    """One of TEXTS with its placeholders filled."""
    return filled(TEXTS[key], **values)


def sentence(line: Line, text: Text = in_english) -> str:
    """The meaning of an audit line, as one sentence; reasons of refusals are in the server's words."""
    match line:
        case {"event": "change", "changes": [*changes]}:
            found = text("and").join(filter(None, (_change(change, text) for change in changes)))
            return _last_of(line, found, text)
        case {"event": "refusal"}:
            about = " ".join(f"{name}={value}" for name, value in (line.get("about") or {}).items())
            words = [f"{line.get('reason')}: {line.get('remark')}", f"[{about}]" if about else ""]
            words.append(text("observed") if line.get("observed") else "")
            words.append(text("repeated", count=_number(line, "repeated")) if line.get("repeated") else "")
            return " ".join(filter(None, words))
        case {"event": "refusals" | "changes" as event}:
            key, by = ("more_refused", "by_address") if event == "refusals" else ("more_changes", "by_source")
            counts = ", ".join(f"{name} ({count})" for name, count in (line.get(by) or {}).items())
            return f"{text(key, count=_number(line, 'count'))}{f': {counts}' if counts else ''}"
        case {"event": "sign_in"}:
            return text("signed_in", source=line.get("source"))
        case {"event": "dropped"}:
            return text("lost", count=_number(line, "count"))
    return ""


def _last_of(line: Line, change: str, text: Text) -> str:
    """The change of a line, with the number and the time span of those that it stands for."""
    # Repeated registrations may have changed nothing that a line shows.
    if not change or not line.get("repeated"):
        return change
    seconds = (int(line.get("last_ms", 0)) - int(line.get("first_ms", 0))) / 1000
    return text("last_of", change=change, count=_number(line, "repeated"), seconds=f"{seconds:.1f}")


def _number(line: Line, name: str) -> int:
    """A number of a line; 0 if it is damaged."""
    return found if isinstance(found := line.get(name), int) else 0


def _change(change: Any, text: Text) -> str:
    match change:
        case {"what": "broker", "before": before, "after": after}:
            broker = after or before or {}
            key = "broker_removed" if after is None else "broker_registered" if before is None else "broker_changed"
            parts = (change.get("cluster"), broker.get("broker_name"), broker.get("broker_id"))
            name = subject_of(cast("InstanceKey", parts))
            return _because(change, text(key, broker=name, address=change.get("broker_addr")), text)
        case {"what": "routes", "topics": int(topics), "named": [*named]}:
            names = ", ".join(str(each.get("topic")) for each in named)
            more = topics - len(named)
            return text("routes_and_more", topics=names, more=more) if more > 0 else text("routes", topics=names)
        case {"what": "account", "account": name, "before": before, "after": after}:
            key = "account_added" if before is None else "account_removed" if after is None else "account_changed"
            found = text(key, account=name)
            return text("secrets_rotated", change=found) if change.get("rotated") else found
        # Only a console's trail has this change.
        case {"what": "not_done", "server": server, "error": error}:
            return text("not_done", server=server, error=error)
        case {"what": what, "before": before, "after": after}:
            name = "/".join(str(change[one]) for one in _SUBJECT if one in change)
            values = {"before": _value(before, text), "after": _value(after, text)}
            found = text("value", what=_kind(what, text), name=name, **values)
            # A console makes one change on several servers.
            found = text("on_server", change=found, server=change["server"]) if "server" in change else found
            return _because(change, found, text)
    return _kind(change.get("what"), text) if isinstance(change, dict) else ""


def _kind(what: object, text: Text) -> str:
    return text(str(what)) if str(what) in _KINDS else str(what).replace("_", " ")


def _because(change: Mapping[str, Any], found: str, text: Text) -> str:
    """The change with its reason, if it has one."""
    if not (reason := change.get("reason")):
        return found
    return text("because", change=found, reason=text(str(reason)) if str(reason) in _REASONS else reason)


def _value(value: object, text: Text) -> str:
    return text("no_value") if value is None else json.dumps(value, ensure_ascii=False)
