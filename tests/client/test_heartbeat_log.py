"""The client's heartbeat log."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.heartbeat_files import of, only, read_log
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker
from tests.support.route_clients import registered, route_client, unregister

A, B = Broker("broker-a"), Broker("broker-b", addr="10.0.0.2:10911")


async def test_route_changes_are_logged(tmp_path: Path) -> None:
    """Each line of a changed route names the server and its boot."""
    async with namesrv_in_process(tmp_path / "server") as server:
        first = await registered(server, A)
        async with route_client(
            server.clock, server, heartbeat_log_dir=tmp_path / "log", client_name="orders-1"
        ) as client:
            await client.route("orders")
            await registered(server, B)
            await client.refresh()
            await unregister(first, A)
            await client.refresh()
        lines = read_log(tmp_path / "log")

        assert [line["event"] for line in lines] == ["refreshed"] * 3
        a, b = ({"name": name, "master": True, "ids": [0]} for name in ("broker-a", "broker-b"))
        assert [line["brokers"] for line in lines] == [[a], [a, b], [b]]
        common = ["orders-1", "orders", server.where, server.namesrv.boot.id]
        for line in lines:
            assert common == only(line, "client", "topic", "nameserver", "server_boot_id")
        revisions = [line["revision"] for line in lines]
        assert sorted(set(revisions)) == revisions
        assert [line["seq"] for line in lines] == [1, 2, 3]
        assert len({line["boot_id"] for line in lines}) == 1


@pytest.mark.parametrize(
    ("is_tolerant", "expected"),
    [
        (
            True,
            [["isolated", "broker-a", 2_000], ["send_failed", "broker-b", None], ["isolated", "broker-b", 10_000]],
        ),
        (False, [["send_failed", "broker-b", None]]),
    ],
)
async def test_failed_sends_and_isolations_are_logged(tmp_path: Path, is_tolerant: bool, expected: list[Any]) -> None:
    """A slow send is not a failure, and isolates the broker for as long as RocketMQ's table says."""
    async with (
        namesrv_in_process(tmp_path / "server") as server,
        route_client(server.clock, server, heartbeat_log_dir=tmp_path / "log", fault_tolerance=is_tolerant) as client,
    ):
        client.report("broker-a", 0.01)
        client.report("broker-a", 0.6)
        client.report("broker-b", 0.01, failed=True)
    lines = of(read_log(tmp_path / "log"), "send_failed", "isolated")

    assert [[line["event"], line["broker_name"], line.get("for_ms")] for line in lines] == expected
