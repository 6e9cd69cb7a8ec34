"""The snapshot of registered brokers, and the server's readiness after a restart.

A server that has just started has no routes, and responses without routes would make clients drop theirs. So the
server writes its brokers to the snapshot, and after a restart it is not ready until these brokers have registered
again, or have had time to.
"""

import logging
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import msgspec

from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.write_removal import RemovalEnd
from namesrv_remoting.codes import MASTER_ID
from namesrv_runtime.durable_file import SealedFileError, keep_copy, remove_leftovers, unseal, write_sealed
from namesrv_runtime.log import event

logger = logging.getLogger(__name__)

VERSION: Final = 1
# the most missing brokers that a text names
NAMED_BROKERS: Final = 5


@dataclass(frozen=True, slots=True)
class ExpectedBroker:
    """A broker that was registered when the snapshot was written."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str

    @classmethod
    def of(cls, key: BrokerAddrInfo, live: BrokerLiveInfo) -> Self:
        """The broker with this live entry."""
        return cls(key.cluster_name, live.broker_name, live.broker_id, key.broker_addr)

    @property
    def identity(self) -> tuple[str, str, int]:
        """Cluster, broker name and broker id: what survives a restart of the broker, unlike its address."""
        return self.cluster, self.broker_name, self.broker_id

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}/{self.broker_id} at {self.broker_addr}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state that a server keeps over a restart."""

    saved_ms: int
    boot_id: str
    brokers: tuple[ExpectedBroker, ...] = ()
    # The file's name for removed write permissions: (cluster, broker name); cluster None stands for all clusters.
    wiped: tuple[tuple[str | None, str], ...] = ()
    # The ends of those removals that have one. The file has this field only if there are any.
    wiped_ends: tuple[RemovalEnd, ...] = ()
    version: int = VERSION
    # True if there may be further brokers, which have not had time to register since an earlier snapshot was lost, or
    # since the last broker became silent. The file has this field only then.
    is_incomplete: bool = False


# the snapshot in place of one that cannot be read
_LOST: Final = Snapshot(saved_ms=0, boot_id="", is_incomplete=True)


def decode(data: bytes) -> Snapshot:
    """The snapshot of a file. Raises SealedFileError if it is torn, damaged, or of another version."""
    try:
        return msgspec.convert(unseal(data, VERSION), Snapshot)
    except msgspec.ValidationError as error:
        raise SealedFileError(f"unexpected content: {error}") from error


def save(path: Path, snapshot: Snapshot) -> int:
    """Replace the file and return the size of the new one, once on disk. Raises OSError; then the old file is kept."""
    # The brokers are converted one by one: a single call would hold the interpreter lock for milliseconds.
    brokers = [msgspec.to_builtins(broker) for broker in snapshot.brokers]
    content = {**msgspec.to_builtins(replace(snapshot, brokers=())), "brokers": brokers}
    if not snapshot.is_incomplete:
        del content["is_incomplete"]
    if not snapshot.wiped_ends:
        del content["wiped_ends"]
    return write_sealed(path, content)


def load(path: Path) -> Snapshot | None:
    """The snapshot of the server's previous process; None without a file.

    An unreadable file counts as an incomplete snapshot without brokers. A damaged one is kept under another name, and
    such an incomplete snapshot takes its place: the server may be killed before it writes the next one. Any problem is
    logged as a warning.
    """
    remove_leftovers(path)
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        event(logger, logging.WARNING, "snapshot_not_read", path=path, error=error)
        return _LOST
    except SealedFileError as error:
        reason = str(error)
    try:
        keep_copy(path, reason)
        save(path, _LOST)
    except OSError as error:
        event(logger, logging.WARNING, "snapshot_not_set_aside", path=path, reason=reason, error=error)
    return _LOST


class Readiness:
    """Whether the server may answer route requests; a server that is ready stays ready."""

    def __init__(
        self, expected: Collection[ExpectedBroker], wait_seconds: float, now: float, *, expects_unknown: bool = False
    ) -> None:
        # True if further brokers are expected whose names are unknown
        self._expects_unknown = expects_unknown
        # expected brokers that have not registered yet, by their identity
        self._missing = {broker.identity: broker for broker in expected}
        self._expected_count = len(self._missing)
        # (cluster, broker name) -> the ids of the group's expected brokers
        self._ids_of = defaultdict[tuple[str, str], set[int]](set)
        for cluster, broker_name, broker_id in self._missing:
            self._ids_of[cluster, broker_name].add(broker_id)
        self._wait_seconds = wait_seconds
        self._ready_at = now + wait_seconds
        self._is_ready = not self._missing and not expects_unknown

    @property
    def missing(self) -> tuple[ExpectedBroker, ...]:
        """Expected brokers that have not registered yet, in the order of the snapshot."""
        return tuple(self._missing.values())

    @property
    def expects_unknown(self) -> bool:
        """True if further brokers than the named ones are expected, because the snapshot is lost or incomplete."""
        return self._expects_unknown

    @property
    def expects_brokers(self) -> bool:
        """True if the previous process had brokers, whether they have registered again or not."""
        return self._expected_count > 0 or self._expects_unknown

    def broker_seen(self, cluster: str, broker_name: str, broker_id: int, members: int) -> None:
        """Note that a broker has registered, at any address: a restarted container may have another one.

        `members` is the number of brokers that its group has now. A group with as many brokers as expected, and with
        its master, is complete: after an election, the new master and the former one have other ids.
        """
        self._missing.pop((cluster, broker_name, broker_id), None)
        expected = self._ids_of.get((cluster, broker_name), ())
        if members >= len(expected) and (cluster, broker_name, MASTER_ID) not in self._missing:
            for number in expected:
                self._missing.pop((cluster, broker_name, number), None)
        self._is_ready = self._is_ready or not (self._missing or self._expects_unknown)

    def is_ready(self, now: float) -> bool:
        """True if all expected brokers have registered, or the wait is over; at once if no broker is expected."""
        self._is_ready = self._is_ready or now >= self._ready_at
        return self._is_ready

    def reason(self, now: float) -> str:
        """Why the server is ready or not, as a text for people."""
        is_ready, left = self.is_ready(now), self._ready_at - now
        if self.expects_brokers and not self._missing and not self._expects_unknown:
            if self._expected_count == 1:
                return "ready: the expected broker is back"
            return f"ready: all {self._expected_count} expected brokers are back"
        if not self.expects_brokers:
            return "ready: no brokers expected"
        if self._expects_unknown:
            state = f"ready: waited {self._wait_seconds:g} s" if is_ready else f"not ready: waiting {left:.0f} s more"
            return f"{state}, the snapshot may lack brokers"
        names = [str(broker) for broker in self.missing[:NAMED_BROKERS]]
        if len(self._missing) > NAMED_BROKERS:
            names.append(f"and {len(self._missing) - NAMED_BROKERS} more")
        noun = "expected broker" if self._expected_count == 1 else "expected brokers"
        missing = f"{len(self._missing)} of {self._expected_count} {noun}: {', '.join(names)}"
        if is_ready:
            return f"ready: waited {self._wait_seconds:g} s, without {missing}"
        return f"not ready: waiting {left:.0f} s more for {missing}"

    def __repr__(self) -> str:
        state = "ready" if self._is_ready else "waiting"
        return f"<Readiness [{state} | {len(self._missing)} of {self._expected_count} missing]>"
