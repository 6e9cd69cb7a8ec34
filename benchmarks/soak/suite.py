"""Soak of a real server: brokers and clients come and go for an hour.

1,000 agents and 1,000 clients, in the real code. In turn everything changes for a while (brokers leave, die, freeze and
come back, topics change, clients go, strangers send garbage, the server itself is stopped for a moment) and comes to
rest: then the tables, and what each client knows, have to be the truth, and the server is measured. The exit code is
1 when a bound is broken, 2 when it could not be measured.
"""

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.harness.command import Command, save
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench, raise_file_limit
from benchmarks.harness.wire import Wire
from benchmarks.soak import server as known
from benchmarks.soak.noise import Noise
from benchmarks.soak.server import PATIENCE_SECONDS, VICTIM, SoakedServer, soaked
from benchmarks.soak.verdict import Found
from benchmarks.soak.workers import Crew

# Limit of requests that a server remembers, and the interval at which it returns free memory: growth until then is not
# a leak.
_REMEMBERED: Final = 32_768
_FREED_SECONDS: Final = 15.0
# brokers of a process of their own, which is killed and frozen
_VICTIMS_SHARE: Final = 0.06


@dataclass(frozen=True, slots=True)
class Durations:
    """How long everything takes: in full a sixth of the defaults, so that an hour has the heartbeats of six."""

    churn_seconds: float
    heartbeat_seconds: float
    expiry_seconds: float
    scan_seconds: float
    poll_seconds: float
    # for how long the server itself is stopped
    stopped_seconds: float
    # how many requests that are never repeated are sent first
    requests: int
    # at rest, until it counts
    rest_seconds: float

    def flags(self) -> tuple[str, ...]:
        """The server's."""
        return (f"--broker-expiry-seconds={self.expiry_seconds}", f"--scan-interval-seconds={self.scan_seconds}")


FULL: Final = Durations(40.0, 5.0, 20.0, 2.0, 5.0, 5.0, _REMEMBERED, _FREED_SECONDS + 3.0)
SHORT: Final = Durations(8.0, 1.0, 6.0, 0.5, 0.5, 1.0, 1000, 0.0)


def main(arguments: Sequence[str]) -> int:
    """Soak a server."""
    command = Command("soak", "Soak a NameServer on loopback.", {})
    add = command.parser.add_argument
    add("--minutes", type=float, default=60.0, help="for how long (60)")
    add("--agents", type=int, default=1000, metavar="N", help="brokers (1000)")
    add("--clients", type=int, default=1000, metavar="N", help="clients (1000)")
    add("--seed", type=int, default=1, metavar="N", help="of everything that is left to chance (1)")
    add("--short", action="store_true", help="everything five times as fast")
    options = command.parse(arguments)
    raise_file_limit()
    found = Found()
    try:
        _soak(options, found)
    except (BenchError, OSError) as error:
        _say(f"cannot be measured: {error}")
        return 2
    for line in (*found.untrue, *found.unexpected):
        _say(line)
    missed = found.missed()
    _say("; ".join(missed) or "no bound is broken")
    save(options.json, {**found.figures(), "missed": missed, "all": [sample.members() for sample in found.samples]})
    return int(bool(missed))


def _soak(options: argparse.Namespace, found: Found) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        durations = SHORT if options.short else FULL
        server = stack.enter_context(soaked(Bench(), durations.flags(), found))
        cycles = _Cycles(options, server, stack, found)
        cycles.begin()
        _say(f"{options.agents:,} agents and {options.clients:,} clients are there")
        before = server.resident_at_rest(durations.rest_seconds)
        cycles.fill()
        found.remembered_bytes = server.resident_at_rest(durations.rest_seconds) - before
        # Growth needs two samples.
        while len(found.samples) < 2 or time.monotonic() - began < options.minutes * 60:
            cycles.one()
            resident_bytes = server.resident_at_rest(durations.rest_seconds)
            found.samples.append(server.sample(time.monotonic() - began, resident_bytes))
            _say(_progress(found))
        found.exit_code = server.terminated()


def _crews(
    options: argparse.Namespace, durations: Durations, server: SoakedServer, stack: ExitStack
) -> dict[str, Crew]:
    victims = max(1, round(options.agents * _VICTIMS_SHARE))
    common = ("--port", str(server.port), "--seed", str(options.seed))
    heartbeats = (
        "--heartbeat-seconds",
        str(durations.heartbeat_seconds),
        "--expiry-seconds",
        str(durations.expiry_seconds),
    )
    polls = ("--poll-seconds", str(durations.poll_seconds), "--warm-up-seconds", "0")
    given: dict[str, tuple[str, ...]] = {
        "brokers": (*heartbeats, "--name", "broker", "--first", "0", "--count", str(options.agents - victims)),
        "victims": (*heartbeats, "--name", VICTIM, "--first", str(options.agents - victims), "--count", str(victims)),
        "clients": (*polls, "--count", str(options.clients)),
    }
    modules = {"brokers": "brokers", "victims": "brokers", "clients": "clients"}
    return {
        name: stack.enter_context(
            Crew(f"benchmarks.soak.{modules[name]}", *common, *flags, patience_seconds=PATIENCE_SECONDS)
        )
        for name, flags in given.items()
    }


class _Cycles:
    """Churn and rest, in turn."""

    def __init__(self, options: argparse.Namespace, server: SoakedServer, stack: ExitStack, found: Found) -> None:
        self._durations = SHORT if options.short else FULL
        self._server = server
        self._crews = _crews(options, self._durations, server, stack)
        self._noise = stack.enter_context(Noise(server.port, options.seed))
        self._found = found
        self._faults = self._all_faults(random.Random(options.seed))

    def begin(self) -> None:
        """Wait until all are there."""
        for crew in self._crews.values():
            crew.response()

    def fill(self) -> None:
        """Have the server remember as many requests as it ever does.

        Churn would take hours to fill that, and a leak would hide behind it.
        """
        with self._server.wire() as wire:
            known.send_once(wire, self._durations.requests)

    def one(self) -> None:
        """Let everything change for a while, and compare everything once it is at rest."""
        seconds = self._durations.churn_seconds
        for name in ("brokers", "clients"):
            self._crews[name].command("churn", seconds=seconds)
        self._noise.churn(seconds)
        name, fault = next(self._faults)
        fault()
        self._count({name: 1})
        for name in ("brokers", "clients"):
            self._count(self._crews[name].response(seconds))
        self._count({"strangers": self._noise.settle()})
        self._compare()

    def _count(self, done: Mapping[str, int]) -> None:
        for name, count in done.items():
            self._found.done[name] = self._found.done.get(name, 0) + count

    # -- faults --------------------------------------------------------------------------------------------------------

    def _all_faults(self, chance: random.Random) -> Iterator[tuple[str, Callable[[], None]]]:
        """Each once, in any order, and again."""
        faults = {
            "killed": self._kill,
            "frozen": self._freeze,
            "left": self._leave,
            "server stopped": self._stop_server,
        }
        while True:
            yield from chance.sample(list(faults.items()), len(faults))

    def _kill(self) -> None:
        victims = self._crews["victims"]
        victims.kill()
        victims.start_again()
        victims.response()

    def _freeze(self) -> None:
        """For long enough to be evicted."""
        victims = self._crews["victims"]
        victims.send(signal.SIGSTOP)
        time.sleep(self._durations.expiry_seconds + 2 * self._durations.scan_seconds)
        victims.send(signal.SIGCONT)

    def _leave(self) -> None:
        victims = self._crews["victims"]
        victims.leave()
        victims.start_again()
        victims.response()

    def _stop_server(self) -> None:
        self._server.stop_for(self._durations.stopped_seconds)

    # -- truth ---------------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        for name in ("brokers", "victims"):
            self._crews[name].command("settle")
        has: dict[str, dict[str, list[int]]] = {
            **self._crews["brokers"].response(),
            **self._crews["victims"].response(),
        }
        routes: known.Routes = {}
        for broker, topics in has.items():
            for topic, queues in topics.items():
                routes.setdefault(topic, {})[broker] = queues
        with self._server.wire() as wire:
            self._found.untrue += self._untrue(wire, set(has), routes)
        self._crews["clients"].command("settle", routes=routes)
        wrong = self._crews["clients"].response()
        self._found.untrue += [f"{count} clients' route of {topic}" for topic, count in wrong.items()]

    def _untrue(self, wire: Wire, brokers: set[str], routes: known.Routes) -> list[str]:
        """Where the tables are not the truth; some learn only by their next heartbeat that they were evicted."""
        gives_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            untrue = [
                *_differ("brokers", known.brokers(wire), brokers),
                *_differ("topics", known.topics(wire), set(routes)),
                *(f"route of {topic}" for topic, route in known.routes(wire, routes).items() if route != routes[topic]),
            ]
            if not untrue or time.monotonic() > gives_up_at:
                return untrue
            time.sleep(self._durations.scan_seconds)


def _differ(what: str, known: set[str], true: set[str]) -> list[str]:
    return [f"{what}: {name}" for name in sorted(known ^ true)]


# -- showing -----------------------------------------------------------------------------------------------------------


def _progress(found: Found) -> str:
    last, figures = found.samples[-1], found.figures()
    return (
        f"{last.seconds / 60:5.1f} min  {figures['rss_mib']:.1f} MiB ({figures['rss_mib_per_hour']:+.2f}/h)  "
        f"{last.blocks:,.0f} blocks ({figures['blocks_per_hour']:+,.0f}/h)  {last.descriptors:.0f} descriptors  "
        f"{last.tasks:.0f} tasks  {len(found.unexpected)} unexpected lines  {len(found.untrue)} untrue"
    )


def _say(text: str) -> None:
    print(f"soak: {text}", file=sys.stderr, flush=True)
