"""Encoded responses to route requests and heartbeats, complete but for the opaque."""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

import msgpack

from namesrv.routeinfo.records import RouteOptions
from namesrv.routeinfo.route_cache import RouteCache
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.codes import CURRENT_VERSION, SerializeType

_pack_head: Final = Struct(">II").pack

# -- JSON: both lengths of a frame depend on how many digits the opaque has ------------------------------------------

_JSON_HEAD: Final = b'{"code":0,"flag":1,"language":"PYTHON","opaque":'
_JSON_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
_JSON_LENGTH: Final = len(_JSON_HEAD) + len(_JSON_TAIL)
# The bytes after the opaque, the frame's length without the opaque, and the bytes before the opaque by its number of
# digits, each made when it is needed first.
JsonResponse = tuple[bytes, int, list[bytes]]
_MOST_DIGITS: Final = 10
# the response to 322 has an ext field and is encoded for each request
_CHANGED: Final = {
    changed: b'{"code":0,"extFields":{"changed":"%b"},"flag":1,"language":"PYTHON","opaque":' % text
    for changed, text in ((True, b"true"), (False, b"false"))
}
# The cache has room for the versions of as many brokers as a NameServer may have.
_encode_version: Final = lru_cache(maxsize=10_000)(JSON.encode)


def json_response(body: bytes) -> JsonResponse:
    """A response in JSON with this body."""
    return _JSON_TAIL + body, 4 + _JSON_LENGTH + len(body), [b""] * (_MOST_DIGITS + 1)


def json_frame(response: JsonResponse, opaque: bytes) -> bytes:
    """The response's frame with an opaque in decimal digits."""
    after, _, heads = response
    return (heads[len(opaque)] or _json_head(response, len(opaque))) + opaque + after


def _json_head(response: JsonResponse, digits: int) -> bytes:
    _, length, heads = response
    head = heads[digits] = _pack_head(length + digits, _JSON_LENGTH + digits) + _JSON_HEAD
    return head


def version_frame(stored: DataVersion, opaque: bytes, *, changed: bool) -> bytes:
    """The frame of a response to 322, which carries the stored version of the broker's topics."""
    body = _encode_version(stored)
    header = b"%b%b%b" % (_CHANGED[changed], opaque, _JSON_TAIL)
    return _pack_head(4 + len(header) + len(body), len(header)) + header + body


# -- native: the opaque always takes five bytes, so that all others are constant -------------------------------------

# the bytes before the four of the opaque, and after them
NativeResponse = tuple[bytes, bytes]


def native_frame(response: NativeResponse, opaque: bytes) -> bytes:
    """The response's frame with an opaque of four bytes."""
    before, after = response
    return before + opaque + after


class EncodedRoutes:
    """Encoded responses to route requests: `json` and `native`."""

    def __init__(
        self, tables: RouteTables, options: RouteOptions, order_topic_conf: Callable[[str], str | None], boot_id: str
    ) -> None:
        ext: bytes = msgpack.packb({"boot_id": boot_id})
        self._header_tail = b"\x01" + msgpack.packb(CURRENT_VERSION) + b"\xc0" + ext
        self._header_length = 3 + 4 + len(self._header_tail)
        self.json: RouteCache[JsonResponse] = RouteCache(tables, options, order_topic_conf, _encode_json, "json")
        self.native: RouteCache[NativeResponse] = RouteCache(
            tables, options, order_topic_conf, self._encode_native, "native"
        )

    def clear(self) -> None:
        """Drop all encoded responses."""
        self.json.clear()
        self.native.clear()

    def _encode_native(self, route: TopicRouteData) -> tuple[NativeResponse, int]:
        body = NATIVE.encode(route)
        return self.native_response(body), len(body)

    def native_response(self, body: bytes) -> NativeResponse:
        """A native response with this body."""
        length = self._header_length
        head = _pack_head(4 + length + len(body), SerializeType.MSGPACK << 24 | length)
        # [code 0, opaque as int32, flag 1, version, nil, ext]
        return head + b"\x96\x00\xd2", self._header_tail + body

    def native_body(self, topic: str) -> bytes | None:
        """The native route of a topic, for a response with many; None when it has none."""
        response = self.native.find(topic)
        return None if response is None else response[1][len(self._header_tail) :]


def _encode_json(route: TopicRouteData) -> tuple[JsonResponse, int]:
    body = JSON.encode(route)
    return json_response(body), len(body)
