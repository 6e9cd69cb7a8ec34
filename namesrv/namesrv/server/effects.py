"""The sink of effects: it shows them and performs their consequences, such as closed connections and notices (905).

All effects go to this one sink, which runs on the event loop after the lock is released and must not block. Observers
(heartbeat log, audit trail, metrics and others, see `_observers` in build.py) receive every effect first. Each effect
defines how it is shown (routeinfo/tables/effects.py).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from namesrv.context import Spawn
from namesrv.net.protocol import ServerConnection
from namesrv.peer_views import PeerViews
from namesrv.routeinfo.tables.effects import Effect, Evicted, MinBrokerIdChanged, Registered, RouteChanged, identity
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.state.boot import Boot
from namesrv.state.events import EventRing
from namesrv.state.watchers import RouteWatchers
from namesrv_remoting.address_views import AddressView, BrokerIdentity
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.codes import FLAG_ONEWAY, MASTER_ID, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemotingError
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_remoting.serializers import encode_command
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import LimitedLog

logger: Final = logging.getLogger(__name__)

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_NOTICE: Final = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
# Java allows 300 ms for the send alone, over connections that it keeps open.
NOTICE_SECONDS: Final = 3.0
# A group has a handful of members. Any peer could register a hundred: the departure of each could notify all others.
MAX_NOTIFIED: Final = 16
# The most notices for which the server dials brokers at the same time.
MAX_NOTICES: Final = 256


@dataclass(kw_only=True, slots=True)
class EffectSink:
    """Shows effects and performs their consequences."""

    clock: Clock
    tables: RouteTables
    connections: Mapping[int, ServerConnection]
    views: PeerViews
    boot: Boot
    watchers: RouteWatchers
    events: EventRing
    # the log, with a limit for each kind of line: peers may cause thousands of effects a second
    log: LimitedLog
    spawn: Spawn
    observers: Sequence[Callable[[Effect], None]]
    # number of notices for which the server is dialling a broker
    _dialling: int = field(default=0, init=False)

    def __call__(self, effect: Effect) -> None:
        """Show an effect and perform its consequences."""
        for observer in self.observers:
            observer(effect)
        if effect.is_news:
            self._show(effect)
        match effect:
            case Registered() if effect.is_news:
                name = effect.live.broker_name
                members = len(self.tables.addrs_of(name))
                self.boot.readiness.broker_seen(effect.key.cluster_name, name, effect.live.broker_id, members)
                self._show_unknown_views(effect)
            case Evicted():
                self._close_if_silent(effect)
            case RouteChanged():
                self.watchers.wake(effect.topics)
            case MinBrokerIdChanged():
                self._notify_members(effect)

    def _show(self, effect: Effect) -> None:
        """Write an effect to the log and to the recent events, if it has names there."""
        about = {} if effect.broker is None else identity(*effect.broker)
        if effect.connection is not None:
            connection = self.connections.get(effect.connection)
            about["peer"] = None if connection is None else connection.peer.address
        if effect.log_name:
            self.log.event(logger, _LEVELS[effect.level], effect.log_name, **about, **effect.log_fields())
        if effect.event_name:
            self.events.append({"event": effect.event_name, **about, **effect.fields()})

    def _show_unknown_views(self, effect: Registered) -> None:
        """Log the views that a broker newly advertises addresses for, and that the address views file does not have."""
        before, live = effect.before, effect.live
        if before is None or before.advertised != live.advertised:
            known = {view.name for view in self.views.file.views}
            unknown = [view for view in live.advertised.views if view not in known]
            if unknown:
                about = identity(effect.key, live)
                self.log.event(logger, logging.WARNING, "advertised_views_unknown", **about, views=unknown)

    def _close_if_silent(self, effect: Evicted) -> None:
        """Close the connection of a silent broker, unless the connection has other live brokers."""
        connection_id = effect.live.connection_id
        if effect.reason == "silent" and connection_id not in self.tables.connections.brokers_on:
            connection = self.connections.get(connection_id)
            if connection is not None:
                connection.close()

    def _notify_members(self, effect: MinBrokerIdChanged) -> None:
        """Notify members of a group; a member that cannot be reached sees the change in its next response."""
        group = {key.broker_addr: live for key, live in self.tables.brokers_named(effect.broker_name)}
        left_out = max(0, len(effect.recipients) - MAX_NOTIFIED)
        for addr in effect.recipients[:MAX_NOTIFIED]:
            live = group.get(addr)
            connection = None if live is None else self.connections.get(live.connection_id)
            view = None
            if live is not None and connection is not None:
                view = self.views.routes_of(connection, live.account).view
            ext_fields = self._notice(effect, view)
            # A native member is notified over the connection of its registration; a Java broker listens on a port of
            # its own.
            if connection is None or live is None or not live.is_native:
                # At the end of the drain the server's tasks are cancelled, and no further task may start.
                if self._dialling < MAX_NOTICES and not self.boot.is_draining:
                    self._dialling += 1
                    self.spawn(self._dial(addr, ext_fields))
                else:
                    left_out += 1
                continue
            notice = RemotingCommand(
                _NOTICE, flag=FLAG_ONEWAY, ext_fields=ext_fields, serialize_type=SerializeType.MSGPACK
            )
            connection.write(encode_command(notice))
        if left_out:
            self.log.event(logger, logging.INFO, "min_broker_id_not_notified", more=left_out)

    def _notice(self, effect: MinBrokerIdChanged, view: AddressView | None) -> Mapping[str, str]:
        """The fields of a notice, with the addresses of a view."""
        group = self.tables.broker_addr_table.get(effect.broker_name)
        broker = BrokerIdentity("" if group is None else group.cluster, effect.broker_name, effect.min_broker_id)
        advertised = self.tables.advertised_of(broker, effect.min_broker_addr)

        def seen(broker: BrokerIdentity, addr: str | None, advertised: Mapping[str, str]) -> str | None:
            return addr if addr is None or view is None else view.address(broker, addr, advertised)

        return NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=effect.min_broker_id,
            # Java leaves the name out, and its brokers do not need it.
            broker_name=effect.broker_name,
            min_broker_addr=seen(broker, effect.min_broker_addr, advertised.broker_addr) or effect.min_broker_addr,
            ha_broker_addr=seen(broker, effect.ha_broker_addr, advertised.ha_server_addr),
            # Brokers compare this address with that of their master only.
            offline_broker_addr=seen(
                broker._replace(broker_id=MASTER_ID), effect.offline_broker_addr, effect.offline_advertised.broker_addr
            ),
        ).to_ext()

    async def _dial(self, addr: str, ext_fields: Mapping[str, str]) -> None:
        try:
            async with RemotingClient(addr, clock=self.clock, connect_timeout_seconds=NOTICE_SECONDS) as client:
                await client.oneway(_NOTICE, ext_fields=ext_fields, timeout_seconds=NOTICE_SECONDS)
        except (RemotingError, OSError, ValueError, TimeoutError) as error:
            self.log.event(logger, logging.INFO, "min_broker_id_not_notified", broker_addr=addr, error=error)
        finally:
            self._dialling -= 1
