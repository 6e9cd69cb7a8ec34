"""The commands `topics` and `route`."""

from pathlib import Path

from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, nobody
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration, topic_config

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")


async def test_topics_are_listed(tmp_path: Path) -> None:
    """By name; of a cluster when asked for."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER, registration("U", "T"))
        await peer.register(ELSEWHERE, registration("T", "V"))

        assert ["TOPIC", "T", "U", "V"] == (await ctl(*at(server), "topics")).lines
        assert ["TOPIC", "T", "V"] == (await ctl(*at(server), "topics", "--cluster", "cluster-2")).lines
        found = await ctl(*at(server), "topics", "-o", "json")
        assert {"servers": [{"server": address_of(server), "topics": ["T", "U", "V"]}]} == found.json
        nothing = await ctl(*at(server), "topics", "-c", "cluster-x")
        assert (1, "", f"namesrvctl: {address_of(server)}: no topic in cluster cluster-x\n") == nothing


async def test_topics_of_several_servers_say_who_knows_them(tmp_path: Path) -> None:
    """One list of all, with the servers of those that not all have."""
    async with (
        namesrv_in_process(tmp_path / "1") as first,
        namesrv_in_process(tmp_path / "2") as second,
    ):
        await (await first.connect()).register(MASTER, registration("T", "U"))
        await (await second.connect()).register(MASTER, registration("T", "V"))

        shown = await ctl(*at(first, second), "topics")

        assert [
            ["TOPIC", "KNOWN TO"],
            ["T", "all"],
            ["U", address_of(first)],
            ["V", address_of(second)],
        ] == shown.cells


async def test_refused_list_is_a_no(tmp_path: Path) -> None:
    """The server can have it switched off."""
    async with namesrv_in_process(tmp_path, enable_all_topic_list=False) as server:
        refused = await ctl(*at(server), "topics")

        assert (1, "", f"namesrvctl: {address_of(server)}: refused with code 1: disable\n") == refused


async def test_route_is_shown_by_broker(tmp_path: Path) -> None:
    """Permission and queues, master and slaves."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(OTHER, registration(topic_config("T", read=4, write=2, perm=4), "X"))
        await peer.register(MASTER)
        await peer.register(SLAVE)

        shown = await ctl(*at(server), "route", "T", "X")

    assert (0, "") == (shown.code, shown.err)
    assert [
        ["TOPIC", "CLUSTER", "BROKER", "PERM", "READ", "WRITE", "MASTER", "SLAVES"],
        ["T", "cluster-1", "broker-a", "RW-", "8", "8", "10.0.0.1:10911", "1=10.0.0.2:10911"],
        ["T", "cluster-1", "broker-b", "R--", "4", "2", "10.0.0.3:10911", "-"],
        ["X", "cluster-1", "broker-b", "RW-", "8", "8", "10.0.0.3:10911", "-"],
    ] == shown.cells


async def test_route_for_programs_is_whole(tmp_path: Path) -> None:
    """Filter servers, order configuration and static queues included; the same from Apache's server."""
    mapping = {
        "topic": "T",
        "bname": "broker-a",
        "scope": "global",
        "epoch": 5,
        "totalQueues": 4,
        "dirty": False,
        "currIdMap": {"0": 1, "1": 0},
    }
    async with (
        namesrv_in_process(tmp_path, order_message_enable=True) as server,
        ApacheFront(server.address) as apache,
    ):
        peer = await server.connect()
        body = registration("T", "U", mappings={"T": mapping}, filter_servers=("10.0.0.1:7000",))
        await peer.register(MASTER, body, __ZONE_NAME="z1")
        await peer.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"})

        native = await ctl(*at(server), "route", "T", "-o", "json")
        rocketmq = await ctl(*at(apache), "route", "T", "-o", "json")

        assert {
            "servers": [
                {
                    "server": address_of(server),
                    "routes": {
                        "T": {
                            "brokers": [
                                {
                                    "cluster": "cluster-1",
                                    "broker_name": "broker-a",
                                    "broker_addrs": {"0": "10.0.0.1:10911"},
                                    "zone_name": "z1",
                                    "enable_acting_master": False,
                                }
                            ],
                            "queues": [
                                {
                                    "broker_name": "broker-a",
                                    "read_queue_nums": 8,
                                    "write_queue_nums": 8,
                                    "perm": 6,
                                    "topic_sys_flag": 0,
                                }
                            ],
                            "filter_servers": {"10.0.0.1:10911": ["10.0.0.1:7000"]},
                            "order_topic_conf": "broker-a:4",
                            "static_mappings": {
                                "broker-a": {
                                    "topic": "T",
                                    "bname": "broker-a",
                                    "scope": "global",
                                    "epoch": 5,
                                    "total_queues": 4,
                                    "dirty": False,
                                    "curr_id_map": {"0": 1, "1": 0},
                                }
                            },
                        }
                    },
                }
            ]
        } == native.json
        assert native.json["servers"][0]["routes"] == rocketmq.json["servers"][0]["routes"]


async def test_route_of_absent_topic_is_a_no(tmp_path: Path) -> None:
    """The other topics are shown all the same, whichever protocol the server speaks."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        await (await server.connect()).register(MASTER)

        for one in (server, apache):
            shown = await ctl(*at(one), "route", "T", "absent")
            assert (1, f"namesrvctl: {address_of(one)}: no topic absent\n") == (shown.code, shown.err)
            assert ["T"] == [row[0] for row in shown.cells[1:]]
            found = await ctl(*at(one), "route", "absent", "-o", "json")
            assert (1, {"absent": None}) == (found.code, found.json["servers"][0]["routes"])


async def test_route_that_one_of_two_servers_lacks_is_a_no(tmp_path: Path) -> None:
    """A client of that one would not find it."""
    async with (
        namesrv_in_process(tmp_path / "1") as first,
        namesrv_in_process(tmp_path / "2") as second,
    ):
        await (await first.connect()).register(MASTER)

        shown = await ctl(*at(first, second), "route", "T")

        assert (1, [f"{address_of(second)}: no topic T"]) == (shown.code, shown.problems)
        assert [address_of(first)] == [row[0] for row in shown.cells[1:]]


async def test_route_with_one_server_down_is_known_all_the_same(tmp_path: Path) -> None:
    """The answer does not depend on it; standard error names it."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)
        with nobody() as absent:
            shown = await ctl(*at(absent, server), "route", "T")

        assert 0 == shown.code
        assert [address_of(server)] == [row[0] for row in shown.cells[1:]]
        assert [absent] == [problem.split()[3].rstrip(":") for problem in shown.problems]


async def test_server_that_is_not_ready_tells_no_route(tmp_path: Path) -> None:
    """That is not the same as that there is none."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)
    async with namesrv_in_process(tmp_path) as server:
        shown = await ctl(*at(server), "route", "T")

        reason = "refused with code 1: name server not ready"
        assert (1, "", f"namesrvctl: {address_of(server)}: {reason}\n") == shown


async def test_queues_without_instance_are_shown_all_the_same(tmp_path: Path) -> None:
    """Apache's server keeps queues of brokers that it does not know any more; it spells keys without quotes."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        apache.bodies[105] = (
            b'{"brokerDatas":[{"brokerAddrs":{1:"10.0.0.2:10911",0:"10.0.0.1:10911"},"brokerName":"broker-a",'
            b'"cluster":"cluster-1"}],"filterServerTable":{},"queueDatas":['
            b'{"brokerName":"broker-z","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4},'
            b'{"brokerName":"broker-a","perm":7,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )

        shown = await ctl(*at(apache), "route", "T")

    assert [
        ["T", "cluster-1", "broker-a", "RWX", "4", "4", "10.0.0.1:10911", "1=10.0.0.2:10911"],
        ["T", "-", "broker-z", "RW-", "4", "4", "-", "-"],
    ] == shown.cells[1:]


async def test_thousands_of_topics_are_asked_for_in_parts(tmp_path: Path) -> None:
    """No answer outgrows a frame."""
    names = [f"topic-{number:04}" for number in range(2_500)]
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER, registration(*names))

        found = await ctl(*at(server), "route", *names, "-o", "json")

    routes = found.json["servers"][0]["routes"]
    assert (0, names) == (found.code, list(routes))
    assert None not in routes.values()
