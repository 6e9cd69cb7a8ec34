"""The route client: which broker has which queue, for producers and consumers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from namesrv_client.client import BrokerAddress, RouteClient
    from namesrv_client.queues import allocation as allocate
    from namesrv_client.queues.topic_queues import MessageQueue, PublishInfo
    from namesrv_client.routes.route import (
        NoQueueError,
        Route,
        RouteChange,
        RouteChanges,
        RouteError,
        RouteUnavailableError,
        TopicNotFoundError,
    )
    from namesrv_client.routes.status import ClientStatus, RouteStatus, ServerStatus, WatchStatus
    from namesrv_client.settings import ClientSettings
    from namesrv_client.sync import SyncRouteClient
    from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData

__all__ = [
    "BrokerAddress",
    "BrokerData",
    "ClientSettings",
    "ClientStatus",
    "MessageQueue",
    "NoQueueError",
    "PublishInfo",
    "QueueData",
    "Route",
    "RouteChange",
    "RouteChanges",
    "RouteClient",
    "RouteError",
    "RouteStatus",
    "RouteUnavailableError",
    "ServerStatus",
    "SyncRouteClient",
    "TopicNotFoundError",
    "TopicRouteData",
    "WatchStatus",
    "allocate",
]

# The module of each exported name. Modules are imported at the first access, because namesrvctl needs none of them.
_MODULES: Final = {
    "BrokerAddress": ".client",
    "BrokerData": "namesrv_remoting.bodies.route",
    "ClientSettings": ".settings",
    "ClientStatus": ".routes.status",
    "MessageQueue": ".queues.topic_queues",
    "NoQueueError": ".routes.route",
    "PublishInfo": ".queues.topic_queues",
    "QueueData": "namesrv_remoting.bodies.route",
    "Route": ".routes.route",
    "RouteChange": ".routes.route",
    "RouteChanges": ".routes.route",
    "RouteClient": ".client",
    "RouteError": ".routes.route",
    "RouteStatus": ".routes.status",
    "RouteUnavailableError": ".routes.route",
    "ServerStatus": ".routes.status",
    "SyncRouteClient": ".sync",
    "TopicNotFoundError": ".routes.route",
    "TopicRouteData": "namesrv_remoting.bodies.route",
    "WatchStatus": ".routes.status",
    "allocate": ".queues.allocation",
}

# Hidden from type checkers, which would accept any name of a module with `__getattr__`.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import an exported name at its first access."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_MODULES[name], __name__)
        value = globals()[name] = module if name == "allocate" else getattr(module, name)
        return value
