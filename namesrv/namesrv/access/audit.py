"""The audit trail: a line for each change and each refusal, with the sender of its request.

The event loop only queues frozen values; a thread turns them into lines (audit_lines.py) and writes them to disk
shortly after. All changes of one request share one line. Repeated changes and refusals are counted, and the counts are
written every few seconds (audit_windows.py). Changes by brokers have files of their own with half of the disk space, so
that no number of registrations displaces a line about an operator or a refusal.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from namesrv import version
from namesrv.access.audit_lines import (
    SUBJECTS,
    AccessFileChanged,
    AuditLines,
    Change,
    KVChanged,
    Refusal,
    RepeatedChange,
    SettingChanged,
    cut,
    plain,
)
from namesrv.access.audit_windows import WINDOW_SECONDS, RefusalWindow, RegistrationWindow, is_registration
from namesrv.net.dispatcher import Handler, Reply
from namesrv.net.request import Connection, Request
from namesrv.routeinfo.tables.effects import Effect
from namesrv.settings.model import Settings
from namesrv_remoting.access import AccessFile
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import NoPermissionError, RemoteProtocolError, SystemBusyError
from namesrv_runtime.clock import Clock
from namesrv_runtime.line_log.files import LineFiles, Retention
from namesrv_runtime.line_log.log import LineLog
from namesrv_runtime.line_log.queue import Item
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Files are small, so that the disk usage exceeds its bound only by the open file and by files that are not compressed
# yet.
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
# Maximum weight of queued lines while the disk is full or slow; each line may hold the rows of a large change.
_MAX_QUEUED: Final = 20_000
_CHARACTERS_PER_WEIGHT: Final = 500
# Time for writing the queued lines at the end of the process.
CLOSE_SECONDS: Final = 3.0

# The request that is being handled. Effects arrive in the task that caused them, a long way from the handler, and the
# tables in between do not know the sender of a request.
_request: Final[ContextVar["_AuditedRequest | None"]] = ContextVar("request", default=None)
_REQUESTS: Final = {int(code): code.name for code in RequestCode}
# Names of a certificate that a line shows.
_NAMES: Final = 5
_REMARK_CHARACTERS: Final = 500
_NO_SENDER: Final[Mapping[str, Any]] = dict.fromkeys(("account", "peer", "proxied", "certificate"))


@dataclass(slots=True)
class _AuditedRequest:
    # None once the line of the request is written: later changes by tasks and timers that inherited the context have
    # another cause, and must not keep the request in memory.
    request: Request | None
    # Effects of the request so far.
    changes: list[Effect] = field(default_factory=list)
    # True once a line for the refusal of the request exists.
    is_refused: bool = False


class AuditLog:
    """The audit trail of one boot of the server."""

    def __init__(self, settings: Settings, retention: Retention, boot_id: str, clock: Clock) -> None:
        self._clock = clock
        self._version = version()
        # Settings that differ from their defaults: most settings change by a restart.
        self._settings = {
            name: plain(value) for name, value in settings if value != Settings.model_fields[name].get_default()
        }
        self._is_closed = False
        # Consequences without a request; the effect that caused them follows.
        self._unexplained: list[Effect] = []
        self._refusals = RefusalWindow()
        self._registrations = RegistrationWindow()
        self._window_ends = clock.monotonic() + WINDOW_SECONDS
        # Line logs for operators and refusals, and for brokers.
        self._operators_log = _line_log(settings, retention, boot_id, "")
        self._brokers_log = _line_log(settings, retention, boot_id, "-registrations")

    def __repr__(self) -> str:
        counted = f"{len(self._refusals)} kinds of refusals | {len(self._registrations)} brokers"
        return f"<AuditLog [{self.queued} queued | {self.dropped} dropped | {counted}]>"

    @property
    def logs(self) -> tuple[LineLog, LineLog]:
        """The line log of operators and refusals, and the line log of brokers."""
        return self._operators_log, self._brokers_log

    @property
    def queued(self) -> int:
        """The weight of the queued lines."""
        return sum(each.queued for each in self.logs)

    @property
    def dropped(self) -> int:
        """Lines that were lost since the start."""
        return sum(each.dropped for each in self.logs)

    def start(self) -> None:
        """Start the threads that write and compress. Raises NoThreadError."""
        for each in self.logs:
            each.start()
        self._record({"event": "start", "version": self._version, "settings": self._settings})

    async def run(self) -> None:
        """Return when the trail is closed, or raise the error that ended a thread."""
        await asyncio.gather(*(each.run() for each in self.logs))

    async def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Write the queued lines, as far as the disk manages within `seconds`; True if all are written."""
        self._end_window()
        self._record({"event": "stop", "version": self._version, "dropped": self.dropped})
        self._is_closed = True
        is_complete = all(await asyncio.gather(*(each.close(seconds) for each in self.logs)))
        if not is_complete:
            event(logger, logging.WARNING, "audit_log_incomplete", lost=self.queued, seconds=seconds)
        return is_complete

    # -- changes ------------------------------------------------------------------------------------------------------

    def watching(self, handler: Handler) -> Handler:
        """Wrap a handler, so that its changes and its refusal each get a line."""

        async def handle(request: Request) -> Reply:
            audited = _AuditedRequest(request)
            before = _request.set(audited)
            try:
                return await handler(request)
            except (NoPermissionError, SystemBusyError) as error:
                if not audited.is_refused:
                    reason = "busy" if isinstance(error, SystemBusyError) else "permission"
                    self.refused_request(request, error.remark or "", reason=reason)
                raise
            finally:
                _request.reset(before)
                audited.request = None
                if audited.changes:
                    self._record_change(_change_of(request, audited.changes))

        return handle

    def __call__(self, effect: Effect) -> None:
        """Queue the change of an effect, or the request that the effect refused."""
        audited, refused = _current(), effect.refused()
        if refused is not None and audited is not None and audited.request is not None:
            self.refused_request(audited.request, refused.remark, reason=refused.reason, observed=refused.is_observed)
        elif effect.audited == "expiry":
            self._record_change(Change(None, _NO_SENDER, (effect,)))
        elif effect.audited == "consequence" and audited is None:
            self._unexplained.append(effect)
        elif effect.audited:
            self._changed(*self._unexplained, effect)
            self._unexplained.clear()

    def kv_changed(self, namespace: str, key: str, before: str | None, after: str | None) -> None:
        """Queue a change of the key-value configuration."""
        self._changed(KVChanged(namespace, key, before, after))

    def settings_changed(self, *changed: SettingChanged, cause: str | None = None) -> None:
        """Queue changed settings, with a cause if no request changed them."""
        if changed:
            self._changed(*changed, cause=cause)

    def access_file_changed(self, before: AccessFile, after: AccessFile) -> None:
        """Queue the accounts that a reload changed."""
        if before != after:
            self._changed(AccessFileChanged(before, after), cause="SIGHUP")

    def registrations_revoked(self, revoked: Sequence[Effect]) -> None:
        """Queue the live brokers that a reloaded access file no longer allows."""
        self._changed(*revoked, cause="SIGHUP")

    def _changed(self, *effects: Effect, cause: str | None = None) -> None:
        audited = _current()
        if audited is None:
            # A silent or disconnected broker counts for the account that registered it.
            owners = [each.broker[1].account for each in effects if each.broker is not None]
            self._record_change(Change(cause, _NO_SENDER, effects, *owners[-1:]))
        else:
            audited.changes.extend(effects)

    # -- refusals -----------------------------------------------------------------------------------------------------

    def refused_request(self, request: Request, remark: str, *, reason: str, observed: bool = False) -> None:
        """Queue a refused request; `observed`: a request that would have been refused if rules were enforced."""
        command, connection = request.command, request.connection
        if (audited := _current()) is not None:
            audited.is_refused = not observed
        fields, name = command.ext_fields or {}, _REQUESTS.get(command.code, "UNKNOWN")
        about = {subject: cut(str(fields[subject])) for subject in SUBJECTS if subject in fields}
        sender, remark = (
            sender_of(connection, request.account or connection.peer.account),
            cut(remark, _REMARK_CHARACTERS),
        )
        self._refuse(connection, Refusal(name, sender, reason, remark, about, is_observed=observed))

    def refused_connection(self, connection: Connection, error: RemoteProtocolError) -> None:
        """Queue a refused connection, or the refusal of a frame for lack of memory; closes for silence have no line."""
        remark = cut(str(error), _REMARK_CHARACTERS)
        self._refuse(connection, Refusal("CONNECT", sender_of(connection, ""), error.reason, remark))

    def tick(self) -> None:
        """End the window of counted refusals and changes once its time is over."""
        if self._clock.monotonic() >= self._window_ends:
            self._end_window()

    def _refuse(self, connection: Connection, refusal: Refusal) -> None:
        if self._refusals.admit(refusal, connection.peer.ip, connection.peer.network):
            self._record(refusal)

    def _end_window(self) -> None:
        self._window_ends = self._clock.monotonic() + WINDOW_SECONDS
        for line in self._refusals.end():
            self._record(line)
        for counted in self._registrations.end():
            self._record(counted, self._brokers_log)

    # -- lines --------------------------------------------------------------------------------------------------------

    def _record_change(self, change: Change) -> None:
        if not is_registration(change):
            self._record(change)
        elif self._registrations.admit(change, self._clock.wall()):
            self._record(change, self._brokers_log)

    def _record(self, what: Change | RepeatedChange | Refusal | dict[str, Any], log: LineLog | None = None) -> None:
        if self._is_closed:
            return
        change = what.last if isinstance(what, RepeatedChange) else what
        characters = sum(each.characters() for each in change.changes) if isinstance(change, Change) else 0
        weight = 1 + characters // _CHARACTERS_PER_WEIGHT
        log = log or self._operators_log
        log.put(Item(self._clock.wall(), self._clock.monotonic(), what, min(weight, _MAX_QUEUED)))


def _line_log(settings: Settings, retention: Retention, boot_id: str, suffix: str) -> LineLog:
    return LineLog(
        LineFiles(
            settings.audit_log_path or Path(),
            f"{settings.nameserver_name}{suffix}",
            boot_id,
            retention,
            max_file_bytes=_MAX_FILE_BYTES,
            syncs=True,
        ),
        AuditLines(settings.nameserver_name, boot_id),
        report=lambda level, name, fields: event(logger, level, name, **fields),
        name="audit_log",
        max_queued=_MAX_QUEUED,
        max_uncompressed=1,
    )


def _change_of(request: Request, changes: Sequence[Effect]) -> Change:
    name, connection = _REQUESTS.get(request.command.code, "UNKNOWN"), request.connection
    return Change(name, sender_of(connection, request.account), changes, request.account or connection.peer.network)


def _current() -> _AuditedRequest | None:
    audited = _request.get()
    return None if audited is None or audited.request is None else audited


def sender_of(connection: Connection, account: str) -> dict[str, Any]:
    """Return account, address and certificate names of the peer, as far as they are known."""
    certificate = [cut(name) for name in connection.certificate_names[:_NAMES]]
    peer = connection.peer
    return {"account": account, "peer": peer.address, "proxied": peer.proxied, "certificate": certificate}
