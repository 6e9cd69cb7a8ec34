"""The health model: reports of servers in, problems out."""

from typing import Any

import pytest

from namesrv_client.health import (
    Affected,
    Broker,
    Gone,
    Missing,
    Problem,
    Server,
    failure_state,
    is_starting,
    missing_brokers,
    names_without_shares,
    problems,
    removals,
    state_of,
    subject_of,
    with_shares,
    write_shares,
)
from namesrv_remoting.bodies.extensions import Event, ServerInfo, ServerProblem
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.errors import (
    ConnectError,
    ConnectionClosedError,
    NoPermissionError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
)
from namesrv_remoting.health import LEVELS

MASTER, SLAVE, GROUP = ("c1", "a", 0), ("c1", "a", 1), ("c1", "a")


def broker(key: tuple[str, str, int] = MASTER, silent: float | None = 0.0, *, is_write_removed: bool = False) -> Broker:
    """A broker with an expiry of 120 s and three topics."""
    return Broker(key, silent, 120.0, 3, is_write_removed)


def server(*brokers: Broker, address: str = "s1", ready: bool = True, uptime: float = 60.0) -> Server:
    """A server with these brokers, and so many seconds since its start."""
    info = ServerInfo("b1", ready=ready, uptime_seconds=uptime, problems=[])
    return Server(address, state_of(info), info=info, brokers=brokers, is_starting=is_starting(info))


def reporting(*own: ServerProblem, ready: bool = True) -> Server:
    """A server that reports these problems of its own."""
    return Server("s1", "ready" if ready else "not_ready", info=ServerInfo("b1", ready=ready, problems=[*own]))


@pytest.mark.parametrize(
    ("report", "problem", "level"),
    [
        (server(broker(SLAVE)), Problem("without_master", "c1/a", ("s1",), count=3, group=GROUP), "critical"),
        (
            server(broker(silent=61), broker(SLAVE)),
            Problem("silent_master", "c1/a", ("s1",), count=3, group=GROUP),
            "critical",
        ),
        (
            server(broker(is_write_removed=True)),
            Problem("write_removed", "c1/a", ("s1",), count=3, group=GROUP),
            "warning",
        ),
        (Server("s1", "asking"), Problem("server_asked", "s1"), "unknown"),
        (Server("s1", "unreachable", "refused"), Problem("server_unreachable", "s1", why="refused"), "critical"),
        (Server("s1", "frozen", "no answer"), Problem("server_frozen", "s1", why="no answer"), "critical"),
        (Server("s1", "tls_failed", "expired"), Problem("tls_failed", "s1", why="expired"), "critical"),
        (Server("s1", "refuses", "denied"), Problem("server_refuses", "s1", why="denied"), "unknown"),
        (Server("s1", "ready", refusal="denied"), Problem("not_reported", "s1", why="denied"), "unknown"),
        (
            reporting(ServerProblem("server_not_ready", "waiting"), ready=False),
            Problem("server_not_ready", "s1", why="waiting"),
            "warning",
        ),
        (Server("s1", "answers", brokers=()), Problem("no_brokers", "s1"), "warning"),
        (
            reporting(ServerProblem("no_brokers", "none yet")),
            Problem("no_brokers", "s1", why="none yet"),
            "warning",
        ),
        (
            reporting(ServerProblem("disk_failing", "kv: full"), ServerProblem("of_a_newer_server")),
            Problem("disk_failing", "s1", why="kv: full"),
            "warning",
        ),
    ],
)
def test_each_failure_is_one_problem(report: Server, problem: Problem, level: str) -> None:
    """A failure yields one problem with its level, and an unknown problem of a newer server none."""
    assert problems([report]) == [problem]
    assert problem.level == level


def test_server_without_the_brokers_of_another_only_lacks_them() -> None:
    """Each of them is reported as missing, unless that is expected, as after a start."""
    assert problems([reporting(ServerProblem("no_brokers", "none yet")), server(broker(), address="s2")]) == []


@pytest.mark.parametrize("silent", [0.0, 60.0, None])
def test_group_with_heartbeats_is_healthy(silent: float | None) -> None:
    """A master may be silent for half of its expiry; of Apache's server only the missing of a master is known."""
    assert problems([server(broker(silent=silent), broker(SLAVE, silent))]) == []


def test_duration_is_as_long_as_any_server_reports() -> None:
    """A silent master is silent since its last heartbeat, and a master is missing since its removal."""
    one = Server("s1", "ready", brokers=[broker(SLAVE)], removals={MASTER: 7.0})
    two = Server("s2", "ready", brokers=[broker(SLAVE)])
    (missing,) = problems([one, two])
    (silent,) = problems([server(broker(silent=75.0), broker(SLAVE))])

    assert (missing.servers, missing.seconds, silent.seconds) == (("s1", "s2"), 7.0, 75.0)


def test_last_removal_counts_by_the_servers_own_clock() -> None:
    """Ages of events come from the server's start and uptime, so that clocks of other machines do not matter."""
    fields: dict[str, Any] = {"cluster": "c1", "broker_name": "a", "broker_id": 0}
    events = [
        Event(1, "evict", 1_000_000, {**fields, "reason": "silent"}),
        Event(2, "evict", 1_050_000, {**fields, "reason": "disconnected"}),
        Event(3, "register", 1_060_000, dict(fields)),
    ]

    assert removals(events, ServerInfo("b", started_ms=1_000_000, uptime_seconds=62.0)) == {MASTER: 12.0}


def test_brokers_that_left_are_problems_unless_they_unregistered() -> None:
    """A group without any broker is critical, one broker of a group a warning, and a planned stop neither."""
    slave, other = Gone(SLAVE, 1.0, "disconnected", 3), Gone(("c1", "b", 0), 1.0, "unregistered", 2)
    last = Gone(MASTER, 1.0, "silent", 3, Affected(8, 16, 3))

    assert problems([server(broker())], gone=[slave, other]) == [
        Problem("broker_gone", "c1/a/1", why="disconnected", count=3, group=GROUP)
    ]
    assert problems([server()], gone=[last, slave]) == [
        Problem("group_gone", "c1/a", why="disconnected", count=3, affected=Affected(8, 16, 3), group=GROUP)
    ]


@pytest.mark.parametrize(
    ("key", "subject"),
    [
        (("c1", "broker-a", 0), "c1/broker-a/0"),
        (("", "broker-a"), "broker-a"),
        (("a/b", "c"), "a%2Fb/c"),
        (("a", "b/c"), "a/b%2Fc"),
        (("a%2Fb", "c"), "a%252Fb/c"),
    ],
)
def test_brokers_and_groups_have_subjects_of_their_own(key: tuple[str, str], subject: str) -> None:
    """A slash in the name of a cluster or a broker separates nothing."""
    assert subject_of(key) == subject


def test_differences_between_servers_are_problems() -> None:
    """A broker that a ready server lacks is named, with the highest known number of topics; others are counted."""
    one, two = server(broker()), server(address="s2")
    waiting = Server("s3", "not_ready", brokers=[])
    # Apache's server reports no topics of its brokers.
    apache = Server("s4", "answers", brokers=[Broker(MASTER)])

    assert missing_brokers([one, two, waiting, apache]) == [Missing(MASTER, ("s2",), 3)]
    assert problems([one, two], missing=missing_brokers([one, two]), disagreements=2) == [
        Problem("missing_broker", "c1/a/0", ("s2",), count=3, group=GROUP),
        Problem("disagreement", "", count=2),
    ]


@pytest.mark.parametrize(
    ("ready", "uptime", "other", "without_master_on"),
    [
        # The master has registered with the other server, and registers with this one in a moment.
        (False, 2.0, [broker(), broker(SLAVE)], []),
        (True, 2.0, [broker(), broker(SLAVE)], []),
        (True, 40.0, [broker(), broker(SLAVE)], ["s1"]),
        # A server that is not ready gives no routes, so that its clients do not miss the master.
        (False, 60.0, [], []),
        (False, 2.0, [broker(SLAVE)], ["s2"]),
        (True, 2.0, [broker(SLAVE)], ["s1", "s2"]),
        (True, 2.0, [], ["s1"]),
    ],
)
def test_starting_server_may_lack_a_master(
    ready: bool, uptime: float, other: list[Broker], without_master_on: list[str]
) -> None:
    """A slave may register first with a server that has just started."""
    starting = server(broker(SLAVE), ready=ready, uptime=uptime)

    found = problems([starting, server(*other, address="s2")])

    assert [one.kind for one in found] == ["without_master"] * bool(without_master_on)
    assert [server for one in found for server in one.servers] == without_master_on


def test_worst_problem_is_first_and_has_numbers() -> None:
    """The affected queues are those of the group among all queues of its topics."""
    route = TopicRouteData([], [QueueData("a", 4, 4, 6), QueueData("b", 8, 8, 6)])
    other = TopicRouteData([], [QueueData("b", 8, 8, 6)])
    found = problems([Server("s0", "asking"), server(broker(SLAVE))])

    assert [one.kind for one in found] == ["without_master", "server_asked"]
    assert names_without_shares(found) == {"a"}
    shares = write_shares([("T", route), ("U", route), ("V", other)], names_without_shares(found))
    assert [one.affected for one in with_shares(found, shares)] == [Affected(8, 24, 2), None]
    assert write_shares([("T", route)], ["a"]) == {"a": Affected(4, 12, 1, "T")}


def caused_by(cause: Exception) -> RemotingError:
    """The error of a request whose connection ended for this reason."""
    error = ConnectionClosedError("connection closed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (RequestTimeoutError("2 s"), "frozen"),
        (ConnectError("refused"), "unreachable"),
        (ConnectionClosedError("closed by the peer"), "unreachable"),
        (caused_by(RemoteProtocolError("frame of 1213486160 bytes")), "protocol_error"),
        (caused_by(RemoteProtocolError("TLS received where plain text is expected", reason="tls")), "tls_failed"),
        (NoPermissionError("denied"), "refuses"),
    ],
)
def test_error_says_whether_a_server_hangs(error: RemotingError, state: str) -> None:
    """A missing response leaves open whether the server runs; a port of another protocol is not unreachable."""
    assert failure_state(error) == state


@pytest.mark.parametrize("kind", LEVELS)
def test_every_problem_but_a_pending_request_has_a_command(kind: object) -> None:
    """The command looks closer at the subject."""
    problem = Problem(kind, "s1")  # type: ignore[arg-type]  # the parameter is a key of LEVELS

    assert problem.command.startswith("namesrvctl ") is (kind != "server_asked")
