"""Table of all requests that the server answers, and the dispatcher that follows it.

A row has the handler of a request code, and the limits that differ from those of most requests. The row of the code in
REQUESTS (`namesrv_remoting`) has the facts that clients need, too: sender, access class, header and body.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Concatenate, TypeAlias

from namesrv.context import Namesrv
from namesrv.net.dispatcher import Dispatcher, Handler, Reply
from namesrv.net.request import ReceiveRules, Request
from namesrv.processors.admin import AdminProcessor, log_change
from namesrv.processors.broker import BrokerProcessor, note_unread
from namesrv.processors.client import ClientProcessor
from namesrv.processors.extensions import ExtensionProcessor
from namesrv_remoting.bodies.extensions import PullRoutesRequest
from namesrv_remoting.codes import UNIT_FLAG, UNIT_SUB_FLAG, RequestCode
from namesrv_remoting.requests import REQUESTS, AccessClass, RequestKind

# A typed handler takes the request, then the typed header and the typed body that the row of REQUESTS names.
TypedHandler: TypeAlias = Callable[Concatenate[Request, ...], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A row of the table: how the server handles requests with one code."""

    handler: TypedHandler
    _: KW_ONLY
    # The largest frame that is received for the request, up to `max_frame_bytes` of the limits. 0: a small frame, as
    # for most requests.
    largest_frame_bytes: int = 0
    # True: the request is allowed over a reserved connection slot before the registration of a broker.
    before_registration: bool = False


def served_requests(namesrv: Namesrv) -> Mapping[RequestCode, ServedRequest]:
    """Return the table by request code."""
    code, row, both = RequestCode, ServedRequest, UNIT_FLAG | UNIT_SUB_FLAG
    broker, client = BrokerProcessor(namesrv), ClientProcessor(namesrv)
    admin, extension = AdminProcessor(namesrv), ExtensionProcessor(namesrv)
    return {
        # A broker with many topics sends a frame of any size.
        code.REGISTER_BROKER: row(broker.register, largest_frame_bytes=sys.maxsize, before_registration=True),
        code.UNREGISTER_BROKER: row(broker.unregister, before_registration=True),
        code.BROKER_HEARTBEAT: row(broker.heartbeat, before_registration=True),
        code.QUERY_DATA_VERSION: row(broker.query_data_version, before_registration=True),
        code.GET_BROKER_MEMBER_GROUP: row(broker.member_group, before_registration=True),
        code.GET_ROUTEINFO_BY_TOPIC: row(client.route),
        # A client with 10,000 topics sends 400 KiB.
        code.PULL_ROUTES: row(client.pull_routes, largest_frame_bytes=PullRoutesRequest.max_bytes),
        code.GET_BROKER_CLUSTER_INFO: row(admin.cluster_info),
        code.GET_KV_CONFIG: row(admin.get_kv),
        code.GET_KVLIST_BY_NAMESPACE: row(admin.kv_namespace),
        code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: row(admin.all_topics),
        code.GET_TOPICS_BY_CLUSTER: row(admin.topics_of_cluster),
        code.GET_SYSTEM_TOPIC_LIST_FROM_NS: row(admin.system_topics),
        code.GET_UNIT_TOPIC_LIST: row(admin.topics_flagged(mask=UNIT_FLAG, flags=UNIT_FLAG)),
        code.GET_HAS_UNIT_SUB_TOPIC_LIST: row(admin.topics_flagged(mask=UNIT_SUB_FLAG, flags=UNIT_SUB_FLAG)),
        code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: row(admin.topics_flagged(mask=both, flags=UNIT_SUB_FLAG)),
        code.GET_NAMESRV_CONFIG: row(admin.get_config),
        code.PUT_KV_CONFIG: row(admin.put_kv),
        code.DELETE_KV_CONFIG: row(admin.delete_kv),
        code.WIPE_WRITE_PERM_OF_BROKER: row(admin.wipe_write_perm),
        code.ADD_WRITE_PERM_OF_BROKER: row(admin.add_write_perm),
        code.DELETE_TOPIC_IN_NAMESRV: row(admin.delete_topic),
        # The body has the queues of a topic on every broker.
        code.REGISTER_TOPIC_IN_NAMESRV: row(admin.register_topic, largest_frame_bytes=1024 * 1024),
        code.UPDATE_NAMESRV_CONFIG: row(admin.update_config),
        # The first request of a broker agent, which finds out the kind of server.
        code.SERVER_INFO: row(extension.server_info, before_registration=True),
        code.RECENT_EVENTS: row(extension.recent_events),
        code.LIST_CONNECTIONS: row(extension.list_connections),
        code.LIST_BROKERS: row(extension.list_brokers),
        code.WHO_AM_I: row(extension.who_am_i),
        code.LIST_SETTINGS: row(extension.list_settings),
        code.LIST_KV_NAMESPACES: row(extension.list_kv_namespaces),
    }


def dispatcher_of(namesrv: Namesrv) -> Dispatcher:
    """Return the dispatcher of a server, with the table of its requests."""
    served, access = served_requests(namesrv), namesrv.access
    senders: Mapping[int, str] = {
        code: "watch" if REQUESTS[code].may_wait else REQUESTS[code].sender for code in served
    }
    return Dispatcher(
        access.audited({code: _bound(namesrv, REQUESTS[code], row.handler) for code, row in served.items()}),
        receive_rules={code: _receive_rules(REQUESTS[code], row) for code, row in served.items()},
        native_ext={"boot_id": namesrv.boot.id},
        admission=access,
        on_unread=partial(note_unread, namesrv.manager),
        max_frame_bytes=namesrv.settings.limits.server.max_frame_bytes,
        timed=lambda code, seconds: namesrv.counters.request_answered(senders.get(code, "unknown"), seconds),
    )


def _receive_rules(kind: RequestKind, row: ServedRequest) -> ReceiveRules:
    return ReceiveRules(
        is_concurrent=kind.may_wait,
        largest_frame_bytes=row.largest_frame_bytes,
        before_registration=row.before_registration,
    )


def _bound(namesrv: Namesrv, kind: RequestKind, handler: TypedHandler) -> Handler:
    """Wrap a handler: note the role of the peer, decode typed values, and log successful requests for changes."""

    async def handle(request: Request) -> Reply:
        request.connection.peer.note_role(kind.sender)
        values: tuple[Any, ...] = kind.values(request.command)
        reply = await handler(request, *values)
        if kind.access_class is AccessClass.ADMIN_WRITE:
            log_change(namesrv, request)
        return reply

    return handle
