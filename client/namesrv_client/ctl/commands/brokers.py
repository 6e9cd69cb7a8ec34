"""`status`, `brokers`, `clusters`, `connections`, write permissions: the state of servers, and their peers."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.comparison import same_servers
from namesrv_client.ctl.completing import broker_names, cluster_names
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, ago, cell, lasting, table
from namesrv_client.ctl.problems import code_of, document_of, line_of, listing, report_of, reports_in, with_queues
from namesrv_client.ctl.running import UNCHANGED, Columns, absences_in, change, show, show_list
from namesrv_client.ctl.servers import Servers, reason
from namesrv_client.health import Server, failure_state, missing_brokers, problems, state_of
from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED
from namesrv_remoting.bodies.extensions import Connection, LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo
from namesrv_remoting.codes import MASTER_ID, RequestCode
from namesrv_remoting.errors import RemotingError, ResponseError

ClusterOption = Annotated[
    str | None, typer.Option("--cluster", "-c", help="Only this cluster.", autocompletion=cluster_names)
]
NameOption = Annotated[
    str | None, typer.Option("--name", "-b", help="Only this broker name.", autocompletion=broker_names)
]
BrokerName = Annotated[
    str,
    typer.Argument(metavar="BROKER", help="Name of a broker group.", show_default=False, autocompletion=broker_names),
]
Role = Literal["broker", "client", "admin"]
# Cluster, name, id, address.
BrokerKey = tuple[str, str, int, str]


def key_of(broker: LiveBroker) -> BrokerKey:
    """Key of a broker at an address, the same on every server; lists are sorted by it."""
    return broker.cluster, broker.broker_name, broker.broker_id, broker.broker_addr


def _advertised(broker: LiveBroker) -> str | None:
    """The addresses that a broker advertises, as `view=address`; those of its HA server as `view/ha=address`."""
    advertised = broker.advertised or NOTHING_ADVERTISED
    ha = [(f"{view}/ha", address) for view, address in advertised.ha_server_addr.items()]
    return " ".join(f"{view}={address}" for view, address in [*advertised.broker_addr.items(), *ha]) or None


_LIVE: Final[Columns[LiveBroker]] = {
    "cluster": lambda broker: broker.cluster,
    "broker": lambda broker: broker.broker_name,
    "id": lambda broker: broker.broker_id,
    "address": lambda broker: broker.broker_addr,
    "advertised": _advertised,
    "last seen": lambda broker: ago(broker.age_seconds),
    "expires in": lambda broker: lasting(broker.expires_in_seconds),
    "topics": lambda broker: broker.topics,
    "write removed": lambda broker: broker.write_removed,
    "version": lambda broker: broker.data_version and broker.data_version.counter,
    "state": lambda broker: " ".join(f"{key}={cell(it).plain}" for key, it in (broker.state or {}).items()) or None,
}
# columns that usually have the same value on every server
_SHARED: Final = ("advertised", "topics", "write removed", "version", "state")


@dataclass(frozen=True, slots=True)
class _Listed:
    """The listed brokers of one server, and its report on their groups for the health model."""

    brokers: list[LiveBroker]
    report: Server


async def _listed(server: NameServer, cluster: str | None, name: str | None) -> _Listed:
    brokers = await server.brokers(cluster, name)
    info = None
    # The server may have just started; an account that may not know is shown what the server lacks.
    with suppress(ResponseError):
        info = await server.info()
    # Without what the server reports of itself, which `status` shows.
    return _Listed(brokers, replace(listing(server.address, info, brokers), info=None))


def _side_by_side(given: Mapping[str, _Listed]) -> list[RenderableType]:
    """A row for each broker, with its remaining expiry on each server, or why there is none."""
    by_key: dict[BrokerKey, dict[str, LiveBroker]] = {}
    for server, listed in given.items():
        for broker in listed.brokers:
            by_key.setdefault(key_of(broker), {})[server] = broker

    def remaining(server: str, broker: LiveBroker | None) -> str | None:
        if broker is None:
            # A server that is not ready is still waiting for brokers to register.
            return "not yet" if given[server].report.state == "not_ready" else "missing"
        return "present" if broker.expires_in_seconds is None else lasting(broker.expires_in_seconds)

    def on_all(column: str, known: Mapping[str, LiveBroker]) -> object:
        """The value of a column, or the values of all servers where they differ."""
        values = [_LIVE[column](broker) for broker in known.values()]
        texts = [cell(value).plain for value in values]
        return values[0] if len(set(texts)) == 1 else " / ".join(texts)

    rows = [
        (
            *key,
            *(remaining(server, known.get(server)) for server in given),
            *(on_all(column, known) for column in _SHARED),
        )
        for key, known in sorted(by_key.items())
    ]
    expiring = [f"expires in, {server}" for server in given]
    return table(("cluster", "broker", "id", "address", *expiring, *_SHARED), rows)


def brokers(options: Options, cluster: ClusterOption = None, broker: NameOption = None) -> None:
    """List live brokers: when each was last seen, when it expires, and the state that it reports.

    Of several servers: a row for each broker, with what is left of its expiry on each server. Of Apache's NameServer
    only cluster, name, id and address. Exits with 1 if the given cluster or name matches no broker.
    """
    wanted = wanted_brokers(cluster, broker)
    show_list(
        options,
        lambda server: _listed(server, cluster, broker),
        "brokers",
        _LIVE,
        lambda listed: listed.brokers,
        document=lambda listed: msgspec.to_builtins(listed.brokers),
        absent=lambda listed: [] if listed.brokers or wanted is None else [wanted],
        merged=_side_by_side,
        remarks=_group_problems,
    )


def wanted_brokers(cluster: str | None, broker: str | None) -> str | None:
    """The brokers that the options name, in words; None for all brokers."""
    if cluster is None and broker is None:
        return None
    return f"broker{f' {broker}' if broker else ''}{f' in cluster {cluster}' if cluster else ''}"


def _group_problems(given: Mapping[str, _Listed]) -> list[str]:
    """A line for each critical problem of the listed broker groups; the table shows the others."""
    found = problems([listed.report for listed in given.values()])
    return [line_of(one, shown_by="brokers") for one in found if one.level == "critical"]


_GROUPS: Final[Columns[tuple[str, BrokerData]]] = {
    "cluster": lambda it: it[0],
    "broker": lambda it: it[1].broker_name,
    "master": lambda it: it[1].broker_addrs.get(MASTER_ID),
    "slaves": lambda it: slaves(it[1]),
    "zone": lambda it: it[1].zone_name,
    "acting master": lambda it: it[1].enable_acting_master,
}


def clusters(options: Options, cluster: ClusterOption = None) -> None:
    """List clusters and their broker groups.

    Exits with 1 if a server does not have the given cluster.
    """

    def chosen(info: ClusterInfo) -> Iterator[tuple[str, list[BrokerData]]]:
        for name, brokers in sorted(info.cluster_addr_table.items()):
            if cluster in (None, name):
                # Apache's server may name brokers that it has removed.
                known = (info.broker_addr_table.get(broker) for broker in sorted(brokers))
                yield name, [group for group in known if group is not None]

    show_list(
        options,
        lambda server: server.cluster_info(),
        "clusters",
        _GROUPS,
        lambda info: ((name, group) for name, groups in chosen(info) for group in groups),
        document=lambda info: [
            {"cluster": name, "brokers": [group_members(group) for group in groups]} for name, groups in chosen(info)
        ],
        absent=lambda info: [f"cluster {cluster}"] if cluster not in (None, *info.cluster_addr_table) else [],
    )


def group_members(group: BrokerData) -> dict[str, Any]:
    """A broker group for programs; broker ids are text, since JSON has only text keys."""
    members: dict[str, Any] = msgspec.to_builtins(group)
    del members["cluster"]
    return {**members, "broker_addrs": {str(key): addr for key, addr in sorted(group.broker_addrs.items())}}


def slaves(group: BrokerData) -> str | None:
    """The instances other than the master, as `id=address`."""
    addresses = [f"{key}={addr}" for key, addr in sorted(group.broker_addrs.items()) if key != MASTER_ID]
    return " ".join(addresses) or None


# A connection, and the time of the response on the server's clock.
_Timed = tuple[Connection, float | None]
_CONNECTIONS: Final[Columns[_Timed]] = {
    "id": lambda it: it[0].id,
    "peer": lambda it: it[0].peer if it[0].proxied is None else f"{it[0].peer} for {it[0].proxied}",
    "role": lambda it: it[0].role,
    "protocol": lambda it: it[0].protocol,
    "connected": lambda it: _open_for(*it),
    "last request": lambda it: ago(it[0].last_request_seconds),
    "requests": lambda it: it[0].requests,
    "in flight": lambda it: it[0].in_flight,
    "unsent": lambda it: it[0].unsent_bytes,
    "account": lambda it: it[0].account,
}


def _open_for(connection: Connection, wall_ms: float | None) -> str | None:
    seconds = connection.open_seconds(wall_ms)
    return None if seconds is None else lasting(seconds)


def connections(
    options: Options,
    role: Annotated[Role | None, typer.Option("--role", help="Only connections of brokers, clients or tools.")] = None,
) -> None:
    """List connections: since when they are open, how many requests they sent, how many bytes are unsent.

    Not available from Apache's NameServer.
    """

    async def ask(server: NameServer) -> list[_Timed]:
        info = await server.info()
        wall_ms = None if info is None else info.wall_ms
        return [(one, wall_ms) for one in await server.connections(role)]

    show_list(
        options,
        ask,
        "connections",
        _CONNECTIONS,
        lambda listed: listed,
        document=lambda listed: [msgspec.to_builtins(one) for one, _ in listed],
    )


def wipe_write_perm(options: Options, broker: BrokerName) -> None:
    """Remove the write permission from all topics of a broker, so that producers leave it.

    Exits with 1 if a server does not know the broker or was not reached.
    """
    what = f"wipe the write permission of broker {broker}"
    _change_perm(options, RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker, what)


def add_write_perm(options: Options, broker: BrokerName) -> None:
    """Make all topics of a broker readable and writable, also those that were read-only before.

    Exits with 1 if a server does not know the broker or was not reached.
    """
    what = f"make all topics of broker {broker} readable and writable"
    _change_perm(options, RequestCode.ADD_WRITE_PERM_OF_BROKER, broker, what)


def _change_perm(options: Options, code: RequestCode, broker: str, what: str) -> NoReturn:
    change(
        options,
        lambda server: server.change_perm(code, broker),
        {"broker": broker},
        confirming=what,
        members=lambda count: {"topics": count},
        absences=lambda given: absences_in(given, lambda count: [] if count else [f"topics of broker {broker}"]),
        result=lambda count: "done" if count else UNCHANGED,
    )


_STATUS = ("server", "state", "protocol", "name", "version", "up", "brokers", "topics", "connections", "revision")
# In these states clients get routes from the server; Apache's server reports no state: any response counts.
HEALTHY: Final = ("ready", "answers")


def status(options: Options) -> None:
    """Show whether each NameServer answers and is ready, and how much it knows.

    Exits with 1 if one of them is unreachable, not ready or draining, or denies its brokers, or if a problem is
    critical: a broker group has no master, or one that is silent while a slave is not.
    """
    show(options, _status)


@dataclass(frozen=True, slots=True)
class _Status:
    """One server: its members in the table, and its report for the health model."""

    members: dict[str, Any]
    report: Server


async def _status(servers: Servers) -> Report:
    responses = await servers.ask(_status_of)
    members = {server: status.members for server, status in responses.given.items()}
    reports = reports_in(responses.mapped(lambda status: status.report))
    listed = await with_queues(servers, reports, problems(reports, missing=missing_brokers(reports)))
    infos = {report.address: report.info for report in reports}
    same = same_servers({server: None if info is None else info.boot_id for server, info in infos.items()})
    is_healthy = code_of(listed) is ExitCode.OK and all(one["state"] in HEALTHY for one in members.values())
    return Report(
        {
            "healthy": is_healthy and len(responses.given) == len(responses.outcomes),
            "servers": responses.documents(lambda status: status.members),
            "problems": [document_of(one) for one in listed],
        },
        table(_STATUS, [_row(server, status) for server, status in responses.outcomes.items()]),
        max(responses.code(needs_all=True), ExitCode.OK if is_healthy else ExitCode.NO),
        [*(line_of(one, shown_by="status") for one in listed), *same],
    )


async def _status_of(server: NameServer) -> _Status:
    info = await server.info()
    members = await _members(server, info)
    try:
        return _Status(members, await report_of(server, info, await server.brokers()))
    except ResponseError as error:
        return _Status(members, Server(server.address, state_of(info), info=info, refusal=reason(error)))


def state_word(info: ServerInfo | None) -> str:
    """A server's state in words; None is Apache's server, which reports no state."""
    return state_of(info).replace("_", " ")


async def _members(server: NameServer, info: ServerInfo | None) -> dict[str, Any]:
    """The server's own report, or counts of brokers and topics if the server is Apache's."""
    if info is not None:
        counts = {"brokers": info.brokers, "topics": info.topics}
        return {"protocol": "native", "state": state_word(info), **counts, **msgspec.to_builtins(info)}
    groups = (await server.cluster_info()).broker_addr_table.values()
    topics: int | None = None
    # Apache's server can be configured to refuse the topic list.
    with suppress(ResponseError):
        topics = len(await server.topics())
    brokers = sum(len(group.broker_addrs) for group in groups)
    return {"protocol": "rocketmq", "state": state_word(info), "brokers": brokers, "topics": topics}


def _row(server: str, status: _Status | RemotingError) -> tuple[object, ...]:
    facts: Mapping[str, Any] = (
        status.members if isinstance(status, _Status) else {"state": failure_state(status).replace("_", " ")}
    )
    state = Text(facts["state"], style="green" if facts["state"] in HEALTHY else "red")
    about = (
        facts.get("protocol"),
        facts.get("nameserver"),
        facts.get("version"),
        lasting(facts.get("uptime_seconds")),
    )
    return (server, state, *about, *(facts.get(count) for count in _STATUS[6:]))
