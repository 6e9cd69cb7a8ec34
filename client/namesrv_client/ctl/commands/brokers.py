"""`brokers`, `clusters` and `connections`: who is registered, and who is connected."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import typer

from namesrv_client.ctl.listing import absences_in, listing
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Servers
from namesrv_client.ctl.wording import lasting
from namesrv_remoting.bodies.answers import ClusterInfo
from namesrv_remoting.bodies.extension_answers import Connection, LiveBroker, Scalar
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.codes import MASTER_ID

ClusterOption = Annotated[str | None, typer.Option("--cluster", "-c", help="Only this cluster.")]
NameOption = Annotated[str | None, typer.Option("--name", "-b", help="Only this broker name.")]
Role = Literal["broker", "client", "admin"]


def brokers(options: Options, cluster: ClusterOption = None, name: NameOption = None) -> None:
    """List live brokers: when each was last heard, when it expires, and the state that it reports.

    Of Apache's NameServer only cluster, name, id and address. Exits with 1 if the given cluster or name matches no
    broker.
    """
    named = "" if name is None else f" {name}"
    asked = f"broker{named} in cluster {cluster}" if cluster else f"broker{named}" if name else ""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.brokers(cluster, name))
        return listing(
            answers,
            "brokers",
            document=msgspec.to_builtins,
            columns=(
                "cluster",
                "broker",
                "id",
                "address",
                "heard",
                "expires in",
                "topics",
                "wiped",
                "version",
                "state",
            ),
            rows=lambda found: map(_live_row, found),
            absences=absences_in(answers, lambda found: () if found or not asked else (asked,)),
        )

    show(options, ask)


def _live_row(broker: LiveBroker) -> tuple[object, ...]:
    heard = lasting(broker.age_seconds)
    return (
        broker.cluster,
        broker.broker_name,
        broker.broker_id,
        broker.broker_addr,
        None if heard is None else f"{heard} ago",
        lasting(broker.expires_in_seconds),
        broker.topics,
        broker.write_wiped,
        None if broker.data_version is None else broker.data_version.counter,
        None if not broker.state else " ".join(f"{key}={_scalar(value)}" for key, value in broker.state.items()),
    )


def _scalar(value: Scalar) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def clusters(options: Options, cluster: ClusterOption = None) -> None:
    """List clusters and their broker groups.

    Exits with 1 if a server does not have the given cluster.
    """

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.cluster_info())
        return listing(
            answers,
            "clusters",
            document=lambda found: [_cluster(name, groups) for name, groups in _by_cluster(found, cluster)],
            columns=("cluster", "broker", "master", "slaves", "zone", "acting master"),
            rows=lambda found: (
                _group_row(name, group) for name, groups in _by_cluster(found, cluster) for group in groups
            ),
            absences=absences_in(answers, lambda found: (f"cluster {cluster}",) if _lacks(found, cluster) else ()),
        )

    show(options, ask)


def _by_cluster(found: ClusterInfo, only: str | None) -> Iterator[tuple[str, list[BrokerData]]]:
    for name, brokers in sorted(found.cluster_addr_table.items()):
        if only in (None, name):
            # Apache's server may name brokers that are gone
            known = (found.broker_addr_table.get(broker) for broker in sorted(brokers))
            yield name, [group for group in known if group is not None]


def _lacks(found: ClusterInfo, cluster: str | None) -> bool:
    return cluster is not None and cluster not in found.cluster_addr_table


def _cluster(name: str, groups: list[BrokerData]) -> dict[str, Any]:
    return {"cluster": name, "brokers": [group_members(group) for group in groups]}


def group_members(group: BrokerData) -> dict[str, Any]:
    """A broker group for programs; ids as text, since JSON has no other keys."""
    members: dict[str, Any] = msgspec.to_builtins(group)
    del members["cluster"]
    return {**members, "broker_addrs": {str(key): addr for key, addr in sorted(group.broker_addrs.items())}}


def _group_row(cluster: str, group: BrokerData) -> tuple[object, ...]:
    return (
        cluster,
        group.broker_name,
        group.broker_addrs.get(MASTER_ID),
        slaves(group),
        group.zone_name,
        group.enable_acting_master,
    )


def slaves(group: BrokerData) -> str | None:
    """The instances that are no master, as `id=address`."""
    found = [f"{key}={addr}" for key, addr in sorted(group.broker_addrs.items()) if key != MASTER_ID]
    return " ".join(found) or None


def connections(
    options: Options,
    role: Annotated[Role | None, typer.Option("--role", help="Only connections of brokers, clients or tools.")] = None,
) -> None:
    """List connections: since when they are open, how many requests they sent, how many bytes are unsent.

    Not available from Apache's NameServer.
    """

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.connections(role))
        now_ms = servers.clock.wall() * 1000
        return listing(
            answers,
            "connections",
            document=msgspec.to_builtins,
            columns=("id", "peer", "role", "protocol", "connected", "last request", "requests", "in flight", "unsent"),
            rows=lambda found: (_connection_row(connection, now_ms) for connection in found),
        )

    show(options, ask)


def _connection_row(connection: Connection, now_ms: float) -> tuple[object, ...]:
    since = None if connection.since_ms is None else max(0.0, (now_ms - connection.since_ms) / 1000)
    last = lasting(connection.last_request_seconds)
    return (
        connection.id,
        connection.peer if connection.proxied is None else f"{connection.peer} for {connection.proxied}",
        connection.role,
        connection.protocol,
        lasting(since),
        None if last is None else f"{last} ago",
        connection.requests,
        connection.in_flight,
        connection.unsent_bytes,
    )
