"""Handlers of operators' requests: lists, permissions, topics, settings, the key-value configuration."""

import logging
from collections.abc import Callable, Hashable
from typing import Final

from namesrv.context import Namesrv
from namesrv.kv import KVLimitError, KVWriteError
from namesrv.net.dispatcher import SUCCESS, Handler, Reply
from namesrv.net.request import Request
from namesrv.processors.live_settings import apply_update, effective_properties
from namesrv.processors.topic_lists import TopicLists
from namesrv.routeinfo.routes import system_topics
from namesrv.routeinfo.tables.rows import QueueRow
from namesrv_remoting.bodies.dialects import dialect_of
from namesrv_remoting.bodies.route import ClusterInfo, KVTable, TopicList, read_queue_datas
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG, RequestCode
from namesrv_remoting.errors import BadRequestError, QueryNotFoundError, SystemError_
from namesrv_remoting.headers import (
    BrokerNameRequestHeader,
    ClusterRequestHeader,
    KVConfigKeyRequestHeader,
    NamespaceRequestHeader,
    PutKVConfigRequestHeader,
    TopicRequestHeader,
)
from namesrv_remoting.signatures import CREDENTIALS

logger: Final = logging.getLogger(__name__)

_ALL: Final = "all"
# Longest text of a header field or body in the log; values of the key-value configuration may be long.
_SHOWN_CHARACTERS: Final = 200
# Approximate bytes of a broker in the list of all brokers (106).
_BROKER_BYTES: Final = 120


class AdminProcessor:
    """Handles operators' requests, which read the tables or change them."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv
        self._manager = namesrv.manager
        self._tables = namesrv.manager.tables
        self._lists = TopicLists(namesrv.manager, namesrv.settings.limits.server.max_frame_bytes, namesrv.clock)

    async def cluster_info(self, request: Request) -> Reply:
        """Handle GET_BROKER_CLUSTER_INFO (106)."""
        # The list is charged before the server makes it, which takes a microsecond for each broker.
        self._lists.charge(request.connection.peer.network, len(self._tables.broker_live_table) * _BROKER_BYTES)
        clusters = {cluster: sorted(names) for cluster, names in self._tables.cluster_addr_table.items()}
        info, view = ClusterInfo(self._tables.broker_addr_table, clusters), self._namesrv.routes.view_of(request)
        if view is not None:
            info = view.clusters(info, self._tables.advertised_of)
        return Reply(dialect_of(request.command).encode(info))

    async def wipe_write_perm(self, request: Request, header: BrokerNameRequestHeader) -> Reply:
        """Handle WIPE_WRITE_PERM_OF_BROKER (205)."""
        count = await self._manager.wipe_write_perm(header.broker_name)
        return Reply(ext_fields={"wipeTopicCount": str(count)})

    async def add_write_perm(self, request: Request, header: BrokerNameRequestHeader) -> Reply:
        """Handle ADD_WRITE_PERM_OF_BROKER (327)."""
        count = await self._manager.add_write_perm(header.broker_name)
        return Reply(ext_fields={"addTopicCount": str(count)})

    async def delete_topic(self, request: Request, header: TopicRequestHeader) -> Reply:
        """Handle DELETE_TOPIC_IN_NAMESRV (216)."""
        # As in Java, an empty name of a cluster stands for all clusters.
        await self._manager.delete_topic(header.topic, header.cluster_name or None)
        return SUCCESS

    async def register_topic(self, request: Request, header: TopicRequestHeader) -> Reply:
        """Handle REGISTER_TOPIC_IN_NAMESRV (217)."""
        if request.command.body:
            queue_datas = read_queue_datas(dialect_of(request.command), request.command.body)
            await self._manager.register_topic(header.topic, queue_datas)
        return SUCCESS

    async def system_topics(self, request: Request) -> Reply:
        """Handle GET_SYSTEM_TOPIC_LIST_FROM_NS (304)."""
        # The list has the names of all clusters and brokers.
        self._lists.charge(request.connection.peer.network, len(self._tables.broker_live_table) * _BROKER_BYTES)
        names, broker_addr = system_topics(self._tables, self._namesrv.routes.view_of(request))
        return Reply(dialect_of(request.command).encode(TopicList(names, broker_addr)))

    async def all_topics(self, request: Request) -> Reply:
        """Handle GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
        return await self._list(request, _ALL, lambda _: True)

    async def topics_of_cluster(self, request: Request, header: ClusterRequestHeader) -> Reply:
        """Handle GET_TOPICS_BY_CLUSTER (224)."""
        cluster, members = header.cluster, self._tables.cluster_addr_table
        # Unknown clusters share one cached list, since a peer can request any number of them.
        if cluster not in members:
            return await self._list(request, "none", lambda _: False)
        # The members are looked up while the list is built: the list may wait for others before.
        return await self._list(
            request,
            ("cluster", cluster),
            lambda row: any(queues.broker_name in members.get(cluster, ()) for queues in row),
        )

    def topics_flagged(self, *, mask: int, flags: int) -> Handler:
        """Handle 311 to 313: list topics whose queues on the first broker have these flags of the mask, as in Java."""

        async def list_flagged(request: Request) -> Reply:
            return await self._list(request, (mask, flags), lambda row: row[0].topic_sys_flag & mask == flags)

        return list_flagged

    async def _list(self, request: Request, kind: Hashable, is_wanted: Callable[[QueueRow], bool]) -> Reply:
        live = self._namesrv.settings.live
        if not (live.enable_all_topic_list if kind == _ALL else live.enable_topic_list):
            raise SystemError_("disable")
        network = request.connection.peer.network
        return Reply(await self._lists.encoded(dialect_of(request.command), kind, is_wanted, network=network))

    async def update_config(self, request: Request) -> Reply:
        """Handle UPDATE_NAMESRV_CONFIG (318)."""
        changed = apply_update(self._namesrv, request.command.body)
        if self._namesrv.access.audit is not None:
            self._namesrv.access.audit.settings_changed(*changed)
        return SUCCESS

    async def get_config(self, request: Request) -> Reply:
        """Handle GET_NAMESRV_CONFIG (319)."""
        return Reply(effective_properties(self._namesrv).encode())

    async def put_kv(self, request: Request, header: PutKVConfigRequestHeader) -> Reply:
        """Handle PUT_KV_CONFIG (100); the response is sent once the value is on disk, as for a deletion."""
        try:
            is_changed = await self._namesrv.kv.put(header.namespace, header.key, header.value)
        except KVLimitError as error:
            raise BadRequestError(f"field {error.field}: {error}") from error
        except KVWriteError as error:
            raise SystemError_(error.strerror) from error
        if is_changed:
            self._kv_changed(header.namespace, header.key)
        return SUCCESS

    async def get_kv(self, request: Request, header: KVConfigKeyRequestHeader) -> Reply:
        """Handle GET_KV_CONFIG (101)."""
        value = self._namesrv.kv.get(header.namespace, header.key)
        if value is None:
            raise QueryNotFoundError(f"No config item, Namespace: {header.namespace} Key: {header.key}", ext_fields={})
        return Reply(ext_fields={"value": value})

    async def delete_kv(self, request: Request, header: KVConfigKeyRequestHeader) -> Reply:
        """Handle DELETE_KV_CONFIG (102); deleting a missing key succeeds, too."""
        try:
            if await self._namesrv.kv.delete(header.namespace, header.key):
                self._kv_changed(header.namespace, header.key)
        except KVWriteError as error:
            raise SystemError_(error.strerror) from error
        return SUCCESS

    async def kv_namespace(self, request: Request, header: NamespaceRequestHeader) -> Reply:
        """Handle GET_KVLIST_BY_NAMESPACE (219)."""
        table = self._namesrv.kv.namespace(header.namespace)
        if table is None:
            raise QueryNotFoundError(f"No config item, Namespace: {header.namespace}")
        return Reply(dialect_of(request.command).encode(KVTable(table)))

    def _kv_changed(self, namespace: str, key: str) -> None:
        # The order configuration is part of the topic's route.
        if namespace == ORDER_TOPIC_CONFIG and self._namesrv.settings.live.order_message_enable:
            self._manager.routes_may_differ((key,))


def log_change(namesrv: Namesrv, request: Request) -> None:
    """Log an operator's request for a change, which succeeded but may have changed nothing, with its sender."""
    command, connection = request.command, request.connection
    fields = (command.ext_fields or {}).items()
    request_fields = {name: str(value)[:_SHOWN_CHARACTERS] for name, value in fields if name not in CREDENTIALS}
    if command.code == RequestCode.UPDATE_NAMESRV_CONFIG:
        request_fields["settings"] = command.body[:_SHOWN_CHARACTERS].decode(errors="replace")
    namesrv.limited_log.event(
        logger,
        logging.INFO,
        "operator_changed",
        request=RequestCode(command.code).name,
        peer=connection.peer.address,
        proxied=connection.peer.proxied,
        account=request.account or None,
        role=connection.peer.role,
        request_fields=request_fields,
    )
