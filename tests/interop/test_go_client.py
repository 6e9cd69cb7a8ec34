"""A Go application does not notice that one of two NameServers is killed and restarted.

A Go client sends its route requests to its NameServers in turn, one for each unused topic. Each message of this test
goes to a new topic, so that the client pulls a route in every phase of a restart.
"""

import itertools
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.peers.driver import GoConsumer, GoProducer
from tests.interop.peers.restarts import TOPICS, Restarts
from tests.interop.peers.waiting import until

pytestmark = pytest.mark.needs("java", "javac", "mvn", "go")


class World(Restarts):
    """The servers, a Go producer and a Go consumer."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        super().__init__(place, stack)
        self.place = place
        self.producer = stack.enter_context(GoProducer(place / "producer", self.addresses)).started()
        self.consumer = stack.enter_context(GoConsumer(place / "consumer", self.addresses, TOPICS)).started()

    def send_to_new_topics(self, count: int = 3) -> None:
        """Send one message to each of some unused topics; each must be acknowledged."""
        for topic in itertools.islice(self.unused, count):
            assert self.producer.send(topic, f"body of {topic}"), self.producer

    def until_all_is_received(self) -> set[str]:
        sent = self.producer.bodies("acked")
        self.consumer.wait_until(lambda: sent <= self.consumer.bodies("received"))
        return sent


@pytest.fixture(scope="module")
def world(place: Path, stack: ExitStack) -> World:
    """The servers and clients of all tests; the last test leaves a server that is not ready."""
    return World(place, stack)


def test_application_does_not_notice_a_restart(world: World) -> None:
    """Each server is killed once; routes are found at once while a server is dead, just restarted, and back.

    All acknowledged messages are consumed, neither program logs an error, and a producer that starts while one server
    is dead gets its routes from the other, in either order of its list.
    """
    world.send_to_new_topics()
    for number in (0, 1):
        world.kill(number)
        world.send_to_new_topics()
        with GoProducer(world.place / f"late-{number}", world.addresses, group=f"late-{number}") as late:
            assert all(late.started().send(topic, f"late {number} {topic}") for topic in TOPICS[-3:]), late
        world.start_again(number)
        world.send_to_new_topics()
        until(lambda: world.is_ready(number))  # noqa: B023 - called at once
        world.send_to_new_topics()

    assert len(world.until_all_is_received()) == 21
    assert [*world.producer.events("failed"), *world.producer.events("broken"), *world.consumer.events("broken")] == []


def test_new_topics_while_one_is_not_ready(world: World) -> None:
    """Every other request goes to a server that is not ready; nevertheless every message is sent.

    After a refused route a Go client requests TBW102 from the other server, and assumes the same number of queues, four
    at most.
    """
    sent_before = len(world.producer.bodies("acked"))
    world.restart_unready(0)

    world.send_to_new_topics(8)

    assert len(world.until_all_is_received()) == sent_before + 8
    assert not world.is_ready(0)
