"""The commands `diff` and `explain`: differences between NameServers."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from namesrv_client.ctl.commands.explain import Instance
from namesrv_client.ctl.comparison import PRESENT, Difference, Fact, Queues, View, differences, view_of
from namesrv_client.ctl.problems import line_of
from namesrv_client.health import Problem
from namesrv_remoting.bodies.extensions import LiveBroker
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, one_server, refusing_address, two_servers
from tests.support.fake_clock import settle, until
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, SLAVE, TIMESTAMP, registration, topic_config
from tests.support.tcp_proxy import TcpProxy

RW, RO = "8 read, 8 write, RW-", "8 read, 8 write, R--"


# -- values in, values out --------------------------------------------------------------------------------------------


def test_differences_contain_each_servers_value() -> None:
    """Brokers come before topics, sorted by name; a missing entry is one difference per server."""
    address, order, static = Fact("address"), Fact("order"), Fact("static queues on", "a")
    views: dict[str, View] = {
        "s1": {("topic", "T"): {order: "1"}, ("broker", "c/a/0"): {address: "a:1"}, ("topic", "U"): {order: "1"}},
        "s2": {("broker", "c/a/0"): {address: "a:2"}, ("topic", "T"): {order: "1"}},
        "s3": {
            ("broker", "c/a/0"): {address: "a:1"},
            ("broker", "c/b/0"): {address: "b:1"},
            ("topic", "T"): {static: "2", order: "1"},
            ("topic", "U"): {order: "3"},
        },
    }

    assert differences(views) == [
        Difference("broker", "c/a/0", address, {"s1": "a:1", "s2": "a:2", "s3": "a:1"}),
        Difference("broker", "c/b/0", PRESENT, {"s1": False, "s2": False, "s3": True}),
        Difference("topic", "T", static, {"s1": None, "s2": None, "s3": "2"}),
        Difference("topic", "U", PRESENT, {"s1": True, "s2": False, "s3": True}),
        Difference("topic", "U", order, {"s1": "1", "s3": "3"}),
    ]
    assert differences({"s1": views["s1"]}) == differences({}) == []


def test_view_contains_instances_and_topic_queues() -> None:
    """A topic's facts are permission, flags, order configuration and static queues, without broker addresses."""
    group = BrokerData("c", "b", {0: "a:1", 1: "a:2"}, "z", enable_acting_master=True)
    route = TopicRouteData(
        [BrokerData("c", "b", {0: "a:1"})],
        [QueueData("b", 8, 4, 6), QueueData("a", 1, 1, 5, 2)],
        order_topic_conf="b:4",
        topic_queue_mapping_by_broker={"b": TopicQueueMappingInfo("T", "b", curr_id_map={1: 0, 0: 3})},
    )

    of_group = {Fact("zone"): "z", Fact("acting master"): True}
    assert view_of(ClusterInfo({"b": group}, {"c": ["b"]}), {"T": route, "U": None}) == {
        ("broker", "c/b/0"): {Fact("address"): "a:1", **of_group},
        ("broker", "c/b/1"): {Fact("address"): "a:2", **of_group},
        ("topic", "T"): {
            Fact("queues on", "a"): Queues(1, 1, "R-X", 2),
            Fact("queues on", "b"): Queues(8, 4, "RW-"),
            Fact("order"): "b:4",
            Fact("static queues on", "b"): "0=3, 1=0",
        },
    }


@pytest.mark.parametrize(
    ("age", "left", "verdict"),
    [
        *((0.0, 120.0, "fine"), (60.0, 60.0, "fine"), (60.1, 59.9, "late"), (120.0, 0.0, "late")),
        *((120.1, -0.1, "overdue"), (None, None, "unknown")),
    ],
)
def test_verdict_of_an_instance(age: float | None, left: float | None, verdict: str) -> None:
    """An instance is late from half of its expiry on, overdue until a scan evicts it, and gone once evicted."""
    live = LiveBroker("c", "b", 0, "a:1", age_seconds=age, expires_in_seconds=left, expiry_seconds=120.0)
    queues = QueueData("b", 8, 8, 6)

    assert Instance("c", "b", 0, "a:1", queues, live, knows_liveness=True).verdict == verdict
    assert Instance("c", "b", 0, "a:1", queues, None, knows_liveness=True).verdict == "gone"


async def test_equal_servers_have_no_difference(tmp_path: Path) -> None:
    """One of our servers and an Apache server with the same brokers are equal."""
    async with (
        one_server(tmp_path / "1") as (first, one),
        namesrv_in_process(tmp_path / "2") as second,
        ApacheFront(second.address) as apache,
    ):
        for server in (first, second):
            peer = await server.connect()
            await peer.register(MASTER)
            await peer.register(SLAVE)
        two = address_of(apache)

        same = await ctl(*at(one, two), "diff")
        found = await ctl(*at(one, two), "diff", "-o", "json")

        assert same == (0, "the same on 2 servers: 2 brokers, 2 topics\n", "")
        servers = [{"server": where, "brokers": 2, "topics": 2} for where in (one, two)]
        assert found.json == {"same": True, "servers": servers, "differences": []}
        assert set(apache.asked) == {(0, 105), (0, 106), (0, 206), (77, 0)}


async def test_different_servers_exit_with_1(tmp_path: Path) -> None:
    """Differences in brokers, topics and queues are listed."""
    async with two_servers(tmp_path) as (first, second, one, two):
        await first.register(MASTER, registration("T", "U"))
        await first.register(OTHER, registration("T", "V", "W", "X", "Y", "Z"))
        await second.register(MASTER, registration(topic_config("T", perm=4), topic_config("U", write=16, flags=2)))
        await second.register(SLAVE)

        shown = await ctl(*at(one, two), "diff")
        found = await ctl(*at(one, two), "diff", "-o", "json")

    assert shown.cells == [
        ["WHAT", "NAME", "FACT", one, two],
        ["broker", "cluster-1/broker-a/1", "present", "no", "yes"],
        ["broker", "cluster-1/broker-b/0", "present", "yes", "no"],
        ["topic", "T", "queues on broker-a", RW, RO],
        ["topic", "T", "queues on broker-b", RW, "-"],
        ["topic", "U", "queues on broker-a", RW, "8 read, 16 write, RW-, flags 2"],
        ["topic", "V, W, X and 2 more", "present", "yes", "no"],
    ]
    assert (shown.code, found.code, found.json["same"]) == (1, 1, False)
    assert [tuple(server.values()) for server in found.json["servers"]] == [(one, 2, 7), (two, 2, 2)]
    third = {"kind": "topic", "name": "T", "fact": "queues on broker-b", "values": {one: RW, two: None}}
    assert found.json["differences"][3] == third
    assert [difference["name"] for difference in found.json["differences"][5:]] == ["V", "W", "X", "Y", "Z"]


async def test_addresses_of_one_server_are_not_compared(tmp_path: Path) -> None:
    """Two addresses of one server exit with 1: a gate of a rolling restart must not take them for two equal servers."""
    async with two_servers(tmp_path) as (first, second, one, two):
        for peer in (first, second):
            await peer.register(MASTER)
        again = one.replace("127.0.0.1", "localhost")

        same = await ctl(*at(one, again), "diff")
        found = await ctl(*at(one, again), "diff", "-o", "json")
        with_another = await ctl(*at(one, again, two), "diff")

    line = f"namesrvctl: {one} and {again} are the same server\n"
    assert same == (1, "", line)
    assert (found.code, found.json["same"]) == (1, False)
    assert with_another == (1, "", line)


async def test_unreachable_server_in_a_comparison_exits_with_1(tmp_path: Path) -> None:
    """The reachable servers are compared; with fewer than two of them nothing is compared."""
    async with one_server(tmp_path / "1") as (server, _):
        await (await server.connect()).register(MASTER)
    async with two_servers(tmp_path) as (_, second, not_ready, two), one_server(tmp_path / "3") as (third, three):
        with refusing_address() as absent:
            rest = await ctl(*at(three, absent, two), "diff")
            one = await ctl(*at(two, absent), "diff")
            none = await ctl(*at(absent, absent.replace("127.0.0.1", "localhost")), "diff", "-o", "json")
        await second.register(OTHER)
        await (await third.connect()).register(OTHER)
        refused = await ctl(*at(not_ready, two), "diff")

    assert rest[:2] == (1, "the same on 2 servers: 0 brokers, 0 topics\n")
    assert one[:2] == (1, "")
    assert [problem.startswith(f"no connection to {absent}") for problem in one.problems] == [True]
    assert (none.code, none.json["same"], none.json["differences"]) == (2, False, [])
    assert (*refused[:2], refused.problems) == (1, "", [f"{not_ready}: refused with code 1: name server not ready"])


async def test_each_instance_of_a_route_is_explained(tmp_path: Path) -> None:
    """Each instance has its last seen time, expiry and permission."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, registration("T", "U", counter=9))
        await server.clock.advance(70)
        await peer.register(SLAVE)
        await peer.register(OTHER, heartbeatTimeoutMillis=10_000)
        await peer.call(205, {"brokerName": "broker-a"})
        await server.clock.advance(5)

        shown = await ctl(*at(where), "explain", "T")
        found = await ctl(*at(where), "explain", "T", "-o", "json")

    silent = "no heartbeat of the master for 1 m 15 s, while a slave sends them"
    line = f"{where}: critical: cluster-1/broker-a: {silent}; producers may fail to write to 8 of 16 write queues of T"
    look = "see `namesrvctl brokers --name broker-a`"
    removed = "warning: cluster-1/broker-a: write permission removed by an operator; producers do not write to"
    assert shown.code == 1
    assert shown.problems == [f"{line}; {look}", f"{where}: {removed} 8 of 16 write queues of T; {look}"]
    assert shown.cells == [
        ["BROKER", "ID", "ADDRESS", "VERDICT", "LAST SEEN", "EXPIRES IN", "PERM", "WRITE REMOVED", "QUEUES", "VERSION"],
        ["broker-a", "0", "10.0.0.1:10911", "late", "1 m 15 s ago", "45.0 s", "R--", "yes", "8/8", "9"],
        ["broker-a", "1", "10.0.0.2:10911", "fine", "5.0 s ago", "1 m 55 s", "R--", "yes", "8/8", "1"],
        ["broker-b", "0", "10.0.0.3:10911", "fine", "5.0 s ago", "5.0 s", "RW-", "no", "8/8", "1"],
    ]
    document = found.json
    last = document["servers"][0].pop("brokers")[-1]
    problem = document.pop("problems")[0]
    assert (problem["severity"], problem["kind"]) == ("critical", "silent_master")
    assert (problem["subject"], problem["since_seconds"]) == ("cluster-1/broker-a", 75.0)
    assert last == {
        "cluster": "cluster-1", "broker_name": "broker-b", "broker_id": 0, "broker_addr": "10.0.0.3:10911",
        "verdict": "fine", "age_seconds": 5.0, "expires_in_seconds": 5.0, "expiry_seconds": 10.0,
        "perm": 6, "read_queue_nums": 8, "write_queue_nums": 8, "write_removed": False,
        "data_version": {"counter": 1, "state_version": 0, "timestamp": TIMESTAMP},
    }  # fmt: skip
    servers = [{"server": where, "present": True, "why": None}]
    assert document == {"topic": "T", "agree": True, "servers": servers, "differences": []}


@pytest.mark.parametrize("command", [["status"], ["top", "--once"]])
async def test_two_addresses_of_one_server_are_named(tmp_path: Path, command: list[str]) -> None:
    """Two lines of one server would look like two healthy servers, and equal ages on both would say nothing."""
    async with one_server(tmp_path) as (server, where):
        await (await server.connect()).register(MASTER)
        other = where.replace("127.0.0.1", "localhost")
        shown = await ctl(*at(where, other), *command)

    assert shown.code == 0
    assert f"{where} and {other} are the same server" in [*shown.lines, *shown.problems]


@pytest.mark.parametrize("dialect", ["native", "rocketmq"])
async def test_group_without_a_master_is_critical(tmp_path: Path, dialect: Literal["native", "rocketmq"]) -> None:
    """A killed master leaves its slave in the route: `explain` and `status` name the group and exit with 1."""
    async with one_server(tmp_path, dialect) as (server, where):
        master, slave = await server.connect(), await server.connect()
        await slave.register(OTHER)
        await slave.register(SLAVE)
        await master.register(MASTER)
        healthy = await ctl(*at(where), "status")
        await master.call(104, MASTER.ext)

        explained = await ctl(*at(where), "explain", "T")
        status = await ctl(*at(where), "status")
        document = (await ctl(*at(where), "status", "-o", "json")).json

    lasts = " for 0.0 s" if dialect == "native" else ""
    missing = f"{where}: critical: cluster-1/broker-a: no master is registered{lasts}; producers cannot write to"
    look = "see `namesrvctl brokers --name broker-a`"
    assert (healthy.code, healthy.err) == (0, "")
    assert (explained.code, explained.problems) == (1, [f"{missing} 8 of 16 write queues of T; {look}"])
    assert [cell for cell in explained.cells[1] if cell != "-"][:3] == ["broker-a", "0", "no master"]
    assert (status.code, status.problems) == (1, [f"{missing} 16 of 32 write queues of 2 topics; {look}"])
    assert document["healthy"] is False
    assert [problem["kind"] for problem in document["problems"]] == ["without_master"]


@pytest.mark.parametrize("command", [["status"], ["brokers"], ["top", "--once"]])
async def test_master_may_register_after_its_slave(tmp_path: Path, command: list[str]) -> None:
    """A slave has registered with a server that has just started: only 35 s later is the missing master a problem."""
    async with one_server(tmp_path / "1") as (first, one), one_server(tmp_path / "2") as (second, two):
        known, starting = await first.connect(), await second.connect()
        await known.register(MASTER)
        await known.register(SLAVE)
        await starting.register(SLAVE)

        at_first = await ctl(*at(one, two), *command)
        await second.clock.advance(35)
        later = await ctl(*at(one, two), *command)

    missing = f"{two}: critical: cluster-1/broker-a: no master is registered"
    assert missing not in at_first.err + at_first.out
    assert missing in later.err + later.out


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (
            Problem("without_master", "c/b", ("s1", "s3"), seconds=61.0, count=4, group=("c", "b")),
            "s1, s3: critical: c/b: no master is registered for 1 m 1 s; producers cannot write to its 4 topics",
        ),
        # Apache's server reports no number of topics
        (
            Problem("missing_broker", "c/b/0", ("s2",), group=("c", "b")),
            "s2: warning: c/b/0: missing; clients of this server cannot reach it for its topics",
        ),
    ],
)
def test_problem_of_several_servers_is_one_line(problem: Problem, line: str) -> None:
    """The line names the servers that report the problem, and the number of topics if the routes are unknown."""
    assert line_of(problem) == f"{line}; see `{problem.command}`"


async def test_disagreeing_servers_exit_with_1(tmp_path: Path) -> None:
    """Servers disagree about brokers and permissions; different last seen times are no disagreement."""
    async with one_server(tmp_path / "1") as (first, one), one_server(tmp_path / "2") as (second, two):
        peer, other = await first.connect(), await second.connect()
        await peer.register(MASTER)
        await first.clock.advance(7)
        await other.register(MASTER)
        agreed = await ctl(*at(one, two), "explain", "T")
        await peer.register(OTHER)
        await other.call(205, {"brokerName": "broker-a"})
        shown = await ctl(*at(one, two), "explain", "T")
        found = await ctl(*at(one, two), "explain", "T", "-o", "json")

    assert (agreed.code, agreed.err) == (0, "")
    assert [row[4:6] for row in agreed.cells[1:]] == [["fine", "7.0 s ago"], ["fine", "0.0 s ago"]]
    assert (shown.code, shown.problems[0]) == (1, "the servers disagree about T")
    removed = f"{two}: warning: cluster-1/broker-a: write permission removed by an operator; producers do not write to "
    assert [line.partition("8 of 8")[0] for line in shown.problems[1:]] == [removed]
    assert shown.cells[4:] == [
        [two, "broker-b", "0", "10.0.0.3:10911", "missing", *["-"] * 6],
        [],
        ["WHAT", "NAME", "FACT", one, two],
        ["topic", "T", "queues on broker-a", RW, RO],
        ["topic", "T", "queues on broker-b", RW, "-"],
        ["topic", "T", "address of broker-b/0", "10.0.0.3:10911", "-"],
        ["topic", "T", "write removed on broker-a", "-", "yes"],
    ]
    assert (found.code, found.json["agree"]) == (1, False)
    assert [[broker["verdict"] for broker in server["brokers"]] for server in found.json["servers"]] == [
        ["fine", "fine"],
        ["fine", "missing"],
    ]
    assert {found.json["servers"][1]["brokers"][1][name] for name in ("perm", "age_seconds", "write_removed")} == {None}


async def test_server_that_restarts_during_diff_is_not_compared(tmp_path: Path) -> None:
    """Brokers that one boot reported are not compared beside routes of the next, which has no brokers yet."""
    async with (
        one_server(tmp_path / "1") as (old, _),
        one_server(tmp_path / "2") as (new, _),
        one_server(tmp_path / "3") as (other, _),
        TcpProxy(old.address) as first,
        TcpProxy(other.address) as second,
    ):
        await (await old.connect()).register(MASTER)
        await (await other.connect()).register(MASTER)
        second.stall()
        servers = at(first.address, second.address)
        running = asyncio.create_task(ctl(*servers, "diff", "-o", "json", "--timeout", "30s"))
        # Server info, brokers and topics of the first server; its routes are requested after those of the second.
        await until(lambda: any(one.peer.requests == 3 for one in old.namesrv.slots.connections.values()))
        await settle()
        first.switch(new.address)
        await second.heal()
        found = await running

    assert (found.code, found.problems) == (1, [f"{first.address}: restarted during the comparison"])
    assert (found.json["same"], found.json["differences"]) == (False, [])


async def test_absent_topic_or_server_exits_with_1(tmp_path: Path) -> None:
    """`agree` is false when a server lacks the topic or is unreachable, and true when all lack it."""
    async with two_servers(tmp_path) as (first, _, one, two):
        await first.register(MASTER)

        some = await ctl(*at(one, two), "explain", "T")
        none = await ctl(*at(one, two), "explain", "X", "-o", "json")
        with refusing_address() as absent:
            down = await ctl(*at(one, absent), "explain", "T", "-o", "json")

    reason = "No broker is registered: each broker needs this server in its list of NameServers (namesrvAddr)."
    assert (some.code, some.problems[0].startswith(f"{two}: no topic T: NameServer ")) == (1, True)
    assert (some.problems[0].endswith(reason), some.problems[1:]) == (True, ["the servers disagree about T"])
    assert (none.code, none.json["agree"]) == (1, True)
    assert [server["present"] for server in none.json["servers"]] == [False, False]
    assert (down.code, down.json["agree"]) == (1, False)


async def test_apache_server_without_ages_is_compared(tmp_path: Path) -> None:
    """An Apache server reports no ages; its routes are compared all the same."""
    async with (
        one_server(tmp_path / "1") as (first, one),
        namesrv_in_process(tmp_path / "2") as second,
        ApacheFront(second.address) as apache,
    ):
        await (await first.connect()).register(MASTER)
        await (await second.connect()).register(MASTER)

        shown = await ctl(*at(one, apache), "explain", "T")
        alone = await ctl(*at(apache), "explain", "T")
        # an Apache server keeps queues of brokers that it has removed
        apache.bodies[105] = (
            b'{"brokerDatas":[],"queueDatas":[{"brokerName":"gone","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
        )
        ghost = await ctl(*at(apache), "explain", "T", "-o", "json")

    assert (shown.code, [row[4] for row in shown.cells[1:]]) == (0, ["fine", "unknown"])
    assert alone.cells == [
        ["BROKER", "ID", "ADDRESS", "VERDICT", "PERM", "QUEUES"],
        ["broker-a", "0", "10.0.0.1:10911", "unknown", "RW-", "8/8"],
    ]
    (broker,) = ghost.json["servers"][0]["brokers"]
    assert (broker["broker_name"], broker["broker_addr"], broker["verdict"]) == ("gone", None, "unknown")
    assert (ghost.code, [problem["kind"] for problem in ghost.json["problems"]]) == (1, ["group_gone"])
