"""Table of handlers by request code."""

from collections.abc import Callable, Mapping
from typing import Final

from namesrv.context import Namesrv
from namesrv.processors import admin, broker, client, extensions, kvconfig
from namesrv.processors.changes import log_change
from namesrv_remoting.aio.dispatch import Handler, Reply, Request
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.errors import RequestCodeNotSupportedError

# role of whoever asks -> what makes the handlers of that role's codes
PROCESSORS: Final[Mapping[str, tuple[Callable[[Namesrv], Mapping[RequestCode, Handler]], ...]]] = {
    "broker": (broker.handlers,),
    "client": (client.handlers,),
    "admin": (admin.handlers, kvconfig.handlers, extensions.handlers),
}
# ours, not RocketMQ's: their bodies have no other spelling than the native one
NATIVE_ONLY: Final = frozenset(
    {
        RequestCode.PULL_ROUTES,
        RequestCode.SERVER_INFO,
        RequestCode.RECENT_EVENTS,
        RequestCode.LIST_CONNECTIONS,
        RequestCode.LIST_BROKERS,
    }
)
# answered when something happens, not in turn
CONCURRENT: Final = frozenset({int(RequestCode.PULL_ROUTES)})


# what operators change with: each success is a line in the log
OPERATORS_CHANGES: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)


def handlers(namesrv: Namesrv) -> dict[int, Handler]:
    """All of them, each noting on the connection what kind of peer asks."""
    return {
        int(code): _noting(role, _natively(handler) if code in NATIVE_ONLY else handler)
        for role, makers in PROCESSORS.items()
        for make in makers
        for code, handler in make(namesrv).items()
    }


def roles(namesrv: Namesrv) -> dict[int, str]:
    """Who asks with which code: broker, client or admin; watch for what waits until something happens."""
    of_makers = {int(code): role for role, makers in PROCESSORS.items() for make in makers for code in make(namesrv)}
    return of_makers | dict.fromkeys(CONCURRENT, "watch")


def _noting(role: str, handler: Handler) -> Handler:
    async def note_and_handle(request: Request) -> Reply:
        connection = request.connection
        # a broker asks for routes too, and stays a broker
        if not connection.is_broker and (role != "admin" or not connection.role):
            connection.role = role
            connection.is_broker = role == "broker"
        reply = await handler(request)
        if request.command.code in OPERATORS_CHANGES:
            log_change(request)
        return reply

    return note_and_handle


def _natively(handler: Handler) -> Handler:
    async def handle_if_native(request: Request) -> Reply:
        if not request.command.is_native:
            raise RequestCodeNotSupportedError(
                f" request type {request.command.code} not supported but with serialize type {SerializeType.MSGPACK:d}"
            )
        return await handler(request)

    return handle_if_native
