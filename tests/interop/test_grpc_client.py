"""A gRPC client sends and receives through a Proxy that gets its routes from our NameServers."""

from pathlib import Path

from tests.interop.peers.apache import MqAdmin, Proxy
from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import GrpcClient
from tests.interop.peers.route import members_of, until_routed
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon


def test_grpc_client_notices_no_dead_name_server(
    two_daemons: tuple[Daemon, Daemon], name_servers: list[str], mqadmin: MqAdmin, tmp_path: Path
) -> None:
    """Each message is acknowledged and received, also after one NameServer was killed and for a topic made then."""
    with Broker(tmp_path / "broker", name_servers) as broker:
        broker.booted()
        until_equal([{0: broker.address}] * 2, lambda: members_of(name_servers, broker.name))
        mqadmin.make_topics(broker.address, "orders", "bills")
        until_routed(name_servers, "bills")
        with (
            Proxy(tmp_path / "proxy", name_servers) as proxy,
            GrpcClient(tmp_path / "orders", proxy.booted().grpc_address, "orders") as orders,
        ):
            orders.started()
            for number in range(10):
                orders.send(f"before-{number}")
            until_equal({f"before-{number}" for number in range(10)}, orders.received)

            two_daemons[0].kill()
            for number in range(10):
                orders.send(f"after-{number}")
            until_equal(20, lambda: len(orders.received()))
            with GrpcClient(tmp_path / "bills", proxy.grpc_address, "bills") as bills:
                bills.started()
                bills.send("bill")
                until_equal({"bill"}, bills.received)
