"""NameServers that speak RocketMQ's protocol: ours, Apache's, rocketmq-rust's."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.loads import PIPELINED, PULLS, Load, Script, run
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon, data_directory, free_port
from benchmarks.harness.wire import (
    PULLED_BODY_BYTES,
    TOPIC_NAME,
    Wire,
    native_request,
    pulled_brokers,
    register,
    route_request,
    topics,
)
from benchmarks.peers.registry import Registry, responding
from benchmarks.speed.pulls import BROKERS, HEARTBEATS, STAYING
from namesrv_remoting.codes import RequestCode

# Apache's: what most run, and the newest on Maven Central in November 2026
APACHE_VERSIONS: Final = ("5.3.3", "5.5.0")
RUST_VERSION: Final = "1.0.0"
# What its start script hands to a Java of today, and what an operator gives it who has less to give.
HEAPS: Final[Mapping[str, Sequence[str]]] = {
    "4 GB": (
        *("-server", "-Xms4g", "-Xmx4g", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m"),
        *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
        *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"),
    ),
    "512 MB": ("-server", "-Xmx512m"),
}
_APACHE_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_ROUTE: Final = route_request(TOPIC_NAME % 0)
# rocketmq-rust names members that are null, too: 2,050 bytes for the same route
_MOST_TIMES: Final = 1.2
_WATCHED: Final = "TopicWatched"
_PROBED_SECONDS: Final = 1.0
_WAIT_MS: Final = 30_000
# longer than any TopicRouteData without the brokers that are watched
_LEAST_BYTES: Final = 500


class NameServer(Registry):
    """Any of them."""

    def __init__(self, bench: Bench, server: Server, wire: Wire) -> None:
        super().__init__(bench, server)
        # of all brokers: as long as it is open they live
        self._wire = wire

    def seed(self) -> None:
        """Register all brokers, which are unchanged from the second time on, for it may have forgotten them."""
        register(self._wire, pulled_brokers())
        size = len(self._wire.success(_ROUTE).body)
        if not PULLED_BODY_BYTES <= size <= _MOST_TIMES * PULLED_BODY_BYTES:
            raise BenchError(f"responses have bodies of {size} bytes, not of {PULLED_BODY_BYTES} as ours")
        register(self._wire, BROKERS)

    def pull_pipelined(self) -> Load:
        """Routes, with 8 requests in flight on each of 50 connections."""
        return run(self._bench, self.server, PULLS, *PIPELINED)

    def _fill(self) -> None:
        """Nothing: brokers are registered again each time."""

    def _pulls(self) -> Script:
        return PULLS

    def _heartbeats(self) -> Script:
        return HEARTBEATS

    def _watch(self) -> Script | None:
        """Its clients poll every 30 s."""
        return None


class OurNameServer(NameServer):
    """Ours, whose native clients may leave a request open until there is news."""

    def __init__(self, bench: Bench, server: Server, wire: Wire) -> None:
        super().__init__(bench, server, wire)
        # as many brokers as serve any other topic, so that the response is as large
        self._brokers = [
            replace(
                broker,
                name=f"watched-{broker.name}",
                addr=broker.addr.replace("127.0.0.1", "127.0.0.2"),
                # a first registration of one topic is refused: it might be an increment
                topics=topics(f"{_WATCHED}%d", 2),
            )
            for broker in pulled_brokers()
        ]

    def _watch(self) -> Script:
        """The first of the topic's brokers registers it with other queues."""
        register(self._wire, self._brokers)
        info = self._wire.info()
        known = {"boot_id": info["boot_id"], "since": info["revision"], "wait_ms": _WAIT_MS}
        watch = native_request(RequestCode.PULL_ROUTES, topics=[f"{_WATCHED}0"], **known)
        change = self._brokers[0].changed(read_queue_nums=4).json_frame()
        return Script([watch], "length", change=change, least_bytes=_LEAST_BYTES)


@contextmanager
def ours(bench: Bench, *flags: str) -> Iterator[Registry]:
    """Ours, until the block ends."""
    with daemon(bench, *flags, STAYING) as server, Wire(server) as wire:
        # the others count as started with their first response, ours with its log line before
        began = time.monotonic()
        wire.request(_ROUTE)
        after = server.listening_after_seconds + time.monotonic() - began
        yield OurNameServer(bench, replace(server, listening_after_seconds=after), wire)


@contextmanager
def apache(bench: Bench, lib: Path, heap: str) -> Iterator[Registry]:
    """Apache's NameServer with one of HEAPS and nothing on disk, until the block ends."""
    port = free_port()
    with data_directory("apache") as home:
        settings = home / "namesrv.properties"
        settings.write_text(f"bindAddress=127.0.0.1\nlistenPort={port}\n", encoding="ascii")
        # it writes its logs and its KV configuration below user.home
        properties = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
        command = [java(), *HEAPS[heap], *properties, "-cp", f"{lib}/*", _APACHE_MAIN, "-c", str(settings)]
        with _running(bench, f"Apache's ({heap})", command, port, home) as peer:
            yield peer


@contextmanager
def rust(bench: Bench, program: Path) -> Iterator[Registry]:
    """rocketmq-rust's NameServer with nothing on disk, until the block ends."""
    port = free_port()
    with data_directory("rust") as home:
        command = [
            *(str(program), "--listenPort", str(port), "--bindAddress", "127.0.0.1"),
            *("--rocketmqHome", str(home), "--kvConfigPath", str(home / "kv.json")),
        ]
        with _running(bench, "rocketmq-rust", command, port, home) as peer:
            yield peer


@contextmanager
def _running(bench: Bench, name: str, command: Sequence[str], port: int, home: Path) -> Iterator[NameServer]:
    with (
        responding(bench, name, command=command, port=port, is_responding=_is_responding, home=home) as server,
        Wire(server) as wire,
    ):
        yield NameServer(bench, server, wire)


def java() -> str:
    """The program on PATH. Raises BenchError."""
    found = shutil.which("java")
    if found is None:
        raise BenchError("no java on PATH")
    return found


def _is_responding(port: int) -> bool:
    with Wire(Server(0, port), _PROBED_SECONDS) as wire:
        try:
            wire.request(_ROUTE)
        except BenchError:
            return False
    return True
