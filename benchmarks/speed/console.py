"""The web console with 3 servers, 10,000 topics and 100 brokers: its memory, its pages, and delays of events."""

import http.client
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from urllib.parse import urlencode

from benchmarks.harness.figures import BenchError, Column, Figure, at_most
from benchmarks.harness.rounds import Bench, until
from benchmarks.harness.servers import Server, web_console
from benchmarks.harness.wire import Broker, Wire, broker_addr, topics
from benchmarks.speed import console_browser
from benchmarks.speed.console_browser import PATIENCE_SECONDS, SERVERS

_BROKERS: Final = 100
_TOPICS: Final = 10_000
_NAME: Final = "topic-of-some-length-%d"
# More processor time than the console needs in half a second in which only ages change.
_QUIET_SECONDS: Final = 0.1
# how long a server is observed while nothing changes
_IDLE_SECONDS: Final = 5
_PAGES: Final = ("/", "/brokers", "/topics", "/topic?name=topic-of-some-length-77", "/diff")
_SEARCHES: Final = ("t", "to", "topic", "length-77", "9999", "nothing")


def measure(bench: Bench) -> list[Figure]:
    """The web console over 3 servers with 10,000 topics on 100 brokers: its memory, its pages, and delays of events."""
    figures = [*_reading(bench, "spread", 8), *_reading(bench, "everywhere", _BROKERS)]
    return [*figures, *console_browser.heat_map(bench)] if console_browser.is_available() else figures


def _reading(bench: Bench, name: str, spread: int) -> list[Figure]:
    where = f"each topic on {spread} brokers"
    column = Column(f"console.{name}", where)
    with ExitStack() as stack:
        bench.progress(f"console: {_BROKERS} brokers register {_TOPICS:,} topics, {where}, on {SERVERS} servers")
        brokers = [_broker(number, spread) for number in range(_BROKERS)]
        servers, wires = console_browser.with_brokers(bench, stack, brokers)
        began = time.monotonic()
        console = stack.enter_context(web_console(bench, servers))
        _until("topics are listed", lambda: console.page("/topics").count("<!--row-->") == 101)
        _until("all topics are known", lambda: _is_complete(console))
        column.add("filled", "from its start until every topic is known", "seconds", time.monotonic() - began)
        _measure_pages(bench, console, column)
        _measure_changes(bench, console, wires, brokers[7], column)
        _measure_idle(console, servers, column)
        if console_browser.is_available():
            _measure_paints(bench, console, column)
        column.add("memory", "resident", "megabytes", console.status_bytes() / 1e6, target=at_most(150))
    return column.figures


def _measure_pages(bench: Bench, console: Server, column: Column) -> None:
    pages = {path: [_page_seconds(console, path) for _ in range(bench.effort.rounds * 2)] for path in _PAGES}
    slowest = _slowest(pages)
    column.add("page", "the slowest page", "seconds", *pages[slowest], details=slowest)
    results = [f"/search?{urlencode({'q': text, 'part': 'results'})}" for text in _SEARCHES]
    searches = [_page_seconds(console, path) for path in results]
    column.add("search", "a search", "milliseconds", *_ms(searches), target=at_most(100))


def _measure_changes(bench: Bench, console: Server, wires: list[Wire], changing: Broker, column: Column) -> None:
    events, routes = zip(*_delays(bench, console, wires, changing), strict=True)
    what = "from a registration until the overview shows it"
    column.add("event", what, "milliseconds", *_ms(events), target=at_most(500))
    what, details = "and until a topic's page shows its new queues", f"{len(changing.topics):,} routes change"
    column.add("route", what, "milliseconds", *_ms(routes), target=at_most(500), details=details)


def _measure_idle(console: Server, servers: list[Server], column: Column) -> None:
    _until("it has shown all changes", lambda: _is_quiet(console))
    before = [server.cpu_seconds() for server in servers]
    time.sleep(_IDLE_SECONDS)
    shares = [(server.cpu_seconds() - cpu) / _IDLE_SECONDS for server, cpu in zip(servers, before, strict=True)]
    what = "processor time of one server for the idle console, per second"
    column.add("server", what, "milliseconds", *_ms(shares))


def _measure_paints(bench: Bench, console: Server, column: Column) -> None:
    paints = console_browser.first_paints(bench, console)
    slowest = _slowest(paints)
    what = "first paint of the slowest page after another page of the console, without a cache"
    column.add("paint", what, "milliseconds", *paints[slowest], target=at_most(300), details=slowest)


def _slowest(times: Mapping[str, Sequence[float]]) -> str:
    """The page with the largest median."""
    return max(times, key=lambda path: statistics.median(times[path]))


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * each for each in seconds]


def _broker(number: int, spread: int) -> Broker:
    """The broker with this number; each topic is on `spread` brokers with consecutive numbers."""
    every = topics(_NAME, _TOPICS)
    own = [topic for at, topic in enumerate(every) if (at + number) % _BROKERS < spread]
    return Broker(f"broker-{number}", broker_addr(number), own, "cluster-1")


def _page_seconds(console: Server, path: str) -> float:
    """Seconds until the whole page has come."""
    began = time.perf_counter()
    console.page(path)
    return time.perf_counter() - began


def _is_complete(console: Server) -> bool:
    """True once the console knows every topic of every server."""
    servers = json.loads(console.page("/diff.json"))["servers"]
    return [server["topics"] for server in servers] == [_TOPICS] * SERVERS


def _until(what: str, condition: Callable[[], bool]) -> None:
    until(f"console, until {what}", condition, PATIENCE_SECONDS, 0.2)


def _delays(bench: Bench, console: Server, wires: list[Wire], broker: Broker) -> Iterator[tuple[float, float]]:
    """Delays of changes of queues: of the event on an open overview, and of the queues on an open topic page.

    Each round opens both pages anew, since the console closes pages that are not read for ten seconds.
    """
    page = f"/topic?name={broker.topics[0].topic_name}"
    for number in itertools.islice(itertools.cycle((3, 5, 7, 9)), bench.effort.rounds):
        _until("it has shown all changes", lambda: _is_quiet(console))
        broker = broker.changed(number)
        frame = broker.json_frame()
        with _stream(console, "/") as overview, _stream(console, page) as topic:
            is_event, is_route = _event_after(time.time()), _queues_of(number)
            began = time.perf_counter()
            wires[0].success(frame)
            _read_until(overview, is_event)
            event = time.perf_counter() - began
            _read_until(topic, is_route)
            yield event, time.perf_counter() - began
        for wire in wires[1:]:
            wire.success(frame)


def _is_quiet(console: Server) -> bool:
    """True if the console does almost nothing, because open pages show all changes."""
    before = console.cpu_seconds()
    time.sleep(0.5)
    return console.cpu_seconds() - before < _QUIET_SECONDS


def _event_after(wall: float) -> Callable[[Any], bool]:
    return lambda message: message["wall"] > wall and "events" in dict(message["parts"])


def _queues_of(number: int) -> Callable[[Any], bool]:
    return lambda message: f"{number}/8 RW-" in str(message["parts"])


@contextmanager
def _stream(console: Server, page: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", f"/live?{urlencode({'of': page})}")
    yield connection.getresponse()
    connection.close()


def _read_until(stream: http.client.HTTPResponse, is_expected: Callable[[Any], bool]) -> None:
    began = time.monotonic()
    for line in stream:
        if line.startswith(b"data:") and is_expected(json.loads(line.removeprefix(b"data:"))):
            return
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise BenchError(f"an open page of the console: no change within {PATIENCE_SECONDS:g} s")
    raise BenchError("the console has ended a stream")
