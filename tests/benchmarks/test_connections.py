"""The measurement of many connections, with a few."""

import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.__main__ import main
from benchmarks.harness.build import ROOT
from benchmarks.harness.crowd import Habits, crowd
from benchmarks.harness.rounds import Bench, until
from benchmarks.harness.servers import daemon
from benchmarks.harness.wire import Broker, Wire, native_request, register, route_request, topics
from benchmarks.peers.connections import brokers, measured, ours_with, watch_after, watched_topics
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.frames import cut_frame

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs need epoll, the harness /proc")

MEMBERS = 5


def test_members_of_a_crowd_go_on_requesting() -> None:
    """Members request again after each response, and connect from the addresses in turn."""
    habits = Habits(every_seconds=0.01, addresses=2)
    with daemon(Bench()) as server, Wire(server) as wire:
        register(wire, [Broker("a", "10.0.0.1:10911", topics("T%d", 2))])
        with crowd(server, [route_request("T0")], members=MEMBERS, habits=habits) as clients:
            assert clients.served() >= clients.began_at
            until("each has requested three times", lambda: clients.responses.count >= 3 * MEMBERS)
            listed = wire.native(RequestCode.LIST_CONNECTIONS)["connections"]

    addresses = [each["peer"].rpartition(":")[0] for each in listed]
    assert (addresses.count("127.0.0.2"), addresses.count("127.0.0.3")) == (3, 2)


def test_watching_members_are_notified_of_each_change() -> None:
    """A member that is served watches; after a notification it watches again, from the revision of that."""
    broker = Broker("a", "10.0.0.1:10911", topics("T%d", 2))
    first = native_request(RequestCode.PULL_ROUTES, topics=["T0"])
    habits = Habits(every_seconds=0.0, following=watch_after)
    with daemon(Bench()) as server, Wire(server) as wire:
        register(wire, [broker])
        with crowd(server, [first], members=MEMBERS, habits=habits) as clients:
            for number in (1, 2):
                until("all watch", lambda: wire.info()["watchers"] == MEMBERS)
                assert clients.responses.count == number * MEMBERS
                broker = broker.changed(read_queue_nums=3 + number)
                register(wire, [broker])
            until("all are notified again", lambda: clients.responses.count == 3 * MEMBERS)


def test_watch_follows_from_the_response() -> None:
    """The watch has the topics of the first request, and goes on where the response ended."""
    first = native_request(RequestCode.PULL_ROUTES, topics=["T0", "T1"])
    response = native_request(0, boot_id="b", revision=7, routes={}, complete=True)

    watch = msgspec.msgpack.decode(cut_frame(watch_after(first, cut_frame(response))).body)

    assert watch == {"topics": ["T0", "T1"], "boot_id": "b", "since": 7, "wait_ms": 300_000}


def test_each_topic_is_on_four_brokers() -> None:
    """A broker has 20 topics, and a fifth of the watching clients has one of them."""
    fleet = brokers()
    holders = [broker.name for broker in fleet if "ConnectedTopic999" in {each.topic_name for each in broker.topics}]
    lost = {each.topic_name for each in fleet[0].topics}

    assert holders == ["broker-0", "broker-1", "broker-2", "broker-199"]
    assert len(lost) == 20
    assert sum(not lost.isdisjoint(watched_topics(client)) for client in range(1_000)) == 200


def test_missing_files_are_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of open files that is too low is one line, and the suite fails."""
    monkeypatch.chdir(ROOT)

    code = main(["peers", "--only", "connections", "--clients", "2000000000"])

    assert (code, capsys.readouterr().err.startswith("bench: ")) == (1, True)


@pytest.mark.slow
def test_few_connections_are_measured(tmp_path: Path) -> None:
    """A measurement with few clients ends, and has the figures of those that watch only if some do."""
    first, restarted = ours_with(40, tmp_path), ours_with(40, tmp_path, "--wait-for-service-seconds", "45")

    figures = measured(first, restarted, Bench(), 40, watching=20)

    assert {"connected.seconds", "death1.notified", "death100.notified", "restart.seconds"} <= figures.keys()
