"""A Java application does not notice that one of two NameServers is killed and restarted.

A Java client stays with one NameServer until its connection ends. The clients of this test poll their routes every half
second, and the producer sends to unused topics in every phase of a restart.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.driver import Application
from tests.interop.peers.restarts import STREAM, Restarts
from tests.interop.peers.waiting import until, until_equal

# The error of a Java client whose connection closed during its request.
LOST_CONNECTION: Final = r"Remoting(Connect|SendRequest|Timeout)Exception"
# The same, and the error for a topic whose two requests both failed.
NO_ANSWER: Final = rf"{LOST_CONNECTION}|No route info of this topic"
# Each server may be the last one that the client tried.
ATTEMPTS: Final = 20


class World(Restarts):
    """The servers, and Java clients: a stream of messages with its consumer."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        super().__init__(place, stack)
        self.clients = stack.enter_context(Application(place / "clients", self.addresses, STREAM, self.unused))


@pytest.fixture(scope="module")
def world(place: Path, stack: ExitStack) -> World:
    """The servers and clients of all tests; the last test leaves a server that is not ready."""
    return World(place, stack)


def test_application_does_not_notice_a_restart(world: World) -> None:
    """Each server is killed once under a stream of messages, which continues in every phase.

    All acknowledged messages are consumed, and no send fails but one: the first request after a kill may go to the
    killed server, and since 5.3 a Java client does not retry it elsewhere. The application sends again.
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
    """A server that is not ready refuses the clients, which get their routes from the other.

    A client tries the servers in random order. After a refused route it requests TBW102 from the other server,
    and until its next poll assumes the same number of queues, four at most.
    (With any NameServer a Java client that starts while a server is dead may fail: since 5.3 it sends each request to
    one server only, and the application sees a refused connection as an error. The same holds for a client whose
    second request is sent while the connection of the first, refused one closes. The test's application then tries
    again.)
    """
    clients = world.clients

    def send(name: str, topic: str) -> set[str]:
        """Send three messages; returns the acknowledged bodies, also of attempts that failed midway."""
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
        topic = next(world.unused)
        sent = send(f"late-{number}", topic)
        reader = start_consumer(f"reader-{number}", topic)
        until_equal(sent, lambda: clients.bodies("received", name=reader))  # noqa: B023 - called at once
    assert [*clients.failures(), *clients.errors()] == []
    assert not world.is_ready(0)
