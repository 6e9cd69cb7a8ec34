"""The commands `brokers`, `clusters` and `connections`."""

from pathlib import Path

from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import TIMESTAMP, Broker, native, native_registration, registration

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")


async def test_brokers_are_shown_with_their_life(tmp_path: Path) -> None:
    """When each was last heard, when it expires, how many topics it has, and what it says of itself."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER, registration("T", "U", counter=7))
        await server.clock.advance(75)
        await peer.register(ELSEWHERE, native_registration("T"), spelling="native")
        state = {"disk": 0.5, "full": False, "note": None, "zone": "a"}
        await peer.call(904, ELSEWHERE.ext, native({"state": state}), spelling="native")
        await peer.call(205, {"brokerName": "broker-a"})
        await server.clock.advance(2.5)

        shown = await ctl(*at(server), "brokers")

    assert (0, "") == (shown.code, shown.err)
    assert [
        ["CLUSTER", "BROKER", "ID", "ADDRESS", "HEARD", "EXPIRES IN", "TOPICS", "WIPED", "VERSION", "STATE"],
        ["cluster-1", "broker-a", "0", "10.0.0.1:10911", "1 m 17 s ago", "42.5 s", "2", "yes", "7", "-"],
        [
            "cluster-2", "broker-c", "0", "10.0.1.1:10911", "2.5 s ago", "1 m 57 s", "1", "no", "1",
            "disk=0.5 full=no note=- zone=a",
        ],
    ] == shown.cells  # fmt: skip


async def test_brokers_for_programs_hold_all_that_the_server_tells(tmp_path: Path) -> None:
    """The members of LIST_BROKERS, under the server that told them."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        body = native_registration("T", counter=3)
        await peer.register(MASTER, body, spelling="native", agentId="agent-1", registrationSeq=4, haServerAddr="ha")
        await peer.call(904, MASTER.ext, native({"state": {"disk": 0.5}}), spelling="native")
        await server.clock.advance(1)

        found = await ctl(*at(server), "brokers", "-o", "json")

        assert {
            "servers": [
                {
                    "server": address_of(server),
                    "brokers": [
                        {
                            "cluster": "cluster-1",
                            "broker_name": "broker-a",
                            "broker_id": 0,
                            "broker_addr": "10.0.0.1:10911",
                            "ha_server_addr": "ha",
                            "age_seconds": 1.0,
                            "expires_in_seconds": 119.0,
                            "expiry_seconds": 120.0,
                            "data_version": {"counter": 3, "state_version": 0, "timestamp": TIMESTAMP},
                            "topics": 1,
                            "write_wiped": False,
                            "agent_id": "agent-1",
                            "registration_seq": 4,
                            "connection": server.connection_of(peer).id,
                            "protocol": "msgpack",
                            "state": {"disk": 0.5},
                        }
                    ],
                }
            ]
        } == found.json
        assert found.json == (await ctl(*at(server), "brokers", "-o", "yaml")).yaml


async def test_brokers_can_be_chosen(tmp_path: Path) -> None:
    """By cluster, by name, by both; nobody is a no."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for broker in (MASTER, SLAVE, ELSEWHERE):
            await peer.register(broker)

        async def chosen(*options: str) -> tuple[int, list[str], list[str]]:
            found = await ctl(*at(server), "brokers", "-o", "json", *options)
            return found.code, [one["broker_addr"] for one in found.json["servers"][0]["brokers"]], found.problems

        assert (0, ["10.0.0.1:10911", "10.0.0.2:10911", "10.0.1.1:10911"], []) == await chosen()
        assert (0, ["10.0.0.1:10911", "10.0.0.2:10911"], []) == await chosen("--cluster", "cluster-1")
        assert (0, ["10.0.1.1:10911"], []) == await chosen("--name", "broker-c")
        no_such = f"{address_of(server)}: no broker broker-c in cluster cluster-1"
        assert (1, [], [no_such]) == await chosen("-c", "cluster-1", "-b", "broker-c")
        assert (1, [], [f"{address_of(server)}: no broker broker-x"]) == await chosen("-b", "broker-x")


async def test_no_brokers_at_all_are_no_failure(tmp_path: Path) -> None:
    """Nobody was asked for."""
    async with namesrv_in_process(tmp_path) as server:
        assert (0, "", "namesrvctl: no brokers\n") == await ctl(*at(server), "brokers")


async def test_apaches_server_tells_less_of_brokers(tmp_path: Path) -> None:
    """Cluster, name, id and address; columns that would be empty are left out."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        peer = await server.connect()
        for broker in (ELSEWHERE, SLAVE, MASTER):
            await peer.register(broker)

        shown = await ctl(*at(apache), "brokers")
        chosen = await ctl(*at(apache), "brokers", "-c", "cluster-2", "-o", "json")

    assert [
        ["CLUSTER", "BROKER", "ID", "ADDRESS"],
        ["cluster-1", "broker-a", "0", "10.0.0.1:10911"],
        ["cluster-1", "broker-a", "1", "10.0.0.2:10911"],
        ["cluster-2", "broker-c", "0", "10.0.1.1:10911"],
    ] == shown.cells
    (broker,) = chosen.json["servers"][0]["brokers"]
    assert ("10.0.1.1:10911", None, None) == (broker["broker_addr"], broker["age_seconds"], broker["state"])


async def test_clusters_show_their_groups(tmp_path: Path) -> None:
    """Master and slaves of each, with the zone."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER, enableActingMaster="true", __ZONE_NAME="z1")
        await peer.register(SLAVE, enableActingMaster="true", __ZONE_NAME="z1")
        await peer.register(Broker("broker-b", 2, "10.0.0.4:10911"))
        await peer.register(ELSEWHERE)

        shown = await ctl(*at(server), "clusters")
        chosen = await ctl(*at(server), "clusters", "--cluster", "cluster-1", "-o", "json")
        absent = await ctl(*at(server), "clusters", "--cluster", "cluster-x")

        assert [
            ["CLUSTER", "BROKER", "MASTER", "SLAVES", "ZONE", "ACTING MASTER"],
            ["cluster-1", "broker-a", "10.0.0.1:10911", "1=10.0.0.2:10911", "z1", "yes"],
            ["cluster-1", "broker-b", "-", "2=10.0.0.4:10911", "-", "no"],
            ["cluster-2", "broker-c", "10.0.1.1:10911", "-", "-", "no"],
        ] == shown.cells
        assert [
            {
                "server": address_of(server),
                "clusters": [
                    {
                        "cluster": "cluster-1",
                        "brokers": [
                            {
                                "broker_name": "broker-a",
                                "broker_addrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"},
                                "zone_name": "z1",
                                "enable_acting_master": True,
                            },
                            {
                                "broker_name": "broker-b",
                                "broker_addrs": {"2": "10.0.0.4:10911"},
                                "zone_name": None,
                                "enable_acting_master": False,
                            },
                        ],
                    }
                ],
            }
        ] == chosen.json["servers"]
        assert (1, "", f"namesrvctl: {address_of(server)}: no cluster cluster-x\n") == absent


async def test_clusters_of_apaches_server_are_read_as_java_spells_them(tmp_path: Path) -> None:
    """Bare integer keys, members that are left out, and names of brokers that are gone."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        apache.bodies[106] = (
            b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
            b'"brokerName":"broker-a","cluster":"cluster-1","enableActingMaster":false}},'
            b'"clusterAddrTable":{"cluster-1":["broker-a","broker-gone"]}}'
        )

        shown = await ctl(*at(apache), "clusters")

    assert [
        ["CLUSTER", "BROKER", "MASTER", "SLAVES", "ACTING MASTER"],
        ["cluster-1", "broker-a", "10.0.0.1:10911", "1=10.0.0.2:10911", "no"],
    ] == shown.cells


async def test_connections_are_shown(tmp_path: Path) -> None:
    """Ours is one of them; the choice is by what a connection asked for."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER)
        await server.clock.advance(90)

        shown = await ctl(*at(server), "connections", "--role", "broker")
        found = await ctl(*at(server), "connections", "-o", "json")

        ours = f"{server.connection_of(peer).id}"
        assert ["ID", "PEER", "ROLE", "PROTOCOL", "CONNECTED", "LAST REQUEST", "REQUESTS", "IN FLIGHT", "UNSENT"] == (
            shown.cells[0]
        )
        [row] = shown.cells[1:]
        assert [ours, peer.address, "broker", "json"] == row[:4]
        assert ["1 m 30 s ago", "1", "0", "0"] == row[5:]
        broker, admin = found.json["servers"][0]["connections"]
        assert {
            "id": server.connection_of(peer).id,
            "peer": peer.address,
            "proxied": None,
            "role": "broker",
            "protocol": "json",
            "since_ms": 1_700_000_000_000,
            "last_request_seconds": 90.0,
            "requests": 1,
            "in_flight": 0,
            "unsent_bytes": 0,
        } == broker
        assert ("admin", "msgpack") == (admin["role"], admin["protocol"])


async def test_apaches_server_does_not_tell_who_is_connected(tmp_path: Path) -> None:
    """That is a no, with a reason."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        found = await ctl(*at(apache), "connections", "-o", "json")

        reason = "refused with code 3: not supported by Apache's NameServer"
        assert (1, [f"{address_of(apache)}: {reason}"]) == (found.code, found.problems)
        assert {"servers": [{"server": address_of(apache), "error": reason, "answered": True}]} == found.json
