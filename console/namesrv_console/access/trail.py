"""The console's own audit trail: sign-ins, changes and refusals; `namesrvctl audit DIRECTORY` shows it."""

import logging
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from namesrv_console.access.users import User
from namesrv_runtime.clock import Clock
from namesrv_runtime.line_log.files import LineFiles, Retention
from namesrv_runtime.line_log.log import LineLog
from namesrv_runtime.line_log.queue import Item
from namesrv_runtime.line_log.writer import Encoder, encoded
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_KEEP: Final = Retention(keep_days=400, max_bytes=64 * 1024 * 1024)
_MAX_QUEUED: Final = 1_000
_CLOSE_SECONDS: Final = 3.0
_SHOWN_CHARACTERS: Final = 1_000


@dataclass(slots=True)
class _Lines(Encoder):
    """Encodes the lines of one boot, with the fields of a NameServer's audit trail."""

    boot_id: str
    seq: int = 0

    def line(self, item: Item) -> bytes:
        self.seq += 1
        about = {"v": 1, "seq": self.seq, "ts_ms": round(item.wall * 1000)}
        return encoded({**about, "console": socket.gethostname(), "boot_id": self.boot_id, **item.what}) + b"\n"

    def opened(self, item: Item) -> bytes:
        return self.line(item._replace(what={"event": "opened"}))

    def dropped(self, count: int, item: Item) -> bytes:
        self.seq += count
        return self.line(item._replace(what={"event": "dropped", "count": count}))


class Trail(LineLog):
    """The audit trail; its lines are on disk shortly after they were put."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._clock = clock
        boot_id = secrets.token_hex(8)
        super().__init__(
            LineFiles(directory, "console", boot_id, _KEEP, max_file_bytes=_MAX_FILE_BYTES, syncs=True),
            _Lines(boot_id),
            report=lambda level, name, fields: event(logger, level, name, **fields),
            name="console_audit",
            max_queued=_MAX_QUEUED,
            max_uncompressed=1,
        )

    def start(self) -> None:
        """Start writing."""
        super().start()
        self._record({"event": "start"})

    async def stop(self) -> None:
        """Write the lines that are left, as far as the disk allows it within a few seconds."""
        self._record({"event": "stop", "dropped": self.dropped})
        if not await self.close(_CLOSE_SECONDS):
            event(logger, logging.WARNING, "console_audit_incomplete", lost=self.queued, seconds=_CLOSE_SECONDS)

    def signed_in(self, user: User, peer: str) -> None:
        """Record that a user signed in."""
        self._record({"event": "sign_in", "account": user.name, "source": user.source, "peer": peer})

    def refused(self, name: str, peer: str, request: str, reason: str, remark: str) -> None:
        """Record that a request or a sign-in was refused."""
        fields = {"account": cut(name), "peer": peer, "request": request, "reason": reason, "remark": cut(remark)}
        self._record({"event": "refusal", **fields})

    def changed(self, user: User, peer: str, request: str, command: str, changes: list[Mapping[str, Any]]) -> None:
        """Record a user's change, with an entry for each server; the entry of a failed server has the error."""
        who = {"account": user.name, "source": user.source, "role": user.role, "peer": peer}
        self._record({"event": "change", "request": request, **who, "command": cut(command), "changes": changes})

    def _record(self, what: dict[str, Any]) -> None:
        self.put(Item(self._clock.wall(), self._clock.monotonic(), what))


def cut(text: str) -> str:
    """A text as an audit line shows it: whole, or its beginning and its length."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"
