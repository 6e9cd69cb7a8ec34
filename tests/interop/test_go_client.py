"""A Go application does not notice that one of two NameServers is killed and restarted.

A Go client asks its NameServers in turn, and each topic that it has not used before makes it ask: each message here
goes to a topic of its own, so that there is a pull in every phase of a restart.
"""

import itertools
from collections.abc import Iterator
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
        """One message to each of some topics that the producer has not used yet; each is acknowledged."""
        for topic in itertools.islice(self.unused, count):
            assert self.producer.send(topic, f"body of {topic}"), self.producer

    def until_all_is_received(self) -> set[str]:
        sent = self.producer.bodies("acked")
        self.consumer.wait_until(lambda: sent <= self.consumer.bodies("received"))
        return sent


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """All of it, fresh."""
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_application_does_not_notice_a_restart(world: World) -> None:
    """Each of the two is killed once; with one dead, just started, and back, every topic is found at once.

    What was acknowledged is consumed, neither program said that anything was wrong, and a producer that starts while
    one is dead has the routes from the one that lives, whichever comes first in its list.
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
    """Every other question goes to a server that waits for a broker of its last run, and no message is refused.

    What is refused for a topic, a Go client asks the other for TBW102, and takes the topic to have as many queues as
    that one, four at most.
    """
    world.restart_unready(0)

    world.send_to_new_topics(8)

    assert len(world.until_all_is_received()) == 8
    assert not world.is_ready(0)
