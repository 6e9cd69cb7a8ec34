"""The servers that are tortured: the commands that start them, and the brokers and clients that use them."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.rounds import Bench
from benchmarks.peers import etcd, rocketmq, zookeeper
from benchmarks.peers.fetching import jars
from benchmarks.torture.coordination import EtcdBroker, ZooKeeperBroker
from benchmarks.torture.load import EXPIRY_SECONDS, Broker
from benchmarks.torture.name_servers import RegisteredBroker
from benchmarks.torture.sessions import PORT

# name and address of each server
SERVERS: Final = {"ns1": "10.0.0.1", "ns2": "10.0.0.2", "ns3": "10.0.0.3"}
_HEAP: Final = "512 MB"
# RocketMQ's default (5 s) divided by 12: the time between two scans for silent brokers
_SCAN_SECONDS: Final = 0.5
# longest time for which a restarted server of ours waits for missing brokers, a twelfth of the default
_READINESS_SECONDS: Final = 45 / 12


@dataclass(frozen=True, slots=True)
class Peer:
    """A registry that is tortured."""

    label: str
    # Fetches the program. Raises BenchError.
    fetch: Callable[[Bench], Path]
    # program, home directory and address of a server -> the command that starts the server
    command: Callable[[Path, Path, str], list[str]]
    # the brokers that it knows, and their protocol
    broker: type[Broker]


def _ours(python: Path, home: Path, address: str) -> list[str]:
    return [
        *(str(python), "-m", "namesrv", "--listen-host", address, "--listen-port", str(PORT)),
        *("--http-listen", "", "--data-dir", str(home / "data"), "--log-format", "json"),
        *("--scan-interval-seconds", str(_SCAN_SECONDS), "--wait-for-service-seconds", str(_READINESS_SECONDS)),
    ]


def _apache(lib: Path, home: Path, address: str) -> list[str]:
    scan_ms = round(_SCAN_SECONDS * 1000)
    place = {"bindAddress": address, "listenPort": PORT}
    return rocketmq.apache_command(lib, _HEAP, home, **place, scanNotActiveBrokerInterval=scan_ms)


def _rust(program: Path, home: Path, address: str) -> list[str]:
    return rocketmq.rust_command(program, home, address, PORT, _SCAN_SECONDS)


def _zookeeper(lib: Path, home: Path, address: str) -> list[str]:
    # The server with the highest number leads when all start together: the first one, which has the faults.
    addresses = list(reversed(SERVERS.values()))
    data = home / "data"
    data.mkdir(exist_ok=True)
    (data / "myid").write_text(str(addresses.index(address)), encoding="utf-8")
    # Ticks as short as an expiry of 20 ticks needs; the limits are those of its sample, in seconds.
    settings = f"tickTime={EXPIRY_SECONDS * 1000 / 20:.0f}\ninitLimit=40\nsyncLimit=20\n"
    ensemble = "".join(f"server.{number}={each}:2888:3888\n" for number, each in enumerate(addresses))
    flags = ("-Xmx512m", "-Dzookeeper.preAllocSize=1024")
    return zookeeper.command(lib, home, address, PORT, settings + ensemble, *flags)


def _etcd(program: Path, home: Path, address: str) -> list[str]:
    name = next(name for name, each in SERVERS.items() if each == address)
    peers = {name: f"http://{each}:2380" for name, each in SERVERS.items()}
    return etcd.command(program, home, f"http://{address}:{PORT}", name, peers)


_NEWEST: Final = rocketmq.APACHE_VERSIONS[-1]
# by the name that --peer has
PEERS: Final[Mapping[str, Peer]] = {
    "ours": Peer("ours", lambda _: Path(sys.executable), _ours, RegisteredBroker),
    "apache": Peer(
        f"Apache's {_NEWEST}",
        partial(jars, name="apache", version=_NEWEST),
        _apache,
        RegisteredBroker,
    ),
    "rust": Peer(f"rocketmq-rust {rocketmq.RUST_VERSION}", rocketmq.rust_program, _rust, RegisteredBroker),
    "zookeeper": Peer(
        f"ZooKeeper {zookeeper.VERSION}, 3 servers",
        partial(jars, name="zookeeper", version=zookeeper.VERSION),
        _zookeeper,
        ZooKeeperBroker,
    ),
    "etcd": Peer(f"etcd {etcd.VERSION}, 3 servers", etcd.program, _etcd, EtcdBroker),
}
