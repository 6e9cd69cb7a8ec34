"""The command `diff`: differences of NameServers."""

from pathlib import Path

from namesrv_client.ctl.commands.diff import Difference, View, differences, grouped, view_of
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, nobody
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration, topic_config

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")


def test_differences_name_what_each_server_says() -> None:
    """Brokers before topics, by name, in whatever order; of what only some have, only that is said of the others."""
    views: dict[str, View] = {
        "s1": {("topic", "T"): {"f": 1}, ("broker", "c/a/0"): {"address": "a:1"}, ("topic", "U"): {"f": 1}},
        "s2": {("broker", "c/a/0"): {"address": "a:2"}, ("topic", "T"): {"f": 1}},
        "s3": {
            ("broker", "c/a/0"): {"address": "a:1"},
            ("broker", "c/b/0"): {"address": "b:1"},
            ("topic", "T"): {"g": 2, "f": 1},
            ("topic", "U"): {"f": 3},
        },
    }

    assert [
        Difference("broker", "c/a/0", "address", {"s1": "a:1", "s2": "a:2", "s3": "a:1"}),
        Difference("broker", "c/b/0", "present", {"s1": False, "s2": False, "s3": True}),
        Difference("topic", "T", "g", {"s1": None, "s2": None, "s3": 2}),
        Difference("topic", "U", "present", {"s1": True, "s2": False, "s3": True}),
        Difference("topic", "U", "f", {"s1": 1, "s3": 3}),
    ] == differences(views)
    assert [] == differences({"s1": views["s1"]}) == differences({})


def test_topics_that_differ_alike_are_told_together() -> None:
    """A broker that one server lacks is missed in all its topics; brokers are told one by one."""
    values = {"s1": True, "s2": False}
    found = [Difference("broker", name, "present", values) for name in ("a", "b")]
    found += [Difference("topic", name, "present", values) for name in ("T", "V")]
    found.insert(3, Difference("topic", "U", "present", {"s1": False, "s2": True}))

    assert [(["a"], found[0]), (["b"], found[1]), (["T", "V"], found[2]), (["U"], found[3])] == grouped(found)


def test_facts_are_those_of_each_instance_and_of_each_topics_queues() -> None:
    """Permission, flags, order configuration and static queues, without the brokers' addresses."""
    group = BrokerData("c", "b", {0: "a:1", 1: "a:2"}, "z", enable_acting_master=True)
    route = TopicRouteData(
        [BrokerData("c", "b", {0: "a:1"})],
        [QueueData("b", 8, 4, 6), QueueData("a", 1, 1, 5, 2)],
        order_topic_conf="b:4",
        topic_queue_mapping_by_broker={"b": TopicQueueMappingInfo("T", "b", curr_id_map={1: 0, 0: 3})},
    )

    assert {
        ("broker", "c/b/0"): {"address": "a:1", "zone": "z", "acting master": True},
        ("broker", "c/b/1"): {"address": "a:2", "zone": "z", "acting master": True},
        ("topic", "T"): {
            "queues on a": "1 read, 1 write, R-X, flags 2",
            "queues on b": "8 read, 4 write, RW-",
            "order": "b:4",
            "static queues on b": "0=3, 1=0",
        },
    } == view_of(ClusterInfo({"b": group}, {"c": ["b"]}), {"T": route, "U": None})


# -- the command -------------------------------------------------------------------------------------------------------


async def test_servers_that_say_the_same(tmp_path: Path) -> None:
    """One of ours and one of Apache's."""
    async with (
        namesrv_in_process(tmp_path / "1") as first,
        namesrv_in_process(tmp_path / "2") as second,
        ApacheFront(second.address) as apache,
    ):
        for server in (first, second):
            peer = await server.connect()
            await peer.register(MASTER)
            await peer.register(SLAVE)

        same = await ctl(*at(first, apache), "diff")
        found = await ctl(*at(first, apache), "diff", "-o", "json")

        assert (0, "the same on 2 servers: 2 brokers, 2 topics\n", "") == same
        counts = {"brokers": 2, "topics": 2}
        assert {
            "same": True,
            "servers": [{"server": address_of(first), **counts}, {"server": address_of(apache), **counts}],
            "differences": [],
        } == found.json
        assert {(0, 105), (0, 106), (0, 206), (77, 0)} == set(apache.asked)


async def test_servers_that_differ(tmp_path: Path) -> None:
    """In a broker, in a topic, and in queues; that is a no."""
    async with namesrv_in_process(tmp_path / "1") as first, namesrv_in_process(tmp_path / "2") as second:
        peer, other = await first.connect(), await second.connect()
        await peer.register(MASTER, registration("T", "U"))
        await peer.register(OTHER, registration("T", "V", "W", "X", "Y", "Z"))
        await other.register(MASTER, registration(topic_config("T", perm=4), topic_config("U", write=16)))
        await other.register(SLAVE)
        one, two = address_of(first), address_of(second)

        shown = await ctl(*at(first, second), "diff")
        found = await ctl(*at(first, second), "diff", "-o", "json")

    assert 1 == shown.code == found.code
    assert [
        ["WHAT", "NAME", "FACT", one, two],
        ["broker", "cluster-1/broker-a/1", "present", "no", "yes"],
        ["broker", "cluster-1/broker-b/0", "present", "yes", "no"],
        ["topic", "T", "queues on broker-a", "8 read, 8 write, RW-", "8 read, 8 write, R--"],
        ["topic", "T", "queues on broker-b", "8 read, 8 write, RW-", "-"],
        ["topic", "U", "queues on broker-a", "8 read, 8 write, RW-", "8 read, 16 write, RW-"],
        ["topic", "V, W, X and 2 more", "present", "yes", "no"],
    ] == shown.cells
    assert found.json["same"] is False
    assert [{"server": one, "brokers": 2, "topics": 7}, {"server": two, "brokers": 2, "topics": 2}] == (
        found.json["servers"]
    )
    assert {
        "kind": "topic",
        "name": "T",
        "fact": "queues on broker-b",
        "values": {one: "8 read, 8 write, RW-", two: None},
    } == found.json["differences"][3]
    assert ["V", "W", "X", "Y", "Z"] == [one["name"] for one in found.json["differences"][5:]]


async def test_server_that_cannot_be_compared_is_a_no(tmp_path: Path) -> None:
    """The others are compared; with only one left there is nothing to say."""
    async with namesrv_in_process(tmp_path / "1") as first, namesrv_in_process(tmp_path / "2") as second:
        with nobody() as absent:
            two = await ctl(*at(first, absent, second), "diff")
            one = await ctl(*at(first, absent), "diff")
            none = await ctl(*at(absent, absent.replace("127.0.0.1", "localhost")), "diff", "-o", "json")

        assert (1, "the same on 2 servers: 0 brokers, 0 topics\n") == two[:2]
        assert (1, "") == one[:2]
        assert [True] == [problem.startswith(f"no connection to {absent}") for problem in one.problems]
        assert (2, False, []) == (none.code, none.json["same"], none.json["differences"])


async def test_server_that_is_not_ready_cannot_be_compared(tmp_path: Path) -> None:
    """It tells no routes."""
    async with namesrv_in_process(tmp_path / "1") as server:
        await (await server.connect()).register(MASTER)
    async with namesrv_in_process(tmp_path / "1") as first, namesrv_in_process(tmp_path / "2") as second:
        await (await second.connect()).register(OTHER)

        found = await ctl(*at(first, second), "diff")

        assert (1, "") == (found.code, found.out)
        assert [f"{address_of(first)}: refused with code 1: name server not ready"] == found.problems


async def test_one_server_is_nothing_to_compare() -> None:
    """Wrong usage."""
    refused = await ctl("diff")

    assert 2 == refused.code
    assert "at least two servers" in refused.err
