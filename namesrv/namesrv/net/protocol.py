"""Accepted connections: each owns a socket, and passes received requests to the fast path or to the dispatcher.

`Receiver` parses the bytes, `MemoryAccount` counts the memory of the peer, `Deadlines` decides when the peer is late,
`ConnectionInput` keeps these three in step, and `RequestQueue` orders the requests. All responses are sent in one
place, `ServerConnection.write`. Writing is paused while any response is unsent: meanwhile nothing more is read from the
peer, and no further request is carried out. Watches, which are held until a route changes, may respond meanwhile, up to
`write_buffer_bytes`.
"""

import asyncio
import contextlib
import errno
import select
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from namesrv.net.connection_input import ConnectionInput
from namesrv.net.deadlines import NEVER, Deadlines
from namesrv.net.fairness.account import SMALL_BYTES, MemoryAccount
from namesrv.net.fairness.budget import LARGE_BYTES, MemoryBudget
from namesrv.net.fairness.costs import COPIED_READ_COST, DISPATCH_COST, FRAME_COST, READ_COST
from namesrv.net.fairness.fair_scheduler import FairScheduler
from namesrv.net.fairness.read_shares import NetworkShare, ReadShares
from namesrv.net.header_checks import HeaderVerdict, check_header
from namesrv.net.limits import ServerLimits
from namesrv.net.peer import Peer, address_text
from namesrv.net.proxy_header import ProxyHeader
from namesrv.net.receiver import Event, HeaderReceived, Receiver, State
from namesrv.net.request import (
    LONGEST_FAST_REQUEST,
    ORDINARY,
    FastPath,
    HeldRequest,
    Request,
    RequestHandler,
    Response,
)
from namesrv.net.request_queue import RequestQueue
from namesrv_remoting.addresses import network_of
from namesrv_remoting.codes import FLAG_RESPONSE, ResponseCode, SerializeType
from namesrv_remoting.command import RemotingCommand, response_type
from namesrv_remoting.errors import RemoteProtocolError, without_traceback
from namesrv_remoting.frames import HEAD, Frame, cut_frame
from namesrv_remoting.serializers import decode_frame, encode_command
from namesrv_runtime.clock import Clock

# Memory charged for the requests in the queue of one connection, beyond which nothing more is read from the peer. The
# number of requests in flight bounds those that are not charged.
_MAX_CHARGED_BYTES: Final = 256 * 1024
# properties of a TlsTransport that other transports do not have
_NAMES: Final = "certificate_names"
_HAS_UNREAD: Final = "has_unread_records"
# Errors of connections whose packets the network drops. The kernel gives them up after 75 s without a packet, and after
# 30 s without an acknowledgement of sent data.
_GIVEN_UP: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


# Looking up a member of an enum takes 90 nanoseconds in Python 3.11.
_HEADER: Final = State.HEADER
_BODY: Final = State.BODY
_ENDED: Final = State.ENDED


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    clock: Clock
    # the owner of all tasks of connections
    tasks: asyncio.TaskGroup
    # fair scheduling: of reads, and of requests for the dispatcher
    read_shares: ReadShares
    scheduler: FairScheduler
    bytes_received: int
    bytes_sent: int

    @property
    def limits(self) -> ServerLimits:
        """The limits of connections and peers."""
        ...

    @property
    def budget(self) -> MemoryBudget:
        """The memory that peers may use."""
        ...

    @property
    def dispatcher(self) -> RequestHandler:
        """The dispatcher, which answers all frames that the fast path leaves."""
        ...

    @property
    def fast_path(self) -> FastPath:
        """The fast path, which answers most frames."""
        ...

    def may_be_idle(self, connection: "ServerConnection") -> bool:
        """True for connections over which a broker is registered: the idle timeout does not apply to them."""
        ...

    def assign_slot(self, connection: "ServerConnection") -> bool:
        """Give a connection a slot, or refuse it; True if it occupies a slot that is reserved for brokers."""
        ...

    def connection_closed(self, connection: "ServerConnection", reason: str) -> None:
        """Forget a connection."""
        ...

    def note_refusal(self, connection: "ServerConnection", error: RemoteProtocolError) -> None:
        """Count and report a refusal of a peer, or of one of its frames for lack of memory."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class ServerConnection(asyncio.Protocol):
    """One accepted connection. `id` grows with each connection and is never reused; it fences registrations."""

    _owner: ConnectionOwner
    id: int
    peer: Peer = field(default_factory=Peer)
    # the share of this peer's network in each iteration of the loop
    read_share: NetworkShare = field(init=False)
    _transport: asyncio.Transport | None = field(default=None, init=False)
    _receiver: Receiver = field(init=False)
    memory: MemoryAccount = field(init=False)
    deadlines: Deadlines = field(init=False)
    _input: ConnectionInput = field(init=False)
    _queue: RequestQueue[Request] = field(init=False)
    # an event that is set once all responses are sent; None while nothing is unsent
    _all_sent: asyncio.Event | None = field(default=None, init=False)
    # True while received input (complete frames, or the beginning of one) waits to be decoded: until the peer has read
    # its responses, until earlier requests have begun or ended, or until its network has a share left.
    _has_undecoded_input: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Create the deadlines and the queue from the owner's limits and clock."""
        owner = self._owner
        self.deadlines = Deadlines(owner.limits, owner.clock.monotonic())
        self._queue = RequestQueue(owner.tasks, _answer, _request_ended)

    def __repr__(self) -> str:
        peer = self.peer
        return (
            f"<ServerConnection [{self.id} from {peer.address} | {peer.role or 'silent'} | {peer.requests} requests]>"
        )

    @property
    def is_open(self) -> bool:
        """False once no response can reach the peer any more."""
        return self._transport is None or not self._transport.is_closing()

    @property
    def opened_at(self) -> float:
        """The monotonic time of the accept."""
        return self.deadlines.opened_at

    @property
    def quiet_since(self) -> float:
        """The monotonic time of the last read that received data, or until which the server delayed the peer."""
        return self.deadlines.quiet_since

    @property
    def must_register(self) -> bool:
        """Whether this connection occupies a reserved slot, and no broker has registered over it yet."""
        return self._receiver.must_register

    @property
    def age_seconds_left(self) -> float:
        """The seconds until a client's connection is due to be closed for its age; infinite for other peers."""
        if self.peer.role != "client" or self._owner.may_be_idle(self):
            return NEVER
        return self.deadlines.age_left(self._owner.clock.monotonic())

    def _is_due_to_close(self) -> bool:
        """Whether a client's connection is too old, and everything that the client has sent was read."""
        return self.age_seconds_left <= 0 and not self._has_undecoded_input and not self._is_input_unread()

    @property
    def is_write_paused(self) -> bool:
        """Whether the peer has to read earlier responses before the next request is answered."""
        return self._all_sent is not None

    @property
    def socket(self) -> socket.socket | None:
        """The accepted socket, whose options can be set; None before the connection is made."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Common name and alternative names of the peer's verified certificate; empty without one."""
        names: tuple[str, ...] = () if self._transport is None else self._transport.get_extra_info(_NAMES, ())
        return names

    @property
    def unsent_bytes(self) -> int:
        """The number of response bytes that are not sent yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return self._queue.in_flight

    def confirm_broker(self) -> None:
        """Keep the reserved slot: a broker has registered over this connection."""
        self._receiver.confirm_broker()

    def reserve_memory(self, size: int) -> bool:
        """Reserve memory on this peer's account; False if the peer's share has too little left."""
        return self.memory.reserve(size)

    def release_memory(self, size: int) -> None:
        """Release reserved memory."""
        self.memory.release(size)

    # -- start and end ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected; the server may refuse it at once."""
        self._transport = cast("asyncio.Transport", transport)
        peer = self.peer
        peer.address = address_text(transport.get_extra_info("peername"))
        peer.network = network_of(peer.ip)
        self.read_share = self._owner.read_shares.enter(peer.network)
        self._receiver = Receiver(self._owner.limits, self.read_share)
        self.memory = MemoryAccount(self._owner.budget, peer.network)
        self._input = ConnectionInput(self._receiver, self.memory, self.deadlines)
        # With high=0, `pause_writing` is called as soon as anything is unsent, and `resume_writing` once everything is
        # sent.
        self._transport.set_write_buffer_limits(high=0)
        if self._owner.assign_slot(self):
            self._receiver.require_registration()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; requests in the queue are still carried out, as a peer that disconnects expects."""
        self._stop_receiving()
        self._owner.read_shares.leave(self.read_share)
        is_given_up = isinstance(exc, OSError) and exc.errno in _GIVEN_UP
        self._owner.connection_closed(self, "timed_out" if is_given_up else "reset" if exc else "closed")
        self.memory.close()
        self._note_all_sent()
        self._queue.cancel_held_and_concurrent()

    def move_to(self, tls: asyncio.Transport) -> None:
        """Use a TLS transport over the same socket from now on, before anything was sent."""
        self._transport = tls

    def close(self) -> None:
        """Close the connection once all written data is sent."""
        self._stop_receiving()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; unsent data is lost."""
        self._stop_receiving()
        self.deadlines.writing_resumed()
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, error: RemoteProtocolError) -> None:
        """Refuse a peer that broke a rule: answer its earlier requests, then close the connection."""
        if self._is_refused:
            return
        self._owner.note_refusal(self, error)
        self._stop_receiving()
        self._queue.cancel_held_and_concurrent()
        # Until the connection is closed, input is read and dropped: closing a socket with unread input resets the
        # connection, and the peer may lose the last responses.
        if self._queue.is_answering:
            self._update_reading()
        else:
            self.close()

    @property
    def _is_frame_first(self) -> bool:
        """Whether the current frame has the deadline of a first frame; a large frame with a known header has not."""
        state = self._receiver.state
        return not self.peer.has_sent_request and state is not _HEADER and state is not _BODY

    @property
    def _is_refused(self) -> bool:
        return self._receiver.state is _ENDED

    def _stop_receiving(self) -> None:
        self._input.end()
        self._has_undecoded_input = False

    # -- deadlines ----------------------------------------------------------------------------------------------------

    def check_deadlines(self, now: float) -> None:
        """Close the connection if a deadline has passed; `now` is the current time minus the lateness of the loop.

        A large frame that waits for memory is accepted here if there is memory now, or declined after its deadline.
        """
        if self.deadlines.write_deadline < now:
            self._give_up_slow_reader()
        elif not self.is_open:
            # The connection closes when the peer has read its last responses, or when `write_deadline` has passed.
            return
        elif self._receiver.state is _HEADER:
            if self.deadlines.is_frame_late(now):
                self._decline_frame()
            else:
                self._try_again()
        elif self.deadlines.is_frame_late(now):
            self._refuse_late_frame(now)
        elif not self._receiver.is_inside_frame and not self.in_flight:
            self._close_if_silent_or_old(now)

    def _refuse_late_frame(self, now: float) -> None:
        deadlines = self.deadlines
        # The rest of the frame may have arrived in time and be unread: then the deadline is extended, as far as it may
        # be, and the next sweep checks again.
        if self._is_input_unread() and deadlines.extend(now - deadlines.frame_deadline):
            return
        self.refuse(deadlines.late_frame(is_first=self._is_frame_first))

    def _close_if_silent_or_old(self, now: float) -> None:
        has_sent_request = self.peer.has_sent_request
        may_be_idle = has_sent_request and self._owner.may_be_idle(self)
        error = self.deadlines.silence(
            now, has_sent_request=has_sent_request, must_register=self.must_register, may_be_idle=may_be_idle
        )
        if error is not None:
            if not self._is_input_unread():
                self.refuse(error)
        elif self.deadlines.may_close_for_age(now) and self._is_due_to_close():
            self.close()

    def _is_input_unread(self) -> bool:
        """Whether the server is late, not the peer: input is unread, reading is paused, or a handshake step is due."""
        accepted, transport = self.socket, self._transport
        has_unread_records = transport is not None and transport.get_extra_info(_HAS_UNREAD)
        if has_unread_records or self.deadlines.is_held:
            return True
        if accepted is None or transport is None or not transport.is_reading():
            return transport is not None and not transport.is_closing()
        poll = select.poll()
        poll.register(accepted.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes, *, is_memory_reserved: bool = False) -> None:
        """Send data; close the connection instead if more than `write_buffer_bytes` would be unsent.

        It is also closed if no memory is left for unsent data, unless memory is reserved for it.
        A single large response does not close the connection: more than 64 KiB of earlier data have to be unsent.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._all_sent is not None and self._would_leave_too_much_unsent(len(data)):
            self._give_up_slow_reader()
            return
        self._owner.bytes_sent += len(data)
        transport.write(data)
        if self._all_sent is not None:
            # The whole response is charged, since the transport keeps it in memory until its last byte is sent.
            self.memory.charge_unsent(len(data), is_reserved=is_memory_reserved)
            if not is_memory_reserved and self.memory.lacks_room_for(self.unsent_bytes):
                self._give_up_slow_reader()

    def _would_leave_too_much_unsent(self, further: int) -> bool:
        unsent = self.unsent_bytes
        return unsent > LARGE_BYTES and unsent + further > self._owner.limits.write_buffer_bytes

    async def until_responses_sent(self) -> None:
        """Wait until all responses are sent, or the connection is closed."""
        while self._all_sent is not None and self.is_open:
            await self._all_sent.wait()

    def pause_writing(self) -> None:
        """The socket buffer is full: read no more requests, and start the deadline for the peer to read."""
        if self._all_sent is None:
            self._all_sent = asyncio.Event()
        self.deadlines.writing_paused(self._owner.clock.monotonic())
        self._update_reading()

    def resume_writing(self) -> None:
        """All responses are sent: read requests again."""
        self.deadlines.writing_resumed()
        self.memory.release_unsent()
        self._note_all_sent()
        # `_update_reading` runs in the next iteration, since the transport calls this while it is still writing.
        asyncio.get_running_loop().call_soon(self._update_reading)

    def _note_all_sent(self) -> None:
        if self._all_sent is not None:
            self._all_sent.set()
            self._all_sent = None

    def _give_up_slow_reader(self) -> None:
        self._owner.note_refusal(self, RemoteProtocolError("peer does not read", reason="slow_reader"))
        self.abort()

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Answer requests that the fast path recognises, and queue all others for the dispatcher."""
        owner, share, receiver = self._owner, self.read_share, self._receiver
        owner.bytes_received += len(data)
        self.deadlines.quiet_since = owner.clock.monotonic()
        if not share.is_active:
            share.activate()
        if receiver.is_idle and share.left > 0:
            # Nearly every read is exactly one request that the fast path recognises, and needs no cutting.
            response = self._answer_fast(data)
            if response is not None:
                share.left -= READ_COST + FRAME_COST
                if response:
                    self.write(response)
                return
        receiver.receive_data(data)
        if self._is_refused:
            # A refused connection still reads, so that its last responses arrive. Reading pauses until the next
            # iteration, so that the refused peer cannot keep the event loop busy.
            self._wait_for_share()
            self._update_reading()
        elif self._has_undecoded_input:
            self._end_read()
        else:
            self._handle_events()

    def _handle_events(self) -> None:
        """Handle received frames until this network's share is used up, or further frames have to wait."""
        receiver, share, deadlines = self._receiver, self.read_share, self.deadlines
        if not share.is_active:
            share.activate()
        stop_at = share.stop_at()
        # Responses of the fast path to consecutive requests, and their size. They are sent with one write of at most
        # LARGE_BYTES, since no memory is reserved for them.
        responses: list[bytes] = []
        size = 0
        self._has_undecoded_input = False
        while True:
            if share.left <= stop_at or self._has_undecoded_input:
                # The receiver may have further events, which are handled later.
                self._has_undecoded_input = receiver.is_inside_frame
                break
            event = receiver.next_event()
            if event is None:
                break
            response = self._answer_fast(event) if isinstance(event, bytes) else None
            if responses and (response is None or size + len(response) > LARGE_BYTES):
                self.write(b"".join(responses))
                responses.clear()
                size = 0
                # Further frames wait until the socket has accepted all of these responses: more unsent responses would
                # make a slow reader of a peer that only pipelines much.
                self._has_undecoded_input = self.is_write_paused
            if response is None:
                self._handle(event)
            else:
                deadlines.frame_deadline = NEVER
                responses.append(response)
                size += len(response)
        if responses:
            self.write(b"".join(responses))
        self._end_read()

    def _answer_fast(self, frame: bytes) -> bytes | None:
        """Let the fast path answer a frame, and count the request; None: the frame is for the dispatcher."""
        share, peer = self.read_share, self.peer
        if not (share.may_use_fast_path and HEAD.size < len(frame) <= LONGEST_FAST_REQUEST):
            return None
        response = self._owner.fast_path.answer(self, frame)
        if response is not None:
            share.uncounted += 1
            if share.uncounted >= share.count_at:
                share.count_requests()
            peer.requests += 1
            peer.serialize_type = frame[4]
        return response

    def _end_read(self) -> None:
        """Charge memory for the input that is left, update the frame deadline, and pause or resume reading."""
        receiver, deadlines = self._receiver, self.deadlines
        if self._is_refused:
            return
        if not self._input.charge_rest():
            self._refuse_input()
            return
        if not receiver.is_inside_frame:
            deadlines.frame_ended()
        elif not self._has_undecoded_input:
            deadlines.frame_began(self._owner.clock.monotonic(), is_first=self._is_frame_first)
        if receiver.state is _BODY:
            # Without a pause, uvloop reads up to 32 times in an iteration, which is 8 MiB of a fast peer.
            self._wait_for_share()
        self._update_reading()

    def give_up_input(self) -> None:
        """No memory is left for waiting input: decline the large frame that waits, or refuse the peer if none waits."""
        # An accepted body has reserved memory, and its TLS records are decrypted soon.
        if self._receiver.is_body_accepted:
            return
        if self._receiver.state is _HEADER:
            self._decline_frame()
        else:
            self._refuse_input()

    def _refuse_input(self) -> None:
        self.refuse(RemoteProtocolError("no memory for received bytes", reason="memory"))
        # The refusal waits for the responses to earlier requests. Closing now frees the received bytes at once.
        self.close()

    def _dispatch(self, frame: Frame, raw: bytes = b"") -> None:
        """Queue a complete frame for the dispatcher."""
        self.deadlines.frame_ended()
        self.read_share.spend(DISPATCH_COST + len(raw))
        # A large frame has no raw bytes.
        if self.memory.lacks_room_for(len(raw)):
            self._refuse_input()
            return
        if self._queue_request(frame, raw):
            # While requests wait to begin, each connection decodes one frame at a time.
            is_one_enough = self.must_register or len(self._owner.scheduler) > 0
            self._has_undecoded_input = (is_one_enough or not self._has_room) and self._receiver.held_bytes > 0

    def _handle(self, event: Event) -> None:
        if isinstance(event, bytes):
            # One request is enough to count an observed quota; the next requests may use the fast path again.
            if self.read_share.is_only_observed:
                self.read_share.may_use_fast_path = True
            self._dispatch(cut_frame(event), event)
        elif isinstance(event, Frame):
            self._dispatch(event)
        elif isinstance(event, HeaderReceived):
            self._decide(event)
        elif isinstance(event, ProxyHeader):
            self.deadlines.frame_ended()
            if event.source is not None:
                self.peer.proxied = address_text(event.source)
        else:
            if event.reason == "tls" and not self.peer.has_sent_request:
                # The peer's TLS library fails at these plain bytes, and reports that the server does not speak TLS.
                self.write(refusal(SerializeType.JSON, 0, "this server does not speak TLS (tls-mode is off)"))
            self.refuse(event)

    # -- large frames, and every frame over a reserved slot -----------------------------------------------------------

    def _decide(self, event: HeaderReceived) -> None:
        """Accept or refuse a frame by its header; a frame that would be refused anyway is answered without its body."""
        dispatcher, limits = self._owner.dispatcher, self._owner.limits
        try:
            command = decode_frame(event.header)
            code = command.code
            rules = dispatcher.receive_rules.get(code, ORDINARY)
            # A request in flight may be the registration of a broker, so frames after it are not refused.
            may_use_slot = not self.must_register or rules.before_registration or self.in_flight > 0
            largest = rules.largest_frame_bytes
            check_header(code, event.size, limits, largest_frame_bytes=largest, may_use_slot=may_use_slot)
        except RemoteProtocolError as error:
            self.refuse(without_traceback(error))
            return
        if event.size <= limits.small_frame_bytes:
            self._receiver.accept()
        elif dispatcher.judge_header(Request(command, self)) is HeaderVerdict.REFUSED:
            self._answer_unread(event, "refused for its header")
        else:
            # The wait for memory has a deadline of its own, which starts with it.
            self.deadlines.frame_ended()
            self._input.accept_if_memory()

    def _answer_unread(self, event: HeaderReceived, why: str) -> None:
        self._input.drop_body()
        self._queue_request(event.header, unread_reason=why)

    def _try_again(self) -> None:
        """Try again to reserve memory for a waiting large frame, since other peers may have released some."""
        self.deadlines.quiet_since = self._owner.clock.monotonic()
        self._input.accept_if_memory()
        self._handle_events()

    def _decline_frame(self) -> None:
        """Refuse a large frame that waits for memory; its peer, maybe a broker, stays connected.

        The wait has timed out, or no memory is left for further TLS records that the peer has sent.
        """
        header = self._receiver.header
        if header is not None:
            why = f"no memory for a frame of {header.size} bytes"
            self._owner.note_refusal(self, RemoteProtocolError(why, reason="memory"))
            # The server has not read from this peer while the frame waited, so the silence is not the peer's.
            self.deadlines.quiet_since = self._owner.clock.monotonic()
            self._answer_unread(header, why)
            self._handle_events()

    # -- fair scheduling ----------------------------------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        """Whether more requests of this peer may be queued: all responses are sent, and the queue is not full."""
        return self._all_sent is None and self._queue.has_room(self._owner.limits.max_in_flight, _MAX_CHARGED_BYTES)

    @property
    def _may_continue(self) -> bool:
        """Whether received frames may be decoded: there is room, and no earlier request of this peer waits to begin.

        Frames stay undecoded until the earlier request begins, since bytes take less memory than requests.
        """
        return self._has_room and not self._owner.scheduler.has_waiting(self)

    def _update_reading(self) -> None:
        """Schedule input that can be decoded now, then resume or pause reading."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._has_undecoded_input and self._may_continue:
            self._wait_for_share()
        may_read = self._may_read()
        if may_read != transport.is_reading():
            with contextlib.suppress(RuntimeError):  # the transport was closed in between
                transport.resume_reading() if may_read else transport.pause_reading()

    def _may_read(self) -> bool:
        """Whether the socket may be read.

        The socket is not read while input is undecoded, while the connection waits for its share of the event loop or
        a large frame for memory, and while there is no room for requests. The input of a refused peer is dropped, and
        needs no room.
        """
        if self._has_undecoded_input or self.deadlines.is_waiting or self._receiver.state is _HEADER:
            return False
        return self._is_refused or self._has_room

    def _wait_for_share(self) -> None:
        """Read nothing until `_read_on` is called, in a later iteration in which the network has a share left.

        Meanwhile `_may_read` is false, and `_update_reading`, which callers call next, pauses the socket.
        """
        if not self.deadlines.is_waiting:
            self.deadlines.wait_began(self._owner.clock.monotonic())
            self.read_share.wait(self._read_on)

    def _read_on(self) -> None:
        """Continue after `_wait_for_share`: handle frames that still wait, or read from the socket again."""
        self.deadlines.wait_ended(self._owner.clock.monotonic())
        if not self._has_undecoded_input:
            # The cost of the longest read, in advance: the share bounds how many connections of this network read again
            # in one iteration. The receiver charges the read itself.
            self.read_share.spend(COPIED_READ_COST)
        elif self._may_continue:
            self._handle_events()
            return
        self._update_reading()

    # -- the dispatcher -----------------------------------------------------------------------------------------------

    def _queue_request(self, frame: Frame, raw: bytes = b"", *, unread_reason: str = "") -> bool:
        """Decode and queue a request; False if the frame is malformed, and the peer therefore refused."""
        try:
            command = decode_frame(frame)
        except RemoteProtocolError as error:
            self.refuse(without_traceback(error))
            return False
        if command.is_response:
            # The server sends no requests over accepted connections, so it ignores responses.
            return True
        self.peer.serialize_type = command.serialize_type
        self.peer.requests += 1
        if raw:
            self._owner.fast_path.learn(raw, command)
        size = len(frame.header) + len(frame.body)
        charge = size if size > SMALL_BYTES else 0
        self.memory.charge_request(charge)
        request = Request(command, self, unread_reason=unread_reason)
        if self._owner.dispatcher.receive_rules.get(command.code, ORDINARY).is_concurrent:
            self._queue.add_concurrent(request, charge)
        else:
            self._queue.add(request, charge)
        return True

    def request_ended(self, charge: int) -> None:
        """Release the charge of a request that is over, and read further requests."""
        self.memory.charge_request(-charge)
        if self._is_refused and not self._queue.is_answering:
            self.close()
        self._update_reading()

    async def answer(self, request: Request) -> None:
        """Answer a request, once its turn has come."""
        owner = self._owner
        may_wait = owner.dispatcher.receive_rules.get(request.command.code, ORDINARY).is_concurrent
        if not may_wait:
            await self.until_responses_sent()
        await owner.scheduler.begin(self)
        if self._has_undecoded_input:
            # Frames after this request waited for it to begin.
            self._update_reading()
        response = await owner.dispatcher.answer(request)
        self._send_response(response, may_wait=may_wait)

    def _send_response(self, response: Response, *, may_wait: bool) -> None:
        """Send the response to a request that is still counted as in flight."""
        if response.data:
            self.write(response.data, is_memory_reserved=response.reserved_bytes > 0)
        # `write` has already charged the whole response if the socket did not accept all of it at once.
        self.memory.release(response.reserved_bytes)
        # A client repeats its watch at once, so that its connection is never quiet: it is closed for its age here.
        if response.closes or (may_wait and self.in_flight == 1 and self._is_due_to_close()):
            self.close()

    # -- held requests ------------------------------------------------------------------------------------------------

    def hold(self, held: HeldRequest) -> None:
        """Keep a request without a response until `end_held` or `resume`; it is cancelled when the connection ends."""
        self._queue.hold(held)

    def end_held(self, held: HeldRequest, data: bytes, request_code: int, began: float) -> None:
        """Send the encoded success response to a request that is held since `began` on the monotonic clock."""
        self._owner.dispatcher.note_answered(request_code, ResponseCode.SUCCESS, began)
        self._queue.release(held)
        self.write(data)
        if self._transport is not None and not self._transport.is_reading():
            # Reading may have been paused because too many requests were in flight.
            self._update_reading()

    def resume(self, held: HeldRequest, request: Request, reply: Callable[[], Awaitable[Any]], began: float) -> None:
        """Answer a request that is held since `began` in a task, which calls `reply` and awaits the result."""
        self._queue.resume(held, request, self._answer_held(request, reply, began))

    async def _answer_held(self, request: Request, reply: Callable[[], Awaitable[Any]], began: float) -> None:
        # The reply begins here, since a task that is cancelled before its first step would never await it.
        self._send_response(await self._owner.dispatcher.encode_reply(request, reply(), began), may_wait=True)


def _answer(request: Request) -> Coroutine[None, None, None]:
    return _connection_of(request).answer(request)


def _request_ended(request: Request, charge: int) -> None:
    _connection_of(request).request_ended(charge)


def _connection_of(request: Request) -> ServerConnection:
    # Only `ServerConnection` queues requests; `Connection` has no methods that handlers must not call.
    return cast("ServerConnection", request.connection)


def refusal(serialize_type: int, opaque: int | None, remark: str) -> bytes:
    """An encoded error response to a peer that sent plain text where TLS is required, or the reverse."""
    return encode_command(
        RemotingCommand(
            code=ResponseCode.SYSTEM_ERROR,
            opaque=opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            serialize_type=response_type(serialize_type),
        )
    )
