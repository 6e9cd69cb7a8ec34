"""Two of our NameServers that are killed and restarted at the same addresses, and a broker with many topics."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from namesrv_remoting.codes import RequestCode, ResponseCode
from tests.interop.peers.apache import MqAdmin
from tests.interop.peers.broker import Broker
from tests.interop.peers.route import topics_of
from tests.interop.peers.waiting import until, until_equal
from tests.support.daemon import Daemon
from tests.support.peer import Broker as Lost
from tests.support.peer import Peer
from tests.support.ports import free_port

HOST: Final = "127.0.0.1"
STREAM: Final = "stream"
TOPICS: Final = [f"topic-{number}" for number in range(32)]


class Restarts:
    """The servers, each with the same port and data directory in every boot, and a broker that both know."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self._place = place
        self._stack = stack
        ports = [free_port(), free_port()]
        self.addresses = [f"{HOST}:{port}" for port in ports]
        # The running or last process of each server, by number.
        self._running = [self._start(number, port) for number, port in enumerate(ports)]
        for daemon in self._running:
            daemon.listening()
        broker = stack.enter_context(Broker(place / "broker", self.addresses)).booted()
        make_topics(place, broker, self.addresses)
        for daemon in self._running:
            until(partial(_has_snapshot, daemon, broker.name))
        # Topics that no producer has used yet.
        self.unused: Iterator[str] = iter(TOPICS)

    def _start(self, number: int, port: int, flags: Sequence[str] = ()) -> Daemon:
        daemon = Daemon(self._place / f"namesrv-{number}", "--listen-port", str(port), *flags)
        return self._stack.enter_context(daemon)

    def kill(self, number: int) -> None:
        """Kill a server, as a power cut would."""
        self._running[number].kill()

    def start_again(self, number: int, *flags: str) -> None:
        """Start a killed server; it listens when this returns, and may not be ready yet."""
        self._running[number] = self._start(number, self._running[number].address[1], flags).listening()

    def restart_unready(self, number: int) -> None:
        """Kill a server and restart it with an expected broker that never comes back, so that it stays not ready."""
        with Peer(self._running[number].address) as peer:
            Lost(name="lost", addr=f"{HOST}:1", cluster="lost").register(peer)
            until(partial(_has_snapshot, self._running[number], "lost"))
            self.kill(number)
        self.start_again(number, "--wait-for-service-seconds", "600")

    def is_ready(self, number: int) -> bool:
        """True if the server answers route requests, and the broker is back."""
        with Peer(self._running[number].address) as peer:
            return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": STREAM}).code == ResponseCode.SUCCESS


def _has_snapshot(daemon: Daemon, broker_name: str) -> bool:
    """True if the snapshot of a server has a broker; it is written some seconds after the registration."""
    snapshot = daemon.data_dir / "snapshot.json"
    return snapshot.exists() and f'"{broker_name}"' in snapshot.read_text(encoding="utf-8")


def make_topics(place: Path, broker: Broker, addresses: Sequence[str]) -> None:
    """Create the topics on a broker; return when both NameServers know them, and TBW102 from a full registration.

    They have the number of queues that a client assumes for an unknown topic. If the broker has not registered before,
    its first registration has only the created topics.
    """
    wanted = {STREAM, *TOPICS}
    with MqAdmin(place / "topics", addresses[0]) as admin:
        admin.make_topics(broker.address, *wanted)
    wanted.add("TBW102")
    until_equal([wanted] * len(addresses), lambda: [topics_of(address) & wanted for address in addresses])
