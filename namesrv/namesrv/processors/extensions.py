"""Handlers of operators' native requests."""

import hashlib
import os
from typing import Final

from namesrv import version
from namesrv.context import Namesrv
from namesrv.net.dispatcher import Reply
from namesrv.net.request import Request
from namesrv.observability.health import HealthValues, server_problems
from namesrv.processors.live_settings import settings_list
from namesrv.processors.topic_lists import LargeLists
from namesrv.yielding import in_chunks
from namesrv_remoting.access import Account
from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import (
    BrokersResponse,
    Connection,
    ConnectionsResponse,
    EventsResponse,
    KVNamespacesResponse,
    ListBrokersRequest,
    ListConnectionsRequest,
    LiveBroker,
    RecentEventsRequest,
    Reservation,
    ServerInfo,
    SettingsResponse,
    Traffic,
    WhoAmI,
)
from namesrv_remoting.codes import SerializeType
from namesrv_remoting.signatures import ACCESS_KEY, NATIVE_SIGNATURE
from namesrv_runtime.clock import wall_ms_at

# Items described between two yields to the event loop: about a millisecond.
_CHUNK: Final = 250
# Bytes that a broker or connection in a list counts, as in topic_lists.py: more than it has, since describing one takes
# as long as scanning 20 topics. An item that is left out counts as much as a scanned topic.
_LISTED_BYTES: Final = 1024
_LEFT_OUT_BYTES: Final = 128
# Names of serialize types; a connection without a request so far is not among them.
_PROTOCOLS: Final = {int(each): each.name.lower() for each in SerializeType}


class ExtensionProcessor:
    """Describes the running server."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv
        self._large_lists = LargeLists(namesrv.clock)

    async def server_info(self, request: Request) -> Reply:
        """Handle SERVER_INFO (20002)."""
        namesrv, manager = self._namesrv, self._namesrv.manager
        info = ServerInfo(
            boot_id=namesrv.boot.id,
            nameserver=namesrv.settings.current.nameserver_name,
            revision=manager.revisions.revision,
            ready=namesrv.boot.is_ready(),
            readiness=namesrv.boot.readiness_text(),
            draining=namesrv.boot.is_draining,
            started_ms=wall_ms_at(namesrv.clock, namesrv.boot.started_monotonic),
            uptime_seconds=round(namesrv.boot.uptime(), 3),
            version=version(),
            pid=os.getpid(),
            clusters=len(manager.tables.cluster_addr_table),
            brokers=len(manager.tables.broker_live_table),
            topics=len(manager.tables.topic_queue_table),
            connections=len(namesrv.slots.connections),
            watchers=len(namesrv.routes.watchers),
            pulls=namesrv.fast_path.pulls,
            heartbeats=namesrv.fast_path.heartbeats,
            refusals=namesrv.counters.refusals_by_reason(),
            last_event_seq=namesrv.events.last_seq,
            problems=server_problems(HealthValues.of(namesrv)),
            traffic=self._traffic(),
        )
        return Reply(NATIVE.encode(info))

    def _traffic(self) -> Traffic:
        namesrv, counters = self._namesrv, self._namesrv.counters
        responses = counters.responses()
        return Traffic(
            requests=namesrv.fast_path.pulls + namesrv.fast_path.heartbeats + responses.count,
            heartbeats=namesrv.manager.heartbeats,
            registrations=counters.registrations,
            evictions=sum(histogram.count for histogram in counters.staleness.values()),
            memory_bytes=namesrv.memory_bytes(),
            response_bounds=list(responses.bounds),
            response_counts=responses.counts,
        )

    async def recent_events(self, request: Request, body: RecentEventsRequest) -> Reply:
        """Handle RECENT_EVENTS (20003): of the events after `since`, the latest `limit`; earlier ones are left out."""
        events = self._namesrv.events.since(body.since, body.limit)
        return Reply(NATIVE.encode(EventsResponse(self._namesrv.boot.id, events)))

    async def list_connections(self, request: Request, body: ListConnectionsRequest) -> Reply:
        """Handle LIST_CONNECTIONS (20004)."""
        clock = self._namesrv.clock
        now = clock.monotonic()
        every = self._namesrv.slots.connections.values()
        wanted = [connection for connection in every if body.role in (None, connection.peer.role)]
        self._charge(request, len(wanted), len(every))
        connections = [
            Connection(
                id=connection.id,
                peer=connection.peer.address,
                proxied=connection.peer.proxied,
                role=connection.peer.role or None,
                protocol=_PROTOCOLS.get(connection.peer.serialize_type),
                since_ms=wall_ms_at(clock, connection.opened_at),
                last_request_seconds=round(now - connection.quiet_since, 3),
                requests=connection.peer.requests,
                in_flight=connection.in_flight,
                unsent_bytes=connection.unsent_bytes,
                account=connection.peer.account or None,
            )
            async for chunk in in_chunks(wanted, _CHUNK)
            for connection in chunk
        ]
        return Reply(NATIVE.encode(ConnectionsResponse(connections)))

    def _charge(self, request: Request, listed: int, scanned: int) -> None:
        """Charge a list to the network that requests it. Raises SystemBusyError after too many large lists lately."""
        size = listed * _LISTED_BYTES + (scanned - listed) * _LEFT_OUT_BYTES
        self._large_lists.charge(request.connection.peer.network, size)

    async def list_brokers(self, request: Request, body: ListBrokersRequest) -> Reply:
        """Handle LIST_BROKERS (20005)."""
        manager = self._namesrv.manager
        tables, now = manager.tables, manager.now()
        wanted = [
            (key, live)
            for key, live in tables.broker_live_table.items()
            if body.cluster in (None, key.cluster_name) and body.broker_name in (None, live.broker_name)
        ]
        self._charge(request, len(wanted), len(tables.broker_live_table))
        brokers = [
            LiveBroker(
                cluster=key.cluster_name,
                broker_name=live.broker_name,
                broker_id=live.broker_id,
                broker_addr=key.broker_addr,
                ha_server_addr=live.ha_server_addr,
                age_seconds=round(now - live.last_update, 3),
                expires_in_seconds=round(live.expires_at() - now, 3),
                expiry_seconds=live.expiry_seconds,
                data_version=live.data_version,
                topics=len(tables.topics.of_broker.get(live.broker_name, ())),
                write_removed=live.broker_name in tables.write_removed,
                agent_id=_digest(live.agent_id),
                registration_seq=live.registration_seq,
                connection=live.connection_id,
                protocol="msgpack" if live.is_native else "rocketmq",
                state=None if live.state is None else dict(live.state),
                advertised=None if live.advertised == NOTHING_ADVERTISED else live.advertised,
            )
            async for chunk in in_chunks(sorted(wanted), _CHUNK)
            for key, live in chunk
        ]
        return Reply(NATIVE.encode(BrokersResponse(brokers, self._namesrv.boot.id, self._reserved(body))))

    def _reserved(self, body: ListBrokersRequest) -> list[Reservation]:
        guard, now = self._namesrv.access.guard, self._namesrv.clock.monotonic()
        return [
            Reservation(
                kind=place.kind,
                value=place.value,
                cluster=occupant.key.cluster_name,
                account=occupant.account,
                expires_in_seconds=round((occupant.reserved_until or now) - now, 3),
            )
            for place, occupant in (() if guard is None else guard.reservations.current(now))
            if body.cluster in (None, occupant.key.cluster_name) and body.broker_name in (None, occupant.broker_name)
        ]

    async def who_am_i(self, request: Request) -> Reply:
        """Handle WHO_AM_I (20006)."""
        guard, connection = self._namesrv.access.guard, request.connection
        account = None if guard is None else guard.file.accounts.get(request.account)
        identity = WhoAmI(
            peer=connection.peer.address,
            access=self._namesrv.access.mode,
            account=None if account is None else account.name,
            by=None if account is None else _recognised_by(request, account),
            certificate_names=list(connection.certificate_names),
            may=[] if account is None else [str(rule) for rule in account.rules],
        )
        return Reply(NATIVE.encode(identity))

    async def list_settings(self, request: Request) -> Reply:
        """Handle LIST_SETTINGS (20007)."""
        return Reply(NATIVE.encode(SettingsResponse(settings_list(self._namesrv))))

    async def list_kv_namespaces(self, request: Request) -> Reply:
        """Handle LIST_KV_NAMESPACES (20008)."""
        return Reply(NATIVE.encode(KVNamespacesResponse(self._namesrv.kv.namespaces())))


def _digest(agent_id: str | None) -> str | None:
    """Shorten an agent id to tell agents apart; the id itself would allow others to register in the agent's name."""
    return None if agent_id is None else hashlib.blake2s(agent_id.encode(), digest_size=4).hexdigest()


def _recognised_by(request: Request, account: Account) -> str:
    fields = request.command.ext_fields or {}
    if account.access_key is not None and fields.get(ACCESS_KEY) == account.access_key:
        return "native" if NATIVE_SIGNATURE in fields else "rocketmq"
    return "certificate" if account.certificates else "network"
