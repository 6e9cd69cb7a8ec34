"""TLS transport of accepted connections: encrypts and decrypts between a protocol and its socket."""

import asyncio
import contextlib
import itertools
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from queue import PriorityQueue
from typing import Any, Final, cast

from namesrv.histogram import WAIT_BOUNDS, Histogram
from namesrv.net.fairness.costs import TLS_RECORD_COST, TLS_RECORD_WITHOUT_DATA_COST, copy_cost
from namesrv.net.fairness.read_shares import NetworkShare, ReadShares
from namesrv.net.tls.session import RECORD_BYTES, TlsSession
from namesrv_remoting.addresses import network_of
from namesrv_remoting.errors import RemoteProtocolError, without_traceback
from namesrv_runtime.threads import NoThreadError, thread_starts

# First byte of a client's first TLS record. Read as the first byte of a frame, it would announce a frame of 369 MB.
TLS_HANDSHAKE: Final = 0x16
# Bytes that are read ahead while a thread computes a handshake step: a TLS 1.3 client may send its first requests with
# its last handshake record.
_MAX_AHEAD_BYTES: Final = 64 * 1024

# A thread for each processor that this process may use, but no more than four.
_THREADS: Final = min(4, len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
_Step = Callable[[], None]
_Done = Callable[[Exception | None], None]


class HandshakeThreads:
    """Threads that compute steps of TLS handshakes, on other cores if there are any, at a lower priority than the loop.

    A handshake takes about a millisecond, and very many peers may reconnect at once: in the event loop, all other
    connections would wait for the handshakes. Handshakes to which the server has responded go first: if their second
    step waited for the first steps of all other handshakes, their peers would give up, and the first step would have
    been computed for nothing.
    """

    def __init__(self, threads: int = _THREADS, *, now: Callable[[], float] = time.monotonic) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="tls", initializer=_give_way)
        self._numbers = itertools.count()
        # (False if the step is urgent, its number) of each queued step and of cancelled ones: urgent steps come first
        self._queue: PriorityQueue[tuple[bool, int]] = PriorityQueue()
        # number of each queued step -> step, callback with the outcome, loop of the callback
        self._steps: dict[int, tuple[_Step, _Done, asyncio.AbstractEventLoop]] = {}
        # number of each queued or running step -> time at which the step was queued, oldest first
        self._queued_at: dict[int, float] = {}
        # number of steps that have ended
        self._ended = 0
        self._now = now
        # how long peers have waited for a step: in the queue, and while a thread computed the step
        self.waits = Histogram(WAIT_BOUNDS)

    def __len__(self) -> int:
        return len(self._queued_at)

    def __repr__(self) -> str:
        return f"<HandshakeThreads [{self._ended} ended | {len(self)} waiting]>"

    def longest_wait_seconds(self) -> float:
        """The wait, until now, of the peer that has waited longest; 0 if no peer waits."""
        return self._now() - next(iter(self._queued_at.values())) if self._queued_at else 0.0

    def run(self, step: _Step, done: _Done, *, is_urgent: bool) -> int:
        """Run a step in a thread, urgent steps first, and return its number for `cancel`.

        `done` is called in the event loop with the exception or None.
        """
        number = next(self._numbers)
        self._queued_at[number] = self._now()
        self._steps[number] = step, done, asyncio.get_running_loop()
        self._queue.put((not is_urgent, number))
        # The executor has queued the call although it can start no thread for the call: the step waits for another
        # thread, or for the deadline of the handshake.
        with contextlib.suppress(NoThreadError), thread_starts():
            self._executor.submit(self._take_next)
        return number

    def cancel(self, number: int) -> None:
        """Release a step that no thread has begun, since its connection has ended."""
        if self._steps.pop(number, None) is not None:
            del self._queued_at[number]

    def _take_next(self) -> None:
        # The queue is never empty here: `run` puts one number into it for each submitted call.
        _, number = self._queue.get_nowait()
        queued = self._steps.pop(number, None)
        if queued is None:
            return
        step, done, loop = queued
        outcome = _outcome(step)
        # The loop raises RuntimeError once it is closed: a server stops without waiting for handshakes.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._step_ended, number, done, outcome)

    def _step_ended(self, number: int, done: _Done, outcome: Exception | None) -> None:
        self.waits.observe(self._now() - self._queued_at.pop(number))
        self._ended += 1
        done(outcome)


def _outcome(step: _Step) -> Exception | None:
    try:
        step()
    except ssl.SSLError as error:
        return without_traceback(error)
    except Exception as error:  # noqa: BLE001 - raised in the loop
        return error
    return None


def _give_way() -> None:
    """Lower the priority of this thread below that of the event loop; on Linux each thread has its own niceness."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class HandshakeListener:
    """Listener of one connection's handshake; called in the event loop. By default the methods do nothing."""

    def handshake_bytes_wait(self, size: int) -> bool:  # noqa: ARG002 - no memory is reserved by default
        """Received bytes wait for the handshake; False if the listener has closed the connection for lack of memory."""
        return True

    def records_wait(self, size: int) -> None:
        """Received records of this size, or none, wait to be decrypted; the listener may close the connection."""

    def handshake_step_began(self) -> None:
        """A step of the handshake is queued for a thread; the peer cannot continue until the step has ended."""

    def handshake_step_ended(self) -> None:
        """The step in the thread has ended; the peer may continue."""

    def handshake_completed(self, version: str, certificate_expires_at: float) -> None:
        """The handshake is complete; the arguments are the TLS version, and the expiry of the peer's certificate.

        The expiry is a time of the wall clock, and infinite if the peer has sent no certificate.
        """

    def tls_failed(self, error: RemoteProtocolError) -> None:
        """The handshake failed, or a later record was broken; the listener has to close the connection."""


# Protocol and listener of a closed transport.
_NO_PROTOCOL: Final = asyncio.Protocol()
_NO_LISTENER: Final = HandshakeListener()


class _Phase(Enum):
    """The phases of a connection: HANDSHAKE, COMPUTING for each step in a thread, then OPEN; CLOSED may follow each."""

    # the peer has to continue the handshake
    HANDSHAKE = auto()
    # a step of the handshake is queued or running in a thread, which alone may use the TLS session then
    COMPUTING = auto()
    OPEN = auto()
    CLOSED = auto()


# Looking up a member of an enum is slow in Python 3.11.
_HANDSHAKE, _COMPUTING, _OPEN, _CLOSED = _Phase


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The server's side of a TLS connection: a transport for the protocol above, a protocol for the socket below.

    This class replaces asyncio's TLS transport, which keeps 256 KiB for each connection, and cannot take over a
    connection after its first bytes were read. A failed handshake, or a broken record later, is reported once.
    """

    __slots__ = (
        "_below",
        "_is_answered",
        "_is_paused",
        "_is_waiting",
        "_listener",
        "_phase",
        "_protocol",
        "_session",
        "_share",
        "_shares",
        "_step_number",
        "_threads",
    )

    def __init__(
        self,
        protocol: asyncio.Protocol,
        context: ssl.SSLContext,
        threads: HandshakeThreads,
        listener: HandshakeListener,
        shares: ReadShares,
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._threads = threads
        self._listener = listener
        self._session = TlsSession(context)
        self._phase = _HANDSHAKE
        # number of the last step that was queued for a thread
        self._step_number = -1
        # True once the server has responded to the peer's ClientHello
        self._is_answered = False
        # the socket's transport, the shares of all networks in each iteration of the loop, and the share of the peer's
        # network; transport and share are None before the connection is made
        self._below: asyncio.Transport | None = None
        self._shares = shares
        self._share: NetworkShare | None = None
        # True while received records wait for a later iteration
        self._is_waiting = False
        # True while the protocol has paused reading
        self._is_paused = False

    def take_over(self, transport: asyncio.Transport) -> None:
        """Take over a TCP transport on which `connection_made` of the protocol was already called."""
        self._use(transport)
        transport.set_protocol(self)

    def _use(self, transport: asyncio.Transport) -> None:
        self._below = transport
        peer = transport.get_extra_info("peername")
        self._share = self._shares.enter(network_of(str(peer[0])) if isinstance(peer, tuple) else str(peer))

    # -- as a protocol ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._use(cast("asyncio.Transport", transport))
        self._protocol.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._phase in {_HANDSHAKE, _COMPUTING}:
            # A client that rejects the server's certificate may close the connection without an alert.
            self._report("handshake failed: the peer closed the connection (it may not trust our certificate)")
        self._phase = _CLOSED
        if self._share is not None:
            self._shares.leave(self._share)
        # A queued step would keep this transport in memory until its turn.
        self._threads.cancel(self._step_number)
        self._session.discard()
        self._protocol.connection_lost(exc)
        # Protocol and listener reference this transport. In a reference cycle, a closed connection would stay in memory
        # until a full garbage collection, which is rare.
        self._protocol, self._listener = _NO_PROTOCOL, _NO_LISTENER

    def closed_without_tls(self, exc: Exception | None) -> None:
        """Release a connection that closed without a TLS record; no handshake has failed."""
        self._phase = _CLOSED
        self.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer reads slowly: pass the call on to the protocol."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Everything is sent: pass the call on to the protocol."""
        self._protocol.resume_writing()

    def eof_received(self) -> bool | None:
        """The peer sends nothing more."""
        return self._protocol.eof_received()

    def data_received(self, data: bytes) -> None:
        """Decrypt received records and pass their data to the protocol, or continue the handshake."""
        share = self._share
        if self._phase is _CLOSED or share is None:
            return
        share.spend(copy_cost(len(data)))
        self._session.receive(data)
        if self._phase is _OPEN:
            self._read_records()
        elif not self._listener.handshake_bytes_wait(self._session.received_bytes):
            return
        elif self._phase is _HANDSHAKE:
            self._shake_hands()
        elif self._session.received_bytes > _MAX_AHEAD_BYTES and self._below is not None:
            self._below.pause_reading()

    def _shake_hands(self) -> None:
        """Compute the next step once its records are complete: a short one at once, others in a thread."""
        session, share = self._session, self._share
        if share is None or not session.next_record():
            return
        if session.begin_step() and share.spend(TLS_RECORD_WITHOUT_DATA_COST):
            try:
                session.shake_hands()
            except ssl.SSLError as error:
                self._go_on(error)
            else:
                self._go_on(None)
            return
        self._phase = _COMPUTING
        self._listener.handshake_step_began()
        self._step_number = self._threads.run(self._step, self._step_ended, is_urgent=self._is_answered)

    def _step(self) -> None:
        # This method runs in a thread. A connection that was closed while the step was queued needs no handshake.
        if self._phase is not _CLOSED:
            self._session.shake_hands()

    def _step_ended(self, error: Exception | None) -> None:
        if self._phase is _CLOSED or self._below is None:
            return
        self._phase = _HANDSHAKE
        self._listener.handshake_step_ended()
        self._below.resume_reading()
        self._go_on(error)

    def _go_on(self, error: Exception | None) -> None:
        """Continue after a step of the handshake; `error` is the exception of the step, or None."""
        if error is None:
            version = self._session.opened()
            self._phase = _OPEN
            self._listener.handshake_completed(version, self._session.expires_at)
            self._flush()
            self._read_records()
        elif isinstance(error, ssl.SSLWantReadError):
            self._is_answered = self._is_answered or self._session.has_output
            self._flush()
            self._shake_hands()
        elif isinstance(error, ssl.SSLError):
            self._broken(error)
        else:
            raise error

    def _read_records(self) -> None:
        """Pass the data of complete records to the protocol, until this network's share of the iteration is used up."""
        share = self._share
        if share is None:
            return
        share.spend(0)
        stop_at = share.stop_at()
        while self._phase is not _CLOSED and not self._is_paused and (size := self._session.next_record()):
            if share.left <= stop_at:
                self._wait()
                break
            data, end = self._decrypt(size, share, stop_at)
            if data:
                self._protocol.data_received(data)
            if end is not None:
                self._input_ended(end)
        self._listener.records_wait(self._session.received_bytes)
        self._flush()
        self._throttle()

    def _decrypt(self, size: int, share: NetworkShare, stop_at: int) -> tuple[bytes, Exception | None]:
        """The data of the next records, about as much as one record can hold; and why the input ended, or None.

        A peer may put each byte into a record of its own, and a call of the protocol costs more than a record.
        """
        parts: list[bytes] = []
        total = 0
        end: Exception | None = None
        while size and share.left > stop_at and total < RECORD_BYTES and end is None:
            data = b""
            try:
                data = self._session.decrypt(size)
            except (EOFError, ssl.SSLError, RemoteProtocolError) as error:
                end = without_traceback(error)
            parts.append(data)
            total += len(data)
            share.spend(TLS_RECORD_COST + size if data else TLS_RECORD_WITHOUT_DATA_COST)
            size = self._session.next_record()
        return b"".join(parts), end

    def _wait(self) -> None:
        if not self._is_waiting and self._share is not None:
            self._is_waiting = True
            self._share.wait(self._read_on)

    def _read_on(self) -> None:
        self._is_waiting = False
        self._read_records()

    def _throttle(self) -> None:
        """Pause or resume the socket: received records are decrypted before more are read, or they would pile up."""
        below = self._below
        if below is None or self.is_closing():
            return
        wants = not self._is_paused and not self._is_waiting
        if wants != below.is_reading():
            below.resume_reading() if wants else below.pause_reading()

    def _input_ended(self, end: Exception) -> None:
        """Handle the end of the input: a close_notify of the peer (EOFError), or an error, which is reported."""
        if isinstance(end, EOFError):
            if not self._protocol.eof_received():
                self.close()
        elif isinstance(end, RemoteProtocolError):
            self._listener.tls_failed(end)
        elif isinstance(end, ssl.SSLError):
            self._broken(end)

    def _broken(self, error: ssl.SSLError) -> None:
        # The pending output is the TLS alert that names the error to the peer.
        self._flush()
        what = "handshake failed" if self._phase is _HANDSHAKE else "connection broken"
        self._report(f"{what}: {self._session.description(error)}")

    def _report(self, what: str) -> None:
        self._listener.tls_failed(RemoteProtocolError(f"TLS {what}", reason="tls"))

    def _flush(self) -> None:
        if self._session.has_output and self._below is not None:
            self._below.write(self._session.output())

    # -- as a transport -----------------------------------------------------------------------------------------------

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Encrypt and send data; before the handshake is complete, the data is dropped."""
        if self._phase is not _OPEN or self._below is None or not data:
            return
        try:
            records = self._session.encrypt(data)
        except ssl.SSLError as error:
            self._broken(error)
        else:
            self._below.write(records)

    def close(self) -> None:
        """Send a close_notify, and close the connection once all written data is sent."""
        if self._below is None or self._phase is _CLOSED:
            return
        was_open = self._phase is _OPEN
        self._phase = _CLOSED
        if was_open:
            # The server does not wait for the peer's close_notify.
            with contextlib.suppress(ssl.SSLError):
                self._session.close()
            self._flush()
        # Free the received records now: the peer may take long to receive the last responses.
        self._session.discard()
        self._below.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._phase = _CLOSED
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or is being closed."""
        return self._phase is _CLOSED or self._below is None or self._below.is_closing()

    def is_reading(self) -> bool:
        """Whether received data is passed to the protocol."""
        return not self._is_paused and not self.is_closing()

    def pause_reading(self) -> None:
        """Pass no data to the protocol until `resume_reading`."""
        self._is_paused = True
        self._throttle()

    def resume_reading(self) -> None:
        """Pass data to the protocol again."""
        self._is_paused = False
        if self._phase is _OPEN and self._session.next_record():
            # The data is passed on in a later iteration, since the protocol is inside the call of this method.
            self._wait()
        self._throttle()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A property of the TCP transport, or one of this transport.

        `certificate_names` are those of a verified peer; `has_unread_records` is true while complete records wait to be
        decrypted.
        """
        if name == "certificate_names":
            return self._session.names
        if name == "has_unread_records":
            return self._session.next_record() > 0
        if name == "sslcontext":
            return self._session.context
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the amount of unsent data at which `pause_writing` of the protocol is called."""
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """The number of bytes that are written and not sent."""
        return 0 if self._below is None else self._below.get_write_buffer_size()
