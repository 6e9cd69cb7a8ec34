"""The verdict over time: brokers that leave and return, servers that hang; test_promptness.py stages every failure."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from namesrv_console.acknowledged import Acknowledgement, Acknowledgements
from namesrv_console.compared import Compared
from namesrv_console.health import JUDGEMENT_SECONDS, Health, Report
from namesrv_console.poller import Observed
from namesrv_console.state import BrokerKey, Cluster, ServerView, seen_brokers
from namesrv_remoting.bodies.extensions import Event, LiveBroker, ServerInfo, ServerProblem
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.support.console import Shown, console_behind_proxy, console_of_two
from tests.support.fake_clock import FakeClock, passing
from tests.support.namesrv_peer import MASTER, registration


def report(shown: Shown) -> Report:
    """The newest report."""
    return shown.console.health.report(shown.console.observed.cluster)


def kinds(shown: Shown) -> list[str]:
    """The kinds of all problems."""
    return [one.kind for one in report(shown).problems]


async def test_killed_group_is_gone_although_a_hung_server_had_it(tmp_path: Path) -> None:
    """A server that hangs before it can report a broker's death does not make the broker look alive."""
    async with console_behind_proxy(tmp_path) as (one, two, way, shown):
        peers = [(server, await server.connect()) for server in (one, two)]
        for _, peer in peers:
            await peer.register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: report(shown).verdict.agrees and report(shown).verdict.brokers == 1)

        way.stall()
        for server, peer in peers:
            await server.hang_up(peer)
        await passing(one.clock, lambda: kinds(shown) == ["group_gone", "server_frozen", "no_brokers"])

        again = await one.connect()
        await again.register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: kinds(shown) == ["server_frozen"])


async def test_problem_lasts_while_its_server_hangs(tmp_path: Path) -> None:
    """Starts and acknowledgements are the same once the server responds again, unless the problem is over by then."""
    async with console_behind_proxy(tmp_path) as (one, two, way, shown):
        for server in (one, two):
            await (await server.connect()).register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: report(shown).verdict.agrees and report(shown).verdict.topics == 2)
        await (await two.connect()).call(205, {"brokerName": MASTER.name})
        await passing(one.clock, lambda: kinds(shown) == ["disagreement", "write_removed"])
        before, observed = report(shown), shown.console.observed
        await acknowledge_all(shown.console.health, before, observed.cluster, one.clock.wall() + 3600)
        differences = {it.key: it.since for it in shown.console.compared.disagreements(observed.cluster)}

        way.stall()
        await passing(one.clock, lambda: kinds(shown) == ["server_frozen"])
        await way.heal()
        await passing(one.clock, lambda: kinds(shown) == ["disagreement", "write_removed"])

        assert report(shown).since == before.since
        assert report(shown).acknowledged.keys() == before.since.keys()
        found = shown.console.compared.disagreements(observed.cluster)
        assert {it.key: it.since for it in found} == differences

        way.stall()
        await passing(one.clock, lambda: kinds(shown) == ["server_frozen"])
        await (await two.connect()).call(327, {"brokerName": MASTER.name})
        await way.heal()
        await passing(one.clock, lambda: kinds(shown) == [])
        await (await two.connect()).call(205, {"brokerName": MASTER.name})
        await passing(one.clock, lambda: kinds(shown) == ["disagreement", "write_removed"])
        assert report(shown).acknowledged == {}


async def test_verdict_does_not_claim_agreement_beside_expected_differences(tmp_path: Path) -> None:
    """A broker that registers with several servers in turn causes no problem, and the verdict names the difference."""
    async with console_of_two(tmp_path) as (one, two, shown):
        await (await one.connect()).register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: (report(shown).verdict.brokers, report(shown).verdict.topics) == (1, 2))
        assert "1 broker, 2 topics, 2 servers, with expected differences" in await shown.text("/")

        await (await two.connect()).register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: report(shown).verdict.agrees)
        assert "1 broker, 2 topics, 2 servers agree" in await shown.text("/")


async def test_broker_of_one_server_that_leaves_ends_the_difference(tmp_path: Path) -> None:
    """A broker that never reached the other server stops: the report no longer names it, and the console goes on."""
    async with console_of_two(tmp_path) as (one, _, shown):
        broker = await one.connect()
        await broker.register(MASTER, registration())
        for _ in range(4):
            await one.clock.advance(20)
            await broker.call(904, MASTER.ext)
        await passing(one.clock, lambda: kinds(shown) == ["missing_broker"])

        await broker.call(104, MASTER.ext)
        await passing(one.clock, lambda: kinds(shown) == ["no_brokers"] * 2)
        assert (report(shown).verdict.brokers, report(shown).verdict.agrees) == (0, True)


def judge(name: str = "s1") -> Callable[..., Report]:
    """A function that returns the report after a response of a server: its brokers by id, and its events.

    `late` has the events that the server reported after its brokers.
    """
    clock, observed = FakeClock(), Observed([name])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))

    def judged(brokers: dict[int, str], *events: Event, late: Sequence[Event] = ()) -> Report:
        live = [LiveBroker("c1", "a", number, address) for number, address in brokers.items()]
        info = ServerInfo("boot", ready=True, started_ms=0, uptime_seconds=500.0)
        view = ServerView(name).answered(clock.monotonic(), info=info)
        view = replace(view, brokers=seen_brokers({}, live, clock.monotonic()), events=events)
        observed.put(replace(view, events=(*events, *late), brokers_seq=view.last_seq))
        return health.report(observed.cluster)

    return judged


async def test_master_falls_silent_without_any_response() -> None:
    """Time alone makes a master silent, and open pages receive the new verdict."""
    clock, observed = FakeClock(), Observed(["s1"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))
    live = [
        LiveBroker("c1", "a", number, f"h:{number}", age_seconds=age, expiry_seconds=120.0)
        for number, age in ((0, 59.0), (1, 10.0))
    ]
    info = ServerInfo("boot", ready=True, started_ms=0, uptime_seconds=500.0)
    view = ServerView("s1").answered(clock.monotonic(), info=info)
    observed.put(replace(view, brokers=seen_brokers({}, live, clock.monotonic())))
    judging = asyncio.create_task(health.run())
    await clock.advance(JUDGEMENT_SECONDS)
    before = observed.cluster.revision

    await clock.advance(1.0)

    assert [one.kind for one in health.report(observed.cluster).problems] == ["silent_master"]
    assert observed.cluster.revision > before
    judging.cancel()


def test_broker_that_left_while_servers_did_not_respond_is_gone() -> None:
    """Both servers had the broker; when they respond again, one after the other, neither has it."""
    clock, observed = FakeClock(), Observed(["s1", "s2"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))
    live = seen_brokers({}, [LiveBroker("c1", "a", 0, "h:1")], clock.monotonic())
    info = ServerInfo("boot", ready=True, started_ms=0, uptime_seconds=500.0)

    def judged(**brokers: Any) -> list[str]:
        for address in ("s1", "s2"):
            view = observed.cluster.server(address)
            if address in brokers:
                observed.put(replace(view.answered(clock.monotonic(), info=info), brokers=brokers[address]))
            else:
                observed.put(view.lost("timeout", clock.monotonic()))
            health.report(observed.cluster)
        return [one.kind for one in health.report(observed.cluster).problems]

    assert judged(s1=live, s2=live) == []
    assert judged(s2=live) == ["server_unreachable"]
    assert judged() == ["server_unreachable"] * 2
    assert judged(s1={}) == ["group_gone", "server_unreachable"]
    assert judged(s1={}, s2={}) == ["group_gone"]
    health.dismiss(BrokerKey("c1", "a", 0))
    assert judged(s1={}, s2={}) == []


def test_group_is_not_gone_because_servers_do_not_respond() -> None:
    """The master has left; then the only server that had the group is unreachable, and the slave may still be there."""
    clock, observed = FakeClock(), Observed(["s1", "s2"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))
    info = ServerInfo("boot", ready=True, started_ms=0, uptime_seconds=500.0)

    def judged(*brokers: int) -> list[str]:
        live = [LiveBroker("c1", "a", number, f"h:{number}") for number in brokers]
        view = observed.cluster.server("s1").answered(clock.monotonic(), info=info)
        observed.put(replace(view, brokers=seen_brokers({}, live, clock.monotonic())))
        health.report(observed.cluster)
        return lost("s2")

    def lost(*servers: str) -> list[str]:
        for server in servers:
            observed.put(observed.cluster.server(server).lost("refused", clock.monotonic()))
        return [one.kind for one in health.report(observed.cluster).problems]

    assert judged(0, 1) == ["server_unreachable"]
    assert judged(1) == ["without_master", "server_unreachable", "broker_gone"]
    assert lost("s1") == ["server_unreachable", "server_unreachable", "broker_gone"]
    observed.put(observed.cluster.server("s2").answered(clock.monotonic(), info=info))
    assert lost() == ["server_unreachable", "broker_gone"]
    assert judged() == ["group_gone", "server_unreachable"]


def test_broker_that_was_dismissed_stays_dismissed_when_its_other_server_responds() -> None:
    """The operator knows that the broker has left, also on the server that did not respond then."""
    clock, observed = FakeClock(), Observed(["s1", "s2"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))
    live = seen_brokers({}, [LiveBroker("c1", "a", 0, "h:1")], clock.monotonic())
    info = ServerInfo("boot", ready=True, started_ms=0, uptime_seconds=500.0)
    up = ServerView("s1").answered(0.0, info=info)
    observed.put(replace(up, brokers=live))
    observed.put(replace(up, address="s2", brokers=live))
    health.report(observed.cluster)
    observed.put(observed.cluster.server("s2").lost("timeout", 0.0))
    observed.put(up)
    assert [one.key for one in health.report(observed.cluster).gone] == [("c1", "a", 0)]

    health.dismiss(BrokerKey("c1", "a", 0))
    observed.put(replace(up, address="s2"))

    assert list(health.report(observed.cluster).gone) == []


def test_server_without_a_first_response_has_been_asked_since_the_start() -> None:
    """The clock of a machine counts from its boot, not from the console's start."""
    clock, observed = FakeClock(monotonic=50_000.0), Observed(["s1"])
    report = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ())).report(observed.cluster)

    assert [(one.kind, report.since_of(one)) for one in report.problems] == [("server_asked", 50_000.0)]


def event(seq: int, name: str, **fields: Any) -> Event:
    """An event about the master of the group."""
    return Event(seq, name, 0, {"cluster": "c1", "broker_name": "a", "broker_id": 0, **fields})


def test_reason_of_a_removal_may_arrive_after_the_brokers() -> None:
    """Events and brokers are two responses; the removal of an earlier registration says nothing about this one."""
    judged = judge()
    old = event(1, "register"), event(2, "evict", reason="unregistered"), event(3, "register")

    assert judged({0: "h:1"}, *old).problems == []
    crashed = judged({}, *old)
    assert [(one.kind, one.why) for one in crashed.problems] == [("group_gone", "")]
    crashed = judged({}, *old, event(4, "evict", reason="disconnected"))
    assert [(one.kind, one.why) for one in crashed.problems] == [("group_gone", "disconnected")]

    again, stop = event(5, "register"), event(6, "evict", reason="unregistered")
    assert judged({0: "h:1"}, again).problems == []
    assert [one.kind for one in judged({}, again).problems] == ["group_gone"]
    stopped = judged({}, again, stop)
    assert ([one.reason for one in stopped.gone], stopped.problems) == (["unregistered"], [])


def test_reason_of_a_removal_may_arrive_before_the_brokers() -> None:
    """The server reported the removal, and then, a moment later, that it does not have the broker."""
    judged = judge()
    judged({0: "h:1"}, event(1, "register"), late=[event(2, "evict", reason="unregistered")])

    stopped = judged({}, event(1, "register"), event(2, "evict", reason="unregistered"))
    assert ([one.reason for one in stopped.gone], stopped.problems) == (["unregistered"], [])


def test_apache_server_leaves_reason_and_topics_of_a_removal_to_the_others() -> None:
    """Apache's server reports neither; a removal from which the broker has returned says nothing about this one."""
    clock, observed = FakeClock(), Observed(["ours", "apache", "lacking"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))
    info = ServerInfo("boot", ready=True, started_ms=0, uptime_seconds=500.0)
    known = seen_brokers({}, [LiveBroker("c1", "a", 0, "h:1", topics=3)], clock.monotonic())
    plain = seen_brokers({}, [LiveBroker("c1", "a", 0, "h:1")], clock.monotonic())

    def judged(ours: Any, apache: Any, *events: Event) -> list[tuple[str, int]]:
        for address, brokers in (("ours", ours), ("apache", apache), ("lacking", {})):
            view = ServerView(address).answered(clock.monotonic(), info=None if address == "apache" else info)
            found = events if address == "ours" else ()
            observed.put(replace(view, brokers=brokers, events=found, brokers_seq=len(found)))
        return [(one.reason, one.topics) for one in health.report(observed.cluster).gone]

    silent = event(1, "register"), event(2, "evict", reason="silent")
    again, crashed = event(3, "register"), event(4, "evict", reason="disconnected")
    assert judged(known, plain, *silent[:1]) == []
    assert judged({}, plain, *silent) == []
    assert judged(known, plain, *silent, again) == []
    assert judged({}, {}, *silent, again, crashed) == [("disconnected", 3)]

    assert judged(known, plain, *silent, again, crashed, event(5, "register")) == []
    stopped = *silent, again, crashed, event(5, "register"), event(6, "evict", reason="unregistered")
    assert judged({}, plain, *stopped) == []
    assert judged({}, {}, *stopped) == [("unregistered", 3)]


def test_broker_with_a_new_id_is_not_gone() -> None:
    """After a failover the group lacks an instance until the former master is back, as a slave with another id."""
    judged = judge()
    judged({0: "h:1", 2: "h:2"})

    assert [(one.kind, one.subject) for one in judged({0: "h:2"}).problems] == [("broker_gone", "c1/a/2")]
    back = judged({0: "h:2", 1: "h:1"})
    assert (list(back.gone), back.problems) == ([], [])


async def acknowledge_all(health: Health, report: Report, cluster: Cluster, until: float) -> None:
    """Acknowledge every problem of a report."""
    for problem in report.problems:
        extent = health.extent_of(problem, cluster)
        await health.acknowledge(problem, Acknowledgement(*problem.key, "olga", "known", until, extent))


async def test_acknowledgement_covers_only_the_acknowledged_differences() -> None:
    """All differences are one problem: a difference that is not acknowledged alarms, also in place of another one."""
    clock, observed = FakeClock(), Observed(["s1", "s2"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))

    def differing(*topics: str) -> Report:
        info = ServerInfo("boot", ready=True, revision=1, uptime_seconds=500.0)
        for address, queues in (("s1", 8), ("s2", 4)):
            route = TopicRouteData([BrokerData("c1", "a", {0: "h:1"})], [QueueData("a", queues, queues, 6)])
            view = ServerView(address).answered(clock.monotonic(), info=info)
            routes = dict.fromkeys(topics, route)
            observed.put(replace(view, topics=frozenset(topics), routes=routes, routes_revision=1))
        return health.report(observed.cluster)

    await acknowledge_all(health, differing("T", "U"), observed.cluster, clock.wall() + 3600)

    assert [differing(*topics).verdict.level for topics in ("TU", "T", "TUV", "TV", "U")] == [
        "acknowledged",
        "acknowledged",
        "warning",
        "warning",
        "acknowledged",
    ]


@pytest.mark.parametrize("kind", ["missing_broker", "without_master"])
async def test_acknowledgement_covers_only_the_acknowledged_servers(kind: str) -> None:
    """An operator knows that one server lacks the broker; clients of any other server cannot reach it either."""
    clock, observed = FakeClock(), Observed(["s1", "s2", "s3"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))

    def missing_on(*lacking: str) -> Report:
        info = ServerInfo("boot", ready=True, uptime_seconds=500.0)
        for address in ("s1", "s2", "s3"):
            ids: tuple[int, ...] = (0, 1)
            if address in lacking:
                ids = () if kind == "missing_broker" else (1,)
            live = [LiveBroker("c1", "a", number, f"h:{number}") for number in ids]
            view = ServerView(address).answered(clock.monotonic(), info=info)
            observed.put(replace(view, brokers=seen_brokers({}, live, clock.monotonic())))
        return health.report(observed.cluster)

    await acknowledge_all(health, missing_on("s2"), observed.cluster, clock.wall() + 3600)

    levels = [missing_on(*servers).verdict.level for servers in (["s2"], ["s2", "s3"], ["s3"], ["s2"])]
    alarm = "warning" if kind == "missing_broker" else "critical"
    assert levels == ["acknowledged", alarm, alarm, "acknowledged"]


@pytest.mark.parametrize(
    ("kind", "known", "others"),
    [
        (
            "certificate_expires",
            "certificate expires",
            ["certificate expired", "revocation list expires", "revocation list expired"],
        ),
        ("disk_failing", "kv", ["audit"]),
    ],
)
async def test_acknowledgement_covers_only_the_acknowledged_causes(kind: str, known: str, others: list[str]) -> None:
    """The reason may change, as does the time that is left, but another cause alarms, also beside the known one."""
    clock, observed = FakeClock(), Observed(["s1"])
    health = Health(observed, Compared(observed, clock), clock, Acknowledgements(None, ()))

    def reporting(why: str, *causes: str) -> Report:
        problem = ServerProblem(kind, why, list(causes))
        info = ServerInfo("boot", ready=True, uptime_seconds=500.0, problems=[problem])
        observed.put(ServerView("s1").answered(clock.monotonic(), info=info))
        # Only the reason changes, which is no new revision: the console judges the cluster again at intervals.
        observed.renew()
        return health.report(observed.cluster)

    await acknowledge_all(health, reporting("at first", known), observed.cluster, clock.wall() + 3600)

    assert reporting("later", known).verdict.level == "acknowledged"
    for other in others:
        assert reporting("later", other).verdict.level == "warning"
        assert reporting("later", known, other).verdict.level == "warning"
