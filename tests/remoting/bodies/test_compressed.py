"""Reading a compressed registration in chunks, with limits on its lengths."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.compressed import Compressed, read_compressed, write_compressed
from namesrv_remoting.bodies.limits import Tally
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError
from tests.support.commands import INT32, MAPPINGS, NAMES, VERSIONS
from tests.support.steps import finished

VERSION = b'\x00\x00\x00\x2e{"counter":3,"stateVersion":2,"timestamp":100}'
NO_TOPICS = b"\x00\x00\x00\x00"
NO_FILTERS = b"\x00\x00\x00\x02[]"
NO_MAPPINGS = b"\x00\x00\x00\x00"


def read(body: bytes, *, with_mappings: bool, chunk_bytes: int = 5) -> Compressed:
    """The registration in a body inflated in chunks of this size."""
    chunks = (body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes))
    return finished(read_compressed(chunks, with_mappings=with_mappings, tally=Tally(100)))


MAPPING = (
    b'\x00\x00\x00\x6d{"bname":"b","currIdMap":{0:1,12:3},"dirty":false,"epoch":7,"scope":"__global__","topic":"T",'
    b'"totalQueues":2}'
)


INFO = TopicQueueMappingInfo("T", "b", "__global__", 7, 2, dirty=False, curr_id_map={0: 1, 12: 3})
TOPICS = b'\x00\x00\x00\x02\x00\x00\x00\x16T1 8 7 6 SINGLE_TAG {}\x00\x00\x00\x20%RETRY%G 1 1 4 MULTI_TAG {"a":1}'


@pytest.mark.parametrize(
    ("body", "with_mappings", "topics", "mappings", "filters"),
    [
        (TOPICS + b'\x00\x00\x00\x0d["f:1","g:2"]' + b"\x00\x00\x00\x01" + MAPPING, True,
         [TopicConfig("T1", 8, 7, 6, 0), TopicConfig("%RETRY%G", 1, 1, 4, 0)], {"T": INFO}, ("f:1", "g:2")),
        # before version 413 the body ends with the filter servers
        (NO_TOPICS + NO_FILTERS, False, [], {}, ()),
        # an old server ignores the mappings of a new broker
        (NO_TOPICS + NO_FILTERS + b"\x00\x00\x00\x01" + MAPPING, False, [], {}, ()),
        # null filter servers keep the known ones
        (NO_TOPICS + b"\x00\x00\x00\x04null", False, [], {}, None),
        # a mapping without a topic is skipped
        (NO_TOPICS + NO_FILTERS + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x02{}" + MAPPING, True, [], {"T": INFO}, ()),
    ],
)  # fmt: skip
def test_body_is_read(
    body: bytes,
    with_mappings: bool,
    topics: list[TopicConfig],
    mappings: dict[str, TopicQueueMappingInfo],
    filters: tuple[str, ...] | None,
) -> None:
    """The body has a DataVersion, topics, filter servers, and static-topic mappings with bare integer keys."""
    assert read(VERSION + body, with_mappings=with_mappings) == (topics, DataVersion(3, 2, 100), mappings, filters)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"", "topic line b'' is not `name read write perm filterType`"),
        (b"T 8 8 6", "topic line b'T 8 8 6' is not"),
        (b"T  8 8 6 SINGLE_TAG", "topic line b'T  8 8 6 SINGLE_TAG' is not"),
        (b"T eight 8 6 SINGLE_TAG", "topic line b'T eight 8 6 SINGLE_TAG' is not"),
        (b"T 8 8 6.0 SINGLE_TAG", "topic line b'T 8 8 6.0 SINGLE_TAG' is not"),
        (b"T 8 8 2147483648 SINGLE_TAG", "topic line b'T 8 8 2147483648 SINGLE_TAG' is not"),
        (b" 8 8 6 SINGLE_TAG", "topic name of 0 bytes, limit 390"),
        (b"t" * 391 + b" 8 8 6 SINGLE_TAG", "topic name of 391 bytes, limit 390"),
        (b"\xff 8 8 6 SINGLE_TAG", r"topic name b'\xff' is not UTF-8"),
        (b"x" * 4096, f"topic line b'{'x' * 128}' is not"),
        (b"x" * 4097, "length of the topic 4097, limit 4096"),
    ],
)
def test_invalid_topic_line_is_refused(line: bytes, error: str) -> None:
    """The remark contains at most 128 bytes of the line."""
    length = len(line).to_bytes(4)

    with pytest.raises(BadRequestError) as caught:
        read(VERSION + b"\x00\x00\x00\x01" + length + line + NO_FILTERS, with_mappings=False)
    assert (caught.value.remark or "").startswith(f"compressed body: {error}")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"\x00\x00\x00", "compressed body ends before the length of the DataVersion"),
        (b"\x00\x00\x00\x01", "compressed body ends before the end of the DataVersion"),
        (b"\x7f\xff\xff\xff{}", "compressed body: length of the DataVersion 2147483647, limit 512"),
        (b"\xff\xff\xff\xff{}", "compressed body: length of the DataVersion -1, limit 512"),
        (b"\x00\x00\x00\x02[]", "body of REGISTER_BROKER (DataVersion) cannot be read: "),
        (VERSION, "compressed body ends before the number of topics"),
        (VERSION + b"\x7f\xff\xff\xff", "compressed body: number of topics 2147483647, limit 100"),
        (VERSION + b"\xff\xff\xff\xff", "compressed body: number of topics -1, limit 100"),
        (VERSION + b"\x00\x00\x00\x01\x00\x00\x00\x09T 8 8 6 S",
         "compressed body ends before the length of the filter servers"),
        (VERSION + b"\x00\x00\x00\x01\x00\x00\x00\x0aT 8 8 6 S",
         "compressed body ends before the end of the topic"),
        (VERSION + b"\x00\x00\x00\x01", "compressed body ends before the length of the topic"),
        (VERSION + NO_TOPICS, "compressed body ends before the length of the filter servers"),
        (VERSION + NO_TOPICS + b"\x00\x00\x00\x02{}", "body of REGISTER_BROKER (filter servers) cannot be read: "),
        (VERSION + NO_TOPICS + NO_FILTERS + b"\x00\x00\x00\x05\x00\x00\x00\x01",
         "compressed body ends before the end of the static-topic mapping"),
        (VERSION + NO_TOPICS + b"\x00\x00\x10\x01", "compressed body: length of the filter servers 4097, limit 4096"),
        (VERSION + NO_TOPICS + NO_FILTERS + b"\x00\x00\x00\x65",
         "compressed body: number of static-topic mappings 101, limit 100"),
        (VERSION + NO_TOPICS + NO_FILTERS + b"\x00\x00\x00\x01\x00\x01\x00\x01",
         "compressed body: length of the static-topic mapping 65537, limit 65536"),
        (VERSION + NO_TOPICS + NO_FILTERS + b"\x00\x00\x00\x01\x00\x00\x00\x02[]",
         "body of REGISTER_BROKER (static-topic mapping) cannot be read: "),
    ],
)  # fmt: skip
def test_false_length_is_refused(body: bytes, error: str) -> None:
    """A negative, too large or overlong length allocates nothing and is named in the remark."""
    with pytest.raises(BadRequestError) as caught:
        read(body, with_mappings=True)
    assert (caught.value.remark or "").startswith(error)


# the text lines of a compressed registration are split at blanks
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), min_size=1, max_size=20)


@given(
    topics=st.lists(st.builds(TopicConfig, WORDS, INT32, INT32, INT32), max_size=5),
    version=VERSIONS,
    mappings=st.lists(
        MAPPINGS.filter(lambda mapping: mapping.topic), max_size=3, unique_by=lambda mapping: mapping.topic
    ),
    filters=st.lists(NAMES, max_size=3),
)
def test_round_trip(
    topics: list[TopicConfig], version: DataVersion, mappings: list[TopicQueueMappingInfo], filters: list[str]
) -> None:
    """A written body is read back; system flags are not transported, as in Java."""
    by_topic = {mapping.topic or "": mapping for mapping in mappings}
    inflated = zlib.decompress(write_compressed(topics, version, by_topic, filters))

    assert read(inflated, with_mappings=True) == (topics, version, by_topic, tuple(filters))


def test_written_body_equals_javas() -> None:
    """The inflated bytes are equal."""
    stream = write_compressed([TopicConfig("T1", 8, 7, 6, 3)], DataVersion(3, 2, 100), {}, ["f:1"])

    topic = b"\x00\x00\x00\x01\x00\x00\x00\x16T1 8 7 6 SINGLE_TAG {}"
    assert zlib.decompress(stream) == VERSION + topic + b'\x00\x00\x00\x07["f:1"]' + NO_MAPPINGS
    assert stream.startswith(b"\x78\xda")
