"""What happens when the tables have changed: who is told, what is logged, which connection is closed?

The one sink of all effects. It runs on the loop after the lock is released and must not block; whoever wants to see
every effect (the heartbeat log, metrics) subscribes.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from namesrv.routeinfo.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    Effect,
    Evicted,
    Fenced,
    MinBrokerIdChanged,
    Registered,
    RouteChanged,
    Touched,
    Unregistered,
)
from namesrv_runtime.log import event

if TYPE_CHECKING:
    from namesrv.context import Namesrv

logger: Final = logging.getLogger(__name__)

# topics that one event names; a broker that dies may have ten thousand
_NAMED_TOPICS: Final = 20


class EffectSink:
    """Performs effects, each kind its own way."""

    def __init__(self, notify: Callable[[MinBrokerIdChanged], None]) -> None:
        # everything but what is performed here
        self.subscribers: list[Callable[[Effect], None]] = []
        # the same without heartbeats, of which no effects have to be made for them
        self.observers: list[Callable[[Effect], None]] = []
        self.namesrv: Namesrv | None = None
        self._notify = notify
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
        for subscriber in self.subscribers:
            subscriber(effect)
        if type(effect) is not Touched:
            for observer in self.observers:
                observer(effect)
        performer = self._performers.get(type(effect))
        # a heartbeat that came has no further consequence, nor has a scan
        if performer is not None:
            performer(effect)

    def _registered(self, effect: Registered) -> None:
        if effect.kind == "unchanged" or (effect.kind == "delta" and not effect.topics):
            # a sign of life: slaves send an empty delta with every heartbeat, to be told of their master
            return
        namesrv = self._owner()
        key, live = effect.key, effect.live
        namesrv.readiness.broker_seen(key.cluster_name, live.broker_name, live.broker_id, key.broker_addr)
        fields = {**_identity(key, live), "kind": effect.kind, "topics": effect.topics}
        level = logging.INFO if effect.is_new else logging.DEBUG
        event(logger, level, "broker_registered", **fields, new=effect.is_new)
        self._remember("register", fields)

    def _unregistered(self, effect: Unregistered) -> None:
        event(logger, logging.DEBUG, "broker_unregistered", **_identity(effect.key, effect.live))
        self._remember("unregister", _identity(effect.key, effect.live))

    def _evicted(self, effect: Evicted) -> None:
        namesrv = self._owner()
        fields = {
            **_identity(effect.key, effect.live),
            "reason": effect.reason,
            "silent_ms": round(effect.silent_seconds * 1000),
        }
        # a broker that said goodbye is no reason to look
        level = logging.INFO if effect.reason == "unregistered" else logging.WARNING
        event(logger, level, "broker_evicted", **fields)
        self._remember("evict", fields)
        connection_id = effect.live.connection_id
        if effect.reason == "silent" and connection_id not in namesrv.manager.tables.brokers_on_connection:
            connection = namesrv.server.connections.get(connection_id)
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
        self._owner().watchers.wake(topics)

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
        namesrv = self._owner()
        namesrv.events.append({"event": name, "ts_ms": int(namesrv.clock.wall() * 1000), **fields})

    def _owner(self) -> "Namesrv":
        assert self.namesrv is not None  # noqa: S101 - the controller sets it before anything can happen
        return self.namesrv


def _identity(key: BrokerAddrInfo, live: BrokerLiveInfo) -> dict[str, Any]:
    return {
        "cluster": key.cluster_name,
        "broker_name": live.broker_name,
        "broker_id": live.broker_id,
        "broker_addr": key.broker_addr,
    }
