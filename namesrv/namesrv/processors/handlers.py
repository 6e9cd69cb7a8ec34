"""What processors offer: handlers by request code."""

from collections.abc import Awaitable, Callable, Mapping

from namesrv.net.dispatcher import Reply
from namesrv_remoting.codes import RequestCode

# takes the request, and its typed header or body if its row in the table of requests has one
TypedHandler = Callable[..., Awaitable[Reply]]
Handlers = Mapping[RequestCode, TypedHandler]
