"""The faults. Each is a coroutine function that returns when the fault is over."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.harness import wire
from benchmarks.harness.figures import BenchError
from benchmarks.harness.hosts import drop
from benchmarks.torture.load import EXPIRY_SECONDS, REGISTRATION_SECONDS, Client
from benchmarks.torture.name_servers import ROUTE, TOPIC, RegisteredBroker
from benchmarks.torture.sessions import LOST, PORT, new_socket
from benchmarks.torture.world import World

Inflict = Callable[[World], Awaitable[None]]

# The server that has the fault.
_SICK: Final = 0
_NAME: Final = "ns1"
_HOUR: Final = 3600
_HERD: Final = 2_000
# Longest wait of a client in the herd: this one process opens all connections, which takes seconds.
_HERD_PATIENCE: Final = 10.0
# duration of an attack
_SECONDS: Final = 10.0
# an HTTP request, a frame longer than allowed, a frame of 16 MiB that never ends, a header that is not JSON
_GARBAGE: Final = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff" * 64,
    b"\x01\x00\x00\x00\x00\x00\x00\x40" + bytes(1 << 16),
    b"\x00\x00\x00\x0c\x00\x00\x00\x08{{{{{{{{",
)
# A killed server is started again after this time, as by a supervisor.
_RESTART_SECONDS: Final = 3.0


async def _upheaval(world: World) -> None:
    """A second into a fault one broker is killed, one is stopped, and one changes its queues."""
    await asyncio.sleep(1.0)
    world.brokers[-1].die()
    await asyncio.gather(world.brokers[-2].fall_silent(), world.brokers[0].change())


async def kill(world: World) -> None:
    """Kill -9 of one server, which is started again after 3 s."""
    await asyncio.to_thread(world.fleet.kill, _SICK)
    await asyncio.gather(_upheaval(world), asyncio.sleep(_RESTART_SECONDS))
    await world.start_again(_SICK)


def stop(seconds: float) -> Inflict:
    """SIGSTOP of one server for some seconds."""

    async def inflict(world: World) -> None:
        world.fleet.servers[_SICK].signal(signal.SIGSTOP)
        try:
            await asyncio.gather(_upheaval(world), asyncio.sleep(seconds))
        finally:
            world.fleet.servers[_SICK].signal(signal.SIGCONT)

    return inflict


def clock(seconds: int) -> Inflict:
    """The wall clock of one server jumps, just after one broker was killed and another has fallen silent."""

    async def inflict(world: World) -> None:
        await _upheaval(world)
        world.fleet.move_clock(_SICK, seconds)
        await asyncio.sleep(2 * REGISTRATION_SECONDS)

    return inflict


def dropping(*rules: str) -> Inflict:
    """The switch drops the packets that one of the rules matches, for longer than a broker's expiry."""

    async def inflict(world: World) -> None:
        drop(world.network, *rules)
        await asyncio.gather(_upheaval(world), asyncio.sleep(1.5 * EXPIRY_SECONDS))
        drop(world.network)

    return inflict


async def disk(world: World) -> None:
    """The disks of all servers are full while one server is killed and started again.

    When the disks have space, each server that did not start on a full disk, or ended on one, is started again.
    """
    files = [world.fleet.fill_disk(number) for number in range(len(world.probes))]
    await asyncio.to_thread(world.fleet.kill, _SICK)
    await asyncio.gather(_upheaval(world), asyncio.sleep(_RESTART_SECONDS))
    with contextlib.suppress(BenchError):
        await world.start_again(_SICK)
    for file in files:
        file.unlink()
    # All at once, since a server of an ensemble responds only together with another one.
    ended = [number for number in range(len(world.probes)) if not world.fleet.is_running(number)]
    await asyncio.gather(*(world.start_again(number) for number in ended))


async def late_unregister(world: World) -> None:
    """All brokers restart at once, three times; the old process unregisters after the new process has registered."""
    for _ in range(3):
        await asyncio.gather(*(broker.restart_late() for broker in _registered(world)))
        await asyncio.sleep(0.5)


async def restarts(world: World) -> None:
    """All brokers restart at once, ten times; the old connections close just before the new registrations."""
    for _ in range(10):
        await asyncio.gather(*(broker.restart() for broker in world.brokers))
        await asyncio.sleep(0.3)


async def increment(world: World) -> None:
    """A server restarts, and each broker registers one changed topic alone, under a new DataVersion.

    The broker's next full registration has the same DataVersion, although the server lacks the other topic.
    """
    await asyncio.to_thread(world.fleet.kill, _SICK)
    await world.start_again(_SICK)
    await asyncio.gather(*(broker.change() for broker in world.brokers))


async def split(world: World) -> None:
    """A broker changes two topics, and registers them in two chunks with the same DataVersion."""
    broker = _registered(world)[0]
    await broker.change_in_chunks(f"own-{broker.name}", TOPIC)


def _registered(world: World) -> list[RegisteredBroker]:
    """The brokers of a world of NameServers."""
    return [broker for broker in world.brokers if isinstance(broker, RegisteredBroker)]


async def herd(world: World) -> None:
    """All clients lose their connections, and 2,000 more connect to one server at once."""
    server = world.fleet.host(_SICK).address
    places = [client.place for client in world.clients]
    dialect, brokers = world.fleet.peer.broker.dialect, world.brokers
    clients = [Client(dialect, places[n % len(places)], [server], brokers, _HERD_PATIENCE) for n in range(_HERD)]
    for client in world.clients:
        client.close()
    await asyncio.gather(*(client.pull(world.pulls) for client in clients))
    for client in clients:
        client.close()


async def slow_readers(world: World) -> None:
    """One peer requests routes on ten connections without reading, for 10 s."""
    await asyncio.gather(*(_sent(world, ROUTE * 100_000) for _ in range(10)))


async def hostile(world: World) -> None:
    """One peer registers 100,000 topics, and sends garbage over 1,000 connections, for 10 s."""
    topics = wire.topics("forged-%d", 10_000)
    await asyncio.gather(
        *(_sent(world, wire.Broker(f"forged-{n}", f"10.9.9.{n}:1", topics).json_frame()) for n in range(10)),
        *(_sent(world, _GARBAGE[n % len(_GARBAGE)]) for n in range(1_000)),
    )


async def _sent(world: World, data: bytes) -> None:
    """Send data from the hostile host to the sick server without reading, on a connection that is open for 10 s."""
    server = world.fleet.host(_SICK)
    source, ends_at = world.network.hosts["hostile"], asyncio.get_running_loop().time() + _SECONDS
    with new_socket((source, source.address)) as peer, contextlib.suppress(*LOST):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with asyncio.timeout_at(ends_at):
            await asyncio.get_running_loop().sock_connect(peer, (server.address, PORT))
            await asyncio.get_running_loop().sock_sendall(peer, data)
            await asyncio.sleep(_SECONDS)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a world."""

    what: str
    inflict: Inflict
    # True: the servers of the world have small disks of their own.
    has_small_disks: bool = False
    # the peers that cannot have this fault
    spared: Collection[str] = ()


# They have sessions or leases instead of registrations with a DataVersion, and protocols of their own.
_ENSEMBLES: Final = ("zookeeper", "etcd")
# Go reads the clock without libc.
_GO: Final = ("etcd",)


FAULTS: Final[Mapping[str, Fault]] = {
    "kill": Fault("kill -9 of a server, started again after 3 s", kill),
    "stop": Fault("SIGSTOP of a server for 2.5 s (30 s, 12 times as fast)", stop(2.5)),
    "long-stop": Fault("SIGSTOP of a server for 25 s (5 min, 12 times as fast)", stop(25.0)),
    "clock-forward": Fault("wall clock of a server + 1 h", clock(_HOUR), spared=_GO),
    "clock-back": Fault("wall clock of a server - 1 h", clock(-_HOUR), spared=_GO),
    "cut": Fault("partition of a server, both ways, 15 s", dropping(f"iifname {_NAME}", f"oifname {_NAME}")),
    "mute": Fault("partition one way, 15 s: the server's packets are lost", dropping(f"iifname {_NAME}")),
    "deaf": Fault("partition one way, 15 s: packets to the server are lost", dropping(f"oifname {_NAME}")),
    "loss": Fault("5 % of all packets are lost, 15 s", dropping("numgen random mod 100 < 5")),
    "disk": Fault("all disks full, and a server is killed and started again", disk, has_small_disks=True),
    "late-unregister": Fault(
        "20 brokers restart 3 times, late unregister (#11043)", late_unregister, spared=_ENSEMBLES
    ),
    "restarts": Fault("20 brokers restart 10 times, close just before registration (#11043)", restarts),
    "increment": Fault(
        "server restart, then one-topic registrations, unchanged DataVersion (#9411)", increment, spared=_ENSEMBLES
    ),
    "split": Fault("a change in the second chunk of a DataVersion (#10425)", split, spared=_ENSEMBLES),
    "herd": Fault("50 clients lose their connections, and 2,000 more connect to a server at once", herd),
    "slow-reader": Fault("one peer requests routes for 10 s without reading", slow_readers, spared=_ENSEMBLES),
    "hostile": Fault("one hostile peer, 10 s: garbage, endless frames, 100,000 topics", hostile, spared=_ENSEMBLES),
}
