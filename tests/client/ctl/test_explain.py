"""The command `explain`."""

from pathlib import Path

import pytest

from namesrv_client.ctl.commands.explain import Instance
from namesrv_remoting.bodies.extensions import LiveBroker
from namesrv_remoting.bodies.route import QueueData
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, nobody
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import TIMESTAMP, Broker, registration

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")
HEADS = ["BROKER", "ID", "ADDRESS", "VERDICT", "HEARD", "EVICTED IN", "PERM", "WIPED", "QUEUES", "VERSION"]


async def test_each_instance_of_a_route_is_explained(tmp_path: Path) -> None:
    """How long it has been silent, when that ends, and whether it can be written to."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER, registration("T", "U", counter=9))
        await server.clock.advance(70)
        await peer.register(SLAVE)
        await peer.register(OTHER, heartbeatTimeoutMillis=10_000)
        await peer.call(205, {"brokerName": "broker-a"})
        await server.clock.advance(5)

        shown = await ctl(*at(server), "explain", "T")

    assert (0, "") == (shown.code, shown.err)
    assert [
        HEADS,
        ["broker-a", "0", "10.0.0.1:10911", "late", "1 m 15 s ago", "45.0 s", "R--", "yes", "8/8", "9"],
        ["broker-a", "1", "10.0.0.2:10911", "fine", "5.0 s ago", "1 m 55 s", "R--", "yes", "8/8", "1"],
        ["broker-b", "0", "10.0.0.3:10911", "fine", "5.0 s ago", "5.0 s", "RW-", "no", "8/8", "1"],
    ] == shown.cells


async def test_explanation_for_programs(tmp_path: Path) -> None:
    """Numbers in seconds, permission as a number."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)
        await server.clock.advance(1.5)

        found = await ctl(*at(server), "explain", "T", "-o", "json")

        assert {
            "topic": "T",
            "agree": True,
            "servers": [
                {
                    "server": address_of(server),
                    "present": True,
                    "brokers": [
                        {
                            "cluster": "cluster-1",
                            "broker_name": "broker-a",
                            "broker_id": 0,
                            "broker_addr": "10.0.0.1:10911",
                            "verdict": "fine",
                            "age_seconds": 1.5,
                            "expires_in_seconds": 118.5,
                            "expiry_seconds": 120.0,
                            "perm": 6,
                            "read_queue_nums": 8,
                            "write_queue_nums": 8,
                            "write_wiped": False,
                            "data_version": {"counter": 1, "state_version": 0, "timestamp": TIMESTAMP},
                        }
                    ],
                }
            ],
            "differences": [],
        } == found.json


async def test_servers_that_disagree_are_a_no(tmp_path: Path) -> None:
    """About a broker, and about a permission; how long ago they heard of it may differ."""
    async with namesrv_in_process(tmp_path / "1") as first, namesrv_in_process(tmp_path / "2") as second:
        peer, other = await first.connect(), await second.connect()
        await peer.register(MASTER)
        await first.clock.advance(7)
        await other.register(MASTER)
        one, two = address_of(first), address_of(second)
        agreed = await ctl(*at(first, second), "explain", "T")
        assert (0, "", [[one, "fine", "7.0 s ago"], [two, "fine", "0.0 s ago"]]) == (
            agreed.code,
            agreed.err,
            [[row[0], *row[4:6]] for row in agreed.cells[1:]],
        )

        await peer.register(OTHER)
        await other.call(205, {"brokerName": "broker-a"})
        shown = await ctl(*at(first, second), "explain", "T")
        found = await ctl(*at(first, second), "explain", "T", "-o", "json")

    assert (1, ["the servers disagree about T"]) == (shown.code, shown.problems)
    assert [
        [],
        ["WHAT", "NAME", "FACT", one, two],
        ["topic", "T", "queues on broker-a", "8 read, 8 write, RW-", "8 read, 8 write, R--"],
        ["topic", "T", "queues on broker-b", "8 read, 8 write, RW-", "-"],
        ["topic", "T", "address of broker-b/0", "10.0.0.3:10911", "-"],
        ["topic", "T", "wiped on broker-a", "-", "yes"],
    ] == shown.cells[5:]
    assert [two, "broker-b", "0", "10.0.0.3:10911", "missing", *["-"] * 6] == shown.cells[4]
    assert (1, False) == (found.code, found.json["agree"])
    assert [["fine", "fine"], ["fine", "missing"]] == [
        [broker["verdict"] for broker in server["brokers"]] for server in found.json["servers"]
    ]


async def test_absent_topic_is_a_no(tmp_path: Path) -> None:
    """On one server, or on all."""
    async with namesrv_in_process(tmp_path / "1") as first, namesrv_in_process(tmp_path / "2") as second:
        await (await first.connect()).register(MASTER)

        one = await ctl(*at(first, second), "explain", "T")
        none = await ctl(*at(first, second), "explain", "X", "-o", "json")

        assert (1, [f"{address_of(second)}: no topic T", "the servers disagree about T"]) == (one.code, one.problems)
        assert (1, True, [False, False]) == (
            none.code,
            none.json["agree"],
            [server["present"] for server in none.json["servers"]],
        )


async def test_server_that_is_down_makes_it_a_no(tmp_path: Path) -> None:
    """What it would have said is not known."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)
        with nobody() as absent:
            found = await ctl(*at(server, absent), "explain", "T", "-o", "json")

    assert (1, False) == (found.code, found.json["agree"])


async def test_apaches_server_does_not_tell_ages(tmp_path: Path) -> None:
    """Its routes are compared all the same."""
    async with (
        namesrv_in_process(tmp_path / "1") as first,
        namesrv_in_process(tmp_path / "2") as second,
        ApacheFront(second.address) as apache,
    ):
        await (await first.connect()).register(MASTER)
        await (await second.connect()).register(MASTER)

        shown = await ctl(*at(first, apache), "explain", "T")
        alone = await ctl(*at(apache), "explain", "T")
        # Apache's server keeps queues of brokers that it does not know any more
        apache.bodies[105] = (
            b'{"brokerDatas":[],"queueDatas":[{"brokerName":"gone","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
        )
        ghost = await ctl(*at(apache), "explain", "T", "-o", "json")

    assert (0, ["fine", "unknown"]) == (shown.code, [row[4] for row in shown.cells[1:]])
    assert [
        ["BROKER", "ID", "ADDRESS", "VERDICT", "PERM", "QUEUES"],
        ["broker-a", "0", "10.0.0.1:10911", "unknown", "RW-", "8/8"],
    ] == alone.cells
    (broker,) = ghost.json["servers"][0]["brokers"]
    assert ("gone", None, "unknown") == (broker["broker_name"], broker["broker_addr"], broker["verdict"])


@pytest.mark.parametrize(
    ("age", "left", "verdict"),
    [
        (0.0, 120.0, "fine"),
        (60.0, 60.0, "fine"),
        (60.1, 59.9, "late"),
        (120.0, 0.0, "late"),
        (120.1, -0.1, "overdue"),
        (None, None, "unknown"),
    ],
)
def test_verdict(age: float | None, left: float | None, verdict: str) -> None:
    """Late from half of its time on; overdue until the next scan finds it."""
    live = LiveBroker("c", "b", 0, "a:1", age_seconds=age, expires_in_seconds=left, expiry_seconds=120.0)

    assert verdict == Instance("c", "b", 0, "a:1", QueueData("b", 8, 8, 6), live, tells_liveness=True).verdict


def test_verdict_on_who_is_in_the_route_only() -> None:
    """Gone, where the server tells who lives; else unknown, as the test with Apache's server shows."""
    assert "gone" == Instance("c", "b", 0, "a:1", QueueData("b", 8, 8, 6), None, tells_liveness=True).verdict
