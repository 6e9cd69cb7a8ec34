"""Accepted connections: each owns a socket, and hands what it receives to the fast path or to the dispatcher.

What the bytes mean is the receiver's, who may have what memory the account's, when the peer is late the deadlines', and
the order of requests the queue's. All responses leave in one place, `ServerConnection.write`. Writing is paused as long
as anything is unsent: until then nothing more is read from the peer, and no further request is begun.
"""

import asyncio
import contextlib
import select
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, cast

from namesrv.net.account import MemoryAccount
from namesrv.net.budget import MemoryBudget
from namesrv.net.deadlines import NEVER, Deadlines
from namesrv.net.limits import BROKER_CODES, PROBING_CODES, ServerLimits
from namesrv.net.peer import Peer, address_text
from namesrv.net.proxy_header import ProxyHeader
from namesrv.net.read_shares import (
    COPIED_READ_COST,
    DISPATCHED_FRAME_COST,
    FAST_FRAME_COST,
    LONGEST_READ_BYTES,
    AddressShare,
    ReadShares,
)
from namesrv.net.receiver import HeaderReceived, Receiver, State
from namesrv.net.requests import RequestQueue
from namesrv.net.steps import Turns
from namesrv_remoting.addresses import network_of
from namesrv_remoting.codes import FLAG_RESPONSE, ResponseCode, SerializeType
from namesrv_remoting.command import RemotingCommand, answer_type
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame, cut_frame
from namesrv_remoting.serializers import decode_frame, encode_command
from namesrv_runtime.clock import Clock

# A response beyond this size is large, and a peer that has so much to read has left something unread.
_LARGE_BYTES: Final = 64 * 1024
# Responses of one read are joined into writes of about this size.
_BATCH_BYTES: Final = 256 * 1024
# Bytes of one connection's requests that wait for their response; beyond it nothing more is read from the peer.
_MAX_QUEUED_BYTES: Final = 256 * 1024
# Smaller requests are not accounted for.
_SMALL_BYTES: Final = 4 * 1024
# Longer requests are the dispatcher's.
LONGEST_FAST_REQUEST: Final = 512
# a value that `left` of a share never falls to
_ANY_COST: Final = float("-inf")
# Memory that TLS takes for one connection, measured, until the handshake is over and then.
_HANDSHAKE_BYTES: Final = 48 * 1024
_TLS_BYTES: Final = 20 * 1024
# what a TlsTransport knows besides
_NAMES: Final = "certificate_names"
_EXPIRES_AT: Final = "certificate_expires_at"


# Python 3.11 takes its time to look up a member of an enum.
_ENDED: Final = State.ENDED


class Answer(NamedTuple):
    """The encoded response (empty for oneway), and whether the connection is to be closed after it."""

    data: bytes
    closes: bool = False


@dataclass(slots=True, frozen=True)
class Request:
    """What a handler gets: the command, and the connection that it came over."""

    command: RemotingCommand
    connection: "ServerConnection"
    # the account that sent it, where there are accounts
    account: str = ""
    # why its body was not received: such a request can only be refused
    unread: str = ""
    # raises a ResponseError for topics in the body that are not allowed, where that depends on them
    check_topics: Callable[[Iterable[str]], Awaitable[None]] | None = None
    # registered brokers, by cluster and address, whose place the request may take -> their account
    displaces: Mapping[tuple[str, str], str] = field(default_factory=dict)


class RequestHandler(Protocol):
    """The dispatcher, as connections see it; requests of the codes in `concurrent` hold up nothing behind them."""

    concurrent: frozenset[int]

    async def answer(self, request: Request) -> Answer:
        """The response to a request."""
        ...

    def is_admitted(self, request: Request) -> bool | None:
        """Whether a request will be admitted, as far as its header says; None: that depends on its body."""
        ...

    def busy(self, request: Request, remark: str) -> bytes:
        """The response in the place of one that there is no room for."""
        ...


class FastPath(Protocol):
    """Answers requests inside `data_received` that it recognises by their bytes."""

    def answer(self, connection: "ServerConnection", frame: bytes) -> bytes | None:
        """The encoded response, empty when none is due; None leaves the frame to the dispatcher.

        The frame may be a whole read that is not one frame: then it is not recognised.
        """
        ...

    def learn(self, frame: bytes, command: RemotingCommand) -> None:
        """Look at a request that was decoded for the dispatcher."""
        ...


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    clock: Clock
    limits: ServerLimits
    budget: MemoryBudget
    handler: RequestHandler
    # owns the tasks of connections
    tasks: asyncio.TaskGroup
    # fair scheduling of reads, and of requests that the dispatcher answers
    read_shares: ReadShares
    turns: Turns
    bytes_received: int
    bytes_sent: int

    @property
    def fast_path(self) -> FastPath:
        """What answers most frames."""
        ...

    def may_be_idle(self, connection: "ServerConnection") -> bool:
        """True for connections that registered a broker: the idle timeout does not apply to them."""
        ...

    def connection_opened(self, connection: "ServerConnection") -> bool:
        """Admit a connection; True if it occupies a slot that is reserved for brokers."""
        ...

    def connection_closed(self, connection: "ServerConnection", reason: str) -> None:
        """Forget a connection."""
        ...

    def refused(self, connection: "ServerConnection", error: RemoteProtocolError) -> None:
        """Count and report a peer that broke a rule."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class ServerConnection(asyncio.Protocol):
    """One accepted connection. `id` grows with each and never comes back; registrations are fenced with it."""

    _owner: ConnectionOwner
    id: int
    peer: Peer = field(default_factory=Peer, init=False)
    opened_wall: float = field(init=False)
    # False once no response can reach the peer any more
    is_open: bool = field(default=True, init=False)
    # what the addresses of this peer may have processed in an iteration of the loop
    read_share: AddressShare = field(init=False)
    _transport: asyncio.Transport | None = field(default=None, init=False)
    _receiver: Receiver = field(init=False)
    _memory: MemoryAccount = field(init=False)
    _deadlines: Deadlines = field(init=False)
    _queue: RequestQueue[Request] = field(init=False)
    # set when everything is sent; None while nothing is unsent
    _all_sent: asyncio.Event | None = field(default=None, init=False)
    # True while received frames have not been looked at: responses have to be read, or other peers have their turn
    _is_behind: bool = field(default=False, init=False)
    # True while this connection waits for the next iteration of the loop
    _is_waiting: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Look at the owner's clock and limits."""
        owner = self._owner
        self.opened_wall = owner.clock.wall()
        self._deadlines = Deadlines(owner.limits, owner.clock.monotonic())
        self._receiver = Receiver(owner.limits)
        self._queue = RequestQueue(owner.tasks, self._answer, self._request_ended)

    def __repr__(self) -> str:
        peer = self.peer
        return (
            f"<ServerConnection [{self.id} from {peer.address} | {peer.role or 'silent'} | {peer.requests} requests]>"
        )

    @property
    def last_read(self) -> float:
        """When something was received last, monotonic."""
        return self._deadlines.last_read

    @property
    def must_register(self) -> bool:
        """Whether it occupies a reserved slot and no broker has registered over it."""
        return self._receiver.on_probation

    @property
    def is_write_paused(self) -> bool:
        """Whether the peer has to read responses before it gets another one."""
        return self._all_sent is not None

    @property
    def socket(self) -> socket.socket | None:
        """The accepted socket, for its options."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Common name and alternative names of the peer's verified certificate; empty without one."""
        names: tuple[str, ...] = () if self._transport is None else self._transport.get_extra_info(_NAMES, ())
        return names

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def in_flight(self) -> int:
        """How many requests wait for their response."""
        return self._queue.in_flight

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._receiver.is_inside_frame

    def confirm_broker(self) -> None:
        """A broker has registered over this connection, which keeps its reserved slot."""
        self._receiver.end_probation()

    def reserve(self, size: int) -> bool:
        """Take memory on this peer's account, unless there is none left for it; to be released."""
        return self._memory.reserve(size)

    def release(self, size: int) -> None:
        """Give memory back."""
        self._memory.release(size)

    # -- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected; the server may refuse it at once."""
        self._transport = cast("asyncio.Transport", transport)
        peer = self.peer
        peer.address = address_text(transport.get_extra_info("peername"))
        peer.ip = peer.address.rpartition(":")[0]
        peer.network = network_of(peer.ip)
        self.read_share = self._owner.read_shares.enter(peer.network)
        self._memory = MemoryAccount(self._owner.budget, peer.network)
        # Each write goes to the socket at once, in uvloop, too, which else waits until all reads of an iteration are
        # done; and writing is paused as soon as, and as long as, anything is unsent.
        self._transport.set_write_buffer_limits(high=0)
        if self._owner.connection_opened(self):
            self._receiver.begin_probation()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: requests in order are still carried out, as a peer that leaves expects."""
        self._stop_receiving()
        self.is_open = False
        self._owner.read_shares.leave(self.read_share)
        self._owner.connection_closed(self, "reset" if exc else "closed")
        self._memory.close()
        self._note_all_sent()
        self._queue.cancel_concurrent()

    def close(self) -> None:
        """Close once everything written is sent."""
        self.is_open = False
        self._stop_receiving()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.is_open = False
        self._stop_receiving()
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, error: RemoteProtocolError) -> None:
        """The peer broke a rule: earlier requests are still answered, then the connection is closed."""
        if self._is_refused:
            return
        self._owner.refused(self, error)
        self._stop_receiving()
        self._queue.cancel_concurrent()
        # until then what comes is read and dropped: unread, it would reset the connection under its last responses
        if self._queue.is_answering:
            self._throttle()
        else:
            self.close()

    @property
    def _is_refused(self) -> bool:
        return self._receiver.state is _ENDED

    def _stop_receiving(self) -> None:
        self._receiver.end()
        self._is_behind = False
        self._deadlines.frame_ended()
        # a connection that was never made has no account
        if self._transport is not None:
            self._memory.charge_input(0)

    # -- TLS ----------------------------------------------------------------------------------------------------------

    def move_to(self, tls: asyncio.Transport) -> None:
        """Speak TLS, over the same socket; nothing was sent yet."""
        self._transport = tls

    def may_speak_tls(self) -> bool:
        """Whether there is memory for it; a peer for which there is none is refused."""
        if not self._memory.reserve_tls(_HANDSHAKE_BYTES):
            self.refuse(RemoteProtocolError("no memory for a TLS handshake", reason="memory"))
            return False
        self.expect_handshake()
        return True

    def expect_handshake(self) -> None:
        """The peer has to complete a TLS handshake in time, or is refused."""
        self._deadlines.handshake_began(self._owner.clock.monotonic())

    def stop_handshake_deadline(self) -> None:
        """Stop the deadline of the handshake while it waits for our threads."""
        self._deadlines.handshake_stopped(self._owner.clock.monotonic())

    def resume_handshake_deadline(self) -> None:
        """Let the deadline of the handshake go on."""
        self._deadlines.handshake_resumed(self._owner.clock.monotonic())

    def handshake_over(self, tls_version: str = "") -> None:
        """The handshake is complete, or plain text has come instead; frames follow."""
        self.peer.tls_version = tls_version
        self._memory.limit_tls(_TLS_BYTES)
        self._deadlines.handshake_over(self._owner.clock.monotonic())
        transport = self._transport
        if transport is not None and transport.get_extra_info(_EXPIRES_AT, NEVER) < self._owner.clock.wall():
            # TLS 1.2 resumes sessions, which Python cannot switch off, and verifies nothing then
            self.refuse(RemoteProtocolError("TLS handshake failed: the peer's certificate has expired", reason="tls"))

    # -- deadlines ----------------------------------------------------------------------------------------------------

    def check_deadlines(self, now: float) -> None:
        """Close the connection if the peer is too late with something; `now` is earlier where the loop was late."""
        deadlines, has_spoken = self._deadlines, self.peer.has_spoken
        waits_for_memory = self._receiver.state is State.HEADER
        if deadlines.write_ends < now:
            self._give_up_slow_reader()
        elif deadlines.frame_ends < now:
            if waits_for_memory:
                self._decline_frame()
            elif self._is_input_unread():
                # it may have come in time
                deadlines.frame_ends = now
            else:
                self.refuse(deadlines.late_frame(is_first=not has_spoken))
        elif waits_for_memory:
            self._try_again()
        elif not self._receiver.is_inside_frame and not self.in_flight:
            may_be_idle = has_spoken and self._owner.may_be_idle(self)
            error = deadlines.silence(
                now, has_spoken=has_spoken, must_register=self.must_register, may_be_idle=may_be_idle
            )
            if error is not None and not self._is_input_unread():
                self.refuse(error)

    def _is_input_unread(self) -> bool:
        """Whether the server is late: something waits in the socket, or for us, or is not to be read now."""
        if self._deadlines.is_handshake_stopped:
            return True
        accepted, transport = self.socket, self._transport
        if accepted is None or transport is None or not transport.is_reading():
            return transport is not None and not transport.is_closing()
        poll = select.poll()
        poll.register(accepted.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, unless the peer has left more unread than a peer may: then its connection is closed at once."""
        transport = self._transport
        if transport is None or not self.is_open:
            return
        if self._all_sent is not None and self._leaves_too_much_unread(len(data)):
            self._give_up_slow_reader()
            return
        self._owner.bytes_sent += len(data)
        transport.write(data)
        if self._all_sent is not None:
            # all of it: the transport keeps a response whole until its last byte is sent
            self._memory.add_unsent(len(data))

    def _leaves_too_much_unread(self, further: int) -> bool:
        unsent = self.unsent_bytes
        return unsent > _LARGE_BYTES and unsent + further > self._owner.limits.write_buffer_bytes

    async def until_answers_read(self) -> None:
        """Return when the peer has read everything, or is gone."""
        while self._all_sent is not None and self.is_open:
            await self._all_sent.wait()

    def pause_writing(self) -> None:
        """The socket does not take everything: read no more requests."""
        if self._all_sent is None:
            self._all_sent = asyncio.Event()
        self._deadlines.writing_paused(self._owner.clock.monotonic())
        self._throttle()

    def resume_writing(self) -> None:
        """Everything is sent."""
        if self.is_open:
            self._deadlines.writing_resumed()
        self._memory.charge_unsent(0)
        self._note_all_sent()
        # not from here: the transport is in the middle of writing
        asyncio.get_running_loop().call_soon(self._throttle)

    def _note_all_sent(self) -> None:
        if self._all_sent is not None:
            self._all_sent.set()
            self._all_sent = None

    def _give_up_slow_reader(self) -> None:
        self._owner.refused(self, RemoteProtocolError("peer does not read", reason="slow_reader"))
        self.abort()

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Answer what the fast path can, queue the rest."""
        owner, share = self._owner, self.read_share
        if not share.is_active:
            share.activate()
        self._deadlines.last_read = owner.clock.monotonic()
        was_idle = self._receiver.is_idle
        if was_idle and share.may_use_fast_path and share.left > 0 and 8 < len(data) <= LONGEST_FAST_REQUEST:
            # Nearly every read is one request of the fast path.
            response = owner.fast_path.answer(self, data)
            if response is not None:
                owner.bytes_received += len(data)
                # as `_count_fast` does: a call would cost every pull
                share.left -= FAST_FRAME_COST
                share.uncounted += 1
                if share.uncounted >= share.count_at:
                    share.count_requests()
                peer = self.peer
                peer.requests += 1
                peer.serialize_type = data[4]
                if response:
                    self.write(response)
                return
        self._receive_data(data, was_idle=was_idle)

    def _receive_data(self, data: bytes, *, was_idle: bool) -> None:
        """Have the receiver look at what was read."""
        if self._is_refused:
            # The connection still reads, so that the last responses arrive: its peer must not keep the loop by that.
            self._wait()
            self._throttle()
            return
        self._owner.bytes_received += len(data)
        if not was_idle:
            self.read_share.left -= FAST_FRAME_COST + len(data) * COPIED_READ_COST // LONGEST_READ_BYTES
        self._receiver.receive_data(data)
        if self._is_behind:
            self._end_read()
        else:
            self._handle_events()

    def _handle_events(self) -> None:
        """Handle what was received, until this address's share is used up or responses have to be read first."""
        receiver, share, responses = self._receiver, self.read_share, list[bytes]()
        turn_end = _ANY_COST if receiver.on_probation else share.turn_end()
        unsent, self._is_behind = 0, False
        while not self._is_behind and receiver.state is not _ENDED:
            if share.left <= turn_end:
                self._is_behind = receiver.held_bytes > 0
                break
            event = receiver.next_event()
            if event is None:
                break
            if not isinstance(event, bytes):
                self._send(responses)
                self._handle(event)
                continue
            response = self._answer_fast(event)
            if response is None:
                self._send(responses)
                self._dispatch(cut_frame(event), event)
            elif response:
                responses.append(response)
                unsent += len(response)
                if unsent > _BATCH_BYTES:
                    self._send(responses)
                    # the loop has to send these first; a peer that pipelines a lot may read well
                    unsent, self._is_behind = 0, self.is_write_paused
        self._send(responses)
        self._end_read()

    def _send(self, responses: list[bytes]) -> None:
        if responses:
            self.write(responses[0] if len(responses) == 1 else b"".join(responses))
            responses.clear()

    def _end_read(self) -> None:
        """Account for what is left of the input, and read on or not."""
        receiver, deadlines = self._receiver, self._deadlines
        if self._is_refused:
            return
        self._memory.charge_input(receiver.held_bytes)
        if self._is_behind or not receiver.is_inside_frame:
            deadlines.frame_ended()
        else:
            deadlines.frame_began(is_first=not self.peer.has_spoken)
        if receiver.state is State.BODY:
            # uvloop reads up to 32 times in an iteration, which is 8 MiB of a fast peer
            self._wait()
        self._throttle()

    def _answer_fast(self, frame: bytes) -> bytes | None:
        share = self.read_share
        if not share.may_use_fast_path:
            share.may_use_fast_path = share.is_only_observed
            return None
        response = self._owner.fast_path.answer(self, frame)
        if response is not None:
            self._deadlines.frame_ends = NEVER
            self._count_fast(share, frame)
        return response

    def _count_fast(self, share: AddressShare, frame: bytes) -> None:
        """Count a request that the fast path has answered."""
        share.left -= max(len(frame), FAST_FRAME_COST)
        share.uncounted += 1
        if share.uncounted >= share.count_at:
            share.count_requests()
        peer = self.peer
        peer.requests += 1
        peer.serialize_type = frame[4]

    def _dispatch(self, frame: Frame, raw: bytes = b"") -> None:
        """Have the dispatcher answer a whole frame."""
        self._deadlines.frame_ended()
        self.read_share.left -= DISPATCHED_FRAME_COST + len(raw)
        if self._receive(frame, raw):
            waits = self._receiver.on_probation or not self._has_room or self._owner.turns.is_crowded
            self._is_behind = waits and self._receiver.held_bytes > 0

    def _handle(self, event: Frame | HeaderReceived | ProxyHeader | RemoteProtocolError) -> None:
        if isinstance(event, Frame):
            self._dispatch(event)
        elif isinstance(event, HeaderReceived):
            self._decide(event)
        elif isinstance(event, ProxyHeader):
            self._deadlines.frame_ended()
            if event.source is not None:
                self.peer.proxied = address_text(event.source)
        else:
            if event.reason == "tls" and not self.peer.has_spoken:
                # a peer that reads it as TLS learns that it is not
                self.write(refusal(SerializeType.JSON, 0, "this server does not speak TLS (tls-mode is off)"))
            self.refuse(event)

    # -- large frames, and every frame over a reserved slot -----------------------------------------------------------

    def _decide(self, event: HeaderReceived) -> None:
        """Receive a frame or not, by its header; a frame that would be refused anyway is answered without its body."""
        limits, size = self._owner.limits, event.size
        try:
            command = decode_frame(event.header)
        except RemoteProtocolError as error:
            self.refuse(error)
            return
        code = command.code
        bound = min(limits.large_frames.get(code, limits.small_frame_bytes), limits.max_frame_bytes)
        # a request that is in work may register a broker: frames behind it need not wait
        if self.must_register and code not in BROKER_CODES | PROBING_CODES and not self.in_flight:
            others = limits.max_connections - limits.reserved_connections
            message = f"too many connections that are not brokers', limit {others}"
            self.refuse(RemoteProtocolError(message, reason="connections"))
        elif size <= limits.small_frame_bytes:
            self._receiver.accept()
        elif size > bound:
            message = f"frame of {size} bytes for request {code}, limit {bound}"
            self.refuse(RemoteProtocolError(message, reason="frame_too_large"))
        elif self._owner.handler.is_admitted(Request(command, self)) is False:
            self._drop_body(event, "refused for its header")
        else:
            self._accept_if_memory(event)

    def _accept_if_memory(self, event: HeaderReceived) -> None:
        if self._memory.reserve_input(event.size):
            self._receiver.accept()
            # its time begins now, however long it has waited
            self._deadlines.frame_ended()

    def _drop_body(self, event: HeaderReceived, why: str) -> None:
        self._deadlines.frame_ended()
        self._receiver.drop_body()
        self._receive(event.header, unread=why)

    def _try_again(self) -> None:
        """Other peers may have given memory back that a large frame waits for."""
        header = self._receiver.header
        if header is not None:
            self._deadlines.last_read = self._owner.clock.monotonic()
            self._accept_if_memory(header)
            self._handle_events()

    def _decline_frame(self) -> None:
        """Refuse the large frame that has waited for memory in vain; its peer stays, and may be a broker."""
        header = self._receiver.header
        if header is not None:
            why = _no_memory(header.size)
            self._owner.refused(self, RemoteProtocolError(why, reason="memory"))
            # the server did not read meanwhile
            self._deadlines.last_read = self._owner.clock.monotonic()
            self._drop_body(header, why)
            self._handle_events()

    # -- fair scheduling ----------------------------------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        """Whether the peer may send more requests."""
        return self._all_sent is None and self._queue.has_room(self._owner.limits.max_in_flight, _MAX_QUEUED_BYTES)

    def _throttle(self) -> None:
        """Read from the peer, or do not, as there is room for its requests."""
        transport = self._transport
        if transport is None or not self.is_open or transport.is_closing():
            return
        has_room = self._is_refused or self._has_room
        if has_room and self._is_behind:
            self._wait()
        wants = has_room and not self._is_waiting and self._receiver.state is not State.HEADER
        if wants != transport.is_reading():
            with contextlib.suppress(RuntimeError):  # closed in between
                transport.resume_reading() if wants else transport.pause_reading()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self.read_share.wait(self._read_on)

    def _read_on(self) -> None:
        """Go on in a new iteration: with frames that were left, or else by reading."""
        self._is_waiting = False
        if not self._is_behind:
            self.read_share.spend(COPIED_READ_COST)
        elif self._owner.turns.has_waiting(self):
            # Frames wait as bytes, which take less memory than requests.
            self.read_share.spend(FAST_FRAME_COST)
        elif self._has_room:
            self._handle_events()
        self._throttle()

    # -- the dispatcher -----------------------------------------------------------------------------------------------

    def _receive(self, frame: Frame, raw: bytes = b"", *, unread: str = "") -> bool:
        """Queue a request; False if the frame is not sound, which ends the connection."""
        try:
            command = decode_frame(frame)
        except RemoteProtocolError as error:
            # without its traceback: that leads to this frame, and when a caller holds the error, nothing but the
            # garbage collector frees what was received
            self.refuse(RemoteProtocolError(str(error), reason=error.reason))
            return False
        self.peer.serialize_type = command.serialize_type
        self.peer.requests += 1
        if command.is_response:
            # nothing is requested over accepted connections, so nothing can be the response to it
            return True
        if raw:
            self._owner.fast_path.learn(raw, command)
        size = len(frame.header) + len(frame.body)
        charge = size if size > _SMALL_BYTES else 0
        self._memory.charge(charge)
        request = Request(command, self, unread=unread)
        if command.code in self._owner.handler.concurrent:
            self._queue.add_concurrent(request, charge)
        else:
            self._queue.add(request, charge)
        return True

    def _request_ended(self, size: int) -> None:
        self._memory.release(size)
        if self._is_refused and not self._queue.is_answering:
            self.close()
        self._throttle()

    async def _answer(self, request: Request, charge: int) -> None:
        owner = self._owner
        try:
            if request.command.code not in owner.handler.concurrent:
                await self.until_answers_read()
            await owner.turns.begin(self)
            answer = await owner.handler.answer(request)
        finally:
            self._memory.release(charge)
        data, reserved = answer.data, 0
        if len(data) > _LARGE_BYTES:
            if self._memory.reserve(len(data)):
                reserved = len(data)
            else:
                data = owner.handler.busy(request, f"no memory for an answer of {len(data)} bytes")
        if data:
            self.write(data)
        # what the peer has not read at once is accounted for by now
        self._memory.release(reserved)
        if answer.closes:
            self.close()


def _no_memory(size: int) -> str:
    return f"no memory for a frame of {size} bytes"


def refusal(serialize_type: int, opaque: int | None, remark: str) -> bytes:
    """The response to a request that came in the wrong way, and was not read."""
    return encode_command(
        RemotingCommand(
            code=ResponseCode.SYSTEM_ERROR,
            opaque=opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            serialize_type=answer_type(serialize_type),
        )
    )
