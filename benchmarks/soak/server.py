"""The server that is soaked: what its log and its metrics show, and what its tables hold."""

import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.abuse.others import metric, scraped
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon
from benchmarks.harness.wire import Wire, request, route_request
from benchmarks.soak.noise import EXPECTED_REFUSALS
from benchmarks.soak.verdict import Found, Sample
from namesrv_remoting.codes import RequestCode

# topic -> broker -> queues to read, queues to write
Routes = dict[str, dict[str, list[int]]]

# longer than that of the processes of brokers and clients
PATIENCE_SECONDS: Final = 700.0
_LOOK_SECONDS: Final = 0.25
# brokers with such names are frozen; no other one is silent
VICTIM: Final = "victim"


class SoakedServer:
    """A server, and its unexpected log lines."""

    def __init__(self, server: Server, log: "_Log") -> None:
        self._server = server
        self._log = log
        self.port = server.port

    def wire(self) -> Wire:
        """A connection to it."""
        return Wire(self._server, PATIENCE_SECONDS)

    def resident_at_rest(self, seconds: float) -> int:
        """The least memory that it has within this time: it gives back free memory now and then."""
        ends_at = time.monotonic() + seconds
        least = self._server.status_bytes()
        while time.monotonic() < ends_at:
            time.sleep(_LOOK_SECONDS)
            least = min(least, self._server.status_bytes())
        return least

    def sample(self, seconds: float, resident_bytes: int) -> Sample:
        """What its metrics show."""
        metrics = scraped(f"http://127.0.0.1:{self._server.http_port}")
        names = ("nameserver_allocated_blocks", "process_open_fds", "nameserver_tasks")
        return Sample(seconds, resident_bytes, *(metric(metrics, name) for name in names))

    def stop_for(self, seconds: float) -> None:
        """Stop it with SIGSTOP, and let it go on."""
        self._server.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._server.signal(signal.SIGCONT)

    def terminated(self) -> int:
        """End it, as a service manager does; its exit code. Raises BenchError."""
        self._log.is_stopping = True
        _, exit_code = self._server.terminated(PATIENCE_SECONDS)
        if exit_code is None:
            raise BenchError(f"the server does not end within {PATIENCE_SECONDS:g} s")
        return exit_code


class _Log:
    """Notes the lines of a log that nothing here explains."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self.is_stopping = False

    def line(self, line: str) -> None:
        """One line."""
        try:
            entry = json.loads(line)
        except ValueError:
            entry = {"level": "critical", "event": "not a log line"}
        if entry["level"] not in ("debug", "info") and not self._is_expected(entry):
            self._found.unexpected.append(line.rstrip())

    def _is_expected(self, entry: Mapping[str, Any]) -> bool:
        match entry["event"]:
            case "broker_evicted":
                return self.is_stopping or str(entry["broker_name"]).startswith(VICTIM)
            case "connection_refused":
                return entry["reason"] in EXPECTED_REFUSALS
        # an expiry that is so short; a server that was stopped, by us or for lack of processor time
        return entry["event"] in {"settings_warning", "event_loop_lagged"}


@contextmanager
def soaked(bench: Bench, flags: Sequence[str], found: Found) -> Iterator[SoakedServer]:
    """A server, until the block ends."""
    log = _Log(found)
    with daemon(bench, *flags, on_line=log.line) as server:
        yield SoakedServer(server, log)


# -- content of the tables ---------------------------------------------------------------------------------------------


def send_once(wire: Wire, count: int) -> None:
    """Send that many requests that are never repeated, about topics that do not exist."""
    for number in range(count):
        wire.request(route_request(f"unknown-{number}"))


def brokers(wire: Wire) -> set[str]:
    """The names of all live ones."""
    return {broker["broker_name"] for broker in wire.native(RequestCode.LIST_BROKERS)["brokers"]}


def topics(wire: Wire) -> set[str]:
    """The names of all that have a route."""
    return set(json.loads(wire.success(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)["topicList"])


def routes(wire: Wire, topics: Routes) -> Routes:
    """The queues of these topics; empty for one that has no route."""
    found = wire.native(RequestCode.PULL_ROUTES, topics=list(topics), observes=True)["routes"]
    return {
        topic: {
            each["broker_name"]: [each["read_queue_nums"], each["write_queue_nums"]] for each in route["queue_datas"]
        }
        if route
        else {}
        for topic, route in found.items()
    }
