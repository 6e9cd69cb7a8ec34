"""Performs the effects of changes: log lines, remembered events, closed connections, woken watchers, notices (905).

The one sink of all effects. It runs on the loop after the lock is released and must not block; observers (the
heartbeat log, metrics) see every effect before it is performed.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from namesrv.context import Spawn
from namesrv.routeinfo.records import (
    Effect,
    Evicted,
    Fenced,
    MinBrokerIdChanged,
    Registered,
    RouteChanged,
    TakeoverAttempted,
    Unregistered,
)
from namesrv.routeinfo.tables import RouteTables
from namesrv.state.events import EventRing
from namesrv.state.snapshot import Readiness
from namesrv.state.watchers import RouteWatchers
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.connection import ServerConnection
from namesrv_remoting.codes import FLAG_ONEWAY, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemotingError
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_remoting.serializers import encode_command
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# topics that one event names; a broker that dies may have ten thousand
_NAMED_TOPICS: Final = 20
_NOTICE: Final = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
# Java gives it 300 ms for the send alone, over connections that it keeps
NOTICE_SECONDS: Final = 3.0


@dataclass(kw_only=True, slots=True)
class EffectSink:
    """Performs effects, each kind its own way."""

    clock: Clock
    tables: RouteTables
    connections: Mapping[int, ServerConnection]
    readiness: Readiness
    watchers: RouteWatchers
    events: EventRing
    spawn: Spawn
    observers: Sequence[Callable[[Effect], None]]

    def __call__(self, effect: Effect) -> None:
        """Perform an effect; a scan has no further consequence."""
        for observer in self.observers:
            observer(effect)
        match effect:
            case Registered():
                self._registered(effect)
            case Unregistered():
                event(logger, logging.DEBUG, "broker_unregistered", **_identity(effect))
                self._remember("unregister", _identity(effect))
            case Evicted():
                self._evicted(effect)
            case Fenced():
                fields = {**_identity(effect), "reason": effect.reason}
                event(logger, logging.INFO, "stale_removal_fenced", **fields)
                self._remember("fenced", fields)
            case TakeoverAttempted():
                self._takeover_attempted(effect)
            case RouteChanged():
                self._route_changed(effect)
            case MinBrokerIdChanged():
                self._min_broker_id_changed(effect)

    def _registered(self, effect: Registered) -> None:
        if effect.kind == "unchanged" or (effect.kind == "delta" and not effect.topics):
            # a sign of life: slaves send an empty delta with every heartbeat, to be told of their master
            return
        key, live = effect.key, effect.live
        self.readiness.broker_seen(key.cluster_name, live.broker_name, live.broker_id)
        fields = {**_identity(effect), "kind": effect.kind, "topics": effect.topics}
        level = logging.INFO if effect.is_new else logging.DEBUG
        event(logger, level, "broker_registered", **fields, new=effect.is_new)
        self._remember("register", fields)

    def _evicted(self, effect: Evicted) -> None:
        silent_ms = round(effect.silent_seconds * 1000)
        fields = {**_identity(effect), "reason": effect.reason, "silent_ms": silent_ms}
        # a broker that unregistered is no reason to look
        level = logging.INFO if effect.reason == "unregistered" else logging.WARNING
        event(logger, level, "broker_evicted", **fields)
        self._remember("evict", fields)
        connection_id = effect.live.connection_id
        if effect.reason == "silent" and connection_id not in self.tables.brokers_on_connection:
            connection = self.connections.get(connection_id)
            if connection is not None:
                connection.close()

    def _takeover_attempted(self, effect: TakeoverAttempted) -> None:
        connection = self.connections.get(effect.connection_id)
        fields = {
            **_identity(effect),
            "age_ms": round(effect.age_seconds * 1000),
            "by": effect.broker_addr,
            "peer": None if connection is None else connection.peer,
            "refused": effect.is_refused,
        }
        event(logger, logging.WARNING, "takeover_attempted", **fields)
        self._remember("takeover_attempted", fields)

    def _route_changed(self, effect: RouteChanged) -> None:
        topics = effect.topics
        named = None if topics is None else tuple(islice(topics, _NAMED_TOPICS))
        count = None if topics is None else len(topics)
        event(logger, logging.DEBUG, "route_changed", revision=effect.revision, topics=count)
        fields = {"revision": effect.revision, "topics": named, "count": count, "broker_name": effect.broker_name}
        self._remember("route", fields)
        self.watchers.wake(topics)

    def _min_broker_id_changed(self, effect: MinBrokerIdChanged) -> None:
        """Notify the others of a group; one that cannot be reached finds out at its next question."""
        name, number, recipients = effect.broker_name, effect.min_broker_id, effect.recipients
        fields: dict[str, Any] = {"broker_name": name, "min_broker_id": number, "recipients": recipients}
        event(logger, logging.INFO, "min_broker_id_changed", **fields)
        ext_fields = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=number,
            # Java leaves the name out, and its brokers do not miss it
            broker_name=name,
            min_broker_addr=effect.min_broker_addr,
            ha_broker_addr=effect.ha_broker_addr,
            offline_broker_addr=effect.offline_broker_addr,
        ).to_ext()
        notice = RemotingCommand(_NOTICE, flag=FLAG_ONEWAY, ext_fields=ext_fields, serialize_type=SerializeType.MSGPACK)
        # a native member is told over the connection that it registered on; a Java broker listens, and is dialled
        native = {
            key.broker_addr: live.connection_id
            for key, live in self.tables.broker_live_table.items()
            if live.is_native and live.broker_name == name
        }
        for addr in recipients:
            connection = self.connections.get(native.get(addr, 0))
            if connection is None:
                self.spawn(self._dial(addr, ext_fields))
            else:
                connection.write(encode_command(notice))

    async def _dial(self, addr: str, ext_fields: Mapping[str, str]) -> None:
        try:
            async with RemotingClient(addr, clock=self.clock, connect_timeout_seconds=NOTICE_SECONDS) as client:
                await client.oneway(_NOTICE, ext_fields=ext_fields, timeout_seconds=NOTICE_SECONDS)
        except (RemotingError, OSError, ValueError, TimeoutError) as error:
            event(logger, logging.INFO, "min_broker_id_not_notified", broker_addr=addr, error=error)

    def _remember(self, name: str, fields: dict[str, Any]) -> None:
        self.events.append({"event": name, "ts_ms": int(self.clock.wall() * 1000), **fields})


def _identity(effect: Registered | Unregistered | Evicted | Fenced | TakeoverAttempted) -> dict[str, Any]:
    return {
        "cluster": effect.key.cluster_name,
        "broker_name": effect.live.broker_name,
        "broker_id": effect.live.broker_id,
        "broker_addr": effect.key.broker_addr,
    }
