"""Does the link to one NameServer register fully when it has to, and otherwise send heartbeats on time?"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from namesrv.routeinfo.records import Evicted, Registered, Touched
from namesrv_broker_agent import TopicConfig
from namesrv_remoting.bodies.extensions import from_msgpack
from tests.support.agents import (
    ADDR,
    CLUSTER,
    NAME,
    address_of,
    brokers,
    ext_of,
    heartbeats,
    native_answer,
    passing,
    queues,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import namesrv_in_process
from tests.support.raw_peer import until
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.tcp_proxy import TcpProxy

REGISTER, UNREGISTER, HEARTBEAT = 103, 104, 904
IDENTITY = {"clusterName": CLUSTER, "brokerName": NAME, "brokerAddr": ADDR, "brokerId": "0"}


async def accepted(server: ScriptedServer) -> Peer:
    """The agent's next connection, over which it has registered fully."""
    peer = await server.accept()
    question = await peer.receive()
    assert (REGISTER, "full") == (question.code, ext_of(question)["kind"])
    peer.send(native_answer(question))
    return peer


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
        assert 0 == (await peer.call(UNREGISTER, IDENTITY)).code
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


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_change_travels_at_once_as_a_delta() -> None:
    """Only what changed, under the DataVersion of the whole table."""
    clock = FakeClock(wall=1_700_000_000.0)
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await accepted(server)
        await passing(clock, lambda: agent.servers[server.address].status == "registered")
        now = clock.monotonic()
        await agent.create_topic(TopicConfig("refunds", 2, 1))
        question = await peer.receive()

        assert now == clock.monotonic()
        assert (REGISTER, "delta") == (question.code, ext_of(question)["kind"])
        body = from_msgpack(question.body)
        assert [("refunds", 2, 1, 6)] == [
            (topic["topic_name"], topic["read_queue_nums"], topic["write_queue_nums"], topic["perm"])
            for topic in body["topic_configs"]
        ]
        assert (1, 0) == (body["data_version"]["counter"], body["data_version"]["state_version"])
        assert [] == body["deleted_topics"]
        peer.send(native_answer(question))


async def test_changes_during_a_registration_follow_in_one_delta() -> None:
    """While an answer is awaited, changes gather; a topic that came and went is only deleted."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await server.accept()
        question = await peer.receive()
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        await agent.create_topic(TopicConfig("fees", 2, 2))
        await agent.delete_topic("refunds")
        peer.send(native_answer(question))

        delta = await peer.receive()
        body = from_msgpack(delta.body)
        assert "delta" == ext_of(delta)["kind"]
        assert (["fees"], ["refunds"]) == (
            [topic["topic_name"] for topic in body["topic_configs"]],
            body["deleted_topics"],
        )
        assert 0 == await agent.registered(timeout_seconds=0)
        peer.send(native_answer(delta))
        assert 1 == await agent.registered()


@pytest.mark.parametrize("code", [1, 2])
async def test_refused_delta_is_healed_by_the_next_heartbeat(code: int) -> None:
    """It is not repeated at once, and then as a full registration."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await accepted(server)
        await passing(clock, lambda: agent.servers[server.address].status == "registered")
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        peer.send(native_answer(await peer.receive(), code, remark="no"))
        await until(lambda: agent.servers[server.address].last_error)
        assert "registration refused: no" == agent.servers[server.address].last_error
        await settle()
        assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one

        await clock.advance(14.2)
        assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one
        await clock.advance(0.05)
        question = await peer.receive()
        topics = [topic["topic_name"] for topic in from_msgpack(question.body)["topic_configs"]]
        assert ("full", ["orders", "bills", "refunds"]) == (ext_of(question)["kind"], topics)
        peer.send(native_answer(question))
        assert 1 == await agent.registered()
        assert agent.servers[server.address].last_error is None


async def test_delta_of_a_broker_that_is_not_known_becomes_a_full_registration(tmp_path: Path) -> None:
    """The server cannot tell whose change it is; everything follows at once."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, running(clock, address_of(server)) as agent:
        await agent.registered()
        peer = await server.connect()
        await peer.call(UNREGISTER, IDENTITY)
        server.effects.clear()
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        assert 1 == await agent.registered()

        assert [("full", 3)] == registrations(server)


async def test_refused_registration_is_tried_with_every_heartbeat_and_not_more_often() -> None:
    """A server that refuses is asked once in a period, not as fast as it answers."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await server.accept()
        for number in range(4):
            question = await peer.receive()
            assert (REGISTER, number + 1) == (question.code, int(ext_of(question)["registrationSeq"]))
            peer.send(native_answer(question, 1, remark="field brokerId: taken"))
            await until(lambda: agent.servers[server.address].last_error)
            await settle()
            assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one
            state = agent.servers[server.address]
            assert ("connecting", "registration refused: field brokerId: taken") == (state.status, state.last_error)
            # the first one comes after the phase
            await clock.advance(28.5 if number else 14.25)
        peer.send(native_answer(await peer.receive()))
        assert 1 == await agent.registered()


async def test_full_registration_that_is_not_found_is_a_refusal() -> None:
    """Code 22 to a full registration makes no sense, and is not answered with another one at once."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await server.accept()
        peer.send(native_answer(await peer.receive(), 22, remark="what"))
        await until(lambda: agent.servers[server.address].last_error)
        await settle()
        assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one


# -- connections ------------------------------------------------------------------------------------------------------


async def test_delta_lost_with_its_connection_comes_with_the_next_registration(tmp_path: Path) -> None:
    """The way is cut while the delta is on it; the new connection brings everything."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        await settle()
        proxy.cut()
        await passing(clock, lambda: agent.servers[proxy.address].status == "unreachable")
        assert queues(server, "refunds") is None
        await proxy.heal()

        passed = await passing(clock, lambda: queues(server, "refunds"))
        assert passed < 1
        assert 1 == await agent.registered()
        assert [("full", 2), ("full", 3)] == registrations(server)


async def test_half_open_connection_is_noticed_5_seconds_after_the_heartbeat(tmp_path: Path) -> None:
    """A black hole says nothing: only the answer that is missing does."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await clock.advance(14.25)
        await clock.advance(4.9)
        assert "registered" == agent.servers[proxy.address].status

        await clock.advance(0.2)
        state = agent.servers[proxy.address]
        assert ("unreachable", f"request 904 to {proxy.address}: no answer within 5.0 s") == (
            state.status,
            state.last_error,
        )


async def test_answer_that_came_late_evicts_nobody(tmp_path: Path) -> None:
    """The old connection is kept until the server has the registration over the new one: the broker never leaves."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await clock.advance(14.25 + 5.1)
        assert "unreachable" == agent.servers[proxy.address].status
        # long enough for the next attempt
        await clock.advance(1)
        await proxy.heal()
        await passing(clock, lambda: agent.servers[proxy.address].status == "registered")
        await until(lambda: proxy.connections == 1)
        await settle()

        assert [] == server.effects_of(Evicted)
        assert {NAME: {0: ADDR}} == brokers(server)
        assert 2 == proxy.accepted


@pytest.mark.parametrize("unit", [0.25, 1.0])
async def test_pauses_between_attempts_are_drawn_from_below_a_second(unit: float) -> None:
    """Full jitter: anything up to a bound that doubles from 0.1 s to 0.8 s."""
    clock = FakeClock()
    async with ScriptedServer() as server:
        address = server.address
    # nobody listens there any more
    async with running(clock, address, options={"random_unit": lambda: unit}) as agent:
        for bound in (0.1, 0.2, 0.4, 0.8, 0.8, 0.8):
            await until(lambda: agent.servers[address].status == "unreachable")
            await settle()
            # what waits now: the next look at the list of servers, and the next attempt
            waking = [deadline / 1e9 for deadline, _, wakes in clock._sleepers if not wakes.done()]
            pause = min(waking) - clock.monotonic()
            assert 2 == len(waking)
            assert bound * unit == pytest.approx(pause)
            assert pause < 1
            await clock.advance(pause)


async def test_server_that_comes_back_knows_the_broker_within_a_second(tmp_path: Path) -> None:
    """However long it was away: an empty server accepts connections, and a second later it has everything."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
        TcpProxy(first.address) as proxy,
        running(clock, proxy.address, options={"random_unit": lambda: 1.0}) as agent,
    ):
        await agent.registered()
        proxy.cut()
        await clock.advance(200)
        assert "unreachable" == agent.servers[proxy.address].status
        proxy.target = second.address
        await proxy.heal()

        passed = await passing(clock, lambda: brokers(second))
        assert passed < 1
        assert [("full", 2)] == registrations(second)


# -- what is visible --------------------------------------------------------------------------------------------------


async def test_state_of_a_server_says_since_when_and_why(tmp_path: Path) -> None:
    """Connecting, registered, unreachable, registered again, stopped; with the last answer and the last error."""
    clock = FakeClock(wall=5_000.0)
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        proxy.stall()
        async with running(clock, proxy.address) as agent:
            await clock.advance(1)
            state = agent.servers[proxy.address]
            assert ("connecting", 5_000.0, None, None) == (
                state.status,
                state.since,
                state.last_answer,
                state.last_error,
            )

            await proxy.heal()
            await until(lambda: agent.servers[proxy.address].status == "registered")
            state = agent.servers[proxy.address]
            assert (5_001.0, 5_001.0, "native", 1) == (
                state.since,
                state.last_answer,
                state.protocol,
                state.registrations,
            )

            await clock.advance(14.25)
            await until(lambda: agent.servers[proxy.address].last_answer == 5_015.25)
            proxy.cut()
            await until(lambda: agent.servers[proxy.address].status == "unreachable")
            state = agent.servers[proxy.address]
            assert (5_015.25, 5_015.25, None) != (state.since, state.last_answer, state.last_error)
            assert 5_015.25 == state.since
            link = agent._links[proxy.address]
        assert "stopped" == link.state.status


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
            await until(lambda: server.effects_of(Touched))
            server.effects.clear()
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
