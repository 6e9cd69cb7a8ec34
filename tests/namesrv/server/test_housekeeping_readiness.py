"""When a restarted server answers route questions."""

import logging
from pathlib import Path
from typing import Any

import pytest

from namesrv.observability.checks import readiness, report
from namesrv.observability.exposition import exposition
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, registration

A = Broker()
B = Broker("broker-b", 0, "10.0.0.2:10911")


def answers_routes(server: InProcess) -> bool:
    """Whether the gate is open."""
    return server.namesrv.fast_lane.is_ready


def logged(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    """The fields of all events of a name."""
    return [vars(record)["fields"] for record in caplog.records if record.msg == name]


async def test_new_server_is_ready_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody to wait for."""
    caplog.clear()
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path) as server:
        assert answers_routes(server)
    assert [{"reason": "ready: no brokers expected"}] == logged(caplog, "ready")


async def test_gate_opens_when_all_are_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the tick after the last one; the address may be another."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for broker in (A, B):
            await peer.register(broker)

    caplog.clear()
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A._replace(addr="10.9.9.9:10911"))
        await server.clock.advance(2)
        assert not answers_routes(server)
        await peer.register(B)
        await server.clock.advance(1)

        assert answers_routes(server)
        assert 0 == (await peer.call(105, {"topic": "T"})).code
    assert [{"reason": "ready: all 2 expected brokers are back"}] == logged(caplog, "ready")


async def test_gate_opens_when_the_wait_is_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """45 s after the start, whoever is missing; the setting says how long."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(A)

    caplog.clear()
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path) as server:
        await server.clock.advance(44)
        assert not answers_routes(server)
        await server.clock.advance(1)
        assert answers_routes(server)
        alarm = await exposition(server.namesrv, server.controller.server)
        assert b"\nnameserver_ready_without_brokers 1.0\n" in alarm
        assert "[+] registered: no broker, although" in report(readiness(server.namesrv), verbose=True)
        await (await server.connect()).register(B)
        assert not server.namesrv.is_ready_without_brokers()
    waited = "ready: waited 45 s, without 1 of 1 expected brokers: cluster-1/broker-a/0 at 10.0.0.1:10911"
    assert [{"reason": waited}] == logged(caplog, "ready") == logged(caplog, "ready_without_brokers")


async def test_wait_may_be_switched_off(tmp_path: Path) -> None:
    """0 answers at once."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(A)

    async with namesrv_in_process(tmp_path, wait_for_service_seconds=0) as server:
        assert answers_routes(server)


async def test_who_did_not_come_back_is_not_waited_for_twice(tmp_path: Path) -> None:
    """The snapshot forgets it as soon as the gate has opened without it, though nothing else has changed."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for broker in (A, B):
            await peer.register(broker)

    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A)
        # written with the one who is still missing, and once more when that one is given up
        await server.clock.advance(50)
        await peer.call(904, A.ext)

    async with namesrv_in_process(tmp_path) as server:
        assert ["broker-a"] == [missing.broker_name for missing in server.namesrv.readiness.missing]


async def test_wiped_permission_survives_a_restart_with_its_broker(tmp_path: Path) -> None:
    """The broker comes back during the wait and is still wiped; one that does not has ended its life."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for broker in (A, B):
            await peer.register(broker)
            await peer.call(205, {"brokerName": broker.name})

    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A)
        await server.clock.advance(46)
        assert {"broker-a"} == server.namesrv.manager.tables.wiped

        await peer.register(B, registration("U", "V"))
        queues = server.namesrv.manager.tables.topic_queue_table
        assert [4] == [row.perm for row in queues["T"]]
        assert [4, 6] == [row.perm for row in queues["U"]]
