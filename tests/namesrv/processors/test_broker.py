"""Responses to brokers that register, unregister or request their group (103, 104, 901), in every serialization."""

import asyncio
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from tests.support.in_process import InProcess, frames_of_at_most, namesrv_in_process
from tests.support.namesrv_peer import (
    MASTER,
    TIMESTAMP,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    native_registration,
    native_topic,
    registration,
)
from tests.support.table_invariants import violations


def is_empty(server: InProcess) -> bool:
    """Return true if all tables are empty."""
    tables = server.namesrv.manager.tables
    known = (tables.cluster_addr_table, tables.broker_addr_table, tables.broker_live_table, tables.topic_queue_table)
    assert violations(tables) == []
    return not any(known)


async def test_registration_response_has_the_order_configuration(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling
) -> None:
    """The response has the order configuration if its namespace exists, even empty."""
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    assert (await peer.register(MASTER, spelling=spelling)).value is None

    await peer.call(100, {**order, "value": "broker-a:8"})
    assert (await peer.register(MASTER, spelling=spelling)).value == {"table": {"T": "broker-a:8"}}

    await peer.call(102, order)
    assert (await peer.register(MASTER, spelling=spelling)).value == {"table": {}}


def compressed(topics: int, filter_servers: tuple[str, ...] = (), prefix: str = "topic") -> bytes:
    """The body of a 5.x broker with compressedRegister=true: lines in a zlib stream, then empty mappings."""

    def piece(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    version = json.dumps({"counter": 1, "stateVersion": 0, "timestamp": TIMESTAMP}).encode()
    lines = [piece(f"{prefix}-{n} 4 4 6 SINGLE_TAG {{}}".encode()) for n in range(topics)]
    content = piece(version) + struct.pack(">i", topics) + b"".join(lines)
    content += piece(json.dumps(filter_servers).encode()) + struct.pack(">i", 0)
    return zlib.compress(content)


MANY_SERVERS = tuple(map(str, range(65)))
UNREADABLE = "body of REGISTER_BROKER"
little = pytest.mark.settings(limits=frames_of_at_most(64 * 1024))


@pytest.mark.parametrize(
    ("spelling", "ext", "body", "remark"),
    [
        ("json", {"brokerId": "one"}, None, "field brokerId: 'one': expected `int`, got `str`"),
        (
            "json",
            {"heartbeatTimeoutMillis": "600001"},
            None,
            "field heartbeatTimeoutMillis: 600001 is more than 600000",
        ),
        ("json", {"kind": "some"}, None, "field kind: 'some' is neither full nor delta"),
        # names are kept for every broker, and sent with its routes
        *(
            ("json", {field: "x" * 256}, None, f"field {field}: '{'x' * 64}': expected `str")
            for field in ("brokerName", "brokerAddr", "clusterName", "haServerAddr", "__ZONE_NAME", "agentId")
        ),
        ("json", {"bodyCrc32": "12345"}, None, "crc32 not match"),
        # the body has the serialization of its header
        ("json", {}, native_registration("T", "U"), f"{UNREADABLE} cannot be read: invalid utf-8 "),
        ("native", {}, registration("T", "U"), f"{UNREADABLE} cannot be read: expected a map at byte 0"),
        # a single topic may be a part of the table; Java keeps an empty group
        ("json", {}, registration("T"), "register broker failed"),
        # each is kept in memory, and sent with the broker's routes
        ("json", {}, registration("T", "U", filter_servers=MANY_SERVERS), "65 filter servers, limit 64"),
        (
            "native",
            {},
            native({"filter_server_list": MANY_SERVERS, "topic_configs": [native_topic("T")]}),
            "65 filter servers, limit 64",
        ),
        ("json", {"compressed": "true"}, compressed(2, MANY_SERVERS), "65 filter servers, limit 64"),
        pytest.param("json", {"compressed": "true"}, compressed(10_000), "inflates to more than 262144", marks=little),
    ],
)
async def test_refused_registration_changes_nothing(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling, ext: dict[str, Any], body: bytes | None, remark: str
) -> None:
    """A malformed registration gets code 1 with the reason, and leaves the tables empty for a correct one."""
    code, actual = (await peer.register(MASTER, body, spelling=spelling, **ext)).outcome

    assert code == 1
    assert remark in str(actual)
    assert is_empty(server)
    assert (await peer.register(MASTER, spelling=spelling)).code == 0


# Of 390 characters with the number of the topic: the longest names of a consumer group and of a topic.
RETRY_TOPIC = f"%RETRY%{'g' * 255}_{'t' * 125}"


@pytest.mark.parametrize(
    ("ext", "body"),
    [
        ({}, registration(f"{RETRY_TOPIC}-0", f"{RETRY_TOPIC}-1")),
        ({"compressed": "true"}, compressed(2, prefix=RETRY_TOPIC)),
    ],
    ids=["json", "compressed"],
)
async def test_longest_retry_topic_is_registered(peer: NamesrvPeer, ext: dict[str, Any], body: bytes) -> None:
    """The retry topic of a pop consumer has the names of the group, of up to 255 characters, and of the topic, 127."""
    assert (await peer.register(MASTER, body, **ext)).code == 0

    assert (await peer.call(105, {"topic": f"{RETRY_TOPIC}-1"})).code == 0


@pytest.mark.parametrize(
    ("spelling", "body"),
    [("json", registration("T", "U", "V")), ("native", native_registration("T", "U", "V"))],
    ids=["json", "native"],
)
async def test_topics_of_a_registration_are_limited_while_they_are_decoded(
    tmp_path: Path, spelling: Spelling, body: bytes
) -> None:
    """A registration of more topics than one broker may have is refused before all of them are decoded."""
    limits = Limits.of(Settings())
    limits.tables.max_topics_per_broker = 2
    async with namesrv_in_process(tmp_path, limits=limits) as server:
        peer = await server.connect()

        assert (await peer.register(MASTER, body, spelling=spelling)).outcome == (
            1,
            "3 topics in one registration, limit 2",
        )


@pytest.mark.parametrize("topics", [2, 5_000], ids=["small", "in chunks"])
async def test_crc_has_31_bits(peer: NamesrvPeer, topics: int) -> None:
    """Java's CRC is a non-negative int: a checksum with the highest bit set arrives without it."""
    unpadded = registration(*(f"T{number}" for number in range(topics)))
    body = next(body for n in range(99) if zlib.crc32(body := unpadded + b" " * n) >> 31)
    crc = zlib.crc32(body) - (1 << 31)

    assert (await peer.register(MASTER, body, bodyCrc32=str(crc ^ 1))).remark == "crc32 not match"
    assert (await peer.register(MASTER, body, bodyCrc32=str(crc))).code == 0


async def test_requests_are_answered_while_large_registrations_are_decoded(server: InProcess) -> None:
    """Other requests are answered while large registrations are decoded in chunks, two at a time."""
    body = compressed(20_000)
    masters = [Broker(f"broker-{number}", addr=f"10.0.0.{number}:10911") for number in range(5)]
    peers = [await server.connect() for _ in masters]
    other, served, manager = await server.connect(), 0, server.namesrv.manager
    async with asyncio.TaskGroup() as group, manager.lock.read():
        responses = [
            group.create_task(peer.register(master, body)) for peer, master in zip(peers, masters, strict=True)
        ]
        while "2 write" not in repr(manager.lock):
            await other.call(106)
            served += 1
        for _ in range(served):
            await other.call(106)
        assert "2 write" in repr(manager.lock)

    assert served > 2
    assert [response.result().code for response in responses] == [0] * 5
    assert len(manager.tables.topic_queue_table) == 20_000
