"""The command `status`."""

import os
from pathlib import Path

from namesrv import version
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, nobody
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration


async def test_ready_server_is_healthy(tmp_path: Path) -> None:
    """A line with what it is and how much it knows."""
    async with namesrv_in_process(tmp_path, nameserver_name="ns-1") as server:
        await server.clock.advance(125)
        await (await server.connect()).register(Broker(), registration("T", "U", "V"))

        shown = await ctl(*at(server), "status")

        assert (0, "") == (shown.code, shown.err)
        assert [
            ["SERVER", "STATE", "PROTOCOL", "NAME", "VERSION", "UP", "BROKERS", "TOPICS", "CONNECTIONS", "REVISION"],
            [address_of(server), "ready", "native", "ns-1", version(), "2 m 5 s", "1", "3", "2", "1"],
        ] == shown.cells


async def test_status_for_programs_holds_all_that_the_server_tells(tmp_path: Path) -> None:
    """The members of SERVER_INFO, and whether all is well."""
    async with namesrv_in_process(tmp_path, nameserver_name="ns-1") as server:
        await (await server.connect()).register(Broker())

        found = await ctl(*at(server), "status", "-o", "json")

        assert {
            "healthy": True,
            "servers": [
                {
                    "server": address_of(server),
                    "protocol": "native",
                    "state": "ready",
                    "brokers": 1,
                    "topics": 2,
                    "boot_id": server.namesrv.boot_id,
                    "version": version(),
                    "ready": True,
                    "revision": 1,
                    "connections": 2,
                    "nameserver": "ns-1",
                    "readiness": "ready: no brokers expected",
                    "draining": False,
                    "started_ms": 1_700_000_000_000,
                    "uptime_seconds": 0.0,
                    "pid": os.getpid(),
                    "clusters": 1,
                    "watchers": 0,
                    "pulls": 0,
                    "heartbeats": 0,
                    "refusals": {},
                    "last_event_seq": 2,
                }
            ],
        } == found.json


async def test_server_that_waits_for_its_brokers_is_not_healthy(tmp_path: Path) -> None:
    """It says whom it waits for; the exit code is a no."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(Broker())
    async with namesrv_in_process(tmp_path) as server:
        shown = await ctl(*at(server), "status")

        assert (1, "not ready") == (shown.code, shown.cells[1][1])
        awaited = "waiting 45 s more for 1 of 1 expected brokers: cluster-1/broker-a/0 at 10.0.0.1:10911"
        assert [f"{address_of(server)}: not ready: {awaited}"] == shown.problems


async def test_unreachable_server_does_not_hide_the_others(tmp_path: Path) -> None:
    """It has a line of its own, and makes the whole a no."""
    async with namesrv_in_process(tmp_path) as server:
        with nobody() as absent:
            shown = await ctl(*at(absent, server), "status")
            found = await ctl(*at(absent, server), "status", "-o", "json")

        assert 1 == shown.code == found.code
        assert [[absent, "unreachable"], [address_of(server), "ready"]] == [row[:2] for row in shown.cells[1:]]
        assert [True] == [problem.startswith(f"no connection to {absent}: ") for problem in shown.problems]
        assert found.json["healthy"] is False
        assert [(absent, False), (address_of(server), None)] == [
            (one["server"], one.get("answered")) for one in found.json["servers"]
        ]


async def test_nobody_who_answers_is_the_worst() -> None:
    """Exit code 2; programs still get a document."""
    with nobody() as absent:
        shown = await ctl(*at(absent), "status")
        found = await ctl(*at(absent), "status", "-o", "json")

    assert (2, 2) == (shown.code, found.code)
    assert [[absent, "unreachable"]] == shown.cells[1:]
    assert ["server", "error", "answered"] == list(found.json["servers"][0])


async def test_apaches_server_is_counted(tmp_path: Path) -> None:
    """It does not say how it is; what can be asked for is counted."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        peer = await server.connect()
        await peer.register(Broker())
        await peer.register(Broker(id=1, addr="10.0.0.2:10911"))

        shown = await ctl(*at(apache), "status")
        found = await ctl(*at(apache), "status", "-o", "json")

        assert (0, [["SERVER", "STATE", "PROTOCOL", "BROKERS", "TOPICS"]]) == (shown.code, shown.cells[:1])
        assert [[address_of(apache), "answers", "rocketmq", "2", "2"]] == shown.cells[1:]
        assert {
            "healthy": True,
            "servers": [
                {
                    "server": address_of(apache),
                    "protocol": "rocketmq",
                    "state": "answers",
                    "brokers": 2,
                    "topics": 2,
                }
            ],
        } == found.json


async def test_topics_that_apaches_server_does_not_list_are_not_counted(tmp_path: Path) -> None:
    """Its list can be switched off."""
    async with (
        namesrv_in_process(tmp_path, enable_all_topic_list=False) as server,
        ApacheFront(server.address) as apache,
    ):
        found = await ctl(*at(apache), "status", "-o", "json")

    assert (0, None) == (found.code, found.json["servers"][0]["topics"])


async def test_draining_server_is_not_healthy(tmp_path: Path) -> None:
    """Clients are sent away from it."""
    async with namesrv_in_process(tmp_path) as server:
        server.namesrv.is_draining = True
        shown = await ctl(*at(server), "status")
        server.namesrv.is_draining = False

    assert (1, "draining") == (shown.code, shown.cells[1][1])
