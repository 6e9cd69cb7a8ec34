"""Kills one of our NameServers and starts it again where it was."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from namesrv_remoting.codes import RequestCode, ResponseCode
from tests.interop.peers.ports import free_port
from tests.interop.peers.waiting import until
from tests.support.broker import Broker as Lost
from tests.support.daemon import Daemon
from tests.support.peer import Peer

HOST: Final = "127.0.0.1"


class Daemons:
    """Our NameServers, each with a port and a data directory that it keeps over its lives."""

    def __init__(self, place: Path, stack: ExitStack, count: int = 2) -> None:
        self._place = place
        self._stack = stack
        self._ports = [free_port() for _ in range(count)]
        self.addresses = [f"{HOST}:{port}" for port in self._ports]
        # those that run, or ran last, by number
        self.running: list[Daemon] = [self._start(number) for number in range(count)]
        for daemon in self.running:
            daemon.listening()

    def _start(self, number: int, flags: Sequence[str] = ()) -> Daemon:
        place = self._place / f"namesrv-{number}"
        return self._stack.enter_context(Daemon(place, "--listen-port", str(self._ports[number]), *flags))

    def kill(self, number: int) -> None:
        """End one as a power cut would."""
        self.running[number].kill()

    def start_again(self, number: int, *flags: str) -> Daemon:
        """Start one that was killed; it listens when this returns, and need not be ready."""
        self.running[number] = self._start(number, flags)
        return self.running[number].listening()

    def restart_unready(self, number: int) -> None:
        """Kill one and start it again so that it goes on waiting for a broker of its last run, which is lost."""
        snapshot = self.running[number].data_dir / "snapshot.json"
        with Peer((HOST, self._ports[number])) as peer:
            Lost(name="lost", addr=f"{HOST}:1", cluster="lost").register(peer)
            until(lambda: '"lost"' in snapshot.read_text(encoding="utf-8"))
            self.kill(number)
        self.start_again(number, "--wait-for-service-seconds", "600")

    def routes(self, number: int, topic: str) -> bool:
        """Whether one of them answers for a topic with a route: it is ready, and the topic's broker is back."""
        with Peer((HOST, self._ports[number])) as peer:
            return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == ResponseCode.SUCCESS
