"""Performs the effects of changes: log lines, remembered events, closed connections, woken watchers.

The one sink of all effects. It runs on the loop after the lock is released and must not block; observers (the
heartbeat log, metrics) see every effect before it is performed.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from namesrv.routeinfo.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    Effect,
    Evicted,
    Fenced,
    MinBrokerIdChanged,
    Registered,
    RouteChanged,
    Unregistered,
)
from namesrv.routeinfo.tables import RouteTables
from namesrv.state.events import EventRing
from namesrv.state.snapshot import Readiness
from namesrv.state.watchers import RouteWatchers
from namesrv_remoting.aio.connection import ServerConnection
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# topics that one event names; a broker that dies may have ten thousand
_NAMED_TOPICS: Final = 20


class EffectSink:
    """Performs effects, each kind its own way."""

    def __init__(  # noqa: PLR0913 - by keyword: what effects reach
        self,
        *,
        clock: Clock,
        tables: RouteTables,
        connections: Mapping[int, ServerConnection],
        readiness: Readiness,
        watchers: RouteWatchers,
        events: EventRing,
        notify: Callable[[MinBrokerIdChanged], None],
        observers: Sequence[Callable[[Effect], None]] = (),
    ) -> None:
        self._clock = clock
        self._tables = tables
        self._connections = connections
        self._readiness = readiness
        self._watchers = watchers
        self._events = events
        self._notify = notify
        self._observers = observers
        self._performers: dict[type, Callable[[Any], None]] = {
            Registered: self._registered,
            Unregistered: self._unregistered,
            Evicted: self._evicted,
            Fenced: self._fenced,
            RouteChanged: self._route_changed,
            MinBrokerIdChanged: self._min_broker_id_changed,
        }

    def __call__(self, effect: Effect) -> None:
        """Perform an effect."""
        for observer in self._observers:
            observer(effect)
        performer = self._performers.get(type(effect))
        # a scan has no further consequence
        if performer is not None:
            performer(effect)

    def _registered(self, effect: Registered) -> None:
        if effect.kind == "unchanged" or (effect.kind == "delta" and not effect.topics):
            # a sign of life: slaves send an empty delta with every heartbeat, to be told of their master
            return
        key, live = effect.key, effect.live
        self._readiness.broker_seen(key.cluster_name, live.broker_name, live.broker_id, key.broker_addr)
        fields = {**_identity(key, live), "kind": effect.kind, "topics": effect.topics}
        level = logging.INFO if effect.is_new else logging.DEBUG
        event(logger, level, "broker_registered", **fields, new=effect.is_new)
        self._remember("register", fields)

    def _unregistered(self, effect: Unregistered) -> None:
        event(logger, logging.DEBUG, "broker_unregistered", **_identity(effect.key, effect.live))
        self._remember("unregister", _identity(effect.key, effect.live))

    def _evicted(self, effect: Evicted) -> None:
        fields = {
            **_identity(effect.key, effect.live),
            "reason": effect.reason,
            "silent_ms": round(effect.silent_seconds * 1000),
        }
        # a broker that unregistered is no reason to look
        level = logging.INFO if effect.reason == "unregistered" else logging.WARNING
        event(logger, level, "broker_evicted", **fields)
        self._remember("evict", fields)
        connection_id = effect.live.connection_id
        if effect.reason == "silent" and connection_id not in self._tables.brokers_on_connection:
            connection = self._connections.get(connection_id)
            if connection is not None:
                connection.close()

    def _fenced(self, effect: Fenced) -> None:
        fields = {**_identity(effect.key, effect.live), "reason": effect.reason}
        event(logger, logging.INFO, "stale_removal_fenced", **fields)
        self._remember("fenced", fields)

    def _route_changed(self, effect: RouteChanged) -> None:
        topics = effect.topics
        named = None if topics is None else topics[:_NAMED_TOPICS]
        count = None if topics is None else len(topics)
        event(logger, logging.DEBUG, "route_changed", revision=effect.revision, topics=count)
        self._remember("route", {"revision": effect.revision, "topics": named, "count": count})
        self._watchers.wake(topics)

    def _min_broker_id_changed(self, effect: MinBrokerIdChanged) -> None:
        event(
            logger,
            logging.INFO,
            "min_broker_id_changed",
            broker_name=effect.broker_name,
            min_broker_id=effect.min_broker_id,
            recipients=effect.recipients,
        )
        self._notify(effect)

    def _remember(self, name: str, fields: dict[str, Any]) -> None:
        self._events.append({"event": name, "ts_ms": int(self._clock.wall() * 1000), **fields})


def _identity(key: BrokerAddrInfo, live: BrokerLiveInfo) -> dict[str, Any]:
    return {
        "cluster": key.cluster_name,
        "broker_name": live.broker_name,
        "broker_id": live.broker_id,
        "broker_addr": key.broker_addr,
    }
