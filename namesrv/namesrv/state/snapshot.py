"""Snapshot of the brokers to expect after a restart, and readiness once they are back.

A server that has just started knows no routes, and an answer without them would make clients forget theirs. So it
writes down who is registered, and after a restart it is not ready before they are back, or have had time to come.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from namesrv_runtime.durable_file import SealedFileError, remove_leftovers, set_aside, unseal, write_sealed
from namesrv_runtime.log import event

logger = logging.getLogger(__name__)

VERSION: Final = 1
# how many missing brokers a text names
NAMED_BROKERS: Final = 5


@dataclass(frozen=True, slots=True)
class ExpectedBroker:
    """A broker that was registered when the snapshot was taken."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}/{self.broker_id} at {self.broker_addr}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a server wants its next life to know."""

    saved_ms: int
    boot_id: str
    brokers: tuple[ExpectedBroker, ...] = ()
    # (cluster, name) of brokers whose write permission an operator has wiped; in every cluster if none is given
    wiped: tuple[tuple[str | None, str], ...] = ()
    version: int = VERSION


def decode(data: bytes) -> Snapshot:
    """The snapshot of a file. Raises SealedFileError if it is torn, damaged, or of another version."""
    try:
        return msgspec.convert(unseal(data, VERSION), Snapshot)
    except msgspec.ValidationError as error:
        raise SealedFileError(f"unexpected content: {error}") from error


def save(path: Path, snapshot: Snapshot) -> int:
    """Replace the file, and return its size when it is on disk. Raises OSError; then it is as it was."""
    return write_sealed(path, msgspec.to_builtins(snapshot))


def load(path: Path) -> Snapshot | None:
    """The snapshot that the server's last life left, if there is one that can be read.

    A damaged file is set aside. Whatever is wrong costs a warning and the warm start, never the start.
    """
    remove_leftovers(path)
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        event(logger, logging.WARNING, "snapshot_not_read", path=path, error=error)
        return None
    except SealedFileError as error:
        reason = str(error)
    try:
        set_aside(path, reason)
    except OSError as error:
        event(logger, logging.WARNING, "snapshot_not_set_aside", path=path, reason=reason, error=error)
    return None


class Readiness:
    """May this server answer route questions yet? Once it may, it always may."""

    def __init__(
        self, expected: Collection[ExpectedBroker], wait_seconds: float, now: float, *, is_lost: bool = False
    ) -> None:
        # there was a snapshot, but it cannot be read: brokers are expected, but not known by name
        self._is_lost = is_lost
        # who is not back yet, by what a broker keeps over a restart; its address may change
        self._missing = {(broker.cluster, broker.broker_name, broker.broker_id): broker for broker in expected}
        self._expected_count = len(self._missing)
        self._wait_seconds = wait_seconds
        self._ready_at = now + wait_seconds
        self._is_ready = not self._missing and not is_lost

    @property
    def missing(self) -> tuple[ExpectedBroker, ...]:
        """Who is not back yet, in the order of the snapshot."""
        return tuple(self._missing.values())

    @property
    def expects_brokers(self) -> bool:
        """Whether there were brokers in the last run, back or not."""
        return self._expected_count > 0 or self._is_lost

    def broker_seen(self, cluster: str, broker_name: str, broker_id: int) -> None:
        """A broker has registered, expected or not; its address says nothing: a container comes back with another."""
        self._missing.pop((cluster, broker_name, broker_id), None)
        self._is_ready = self._is_ready or not (self._missing or self._is_lost)

    def is_ready(self, now: float) -> bool:
        """All who were expected are back, or the wait is over; at once when nobody was expected."""
        self._is_ready = self._is_ready or now >= self._ready_at
        return self._is_ready

    def reason(self, now: float) -> str:
        """Why it is ready or not, for people."""
        is_ready, left = self.is_ready(now), self._ready_at - now
        if self.expects_brokers and not self._missing and not self._is_lost:
            return f"ready: all {self._expected_count} expected brokers are back"
        if not self.expects_brokers:
            return "ready: no brokers expected"
        if self._is_lost:
            state = f"ready: waited {self._wait_seconds:g} s" if is_ready else f"not ready: waiting {left:.0f} s more"
            return f"{state}, the snapshot of brokers to expect was lost"
        names = [str(broker) for broker in self.missing[:NAMED_BROKERS]]
        if len(self._missing) > NAMED_BROKERS:
            names.append(f"and {len(self._missing) - NAMED_BROKERS} more")
        missing = f"{len(self._missing)} of {self._expected_count} expected brokers: {', '.join(names)}"
        if is_ready:
            return f"ready: waited {self._wait_seconds:g} s, without {missing}"
        return f"not ready: waiting {left:.0f} s more for {missing}"

    def __repr__(self) -> str:
        state = "ready" if self._is_ready else "waiting"
        return f"<Readiness [{state} | {len(self._missing)} of {self._expected_count} missing]>"
