"""Table of handlers by request code."""

from typing import Final

from namesrv.context import Namesrv
from namesrv.processors.admin import AdminProcessor, log_change
from namesrv.processors.broker import BrokerProcessor
from namesrv.processors.client import ClientProcessor
from namesrv.processors.extensions import ExtensionProcessor
from namesrv_remoting.aio.dispatch import Handler, Reply, Request
from namesrv_remoting.codes import UNIT_FLAG, UNIT_SUB_FLAG, RequestCode, SerializeType
from namesrv_remoting.errors import RequestCodeNotSupportedError

# answered when something happens, not in turn
CONCURRENT: Final = frozenset({int(RequestCode.PULL_ROUTES)})


def processors(namesrv: Namesrv) -> tuple[dict[int, Handler], dict[int, str]]:
    """By request code: handlers that note on a connection who asks, and who that is (broker, client, admin, watch)."""
    broker, client = BrokerProcessor(namesrv), ClientProcessor(namesrv)
    admin, extension = AdminProcessor(namesrv), ExtensionProcessor(namesrv)
    by_role: dict[str, dict[RequestCode, Handler]] = {
        "broker": {
            RequestCode.REGISTER_BROKER: broker.register,
            RequestCode.UNREGISTER_BROKER: broker.unregister,
            RequestCode.BROKER_HEARTBEAT: broker.heartbeat,
            RequestCode.QUERY_DATA_VERSION: broker.query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: broker.member_group,
        },
        "client": {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: client.route,
            RequestCode.PULL_ROUTES: _natively(client.pull_routes),
        },
        "admin": {
            RequestCode.PUT_KV_CONFIG: _logged(admin.put_kv),
            RequestCode.GET_KV_CONFIG: admin.get_kv,
            RequestCode.DELETE_KV_CONFIG: _logged(admin.delete_kv),
            RequestCode.GET_KVLIST_BY_NAMESPACE: admin.kv_namespace,
            RequestCode.GET_BROKER_CLUSTER_INFO: admin.cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: _logged(admin.wipe_write_perm),
            RequestCode.ADD_WRITE_PERM_OF_BROKER: _logged(admin.add_write_perm),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: admin.all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: _logged(admin.delete_topic),
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: _logged(admin.register_topic),
            RequestCode.GET_TOPICS_BY_CLUSTER: admin.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: admin.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: admin.topics_flagged(among=UNIT_FLAG, wanted=UNIT_FLAG),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: admin.topics_flagged(among=UNIT_SUB_FLAG, wanted=UNIT_SUB_FLAG),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: admin.topics_flagged(
                among=UNIT_FLAG | UNIT_SUB_FLAG, wanted=UNIT_SUB_FLAG
            ),
            RequestCode.UPDATE_NAMESRV_CONFIG: _logged(admin.update_config),
            RequestCode.GET_NAMESRV_CONFIG: admin.get_config,
            RequestCode.SERVER_INFO: _natively(extension.server_info),
            RequestCode.RECENT_EVENTS: _natively(extension.recent_events),
            RequestCode.LIST_CONNECTIONS: _natively(extension.list_connections),
            RequestCode.LIST_BROKERS: _natively(extension.list_brokers),
            RequestCode.WHO_AM_I: _natively(extension.who_am_i),
            RequestCode.LIST_SETTINGS: _natively(extension.list_settings),
        },
    }
    kinds = {int(code): role for role, handlers in by_role.items() for code in handlers}
    all_handlers = {int(code): _noting(role, each) for role, some in by_role.items() for code, each in some.items()}
    return all_handlers, kinds | dict.fromkeys(CONCURRENT, "watch")


def _noting(role: str, handler: Handler) -> Handler:
    async def note_and_handle(request: Request) -> Reply:
        request.connection.note_role(role)
        return await handler(request)

    return note_and_handle


def _logged(handler: Handler) -> Handler:
    """What operators change with: each success is a line in the log."""

    async def handle_and_log(request: Request) -> Reply:
        reply = await handler(request)
        log_change(request)
        return reply

    return handle_and_log


def _natively(handler: Handler) -> Handler:
    """Ours, not RocketMQ's: the body has no other spelling than the native one."""

    async def handle_if_native(request: Request) -> Reply:
        if not request.command.is_native:
            raise RequestCodeNotSupportedError(
                f" request type {request.command.code} not supported but with serialize type {SerializeType.MSGPACK:d}"
            )
        return await handler(request)

    return handle_if_native
