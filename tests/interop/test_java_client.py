"""A Java application does not notice that one of two NameServers is killed and restarted.

A Java client stays with one NameServer until its connection ends. The clients here ask every half second for the routes
that they have, and the producer is given topics that it has not used yet in every phase of a restart.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.driver import Application
from tests.interop.peers.restarts import STREAM, TOPICS, Restarts
from tests.interop.peers.waiting import until, until_equal

# What a Java client says that asked on a connection while it closed.
LOST_CONNECTION: Final = r"Remoting(Connect|SendRequest|Timeout)Exception"
# The same, and of a topic that both of its questions missed.
NO_ANSWER: Final = rf"{LOST_CONNECTION}|No route info of this topic"
# Each has an even chance to be the last.
ATTEMPTS: Final = 20


class World(Restarts):
    """The servers, and Java clients: a stream of messages, and who reads it."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        super().__init__(place, stack)
        self.clients = stack.enter_context(Application(place / "clients", self.addresses, STREAM, self.unused))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """All of it, fresh."""
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_application_does_not_notice_a_restart(world: World) -> None:
    """Each of the two is killed once, under a stream of messages; with one dead, just started, and back, all goes on.

    What was acknowledged is consumed, and no send failed, but for the first question after a kill: it may go to the
    server that is gone, and since 5.3 a Java client asks no other one for it. The application sends again.
    """
    clients = world.clients
    clients.start()
    clients.send_to_new_topics()
    for number in (0, 1):
        world.kill(number)
        clients.send_to_new_topics(excused=LOST_CONNECTION)
        clients.until_more_is_read()
        world.start_again(number)
        clients.send_to_new_topics()
        until(lambda: world.is_ready(number))  # noqa: B023 - called at once
        clients.send_to_new_topics()
    clients.finish()


def test_clients_that_start_while_one_is_not_ready(world: World) -> None:
    """A server that waits for a broker of its last run refuses them, and they find their routes at the other.

    That is so for whichever of the two a client tries first, which is random. What is refused for a topic, it asks the
    other for TBW102, so that until its next poll it takes the topic to have as many queues as that one, four at most.
    (While a server is dead, a Java client that starts may fail by itself, whose NameServer that may be: since 5.3 it
    tries one server for each question, and a connection that is refused is an error that the application sees. So may a
    client whose second question comes just while the connection closes on which the first one was refused. It does what
    an application does then: it tries again.)
    """
    clients = world.clients

    def send(name: str, topic: str) -> set[str]:
        """Send three messages; the bodies of all that were acknowledged, from attempts that were cut short too."""
        attempts = (clients.send(name, topic, 3, f"{name}-{number}") for number in range(ATTEMPTS))
        while len(next(attempts)) < 3:
            clients.excuse(NO_ANSWER)
        return clients.bodies("acked", name=name)

    def start_consumer(name: str, topic: str) -> str:
        for attempt in range(ATTEMPTS):
            try:
                clients.start_consumer(f"{name}-{attempt}", world.addresses, topic, poll=500)
            except AssertionError:
                clients.excuse(NO_ANSWER)
            else:
                return f"{name}-{attempt}"
        pytest.fail(f"not started in {ATTEMPTS} attempts: {name}")

    world.restart_unready(0)
    for number in range(4):
        clients.start_producer(f"late-{number}", world.addresses, poll=500)
        sent = send(f"late-{number}", TOPICS[number])
        reader = start_consumer(f"reader-{number}", TOPICS[number])
        until_equal(sent, lambda: clients.bodies("received", name=reader))  # noqa: B023 - called at once
    assert [*clients.failures(), *clients.errors()] == []
    assert not world.is_ready(0)
