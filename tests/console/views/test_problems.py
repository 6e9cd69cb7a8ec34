"""Problems of servers and broker groups, and the verdict on all of them."""

import pytest

from namesrv_client.ctl.comparison import PRESENT, Difference
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_console.views.differences import Disagreement
from namesrv_console.views.problems import Gone, Problem, problems, verdict
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo

NOW = 1000.0
MASTER, SLAVE = BrokerKey("c1", "a", 0), BrokerKey("c1", "a", 1)


def server(*brokers: BrokerSeen, ready: bool = True, refused: str = "") -> ServerView:
    """A reachable server with these brokers."""
    view = ServerView("s1").answered(NOW, info=ServerInfo("b1", ready=ready))
    known = {BrokerKey(one.live.cluster, one.live.broker_name, one.live.broker_id): one for one in brokers}
    return ServerView(
        view.address,
        is_reachable=True,
        info=view.info,
        is_native=True,
        brokers=known,
        refused={refused: "denied"} if refused else {},
    )


def seen(key: BrokerKey = MASTER, age: float = 0.0, *, wiped: bool = False) -> BrokerSeen:
    """A broker with an expiry of 120 s and three topics."""
    live = LiveBroker(*key, "10.0.0.1:10911", expiry_seconds=120.0, topics=3, write_wiped=wiped)
    return BrokerSeen(live, NOW - age, NOW - age + 120)


def found(*views: ServerView, gone: tuple[Gone, ...] = (), differing: tuple[Disagreement, ...] = ()) -> list[Problem]:
    """The problems of these servers."""
    return problems(Cluster(1, views), differing, gone, NOW)


GROUP = ("c1", "a")


@pytest.mark.parametrize(
    ("view", "problem", "level"),
    [
        (server(seen(SLAVE)), Problem("without_master", "c1/a", ("s1",), count=3, group=GROUP), "critical"),
        (
            server(seen(age=61), seen(SLAVE)),
            Problem("silent_master", "c1/a", ("s1",), count=3, group=GROUP),
            "critical",
        ),
        (server(seen(wiped=True)), Problem("write_removed", "c1/a", ("s1",), group=GROUP), "warning"),
        (server(seen(), ready=False), Problem("server_not_ready", "s1"), "warning"),
        (server(refused="brokers"), Problem("not_reported", "s1", why="denied"), "unknown"),
        (ServerView("s1"), Problem("server_asked", "s1"), "unknown"),
        (ServerView("s1").lost("timed out", NOW), Problem("server_unreachable", "s1", why="timed out"), "critical"),
        (
            ServerView("s1").lost("denied", NOW, refuses=True),
            Problem("server_refuses", "s1", why="denied"),
            "unknown",
        ),
    ],
)
def test_each_failure_is_a_problem(view: ServerView, problem: Problem, level: str) -> None:
    """A failure yields one problem, and its level is the verdict's."""
    assert found(view) == [problem]
    assert verdict(Cluster(1, (view,)), [problem], ()).level == level


@pytest.mark.parametrize("age", [0.0, 60.0])
def test_group_with_heartbeats_is_healthy(age: float) -> None:
    """A master may be silent for half of its expiry; then the verdict counts brokers, topics and servers."""
    view = server(seen(age=age), seen(SLAVE))

    assert found(view) == []
    it = verdict(Cluster(1, (view,)), [], ())
    assert (it.level, it.counts, it.brokers, it.topics, it.servers) == ("good", (), 2, 0, 1)


def test_brokers_that_left_are_problems_unless_they_unregistered() -> None:
    """A group without any broker is critical, one broker of a group a warning, and a planned stop neither."""
    slave, other = Gone(SLAVE, NOW, "disconnected", 3), Gone(BrokerKey("c1", "b", 0), NOW, "unregistered", 2)
    last = Gone(MASTER, NOW, "silent", 3)

    assert found(server(seen()), gone=(slave, other)) == [
        Problem("broker_gone", "c1/a/1", why="disconnected", count=3, group=GROUP)
    ]
    assert found(server(), gone=(last, slave)) == [
        Problem("group_gone", "c1/a", why="disconnected", count=3, group=GROUP)
    ]


def test_unexpected_differences_are_problems() -> None:
    """A broker that a server lacks is named; other differences are counted; expected ones do not count."""
    missing = Disagreement(Difference("broker", "c1/a/0", PRESENT, {"s1": True, "s2": False}), NOW)
    queues = Disagreement(Difference("topic", "t", "queues on a", {"s1": "8", "s2": "4"}), NOW)
    expected = Disagreement(Difference("topic", "u", "queues on a", {"s1": "8", "s2": "4"}), NOW, "starting")

    assert found(server(seen()), differing=(missing, queues, expected)) == [
        Problem("missing_broker", "c1/a/0", ("s2",)),
        Problem("disagreement", "", count=1),
    ]


def test_worst_problem_decides() -> None:
    """Counts are by kind, worst first, and the worst level is the verdict's."""
    views = (server(seen(SLAVE)), ServerView("s2"), ServerView("s3"))
    it = verdict(Cluster(1, views), found(*views), ())

    assert (it.level, it.counts) == ("critical", (("without_master", 1), ("server_asked", 2)))
