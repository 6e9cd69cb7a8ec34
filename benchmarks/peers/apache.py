"""Starts and stops Apache's NameServer, as `servers.py` does ours: on the same core, on a free port."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.rocketmq import NameServer, is_answering, name_server
from benchmarks.peers.starting import Program, answering, data_directory, free_port, java
from benchmarks.rounds import Bench

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


@contextmanager
def apache(bench: Bench, lib: Path, heap: str) -> Iterator[NameServer]:
    """Apache's NameServer with one of HEAPS and nothing on disk, until the block ends.

    Raises:
        BenchError: it does not start.
    """
    port = free_port()
    with data_directory("apache") as home:
        settings = home / "namesrv.properties"
        settings.write_text(f"bindAddress=127.0.0.1\nlistenPort={port}\n", encoding="ascii")
        # it writes its logs and its KV configuration below user.home
        properties = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
        command = [java(), *HEAPS[heap], *properties, "-cp", f"{lib}/*", _MAIN, "-c", str(settings)]
        with (
            answering(bench, Program(f"Apache's ({heap})", command, port, is_answering, home)) as server,
            name_server(bench, server) as asked,
        ):
            yield asked
