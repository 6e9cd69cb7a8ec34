"""The web console as a process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Program, Server, data_directory, printed_ports, started

# The number of NameServers behind the console.
SERVERS: Final = 3
# The longest wait for the console or the browser.
PATIENCE_SECONDS: Final = 60.0


@contextmanager
def console_of(bench: Bench, servers: list[Server]) -> Iterator[Server]:
    """A console of these servers, on a free port."""
    named = [word for server in servers for word in ("--server", server.address)]
    command = [sys.executable, "-m", "namesrv_console", "--listen", "127.0.0.1:0", *named]
    ports = printed_ports(r"http://127\.0\.0\.1:(\d+)/")
    with (
        data_directory("console") as directory,
        started(bench, Program("namesrv-console", command, ports, directory)) as console,
    ):
        yield console
