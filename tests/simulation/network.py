"""The TCP of machines: latency, windows, retransmission, resets, one-way partitions and half-open connections.

Kernels acknowledge, keep and resend data. They go on while a process is frozen, and are silent while a machine has no
power. A direction of a connection is a queue of segments, which arrive in order; a segment that meets a cut is resent.
"""

import asyncio
import errno
import itertools
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.loop import SimulatedLoop
    from tests.simulation.world import Machine, World

# Bytes that the kernels of both sides buffer for a connection before the sender has to wait.
WINDOW_BYTES: Final = 16 * 1024
_SEGMENT_BYTES: Final = 1460
_READ_BYTES: Final = 64 * 1024
# Data that was unread for this time is read in one piece, even if it arrived in crumbs.
_GATHERED_SECONDS: Final = 0.05
# Interval of the reads of a slow reader.
_SLOW_READ_SECONDS: Final = 0.1
_FIRST_RETRY_SECONDS: Final = 0.2
_MAX_RETRY_SECONDS: Final = 3.0
_FIRST_DESCRIPTOR: Final = 1_000_000
_FIRST_PORT: Final = 40_000
_DEFAULT_HIGH: Final = 64 * 1024


class SimulatedSocket:
    """The parts of a socket that our code uses: family, type, options, number and name."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def __init__(self, descriptor: int, name: tuple[str, int]) -> None:
        self._descriptor = descriptor
        self._name = name
        self.options: dict[int, int] = {}

    def fileno(self) -> int:
        return self._descriptor

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[option] = value


class Listener:
    """A listening port, which stands for asyncio's server object."""

    def __init__(
        self, loop: "SimulatedLoop", factory: Callable[[], Any], name: tuple[str, int], network: "Network"
    ) -> None:
        self.loop = loop
        self.factory = factory
        self.sockets = [SimulatedSocket(-1, name)]
        self._name = name
        self._network = network

    def close(self) -> None:
        self._network.listeners.pop(self._name, None)


class SameListener:
    """A further server object for a listening port: a simulated port accepts all connections with its first one."""

    sockets: Sequence[SimulatedSocket] = ()

    def close(self) -> None:
        """Leave the port to its first server object."""


class Network:
    """All ways, connections and listening ports."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], Listener] = {}
        # Both ends of each connection that is not closed on both sides.
        self.ends: dict[int, End] = {}
        # (connecting machine, its target) -> number of the end of the latest attempt
        self.latest: dict[tuple[str, str], int] = {}
        # ways (from, to) that are cut -> number of faults that cut them
        self._cuts: dict[tuple[str, str], int] = {}
        # Ways with additional latency, and ways whose data arrives in crumbs.
        self.extra_latency: dict[tuple[str, str], float] = {}
        self.crumbs: dict[tuple[str, str], int] = {}
        # (reading machine, writing machine) -> bytes a second
        self.read_rates: dict[tuple[str, str], float] = {}
        self.chosen = world.random("network")
        self._numbers = itertools.count(_FIRST_DESCRIPTOR)
        self._ports: dict[str, Iterator[int]] = {}
        # Callback for each write that has arrived completely, with its end of the connection.
        self.on_arrival: Callable[[End, bytes], None] = lambda *_: None
        # Callback for each end of a connection that its process closes.
        self.on_close: Callable[[End], None] = lambda _: None

    # -- the wires ----------------------------------------------------------------------------------------------------

    def cut(self, way: tuple[str, str]) -> None:
        self._cuts[way] = self._cuts.get(way, 0) + 1

    def mend(self, way: tuple[str, str]) -> None:
        self._cuts[way] -= 1
        if not self._cuts[way]:
            del self._cuts[way]

    def is_open(self, way: tuple[str, str]) -> bool:
        if way in self._cuts:
            return False
        machines = self.world.machines
        return machines[way[0]].is_on and machines[way[1]].is_on

    def latency(self, way: tuple[str, str]) -> float:
        extra = self.extra_latency.get(way, 0.0) if self.extra_latency else 0.0
        return self.chosen.uniform(0.0002, 0.003) + extra

    # -- connecting ---------------------------------------------------------------------------------------------------

    def machine_at(self, address: str) -> "Machine":
        return next(each for each in self.world.machines.values() if each.address == address)

    def listen(self, loop: "SimulatedLoop", factory: Callable[[], Any], port: int) -> Listener:
        name = (loop.machine.address, port)
        if name in self.listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        self.listeners[name] = listener = Listener(loop, factory, name, self)
        return listener

    async def connect(self, loop: "SimulatedLoop", address: str, port: int) -> "End":
        """Connect. Raises OSError; waits without a limit where no machine responds."""
        machine = loop.machine
        there = self.machine_at(address)
        if machine.name not in self._ports:
            self._ports[machine.name] = itertools.count(_FIRST_PORT)
        local = (machine.address, next(self._ports[machine.name]))
        end = End(self, loop, machine, there, local, (address, port))
        self.latest[machine.name, there.name] = end.number
        connected = loop.create_future()
        way, back = (machine.name, there.name), (there.name, machine.name)
        tries = [_FIRST_RETRY_SECONDS]

        def arrives() -> None:
            if end.is_gone or connected.done() or machine.loop is not loop:
                return
            if not (self.is_open(way) and self.is_open(back)):
                self.world.at(self.world.now + tries[0], arrives)
                tries[0] = min(2 * tries[0], _MAX_RETRY_SECONDS)
                return
            listener = self.listeners.get((address, port))
            answered = self.world.now + self.latency(back)
            if listener is None:
                refused = ConnectionRefusedError(errno.ECONNREFUSED, f"connect to {address}:{port} refused")
                self.world.at(answered, lambda: self._settle(connected, machine, loop, refused))
                return
            other = End(self, listener.loop, there, machine, (address, port), local)
            end.peer, other.peer = other, end
            self.ends[end.number], self.ends[other.number] = end, other
            listener.loop.call_soon(self._accept, listener, other)
            self.world.at(answered, lambda: self._settle(connected, machine, loop, None))

        self.world.at(self.world.now + self.latency(way), arrives)
        try:
            await connected
        except BaseException:
            end.vanish()
            raise
        return end

    def _accept(self, listener: Listener, end: "End") -> None:
        if end.loop is not listener.loop or end.is_gone:
            return
        end.begin(listener.factory(), None)

    def _settle(
        self, future: "asyncio.Future[None]", machine: "Machine", loop: "SimulatedLoop", error: OSError | None
    ) -> None:
        if machine.loop is not loop:
            return

        def settle() -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        loop.call_soon(settle)

    def ends_of(self, machine: "Machine", other: "Machine | None" = None) -> list["End"]:
        """The ends on a machine of its connections, or of those to another machine."""
        return [end for end in self.ends.values() if end.machine is machine and other in (None, end.there)]

    def process_died(self, machine: "Machine") -> None:
        """Close all connections of an ended process, as its kernel does."""
        for name in [name for name, each in self.listeners.items() if each.loop.machine is machine]:
            del self.listeners[name]
        for end in self.ends_of(machine):
            end.process_died()

    def power_lost(self, machine: "Machine") -> None:
        """Drop all connections silently; later data for them is answered with a reset once the power is back."""
        for name in [name for name, each in self.listeners.items() if each.loop.machine is machine]:
            del self.listeners[name]
        for end in self.ends_of(machine):
            end.lose_power()


class End(asyncio.Transport):
    """One end of a connection: the transport of a process, and the kernel's half below it."""

    def __init__(
        self,
        network: Network,
        loop: "SimulatedLoop",
        machine: "Machine",
        there: "Machine",
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        self.number = next(network._numbers)
        super().__init__({"socket": SimulatedSocket(self.number, local), "peername": remote, "sockname": local})
        self.loop = loop
        self.machine = machine
        self.there = there
        self.peer: End | None = None
        self._network = network
        self._world = network.world
        # Additional latency of sent data, and the time when the latency ends.
        self._lag = (0.0, 0.0)
        self._way = (machine.name, there.name)
        self._back = (there.name, machine.name)
        # State of the process's side.
        self._protocol: Any = None
        self._buffer = bytearray()
        self._high, self._low = _DEFAULT_HIGH, _DEFAULT_HIGH // 4
        # Time since which the protocol may not write, because the other side does not read; None if it may.
        self.paused_since: float | None = None
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        # State of the kernel's side: received bytes that are unread, and bytes in flight or unread at the peer.
        self._received = bytearray()
        # Time since which the received bytes have waited for a read.
        self._unread_since = 0.0
        # Time since which bytes had waited for a read when a reset discarded them, or the peer's process ended.
        self.lost_since = float("inf")
        self._has_eof = False
        self._read_planned = False
        # Time before which a slow reader does not read.
        self._reads_at = 0.0
        self._segments: deque[tuple[bytes | None, list[bytes]]] = deque()
        self._is_pumping = False
        self._retry = _FIRST_RETRY_SECONDS
        self._blocked_since: float | None = None
        self._outstanding = 0
        self._last_arrival = 0.0
        # Writes that the kernel has not accepted completely: (bytes left, data).
        self._writes: deque[list[Any]] = deque()
        # True: closed for the kernel, too, which answers further data with a reset.
        self.is_gone = False

    def __repr__(self) -> str:
        return f"<End [{self.machine.name} to {self.there.name} | {'gone' if self.is_gone else 'open'}]>"

    @property
    def is_open(self) -> bool:
        """Return true if neither side has ended the connection."""
        peer = self.peer
        ends_well = peer is not None and not peer.is_gone and not peer.is_closing()
        return ends_well and not (self.is_gone or self._is_closing or self._has_eof)

    # -- the process's side -------------------------------------------------------------------------------------------

    def begin(self, protocol: Any, made: "asyncio.Future[None] | None") -> None:
        """Start the protocol, as asyncio does."""
        self._protocol = protocol

        def introduce() -> None:
            protocol.connection_made(self)
            self._plan_read()
            if made is not None and not made.done():
                made.set_result(None)

        self.loop.call_soon(introduce)

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._plan_read()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _DEFAULT_HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_lost or not data:
            return
        data = bytes(data)
        self._buffer += data
        self._writes.append([len(data), data])
        self._push()
        if len(self._buffer) > self._high and self.paused_since is None:
            self.paused_since = self._world.now
            self._world.note(self.machine.name, "writes no more to", self.there.name)
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._is_closing:
            return
        self._network.on_close(self)
        self._is_closing = True
        if not self._buffer:
            self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._force_close(None)

    def _force_close(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        if self.paused_since is not None and error is None:
            self._world.note(self.machine.name, "gives up", self.there.name)
        self._buffer.clear()
        self._writes.clear()
        self._is_closing = self._is_lost = True
        self.loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if self._protocol is None:
            return
        protocol, self._protocol = self._protocol, None
        self._is_lost = True
        protocol.connection_lost(error)
        self._close_socket()

    def _close_socket(self) -> None:
        """Close the kernel's side: with a reset if received data is unread."""
        if self.is_gone:
            return
        if self._received:
            self.vanish()
            self._send_reset()
        else:
            self.vanish()
            self._segments.append((None, []))
            self._pump()

    def process_died(self) -> None:
        self._buffer.clear()
        self._writes.clear()
        self._protocol = None
        self._close_socket()
        if self.peer is not None and self.peer._received:
            self.peer.lost_since = self.peer._unread_since

    def lose_power(self) -> None:
        self._segments.clear()
        self._protocol = None
        self.vanish()

    def slow_down(self, seconds: float, until: float) -> None:
        """Add latency to sent data until a time."""
        self._lag = (seconds, until)

    def vanish(self) -> None:
        """Remove the connection from the kernel."""
        self.is_gone = True
        self._network.ends.pop(self.number, None)

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def has_unread(self) -> bool:
        """Return true if poll(2) would report something to read."""
        return bool(self._received) or self._has_eof

    def _plan_read(self) -> None:
        is_due = self.has_unread and self._is_reading and not self._is_closing and self._protocol is not None
        if is_due and not self._read_planned and self.loop is self.machine.loop and self._reads_at <= self._world.now:
            self._read_planned = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_planned = False
        if not self._is_reading or self._is_closing or self._protocol is None:
            return
        if self._received:
            is_gathered = self._world.now - self._unread_since > _GATHERED_SECONDS
            most = _READ_BYTES if is_gathered else self._network.crumbs.get(self._back, _READ_BYTES)
            rate = self._network.read_rates.get(self._way)
            if rate is not None:
                most = round(rate * _SLOW_READ_SECONDS)
                self._reads_at = self._world.now + _SLOW_READ_SECONDS
                self._world.at(self._reads_at, self._plan_read)
            self._unread_since = self._world.now
            data = bytes(self._received[:most])
            del self._received[:most]
            self._protocol.data_received(data)
            self._acknowledge(len(data))
            self._plan_read()
        elif self._has_eof:
            self._has_eof = False
            if not self._protocol.eof_received():
                self.close()

    def _acknowledge(self, size: int) -> None:
        peer = self.peer
        assert peer is not None
        self._world.at(self._world.now + self._network.latency(self._way), lambda: peer._window_opened(size))

    def _window_opened(self, size: int) -> None:
        self._outstanding -= size
        if not self.is_gone and self._buffer:
            self.loop.call_soon(self._write_on)

    def _write_on(self) -> None:
        self._push()
        if self.paused_since is not None and len(self._buffer) <= self._low and self._protocol is not None:
            self.paused_since = None
            self._world.note(self.machine.name, "writes again to", self.there.name)
            self._protocol.resume_writing()
        if self._is_closing and not self._buffer and not self._is_lost:
            self._lose(None)

    # -- the kernel's side --------------------------------------------------------------------------------------------

    def _push(self) -> None:
        """Hand data to the kernel, as far as its window is open."""
        while self._buffer and self._outstanding < WINDOW_BYTES:
            segment = bytes(self._buffer[:_SEGMENT_BYTES])
            del self._buffer[: len(segment)]
            self._outstanding += len(segment)
            self._segments.append((segment, self._whole_writes(len(segment))))
        self._pump()

    def _whole_writes(self, size: int) -> list[bytes]:
        """The writes that end within the next `size` bytes."""
        whole = []
        while size and self._writes:
            taken = min(size, self._writes[0][0])
            self._writes[0][0] -= taken
            size -= taken
            if not self._writes[0][0]:
                whole.append(self._writes.popleft()[1])
        return whole

    def _pump(self) -> None:
        if self._segments and not self._is_pumping:
            self._is_pumping = True
            lag, until = self._lag
            latency = self._network.latency(self._way) + (lag if self._world.now < until else 0.0)
            self._last_arrival = max(self._world.now + latency, self._last_arrival)
            self._world.at(self._last_arrival, self._arrive)

    def _arrive(self) -> None:
        """Deliver the first segment, or resend it later if it, or its acknowledgement, meets a cut."""
        network, now = self._network, self._world.now
        self._is_pumping = False
        if not self._segments or not self.machine.is_on:
            return
        if not network.is_open(self._way):
            self._try_later()
            return
        data, writes = self._segments.popleft()
        self._deliver(data, writes)
        if network.is_open(self._back):
            self._retry, self._blocked_since = _FIRST_RETRY_SECONDS, None
        elif not self.is_gone:
            # The segment has arrived, but its acknowledgement has not.
            self._segments.appendleft((b"", []))
            self._try_later()
            return
        if self._segments:
            self._is_pumping = True
            self._last_arrival = max(now, self._last_arrival)
            self._world.at(self._last_arrival, self._arrive)

    def _try_later(self) -> None:
        now = self._world.now
        self._blocked_since = now if self._blocked_since is None else self._blocked_since
        patience = self.get_extra_info("socket").options.get(socket.TCP_USER_TIMEOUT, 0) / 1000
        if patience and now - self._blocked_since >= patience and not self.is_gone:
            self._segments.clear()
            self.break_off(TimeoutError(errno.ETIMEDOUT, "connection timed out"))
            return
        if self.is_gone and now - self._blocked_since > 60.0:
            # A kernel resends the end of a closed connection for a limited time.
            self._segments.clear()
            return
        self._is_pumping = True
        wait = min(self._retry, max(0.01, self._blocked_since + patience - now)) if patience else self._retry
        self._retry = min(2 * self._retry, _MAX_RETRY_SECONDS)
        self._world.at(now + wait, self._arrive)

    def _deliver(self, data: bytes | None, writes: list[bytes]) -> None:
        peer = self.peer
        assert peer is not None
        if peer.is_gone:
            if data is not None:
                peer._send_reset()
            return
        if data is None:
            peer._has_eof = True
        elif data:
            if not peer._received:
                peer._unread_since = self._world.now
            peer._received += data
            for write in writes:
                self._network.on_arrival(peer, write)
        peer._plan_read()

    def _send_reset(self) -> None:
        """Send a reset to the other side, once, without a guarantee that it arrives."""
        peer, network = self.peer, self._network
        if peer is None:
            return

        def arrive() -> None:
            if network.is_open(self._way) and not peer.is_gone:
                peer.break_off(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

        self._world.at(self._world.now + network.latency(self._way), arrive)

    def break_off(self, error: OSError) -> None:
        """End the connection on this side; unread data is lost."""
        self.vanish()
        if self._received:
            self.lost_since = self._unread_since
        self._received.clear()
        self._segments.clear()
        if self.machine.loop is self.loop:
            self._force_close(error)
