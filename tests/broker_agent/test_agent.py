"""Does every NameServer know what the broker has, who it is and that it leaves?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from namesrv.routeinfo.records import Evicted, Registered, Touched, Unregistered
from namesrv_broker_agent import BrokerAgent, TopicConfig
from tests.support.agents import (
    ADDR,
    NAME,
    TOPICS,
    address_of,
    agent_settings,
    brokers,
    finished,
    passing,
    queues,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, value
from tests.support.raw_peer import until
from tests.support.tcp_proxy import TcpProxy


@asynccontextmanager
async def name_servers(data_dir: Path, clock: FakeClock, count: int = 3) -> AsyncIterator[list[InProcess]]:
    """Several of them, on one clock."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(namesrv_in_process(data_dir / str(number), clock=clock))
            for number in range(count)
        ]


def everywhere(servers: list[InProcess]) -> str:
    """All of them, as a setting."""
    return ";".join(address_of(server) for server in servers)


def versions(server: InProcess) -> list[tuple[str, int, int, int]]:
    """Of each registration that was taken: kind, and the DataVersion's counter, state version and timestamp."""
    found = []
    for effect in server.effects_of(Registered):
        version = effect.live.data_version
        assert version is not None
        found.append((effect.kind, version.counter, version.state_version, version.timestamp))
    return found


# -- topics -----------------------------------------------------------------------------------------------------------


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
            assert 1 == len(server.namesrv.server.connections)
        assert 3 == len(agent.socket_descriptors())
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
                (agent.set_perm("orders", 4), "orders", (8, 8, 4)),
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


# -- roles ------------------------------------------------------------------------------------------------------------


async def routed(server: InProcess) -> dict[str, str]:
    """Who serves the topic orders, by id, as a client is told."""
    peer = await server.connect()
    (group,) = value(await peer.call(105, {"topic": "orders"}))["brokerDatas"]
    addrs: dict[str, str] = group["brokerAddrs"]
    return addrs


async def test_promotion_and_demotion_keep_the_address(tmp_path: Path) -> None:
    """The route shows the same address under the other id, and the version counts up, with the term if there is one."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers), broker_id=1) as agent:
        await agent.registered()
        assert [{"1": ADDR}] * 3 == [await routed(server) for server in servers]

        await agent.promote(state_version=7)
        assert [{"0": ADDR}] * 3 == [await routed(server) for server in servers]
        assert [("full", 1, 7)] * 3 == [versions(server)[-1][:3] for server in servers]

        await agent.demote(2)
        assert [{"2": ADDR}] * 3 == [await routed(server) for server in servers]
        assert [("full", 2, 7)] * 3 == [versions(server)[-1][:3] for server in servers]
        assert 2 == agent.broker_id
        assert [] == [effect for server in servers for effect in server.effects_of(Evicted)]


@pytest.mark.parametrize("broker_id", [0, -1, 1 << 63])
async def test_id_that_no_slave_can_have_is_refused(broker_id: int) -> None:
    """By name, and nothing has changed."""
    agent = BrokerAgent(agent_settings("127.0.0.1:1"), TOPICS)
    with pytest.raises(ValueError, match=f"broker_id {broker_id} "):
        await agent.demote(broker_id)
    assert 0 == agent.broker_id


# address and HA address of masters
M1 = ("10.0.0.9:10911", "10.0.0.9:10912")
M2 = ("10.0.0.8:10911", "10.0.0.8:10912")


async def master_on(server: InProcess, addr: str = M1[0], ha: str = M1[1]) -> Callable[[], None]:
    """A master of the agent's group registers on this server only; what ends it."""
    peer = await server.connect()
    answer = await peer.register(Broker(NAME, 0, addr), haServerAddr=ha, enableActingMaster="true")
    assert 0 == answer.code, answer
    return peer.close


def known_master(agent: BrokerAgent) -> tuple[str, str | None] | None:
    """Where a slave thinks that its master is."""
    return None if agent.master is None else (agent.master.master_addr, agent.master.ha_server_addr)


async def test_slave_learns_its_master_from_the_first_answer(tmp_path: Path) -> None:
    """Address and HA address, once, however many servers say so."""
    clock = FakeClock()
    told: list[tuple[str, str | None]] = []
    async with name_servers(tmp_path, clock) as servers:
        for server in servers:
            await master_on(server)
        async with running(
            clock,
            everywhere(servers),
            broker_id=1,
            options={"on_master_changed": lambda master: told.append((master.master_addr, master.ha_server_addr))},
        ) as agent:
            await agent.registered()
            assert (M1, [M1]) == (known_master(agent), told)
            for server in servers:
                assert {NAME: {0: M1[0], 1: ADDR}} == brokers(server)


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_slave_that_was_first_learns_its_master_with_the_next_heartbeat(protocol: str, tmp_path: Path) -> None:
    """A heartbeat alone would not tell; neither would it that only the HA address is another one."""
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 1) as (server,),
        running(clock, address_of(server), broker_id=1, protocol=protocol) as agent,
    ):
        await agent.registered()
        assert agent.master is None
        await master_on(server)
        await passing(clock, lambda: agent.master, at_most=28.5)
        assert M1 == known_master(agent)

        await master_on(server, ha="10.0.0.9:10999")
        await passing(clock, lambda: known_master(agent) != M1, at_most=28.5)
        assert (M1[0], "10.0.0.9:10999") == known_master(agent)
        assert "registered" == agent.servers[address_of(server)].status


async def test_slave_believes_most_servers_and_forgets_nothing(tmp_path: Path) -> None:
    """One server that says something else, or nothing, changes nothing; two of three do."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers:
        ends = [await master_on(server) for server in servers[:2]]
        await master_on(servers[2], *M2)
        async with running(clock, everywhere(servers), broker_id=1) as agent:
            await agent.registered()
            assert M1 == known_master(agent)

            # one of the two forgets it: one against one is no majority
            ends[0]()
            await until(lambda: brokers(servers[0]) == {NAME: {1: ADDR}})
            await clock.advance(60)
            assert M1 == known_master(agent)

            await master_on(servers[0], *M2)
            await clock.advance(60)
            assert M2 == known_master(agent)


async def test_slave_keeps_its_master_when_nobody_knows_it(tmp_path: Path) -> None:
    """Its master's death, or servers that restarted empty, tell it nothing about where the next one is."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 2) as servers:
        ends = [await master_on(server) for server in servers]
        async with running(clock, everywhere(servers), broker_id=1) as agent:
            await agent.registered()
            for end, server in zip(ends, servers, strict=True):
                end()
                await until(lambda server=server: brokers(server) == {NAME: {1: ADDR}})  # type: ignore[misc]
            await clock.advance(60)
            assert M1 == known_master(agent)


async def test_slave_does_not_count_what_dead_servers_said(tmp_path: Path) -> None:
    """Two of three servers die, and then the master moves: the last one alone knows better than two that are gone."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(server.address)) for server in servers]
        for server in servers:
            await master_on(server)
        async with running(clock, ";".join(proxy.address for proxy in proxies), broker_id=1) as agent:
            await agent.registered()
            for proxy in proxies[:2]:
                proxy.cut()
            await master_on(servers[2], *M2)
            await passing(clock, lambda: known_master(agent) == M2, at_most=28.5)


async def test_promoted_slave_has_no_master(tmp_path: Path) -> None:
    """And learns where it is when it is demoted again."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 1) as (server,):
        await master_on(server)
        async with running(clock, address_of(server), broker_id=1) as agent:
            await agent.registered()
            await agent.promote()
            assert agent.master is None
            await agent.demote(3)
            await master_on(server, *M2)
            await passing(clock, lambda: known_master(agent) == M2, at_most=28.5)


async def test_change_of_the_smallest_id_arrives_as_a_callback(tmp_path: Path) -> None:
    """905 over the agent's own connection; the slave asks at once where the master is, and does not wait for 30 s."""
    clock = FakeClock()
    told: list[tuple[int | None, str | None, str | None]] = []
    async with (
        namesrv_in_process(tmp_path, clock=clock, notify_min_broker_id_changed=True) as server,
        running(
            clock,
            address_of(server),
            broker_id=1,
            enable_acting_master=True,
            options={
                "on_min_broker_id_changed": lambda notice: told.append(
                    (notice.min_broker_id, notice.min_broker_addr, notice.offline_broker_addr)
                )
            },
        ) as agent,
    ):
        await agent.registered()
        end = await master_on(server)
        await until(lambda: known_master(agent) == M1)
        assert [(0, M1[0], None)] == told

        end()
        await until(lambda: len(told) == 2)
        assert (1, ADDR, M1[0]) == told[1]
        assert 1_000.0 == clock.monotonic()
        assert M1 == known_master(agent)


async def test_callbacks_that_fail_do_not_end_a_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says what the broker's own code did."""

    def fails(_: object) -> None:
        raise ZeroDivisionError

    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock, notify_min_broker_id_changed=True) as server,
        running(
            clock,
            address_of(server),
            broker_id=1,
            options={"on_min_broker_id_changed": fails, "on_master_changed": fails},
        ) as agent,
    ):
        await agent.registered()
        await master_on(server)
        await until(lambda: agent.master)
        await clock.advance(120)
        assert ("registered", {NAME: {0: M1[0], 1: ADDR}}) == (
            agent.servers[address_of(server)].status,
            brokers(server),
        )
        assert [] == server.effects_of(Evicted)
    assert 2 == len([record for record in caplog.records if "callback" in record.getMessage()])


# -- leaving ----------------------------------------------------------------------------------------------------------


async def test_stop_unregisters_everywhere_at_once(tmp_path: Path) -> None:
    """No time passes, and a second call does nothing."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        await agent.registered()
        began = clock.monotonic()
        await agent.stop()
        await agent.stop()

        assert began == clock.monotonic()
        for server in servers:
            assert 1 == len(server.effects_of(Unregistered))
            assert ({}, ["unregistered"]) == (
                brokers(server),
                [effect.reason for effect in server.effects_of(Evicted)],
            )
            await until(lambda server=server: not server.namesrv.server.connections)  # type: ignore[misc]  # bound now
        assert {} == agent.servers


async def test_stop_keeps_its_deadline_when_a_server_hangs(tmp_path: Path) -> None:
    """The others are done at once; the connection to the one that hangs is closed, which tells it enough."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 2) as servers, TcpProxy(servers[1].address) as proxy:
        async with running(clock, f"{address_of(servers[0])};{proxy.address}") as agent:
            await agent.registered()
            proxy.stall()
            began = clock.monotonic()
            stopping = asyncio.ensure_future(agent.stop())
            await until(lambda: not brokers(servers[0]))
            assert began == clock.monotonic()
            assert not stopping.done()

            assert await finished(clock, stopping) <= 3.0 + 0.1
        assert [] == agent.socket_descriptors()
        assert {NAME: {0: ADDR}} == brokers(servers[1])
        await proxy.heal()
        await until(lambda: not brokers(servers[1]))


async def test_stop_reaches_servers_that_are_connected_anew(tmp_path: Path) -> None:
    """After a time-out there are two connections for a moment; the broker leaves over the one that there is."""
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 1) as (server,),
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await passing(clock, lambda: agent.servers[proxy.address].status == "unreachable")
        await passing(clock, lambda: proxy.connections == 2)
        stopping = asyncio.ensure_future(agent.stop())
        await settle()
        await proxy.heal()
        await finished(clock, stopping)
        await until(lambda: not brokers(server))
        await until(lambda: proxy.connections == 0)


async def test_drain_takes_writes_away_waits_one_poll_and_leaves(tmp_path: Path) -> None:
    """Nobody sends to a broker that is gone: everybody has polled a route without write permission before."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        await agent.registered()
        draining = asyncio.ensure_future(agent.drain())
        for server in servers:
            await until(lambda server=server: queues(server, "orders") == (8, 8, 4))  # type: ignore[misc]  # bound now
            assert (4, 4, 4) == queues(server, "bills")
            assert ("full", 1, 0) == versions(server)[-1][:3]
        began = clock.monotonic()
        await settle()

        # whatever is created meanwhile cannot be written to either
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        for server in servers:
            await until(lambda server=server: queues(server, "refunds") == (2, 2, 4))  # type: ignore[misc]  # bound now
        await clock.advance(29.9)
        assert not draining.done()
        for server in servers:
            assert {NAME: {0: ADDR}} == brokers(server)
            # still alive
            assert 1 <= len(server.effects_of(Touched))

        await clock.advance(0.1)
        await draining
        assert began + 30.0 == clock.monotonic()
        for server in servers:
            assert {} == brokers(server)
            assert 1 == len(server.effects_of(Unregistered))


async def test_drain_of_a_server_that_was_away_takes_its_writes_away_too(tmp_path: Path) -> None:
    """It registers with what holds now."""
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 2) as servers,
        TcpProxy(servers[1].address) as proxy,
        running(clock, f"{address_of(servers[0])};{proxy.address}") as agent,
    ):
        await agent.registered()
        proxy.cut()
        await until(lambda: not brokers(servers[1]))
        draining = asyncio.ensure_future(agent.drain())
        await until(lambda: queues(servers[0], "orders") == (8, 8, 4))
        await proxy.heal()
        await passing(clock, lambda: brokers(servers[1]), at_most=1)
        assert (8, 8, 4) == queues(servers[1], "orders")
        await finished(clock, draining)
        assert ({}, {}) == (brokers(servers[0]), brokers(servers[1]))


async def test_agent_that_drained_and_started_again_can_be_written_to(tmp_path: Path) -> None:
    """The drain was of the life before."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 1) as (server,), running(clock, address_of(server)) as agent:
        await agent.registered()
        await finished(clock, agent.drain())
        assert {} == brokers(server)
        async with agent:
            await agent.registered()
            assert (8, 8, 6) == queues(server, "orders")


# -- the list of servers ----------------------------------------------------------------------------------------------


async def test_servers_join_and_leave_with_the_list(tmp_path: Path) -> None:
    """The one that left is unregistered from and hung up on; the new one is told everything; the third notices nothing."""
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
            await until(lambda: not leaves.namesrv.server.connections)
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
            await clock.advance(10)
            await until(lambda: agent.name_servers_error is None)
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
            await passing(clock, lambda: len(agent.socket_descriptors()) == 1, at_most=3)
            await proxy.heal()
            await until(lambda: not brokers(servers[1]))
