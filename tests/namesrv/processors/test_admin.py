"""Responses to operators' tools in every serialization (106, 205, 206, 216, 217, 224, 304, 311 to 313, 327)."""

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from namesrv.processors import topic_lists
from namesrv.processors.topic_lists import LargeLists, TopicLists
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.errors import SystemBusyError
from tests.support.fake_clock import FakeClock, until
from tests.support.in_process import InProcess, frames_of_at_most, namesrv_in_process
from tests.support.namesrv_peer import (
    ELSEWHERE,
    MASTER,
    OTHER,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    native_registration,
    registration,
    topic_config,
)


async def perms(peer: NamesrvPeer, topic: str = "T") -> dict[str, int]:
    """Broker name -> permission in the route of a topic, the same in JSON and natively."""
    found, natively = [
        {queues["brokerName"]: queues["perm"] for queues in response.java_value["queueDatas"]}
        for response in [await peer.call(105, {"topic": topic}, spelling=spelling) for spelling in ("json", "native")]
    ]
    assert found == natively
    return found


async def test_write_permission_is_removed_and_added_back(peer: NamesrvPeer, spelling: Spelling) -> None:
    """The responses count the topics; cached routes of the broker follow, and those of other brokers stay."""
    await peer.register(MASTER, registration("T", topic_config("U", perm=4), topic_config("V", perm=15)))
    await peer.register(OTHER)
    assert await perms(peer) == {"broker-a": 6, "broker-b": 6}

    response = await peer.call(205, {"brokerName": "broker-a"}, spelling=spelling)
    assert (*response.outcome, response.fields) == (0, None, {"wipeTopicCount": "3"})
    assert await perms(peer) == {"broker-a": 4, "broker-b": 6}
    # the other bits stay
    assert await perms(peer, "V") == {"broker-a": 13}

    response = await peer.call(327, {"brokerName": "broker-a"}, spelling=spelling)
    assert (*response.outcome, response.fields) == (0, None, {"addTopicCount": "3"})
    assert await perms(peer) == {"broker-a": 6, "broker-b": 6}
    # 6, as in Java: inherit (1) and priority (8) are dropped
    assert await perms(peer, "V") == {"broker-a": 6}

    for code, count in ((205, "wipeTopicCount"), (327, "addTopicCount")):
        response = await peer.call(code, {"brokerName": "unknown"}, spelling=spelling)
        assert (*response.outcome, response.fields) == (0, None, {count: "0"})
        assert (await peer.call(code, None, spelling=spelling)).outcome == (1, "field brokerName is missing")


async def test_topic_is_deleted(peer: NamesrvPeer, spelling: Spelling) -> None:
    """A topic is deleted everywhere or in one cluster; an unknown topic or cluster gives success."""
    await peer.register(MASTER)
    await peer.register(ELSEWHERE)
    both = {"broker-a": 6, "broker-c": 6}
    for ext, left in (
        ({"topic": "unknown"}, both),
        ({"topic": "T", "clusterName": "nowhere"}, both),
        ({"topic": "T", "clusterName": "cluster-1"}, {"broker-c": 6}),
    ):
        response = await peer.call(216, ext, spelling=spelling)
        assert (*response.outcome, response.fields, response.body) == (0, None, {}, b"")
        assert await perms(peer) == left

    # an empty name stands for all clusters, as in Java
    for topic, ext in (("U", {}), ("T", {"clusterName": ""})):
        await peer.call(216, {"topic": topic, **ext}, spelling=spelling)
        assert (await peer.call(105, {"topic": topic})).code == 17
    assert (await peer.call(216, None, spelling=spelling)).outcome == (1, "field topic is missing")


def route_body(spelling: Spelling, *brokers: str) -> bytes:
    """The body of request 217 with 3 read queues and 2 write queues, read-only, on each broker."""
    counts = {"read_queue_nums": 3, "write_queue_nums": 2, "perm": 4, "topic_sys_flag": 1}
    if spelling == "native":
        queues = [{"broker_name": name, **counts} for name in brokers]
        return native({"queue_datas": queues, "broker_datas": [{"anything": 1}]})
    camel = dict(zip(("readQueueNums", "writeQueueNums", "perm", "topicSysFlag"), counts.values(), strict=True))
    queues = [{"brokerName": name, **camel} for name in brokers]
    return json.dumps({"queueDatas": queues, "brokerDatas": [{"anything": 1}]}).encode()


async def test_topic_is_registered(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Queues are registered broker by broker up to an unknown broker, which gives success, as in Java."""
    await peer.register(MASTER)
    await peer.register(OTHER)
    for topic, brokers in (("T", ["broker-b"]), ("new", ["broker-b"]), ("U", ["broker-a", "unknown", "broker-b"])):
        response = await peer.call(217, {"topic": topic}, route_body(spelling, *brokers), spelling=spelling)
        assert (*response.outcome, response.fields, response.body) == (0, None, {}, b"")
    ignored = route_body(spelling, "unknown")
    assert (await peer.call(217, {"topic": "other"}, ignored, spelling=spelling)).code == 0

    assert await perms(peer) == {"broker-a": 6, "broker-b": 4}
    assert await perms(peer, "U") == {"broker-a": 4, "broker-b": 6}
    assert (await peer.call(105, {"topic": "other"})).code == 17
    queues = {"brokerName": "broker-b", "readQueueNums": 3, "writeQueueNums": 2, "perm": 4, "topicSysFlag": 1}
    assert (await peer.call(105, {"topic": "new"})).java_value["queueDatas"] == [queues]


async def test_lists_of_topics(peer: NamesrvPeer, spelling: Spelling) -> None:
    """The lists have all topics, those of a cluster, names of clusters and brokers, or topics by their first flags."""
    for code in (206, 304, 311, 312, 313):
        assert (await peer.call(code, spelling=spelling)).java_value == {"topicList": []}
    unit, unit_sub, both = (topic_config(name, flags=n) for n, name in enumerate(("unit", "sub", "both"), start=1))
    await peer.register(MASTER, registration(unit, unit_sub, both, "plain"))
    # only the flags of a topic's first broker, broker-a, count
    await peer.register(ELSEWHERE, registration("unit", topic_config("plain", flags=3), "far"))

    for code, cluster, names in (
        (206, None, ["unit", "sub", "both", "plain", "far"]),
        (224, "cluster-1", ["unit", "sub", "both", "plain"]),
        (224, "cluster-2", ["unit", "plain", "far"]),
        (224, "nowhere", []),
        (304, None, ["broker-a", "broker-c", "cluster-1", "cluster-2"]),
        (311, None, ["unit", "both"]),
        (312, None, ["sub", "both"]),
        (313, None, ["sub"]),
    ):
        response = await peer.call(code, {"cluster": cluster} if cluster else None, spelling=spelling)
        assert (*response.outcome, response.fields) == (0, None, {})
        addr = {"brokerAddr": "10.0.0.1:10911"} if code == 304 else {}
        assert response.java_value == {"topicList": names, **addr}, (code, cluster)
    assert (await peer.call(224, spelling=spelling)).outcome == (1, "field cluster is missing")


@pytest.mark.settings(limits=frames_of_at_most(1 << 20))
async def test_topic_list_is_cached_until_the_tables_change(server: InProcess, peer: NamesrvPeer) -> None:
    """A list is encoded once for each revision of the tables, also one that is too large to send."""
    other, only_t = await server.connect(), {"topicList": ["T"]}
    await peer.register(MASTER, native_registration("T"), spelling="native")
    spellings: list[Spelling] = ["json", "native", "json", "native"]
    assert [(await peer.call(206, spelling=spelling)).java_value for spelling in spellings] == [only_t] * 4
    for number in range(4):
        names = [f"topic-{number}{at:0100}" for at in range(3_000)]
        broker = Broker(f"far-{number}", 0, f"10.0.2.{number}:10911", "cluster-2")
        await other.register(broker, native_registration(*names), spelling="native")
    for _ in range(2):
        assert (await peer.call(206)).outcome == (1, "list of more than 1048576 bytes")
    assert (await peer.call(224, {"cluster": "cluster-1"})).java_value == only_t
    await server.hang_up(other)
    await until(lambda: len(server.namesrv.manager.tables.topic_queue_table) == 1)
    assert (await peer.call(206)).java_value == only_t


async def test_list_that_waited_has_the_new_brokers_of_its_cluster(server: InProcess, peer: NamesrvPeer) -> None:
    """A list waits while another one is built; the topics of a broker that joins the cluster meanwhile are in it."""
    others, joining = await server.connect(), await server.connect()
    names = [f"topic-{at}" for at in range(100_000)]
    await others.register(ELSEWHERE, native_registration(*names), spelling="native")
    await others.register(MASTER)

    await asyncio.gather(
        others.call(206), peer.call(224, {"cluster": "cluster-1"}), joining.register(OTHER, registration("new", "T"))
    )

    assert (await peer.call(224, {"cluster": "cluster-1"})).java_value == {"topicList": ["T", "U", "new"]}


@pytest.fixture
def smaller_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the sizes that limit large lists, so that few topics and brokers reach them."""
    for name in ("_LARGE_BYTES", "_BURST_BYTES", "_BYTES_PER_SECOND"):
        monkeypatch.setattr(topic_lists, name, getattr(topic_lists, name) / 100)


@pytest.mark.usefixtures("smaller_lists")
@pytest.mark.parametrize(
    ("names", "is_listed", "kinds"),
    [
        # 17 scans of 128 bytes for each topic cost 97% of the burst, and a list that is still valid costs no scan
        ([f"topic-{at}" for at in range(300)], False, sorted([*range(17)] * 2)),
        # a list of 49 KiB costs its size, and nothing more for the scan
        ([f"{at:0>250}" for at in range(200)], True, range(13)),
    ],
    ids=["scans", "long names"],
)
async def test_address_bears_the_cost_of_lists_that_are_built_for_it(
    server: InProcess, peer: NamesrvPeer, names: list[str], kinds: Sequence[int], *, is_listed: bool
) -> None:
    """An address gets a burst of lists, each for the larger of scan and size; other addresses are not limited by it."""
    await peer.register(MASTER, native_registration(*names), spelling="native")
    lists = TopicLists(server.namesrv.manager, 1 << 24, server.namesrv.clock)

    async def build(kind: int, network: str = "10.0.0.1") -> bytes:
        return await lists.encoded(NATIVE, kind, lambda _: is_listed, network=network)

    for kind in kinds:
        await build(kind)
    with pytest.raises(SystemBusyError, match=r"^too many large lists for 10\.0\.0\.1, try again in 0\.1 s$"):
        await build(len(kinds))
    assert await build(len(kinds), "10.0.0.2")


@pytest.mark.usefixtures("smaller_lists")
async def test_first_list_is_never_refused(server: InProcess, peer: NamesrvPeer) -> None:
    """A scan of 6,000 topics costs more than a burst: an address gets one list at once, but not the next one."""
    await peer.register(MASTER, native_registration(*map(str, range(6_000))), spelling="native")
    first, second, third = [await server.connect(source=f"127.0.0.{number}") for number in (2, 3, 4)]

    assert len((await first.call(206)).java_value["topicList"]) == 6_000
    assert len((await second.call(224, {"cluster": "cluster-1"})).java_value["topicList"]) == 6_000
    assert (await third.call(311)).java_value == {"topicList": []}
    assert (await first.call(313)).outcome == (2, "too many large lists for 127.0.0.2, try again in 4.0 s")


@pytest.mark.usefixtures("smaller_lists")
@pytest.mark.parametrize("code", [106, 304, 20005])
async def test_address_bears_the_cost_of_lists_of_brokers(server: InProcess, peer: NamesrvPeer, code: int) -> None:
    """Lists of brokers are made anew for each request: with many brokers, they count as large."""
    for number in range(25):
        await peer.register(Broker(f"b{number}", 0, f"10.0.0.{number}:10911"))
    responses = [await peer.call(code, spelling="native") for _ in range(260)]

    assert responses[0].code == 0
    assert (responses[-1].code, "too many large lists for 127.0.0.1" in str(responses[-1].outcome)) == (2, True)
    assert (await (await server.connect(source="127.0.0.2")).call(code, spelling="native")).code == 0


def test_large_lists_are_limited_per_address() -> None:
    """An address gets four large lists, then one each second; small lists and other addresses are not limited."""
    clock, mib = FakeClock(monotonic=100.0), 1024 * 1024
    lists = LargeLists(clock)
    for _ in range(4):
        lists.charge("10.0.0.1", 16 * mib)
    with pytest.raises(SystemBusyError, match=r"^too many large lists for 10\.0\.0\.1, try again in 1\.0 s$"):
        lists.charge("10.0.0.1", 16 * mib)
    lists.charge("10.0.0.1", 1000)
    lists.charge("10.0.0.2", 16 * mib)

    clock.stall(1.0)
    lists.charge("10.0.0.1", 16 * mib)
    with pytest.raises(SystemBusyError):
        lists.charge("10.0.0.1", 16 * mib)

    for number in range(5_000):
        lists.charge(f"network-{number}", 16 * mib)
        clock.stall(0.01)
    assert len(lists._charged) <= 1_000


@pytest.mark.settings(enable_topic_list=False, enable_all_topic_list=False)
async def test_topic_lists_can_be_disabled(peer: NamesrvPeer, spelling: Spelling) -> None:
    """A disabled list gives Java's remark; the system topic list has no setting."""
    for code in (206, 224, 311, 312, 313):
        response = await peer.call(code, {"cluster": "cluster-1"}, spelling=spelling)
        assert response.outcome == (1, "disable"), code
    assert (await peer.call(304, spelling=spelling)).code == 0


CHANGES: list[tuple[int, str, dict[str, Any], bytes]] = [
    (100, "PUT_KV_CONFIG", {"namespace": "n", "key": "k", "value": "v"}, b""),
    (102, "DELETE_KV_CONFIG", {"namespace": "n", "key": "k"}, b""),
    (205, "WIPE_WRITE_PERM_OF_BROKER", {"brokerName": "broker-a"}, b""),
    (327, "ADD_WRITE_PERM_OF_BROKER", {"brokerName": "broker-a"}, b""),
    (217, "REGISTER_TOPIC_IN_NAMESRV", {"topic": "new"}, b""),
    (216, "DELETE_TOPIC_IN_NAMESRV", {"topic": "T"}, b""),
    (318, "UPDATE_NAMESRV_CONFIG", {}, b"enableTopicList=false"),
    (104, "UNREGISTER_BROKER", MASTER.ext, b""),
]


async def test_operators_changes_are_logged_with_the_peer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Successful changes by operators are logged; reads, refusals and a broker's own requests are not."""
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path, admin_enabled=True) as server:
        own, operator = await server.connect(), await server.connect()
        await own.register(MASTER)
        await operator.call(106)
        await operator.call(205, {})
        await own.call(104, {**MASTER.ext, "brokerName": "unknown"})
        signed = {"AccessKey": "op", "Signature": "c2ln", "hmacSha256": "c2ln", "nonce": "n1", "signedAt": "1"}
        for code, _, ext, body in CHANGES:
            # the log has no signatures, which a reader could use again
            assert (await operator.call(code, {**ext, **signed}, body)).code == 0
        await own.register(MASTER)
        await own.call(104, MASTER.ext)

    lines = [(r.levelno, vars(r)["fields"]) for r in caplog.records if r.msg == "operator_changed"]
    assert [name for _, name, _, _ in CHANGES] == [fields["request"] for _, fields in lines]
    for (_, _, ext, body), (level, fields) in zip(CHANGES, lines, strict=True):
        assert (level, fields["peer"], fields["proxied"]) == (logging.INFO, operator.address, None)
        assert ({**ext, "settings": body.decode()} if body else ext) == fields["request_fields"]
    assert [fields["role"] for _, fields in lines[:7]] == ["admin"] * 7
