"""Fast path for route questions and heartbeats, answered inside `data_received`.

One typed decode of the header, one look-up of an answer that is already encoded, one copy with the opaque in it. What
is unusual in any way is left to the ordinary road, which knows every case and every error.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final, TypeVar

import msgpack

from namesrv.heartbeat_log.late_brokers import LateBrokers
from namesrv.questions import (
    DATA_VERSION,
    HEARTBEAT,
    NATIVE_OPAQUE_ENDS,
    NATIVE_PULLS,
    OPAQUE,
    PULL,
    UNREADABLE,
    Ext,
    JsonHeader,
    NativeHeader,
    Repeated,
    RepeatedPulls,
    RepeatedQuestions,
    decode_json,
    decode_native,
    sender_of_heartbeat,
    sender_of_version,
)
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.records import BrokerAddrInfo, RouteOptions, TopicRow
from namesrv.routeinfo.route_cache import RouteCache
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.aio.connection import ServerConnection
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.extensions import heartbeat_state
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import CURRENT_VERSION, FLAG_ONEWAY, SerializeType
from namesrv_remoting.errors import BadRequestError

T = TypeVar("T")
# what comes before the opaque, and after it
NativeAnswer = tuple[bytes, bytes]
# notes which answer of a topic a connection has got
FirstServed = Callable[[ServerConnection, str, object], None]

_JSON: Final = int(SerializeType.JSON)
_NATIVE: Final = int(SerializeType.MSGPACK)


# -- JSON: the opaque has as many digits as it has, so both lengths are made when answering ---------------------------

_pack_head: Final = Struct(">II").pack
_JSON_HEAD: Final = b'{"code":0,"flag":1,"language":"PYTHON","opaque":'
_JSON_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
_JSON_LENGTH: Final = len(_JSON_HEAD) + len(_JSON_TAIL)
# what comes after the opaque, the frame's length without it, and what comes before it, by how many digits it has, once
# somebody has asked with as many
JsonAnswer = tuple[bytes, int, list[bytes]]
# a sign and ten digits at most
_HEADS: Final = 12


def json_answer(body: bytes) -> JsonAnswer:
    """A body, ready to be sent to whoever asks in JSON."""
    return _JSON_TAIL + body, 4 + _JSON_LENGTH + len(body), [b""] * _HEADS


def _json_head(answer: JsonAnswer, digits: int) -> bytes:
    head = answer[2][digits] = _pack_head(answer[1] + digits, _JSON_LENGTH + digits) + _JSON_HEAD
    return head


def _json_frame(answer: JsonAnswer, opaque: bytes) -> bytes:
    digits = len(opaque)
    return (answer[2][digits] or _json_head(answer, digits)) + opaque + answer[0]


def _native_frame(answer: NativeAnswer, opaque: int) -> bytes:
    return b"".join((answer[0], opaque.to_bytes(4, signed=True), answer[1]))


# of a topic that has none
_NO_ROW: Final = TopicRow(())

_NO_BODY: Final = json_answer(b"")

# from here on four bytes are no opaque
_NO_INT32: Final = b"\x80"
# where an opaque that has four bytes ends
_WHOLE_OPAQUE: Final = 15

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
        self.json: RouteCache[JsonAnswer] = RouteCache(tables, options, order_topic_conf, _encode_json, "json")
        self.native: RouteCache[NativeAnswer] = RouteCache(
            tables, options, order_topic_conf, self._encode_native, "native"
        )

    def clear(self) -> None:
        """Forget them all."""
        self.json.clear()
        self.native.clear()

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
        answer = self.native.find(topic)
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
        first_served: FirstServed | None = None,
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
        self._rows = manager.tables.topic_queue_table
        self._repeated = RepeatedQuestions()
        self._pulls = RepeatedPulls()
        self._caches: dict[int, RouteCache[Any]] = {_JSON: answers.json, _NATIVE: answers.native}
        self._native_no_body = answers.native_answer(b"")

    def start_to_answer(self) -> None:
        """Answer route questions from now on."""
        self.is_ready = True

    def __repr__(self) -> str:
        return f"<FastLane [{self.pulls} pulls | {self.heartbeats} heartbeats | {self._caches[_JSON]!r}]>"

    def answer(  # noqa: PLR0911, PLR0913, PLR0917 - one call per frame, and what is not plain leaves at once
        self, connection: ServerConnection, serialize_type: int, header: bytes, data: bytes, body_at: int, end: int
    ) -> bytes | None:
        """The encoded answer, empty when none is due; None: not mine."""
        asked: JsonHeader | NativeHeader
        try:
            if serialize_type == _JSON:
                asked = decode_json(header)
            elif serialize_type == _NATIVE:
                asked = decode_native(header)
            else:
                return None
        except UNREADABLE:
            return None
        if asked.ext is None:
            return None
        if asked.code == PULL:
            return self._pull(connection, asked, asked.ext, serialize_type)
        if asked.code == HEARTBEAT:
            return self._heartbeat(connection, asked, asked.ext, serialize_type, data[body_at:end])
        if asked.code == DATA_VERSION and serialize_type == _JSON:
            key = sender_of_version(asked.flag, asked.ext)
            is_oneway = bool(asked.flag & FLAG_ONEWAY)
            digits = b"%d" % asked.opaque
            return key and self._data_version(connection, key, data[body_at:end], digits, is_oneway=is_oneway)
        return None

    def _pull(
        self, connection: ServerConnection, asked: JsonHeader | NativeHeader, ext: Ext, serialize_type: int
    ) -> bytes | None:
        topic = ext.topic
        if topic is None or asked.flag or not self.is_ready:
            return None
        cache = self._caches[serialize_type]
        answer = None if ext.zone_mode is None else _in_zone(cache, topic, ext)
        if answer is None:
            answer = cache.find(topic)
            if answer is None:
                return None
        self._count_pull(connection, topic, answer)
        if serialize_type == _JSON:
            return _json_frame(answer, b"%d" % asked.opaque)
        return _native_frame(answer, asked.opaque)

    def _count_pull(self, connection: ServerConnection, topic: str, answer: object) -> None:
        self.pulls += 1
        if self._first_served is not None:
            self._note_pull(self._first_served, connection, topic, answer)
        if connection.role != "client":
            connection.note_role("client")

    def _note_pull(self, first_served: FirstServed, connection: ServerConnection, topic: str, answer: object) -> None:
        served = connection.served
        if served is None or served.get(topic) is not answer:
            first_served(connection, topic, answer)
        if self._late_topics and topic in self._late_topics:
            self._late_pulls[topic] += 1

    def answer_repeated(  # noqa: C901, PLR0911, PLR0912 - likewise; a call for each part would cost as much as the part
        self, connection: ServerConnection, serialize_type: int, data: bytes
    ) -> bytes | None:
        """The same for a whole read, if it is one question that was asked before, but for its opaque."""
        json_answer: JsonAnswer | None
        native_answer: NativeAnswer | None
        answer: JsonAnswer | NativeAnswer | None
        if serialize_type == _JSON:
            # from behind, where Java clients have it
            before, _, rest = data.rpartition(OPAQUE)
            asked = self._repeated.get(before)
            if asked is None or rest[asked.digits :] != asked.after:
                asked = self._repeated.one_of_several(data, before, rest)
                if asked is None:
                    return None
            opaque = rest[: asked.digits]
            if not opaque.isdigit() or not asked.least <= opaque <= asked.most:
                return None
            topic = asked.topic
            if topic is None:
                return self._repeated_heartbeat(connection, asked, opaque)
            if not self.is_ready:
                return None
            answer = json_answer = self._rows.get(topic, _NO_ROW).json or self._caches[_JSON].find(topic)
            if json_answer is None:
                return None
            before, after = json_answer[2][asked.digits] or _json_head(json_answer, asked.digits), json_answer[0]
        else:
            at = NATIVE_OPAQUE_ENDS[data[10]] if data[:10] == NATIVE_PULLS[len(data)] else 0
            if not at:
                return None
            topic = self._pulls.get(after := data[at:])
            if topic is None:
                self._pulls.learn(data, after)
                return None
            # one below 128 has no byte before it
            opaque = data[11:at] if at == _WHOLE_OPAQUE else (data[11:at] or data[10:11]).rjust(4, b"\0")
            if opaque >= _NO_INT32 or not self.is_ready:
                return None
            answer = native_answer = self._rows.get(topic, _NO_ROW).native or self._caches[_NATIVE].find(topic)
            if native_answer is None:
                return None
            before, after = native_answer
        # as `_pull` does, without its calls: this is nearly all of the traffic
        self.pulls += 1
        if self._first_served is not None:
            self._note_pull(self._first_served, connection, topic, answer)
        if connection.role != "client":
            connection.note_role("client")
        frame: bytes = before + opaque + after
        return frame

    def _repeated_heartbeat(self, connection: ServerConnection, asked: Repeated, opaque: bytes) -> bytes | None:
        if asked.key is None:
            return None
        if asked.version is not None:
            return self._data_version(connection, asked.key, asked.version, opaque, is_oneway=asked.is_oneway)
        if self._manager.touch(asked.key, connection.id) is None:
            return None
        self._count_heartbeat(connection)
        return b"" if asked.is_oneway else _json_frame(_NO_BODY, opaque)

    def _heartbeat(  # noqa: PLR0911 - likewise
        self,
        connection: ServerConnection,
        asked: JsonHeader | NativeHeader,
        ext: Ext,
        serialize_type: int,
        body: bytes,
    ) -> bytes | None:
        key = sender_of_heartbeat(asked.flag, ext)
        if key is None:
            return None
        state, is_native = None, serialize_type == _NATIVE
        if is_native:
            broker = (key, ext.broker_name or "", ext.broker_id, ext.agent_id, connection.id)
            if asked.flag or not self._manager.is_registered(*broker):
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
            return _json_frame(_NO_BODY, b"%d" % asked.opaque)
        return _native_frame(self._native_no_body, asked.opaque)

    def _data_version(
        self, connection: ServerConnection, key: BrokerAddrInfo, body: bytes, opaque: bytes, *, is_oneway: bool
    ) -> bytes | None:
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
        if is_oneway:
            return b""
        header = b"%b%b%b" % (_CHANGED[changed], opaque, _JSON_TAIL)
        return _pack_head(4 + len(header) + len(answer), len(header)) + header + answer

    def _count_heartbeat(self, connection: ServerConnection) -> None:
        self.heartbeats += 1
        if connection.role != "broker":
            connection.note_role("broker")


def _in_zone(cache: RouteCache[T], topic: str, ext: Ext) -> T | None:
    zone = ext.zone_name
    if zone is None or not zone.strip() or ext.zone_mode is None or ext.zone_mode.lower() != "true":
        return None
    return cache.find_in_zone(topic, zone)
