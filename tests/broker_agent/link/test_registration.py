"""The broker's registration with one server: accepted topics, refused ones, and the next registration."""

from namesrv_broker_agent.link.registration import LinkRegistration
from namesrv_broker_agent.own_broker import Role
from namesrv_broker_agent.topics import TopicChange, TopicSnapshot
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig

MASTER = Role(0, is_writable=True)
ORDERS, BILLS, WRONG = (TopicConfig(name, 1, 1, 6, 0) for name in ("orders", "bills", "wrong"))


def snapshot(counter: int, *topics: TopicConfig) -> TopicSnapshot:
    """These topics under this version."""
    return topics, DataVersion(counter, 0, 0)


def test_heartbeats_have_the_version_of_the_accepted_topics() -> None:
    """There is none before the first registration, nor over a new connection until the server has accepted another."""
    registration = LinkRegistration()
    versions = [registration.version]
    registration.accepted(None, snapshot(1, ORDERS), MASTER)
    versions.append(registration.version)
    registration.accepted(TopicChange((BILLS,)), snapshot(2, ORDERS, BILLS), MASTER)
    versions.append(registration.version)
    registration.begin_again()
    versions.append(registration.version)

    assert [version and version.counter for version in versions] == [None, 1, 2, None]


def test_refused_topic_is_left_out() -> None:
    """Topics that the server accepted are registered once in place of the refused ones, and the problem stays."""
    registration = LinkRegistration()
    refused = snapshot(2, ORDERS, WRONG)
    assert registration.replacement_for(refused, MASTER) is None

    registration.accepted(None, snapshot(1, ORDERS), MASTER)
    registration.problem = "refused"
    assert registration.replacement_for(refused, MASTER) is None

    registration.begin_again()
    earlier = registration.replacement_for(refused, MASTER)
    assert earlier == snapshot(1, ORDERS)
    registration.replacement_accepted(earlier, MASTER)
    assert (registration.problem, registration.replacement_for(refused, MASTER)) == ("refused", None)
    assert registration.replacement_for(refused, Role(1, is_writable=True)) == earlier


def test_forgotten_broker_registers_fully() -> None:
    """The next registration has all topics, and changes until then are part of it."""
    registration = LinkRegistration()
    registration.unsent.take()
    registration.unsent.add(TopicChange((ORDERS,), ("bills",)))
    assert registration.unsent.take() == TopicChange((ORDERS,), ("bills",))

    registration.forgotten()
    registration.unsent.add(TopicChange((ORDERS,)))
    assert (registration.unsent.take(), registration.unsent.is_due) == (None, False)
