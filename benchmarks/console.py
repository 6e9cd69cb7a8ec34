"""The web console over 3 servers with 10,000 topics on 100 brokers.

Its memory, how long a page takes, and how long an event takes until it has reached an open tab.
"""

import http.client
import itertools
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from urllib.parse import urlencode

from benchmarks.figures import BenchError, Figure, Target
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, topics
from benchmarks.servers import WITHOUT_LOG, Server, daemon, environment, watched

SERVERS: Final = 3
BROKERS: Final = 100
TOPICS: Final = 10_000
# brokers that a topic is on
_SPREAD: Final = 8
_NAME: Final = "topic-of-some-length-%d"
_PATIENCE_SECONDS: Final = 60.0
# what a console computes in half a second while nothing happens but heartbeats' ages
_QUIET_SECONDS: Final = 0.1
# calls back with the milliseconds from the click to the first paint of something
_PAINTED: Final = """
new PerformanceObserver((seen) => arguments[0](seen.getEntriesByName("first-contentful-paint")[0].startTime))
  .observe({type: "paint", buffered: true})
"""
_PAGES: Final = ("/", "/brokers", "/topics", "/topic?name=topic-of-some-length-77", "/diff")


def measure(bench: Bench) -> list[Figure]:
    """Topics on eight of the brokers each, and then all topics on all of them."""
    return [*_reading(bench, "spread", _SPREAD), *_reading(bench, "everywhere", BROKERS)]


def _reading(bench: Bench, name: str, spread: int) -> list[Figure]:
    where = f"each topic on {spread} brokers"
    with ExitStack() as stack:
        servers = [stack.enter_context(daemon(bench, *WITHOUT_LOG)) for _ in range(SERVERS)]
        wires = [stack.enter_context(Wire(server)) for server in servers]
        bench.progress(f"console: {BROKERS} brokers register {TOPICS:,} topics, {where}, on {SERVERS} servers")
        brokers = [_broker(number, spread) for number in range(BROKERS)]
        for broker in brokers:
            frame = broker.json_frame()
            for wire in wires:
                wire.ask_well(frame)
        began = time.monotonic()
        console = stack.enter_context(_console(bench, servers))
        _until(lambda: _page(console, "/topics")[1].count("<!--row-->") == 101)
        _until(lambda: _is_complete(console))
        filled = time.monotonic() - began
        bench.progress(f"console: it knows all of it after {filled:.1f} s")
        pages = {path: [_page(console, path)[0] for _ in range(bench.effort.rounds * 2)] for path in _PAGES}
        searches = [
            _page(console, f"/search?{urlencode({'q': text, 'part': 'results'})}")[0]
            for text in ("t", "to", "topic", "length-77", "9999", "nothing")
        ]
        paints = _paints(bench, console)
        delays = list(_delays(bench, console, wires, brokers[7]))
        _until(lambda: _is_quiet(console))
        used = [server.cpu_seconds() for server in servers]
        time.sleep(5)
        shares = [(server.cpu_seconds() - before) / 5 for server, before in zip(servers, used, strict=True)]
        memory = console.resident_bytes()
    worst = max(pages, key=lambda path: statistics.median(pages[path]))
    figures = [
        Figure(f"console.{name}.memory", f"resident, {where}", "megabytes", (memory / 1e6,), Target("<=", 200)),
        Figure(f"console.{name}.filled", f"from its start until it knows all, {where}", "seconds", (filled,)),
        Figure(f"console.{name}.page", f"the slowest page ({worst}), {where}", "seconds", tuple(pages[worst])),
        Figure(
            f"console.{name}.search",
            f"a search, {where}",
            "milliseconds",
            tuple(1000 * each for each in searches),
            Target("<=", 100),
        ),
        Figure(
            f"console.{name}.event",
            f"from a registration until the overview shows it, {where}",
            "milliseconds",
            tuple(1000 * each for each, _ in delays),
            Target("<=", 500),
        ),
        Figure(
            f"console.{name}.route",
            f"and until a topic's page shows its new queues, {where}",
            "milliseconds",
            tuple(1000 * each for _, each in delays),
            Target("<=", 500),
            behind=f"{len(brokers[7].topics):,} routes change",
        ),
        Figure(
            f"console.{name}.server",
            f"computing of one server for the console, while nothing happens, {where}",
            "milliseconds",
            tuple(1000 * each for each in shares),
            behind="of each second",
        ),
    ]
    if paints:
        figures.append(
            Figure(
                f"console.{name}.paint", f"first paint of the topics in Chromium, {where}", "seconds", tuple(paints),
                Target("<=", 1),
            )
        )  # fmt: skip
    return figures


def _broker(number: int, spread: int) -> Broker:
    """One of BROKERS; a topic is on so many neighbours."""
    every = topics(_NAME, TOPICS)
    own = [topic for at, topic in enumerate(every) if (at + number) % BROKERS < spread]
    return Broker("cluster-1", f"broker-{number}", 0, f"10.0.0.{number}:10911", own)


@contextmanager
def _console(bench: Bench, servers: list[Server]) -> Iterator[Server]:
    named = [word for server in servers for word in ("--server", f"127.0.0.1:{server.port}")]
    command = [sys.executable, "-m", "namesrv_console", "--listen", "127.0.0.1:0", *named]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    with watched(bench, "namesrv-console", process, _port, started) as console:
        yield console


def _port(line: str) -> int | None:
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
    return None if found is None else int(found[1])


def _page(console: Server, path: str) -> tuple[float, str]:
    """How long it takes until all of it is there, and what is in it."""
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=_PATIENCE_SECONDS)
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode()
    took = time.perf_counter() - began
    connection.close()
    if answer.status != http.client.OK:
        raise BenchError(f"{path} is answered with {answer.status}")
    return took, body


def _is_complete(console: Server) -> bool:
    """Whether it knows every topic of every server."""
    _, page = _page(console, "/diff.json")
    return [server["topics"] for server in json.loads(page)["servers"]] == [TOPICS] * SERVERS


def _until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise BenchError(f"the console is not done within {_PATIENCE_SECONDS:g} s")
        time.sleep(0.2)


def _delays(bench: Bench, console: Server, wires: list[Wire], broker: Broker) -> Iterator[tuple[float, float]]:
    """A broker's topics get other queues: when has the open overview the event, and the page of a topic the queues?"""
    with _stream(console, "/") as overview, _stream(console, f"/topic?name={broker.topics[0].topic_name}") as topic:
        changed = broker
        for number in itertools.islice(itertools.cycle((3, 5, 7, 9)), bench.effort.rounds):
            _until(lambda: _is_quiet(console))
            changed = changed.changed(number)
            frame = changed.json_frame()
            is_event, is_route = _event_after(time.time()), _queues_of(number)
            began = time.perf_counter()
            wires[0].ask_well(frame)
            _read_until(overview, is_event)
            event = time.perf_counter() - began
            _read_until(topic, is_route)
            yield event, time.perf_counter() - began
            for wire in wires[1:]:
                wire.ask_well(frame)


def _is_quiet(console: Server) -> bool:
    """Whether whatever came before is on the screens."""
    before = console.cpu_seconds()
    time.sleep(0.5)
    return console.cpu_seconds() - before < _QUIET_SECONDS


def _event_after(wall: float) -> Callable[[Any], bool]:
    return lambda message: message["wall"] > wall and "events" in dict(message["parts"])


def _queues_of(number: int) -> Callable[[Any], bool]:
    return lambda message: f"{number}/8 RW-" in str(message["parts"])


@contextmanager
def _stream(console: Server, page: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=_PATIENCE_SECONDS)
    connection.request("GET", f"/live?{urlencode({'of': page})}")
    yield connection.getresponse()
    connection.close()


def _read_until(stream: http.client.HTTPResponse, is_it: Callable[[Any], bool]) -> None:
    for line in stream:
        if line.startswith(b"data:") and is_it(json.loads(line.removeprefix(b"data:"))):
            return
    raise BenchError("the console has ended a stream")


def _paints(bench: Bench, console: Server) -> list[float]:
    """What Chromium says of its first paint of the list of topics, each time in a new window; nothing without one."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        bench.progress("console: without chromium and chromedriver there is no figure of the first paint")
        return []
    from selenium import webdriver  # noqa: PLC0415  # only where there is a browser

    options = webdriver.ChromeOptions()
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    paints: list[float] = []
    try:
        for _ in range(bench.effort.rounds):
            browser.get(f"http://127.0.0.1:{console.port}/topics")
            painted: Any = browser.execute_async_script(_PAINTED)
            paints.append(painted / 1000)
    finally:
        browser.quit()
    return paints
