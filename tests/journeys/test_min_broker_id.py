"""Members of a group learn when its lowest broker id changes (905)."""

import socket
from collections.abc import Iterator

import pytest

from namesrv_remoting.codes import FLAG_ONEWAY
from namesrv_remoting.command import RemotingCommand
from tests.support.broker import Broker
from tests.support.daemon import Daemon, Start
from tests.support.guard import GUARD_SECONDS
from tests.support.peer import Connect, Peer

NOTIFY_MIN_BROKER_ID_CHANGE = 905


@pytest.fixture
def daemon(start: Start) -> Daemon:
    """A server that tells."""
    return start("--notify-min-broker-id-changed")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Where a broker accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(GUARD_SECONDS)
        yield listener


def member(broker_id: int, addr: str) -> Broker:
    """A member of the group, which has agreed to an acting master."""
    return Broker(broker_id=broker_id, addr=addr, enable_acting_master=True)


def address_of(listener: socket.socket) -> str:
    """What a broker registers that listens there."""
    host, port = listener.getsockname()
    return f"{host}:{port}"


def told(listener: socket.socket) -> RemotingCommand:
    """The one request that the server sends to a broker: it dials, tells, and hangs up."""
    accepted, _ = listener.accept()
    with Peer(accepted) as peer:
        command = peer.receive()
        peer.wait_until_closed()
    return command


def test_slave_is_dialled_when_its_master_comes_and_goes(
    daemon: Daemon, connect: Connect, listener: socket.socket
) -> None:
    """A RocketMQ member is told at its own address: who the lowest is now, and who came or went."""
    slave_addr = address_of(listener)
    master = connect(daemon)
    member(1, slave_addr).register(connect(daemon))

    member(0, "10.0.0.1:10911").register(master)
    came = told(listener)
    assert (NOTIFY_MIN_BROKER_ID_CHANGE, FLAG_ONEWAY) == (came.code, came.flag)
    assert {
        "minBrokerId": "0",
        "brokerName": "broker-a",
        "minBrokerAddr": "10.0.0.1:10911",
        "haBrokerAddr": "10.0.0.1:109110",
    } == came.ext_fields

    master.close()
    went = told(listener)
    assert (NOTIFY_MIN_BROKER_ID_CHANGE, FLAG_ONEWAY) == (went.code, went.flag)
    assert {
        "minBrokerId": "1",
        "brokerName": "broker-a",
        "minBrokerAddr": slave_addr,
        "offlineBrokerAddr": "10.0.0.1:10911",
    } == went.ext_fields


def test_native_member_is_told_over_its_own_connection(daemon: Daemon, connect: Connect) -> None:
    """A native member need not listen: the notice comes over the connection that it registered on."""
    slave, master = connect(daemon, native=True), connect(daemon)
    member(1, "10.0.0.2:10911").register(slave)

    member(0, "10.0.0.1:10911").register(master)
    came = slave.receive()
    assert (NOTIFY_MIN_BROKER_ID_CHANGE, FLAG_ONEWAY) == (came.code, came.flag)
    assert came.is_native
    assert "0" == (came.ext_fields or {})["minBrokerId"]

    assert 0 == member(0, "10.0.0.1:10911").unregister(master)
    went = slave.receive()
    assert ("1", "10.0.0.1:10911") == (
        (went.ext_fields or {})["minBrokerId"],
        (went.ext_fields or {})["offlineBrokerAddr"],
    )


def test_member_that_cannot_be_reached_holds_nobody_up(daemon: Daemon, connect: Connect) -> None:
    """A member at an address where nobody listens costs a line in the log; the registration is answered at once."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        addr = address_of(nobody)
    member(1, addr).register(connect(daemon))

    member(0, "10.0.0.1:10911").register(connect(daemon))

    assert [addr] == daemon.wait_for("min_broker_id_changed")["recipients"]
    assert addr == daemon.wait_for("min_broker_id_not_notified")["broker_addr"]


def test_address_that_is_none_holds_nobody_up(daemon: Daemon, connect: Connect) -> None:
    """A member that registered something that cannot be dialled costs a line in the log."""
    member(1, "nowhere").register(connect(daemon))

    member(0, "10.0.0.1:10911").register(connect(daemon))

    assert "nowhere" == daemon.wait_for("min_broker_id_not_notified")["broker_addr"]


def test_nobody_is_told_by_default(start: Start, connect: Connect) -> None:
    """Without the setting members find out at their next poll."""
    daemon = start()
    slave = connect(daemon, native=True)
    member(1, "10.0.0.2:10911").register(slave)

    member(0, "10.0.0.1:10911").register(connect(daemon))

    # the next frame is the answer to this, and no notice
    assert 0 == slave.ask(106).code
    assert [] == daemon.lines("min_broker_id_changed")
