"""One NameServer, ours or Apache's, and all requests to it.

Requests are native where the server speaks our protocol, else RocketMQ's JSON; callers see no difference, except for
requests that Apache's server does not support at all.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.aio.tls import ClientTls
from namesrv_remoting.bodies.dialects import NATIVE, dialect_of
from namesrv_remoting.bodies.extensions import (
    FEWER_TOPICS,
    BrokersResponse,
    Connection,
    ConnectionsResponse,
    Events,
    KVNamespacesResponse,
    ListBrokersRequest,
    ListConnectionsRequest,
    LiveBroker,
    PulledRoutes,
    PullRoutesRequest,
    RecentEventsRequest,
    RequestBody,
    Reservation,
    ServerInfo,
    Setting,
    SettingsResponse,
    WhoAmI,
    read_events,
    read_routes,
)
from namesrv_remoting.bodies.properties import PropertiesError, parse_properties
from namesrv_remoting.bodies.route import ClusterInfo, KVTable, TopicList, TopicRouteData, read_route
from namesrv_remoting.codes import CURRENT_VERSION, RequestCode, SerializeType
from namesrv_remoting.command import ExtFields, RemotingCommand
from namesrv_remoting.errors import (
    NoPermissionError,
    QueryNotFoundError,
    RemoteProtocolError,
    RequestCodeNotSupportedError,
    SystemError_,
    TopicNotExistError,
)
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock

# Topics in a pull of routes. On a hundred brokers, their routes are a megabyte or two: even a busy server sends them
# well within the timeout, and reading them does not delay other work for long.
ROUTES_PER_PULL: Final = 100
# Number of events that a server remembers.
MAX_EVENTS: Final = 1000
# Number of concurrent requests to a server that answers for one topic at a time.
_ROUTES_AT_ONCE: Final = 32
# Lines of Apache's remark about a topic without a route: the topic, and a web page. Ours has further ones.
APACHE_REMARK_LINES: Final = 2


class NameServer:
    """One server at one address, over one connection. Every method that sends a request raises RemotingError."""

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float,
        clock: Clock,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self.address = address
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._credentials = credentials
        self._tls = tls
        self._client = self.new_client()
        # Apache's server closes the connection on the native request that finds out its protocol: requests of several
        # tasks wait until the protocol is known.
        self._finding_out = asyncio.Lock()
        # The number is halved when a server refuses that many.
        self._routes_per_pull = ROUTES_PER_PULL

    def new_client(self) -> RemotingClient:
        """A client with another connection to the same server."""
        return RemotingClient(
            self.address,
            clock=self._clock,
            connect_timeout_seconds=self.timeout_seconds,
            backoff=Backoff(0.1, 0.5),
            credentials=self._credentials,
            tls=self._tls,
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def info(self) -> ServerInfo | None:
        """The server's report about itself; None from Apache's server."""
        if self._client.speaks_native() is None:
            async with self._finding_out:
                return await self._info()
        return await self._info()

    async def _info(self) -> ServerInfo | None:
        if self._client.speaks_native() is False:
            return None
        body = await self._client.server_info(self.timeout_seconds)
        return None if body is None else NATIVE.read_response(ServerInfo, body)

    async def boot_id(self) -> str | None:
        """The boot id of the server; None from Apache's server."""
        info = await self.info()
        return None if info is None else info.boot_id

    async def is_native(self) -> bool:
        """True if the server speaks our protocol."""
        known = self._client.speaks_native()
        return await self.info() is not None if known is None else known

    async def who_am_i(self) -> WhoAmI:
        """The account under which the server knows this client."""
        return NATIVE.read_response(WhoAmI, await self._extension(RequestCode.WHO_AM_I))

    async def connections(self, role: str | None) -> list[Connection]:
        """The connections of the server, or those of a role."""
        body = await self._extension(RequestCode.LIST_CONNECTIONS, ListConnectionsRequest(role))
        return NATIVE.read_response(ConnectionsResponse, body).connections

    async def events(self, since: int, limit: int) -> Events:
        """At most `limit` of the last events, with numbers above `since`."""
        return read_events(await self._extension(RequestCode.RECENT_EVENTS, RecentEventsRequest(since, limit)))

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and broker groups."""
        response = await self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return dialect_of(response).read_response(ClusterInfo, response.body)

    async def reserved(self) -> list[Reservation]:
        """Broker names and addresses that are reserved for the account that held them last."""
        body = await self._extension(RequestCode.LIST_BROKERS, ListBrokersRequest())
        return NATIVE.read_response(BrokersResponse, body).reserved

    async def brokers(self, cluster: str | None = None, broker_name: str | None = None) -> list[LiveBroker]:
        """Every live instance; from Apache's server only the fields in the response to 106."""
        if await self.is_native():
            body = await self._extension(RequestCode.LIST_BROKERS, ListBrokersRequest(cluster, broker_name))
            return NATIVE.read_response(BrokersResponse, body).brokers
        info = await self.cluster_info()
        return [
            LiveBroker(group.cluster, group.broker_name, broker_id, group.broker_addrs[broker_id])
            for group in sorted(info.broker_addr_table.values(), key=lambda group: (group.cluster, group.broker_name))
            for broker_id in sorted(group.broker_addrs)
            if cluster in (None, group.cluster) and broker_name in (None, group.broker_name)
        ]

    async def change_perm(self, code: RequestCode, broker_name: str) -> int:
        """Remove or add the write permission of a broker's topics; returns their number."""
        fields = (await self.ask(code, {"brokerName": broker_name})).ext_fields or {}
        count = fields.get("wipeTopicCount" if code == RequestCode.WIPE_WRITE_PERM_OF_BROKER else "addTopicCount", "")
        return int(count) if count.isdecimal() else 0

    async def topics(self, cluster: str | None = None) -> list[str]:
        """All topics, or those of a cluster, sorted."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER if cluster is None else RequestCode.GET_TOPICS_BY_CLUSTER
        response = await self.ask(code, None if cluster is None else {"cluster": cluster})
        return sorted(dialect_of(response).read_response(TopicList, response.body).topic_list)

    async def routes(self, topics: Sequence[str], *, zone: str = "") -> dict[str, TopicRouteData | None]:
        """The routes of topics, for clients of a zone if one is given; None for a topic that does not exist."""
        if await self.is_native():
            changed = await self.changed_routes(topics, zone=zone)
            return {topic: changed.get(topic) for topic in topics}
        gate = asyncio.Semaphore(_ROUTES_AT_ONCE)

        async def route(topic: str) -> TopicRouteData | None:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            if zone:
                fields |= {"__ZONE_NAME": zone, "__ZONE_MODE": "true"}
            async with gate:
                try:
                    return read_route((await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)).body)
                except TopicNotExistError:
                    return None

        return dict(zip(topics, await asyncio.gather(*map(route, topics)), strict=True))

    async def refused_topics(self, topics: Sequence[str], refusal: NoPermissionError) -> dict[str, NoPermissionError]:
        """The topics whose routes the server denies, with its refusals: `refusal`, of all topics, names only one.

        Raises the refusal if the server denies all of them, or meanwhile none.
        """
        refused = {}
        for topic in topics:
            try:
                await self.routes([topic])
            except NoPermissionError as error:
                refused[topic] = error
        if len(refused) in (0, len(topics)):
            raise refusal
        return refused

    async def why_no_route(self, topic: str) -> str:
        """The reason why a topic has no route; empty if it has one, and from Apache's server."""
        try:
            await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        except TopicNotExistError as error:
            return " ".join((error.remark or "").splitlines()[APACHE_REMARK_LINES:])
        return ""

    async def changed_routes(
        self, topics: Sequence[str], *, boot_id: str | None = None, since: int = 0, zone: str = ""
    ) -> dict[str, TopicRouteData | None]:
        """The routes of these topics that changed after a revision of a boot; all of them without a boot id.

        Apache's server does not support this request.
        """
        routes: dict[str, TopicRouteData | None] = {}
        known: dict[bytes, TopicRouteData] = {}
        left = deque(topics)
        while left:
            chunk = list(islice(left, self._routes_per_pull))
            try:
                request = PullRoutesRequest(chunk, boot_id, since, observes=True, zone=zone or msgspec.UNSET)
                pulled = read_routes(await self._extension(RequestCode.PULL_ROUTES, request), known)
            except SystemError_ as error:
                if len(chunk) == 1 or FEWER_TOPICS not in (error.remark or ""):
                    raise
                # A route of hundreds of brokers takes a hundred kilobytes or more.
                self._routes_per_pull = (len(chunk) + 1) // 2
            else:
                routes |= pulled.routes
                for _ in chunk:
                    left.popleft()
        return routes

    async def pull_routes(
        self,
        topics: list[str],
        *,
        boot_id: str | None = None,
        since: int = 0,
        wait_seconds: float = 0.0,
    ) -> PulledRoutes:
        """Send PULL_ROUTES, which Apache's server does not support."""
        request = PullRoutesRequest(topics, boot_id, since, int(wait_seconds * 1000), observes=True)
        return read_routes(await self._extension(RequestCode.PULL_ROUTES, request, wait_seconds=wait_seconds))

    async def kv_get(self, namespace: str, key: str) -> str | None:
        """One value; None if the key or namespace does not exist."""
        try:
            response = await self.ask(RequestCode.GET_KV_CONFIG, {"namespace": namespace, "key": key})
        except QueryNotFoundError:
            return None
        return (response.ext_fields or {}).get("value")

    async def kv_list(self, namespace: str) -> dict[str, str] | None:
        """The values of a namespace; None if the namespace does not exist."""
        try:
            response = await self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})
        except QueryNotFoundError:
            return None
        return dict(dialect_of(response).read_response(KVTable, response.body).table)

    async def kv_namespaces(self) -> dict[str, int]:
        """The number of keys of each namespace; Apache's server does not support this request."""
        body = await self._extension(RequestCode.LIST_KV_NAMESPACES)
        return NATIVE.read_response(KVNamespacesResponse, body).namespaces

    async def settings(self) -> list[Setting]:
        """All settings with their origin; Apache's server sends only their values."""
        if await self.is_native():
            body = await self._extension(RequestCode.LIST_SETTINGS)
            return NATIVE.read_response(SettingsResponse, body).settings
        body = (await self.ask(RequestCode.GET_NAMESRV_CONFIG)).body
        try:
            values = parse_properties(body.decode(errors="backslashreplace"))
        except PropertiesError as error:
            raise RemoteProtocolError(f"settings cannot be read: {error}") from error
        return [Setting(key, key, value) for key, value in values.items()]

    async def ask(
        self, code: RequestCode, ext_fields: ExtFields | None = None, body: bytes = b"", *, wait_seconds: float = 0.0
    ) -> RemotingCommand:
        """Send a request, natively where the server supports that, else in RocketMQ's JSON."""
        is_native = await self.is_native()
        return await self._client.invoke(
            code,
            ext_fields=ext_fields,
            body=body,
            timeout_seconds=self.timeout_seconds + wait_seconds,
            serialize_type=SerializeType.MSGPACK if is_native else SerializeType.JSON,
        )

    async def response_as_rocketmq(
        self, code: int, ext_fields: ExtFields | None = None, *, version: int = CURRENT_VERSION
    ) -> RemotingCommand:
        """The response, also an error response, to a request in JSON as RocketMQ's clients send it."""
        return await self._client.invoke_raw(
            code,
            ext_fields=ext_fields,
            timeout_seconds=self.timeout_seconds,
            serialize_type=SerializeType.JSON,
            version=version,
        )

    async def _extension(
        self, code: RequestCode, request: RequestBody | None = None, *, wait_seconds: float = 0.0
    ) -> bytes:
        if not await self.is_native():
            raise RequestCodeNotSupportedError("not supported by Apache's NameServer")
        body = b"" if request is None else NATIVE.encode(request)
        return (await self.ask(code, None, body, wait_seconds=wait_seconds)).body
