"""Every NameServer knows what the broker has, and the agent knows every NameServer."""

from pathlib import Path

import pytest

from namesrv.routeinfo.records import Unregistered
from namesrv_broker_agent import TopicConfig
from namesrv_remoting.codes import Permission
from tests.support.agents import (
    ADDR,
    NAME,
    TOPICS,
    address_of,
    brokers,
    everywhere,
    name_servers,
    queues,
    registrations,
    running,
    sockets,
    versions,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.route_clients import finished
from tests.support.tcp_proxy import TcpProxy


async def test_every_server_is_told_everything(tmp_path: Path) -> None:
    """Each over a connection of its own."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        assert 3 == await agent.registered()

        for server in servers:
            assert [("full", 2)] == registrations(server)
            assert ((8, 8, 6), (4, 4, 6)) == (queues(server, "orders"), queues(server, "bills"))
            assert ["registered"] == [
                state.status for address, state in agent.servers.items() if address == address_of(server)
            ]
            assert 1 == len(server.namesrv.connections)
        assert 3 == len(sockets(agent))
        assert f"<BrokerAgent [{NAME}:0 at {ADDR} | 3 of 3 servers | <TopicTable [2 topics | version 0]>]>" == repr(
            agent
        )


async def test_changes_reach_every_server_as_deltas_with_their_data_version(tmp_path: Path) -> None:
    """Create, update, permission, delete: each counts the version up, and each is there without any time passing."""
    clock = FakeClock(wall=5_000.0)
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        await agent.registered()
        await clock.advance(1)
        for counter, (change, topic, expected) in enumerate(
            [
                (agent.create_topic(TopicConfig("refunds", 2, 1)), "refunds", (2, 1, 6)),
                (agent.update_topic(TopicConfig("refunds", 3, 3)), "refunds", (3, 3, 6)),
                (agent.set_perm("orders", Permission.READ), "orders", (8, 8, 4)),
                (agent.delete_topic("bills"), "bills", None),
            ],
            start=1,
        ):
            for server in servers:
                server.effects.clear()
            await change
            for server in servers:
                await until(lambda server=server: versions(server))  # type: ignore[misc]  # bound now
                assert [("delta", counter, 0, 5_001_000)] == versions(server)
                assert expected == queues(server, topic)
            assert 3 == await agent.registered()
        assert {"orders", "refunds"} == set(agent.topics)
        assert 1_001.0 == clock.monotonic()


async def test_replaced_table_is_told_as_one_delta(tmp_path: Path) -> None:
    """What differs, and nothing if nothing does."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 1) as (server,), running(clock, address_of(server)) as agent:
        await agent.registered()
        await agent.replace_topics(TOPICS)
        await settle()
        assert [("full", 2)] == registrations(server)

        await agent.replace_topics([TopicConfig("orders", 16, 16), TopicConfig("fees", 1, 1)])
        await until(lambda: len(registrations(server)) == 2)
        assert [("delta", 1, 0)] == [found[:3] for found in versions(server)[1:]]
        known = server.namesrv.manager.tables.topic_queue_table
        assert {"orders": (16, 16, 6), "fees": (1, 1, 6)} == {topic: queues(server, topic) for topic in known}


async def test_state_file_is_written_before_anybody_is_told(tmp_path: Path) -> None:
    """A broker that starts again goes on with the version and the topics that the world knows."""
    clock = FakeClock()
    state_file = tmp_path / "state.json"
    async with name_servers(tmp_path, clock, 1) as (server,):
        async with running(clock, address_of(server), state_file=state_file) as agent:
            await agent.registered()
            await agent.create_topic(TopicConfig("refunds", 2, 2))
            await agent.registered()
        await until(lambda: not brokers(server))
        server.effects.clear()

        async with running(clock, address_of(server), [], state_file=state_file) as agent:
            await agent.registered()
            assert [("full", 1, 0)] == [found[:3] for found in versions(server)]
            assert ["orders", "bills", "refunds"] == list(agent.topics)


# -- the list of servers ----------------------------------------------------------------------------------------------


async def test_servers_join_and_leave_with_the_list(tmp_path: Path) -> None:
    """The one that left is unregistered from and hung up on, the new one is told all, the third notices nothing."""
    clock = FakeClock()
    source = tmp_path / "servers"
    async with name_servers(tmp_path, clock) as servers:
        stays, leaves, joins = servers
        source.write_text(f"{address_of(stays)}\n{address_of(leaves)}\n")
        async with running(clock, f"file:{source}", refresh_seconds=10.0) as agent:
            await agent.registered()
            source.write_text(f"{address_of(joins)};{address_of(stays)}")
            await clock.advance(10)
            await until(lambda: brokers(joins) and not brokers(leaves))
            await until(lambda: not leaves.namesrv.connections)
            await until(lambda: agent.servers.keys() == {address_of(stays), address_of(joins)})

            assert 1 == len(leaves.effects_of(Unregistered))
            assert ([("full", 2)], [("full", 2)]) == (registrations(joins), registrations(stays))
            assert 2 == await agent.registered()


@pytest.mark.parametrize("content", [None, "", "no address"])
async def test_list_that_cannot_be_read_changes_nothing(content: str | None, tmp_path: Path) -> None:
    """The last known one holds, and the error can be seen until it is over."""
    clock = FakeClock()
    source = tmp_path / "servers"
    async with name_servers(tmp_path, clock, 1) as (server,):
        source.write_text(address_of(server))
        async with running(clock, f"file:{source}", refresh_seconds=10.0) as agent:
            await agent.registered()
            if content is None:
                source.unlink()
            else:
                source.write_text(content)
            await clock.advance(10)
            await until(lambda: agent.name_servers_error)
            assert f"name servers from file:{source}: " == (agent.name_servers_error or "")[: 25 + len(str(source))]
            await clock.advance(10)
            await settle()
            assert ([address_of(server)], {NAME: {0: ADDR}}) == (list(agent.servers), brokers(server))

            source.write_text(address_of(server))
            # the thread that reads the list may still be at the last one: then it is ten seconds from there
            await finished(clock, until(lambda: agent.name_servers_error is None))
            assert [("full", 2)] == registrations(server)


async def test_no_list_yet_is_looked_for_every_second(tmp_path: Path) -> None:
    """The agent starts before its servers are known."""
    clock = FakeClock()
    source = tmp_path / "servers"
    async with name_servers(tmp_path, clock, 1) as (server,), running(clock, f"file:{source}") as agent:
        assert {} == agent.servers
        assert agent.name_servers_error
        source.write_text(address_of(server))
        await clock.advance(1)
        await until(lambda: brokers(server))


async def test_removed_server_that_hangs_is_hung_up_on(tmp_path: Path) -> None:
    """Within the time that a stop takes; the others do not wait for it."""
    clock = FakeClock()
    source = tmp_path / "servers"
    async with name_servers(tmp_path, clock, 2) as servers, TcpProxy(servers[1].address) as proxy:
        source.write_text(f"{address_of(servers[0])};{proxy.address}")
        async with running(clock, f"file:{source}", refresh_seconds=10.0) as agent:
            await agent.registered()
            proxy.stall()
            source.write_text(address_of(servers[0]))
            await clock.advance(10)
            await until(lambda: list(agent.servers) == [address_of(servers[0])])
            await agent.create_topic(TopicConfig("refunds", 2, 2))
            await until(lambda: queues(servers[0], "refunds"))
            await passing(clock, lambda: len(sockets(agent)) == 1, at_most=3)
            await proxy.heal()
            await until(lambda: not brokers(servers[1]))
