"""The link to one NameServer: registrations, heartbeats on time, and reconnecting."""

import asyncio
import base64
import logging
import os
from functools import partial
from pathlib import Path

import msgspec
import pytest

from namesrv_broker_agent import LinkCounts, TopicConfig
from namesrv_remoting.codes import STALE_FIELD
from tests.support import agents
from tests.support.fake_clock import passing, settle, until
from tests.support.scripted_server import Peer, ScriptedRequest

REGISTER, UNREGISTER, HEARTBEAT = 103, 104, 904
REFUNDS = TopicConfig("refunds", 2, 2)


def topics_in(request: ScriptedRequest) -> list[str]:
    """The topic names of a native registration."""
    return [topic["topic_name"] for topic in msgspec.msgpack.decode(request.body)["topic_configs"]]


# -- heartbeat period -------------------------------------------------------------------------------------------------


async def test_periods_and_the_first_delay_are_random(tmp_path: Path) -> None:
    """A period has 27 to 30 s, so that four of them fit into a server's expiry of 120 s; nothing else is sent.

    Brokers that start together spread: the first heartbeat comes anywhere in the first period.
    """
    drawn = iter([0.0, 1 / 3, 1.0, 0.0, 0.5])
    async with agents.real(tmp_path, options={"random_unit": lambda: next(drawn, 0.5)}) as it:
        began = it.clock.monotonic()
        await it.clock.advance(9 + 30 + 27 + 28.5)

        assert await agents.heartbeats(it.server) == pytest.approx([began + 9, began + 39, began + 66, began + 94.5])
        assert await agents.registrations(it.server) == [("full", 2)]


# -- full registrations -----------------------------------------------------------------------------------------------


async def test_new_boot_id_causes_a_full_registration() -> None:
    """The registration is sent once with the agent's next number, even if the restarted server knows the broker."""
    async with agents.played() as it:
        peer = await it.server.accept()
        first = await it.registered_over(peer)
        await it.clock.advance(14.25)
        peer.send(agents.native_response(await peer.receive(), ext={"boot_id": "b2"}))
        second = await it.registered_over(peer, ext={"boot_id": "b2"})

        agent_id = agents.ext_of(first)["agentId"]
        assert [
            (fields["kind"], fields["agentId"], fields["registrationSeq"])
            for fields in map(agents.ext_of, (first, second))
        ] == [("full", agent_id, "1"), ("full", agent_id, "2")]
        assert it.state.boot_id == "b2"
        await it.clock.advance(28.5)
        assert (await peer.receive()).code == HEARTBEAT


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_changes_during_a_registration_follow_in_one_delta() -> None:
    """While a response is pending, changes gather; a topic created and deleted is only deleted."""
    async with agents.played() as it:
        peer = await it.server.accept()
        request = await peer.receive()
        await it.agent.create_topic(REFUNDS)
        await it.agent.create_topic(TopicConfig("fees", 2, 2))
        await it.agent.delete_topic("refunds")
        (link,) = it.agent._links
        assert repr(link) == f"<ServerLink [{it.server.address} | connecting | 2 pending]>"
        peer.send(agents.native_response(request))

        delta = await peer.receive()
        assert (agents.ext_of(delta)["kind"], topics_in(delta)) == ("delta", ["fees"])
        assert msgspec.msgpack.decode(delta.body)["deleted_topics"] == ["refunds"]
        with pytest.raises(TimeoutError, match=rf"^not registered within 0 s: {it.server.address} \(no answer yet\)$"):
            await it.agent.registered(timeout_seconds=0)
        peer.send(agents.native_response(delta))
        assert await it.agent.registered() == 1


async def test_refused_delta_is_followed_by_a_full_registration() -> None:
    """The full registration comes with the next heartbeat, not at once."""
    async with agents.played() as it:
        peer = await it.registers()
        await it.agent.create_topic(REFUNDS)
        peer.send(agents.native_response(await peer.receive(), 1, remark="no"))
        await until(lambda: it.state.last_error)
        assert it.state.last_error == "registration refused: no"
        await it.clock.advance(14.2)
        assert it.pending == 0

        await it.clock.advance(0.05)
        request = await it.registered_over(peer)
        assert (agents.ext_of(request)["kind"], topics_in(request)) == ("full", ["orders", "bills", "refunds"])
        assert await it.agent.registered() == 1
        assert it.agent.servers[it.server.address].last_error is None


async def test_delta_of_an_unknown_broker_becomes_a_full_registration(tmp_path: Path) -> None:
    """A server that does not know the broker gets a full registration at once."""
    async with agents.real(tmp_path) as it:
        await (await it.server.connect()).call(UNREGISTER, agents.unregistration(it.server))
        await it.server.forget()
        await it.agent.create_topic(REFUNDS)
        assert await it.agent.registered() == 1

        assert await agents.registrations(it.server) == [("full", 3)]


@pytest.mark.parametrize("code", [1, 22])
async def test_refused_registration_is_retried_once_per_period(code: int) -> None:
    """A server that refuses a full registration, or answers it with not found, gets one per period.

    Until the server accepts one, the status is the refusal with its reason, although the connection is open.
    """
    async with agents.played() as it:
        peer = await it.server.accept()
        for number in range(4):
            request = await peer.receive()
            assert (request.code, int(agents.ext_of(request)["registrationSeq"])) == (REGISTER, number + 1)
            peer.send(agents.native_response(request, code, remark="field brokerId: taken"))
            await until(lambda: it.state.last_error)
            await settle()
            assert it.pending == 0
            state = it.state
            assert (state.status, state.last_error) == ("refused", "registration refused: field brokerId: taken")
            # the first period begins after the random delay
            await it.clock.advance(28.5 if number else 14.25)
        await it.registered_over(peer)
        assert await it.agent.registered() == 1


async def test_server_that_lost_the_broker_and_refuses_it_is_not_registered() -> None:
    """A restart behind a proxy keeps the connection; the status says that the restarted server has no broker."""
    async with agents.played() as it:
        peer = await it.registers()
        await it.clock.advance(14.25)
        peer.send(agents.native_response(await peer.receive(), 22, remark="unknown broker"))
        request = await peer.receive()
        assert (request.code, it.state.status) == (REGISTER, "registered")
        peer.send(agents.native_response(request, 16, remark="not allowed"))
        await until(lambda: it.state.counts.refusals)
        assert (it.state.status, it.state.last_error) == ("refused", "registration refused: not allowed")

        await it.clock.advance(28.5)
        await it.registered_over(peer)
        assert (it.state.status, it.state.counts.reconnects) == ("registered", 0)


async def test_error_of_a_refused_heartbeat_ends_with_the_next_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the accepted heartbeat shows a restart of the server. Refusals are counted, and logged once."""
    # the side-car configures this logger itself
    caplog.set_level(logging.INFO, "namesrv_agent.registration")
    async with agents.played() as it:
        peer = await it.registers()
        for number, pause in enumerate((14.25, 28.5), start=1):
            await it.clock.advance(pause)
            peer.send(agents.native_response(await peer.receive(), 1, remark="no"))
            await until(lambda: it.state.counts.refusals == number)  # noqa: B023 - called in this iteration
        assert it.state.last_error == "heartbeat refused: no"
        assert it.state.counts == LinkCounts(registrations=1, refusals=2)
        reasons = [record.getMessage() for record in caplog.records if record.name == "namesrv_agent.registration"]
        assert reasons == [f"{it.server.address}: heartbeat refused: no"]

        await it.clock.advance(28.5)
        peer.send(agents.native_response(await peer.receive(), ext={"boot_id": "b2"}))
        assert (await peer.receive()).code == REGISTER
        assert it.state.last_error is None


async def test_no_heartbeat_follows_a_stale_registration() -> None:
    """The agent registers over a new connection at once, also if a heartbeat is due."""
    async with agents.played() as it:
        peer = await it.registers()
        await it.agent.create_topic(REFUNDS)
        peer.send(agents.native_response(await peer.receive(), 1, remark="no"))
        await until(lambda: it.state.counts.refusals == 1)
        await it.clock.advance(14.25)
        stale = agents.native_response(await peer.receive(), 1, {STALE_FIELD: "true"}, remark="older")
        peer.send(stale)
        await until(lambda: it.state.counts.refusals == 2)
        await settle()
        assert it.pending == 0
        registering = asyncio.ensure_future(it.registers())
        await passing(it.clock, registering.done)
        assert it.state.status == "registered"


async def test_reason_of_a_refusal_outlives_the_closed_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A server that refuses and closes, as one that requires TLS does, is not reported as a lost connection."""
    # the side-car configures this logger itself
    caplog.set_level(logging.INFO, "namesrv_agent.registration")
    async with agents.played() as it:

        async def attempt(number: int) -> None:
            await passing(it.clock, lambda: it.server.connections == number)
            peer = await it.server.accept()
            peer.send(agents.native_response(await peer.receive(), 1, remark="TLS required"))
            peer.writer.close()
            await passing(it.clock, lambda: it.state.counts.failures == number)
            assert (it.state.status, it.state.last_error) == ("unreachable", "registration refused: TLS required")

        await attempt(1)
        await attempt(2)
        reasons = [record.getMessage() for record in caplog.records if record.name == "namesrv_agent.registration"]
        assert reasons == [f"{it.server.address}: registration refused: TLS required"]


@pytest.mark.slow
async def test_topics_that_fit_into_no_frame_do_not_end_the_registration() -> None:
    """Heartbeats go on without a reconnect, and a new connection gets the topics that fitted."""
    async with agents.played() as it:
        peer = await it.registers()
        # about 18 MB, compressed
        names = [base64.urlsafe_b64encode(os.urandom(189)).decode() for _ in range(95_000)]
        await it.agent.replace_topics([*agents.TOPICS, *(TopicConfig(name, 1, 1) for name in names)])
        await until(lambda: it.state.last_error)
        assert str(it.state.last_error).startswith("registration not sent: ")
        assert (it.state.status, it.state.counts.refusals, it.state.counts.failures) == ("registered", 0, 0)
        await it.clock.advance(14.25)
        assert (await peer.receive()).code == HEARTBEAT

        peer.close()
        await until(lambda: it.state.status == "unreachable")
        await it.clock.advance(1.0)
        # The clock stands still while a thread compresses the topics.
        await until(lambda: it.server.connections == 2)
        request = await it.registered_over(await it.server.accept())
        assert topics_in(request) == ["orders", "bills"]


# -- losses -----------------------------------------------------------------------------------------------------------


async def test_lost_connection_ends_the_registration() -> None:
    """A caller that waits for the registration afterwards waits for the next one, which has all topics.

    The connection breaks with a change in flight.
    """
    async with agents.played() as it:
        peer = await it.registers()
        await it.agent.create_topic(REFUNDS)
        assert agents.ext_of(await peer.receive())["kind"] == "delta"
        peer.close()
        await until(lambda: not agents.sockets(it.agent))

        with pytest.raises(TimeoutError, match="not registered"):
            await it.agent.registered(timeout_seconds=0)
        assert not it.state.is_settled
        assert await passing(it.clock, lambda: it.server.connections == 2) <= 0.2
        request = await it.registered_over(await it.server.accept())
        assert (agents.ext_of(request)["kind"], topics_in(request)) == ("full", ["orders", "bills", "refunds"])
        assert await it.agent.registered() == 1


async def connection_after(it: agents.Played, first: Peer) -> Peer:
    """The agent's second connection, which it opens when its heartbeat over the first one gets no response."""
    await it.clock.advance(14.25)
    assert (await first.receive()).code == HEARTBEAT
    await passing(it.clock, lambda: it.server.connections == 2)
    return await it.server.accept()


async def three_attempts_fail(it: agents.Played) -> None:
    """Close the agent's next three connections at once, and wait for the fourth."""
    for number in range(it.server.connections + 1, it.server.connections + 4):
        await passing(it.clock, partial(has_accepted, it, number))
        (await it.server.accept()).close()
    await passing(it.clock, partial(has_accepted, it, it.server.connections + 1))


def has_accepted(it: agents.Played, count: int) -> bool:
    """True once the server has accepted so many connections."""
    return it.server.connections == count


async def test_failed_attempts_keep_the_connection_that_has_the_registration() -> None:
    """Attempts that fail after a lost response, for example at a connection limit, cost no registration."""
    async with agents.played() as it:
        registered = await it.registers()
        await it.clock.advance(14.25)
        assert (await registered.receive()).code == HEARTBEAT
        await three_attempts_fail(it)
        assert not registered.reader.at_eof()

        await it.registered_over(await it.server.accept())
        await registered.gone()
        await settle()
        assert len(agents.sockets(it.agent)) == 1


async def test_attempts_without_a_connection_keep_the_one_that_may_have_the_registration() -> None:
    """A slow server accepts a registration too late for the agent, and would evict the broker with its connection."""
    async with agents.played() as it:
        registered = await it.registers()
        slow = await connection_after(it, registered)
        assert (await slow.receive()).code == REGISTER
        await three_attempts_fail(it)
        assert not slow.reader.at_eof()
        assert not registered.reader.at_eof()

        await it.registered_over(await it.server.accept())
        await slow.gone()
        await registered.gone()
        assert len(agents.sockets(it.agent)) == 1


async def test_refused_registration_keeps_the_former_connection() -> None:
    """A busy server would evict the broker with the connection over which it has the broker's registration."""
    async with agents.played() as it:
        former = await it.registers()
        current = await connection_after(it, former)
        busy = agents.native_response(await current.receive(), 2, remark="too many requests; try again later")
        current.send(busy)
        await until(lambda: it.state.counts.refusals)
        await settle()
        assert len(agents.sockets(it.agent)) == 2

        await it.clock.advance(14.25)
        await it.registered_over(current)
        await former.gone()
        assert len(agents.sockets(it.agent)) == 1


async def test_no_heartbeat_follows_a_connection_that_is_lost_after_the_registration() -> None:
    """The agent registers over the next connection, also if a heartbeat was due when it closed its former connection.

    A heartbeat would open another connection, over which the server has no registration.
    """
    async with agents.played() as it:
        former = await it.registers()
        current = await connection_after(it, former)
        current.send(agents.native_response(await current.receive(), 2, remark="too many requests; try again later"))
        await until(lambda: it.state.counts.refusals)
        # The registration is sent again when a heartbeat is due.
        await it.clock.advance(14.25)
        current.send(agents.native_response(await current.receive()))
        current.writer.close()

        await passing(it.clock, lambda: it.server.connections == 3)
        assert (await (await it.server.accept()).receive()).code == REGISTER


async def test_agent_backs_off_from_an_overloaded_server() -> None:
    """Timeouts and delays grow while the server accepts connections and sends no response.

    With 5 s and 0.8 s for ever, two thousand agents would keep an overloaded server from recovering.
    """
    async with agents.played() as it:
        more = [lambda number=number: it.server.connections > number for number in range(1, 7)]
        rounds = [await passing(it.clock, came) for came in more]

        waits = [5, 7.5, 12.5, 12.5, 12.5, 12.5]
        pauses = [0.5, 1, 2, 4, 7.5, 7.5]
        assert [wait + pause for wait, pause in zip(waits, pauses, strict=True)] == pytest.approx(rounds, abs=0.2)


async def test_bug_is_logged_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The link sends no more requests, and its state contains the error."""
    async with agents.played(options={"random_unit": lambda: 1 / 0}) as it:
        await it.registers()
        await until(lambda: it.state.status == "unreachable")
        assert it.state.last_error == "crashed: ZeroDivisionError('division by zero')"
        await until(lambda: caplog.records)
    assert [line.getMessage() for line in caplog.records] == [f"agent task namesrv-agent {it.server.address} crashed"]
