"""Any sequence of requests of a narrowed account leaves the entries of others unchanged."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.namesrv.access.test_attacks import FILE, OWNER, TEAM, VICTIM
from tests.namesrv.access.test_matrix import QUEUES
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, Spelling, native_registration, registration, request_frame

# a name that the account's rules match, held by another account in another cluster
NAMESAKE = Broker("team-2", 0, "10.0.2.1:10911", "cluster-2")
OTHERS = (VICTIM, NAMESAKE)


class Sent(NamedTuple):
    """A request, signed by the account or unsigned."""

    code: int
    ext: dict[str, str]
    topics: tuple[str, ...]
    spelling: Spelling
    is_signed: bool


BROKERS = st.builds(
    Broker,
    st.sampled_from(["team-1", "team-2", VICTIM.name]),
    st.sampled_from([0, 1]),
    st.sampled_from(["10.0.1.1:10911", VICTIM.addr, NAMESAKE.addr]),
    st.sampled_from([VICTIM.cluster, NAMESAKE.cluster]),
)
TOPICS = st.sampled_from(["team-x", "team-y", "T"])
SENT = st.builds(
    Sent,
    st.sampled_from([103, 103, 103, 104, 904, 322, 205, 327, 216, 217, 100, 102, 318]),
    st.builds(
        lambda broker, topic, more: {**broker.ext, "topic": topic, "namespace": "ns", "key": "T", "value": "v", **more},
        BROKERS,
        TOPICS,
        st.sampled_from([{}, {"enableActingMaster": "true"}, {"heartbeatTimeoutMillis": "1"}]),
    ),
    st.lists(TOPICS, max_size=3, unique=True).map(tuple),
    st.sampled_from(["json", "binary", "native"]),
    st.booleans() | st.just(value=True),
)


def frame(sent: Sent, opaque: int) -> bytes:
    """The bytes of the request."""
    body = b""
    if sent.code == 103:
        body = native_registration(*sent.topics) if sent.spelling == "native" else registration(*sent.topics)
    elif sent.code == 217:
        body = QUEUES
    elif sent.code == 318:
        body = b"orderMessageEnable=true"
    encode: Any = TEAM.request_frame if sent.is_signed else request_frame
    made: bytes = encode(sent.code, sent.ext, body, spelling=sent.spelling, opaque=opaque)
    return made


def of_others(server: InProcess) -> Any:
    """The state that belongs to other accounts."""
    namesrv, tables = server.namesrv, server.namesrv.manager.tables
    return (
        {broker: tables.broker_live_table[broker.cluster, broker.addr] for broker in OTHERS},  # type: ignore[index]
        {broker.name: tables.broker_addr_table[broker.name] for broker in OTHERS},
        {broker: broker.name in tables.cluster_addr_table[broker.cluster] for broker in OTHERS},
        {topic: tables.topic_queue_table[topic] for topic in ("T", "U")},
        tables.write_removed.keys() & {broker.name for broker in OTHERS},
        namesrv.kv.namespace("ns"),
        namesrv.live.order_message_enable,
    )


@given(st.lists(SENT, max_size=25))
async def test_entries_of_others_stay_unchanged(requests: list[Sent]) -> None:
    """No request of a narrowed account changes a route, a broker or a last heartbeat of others."""
    with tempfile.TemporaryDirectory() as place:
        access = Path(place) / "access.toml"
        access.write_text(FILE)
        async with namesrv_in_process(Path(place) / "data", access=str(access), heartbeat_log_dir="") as server:
            owner, peer = await server.connect(), await server.connect()
            for opaque, broker in enumerate(OTHERS):
                owner.send(OWNER.request_frame(103, broker.ext, registration("T", "U"), opaque=opaque))
                assert (await owner.receive()).code == 0
            before = of_others(server)
            for opaque, sent in enumerate(requests):
                await server.clock.advance(0.1)
                peer.send(frame(sent, opaque))
                await peer.receive()
                assert of_others(server) == before, sent
