"""A slave acts as master through our NameServers, for brokers that heartbeat every second."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.broker import leaves
from tests.interop.peers.driver import Driver
from tests.interop.peers.pair import BODIES, SLAVE_SECONDS, TOPIC, Pair
from tests.interop.peers.route import routes_of, until_routed
from tests.interop.peers.waiting import until, until_equal

# The requests of 5.3 to a NameServer that it takes for an old one (322 and 105), and to one of version 5 (904, 901).
KINDS: Final = {"322": "true", "904": "false"}
# The expiry that the brokers request; the default is 120 s.
BROKER_EXPIRY_SECONDS: Final = 10


pytestmark = pytest.mark.parametrize("pair", KINDS, indirect=True)


@pytest.fixture(scope="module")
def pairs(place: Path, stack: ExitStack, clients: Driver) -> dict[str, Pair]:
    """A pair of each kind with its own NameServers; all pairs start, and get their messages, at the same time."""
    flags = ("--support-acting-master", "--notify-min-broker-id-changed", "--scan-interval-seconds", "1")
    pairs = {
        kind: stack.enter_context(
            Pair(
                place / kind,
                *flags,
                settings={
                    "enableSlaveActingMaster": "true",
                    "brokerHeartbeatInterval": 1000,
                    "brokerNotActiveTimeoutMillis": 1000 * BROKER_EXPIRY_SECONDS,
                    "compatibleWithOldNameSrv": compatible,
                },
            )
        )
        for kind, compatible in KINDS.items()
    }
    return {kind: pair.complete().filled(clients, f"p-{kind}") for kind, pair in pairs.items()}


def test_heartbeats_keep_a_broker(pair: Pair) -> None:
    """Heartbeats keep both brokers registered, although their expiry is shorter than the registration interval."""
    # Five times the requested expiry.
    until(pair.slave_is_filled, within=SLAVE_SECONDS)

    for daemon in pair.daemons:
        assert daemon.lines("broker_evicted", reason="silent", broker_addr=pair.slave.address) == []


def test_slave_acts_when_the_master_is_killed(pair: Pair, clients: Driver, unique: str) -> None:
    """The slave is acting master in the routes at once, without write permission; consumers read from it."""
    until(pair.slave_is_filled, within=SLAVE_SECONDS)
    acted = _acted(pair)

    with leaves(pair.daemons, pair.master, "disconnected"):
        pair.master.kill()

    for route in routes_of(pair.name_servers, TOPIC):
        assert route is not None
        assert route.brokers == {pair.name: {0: pair.slave.address}}
        assert route.queues == {pair.name: (4, 4, 4)}
    until(lambda: _acted(pair) > acted)
    clients.receive(unique, pair.name_servers, TOPIC, BODIES)
    pair.complete()
    for route in until_routed(pair.name_servers, TOPIC):
        assert route.brokers == {pair.name: pair.members}
    # The master's next registration restores the permission.
    until_equal([{pair.name: (4, 4, 6)}] * 2, lambda: _queues(pair))


def test_master_that_hangs_is_replaced_after_its_own_expiry(pair: Pair) -> None:
    """A hanging master is evicted after the expiry that it requested; when it continues, it is the master again."""
    with leaves(pair.daemons, pair.master, "silent", expiry_seconds=BROKER_EXPIRY_SECONDS):
        pair.master.pause()

    for route in routes_of(pair.name_servers, "TBW102"):
        assert route is not None
        assert route.brokers == {pair.name: {0: pair.slave.address}}
    pair.master.resume()
    pair.complete()


def _acted(pair: Pair) -> int:
    """Number of times that the slave has started to act as master."""
    return pair.slave.log().count("ScheduleServiceStatus changed to true")


def _queues(pair: Pair) -> list[dict[str, tuple[int, int, int]] | None]:
    return [None if route is None else route.queues for route in routes_of(pair.name_servers, TOPIC)]
