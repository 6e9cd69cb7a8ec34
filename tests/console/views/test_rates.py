"""Charts of the traffic of servers: rates, interruptions and scales."""

import pytest

from namesrv_console.state import ServerView
from namesrv_console.views.rates import Chart, Sample, charts
from namesrv_remoting.bodies.extensions import ServerInfo, Traffic

QUIET = (0, 0, 0)


def sample(at: float, requests: int, *, boot_id: str = "b1", responses: tuple[int, ...] = QUIET) -> Sample:
    """A sample with so many requests; responses are counted up to 1 ms, up to 10 ms, and above."""
    traffic = Traffic(requests, 0, 0, 0, 2_500_000, [0.001, 0.01], list(responses))
    return Sample(at, boot_id, 7, traffic)


def chart(*samples: Sample, name: str = "requests", now: float = 1000.0) -> Chart:
    """The chart of one measure of a server."""
    return next(one for one in charts({"s1": samples}, now)["s1"] if one.measure.name == name)


def test_rate_is_the_growth_of_a_counter_per_second() -> None:
    """Between two samples the counter grew by 50 and by 10 in 5 s; the newest value is at the right edge."""
    found = chart(sample(990.0, 100), sample(995.0, 150), sample(1000.0, 160))

    assert (found.newest, found.largest) == ("2/s", "10/s")
    assert found.lines == ["298.3,0.0 300.0,40.0"]


@pytest.mark.parametrize(
    ("samples", "lines"),
    [
        # A restart: the counter of another boot begins anew.
        ([sample(980, 5), sample(985, 10), sample(990, 1, boot_id="b2"), sample(995, 6, boot_id="b2")], 2),
        # No response for 30 s.
        ([sample(900, 5), sample(905, 10), sample(935, 60), sample(940, 65)], 2),
        # Samples of more than a quarter of an hour ago.
        ([sample(80, 5), sample(85, 10), sample(90, 15)], 0),
        ([], 0),
        ([sample(1000, 5)], 0),
    ],
)
def test_line_is_interrupted_where_the_rate_is_unknown(samples: list[Sample], lines: int) -> None:
    """A line joins no values of two boots, and none across a time without responses."""
    assert len(chart(*samples).lines) == lines


def test_old_value_is_not_shown_as_the_newest() -> None:
    """A server that has not responded for 12 s has no newest value."""
    samples = sample(980.0, 0), sample(985.0, 10)

    assert chart(*samples, now=997.0).newest == "2/s"
    assert chart(*samples, now=997.1).newest is None


@pytest.mark.parametrize(
    ("before", "after", "newest"),
    [
        (QUIET, (99, 1, 0), "1 ms"),
        (QUIET, (98, 2, 0), "10 ms"),
        ((99, 1, 0), (99, 2, 0), "10 ms"),
        # Above the last bound the time is only known to exceed it.
        (QUIET, (0, 0, 5), "> 10 ms"),
        (QUIET, (97, 1, 2), "> 10 ms"),
        ((5, 5, 5), (5, 5, 5), None),
        (QUIET, (1, 1), None),
    ],
)
def test_p99_is_of_the_responses_between_two_samples(
    before: tuple[int, ...], after: tuple[int, ...], newest: str | None
) -> None:
    """The bound within which 99 % of the new responses are; unknown without a new response."""
    found = chart(sample(995.0, 0, responses=before), sample(1000.0, 0, responses=after), name="p99")

    assert found.newest == newest


def test_charts_of_one_measure_share_their_scale() -> None:
    """The busiest server reaches the top, the other one a tenth of the height."""
    quiet, busy = (sample(995.0, 0), sample(1000.0, 10)), (sample(995.0, 0), sample(1000.0, 100))

    found = charts({"s1": quiet, "s2": busy}, 1000.0)

    assert [found[server][0].lines for server in ("s1", "s2")] == [["300.0,45.0"], ["300.0,0.0"]]
    assert [(one.measure.name, one.newest) for one in found["s1"]][-2:] == [("connections", "7"), ("memory", "2.5 MB")]


def test_only_a_reachable_server_with_a_report_is_sampled() -> None:
    """Apache's server reports no traffic, and the last report of a lost server is old."""
    traffic = sample(0.0, 3).traffic
    view = ServerView("s1").answered(5.0, info=ServerInfo("b1", connections=7, traffic=traffic))

    assert Sample.of(view) == Sample(5.0, "b1", 7, traffic)
    assert Sample.of(view.lost("timeout", 6.0)) is None
    assert Sample.of(ServerView("s1").answered(5.0, info=None)) is None
    assert Sample.of(ServerView("s1")) is None
