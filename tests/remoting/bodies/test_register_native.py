"""A native registration is read, written to the byte, and refused when malformed."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.register import RegisterBrokerBody, decode_native_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError
from tests.support.registrations import NAMES, REGISTRATIONS
from tests.support.steps import finished

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


def test_native_form() -> None:
    """The same names in snake_case; a delta names the topics that are gone; zlib when the header says so."""
    assert NATIVE == finished(decode_native_body(NATIVE_BODY, compressed=False))
    assert NATIVE == finished(decode_native_body(zlib.compress(NATIVE_BODY), compressed=True))


def test_native_form_is_written_to_the_byte() -> None:
    """As it is read."""
    assert NATIVE_BODY == encode_native_body(NATIVE)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", RegisterBrokerBody((), DataVersion(0, 0, 0), {}, None)),
        (b"\x80", RegisterBrokerBody((), None, {}, None)),
        (b"\x81\xb2filter_server_list\x90", RegisterBrokerBody((), None, {}, ())),
        (
            b"\x81\xbctopic_queue_mapping_info_map\x81\xa1S\x81\xabcurr_id_map\x82\x00\x01\x0c\x03",
            RegisterBrokerBody((), None, {"S": TopicQueueMappingInfo(curr_id_map={0: 1, 12: 3})}, None),
        ),
    ],
    ids=["no body", "empty", "no filter servers any more", "mapping"],
)
def test_native_members_may_be_missing(body: bytes, expected: RegisterBrokerBody) -> None:
    """What is not named is not touched: no filter server list leaves those known alone."""
    assert expected == finished(decode_native_body(body, compressed=False))


@pytest.mark.parametrize(
    "body",
    [
        b"\xc0",
        b"\x90",
        b"{}",
        b"\x81\xadtopic_configs\xc0",
        b"\x81\xadtopic_configs\x91\x80",
        b"\x81\xadtopic_configs\x91\x81\xaatopic_name\xa0",
        b"\x81\xadtopic_configs\xdd\x00\x01\x00\x00",
        b"\x81\xb2filter_server_list\x91\xa0",
        b"\x81\xaedeleted_topics\x91\xa0",
        b"\x81\xacdata_version\x81\xa7counter\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        NATIVE_BODY[:-1],
        NATIVE_BODY + b"\x80",
    ],
)
def test_native_body_that_is_none_is_refused(body: bytes) -> None:
    """Wrong types, empty names, lengths that lie, cut short, or more than one."""
    with pytest.raises(BadRequestError, match=r"^body of REGISTER_BROKER (\(\w+( \w+)?\) )?cannot be read: "):
        finished(decode_native_body(body, compressed=False))


def test_native_body_is_never_sniffed() -> None:
    """Our own agents say whether they compress: a stream that is not announced is no map."""
    with pytest.raises(BadRequestError, match=r"^body of REGISTER_BROKER cannot be read: "):
        finished(decode_native_body(zlib.compress(NATIVE_BODY), compressed=False))


@given(REGISTRATIONS, st.lists(NAMES, max_size=3).map(tuple))
def test_native_round_trip(body: RegisterBrokerBody, deleted_topics: tuple[str, ...]) -> None:
    """What our agent writes is read."""
    delta = RegisterBrokerBody(
        body.topic_configs, body.data_version, body.mappings, body.filter_servers, deleted_topics
    )

    assert delta == finished(decode_native_body(encode_native_body(delta), compressed=False))
