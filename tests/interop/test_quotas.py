"""A Java application keeps working although its host exceeds its quota and some of its requests are refused."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock, Thread

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.waiting import until, until_equal
from tests.support.daemon import Daemon
from tests.support.http_peer import scrape
from tests.support.peer import Peer

FLAGS = ("--quotas=enforce", "--quota-requests-per-second=200", "--http-listen=127.0.0.1:0")
# Requests of the clients that exceed the quota.
FLOODS = 8
CONNECTIONS_EACH = 6
EXCEEDED = "nameserver_quota_exceeded_total"


def refused(daemon: Daemon) -> float:
    """Number of requests that were refused by the quota of their address."""
    return scrape(daemon.http_address)(EXCEEDED, class_="route-read", reason="requests_per_ip", outcome="refused")


class Flood:
    """A client on the same host, with requests on several connections, in rounds.

    A round ends when all of its requests have a response; a refused round ends at once. Several floods therefore take
    every token of the quota within milliseconds.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.codes: Counter[int] = Counter()
        # While this lock is held, every request has its response, and the counts are complete.
        self.between_rounds = Lock()
        self._daemon = daemon

    def run(self, is_over: Event) -> None:
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(self._daemon.address)) for _ in range(CONNECTIONS_EACH)]
            while not is_over.wait(0.02):
                with self.between_rounds:
                    for peer in peers:
                        peer.send(105, {"topic": "TBW102"})
                    self.codes.update(peer.receive().code for peer in peers)


def test_java_application_goes_on_while_its_host_is_refused(tmp_path: Path, unique: str) -> None:
    """A broker of 5.3.3 that registers every ten seconds stays registered, and a stream has no failed send or read.

    Both clients poll every 100 ms and are refused repeatedly; their connections stay open. When the flood ends, they
    get the route of an unused topic.
    """
    is_over = Event()
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(tmp_path / "namesrv", *FLAGS)).listening()
        address = "{}:{}".format(*daemon.address)
        settings = {"registerNameServerPeriod": 10_000}
        broker = stack.enter_context(Broker(tmp_path / "broker", [address], settings=settings)).booted()
        daemon.wait_for("broker_registered", broker_name=broker.name)
        clients = stack.enter_context(Driver(tmp_path / "clients"))
        clients.start_producer("producer", [address], poll=100)
        clients.start_consumer("consumer", [address], unique, poll=100)
        assert len(clients.send("producer", unique, 5, "before")) == 5

        floods = [Flood(daemon) for _ in range(FLOODS)]
        threads = [Thread(target=flood.run, args=(is_over,)) for flood in floods]
        for thread in threads:
            thread.start()

        def refused_floods() -> int:
            return sum(flood.codes[2] for flood in floods)

        def is_application_refused() -> bool:
            with ExitStack() as locks:
                for flood in floods:
                    locks.enter_context(flood.between_rounds)
                return refused(daemon) > refused_floods()

        try:
            until(lambda: refused_floods() > 100)
            during = clients.send("producer", unique, 20, "during")
            assert len(during) == 20
            until(lambda: refused_floods() > 1000)
            until(lambda: during <= set(clients.bodies("received", name="consumer")))
            until(is_application_refused)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()

        until_equal(3, lambda: len(clients.send("producer", f"{unique}-new", 3, "after")))
        assert [*clients.events("failed"), *clients.events("error")] == []
        assert [*daemon.lines("broker_evicted"), *daemon.lines("connection_refused")] == []
        metrics, name = scrape(daemon.http_address), EXCEEDED
        assert {each["class"] for each in metrics.labels(name) if each["outcome"] == "refused"} == {"route-read"}
