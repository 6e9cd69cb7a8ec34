"""The servers that are tortured: the commands that start them, and the brokers and clients that use them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.rounds import Bench
from benchmarks.peers import etcd, rocketmq, zookeeper
from benchmarks.peers.fetching import jars
from benchmarks.peers.peers import rust_program
from benchmarks.torture.coordination import Etcd, EtcdBroker, ZooKeeper, ZooKeeperBroker
from benchmarks.torture.load import EXPIRY_SECONDS, Broker
from benchmarks.torture.name_servers import RegisteredBroker, RocketMQ
from benchmarks.torture.sessions import Dialect, Place

# name and address of each server
SERVERS: Final = {"ns1": "10.0.0.1", "ns2": "10.0.0.2", "ns3": "10.0.0.3"}
_PORT: Final = RocketMQ.port
_HEAP: Final = "512 MB"
# RocketMQ's default (5 s) divided by 12: the time between two scans for silent brokers
_SCAN_SECONDS: Final = 0.5
# longest time for which a restarted server of ours waits for missing brokers, a twelfth of the default
_READINESS_SECONDS: Final = 45 / 12

# home directory and address of a server -> the command that starts the server
ServerCommand = Callable[[Path, str], list[str]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A registry that is tortured."""

    label: str
    # Fetches the program and returns its command. Raises AbsentError.
    fetch: Callable[[Bench], ServerCommand]
    dialect: Dialect[Any]
    broker: Callable[[int, Place, Sequence[str]], Broker]


def _ours(bench: Bench) -> ServerCommand:
    bench.progress("ours needs nothing")

    def command(home: Path, address: str) -> list[str]:
        return [
            *(sys.executable, "-m", "namesrv", "--listen-host", address, "--listen-port", str(_PORT)),
            *("--http-listen", "", "--data-dir", str(home / "data"), "--log-format", "json"),
            *("--scan-interval-seconds", str(_SCAN_SECONDS), "--wait-for-service-seconds", str(_READINESS_SECONDS)),
        ]

    return command


def _apache(bench: Bench) -> ServerCommand:
    lib = jars(bench, "apache", _NEWEST)

    def command(home: Path, address: str) -> list[str]:
        scan_ms = round(_SCAN_SECONDS * 1000)
        place = {"bindAddress": address, "listenPort": _PORT}
        return rocketmq.apache_command(lib, _HEAP, home, **place, scanNotActiveBrokerInterval=scan_ms)

    return command


def _rust(bench: Bench) -> ServerCommand:
    program = rust_program(bench)

    def command(home: Path, address: str) -> list[str]:
        settings = home / "namesrv.toml"
        # Without TLS rocketmq-rust listens on loopback addresses only, unless the second line allows other addresses.
        settings.write_text(
            f"scanNotActiveBrokerInterval = {_SCAN_SECONDS * 1000:.0f}\nallowInsecurePublicListener = true\n"
            f'rocketmqHome = "{home}"\nkvConfigPath = "{home}/kv.json"\nconfigStorePath = "{home}/store.properties"\n',
            encoding="utf-8",
        )
        place = ("--listenPort", str(_PORT), "--bindAddress", address)
        return [str(program), "--configFile", str(settings), *place]

    return command


def _zookeeper(bench: Bench) -> ServerCommand:
    lib = jars(bench, "zookeeper", zookeeper.VERSION)

    def command(home: Path, address: str) -> list[str]:
        # The server with the highest number leads when all start together: the first one, which has the faults.
        addresses = list(reversed(SERVERS.values()))
        data = home / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(str(addresses.index(address)), encoding="utf-8")
        settings = home / "zoo.cfg"
        # Ticks as short as an expiry of 20 ticks needs; the limits are those of its sample, in seconds.
        settings.write_text(
            f"tickTime={EXPIRY_SECONDS * 1000 / 20:.0f}\ninitLimit=40\nsyncLimit=20\ndataDir={data}\n"
            f"clientPort={ZooKeeper.port}\nclientPortAddress={address}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            + "".join(f"server.{number}={each}:2888:3888\n" for number, each in enumerate(addresses)),
            encoding="utf-8",
        )
        flags = ("-Xmx512m", "-Dzookeeper.preAllocSize=1024")
        return [rocketmq.java(), *flags, "-cp", f"{lib}/*", zookeeper.ENSEMBLE_MAIN, str(settings)]

    return command


def _etcd(bench: Bench) -> ServerCommand:
    program = etcd.program(bench)

    def command(home: Path, address: str) -> list[str]:
        client, peer = f"http://{address}:{Etcd.port}", f"http://{address}:2380"
        cluster = ",".join(f"{name}=http://{each}:2380" for name, each in SERVERS.items())
        name = next(name for name, each in SERVERS.items() if each == address)
        return [
            *(str(program), "--name", name, "--data-dir", str(home / "data"), "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster),
        ]

    return command


_NEWEST: Final = rocketmq.APACHE_VERSIONS[-1]
# by the name that --peer has
PEERS: Final[Mapping[str, Peer]] = {
    "ours": Peer("ours", _ours, RocketMQ(), RegisteredBroker),
    "apache": Peer(f"Apache's {_NEWEST}", _apache, RocketMQ(), RegisteredBroker),
    "rust": Peer(f"rocketmq-rust {rocketmq.RUST_VERSION}", _rust, RocketMQ(), RegisteredBroker),
    "zookeeper": Peer(f"ZooKeeper {zookeeper.VERSION}, 3 servers", _zookeeper, ZooKeeper(), ZooKeeperBroker),
    "etcd": Peer(f"etcd {etcd.VERSION}, 3 servers", _etcd, Etcd(), EtcdBroker),
}
