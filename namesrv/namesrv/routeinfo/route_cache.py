"""Encoded responses to route requests, kept on the rows of the topic table.

The cache is filled lazily. Topics with the same queues share a row, so that ten thousand topics of one broker group
cost one encoding and one body. Every change of a route gives its topics a new row, so that no response has to be
searched for and dropped: the old row is out of the table, and its response is freed when a few others have been made.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import msgspec

from namesrv.routeinfo.acting_master import is_shown_as_it_is
from namesrv.routeinfo.rows import TopicRow
from namesrv.routeinfo.views import RouteInputs
from namesrv_remoting.address_views import AddressView
from namesrv_remoting.bodies.route import TopicRouteData

T = TypeVar("T")

# A row, and the other inputs of a response: the zone (casefolded; "" for a request without a zone, None for every zone
# without a broker of the row), the order configuration, whether slaves are shown as such where others act as masters,
# and the view of broker addresses (None: as registered).
ResponseKey = tuple[TopicRow, str | None, str | None, bool, AddressView | None]

# Bytes of responses held per dialect before the oldest are dropped: that happens only when most topics have queues of
# their own.
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
# Approximate memory of a response besides its body.
RESPONSE_BYTES: Final = 300
# Older responses that each new one checks for rows that are gone: at most about half of all responses have such rows.
_LOOKS: Final = 2


class _Made(msgspec.Struct, frozen=True, gc=False):
    """A cached response."""

    # The topic of the request.
    topic: str
    row: TopicRow
    # None if the response is kept on the row.
    key: ResponseKey | None
    size: int


@dataclass(eq=False, repr=False)
class RouteCache(Generic[T]):
    """Encoded responses in one dialect, complete but for the opaque.

    `row.json`, or `row.native`, is the response for every topic of a row; `find(topic)` makes it if it is None.
    Responses that depend on more than the row are kept here instead.
    """

    inputs: RouteInputs
    encode: Callable[[TopicRouteData], tuple[T, int]]
    dialect: Literal["json", "native"]
    max_bytes: int = DEFAULT_MAX_BYTES

    def __post_init__(self) -> None:
        self._rows = self.inputs.tables.topic_queue_table
        # Cached responses, oldest first; responses that were checked and are in use move to the end.
        self._made: deque[_Made] = deque()
        # Bytes of all cached responses.
        self._bytes = 0
        # Responses that depend on more than a row.
        self._others: dict[ResponseKey, T] = {}

    def __repr__(self) -> str:
        return f"<RouteCache [{len(self)} responses | {self._bytes} bytes]>"

    def __len__(self) -> int:
        """Return the number of responses in use; the topics of a row share one."""
        return sum(map(self._is_in_use, self._made))

    def find(self, topic: str) -> T | None:
        """Return the response for a topic; None if the topic has no route."""
        row = self._rows.get(topic)
        if row is None:
            return None
        options = self.inputs.options
        key = self._key(topic, row, "", None) if options.order_message_enable or options.support_acting_master else None
        return self._known(row, key) or self._keep(topic, row, key, *self.encode(self._route(topic)))

    def find_for(self, topic: str, zone_name: str, view: AddressView | None) -> T | None:
        """Return the response for a client in a zone (empty: none), with addresses of a view (None: as registered)."""
        if not zone_name and view is None:
            return self.find(topic)
        row = self._rows.get(topic)
        if row is None:
            return None
        zone = zone_name.casefold()
        key = self._key(topic, row, zone, view)
        if (known := self._others.get(key)) is not None:
            return known
        if zone and zone not in self.inputs.zone_fallback.neighbours and not self._has_broker_in(row, zone):
            # A peer can name any number of zones: all zones without a broker and without a rule share a response.
            key = self._key(topic, row, None, view)
            if (known := self._others.get(key)) is not None:
                return known
        route = self.inputs.route(topic, zone_name, view)
        return None if route is None else self._keep(topic, row, key, *self.encode(route))

    def _has_broker_in(self, row: TopicRow, zone: str) -> bool:
        groups = self.inputs.tables.broker_addr_table
        return any((groups[queues.broker_name].zone_name or "").casefold() == zone for queues in row.queues)

    def _route(self, topic: str) -> TopicRouteData:
        route = self.inputs.route(topic)
        assert route is not None  # noqa: S101 - it has a row
        return route

    def _key(self, topic: str, row: TopicRow, zone: str | None, view: AddressView | None) -> ResponseKey:
        options = self.inputs.options
        conf = self.inputs.order_topic_conf(topic) if options.order_message_enable else None
        shows_slaves = options.support_acting_master and is_shown_as_it_is(topic)
        return row, zone, conf, shows_slaves, view

    def _known(self, row: TopicRow, key: ResponseKey | None) -> T | None:
        return getattr(row, self.dialect) if key is None else self._others.get(key)

    def _keep(self, topic: str, row: TopicRow, key: ResponseKey | None, response: T, size: int) -> T:
        self._make_room(size + RESPONSE_BYTES)
        self._made.append(_Made(topic, row, key, size))
        if key is None:
            setattr(row, self.dialect, response)
        else:
            self._others[key] = response
        return response

    def _make_room(self, size: int) -> None:
        made = self._made
        self._bytes += size
        if self._bytes <= self.max_bytes:
            for _ in range(min(_LOOKS, len(made))):
                if self._is_in_use(made[0]):
                    made.rotate(-1)
                else:
                    self._forget_first()
        while self._bytes > self.max_bytes and made:
            self._forget_first()

    def _is_in_use(self, made: "_Made") -> bool:
        """True if the topic of the cached response still has the row of the response.

        Other topics may still have the row: their response is dropped as well, and encoded again for the next request.
        """
        return self._rows.get(made.topic) is made.row

    def _forget_first(self) -> None:
        made = self._made.popleft()
        self._bytes -= made.size + RESPONSE_BYTES
        if made.key is None:
            setattr(made.row, self.dialect, None)
        else:
            del self._others[made.key]

    def clear(self) -> None:
        """Drop all cached responses."""
        while self._made:
            self._forget_first()
