"""Brokers whose master a controller elects: a killed master is replaced in the routes of both NameServers."""

from pathlib import Path

from tests.interop.peers.apache import Controller, MqAdmin
from tests.interop.peers.broker import Broker, leaves
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import members_of, routes_of, until_routed
from tests.interop.peers.waiting import until, until_equal
from tests.support.daemon import Daemon

_TOPIC = "orders"
# A send that fails while the group has no master, by name: the producer's poll has not reached it yet.
_NO_MASTER = r"connect to|Remoting(Connect|SendRequest|Timeout)Exception|No route info of this topic|MQBrokerException"


def test_elected_master_is_in_the_route_at_once(
    two_daemons: tuple[Daemon, Daemon], name_servers: list[str], mqadmin: MqAdmin, clients: Driver, tmp_path: Path
) -> None:
    """Within a second after its registration the elected slave is the master, with id 0 only, of every route.

    A producer continues with it, all acknowledged messages are consumed, and the old master comes back as a slave.
    """
    with Controller(tmp_path / "controller") as controller:
        controller.booted()
        settings = {
            "enableControllerMode": "true",
            "controllerAddr": controller.address,
            "allAckInSyncStateSet": "true",
            "brokerHeartbeatInterval": 1000,
            "syncBrokerMetadataPeriod": 1000,
            "checkSyncStateSetPeriod": 1000,
        }

        def start(name: str, port: int = 0) -> Broker:
            return Broker(tmp_path / name, name_servers, port=port, settings=settings)

        with start("first") as first, start("second") as second:
            for broker in (first, second):
                broker.booted()
            until(lambda: all(len(members) == 2 for members in members_of(name_servers, first.name)))
            master, slave = (first, second) if _is_master(first, name_servers) else (second, first)
            mqadmin.make_topics(master.address, _TOPIC)
            until_routed(name_servers, _TOPIC)
            in_sync = ("getSyncStateSet", "-a", controller.address, "-b", master.name)
            until(lambda: "#SyncStateSetNums\t2" in mqadmin.succeed(*in_sync).stdout)
            clients.start_producer("producer", name_servers, poll=500)
            clients.start_consumer("consumer", name_servers, _TOPIC, poll=500)
            assert len(clients.send("producer", _TOPIC, 20, "before")) == 20

            with leaves(two_daemons, master, "disconnected"):
                master.kill()
            for daemon in two_daemons:
                daemon.wait_for("broker_registered", broker_addr=slave.address, broker_id=0)
            routes = [None if route is None else route.brokers for route in routes_of(name_servers, _TOPIC)]
            assert routes == [{master.name: {0: slave.address}}] * 2

            until(lambda: _are_sent(clients))
            acked = clients.bodies("acked", name="producer")
            until_equal(acked, lambda: clients.bodies("received", name="consumer"))

            with start(master.home.name, master.port) as returned:
                returned.booted()
                until(lambda: all(len(members) == 2 for members in members_of(name_servers, first.name)))
                for members in members_of(name_servers, first.name):
                    assert members[0] == slave.address
                    assert set(members.values()) == {slave.address, returned.address}


def _are_sent(clients: Driver) -> bool:
    """Send messages; True if all were acknowledged. A send fails only because the group has no master."""
    if len(clients.send("producer", _TOPIC, 20, "after")) == 20:
        return True
    clients.excuse(_NO_MASTER)
    return False


def _is_master(broker: Broker, name_servers: list[str]) -> bool:
    return members_of(name_servers, broker.name)[0].get(0) == broker.address
