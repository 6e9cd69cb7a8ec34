"""The errors of a route client.

RouteError
├── TopicNotFoundError      a server positively knows no such topic
├── RouteUnavailableError   nobody could tell: no server answered, or what is known is too old
└── NoQueueError            there is a route, and no queue in it that can be used
"""

from namesrv_remoting.errors import RemotingError


class RouteError(RemotingError):
    """There is no usable route; the subclass says whether that is known."""


class TopicNotFoundError(RouteError):
    """A NameServer that knows its brokers says that the topic does not exist."""


class RouteUnavailableError(RouteError):
    """It cannot be told: no server answered, none was ready, or the route is older than the caller accepts."""


class NoQueueError(RouteError):
    """The topic has a route, and no queue of it can be written to (or read from)."""
