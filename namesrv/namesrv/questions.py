"""Headers of the questions that the fast lane answers, and the questions that peers repeat.

Clients and brokers ask the same to the byte again and again, but for the opaque, and one question at a time. Such a
read is recognised as a whole: what it asks, and that it is one sound frame, was found out when it came first.
"""

import re
from typing import Annotated, Final, TypeVar

import msgspec

from namesrv.routeinfo.records import BrokerAddrInfo
from namesrv_remoting.aio.connection import LONGEST_WHOLE_READ
from namesrv_remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, SerializeType
from namesrv_remoting.frames import HEAD

K = TypeVar("K")
V = TypeVar("V")

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]

PULL: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
HEARTBEAT: Final = int(RequestCode.BROKER_HEARTBEAT)
DATA_VERSION: Final = int(RequestCode.QUERY_DATA_VERSION)


class Ext(msgspec.Struct, gc=False):
    """Ext fields that matter to these questions."""

    topic: str | None = None
    zone_mode: str | None = msgspec.field(default=None, name="__ZONE_MODE")
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")
    cluster_name: str | None = msgspec.field(default=None, name="clusterName")
    broker_addr: str | None = msgspec.field(default=None, name="brokerAddr")
    broker_name: str | None = msgspec.field(default=None, name="brokerName")
    broker_id: str | int | None = msgspec.field(default=None, name="brokerId")
    agent_id: str | None = msgspec.field(default=None, name="agentId")
    registration_seq: str | int | None = msgspec.field(default=None, name="registrationSeq")


class JsonHeader(msgspec.Struct, gc=False):
    """A header in JSON; no default where the ordinary road has to decide."""

    code: int
    opaque: Int32
    flag: Int32 = 0
    ext: Ext | None = msgspec.field(default=None, name="extFields")


class NativeHeader(msgspec.Struct, gc=False, array_like=True, forbid_unknown_fields=True):
    """A header in msgpack."""

    code: int
    opaque: Int32
    flag: int
    version: int
    remark: str | None
    ext: Ext | None


decode_json: Final = msgspec.json.Decoder(JsonHeader).decode
decode_native: Final = msgspec.msgpack.Decoder(NativeHeader).decode
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


_new_tuple: Final = tuple.__new__


def sender_of_heartbeat(flag: int, ext: Ext) -> BrokerAddrInfo | None:
    """The broker that a heartbeat (904) speaks for; None if it is unusual in any way."""
    return None if flag & FLAG_RESPONSE or not _has_numbers(ext) else _broker_of(ext)


def sender_of_version(flag: int, ext: Ext) -> BrokerAddrInfo | None:
    """The broker that asks about its version (322); None if it is unusual in any way."""
    if flag & FLAG_RESPONSE or ext.broker_id is None or not _is_number(ext.broker_id):
        return None
    return _broker_of(ext)


def _broker_of(ext: Ext) -> BrokerAddrInfo | None:
    if ext.cluster_name and ext.broker_addr and ext.broker_name:
        # as BrokerAddrInfo(…) does, without the Python function that a NamedTuple puts in between
        return _new_tuple(BrokerAddrInfo, (ext.cluster_name, ext.broker_addr))
    return None


# none, and that of a master: what nearly all have
_USUAL_IDS: Final = (None, "0", 0)
# as peers write them; what else can be read as a Java long is for the ordinary road to say
_plain_number: Final = re.compile("0|-?[1-9][0-9]{0,17}").fullmatch


def _has_numbers(ext: Ext) -> bool:
    """Whether the optional numbers of a heartbeat are numbers."""
    if ext.registration_seq is None and ext.broker_id in _USUAL_IDS:
        return True
    return all(value is None or _is_number(value) for value in (ext.broker_id, ext.registration_seq))


def _is_number(value: str | int) -> bool:
    if value == "0":  # nearly all of them: a master
        return True
    return -(1 << 63) <= value < 1 << 63 if isinstance(value, int) else _plain_number(value) is not None


# -- questions that are repeated --------------------------------------------------------------------------------------

# 13 MB of usual ones, 35 of the longest.
MAX_REPEATED: Final = 32_768
# So often in a row there is no room for another one before all are forgotten: to remember a question costs as much as
# to read it, which must not be added to every question where there are more than there is room for.
_MISSES_PER_ROOM: Final = 10
OPAQUE: Final = b'"opaque":'
# by how many digits an opaque has: that, the least such number and the largest, one object for all questions
_IN_DIGITS: Final = {
    **{digits: (digits, b"1".ljust(digits, b"0"), b"9" * digits) for digits in range(1, 10)},
    10: (10, b"1000000000", b"2147483647"),
}


class Repeated(msgspec.Struct, frozen=True, gc=False):
    """What a read asks whatever the number that its opaque is, in as many digits."""

    # how many there are, and between which numbers they are an opaque
    digits: int
    least: bytes
    most: bytes
    # all that comes behind the opaque
    after: bytes
    # of a route question
    topic: str | None = None
    # of a heartbeat: whose it is, whether nobody waits for its answer, and the version that it asks about, if it does
    key: BrokerAddrInfo | None = None
    is_oneway: bool = False
    version: bytes | None = None


# in the place of several that begin alike, as where the opaque comes before the topic
_SEVERAL: Final = Repeated(0, b"", b"", b"")


class _Remembered(dict[K, V]):
    """A dict itself: the fast lane looks into it with every read."""

    __slots__ = ("_missed", "_room")

    def __init__(self, room: int = MAX_REPEATED) -> None:
        super().__init__()
        self._room = room
        # questions since there was any left
        self._missed = 0

    def has_room(self) -> bool:
        """Whether one more can be remembered; where there has been no room for long, all are forgotten."""
        if len(self) < self._room:
            return True
        self._missed += 1
        if self._missed > self._room * _MISSES_PER_ROOM:
            self._missed = 0
            self.clear()
        return False


class RepeatedQuestions(_Remembered[bytes | tuple[bytes, bytes], Repeated]):
    """What reads in JSON ask, by what comes before the opaque; of several that begin alike, by what comes after it too.

    That is its length as well: a read that begins like another one and goes on like it has as many digits between.
    """

    __slots__ = ("_last_after",)

    def __init__(self, room: int = MAX_REPEATED) -> None:
        super().__init__(room)
        # what came behind the last opaque: one object for all questions of a kind of client
        self._last_after = b""

    def one_of_several(self, data: bytes, before: bytes, rest: bytes) -> Repeated | None:
        """What a read asks of which more than its beginning has to be looked at; None if it is new, and learnt now."""
        opaque, comma, after = rest.partition(b",")
        after = comma + after
        asked = self.get((before, after))
        # the opaque may be somewhere else, perhaps in what would be remembered: each question would be another one
        if asked is None and comma and opaque.isdigit() and len(opaque) in _IN_DIGITS and self.has_room():
            self._learn(data, before, opaque, after)
        return asked

    def _learn(self, data: bytes, before: bytes, opaque: bytes, after: bytes) -> None:
        """Remember what a read asks, or that it is nothing plain."""
        after = self._last_after = self._last_after if after == self._last_after else after
        asked = _repeated(_read(data, before, opaque, after), opaque, after, data[_body_at(data) :])
        first = self.setdefault(before, asked)
        if first is asked:
            return
        if first is not _SEVERAL:
            self[before, first.after] = first
            self[before] = _SEVERAL
        self[before, after] = asked


# array of six, code, opaque, flag, version, nil, empty map
_LEAST_PULL: Final = 8 + 7
# What a native route question without a body begins with, by how long its frame is: all before the opaque.
NATIVE_PULLS: Final = [
    HEAD.pack(size - 4, SerializeType.MSGPACK << 24 | size - 8) + b"\x96" + bytes([PULL])
    if size >= _LEAST_PULL
    else b""
    for size in range(LONGEST_WHOLE_READ + 1)
]
# Where its opaque ends, by the first byte of that; 0: not as msgpack writes a number from 0 on.
NATIVE_OPAQUE_ENDS: Final = bytes([11] * 0x80 + [0] * 0x4C + [12, 13, 15] + [0] * 0x31)


class RepeatedPulls(_Remembered[bytes, str]):
    """The topics that reads ask natively for, by what comes behind the opaque.

    What is nothing plain asks for an empty one here, which never has a route.
    """

    __slots__ = ()

    def learn(self, data: bytes, after: bytes) -> None:
        """Remember what a read asks, or that it is nothing plain."""
        if self.has_room():
            self[after] = _native_topic(data)


def _native_topic(data: bytes) -> str:
    try:
        asked = decode_native(data[8:])
    except UNREADABLE:
        return ""
    ext = asked.ext
    return "" if asked.flag or ext is None or ext.zone_mode is not None else ext.topic or ""


def _body_at(data: bytes) -> int:
    return 8 + int.from_bytes(data[5:8])


def _read(data: bytes, before: bytes, opaque: bytes, after: bytes) -> JsonHeader | None:
    """The header of a read that is one whole frame in JSON, if what is taken for its opaque is that."""
    size, body_at = len(data), _body_at(data)
    if HEAD.unpack_from(data) != (size - 4, body_at - 8) or not len(before) < body_at <= size:
        return None
    try:
        asked = decode_json(data[8:body_at])
        # Other members, such as ext fields, may look like it. If it is the opaque, another number is another opaque.
        other = asked.opaque ^ 1
        probe = decode_json(b"%b%b%d%b" % (before[8:], OPAQUE, other, after[: len(after) - (size - body_at)]))
    except UNREADABLE:
        return None
    return asked if probe.opaque == other and opaque == b"%d" % asked.opaque else None


def _repeated(asked: JsonHeader | None, opaque: bytes, after: bytes, body: bytes) -> Repeated:
    """What it asks; neither a topic nor a key if that is nothing of the kind, and need not be looked at again."""
    plain = (*_IN_DIGITS[len(opaque)], after)
    # a number below 1 is too rare to be worth a further look at all others
    if asked is None or (ext := asked.ext) is None or asked.opaque < 1:
        return Repeated(*plain)
    is_oneway = bool(asked.flag & FLAG_ONEWAY)
    if asked.code == PULL and not asked.flag and ext.topic is not None and ext.zone_mode is None:
        return Repeated(*plain, topic=ext.topic)
    if asked.code == HEARTBEAT and (key := sender_of_heartbeat(asked.flag, ext)) is not None:
        return Repeated(*plain, key=key, is_oneway=is_oneway)
    if asked.code == DATA_VERSION and (key := sender_of_version(asked.flag, ext)) is not None:
        return Repeated(*plain, key=key, is_oneway=is_oneway, version=body)
    return Repeated(*plain)
