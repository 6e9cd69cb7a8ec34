"""The command `migrate check`: differences that brokers, clients and tools would notice after a migration."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from namesrv_client.ctl.comparison import Difference, Fact, FactKind
from namesrv_client.ctl.migration import TopicResponses, judged, topic_differences, topic_facts
from namesrv_remoting.bodies.route import BrokerData
from tests.support.apache_server import ApacheFront
from tests.support.ctl import Result, address_of, ctl, one_server, refusing_address
from tests.support.fake_clock import until
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, SLAVE, registration, topic_config
from tests.support.route_clients import request_count

ELSEWHERE = MASTER._replace(addr="10.0.99.99:10911")


async def checked(one: str, two: str, *args: str) -> tuple[Result, list[tuple[Any, ...]]]:
    """Run `migrate check`; return its result and (matters, kind, names, fact, values) of each difference."""
    result = await ctl("migrate", "check", "--from", one, "--to", two, "-o", "json", *args)
    found = [
        (it["matters"], it["kind"], ",".join(it["names"]), it["fact"], *it["values"].values())
        for it in result.json["differences"]
    ]
    return result, found


async def test_equal_servers_agree(tmp_path: Path) -> None:
    """Every topic is requested in both forms in RocketMQ's protocol, for any number of servers."""
    async with (
        namesrv_in_process(tmp_path / "1") as first,
        one_server(tmp_path / "2") as (second, two),
        one_server(tmp_path / "3") as (third, three),
        ApacheFront(first.address) as apache,
    ):
        for server in (first, second, third):
            peer = await server.connect()
            await peer.register(MASTER)
            await peer.register(SLAVE)
            await peer.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})
        args = ("migrate", "check", "--from", address_of(apache), "--to", f"{two};{three}")

        same = await ctl(*args)
        document = await ctl(*args, "-o", "json")

        assert same == (0, "3 servers agree: 2 brokers, 2 topics\n", "")
        counts = {"brokers": 2, "topics": 2}
        servers = [
            {"side": side, "server": where, **counts}
            for side, where in (("from", address_of(apache)), ("to", two), ("to", three))
        ]
        assert document.json == {"agree": True, "servers": servers, "differences": []}
        once = [101, *[105] * 5, 106, 206, 219, 319, 9999]
        assert sorted(2 * once) == sorted(code for code, _ in apache.requests)
        assert apache.refused == 0


async def test_server_does_not_agree_with_itself(tmp_path: Path) -> None:
    """A new name that still leads to the old server is no replacement."""
    async with one_server(tmp_path) as (server, where):
        await (await server.connect()).register(MASTER)
        other = where.replace("127.0.0.1", "localhost")
        same = await ctl("migrate", "check", "--from", where, "--to", other)
        document = await ctl("migrate", "check", "--from", where, "--to", other, "-o", "json")

    assert (same.code, same.out, same.problems) == (1, "", [f"{where} and {other} are the same server"])
    assert document.json["agree"] is False


async def test_differences_are_marked_as_mattering_or_harmless(tmp_path: Path) -> None:
    """Brokers, addresses, queues, permissions, flags, order configuration and settings matter; topics share lines."""
    async with (
        one_server(tmp_path / "1", order_message_enable=True) as (first, one),
        one_server(tmp_path / "2") as (second, two),
    ):
        there, here = await first.connect(), await second.connect()
        mapping = {"T": {"topic": "T", "bname": "broker-a", "totalQueues": 1, "currIdMap": {"0": 0}}}
        await there.register(MASTER, registration("T", "U", "V", "W", filter_servers=("10.0.0.1:3",), mappings=mapping))
        other = (topic_config("T", perm=4), topic_config("U", write=16), topic_config("V", flags=2))
        await here.register(ELSEWHERE, registration(*other), __ZONE_NAME="z")
        await there.register(OTHER, registration("X", "Y"))
        await there.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})

        result, found = await checked(one, two)
        shown = await ctl("migrate", "check", "--from", one, "--to", two, "--within", "1ms")

        assert (result.code, result.json["agree"]) == (1, False)
        expected = [
            ("broker", "cluster-1/broker-a/0", "address", "10.0.0.1:10911", "10.0.99.99:10911"),
            ("broker", "cluster-1/broker-a/0", "zone", None, "z"),
            ("broker", "cluster-1/broker-b/0", "present", True, False),
            ("cluster", "cluster-1", "groups", "broker-a, broker-b", "broker-a"),
            ("order config", "T", "present", True, False),
            ("setting", "orderMessageEnable", "value", "true", "false"),
            ("topic", "T", "permission on broker-a", "RW-", "R--"),
            ("topic", "T", "order", "broker-a:8", None),
            ("topic", "T", "static queues on broker-a", "0=0", None),
            ("topic", "T,U,V", "filter servers", "10.0.0.1:10911", None),
            ("topic", "U", "queues on broker-a", "8 read, 8 write", "8 read, 16 write"),
            ("topic", "V", "flags on broker-a", 0, 2),
            ("topic", "W,X,Y", "present", True, False),
        ]
        assert sorted(map(str, expected)) == sorted(str(tuple(rest)) for flag, *rest in found if flag)
        # consequences of the differences above
        harmless = {fact for flag, _, _, fact, *_ in found if not flag}
        assert harmless == {"member brokerDatas.zoneName", "member orderTopicConf"}
        assert [flag for flag, *_ in found][: len(expected)] == [True] * len(expected)
        assert shown.code == 1
        assert shown.lines[-1] == f"{len(expected)} differences matter"


# a route as this server encodes it in both forms, as Apache's 5.x does for old clients, and as 4.x does
OURS = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1"},"brokerName":"a","cluster":"c","enableActingMaster":false},'
    b'{"brokerAddrs":{"0":"b:1"},"brokerName":"b","cluster":"c","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)
OLD = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"b:1"},"brokerName":"b","cluster":"c"},'
    b'{"brokerAddrs":{0:"a:1"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSynFlag":0,"writeQueueNums":8}]}'
)
GROUPS = {name: BrokerData("c", name, {0: f"{name}:1"}) for name in "ab"}


@pytest.mark.parametrize(
    ("old", "found"),
    [
        (TopicResponses(OURS, OURS), []),
        (
            TopicResponses(OLD, OLD),
            [
                (False, "first broker", "b", "a"),
                (False, "flags as topicSynFlag", True, False),
                (False, "integers as bare keys", True, False),
                (False, "member brokerDatas.enableActingMaster", None, True),
                (False, "member queueDatas.topicSynFlag", True, None),
                (False, "member queueDatas.topicSysFlag", None, True),
            ],
        ),
        (
            TopicResponses(OURS, OLD.replace(b"a:1", b"a:2")),
            [(True, "the same to clients before 4.9.4", False, True), (False, "integers as bare keys", True, False)],
        ),
        (
            TopicResponses(OURS.replace(b"a:1", b"a:2"), OURS.replace(b"a:1", b"a:2")),
            [(True, "addresses of a", "c: 0=a:2", None)],
        ),
        (TopicResponses(None, None), [(True, "present", False, True)]),
    ],
)
def test_encoding_differences_are_harmless(old: TopicResponses, found: list[tuple[Any, ...]]) -> None:
    """Different encodings of a route are harmless; different contents matter."""
    ours = topic_facts(TopicResponses(OURS, OURS), GROUPS, is_listed=True)
    verdicts = judged(topic_differences("T", {"old": topic_facts(old, GROUPS, is_listed=True), "ours": ours}))

    verdict_facts = [(it.matters, str(it.difference.fact), *it.difference.values.values()) for it in verdicts]
    assert sorted(map(str, found)) == sorted(map(str, verdict_facts))
    assert all(it.why for it in verdicts)


@pytest.mark.parametrize(("kind", "matters"), [("code", True), ("remark", False)])
def test_remark_of_an_error_is_harmless(kind: FactKind, matters: bool) -> None:
    """Clients act on the code of an error, not on its remark."""
    difference = Difference("answer", "to an unknown topic", Fact(kind), {"a": 1, "b": 2})

    assert judged([difference])[0].matters == matters


async def test_part_that_a_server_denies_is_not_equal(tmp_path: Path) -> None:
    """Without the right to read settings and order configuration they may differ: the check does not pass."""
    async with one_server(tmp_path) as (server, one), ApacheFront(server.address) as denying:
        peer = await server.connect()
        await peer.register(MASTER)
        await peer.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})
        denying.remarks |= dict.fromkeys((219, 319), "denied")
        two = address_of(denying)

        result, found = await checked(one, two)
        shown = await ctl("migrate", "check", "--from", one, "--to", two)

    why = [f"{two}: {what} not compared: refused with code 1: denied" for what in ("order configuration", "settings")]
    assert (result.code, result.json["agree"], found, result.problems) == (1, False, [], why)
    assert (shown.code, shown.out) == (1, "")


@pytest.mark.slow
async def test_unreachable_server_cannot_be_compared(tmp_path: Path) -> None:
    """One unreachable server exits with 1, all of them with 2."""
    async with one_server(tmp_path) as (_, one), ApacheFront(("127.0.0.1", 1)) as broken:
        broken.remarks |= dict.fromkeys((101, 105, 206, 219, 319, 9999, 106), "name server not ready")
        with refusing_address() as absent:
            result, _ = await checked(one, absent)
            assert (result.code, result.json["agree"]) == (1, False)
            assert result.problems[0].startswith(f"no connection to {absent}")
            elsewhere = absent.replace("127.0.0.1", "localhost")
            assert (await ctl("migrate", "check", "--from", absent, "--to", elsewhere)).code == 2
        result, _ = await checked(one, address_of(broken))
        why = "refused with code 1: name server not ready"
        assert (result.code, result.problems) == (1, [f"{address_of(broken)}: {why}"])


async def test_server_that_waits_for_its_brokers_is_named_as_not_ready(tmp_path: Path) -> None:
    """An empty snapshot, as docs/migrating.md makes one: the reason is the refusal and not the closed connection."""
    waiting = tmp_path / "2"
    waiting.mkdir()
    (waiting / "snapshot.json").touch()
    async with one_server(tmp_path / "1") as (_, one), one_server(waiting) as (_, two):
        for _ in range(3):
            result, _ = await checked(one, two)
            why = "refused with code 1: name server not ready"
            assert (result.code, result.problems) == (1, [f"{two}: {why}"])


async def test_inheritance_does_not_matter(tmp_path: Path) -> None:
    """With Apache's server a permission of 7 is 6 after `wipeWritePerm` and `addWritePerm`, for days."""
    async with one_server(tmp_path / "1") as (first, one), one_server(tmp_path / "2") as (second, two):
        await (await first.connect()).register(MASTER, registration(topic_config("T", perm=6), "U"))
        await (await second.connect()).register(MASTER, registration(topic_config("T", perm=7), "U"))

        result, found = await checked(one, two)

    assert (result.code, result.json["agree"]) == (0, True)
    assert found == [(False, "topic", "T", "inheritance on broker-a", False, True)]


@pytest.mark.slow
async def test_watch_repeats_the_check_until_servers_agree(tmp_path: Path) -> None:
    """Every check prints a line of JSON; the last one has agree=true."""
    async with one_server(tmp_path / "1") as (first, one), one_server(tmp_path / "2") as (second, two):
        await (await first.connect()).register(MASTER)
        checking = asyncio.create_task(
            ctl("migrate", "check", "--from", one, "--to", two, "--watch", "100ms", "--within", "5m", "-o", "json")
        )
        await until(lambda: request_count(second, 106))
        await (await second.connect()).register(MASTER)
        result = await checking

        gave_up = await ctl("migrate", "check", "--from", one, "--to", "127.0.0.1:1", "--within", "1ms")

    agreed = [json.loads(line)["agree"] for line in result.lines]
    assert (result.code, [agreed[0], agreed[-1]]) == (0, [False, True])
    assert gave_up.code == 1
