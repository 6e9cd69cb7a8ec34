"""A Go application does not notice that one of two NameServers is killed and restarted.

A Go client asks its NameServers in turn, and each topic that it has not used before makes it ask: each message here
goes to a topic of its own, so that there is a pull in every phase of a restart.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.peers.admin_shell import AdminShell
from tests.interop.peers.broker import Broker
from tests.interop.peers.go_driver import GoConsumer, GoProducer
from tests.interop.peers.restarts import Daemons
from tests.interop.peers.route import topics_of
from tests.interop.peers.waiting import until, until_equal

pytestmark = pytest.mark.needs("java", "javac", "mvn", "go")

TOPICS = [f"go-{number}" for number in range(24)]


class World:
    """Two of our NameServers, a broker with the topics, a Go producer and a Go consumer."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.daemons = Daemons(place, stack)
        addresses = self.daemons.addresses
        self.broker = stack.enter_context(Broker(place / "broker", addresses)).booted()
        admin = stack.enter_context(AdminShell(place / "mqadmin", addresses[0]))
        for topic in TOPICS:
            admin("updateTopic", "-b", self.broker.address, "-t", topic, "-r", "4", "-w", "4")
        until_equal([set(TOPICS)] * 2, lambda: [topics_of(address) & set(TOPICS) for address in addresses])
        self.producer = stack.enter_context(GoProducer(place / "producer", addresses))
        self.consumer = stack.enter_context(GoConsumer(place / "consumer", addresses, TOPICS))
        self.producer.started()
        self.consumer.started()
        self._unused = iter(TOPICS)

    def send_to_new_topics(self, count: int = 3) -> None:
        """One message to each of some topics that the producer has not used yet; each is acknowledged.

        Raises:
            AssertionError: one is not.
        """
        for topic in itertools.islice(self._unused, count):
            said = self.producer.send(topic, f"body of {topic}")
            assert "acked" == said["event"], said

    def until_routed(self, number: int) -> None:
        """Return once a NameServer that was started again has its routes."""
        until(lambda: self.daemons.routes(number, TOPICS[0]))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """All of it, fresh."""
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_application_does_not_notice_a_restart(world: World) -> None:
    """Each of the two is killed once; with one dead, just started, and back, every topic is found at once.

    What was acknowledged is consumed, and neither program said that anything was wrong.
    """
    world.send_to_new_topics()
    for number in (0, 1):
        world.daemons.kill(number)
        world.send_to_new_topics()
        world.daemons.start_again(number)
        world.send_to_new_topics()
        world.until_routed(number)
        world.send_to_new_topics()

    sent = world.producer.bodies("acked")
    assert 21 == len(sent)
    world.consumer.wait_until(lambda: sent <= world.consumer.bodies("received"))
    assert [] == [*world.producer.events("failed"), *world.producer.events("broken")]
    assert [] == world.consumer.events("broken")


def test_client_that_starts_while_one_is_dead(world: World) -> None:
    """A new producer has the routes from the one that lives, whichever comes first in its list."""
    world.send_to_new_topics()
    for number in (0, 1):
        world.daemons.kill(number)
        addresses = world.daemons.addresses
        with GoProducer(world.broker.home / f"late-{number}", addresses, group=f"late-{number}") as late:
            said = [late.started().send(topic, f"late {number} {topic}") for topic in TOPICS[-3:]]
        assert ["acked"] * 3 == [each["event"] for each in said], said
        world.daemons.start_again(number)
        world.until_routed(number)


def test_new_topics_while_one_is_not_ready(world: World) -> None:
    """Every other question goes to a server that waits for a broker of its last run, and no message is refused.

    What is refused for a topic, a Go client asks the other for TBW102, and takes the topic to have as many queues as
    that one, four at most.
    """
    world.daemons.restart_unready(0)

    world.send_to_new_topics(8)

    sent = world.producer.bodies("acked")
    world.consumer.wait_until(lambda: sent <= world.consumer.bodies("received"))
    assert not world.daemons.routes(0, TOPICS[0])
