"""Effects of changed tables: log lines, events, closed connections and ended watches."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from namesrv.routeinfo.tables.effects import MinBrokerIdChanged
from namesrv.server.effects import MAX_NOTICES, MAX_NOTIFIED, NOTICE_SECONDS, EffectSink
from namesrv_remoting.codes import FLAG_ONEWAY
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import until
from tests.support.heartbeat_files import of, read_log
from tests.support.in_process import InProcess
from tests.support.logged import logged, logged_by
from tests.support.namesrv_peer import SLAVE, Broker, NamesrvPeer, native_registration
from tests.support.scripted_server import ScriptedServer

BROKER = Broker()
SINK = "namesrv.server.effects"
IDENTITY = {"cluster": "cluster-1", "broker_name": "broker-a", "broker_id": 0, "broker_addr": "10.0.0.1:10911"}


def remembered(server: InProcess, since: int = 0) -> list[str]:
    """Names of the recent events."""
    return [event["event"] for event in server.namesrv.events.since(since, 1000)]


async def test_log_levels_of_registrations(
    server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """A new broker is logged at level info, a changed one at debug, an unchanged one or a heartbeat not at all."""
    caplog.set_level(logging.DEBUG)
    await peer.register(BROKER, native_registration("T"), spelling="native")
    fields = {**IDENTITY, "kind": "full", "topics": 1}
    assert logged_by(caplog, SINK) == [
        ("DEBUG", "route_changed", {"revision": 1, "topics": 1}),
        ("INFO", "broker_registered", {**fields, "new": True}),
    ]

    await peer.register(BROKER, native_registration("T", counter=2), spelling="native")
    assert logged_by(caplog, SINK) == [("DEBUG", "broker_registered", {**fields, "new": False})]

    await peer.register(BROKER, native_registration("T", counter=2), spelling="native")
    await peer.call(904, BROKER.ext, spelling="native")
    assert logged_by(caplog, SINK) == []
    assert remembered(server) == ["route", "register", "register"]


async def test_delta_that_only_deletes_topics_is_shown(
    server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """The number of topics is that of the named ones; an empty delta is a slave's heartbeat, and not shown."""
    caplog.set_level(logging.DEBUG)
    agent: dict[str, Any] = {"agentId": "agent-1", "kind": "delta"}
    await peer.register(BROKER, native_registration("T", "U"), spelling="native", agentId="agent-1")
    await peer.register(BROKER, native_registration(counter=2, deleted_topics=["T"]), spelling="native", **agent)
    await peer.register(BROKER, native_registration(counter=2), spelling="native", **agent)

    registered = logged(caplog, "broker_registered")
    assert [(each["kind"], each["topics"]) for each in registered] == [("full", 2), ("delta", 1)]
    assert remembered(server) == ["route", "register", "route", "register"]


async def test_log_levels_of_evictions(server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture) -> None:
    """An unregistered broker is logged at level info, a superseded or disconnected one as a warning."""
    caplog.set_level(logging.INFO)
    await peer.register(BROKER)
    await server.clock.advance(2)
    logged_by(caplog, SINK)

    await peer.call(104, BROKER.ext)
    assert logged_by(caplog, SINK) == [
        ("INFO", "broker_evicted", {**IDENTITY, "reason": "unregistered", "silent_ms": 2000})
    ]

    await peer.register(BROKER)
    await server.clock.advance(1)
    await peer.register(BROKER._replace(addr="10.0.0.9:10911"))
    superseded = {**IDENTITY, "reason": "superseded", "silent_ms": 1000}
    assert ("WARNING", "broker_evicted", superseded) in logged_by(caplog, SINK)

    number = server.namesrv.events.last_seq
    await server.hang_up(peer)
    await server.clock.advance(0)
    disconnected = {**IDENTITY, "broker_addr": "10.0.0.9:10911", "reason": "disconnected", "silent_ms": 0}
    assert logged_by(caplog, SINK) == [("WARNING", "broker_evicted", disconnected)]
    assert remembered(server, number) == ["route", "evict"]


async def test_elected_master_is_logged(server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture) -> None:
    """A registration with another id, as after a fail-over, is logged at level info."""
    await peer.register(SLAVE)
    caplog.set_level(logging.INFO)

    await peer.register(SLAVE._replace(id=0))

    fields = {**IDENTITY, "broker_addr": "10.0.0.2:10911", "kind": "full", "topics": 2, "new": False}
    assert ("INFO", "broker_registered", fields) in logged_by(caplog, SINK)


@pytest.mark.settings(notify_min_broker_id_changed=True)
async def test_fenced_removals_and_smallest_ids_are_logged(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A fenced removal and a new smallest id of a group are logged at level info."""
    caplog.set_level(logging.INFO)
    older, newer, slave = await server.connect(), await server.connect(), await server.connect()
    for peer in (older, newer):
        await peer.register(BROKER, enableActingMaster="true", spelling="native")
    await slave.register(SLAVE, enableActingMaster="true", spelling="native")
    logged_by(caplog, SINK)
    number = server.namesrv.events.last_seq

    await older.call(104, BROKER.ext)
    assert logged_by(caplog, SINK) == [("INFO", "stale_removal_fenced", {**IDENTITY, "reason": "unregistered"})]
    assert remembered(server, number) == ["fenced"]

    await newer.call(104, BROKER.ext)
    fields = {"broker_name": "broker-a", "min_broker_id": 1, "recipients": ("10.0.0.2:10911",)}
    assert ("INFO", "min_broker_id_changed", fields) in logged_by(caplog, SINK)


@pytest.mark.settings(admin_enabled=True)
async def test_event_names_twenty_topics_and_counts_all(server: InProcess, peer: NamesrvPeer) -> None:
    """A route event names twenty topics and counts all; one for a changed setting has neither topics nor broker."""
    names = [f"topic-{n}" for n in range(50)]
    await peer.register(BROKER, native_registration(*names), spelling="native")
    await peer.call(318, None, b"orderMessageEnable=true")

    first, _, last = server.namesrv.events.since(0, 10)

    assert (len(first["topics"]), first["count"]) == (20, 50)
    assert set(first["topics"]) < set(names)
    assert (last["topics"], last["count"], last["revision"]) == (None, None, 2)
    assert [first["broker_name"], last["broker_name"]] == [BROKER.name, None]


async def test_log_lines_of_one_kind_are_limited(
    server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """Of one kind and level, the log has twenty lines a second and counts the others; the audit trail has them all."""
    caplog.set_level(logging.INFO)
    for number in range(25):
        broker = Broker(f"broker-{number}", 0, f"10.0.0.1:{number + 1}")
        await peer.register(broker)
        await peer.call(205, {"brokerName": broker.name})
        await peer.call(104, broker.ext)
    await server.clock.advance(1)

    for name in ("broker_registered", "write_permission_changed"):
        assert len(logged(caplog, name)) == 20
    left_out = {fields["of"]: fields["more"] for fields in logged(caplog, "events_not_logged")}
    # A removed write permission ends when its only broker unregisters.
    assert left_out == {
        "broker_registered": 5,
        "operator_changed": 5,
        "broker_evicted": 5,
        "write_permission_changed": 30,
    }
    await server.stop()
    changes = [change for line in of(read_log(server.data_dir / "audit"), "change") for change in line["changes"]]
    assert len([each for each in changes if each["what"] == "write_permission"]) == 50


@pytest.mark.settings(notify_min_broker_id_changed=True)
async def test_members_are_notified_of_a_new_and_a_lost_master(server: InProcess) -> None:
    """A RocketMQ member is notified at its own address, a native one over the connection that it registered on."""
    master, slave, native = [await server.connect() for _ in range(3)]
    acting: dict[str, Any] = {"enableActingMaster": "true"}
    async with ScriptedServer() as listening:

        async def check_notices(**fields: str) -> None:
            dialled = await listening.accept()
            for notice in ((await dialled.receive()).header, (await native.receive()).header):
                assert (notice["code"], notice["flag"]) == (905, FLAG_ONEWAY)
                assert notice["extFields"] == {"brokerName": "broker-a", **fields}
            await dialled.gone()

        await slave.register(Broker(id=1, addr=listening.address), **acting)
        await native.register(Broker(id=2, addr="10.0.0.3:10911"), spelling="native", **acting)
        await master.register(BROKER, haServerAddr="10.0.0.1:10912", **acting)
        await check_notices(minBrokerId="0", minBrokerAddr=BROKER.addr, haBrokerAddr="10.0.0.1:10912")
        await server.hang_up(master)
        await check_notices(minBrokerId="1", minBrokerAddr=listening.address, offlineBrokerAddr=BROKER.addr)


@contextmanager
def refusing() -> Iterator[str]:
    """An address that refuses connections, as of a broker that has just died."""
    with refusing_port() as bound:
        host, port = bound.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("addr", ["no address", "127.0.0.1:99999", "[::1]", refusing, full_queue])
@pytest.mark.settings(notify_min_broker_id_changed=True)
async def test_unreachable_member_is_logged(server: InProcess, addr: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A member with an unreachable address, which the broker itself chose, costs one log line and no wait."""
    caplog.set_level(logging.INFO)

    def failed() -> list[str]:
        return [fields["broker_addr"] for fields in logged(caplog, "min_broker_id_not_notified")]

    async def check(addr: str) -> None:
        master, slave = await server.connect(), await server.connect()
        await master.register(BROKER, enableActingMaster="true")
        await slave.register(Broker(id=1, addr=addr), enableActingMaster="true")
        assert (await master.call(104, BROKER.ext)).code == 0
        assert (await slave.call(105, {"topic": "T"})).code == 0
        # a connection that is not accepted is given up after the connect timeout
        await server.clock.advance(NOTICE_SECONDS)
        await until(failed)
        assert failed() == [addr]

    if isinstance(addr, str):
        await check(addr)
    else:
        with addr() as place:
            await check(place)


@pytest.mark.settings(notify_min_broker_id_changed=True)
async def test_stop_during_an_eviction_dials_no_members(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A scan that the stop cuts off starts no notices, since no task may start any more."""
    caplog.set_level(logging.INFO)
    peer = await server.connect()
    await peer.register(BROKER, enableActingMaster="true", heartbeatTimeoutMillis="1000")
    await peer.register(Broker(id=1, addr="10.0.0.2:10911"), enableActingMaster="true")
    await server.stop()
    server.clock.stall(2)

    assert await server.namesrv.manager.evict_silent() == 1

    assert logged(caplog, "min_broker_id_not_notified") == [{"more": 1}]


async def test_notices_are_bounded(server: InProcess) -> None:
    """A change of a group with thousands of members dials some of them, and a thousand changes do not dial at once."""
    dials: list[Coroutine[Any, Any, None]] = []
    namesrv = server.namesrv
    sink = EffectSink(
        clock=server.clock,
        tables=namesrv.manager.tables,
        connections=namesrv.slots.connections,
        views=namesrv.routes.views,
        boot=namesrv.boot,
        watchers=namesrv.routes.watchers,
        events=namesrv.events,
        log=namesrv.limited_log,
        # the test awaits the coroutines itself, without tasks
        spawn=dials.append,  # type: ignore[arg-type]
        observers=(),
    )
    changed = MinBrokerIdChanged("broker-a", 0, BROKER.addr, tuple(f"127.0.0.1:{port}" for port in range(-5_000, 0)))

    counts = []
    for _ in range(2):
        sink(changed)
        counts.append(len(dials))
        for _ in range(1_000):
            sink(changed)
        counts.append(len(dials))
        await asyncio.gather(*dials)
        dials.clear()

    assert counts == [MAX_NOTIFIED, MAX_NOTICES] * 2
