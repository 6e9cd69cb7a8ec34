"""The link notices that its connection is of no use, and is back in time."""

from pathlib import Path

import pytest

from namesrv.routeinfo.records import Evicted
from namesrv_broker_agent import TopicConfig
from tests.support.agents import (
    ADDR,
    NAME,
    brokers,
    queues,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import namesrv_in_process
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.scripted_server import ScriptedServer
from tests.support.tcp_proxy import TcpProxy

# -- connections ------------------------------------------------------------------------------------------------------


async def test_delta_lost_with_its_connection_comes_with_the_next_registration(tmp_path: Path) -> None:
    """The way is cut while the delta is on it; the new connection brings everything."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        await settle()
        proxy.cut()
        await passing(clock, lambda: agent.servers[proxy.address].status == "unreachable")
        assert queues(server, "refunds") is None
        await proxy.heal()

        passed = await passing(clock, lambda: queues(server, "refunds"))
        assert passed < 1
        assert 1 == await agent.registered()
        assert [("full", 2), ("full", 3)] == registrations(server)


async def test_half_open_connection_is_noticed_5_seconds_after_the_heartbeat(tmp_path: Path) -> None:
    """A black hole says nothing: only the answer that is missing does."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await clock.advance(14.25)
        await clock.advance(4.9)
        assert "registered" == agent.servers[proxy.address].status

        await clock.advance(0.2)
        state = agent.servers[proxy.address]
        assert ("unreachable", f"request 904 to {proxy.address}: no answer within 5.0 s") == (
            state.status,
            state.last_error,
        )


async def test_answer_that_came_late_evicts_nobody(tmp_path: Path) -> None:
    """The old connection is kept until the server has the registration over the new one: the broker never leaves."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await clock.advance(14.25 + 5.1)
        assert "unreachable" == agent.servers[proxy.address].status
        # long enough for the next attempt
        await clock.advance(1)
        await proxy.heal()
        await passing(clock, lambda: agent.servers[proxy.address].status == "registered")
        await until(lambda: proxy.connections == 1)
        await settle()

        assert [] == server.effects_of(Evicted)
        assert {NAME: {0: ADDR}} == brokers(server)
        assert 2 == proxy.accepted


@pytest.mark.parametrize("unit", [0.25, 1.0])
async def test_pauses_between_attempts_are_drawn_from_below_a_second(unit: float) -> None:
    """Full jitter: anything up to a bound that doubles from 0.1 s to 0.8 s."""
    clock = FakeClock()
    async with ScriptedServer() as server:
        address = server.address
    # nobody listens there any more
    async with running(clock, address, options={"random_unit": lambda: unit}) as agent:
        for bound in (0.1, 0.2, 0.4, 0.8, 0.8, 0.8):
            await until(lambda: agent.servers[address].status == "unreachable")
            await settle()
            # what waits now: the next look at the list of servers, and the next attempt
            waking = [deadline / 1e9 for deadline, _, wakes in clock._sleepers if not wakes.done()]
            pause = min(waking) - clock.monotonic()
            assert 2 == len(waking)
            assert bound * unit == pytest.approx(pause)
            assert pause < 1
            await clock.advance(pause)


@pytest.mark.parametrize("unit", [0.5, 1.0])
async def test_a_server_without_time_is_asked_less_and_less(unit: float) -> None:
    """It takes connections and answers nothing: both the time-outs and the pauses grow, by a part that is drawn.

    With 5 s and 0.8 s for ever, two thousand agents would keep a starved server from ever catching up.
    """
    clock = FakeClock()
    async with (
        ScriptedServer() as hole,
        running(clock, hole.address, options={"random_unit": lambda: unit}),
    ):
        more = [lambda number=number: hole.connections > number for number in range(1, 7)]
        rounds = [await passing(clock, came) for came in more]

        waits = [5 * (1 + (longest - 1) * unit) for longest in (1, 2, 4, 4, 4, 4)]
        pauses = [longest * unit for longest in (1, 2, 4, 8, 15, 15)]
        assert [wait + pause for wait, pause in zip(waits, pauses, strict=True)] == pytest.approx(rounds, abs=0.2)


async def test_a_server_that_closes_what_it_accepts_is_asked_less_and_less() -> None:
    """It has as many connections as it may have: the pauses grow as for one that has no time."""
    clock = FakeClock()
    async with ScriptedServer() as full, running(clock, full.address, options={"random_unit": lambda: 0.5}):
        pauses = []
        for more in [lambda number=number: full.connections > number for number in range(1, 7)]:
            (await full.accept()).close()
            pauses.append(await passing(clock, more))

        assert [0.5, 1, 2, 4, 7.5, 7.5] == pytest.approx(pauses, abs=0.2)


async def test_server_that_comes_back_knows_the_broker_within_a_second(tmp_path: Path) -> None:
    """However long it refused connections: an empty server accepts them, and a second later it has everything."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
        TcpProxy(first.address) as proxy,
        running(clock, proxy.address, options={"random_unit": lambda: 1.0}) as agent,
    ):
        await agent.registered()
        proxy.cut()
        await clock.advance(200)
        assert "unreachable" == agent.servers[proxy.address].status
        proxy.target = second.address
        await proxy.heal()

        passed = await passing(clock, lambda: brokers(second))
        assert passed < 1
        assert [("full", 2)] == registrations(second)


# -- what is visible --------------------------------------------------------------------------------------------------


async def test_state_of_a_server_says_since_when_and_why(tmp_path: Path) -> None:
    """Connecting, registered, unreachable, registered again, stopped; with the last answer and the last error."""
    clock = FakeClock(wall=5_000.0)
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        proxy.stall()
        async with running(clock, proxy.address) as agent:
            await clock.advance(1)
            state = agent.servers[proxy.address]
            assert ("connecting", 5_000.0, None, None) == (
                state.status,
                state.since,
                state.last_answer,
                state.last_error,
            )

            await proxy.heal()
            await until(lambda: agent.servers[proxy.address].status == "registered")
            state = agent.servers[proxy.address]
            assert (5_001.0, 5_001.0, "native", 1) == (
                state.since,
                state.last_answer,
                state.protocol,
                state.registrations,
            )

            await clock.advance(14.25)
            await until(lambda: agent.servers[proxy.address].last_answer == 5_015.25)
            proxy.cut()
            await until(lambda: agent.servers[proxy.address].status == "unreachable")
            state = agent.servers[proxy.address]
            assert (5_015.25, 5_015.25, None) != (state.since, state.last_answer, state.last_error)
            assert 5_015.25 == state.since
            link = agent._links[proxy.address]
        assert "stopped" == link.state.status
