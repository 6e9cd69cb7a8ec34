"""Encoded responses to route requests, cached by the rows of the topic table.

A cache has the responses in one dialect for one address view, and is filled lazily. Topics with the same queues share a
row, so that ten thousand topics of one broker group cost one encoding and one body. Every change of a route gives its
topics a new row, so that no response has to be searched for and dropped: the old row is out of the table, and its
response is freed when a few others have been made.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from namesrv.routeinfo.acting_master import is_shown_as_it_is
from namesrv.routeinfo.routes import RouteInputs
from namesrv.routeinfo.tables.rows import TopicRow
from namesrv_remoting.address_views import AddressView
from namesrv_remoting.bodies.route import TopicRouteData

T = TypeVar("T")

# A row; or a row, the zone (casefolded; "" for a request without a zone, None for every zone without a broker of the
# row), the order configuration, and whether the route shows groups unchanged while other routes show acting masters.
ResponseKey = TopicRow | tuple[TopicRow, str | None, str | None, bool]

# Bytes of responses held per dialect before the oldest are dropped: that happens only when most topics have queues of
# their own.
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
# Memory of a response besides its body, as measured with tracemalloc.
RESPONSE_BYTES: Final = 550
# Older responses that each new one checks for rows that are gone: at most about half of all responses have such rows.
_LOOKS: Final = 2


class _Cached(msgspec.Struct, frozen=True, gc=False):
    """The place of a cached response."""

    # The topic of the request, and its row.
    topic: str
    row: TopicRow
    # The responses of the cache, and the key of the response among them.
    responses: dict[ResponseKey, Any]
    key: ResponseKey
    size: int


class ResponseMemory:
    """The bound on cached responses of all views in a dialect: drops responses whose rows are gone, and the oldest."""

    def __init__(self, rows: Mapping[str, TopicRow], max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._rows = rows
        self.max_bytes = max_bytes
        # Oldest first; responses that were checked and are in use move to the end.
        self._cached: deque[_Cached] = deque()
        # Bytes of all cached responses.
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<ResponseMemory [{len(self)} responses | {self._bytes} bytes]>"

    def __len__(self) -> int:
        """Return the number of responses in use; the topics of a row share one."""
        return sum(map(self._is_in_use, self._cached))

    def take(self, cached: _Cached) -> None:
        """Count one more response, and drop others until all fit."""
        self._make_room(cached.size)
        self._cached.append(cached)

    def clear(self) -> None:
        """Drop all cached responses."""
        while self._cached:
            self._drop_first()

    def _make_room(self, size: int) -> None:
        cached = self._cached
        self._bytes += size
        if self._bytes <= self.max_bytes:
            for _ in range(min(_LOOKS, len(cached))):
                if self._is_in_use(cached[0]):
                    cached.rotate(-1)
                else:
                    self._drop_first()
        while self._bytes > self.max_bytes and cached:
            self._drop_first()

    def _is_in_use(self, cached: _Cached) -> bool:
        """True if the topic of the cached response still has the row of the response.

        Other topics may still have the row: their response is dropped as well, and encoded again for the next request.
        """
        return self._rows.get(cached.topic) is cached.row

    def _drop_first(self) -> None:
        cached = self._cached.popleft()
        self._bytes -= cached.size
        del cached.responses[cached.key]


@dataclass(eq=False, repr=False)
class RouteCache(Generic[T]):
    """Encoded responses in one dialect to peers with one address view, complete but for the opaque.

    `responses` has all responses that are not large by their keys; the key of a response that depends on nothing but a
    row is the row itself. `find(topic)` makes the responses that are missing.
    """

    inputs: RouteInputs
    encode: Callable[[TopicRouteData], tuple[T, int]]
    memory: ResponseMemory
    # None: addresses as registered
    view: AddressView | None = None
    # the largest body of a response that is not large
    small_bytes: int = DEFAULT_MAX_BYTES
    responses: dict[ResponseKey, T] = field(default_factory=dict, init=False)
    # large responses, for which memory has to be reserved
    _large: dict[ResponseKey, T] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        view = "no view" if self.view is None else f"view {self.view.name}"
        return f"<RouteCache [{view} | {len(self.responses) + len(self._large)} responses | {self.memory!r}]>"

    def find(self, topic: str, zone_name: str = "") -> T | None:
        """Return the response for a client in a zone (empty: in no zone); None if the topic has no route."""
        row = self.inputs.tables.topic_queue_table.get(topic)
        if row is None:
            return None
        zone = zone_name.casefold()
        key = self._key(topic, row, zone)
        if (known := self._known(key)) is not None:
            return known
        if zone and zone not in self.inputs.zone_fallback.neighbours and not self._has_broker_in(row, zone):
            # A peer can name any number of zones: all zones without a broker and without a rule share a response.
            key = self._key(topic, row, None)
            if (known := self._known(key)) is not None:
                return known
        route = self.inputs.route(topic, zone_name, self.view)
        return None if route is None else self._keep(topic, row, key, *self.encode(route))

    def _known(self, key: ResponseKey) -> T | None:
        known = self.responses.get(key)
        return self._large.get(key) if known is None else known

    def _has_broker_in(self, row: TopicRow, zone: str) -> bool:
        groups = self.inputs.tables.broker_addr_table
        return any((groups[queues.broker_name].zone_name or "").casefold() == zone for queues in row.queues)

    def _key(self, topic: str, row: TopicRow, zone: str | None) -> ResponseKey:
        options = self.inputs.options
        # With these options, topics of a row may have different responses, so the row alone is not a key.
        if zone == "" and not (options.order_message_enable or options.support_acting_master):
            return row
        conf = self.inputs.order_topic_conf(topic) if options.order_message_enable else None
        shows_slaves = options.support_acting_master and is_shown_as_it_is(topic)
        return row, zone, conf, shows_slaves

    def _keep(self, topic: str, row: TopicRow, key: ResponseKey, response: T, size: int) -> T:
        responses = self.responses if size <= self.small_bytes else self._large
        self.memory.take(_Cached(topic, row, responses, key, size + RESPONSE_BYTES))
        responses[key] = response
        return response
