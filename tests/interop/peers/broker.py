"""Runs a real, unmodified Apache broker, and watches it leave."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, Self

from tests.interop.peers.java import BOOT_SECONDS, JavaProcess
from tests.support.daemon import Daemon
from tests.support.ports import broker_port

BrokerPeer = Literal["broker-5", "broker-5.2", "broker-4"]
Role = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]

# A broker registers every 10 s at the shortest; with these flags one that hangs is found a second after 20.
EXPIRY_SECONDS: Final = 20
FOUND_SOON: Final = ("--broker-expiry-seconds", str(EXPIRY_SECONDS), "--scan-interval-seconds", "1")

_MAIN: Final = "org.apache.rocketmq.broker.BrokerStartup"
_MEGABYTE: Final = 1 << 20

# A broker of a test has a few messages: its files are small, it stays on loopback, and whatever else fills the disk of
# the machine does not make it read-only.
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
    # a busy machine is no reason to turn messages away
    "waitTimeMillsInSendQueue": 10000,
    "osPageCacheBusyTimeOutMills": 10000,
    # the shortest that a broker takes; the default is 30 s
    "registerNameServerPeriod": 10000,
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": 4,
}
_DISK: Final = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "-XX:MaxDirectMemorySize=256m",
)
# 4.9 reads its logging from its home, 5 brings it along
_LOGBACK: Final = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/logs/rocketmqlogs/broker.log</file>
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class Broker(JavaProcess):
    """One broker process with a home and a store of its own.

    It is starting when the constructor returns, and serves once `booted()` does. It is registered with the NameServers
    at once or ten seconds later: if none of its connections to them is open yet when it boots, it skips the first time.
    Further settings are those of a broker.conf. Starting another one with the home and the port of one that ended is a
    restart: the store is there.
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
            "namesrvAddr": ";".join(self.name_servers),
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
        }
        lines = [f"{key}={value}\n" for key, value in {**_SMALL, **own, **settings}.items()]
        (home / "broker.conf").write_text("".join(lines), encoding="utf-8")

    @property
    def address(self) -> str:
        """Where clients reach it, as it says to the NameServers."""
        return f"127.0.0.1:{self.port}"

    def booted(self) -> Self:
        self.wait_for(r"The broker\[.*boot success", within=BOOT_SECONDS)
        return self

    def log(self, name: str = "broker.log") -> str:
        """What is in one of its log files, so far."""
        paths = sorted((self.home / "logs" / "rocketmqlogs").rglob(name))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


@contextmanager
def leaves(
    daemons: Sequence[Daemon], broker: Broker, reason: str, *, expiry_seconds: float = EXPIRY_SECONDS
) -> Iterator[None]:
    """Whatever is done inside makes the broker leave each of the daemons for this reason; ends once it has.

    One that is silent leaves after its expiry: how soon after it is a matter of how busy the machine is.
    """
    told = {"reason": reason, "broker_addr": broker.address}
    before = [len(daemon.lines("broker_evicted", **told)) for daemon in daemons]
    yield
    for daemon, count in zip(daemons, before, strict=True):
        exit_ = daemon.wait_for("broker_evicted", **told, count=count + 1)
        if reason == "silent":
            assert expiry_seconds < exit_["silent_ms"] / 1000
