"""The server that is soaked: a process of its own, what it says of itself, and what it knows."""

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from benchmarks.abuse.bystanders import metric, scraped
from benchmarks.figures import BenchError
from benchmarks.seeding import Wire
from benchmarks.servers import Server, environment
from benchmarks.soak.noise import EXPECTED_REFUSALS
from benchmarks.soak.verdict import Found, Sample
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import BrokersAnswer, read_routes
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command

# topic -> broker -> queues to read, queues to write
Routes = dict[str, dict[str, list[int]]]

# longer than that of the processes that are asked
PATIENCE_SECONDS: Final = 700.0
_LOOK_SECONDS: Final = 0.25
# brokers with such names are frozen; nobody else is silent
VICTIM: Final = "victim"


class Daemon:
    """A `namesrv` with a data directory of its own, until the block ends."""

    def __init__(self, flags: Sequence[str], found: Found) -> None:
        self._found = found
        self._data = tempfile.TemporaryDirectory(prefix="namesrv-soak-")
        command = [sys.executable, "-m", "namesrv", *flags, f"--data-dir={self._data.name}"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
        self.port = 0
        self._http_port = 0
        self._listens = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listens.wait(PATIENCE_SECONDS) or not self.port:
            self.__exit__()
            raise BenchError("the server does not listen")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._data.cleanup()

    def _read(self) -> None:
        assert self._process.stderr is not None  # noqa: S101  # asked for above
        with self._process.stderr:
            for line in self._process.stderr:
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = {"level": "critical", "event": "not a log line"}
                if entry["event"] == "listening":
                    self.port, self._http_port = (
                        int(entry[kind][0].rpartition(":")[2]) for kind in ("addresses", "http")
                    )
                    self._listens.set()
                elif entry["level"] not in ("debug", "info") and not self._is_expected(entry):
                    self._found.unexpected.append(line.rstrip())
        self._listens.set()

    def _is_expected(self, entry: Mapping[str, Any]) -> bool:
        match entry["event"]:
            case "broker_evicted":
                return self._is_stopping or str(entry["broker_name"]).startswith(VICTIM)
            case "connection_refused":
                return entry["reason"] in EXPECTED_REFUSALS
        # an expiry that is so short; a server that was stopped, by us or for lack of processor time
        return entry["event"] in {"settings_warning", "event_loop_lagged"}

    def wire(self) -> Wire:
        """A connection to it."""
        return Wire(self._server(), PATIENCE_SECONDS)

    def resident_at_rest(self, seconds: float) -> int:
        """The least memory that it has within this time: what is free it gives back now and then."""
        server, ends_at = self._server(), time.monotonic() + seconds
        least = server.resident_bytes()
        while time.monotonic() < ends_at:
            time.sleep(_LOOK_SECONDS)
            least = min(least, server.resident_bytes())
        return least

    def _server(self) -> Server:
        return Server(self._process.pid, self.port, 0.0)

    def sample(self, seconds: float, resident_bytes: int) -> Sample:
        """What its metrics say."""
        metrics = scraped(f"http://127.0.0.1:{self._http_port}")
        return Sample(
            seconds,
            resident_bytes,
            metric(metrics, "nameserver_allocated_blocks"),
            metric(metrics, "process_open_fds"),
            metric(metrics, "nameserver_tasks"),
        )

    def stop_for(self, seconds: float) -> None:
        """Neither dead nor alive."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def stopped(self) -> int:
        """Tell it to end, as a service manager does; its exit code."""
        self._is_stopping = True
        self._process.terminate()
        try:
            return self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"the server does not end within {PATIENCE_SECONDS:g} s") from error


def ask_once(wire: Wire, count: int) -> None:
    """Ask that many questions that nobody repeats, about topics that nobody has."""
    for number in range(1, count + 1):
        fields = {"topic": f"unknown-{number}"}
        wire.ask(encode_command(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, number, ext_fields=fields)))


def brokers(wire: Wire) -> set[str]:
    """The names of all live ones."""
    answer = NATIVE.read_answer(BrokersAnswer, wire.ask_well(_native(RequestCode.LIST_BROKERS)).body)
    return {broker.broker_name for broker in answer.brokers}


def topics(wire: Wire) -> set[str]:
    """The names of all that have a route."""
    answer = wire.ask_well(encode_command(RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)))
    return set(json.loads(answer.body)["topicList"])


def routes(wire: Wire, topics: Routes) -> Routes:
    """The queues of these topics; none of one that has no route."""
    asked = NATIVE.encode({"topics": list(topics), "observes": True})
    found = read_routes(wire.ask_well(_native(RequestCode.PULL_ROUTES, asked)).body).routes
    return {
        topic: {}
        if route is None
        else {queue.broker_name: [queue.read_queue_nums, queue.write_queue_nums] for queue in route.queue_datas}
        for topic, route in found.items()
    }


def _native(code: int, body: bytes = b"") -> bytes:
    return encode_command(RemotingCommand(code, body=body, serialize_type=SerializeType.MSGPACK))
