"""Latency of pulls while the metrics are scraped over and over."""

import socket
import urllib.request
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks import loads
from benchmarks.figures import BenchError, Figure, Target
from benchmarks.loads import Load
from benchmarks.repeating import Repeating
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, pulled_brokers, register
from benchmarks.servers import daemon

BROKERS: Final = 1_000
CONNECTIONS: Final = 1_000
_PATIENCE_SECONDS: Final = 10


def measure(bench: Bench) -> list[Figure]:
    """The same questions with scrapes and without, in turn."""
    http_port = _free_port()
    with ExitStack() as stack:
        # later flags win
        server = stack.enter_context(daemon(bench, "--http-listen", f"127.0.0.1:{http_port}"))
        wire = stack.enter_context(Wire(server))
        register(wire, pulled_brokers())
        register(wire, [Broker("DefaultCluster", f"one-of-many-{n}", 0, f"10.0.0.1:{n}") for n in range(BROKERS)])
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), _PATIENCE_SECONDS))
        scraped: list[float] = []

        def with_scrapes() -> Load:
            with Repeating(partial(_scrape, f"http://127.0.0.1:{http_port}/metrics")) as scraper:
                load = loads.run(bench, server, *loads.PROBE)
            scraped.append(scraper.per_second)
            return load

        # Each step of rendering makes one answer late. The page is rendered at most every 0.25 s, in a few dozen steps;
        # between that, scrapes get the last one.
        cases = {"scraped": with_scrapes, "quiet": lambda: loads.run(bench, server, *loads.PROBE)}
        found = bench.in_turn("pulls during scrapes", cases)
    mine, quiet = (loads.p99s(found[name]) for name in ("scraped", "quiet"))
    later = tuple(one - other for one, other in zip(mine, quiet, strict=True))
    what = f"{BROKERS:,} brokers, {CONNECTIONS:,} connections"
    return [
        Figure("scrapes.p99", f"{what}: p99 of a pull, later than without", "milliseconds", later, Target("<=", 2)),
        Figure("scrapes.rate", f"{what}: scrapes, one after another, beside the pulls", "per_second", tuple(scraped)),
    ]


def _scrape(url: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - of our own server
            answer.read()
    except OSError as error:
        raise BenchError(f"{url}: {error}") from error


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
