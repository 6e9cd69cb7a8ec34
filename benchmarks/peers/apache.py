"""Starts, watches and stops Apache's NameServer, as `servers.py` does ours: on the same core, on a free port."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError
from benchmarks.rounds import Bench
from benchmarks.servers import ROOT, Server, watched

# whose jars are measured: the newest of those that `tests/interop/setup.sh` fetches
_PEERS: Final = ROOT / ".interop"
_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
# What its start script hands to a Java of today, and what somebody gives it who has less to give.
HEAPS: Final[Mapping[str, Sequence[str]]] = {
    "4 GB": (
        *("-server", "-Xms4g", "-Xmx4g", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m"),
        *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
        *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"),
    ),
    "512 MB": ("-server", "-Xmx512m"),
}
_BOOTED: Final = re.compile(r"The Name Server boot success\..* address \S*:([0-9]+)")


@contextmanager
def apache(bench: Bench, heap: str) -> Iterator[Server]:
    """Apache's NameServer with one of HEAPS and nothing on disk, until the block ends.

    Raises:
        BenchError: there is no Java, or nothing of it was fetched, or it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-apache-") as home:
        Path(home, "namesrv.properties").write_text("bindAddress=127.0.0.1\nlistenPort=0\n", encoding="ascii")
        command = [*_pinned(bench), _java(), *HEAPS[heap], *_java_arguments(home), "-c", f"{home}/namesrv.properties"]
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home, env=_environment(home)
        )
        with watched(bench, f"Apache's ({heap})", process, apache_port, started) as server:
            yield server


def apache_port(line: str) -> int | None:
    """The port in the line that says that it listens; None for every other line."""
    found = _BOOTED.search(line)
    return int(found[1]) if found else None


def version(lib: Path) -> str:
    """Which NameServer the jars of a directory are.

    Raises:
        BenchError: none.
    """
    for jar in lib.glob("rocketmq-namesrv-*.jar"):
        return jar.stem.removeprefix("rocketmq-namesrv-")
    raise BenchError(f"{lib} has no rocketmq-namesrv-*.jar")


def lib(peers: Path = _PEERS) -> Path:
    """The directory with the jars of the newest Apache NameServer that was fetched.

    Raises:
        BenchError: there is none.
    """
    found = {jar.parent for jar in peers.glob("*/lib/rocketmq-namesrv-*.jar")}
    if not found:
        raise BenchError(f"no rocketmq-namesrv-*.jar in {peers}/*/lib: sh tests/interop/setup.sh fetches it")
    return max(found, key=lambda directory: [int(number) for number in re.findall("[0-9]+", version(directory))])


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise BenchError("no java on PATH: Apache's NameServer needs Java 8 or newer")
    return java


def _java_arguments(home: str) -> Sequence[str]:
    # it writes its logs and its KV configuration below user.home
    return (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-cp", f"{lib()}/*", _MAIN)


def _pinned(bench: Bench) -> Sequence[str]:
    """From the first instruction on: a JVM counts the cores it may use, and starts threads, before anybody can move it.

    Raises:
        BenchError: there is a core for it, and no taskset that puts it there.
    """
    if bench.cores.server is None:
        return ()
    taskset = shutil.which("taskset")
    if taskset is None:
        raise BenchError("no taskset on PATH (util-linux): the JVM has to be on the core that ours is on")
    return (taskset, "--cpu-list", str(bench.cores.server))


def _environment(home: str) -> dict[str, str]:
    """Ours without settings of RocketMQ or of a JVM: what is measured is what the flags say."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETMQ_", "NAMESRV_"))}
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        kept.pop(name, None)
    return {**kept, "ROCKETMQ_HOME": home, "HOME": home}
