"""Members of a group are notified that its smallest id changed (905).

A native member over the connection that it registered on; a Java broker is dialled at its address.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import pytest

from namesrv.routeinfo.records import MinBrokerIdChanged
from namesrv.server.notifier import TIMEOUT_SECONDS
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import settle
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import Broker, NamesrvPeer
from tests.support.raw_peer import until
from tests.support.scripted_server import Peer, ScriptedServer

ACTING: dict[str, Any] = {"enableActingMaster": "true"}
MASTER = Broker()
AGENT = Broker(id=2, addr="10.0.0.2:10911")
notifying = pytest.mark.settings(notify_min_broker_id_changed=True)


async def receive_notice(peer: NamesrvPeer) -> list[Any]:
    """The header of a native frame that is no answer and has no body."""
    data = await peer.receive_bytes()
    assert (77, 8 + int.from_bytes(data[5:8])) == (data[4], len(data))
    header: list[Any] = msgpack.unpackb(data[8:])
    return header


async def dialled(java: ScriptedServer) -> dict[str, Any]:
    """The header of the request that a Java broker gets, after which the server hangs up."""
    peer: Peer = await java.accept()
    question = await peer.receive()
    assert b"" == question.body
    assert await peer.at_end()
    header: dict[str, Any] = question.header
    return header


@notifying
async def test_members_are_told_who_is_the_smallest_now(server: InProcess) -> None:
    """A master joins and leaves: the Java slave is dialled, the agent gets it over its own connection, all oneway."""
    async with ScriptedServer() as java:
        master, slave, agent = await server.connect(), await server.connect(), await server.connect()
        await slave.register(Broker(id=1, addr=java.address), **ACTING)
        await agent.register(AGENT, **ACTING, spelling="native")

        await master.register(MASTER, **ACTING, haServerAddr="10.0.0.1:10912")
        told = {
            "minBrokerId": "0",
            "brokerName": "broker-a",
            "minBrokerAddr": "10.0.0.1:10911",
            "haBrokerAddr": "10.0.0.1:10912",
        }
        code, _, flag, version, remark, ext = await receive_notice(agent)
        assert (905, 2, 479, None, told) == (code, flag, version, remark, ext)
        header = await dialled(java)
        assert (905, 2, 479, "PYTHON") == (header["code"], header["flag"], header["version"], header["language"])
        assert told == header["extFields"]

        await server.hang_up(master)
        told = {
            "minBrokerId": "1",
            "brokerName": "broker-a",
            "minBrokerAddr": java.address,
            "offlineBrokerAddr": "10.0.0.1:10911",
        }
        assert told == (await receive_notice(agent))[5] == (await dialled(java))["extFields"]


async def test_nobody_is_told_unless_the_setting_is_on(server: InProcess) -> None:
    """The default: members find out at their next poll."""
    async with ScriptedServer() as java:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, **ACTING)
        await slave.register(Broker(id=1, addr=java.address), **ACTING)

        await master.call(104, MASTER.ext)
        await settle()

        assert (0, []) == (java.connections, server.taken(MinBrokerIdChanged))


@contextmanager
def refusing() -> Iterator[str]:
    """An address that nobody listens on: the broker may have died a moment ago."""
    with refusing_port() as bound:
        host, port = bound.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("addr", ["no address", "127.0.0.1:99999", "[::1]", refusing, full_queue])
@notifying
async def test_member_that_cannot_be_reached_is_let_be(
    server: InProcess, addr: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker names its own address, and nobody checks it before: one line; nobody waits, and the server goes on."""
    caplog.set_level(logging.INFO)

    def failed() -> list[str]:
        records = [record for record in caplog.records if record.msg == "min_broker_id_not_notified"]
        return [vars(record)["fields"]["broker_addr"] for record in records]

    async def check(addr: str) -> None:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, **ACTING)
        await slave.register(Broker(id=1, addr=addr), **ACTING)
        assert 0 == (await master.call(104, MASTER.ext)).code
        assert 0 == (await slave.call(105, {"topic": "T"})).code
        # one that does not accept is given up when the time for connecting is over
        await server.clock.advance(TIMEOUT_SECONDS)
        await until(failed)
        assert [addr] == failed()

    if isinstance(addr, str):
        await check(addr)
    else:
        with addr() as place:
            await check(place)
