"""A broker that failed is probed until it is back."""

import asyncio

from namesrv_client.queues.faults import FaultStrategy, ReachabilityProbe, connects
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import FakeClock
from tests.support.raw_peer import until
from tests.support.scripted_server import ScriptedServer


def failed(*brokers: str) -> FaultStrategy:
    """Brokers that could not be reached."""
    faults = FaultStrategy()
    for broker in brokers:
        faults.report(broker, 1.0, 0.0, failed=True, is_reachable=False)
    return faults


async def test_a_broker_that_takes_connections_is_reached() -> None:
    """Every 3 s somebody looks; the first time after 3 s."""
    clock, faults = FakeClock(), failed("broker-a", "broker-b")
    async with ScriptedServer() as broker_b:
        with refusing_port() as nobody:
            addresses = {"broker-a": f"127.0.0.1:{nobody.getsockname()[1]}", "broker-b": broker_b.address}
            running = asyncio.ensure_future(ReachabilityProbe(faults, clock, addresses.get).run())
            await clock.advance(2.9)
            assert ["broker-a", "broker-b"] == faults.unreachable()

            await clock.advance(0.1)
            await until(lambda: faults.unreachable() == ["broker-a"])

            # the same place, and somebody listens there now
            nobody.listen()
            await clock.advance(0.2)
            await until(lambda: clock.sleepers)
            await clock.advance(2.9)
            await until(lambda: not faults.unreachable())
            running.cancel()


async def test_a_black_hole_is_given_up_after_a_fifth_of_a_second() -> None:
    """Nobody answers, and nobody refuses."""
    clock = FakeClock()
    with full_queue() as address:
        probing = asyncio.ensure_future(connects(address, clock))
        await clock.advance(0.19)
        assert not probing.done()
        await clock.advance(0.01)
        assert not await probing


async def test_what_is_no_address_is_not_reached() -> None:
    """A broker can register anything; NettyRemotingClientTest.testIsAddressReachableFail has the last one."""
    clock = FakeClock()

    for address in ("", "nowhere", "10.0.0.1:port", "a" * 70 + ":1", "[fe80::]:8080"):
        probing = asyncio.ensure_future(connects(address, clock))
        await clock.advance(0.2)
        assert not await probing, address


async def test_a_broker_without_a_masters_address_is_forgotten() -> None:
    """Nothing can be sent to it anyway."""
    faults = failed("broker-a")

    await ReachabilityProbe(faults, FakeClock(), lambda _: None).probe("broker-a")

    assert "<ReachabilityProbe [<FaultStrategy [0 brokers]>]>" == repr(ReachabilityProbe(faults, FakeClock(), str))
    assert [] == faults.unreachable()
