"""Members of a group are notified that its smallest id changed (905).

A native member over the connection that it registered on; a Java broker is dialled at its address.
"""

import logging
from pathlib import Path
from typing import Any

import msgpack
import pytest

from namesrv.routeinfo.records import MinBrokerIdChanged
from namesrv.server.notifier import TIMEOUT_SECONDS
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import settle
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, NamesrvPeer
from tests.support.raw_peer import until
from tests.support.scripted_server import Peer, ScriptedServer

ACTING: dict[str, Any] = {"enableActingMaster": "true"}
MASTER = Broker()
AGENT = Broker(id=2, addr="10.0.0.2:10911")


async def receive_notice(peer: NamesrvPeer) -> tuple[list[Any], bytes]:
    """The header of a native frame that is no answer, and its body."""
    data = await peer.receive_bytes()
    assert 77 == data[4]
    body_at = 8 + int.from_bytes(data[5:8])
    return msgpack.unpackb(data[8:body_at]), data[body_at:]


async def dialled(java: ScriptedServer) -> dict[str, Any]:
    """The header of the request that a Java broker gets, after which the server hangs up."""
    peer: Peer = await java.accept()
    question = await peer.receive()
    assert b"" == question.body
    assert await peer.at_end()
    header: dict[str, Any] = question.header
    return header


async def test_java_broker_is_dialled_when_the_master_leaves(tmp_path: Path) -> None:
    """Oneway, with the new smallest id, its address, and the one that is gone."""
    async with ScriptedServer() as java, namesrv_in_process(tmp_path, notify_min_broker_id_changed=True) as server:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, **ACTING)
        await slave.register(Broker(id=1, addr=java.address), **ACTING)

        await master.call(104, MASTER.ext)
        header = await dialled(java)

    assert (905, 2, 479, "PYTHON") == (header["code"], header["flag"], header["version"], header["language"])
    assert {
        "minBrokerId": "1",
        "brokerName": "broker-a",
        "minBrokerAddr": java.address,
        "offlineBrokerAddr": "10.0.0.1:10911",
    } == header["extFields"]


async def test_all_others_are_told_who_is_the_smallest_now(tmp_path: Path) -> None:
    """A master joins: the Java slave is dialled, the agent gets it over its own connection; the master knows."""
    async with ScriptedServer() as java, namesrv_in_process(tmp_path, notify_min_broker_id_changed=True) as server:
        master, slave, agent = await server.connect(), await server.connect(), await server.connect()
        await slave.register(Broker(id=1, addr=java.address), **ACTING)
        await agent.register(AGENT, **ACTING, spelling="native")

        await master.register(MASTER, **ACTING, haServerAddr="10.0.0.1:10912")

        expected = {
            "minBrokerId": "0",
            "brokerName": "broker-a",
            "minBrokerAddr": "10.0.0.1:10911",
            "haBrokerAddr": "10.0.0.1:10912",
        }
        header, body = await receive_notice(agent)
        code, _, flag, version, remark, ext = header
        assert (905, 2, 479, None, b"") == (code, flag, version, remark, body)
        assert expected == ext
        assert expected == (await dialled(java))["extFields"]


@pytest.mark.settings(notify_min_broker_id_changed=True)
async def test_agent_is_told_when_the_master_leaves(server: InProcess) -> None:
    """However it leaves."""
    master, agent = await server.connect(), await server.connect()
    await master.register(MASTER, **ACTING)
    await agent.register(AGENT, **ACTING, spelling="native")

    await server.hang_up(master)
    header, _ = await receive_notice(agent)

    assert {
        "minBrokerId": "2",
        "brokerName": "broker-a",
        "minBrokerAddr": "10.0.0.2:10911",
        "offlineBrokerAddr": "10.0.0.1:10911",
    } == header[5]


async def test_nobody_is_told_unless_the_setting_is_on(tmp_path: Path) -> None:
    """The default: members find out at their next poll."""
    async with ScriptedServer() as java, namesrv_in_process(tmp_path) as server:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, **ACTING)
        await slave.register(Broker(id=1, addr=java.address), **ACTING)

        await master.call(104, MASTER.ext)
        await settle()

        assert 0 == java.connections
        assert [] == server.taken(MinBrokerIdChanged)


@pytest.mark.parametrize("addr", ["no address", "127.0.0.1:99999", "[::1]"])
async def test_member_with_an_address_that_is_none_is_let_be(
    tmp_path: Path, addr: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker names its own, and nobody checks it before."""
    await check_let_be(tmp_path, addr, caplog)


async def test_member_that_refuses_is_let_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may have died a moment ago."""
    with refusing_port() as bound:
        host, port = bound.getsockname()
        await check_let_be(tmp_path, f"{host}:{port}", caplog)


async def check_let_be(tmp_path: Path, addr: str, caplog: pytest.LogCaptureFixture) -> None:
    """One line; nobody waits, and the server goes on."""
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path, notify_min_broker_id_changed=True) as server:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, **ACTING)
        await slave.register(Broker(id=1, addr=addr), **ACTING)

        assert 0 == (await master.call(104, MASTER.ext)).code

        await until(lambda: failed(caplog))
        assert 0 == (await slave.call(105, {"topic": "T"})).code
    assert [addr] == failed(caplog)


async def test_member_that_does_not_accept_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the time for connecting is over; the server goes on meanwhile."""
    caplog.set_level(logging.INFO)
    with full_queue() as addr:
        async with namesrv_in_process(tmp_path, notify_min_broker_id_changed=True) as server:
            master, slave = await server.connect(), await server.connect()
            await master.register(MASTER, **ACTING)
            await slave.register(Broker(id=1, addr=addr), **ACTING)
            await master.call(104, MASTER.ext)
            assert 0 == (await slave.call(105, {"topic": "T"})).code
            assert [] == failed(caplog)

            await server.clock.advance(TIMEOUT_SECONDS)

            await until(lambda: failed(caplog))


def failed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The addresses that could not be told."""
    return [
        vars(record)["fields"]["broker_addr"] for record in caplog.records if record.msg == "min_broker_id_not_notified"
    ]
