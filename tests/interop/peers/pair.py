"""Runs a master and its slave, with two separate NameServers."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.interop.peers.broker import Broker, BrokerPeer, Role
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import members_of
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon

TOPIC: Final = "kept"
_PREFIX: Final = "message"
BODIES: Final = {f"{_PREFIX}-{n}" for n in range(20)}
# A slave of RocketMQ 5.3 looks for new topics once a minute.
SLAVE_SECONDS: Final = 90.0

# A slave of RocketMQ refuses reads by default.
_READABLE: Final = {"slaveReadEnable": "true"}


class Pair:
    """Two of our daemons and two brokers, all of them starting when the constructor returns; a context manager."""

    def __init__(
        self,
        home: Path,
        *flags: str,
        peer: BrokerPeer = "broker-5",
        role: Role = "ASYNC_MASTER",
        settings: dict[str, object] | None = None,
    ) -> None:
        self.peer = peer
        self.role = role
        self._home = home
        self._settings = settings or {}
        self._stack = ExitStack()
        names = ("namesrv-1", "namesrv-2")
        self.daemons = [self._stack.enter_context(Daemon(home / name, *flags)).listening() for name in names]
        self.name_servers = [daemon.where for daemon in self.daemons]
        self.master = self._start(0)
        self.slave = self._start(1)

    def _start(self, broker_id: int, port: int = 0) -> Broker:
        broker = Broker(
            self._home / f"broker-{broker_id}",
            self.name_servers,
            broker_id=broker_id,
            role="SLAVE" if broker_id else self.role,
            peer=self.peer,
            port=port,
            settings={**self._settings, **_READABLE},
        )
        return self._stack.enter_context(broker)

    @property
    def name(self) -> str:
        return self.master.name

    @property
    def members(self) -> dict[int, str]:
        """The members of the group, as both NameServers report them when both brokers are registered."""
        return {0: self.master.address, 1: self.slave.address}

    def complete(self) -> Self:
        """Return as soon as both NameServers know both brokers; an ended broker is started again."""
        if not self.master.is_running:
            self.master = self._start(0, self.master.port)
        if not self.slave.is_running:
            self.slave = self._start(1, self.slave.port)
        self.master.booted()
        self.slave.booted()
        until_equal([self.members] * 2, lambda: members_of(self.name_servers, self.name))
        return self

    def filled(self, clients: Driver, name: str) -> Self:
        """Return as soon as a producer has created the topic `TOPIC` and all of `BODIES` are acknowledged."""
        clients.start_producer(name, self.name_servers)
        assert clients.send(name, TOPIC, len(BODIES), _PREFIX) == BODIES
        # The status is neither FLUSH_SLAVE_TIMEOUT nor SLAVE_NOT_AVAILABLE.
        assert {entry["status"] for entry in clients.events("acked", name=name)} == {"SEND_OK"}
        clients.close(name)
        return self

    def slave_is_filled(self) -> bool:
        """True if the slave has the topic and all its messages; 5.3 copies topics once a minute, 4.9 every 10 s."""
        table = self.slave.home / "store" / "config" / "topics.json"
        logs = [path.read_bytes() for path in (self.slave.home / "store" / "commitlog").glob("0*")]
        return (
            table.exists()
            and f'"{TOPIC}"' in table.read_text(encoding="utf-8")
            and all(any(body.encode() in log for log in logs) for body in BODIES)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def __repr__(self) -> str:
        return f"<Pair [{self.role} | {self.master!r} | {self.slave!r}]>"
