"""Soak of a server with 1,000 agents and 1,000 clients, for an hour.

Phases of churn and of rest alternate. During churn brokers leave, die, freeze and return, topics change, clients are
replaced, strangers send garbage, and the server itself is stopped for a moment. At rest the tables and the routes of
all clients must match the brokers, and the server's resources are measured. The exit code is 1 if a bound is broken, 2
if the soak could not be measured.
"""

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.abuse.well_behaved import metric, scraped
from benchmarks.harness.command import Command, report
from benchmarks.harness.conditions import Conditions
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench, Repeating, raise_file_limit
from benchmarks.harness.servers import Server, daemon
from benchmarks.harness.wire import Wire, request, route_request
from benchmarks.soak.brokers import Brokers
from benchmarks.soak.clients import Clients, Routes
from benchmarks.soak.noise import EXPECTED_REFUSALS, Strangers
from benchmarks.soak.observations import Observations, Sample
from benchmarks.soak.workers import PATIENCE_SECONDS, Crew
from namesrv_remoting.codes import RequestCode

# name of brokers whose process is killed and frozen; no other broker may be evicted for silence
_VICTIM: Final = "victim"
_VICTIMS_SHARE: Final = 0.06
_LOOK_SECONDS: Final = 0.25
_STRANGERS_A_SECOND: Final = 20


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations and intervals; in full a sixth of the defaults, so that an hour has the heartbeats of six hours."""

    churn_seconds: float
    heartbeat_seconds: float
    expiry_seconds: float
    scan_seconds: float
    poll_seconds: float
    # duration of a stop of the server
    stopped_seconds: float
    # Different requests that are sent first, as many as the server caches; later growth is not that of the cache.
    requests: int
    # time at rest before memory is measured; the server returns free memory to the system every 15 s
    rest_seconds: float


FULL: Final = Durations(40.0, 5.0, 20.0, 2.0, 5.0, 5.0, 32_768, 18.0)
SHORT: Final = Durations(8.0, 1.0, 6.0, 0.5, 0.5, 1.0, 1_000, 0.0)


def main(arguments: Sequence[str]) -> int:
    """Soak a server."""
    command = Command("soak", "Soak a NameServer on loopback.", {})
    add = command.parser.add_argument
    add("--minutes", type=float, default=60.0, help="duration (60)")
    add("--agents", type=int, default=1000, metavar="N", help="brokers (1000)")
    add("--clients", type=int, default=1000, metavar="N", help="clients (1000)")
    add("--short", action="store_true", help="shorter phases and intervals")
    options = command.parse(arguments)
    raise_file_limit()
    observed, conditions = Observations(), Conditions.now()
    try:
        with ExitStack() as stack:
            _Soak(options, observed, stack).run()
    except (BenchError, OSError) as error:
        _say(f"cannot be measured: {error}")
        return 2
    for line in (*observed.untrue, *observed.unexpected):
        _say(line)
    figures = observed.figures()
    report(options, conditions.members(), {"Soak": figures})
    return int(any(figure.verdict == "missed" for figure in figures))


class _Soak:
    """The server and its peers, and the alternation of churn and rest."""

    def __init__(self, options: argparse.Namespace, observed: Observations, stack: ExitStack) -> None:
        times = self._durations = SHORT if options.short else FULL
        self._seconds = options.minutes * 60
        self._observations = observed
        flags = (f"--broker-expiry-seconds={times.expiry_seconds}", f"--scan-interval-seconds={times.scan_seconds}")
        self._server: Server = stack.enter_context(daemon(Bench(), *flags))
        port, victims = self._server.port, max(1, round(options.agents * _VICTIMS_SHARE))
        intervals = {"heartbeat_seconds": times.heartbeat_seconds, "expiry_seconds": times.expiry_seconds}
        numbers = range(options.agents)
        self._brokers = stack.enter_context(Crew(partial(Brokers, port, "broker", numbers[victims:], **intervals)))
        self._victims = stack.enter_context(Crew(partial(Brokers, port, _VICTIM, numbers[:victims], **intervals)))
        self._clients = stack.enter_context(Crew(partial(Clients, port, options.clients, times.poll_seconds)))
        self._strangers = Strangers(port)
        for crew in (self._brokers, self._victims, self._clients):
            crew.response()
        _say(f"{options.agents:,} agents and {options.clients:,} clients have started")

    def run(self) -> None:
        """Alternate churn and rest until the time is over and there are two samples, which growth needs."""
        began = time.monotonic()
        with Wire(self._server, PATIENCE_SECONDS) as wire:
            for number in range(self._durations.requests):
                wire.request(route_request(f"unknown-{number}"))
        faults = self._faults()
        while len(self._observations.samples) < 2 or time.monotonic() - began < self._seconds:
            self._churn(*next(faults))
            self._compare()
            resident = self._resident_at_rest()
            self._observations.samples.append(self._sample(time.monotonic() - began, resident))
            _say(
                f"{(time.monotonic() - began) / 60:5.1f} min  {resident / 1e6:.1f} MB  {self._observations.samples[-1]}"
            )
        until_now = len(self._server.log())
        _, self._observations.exit_code = self._server.terminated(PATIENCE_SECONDS)
        self._observations.unexpected += [
            str(entry)
            for number, entry in enumerate(self._server.log())
            if not _is_expected(entry, is_stopping=number >= until_now)
        ]

    # -- churn ---------------------------------------------------------------------------------------------------------

    def _churn(self, name: str, fault: Callable[[], None]) -> None:
        """Change brokers and clients for a while, with one fault meanwhile."""
        seconds = self._durations.churn_seconds
        with Repeating(self._strangers.connect, at_most=_STRANGERS_A_SECOND):
            for crew in (self._brokers, self._clients):
                crew.command("churn", seconds)
            fault()
            self._observations.done[name] += 1
            for crew in (self._brokers, self._clients):
                self._observations.done += crew.response(seconds)
        self._observations.done["strangers"] = self._strangers.connections

    def _faults(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """All faults in random order, again and again."""
        expired_seconds = self._durations.expiry_seconds + 2 * self._durations.scan_seconds
        faults: dict[str, Callable[[], None]] = {
            "killed": partial(self._return_after, self._victims.kill),
            "left": partial(self._return_after, self._victims.leave),
            "frozen": partial(_freeze, self._victims.send, expired_seconds),
            "server stopped": partial(_freeze, self._server.signal, self._durations.stopped_seconds),
        }
        chance = random.Random("faults")
        while True:
            yield from chance.sample(list(faults.items()), len(faults))

    def _return_after(self, end: Callable[[], None]) -> None:
        end()
        self._victims.start()
        self._victims.response()

    # -- truth ---------------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Let all peers come to rest, and compare the tables and the clients' routes with the brokers' topics."""
        topics_of: dict[str, dict[str, list[int]]] = {}
        for crew in (self._brokers, self._victims):
            crew.command("settle")
            topics_of |= crew.response()
        routes: dict[str, dict[str, list[int]]] = {}
        for broker, topics in topics_of.items():
            for topic, queues in topics.items():
                routes.setdefault(topic, {})[broker] = queues
        self._observations.untrue += self._untrue(set(topics_of), routes)
        self._clients.command("settle", routes)
        wrong = self._clients.response()
        self._observations.untrue += [f"{count} clients' route of {topic}" for topic, count in wrong.items()]

    def _untrue(self, brokers: set[str], routes: Routes) -> list[str]:
        """Differences between tables and brokers; they may last until the next heartbeat of an evicted broker."""
        gives_up_at = time.monotonic() + PATIENCE_SECONDS
        with Wire(self._server, PATIENCE_SECONDS) as wire:
            while True:
                untrue = [
                    *(f"broker {name}" for name in sorted(_brokers(wire) ^ brokers)),
                    *(f"topic {name}" for name in sorted(_topics(wire) ^ routes.keys())),
                    *(f"route of {name}" for name, route in _routes(wire, routes).items() if route != routes[name]),
                ]
                if not untrue or time.monotonic() > gives_up_at:
                    return untrue
                time.sleep(self._durations.scan_seconds)

    # -- the server ----------------------------------------------------------------------------------------------------

    def _resident_at_rest(self) -> int:
        """The least resident memory during the rest, in which the server returns free memory to the system."""
        ends_at = time.monotonic() + self._durations.rest_seconds
        least = self._server.status_bytes()
        while time.monotonic() < ends_at:
            time.sleep(_LOOK_SECONDS)
            least = min(least, self._server.status_bytes())
        return least

    def _sample(self, seconds: float, resident_bytes: int) -> Sample:
        metrics = scraped(f"http://127.0.0.1:{self._server.http_port}")
        descriptors, tasks = (metric(metrics, name) for name in ("process_open_fds", "nameserver_tasks"))
        return Sample(seconds, resident_bytes, descriptors, tasks)


def _is_expected(entry: dict[str, Any], *, is_stopping: bool) -> bool:
    """True for a log entry below a warning, or one that a fault of the soak explains."""
    match entry["event"]:
        case "broker_evicted":
            expected = is_stopping or str(entry["broker_name"]).startswith(_VICTIM)
        case "connection_refused":
            expected = entry["reason"] in EXPECTED_REFUSALS
        case event:
            # Warnings of the short expiry, and of a loop that was late because the server had been stopped.
            expected = event in {"settings_warning", "event_loop_lagged"}
    return expected or entry["level"] in ("debug", "info")


def _freeze(send: Callable[[signal.Signals], None], seconds: float) -> None:
    send(signal.SIGSTOP)
    time.sleep(seconds)
    send(signal.SIGCONT)


def _brokers(wire: Wire) -> set[str]:
    """The names of all live brokers."""
    return {broker["broker_name"] for broker in wire.native(RequestCode.LIST_BROKERS)["brokers"]}


def _topics(wire: Wire) -> set[str]:
    """The names of all topics that have a route."""
    return set(json.loads(wire.success(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)["topicList"])


def _routes(wire: Wire, topics: Routes) -> Routes:
    """The queues of these topics; empty for one that has no route."""
    routes = wire.native(RequestCode.PULL_ROUTES, topics=list(topics), observes=True)["routes"]
    return {
        topic: {
            each["broker_name"]: [each["read_queue_nums"], each["write_queue_nums"]]
            for each in (route or {}).get("queue_datas", ())
        }
        for topic, route in routes.items()
    }


def _say(text: str) -> None:
    print(f"soak: {text}", file=sys.stderr, flush=True)
