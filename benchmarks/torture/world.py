"""The tortured world: three servers, twenty brokers and fifty clients on hosts, which are network namespaces."""

import asyncio
import contextlib
import signal
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.build import program as built
from benchmarks.harness.figures import BenchError
from benchmarks.harness.hosts import run
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Program, Server, started, temporary_directory
from benchmarks.torture.load import REGISTRATION_SECONDS, Client, Probe, Pulls
from benchmarks.torture.servers import SERVERS, Peer
from benchmarks.torture.sessions import LOST, PORT, Session
from tests.netns.network import Host, Network, ip

_OTHERS: Final = {"brokers": "10.0.0.20", "clients": "10.0.0.100", "hostile": "10.0.0.250"}
_BROKERS: Final = 20
_CLIENTS: Final = 50
_LOOK_SECONDS: Final = 0.05
_RESPONSE_SECONDS: Final = 1.0
# etcd reserves files of 64 MiB.
_DISK_BYTES: Final = 256 << 20
# longer than the time between two snapshots of a server of ours (5 s)
_SETTLING_SECONDS: Final = 6.0


class Fleet:
    """The servers, numbered from 0, with methods for the faults of a server, its disk and its clock."""

    def __init__(self, bench: Bench, peer: Peer, program: Path, root: Path, network: Network) -> None:
        self.peer = peer
        self.servers: dict[int, Server] = {}
        self.peak_bytes = 0
        self._bench = bench
        self._program = program
        self._root = root
        self._network = network
        # for each server a stack whose end ends the server
        self._ends = [ExitStack() for _ in SERVERS]
        self._clock = str(built("clock.so"))

    def host(self, number: int) -> Host:
        """The host of a server."""
        return self._network.hosts[f"ns{number + 1}"]

    def start(self, number: int) -> None:
        """Start a server that does not run, and return when the server responds. Raises BenchError."""
        host, home = self.host(number), self._root / str(number)
        clock = home / "clock"
        clock.write_bytes(bytes(8))
        environ = {"LD_PRELOAD": self._clock, "MOVED_CLOCK": str(clock), "HOME": str(home)}
        command = host.command(*self.peer.command(self._program, home, host.address))
        server = Program(host.name, command, lambda _: self._ports(host), home, environ)
        self.servers[number] = self._ends[number].enter_context(started(self._bench, server))

    def _ports(self, host: Host) -> Sequence[int]:
        """The port of the server on a host, when the server responds to a pull; empty before."""
        dialect = self.peer.broker.dialect
        try:
            asyncio.run(Session(dialect, (host, host.address), host.address, _RESPONSE_SECONDS).request(dialect.look))
        except LOST:
            return ()
        return [PORT]

    def is_running(self, number: int) -> bool:
        """True if the server was started and has not ended by itself."""
        return number in self.servers and self.servers[number].is_running

    def kill(self, number: int) -> None:
        """Kill a server, and wait for its end; note the largest resident memory that the server ever had."""
        with contextlib.suppress(OSError, BenchError):
            self.peak_bytes = max(self.peak_bytes, self.servers[number].status_bytes("VmHWM"))
        self.servers[number].signal(signal.SIGKILL)
        self._ends[number].close()
        del self.servers[number]

    def move_clock(self, number: int, seconds: int) -> None:
        """Set the wall clock of a server to this many seconds after (or before) the clock of the machine."""
        with (self._root / str(number) / "clock").open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def fill_disk(self, number: int) -> Path:
        """Fill a server's disk to the last byte; return the file to be removed."""
        path = self._root / str(number) / "filling"
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return path

    def end(self) -> None:
        """End all servers."""
        for number in list(self.servers):
            self.kill(number)


class World:
    """A fleet with its brokers, clients and probes."""

    def __init__(self, fleet: Fleet, network: Network) -> None:
        self.fleet = fleet
        self.network = network
        self.pulls = Pulls()
        addresses = list(SERVERS.values())
        hosts, dialect = network.hosts, fleet.peer.broker.dialect
        self.brokers = [
            fleet.peer.broker(number, (hosts["brokers"], source), addresses)
            for number, source in enumerate(_sources("brokers", _BROKERS))
        ]
        self.clients = [
            Client(dialect, (hosts["clients"], source), _beginning_with(number % len(SERVERS), addresses), self.brokers)
            for number, source in enumerate(_sources("clients", _CLIENTS))
        ]
        looked_at = [fleet.host(number) for number in range(len(SERVERS))]
        self.probes = [Probe(dialect, (host, host.address), self.brokers) for host in looked_at]
        self._tasks: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        """Start everything; return when the tables have settled. Results count from then on."""
        await asyncio.gather(*(asyncio.to_thread(self.fleet.start, number) for number in range(len(SERVERS))))
        await asyncio.gather(*(broker.start() for broker in self.brokers))
        self._tasks += [asyncio.create_task(probe.run()) for probe in self.probes]
        await asyncio.sleep(_SETTLING_SECONDS)
        if await self.become_true(REGISTRATION_SECONDS + _SETTLING_SECONDS) is None:
            raise BenchError(f"the tables are not complete before the fault: {self.probes}")
        self._tasks += [asyncio.create_task(client.run(self.pulls)) for client in self.clients]
        await asyncio.sleep(1.0)
        if self.pulls.failed or self.pulls.wrong:
            raise BenchError(f"pulls fail before the fault: {self.pulls}")

    async def become_true(self, patience: float) -> float | None:
        """Wait until all tables are the truth: every live broker with its queues, and no dead broker.

        Return the seconds from the call until the last table had all live brokers; None if `patience` was too short.
        """
        began = time.monotonic()
        while time.monotonic() < began + patience:
            since = [probe.true_since for probe in self.probes]
            is_settled = all(probe.looked_at > began and not probe.has_dead for probe in self.probes)
            if is_settled and None not in since:
                return max(0.0, *(each - began for each in since if each is not None))
            await asyncio.sleep(_LOOK_SECONDS)
        return None

    async def start_again(self, number: int) -> None:
        """Start a killed server, and let the clients whose first server it is use it again.

        A client changes servers only when a request fails, and so would not return.
        """
        self.probes[number].forget()
        await asyncio.to_thread(self.fleet.start, number)
        for client in self.clients:
            if client.servers[0] == self.fleet.host(number).address:
                client.restart()

    async def end(self) -> None:
        """End all background tasks. Raises the error of a task that failed."""
        broken = [task.exception() for task in self._tasks if task.done()]
        for broker in self.brokers:
            broker.die()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in filter(None, broken):
            raise error


def _sources(host: str, count: int) -> list[str]:
    """Consecutive addresses of a host; the first is the one that the host has from the start."""
    network, _, first = _OTHERS[host].rpartition(".")
    return [f"{network}.{int(first) + number}" for number in range(count)]


def _beginning_with(number: int, addresses: list[str]) -> list[str]:
    return addresses[number:] + addresses[:number]


@asynccontextmanager
async def world(bench: Bench, peer: Peer, program: Path, *, has_small_disks: bool) -> AsyncIterator[World]:
    """A settled world, until the block ends."""
    async with AsyncExitStack() as stack:
        root, network = stack.enter_context(temporary_directory("torture")), stack.enter_context(Network())
        network.add({**SERVERS, **_OTHERS})
        for name, count in (("brokers", _BROKERS), ("clients", _CLIENTS)):
            for source in _sources(name, count)[1:]:
                ip("-n", network.hosts[name].namespace, "addr", "add", f"{source}/24", "dev", "eth0")
        for number in range(len(SERVERS)):
            home = root / str(number)
            home.mkdir()
            if has_small_disks:
                run("mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "torture", str(home))
                stack.callback(run, "umount", "-l", str(home))
        fleet = Fleet(bench, peer, program, root, network)
        stack.callback(fleet.end)
        made = World(fleet, network)
        stack.push_async_callback(made.end)
        await made.begin()
        yield made
