"""Fast path: responses to repeated route requests and heartbeats, which are recognised by their bytes.

A peer repeats a request to the byte, except for the opaque. When the dispatcher has decoded a request, the fast path
remembers the meaning of its bytes; from then on the fast path looks these bytes up and puts the opaque into a response
that is already encoded. Every other request belongs to the dispatcher, which knows every request code and every error.
"""

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Final

import msgpack
import msgspec

from namesrv.encoded_routes import (
    JSON_SUCCESS,
    EncodedResponse,
    EncodedRoutes,
    RoutesInView,
    version_response,
)
from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.net.request import LONGEST_FAST_REQUEST, Connection
from namesrv.peer_views import PeerViews
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.route_cache import RouteCache
from namesrv.routeinfo.tables.records import BrokerAddrInfo
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.extensions import heartbeat_state
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError
from namesrv_remoting.frames import HEAD, Frame
from namesrv_remoting.headers import (
    BrokerHeartbeatRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
)
from namesrv_remoting.requests import AccessClass
from namesrv_remoting.serializers import decode_frame
from namesrv_remoting.signatures import ACCESS_KEY

# Returns the access classes of requests that need no further check on a connection.
OpenClasses = Callable[[Connection], frozenset[AccessClass]]

# The lengths of frame and header, with the serialize type.
_HEAD_BYTES: Final = HEAD.size
_JSON: Final = int(SerializeType.JSON)
_NATIVE: Final = int(SerializeType.MSGPACK)
# The bound keeps the memory below 27 MB, as long names are rare: a route request takes its bytes and about 300 more, a
# heartbeat its bytes and about 600. The heartbeats of agents that have ended stay until other requests displace them.
MAX_REMEMBERED: Final = 32_768
# While MAX_REMEMBERED requests are remembered, a new request displaces the one that was learned first, but only with
# this probability. If every new request did, more than MAX_REMEMBERED requests that are sent in turn would displace
# each other before any is repeated.
_LEARNT_WHEN_FULL: Final = 1 / 16

_CODES: Final = frozenset(
    {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION}
)


# -- what a request means --------------------------------------------------------------------------------------------


class _Request(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a request, independent of its opaque."""

    access_class: ClassVar[AccessClass]
    # The first eight bytes of the request's frame, by the size of the opaque. They prove that the received bytes are
    # one whole frame.
    heads: tuple[bytes, ...]


class _RouteRequest(_Request, frozen=True, gc=False):
    """Request 105: the route of a topic, for clients in a zone if `zone` is not empty."""

    access_class = AccessClass.ROUTE_READ
    topic: str
    zone: str


class _Heartbeat(_Request, frozen=True, gc=False):
    """Request 904; a native heartbeat has to match the registered broker, and may carry the broker's state."""

    access_class = AccessClass.BROKER_CONTROL
    key: BrokerAddrInfo
    broker_name: str
    broker_id: int | None
    agent_id: str | None
    # Size of a native body with a state, at the end of the frame; 0 without a state. The decoded state would take ten
    # times as much memory, so each heartbeat decodes it.
    state_body_bytes: int
    is_native: bool
    is_oneway: bool


class _VersionQuery(_Request, frozen=True, gc=False):
    """Request 322 in JSON: has the version of the broker's topics changed? It counts as a heartbeat."""

    access_class = AccessClass.BROKER_CONTROL
    key: BrokerAddrInfo
    offered: DataVersion | None
    is_oneway: bool


def _meaning(command: RemotingCommand, heads: tuple[bytes, ...]) -> _Request | None:
    """Return the meaning of a decoded request; None if only the dispatcher can ever answer such requests.

    Raises:
        BadRequestError: a field is missing or cannot be read.
    """
    ext = command.ext_fields or {}
    if ACCESS_KEY in ext:
        # The signature of each request has to be verified.
        return None
    if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and not command.is_oneway:
        header = GetRouteInfoRequestHeader.from_ext(ext)
        return _RouteRequest(heads, header.topic, header.zone())
    if command.code == RequestCode.BROKER_HEARTBEAT:
        sender = BrokerHeartbeatRequestHeader.from_ext(ext)
        has_state = command.is_native and heartbeat_state(command.body) is not None
        return _Heartbeat(
            heads,
            BrokerAddrInfo(sender.cluster_name, sender.broker_addr),
            sender.broker_name,
            sender.broker_id,
            sender.agent_id,
            len(command.body) if has_state else 0,
            command.is_native,
            command.is_oneway,
        )
    if command.code == RequestCode.QUERY_DATA_VERSION and not command.is_native:
        asker = QueryDataVersionRequestHeader.from_ext(ext)
        key = BrokerAddrInfo(asker.cluster_name, asker.broker_addr)
        return _VersionQuery(heads, key, JSON.read_data_version(command.body), command.is_oneway)
    return None


# -- the bytes of a request without its opaque ------------------------------------------------------------------------

_OPAQUE: Final = b'"opaque":'
_MAX_INT32: Final = b"2147483647"
_MOST_DIGITS: Final = len(_MAX_INT32)
# The lengths, and a header: an array of six with code, opaque, flag, version, nil and an empty map.
_SHORTEST_NATIVE: Final = _HEAD_BYTES + 7
# Offset of the opaque in a native request, by byte 9, which begins the code; 0 for a code below 0 or above 65,535.
_NATIVE_OPAQUE_BEGINS: Final = bytes([10] * 0x80 + [0] * 0x4C + [11, 12] + [0] * 0x32)
# Number of bytes of a native opaque, by its first byte; 0 for a negative opaque, or one of nine bytes.
_NATIVE_OPAQUE_BYTES: Final = bytes([1] * 0x80 + [0] * 0x4C + [2, 3, 5] + [0] * 0x31)
_WHOLE_OPAQUE: Final = 5
# First byte of a negative int32.
_NEGATIVE: Final = 0x80


def _split(frame: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the bytes before, of and after a request's opaque; all empty unless the opaque is an int32 from 0 on.

    In JSON, the opaque must not be 0, and its name and the comma after its number belong to no part.
    """
    if frame[4] == _JSON:
        # The search starts at the end, where Java clients put the opaque.
        before, _, rest = frame.rpartition(_OPAQUE)
        opaque, _, after = rest.partition(b",")
        digits = len(opaque)
        is_int32 = digits < _MOST_DIGITS or (digits == _MOST_DIGITS and opaque <= _MAX_INT32)
        if is_int32 and opaque.isdigit() and opaque >= b"1":
            return before, opaque, after
    elif frame[4] == _NATIVE and len(frame) >= _SHORTEST_NATIVE:
        begin = _NATIVE_OPAQUE_BEGINS[frame[9]]
        size = _NATIVE_OPAQUE_BYTES[frame[begin]]
        if begin and size and (size < _WHOLE_OPAQUE or frame[begin + 1] < _NEGATIVE):
            return frame[:begin], frame[begin : begin + size], frame[begin + size :]
    return b"", b"", b""


def _joined(before: bytes, opaque: bytes, after: bytes) -> bytes:
    """Return the request of which these are the parts."""
    if before[4] == _JSON:
        return b"".join((before, _OPAQUE, opaque, b",", after))
    return before + opaque + after


@lru_cache(maxsize=1024)
def _heads(serialize_type: int, rest_bytes: int, body_bytes: int) -> tuple[bytes, ...]:
    """Return the first eight bytes of a frame with these sizes besides its opaque, by the size of the opaque."""
    return tuple(
        HEAD.pack(4 + rest_bytes + size, serialize_type << 24 | rest_bytes + size - body_bytes)
        for size in range(_MOST_DIGITS + 1)
    )


def _is_opaque(before: bytes, opaque: bytes, after: bytes, command: RemotingCommand) -> bool:
    """True if these bytes of a frame are the opaque of its command, and the rest does not depend on them."""
    if before[4] == _NATIVE:
        number = msgpack.unpackb(opaque)
        other = opaque[:-1] + bytes([opaque[-1] ^ 1])
    else:
        number = int(opaque)
        other = b"%d" % (number ^ 1)
    probe = _joined(before, other, after)
    body_at = _HEAD_BYTES + int.from_bytes(probe[5:_HEAD_BYTES])
    try:
        decoded = decode_frame(Frame(probe[4], probe[_HEAD_BYTES:body_at], probe[body_at:]))
    except RemoteProtocolError:
        return False
    return command.opaque == number and decoded == replace(command, opaque=number ^ 1)


def _find_small(cache: RouteCache[EncodedResponse], request: _RouteRequest) -> EncodedResponse | None:
    """Return a response that `cache.responses` does not have; None for a large one, which needs reserved memory."""
    response = cache.find(request.topic, request.zone)
    return None if response is None or response.body_bytes > cache.small_bytes else response


# -- the fast path ---------------------------------------------------------------------------------------------------


class FastPath:
    """Answers repeated requests of 105 and 904, and of 322 in JSON; 105 only while `is_ready`."""

    def __init__(
        self,
        manager: RouteInfoManager,
        routes: EncodedRoutes,
        *,
        views: PeerViews,
        open_classes: OpenClasses | None = None,
        log: HeartbeatLog | None = None,
    ) -> None:
        self.is_ready = False
        # Responses of the fast path, for metrics.
        self.pulls = 0
        self.heartbeats = 0
        # Heartbeats among these that were version queries (322).
        self.data_versions = 0
        self._views = views
        # None on a server without an access file, where every class is open.
        self._open_classes = open_classes
        # None if the heartbeat log is switched off
        self._log = log
        self._manager = manager
        self._rows = manager.tables.topic_queue_table
        self._routes = routes
        # The bytes of a request before and after its opaque, without the first eight -> the meaning of the request; in
        # the order in which they were learned. To find its first entry, a plain dict would skip all deleted entries.
        self._remembered: OrderedDict[tuple[bytes, bytes], _Request] = OrderedDict()

    def start_to_answer(self) -> None:
        """Answer route requests from now on."""
        self.is_ready = True

    def __repr__(self) -> str:
        return f"<FastPath [{self.pulls} pulls | {self.heartbeats} heartbeats | {len(self._remembered)} remembered]>"

    def learn(self, frame: bytes, command: RemotingCommand) -> None:
        """Remember the meaning of a frame that the dispatcher decoded, if the fast path can answer such frames."""
        if command.code not in _CODES or len(frame) > LONGEST_FAST_REQUEST:
            return
        before, opaque, after = _split(frame)
        key = before[_HEAD_BYTES:], after
        # Clients also repeat requests that the dispatcher answers each time, such as those for topics without a route.
        if not opaque or key in self._remembered:
            return
        is_full = len(self._remembered) >= MAX_REMEMBERED
        if is_full and random.random() >= _LEARNT_WHEN_FULL:
            return
        rest_bytes = len(frame) - len(opaque) - _HEAD_BYTES
        try:
            request = _meaning(command, _heads(frame[4], rest_bytes, len(command.body)))
        except BadRequestError:
            return
        # The second check decodes the frame once more, so it comes last.
        if request is None or not _is_opaque(before, opaque, after, command):
            return
        if is_full:
            self._remembered.popitem(last=False)
        self._remembered[key] = request

    def answer(self, connection: Connection, frame: bytes) -> bytes | None:
        """Return the encoded response, empty for a one-way request; None if the dispatcher has to answer."""
        before, opaque, after = _split(frame)
        request = self._remembered.get((before[_HEAD_BYTES:], after))
        if request is None or request.heads[len(opaque)] != frame[:_HEAD_BYTES]:
            return None
        if self._open_classes is not None and request.access_class not in self._open_classes(connection):
            return None
        if type(request) is _RouteRequest:
            return self._route(connection, request, frame[4], opaque)
        if type(request) is _Heartbeat:
            return self._heartbeat(connection, request, opaque, frame)
        if type(request) is _VersionQuery:
            return self._compare_version(connection, request, opaque)
        return None

    def _route(
        self, connection: Connection, request: _RouteRequest, serialize_type: int, opaque: bytes
    ) -> bytes | None:
        if not self.is_ready:
            return None
        peer, topic = connection.peer, request.topic
        routes: RoutesInView | None = peer.routes
        if routes is None:
            if self._views.file.need_accounts:
                # The account of a request is known only after the checks of the dispatcher.
                return None
            routes = self._views.routes_of(connection)
        cache = routes.json if serialize_type == _JSON else routes.native
        row = self._rows.get(topic)
        if row is None:
            return None
        # A response for a zone is not cached by its row alone, nor is any while some settings are on: see RouteCache.
        response = (None if request.zone else cache.responses.get(row)) or _find_small(cache, request)
        if response is None:
            return None
        self.pulls += 1
        log = self._log
        if log is not None:
            # The log gets the first response of a connection at each revision of a topic.
            if peer.served is None or peer.served.get(topic) != row.revision:
                log.served(connection, topic, row.revision)
            late = log.late
            if late.topics and topic in late.topics:
                late.pulls[topic] += 1
        if peer.role != "client":
            peer.note_role("client")
        return response.frame(opaque)

    def _heartbeat(self, connection: Connection, heartbeat: _Heartbeat, opaque: bytes, frame: bytes) -> bytes | None:
        manager = self._manager
        if heartbeat.is_native and (
            heartbeat.key in manager.tables.incomplete
            or not manager.is_registered(
                heartbeat.key, heartbeat.broker_name, heartbeat.broker_id, heartbeat.agent_id, connection.id
            )
        ):
            return None
        state = heartbeat_state(frame[-heartbeat.state_body_bytes :]) if heartbeat.state_body_bytes else None
        if manager.touch(heartbeat.key, connection.id, state) is None:
            return None
        self._count_heartbeat(connection)
        if heartbeat.is_oneway:
            return b""
        return (self._routes.native_success if heartbeat.is_native else JSON_SUCCESS).frame(opaque)

    def _compare_version(self, connection: Connection, query: _VersionQuery, opaque: bytes) -> bytes | None:
        live = self._manager.tables.broker_live_table.get(query.key)
        if live is None or live.data_version is None:
            return None
        self._manager.touch(query.key, connection.id)
        self._count_heartbeat(connection)
        self.data_versions += 1
        if query.is_oneway:
            return b""
        return version_response(live.data_version, changed=query.offered != live.data_version).frame(opaque)

    def _count_heartbeat(self, connection: Connection) -> None:
        self.heartbeats += 1
        if connection.peer.role != "broker":
            connection.peer.note_role("broker")
