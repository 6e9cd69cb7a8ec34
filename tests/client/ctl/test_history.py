"""The command `history`: the changes of a topic's route."""

from pathlib import Path

import pytest

from tests.support.ctl import at, ctl, one_server, run
from tests.support.heartbeat_lines import HeartbeatLines, member
from tests.support.namesrv_peer import MASTER, OTHER, native_registration
from tests.support.spark_logs import write_log, write_plain

CLOCKS = "times are those of each server's clock; the order across servers is as exact as these clocks"
REMOVED = ["2026-03-01 00:03:05.001", "ns-1", "2", "-broker-a:0", "broker-b:0"]


async def test_history_from_a_servers_events(tmp_path: Path) -> None:
    """`history` lists the changes of the topic, or the last one before --at, without those of other topics."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, native_registration("T", "U"), spelling="native")
        await server.clock.advance(10)
        await peer.call(104, MASTER.ext)
        await peer.register(OTHER, native_registration("T"), spelling="native")
        await peer.call(205, {"brokerName": OTHER.name})
        await peer.call(327, {"brokerName": OTHER.name})
        await peer.call(216, {"topic": "T"})

        shown = await ctl(*at(where), "history", "T")
        at_first = await ctl(*at(where), "history", "T", "--at", "2023-11-14 22:13:20.000")
        before = await ctl(*at(where), "history", "T", "--at", "2023-11-14T22:13:19")
        other = await ctl(*at(where), "history", "X", "-o", "json")
        document = (await ctl(*at(where), "history", "T", "-o", "json")).json

    first, second = (["2023-11-14 22:13:20.000", "1", "2"], ["2023-11-14 22:13:30.000", "2", "2"])
    first.append("broker-a/0 registered")
    second.append("broker-a/0 removed (unregistered)")
    changed = [
        ("3", "broker-b/0 registered"),
        ("4", "broker-b write permission removed"),
        ("5", "broker-b write permission added"),
        ("6", "-"),
    ]
    later = [[second[0], revision, "1", broker] for revision, broker in changed]
    assert shown.cells == [["TIME (UTC)", "REVISION", "TOPICS CHANGED", "BROKER"], first, second, *later]
    causes = [change["causes"] for change in document["servers"][0]["changes"]]
    kinds = [[cause["event"] for cause in found] for found in causes]
    assert kinds == [["register"], ["evict"], ["register"], ["write_permission"], ["write_permission"], []]
    assert at_first.cells[1:] == [first]
    known = "among the last 1000 events; older ones are in the heartbeat logs: --logs DIR"
    absent = f"no change of T until 2023-11-14 22:13:19.000 {known}"
    assert (before.code, before.problems[0].partition(": ")[2]) == (1, absent)
    assert (other.code, other.json["servers"][0]["changes"]) == (1, [])


async def test_a_change_of_many_topics_is_perhaps_one_of_this_topic(tmp_path: Path) -> None:
    """The event of a large change names its first topics only."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        topics = [f"T{number}" for number in range(200)]
        await peer.register(MASTER, native_registration(*topics), spelling="native")

        first = await ctl(*at(where), "history", "T0")
        other = await ctl(*at(where), "history", "absent")
        document = (await ctl(*at(where), "history", "absent", "-o", "json")).json

    assert first.cells[0] == ["TIME (UTC)", "REVISION", "TOPICS CHANGED", "BROKER"]
    assert other.cells[0] == ["TIME (UTC)", "REVISION", "TOPICS CHANGED", "THIS TOPIC", "BROKER"]
    assert other.cells[1][2:] == ["200", "perhaps", "broker-a/0 registered"]
    assert [change["certain"] for change in document["servers"][0]["changes"]] == [False]


def test_history_from_logs(tmp_path: Path) -> None:
    """Heartbeat logs show the routes of servers that need not run."""
    logs = str(write_log(tmp_path))

    shown = run("history", "t", "--logs", logs)
    absent = run("history", "absent", "--logs", logs)

    first = ["2026-03-01 00:00:00.100", "ns-1", "1", "+broker-a:0 +broker-b:0", "broker-a:0 broker-b:0"]
    assert shown.cells == [["TIME (UTC)", "SERVER", "REVISION", "CHANGE", "ROUTE"], first, REMOVED]
    assert (absent.code, absent.lines, len(absent.problems)) == (1, [], 1)
    assert absent.problems[0].startswith("no change of absent in the logs of the week before 2026-03-01 01:00:00")


def test_change_of_a_route_whose_brokers_stay_is_not_empty(tmp_path: Path) -> None:
    """The logs have the brokers of each route: of a removed write permission they show that something else changed."""
    lines = HeartbeatLines("boot-1", "ns-1").start().route(100, 1, member()).route(200, 2, member())
    write_plain(tmp_path, "ns-1-1.jsonl", lines.lines)

    shown = run("history", "t", "--logs", str(tmp_path))

    assert [row[3:] for row in shown.cells[1:]] == [
        ["+broker-a:0", "broker-a:0"],
        ["permissions, queues or addresses", "broker-a:0"],
    ]


def test_order_of_several_servers_is_that_of_their_clocks(tmp_path: Path) -> None:
    """The changes of two servers are in one list, although their clocks may differ; those of one need no remark."""
    for name, at_ms in (("ns-1", 100), ("ns-2", 200)):
        lines = HeartbeatLines(f"boot-{name}", name).start().route(at_ms, 1, member())
        write_plain(tmp_path / name, f"{name}-1.jsonl", lines.lines)

    one, both = (run("history", "t", "--logs", str(logs)) for logs in (tmp_path / "ns-1", tmp_path))

    assert ([row[1] for row in one.cells[1:]], one.problems) == (["ns-1"], [])
    assert [row[1] for row in both.cells[1:]] == ["ns-1", "ns-2"]
    assert both.problems == [CLOCKS]


@pytest.mark.usefixtures("shanghai")
@pytest.mark.parametrize("time", ["2026-03-01T00:03:10", REMOVED[0]])
def test_history_from_logs_at_a_time(tmp_path: Path, time: str) -> None:
    """At a time the logs show each server's route, and clients that still had an older one."""
    logs = str(write_log(tmp_path))

    shown = run("history", "t", "--logs", logs, "--at", time)

    assert shown.cells == [
        ["SERVER", "ROUTE", "SINCE (UTC)"],
        ["ns-1", "broker-b:0", "2026-03-01 00:03:05.001"],
        ["ns-2", "not in the logs", "-"],
        [],
        ["CLIENT", "SERVER", "RECEIVED AT (UTC)", "ROUTE", "STATE"],
        ["k#1", "ns-1", "2026-03-01 00:00:00.200", "broker-a:0 broker-b:0", "old"],
    ]
    assert shown.problems == [CLOCKS]


def test_a_server_without_lines_around_the_time_may_have_been_running(tmp_path: Path) -> None:
    """A gap in the logs does not prove that the server was down."""
    logs = str(write_log(tmp_path))

    shown = run("history", "t", "--logs", logs, "--at", "2026-03-01T00:50:00")

    unknown = "not running, or its log is missing"
    assert shown.cells == [["SERVER", "ROUTE"], ["ns-1", unknown], ["ns-2", unknown]]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--at", "nonsense"), "for --at: not a valid time: 'nonsense'"),
        (("--logs", "DIR", "--at", "nonsense"), "for --at: not a valid time: 'nonsense'"),
        (("--logs", "absent"), "absent: no such directory"),
        # without a time all logs are read: the span from 1970 to 2200 would not help
        (("--logs", "EMPTY"), "for --logs: no log in EMPTY "),
        (("--logs", "DIR", "--at", "2020-01-01"), "no log from 2019-12-24T23:00:00 to 2020-01-01T00:00:00"),
        (("--logs", "DIR", "--watch", "2s"), "this command cannot be repeated"),
    ],
)
def test_wrong_usage_is_reported(tmp_path: Path, options: tuple[str, ...], problem: str) -> None:
    """The message names the wrong value, and the exit code is 2."""
    (tmp_path / "empty").mkdir()
    places = {"DIR": str(write_log(tmp_path / "logs")), "EMPTY": str(tmp_path / "empty")}

    refused = run("history", "t", *(places.get(word, word) for word in options), env={"COLUMNS": "300"})

    assert refused.code == 2
    assert problem.replace("EMPTY", places["EMPTY"]) in " ".join(refused.err.replace("│", " ").split())
