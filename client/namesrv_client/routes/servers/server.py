"""One NameServer as the client sees it: its connection, its protocol, and single requests for routes."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from namesrv_client.routes.response import RouteResponse
from namesrv_client.routes.servers.identity import Protocol, ServerIdentity
from namesrv_client.routes.servers.record import ServerRecord
from namesrv_client.routes.status import ServerStatus
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import PullRoutesRequest, ServerInfo, read_routes
from namesrv_remoting.bodies.route import TopicRouteData, read_route
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.errors import (
    ConnectionClosedError,
    GoAwayError,
    NotReadyError,
    RemotingError,
    ResponseError,
    SystemBusyError,
    TlsRequiredError,
    TopicNotExistError,
)
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock
from namesrv_runtime.server_events import ServerEvents

# error responses that concern the server and not the request
SERVER_FAILED: Final = (NotReadyError, GoAwayError, SystemBusyError, TlsRequiredError)
# A short back-off: requests go to other servers meanwhile, and a dead server is not dialled for every request.
_BACKOFF: Final = Backoff(0.1, 1.0)


class Server:
    """The connection to one NameServer, which begins with a request for the server's boot id."""

    def __init__(
        self, address: str, settings: ClientSettings, clock: Clock, protocols: ServerProtocols, events: ServerEvents
    ) -> None:
        self.address = address
        self._settings = settings
        self.clock = clock
        self._protocols = protocols
        self._client = self._new_client()
        # the last SERVER_INFO request, under way or ended
        self._info_request: asyncio.Task[RemotingError | None] | None = None
        self.identity = ServerIdentity(address, settings, clock)
        self.record = ServerRecord(address, clock, events)

    def __repr__(self) -> str:
        return f"<Server [{self.address} | {self.identity.protocol or 'not identified'} | {self.identity.boot_id}]>"

    def status(self, *, is_chosen: bool) -> ServerStatus:
        """The state of the server; any thread may call this."""
        identity, record = self.identity, self.record
        return ServerStatus(
            address=self.address,
            state=record.state,
            since=record.since,
            is_chosen=is_chosen,
            protocol=identity.protocol,
            boot_id=identity.native_boot_id,
            last_response=record.last_response,
            last_error=record.error,
            pulls=dict(record.pulls),
            reconnects=record.reconnects,
        )

    async def identify(self, timeout_seconds: float) -> None:
        """Find out the protocol and boot id, once on each connection. Raises RemotingError.

        For a server that is known to be native, this does not wait: SERVER_INFO is sent along with the first request.
        """
        identity = self.identity
        if not self._client.connected:
            identity.note_not_connected()
        if identity.is_native is not None:
            return
        protocol = self._settings.protocol
        known = self._client.speaks_native() if protocol == "auto" else protocol == "native"
        if known is False:
            identity.note_rocketmq()
            return
        if identity.state is Protocol.UNKNOWN:
            self._info_request = asyncio.create_task(self._identify(timeout_seconds))
        identity.note_requested(is_known_native=bool(known))
        if known:
            # The task runs now, so that its request is sent first.
            await asyncio.sleep(0)
        elif (failure := await self._identified()) is not None:
            raise failure

    async def _identified(self) -> RemotingError | None:
        """Wait for the end of the last SERVER_INFO request; return the error if it failed."""
        request = self._info_request
        if request is None:
            return None
        # asyncio.wait, because awaiting the task would cancel it for all callers when one caller is cancelled.
        await asyncio.wait([request])
        return (
            ConnectionClosedError(f"{self.address} is not used any more") if request.cancelled() else request.result()
        )

    async def _identify(self, timeout_seconds: float) -> RemotingError | None:
        """Send SERVER_INFO; an error is returned, not raised, because no caller may be left to catch it."""
        try:
            if self._settings.protocol == "native":
                await self.request_boot_id(timeout_seconds)
            elif (body := await self._client.server_info(timeout_seconds)) is None:
                self.identity.note_rocketmq()
            else:
                self._note_native(NATIVE.read_response(ServerInfo, body))
        except RemotingError as error:
            return error
        finally:
            self.identity.note_request_ended()
        return None

    async def request_boot_id(self, timeout_seconds: float) -> None:
        """Request the server's boot id natively. Raises RemotingError."""
        response = await self._client.invoke(
            RequestCode.SERVER_INFO, timeout_seconds=timeout_seconds, serialize_type=SerializeType.MSGPACK
        )
        self._note_native(NATIVE.read_response(ServerInfo, response.body))

    def _note_native(self, info: ServerInfo) -> None:
        self.identity.note_native(info.boot_id, info.uptime_seconds)
        self._note_response()

    def _note_response(self) -> None:
        if self.identity.is_native is False and not self.record.is_connected:
            # Attempts to connect may have failed since the protocol was noted, until the server was started.
            self.identity.restart_warm_up()
        no_watches = self._settings.watch and self.identity.is_native is False
        remark = ", which does not support watches" if no_watches else ""
        self.record.note_response(is_open=self._client.connected, remark=remark)

    def _note_end(self, why: str) -> None:
        self.identity.note_end()
        self.record.note_end(why)

    def _new_client(self) -> RemotingClient:
        return RemotingClient(
            self.address,
            clock=self.clock,
            tls=self._settings.client_tls,
            connect_timeout_seconds=self._settings.connect_timeout_seconds,
            backoff=_BACKOFF,
            on_connection_lost=self._lost,
            protocols=self._protocols,
            credentials=self._settings.credentials(self.clock.wall),
        )

    def _lost(self, error: ConnectionClosedError) -> None:
        self._note_end(str(error))

    @property
    def socket_descriptor(self) -> int | None:
        """The file descriptor of the connection; None without a connection."""
        return self._client.socket_descriptor

    @property
    def is_idle(self) -> bool:
        """True if no request is under way."""
        return not self._client.pending_count

    async def disconnect(self, why: str | None = None) -> None:
        """Fail the requests under way and close the connection; the next request opens another one."""
        old, self._client = self._client, self._new_client()
        why = why or self.record.error or "given up"
        self._note_end(why)
        await old.close(why)

    async def close(self) -> None:
        """Disconnect for good."""
        if (request := self._info_request) is not None:
            request.cancel()
            await asyncio.wait([request])
        self._note_end("no longer used")
        await self._client.close()

    async def pull(
        self,
        topics: Sequence[str],
        timeout_seconds: float,
        *,
        since_revision: int | None = None,
        wait_seconds: float = 0.0,
    ) -> RouteResponse:
        """Send a native PULL_ROUTES for the topics' routes, or for their changes since a revision of this boot id.

        With a wait, the server holds the request until a topic changes. Raises RemotingError.
        """
        identity = self.identity
        sent_over = identity.connection_number
        boot_id = None if since_revision is None else identity.boot_id
        zone = self._settings.zone_name or msgspec.UNSET
        request = PullRoutesRequest(list(topics), boot_id, since_revision or 0, int(wait_seconds * 1000), zone=zone)
        pulled = read_routes(await self._send_pull(NATIVE.encode(request), timeout_seconds + wait_seconds))
        if pulled.boot_id != identity.boot_id:
            # A SERVER_INFO request may be under way, whose response contains the uptime.
            await self._identified()
        self._note_response()
        # If the boot id is new, the server has restarted behind a connection that stayed open, through a proxy.
        identity.note_boot_id(pulled.boot_id, 0.0)
        is_complete = pulled.ready and identity.is_complete
        connection_number, has_been_complete = identity.note_routes(sent_over, pulled.boot_id, is_complete=is_complete)
        return RouteResponse(
            boot_id=pulled.boot_id,
            connection_number=connection_number,
            is_complete=is_complete,
            has_been_complete=has_been_complete,
            knows_all_topics=pulled.ready and identity.knows_all_topics,
            topics=topics,
            routes=pulled.routes,
            revision=pulled.revision,
            is_conditional=since_revision is not None and not pulled.full,
        )

    async def _send_pull(self, body: bytes, timeout_seconds: float) -> bytes:
        """Send a native PULL_ROUTES; return the body of its response. Raises RemotingError."""
        # the SERVER_INFO request that was sent right before, without a wait for its response
        info_request = self._info_request if self.identity.state is Protocol.PRESUMED else None
        try:
            response = await self._client.invoke(
                RequestCode.PULL_ROUTES,
                body=body,
                timeout_seconds=timeout_seconds,
                serialize_type=SerializeType.MSGPACK,
            )
        except ConnectionClosedError:
            # A server that requires TLS answers only the first request, SERVER_INFO, and closes the connection.
            if info_request is not None and (refusal := _refusal(info_request)) is not None:
                raise refusal from None
            raise
        return response.body

    async def route_by_topic(self, topic: str, timeout_seconds: float) -> RouteResponse:
        """Send a GET_ROUTEINFO_BY_TOPIC, as RocketMQ's clients do. Raises RemotingError."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        if self._settings.zone_name:
            fields |= {"__ZONE_NAME": self._settings.zone_name, "__ZONE_MODE": "true"}
        route: TopicRouteData | None = None
        identity = self.identity
        sent_over = identity.connection_number
        try:
            response = await self._client.invoke(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields, timeout_seconds=timeout_seconds
            )
            route = read_route(response.body)
            self._note_response()
        except TlsRequiredError:
            # The server closes the connection, which is not worth a line for each request.
            raise
        except ResponseError as error:
            self._note_response()
            if not isinstance(error, TopicNotExistError):
                raise
        # If the connection was lost and replaced meanwhile, the sender of the response is unknown.
        is_identified = identity.is_native is not None and identity.connection_number == sent_over
        boot_id = (identity.boot_id or "") if is_identified else f"{self.address}#"
        is_complete = is_identified and identity.is_complete
        connection_number, has_been_complete = identity.note_routes(sent_over, boot_id, is_complete=is_complete)
        return RouteResponse(
            boot_id=boot_id,
            connection_number=connection_number,
            is_complete=is_complete,
            has_been_complete=has_been_complete,
            knows_all_topics=is_identified and identity.knows_all_topics,
            topics=(topic,),
            routes={topic: route},
        )


def _refusal(request: asyncio.Task[RemotingError | None]) -> ResponseError | None:
    """The server's refusal of a request that has ended; None after another end, or while the request is under way."""
    error = request.result() if request.done() and not request.cancelled() else None
    return error if isinstance(error, ResponseError) else None
