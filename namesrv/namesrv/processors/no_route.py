"""The reason why a topic has no route, for the remark of code 17.

The text has absolute times only. It names brokers of the topic itself, which the topic's route would name as well, and
no brokers that the peer's address view hides.
"""

from datetime import UTC, datetime
from typing import Final

from namesrv.access.audit_lines import cut
from namesrv.context import Namesrv
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.routeinfo.tables.rows import queues_of
from namesrv.state.lost_routes import LostRoute
from namesrv_remoting.address_views import AddressView, BrokerIdentity
from namesrv_remoting.codes import AUTO_CREATE_TOPIC, MASTER_ID, PERM_WRITE
from namesrv_runtime.clock import Clock, wall_ms_at

# Characters of a name that a remark shows: a remark stays below a kilobyte beside the topic.
_SHOWN_CHARACTERS: Final = 100


def no_route_reason(namesrv: Namesrv, topic: str, view: AddressView | None) -> str:
    """Describe this server, and why it has no route of a topic for a peer with this address view."""
    tables = namesrv.manager.tables
    brokers = len(tables.broker_live_table)
    started = _time(namesrv.clock, namesrv.boot.started_monotonic)
    server = f"NameServer {namesrv.settings.current.nameserver_name}, up since {started}"
    return f"{server}, has {brokers} broker{'' if brokers == 1 else 's'}.\n{_cause(namesrv, topic, view)}"


def _cause(namesrv: Namesrv, topic: str, view: AddressView | None) -> str:
    tables = namesrv.manager.tables
    if view is not None and topic in tables.topic_queue_table:
        return f"Address view {cut(view.name, _SHOWN_CHARACTERS)} hides all brokers of the topic from this address."
    revision = namesrv.manager.revisions.last_change(topic)
    if not revision:
        return _never_registered(tables)
    lost = namesrv.routes.lost.find(revision)
    if lost is None:
        return "The topic has lost its brokers; when and why is no longer recorded."
    return f"The topic lost its last broker at {_time(namesrv.clock, lost.at)}: {_loss(tables, lost, view)}."


def _never_registered(tables: RouteTables) -> str:
    """The cause for a topic that no broker has registered, as far as this server remembers."""
    if not tables.broker_live_table:
        return "No broker is registered: each broker needs this server in its list of NameServers (namesrvAddr)."
    if not any(MASTER_ID in group.broker_addrs for group in tables.broker_addr_table.values()):
        return "No master is registered, and no slave has registered the topic."
    creators = queues_of(tables.topic_queue_table.get(AUTO_CREATE_TOPIC))
    # Producers send only to masters whose queues they may write to.
    if any(each.perm & PERM_WRITE and MASTER_ID in tables.addrs_of(each.broker_name) for each in creators):
        return f"No broker has registered the topic; a first message would create it ({AUTO_CREATE_TOPIC} exists)."
    why = (
        f"no master has {AUTO_CREATE_TOPIC} with write permission"
        if creators
        else f"no broker has autoCreateTopicEnable ({AUTO_CREATE_TOPIC} is missing)"
    )
    return f"No broker has registered the topic, and a first message would not create it: {why}."


def _loss(tables: RouteTables, lost: LostRoute, view: AddressView | None) -> str:
    if lost.eviction is None:
        if lost.broker_name is None:
            return "an operator deleted the topic"
        return f"{_group_name(tables, lost.broker_name, view)} registered without the topic"
    key, live = lost.eviction.key, lost.eviction.live
    identity = BrokerIdentity(key.cluster_name, live.broker_name, live.broker_id)
    name = f"{cut(live.broker_name, _SHOWN_CHARACTERS)} of cluster {cut(key.cluster_name, _SHOWN_CHARACTERS)}"
    if view is not None and view.address(identity, key.broker_addr, live.advertised.broker_addr) is None:
        name = f"a broker that address view {cut(view.name, _SHOWN_CHARACTERS)} hides"
    match lost.eviction.reason:
        case "silent":
            return f"{name} sent no heartbeat for {lost.eviction.silent_seconds:.0f} s"
        case "disconnected":
            return f"the connection of {name} closed"
        case "unregistered":
            return f"{name} unregistered"
        case "superseded":
            return f"another broker took the place of {name}"


def _group_name(tables: RouteTables, broker_name: str, view: AddressView | None) -> str:
    """The name of a broker group, unless a view hides it, or may have hidden it before its brokers left."""
    if view is not None:
        group = tables.broker_addr_table.get(broker_name)
        if group is None or view.group(group, tables.advertised_of) is None:
            return f"a broker that address view {cut(view.name, _SHOWN_CHARACTERS)} does not show"
    return cut(broker_name, _SHOWN_CHARACTERS)


def _time(clock: Clock, moment: float) -> str:
    return datetime.fromtimestamp(wall_ms_at(clock, moment) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
