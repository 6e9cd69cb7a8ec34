"""Handlers of operators' requests: lists, permissions, topics, settings."""

from collections.abc import Callable, Hashable, Mapping

from namesrv.context import Namesrv
from namesrv.processors.live_settings import apply_update, effective_properties
from namesrv.processors.topic_lists import LargeLists, TopicLists
from namesrv.routeinfo import views
from namesrv.routeinfo.tables import QueueRow
from namesrv_remoting.aio.dispatch import SUCCESS, Handler, Reply, Request
from namesrv_remoting.bodies.dialects import dialect_of
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import SystemError_
from namesrv_remoting.headers.admin import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    ClusterRequestHeader,
    DeleteTopicRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermResponseHeader,
)


def handlers(namesrv: Namesrv) -> Mapping[RequestCode, Handler]:
    """The handlers of operators' requests."""
    processor = AdminProcessor(namesrv)
    return {
        RequestCode.GET_BROKER_CLUSTER_INFO: processor.cluster_info,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: processor.wipe_write_perm,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: processor.add_write_perm,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: processor.all_topics,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: processor.delete_topic,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: processor.register_topic,
        RequestCode.GET_TOPICS_BY_CLUSTER: processor.topics_of_cluster,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: processor.system_topics,
        RequestCode.GET_UNIT_TOPIC_LIST: processor.unit_topics,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: processor.unit_sub_topics,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: processor.unit_sub_not_unit_topics,
        RequestCode.UPDATE_NAMESRV_CONFIG: processor.update_config,
        RequestCode.GET_NAMESRV_CONFIG: processor.get_config,
    }


class AdminProcessor:
    """Reads the tables for people, and changes what people may change."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv
        self._manager = namesrv.manager
        self._tables = namesrv.manager.tables
        self._large_lists = LargeLists(namesrv.clock)
        self._lists = TopicLists(namesrv.manager, lambda: namesrv.settings.max_frame_bytes)

    async def cluster_info(self, request: Request) -> Reply:
        """106."""
        tables = self._tables
        spelt = dialect_of(request.command).cluster_info(tables.broker_addr_table.values(), tables.cluster_addr_table)
        return Reply(spelt)

    async def wipe_write_perm(self, request: Request) -> Reply:
        """205."""
        header = BrokerNameRequestHeader.from_ext(request.command.ext_fields)
        count = await self._manager.wipe_write_perm(header.broker_name)
        return Reply(ext_fields=WipeWritePermResponseHeader(wipe_topic_count=count).to_ext())

    async def add_write_perm(self, request: Request) -> Reply:
        """327."""
        header = BrokerNameRequestHeader.from_ext(request.command.ext_fields)
        count = await self._manager.add_write_perm(header.broker_name)
        return Reply(ext_fields=AddWritePermResponseHeader(add_topic_count=count).to_ext())

    async def all_topics(self, request: Request) -> Reply:
        """206."""
        if not self._namesrv.live.enable_all_topic_list:
            raise SystemError_("disable")
        return await self._list(request, "all", lambda _: True)

    async def delete_topic(self, request: Request) -> Reply:
        """216."""
        header = DeleteTopicRequestHeader.from_ext(request.command.ext_fields)
        await self._manager.delete_topic(header.topic, header.cluster_name)
        return SUCCESS

    async def register_topic(self, request: Request) -> Reply:
        """217."""
        header = RegisterTopicRequestHeader.from_ext(request.command.ext_fields)
        if request.command.body:
            queue_datas = dialect_of(request.command).read_queue_datas(request.command.body)
            await self._manager.register_topic(header.topic, queue_datas)
        return SUCCESS

    async def topics_of_cluster(self, request: Request) -> Reply:
        """224."""
        self._check_lists()
        header = ClusterRequestHeader.from_ext(request.command.ext_fields)
        brokers = self._tables.cluster_addr_table.get(header.cluster)
        if brokers is None:
            # any number of them could be asked for
            return await self._list(request, "none", lambda _: False)
        return await self._list(
            request, ("cluster", header.cluster), lambda row: any(queues.broker_name in brokers for queues in row)
        )

    async def system_topics(self, request: Request) -> Reply:
        """304."""
        names, broker_addr = views.system_topics(self._tables)
        return Reply(dialect_of(request.command).topic_list(names, broker_addr))

    async def unit_topics(self, request: Request) -> Reply:
        """311."""
        return await self._flagged(request, "unit", views.is_unit)

    async def unit_sub_topics(self, request: Request) -> Reply:
        """312."""
        return await self._flagged(request, "unit sub", views.has_unit_sub)

    async def unit_sub_not_unit_topics(self, request: Request) -> Reply:
        """313."""
        return await self._flagged(
            request, "unit sub, not unit", lambda flags: views.has_unit_sub(flags) and not views.is_unit(flags)
        )

    async def _flagged(self, request: Request, kind: str, is_wanted: Callable[[int], bool]) -> Reply:
        """Topics by the flags of their first queues, which is where Java looks."""
        self._check_lists()
        return await self._list(request, kind, lambda row: is_wanted(row[0].topic_sys_flag))

    def _check_lists(self) -> None:
        if not self._namesrv.live.enable_topic_list:
            raise SystemError_("disable")

    async def _list(self, request: Request, kind: Hashable, is_wanted: Callable[[QueueRow], bool]) -> Reply:
        encoded = await self._lists.encoded(dialect_of(request.command), kind, is_wanted)
        self._large_lists.give(request.connection.ip, len(encoded))
        return Reply(encoded)

    async def update_config(self, request: Request) -> Reply:
        """318."""
        apply_update(self._namesrv, request.command.body)
        return SUCCESS

    async def get_config(self, request: Request) -> Reply:  # noqa: ARG002 - the question holds nothing
        """319."""
        return Reply(effective_properties(self._namesrv).encode())
