"""Runs a real, unmodified Apache broker, and waits for its evictions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, Self

from tests.interop.peers.java import BOOT_SECONDS, JavaProcess
from tests.support.daemon import Daemon
from tests.support.ports import broker_port

BrokerPeer = Literal["broker-5", "broker-5.5", "broker-5.2", "broker-4"]
Role = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]

# A broker registers every 10 s at the shortest; with these flags a hanging broker is evicted a second after 20 s.
EXPIRY_SECONDS: Final = 20
FOUND_SOON: Final = ("--broker-expiry-seconds", str(EXPIRY_SECONDS), "--scan-interval-seconds", "1")

_MAIN: Final = "org.apache.rocketmq.broker.BrokerStartup"
_MEGABYTE: Final = 1 << 20

# Settings of a broker with few messages: small files, loopback only, and no read-only mode on a nearly full disk.
_SMALL: Final = {
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": 16 * _MEGABYTE,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "mappedFileSizeTimerLog": 1000 * 52,
    "mappedFileSizeConsumeQueueExt": _MEGABYTE,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 95,
    # A broker on a busy machine must not reject messages.
    "waitTimeMillsInSendQueue": 10000,
    "osPageCacheBusyTimeOutMills": 10000,
    # The shortest interval that a broker accepts; the default is 30 s.
    "registerNameServerPeriod": 10000,
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": 4,
}
_DISK: Final = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "-XX:MaxDirectMemorySize=256m",
)
# Version 4.9 reads its logging configuration from its home; version 5 contains it.
_LOGBACK: Final = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/logs/rocketmqlogs/broker.log</file>
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class Broker(JavaProcess):
    """One broker process with its own home and store.

    The constructor starts the broker, and `booted()` returns as soon as it serves. The broker is registered at once or
    ten seconds later: it skips the first registration if no connection to a NameServer is open yet when it boots.
    Settings have the names of broker.conf. A new broker with the home and port of an ended one is a restart with the
    same store.
    """

    def __init__(
        self,
        home: Path,
        name_servers: Sequence[str],
        *,
        name: str = "broker-a",
        broker_id: int = 0,
        cluster: str = "DefaultCluster",
        role: Role = "ASYNC_MASTER",
        peer: BrokerPeer = "broker-5",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.broker_id = broker_id
        self.cluster = cluster
        self.peer = peer
        self.port = port or broker_port()
        self.name_servers = tuple(name_servers)
        self._configure(home, {"brokerRole": role, **(settings or {})})
        super().__init__(home, peer, _MAIN, "-c", str(home / "broker.conf"), heap_megabytes=384, flags=(*_DISK, *flags))

    def _configure(self, home: Path, settings: Mapping[str, object]) -> None:
        (home / "conf").mkdir(parents=True, exist_ok=True)
        for name in ("logback_broker.xml", "rmq.broker.logback.xml"):
            if self.peer == "broker-4":
                (home / "conf" / name).write_text(_LOGBACK, encoding="utf-8")
        own = {
            "brokerClusterName": self.cluster,
            "brokerName": self.name,
            "brokerId": self.broker_id,
            # With an empty list a broker would not ask the address server.
            **({"namesrvAddr": ";".join(self.name_servers)} if self.name_servers else {}),
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
        }
        lines = [f"{key}={value}\n" for key, value in {**_SMALL, **own, **settings}.items()]
        (home / "broker.conf").write_text("".join(lines), encoding="utf-8")

    @property
    def address(self) -> str:
        """The address that the broker registers."""
        return f"127.0.0.1:{self.port}"

    def booted(self) -> Self:
        self.wait_for(r"The broker\[.*boot success", within=BOOT_SECONDS)
        return self

    def log(self, name: str = "broker.log") -> str:
        """The content of a log file so far."""
        paths = sorted((self.home / "logs" / "rocketmqlogs").rglob(name))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


@contextmanager
def leaves(
    daemons: Sequence[Daemon], broker: Broker, reason: str, *, expiry_seconds: float = EXPIRY_SECONDS
) -> Iterator[None]:
    """A context whose body causes an eviction for this reason; it ends as soon as every daemon has evicted the broker.

    A silent broker is evicted after its expiry; the delay depends on the load of the machine.
    """
    fields = {"reason": reason, "broker_addr": broker.address}
    before = [len(daemon.lines("broker_evicted", **fields)) for daemon in daemons]
    yield
    for daemon, count in zip(daemons, before, strict=True):
        exit_ = daemon.wait_for("broker_evicted", **fields, count=count + 1)
        if reason == "silent":
            assert expiry_seconds < exit_["silent_ms"] / 1000
