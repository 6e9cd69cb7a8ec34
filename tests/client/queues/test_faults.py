"""Which brokers are left alone, for how long, and what ends it."""

import asyncio
from typing import Any

import pytest

from namesrv_client import ClientSettings
from namesrv_client.queues.selection import BrokerFaults, connects
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import FakeClock
from tests.support.raw_peer import until
from tests.support.scripted_server import ScriptedServer


class Scene:
    """A fake clock, and what is known of the brokers by it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.faults = BrokerFaults(ClientSettings(**{"fault_tolerance": True, **settings}), self.clock)

    def report(self, *sends: float | None) -> int:
        """Report how long sends to broker b took, one a second; None: it failed. The last one's pause, in ms."""
        pause = 0
        for number, took in enumerate(sends):
            self.clock.stall(float(number > 0))
            pause = self.faults.report("b", took or 0.0, failed=took is None)
        return pause

    def unavailable_for(self) -> float:
        """Seconds until broker b is used again, to the millisecond."""
        began = self.clock.monotonic()
        while not self.faults.is_available("b"):
            self.clock.stall(0.001)
        return round(self.clock.monotonic() - began, 3)


@pytest.mark.parametrize(
    ("table", "latency_ms", "pause_ms"),
    [
        # from 5.1.4 on: the entry of the largest threshold that the latency has reached
        *(("5", latency, 0) for latency in (0, 49, 50, 100, 549)),
        *(("5", 550, 2_000), ("5", 1_799, 2_000), ("5", 1_800, 5_000), ("5", 2_999, 5_000), ("5", 3_000, 6_000)),
        *(("5", 4_999, 6_000), ("5", 5_000, 10_000), ("5", 14_999, 10_000), ("5", 15_000, 30_000)),
        # 4.9 and up to 5.1.3
        *(("4", latency, 0) for latency in (0, 49, 50, 100, 549)),
        *(("4", 550, 30_000), ("4", 999, 30_000), ("4", 1_000, 60_000), ("4", 1_999, 60_000), ("4", 2_000, 120_000)),
        *(("4", 2_999, 120_000), ("4", 3_000, 180_000), ("4", 14_999, 180_000), ("4", 15_000, 600_000)),
        # a failure, whatever it took: as 10,000 ms in the newer table, as 30,000 ms in the older one
        ("5", None, 10_000),
        ("4", None, 600_000),
    ],
)
def test_pauses_are_rocketmqs(table: str, latency_ms: int | None, pause_ms: int) -> None:
    """By the table that was chosen; without fault tolerance there are none."""
    took = None if latency_ms is None else latency_ms / 1000

    assert pause_ms == Scene(fault_table=table).report(took)
    assert 0 == Scene(fault_table=table, fault_tolerance=False).report(took)


@pytest.mark.parametrize(
    ("sends", "seconds"),
    [
        # LatencyFaultToleranceImplTest.testUpdateFaultItem and testIsAvailable
        ([3.0], 6.0),
        ([0.55], 2.0),
        ([0.02], 0.0),
        # a slow success does not shorten an isolation, a second failure makes it longer
        ([None, 0.6], 9.0),
        ([None, None], 10.0),
        # in RocketMQ an isolation can only grow; here an answer in good time says that the broker is back
        ([None, 0.02], 0.0),
    ],
)
def test_a_broker_is_left_alone_for_its_pause(sends: list[float | None], seconds: float) -> None:
    """And no other is."""
    scene = Scene()
    scene.report(*sends)

    assert scene.faults.is_available("other")
    assert seconds == scene.unavailable_for()
    assert [] == scene.faults.unreachable()


def test_with_a_probe_a_failed_broker_is_not_available_however_long_ago_it_failed() -> None:
    """RocketMQ says the same in its log and picks it again; here somebody has to have reached it, or sent to it."""
    scene = Scene(probe="own")
    for is_back in (lambda: scene.faults.reached("b"), lambda: scene.report(0.02)):
        scene.report(None)
        scene.clock.stall(1e6)
        assert (False, False) == (scene.faults.is_available("b"), scene.faults.is_reachable("b"))
        assert ["b"] == scene.faults.unreachable()

        is_back()
        assert (True, True) == (scene.faults.is_available("b"), scene.faults.is_reachable("b"))
        assert [] == scene.faults.unreachable()


# -- the probe --------------------------------------------------------------------------------------------------------


async def test_a_broker_that_takes_connections_is_reached() -> None:
    """Every 3 s somebody looks; the first time after 3 s. One without a master's address is forgotten."""
    scene = Scene(probe="connect")
    clock, faults = scene.clock, scene.faults
    for broker in ("broker-a", "broker-b", "broker-c"):
        faults.report(broker, 1.0, failed=True)
    async with ScriptedServer() as broker_b:
        with refusing_port() as nobody:
            addresses = {"broker-a": f"127.0.0.1:{nobody.getsockname()[1]}", "broker-b": broker_b.address}
            running = asyncio.ensure_future(faults.probe(addresses.get))
            await clock.advance(2.9)
            assert ["broker-a", "broker-b", "broker-c"] == faults.unreachable()

            await clock.advance(0.1)
            await until(lambda: faults.unreachable() == ["broker-a"])
            assert "<BrokerFaults [2 isolated | 1 unreachable]>" == repr(faults)

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
