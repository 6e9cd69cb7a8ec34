"""The commands `status`, `brokers`, `clusters`, `connections`, `topics` and `route`."""

import os
from pathlib import Path
from typing import Any

import pytest

from namesrv import version
from tests.support.apache_server import ApacheFront
from tests.support.certificates import Authority
from tests.support.ctl import NOT_SUPPORTED, TWO_TOPICS, address_of, at, ctl, one_server, refusing_address, two_servers
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import (
    ELSEWHERE,
    MASTER,
    OTHER,
    SLAVE,
    TIMESTAMP,
    Broker,
    native,
    native_registration,
    registration,
    topic_config,
)


def heads(text: str) -> list[str]:
    """The cells of a table's header."""
    return text.split(" | ")


async def test_status_of_a_ready_server(tmp_path: Path) -> None:
    """One row shows the server's state and counts; JSON has the members of SERVER_INFO."""
    async with one_server(tmp_path, nameserver_name="ns-1") as (server, where):
        await server.clock.advance(125)
        await (await server.connect()).register(MASTER, registration("T", "U", "V"))

        shown = await ctl(*at(where), "status")
        found = await ctl(*at(where), "status", "-o", "json")

        assert (shown.code, shown.err) == (0, "")
        assert shown.cells == [
            heads("SERVER | STATE | PROTOCOL | NAME | VERSION | UP | BROKERS | TOPICS | CONNECTIONS | REVISION"),
            [where, "ready", "native", "ns-1", version(), "2 m 5 s", "1", "3", "2", "1"],
        ]
        reported = found.json["servers"][0]
        assert reported.pop("traffic")["registrations"] == 1
        assert reported == {
            "server": where, "protocol": "native", "state": "ready", "brokers": 1, "topics": 3,
            "boot_id": server.namesrv.boot.id, "version": version(), "ready": True, "revision": 1, "connections": 2,
            "nameserver": "ns-1", "readiness": "ready: no brokers expected", "draining": False,
            "started_ms": 1_700_000_000_000, "uptime_seconds": 125.0, "pid": os.getpid(), "clusters": 1,
            "watchers": 0, "pulls": 0, "heartbeats": 0, "refusals": {}, "last_event_seq": 2, "problems": [],
        }  # fmt: skip
        assert found.json["problems"] == []
        assert found.json["healthy"] is True
        server.namesrv.boot.is_draining = True
        draining = await ctl(*at(where), "status")
        server.namesrv.boot.is_draining = False

    assert (draining.code, draining.cells[1][1]) == (1, "draining")


async def test_server_that_is_not_ready_is_unhealthy(tmp_path: Path) -> None:
    """`status` names the expected brokers, and `route` reports a refusal instead of an absent topic."""
    async with one_server(tmp_path) as (server, _):
        await (await server.connect()).register(MASTER)
    async with one_server(tmp_path) as (_, where):
        shown = await ctl(*at(where), "status")
        route = await ctl(*at(where), "route", "T")

    awaited = "waiting 45 s more for 1 of 1 expected broker: cluster-1/broker-a/0 at 10.0.0.1:10911"
    line = f"warning: {where}: not ready: {awaited}; clients get no routes from it"
    assert (shown.code, shown.cells[1][1], shown.problems) == (1, "not ready", [line])
    assert route == (1, "", f"namesrvctl: {where}: refused with code 1: name server not ready\n")


@pytest.mark.parametrize("command", [["status"], ["top", "--once"]])
async def test_server_that_denies_its_brokers_is_not_healthy(tmp_path: Path, command: list[str]) -> None:
    """The server is ready, and this account may not know whether its broker groups have masters."""
    access = '[accounts.fleet]\nnetworks = ["127.0.0.1"]\nmay = ["broker-control"]\n'
    async with one_server(tmp_path, access=access) as (server, where):
        await (await server.connect()).register(SLAVE)
        found = await ctl(*at(where), *command, "-o", "json")

    assert (found.code, found.json.get("healthy", False), found.json["servers"][0]["state"]) == (1, False, "ready")
    assert [one["kind"] for one in found.json["problems"]] == ["not_reported"]


async def test_tls_of_one_side_only_is_a_state_in_words(tmp_path: Path) -> None:
    """The state reads as in `top`; JSON has the kind of the problem."""
    authority = Authority(tmp_path)
    async with one_server(tmp_path / "data") as (_, where):
        shown = await ctl(*at(where), "--tls", "--tls-ca-file", str(authority.ca_file), "status")

    assert (shown.code, shown.cells[1]) == (2, [where, "tls failed"])


async def test_unreachable_server_has_its_own_row(tmp_path: Path) -> None:
    """An unreachable server makes `status` exit with 1, and a list of only such servers with 2 and a document."""
    async with one_server(tmp_path) as (server, where):
        await (await server.connect()).register(MASTER)
        with refusing_address() as absent:
            shown = await ctl(*at(absent, where), "status")
            found = await ctl(*at(absent, where), "status", "-o", "json")
            route = await ctl(*at(absent, where), "route", "T")
            none = await ctl(*at(absent), "status", "-o", "json")

    assert (shown.code, [row[:2] for row in shown.cells[1:]]) == (1, [[absent, "unreachable"], [where, "ready"]])
    unreachable = f"critical: {absent}: no NameServer reachable: no connection to {absent}: "
    assert [problem.startswith(unreachable) for problem in shown.problems] == [True]
    assert (found.code, found.json["healthy"]) == (1, False)
    assert [(one["server"], one.get("answered")) for one in found.json["servers"]] == [(absent, False), (where, None)]
    # routes come from the reachable server; standard error names the other one
    assert (route.code, [row[0] for row in route.cells[1:]]) == (0, [where])
    assert [problem.startswith(f"no connection to {absent}: ") for problem in route.problems] == [True]
    assert (none.code, list(none.json["servers"][0])) == (2, ["server", "error", "answered"])


@pytest.mark.parametrize("topics", [2, None], ids=["listed", "not listed"])
async def test_status_of_an_apache_server(tmp_path: Path, topics: int | None) -> None:
    """An Apache server has no status, so that brokers and topics are counted; its topic list can be switched off."""
    async with one_server(tmp_path, "rocketmq", enable_all_topic_list=topics is not None) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER)
        await peer.register(SLAVE)

        shown = await ctl(*at(where), "status")
        found = await ctl(*at(where), "status", "-o", "json")

    counts = [] if topics is None else ["TOPICS"]
    assert (shown.code, shown.cells[:1]) == (0, [["SERVER", "STATE", "PROTOCOL", "BROKERS", *counts]])
    members = {"server": where, "protocol": "rocketmq", "state": "answers", "brokers": 2, "topics": topics}
    assert found.json == {"healthy": True, "servers": [members], "problems": []}


async def test_brokers_show_last_seen_and_expiry(tmp_path: Path) -> None:
    """Each row shows last seen, expiry, topics and reported state; JSON has the members of LIST_BROKERS."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, registration("T", "U", counter=7))
        await server.clock.advance(75)
        fields: dict[str, Any] = {"agentId": "agent-1", "registrationSeq": 4, "haServerAddr": "ha"}
        await peer.register(ELSEWHERE, native_registration("T", counter=3), spelling="native", **fields)
        state = {"disk": 0.5, "full": False, "note": None, "zone": "a"}
        await peer.call(904, ELSEWHERE.ext, native({"state": state}), spelling="native")
        await peer.call(205, {"brokerName": "broker-a"})
        await server.clock.advance(2.5)

        shown = await ctl(*at(where), "brokers")
        found = await ctl(*at(where), "brokers", "-o", "json", "-c", "cluster-2")
        connection = server.connection_of(peer).id

    assert (shown.code, shown.err) == (0, "")
    state_text = "disk=0.5 full=no note=- zone=a"
    assert shown.cells == [
        heads("CLUSTER | BROKER | ID | ADDRESS | LAST SEEN | EXPIRES IN | TOPICS | WRITE REMOVED | VERSION | STATE"),
        ["cluster-1", "broker-a", "0", "10.0.0.1:10911", "1 m 17 s ago", "42.5 s", "2", "yes", "7", "-"],
        ["cluster-2", "broker-c", "0", "10.0.1.1:10911", "2.5 s ago", "1 m 57 s", "1", "no", "3", state_text],
    ]
    assert found.json["servers"][0]["brokers"][0] == {
        "cluster": "cluster-2", "broker_name": "broker-c", "broker_id": 0, "broker_addr": "10.0.1.1:10911",
        "ha_server_addr": "ha", "age_seconds": 2.5, "expires_in_seconds": 117.5, "expiry_seconds": 120.0,
        "data_version": {"counter": 3, "state_version": 0, "timestamp": TIMESTAMP}, "topics": 1, "write_removed": False,
        "agent_id": "28a95ec3", "registration_seq": 4, "connection": connection, "protocol": "msgpack", "state": state,
            "advertised": None,
    }  # fmt: skip


async def test_brokers_of_several_servers_are_compared(tmp_path: Path) -> None:
    """One row per broker shows its expiry on each server, and both values where servers differ."""
    async with two_servers(tmp_path) as (first, second, one, two):
        await first.register(MASTER, registration("T", "U"))
        await first.register(SLAVE, registration("T", "U"))
        await second.register(MASTER, registration("T", "U", "V"))

        shown = await ctl(*at(one, two), "brokers")

    left = "2 m 0 s"
    assert shown.cells == [
        heads(
            f"CLUSTER | BROKER | ID | ADDRESS | EXPIRES IN, {one} | EXPIRES IN, {two} | TOPICS | WRITE REMOVED | "
            "VERSION"
        ),
        ["cluster-1", "broker-a", "0", "10.0.0.1:10911", left, left, "2 / 3", "no", "1"],
        ["cluster-1", "broker-a", "1", "10.0.0.2:10911", left, "missing", "2", "no", "1"],
    ]


async def test_broker_of_a_server_that_waits_for_its_brokers_is_not_missing(tmp_path: Path) -> None:
    """A server that is not ready still waits for brokers to register, as `top` shows."""
    async with one_server(tmp_path / "1") as (before, _):
        await (await before.connect()).register(MASTER)
    async with one_server(tmp_path / "1") as (_, waiting), one_server(tmp_path / "2") as (other, two):
        await (await other.connect()).register(MASTER)

        shown = await ctl(*at(waiting, two), "brokers")
        top = await ctl(*at(waiting, two), "top", "--once")

    assert shown.cells[1][4:6] == ["not yet", "2 m 0 s"]
    assert "not yet" in top.out


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_brokers_are_filtered_by_cluster_and_name(tmp_path: Path, protocol: str) -> None:
    """A filter without a match exits with 1, an empty list without a filter with 0."""
    async with one_server(tmp_path, protocol) as (server, where):
        assert await ctl(*at(where), "brokers") == (0, "", "namesrvctl: no brokers\n")
        peer = await server.connect()
        for broker in (ELSEWHERE, SLAVE, MASTER):
            await peer.register(broker)

        async def chosen(*options: str) -> tuple[int, list[str], list[str]]:
            found = await ctl(*at(where), "brokers", "-o", "yaml", *options)
            return found.code, [one["broker_addr"] for one in found.yaml["servers"][0]["brokers"]], found.problems

        assert await chosen() == (0, ["10.0.0.1:10911", "10.0.0.2:10911", "10.0.1.1:10911"], [])
        assert await chosen("--cluster", "cluster-1") == (0, ["10.0.0.1:10911", "10.0.0.2:10911"], [])
        assert await chosen("--name", "broker-c") == (0, ["10.0.1.1:10911"], [])
        no_such = f"{where}: no broker broker-c in cluster cluster-1"
        assert await chosen("-c", "cluster-1", "-b", "broker-c") == (1, [], [no_such])
        assert await chosen("-c", "cluster-9") == (1, [], [f"{where}: no broker in cluster cluster-9"])
        assert await chosen("-b", "broker-x") == (1, [], [f"{where}: no broker broker-x"])
        if protocol == "rocketmq":
            # empty columns are left out
            shown = await ctl(*at(where), "brokers", "-b", "broker-c")
            columns = ["CLUSTER", "BROKER", "ID", "ADDRESS"]
            assert shown.cells == [columns, ["cluster-2", "broker-c", "0", "10.0.1.1:10911"]]


async def test_clusters_show_their_groups(tmp_path: Path) -> None:
    """Each group has its master, slaves and zone."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, enableActingMaster="true", __ZONE_NAME="z1")
        await peer.register(SLAVE, enableActingMaster="true", __ZONE_NAME="z1")
        await peer.register(Broker("broker-b", 2, "10.0.0.4:10911"))
        await peer.register(ELSEWHERE)

        shown = await ctl(*at(where), "clusters")
        chosen = await ctl(*at(where), "clusters", "--cluster", "cluster-1", "-o", "json")
        absent = await ctl(*at(where), "clusters", "--cluster", "cluster-x")

    assert shown.cells == [
        heads("CLUSTER | BROKER | MASTER | SLAVES | ZONE | ACTING MASTER"),
        ["cluster-1", "broker-a", "10.0.0.1:10911", "1=10.0.0.2:10911", "z1", "yes"],
        ["cluster-1", "broker-b", "-", "2=10.0.0.4:10911", "-", "no"],
        ["cluster-2", "broker-c", "10.0.1.1:10911", "-", "-", "no"],
    ]
    first = {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
    second = {"2": "10.0.0.4:10911"}
    groups = [
        {"broker_name": "broker-a", "broker_addrs": first, "zone_name": "z1", "enable_acting_master": True},
        {"broker_name": "broker-b", "broker_addrs": second, "zone_name": None, "enable_acting_master": False},
    ]
    assert chosen.json["servers"] == [{"server": where, "clusters": [{"cluster": "cluster-1", "brokers": groups}]}]
    assert absent == (1, "", f"namesrvctl: {where}: no cluster cluster-x\n")


async def test_connections_are_shown(tmp_path: Path) -> None:
    """--role filters connections, our own included; an Apache server does not support the request."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        peer = await server.connect()
        await peer.register(MASTER)
        await server.clock.advance(90)

        shown = await ctl(*at(server), "connections", "--role", "broker")
        found = await ctl(*at(server), "connections", "-o", "json")
        refused = await ctl(*at(apache), "connections", "-o", "json")
        number = server.connection_of(peer).id

    columns = heads("ID | PEER | ROLE | PROTOCOL | CONNECTED | LAST REQUEST | REQUESTS | IN FLIGHT | UNSENT")
    assert [shown.cells[0], shown.cells[1][:4]] == [columns, [str(number), peer.address, "broker", "json"]]
    # Times are the server's: its clock may differ from this machine's.
    assert shown.cells[1][4:] == ["1 m 30 s", "1 m 30 s ago", "1", "0", "0"]
    broker, admin = found.json["servers"][0]["connections"]
    assert broker == {
        "id": number, "peer": peer.address, "proxied": None, "role": "broker", "protocol": "json",
        "since_ms": 1_700_000_000_000, "last_request_seconds": 90.0, "requests": 1, "in_flight": 0, "unsent_bytes": 0,
        "account": None,
    }  # fmt: skip
    assert (admin["role"], admin["protocol"]) == ("admin", "msgpack")
    where = address_of(apache)
    assert (refused.code, refused.problems) == (1, [f"{where}: {NOT_SUPPORTED}"])
    assert refused.json == {"servers": [{"server": where, "error": NOT_SUPPORTED, "answered": True}]}


async def test_topics_are_listed(tmp_path: Path) -> None:
    """Topics are listed by name, optionally of one cluster."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, registration("U", "T"))
        await peer.register(ELSEWHERE, registration("T", "V"))

        assert (await ctl(*at(where), "topics")).lines == ["TOPIC", "T", "U", "V"]
        assert (await ctl(*at(where), "topics", "--cluster", "cluster-2")).lines == ["TOPIC", "T", "V"]
        found = await ctl(*at(where), "topics", "-o", "json")
        assert found.json == {"servers": [{"server": where, "topics": ["T", "U", "V"]}]}
        nothing = await ctl(*at(where), "topics", "-c", "cluster-x")
        assert nothing == (1, "", f"namesrvctl: {where}: no topic in cluster cluster-x\n")
    async with one_server(tmp_path, enable_all_topic_list=False) as (_, where):
        refused = await ctl(*at(where), "topics")
        assert refused == (1, "", f"namesrvctl: {where}: refused with code 1: disable\n")


async def test_topics_of_several_servers_name_their_servers(tmp_path: Path) -> None:
    """One list contains all topics; `route` exits with 1 when one of the servers lacks the topic."""
    async with two_servers(tmp_path) as (first, second, one, two):
        await first.register(MASTER, registration("T", "U"))
        await second.register(MASTER, registration("T", "V"))

        shown = await ctl(*at(one, two), "topics")
        with refusing_address() as down:
            partly = await ctl(*at(one, two, down), "topics")
        route = await ctl(*at(one, two), "route", "U")

    assert shown.cells == [["TOPIC", "KNOWN TO"], ["T", "all"], ["U", one], ["V", two]]
    assert partly.cells[1:] == [["T", f"{one} {two}"], ["U", one], ["V", two]]
    assert (route.code, route.problems) == (1, [f"{two}: no topic U"])
    assert [row[0] for row in route.cells[1:]] == [one]


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_route_is_shown_by_broker(tmp_path: Path, protocol: str) -> None:
    """Each row has permission, queues, master and slaves; an absent topic exits with 1 without hiding the others."""
    async with one_server(tmp_path, protocol) as (server, where):
        peer = await server.connect()
        await peer.register(OTHER, registration(topic_config("T", read=4, write=2, perm=4), "X"))
        await peer.register(MASTER)
        await peer.register(SLAVE)

        shown = await ctl(*at(where), "route", "T", "X", "absent")
        absent = await ctl(*at(where), "route", "absent", "-o", "json")

    assert (shown.code, shown.err) == (1, f"namesrvctl: {where}: no topic absent\n")
    assert shown.cells == [
        heads("TOPIC | CLUSTER | BROKER | PERM | READ | WRITE | MASTER | SLAVES"),
        ["T", "cluster-1", "broker-a", "RW-", "8", "8", "10.0.0.1:10911", "1=10.0.0.2:10911"],
        ["T", "cluster-1", "broker-b", "R--", "4", "2", "10.0.0.3:10911", "-"],
        ["X", "cluster-1", "broker-b", "RW-", "8", "8", "10.0.0.3:10911", "-"],
    ]
    assert (absent.code, absent.json["servers"][0]["routes"]) == (1, {"absent": None})


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_topics_that_are_not_denied_are_shown(tmp_path: Path, protocol: str) -> None:
    """Without access to one of several topics, the routes of the others are shown, and the exit code is 1."""
    async with one_server(tmp_path, protocol, access=TWO_TOPICS) as (server, where):
        await (await server.connect()).register(MASTER)

        shown = await ctl(*at(where), "route", "T", "secret", "V")
        found = await ctl(*at(where), "route", "T", "secret", "-o", "json")
        denied = await ctl(*at(where), "route", "secret", "hidden")

    assert [row[0] for row in shown.cells[1:]] == ["T"]
    refusal, absence = shown.problems
    assert refusal.startswith(f"{where}: topic secret: refused with code 16: account here lacks route-read for topic")
    assert absence == f"{where}: no topic V"
    assert (shown.code, found.code, denied.code) == (1, 1, 1)
    assert found.json["servers"][0]["routes"].keys() == {"T"}
    assert (denied.cells, len(denied.problems)) == ([], 1)


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_json_route_is_complete(tmp_path: Path, protocol: str) -> None:
    """Filter servers, order configuration and static queues are included."""
    mapping = {"topic": "T", "bname": "broker-a", "scope": "global", "epoch": 5, "dirty": False}
    async with one_server(tmp_path, protocol, order_message_enable=True) as (server, where):
        peer = await server.connect()
        mappings = {"T": {**mapping, "totalQueues": 4, "currIdMap": {"0": 1, "1": 0}}}
        body = registration("T", "U", mappings=mappings, filter_servers=("10.0.0.1:7000",))
        await peer.register(MASTER, body, __ZONE_NAME="z1")
        await peer.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"})

        found = await ctl(*at(where), "route", "T", "-o", "json")

    assert found.json["servers"][0]["routes"]["T"] == {
        "brokers": [
            {
                "cluster": "cluster-1", "broker_name": "broker-a", "broker_addrs": {"0": "10.0.0.1:10911"},
                "zone_name": "z1", "enable_acting_master": False,
            }
        ],
        "queues": [
            {
                "broker_name": "broker-a", "read_queue_nums": 8, "write_queue_nums": 8, "perm": 6,
                "topic_sys_flag": 0,
            }
        ],
        "filter_servers": {"10.0.0.1:10911": ["10.0.0.1:7000"]},
        "order_topic_conf": "broker-a:4",
        "static_mappings": {"broker-a": {**mapping, "total_queues": 4, "curr_id_map": {"0": 1, "1": 0}}},
    }  # fmt: skip


async def test_incomplete_apache_responses_are_shown(tmp_path: Path) -> None:
    """Queues and cluster members without a broker, unquoted keys and missing members are accepted."""
    group = b'"brokerAddrs":{1:"10.0.0.2:10911",0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"cluster-1"'
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        apache.bodies[105] = (
            b'{"brokerDatas":[{%b}],"filterServerTable":{},"queueDatas":['
            b'{"brokerName":"broker-z","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4},'
            b'{"brokerName":"broker-a","perm":7,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}' % group
        )
        apache.bodies[106] = (
            b'{"brokerAddrTable":{"broker-a":{%b,"enableActingMaster":false}},'
            b'"clusterAddrTable":{"cluster-1":["broker-a","broker-gone"]}}' % group
        )
        route = await ctl(*at(apache), "route", "T")
        clusters = await ctl(*at(apache), "clusters")

    assert route.cells[1:] == [
        ["T", "cluster-1", "broker-a", "RWX", "4", "4", "10.0.0.1:10911", "1=10.0.0.2:10911"],
        ["T", "-", "broker-z", "RW-", "4", "4", "-", "-"],
    ]
    assert clusters.cells[1:] == [["cluster-1", "broker-a", "10.0.0.1:10911", "1=10.0.0.2:10911", "no"]]
