"""NameServers with RocketMQ's protocol: ours, Apache's and rocketmq-rust's."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.loads import PULLS, Script
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon
from benchmarks.harness.wire import (
    PULLED_BODY_BYTES,
    TOPIC_NAME,
    Wire,
    pulled_brokers,
    register,
    route_request,
    topics,
)
from benchmarks.peers.fetching import INTO, fetched
from benchmarks.peers.registry import Registry, responding
from benchmarks.speed.pulls import BROKERS, HEARTBEATS

# a widespread version, and the newest on Maven Central in November 2026
APACHE_VERSIONS: Final = ("5.3.3", "5.5.0")
RUST_VERSION: Final = "1.0.0"
# options of its start script on current Java versions, and a smaller heap
_HEAPS: Final[Mapping[str, Sequence[str]]] = {
    "4 GB": (
        *("-server", "-Xms4g", "-Xmx4g", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m"),
        *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
        *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"),
    ),
    "512 MB": ("-server", "-Xmx512m"),
}
_APACHE_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
PULL: Final = route_request(TOPIC_NAME % 0)
# largest response, relative to ours: rocketmq-rust also sends members that are null (2,050 bytes)
_MOST_TIMES: Final = 1.2
_WATCHED: Final = "TopicWatched"
_PROBED_SECONDS: Final = 1.0
# more bytes than a TopicRouteData without brokers has
_LEAST_BYTES: Final = 500


def _seed(brokers: Wire) -> None:
    """Register all brokers; later calls register them again, because they may have expired."""
    register(brokers, pulled_brokers())
    size = len(brokers.success(PULL).body)
    if not PULLED_BODY_BYTES <= size <= _MOST_TIMES * PULLED_BODY_BYTES:
        raise BenchError(f"responses have bodies of {size} bytes, not of {PULLED_BODY_BYTES} as ours")
    register(brokers, BROKERS)


def _watch(brokers: Wire) -> Script:
    """Watches of a topic, and a registration of its first broker with another number of queues."""
    # The watched topic has as many brokers as any other topic, so that its route is as large.
    watched = [
        replace(
            broker,
            name=f"watched-{broker.name}",
            addr=broker.addr.replace("127.0.0.1", "127.0.0.2"),
            # Two topics, since a first registration of one topic is refused: it might be an increment.
            topics=topics(f"{_WATCHED}%d", 2),
        )
        for broker in pulled_brokers()
    ]
    register(brokers, watched)
    watch = brokers.watch_frame([f"{_WATCHED}0"])
    change = watched[0].changed(read_queue_nums=4).json_frame()
    return Script([watch], "length", change=change, least_bytes=_LEAST_BYTES)


@contextmanager
def ours(bench: Bench, *flags: str) -> Iterator[Registry]:
    """Our NameServer, which can hold back the response to a native pull until a route changes."""
    with daemon(bench, *flags) as server, Wire(server) as brokers:
        # The start ends with the first response, as for other peers; the log line comes earlier.
        began = time.monotonic()
        brokers.request(PULL)
        after = server.listening_after_seconds + time.monotonic() - began
        responding_server = replace(server, listening_after_seconds=after)
        yield Registry(responding_server, partial(_seed, brokers), PULLS, HEARTBEATS, partial(_watch, brokers))


def apache(bench: Bench, lib: Path, heap: str, port: int = 0) -> AbstractContextManager[Registry]:
    """Apache's NameServer with one of _HEAPS and an empty data directory, until the block ends."""

    def command(home: Path, port: int) -> list[str]:
        return apache_command(lib, heap, home, bindAddress="127.0.0.1", listenPort=port)

    return _running(bench, f"Apache's ({heap})", command, port)


def apache_command(lib: Path, heap: str, home: Path, **settings: object) -> list[str]:
    """The command of Apache's NameServer, whose settings are written to a file in its home."""
    path = home / "namesrv.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="ascii")
    # Logs and KV configuration are written below user.home.
    properties = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
    return ["java", *_HEAPS[heap], *properties, "-cp", f"{lib}/*", _APACHE_MAIN, "-c", str(path)]


def rust_program(bench: Bench) -> Path:
    """rocketmq-rust's program, from its crate. Raises BenchError."""
    crate = "rocketmq-namesrv"
    command = ["cargo", "install", "--locked", "--quiet", "--root", INTO, "--version", RUST_VERSION, crate]
    return fetched(bench, f"{crate}-{RUST_VERSION}", ["cargo", "cc"], command) / "bin" / "rocketmq-namesrv-rust"


def rust(bench: Bench, program: Path, port: int = 0) -> AbstractContextManager[Registry]:
    """rocketmq-rust's NameServer with an empty data directory, until the block ends."""
    return _running(bench, "rocketmq-rust", lambda home, free: rust_command(program, home, "127.0.0.1", free), port)


def rust_command(program: Path, home: Path, address: str, port: int, scan_seconds: float = 5.0) -> list[str]:
    """The command of rocketmq-rust's NameServer, whose settings are written to a file in its home."""
    settings = home / "namesrv.toml"
    # Without TLS rocketmq-rust listens on loopback addresses only, unless the second line allows other addresses.
    settings.write_text(
        f"scanNotActiveBrokerInterval = {scan_seconds * 1000:.0f}\nallowInsecurePublicListener = true\n"
        f'rocketmqHome = "{home}"\nkvConfigPath = "{home}/kv.json"\nconfigStorePath = "{home}/store.properties"\n',
        encoding="utf-8",
    )
    return [str(program), "--configFile", str(settings), "--listenPort", str(port), "--bindAddress", address]


@contextmanager
def _running(bench: Bench, name: str, command: Callable[[Path, int], list[str]], port: int = 0) -> Iterator[Registry]:
    with responding(bench, name, command, _is_responding, port) as server, Wire(server) as brokers:
        # RocketMQ's clients poll.
        yield Registry(server, partial(_seed, brokers), PULLS, HEARTBEATS)


def _is_responding(port: int) -> bool:
    with Wire(Server(0, port), _PROBED_SECONDS) as wire:
        try:
            wire.request(PULL)
        except BenchError:
            return False
    return True
