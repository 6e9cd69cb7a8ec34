"""Latency of pulls while the metrics are scraped over and over."""

import socket
import urllib.request
from contextlib import ExitStack
from typing import Final

from benchmarks.harness import loads
from benchmarks.harness.figures import BenchError, Figure, at_most
from benchmarks.harness.loads import PROBE, PULLS, Load, run
from benchmarks.harness.rounds import Bench, Repeating
from benchmarks.harness.servers import daemon
from benchmarks.harness.wire import Wire, many_brokers, pulled_brokers, register

_BROKERS: Final = 1_000
_CONNECTIONS: Final = 1_000
_PATIENCE_SECONDS: Final = 10


def measure(bench: Bench) -> list[Figure]:
    """Latency of pulls while the metrics are scraped over and over."""
    with ExitStack() as stack:
        server = stack.enter_context(daemon(bench))
        register(stack.enter_context(Wire(server)), [*pulled_brokers(), *many_brokers(_BROKERS)])
        for _ in range(_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), _PATIENCE_SECONDS))
        rates: list[float] = []

        def with_scrapes() -> Load:
            with Repeating(lambda: _scrape(f"http://127.0.0.1:{server.http_port}/metrics")) as scraper:
                load = run(bench, server, PULLS, *PROBE)
            rates.append(scraper.per_second)
            return load

        # Each step of rendering makes one response late. The page is rendered at most every 0.25 s, in a few dozen
        # steps; between that, scrapes get the last one.
        cases = {"scraped": with_scrapes, "quiet": lambda: run(bench, server, PULLS, *PROBE)}
        found = bench.in_turn("pulls during scrapes", cases)
    later = [one - other for one, other in zip(loads.p99s(found["scraped"]), loads.p99s(found["quiet"]), strict=True)]
    what = f"{_BROKERS:,} brokers, {_CONNECTIONS:,} connections"
    return [
        Figure("scrapes.p99", f"{what}: p99 of a pull, later than without", "milliseconds", later, at_most(2)),
        Figure("scrapes.rate", f"{what}: scrapes, one after another, beside the pulls", "per_second", rates),
    ]


def _scrape(url: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as page:  # noqa: S310 - of our own server
            page.read()
    except OSError as error:
        raise BenchError(f"{url}: {error}") from error
