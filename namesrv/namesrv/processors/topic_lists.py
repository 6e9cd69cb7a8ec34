"""Lists of topics: built in chunks, cached encoded until the tables change, and limited by network.

A network is `Peer.network`: an IPv4 address, or the /64 of an IPv6 address.
"""

import asyncio
import functools
from collections.abc import Callable, Hashable
from typing import Final

from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.tables.rows import QueueRow
from namesrv.yielding import in_chunks
from namesrv_remoting.bodies.dialects import Dialect
from namesrv_remoting.bodies.route import TopicList
from namesrv_remoting.errors import SystemBusyError, SystemError_
from namesrv_runtime.clock import Clock

# Topics checked between two yields to the event loop: about a millisecond.
_CHUNK: Final = 2_500
# Bytes of cached lists; beyond it all lists are dropped and built again on request.
_MAX_BYTES: Final = 32 * 1024 * 1024
# A request of 60 bytes can cause a response of 16 MiB, or a scan of a million topics. For lists larger than
# _LARGE_BYTES, one network gets _BURST_BYTES at once and then _BYTES_PER_SECOND: enough for tools, too little for a
# flood. No list costs more than _BURST_BYTES, so that a network without recent lists gets any list.
_LARGE_BYTES: Final = 256 * 1024
_BURST_BYTES: Final = 64 * 1024 * 1024
_BYTES_PER_SECOND: Final = 16 * 1024 * 1024
# A list that is built costs at least so many bytes for each topic of the tables. To scan and encode a topic takes about
# 0.4 µs, so the lists that are built for a network take about a twentieth of the processor. With more than 500,000
# topics, where each list costs a whole burst, this share grows with the topics: to a tenth with a million.
_SCANNED_TOPIC_BYTES: Final = 128
# Beyond this number of networks, networks without recent bytes are dropped.
_MANY_NETWORKS: Final = 1_000
# Quotes and a comma around each name in JSON.
_SPARE_BYTES: Final = 3


class TopicLists:
    """Encoded lists of topics, cached by kind and dialect; the network that requests a list bears its cost."""

    def __init__(self, manager: RouteInfoManager, max_bytes: int, clock: Clock) -> None:
        self._manager = manager
        self._max_bytes = max_bytes
        self._large_lists = LargeLists(clock)
        # The version of the tables, as `_version` has it, when the cached lists were built.
        self._made_version = (-1, -1)
        # (dialect, kind) -> the list, or the reason for refusing the list
        self._made: dict[Hashable, bytes | str] = {}
        # One list is built at a time: several lists would each hold all of their names in memory.
        self._making = asyncio.Lock()

    async def encoded(
        self, dialect: Dialect, kind: Hashable, is_wanted: Callable[[QueueRow], bool], *, network: str
    ) -> bytes:
        """Return the wanted topics in order of registration.

        Raises:
            SystemError_: no response can hold the list.
            SystemBusyError: the network has caused too many large lists lately.
        """
        key = (id(dialect), kind)
        made, scanned = self._cached(key), 0
        if made is None:
            async with self._making:
                made = self._cached(key)
                if made is None:
                    scanned = len(self._manager.tables.topic_queue_table) * _SCANNED_TOPIC_BYTES
                    self._large_lists.charge(network, scanned)
                    made = await self._make(dialect, key, is_wanted)
        if isinstance(made, str):
            raise SystemError_(made)
        self._large_lists.charge(network, len(made), paid=scanned)
        return made

    def charge(self, network: str, size: int) -> None:
        """Charge a list of another kind to a network. Raises SystemBusyError after too many bytes lately."""
        self._large_lists.charge(network, size)

    def _cached(self, key: Hashable) -> bytes | str | None:
        return self._made.get(key) if self._made_version == self._version() else None

    def _version(self) -> tuple[int, int]:
        """The version of the tables: the revision of the routes, and the membership number of the brokers."""
        return self._manager.revisions.revision, self._manager.membership

    async def _make(self, dialect: Dialect, key: Hashable, is_wanted: Callable[[QueueRow], bool]) -> bytes | str:
        version, rows, limit = self._version(), self._manager.tables.topic_queue_table, self._max_bytes
        names: list[str] = []
        size = 0
        made: bytes | str
        # Most topics share a row.
        is_row_wanted = functools.cache(lambda row: row is not None and is_wanted(row.queues))
        async for chunk in in_chunks(list(rows), _CHUNK):
            wanted = [name for name in chunk if is_row_wanted(rows.get(name))]
            names += wanted
            size += sum(map(len, wanted)) + _SPARE_BYTES * len(wanted)
            if size > limit:
                made = f"list of more than {limit} bytes"
                break
        else:
            made = dialect.encode(TopicList(names))
        if version != self._made_version or sum(map(len, self._made.values())) + len(made) > _MAX_BYTES:
            self._made.clear()
        self._made[key] = made
        self._made_version = version
        return made


class LargeLists:
    """Bytes of the large lists that were built for each network, or sent to it, lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # network -> (bytes that count against the network, time of that count)
        self._charged: dict[str, tuple[float, float]] = {}

    def charge(self, network: str, size: int, *, paid: int = 0) -> None:
        """Charge a list to the network that requests it, less the cost of a size that was charged for it before.

        Raises:
            SystemBusyError: the network has caused too many large lists lately.
        """
        cost = _cost(size) - _cost(paid)
        if cost <= 0:
            return
        now = self._clock.monotonic()
        charged = self._counted(network, now) + cost
        if charged > _BURST_BYTES:
            seconds = (charged - _BURST_BYTES) / _BYTES_PER_SECOND
            raise SystemBusyError(f"too many large lists for {network}, try again in {seconds:.1f} s")
        if len(self._charged) >= _MANY_NETWORKS:
            self._charged = {known: at for known, at in self._charged.items() if self._counted(known, now)}
        self._charged[network] = (charged, now)

    def _counted(self, network: str, now: float) -> float:
        """The bytes that still count against a network."""
        charged, at = self._charged.get(network, (0.0, now))
        return max(0.0, charged - (now - at) * _BYTES_PER_SECOND)


def _cost(size: int) -> int:
    """The bytes that a list of this size counts: 0 for a small list, at most a whole burst for a large one."""
    return min(size, _BURST_BYTES) if size > _LARGE_BYTES else 0
