"""Fuzzing a whole NameServer: no hang, no broken table, no disturbed neighbour, no error in the log."""

import asyncio
import contextlib
import json
import logging
import math
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from namesrv.kv import KVLimits
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv_runtime.log import JsonFormatter, TextFormatter
from tests.conftest import LOOPS
from tests.fuzz.budget import FRAMES, fuzzed
from tests.fuzz.mutations import Dice
from tests.fuzz.streams import Due, Stream, chopped, streams
from tests.support.fake_clock import GUARD_SECONDS, passing, settle, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import SPELLINGS, Broker, NamesrvPeer, registration
from tests.support.spelling import JSON, Response, read_responses
from tests.support.table_invariants import violations

# connections in use at the same time
BUSY: Final = 24
# one read of the server; it may close a longer stream after a part of it, which is a reset
ONE_READ_BYTES: Final = 1 << 16
LOGGERS: Final = ("namesrv", "namesrv_remoting", "asyncio")
RESPONSE_CODES: Final = frozenset({0, 1, 2, 3, 16, 17, 22})
# small, because each change writes the whole file
SMALL: Final = KVLimits(max_namespaces=4, max_keys_per_namespace=20, max_value_bytes=256)

CONTROL: Final = Broker("control-broker", 0, "127.0.0.9:10911", "control-cluster")
CONTROL_TOPICS: Final = ("control-topic", "control-other")
CONTROL_ROUTE: Final = {
    "brokerDatas": [
        {"brokerAddrs": {"0": CONTROL.addr}, "brokerName": CONTROL.name, "cluster": CONTROL.cluster}
        | {"enableActingMaster": False}
    ],
    "filterServerTable": {},
    "queueDatas": [{"brokerName": CONTROL.name, "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}],
}


class Trouble(logging.Handler):
    """A log handler that records errors, tracebacks and unformattable records."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []
        self._formatters = (TextFormatter(), JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Format a record as the daemon's handler does."""
        text, as_json = (formatter.format(record) for formatter in self._formatters)
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(text)
        if not (text.isprintable() and as_json.isascii() and isinstance(json.loads(as_json), dict)):
            self.found.append(f"not one printable line: {text!r}")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Receive all records, debug ones and the loop's included, and keep them from pytest."""
        before = [(logger, logger.level, logger.propagate) for logger in map(logging.getLogger, LOGGERS)]
        for logger, _, _ in before:
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)
            logger.propagate = False
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.found.append(f"loop: {context}"))
        try:
            yield
        finally:
            for logger, level, propagate in before:
                logger.removeHandler(self)
                logger.setLevel(level)
                logger.propagate = propagate
        assert not self.found, self.found


class FuzzPeer(asyncio.Protocol):
    """A connection that sends its stream and collects the responses."""

    def __init__(self) -> None:
        self.answers: list[Response] = []
        self.is_lost = False
        # true after a reset, which may discard unread responses
        self.is_reset = False
        self.transport: Any = None
        self._rest = b""
        self._changed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        found, self._rest = read_responses(self._rest + data)
        self.answers += found
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost, self.is_reset = True, exc is not None
        self._changed.set()

    async def feed(self, stream: Stream, dice: Dice) -> str:
        """Send a stream and wait for its responses; return a description of a wrong outcome, or an empty text."""
        pieces = chopped(stream, dice)
        for piece in pieces:
            if self.is_lost:
                break
            self.transport.write(piece)
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                while not self._is_done(stream):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return "not answered in time"
        if self.is_lost and not stream.is_broken:
            return "closed for nothing"
        for answer in self.answers:
            if (
                answer.header["flag"] != 1
                or answer.code not in RESPONSE_CODES
                or "internal error" in str(answer.remark)
            ):
                return f"answered {answer.header}"
            if answer.serialize_type == JSON and answer.body.startswith(b"{"):
                json.loads(answer.body)
        if self.is_reset and len(pieces) == 1 and len(pieces[0]) <= ONE_READ_BYTES:
            return "reset"
        return self._miscounted(stream)

    def _is_done(self, stream: Stream) -> bool:
        if self.is_lost or stream.is_broken:
            return self.is_lost
        # counted only when there may be enough
        return len(self.answers) >= stream.due.total() and not self._miscounted(stream)

    def _miscounted(self, stream: Stream) -> str:
        """Requests with missing or duplicate responses; those without an opaque match any number."""
        numbered = Counter({due: count for due, count in stream.due.items() if due[1] is not None})
        without = stream.due.total() - numbered.total()
        came: Counter[Due] = Counter((answer.serialize_type, answer.opaque) for answer in self.answers)
        missing, rest = numbered - came, came - numbered
        if rest.total() > without + stream.may_wait.total() or not (
            self.is_reset or (not missing and without <= rest.total())
        ):
            return f"missing {dict(missing)}, besides {dict(rest)} for {without} without a number"
        return ""


class FuzzServer:
    """A NameServer with a broker, two topics and a control client that fuzzed frames must not disturb."""

    def __init__(self, server: InProcess, control: NamesrvPeer) -> None:
        self._server = server
        self._control = control
        self._peers: list[FuzzPeer] = []

    @property
    def large_frames(self) -> Mapping[int, int]:
        """The largest frames of requests whose frames may be large."""
        rules = self._server.controller.server.dispatcher.receive_rules
        return {code: each.largest_frame_bytes for code, each in rules.items()}

    async def feed(self, fed: list[Stream], dice: Dice) -> None:
        """Send every stream over a connection of its own, a few at a time, and check the responses."""
        waiting = fed[::-1]

        async def work() -> None:
            while waiting:
                stream = waiting.pop()
                _, peer = await asyncio.get_running_loop().create_connection(FuzzPeer, *self._server.address)
                self._peers.append(peer)
                problem = await peer.feed(stream, dice)
                assert not problem, f"{problem}: {[piece.hex() for piece in stream.pieces]}"

        async with asyncio.TaskGroup() as tasks:
            for _ in range(BUSY):
                tasks.create_task(work())

    async def check(self) -> None:
        """Check the route, the tables, late peers, and what is left after all connections closed."""
        await self.check_control()
        namesrv, tables = self._server.namesrv, self._server.namesrv.manager.tables
        assert violations(tables) == []
        await self._check_late_peers()
        for peer in self._peers:
            peer.transport.abort()
        # A tick that needs more iterations than `FakeClock.advance` grants is late. The server takes the lateness for a
        # stop of its process, and keeps the brokers of closed connections for 35 s.
        async with asyncio.timeout(GUARD_SECONDS):
            await passing(
                self._server.clock, lambda: len(namesrv.slots.connections) == 1 == len(tables.broker_live_table)
            )
        await settle()
        assert violations(tables) == []
        assert tables.cluster_addr_table == {CONTROL.cluster: {CONTROL.name}}
        assert list(tables.broker_addr_table) == [CONTROL.name]
        assert tables.topic_queue_table.keys() == set(CONTROL_TOPICS)
        assert [*tables.filter_server_table, *tables.topics.mappings] == []
        # A removed write permission may outlive its broker, but only until the broker would have expired.
        assert all(math.isfinite(removal.ends_at) for removal in tables.write_removed.values())
        assert tables.digests.of_broker.keys() <= {(CONTROL.cluster, CONTROL.addr)}
        in_flight = sum(one.in_flight for one in namesrv.slots.connections.values())
        assert (len(namesrv.routes.watchers), in_flight) == (0, 0)
        await self.check_control()

    async def check_control(self) -> None:
        """Check that the control client gets the right route at once, on the fast path and from the dispatcher."""
        async with asyncio.timeout(GUARD_SECONDS):
            for spelling in SPELLINGS:
                answer = await self._control.call(105, {"topic": CONTROL_TOPICS[0]}, spelling=spelling)
                assert (answer.code, answer.java_value) == (0, CONTROL_ROUTE)

    async def _check_late_peers(self) -> None:
        """An incomplete frame closes its connection after the frame timeout; complete ones stay open.

        Connections of brokers that expire meanwhile are left out: their eviction may close them.
        """
        namesrv, seconds = self._server.namesrv, 31.5
        connections = namesrv.slots.connections
        late = {one.id for one in connections.values() if one._receiver.is_inside_frame}
        expiring = {
            live.connection_id
            for live in namesrv.manager.tables.broker_live_table.values()
            if live.expires_at() < namesrv.manager.now() + seconds
        }
        others = {one.id for one in connections.values() if one.is_open} - late - expiring
        await self._server.clock.advance(seconds)
        async with asyncio.timeout(GUARD_SECONDS):
            await until(lambda: not late & connections.keys())
        gone = others - connections.keys()
        assert not gone, f"closed for nothing: {gone} of {len(others)}"


@contextlib.asynccontextmanager
async def fuzz_server(data_dir: Path) -> AsyncIterator[FuzzServer]:
    """Serve until the block ends, and check the log until the end."""
    with Trouble().listening():
        limits = replace(Limits.of(Settings()), kv=SMALL)
        async with namesrv_in_process(data_dir, nameserver_name="fuzzed", admin_enabled=True, limits=limits) as server:
            control = await server.connect()
            assert (await control.register(CONTROL, registration(*CONTROL_TOPICS))).code == 0
            found = FuzzServer(server, control)
            await found.check_control()
            yield found


@pytest.mark.parametrize("loop", LOOPS.values(), ids=list(LOOPS))
# frames before one that ends a connection are repeated: well over one frame per number
@fuzzed(FRAMES // len(LOOPS) * 5 // 6)
def test_no_frame_disturbs_the_server(loop: Callable[[], asyncio.AbstractEventLoop], numbers: tuple[int, ...]) -> None:
    """Every request is answered or its connection closed, and after each batch the server is intact.

    `FuzzServer.check` covers the control client's route, the log, the tables, and leftovers.
    """

    async def feed_and_check(data_dir: str) -> None:
        async with fuzz_server(Path(data_dir)) as server:
            await server.feed(list(streams(numbers, server.large_frames)), Dice(numbers[0]))
            await server.check()

    with tempfile.TemporaryDirectory() as data_dir, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(feed_and_check(data_dir))
