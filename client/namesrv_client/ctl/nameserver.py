"""One NameServer, ours or Apache's, and everything that it can be asked.

Natively where the server speaks our protocol, else in RocketMQ's JSON; whoever asks does not notice, but for what
Apache's server does not tell at all.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.bodies.answers import ClusterInfo, read_cluster_info, read_kv_table, read_route, read_topic_list
from namesrv_remoting.bodies.extension_answers import (
    Connection,
    Events,
    LiveBroker,
    PulledRoutes,
    ServerInfo,
    read_brokers,
    read_connections,
    read_events,
    read_routes,
    read_server_info,
)
from namesrv_remoting.bodies.extensions import (
    ListBrokersRequest,
    ListConnectionsRequest,
    PullRoutesRequest,
    Question,
    RecentEventsRequest,
    encode_question,
)
from namesrv_remoting.bodies.properties import PropertiesError, format_properties, parse_properties
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.command import ExtFields, RemotingCommand
from namesrv_remoting.errors import (
    QueryNotFoundError,
    RemoteProtocolError,
    RequestCodeNotSupportedError,
    TopicNotExistError,
)
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock

# a frame is at most 16 MiB; so many routes of 8 broker groups are a tenth of it
ROUTES_PER_PULL: Final = 1000
# questions on their way at once to a server that answers one topic at a time
_ROUTES_AT_ONCE: Final = 32


class NameServer:
    """One server at one address, over one connection. Every verb raises RemotingError."""

    def __init__(self, address: str, *, timeout_seconds: float, clock: Clock) -> None:
        self.address = address
        self.timeout_seconds = timeout_seconds
        self._client = RemotingClient(
            address,
            clock=clock,
            connect_timeout_seconds=timeout_seconds,
            backoff=Backoff(0.1, 0.5),
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    # -- the server itself --------------------------------------------------------------------------------------------

    async def info(self) -> ServerInfo | None:
        """What the server says of itself; None from Apache's, which says nothing."""
        if self._client.speaks_native() is False:
            return None
        body = await self._client.server_info(self.timeout_seconds)
        return None if body is None else read_server_info(body)

    async def is_native(self) -> bool:
        """Whether it speaks our protocol."""
        known = self._client.speaks_native()
        return await self.info() is not None if known is None else known

    async def connections(self, role: str | None) -> list[Connection]:
        """Who is connected."""
        return read_connections(await self._extension(RequestCode.LIST_CONNECTIONS, ListConnectionsRequest(role)))

    async def events(self, since: int, limit: int) -> Events:
        """What happened last."""
        return read_events(await self._extension(RequestCode.RECENT_EVENTS, RecentEventsRequest(since, limit)))

    # -- brokers ------------------------------------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and broker groups."""
        answer = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return read_cluster_info(answer.body, native=answer.is_native)

    async def brokers(self, cluster: str | None = None, broker_name: str | None = None) -> list[LiveBroker]:
        """Every live instance; from Apache's server only what 106 tells of it."""
        if await self.is_native():
            question = ListBrokersRequest(cluster, broker_name)
            return read_brokers(await self._extension(RequestCode.LIST_BROKERS, question))
        found = await self.cluster_info()
        return [
            LiveBroker(group.cluster, group.broker_name, broker_id, group.broker_addrs[broker_id])
            for group in sorted(found.broker_addr_table.values(), key=lambda group: (group.cluster, group.broker_name))
            for broker_id in sorted(group.broker_addrs)
            if cluster in (None, group.cluster) and broker_name in (None, group.broker_name)
        ]

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Take the write permission from a broker's topics; how many it has."""
        return await self._change_perm(RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker_name, "wipeTopicCount")

    async def add_write_perm(self, broker_name: str) -> int:
        """Give it back; how many topics it has."""
        return await self._change_perm(RequestCode.ADD_WRITE_PERM_OF_BROKER, broker_name, "addTopicCount")

    async def _change_perm(self, code: RequestCode, broker_name: str, field: str) -> int:
        answer = await self._ask(code, {"brokerName": broker_name})
        count = (answer.ext_fields or {}).get(field, "")
        return int(count) if count.isdecimal() else 0

    # -- topics -------------------------------------------------------------------------------------------------------

    async def topics(self, cluster: str | None = None) -> list[str]:
        """All topics, or those of a cluster, sorted."""
        if cluster is None:
            answer = await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            answer = await self._ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        return sorted(read_topic_list(answer.body, native=answer.is_native))

    async def routes(self, topics: Sequence[str]) -> dict[str, TopicRouteData | None]:
        """The routes of topics; None for one that positively does not exist."""
        if await self.is_native():
            found: dict[str, TopicRouteData | None] = {}
            for at in range(0, len(topics), ROUTES_PER_PULL):
                pulled = await self.pull_routes(list(topics[at : at + ROUTES_PER_PULL]))
                found |= pulled.routes
            return {topic: found.get(topic) for topic in topics}
        gate = asyncio.Semaphore(_ROUTES_AT_ONCE)

        async def ask(topic: str) -> TopicRouteData | None:
            async with gate:
                return await self._route(topic)

        return dict(zip(topics, await asyncio.gather(*map(ask, topics)), strict=True))

    async def _route(self, topic: str) -> TopicRouteData | None:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            answer = await self._invoke(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, native=False)
        except TopicNotExistError:
            return None
        return read_route(answer.body)

    async def pull_routes(
        self, topics: list[str], *, boot_id: str | None = None, since: int = 0, wait_seconds: float = 0.0
    ) -> PulledRoutes:
        """PULL_ROUTES, which Apache's server does not know."""
        question = PullRoutesRequest(topics, boot_id, since, int(wait_seconds * 1000))
        return read_routes(await self._extension(RequestCode.PULL_ROUTES, question, wait_seconds=wait_seconds))

    async def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, everywhere or on a cluster's brokers."""
        fields = {"topic": topic} if cluster is None else {"topic": topic, "clusterName": cluster}
        await self._ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)

    # -- configuration ------------------------------------------------------------------------------------------------

    async def kv_get(self, namespace: str, key: str) -> str | None:
        """One value; None when there is none."""
        try:
            answer = await self._ask(RequestCode.GET_KV_CONFIG, {"namespace": namespace, "key": key})
        except QueryNotFoundError:
            return None
        return (answer.ext_fields or {}).get("value")

    async def kv_list(self, namespace: str) -> dict[str, str] | None:
        """A namespace; None when there is no such."""
        try:
            answer = await self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})
        except QueryNotFoundError:
            return None
        return read_kv_table(answer.body, native=answer.is_native)

    async def kv_put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        await self._ask(RequestCode.PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})

    async def kv_delete(self, namespace: str, key: str) -> None:
        """Remove a value; also succeeds when there is none."""
        await self._ask(RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})

    async def config(self) -> dict[str, str]:
        """All settings as they are now, by Apache's names."""
        body = (await self._ask(RequestCode.GET_NAMESRV_CONFIG)).body
        try:
            return parse_properties(body.decode(errors="backslashreplace"))
        except PropertiesError as error:
            raise RemoteProtocolError(f"settings cannot be read: {error}") from error

    async def set_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of the running server."""
        await self._ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=format_properties(settings).encode())

    # -- the two ways of asking ---------------------------------------------------------------------------------------

    async def _ask(self, code: RequestCode, ext_fields: ExtFields | None = None, body: bytes = b"") -> RemotingCommand:
        return await self._invoke(code, ext_fields, body, native=await self.is_native())

    async def _extension(self, code: RequestCode, question: Question, *, wait_seconds: float = 0.0) -> bytes:
        if not await self.is_native():
            raise RequestCodeNotSupportedError("not supported by Apache's NameServer")
        answer = await self._invoke(code, None, encode_question(question), native=True, wait_seconds=wait_seconds)
        return answer.body

    async def _invoke(
        self,
        code: RequestCode,
        ext_fields: ExtFields | None,
        body: bytes = b"",
        *,
        native: bool,
        wait_seconds: float = 0.0,
    ) -> RemotingCommand:
        return await self._client.invoke(
            code,
            ext_fields=ext_fields,
            body=body,
            timeout_seconds=self.timeout_seconds + wait_seconds,
            serialize_type=SerializeType.MSGPACK if native else SerializeType.JSON,
        )

    def __repr__(self) -> str:
        return f"<NameServer [{self._client!r} | native: {self._client.speaks_native()}]>"
