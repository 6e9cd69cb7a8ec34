"""Types of the tables of handlers by request code."""

from collections.abc import Awaitable, Callable, Mapping

from namesrv.net.dispatcher import Reply
from namesrv_remoting.codes import RequestCode

# A typed handler takes the request, and the typed header or body if the request's row in REQUESTS has one.
TypedHandler = Callable[..., Awaitable[Reply]]
Handlers = Mapping[RequestCode, TypedHandler]
