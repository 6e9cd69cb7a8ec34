"""Soak of a server with 1,000 agents and 1,000 clients, for an hour.

Phases of churn and of rest alternate. During churn brokers leave, die, freeze and return, topics change, clients are
replaced, strangers send garbage, and the server itself is stopped for a moment. At rest the tables and the routes of
all clients must match the brokers, and the server's resources are measured. The exit code is 1 if a bound is broken, 2
if the soak could not be measured.
"""

import asyncio
import json
import logging
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from benchmarks.harness.build import ROOT
from benchmarks.harness.command import Command, judged, measure_and_report
from benchmarks.harness.figures import BenchError, Figure
from benchmarks.harness.rounds import Bench, raise_file_limit
from benchmarks.harness.servers import Server, daemon, expiring
from benchmarks.harness.wire import Broker, Wire, request
from benchmarks.soak.observations import Observations, Sample
from benchmarks.soak.peers import (
    EXPECTED_REFUSALS,
    PATIENCE_SECONDS,
    VICTIM,
    Brokers,
    Clients,
    Queues,
    Routes,
    Strangers,
)
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_runtime import loops

_VICTIMS_SHARE: Final = 0.06
_LOOK_SECONDS: Final = 0.25
_CHANGES_A_SECOND: Final = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of peers, durations and intervals.

    Intervals are a sixth of the defaults in full, so that an hour has the heartbeats of six hours.
    """

    agents: int
    clients: int
    churn_seconds: float
    heartbeat_seconds: float
    expiry_seconds: float
    scan_seconds: float
    poll_seconds: float
    # duration of a stop of the server
    stopped_seconds: float
    # Heartbeats of agents that have ended, sent first, as many as the server remembers; later growth is not that of the
    # memory for requests, which heartbeats of new agents would fill for hours.
    heartbeats: int
    # time at rest before memory is measured; the server returns free memory to the system every 15 s
    rest_seconds: float


FULL: Final = Plan(1_000, 1_000, 40.0, 5.0, 20.0, 2.0, 5.0, 5.0, 32_768, 18.0)
SHORT: Final = Plan(40, 40, 8.0, 1.0, 6.0, 0.5, 0.5, 1.0, 1_000, 0.0)


def main(arguments: Sequence[str]) -> int:
    """Soak a server."""
    command = Command("soak", "Soak a NameServer on loopback.", {})
    command.add_results()
    add = command.parser.add_argument
    add("--minutes", type=float, default=60.0, help="duration (60)")
    add("--short", action="store_true", help="fewer peers, shorter phases and intervals")
    options = command.parse(arguments)
    plan, seconds = SHORT if options.short else FULL, options.minutes * 60
    subjects = {"soak": lambda bench: _observed(bench, plan, seconds).figures()}
    figures, is_complete = measure_and_report(Bench(), subjects, options, dict)
    return judged(figures, is_complete=is_complete)


def soaked(minutes: int) -> list[Figure]:
    """For the scoreboard: the figures of a soak of the usual size."""
    return _observed(Bench(), FULL, minutes * 60).figures()


def _observed(bench: Bench, plan: Plan, seconds: float) -> Observations:
    raise_file_limit()
    # Without warnings of late heartbeats and of a stopped server, which the faults cause.
    logging.disable(logging.WARNING)
    observed = Observations()
    try:
        with (
            daemon(bench, *expiring(plan.expiry_seconds, plan.scan_seconds)) as server,
            _Victims(server, plan) as victims,
        ):
            loops.run(partial(_Soak(server, victims, plan, observed).run, seconds))
    finally:
        logging.disable(logging.NOTSET)
    for line in (*observed.untrue, *observed.unexpected):
        _say(line)
    return observed


class _Victims:
    """The process of the victims, which is killed when the block ends."""

    def __init__(self, server: Server, plan: Plan) -> None:
        self.count = round(plan.agents * _VICTIMS_SHARE)
        arguments = (server.address, self.count, plan.heartbeat_seconds, plan.expiry_seconds)
        self._command = [sys.executable, "-m", "benchmarks.soak.peers", *map(str, arguments)]
        # the topics of each victim
        self.topics: dict[str, Queues] = {}
        self._process = self._started()

    def _started(self) -> "subprocess.Popen[str]":
        """A new process, once all of its brokers are registered. Raises BenchError."""
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise BenchError("the process of the victims has ended")
        self.topics = json.loads(line)
        return process

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def restart(self, number: signal.Signals) -> None:
        """End the process with a signal, and start another. Raises BenchError."""
        self._end(number)
        self._process = self._started()

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        with self._process:
            self._process.wait(PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGKILL)


class _Soak:
    """The server and its peers, and the alternation of churn and rest."""

    def __init__(self, server: Server, victims: _Victims, plan: Plan, observed: Observations) -> None:
        self._server = server
        self._victims = victims
        self._plan = plan
        self._observations = observed
        intervals = {"heartbeat_seconds": plan.heartbeat_seconds, "expiry_seconds": plan.expiry_seconds}
        self._brokers = Brokers(server.address, "broker", **intervals)
        self._clients = Clients(server.address, plan.poll_seconds)
        self._strangers = Strangers(server.port)

    async def run(self, least_seconds: float) -> None:
        """Alternate churn and rest until the time is over and there are two samples, which growth needs."""
        plan, samples = self._plan, self._observations.samples
        await self._brokers.start(range(self._victims.count, plan.agents))
        await self._clients.start(plan.clients)
        _say(f"{plan.agents:,} agents and {plan.clients:,} clients have started")
        began = time.monotonic()
        await asyncio.to_thread(self._send_old_heartbeats)
        faults = self._faults()
        while len(samples) < 2 or time.monotonic() - began < least_seconds:
            await self._churn(*next(faults))
            await self._compare()
            resident = await self._resident_at_rest()
            seconds = time.monotonic() - began
            samples.append(await asyncio.to_thread(self._sample, seconds, resident))
            _say(f"{seconds / 60:5.1f} min  {resident / 1e6:.1f} MB  {samples[-1]}")
        until_now = len(self._server.log())
        _, self._observations.exit_code = await asyncio.to_thread(self._server.terminated, PATIENCE_SECONDS)
        self._observations.unexpected += [
            str(entry)
            for number, entry in enumerate(self._server.log())
            if not _is_expected(entry, is_stopping=number >= until_now)
        ]
        await asyncio.gather(self._brokers.stop(), self._clients.stop())

    def _send_old_heartbeats(self) -> None:
        """Send heartbeats as long as those of the agents; route requests would take half of the memory."""
        with Wire(self._server, PATIENCE_SECONDS) as wire:
            for number in range(self._plan.heartbeats):
                addr = f"10.1.{number // 250}.{number % 250}:10911"
                broker = Broker(f"ended-{number:09}", addr, agent_id=f"{number:016x}")
                wire.request(broker.heartbeat(SerializeType.MSGPACK))

    # -- churn ---------------------------------------------------------------------------------------------------------

    async def _churn(self, name: str, fault: Callable[[], Awaitable[None]]) -> None:
        """Change brokers and clients for a while, with one fault meanwhile."""
        ends_at = time.monotonic() + self._plan.churn_seconds
        async with asyncio.TaskGroup() as tasks:
            for change in (self._brokers.change, self._clients.change, self._strangers.change):
                tasks.create_task(self._repeat(change, ends_at))
            await fault()
        self._observations.done[name] += 1

    async def _repeat(self, change: Callable[[], Awaitable[str]], ends_at: float) -> None:
        while time.monotonic() < ends_at:
            self._observations.done[await change()] += 1
            await asyncio.sleep(1 / _CHANGES_A_SECOND)

    def _faults(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """All faults in random order, again and again."""
        plan, restart = self._plan, self._victims.restart
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "killed": partial(asyncio.to_thread, restart, signal.SIGKILL),
            "left": partial(asyncio.to_thread, restart, signal.SIGTERM),
            "frozen": partial(_freeze, self._victims.send, plan.expiry_seconds + 2 * plan.scan_seconds),
            "server stopped": partial(_freeze, self._server.signal, plan.stopped_seconds),
        }
        chance = random.Random("faults")
        while True:
            yield from chance.sample(list(faults.items()), len(faults))

    # -- truth ---------------------------------------------------------------------------------------------------------

    async def _compare(self) -> None:
        """Let all peers come to rest, and compare the tables and the clients' routes with the brokers' topics."""
        topics_of = {**self._victims.topics, **await self._brokers.settle()}
        routes: dict[str, dict[str, list[int]]] = {}
        for broker, topics in topics_of.items():
            for topic, queues in topics.items():
                routes.setdefault(topic, {})[broker] = queues
        gives_up_at = time.monotonic() + PATIENCE_SECONDS
        # Differences may last until the next heartbeat of an evicted broker.
        while untrue := await asyncio.to_thread(self._untrue, set(topics_of), routes):
            if time.monotonic() > gives_up_at:
                break
            await asyncio.sleep(self._plan.scan_seconds)
        wrong = await self._clients.settle(routes)
        self._observations.untrue += [
            *untrue,
            *(f"{count} clients' route of {topic}" for topic, count in wrong.items()),
        ]

    def _untrue(self, brokers: set[str], routes: Routes) -> list[str]:
        """Differences between tables and brokers."""
        with Wire(self._server, PATIENCE_SECONDS) as wire:
            return [
                *(f"broker {name}" for name in sorted(_brokers(wire) ^ brokers)),
                *(f"topic {name}" for name in sorted(_topics(wire) ^ routes.keys())),
                *(f"route of {name}" for name, route in _routes(wire, routes).items() if route != routes[name]),
            ]

    # -- the server ----------------------------------------------------------------------------------------------------

    async def _resident_at_rest(self) -> int:
        """The least resident memory during the rest, in which the server returns free memory to the system."""
        ends_at = time.monotonic() + self._plan.rest_seconds
        least = self._server.status_bytes()
        while time.monotonic() < ends_at:
            await asyncio.sleep(_LOOK_SECONDS)
            least = min(least, self._server.status_bytes())
        return least

    def _sample(self, seconds: float, resident_bytes: int) -> Sample:
        descriptors, tasks = (self._server.metric(name) for name in ("process_open_fds", "nameserver_tasks"))
        return Sample(seconds, resident_bytes, descriptors, tasks)


def _is_expected(entry: Mapping[str, Any], *, is_stopping: bool) -> bool:
    """True for a log entry below a warning, or one that a fault of the soak explains."""
    match entry["event"]:
        case "broker_evicted":
            expected = is_stopping or str(entry["broker_name"]).startswith(VICTIM)
        case "connection_refused":
            expected = entry["reason"] in EXPECTED_REFUSALS
        case event:
            # Warnings of the short expiry, and of a loop that was late because the server had been stopped.
            expected = event in {"settings_warning", "event_loop_lagged"}
    return expected or entry["level"] in ("debug", "info")


async def _freeze(send: Callable[[signal.Signals], None], seconds: float) -> None:
    send(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
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
