"""Handlers of brokers' requests: registration, heartbeats, unregistration (103, 104, 322, 901, 904)."""

import asyncio
import secrets
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from namesrv.context import Namesrv
from namesrv.net.dispatcher import SUCCESS, Reply
from namesrv.net.request import Request
from namesrv.processors.admin import log_change
from namesrv.revocation import revoke_registrations
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.tables.records import BrokerAddrInfo, RegisterResult, Registration
from namesrv.yielding import run_in_steps
from namesrv_remoting.access import AccessFile
from namesrv_remoting.address_views import BrokerIdentity
from namesrv_remoting.bodies.base import Steps, emptied
from namesrv_remoting.bodies.dialects import dialect_of
from namesrv_remoting.bodies.extensions import heartbeat_state
from namesrv_remoting.bodies.limits import RegistrationLimits
from namesrv_remoting.bodies.register import RegisterBrokerBody, decode_body, decode_native_body, is_zlib
from namesrv_remoting.bodies.route import BrokerMemberGroup, KVTable, MemberGroup
from namesrv_remoting.codes import MASTER_ID, ORDER_TOPIC_CONFIG, RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import (
    BadRequestError,
    NoPermissionError,
    QueryNotFoundError,
    ResponseError,
    SystemBusyError,
    SystemError_,
)
from namesrv_remoting.headers import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)

# For two megabytes of JSON, XXH3 takes 0.2 ms, and SHA-1 or BLAKE2 1 to 2 ms: half or more of the time that an
# unchanged registration may take.
try:
    from xxhash import xxh3_128 as _new_hasher
except ImportError:  # xxhash is optional
    from hashlib import blake2b as _new_hasher  # type: ignore[assignment]  # the methods used here are in both

# Java's CRC is a non-negative int: 31 bits.
_CRC_MASK: Final = 0x7FFFFFFF
# Large registrations that may be decoded at the same time: each takes a time slice in every iteration of the event
# loop, and holds its memory until it is applied. Registrations that cannot grow beyond _SMALL_BYTES (JSON of some KiB)
# do not wait.
_MAX_LARGE_AT_ONCE: Final = 2
_SMALL_BYTES: Final = 3 * 1024 * 1024
# The longest expiry that a registration may request, unless the expiry of the settings is longer: a forged broker stays
# in the routes for as long. Brokers send every 30 s; twenty intervals are more than any of them needs.
_LONGEST_EXPIRY_SECONDS: Final = 600.0
# Size limit of a decompressed registration, as a multiple of the largest frame: 300,000 topics in JSON, more than any
# broker has.
_MOST_INFLATED: Final = 4
# The memory budget charges large decoded registrations to this name, not to the peer's address: other brokers of the
# same address would be refused for them.
_DECODING: Final = "decoding"
# Bytes of a body that are hashed in one step.
_PIECE_BYTES: Final = 512 * 1024


class BrokerProcessor:
    """Decodes brokers' requests and passes them to the manager."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv
        self._manager = namesrv.manager
        self._large = asyncio.Semaphore(_MAX_LARGE_AT_ONCE)

    async def register(self, request: Request, header: RegisterBrokerRequestHeader) -> Reply:
        """Handle REGISTER_BROKER (103)."""
        command = request.command
        if header.kind not in ("full", "delta"):
            raise BadRequestError(f"field kind: {header.kind[:64]!r} is neither full nor delta")
        self._check_expiry(header.heartbeat_timeout_millis)
        key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        guard = self._namesrv.access.guard
        admitted_at = None if guard is None else guard.changes
        try:
            result = await self._register(request, header, key)
        except (SystemError_, SystemBusyError):
            # The registration is too large or unreadable, or exceeds a quota, but its broker is alive.
            _count_as_heartbeat(self._manager, header, request.connection.id)
            raise
        if guard is not None and guard.enforces and guard.changes != admitted_at:
            await self._revoke_if_refused(guard.file, key)
        request.connection.confirm_broker()
        ext = self._master_for(request, header, result)
        order = await self._order_config(request)
        return Reply(b"" if order is None else dialect_of(command).encode(KVTable(order)), ext.to_ext())

    async def _revoke_if_refused(self, file: AccessFile, key: BrokerAddrInfo) -> None:
        """Remove a broker whose registration began before a change of the access file, which did not find it.

        Raises NoPermissionError.
        """
        if revoked := await revoke_registrations(self._namesrv, file, key):
            raise NoPermissionError(revoked[0].reason)

    def _master_for(
        self, request: Request, header: RegisterBrokerRequestHeader, result: RegisterResult
    ) -> RegisterBrokerResponseHeader:
        """The addresses of a slave's master, in the view of the slave."""
        view = self._namesrv.routes.view_of(request)
        master, ha = result.master_addr, result.ha_server_addr
        if view is not None and master is not None:
            broker = BrokerIdentity(header.cluster_name, header.broker_name, MASTER_ID)
            advertised = self._manager.tables.advertised_of(broker, master)
            master = view.address(broker, master, advertised.broker_addr)
            ha = None if ha is None else view.address(broker, ha, advertised.ha_server_addr)
        return RegisterBrokerResponseHeader(master_addr=master, ha_server_addr=ha)

    async def _order_config(self, request: Request) -> Mapping[str, str] | None:
        """Return the order configuration of the topics that the account may read; None without a configuration."""
        namesrv = self._namesrv
        order = namesrv.kv.namespace(ORDER_TOPIC_CONFIG)
        if order is None or namesrv.access.guard is None:
            return order
        readable = frozenset(await namesrv.access.guard.readable_topics(request, [*order]))
        return {topic: value for topic, value in order.items() if topic in readable}

    def _check_expiry(self, millis: int | None) -> None:
        """Refuse a registration that requests a longer expiry than this server allows. Raises BadRequestError."""
        most = max(_LONGEST_EXPIRY_SECONDS, self._namesrv.settings.current.broker_expiry_seconds)
        if millis is not None and millis / 1000 > most:
            raise BadRequestError(f"field heartbeatTimeoutMillis: {millis} is more than {most * 1000:.0f}")

    async def _register(
        self, request: Request, header: RegisterBrokerRequestHeader, key: BrokerAddrInfo
    ) -> RegisterResult:
        command = request.command
        digest = await run_in_steps(_digest(command, header, request.account))
        if request.check_topics is None and not request.displaces:
            result = self._manager.register_unchanged(key, digest, request.connection.id, header.registration_seq)
            if result is not None:
                return result
        await run_in_steps(_check_crc(header.body_crc32, command.body))
        steps, most_bytes = self._decoding(command, header)
        async with self._slot(most_bytes):
            body = await run_in_steps(steps)
            try:
                if request.check_topics is not None:
                    await request.check_topics([*(topic.topic_name for topic in body.topic_configs), *body.mappings])
                if self._namesrv.access.guard is not None:
                    self._namesrv.access.guard.check_advertised(request, body.advertised.addresses)
                return await self._manager.register(self._registration(request, header, body, digest))
            except ResponseError:
                # The tables do not have the mappings of a refused registration.
                await run_in_steps(emptied(body.mappings))
                raise
            finally:
                await run_in_steps(emptied(body.topic_configs))

    def _registration(
        self, request: Request, header: RegisterBrokerRequestHeader, body: RegisterBrokerBody, digest: bytes
    ) -> Registration:
        timeout = header.heartbeat_timeout_millis
        is_delta = request.command.is_native and header.kind == "delta"
        return Registration(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_addr=header.broker_addr,
            body=body,
            connection_id=request.connection.id,
            expiry_seconds=self._namesrv.settings.current.broker_expiry_seconds if timeout is None else timeout / 1000,
            ha_server_addr=header.ha_server_addr,
            zone_name=header.zone_name,
            enable_acting_master=header.enable_acting_master,
            is_native=request.command.is_native,
            kind="delta" if is_delta else "full",
            agent_id=header.agent_id,
            registration_seq=header.registration_seq,
            # A repeated delta must be applied again: only full registrations have a digest.
            digest=None if is_delta else digest,
            account=request.account,
            displaces=request.displaces,
        )

    def _decoding(
        self, command: RemotingCommand, header: RegisterBrokerRequestHeader
    ) -> tuple[Steps[RegisterBrokerBody], int]:
        """Return the steps that decode the body, and the number of bytes to which the body can grow."""
        # The limit of topics is read for each registration, since a reload may have changed it.
        most_topics = self._manager.rules.limits.max_topics_per_broker
        inflated_bytes = _MOST_INFLATED * self._namesrv.settings.limits.server.max_frame_bytes
        limits = RegistrationLimits(most_topics, inflated_bytes)
        body, compressed = command.body, header.compressed
        if command.is_native:
            steps = decode_native_body(body, compressed=compressed, limits=limits)
        else:
            compressed = compressed or is_zlib(body)
            steps = decode_body(body, command.version, compressed=compressed, limits=limits)
        return steps, limits.most_bytes(len(body), compressed=compressed)

    @asynccontextmanager
    async def _slot(self, most_bytes: int) -> AsyncIterator[None]:
        """Wait until a registration of this size may be decoded and applied, and charge its memory meanwhile."""
        if most_bytes <= _SMALL_BYTES:
            yield
            return
        async with self._large:
            self._namesrv.slots.budget.charge(_DECODING, most_bytes)
            try:
                yield
            finally:
                self._namesrv.slots.budget.release(_DECODING, most_bytes)

    async def unregister(self, request: Request, header: UnregisterBrokerRequestHeader) -> Reply:
        """Handle UNREGISTER_BROKER (104); the broker is removed before the response is sent."""
        key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        live = self._manager.tables.broker_live_table.get(key)
        is_gone = await self._manager.unregister(
            key,
            header.broker_name,
            request.connection.id,
            agent_id=header.agent_id,
            registration_seq=header.registration_seq,
        )
        if is_gone and live is not None and live.connection_id != request.connection.id:
            # The request came over another connection than the broker's own: an operator may have sent it.
            log_change(self._namesrv, request)
        return SUCCESS

    async def heartbeat(self, request: Request, header: BrokerHeartbeatRequestHeader) -> Reply:
        """Handle BROKER_HEARTBEAT (904); Java's brokers expect success.

        A native broker that has to register again, since it is unknown or `incomplete`, receives an error.
        """
        command = request.command
        key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        state = heartbeat_state(command.body) if command.is_native else None
        if command.is_native and not self._manager.is_registered(
            key, header.broker_name, header.broker_id, header.agent_id, request.connection.id
        ):
            raise QueryNotFoundError(f"broker {header.broker_name} at {header.broker_addr} is not registered")
        self._manager.touch(key, request.connection.id, state)
        if command.is_native and key in self._manager.tables.incomplete:
            broker = f"broker {header.broker_name} at {header.broker_addr}"
            raise QueryNotFoundError(f"{broker} has to register all its topics again")
        return SUCCESS

    async def query_data_version(self, request: Request, header: QueryDataVersionRequestHeader) -> Reply:
        """Handle QUERY_DATA_VERSION (322), which counts as a heartbeat with any response."""
        dialect = dialect_of(request.command)
        offered = dialect.read_data_version(request.command.body)
        key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        live = self._manager.touch(key, request.connection.id)
        stored = None if live is None else live.data_version
        changed = "true" if offered is None or offered != stored else "false"
        return Reply(b"" if stored is None else dialect.encode(stored), {"changed": changed})

    async def member_group(self, request: Request, header: GetBrokerMemberGroupRequestHeader) -> Reply:
        """Handle GET_BROKER_MEMBER_GROUP (901): the response repeats the cluster of the request unchecked."""
        group = self._manager.tables.broker_addr_table.get(header.broker_name)
        view = self._namesrv.routes.view_of(request)
        if group is not None and view is not None:
            group = view.group(group, self._manager.tables.advertised_of)
        addrs = {} if group is None else group.broker_addrs
        members = BrokerMemberGroup(MemberGroup(header.cluster_name, header.broker_name, addrs))
        return Reply(dialect_of(request.command).encode(members))


def note_unread(manager: RouteInfoManager, request: Request) -> None:
    """Count a registration refused for lack of memory as a heartbeat, on the broker's own connection only.

    The signature was not verified, but an earlier registration of the broker was admitted on the same connection.
    """
    command, on = request.command, request.connection.id
    if command.code == RequestCode.REGISTER_BROKER:
        header = RegisterBrokerRequestHeader.from_ext(command.ext_fields)
        live = manager.tables.broker_live_table.get(BrokerAddrInfo(header.cluster_name, header.broker_addr))
        if live is not None and live.connection_id == on:
            _count_as_heartbeat(manager, header, on)


def _count_as_heartbeat(manager: RouteInfoManager, header: RegisterBrokerRequestHeader, connection_id: int) -> None:
    """Count a refused registration as a heartbeat: its broker is alive and keeps its last registration."""
    key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
    if manager.is_registered(key, header.broker_name, header.broker_id, header.agent_id, connection_id):
        manager.touch(key, connection_id)


def _digest(command: RemotingCommand, header: RegisterBrokerRequestHeader, account: str) -> Steps[bytes]:
    """Return the digest of a registration by an account, without its sequence number; equal digests mean unchanged."""
    fields = (command.is_native, header.kind, command.version, header.compressed, header.broker_name, header.broker_id)
    further = (header.ha_server_addr, header.heartbeat_timeout_millis, header.enable_acting_master, header.zone_name)
    hasher = _new_hasher(repr((_SEED, account, fields, further, header.agent_id, header.body_crc32)).encode())
    for piece in _pieces(command.body):
        hasher.update(piece)
        if len(piece) == _PIECE_BYTES:
            yield
    return hasher.digest()


# The seed makes digests unpredictable; a broker that guessed the seed could only hide changes of its own.
_SEED: Final = secrets.token_bytes(16)


def _check_crc(wanted: int, body: bytes) -> Steps[None]:
    if not wanted:
        return
    crc = 0
    for piece in _pieces(body):
        crc = zlib.crc32(piece, crc)
        if len(piece) == _PIECE_BYTES:
            yield
    if crc & _CRC_MASK != wanted:
        raise SystemError_("crc32 not match", ext_fields={})


def _pieces(body: bytes) -> Iterator[memoryview]:
    """Split a body into pieces, each of which takes a fraction of a millisecond to hash."""
    view = memoryview(body)
    return (view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES))
