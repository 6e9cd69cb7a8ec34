"""The verdict over time: brokers that leave and return, servers that hang; test_promptness.py stages every failure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from namesrv_console.acknowledged import Acknowledgement, Acknowledgements
from namesrv_console.compared import Compared
from namesrv_console.health import Health, Report
from namesrv_console.poller import Observed
from namesrv_console.state import BrokerKey, Cluster, TopicReport, seen_brokers
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
        await acknowledge_all(shown.console.health, observed.cluster, one.clock.wall() + 3600)
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


READY: Final = ServerInfo("boot", ready=True, started_ms=0, uptime_seconds=500.0)


class Judge:
    """The health of servers whose responses a test puts."""

    def __init__(self, *servers: str, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.observed = Observed(servers)
        compared = Compared(self.observed, self.clock)
        self.health = Health(self.observed, compared, self.clock, Acknowledgements(None, ()))

    @property
    def report(self) -> Report:
        return self.health.report(self.observed.cluster)

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.report.problems]

    def put(self, server: str, *brokers: LiveBroker, info: ServerInfo | None = READY, **fields: Any) -> None:
        """Put a response of a server."""
        view = self.observed.cluster.server(server).answered(self.clock.monotonic(), info=info)
        self.observed.put(replace(view, brokers=seen_brokers({}, brokers, self.clock.monotonic()), **fields))

    def lose(self, server: str) -> None:
        """Put a timeout of a server."""
        self.observed.put(self.observed.cluster.server(server).lost("timeout", self.clock.monotonic()))


def instance(broker_id: int, **fields: Any) -> LiveBroker:
    """An instance of the group."""
    return LiveBroker("c1", "a", broker_id, f"h:{broker_id}", **fields)


MASTER_HERE, SLAVE_HERE = instance(0), instance(1)


def test_broker_that_left_while_servers_did_not_respond_is_gone() -> None:
    """Both servers had the broker; when they respond again, one after the other, neither has it."""
    judge = Judge("s1", "s2")

    def judged(**brokers: list[LiveBroker]) -> list[str]:
        for server in ("s1", "s2"):
            if server in brokers:
                judge.put(server, *brokers[server])
            else:
                judge.lose(server)
            judge.health.report(judge.observed.cluster)
        return judge.kinds

    assert judged(s1=[MASTER_HERE], s2=[MASTER_HERE]) == []
    assert judged(s2=[MASTER_HERE]) == ["server_unreachable"]
    assert judged() == ["server_unreachable"] * 2
    assert judged(s1=[]) == ["group_gone", "server_unreachable"]
    assert judged(s1=[], s2=[]) == ["group_gone"]
    judge.health.dismiss(BrokerKey("c1", "a", 0))
    assert judged(s1=[], s2=[]) == []


def test_group_is_not_gone_because_servers_do_not_respond() -> None:
    """The master has left; then the only server that had the group is unreachable, and the slave may still be there."""
    judge = Judge("s1", "s2")
    judge.lose("s2")
    judge.put("s1", MASTER_HERE, SLAVE_HERE)
    assert judge.kinds == ["server_unreachable"]
    judge.put("s1", SLAVE_HERE)
    assert judge.kinds == ["without_master", "server_unreachable", "broker_gone"]

    judge.lose("s1")
    assert judge.kinds == ["server_unreachable", "server_unreachable", "broker_gone"]
    judge.put("s2")
    assert judge.kinds == ["server_unreachable", "broker_gone"]
    judge.lose("s2")
    judge.put("s1")
    assert judge.kinds == ["group_gone", "server_unreachable"]


def test_broker_that_was_dismissed_stays_dismissed_when_its_other_server_responds() -> None:
    """The operator knows that the broker has left, also on the server that did not respond then."""
    judge = Judge("s1", "s2")
    for server in ("s1", "s2"):
        judge.put(server, MASTER_HERE)
    assert judge.kinds == []
    judge.lose("s2")
    judge.put("s1")
    assert [one.key for one in judge.report.gone] == [("c1", "a", 0)]

    judge.health.dismiss(BrokerKey("c1", "a", 0))
    judge.put("s2")

    assert list(judge.report.gone) == []


def test_server_without_a_first_response_has_been_asked_since_the_start() -> None:
    """The clock of a machine counts from its boot, not from the console's start."""
    report = Judge("s1", clock=FakeClock(monotonic=50_000.0)).report

    assert [(one.kind, report.since_of(one)) for one in report.problems] == [("server_asked", 50_000.0)]


def event(seq: int, name: str, **fields: Any) -> Event:
    """An event about the master of the group."""
    return Event(seq, name, 0, {"cluster": "c1", "broker_name": "a", "broker_id": 0, **fields})


def judged(
    judge: Judge, brokers: Sequence[LiveBroker], *events: Event, seq: int | None = None
) -> list[tuple[str, str]]:
    """Kind and reason of the problems after a response of a server; `seq` is the last event before its brokers."""
    judge.put("s1", *brokers, events=events, brokers_seq=len(events) if seq is None else seq)
    return [(one.kind, one.why) for one in judge.report.problems]


def test_reason_of_a_removal_may_arrive_after_the_brokers() -> None:
    """Events and brokers are two responses; the removal of an earlier registration says nothing about this one."""
    judge = Judge("s1")
    old = event(1, "register"), event(2, "evict", reason="unregistered"), event(3, "register")
    crash = event(4, "evict", reason="disconnected")

    assert judged(judge, [MASTER_HERE], *old) == []
    assert judged(judge, [], *old) == [("group_gone", "")]
    assert judged(judge, [], *old, crash) == [("group_gone", "disconnected")]

    again, stop = event(5, "register"), event(6, "evict", reason="unregistered")
    assert judged(judge, [MASTER_HERE], *old, crash, again) == []
    assert judged(judge, [], *old, crash, again) == [("group_gone", "")]
    assert judged(judge, [], *old, crash, again, stop) == []
    assert [one.reason for one in judge.report.gone] == ["unregistered"]


def test_reason_of_a_removal_may_arrive_before_the_brokers() -> None:
    """The server reported the removal, and then, a moment later, that it does not have the broker."""
    judge = Judge("s1")
    events = event(1, "register"), event(2, "evict", reason="unregistered")
    judged(judge, [MASTER_HERE], *events, seq=1)

    assert judged(judge, [], *events) == []
    assert [one.reason for one in judge.report.gone] == ["unregistered"]


def test_apache_server_leaves_reason_and_topics_of_a_removal_to_the_others() -> None:
    """Apache's server reports neither; a removal from which the broker has returned says nothing about this one."""
    judge = Judge("ours", "apache", "lacking")

    def gone(ours: list[LiveBroker], apache: list[LiveBroker], *events: Event) -> list[tuple[str, int]]:
        judge.put("ours", *ours, events=events, brokers_seq=len(events))
        judge.put("apache", *apache, info=None)
        judge.put("lacking")
        return [(one.reason, one.topics) for one in judge.report.gone]

    known, plain = [instance(0, topics=3)], [MASTER_HERE]
    silent = event(1, "register"), event(2, "evict", reason="silent")
    crashed = *silent, event(3, "register"), event(4, "evict", reason="disconnected")
    assert gone(known, plain, *silent[:1]) == []
    assert gone([], plain, *silent) == []
    assert gone(known, plain, *crashed[:3]) == []
    assert gone([], [], *crashed) == [("disconnected", 3)]

    stopped = *crashed, event(5, "register"), event(6, "evict", reason="unregistered")
    assert gone(known, plain, *stopped[:5]) == []
    assert gone([], plain, *stopped) == []
    assert gone([], [], *stopped) == [("unregistered", 3)]


def test_broker_with_a_new_id_is_not_gone() -> None:
    """After a failover the group lacks an instance until the former master is back, as a slave with another id."""
    judge = Judge("s1")
    judge.put("s1", MASTER_HERE, instance(2))
    assert judge.kinds == []

    new_master = LiveBroker("c1", "a", 0, "h:2")
    judge.put("s1", new_master)
    assert [(one.kind, one.subject) for one in judge.report.problems] == [("broker_gone", "c1/a/2")]
    judge.put("s1", new_master, LiveBroker("c1", "a", 1, "h:0"))
    assert (list(judge.report.gone), judge.kinds) == ([], [])


async def acknowledge_all(health: Health, cluster: Cluster, until: float) -> None:
    """Acknowledge every problem of a cluster."""
    for problem in health.report(cluster).problems:
        extent = health.extent_of(problem, cluster)
        await health.acknowledge(problem, Acknowledgement(*problem.key, "olga", "known", until, extent))


async def levels_after(judge: Judge, *states: Callable[[], None]) -> list[str]:
    """Levels of the verdict in these states, of which the first one is acknowledged."""
    states[0]()
    await acknowledge_all(judge.health, judge.observed.cluster, judge.clock.wall() + 3600)
    levels: list[str] = []
    for state in states:
        state()
        # A reason alone is no new revision: the console judges the cluster again at intervals.
        judge.observed.renew()
        levels.append(judge.report.verdict.level)
    return levels


async def test_acknowledgement_covers_only_the_acknowledged_differences() -> None:
    """All differences are one problem: a difference that is not acknowledged alarms, also in place of another one."""
    judge = Judge("s1", "s2")
    info = ServerInfo("boot", ready=True, revision=1, uptime_seconds=500.0)

    def differ(topics: str) -> None:
        for server, queues in (("s1", 8), ("s2", 4)):
            route = TopicRouteData([BrokerData("c1", "a", {0: "h:1"})], [QueueData("a", queues, queues, 6)])
            routes = dict.fromkeys(topics, route)
            judge.put(server, info=info, topic_report=TopicReport(frozenset(topics), routes, 1))

    states = (partial(differ, topics) for topics in ("TU", "T", "TUV", "TV", "U"))
    assert await levels_after(judge, *states) == ["acknowledged", "acknowledged", "warning", "warning", "acknowledged"]


@pytest.mark.parametrize(
    ("left", "alarm"), [([], "warning"), ([SLAVE_HERE], "critical")], ids=["missing_broker", "without_master"]
)
async def test_acknowledgement_covers_only_the_acknowledged_servers(left: list[LiveBroker], alarm: str) -> None:
    """An operator knows that one server lacks the broker; clients of any other server cannot reach it either."""
    judge = Judge("s1", "s2", "s3")

    def lack(*lacking: str) -> None:
        for server in ("s1", "s2", "s3"):
            judge.put(server, *(left if server in lacking else [MASTER_HERE, SLAVE_HERE]))

    states = (partial(lack, *servers) for servers in (["s2"], ["s2", "s3"], ["s3"], ["s2"]))
    assert await levels_after(judge, *states) == ["acknowledged", alarm, alarm, "acknowledged"]


@pytest.mark.parametrize(
    ("kind", "known", "other"),
    [
        ("certificate_expires", "certificate expires", "certificate expired"),
        ("certificate_expires", "certificate expires", "revocation list expires"),
        ("certificate_expires", "certificate expires", "revocation list expired"),
        ("disk_failing", "kv", "audit"),
    ],
)
async def test_acknowledgement_covers_only_the_acknowledged_causes(kind: str, known: str, other: str) -> None:
    """The reason may change, as does the time that is left, but another cause alarms, also beside the known one."""
    judge = Judge("s1")

    def report(why: str, *causes: str) -> None:
        problem = ServerProblem(kind, why, list(causes))
        judge.put("s1", info=ServerInfo("boot", ready=True, uptime_seconds=500.0, problems=[problem]))

    states = (partial(report, *about) for about in (("", known), ("later", known), ("", other), ("", known, other)))
    assert await levels_after(judge, *states) == ["acknowledged", "acknowledged", "warning", "warning"]
