"""The link to one NameServer registers fully when it has to, and otherwise sends heartbeats on time."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from namesrv.routeinfo.records import Registered
from namesrv_broker_agent import TopicConfig
from namesrv_remoting.bodies.extensions import from_msgpack
from tests.support.agents import (
    ADDR,
    IDENTITY,
    NAME,
    accepted,
    address_of,
    brokers,
    ext_of,
    goodbye,
    heartbeats,
    native_answer,
    queues,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import namesrv_in_process
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.scripted_server import ScriptedServer
from tests.support.tcp_proxy import TcpProxy

REGISTER, UNREGISTER, HEARTBEAT = 103, 104, 904


# -- rhythm -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "period"), [(0.0, 27.0), (0.5, 28.5), (1.0, 30.0)])
async def test_heartbeats_come_every_27_to_30_seconds(unit: float, period: float, tmp_path: Path) -> None:
    """Whatever is drawn, four periods fit into the 120 s after which a server evicts; nothing else is sent."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), options={"random_unit": lambda: unit}) as agent,
    ):
        await agent.registered()
        began = clock.monotonic()
        await clock.advance(unit * period)
        for _ in range(8):
            await clock.advance(period)

        first = began + unit * period
        assert [first + number * period for number in range(9)] == heartbeats(server)
        assert 4 * period <= 120
        assert [("full", 2)] == registrations(server)


async def test_each_period_is_drawn_anew_and_so_is_the_phase(tmp_path: Path) -> None:
    """Brokers that started together do not stay together: the first heartbeat comes anywhere in the first period."""
    clock = FakeClock()
    drawn = iter([0.0, 1 / 3, 1.0, 0.0, 0.5])
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), options={"random_unit": lambda: next(drawn, 0.5)}) as agent,
    ):
        await agent.registered()
        began = clock.monotonic()
        await clock.advance(9 + 30 + 27 + 28.5)

        assert [began + 9, began + 39, began + 66, began + 94.5] == pytest.approx(heartbeats(server))


async def test_heartbeat_names_the_broker_and_is_light() -> None:
    """904 with who it is, and no body as long as the broker says nothing of itself."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await accepted(server)
        await passing(clock, lambda: agent.servers[server.address].status == "registered")
        await clock.advance(14.25)
        question = await peer.receive()

        agent_id = ext_of(question)["agentId"]
        assert (HEARTBEAT, {**IDENTITY, "agentId": agent_id}, b"") == (question.code, ext_of(question), question.body)
        peer.send(native_answer(question))


# -- full registrations -----------------------------------------------------------------------------------------------


async def test_first_contact_is_a_full_registration(tmp_path: Path) -> None:
    """All topics at once: whoever asks for one of them finds all."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, running(clock, address_of(server)) as agent:
        assert 1 == await agent.registered()

        assert [("full", 2)] == registrations(server)
        assert ((8, 8, 6), (4, 4, 6)) == (queues(server, "orders"), queues(server, "bills"))
        assert {NAME: {0: ADDR}} == brokers(server)


async def test_broker_that_the_server_forgot_registers_at_once(tmp_path: Path) -> None:
    """A heartbeat that is answered with QUERY_NOT_FOUND is followed by a full registration, not by the next period."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, running(clock, address_of(server)) as agent:
        await agent.registered()
        peer = await server.connect()
        assert 0 == (await peer.call(UNREGISTER, goodbye(server))).code
        assert {} == brokers(server)

        passed = await passing(clock, lambda: brokers(server), at_most=28.5)
        assert passed <= 28.5
        assert [("full", 2), ("full", 2)] == registrations(server)


async def test_restart_behind_the_same_connection_is_noticed_with_the_next_heartbeat(tmp_path: Path) -> None:
    """A balancer keeps the connection and puts an empty server behind it: that one says that it knows nobody."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
        TcpProxy(first.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        before = agent.servers[proxy.address].boot_id
        await clock.advance(14)
        proxy.switch(second.address)
        await settle()

        await clock.advance(0.25)
        await until(lambda: brokers(second))
        await until(lambda: agent.servers[proxy.address].boot_id == second.namesrv.boot_id)
        assert before == first.namesrv.boot_id
        assert (1, [("full", 2)]) == (proxy.accepted, registrations(second))


async def test_new_boot_id_is_answered_with_a_full_registration() -> None:
    """Even if the restarted server says that it knows the broker."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await accepted(server)
        await until(lambda: agent.servers[server.address].boot_id == "b1")
        await clock.advance(14.25)
        heartbeat = await peer.receive()
        peer.send(native_answer(heartbeat, ext={"boot_id": "b2"}))

        question = await peer.receive()
        assert (REGISTER, "full") == (question.code, ext_of(question)["kind"])
        peer.send(native_answer(question, ext={"boot_id": "b2"}))
        await until(lambda: agent.servers[server.address].boot_id == "b2")
        # and not again
        await clock.advance(28.5)
        assert HEARTBEAT == (await peer.receive()).code


async def test_registration_seq_grows_and_agent_id_stays() -> None:
    """What a server fences late removals with: one process, and its own count."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await server.accept()
        first = await peer.receive()
        peer.send(native_answer(first))
        await passing(clock, lambda: agent.servers[server.address].status == "registered")
        await agent.create_topic(TopicConfig("refunds", 1, 1))
        second = await peer.receive()
        peer.send(native_answer(second))

        said = [(ext_of(question)["agentId"], ext_of(question)["registrationSeq"]) for question in (first, second)]
        assert [(said[0][0], "1"), (said[0][0], "2")] == said


# -- the broker's own state -------------------------------------------------------------------------------------------


async def test_own_state_travels_with_heartbeats_and_is_listed(tmp_path: Path) -> None:
    """What the callback says at that moment is in the server's live entry until the next heartbeat."""
    clock = FakeClock()
    depths = itertools.count(17)
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(
            clock, address_of(server), options={"state": lambda: {"queue_depth": next(depths), "disk": 0.5}}
        ) as agent,
    ):
        await agent.registered()
        for expected in (17, 18):
            await clock.advance(28.5)
            await until(lambda: server.touches)
            server.touches.clear()
            peer = await server.connect()
            answer = await peer.call(20005, spelling="native")
            (broker,) = from_msgpack(answer.body)["brokers"]
            assert {"queue_depth": expected, "disk": 0.5} == broker["state"]


def _fails() -> dict[str, int]:
    raise ZeroDivisionError("in the broker")


@pytest.mark.parametrize(
    "state",
    [
        _fails,
        lambda: {"nested": {"a": 1}},
        lambda: {"list": [1]},
        lambda: {"object": object()},
        lambda: {"long": "x" * 20_000},
        lambda: {1: 2},
        lambda: None,
    ],
    ids=["raises", "nested", "list", "object", "too-large", "key", "none"],
)
async def test_state_that_cannot_be_sent_does_not_keep_the_heartbeat(
    state: Callable[[], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker lives although its callback has a bug; the log says so."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), options={"state": state}) as agent,
    ):
        await agent.registered()
        await clock.advance(28.5 * 2)
        await until(lambda: len(heartbeats(server)) == 2)
        assert "registered" == agent.servers[address_of(server)].status
    assert any("state" in record.getMessage() for record in caplog.records)


def _units() -> Iterator[float]:
    return itertools.cycle((0.1, 0.9))


async def test_registered_effect_is_the_only_one_of_a_quiet_start(tmp_path: Path) -> None:
    """No second registration follows the first, whatever is drawn."""
    clock = FakeClock()
    units = _units()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), options={"random_unit": lambda: next(units)}) as agent,
    ):
        await agent.registered()
        await clock.advance(60)
        assert [True] == [effect.is_new for effect in server.effects_of(Registered)]
