"""Fast path for route questions and heartbeats, answered inside `data_received`.

One typed decode of the header, one look-up of an answer that is already encoded, one copy with the opaque in it. What
is unusual in any way is left to the ordinary road, which knows every case and every error.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Annotated, Any, Final, TypeVar

import msgpack
import msgspec

from namesrv.heartbeat_log.late_brokers import LateBrokers
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.records import BrokerAddrInfo, RouteOptions
from namesrv.routeinfo.route_cache import RouteCache
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.aio.connection import ServerConnection
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.extensions import heartbeat_state
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import CURRENT_VERSION, FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, SerializeType
from namesrv_remoting.errors import BadRequestError

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]

T = TypeVar("T")
# what comes before the opaque, and after it
NativeAnswer = tuple[bytes, bytes]

_JSON: Final = int(SerializeType.JSON)
_NATIVE: Final = int(SerializeType.MSGPACK)
_PULL: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
_HEARTBEAT: Final = int(RequestCode.BROKER_HEARTBEAT)
_DATA_VERSION: Final = int(RequestCode.QUERY_DATA_VERSION)


class _Ext(msgspec.Struct, gc=False):
    topic: str | None = None
    zone_mode: str | None = msgspec.field(default=None, name="__ZONE_MODE")
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")
    cluster_name: str | None = msgspec.field(default=None, name="clusterName")
    broker_addr: str | None = msgspec.field(default=None, name="brokerAddr")
    broker_name: str | None = msgspec.field(default=None, name="brokerName")
    broker_id: str | int | None = msgspec.field(default=None, name="brokerId")
    agent_id: str | None = msgspec.field(default=None, name="agentId")
    registration_seq: str | int | None = msgspec.field(default=None, name="registrationSeq")


class _JsonHeader(msgspec.Struct, gc=False):
    # no default where the ordinary road has to decide
    code: int
    opaque: Int32
    flag: Int32 = 0
    ext: _Ext | None = msgspec.field(default=None, name="extFields")


class _NativeHeader(msgspec.Struct, gc=False, array_like=True, forbid_unknown_fields=True):
    code: int
    opaque: Int32
    flag: int
    version: int
    remark: str | None
    ext: _Ext | None


_decode_json: Final = msgspec.json.Decoder(_JsonHeader).decode
_decode_native: Final = msgspec.msgpack.Decoder(_NativeHeader).decode

# -- JSON: the opaque has as many digits as it has, so both lengths are made when answering ---------------------------

_pack_head: Final = Struct(">II").pack
_JSON_HEAD: Final = b'{"code":0,"flag":1,"language":"PYTHON","opaque":'
_JSON_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
_JSON_LENGTH: Final = len(_JSON_HEAD) + len(_JSON_TAIL)
# what comes after the opaque, and the frame's length without the opaque
JsonAnswer = tuple[bytes, int]


def json_answer(body: bytes) -> JsonAnswer:
    """A body, ready to be sent to whoever asks in JSON."""
    return _JSON_TAIL + body, 4 + _JSON_LENGTH + len(body)


def _json_frame(answer: JsonAnswer, opaque: int) -> bytes:
    digits = b"%d" % opaque
    size = len(digits)
    return _pack_head(answer[1] + size, _JSON_LENGTH + size) + _JSON_HEAD + digits + answer[0]


def _native_frame(answer: NativeAnswer, opaque: int) -> bytes:
    return answer[0] + opaque.to_bytes(4, signed=True) + answer[1]


_NO_BODY: Final = json_answer(b"")

# 322's answer has an ext field and is put together whole: it is as short as it gets
_CHANGED: Final = {
    changed: b'{"code":0,"extFields":{"changed":"%b"},"flag":1,"language":"PYTHON","opaque":' % text
    for changed, text in ((True, b"true"), (False, b"false"))
}


# the versions of as many brokers as any NameServer has
_spelt: Final = lru_cache(maxsize=10_000)(JSON.encode)


class RouteAnswers:
    """Encoded answers to route questions: `json` and `native`, each ready but for the opaque."""

    def __init__(
        self, tables: RouteTables, options: RouteOptions, order_topic_conf: Callable[[str], str | None], boot_id: str
    ) -> None:
        # the opaque always takes five bytes, so that everything around it is constant
        ext: bytes = msgpack.packb({"boot_id": boot_id})
        self._header_tail = b"\x01" + msgpack.packb(CURRENT_VERSION) + b"\xc0" + ext
        self._header_length = 3 + 4 + len(self._header_tail)
        self.json: RouteCache[JsonAnswer] = RouteCache(tables, options, order_topic_conf, _encode_json)
        self.native: RouteCache[NativeAnswer] = RouteCache(tables, options, order_topic_conf, self._encode_native)

    def _encode_native(self, route: TopicRouteData) -> tuple[NativeAnswer, int]:
        body = NATIVE.encode(route)
        return self.native_answer(body), len(body)

    def native_answer(self, body: bytes) -> NativeAnswer:
        """A body, ready to be sent to whoever asks natively."""
        length = self._header_length
        head = _pack_head(4 + length + len(body), SerializeType.MSGPACK << 24 | length)
        # [code 0, opaque as int32, flag 1, version, nil, ext]
        return head + b"\x96\x00\xd2", self._header_tail + body

    def native_body(self, topic: str) -> bytes | None:
        """The native route of a topic, for an answer with many; None when it has none."""
        answer = self.native.entries.get(topic) or self.native.fill(topic)
        return None if answer is None else answer[1][len(self._header_tail) :]


def _encode_json(route: TopicRouteData) -> tuple[JsonAnswer, int]:
    body = JSON.encode(route)
    return json_answer(body), len(body)


class FastLane:
    """Answers 105, 904 and 322, in JSON and (but for 322) natively, as long as `is_ready`."""

    def __init__(
        self,
        manager: RouteInfoManager,
        answers: RouteAnswers,
        *,
        first_served: Callable[[ServerConnection, str, object], None] | None = None,
        late: LateBrokers | None = None,
    ) -> None:
        self.is_ready = False
        # answered here, for metrics
        self.pulls = 0
        self.heartbeats = 0
        # those of the heartbeats that asked for a version (322)
        self.data_versions = 0
        # for the heartbeat log: who has not got this answer of a topic yet, and pulls of topics with a late broker
        self._first_served = first_served
        self._late_topics = set() if late is None else late.topics
        self._late_pulls = Counter() if late is None else late.pulls
        self._manager = manager
        self._caches: dict[int, RouteCache[Any]] = {_JSON: answers.json, _NATIVE: answers.native}
        self._native_no_body = answers.native_answer(b"")

    def start_to_answer(self) -> None:
        """Answer route questions from now on."""
        self.is_ready = True

    def __repr__(self) -> str:
        return f"<FastLane [{self.pulls} pulls | {self.heartbeats} heartbeats | {self._caches[_JSON]!r}]>"

    def __call__(  # noqa: PLR0911, PLR0913, PLR0917 - one call per frame, and what is not plain leaves at once
        self, connection: ServerConnection, serialize_type: int, header: bytes, data: bytes, body_at: int, end: int
    ) -> bytes | None:
        """The encoded answer, empty when none is due; None: not mine."""
        asked: _JsonHeader | _NativeHeader
        try:
            if serialize_type == _JSON:
                asked = _decode_json(header)
            elif serialize_type == _NATIVE:
                asked = _decode_native(header)
            else:
                return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if asked.ext is None:
            return None
        if asked.code == _PULL:
            return self._pull(connection, asked, asked.ext, serialize_type)
        if asked.code == _HEARTBEAT:
            return self._heartbeat(connection, asked, asked.ext, serialize_type, data[body_at:end])
        if asked.code == _DATA_VERSION and serialize_type == _JSON:
            return self._data_version(connection, asked, asked.ext, data[body_at:end])
        return None

    def _pull(
        self, connection: ServerConnection, asked: _JsonHeader | _NativeHeader, ext: _Ext, serialize_type: int
    ) -> bytes | None:
        topic = ext.topic
        if topic is None or asked.flag or not self.is_ready:
            return None
        cache = self._caches[serialize_type]
        answer = None if ext.zone_mode is None else _in_zone(cache, topic, ext)
        if answer is None:
            answer = cache.entries.get(topic) or cache.fill(topic)
            if answer is None:
                return None
        self.pulls += 1
        if self._first_served is not None:
            served = connection.served
            if served is None or served.get(topic) is not answer:
                self._first_served(connection, topic, answer)
            if self._late_topics and topic in self._late_topics:
                self._late_pulls[topic] += 1
        if connection.role != "client":
            connection.note_role("client")
        if serialize_type == _JSON:
            return _json_frame(answer, asked.opaque)
        return _native_frame(answer, asked.opaque)

    def _heartbeat(  # noqa: PLR0911 - likewise
        self,
        connection: ServerConnection,
        asked: _JsonHeader | _NativeHeader,
        ext: _Ext,
        serialize_type: int,
        body: bytes,
    ) -> bytes | None:
        key = _key(ext)
        if key is None or asked.flag & FLAG_RESPONSE or not _has_numbers(ext):
            return None
        state, is_native = None, serialize_type == _NATIVE
        if is_native:
            if asked.flag or not self._manager.is_registered(key, ext.broker_name or "", ext.broker_id, ext.agent_id):
                return None
            try:
                state = heartbeat_state(body)
            except BadRequestError:
                return None
        if self._manager.touch(key, connection.id, state) is None:
            return None
        self._count_heartbeat(connection)
        if asked.flag & FLAG_ONEWAY:
            return b""
        if not is_native:
            return _json_frame(_NO_BODY, asked.opaque)
        return _native_frame(self._native_no_body, asked.opaque)

    def _data_version(
        self, connection: ServerConnection, asked: _JsonHeader | _NativeHeader, ext: _Ext, body: bytes
    ) -> bytes | None:
        key = _key(ext)
        if key is None or asked.flag & FLAG_RESPONSE or ext.broker_id is None or not _is_number(ext.broker_id):
            return None
        live = self._manager.tables.broker_live_table.get(key)
        if live is None or live.data_version is None:
            return None
        answer = _spelt(live.data_version)
        # a broker spells its version as we do; what is spelt otherwise may still be the same
        changed = body != answer
        if changed and body:
            try:
                changed = JSON.read_data_version(body) != live.data_version
            except BadRequestError:
                return None
        self._manager.touch(key, connection.id)
        self._count_heartbeat(connection)
        self.data_versions += 1
        if asked.flag & FLAG_ONEWAY:
            return b""
        header = b"%b%d%b" % (_CHANGED[changed], asked.opaque, _JSON_TAIL)
        return _pack_head(4 + len(header) + len(answer), len(header)) + header + answer

    def _count_heartbeat(self, connection: ServerConnection) -> None:
        self.heartbeats += 1
        if connection.role != "broker":
            connection.note_role("broker")


def _in_zone(cache: RouteCache[T], topic: str, ext: _Ext) -> T | None:
    zone = ext.zone_name
    if zone is None or not zone.strip() or ext.zone_mode is None or ext.zone_mode.lower() != "true":
        return None
    return cache.fill_zone(topic, zone)


_new_tuple: Final = tuple.__new__


def _key(ext: _Ext) -> BrokerAddrInfo | None:
    if ext.cluster_name and ext.broker_addr and ext.broker_name:
        # as BrokerAddrInfo(…) does, without the Python function that a NamedTuple puts in between
        return _new_tuple(BrokerAddrInfo, (ext.cluster_name, ext.broker_addr))
    return None


# none, and that of a master: what nearly all have
_USUAL_IDS: Final = (None, "0")
# as peers write them; what else can be read as a Java long is for the ordinary road to say
_plain_number: Final = re.compile("0|-?[1-9][0-9]{0,17}").fullmatch


def _has_numbers(ext: _Ext) -> bool:
    """Whether the optional numbers of a heartbeat are numbers."""
    if ext.registration_seq is None and ext.broker_id in _USUAL_IDS:
        return True
    return all(value is None or _is_number(value) for value in (ext.broker_id, ext.registration_seq))


def _is_number(value: str | int) -> bool:
    if value == "0":  # nearly all of them: a master
        return True
    return -(1 << 63) <= value < 1 << 63 if isinstance(value, int) else _plain_number(value) is not None
