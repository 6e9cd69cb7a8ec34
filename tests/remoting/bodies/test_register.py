"""Registrations in every form that brokers send, and their limits."""

import sys
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED, AdvertisedAddresses
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.bodies.compressed import write_compressed
from namesrv_remoting.bodies.limits import RegistrationLimits
from namesrv_remoting.bodies.register import (
    RegisterBrokerBody,
    decode_body,
    decode_native_body,
    encode_json_body,
    encode_native_body,
)
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError
from tests.support.commands import INT32, MAPPINGS, NAMES, VERSIONS
from tests.support.steps import finished

MEBIBYTE = 1 << 20
# as a 5.x broker sends it
JSON_BODY = (
    b'{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":2,'
    b'"timestamp":100},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"topicConfigTable":{"T1":'
    b'{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T1",'
    b'"topicSysFlag":1,"writeQueueNums":7}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"S":{"bname":'
    b'"b","currIdMap":{0:1,12:3},"dirty":false,"epoch":7,"scope":"__global__","topic":"S","totalQueues":2}}}}'
)
WRAPPER = b'{"dataVersion":{"counter":3,"timestamp":100},"topicConfigTable":{"T1":{"topicName":"T1","perm":4}}}'
# DataVersion, one topic, no filter servers, no static-topic mappings
OLD_INFLATED = (
    b'\x00\x00\x00\x1d{"counter":3,"timestamp":100}'
    b"\x00\x00\x00\x01\x00\x00\x00\x16T1 8 7 6 SINGLE_TAG {}"
    b"\x00\x00\x00\x02[]"
)
NEW_INFLATED = OLD_INFLATED + b"\x00\x00\x00\x00"
MAPPING = TopicQueueMappingInfo("S", "b", "__global__", 7, 2, dirty=False, curr_id_map={0: 1, 12: 3})
NATIVE_BODY = (
    b"\x85"
    b"\xadtopic_configs\x91\x85\xaatopic_name\xa2T1\xafread_queue_nums\x08\xb0write_queue_nums\x07\xa4perm\x06"
    b"\xaetopic_sys_flag\x01"
    b"\xacdata_version\x83\xa7counter\x03\xadstate_version\x02\xa9timestamp\x64"
    b"\xbctopic_queue_mapping_info_map\x80"
    b"\xb2filter_server_list\x91\xa3f:1"
    b"\xaedeleted_topics\x91\xa3OLD"
)
NATIVE = RegisterBrokerBody((TopicConfig("T1", 8, 7, 6, 1),), DataVersion(3, 2, 100), {}, ("f:1",), ("OLD",))
# larger than what is parsed at once
PADDING = b"x" * 8_192
PAD = b'"pad1":"' + PADDING + b'","pad2":["' + PADDING + b'"],'
every_size = pytest.mark.parametrize("pad", [pytest.param(b"", id="whole"), pytest.param(PAD, id="in slices")])


def read(body: bytes, version: int = 479, *, compressed: bool = False) -> RegisterBrokerBody:
    """The registration of a RocketMQ broker."""
    return frozen(finished(decode_body(body, version, compressed=compressed)))


def read_native(body: bytes, *, compressed: bool = False) -> RegisterBrokerBody:
    """The registration of a native broker."""
    return frozen(finished(decode_native_body(body, compressed=compressed)))


def frozen(body: RegisterBrokerBody) -> RegisterBrokerBody:
    """The same with a tuple of topics, because JSON topics have a type of their own."""
    topics = (msgspec.convert(topic, TopicConfig, from_attributes=True) for topic in body.topic_configs)
    return replace(body, topic_configs=tuple(topics))


@pytest.mark.parametrize("version", [37, 317, 401, 413, 479, 612])
@every_size
def test_json_form(version: int, pad: bytes) -> None:
    """From version 37 on: topics, DataVersion, filter servers, and static-topic mappings with bare integer keys."""
    topic = TopicConfig("T1", 8, 7, 6, 1)

    assert read(b"{" + pad + JSON_BODY[1:], version) == RegisterBrokerBody(
        (topic,), DataVersion(3, 2, 100), {"S": MAPPING}, ("f:1",)
    )


@pytest.mark.parametrize("version", [0, 36])
@pytest.mark.parametrize("compressed", [True, False])
@every_size
def test_oldest_form(version: int, pad: bytes, compressed: bool) -> None:
    """Before version 37 the body is the bare wrapper, never compressed, and keeps the known filter servers."""
    body = RegisterBrokerBody((TopicConfig("T1", perm=4),), DataVersion(3, 0, 100), {}, None)

    assert read(b"{" + pad + WRAPPER[1:], version, compressed=compressed) == body


@pytest.mark.parametrize(("version", "inflated"), [(37, OLD_INFLATED), (412, OLD_INFLATED), (413, NEW_INFLATED)])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_compressed_form(version: int, inflated: bytes, compressed: bool, level: int) -> None:
    """Mappings follow from 413 on; 5.x brokers send compressed=false by mistake, so that zlib's magic decides."""
    body = RegisterBrokerBody((TopicConfig("T1", 8, 7, 6),), DataVersion(3, 0, 100), {}, ())

    assert read(zlib.compress(inflated, level), version, compressed=compressed) == body


def test_native_form() -> None:
    """Names are in snake_case; a delta names deleted topics; the header marks zlib."""
    assert read_native(NATIVE_BODY) == NATIVE
    assert read_native(zlib.compress(NATIVE_BODY), compressed=True) == NATIVE
    assert encode_native_body(NATIVE) == NATIVE_BODY


@pytest.mark.parametrize("version", [0, 36, 37, 479])
def test_no_body_registers_no_topics(version: int) -> None:
    """An empty body has a DataVersion of zeros and no filter servers, compressed or not."""
    for compressed in (False, True):
        assert read(b"", version, compressed=compressed) == RegisterBrokerBody((), DataVersion(0, 0, 0), {}, ())


@every_size
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (b'"a":1', RegisterBrokerBody((), None, {}, ())),
        (b'"filterServerList":null', RegisterBrokerBody((), None, {}, None)),
        (b'"topicConfigSerializeWrapper":{}', RegisterBrokerBody((), None, {}, ())),
        (b'"topicConfigSerializeWrapper":{"dataVersion":null}', RegisterBrokerBody((), None, {}, ())),
        (b'"topicConfigSerializeWrapper":{"dataVersion":{}}', RegisterBrokerBody((), DataVersion(0, 0, 0), {}, ())),
        (b'"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":null}', RegisterBrokerBody((), None, {}, ())),
        (
            b'"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"S":{"currIdMap":{"0":1,-1:2}}}}',
            RegisterBrokerBody((), None, {"S": TopicQueueMappingInfo(curr_id_map={0: 1, -1: 2})}, ()),
        ),
        # the last of duplicate members counts, as a whole
        (
            (b'"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"T":{"topicName":"T"}},'
            b'"topicQueueMappingInfoMap":{"S":{}}},"topicConfigSerializeWrapper":{}'),
            RegisterBrokerBody((), None, {}, ()),
        ),
        (
            b'"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"S":{}},"topicQueueMappingInfoMap":null}',
            RegisterBrokerBody((), None, {}, ()),
        ),
    ],
    ids=["empty", "no filter servers", "empty wrapper", "no version", "empty version", "no mappings", "mixed keys",
         "wrapper twice", "mappings twice"],
)  # fmt: skip
def test_missing_and_null_members(members: bytes, expected: RegisterBrokerBody, pad: bytes) -> None:
    """A missing DataVersion is None and equals no other; null filter servers keep the known ones."""
    assert read(b"{" + pad + members + b"}") == expected


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("ABC"), st.integers(0, 9)), max_size=8))
def test_last_of_duplicate_topics_counts(entries: list[tuple[str, str, int]]) -> None:
    """Duplicates are found by their keys and then by the names in their values, in any slices."""
    sent = ",".join(
        f'"{key}":{{"pad":"{"x" * 6000}","topicName":"{name}","readQueueNums":{queues}}}'
        for key, name, queues in entries
    )
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{sent}}}}}}}'.encode()

    by_key = {key: (name, queues) for key, name, queues in entries}
    assert dict(by_key.values()) == {topic.topic_name: topic.read_queue_nums for topic in read(body).topic_configs}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", RegisterBrokerBody((), DataVersion(0, 0, 0), {}, None)),
        (b"\x80", RegisterBrokerBody((), None, {}, None)),
        (b"\x81\xb2filter_server_list\x90", RegisterBrokerBody((), None, {}, ())),
        (
            b"\x82\xa1x\x91\xc0\xbctopic_queue_mapping_info_map\x81\xa1S\x81\xabcurr_id_map\x82\x00\x01\x0c\x03",
            RegisterBrokerBody((), None, {"S": TopicQueueMappingInfo(curr_id_map={0: 1, 12: 3})}, None),
        ),
        (
            (
                b"\x84\xaedeleted_topics\x91\xa1a\xadtopic_configs\x91\x81\xaatopic_name\xa1a"
                b"\xaedeleted_topics\x91\xa1b\xadtopic_configs\x90"
            ),
            RegisterBrokerBody((), None, {}, None, ("b",)),
        ),
    ],
    ids=["no body", "empty", "no filter servers any more", "mapping", "twice"],
)
def test_native_members_may_be_missing(body: bytes, expected: RegisterBrokerBody) -> None:
    """Missing members change nothing: a missing filter server list keeps the known ones. The last duplicate counts."""
    assert read_native(body) == expected


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{{{{", "JSON is malformed: object keys must be strings near '{{{'"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"topicConfigSerializeWrapper":null}', "Expected `object`, got `null` - at `$.topicConfigSerializeWrapper`"),
        *(
            (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":%b}}}' % topic, error)
            for topic, error in (
                (b"null", "Expected `object`, got `null` - at `$.topicConfigSerializeWrapper.topicConfigTable[...]`"),
                (b"{}", "Object missing required field `topicName`"),
                (b'{"topicName":"T","perm":2147483648}', "Expected `int` <= 2147483647"),
            )
        ),
        (b'{"filterServerList":[null]}', "Expected `str`, got `null` - at `$.filterServerList[0]`"),
        # otherwise every native request for the topic would fail
        *(
            (b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{"currIdMap":{%b}}}}}' % ids, error)
            for ids, error in (
                (b'"2147483648":0', "Expected `int` <= 2147483647 - at `key` in"),
                (b"-2147483649:0", "Expected `int` >= -2147483648 - at `key` in"),
                (b"0:2147483648", "Expected `int` <= 2147483647 - at"),
                (b"18446744073709551616:0", "Expected `int` <= 2147483647 - at `key` in"),
            )
        ),
        pytest.param(
            b"{" + PAD + b'"filterServerList":[null]}', "Expected `str`, got `null` - at `$[0]`", id="in slices"
        ),
    ],
)
def test_invalid_json_registration_is_refused(body: bytes, error: str) -> None:
    """The refusal comes before any change; Java would register an empty broker group for some of these."""
    with pytest.raises(BadRequestError) as caught:
        read(body)
    assert (caught.value.remark or "").startswith(f"body of REGISTER_BROKER cannot be read: {error}")


@pytest.mark.parametrize(
    ("body", "version", "error"),
    [
        (JSON_BODY, -1, "version -1 is negative"),
        (b"", -1, "version -1 is negative"),
        (JSON_BODY, 479, "compressed body cannot be read: Error -3 while decompressing data: incorrect header check"),
        (zlib.compress(NEW_INFLATED)[:-1], 479, r"compressed body of \d+ bytes is cut short"),
        (zlib.compress(OLD_INFLATED), 413, "compressed body ends before the number of static-topic mappings"),
        (zlib.compress(JSON_BODY), 479, "compressed body: length of the DataVersion 2065852009, limit 512"),
    ],
    ids=["negative version", "negative version without a body", "not compressed", "cut", "of an old broker",
         "compressed json"],
)  # fmt: skip
def test_invalid_compressed_body_is_refused(body: bytes, version: int, error: str) -> None:
    """The remark contains the reason."""
    with pytest.raises(BadRequestError, match=f"^{error}$"):
        read(body, version, compressed=True)


@pytest.mark.parametrize(
    "body",
    [
        *(b"\xc0", b"\x90", b"{}", b"\x81\xc1", b"\x81\xadtopic_configs\x91\xc1", b"\x81\xadtopic_configs\xc0"),
        *(b"\x81\xadtopic_configs\x91" + topic for topic in (b"\x80", b"\x81\xaatopic_name\xa0")),
        *(b"\x81\xadtopic_configs\xdd\x00\x01\x00\x00", b"\x81\xb2filter_server_list\x91\xa0"),
        *(b"\x81\xaedeleted_topics\x91\xa0", b"\x81\xacdata_version\x81\xa7counter\xcf" + b"\xff" * 8),
        b"\x81\xbctopic_queue_mapping_info_map\x81\xa1T\x81\xabcurr_id_map\x81\x00\xce\x80\x00\x00\x00",
        NATIVE_BODY[:-1],
        NATIVE_BODY + b"\x80",
        # our own agents declare compression, so that the magic is not checked
        zlib.compress(NATIVE_BODY),
    ],
)
def test_invalid_native_body_is_refused(body: bytes) -> None:
    """Wrong types, empty names, false lengths, truncation and trailing bytes are refused."""
    with pytest.raises(BadRequestError, match=r"^body of REGISTER_BROKER (\([\w -]+\) )?cannot be read: "):
        read_native(body)


# -- limits -----------------------------------------------------------------------------------------------------------

FEW = RegistrationLimits(max_topics=2)


@every_size
@pytest.mark.parametrize("number", [2, 3])
def test_json_registration_is_limited(number: int, pad: bytes) -> None:
    """Topics, mappings and the queues of all mappings are limited."""
    topics = b",".join(b'"%d":{"topicName":"t"}' % count for count in range(number))
    mappings = b",".join(b'"%d":{}' % count for count in range(number))
    queues = b'"S":{"currIdMap":{%b}},"T":{"currIdMap":{0:0}}' % b",".join(
        b"%d:0" % count for count in range(number + 1)
    )
    for member, found, what in (
        (b"topicConfigTable", topics, "3 topics in one registration, limit 2"),
        (b"topicQueueMappingInfoMap", mappings, "3 static-topic mappings in one registration, limit 2"),
        (b"topicQueueMappingInfoMap", queues, "5 queues of static topics in one registration, limit 4"),
    ):
        body = b'{%b"topicConfigSerializeWrapper":{"%b":{%b}}}' % (pad, member, found)
        try:
            finished(decode_body(body, 479, compressed=False, limits=FEW))
            assert number == 2
        except BadRequestError as error:
            assert (number, what) == (3, error.remark)  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"\x81\xadtopic_configs\xdd\x00\x00\x00\x03", "topics"),
        (b"\x81\xaedeleted_topics\xdd\x00\x00\x00\x03", "deleted topics"),
        (b"\x81\xbctopic_queue_mapping_info_map\xdf\x00\x00\x00\x03", "static-topic mappings"),
    ],
)
def test_native_registration_is_limited(body: bytes, what: str) -> None:
    """Lengths are checked before any element is decoded."""
    with pytest.raises(BadRequestError, match=f"^3 {what} in one registration, limit 2$"):
        finished(decode_native_body(body, compressed=False, limits=FEW))


def test_limits_hold_for_both_protocols() -> None:
    """A body that inflates beyond the limit is refused while it inflates."""
    lines = b"\x00\x00\x00\x02{}" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x02[]" + bytes(8 * MEBIBYTE)
    topic = b"\x82\xaatopic_name\xa1a\xa1x\xc5\xff\x00" + bytes(0xFF00)
    native = b"\x81\xadtopic_configs\xdc\x00\x80" + topic * 128
    limits = RegistrationLimits(max_inflated_bytes=2 * MEBIBYTE, max_inflate_ratio=1032)
    bodies = zlib.compress(lines), zlib.compress(native)

    tracemalloc.start()
    try:
        for body, steps in (
            (bodies[0], decode_body(bodies[0], 479, compressed=False, limits=limits)),
            (bodies[1], decode_native_body(bodies[1], compressed=True, limits=limits)),
        ):
            with pytest.raises(BadRequestError) as caught:
                finished(steps)
            assert caught.value.remark == f"compressed body of {len(body)} bytes inflates to more than 2097152"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEBIBYTE


@pytest.mark.parametrize("is_native", [False, True])
def test_number_of_topics_is_limited_by_the_compressed_size(is_native: bool) -> None:
    """Three kilobytes may inflate to twenty thousand equal topics; topics that differ are read."""
    names = [f"{number:05}" for number in range(20_000)]

    def read_back(names: list[str]) -> int:
        topics = [TopicConfig(name) for name in names]
        if is_native:
            body = zlib.compress(encode_native_body(RegisterBrokerBody(topics)))
            return len(read_native(body, compressed=True).topic_configs)
        return len(read(write_compressed(topics, DataVersion(), {}, []), compressed=True).topic_configs)

    assert read_back(names) == 20_000
    with pytest.raises(BadRequestError, match=r"20000\D.* limit \d{4,5}$"):
        read_back(["T"] * 20_000)
    assert read_back(["T"] * 1000) == 1000


_FEW = RegistrationLimits(max_topics=19_000)
_MANY = RegisterBrokerBody([TopicConfig(f"topic-{number}") for number in range(20_000)], DataVersion(1, 2, 3))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(lambda: decode_body(encode_json_body(_MANY), 401, compressed=False, limits=_FEW), id="JSON"),
        pytest.param(lambda: decode_native_body(encode_native_body(_MANY)[:-1], compressed=False), id="native"),
        pytest.param(
            lambda: decode_body(
                write_compressed(_MANY.topic_configs, DataVersion(), {}, [])[:-9], 401, compressed=True
            ),
            id="compressed",
        ),
    ],
)
def test_refused_registration_is_freed_in_steps(steps: Callable[[], Steps[RegisterBrokerBody]]) -> None:
    """Freeing 100,000 topics at once would block the loop for 12 ms."""
    decoding, held = steps(), [sys.getallocatedblocks()]
    with pytest.raises(BadRequestError):
        held.extend(sys.getallocatedblocks() for _ in decoding)
    assert max(held) - held[0] > 15_000
    assert held[-1] - held[0] < 5_000


def test_default_limits() -> None:
    """100,000 topics, 64 MiB, and 200 times the compressed size."""
    assert RegistrationLimits(100_000, 64 * MEBIBYTE, 200) == RegistrationLimits()


@pytest.mark.parametrize(
    ("body_bytes", "compressed", "most"),
    [
        *((0, False, 2_097_152), (1_000, False, 2_161_152), (MEBIBYTE, False, 7_315_456)),
        *((1_000, True, 7_315_456), (200_000, True, 11_121_152), (MEBIBYTE, True, 19_898_368)),
    ],
)
def test_memory_is_estimated_before_decoding(body_bytes: int, compressed: bool, most: int) -> None:
    """JSON in slices: 2 MiB and 64 times the body; native: 4 times and a kibibyte per topic; streams: their limit."""
    limits = RegistrationLimits(max_topics=1000, max_inflated_bytes=4 * MEBIBYTE, max_inflate_ratio=10)

    assert limits.most_bytes(body_bytes, compressed=compressed) == most


# -- round trips ------------------------------------------------------------------------------------------------------

REGISTRATIONS = st.builds(
    RegisterBrokerBody,
    topic_configs=st.lists(
        st.builds(TopicConfig, NAMES, INT32, INT32, INT32, INT32), max_size=5, unique_by=lambda topic: topic.topic_name
    ).map(tuple),
    data_version=VERSIONS,
    mappings=st.dictionaries(NAMES, MAPPINGS, max_size=3),
    filter_servers=st.lists(NAMES, max_size=3).map(tuple),
)


@given(REGISTRATIONS, st.lists(NAMES, max_size=3).map(tuple))
def test_round_trip(body: RegisterBrokerBody, deleted_topics: tuple[str, ...]) -> None:
    """A written registration is read back, in JSON, in sliced JSON, and natively."""
    advertised = (
        AdvertisedAddresses({"outside": "h:1"}, {"outside": "[::1]:2"}) if deleted_topics else NOTHING_ADVERTISED
    )
    delta = replace(body, deleted_topics=deleted_topics, advertised=advertised)
    written = encode_json_body(body)

    assert read_native(encode_native_body(delta)) == delta
    assert body == read(written) == read(b"{" + PAD + written[1:])


def test_written_json_equals_javas() -> None:
    """JSON is compact and alphabetical, with quoted integer keys and the members that no NameServer uses."""
    body = RegisterBrokerBody((TopicConfig("T1", 8, 7, 6, 1),), DataVersion(3, 2, 100), {"S": MAPPING}, ("f:1",))

    assert encode_json_body(body) == (
        b'{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":2,'
        b'"timestamp":100},"topicConfigTable":{"T1":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":1,"writeQueueNums":7}},'
        b'"topicQueueMappingInfoMap":{"S":{"bname":"b","currIdMap":{"0":1,"12":3},"dirty":false,"epoch":7,'
        b'"scope":"__global__","topic":"S","totalQueues":2}}}}'
    )
