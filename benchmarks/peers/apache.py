"""Starts and stops Apache's NameServer, as `servers.py` does ours: on the same core, on a free port."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.rocketmq import NameServer, name_server
from benchmarks.peers.starting import data_directory, environment, java, pinned
from benchmarks.rounds import Bench
from benchmarks.servers import watched

# what most run, and the newest on Maven Central in November 2026
VERSIONS: Final = ("5.3.3", "5.5.0")
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
def apache(bench: Bench, lib: Path, heap: str) -> Iterator[NameServer]:
    """Apache's NameServer with one of HEAPS and nothing on disk, until the block ends.

    Raises:
        BenchError: it does not start.
    """
    with data_directory("apache") as home:
        settings = home / "namesrv.properties"
        settings.write_text("bindAddress=127.0.0.1\nlistenPort=0\n", encoding="ascii")
        # it writes its logs and its KV configuration below user.home
        properties = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
        command = [*pinned(bench), java(), *HEAPS[heap], *properties, "-cp", f"{lib}/*", _MAIN]
        started = time.monotonic()
        process = subprocess.Popen(
            [*command, "-c", str(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env=environment(home),
        )
        with (
            watched(bench, f"Apache's ({heap})", process, apache_port, started) as server,
            name_server(bench, server) as asked,
        ):
            yield asked


def apache_port(line: str) -> int | None:
    """The port in the line that says that it listens; None for every other line."""
    found = _BOOTED.search(line)
    return int(found[1]) if found else None
