"""A Java application does not notice that one of two NameServers is killed and restarted.

A Java client stays with one NameServer until its connection ends. The clients here ask every half second for the routes
that they have, and the producer is given topics that it has not used yet in every phase of a restart.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.admin_shell import AdminShell
from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.restarts import Daemons
from tests.interop.peers.route import topics_of
from tests.interop.peers.waiting import until, until_equal

STREAM: Final = "stream"
TOPICS: Final = [f"java-{number}" for number in range(24)]
# as many as a client takes a topic to have that it knows nothing of
QUEUES: Final = "4"
POLL_MS: Final = 500


class World:
    """Two of our NameServers, a broker with the topics, and Java clients: a stream of messages, and who reads it."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.daemons = Daemons(place, stack)
        self.addresses = self.daemons.addresses
        self.clients = stack.enter_context(Driver(place / "clients"))
        broker = stack.enter_context(Broker(place / "broker", self.addresses)).booted()
        admin = stack.enter_context(AdminShell(place / "mqadmin", self.addresses[0]))
        wanted = {STREAM, *TOPICS}
        for topic in wanted:
            admin("updateTopic", "-b", broker.address, "-t", topic, "-r", QUEUES, "-w", QUEUES)
        until_equal([wanted] * 2, lambda: [topics_of(address) & wanted for address in self.addresses])
        self.clients.start_producer("writer", self.addresses, poll=POLL_MS)
        self.clients.start_producer("explorer", self.addresses, poll=POLL_MS)
        self.clients.start_consumer("reader", self.addresses, STREAM, poll=POLL_MS)
        self._unused = iter(TOPICS)

    def send_to_new_topics(self, count: int = 3) -> None:
        """One message to each of some topics that the producer has not used yet; each is acknowledged.

        Raises:
            AssertionError: one is not.
        """
        for topic in itertools.islice(self._unused, count):
            assert {f"new-{topic}-0"} == self.clients.send("explorer", topic, 1, f"new-{topic}")

    def until_routed(self, number: int) -> None:
        """Return once a NameServer that was started again has its routes."""
        until(lambda: self.daemons.routes(number, STREAM))

    def until_more_is_read(self, count: int = 20) -> None:
        """Return once the reader has read so many messages more."""
        before = len(self.clients.bodies("received", name="reader"))
        self.clients.wait_until(lambda: len(self.clients.bodies("received", name="reader")) >= before + count)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """All of it, fresh."""
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_application_does_not_notice_a_restart(world: World) -> None:
    """Each of the two is killed once, under a stream of messages; with one dead, just started, and back, all goes on.

    What was acknowledged is consumed, and no send failed.
    """
    clients = world.clients
    clients.start_stream("writer", STREAM, "s")
    world.until_more_is_read()
    world.send_to_new_topics()
    for number in (0, 1):
        world.daemons.kill(number)
        world.send_to_new_topics()
        world.until_more_is_read()
        world.daemons.start_again(number)
        world.send_to_new_topics()
        world.until_routed(number)
        world.send_to_new_topics()
    clients.halt_stream("writer")

    sent = clients.bodies("acked", name="writer")
    until_equal(sent, lambda: clients.bodies("received", name="reader"))
    assert [] == [*clients.events("failed"), *clients.events("error")]


def test_clients_that_start_while_one_is_not_ready(world: World) -> None:
    """A server that waits for a broker of its last run refuses them, and they find their routes at the other.

    That is so for whichever of the two a client tries first, which is random. What is refused for a topic, it asks the
    other for TBW102, so that until its next poll it takes the topic to have as many queues as that one, four at most.
    (While a server is dead, a Java client that starts may fail by itself, whose NameServer that may be: since 5.3 it
    tries one server for each question, and a connection that is refused is an error that the application sees.)
    """
    clients, daemons = world.clients, world.daemons
    daemons.restart_unready(0)
    for number in range(4):
        clients.start_producer(f"late-{number}", world.addresses, poll=POLL_MS)
        sent = clients.send(f"late-{number}", TOPICS[number], 3, f"late-{number}")
        assert 3 == len(sent)
        clients.start_consumer(f"reader-{number}", world.addresses, TOPICS[number], poll=POLL_MS)
        until_equal(sent, lambda: clients.bodies("received", name=f"reader-{number}"))  # noqa: B023 - called at once
    assert [] == [*clients.events("failed"), *clients.events("error")]
    assert not daemons.routes(0, STREAM)
