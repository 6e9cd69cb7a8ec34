"""Probe: one connection with one request in flight, which shows how long a server's loop is busy with other work."""

import time
from pathlib import Path
from typing import Self

from benchmarks.harness.servers import Server
from benchmarks.harness.wire import Wire
from namesrv_remoting.command import RemotingCommand


class Probe:
    """Notes the times until a response; `send` has to be called again and again.

    The thread that calls `send` should be the only one of its process that works: another one may hold the interpreter
    lock while it has no processor, and meanwhile the server goes on with later work.
    """

    def __init__(self, server: Server, frame: bytes, patience_seconds: float = 30.0) -> None:
        self._server = server
        self._wire = Wire(server, patience_seconds)
        self._frame = frame
        # for each response the time on the clock
        self.waits_ms: list[float] = []
        # the most processor time of the server's loop, see `busy_seconds`
        self.longest_busy_ms = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def send(self) -> RemotingCommand:
        """Send one request, note the time until its response, and return the response. Raises BenchError."""
        began, waited, computed = time.monotonic(), _waited_seconds(), self._server.loop_seconds()
        response = self._wire.request(self._frame)
        computed, waited = self._server.loop_seconds() - computed, _waited_seconds() - waited
        took = time.monotonic() - began
        self.waits_ms.append(1000 * took)
        self.longest_busy_ms = max(self.longest_busy_ms, 1000 * busy_seconds(took, waited, computed))
        return response


def busy_seconds(took: float, waited: float, computed: float) -> float:
    """The most time for which a server's loop can have computed between a request and its response.

    `took` passed on the clock. For `waited`, the probe's thread was ready and had no processor: it had not sent the
    request yet, or had the response already, and the server went on with later work. `computed` is the processor time
    of the server's loop, later work included.
    """
    return min(took - waited, computed)


def _waited_seconds() -> float:
    """The time for which this thread has waited for a processor so far."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
