"""Encoded responses to route requests and heartbeats, complete but for the opaque."""

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final

import msgpack
import msgspec

from namesrv.net.fairness.budget import LARGE_BYTES
from namesrv.routeinfo.route_cache import ResponseMemory, RouteCache
from namesrv.routeinfo.routes import RouteInputs
from namesrv_remoting.address_views import AddressView
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.codes import CURRENT_VERSION, SerializeType

# The largest body that the fast path sends: with its header, it needs no reserved memory, and fits into every frame.
SMALL_BODY_BYTES: Final = LARGE_BYTES - 1024
_pack_lengths: Final = Struct(">II").pack
# The most bytes of an opaque: ten digits in JSON, five bytes in msgpack.
_LONGEST_OPAQUE: Final = 10


class EncodedResponse(msgspec.Struct, gc=False):
    """A response without its opaque, which stands in the middle of the header."""

    # the bytes of the header before the opaque; the bytes after it, and the body
    before: bytes
    after: bytes
    body_bytes: int
    serialize_type: int
    # the bytes of the frame before the opaque, by the size of the opaque, since the lengths of frame and header depend
    # on it; empty until the first opaque of that size
    begins: list[bytes]

    def frame(self, opaque: bytes) -> bytes:
        """The whole frame, with the opaque's bytes as they stand in the request."""
        return b"".join((self.begins[len(opaque)] or self._begin(len(opaque)), opaque, self.after))

    @property
    def body(self) -> bytes:
        """The body of the response."""
        return self.after[len(self.after) - self.body_bytes :]

    def _begin(self, opaque_bytes: int) -> bytes:
        rest_bytes = len(self.before) + opaque_bytes + len(self.after)
        lengths = _pack_lengths(4 + rest_bytes, self.serialize_type << 24 | rest_bytes - self.body_bytes)
        begin = self.begins[opaque_bytes] = lengths + self.before
        return begin


def _response(before: bytes, after: bytes, body: bytes, serialize_type: int) -> EncodedResponse:
    return EncodedResponse(before, after + body, len(body), serialize_type, [b""] * (_LONGEST_OPAQUE + 1))


_JSON_BEFORE: Final = b'{"code":0,"flag":1,"language":"PYTHON","opaque":'
_JSON_AFTER: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
# The bytes before the opaque in a response to 322, which has an ext field.
_VERSION_BEFORE: Final = {
    changed: b'{"code":0,"extFields":{"changed":"%b"},"flag":1,"language":"PYTHON","opaque":' % text
    for changed, text in ((True, b"true"), (False, b"false"))
}


def _json_response(body: bytes, before: bytes = _JSON_BEFORE) -> EncodedResponse:
    return _response(before, _JSON_AFTER, body, SerializeType.JSON)


# The response in JSON to a heartbeat.
JSON_SUCCESS: Final = _json_response(b"")


# The cache has room for the versions of as many brokers as a NameServer may have.
@lru_cache(maxsize=10_000)
def version_response(stored: DataVersion, *, changed: bool) -> EncodedResponse:
    """The response to 322, which carries the stored version of the broker's topics."""
    return _json_response(JSON.encode(stored), _VERSION_BEFORE[changed])


@dataclass(eq=False, slots=True)
class RoutesInView:
    """Encoded responses to route requests of peers with one address view, in both dialects."""

    # None: addresses as registered
    view: AddressView | None
    json: RouteCache[EncodedResponse]
    native: RouteCache[EncodedResponse]

    def native_body(self, topic: str, zone_name: str) -> bytes | None:
        """The native route of a topic for a zone, for a response with many routes; None without a route."""
        response = self.native.find(topic, zone_name)
        return None if response is None else response.body


class EncodedRoutes:
    """Encoded responses to route requests, by address view."""

    def __init__(self, inputs: RouteInputs, boot_id: str) -> None:
        self.inputs = inputs
        # [code 0, opaque, flag 1, version, nil, ext]
        self._native_tail = b"\x01" + msgpack.packb(CURRENT_VERSION) + b"\xc0" + msgpack.packb({"boot_id": boot_id})
        # The native response to a heartbeat.
        self.native_success = self.native_response(b"")
        # The memory of all responses in a dialect is bounded, however many views there are.
        rows = inputs.tables.topic_queue_table
        self._json_memory, self._native_memory = ResponseMemory(rows), ResponseMemory(rows)
        self._in_views: dict[AddressView | None, RoutesInView] = {}

    def __repr__(self) -> str:
        names = ", ".join("registered addresses" if view is None else view.name for view in self._in_views)
        return f"<EncodedRoutes [{names}]>"

    def in_view(self, view: AddressView | None) -> RoutesInView:
        """The responses to peers with an address view (None: addresses as registered)."""
        routes = self._in_views.get(view)
        if routes is None:
            json = RouteCache(self.inputs, _encode_json, self._json_memory, view, SMALL_BODY_BYTES)
            native = RouteCache(self.inputs, self._encode_native, self._native_memory, view, SMALL_BODY_BYTES)
            routes = self._in_views[view] = RoutesInView(view, json, native)
        return routes

    def forget_views(self) -> None:
        """Forget all views, before another address views file is used; `clear` drops their responses."""
        self._in_views.clear()

    def clear(self) -> None:
        """Drop all encoded responses."""
        self._json_memory.clear()
        self._native_memory.clear()

    def native_response(self, body: bytes) -> EncodedResponse:
        """A native response with this body."""
        return _response(b"\x96\x00", self._native_tail, body, SerializeType.MSGPACK)

    def _encode_native(self, route: TopicRouteData) -> tuple[EncodedResponse, int]:
        body = NATIVE.encode(route)
        return self.native_response(body), len(body)


def _encode_json(route: TopicRouteData) -> tuple[EncodedResponse, int]:
    body = JSON.encode(route)
    return _json_response(body), len(body)
