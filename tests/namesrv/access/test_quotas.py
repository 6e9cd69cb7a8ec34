"""Quotas: requests beyond the rate are delayed, then refused, the least important first."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.access.quotas import BURST_SECONDS, MAX_WAIT_SECONDS, Rank, RequestLimiter
from namesrv.observability.metrics import exposition
from namesrv.settings.limits import RequestQuotas
from namesrv_remoting.addresses import network_of
from tests.namesrv.access.test_matrix import QUEUES
from tests.support.fake_clock import FakeClock, settle, until
from tests.support.heartbeat_files import of, read_log
from tests.support.in_process import InProcess, guarded_namesrv, namesrv_in_process
from tests.support.namesrv_peer import Broker, NamesrvPeer, native_registration, registration, request_frame

PULL, TOPICS, BUSY, NO_PERMISSION = 105, 206, 2, 16
ORDERS = {"topic": "T"}


def limiter(clock: FakeClock, *, total: int = 1000, per_address: int = 10) -> RequestLimiter:
    """A limiter for these numbers of requests a second."""
    return RequestLimiter(quotas=RequestQuotas("enforce", total, per_address), clock=clock, on_refused=None)


@pytest.mark.parametrize(("idle", "pulls"), [(0.0, 14), (100.0, 15)])
@pytest.mark.settings(quotas="enforce", quota_requests_per_second=20)
async def test_requests_beyond_the_quota_are_delayed_then_refused(
    server: InProcess, peer: NamesrvPeer, idle: float, pulls: int
) -> None:
    """An address has a burst of ten seconds' worth of requests, of which the last quarter is kept from reads.

    The bucket holds 20 tokens. The registration takes one, which an idle time gives back. Route requests take the
    part above a quarter, two more are delayed, and the next gets SYSTEM_BUSY. Heartbeats use the rest.
    """
    await peer.register(Broker())
    await server.clock.advance(idle)
    assert [(await peer.call(PULL, ORDERS)).code for _ in range(pulls)] == [0] * pulls
    slow, slower = await server.connect(), await server.connect()
    slow_opaque, slower_opaque = slow.send_request(PULL, ORDERS), slower.send_request(PULL, ORDERS)
    await settle()
    refused = await peer.call(PULL, ORDERS)
    assert (
        refused.code,
        refused.remark,
    ) == (BUSY, "too many requests from one address, limit 2 a second; try again later")
    assert (await peer.call(TOPICS)).code == BUSY
    assert [(await peer.call(904, Broker().ext)).code for _ in range(3)] == [0] * 3

    await server.clock.advance(0.5)
    assert (await slow.response_to(slow_opaque)).code == 0
    await server.clock.advance(0.5)
    assert (await slower.response_to(slower_opaque)).code == 0
    ip = "requests_per_ip"
    assert server.limiter.exceeded == {
        ("route-read", ip, "delayed"): 2,
        ("route-read", ip, "refused"): 1,
        ("admin-read", ip, "refused"): 1,
    }
    await server.stop()
    refusals = of(read_log(server.data_dir / "audit"), "refusal")
    assert [(line["request"], line["reason"], line["peer"], line["about"]) for line in refusals] == [
        ("GET_ROUTEINFO_BY_TOPIC", f"quota_{ip}", peer.address, {"topic": "T"}),
        ("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", f"quota_{ip}", peer.address, {}),
    ]


async def test_refused_requests_do_not_use_up_the_brokers_quota(tmp_path: Path) -> None:
    """A request that the access file refuses draws from the quota as administration, with any code or signature.

    The common bucket holds 20 tokens. Strangers take half of them and two more after a delay. A registration and two
    route requests take the part above the quarter that is kept for heartbeats.
    """
    settings: dict[str, Any] = {"quotas": "enforce", "quota_requests_per_second": 2, "share_per_ip_percent": 100}
    async with guarded_namesrv(tmp_path, ACCESS.format("us"), **settings) as server:
        peer = await server.connect()
        strangers = [await NamesrvPeer.connect(server.address, source=f"127.0.1.{number + 1}") for number in range(20)]
        forged = {**FIRST.ext, "AccessKey": "us", "Signature": "d3Jvbmc="}
        assert {(await stranger.call(904, FIRST.ext)).code for stranger in strangers[:5]} == {NO_PERMISSION}
        assert {(await stranger.call(904, forged)).code for stranger in strangers[5:10]} == {NO_PERMISSION}
        for stranger in strangers[10:12]:
            stranger.send_request(904, FIRST.ext)
        await until(lambda: server.guard.refusals.total() == 12)
        assert {(await stranger.call(904, FIRST.ext)).code for stranger in strangers[12:]} == {BUSY}

        assert await registered(peer, FIRST, "T1", "T2") == (0, None)
        assert [(await peer.call(PULL, {"topic": "T1"})).code for _ in range(2)] == [0] * 2
        assert [(await peer.call(904, FIRST.ext)).code for _ in range(3)] == [0] * 3
        await server.clock.advance(MAX_WAIT_SECONDS)
        assert [(await stranger.receive()).code for stranger in strangers[10:12]] == [NO_PERMISSION] * 2
        for stranger in strangers:
            stranger.close()


@given(
    st.lists(st.tuples(st.sampled_from([Rank.READ, Rank.ADMINISTRATION]), st.floats(0, 0.2)), max_size=300),
    st.integers(1, 50),
)
def test_reads_never_delay_a_heartbeat(steps: list[tuple[Rank, float]], rate: int) -> None:
    """Reads and administration at any rate leave the heartbeats' part of the bucket."""
    clock = FakeClock()
    limits = limiter(clock, total=rate, per_address=rate)
    for rank, seconds in steps:
        clock.stall(seconds)
        limits.draw("10.0.0.1", rank)
    assert limits.draw("10.0.0.1", Rank.LIVENESS)[0] == 0.0


@given(st.lists(st.floats(0, 0.3), max_size=400), st.integers(1, 20))
def test_admitted_requests_are_bounded_by_the_rate(pauses: list[float], rate: int) -> None:
    """With any pauses, one address gets the burst, the allowed delay and the rate, and not more."""
    clock = FakeClock()
    limits = limiter(clock, total=10 * rate, per_address=rate)
    admitted = 0
    for pause in pauses:
        clock.stall(pause)
        admitted += limits.draw("10.0.0.1", Rank.LIVENESS)[0] <= MAX_WAIT_SECONDS
    assert admitted <= rate * (BURST_SECONDS + MAX_WAIT_SECONDS + sum(pauses)) + 1


def test_each_address_has_a_bucket_beside_the_common_one() -> None:
    """A fast address does not slow down another; all addresses together share the common limit."""
    limits = limiter(FakeClock(), total=10, per_address=1)
    found = [limits.draw("10.0.0.1", Rank.LIVENESS)[0] for _ in range(12)]
    assert found == [0.0] * 10 + [1.0, 2.0]
    assert limits.draw("10.0.0.2", Rank.LIVENESS)[0] == 0.0
    many = [limits.draw(f"10.0.1.{number}", Rank.LIVENESS) for number in range(120)]
    assert many[-1][1] == "requests"
    assert many[-1][0] > MAX_WAIT_SECONDS


@pytest.mark.parametrize("step_seconds", [3600.0, -3600.0])
def test_step_of_the_wall_clock_changes_no_bucket(step_seconds: float) -> None:
    """A clock set forward fills no bucket at once, and a clock set back leaves none empty for so long."""
    clock = FakeClock()
    limits = limiter(clock, per_address=1)

    def waits(requests: int) -> list[float]:
        return [limits.draw("10.0.0.1", Rank.LIVENESS)[0] for _ in range(requests)]

    assert waits(10) == [0.0] * 10
    clock.step_wall(step_seconds)
    assert waits(1) == [1.0]
    clock.stall(5.0)
    assert waits(5) == [0.0] * 4 + [1.0]


@pytest.mark.parametrize(
    ("ip", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::1]", "2001:db8:1:2::/64"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ("?", "?"),
    ],
)
def test_bucket_of_an_address(ip: str, network: str) -> None:
    """All IPv6 addresses of one /64 network share one bucket."""
    assert network_of(ip) == network


def test_buckets_of_quiet_addresses_are_removed() -> None:
    """The limiter keeps buckets of recently active addresses only."""
    clock = FakeClock()
    limits = limiter(clock)
    for number in range(3000):
        limits.draw(f"10.1.{number // 256}.{number % 256}", Rank.READ)
        clock.stall(0.1)
    assert "| 1024 networks" not in repr(limits)
    count = int(repr(limits).split("|")[1].split()[0])
    assert count <= 1024


def test_bucket_of_an_active_address_is_not_removed() -> None:
    """A new bucket is full: if a bucket in use were removed, its address could send another burst."""
    clock = FakeClock()
    limits = limiter(clock, total=10_000, per_address=1)
    for _ in range(10):
        limits.draw("10.0.0.1", Rank.LIVENESS)
    clock.stall(2.0)
    for number in range(1100):
        limits.draw(f"10.1.{number // 256}.{number % 256}", Rank.LIVENESS)

    assert [limits.draw("10.0.0.1", Rank.LIVENESS)[0] for _ in range(3)] == [0.0, 0.0, 1.0]


@pytest.mark.settings(quotas="observe", quota_requests_per_second=20)
async def test_observed_quotas_refuse_nothing(server: InProcess, peer: NamesrvPeer) -> None:
    """Requests beyond an observed quota are counted in the metric; one in 65 is in the audit trail."""
    await peer.register(Broker())
    assert [(await peer.call(PULL, ORDERS)).code for _ in range(200)] == [0] * 200
    counts = server.limiter.exceeded
    assert counts == {("route-read", "requests_per_ip", "observed"): 129}
    await server.stop()
    [line] = of(read_log(server.data_dir / "audit"), "refusal")
    assert (line["reason"], line["observed"]) == ("quota_requests_per_ip", True)


async def registered(peer: NamesrvPeer, broker: Broker, *topics: str) -> tuple[int, str | None]:
    """The response to a registration with these topics."""
    return (await peer.register(broker, registration(*topics))).outcome


FIRST, SECOND = Broker(), Broker("broker-b", 0, "10.0.0.2:10911")
ACCESS = '[accounts.{}]\nnetworks = ["127.0.0.1/32"]\nmay = ["route-read", "broker-control"]\n'


@pytest.mark.parametrize("scope", ["cluster", "account"])
async def test_quotas_of_topics_and_brokers(tmp_path: Path, scope: str) -> None:
    """A topic or broker beyond the quota of its cluster or account is refused, and registered brokers stay alive."""
    settings: dict[str, Any] = {"quota_topics": 4, "quota_brokers": 2, "quotas": "enforce"}
    name, is_account = ("us", True) if scope == "account" else ("cluster-1", False)
    # two clusters, so that only the account exceeds the quota
    second = SECOND._replace(cluster="cluster-2" if is_account else SECOND.cluster)
    async with guarded_namesrv(tmp_path, ACCESS.format("us"), **settings) as server:
        peer = await server.connect()
        assert await registered(peer, FIRST, "T1", "T2") == (0, None)
        assert await registered(peer, second, "T1", "T2") == (0, None)
        refusal = f"5 topics of {scope} {name}, limit 4"
        await server.clock.advance(100)
        await server.forget()
        assert await registered(peer, FIRST, "T1", "T2", "T3") == (BUSY, refusal)
        assert server.events("register") == []
        third = Broker("broker-c", 0, "10.0.0.3:10911", second.cluster)
        assert await registered(peer, third, "T1", "T2") == (BUSY, f"3 brokers of {scope} {name}, limit 2")
        # the same topics again do not exceed it
        assert await registered(peer, second, "T2", "T1") == (0, None)

        await server.clock.advance(100)
        tables = server.namesrv.manager.tables
        assert {live.broker_name for live in tables.broker_live_table.values()} == {"broker-a", "broker-b"}
        assert tables.topic_queue_table.keys() == {"T1", "T2"}
        assert server.namesrv.counters.quota_exceeded == {
            ("broker-control", f"topics_per_{scope}", "refused"): 1,
            ("broker-control", f"brokers_per_{scope}", "refused"): 1,
        }


@pytest.mark.parametrize("settings", [{"quotas": "enforce", "quota_topics": 2}, {"max_topics": 2}, {}])
async def test_refused_registration_counts_as_a_heartbeat(
    server: InProcess, peer: NamesrvPeer, settings: dict[str, Any]
) -> None:
    """A broker of RocketMQ 4, which sends only registrations, stays alive with its last accepted one."""
    assert await registered(peer, FIRST, "T1", "T2") == (0, None)
    # a body beyond a limit, or one that cannot be parsed
    body = registration("T1", "T2", "T3") if settings else b"{"
    for _ in range(3):
        await server.clock.advance(100)
        assert (await peer.register(FIRST, body)).code in {1, BUSY}
    assert (await peer.call(105, {"topic": "T1"})).code == 0

    # the same address under another name is another broker
    for _ in range(2):
        assert (await peer.register(FIRST._replace(name="broker-z"), body)).code in {1, BUSY}
        await server.clock.advance(100)
    assert (await (await server.connect()).call(105, {"topic": "T1"})).code == 17


@pytest.mark.settings(quotas="enforce", quota_topics=2)
async def test_registration_without_an_additional_topic_is_within_the_quota(
    server: InProcess, peer: NamesrvPeer
) -> None:
    """A full quota admits a registration that replaces a topic, and one of a slave, which creates no routes."""

    async def outcome(broker: Broker, *topics: str) -> tuple[int, str | None]:
        body = native_registration(*topics)
        return (await peer.register(broker, body, spelling="native", agentId=broker.addr, registrationSeq=1)).outcome

    assert (await outcome(FIRST, "T1", "T2"))[0] == 0
    assert (await outcome(FIRST, "T1", "T3"))[0] == 0
    assert await outcome(FIRST, "T1", "T4", "T5") == (BUSY, "3 topics of cluster cluster-1, limit 2")
    assert (await outcome(Broker(id=1, addr="10.0.0.9:10911"), "T8", "T9"))[0] == 0
    assert server.namesrv.manager.tables.topic_queue_table.keys() == {"T1", "T3"}


@pytest.mark.settings(max_topics=2, max_brokers=1)
async def test_limits_of_the_tables_are_counted_and_audited(server: InProcess, peer: NamesrvPeer) -> None:
    """Without quotas, a request beyond `max_topics` or `max_brokers` is refused with code 1, counted and audited."""
    assert await registered(peer, FIRST, "T1", "T2") == (0, None)
    assert await registered(peer, SECOND, "T1", "T2") == (1, "2 brokers, limit 1")
    assert await registered(peer, FIRST, "T1", "T2", "T3") == (1, "3 topics, limit 2")
    assert (await peer.call(217, {"topic": "T4"}, QUEUES)).outcome == (1, "3 topics, limit 2")
    assert server.namesrv.counters.quota_exceeded == {
        ("broker-control", "brokers", "refused"): 1,
        ("broker-control", "topics", "refused"): 1,
        ("admin-write", "topics", "refused"): 1,
    }
    page = (await exposition(server.namesrv, server.controller.server)).decode()
    assert sum(line.startswith("nameserver_quota_exceeded_total{") for line in page.splitlines()) == 3
    await server.stop()
    assert [
        (line["request"], line["reason"], line["remark"]) for line in of(read_log(server.data_dir / "audit"), "refusal")
    ] == [
        ("REGISTER_BROKER", "quota_brokers", "2 brokers, limit 1"),
        ("REGISTER_BROKER", "quota_topics", "3 topics, limit 2"),
        ("REGISTER_TOPIC_IN_NAMESRV", "quota_topics", "3 topics, limit 2"),
    ]


@pytest.mark.settings(max_brokers=16)
async def test_one_address_leaves_room_in_the_tables(server: InProcess, peer: NamesrvPeer) -> None:
    """One address can fill seven eighths of the broker table; other addresses still register."""
    outcomes = [
        await registered(peer, Broker(f"fill-{number}", 0, f"10.0.1.{number}:10911"), *topics)
        for number in range(15)
        for topics in [(f"T{number}", f"U{number}")]
    ]
    other = await server.connect("127.0.0.2")

    assert outcomes == [(0, None)] * 14 + [(1, "15 brokers of address 127.0.0.1, limit 14")]
    assert await registered(other, FIRST, "T", "U") == (0, None)
    assert server.namesrv.counters.quota_exceeded == {("broker-control", "brokers_per_address", "refused"): 1}


@pytest.mark.parametrize(("mode", "on_fast_path"), [("off", 199), ("observe", 196), ("enforce", 14)])
async def test_pipelined_requests_count_towards_the_quota(tmp_path: Path, mode: str, on_fast_path: int) -> None:
    """A peer that pipelines its requests has the same quota as one that waits for each response.

    The dispatcher answers the first request. A quarter of the bucket of 20 is kept from reads, and the registration has
    taken a token. One in 65 requests beyond an observed quota goes to the dispatcher.
    """
    limits: dict[str, Any] = {"quotas": mode, "quota_requests_per_second": 20}
    async with namesrv_in_process(tmp_path, **limits) as server:
        peer = await server.connect()
        await peer.register(Broker())
        peer.send(request_frame(PULL, ORDERS) * 200)
        await settle()

        assert server.namesrv.fast_path.pulls == on_fast_path


@pytest.mark.settings(quotas="enforce", quota_requests_per_second=20)
async def test_fast_path_returns_when_a_reload_ends_the_quotas(server: InProcess, peer: NamesrvPeer) -> None:
    """An address that has used up its quota gets responses of the fast path again once quotas are off."""
    await peer.register(Broker())
    assert [(await peer.call(PULL, ORDERS)).code for _ in range(14)] == [0] * 14
    assert not server.connection_of(peer).read_share.may_use_fast_path

    await server.reloader("--quotas=off").reload()
    assert (await peer.call(PULL, ORDERS)).code == 0
    before = server.namesrv.fast_path.pulls
    assert (await peer.call(PULL, ORDERS)).code == 0

    assert server.namesrv.fast_path.pulls == before + 1
