"""Handlers of all requests, bound to the table of requests."""

from typing import Any, Final

from namesrv.context import Namesrv
from namesrv.net.dispatcher import Handler, Reply, Request
from namesrv.processors.admin import AdminProcessor, log_change
from namesrv.processors.broker import BrokerProcessor
from namesrv.processors.client import ClientProcessor
from namesrv.processors.extensions import ExtensionProcessor
from namesrv.processors.handlers import Handlers, TypedHandler
from namesrv_remoting.requests import REQUESTS, AccessClass, RequestKind

# Requests (watches) whose response may wait for an event; the dispatcher does not answer them in order.
CONCURRENT: Final = frozenset(code for code, kind in REQUESTS.items() if kind.may_wait)


def typed_handlers(namesrv: Namesrv) -> Handlers:
    """Return the handler of each request code; a handler takes the values that its row in REQUESTS names."""
    parts = (BrokerProcessor, ClientProcessor, AdminProcessor, ExtensionProcessor)
    return {code: handler for part in parts for code, handler in part(namesrv).handlers().items()}


def processors(namesrv: Namesrv) -> tuple[dict[int, Handler], dict[int, str]]:
    """Return two tables by request code: the handlers, and their kind in metrics (broker, client, admin, watch)."""
    kinds = {REQUESTS[code]: handler for code, handler in typed_handlers(namesrv).items()}
    handlers = {int(kind.code): _bound(kind, handler) for kind, handler in kinds.items()}
    return handlers, {int(kind.code): "watch" if kind.may_wait else kind.sender for kind in kinds}


def _bound(kind: RequestKind, handler: TypedHandler) -> Handler:
    """Wrap a handler: note the role of the peer, decode typed values, and log successful requests for changes."""

    async def handle(request: Request) -> Reply:
        request.connection.peer.note_role(kind.sender)
        values: tuple[Any, ...] = kind.values(request.command)
        reply = await handler(request, *values)
        if kind.access_class is AccessClass.ADMIN_WRITE:
            log_change(request)
        return reply

    return handle
