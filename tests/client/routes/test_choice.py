"""Clients choose their server anew from time to time, so that they spread over a list that has changed."""

from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from tests.support.ctl import refusing_address
from tests.support.fake_clock import FakeClock, until
from tests.support.in_process import namesrv_in_process
from tests.support.route_clients import BROKER_A, broker_names, registered, route_client

# A guard: the fake clock runs on while sockets work.
PATIENT = {"attempt_timeout_seconds": 60.0, "call_timeout_seconds": 60.0, "connect_timeout_seconds": 60.0}


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_client_leaves_its_server_after_another_has_answered(tmp_path: Path, protocol: str) -> None:
    """A server that cannot be reached is not chosen; one that answers is, and then the old connection is closed."""
    clock, order = FakeClock(), list[str]()
    options = {"shuffle": lambda addresses: addresses.sort(key=order.index)}
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(
                namesrv_in_process(tmp_path / name, clock=clock, broker_expiry_seconds=86400.0)
            )
            for name in "12"
        ]
        for server in (first, second):
            await registered(server, BROKER_A)
        with refusing_address() as dead:
            order += [first.where, second.where, dead]
            entering = route_client(clock, *order, options=options, protocol=protocol, watch=True, **PATIENT)
            client = await stack.enter_async_context(entering)
            await client.route("orders")
            order.reverse()
            await clock.advance(300.0)
            await until(lambda: dead in client.server_errors)
            assert (client.chosen_server, len(second.namesrv.slots.connections)) == (first.where, 1)
            assert {status.address: status.pulls for status in client.status().servers}[dead] == {"unreachable": 1}

        order.insert(0, order.pop(1))
        await clock.advance(600.0)
        await until(lambda: client.chosen_server == second.where)
        await clock.advance(60.0)
        await until(lambda: len(first.namesrv.slots.connections) == 1)

        assert len(second.namesrv.slots.connections) == 2
        assert broker_names(client) == ["broker-a"]
        assert {status.address: status.pulls.get("timeout", 0) for status in client.status().servers}[first.where] == 0


@pytest.mark.slow
async def test_a_thousand_clients_spread_over_an_added_server(tmp_path: Path) -> None:
    """Fifteen minutes after a fourth server was added, each server has its share, and no request has failed."""
    clock = FakeClock()
    # A generator for each client: one for all would deal its numbers in the order in which responses arrive.
    generators = [Random(number) for number in range(1_000)]
    servers_file = tmp_path / "servers"
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                namesrv_in_process(
                    tmp_path / str(number), clock=clock, share_per_ip_percent=100.0, broker_expiry_seconds=86400.0
                )
            )
            for number in range(4)
        ]
        for server in servers:
            await registered(server, BROKER_A)
        servers_file.write_text(";".join(server.where for server in servers[:3]))
        clients = [
            await stack.enter_async_context(
                route_client(
                    clock,
                    f"file:{servers_file}",
                    options={"random_unit": generator.random, "shuffle": generator.shuffle},
                    poll_seconds=300.0,
                    **PATIENT,
                )
            )
            for generator in generators
        ]
        for client in clients:
            await client.route("orders")
        assert len(servers[3].namesrv.slots.connections) == 1
        servers_file.write_text(";".join(server.where for server in servers))

        for _ in range(900):
            await clock.advance(1.0)

        chosen = [sum(client.chosen_server == server.where for client in clients) for server in servers]
        results = {result for client in clients for server in client.status().servers for result in server.pulls}

    assert sum(chosen) == 1_000
    assert max(chosen) <= 1.2 * 250, chosen
    assert min(chosen) >= 250 / 1.2, chosen
    assert results == {"answered"}
