"""Members of a group learn when its lowest broker id changes (905)."""

import socket

import pytest

from namesrv_remoting.codes import FLAG_ONEWAY
from namesrv_remoting.command import RemotingCommand
from tests.support.daemon import Start
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import Broker, Connect, Peer

# tests/namesrv/net and tests/namesrv/server show the same on both event loops.
pytestmark = pytest.mark.parametrize("loop", ["auto"])

NOTIFY_MIN_BROKER_ID_CHANGE = 905
MASTER = Broker(addr="10.0.0.1:10911", enable_acting_master=True)


def slave(broker_id: int, addr: str) -> Broker:
    """A member of the group, which has agreed to an acting master."""
    return Broker(broker_id=broker_id, addr=addr, enable_acting_master=True)


def dialled(listener: socket.socket) -> RemotingCommand:
    """The only request on a connection that the server opens to a broker and closes again."""
    accepted, _ = listener.accept()
    with Peer(accepted) as peer:
        command = peer.receive()
        peer.wait_until_closed()
    return command


def test_members_are_notified_of_a_new_and_a_lost_master(start: Start, connect: Connect) -> None:
    """A RocketMQ member is notified at its own address, a native one over the connection that it registered on.

    An unreachable or invalid address is a line in the log, and delays no other notification.
    """
    daemon = start("--notify-min-broker-id-changed")
    master, native = connect(daemon), connect(daemon, native=True)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        unreachable = "{}:{}".format(*closed.getsockname())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(GUARD_SECONDS)
        addr = "{}:{}".format(*listener.getsockname())
        slave(1, addr).register(connect(daemon))
        slave(2, "10.0.0.2:10911").register(native)
        slave(3, unreachable).register(connect(daemon))
        slave(4, "nowhere").register(connect(daemon))

        MASTER.register(master)
        came = {"minBrokerId": "0", "brokerName": "broker-a", "minBrokerAddr": MASTER.addr}
        for notice in (dialled(listener), native.receive()):
            assert (notice.code, notice.flag) == (NOTIFY_MIN_BROKER_ID_CHANGE, FLAG_ONEWAY)
            assert {**came, "haBrokerAddr": "10.0.0.1:109110"} == notice.ext_fields
        assert notice.is_native
        assert {addr, "10.0.0.2:10911", unreachable, "nowhere"} == set(
            daemon.wait_for("min_broker_id_changed")["recipients"]
        )
        for lost in (unreachable, "nowhere"):
            daemon.wait_for("min_broker_id_not_notified", broker_addr=lost)

        master.close()
        went = {"minBrokerId": "1", "brokerName": "broker-a", "minBrokerAddr": addr, "offlineBrokerAddr": MASTER.addr}
        for notice in (dialled(listener), native.receive()):
            assert (NOTIFY_MIN_BROKER_ID_CHANGE, FLAG_ONEWAY, went) == (notice.code, notice.flag, notice.ext_fields)
