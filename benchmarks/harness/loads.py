"""Runs the load generator load.c against a server, and reads its results."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.harness.build import program
from benchmarks.harness.figures import BenchError, Figure, Target, Unit, compared
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server
from benchmarks.harness.wire import PULLED_TOPICS, TOPIC_NAME, route_request
from namesrv_remoting.codes import SerializeType

# load.c exits 60 s after the time it was given, at the latest.
_PATIENCE_SECONDS: Final = 75
# One connection with one request in flight: its longest wait is the longest time for which the server's loop was busy
# with something else. Other load would keep the loop busy as well.
PROBE: Final = ("--connections", "1", "--depth", "1")
# as many requests in flight as 400 connections with one each
PIPELINED: Final = ("--connections", "50", "--depth", "8")


@dataclass(frozen=True, slots=True)
class Load:
    """Results of one run of load.c; all but the last are what it prints."""

    responses: int
    per_second: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    # the longest wait for a response, including responses that had not come at the end
    longest_ms: float
    # of responses to requests beside notifications; 0 without such requests
    beside_p99_ms: float
    # The server's processor time for each response, which does not depend on other processes on its core.
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Script:
    """Bytes that load.c sends on its connections, and how it recognizes responses."""

    requests: Sequence[bytes]
    framing: Literal["rocketmq", "length", "http2"] = "rocketmq"
    # Bytes that begin each connection, and how many frames the server then sends before the first request.
    greeting: bytes = b""
    acks: int = 0
    # A shorter response is a failure (not with the framing "rocketmq", which has response codes).
    least_bytes: int = 0
    # With --watch: the bytes that change what watchers wait for, sent on a connection of their own.
    change: bytes = b""
    # Bytes that end each connection.
    farewell: bytes = b""
    # With --watch: a request that another connection repeats until all watchers are notified.
    beside: bytes = b""

    def items(self) -> bytes:
        """The standard input of load.c."""
        items = (self.greeting, self.change, self.farewell, self.beside, *self.requests)
        return b"".join(len(item).to_bytes(4) + item for item in items)

    def flags(self) -> list[str]:
        """The options of load.c."""
        return ["--framing", self.framing, "--acks", str(self.acks), "--least", str(self.least_bytes)]


def pulls(count: int = PULLED_TOPICS, pattern: str = TOPIC_NAME, kind: SerializeType = SerializeType.JSON) -> Script:
    """Route requests for `count` topics in turn."""
    return Script([route_request(pattern.replace("%d", str(number)), kind) for number in range(count)])


PULLS: Final = pulls()


def run(bench: Bench, server: Server, script: Script = PULLS, *flags: str, seconds: int | None = None) -> Load:
    """Send a script's requests for some seconds, by default those of the bench's effort.

    Raises:
        BenchError: the load failed, or responses were failures.
    """
    lasts = bench.effort.seconds if seconds is None else seconds
    command = [str(program("load")), "--port", str(server.port), "--seconds", str(lasts), *script.flags(), *flags]
    cpu = server.cpu_seconds()
    try:
        done = subprocess.run(
            command, input=script.items(), capture_output=True, check=False, timeout=lasts + _PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"load: not done after {error.timeout:g} s") from error
    if done.returncode:
        # A signal ends a load that has not all of its connections in time.
        reason = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise BenchError(f"load {' '.join(command[1:])}: {reason}")
    printed = json.loads(done.stdout)
    return Load(**printed, cpu_us=(server.cpu_seconds() - cpu) * 1e6 / printed["responses"])


# The fields of a load that figures show.
Field = Literal["per_second", "p50_ms", "p99_ms", "beside_p99_ms", "longest_ms", "cpu_us"]


def values(name: Field, loads: Sequence[Load]) -> list[float]:
    """A field of the loads, round by round."""
    return [getattr(load, name) for load in loads]


def compared_loads(
    name: str, what: str, field: Field, subject_and_reference: Sequence[Sequence[Load]], target: Target | None = None
) -> Figure:
    """A figure with the ratios of a field of a subject's loads to the same field of its reference's loads."""
    units: dict[Field, Unit] = {"per_second": "per_second", "cpu_us": "microseconds"}
    samples = [values(field, loads) for loads in subject_and_reference]
    return compared(name, what, units.get(field, "milliseconds"), samples, target)
