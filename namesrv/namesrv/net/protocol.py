"""One accepted connection: bytes in, answers out, from `connection_made` to `connection_lost`.

Frames that the fast lane answers are answered inside `data_received`, all frames of one read with one write; the
others become commands and are handled one after the other by a task that lives as long as there are any. What a peer
may hold is bounded on the way: a large frame is received only after its header, requests wait in the socket when too
many are in work, and nobody gets a further answer before the last one is read.
"""

import asyncio
import contextlib
import mmap
import select
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

from namesrv.net.budget import MemoryBudget
from namesrv.net.limits import BROKER_CODES, PROBING_CODES, ServerLimits
from namesrv.net.proxy_header import read_proxy_header
from namesrv.net.read_shares import (
    COPIED_READ_COST,
    DISPATCHED_FRAME_COST,
    FAST_FRAME_COST,
    LONGEST_READ_BYTES,
    AddressShare,
    ReadShares,
)
from namesrv.net.steps import Turns
from namesrv_remoting.addresses import network_of
from namesrv_remoting.codes import FLAG_RESPONSE, ResponseCode, SerializeType
from namesrv_remoting.command import RemotingCommand, answer_type
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import HEAD, LENGTH, Frame, needed_bytes
from namesrv_remoting.serializers import decode_frame, encode_command
from namesrv_runtime.clock import Clock

# A response beyond this size is large, and a peer that has so much to read has left something unread.
_LARGE_BYTES: Final = 64 * 1024
# Answers of one read are joined into writes of about this size.
_BATCH_BYTES: Final = 256 * 1024
# Bytes of one connection's requests that wait to be answered; beyond it nothing more is read from the peer.
_MAX_QUEUED_BYTES: Final = 256 * 1024
# While requests are answered in turn, whose answers leave together, others get their turn after so long or so many: the
# system call costs as much as most.
_ANSWERING_SECONDS: Final = 0.0005
_ANSWERED_TOGETHER: Final = 8
# From here on a request is worth accounting for.
_SMALL_BYTES: Final = 4 * 1024
# Up to here the body of a large frame is copied, in a millisecond, so that its handlers have bytes.
_COPIED_BYTES: Final = 4 * 1024 * 1024
_NEVER: Final = float("inf")
# what `left` of a share never falls to
_ANY_COST: Final = float("-inf")
# what TLS takes for one connection, measured, until the handshake is over and then
_HANDSHAKE_BYTES: Final = 48 * 1024
_TLS_BYTES: Final = 20 * 1024
_SERIALIZE_TYPES: Final = (0, 1, 77)
# what a TlsTransport knows besides
_NAMES: Final = "certificate_names"
_EXPIRES_AT: Final = "certificate_expires_at"


class Answer(NamedTuple):
    """The encoded answer (empty for oneway), and whether the connection is to be closed after it."""

    data: bytes
    closes: bool = False


# Longer requests are the dispatcher's.
LONGEST_FAST_REQUEST: Final = 512


class FastPath(Protocol):
    """Answers requests inside `data_received` that it recognises by their bytes."""

    def answer(self, connection: "ServerConnection", frame: bytes) -> bytes | None:
        """The encoded response, empty when none is due; None leaves the frame to the dispatcher.

        The frame is what one read brought, perhaps not one frame: then it is not recognised.
        """
        ...

    def learn(self, frame: bytes, command: RemotingCommand) -> None:
        """Look at a request of this connection that was decoded for the dispatcher."""
        ...


@dataclass(slots=True, frozen=True)
class Request:
    """What a handler gets: the command, and the connection that it came over."""

    command: RemotingCommand
    connection: "ServerConnection"
    # whose it is, where there are accounts
    account: str = ""
    # why its body was not received: all that is left to do is to refuse it
    unread: str = ""
    # whether the topics in its body are allowed, where that depends on them: raises a ResponseError if not
    check_topics: Callable[[Iterable[str]], Awaitable[None]] | None = None
    # registered brokers, by cluster and address, whose place the request may take -> their account
    displaces: Mapping[tuple[str, str], str] = field(default_factory=dict)


class RequestHandler(Protocol):
    """Carries requests out; those of the codes in `concurrent` may take long, and hold up nobody behind them."""

    concurrent: frozenset[int]

    async def answer(self, request: Request) -> Answer:
        """What comes of a request."""
        ...

    def is_admitted(self, request: Request) -> bool | None:
        """Whether a request will be let in, as far as its header says; None: that depends on its body."""
        ...

    def busy(self, request: Request, remark: str) -> bytes:
        """The answer in the place of one that there is no room for."""
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
        """Whether its silence is somebody else's business."""
        ...

    def connection_opened(self, connection: "ServerConnection") -> bool:
        """Let a peer in; whether it has to say first that it is a broker."""
        ...

    def connection_closed(self, connection: "ServerConnection", reason: str) -> None:
        """Forget a peer."""
        ...

    def refused(self, connection: "ServerConnection", error: RemoteProtocolError) -> None:
        """Count and report a peer that broke a rule."""
        ...


class _LargeFrame:
    """A frame whose header was accepted, and whose body is received where it stays.

    Its pages are allocated as they are filled, and freed without the heap: to grow 16 MiB of bytes, or to join them in
    the end, keeps the loop for 10 ms.
    """

    def __init__(self, data: bytes, header_end: int, size: int) -> None:
        self._serialize_type = data[4]
        self._header = data[8:header_end]
        self._body = mmap.mmap(-1, max(1, size - header_end), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # what is missing
        self.left = size - header_end
        self.fill(data[header_end:size])

    def fill(self, data: bytes) -> bytes:
        """Take what belongs to it, and return the rest."""
        taken = data[: self.left]
        self._body.write(taken)
        self.left -= len(taken)
        return data[len(taken) :]

    def cut(self) -> Frame:
        """The frame. A slice of its body is bytes, and whoever reads a body of this size reads slices."""
        size = self._body.tell()
        body = self._body[:size] if size <= _COPIED_BYTES else cast("bytes", self._body)
        return Frame(self._serialize_type, self._header, body)


class _UnwantedBody:
    """The body of a frame that is refused without it: it comes all the same, and is dropped."""

    def __init__(self, left: int) -> None:
        # what is still to come
        self.left = left

    def fill(self, data: bytes) -> bytes:
        """Drop what belongs to it, and return the rest."""
        dropped = min(self.left, len(data))
        self.left -= dropped
        return data[dropped:]


@dataclass(slots=True, eq=False, repr=False)
class ServerConnection(asyncio.Protocol):
    """One peer of a server. `id` grows with every connection and never comes back; registrations are fenced with it."""

    _owner: ConnectionOwner
    id: int
    # who: the socket's address with and without its port, and the address a proxy named, for people only
    peer: str = field(default="?", init=False)
    ip: str = field(default="?", init=False)
    # whose limits, budget and share of the loop it uses: its IPv4 address, or the /64 of its IPv6 address
    network: str = field(default="?", init=False)
    proxied: str | None = field(default=None, init=False)
    # broker, client or admin, by what it asked last of these
    role: str = field(default="", init=False)
    # whose the last request was, where there are accounts
    account: str = field(default="", init=False)
    # whom access control takes it for, by anything but signatures
    identity: Any = field(default=None, init=False)
    # what the server's owner keeps about it
    served: Any = field(default=None, init=False)
    serialize_type: int = field(default=-1, init=False)
    requests: int = field(default=0, init=False)
    opened_wall: float = field(init=False)
    # when something was received last, monotonic
    last_read: float = field(init=False)
    # whether answers can still reach the peer
    is_open: bool = field(default=True, init=False)
    # whether it has to read answers before it gets another
    is_write_paused: bool = field(default=False, init=False)
    # True while the connection occupies a slot that is reserved for brokers, and no broker has registered over it
    must_register: bool = field(default=False, init=False)
    _transport: asyncio.Transport | None = field(default=None, init=False)
    # what this peer's address may have processed in an iteration of the loop
    read_share: AddressShare = field(init=False)
    # The beginning of a frame; None when the last read ended with a frame's end and the next one is looked at. From
    # `_needed` bytes on there is something new to see in it.
    _buffer: bytearray | None = field(default=None, init=False)
    _needed: int = field(default=0, init=False)
    # Received frames that are not looked at before earlier ones are answered and read, or before the next iteration of
    # the loop: None, or the bytes, of which those before `_held_at` are answered.
    _held: bytes | None = field(default=None, init=False)
    _held_at: int = field(default=0, init=False)
    # True while those frames wait for the next iteration.
    _is_waiting: bool = field(default=False, init=False)
    # a large frame that is being received, outside `_buffer`
    _large: _LargeFrame | _UnwantedBody | None = field(default=None, init=False)
    # memory that `_buffer`, `_held` and `_large` are charged with
    _buffer_bytes: int = field(default=0, init=False)
    # a PROXY header may come first
    _preamble: bool = field(init=False)
    # its next frame is one that may come before that
    _has_passed: bool = field(default=False, init=False)
    # a large frame waits for memory
    _is_short_of_memory: bool = field(default=False, init=False)
    _queue: deque[tuple[Request, int]] | None = field(default=None, init=False)
    _queued_bytes: int = field(default=0, init=False)
    # tasks of the requests that may take long; the queue has one of its own while it is not empty
    _watches: set[asyncio.Task[None]] | None = field(default=None, init=False)
    # nothing that still comes is looked at; the last answers may be on their way
    _is_refused: bool = field(default=False, init=False)
    # waits for the end of that pause, once somebody does
    _answers_read: asyncio.Event | None = field(default=None, init=False)
    # what of the unsent data is charged
    _unsent_bytes: int = field(default=0, init=False)
    # empty: plain text
    tls_version: str = field(default="", init=False)
    # memory that TLS is charged with
    _tls_bytes: int = field(default=0, init=False)
    # what the deadline of frames is about before there are any
    _is_in_handshake: bool = field(default=False, init=False)
    # what the peer has left of it while that deadline stands still; None: it does not
    _handshake_seconds_left: float | None = field(default=None, init=False)
    # when the frame that is being received has to be complete; when the peer has to have read its answers
    _deadline_frame: float = field(default=_NEVER, init=False)
    _deadline_write: float = field(default=_NEVER, init=False)

    def __post_init__(self) -> None:
        """Look at the owner's clock and limits."""
        self.opened_wall = self._owner.clock.wall()
        self.last_read = self._owner.clock.monotonic()
        self._preamble = self._owner.limits.proxy_protocol

    def __repr__(self) -> str:
        return f"<ServerConnection [{self.id} from {self.peer} | {self.role or 'silent'} | {self.requests} requests]>"

    @property
    def is_broker(self) -> bool:
        """Whether it has ever asked what only brokers ask."""
        return self.role == "broker"

    def note_role(self, role: str) -> None:
        """It asks what peers of this role ask; a broker stays one, and a client that asks what admins do, too."""
        if not self.is_broker and (role != "admin" or not self.role):
            self.role = role

    def note_account(self, account: str) -> None:
        """Its last request was this account's."""
        self.account = account

    def confirm_broker(self) -> None:
        """A broker has registered over this connection, which keeps its reserved slot."""
        self.must_register = False

    def keep_identity(self, identity: object) -> None:
        """Keep whom access control takes this peer for."""
        self.identity = identity

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Whom the peer's verified certificate is of: common name and alternative names; none without one."""
        names: tuple[str, ...] = () if self._transport is None else self._transport.get_extra_info(_NAMES, ())
        return names

    def keep(self, served: object) -> None:
        """Keep something about this peer for the server's owner."""
        self.served = served

    # -- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected; the server may refuse it at once."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = address_text(transport.get_extra_info("peername"))
        self.ip = self.peer.rpartition(":")[0]
        self.network = network_of(self.ip)
        self.read_share = self._owner.read_shares.enter(self.network)
        # Each write goes to the socket at once, in uvloop, too, which else waits until all reads of an iteration are
        # done; and writing is paused as soon as, and as long as, anything is unsent.
        self._transport.set_write_buffer_limits(high=0)
        self.must_register = self._owner.connection_opened(self)
        if self._preamble or self.must_register:
            self._buffer = bytearray()
            self._needed = 1

    def expect_handshake(self) -> None:
        """The peer has to complete a TLS handshake in time, or is refused."""
        self._is_in_handshake = True
        ends = self._owner.clock.monotonic() + self._owner.limits.tls_handshake_seconds
        self._deadline_frame = min(self._deadline_frame, ends)

    def stop_handshake_deadline(self) -> None:
        """We are at it, or have it wait for those before it: that is not the peer's time."""
        self._handshake_seconds_left = self._deadline_frame - self._owner.clock.monotonic()
        self._deadline_frame = _NEVER

    def resume_handshake_deadline(self) -> None:
        """It is the peer's turn."""
        left, self._handshake_seconds_left = self._handshake_seconds_left or 0.0, None
        # nor was it silent meanwhile
        self.last_read = self._owner.clock.monotonic()
        self._deadline_frame = self.last_read + left

    def handshake_over(self, tls_version: str = "") -> None:
        """It has, or need not; what it says comes now."""
        self.tls_version = tls_version
        self._is_in_handshake = False
        self._charge_tls(min(self._tls_bytes, _TLS_BYTES))
        self._deadline_frame = _NEVER
        self.last_read = self._owner.clock.monotonic()
        transport = self._transport
        if transport is not None and transport.get_extra_info(_EXPIRES_AT, _NEVER) < self._owner.clock.wall():
            # TLS 1.2 resumes sessions, which Python cannot switch off, and verifies nothing then
            self.refuse(RemoteProtocolError("TLS handshake failed: the peer's certificate has expired", reason="tls"))

    def may_speak_tls(self) -> bool:
        """Whether there is memory for it; it is taken, and a peer for which there is none is refused."""
        if not self.reserve(_HANDSHAKE_BYTES):
            self.refuse(RemoteProtocolError("no memory for a TLS handshake", reason="memory"))
            return False
        self._tls_bytes = _HANDSHAKE_BYTES
        self.expect_handshake()
        return True

    def move_to(self, tls: asyncio.Transport) -> None:
        """Speak TLS, over the same socket; nothing was said yet."""
        self._transport = tls

    def _charge_tls(self, size: int) -> None:
        self._owner.budget.charge(self.network, size - self._tls_bytes)
        self._tls_bytes = size

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, or we closed the connection: watches end, and the owner is notified."""
        self.is_open = False
        self._stop_listening()
        self._owner.read_shares.leave(self.read_share)
        self._owner.connection_closed(self, "reset" if exc else "closed")
        self._charge_unsent(0)
        self._charge_tls(0)
        # what was asked in order is still done, as a peer that asks and goes expects; watches have nobody to tell
        self._note_answers_read()
        self._cancel_watches()

    def close(self) -> None:
        """Close once everything written is sent."""
        self.is_open = False
        self._stop_listening()
        if self._transport is None:
            return
        if self._deadline_write == _NEVER and self.unsent_bytes:
            # a peer that never reads must not keep it open
            self._start_write_deadline()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.is_open = False
        self._stop_listening()
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol: one line in the log; what it asked in order before is answered, then it ends."""
        if self._is_refused:
            return
        self._owner.refused(self, error)
        self._stop_listening()
        self._cancel_watches()
        # until then what comes is read and dropped: unread, it would reset the connection under its last answers
        if self._queue is None:
            self.close()
        else:
            self._throttle()

    @property
    def socket(self) -> socket.socket | None:
        """The accepted socket, for its options."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def unsent_bytes(self) -> int:
        """What waits for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._queue or ()) + len(self._watches or ())

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has begun and not ended: what the deadlines of frames are about."""
        return self._large is not None or bool(self._buffer)

    def check_deadlines(self, now: float) -> None:
        """Close the connection if the peer is too late with something."""
        if self._deadline_write < now:
            self._give_up_slow_reader()
        elif self._deadline_frame < now:
            if self._is_short_of_memory:
                self._decline_frame(now)
            elif self._is_input_unread():
                # it may have come in time
                self._deadline_frame = now
            else:
                what, reason = "rest of a frame" if self._has_spoken else "first frame", "slow_frame"
                if self._is_in_handshake:
                    what, reason = "TLS handshake", "tls"
                self.refuse(RemoteProtocolError(f"timed out waiting for the {what}", reason=reason))
        elif self._is_short_of_memory:
            # others may have given some back
            self._is_short_of_memory = False
            self._needed = 0
            self.data_received(b"")
        elif not self.is_inside_frame and not self.in_flight:
            limits, reason = self._owner.limits, "silent"
            seconds = limits.first_frame_seconds if self.must_register else limits.silent_seconds
            if self._has_spoken and not self.must_register:
                seconds, reason = 0.0 if self._owner.may_be_idle(self) else limits.idle_seconds, "idle"
            if seconds and self.last_read + seconds < now and not self._is_input_unread():
                self.refuse(RemoteProtocolError(f"nothing received for {seconds:g} s", reason=reason))

    @property
    def _has_spoken(self) -> bool:
        return self.requests > 0 or self.serialize_type >= 0

    def _is_input_unread(self) -> bool:
        """Whether we are the ones who are late: something waits in the socket, or for us, or is not to be read now."""
        if self._handshake_seconds_left is not None:
            return True
        accepted, transport = self.socket, self._transport
        if accepted is None or transport is None or not transport.is_reading():
            return transport is not None and not transport.is_closing()
        poll = select.poll()
        poll.register(accepted.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    # -- memory -------------------------------------------------------------------------------------------------------

    def reserve(self, size: int) -> bool:
        """Take memory on this peer's account, unless there is none left for it; to be released."""
        return self._owner.budget.reserve(self.network, size)

    def release(self, size: int) -> None:
        """Give memory back."""
        self._owner.budget.release(self.network, size)

    def _charge_buffer(self, size: int) -> None:
        self._owner.budget.charge(self.network, size - self._buffer_bytes)
        self._buffer_bytes = size

    def _drop_buffer(self) -> None:
        self._charge_buffer(0)
        self._buffer = self._large = self._held = None
        self._is_short_of_memory = False

    def _stop_listening(self) -> None:
        """Look at nothing that still comes."""
        self._drop_buffer()
        # not None: what comes is not looked at as a whole either
        self._buffer, self._is_refused = bytearray(), True

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, unless the peer has left more unread than a peer may: then its connection is closed at once."""
        transport = self._transport
        if transport is None or not self.is_open:
            return
        if self.is_write_paused:
            unsent = self.unsent_bytes
            if unsent > _LARGE_BYTES and unsent + len(data) > self._owner.limits.write_buffer_bytes:
                self._give_up_slow_reader()
                return
        self._owner.bytes_sent += len(data)
        transport.write(data)
        if self.is_write_paused:
            # all of it: the transport keeps an answer whole until its last byte is sent
            self._charge_unsent(self._unsent_bytes + len(data))

    async def until_answers_read(self) -> None:
        """Return when the peer has read enough for a further answer, or is gone."""
        while self.is_write_paused and self.is_open:
            if self._answers_read is None:
                self._answers_read = asyncio.Event()
            await self._answers_read.wait()

    def pause_writing(self) -> None:
        """The peer reads more slowly than it asks: stop reading its questions."""
        self.is_write_paused = True
        self._start_write_deadline()
        self._throttle()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.is_write_paused = False
        if self.is_open:
            self._deadline_write = _NEVER
        self._charge_unsent(0)
        self._note_answers_read()
        # not from here: the transport is in the middle of writing
        asyncio.get_running_loop().call_soon(self._throttle)

    def _note_answers_read(self) -> None:
        if self._answers_read is not None:
            self._answers_read.set()
            self._answers_read = None

    def _charge_unsent(self, size: int) -> None:
        self._owner.budget.charge(self.network, size - self._unsent_bytes)
        self._unsent_bytes = size

    def _give_up_slow_reader(self) -> None:
        self._owner.refused(self, RemoteProtocolError("peer does not read", reason="slow_reader"))
        self.abort()

    def _start_write_deadline(self) -> None:
        seconds = self._owner.limits.whole_frame_seconds
        self._deadline_write = self._owner.clock.monotonic() + seconds if seconds else _NEVER

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:  # noqa: C901 - each call would cost every pull
        """Answer what the fast path can, queue the rest."""
        owner, size, share = self._owner, len(data), self.read_share
        if not share.is_active:
            share.activate()
        if self._is_refused:
            # The connection still reads, so that the last responses arrive: its peer must not keep the loop by that.
            self._read_later()
            return
        owner.bytes_received += size
        self.last_read = owner.clock.monotonic()
        if self._buffer is None and self._held is None:
            if share.left > 0 and share.may_use_fast_path and 8 < size <= LONGEST_FAST_REQUEST:
                # Nearly every read is one request of the fast path.
                response = owner.fast_path.answer(self, data)
                if response is not None:
                    self._count_fast(data[4], FAST_FRAME_COST)
                    if response:
                        self.write(response)
                    return
            self._answer_frames(data, 0)
            return
        share.left -= FAST_FRAME_COST + size * COPIED_READ_COST // LONGEST_READ_BYTES
        if self._held is not None:
            self._hold(self._held[self._held_at :] + data, 0)
            return
        if self._large is not None:
            data = self._filled(self._large, data)
        elif self._buffer is not None:
            data = self._joined(data)
        if data:
            self._answer_frames(data, 0)

    def _answer_frames(self, data: bytes, at: int) -> None:  # noqa: C901, PLR0912, PLR0915 - likewise
        """Answer or queue the frames from `at` on, until the share of this address is used up, and keep the rest."""
        owner, size, unpack, share = self._owner, len(data), HEAD.unpack_from, self.read_share
        limits, fast_path = owner.limits, owner.fast_path
        begin, turn_end = at, _ANY_COST if self.must_register else share.turn_end()
        answers: list[bytes] = []
        pending, has_to_wait = 0, False
        while size - at >= 8:
            if share.left <= turn_end:
                has_to_wait = True
                break
            length, word = unpack(data, at)
            header_length = word & 0xFFFFFF
            end = at + 4 + length
            if (
                end > size
                or length + 4 > limits.small_frame_bytes
                or header_length + 4 > length
                or header_length > limits.max_header_bytes
            ):
                # incomplete, large or wrong
                break
            body_at = at + 8 + header_length
            serialize_type = word >> 24
            frame = data[at:end]
            answer = None
            if share.may_use_fast_path:
                answer = fast_path.answer(self, frame)
            else:
                share.may_use_fast_path = share.is_only_observed
            if answer is not None:
                self._count_fast(serialize_type, max(FAST_FRAME_COST, end - at))
                if answer:
                    answers.append(answer)
                    pending += len(answer)
                    if pending > _BATCH_BYTES:
                        self.write(b"".join(answers))
                        answers.clear()
                        pending = 0
                        if self.is_write_paused:
                            # the loop has to send these first; a peer that pipelines a lot may read well
                            has_to_wait = True
            elif serialize_type in _SERIALIZE_TYPES:
                share.left -= DISPATCHED_FRAME_COST + end - at
                error = self._receive(
                    Frame(serialize_type, data[at + 8 : body_at], data[body_at:end]), learn_from=frame
                )
                if error is not None:
                    self.write(b"".join(answers))
                    self.refuse(error)
                    return
                has_to_wait = not self._has_room or owner.turns.is_crowded
            else:
                break
            at = end
            if has_to_wait:
                break
        if answers:
            self.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if at > begin:
            self._deadline_frame = _NEVER
        if at == size:
            if has_to_wait:
                self._throttle()
        elif self._is_refused or not self.is_open:
            # What comes behind the frame that ended the connection is dropped.
            pass
        elif has_to_wait:
            self._hold(data, at)
        else:
            self._keep(data[at:] if at else data)

    def _count_fast(self, serialize_type: int, cost: int) -> None:
        """Count a request that the fast path has answered."""
        share = self.read_share
        share.left -= cost
        share.uncounted += 1
        if share.uncounted >= share.count_at:
            share.count_requests()
        self.requests += 1
        self.serialize_type = serialize_type

    def _hold(self, data: bytes, at: int) -> None:
        """Keep the frames from `at` on for a later iteration; nothing is read meanwhile."""
        self._held, self._held_at = data, at
        self._charge_buffer(len(data))
        self._throttle()

    def _joined(self, data: bytes) -> bytes:
        """What was kept and what comes now, if that is enough to go on; else nothing."""
        buffer = self._buffer
        assert buffer is not None  # noqa: S101 - the caller has looked
        buffer += data
        if self._is_short_of_memory or len(buffer) < self._needed:
            if len(buffer) > self._buffer_bytes:
                self._charge_buffer(len(buffer))
            return b""
        self._drop_buffer()
        data = bytes(buffer)
        if self._preamble:
            data = self._strip_proxy_header(data)
        if data and self.must_register:
            return self._probed(data)
        return data

    def _probed(self, data: bytes) -> bytes:
        """The one frame that may be answered before the peer has begun like a broker, if there is one."""
        if not self._has_passed:
            self._keep(data)
            return b""
        (length,) = LENGTH.unpack_from(data)
        self._probe_later(data[4 + length :])
        return data[: 4 + length]

    def _probe_later(self, data: bytes) -> None:
        """Look at what comes behind a frame that has passed, on its own."""
        self._has_passed = False
        self._buffer = bytearray(data)
        self._needed = 1
        if data:
            asyncio.get_running_loop().call_soon(self.data_received, b"")

    def _filled(self, large: _LargeFrame | _UnwantedBody, data: bytes) -> bytes:
        """What comes behind the large frame, if this read completes it; else nothing."""
        data = large.fill(data)
        if large.left:
            self._read_later()
            return b""
        # there is something only if the frame was complete when it was let in
        data = bytes(self._buffer or b"") + data
        self._drop_buffer()
        self._deadline_frame = _NEVER
        if isinstance(large, _LargeFrame) and (error := self._receive(large.cut())) is not None:
            self.refuse(error)
            return b""
        if self.must_register:
            self._probe_later(data)
            return b""
        return data

    def _decline_frame(self, now: float) -> None:
        """Refuse the large frame that has waited for memory in vain; its peer stays, and may be a broker."""
        self._owner.refused(self, RemoteProtocolError(_no_memory(self._needed), reason="memory"))
        data = bytes(self._buffer or b"")
        self._drop_buffer()
        self._deadline_frame = _NEVER
        # it was we who did not read
        self.last_read = now
        self._keep(data, is_declined=True)

    def _keep(self, data: bytes, *, is_declined: bool = False) -> None:
        """Keep what cannot be answered now: frames that have to wait, or the beginning of one."""
        limits = self._owner.limits
        try:
            needed = needed_bytes(data, 0, limits.max_frame_bytes, limits.max_header_bytes)
            if len(data) >= 8 and (needed > limits.small_frame_bytes or self.must_register):
                needed = self._look_at_header(data, needed, is_declined=is_declined)
        except RemoteProtocolError as error:
            if error.reason == "tls" and not self._has_spoken:
                # whoever reads it as TLS learns that it is none
                self.write(refusal(SerializeType.JSON, 0, "this server does not speak TLS (tls-mode is off)"))
            # what came before is answered
            self.refuse(error)
            return
        if self._deadline_frame == _NEVER:
            seconds = limits.whole_frame_seconds if self._has_spoken else limits.first_frame_seconds
            self._deadline_frame = self.last_read + seconds if seconds else _NEVER
        self._needed = needed
        if self._large is not None:
            self._buffer = bytearray(data[needed:])
        else:
            self._buffer = bytearray(data)
            self._charge_buffer(len(data))
        if len(data) >= needed and not self._is_short_of_memory:
            self.data_received(b"")
        else:
            self._throttle()

    def _look_at_header(self, data: bytes, size: int, *, is_declined: bool) -> int:
        """Let a frame in by what its header asks, once that is there; how many bytes it needs to go on.

        A large one that would be refused anyway, or that there is no memory for, is answered without its body.

        Raises:
            RemoteProtocolError: such a frame is not received, or not over this connection.
        """
        limits = self._owner.limits
        _, word = HEAD.unpack_from(data)
        header_end: int = 8 + (word & 0xFFFFFF)
        if len(data) < header_end:
            return header_end
        header = Frame(data[4], data[8:header_end], b"")
        command = decode_frame(header)
        code = command.code
        is_admitted = self._owner.handler.is_admitted(Request(command, self))
        if self.must_register:
            # a request that is in work may end it: what comes behind that need not wait
            if code not in BROKER_CODES | PROBING_CODES and not self.in_flight:
                others = limits.max_connections - limits.reserved_connections
                message = f"too many connections that are not brokers', limit {others}"
                raise RemoteProtocolError(message, reason="connections")
            self._has_passed = True
        if size <= limits.small_frame_bytes:
            return size
        bound = min(limits.large_frames.get(code, limits.small_frame_bytes), limits.max_frame_bytes)
        if size > bound:
            message = f"frame of {size} bytes for request {code}, limit {bound}"
            raise RemoteProtocolError(message, reason="frame_too_large")
        if is_admitted is False or is_declined:
            self._large = _UnwantedBody(size - header_end)
            self._large.fill(data[header_end:size])
            error = self._receive(header, unread=_no_memory(size) if is_declined else "refused for its header")
            assert error is None  # noqa: S101 - it was decoded above
            self._deadline_frame = _NEVER
            return size
        self._is_short_of_memory = not self.reserve(size)
        if not self._is_short_of_memory:
            self._buffer_bytes = size
            self._large = _LargeFrame(data, header_end, size)
            # its time begins now, however long it has waited
            self._deadline_frame = _NEVER
        return size

    def _strip_proxy_header(self, data: bytes) -> bytes:
        try:
            found = read_proxy_header(data)
        except RemoteProtocolError as error:
            self.refuse(error)
            return b""
        self._buffer = None
        if found is None:
            self._buffer = bytearray(data)
            self._needed = len(data) + 1
            self._deadline_frame = min(self._deadline_frame, self.last_read + self._owner.limits.first_frame_seconds)
            return b""
        self._preamble = False
        self._deadline_frame = _NEVER
        if found.source is not None:
            self.proxied = address_text(found.source)
        return data[found.size :]

    @property
    def _has_room(self) -> bool:
        """Whether the peer may ask more."""
        return (
            not self.is_write_paused
            and self.in_flight < self._owner.limits.max_in_flight
            and self._queued_bytes < _MAX_QUEUED_BYTES
        )

    def _throttle(self) -> None:
        """Read from the peer, or do not, as there is room for what it asks."""
        transport = self._transport
        if transport is None or not self.is_open or transport.is_closing():
            return
        has_room = self._is_refused or self._has_room
        if has_room and self._held is not None:
            self._wait()
        wants = has_room and not self._is_waiting and not self._is_short_of_memory
        if wants != transport.is_reading():
            with contextlib.suppress(RuntimeError):  # closed in between
                transport.resume_reading() if wants else transport.pause_reading()

    def _read_later(self) -> None:
        """Read on in the next iteration: uvloop reads up to 32 times in one, which is 8 MiB of a fast peer."""
        self._wait()
        self._throttle()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self.read_share.wait(self._read_on)

    def _read_on(self) -> None:
        """Continue in a new iteration: with the frames that were held, or else by reading."""
        self._is_waiting = False
        if self._held is None:
            self.read_share.spend(COPIED_READ_COST)
        elif self._owner.turns.has_waiting(self):
            # Frames wait as bytes, which take less memory than requests.
            self.read_share.spend(FAST_FRAME_COST)
        elif self._has_room:
            data, self._held = self._held, None
            self._charge_buffer(0)
            self._answer_frames(data, self._held_at)
        self._throttle()

    # -- the ordinary road --------------------------------------------------------------------------------------------

    def _receive(self, frame: Frame, *, learn_from: bytes = b"", unread: str = "") -> RemoteProtocolError | None:
        """Have a request answered; or what is wrong with the frame, which changed nothing then."""
        try:
            command = decode_frame(frame)
        except RemoteProtocolError as error:
            # without its traceback: that leads to the caller's frame, and when the caller holds the error, nothing but
            # the garbage collector frees what was received
            return RemoteProtocolError(str(error), reason=error.reason)
        self.serialize_type = command.serialize_type
        self.requests += 1
        if command.is_response:
            # we ask nothing over accepted connections, so nothing can be the answer to it
            return None
        if learn_from:
            self._owner.fast_path.learn(learn_from, command)
        size = len(frame.header) + len(frame.body)
        charge = size if size > _SMALL_BYTES else 0
        self._owner.budget.charge(self.network, charge)
        request = Request(command, self, unread=unread)
        if command.code in self._owner.handler.concurrent:
            # what waits for a change holds up nothing behind it
            task = self._owner.tasks.create_task(self._answer(request, 0))
            self._watches = self._watches or set()
            self._watches.add(task)
            # not in the task: one that is cancelled before its first step does nothing at all
            task.add_done_callback(partial(self._watch_ended, charge))
        else:
            self._queued_bytes += charge
            if self._queue is None:
                self._queue = deque()
                self._owner.tasks.create_task(self._answer_in_turn(self._queue))
            self._queue.append((request, charge))
        self._throttle()
        return None

    def _watch_ended(self, charge: int, task: "asyncio.Task[None]") -> None:
        self.release(charge)
        if self._watches is not None:
            self._watches.discard(task)
        self._throttle()

    def _cancel_watches(self) -> None:
        for task in self._watches or ():
            task.cancel()

    async def _answer_in_turn(self, queue: deque[tuple[Request, int]]) -> None:
        answered, turn_ends = 0, time.perf_counter() + _ANSWERING_SECONDS
        while queue:
            await self.until_answers_read()
            request, charge = queue[0]
            await self._answer(request, charge)
            queue.popleft()
            self._queued_bytes -= charge
            self._throttle()
            answered += 1
            if queue and (answered >= _ANSWERED_TOGETHER or time.perf_counter() > turn_ends):
                # handlers that wait for nothing must not keep the loop for thousands of pipelined requests
                await asyncio.sleep(0)
                answered, turn_ends = 0, time.perf_counter() + _ANSWERING_SECONDS
        self._queue = None
        if self._is_refused:
            self.close()

    async def _answer(self, request: Request, charge: int) -> None:
        try:
            await self._owner.turns.begin(self)
            answer = await self._owner.handler.answer(request)
        finally:
            self.release(charge)
        data, reserved = answer.data, 0
        if len(data) > _LARGE_BYTES:
            if self.reserve(len(data)):
                reserved = len(data)
            else:
                data = self._owner.handler.busy(request, f"no memory for an answer of {len(data)} bytes")
        if data:
            self.write(data)
        # what the peer has not read at once is accounted for by now
        self.release(reserved)
        if answer.closes:
            self.close()


def _no_memory(size: int) -> str:
    return f"no memory for a frame of {size} bytes"


def refusal(serialize_type: int, opaque: int | None, remark: str) -> bytes:
    """The answer to what came in the wrong way, and was not read."""
    return encode_command(
        RemotingCommand(
            code=ResponseCode.SYSTEM_ERROR,
            opaque=opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            serialize_type=answer_type(serialize_type),
        )
    )


def address_text(address: object) -> str:
    """An address as people write it: 127.0.0.1:9876, [::1]:9876."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = str(address[0]), address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
