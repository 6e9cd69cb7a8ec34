"""The console's views as reports of the health model, and the verdict on every page."""

import pytest

from namesrv_client.ctl.comparison import PRESENT, Difference, Fact
from namesrv_client.health import Missing, Problem, ServerState
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_console.views.differences import Disagreement
from namesrv_console.views.problems import missing_among, most_urgent, report_of, verdict
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo

KEY = BrokerKey("c1", "a/b", 0)


def view(*, topics: int = 3) -> ServerView:
    """A reachable server with one broker, last seen at 995 s."""
    live = LiveBroker(*KEY, "10.0.0.1:10911", expiry_seconds=120.0, topics=topics)
    brokers = {KEY: BrokerSeen(live, 995.0, 1115.0)}
    return ServerView("s1", answered_at=995.0, info=ServerInfo("b1", ready=True), brokers=brokers)


def test_ages_continue_without_a_response() -> None:
    """The age of a broker is relative to the moment of the judgement."""
    (broker,) = report_of(view(), 1007.0).brokers or ()

    assert (broker.key, broker.silent_seconds, broker.topics) == (KEY, 12.0, 3)


@pytest.mark.parametrize("failure", ["unreachable", "frozen", "refuses"])
def test_brokers_of_a_server_without_responses_are_unknown(failure: ServerState) -> None:
    """The last reported brokers stay on the pages, but say nothing about now."""
    report = report_of(view().lost("2 s", 1001.0, failure), 1007.0)

    assert (report.state, report.why, report.state_seconds, report.brokers) == (failure, "2 s", 6.0, None)


def test_unexpected_differences_are_split_into_missing_brokers_and_others() -> None:
    """Expected differences do not count, and the name of a broker may contain a slash."""
    missing = Disagreement(Difference("broker", "c1/a%2Fb/0", PRESENT, {"s1": True, "s2": False}), 1.0)
    queues = Disagreement(Difference("topic", "t", Fact("queues on", "a"), {"s1": "8", "s2": "4"}), 1.0)
    expected = Disagreement(Difference("topic", "u", Fact("queues on", "a"), {"s1": "8", "s2": "4"}), 1.0, "starting")

    assert missing_among([missing, queues, expected], Cluster(1, (view(),))) == ([Missing(KEY, ("s2",), 3)], 1)


def test_worst_problem_decides() -> None:
    """Counts are by kind, worst first, and the worst level is the verdict's."""
    cluster = Cluster(1, (view(), ServerView("s2"), ServerView("s3")))
    asked, lost = [Problem("server_asked", one) for one in ("s2", "s3")], Problem("without_master", "c1/a")

    found = verdict(cluster, [*asked, lost], ())
    unknown = verdict(cluster, [asked[0], Problem("write_removed", "c1/b")], ())
    good = verdict(cluster, [], ())

    assert (found.level, found.counts) == ("critical", (("without_master", 1), ("server_asked", 2)))
    # what the console does not know may be critical
    assert unknown.level == "unknown"
    assert (good.level, good.counts, good.brokers, good.servers, good.agrees) == ("good", (), 1, 3, True)
    assert not good.is_compared


def test_problems_without_an_acknowledgement_are_shown_first() -> None:
    """Of too many problems the list has the worst ones, and leaves out acknowledged ones first."""
    found = [Problem("without_master", "c1/a"), Problem("write_removed", "c1/b"), Problem("write_removed", "c1/c")]

    assert most_urgent(found, {found[0].key}, 2) == found[1:]
    assert most_urgent(found, {}, 2) == found[:2]
