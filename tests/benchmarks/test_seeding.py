"""Registrations of the brokers that the pulls are about."""

import pytest

from benchmarks.seeding import PULLED_BODY_BYTES, Broker, pulled_brokers, topics
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.register import RegisterBrokerBody, decode_body, decode_native_body
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame
from tests.support.steps import finished

BROKER = Broker("c", "b", 0, "127.0.0.1:10911", [TopicConfig("T0", 8, 8), TopicConfig("T1", 8, 8)])


def test_the_pulled_answer_has_the_size_of_the_reference() -> None:
    """8 groups of master and slave with one digit of queues: 1,871 bytes, whatever that digit is."""
    brokers = pulled_brokers()
    groups = [
        BrokerData(master.cluster, master.name, {0: master.addr, 1: slave.addr})
        for master, slave in zip(brokers[::2], brokers[1::2], strict=True)
    ]

    for queues in (8, 4):
        queue_datas = [QueueData(group.broker_name, queues, queues, 6) for group in groups]
        assert PULLED_BODY_BYTES == len(JSON.encode(TopicRouteData(groups, queue_datas)))


def test_every_broker_is_another() -> None:
    """16 addresses, 8 names, 1,000 topics each, numbered as loads are (%d); more only on the first group."""
    brokers = pulled_brokers([TopicConfig("more")])

    assert (16, 8) == (len({broker.addr for broker in brokers}), len({broker.name for broker in brokers}))
    assert [1001, 1001, *[1000] * 14] == [len(broker.topics) for broker in brokers]
    assert [0, 1] * 8 == [broker.broker_id for broker in brokers]
    assert ["T7x", "T8x"] == [topic.topic_name for topic in topics("T%dx", 2, first=7)]


def test_a_changed_broker_differs_where_it_should() -> None:
    """Always in its DataVersion, in one field of every topic only when told so."""
    newer, other = BROKER.changed(), BROKER.changed(read_queue_nums=4)

    assert (2, BROKER.topics) == (newer.counter, newer.topics)
    assert (2, [TopicConfig("T0", 4, 8), TopicConfig("T1", 4, 8)]) == (other.counter, other.topics)


@pytest.mark.parametrize("form", ["json", "compressed", "native"])
def test_each_form_says_the_same(form: str) -> None:
    """One registration, three spellings."""
    (frame,) = FrameReader().receive_data(getattr(BROKER, f"{form}_frame")())
    command, is_compressed = decode_frame(frame), form == "compressed"
    body: RegisterBrokerBody = (
        finished(decode_native_body(command.body, compressed=False))
        if form == "native"
        else finished(decode_body(command.body, command.version, compressed=is_compressed))
    )

    assert command.code == RequestCode.REGISTER_BROKER
    assert ("true" if is_compressed else "false") == (command.ext_fields or {})["compressed"]
    assert [("T0", 8, 8, 6), ("T1", 8, 8, 6)] == [
        (topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm) for topic in body.topic_configs
    ]
    assert DataVersion(1) == body.data_version
