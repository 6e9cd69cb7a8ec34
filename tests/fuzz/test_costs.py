"""Cost of an input: bounded memory and calls per byte.

Hypothesis searches the most expensive input of every decoder among repetitive ones, since only those are large.
"""

import gc
import struct
import sys
import time
import tracemalloc
import zlib
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Final, NamedTuple

import pytest
from hypothesis import Phase, given, settings, target
from hypothesis import strategies as st

from namesrv.net.proxy_header import read_proxy_header
from namesrv_remoting.bodies import extensions
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.limits import DEFAULT_LIMITS
from namesrv_remoting.bodies.properties import PropertiesError, parse_properties
from namesrv_remoting.bodies.register import RegisterBrokerBody, decode_body, decode_native_body, encode_json_body
from namesrv_remoting.bodies.route import read_queue_datas
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import decode_frame

MEBIBYTE: Final = 1 << 20


class Decoder(NamedTuple):
    """A decoder and the parts of its documents."""

    decode: Callable[[bytes], object]
    # possible beginnings and repeated parts
    beginnings: tuple[bytes, ...]
    tokens: tuple[bytes, ...]
    # a registration is read in slices, and needs several of them
    max_bytes: int = 16 * 1024


Registering = Generator[None, None, RegisterBrokerBody]


def in_json(document: bytes) -> Registering:
    """Decode as a registration of a RocketMQ broker."""
    return decode_body(document, 479, compressed=False)


def natively(document: bytes) -> Registering:
    """Decode as a registration of a native broker."""
    return decode_native_body(document, compressed=False)


def header(serialize_type: int) -> Callable[[bytes], object]:
    """Decode as a header of this type."""
    return lambda document: decode_frame(Frame(serialize_type, document, b""))


JSON_TOKENS: Final = (
    *b'{ } [ ] {} [] , : " \' \\ "a" "#" "#": "a":{ a 1 #: 1:1 ,1: 1e9 null true },  ]],'.split(),
    *b'"topicName":"#" "topicName":"a" "currIdMap":{ "topicQueueMappingInfoMap":{ "brokerName":"a" \\u0041'.split(),
    b" ",
    b"\xe4\xb8\xbb",
)
MSGPACK_TOKENS: Final = (
    b"\x80", b"\x81", b"\x90", b"\x91", b"\x96", b"\xc0", b"\x00", b"\xa0", b"\xa1a", b"\xa1#", b"\xcd\x7f\xff",
    b"\xaatopic_name", b"\xabcurr_id_map", b"\xdc\x10\x00", b"\xde\x10\x00", b"\xd9\xff", b"\xc7\x01\x00",
)  # fmt: skip
LINES: Final = struct.pack(">i2s", 2, b"{}")
WRAPPER: Final = b'{"topicConfigSerializeWrapper":{'

IN_SLICES: Final = 48 * 1024
# limits of every decoder: memory, and function calls (compiled ones included) per byte
BYTES_PER_BYTE: Final = 200
CALLS_PER_BYTE: Final = 12

DECODERS: Final = {
    "json registration": Decoder(
        in_json,
        (b"", WRAPPER + b'"topicConfigTable":{', WRAPPER + b'"topicQueueMappingInfoMap":{', WRAPPER),
        JSON_TOKENS,
        IN_SLICES,
    ),
    "compressed registration": Decoder(
        lambda document: decode_body(zlib.compress(document), 479, compressed=True),
        (
            b"",
            LINES + struct.pack(">i", 1000),
            LINES + struct.pack(">ii", 0, 8000) + b"[",
            LINES + struct.pack(">ii2si", 0, 2, b"[]", 1000),
            LINES + struct.pack(">ii2sii", 0, 2, b"[]", 1, 8000),
        ),
        (b"\x00\x00\x00\x07", b"\x00\x00\x00\x0f", b"\x00\x00\x00\x00", b"{}", b"a 1 1 6", b"# 1 1 6", *JSON_TOKENS),
        IN_SLICES,
    ),
    "native registration": Decoder(
        natively,
        (
            *(b"", b"\x82", b"\x81\xadtopic_configs\xdc\x10\x00", b"\x81\xaedeleted_topics\xdc\x10\x00"),
            *(b"\x81\xbctopic_queue_mapping_info_map\xde\x10\x00", b"\x81\xb2filter_server_list\xdc\x10\x00"),
        ),
        MSGPACK_TOKENS,
        IN_SLICES,
    ),
    "json DataVersion": Decoder(JSON.read_data_version, (b"", b"{"), JSON_TOKENS),
    "native DataVersion": Decoder(NATIVE.read_data_version, (b"", b"\x83"), MSGPACK_TOKENS),
    "json queues": Decoder(partial(read_queue_datas, JSON), (b"", b'{"queueDatas":['), JSON_TOKENS),
    "native queues": Decoder(
        partial(read_queue_datas, NATIVE), (b"", b"\x81\xabqueue_datas\xdc\x10\x00"), MSGPACK_TOKENS
    ),
    "pull": Decoder(extensions.PullRoutesRequest.read, (b"", b"\x81\xa6topics\xdc\x10\x00"), MSGPACK_TOKENS),
    "large pull": Decoder(extensions.pull_in_steps, (b"", b"\x81\xa6topics\xdc\x10\x00"), MSGPACK_TOKENS, IN_SLICES),
    "events": Decoder(extensions.RecentEventsRequest.read, (b"", b"\x82"), MSGPACK_TOKENS),
    "connections": Decoder(extensions.ListConnectionsRequest.read, (b"", b"\x81\xa4role"), MSGPACK_TOKENS),
    "brokers": Decoder(extensions.ListBrokersRequest.read, (b"", b"\x81\xa7cluster"), MSGPACK_TOKENS),
    "state": Decoder(extensions.heartbeat_state, (b"", b"\x81\xa5state\xde\x10\x00"), MSGPACK_TOKENS),
    "json header": Decoder(header(0), (b"", b"{", b'{"extFields":{', b"{'opaque':1,'code':'"), JSON_TOKENS),
    "binary header": Decoder(
        header(1),
        (b"", bytes(13 + 4) + b"\x00\x00\x40\x00"),
        (b"\x00", b"\x00\x00", b"\x00\x01a", b"\x00\x00\x00\x01a", b"\x00\x00\x00\x00"),
    ),
    "native header": Decoder(header(77), (b"", b"\x96\x00\x00\x00\x00\xc0"), MSGPACK_TOKENS),
    "proxy header": Decoder(
        read_proxy_header,
        (
            *(b"PROXY ", b"PROXY TCP4 "),
            *(b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff"),
        ),
        (b" ", b"1", b".", b"\r", b"\r\n", b"TCP4", b"\x00", b"\xff"),
    ),
    "properties": Decoder(
        lambda document: parse_properties(document.decode("latin-1")),
        (b"",),
        (b"\n", b"\r", b"\\", b"=", b":", b" ", b"a", b"#", b"!", b"\\u0041", b"\\\n", b"#=1\n", b"\xe9"),
    ),
}


@pytest.mark.parametrize("name", DECODERS)
def test_cost_per_byte_is_bounded(name: str) -> None:
    """The most expensive document found stays within the limits of memory and calls."""
    decoder = DECODERS[name]

    @settings(max_examples=60, phases=[Phase.generate, Phase.target], database=None)
    @given(
        st.sampled_from(decoder.beginnings),
        st.lists(st.sampled_from(decoder.tokens), min_size=1, max_size=8).map(b"".join),
        st.sampled_from([300, decoder.max_bytes // 4, decoder.max_bytes]),
    )
    def search(beginning: bytes, repeated: bytes, size: int) -> None:
        document = repeating(beginning, repeated, size)
        calls, peak = calls_for(decoder, document), peak_of(lambda: run(decoder, document))
        target(calls / len(document), label="calls")
        target(peak / len(document), label="bytes")
        assert calls <= 2_000 + CALLS_PER_BYTE * len(document)
        assert peak <= 400 * 1024 + BYTES_PER_BYTE * len(document)

    search()


def repeating(beginning: bytes, repeated: bytes, size: int) -> bytes:
    """The beginning followed by repetitions; every # becomes a different number."""
    times = max(1, (size - len(beginning)) // len(repeated))
    if b"#" not in repeated:
        return beginning + repeated * times
    return (beginning + b"".join(repeated.replace(b"#", b"%d" % number) for number in range(times)))[:size]


def run(decoder: Decoder, document: bytes) -> None:
    """Decode to the end, chunk by chunk."""
    with suppress(BadRequestError, RemoteProtocolError, PropertiesError):
        found = decoder.decode(document)
        if isinstance(found, Generator):
            deque(found, maxlen=0)


def calls_for(decoder: Decoder, document: bytes) -> int:
    """Number of function calls for a document, compiled functions included.

    The first run fills caches, and a garbage collection may call functions; both are left out.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    run(decoder, document)
    gc.disable()
    sys.setprofile(count)
    try:
        run(decoder, document)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def peak_of(work: Callable[[], object]) -> int:
    """Peak memory of some work in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def table(member: bytes, item: bytes) -> bytes:
    """A JSON registration of 16 MiB with such a table; every # is a different number."""
    times = (16 * MEBIBYTE - 64) // (len(item) + 6)
    items = (item.replace(b"#", b"%d" % number) for number in range(times))
    return WRAPPER + b'"%b":{%b}}}' % (member, b",".join(items))


def native_topics(count: int) -> bytes:
    """A native registration of this many equal topics."""
    return b"\x81\xadtopic_configs\xdd" + struct.pack(">I", count) + b"\x81\xaatopic_name\xa1a" * count


ATTACKS: Final[dict[str, Callable[[], Registering]]] = {
    # 337 KB: a DataVersion of 64 MiB, and noise after the stream
    "bomb": lambda: decode_body(
        zlib.compress(struct.pack(">i", 64 * MEBIBYTE - 4) + b",1:" * (64 * MEBIBYTE // 3), 9) + bytes(270_000),
        479,
        compressed=True,
    ),
    "bare keys": lambda: in_json(b",1:" * (16 * MEBIBYTE // 3)),
    "json topics": lambda: in_json(table(b"topicConfigTable", b'"#":{"topicName":"#"}')),
    "same json topic": lambda: in_json(table(b"topicConfigTable", b'"a":{"topicName":"a","x":{}}')),
    "mappings": lambda: in_json(table(b"topicQueueMappingInfoMap", b'"#":{}')),
    "same mapping": lambda: in_json(table(b"topicQueueMappingInfoMap", b'"a":{"currIdMap":{0:1,1:2}}')),
    "brackets": lambda: in_json(table(b"x", b'"a":[[[]],[[]],[[]]]')),
    "lenient": lambda: in_json(b"{'a':[" + b"[]," * (16 * MEBIBYTE // 3) + b"1]}"),
    "native topics": lambda: natively(native_topics(850_000)),
    "100,000 native topics": lambda: natively(native_topics(100_000)),
    "nested natively": lambda: natively(b"\x81\xa1x\xdd\x00\xff\x00\x00" + b"\x90" * 0xFF0000),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_chunks_of_a_large_registration_are_short(name: str) -> None:
    """A chunk is shorter than parsing 30,000 topics at once, so that other connections are served.

    Chunks are the same in each trial: a long one is long in all of them, a busy machine only in some.
    """
    topics = [TopicConfig(f"TopicOfAnApplication{number:05}", 8, 8, 6) for number in range(10_000)]
    legal = encode_json_body(RegisterBrokerBody(topics, DataVersion(1, 0, 1)))

    def is_quick() -> bool:
        unit, steps = sum(step_seconds(in_json(legal))), step_seconds(ATTACKS[name]())
        # 16 MiB take a tenth of a second each
        return max(steps) < 2 * unit and sum(steps) < 400 * unit

    gc.disable()
    try:
        assert any(is_quick() for _ in range(20))
    finally:
        gc.enable()


def step_seconds(work: Registering) -> list[float]:
    """The processor time of each chunk, comparable only with each other."""
    seconds: list[float] = []
    while True:
        started = time.process_time()
        try:
            next(work)
        except (StopIteration, BadRequestError):
            return [*seconds, time.process_time() - started]
        seconds.append(time.process_time() - started)


@pytest.mark.parametrize("name", ATTACKS)
def test_large_registration_stays_within_its_memory_estimate(name: str) -> None:
    """The estimate before decoding is an upper bound."""
    work = ATTACKS[name]()
    peak = peak_of(lambda: step_seconds(work))

    assert peak < 32 * MEBIBYTE
    assert peak < DEFAULT_LIMITS.most_bytes(16 * MEBIBYTE, compressed=False)
