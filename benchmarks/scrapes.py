"""How late is a pull while somebody scrapes the metrics, over and over?"""

import socket
import threading
import urllib.request
from contextlib import ExitStack
from typing import Final, Self

from benchmarks import loads
from benchmarks.figures import BenchError, Figure, Target
from benchmarks.loads import Load
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, pulled_brokers, register
from benchmarks.servers import daemon

BROKERS: Final = 1_000
CONNECTIONS: Final = 1_000
# One connection that always waits for one answer: each step of a scrape makes one of its answers late. There are a few
# dozen of them in a scrape, so that the longest step is among the latest hundredth of all answers.
_PROBE: Final = ("--connections", "1", "--depth", "1")
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
            with _Scraper(f"http://127.0.0.1:{http_port}/metrics") as scraper:
                load = loads.run(bench, server, *_PROBE)
            scraped.append(scraper.done() / bench.effort.seconds)
            return load

        cases = {"scraped": with_scrapes, "quiet": lambda: loads.run(bench, server, *_PROBE)}
        found = bench.in_turn("pulls during scrapes", cases)
    mine, quiet = (loads.p99s(found[name]) for name in ("scraped", "quiet"))
    later = tuple(one - other for one, other in zip(mine, quiet, strict=True))
    what = f"{BROKERS:,} brokers, {CONNECTIONS:,} connections"
    return [
        Figure("scrapes.p99", f"{what}: p99 of a pull, later than without", "milliseconds", later, Target("<=", 2)),
        Figure("scrapes.rate", f"{what}: scrapes, one after another, beside the pulls", "per_second", tuple(scraped)),
    ]


class _Scraper(threading.Thread):
    """Scrapes until the block ends."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._stopped = threading.Event()
        self._count = 0
        # why it ended early
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                with urllib.request.urlopen(self._url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - of our own server
                    answer.read()
                self._count += 1
        except OSError as error:
            self._error = error

    def done(self) -> int:
        """How many there were.

        Raises:
            BenchError: one failed, or there was none.
        """
        if self._error is not None or not self._count:
            raise BenchError(f"{self._count} scrapes, and then: {self._error}")
        return self._count


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
