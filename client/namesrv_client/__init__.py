"""The route client: which broker has which queue, for producers and consumers."""

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
from namesrv_client.settings import ClientSettings
from namesrv_client.sync import SyncRouteClient

__all__ = [
    "BrokerAddress",
    "ClientSettings",
    "MessageQueue",
    "NoQueueError",
    "PublishInfo",
    "Route",
    "RouteChange",
    "RouteChanges",
    "RouteClient",
    "RouteError",
    "RouteUnavailableError",
    "SyncRouteClient",
    "TopicNotFoundError",
    "allocate",
]
